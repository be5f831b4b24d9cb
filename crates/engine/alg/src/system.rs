//! The state that all sockets share.

use crate::catalog::Catalog;
use crate::host::Host;
use crate::rules::Rules;
use sealane_abi::{Caller, Errno, Profile};
use sealane_crypto::registry::Row;
use sealane_crypto::{Alg, Kind, Registry};
use std::sync::Arc;

/// The algorithms, the imitated kernel and the host: shared by all sockets, never changed.
pub struct System {
    registry: Arc<Registry>,
    profile: Profile,
    rules: Rules,
    catalog: Catalog,
    host: Arc<dyn Host>,
    keys_are_guarded: bool,
}

impl System {
    /// A system that serves the algorithms of `registry` as `profile` would.
    #[must_use]
    pub fn new(registry: Arc<Registry>, profile: Profile, host: Arc<dyn Host>) -> Arc<Self> {
        let catalog = Catalog::new(profile, |n| host.words(n));
        let keys_are_guarded = host.keys_are_guarded();
        Arc::new(System { registry, profile, rules: Rules::of(profile), catalog, host, keys_are_guarded })
    }

    /// The drivers.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The imitated kernel.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// The names of the imitated kernel.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Our own rows as the open profile lists them: the latest instance of a template first, as in the kernel, and no
    /// type that AF_ALG could not name. The well-known compositions are made if nobody has asked for them yet.
    pub(crate) fn own_rows(&self) -> Vec<&Arc<Row>> {
        self.host.common(&mut || {
            for (kind, name) in sealane_crypto::templates::well_known() {
                // One that this build lacks is not listed.
                let _ = self.registry.lookup(*kind, name);
            }
        });
        let mut rows: Vec<&Arc<Row>> = self.registry.rows().iter().chain(self.registry.instances()).collect();
        rows.reverse();
        // One instance may have been asked for by several names.
        let mut seen = std::collections::BTreeSet::new();
        rows.retain(|row| row.info.kind != Kind::NonceMac && seen.insert((row.info.kind, row.driver.as_str())));
        rows
    }

    /// Makes the instance that `name` stands for, as a request for it by NETLINK_CRYPTO does; whether there is one.
    pub(crate) fn instantiate(&self, kind: Kind, name: &str) -> Option<()> {
        let mut made = None;
        self.host.common(&mut || made = self.catalog.instantiate(&self.registry, kind, name));
        made
    }

    /// Whether keys are to be in guarded memory alone.
    #[inline]
    pub(crate) fn keys_are_guarded(&self) -> bool {
        self.keys_are_guarded
    }

    pub(crate) fn rules(&self) -> Rules {
        self.rules
    }

    /// The algorithm that a bind of `name` gets.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when the imitated kernel or this build does not have it, or does not let this caller have it;
    /// other numbers where that kernel's templates answer so.
    pub fn resolve(&self, kind: Kind, name: &str, caller: Caller) -> Result<Alg, Errno> {
        let mut found = Err(Errno::ENOENT);
        self.host.common(&mut || found = self.catalog.resolve(&self.registry, kind, name, caller));
        found
    }
}
