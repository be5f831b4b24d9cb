//! Limits of a state or policy (`struct xfrm_lifetime_cfg`) and their evaluation, as pure functions of a given time.

/// No limit on bytes or packets (`XFRM_INF`).
pub const UNLIMITED: u64 = u64::MAX;

/// Soft and hard limits. Without a limit, bytes and packets are [`UNLIMITED`] and seconds are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes until the key manager is warned.
    pub soft_bytes: u64,
    /// Bytes until the state expires.
    pub hard_bytes: u64,
    /// Packets until the key manager is warned.
    pub soft_packets: u64,
    /// Packets until the state expires.
    pub hard_packets: u64,
    /// Seconds since it was added until the key manager is warned.
    pub soft_add_s: u64,
    /// Seconds since it was added until it expires.
    pub hard_add_s: u64,
    /// Seconds since its first packet until the key manager is warned.
    pub soft_use_s: u64,
    /// Seconds since its first packet until it expires.
    pub hard_use_s: u64,
}

impl Limits {
    /// No limits.
    pub const NONE: Limits = Limits {
        soft_bytes: UNLIMITED,
        hard_bytes: UNLIMITED,
        soft_packets: UNLIMITED,
        hard_packets: UNLIMITED,
        soft_add_s: 0,
        hard_add_s: 0,
        soft_use_s: 0,
        hard_use_s: 0,
    };
}

/// Usage so far (`struct xfrm_lifetime_cur`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of payload.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// When it was added, in seconds of wall time.
    pub add_time_s: u64,
    /// When its first packet came, in seconds of wall time; 0 before the first.
    pub use_time_s: u64,
}

/// The clock on the wall, as far as somebody has set it. Timers run by a clock that nobody sets, as the kernel's do: setting the
/// one on the wall makes none of them due.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock {
    set_by_s: i64,
}

impl WallClock {
    /// The time by the clock that nobody sets, for one in seconds of wall time.
    #[must_use]
    pub fn unset(self, wall_s: u64) -> u64 {
        wall_s.saturating_add_signed(self.set_by_s.saturating_neg())
    }

    /// The wall time, in seconds, for one by the clock that nobody sets.
    #[must_use]
    pub fn wall_s(self, unset: u64) -> u64 {
        unset.saturating_add_signed(self.set_by_s)
    }

    /// Notes that it was set, by so many seconds.
    pub fn was_set(&mut self, by_s: i64) {
        self.set_by_s = self.set_by_s.saturating_add(by_s);
    }
}

/// The stage of a state's lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// No limit is reached.
    Young,
    /// A soft limit is reached: the key manager is notified, once.
    Soft,
    /// A hard limit is reached: the state must not be used any more.
    Hard,
}

impl Limits {
    /// Evaluates the limits on bytes and packets, before the next packet is counted (`xfrm_state_check_expire`).
    #[must_use]
    pub fn volume(&self, used: &Usage) -> Age {
        if used.bytes >= self.hard_bytes || used.packets >= self.hard_packets {
            Age::Hard
        } else if used.bytes >= self.soft_bytes || used.packets >= self.soft_packets {
            Age::Soft
        } else {
            Age::Young
        }
    }

    /// Evaluates the limits on time, and returns when to do so again (`xfrm_timer_handler`). `dying` means that the key
    /// manager has been notified already.
    #[must_use]
    pub fn time(&self, used: &Usage, dying: bool, now_s: u64) -> (Age, Option<u64>) {
        let from_use = if used.use_time_s == 0 { now_s } else { used.use_time_s };
        let at = |limit: u64, from: u64| (limit != 0).then(|| from.saturating_add(limit));
        let hard = [at(self.hard_add_s, used.add_time_s), at(self.hard_use_s, from_use)];
        if hard.iter().flatten().any(|t| *t <= now_s) {
            return (Age::Hard, None);
        }
        let soft =
            if dying { [None; 2] } else { [at(self.soft_add_s, used.add_time_s), at(self.soft_use_s, from_use)] };
        let warned = soft.iter().flatten().any(|t| *t <= now_s);
        let next = hard.iter().chain(&soft).flatten().filter(|t| **t > now_s).min().copied();
        (if warned { Age::Soft } else { Age::Young }, next)
    }

    /// Bytes and packets left until the next limit that matters; `dying` excludes the soft ones.
    pub(crate) fn left(&self, used: &Usage, dying: bool) -> (u64, u64) {
        let left = |soft: u64, hard: u64, used: u64| {
            let limit = if dying { hard } else { soft.min(hard) };
            // Half the range is practically unlimited, and lets the usage be computed from what is left.
            if limit == UNLIMITED { u64::MAX / 2 } else { limit.saturating_sub(used).min(u64::MAX / 2) }
        };
        (left(self.soft_bytes, self.hard_bytes, used.bytes), left(self.soft_packets, self.hard_packets, used.packets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_time() {
        let limits = Limits { soft_add_s: 50, hard_add_s: 60, soft_use_s: 10, hard_use_s: 20, ..Limits::NONE };
        let unused = Usage { add_time_s: 1000, ..Usage::default() };
        assert_eq!(
            limits.time(&unused, false, 1000),
            (Age::Young, Some(1010)),
            "use counts from now as long as there is none"
        );
        assert_eq!(limits.time(&unused, false, 1050), (Age::Soft, Some(1060)));
        assert_eq!(limits.time(&unused, true, 1050), (Age::Young, Some(1060)), "the key manager knows already");
        assert_eq!(limits.time(&unused, false, 1060), (Age::Hard, None));
        let used = Usage { use_time_s: 1005, ..unused };
        assert_eq!(limits.time(&used, false, 1014), (Age::Young, Some(1015)));
        assert_eq!(limits.time(&used, false, 1015), (Age::Soft, Some(1025)));
        assert_eq!(limits.time(&used, false, 1025), (Age::Hard, None));
        assert_eq!(Limits::NONE.time(&used, false, u64::MAX), (Age::Young, None));
    }

    #[test]
    fn of_volume() {
        let limits = Limits { soft_bytes: 100, hard_bytes: 200, hard_packets: 3, ..Limits::NONE };
        let used = |bytes, packets| Usage { bytes, packets, ..Usage::default() };
        assert_eq!(limits.volume(&used(99, 2)), Age::Young);
        assert_eq!(limits.volume(&used(100, 2)), Age::Soft);
        assert_eq!(limits.volume(&used(0, 3)), Age::Hard);
        assert_eq!(limits.left(&used(90, 1), false), (10, 2));
        assert_eq!(limits.left(&used(100, 1), true), (100, 2));
        assert_eq!(Limits::NONE.left(&used(5, 5), false), (u64::MAX / 2, u64::MAX / 2));
    }
}
