//! Sizes of tables.

pub(crate) const MEMBERS: usize = 4;
pub(crate) const THREADS: usize = 5;
pub(crate) const SPINS: u32 = 1;
