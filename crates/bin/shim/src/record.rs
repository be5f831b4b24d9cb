//! The record of this process's descriptors.

use crate::handle::Handle;
use crate::lock::{Lock, RawLock};
use core::sync::atomic::AtomicPtr;
use lock_api::RawMutex as _;
use std::collections::VecDeque;

pub(crate) const FANOUT: usize = 1024;
pub(crate) type Leaf = [AtomicPtr<Handle>; FANOUT];

/// Completed asynchronous operations of one AIO context.
pub(crate) struct AioQueue {
    pub(crate) context: usize,
    pub(crate) done: VecDeque<[u64; 4]>,
}

/// One process and its descriptors. A child of fork has a copy.
pub(crate) struct Process {
    /// Held while the table changes.
    pub(crate) changing: RawLock,
    pub(crate) top: [AtomicPtr<Leaf>; FANOUT],
    pub(crate) aio: Lock<Vec<AioQueue>>,
}

/// A record without descriptors.
pub(crate) fn empty() -> Box<Process> {
    Box::new(Process {
        changing: RawLock::INIT,
        top: [const { AtomicPtr::new(core::ptr::null_mut()) }; FANOUT],
        aio: Lock::new(Vec::new()),
    })
}
