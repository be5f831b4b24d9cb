//! Private keys that are ready for use, and the thread that makes RSA keys.

use sealane_crypto_awslc::pkey::{self, PrivateKey, UseError};
use sealane_keeper_client::key::Name;
use sealane_pkey::Algorithm;
use sealane_sys::poll::Waker;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use zeroize::Zeroizing;

/// The most private keys that are ready for use at a time. The one that was used longest ago makes room for another.
pub const MAX_READY: usize = 512;
/// The most RSA keys that wait for being made.
pub const MAX_WAITING: usize = 8;

/// Private keys that have been read, by name and version.
#[derive(Default)]
pub(crate) struct Ready {
    keys: HashMap<(Name, u32), (PrivateKey, u64)>,
    clock: u64,
}

impl Ready {
    /// A key, which counts as used now.
    pub(crate) fn get(&mut self, at: &(Name, u32)) -> Option<&PrivateKey> {
        self.clock += 1;
        self.keys.get_mut(at).map(|(key, used)| {
            *used = self.clock;
            &*key
        })
    }

    /// Takes a key in.
    pub(crate) fn put(&mut self, at: (Name, u32), key: PrivateKey) {
        if self.keys.len() >= MAX_READY && !self.keys.contains_key(&at) {
            let oldest = self.keys.iter().min_by_key(|(_, (_, used))| *used).map(|(at, _)| at.clone());
            oldest.map(|at| self.keys.remove(&at));
        }
        self.clock += 1;
        self.keys.insert(at, (key, self.clock));
    }

    /// Wipes a version of a key, or all of them if it is 0.
    pub(crate) fn forget(&mut self, name: &Name, version: u32) {
        self.keys.retain(|(of, number), _| of != name || (version != 0 && *number != version));
    }

    /// The number of keys.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

/// A new key, in PKCS #8.
///
/// # Errors
/// [`UseError::Driver`].
pub fn made(algorithm: Algorithm) -> Result<Zeroizing<Vec<u8>>, UseError> {
    PrivateKey::generate(algorithm)?.pkcs8()
}

/// A key that a [`Maker`] has made, with the number that it was asked for with.
pub type Made = (u64, Result<Zeroizing<Vec<u8>>, UseError>);

/// A thread that makes keys, one at a time, while others are served.
pub struct Maker {
    wanted: SyncSender<(u64, Algorithm)>,
    made: Receiver<Made>,
    done: Arc<Waker>,
}

impl Maker {
    /// Starts the thread, which tests the computation with private keys first. What a thread does to begin is done when it returns.
    ///
    /// # Errors
    /// The kernel's, or the test's.
    pub fn start() -> io::Result<Self> {
        Maker::of(made)
    }

    /// The same, with another way to make keys.
    pub(crate) fn of(
        make: impl Fn(Algorithm) -> Result<Zeroizing<Vec<u8>>, UseError> + Send + 'static,
    ) -> io::Result<Self> {
        let (wanted, wants) = mpsc::sync_channel::<(u64, Algorithm)>(MAX_WAITING);
        let (makes, made_keys) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let done = Arc::new(Waker::new()?);
        let waker = done.clone();
        let work = move || {
            let _ = begun.send(pkey::self_test());
            while let Ok((number, algorithm)) = wants.recv() {
                if makes.send((number, make(algorithm))).is_err() {
                    break;
                }
                waker.wake();
            }
        };
        std::thread::Builder::new().name("keeper-maker".into()).spawn(work)?;
        match begins.recv() {
            Ok(Ok(())) => Ok(Maker { wanted, made: made_keys, done }),
            Ok(Err(what)) => Err(io::Error::other(what)),
            Err(_) => Err(io::Error::other("the thread that makes keys has ended")),
        }
    }

    /// Asks for a key. Returns whether there is room for one more.
    pub fn ask(&self, number: u64, algorithm: Algorithm) -> bool {
        self.wanted.try_send((number, algorithm)).is_ok()
    }

    /// A key that is done.
    pub fn take(&self) -> Option<Made> {
        self.made.try_recv().ok()
    }

    /// Makes the descriptor unreadable, before all keys are taken.
    pub fn drain(&self) {
        self.done.drain();
    }
}

impl AsFd for Maker {
    /// Readable when a key is done.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_was_used_longest_ago_makes_room() {
        let mut ready = Ready::default();
        let at = |number: usize| (Name::new("k").unwrap(), number as u32);
        let key = || PrivateKey::generate(Algorithm::Ed25519).unwrap();
        for number in 1..=MAX_READY {
            ready.put(at(number), key());
        }
        assert!(ready.get(&at(1)).is_some());
        ready.put(at(MAX_READY + 1), key());
        assert_eq!(ready.len(), MAX_READY);
        assert!(ready.get(&at(1)).is_some() && ready.get(&at(2)).is_none());
        ready.forget(&at(1).0, 1);
        assert!(ready.get(&at(1)).is_none() && ready.get(&at(3)).is_some());
        ready.forget(&at(1).0, 0);
        assert_eq!(ready.len(), 0);
    }
}
