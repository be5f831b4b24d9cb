//! Whom others wake when they have put something into a ring for it.

use sealane_sys::poll::Waker;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

/// A thread that sleeps now and then.
pub(crate) struct Doorbell {
    waker: Arc<Waker>,
    sleeping: AtomicBool,
}

impl Doorbell {
    /// One that is awake.
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Doorbell { waker, sleeping: AtomicBool::new(false) }
    }

    /// It is about to sleep: from now on it is woken. What was put into its rings before this returns it has to look for itself.
    pub(crate) fn arm(&self) {
        self.sleeping.store(true, Relaxed);
        fence(SeqCst);
    }

    /// It is awake.
    pub(crate) fn disarm(&self) {
        self.sleeping.store(false, Relaxed);
    }

    /// Wakes it where it sleeps. What was put into its ring is seen by a thread that is about to sleep, or that it sleeps is seen
    /// here.
    pub(crate) fn tell(&self) {
        fence(SeqCst);
        if self.sleeping.load(Relaxed) && self.sleeping.swap(false, AcqRel) {
            self.waker.wake();
        }
    }

    /// Wakes it whatever it does.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// What it is woken by.
    #[cfg(test)]
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}
