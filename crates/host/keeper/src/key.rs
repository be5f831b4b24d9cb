//! A key as it is stored: its rules, and its versions with their secrets.

use sealane_keeper_client::codec::{Malformed, Reader, Wiped, Writer};
use sealane_keeper_client::key::{MAX_SECRET_LEN, MAX_VERSIONS, Spec};
use zeroize::Zeroizing;

/// One secret of a key.
pub struct Version {
    /// Its number, from 1.
    pub number: u32,
    /// When it was made, in seconds since 1970.
    pub made_s: u64,
    /// When it was revoked; 0 if it is not.
    pub revoked_s: u64,
    /// Bytes that count as gone through it when the keeper starts again.
    pub bytes: u64,
    /// Operations that count as done with it when the keeper starts again.
    pub operations: u64,
    /// The secret; empty once it is revoked.
    pub secret: Zeroizing<Vec<u8>>,
}

/// A key with its versions, the newest last. No `Debug`: it holds secrets.
pub struct Key {
    /// Its rules.
    pub spec: Spec,
    /// At least one, at most [`MAX_VERSIONS`], by ascending numbers.
    pub versions: Vec<Version>,
}

impl Key {
    /// The bytes that are sealed in its file.
    pub(crate) fn encode(&self) -> Wiped {
        let mut to = Writer::new();
        self.spec.write(&mut to);
        to.count(self.versions.len());
        for version in &self.versions {
            to.u32(version.number);
            for number in [version.made_s, version.revoked_s, version.bytes, version.operations] {
                to.u64(number);
            }
            to.bytes(&version.secret);
        }
        to.done()
    }

    /// Reads such bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let spec = Spec::read(&mut from)?;
        let count = from.count(MAX_VERSIONS, "count of versions")?;
        let mut versions: Vec<Version> = Vec::with_capacity(count);
        for _ in 0..count {
            let version = Version {
                number: from.u32("version")?,
                made_s: from.u64("time of making")?,
                revoked_s: from.u64("time of revocation")?,
                bytes: from.u64("bytes")?,
                operations: from.u64("operations")?,
                secret: Zeroizing::new(from.bytes(MAX_SECRET_LEN, "secret")?.to_vec()),
            };
            if version.number <= versions.last().map_or(0, |last| last.number) {
                return Err(Malformed("order of versions"));
            }
            if (version.revoked_s != 0) != version.secret.is_empty() {
                return Err(Malformed("secret of a version"));
            }
            versions.push(version);
        }
        from.end()?;
        if versions.is_empty() {
            return Err(Malformed("no version"));
        }
        Ok(Key { spec, versions })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sealane_keeper_client::key::{Kind, Limits, Listed, Uses};

    pub(crate) fn spec(kind: Kind, algorithm: &str) -> Spec {
        Spec {
            kind,
            algorithm: algorithm.to_owned(),
            uses: Uses::possible(kind),
            expires_s: 0,
            limits: Limits::default(),
            users: Listed { users: vec![1000], groups: vec![2000] },
            admins: Listed::default(),
        }
    }

    pub(crate) fn key() -> Key {
        let version = |number, revoked_s, secret: &[u8]| Version {
            number,
            made_s: 5,
            revoked_s,
            bytes: 6,
            operations: 7,
            secret: Zeroizing::new(secret.to_vec()),
        };
        Key { spec: spec(Kind::Aead, "gcm(aes)"), versions: vec![version(1, 9, b""), version(3, 0, &[8; 16])] }
    }

    #[test]
    fn a_key_comes_back_and_a_shorter_one_does_not() {
        let bytes = key().encode();
        let back = Key::decode(&bytes).unwrap();
        assert_eq!(back.spec, key().spec);
        assert!(back.encode() == bytes);
        for len in 0..bytes.len() {
            assert!(Key::decode(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn versions_have_an_order_and_a_secret_until_they_are_revoked() {
        let mut swapped = key();
        swapped.versions.swap(0, 1);
        assert_eq!(Key::decode(&swapped.encode()).err(), Some(Malformed("order of versions")));
        let mut revoked = key();
        revoked.versions[1].revoked_s = 1;
        assert_eq!(Key::decode(&revoked.encode()).err(), Some(Malformed("secret of a version")));
        let mut none = key();
        none.versions.clear();
        assert_eq!(Key::decode(&none.encode()).err(), Some(Malformed("no version")));
    }
}
