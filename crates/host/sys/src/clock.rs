//! The time of day, and the time since boot.

/// The time of day, in milliseconds since 1970.
pub fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The time of day in seconds since 1970, as programs have it by time(2) and the kernel's own states tell it. A second
/// begins at the kernel's next tick, so that nothing told to a program is ahead of its clock.
pub fn wall_s() -> u64 {
    seconds(&read(libc::CLOCK_REALTIME_COARSE))
}

/// The time since boot, in nanoseconds.
pub fn boot_ns() -> u64 {
    let at = read(libc::CLOCK_BOOTTIME);
    seconds(&at) * 1_000_000_000 + u64::try_from(at.tv_nsec).unwrap_or(0)
}

fn read(clock: libc::clockid_t) -> libc::timespec {
    // Not by rustix, which panics where the kernel's vDSO has no getcpu, as in user-mode Linux 7.3.
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one time.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    at
}

fn seconds(at: &libc::timespec) -> u64 {
    u64::try_from(at.tv_sec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_second_is_ahead_of_that_of_programs() {
        // Only where a second begins do clocks differ.
        let rest_ms = 1000 - wall_ms() % 1000;
        std::thread::sleep(Duration::from_millis(rest_ms.saturating_sub(5).unsigned_abs()));
        let end = wall_ms() + 30;
        while wall_ms() < end {
            let told = wall_s();
            // SAFETY: the time is returned only.
            let of_programs = unsafe { libc::time(core::ptr::null_mut()) };
            assert!(told <= of_programs.cast_unsigned(), "{told}, and for programs it is {of_programs}");
        }
    }
}
