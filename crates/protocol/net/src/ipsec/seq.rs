//! Sequence numbers that are never used twice, and the IVs made of them.
//!
//! A state counts in 64 bits, whether the packet carries all of them or not, and never goes back. Across crashes and
//! machines that is a matter of stable storage, which this crate does not have: the caller writes down a [`Lease`] before
//! its numbers are used, and hands it in. A state without leases counts as far as its number goes.
//!
//! After a crash the state starts at the end of the last lease written down. What was left of it is skipped: the peer's
//! window does not mind.

/// How often a caller leases: after this share of a block has gone ([`Lease::low`]).
const LOW_SHARE: u64 = 4;

/// Numbers up to and with `end` may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The last number that may be used.
    pub end: u64,
    /// How many numbers one lease has.
    pub block: u64,
}

impl Lease {
    /// All numbers: for a state that will not outlive this process, or whose numbers nobody else can repeat.
    pub const ALL: Lease = Lease { end: u64::MAX, block: 0 };

    /// The lease to write down for a state that has used the numbers up to `used` for certain, or up to the end of a lease
    /// written down before.
    #[must_use]
    pub fn after(used: u64, block: u64) -> Self {
        Lease { end: used.saturating_add(block), block }
    }

    /// The number from which on more should be leased: a quarter of the block is left.
    #[must_use]
    pub fn low(&self) -> u64 {
        self.end - self.block / LOW_SHARE
    }
}

/// The 8 bytes of IV for a number: XORed with the salt, as the kernel's `seqiv` does it, so that the order of packets cannot
/// be told from outside where numbers are not in clear anyway.
#[must_use]
pub(crate) fn counter_iv(number: u64, salt: &[u8; 16]) -> [u8; 8] {
    (number ^ u64::from_be_bytes(*salt.first_chunk().expect("8 of 16 bytes"))).to_be_bytes()
}

/// What is encrypted to give an IV of `len` bytes (8 or 16), as the kernel's `echainiv` does it: the number times an odd
/// salt, which is a bijection, so that no IV repeats.
#[must_use]
pub(crate) fn chained_iv(number: u64, salt: &[u8; 16]) -> [u8; 16] {
    let mut iv = [0; 16];
    for (part, salt) in iv.as_chunks_mut::<8>().0.iter_mut().zip(salt.as_chunks::<8>().0) {
        *part = (u64::from_ne_bytes(*salt) | 1).wrapping_mul(number).to_ne_bytes();
    }
    iv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases() {
        let lease = Lease::after(1000, 400);
        assert_eq!((lease.end, lease.low()), (1400, 1300));
        assert_eq!(Lease::after(u64::MAX - 5, 400).end, u64::MAX);
        assert_eq!(Lease::ALL.low(), u64::MAX);
    }

    #[test]
    fn ivs_differ() {
        let salt = *b"sixteen of salt.";
        let mut seen = std::collections::BTreeSet::new();
        for number in (0..1000).chain(u64::MAX - 1000..=u64::MAX) {
            assert!(seen.insert((counter_iv(number, &salt), chained_iv(number, &salt))));
        }
        assert_eq!(counter_iv(1, &[0; 16]), [0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
