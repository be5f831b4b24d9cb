//! The messages between a keeper and its clients: one in each packet of a Unix seqpacket socket.
//!
//! ```text
//! request   version:1 operation:1 id:8   fields of the operation
//! reply     version:1 kind:1      id:8   fields of the kind
//! ```
//!
//! A request has one reply, with its id, and replies come in the order of the requests. A request that cannot be read is refused
//! with id 0 or its own, and the connection ends.

use crate::codec::{Malformed, Reader, Wiped, Writer};
use crate::key::{Kind, MAX_ALGORITHM_LEN, MAX_NAME_LEN, MAX_SECRET_LEN, Name, Spec};
use crate::limits::{MAX_NONCE_LEN, MAX_REASON_LEN, MAX_REF_LEN, MAX_TAG_LEN, MAX_WRAPPED_LEN};
use crate::reference::KeyRef;
use crate::text::{Step, read_direction};
use sealane_crypto::skcipher::Direction;
use sealane_pkey::{Digest, MAX_CIPHERTEXT_LEN, MAX_LABEL_LEN, MAX_SIGNATURE_LEN, Padding, Scheme};
use zeroize::Zeroizing;

pub use crate::limits::{
    BELL, MAX_AAD_LEN, MAX_LONG_TEXT_LEN, MAX_MESSAGE_LEN, MAX_PAGE, MAX_TEXT_LEN, SLOT_LEN, SLOTS, VERSION,
};
pub use crate::reply::{Answer, Code, Info, Refusal, Reply, VersionInfo};

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
    /// Encrypt a key of the client's own, so that only this keeper can use it, and only for this user. The keeper does not keep it.
    /// Answered by [`Answer::Wrapped`].
    Wrap {
        /// Type of the algorithm.
        kind: Kind,
        /// Name of the algorithm in the registry.
        algorithm: String,
        /// The key as the algorithm takes it.
        secret: Zeroizing<Vec<u8>>,
    },
    /// Whether the client can use a key. Answered by [`Answer::Version`], 0 for a wrapped key.
    Try {
        /// The key.
        key: KeyRef,
        /// Type of its algorithm.
        kind: Kind,
        /// The length that the secret of a key of the keeper's is to have, in bytes; 0 is any.
        secret_len: u32,
    },
    /// Run a cipher as the crypto core does. Answered by [`Answer::Computed`] or [`Answer::Failed`].
    CipherBy {
        /// The key.
        key: KeyRef,
        /// Encrypt or decrypt.
        direction: Direction,
        /// The IV.
        iv: Vec<u8>,
        /// The text, of at most [`MAX_LONG_TEXT_LEN`] bytes.
        text: Wiped,
    },
    /// Seal as the crypto core does. Answered by [`Answer::Computed`] or [`Answer::Failed`].
    SealBy {
        /// The key.
        key: KeyRef,
        /// The nonce.
        nonce: Vec<u8>,
        /// Associated data, which together with the text has at most [`MAX_LONG_TEXT_LEN`] bytes.
        aad: Vec<u8>,
        /// The plaintext.
        text: Wiped,
        /// The length of the tag in bytes.
        tag_len: u16,
    },
    /// Open as the crypto core does. Answered by [`Answer::Computed`] or [`Answer::Failed`].
    OpenBy {
        /// The key.
        key: KeyRef,
        /// The nonce.
        nonce: Vec<u8>,
        /// Associated data, which together with the text has at most [`MAX_LONG_TEXT_LEN`] bytes.
        aad: Vec<u8>,
        /// The ciphertext.
        text: Vec<u8>,
        /// The tag.
        tag: Vec<u8>,
    },
    /// Authenticate a whole message. Answered by [`Answer::Tag`] of full length, or [`Answer::Failed`].
    MacBy {
        /// The key.
        key: KeyRef,
        /// The message, of at most [`MAX_LONG_TEXT_LEN`] bytes.
        text: Wiped,
    },
    /// Begin to authenticate a message that comes in pieces. The keeper holds it as long as the connection, and at most
    /// [`MAX_STREAMS`](crate::limits::MAX_STREAMS) of them. Answered by [`Answer::Version`].
    MacBegin {
        /// The key.
        key: KeyRef,
        /// The client's number for it, which it has for no other message of this connection.
        stream: u32,
        /// The first piece.
        text: Wiped,
    },
    /// Add a piece. Answered by [`Answer::Version`].
    MacMore {
        /// The number of the message.
        stream: u32,
        /// The piece.
        text: Wiped,
    },
    /// End a message. Answered as [`Operation::MacBy`] is.
    MacEnd {
        /// The number of the message, which then is free.
        stream: u32,
        /// The last piece.
        text: Wiped,
    },
    /// Begin to seal or open a message that comes in pieces, which the keeper holds as it does those of [`Operation::MacBegin`]. Answered
    /// by [`Answer::Computed`] with the text, or [`Answer::Failed`]; without text nobody has to say in which direction it goes.
    AeadBegin {
        /// The key.
        key: KeyRef,
        /// The client's number for it, which it has for no other message of this connection.
        stream: u32,
        /// Encrypt or decrypt.
        direction: Direction,
        /// The nonce.
        nonce: Vec<u8>,
        /// The front of the associated data, which together with the text has at most [`MAX_LONG_TEXT_LEN`] bytes.
        aad: Vec<u8>,
        /// The front of the text, if this is all of the associated data.
        text: Wiped,
    },
    /// Add a piece. Answered as [`Operation::AeadBegin`] is. A message of which a piece has failed is not held any more.
    AeadMore {
        /// The number of the message.
        stream: u32,
        /// Encrypt or decrypt.
        direction: Direction,
        /// More of the associated data, if there was no text yet.
        aad: Vec<u8>,
        /// More of the text.
        text: Wiped,
    },
    /// End a message, and seal it. Answered by [`Answer::Tag`] of full length, or [`Answer::Failed`].
    AeadSeal {
        /// The number of the message, which then is free.
        stream: u32,
    },
    /// End a message, and check its tag. Answered by [`Answer::Version`] or [`Answer::Failed`].
    AeadOpen {
        /// The number of the message, which then is free.
        stream: u32,
        /// The tag, which may be cut off under a key of the client's own.
        tag: Vec<u8>,
    },
    /// Begin a second message with the pieces so far of another one. Answered by [`Answer::Version`].
    StreamFork {
        /// The number of the message.
        stream: u32,
        /// The number of the second one.
        to: u32,
    },
    /// Forget a message. Answered by [`Answer::Version`].
    StreamForget {
        /// The number of the message, which then is free.
        stream: u32,
    },
    /// Get slots of shared memory for this connection. Answered by [`Answer::Slots`].
    Slots,
}

/// A part of an operation that names its key.
enum About<'a> {
    Name(&'a Name),
    Ref(&'a KeyRef),
    Nothing,
}

impl Operation {
    /// The operation that does a computation on a text.
    #[must_use]
    pub fn of_step(key: KeyRef, step: &Step<'_>, text: Wiped) -> Self {
        match *step {
            Step::Cipher { direction, iv } => Operation::CipherBy { key, direction, iv: iv.to_vec(), text },
            Step::Seal { nonce, aad, tag_len } => {
                Operation::SealBy { key, nonce: nonce.to_vec(), aad: aad.to_vec(), text, tag_len }
            }
            Step::Open { nonce, aad, tag } => {
                let (nonce, aad) = (nonce.to_vec(), aad.to_vec());
                Operation::OpenBy { key, nonce, aad, text: text.to_vec(), tag: tag.to_vec() }
            }
            Step::Mac => Operation::MacBy { key, text },
        }
    }

    /// Its name in the audit log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let of = |key: &KeyRef, named, wrapped| if key.name().is_some() { named } else { wrapped };
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
            Operation::Wrap { .. } => "wrap",
            Operation::Try { key, .. } => of(key, "try", "try-wrapped"),
            Operation::CipherBy { key, direction, iv, .. } => Step::Cipher { direction: *direction, iv }.name(key),
            Operation::SealBy { key, nonce, aad, tag_len, .. } => {
                Step::Seal { nonce, aad, tag_len: *tag_len }.name(key)
            }
            Operation::OpenBy { key, nonce, aad, tag, .. } => Step::Open { nonce, aad, tag }.name(key),
            Operation::MacBy { key, .. } | Operation::MacBegin { key, .. } => of(key, "mac", "mac-wrapped"),
            Operation::AeadBegin { key, direction: Direction::Encrypt, .. } => of(key, "seal", "seal-wrapped"),
            Operation::AeadBegin { key, direction: Direction::Decrypt, .. } => of(key, "open", "open-wrapped"),
            Operation::MacMore { .. } | Operation::MacEnd { .. } => "mac-piece",
            Operation::AeadMore { .. } | Operation::AeadSeal { .. } | Operation::AeadOpen { .. } => "aead-piece",
            Operation::StreamFork { .. } | Operation::StreamForget { .. } => "piece",
            Operation::Slots => "slots",
        }
    }

    /// The key that it is about, if it names one.
    #[must_use]
    pub fn key(&self) -> Option<&Name> {
        match self.about() {
            About::Name(name) => Some(name),
            About::Ref(key) => key.name(),
            About::Nothing => None,
        }
    }

    /// The message in pieces that it goes on with.
    #[must_use]
    pub fn stream(&self) -> Option<u32> {
        match self {
            Operation::MacMore { stream, .. }
            | Operation::MacEnd { stream, .. }
            | Operation::AeadMore { stream, .. }
            | Operation::AeadSeal { stream }
            | Operation::AeadOpen { stream, .. }
            | Operation::StreamFork { stream, .. }
            | Operation::StreamForget { stream } => Some(*stream),
            _ => None,
        }
    }

    fn about(&self) -> About<'_> {
        match self {
            Operation::List { .. }
            | Operation::Wrap { .. }
            | Operation::MacMore { .. }
            | Operation::MacEnd { .. }
            | Operation::AeadMore { .. }
            | Operation::AeadSeal { .. }
            | Operation::AeadOpen { .. }
            | Operation::StreamFork { .. }
            | Operation::StreamForget { .. }
            | Operation::Slots => About::Nothing,
            Operation::Try { key, .. }
            | Operation::CipherBy { key, .. }
            | Operation::SealBy { key, .. }
            | Operation::OpenBy { key, .. }
            | Operation::MacBy { key, .. }
            | Operation::MacBegin { key, .. }
            | Operation::AeadBegin { key, .. } => About::Ref(key),
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
            | Operation::Decrypt { name, .. } => About::Name(name),
        }
    }

    /// Whether a program asks for it when it takes a key up, and not when it uses it.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        matches!(self, Operation::Public { .. } | Operation::Try { .. })
    }

    /// Whether it is one of many that follow one another, and short enough to be worth a way of their own.
    #[must_use]
    pub fn is_frequent(&self) -> bool {
        let of_a_key = matches!(
            self,
            Operation::CipherBy { .. }
                | Operation::SealBy { .. }
                | Operation::OpenBy { .. }
                | Operation::MacBy { .. }
                | Operation::MacBegin { .. }
                | Operation::AeadBegin { .. }
        );
        of_a_key || self.stream().is_some()
    }

    /// The number of its kind. 30 is that of a request of steps ([`crate::text`]).
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
            Operation::Wrap { .. } => 14,
            Operation::Try { .. } => 15,
            Operation::CipherBy { .. } => 16,
            Operation::SealBy { .. } => 17,
            Operation::OpenBy { .. } => 18,
            Operation::MacBy { .. } => 19,
            Operation::MacBegin { .. } => 20,
            Operation::MacMore { .. } => 21,
            Operation::MacEnd { .. } => 22,
            Operation::StreamFork { .. } => 23,
            Operation::StreamForget { .. } => 24,
            Operation::Slots => 25,
            Operation::AeadBegin { .. } => 26,
            Operation::AeadMore { .. } => 27,
            Operation::AeadSeal { .. } => 28,
            Operation::AeadOpen { .. } => 29,
        }
    }

    /// The length of its text and associated data.
    fn text_len(&self) -> usize {
        match self {
            Operation::Seal { aad, text, .. } => aad.len() + text.len(),
            Operation::SealBy { aad, text, .. }
            | Operation::AeadBegin { aad, text, .. }
            | Operation::AeadMore { aad, text, .. } => aad.len() + text.len(),
            Operation::Open { aad, text, .. } | Operation::OpenBy { aad, text, .. } => aad.len() + text.len(),
            Operation::Mac { text, .. } | Operation::Verify { text, .. } | Operation::Sign { text, .. } => text.len(),
            Operation::CipherBy { text, .. }
            | Operation::MacBy { text, .. }
            | Operation::MacBegin { text, .. }
            | Operation::MacMore { text, .. }
            | Operation::MacEnd { text, .. } => text.len(),
            Operation::Import { secret, .. } | Operation::Rotate { secret, .. } | Operation::Wrap { secret, .. } => {
                secret.len()
            }
            Operation::Decrypt { text, .. } => text.len(),
            Operation::Generate { .. }
            | Operation::List { .. }
            | Operation::Show { .. }
            | Operation::Revoke { .. }
            | Operation::Public { .. }
            | Operation::Try { .. }
            | Operation::StreamFork { .. }
            | Operation::StreamForget { .. }
            | Operation::AeadSeal { .. }
            | Operation::AeadOpen { .. }
            | Operation::Slots => 0,
        }
    }

    /// The length that a reply to it has at most.
    #[must_use]
    pub fn reply_len(&self) -> usize {
        /// Everything around a text; and a refusal, a signature, a public key, the numbers of one key.
        const OTHER: usize = 4096;
        const _: () = assert!(MAX_SIGNATURE_LEN + MAX_REASON_LEN + MAX_NONCE_LEN + MAX_TAG_LEN < OTHER);
        match self {
            Operation::List { .. } => MAX_PAGE * 2048 + OTHER,
            Operation::Wrap { .. } => MAX_WRAPPED_LEN + OTHER,
            other => other.text_len() + OTHER,
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

fn key(from: &mut Reader<'_>) -> Result<KeyRef, Malformed> {
    KeyRef::decode(from.bytes(MAX_REF_LEN, "reference to a key")?)
}

fn around(step: &Step<'_>, text: &[u8], to: &mut Writer) {
    step.write_head(to);
    to.bytes(text);
    step.write_tail(to);
}

/// The nonce and the associated data of an operation by reference, and the length that its text may have.
fn nonce_and_aad<'a>(from: &mut Reader<'a>) -> Result<(&'a [u8], &'a [u8], usize), Malformed> {
    let nonce = from.bytes(MAX_NONCE_LEN, "nonce")?;
    let aad = from.bytes(MAX_LONG_TEXT_LEN, "associated data")?;
    Ok((nonce, aad, MAX_LONG_TEXT_LEN - aad.len()))
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
            1 => Operation::Generate {
                name: Name::read(from)?,
                spec: Spec::read(from)?,
                secret_len: from.u32("length")?,
            },
            2 => {
                let (name, spec) = (Name::read(from)?, Spec::read(from)?);
                Operation::Import { name, spec, secret: from.secret(MAX_SECRET_LEN, "secret")? }
            }
            3 => {
                let text = from.text(MAX_NAME_LEN, "name of a key")?;
                let after =
                    if text.is_empty() { None } else { Some(Name::new(text).ok_or(Malformed("name of a key"))?) };
                Operation::List { after }
            }
            4 => Operation::Show { name: Name::read(from)? },
            5 => Operation::Revoke { name: Name::read(from)?, version: from.u32("version")? },
            6 => Operation::Rotate { name: Name::read(from)?, secret: from.secret(MAX_SECRET_LEN, "secret")? },
            7 => Operation::Seal {
                name: Name::read(from)?,
                nonce: from.bytes(MAX_NONCE_LEN, "nonce")?.to_vec(),
                aad: from.bytes(MAX_AAD_LEN, "associated data")?.to_vec(),
                text: from.secret(MAX_TEXT_LEN, "text")?,
            },
            8 => Operation::Open {
                name: Name::read(from)?,
                version: from.u32("version")?,
                nonce: from.bytes(MAX_NONCE_LEN, "nonce")?.to_vec(),
                aad: from.bytes(MAX_AAD_LEN, "associated data")?.to_vec(),
                text: from.bytes(MAX_TEXT_LEN + MAX_TAG_LEN, "text")?.to_vec(),
            },
            9 => Operation::Mac { name: Name::read(from)?, text: from.secret(MAX_TEXT_LEN, "text")? },
            10 => Operation::Verify {
                name: Name::read(from)?,
                version: from.u32("version")?,
                text: from.secret(MAX_TEXT_LEN, "text")?,
                tag: from.bytes(MAX_TAG_LEN, "tag")?.to_vec(),
            },
            11 => Operation::Public { name: Name::read(from)?, version: from.u32("version")? },
            12 => Operation::Sign {
                name: Name::read(from)?,
                version: from.u32("version")?,
                scheme: read_scheme(from)?,
                text: from.secret(MAX_TEXT_LEN, "text")?,
            },
            13 => Operation::Decrypt {
                name: Name::read(from)?,
                version: from.u32("version")?,
                padding: read_padding(from)?,
                text: from.bytes(MAX_CIPHERTEXT_LEN, "text")?.to_vec(),
            },
            14 => Operation::Wrap {
                kind: Kind::read(from)?,
                algorithm: from.text(MAX_ALGORITHM_LEN, "name of the algorithm")?.to_owned(),
                secret: from.secret(MAX_SECRET_LEN, "secret")?,
            },
            15 => Operation::Try { key: key(from)?, kind: Kind::read(from)?, secret_len: from.u32("length")? },
            16 => Operation::CipherBy {
                key: key(from)?,
                direction: read_direction(from)?,
                iv: from.bytes(MAX_NONCE_LEN, "IV")?.to_vec(),
                text: from.wiped(MAX_LONG_TEXT_LEN, "text")?,
            },
            17 => {
                let key = key(from)?;
                let (nonce, aad, max) = nonce_and_aad(from)?;
                let text = from.wiped(max, "text")?;
                let tag_len = from.u16("length of the tag")?;
                Operation::SealBy { key, nonce: nonce.to_vec(), aad: aad.to_vec(), text, tag_len }
            }
            18 => {
                let key = key(from)?;
                let (nonce, aad, max) = nonce_and_aad(from)?;
                let text = from.bytes(max, "text")?.to_vec();
                let tag = from.bytes(MAX_TAG_LEN, "tag")?.to_vec();
                Operation::OpenBy { key, nonce: nonce.to_vec(), aad: aad.to_vec(), text, tag }
            }
            19 => Operation::MacBy { key: key(from)?, text: from.wiped(MAX_LONG_TEXT_LEN, "text")? },
            20 => Operation::MacBegin {
                key: key(from)?,
                stream: from.u32("stream")?,
                text: from.wiped(MAX_LONG_TEXT_LEN, "text")?,
            },
            21 => Operation::MacMore { stream: from.u32("stream")?, text: from.wiped(MAX_LONG_TEXT_LEN, "text")? },
            22 => Operation::MacEnd { stream: from.u32("stream")?, text: from.wiped(MAX_LONG_TEXT_LEN, "text")? },
            23 => Operation::StreamFork { stream: from.u32("stream")?, to: from.u32("stream")? },
            24 => Operation::StreamForget { stream: from.u32("stream")? },
            25 => Operation::Slots,
            26 => {
                let (key, stream, direction) = (key(from)?, from.u32("stream")?, read_direction(from)?);
                let (nonce, aad, max) = nonce_and_aad(from)?;
                let (nonce, aad) = (nonce.to_vec(), aad.to_vec());
                Operation::AeadBegin { key, stream, direction, nonce, aad, text: from.wiped(max, "text")? }
            }
            27 => {
                let (stream, direction) = (from.u32("stream")?, read_direction(from)?);
                let aad = from.bytes(MAX_LONG_TEXT_LEN, "associated data")?.to_vec();
                let text = from.wiped(MAX_LONG_TEXT_LEN - aad.len(), "text")?;
                Operation::AeadMore { stream, direction, aad, text }
            }
            28 => Operation::AeadSeal { stream: from.u32("stream")? },
            29 => Operation::AeadOpen { stream: from.u32("stream")?, tag: from.bytes(MAX_TAG_LEN, "tag")?.to_vec() },
            _ => return Err(Malformed("operation")),
        };
        from.end()?;
        Ok(Request { id, operation })
    }

    /// The bytes of a request.
    #[must_use]
    pub fn encode(&self) -> Wiped {
        let mut to = Writer::with_room(self.operation.text_len());
        to.u8(VERSION);
        to.u8(self.operation.number());
        to.u64(self.id);
        match self.operation.about() {
            About::Name(name) => to.bytes(name.as_str().as_bytes()),
            About::Ref(key) => to.bytes(&key.encode()),
            About::Nothing => {}
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
            Operation::Show { .. } | Operation::Slots => {}
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
            Operation::Wrap { kind, algorithm, secret } => {
                to.u8(kind.number());
                to.bytes(algorithm.as_bytes());
                to.bytes(secret);
            }
            Operation::Try { kind, secret_len, .. } => {
                to.u8(kind.number());
                to.u32(*secret_len);
            }
            Operation::CipherBy { direction, iv, text, .. } => {
                around(&Step::Cipher { direction: *direction, iv }, text, &mut to);
            }
            Operation::SealBy { nonce, aad, text, tag_len, .. } => {
                around(&Step::Seal { nonce, aad, tag_len: *tag_len }, text, &mut to);
            }
            Operation::OpenBy { nonce, aad, text, tag, .. } => {
                around(&Step::Open { nonce, aad, tag }, text, &mut to);
            }
            Operation::MacBy { text, .. } => to.bytes(text),
            Operation::MacBegin { stream, text, .. }
            | Operation::MacMore { stream, text }
            | Operation::MacEnd { stream, text } => {
                to.u32(*stream);
                to.bytes(text);
            }
            Operation::StreamFork { stream, to: second } => {
                to.u32(*stream);
                to.u32(*second);
            }
            Operation::StreamForget { stream } | Operation::AeadSeal { stream } => to.u32(*stream),
            Operation::AeadBegin { stream, direction, nonce, aad, text, .. } => {
                to.u32(*stream);
                to.u8((*direction == Direction::Decrypt).into());
                for field in [nonce, aad, &text[..]] {
                    to.bytes(field);
                }
            }
            Operation::AeadMore { stream, direction, aad, text } => {
                to.u32(*stream);
                to.u8((*direction == Direction::Decrypt).into());
                to.bytes(aad);
                to.bytes(text);
            }
            Operation::AeadOpen { stream, tag } => {
                to.u32(*stream);
                to.bytes(tag);
            }
        }
        to.done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Kind;
    use crate::key::tests::spec;
    use crate::text::StepsRequest;

    fn schemes() -> impl Iterator<Item = Scheme> {
        let pss = Scheme::RsaPss { digest: Digest::Sha384, mgf1: Digest::Sha1, salt_len: 48 };
        [Scheme::RsaPkcs1(Digest::Sha256), Scheme::RsaPkcs1Md5Sha1, pss, Scheme::Ecdsa, Scheme::Ed25519].into_iter()
    }

    fn paddings() -> impl Iterator<Item = Padding> {
        let oaep = Padding::Oaep { digest: Digest::Sha224, mgf1: Digest::Sha512, label: vec![1, 2] };
        [Padding::Pkcs1, oaep, Padding::Tls { client_version: 0x0303, negotiated: 0x0302 }].into_iter()
    }

    fn keys() -> impl Iterator<Item = KeyRef> {
        let name = Name::new("k").unwrap();
        [KeyRef::Named { name, version: 1, algorithm: "gcm(aes)".to_owned() }, KeyRef::Wrapped(vec![2; 3])].into_iter()
    }

    fn by_reference(key: KeyRef) -> impl Iterator<Item = Operation> {
        let secret = |byte: u8| Wiped::from(vec![byte; 3]);
        let key = || key.clone();
        [
            Operation::Try { key: key(), kind: Kind::Hash, secret_len: 28 },
            Operation::CipherBy { key: key(), direction: Direction::Encrypt, iv: vec![1], text: secret(2) },
            Operation::CipherBy { key: key(), direction: Direction::Decrypt, iv: vec![3], text: secret(4) },
            Operation::SealBy { key: key(), nonce: vec![5], aad: vec![6], text: secret(7), tag_len: 8 },
            Operation::OpenBy { key: key(), nonce: vec![9], aad: vec![10], text: vec![11], tag: vec![12] },
            Operation::MacBy { key: key(), text: secret(13) },
            Operation::MacBegin { key: key(), stream: 14, text: secret(15) },
            Operation::AeadBegin {
                key: key(),
                stream: 16,
                direction: Direction::Encrypt,
                nonce: vec![17],
                aad: vec![18],
                text: secret(19),
            },
        ]
        .into_iter()
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
        .chain(keys().flat_map(by_reference))
        .chain([
            Operation::Wrap { kind: Kind::Skcipher, algorithm: "cbc(aes)".to_owned(), secret: secret(20) },
            Operation::MacMore { stream: 21, text: vec![22].into() },
            Operation::MacEnd { stream: 23, text: vec![24].into() },
            Operation::StreamFork { stream: 25, to: 26 },
            Operation::StreamForget { stream: 27 },
            Operation::AeadMore { stream: 28, direction: Direction::Decrypt, aad: vec![29], text: vec![30].into() },
            Operation::AeadSeal { stream: 31 },
            Operation::AeadOpen { stream: 32, tag: vec![33] },
            Operation::Slots,
        ])
        .map(|operation| Request { id: 77, operation })
        .collect()
    }

    #[test]
    fn requests_come_back_and_shorter_ones_do_not() {
        for request in requests() {
            let bytes = request.encode();
            let back = Request::decode(&bytes).unwrap();
            assert_eq!((back.id, Request::id_of(&bytes)), (77, 77));
            assert!(back.encode() == bytes, "{}", request.operation.name());
            assert!(!StepsRequest::is_one(&bytes), "{} looks like steps", request.operation.name());
            for len in 0..bytes.len() {
                assert!(Request::decode(&bytes[..len]).is_err(), "{} cut off at {len}", request.operation.name());
            }
        }
        assert_eq!(Request::id_of(&[1, 2, 3]), 0);
    }

    #[test]
    fn the_largest_messages_fit() {
        let room = |len: usize| Wiped::from(vec![1; len]);
        let wrapped = || KeyRef::Wrapped(vec![2; MAX_WRAPPED_LEN]);
        let (nonce, name) = (vec![3; MAX_NONCE_LEN], Name::new(&"n".repeat(MAX_NAME_LEN)).unwrap());
        let (aad, text) = (vec![4; MAX_AAD_LEN], vec![5; MAX_TEXT_LEN + MAX_TAG_LEN]);
        let long = vec![6; MAX_LONG_TEXT_LEN - 100];
        let all = [
            Operation::Open { name, version: 1, nonce: nonce.clone(), aad, text },
            Operation::CipherBy {
                key: wrapped(),
                direction: Direction::Decrypt,
                iv: nonce.clone(),
                text: room(MAX_LONG_TEXT_LEN),
            },
            Operation::SealBy {
                key: wrapped(),
                nonce: nonce.clone(),
                aad: vec![7; 100],
                text: long.clone().into(),
                tag_len: 16,
            },
            Operation::OpenBy { key: wrapped(), nonce, aad: long, text: vec![7; 100], tag: vec![8; MAX_TAG_LEN] },
            Operation::MacBegin { key: wrapped(), stream: 1, text: room(MAX_LONG_TEXT_LEN) },
            Operation::AeadBegin {
                key: wrapped(),
                stream: 1,
                direction: Direction::Encrypt,
                nonce: vec![2; MAX_NONCE_LEN],
                aad: vec![7; 100],
                text: room(MAX_LONG_TEXT_LEN - 100),
            },
            Operation::Wrap {
                kind: Kind::Hash,
                algorithm: "x".repeat(MAX_ALGORITHM_LEN),
                secret: vec![1; MAX_SECRET_LEN].into(),
            },
        ];
        for operation in all {
            let (name, request) = (operation.name(), Request { id: 1, operation }.encode());
            assert!(request.len() <= MAX_MESSAGE_LEN && Request::decode(&request).is_ok(), "{name}");
        }
        // Each byte more is too much.
        let both = Operation::SealBy {
            key: wrapped(),
            nonce: vec![],
            aad: vec![1],
            text: room(MAX_LONG_TEXT_LEN),
            tag_len: 16,
        };
        let bytes = Request { id: 1, operation: both }.encode();
        assert_eq!(Request::decode(&bytes).err(), Some(Malformed("text")));
    }
}
