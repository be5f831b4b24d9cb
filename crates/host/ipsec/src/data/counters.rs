//! Counters of the data path, beside those of the engine.

use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of a data path, beside those of the engine.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Packets that the kernel accepted for the wire.
    pub(crate) sent: AtomicU64,
    /// Those of them that went past the stack.
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
}

impl Counters {
    /// One line for each, with a name and a number.
    pub(crate) fn describe(&self) -> String {
        let all = [
            ("sent", &self.sent),
            ("sent_past_stack", &self.fast_out),
            ("not_sent", &self.refused),
            ("received_past_stack", &self.fast_in),
            ("ring_full", &self.ring_drops),
            ("not_given_to_stack", &self.refused_in),
            ("clear", &self.clear),
            ("held", &self.held),
            ("malformed", &self.malformed),
            ("tables_waited_for", &self.lock_waits),
        ];
        let mut text = String::new();
        for (name, counter) in all {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name} {}", counter.load(Relaxed));
        }
        text
    }
}
