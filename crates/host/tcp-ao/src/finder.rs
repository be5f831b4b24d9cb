//! Master keys of configured peers that are elsewhere, in a home of keys such as a keeper.
//!
//! They are found by name when a configuration is read, before anything is locked, because whoever has them may take its time. What
//! cannot be found is tried again as long as the configuration is in force: peers without another valid key are cut off meanwhile, and
//! all others are served.

use super::homes::{self, FoundKey};
use super::space::Spaces;
use sealane_config::{Config, Key};
use sealane_crypto::{Alg, AlgInfo};
use sealane_net_ao::alg::{Algorithm, Algorithms};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The time after which one look asks for no other key. With the second that the home may take for the last one, neither a start nor a
/// reload waits for more than about two, however many keys there are.
const LONGEST: Duration = Duration::from_secs(1);

/// A key of a home as a configuration names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct KeptKey {
    pub(super) algorithm: String,
    pub(super) name: String,
    pub(super) version: u32,
}

impl KeptKey {
    /// The name of a key; `None` if its secret is in the configuration.
    pub(super) fn of(key: &Key) -> Option<Self> {
        let (name, version) = key.secret.kept()?;
        Some(KeptKey { algorithm: key.algorithm.clone(), name: name.to_owned(), version: version.unwrap_or(0) })
    }
}

/// The reason why a key was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Others took the time of the look. Nobody has asked for it.
    Late,
    /// The reason of its home.
    Home(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Late => f.write_str("the keeper took too long over other keys"),
            Trouble::Home(why) => f.write_str(why),
        }
    }
}

/// An answer about a key.
pub(super) type Answer = Result<FoundKey, Trouble>;

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
pub struct Finder {
    spaces: Arc<Spaces>,
    /// The keys of the configuration in force.
    known: HashSet<KeptKey>,
}

impl Finder {
    pub(super) fn new(spaces: Arc<Spaces>, known: HashSet<KeptKey>) -> Self {
        Finder { spaces, known }
    }

    /// Asks for all keys that a configuration names, for about two seconds at most: first for new ones, without which it cannot be
    /// put into force. It waits.
    #[must_use]
    pub fn find(&self, config: &Config) -> References {
        let keys = config.peers().iter().flat_map(|peer| &peer.chain.keys).filter_map(KeptKey::of);
        self.find_missing(&new_first(keys, &self.known))
    }

    /// Asks for keys that are missing, for about two seconds at most. It waits.
    #[must_use]
    pub fn find_missing(&self, missing: &Missing) -> References {
        ask_all(missing, homes::now, |key, version| self.ask(key, version).map_err(Trouble::Home))
    }

    fn ask(&self, key: &KeptKey, version: u32) -> Result<FoundKey, String> {
        let homes = self.spaces.key_home().ok_or("keys of a keeper are not served here")?;
        let algorithm = algorithm(self.spaces.algorithms(), &key.algorithm)?;
        let (mac, key_lens) = algorithm.kdf_mac().ok_or_else(|| cannot(algorithm))?;
        let info = AlgInfo { key_lens, ..mac.info().clone() };
        (homes.finds)(&info, &key.name, version).map_err(|e| e.to_string())
    }
}

/// Keys in the order in which a configuration asks for them: new ones come before those of the configuration in force.
fn new_first(keys: impl Iterator<Item = KeptKey>, known: &HashSet<KeptKey>) -> Missing {
    let mut keys: Vec<_> = keys.map(|key| (key.version, key)).collect();
    keys.sort_by_key(|(_, key)| known.contains(key));
    Missing(keys)
}

/// Asks for keys in their order, until the time of a look by this clock is over.
fn ask_all(
    missing: &Missing,
    clock: impl Fn() -> Duration,
    mut ask: impl FnMut(&KeptKey, u32) -> Answer,
) -> References {
    let (mut found, end) = (References::default(), clock() + LONGEST);
    for (version, key) in &missing.0 {
        if !found.0.contains_key(key) {
            let answer = if clock() < end { ask(key, *version) } else { Err(Trouble::Late) };
            found.0.insert(key.clone(), answer);
        }
    }
    found
}

/// Keys that could not be found, with the version that is asked for, in the order in which they are asked for.
pub struct Missing(pub(super) Vec<(u32, KeptKey)>);

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
    let homes = spaces.key_home().ok_or("keys of a keeper are not served here")?;
    let (mac, _) = algorithm.kdf_mac().ok_or_else(|| cannot(algorithm))?;
    homes.derives.adopt(mac).ok_or_else(|| cannot(algorithm))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use zeroize::Zeroizing;

    fn key(name: &str) -> KeptKey {
        KeptKey { algorithm: "hmac(sha256)".to_owned(), name: name.to_owned(), version: 0 }
    }

    #[test]
    fn a_look_asks_for_new_keys_before_those_of_the_configuration_in_force() {
        let known = HashSet::from([key("a"), key("c")]);
        let Missing(keys) = new_first(["a", "b", "c", "d"].map(key).into_iter(), &known);
        assert_eq!(keys, ["b", "d", "a", "c"].map(|name| (0, key(name))));
    }

    #[test]
    fn a_look_has_an_end_and_asks_for_each_key_once() {
        let missing = Missing(["a", "b", "a", "c", "d"].map(|name| (7, key(name))).to_vec());
        let (now, asked) = (Cell::new(Duration::ZERO), Cell::new(0));
        let ask = |_: &KeptKey, version| {
            now.set(now.get() + LONGEST / 2);
            asked.set(asked.get() + 1);
            Ok(FoundKey { version, reference: Zeroizing::new(Vec::new()) })
        };
        let mut found = ask_all(&missing, || now.get(), ask);
        let mut versions = |name: &str| found.take(&key(name)).expect("an answer").map(|found| found.version);
        let answers = ["a", "b", "c", "d"].map(&mut versions);
        assert_eq!(answers, [Ok(7), Ok(7), Err(Trouble::Late), Err(Trouble::Late)]);
        assert_eq!(asked.get(), 2);
    }
}
