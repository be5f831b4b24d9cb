//! Which key of a chain is used when: pure functions of the chain and the time of day.
//!
//! RFC 8177 gives each key a window for sending and one for accepting. The one that is sent with is the one whose send
//! window began last; among equals, the one listed last. Keys are installed while they are accepted, so that changing
//! over loses nothing: both ends accept the new key before either sends with it, and the old one until both have stopped.
//!
//! Both directions change over as RFC 5925, section 6.1 has it: when a new key's time has come we ask for it (rnext),
//! the peer follows at once, and we follow the peer's asking. Only when a key's send window ends do we leave it unasked.

use super::keys::{KeyChain, WhenExpired};
use super::time::Window;

/// What a connection has of a chain at a moment: indices into [`KeyChain::keys`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed {
    /// The keys that it has, in any order.
    pub keys: Vec<usize>,
    /// The key that it sends with. `None`: it must not send.
    pub current: Option<usize>,
    /// The key that it asks the peer to send with.
    pub rnext: Option<usize>,
}

/// One change to a connection's keys. Changes are to be made in the order given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Install a key.
    Add(usize),
    /// Ask the peer to send with this key. `None`: there is none left to ask for.
    SetRnext(Option<usize>),
    /// Send with this key from now on. `None`: send nothing.
    SetCurrent(Option<usize>),
    /// Remove a key, which is neither current nor rnext any more.
    Delete(usize),
}

impl Installed {
    /// Makes one change.
    pub fn apply(&mut self, step: Step) {
        match step {
            Step::Add(key) => self.keys.push(key),
            Step::SetRnext(key) => self.rnext = key,
            Step::SetCurrent(key) => self.current = key,
            Step::Delete(key) => self.keys.retain(|&k| k != key),
        }
    }
}

impl KeyChain {
    /// The key to send with at `now_s` when nothing was agreed on before. `None`: nothing may be sent.
    #[must_use]
    pub fn preferred(&self, now_s: i64) -> Option<usize> {
        let latest = |(i, w): &(usize, Window)| (w.start_s, *i);
        let windows = self.keys.iter().map(|k| k.send).enumerate();
        windows.clone().filter(|(_, w)| w.contains(now_s)).max_by_key(latest).map(|(i, _)| i).or_else(|| {
            // The last key never expires, for those who rather keep their sessions (as OSPF does, RFC 2328, D.3).
            let ended = windows.filter(|(_, w)| w.end_s <= now_s);
            ended
                .max_by_key(|(i, w)| (w.end_s, w.start_s, *i))
                .map(|(i, _)| i)
                .filter(|_| self.when_expired == WhenExpired::KeepLast)
        })
    }

    /// Whether segments signed with this key are accepted at `now_s`. Exactly then it is installed.
    #[must_use]
    pub fn accepts(&self, key: usize, now_s: i64) -> bool {
        self.keys[key].accept.contains(now_s) || self.preferred(now_s) == Some(key)
    }

    /// The keys that are accepted at `now_s`, in the order of the chain.
    #[must_use]
    pub fn accepted(&self, now_s: i64) -> Vec<usize> {
        let preferred = self.preferred(now_s);
        (0..self.keys.len()).filter(|&k| self.keys[k].accept.contains(now_s) || preferred == Some(k)).collect()
    }

    /// The next moment at which any answer of this chain changes. `None`: never again.
    #[must_use]
    pub fn next_change_s(&self, now_s: i64) -> Option<i64> {
        let edges = self.keys.iter().flat_map(|k| [k.send.start_s, k.send.end_s, k.accept.start_s, k.accept.end_s]);
        edges.filter(|&t| t > now_s && t != i64::MAX).min()
    }

    /// Times between the first key's start and the last key's end with no key to send with.
    #[must_use]
    pub fn gaps(&self) -> Vec<Window> {
        let mut windows: Vec<Window> = self.keys.iter().map(|k| k.send).collect();
        windows.sort_by_key(|w| w.start_s);
        let mut covered_to = match windows.first() {
            Some(first) => first.end_s,
            None => return Vec::new(),
        };
        let mut gaps = Vec::new();
        for window in &windows[1..] {
            if window.start_s > covered_to {
                gaps.push(Window { start_s: covered_to, end_s: window.start_s });
            }
            covered_to = covered_to.max(window.end_s);
        }
        gaps
    }

    /// The moment from which on there is no key to send with. `None`: never.
    #[must_use]
    pub fn end_s(&self) -> Option<i64> {
        self.keys.iter().map(|k| k.send.end_s).max().filter(|&end| end != i64::MAX)
    }

    /// What has to be done to a connection at `now_s`. Nothing, when it is as it should be.
    ///
    /// Keys may take over the ids of keys that are gone: such a key is added by a further round, so whoever applies the
    /// steps asks again until there are none (three rounds at most).
    #[must_use]
    pub fn plan(&self, have: &Installed, now_s: i64) -> Vec<Step> {
        let accepted = self.accepted(now_s);
        let mut steps = Vec::new();
        let mut after = have.clone();
        let mut push = |after: &mut Installed, step| {
            after.apply(step);
            steps.push(step);
        };
        for &key in accepted.iter().filter(|k| !have.keys.contains(k)) {
            let (send_id, recv_id) = (self.keys[key].send_id, self.keys[key].recv_id);
            if !after.keys.iter().any(|&k| self.keys[k].send_id == send_id || self.keys[k].recv_id == recv_id) {
                push(&mut after, Step::Add(key));
            }
        }
        let usable = |after: &Installed, key: usize| after.keys.contains(&key) && accepted.contains(&key);
        let preferred = self.preferred(now_s).filter(|&k| usable(&after, k));
        if after.rnext != preferred {
            push(&mut after, Step::SetRnext(preferred));
        }
        // The current key may be another than the preferred one as long as its time is not over: the peer decides.
        let keeps = after.current.is_some_and(|k| usable(&after, k) && self.may_send(k, now_s));
        if !keeps && after.current != preferred {
            push(&mut after, Step::SetCurrent(preferred));
        }
        for &key in have.keys.iter().filter(|k| !accepted.contains(k)) {
            push(&mut after, Step::Delete(key));
        }
        steps
    }

    /// Whether the peer may have us send with this key at `now_s`: its send window has not ended. A peer whose clock is
    /// ahead of ours may ask for a key before our own window begins; by then we accept it, so we follow.
    fn may_send(&self, key: usize, now_s: i64) -> bool {
        let send = self.keys[key].send;
        now_s < send.end_s || send.end_s == i64::MAX || self.preferred(now_s) == Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::tests::{chain, key};

    const DAY: i64 = 86_400;

    /// Three keys of 30 days; each begins 2 days before the one before it ends. Accepted an hour longer at both ends.
    fn rolling() -> KeyChain {
        let window = |n: i64| Window { start_s: n * 28 * DAY, end_s: (n * 28 + 30) * DAY };
        chain((0..3u8).map(|n| key(n, window(n.into()), window(n.into()).widened(3600))).collect())
    }

    fn settle(chain: &KeyChain, state: &mut Installed, now_s: i64) -> Vec<Step> {
        let mut all = Vec::new();
        for round in 0.. {
            assert!(round < 4, "{state:?} at {now_s} does not settle: {all:?}");
            let steps = chain.plan(state, now_s);
            if steps.is_empty() {
                return all;
            }
            for step in steps {
                state.apply(step);
                all.push(step);
            }
        }
        unreachable!()
    }

    #[test]
    fn the_latest_start_is_preferred() {
        let chain = rolling();
        assert_eq!(chain.preferred(-1), None);
        assert_eq!(chain.preferred(0), Some(0));
        assert_eq!(chain.preferred(28 * DAY - 1), Some(0));
        assert_eq!(chain.preferred(28 * DAY), Some(1));
        assert_eq!(chain.preferred(86 * DAY - 1), Some(2));
        assert_eq!(chain.preferred(86 * DAY), None);
        assert_eq!(chain.accepted(-3600), [0]);
        assert_eq!(chain.accepted(-3601), [0; 0]);
        assert_eq!(chain.accepted(28 * DAY - 3600), [0, 1]);
        assert_eq!(chain.accepted(30 * DAY + 3599), [0, 1]);
        assert_eq!(chain.accepted(30 * DAY + 3600), [1]);
        assert_eq!(chain.next_change_s(-1), Some(0));
        assert_eq!(chain.next_change_s(0), Some(28 * DAY - 3600));
        assert_eq!(chain.next_change_s(200 * DAY), None);
        assert_eq!((chain.gaps(), chain.end_s()), (vec![], Some(86 * DAY)));
    }

    #[test]
    fn among_equals_the_last_is_preferred() {
        let chain = chain(vec![key(1, Window::ALWAYS, Window::ALWAYS), key(2, Window::ALWAYS, Window::ALWAYS)]);
        assert_eq!(chain.preferred(0), Some(1));
        assert_eq!(chain.next_change_s(0), None);
        assert_eq!(chain.end_s(), None);
    }

    #[test]
    fn a_rollover_adds_first_and_deletes_last() {
        let chain = rolling();
        let mut state = Installed::default();
        assert_eq!(
            settle(&chain, &mut state, 0),
            [Step::Add(0), Step::SetRnext(Some(0)), Step::SetCurrent(Some(0))],
            "a new connection"
        );
        assert_eq!(settle(&chain, &mut state, 28 * DAY - 3600), [Step::Add(1)], "accepted before it is used");
        assert_eq!(settle(&chain, &mut state, 28 * DAY), [Step::SetRnext(Some(1))], "asked for; current stays");
        assert_eq!(state.current, Some(0));
        // The peer follows, and asks for it itself.
        state.current = Some(1);
        assert_eq!(settle(&chain, &mut state, 29 * DAY), []);
        assert_eq!(settle(&chain, &mut state, 30 * DAY + 3600), [Step::Delete(0)]);
    }

    #[test]
    fn a_peer_that_asks_for_nothing_is_left_behind_at_the_end() {
        let chain = rolling();
        let mut state = Installed { keys: vec![0, 1], current: Some(0), rnext: Some(1) };
        assert_eq!(settle(&chain, &mut state, 30 * DAY - 1), []);
        assert_eq!(settle(&chain, &mut state, 30 * DAY), [Step::SetCurrent(Some(1))]);
    }

    #[test]
    fn a_peer_with_a_fast_clock_is_followed() {
        let chain = rolling();
        let mut state = Installed { keys: vec![0, 1], current: Some(1), rnext: Some(0) };
        assert_eq!(settle(&chain, &mut state, 28 * DAY - 60), []);
    }

    #[test]
    fn after_the_last_key_nothing_is_sent_or_the_last_key_goes_on() {
        let mut chain = rolling();
        let mut state = Installed { keys: vec![2], current: Some(2), rnext: Some(2) };
        let mut kept = state.clone();
        assert_eq!(settle(&chain, &mut state, 86 * DAY), [Step::SetRnext(None), Step::SetCurrent(None)]);
        assert_eq!(settle(&chain, &mut state, 87 * DAY), [Step::Delete(2)]);
        chain.when_expired = WhenExpired::KeepLast;
        assert_eq!(settle(&chain, &mut kept, 1000 * DAY), []);
        assert_eq!(chain.accepted(1000 * DAY), [2]);
        assert_eq!(chain.preferred(-DAY), None, "a key that has not begun is not the last one");
    }

    #[test]
    fn ids_are_taken_over_from_keys_that_are_gone() {
        let early = Window { start_s: 0, end_s: 100 };
        let late = Window { start_s: 100, end_s: 200 };
        let chain = chain(vec![key(7, early, early), key(7, late, late)]);
        let mut state = Installed { keys: vec![0], current: Some(0), rnext: Some(0) };
        settle(&chain, &mut state, 100);
        assert_eq!(state, Installed { keys: vec![1], current: Some(1), rnext: Some(1) });
    }

    #[test]
    fn gaps_are_found() {
        let window = |start_s, end_s| Window { start_s, end_s };
        let keys = [window(0, 10), window(5, 20), window(30, 40), window(31, 32), window(50, i64::MAX)];
        let chain = chain(keys.iter().zip(0..).map(|(&w, id)| key(id, w, w)).collect());
        assert_eq!(chain.gaps(), [window(20, 30), window(40, 50)]);
    }

    /// Whatever the windows, at every edge: plans settle, what is installed is what is accepted, and the keys in use are
    /// installed.
    #[test]
    fn plans_settle_for_any_windows() {
        let mut seed = 1u64;
        let mut next = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % below) as i64
        };
        for _ in 0..500 {
            let keys = (0..1 + next(5))
                .map(|id| {
                    let start_s = next(50);
                    let send = Window { start_s, end_s: start_s + 1 + next(30) };
                    key(id as u8, send, send.widened(next(5)))
                })
                .collect();
            let mut chain = chain(keys);
            chain.when_expired = if next(2) == 0 { WhenExpired::Stop } else { WhenExpired::KeepLast };
            let mut state = Installed::default();
            for now_s in 0..100 {
                settle(&chain, &mut state, now_s);
                let mut have = state.keys.clone();
                have.sort_unstable();
                assert_eq!(have, chain.accepted(now_s));
                assert_eq!(state.rnext, chain.preferred(now_s));
                // In a gap the peer may have asked for the next key already.
                let soon = |k: usize| now_s < chain.keys[k].send.start_s;
                assert!(chain.preferred(now_s).is_none() || state.current.is_some(), "{state:?} at {now_s}");
                assert!(chain.preferred(now_s).is_some() || state.current.is_none_or(soon), "{state:?} at {now_s}");
                assert!(state.current.is_none_or(|k| have.contains(&k)));
                // Now and then the peer asks for any key that it could know.
                if !have.is_empty() && state.current.is_some() && next(3) == 0 {
                    state.current = Some(have[next(have.len() as u64) as usize]);
                }
            }
        }
    }
}
