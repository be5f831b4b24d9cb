//! The memory that this process has in common with others: the cells of sockets, one mapping for each fork that made some.

use crate::{proc, sys};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};

/// One mapping. Entries are kept for reuse, so that the list can be walked without a lock.
struct Mapping {
    /// Its address; 0: given back.
    at: AtomicUsize,
    len: AtomicUsize,
    /// The number of cells in it that this process has.
    users: AtomicU32,
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
            users: AtomicU32::new(0),
            next: AtomicPtr::new(NEWEST.load(Relaxed)),
        }));
        NEWEST.store(core::ptr::from_ref(entry).cast_mut(), SeqCst);
        entry
    });
    entry.users.store(users, Relaxed);
    entry.len.store(len, Relaxed);
    entry.at.store(memory as usize, SeqCst);
    Some(memory)
}

/// Gives the cell at `at` back; the last one of a mapping gives that back to the kernel.
pub(crate) fn leave(at: usize) {
    if let Some(mapping) = around(at)
        && mapping.users.fetch_sub(1, SeqCst) == 1
    {
        let (at, len) = (mapping.at.swap(0, SeqCst), mapping.len.load(Relaxed));
        // SAFETY: nobody has a cell of it any more.
        unsafe { sys::unmap(at as *mut u8, len) };
    }
}

/// Whether an address lies in memory that other processes have, too.
pub(crate) fn is_shared(at: usize) -> bool {
    around(at).is_some()
}

/// Whether process or thread `pid` has the mapping of ours that `at` lies in; true where it cannot be told.
pub(crate) fn has(pid: u32, at: usize) -> bool {
    around(at).is_none_or(|mapping| proc::maps_too(pid, mapping.at.load(Relaxed)))
}
