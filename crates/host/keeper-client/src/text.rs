//! Requests and replies whose text stays where it is: those of ciphers and AEADs by reference, through shared memory. They have the
//! bytes of [`Operation::CipherBy`](crate::message::Operation::CipherBy) and its like, and of
//! [`Answer::Computed`](crate::message::Answer::Computed).

use crate::codec::{Malformed, Reader, Wiped, Writer};
use crate::limits::{MAX_LONG_TEXT_LEN, MAX_NONCE_LEN, MAX_REF_LEN, MAX_TAG_LEN, VERSION};
use crate::reference::KeyRef;
use sealane_crypto::skcipher::Direction;

/// The number of such a reply.
pub(crate) const COMPUTED: u8 = 9;
/// The longest part of a reply before its text.
pub(crate) const MAX_HEAD_LEN: usize = 2 + 8 + 4 + 4 + MAX_NONCE_LEN + 4;

/// The longest part of a reply behind its text.
pub(crate) const MAX_TAIL_LEN: usize = 4 + MAX_TAG_LEN;

/// The computation on a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A cipher.
    Cipher {
        /// Encrypt or decrypt.
        direction: Direction,
        /// The IV.
        iv: &'a [u8],
    },
    /// Seal by an AEAD.
    Seal {
        /// The nonce.
        nonce: &'a [u8],
        /// Associated data.
        aad: &'a [u8],
        /// The length of the tag in bytes.
        tag_len: u16,
    },
    /// Open by an AEAD.
    Open {
        /// The nonce.
        nonce: &'a [u8],
        /// Associated data.
        aad: &'a [u8],
        /// The tag.
        tag: &'a [u8],
    },
}

impl Step<'_> {
    const CIPHER: u8 = 16;
    const SEAL: u8 = 17;
    const OPEN: u8 = 18;

    /// Whether an IV and a tag are as long as those that come of it: the IV that continues a cipher's text, and the tag of one that an
    /// AEAD has sealed.
    pub(crate) fn has(&self, continuing: &[u8], made: &[u8]) -> bool {
        let lens = match self {
            Step::Cipher { iv, .. } => (iv.len(), 0),
            Step::Seal { tag_len, .. } => (0, usize::from(*tag_len)),
            Step::Open { .. } => (0, 0),
        };
        (continuing.len(), made.len()) == lens
    }

    /// The number of its operation in messages.
    pub(crate) fn number(&self) -> u8 {
        match self {
            Step::Cipher { .. } => Self::CIPHER,
            Step::Seal { .. } => Self::SEAL,
            Step::Open { .. } => Self::OPEN,
        }
    }

    /// The name of its operation in the audit log.
    #[must_use]
    pub fn name(&self, key: &KeyRef) -> &'static str {
        let (named, wrapped) = match self {
            Step::Cipher { direction: Direction::Encrypt, .. } => ("encrypt", "encrypt-wrapped"),
            Step::Cipher { direction: Direction::Decrypt, .. } => ("decrypt", "decrypt-wrapped"),
            Step::Seal { .. } => ("seal", "seal-wrapped"),
            Step::Open { .. } => ("open", "open-wrapped"),
        };
        if key.name().is_some() { named } else { wrapped }
    }

    /// Writes what stands before the text of such a request, but for the length of the text.
    pub(crate) fn write_head(&self, to: &mut Writer) {
        match self {
            Step::Cipher { direction, iv } => {
                to.u8((*direction == Direction::Decrypt).into());
                to.bytes(iv);
            }
            Step::Seal { nonce, aad, .. } | Step::Open { nonce, aad, .. } => {
                to.bytes(nonce);
                to.bytes(aad);
            }
        }
    }

    /// Writes what stands behind the text.
    pub(crate) fn write_tail(&self, to: &mut Writer) {
        match self {
            Step::Cipher { .. } => {}
            Step::Seal { tag_len, .. } => to.u16(*tag_len),
            Step::Open { tag, .. } => to.bytes(tag),
        }
    }

    /// Reads what stands before the text, and the length that the text may have.
    fn read<'a>(number: u8, from: &mut Reader<'a>) -> Result<(Step<'a>, usize), Malformed> {
        if number == Self::CIPHER {
            let direction = read_direction(from)?;
            return Ok((Step::Cipher { direction, iv: from.bytes(MAX_NONCE_LEN, "IV")? }, MAX_LONG_TEXT_LEN));
        }
        let nonce = from.bytes(MAX_NONCE_LEN, "nonce")?;
        let aad = from.bytes(MAX_LONG_TEXT_LEN, "associated data")?;
        let step = match number {
            Self::SEAL => Step::Seal { nonce, aad, tag_len: 0 },
            Self::OPEN => Step::Open { nonce, aad, tag: &[] },
            _ => return Err(Malformed("operation")),
        };
        Ok((step, MAX_LONG_TEXT_LEN - aad.len()))
    }
}

/// Reads a direction.
pub(crate) fn read_direction(from: &mut Reader<'_>) -> Result<Direction, Malformed> {
    match from.u8("direction")? {
        0 => Ok(Direction::Encrypt),
        1 => Ok(Direction::Decrypt),
        _ => Err(Malformed("direction")),
    }
}

/// The bytes before a request's text, and those behind it.
#[must_use]
pub fn request_around(id: u64, key: &KeyRef, step: &Step<'_>, text_len: usize) -> (Wiped, Wiped) {
    let (mut head, mut tail) = (Writer::new(), Writer::new());
    head.u8(VERSION);
    head.u8(step.number());
    head.u64(id);
    head.bytes(&key.encode());
    step.write_head(&mut head);
    head.u32(text_len as u32);
    step.write_tail(&mut tail);
    (head.done(), tail.done())
}

/// A request with its text.
pub struct TextRequest<'a> {
    /// Its id.
    pub id: u64,
    /// The key.
    pub key: KeyRef,
    /// The computation.
    pub step: Step<'a>,
    /// The text.
    pub text: &'a mut [u8],
}

impl<'a> TextRequest<'a> {
    /// Whether the bytes may be such a request.
    #[must_use]
    pub fn is_one(bytes: &[u8]) -> bool {
        matches!(bytes, [VERSION, Step::CIPHER..=Step::OPEN, ..])
    }

    /// Reads such a request.
    ///
    /// # Errors
    /// [`Malformed`], also for other requests.
    pub fn of(bytes: &'a mut [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        if from.u8("version of the request")? != VERSION {
            return Err(Malformed("version of the request"));
        }
        let number = from.u8("operation")?;
        let start = |from: &mut Reader<'_>| {
            from.u64("id")?;
            from.bytes(MAX_REF_LEN, "reference to a key")?;
            let (_, max) = Step::read(number, from)?;
            from.bytes(max, "text").map(<[u8]>::len)
        };
        // The text is taken out of the bytes first.
        let text_len = start(&mut from)?;
        let end = bytes.len() - from.left();
        let (before, tail) = bytes.split_at_mut(end);
        let (head, text) = before.split_at_mut(end - text_len);
        let mut from = Reader::new(&head[2..]);
        let id = from.u64("id")?;
        let key = KeyRef::decode(from.bytes(MAX_REF_LEN, "reference to a key")?)?;
        let (mut step, _) = Step::read(number, &mut from)?;
        let mut from = Reader::new(tail);
        match &mut step {
            Step::Cipher { .. } => {}
            Step::Seal { tag_len, .. } => *tag_len = from.u16("length of the tag")?,
            Step::Open { tag, .. } => *tag = from.bytes(MAX_TAG_LEN, "tag")?,
        }
        from.end()?;
        Ok(TextRequest { id, key, step, text })
    }
}

/// The bytes before the text of a reply, and those behind it.
#[must_use]
pub fn reply_around(id: u64, version: u32, iv: &[u8], text_len: usize, tag: &[u8]) -> (Wiped, Wiped) {
    let (mut head, mut tail) = (Writer::new(), Writer::new());
    head.u8(VERSION);
    head.u8(COMPUTED);
    head.u64(id);
    head.u32(version);
    head.bytes(iv);
    head.u32(text_len as u32);
    tail.bytes(tag);
    (head.done(), tail.done())
}

/// The part of a reply before its text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReplyHead<'a> {
    pub(crate) id: u64,
    pub(crate) iv: &'a [u8],
    /// The length of the text, and its place in the reply.
    pub(crate) text_len: usize,
    pub(crate) text_at: usize,
}

impl<'a> ReplyHead<'a> {
    /// Reads the first [`MAX_HEAD_LEN`] bytes of a reply, or all. `None`: it is another reply.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        if !matches!(bytes, [VERSION, COMPUTED, ..]) {
            return Ok(None);
        }
        let from = &mut Reader::new(&bytes[2..]);
        let id = from.u64("id")?;
        from.u32("version")?;
        let iv = from.bytes(MAX_NONCE_LEN, "IV")?;
        let text_len = from.u32("text")? as usize;
        if text_len > MAX_LONG_TEXT_LEN {
            return Err(Malformed("text"));
        }
        Ok(Some(ReplyHead { id, iv, text_len, text_at: bytes.len() - from.left() }))
    }
}

/// Reads the part of a reply behind its text: the tag.
///
/// # Errors
/// [`Malformed`].
pub(crate) fn read_tail(bytes: &[u8]) -> Result<&[u8], Malformed> {
    let mut from = Reader::new(bytes);
    let tag = from.bytes(MAX_TAG_LEN, "tag")?;
    from.end()?;
    Ok(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Operation, Request};
    use crate::reply::{Answer, Reply};

    fn requests() -> [(Step<'static>, Operation); 3] {
        let key = || KeyRef::Wrapped(vec![7; 100]);
        let (iv, nonce, aad) = (&[1; 16], &[2; 12], &[3; 20]);
        let text = || vec![4; 1000];
        let direction = Direction::Decrypt;
        [
            (
                Step::Cipher { direction, iv },
                Operation::CipherBy { key: key(), direction, iv: iv.to_vec(), text: text().into() },
            ),
            (
                Step::Seal { nonce, aad, tag_len: 8 },
                Operation::SealBy {
                    key: key(),
                    nonce: nonce.to_vec(),
                    aad: aad.to_vec(),
                    text: text().into(),
                    tag_len: 8,
                },
            ),
            (
                Step::Open { nonce, aad, tag: &[5; 16] },
                Operation::OpenBy {
                    key: key(),
                    nonce: nonce.to_vec(),
                    aad: aad.to_vec(),
                    text: text(),
                    tag: vec![5; 16],
                },
            ),
        ]
    }

    #[test]
    fn a_request_around_its_text_is_the_message() {
        for (step, operation) in requests() {
            let message = Request { id: 77, operation }.encode();
            let (head, tail) = request_around(77, &KeyRef::Wrapped(vec![7; 100]), &step, 1000);
            assert!(*message == [&head[..], &[4; 1000], &tail].concat());
            assert!(TextRequest::is_one(&message));
            let mut bytes = message.to_vec();
            let request = TextRequest::of(&mut bytes).unwrap();
            assert_eq!((request.id, &request.key, request.step), (77, &KeyRef::Wrapped(vec![7; 100]), step));
            assert_eq!(request.text, [4; 1000]);
            // Both readers take and refuse the same.
            for len in 0..message.len() {
                let mut bytes = message[..len].to_vec();
                assert!(TextRequest::of(&mut bytes).is_err() && Request::decode(&message[..len]).is_err(), "{len}");
            }
            let mut longer = message.to_vec();
            longer.push(0);
            assert!(TextRequest::of(&mut longer).is_err());
        }
        let mut other = Request { id: 1, operation: Operation::List { after: None } }.encode();
        assert!(!TextRequest::is_one(&other) && TextRequest::of(&mut other).is_err());
    }

    #[test]
    fn a_changed_byte_is_read_alike_by_both_readers() {
        for (_, operation) in requests() {
            let message = Request { id: 77, operation }.encode();
            for at in 0..message.len() {
                for bit in [1, 0x80] {
                    let mut bytes = message.to_vec();
                    bytes[at] ^= bit;
                    let whole = Request::decode(&bytes).is_ok();
                    if TextRequest::is_one(&bytes) {
                        assert_eq!(TextRequest::of(&mut bytes).is_ok(), whole, "byte {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_reply_around_its_text_is_the_message() {
        let (iv, tag) = (vec![1; 16], vec![2; 16]);
        let (head, tail) = reply_around(9, 3, &iv, 1000, &tag);
        let computed = Answer::Computed { version: 3, iv: iv.clone(), text: vec![4; 1000].into(), tag };
        let message = Reply { id: 9, answer: computed }.encode();
        assert!(*message == [&head[..], &[4; 1000], &tail].concat());
        let read = ReplyHead::of(&message[..MAX_HEAD_LEN]).unwrap().unwrap();
        assert_eq!(read, ReplyHead { id: 9, iv: &iv, text_len: 1000, text_at: head.len() });
        let other = Reply { id: 9, answer: Answer::Version(1) }.encode();
        assert_eq!(ReplyHead::of(&other), Ok(None));
        for len in 2..head.len() {
            assert!(ReplyHead::of(&message[..len]).is_err(), "{len}");
        }
    }
}
