//! The schedule of a key chain: pure functions of the chain and the time of day that select keys.
//!
//! RFC 8177 gives each key a window for sending and one for accepting. The key for sending is the one whose send window
//! began last; among equals, the one listed last. Keys are installed while they are accepted, so that a change of keys
//! loses no segment: both ends accept the new key before either sends with it, and the old one until both have stopped.
//!
//! Both directions change keys as in RFC 5925, section 6.1. When a new key becomes valid we request it (RNextKeyID) and
//! the peer switches at once; we switch when the peer requests it. Only when the send window of our key ends do we
//! switch unasked. The engine does this with the answers of this module (`engine_ao::ConfiguredKey`).

use super::keys::{KeyChain, WhenExpired};
use super::time::Window;

impl KeyChain {
    /// The key to send with at `now_s` on a new connection; `None` if nothing may be sent.
    #[must_use]
    pub fn preferred(&self, now_s: i64) -> Option<usize> {
        let latest = |(i, w): &(usize, Window)| (w.start_s, *i);
        let windows = self.keys.iter().map(|k| k.send).enumerate();
        windows.clone().filter(|(_, w)| w.contains(now_s)).max_by_key(latest).map(|(i, _)| i).or_else(|| {
            // With `keep-last` the last key never expires, which keeps sessions up (as OSPF does, RFC 2328, D.3).
            let ended = windows.filter(|(_, w)| w.end_s <= now_s);
            ended
                .max_by_key(|(i, w)| (w.end_s, w.start_s, *i))
                .map(|(i, _)| i)
                .filter(|_| self.when_expired == WhenExpired::KeepLast)
        })
    }

    /// The key to send with at `now_s` if not all keys are there: as [`KeyChain::preferred`] of those that are. A key whose time is
    /// over does not come back because its successors are missing.
    #[must_use]
    pub fn preferred_of(&self, now_s: i64, is_there: impl Fn(usize) -> bool) -> Option<usize> {
        let sent = self.keys.iter().enumerate().filter(|(i, key)| is_there(*i) && key.send.contains(now_s));
        let latest = sent.max_by_key(|(i, key)| (key.send.start_s, *i)).map(|(i, _)| i);
        latest.or_else(|| self.preferred(now_s).filter(|key| is_there(*key)))
    }

    /// Whether segments signed with this key are accepted at `now_s`. It is installed exactly in that time.
    #[must_use]
    pub fn accepts(&self, key: usize, now_s: i64) -> bool {
        self.keys[key].accept.contains(now_s) || self.preferred(now_s) == Some(key)
    }

    /// The keys accepted at `now_s`, in the order of the chain.
    #[must_use]
    pub fn accepted(&self, now_s: i64) -> Vec<usize> {
        let preferred = self.preferred(now_s);
        (0..self.keys.len()).filter(|&k| self.keys[k].accept.contains(now_s) || preferred == Some(k)).collect()
    }

    /// The next time at which any answer for this chain changes; `None` if it never does.
    #[must_use]
    pub fn next_change_s(&self, now_s: i64) -> Option<i64> {
        let edges = self.keys.iter().flat_map(|k| [k.send.start_s, k.send.end_s, k.accept.start_s, k.accept.end_s]);
        edges.filter(|&t| t > now_s && t != i64::MAX).min()
    }

    /// Whether any answer for this chain is another one at `now_s` than at `last_s`, which may be later.
    #[must_use]
    pub fn has_changed(&self, last_s: i64, now_s: i64) -> bool {
        self.next_change_s(last_s.min(now_s)).is_some_and(|t| t <= last_s.max(now_s))
    }

    /// The times without a key to send with, between the first key's start and the last key's end.
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

    /// The time from which on there is no key to send with; `None` if there is none.
    #[must_use]
    pub fn end_s(&self) -> Option<i64> {
        self.keys.iter().map(|k| k.send.end_s).max().filter(|&end| end != i64::MAX)
    }

    /// Whether a connection that sends with this key may continue to do so at `now_s`, because its send window has not
    /// ended. A peer whose clock is ahead of ours may request a key before our own window begins; we already accept it
    /// then, so we switch.
    #[must_use]
    pub fn may_send(&self, key: usize, now_s: i64) -> bool {
        let send = self.keys[key].send;
        let over = now_s >= send.end_s && send.end_s != i64::MAX;
        self.accepts(key, now_s) && !over || self.preferred(now_s) == Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::tests::{chain, key};

    const DAY: i64 = 86_400;

    /// Three keys of 30 days, each of which begins 2 days before its predecessor ends. They are accepted an hour longer
    /// at both ends.
    fn rolling() -> KeyChain {
        let window = |n: i64| Window { start_s: n * 28 * DAY, end_s: (n * 28 + 30) * DAY };
        chain((0..3u8).map(|n| key(n, window(n.into()), window(n.into()).widened(3600))).collect())
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
        let edge = 28 * DAY;
        for (last, now, changed) in [(-1, 0, true), (0, 1, false), (1, 100 * DAY, true), (100 * DAY, 200 * DAY, false)]
        {
            assert_eq!(chain.has_changed(edge + last, edge + now), changed, "{last} {now}");
            assert_eq!(chain.has_changed(edge + now, edge + last), changed, "set back: {now} {last}");
        }
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
    fn a_key_is_accepted_before_it_is_sent_with_and_after() {
        let chain = rolling();
        let may = |now_s| (0..3).filter(|&k| chain.may_send(k, now_s)).collect::<Vec<_>>();
        assert_eq!(may(28 * DAY - 3601), [0]);
        // An hour before its start, the next key is accepted and the peer may request it.
        assert_eq!(may(28 * DAY - 3600), [0, 1]);
        assert_eq!(may(30 * DAY - 1), [0, 1]);
        assert_eq!(may(30 * DAY), [1], "the old one is accepted still, but not sent with");
        assert_eq!(chain.accepted(30 * DAY), [0, 1]);
        assert_eq!(may(86 * DAY), [0; 0]);
        assert_eq!(chain.accepted(86 * DAY), [2]);
    }

    #[test]
    fn the_last_key_goes_on_if_it_is_to() {
        let mut chain = rolling();
        chain.when_expired = WhenExpired::KeepLast;
        assert_eq!(chain.accepted(1000 * DAY), [2]);
        assert!(chain.may_send(2, 1000 * DAY) && !chain.may_send(1, 1000 * DAY));
        assert_eq!(chain.preferred(-DAY), None, "a key that has not begun is not the last one");
    }

    #[test]
    fn a_key_that_is_missing_is_not_preferred_and_none_whose_time_is_over_comes_back() {
        let mut chain = rolling();
        let edge = 28 * DAY;
        let without = |chain: &KeyChain, gone: usize, now_s| chain.preferred_of(now_s, |key| key != gone);
        assert_eq!(without(&chain, 1, edge), Some(0), "it may still be sent with");
        assert_eq!(without(&chain, 0, edge), Some(1));
        assert_eq!(without(&chain, 1, 40 * DAY), None);
        assert_eq!(chain.preferred_of(edge, |_| false), None);
        for keeps in [WhenExpired::Stop, WhenExpired::KeepLast] {
            chain.when_expired = keeps;
            let kept = (keeps == WhenExpired::KeepLast).then_some(2);
            assert_eq!(without(&chain, 0, 1000 * DAY), kept);
            assert_eq!(without(&chain, 2, 1000 * DAY), None);
            assert_eq!(without(&chain, 1, 40 * DAY), None);
        }
    }

    #[test]
    fn gaps_are_found() {
        let window = |start_s, end_s| Window { start_s, end_s };
        let keys = [window(0, 10), window(5, 20), window(30, 40), window(31, 32), window(50, i64::MAX)];
        let chain = chain(keys.iter().zip(0..).map(|(&w, id)| key(id, w, w)).collect());
        assert_eq!(chain.gaps(), [window(20, 30), window(40, 50)]);
    }

    /// For any windows, the preferred key may be used for sending, keys used for sending are accepted, and answers
    /// change only at the announced times.
    #[test]
    fn answers_agree_for_any_windows() {
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
            let answers = |now_s| {
                let may: Vec<usize> = (0..chain.keys.len()).filter(|&k| chain.may_send(k, now_s)).collect();
                (chain.preferred(now_s), may, chain.accepted(now_s))
            };
            let mut change = i64::MIN;
            for now_s in -10..100 {
                let (preferred, may, accepted) = answers(now_s);
                assert!(preferred.is_none_or(|k| may.contains(&k)));
                assert!(may.iter().all(|k| accepted.contains(k)));
                assert!(accepted.iter().all(|&k| chain.accepts(k, now_s)));
                if now_s > -10 && now_s < change {
                    assert_eq!(answers(now_s - 1), (preferred, may, accepted));
                }
                change = chain.next_change_s(now_s).unwrap_or(i64::MAX);
            }
        }
    }
}
