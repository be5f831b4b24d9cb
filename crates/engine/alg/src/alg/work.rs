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
    /// Begins to keep what other processes need, or ends it.
    pub(super) fn share(&self, on: bool) {
        if let Work::Hash(hash) = self {
            hash.lock().op.share(on);
        }
    }

    /// Whether it draws from its transform: it has no key yet, or is a generator.
    pub(super) fn leans(&self) -> bool {
        match self {
            Work::Hash(hash) => hash.lock().nokey,
            Work::Cipher(cipher) => cipher.lock().nokey,
            Work::Rng(_) => true,
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
