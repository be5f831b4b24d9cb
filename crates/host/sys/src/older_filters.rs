//! The seccomp filters that a process is under before it installs one of its own: those of a container's runtime or a service
//! manager. An error that they answer a call with counts more than the question of a newer filter.

use super::process::has_filter;
use super::seccomp::Filter;
use sealane_abi::netlink::NETLINK_XFRM;
use std::io;

/// A call that is tried to find out who would answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// `socket(AF_ALG)`.
    Alg,
    /// `socket(AF_NETLINK)` for NETLINK_XFRM.
    Xfrm,
}

impl Probe {
    /// Makes the call. Returns its errno, 0 for none. Async-signal-safe.
    fn call(self) -> i32 {
        let (family, kind, protocol) = match self {
            Probe::Alg => (libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
            Probe::Xfrm => (libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_XFRM),
        };
        // SAFETY: plain values.
        let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
        if fd >= 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap_or(0) }
    }
}

/// The answer of an older filter to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// An error.
    Errno(i32),
    /// A signal, or the end of the process.
    Kills,
}

impl core::fmt::Display for Answer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Answer::Errno(libc::EPERM) => write!(f, "answers EPERM to"),
            Answer::Errno(libc::EAFNOSUPPORT) => write!(f, "answers EAFNOSUPPORT to"),
            Answer::Errno(libc::ENOSYS) => write!(f, "answers ENOSYS to"),
            Answer::Errno(errno) => write!(f, "answers errno {errno} to"),
            Answer::Kills => write!(f, "ends processes for"),
        }
    }
}

/// Statuses of a process that tries a call, beside the errno of an older filter: the newer filter asks, the call has ended the
/// process, or nothing could be tried.
const ASKED: i32 = 0;
const KILLED: i32 = 254;
const NOT_TRIED: i32 = 255;

/// The calls that filters which this process is under already answer instead of a new one. They are tried in processes of
/// their own, and the kernel itself carries none of them out. Empty where there are no such filters; then no new one is made.
///
/// # Errors
/// The kernel's, and when the filter cannot be installed.
pub fn answers(new: impl FnOnce() -> Filter, probes: &[Probe]) -> io::Result<Vec<(Probe, Answer)>> {
    let mut answers = Vec::new();
    if !has_filter(std::process::id()) {
        return Ok(answers);
    }
    let filter = new();
    for &probe in probes {
        // SAFETY: it makes async-signal-safe calls only.
        let trial = unsafe { in_child(|| attempt(&filter, probe)) }?;
        let answer = match status(trial)? {
            Some(ASKED) => continue,
            Some(KILLED) => Answer::Kills,
            Some(NOT_TRIED) | None => return Err(io::Error::other("the call could not be tried")),
            Some(errno) => Answer::Errno(errno),
        };
        answers.push((probe, answer));
    }
    Ok(answers)
}

/// Puts this process under the filter, and has a child of it make the call. Returns one of the statuses. Async-signal-safe.
///
/// The filter's own ENOSYS, when nobody listens, would not differ from that of an older filter: so the call is left to wait for
/// its listener, or the child ends.
fn attempt(filter: &Filter, probe: Probe) -> i32 {
    let mut ends = [-1; 2];
    // SAFETY: plain values, and room for two descriptors. A child that a filter ends leaves no core.
    let made = unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC)
    };
    if made < 0 {
        return NOT_TRIED;
    }
    let Ok(listener) = filter.install() else { return NOT_TRIED };
    let [ended, lives] = ends;
    // SAFETY: it makes async-signal-safe calls only. The copy of the listener would keep the call waiting for ever.
    let caller = unsafe {
        in_child(|| {
            libc::close(listener);
            probe.call()
        })
    };
    // SAFETY: ours. The other end is the child's, until it ends.
    unsafe { libc::close(lives) };
    let Ok(caller) = caller else { return NOT_TRIED };
    let mut fds = [listener, ended].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: two of them. Nothing but a signal without a handler of ours interrupts it.
    while unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) } < 0 {}
    let asked = fds[0].revents & libc::POLLIN != 0;
    // SAFETY: ours. A call that waits for it ends with ENOSYS.
    unsafe { libc::close(listener) };
    match (asked, status(caller)) {
        (true, _) => ASKED,
        (false, Ok(Some(errno))) => errno.min(KILLED - 1),
        (false, Ok(None)) => KILLED,
        (false, Err(_)) => NOT_TRIED,
    }
}

/// Runs a function in a child, which ends with the status that it returns. Returns the child's id.
///
/// # Safety
/// The function makes async-signal-safe calls only: the child has none of the other threads, which may hold locks.
unsafe fn in_child(f: impl FnOnce() -> i32) -> io::Result<libc::pid_t> {
    // SAFETY: as the caller promises.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = f();
            // SAFETY: a plain value.
            unsafe { libc::_exit(status) }
        }
        child => Ok(child),
    }
}

/// Waits for a child's end: its status, or none if a signal has ended it. Async-signal-safe.
fn status(child: libc::pid_t) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: a local.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let e = io::Error::last_os_error();
        if e.raw_os_error() != Some(libc::EINTR) {
            return Err(e);
        }
    }
    Ok(libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)))
}
