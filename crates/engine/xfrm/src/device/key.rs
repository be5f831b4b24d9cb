//! The keys by which stack and device name what is offloaded.

/// A state, as long as it is offloaded; never another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey(pub u64);

/// A policy, as long as it is offloaded; never another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyKey(pub u64);
