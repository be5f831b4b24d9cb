//! Sequence numbers that are never used twice, and the IVs made of them.
//!
//! A state always counts in 64 bits, however many of them a packet carries, and never goes back. Surviving crashes and
//! moves to another machine takes stable storage, which this crate does not have: the caller stores a [`Lease`] before
//! its numbers are used, and passes it in. A state without leases uses all numbers.
//!
//! After a crash the state continues behind the last stored lease. The rest of that lease is skipped, which the peer's
//! window tolerates.

/// The fraction of a block at which more numbers are leased ([`Lease::low`]).
const LOW_SHARE: u64 = 2;

/// A lease of sequence numbers: those up to and including `end` may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The last number that may be used.
    pub end: u64,
    /// The number of sequence numbers in one lease.
    pub block: u64,
}

impl Lease {
    /// All numbers: for a state that does not outlive this process, or whose numbers cannot be repeated elsewhere.
    pub const ALL: Lease = Lease { end: u64::MAX, block: 0 };

    /// The lease to store for a state that has used the numbers up to `used`, or may have used them according to the
    /// lease stored before.
    #[must_use]
    pub fn after(used: u64, block: u64) -> Self {
        Lease { end: used.saturating_add(block), block }
    }

    /// The number from which on more should be leased, when half of the block is left: stable storage takes its time.
    #[must_use]
    pub fn low(&self) -> u64 {
        self.end - self.block / LOW_SHARE
    }
}

/// The 8-byte IV for a sequence number: XORed with the salt, like the kernel's `seqiv`, so that an observer cannot tell
/// the order of packets where their numbers are not in clear anyway.
#[must_use]
pub(crate) fn counter_iv(number: u64, salt: &[u8; 16]) -> [u8; 8] {
    (number ^ u64::from_be_bytes(*salt.first_chunk().expect("8 of 16 bytes"))).to_be_bytes()
}

/// The block that is encrypted to make an IV, like the kernel's `echainiv`: the number times an odd salt. That is a
/// bijection, so no IV repeats.
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
        assert_eq!((lease.end, lease.low()), (1400, 1200));
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
