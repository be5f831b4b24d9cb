//! Keys of a launched program that are in a keeper.
//!
//! The launcher asks the keeper as its own user, for programs that the preloaded library does not reach. It gives no key to the
//! keeper, and names none there, for a caller with other ids: that caller would act as the launcher's user. A socket whose key is
//! set goes on for whoever has its descriptor, as on Linux.

use super::{caller, rights};
use sealane_crypto::home::{KeepError, KeyHome};
use sealane_crypto::{Alg, AlgInfo};
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::pool::Manner;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A keeper that has a program's keys.
pub(crate) struct Keeper {
    home: KeeperHome,
    path: PathBuf,
    /// The names that programs may give in place of a key.
    names: Vec<String>,
}

impl Keeper {
    /// The keeper that answers at `path`, as this process reaches it, some of whose keys programs may name.
    pub(crate) fn new(path: &Path, names: &[String]) -> Self {
        // The launcher starts no process that would use its connections.
        Keeper {
            home: KeeperHome::new(path.to_owned(), Manner::default()),
            path: path.to_owned(),
            names: names.to_vec(),
        }
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

    /// Its socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl KeyHome for Keeper {
    fn adopt(&self, alg: &Alg) -> Option<Alg> {
        self.home.adopt(alg)
    }

    fn keep(&self, info: &AlgInfo, key: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeepError> {
        check_caller()?;
        self.home.keep(info, key)
    }

    fn name<'a>(&self, text: &'a [u8]) -> Option<&'a str> {
        self.home.name(text)
    }

    fn named(&self, info: &AlgInfo, name: &str) -> Result<Zeroizing<Vec<u8>>, KeepError> {
        check_caller()?;
        self.home.named(info, name)
    }
}

/// Whether the caller is the one whom the keeper sees.
fn check_caller() -> Result<(), KeepError> {
    let ids = caller::current().map(|caller| rights::other_ids(&caller));
    match ids {
        Some(Ok(None)) => Ok(()),
        _ => Err(KeepError::Denied("the caller is not of the launcher's user and groups".to_owned())),
    }
}
