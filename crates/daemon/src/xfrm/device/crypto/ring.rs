//! The queue of a worker: two rings, and how the ends wake each other.

use super::Core;
use rtrb::{Consumer, Producer, RingBuffer};
use sealane_engine::xfrm::device::crypto::{CryptoBurst, Polled, Queue};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

/// How many bursts a worker may have with a device. Two keep both busy; the others are for when one of them is late.
pub(super) const DEPTH: usize = 4;

/// What is in flight on a queue.
pub(super) struct Line {
    submitted: AtomicU64,
    done: AtomicU64,
    /// Whether the worker is to be woken.
    armed: AtomicBool,
    /// Whether the worker has gone.
    over: AtomicBool,
}

impl Line {
    pub(super) fn submitted(&self) -> u64 {
        self.submitted.load(Acquire)
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Acquire)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }
}

/// The device's end.
pub(super) struct End {
    bursts: Consumer<Box<CryptoBurst>>,
    back: Producer<Box<CryptoBurst>>,
    line: Arc<Line>,
    wake: Box<dyn Fn() + Send>,
}

impl End {
    pub(super) fn take(&mut self) -> Option<Box<CryptoBurst>> {
        self.bursts.pop().ok()
    }

    pub(super) fn give(&mut self, burst: Box<CryptoBurst>) {
        // There is room: no more are in flight than fit.
        let _ = self.back.push(burst);
        self.line.done.fetch_add(1, Release);
        fence(SeqCst);
        if self.line.armed.load(Relaxed) && self.line.armed.swap(false, AcqRel) {
            (self.wake)();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bursts.is_empty()
    }

    pub(super) fn is_over(&self) -> bool {
        self.line.is_over()
    }

    /// Goes, and tells the worker.
    pub(super) fn leave(self) {
        let End { bursts, back, wake, .. } = self;
        drop((bursts, back));
        wake();
    }
}

/// The worker's end.
pub(super) struct Ring {
    bursts: Producer<Box<CryptoBurst>>,
    back: Consumer<Box<CryptoBurst>>,
    in_flight: usize,
    line: Arc<Line>,
    core: Arc<Core>,
}

impl Ring {
    /// Both ends.
    pub(super) fn new(core: Arc<Core>, wake: Box<dyn Fn() + Send>) -> (Self, End, Arc<Line>) {
        let (there, bursts) = RingBuffer::new(DEPTH);
        let (back, here) = RingBuffer::new(DEPTH);
        let line = Arc::new(Line {
            submitted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let end = End { bursts, back, line: line.clone(), wake };
        (Ring { bursts: there, back: here, in_flight: 0, line: line.clone(), core }, end, line)
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
        // Before it is there: whoever waits for all that was submitted waits for this one.
        self.line.submitted.fetch_add(1, AcqRel);
        self.bursts.push(burst).map_err(|rtrb::PushError::Full(burst)| burst)?;
        self.in_flight += 1;
        self.core.wake();
        Ok(())
    }

    fn poll(&mut self) -> Polled {
        match self.back.pop() {
            Ok(burst) => {
                self.in_flight -= 1;
                Polled::Burst(burst)
            }
            Err(_) if !self.back.is_abandoned() => Polled::Nothing,
            // Something may have come between the two questions.
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
        self.core.counters.full.fetch_add(1, Relaxed);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.line.over.store(true, Release);
    }
}
