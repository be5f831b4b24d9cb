//! Descriptors that a served program gets instead of sockets, and threads by their numbers.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl, fstat};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};
use std::io::{self, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// A thread by its number, which may be another thread's by the time that something is asked about it
/// ([`super::thread::Thread`] is safe against that).
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub u32);

impl Peer {
    /// The text of its /proc status.
    pub fn status(self) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()
    }
}

/// The rest of the line in a /proc status that starts with `name`.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// The effective capabilities in a /proc status.
pub fn capabilities(status: &str) -> u64 {
    field(status, "CapEff:").and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0)
}

/// A pair of connected sockets: ours, one to hand out, and the inode of the latter.
///
/// # Errors
/// The kernel's.
pub fn pair(nonblock: bool) -> io::Result<(OwnedFd, OwnedFd, u64)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    if nonblock {
        fcntl_setfl(&theirs, OFlags::NONBLOCK)?;
    }
    let inode = fstat(&theirs)?.st_ino;
    Ok((ours, theirs, inode))
}

/// Makes poll report `theirs` as `readable` and `writable`. `ours` is the other end.
pub fn show(ours: BorrowedFd<'_>, theirs: BorrowedFd<'_>, readable: bool, writable: bool) {
    let quiet = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut sink = [0u8; 4096];
    for fd in [theirs, ours] {
        while recv(fd, &mut sink, RecvFlags::DONTWAIT).is_ok() {}
    }
    let _ = sockopt::set_socket_send_buffer_size(theirs, if writable { 65536 } else { 2304 });
    if !writable {
        // These unread bytes fill the send buffer.
        let _ = send(theirs, &sink[..2000], quiet);
    }
    if readable {
        let _ = send(ours, &sink[..1], quiet);
    }
}

/// Whether all descriptors of the other end of `ours` have been closed.
pub fn hung_up(ours: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(ours, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// Reads from a file at an offset, or at its own position. Waits for it, as long as that takes.
///
/// # Errors
/// The kernel's.
pub fn pull(file: BorrowedFd<'_>, buf: &mut [u8], offset: Option<i64>) -> Result<usize, i32> {
    let n = match offset {
        Some(offset) => rustix::io::pread(file, buf, offset as u64),
        None => rustix::io::read(file, buf),
    };
    n.map_err(Errno::raw_os_error)
}

/// As [`pull`], if that needs no waiting. `None` if it does, or may.
///
/// # Errors
/// The kernel's.
pub fn pull_at_once(file: BorrowedFd<'_>, buf: &mut [u8], offset: Option<i64>) -> Result<Option<usize>, i32> {
    // An offset of -1 is the file's own position.
    let offset = offset.map_or(u64::MAX, |offset| offset as u64);
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) {
        Ok(n) => Ok(Some(n)),
        // Not every kind of file can be asked so.
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::SPIPE | Errno::INVAL | Errno::NOSYS) => Ok(None),
        Err(e) => Err(e.raw_os_error()),
    }
}

/// Whether a read of this file fails rather than waits (`O_NONBLOCK`).
pub fn never_waits(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// The number of bytes that a pipe has room for.
///
/// # Errors
/// `EINVAL` for a descriptor that is not a pipe.
pub fn pipe_room(pipe: BorrowedFd<'_>) -> Result<usize, i32> {
    let held = rustix::io::ioctl_fionread(pipe).unwrap_or(0) as usize;
    rustix::pipe::fcntl_getpipe_size(pipe).map(|size| size.saturating_sub(held)).map_err(|_| libc::EINVAL)
}

/// Writes to a pipe.
///
/// # Errors
/// The kernel's.
pub fn push(pipe: BorrowedFd<'_>, buf: &[u8]) -> Result<usize, i32> {
    rustix::io::write(pipe, buf).map_err(Errno::raw_os_error)
}

/// Whether a pipe has data, or no writer any more, within `ms` milliseconds.
pub fn readable(pipe: BorrowedFd<'_>, ms: i32) -> bool {
    // A negative time is no limit, as for poll(2).
    let timeout = u64::try_from(ms).ok().and_then(|ms| Timespec::try_from(Duration::from_millis(ms)).ok());
    poll(&mut [PollFd::from_borrowed_fd(pipe, PollFlags::IN)], timeout.as_ref()).is_ok_and(|n| n > 0)
}
