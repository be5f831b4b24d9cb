//! ChaCha20 as a cipher and Poly1305 as a one-time MAC.

use crate::wipe::Wiped;
use aws_lc_sys as c;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{NonceMacDriver, NonceMacOp};
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::{FlatSkcipherOp, SkcipherDriver};
use sealane_crypto::{AlgInfo, CipherMode, KeyError, Lengths, OpError, Row, Status};
use std::sync::Arc;

/// The depth of the stack to which the library's ChaCha20 leaves the key: its widest code has a frame of some 700 bytes.
const CHACHA_TRACES: usize = 4 << 10;

/// ChaCha20 with the kernel's IV: the block counter (32 bits, little-endian) and the 12-byte nonce. The IV on return is
/// unchanged.
struct ChaCha20;

struct Key(Wiped<[u8; 32]>);

fn key32(key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
    Ok(Box::new(Key(Wiped(key.try_into().map_err(|_| KeyError::Length)?))))
}

impl SkcipherDriver for ChaCha20 {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        key32(key)
    }

    fn one(&self, slot: usize, mut op: FlatSkcipherOp<'_, '_>) -> Status {
        let iv: &[u8; 16] = (&*op.iv).try_into().map_err(|_| OpError::Nonce)?;
        let (counter, nonce) = iv.split_first_chunk::<4>().expect("16 bytes");
        let key = &op.tfm.key::<Key>(slot).0.0;
        let (src, dst, len) = (op.data.get_in().as_ptr(), op.data.get_out().as_mut_ptr(), op.data.len());
        // SAFETY: the halves of an `InOutBuf` are the same memory or apart; key and nonce have 32 and 12 bytes.
        unsafe { c::CRYPTO_chacha_20(dst, src, len, key.as_ptr(), nonce.as_ptr(), u32::from_le_bytes(*counter)) };
        Ok(())
    }
}

struct Poly1305;

impl NonceMacDriver for Poly1305 {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        key32(key)
    }

    fn burst(&self, slot: usize, ops: &mut [NonceMacOp<'_>]) {
        for op in ops {
            if !op.nonce.is_empty() {
                op.status = Err(OpError::Nonce);
                continue;
            }
            let key = &op.tfm.key::<Key>(slot).0.0;
            // The library aligns its state within these bytes.
            let mut state = [core::mem::MaybeUninit::<u8>::uninit(); 512];
            let state_ptr = state.as_mut_ptr().cast::<c::poly1305_state>();
            let mut tag = Wiped([0u8; 16]);
            // SAFETY: the state has the 512 bytes that the library asks for and `init` fills what the others read;
            // pieces are readable for their lengths; the tag has 16 bytes.
            unsafe {
                c::CRYPTO_poly1305_init(state_ptr, key.as_ptr());
                for piece in op.data.iter().filter(|p| !p.is_empty()) {
                    c::CRYPTO_poly1305_update(state_ptr, piece.as_ptr(), piece.len());
                }
                c::CRYPTO_poly1305_finish(state_ptr, tag.0.as_mut_ptr());
            }
            state.fill(core::mem::MaybeUninit::zeroed());
            zeroize::optimization_barrier(&state);
            op.tag.copy_from_slice(&tag.0[..op.tag.len()]);
            op.status = Ok(());
        }
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let chacha = AlgInfo::skcipher("chacha20", 1, Lengths::Of(&[32]), 16).mode(CipherMode::ChaCha20);
    let chacha = AlgInfo { chunk_len: 64, ..chacha };
    let poly = AlgInfo::nonce_mac("poly1305", 16, Lengths::Of(&[32]), 0);
    vec![
        crate::row::row(chacha, "chacha20", Driver::Skcipher(Arc::new(ChaCha20))).leaving_traces(CHACHA_TRACES),
        crate::row::row(poly, "poly1305", Driver::NonceMac(Arc::new(Poly1305))),
    ]
}
