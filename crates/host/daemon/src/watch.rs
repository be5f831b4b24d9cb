//! The watch over all threads: one that hangs is noticed here, and the service manager is told here that none does.
//!
//! It is a thread of its own that waits for no lock of others. Where even that thread is stuck, the service manager hears
//! nothing (`WatchdogSec=`) and starts everything again.

use crate::failures::{self, Reason};
use sealane_sys::life::{Hung, LOOK, Watcher};
use sealane_sys::process::{self, Successor};
use sealane_sys::transient;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// The most time for telling and counting a failure: whoever reads the messages may hang, too.
const WORDS: Duration = Duration::from_secs(1);
/// The number of looks after which the main thread has had time enough to handle a failure.
const PATIENCE: u32 = 20;

/// Whether the daemon is about to end as it should.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Ends the watch: what happens from now on may take as long as it wants.
pub(crate) fn end() {
    ENDING.store(true, Ordering::Release);
}

/// The way by which everything is started again.
pub(crate) struct Recovery {
    /// Takes the place of this process.
    pub(crate) successor: Successor,
    /// Whether the service manager has the states, and gives them to the process that it starts.
    pub(crate) is_managed: bool,
    /// The folder of the counts.
    pub(crate) folder: PathBuf,
}

impl Recovery {
    /// Starts everything again, from any thread, whatever the others do.
    fn recover(&self) -> ! {
        if !self.is_managed {
            self.successor.take_over();
        }
        process::end_at_once(1)
    }
}

/// Starts the watch.
///
/// # Errors
/// The kernel's.
pub(crate) fn start(recovery: Arc<Recovery>) -> io::Result<()> {
    let within = process::watchdog();
    let work = move || {
        let mut watcher = Watcher::new();
        let (mut failed, mut told) = (0, None::<Instant>);
        loop {
            std::thread::sleep(LOOK);
            if ENDING.load(Ordering::Acquire) {
                return;
            }
            if let Some(hung) = watcher.look() {
                tell(hung, &recovery);
                recovery.recover();
            }
            failed += u32::from(failures::noted().is_some());
            if failed > PATIENCE {
                recovery.recover();
            }
            // Four times as often as the manager wants it.
            if let Some(within) = within
                && failed == 0
                && told.is_none_or(|at| at.elapsed() + LOOK > within / 4)
            {
                told = Some(Instant::now());
                process::notify("WATCHDOG=1");
            }
        }
    };
    std::thread::Builder::new().name("sealane-watch".into()).spawn(work).map(drop)
}

/// Reports and counts a thread that hangs.
fn tell(hung: Hung, recovery: &Arc<Recovery>) {
    let (done, wait) = channel();
    let counted = recovery.clone();
    let words = move || {
        let Hung { name, looks, state } = hung;
        let ms = looks * LOOK.as_millis() as u32;
        error!(thread = name, ms, %state, "the thread {name} hangs for {ms} ms (state {state}): starting again");
        failures::count(&counted.folder, Reason::Hang);
        let _ = done.send(());
    };
    if std::thread::Builder::new().name("sealane-words".into()).spawn(words).is_ok() {
        let _ = wait.recv_timeout(WORDS);
    }
}

/// Reports errors of the kernel that pass by themselves, once for each time that they begin.
pub(crate) struct Transients(Vec<(&'static str, u64, bool)>);

impl Transients {
    /// Reports those from now on.
    pub(crate) fn new() -> Self {
        Transients(transient::counts().map(|(name, count)| (name, count, false)).collect())
    }

    /// Reports what has begun since the last call. What goes on is told again when it has paused.
    pub(crate) fn look(&mut self) {
        for ((name, before, is_told), (_, now)) in self.0.iter_mut().zip(transient::counts()) {
            let new = now - core::mem::replace(before, now);
            if new > 0 && !*is_told {
                warn!(
                    errno = *name,
                    count = new,
                    "the kernel lacks memory or room ({name}): what failed is tried again"
                );
            }
            *is_told = new > 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time by a clock goes on while a machine is paused: systemd does not end the daemon sooner than the daemon itself
    /// would, after the 30 s that a thread may take for a request.
    #[test]
    fn the_unit_waits_as_long_as_we_do() {
        let unit = include_str!("../../../../etc/sealane.service");
        let seconds = unit.lines().find_map(|line| line.strip_prefix("WatchdogSec="));
        let within = Duration::from_secs(seconds.expect("a watchdog").parse().expect("seconds"));
        assert!(within >= Duration::from_secs(30), "{within:?}");
        assert!(within / 4 > LOOK, "told of at each look");
    }
}
