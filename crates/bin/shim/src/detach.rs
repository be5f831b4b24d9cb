//! A process that is about to change its credentials parts from those that it has sockets in common with.
//!
//! From then on they operate on copies, and no memory of this library is shared. The keys of sockets that the process has
//! closed are gone already, and it never had those of sockets that others opened after the fork.
//!
//! Meanwhile no other thread of the process is inside (thread.rs).

use crate::arena::{self, Arena};
use crate::cell::Cell;
use crate::handle::Handle;
use crate::share;
use crate::standin;
use crate::{fork, handle, sys, system, table, thread};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use sealane_crypto::wipe::{STACK_LEN, wipe_traces};

/// Parts from all other processes. Does nothing in a process without AF_ALG sockets.
pub(crate) fn detach() {
    if arena::existing().is_none() {
        return;
    }
    thread::alone(alone);
    // The copies of keys that stay have passed by here, and the dynamic linker, before this call, saved what was in the
    // registers.
    wipe_traces(sys::stack_room(STACK_LEN));
}

/// Parts while no other thread is inside.
fn alone() {
    let Ok(arena) = fork::ensure() else { fail() };
    share::part_from_all(arena, |handle| new_standin(arena, handle));
    if !Cell::make_all_private() || !system::part() {
        fail();
    }
    let pid = sys::getpid();
    arena.logon.lock().retain(|key| key.pid == pid);
}

/// There is no way back: to go on would be to share memory with a process of other rights.
fn fail() -> ! {
    sys::complain(format_args!(
        "no memory to part from the processes that share our sockets, before a change of rights"
    ));
    std::process::abort();
}

/// Gives a socket that other processes have, too, a stand-in of its own: readiness is shown in it.
fn new_standin(arena: &Arena, handle: &'static Handle) {
    let mut old = handle.standin.lock();
    if !old.lively {
        return;
    }
    let nonblock = if handle.nonblock.load(Relaxed) { libc::SOCK_NONBLOCK } else { 0 };
    let handle_at = arena.handle(arena.index_of(handle));
    let mut new: Option<c_int> = None;
    for fd in table::in_range(0, u32::MAX).filter(|fd| core::ptr::eq(table::at(*fd), handle_at)) {
        if new.is_none() {
            // Without one the old one goes on showing what others do, which is wrong and harmless.
            new = standin::open(true, nonblock | libc::SOCK_CLOEXEC).ok();
        }
        if let Some(new) = new {
            sys::replace(new, fd);
        }
    }
    if let Some(new) = new {
        sys::close(new);
        *old = handle::Standin::new(true);
        handle.polled.store(false, Relaxed);
    }
}
