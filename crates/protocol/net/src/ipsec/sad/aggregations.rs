//! The state for IP-TFS that a database has beside its associations.

use crate::ipsec::id::SaId;
use crate::ipsec::iptfs::receive::Received;
use std::collections::BTreeSet;

/// The IP-TFS of a database.
#[derive(Default)]
pub(super) struct Aggregations {
    /// Thread, time in nanoseconds, association.
    pub(super) timers: BTreeSet<(u32, u64, SaId)>,
    /// The packets and faults that came out of payloads.
    pub(super) received: Received,
    pub(super) now_ns: u64,
    pub(super) thread: u32,
}
