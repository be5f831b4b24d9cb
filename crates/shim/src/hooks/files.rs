//! /proc/crypto: programs that open it read which algorithms we serve.

use super::fds;
use crate::entry::{guarded, real};
use crate::sys::{check, raw};
use crate::system;
use core::ffi::{CStr, c_char, c_int, c_uint};
use libc::FILE;

/// Whether a path is /proc/crypto, opened for reading.
unsafe fn wanted(path: *const c_char) -> bool {
    // SAFETY: the program's C string.
    !path.is_null() && unsafe { CStr::from_ptr(path) } == c"/proc/crypto"
}

/// A file with the text of /proc/crypto.
fn listing(flags: c_int) -> Result<isize, i32> {
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(libc::EACCES);
    }
    let text = sealane_engine::proc_crypto(&*system::get()?);
    let cloexec = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
    let memfd_flags: c_uint = libc::MFD_ALLOW_SEALING | cloexec;
    // SAFETY: a C string; the text's bytes; plain values.
    unsafe {
        let fd = check(raw!(libc::SYS_memfd_create, c"crypto".as_ptr(), memfd_flags))?;
        let mut rest = text.as_bytes();
        while let Ok(n @ 1..) = check(raw!(libc::SYS_write, fd, rest.as_ptr(), rest.len())) {
            rest = &rest[n..];
        }
        raw!(libc::SYS_lseek, fd, 0, libc::SEEK_SET);
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        raw!(libc::SYS_fcntl, fd, libc::F_ADD_SEALS, seals);
        Ok(fd as isize)
    }
}

macro_rules! opens {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*), $path:ident, $flags:ident;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the program's path.
            if unsafe { wanted($path) } {
                return guarded(|| listing($flags)) as c_int;
            }
            let fd = real!($name($($arg: $ty),*) -> c_int);
            fds::fresh(fd);
            fd
        }
    )+};
}

opens! {
    /// `open(2)`.
    fn open(path: *const c_char, flags: c_int, mode: c_uint), path, flags;
    /// `open(2)` as programs with 64-bit file offsets call it.
    fn open64(path: *const c_char, flags: c_int, mode: c_uint), path, flags;
    /// `openat(2)`.
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint), path, flags;
    /// `openat(2)` as programs with 64-bit file offsets call it.
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint), path, flags;
    /// `__open_2`: open(2) as _FORTIFY_SOURCE calls it.
    fn __open_2(path: *const c_char, flags: c_int), path, flags;
    /// `__open64_2`: open(2) as _FORTIFY_SOURCE calls it.
    fn __open64_2(path: *const c_char, flags: c_int), path, flags;
    /// `__openat_2`: openat(2) as _FORTIFY_SOURCE calls it.
    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int), path, flags;
    /// `__openat64_2`: openat(2) as _FORTIFY_SOURCE calls it.
    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int), path, flags;
}

/// A stdio file with the text of /proc/crypto.
unsafe fn stream(mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's C string.
    let cloexec = unsafe { CStr::from_ptr(mode) }.to_bytes().contains(&b'e');
    let fd = guarded(|| listing(if cloexec { libc::O_CLOEXEC } else { 0 }));
    if fd < 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: our descriptor, handed over.
    unsafe { libc::fdopen(fd as c_int, c"r".as_ptr()) }
}

/// `fopen(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's strings.
    unsafe {
        if wanted(path) && !mode.is_null() && *mode == b'r' as c_char {
            return stream(mode);
        }
    }
    real!(fopen(path: *const c_char, mode: *const c_char) -> *mut FILE)
}

/// `fopen(3)` as programs with 64-bit file offsets call it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's strings.
    unsafe {
        if wanted(path) && !mode.is_null() && *mode == b'r' as c_char {
            return stream(mode);
        }
    }
    real!(fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE)
}
