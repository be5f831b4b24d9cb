//! AES-CCM (RFC 3610) from CBC-MAC and CTR. AWS-LC's own `EVP_AEAD`s for CCM take one nonce and two tag lengths only.

use crate::aes::{AesKey, BLOCK_LEN, KEY_LENS};
use crate::cmac::{Chain, cbc_mac, cbc_mac_block};
use crate::wipe::Wiped;
use sealane_crypto::aead::{AeadDriver, FlatAeadOp};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{AlgInfo, CipherMode, KeyError, Lengths, OpError, Row, Status};
use std::sync::Arc;

struct Ccm;

/// A CBC-MAC over sections that are padded with zeros to whole blocks.
struct Mac<'k> {
    key: &'k AesKey,
    chain: Wiped<Chain>,
    buf: Wiped<Chain>,
    used: usize,
}

impl Mac<'_> {
    fn update(&mut self, mut data: &[u8]) {
        if self.used > 0 {
            let (fill, rest) = data.split_at(data.len().min(BLOCK_LEN - self.used));
            self.buf.0[self.used..self.used + fill.len()].copy_from_slice(fill);
            self.used += fill.len();
            data = rest;
            if self.used < BLOCK_LEN {
                return;
            }
            cbc_mac_block(self.key, &mut self.chain.0, &self.buf.0);
            self.used = 0;
        }
        let (blocks, last) = data.split_at(data.len() / BLOCK_LEN * BLOCK_LEN);
        if !blocks.is_empty() {
            cbc_mac(self.key, &mut self.chain.0, blocks);
        }
        self.buf.0[..last.len()].copy_from_slice(last);
        self.used = last.len();
    }

    /// Ends a section.
    fn pad(&mut self) {
        if self.used > 0 {
            self.buf.0[self.used..].fill(0);
            cbc_mac_block(self.key, &mut self.chain.0, &self.buf.0);
            self.used = 0;
        }
    }
}

/// Starts the MAC: B_0 and the associated data with its length (RFC 3610 section 2.2).
fn start<'k>(key: &'k AesKey, iv: &[u8; BLOCK_LEN], tag_len: usize, aad: &[&[u8]], len: usize) -> Mac<'k> {
    let aad_len: usize = aad.iter().map(|a| a.len()).sum();
    let mut b0 = *iv;
    // The first byte of the kernel's IV is L - 1, and so are the low bits of the flags octet.
    b0[0] |= ((tag_len as u8 - 2) / 2) << 3;
    if aad_len > 0 {
        b0[0] |= 0x40;
    }
    let field = usize::from(iv[0]) + 1;
    b0[BLOCK_LEN - field..].copy_from_slice(&(len as u64).to_be_bytes()[8 - field..]);
    let mut mac = Mac { key, chain: Wiped([0; BLOCK_LEN]), buf: Wiped([0; BLOCK_LEN]), used: 0 };
    cbc_mac_block(key, &mut mac.chain.0, &b0);
    if aad_len > 0 {
        match aad_len {
            0..0xff00 => mac.update(&(aad_len as u16).to_be_bytes()),
            0xff00..=0xffff_ffff => {
                mac.update(&[0xff, 0xfe]);
                mac.update(&(aad_len as u32).to_be_bytes());
            }
            _ => {
                mac.update(&[0xff, 0xff]);
                mac.update(&(aad_len as u64).to_be_bytes());
            }
        }
        for piece in aad {
            mac.update(piece);
        }
        mac.pad();
    }
    mac
}

impl AeadDriver for Ccm {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(AesKey::encrypting(key)?))
    }

    fn one(&self, slot: usize, mut op: FlatAeadOp<'_, '_>) -> Status {
        let iv: &[u8; BLOCK_LEN] = op.nonce.try_into().map_err(|_| OpError::Nonce)?;
        if !(1..=7).contains(&iv[0]) {
            return Err(OpError::Nonce);
        }
        let len = op.data.len();
        let field = u32::from(iv[0]) + 1;
        if field < 8 && len as u64 >> (8 * field) != 0 {
            return Err(OpError::TooLong);
        }
        let key = op.tfm.key::<AesKey>(slot);
        // A_0 encrypts the tag, A_1 and on the text.
        let mut a0 = *iv;
        a0[BLOCK_LEN - usize::from(iv[0]) - 1..].fill(0);
        let mut counter = (u128::from_be_bytes(a0) + 1).to_be_bytes();
        let mut mac = start(key, iv, op.tag.len(), op.aad, len);
        key.encrypt(&mut a0);
        let mut stream = Wiped(a0);
        let tag = |mac: &mut Mac<'_>, stream: &mut Wiped<Chain>| {
            mac.pad();
            stream.0 = (u128::from_ne_bytes(stream.0) ^ u128::from_ne_bytes(mac.chain.0)).to_ne_bytes();
        };
        match op.dir {
            Direction::Encrypt => {
                mac.update(op.data.get_in());
                let (src, dst) = (op.data.get_in().as_ptr(), op.data.get_out().as_mut_ptr());
                // SAFETY: the halves of an `InOutBuf` are the same memory or apart, and have `len` bytes.
                unsafe { key.ctr(src, dst, len, &mut counter) };
                tag(&mut mac, &mut stream);
                op.tag.copy_from_slice(&stream.0[..op.tag.len()]);
                Ok(())
            }
            Direction::Decrypt => {
                let (src, dst) = (op.data.get_in().as_ptr(), op.data.get_out().as_mut_ptr());
                // SAFETY: as above.
                unsafe { key.ctr(src, dst, len, &mut counter) };
                mac.update(op.data.get_out());
                tag(&mut mac, &mut stream);
                // SAFETY: both have `tag.len()` bytes; tag lengths of CCM are at most 16.
                let differs = unsafe {
                    aws_lc_sys::CRYPTO_memcmp(stream.0.as_ptr().cast(), op.tag.as_ptr().cast(), op.tag.len())
                };
                if differs == 0 {
                    Ok(())
                } else {
                    op.data.get_out().fill(0);
                    Err(OpError::Auth)
                }
            }
        }
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let info = AlgInfo::aead("ccm(aes)", 1, KEY_LENS, 16, Lengths::Of(&[4, 6, 8, 10, 12, 14, 16]));
    let info = info.mode(CipherMode::Ccm);
    vec![crate::row::row(info, "ccm-aes", Driver::Aead(Arc::new(Ccm)))]
}
