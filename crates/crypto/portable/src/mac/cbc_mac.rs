//! MACs from CBC: CMAC (RFC 4493, SP 800-38B), XCBC (RFC 3566), and the kernel's plain CBC-MAC.

use super::driver::{self, Mac};
use crate::block::{Aes, Camellia, Cipher, Des, Des3, Family, Sm4, Visit};
use cipher::array::{Array, ArraySize};
use cipher::typenum::Unsigned;
use cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockSizeUser};
use sealane_crypto::error::KeyError;
use sealane_crypto::mac::MAX_TAG_LEN;
use sealane_crypto::registry::Row;
use sealane_crypto::{AlgInfo, Lengths};
use std::marker::PhantomData;
use zeroize::{Zeroize, ZeroizeOnDrop};

const MAX_BLOCK_LEN: usize = 16;

/// A block, at the front of an array that is large enough for all ciphers.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
struct MacBlock([u8; MAX_BLOCK_LEN]);

/// Encrypts one block in place.
struct EncryptMacBlock<'a>(&'a mut MacBlock);

impl<B: ArraySize> Visit<B> for EncryptMacBlock<'_> {
    type Out = ();

    #[inline]
    fn visit<C: Cipher<B>>(self, cipher: &C) {
        let block: &mut Array<u8, B> = (&mut self.0.0[..B::USIZE]).try_into().expect("the slice is a block long");
        cipher.encrypt_block(block);
    }
}

/// Absorbs data.
struct Absorb<'a>(&'a mut Running, &'a [u8]);

impl<B: ArraySize> Visit<B> for Absorb<'_> {
    type Out = ();

    #[inline]
    fn visit<C: Cipher<B>>(self, cipher: &C) {
        let Absorb(running, data) = self;
        let (first, rest) = data.split_at(data.len().min(B::USIZE - running.pos));
        running.add(first);
        if rest.is_empty() {
            return;
        }
        // From here on the current block is full.
        let (blocks, tail) = Array::slice_as_chunks(rest);
        let chain: &mut Array<u8, B> =
            (&mut running.chain.0[..B::USIZE]).try_into().expect("the slice is a block long");
        cipher.encrypt_with_backend(Blocks { chain, blocks });
        if !tail.is_empty() {
            cipher.encrypt_block(chain);
            running.pos = 0;
            running.add(tail);
        }
    }
}

/// Absorbs whole blocks in one call, inside which the cipher needs no further dispatch.
struct Blocks<'a, B: ArraySize> {
    chain: &'a mut Array<u8, B>,
    blocks: &'a [Array<u8, B>],
}

impl<B: ArraySize> BlockSizeUser for Blocks<'_, B> {
    type BlockSize = B;
}

impl<B: ArraySize> BlockCipherEncClosure for Blocks<'_, B> {
    #[inline(always)]
    fn call<E: BlockCipherEncBackend<BlockSize = B>>(self, backend: &E) {
        for block in self.blocks {
            backend.encrypt_block_inplace(self.chain);
            self.chain.iter_mut().zip(block).for_each(|(c, b)| *c ^= b);
        }
    }
}

/// The treatment of the last block, the only difference between these MACs.
trait Last<F: Family>: 'static {
    /// Returns the cipher of the chain, and the masks that are added to a whole and to a padded last block.
    fn keys(key: &[u8]) -> Result<(F::Key, [MacBlock; 2]), KeyError>;
    /// Whether padding starts with a 1 bit, and an empty message becomes one block of padding. The plain CBC-MAC pads
    /// with zeros and does not pad an empty message.
    const PAD: bool = true;
}

struct Cmac;

impl<F: Family> Last<F> for Cmac {
    fn keys(key: &[u8]) -> Result<(F::Key, [MacBlock; 2]), KeyError> {
        let cipher = F::key(key)?;
        let mut block = MacBlock::default();
        F::with(&cipher, EncryptMacBlock(&mut block));
        let whole = double(&block, F::Block::USIZE);
        let padded = double(&whole, F::Block::USIZE);
        Ok((cipher, [whole, padded]))
    }
}

/// Multiplication by x in GF(2^128) or GF(2^64), without a branch on the key.
fn double(block: &MacBlock, len: usize) -> MacBlock {
    let mut out = MacBlock::default();
    let mut carry = 0;
    for i in (0..len).rev() {
        out.0[i] = block.0[i] << 1 | carry;
        carry = block.0[i] >> 7;
    }
    let constant = if len == 16 { 0x87 } else { 0x1b };
    out.0[len - 1] ^= constant & carry.wrapping_neg();
    out
}

struct Xcbc;

impl<F: Family> Last<F> for Xcbc {
    fn keys(key: &[u8]) -> Result<(F::Key, [MacBlock; 2]), KeyError> {
        if key.len() != MAX_BLOCK_LEN {
            return Err(KeyError::Length);
        }
        let cipher = F::key(key)?;
        let derive = |byte| {
            let mut block = MacBlock([byte; MAX_BLOCK_LEN]);
            F::with(&cipher, EncryptMacBlock(&mut block));
            block
        };
        Ok((F::key(&derive(1).0)?, [derive(2), derive(3)]))
    }
}

struct NoSubkey;

impl<F: Family> Last<F> for NoSubkey {
    const PAD: bool = false;

    fn keys(key: &[u8]) -> Result<(F::Key, [MacBlock; 2]), KeyError> {
        Ok((F::key(key)?, Default::default()))
    }
}

struct CbcMac<F, L>(PhantomData<(F, L)>);

struct CbcMacKey<F: Family> {
    cipher: F::Key,
    last: [MacBlock; 2],
}

/// The chaining value, to which the first `pos` bytes of the current block have been added. A full block is held back,
/// because it may be the last.
#[derive(Clone, Default)]
struct Running {
    chain: MacBlock,
    pos: usize,
}

impl Running {
    /// Absorbs as much as fits into the current block.
    fn add(&mut self, data: &[u8]) {
        self.chain.0[self.pos..][..data.len()].iter_mut().zip(data).for_each(|(c, d)| *c ^= d);
        self.pos += data.len();
    }
}

impl<F: Family, L: Last<F>> Mac for CbcMac<F, L> {
    type Key = CbcMacKey<F>;
    type Running = Running;

    fn prepare(key: &[u8]) -> Result<CbcMacKey<F>, KeyError> {
        let (cipher, last) = L::keys(key)?;
        Ok(CbcMacKey { cipher, last })
    }

    fn begin(_: &CbcMacKey<F>) -> Running {
        Running::default()
    }

    fn update(key: &CbcMacKey<F>, running: &mut Running, data: &[u8]) {
        F::with(&key.cipher, Absorb(running, data));
    }

    fn end(key: &CbcMacKey<F>, mut running: Running, tag: &mut [u8; MAX_TAG_LEN]) {
        let whole = running.pos == F::Block::USIZE;
        if L::PAD {
            if !whole {
                running.chain.0[running.pos] ^= 0x80;
            }
            running.chain.0.iter_mut().zip(&key.last[usize::from(!whole)].0).for_each(|(c, k)| *c ^= k);
        }
        if L::PAD || running.pos != 0 {
            F::with(&key.cipher, EncryptMacBlock(&mut running.chain));
        }
        tag[..F::Block::USIZE].copy_from_slice(&running.chain.0[..F::Block::USIZE]);
    }
}

fn row<F: Family, L: Last<F>>(mode: &str, key_lens: Lengths) -> Row {
    let info = AlgInfo::mac(&format!("{mode}({})", F::NAME), F::Block::USIZE, F::Block::USIZE, key_lens);
    driver::row::<CbcMac<F, L>>(AlgInfo { legacy: F::LEGACY, ..info })
}

fn cmac<F: Family>() -> Row {
    row::<F, Cmac>("cmac", F::KEY_LENS)
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        cmac::<Aes>(),
        cmac::<Camellia>(),
        cmac::<Sm4>(),
        cmac::<Des3>(),
        cmac::<Des>(),
        // RFC 3566 defines only AES-128, and Linux accepts nothing else since it moved XCBC to its library.
        row::<Aes, Xcbc>("xcbc", Lengths::Of(&[16])),
        row::<Aes, NoSubkey>("cbcmac", Aes::KEY_LENS),
    ]
}
