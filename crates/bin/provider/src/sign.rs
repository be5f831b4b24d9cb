//! Signatures: made by the keeper, checked here.
//!
//! All that the default provider's RSA, ECDSA and Ed25519 signatures know of paddings, salts and digests is here, so that libssl and
//! programs find the same values under the same names.

mod algid;

use crate::digest::{DIGESTS, Digest as Running};
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Kind as Type, Known, Params, Requests, Word};
use crate::instance::{Instance, is_named};
use crate::key::{Key, Kind};
use core::ffi::CStr;
use sealane_crypto_awslc::public::{Check, Parts, SaltLen};
use sealane_keeper_client::message::{Answer, MAX_TEXT_LEN, Operation};
use sealane_pkey::{Digest, Scheme};
use std::ffi::CString;
use zeroize::Zeroizing;

/// The hash function below a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    /// MD5 and SHA-1 behind each other, for TLS before 1.2.
    Md5Sha1,
    Of(Digest),
}

/// The hash functions, each with its names; the first one is what a caller is told.
static HASHES: [(Hash, &CStr, &CStr); 6] = [
    (Hash::Of(Digest::Sha1), c"SHA1", c"SHA1:SHA-1:SSL3-SHA1:RSA-SHA1:1.3.14.3.2.26"),
    (Hash::Of(Digest::Sha224), c"SHA224", c"SHA2-224:SHA-224:SHA224:RSA-SHA224:2.16.840.1.101.3.4.2.4"),
    (Hash::Of(Digest::Sha256), c"SHA256", c"SHA2-256:SHA-256:SHA256:RSA-SHA256:2.16.840.1.101.3.4.2.1"),
    (Hash::Of(Digest::Sha384), c"SHA384", c"SHA2-384:SHA-384:SHA384:RSA-SHA384:2.16.840.1.101.3.4.2.2"),
    (Hash::Of(Digest::Sha512), c"SHA512", c"SHA2-512:SHA-512:SHA512:RSA-SHA512:2.16.840.1.101.3.4.2.3"),
    (Hash::Md5Sha1, c"MD5-SHA1", c"MD5-SHA1"),
];

impl Hash {
    /// The hash function of a name.
    pub(crate) fn named(name: &str) -> Result<Self, Failure> {
        let found = HASHES.iter().find(|(_, _, names)| is_named(names, name));
        let unknown = || {
            let text =
                format!("sealane: the keeper signs no digest of {name}, only of SHA1, SHA224, SHA256, SHA384, SHA512");
            Failure::text(Reason::InvalidDigest, text)
        };
        found.map(|(hash, ..)| *hash).ok_or_else(unknown)
    }

    /// The name that a caller is told.
    pub(crate) fn name(self) -> &'static CStr {
        HASHES.iter().find(|(hash, ..)| *hash == self).map_or(c"", |(_, name, _)| name)
    }

    fn len(self) -> usize {
        match self {
            Hash::Md5Sha1 => 36,
            Hash::Of(digest) => digest.len(),
        }
    }

    /// The one digest that it is.
    pub(crate) fn digest(self) -> Result<Digest, Failure> {
        match self {
            Hash::Of(digest) => Ok(digest),
            Hash::Md5Sha1 => Err(Reason::InvalidDigest.into()),
        }
    }
}

/// A message that is hashed.
struct Hasher(Vec<Running>);

impl Hasher {
    fn new(hash: Hash, instance: &Instance) -> Result<Self, Failure> {
        let names: &[&str] = match hash {
            Hash::Md5Sha1 => &["MD5", "SHA1"],
            Hash::Of(Digest::Sha1) => &["SHA1"],
            Hash::Of(Digest::Sha224) => &["SHA224"],
            Hash::Of(Digest::Sha256) => &["SHA256"],
            Hash::Of(Digest::Sha384) => &["SHA384"],
            Hash::Of(Digest::Sha512) => &["SHA512"],
        };
        let row = |name: &&str| DIGESTS.iter().find(|row| is_named(row.names, name)).ok_or(Reason::Internal);
        names.iter().map(|name| Running::new(row(name)?, instance)).collect::<Result<_, _>>().map(Hasher)
    }

    fn finish(&mut self) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::new();
        for digest in &mut self.0 {
            let from = all.len();
            all.resize(from + digest.len(), 0);
            digest.finish(&mut all[from..])?;
        }
        Ok(all)
    }
}

/// The purpose of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Sign,
    Verify,
    /// Take the digest out of a signature.
    Recover,
}

/// The paddings of RSA signatures with their numbers and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Padding {
    Pkcs1,
    Pss,
}

impl Padding {
    fn of(word: Word<'_>) -> Result<Self, Failure> {
        match word {
            Word::Number(1) | Word::Text("pkcs1") => Ok(Padding::Pkcs1),
            Word::Number(6) | Word::Text("pss") => Ok(Padding::Pss),
            _ => Err(Failure::text(
                Reason::IllegalPaddingMode,
                "sealane: the keeper signs with the paddings pkcs1 and pss".to_owned(),
            )),
        }
    }

    fn word(self) -> (i32, &'static CStr) {
        match self {
            Padding::Pkcs1 => (1, c"pkcs1"),
            Padding::Pss => (6, c"pss"),
        }
    }
}

/// Lengths of salts that are no numbers of bytes (`RSA_PSS_SALTLEN_*`).
const SALT_DIGEST: i32 = -1;
const SALT_AUTO: i32 = -2;
const SALT_MAX: i32 = -3;
const SALT_AUTO_DIGEST_MAX: i32 = -4;

/// Their names.
const SALTS: [(i32, &CStr); 4] =
    [(SALT_DIGEST, c"digest"), (SALT_AUTO, c"auto"), (SALT_MAX, c"max"), (SALT_AUTO_DIGEST_MAX, c"auto-digestmax")];

fn salt_of(word: Word<'_>) -> Result<i32, Failure> {
    let salt = match word {
        Word::Number(number) => Some(number),
        Word::Text(text) => {
            let named = SALTS.iter().find(|(_, name)| name.to_str() == Ok(text)).map(|(salt, _)| *salt);
            named.or_else(|| text.parse().ok().filter(|number| *number >= 0))
        }
    };
    salt.filter(|salt| *salt >= SALT_AUTO_DIGEST_MAX).ok_or_else(|| Reason::InvalidSaltLength.into())
}

/// A signature that is made or checked.
pub(crate) struct Signature {
    kind: Kind,
    key: Option<Key>,
    task: Task,
    hash: Option<Hash>,
    /// The message is hashed here, so that its digest stays the one that was said first.
    is_hashing: bool,
    padding: Padding,
    mgf1: Option<Digest>,
    salt: i32,
    /// The salt where a caller says nothing of it.
    usual_salt: i32,
    hasher: Option<Hasher>,
}

impl Signature {
    pub(crate) fn new(kind: Kind, instance: &Instance) -> Self {
        // OpenSSL 3.1 has taken the digest's length over from FIPS 186-4, in place of the longest one.
        let usual_salt = if instance.is_openssl_3_0() { SALT_AUTO } else { SALT_AUTO_DIGEST_MAX };
        Self::with_salt(kind, usual_salt)
    }

    fn with_salt(kind: Kind, usual_salt: i32) -> Self {
        Signature {
            kind,
            key: None,
            task: Task::Sign,
            hash: None,
            is_hashing: false,
            padding: Padding::Pkcs1,
            mgf1: None,
            salt: usual_salt,
            usual_salt,
            hasher: None,
        }
    }

    pub(crate) fn duplicate(&self) -> Self {
        let hasher = self.hasher.as_ref().map(|hasher| Hasher(hasher.0.iter().map(Running::duplicate).collect()));
        Signature { key: self.key.clone(), hasher, ..*self }
    }

    /// Begins to sign or check digests. Without a key the one of before stays.
    pub(crate) fn start(&mut self, key: Option<&Key>, task: Task, params: Params<'_>) -> Done {
        let key = key.or(self.key.as_ref()).ok_or(Reason::NoKeySet)?.clone();
        if task == Task::Recover && self.kind != Kind::Rsa {
            return Err(Reason::NotSupported.into());
        }
        if task == Task::Sign {
            key.home()?;
        }
        key.public()?;
        *self = Signature { key: Some(key), task, ..Self::with_salt(self.kind, self.usual_salt) };
        self.set(params)
    }

    /// Begins to sign or check messages, which are hashed here.
    pub(crate) fn start_message(
        &mut self,
        key: Option<&Key>,
        task: Task,
        hash: Option<&str>,
        params: Params<'_>,
        instance: &Instance,
    ) -> Done {
        self.start(key, task, params)?;
        let name = hash.filter(|name| !name.is_empty());
        if self.kind == Kind::Ed25519 {
            // It has a hash function of its own.
            return match name {
                Some(_) => Err(Reason::InvalidDigest.into()),
                None => Ok(()),
            };
        }
        if let Some(name) = name {
            self.set_hash(name)?;
        }
        let hash = *self.hash.get_or_insert(Hash::Of(Digest::Sha256));
        self.hasher = Some(Hasher::new(hash, instance)?);
        self.is_hashing = true;
        Ok(())
    }

    fn set_hash(&mut self, name: &str) -> Done {
        let hash = Hash::named(name)?;
        if self.is_hashing && self.hash != Some(hash) {
            return Err(Reason::DigestNotAllowed.into());
        }
        self.hash = Some(hash);
        Ok(())
    }

    /// Takes what is passed in.
    pub(crate) fn set(&mut self, params: Params<'_>) -> Done {
        if self.kind == Kind::Ed25519 {
            // Only Ed25519ctx has one. Without it the signature would count in every context.
            let context = params.get(c"context-string").map(|context| context.octets()).transpose()?.flatten();
            if context.is_some_and(|context| !context.is_empty()) {
                let text = "sealane: Ed25519 has no context, and the keeper no Ed25519ctx".to_owned();
                return Err(Failure::text(Reason::NotSupported, text));
            }
            return match params.get(c"instance").map(|instance| instance.text()).transpose()? {
                None | Some("Ed25519") => Ok(()),
                Some(_) => Err(Reason::NotSupported.into()),
            };
        }
        if let Some(size) = params.get(c"digest-size").filter(|_| self.kind == Kind::Ec) {
            let size = size.size()?;
            if self.hash.is_some_and(|hash| hash.len() != size) {
                return Err(Reason::InvalidDigestLength.into());
            }
        }
        if let Some(kind) = params.get(c"nonce-type").filter(|_| self.kind == Kind::Ec)
            && kind.uint()? != 0
        {
            return Err(Reason::NotSupported.into());
        }
        if self.kind == Kind::Rsa {
            self.set_rsa(params)?;
        }
        match params.get(c"digest") {
            Some(digest) => self.set_hash(digest.text()?),
            None => Ok(()),
        }
    }

    fn set_rsa(&mut self, params: Params<'_>) -> Done {
        let padding = params.get(c"pad-mode").map_or(Ok(self.padding), |mode| Padding::of(mode.word()?))?;
        if padding == Padding::Pss && self.task == Task::Recover {
            return Err(Reason::IllegalPaddingMode.into());
        }
        let salt = params.get(c"saltlen").map(|len| salt_of(len.word()?)).transpose()?;
        if salt.is_some() && padding != Padding::Pss {
            let text = "sealane: a salt needs the padding pss first".to_owned();
            return Err(Failure::text(Reason::NotSupported, text));
        }
        let mgf1 = params.get(c"mgf1-digest").map(|name| Hash::named(name.text()?)?.digest()).transpose()?;
        if mgf1.is_some() && padding != Padding::Pss {
            return Err(Reason::InvalidMgf1Digest.into());
        }
        (self.padding, self.salt) = (padding, salt.unwrap_or(self.salt));
        self.mgf1 = mgf1.or(self.mgf1);
        if padding == Padding::Pss && self.hash.is_none() {
            // As the default provider does: RFC 8017 says so, and callers that name no digest have to meet.
            self.hash = Some(Hash::Of(Digest::Sha1));
        }
        Ok(())
    }

    /// The values that can be set.
    pub(crate) fn settable(kind: Kind, is_hashing: bool) -> &'static [Known] {
        static RSA: [Known; 7] = [
            Known::new(c"digest", Type::Text),
            Known::new(c"properties", Type::Text),
            Known::new(c"pad-mode", Type::Text),
            Known::new(c"mgf1-digest", Type::Text),
            Known::new(c"mgf1-properties", Type::Text),
            Known::new(c"saltlen", Type::Text),
            Known::END,
        ];
        static EC: [Known; 4] = [
            Known::new(c"digest", Type::Text),
            Known::new(c"digest-size", Type::Size),
            Known::new(c"properties", Type::Text),
            Known::END,
        ];
        static NONE: [Known; 1] = [Known::END];
        match kind {
            // The digest and its properties come first.
            Kind::Rsa => {
                if is_hashing {
                    &RSA[2..]
                } else {
                    &RSA
                }
            }
            Kind::Ec if !is_hashing => &EC,
            Kind::Ec | Kind::Ed25519 => &NONE,
        }
    }

    /// The values that can be asked for.
    pub(crate) fn gettable(kind: Kind) -> &'static [Known] {
        static RSA: [Known; 6] = [
            Known::new(c"algorithm-id", Type::Octets),
            Known::new(c"pad-mode", Type::Text),
            Known::new(c"digest", Type::Text),
            Known::new(c"mgf1-digest", Type::Text),
            Known::new(c"saltlen", Type::Text),
            Known::END,
        ];
        static EC: [Known; 4] = [
            Known::new(c"algorithm-id", Type::Octets),
            Known::new(c"digest-size", Type::Size),
            Known::new(c"digest", Type::Text),
            Known::END,
        ];
        static ED25519: [Known; 2] = [Known::new(c"algorithm-id", Type::Octets), Known::END];
        match kind {
            Kind::Rsa => &RSA,
            Kind::Ec => &EC,
            Kind::Ed25519 => &ED25519,
        }
    }

    /// Whether a message is hashed here.
    pub(crate) fn is_hashing(&self) -> bool {
        self.is_hashing
    }

    /// Answers what is asked for.
    pub(crate) fn answer(&self, asked: &mut Requests<'_>) -> Done {
        asked.answer(c"algorithm-id", |p| p.octets(&self.algorithm_id()?))?;
        let name = |hash: Option<Hash>| hash.map_or(c"", Hash::name);
        if self.kind != Kind::Ed25519 {
            asked.answer(c"digest", |p| p.text(name(self.hash)))?;
        }
        match self.kind {
            Kind::Ec => asked.answer(c"digest-size", |p| p.size(self.hash.map_or(0, Hash::len))),
            Kind::Rsa => {
                let (number, word) = self.padding.word();
                asked.answer(c"pad-mode", |p| p.word(number, word))?;
                let mgf1 = self.mgf1.map(Hash::Of).or(self.hash);
                asked.answer(c"mgf1-digest", |p| p.text(name(mgf1)))?;
                let named = SALTS.iter().find(|(salt, _)| *salt == self.salt);
                let text = named.map_or_else(
                    || CString::new(self.salt.to_string()).unwrap_or_default(),
                    |(_, name)| (*name).to_owned(),
                );
                asked.answer(c"saltlen", |p| p.word(self.salt, &text))
            }
            Kind::Ed25519 => Ok(()),
        }
    }

    fn key(&self) -> Result<&Key, Failure> {
        self.key.as_ref().ok_or_else(|| Reason::NoKeySet.into())
    }

    /// The digests of PSS: of the message, and of the mask.
    fn pss_digests(&self) -> Result<(Digest, Digest), Failure> {
        let digest = self.hash.ok_or(Reason::InvalidDigest)?.digest()?;
        Ok((digest, self.mgf1.unwrap_or(digest)))
    }

    /// The length of the salt of a signature that is made, in bytes.
    fn salt_len(&self) -> Result<u16, Failure> {
        let (digest, _) = self.pss_digests()?;
        // The encoded message has one bit less than the modulus (RFC 8017, section 8.1.1).
        let encoded = (self.key()?.public()?.bits() - 1).div_ceil(8);
        let most = encoded.checked_sub(digest.len() + 2).ok_or(Reason::InvalidDigestLength)?;
        let len = match self.salt {
            SALT_DIGEST => digest.len(),
            SALT_AUTO | SALT_MAX => most,
            SALT_AUTO_DIGEST_MAX => most.min(digest.len()),
            number => usize::try_from(number).map_err(|_| Reason::InvalidSaltLength)?,
        };
        if len > most {
            return Err(Failure::text(
                Reason::InvalidSaltLength,
                format!("sealane: the longest salt has {most} bytes"),
            ));
        }
        u16::try_from(len).map_err(|_| Reason::InvalidSaltLength.into())
    }

    fn algorithm_id(&self) -> Result<Vec<u8>, Failure> {
        let digest = || self.hash.ok_or(Reason::InvalidDigest)?.digest();
        Ok(match (self.kind, self.padding) {
            (Kind::Ed25519, _) => algid::ed25519(),
            (Kind::Ec, _) => algid::ecdsa(digest()?),
            (Kind::Rsa, Padding::Pkcs1) => algid::rsa_pkcs1(digest()?),
            (Kind::Rsa, Padding::Pss) => {
                let (digest, mgf1) = self.pss_digests()?;
                algid::rsa_pss(digest, mgf1, self.salt_len()?)
            }
        })
    }

    fn scheme(&self) -> Result<Scheme, Failure> {
        Ok(match (self.kind, self.padding, self.hash) {
            (Kind::Ed25519, ..) => Scheme::Ed25519,
            (Kind::Ec, ..) => Scheme::Ecdsa,
            (Kind::Rsa, Padding::Pss, _) => {
                let (digest, mgf1) = self.pss_digests()?;
                Scheme::RsaPss { digest, mgf1, salt_len: self.salt_len()? }
            }
            (Kind::Rsa, Padding::Pkcs1, Some(Hash::Md5Sha1)) => Scheme::RsaPkcs1Md5Sha1,
            (Kind::Rsa, Padding::Pkcs1, Some(Hash::Of(digest))) => Scheme::RsaPkcs1(digest),
            (Kind::Rsa, Padding::Pkcs1, None) => return Err(Self::no_digest()),
        })
    }

    fn no_digest() -> Failure {
        let text =
            "sealane: the keeper signs with RSA what has a digest: say which (-pkeyopt digest:sha256)".to_owned();
        Failure::text(Reason::InvalidDigest, text)
    }

    /// Checks the length of a digest.
    fn check_len(&self, len: usize) -> Done {
        if let Some(hash) = self.hash
            && hash.len() != len
        {
            let text = format!("sealane: a digest has {} bytes, and this one {len}", hash.len());
            return Err(Failure::text(Reason::InvalidDigestLength, text));
        }
        Ok(())
    }

    /// The length of the longest signature in bytes.
    pub(crate) fn len(&self) -> Result<usize, Failure> {
        Ok(self.key()?.public()?.signature_len())
    }

    /// Signs a digest, or with Ed25519 a message.
    pub(crate) fn sign(&self, instance: &Instance, text: &[u8]) -> Result<Vec<u8>, Failure> {
        let home = self.key()?.home()?;
        let scheme = self.scheme()?;
        if self.kind != Kind::Ed25519 {
            self.check_len(text.len())?;
        } else if text.len() > MAX_TEXT_LEN {
            let text = format!("sealane: the keeper signs messages of up to {MAX_TEXT_LEN} bytes");
            return Err(Failure::text(Reason::BadLength, text));
        }
        let text = Zeroizing::new(text.to_vec());
        let asked = Operation::Sign { name: home.name.clone(), version: home.version, scheme, text };
        let Answer::Signature { signature, .. } = instance.keeper().ask(asked)? else {
            return Err(Reason::KeeperWrong.into());
        };
        if signature.len() > self.len()? {
            return Err(Reason::KeeperWrong.into());
        }
        Ok(signature)
    }

    /// Checks a signature of a digest, or with Ed25519 of a message.
    pub(crate) fn verify(&self, text: &[u8], signature: &[u8]) -> Done {
        let check = match self.scheme_to_check()? {
            Check::Ed25519 => Check::Ed25519,
            check => {
                self.check_len(text.len())?;
                check
            }
        };
        let is_right = self.key()?.public()?.key.verify(check, text, signature);
        // A wrong signature is an answer, for which the caller has a text.
        if is_right { Ok(()) } else { Err(Failure::SILENT) }
    }

    fn scheme_to_check(&self) -> Result<Check, Failure> {
        Ok(match (self.kind, self.padding, self.hash) {
            (Kind::Ed25519, ..) => Check::Ed25519,
            (Kind::Ec, ..) => Check::Ecdsa,
            (Kind::Rsa, Padding::Pss, _) => {
                let (digest, mgf1) = self.pss_digests()?;
                let salt_len = match self.salt {
                    SALT_AUTO | SALT_AUTO_DIGEST_MAX => SaltLen::Any,
                    _ => SaltLen::Bytes(self.salt_len()?),
                };
                Check::RsaPss { digest, mgf1, salt_len }
            }
            (Kind::Rsa, Padding::Pkcs1, Some(Hash::Md5Sha1)) => Check::RsaPkcs1Md5Sha1,
            (Kind::Rsa, Padding::Pkcs1, Some(Hash::Of(digest))) => Check::RsaPkcs1(digest),
            (Kind::Rsa, Padding::Pkcs1, None) => return Err(Self::no_digest()),
        })
    }

    /// The digest in a signature by PKCS #1 v1.5.
    pub(crate) fn recover(&self, signature: &[u8]) -> Result<Vec<u8>, Failure> {
        let digest = self.hash.ok_or_else(Self::no_digest)?.digest()?;
        let public = self.key()?.public()?;
        if !matches!(public.parts, Parts::Rsa { .. }) {
            return Err(Reason::NotSupported.into());
        }
        public.key.recover(digest, signature).ok_or(Failure::SILENT)
    }

    /// Takes more of a message.
    pub(crate) fn update(&mut self, data: &[u8]) -> Done {
        let hasher = self.hasher.as_mut().ok_or(Failure::SILENT)?;
        hasher.0.iter_mut().try_for_each(|digest| digest.update(data))
    }

    /// The digest of the message, which has ended.
    pub(crate) fn digest(&mut self) -> Result<Vec<u8>, Failure> {
        let digest = self.hasher.as_mut().ok_or(Failure::SILENT)?.finish();
        self.is_hashing = false;
        digest
    }
}
