//! The module name, the default priority and the constructor of the rows of this crate.

use sealane_crypto::registry::Driver;
use sealane_crypto::{AlgInfo, Row};

/// The module name of these rows.
pub const MODULE: &str = "awslc";

/// Preference where nothing was measured.
pub const PRIORITY: u32 = 300;

/// A row of this module; the driver is `<flat>-awslc`.
pub(super) fn row(info: AlgInfo, flat: &str, imp: Driver) -> Row {
    Row::new(info, &format!("{flat}-{MODULE}"), MODULE, PRIORITY, imp)
}
