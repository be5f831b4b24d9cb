//! The state for IP-TFS that a database has beside its associations.

use crate::id::SaId;
use crate::iptfs::congestion::Congestion;
use crate::iptfs::receive::Received;
use crate::iptfs::{PairKey, Rate};
use std::collections::{BTreeMap, BTreeSet};

/// The IP-TFS of a database.
#[derive(Default)]
pub(super) struct Aggregations {
    /// Thread, time in nanoseconds, association.
    pub(super) timers: BTreeSet<(u32, u64, SaId)>,
    /// The packets and faults that came out of payloads.
    pub(super) received: Received,
    /// Those with congestion control.
    pub(super) pairs: BTreeMap<PairKey, Pair>,
    /// The pairs whose peer sends no feedback, until [`super::Sad::take_silent`].
    pub(super) silent: BTreeSet<PairKey>,
    pub(super) now_ns: u64,
    pub(super) thread: u32,
}

/// Associations to a peer and from it.
pub(super) struct Pair {
    pub(super) congestion: Congestion,
    /// The number of associations to the peer.
    pub(super) users: usize,
    /// Whether the peer has been noted as one that sends no feedback.
    pub(super) is_noted: bool,
}

impl Pair {
    pub(super) fn new(rate: &Rate) -> Self {
        Pair { congestion: Congestion::new(rate), users: 0, is_noted: false }
    }
}
