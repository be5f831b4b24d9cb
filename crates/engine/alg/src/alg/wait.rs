//! Sleeping until a socket changes.

use crate::host::{Host, Task};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;
use lock_api::{MutexGuard, RawMutex};
use sealane_abi::Errno;

/// A word that changes with the socket while it is watched.
pub(crate) struct Change {
    word: AtomicU32,
    watchers: AtomicU32,
}

/// A watch on a socket. While it lives, every change of the socket changes [`Self::word`] and wakes the threads that
/// sleep on it.
pub struct Watch<'a> {
    change: &'a Change,
    seen: u32,
}

impl Watch<'_> {
    /// The word to sleep on.
    #[must_use]
    pub fn word(&self) -> &AtomicU32 {
        &self.change.word
    }

    /// Its value when the watch began: sleep while it is this.
    #[must_use]
    pub fn seen(&self) -> u32 {
        self.seen
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.change.watchers.fetch_sub(1, SeqCst);
    }
}

impl Change {
    pub(crate) fn new() -> Self {
        Change { word: AtomicU32::new(0), watchers: AtomicU32::new(0) }
    }

    pub(crate) fn watch(&self) -> Watch<'_> {
        self.watchers.fetch_add(1, SeqCst);
        Watch { change: self, seen: self.word.load(SeqCst) }
    }

    /// Tells the watchers; called with the socket locked, after its state has changed.
    ///
    /// A watcher registers before it looks at the state under the same lock, so that every later change finds it
    /// registered. Without watchers the cost is this load.
    pub(crate) fn tell(&self, host: &dyn Host) {
        if self.watchers.load(SeqCst) != 0 {
            self.word.fetch_add(1, SeqCst);
            host.wake(&self.word);
        }
    }

    /// Sleeps, with the lock released, until `ready`.
    ///
    /// # Errors
    /// [`Errno::EINTR`] when a signal came and `ready` does not hold.
    pub(crate) fn wait_until<L: RawMutex, T>(
        &self,
        task: &dyn Task,
        guard: &mut MutexGuard<'_, L, T>,
        ready: impl Fn(&T) -> bool,
    ) -> Result<(), Errno> {
        loop {
            if ready(guard) {
                return Ok(());
            }
            let watch = self.watch();
            let slept = MutexGuard::unlocked(guard, || task.wait(watch.word(), watch.seen()));
            drop(watch);
            if !ready(guard) {
                slept?;
            }
        }
    }
}
