//! `asm-generic/poll.h`: event bits of poll and epoll.

use core::ops::{BitAnd, BitOr, BitOrAssign};

/// A set of poll events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PollMask(pub u32);

impl PollMask {
    /// Readable.
    pub const IN: PollMask = PollMask(0x1);
    /// Urgent data.
    pub const PRI: PollMask = PollMask(0x2);
    /// Writable.
    pub const OUT: PollMask = PollMask(0x4);
    /// Error.
    pub const ERR: PollMask = PollMask(0x8);
    /// Hung up.
    pub const HUP: PollMask = PollMask(0x10);
    /// Not an open descriptor.
    pub const NVAL: PollMask = PollMask(0x20);
    /// Normal data readable.
    pub const RDNORM: PollMask = PollMask(0x40);
    /// Priority data readable.
    pub const RDBAND: PollMask = PollMask(0x80);
    /// Normal data writable.
    pub const WRNORM: PollMask = PollMask(0x100);
    /// Priority data writable.
    pub const WRBAND: PollMask = PollMask(0x200);

    /// Nothing.
    #[must_use]
    pub const fn none() -> Self {
        PollMask(0)
    }

    /// Whether it has any of `other`.
    #[must_use]
    pub const fn any(self, other: PollMask) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for PollMask {
    type Output = PollMask;
    fn bitor(self, other: PollMask) -> PollMask {
        PollMask(self.0 | other.0)
    }
}

impl BitAnd for PollMask {
    type Output = PollMask;
    fn bitand(self, other: PollMask) -> PollMask {
        PollMask(self.0 & other.0)
    }
}

impl BitOrAssign for PollMask {
    fn bitor_assign(&mut self, other: PollMask) {
        self.0 |= other.0;
    }
}
