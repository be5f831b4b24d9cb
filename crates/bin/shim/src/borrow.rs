//! Counted references to handles, and the end of a handle.

use crate::arena::{self, Arena};
use crate::handle::{Family, Handle, Object};
use crate::home::COMMONS;
use crate::tie;
use core::sync::atomic::Ordering;

/// A counted reference to a handle.
pub(crate) struct Borrow(*mut Handle);

impl Borrow {
    /// Takes a reference to a handle; none if the socket is closed.
    #[inline]
    pub(crate) fn of(handle: &'static Handle) -> Option<Borrow> {
        let mut seen = handle.refs.load(Ordering::Relaxed);
        while seen != 0 {
            match handle.refs.compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Borrow(core::ptr::from_ref(handle).cast_mut())),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// The object of the handle.
    pub(crate) fn object(&self) -> &Object {
        Handle::object(self).expect("a counted handle has an object")
    }

    /// The handle's address.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut Handle {
        self.0
    }

    /// Forgets the reference without releasing it: the count stays as it is.
    pub(crate) fn into_raw(self) -> *mut Handle {
        core::mem::ManuallyDrop::new(self).0
    }

    /// Takes over a reference from [`Self::into_raw`].
    ///
    /// # Safety
    /// The caller must own the reference, and may pass it here only once.
    pub(crate) unsafe fn from_raw(handle: *mut Handle) -> Borrow {
        Borrow(handle)
    }
}

impl core::ops::Deref for Borrow {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        // SAFETY: handles are never unmapped, and ours is counted.
        unsafe { &*self.0 }
    }
}

impl Drop for Borrow {
    fn drop(&mut self) {
        // SAFETY: this reference is given back once.
        unsafe { release(self.0) }
    }
}

/// Releases one reference; the release of the last one drops the socket.
///
/// # Safety
/// The caller must own the reference, and does not own it afterwards.
pub(crate) unsafe fn release(handle: *mut Handle) {
    // SAFETY: handles are never unmapped.
    let h = unsafe { &*handle };
    if h.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
        let family = h.object().and_then(Object::family);
        // SAFETY: nobody else has a reference, and lookups refuse a count of zero.
        drop(unsafe { (*h.object.get()).take() });
        publish_for(h, family.as_ref());
        drop(family);
        let mut bounce = h.bounce.lock();
        zeroize::Zeroize::zeroize(&mut *bounce);
        *bounce = Vec::new();
        drop(bounce);
        if let Some(arena) = arena::existing() {
            leave_home(arena, arena.index_of(handle));
        }
    }
}

/// Gives back one use of a home: its handle's, or that of a socket that was accepted from its socket. With the last one the
/// handle ends, and the home is wiped.
pub(crate) fn leave_home(arena: &Arena, mut index: u32) {
    while index > COMMONS {
        let home = arena.home(index);
        if home.users.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: every home but the commons is a handle's, and handles are never unmapped.
        unsafe { &*arena.handle(index) }.tie.end();
        let parent = home.parent.load(Ordering::Relaxed);
        home.clear(&arena.pages);
        arena.give_handle(index);
        index = parent;
    }
}

/// The handle of the transform that an operation was accepted from. It lives as long as the operation's.
pub(crate) fn transform_of(handle: &Handle) -> Option<&'static Handle> {
    let parent = handle.home.parent.load(Ordering::Relaxed);
    let arena = arena::existing().filter(|_| parent > COMMONS)?;
    // SAFETY: handles are never unmapped.
    Some(unsafe { &*arena.handle(parent) })
}

/// Tells other processes how many operations of a transform this one has.
pub(crate) fn publish(transform: &Handle, family: &Family) {
    if let Some(cell) = transform.tie.tied() {
        cell.count(transform.tie.place.load(Ordering::Relaxed), family.counts());
    }
}

/// Tells other processes how many operations of an operation's transform this one has.
pub(crate) fn publish_for(operation: &Handle, family: Option<&Family>) {
    if tie::any()
        && let (Some(transform), Some(family)) = (transform_of(operation), family)
    {
        publish(transform, family);
    }
}
