//! Counting for `sealane audit`: a file that the launcher made and that every process of the program shares.

use crate::sys::{self, check, raw};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use sealane_engine_alg::audit::{self, Counters};
use sealane_engine_alg::{Event, Observer};

/// The observer of this process's calls, for good; null if they are not counted.
static OBSERVER: AtomicPtr<AuditObserver> = AtomicPtr::new(core::ptr::null_mut());

struct AuditObserver {
    words: &'static [AtomicU64],
    privileged: bool,
}

impl Observer for AuditObserver {
    fn event(&self, event: &Event<'_>) {
        Counters::new(self.words).count(event, self.privileged);
    }
}

/// The observer of this process's calls, where there is one.
#[inline]
pub(crate) fn observer() -> Option<&'static dyn Observer> {
    // SAFETY: it is never freed.
    unsafe { OBSERVER.load(Ordering::Acquire).as_ref() }.map(|observer| observer as &dyn Observer)
}

/// Begins to count, where the launcher asks for it by SEALANE_AUDIT.
pub(crate) fn begin() {
    if let Some(observer) = made() {
        OBSERVER.store(Box::into_raw(Box::new(observer)), Ordering::Release);
    }
}

fn made() -> Option<AuditObserver> {
    let path = std::ffi::CString::new(sys::env(c"SEALANE_AUDIT")?).ok()?;
    let len = audit::WORDS * size_of::<AtomicU64>();
    // SAFETY: a C string.
    let fd = check(unsafe { raw!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0) });
    let fd = match fd {
        Ok(fd) => fd as i32,
        Err(errno) => {
            sys::complain(format_args!("audit: cannot open the counters (errno {errno}); this process is not counted"));
            return None;
        }
    };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; the launcher gave the file its full size and never shrinks it.
    let at = check(unsafe { raw!(libc::SYS_mmap, 0, len, prot, libc::MAP_SHARED, fd, 0) });
    sys::close(fd);
    let at = at.ok()? as *const AtomicU64;
    // SAFETY: page-aligned, of this length, mapped for good; any bits are valid atomics.
    let words = unsafe { core::slice::from_raw_parts(at, audit::WORDS) };
    Some(AuditObserver { words, privileged: sys::caller().privileged })
}
