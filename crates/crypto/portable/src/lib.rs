//! Portable drivers, from RustCrypto and other pure Rust crates. Every algorithm has one; it is the reference that all
//! other drivers are compared with.

#![forbid(unsafe_code)]

mod adiantum;
mod aead;
mod block;
mod ccm;
mod chacha;
mod chachapoly;
mod chachapoly_stream;
mod gather;
mod gcm;
mod hash;
mod hctr2;
mod mac;
mod modes;
mod nonce_mac;
mod rng;
mod row;
mod skcipher;

use sealane_crypto::{Alg, Registry, Row, selftest, templates};

pub use row::{MODULE, PRIORITY};

/// The depth of the stack to which operations of these drivers reach: the deepest is AES-GCM, with some 9,000 bytes.
const TRACES: usize = 16 << 10;

/// A row for each algorithm. Compilers keep what they like on the stack, so each of them is taken to leave traces of keys.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows = hash::rows();
    rows.extend(mac::rows());
    rows.extend(nonce_mac::rows());
    rows.extend(skcipher::rows());
    rows.extend(aead::rows());
    rows.extend(rng::rows());
    rows.into_iter().map(|row| row.leaving_traces(TRACES)).collect()
}

/// A registry of the portable drivers alone, with self-tests, for tests.
#[must_use]
pub fn registry() -> Registry {
    Registry::builder(self_test).rows(rows()).templates(templates::all()).build()
}

/// The [`SelfTest`](sealane_crypto::registry::SelfTest) of every registry: the published vectors of the algorithm, then
/// the same results as its portable driver. A portable row is compared with itself: pieces with whole messages, bursts
/// with single operations.
///
/// # Errors
/// A text that says what differed, and where.
pub fn self_test(alg: &Alg) -> Result<(), String> {
    let reference = if alg.rows()[0].module == MODULE { None } else { reference(alg) };
    selftest::run(alg, reference.as_ref())
}

/// The portable driver of the same algorithm. It is not tested here, but when it is itself looked up: a difference
/// fails the row under test, whichever of the two drivers is wrong.
fn reference(alg: &Alg) -> Option<Alg> {
    let untested = Registry::builder(|_| Ok(())).rows(rows()).templates(templates::all()).build();
    untested.lookup(alg.info().kind, &alg.info().name).ok()
}
