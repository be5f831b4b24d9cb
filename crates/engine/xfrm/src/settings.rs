//! Settings of a namespace, and the sizes that its tables would have in the kernel.

use sealane_abi::xfrm::{Spdhthresh, UserpolicyDefault, XFRM_USERPOLICY_ACCEPT};

/// The most buckets that a table of the kernel can have.
pub(crate) const HASH_MAX: u32 = 1 << 20;

/// Settings of a namespace.
pub(crate) struct Settings {
    /// The actions for packets without a policy.
    pub(crate) defaults: UserpolicyDefault,
    pub(crate) hthresh4: Spdhthresh,
    pub(crate) hthresh6: Spdhthresh,
    /// Seconds that an acquire is waited for (`xfrm_acq_expires`).
    pub(crate) acquire_s: u64,
    /// Number of the last acquire.
    pub(crate) last_acquire: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            defaults: UserpolicyDefault {
                input: XFRM_USERPOLICY_ACCEPT,
                fwd: XFRM_USERPOLICY_ACCEPT,
                out: XFRM_USERPOLICY_ACCEPT,
            },
            hthresh4: Spdhthresh { lbits: 32, rbits: 32 },
            hthresh6: Spdhthresh { lbits: 128, rbits: 128 },
            acquire_s: sealane_net_ipsec::spd::resolve::ACQUIRE_S,
            last_acquire: 0,
        }
    }
}

/// The number of buckets that the kernel's hash table would have: it doubles when there are more entries than buckets
/// and never shrinks. It is only reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buckets(u32);

impl Default for Buckets {
    fn default() -> Self {
        Buckets(8)
    }
}

impl Buckets {
    /// One was added, so that there are `entries` now.
    pub(crate) fn added(&mut self, entries: usize) {
        if entries >= self.0 as usize && self.0 < HASH_MAX {
            self.0 *= 2;
        }
    }

    /// The number of buckets.
    pub(crate) fn count(self) -> u32 {
        self.0
    }
}
