//! The files of a store, as bytes: the store's own key under a passphrase or a credential, and keys under the store's key.
//!
//! ```text
//! store   "SLKSTORE" version:2 protection:1 memory:4 passes:4 lanes:4 salt:32   key:32 tag:16
//! NAME.key  "SLKEYONE" version:2 salt:32                                        key, its rules and versions   tag:16
//! counters  "SLKCOUNT" version:2 salt:32                                        counters of all keys          tag:16
//! ```
//!
//! All numbers are little endian. What stands before the gap is authenticated, and for a key its name is, too: a file under
//! another name is refused. Each file is sealed by AES-256-GCM under a key that its random salt makes, used once: for `store` by
//! Argon2id from the passphrase or by HMAC-SHA-256 from the credential, for a key by HMAC-SHA-256 from the store's key. So the
//! nonce can be zero.

use crate::counters::{self, Entry};
use crate::key::Key;
use sealane_crypto::data::Data;
use sealane_crypto::{Alg, Kind, LookupError, OpError, Registry};
use sealane_keeper_client::codec::{Malformed, Reader, Writer};
use sealane_keeper_client::key::Name;
use sealane_sys::random;
use std::fmt;
use zeroize::Zeroizing;

/// The longest file of a key: 16 versions of 4,096 bytes, four lists of 64 numbers, and what is around them.
pub const MAX_FILE_LEN: usize = 72 * 1024;
/// The shortest credential, in bytes: it is used as it is, without a slow derivation.
pub const MIN_CREDENTIAL_LEN: usize = 32;
/// The longest passphrase or credential, in bytes.
pub const MAX_PASSPHRASE_LEN: usize = 4096;

const STORE_MAGIC: [u8; 8] = *b"SLKSTORE";
const KEY_MAGIC: [u8; 8] = *b"SLKEYONE";
const COUNTERS_MAGIC: [u8; 8] = *b"SLKCOUNT";
const VERSION: u16 = 1;
const TAG_LEN: usize = 16;
/// The length of the random salt of what is sealed, in bytes.
pub(crate) const SALT_LEN: usize = 32;
const NONCE: [u8; 12] = [0; 12];
/// The length of everything before the sealed part of `store`.
const STORE_HEADER: usize = 8 + 2 + 1 + 3 * 4 + SALT_LEN;
/// The length of everything before the sealed part of a key, and of counters.
const KEY_HEADER: usize = 8 + 2 + SALT_LEN;
const LABEL_CREDENTIAL: &[u8] = b"sealane keeper: store by credential, 1";
const LABEL_KEY: &[u8] = b"sealane keeper: file of a key, 1";
const LABEL_COUNTERS: &[u8] = b"sealane keeper: counters of keys, 1";
const LABEL_WRAPPING: &[u8] = b"sealane keeper: keys of programs, 1";

/// The source of the key of a store. No `Debug`: it is a secret.
pub enum Protection {
    /// A passphrase, by Argon2id.
    Passphrase(Zeroizing<Vec<u8>>),
    /// A credential of the service manager: random bytes, at least [`MIN_CREDENTIAL_LEN`].
    Credential(Zeroizing<Vec<u8>>),
}

/// The cost of Argon2id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Cost {
    /// RFC 9106, section 4, the second recommended option: 64 MiB, 3 passes, 4 lanes.
    pub const RECOMMENDED: Cost = Cost { memory_kib: 64 * 1024, passes: 3, lanes: 4 };

    /// Whether a file may ask for it: a file that somebody changed must not take all memory, or for ever.
    fn is_bounded(self) -> bool {
        (8..=1024 * 1024).contains(&self.memory_kib)
            && (1..=64).contains(&self.passes)
            && (1..=16).contains(&self.lanes)
    }
}

/// A file that cannot be opened, or a key that cannot be sealed.
#[derive(Debug, PartialEq, Eq)]
pub enum SealError {
    /// It is no file of ours, of another version, or cut off.
    Malformed(Malformed),
    /// The passphrase or credential is a wrong one, or the file was changed.
    Wrong,
    /// The store is protected by the other kind of secret than the one given.
    OtherProtection,
    /// The credential is too short, or the passphrase empty or too long.
    Secret(&'static str),
    /// The crypto core or Argon2 failed.
    Crypto(String),
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SealError::Malformed(e) => e.fmt(f),
            SealError::Wrong => f.write_str("wrong passphrase or credential, or the file was changed"),
            SealError::OtherProtection => {
                f.write_str("protected by a passphrase where a credential is given, or the reverse")
            }
            SealError::Secret(what) => f.write_str(what),
            SealError::Crypto(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for SealError {}

impl From<Malformed> for SealError {
    fn from(e: Malformed) -> Self {
        SealError::Malformed(e)
    }
}

/// The key of a store.
pub struct StoreKey(Zeroizing<[u8; 32]>);

/// The keeper's own key for keys of programs ([`crate::wrapped`]).
pub struct WrappingKey(Zeroizing<[u8; 32]>);

impl WrappingKey {
    /// A random one, as long as the keeper lives.
    #[must_use]
    pub fn random() -> Self {
        let mut key = Zeroizing::new([0u8; 32]);
        random::fill(&mut *key);
        WrappingKey(key)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &*self.0
    }
}

/// The algorithms by which files are sealed.
pub struct Sealer {
    mac: Alg,
    aead: Alg,
}

impl Sealer {
    /// Takes them from the registry.
    ///
    /// # Errors
    /// The registry's.
    pub fn new(registry: &Registry) -> Result<Self, LookupError> {
        Ok(Sealer { mac: registry.lookup(Kind::Hash, "hmac(sha256)")?, aead: registry.lookup(Kind::Aead, "gcm(aes)")? })
    }

    /// The file of a new store, and its key, which is random.
    ///
    /// # Errors
    /// [`SealError::Secret`], [`SealError::Crypto`].
    pub fn create_store(&self, protection: &Protection, cost: Cost) -> Result<(Vec<u8>, StoreKey), SealError> {
        let mut salt = [0u8; SALT_LEN];
        random::fill(&mut salt);
        let mut key = Zeroizing::new([0u8; 32]);
        random::fill(&mut *key);
        let (number, cost) = match protection {
            Protection::Passphrase(_) => (1, cost),
            Protection::Credential(_) => (2, Cost { memory_kib: 0, passes: 0, lanes: 0 }),
        };
        let mut file = Writer::new();
        file.raw(&STORE_MAGIC);
        file.u16(VERSION);
        file.u8(number);
        for part in [cost.memory_kib, cost.passes, cost.lanes] {
            file.u32(part);
        }
        file.raw(&salt);
        let mut file = file.done().to_vec();
        let wrapping = self.wrapping(protection, cost, &salt)?;
        let (sealed, tag) = self.seal(&wrapping, &[&file], &*key)?;
        file.extend_from_slice(&sealed);
        file.extend_from_slice(&tag);
        Ok((file, StoreKey(key)))
    }

    /// The key of a store, from its file.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open_store(&self, file: &[u8], protection: &Protection) -> Result<StoreKey, SealError> {
        let (header, sealed) = file.split_at_checked(STORE_HEADER).ok_or(Malformed("store: too short"))?;
        let mut from = Reader::new(header);
        if from.array::<8>("store: magic")? != STORE_MAGIC {
            return Err(Malformed("store: not a store of sealane keeper").into());
        }
        if from.u16("store: version")? != VERSION {
            return Err(Malformed("store: of another version").into());
        }
        let number = from.u8("store: protection")?;
        let cost = Cost {
            memory_kib: from.u32("store: memory")?,
            passes: from.u32("store: passes")?,
            lanes: from.u32("store: lanes")?,
        };
        let salt = from.array::<SALT_LEN>("store: salt")?;
        match (number, protection) {
            (1, Protection::Passphrase(_)) if cost.is_bounded() => {}
            (2, Protection::Credential(_)) => {}
            (1, Protection::Passphrase(_)) => return Err(Malformed("store: cost of the passphrase").into()),
            (1 | 2, _) => return Err(SealError::OtherProtection),
            _ => return Err(Malformed("store: protection").into()),
        }
        if sealed.len() != 32 + TAG_LEN {
            return Err(Malformed("store: length").into());
        }
        let wrapping = self.wrapping(protection, cost, &salt)?;
        let opened = self.open(&wrapping, &[header], sealed)?;
        let mut key = Zeroizing::new([0u8; 32]);
        key.copy_from_slice(&opened);
        Ok(StoreKey(key))
    }

    /// The key for keys of programs that belongs to a store, so that they outlive the keeper.
    ///
    /// # Errors
    /// [`SealError::Crypto`].
    pub fn wrapping_key(&self, store: &StoreKey) -> Result<WrappingKey, SealError> {
        self.derive(&*store.0, LABEL_WRAPPING, &[]).map(WrappingKey)
    }

    /// The file of a key.
    ///
    /// # Errors
    /// [`SealError::Crypto`].
    pub fn seal_key(&self, store: &StoreKey, name: &Name, key: &Key) -> Result<Vec<u8>, SealError> {
        self.seal_file(store, (KEY_MAGIC, LABEL_KEY), name.as_str(), &key.encode())
    }

    /// The key in a file.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open_key(&self, store: &StoreKey, name: &Name, file: &[u8]) -> Result<Key, SealError> {
        if file.len() > MAX_FILE_LEN {
            return Err(Malformed("key: too long").into());
        }
        Ok(Key::decode(&self.open_file(store, (KEY_MAGIC, LABEL_KEY), name.as_str(), file)?)?)
    }

    /// The file of counters.
    ///
    /// # Errors
    /// [`SealError::Crypto`].
    pub fn seal_counters(&self, store: &StoreKey, entries: &[Entry]) -> Result<Vec<u8>, SealError> {
        self.seal_file(store, (COUNTERS_MAGIC, LABEL_COUNTERS), "", &counters::encode(entries))
    }

    /// The counters in a file.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open_counters(&self, store: &StoreKey, file: &[u8]) -> Result<Vec<Entry>, SealError> {
        Ok(counters::decode(&self.open_file(store, (COUNTERS_MAGIC, LABEL_COUNTERS), "", file)?)?)
    }

    fn seal_file(
        &self,
        store: &StoreKey,
        (magic, label): ([u8; 8], &[u8]),
        name: &str,
        text: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let mut salt = [0u8; SALT_LEN];
        random::fill(&mut salt);
        let mut file = Vec::with_capacity(KEY_HEADER);
        file.extend_from_slice(&magic);
        file.extend_from_slice(&VERSION.to_le_bytes());
        file.extend_from_slice(&salt);
        let once = self.derive(&*store.0, label, &salt)?;
        let (sealed, tag) = self.seal(&once, &[&file, name.as_bytes()], text)?;
        file.extend_from_slice(&sealed);
        file.extend_from_slice(&tag);
        Ok(file)
    }

    fn open_file(
        &self,
        store: &StoreKey,
        (magic, label): ([u8; 8], &[u8]),
        name: &str,
        file: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (header, sealed) = file.split_at_checked(KEY_HEADER).ok_or(Malformed("file: too short"))?;
        let mut from = Reader::new(header);
        if from.array::<8>("file: magic")? != magic {
            return Err(Malformed("file: not one of sealane keeper's, or of another kind").into());
        }
        if from.u16("file: version")? != VERSION {
            return Err(Malformed("file: of another version").into());
        }
        let salt = from.array::<SALT_LEN>("file: salt")?;
        let once = self.derive(&*store.0, label, &salt)?;
        self.open(&once, &[header, name.as_bytes()], sealed)
    }

    /// The key that wraps the store's key.
    fn wrapping(&self, from: &Protection, cost: Cost, salt: &[u8]) -> Result<Zeroizing<[u8; 32]>, SealError> {
        match from {
            Protection::Credential(secret) if secret.len() < MIN_CREDENTIAL_LEN => {
                Err(SealError::Secret("the credential has less than 32 bytes"))
            }
            Protection::Credential(secret) => self.derive(secret, LABEL_CREDENTIAL, salt),
            Protection::Passphrase(secret) if secret.is_empty() => Err(SealError::Secret("the passphrase is empty")),
            Protection::Passphrase(secret) if secret.len() > MAX_PASSPHRASE_LEN => {
                Err(SealError::Secret("the passphrase has more than 4,096 bytes"))
            }
            Protection::Passphrase(secret) => {
                use argon2::{Algorithm, Argon2, Params, Version};
                let failed = |e: argon2::Error| SealError::Crypto(format!("Argon2id: {e}"));
                let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).map_err(failed)?;
                let mut key = Zeroizing::new([0u8; 32]);
                Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
                    .hash_password_into(secret, salt, &mut key[..])
                    .map_err(failed)?;
                Ok(key)
            }
        }
    }

    pub(crate) fn derive(&self, key: &[u8], label: &[u8], salt: &[u8]) -> Result<Zeroizing<[u8; 32]>, SealError> {
        let tfm = self.mac.mac(key).map_err(|e| SealError::Crypto(format!("hmac(sha256): {e}")))?;
        let mut derived = Zeroizing::new([0u8; 32]);
        tfm.sign(&[label, salt], &mut derived[..]).map_err(failed)?;
        Ok(derived)
    }

    pub(crate) fn seal(
        &self,
        key: &[u8; 32],
        aad: &[&[u8]],
        text: &[u8],
    ) -> Result<(Vec<u8>, [u8; TAG_LEN]), SealError> {
        let tfm = self.aead.aead(key).map_err(|e| SealError::Crypto(format!("gcm(aes): {e}")))?;
        let mut tag = [0; TAG_LEN];
        let mut sealed = Zeroizing::new(text.to_vec());
        tfm.seal(&NONCE, aad, Data::from(&mut sealed[..]), &mut tag).map_err(failed)?;
        Ok((core::mem::take(&mut *sealed), tag))
    }

    pub(crate) fn open(&self, key: &[u8; 32], aad: &[&[u8]], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let len = sealed.len().checked_sub(TAG_LEN).ok_or(Malformed("too short"))?;
        let (text, tag) = sealed.split_at(len);
        let tfm = self.aead.aead(key).map_err(|e| SealError::Crypto(format!("gcm(aes): {e}")))?;
        let mut text = Zeroizing::new(text.to_vec());
        tfm.open(&NONCE, aad, Data::from(&mut text[..]), tag).map_err(failed)?;
        Ok(text)
    }
}

fn failed(error: OpError) -> SealError {
    match error {
        OpError::Auth => SealError::Wrong,
        other => SealError::Crypto(other.to_string()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::key::tests::key;

    /// A cost that tests can afford.
    pub(crate) const CHEAP: Cost = Cost { memory_kib: 64, passes: 1, lanes: 1 };

    pub(crate) fn sealer() -> Sealer {
        Sealer::new(&registry()).unwrap()
    }

    pub(crate) fn registry() -> Registry {
        Registry::builder(sealane_crypto_portable::self_test).rows(sealane_crypto_portable::rows()).build()
    }

    pub(crate) fn passphrase(text: &str) -> Protection {
        Protection::Passphrase(Zeroizing::new(text.as_bytes().to_vec()))
    }

    #[test]
    fn a_store_opens_by_its_secret_only() {
        let sealer = sealer();
        let credential = |byte| Protection::Credential(Zeroizing::new(vec![byte; 32]));
        for (right, wrong, other) in [
            (passphrase("right"), passphrase("wrong"), credential(1)),
            (credential(1), credential(2), passphrase("right")),
        ] {
            let (file, key) = sealer.create_store(&right, CHEAP).unwrap();
            assert!(sealer.open_store(&file, &right).is_ok_and(|again| *again.0 == *key.0));
            assert_eq!(sealer.open_store(&file, &wrong).err(), Some(SealError::Wrong));
            assert_eq!(sealer.open_store(&file, &other).err(), Some(SealError::OtherProtection));
            for len in 0..file.len() {
                assert!(sealer.open_store(&file[..len], &right).is_err(), "cut off at {len}");
            }
        }
        let short = Protection::Credential(Zeroizing::new(vec![1; 31]));
        assert!(matches!(sealer.create_store(&short, CHEAP).err(), Some(SealError::Secret(_))));
        assert!(matches!(sealer.create_store(&passphrase(""), CHEAP).err(), Some(SealError::Secret(_))));
    }

    #[test]
    fn a_store_that_asks_for_all_memory_is_refused() {
        let sealer = sealer();
        let (file, _) = sealer.create_store(&passphrase("right"), CHEAP).unwrap();
        for at in [11, 15, 19] {
            let mut changed = file.clone();
            changed[at..at + 4].fill(0xff);
            assert!(matches!(sealer.open_store(&changed, &passphrase("right")).err(), Some(SealError::Malformed(_))));
        }
    }

    #[test]
    fn a_file_that_is_cut_off_changed_or_renamed_is_refused() {
        let sealer = sealer();
        let (_, store) = sealer.create_store(&passphrase("right"), CHEAP).unwrap();
        let name = Name::new("a").unwrap();
        let file = sealer.seal_key(&store, &name, &key()).unwrap();
        assert!(sealer.open_key(&store, &name, &file).is_ok_and(|back| back.encode() == key().encode()));
        for len in 0..file.len() {
            assert!(sealer.open_key(&store, &name, &file[..len]).is_err(), "cut off at {len}");
            let mut changed = file.clone();
            changed[len] ^= 1;
            assert!(sealer.open_key(&store, &name, &changed).is_err(), "changed at {len}");
        }
        let other = Name::new("b").unwrap();
        assert_eq!(sealer.open_key(&store, &other, &file).err(), Some(SealError::Wrong));
        let longer = vec![0; MAX_FILE_LEN + 1];
        assert_eq!(
            sealer.open_key(&store, &name, &longer).err(),
            Some(SealError::Malformed(Malformed("key: too long")))
        );
    }
}
