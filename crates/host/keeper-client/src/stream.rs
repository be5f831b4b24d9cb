//! MACs of messages in pieces, computed by a keeper.
//!
//! A message of up to [`PIECE_LEN`] bytes is collected here, and sent whole. A longer one is held by the keeper, for one connection:
//! it is lost with the connection, and in a child of this process, which cannot use its parent's connections.

use crate::client::ClientError;
use crate::codec::Wiped;
use crate::connection::{Connection, Process};
use crate::message::{Answer, Operation};
use crate::pool::Pool;
use crate::reference::KeyRef;
use sealane_crypto::hash::HashState;
use sealane_crypto::{OpError, Status};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The most bytes of a message that are sent at once.
pub(crate) const PIECE_LEN: usize = 64 * 1024;

/// A connection for which the keeper holds messages: one, and those that have been forked from it.
struct Line {
    pool: Arc<Pool>,
    /// The process that it belongs to. In a child the lock below may be one that nobody opens any more.
    process: Process,
    /// `None` once it has failed.
    connection: Mutex<Option<Connection>>,
    /// Messages that the keeper is to forget before the next request. Who lets go of one does not wait.
    forgotten: Mutex<Vec<u32>>,
    /// The number of the next message.
    next: AtomicU32,
}

impl Line {
    fn ask(&self, operation: Operation) -> Result<Answer, OpError> {
        if self.process != self.pool.process() {
            return Err(OpError::Driver);
        }
        let mut place = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut connection) = place.take() else { return Err(OpError::Driver) };
        let forgotten = core::mem::take(&mut *self.forgotten.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in forgotten {
            // If it fails, no other message can use this connection either.
            if self.pool.go_on(&mut connection, Operation::MacForget { stream }).is_err() {
                return Err(OpError::Driver);
            }
        }
        let done = self.pool.go_on(&mut connection, operation);
        if !matches!(done, Err(ClientError::Io(..))) {
            *place = Some(connection);
        }
        done.map_err(|_| OpError::Driver)
    }

    /// Leaves the connection, unless the keeper still holds something for it: then it is closed.
    fn leave(&self) {
        let holds_nothing = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if holds_nothing
            && self.process == self.pool.process()
            && let Some(connection) = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            self.pool.leave(connection);
        }
    }
}

/// A message that the keeper holds.
struct Held {
    line: Arc<Line>,
    number: u32,
    /// The keeper does not hold it any more.
    is_over: bool,
}

impl Held {
    fn new(line: Arc<Line>, number: u32) -> Self {
        Held { line, number, is_over: false }
    }

    /// Ends the message with this piece.
    fn end(mut self, text: Wiped) -> Result<Answer, OpError> {
        self.is_over = true;
        self.line.ask(Operation::MacEnd { stream: self.number, text })
    }

    fn forked(&self) -> Result<Self, OpError> {
        let to = self.line.next.fetch_add(1, Ordering::Relaxed);
        match self.line.ask(Operation::MacFork { stream: self.number, to })? {
            Answer::Version(_) => Ok(Held::new(self.line.clone(), to)),
            _ => Err(OpError::Driver),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_over && Arc::strong_count(&self.line) > 1 {
            // Without others the connection is closed, and the keeper forgets.
            let line = &self.line;
            if line.process == line.pool.process() {
                let mut forgotten = line.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
                line.pool.lasting(|| forgotten.push(self.number));
            }
        } else if self.is_over && Arc::strong_count(&self.line) == 1 {
            self.line.leave();
        }
    }
}

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
            return match held.line.ask(Operation::MacMore { stream: held.number, text })? {
                Answer::Version(_) => Ok(()),
                _ => Err(OpError::Driver),
            };
        }
        let process = self.pool.process();
        match self.pool.begin(Operation::MacBegin { key: self.key.clone(), stream: 0, text }) {
            Ok((Answer::Version(_), connection)) => {
                let (pool, connection) = (self.pool.clone(), Mutex::new(Some(connection)));
                let line = Line { pool, process, connection, forgotten: Mutex::default(), next: AtomicU32::new(1) };
                // A message that is forked from this one may outlive it.
                self.held = Some(Held::new(self.pool.lasting(|| Arc::new(line)), 0));
                Ok(())
            }
            Ok((Answer::Failed(error), connection)) => {
                self.pool.leave(connection);
                Err(error)
            }
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
            Some(held) => held.end(text)?,
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
