//! The record of this process, and those of its children.

use crate::arena::{self, Arena};
use crate::record::{Process, empty};
use crate::table::{PROCESS, adopt, changing, copy, enlist, enlisted, own};
use crate::thread;
use core::sync::atomic::{AtomicPtr, Ordering};
use lock_api::RawMutex as _;

/// The child's record, between the halves of a fork; guarded by `changing`. Not in the arena: parent and child each
/// have their own to take it from, whichever runs first.
static FORKING: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());

/// Makes this process's record if it has none.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn ensure() -> Result<&'static Arena, i32> {
    let arena = arena::get().ok_or(libc::ENOMEM)?;
    if !own().is_null() {
        return Ok(arena);
    }
    let _commons = thread::within(core::ptr::null_mut());
    let _making = arena.making.lock();
    if PROCESS.load(Ordering::Acquire).is_null() {
        let process = Box::into_raw(empty());
        enlist(arena, process);
        adopt(process);
        // SAFETY: three functions that live as long as the library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child)) };
    }
    Ok(arena)
}

extern "C" fn before_fork() {
    let (Some(arena), process) = (arena::existing(), own()) else { return };
    crate::entry::quietly(|| {
        if enlisted(arena) > 16 {
            crate::reap::reap();
        }
        if let Some(held) = changing(process) {
            let child = copy(arena, held.0);
            FORKING.store(child, Ordering::Relaxed);
            // Held until the fork is done, so that no other thread changes the table in between.
            core::mem::forget(held);
        }
    });
}

extern "C" fn after_fork_parent() {
    // SAFETY: our record; `changing` was taken by before_fork on this thread.
    if let Some(p) = unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
        && !FORKING.swap(core::ptr::null_mut(), Ordering::Relaxed).is_null()
    {
        // SAFETY: as above.
        unsafe { p.changing.unlock() };
    }
}

extern "C" fn after_fork_child() {
    thread::forked();
    let child = FORKING.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if !child.is_null() {
        adopt(child);
    }
}
