//! All drivers of this build in one registry, and the measurements that choose between them.
//!
//! Programs, the shim and tests take their [`registry`] from here. [`left_out`] names the libraries that a build lacks,
//! and says how to get them. [`tables`] finds the calibrated table of this machine, [`calibrate`] makes one with
//! [`measure`].

pub mod calibrate;
pub mod measure;
pub mod tables;
pub mod turns;

mod entropy;

pub use entropy::SystemEntropy;

use sealane_crypto::choice::Table;
use sealane_crypto::rng::Entropy;
use sealane_crypto::{Registry, Row};
use std::collections::HashMap;
use std::sync::Arc;

/// The rows of every driver that this build and this CPU have.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows = sealane_crypto_portable::rows();
    rows.extend(sealane_crypto_simd::rows());
    #[cfg(feature = "aws-lc")]
    rows.extend(sealane_crypto_awslc::rows());
    #[cfg(feature = "ipsec-mb")]
    rows.extend(sealane_crypto_ipsecmb::rows());
    agree(&mut rows);
    rows
}

/// The rows of the kernel's own AF_ALG; none where the kernel lacks it. They serve measurements and comparisons and are
/// not part of [`registry`]: they keep sockets open for each thread, which would surprise a program that the shim
/// serves, and looking them up may make the kernel load modules.
#[must_use]
pub fn kernel_rows() -> Vec<Row> {
    #[cfg(feature = "kernel")]
    return sealane_crypto_kernel::rows();
    #[cfg(not(feature = "kernel"))]
    Vec::new()
}

/// Copies the properties of algorithms (lengths, `legacy`, ...) from the portable rows to the others, so that all rows
/// of an algorithm agree.
fn agree(rows: &mut [Row]) {
    let portable = rows.iter().filter(|row| row.module == sealane_crypto_portable::MODULE);
    let infos: HashMap<_, _> = portable.map(|row| ((row.info.kind, row.info.name.clone()), row.info.clone())).collect();
    for row in rows {
        if let Some(info) = infos.get(&(row.info.kind, row.info.name.clone())) {
            row.info = info.clone();
        }
    }
}

/// A registry of every driver, which chooses by `table`.
#[must_use]
pub fn registry(table: Table, entropy: Arc<dyn Entropy>) -> Registry {
    Registry::builder(sealane_crypto_portable::self_test)
        .rows(rows())
        .templates(sealane_crypto::templates::all())
        .table(table)
        .entropy(entropy)
        .build()
}

/// A registry of every driver, with this machine's table and the system's entropy. When the table cannot be used, the
/// shipped one takes its place, and the error is returned as well.
#[must_use]
pub fn system_registry() -> (Registry, Option<tables::LoadError>) {
    let (table, error) = match tables::load() {
        Ok((table, _)) => (table, None),
        Err(error) => (tables::shipped().0, Some(error)),
    };
    (registry(table, Arc::new(SystemEntropy)), error)
}

/// Name and version of each library of this build that this CPU can use.
#[must_use]
pub fn versions() -> Vec<(String, String)> {
    #[cfg_attr(not(any(feature = "aws-lc", feature = "ipsec-mb")), expect(unused_mut, reason = "there is none"))]
    let mut versions = Vec::new();
    #[cfg(feature = "aws-lc")]
    versions.push(("AWS-LC".to_owned(), sealane_crypto_awslc::version()));
    #[cfg(feature = "ipsec-mb")]
    if let Ok(text) = sealane_crypto_ipsecmb::describe() {
        // It begins with the library's name.
        let version = text.strip_prefix("intel-ipsec-mb ").unwrap_or(&text);
        versions.push(("intel-ipsec-mb".to_owned(), version.to_owned()));
    }
    versions
}

/// A line for each library that this build or this CPU lacks: what is missing and how to get it.
#[must_use]
pub fn left_out() -> Vec<String> {
    let mut missing = Vec::new();
    if cfg!(not(feature = "aws-lc")) {
        missing.push(
            "aws-lc: built without it; build again with the Cargo feature 'aws-lc' (needs a C compiler)".to_owned(),
        );
    }
    #[cfg(feature = "ipsec-mb")]
    if let Err(why) = sealane_crypto_ipsecmb::available() {
        missing.push(format!("intel-ipsec-mb: {why}"));
    }
    if cfg!(not(feature = "ipsec-mb")) {
        missing.push("intel-ipsec-mb: built without it; build again with the Cargo feature 'ipsec-mb'".to_owned());
    }
    missing
}
