//! Private keys that are ready for use, and the thread that makes RSA keys.

use sealane_crypto_awslc::pkey::{self, PrivateKey, UseError};
use sealane_keeper_client::key::Name;
use sealane_pkey::Algorithm;
use sealane_sys::poll::Waker;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use zeroize::Zeroizing;

/// The most private keys that are ready for use at a time. The one that was used longest ago makes room for another.
const MAX_READY: usize = 512;
/// The most RSA keys that wait for being made.
const MAX_WAITING: usize = 8;
/// The places among them that only the keeper's administrators get.
const RESERVED: usize = 1;

/// Private keys that have been read, by name and version.
#[derive(Default)]
pub(crate) struct Ready {
    keys: HashMap<(Name, u32), (PrivateKey, u64)>,
    clock: u64,
}

impl Ready {
    /// A key, which counts as used now.
    pub(crate) fn get(&mut self, at: &(Name, u32)) -> Option<&PrivateKey> {
        self.clock += 1;
        self.keys.get_mut(at).map(|(key, used)| {
            *used = self.clock;
            &*key
        })
    }

    /// Takes a key in.
    pub(crate) fn put(&mut self, at: (Name, u32), key: PrivateKey) {
        if self.keys.len() >= MAX_READY && !self.keys.contains_key(&at) {
            let oldest = self.keys.iter().min_by_key(|(_, (_, used))| *used).map(|(at, _)| at.clone());
            oldest.map(|at| self.keys.remove(&at));
        }
        self.clock += 1;
        self.keys.insert(at, (key, self.clock));
    }

    /// Wipes a version of a key, or all of them if it is 0.
    pub(crate) fn forget(&mut self, name: &Name, version: u32) {
        self.keys.retain(|(of, number), _| of != name || (version != 0 && *number != version));
    }

    /// The number of keys.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

/// A new key, in PKCS #8.
///
/// # Errors
/// [`UseError::Driver`].
pub fn made(algorithm: Algorithm) -> Result<Zeroizing<Vec<u8>>, UseError> {
    PrivateKey::generate(algorithm)?.pkcs8()
}

/// A key that a [`Maker`] has made, with the number that it was asked for with.
pub type Made = (u64, Result<Zeroizing<Vec<u8>>, UseError>);

/// The reason why there is no key for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMade {
    /// The user has another key under way.
    Own,
    /// Too many keys wait for being made.
    Full,
    /// It cannot be made.
    Failed,
    /// The request came in shared memory, where nothing waits for long.
    InSlot,
}

/// A key that somebody wants.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// The number of the request.
    pub number: u64,
    /// The user who asks.
    pub user: u32,
    /// The algorithm of the key.
    pub algorithm: Algorithm,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// The key that is being made, and whether nobody waits for it any more. It counts as its user's until it is done, so that
    /// somebody who asks and goes away again and again keeps the thread from nobody.
    under_way: Option<(Job, bool)>,
    made: VecDeque<Made>,
    /// There is no [`Maker`] any more.
    is_over: bool,
    /// There is no thread any more.
    has_ended: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    done: Waker,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No key is made while it is locked, and each change is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next key to make; `None` at the end.
    fn next(&self) -> Option<Algorithm> {
        let mut queue = self.queue();
        loop {
            if queue.is_over {
                return None;
            }
            if let Some(job) = queue.waiting.pop_front() {
                queue.under_way = Some((job, false));
                return Some(job.algorithm);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, secret: Result<Zeroizing<Vec<u8>>, UseError>) {
        let mut queue = self.queue();
        if let Some((job, false)) = queue.under_way.take() {
            queue.made.push_back((job.number, secret));
            self.done.wake();
        }
    }
}

/// Tells those who wait that the thread has ended, also when it panics.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.done(Err(UseError::Driver));
        let mut queue = self.0.queue();
        queue.has_ended = true;
        while let Some(job) = queue.waiting.pop_front() {
            queue.made.push_back((job.number, Err(UseError::Driver)));
        }
        self.0.done.wake();
    }
}

/// A thread that makes keys, one at a time, while others are served. Each user has one under way, and one place is for the keeper's
/// administrators only.
pub struct Maker(Arc<Shared>);

impl Maker {
    /// Starts the thread, which tests the computation with private keys first. What a thread does to begin is done when it returns.
    ///
    /// # Errors
    /// The kernel's, or the test's.
    pub fn start() -> io::Result<Self> {
        Maker::of(made)
    }

    /// The same, with another way to make keys.
    pub(crate) fn of(
        make: impl Fn(Algorithm) -> Result<Zeroizing<Vec<u8>>, UseError> + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { queue, changed, done: Waker::new()? });
        let (begun, begins) = mpsc::channel();
        let ends = Ends(shared.clone());
        let work = move || {
            let _ = begun.send(pkey::self_test());
            while let Some(algorithm) = ends.0.next() {
                ends.0.done(make(algorithm));
            }
        };
        // From here on the thread ends when this is dropped.
        let maker = Maker(shared);
        std::thread::Builder::new().name("keeper-maker".into()).spawn(work)?;
        match begins.recv() {
            Ok(Ok(())) => Ok(maker),
            Ok(Err(what)) => Err(io::Error::other(what)),
            Err(_) => Err(io::Error::other("the thread that makes keys has ended")),
        }
    }

    /// Asks for a key.
    ///
    /// # Errors
    /// [`NotMade`], if it is not made.
    pub fn ask(&self, job: Job, is_admin: bool) -> Result<(), NotMade> {
        let mut queue = self.0.queue();
        if queue.has_ended {
            return Err(NotMade::Failed);
        }
        let under_way = queue.under_way.iter().map(|(job, _)| job);
        if queue.waiting.iter().chain(under_way).any(|other| other.user == job.user) {
            return Err(NotMade::Own);
        }
        let places = if is_admin { MAX_WAITING } else { MAX_WAITING - RESERVED };
        if queue.waiting.len() >= places {
            return Err(NotMade::Full);
        }
        queue.waiting.push_back(job);
        self.0.changed.notify_one();
        Ok(())
    }

    /// Nobody waits for the key of this number any more: it is not made, or not given out.
    pub fn give_up(&self, number: u64) {
        let mut queue = self.0.queue();
        queue.waiting.retain(|job| job.number != number);
        if let Some((job, given_up)) = &mut queue.under_way {
            *given_up |= job.number == number;
        }
        queue.made.retain(|(made, _)| *made != number);
    }

    /// A key that is done.
    pub fn take(&self) -> Option<Made> {
        self.0.queue().made.pop_front()
    }

    /// Makes the descriptor unreadable, before all keys are taken.
    pub fn drain(&self) {
        self.0.done.drain();
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.0.queue().is_over = true;
        self.0.changed.notify_one();
    }
}

impl AsFd for Maker {
    /// Readable when a key is done.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.done.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::sync::mpsc::{Receiver, Sender};

    #[test]
    fn the_key_that_was_used_longest_ago_makes_room() {
        let mut ready = Ready::default();
        let at = |number: usize| (Name::new("k").unwrap(), number as u32);
        let key = || PrivateKey::generate(Algorithm::Ed25519).unwrap();
        for number in 1..=MAX_READY {
            ready.put(at(number), key());
        }
        assert!(ready.get(&at(1)).is_some());
        ready.put(at(MAX_READY + 1), key());
        assert_eq!(ready.len(), MAX_READY);
        assert!(ready.get(&at(1)).is_some() && ready.get(&at(2)).is_none());
        ready.forget(&at(1).0, 1);
        assert!(ready.get(&at(1)).is_none() && ready.get(&at(3)).is_some());
        ready.forget(&at(1).0, 0);
        assert_eq!(ready.len(), 0);
    }

    const ALL: [Algorithm; 3] = [Algorithm::Rsa2048, Algorithm::Rsa3072, Algorithm::Rsa4096];

    fn job(number: u64, user: u32, algorithm: Algorithm) -> Job {
        Job { number, user, algorithm }
    }

    /// A maker that tells each algorithm when it begins, and goes on when it is told to. `None` makes it panic.
    fn held() -> (Maker, Receiver<Algorithm>, Sender<Option<()>>) {
        let ((begin, begins), (go, goes)) = (mpsc::channel(), mpsc::channel::<Option<()>>());
        let maker = Maker::of(move |algorithm| {
            begin.send(algorithm).unwrap();
            goes.recv().unwrap().unwrap();
            Ok(Zeroizing::new(vec![1]))
        });
        (maker.unwrap(), begins, go)
    }

    #[test]
    fn each_user_has_one_key_under_way_and_one_place_is_for_administrators() {
        let (maker, begins, go) = held();
        assert_eq!(maker.ask(job(0, 0, ALL[0]), false), Ok(()));
        begins.recv().unwrap();
        // Whoever has gone away has it all the same until it is done.
        assert_eq!(maker.ask(job(100, 0, ALL[0]), true), Err(NotMade::Own));
        maker.give_up(0);
        assert_eq!(maker.ask(job(100, 0, ALL[0]), true), Err(NotMade::Own));
        for user in 1..MAX_WAITING as u32 {
            assert_eq!(maker.ask(job(user.into(), user, ALL[1]), false), Ok(()));
            assert_eq!(maker.ask(job(100, user, ALL[1]), false), Err(NotMade::Own));
        }
        assert_eq!(maker.ask(job(100, 100, ALL[1]), false), Err(NotMade::Full));
        assert_eq!(maker.ask(job(100, 100, ALL[1]), true), Ok(()));
        assert_eq!(maker.ask(job(101, 101, ALL[1]), true), Err(NotMade::Full));
        // A place that is given up is free at once.
        maker.give_up(1);
        maker.give_up(2);
        assert_eq!(maker.ask(job(101, 101, ALL[1]), false), Ok(()));
        for _ in 0..2 {
            go.send(Some(())).unwrap();
            begins.recv().unwrap();
        }
        // What nobody waited for is not given out.
        assert_eq!(maker.take().map(|(number, _)| number), Some(3));
    }

    #[test]
    fn a_key_that_is_given_up_is_not_made() {
        let (maker, begins, go) = held();
        for (number, algorithm) in (0..).zip(ALL) {
            assert_eq!(maker.ask(job(number, number as u32, algorithm), false), Ok(()));
        }
        assert_eq!(begins.recv(), Ok(ALL[0]));
        maker.give_up(1);
        go.send(Some(())).unwrap();
        assert_eq!(begins.recv(), Ok(ALL[2]));
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_ended() {
        let (maker, begins, go) = held();
        for number in 0..3 {
            assert_eq!(maker.ask(job(number, number as u32, ALL[0]), false), Ok(()));
        }
        begins.recv().unwrap();
        go.send(None).unwrap();
        let mut failed = Vec::new();
        while failed.len() < 3 {
            let mut fd = [PollFd::from_borrowed_fd(maker.as_fd(), PollFlags::IN)];
            poll(&mut fd, None).unwrap();
            maker.drain();
            while let Some((number, made)) = maker.take() {
                assert_eq!(made.err(), Some(UseError::Driver));
                failed.push(number);
            }
        }
        assert_eq!(failed, [0, 1, 2]);
        assert_eq!(maker.ask(job(3, 3, ALL[0]), true), Err(NotMade::Failed));
    }
}
