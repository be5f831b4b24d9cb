//! Homes for keys: another process that computes with a key, so that it need not stay in this one.
//!
//! A home gives a *reference* for a key. [`KeyHome::adopt`] makes an algorithm whose drivers take references in place of keys,
//! and nothing else; its transforms compute where the key is.

use crate::info::AlgInfo;
use crate::registry::Alg;
use core::fmt;
use zeroize::Zeroizing;

/// A home for keys.
pub trait KeyHome: Send + Sync {
    /// The same algorithm, with keys that are at home: a key of it is a reference, and nothing else. `None` for one that has no keys
    /// (hashes, generators).
    fn adopt(&self, alg: &Alg) -> Option<Alg>;
    /// Gives the home a key that a local driver has found good, and returns its reference.
    ///
    /// # Errors
    /// [`KeepError`].
    fn keep(&self, info: &AlgInfo, key: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeepError>;
    /// The name of a key, where `text` is one that a key of the home can have.
    fn name<'a>(&self, text: &'a [u8]) -> Option<&'a str>;
    /// The reference of a key that is at home under a name, and that this user may use now for this algorithm.
    ///
    /// # Errors
    /// [`KeepError`].
    fn named(&self, info: &AlgInfo, name: &str) -> Result<Zeroizing<Vec<u8>>, KeepError>;
}

/// The reason for which a home gave no reference. Each has a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeepError {
    /// The home cannot be reached, or does not answer in time.
    Unreachable(String),
    /// There is no such key for this user.
    NoKey(String),
    /// This user may not do it, or the key is for other uses.
    Denied(String),
    /// The key has expired.
    Expired(String),
    /// The key is revoked.
    Revoked(String),
    /// The key is of another algorithm, or the home has none of this name.
    Algorithm(String),
    /// The home refuses for another reason, such as a limit.
    Refused(String),
}

impl fmt::Display for KeepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeepError::Unreachable(text)
            | KeepError::NoKey(text)
            | KeepError::Denied(text)
            | KeepError::Expired(text)
            | KeepError::Revoked(text)
            | KeepError::Algorithm(text)
            | KeepError::Refused(text) => f.write_str(text),
        }
    }
}

impl core::error::Error for KeepError {}
