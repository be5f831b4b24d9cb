//! The drivers of the Merkle-Damgard hashes and their HMACs, which run bursts over lanes.

use super::lanes::{self, Job, Kernel};
use super::md::{MAX_BLOCK, MAX_DIGEST, Md, MdKey, Word};
use super::priority::PRIORITY;
use core::any::Any;
use core::marker::PhantomData;
use sealane_crypto::error::{KeyError, Status};
use sealane_crypto::hash::{HashDriver, HashOp, HashState};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::wipe::wipe;
use sealane_crypto::{AlgInfo, Lengths};
use std::sync::Arc;

/// Prepares a key (RFC 2104 section 2): a key longer than a block is hashed, then padded with zeros.
fn prepare<H: Md>(key: &[u8]) -> MdKey<H::Word> {
    let mut block = [0u8; MAX_BLOCK];
    if key.len() > H::BLOCK {
        let mut hash = HashStream::<H>::new(H::IV, None);
        hash.update(key);
        hash.finish(&mut block[..H::DIGEST]);
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut prepared = MdKey { inner: H::IV, outer: H::IV };
    block.iter_mut().for_each(|b| *b ^= 0x36);
    H::compress(&mut prepared.inner, &block[..H::BLOCK]);
    block.iter_mut().for_each(|b| *b ^= 0x36 ^ 0x5c);
    H::compress(&mut prepared.outer, &block[..H::BLOCK]);
    wipe(&mut block);
    prepared
}

/// The state of a single message, for incremental states and for bursts too short for lanes.
struct HashStream<H: Md> {
    start: [H::Word; 8],
    /// The outer midstate, with a key.
    outer: Option<[H::Word; 8]>,
    state: [H::Word; 8],
    block: [u8; MAX_BLOCK],
    /// Bytes of the message so far, without the key's block.
    len: u64,
}

impl<H: Md> HashStream<H> {
    fn new(start: [H::Word; 8], outer: Option<[H::Word; 8]>) -> Self {
        HashStream { start, outer, state: start, block: [0; MAX_BLOCK], len: 0 }
    }

    /// Bytes of the message that are buffered in `block`.
    fn filled(&self) -> usize {
        (self.len % H::BLOCK as u64) as usize
    }

    fn update(&mut self, mut data: &[u8]) {
        let filled = self.filled();
        self.len += data.len() as u64;
        if filled > 0 {
            let n = data.len().min(H::BLOCK - filled);
            self.block[filled..filled + n].copy_from_slice(&data[..n]);
            if filled + n < H::BLOCK {
                return;
            }
            H::compress(&mut self.state, &self.block[..H::BLOCK]);
            data = &data[n..];
        }
        let whole = data.len() / H::BLOCK * H::BLOCK;
        if whole > 0 {
            H::compress(&mut self.state, &data[..whole]);
        }
        self.block[..data.len() - whole].copy_from_slice(&data[whole..]);
    }

    /// Pads the bytes in `block` and absorbs them; `len` includes the key's block.
    fn pad(&mut self, filled: usize, len: u64) {
        let length_at = H::BLOCK - 2 * H::Word::BYTES;
        self.block[filled] = 0x80;
        self.block[filled + 1..H::BLOCK].fill(0);
        if filled >= length_at {
            H::compress(&mut self.state, &self.block[..H::BLOCK]);
            self.block[..H::BLOCK].fill(0);
        }
        let at = if H::LITTLE { length_at } else { H::BLOCK - 8 };
        (len * 8).write(H::LITTLE, &mut self.block[at..at + 8]);
        H::compress(&mut self.state, &self.block[..H::BLOCK]);
    }

    fn write(&self, out: &mut [u8]) {
        let mut digest = [0u8; MAX_DIGEST];
        for (word, bytes) in self.state.iter().zip(digest.chunks_exact_mut(H::Word::BYTES)) {
            word.write(H::LITTLE, bytes);
        }
        out.copy_from_slice(&digest[..out.len()]);
    }

    fn finish(&mut self, out: &mut [u8]) {
        let key_block = if self.outer.is_some() { H::BLOCK as u64 } else { 0 };
        self.pad(self.filled(), self.len + key_block);
        if let Some(outer) = self.outer {
            let mut digest = [0u8; MAX_DIGEST];
            self.write(&mut digest[..H::DIGEST]);
            self.block[..H::DIGEST].copy_from_slice(&digest[..H::DIGEST]);
            self.state = outer;
            self.pad(H::DIGEST, (H::BLOCK + H::DIGEST) as u64);
            wipe(&mut digest);
        }
        self.write(out);
        self.reset();
    }

    fn reset(&mut self) {
        self.state = self.start;
        wipe(&mut self.block);
        self.len = 0;
    }
}

impl<H: Md> HashState for HashStream<H> {
    fn update(&mut self, data: &[u8]) {
        HashStream::update(self, data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        HashStream::finish(self, out);
        Ok(())
    }

    fn reset(&mut self) {
        HashStream::reset(self);
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(HashStream::<H> {
            block: self.block,
            state: self.state,
            len: self.len,
            ..HashStream::new(self.start, self.outer)
        })
    }
}

impl<H: Md> Drop for HashStream<H> {
    fn drop(&mut self) {
        wipe(&mut self.start);
        wipe(self.outer.as_mut_slice().as_flattened_mut());
        wipe(&mut self.state);
        wipe(&mut self.block);
    }
}

fn one<H: Md>(start: &MdKey<H::Word>, keyed: bool, data: &[&[u8]], out: &mut [u8]) {
    let mut stream = HashStream::<H>::new(start.inner, keyed.then_some(start.outer));
    for piece in data {
        stream.update(piece);
    }
    stream.finish(out);
}

impl<W: Word> Job<W> for HashOp<'_> {
    fn data(&self) -> &[&[u8]] {
        self.data
    }

    fn key(&self, _: usize) -> Option<&MdKey<W>> {
        None
    }

    fn key_as(&self, _: &Self, _: usize) -> *const MdKey<W> {
        core::ptr::null()
    }

    fn out(&mut self) -> &mut [u8] {
        self.digest
    }

    fn succeed(&mut self) {
        self.status = Ok(());
    }
}

impl<W: Word> Job<W> for MacOp<'_> {
    fn data(&self) -> &[&[u8]] {
        self.data
    }

    fn key(&self, slot: usize) -> Option<&MdKey<W>> {
        Some(self.tfm.key(slot))
    }

    #[inline]
    fn key_as(&self, checked: &Self, slot: usize) -> *const MdKey<W> {
        // Transforms of one algorithm have keys of one driver in the same slot, and each driver prepares keys of one
        // type.
        if self.tfm.same_alg(checked.tfm) { self.tfm.key_address(slot).cast() } else { self.tfm.key(slot) }
    }

    fn out(&mut self) -> &mut [u8] {
        self.tag
    }

    fn succeed(&mut self) {
        self.status = Ok(());
    }
}

/// The driver of hash `H` and its HMAC over kernels `K` and `Wide`.
struct OverLanes<H, K, Wide>(PhantomData<(H, K, Wide)>);

impl<H: Md, K: Kernel<Word = H::Word>, Wide: Kernel<Word = H::Word>> HashDriver for OverLanes<H, K, Wide> {
    fn start(&self) -> Box<dyn HashState> {
        Box::new(HashStream::<H>::new(H::IV, None))
    }

    fn burst(&self, ops: &mut [HashOp<'_>]) {
        let start = MdKey::<H::Word> { inner: H::IV, outer: H::IV };
        lanes::run::<H, K, Wide, _>(0, ops, |op| {
            one::<H>(&start, false, op.data, op.digest);
            op.status = Ok(());
        });
    }
}

impl<H: Md, K: Kernel<Word = H::Word>, Wide: Kernel<Word = H::Word>> MacDriver for OverLanes<H, K, Wide> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(prepare::<H>(key)))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        let key: &dyn Any = key;
        let key: &MdKey<H::Word> = key.downcast_ref().expect("a key that this driver prepared");
        Box::new(HashStream::<H>::new(key.inner, Some(key.outer)))
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        lanes::run::<H, K, Wide, _>(slot, ops, |op| {
            one::<H>(op.tfm.key(slot), true, op.data, op.tag);
            op.status = Ok(());
        });
    }
}

/// The rows of hash `H` over kernels `K` and `Wide`: the hash itself and its HMAC.
pub(super) fn rows<H: Md, K: Kernel<Word = H::Word>, Wide: Kernel<Word = H::Word>>(module: &'static str) -> [Row; 2] {
    let driver = Arc::new(OverLanes::<H, K, Wide>(PhantomData));
    let (hash, hmac) = (H::NAME, format!("hmac({})", H::NAME));
    [
        Row::new(
            AlgInfo::hash(hash, H::BLOCK, H::DIGEST),
            &format!("{hash}-{module}"),
            module,
            PRIORITY,
            Driver::Hash(driver.clone()),
        ),
        Row::new(
            AlgInfo::mac(&hmac, H::BLOCK, H::DIGEST, Lengths::Range(0, usize::MAX)),
            &format!("hmac-{hash}-{module}"),
            module,
            PRIORITY,
            Driver::Mac(driver),
        ),
    ]
}
