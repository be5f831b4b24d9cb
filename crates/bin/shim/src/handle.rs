//! Open sockets, each shared by every descriptor that dup or SCM_RIGHTS made from it, and by fork (share.rs).

use crate::home::Home;
use crate::lock::{Lock, RawLock};
use crate::tie::Tie;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sealane_engine_alg::{alg, front};

/// The object behind a descriptor.
pub(crate) type Object = front::Object<RawLock>;

/// The transform of a socket, and what its operations have of it.
pub(crate) type Family = alg::Family<RawLock>;

/// An open socket.
pub(crate) struct Handle {
    pub(crate) refs: AtomicU32,
    pub(crate) object: UnsafeCell<Option<Object>>,
    /// O_NONBLOCK, which the kernel keeps with the open file too.
    pub(crate) nonblock: AtomicBool,
    /// Whether it has been polled, so that the stand-in's readiness must follow the engine's.
    pub(crate) polled: AtomicBool,
    /// The stand-in's readiness.
    pub(crate) standin: Lock<Standin>,
    /// A buffer for spliced bytes.
    pub(crate) bounce: Lock<Vec<u8>>,
    /// The memory of the socket.
    pub(crate) home: Home,
    /// The tie to other processes that have it.
    pub(crate) tie: Tie,
    /// The next handle without references; of use while this one has none.
    pub(crate) next_free: AtomicU32,
}

impl Handle {
    /// The object; none while the handle has no references. For those who have one, or while no other thread is inside.
    pub(crate) fn object(&self) -> Option<&Object> {
        // SAFETY: it is written while the handle is on no table, and taken by whoever gives the last reference back.
        unsafe { (*self.object.get()).as_ref() }
    }

    /// Keeps O_NONBLOCK of the open file.
    pub(crate) fn set_nonblock(&self, on: bool) {
        self.nonblock.store(on, Ordering::Relaxed);
    }
}

// SAFETY: `object` changes only while the count is zero and the handle is off every table, or when the last reference
// is given back; everything else is atomic or locked.
unsafe impl Sync for Handle {}

/// The kind and readiness of a stand-in.
#[derive(Clone, Copy, Default)]
pub(crate) struct Standin {
    /// Whether it can become ready: transforms, hash and rng operations cannot (the kernel has no poll for them).
    pub(crate) lively: bool,
    /// Whether it has been set up to show readiness.
    pub(crate) prepared: bool,
    /// The events that it shows now.
    pub(crate) shown: u32,
    /// The random prefix of the messages that it accepts.
    pub(crate) cookie: [u8; 8],
}

impl Standin {
    /// A stand-in that never becomes ready, or one that follows the engine.
    pub(crate) fn new(lively: bool) -> Self {
        Standin { lively, ..Standin::default() }
    }
}
