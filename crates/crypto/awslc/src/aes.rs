//! AES in CBC and CTR mode, on an `AES_KEY` in place.

use crate::wipe::Wiped;
use aws_lc_sys as c;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver};
use sealane_crypto::{AlgInfo, CipherMode, KeyError, Lengths, OpError, Row, Status};
use std::sync::Arc;

/// The key lengths of AES in bytes.
pub(crate) const KEY_LENS: Lengths = Lengths::Of(&[16, 24, 32]);

/// The block of AES in bytes.
pub(crate) const BLOCK_LEN: usize = 16;

/// Round keys for one direction.
pub(crate) struct AesKey(Wiped<c::AES_KEY>);

impl AesKey {
    /// Round keys for encryption.
    pub(crate) fn encrypting(key: &[u8]) -> Result<Self, KeyError> {
        Self::expand(key, c::AES_set_encrypt_key)
    }

    /// Round keys for decryption.
    pub(crate) fn decrypting(key: &[u8]) -> Result<Self, KeyError> {
        Self::expand(key, c::AES_set_decrypt_key)
    }

    fn expand(
        key: &[u8],
        set: unsafe extern "C" fn(*const u8, core::ffi::c_uint, *mut c::AES_KEY) -> core::ffi::c_int,
    ) -> Result<Self, KeyError> {
        let bits = match key.len() {
            16 => 128,
            24 => 192,
            32 => 256,
            _ => return Err(KeyError::Length),
        };
        let mut expanded = AesKey(Wiped(c::AES_KEY { rd_key: [0; 60], rounds: 0 }));
        // SAFETY: the key holds `bits` bits, the schedule is valid for writing.
        match unsafe { set(key.as_ptr(), bits, &mut expanded.0.0) } {
            0 => Ok(expanded),
            _ => Err(KeyError::Driver),
        }
    }

    /// Copies the schedule.
    pub(crate) fn again(&self) -> Self {
        AesKey(Wiped(self.0.0))
    }

    /// Encrypts one block in place; the key is an encrypting one.
    #[inline]
    pub(crate) fn encrypt(&self, block: &mut [u8; BLOCK_LEN]) {
        // SAFETY: a block, read and written in place.
        unsafe { c::AES_encrypt(block.as_ptr(), block.as_mut_ptr(), &self.0.0) };
    }

    /// CBC over `len` bytes, whole blocks; `iv` becomes the last block of ciphertext.
    ///
    /// # Safety
    /// `src` is readable and `dst` writable for `len` bytes; they are the same or do not overlap.
    #[inline]
    pub(crate) unsafe fn cbc(&self, src: *const u8, dst: *mut u8, len: usize, iv: &mut [u8; BLOCK_LEN], enc: bool) {
        debug_assert_eq!(len % BLOCK_LEN, 0);
        // SAFETY: as the caller promises; the IV has one block.
        unsafe { c::AES_cbc_encrypt(src, dst, len, &self.0.0, iv.as_mut_ptr(), i32::from(enc)) };
    }

    /// CTR over `len` bytes with a 128-bit big-endian counter; `counter` is advanced by `ceil(len / 16)` blocks.
    ///
    /// # Safety
    /// `src` is readable and `dst` writable for `len` bytes; they are the same or do not overlap.
    #[inline]
    pub(crate) unsafe fn ctr(&self, src: *const u8, dst: *mut u8, len: usize, counter: &mut [u8; BLOCK_LEN]) {
        let mut rest = Wiped([0u8; BLOCK_LEN]);
        let mut used = 0;
        // SAFETY: as the caller promises; counter and key stream block have one block each.
        unsafe {
            let (counter, rest) = (counter.as_mut_ptr(), rest.0.as_mut_ptr());
            c::AES_ctr128_encrypt(src, dst, len, &self.0.0, counter, rest, &mut used);
        }
    }
}

struct Cbc;

struct CbcKey {
    encrypting: AesKey,
    decrypting: AesKey,
}

impl SkcipherDriver for Cbc {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(CbcKey { encrypting: AesKey::encrypting(key)?, decrypting: AesKey::decrypting(key)? }))
    }

    fn one(&self, slot: usize, mut op: FlatSkcipherOp<'_, '_>) -> Status {
        if !op.data.len().is_multiple_of(BLOCK_LEN) {
            return Err(OpError::Length);
        }
        let iv = op.iv.try_into().map_err(|_| OpError::Nonce)?;
        let key = op.tfm.key::<CbcKey>(slot);
        let (src, dst, len) = (op.data.get_in().as_ptr(), op.data.get_out().as_mut_ptr(), op.data.len());
        let (key, enc) = match op.dir {
            Direction::Encrypt => (&key.encrypting, true),
            Direction::Decrypt => (&key.decrypting, false),
        };
        if len > 0 {
            // SAFETY: the two halves of an `InOutBuf` are the same memory or apart, and have `len` bytes.
            unsafe { key.cbc(src, dst, len, iv, enc) };
        }
        Ok(())
    }
}

struct Ctr;

impl SkcipherDriver for Ctr {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(AesKey::encrypting(key)?))
    }

    fn one(&self, slot: usize, mut op: FlatSkcipherOp<'_, '_>) -> Status {
        let iv = op.iv.try_into().map_err(|_| OpError::Nonce)?;
        let (src, dst, len) = (op.data.get_in().as_ptr(), op.data.get_out().as_mut_ptr(), op.data.len());
        // SAFETY: the two halves of an `InOutBuf` are the same memory or apart, and have `len` bytes.
        unsafe { op.tfm.key::<AesKey>(slot).ctr(src, dst, len, iv) };
        Ok(())
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let cbc = AlgInfo::skcipher("cbc(aes)", 16, KEY_LENS, 16).mode(CipherMode::Cbc);
    let ctr = AlgInfo { chunk_len: 16, ..AlgInfo::skcipher("ctr(aes)", 1, KEY_LENS, 16).mode(CipherMode::Ctr) };
    vec![
        crate::row::row(cbc, "cbc-aes", Driver::Skcipher(Arc::new(Cbc))),
        crate::row::row(ctr, "ctr-aes", Driver::Skcipher(Arc::new(Ctr))),
    ]
}
