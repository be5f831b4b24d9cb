//! The times of outer packets at a constant rate (RFC 9347 sections 2.2.2 and 2.4.1), or at one that the path decides: they depend
//! on nothing that is sent.

/// Missed turns are made up for as far as this, in nanoseconds: a thread is woken late by less. Older ones are never sent, so
/// that no burst follows a pause.
const CATCH_UP_NS: u64 = 10_000_000;

/// The clock of one association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    interval_ns: u64,
    /// When the next one leaves; 0 before the first.
    next_ns: u64,
    /// Missed turns are made up for as far as this.
    catch_up_ns: u64,
}

impl Pace {
    /// One whose first packet leaves at once, and each other `interval_ns` behind the one before.
    #[must_use]
    pub fn new(interval_ns: u64) -> Self {
        Pace { interval_ns: interval_ns.max(1), next_ns: 0, catch_up_ns: CATCH_UP_NS }
    }

    /// When the next packet leaves; 0 for at once.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.next_ns
    }

    /// Changes the interval from the turn that is taken next to the one behind it, at a rate that follows congestion: no burst is
    /// longer than the packets of an RTT (RFC 5348 section 4.6).
    pub fn set_interval(&mut self, interval_ns: u64, rtt_ns: u64) {
        self.interval_ns = interval_ns.max(1);
        // The packet of now is one of them.
        self.catch_up_ns = CATCH_UP_NS.min(rtt_ns.saturating_sub(self.interval_ns));
    }

    /// Takes the turn of a packet. Returns whether one is due. Turns that were missed keep their places, or are left out: the times
    /// of all packets are those of the first one and whole intervals.
    pub fn take(&mut self, now_ns: u64) -> bool {
        if self.next_ns > now_ns {
            return false;
        }
        if self.next_ns == 0 {
            self.next_ns = now_ns;
        }
        let missed = (now_ns - self.next_ns) / self.interval_ns;
        let left_out = missed.saturating_sub(self.catch_up_ns / self.interval_ns);
        self.next_ns = self.next_ns.saturating_add((left_out + 1).saturating_mul(self.interval_ns));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The number of packets that leave at this time.
    fn leave(pace: &mut Pace, now_ns: u64) -> usize {
        (0..100_000).take_while(|_| pace.take(now_ns)).count()
    }

    #[test]
    fn times_do_not_drift() {
        let mut pace = Pace::new(3 * MS);
        assert_eq!((pace.due_ns(), leave(&mut pace, 1000)), (0, 1));
        // Whoever takes turns is late, each time by something else.
        let mut all = 0;
        for turn in 1..=10_000 {
            let due_ns = 1000 + turn * 3 * MS;
            assert_eq!(pace.due_ns(), due_ns);
            assert_eq!(leave(&mut pace, due_ns - 1), 0);
            all += leave(&mut pace, due_ns + turn * 7919 % (3 * MS));
        }
        assert_eq!(all, 10_000);
    }

    #[test]
    fn turns_that_come_faster_than_anybody_wakes() {
        let mut pace = Pace::new(50_000);
        assert_eq!(leave(&mut pace, MS), 1);
        let all: usize = (2..=1001).map(|ms| leave(&mut pace, ms * MS)).sum();
        assert_eq!(all, 20_000);
    }

    #[test]
    fn an_interval_that_changes() {
        let mut pace = Pace::new(10 * MS);
        assert_eq!(leave(&mut pace, MS), 1);
        pace.set_interval(100 * MS, 1000 * MS);
        assert_eq!((pace.due_ns(), leave(&mut pace, 11 * MS)), (11 * MS, 1));
        pace.set_interval(MS, 1000 * MS);
        assert_eq!((leave(&mut pace, 110 * MS), leave(&mut pace, 113 * MS)), (0, 3));
        assert_eq!(pace.due_ns(), 114 * MS);
        // The packets of an RTT make the longest burst.
        pace.set_interval(MS, 3 * MS);
        assert_eq!((leave(&mut pace, 150 * MS), pace.due_ns()), (3, 151 * MS));
        pace.set_interval(MS, 0);
        assert_eq!((leave(&mut pace, 190 * MS), pace.due_ns()), (1, 191 * MS));
    }

    #[test]
    fn no_burst_follows_a_pause() {
        let mut pace = Pace::new(MS);
        assert_eq!(leave(&mut pace, MS), 1);
        assert_eq!(leave(&mut pace, 5 * MS), 4, "late by less than the limit");
        assert_eq!(leave(&mut pace, 3_600_000 * MS + 7), 11, "the last ten, and that of now");
        assert_eq!(pace.due_ns(), 3_600_001 * MS, "in step with the first");
        // Where an interval is longer than the limit nothing is made up for.
        let mut slow = Pace::new(100 * MS);
        assert_eq!((leave(&mut slow, MS), leave(&mut slow, 951 * MS)), (1, 1));
        assert_eq!(slow.due_ns(), 1001 * MS);
    }
}
