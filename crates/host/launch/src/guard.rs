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
//! would wait for ever for calls that nobody answers, or accept connections that nobody signs: all of its processes are
//! ended first, also those that it leaves ([`Loss::Ends`]). A third process sees to that, the launcher's [`reaper`]:
//!
//! ```text
//! guard ─ reaper ─ launcher ─ program        if one of the three is killed all end
//!         reaper ─ launcher   others         the same of the two
//! ```
//!
//! The guard is stopped and continued with the program, so that a shell sees it. The launcher never is: other processes of
//! the program, and its connections, need it.

use crate::reaper::{self, Reaper};
use sealane_sys::noted_calls::NotedCalls;
use sealane_sys::process::{self, Change, ParentsEnd, Signal, Signals, Witness};
use sealane_sys::seccomp::Listener;
use sealane_sys::unix;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use tracing::{debug, warn};

/// The messages of a launcher to its guard: its own process, if a reaper is between them; the program's process, with
/// its listener; the program's exit status.
const LAUNCHER: u8 = 1;
const PROGRAM: u8 = 2;
const END: u8 = 3;

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
    /// All of its processes are ended.
    Ends,
    /// It goes on, without what the launcher served.
    GoesOn,
}

/// The launcher's connection to its guard.
pub(crate) struct Guarded {
    pid: u32,
    guard: UnixDatagram,
    calls: Option<Arc<NotedCalls>>,
    /// The reaper between the two, of a program that is not to outlive them.
    reaper: Option<Reaper>,
}

/// The guard.
pub(crate) struct Guard {
    /// The launcher, or the reaper above it.
    child: u32,
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

/// Splits this process in a launcher and its guard.
///
/// # Errors
/// The kernel's; there is no guard then.
pub(crate) fn split(loss: Loss, signals: &Signals) -> io::Result<Side> {
    let (to, from) = UnixDatagram::pair()?;
    from.set_nonblocking(true)?;
    let calls = if loss == Loss::TakenOver { Some(Arc::new(NotedCalls::new()?)) } else { None };
    if loss == Loss::TakenOver {
        // Before there is a launcher that may be killed at once.
        process::become_subreaper();
    }
    let pid = std::process::id();
    match process::split()? {
        None => {
            let reaper = if loss == Loss::Ends { Some(reaper::split(pid, signals)?) } else { None };
            if loss == Loss::GoesOn {
                // Whoever kills the process that he has started wants no other to go on.
                process::at_parents_end(ParentsEnd::Kills);
            }
            let guarded = Guarded { pid, guard: to, calls, reaper };
            if loss != Loss::TakenOver && !guarded.has_parent() {
                // Nobody is left who would ask for the status.
                process::end_at_once(1);
            }
            if guarded.reaper.is_some() {
                guarded.tell(LAUNCHER, std::process::id());
            }
            Ok(Side::Launcher(guarded))
        }
        Some(child) => {
            process::no_core_for_us();
            process::close_inherited();
            Ok(Side::Guard(Guard { child, launcher: child, from, calls, program: None }))
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
        match &self.reaper {
            Some(reaper) => reaper.tell_end(),
            None => process::at_parents_end(ParentsEnd::Ignored),
        }
        self.tell(END, status as u32);
        // It looks when a signal has come.
        self.signal(libc::SIGCHLD);
    }

    fn tell(&self, what: u8, value: u32) {
        let [a, b, c, d] = value.to_le_bytes();
        if let Err(e) = self.guard.send(&[what, a, b, c, d]) {
            debug!(error = %e, what, "the guard is not told: {e}");
        }
    }

    /// Ends the program and this process if the reaper was killed, where there is one.
    pub(crate) fn end_without_reaper(&self) {
        if let Some(reaper) = &self.reaper {
            reaper.end_without_reaper();
        }
    }

    /// Stops the guard, for whoever has started it to see that the program is stopped, or continues it.
    pub(crate) fn follow(&self, stopped: bool) {
        self.signal(if stopped { libc::SIGSTOP } else { libc::SIGCONT });
    }

    fn signal(&self, signal: i32) {
        // If it was killed we have another parent, or the reaper, which has another one, ends.
        if self.has_parent() {
            process::kill(self.pid, signal);
        }
    }

    /// Whether this process's parent is still the one that it began with.
    fn has_parent(&self) -> bool {
        self.reaper.as_ref().map_or_else(|| process::parent() == self.pid, Reaper::lives)
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
            let signal = signals.wait();
            if let Some(status) = self.receive() {
                return Duty::Over { status, started: true };
            }
            match signal {
                // The program goes on, and so do we.
                Signal::Sent { signal: libc::SIGCONT, from } if from == self.launcher => {}
                Signal::Sent { signal, .. } => process::kill(self.child, signal),
                // The program is not told by the kernel.
                Signal::Terminal(libc::SIGHUP) if process::leads_session() => process::kill(self.child, libc::SIGHUP),
                Signal::Terminal(_) => {}
                Signal::Child => {
                    let program = self.program.as_ref().map_or(self.child, |(pid, _)| *pid);
                    while let Some((who, change)) = process::changed_of(&[self.child, program]) {
                        let Some(status) = status_of(change) else { continue };
                        match (who == self.child, change) {
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
                (LAUNCHER, _) => self.launcher = value,
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
