//! What the rows of this crate have in common.

/// The module name of these rows.
pub const MODULE: &str = "portable";

/// Preference where nothing was measured: below every faster driver.
pub const PRIORITY: u32 = 100;
