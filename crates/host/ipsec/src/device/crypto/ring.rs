//! The queue of a worker: two rings whose ends wake each other.

use super::signal::Signal;
use rtrb::{Consumer, Producer, RingBuffer};
use sealane_engine_xfrm::device::crypto::{CryptoBurst, Polled, Queue};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

/// The most bursts of a worker with a core. Two keep both busy; the others make up for delays.
pub(super) const DEPTH: usize = 4;

/// The flags that both ends share.
struct RingFlags {
    /// Whether the worker is to be woken.
    armed: AtomicBool,
    /// Whether the worker has gone.
    over: AtomicBool,
}

/// The device's end.
pub(super) struct DeviceEnd {
    bursts: Consumer<(u64, Box<CryptoBurst>)>,
    back: Producer<Box<CryptoBurst>>,
    line: Arc<RingFlags>,
    wake: Box<dyn Fn() + Send>,
}

impl DeviceEnd {
    /// Takes the next burst, and the number of deletions when it was submitted.
    pub(super) fn take(&mut self) -> Option<(u64, Box<CryptoBurst>)> {
        self.bursts.pop().ok()
    }

    /// The number of deletions when the next burst was submitted, if there is one.
    pub(super) fn next(&self) -> Option<u64> {
        self.bursts.peek().ok().map(|(given_back, _)| *given_back)
    }

    pub(super) fn give(&mut self, burst: Box<CryptoBurst>) {
        // There is room: no more are in flight than fit.
        let _ = self.back.push(burst);
        fence(SeqCst);
        if self.line.armed.load(Relaxed) && self.line.armed.swap(false, AcqRel) {
            (self.wake)();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.line.over.load(Acquire)
    }

    /// Closes the end, and wakes the worker.
    pub(super) fn leave(self) {
        let DeviceEnd { bursts, back, wake, .. } = self;
        drop((bursts, back));
        wake();
    }
}

/// The worker's end.
pub(super) struct Ring {
    bursts: Producer<(u64, Box<CryptoBurst>)>,
    back: Consumer<Box<CryptoBurst>>,
    in_flight: usize,
    line: Arc<RingFlags>,
    signal: Arc<Signal>,
}

impl Ring {
    /// Both ends.
    pub(super) fn new(signal: Arc<Signal>, wake: Box<dyn Fn() + Send>) -> (Self, DeviceEnd) {
        let (there, bursts) = RingBuffer::new(DEPTH);
        let (back, here) = RingBuffer::new(DEPTH);
        let line = Arc::new(RingFlags { armed: AtomicBool::new(false), over: AtomicBool::new(false) });
        let end = DeviceEnd { bursts, back, line: line.clone(), wake };
        (Ring { bursts: there, back: here, in_flight: 0, line, signal }, end)
    }
}

impl Queue for Ring {
    fn room(&self) -> usize {
        DEPTH - self.in_flight
    }

    fn submit(&mut self, burst: Box<CryptoBurst>) -> Result<(), Box<CryptoBurst>> {
        if self.in_flight == DEPTH || self.bursts.is_abandoned() {
            return Err(burst);
        }
        let given_back = self.signal.given_back.load(Relaxed);
        self.bursts.push((given_back, burst)).map_err(|rtrb::PushError::Full((_, burst))| burst)?;
        self.in_flight += 1;
        self.signal.wake();
        Ok(())
    }

    fn poll(&mut self) -> Polled {
        match self.back.pop() {
            Ok(burst) => {
                self.in_flight -= 1;
                Polled::Burst(burst)
            }
            Err(_) if !self.back.is_abandoned() => Polled::Nothing,
            // A burst may have come back between the two looks.
            Err(_) => match self.back.pop() {
                Ok(burst) => {
                    self.in_flight -= 1;
                    Polled::Burst(burst)
                }
                Err(_) => {
                    self.in_flight = 0;
                    Polled::Gone
                }
            },
        }
    }

    fn arm(&mut self) {
        self.line.armed.store(true, Relaxed);
        fence(SeqCst);
    }

    fn count_full(&mut self) {
        self.signal.counters.full.fetch_add(1, Relaxed);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.line.over.store(true, Release);
    }
}
