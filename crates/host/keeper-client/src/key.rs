//! The part of a key that clients may know: its name, and its rules.

use crate::codec::{Malformed, Reader, Writer};
use sealane_pkey::listed;
use std::fmt;

/// The longest name, in bytes.
pub const MAX_NAME_LEN: usize = 64;
/// The longest name of an algorithm, in bytes.
pub const MAX_ALGORITHM_LEN: usize = 127;
/// The longest secret of a cipher or MAC, in bytes.
pub const MAX_SYMMETRIC_LEN: usize = 1024;
/// The longest secret, in bytes. A private key of RSA-4096 has 2,375 in PKCS #8.
pub const MAX_SECRET_LEN: usize = 4096;
/// The most versions of a key that have secrets, and the most that are remembered.
pub const MAX_VERSIONS: usize = 16;
/// The most users, or groups, in a list.
pub const MAX_LISTED: usize = 64;

/// The name of a key: letters, digits, `.`, `_` and `-`, the first one a letter or a digit; at most [`MAX_NAME_LEN`] bytes. It is
/// the name of the key's file, too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Judges a text.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let first = text.bytes().next()?;
        let all = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        (first.is_ascii_alphanumeric() && all && text.len() <= MAX_NAME_LEN).then(|| Name(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a name with its length before it.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Name::new(from.text(MAX_NAME_LEN, "name of a key")?).ok_or(Malformed("name of a key"))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A MAC.
    Hash,
    /// A cipher.
    Skcipher,
    /// An AEAD.
    Aead,
    /// A private key: its algorithm is one of [`sealane_pkey::Algorithm`].
    Private,
}

impl Kind {
    /// All of them with their names. A place in this list, counted from 1, is the number in files and messages.
    pub const ALL: [(Kind, &'static str); 4] =
        [(Kind::Hash, "hash"), (Kind::Skcipher, "skcipher"), (Kind::Aead, "aead"), (Kind::Private, "private")];

    /// Its name: for symmetric keys that of the registry.
    #[must_use]
    pub fn name(self) -> &'static str {
        listed::name(&Kind::ALL, self)
    }

    /// Its number in files and messages.
    #[must_use]
    pub fn number(self) -> u8 {
        listed::number(&Kind::ALL, self)
    }

    /// The type of a number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        listed::of_number(&Kind::ALL, from.u8("type of key")?).ok_or(Malformed("type of key"))
    }

    /// The registry's type; `None` for private keys.
    #[must_use]
    pub fn registry(self) -> Option<sealane_crypto::Kind> {
        match self {
            Kind::Hash => Some(sealane_crypto::Kind::Hash),
            Kind::Skcipher => Some(sealane_crypto::Kind::Skcipher),
            Kind::Aead => Some(sealane_crypto::Kind::Aead),
            Kind::Private => None,
        }
    }

    /// The type that is the registry's `kind`, if keys can have it.
    #[must_use]
    pub fn of_registry(kind: sealane_crypto::Kind) -> Option<Self> {
        Kind::ALL.into_iter().map(|(one, _)| one).find(|one| one.registry() == Some(kind))
    }
}

/// A set of uses of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uses(u16);

impl Uses {
    /// Encrypt, under a nonce that the keeper makes.
    pub const ENCRYPT: Uses = Uses(1);
    /// Decrypt.
    pub const DECRYPT: Uses = Uses(2);
    /// Encrypt and decrypt under nonces of the caller, who then has to see that none comes twice.
    pub const CALLER_NONCE: Uses = Uses(4);
    /// Compute a MAC.
    pub const MAC: Uses = Uses(8);
    /// Check a MAC, without learning it.
    pub const VERIFY: Uses = Uses(16);
    /// Sign.
    pub const SIGN: Uses = Uses(32);

    /// Every use with its name.
    pub const ALL: [(Uses, &'static str); 6] = [
        (Uses::ENCRYPT, "encrypt"),
        (Uses::DECRYPT, "decrypt"),
        (Uses::CALLER_NONCE, "caller-nonce"),
        (Uses::MAC, "mac"),
        (Uses::VERIFY, "verify"),
        (Uses::SIGN, "sign"),
    ];

    /// The bits of files and messages.
    #[must_use]
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The set of these bits, if each has a meaning.
    #[must_use]
    pub fn of_bits(bits: u16) -> Option<Self> {
        let known = Uses::ALL.iter().fold(0, |all, (one, _)| all | one.0);
        (bits & !known == 0).then_some(Uses(bits))
    }

    /// Whether all of `other` are in this set.
    #[must_use]
    pub fn contains(self, other: Uses) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub fn and(self, other: Uses) -> Uses {
        Uses(self.0 | other.0)
    }

    /// Reads names separated by commas.
    ///
    /// # Errors
    /// The first word that is no use.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.split(',').map(str::trim).try_fold(Uses::default(), |set, word| {
            let found = Uses::ALL.iter().find(|(_, name)| *name == word);
            found.map(|(one, _)| set.and(*one)).ok_or_else(|| word.to_owned())
        })
    }

    /// The names of the uses in this set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Uses::ALL.into_iter().filter(move |(one, _)| self.contains(*one)).map(|(_, name)| name)
    }

    /// The uses that an algorithm of this kind can have at all. Of private keys RSA's alone decrypt.
    #[must_use]
    pub fn possible(kind: Kind) -> Self {
        match kind {
            Kind::Hash => Uses::MAC.and(Uses::VERIFY),
            Kind::Skcipher | Kind::Aead => Uses::ENCRYPT.and(Uses::DECRYPT).and(Uses::CALLER_NONCE),
            Kind::Private => Uses::SIGN.and(Uses::DECRYPT),
        }
    }
}

/// Users and groups by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// Users; at most [`MAX_LISTED`].
    pub users: Vec<u32>,
    /// Groups; at most [`MAX_LISTED`].
    pub groups: Vec<u32>,
}

impl Listed {
    /// Whether one of them is this process's.
    #[must_use]
    pub fn admits(&self, peer: &Peer) -> bool {
        self.users.contains(&peer.user) || peer.groups.iter().any(|group| self.groups.contains(group))
    }

    fn write(&self, to: &mut Writer) {
        for list in [&self.users, &self.groups] {
            to.count(list.len());
            list.iter().for_each(|id| to.u32(*id));
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut list = || -> Result<Vec<u32>, Malformed> {
            let count = from.count(MAX_LISTED, "list of users or groups")?;
            (0..count).map(|_| from.u32("user or group")).collect()
        };
        Ok(Listed { users: list()?, groups: list()? })
    }

    fn is_bounded(&self) -> bool {
        self.users.len() <= MAX_LISTED && self.groups.len() <= MAX_LISTED
    }
}

/// The process at the other end, as the kernel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its id; 0 outside our process namespace.
    pub process: u32,
    /// Its effective user.
    pub user: u32,
    /// Its groups, the effective one among them.
    pub groups: Vec<u32>,
}

/// Bounds on what is done with a key. 0 is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes that may go through one version.
    pub bytes: u64,
    /// Operations that may be done with one version.
    pub operations: u64,
    /// Operations in a second, on average, and at once.
    pub per_second: u32,
}

/// The rules of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Type of the algorithm.
    pub kind: Kind,
    /// Name of the algorithm in the registry, `gcm(aes)`, or of a private key, `rsa-2048`. To import a private key it may be empty:
    /// the key says what it is.
    pub algorithm: String,
    /// The operations that it may be used for. To make or import a private key it may be empty: all that its algorithm can.
    pub uses: Uses,
    /// The time, in seconds since 1970, from which on nothing is encrypted, authenticated or signed with it; 0 for none. What it made
    /// before is still opened and checked.
    pub expires_s: u64,
    /// Bounds.
    pub limits: Limits,
    /// The users and groups that may use it.
    pub users: Listed,
    /// The users and groups that may administer it, beside the administrators of the keeper.
    pub admins: Listed,
}

impl Spec {
    /// Writes them for files and messages.
    pub fn write(&self, to: &mut Writer) {
        to.u8(self.kind.number());
        to.bytes(self.algorithm.as_bytes());
        to.u16(self.uses.bits());
        to.u64(self.expires_s);
        to.u64(self.limits.bytes);
        to.u64(self.limits.operations);
        to.u32(self.limits.per_second);
        self.users.write(to);
        self.admins.write(to);
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Spec {
            kind: Kind::read(from)?,
            algorithm: from.text(MAX_ALGORITHM_LEN, "name of the algorithm")?.to_owned(),
            uses: Uses::of_bits(from.u16("uses")?).ok_or(Malformed("uses"))?,
            expires_s: from.u64("expiry")?,
            limits: Limits {
                bytes: from.u64("limit of bytes")?,
                operations: from.u64("limit of operations")?,
                per_second: from.u32("limit of rate")?,
            },
            users: Listed::read(from)?,
            admins: Listed::read(from)?,
        })
    }

    /// Whether it can be written and read again.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.algorithm.len() <= MAX_ALGORITHM_LEN && self.users.is_bounded() && self.admins.is_bounded()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

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

    #[test]
    fn names_are_names_of_files_and_nothing_else() {
        for good in ["a", "0", "web.example.com", "A_b-c", &"x".repeat(64)] {
            assert_eq!(Name::new(good).as_ref().map(Name::as_str), Some(good));
        }
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a\0", "ä", "a b", &"x".repeat(65)] {
            assert_eq!(Name::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn types_have_numbers_of_their_own() {
        for (kind, name) in Kind::ALL {
            assert_eq!((Kind::read(&mut Reader::new(&[kind.number()])), kind.name()), (Ok(kind), name));
            assert!(kind.registry().is_none_or(|of| Kind::of_registry(of) == Some(kind) && of.name() == name));
        }
        for number in [0, 5] {
            assert!(Kind::read(&mut Reader::new(&[number])).is_err());
        }
        assert_eq!(Kind::of_registry(sealane_crypto::Kind::Rng), None);
    }

    #[test]
    fn uses_have_names() {
        let uses = Uses::parse("encrypt, decrypt").unwrap();
        assert!(uses.contains(Uses::ENCRYPT) && uses.contains(Uses::DECRYPT) && !uses.contains(Uses::MAC));
        assert_eq!(uses.names().collect::<Vec<_>>(), ["encrypt", "decrypt"]);
        assert_eq!(Uses::parse("encrypt,sing"), Err("sing".to_owned()));
        assert_eq!(Uses::of_bits(1 << 15), None);
    }
}
