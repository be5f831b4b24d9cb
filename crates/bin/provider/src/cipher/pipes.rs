//! Pipelines (OpenSSL 3.5 and later): several messages under one key, each under an IV of its own, which advance together.
//!
//! The texts of one call go to the core as a burst of whole messages, because that is what they nearly always are. Nobody
//! says so before the next call comes. A message that goes on after all, or one that turns out not to be authentic yet, is taken up
//! again in pieces.

use super::pieces::{Pieces, TAG_LEN, silent};
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Call, Text};
use arrayvec::ArrayVec;
use inout::InOutBuf;
use sealane_crypto::OpError;
use sealane_crypto::aead::{self, AeadOp, AeadStream, AeadTfm};
use sealane_crypto::skcipher::Direction;
use zeroize::Zeroize;

/// The longest IV that the default provider takes, in bytes.
pub(crate) const MAX_IV_LEN: usize = 128;
/// The most pipes of a pipeline (`EVP_MAX_PIPES`).
pub(crate) const MAX_PIPES: usize = 32;
/// The longest text that is taken for a whole message, in bytes. A longer one gains nothing from a burst.
const MAX_WHOLE: usize = 1 << 15;

/// The inputs and outputs of one call, one for each pipe.
pub(crate) type PipeCalls<'a> = ArrayVec<Call<'a>, MAX_PIPES>;

/// A key in the forms in which pipes use it.
pub(super) struct PipeKey<'a> {
    pub(super) whole: &'a AeadTfm,
    pub(super) stream: &'a dyn AeadStream,
    /// Whether it is computed with elsewhere.
    pub(super) is_kept: bool,
}

/// The place of a message in its life.
enum Stage {
    /// Without an IV.
    Missing,
    /// Without text.
    Begun,
    /// Sealed, or opened and authentic, if no more text comes. Of what was sealed, so many bytes are not at hand.
    Whole {
        unseen: usize,
    },
    Pieces(Pieces),
    Spent,
}

struct Pipe {
    iv: [u8; MAX_IV_LEN],
    iv_len: usize,
    stage: Stage,
    associated: Vec<u8>,
    /// The ciphertext of a message that is taken for a whole one: of one that is opened, and under a key that is computed with
    /// elsewhere, whose hash key is not for this process. To copy each would cost as much as the half of sealing it.
    sealed: Vec<u8>,
    tag: [u8; TAG_LEN],
    /// Its length, once it is known.
    tag_len: Option<usize>,
}

/// Messages that advance together.
pub(super) struct Pipes {
    dir: Direction,
    list: Vec<Pipe>,
}

impl Pipe {
    const fn new() -> Self {
        Pipe {
            iv: [0; MAX_IV_LEN],
            iv_len: 0,
            stage: Stage::Missing,
            associated: Vec::new(),
            sealed: Vec::new(),
            tag: [0; TAG_LEN],
            tag_len: None,
        }
    }

    fn start(&mut self, iv: Option<&[u8]>) -> Done {
        if let Some(iv) = iv {
            if !(1..=MAX_IV_LEN).contains(&iv.len()) {
                return Err(Reason::InvalidIvLength.into());
            }
            self.iv[..iv.len()].copy_from_slice(iv);
            self.iv_len = iv.len();
        }
        self.stage = if iv.is_some() { Stage::Begun } else { Stage::Missing };
        self.associated.clear();
        self.sealed.clear();
        self.tag_len = None;
        Ok(())
    }

    fn associated(&mut self, data: &[u8]) -> Done {
        if !matches!(self.stage, Stage::Begun) {
            return Err(Failure::SILENT);
        }
        self.associated.extend_from_slice(data);
        Ok(())
    }

    /// Whether the first text of a message goes to the core as a whole message.
    fn takes_whole(&self, dir: Direction, tfm: &AeadTfm, len: usize) -> bool {
        let knows_tag = match dir {
            Direction::Encrypt => true,
            Direction::Decrypt => self.tag_len.is_some_and(|len| tfm.info().tag_lens.contains(len)),
        };
        matches!(self.stage, Stage::Begun) && knows_tag && len <= MAX_WHOLE && self.iv_len == tfm.info().iv_len
    }

    /// The message in pieces, as far as it has come.
    fn pieces(&mut self, key: &PipeKey<'_>) -> Result<&mut Pieces, Failure> {
        if let Stage::Begun | Stage::Whole { .. } = self.stage {
            let iv = &self.iv[..self.iv_len];
            let mut pieces = Pieces::new(key.stream, iv, &self.associated)?;
            match self.stage {
                Stage::Whole { unseen } if unseen > 0 => pieces.skip(unseen, iv, &self.tag)?,
                // The ciphertext is hashed, in either direction.
                _ => pieces.text(Direction::Decrypt, (&mut self.sealed[..]).into())?,
            }
            self.sealed.zeroize();
            self.stage = Stage::Pieces(pieces);
        }
        match &mut self.stage {
            Stage::Pieces(pieces) => Ok(pieces),
            Stage::Missing | Stage::Begun | Stage::Whole { .. } | Stage::Spent => Err(Failure::SILENT),
        }
    }

    /// Takes the outcome of a burst, whose output is `text`'s.
    fn whole(&mut self, dir: Direction, key: &PipeKey<'_>, text: &mut Text<'_>, done: Result<(), OpError>) -> Done {
        let mut unseen = 0;
        match (dir, done) {
            (Direction::Encrypt, Ok(())) if key.is_kept => self.sealed.extend_from_slice(text.output()),
            (Direction::Encrypt, Ok(())) => unseen = text.output().len(),
            (Direction::Decrypt, Ok(())) => {}
            (Direction::Encrypt, Err(error)) => return Err(silent(error)),
            (Direction::Decrypt, Err(_)) => {
                // More text may come, before which nothing is authentic. Until then it is opened as any text in pieces.
                let sealed = core::mem::take(&mut self.sealed);
                let text = InOutBuf::new(&sealed, text.output()).map_err(|_| Failure::SILENT)?;
                return self.pieces(key)?.text(dir, text);
            }
        }
        self.stage = Stage::Whole { unseen };
        Ok(())
    }

    fn finish(&mut self, dir: Direction, key: &PipeKey<'_>) -> Done {
        let (tag_len, mut tag) = (self.tag_len.unwrap_or(0), self.tag);
        match (&self.stage, dir) {
            // The tag is there, or has been compared.
            (Stage::Whole { .. }, _) => {}
            (_, Direction::Encrypt) => self.pieces(key)?.seal(&mut tag)?,
            (_, Direction::Decrypt) => self.pieces(key)?.open(&tag[..tag_len])?,
        }
        if dir == Direction::Encrypt {
            (self.tag, self.tag_len) = (tag, Some(TAG_LEN));
        }
        Ok(())
    }

    fn again(&self) -> Result<Self, Failure> {
        let stage = match self.stage {
            Stage::Missing => Stage::Missing,
            Stage::Begun => Stage::Begun,
            Stage::Whole { unseen } => Stage::Whole { unseen },
            Stage::Pieces(ref pieces) => Stage::Pieces(pieces.again()?),
            Stage::Spent => Stage::Spent,
        };
        Ok(Pipe { stage, associated: self.associated.clone(), sealed: self.sealed.clone(), ..*self })
    }
}

impl Pipes {
    pub(super) fn new() -> Self {
        Pipes { dir: Direction::Encrypt, list: Vec::new() }
    }

    /// Starts a message in each pipe. A pipe without an IV cannot be used. Where a start fails no message is left of those before.
    pub(super) fn start(&mut self, dir: Direction, ivs: &[Option<&[u8]>]) -> Done {
        self.spend();
        self.dir = dir;
        self.list.resize_with(ivs.len(), Pipe::new);
        self.list.iter_mut().zip(ivs).try_for_each(|(pipe, iv)| pipe.start(*iv))
    }

    /// Ends all messages, whatever has come of them.
    pub(super) fn spend(&mut self) {
        self.list.iter_mut().for_each(|pipe| pipe.stage = Stage::Spent);
    }

    /// Ends the messages that have text: they cannot go on under another key.
    pub(super) fn end_texts(&mut self) {
        let has_text = |pipe: &&mut Pipe| matches!(pipe.stage, Stage::Whole { .. } | Stage::Pieces(_));
        self.list.iter_mut().filter(has_text).for_each(|pipe| pipe.stage = Stage::Spent);
    }

    /// Takes a text for each pipe, or associated data where there is no output. After a failure that has come in the midst of
    /// it all messages have ended, because the same text once more would meet a keystream that has been used.
    pub(super) fn update(&mut self, key: &PipeKey<'_>, calls: PipeCalls<'_>) -> Done {
        if calls.len() != self.list.len() {
            return Err(Failure::SILENT);
        }
        if calls.iter().any(|call| call.has_output() && call.room() < call.len()) {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        self.advance(key, calls).inspect_err(|_| self.spend())
    }

    fn advance(&mut self, key: &PipeKey<'_>, calls: PipeCalls<'_>) -> Done {
        // A burst may write any of its outputs before it reads the last input.
        let are_apart = calls.iter().enumerate().all(|(i, a)| calls[i + 1..].iter().all(|b| !a.meets(b)));
        // On the stack: to allocate would cost as much as the tags.
        let (dir, mut whole) = (self.dir, ArrayVec::<_, MAX_PIPES>::new());
        for (pipe, call) in self.list.iter_mut().zip(calls) {
            let len = call.len();
            if !call.has_output() {
                pipe.associated(call.input())?;
            } else if len > 0 && are_apart && pipe.takes_whole(dir, key.whole, len) {
                if dir == Direction::Decrypt {
                    pipe.sealed.extend_from_slice(call.input());
                }
                whole.push((pipe, call.text(len)?));
            } else if len > 0 {
                let mut text = call.text(len)?;
                pipe.pieces(key)?.text(dir, text.all())?;
            }
        }
        let mut parts: ArrayVec<_, MAX_PIPES> = whole
            .iter_mut()
            .map(|(pipe, text)| {
                let Pipe { iv, iv_len, associated, tag, tag_len, .. } = &mut **pipe;
                let tag_len = if dir == Direction::Encrypt { TAG_LEN } else { tag_len.unwrap_or(0) };
                (&iv[..*iv_len], [&associated[..]], &mut tag[..tag_len], text.all())
            })
            .collect();
        let mut ops: ArrayVec<AeadOp<'_>, MAX_PIPES> = parts
            .iter_mut()
            .map(|(nonce, aad, tag, text)| AeadOp {
                tfm: key.whole,
                dir,
                nonce,
                aad: &aad[..],
                data: text.reborrow(),
                tag,
                status: Ok(()),
            })
            .collect();
        aead::crypt(&mut ops);
        let done: ArrayVec<_, MAX_PIPES> = ops.iter().map(|op| op.status).collect();
        drop(ops);
        drop(parts);
        whole.iter_mut().zip(done).try_for_each(|((pipe, text), done)| pipe.whole(dir, key, text, done))
    }

    /// Ends all messages, also where one of them is not authentic.
    pub(super) fn finish(&mut self, key: &PipeKey<'_>) -> Done {
        let mut done = Ok(());
        for pipe in &mut self.list {
            let ended = pipe.finish(self.dir, key);
            pipe.stage = Stage::Spent;
            done = done.and(ended);
        }
        done
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Sets the tags with which messages are compared.
    pub(super) fn set_tags(&mut self, key: &PipeKey<'_>, tags: &[&[u8]]) -> Done {
        if self.dir == Direction::Encrypt {
            return Err(Reason::InvalidTag.into());
        }
        for (pipe, tag) in self.list.iter_mut().zip(tags) {
            let known = pipe.tag_len.map(|len| &pipe.tag[..len]);
            if let Stage::Whole { .. } = pipe.stage
                && known != Some(*tag)
            {
                // It was compared with another one.
                pipe.pieces(key)?;
            }
            pipe.tag[..tag.len()].copy_from_slice(tag);
            pipe.tag_len = Some(tag.len());
        }
        Ok(())
    }

    /// The tags of messages that have been sealed.
    pub(super) fn tags(&self) -> Result<impl Iterator<Item = &[u8; TAG_LEN]>, Failure> {
        let are_known = self.list.iter().all(|pipe| matches!(pipe.stage, Stage::Spent) && pipe.tag_len.is_some());
        if self.dir == Direction::Decrypt || !are_known {
            return Err(Reason::InvalidTag.into());
        }
        Ok(self.list.iter().map(|pipe| &pipe.tag))
    }

    pub(super) fn again(&self) -> Result<Self, Failure> {
        Ok(Pipes { dir: self.dir, list: self.list.iter().map(Pipe::again).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_fails_ends_all_messages() {
        let mut pipes = Pipes::new();
        assert!(pipes.start(Direction::Encrypt, &[Some(&[1; 12]), Some(&[2; 12])]).is_ok());
        pipes.list.iter_mut().for_each(|pipe| pipe.stage = Stage::Whole { unseen: 0 });
        assert!(pipes.start(Direction::Decrypt, &[Some(&[]), Some(&[3; 12])]).is_err());
        assert!(pipes.list.iter().all(|pipe| matches!(pipe.stage, Stage::Spent)));
    }
}
