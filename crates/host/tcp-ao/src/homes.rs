//! Homes of keys, such as a keeper, which have master keys of configured peers.

use sealane_crypto::AlgInfo;
use sealane_crypto::home::{KeepError, KeyHome};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Finds a key by its name and version, 0 for the newest one, if it is one of this algorithm and length. It waits about a second at
/// most.
pub type FindKey = Box<dyn Fn(&AlgInfo, &str, u32) -> Result<FoundKey, KeepError> + Send + Sync>;

/// A key that a home has.
#[derive(Clone)]
pub struct FoundKey {
    /// Its version.
    pub version: u32,
    /// The reference to this version.
    pub reference: Zeroizing<Vec<u8>>,
}

/// A home for keys, in two manners.
pub struct KeyHomes {
    /// Finds a key, when a configuration is read: it may take its time.
    pub finds: FindKey,
    /// Derives traffic keys, while segments wait: it may not.
    pub derives: Box<dyn KeyHome>,
    /// Tells why it has not, in the thread that asked last.
    pub why: Box<dyn Fn() -> String + Send + Sync>,
}

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The clock of the desk at which traffic keys are asked for.
pub(super) fn now() -> Duration {
    BEGAN.elapsed()
}
