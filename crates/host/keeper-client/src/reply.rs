//! Replies of a keeper.

use crate::codec::{Malformed, Reader, Wiped, Writer};
use crate::key::{MAX_VERSIONS, Name, Spec};
use crate::limits::{
    MAX_LONG_TEXT_LEN, MAX_NONCE_LEN, MAX_PAGE, MAX_REASON_LEN, MAX_TAG_LEN, MAX_TEXT_LEN, MAX_WRAPPED_LEN, VERSION,
};
use sealane_crypto::OpError;
use sealane_pkey::{Algorithm, MAX_SIGNATURE_LEN, MAX_SPKI_LEN, listed};
use std::fmt;
use zeroize::Zeroizing;

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
    /// A wrapped key is not this keeper's, or not this user's, or was changed.
    Wrapped = 16,
}

impl Code {
    /// All of them, with their names.
    pub const ALL: [(Code, &'static str); 16] = [
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
        (Code::Wrapped, "wrapped"),
    ];

    pub(crate) fn of_number(number: u16) -> Option<Self> {
        Code::ALL.iter().find(|(code, _)| *code as u16 == number).map(|(code, _)| *code)
    }

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
        /// The version that it was made by, for [`Operation::Open`](crate::message::Operation::Open).
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
    /// A wrapped key.
    Wrapped(Vec<u8>),
    /// The output of a cipher or AEAD by reference.
    Computed {
        /// The version that it was computed by; 0 for a wrapped key.
        version: u32,
        /// The IV that continues a cipher's text; empty for an AEAD.
        iv: Vec<u8>,
        /// The text.
        text: Wiped,
        /// The tag of a text that an AEAD has sealed.
        tag: Vec<u8>,
    },
    /// The failure of a cipher, AEAD or MAC by reference: the crypto core's.
    Failed(OpError),
    /// Slots. The descriptor of their memory comes with the reply.
    Slots {
        /// The number of slots.
        count: u32,
        /// The length of each in bytes.
        room: u32,
    },
    /// None.
    Refused(Refusal),
}

impl Answer {
    /// The length of its text.
    fn text_len(&self) -> usize {
        match self {
            Answer::Sealed { text, .. } => text.len(),
            Answer::Opened(text) => text.len(),
            Answer::Computed { text, .. } => text.len(),
            _ => 0,
        }
    }
}

/// The failures of operations. A place in this list, counted from 1, is the number in messages.
const OP_ERRORS: [(OpError, &str); 7] = [
    (OpError::Length, "length"),
    (OpError::TooLong, "too-long"),
    (OpError::Nonce, "nonce"),
    (OpError::AssocLen, "assoc-len"),
    (OpError::TagLen, "tag-len"),
    (OpError::Auth, "auth"),
    (OpError::Driver, "driver"),
];

/// The number of a failure, from 1.
pub(crate) fn number_of_failure(error: OpError) -> u8 {
    listed::number(&OP_ERRORS, error)
}

/// The failure of a number.
pub(crate) fn read_failure(number: u8) -> Result<OpError, Malformed> {
    listed::of_number(&OP_ERRORS, number).ok_or(Malformed("failure"))
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
    pub fn encode(&self) -> Wiped {
        let mut to = Writer::with_room(self.answer.text_len());
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
            Answer::Wrapped(_) => 8,
            Answer::Computed { .. } => 9,
            Answer::Failed(_) => 10,
            Answer::Slots { .. } => 11,
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
            Answer::Wrapped(wrapped) => to.bytes(wrapped),
            Answer::Computed { version, iv, text, tag } => {
                to.u32(*version);
                to.bytes(iv);
                to.bytes(text);
                to.bytes(tag);
            }
            Answer::Failed(error) => to.u8(number_of_failure(*error)),
            Answer::Slots { count, room } => {
                to.u32(*count);
                to.u32(*room);
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
                let code = Code::of_number(from.u16("code")?);
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
            4 => Answer::Opened(from.secret(MAX_TEXT_LEN + MAX_TAG_LEN, "text")?),
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
            8 => Answer::Wrapped(from.bytes(MAX_WRAPPED_LEN, "wrapped key")?.to_vec()),
            9 => Answer::Computed {
                version: from.u32("version")?,
                iv: from.bytes(MAX_NONCE_LEN, "IV")?.to_vec(),
                text: from.wiped(MAX_LONG_TEXT_LEN, "text")?,
                tag: from.bytes(MAX_TAG_LEN, "tag")?.to_vec(),
            },
            10 => Answer::Failed(read_failure(from.u8("failure")?)?),
            11 => Answer::Slots { count: from.u32("slots")?, room: from.u32("length of a slot")? },
            _ => return Err(Malformed("kind of reply")),
        };
        from.end()?;
        Ok(Reply { id, answer })
    }

    /// The answer in a reply to the request of this id. A refusal with id 0 is one, too: it is of the connection.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn answer_to(id: u64, bytes: &[u8]) -> Result<Answer, Malformed> {
        let reply = Reply::decode(bytes)?;
        let is_of_connection = reply.id == 0 && matches!(reply.answer, Answer::Refused(_));
        if reply.id == id || is_of_connection { Ok(reply.answer) } else { Err(Malformed("reply to another request")) }
    }
}

fn info(from: &mut Reader<'_>) -> Result<Info, Malformed> {
    let (name, spec) = (Name::read(from)?, Spec::read(from)?);
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
    use crate::limits::MAX_MESSAGE_LEN;
    use crate::text::StepsReply;

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
            Answer::Wrapped(vec![11]),
            Answer::Computed { version: 12, iv: vec![13], text: vec![14].into(), tag: vec![15] },
        ]
        .into_iter()
        .chain([Answer::Slots { count: 4, room: 8192 }])
        .chain(OP_ERRORS.into_iter().map(|(error, _)| Answer::Failed(error)))
        {
            let bytes = Reply { id: 9, answer }.encode();
            let back = Reply::decode(&bytes).unwrap();
            assert_eq!(back.id, 9);
            assert!(back.encode() == bytes);
            assert!(StepsReply::of(&bytes).is_ok_and(|steps| steps.is_none()), "{} looks like one to steps", bytes[1]);
            for len in 0..bytes.len() {
                assert!(Reply::decode(&bytes[..len]).is_err(), "{} cut off at {len}", bytes[1]);
            }
        }
    }

    #[test]
    fn an_answer_is_to_its_request_or_of_the_connection() {
        let bytes = |id, answer| Reply { id, answer }.encode();
        let refusal = || Answer::Refused(Refusal { code: Code::Busy, text: "no".to_owned() });
        assert!(matches!(Reply::answer_to(3, &bytes(3, Answer::Version(1))), Ok(Answer::Version(1))));
        for id in [0, 3] {
            assert!(matches!(Reply::answer_to(3, &bytes(id, refusal())), Ok(Answer::Refused(_))), "{id}");
        }
        for wrong in [bytes(0, Answer::Version(1)), bytes(4, refusal()), bytes(4, Answer::Version(1))] {
            assert_eq!(Reply::answer_to(3, &wrong).err(), Some(Malformed("reply to another request")));
        }
    }

    #[test]
    fn a_page_of_the_largest_keys_fits() {
        let mut largest = spec(Kind::Aead, &"x".repeat(127));
        for list in [&mut largest.users, &mut largest.admins] {
            (list.users, list.groups) = (vec![1; 64], vec![2; 64]);
        }
        let version = VersionInfo { number: 1, made_s: 2, revoked_s: 3, bytes: 4, operations: 5 };
        let info = Info { name: Name::new(&"n".repeat(64)).unwrap(), spec: largest, versions: vec![version; 16] };
        let keys = Answer::Keys(vec![info; MAX_PAGE], true);
        let len = Reply { id: 1, answer: keys }.encode().len();
        assert!(len <= crate::message::Operation::List { after: None }.reply_len() && len <= MAX_MESSAGE_LEN);
    }

    #[test]
    fn codes_have_numbers_and_names_of_their_own() {
        for (at, (code, name)) in Code::ALL.into_iter().enumerate() {
            assert_eq!((code as usize, code.name()), (at + 1, name));
        }
    }
}
