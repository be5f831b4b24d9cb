//! Wakes a consumer thread, only if it sleeps.

use sealane_sys::poll::Waker;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

/// The doorbell of a thread that reads rings.
pub(crate) struct Doorbell {
    waker: Arc<Waker>,
    sleeping: AtomicBool,
}

impl Doorbell {
    /// Makes the doorbell of a thread that is awake.
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Doorbell { waker, sleeping: AtomicBool::new(false) }
    }

    /// Asks to be woken, as the thread is about to sleep. After this it must look at its rings once more.
    pub(crate) fn arm(&self) {
        self.sleeping.store(true, Relaxed);
        fence(SeqCst);
    }

    /// Asks the others not to wake this thread any more.
    pub(crate) fn disarm(&self) {
        self.sleeping.store(false, Relaxed);
    }

    /// Wakes the thread if it sleeps. Either a thread that is about to sleep sees the new entry, or this sees that it
    /// sleeps.
    pub(crate) fn ring(&self) {
        fence(SeqCst);
        if self.sleeping.load(Relaxed) && self.sleeping.swap(false, AcqRel) {
            self.waker.wake();
        }
    }

    /// Wakes the thread in any case.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// The thread's waker.
    #[cfg(test)]
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}
