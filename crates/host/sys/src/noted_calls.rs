//! The calls that a launcher is serving, in memory that it shares with its guard.
//!
//! The kernel hands a call to one reader of the listener only. If that one is killed before it answers, the caller waits
//! as long as anybody has the listener. So the calls are noted here, and the guard serves them again.

use super::mapping::{FileWords, memory_file};
use super::seccomp::{CALL, Listener, Notification};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::io;

/// The calls that can be noted at a time.
const PLACES: usize = 512;
/// The words of a place: whether it is taken, the call, whether there is a result, and the result.
const WORDS: usize = CALL + 3;
/// The word of a place that says whether there is a result. The result follows it.
const RESULT: usize = CALL + 1;
/// The word behind the places: the highest id so far.
const HIGHEST: usize = PLACES * WORDS;
/// The distance from the highest id within which calls may have been received that are not noted.
const NEAR: u64 = 256;

/// Calls that were received and not answered yet.
pub struct NotedCalls(FileWords);

impl NotedCalls {
    /// No calls. Processes that are made by a fork from now on share them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        Ok(NotedCalls(FileWords::map(&memory_file("sealane-calls")?, 0, HIGHEST + 1)?))
    }

    /// Takes a place for a call, as long as the returned value lives. With too many there is none, and the call is not noted.
    pub fn reserve(&self) -> Noted<'_> {
        let free = |place: &usize| self.0[place * WORDS].compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        let place = (0..PLACES).find(free);
        if let Some(place) = place {
            self.0[place * WORDS + RESULT].store(0, Relaxed);
        }
        Noted { calls: self, place }
    }

    /// Notes a call that was received before as long as the returned value lives.
    pub fn note(&self, call: &Notification) -> Noted<'_> {
        let noted = self.reserve();
        noted.received(call.id);
        if let Some(place) = noted.place {
            let words = &self.0[place * WORDS + 1..][..CALL];
            let [id, rest @ ..] = call.to_words();
            for (word, value) in words[1..].iter().zip(rest) {
                word.store(value, Relaxed);
            }
            // The id says that the rest is there.
            words[0].store(id, Release);
        }
        noted
    }

    /// Notes the result of the call in a place.
    pub fn note_result(&self, place: usize, value: i64) {
        self.0[place * WORDS + RESULT + 1].store(value as u64, Relaxed);
        self.0[place * WORDS + RESULT].store(1, Release);
    }

    /// The calls that are noted, each with its result if that was noted, too.
    pub fn all(&self) -> Vec<(Notification, Option<i64>)> {
        let read = |place: usize| {
            let words = &self.0[place * WORDS..][..WORDS];
            let id = words[1].load(Acquire);
            let call = Notification::from_words(core::array::from_fn(|n| words[1 + n].load(Relaxed)));
            let result = (words[RESULT].load(Acquire) != 0).then(|| words[RESULT + 1].load(Relaxed) as i64);
            (words[0].load(Relaxed) != 0 && id != 0).then_some((call, result))
        };
        (0..PLACES).filter_map(read).collect()
    }

    /// The ids of calls that may have been received without having been noted, because there was no place: the kernel counts
    /// calls.
    pub fn nearby(&self) -> impl Iterator<Item = u64> + use<> {
        let highest = self.0[HIGHEST].load(Relaxed);
        (0..2 * NEAR).map(move |n| highest.wrapping_add(NEAR).wrapping_sub(n))
    }

    /// Forgets all calls, because the process that noted them has ended.
    pub fn clear(&self) {
        for place in 0..PLACES {
            self.0[place * WORDS + 1].store(0, Relaxed);
            self.0[place * WORDS].store(0, Release);
        }
    }
}

/// A call that is noted.
pub struct Noted<'a> {
    calls: &'a NotedCalls,
    place: Option<usize>,
}

impl Noted<'_> {
    /// The next call ([`Listener::next`]). The kernel writes it into the place at once: this process may be killed at any
    /// instruction, and there is none at which a call has been received and is not noted.
    ///
    /// # Errors
    /// Those of [`Listener::next`].
    pub fn next(&self, listener: &Listener) -> io::Result<Option<Notification>> {
        let Some(place) = self.place else { return listener.next() };
        let words = &self.calls.0[place * WORDS + 1..][..CALL];
        let memory = || {
            words.iter().for_each(|word| word.store(0, Relaxed));
            words[0].as_ptr().cast()
        };
        // SAFETY: zeros of that size. The place is ours, and others read it only when this process has ended.
        let call = unsafe { listener.next_into(memory) }?;
        call.iter().for_each(|call| self.received(call.id));
        Ok(call)
    }

    /// A call with this id was received.
    fn received(&self, id: u64) {
        self.calls.0[HIGHEST].fetch_max(id, Relaxed);
    }

    /// The place in which it is noted.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    /// Notes the result of the call: from now on it is not served again, but has this result.
    pub fn result(&self, value: i64) {
        if let Some(place) = self.place {
            self.calls.note_result(place, value);
        }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.calls.0[place * WORDS + 1].store(0, Relaxed);
            self.calls.0[place * WORDS].store(0, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_noted_until_they_are_answered() {
        let calls = NotedCalls::new().expect("memory");
        let call = |id| Notification { id, tid: 7, nr: 41, arch: 9, args: [1, 2, 3, 4, 5, id] };
        let ids = || calls.all().iter().map(|(call, _)| (call.id, call.tid, call.nr, call.args[5])).collect::<Vec<_>>();
        let first = calls.note(&call(100));
        let second = calls.note(&call(101));
        assert_eq!(ids(), [(100, 7, 41, 100), (101, 7, 41, 101)]);
        assert!(calls.all().iter().all(|(call, _)| call.arch == 9));
        first.result(-5);
        assert_eq!(calls.all().iter().map(|(_, result)| *result).collect::<Vec<_>>(), [Some(-5), None]);
        drop(first);
        drop(calls.note(&call(102)));
        assert_eq!(ids(), [(101, 7, 41, 101)]);
        let nearby: Vec<u64> = calls.nearby().collect();
        assert!(nearby.contains(&102) && nearby.contains(&100) && !nearby.contains(&1000));
        let many: Vec<_> = (200..900).map(|id| calls.note(&call(id))).collect();
        assert_eq!(ids().len(), PLACES);
        drop((second, many));
        assert_eq!(ids(), []);
        core::mem::forget(calls.note(&call(7)));
        calls.clear();
        assert_eq!(ids(), []);
    }
}
