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
//! Without a daemon the program is lost when one of the two is killed, and the other one ends, too. A program with TCP-AO
//! would wait for ever for calls that nobody answers: the other one ends all of its processes first ([`Loss::Ends`]).
//!
//! The guard is stopped and continued with the program, so that a shell sees it. The launcher never is: other processes of
//! the program, and its connections, need it.

use sealane_sys::noted_calls::NotedCalls;
use sealane_sys::process::{self, Change, ParentsEnd, Signal, Signals, Watch, Witness};
use sealane_sys::seccomp::Listener;
use sealane_sys::unix;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use tracing::{debug, error, warn};

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

/// The fate of a program whose launcher is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The guard takes the launcher's place.
    TakenOver,
    /// The guard ends all of its processes; so does the launcher when the guard is killed.
    Ends,
    /// It goes on, without what the launcher served.
    GoesOn,
}

/// The launcher's connection to its guard.
pub(crate) struct Guarded {
    pid: u32,
    guard: UnixDatagram,
    calls: Option<Arc<NotedCalls>>,
    loss: Loss,
}

/// The guard.
pub(crate) struct Guard {
    launcher: u32,
    from: UnixDatagram,
    /// Calls under way, where it is to take the launcher's place.
    calls: Option<Arc<NotedCalls>>,
    /// The program and its listener, as soon as the launcher has told of them.
    program: Option<(u32, OwnedFd)>,
    loss: Loss,
    /// The children that this process had before it was a guard.
    others: Vec<(u32, Watch)>,
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

/// Splits this process in a launcher and its guard.
///
/// # Errors
/// The kernel's; there is no guard then.
pub(crate) fn split(loss: Loss) -> io::Result<Side> {
    let (to, from) = UnixDatagram::pair()?;
    from.set_nonblocking(true)?;
    let calls = if loss == Loss::TakenOver { Some(Arc::new(NotedCalls::new()?)) } else { None };
    let pid = std::process::id();
    let mut others = Vec::new();
    if loss != Loss::GoesOn {
        // Before there is a launcher that may be killed at once.
        process::become_subreaper();
        let before = process::children().unwrap_or_default();
        others.extend(before.into_iter().filter_map(|pid| Some((pid, Watch::new(pid)?))));
    }
    match process::split()? {
        None => {
            // Whoever kills the process that he has started wants no other to go on.
            match loss {
                Loss::TakenOver => {}
                Loss::Ends => {
                    process::at_parents_end(ParentsEnd::Told);
                    // Orphans of the program would be the guard's children, and lost with it.
                    process::become_subreaper();
                }
                Loss::GoesOn => process::at_parents_end(ParentsEnd::Kills),
            }
            if loss != Loss::TakenOver && process::parent() != pid {
                // Nobody is left who would ask for the status.
                process::end_at_once(1);
            }
            Ok(Side::Launcher(Guarded { pid, guard: to, calls, loss }))
        }
        Some(launcher) => {
            process::no_core_for_us();
            process::close_inherited();
            Ok(Side::Guard(Guard { launcher, from, calls, program: None, loss, others }))
        }
    }
}

/// Ends the processes of a program that nobody serves any more, of which `ours` tells.
fn end_all(killed: &str, ours: impl Fn(u32) -> bool) {
    match process::end_children(ours) {
        Ok(0) => {}
        Ok(count) => warn!(count, "{killed} was killed: the program cannot go on, and was ended ({count} processes)"),
        Err(e) => {
            error!(error = %e, "{killed} was killed: the program cannot go on, and not all of it could be ended: {e}")
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
        process::at_parents_end(ParentsEnd::Ignored);
        let [a, b, c, d] = status.to_le_bytes();
        if let Err(e) = unix::send_with(&self.guard, &[END, a, b, c, d], None) {
            debug!(error = %e, "the guard is not told of the program's end: {e}");
        }
        // It looks when one of its children has changed.
        self.signal(libc::SIGCHLD);
    }

    /// Ends the program and this process if the guard was killed, and nobody could take the launcher's place. What it has
    /// done for connections stays, as if it had been killed itself.
    pub(crate) fn end_without_guard(&self) {
        if self.loss == Loss::Ends && process::parent() != self.pid {
            end_all("the launcher's guard", process::has_filter);
            process::end_at_once(128 + libc::SIGKILL);
        }
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
                                if self.loss == Loss::Ends {
                                    end_all("the launcher", |pid| self.is_of_program(pid));
                                }
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

    /// Whether a child of this process is one of the program's: it has the launcher's filter. This process may have had others
    /// before it was a guard.
    fn is_of_program(&self, pid: u32) -> bool {
        process::has_filter(pid) && !self.others.iter().any(|(other, watch)| *other == pid && watch.lives())
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
