//! MACs of messages in pieces, computed by a keeper.
//!
//! A message of up to [`PIECE_LEN`] bytes is collected here, and sent whole. The keeper holds a longer one ([`Held`]).

use crate::codec::Wiped;
use crate::held::{Held, PIECE_LEN};
use crate::message::{Answer, Operation};
use crate::pool::Pool;
use crate::reference::KeyRef;
use sealane_crypto::hash::HashState;
use sealane_crypto::{OpError, Status};
use std::sync::Arc;

/// A message in pieces.
pub(crate) struct Stream {
    pool: Arc<Pool>,
    key: KeyRef,
    /// The part of the message that the keeper has not got yet.
    pending: Wiped,
    held: Option<Held>,
    /// A piece that could not be added.
    failed: Option<OpError>,
}

impl Stream {
    pub(crate) fn new(pool: &Arc<Pool>, key: &KeyRef) -> Self {
        Stream { pool: pool.clone(), key: key.clone(), pending: Wiped::default(), held: None, failed: None }
    }

    /// Gives the keeper what it has not got.
    fn send(&mut self) -> Status {
        let text = core::mem::take(&mut self.pending);
        if let Some(held) = &self.held {
            return match held.ask(|stream| Operation::MacMore { stream, text })? {
                Answer::Version(_) => Ok(()),
                _ => Err(OpError::Driver),
            };
        }
        match Held::begin(&self.pool, Operation::MacBegin { key: self.key.clone(), stream: 0, text })? {
            (Answer::Version(_), held) => {
                self.held = held;
                Ok(())
            }
            (Answer::Failed(error), _) => Err(error),
            _ => Err(OpError::Driver),
        }
    }

    /// Ends the message, and starts the next one.
    fn end(&mut self) -> Result<Vec<u8>, OpError> {
        if let Some(error) = self.failed {
            self.reset();
            return Err(error);
        }
        let text = core::mem::take(&mut self.pending);
        let answer = match self.held.take() {
            None => {
                let whole = Operation::MacBy { key: self.key.clone(), text };
                self.pool.ask(whole).map_err(|_| OpError::Driver)?
            }
            Some(held) => held.end(|stream| Operation::MacEnd { stream, text })?,
        };
        tag(answer)
    }
}

/// The tag in an answer.
pub(crate) fn tag(answer: Answer) -> Result<Vec<u8>, OpError> {
    match answer {
        Answer::Tag { tag, .. } => Ok(tag),
        Answer::Failed(error) => Err(error),
        _ => Err(OpError::Driver),
    }
}

/// Writes the front of a tag.
pub(crate) fn write_tag(tag: &[u8], out: &mut [u8]) -> Status {
    out.copy_from_slice(tag.get(..out.len()).ok_or(OpError::TagLen)?);
    Ok(())
}

impl HashState for Stream {
    fn update(&mut self, mut data: &[u8]) {
        while self.failed.is_none() && !data.is_empty() {
            // The last piece waits for the end of the message.
            if self.pending.len() == PIECE_LEN
                && let Err(error) = self.send()
            {
                self.failed = Some(error);
                return;
            }
            let (now, later) = data.split_at(data.len().min(PIECE_LEN - self.pending.len()));
            self.pending.append(now);
            data = later;
        }
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        write_tag(&self.end()?, out)
    }

    fn reset(&mut self) {
        *self = Stream::new(&self.pool, &self.key);
    }

    fn fork(&self) -> Box<dyn HashState> {
        let (held, failed) = match self.held.as_ref().map(Held::forked).transpose() {
            Ok(held) => (held, self.failed),
            Err(error) => (None, Some(error)),
        };
        Box::new(Stream { pending: self.pending.clone(), held, failed, ..Stream::new(&self.pool, &self.key) })
    }
}
