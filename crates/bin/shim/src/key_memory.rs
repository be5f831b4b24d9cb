//! Guarded memory of the process, in which the crypto core has the program's keys, where [`crate::place`] says so.
//!
//! It is of this process alone, a child makes its own with its first key. What it needs besides, a few words, lies in the commons.

use crate::place::complain;
use crate::thread;
use sealane_guarded::{Plan, establish};

/// Runs `f`, which allocates what outlives every socket.
fn in_commons(f: &mut dyn FnMut()) {
    let _commons = thread::within(core::ptr::null_mut());
    f();
}

/// Gives this process guarded memory, or nothing of a key is to be here.
///
/// # Errors
/// `ENOMEM` where there is none; `EACCES` with `is_strict` where it lacks something.
pub(crate) fn make(is_strict: bool) -> Result<(), i32> {
    let memory = establish(Plan { lasting: in_commons, ..Plan::by_limit() }).map_err(|e| {
        complain(&format!("keys are to be in guarded memory, and there is none: no sockets of AF_ALG: {e}"));
        libc::ENOMEM
    })?;
    match memory.lacks().first() {
        Some(lack) if is_strict => {
            complain(&format!("keys are to be in guarded memory that lacks nothing: no sockets of AF_ALG: {lack}"));
            Err(libc::EACCES)
        }
        _ => Ok(()),
    }
}
