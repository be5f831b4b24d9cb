//! Configured peers: TCP-AO for programs that know nothing of it, with keys that change by the time of day.

use super::patterns::{self, Left, Patterns};
use super::served::{self, NewNamespace, PreparedPeer, Served, set_keys};
use super::space::Spaces;
use super::start::DYING;
use parking_lot::Mutex;
use sealane_abi::admin;
use sealane_config::Config;
use sealane_net::ao::mkt::{Mkt, MktSpec, Prefix};
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

/// A configuration that can be put into force.
pub struct Prepared {
    config: Arc<Config>,
    namespaces: Vec<PreparedNamespace>,
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
        Configured { spaces, folder, numbers, served, found, left, has_begun: false, followed_s }
    }

    /// Puts the status of all namespaces together.
    #[must_use]
    pub fn describe(&self) -> Vec<admin::AoNamespace> {
        self.spaces.describe()
    }

    /// Saves all connections for the next daemon.
    pub fn save(&self) {
        self.all().for_each(Served::save);
    }

    fn all(&self) -> impl Iterator<Item = &Served> {
        self.served.values().chain(self.found.spaces())
    }

    /// Prepares a configuration that is to take the place of the one before: whatever is wrong with it is found here, and changes
    /// nothing.
    ///
    /// # Errors
    /// The peer that cannot be served, or the system's error.
    pub fn prepare(&mut self, config: &Arc<Config>) -> Result<Prepared, Error> {
        let mut wanted: BTreeMap<Option<String>, Vec<PreparedPeer>> = BTreeMap::new();
        for at in 0..config.peers().len() {
            let made = self.make(config, at)?;
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
        Ok(Prepared { config: config.clone(), namespaces })
    }

    /// Puts a configuration into force in place of the one before.
    ///
    /// # Errors
    /// The system's; a part of it may be in force by then.
    pub fn commit(&mut self, prepared: Prepared) -> Result<(), Error> {
        let Prepared { config, namespaces } = prepared;
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

    fn make(&mut self, config: &Arc<Config>, at: usize) -> Result<PreparedPeer, Error> {
        let peer = &config.peers()[at];
        let wrong = |what: String| Error::Peer(peer.name.clone(), what);
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(peer.name.clone()).or_insert(next);
        let mut mkts = Vec::new();
        for key in &peer.chain.keys {
            let algorithm = self.spaces.algorithms().get(&key.algorithm);
            let algorithm =
                algorithm.ok_or_else(|| wrong(format!("algorithm {}: not in this build", key.algorithm)))?;
            let of = |prefix: &sealane_config::Prefix| {
                let spec = MktSpec {
                    algorithm,
                    key: &key.secret,
                    send_id: key.send_id,
                    recv_id: key.recv_id,
                    mac_len: usize::from(key.mac_len),
                    exclude_options: key.exclude_options,
                    peer: Prefix { addr: prefix.addr, len: prefix.len },
                    ifindex: None,
                };
                Mkt::new(&spec).map(Arc::new).map_err(|e| wrong(format!("key {}: {e}", key.id)))
            };
            mkts.push(peer.prefixes.iter().map(of).collect::<Result<_, _>>()?);
        }
        Ok(PreparedPeer { config: config.clone(), at, number, mkts })
    }

    /// Updates the keys of peers whose chain has changed since the last call, however long ago that was: this process may have
    /// been stopped, and somebody may have set the clock, back as well.
    pub fn follow_the_time(&mut self) {
        let now_s = wall_ms() / 1000;
        let last_s = core::mem::replace(&mut self.followed_s, now_s);
        for Served { space, peers, .. } in self.served.values() {
            let changed = peers.iter().filter(|m| m.peer().chain.has_changed(last_s, now_s));
            set_keys(space.shared(), changed, now_s);
        }
    }
}
