//! Records of processes that are gone: a killed process closes its descriptors without telling us.

use crate::arena;
use crate::proc::{proc_path, slurp, started};
use crate::record::Process;
use crate::{sys, table};

/// Whether the process still maps our arena: after an exec it does not, and its descriptors were closed or are no
/// longer reachable for us.
fn maps_arena(pid: u32) -> bool {
    let path = proc_path(pid, "maps");
    let Ok(path) = core::ffi::CStr::from_bytes_until_nul(&path) else { return true };
    let mut wanted = [b'0'; 16];
    let mut rest = arena::address();
    let mut n = wanted.len();
    while rest != 0 {
        n -= 1;
        wanted[n] = b"0123456789abcdef"[rest % 16];
        rest /= 16;
    }
    let wanted = &wanted[n..];
    let mut found = false;
    let mut buf = [0u8; 4096];
    let readable = slurp(path, &mut buf, |part| {
        found |= part.windows(wanted.len()).any(|w| w == wanted);
        !found
    });
    found || readable.is_none()
}

fn gone(record: &Process) -> bool {
    match record.pid() {
        // A fork that failed, or a child that has not run yet: ten seconds are enough to tell.
        0 => record.age_s() > 10,
        pid => match started(pid) {
            None => !sys::alive(pid) || check_proc(),
            Some(t) => (record.started() != 0 && t != record.started()) || !maps_arena(pid),
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
    let mut dead = [core::ptr::null_mut(); 64];
    let mut n = 0;
    arena.processes.lock().retain(|&record| {
        // SAFETY: records on the list are alive; only this function takes them off.
        let bury = n < dead.len() && !table::is_own(record) && gone(unsafe { &*record });
        if bury {
            dead[n] = record;
            n += 1;
        }
        !bury
    });
    for &record in &dead[..n] {
        // SAFETY: the process is gone and the record off the list.
        unsafe { table::release_record(record) };
    }
    n > 0
}
