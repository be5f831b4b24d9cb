//! Unkeyed hashes, and the incremental state that hashes and MACs share.

use crate::choice::{MeasuredDirection, STREAM_BYTES, Selection};
use crate::error::{OpError, Status};
use crate::info::AlgInfo;
use crate::key::InUse;
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
struct HeldState {
    state: Option<Held<dyn HashState>>,
    traces: usize,
}

/// Moves the state of a MAC to guarded memory. All of the state has to be in the value itself.
///
/// # Errors
/// [`OpError::Driver`] when there is no room.
pub fn try_hold(state: Box<dyn HashState>) -> Result<Box<dyn HashState>, OpError> {
    hold(state, 0)
}

/// The same, with the traces of keys that its driver leaves.
pub(crate) fn hold(state: Box<dyn HashState>, traces: usize) -> Result<Box<dyn HashState>, OpError> {
    let held = Held::new(state).map_err(|_| OpError::Driver)?;
    Ok(Box::new(HeldState { state: Some(held), traces }))
}

/// The state of a MAC whose key is in another process: its messages have no tags.
#[must_use]
pub fn lost() -> Box<dyn HashState> {
    Box::new(HeldState { state: None, traces: 0 })
}

impl HeldState {
    /// Opens guarded memory for `f`; `None` where the state is not here.
    fn with<R>(&mut self, f: impl FnOnce(&mut dyn HashState) -> R) -> Option<R> {
        let state = self.state.as_mut()?;
        let _open = InUse::new(state.open()?, state.is_guarded(), self.traces);
        Some(f(state.get_mut()))
    }
}

impl HashState for HeldState {
    fn update(&mut self, data: &[u8]) {
        self.with(|state| state.update(data));
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        self.with(|state| state.finish(out)).unwrap_or(Err(OpError::Driver))
    }

    fn reset(&mut self) {
        self.with(|state| state.reset());
    }

    fn fork(&self) -> Box<dyn HashState> {
        let Some(state) = &self.state else { return lost() };
        let Some(open) = state.open() else { return lost() };
        let _open = InUse::new(open, state.is_guarded(), self.traces);
        // Without room its message has no tag.
        hold(state.get().fork(), self.traces).unwrap_or_else(|_| lost())
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
