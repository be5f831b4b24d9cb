//! The process that made a call: its memory, descriptors and state.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// A thread of a served program.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub u32);

/// The most pieces in one call.
const MAX_PIECES: usize = 1024;

/// A piece of a peer's memory.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Its address in the peer's memory.
    pub at: u64,
    /// Its length in bytes.
    pub len: usize,
}

impl Peer {
    /// Reads the pieces in order into `buf`, which has their total length.
    ///
    /// # Errors
    /// `EFAULT` when any of it cannot be read.
    pub fn read(self, spans: &[Span], buf: &mut [u8]) -> Result<(), i32> {
        self.transfer(spans, buf.as_mut_ptr(), buf.len(), true)
    }

    /// Writes `buf` over the pieces in order, until it ends.
    ///
    /// # Errors
    /// `EFAULT` when any of it cannot be written.
    pub fn write(self, spans: &[Span], buf: &[u8]) -> Result<(), i32> {
        self.transfer(spans, buf.as_ptr().cast_mut(), buf.len(), false)
    }

    fn transfer(self, spans: &[Span], at: *mut u8, len: usize, reading: bool) -> Result<(), i32> {
        let mut done = 0;
        let mut left = len;
        let mut remote = Vec::with_capacity(spans.len());
        for span in spans {
            let n = span.len.min(left);
            left -= n;
            if n > 0 {
                remote.push(libc::iovec { iov_base: span.at as usize as *mut _, iov_len: n });
            }
        }
        for part in remote.chunks(1024) {
            let want: usize = part.iter().map(|v| v.iov_len).sum();
            let local = libc::iovec { iov_base: at.wrapping_add(done).cast(), iov_len: want };
            // SAFETY: `at` has `len` bytes, and the parts never exceed them in total; they are written only when
            // reading.
            let n = unsafe {
                let call = if reading { libc::process_vm_readv } else { libc::process_vm_writev };
                call(self.0 as i32, &local, 1, part.as_ptr(), part.len() as u64, 0)
            };
            if n != want as isize {
                return Err(libc::EFAULT);
            }
            done += want;
        }
        Ok(())
    }

    /// Reads `N` bytes at `at`.
    ///
    /// # Errors
    /// `EFAULT` when they cannot be read.
    pub fn bytes<const N: usize>(self, at: u64) -> Result<[u8; N], i32> {
        let mut buf = [0; N];
        self.read(&[Span { at, len: N }], &mut buf)?;
        Ok(buf)
    }

    /// Reads the `n` descriptions of pieces (`struct iovec`) at `at`. Fails with `too_many` for more than 1,024.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL` for an impossible length.
    pub fn spans(self, at: u64, n: u64, too_many: i32) -> Result<Vec<Span>, i32> {
        let n = usize::try_from(n).ok().filter(|n| *n <= MAX_PIECES).ok_or(too_many)?;
        let mut raw = vec![0; n * 16];
        self.read(&[Span { at, len: raw.len() }], &mut raw)?;
        let words = raw.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect::<Vec<_>>();
        let spans: Vec<_> = words.as_chunks().0.iter().map(|&[at, len]| Span { at, len: len as usize }).collect();
        if spans.iter().any(|s| s.len > isize::MAX as usize) { Err(libc::EINVAL) } else { Ok(spans) }
    }

    /// The inode of its socket `fd`; `None` for other files.
    pub fn socket_inode(self, fd: u32) -> Option<u64> {
        let link = std::fs::read_link(format!("/proc/{}/fd/{fd}", self.0)).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    }

    /// Whether it has a descriptor `fd`.
    pub fn has(self, fd: u32) -> bool {
        std::fs::symlink_metadata(format!("/proc/{}/fd/{fd}", self.0)).is_ok()
    }

    /// The text of its /proc status.
    pub fn status(self) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()
    }

    /// The id of its process.
    pub fn process(self) -> Option<u32> {
        self.status().as_deref().and_then(|s| field(s, "Tgid:")).and_then(|t| t.trim().parse().ok())
    }

    /// The id of its process as the process itself sees it.
    pub fn process_in_its_own_namespace(self) -> Option<u32> {
        self.status()
            .as_deref()
            .and_then(|s| field(s, "NStgid:"))
            .and_then(|t| t.split_whitespace().last()?.parse().ok())
    }

    /// Duplicates its descriptor `fd` into this process.
    ///
    /// # Errors
    /// `EBADF`, or the kernel's error.
    pub fn borrow(self, fd: u32) -> Result<OwnedFd, i32> {
        let tgid = self.process().and_then(|tgid| Pid::from_raw(tgid as i32)).ok_or(libc::ESRCH)?;
        let pidfd = pidfd_open(tgid, PidfdFlags::empty()).map_err(Errno::raw_os_error)?;
        pidfd_getfd(pidfd, fd as i32, PidfdGetfdFlags::empty()).map_err(Errno::raw_os_error)
    }

    /// Whether it runs with more privileges than its user (AT_SECURE); such programs are not served. A process that we
    /// may not inspect counts as one.
    pub fn secure(self) -> bool {
        const AT_SECURE: u64 = 23;
        let Ok(auxv) = std::fs::read(format!("/proc/{}/auxv", self.0)) else { return true };
        let words = auxv.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect::<Vec<_>>();
        words.as_chunks().0.iter().any(|&[kind, value]| kind == AT_SECURE && value != 0)
    }

    /// Whether a pending signal will interrupt its call. `Some(true)`: it is sent to this thread. `Some(false)`: it is
    /// sent to the process, and another thread may take it.
    pub fn signalled(self) -> Option<bool> {
        let status = self.status()?;
        let mask = |name| field(&status, name).and_then(|m| u64::from_str_radix(m.trim(), 16).ok());
        let deaf = mask("SigBlk:")? | mask("SigIgn:")?;
        if mask("SigPnd:")? & !deaf != 0 {
            return Some(true);
        }
        (mask("ShdPnd:")? & !deaf != 0).then_some(false)
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

/// Reads from a file at an offset, or at its own position.
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
