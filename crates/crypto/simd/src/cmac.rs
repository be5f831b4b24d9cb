//! CMAC and XCBC over AES: single messages with little overhead, and many messages as parallel chains.

use super::aes::{BLOCK, Rounds, double};
use super::priority::PRIORITY;
use core::any::Any;
use core::arch::x86_64::*;
use core::cmp::Reverse;
use core::marker::PhantomData;
use core::mem::offset_of;
use sealane_crypto::error::{KeyError, Status};
use sealane_crypto::hash::HashState;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::wipe::wipe;
use sealane_crypto::{AlgInfo, Lengths};
use std::sync::Arc;

/// The most chains of any kernel.
pub(super) const MAX_LANES: usize = 32;

/// The number of messages up to which one by one is faster than chains that are mostly idle.
const FEW: usize = 2;

/// The number of operations that are sorted together.
const CHUNK: usize = 64;

/// Round keys of all chains: for each round a block of each chain.
#[repr(C, align(64))]
pub(super) struct LaneKeys(pub(super) [[[u8; BLOCK]; MAX_LANES]; 15]);

/// A block for each chain.
#[repr(C, align(64))]
pub(super) struct LaneBlocks(pub(super) [[u8; BLOCK]; MAX_LANES]);

/// Parallel CBC-MAC chains on one instruction set.
pub(super) trait Chains: Send + Sync + 'static {
    const MODULE: &'static str;
    /// Number of chains of [`Chains::absorb`].
    const LANES: usize;
    /// Numbers of chains of [`Chains::alike`]; the second is used for more messages than the first. Both divide 64.
    const ALIKE: [usize; 2];
    /// Absorbs `count` blocks of each chain into its state; all keys have the same number of rounds.
    ///
    /// # Safety
    /// The CPU must have the instruction set; each of the first `LANES` pointers must be readable for `count` blocks.
    unsafe fn absorb(
        keys: &LaneKeys,
        rounds: usize,
        states: &mut LaneBlocks,
        from: &[*const u8; MAX_LANES],
        count: usize,
    );
    /// Computes the tags of as many messages as `ALIKE` says: absorbs `count` blocks of each message and its last
    /// block. `keys` is scratch space on the stack, which the caller wipes.
    ///
    /// # Safety
    /// The CPU must have the instruction set; each pointer of `from` must be readable for `count` blocks and each of
    /// `last` for one; the prepared keys at `lanes` have the same number of rounds, and at `added`, in bytes, what is
    /// added to the last block. The slices hold at least as many pointers as chains.
    unsafe fn alike(
        wide: bool,
        keys: &mut LaneKeys,
        rounds: usize,
        lanes: &[*const u8],
        added: usize,
        text: (&[*const u8], usize, &[*const u8]),
        states: &mut LaneBlocks,
    );
}

/// A prepared key. Kernels read the round keys at its start.
#[repr(C)]
struct CmacKey {
    rounds: Rounds,
    /// Added to a last block that is whole.
    whole: [u8; BLOCK],
    /// Added to a last block that was padded.
    padded: [u8; BLOCK],
}

impl Drop for CmacKey {
    fn drop(&mut self) {
        wipe(&mut self.whole);
        wipe(&mut self.padded);
    }
}

/// CBC-MAC of `count` blocks, on top of `state`.
///
/// # Safety
/// The CPU must have AES-NI; `from` must be readable for `count` blocks.
#[target_feature(enable = "aes,avx")]
unsafe fn absorb(rounds: &Rounds, state: &mut [u8; BLOCK], from: *const u8, count: usize) {
    // SAFETY: all are 16 bytes; the caller guarantees `from`.
    unsafe {
        let key = |i: usize| _mm_load_si128(rounds.keys.as_ptr().add(i).cast());
        let (first, last) = (key(0), key(rounds.count));
        let mut x = _mm_loadu_si128(state.as_ptr().cast());
        for i in 0..count {
            let text = _mm_xor_si128(_mm_loadu_si128(from.add(i * BLOCK).cast()), first);
            x = _mm_xor_si128(x, text);
            for r in 1..10 {
                x = _mm_aesenc_si128(x, key(r));
            }
            if rounds.count > 10 {
                x = _mm_aesenc_si128(_mm_aesenc_si128(x, key(10)), key(11));
                if rounds.count > 12 {
                    x = _mm_aesenc_si128(_mm_aesenc_si128(x, key(12)), key(13));
                }
            }
            x = _mm_aesenclast_si128(x, last);
        }
        _mm_storeu_si128(state.as_mut_ptr().cast(), x);
    }
}

/// CBC encryption of whole blocks; `iv` becomes the last of them.
///
/// # Safety
/// The CPU must have AES-NI; `src` must be readable and `dst` writable for `len` bytes, the same or apart.
pub(super) unsafe fn cbc_encrypt(rounds: &Rounds, iv: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize) {
    for at in (0..len / BLOCK).map(|i| i * BLOCK) {
        // SAFETY: within len; the caller guarantees the instructions.
        unsafe {
            absorb(rounds, iv, src.add(at), 1);
            iv.as_ptr().copy_to_nonoverlapping(dst.add(at), BLOCK);
        }
    }
}

fn exor(a: &mut [u8; BLOCK], b: &[u8; BLOCK]) {
    *a = (u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b)).to_ne_bytes();
}

impl CmacKey {
    fn encrypt(rounds: &Rounds, block: [u8; BLOCK]) -> [u8; BLOCK] {
        let mut out = [0; BLOCK];
        // SAFETY: rows exist only where the CPU has AES-NI; one block.
        unsafe { absorb(rounds, &mut out, block.as_ptr(), 1) };
        out
    }

    /// Derives the keys of CMAC (NIST SP 800-38B section 6.1).
    fn cmac(key: &[u8]) -> Result<Self, KeyError> {
        let rounds = Rounds::encrypt(key)?;
        // CMAC doubles big-endian numbers, XTS little-endian ones.
        let twice = |mut block: [u8; BLOCK]| {
            block.reverse();
            let mut doubled = double(block);
            doubled.reverse();
            doubled
        };
        let whole = twice(CmacKey::encrypt(&rounds, [0; BLOCK]));
        Ok(CmacKey { padded: twice(whole), whole, rounds })
    }

    /// Derives the keys of XCBC (RFC 3566 section 4), which defines only keys of 128 bits.
    fn xcbc(key: &[u8]) -> Result<Self, KeyError> {
        if key.len() != BLOCK {
            return Err(KeyError::Length);
        }
        let rounds = Rounds::encrypt(key)?;
        let mut first = CmacKey::encrypt(&rounds, [1; BLOCK]);
        let chain = Rounds::encrypt(&first)?;
        wipe(&mut first);
        Ok(CmacKey {
            whole: CmacKey::encrypt(&rounds, [2; BLOCK]),
            padded: CmacKey::encrypt(&rounds, [3; BLOCK]),
            rounds: chain,
        })
    }

    /// Pads and masks the last block of a message, which has `filled` bytes.
    #[inline]
    fn seal(&self, block: &mut [u8; BLOCK], filled: usize) {
        if filled == BLOCK {
            exor(block, &self.whole);
        } else {
            block[filled] = 0x80;
            exor(block, &self.padded);
        }
    }
}

/// Copies up to 16 bytes into a block of zeros.
#[inline]
fn short_block(from: &[u8]) -> [u8; BLOCK] {
    let mut block = [0u8; BLOCK];
    block[..from.len()].copy_from_slice(from);
    block
}

/// Computes the tag of one message.
fn one(key: &CmacKey, data: &[&[u8]], tag: &mut [u8]) {
    let mut state = [0u8; BLOCK];
    let mut block = [0u8; BLOCK];
    let mut filled = 0;
    for piece in data {
        feed(key, &mut state, &mut block, &mut filled, piece);
    }
    close(key, &mut state, &mut block, filled);
    tag.copy_from_slice(&state[..tag.len()]);
}

/// Absorbs `data`, except for the last block of the message, which stays in `block` even if it is whole.
#[inline]
fn feed(key: &CmacKey, state: &mut [u8; BLOCK], block: &mut [u8; BLOCK], filled: &mut usize, mut data: &[u8]) {
    if data.is_empty() {
        return;
    }
    if *filled > 0 {
        let n = data.len().min(BLOCK - *filled);
        block[*filled..*filled + n].copy_from_slice(&data[..n]);
        *filled += n;
        data = &data[n..];
        if data.is_empty() {
            return;
        }
        // SAFETY: rows exist only where the CPU has AES-NI; one block.
        unsafe { absorb(&key.rounds, state, block.as_ptr(), 1) };
    }
    let count = (data.len() - 1) / BLOCK;
    // SAFETY: as above; `count` blocks are in `data`.
    unsafe { absorb(&key.rounds, state, data.as_ptr(), count) };
    let rest = &data[count * BLOCK..];
    *block = short_block(rest);
    *filled = rest.len();
}

/// Ends the message: `state` becomes the tag.
#[inline]
fn close(key: &CmacKey, state: &mut [u8; BLOCK], block: &mut [u8; BLOCK], filled: usize) {
    block[filled..].fill(0);
    key.seal(block, filled);
    // SAFETY: rows exist only where the CPU has AES-NI; one block.
    unsafe { absorb(&key.rounds, state, block.as_ptr(), 1) };
}

/// The state of a message that arrives in pieces.
struct CmacStream {
    key: CmacKey,
    state: [u8; BLOCK],
    block: [u8; BLOCK],
    filled: usize,
}

impl HashState for CmacStream {
    fn update(&mut self, data: &[u8]) {
        feed(&self.key, &mut self.state, &mut self.block, &mut self.filled, data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        close(&self.key, &mut self.state, &mut self.block, self.filled);
        out.copy_from_slice(&self.state[..out.len()]);
        self.reset();
        Ok(())
    }

    fn reset(&mut self) {
        wipe(&mut self.state);
        wipe(&mut self.block);
        self.filled = 0;
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(CmacStream { key: self.key.copy(), ..*self })
    }
}

impl Drop for CmacStream {
    fn drop(&mut self) {
        self.reset();
    }
}

impl CmacKey {
    fn copy(&self) -> Self {
        CmacKey { rounds: self.rounds.clone(), whole: self.whole, padded: self.padded }
    }
}

/// The position of a chain in its message.
#[derive(Clone, Copy)]
struct ChainPosition<'a> {
    key: &'a CmacKey,
    piece: &'a [u8],
    rest: &'a [&'a [u8]],
    /// Blocks left; an empty message has one.
    blocks: usize,
}

impl<'a> ChainPosition<'a> {
    #[inline]
    fn new(key: &'a CmacKey, data: &'a [&'a [u8]], len: usize) -> Self {
        let mut lane = ChainPosition { key, piece: &[], rest: data, blocks: blocks_of(len) };
        lane.advance(0);
        lane
    }

    /// Advances by `n` bytes of the current piece.
    #[inline]
    fn advance(&mut self, n: usize) {
        self.piece = &self.piece[n..];
        while self.piece.is_empty()
            && let [next, rest @ ..] = self.rest
        {
            self.piece = next;
            self.rest = rest;
        }
    }

    /// Assembles the next block from pieces; the last one is padded and masked.
    #[inline]
    fn assemble(&mut self, block: &mut [u8; BLOCK]) {
        let n = self.piece.len().min(BLOCK);
        *block = short_block(&self.piece[..n]);
        let mut filled = n;
        self.advance(n);
        while filled < BLOCK && !self.piece.is_empty() {
            let n = self.piece.len().min(BLOCK - filled);
            block[filled..filled + n].copy_from_slice(&self.piece[..n]);
            filled += n;
            self.advance(n);
        }
        if self.blocks == 1 {
            self.key.seal(block, filled);
        }
    }
}

fn blocks_of(len: usize) -> usize {
    len.div_ceil(BLOCK).max(1)
}

/// Scratch space of one burst.
struct CmacGroup {
    keys: LaneKeys,
    states: LaneBlocks,
}

impl CmacGroup {
    /// Computes the tags of `lanes`, whose keys have the same number of rounds, into the states. Sorted by number of
    /// blocks, the longest first.
    fn run<C: Chains>(&mut self, lanes: &mut [ChainPosition<'_>], mut done: impl FnMut(usize, &[u8; BLOCK])) {
        let rounds = lanes[0].key.rounds.count;
        for (r, keys) in self.keys.0.iter_mut().enumerate().take(rounds + 1) {
            for (key, lane) in keys.iter_mut().zip(lanes.iter()) {
                *key = lane.key.rounds.keys[r];
            }
        }
        self.states.0 = [[0; BLOCK]; MAX_LANES];
        let mut blocks = [[0u8; BLOCK]; MAX_LANES];
        let mut live = lanes.len();
        while live > 0 {
            let run = lanes[..live].iter().map(|l| (l.piece.len() / BLOCK).min(l.blocks - 1)).min().unwrap_or(0);
            let mut from = [lanes[0].piece.as_ptr(); MAX_LANES];
            if run > 0 {
                for (at, lane) in from.iter_mut().zip(&mut lanes[..live]) {
                    *at = lane.piece.as_ptr();
                    lane.blocks -= run;
                    lane.advance(run * BLOCK);
                }
                // SAFETY: each lane has `run` blocks in its current piece; chains that are not in use read the first
                // lane's. Rows exist only where the CPU has the instructions.
                unsafe { C::absorb(&self.keys, rounds, &mut self.states, &from, run) };
                continue;
            }
            for (lane, block) in lanes[..live].iter_mut().zip(&mut blocks) {
                lane.assemble(block);
                lane.blocks -= 1;
            }
            for (at, block) in from.iter_mut().zip(&blocks) {
                *at = block.as_ptr();
            }
            // SAFETY: as above; each pointer is that of a block.
            unsafe { C::absorb(&self.keys, rounds, &mut self.states, &from, 1) };
            while live > 0 && lanes[live - 1].blocks == 0 {
                live -= 1;
                done(live, &self.states.0[live]);
            }
        }
    }
}

/// The driver of CMAC or XCBC over the chains `C`.
struct OverChains<C> {
    xcbc: bool,
    chains: PhantomData<C>,
}

impl<C: Chains> MacDriver for OverChains<C> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(if self.xcbc { CmacKey::xcbc(key)? } else { CmacKey::cmac(key)? }))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        let key: &dyn Any = key;
        let key: &CmacKey = key.downcast_ref().expect("a key that this driver prepared");
        Box::new(CmacStream { key: key.copy(), state: [0; BLOCK], block: [0; BLOCK], filled: 0 })
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        if ops.len() <= FEW {
            for op in ops {
                one(op.tfm.key(slot), op.data, op.tag);
                op.status = Ok(());
            }
            return;
        }
        let mut group =
            CmacGroup { keys: LaneKeys([[[0; BLOCK]; MAX_LANES]; 15]), states: LaneBlocks([[0; BLOCK]; MAX_LANES]) };
        for chunk in ops.chunks_mut(CHUNK) {
            if run_alike::<C>(slot, chunk, &mut group) {
                continue;
            }
            // Index, length and rounds of each message, sorted by rounds, then by length, the longest first.
            let mut order = [(0u8, 0usize, 0usize); CHUNK];
            let order = &mut order[..chunk.len()];
            for (index, (entry, op)) in order.iter_mut().zip(chunk.iter()).enumerate() {
                *entry = (index as u8, op.len(), op.tfm.key::<CmacKey>(slot).rounds.count);
            }
            let rank = |entry: &(u8, usize, usize)| (entry.2, Reverse(blocks_of(entry.1)));
            if !order.is_sorted_by_key(rank) {
                order.sort_unstable_by_key(rank);
            }
            for alike in order.chunk_by(|a, b| a.2 == b.2) {
                for members in alike.chunks(C::LANES) {
                    run_members::<C>(slot, chunk, members, &mut group);
                }
            }
        }
        wipe(group.keys.0.as_flattened_mut().as_flattened_mut());
        wipe(group.states.0.as_flattened_mut());
    }
}

fn run_members<C: Chains>(slot: usize, ops: &mut [MacOp<'_>], members: &[(u8, usize, usize)], group: &mut CmacGroup) {
    let mut tags = [[0u8; BLOCK]; MAX_LANES];
    let op = |index: u8| &ops[usize::from(index)];
    let lane = |(index, len, _): (u8, usize, usize)| ChainPosition::new(op(index).tfm.key(slot), op(index).data, len);
    let mut lanes = [lane(members[0]); MAX_LANES];
    for (slot, member) in lanes.iter_mut().zip(members).skip(1) {
        *slot = lane(*member);
    }
    group.run::<C>(&mut lanes[..members.len()], |i, tag| tags[i] = *tag);
    for ((index, ..), tag) in members.iter().zip(&tags) {
        done(&mut ops[usize::from(*index)], tag);
    }
}

#[inline]
fn done(op: &mut MacOp<'_>, tag: &[u8; BLOCK]) {
    if let Ok(whole) = <&mut [u8; BLOCK]>::try_from(&mut *op.tag) {
        *whole = *tag;
    } else {
        op.tag.copy_from_slice(&tag[..op.tag.len()]);
    }
    op.status = Ok(());
}

/// Runs messages of one length, each in one piece, under keys of one length, which is the common case. Returns false
/// for other messages.
fn run_alike<C: Chains>(slot: usize, ops: &mut [MacOp<'_>], group: &mut CmacGroup) -> bool {
    let [piece] = ops[0].data else { return false };
    let (len, checked) = (piece.len(), ops[0].tfm);
    let first: &CmacKey = checked.key(slot);
    let rounds = first.rounds.count;
    let mut from = [piece.as_ptr(); CHUNK];
    let mut keys = [core::ptr::from_ref(first).cast::<u8>(); CHUNK];
    for ((op, from), place) in ops.iter().zip(&mut from).zip(&mut keys) {
        match op.data {
            [piece] if piece.len() == len => *from = piece.as_ptr(),
            _ => return false,
        }
        let key: &CmacKey = if op.tfm.same_alg(checked) {
            // SAFETY: transforms of one algorithm have keys of one driver, this one, in the same slot, and it prepares
            // only keys of this type.
            unsafe { &*op.tfm.key_address(slot).cast() }
        } else {
            op.tfm.key(slot)
        };
        if key.rounds.count != rounds {
            return false;
        }
        *place = core::ptr::from_ref(key).cast();
    }
    let blocks = blocks_of(len) - 1;
    let filled = len - blocks * BLOCK;
    let mut ends = [[0u8; BLOCK]; CHUNK];
    let mut last = from;
    if filled == BLOCK {
        last.iter_mut().for_each(|at| *at = at.wrapping_add(blocks * BLOCK));
    } else {
        for ((op, end), at) in ops.iter().zip(&mut ends).zip(&mut last) {
            let piece = op.data[0];
            *end = match piece.last_chunk::<BLOCK>() {
                Some(chunk) => (u128::from_le_bytes(*chunk) >> (8 * (BLOCK - filled) as u32)).to_le_bytes(),
                None => short_block(piece),
            };
            end[filled] = 0x80;
            *at = end.as_ptr();
        }
        // Chains without a message read the first one's.
        last[ops.len()..].fill(ends[0].as_ptr());
    }
    let added = if filled == BLOCK { offset_of!(CmacKey, whole) } else { offset_of!(CmacKey, padded) };
    let mut at = 0;
    while at < ops.len() {
        let wide = ops.len() - at > C::ALIKE[0];
        let members = &mut ops[at..];
        // SAFETY: rows exist only where the CPU has the instructions. Each message has `blocks` blocks, its last one is
        // at `last`, and a group ends within CHUNK, where chains without a message borrow the first of the burst.
        unsafe {
            let text = (&from[at..], blocks, &last[at..]);
            C::alike(wide, &mut group.keys, rounds, &keys[at..], added, text, &mut group.states);
        }
        members.iter_mut().zip(&group.states.0[..C::ALIKE[usize::from(wide)]]).for_each(|(op, tag)| done(op, tag));
        at += C::ALIKE[usize::from(wide)];
    }
    true
}

/// CMAC and XCBC over the chains `C`.
pub(super) fn rows<C: Chains>() -> Vec<Row> {
    let row = |xcbc: bool, name: &str, keys: Lengths| {
        let driver = Driver::Mac(Arc::new(OverChains::<C> { xcbc, chains: PhantomData }));
        let info = AlgInfo::mac(&format!("{name}(aes)"), BLOCK, BLOCK, keys);
        Row::new(info, &format!("{name}-aes-{}", C::MODULE), C::MODULE, PRIORITY, driver)
    };
    vec![row(false, "cmac", Lengths::Of(&[16, 24, 32])), row(true, "xcbc", Lengths::Of(&[16]))]
}
