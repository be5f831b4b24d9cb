//! Drivers over AWS-LC, through its C and assembly functions that work on plain structs.
//!
//! No prepared key has an `EVP_MD_CTX`, an `EVP_CIPHER_CTX` or an `HMAC_CTX`: those live on the C heap, and prepared keys
//! must stay valid in memory that processes share after `fork`. Only [`stream`], for messages in pieces, is over an
//! `EVP_CIPHER_CTX`, in memory that [`memory`] gives the library. The types that are used need no heap: block functions
//! of the hashes ([`md`]), `AES_KEY`, `DES_key_schedule`, and `EVP_AEAD_CTX`, whose state for AES-GCM and
//! ChaCha20-Poly1305 has no pointers except to constant tables of the library.
//!
//! Private keys ([`pkey`]) and public ones ([`public`]) are no drivers, and do live on the C heap.
//!
//! For this reason XTS (only an `EVP_CIPHER`) and SHA-3 (only an `EVP_MD`) are left out; ECB (one block per call,
//! slower than the portable driver) and BLAKE2b (portable C) are left out because they are slow.

mod aead;
mod aes;
mod ccm;
mod chacha;
mod cmac;
mod des;
mod evp;
mod hmac;
mod md;
mod memory;
pub mod pkey;
pub mod public;
mod row;
mod stream;
mod wipe;

use sealane_crypto::Row;

pub use row::{MODULE, PRIORITY};

/// The library's version, such as `5.12.0`.
#[must_use]
pub fn version() -> String {
    String::from_utf8_lossy(aws_lc_sys::AWSLC_VERSION_NUMBER_STRING).trim_end_matches('\0').to_owned()
}

/// A row for each algorithm that AWS-LC computes without its heap.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows = md::rows();
    rows.extend(hmac::rows());
    rows.extend(cmac::rows());
    rows.extend(aes::rows());
    rows.extend(des::rows());
    rows.extend(chacha::rows());
    rows.extend(aead::rows());
    rows.extend(ccm::rows());
    rows
}
