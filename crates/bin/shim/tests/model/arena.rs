//! A few handles, and a table of descriptors.

use crate::atomic::{AtomicPtr, AtomicU32};
use crate::borrow::{Borrow, release};
use crate::handle::{Handle, Object};
use crate::home::{COMMONS, Home};
use core::sync::atomic::Ordering::SeqCst;

const HANDLES: u32 = 3;

pub(crate) struct Arena {
    pub(crate) pages: (),
    pub(crate) next_handle: AtomicU32,
    handles: Vec<Handle>,
    descriptors: Vec<AtomicPtr<Handle>>,
}

thread_local! {
    static ARENA: &'static Arena = Box::leak(Box::new(Arena {
        pages: (),
        next_handle: AtomicU32::new(COMMONS + 1 + HANDLES),
        handles: (0..HANDLES).map(|_| Handle::new()).collect(),
        descriptors: (0..4).map(|_| AtomicPtr::new(core::ptr::null_mut())).collect(),
    }));
}

pub(crate) fn existing() -> Option<&'static Arena> {
    Some(ARENA.with(|arena| *arena))
}

impl Arena {
    pub(crate) fn handle(&self, index: u32) -> *mut Handle {
        core::ptr::from_ref(&self.handles[(index - COMMONS - 1) as usize]).cast_mut()
    }

    pub(crate) fn index_of(&self, handle: *const Handle) -> u32 {
        ((handle as usize - self.handles.as_ptr() as usize) / size_of::<Handle>()) as u32 + COMMONS + 1
    }

    pub(crate) fn home(&self, index: u32) -> &Home {
        // SAFETY: one of ours.
        unsafe { &(*self.handle(index)).home }
    }

    pub(crate) fn give_handle(&self, index: u32) {
        // SAFETY: one of ours.
        let handle = unsafe { &*self.handle(index) };
        crate::world::must(handle.tie.cell().is_none(), "a handle ends with a cell");
    }

    /// The handle of an object.
    pub(crate) fn of(&'static self, object: &Object) -> Option<&'static Handle> {
        self.handles.iter().find(|h| {
            core::ptr::from_ref(*h).addr() <= core::ptr::from_ref(object).addr()
                && core::ptr::from_ref(object).addr() < core::ptr::from_ref(*h).addr() + size_of::<Handle>()
        })
    }

    /// Opens a socket at a descriptor, which is accepted from that of another handle unless `parent` is 0.
    pub(crate) fn open(&'static self, index: u32, parent: u32, fd: usize) {
        // SAFETY: one of ours.
        let handle = unsafe { &*self.handle(index) };
        handle.home.users.store(1, SeqCst);
        handle.home.parent.store(parent, SeqCst);
        if parent != 0 {
            self.home(parent).users.fetch_add(1, SeqCst);
        }
        handle.object.open();
        handle.refs.store(1, SeqCst);
        self.descriptors[fd].store(core::ptr::from_ref(handle).cast_mut(), SeqCst);
    }

    /// One more descriptor for a socket.
    pub(crate) fn duplicate(&'static self, from: usize, to: usize) {
        let borrow = self.borrow(from).expect("a descriptor");
        self.descriptors[to].store(borrow.into_raw(), SeqCst);
    }

    /// As table.rs does.
    pub(crate) fn borrow(&'static self, fd: usize) -> Option<Borrow> {
        loop {
            let handle = self.descriptors[fd].load(SeqCst);
            // SAFETY: null or one of ours.
            let Some(borrow) = Borrow::of(unsafe { handle.as_ref() }?) else { continue };
            if self.descriptors[fd].load(SeqCst) == handle {
                return Some(borrow);
            }
        }
    }

    /// As table.rs does.
    pub(crate) fn close(&'static self, fd: usize) {
        let old = self.descriptors[fd].swap(core::ptr::null_mut(), SeqCst);
        if !old.is_null() {
            // SAFETY: the table's reference, just taken out.
            unsafe { release(old) };
        }
    }
}
