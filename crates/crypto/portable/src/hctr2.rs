//! HCTR2 (Crowley, Huckleberry, Biggers, 2021): a wide-block cipher of XCTR and POLYVAL, with tweaks of 32 bytes, the
//! only length in Linux.

use super::block::{Cipher, EncryptBlock, Family, Visit};
use super::gather::absorb;
use cipher::array::Array;
use cipher::consts::U16;
use inout::InOutBuf;
use polyval::Polyval;
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver};
use std::marker::PhantomData;
use universal_hash::UniversalHash;
use zeroize::{Zeroize, Zeroizing};

pub(super) const TWEAK_LEN: usize = 32;

/// Blocks of keystream that are made at a time.
const CHUNK: usize = 16;

pub(super) struct Hctr2<F>(pub(super) PhantomData<F>);

struct Hctr2Key<K> {
    cipher: K,
    /// POLYVAL, keyed with E(0), before the first block.
    polyval: Polyval,
    /// E(1), which keeps the counter's blocks apart from the hash key.
    l: [u8; 16],
}

impl<K> Drop for Hctr2Key<K> {
    fn drop(&mut self) {
        self.l.zeroize();
    }
}

/// The tweak on return is unchanged.
impl<F: Family<Block = U16>> SkcipherDriver for Hctr2<F> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let cipher = F::key(key)?;
        let mut h = Zeroizing::new([0; 16]);
        F::with(&cipher, EncryptBlock(&mut h));
        let mut l = [0; 16];
        l[0] = 1;
        F::with(&cipher, EncryptBlock(&mut l));
        Ok(Box::new(Hctr2Key { cipher, polyval: Polyval::new((&*h).into()), l }))
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        if op.data.len() < 16 {
            return Err(OpError::Length);
        }
        let key = op.tfm.key::<Hctr2Key<F::Key>>(slot);
        let tweak = (&*op.iv).try_into().map_err(|_| OpError::Nonce)?;
        F::with(&key.cipher, RunHctr2 { dir: op.dir, tweak, data: op.data, polyval: &key.polyval, l: &key.l });
        Ok(())
    }
}

struct RunHctr2<'b> {
    dir: Direction,
    tweak: &'b [u8; TWEAK_LEN],
    data: InOutBuf<'b, 'b, u8>,
    polyval: &'b Polyval,
    l: &'b [u8; 16],
}

/// H(T, text). The first block encodes the tweak's length in bits, and whether the text ends within a block.
fn hash(polyval: &Polyval, tweak: &[u8; TWEAK_LEN], text: &[u8]) -> u128 {
    let mut polyval = polyval.clone();
    let partial = !text.len().is_multiple_of(16);
    let lens = (TWEAK_LEN as u128 * 8 * 2 + 2 + u128::from(partial)).to_le_bytes();
    absorb(&mut polyval, &[&lens, tweak]);
    absorb(&mut polyval, &[text, if partial { &[1] } else { &[] }]);
    u128::from_le_bytes(polyval.finalize().into())
}

impl Visit<U16> for RunHctr2<'_> {
    type Out = ();

    fn visit<C: Cipher<U16>>(self, cipher: &C) {
        let RunHctr2 { dir, tweak, data, polyval, l } = self;
        let (mut head, mut bulk) = data.split_at(16);
        let first = u128::from_le_bytes(head.get_in().try_into().expect("one block"));
        let from = first ^ hash(polyval, tweak, bulk.get_in());
        let mut block = Array::<u8, U16>::from(from.to_le_bytes());
        match dir {
            Direction::Encrypt => cipher.encrypt_block(&mut block),
            Direction::Decrypt => cipher.decrypt_block(&mut block),
        }
        let to = u128::from_le_bytes(block.into());
        xctr(cipher, from ^ to ^ u128::from_le_bytes(*l), bulk.reborrow());
        let last = to ^ hash(polyval, tweak, bulk.get_out());
        head.get_out().copy_from_slice(&last.to_le_bytes());
        block.zeroize();
    }
}

/// Block i of the keystream, from 1, is E(seed xor i), little endian.
fn xctr<C: Cipher<U16>>(cipher: &C, seed: u128, mut data: InOutBuf<'_, '_, u8>) {
    let mut counter = 1;
    let mut blocks = [Array::<u8, U16>::default(); CHUNK];
    while !data.is_empty() {
        let n = data.len().min(16 * CHUNK);
        let used = &mut blocks[..n.div_ceil(16)];
        for block in used.iter_mut() {
            *block = (seed ^ counter).to_le_bytes().into();
            counter += 1;
        }
        cipher.encrypt_blocks(used);
        let (mut head, rest) = data.split_at(n);
        head.xor_in2out(&Array::slice_as_flattened(used)[..n]);
        data = rest;
    }
    blocks.iter_mut().for_each(Zeroize::zeroize);
}
