//! Keys of programs, encrypted for this keeper ("wrapped"), and those of them that are ready for use.
//!
//! ```text
//! wrapped   version:1 salt:32   type:1 algorithm secret   tag:16
//! ```
//!
//! The part before the gap is authenticated, and so is the user who may use the key: another user's process can do nothing with
//! it. It is sealed by AES-256-GCM under a key that HMAC-SHA-256 makes from the keeper's and the salt, as a file of the store is
//! ([`crate::seal`]), so that no nonce comes twice. The keeper stores nothing: whoever gives a key gets it back wrapped, and each
//! operation brings it.

use crate::prepared::Prepared;
use crate::seal::{SALT_LEN, SealError, Sealer, WrappingKey};
use sealane_keeper_client::codec::{Malformed, Reader, Writer};
use sealane_keeper_client::key::{Kind, Listed, MAX_ALGORITHM_LEN, MAX_SECRET_LEN};
use sealane_sys::random;
use std::cmp::Reverse;
use std::collections::HashMap;
use zeroize::Zeroizing;

const VERSION: u8 = 1;
const HEADER: usize = 1 + SALT_LEN;
const LABEL: &[u8] = b"sealane keeper: key of a program, 1";

/// The most wrapped keys that are ready for use at a time.
const MAX_READY: usize = 1024;

/// A key of a program. No `Debug`: it is a secret.
pub(crate) struct Unwrapped {
    pub(crate) kind: Kind,
    pub(crate) algorithm: String,
    pub(crate) secret: Zeroizing<Vec<u8>>,
}

/// The keeper's own key for keys of programs, and who may give it some.
pub struct Wrapping {
    sealer: Sealer,
    key: WrappingKey,
    users: Option<Listed>,
}

impl Wrapping {
    /// Wraps under a key, for these users, or for everybody.
    #[must_use]
    pub fn new(sealer: Sealer, key: WrappingKey, users: Option<Listed>) -> Self {
        Wrapping { sealer, key, users }
    }

    /// The users and groups for whom it wraps; `None` for everybody.
    pub(crate) fn users(&self) -> Option<&Listed> {
        self.users.as_ref()
    }

    pub(crate) fn wrap(&self, user: u32, key: &Unwrapped) -> Result<Vec<u8>, SealError> {
        let mut wrapped = vec![0; HEADER];
        wrapped[0] = VERSION;
        random::fill(&mut wrapped[1..]);
        let mut text = Writer::new();
        text.u8(key.kind.number());
        text.bytes(key.algorithm.as_bytes());
        text.bytes(&key.secret);
        let once = self.sealer.derive(self.key.bytes(), LABEL, &wrapped[1..])?;
        let (sealed, tag) = self.sealer.seal(&once, &[&wrapped, &user.to_le_bytes()], &text.done())?;
        wrapped.extend_from_slice(&sealed);
        wrapped.extend_from_slice(&tag);
        Ok(wrapped)
    }

    pub(crate) fn unwrap(&self, user: u32, wrapped: &[u8]) -> Result<Unwrapped, SealError> {
        let (header, sealed) = wrapped.split_at_checked(HEADER).ok_or(Malformed("wrapped key: too short"))?;
        if header[0] != VERSION {
            return Err(Malformed("wrapped key: of another version").into());
        }
        let once = self.sealer.derive(self.key.bytes(), LABEL, &header[1..])?;
        let text = self.sealer.open(&once, &[header, &user.to_le_bytes()], sealed)?;
        let from = &mut Reader::new(&text);
        let key = Unwrapped {
            kind: Kind::read(from)?,
            algorithm: from.text(MAX_ALGORITHM_LEN, "wrapped key: algorithm")?.to_owned(),
            secret: from.secret(MAX_SECRET_LEN, "wrapped key: secret")?,
        };
        from.end()?;
        Ok(key)
    }
}

struct Entry {
    prepared: Prepared,
    used: u64,
}

/// Wrapped keys that are ready for use, by user and all their bytes.
#[derive(Default)]
pub(crate) struct ReadyWrapped {
    of: HashMap<u32, HashMap<Vec<u8>, Entry>>,
    clock: u64,
}

impl ReadyWrapped {
    /// Whether a user's key is there.
    pub(crate) fn has(&self, user: u32, wrapped: &[u8]) -> bool {
        self.of.get(&user).is_some_and(|keys| keys.contains_key(wrapped))
    }

    /// A user's key, which counts as used now.
    pub(crate) fn get(&mut self, user: u32, wrapped: &[u8]) -> Option<&Prepared> {
        self.clock += 1;
        let entry = self.of.get_mut(&user)?.get_mut(wrapped)?;
        entry.used = self.clock;
        Some(&entry.prepared)
    }

    /// Takes a key in. Where there is no room, the one that was used longest ago of the user with most of them goes: nobody takes the
    /// places of users with less.
    pub(crate) fn put(&mut self, user: u32, wrapped: Vec<u8>, prepared: Prepared) {
        if self.len() >= MAX_READY && !self.has(user, &wrapped) {
            self.make_room();
        }
        self.clock += 1;
        self.of.entry(user).or_default().insert(wrapped, Entry { prepared, used: self.clock });
    }

    fn len(&self) -> usize {
        self.of.values().map(HashMap::len).sum()
    }

    fn make_room(&mut self) {
        let oldest = |keys: &HashMap<Vec<u8>, Entry>| keys.values().map(|entry| entry.used).min();
        let goes = self.of.iter_mut().max_by_key(|(_, keys)| (keys.len(), Reverse(oldest(keys))));
        let Some((&user, keys)) = goes else { return };
        let first = oldest(keys);
        keys.retain(|_, entry| Some(entry.used) != first);
        if keys.is_empty() {
            self.of.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared::algorithm;
    use crate::seal::tests::registry;

    #[test]
    fn a_user_with_few_keys_keeps_them_whatever_others_do() {
        let registry = registry();
        let alg = algorithm(&registry, sealane_crypto::Kind::Hash, "hmac(sha256)").unwrap();
        let has = |ready: &ReadyWrapped, user, number: usize| ready.has(user, &number.to_le_bytes());
        let mut ready = ReadyWrapped::default();
        let put = |ready: &mut ReadyWrapped, user, number: usize| {
            ready.put(user, number.to_le_bytes().to_vec(), Prepared::new(&registry, &alg, b"key").unwrap());
        };
        for number in 0..3 {
            put(&mut ready, 1, number);
        }
        for number in 0..2 * MAX_READY {
            put(&mut ready, 2, number);
            assert!(ready.len() <= MAX_READY);
        }
        assert!((0..3).all(|number| has(&ready, 1, number)));
        // The ones that were used longest ago are gone.
        let kept = MAX_READY - 3;
        assert!((0..2 * MAX_READY - kept).all(|number| !has(&ready, 2, number)));
        assert!((2 * MAX_READY - kept..2 * MAX_READY).all(|number| has(&ready, 2, number)));
        // Use keeps.
        let oldest = 2 * MAX_READY - kept;
        assert!(ready.get(2, &oldest.to_le_bytes()).is_some());
        put(&mut ready, 3, 0);
        assert!(has(&ready, 2, oldest) && !has(&ready, 2, oldest + 1));
        // The same one takes no other place.
        put(&mut ready, 3, 0);
        assert!(has(&ready, 2, oldest + 2));
    }

    #[test]
    fn of_users_with_as_many_keys_the_one_loses_a_key_who_used_it_longest_ago() {
        let registry = registry();
        let alg = algorithm(&registry, sealane_crypto::Kind::Hash, "hmac(sha256)").unwrap();
        let mut ready = ReadyWrapped::default();
        let put =
            |ready: &mut ReadyWrapped, user| ready.put(user, vec![1], Prepared::new(&registry, &alg, b"key").unwrap());
        let users = MAX_READY as u32;
        (0..users).for_each(|user| put(&mut ready, user));
        assert!(ready.get(0, &[1]).is_some());
        put(&mut ready, users);
        put(&mut ready, users + 1);
        let gone: Vec<u32> = (0..users + 2).filter(|user| !ready.has(*user, &[1])).collect();
        assert_eq!((gone, ready.of.len()), (vec![1, 2], MAX_READY));
    }
}
