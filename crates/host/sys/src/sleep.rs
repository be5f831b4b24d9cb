//! Sleeping until another thread changes a word (futex).

use core::sync::atomic::AtomicU32;
use rustix::thread::futex::{self, Flags, Timespec};
use std::io;

/// Sleeps while `*word == seen`, for at most `ms` milliseconds.
///
/// # Errors
/// `ETIMEDOUT`, `EAGAIN` when the word has changed already, `EINTR`.
pub fn wait(word: &AtomicU32, seen: u32, ms: u32) -> io::Result<()> {
    let time = Timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 };
    Ok(futex::wait(word, Flags::PRIVATE, seen, Some(&time))?)
}

/// Wakes all threads that sleep on `word`.
pub fn wake(word: &AtomicU32) {
    // It fails only for an address that is not mapped.
    let _ = futex::wake(word, Flags::PRIVATE, i32::MAX as u32);
}
