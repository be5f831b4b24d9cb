//! Drivers over the kernel's own AF_ALG, on machines that have it, for `sealane speed` and for comparisons.
//!
//! A prepared key holds the key's bytes. A socket is opened when a thread first uses the key, and kept in a cache of
//! that thread ([`sockets`]), because a descriptor means nothing in another process. The portable driver does what
//! AF_ALG cannot do in one request: messages whose pieces arrive one by one, and texts longer than a socket buffer
//! takes.
//!
//! These rows have the lowest priority and are not part of the registry that the shim uses.

mod aead;
mod hash;
mod held;
mod skcipher;
mod sockets;
mod sys;

use sealane_crypto::registry::Driver;
use sealane_crypto::rng::Entropy;
use sealane_crypto::{Alg, AlgInfo, KeyUse, Kind, OpError, Row};
use std::sync::Arc;

/// The module name of these rows.
pub const MODULE: &str = "kernel";

/// Preference where nothing was measured: below every driver in user space.
pub const PRIORITY: u32 = 10;

/// A row for each algorithm that the portable drivers have and that this kernel binds; none where it has no AF_ALG.
/// This costs a system call or two for each algorithm and may make the kernel load modules.
#[must_use]
pub fn rows() -> Vec<Row> {
    if !sys::present() {
        return Vec::new();
    }
    sealane_crypto_portable::rows().into_iter().filter_map(row).collect()
}

/// No entropy: ciphers and hashes need none.
struct NoEntropy;

impl Entropy for NoEntropy {
    fn fill(&self, _: &mut [u8]) -> Result<(), OpError> {
        Err(OpError::Driver)
    }
}

fn row(portable: Row) -> Option<Row> {
    let info = portable.info.clone();
    let make: fn(&AlgInfo, Alg) -> Option<Driver> = match info.kind {
        Kind::Hash if info.key_use == KeyUse::None => hash::hash,
        Kind::Hash if info.key_use == KeyUse::Required => hash::mac,
        Kind::Skcipher => skcipher::driver,
        Kind::Aead => aead::driver,
        _ => return None,
    };
    let flat = portable.driver.strip_suffix("-portable").unwrap_or(&portable.driver).to_owned();
    let entropy: Arc<dyn Entropy> = Arc::new(NoEntropy);
    let imp = make(&info, Alg::of_row(&Arc::new(portable), &entropy))?;
    sys::Tfm::bind(info.kind.name(), &info.name).ok()?;
    Some(Row::new(info, &format!("{flat}-{MODULE}"), MODULE, PRIORITY, imp))
}
