//! The heap of AWS-LC. What it allocates is wiped when it is freed, as with the library's own functions; and what it allocates for a
//! context that will have a key ([`for_key`]) lies in guarded memory, where the process has that.
//!
//! Memory that was allocated before would be freed by the wrong function, so they are set when the program is loaded.

use aws_lc_sys as c;
use core::alloc::Layout;
use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};

/// The bytes before each piece of memory, which hold its length.
const HEAD: usize = 16;

thread_local! {
    /// Whether what this thread allocates is for a key.
    static FOR_KEY: Cell<bool> = const { Cell::new(false) };
}

/// Has what the library allocates in `f` lie in guarded memory.
pub(crate) fn for_key<R>(f: impl FnOnce() -> R) -> R {
    let before = FOR_KEY.replace(true);
    let done = f();
    FOR_KEY.set(before);
    done
}

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.checked_add(HEAD)?, HEAD).ok()
}

/// Memory with room for the head.
fn take(layout: Layout) -> Option<NonNull<u8>> {
    if FOR_KEY.get()
        && let Some(at) = sealane_guarded::allocate(layout).ok()?
    {
        return Some(at);
    }
    // SAFETY: no pointers.
    NonNull::new(unsafe { libc::malloc(layout.size()) }.cast())
}

unsafe extern "C" fn allocate(len: usize, _: *const c_char, _: c_int) -> *mut c_void {
    let Some((layout, at)) = layout(len).and_then(|layout| Some((layout, take(layout)?))) else {
        return ptr::null_mut();
    };
    let _open = sealane_guarded::open();
    // SAFETY: it has room for the head, and is aligned as `malloc` aligns.
    unsafe {
        at.cast::<usize>().write(layout.size());
        at.as_ptr().add(HEAD).cast()
    }
}

unsafe extern "C" fn free(at: *mut c_void, _: *const c_char, _: c_int) {
    if at.is_null() {
        return;
    }
    // SAFETY: the library gives back what it got, behind its head.
    let head: *mut u8 = unsafe { at.cast::<u8>().sub(HEAD) };
    let _open = sealane_guarded::open();
    // SAFETY: the head has the length that the memory was taken for. Nobody uses it any more.
    unsafe {
        let len = *head.cast::<usize>();
        c::OPENSSL_cleanse(head.cast(), len);
        let layout = Layout::from_size_align_unchecked(len, HEAD);
        if !sealane_guarded::give_back(NonNull::new_unchecked(head), layout) {
            libc::free(head.cast());
        }
    }
}

unsafe extern "C" fn reallocate(at: *mut c_void, len: usize, file: *const c_char, line: c_int) -> *mut c_void {
    // SAFETY: as for the functions above; the new memory is apart from the old one, and both have the bytes that are copied.
    unsafe {
        let is_guarded = !at.is_null() && sealane_guarded::has(at.cast());
        let new = if is_guarded { for_key(|| allocate(len, file, line)) } else { allocate(len, file, line) };
        if !new.is_null() && !at.is_null() {
            let _open = sealane_guarded::open();
            let old_len = *at.cast::<u8>().sub(HEAD).cast::<usize>() - HEAD;
            ptr::copy_nonoverlapping(at.cast::<u8>(), new.cast::<u8>(), old_len.min(len));
            free(at, file, line);
        }
        new
    }
}

/// Whether the library has taken the functions.
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Whether what is allocated for a key lies where the process has its keys.
pub(crate) fn is_set() -> bool {
    IS_SET.load(Ordering::Relaxed)
}

/// Run when the program, or the library that this code is a part of, is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // SAFETY: nothing has been allocated. The functions allocate as `malloc` does.
        let set = unsafe { c::CRYPTO_set_mem_functions(Some(allocate), Some(reallocate), Some(free)) };
        IS_SET.store(set == 1, Ordering::Relaxed);
    }
    at_load
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_library_comes_from_here() {
        assert!(is_set());
        // SAFETY: memory of the library's heap, of which each access is within the length that it has then.
        unsafe {
            let at: *mut u8 = c::OPENSSL_malloc(100).cast();
            assert_eq!(*at.sub(HEAD).cast::<usize>(), 100 + HEAD);
            at.write_bytes(7, 100);
            let at: *mut u8 = c::OPENSSL_realloc(at.cast(), 5000).cast();
            assert!((0..100).all(|i| *at.add(i) == 7));
            let at: *mut u8 = c::OPENSSL_realloc(at.cast(), 3).cast();
            assert_eq!([*at, *at.add(1), *at.add(2)], [7; 3]);
            c::OPENSSL_free(at.cast());
            c::OPENSSL_free(ptr::null_mut());
            assert!(c::OPENSSL_malloc(usize::MAX - 4).is_null());
        }
    }
}
