//! The record of this process, and what a fork does to it.

use crate::arena::{self, Arena};
use crate::record::empty;
use crate::table::{PROCESS, adopt, own};
use crate::{share, table, thread};
use core::sync::atomic::{AtomicBool, Ordering};

/// Between the halves of a fork: no other thread is inside, and every socket has a cell.
static PREPARED: AtomicBool = AtomicBool::new(false);

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
        adopt(Box::into_raw(empty()));
        // SAFETY: three functions that live as long as the library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child)) };
    }
    Ok(arena)
}

extern "C" fn before_fork() {
    own();
    // A handler that interrupted a call of ours: the child gets what that call has left half done, and copies of sockets.
    if let Some(arena) = arena::existing()
        && thread::close_gate()
    {
        share::before_fork(arena);
        PREPARED.store(true, Ordering::Relaxed);
    }
}

extern "C" fn after_fork_parent() {
    if PREPARED.swap(false, Ordering::Relaxed) {
        thread::open_gate();
    }
}

extern "C" fn after_fork_child() {
    table::child(PREPARED.swap(false, Ordering::Relaxed));
}
