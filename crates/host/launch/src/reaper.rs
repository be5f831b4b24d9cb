//! The reaper of a launcher whose program cannot go on without it: a process between the launcher and its guard. If the
//! launcher is killed all processes of the program fall to the reaper, which ends them. When program and guard have ended
//! it goes on with the launcher, for processes that the program has left.

use sealane_sys::process::{self, Change, ParentsEnd, Signal, Signals};
use std::io;
use std::os::unix::net::UnixDatagram;
use tracing::{debug, error, warn};

/// The launcher's side.
pub(crate) struct Reaper {
    /// The reaper's id.
    pid: u32,
    to: UnixDatagram,
}

/// Puts a reaper between this process, which goes on as the reaper's child, and its parent, the guard.
///
/// # Errors
/// The kernel's.
pub(crate) fn split(guard: u32, signals: &Signals) -> io::Result<Reaper> {
    let (to, from) = UnixDatagram::pair()?;
    from.set_nonblocking(true)?;
    let pid = std::process::id();
    // Before there is a launcher that may be killed at once.
    process::become_subreaper();
    process::at_parents_end(ParentsEnd::Told);
    if let Some(launcher) = process::split()? {
        process::close_inherited();
        live(launcher, guard, &from, signals);
    }
    process::at_parents_end(ParentsEnd::Told);
    // Orphans of the program would be the reaper's children, and lost with it.
    process::become_subreaper();
    Ok(Reaper { pid, to })
}

/// The reaper's life.
fn live(launcher: u32, guard: u32, from: &UnixDatagram, signals: &Signals) -> ! {
    let mut has_guard = true;
    loop {
        match process::changed(launcher) {
            Some(Change::Exited(status)) => process::end_at_once(status),
            Some(Change::Killed(signal)) => {
                end_all("the launcher");
                process::end_at_once(128 + signal);
            }
            Some(Change::Stopped | Change::Continued) => continue,
            None => {}
        }
        if has_guard && process::parent() != guard {
            // The launcher tells us of the program's end first.
            if from.recv(&mut [0]).is_err() {
                // It ends all when it has lost us.
                process::end_at_once(128 + libc::SIGKILL);
            }
            has_guard = false;
            if let Err(e) = process::leave_foreground() {
                debug!(error = %e, "the terminal and the folder stay in use: {e}");
            }
        }
        // Those of others are sent to the launcher, too.
        if let Signal::Sent { signal, from } = signals.wait()
            && from == guard
        {
            process::kill(launcher, signal);
        }
    }
}

/// Ends the processes of a program that nobody serves any more.
fn end_all(killed: &str) {
    match process::end_children() {
        Ok(0) => {}
        Ok(count) => warn!(count, "{killed} was killed: the program cannot go on, and was ended ({count} processes)"),
        Err(e) => {
            error!(error = %e, "{killed} was killed: the program cannot go on, and not all of it could be ended: {e}")
        }
    }
}

impl Reaper {
    /// Whether the reaper is this process's parent.
    pub(crate) fn lives(&self) -> bool {
        process::parent() == self.pid
    }

    /// Tells the reaper that the program has ended, and that the guard ends with it.
    pub(crate) fn tell_end(&self) {
        if let Err(e) = self.to.send(&[0]) {
            debug!(error = %e, "the reaper is not told of the program's end: {e}");
        }
    }

    /// Ends the program and this process if the reaper was killed. What this process has done for connections stays, as if
    /// it had been killed itself.
    pub(crate) fn end_without_reaper(&self) {
        if !self.lives() {
            end_all("the launcher's guard or reaper");
            process::end_at_once(128 + libc::SIGKILL);
        }
    }
}
