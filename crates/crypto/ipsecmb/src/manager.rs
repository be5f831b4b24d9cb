//! The library's scheduler, one per thread.
//!
//! Its memory comes from `mmap`, not from Rust's allocator: under the shim that allocator is memory shared between
//! processes, and a manager must be private to its process (after `fork` the child has its own copy, which is idle
//! because only the forking thread lives on). Core dumps leave it out, because the library keeps states in its lanes.

use crate::ffi::{self, GcmCalls, OVER_READ};
use core::cell::Cell;
use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};
use sealane_crypto::{KeyError, OpError};
use std::sync::OnceLock;

/// Size of the joining buffer: four of the longest messages of a lane.
pub(crate) const JOIN_LEN: usize = 256 << 10;

/// Length of the mapping: manager, joining buffer, and the bytes that may be read past its end.
fn mapping_len(mgr_len: usize) -> usize {
    mgr_len + JOIN_LEN + OVER_READ
}

/// A manager and the buffer beside it.
pub(crate) struct Manager {
    mem: NonNull<u8>,
    mgr_len: usize,
}

thread_local! {
    // Not boxed, because thread-local memory is private to its process, and the heap may be shared.
    static SLOT: Cell<Option<Manager>> = const { Cell::new(None) };
}

/// Lends this thread's manager to `f`.
///
/// # Errors
/// [`OpError::Driver`] when there is no memory for one.
pub(crate) fn with<R>(f: impl FnOnce(&mut Manager) -> R) -> Result<R, OpError> {
    // The manager is taken out of its slot while in use. A signal handler that interrupts this makes its own, as does a
    // destructor that runs after this thread's slot was destroyed.
    let held = SLOT.try_with(Cell::take).ok().flatten();
    let mut manager = match held {
        Some(manager) => manager,
        None => Manager::new().map_err(|_| OpError::Driver)?.0,
    };
    let result = f(&mut manager);
    // If the slot was destroyed, the closure is dropped unused, together with the manager.
    let _ = SLOT.try_with(move |slot| slot.set(Some(manager)));
    Ok(result)
}

impl Manager {
    /// Makes a manager for this CPU; also returns the name of its code path.
    fn new() -> Result<(Self, &'static str), &'static str> {
        // SAFETY: takes no arguments and reads a constant.
        let mgr_len = unsafe { ffi::slmb_manager_len() }.next_multiple_of(4096);
        let len = mapping_len(mgr_len);
        // SAFETY: a fresh private mapping; nothing else is touched.
        let mem = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mem == libc::MAP_FAILED {
            return Err("no memory for an intel-ipsec-mb manager");
        }
        let manager = Manager { mem: NonNull::new(mem.cast()).ok_or("mmap gave address 0")?, mgr_len };
        // SAFETY: the range is the mapping made above. Failure only means that a core dump is larger.
        unsafe { libc::madvise(mem, len, libc::MADV_DONTDUMP) };
        let mut why = c"".as_ptr();
        // SAFETY: `mem` is page-aligned, zeroed, and has at least slmb_manager_len bytes; `why` receives a constant.
        let (path, why) = unsafe {
            let path = ffi::slmb_manager_init(manager.mem.as_ptr(), &mut why);
            ((!path.is_null()).then(|| CStr::from_ptr(path)), CStr::from_ptr(why))
        };
        match path {
            Some(path) => Ok((manager, path.to_str().unwrap_or("unnamed"))),
            None => Err(why.to_str().unwrap_or("intel-ipsec-mb cannot run on this CPU")),
        }
    }

    /// The library's manager, for a call.
    pub(crate) fn ptr(&mut self) -> *mut ffi::Mgr {
        self.mem.as_ptr().cast()
    }

    /// The joining buffer. It does not overlap the manager's memory, so both may be used at once.
    pub(crate) fn join_ptr(&mut self) -> *mut u8 {
        // SAFETY: the mapping has mgr_len + JOIN_LEN bytes.
        unsafe { self.mem.as_ptr().add(self.mgr_len) }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let len = mapping_len(self.mgr_len);
        // SAFETY: the mapping is ours, and no job is in flight: each call flushes what it submits. The joining buffer
        // is wiped after each use.
        unsafe {
            ffi::slmb_wipe(self.mem.as_ptr(), self.mgr_len);
            libc::munmap(self.mem.as_ptr().cast(), len);
        }
    }
}

/// The functions of GCM for keys of 16, 24 and 32 bytes. In place, because the heap may be shared between processes.
static GCM_CALLS: OnceLock<[GcmCalls; 3]> = OnceLock::new();

/// Finds the functions of GCM, before a program has threads.
pub(crate) fn find_gcm_calls() {
    if GCM_CALLS.get().is_some() {
        return;
    }
    let found = with(|manager| {
        [16, 24, 32].map(|key_len| {
            let mut calls = GcmCalls::NONE;
            // SAFETY: a manager, and room for the functions of a length that keys have.
            unsafe { ffi::slmb_gcm_calls(manager.ptr(), key_len, &mut calls) };
            calls
        })
    });
    if let Ok(found) = found {
        // Another one has found the same.
        let _ = GCM_CALLS.set(found);
    }
}

/// The functions of GCM for keys of this length.
///
/// # Errors
/// [`KeyError::Length`]; [`KeyError::Driver`] before [`find_gcm_calls`].
pub(crate) fn gcm_calls(key_len: usize) -> Result<&'static GcmCalls, KeyError> {
    let [short, middle, long] = GCM_CALLS.get().ok_or(KeyError::Driver)?;
    match key_len {
        16 => Ok(short),
        24 => Ok(middle),
        32 => Ok(long),
        _ => Err(KeyError::Length),
    }
}

/// Wipes `bytes` at the speed of `memset`.
pub(crate) fn wipe(bytes: &mut [u8]) {
    // SAFETY: the range is a valid slice.
    unsafe { ffi::slmb_wipe(bytes.as_mut_ptr(), bytes.len()) };
}

/// See [`crate::available`].
pub(crate) fn available() -> Result<(), &'static str> {
    // 0: unknown, 1: yes. After a failure each call tries again, because the reason is needed, and calls are rare.
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    if KNOWN.load(Ordering::Relaxed) == 1 {
        return Ok(());
    }
    Manager::new()?;
    KNOWN.store(1, Ordering::Relaxed);
    Ok(())
}

/// The library's version: major, minor and patch in a byte each.
pub(crate) fn version() -> u32 {
    // SAFETY: takes no arguments and reads a constant.
    unsafe { ffi::slmb_version() }
}

/// See [`crate::describe`].
pub(crate) fn describe() -> Result<String, &'static str> {
    let (_, path) = Manager::new()?;
    let version = version();
    Ok(format!("intel-ipsec-mb {}.{}.{}, {path}", version >> 16, version >> 8 & 0xff, version & 0xff))
}
