//! Configured peers: TCP-AO for programs that know nothing of it, with keys that change by the time of day.

use super::finder::{self, Finder, KeptKey, Missing, References, Trouble};
use super::homes::{self, FoundKey};
use super::patterns::{self, Left, Patterns};
use super::served::{self, NewNamespace, PreparedPeer, Served, set_keys};
use super::space::Spaces;
use super::start::DYING;
use parking_lot::Mutex;
use sealane_abi::admin;
use sealane_config::{Config, Key, Peer, Secret};
use sealane_engine_ao::Failing;
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_sys::clock::wall_ms;
use sealane_sys::found::{self, Found};
use sealane_sys::named_netns::Pattern;
use sealane_sys::netns::{Netns, NetnsId};
use sealane_sys::poll::Waker;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The most keys of which one look tells that nothing is derived by them, or again.
const MOST_TOLD: usize = 8;
/// The most reasons for which one key is missing that are told of. A keeper that hangs gives two of them in turns.
const MOST_REASONS: usize = 4;
/// The most peers that a message about a key names.
const MOST_NAMED: usize = 3;
/// The time for which the status shows a key by which nothing was derived. After that nobody knows whether it would be now.
const RECENT: Duration = Duration::from_secs(60);

/// The reason why a configuration cannot be applied.
#[derive(Debug)]
pub enum Error {
    /// A peer, by its name, and the reason why it cannot be served.
    Peer(String, String),
    /// An operation, and the error of the system.
    System(String, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Peer(name, what) => write!(f, "peer '{name}': {what}"),
            Error::System(what, e) => write!(f, "{what}: {e}"),
        }
    }
}

impl std::error::Error for Error {}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |e| Error::System(what, e)
}

/// A key of the configuration that is elsewhere.
struct Kept {
    /// The version that is in force, if one was ever found since the configuration names it.
    found: Option<FoundKey>,
    /// The reason why it was not found when it was last asked for.
    trouble: Option<Trouble>,
    /// The reasons that have been told of since it was missing.
    told: Vec<Trouble>,
}

impl Kept {
    fn there(found: FoundKey) -> Self {
        Kept { found: Some(found), trouble: None, told: Vec::new() }
    }

    fn reference(&self) -> Option<&[u8]> {
        self.found.as_ref().map(|found| &found.reference[..])
    }

    /// Notes why it is missing. Returns whether that is to be told.
    fn lacks(&mut self, why: Trouble) -> bool {
        let is_new = !self.told.contains(&why) && self.told.len() < MOST_REASONS;
        if is_new {
            self.told.push(why.clone());
        }
        self.trouble = Some(why);
        is_new
    }
}

/// The keys of a configuration that are elsewhere.
type KeptKeys = HashMap<KeptKey, Kept>;

/// The MKTs of a key, one for each prefix of its peer; none if it is elsewhere and was not found.
fn mkts_of(spaces: &Spaces, kept: &KeptKeys, peer: &Peer, key: &Key) -> Result<Vec<Arc<Mkt>>, String> {
    let algorithm = finder::algorithm(spaces.algorithms(), &key.algorithm)?;
    let (bytes, mac) = match (&key.secret, KeptKey::of(key)) {
        (Secret::Bytes(bytes), _) => (&bytes[..], None),
        (Secret::Kept { .. }, name) => match name.and_then(|name| kept.get(&name)?.reference()) {
            Some(reference) => (reference, Some(finder::mac_elsewhere(spaces, algorithm)?)),
            None => return Ok(Vec::new()),
        },
    };
    let of = |prefix: &sealane_config::Prefix| {
        let spec = MktSpec {
            algorithm,
            key: bytes,
            send_id: key.send_id,
            recv_id: key.recv_id,
            mac_len: usize::from(key.mac_len),
            exclude_options: key.exclude_options,
            peer: Prefix { addr: prefix.addr, len: prefix.len },
            ifindex: None,
        };
        let made = mac.as_ref().map_or_else(|| Mkt::new(&spec), |mac| Mkt::elsewhere(&spec, mac));
        made.map(Arc::new).map_err(|e| format!("key {}: {e}", key.id))
    };
    peer.prefixes.iter().map(of).collect()
}

/// The names of the peers of each key that is elsewhere.
fn peers_of<'a>(peers: impl Iterator<Item = &'a Peer>) -> HashMap<KeptKey, Vec<&'a str>> {
    let mut all = HashMap::<KeptKey, Vec<&str>>::new();
    for peer in peers {
        for name in peer.chain.keys.iter().filter_map(KeptKey::of) {
            let of_it = all.entry(name).or_default();
            if of_it.last() != Some(&peer.name.as_str()) {
                of_it.push(&peer.name);
            }
        }
    }
    all
}

/// Names of peers for a message: the first ones, and the number of the others.
fn in_words(peers: &[&str]) -> String {
    let named: Vec<String> = peers.iter().take(MOST_NAMED).map(|name| format!("'{name}'")).collect();
    match peers.len().saturating_sub(MOST_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Tells of keys that are missing, or there again.
fn tell(news: &[(KeptKey, Option<Trouble>)], peers: &HashMap<KeptKey, Vec<&str>>) {
    for (key, trouble) in news.iter().take(MOST_TOLD) {
        let of = peers.get(key).map(|peers| in_words(peers)).unwrap_or_default();
        let name = &key.name;
        match trouble {
            Some(why) => warn!(
                key = name,
                peers = of,
                error = %why,
                "TCP-AO: key '{name}' of the keeper: {why}: no connections with {of} begin by it until it is there"
            ),
            None => info!(key = name, peers = of, "TCP-AO: key '{name}' of the keeper is there, for {of}"),
        }
    }
    if let Some(more) = news.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        warn!("TCP-AO: the same of {more} other keys: 'sealane tcp-ao show' names those that are missing");
    }
}

/// The master keys by which nothing was derived lately, by their references, peers, SendIDs and RecvIDs.
type FailingKeys<'a> = HashMap<(&'a [u8], Prefix, u8, u8), &'a Failing>;

fn by_key(failing: &[Failing]) -> FailingKeys<'_> {
    let recent = failing.iter().filter(|of| of.ago <= RECENT);
    recent.filter_map(|of| Some(((of.mkt.reference()?, of.mkt.peer, of.mkt.send_id, of.mkt.recv_id), of))).collect()
}

/// A configuration that can be put into force.
pub struct Prepared {
    config: Arc<Config>,
    namespaces: Vec<PreparedNamespace>,
    kept: KeptKeys,
}

/// A network namespace that it names.
struct PreparedNamespace {
    netns: Option<String>,
    id: NetnsId,
    peers: Vec<PreparedPeer>,
    serve_programs: bool,
    /// Unless it is served already.
    new: Option<NewNamespace>,
}

/// The configured peers of a daemon, and the programs that it serves, in its network namespaces.
pub struct Configured {
    spaces: Arc<Spaces>,
    /// The folder in which connections are saved for the next daemon.
    folder: PathBuf,
    /// Numbers of peers by name, which stay the same when the configuration is read again.
    numbers: HashMap<String, u32>,
    /// By the name of the network namespace.
    served: BTreeMap<Option<String>, Served>,
    /// Those of patterns, none of which is in `served`. They have no peers.
    found: Found<Served>,
    /// Those that no pattern matches any more.
    left: Mutex<Left>,
    /// The keys of the configuration in force that are elsewhere.
    kept: KeptKeys,
    /// Whether a configuration has been in force.
    has_begun: bool,
    /// When keys were last updated by the time of day.
    followed_s: i64,
}

impl Configured {
    /// No peers yet. Connections are saved in `folder`, so that they survive a restart of the daemon. `waker` wakes whoever is to
    /// call [`Configured::follow`].
    #[must_use]
    pub fn new(spaces: Arc<Spaces>, folder: PathBuf, waker: Arc<Waker>) -> Self {
        let (numbers, served, found) = (HashMap::new(), BTreeMap::new(), Found::new(waker));
        let (left, followed_s) = (Mutex::default(), wall_ms() / 1000);
        let kept = KeptKeys::new();
        Configured { spaces, folder, numbers, served, found, left, kept, has_begun: false, followed_s }
    }

    /// Puts the status of all namespaces together. No key is asked for.
    #[must_use]
    pub fn describe(&self) -> Vec<admin::AoNamespace> {
        let mut list = self.spaces.describe();
        let failing = self.spaces.desk().failing(homes::now());
        let failing = by_key(&failing);
        for served in self.served.values() {
            let inode = served.space.netns().id().map(|id| id.inode()).ok();
            let Some(namespace) = list.iter_mut().find(|namespace| Some(namespace.inode) == inode) else { continue };
            namespace.missing_keys = self.missing_keys(served, &failing);
        }
        list
    }

    /// The keys of peers that could not be found, and those by which nothing is derived.
    fn missing_keys(&self, served: &Served, failing: &FailingKeys<'_>) -> Vec<admin::MissingKey> {
        let mut list = Vec::new();
        for made in &served.peers {
            let keys = &made.peer().chain.keys;
            for (name, key) in keys.iter().filter_map(|key| Some((KeptKey::of(key)?, key))) {
                let Some(kept) = self.kept.get(&name) else { continue };
                let missing = || kept.trouble.as_ref().map(|why| format!("not found: {why}"));
                let underived = || {
                    let reference = kept.reference()?;
                    let of_it = |prefix| failing.get(&(reference, prefix, key.send_id, key.recv_id));
                    let of = made.prefixes().filter_map(of_it).min_by_key(|of| of.ago)?;
                    Some(format!("nothing was derived {} s ago: {}", of.ago.as_secs(), of.why))
                };
                let Some(why) = missing().or_else(underived) else { continue };
                let (peer, send_id, recv_id) = (made.peer().name.clone(), key.send_id, key.recv_id);
                list.push(admin::MissingKey { peer, send_id, recv_id, key: name.name, why });
            }
        }
        list
    }

    /// Finds keys of configurations that are elsewhere. It may take its time, and needs nothing of this.
    #[must_use]
    pub fn finder(&self) -> Finder {
        Finder::new(self.spaces.clone(), self.kept.keys().cloned().collect())
    }

    /// The keys that were not found, to be tried again.
    #[must_use]
    pub fn missing(&self) -> Missing {
        let mut missing: Vec<_> = self.kept.iter().filter(|(_, kept)| kept.trouble.is_some()).collect();
        // Those that nobody has asked for come first, so that each has its turn.
        missing.sort_by_key(|(_, kept)| kept.trouble != Some(Trouble::Late));
        let version = |key: &KeptKey, kept: &Kept| kept.found.as_ref().map_or(key.version, |found| found.version);
        Missing(missing.into_iter().map(|(key, kept)| (version(key, kept), key.clone())).collect())
    }

    /// Takes the answers about keys that were [missing](Self::missing).
    pub fn found(&mut self, mut found: References) {
        let (mut changed, mut news) = (HashSet::new(), Vec::new());
        for (key, kept) in self.kept.iter_mut().filter(|(_, kept)| kept.trouble.is_some()) {
            match found.take(key) {
                Some(Ok(of_it)) => {
                    if kept.found.is_none() {
                        changed.insert(key.clone());
                    }
                    // A version that is in force stays: another one comes when the configuration is read, and not because the keeper
                    // was away for a moment.
                    *kept = Kept::there(kept.found.take().unwrap_or(of_it));
                    news.push((key.clone(), None));
                }
                Some(Err(why)) if kept.lacks(why.clone()) => news.push((key.clone(), Some(why))),
                // A configuration with it may have been read since.
                Some(Err(_)) | None => {}
            }
        }
        if !news.is_empty() {
            tell(&news, &peers_of(self.served.values().flat_map(|served| &served.peers).map(PreparedPeer::peer)));
        }
        if changed.is_empty() {
            return;
        }
        let now_s = wall_ms() / 1000;
        for Served { space, peers, .. } in self.served.values_mut() {
            let mut of_them = Vec::new();
            for made in peers {
                let (config, mut has_it) = (made.config.clone(), false);
                let peer = &config.peers()[made.at];
                for (key, mkts) in peer.chain.keys.iter().zip(&mut made.mkts) {
                    if KeptKey::of(key).is_none_or(|name| !changed.contains(&name)) {
                        continue;
                    }
                    match mkts_of(&self.spaces, &self.kept, peer, key) {
                        Ok(now) => (*mkts, has_it) = (now, true),
                        Err(e) => warn!(peer = peer.name, error = e, "TCP-AO: peer '{}': {e}", peer.name),
                    }
                }
                of_them.extend(has_it.then_some(&*made));
            }
            set_keys(space.shared(), of_them, now_s);
        }
    }

    /// Saves all connections for the next daemon.
    pub fn save(&self) {
        self.all().for_each(Served::save);
    }

    fn all(&self) -> impl Iterator<Item = &Served> {
        self.served.values().chain(self.found.spaces())
    }

    /// The keys of a configuration that are elsewhere, by what has been found.
    ///
    /// # Errors
    /// A key that the configuration before does not name is not there. At the start, and for a key that was named before, this is no
    /// error: peers without another valid key are cut off, or new connections with them, and nobody else.
    fn keep(&self, config: &Config, mut found: References) -> Result<KeptKeys, Error> {
        let mut all = KeptKeys::new();
        for (peer, key) in config.peers().iter().flat_map(|peer| peer.chain.keys.iter().map(move |key| (peer, key))) {
            let Some(name) = KeptKey::of(key).filter(|name| !all.contains_key(name)) else { continue };
            let answer = found.take(&name).unwrap_or(Err(Trouble::Late));
            let now = match (answer, self.kept.get(&name)) {
                (Ok(found), _) => Kept::there(found),
                (Err(why), None) if self.has_begun => {
                    let what = format!("key {}: key '{}' of the keeper: {why}", key.id, name.name);
                    return Err(Error::Peer(peer.name.clone(), what));
                }
                (Err(why), before) => {
                    let found = before.and_then(|before| before.found.clone());
                    Kept { found, trouble: Some(why.clone()), told: vec![why] }
                }
            };
            all.insert(name, now);
        }
        Ok(all)
    }

    /// Prepares a configuration that is to take the place of the one before: whatever is wrong with it is found here, and changes
    /// nothing. `found` is what its [finder](Self::finder) says.
    ///
    /// # Errors
    /// The peer that cannot be served, or the system's error.
    pub fn prepare(&mut self, config: &Arc<Config>, found: References) -> Result<Prepared, Error> {
        let kept = self.keep(config, found)?;
        let mut wanted: BTreeMap<Option<String>, Vec<PreparedPeer>> = BTreeMap::new();
        for at in 0..config.peers().len() {
            let made = self.make(config, at, &kept)?;
            wanted.entry(made.peer().netns.clone()).or_default().push(made);
        }
        for netns in &config.programs.netns {
            wanted.entry(netns.clone()).or_default();
        }
        let patterns: Vec<Pattern> = config.programs.patterns.iter().map(|text| Pattern::new(text)).collect();
        let by_pattern = found::find(&patterns);
        let with = |(netns, peers): (Option<String>, Vec<PreparedPeer>)| {
            let of = || system(netns.as_deref().unwrap_or("this network namespace"));
            let known = self.served.get(&netns).map(|served| served.space.netns().try_clone());
            let there = known.unwrap_or_else(|| Netns::named(netns.as_deref())).map_err(of())?;
            let id = there.id().map_err(of())?;
            let serve_programs = config.programs.netns.contains(&netns) || by_pattern.contains_key(&id);
            let is_served = self.served.contains_key(&netns) || self.found.has(id);
            let find = || NewNamespace::find(&self.spaces, &self.folder, there, serve_programs).map_err(of());
            let new = (!is_served).then(find).transpose()?;
            Ok(PreparedNamespace { netns, id, peers, serve_programs, new })
        };
        let namespaces = wanted.into_iter().map(with).collect::<Result<_, Error>>()?;
        Ok(Prepared { config: config.clone(), namespaces, kept })
    }

    /// Puts a configuration into force in place of the one before.
    ///
    /// # Errors
    /// The system's; a part of it may be in force by then.
    pub fn commit(&mut self, prepared: Prepared) -> Result<(), Error> {
        let Prepared { config, namespaces, kept } = prepared;
        self.kept = kept;
        self.tell_missing(&config);
        let (spaces, folder, left) = (&self.spaces, &self.folder, &self.left);
        let service = Patterns { spaces, folder, until: Instant::now(), left };
        let patterns = (&*config.programs.patterns, config.programs.max_found);
        let named: HashSet<NetnsId> = namespaces.iter().map(|namespace| namespace.id).collect();
        let set = self.found.set(&service, &self.folder, patterns, &named);
        set.map_err(system("the patterns of TCP-AO"))?;
        let wanted: HashSet<Option<String>> = namespaces.iter().map(|namespace| namespace.netns.clone()).collect();
        for namespace in namespaces {
            self.put_in_force(&config, namespace)?;
        }
        self.leave_unnamed(&wanted)?;
        self.follow();
        self.has_begun = true;
        Ok(())
    }

    /// Serves a network namespace that the configuration names as it says.
    fn put_in_force(&mut self, config: &Arc<Config>, prepared: PreparedNamespace) -> Result<(), Error> {
        let PreparedNamespace { netns, id, peers, serve_programs, new } = prepared;
        let now_s = wall_ms() / 1000;
        let before = self.served.remove(&netns).or_else(|| self.found.take(id));
        let (served, done) = match (new, before) {
            (None, Some(mut served)) => {
                let done = served.serve_peers((config, &netns), peers, now_s).map_err(system("the rules"));
                (served, done)
            }
            (Some(new), None) => {
                let opened = new.open(&self.spaces, Some((config, &netns)), peers, now_s, DYING);
                (opened.map_err(system("TCP-AO"))?, Ok(()))
            }
            // Nobody else serves namespaces between the two steps.
            _ => return Ok(()),
        };
        let space = served.space.clone();
        self.served.insert(netns, served);
        done?;
        served::serve_programs(&self.spaces, &space, serve_programs).map_err(system("programs with TCP-AO"))
    }

    /// Has the namespaces that the configuration does not name go on without peers: those of patterns with their programs, and
    /// others without.
    fn leave_unnamed(&mut self, wanted: &HashSet<Option<String>>) -> Result<(), Error> {
        let unnamed: Vec<_> = self.served.extract_if(.., |netns, _| !wanted.contains(netns)).collect();
        let mut done = Ok(());
        for (netns, mut served) in unnamed {
            served.leave_peers();
            let space = served.space.clone();
            let left = self.found.adopt::<Patterns<'_>>(served);
            let is_found = left.is_none();
            self.served.extend(left.map(|left| (netns, left)));
            // The others go on, too: whatever fails here, none of them is without whoever follows it.
            let with_programs = served::serve_programs(&self.spaces, &space, is_found);
            done = done.and(with_programs.map_err(system("programs with TCP-AO")));
        }
        done
    }

    /// Serves the programs of namespaces that have come and match a pattern, and gives up those that have gone. Returns the time
    /// until the next look, if nothing is mounted before.
    pub fn follow(&mut self) -> Option<Duration> {
        let named: HashSet<_> = self.served.values().filter_map(|served| served.space.netns().id().ok()).collect();
        // At the start another daemon may just have ended.
        let until = if self.has_begun { Instant::now() } else { Instant::now() + DYING };
        let (spaces, folder, left) = (&self.spaces, &self.folder, &self.left);
        let next = self.found.follow(&Patterns { spaces, folder, until, left }, &named);
        let is_served = |id| named.contains(&id) || self.found.has(id);
        let look = self.left.lock().let_go(is_served, patterns::used, |netns| self.spaces.disown(netns));
        next.into_iter().chain(look).min()
    }

    /// The cookies of the network namespaces whose programs are served.
    #[must_use]
    pub fn namespaces_of_programs(&self) -> BTreeSet<u64> {
        let with_programs = self.all().filter(|served| served.space.serves_programs());
        with_programs.map(|served| served.cookie).collect()
    }

    fn make(&mut self, config: &Arc<Config>, at: usize, kept: &KeptKeys) -> Result<PreparedPeer, Error> {
        let peer = &config.peers()[at];
        let wrong = |what: String| Error::Peer(peer.name.clone(), what);
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(peer.name.clone()).or_insert(next);
        let of = |key| mkts_of(&self.spaces, kept, peer, key).map_err(wrong);
        let mkts = peer.chain.keys.iter().map(of).collect::<Result<_, _>>()?;
        Ok(PreparedPeer { config: config.clone(), at, number, mkts })
    }

    fn tell_missing(&self, config: &Config) {
        let of = |(key, kept): (&KeptKey, &Kept)| Some((key.clone(), Some(kept.trouble.clone()?)));
        let missing: Vec<_> = self.kept.iter().filter_map(of).collect();
        if !missing.is_empty() {
            tell(&missing, &peers_of(config.peers().iter()));
        }
    }

    /// Tells by which keys nothing is derived any more, and by which it is again.
    fn tell_failing(&self) {
        let desk = self.spaces.desk();
        desk.tidy(homes::now());
        let news = desk.news();
        for (mkt, trouble) in news.iter().take(MOST_TOLD) {
            // One of the configuration's own is asked for here, too, if a driver has failed.
            let is_its = |kept: &Kept| kept.reference().is_some() && kept.reference() == mkt.reference();
            let name = self.kept.iter().find(|(_, kept)| is_its(kept)).map_or("", |(key, _)| &key.name);
            let what = if name.is_empty() { "a key".to_owned() } else { format!("key '{name}' of the keeper") };
            let (peer, send_id) = (&mkt.peer, mkt.send_id);
            match trouble {
                Some(why) => warn!(
                    key = name,
                    %peer,
                    send_id,
                    error = why,
                    "TCP-AO: {what} gives no traffic keys for {peer}: {why}: no connections begin by it"
                ),
                None => {
                    info!(key = name, %peer, send_id, "TCP-AO: {what} gives traffic keys for {peer}")
                }
            }
        }
        if let Some(more) = news.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
            warn!("TCP-AO: the same of {more} other keys and peers");
        }
    }

    /// Updates the keys of peers whose chain has changed since the last call, however long ago that was: this process may have
    /// been stopped, and somebody may have set the clock, back as well.
    pub fn follow_the_time(&mut self) {
        self.tell_failing();
        let now_s = wall_ms() / 1000;
        let last_s = core::mem::replace(&mut self.followed_s, now_s);
        for Served { space, peers, .. } in self.served.values() {
            let changed = peers.iter().filter(|m| m.peer().chain.has_changed(last_s, now_s));
            set_keys(space.shared(), changed, now_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::homes::KeyHomes;
    use super::*;
    use sealane_abi::Profile;
    use sealane_abi::admin::DataPath;
    use sealane_crypto::home::{KeepError, KeyHome};
    use sealane_crypto::{Alg, AlgInfo};
    use sealane_net_ao::alg::Algorithms;
    use std::sync::atomic::{AtomicU32, Ordering};
    use zeroize::Zeroizing;

    struct Nothing;

    impl KeyHome for Nothing {
        fn adopt(&self, _: &Alg) -> Option<Alg> {
            None
        }

        fn keep(&self, _: &AlgInfo, _: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeepError> {
            Err(KeepError::Refused(String::new()))
        }

        fn name<'a>(&self, _: &'a [u8]) -> Option<&'a str> {
            None
        }

        fn named(&self, _: &AlgInfo, _: &str) -> Result<Zeroizing<Vec<u8>>, KeepError> {
            Err(KeepError::Refused(String::new()))
        }
    }

    /// Configured peers with a home of one key. Its newest version is this one; with 0 it is away.
    fn configured(newest: &Arc<AtomicU32>) -> Configured {
        let newest = newest.clone();
        let homes = KeyHomes {
            finds: Box::new(move |_, name, version| match newest.load(Ordering::Relaxed) {
                0 => Err(KeepError::Unreachable("away".to_owned())),
                newest => {
                    let version = if version == 0 { newest } else { version };
                    Ok(FoundKey { version, reference: Zeroizing::new(format!("{name}/{version}").into_bytes()) })
                }
            }),
            derives: Box::new(Nothing),
            why: Box::new(String::new),
        };
        let algorithms = Algorithms::new(&sealane_drivers::system_registry().0);
        let spaces = Spaces::new(Profile::Open, algorithms, DataPath::Auto).with_key_home(homes);
        Configured::new(Arc::new(spaces), PathBuf::new(), Arc::new(Waker::new().expect("a descriptor")))
    }

    /// The references in force, and the number of keys that are missing.
    fn state(configured: &Configured) -> (Vec<String>, usize) {
        let references = configured.kept.values().filter_map(Kept::reference);
        let text = |reference: &[u8]| String::from_utf8_lossy(reference).into_owned();
        (references.map(text).collect(), configured.missing().0.len())
    }

    #[test]
    fn a_version_in_force_stays_until_the_configuration_is_read_again() {
        let newest = Arc::new(AtomicU32::new(0));
        let mut configured = configured(&newest);
        let text = "[[peer]]\nname = \"p\"\nprefix = \"10.0.0.1\"\n[[peer.key]]\nsend-id = 1\nrecv-id = 1\n\
                    algorithm = \"hmac(sha256)\"\nsecret = { keeper = \"bgp\" }\n";
        let config =
            Config::parse(text, &mut |_| Err(io::ErrorKind::NotFound.into())).unwrap_or_else(|e| panic!("{e:?}"));
        let read = |configured: &mut Configured| {
            configured.kept = configured.keep(&config, configured.finder().find(&config)).expect("it can be served");
            configured.has_begun = true;
        };
        let look =
            |configured: &mut Configured| configured.found(configured.finder().find_missing(&configured.missing()));
        let is = |configured: &Configured, version: u32, missing| {
            let references = (version > 0).then(|| format!("bgp/{version}")).into_iter().collect::<Vec<_>>();
            assert_eq!(state(configured), (references, missing));
        };
        read(&mut configured);
        is(&configured, 0, 1);
        newest.store(1, Ordering::Relaxed);
        look(&mut configured);
        is(&configured, 1, 0);
        // A reload meets a keeper that is away, and somebody rotates the key before it is found again.
        newest.store(0, Ordering::Relaxed);
        read(&mut configured);
        is(&configured, 1, 1);
        newest.store(2, Ordering::Relaxed);
        look(&mut configured);
        is(&configured, 1, 0);
        read(&mut configured);
        is(&configured, 2, 0);
    }

    #[test]
    fn a_key_by_which_nothing_was_derived_is_told_for_a_minute() {
        let algorithms = Algorithms::new(&sealane_drivers::system_registry().0);
        let algorithm = finder::algorithm(&algorithms, "hmac(sha256)").expect("it is there");
        let (mac, _) = algorithm.kdf_mac().expect("it has one");
        let mkt = |send_id| {
            let spec = MktSpec {
                algorithm,
                key: b"reference",
                send_id,
                recv_id: 1,
                mac_len: 12,
                exclude_options: false,
                peer: Prefix { addr: [10, 0, 0, 1].into(), len: 32 },
                ifindex: None,
            };
            Arc::new(Mkt::elsewhere(&spec, mac).expect("it is good"))
        };
        let of = |send_id, ago_s| Failing { mkt: mkt(send_id), why: String::new(), ago: Duration::from_secs(ago_s) };
        // A rule for alerts (docs/tcp-ao.md) looks at ten minutes.
        let failing = [of(1, 0), of(2, 60), of(3, 61)];
        let mut told: Vec<u8> = by_key(&failing).keys().map(|(_, _, send_id, _)| *send_id).collect();
        told.sort_unstable();
        assert_eq!(told, [1, 2]);
    }

    #[test]
    fn a_reason_is_told_once_and_few_are() {
        let mut kept = Kept { found: None, trouble: None, told: Vec::new() };
        let why = |n: usize| Trouble::Home(format!("reason {n}"));
        let told = [0, 1, 0, 1, 2, 3, 4, 5].map(|n| kept.lacks(why(n)));
        assert_eq!(told, [true, true, false, false, true, true, false, false]);
        assert_eq!(kept.trouble, Some(why(5)));
    }

    #[test]
    fn few_peers_are_named() {
        assert_eq!(in_words(&["a"]), "'a'");
        assert_eq!(in_words(&["a", "b", "c"]), "'a', 'b', 'c'");
        assert_eq!(in_words(&["a", "b", "c", "d", "e"]), "'a', 'b', 'c' and 2 more");
    }
}
