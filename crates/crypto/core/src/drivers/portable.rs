//! Portable drivers, from RustCrypto and other pure Rust crates: one for every algorithm, and the reference that every
//! other driver is compared with.

mod adiantum;
mod aead;
mod block;
mod ccm;
mod chacha;
mod chachapoly;
mod gather;
mod gcm;
mod hash;
mod hctr2;
mod mac;
mod modes;
mod nonce_mac;
mod rng;
mod skcipher;

use crate::registry::{Row, Template};

/// The name that these rows carry as their module.
pub const MODULE: &str = "portable";

/// Preference where nothing was measured: below every driver that exists for speed.
pub const PRIORITY: u32 = 100;

/// A row for each algorithm.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows = hash::rows();
    rows.extend(mac::rows());
    rows.extend(nonce_mac::rows());
    rows.extend(skcipher::rows());
    rows.extend(aead::rows());
    rows.extend(rng::rows());
    rows
}

/// Templates that need no row of their own: they compose what the registry resolves.
#[must_use]
pub fn templates() -> Vec<Template> {
    crate::templates::all()
}
