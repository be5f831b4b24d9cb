//! ChaCha20-Poly1305 (RFC 8439, which replaced RFC 7539).

use super::chacha;
use super::chachapoly_stream::Stream;
use super::gather::absorb;
use chacha20::R20;
use inout::InOutBuf;
use poly1305::Poly1305;
use sealane_crypto::aead::{AeadDriver, AeadStream, FlatAeadOp};
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::skcipher::Direction;
use subtle::ConstantTimeEq;
use universal_hash::{KeyInit, UniversalHash};
use zeroize::Zeroizing;

pub(super) struct ChaChaPoly;

type ChaChaPolyKey = Zeroizing<[u8; 32]>;

impl AeadDriver for ChaChaPoly {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let key: [u8; 32] = key.try_into().map_err(|_| KeyError::Length)?;
        Ok(Box::new(ChaChaPolyKey::new(key)))
    }

    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status {
        let key = op.tfm.key::<ChaChaPolyKey>(slot);
        let nonce: &[u8; 12] = op.nonce.try_into().map_err(|_| OpError::Nonce)?;
        let mut data = op.data;
        match op.dir {
            Direction::Encrypt => {
                chacha::xor::<R20>(key, 1, nonce, data.reborrow());
                op.tag.copy_from_slice(&tag_of(key, nonce, op.aad, data.get_out())[..op.tag.len()]);
            }
            Direction::Decrypt => {
                let tag = tag_of(key, nonce, op.aad, data.get_in());
                if !bool::from(tag[..op.tag.len()].ct_eq(op.tag)) {
                    data.get_out().fill(0);
                    return Err(OpError::Auth);
                }
                chacha::xor::<R20>(key, 1, nonce, data);
            }
        }
        Ok(())
    }

    fn stream(&self, key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        Some(Stream::new(key).map(|stream| -> Box<dyn AeadStream> { Box::new(stream) }))
    }
}

fn tag_of(key: &[u8; 32], nonce: &[u8; 12], aad: &[&[u8]], text: &[u8]) -> [u8; 16] {
    let mut one_time = Zeroizing::new([0; 32]);
    chacha::xor::<R20>(key, 0, nonce, InOutBuf::from(&mut one_time[..]));
    let mut poly = Poly1305::new((&*one_time).into());
    let aad_len = absorb(&mut poly, aad);
    let text_len = absorb(&mut poly, &[text]);
    let lens = (u128::from(text_len) << 64 | u128::from(aad_len)).to_le_bytes();
    absorb(&mut poly, &[&lens]);
    poly.finalize().into()
}
