//! The order of a connection that changes from the queue to the ring of its device.

use sealane_packets::nfqueue::MAX_WAITING;

/// Packets of the queue that may be older than what is in the rings, which wait for them. What comes behind them does not
/// count: under a flood the queue is never empty.
#[derive(Debug, Default)]
pub(super) struct OlderPackets(u32);

impl OlderPackets {
    /// Notes that a connection has got the fast path: as many packets may wait as there can be.
    pub(super) fn promoted(&mut self) {
        self.0 = MAX_WAITING;
    }

    /// Notes a batch of so many packets from the queue, and whether the queue was empty then.
    pub(super) fn read(&mut self, count: usize, is_drained: bool) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.0 = if is_drained { 0 } else { self.0.saturating_sub(count) };
    }

    /// Whether the rings may be judged.
    pub(super) fn are_read(&self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_packets::nfqueue::BATCH;

    /// The number of batches that are read before the rings are judged.
    fn before_the_rings(older: &mut OlderPackets, batches: impl Iterator<Item = (usize, bool)>) -> usize {
        batches
            .take_while(|(count, is_drained)| {
                !older.are_read() && {
                    older.read(*count, *is_drained);
                    true
                }
            })
            .count()
    }

    #[test]
    fn a_flood_of_the_queue_keeps_the_rings_waiting_for_what_was_before() {
        let (mut older, full) = (OlderPackets::default(), (BATCH, false));
        assert_eq!(before_the_rings(&mut older, core::iter::repeat(full)), 0);
        older.promoted();
        assert_eq!(before_the_rings(&mut older, core::iter::repeat(full)), MAX_WAITING as usize / BATCH);
        older.promoted();
        assert_eq!(before_the_rings(&mut older, core::iter::repeat((1, false))), MAX_WAITING as usize, "few at a time");
        older.promoted();
        assert_eq!(before_the_rings(&mut older, [full, (1, false), (BATCH - 1, true), full].into_iter()), 3);
        older.promoted();
        assert_eq!(before_the_rings(&mut older, [(0, true)].into_iter()), 1);
    }
}
