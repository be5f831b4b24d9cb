//! GCM (SP 800-38D) with 12-byte nonces.

use super::block::{Cipher, EncryptBlock, Family, Visit};
use super::gather::absorb;
use super::modes::keystream;
use cipher::InnerIvInit;
use cipher::consts::U16;
use ctr::flavors::Ctr32BE;
use ghash::GHash;
use inout::InOutBuf;
use sealane_crypto::aead::{AeadDriver, FlatAeadOp};
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::skcipher::Direction;
use std::marker::PhantomData;
use subtle::ConstantTimeEq;
use universal_hash::UniversalHash;
use zeroize::Zeroizing;

pub(super) struct Gcm<F>(pub(super) PhantomData<F>);

struct GcmKey<K> {
    cipher: K,
    /// GHASH, keyed with E(0), before the first block.
    ghash: GHash,
}

impl<F: Family<Block = U16>> AeadDriver for Gcm<F> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let cipher = F::key(key)?;
        let mut h = Zeroizing::new([0; 16]);
        F::with(&cipher, EncryptBlock(&mut h));
        Ok(Box::new(GcmKey { cipher, ghash: GHash::new((&*h).into()) }))
    }

    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status {
        let key = op.tfm.key::<GcmKey<F::Key>>(slot);
        let nonce: &[u8; 12] = op.nonce.try_into().map_err(|_| OpError::Nonce)?;
        F::with(
            &key.cipher,
            RunGcm { dir: op.dir, nonce, aad: op.aad, data: op.data, tag: op.tag, ghash: key.ghash.clone() },
        )
    }
}

struct RunGcm<'b> {
    dir: Direction,
    nonce: &'b [u8; 12],
    aad: &'b [&'b [u8]],
    data: InOutBuf<'b, 'b, u8>,
    tag: &'b mut [u8],
    ghash: GHash,
}

impl Visit<U16> for RunGcm<'_> {
    type Out = Status;

    fn visit<C: Cipher<U16>>(self, cipher: &C) -> Status {
        let RunGcm { dir, nonce, aad, mut data, tag, ghash } = self;
        let mut counter = [0; 16];
        counter[..12].copy_from_slice(nonce);
        counter[15] = 1;
        let mut mask = Zeroizing::new(counter);
        EncryptBlock(&mut mask).visit(cipher);
        counter[15] = 2;
        let stream = ctr::CtrCore::<&C, Ctr32BE>::inner_iv_init(cipher, (&counter).into());
        match dir {
            Direction::Encrypt => {
                keystream(stream, data.reborrow());
                let full = tag_of(ghash, aad, data.get_out(), &mask);
                tag.copy_from_slice(&full[..tag.len()]);
            }
            Direction::Decrypt => {
                let full = tag_of(ghash, aad, data.get_in(), &mask);
                if !bool::from(full[..tag.len()].ct_eq(tag)) {
                    data.get_out().fill(0);
                    return Err(OpError::Auth);
                }
                keystream(stream, data);
            }
        }
        Ok(())
    }
}

fn tag_of(mut ghash: GHash, aad: &[&[u8]], text: &[u8], mask: &[u8; 16]) -> Zeroizing<[u8; 16]> {
    let aad_len = absorb(&mut ghash, aad);
    let text_len = absorb(&mut ghash, &[text]);
    let lens = (u128::from(aad_len * 8) << 64 | u128::from(text_len * 8)).to_be_bytes();
    absorb(&mut ghash, &[&lens]);
    let mut tag: [u8; 16] = ghash.finalize().into();
    tag.iter_mut().zip(mask).for_each(|(t, m)| *t ^= m);
    Zeroizing::new(tag)
}
