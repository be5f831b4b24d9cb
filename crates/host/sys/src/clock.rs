//! The time of day, and the time since boot.

/// The time of day, in milliseconds since 1970.
pub fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The time since boot, in nanoseconds.
pub fn boot_ns() -> u64 {
    // Not by rustix, which panics where the kernel's vDSO has no getcpu, as in user-mode Linux 7.3.
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one time.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut at) };
    u64::try_from(at.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(at.tv_nsec).unwrap_or(0)
}
