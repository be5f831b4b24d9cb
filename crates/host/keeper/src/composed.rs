//! The compositions that programs bring keys for (`authenc(hmac(sha1),cbc(camellia))`).
//!
//! The registry makes an instance of each composition, tests it, and keeps it as long as the keeper lives. There are thousands. So
//! somebody who brings one after the other would make the keeper slow for all, and fill the registry.

use sealane_crypto::{Kind, Registry, templates};
use std::collections::BTreeMap;

/// The compositions beside the [well-known ones](templates::well_known), in all. The registry has room for them and their parts.
pub(crate) const MAX_COMPOSED: usize = 64;
/// Those that one user has brought.
pub(crate) const MAX_COMPOSED_OF_USER: usize = 16;

/// The compositions so far, with the users who brought them first.
#[derive(Default)]
pub(crate) struct Composed(BTreeMap<(Kind, String), u32>);

impl Composed {
    /// Whether a user may bring a key of this algorithm.
    ///
    /// # Errors
    /// A text that says why not.
    pub(crate) fn check(&self, registry: &Registry, user: u32, kind: Kind, name: &str) -> Result<(), String> {
        if self.is_known(registry, kind, name) {
            return Ok(());
        }
        let of_user = self.0.values().filter(|by| **by == user).count();
        if of_user >= MAX_COMPOSED_OF_USER {
            return Err(format!("user {user} has brought {of_user} compositions, and gets no further one"));
        }
        if self.0.len() >= MAX_COMPOSED {
            return Err(format!("users have brought {MAX_COMPOSED} compositions, and there is no room for more"));
        }
        Ok(())
    }

    /// Notes an algorithm that there is, and that a user has brought a key of.
    pub(crate) fn note(&mut self, registry: &Registry, user: u32, kind: Kind, name: &str) {
        if !self.is_known(registry, kind, name) {
            self.0.insert((kind, name.to_owned()), user);
        }
    }

    /// Whether an algorithm takes no more room and time than it has taken already.
    fn is_known(&self, registry: &Registry, kind: Kind, name: &str) -> bool {
        registry.rows().iter().any(|row| row.info.kind == kind && row.info.name == name)
            || templates::well_known().contains(&(kind, name))
            || self.0.contains_key(&(kind, name.to_owned()))
    }
}
