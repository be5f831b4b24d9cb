//! The settings and timers of replay events.

use crate::replay::Replay;
use crate::serial::Serial;
use crate::time::TICKS_S;
use std::collections::BTreeSet;

/// The last replay event about a state, and its timer.
#[derive(Clone, Default)]
pub(crate) struct Told {
    /// Its numbers, where they are not those that it was made with.
    pub(crate) replay: Option<Replay>,
    /// When its timer was set, on the monotonic clock.
    pub(crate) set_ns: u64,
    /// When its timer is due, if it runs and somebody listens.
    pub(crate) due_ns: Option<u64>,
    /// Whether it was due and nothing had moved: the next packet tells (`XFRM_TIME_DEFER`).
    pub(crate) late: bool,
}

impl Told {
    /// A key manager has set the numbers and knows them.
    pub(crate) fn said_again(&mut self) {
        self.replay = None;
    }
}

/// The replay events of a namespace.
pub(crate) struct Aevents {
    /// Whether there are listeners (`xfrm_aevent_is_on`).
    pub(crate) on: bool,
    /// Packets between two events where a state does not say (`net.core.xfrm_aevent_rseqth`).
    pub(crate) thresh: u32,
    /// Time between two, in ticks (`net.core.xfrm_aevent_etime`).
    pub(crate) ticks: u32,
    /// The time of the call that is served.
    pub(crate) now_ns: u64,
    pub(crate) timers: BTreeSet<(u64, Serial)>,
}

impl Default for Aevents {
    fn default() -> Self {
        Aevents { on: false, thresh: 2, ticks: TICKS_S, now_ns: 0, timers: BTreeSet::new() }
    }
}

impl Aevents {
    /// When the first timer is due, on the monotonic clock.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(crate) fn forget(&mut self, serial: Serial, told: &Told) {
        if let Some(due) = told.due_ns {
            self.timers.remove(&(due, serial));
        }
    }
}
