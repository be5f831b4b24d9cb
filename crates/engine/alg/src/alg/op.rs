//! The operation side of a socket.

use super::keyed::Keyed;
use super::tfm::{Bound, Label, TfmSocket};
use super::work::Work;
use lock_api::{Mutex, MutexGuard, RawMutex};
use sealane_abi::Errno;
use std::sync::Arc;

/// An operation socket. It holds its transform until it is dropped.
pub(super) struct OpSocket<L: RawMutex> {
    pub(super) parent: Arc<TfmSocket<L>>,
    pub(super) label: Arc<Label>,
    pub(super) work: Work<L>,
}

impl<L: RawMutex> OpSocket<L> {
    /// Locks the operation and makes sure that it has a key. An operation that was accepted before its parent had a key
    /// takes the parent's key now, and from then on counts as an operation with a key.
    pub(super) fn lock_keyed<'a, T>(
        &self,
        state: &'a Mutex<L, Keyed<T>>,
        give_key: impl FnOnce(&Bound<L>, &mut T),
    ) -> Result<MutexGuard<'a, L, Keyed<T>>, Errno> {
        let mut state = state.lock();
        if state.nokey {
            let parent = self.parent.lock();
            let bound = parent.as_ref().filter(|b| !b.needs_key()).ok_or(Errno::ENOKEY)?;
            give_key(bound, &mut state.op);
            self.parent.key_given();
            state.nokey = false;
        }
        Ok(state)
    }
}

impl<L: RawMutex> Drop for OpSocket<L> {
    fn drop(&mut self) {
        self.parent.release(self.work.nokey());
    }
}
