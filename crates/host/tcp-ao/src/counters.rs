//! Counters of a data path.

use parking_lot::Mutex;
use sealane_abi::admin::{self, DataPath, NotFast};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of packets on their way, besides those of the engine.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Segments that came in by the fast path.
    pub(super) fast_in: AtomicU64,
    /// Segments that left by the fast path.
    pub(super) fast_out: AtomicU64,
    /// Segments that the kernel refused: no route, no room.
    pub(super) refused: AtomicU64,
    /// The number of times that a worker took the place of one that had failed.
    pub(super) restarts: AtomicU64,
    noted: Mutex<Vec<WorkerFigures>>,
}

/// The figures of one worker at its last tick.
#[derive(Debug, Default, Clone)]
pub(super) struct WorkerFigures {
    /// Connections of the fast path.
    pub(super) connections: u64,
    /// Packets that did not fit into a ring.
    pub(super) ring_drops: u64,
    /// Packets that did not fit into the queues of outbound segments and of known connections.
    pub(super) queue_drops: u64,
    /// Packets that did not fit into the queue of newcomers.
    pub(super) newcomer_drops: u64,
    /// Devices that cannot have the fast path.
    pub(super) not_fast: Vec<NotFast>,
}

impl Counters {
    /// Counters for a number of workers.
    pub(super) fn new(workers: usize) -> Self {
        Counters { noted: Mutex::new(vec![WorkerFigures::default(); workers]), ..Counters::default() }
    }

    /// Updates the figures of a worker.
    pub(super) fn note(&self, worker: usize, change: impl FnOnce(&mut WorkerFigures)) {
        if let Some(noted) = self.noted.lock().get_mut(worker) {
            change(noted);
        }
    }

    /// The status of the data path.
    pub(super) fn describe(&self, wanted: DataPath) -> admin::Path {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let noted = self.noted.lock();
        let mut not_fast: Vec<NotFast> = Vec::new();
        for one in noted.iter().flat_map(|n| &n.not_fast) {
            if not_fast.iter().all(|n| n.device != one.device) {
                not_fast.push(one.clone());
            }
        }
        admin::Path {
            wanted,
            connections: noted.iter().map(|n| n.connections).sum(),
            fast_in: value(&self.fast_in),
            fast_out: value(&self.fast_out),
            refused: value(&self.refused),
            restarts: value(&self.restarts),
            ring_drops: noted.iter().map(|n| n.ring_drops).sum(),
            queue_drops: noted.iter().map(|n| n.queue_drops).sum(),
            newcomer_drops: noted.iter().map(|n| n.newcomer_drops).sum(),
            not_fast,
        }
    }
}
