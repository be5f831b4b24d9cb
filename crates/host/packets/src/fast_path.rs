//! Decisions about a fast path past the stack, shared by TCP-AO and IPsec: which flows earn it, when they lose it, and
//! how long a learnt link header is used.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A flow earns the fast path by this many authentic packets within [`WINDOW`].
pub const WORTH: u32 = 64;
/// Counting starts again after this time.
pub const WINDOW: Duration = Duration::from_millis(100);
/// Owners of a fast path look at its flows and devices at this interval.
pub const TICK: Duration = Duration::from_secs(1);
/// A flow with fewer than [`WORTH`] packets a tick loses the fast path after this many ticks in a row.
pub const IDLE_TICKS: u8 = 10;
/// A flow or device that could not have the fast path is not tried again for this long.
pub const RETRY: Duration = Duration::from_secs(60);
/// A learnt link header is used for this long. Then the stack is asked again: its routes, neighbours and rules may have
/// changed.
pub const FRESH: Duration = Duration::from_millis(100);
/// After this many packets in one look at a ring more are expected.
pub const MANY: usize = 8;
/// The most learnt link headers that one owner keeps.
pub const MAX_LINKS: usize = 4096;

/// The most flows counted within one window.
const MAX_COUNTED: usize = 4096;

/// Counts packets of flows, to find those that earn the fast path.
#[derive(Debug)]
pub struct Demand<K> {
    window: Duration,
    packets: HashMap<K, u32>,
    since: Instant,
}

impl<K: Eq + Hash> Demand<K> {
    /// Starts without any flows. Counting starts again after `window`, such as [`WINDOW`].
    #[must_use]
    pub fn new(window: Duration, now: Instant) -> Self {
        Demand { window, packets: HashMap::new(), since: now }
    }

    /// Counts an authentic packet. Returns true for every [`WORTH`]th packet of a flow within one window.
    pub fn count(&mut self, flow: K, now: Instant) -> bool {
        if now.duration_since(self.since) > self.window {
            self.since = now;
            self.packets.clear();
        }
        if self.packets.len() >= MAX_COUNTED && !self.packets.contains_key(&flow) {
            return false;
        }
        let packets = self.packets.entry(flow).or_insert(0);
        *packets += 1;
        packets.is_multiple_of(WORTH)
    }
}

/// The number of consecutive ticks in which a flow had too few packets.
#[derive(Debug, Default, Clone, Copy)]
pub struct Idle(u8);

impl Idle {
    /// Takes the packets of the last tick into account. Returns whether the flow has been idle for too long.
    pub fn tick(&mut self, packets: u32) -> bool {
        self.0 = if packets < WORTH { self.0.saturating_add(1) } else { 0 };
        self.0 > IDLE_TICKS
    }
}

/// Flows or devices that could not have the fast path, each with a reason, until [`RETRY`] has passed.
#[derive(Debug)]
pub struct Barred<K, R = ()>(HashMap<K, (R, Instant)>);

impl<K, R> Default for Barred<K, R> {
    fn default() -> Self {
        Barred(HashMap::new())
    }
}

impl<K: Eq + Hash, R> Barred<K, R> {
    /// Bars a flow or device from now on.
    pub fn insert(&mut self, key: K, reason: R, now: Instant) {
        self.0.insert(key, (reason, now));
    }

    /// Whether a flow or device is barred.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Forgets those whose time has passed.
    pub fn expire(&mut self, now: Instant) {
        self.0.retain(|_, (_, since)| now.duration_since(*since) < RETRY);
    }

    /// The barred flows or devices, each with its reason.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &R)> {
        self.0.iter().map(|(key, (reason, _))| (key, reason))
    }
}

/// The link header of a flow, learnt from a packet that went through the stack.
///
/// `F` is the front of a packet: the part that the stack must leave unchanged for its link header to be valid for the
/// following packets. `H` is the header, with the device if that is not known otherwise.
#[derive(Debug, Clone, Copy)]
pub struct LearntLink<F, H> {
    since: Instant,
    asked: Option<F>,
    header: Option<H>,
}

impl<F: PartialEq, H> LearntLink<F, H> {
    /// Starts without a header. `asked` is the front of a packet that is being sent through the stack right now.
    #[must_use]
    pub fn new(asked: Option<F>, now: Instant) -> Self {
        LearntLink { since: now, asked, header: None }
    }

    /// Whether the header is too old to be used; [`Self::new`] then replaces it.
    #[must_use]
    pub fn is_stale(&self, now: Instant) -> bool {
        now.duration_since(self.since) > FRESH
    }

    /// The time at which this was created.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// The header, once learnt.
    #[must_use]
    pub fn header(&self) -> Option<&H> {
        self.header.as_ref()
    }

    /// Whether the packet with this front is the one that was sent through the stack, unchanged. If rules translate or
    /// mark packets, every packet must pass them.
    #[must_use]
    pub fn is_answered_by(&self, front: &F) -> bool {
        self.asked.as_ref() == Some(front)
    }

    /// Stores the header of a packet that [`Self::is_answered_by`] confirmed.
    pub fn learn(&mut self, header: H) {
        self.header = Some(header);
    }

    /// Forgets the header: the device may be gone or its MTU smaller. The stack is asked again once this is stale.
    pub fn forget(&mut self) {
        self.header = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_told_at_every_multiple_within_a_window() {
        let start = Instant::now();
        let mut demand = Demand::new(WINDOW, start);
        let told = (0..3 * WORTH).filter(|_| demand.count(7, start)).count();
        assert_eq!(told, 3);
        assert!((1..WORTH).all(|_| !demand.count(8, start)));
        let later = start + WINDOW + Duration::from_nanos(1);
        assert!((1..WORTH).all(|_| !demand.count(8, later)), "the window before does not count");
        assert!(demand.count(8, later));
        let mut demand = Demand::new(WINDOW, start);
        (0..MAX_COUNTED).for_each(|flow| assert!(!demand.count(flow, start)));
        assert!((0..WORTH).all(|_| !demand.count(MAX_COUNTED, start)), "there are too many flows");
    }

    #[test]
    fn a_flow_is_idle_after_some_ticks_in_a_row() {
        let mut idle = Idle::default();
        assert!((0..IDLE_TICKS).all(|_| !idle.tick(WORTH - 1)));
        assert!(!idle.tick(WORTH));
        assert!((0..IDLE_TICKS).all(|_| !idle.tick(0)));
        assert!(idle.tick(0));
    }

    #[test]
    fn what_is_barred_comes_back() {
        let (start, mut barred) = (Instant::now(), Barred::default());
        barred.insert(7, "no Ethernet", start);
        barred.expire(start + RETRY / 2);
        assert_eq!(barred.iter().collect::<Vec<_>>(), [(&7, &"no Ethernet")]);
        barred.expire(start + RETRY);
        assert!(!barred.contains(&7));
    }

    #[test]
    fn a_link_header_is_learnt_from_the_packet_asked_with() {
        let start = Instant::now();
        let mut link = LearntLink::new(Some(1), start);
        assert!(link.is_answered_by(&1) && !link.is_answered_by(&2) && link.header().is_none());
        link.learn([9; 14]);
        assert_eq!(link.header(), Some(&[9; 14]));
        assert!(!link.is_stale(start + FRESH) && link.is_stale(start + 2 * FRESH));
        link.forget();
        assert!(link.header().is_none());
        assert!(!LearntLink::<u8, ()>::new(None, start).is_answered_by(&1));
    }
}
