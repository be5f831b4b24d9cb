//! Waiting for descriptors, and waking waiting threads.

use super::{life, transient};
use arrayvec::ArrayVec;
use core::ops::RangeInclusive;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The pause after the kernel could not wait.
const FAILED: Duration = Duration::from_millis(1);

/// Waits until a descriptor is readable, at most `timeout`, and tells for each whether it is. Looks at no more than `N`
/// of them. Where the kernel cannot wait (no memory, or fewer descriptors allowed than these) all of them count as
/// readable after a moment: reading them does not wait.
pub fn ready<'a, const N: usize>(fds: impl Iterator<Item = BorrowedFd<'a>>, timeout: Duration) -> ArrayVec<bool, N> {
    let mut list: ArrayVec<PollFd<'_>, N> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).take(N).collect();
    let _wait = life::wait();
    match poll(&mut list, Timespec::try_from(timeout).ok().as_ref()) {
        Ok(n) => list.iter().map(|p| n > 0 && !p.revents().is_empty()).collect(),
        Err(Errno::INTR) => list.iter().map(|_| false).collect(),
        Err(e) => {
            transient::count(&e.into());
            std::thread::sleep(FAILED);
            list.iter().map(|_| true).collect()
        }
    }
}

/// A set of descriptors that the kernel keeps from wait to wait: unlike [`ready`], a wait costs the same however many they are.
/// Each has a token below [`Tokens::MOST`], which several may share. A descriptor that is closed is in the set no longer.
#[derive(Debug)]
pub struct Waits(OwnedFd);

/// The tokens of descriptors that are readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens(u32);

impl Tokens {
    /// The number of tokens there are.
    pub const MOST: u32 = 32;

    /// Whether a descriptor with this token is readable.
    #[must_use]
    pub fn has(self, token: u32) -> bool {
        self.0 >> token & 1 != 0
    }

    /// Whether a descriptor with a token in this range is readable.
    #[must_use]
    pub fn has_any(self, tokens: RangeInclusive<u32>) -> bool {
        tokens.into_iter().any(|token| self.has(token))
    }
}

impl Waits {
    /// An empty set.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        Ok(Waits(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    /// The kernel's: `EEXIST` if it is in the set.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u32) -> io::Result<()> {
        debug_assert!(token < Tokens::MOST, "there are no more");
        Ok(epoll::add(&self.0, fd, EventData::new_u64(token.into()), EventFlags::IN)?)
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` if it is not in the set.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits until a descriptor is readable, at most `timeout`. Where the kernel cannot wait, all of them count as readable after a
    /// moment, as in [`ready`].
    pub fn ready(&self, timeout: Duration) -> Tokens {
        let _wait = life::wait();
        self.look(timeout)
    }

    /// Those that are readable now. Other threads than the one that waits may ask.
    pub fn ready_now(&self) -> Tokens {
        self.look(Duration::ZERO)
    }

    fn look(&self, timeout: Duration) -> Tokens {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; Tokens::MOST as usize];
        match epoll::wait(&self.0, &mut events, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(count) => Tokens(
                events[..count].iter().fold(0, |all, event| all | 1 << (event.data.u64() % u64::from(Tokens::MOST))),
            ),
            Err(Errno::INTR) => Tokens::default(),
            Err(e) => {
                transient::count(&e.into());
                std::thread::sleep(FAILED);
                Tokens(u32::MAX)
            }
        }
    }
}

/// Makes short sleeps of this thread precise: by default the kernel extends them by 50 us.
pub fn sleep_precisely() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
}

/// A descriptor that other threads can make readable, to wake its owner.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Creates one that is not readable yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        Ok(Waker(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn wake(&self) {
        // It fails only if the descriptor is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub fn drain(&self) {
        // It fails only if there is nothing to read.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_tells_what_is_readable() {
        let (waits, a, b) = (Waits::new().unwrap(), Waker::new().unwrap(), Waker::new().unwrap());
        waits.add(a.as_fd(), 3).unwrap();
        waits.add(b.as_fd(), 31).unwrap();
        assert_eq!(waits.ready(Duration::ZERO), Tokens::default());
        b.wake();
        let ready = waits.ready(Duration::MAX);
        assert!(ready.has(31) && ready.has_any(30..=31) && !ready.has_any(0..=30));
        assert_eq!(waits.ready_now(), ready, "a look takes nothing away");
        a.wake();
        b.drain();
        assert!(waits.ready_now().has(3) && !waits.ready_now().has(31));
        waits.remove(a.as_fd()).unwrap();
        assert_eq!(waits.ready_now(), Tokens::default(), "it is in the set no longer");
        b.wake();
        drop(b);
        assert_eq!(waits.ready_now(), Tokens::default(), "nor is what is closed");
    }
}
