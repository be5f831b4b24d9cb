//! Replay events caused by packets and timers (`xfrm_replay_notify` and `xfrm_replay_timer_handler`).
//!
//! An event is sent when a state's numbers are a threshold ahead of the last event's (`XFRM_AE_CR`), and when a time
//! has passed since the last event, if the numbers have moved by then, or else with the next packet (`XFRM_AE_CE`). As
//! in Linux there are no events without listeners, and then neither packets nor timers cost anything: packets compare
//! their number with the one that [`Sad::watch_numbers`] sets.
//!
//! [`Sad::watch_numbers`]: sealane_net_ipsec::sad::Sad::watch_numbers

use crate::aevents::{Aevents, LastReplayEvent};
use crate::namespace::Xfrm;
use crate::replay::{Replay, numbers};
use crate::reply::Notice;
use crate::serial::Serial;
use crate::state::Km;
use crate::time::{Now, TICKS_S};
use sealane_abi::xfrm::{XFRM_AE_CE, XFRM_AE_CR, XFRM_STATE_ESN, XFRMNLGRP_AEVENTS};

const TICK_NS: u64 = 1_000_000_000 / TICKS_S as u64;
/// No number is as large.
const NEVER: [u64; 2] = [u64::MAX; 2];

impl Xfrm {
    /// Sets the defaults for new states: packets between two replay events (`net.core.xfrm_aevent_rseqth`), and tenths
    /// of a second between two (`net.core.xfrm_aevent_etime`). Existing states keep theirs.
    pub fn set_aevent_defaults(&mut self, thresh: u32, tenths: u32) {
        (self.aevents.thresh, self.aevents.ticks) = (thresh, tenths.wrapping_mul(TICKS_S) / 10);
    }

    /// Whether there are states, of which something could be told.
    #[must_use]
    pub fn has_states(&self) -> bool {
        self.states.len() != 0
    }

    /// Whether anybody listens to [`XFRMNLGRP_AEVENTS`].
    pub fn set_aevent_listeners(&mut self, on: bool, now: Now) {
        if self.aevents.on == on {
            return;
        }
        (self.aevents.on, self.aevents.now_ns) = (on, now.monotonic_ns);
        self.aevents.timers.clear();
        let all: Vec<Serial> = self.states.iter().map(|(serial, _)| serial).collect();
        for serial in all {
            if let Some(state) = self.states.get_mut(serial) {
                state.last_event.due_ns = None;
            }
            self.run_timer(serial);
            self.watch(serial);
        }
    }

    /// A state is new, or another one goes on in it.
    pub(crate) fn restart_events(&mut self, serial: Serial) {
        let now_ns = self.aevents.now_ns;
        if let Some(state) = self.states.get_mut(serial) {
            state.last_event =
                LastReplayEvent { set_ns: now_ns, due_ns: None, late: false, replay: state.last_event.replay.take() };
        }
        if self.aevents.on {
            self.run_timer(serial);
            self.watch(serial);
        }
    }

    /// Lets a timer that was set run where somebody listens; whether it is due by now.
    fn run_timer(&mut self, serial: Serial) {
        let Aevents { on, now_ns, timers, .. } = &mut self.aevents;
        let Some(state) = self.states.get_mut(serial) else { return };
        if !*on || state.replay_ticks == 0 || state.last_event.late {
            return;
        }
        let due = state.last_event.set_ns.saturating_add(u64::from(state.replay_ticks) * TICK_NS);
        if due <= *now_ns {
            state.last_event.late = true;
        } else {
            state.last_event.due_ns = Some(due);
            timers.insert((due, serial));
        }
    }

    /// Sets the numbers from which packets cause an event.
    pub(crate) fn watch(&mut self, serial: Serial) {
        let Some(state) = self.states.get(serial) else { return };
        let from = match &state.last_event {
            _ if !self.aevents.on || state.km != Km::Valid => NEVER,
            LastReplayEvent { late: true, .. } => [0; 2],
            _ if state.replay_thresh == 0 => NEVER,
            LastReplayEvent { replay, .. } => {
                let esn = state.info.flags & XFRM_STATE_ESN != 0;
                let (sent, received) = numbers(replay.as_ref().unwrap_or(state.sequence.said()), esn);
                [sent, received].map(|number| number.saturating_add(state.replay_thresh.into()))
            }
        };
        self.with_sad(serial, |sad, sa| sad.watch_numbers(sa, from));
    }

    /// Handles packets that reached the number to be reported.
    pub(crate) fn numbers_moved(&mut self, serial: Serial, now: Now) -> Option<Notice> {
        let state = self.states.get(serial).filter(|state| self.aevents.on && state.km == Km::Valid)?;
        let moved = self.replay(state);
        let told = state.last_event.replay.as_ref().unwrap_or(state.sequence.said());
        let far = |[moved, told]: [u32; 2]| state.replay_thresh != 0 && moved.wrapping_sub(told) >= state.replay_thresh;
        let flags = if low_halves(&moved, told).into_iter().any(far) {
            XFRM_AE_CR
        } else if state.last_event.late {
            XFRM_AE_CE
        } else {
            self.watch(serial);
            return None;
        };
        self.event_notice(serial, flags, moved, now)
    }

    fn event_notice(&mut self, serial: Serial, flags: u32, moved: Replay, now: Now) -> Option<Notice> {
        let message = self.aevent_message(self.states.get(serial)?, flags);
        let state = self.states.get_mut(serial)?;
        self.aevents.now_ns = now.monotonic_ns;
        self.aevents.forget(serial, &state.last_event);
        let told = &mut state.last_event;
        told.replay = Some(moved);
        if state.replay_ticks != 0 {
            told.late = false;
            (told.set_ns, told.due_ns) = (now.monotonic_ns, None);
            self.run_timer(serial);
        }
        self.watch(serial);
        Some(Notice::new(XFRMNLGRP_AEVENTS, &message, 0, 0))
    }

    /// Handles timers that are due.
    pub(crate) fn aevents_timeout(&mut self, now: Now, notices: &mut Vec<Notice>) {
        while let Some((at, serial)) = self.aevents.timers.first().copied()
            && at <= now.monotonic_ns
        {
            self.aevents.timers.pop_first();
            let Some(state) = self.states.get_mut(serial) else { continue };
            state.last_event.due_ns = None;
            let Some(state) = self.states.get(serial).filter(|state| state.km == Km::Valid) else { continue };
            let moved = self.replay(state);
            if moved == *state.last_event.replay.as_ref().unwrap_or(state.sequence.said()) {
                if let Some(state) = self.states.get_mut(serial) {
                    state.last_event.late = true;
                }
                self.watch(serial);
            } else {
                notices.extend(self.event_notice(serial, XFRM_AE_CE, moved, now));
            }
        }
    }
}

/// The numbers' low halves, received and sent: now, and as they were told.
fn low_halves(moved: &Replay, told: &Replay) -> [[u32; 2]; 2] {
    let of = |replay: &Replay| match replay {
        Replay::Legacy(replay) => [replay.seq, replay.oseq],
        Replay::Esn(replay) => [replay.seq, replay.oseq],
    };
    let (moved, told) = (of(moved), of(told));
    [[moved[0], told[0]], [moved[1], told[1]]]
}
