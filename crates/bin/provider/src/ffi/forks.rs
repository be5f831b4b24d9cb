//! Tells a child from its parent, however it was made, and gives it guarded memory of its own.
//!
//! The kernel gives a child a page of zeros in place of one that is marked (`MADV_WIPEONFORK`), also after a raw `clone`, of which
//! the C library tells nobody, and in a process namespace, where parent and child may have the same id.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::io;
use std::panic::catch_unwind;

/// A word of the page: 1 in the process that has looked at it last. Null before the first load, and where the kernel has no such
/// pages (before Linux 4.14).
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// The forks between the process that has loaded the library first and this one, as far as somebody has looked.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Makes the page. The library stays in the process, and so does the page.
pub(super) fn watch() {
    /// A page, and larger ones where they are larger: the kernel rounds up.
    const LEN: usize = 4096;
    if !PAGE.load(Ordering::Acquire).is_null() {
        return;
    }
    // SAFETY: the kernel chooses a place where nothing is, and the mapping is not used before it is marked.
    let page = unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let Ok(page) = mmap_anonymous(ptr::null_mut(), LEN, protection, MapFlags::PRIVATE) else { return };
        if madvise(page, LEN, Advice::LinuxWipeOnFork).is_err() {
            // Without it the id of the process has to do. There is nobody to tell if this fails.
            let _ = rustix::mm::munmap(page, LEN);
            return;
        }
        page.cast::<AtomicU32>()
    };
    // SAFETY: the mapping has room for a word, is aligned, and all zeros are one.
    unsafe { &*page }.store(1, Ordering::Release);
    // Of two threads that load at once, one has a page too much.
    let _ = PAGE.compare_exchange(ptr::null_mut(), page, Ordering::AcqRel, Ordering::Acquire);
}

/// A number that no other process in the line of this one's parents has, and that stays the same here.
pub(crate) fn generation() -> u32 {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: null, or the word of the page, which stays.
    if let Some(word) = unsafe { page.as_ref() }
        && word.load(Ordering::Acquire) == 0
    {
        // Threads of a new child may do this twice: then a connection counts as inherited, and another one is made.
        FORKS.fetch_add(1, Ordering::AcqRel);
        word.store(1, Ordering::Release);
    }
    FORKS.load(Ordering::Acquire)
}

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
            generation();
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
