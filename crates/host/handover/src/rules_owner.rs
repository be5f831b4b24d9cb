//! The socket that owns the nftables rules of a network namespace.
//!
//! As long as it is open in any process, nobody else can remove or change the rules (`NFT_TABLE_F_OWNER`). It is kept for
//! the next daemon, which goes on with it.

use crate::Keeper;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use tracing::warn;

/// The place of one such socket.
pub struct RulesOwner {
    keeper: Arc<Keeper>,
    name: String,
}

impl RulesOwner {
    /// The place for the rules of `protocol` in the namespace with this cookie.
    #[must_use]
    pub fn new(keeper: Arc<Keeper>, protocol: &str, cookie: u64) -> Self {
        RulesOwner { keeper, name: format!("{protocol}-rules.{cookie}") }
    }

    /// Takes the socket that a predecessor left.
    #[must_use]
    pub fn take(&self) -> Option<OwnedFd> {
        let taken = self.keeper.take(&self.name);
        taken
            .inspect_err(|e| warn!(error = %e, "the owner of the rules of before: {e}"))
            .ok()
            .flatten()
            .map(OwnedFd::from)
    }

    /// Keeps the socket.
    pub fn keep(&self, owner: BorrowedFd<'_>) {
        let put = owner.try_clone_to_owned().and_then(|owner| self.keeper.put(&self.name, &File::from(owner)));
        if let Err(e) = put {
            warn!(error = %e, "nobody keeps the owner of rules: {e}: without a daemon, a flush of nftables removes them");
        }
    }

    /// Keeps the socket no longer, because the rules are gone.
    pub fn release(&self) {
        if let Err(e) = self.keeper.remove(&self.name) {
            warn!(error = %e, "the owner of the rules is still kept: {e}");
        }
    }
}
