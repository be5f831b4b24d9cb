//! Promotion to the fast path: counting traffic of the slow path, and the limits above which it is worth a ring.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Traffic is worth it from this many authentic packets in [`WINDOW`] on.
pub const WORTH: u32 = 64;
/// The time for which packets are counted.
pub const WINDOW: Duration = Duration::from_millis(100);
/// The most flows or states that are counted at a time.
pub const MAX_COUNTED: usize = 4096;
/// Traffic with fewer packets than [`WORTH`] for more than this many ticks of a second returns to the slow path.
pub const IDLE_TICKS: u8 = 10;
/// The time for which a device that could not have the fast path is not tried again.
pub const RETRY: Duration = Duration::from_secs(60);
/// Frames of one look at the rings from which on more are expected.
pub const MANY: usize = 8;
/// The age at which a link header is asked for again: routes, neighbours and rules may have changed.
pub const FRESH: Duration = Duration::from_millis(100);
/// The most link headers that are remembered.
pub const MAX_LINKS: usize = 4096;

/// Counts of authentic packets in the current [`WINDOW`], by flow or state.
#[derive(Debug)]
pub struct Counted<W> {
    since: Instant,
    packets: HashMap<W, u32>,
}

impl<W: Eq + Hash> Counted<W> {
    /// Nothing has been counted yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Counted { since: now, packets: HashMap::new() }
    }

    /// Counts a packet. Returns how many there have been in this window; 0 when there is no room to count it.
    pub fn count(&mut self, of: W, now: Instant) -> u32 {
        if now.duration_since(self.since) > WINDOW {
            self.since = now;
            self.packets.clear();
        }
        if self.packets.len() >= MAX_COUNTED && !self.packets.contains_key(&of) {
            return 0;
        }
        let packets = self.packets.entry(of).or_insert(0);
        *packets += 1;
        *packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_counts_anew_and_has_a_bound() {
        let start = Instant::now();
        let mut counted = Counted::new(start);
        assert_eq!([1, 1, 2].map(|of| counted.count(of, start)), [1, 2, 1]);
        assert_eq!(counted.count(1, start + WINDOW + Duration::from_millis(1)), 1);
        for of in 0..MAX_COUNTED as u32 {
            assert!(counted.count(of, start + WINDOW) > 0);
        }
        assert_eq!(counted.count(u32::MAX, start + WINDOW), 0);
        assert_eq!(counted.count(5, start + WINDOW), 2);
    }
}
