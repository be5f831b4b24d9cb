//! Sizes of tables, of which the model has smaller ones (tests/model.rs).

/// The most processes of a socket whose operations are counted.
pub(crate) const MEMBERS: usize = 256;
/// Threads for which there is a slot before the first chunk of more is mapped, and in each.
pub(crate) const THREADS: usize = 31;
/// Looks at a lock that is taken before a thread sleeps.
pub(crate) const SPINS: u32 = 100;
