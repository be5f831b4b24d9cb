//! Waiting for descriptors, and waking waiting threads.

use arrayvec::ArrayVec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Waits until a descriptor is readable, at most `timeout`, and tells for each whether it is. Looks at no more than `N`
/// of them.
pub fn ready<'a, const N: usize>(fds: impl Iterator<Item = BorrowedFd<'a>>, timeout: Duration) -> ArrayVec<bool, N> {
    let entry = |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut list: ArrayVec<libc::pollfd, N> = fds.map(entry).take(N).collect();
    // SAFETY: the list has this many entries.
    let n = unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout.as_millis() as i32) };
    list.iter().map(|p| n > 0 && p.revents != 0).collect()
}

/// Makes short sleeps of this thread precise: by default the kernel extends them by 50 us.
pub fn sleep_precisely() {
    // SAFETY: plain values.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000, 0, 0, 0) };
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
        // SAFETY: plain values; the descriptor is new and ours.
        unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Waker(OwnedFd::from_raw_fd(fd))) }
        }
    }

    /// Makes it readable.
    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight live bytes. The call fails only if the descriptor is readable already.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it unreadable.
    pub fn drain(&self) {
        let mut count = 0u64;
        // SAFETY: eight writable bytes. The call fails only if there is nothing to read.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
