//! Master keys of configured peers that are elsewhere, in a home of keys such as a keeper.
//!
//! They are found by name when a configuration is read, before anything is locked, because whoever has them may take its time. What
//! cannot be found is tried again as long as the configuration is in force: its peers are cut off meanwhile, and others are served.

use super::space::Spaces;
use sealane_config::{Config, Key, Secret};
use sealane_crypto::{Alg, AlgInfo};
use sealane_net::ao::alg::{Algorithm, Algorithms};
use std::collections::HashMap;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A key of a home as a configuration names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct KeptKey {
    pub(super) algorithm: String,
    pub(super) name: String,
    version: u32,
}

impl KeptKey {
    /// The name of a key; `None` if its secret is in the configuration.
    pub(super) fn of(key: &Key) -> Option<Self> {
        match &key.secret {
            Secret::Bytes(_) => None,
            Secret::Kept { name, version } => {
                let (algorithm, name) = (key.algorithm.clone(), name.clone());
                Some(KeptKey { algorithm, name, version: version.unwrap_or(0) })
            }
        }
    }
}

/// An answer about a key: its reference, or the reason why there is none.
pub(super) type Answer = Result<Zeroizing<Vec<u8>>, String>;

/// The answers about the keys that a configuration names.
#[derive(Default)]
pub struct References(HashMap<KeptKey, Answer>);

impl References {
    /// Takes the answer about a key; `None` if nobody has asked for it.
    pub(super) fn take(&mut self, key: &KeptKey) -> Option<Answer> {
        self.0.remove(key)
    }
}

/// Finds the keys of configurations. It needs nothing that others wait for.
#[derive(Clone)]
pub struct Finder(Arc<Spaces>);

impl Finder {
    pub(super) fn new(spaces: Arc<Spaces>) -> Self {
        Finder(spaces)
    }

    /// Asks for all keys that a configuration names.
    #[must_use]
    pub fn find(&self, config: &Config) -> References {
        let keys = config.peers().iter().flat_map(|peer| &peer.chain.keys);
        self.find_missing(&Missing(keys.filter_map(KeptKey::of).collect()))
    }

    /// Asks for keys that are missing.
    #[must_use]
    pub fn find_missing(&self, missing: &Missing) -> References {
        let mut found = References::default();
        for key in &missing.0 {
            if !found.0.contains_key(key) {
                found.0.insert(key.clone(), self.reference(key));
            }
        }
        found
    }

    fn reference(&self, key: &KeptKey) -> Answer {
        let homes = self.0.key_home().ok_or("keys of a keeper's are not served here")?;
        let algorithm = algorithm(self.0.algorithms(), &key.algorithm)?;
        let (mac, key_lens) = algorithm.kdf_mac().ok_or_else(|| cannot(algorithm))?;
        let info = AlgInfo { key_lens, ..mac.info().clone() };
        (homes.finds)(&info, &key.name, key.version).map_err(|e| e.to_string())
    }
}

/// Keys that could not be found.
pub struct Missing(pub(super) Vec<KeptKey>);

impl Missing {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The algorithm of a key.
///
/// # Errors
/// It is not in this build.
pub(super) fn algorithm<'a>(algorithms: &'a Algorithms, name: &str) -> Result<&'a Arc<Algorithm>, String> {
    algorithms.get(name).ok_or_else(|| format!("algorithm {name}: not in this build"))
}

fn cannot(algorithm: &Algorithm) -> String {
    format!("{}: the keeper does not derive traffic keys by it", algorithm.name)
}

/// The MAC by which traffic keys of this algorithm are derived where the master key is.
///
/// # Errors
/// None is.
pub(super) fn mac_elsewhere(spaces: &Spaces, algorithm: &Algorithm) -> Result<Alg, String> {
    let homes = spaces.key_home().ok_or("keys of a keeper's are not served here")?;
    let (mac, _) = algorithm.kdf_mac().ok_or_else(|| cannot(algorithm))?;
    homes.derives.adopt(mac).ok_or_else(|| cannot(algorithm))
}
