//! The home of the keys of ciphers and MACs: the heap, as for any library, guarded memory (`sealane_guarded`), or the keeper.
//!
//! The core moves its transforms there by itself. [`Secret`] is for all that this crate has of a key beside them.

use crate::failure::{Done, Failure, Reason};
use crate::ffi::renew_in_children;
use crate::keeper;
use crate::settings::Home;
use sealane_crypto::wipe::{STACK_LEN, wipe_traces};
use sealane_crypto::{KeyError, OpError};
use sealane_guarded::{Held, Memory, NoRoom, Plan};
use sealane_sys::forks;
use std::io;

/// Gives the process guarded memory, if the configuration wants it. All of its system calls are made here, and in children while they
/// are forked.
pub(crate) fn establish(home: Home) -> Result<(), Failure> {
    let Home::Guarded { len, lock, is_strict } = home else { return Ok(()) };
    let refused = |why: String| Failure::text(Reason::NoGuardedMemory, format!("sealane: {why}"));
    let plan = match len {
        Some(len) => Plan { len, or_less: false, lock, ..Plan::default() },
        None => Plan { lock, ..Plan::default() },
    };
    let setting = match len {
        Some(len) => format!("sealane-guarded-memory = {len}"),
        None => "sealane-keys = guarded".to_owned(),
    };
    let memory = sealane_guarded::establish(plan).map_err(|error| refused(format!("{setting}: {}", why(&error))))?;
    if len.is_some_and(|len| memory.len() < len) {
        let has = memory.len();
        return Err(refused(format!(
            "{setting}: this process has guarded memory of {has} bytes, which stays as it is"
        )));
    }
    if is_strict && !memory.lacks().is_empty() {
        let lacks: Vec<String> = memory.lacks().iter().map(ToString::to_string).collect();
        return Err(refused(format!("sealane-keys = guarded-strict: {}", lacks.join("; "))));
    }
    renew_in_children().map_err(|error| refused(format!("{setting}: no handler of forks: {error}")))
}

/// The reason for which there is no guarded memory.
fn why(error: &io::Error) -> String {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Memlock).current;
    match limit {
        Some(limit) if [io::ErrorKind::WouldBlock, io::ErrorKind::OutOfMemory].contains(&error.kind()) => {
            format!("{error}; RLIMIT_MEMLOCK lets this process lock {limit} bytes in all")
        }
        _ => error.to_string(),
    }
}

/// The guarded memory of this process, if keys lie there.
pub(crate) fn memory() -> Option<&'static Memory> {
    sealane_guarded::renew().ok().flatten()
}

/// The process in which a key was set, and whether it is the only one that has it.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    /// Its number.
    process: u64,
    is_guarded: bool,
}

impl Owner {
    /// This process.
    pub(crate) fn this_process() -> Self {
        Owner { process: forks::process(), is_guarded: sealane_guarded::guards() }
    }

    /// The owner of a key that the keeper computes with.
    pub(crate) fn of_kept() -> Self {
        Owner { process: forks::process(), is_guarded: false }
    }

    /// Whether the key can be used here.
    pub(crate) fn is_here(self) -> bool {
        !self.is_guarded || self.process == forks::process()
    }
}

/// Refuses a key that is not in this process, before anything is done that looks as if it were under it.
pub(crate) fn check_here(owner: Option<Owner>) -> Done {
    match owner {
        Some(owner) if !owner.is_here() => Err(Reason::KeyOfParent.into()),
        _ => Ok(()),
    }
}

/// A failure of a call that uses a key, as it is told.
pub(crate) fn explained(owner: Option<Owner>, failure: Failure) -> Failure {
    check_here(owner).err().unwrap_or(failure)
}

/// A key that the core has refused.
pub(crate) fn refused(error: KeyError) -> Failure {
    match error {
        KeyError::Driver if sealane_guarded::is_established() => NoRoom.into(),
        _ => Reason::InvalidKeyLength.into(),
    }
}

/// An operation of the core that has failed. Its drivers here are software, which does not fail but for room, and the keeper, which says
/// why.
pub(crate) fn failed(error: OpError, usual: Failure) -> Failure {
    let told = if error == OpError::Driver { keeper::take_failure() } else { None };
    if let Some(told) = told {
        return told;
    }
    match error {
        OpError::Driver if sealane_guarded::is_established() => NoRoom.into(),
        _ => usual,
    }
}

impl From<NoRoom> for Failure {
    fn from(_: NoRoom) -> Self {
        let why = match memory() {
            Some(memory) => format!("sealane: sealane-guarded-memory = {} has no room for this key", memory.len()),
            None => "sealane: this process could not have guarded memory of its own".to_owned(),
        };
        Failure::text(Reason::NoRoom, why)
    }
}

/// Something of a key, in the home of keys, where it is wiped. A type without pointers.
pub(crate) struct Secret<T>(Held<T>);

impl<T> Secret<T> {
    /// Moves a secret home.
    pub(crate) fn new(value: Box<T>) -> Result<Self, Failure> {
        Ok(Secret(Held::new(value)?))
    }

    /// Whether it lies in guarded memory.
    pub(crate) fn is_guarded(&self) -> bool {
        self.0.is_guarded()
    }

    /// Opens guarded memory for `f`.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R, Failure> {
        if !self.0.is_here() {
            return Err(Reason::KeyOfParent.into());
        }
        let _open = sealane_guarded::open();
        Ok(f(self.0.get()))
    }

    /// The same, to change the secret.
    pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> Result<R, Failure> {
        if !self.0.is_here() {
            return Err(Reason::KeyOfParent.into());
        }
        let _open = sealane_guarded::open();
        Ok(f(self.0.get_mut()))
    }
}

impl<T: Clone> Secret<T> {
    /// Another one, of the same content.
    pub(crate) fn again(&self) -> Result<Self, Failure> {
        Self::new(self.with(|value| Box::new(value.clone()))?)
    }
}

/// The bytes of a key of at most `N` bytes, for a [`Secret`], which wipes them.
#[derive(Clone)]
pub(crate) struct KeyBytes<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> KeyBytes<N> {
    /// A copy of a key. It is written where it is to be, so that no other one is on the stack.
    ///
    /// # Panics
    /// When the key is longer.
    pub(crate) fn boxed(key: &[u8]) -> Box<Self> {
        let mut copy = Box::new(KeyBytes { bytes: [0; N], len: key.len() });
        copy.bytes[..key.len()].copy_from_slice(key);
        copy
    }

    /// Becomes a copy of another key, of the same length.
    ///
    /// # Panics
    /// When it has another length.
    pub(crate) fn set(&mut self, key: &[u8]) {
        self.bytes[..self.len].copy_from_slice(key);
    }

    /// The key.
    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Overwrites what a key schedule has left in registers and on the stack, where keys lie in guarded memory. For the caller of whoever had
/// the key.
#[inline]
pub(crate) fn forget_traces() {
    if sealane_guarded::guards() {
        wipe_traces(STACK_LEN);
    }
}
