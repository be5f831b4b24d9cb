//! The places of contexts that C has freed and that are used again.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The number of places: one for each digest.
pub(super) const PLACES: usize = 14;

/// A place for one context: programs that hash many short texts make a context for each. No lock, and nothing to wait for: a thread
/// that has it when the program forks is not there in the child.
#[derive(Default)]
pub(super) struct Spare(AtomicPtr<c_void>);

impl Spare {
    /// Takes the context out, or null.
    pub(super) fn take(&self) -> *mut c_void {
        self.0.swap(ptr::null_mut(), Ordering::Acquire)
    }

    /// Puts a context in, which nobody else uses from then on, and returns whether there was room.
    pub(super) fn put(&self, context: *mut c_void) -> bool {
        self.0.compare_exchange(ptr::null_mut(), context, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

/// The places of one load of the provider, all of whose contexts are of that load. Whoever unloads it frees them.
#[derive(Default)]
pub(crate) struct Spares(pub(super) [Spare; PLACES]);
