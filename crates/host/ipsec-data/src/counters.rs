//! Counters of the data path, beside those of the engine.

use sealane_abi::admin::ipsec;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of a data path, beside those of the engine.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Packets that the kernel accepted for the wire.
    pub(crate) sent: AtomicU64,
    /// The packets among them that went past the stack.
    pub(crate) fast_out: AtomicU64,
    /// Packets that came past the stack, and were authentic.
    pub(crate) fast_in: AtomicU64,
    /// Packets that did not fit into a ring.
    pub(crate) ring_drops: AtomicU64,
    /// Packets that the kernel refused.
    pub(crate) refused: AtomicU64,
    /// Packets that left unencrypted, as policies allow.
    pub(crate) clear: AtomicU64,
    /// Frames of the stack that are no packets.
    pub(crate) malformed: AtomicU64,
    /// Opened packets or superframes that the stack refused.
    pub(crate) refused_in: AtomicU64,
    /// The number of times that a worker waited for the tables.
    pub(crate) lock_waits: AtomicU64,
    /// Packets without a policy that rules of a former daemon cover.
    pub(crate) held: AtomicU64,
    /// The number of times that IKE came to our socket of a port, and was steered to the key manager's again.
    pub(crate) port_swaps: AtomicU64,
}

impl Counters {
    /// The counters as the status shows them.
    pub(crate) fn status(&self) -> ipsec::Path {
        let value = |counter: &AtomicU64| counter.load(Relaxed);
        ipsec::Path {
            sent: value(&self.sent),
            sent_past_stack: value(&self.fast_out),
            not_sent: value(&self.refused),
            received_past_stack: value(&self.fast_in),
            ring_full: value(&self.ring_drops),
            not_given_to_stack: value(&self.refused_in),
            clear: value(&self.clear),
            held: value(&self.held),
            malformed: value(&self.malformed),
            tables_waited_for: value(&self.lock_waits),
            port_swaps: value(&self.port_swaps),
        }
    }
}
