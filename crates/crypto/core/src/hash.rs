//! Unkeyed hashes, and the incremental state that hashes and MACs share.

use crate::choice::{MeasuredDirection, STREAM_BYTES, Selection};
use crate::error::{OpError, Status};
use crate::info::AlgInfo;
use sealane_guarded::Held;
use std::sync::Arc;

/// A running hash or MAC: the pieces of a message arrive one after another.
pub trait HashState: Send + Sync {
    /// Adds `data` to the message.
    fn update(&mut self, data: &[u8]);
    /// Ends the message, writes the first `out.len()` bytes of its digest or tag, and starts the next message.
    /// `out` is at most the full length.
    ///
    /// # Errors
    /// The driver's, for the message and for any of its pieces; software drivers do not fail. `out` has no digest then.
    fn finish(&mut self, out: &mut [u8]) -> Status;
    /// Forgets the message so far, of which no byte stays in memory.
    fn reset(&mut self);
    /// A second state that continues from here (kernel: `export` then `import`).
    fn fork(&self) -> Box<dyn HashState>;
}

/// A running MAC in guarded memory; without one in a process that has no key for it.
struct HeldState(Option<Held<dyn HashState>>);

/// Moves the state of a MAC to guarded memory. All of the state has to be in the value itself.
///
/// # Errors
/// [`OpError::Driver`] when there is no room.
pub fn try_hold(state: Box<dyn HashState>) -> Result<Box<dyn HashState>, OpError> {
    match Held::new(state) {
        Ok(held) => Ok(Box::new(HeldState(Some(held)))),
        Err(_) => Err(OpError::Driver),
    }
}

/// The state of a MAC whose key is in another process: its messages have no tags.
#[must_use]
pub fn lost() -> Box<dyn HashState> {
    Box::new(HeldState(None))
}

impl HashState for HeldState {
    fn update(&mut self, data: &[u8]) {
        if let Some(state) = &mut self.0
            && let Some(_open) = state.open()
        {
            state.get_mut().update(data);
        }
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        let state = self.0.as_mut().ok_or(OpError::Driver)?;
        let _open = state.open().ok_or(OpError::Driver)?;
        state.get_mut().finish(out)
    }

    fn reset(&mut self) {
        if let Some(state) = &mut self.0
            && let Some(_open) = state.open()
        {
            state.get_mut().reset();
        }
    }

    fn fork(&self) -> Box<dyn HashState> {
        if let Some(state) = &self.0
            && let Some(_open) = state.open()
        {
            // Without room its message has no tag.
            return try_hold(state.get().fork()).unwrap_or_else(|_| lost());
        }
        lost()
    }
}

/// One message to hash.
pub struct HashOp<'a> {
    /// The message, in pieces.
    pub data: &'a [&'a [u8]],
    /// Receives the first `digest.len()` bytes of the digest; at most the full length.
    pub digest: &'a mut [u8],
    /// Set by the driver.
    pub status: Status,
}

impl<'a> HashOp<'a> {
    /// An operation that has not run yet.
    pub fn new(data: &'a [&'a [u8]], digest: &'a mut [u8]) -> Self {
        HashOp { data, digest, status: Ok(()) }
    }
}

/// A driver for one unkeyed hash.
pub trait HashDriver: Send + Sync {
    /// A state before the first byte.
    fn start(&self) -> Box<dyn HashState>;
    /// Hashes each message of `ops`.
    fn burst(&self, ops: &mut [HashOp<'_>]);
}

/// A hash, ready for use.
#[derive(Clone)]
pub struct HashTfm {
    selection: Selection,
    drivers: Arc<[Arc<dyn HashDriver>]>,
}

impl HashTfm {
    pub(crate) fn new<'a>(selection: Selection, drivers: impl Iterator<Item = &'a Arc<dyn HashDriver>>) -> Self {
        HashTfm { selection, drivers: drivers.cloned().collect() }
    }

    /// The algorithm.
    #[must_use]
    pub fn info(&self) -> &AlgInfo {
        self.selection.info()
    }

    fn driver(&self, bytes: usize, burst: usize) -> &dyn HashDriver {
        &*self.drivers[self.selection.pick(MeasuredDirection::Forward, bytes, burst)]
    }

    /// Hashes one message.
    ///
    /// # Errors
    /// The driver's; software drivers do not fail.
    pub fn one(&self, data: &[&[u8]], digest: &mut [u8]) -> Status {
        let mut op = [HashOp::new(data, digest)];
        let bytes = data.iter().map(|d| d.len()).sum();
        self.driver(bytes, 1).burst(&mut op);
        op[0].status
    }

    /// Hashes many messages.
    pub fn burst(&self, ops: &mut [HashOp<'_>]) {
        if ops.is_empty() {
            return;
        }
        let bytes: usize = ops.iter().flat_map(|o| o.data).map(|d| d.len()).sum();
        self.driver(bytes / ops.len(), ops.len()).burst(ops);
    }

    /// Starts a message whose pieces are not known yet.
    #[must_use]
    pub fn start(&self) -> Box<dyn HashState> {
        self.driver(STREAM_BYTES, 1).start()
    }
}
