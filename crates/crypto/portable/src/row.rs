//! The module name and the default priority of the rows of this crate.

/// The module name of these rows.
pub const MODULE: &str = "portable";

/// Preference where nothing was measured: below every faster driver.
pub const PRIORITY: u32 = 100;
