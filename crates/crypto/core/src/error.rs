//! Errors of operations, keys and look-ups. No errno is known here: the engine maps these errors in one place.

use core::fmt;

/// The outcome of one operation of a burst.
pub type Status = Result<(), OpError>;

/// The reason for which one operation failed. The others of its burst are not affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpError {
    /// The data length does not suit the mode (not a whole number of blocks, shorter than one block for XTS, ...).
    Length,
    /// The text is longer than its length field can say (CCM, RFC 3610 section 2.1); Linux answers EOVERFLOW.
    TooLong,
    /// The IV or nonce has the wrong length or a forbidden value (CCM's length octet, RFC 3610 section 2.1).
    Nonce,
    /// The associated data has a length that the algorithm forbids (RFC 4106 takes 16 or 20 bytes with the IV).
    AssocLen,
    /// The tag has a length that the algorithm forbids.
    TagLen,
    /// The tag does not match. The output has been wiped.
    Auth,
    /// The driver could not do it (the kernel refused, a device went away). The output of an open is zeros, and any other one is of no
    /// use.
    Driver,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpError::Length => "data length does not suit the mode",
            OpError::TooLong => "text longer than the mode can take under this nonce",
            OpError::Nonce => "IV or nonce not acceptable",
            OpError::AssocLen => "length of the associated data not acceptable",
            OpError::TagLen => "tag length not acceptable",
            OpError::Auth => "authentication failed",
            OpError::Driver => "the driver failed",
        })
    }
}

impl core::error::Error for OpError {}

/// The reason for which a key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// The algorithm takes no key (a plain hash).
    NotKeyed,
    /// The length is not one that the algorithm takes.
    Length,
    /// The key is weak and the caller asked for such keys to be refused.
    Weak,
    /// A composite key (`authenc`: an `rtattr` before the keys) is malformed.
    Malformed,
    /// The driver could not prepare it.
    Driver,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyError::NotKeyed => "the algorithm takes no key",
            KeyError::Length => "key length not acceptable",
            KeyError::Weak => "weak key",
            KeyError::Malformed => "malformed composite key",
            KeyError::Driver => "the driver refused the key",
        })
    }
}

impl core::error::Error for KeyError {}

/// The reason for which a name did not lead to an algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupError {
    /// The name does not parse: position in bytes and what was expected there.
    Name {
        /// Offset of the offending byte.
        at: usize,
        /// The token that the grammar expects there.
        expected: &'static str,
    },
    /// No row has this name, of this kind, and no template makes it.
    NotFound,
    /// A row exists but its self-test failed: the driver's name.
    SelfTest(String),
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookupError::Name { at, expected } => write!(f, "algorithm name: expected {expected} at byte {at}"),
            LookupError::NotFound => f.write_str("no such algorithm"),
            LookupError::SelfTest(driver) => write!(f, "driver {driver} failed its self-test"),
        }
    }
}

impl core::error::Error for LookupError {}
