//! The time of day, and the time since boot.

/// The time of day, in milliseconds since 1970.
pub fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The time of day, in seconds since 1970, on the clock of time(2), which the kernel advances at each tick. The precise clock
/// is up to a tick ahead of it: a program would find that something is yet to happen.
pub fn wall_s() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one time.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut at) };
    u64::try_from(at.tv_sec).unwrap_or(0)
}

/// The time since boot, in nanoseconds.
pub fn boot_ns() -> u64 {
    // Not by rustix, which panics where the kernel's vDSO has no getcpu, as in user-mode Linux 7.3.
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one time.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut at) };
    u64::try_from(at.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(at.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn seconds_are_never_ahead_of_a_program_s() {
        let mut changes = 0;
        let (start, mut last) = (Instant::now(), wall_s());
        // Two seconds begin meanwhile, unless somebody sets the clock.
        while start.elapsed() < Duration::from_millis(2100) {
            let ours = wall_s();
            // SAFETY: it takes no pointer.
            let theirs = unsafe { libc::time(std::ptr::null_mut()) };
            assert!(ours <= theirs.cast_unsigned(), "{ours} is after {theirs}");
            changes += u32::from(ours != last);
            last = ours;
        }
        assert!(changes >= 2);
    }
}
