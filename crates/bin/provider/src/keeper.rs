//! The keeper of keys, as this load of the provider reaches it.

use crate::failure::{Failure, Reason};
use crate::ffi::generation;
use sealane_keeper_client::client::{ClientError, PATIENCE};
use sealane_keeper_client::message::{Answer, Code, Operation};
use sealane_keeper_client::pool::{Manner, Pool};
use std::path::PathBuf;

/// The keeper of keys.
pub(crate) struct Keeper(Pool);

impl Keeper {
    /// Connects now if it `connects_at_load`. If that fails the first request tries again.
    pub(crate) fn new(path: PathBuf, connects_at_load: bool) -> Self {
        Keeper(Pool::new(path, Manner { generation, patience: PATIENCE, connects_at_load, ..Manner::default() }))
    }

    /// Asks the keeper. The request may be served twice, when the keeper ends in the middle of it.
    pub(crate) fn ask(&self, operation: Operation) -> Result<Answer, Failure> {
        self.0.ask(operation).map_err(|error| {
            let reason = match &error {
                ClientError::Io(..) => Reason::NoKeeper,
                ClientError::Refused(refusal) => match refusal.code {
                    Code::NoKey | Code::Revoked => Reason::NoSuchKey,
                    Code::Denied | Code::Use => Reason::NotPermitted,
                    Code::Auth => Reason::FailedToDecrypt,
                    _ => Reason::KeeperRefuses,
                },
            };
            Failure::text(reason, format!("sealane: {error}"))
        })
    }
}
