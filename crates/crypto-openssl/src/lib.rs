//! OpenSSL as a rival: EVP used as its manual advises (fetched once, contexts kept, keys set once), wrapped in rows so
//! that the same loop measures it.
//!
//! For `sealane speed --against openssl`, benches and comparisons only. It is never part of a registry that serves
//! programs: its keys hold contexts on OpenSSL's heap, and the shim must work inside programs that use OpenSSL
//! themselves. `libcrypto.so.3` is opened at run time, so nothing links it.

mod evp;
mod rows;

pub use rows::rows;

/// The version of the OpenSSL that was opened.
///
/// # Errors
/// Why there is none.
pub fn version() -> Result<String, String> {
    evp::library().map(evp::Library::version).map_err(Clone::clone)
}
