//! Adiantum (Crowley, Biggers, 2018): a wide-block cipher for machines without AES instructions, of XChaCha, one block
//! of AES-256, NH and Poly1305, with tweaks of 32 bytes.

use super::chacha;
use aes::Aes256;
use chacha20::Rounds;
use cipher::array::Array;
use cipher::consts::U16;
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use inout::InOutBuf;
use poly1305::Poly1305;
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver};
use std::marker::PhantomData;
use universal_hash::UniversalHash;
use zeroize::{Zeroize, Zeroizing};

pub(super) const TWEAK_LEN: usize = 32;

/// NH works on 16 bytes at a time, in four passes, and takes up to 1024 bytes under its key (section 6.3 of the paper).
const NH_UNIT: usize = 16;
const NH_MESSAGE: usize = 1024;
const NH_PASSES: usize = 4;
/// Each pass uses the key from 16 bytes later on.
const NH_KEY_WORDS: usize = (NH_MESSAGE + (NH_PASSES - 1) * NH_UNIT) / 4;

pub(super) struct Adiantum<R>(pub(super) PhantomData<fn() -> R>);

struct AdiantumKey {
    stream: [u8; 32],
    block: Aes256,
    /// Poly1305 keys with a zero second half, for the bare polynomial.
    header: [u8; 32],
    message: [u8; 32],
    nh: [u32; NH_KEY_WORDS],
}

impl Drop for AdiantumKey {
    fn drop(&mut self) {
        self.stream.zeroize();
        self.header.zeroize();
        self.message.zeroize();
        self.nh.zeroize();
    }
}

impl AdiantumKey {
    /// H(T, text), the sum of two polynomials.
    fn hash(&self, tweak: &[u8; TWEAK_LEN], text: &[u8]) -> u128 {
        let mut header = Poly1305::new((&self.header).into());
        header.update(&[(text.len() as u128 * 8).to_le_bytes().into()]);
        header.update(Array::slice_as_chunks(tweak).0);
        let mut message = Poly1305::new((&self.message).into());
        for piece in text.chunks(NH_MESSAGE) {
            message.update(Array::slice_as_chunks(&self.nh(piece)).0);
        }
        let [header, message] = [header, message].map(|poly| u128::from_le_bytes(poly.finalize().into()));
        header.wrapping_add(message)
    }

    fn nh(&self, message: &[u8]) -> [u8; 8 * NH_PASSES] {
        let mut sums = [0u64; NH_PASSES];
        for (at, piece) in message.chunks(NH_UNIT).enumerate() {
            let mut unit = [0; NH_UNIT];
            unit[..piece.len()].copy_from_slice(piece);
            let (words, _) = unit.as_chunks::<4>();
            for (pass, sum) in sums.iter_mut().enumerate() {
                let key = &self.nh[4 * (at + pass)..][..4];
                let term = |i: usize| u64::from(u32::from_le_bytes(words[i]).wrapping_add(key[i]));
                *sum = sum.wrapping_add(term(0).wrapping_mul(term(2))).wrapping_add(term(1).wrapping_mul(term(3)));
            }
        }
        let mut hash = [0; 8 * NH_PASSES];
        hash.as_chunks_mut::<8>().0.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum.to_le_bytes());
        hash
    }
}

/// XChaCha's IV for a nonce of 16 bytes: Adiantum appends a one bit to the nonce.
fn stream_iv(nonce: u128) -> [u8; 32] {
    let mut iv = [0; 32];
    iv[..16].copy_from_slice(&nonce.to_le_bytes());
    iv[16] = 1;
    iv
}

/// The tweak on return is unchanged.
impl<R: Rounds> SkcipherDriver for Adiantum<R> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let stream: &[u8; 32] = key.try_into().map_err(|_| KeyError::Length)?;
        // All subkeys are the keystream of the empty nonce with its one bit.
        let mut derived = Zeroizing::new([0u8; 32 + 16 + 16 + 4 * NH_KEY_WORDS]);
        let mut iv = [0; 32];
        iv[0] = 1;
        chacha::xor_extended::<R>(stream, &iv, InOutBuf::from(&mut derived[..]));
        let (block, rest) = derived.split_at(32);
        let (header, rest) = rest.split_at(16);
        let (message, nh) = rest.split_at(16);
        let mut key = Box::new(AdiantumKey {
            stream: *stream,
            block: Aes256::new_from_slice(block).map_err(|_| KeyError::Length)?,
            header: [0; 32],
            message: [0; 32],
            nh: [0; NH_KEY_WORDS],
        });
        key.header[..16].copy_from_slice(header);
        key.message[..16].copy_from_slice(message);
        key.nh.iter_mut().zip(nh.as_chunks::<4>().0).for_each(|(word, bytes)| *word = u32::from_le_bytes(*bytes));
        Ok(key)
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        if op.data.len() < 16 {
            return Err(OpError::Length);
        }
        let key = op.tfm.key::<AdiantumKey>(slot);
        let tweak: &[u8; TWEAK_LEN] = (&*op.iv).try_into().map_err(|_| OpError::Nonce)?;
        let bulk_len = op.data.len() - 16;
        let (mut bulk, mut last) = op.data.split_at(bulk_len);
        let right = u128::from_le_bytes(last.get_in().try_into().expect("one block"));
        // The sum is the block's plaintext when encrypting and its ciphertext when decrypting; the ciphertext is the
        // nonce of the stream.
        let sum = right.wrapping_add(key.hash(tweak, bulk.get_in()));
        let mut block = Array::<u8, U16>::from(sum.to_le_bytes());
        match op.dir {
            Direction::Encrypt => key.block.encrypt_block(&mut block),
            Direction::Decrypt => key.block.decrypt_block(&mut block),
        }
        let other = u128::from_le_bytes(block.into());
        let nonce = if op.dir == Direction::Encrypt { other } else { sum };
        chacha::xor_extended::<R>(&key.stream, &stream_iv(nonce), bulk.reborrow());
        let right = other.wrapping_sub(key.hash(tweak, bulk.get_out()));
        last.get_out().copy_from_slice(&right.to_le_bytes());
        block.zeroize();
        Ok(())
    }
}
