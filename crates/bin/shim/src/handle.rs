//! Open sockets, each shared by every descriptor that dup, fork or SCM_RIGHTS made from it.

use crate::lock::{Lock, RawLock};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sealane_engine_alg::front;

/// The object behind a descriptor.
pub(crate) type Object = front::Object<RawLock>;

/// An open socket.
pub(crate) struct Handle {
    pub(crate) refs: AtomicU32,
    pub(crate) object: UnsafeCell<Option<Object>>,
    /// O_NONBLOCK, which the kernel keeps with the open file too.
    pub(crate) nonblock: AtomicBool,
    /// Whether somebody has polled it, so that the stand-in's native state must follow ours from now on.
    pub(crate) polled: AtomicBool,
    /// What the stand-in shows to poll.
    pub(crate) standin: Lock<Standin>,
    /// Where spliced bytes pass through.
    pub(crate) bounce: Lock<Vec<u8>>,
}

impl Handle {
    /// Keeps O_NONBLOCK of the open file.
    pub(crate) fn set_nonblock(&self, on: bool) {
        self.nonblock.store(on, Ordering::Relaxed);
    }
}

// SAFETY: `object` changes only while the count is zero and the handle is off every table, or when the last reference
// is given back; everything else is atomic or locked.
unsafe impl Sync for Handle {}

/// Which of the two kinds it is, and what it shows.
#[derive(Clone, Copy, Default)]
pub(crate) struct Standin {
    /// Whether it is ever ready: transforms, hash and rng operations never are (kernel: they have no poll).
    pub(crate) lively: bool,
    /// Whether it has been set up to show anything at all.
    pub(crate) prepared: bool,
    /// What it shows now.
    pub(crate) shown: u32,
    /// How the messages begin that it takes; drawn by chance.
    pub(crate) cookie: [u8; 8],
}

impl Standin {
    /// One that never becomes ready, or one that follows the engine.
    pub(crate) fn new(lively: bool) -> Self {
        Standin { lively, ..Standin::default() }
    }
}
