//! The operation side of a socket.

use super::keyed::Keyed;
use super::tfm::{Bound, Label, TfmSocket};
use super::work::Work;
use crate::image::{Malformed, Reader, Writer};
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

impl<L: RawMutex> OpSocket<L> {
    /// Writes its state into an image.
    pub(super) fn save(&self, image: &mut Writer) {
        match &self.work {
            Work::Hash(hash) => {
                let state = hash.lock();
                image.flag(state.nokey);
                state.op.save(image);
            }
            Work::Cipher(cipher) => {
                let state = cipher.lock();
                image.flag(state.nokey);
                state.op.save(image);
            }
            Work::Rng(rng) => rng.lock().save(image),
        }
    }

    /// Takes its state from an image; see [`super::Socket::load`]. A key that another process has given it comes from its
    /// transform.
    pub(super) fn load(&self, image: &mut Reader<'_>, sender_gone: &dyn Fn() -> bool) -> Result<(), Malformed> {
        match &self.work {
            Work::Hash(hash) => self.load_keyed(hash, image, Bound::give_hash_key)?.op.load(image),
            Work::Cipher(cipher) => self.load_keyed(cipher, image, Bound::give_cipher_key)?.op.load(image, sender_gone),
            Work::Rng(rng) => rng.lock().load(image),
        }
    }

    fn load_keyed<'a, T>(
        &self,
        state: &'a Mutex<L, Keyed<T>>,
        image: &mut Reader<'_>,
        give_key: impl FnOnce(&Bound<L>, &mut T),
    ) -> Result<MutexGuard<'a, L, Keyed<T>>, Malformed> {
        match image.flag()? {
            true => Ok(state.lock()),
            false => self.lock_keyed(state, give_key).map_err(|_| Malformed),
        }
    }
}

impl<L: RawMutex> Drop for OpSocket<L> {
    fn drop(&mut self) {
        self.parent.release(self.work.nokey());
    }
}
