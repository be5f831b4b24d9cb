//! The state of a core's thread that workers look at when they submit bursts.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

/// Counters of a core.
#[derive(Debug, Default)]
pub(in crate::device) struct CryptoCounters {
    pub(super) bursts: AtomicU64,
    pub(super) packets: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Busy time of the thread.
    pub(super) busy_ns: AtomicU64,
    /// Jobs whose state had been deleted.
    pub(super) no_key: AtomicU64,
    /// Bursts that had to wait because a queue was full.
    pub(super) full: AtomicU64,
}

/// Wakes the thread, and counts deleted states.
pub(super) struct Signal {
    /// The number of deletions so far. It is read and changed under the engine's lock, which is held when bursts are
    /// submitted, too.
    pub(super) given_back: AtomicU64,
    pub(super) thread: OnceLock<Thread>,
    pub(super) sleeping: AtomicBool,
    pub(super) counters: Arc<CryptoCounters>,
}

impl Signal {
    /// Makes the signal of a thread that does not run yet.
    pub(super) fn new(counters: Arc<CryptoCounters>) -> Self {
        let (given_back, sleeping) = (AtomicU64::new(0), AtomicBool::new(false));
        Signal { given_back, thread: OnceLock::new(), sleeping, counters }
    }

    /// Wakes the thread if it sleeps.
    pub(super) fn wake(&self) {
        // Either a thread that is about to sleep sees the burst, or this sees that it sleeps.
        fence(SeqCst);
        if self.sleeping.load(Relaxed) && self.sleeping.swap(false, AcqRel) {
            self.thread.get().inspect(|thread| thread.unpark());
        }
    }

    /// Wakes the thread in any case.
    pub(super) fn wake_always(&self) {
        self.sleeping.store(false, Release);
        self.thread.get().inspect(|thread| thread.unpark());
    }
}
