//! Sending many packets, and what became of them.

use sealane_sys::transient;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The result of sending a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Packets that the kernel took.
    pub taken: usize,
    /// Packets that it refused: no route, too long for the device, or no room.
    pub refused: usize,
}

/// Sends messages without waiting; skips those that the kernel refuses.
///
/// # Safety
/// Every pointer in `headers` points to memory of the length beside it that lives until the call returns.
pub(crate) unsafe fn send_many(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr], sent: &mut Sent) {
    let mut rest = headers;
    while !rest.is_empty() {
        // SAFETY: the caller's promise; the kernel only reads the memory, and writes lengths into the headers.
        let n = unsafe { libc::sendmmsg(fd.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, libc::MSG_DONTWAIT) };
        let done = usize::try_from(n).unwrap_or(0);
        sent.taken += done;
        rest = &mut rest[done..];
        if done == 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            transient::count(&error);
            // The first message failed. A full buffer is full for the others too.
            sent.refused += 1;
            rest = &mut rest[1..];
        }
    }
}
