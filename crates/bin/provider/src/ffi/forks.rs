//! Tells a child from its parent, however it was made, and gives it guarded memory of its own.

use core::sync::atomic::{AtomicBool, Ordering};
use sealane_sys::forks;
use std::io;
use std::panic::catch_unwind;

/// Has each child make its guarded memory while it is forked, not at its first key: sandboxes begin between the two. For processes that
/// have some.
///
/// # Errors
/// The C library's (`ENOMEM`).
pub(crate) fn renew_in_children() -> io::Result<()> {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        // Without memory the first key of the child says why it fails.
        let _ = catch_unwind(|| {
            let _ = forks::process();
            sealane_guarded::renew_once();
        });
    }
    if IS_REGISTERED.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // SAFETY: the library stays in the process (`build.rs`), and with it the function, which unwinds into nobody.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => Ok(()),
        error => {
            IS_REGISTERED.store(false, Ordering::Release);
            Err(io::Error::from_raw_os_error(error))
        }
    }
}
