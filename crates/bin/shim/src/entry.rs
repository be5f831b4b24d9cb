//! The boundary between a C program and us: errno, panics, signal handlers.

use crate::sys::{complain, set_errno};
use crate::thread;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f` for a C caller: its result, or -1 and errno. A panic becomes `EIO` and one line on standard error.
///
/// A signal handler that interrupted this very code on the same thread gets `EBUSY`: the locks it would need are held
/// by the frame below it.
#[inline]
pub(crate) fn guarded(f: impl FnOnce() -> Result<isize, i32>) -> isize {
    let slot = thread::slot();
    if !slot.enter() {
        return reentered();
    }
    let done = catch_unwind(AssertUnwindSafe(f));
    slot.leave();
    match done {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => {
            set_errno(errno);
            -1
        }
        Err(_) => {
            set_errno(libc::EIO);
            -1
        }
    }
}

#[cold]
fn reentered() -> isize {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        complain(format_args!("an AF_ALG call from a signal handler that interrupted another one: EBUSY"));
    }
    set_errno(libc::EBUSY);
    -1
}

/// Runs `f` as [`guarded`] does, without a caller to tell. Does nothing from within, and returns whether it ran.
pub(crate) fn quietly(f: impl FnOnce()) -> bool {
    let slot = thread::slot();
    if !slot.enter() {
        return false;
    }
    // The panic hook has told; the caller goes on without what `f` would have done.
    let _ = catch_unwind(AssertUnwindSafe(f));
    slot.leave();
    true
}

/// Makes a panic one line that names us, instead of Rust's report.
pub(crate) fn name_panics() {
    std::panic::set_hook(Box::new(|info| {
        let (file, line) = info.location().map_or(("?", 0), |l| (l.file(), l.line()));
        let why = info.payload_as_str().unwrap_or("no reason given");
        complain(format_args!("internal error, the call fails with EIO: {why} ({file}:{line})"));
    }));
}

/// Calls the next definition of a libc function.
macro_rules! real {
    ($name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty) => {{
        #[used]
        #[unsafe(link_section = "sealane_real")]
        static REAL: $crate::sys::Real =
            // SAFETY: a literal with its terminator and no other zero.
            $crate::sys::Real::new(unsafe {
                core::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes())
            });
        let at = REAL.get();
        if at.is_null() {
            $crate::sys::set_errno(libc::ENOSYS);
            -1isize as $ret
        } else {
            // SAFETY: libc's function of this name has this signature; the arguments are the caller's own.
            unsafe {
                core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(at)(
                    $($arg),*
                )
            }
        }
    }};
}
pub(crate) use real;
