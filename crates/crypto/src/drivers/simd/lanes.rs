//! Messages on lanes: groups of a burst walk through their blocks together, each lane under its own key, with its own
//! pieces and its own length.
//!
//! A burst is sorted by number of blocks, so that the lanes of a group finish at about the same time; a lane that has
//! finished is masked until the others have. Blocks are read where they lie. Only a block that straddles two pieces,
//! or the padded end of a message where the instruction set has no masked loads, is put together on the stack first.

use super::hash::{Key, MAX_BLOCK, MAX_DIGEST, Md, Word};
use core::array::from_fn;
use zeroize::Zeroize;

/// The most lanes of any kernel.
pub(super) const MAX_LANES: usize = 16;

/// How many operations are sorted together.
const CHUNK: usize = 256;

/// Up to this many messages one by one are faster than lanes.
const FEW: usize = 2;

/// What a lane without work reads.
static NOTHING: [u8; MAX_BLOCK] = [0; MAX_BLOCK];

/// The states of all lanes: for each word a vector with a lane in each element.
#[repr(C, align(64))]
pub(super) struct State<W: Word>(pub(super) [[W; MAX_LANES]; 8]);

impl<W: Word> State<W> {
    fn new() -> Self {
        State([[W::default(); MAX_LANES]; 8])
    }
}

impl<W: Word> Drop for State<W> {
    fn drop(&mut self) {
        self.0.as_flattened_mut().zeroize();
    }
}

/// The unpadded ends of messages, less than a block each.
pub(super) struct Tails {
    /// Where each lane's end begins.
    pub(super) from: [*const u8; MAX_LANES],
    /// How many bytes it has.
    pub(super) len: [usize; MAX_LANES],
    /// What the padding says: bits of the message, the key's block included.
    pub(super) bits: [u64; MAX_LANES],
}

/// One hash on one instruction set.
///
/// # Safety
/// All functions: the CPU must have the instruction set. `active` has a bit for each lane that takes part; the states
/// of the others do not change, but their pointers must be as good as those of the active lanes.
pub(super) trait Kernel: Send + Sync + 'static {
    type Word: Word;
    const LANES: usize;
    /// Whether [`Kernel::tails`] exists.
    const TAILS: bool;
    /// Puts the midstates of a key on each lane.
    unsafe fn load(keys: &[&Key<Self::Word>; MAX_LANES], inner: &mut State<Self::Word>, outer: &mut State<Self::Word>);
    /// Takes in `count` blocks of each lane; `from[lane]` must be readable for as many.
    unsafe fn blocks(state: &mut State<Self::Word>, from: &[*const u8; MAX_LANES], count: usize, active: u32);
    /// Pads and takes in the ends of the messages, each readable for its length.
    unsafe fn tails(state: &mut State<Self::Word>, tails: &Tails, active: u32);
    /// The outer hash: takes the first `words` words of `inner` into `outer`, padded.
    unsafe fn outer(inner: &State<Self::Word>, outer: &mut State<Self::Word>, words: usize);
    /// Writes each lane's state in the byte order of its digest.
    unsafe fn store(state: &State<Self::Word>, out: &mut [[u8; MAX_DIGEST]; MAX_LANES]);
}

/// What a lane needs to know about an operation.
pub(super) struct Job<'a, W: Word> {
    /// `None` for a plain hash.
    pub(super) key: Option<&'a Key<W>>,
    pub(super) data: &'a [&'a [u8]],
}

/// One message on its way through a lane.
#[derive(Clone, Copy)]
struct Lane<'a> {
    /// What is left of the current piece; empty only when the message has ended.
    piece: &'a [u8],
    /// The pieces after it.
    rest: &'a [&'a [u8]],
    /// Bytes left in all pieces.
    left: usize,
    /// Blocks left, padding included.
    blocks: usize,
    /// Whether the byte 0x80 has been written.
    ended: bool,
}

impl<'a> Lane<'a> {
    const IDLE: Lane<'static> = Lane { piece: &[], rest: &[], left: 0, blocks: 0, ended: true };

    fn new<H: Md>(data: &'a [&'a [u8]], len: usize) -> Self {
        let mut lane = Lane { piece: &[], rest: data, left: len, blocks: blocks_of::<H>(len), ended: false };
        lane.advance(0);
        lane
    }

    /// Leaves `n` bytes of the current piece behind.
    #[inline]
    fn advance(&mut self, n: usize) {
        self.piece = &self.piece[n..];
        self.left -= n;
        while self.piece.is_empty()
            && let [next, rest @ ..] = self.rest
        {
            self.piece = next;
            self.rest = rest;
        }
    }

    /// The next block, which is not whole in the current piece: put together in `block`.
    fn assemble<H: Md>(&mut self, block: &mut [u8; MAX_BLOCK], bits: u64) {
        let mut filled = 0;
        while filled < H::BLOCK && !self.piece.is_empty() {
            let n = self.piece.len().min(H::BLOCK - filled);
            block[filled..filled + n].copy_from_slice(&self.piece[..n]);
            filled += n;
            self.advance(n);
        }
        if filled < H::BLOCK {
            block[filled..H::BLOCK].fill(0);
            if !self.ended {
                block[filled] = 0x80;
                self.ended = true;
            }
            if self.blocks == 1 {
                let at = if H::LITTLE { H::BLOCK - 2 * H::Word::BYTES } else { H::BLOCK - 8 };
                bits.write(H::LITTLE, &mut block[at..at + 8]);
            }
        }
    }
}

/// Blocks of a message of `len` bytes with its padding.
fn blocks_of<H: Md>(len: usize) -> usize {
    (len + 1 + 2 * H::Word::BYTES).div_ceil(H::BLOCK)
}

/// Runs all of `ops`, keyed or not alike: `plain` is the key of those that have none, `job` shows an operation, `done`
/// takes its digest, `alone` runs one without lanes.
///
/// The caller must have checked that the CPU has the kernel's instructions: rows exist only where it has.
pub(super) fn run<H: Md, K: Kernel<Word = H::Word>, O>(
    ops: &mut [O],
    plain: &Key<H::Word>,
    job: impl for<'a> Fn(&'a O) -> Job<'a, H::Word>,
    mut done: impl FnMut(&mut O, &[u8; MAX_DIGEST]),
    mut alone: impl FnMut(&mut O),
) {
    if ops.len() <= FEW {
        ops.iter_mut().for_each(alone);
        return;
    }
    let mut group = Group::<H, K>::new();
    for chunk in ops.chunks_mut(CHUNK) {
        let mut order = [(0u8, 0usize); CHUNK];
        let order = &mut order[..chunk.len()];
        for (index, (slot, op)) in order.iter_mut().zip(chunk.iter()).enumerate() {
            *slot = (index as u8, job(op).data.iter().map(|piece| piece.len()).sum());
        }
        let by_blocks = |entry: &(u8, usize)| core::cmp::Reverse(blocks_of::<H>(entry.1));
        if !order.is_sorted_by_key(by_blocks) {
            order.sort_unstable_by_key(by_blocks);
        }
        for members in order.chunks(K::LANES) {
            if members.len() <= FEW {
                members.iter().for_each(|(index, _)| alone(&mut chunk[usize::from(*index)]));
                continue;
            }
            group.run(members, plain, |index| job(&chunk[usize::from(index)]));
            for ((index, _), digest) in members.iter().zip(&group.digests) {
                done(&mut chunk[usize::from(*index)], digest);
            }
        }
    }
    group.digests.as_flattened_mut().zeroize();
}

/// The stack of one burst.
struct Group<H: Md, K: Kernel<Word = H::Word>> {
    inner: State<H::Word>,
    outer: State<H::Word>,
    digests: [[u8; MAX_DIGEST]; MAX_LANES],
    kernel: core::marker::PhantomData<K>,
}

impl<H: Md, K: Kernel<Word = H::Word>> Group<H, K> {
    fn new() -> Self {
        Group {
            inner: State::new(),
            outer: State::new(),
            digests: [[0; MAX_DIGEST]; MAX_LANES],
            kernel: core::marker::PhantomData,
        }
    }

    /// Hashes the messages of `members` (index and length), at most [`Kernel::LANES`] and at least one, into
    /// `self.digests`.
    fn run<'a>(&mut self, members: &[(u8, usize)], plain: &'a Key<H::Word>, job: impl Fn(u8) -> Job<'a, H::Word>) {
        let n = members.len();
        let first = job(members[0].0);
        let keyed = first.key.is_some();
        let mut keys = [first.key.unwrap_or(plain); MAX_LANES];
        let mut lanes = [Lane::IDLE; MAX_LANES];
        let mut bits = [0u64; MAX_LANES];
        for (l, (index, len)) in members.iter().enumerate() {
            let Job { key, data } = job(*index);
            keys[l] = key.unwrap_or(plain);
            lanes[l] = Lane::new::<H>(data, *len);
            bits[l] = (*len as u64 + if keyed { H::BLOCK as u64 } else { 0 }) * 8;
        }
        // SAFETY: rows over `K` exist only where the CPU has its instructions, here and below.
        unsafe { K::load(&keys, &mut self.inner, &mut self.outer) };
        Self::walk(&mut self.inner, &mut lanes[..n], &bits);
        let last = if keyed {
            // SAFETY: as above.
            unsafe { K::outer(&self.inner, &mut self.outer, H::DIGEST / H::Word::BYTES) };
            &self.outer
        } else {
            &self.inner
        };
        // SAFETY: as above.
        unsafe { K::store(last, &mut self.digests) };
    }

    /// Takes all blocks of all lanes into `state`.
    fn walk(state: &mut State<H::Word>, lanes: &mut [Lane<'_>], bits: &[u64; MAX_LANES]) {
        loop {
            let mut active = 0u32;
            let mut run = usize::MAX;
            let mut only_tails = K::TAILS;
            let mut any = 0;
            for (l, lane) in lanes.iter().enumerate() {
                if lane.blocks > 0 {
                    active |= 1 << l;
                    any = l;
                    run = run.min(lane.piece.len() / H::BLOCK);
                    only_tails &= lane.piece.len() == lane.left && lane.left < H::BLOCK && !lane.ended;
                }
            }
            if active == 0 {
                return;
            }
            let is_active = |l: usize| active & 1 << l != 0;
            if run > 0 {
                let spare = lanes[any].piece.as_ptr();
                let from = from_fn(|l| if is_active(l) { lanes[l].piece.as_ptr() } else { spare });
                // SAFETY: each active lane has `run` whole blocks in its current piece, and the others borrow from one.
                unsafe { K::blocks(state, &from, run, active) };
                for lane in lanes.iter_mut().filter(|lane| lane.blocks > 0) {
                    lane.blocks -= run;
                    lane.advance(run * H::BLOCK);
                }
            } else if only_tails {
                let tails = Tails {
                    from: from_fn(|l| if is_active(l) { lanes[l].piece.as_ptr() } else { lanes[any].piece.as_ptr() }),
                    len: from_fn(|l| if is_active(l) { lanes[l].left } else { lanes[any].left }),
                    bits: *bits,
                };
                // SAFETY: what is left of each active lane lies in its current piece; the others borrow from one.
                unsafe { K::tails(state, &tails, active) };
                return;
            } else {
                Self::step(state, lanes, bits, active);
            }
        }
    }

    /// Takes one block of each active lane into `state`, wherever its bytes lie.
    #[inline(never)]
    fn step(state: &mut State<H::Word>, lanes: &mut [Lane<'_>], bits: &[u64; MAX_LANES], active: u32) {
        let mut assembled = [[0u8; MAX_BLOCK]; MAX_LANES];
        let mut from = [NOTHING.as_ptr(); MAX_LANES];
        for (l, (lane, block)) in lanes.iter_mut().zip(&mut assembled).enumerate() {
            if lane.blocks == 0 {
                continue;
            }
            if lane.piece.len() >= H::BLOCK {
                from[l] = lane.piece.as_ptr();
                lane.advance(H::BLOCK);
            } else {
                lane.assemble::<H>(block, bits[l]);
                from[l] = block.as_ptr();
            }
            lane.blocks -= 1;
        }
        // SAFETY: each pointer is that of a whole block: in its message, or in `assembled`, which nothing changes now.
        unsafe { K::blocks(state, &from, 1, active) };
    }
}
