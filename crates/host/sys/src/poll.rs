//! Waiting for descriptors, and waking waiting threads.

use super::{life, transient};
use arrayvec::ArrayVec;
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
