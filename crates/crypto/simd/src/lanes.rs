//! Hashes a group of messages in parallel, one on each lane, with a key, pieces and a length of its own.
//!
//! A burst is sorted by number of blocks, so that the lanes of a group finish at about the same time. A lane that has
//! finished is masked until all others have finished. Blocks are read in place. A block is assembled on the stack only
//! if it straddles two pieces, or if it is the padded end of a message and the instruction set has no masked loads.

use super::md::{MAX_BLOCK, MAX_DIGEST, Md, MdKey, Word};
use core::array::from_fn;
use sealane_crypto::wipe::wipe;

/// The most lanes of any kernel.
pub(super) const MAX_LANES: usize = 32;

/// The number of operations that are sorted together.
const CHUNK: usize = 64;

/// The most messages, left over when the other lanes are full, that are hashed one by one.
const FEW: usize = 2;

/// The number of messages up to which hashing one by one is faster than lanes of which most are idle.
fn few<H: Md, K: Kernel>() -> usize {
    match H::FEW {
        Some(_) if K::LANES < 16 && is_x86_feature_detected!("sha") => K::LANES - 1,
        Some(few) if is_x86_feature_detected!("sha") => few,
        _ => FEW,
    }
}

/// The block that a lane without work reads.
static NOTHING: [u8; MAX_BLOCK] = [0; MAX_BLOCK];

/// The hash states of all lanes: for each word of the state a vector, with one element for each lane.
#[repr(C, align(64))]
pub(super) struct State<W: Word>(pub(super) [[W; MAX_LANES]; 8]);

impl<W: Word> State<W> {
    fn new() -> Self {
        State([[W::default(); MAX_LANES]; 8])
    }
}

impl<W: Word> Drop for State<W> {
    fn drop(&mut self) {
        wipe(self.0.as_flattened_mut());
    }
}

/// The unpadded ends of messages, less than a block each.
pub(super) struct Tails {
    /// The start of each lane's end.
    pub(super) from: [*const u8; MAX_LANES],
    /// Its length in bytes.
    pub(super) len: [usize; MAX_LANES],
    /// The length in the padding: bits of the message, including the key's block.
    pub(super) bits: [u64; MAX_LANES],
}

/// A group of messages of one length, each in one piece, with tags of one length.
#[derive(Clone, Copy)]
pub(super) struct Alike<'a> {
    /// Pointers to [`MdKey`]s: at least [`Kernel::LANES`], also for lanes without a message.
    pub(super) keys: &'a [*const u8],
    /// Pointers to the messages: as many as keys, each readable for `len` bytes.
    pub(super) from: &'a [*const u8],
    /// Destinations of the digests: at most [`Kernel::LANES`], each writable for `out_len` bytes. The digests of other
    /// lanes are not written.
    pub(super) to: &'a [*mut u8],
    /// Bytes of each message, fewer than 2^28.
    pub(super) len: usize,
    /// The number of words in an inner digest for HMAC; `None` for the hash.
    pub(super) words: Option<usize>,
    /// Bytes of each digest that are written, at most the whole state.
    pub(super) out_len: usize,
}

/// One hash on one instruction set.
///
/// # Safety
/// For all functions, the CPU must have the instruction set. `active` has a bit for each lane that takes part; the
/// states of the others do not change, but their pointers must be as valid as those of the active lanes.
pub(super) trait Kernel: Send + Sync + 'static {
    type Word: Word;
    const LANES: usize;
    /// Whether [`Kernel::tails`] and [`Kernel::alike`] exist.
    const TAILS: bool;
    /// Loads the midstates of each lane's key, by pointers to [`MdKey`]s.
    unsafe fn load(keys: &[*const u8; MAX_LANES], inner: &mut State<Self::Word>, outer: &mut State<Self::Word>);
    /// Absorbs `count` blocks of each lane, for which `from[lane]` must be readable.
    unsafe fn blocks(state: &mut State<Self::Word>, from: &[*const u8; MAX_LANES], count: usize, active: u32);
    /// Pads and absorbs the ends of the messages, each readable for its length.
    unsafe fn tails(state: &mut State<Self::Word>, tails: &Tails, active: u32);
    /// Computes the digests or tags of messages that are alike, as [`Alike`] demands.
    unsafe fn alike(group: &Alike<'_>);
    /// The outer hash: absorbs the first `words` words of `inner`, padded, into `outer`.
    unsafe fn outer(inner: &State<Self::Word>, outer: &mut State<Self::Word>, words: usize);
    /// Writes each lane's state in the byte order of its digest: eight words to each pointer.
    unsafe fn store(state: &State<Self::Word>, to: &[*mut u8; MAX_LANES]);
}

/// The position of a lane in its message.
#[derive(Clone, Copy)]
struct Lane<'a> {
    /// The rest of the current piece; empty only at the end of the message.
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

    /// Advances by `n` bytes of the current piece.
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

    /// Assembles the next block, which is not whole in the current piece, in `block`.
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

/// An operation as lanes see it.
pub(super) trait Job<W: Word> {
    fn data(&self) -> &[&[u8]];
    /// The key that the driver in `slot` prepared; `None` for a plain hash.
    fn key(&self, slot: usize) -> Option<&MdKey<W>>;
    /// As [`Self::key`], but without the check of the key's type, which is that of the operation `checked`.
    fn key_as(&self, checked: &Self, slot: usize) -> *const MdKey<W>;
    /// The destination of the digest, which may be shorter than the full digest.
    fn out(&mut self) -> &mut [u8];
    fn succeed(&mut self);
}

/// Runs all of `ops`, of which either all or none have a key, on the lanes of `K`, or on those of `Wide` if there are
/// more messages than `K` has lanes. `alone` runs an operation without lanes.
///
/// The CPU must have the kernels' instructions. Rows exist only on CPUs that have them.
pub(super) fn run<H: Md, K: Kernel<Word = H::Word>, Wide: Kernel<Word = H::Word>, O: Job<H::Word>>(
    slot: usize,
    ops: &mut [O],
    mut alone: impl FnMut(&mut O),
) {
    let few = few::<H, K>();
    if ops.len() <= few {
        ops.iter_mut().for_each(alone);
        return;
    }
    for chunk in ops.chunks_mut(CHUNK) {
        if !(K::TAILS && run_alike::<H, K, Wide, O>(slot, chunk, few, &mut alone)) {
            run_mixed::<H, K, Wide, O>(slot, chunk, few, &mut alone);
        }
    }
}

/// The number of messages of the next group, out of `left`.
fn share<K: Kernel, Wide: Kernel>(left: usize) -> usize {
    left.min(if left > K::LANES + FEW { Wide::LANES } else { K::LANES })
}

/// Runs messages of one length, each in one piece, which is the common case. Returns false for other messages.
fn run_alike<H: Md, K: Kernel<Word = H::Word>, Wide: Kernel<Word = H::Word>, O: Job<H::Word>>(
    slot: usize,
    ops: &mut [O],
    few: usize,
    alone: &mut impl FnMut(&mut O),
) -> bool {
    let [piece] = ops[0].data() else { return false };
    let (len, start) = (piece.len(), piece.as_ptr());
    let out_len = ops[0].out().len();
    if len >= 1 << 28 || out_len > H::DIGEST {
        return false;
    }
    let plain = MdKey::<H::Word> { inner: H::IV, outer: H::IV };
    let [first, rest @ ..] = ops else { return false };
    let key = first.key(slot);
    let words = key.map(|_| H::DIGEST / H::Word::BYTES);
    // Lanes without a message borrow the first one's.
    let mut from = [start; CHUNK];
    let mut keys = [core::ptr::from_ref(key.unwrap_or(&plain)).cast::<u8>(); CHUNK];
    let mut to = [core::ptr::null_mut(); CHUNK];
    for (i, op) in rest.iter_mut().enumerate() {
        match op.data() {
            [piece] if piece.len() == len => from[i + 1] = piece.as_ptr(),
            _ => return false,
        }
        if words.is_some() {
            keys[i + 1] = op.key_as(first, slot).cast();
        }
        let out = op.out();
        if out.len() != out_len {
            return false;
        }
        to[i + 1] = out.as_mut_ptr();
        op.succeed();
    }
    to[0] = first.out().as_mut_ptr();
    first.succeed();
    let mut at = 0;
    while at < ops.len() {
        let n = share::<K, Wide>(ops.len() - at);
        if n <= few {
            ops[at..at + n].iter_mut().for_each(&mut *alone);
        } else {
            let group = Alike { keys: &keys[at..], from: &from[at..], to: &to[at..at + n], len, words, out_len };
            // SAFETY: rows over `K` exist only where the CPU has its instructions. Each message has `len` bytes and
            // each digest room for `out_len`; the lanes of each group are within CHUNK.
            unsafe { if n > K::LANES { Wide::alike(&group) } else { K::alike(&group) } }
        }
        at += n;
    }
    true
}

/// Runs at most [`CHUNK`] messages of any lengths and pieces.
fn run_mixed<H: Md, K: Kernel<Word = H::Word>, Wide: Kernel<Word = H::Word>, O: Job<H::Word>>(
    slot: usize,
    chunk: &mut [O],
    few: usize,
    alone: &mut impl FnMut(&mut O),
) {
    let mut group = HashGroup::<H>::new();
    {
        let mut order = [(0u8, 0usize); CHUNK];
        let order = &mut order[..chunk.len()];
        let (mut min, mut max) = (usize::MAX, 0);
        for (index, (entry, op)) in order.iter_mut().zip(chunk.iter()).enumerate() {
            let len = op.data().iter().map(|piece| piece.len()).sum();
            *entry = (index as u8, len);
            (min, max) = (min.min(len), max.max(len));
        }
        if blocks_of::<H>(min) != blocks_of::<H>(max) {
            order.sort_unstable_by_key(|entry| core::cmp::Reverse(entry.1));
        }
        let mut rest = &order[..];
        while !rest.is_empty() {
            let (members, after) = rest.split_at(share::<K, Wide>(rest.len()));
            rest = after;
            if members.len() <= few {
                members.iter().for_each(|(index, _)| alone(&mut chunk[usize::from(*index)]));
            } else if members.len() > K::LANES {
                group.run::<Wide, O>(slot, chunk, members);
            } else {
                group.run::<K, O>(slot, chunk, members);
            }
        }
    }
    wipe(group.digests.as_flattened_mut());
}

/// Scratch space of one burst.
struct HashGroup<H: Md> {
    inner: State<H::Word>,
    outer: State<H::Word>,
    digests: [[u8; MAX_DIGEST]; MAX_LANES],
}

impl<H: Md> HashGroup<H> {
    fn new() -> Self {
        HashGroup { inner: State::new(), outer: State::new(), digests: [[0; MAX_DIGEST]; MAX_LANES] }
    }

    /// Hashes the messages of `members` (index and length), at most [`Kernel::LANES`] and at least one.
    fn run<K: Kernel<Word = H::Word>, O: Job<H::Word>>(&mut self, slot: usize, ops: &mut [O], members: &[(u8, usize)]) {
        let op = |index: u8| &ops[usize::from(index)];
        let n = members.len();
        let plain = MdKey::<H::Word> { inner: H::IV, outer: H::IV };
        let key = |index| core::ptr::from_ref(op(index).key(slot).unwrap_or(&plain)).cast::<u8>();
        let keyed = op(members[0].0).key(slot).is_some();
        let mut keys = [key(members[0].0); MAX_LANES];
        for (at, (index, _)) in keys.iter_mut().zip(members) {
            *at = key(*index);
        }
        // SAFETY: rows over `K` exist only where the CPU has its instructions, here and below.
        unsafe { K::load(&keys, &mut self.inner, &mut self.outer) };
        let before = if keyed { H::BLOCK } else { 0 };
        let mut lanes = [Lane::IDLE; MAX_LANES];
        let mut bits = [0u64; MAX_LANES];
        for (l, (index, len)) in members.iter().enumerate() {
            lanes[l] = Lane::new::<H>(op(*index).data(), *len);
            bits[l] = (len + before) as u64 * 8;
        }
        Self::walk::<K>(&mut self.inner, &mut lanes[..n], &bits);
        let last = if keyed {
            // SAFETY: as above.
            unsafe { K::outer(&self.inner, &mut self.outer, H::DIGEST / H::Word::BYTES) };
            &self.outer
        } else {
            &self.inner
        };
        let to = self.digests.each_mut().map(|digest| digest.as_mut_ptr());
        // SAFETY: as above, and each digest has room for eight words.
        unsafe { K::store(last, &to) };
        for ((index, _), digest) in members.iter().zip(&self.digests) {
            let op = &mut ops[usize::from(*index)];
            let out = op.out();
            out.copy_from_slice(&digest[..out.len()]);
            op.succeed();
        }
    }

    /// Absorbs all blocks of all lanes into `state`.
    fn walk<K: Kernel<Word = H::Word>>(state: &mut State<H::Word>, lanes: &mut [Lane<'_>], bits: &[u64; MAX_LANES]) {
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
                // SAFETY: the rest of each active lane lies in its current piece; the others borrow from one.
                unsafe { K::tails(state, &tails, active) };
                return;
            } else {
                Self::step::<K>(state, lanes, bits, active);
            }
        }
    }

    /// Absorbs one block of each active lane into `state`, assembled if it is not in one piece.
    #[inline(never)]
    fn step<K: Kernel<Word = H::Word>>(
        state: &mut State<H::Word>,
        lanes: &mut [Lane<'_>],
        bits: &[u64; MAX_LANES],
        active: u32,
    ) {
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

const _: () = assert!(size_of::<State<u32>>() == 1024);
