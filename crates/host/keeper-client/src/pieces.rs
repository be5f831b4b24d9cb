//! AEADs over messages in pieces, computed by a keeper.
//!
//! Associated data is collected here, up to [`PIECE_LEN`] bytes. With the first text the keeper holds the message ([`Held`]); one without
//! text is sent whole at its end.

use crate::codec::Wiped;
use crate::held::{Held, PIECE_LEN};
use crate::limits::MAX_NONCE_LEN;
use crate::message::{Answer, Operation};
use crate::pool::Pool;
use crate::reference::KeyRef;
use crate::stream::{tag, write_tag};
use inout::InOutBuf;
use sealane_crypto::aead::AeadStream;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{AlgInfo, KeyError, OpError, Status};
use std::sync::Arc;

/// The place of a message in its life.
enum Stage {
    /// There is none, or it has failed.
    None,
    /// The keeper knows nothing of it.
    Begun,
    Held(Held),
}

/// A key, and the message under it.
pub(crate) struct Pieces {
    pool: Arc<Pool>,
    info: AlgInfo,
    key: KeyRef,
    nonce: Vec<u8>,
    /// Associated data that the keeper has not got.
    aad: Vec<u8>,
    has_text: bool,
    stage: Stage,
}

impl Pieces {
    pub(crate) fn new(pool: &Arc<Pool>, info: &AlgInfo, key: KeyRef) -> Self {
        let (nonce, aad) = (Vec::new(), Vec::new());
        Pieces { pool: pool.clone(), info: info.clone(), key, nonce, aad, has_text: false, stage: Stage::None }
    }

    /// Gives the keeper associated data and text, and returns the text as it comes back. After a failure there is no message.
    fn send(&mut self, direction: Direction, text: Wiped) -> Result<Wiped, OpError> {
        let (aad, len) = (core::mem::take(&mut self.aad), text.len());
        let answer = match core::mem::replace(&mut self.stage, Stage::None) {
            Stage::None => return Err(OpError::Driver),
            Stage::Begun => {
                let (key, nonce) = (self.key.clone(), self.nonce.clone());
                let operation = Operation::AeadBegin { key, stream: 0, direction, nonce, aad, text };
                let (answer, held) = Held::begin(&self.pool, operation)?;
                self.stage = held.map_or(Stage::None, Stage::Held);
                answer
            }
            Stage::Held(held) => {
                let answer = held.ask(|stream| Operation::AeadMore { stream, direction, aad, text })?;
                if let Answer::Failed(_) = answer {
                    held.forget();
                } else {
                    self.stage = Stage::Held(held);
                }
                answer
            }
        };
        match answer {
            Answer::Computed { text, .. } if text.len() == len => Ok(text),
            Answer::Failed(error) => Err(error),
            _ => {
                self.stage = Stage::None;
                Err(OpError::Driver)
            }
        }
    }

    /// The outcome of a message without text, if it can be sent whole.
    fn whole(&self, direction: Direction, tag: &[u8]) -> Option<Result<Answer, OpError>> {
        let can_be = self.nonce.len() == self.info.iv_len && self.info.tag_lens.contains(tag.len());
        if !matches!(self.stage, Stage::Begun) || !can_be {
            return None;
        }
        let (key, nonce, aad) = (self.key.clone(), self.nonce.clone(), self.aad.clone());
        let operation = match direction {
            Direction::Encrypt => {
                let tag_len = self.info.digest_len as u16;
                Operation::SealBy { key, nonce, aad, text: Wiped::default(), tag_len }
            }
            Direction::Decrypt => Operation::OpenBy { key, nonce, aad, text: Vec::new(), tag: tag.to_vec() },
        };
        Some(self.pool.ask(operation).map_err(|_| OpError::Driver))
    }

    /// The message as the keeper holds it, which has ended here.
    fn ended(&mut self, direction: Direction) -> Result<Held, OpError> {
        if matches!(self.stage, Stage::Begun) || !self.aad.is_empty() {
            self.send(direction, Wiped::default())?;
        }
        match core::mem::replace(&mut self.stage, Stage::None) {
            Stage::Held(held) => Ok(held),
            Stage::None | Stage::Begun => Err(OpError::Driver),
        }
    }
}

impl AeadStream for Pieces {
    fn set_key(&mut self, key: &[u8]) -> Result<(), KeyError> {
        let key = KeyRef::of_algorithm(key, &self.info.name)?;
        *self = Pieces::new(&self.pool, &self.info, key);
        Ok(())
    }

    fn start(&mut self, nonce: &[u8]) -> Status {
        if !(1..=MAX_NONCE_LEN).contains(&nonce.len()) {
            return Err(OpError::Nonce);
        }
        *self = Pieces::new(&self.pool, &self.info, self.key.clone());
        (self.nonce, self.stage) = (nonce.to_vec(), Stage::Begun);
        Ok(())
    }

    fn associated(&mut self, mut data: &[u8]) -> Status {
        if self.has_text {
            return Err(OpError::AssocLen);
        }
        if let Stage::None = self.stage {
            return Err(OpError::Driver);
        }
        while !data.is_empty() {
            if self.aad.len() == PIECE_LEN {
                self.send(Direction::Encrypt, Wiped::default())?;
            }
            let (now, later) = data.split_at(data.len().min(PIECE_LEN - self.aad.len()));
            self.aad.extend_from_slice(now);
            data = later;
        }
        Ok(())
    }

    fn text(&mut self, dir: Direction, data: InOutBuf<'_, '_, u8>) -> Status {
        let mut rest = data;
        while !rest.is_empty() {
            let len = rest.len().min(PIECE_LEN);
            let (mut piece, later) = rest.split_at(len);
            self.has_text = true;
            let out = self.send(dir, Wiped::from(piece.get_in()))?;
            piece.get_out().copy_from_slice(&out);
            rest = later;
        }
        Ok(())
    }

    fn seal(&mut self, out: &mut [u8]) -> Status {
        if !(1..=self.info.digest_len).contains(&out.len()) {
            return Err(OpError::TagLen);
        }
        match self.whole(Direction::Encrypt, &vec![0; self.info.digest_len]) {
            Some(answer) => {
                self.stage = Stage::None;
                match answer? {
                    Answer::Computed { tag, .. } => write_tag(&tag, out),
                    Answer::Failed(error) => Err(error),
                    _ => Err(OpError::Driver),
                }
            }
            None => {
                let answer = self.ended(Direction::Encrypt)?.end(|stream| Operation::AeadSeal { stream })?;
                write_tag(&tag(answer)?, out)
            }
        }
    }

    fn open(&mut self, tag: &[u8]) -> Status {
        if !(1..=self.info.digest_len).contains(&tag.len()) {
            return Err(OpError::TagLen);
        }
        let answer = match self.whole(Direction::Decrypt, tag) {
            Some(answer) => {
                self.stage = Stage::None;
                answer?
            }
            None => {
                let tag = tag.to_vec();
                self.ended(Direction::Decrypt)?.end(|stream| Operation::AeadOpen { stream, tag })?
            }
        };
        match answer {
            Answer::Computed { .. } | Answer::Version(_) => Ok(()),
            Answer::Failed(error) => Err(error),
            _ => Err(OpError::Driver),
        }
    }

    fn fork(&self) -> Result<Box<dyn AeadStream>, OpError> {
        let stage = match &self.stage {
            Stage::None => Stage::None,
            Stage::Begun => Stage::Begun,
            Stage::Held(held) => Stage::Held(held.forked()?),
        };
        let (nonce, aad, has_text) = (self.nonce.clone(), self.aad.clone(), self.has_text);
        Ok(Box::new(Pieces { nonce, aad, has_text, stage, ..Pieces::new(&self.pool, &self.info, self.key.clone()) }))
    }
}
