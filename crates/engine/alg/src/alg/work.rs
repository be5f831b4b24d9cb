//! The state of an operation, by its type.

use super::cipher::CipherOp;
use super::hash::HashOp;
use super::keyed::Keyed;
use super::rng::RngOp;
use lock_api::{Mutex, RawMutex};

/// The state of an operation, which keeps its type.
pub(super) enum Work<L: RawMutex> {
    Hash(Mutex<L, Keyed<HashOp>>),
    Cipher(Mutex<L, Keyed<CipherOp>>),
    Rng(Mutex<L, RngOp<L>>),
}

impl<L: RawMutex> Work<L> {
    /// Runs `f`, which gets whether this counts as an operation without a key, while nobody else changes it.
    pub(super) fn still(&self, f: &mut dyn FnMut(bool)) {
        match self {
            Work::Hash(hash) => {
                let state = hash.lock();
                f(state.nokey);
            }
            Work::Cipher(cipher) => {
                let state = cipher.lock();
                f(state.nokey);
            }
            Work::Rng(rng) => {
                let _state = rng.lock();
                f(false);
            }
        }
    }

    /// Forgets a sender that was in the middle of its message.
    pub(super) fn forget_sender(&self) {
        if let Work::Cipher(cipher) = self {
            cipher.lock().op.forget_sender();
        }
    }

    /// Whether it counts as an operation without a key.
    pub(super) fn nokey(&mut self) -> bool {
        match self {
            Work::Hash(hash) => hash.get_mut().nokey,
            Work::Cipher(cipher) => cipher.get_mut().nokey,
            Work::Rng(_) => false,
        }
    }
}
