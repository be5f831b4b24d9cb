//! Sleeping until another thread changes a word (futex).

use core::sync::atomic::AtomicU32;
use std::io;

/// Sleeps while `*word == seen`, for at most `ms` milliseconds.
///
/// # Errors
/// `ETIMEDOUT`, `EAGAIN` when the word has changed already, `EINTR`.
pub fn wait(word: &AtomicU32, seen: u32, ms: u32) -> io::Result<()> {
    let time = libc::timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call, and the timeout is a local.
    let r = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, seen, &raw const time) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Wakes all threads that sleep on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}
