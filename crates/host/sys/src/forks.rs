//! Tells a process from those that it was forked from, without a system call.
//!
//! The kernel gives a child a page of zeros in place of one that is marked (`MADV_WIPEONFORK`), also after a raw `clone`, and in a
//! process namespace, where parent and child may have the same id. It does not where both have one memory (`vfork`): they count as one
//! process then.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A word of the page: 1 in the process that has looked at it last. Null before the first look, and [`NO_PAGE`] where the kernel has no
/// such pages (before Linux 4.14).
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// The forks between the process that has looked first and this one, as far as somebody has looked.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Is never read.
static NO_PAGE: AtomicU32 = AtomicU32::new(0);

/// The page, if there can be one.
fn page() -> Option<&'static AtomicU32> {
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let new = make().unwrap_or((&raw const NO_PAGE).cast_mut());
        // Of two threads that look at once, one has a page too much.
        page = match PAGE.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => other,
        };
    }
    // SAFETY: a word of a page, or a static: both stay.
    if ptr::eq(page, &raw const NO_PAGE) { None } else { Some(unsafe { &*page }) }
}

fn make() -> Option<*mut AtomicU32> {
    /// A page, and larger ones where they are larger: the kernel rounds up.
    const LEN: usize = 4096;
    // SAFETY: the kernel chooses a place where nothing is, and the mapping is not used before it is marked.
    let page = unsafe {
        let page = mmap_anonymous(ptr::null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).ok()?;
        if madvise(page, LEN, Advice::LinuxWipeOnFork).is_err() {
            let _ = munmap(page, LEN);
            return None;
        }
        page.cast::<AtomicU32>()
    };
    // SAFETY: the mapping has room for a word, is aligned, and all zeros are one.
    unsafe { &*page }.store(1, Ordering::Release);
    Some(page)
}

/// A number that no process has which this one was forked from since one of them asked for it first, and that stays the same here.
#[must_use]
pub fn process() -> u64 {
    let Some(word) = page() else {
        // It takes a system call then, and in process namespaces it may not be enough.
        let id = rustix::process::getpid().as_raw_nonzero().get();
        return 1 << 32 | u64::from(id.unsigned_abs());
    };
    if word.load(Ordering::Acquire) == 0 {
        // Threads of a new child may do this twice: the number is then another one than that of the first look, and still no parent's.
        FORKS.fetch_add(1, Ordering::AcqRel);
        word.store(1, Ordering::Release);
    }
    FORKS.load(Ordering::Acquire).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_another_number_and_so_has_its_child() {
        let first = process();
        assert_eq!(process(), first);
        let forked = |in_child: &dyn Fn() -> i32| {
            // SAFETY: the child only looks at words of this module, and ends.
            unsafe {
                match libc::fork() {
                    0 => libc::_exit(in_child()),
                    child => {
                        let mut status = 0;
                        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                        status
                    }
                }
            }
        };
        let status = forked(&|| {
            let second = process();
            if second == first || process() != second {
                return 1;
            }
            i32::from(forked(&|| i32::from([first, second].contains(&process()))) != 0)
        });
        assert_eq!(status, 0);
        assert_eq!(process(), first);
    }
}
