//! The keeper of keys, as this load of the provider reaches it.

use crate::failure::{Failure, Reason};
use core::cell::Cell;
use sealane_crypto::home::KeepError;
use sealane_keeper_client::client::{ClientError, PATIENCE};
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::message::{Answer, Code, Operation};
use sealane_keeper_client::pool::{Manner, Pool};
use std::path::PathBuf;
use std::sync::Arc;

/// The last request of a thread that has failed: its reason and words. An operation of the core that fails says no more than that. A value
/// without a destructor, because that would keep the library from being unloaded.
#[derive(Clone, Copy)]
struct Told {
    reason: Option<Reason>,
    len: usize,
    text: [u8; Told::ROOM],
}

impl Told {
    const ROOM: usize = 512;
    const NOTHING: Told = Told { reason: None, len: 0, text: [0; Told::ROOM] };
}

thread_local! {
    static TOLD: Cell<Told> = const { Cell::new(Told::NOTHING) };
}

fn reason(error: &ClientError) -> Reason {
    match error {
        ClientError::Io(..) => Reason::NoKeeper,
        ClientError::Refused(refusal) => match refusal.code {
            Code::NoKey | Code::Revoked => Reason::NoSuchKey,
            Code::Denied | Code::Use => Reason::NotPermitted,
            Code::Auth => Reason::FailedToDecrypt,
            _ => Reason::KeeperRefuses,
        },
    }
}

fn note(error: &ClientError) {
    let text = format!("sealane: {error}");
    let text = &text.as_bytes()[..text.floor_char_boundary(Told::ROOM)];
    let mut told = Told { reason: Some(reason(error)), len: text.len(), ..Told::NOTHING };
    told.text[..text.len()].copy_from_slice(text);
    TOLD.set(told);
}

/// The failure of this thread's last request, if it has not been taken.
pub(crate) fn take_failure() -> Option<Failure> {
    let Told { reason, len, text } = TOLD.replace(Told::NOTHING);
    let text = String::from_utf8_lossy(&text[..len]).into_owned();
    reason.map(|reason| Failure::text(reason, text))
}

/// Forgets the failure of this thread's last request.
pub(crate) fn forget_failure() {
    TOLD.set(Told::NOTHING);
}

impl From<KeepError> for Failure {
    fn from(error: KeepError) -> Self {
        let reason = match &error {
            KeepError::Unreachable(_) => Reason::NoKeeper,
            KeepError::NoKey(_) | KeepError::Revoked(_) => Reason::NoSuchKey,
            KeepError::Denied(_) => Reason::NotPermitted,
            KeepError::Expired(_) | KeepError::Algorithm(_) | KeepError::Refused(_) => Reason::KeeperRefuses,
        };
        Failure::text(reason, format!("sealane: {error}"))
    }
}

/// The keeper of keys.
pub(crate) struct Keeper {
    pool: Arc<Pool>,
    home: KeeperHome,
}

impl Keeper {
    /// Connects now if it `connects_at_load`. If that fails the first request tries again.
    pub(crate) fn new(path: PathBuf, connects_at_load: bool) -> Self {
        let manner = Manner { patience: PATIENCE, connects_at_load, failed: note, ..Manner::default() };
        let pool = Arc::new(Pool::new(path, manner));
        Keeper { home: KeeperHome::of(pool.clone()), pool }
    }

    /// The keeper as the home of symmetric keys.
    pub(crate) fn home(&self) -> &KeeperHome {
        &self.home
    }

    /// Asks the keeper. The request may be served twice, when the keeper ends in the middle of it.
    pub(crate) fn ask(&self, operation: Operation) -> Result<Answer, Failure> {
        self.pool.ask(operation).map_err(|error| Failure::text(reason(&error), format!("sealane: {error}")))
    }
}
