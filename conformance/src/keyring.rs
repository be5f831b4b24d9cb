//! Keyrings of the kernel's for tests. They are no calls of recorded sequences, which `sys` has.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::{io, ptr};

/// A key's serial number, or the errno.
pub type Serial = Result<i64, i32>;

fn serial(n: i64) -> Serial {
    if n >= 0 { Ok(n) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}

/// Gives this thread, and the processes that it starts, a session keyring without keys.
///
/// # Errors
/// The errno.
pub fn join_session() -> Serial {
    // SAFETY: a null pointer for no name.
    serial(unsafe { libc::syscall(libc::SYS_keyctl, 1, ptr::null::<u8>()) })
}

/// `add_key` into the session keyring.
///
/// # Errors
/// The errno.
pub fn add(ty: &CStr, name: &CStr, payload: &[u8]) -> Serial {
    let p = if payload.is_empty() { ptr::null() } else { payload.as_ptr() };
    // SAFETY: two C strings, pointer and length of one slice.
    serial(unsafe { libc::syscall(libc::SYS_add_key, ty.as_ptr(), name.as_ptr(), p, payload.len(), -3) })
}
