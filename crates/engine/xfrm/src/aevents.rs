//! The settings and timers of replay events.

use crate::replay::Replay;
use crate::serial::Serial;
use crate::time::TICKS_S;
use std::collections::BTreeSet;

/// The last replay event about a state, and its timer.
#[derive(Clone, Default)]
pub(crate) struct LastReplayEvent {
    /// The numbers of the last event; `None` if they are those that the state was made with.
    pub(crate) replay: Option<Replay>,
    /// The time at which the timer was set, on the monotonic clock.
    pub(crate) set_ns: u64,
    /// The time at which the timer is due, if it runs and somebody listens.
    pub(crate) due_ns: Option<u64>,
    /// Whether the timer was due and no number had changed, so that the next packet causes the event
    /// (`XFRM_TIME_DEFER`).
    pub(crate) late: bool,
}

impl LastReplayEvent {
    /// Forgets the numbers of the last event, because a key manager has set the numbers and knows them.
    pub(crate) fn forget_numbers(&mut self) {
        self.replay = None;
    }
}

/// The replay events of a namespace.
pub(crate) struct Aevents {
    /// Whether there are listeners (`xfrm_aevent_is_on`).
    pub(crate) on: bool,
    /// The default number of packets between two events of a state (`net.core.xfrm_aevent_rseqth`).
    pub(crate) thresh: u32,
    /// The default time between two events of a state, in ticks (`net.core.xfrm_aevent_etime`).
    pub(crate) ticks: u32,
    /// The time of the current call, on the monotonic clock.
    pub(crate) now_ns: u64,
    pub(crate) timers: BTreeSet<(u64, Serial)>,
}

impl Default for Aevents {
    fn default() -> Self {
        Aevents { on: false, thresh: 2, ticks: TICKS_S, now_ns: 0, timers: BTreeSet::new() }
    }
}

impl Aevents {
    /// The time at which the first timer is due, on the monotonic clock.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(crate) fn forget(&mut self, serial: Serial, told: &LastReplayEvent) {
        if let Some(due) = told.due_ns {
            self.timers.remove(&(due, serial));
        }
    }
}
