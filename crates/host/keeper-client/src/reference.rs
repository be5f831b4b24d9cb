//! References to keys that a keeper computes by.

use crate::codec::{Malformed, Reader, Writer};
use crate::key::{MAX_ALGORITHM_LEN, Name};
use crate::limits::MAX_WRAPPED_LEN;
use sealane_crypto::KeyError;

const NAMED: u8 = 1;
const WRAPPED: u8 = 2;

/// A key that a keeper computes by. It has no secret in it that anybody but the keeper can read, so that it may be copied and
/// passed on like a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRef {
    /// A key of the keeper's.
    Named {
        /// Its name.
        name: Name,
        /// The version; 0 is the newest of that moment.
        version: u32,
        /// The name of its algorithm in the registry. The keeper computes by no other.
        algorithm: String,
    },
    /// A key of a program's: what [`Operation::Wrap`](crate::message::Operation::Wrap) has given back.
    Wrapped(Vec<u8>),
}

impl KeyRef {
    /// The name of the key, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&Name> {
        match self {
            KeyRef::Named { name, .. } => Some(name),
            KeyRef::Wrapped(_) => None,
        }
    }

    /// Reads the bytes of a reference as a key of an algorithm.
    pub(crate) fn of_algorithm(bytes: &[u8], name: &str) -> Result<Self, KeyError> {
        let key = KeyRef::decode(bytes).map_err(|_| KeyError::Malformed)?;
        match &key {
            KeyRef::Named { algorithm, .. } if algorithm != name => Err(KeyError::Malformed),
            _ => Ok(key),
        }
    }

    /// The bytes of a reference: at most [`MAX_REF_LEN`](crate::limits::MAX_REF_LEN).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new();
        match self {
            KeyRef::Named { name, version, algorithm } => {
                to.u8(NAMED);
                to.bytes(name.as_str().as_bytes());
                to.u32(*version);
                to.bytes(algorithm.as_bytes());
            }
            KeyRef::Wrapped(wrapped) => {
                to.u8(WRAPPED);
                to.bytes(wrapped);
            }
        }
        to.done().to_vec()
    }

    /// Reads such bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let from = &mut Reader::new(bytes);
        let key = match from.u8("kind of reference")? {
            NAMED => KeyRef::Named {
                name: Name::read(from)?,
                version: from.u32("version")?,
                algorithm: from.text(MAX_ALGORITHM_LEN, "name of the algorithm")?.to_owned(),
            },
            WRAPPED => KeyRef::Wrapped(from.bytes(MAX_WRAPPED_LEN, "wrapped key")?.to_vec()),
            _ => return Err(Malformed("kind of reference")),
        };
        from.end()?;
        Ok(key)
    }
}

/// A reference and its bytes, which each request brings.
pub struct Reference {
    /// The reference.
    pub key: KeyRef,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl From<KeyRef> for Reference {
    fn from(key: KeyRef) -> Self {
        Reference { bytes: key.encode(), key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::MAX_NAME_LEN;
    use crate::limits::MAX_REF_LEN;

    #[test]
    fn references_come_back_and_shorter_or_longer_ones_do_not() {
        let longest = |len| "x".repeat(len);
        for key in [
            KeyRef::Named { name: Name::new("k").unwrap(), version: 3, algorithm: "gcm(aes)".to_owned() },
            KeyRef::Named {
                name: Name::new(&longest(MAX_NAME_LEN)).unwrap(),
                version: u32::MAX,
                algorithm: longest(MAX_ALGORITHM_LEN),
            },
            KeyRef::Wrapped(vec![7; 100]),
            KeyRef::Wrapped(vec![7; MAX_WRAPPED_LEN]),
        ] {
            let mut bytes = key.encode();
            assert!(bytes.len() <= MAX_REF_LEN);
            assert_eq!(KeyRef::decode(&bytes).as_ref(), Ok(&key));
            for len in 0..bytes.len() {
                assert!(KeyRef::decode(&bytes[..len]).is_err(), "{key:?} cut off at {len}");
            }
            bytes.push(0);
            assert!(KeyRef::decode(&bytes).is_err());
        }
        assert!(KeyRef::decode(&KeyRef::Wrapped(vec![7; MAX_WRAPPED_LEN + 1]).encode()).is_err());
        assert_eq!(KeyRef::decode(&[3]), Err(Malformed("kind of reference")));
    }
}
