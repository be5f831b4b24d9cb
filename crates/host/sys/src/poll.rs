//! Waiting for descriptors, and waking who waits.

use arrayvec::ArrayVec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Which of `fds` can be read, after at most `timeout`. No more than `N` of them are looked at.
pub fn ready<'a, const N: usize>(fds: impl Iterator<Item = BorrowedFd<'a>>, timeout: Duration) -> ArrayVec<bool, N> {
    let entry = |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut list: ArrayVec<libc::pollfd, N> = fds.map(entry).take(N).collect();
    // SAFETY: as many entries as are told.
    let n = unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout.as_millis() as i32) };
    list.iter().map(|p| n > 0 && p.revents != 0).collect()
}

/// Makes short sleeps of this thread short: the kernel lets them last 50 us longer otherwise.
pub fn sleep_precisely() {
    // SAFETY: plain values.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000, 0, 0, 0) };
}

/// A descriptor that becomes readable when somebody wants it to.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Not readable yet.
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
        // SAFETY: eight live bytes. It only fails when it is readable already.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it unreadable.
    pub fn drain(&self) {
        let mut count = 0u64;
        // SAFETY: eight writable bytes. It only fails when there is nothing to read.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
