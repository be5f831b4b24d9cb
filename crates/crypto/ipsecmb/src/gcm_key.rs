//! Keys of GCM and GMAC.

use crate::ffi::{GCM_KEY_LEN, Op};
use crate::manager;
use sealane_crypto::KeyError;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The length in bytes of the nonce that GCM does not hash, and of that of RFC 8439.
pub(crate) const NONCE_LEN: usize = 12;

/// A key in the library's form: round keys and powers of H.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
pub(crate) struct GcmKey {
    data: [u8; GCM_KEY_LEN],
    key_len: u32,
}

impl GcmKey {
    pub(crate) const EMPTY: GcmKey = GcmKey { data: [0; GCM_KEY_LEN], key_len: 0 };

    /// Prepares `key`: 16, 24 or 32 bytes.
    pub(crate) fn set(&mut self, key: &[u8]) -> Result<(), KeyError> {
        let expand = manager::gcm_calls(key.len())?.expand.ok_or(KeyError::Driver)?;
        self.key_len = key.len() as u32;
        // SAFETY: the key has the length that the function takes; `data` has the length and alignment that it needs.
        unsafe { expand(key.as_ptr(), self.data.as_mut_ptr()) };
        Ok(())
    }

    /// The key, as the library's functions take it.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.data.as_ptr()
    }

    /// Becomes a copy of another key.
    pub(crate) fn become_as(&mut self, other: &Self) {
        self.data.copy_from_slice(&other.data);
        self.key_len = other.key_len;
    }

    /// An operation under this key.
    pub(crate) fn op(&self) -> Op {
        Op {
            key: [self.data.as_ptr(), core::ptr::null(), core::ptr::null()],
            key_len: self.key_len,
            iv_len: NONCE_LEN as u8,
            ..Op::EMPTY
        }
    }
}
