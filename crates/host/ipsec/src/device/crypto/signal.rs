//! The state of a core's thread that workers look at when they submit bursts.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

/// What a core has counted.
#[derive(Debug, Default)]
pub(in crate::device) struct CryptoCounters {
    pub(super) bursts: AtomicU64,
    pub(super) packets: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Time of the thread, waiting aside.
    pub(super) busy_ns: AtomicU64,
    /// Jobs whose state had been given back.
    pub(super) no_key: AtomicU64,
    /// Bursts of workers that had to wait.
    pub(super) full: AtomicU64,
}

/// Wakes the thread, and says how many states have been given back.
pub(super) struct Signal {
    /// How many states have been given back. It is read and changed under the engine's lock, by which bursts are submitted too.
    pub(super) given_back: AtomicU64,
    pub(super) thread: OnceLock<Thread>,
    pub(super) sleeping: AtomicBool,
    pub(super) counters: Arc<CryptoCounters>,
}

impl Signal {
    /// That of a thread which is not there yet.
    pub(super) fn new(counters: Arc<CryptoCounters>) -> Self {
        let (given_back, sleeping) = (AtomicU64::new(0), AtomicBool::new(false));
        Signal { given_back, thread: OnceLock::new(), sleeping, counters }
    }

    /// Wakes the thread where it sleeps.
    pub(super) fn wake(&self) {
        // What was submitted is seen by a thread that is about to sleep, or that it sleeps is seen here.
        fence(SeqCst);
        if self.sleeping.load(Relaxed) && self.sleeping.swap(false, AcqRel) {
            self.thread.get().inspect(|thread| thread.unpark());
        }
    }

    /// Wakes the thread whatever it does.
    pub(super) fn wake_always(&self) {
        self.sleeping.store(false, Release);
        self.thread.get().inspect(|thread| thread.unpark());
    }
}
