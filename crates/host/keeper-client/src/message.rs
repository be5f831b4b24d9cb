//! The messages between a keeper and its clients: one in each packet of a Unix seqpacket socket.
//!
//! ```text
//! request   version:1 operation:1 id:8   fields of the operation
//! reply     version:1 kind:1      id:8   fields of the kind
//! ```
//!
//! A request has one reply, with its id, and replies come in the order of the requests. A request that cannot be read is refused
//! with id 0 or its own, and the connection ends.

use crate::codec::{Malformed, Reader, Writer};
use crate::key::{MAX_NAME_LEN, MAX_SECRET_LEN, MAX_VERSIONS, Name, Spec};
use sealane_pkey::{
    Algorithm, Digest, MAX_CIPHERTEXT_LEN, MAX_LABEL_LEN, MAX_SIGNATURE_LEN, MAX_SPKI_LEN, Padding, Scheme,
};
use std::fmt;
use zeroize::Zeroizing;

/// The version of these messages.
pub const VERSION: u8 = 1;
/// The longest text of an operation, in bytes.
pub const MAX_TEXT_LEN: usize = 64 * 1024;
/// The longest associated data, in bytes.
pub const MAX_AAD_LEN: usize = 4096;
/// The longest message: a text, associated data, and what is around them.
pub const MAX_MESSAGE_LEN: usize = 72 * 1024;
/// The most keys in one reply: at most 2 KiB each.
pub const MAX_PAGE: usize = 32;

const MAX_NONCE_LEN: usize = 64;
const MAX_TAG_LEN: usize = 64;
const MAX_REASON_LEN: usize = 1024;

/// The request of a client. Versions are numbers from 1; 0 is the newest one, or all where it says so. No `Debug`: it may hold a
/// secret.
pub enum Operation {
    /// Make a key from random bytes. Answered by [`Answer::Version`].
    Generate {
        /// Its name, which no key has.
        name: Name,
        /// Its rules.
        spec: Spec,
        /// The length of its secret in bytes; 0 is the algorithm's longest usual one.
        secret_len: u32,
    },
    /// Keep a key of the client's. Answered by [`Answer::Version`].
    Import {
        /// Its name, which no key has.
        name: Name,
        /// Its rules.
        spec: Spec,
        /// Its secret; of a private key PKCS #8, PKCS #1 or SEC 1 in DER.
        secret: Zeroizing<Vec<u8>>,
    },
    /// The keys that the client may use or administer, by name. Answered by [`Answer::Keys`].
    List {
        /// The last name of the reply before.
        after: Option<Name>,
    },
    /// One key. Answered by [`Answer::Keys`].
    Show {
        /// Its name.
        name: Name,
    },
    /// Destroy secrets. Answered by [`Answer::Version`].
    Revoke {
        /// The key.
        name: Name,
        /// The version; 0 is all of them, and those to come.
        version: u32,
    },
    /// Make a new version, by which everything is encrypted and authenticated from now on. Answered by [`Answer::Version`].
    Rotate {
        /// The key.
        name: Name,
        /// The new secret; random bytes of the former length, or a new private key, if it is empty.
        secret: Zeroizing<Vec<u8>>,
    },
    /// Encrypt. Answered by [`Answer::Sealed`].
    Seal {
        /// The key.
        name: Name,
        /// The nonce or IV; empty for one that the keeper makes.
        nonce: Vec<u8>,
        /// Associated data, for AEADs.
        aad: Vec<u8>,
        /// The plaintext.
        text: Zeroizing<Vec<u8>>,
    },
    /// Decrypt. Answered by [`Answer::Opened`].
    Open {
        /// The key.
        name: Name,
        /// The version; 0 is the newest.
        version: u32,
        /// The nonce or IV.
        nonce: Vec<u8>,
        /// Associated data, for AEADs.
        aad: Vec<u8>,
        /// The ciphertext, with an AEAD's tag behind it.
        text: Vec<u8>,
    },
    /// Authenticate. Answered by [`Answer::Tag`].
    Mac {
        /// The key.
        name: Name,
        /// The message.
        text: Zeroizing<Vec<u8>>,
    },
    /// Check a MAC. Answered by [`Answer::Version`], or refused with [`Code::Auth`].
    Verify {
        /// The key.
        name: Name,
        /// The version; 0 is the newest.
        version: u32,
        /// The message.
        text: Zeroizing<Vec<u8>>,
        /// The tag, of full length.
        tag: Vec<u8>,
    },
    /// The public part of a private key. Answered by [`Answer::Public`].
    Public {
        /// The key.
        name: Name,
        /// The version; 0 is the newest.
        version: u32,
    },
    /// Sign by a private key. Answered by [`Answer::Signature`].
    Sign {
        /// The key.
        name: Name,
        /// The version; 0 is the newest.
        version: u32,
        /// The kind of signature.
        scheme: Scheme,
        /// A digest, or for Ed25519 the message.
        text: Zeroizing<Vec<u8>>,
    },
    /// Decrypt by a private key. Answered by [`Answer::Opened`]. Only [`Padding::Oaep`] can be refused for what is in the text.
    Decrypt {
        /// The key.
        name: Name,
        /// The version; 0 is the newest.
        version: u32,
        /// The padding.
        padding: Padding,
        /// The ciphertext.
        text: Vec<u8>,
    },
}

impl Operation {
    /// Its name in the audit log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Generate { .. } => "generate",
            Operation::Import { .. } => "import",
            Operation::List { .. } => "list",
            Operation::Show { .. } => "show",
            Operation::Revoke { .. } => "revoke",
            Operation::Rotate { .. } => "rotate",
            Operation::Seal { .. } => "seal",
            Operation::Open { .. } => "open",
            Operation::Mac { .. } => "mac",
            Operation::Verify { .. } => "verify",
            Operation::Public { .. } => "public",
            Operation::Sign { .. } => "sign",
            Operation::Decrypt { .. } => "decrypt",
        }
    }

    /// The key that it is about; `None` for [`Operation::List`].
    #[must_use]
    pub fn key(&self) -> Option<&Name> {
        match self {
            Operation::List { .. } => None,
            Operation::Generate { name, .. }
            | Operation::Import { name, .. }
            | Operation::Show { name }
            | Operation::Revoke { name, .. }
            | Operation::Rotate { name, .. }
            | Operation::Seal { name, .. }
            | Operation::Open { name, .. }
            | Operation::Mac { name, .. }
            | Operation::Verify { name, .. }
            | Operation::Public { name, .. }
            | Operation::Sign { name, .. }
            | Operation::Decrypt { name, .. } => Some(name),
        }
    }

    fn number(&self) -> u8 {
        match self {
            Operation::Generate { .. } => 1,
            Operation::Import { .. } => 2,
            Operation::List { .. } => 3,
            Operation::Show { .. } => 4,
            Operation::Revoke { .. } => 5,
            Operation::Rotate { .. } => 6,
            Operation::Seal { .. } => 7,
            Operation::Open { .. } => 8,
            Operation::Mac { .. } => 9,
            Operation::Verify { .. } => 10,
            Operation::Public { .. } => 11,
            Operation::Sign { .. } => 12,
            Operation::Decrypt { .. } => 13,
        }
    }
}

/// A request.
pub struct Request {
    /// The client's number for it.
    pub id: u64,
    /// The request.
    pub operation: Operation,
}

fn name(from: &mut Reader<'_>) -> Result<Name, Malformed> {
    Name::new(from.text(MAX_NAME_LEN, "name of a key")?).ok_or(Malformed("name of a key"))
}

fn secret(from: &mut Reader<'_>, max: usize, what: &'static str) -> Result<Zeroizing<Vec<u8>>, Malformed> {
    Ok(Zeroizing::new(from.bytes(max, what)?.to_vec()))
}

fn digest(from: &mut Reader<'_>) -> Result<Digest, Malformed> {
    Digest::of_number(from.u8("digest")?).ok_or(Malformed("digest"))
}

fn read_scheme(from: &mut Reader<'_>) -> Result<Scheme, Malformed> {
    Ok(match from.u8("scheme")? {
        1 => Scheme::RsaPkcs1(digest(from)?),
        2 => Scheme::RsaPkcs1Md5Sha1,
        3 => Scheme::RsaPss { digest: digest(from)?, mgf1: digest(from)?, salt_len: from.u16("length of the salt")? },
        4 => Scheme::Ecdsa,
        5 => Scheme::Ed25519,
        _ => return Err(Malformed("scheme")),
    })
}

fn write_scheme(scheme: Scheme, to: &mut Writer) {
    match scheme {
        Scheme::RsaPkcs1(digest) => {
            to.u8(1);
            to.u8(digest.number());
        }
        Scheme::RsaPkcs1Md5Sha1 => to.u8(2),
        Scheme::RsaPss { digest, mgf1, salt_len } => {
            to.u8(3);
            to.u8(digest.number());
            to.u8(mgf1.number());
            to.u16(salt_len);
        }
        Scheme::Ecdsa => to.u8(4),
        Scheme::Ed25519 => to.u8(5),
    }
}

fn read_padding(from: &mut Reader<'_>) -> Result<Padding, Malformed> {
    Ok(match from.u8("padding")? {
        1 => Padding::Pkcs1,
        2 => Padding::Oaep {
            digest: digest(from)?,
            mgf1: digest(from)?,
            label: from.bytes(MAX_LABEL_LEN, "label")?.to_vec(),
        },
        3 => Padding::Tls { client_version: from.u16("version of TLS")?, negotiated: from.u16("version of TLS")? },
        _ => return Err(Malformed("padding")),
    })
}

fn write_padding(padding: &Padding, to: &mut Writer) {
    match padding {
        Padding::Pkcs1 => to.u8(1),
        Padding::Oaep { digest, mgf1, label } => {
            to.u8(2);
            to.u8(digest.number());
            to.u8(mgf1.number());
            to.bytes(label);
        }
        Padding::Tls { client_version, negotiated } => {
            to.u8(3);
            to.u16(*client_version);
            to.u16(*negotiated);
        }
    }
}

impl Request {
    /// The id of a request, as far as it has one.
    #[must_use]
    pub fn id_of(bytes: &[u8]) -> u64 {
        bytes.get(2..10).and_then(|id| id.try_into().ok()).map_or(0, u64::from_le_bytes)
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let from = &mut Reader::new(bytes);
        if from.u8("version of the request")? != VERSION {
            return Err(Malformed("version of the request"));
        }
        let number = from.u8("operation")?;
        let id = from.u64("id")?;
        let operation = match number {
            1 => Operation::Generate { name: name(from)?, spec: Spec::read(from)?, secret_len: from.u32("length")? },
            2 => {
                let (name, spec) = (name(from)?, Spec::read(from)?);
                Operation::Import { name, spec, secret: secret(from, MAX_SECRET_LEN, "secret")? }
            }
            3 => {
                let text = from.text(MAX_NAME_LEN, "name of a key")?;
                let after =
                    if text.is_empty() { None } else { Some(Name::new(text).ok_or(Malformed("name of a key"))?) };
                Operation::List { after }
            }
            4 => Operation::Show { name: name(from)? },
            5 => Operation::Revoke { name: name(from)?, version: from.u32("version")? },
            6 => Operation::Rotate { name: name(from)?, secret: secret(from, MAX_SECRET_LEN, "secret")? },
            7 => Operation::Seal {
                name: name(from)?,
                nonce: from.bytes(MAX_NONCE_LEN, "nonce")?.to_vec(),
                aad: from.bytes(MAX_AAD_LEN, "associated data")?.to_vec(),
                text: secret(from, MAX_TEXT_LEN, "text")?,
            },
            8 => Operation::Open {
                name: name(from)?,
                version: from.u32("version")?,
                nonce: from.bytes(MAX_NONCE_LEN, "nonce")?.to_vec(),
                aad: from.bytes(MAX_AAD_LEN, "associated data")?.to_vec(),
                text: from.bytes(MAX_TEXT_LEN + MAX_TAG_LEN, "text")?.to_vec(),
            },
            9 => Operation::Mac { name: name(from)?, text: secret(from, MAX_TEXT_LEN, "text")? },
            10 => Operation::Verify {
                name: name(from)?,
                version: from.u32("version")?,
                text: secret(from, MAX_TEXT_LEN, "text")?,
                tag: from.bytes(MAX_TAG_LEN, "tag")?.to_vec(),
            },
            11 => Operation::Public { name: name(from)?, version: from.u32("version")? },
            12 => Operation::Sign {
                name: name(from)?,
                version: from.u32("version")?,
                scheme: read_scheme(from)?,
                text: secret(from, MAX_TEXT_LEN, "text")?,
            },
            13 => Operation::Decrypt {
                name: name(from)?,
                version: from.u32("version")?,
                padding: read_padding(from)?,
                text: from.bytes(MAX_CIPHERTEXT_LEN, "text")?.to_vec(),
            },
            _ => return Err(Malformed("operation")),
        };
        from.end()?;
        Ok(Request { id, operation })
    }

    /// The bytes of a request.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut to = Writer::new();
        to.u8(VERSION);
        to.u8(self.operation.number());
        to.u64(self.id);
        if let Some(name) = self.operation.key() {
            to.bytes(name.as_str().as_bytes());
        }
        match &self.operation {
            Operation::Generate { spec, secret_len, .. } => {
                spec.write(&mut to);
                to.u32(*secret_len);
            }
            Operation::Import { spec, secret, .. } => {
                spec.write(&mut to);
                to.bytes(secret);
            }
            Operation::List { after } => to.bytes(after.as_ref().map_or("", Name::as_str).as_bytes()),
            Operation::Show { .. } => {}
            Operation::Revoke { version, .. } => to.u32(*version),
            Operation::Rotate { secret, .. } => to.bytes(secret),
            Operation::Seal { nonce, aad, text, .. } => {
                to.bytes(nonce);
                to.bytes(aad);
                to.bytes(text);
            }
            Operation::Open { version, nonce, aad, text, .. } => {
                to.u32(*version);
                for field in [nonce, aad, text] {
                    to.bytes(field);
                }
            }
            Operation::Mac { text, .. } => to.bytes(text),
            Operation::Verify { version, text, tag, .. } => {
                to.u32(*version);
                to.bytes(text);
                to.bytes(tag);
            }
            Operation::Public { version, .. } => to.u32(*version),
            Operation::Sign { version, scheme, text, .. } => {
                to.u32(*version);
                write_scheme(*scheme, &mut to);
                to.bytes(text);
            }
            Operation::Decrypt { version, padding, text, .. } => {
                to.u32(*version);
                write_padding(padding, &mut to);
                to.bytes(text);
            }
        }
        to.done()
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Code {
    /// The request cannot be read; the connection ends.
    Malformed = 1,
    /// There is no such key, or the client may not know of it.
    NoKey = 2,
    /// The client may not do this.
    Denied = 3,
    /// The key is not for this.
    Use = 4,
    /// The key has expired.
    Expired = 5,
    /// The key, or this version, is revoked, or there never was such a version.
    Revoked = 6,
    /// So many bytes or operations may not go through this version.
    Limit = 7,
    /// Too many operations in a second.
    Rate = 8,
    /// There is a key of this name.
    Exists = 9,
    /// There is no room for another key or version.
    Full = 10,
    /// The rules of a key, or the parameters of an operation, are none.
    Parameter = 11,
    /// The text, or a tag, is not authentic.
    Auth = 12,
    /// The key cannot be stored or read.
    Storage = 13,
    /// Too many clients, or keys that are being made.
    Busy = 14,
    /// The driver failed.
    Driver = 15,
}

impl Code {
    /// All of them, with their names.
    pub const ALL: [(Code, &'static str); 15] = [
        (Code::Malformed, "malformed"),
        (Code::NoKey, "no-key"),
        (Code::Denied, "denied"),
        (Code::Use, "use"),
        (Code::Expired, "expired"),
        (Code::Revoked, "revoked"),
        (Code::Limit, "limit"),
        (Code::Rate, "rate"),
        (Code::Exists, "exists"),
        (Code::Full, "full"),
        (Code::Parameter, "parameter"),
        (Code::Auth, "auth"),
        (Code::Storage, "storage"),
        (Code::Busy, "busy"),
        (Code::Driver, "driver"),
    ];

    /// Its name in logs and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        Code::ALL.iter().find(|(code, _)| *code == self).map_or("", |(_, name)| name)
    }
}

/// A refusal: why, and a text that names the key and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub code: Code,
    /// In words.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

/// The part of a version that clients may know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionInfo {
    /// Its number.
    pub number: u32,
    /// When it was made, in seconds since 1970.
    pub made_s: u64,
    /// When it was revoked; 0 if it is not.
    pub revoked_s: u64,
    /// Bytes that went through it, or may have before a crash.
    pub bytes: u64,
    /// Operations that were done with it, or may have been before a crash.
    pub operations: u64,
}

/// The part of a key that clients may know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub name: Name,
    /// Its rules.
    pub spec: Spec,
    /// Its versions, the newest last.
    pub versions: Vec<VersionInfo>,
}

/// The answer of a keeper. No `Debug`: it may hold plaintext.
pub enum Answer {
    /// Done, with the version that it was done by.
    Version(u32),
    /// Keys, and whether more come behind them.
    Keys(Vec<Info>, bool),
    /// A ciphertext.
    Sealed {
        /// The version that it was made by, for [`Operation::Open`].
        version: u32,
        /// The nonce.
        nonce: Vec<u8>,
        /// The ciphertext, with an AEAD's tag behind it.
        text: Vec<u8>,
    },
    /// A plaintext.
    Opened(Zeroizing<Vec<u8>>),
    /// A MAC.
    Tag {
        /// The version that it was made by.
        version: u32,
        /// The tag.
        tag: Vec<u8>,
    },
    /// The public part of a private key.
    Public {
        /// The version that it belongs to.
        version: u32,
        /// The algorithm.
        algorithm: Algorithm,
        /// The SubjectPublicKeyInfo (RFC 5280, section 4.1) in DER.
        spki: Vec<u8>,
    },
    /// A signature.
    Signature {
        /// The version that it was made by.
        version: u32,
        /// The signature; ECDSA's in DER.
        signature: Vec<u8>,
    },
    /// None.
    Refused(Refusal),
}

/// A reply.
pub struct Reply {
    /// The id of the request.
    pub id: u64,
    /// The answer to it.
    pub answer: Answer,
}

impl Reply {
    /// The bytes of a reply.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut to = Writer::new();
        to.u8(VERSION);
        to.u8(match &self.answer {
            Answer::Refused(_) => 0,
            Answer::Version(_) => 1,
            Answer::Keys(..) => 2,
            Answer::Sealed { .. } => 3,
            Answer::Opened(_) => 4,
            Answer::Tag { .. } => 5,
            Answer::Public { .. } => 6,
            Answer::Signature { .. } => 7,
        });
        to.u64(self.id);
        match &self.answer {
            Answer::Refused(refusal) => {
                to.u16(refusal.code as u16);
                let text = refusal.text.as_bytes();
                to.bytes(&text[..refusal.text.floor_char_boundary(MAX_REASON_LEN)]);
            }
            Answer::Version(version) => to.u32(*version),
            Answer::Keys(keys, more) => {
                to.u8((*more).into());
                to.count(keys.len());
                for key in keys {
                    to.bytes(key.name.as_str().as_bytes());
                    key.spec.write(&mut to);
                    to.count(key.versions.len());
                    for version in &key.versions {
                        to.u32(version.number);
                        for number in [version.made_s, version.revoked_s, version.bytes, version.operations] {
                            to.u64(number);
                        }
                    }
                }
            }
            Answer::Sealed { version, nonce, text } => {
                to.u32(*version);
                to.bytes(nonce);
                to.bytes(text);
            }
            Answer::Opened(text) => to.bytes(text),
            Answer::Tag { version, tag } => {
                to.u32(*version);
                to.bytes(tag);
            }
            Answer::Public { version, algorithm, spki } => {
                to.u32(*version);
                to.u8(algorithm.number());
                to.bytes(spki);
            }
            Answer::Signature { version, signature } => {
                to.u32(*version);
                to.bytes(signature);
            }
        }
        to.done()
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let from = &mut Reader::new(bytes);
        if from.u8("version of the reply")? != VERSION {
            return Err(Malformed("version of the reply"));
        }
        let kind = from.u8("kind of reply")?;
        let id = from.u64("id")?;
        let answer = match kind {
            0 => {
                let number = from.u16("code")?;
                let code = Code::ALL.iter().find(|(code, _)| *code as u16 == number).map(|(code, _)| *code);
                let text = from.text(MAX_REASON_LEN, "reason")?.to_owned();
                Answer::Refused(Refusal { code: code.ok_or(Malformed("code"))?, text })
            }
            1 => Answer::Version(from.u32("version")?),
            2 => {
                let more = from.u8("whether more comes")? != 0;
                let count = from.count(MAX_PAGE, "count of keys")?;
                Answer::Keys((0..count).map(|_| info(from)).collect::<Result<_, _>>()?, more)
            }
            3 => Answer::Sealed {
                version: from.u32("version")?,
                nonce: from.bytes(MAX_NONCE_LEN, "nonce")?.to_vec(),
                text: from.bytes(MAX_TEXT_LEN + MAX_TAG_LEN, "text")?.to_vec(),
            },
            4 => Answer::Opened(secret(from, MAX_TEXT_LEN + MAX_TAG_LEN, "text")?),
            5 => Answer::Tag { version: from.u32("version")?, tag: from.bytes(MAX_TAG_LEN, "tag")?.to_vec() },
            6 => Answer::Public {
                version: from.u32("version")?,
                algorithm: Algorithm::of_number(from.u8("algorithm")?).ok_or(Malformed("algorithm"))?,
                spki: from.bytes(MAX_SPKI_LEN, "public key")?.to_vec(),
            },
            7 => Answer::Signature {
                version: from.u32("version")?,
                signature: from.bytes(MAX_SIGNATURE_LEN, "signature")?.to_vec(),
            },
            _ => return Err(Malformed("kind of reply")),
        };
        from.end()?;
        Ok(Reply { id, answer })
    }
}

fn info(from: &mut Reader<'_>) -> Result<Info, Malformed> {
    let (name, spec) = (name(from)?, Spec::read(from)?);
    let count = from.count(MAX_VERSIONS, "count of versions")?;
    let mut versions = Vec::with_capacity(count);
    for _ in 0..count {
        versions.push(VersionInfo {
            number: from.u32("version")?,
            made_s: from.u64("time of making")?,
            revoked_s: from.u64("time of revocation")?,
            bytes: from.u64("bytes")?,
            operations: from.u64("operations")?,
        });
    }
    Ok(Info { name, spec, versions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Kind;
    use crate::key::tests::spec;

    fn schemes() -> impl Iterator<Item = Scheme> {
        let pss = Scheme::RsaPss { digest: Digest::Sha384, mgf1: Digest::Sha1, salt_len: 48 };
        [Scheme::RsaPkcs1(Digest::Sha256), Scheme::RsaPkcs1Md5Sha1, pss, Scheme::Ecdsa, Scheme::Ed25519].into_iter()
    }

    fn paddings() -> impl Iterator<Item = Padding> {
        let oaep = Padding::Oaep { digest: Digest::Sha224, mgf1: Digest::Sha512, label: vec![1, 2] };
        [Padding::Pkcs1, oaep, Padding::Tls { client_version: 0x0303, negotiated: 0x0302 }].into_iter()
    }

    fn requests() -> Vec<Request> {
        let name = || Name::new("k").unwrap();
        let spec = || spec(Kind::Aead, "gcm(aes)");
        let secret = |byte: u8| Zeroizing::new(vec![byte; 3]);
        [
            Operation::Generate { name: name(), spec: spec(), secret_len: 32 },
            Operation::Import { name: name(), spec: spec(), secret: secret(1) },
            Operation::List { after: None },
            Operation::List { after: Some(name()) },
            Operation::Show { name: name() },
            Operation::Revoke { name: name(), version: 2 },
            Operation::Rotate { name: name(), secret: secret(3) },
            Operation::Seal { name: name(), nonce: vec![4], aad: vec![5], text: secret(6) },
            Operation::Open { name: name(), version: 7, nonce: vec![8], aad: vec![9], text: vec![10] },
            Operation::Mac { name: name(), text: secret(11) },
            Operation::Verify { name: name(), version: 12, text: secret(13), tag: vec![14] },
            Operation::Public { name: name(), version: 15 },
        ]
        .into_iter()
        .chain(schemes().map(|scheme| Operation::Sign { name: name(), version: 16, scheme, text: secret(17) }))
        .chain(paddings().map(|padding| Operation::Decrypt { name: name(), version: 18, padding, text: vec![19] }))
        .map(|operation| Request { id: 77, operation })
        .collect()
    }

    #[test]
    fn requests_come_back_and_shorter_ones_do_not() {
        for request in requests() {
            let bytes = request.encode();
            let back = Request::decode(&bytes).unwrap();
            assert_eq!((back.id, Request::id_of(&bytes)), (77, 77));
            assert_eq!(back.encode(), bytes, "{}", request.operation.name());
            for len in 0..bytes.len() {
                assert!(Request::decode(&bytes[..len]).is_err(), "{} cut off at {len}", request.operation.name());
            }
        }
        assert_eq!(Request::id_of(&[1, 2, 3]), 0);
    }

    #[test]
    fn replies_come_back_and_shorter_ones_do_not() {
        let version = VersionInfo { number: 1, made_s: 2, revoked_s: 3, bytes: 4, operations: 5 };
        let spec = spec(Kind::Hash, "hmac(sha256)");
        let info = Info { name: Name::new("k").unwrap(), spec, versions: vec![version] };
        for answer in [
            Answer::Refused(Refusal { code: Code::Denied, text: "no".to_owned() }),
            Answer::Version(1),
            Answer::Keys(vec![info], true),
            Answer::Sealed { version: 1, nonce: vec![2], text: vec![3] },
            Answer::Opened(Zeroizing::new(vec![4])),
            Answer::Tag { version: 5, tag: vec![6] },
            Answer::Public { version: 7, algorithm: Algorithm::EcP384, spki: vec![8] },
            Answer::Signature { version: 9, signature: vec![10] },
        ] {
            let bytes = Reply { id: 9, answer }.encode();
            let back = Reply::decode(&bytes).unwrap();
            assert_eq!(back.id, 9);
            assert_eq!(back.encode(), bytes);
            for len in 0..bytes.len() {
                assert!(Reply::decode(&bytes[..len]).is_err(), "{} cut off at {len}", bytes[1]);
            }
        }
    }

    #[test]
    fn the_largest_messages_fit() {
        let page = MAX_PAGE * (2 * 1024);
        let text = MAX_TEXT_LEN + MAX_TAG_LEN + MAX_AAD_LEN + MAX_NONCE_LEN + MAX_NAME_LEN + 64;
        assert!(page.max(text) <= MAX_MESSAGE_LEN);
        let mut largest = spec(Kind::Aead, &"x".repeat(127));
        for list in [&mut largest.users, &mut largest.admins] {
            (list.users, list.groups) = (vec![1; 64], vec![2; 64]);
        }
        let version = VersionInfo { number: 1, made_s: 2, revoked_s: 3, bytes: 4, operations: 5 };
        let info = Info { name: Name::new(&"n".repeat(64)).unwrap(), spec: largest, versions: vec![version; 16] };
        let keys = Answer::Keys(vec![info; MAX_PAGE], true);
        assert!(Reply { id: 1, answer: keys }.encode().len() <= page + 64);
    }

    #[test]
    fn codes_have_numbers_and_names_of_their_own() {
        for (at, (code, name)) in Code::ALL.into_iter().enumerate() {
            assert_eq!((code as usize, code.name()), (at + 1, name));
        }
    }
}
