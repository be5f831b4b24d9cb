//! OpenSSL for comparison: EVP used as its manual advises (fetched once, contexts kept, keys set once), wrapped in rows
//! so that the same loop measures it.
//!
//! For `sealane speed --against openssl`, benches and comparisons only. It is never part of a registry that serves
//! programs: its keys hold contexts on OpenSSL's heap, and the shim must work inside programs that use OpenSSL
//! themselves. `libcrypto.so.3` is opened at run time, so nothing links it.

mod evp;
mod rows;

pub use rows::{rows, rows_of};

/// The version of the OpenSSL that was opened.
///
/// # Errors
/// A text that says why none was opened.
pub fn version() -> Result<String, String> {
    evp::library().map(evp::Library::version).map_err(Clone::clone)
}

/// An EVP cipher context that encrypts a stream, a thin wrapper of `EVP_CipherUpdate`.
pub struct Stream(evp::CipherCtx);

impl Stream {
    /// A context of `cipher`, under its OpenSSL name (`AES-128-CTR`), with a key and IV of its lengths.
    ///
    /// # Errors
    /// When OpenSSL or the cipher is not available.
    pub fn encrypt(cipher: &str, key: &[u8], iv: &[u8]) -> Result<Self, String> {
        let lib = evp::library().map_err(Clone::clone)?;
        let fetched = lib
            .fetch(evp::Fetch::Cipher, &evp::c_name(cipher), None)
            .ok_or_else(|| format!("OpenSSL has no {cipher}"))?;
        let mut ctx = evp::CipherCtx::new(fetched, true, key).ok_or("OpenSSL refused the key")?;
        if ctx.iv(iv) { Ok(Stream(ctx)) } else { Err("OpenSSL refused the IV".to_owned()) }
    }

    /// Encrypts the next piece; `src` and `dst` have the same length.
    ///
    /// # Panics
    /// When the lengths differ or OpenSSL fails.
    pub fn update(&mut self, src: &[u8], dst: &mut [u8]) {
        assert_eq!(src.len(), dst.len());
        // SAFETY: both are live slices of one length that do not overlap.
        assert!(unsafe { self.0.update(src.as_ptr(), dst.as_mut_ptr(), src.len()) }, "EVP_CipherUpdate failed");
    }
}
