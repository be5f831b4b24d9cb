//! Messages in pieces that a keeper holds for one connection. A message is lost with the connection, and in a child of this process,
//! which cannot use its parent's connections.

use crate::client::ClientError;
use crate::connection::{Connection, Process};
use crate::message::{Answer, Operation};
use crate::pool::Pool;
use sealane_crypto::OpError;
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
        let lost = |why| Err(self.pool.lost(why));
        if self.process != self.pool.process() {
            return lost("it holds this message for another process or user");
        }
        let mut place = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut connection) = place.take() else { return lost("the connection of this message has ended") };
        let forgotten = core::mem::take(&mut *self.forgotten.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in forgotten {
            // The keeper may have dropped it already, with the refusal of a piece.
            if let Err(ClientError::Io(..)) = self.pool.go_on(&mut connection, Operation::StreamForget { stream }) {
                return Err(OpError::Driver);
            }
        }
        let done = self.pool.go_on(&mut connection, operation);
        if !matches!(done, Err(ClientError::Io(..))) {
            *place = Some(connection);
        }
        done.map_err(|_| OpError::Driver)
    }

    /// Has the keeper forget the last message that it holds, so that the connection need not be closed. Returns whether it has.
    fn forget(&self, last: u32) -> bool {
        if self.process != self.pool.process() {
            return false;
        }
        let mut place = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut connection) = place.take() else { return false };
        let others = core::mem::take(&mut *self.forgotten.lock().unwrap_or_else(PoisonError::into_inner));
        let done = others.into_iter().chain([last]).all(|stream| self.pool.forget(&mut connection, stream));
        if done {
            *place = Some(connection);
        }
        done
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
pub(crate) struct Held {
    line: Arc<Line>,
    number: u32,
    /// The keeper does not hold it any more.
    is_over: bool,
}

impl Held {
    fn new(line: Arc<Line>, number: u32) -> Self {
        Held { line, number, is_over: false }
    }

    /// Begins a message, of which the first piece is in `operation`; its number is 0. If the keeper does not hold it, there is its answer
    /// alone.
    pub(crate) fn begin(pool: &Arc<Pool>, operation: Operation) -> Result<(Answer, Option<Self>), OpError> {
        let process = pool.process();
        let (answer, connection) = pool.begin(operation).map_err(|_| OpError::Driver)?;
        if let Answer::Failed(_) = answer {
            pool.leave(connection);
            return Ok((answer, None));
        }
        let (pool, connection) = (pool.clone(), Mutex::new(Some(connection)));
        let line = Line { pool, process, connection, forgotten: Mutex::default(), next: AtomicU32::new(1) };
        // A message that is forked from this one may outlive it.
        let held = Held::new(line.pool.clone().lasting(|| Arc::new(line)), 0);
        Ok((answer, Some(held)))
    }

    /// Goes on with another piece, by an operation on the message with this number.
    pub(crate) fn ask(&self, operation: impl FnOnce(u32) -> Operation) -> Result<Answer, OpError> {
        self.line.ask(operation(self.number))
    }

    /// Ends the message by an operation after which the keeper does not hold it any more.
    pub(crate) fn end(mut self, operation: impl FnOnce(u32) -> Operation) -> Result<Answer, OpError> {
        self.is_over = true;
        self.line.ask(operation(self.number))
    }

    /// The keeper does not hold it any more.
    pub(crate) fn forget(mut self) {
        self.is_over = true;
    }

    /// A second message that continues from here.
    pub(crate) fn forked(&self) -> Result<Self, OpError> {
        let to = self.line.next.fetch_add(1, Ordering::Relaxed);
        match self.line.ask(Operation::StreamFork { stream: self.number, to })? {
            Answer::Version(_) => Ok(Held::new(self.line.clone(), to)),
            _ => Err(OpError::Driver),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let is_last = Arc::strong_count(&self.line) == 1;
        if !self.is_over && is_last && self.line.pool.keeps_connections() {
            self.is_over = self.line.forget(self.number);
        }
        if !self.is_over && !is_last {
            // Without others the connection is closed, and the keeper forgets.
            let line = &self.line;
            if line.process == line.pool.process() {
                let mut forgotten = line.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
                line.pool.lasting(|| forgotten.push(self.number));
            }
        } else if self.is_over && is_last {
            self.line.leave();
        }
    }
}
