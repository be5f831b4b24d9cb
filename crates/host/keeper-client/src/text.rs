//! Computations on texts by reference, and requests of them through shared memory: some computations by one key, whose texts
//! stand one behind the other in a place of their own ([`TEXTS_AT`]). What comes of a text is written in its place.
//!
//! ```text
//! request   version:1 operation:1 id:8   key   count:2   of each: operation:1, fields, with the length of the text
//! reply     version:1 kind:1      id:8   version of the key:4   count:2   of each: status:1, IV and tag, or the code of a refusal
//! ```
//!
//! A reply that refuses all of them is one as over the socket.

use crate::codec::{Append, Malformed, Reader, Writer};
use crate::limits::{MAX_IV_LEN, MAX_NONCE_LEN, MAX_REF_LEN, MAX_STEPS, MAX_TAG_LEN, MAX_TEXTS_LEN, TEXTS_AT, VERSION};
use crate::reference::KeyRef;
use crate::reply::{Code, number_of_failure, read_failure};
use arrayvec::ArrayVec;
use core::fmt;
use sealane_crypto::OpError;
use sealane_crypto::skcipher::Direction;

/// The number of a request of steps.
const STEPS: u8 = 30;
/// The number of its reply.
const STEPS_DONE: u8 = 12;
/// The bytes of a request before its key, and of a reply before its first status, with their counts.
const REQUEST_LEN: usize = 2 + 8 + 4 + 2;
const REPLY_LEN: usize = 2 + 8 + 4 + 2;
/// The statuses beside those of failed computations, which are their numbers.
const DONE: u8 = 0;
const REFUSED: u8 = u8::MAX;
const MAX_STATUS_LEN: usize = 1 + 4 + MAX_IV_LEN + 4 + MAX_TAG_LEN;

// Every reply has its place.
const _: () = assert!(REPLY_LEN + MAX_STEPS * MAX_STATUS_LEN <= TEXTS_AT);

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
    /// Authenticate.
    Mac,
}

impl Step<'_> {
    const CIPHER: u8 = 16;
    const SEAL: u8 = 17;
    const OPEN: u8 = 18;
    const MAC: u8 = 19;

    /// Whether an IV and a tag are as long as those that come of it: the IV that continues a cipher's text, and the tag of one that an
    /// AEAD has sealed. A MAC has the length that its algorithm has.
    pub(crate) fn has(&self, continuing: &[u8], made: &[u8]) -> bool {
        let lens = match self {
            Step::Cipher { iv, .. } => (iv.len(), 0),
            Step::Seal { tag_len, .. } => (0, usize::from(*tag_len)),
            Step::Open { .. } => (0, 0),
            Step::Mac => (0, made.len()),
        };
        (continuing.len(), made.len()) == lens
    }

    /// Whether it makes another text of its text.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !matches!(self, Step::Mac)
    }

    /// Its associated data.
    #[must_use]
    pub fn aad(&self) -> &[u8] {
        match self {
            Step::Seal { aad, .. } | Step::Open { aad, .. } => aad,
            Step::Cipher { .. } | Step::Mac => &[],
        }
    }

    /// The number of its operation in messages.
    pub(crate) fn number(&self) -> u8 {
        match self {
            Step::Cipher { .. } => Self::CIPHER,
            Step::Seal { .. } => Self::SEAL,
            Step::Open { .. } => Self::OPEN,
            Step::Mac => Self::MAC,
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
            Step::Mac => ("mac", "mac-wrapped"),
        };
        if key.name().is_some() { named } else { wrapped }
    }

    /// Writes what stands before the text of such a request, but for the length of the text.
    pub(crate) fn write_head<A: Append>(&self, to: &mut Writer<A>) {
        match self {
            Step::Cipher { direction, iv } => {
                to.u8((*direction == Direction::Decrypt).into());
                to.bytes(iv);
            }
            Step::Seal { nonce, aad, .. } | Step::Open { nonce, aad, .. } => {
                to.bytes(nonce);
                to.bytes(aad);
            }
            Step::Mac => {}
        }
    }

    /// Writes what stands behind the text.
    pub(crate) fn write_tail<A: Append>(&self, to: &mut Writer<A>) {
        match self {
            Step::Cipher { .. } | Step::Mac => {}
            Step::Seal { tag_len, .. } => to.u16(*tag_len),
            Step::Open { tag, .. } => to.bytes(tag),
        }
    }

    /// The bytes of what stands for it in a request of steps, with the number of the operation and the length of its text.
    #[must_use]
    pub fn front_len(&self) -> usize {
        1 + 4
            + match self {
                Step::Cipher { iv, .. } => 1 + 4 + iv.len(),
                Step::Seal { nonce, aad, .. } => 4 + nonce.len() + 4 + aad.len() + 2,
                Step::Open { nonce, aad, tag } => 4 + nonce.len() + 4 + aad.len() + 4 + tag.len(),
                Step::Mac => 0,
            }
    }

    /// Reads what stands for it in a request of steps, and the length of its text.
    fn read<'a>(from: &mut Reader<'a>) -> Result<(Step<'a>, usize), Malformed> {
        let mut step = match from.u8("step")? {
            Self::CIPHER => {
                let direction = read_direction(from)?;
                Step::Cipher { direction, iv: from.bytes(MAX_NONCE_LEN, "IV")? }
            }
            number @ (Self::SEAL | Self::OPEN) => {
                let (nonce, aad) = (from.bytes(MAX_NONCE_LEN, "nonce")?, from.bytes(TEXTS_AT, "associated data")?);
                if number == Self::SEAL {
                    Step::Seal { nonce, aad, tag_len: 0 }
                } else {
                    Step::Open { nonce, aad, tag: &[] }
                }
            }
            Self::MAC => Step::Mac,
            _ => return Err(Malformed("step")),
        };
        let text_len = from.u32("text")? as usize;
        match &mut step {
            Step::Cipher { .. } | Step::Mac => {}
            Step::Seal { tag_len, .. } => *tag_len = from.u16("length of the tag")?,
            Step::Open { tag, .. } => *tag = from.bytes(MAX_TAG_LEN, "tag")?,
        }
        Ok((step, text_len))
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

/// The IV of a cipher, in place.
pub type Iv = ArrayVec<u8, MAX_IV_LEN>;
/// A tag, in place.
pub type Tag = ArrayVec<u8, MAX_TAG_LEN>;

/// The outcome of a computation beside its text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The IV that continues a cipher's text.
    pub iv: Iv,
    /// The tag of a text that an AEAD has sealed, or a MAC.
    pub tag: Tag,
}

/// Without the tag: a MAC may be somebody's key.
impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome").field("iv", &self.iv).field("tag_len", &self.tag.len()).finish_non_exhaustive()
    }
}

impl Outcome {
    /// An outcome of these fields. `None` if one of them is too long.
    #[must_use]
    pub fn of(iv: &[u8], tag: &[u8]) -> Option<Self> {
        Some(Outcome { iv: iv.try_into().ok()?, tag: tag.try_into().ok()? })
    }
}

/// The reason why there is no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// The computation has failed.
    Failed(OpError),
    /// The key's rules do not allow it.
    Refused(Code),
}

/// The length of a request of steps before the first of them.
#[must_use]
pub(crate) fn front_len(key: &[u8]) -> usize {
    REQUEST_LEN + key.len()
}

/// Writes a request of steps, each with the length of its text, by an encoded reference to a key.
pub fn write_request<'a, A: Append>(
    to: &mut Writer<A>,
    id: u64,
    key: &[u8],
    steps: impl ExactSizeIterator<Item = (Step<'a>, usize)>,
) {
    to.u8(VERSION);
    to.u8(STEPS);
    to.u64(id);
    to.bytes(key);
    to.count(steps.len());
    for (step, text_len) in steps {
        to.u8(step.number());
        step.write_head(to);
        to.u32(text_len as u32);
        step.write_tail(to);
    }
}

/// A request of steps, without its texts.
pub struct StepsRequest<'a> {
    /// Its id.
    pub id: u64,
    /// The reference to the key, encoded.
    pub key: &'a [u8],
    /// The computations, one at least, with the lengths of their texts.
    pub steps: Vec<(Step<'a>, usize)>,
    /// The length of all texts, at most [`MAX_TEXTS_LEN`].
    pub texts_len: usize,
}

impl<'a> StepsRequest<'a> {
    /// Whether the bytes may be such a request.
    #[must_use]
    pub fn is_one(bytes: &[u8]) -> bool {
        matches!(bytes, [VERSION, STEPS, ..])
    }

    /// Reads such a request.
    ///
    /// # Errors
    /// [`Malformed`], also for other requests.
    pub fn of(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let from = &mut Reader::new(bytes);
        if !Self::is_one(&from.array::<2>("request")?) {
            return Err(Malformed("request"));
        }
        let (id, key) = (from.u64("id")?, from.bytes(MAX_REF_LEN, "reference to a key")?);
        let count = from.count(MAX_STEPS, "count of steps")?;
        if count == 0 {
            return Err(Malformed("count of steps"));
        }
        let (mut steps, mut texts_len) = (Vec::with_capacity(count), 0);
        for _ in 0..count {
            let (step, text_len) = Step::read(from)?;
            // All texts before it have at most that many bytes.
            if text_len > MAX_TEXTS_LEN - texts_len {
                return Err(Malformed("text"));
            }
            texts_len += text_len;
            steps.push((step, text_len));
        }
        from.end()?;
        Ok(StepsRequest { id, key, steps, texts_len })
    }
}

/// Writes the reply to a request of steps.
pub fn write_reply<'a, A: Append>(
    to: &mut Writer<A>,
    id: u64,
    version: u32,
    done: impl ExactSizeIterator<Item = &'a Result<Outcome, NotDone>>,
) {
    to.u8(VERSION);
    to.u8(STEPS_DONE);
    to.u64(id);
    to.u32(version);
    to.count(done.len());
    for done in done {
        match done {
            Ok(Outcome { iv, tag }) => {
                to.u8(DONE);
                to.bytes(iv);
                to.bytes(tag);
            }
            Err(NotDone::Failed(error)) => to.u8(number_of_failure(*error)),
            Err(NotDone::Refused(code)) => {
                to.u8(REFUSED);
                to.u16(*code as u16);
            }
        }
    }
}

/// A reply to a request of steps, as it is read.
pub struct StepsReply<'a> {
    /// The id of the request.
    pub id: u64,
    /// The number of computations of which nothing was read.
    left: usize,
    from: Reader<'a>,
}

impl<'a> StepsReply<'a> {
    /// Begins to read a reply. `None`: it is another reply.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn of(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        if !matches!(bytes, [VERSION, STEPS_DONE, ..]) {
            return Ok(None);
        }
        let mut from = Reader::new(&bytes[2..]);
        let id = from.u64("id")?;
        from.u32("version")?;
        let left = from.count(MAX_STEPS, "count of steps")?;
        Ok(Some(StepsReply { id, left, from }))
    }

    /// The outcome of the next computation. `None` behind the last one.
    ///
    /// # Errors
    /// [`Malformed`].
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on behind an error")]
    pub fn next(&mut self) -> Result<Option<Result<Outcome, NotDone>>, Malformed> {
        let from = &mut self.from;
        let Some(left) = self.left.checked_sub(1) else { return from.end().map(|()| None) };
        self.left = left;
        Ok(Some(match from.u8("status")? {
            DONE => {
                let (iv, tag) = (from.bytes(MAX_IV_LEN, "IV")?, from.bytes(MAX_TAG_LEN, "tag")?);
                Ok(Outcome::of(iv, tag).ok_or(Malformed("IV or tag"))?)
            }
            REFUSED => Err(NotDone::Refused(Code::of_number(from.u16("code")?).ok_or(Malformed("code"))?)),
            number => Err(NotDone::Failed(read_failure(number)?)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = &[7; 100];

    fn steps() -> [(Step<'static>, usize); 4] {
        let (nonce, aad) = (&[2; 12], &[3; 20]);
        [
            (Step::Cipher { direction: Direction::Decrypt, iv: &[1; 16] }, 1000),
            (Step::Seal { nonce, aad, tag_len: 8 }, 0),
            (Step::Open { nonce, aad, tag: &[5; 16] }, 1),
            (Step::Mac, 70_000),
        ]
    }

    fn request(steps: &[(Step<'static>, usize)]) -> Vec<u8> {
        let mut to = Writer::new();
        write_request(&mut to, 77, KEY, steps.iter().copied());
        to.done().to_vec()
    }

    #[test]
    fn requests_come_back_and_shorter_or_longer_ones_do_not() {
        for from in 0..4 {
            for to in from + 1..=4 {
                let steps = &steps()[from..to];
                let bytes = request(steps);
                assert_eq!(bytes.len(), front_len(KEY) + steps.iter().map(|(step, _)| step.front_len()).sum::<usize>());
                let back = StepsRequest::of(&bytes).unwrap();
                assert_eq!((back.id, back.key, &back.steps[..]), (77, KEY, steps));
                assert_eq!(back.texts_len, steps.iter().map(|(_, len)| len).sum::<usize>());
                for len in 0..bytes.len() {
                    assert!(StepsRequest::of(&bytes[..len]).is_err(), "{len}");
                }
                let longer = [&bytes[..], &[0]].concat();
                assert!(StepsRequest::of(&longer).is_err());
            }
        }
    }

    #[test]
    fn counts_and_lengths_have_bounds() {
        let error = |steps: &[_]| StepsRequest::of(&request(steps)).err();
        assert_eq!(error(&[]), Some(Malformed("count of steps")));
        assert_eq!(error(&[(Step::Mac, 1); MAX_STEPS]), None);
        assert_eq!(error(&[(Step::Mac, 1); MAX_STEPS + 1]), Some(Malformed("count of steps")));
        assert_eq!(error(&[(Step::Mac, MAX_TEXTS_LEN)]), None);
        assert_eq!(error(&[(Step::Mac, 1), (Step::Mac, MAX_TEXTS_LEN)]), Some(Malformed("text")));
        assert_eq!(error(&[(Step::Mac, u32::MAX as usize)]), Some(Malformed("text")));
        assert_eq!(error(&[(Step::Mac, MAX_TEXTS_LEN), (Step::Mac, u32::MAX as usize)]), Some(Malformed("text")));
        assert_eq!(StepsRequest::of(&[VERSION, 16, 0]).err(), Some(Malformed("request")));
    }

    #[test]
    fn replies_come_back_and_shorter_or_longer_ones_do_not() {
        let longest = Outcome::of(&[1; MAX_IV_LEN], &[2; MAX_TAG_LEN]).unwrap();
        let all = [
            Ok(Outcome::of(&[1; 16], &[]).unwrap()),
            Err(NotDone::Failed(OpError::Auth)),
            Err(NotDone::Refused(Code::Limit)),
            Ok(longest.clone()),
        ];
        let write = |done: &[Result<Outcome, NotDone>]| {
            let mut to = Writer::new();
            write_reply(&mut to, 9, 3, done.iter());
            to.done().to_vec()
        };
        let read = |bytes: &[u8]| {
            let mut reply = StepsReply::of(bytes)?.ok_or(Malformed("another"))?;
            let mut all = Vec::new();
            while let Some(done) = reply.next()? {
                all.push(done);
            }
            Ok::<_, Malformed>((reply.id, all))
        };
        let bytes = write(&all);
        assert_eq!(read(&bytes), Ok((9, all.to_vec())));
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "{len}");
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err());
        assert_eq!(write(&vec![Ok(longest); MAX_STEPS]).len(), REPLY_LEN + MAX_STEPS * MAX_STATUS_LEN);
        assert!(Outcome::of(&[1; MAX_IV_LEN + 1], &[]).is_none());
        assert!(Outcome::of(&[], &[1; MAX_TAG_LEN + 1]).is_none());
    }
}
