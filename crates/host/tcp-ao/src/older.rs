//! The order of a connection that changes from the queue to the ring of its device.

use sealane_sys::nfqueue::{BATCH, MAX_WAITING};

/// Batches of the queue that may be older than what is in the rings, which wait for them. What comes behind them does not
/// count: under a flood the queue is never empty.
#[derive(Debug, Default)]
pub(super) struct OlderBatches(u32);

impl OlderBatches {
    /// The most batches that can have waited when a connection got the fast path.
    pub(super) const MOST: u32 = MAX_WAITING / BATCH as u32;

    /// Notes that a connection has got the fast path.
    pub(super) fn promoted(&mut self) {
        self.0 = Self::MOST;
    }

    /// Notes a batch of so many packets from the queue; it is empty after one that is not full.
    pub(super) fn read(&mut self, count: usize) {
        self.0 = if count < BATCH { 0 } else { self.0.saturating_sub(1) };
    }

    /// Whether the rings may be judged.
    pub(super) fn are_read(&self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of batches that are read before the rings are judged.
    fn before_the_rings(older: &mut OlderBatches, counts: impl Iterator<Item = usize>) -> usize {
        counts
            .take_while(|count| {
                !older.are_read() && {
                    older.read(*count);
                    true
                }
            })
            .count()
    }

    #[test]
    fn a_flood_of_the_queue_keeps_the_rings_waiting_for_what_was_before() {
        let mut older = OlderBatches::default();
        assert_eq!(before_the_rings(&mut older, core::iter::repeat(BATCH)), 0);
        older.promoted();
        assert_eq!(before_the_rings(&mut older, core::iter::repeat(BATCH)), MAX_WAITING as usize / BATCH);
        older.promoted();
        assert_eq!(before_the_rings(&mut older, [BATCH, BATCH, BATCH - 1, BATCH].into_iter()), 3);
        older.promoted();
        assert_eq!(before_the_rings(&mut older, [0].into_iter()), 1);
    }
}
