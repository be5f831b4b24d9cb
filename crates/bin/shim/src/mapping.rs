//! The memory that this process has in common with others: the cells of sockets, one mapping for each fork that made some.
//!
//! A mapping keeps its address until the last handle with a cell in it has ended. Meanwhile a change of credentials makes it
//! private, and a fork makes it shared again.

use crate::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
use crate::{proc, sys};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// One mapping. Entries are kept for reuse, so that the list can be walked without a lock.
struct Mapping {
    /// Its address; 0: given back.
    at: AtomicUsize,
    len: AtomicUsize,
    /// The size of each cell.
    each: AtomicUsize,
    /// The number of cells in it whose handles live.
    users: AtomicU32,
    /// Whether other processes do not have it.
    private: AtomicBool,
    next: AtomicPtr<Mapping>,
}

static NEWEST: AtomicPtr<Mapping> = AtomicPtr::new(core::ptr::null_mut());

fn all() -> impl Iterator<Item = &'static Mapping> {
    // SAFETY: entries are never freed.
    core::iter::successors(unsafe { NEWEST.load(Acquire).as_ref() }, |m| unsafe { m.next.load(Acquire).as_ref() })
}

fn around(at: usize) -> Option<&'static Mapping> {
    all().find(|m| {
        let start = m.at.load(Acquire);
        start != 0 && (start..start + m.len.load(Relaxed)).contains(&at)
    })
}

/// New memory of zeros for `users` cells of `each` bytes. Called by one thread at a time.
pub(crate) fn new(users: u32, each: usize) -> Option<*mut u8> {
    let len = each.checked_mul(users as usize)?;
    let memory = sys::map_shared(len)?;
    let entry = all().find(|m| m.at.load(Acquire) == 0).unwrap_or_else(|| {
        let entry: &'static Mapping = Box::leak(Box::new(Mapping {
            at: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            each: AtomicUsize::new(0),
            users: AtomicU32::new(0),
            private: AtomicBool::new(false),
            next: AtomicPtr::new(NEWEST.load(Relaxed)),
        }));
        NEWEST.store(core::ptr::from_ref(entry).cast_mut(), SeqCst);
        entry
    });
    entry.each.store(each, Relaxed);
    entry.users.store(users, Relaxed);
    entry.private.store(false, Relaxed);
    entry.len.store(len, Relaxed);
    entry.at.store(memory as usize, SeqCst);
    Some(memory)
}

impl Mapping {
    /// Puts new memory in the place of this one at one stroke. `carry` copies from each cell what stays.
    fn replace(&self, new: Option<*mut u8>, carry: fn(usize, usize)) -> bool {
        let Some(new) = new else { return false };
        let (at, len) = (self.at.load(Relaxed), self.len.load(Relaxed));
        for offset in (0..len).step_by(self.each.load(Relaxed)) {
            carry(at + offset, new as usize + offset);
        }
        // SAFETY: no handle is tied to a cell of it. Calls that are about to sleep on a word find what `carry` has copied.
        unsafe { sys::put_in_place(new, at as *mut u8, len) }
    }
}

/// Makes all mappings private. While no other thread is inside and no handle is tied. False: the kernel gives no memory.
pub(crate) fn make_private(carry: fn(usize, usize)) -> bool {
    all().filter(|m| m.at.load(Acquire) != 0).all(|m| {
        m.private.load(Relaxed) || {
            let done = m.replace(sys::map_private(m.len.load(Relaxed)), carry);
            m.private.store(done, Relaxed);
            done
        }
    })
}

/// Makes the mapping around `at` shared if it is private. While no other thread is inside. False: the kernel gives no memory.
pub(crate) fn share_again(at: usize, carry: fn(usize, usize)) -> bool {
    around(at).is_some_and(|m| {
        !m.private.load(Relaxed) || {
            let done = m.replace(sys::map_shared(m.len.load(Relaxed)), carry);
            m.private.store(!done, Relaxed);
            done
        }
    })
}

/// Gives the cell at `at` back; the last one of a mapping gives that back to the kernel.
pub(crate) fn leave(at: usize) {
    if let Some(mapping) = around(at)
        && mapping.users.fetch_sub(1, SeqCst) == 1
    {
        let (at, len) = (mapping.at.swap(0, SeqCst), mapping.len.load(Relaxed));
        // SAFETY: no handle has a cell of it any more (tie.rs).
        unsafe { sys::unmap(at as *mut u8, len) };
    }
}

/// Whether an address lies in memory that other processes have, too.
pub(crate) fn is_shared(at: usize) -> bool {
    around(at).is_some_and(|m| !m.private.load(Relaxed))
}

/// Whether process or thread `pid` has the mapping of ours that `at` lies in; true where it cannot be told.
pub(crate) fn has(pid: u32, at: usize) -> bool {
    around(at).is_none_or(|mapping| proc::maps_too(pid, mapping.at.load(Relaxed)))
}
