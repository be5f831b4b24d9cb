//! The guard of a launcher: its parent, which does nothing as long as the launcher lives, and takes its place when it is
//! killed. So a program that a daemon serves outlives its launcher, whichever of the two processes is killed.
//!
//! ```text
//! guard ─ launcher ─ program        the guard passes signals on, and has the listener and a note of calls under way
//! guard ─ program                   the launcher was killed: the guard serves the program
//!         launcher ─ program        the guard was killed: nothing changes
//! ```

use sealane_sys::noted_calls::NotedCalls;
use sealane_sys::process::{self, Change, Signal, Signals};
use sealane_sys::seccomp::Listener;
use sealane_sys::unix;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use tracing::{debug, warn};

/// The process that goes on after [`split`].
pub(crate) enum Side {
    /// The launcher.
    Launcher(Guarded),
    /// Its guard.
    Guard(Guard),
}

/// The launcher's connection to its guard.
pub(crate) struct Guarded {
    guard: UnixDatagram,
    calls: Arc<NotedCalls>,
}

/// The guard.
pub(crate) struct Guard {
    launcher: u32,
    from: UnixDatagram,
    calls: Arc<NotedCalls>,
    /// The program and its listener, as soon as the launcher has told of them.
    program: Option<(u32, OwnedFd)>,
}

/// The end of a guard's duty.
pub(crate) enum Duty {
    /// The launcher has ended with this status. Whether it had started the program.
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
pub(crate) fn split() -> io::Result<Side> {
    let (to, from) = UnixDatagram::pair()?;
    from.set_nonblocking(true)?;
    let calls = Arc::new(NotedCalls::new()?);
    match process::split()? {
        None => Ok(Side::Launcher(Guarded { guard: to, calls })),
        Some(launcher) => {
            process::become_subreaper();
            process::no_core_for_us();
            Ok(Side::Guard(Guard { launcher, from, calls, program: None }))
        }
    }
}

impl Guarded {
    /// Tells the guard of the program.
    pub(crate) fn tell(&self, pid: u32, listener: &Listener) {
        if let Err(e) = unix::send_with(&self.guard, &pid.to_le_bytes(), Some(listener.as_fd())) {
            debug!(error = %e, "the guard is not told of the program: {e}");
        }
    }

    /// The place for calls under way.
    pub(crate) fn calls(&self) -> Arc<NotedCalls> {
        self.calls.clone()
    }
}

impl Guard {
    /// Passes signals on until the launcher ends.
    pub(crate) fn stand_by(mut self, signals: &Signals) -> Duty {
        let mut ended = None;
        loop {
            match signals.wait() {
                Signal::Sent(signal) => process::kill(self.launcher, signal),
                Signal::Terminal => {}
                Signal::Child => {
                    self.receive();
                    let program = self.program.as_ref().map_or(self.launcher, |(pid, _)| *pid);
                    while let Some((who, change)) = process::changed_of(&[self.launcher, program]) {
                        let status = match change {
                            Change::Exited(status) => status,
                            Change::Killed(signal) => 128 + signal,
                            Change::Stopped => {
                                // Stopped from the keyboard, with its program.
                                process::stop_self();
                                process::kill(who, libc::SIGCONT);
                                continue;
                            }
                        };
                        match (who == self.launcher, change) {
                            (false, _) => ended = Some(status),
                            (true, Change::Killed(_)) => {
                                let Some((pid, listener)) = self.program else {
                                    return Duty::Over { status, started: false };
                                };
                                // It was told of in between, and may have ended in between.
                                let gone = || process::changed(pid).and_then(status_of);
                                let ended = ended.or_else(gone);
                                warn!(pid, "the launcher was killed: its guard serves the program");
                                let listener = Listener::new(listener);
                                return Duty::TakeOver(Orphan { pid, listener, calls: self.calls, ended });
                            }
                            (true, _) => return Duty::Over { status, started: self.program.is_some() },
                        }
                    }
                }
            }
        }
    }

    fn receive(&mut self) {
        let mut bytes = [0; 4];
        if let Ok((4, Some(listener))) = unix::receive_with(&self.from, &mut bytes) {
            self.program = Some((u32::from_le_bytes(bytes), listener));
        }
    }
}

/// The exit status of a process that has ended.
pub(crate) fn status_of(change: Change) -> Option<i32> {
    match change {
        Change::Exited(status) => Some(status),
        Change::Killed(signal) => Some(128 + signal),
        Change::Stopped => None,
    }
}
