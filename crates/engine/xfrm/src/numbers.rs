//! Sequence numbers that outlive this process. A lease is in stable storage before a packet uses its numbers, so that
//! no number is sent twice under one key, even if the key is added again after a crash.
//!
//! A series is the numbers of one key in one state, identified by protocol, SPI, destination, mark, algorithms and
//! keys; with a partial MAC by the key of that alone. A state for input only has none. A key manager sees the numbers that it set until a
//! packet has used the series.
//!
//! Of a partial MAC no number may ever come again, because it selects what is covered and nothing fresh is beside it. So its series are
//! kept [for good](FOR_GOOD), or it is refused.

use sealane_net_ipsec::seq::Lease;

/// The first byte of the identities of series that are kept for good: their leases are on the disk before a number of them is used, outlive
/// boots, and are never forgotten once a number may have been used. Other identities begin with another one.
pub const FOR_GOOD: u8 = 0xff;

/// The name of a series, which tells nothing of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series(pub [u8; 16]);

/// The sequence numbers that may be sent in a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    /// The series.
    pub series: Series,
    /// The last number that may have been used before.
    pub used: u64,
    /// The numbers after `used` that may be sent.
    pub lease: Lease,
}

/// Why there is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseError {
    /// Another state uses the series.
    InUse,
    /// It cannot be written down.
    Storage,
    /// It is to be kept for good, and the storage does not outlive a boot.
    Volatile,
    /// It is to be kept for good, and the network namespace has no name by which it would be found again.
    Nameless,
    /// It is to be kept for good, and there is no place for one more.
    Full,
}

impl LeaseError {
    /// The text of the extended acknowledgement.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            LeaseError::InUse => "Another state uses these sequence numbers",
            LeaseError::Storage => "Sequence numbers cannot be written down",
            LeaseError::Volatile => "Numbers of a partial MAC must outlive a boot: the daemon needs a STATE_DIRECTORY",
            LeaseError::Nameless => {
                "Numbers of a partial MAC must outlive a boot: name the namespace in [ipsec], by no pattern"
            }
            LeaseError::Full => "Numbers of too many keys of partial MACs are kept already",
        }
    }
}

/// Stable storage of sequence numbers.
pub trait Numbers: Send {
    /// Whether the storage is good enough for a series.
    ///
    /// # Errors
    /// [`LeaseError::Volatile`], [`LeaseError::Nameless`] or [`LeaseError::Full`], for one that is to be kept [for good](FOR_GOOD).
    fn check(&self, identity: &[u8]) -> Result<(), LeaseError>;

    /// Leases numbers of the series that `identity` makes, which holds keys, behind `used` and behind all that was
    /// leased before. A lease that is to be kept [for good](FOR_GOOD) is on the disk when this returns.
    ///
    /// # Errors
    /// [`LeaseError`].
    fn lease(&mut self, identity: &[u8], used: u64) -> Result<Leased, LeaseError>;

    /// Asks for more of a series that has used the numbers up to `used`. It does not wait until that is written down.
    fn renew(&mut self, series: Series, used: u64);

    /// The outcome of renewals since the last call: the lease, once it is in stable storage, or `None` where it cannot be written
    /// down.
    fn written(&mut self) -> Vec<(Series, Option<Lease>)>;

    /// A series is not in use any more, and has used the numbers up to `used` for certain; `None` when only the storage
    /// knows, by what was leased. It does not wait until that is written down, either: until then the lease stands.
    fn end(&mut self, series: Series, used: Option<u64>);
}
