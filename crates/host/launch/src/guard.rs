//! The guard of a launcher: its parent, for whose end whoever has started it waits. It ends with the program, and leaves the
//! launcher in the background where processes are left that it serves: a program that goes to the background ends its first
//! process. Where a daemon serves the program, the guard takes the launcher's place when that is killed.
//!
//! ```text
//! guard ─ launcher ─ program        the guard passes signals on, and has the listener and a note of calls under way
//!         launcher   others         the program has ended, and the guard with its status
//! guard ─ program                   the launcher was killed: the guard serves the program
//!         launcher ─ program        the guard was killed: nothing changes
//! ```
//!
//! Without a daemon the program is lost when one of the two is killed, and the other one ends, too.
//!
//! The guard is stopped and continued with the program, so that a shell sees it. The launcher never is: other processes of
//! the program, and its connections, need it.

use sealane_sys::noted_calls::NotedCalls;
use sealane_sys::process::{self, Change, Signal, Signals, Witness};
use sealane_sys::seccomp::Listener;
use sealane_sys::unix;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use tracing::{debug, warn};

/// The messages of a launcher to its guard: the program's process, with its listener; the program's exit status.
const PROGRAM: u8 = 1;
const END: u8 = 2;

/// The process that goes on after [`split`].
pub(crate) enum Side {
    /// The launcher.
    Launcher(Guarded),
    /// Its guard.
    Guard(Guard),
}

/// The launcher's connection to its guard.
pub(crate) struct Guarded {
    pid: u32,
    guard: UnixDatagram,
    calls: Option<Arc<NotedCalls>>,
}

/// The guard.
pub(crate) struct Guard {
    launcher: u32,
    from: UnixDatagram,
    /// Calls under way, where it is to take the launcher's place.
    calls: Option<Arc<NotedCalls>>,
    /// The program and its listener, as soon as the launcher has told of them.
    program: Option<(u32, OwnedFd)>,
}

/// The end of a guard's duty.
pub(crate) enum Duty {
    /// The launcher has ended with this status, or its program has. Whether it had started the program.
    Over { status: i32, started: bool },
    /// The launcher was killed; the guard is to serve its program.
    TakeOver(Orphan),
}

/// A program without its launcher.
pub(crate) struct Orphan {
    /// The program's process.
    pub(crate) pid: u32,
    pub(crate) listener: Listener,
    pub(crate) calls: Arc<NotedCalls>,
    /// Its exit status, if it has ended already.
    pub(crate) ended: Option<i32>,
}

/// Splits this process in a launcher and its guard, which `takes_over` where it can.
///
/// # Errors
/// The kernel's; there is no guard then.
pub(crate) fn split(takes_over: bool) -> io::Result<Side> {
    let (to, from) = UnixDatagram::pair()?;
    from.set_nonblocking(true)?;
    let calls = if takes_over { Some(Arc::new(NotedCalls::new()?)) } else { None };
    let pid = std::process::id();
    if takes_over {
        // Before there is a launcher that may be killed at once.
        process::become_subreaper();
    }
    match process::split()? {
        None => {
            if !takes_over {
                // Whoever kills the process that he has started wants no other to go on.
                process::end_with_parent(true);
                if process::parent() != pid {
                    // Nobody is left who would ask for the status.
                    process::end_at_once(1);
                }
            }
            Ok(Side::Launcher(Guarded { pid, guard: to, calls }))
        }
        Some(launcher) => {
            process::no_core_for_us();
            process::close_inherited();
            Ok(Side::Guard(Guard { launcher, from, calls, program: None }))
        }
    }
}

impl Guarded {
    /// The way in which the guard is told of the program: before that runs, so that it never runs without.
    pub(crate) fn witness(&self) -> Witness<'_> {
        Witness { socket: self.guard.as_fd(), tag: PROGRAM }
    }

    /// Tells the guard that the program has ended with this status, and that processes which it has left are served on.
    pub(crate) fn tell_end(&self, status: i32) {
        process::end_with_parent(false);
        let [a, b, c, d] = status.to_le_bytes();
        if let Err(e) = unix::send_with(&self.guard, &[END, a, b, c, d], None) {
            debug!(error = %e, "the guard is not told of the program's end: {e}");
        }
        // It looks when one of its children has changed.
        self.signal(libc::SIGCHLD);
    }

    /// Stops the guard, for whoever has started it to see that the program is stopped, or continues it.
    pub(crate) fn follow(&self, stopped: bool) {
        self.signal(if stopped { libc::SIGSTOP } else { libc::SIGCONT });
    }

    fn signal(&self, signal: i32) {
        // If it was killed we have another parent.
        if process::parent() == self.pid {
            process::kill(self.pid, signal);
        }
    }

    /// The place for calls under way, which the guard would serve.
    pub(crate) fn calls(&self) -> Option<Arc<NotedCalls>> {
        self.calls.clone()
    }
}

impl Guard {
    /// Passes signals on until the launcher ends, or its program does.
    pub(crate) fn stand_by(mut self, signals: &Signals) -> Duty {
        let mut ended = None;
        loop {
            match signals.wait() {
                // The program goes on, and so do we.
                Signal::Sent { signal: libc::SIGCONT, from } if from == self.launcher => {}
                Signal::Sent { signal, .. } => process::kill(self.launcher, signal),
                // The program is not told by the kernel.
                Signal::Terminal(libc::SIGHUP) if process::leads_session() => {
                    process::kill(self.launcher, libc::SIGHUP)
                }
                Signal::Terminal(_) => {}
                Signal::Child => {
                    if let Some(status) = self.receive() {
                        return Duty::Over { status, started: true };
                    }
                    let program = self.program.as_ref().map_or(self.launcher, |(pid, _)| *pid);
                    while let Some((who, change)) = process::changed_of(&[self.launcher, program]) {
                        let Some(status) = status_of(change) else { continue };
                        match (who == self.launcher, change) {
                            (false, _) => ended = Some(status),
                            (true, Change::Killed(_)) => {
                                let started = self.program.is_some();
                                let (Some((pid, listener)), Some(calls)) = (self.program, self.calls) else {
                                    return Duty::Over { status, started };
                                };
                                // It was told of in between, and may have ended in between.
                                let gone = || process::changed(pid).and_then(status_of);
                                let ended = ended.or_else(gone);
                                warn!(pid, "the launcher was killed: its guard serves the program");
                                let listener = Listener::new(listener);
                                return Duty::TakeOver(Orphan { pid, listener, calls, ended });
                            }
                            (true, _) => return Duty::Over { status, started: self.program.is_some() },
                        }
                    }
                }
            }
        }
    }

    /// Takes what the launcher has told. Returns the program's exit status, if it has ended.
    fn receive(&mut self) -> Option<i32> {
        let mut bytes = [0; 5];
        while let Ok((5, listener)) = unix::receive_with(&self.from, &mut bytes) {
            let [what, a, b, c, d] = bytes;
            let value = u32::from_le_bytes([a, b, c, d]);
            match (what, listener) {
                (PROGRAM, Some(listener)) => self.program = Some((value, listener)),
                (END, _) => return Some(value as i32),
                _ => {}
            }
        }
        None
    }
}

/// The exit status of a process that has ended.
pub(crate) fn status_of(change: Change) -> Option<i32> {
    match change {
        Change::Exited(status) => Some(status),
        Change::Killed(signal) => Some(128 + signal),
        Change::Stopped | Change::Continued => None,
    }
}
