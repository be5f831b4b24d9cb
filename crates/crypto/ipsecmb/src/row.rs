//! The module name, the default priority and the constructor of the rows of this crate.

#[cfg(ipsec_mb)]
use sealane_crypto::registry::Driver;
#[cfg(ipsec_mb)]
use sealane_crypto::{AlgInfo, Row};

/// The module name of these rows.
pub const MODULE: &str = "ipsecmb";

/// Preference where nothing was measured.
pub const PRIORITY: u32 = 200;

/// A row of this crate for the algorithm that `info` describes.
#[cfg(ipsec_mb)]
pub(crate) fn row(info: &AlgInfo, driver: Driver) -> Row {
    let flat = info.name.replace(['(', ','], "-").replace(')', "");
    Row::new(info.clone(), &format!("{flat}-{}", MODULE), MODULE, PRIORITY, driver)
}
