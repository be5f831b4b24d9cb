//! The keys of programs that the preloaded library does not reach: in this process, in its guarded memory, or in a keeper.
//!
//! The launcher asks the keeper as its own user. It gives no key to the
//! keeper, and names none there, for a caller with other ids: that caller would act as the launcher's user. A socket whose key is
//! set goes on for whoever has its descriptor, as on Linux.

use crate::keys::{Keys, guarded_memory};
use sealane_crypto::home::KeepError;
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::pool::Manner;
use std::path::Path;
use std::sync::Arc;
use tracing::error;

/// The place of the keys.
#[derive(Clone)]
pub(crate) struct Home {
    keys: Keys,
    /// The keeper, where it has them.
    keeper: Option<Arc<Keeper>>,
}

impl Home {
    /// The place of `keys`, of which programs may name these that a keeper has.
    pub(crate) fn new(keys: &Keys, names: &[String]) -> Self {
        let keeper = match keys {
            Keys::Keeper(path) => Some(Arc::new(Keeper::new(path, names))),
            Keys::Process | Keys::Guarded { .. } => None,
        };
        Home { keys: keys.clone(), keeper }
    }

    /// Makes sure that keys do not come to be in ordinary memory where they are not to: another launcher, whose sockets this one serves,
    /// had guarded memory of its own.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn prepare(&self) -> Result<(), i32> {
        let Keys::Guarded { is_strict } = self.keys else { return Ok(()) };
        match guarded_memory() {
            Ok(lacks) if !is_strict || lacks.is_empty() => Ok(()),
            Ok(_) => Err(libc::ENOMEM),
            Err(e) => {
                error!(error = %e, "no sockets of AF_ALG, because there is no guarded memory: {e}");
                Err(libc::ENOMEM)
            }
        }
    }

    /// Whether keys are in guarded memory.
    pub(super) fn is_guarded(&self) -> bool {
        matches!(self.keys, Keys::Guarded { .. })
    }

    /// The keeper, where keys are there.
    pub(super) fn keeper(&self) -> Option<&Keeper> {
        self.keeper.as_deref()
    }

    /// The answer to a process that asks for the place; none where keys are in ordinary memory.
    pub(super) fn told(&self) -> Option<&str> {
        self.keys.told()
    }
}

/// A keeper that has a program's keys.
pub(crate) struct Keeper {
    pub(super) home: KeeperHome,
    /// The names that programs may give in place of a key.
    names: Vec<String>,
}

impl Keeper {
    /// The keeper that answers at `path`, as this process reaches it, some of whose keys programs may name.
    pub(crate) fn new(path: &Path, names: &[String]) -> Self {
        // The launcher starts no process that would use its connections.
        Keeper { home: KeeperHome::new(path.to_owned(), Manner::default()), names: names.to_vec() }
    }

    /// Makes sure that it answers.
    ///
    /// # Errors
    /// [`KeepError::Unreachable`].
    pub(crate) fn reach(&self) -> Result<(), KeepError> {
        self.home.reach()
    }

    /// Whether a program may give this name in place of a key.
    pub(crate) fn admits(&self, name: &str) -> bool {
        self.names.iter().any(|admitted| admitted == name)
    }
}
