//! Drivers over intel-ipsec-mb, which processes many messages at a time: 16 HMACs or CBC encryptions in the lanes of
//! one AVX-512 register, and GCM with VAES. It is fast in bursts; for a single HMAC other drivers are faster, as the
//! measured table of [`sealane_crypto::choice`] shows.
//!
//! - [`manager`]: the library's scheduler and a buffer to join pieces in, one of each per thread;
//! - [`batch`]: collects up to 64 operations, joins their pieces, runs them longest first;
//! - [`hash`], [`mac`], [`nonce_mac`], [`skcipher`], [`aead`]: the rows;
//! - [`gcm_key`], [`stream`]: keys of GCM, and messages that come in pieces;
//! - [`row`]: their common facts;
//! - [`fallback`]: the portable rows, which run the operations that the library cannot do (an AES-192 CMAC, an empty
//!   HMAC, a message over 64 KiB, a message but those of GCM that arrives piece by piece), so each row is complete.
//!
//! Prepared keys hold no pointers and nothing that belongs to a thread or a process: managers are scratch space.
//! Without libipsec-mb at build time, or without AES-NI at run time, there are no rows; [`available`] says why.

#[cfg(ipsec_mb)]
mod aead;
#[cfg(ipsec_mb)]
mod batch;
#[cfg(ipsec_mb)]
mod fallback;
#[cfg(ipsec_mb)]
mod ffi;
#[cfg(ipsec_mb)]
mod gcm_key;
#[cfg(ipsec_mb)]
mod hash;
#[cfg(ipsec_mb)]
mod mac;
#[cfg(ipsec_mb)]
mod manager;
#[cfg(ipsec_mb)]
mod nonce_mac;
mod row;
#[cfg(ipsec_mb)]
mod skcipher;
#[cfg(ipsec_mb)]
mod stream;

use sealane_crypto::Row;

pub use row::{MODULE, PRIORITY};

#[cfg(not(ipsec_mb))]
const NOT_BUILT: &str = "built without intel-ipsec-mb: install libipsec-mb-dev and build again (x86-64 only)";

/// A row for each algorithm that the library serves; none when it is not [`available`].
#[must_use]
pub fn rows() -> Vec<Row> {
    #[cfg(ipsec_mb)]
    if available().is_ok() {
        let portable = fallback::Portable::new();
        let mut rows = hash::rows(&portable);
        rows.extend(mac::rows(&portable));
        rows.extend(nonce_mac::rows(&portable));
        rows.extend(skcipher::rows(&portable));
        rows.extend(aead::rows(&portable));
        return rows;
    }
    Vec::new()
}

/// Whether the drivers can run here.
///
/// # Errors
/// A text that says what is missing.
pub fn available() -> Result<(), &'static str> {
    #[cfg(ipsec_mb)]
    return manager::available();
    #[cfg(not(ipsec_mb))]
    Err(NOT_BUILT)
}

/// The library's version (`0x10300` is 1.3.0) and the code path that it has chosen for this CPU.
///
/// # Errors
/// As for [`available`].
pub fn describe() -> Result<String, &'static str> {
    #[cfg(ipsec_mb)]
    return manager::describe();
    #[cfg(not(ipsec_mb))]
    Err(NOT_BUILT)
}
