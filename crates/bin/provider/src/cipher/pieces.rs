//! A message of GCM in pieces, also one whose first text was sealed as a whole message, and is not at hand.
//!
//! Its ciphertext is not needed: GHASH is linear (SP 800-38D section 6.4). Each block has a share in the tag, which is the block times a
//! power of H, and grows by a factor of H with each further block. So a stream that seals zeros in its place has the right tag but for
//! one summand: at that point the difference between the two tags.

use crate::failure::{Failure, Reason};
use crate::home::{self, Secret, forget_traces};
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use inout::InOutBuf;
use sealane_crypto::OpError;
use sealane_crypto::aead::AeadStream;
use sealane_crypto::skcipher::Direction;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

pub(super) const TAG_LEN: usize = 16;

/// A block of AES, and a tag.
type Block = [u8; TAG_LEN];

/// A failure of the core, which the default provider would not name.
pub(super) fn silent(error: OpError) -> Failure {
    home::failed(error, Failure::SILENT)
}

/// A message that has begun.
pub(super) struct Pieces {
    stream: Box<dyn AeadStream>,
    /// Bytes of text so far.
    len: u64,
    unseen: Option<Unseen>,
}

/// A text in whose place zeros were sealed.
struct Unseen {
    len: u64,
    secret: Secret<Share>,
}

#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
struct Share {
    /// The difference of the tags behind the text.
    of_text: Block,
    /// The key of GHASH.
    h: Block,
}

impl Pieces {
    /// Begins a message under the key of a stream.
    pub(super) fn new(key: &dyn AeadStream, iv: &[u8], associated: &[u8]) -> Result<Self, Failure> {
        let mut stream = key.fork().map_err(silent)?;
        stream.start(iv).map_err(silent)?;
        stream.associated(associated).map_err(silent)?;
        Ok(Pieces { stream, len: 0, unseen: None })
    }

    /// Goes on behind a text of so many bytes, which was sealed as a whole message with this tag.
    pub(super) fn skip(&mut self, len: usize, iv: &[u8], tag: &Block) -> Result<(), Failure> {
        let mut zeros = Zeroizing::new([0; 1024]);
        let mut left = len;
        while left > 0 {
            // The key stream is there since the last round.
            zeros.zeroize();
            let n = left.min(zeros.len());
            self.text(Direction::Encrypt, (&mut zeros[..n]).into())?;
            left -= n;
        }
        let share = self.stream.fork().and_then(|mut other| Share::new(&mut *other, iv, tag));
        forget_traces();
        self.unseen = Some(Unseen { len: self.len, secret: Secret::new(share.map_err(silent)?)? });
        Ok(())
    }

    pub(super) fn text(&mut self, dir: Direction, data: InOutBuf<'_, '_, u8>) -> Result<(), Failure> {
        let len = data.len() as u64;
        self.stream.text(dir, data).map_err(silent)?;
        self.len += len;
        Ok(())
    }

    /// Ends the message, and writes its tag.
    pub(super) fn seal(&mut self, tag: &mut Block) -> Result<(), Failure> {
        // Secret as long as the share is not in it.
        let mut whole = Zeroizing::new([0; TAG_LEN]);
        self.stream.seal(&mut *whole).map_err(silent)?;
        if let Some(Unseen { len, secret }) = &self.unseen {
            let blocks = |len: u64| len.div_ceil(TAG_LEN as u64);
            let more = blocks(self.len) - blocks(*len);
            secret.with(|share| share.add_to(&mut whole, more))?;
            forget_traces();
        }
        *tag = *whole;
        Ok(())
    }

    /// Ends the message, and compares its tag.
    pub(super) fn open(&mut self, tag: &[u8]) -> Result<(), Failure> {
        debug_assert!(self.unseen.is_none(), "only what was sealed is not at hand");
        self.stream.open(tag).map_err(silent)
    }

    pub(super) fn again(&self) -> Result<Self, Failure> {
        let stream = self.stream.fork().map_err(|error| home::failed(error, Reason::Internal.into()))?;
        let unseen = match &self.unseen {
            Some(Unseen { len, secret }) => Some(Unseen { len: *len, secret: secret.again()? }),
            None => None,
        };
        Ok(Pieces { stream, len: self.len, unseen })
    }
}

impl Share {
    /// The share of the text so far, which `stream` has sealed as another one, and whose tag is `tag`. A frame of its own, so that its caller
    /// can wipe the stack.
    #[inline(never)]
    fn new(stream: &mut dyn AeadStream, iv: &[u8], tag: &Block) -> Result<Box<Self>, OpError> {
        let mut share = Box::<Share>::default();
        stream.seal(&mut share.of_text)?;
        add(&mut share.of_text, tag);
        // H from two tags: without any data only the mask is there, and a block of zeros adds the product of H and its length in bits,
        // which is x to the 56th.
        stream.start(iv)?;
        stream.seal(&mut share.h)?;
        stream.start(iv)?;
        stream.associated(&[0; TAG_LEN])?;
        let mut other = Zeroizing::new([0; TAG_LEN]);
        stream.seal(&mut *other)?;
        add(&mut share.h, &other);
        let mut h = Zeroizing::new(u128::from_be_bytes(share.h));
        for _ in 0..56 {
            // The highest bit is that of x to the 0th. Where it is set, the field's polynomial was added when x was multiplied with.
            let was_reduced = 0u128.wrapping_sub(*h >> 127);
            *h = (*h ^ was_reduced & 0xe1 << 120) << 1 | was_reduced & 1;
        }
        share.h = h.to_be_bytes();
        Ok(share)
    }

    /// Adds the share to a tag, behind which there were so many more blocks. A frame of its own, as above.
    #[inline(never)]
    fn add_to(&self, tag: &mut Block, mut more: u64) {
        let (mut share, mut power) = (Zeroizing::new(self.of_text), Zeroizing::new(self.h));
        while more > 0 {
            if more % 2 == 1 {
                *share = product(&share, &power);
            }
            *power = product(&power, &power);
            more /= 2;
        }
        add(tag, &share);
    }
}

fn add(sum: &mut Block, block: &Block) {
    sum.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
}

fn product(a: &Block, b: &Block) -> Block {
    let mut hash = GHash::new(a.into());
    hash.update(&[(*b).into()]);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_crypto::Kind;
    use sealane_drivers::system_registry;

    const AAD: [u8; 13] = [1; 13];

    /// A text as one message, sealed, and its tag.
    fn sealed(key: &dyn AeadStream, iv: &[u8], text: &[u8]) -> (Vec<u8>, Block) {
        let (mut text, mut tag) = (text.to_vec(), [0; TAG_LEN]);
        let mut message = Pieces::new(key, iv, &AAD).expect("begun");
        message.text(Direction::Encrypt, (&mut text[..]).into()).expect("sealed");
        message.seal(&mut tag).expect("a tag");
        (text, tag)
    }

    /// However long the texts are, and in whichever driver's pieces: the tag is that of both texts as one message.
    #[test]
    fn what_is_not_at_hand_is_in_the_tag() {
        let (registry, _) = system_registry();
        let (key, mut drivers) = ([7; 16], 0);
        for row in registry.rows().iter().filter(|row| row.info.kind == Kind::Aead && row.info.name == "gcm(aes)") {
            let alg = registry.lookup(Kind::Aead, &row.driver).expect("a row");
            let Some(stream) = alg.aead_stream(&key) else { continue };
            let stream = stream.expect("a key");
            drivers += 1;
            // An IV of another length, too: its first counter is a hash, whose lower part may be anything.
            for (iv, is_copied) in [(&[5; 12][..], false), (&[6; 12], true), (&[9; 5], false)] {
                for first in [1, 15, 16, 17, 32, 1023, 1024, 1025, 3000] {
                    for then in [0, 1, 15, 16, 17, 31, 33, 500, 5000] {
                        let text: Vec<u8> = (0..first + then).map(|i| (i * 7 % 251) as u8).collect();
                        let (whole, expected) = sealed(&*stream, iv, &text);
                        let (_, mut tag) = sealed(&*stream, iv, &text[..first]);
                        let mut on = Pieces::new(&*stream, iv, &AAD).expect("begun");
                        on.skip(first, iv, &tag).expect("skipped");
                        let mut back = text[first..].to_vec();
                        let (now, later) = back.split_at_mut(then / 3);
                        on.text(Direction::Encrypt, now.into()).expect("sealed");
                        // A copy has the share, too.
                        let mut on = if is_copied { on.again().expect("a copy") } else { on };
                        on.text(Direction::Encrypt, later.into()).expect("sealed");
                        on.seal(&mut tag).expect("a tag");
                        assert!(back == whole[first..] && tag == expected, "{}: {first} and {then} bytes", row.driver);
                    }
                }
            }
        }
        assert!(drivers > 0, "no driver takes messages in pieces");
    }
}
