//! The record of one process and its descriptors.

use crate::handle::Handle;
use crate::lock::{Lock, RawLock};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use lock_api::RawMutex as _;
use std::collections::VecDeque;

pub(crate) const FANOUT: usize = 1024;
pub(crate) type Leaf = [AtomicPtr<Handle>; FANOUT];

/// Completed asynchronous operations of one AIO context.
pub(crate) struct AioQueue {
    pub(crate) context: usize,
    pub(crate) done: VecDeque<[u64; 4]>,
}

/// One process and its descriptors.
pub(crate) struct Process {
    pub(crate) pid: AtomicU32,
    /// When it started, in clock ticks since boot: tells it from a later process with its id.
    pub(crate) started: AtomicU64,
    /// Monotonic seconds at which the record was made.
    pub(crate) born_s: u64,
    /// Held while the table changes.
    pub(crate) changing: RawLock,
    pub(crate) top: [AtomicPtr<Leaf>; FANOUT],
    pub(crate) aio: Lock<Vec<AioQueue>>,
    /// It has given back its references and shares this arena no longer.
    pub(crate) left: AtomicBool,
    /// The next process that shares the arena.
    pub(crate) next: AtomicPtr<Process>,
}

/// A record without descriptors.
pub(crate) fn empty() -> Box<Process> {
    Box::new(Process {
        pid: AtomicU32::new(0),
        started: AtomicU64::new(0),
        born_s: now_s(),
        changing: RawLock::INIT,
        top: [const { AtomicPtr::new(core::ptr::null_mut()) }; FANOUT],
        aio: Lock::new(Vec::new()),
        left: AtomicBool::new(false),
        next: AtomicPtr::new(core::ptr::null_mut()),
    })
}

fn now_s() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64
}

impl Process {
    /// Its id; 0 for a child that has not started running.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Acquire)
    }

    /// When it started, in clock ticks since boot; 0 if unknown.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// Age of the record in seconds.
    pub(crate) fn age_s(&self) -> u64 {
        now_s().saturating_sub(self.born_s)
    }
}
