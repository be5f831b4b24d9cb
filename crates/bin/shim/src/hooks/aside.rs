//! Programs that are built to watch their own memory (AddressSanitizer and its relatives): the library stands aside, and the
//! launcher serves them. What we write into their memory would not be known to the runtime that watches it.
//!
//! AddressSanitizer's runtime ends a program in which it is not the first library, as the dynamic linker lists them
//! (`dl_iterate_phdr`). A preloaded library is, and so we are not in that list there.

use crate::entry::real;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU8, Ordering};
use libc::dl_phdr_info;

/// Functions by which a runtime is known, wherever it is: in a library, or in the program itself.
const RUNTIMES: [&CStr; 5] = [c"__asan_init", c"__hwasan_init", c"__lsan_init", c"__msan_init", c"__tsan_init"];

/// Whether this program has a runtime of a sanitizer.
pub(crate) fn stands_aside() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = RUNTIMES.iter().any(|name| {
                // SAFETY: a C string; the address is only compared.
                let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
                !at.is_null()
            });
            KNOWN.store(if found { YES } else { NO }, Ordering::Relaxed);
            found
        }
        known => known == YES,
    }
}

/// Looks for one before anybody asks from where the dynamic linker cannot be asked, such as a signal handler.
extern "C" fn start() {
    stands_aside();
    // A function that we have not found is no error of the program's.
    // SAFETY: it has no arguments.
    unsafe { libc::dlerror() };
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

type Callback = unsafe extern "C-unwind" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int;

/// A program's request for the list.
struct Listing {
    callback: Callback,
    data: *mut c_void,
}

/// `dl_iterate_phdr(3)`: without this library where it stands aside.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int {
    if !stands_aside() {
        return real!(dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int);
    }
    let mut listing = Listing { callback, data };
    let (callback, data): (Callback, *mut c_void) = (others, (&raw mut listing).cast());
    real!(dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int)
}

/// Passes an object on, unless it is this library.
unsafe extern "C-unwind" fn others(info: *mut dl_phdr_info, size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `dl_iterate_phdr` has passed its own structure and our data on.
    let (object, listing) = unsafe { (&*info, &*data.cast::<Listing>()) };
    // SAFETY: the headers are as many as the structure says, and stay as long as the object is loaded.
    let headers = unsafe { core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let here = others as *const () as u64;
    let is_here = |header: &libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD
            && here.wrapping_sub(object.dlpi_addr.wrapping_add(header.p_vaddr)) < header.p_memsz
    };
    if headers.iter().any(is_here) {
        return 0;
    }
    // SAFETY: the program's own callback, with what it is to be called with.
    unsafe { (listing.callback)(info, size, listing.data) }
}
