//! The table of states: by number of addition, by what names them, by addresses, by acquire.

use crate::changes::Changes;
use crate::convert;
use crate::serial::Serial;
use crate::settings::Buckets;
use crate::state::{Km, State};
use crate::timers::Timers;
use core::ops::Bound::Included;
use sealane_abi::xfrm::Address;
use sealane_net_ipsec::lifetime::Age;
use sealane_net_ipsec::sa::SaId;
use std::collections::{BTreeMap, BTreeSet};

/// SPI, protocol, family, destination.
type SpiKey = (u32, u8, u16, [u8; 16]);
/// Family, destination, source, reqid.
type AddressKey = (u16, [u8; 16], [u8; 16], u32);

/// The table.
#[derive(Default)]
pub(crate) struct States {
    states: BTreeMap<Serial, Box<State>>,
    by_name: BTreeSet<(SpiKey, Serial)>,
    by_pair: BTreeSet<(AddressKey, Serial)>,
    by_seq: BTreeSet<(u32, Serial)>,
    by_sa: BTreeMap<SaId, Serial>,
    /// The next checks of states that no packet goes through.
    timers: Timers,
    last: Serial,
    /// The number of states without keys yet.
    acquiring: usize,
    /// States with output marks, and a counter of their changes.
    marked: BTreeSet<Serial>,
    mark_changes: u64,
    buckets: Buckets,
    /// The states that have changed since they were recorded last.
    pub(crate) changes: Changes,
}

fn name_of(state: &State) -> SpiKey {
    let (info, id) = (&state.info, &state.info.id);
    (id.spi.get(), id.proto, info.family, convert::key(&id.daddr, info.family))
}

fn pair_of(state: &State) -> AddressKey {
    let info = &state.info;
    (info.family, convert::key(&info.id.daddr, info.family), convert::key(&info.saddr, info.family), info.reqid)
}

impl States {
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// The number of states without keys yet.
    pub(crate) fn acquiring(&self) -> usize {
        self.acquiring
    }

    pub(crate) fn buckets(&self) -> Buckets {
        self.buckets
    }

    /// The states with output marks, the oldest first.
    pub(crate) fn marked(&self) -> impl Iterator<Item = &State> {
        self.marked.iter().filter_map(|serial| self.get(*serial))
    }

    /// Counts changes of [`Self::marked`].
    pub(crate) fn mark_changes(&self) -> u64 {
        self.mark_changes
    }

    /// The newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Serial, &State)> {
        self.states.iter().rev().map(|(serial, state)| (*serial, &**state))
    }

    /// Those from a number on, the oldest first.
    pub(crate) fn since(&self, serial: Serial) -> impl Iterator<Item = (Serial, &State)> {
        self.states.range(serial..).map(|(serial, state)| (*serial, &**state))
    }

    pub(crate) fn get(&self, serial: Serial) -> Option<&State> {
        self.states.get(&serial).map(|state| &**state)
    }

    /// A state to change, except in the properties by which it is found.
    pub(crate) fn get_mut(&mut self, serial: Serial) -> Option<&mut State> {
        self.states.get_mut(&serial).map(|state| &mut **state)
    }

    /// The state of a handle.
    pub(crate) fn of_sa(&self, sa: SaId) -> Option<Serial> {
        self.by_sa.get(&sa).copied()
    }

    /// Adds a state as the newest.
    pub(crate) fn add(&mut self, state: State, now_s: u64) -> Serial {
        self.last += 1;
        let serial = self.last;
        self.put(serial, Box::new(state), now_s);
        self.buckets.added(self.states.len());
        serial
    }

    fn put(&mut self, serial: Serial, mut state: Box<State>, now_s: u64) {
        self.changes.note(serial);
        if state.info.id.spi.get() != 0 {
            self.by_name.insert((name_of(&state), serial));
        }
        self.acquiring += usize::from(state.km == Km::Acquiring);
        if state.set_mark.m != 0 && state.info.id.spi.get() != 0 {
            self.marked.insert(serial);
            self.mark_changes += 1;
        }
        self.by_pair.insert((pair_of(&state), serial));
        if state.info.seq != 0 {
            self.by_seq.insert((state.info.seq, serial));
        }
        match state.sa {
            Some(sa) => {
                state.timer = None;
                self.by_sa.insert(sa, serial);
            }
            None => {
                state.timer = next_look(&state, now_s).map(|at| self.timers.start(at, serial));
            }
        }
        self.states.insert(serial, state);
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, serial: Serial) -> Option<Box<State>> {
        let state = self.states.remove(&serial)?;
        self.changes.note(serial);
        self.by_name.remove(&(name_of(&state), serial));
        self.mark_changes += u64::from(self.marked.remove(&serial));
        self.by_pair.remove(&(pair_of(&state), serial));
        self.by_seq.remove(&(state.info.seq, serial));
        self.acquiring -= usize::from(state.km == Km::Acquiring);
        if let Some(timer) = state.timer {
            self.timers.stop(timer, serial);
        }
        if let Some(sa) = state.sa {
            self.by_sa.remove(&sa);
        }
        Some(state)
    }

    /// Changes a state, including the properties by which it is found.
    pub(crate) fn change(&mut self, serial: Serial, now_s: u64, change: impl FnOnce(&mut State)) {
        if let Some(mut state) = self.remove(serial) {
            change(&mut state);
            self.put(serial, state, now_s);
        }
    }

    /// The newest that is named so (`xfrm_state_lookup`).
    pub(crate) fn find(&self, mark: u32, daddr: &Address, spi: u32, proto: u8, family: u16) -> Option<Serial> {
        if spi == 0 {
            return None;
        }
        let name = (spi, proto, family, convert::key(daddr, family));
        let named = self.by_name.range((Included((name, 0)), Included((name, Serial::MAX)))).rev();
        named.map(|(_, serial)| *serial).find(|s| self.get(*s).is_some_and(|state| state.fits_mark(mark)))
    }

    /// The newest between two addresses with a protocol (`xfrm_state_lookup_byaddr`).
    pub(crate) fn find_between(
        &self,
        mark: u32,
        daddr: &Address,
        saddr: &Address,
        proto: u8,
        family: u16,
    ) -> Option<Serial> {
        let ends = (family, convert::key(daddr, family), convert::key(saddr, family));
        let (least, most) = ((ends.0, ends.1, ends.2, 0), (ends.0, ends.1, ends.2, u32::MAX));
        let all = self.by_pair.range((Included((least, 0)), Included((most, Serial::MAX))));
        let fits = |state: &State| state.info.id.proto == proto && state.fits_mark(mark);
        let fit = all.map(|(_, serial)| *serial).filter(|serial| self.get(*serial).is_some_and(fits));
        fit.max()
    }

    /// Whether an SPI is used with a protocol, whatever the destination (`xfrm_state_lookup_spi_proto`).
    pub(crate) fn is_spi_used(&self, spi: u32, proto: u8) -> bool {
        let least = ((spi, proto, 0, [0; 16]), 0);
        let most = ((spi, proto, u16::MAX, [0xff; 16]), Serial::MAX);
        self.by_name.range((Included(least), Included(most))).next().is_some()
    }

    /// Those between two addresses with a reqid, the newest first.
    pub(crate) fn between(
        &self,
        family: u16,
        daddr: &Address,
        saddr: &Address,
        reqid: u32,
    ) -> impl Iterator<Item = (Serial, &State)> {
        let pair = (family, convert::key(daddr, family), convert::key(saddr, family), reqid);
        let all = self.by_pair.range((Included((pair, 0)), Included((pair, Serial::MAX)))).rev();
        all.filter_map(|(_, serial)| Some((*serial, self.get(*serial)?)))
    }

    /// The states that answer an acquire, the newest first.
    pub(crate) fn of_seq(&self, seq: u32) -> impl Iterator<Item = (Serial, &State)> {
        let all = self.by_seq.range((Included((seq, 0)), Included((seq, Serial::MAX)))).rev();
        all.filter_map(|(_, serial)| Some((*serial, self.get(*serial)?)))
    }

    /// When [`Xfrm::states_timeout`](crate::Xfrm) is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.timers.first_s()
    }

    /// The next that is due.
    pub(crate) fn due(&mut self, now_s: u64) -> Option<Serial> {
        let serial = self.timers.due(now_s)?;
        if let Some(state) = self.get_mut(serial) {
            state.timer = None;
        }
        Some(serial)
    }

    /// Schedules the next check of an entry.
    pub(crate) fn schedule_check(&mut self, serial: Serial, at: u64) {
        if let Some(state) = self.states.get_mut(&serial) {
            state.timer = Some(self.timers.start(at, serial));
        }
    }

    /// Notes that the clock was set, by so many seconds.
    pub(crate) fn clock_was_set(&mut self, by_s: i64) {
        self.timers.clock_was_set(by_s);
    }
}

/// The time of the next check of a state without a handle.
fn next_look(state: &State, now_s: u64) -> Option<u64> {
    let limits = convert::limits(&state.info.lft);
    match limits.time(&convert::usage(&state.info.curlft), state.dying, now_s) {
        (Age::Young, next) => next,
        _ => Some(now_s),
    }
}
