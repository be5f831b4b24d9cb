//! Records of processes that are gone: a killed process closes its descriptors without telling us.

use crate::arena;
use crate::proc::{shares_arena, started};
use crate::record::Process;
use crate::{sys, table, thread};
use core::sync::atomic::Ordering::{Acquire, Release};
use lock_api::RawMutex as _;

fn gone(record: &Process) -> bool {
    match record.pid() {
        // A fork that failed, or a child that has not run yet: ten seconds are enough to tell.
        0 => record.age_s() > 10,
        pid => match started(pid) {
            None => !sys::alive(pid) || check_proc(),
            Some(t) => (record.started() != 0 && t != record.started()) || !shares_arena(pid),
        },
    }
}

/// Whether /proc can be read at all; without it a missing process is not proof.
fn check_proc() -> bool {
    started(sys::getpid()).is_some()
}

/// Buries the records of processes that are gone. Returns whether there were any.
pub(crate) fn reap() -> bool {
    let Some(arena) = arena::existing() else { return false };
    // The memory that is used here belongs to no socket.
    let _commons = thread::within(core::ptr::null_mut());
    let mut dead = [core::ptr::null_mut(); 64];
    let mut n = 0;
    arena.enlisting.lock();
    let mut link = &arena.processes;
    // SAFETY: records on the list are alive; only their own process and this function take them off.
    while let Some(record) = unsafe { link.load(Acquire).as_ref() } {
        let at = core::ptr::from_ref(record).cast_mut();
        if n < dead.len() && !table::is_own(at) && gone(record) {
            link.store(record.next.load(Acquire), Release);
            dead[n] = at;
            n += 1;
        } else {
            link = &record.next;
        }
    }
    // SAFETY: taken above.
    unsafe { arena.enlisting.unlock() };
    for &record in &dead[..n] {
        // SAFETY: the process is gone and the record off the list.
        unsafe { table::release_record(record) };
    }
    n > 0
}
