//! The preference of all rows of this crate.

/// Preference where nothing was measured.
pub const PRIORITY: u32 = 250;
