//! Numbers of addition.

/// The place of an entry in the order of additions to its table: the later one is the newer one. It never names another
/// entry.
pub(crate) type Serial = u64;
