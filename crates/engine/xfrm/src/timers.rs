//! Timers in seconds of wall time, which go on as they were when somebody sets the clock.

use crate::serial::Serial;
use crate::time::Now;
use sealane_net_ipsec::lifetime::WallClock;
use std::collections::BTreeSet;

/// Entries by the time of their next check.
#[derive(Default)]
pub(crate) struct Timers {
    clock: WallClock,
    entries: BTreeSet<(u64, Serial)>,
}

/// A timer that runs. It is the time of the check by a clock that nobody sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timer(u64);

impl Timers {
    /// Starts a timer.
    pub(crate) fn start(&mut self, at_s: u64, serial: Serial) -> Timer {
        let timer = Timer(self.clock.unset(at_s));
        self.entries.insert((timer.0, serial));
        timer
    }

    /// Stops a timer.
    pub(crate) fn stop(&mut self, timer: Timer, serial: Serial) {
        self.entries.remove(&(timer.0, serial));
    }

    /// The time of the first check.
    pub(crate) fn first_s(&self) -> Option<u64> {
        self.entries.first().map(|(at, _)| self.clock.wall_s(*at))
    }

    /// Takes the next entry that is due.
    pub(crate) fn due(&mut self, now_s: u64) -> Option<Serial> {
        self.first_s().filter(|at| *at <= now_s)?;
        self.entries.pop_first().map(|(_, serial)| serial)
    }

    /// Notes that the clock was set, by so many seconds.
    pub(crate) fn clock_was_set(&mut self, by_s: i64) {
        self.clock.was_set(by_s);
    }
}

/// Notices when somebody sets the clock.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    /// Wall time without the time that has passed, in seconds.
    epoch_s: Option<i64>,
}

impl ClockWatch {
    /// By how many seconds the clock was set since the last call.
    pub(crate) fn was_set(&mut self, now: Now) -> Option<i64> {
        let epoch_s = now.wall_s.cast_signed() - (now.monotonic_ns / 1_000_000_000).cast_signed();
        let by_s = epoch_s - *self.epoch_s.get_or_insert(epoch_s);
        // Both clocks are rounded, and a second of wall time may begin a tick late.
        (by_s.abs() > 2).then(|| {
            self.epoch_s = Some(epoch_s);
            by_s
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(passed_ms: u64, wall_s: u64) -> Now {
        Now { monotonic_ns: passed_ms * 1_000_000, wall_s }
    }

    #[test]
    fn only_time_that_passes_counts() {
        let mut timers = Timers::default();
        let first = timers.start(1010, 1);
        timers.start(1020, 2);
        timers.clock_was_set(5000);
        assert_eq!((timers.first_s(), timers.due(6009)), (Some(6010), None));
        timers.start(6015, 3);
        timers.clock_was_set(-5500);
        assert_eq!(timers.first_s(), Some(510));
        timers.stop(first, 1);
        assert_eq!(
            (timers.due(514), timers.due(515), timers.due(520), timers.due(u64::MAX)),
            (None, Some(3), Some(2), None)
        );
    }

    #[test]
    fn a_clock_that_is_set_is_noticed() {
        let mut watch = ClockWatch::default();
        assert_eq!(watch.was_set(at(500, 1000)), None, "the first look");
        assert_eq!(watch.was_set(at(1_100, 1000)), None, "one of them has begun a second");
        assert_eq!(watch.was_set(at(60_000, 1060)), None);
        assert_eq!(watch.was_set(at(60_000, 1058)), None, "the other has begun one, and this one is late");
        assert_eq!(watch.was_set(at(61_000, 4661)), Some(3600));
        assert_eq!(watch.was_set(at(62_000, 4662)), None);
        assert_eq!(watch.was_set(at(63_000, 63)), Some(-4600));
        // A clock that goes wrong all the time.
        let told: i64 = (64..164).filter_map(|s| watch.was_set(at(s * 1000, s + (s - 63) / 10))).sum();
        assert!((8..=10).contains(&told), "{told}");
    }
}
