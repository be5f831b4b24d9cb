//! MACs that chain a block cipher: CMAC (RFC 4493, SP 800-38B), XCBC (RFC 3566), and the plain CBC-MAC of the kernel.

use super::Mac;
use crate::error::KeyError;
use crate::mac::MAX_TAG_LEN;
use crate::registry::{AlgInfo, Lens, Row};
use aes::{Aes128, Aes192, Aes256};
use cipher::{BlockCipherEncrypt, KeyInit};
use std::marker::PhantomData;
use zeroize::{Zeroize, ZeroizeOnDrop};

const MAX_BLOCK_LEN: usize = 16;

/// A block, in the first bytes of an array that suits all ciphers.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
struct Block([u8; MAX_BLOCK_LEN]);

/// A block cipher under a key: the sizes of AES are one type here.
trait Cipher: Send + Sync + Sized + 'static {
    const BLOCK_LEN: usize;
    const KEY_LENS: Lens;
    fn new(key: &[u8]) -> Result<Self, KeyError>;
    fn encrypt(&self, block: &mut Block);
}

fn encrypt<C: BlockCipherEncrypt>(cipher: &C, block: &mut Block) {
    let len = C::block_size();
    let block: &mut cipher::Block<C> = (&mut block.0[..len]).try_into().expect("the slice is a block long");
    cipher.encrypt_block(block);
}

enum Aes {
    Of128(Aes128),
    Of192(Aes192),
    Of256(Aes256),
}

impl Cipher for Aes {
    const BLOCK_LEN: usize = 16;
    const KEY_LENS: Lens = Lens::Of(&[16, 24, 32]);

    fn new(key: &[u8]) -> Result<Self, KeyError> {
        let of = |_| KeyError::Length;
        match key.len() {
            16 => Aes128::new_from_slice(key).map(Aes::Of128).map_err(of),
            24 => Aes192::new_from_slice(key).map(Aes::Of192).map_err(of),
            _ => Aes256::new_from_slice(key).map(Aes::Of256).map_err(of),
        }
    }

    fn encrypt(&self, block: &mut Block) {
        match self {
            Aes::Of128(cipher) => encrypt(cipher, block),
            Aes::Of192(cipher) => encrypt(cipher, block),
            Aes::Of256(cipher) => encrypt(cipher, block),
        }
    }
}

enum Camellia {
    Of128(camellia::Camellia128),
    Of192(camellia::Camellia192),
    Of256(camellia::Camellia256),
}

impl Cipher for Camellia {
    const BLOCK_LEN: usize = 16;
    const KEY_LENS: Lens = Lens::Of(&[16, 24, 32]);

    fn new(key: &[u8]) -> Result<Self, KeyError> {
        let of = |_| KeyError::Length;
        match key.len() {
            16 => camellia::Camellia128::new_from_slice(key).map(Camellia::Of128).map_err(of),
            24 => camellia::Camellia192::new_from_slice(key).map(Camellia::Of192).map_err(of),
            _ => camellia::Camellia256::new_from_slice(key).map(Camellia::Of256).map_err(of),
        }
    }

    fn encrypt(&self, block: &mut Block) {
        match self {
            Camellia::Of128(cipher) => encrypt(cipher, block),
            Camellia::Of192(cipher) => encrypt(cipher, block),
            Camellia::Of256(cipher) => encrypt(cipher, block),
        }
    }
}

impl Cipher for des::TdesEde3 {
    const BLOCK_LEN: usize = 8;
    const KEY_LENS: Lens = Lens::Of(&[24]);

    fn new(key: &[u8]) -> Result<Self, KeyError> {
        KeyInit::new_from_slice(key).map_err(|_| KeyError::Length)
    }

    fn encrypt(&self, block: &mut Block) {
        encrypt(self, block);
    }
}

impl Cipher for sm4::Sm4 {
    const BLOCK_LEN: usize = 16;
    const KEY_LENS: Lens = Lens::Of(&[16]);

    fn new(key: &[u8]) -> Result<Self, KeyError> {
        KeyInit::new_from_slice(key).map_err(|_| KeyError::Length)
    }

    fn encrypt(&self, block: &mut Block) {
        encrypt(self, block);
    }
}

/// How the last block is treated, which is all that sets these MACs apart.
trait Last<C: Cipher>: 'static {
    /// The cipher that chains, and what is added to a whole and to a padded last block.
    fn keys(key: &[u8]) -> Result<(C, [Block; 2]), KeyError>;
    /// Whether a last block is padded by a 1 bit, and an empty message is one block of padding. The plain CBC-MAC
    /// pads by zeros and leaves an empty message alone.
    const PAD: bool = true;
}

struct Cmac;

impl<C: Cipher> Last<C> for Cmac {
    fn keys(key: &[u8]) -> Result<(C, [Block; 2]), KeyError> {
        let cipher = C::new(key)?;
        let mut block = Block::default();
        cipher.encrypt(&mut block);
        let whole = double(&block, C::BLOCK_LEN);
        let padded = double(&whole, C::BLOCK_LEN);
        Ok((cipher, [whole, padded]))
    }
}

/// Multiplication by x in GF(2^128) or GF(2^64), without a branch on the key.
fn double(block: &Block, len: usize) -> Block {
    let mut out = Block::default();
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

impl<C: Cipher> Last<C> for Xcbc {
    fn keys(key: &[u8]) -> Result<(C, [Block; 2]), KeyError> {
        let cipher = C::new(key)?;
        let derive = |byte| {
            let mut block = Block([byte; MAX_BLOCK_LEN]);
            cipher.encrypt(&mut block);
            block
        };
        Ok((C::new(&derive(1).0)?, [derive(2), derive(3)]))
    }
}

struct Plain;

impl<C: Cipher> Last<C> for Plain {
    const PAD: bool = false;

    fn keys(key: &[u8]) -> Result<(C, [Block; 2]), KeyError> {
        Ok((C::new(key)?, Default::default()))
    }
}

struct CbcMac<C, L>(PhantomData<(C, L)>);

struct Key<C> {
    cipher: C,
    last: [Block; 2],
}

/// The chaining value, into which the current block has been added up to `pos`. A full block waits, because it may be
/// the last.
#[derive(Clone, Default)]
struct Running {
    chain: Block,
    pos: usize,
}

impl<C: Cipher, L: Last<C>> Mac for CbcMac<C, L> {
    type Key = Key<C>;
    type Running = Running;

    fn prepare(key: &[u8]) -> Result<Key<C>, KeyError> {
        if !C::KEY_LENS.contains(key.len()) {
            return Err(KeyError::Length);
        }
        let (cipher, last) = L::keys(key)?;
        Ok(Key { cipher, last })
    }

    fn begin(_: &Key<C>) -> Running {
        Running::default()
    }

    fn update(key: &Key<C>, running: &mut Running, mut data: &[u8]) {
        while !data.is_empty() {
            if running.pos == C::BLOCK_LEN {
                key.cipher.encrypt(&mut running.chain);
                running.pos = 0;
            }
            let n = data.len().min(C::BLOCK_LEN - running.pos);
            let (now, later) = data.split_at(n);
            running.chain.0[running.pos..running.pos + n].iter_mut().zip(now).for_each(|(c, d)| *c ^= d);
            running.pos += n;
            data = later;
        }
    }

    fn end(key: &Key<C>, mut running: Running, tag: &mut [u8; MAX_TAG_LEN]) {
        let whole = running.pos == C::BLOCK_LEN;
        if L::PAD {
            if !whole {
                running.chain.0[running.pos] ^= 0x80;
            }
            running.chain.0.iter_mut().zip(&key.last[usize::from(!whole)].0).for_each(|(c, k)| *c ^= k);
        }
        if L::PAD || running.pos != 0 {
            key.cipher.encrypt(&mut running.chain);
        }
        tag[..C::BLOCK_LEN].copy_from_slice(&running.chain.0[..C::BLOCK_LEN]);
    }
}

fn row<C: Cipher, L: Last<C>>(name: &str) -> Row {
    super::row::<CbcMac<C, L>>(AlgInfo::mac(name, C::BLOCK_LEN, C::BLOCK_LEN, C::KEY_LENS))
}

pub(super) fn rows() -> Vec<Row> {
    // RFC 3566 knows AES-128 only, and so does Linux since it moved XCBC to its library.
    let xcbc = AlgInfo::mac("xcbc(aes)", 16, 16, Lens::Of(&[16]));
    let mut tdes = row::<des::TdesEde3, Cmac>("cmac(des3_ede)");
    tdes.info.legacy = true;
    vec![
        row::<Aes, Cmac>("cmac(aes)"),
        row::<Camellia, Cmac>("cmac(camellia)"),
        tdes,
        row::<sm4::Sm4, Cmac>("cmac(sm4)"),
        super::row::<CbcMac<Aes, Xcbc>>(xcbc),
        row::<Aes, Plain>("cbcmac(aes)"),
    ]
}
