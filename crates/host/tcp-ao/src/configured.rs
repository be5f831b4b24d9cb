//! Configured peers: TCP-AO for programs that know nothing of it, with keys that change by the time of day.

use super::kept::Store;
use super::leftover;
use super::path::{PeerLookup, SaveConnections, Shared};
use super::programs::{self, Before, LOST, LOST_NUMBER};
use super::space::{Space, Spaces};
use super::start::Peers;
use super::state;
use sealane_abi::admin;
use sealane_abi::tcp::State;
use sealane_config::{Config, Flow, Peer};
use sealane_engine_ao::{ConfiguredKey, ConfiguredPeer, Ends, SocketId};
use sealane_net::ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_sys::clock::wall_ms;
use sealane_sys::netns::Netns;
use sealane_sys::sock_diag::{Entry, SockDiag};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{debug, error, info, warn};

/// The most peers whose keys are set before segments go on: each time all sockets are looked at once.
const AT_ONCE: usize = 256;

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

/// A configured peer with its prepared keys.
struct PreparedPeer {
    config: Arc<Config>,
    /// Index of the peer in the configuration.
    at: usize,
    number: u32,
    /// For each key of the chain, one MKT for each prefix.
    mkts: Vec<Vec<Arc<Mkt>>>,
}

impl PreparedPeer {
    fn peer(&self) -> &Peer {
        &self.config.peers()[self.at]
    }

    /// The peer at a time of day.
    fn configured(&self, now_s: i64) -> ConfiguredPeer<'_> {
        let peer = self.peer();
        let (number, keys, accept_icmps) = (self.number, self.keys(now_s), peer.accept_icmps);
        ConfiguredPeer { number, name: &peer.name, keys, accept_icmps }
    }

    /// The keys of the peer at a time of day.
    fn keys(&self, now_s: i64) -> Vec<ConfiguredKey> {
        let chain = &self.peer().chain;
        let preferred = chain.preferred(now_s);
        let mut keys = Vec::new();
        for k in chain.accepted(now_s) {
            let send = chain.may_send(k, now_s);
            for mkt in &self.mkts[k] {
                keys.push(ConfiguredKey { mkt: mkt.clone(), send, preferred: preferred == Some(k) });
            }
        }
        keys
    }

    fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.peer().prefixes.iter().map(|p| Prefix { addr: p.addr, len: p.len })
    }
}

/// A network namespace that is served.
struct Served {
    space: Arc<Space>,
    peers: Vec<PreparedPeer>,
    /// The peers that are cut off, because the keys that programs had set for them are lost.
    lost: Vec<Prefix>,
}

/// A configuration that can be put into force.
pub struct Prepared {
    config: Arc<Config>,
    namespaces: Vec<PreparedNamespace>,
}

/// A network namespace of it.
struct PreparedNamespace {
    netns: Option<String>,
    peers: Vec<PreparedPeer>,
    /// Unless it is served already.
    new: Option<NewNamespace>,
}

/// A network namespace that is not served yet.
struct NewNamespace {
    netns: Netns,
    there: Netns,
    /// The connections of a predecessor.
    file: PathBuf,
    /// The programs of a predecessor, which go on.
    before: Option<Before>,
    /// Records of programs that are not served any more.
    forgotten: Option<Store>,
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
    /// When keys were last updated by the time of day.
    followed_s: i64,
}

impl Configured {
    /// No peers yet. Connections are saved in `folder`, so that they survive a restart of the daemon.
    #[must_use]
    pub fn new(spaces: Arc<Spaces>, folder: PathBuf) -> Self {
        let (numbers, served) = (HashMap::new(), BTreeMap::new());
        Configured { spaces, folder, numbers, served, followed_s: wall_ms() / 1000 }
    }

    /// Puts the status of all namespaces together.
    #[must_use]
    pub fn describe(&self) -> Vec<admin::AoNamespace> {
        self.spaces.describe()
    }

    /// Saves all connections for the next daemon.
    pub fn save(&self) {
        for Served { space, .. } in self.served.values() {
            space.context().in_scope(|| {
                space.shared().save();
                space.shared().keep_progress();
            });
        }
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
        for netns in &config.programs {
            wanted.entry(netns.clone()).or_default();
        }
        let with = |(netns, made): (Option<String>, Vec<PreparedPeer>)| {
            let new = if self.served.contains_key(&netns) { None } else { Some(self.find(config, netns.as_deref())?) };
            Ok(PreparedNamespace { netns, peers: made, new })
        };
        let namespaces = wanted.into_iter().map(with).collect::<Result<_, Error>>()?;
        Ok(Prepared { config: config.clone(), namespaces })
    }

    /// Opens a namespace that is not served yet, and finds what a predecessor has left there.
    fn find(&self, config: &Config, name: Option<&str>) -> Result<NewNamespace, Error> {
        let what = || system("a network namespace");
        let netns = Netns::named(name).map_err(system(name.unwrap_or("this network namespace").to_owned()))?;
        let file = state::path(&self.folder, netns.id().map_err(what())?.inode());
        let serve_programs = config.programs.iter().any(|of| of.as_deref() == name);
        let store = self.spaces.store(&netns).map_err(what())?;
        let (before, forgotten) = match store {
            Some(store) if serve_programs => {
                let found = Before::find(store, self.spaces.algorithms(), &netns);
                (Some(found.map_err(system("the programs of before"))?), None)
            }
            store => (None, store),
        };
        let there = netns.try_clone().map_err(what())?;
        Ok(NewNamespace { netns, there, file, before, forgotten })
    }

    /// Puts a configuration into force in place of the one before.
    ///
    /// # Errors
    /// The system's; a part of it may be in force by then.
    pub fn commit(&mut self, prepared: Prepared) -> Result<(), Error> {
        let Prepared { config, namespaces } = prepared;
        let config = &config;
        let now_s = wall_ms() / 1000;
        for PreparedNamespace { netns, peers: made, new } in namespaces {
            let serve_programs = config.programs.contains(&netns);
            let prefixes: Vec<Prefix> = made.iter().flat_map(PreparedPeer::prefixes).collect();
            let (space, lost) = match (new, self.served.get(&netns)) {
                // Nobody else serves namespaces between the two steps.
                (None, None) => continue,
                (None, Some(Served { space, lost, .. })) => {
                    let (space, lost) = (space.clone(), lost.clone());
                    let _context = space.context().clone().entered();
                    for prefix in prefixes {
                        space.shared().protect(prefix).map_err(system("the rules"))?;
                    }
                    set_keys(space.shared(), &made, now_s);
                    *space.shared().peer_lookup.write() = Some(peer_lookup(config, &netns, &made, &lost));
                    end_unknown_connections(space.shared(), space.netns());
                    if let Some(store) = self.spaces.store(space.netns()).map_err(system("a network namespace"))?
                        && serve_programs
                    {
                        programs::begin(store, space.shared());
                    }
                    (space, lost)
                }
                (Some(new), _) => {
                    let NewNamespace { netns: ns, there, file, mut before, forgotten } = new;
                    if let Some(store) = forgotten {
                        store.clear().map_err(system("the programs of before"))?;
                    }
                    let covered = before.as_ref().map(|before| before.covered.clone()).unwrap_or_default();
                    let mut lost = Vec::new();
                    let prepare = |shared: &Shared| {
                        set_keys(shared, &made, now_s);
                        if let Some(before) = &mut before {
                            before.cut_off(&prefixes, shared);
                            lost.clone_from(&before.lost);
                        }
                        *shared.peer_lookup.write() = Some(peer_lookup(config, &netns, &made, &lost));
                        restore_connections(shared, &file, &there);
                        if let Some(before) = before.take() {
                            before.restore(shared, &there);
                        }
                        end_unknown_connections(shared, &there);
                        let _ = shared.keep.set(keep(file));
                    };
                    let peers = Peers { fixed: &prefixes, by_keys: &covered };
                    let space = self.spaces.open(ns, &peers, prepare).map_err(system("TCP-AO"))?;
                    // By this file launchers know that the rules are a daemon's.
                    space.context().in_scope(|| space.shared().save());
                    (space, lost)
                }
            };
            space.serve_programs(serve_programs);
            space.context().in_scope(|| debug!(peers = made.len(), "TCP-AO: peers of the configuration are served"));
            self.served.insert(netns, Served { space, peers: made, lost });
        }
        // Peers that are no longer configured lose their keys and are cut off.
        for (netns, Served { space, peers, lost }) in &mut self.served {
            if !config.peers().iter().any(|p| p.netns == *netns) {
                peers.clear();
            }
            let mut names: HashSet<String> = peers.iter().map(|m| m.peer().name.clone()).collect();
            if !lost.is_empty() {
                names.insert(LOST.to_owned());
            }
            space.engine().retain_configured(&names);
            // Programs that are no longer served lose their keys, too.
            if !config.programs.contains(netns) && space.serves_programs() {
                space.serve_programs(false);
                space.engine().forget_programs();
                space.keep_changes();
            }
        }
        Ok(())
    }

    /// The cookies of the network namespaces whose programs are served.
    ///
    /// # Errors
    /// The kernel's.
    pub fn namespaces_of_programs(&self) -> io::Result<BTreeSet<u64>> {
        let with_programs = self.served.values().filter(|served| served.space.serves_programs());
        with_programs.map(|served| served.space.netns().cookie()).collect()
    }

    fn make(&mut self, config: &Arc<Config>, at: usize) -> Result<PreparedPeer, Error> {
        let peer = &config.peers()[at];
        let wrong = |what: String| Error::Peer(peer.name.clone(), what);
        if let Some(vrf) = &peer.vrf {
            return Err(wrong(format!("VRF {vrf}: not served yet")));
        }
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

/// Sets the keys of peers. Segments wait for a few at a time.
fn set_keys<'a>(shared: &Shared, made: impl IntoIterator<Item = &'a PreparedPeer>, now_s: i64) {
    let mut made = made.into_iter().map(|m| m.configured(now_s)).peekable();
    while made.peek().is_some() {
        let some: Vec<ConfiguredPeer<'_>> = made.by_ref().take(AT_ONCE).collect();
        shared.engine.lock().configure(&some);
    }
}

fn peer_lookup(config: &Arc<Config>, netns: &Option<String>, made: &[PreparedPeer], lost: &[Prefix]) -> PeerLookup {
    let numbers: HashMap<String, u32> = made.iter().map(|m| (m.peer().name.clone(), m.number)).collect();
    let (config, netns, lost) = (config.clone(), netns.clone(), lost.to_vec());
    Arc::new(move |ends: &Ends| {
        let flow = Flow { netns: netns.as_deref(), vrf: None, local: ends.local, remote: ends.remote };
        let configured = config.peer_of(&flow).and_then(|p| numbers.get(&p.name).copied());
        let is_lost = || lost.iter().any(|prefix| prefix.contains(ends.remote.ip())).then_some(LOST_NUMBER);
        configured.or_else(is_lost)
    })
}

/// Restores the connections of the previous daemon. Those whose sockets closed in between are ended, which their peers
/// are told.
fn restore_connections(shared: &Shared, file: &Path, netns: &Netns) {
    let list = match state::read(file) {
        Ok(list) => list,
        Err(e) => {
            let file = file.display();
            error!(%file, error = %e, "{file}: {e}: connections of before are lost");
            return;
        }
    };
    if list.is_empty() {
        return;
    }
    let mut alive = HashSet::new();
    let asked = netns.run(|| {
        SockDiag::open()?.connections(|e| {
            if e.state != State::TimeWait {
                alive.insert(Ends::new(e.local, e.remote));
            }
        })
    });
    let mut engine = shared.engine.lock();
    let mut going_on = 0;
    for saved in list {
        if !engine.restore(&saved) {
            continue;
        }
        let ends = Ends::new(saved.conn.local, saved.conn.remote);
        if asked.is_ok() && !alive.contains(&ends) {
            engine.destroyed(SocketId(saved.cookie), Some(ends), shared.now_ms());
        } else {
            going_on += 1;
        }
    }
    if going_on > 0 {
        info!(connections = going_on, "{going_on} connections go on");
    }
    if let Err(e) = asked {
        warn!(error = %e, "TCP-AO: which connections are left: {e}");
    }
}

/// Ends connections with configured peers whose handshake is not known: from before there were keys, or of a daemon
/// whose state is lost. Their segments cannot be signed, so they would hang until a timeout.
fn end_unknown_connections(shared: &Shared, netns: &Netns) {
    let Some(peer_lookup) = shared.peer_lookup.read().clone() else { return };
    let is_stranger = |e: &Entry| {
        // An unfinished handshake is tried again anyway, and a socket in TIME_WAIT sends nothing by itself.
        let done = !matches!(e.state, State::SynSent | State::SynRecv | State::NewSynRecv | State::TimeWait);
        let ends = Ends::new(e.local, e.remote);
        done && peer_lookup(&ends).is_some() && !shared.engine.lock().tracks(&ends)
    };
    match netns.run(|| leftover::end_connections(is_stranger)) {
        Ok(0) => {}
        Ok(ended) => warn!(
            connections = ended,
            "ended {ended} connections with peers of the configuration that cannot be signed"
        ),
        Err(e) => warn!(error = %e, "TCP-AO: connections that cannot be signed: {e}"),
    }
}

fn keep(file: PathBuf) -> SaveConnections {
    Box::new(move |connections| {
        if let Err(e) = state::write(&file, connections) {
            let file = file.display();
            warn!(%file, error = %e, "{file}: {e}: connections would not survive us");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_abi::Profile;
    use sealane_abi::admin::DataPath;
    use sealane_engine_ao::SavedConnection;
    use sealane_net::ao::alg::Algorithms;
    use sealane_net::ao::info::Conn;
    use sealane_sys::testing;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    #[test]
    fn connections_that_ended_without_us_are_over() {
        let Some(ns) = testing::namespace("ao::configured::take_up") else { return };
        let spaces = Spaces::new(Profile::Open, Algorithms::new(&sealane_drivers::system_registry().0), DataPath::Auto);
        let (client, listener) = ns
            .run(|| {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                Ok((TcpStream::connect(listener.local_addr()?)?, listener))
            })
            .expect("a connection of before");
        let (here, peer) = (client.local_addr().expect("an address"), client.peer_addr().expect("an address"));
        let gone = SocketAddr::new(here.ip(), 9);
        let saved = [here, gone].map(|local| SavedConnection {
            cookie: 0,
            peer: "peer".into(),
            conn: Conn::new(local, peer, 1, 2),
            current: None,
            rnext: None,
            peer_mss: 0,
        });
        let file = std::env::temp_dir().join(format!("sealane-take-up-{}", std::process::id()));
        state::write(&file, &saved).expect("a file");
        let algorithm = spaces.algorithms().get("hmac(sha1)").expect("in every build").clone();
        let spec = MktSpec {
            algorithm: &algorithm,
            key: b"secret",
            send_id: 1,
            recv_id: 1,
            mac_len: 12,
            exclude_options: false,
            peer: Prefix::host(peer.ip()),
            ifindex: None,
        };
        let mkt = Arc::new(Mkt::new(&spec).expect("a key"));
        let there = ns.try_clone().expect("a descriptor");
        let peers = Peers { fixed: &[spec.peer], by_keys: &[] };
        let space = spaces.open(ns, &peers, |shared| {
            let keys = vec![ConfiguredKey { mkt, send: true, preferred: true }];
            shared.engine.lock().configure(&[ConfiguredPeer { number: 0, name: "peer", keys, accept_icmps: false }]);
            restore_connections(shared, &file, &there);
        });
        let space = space.expect("it can be served");
        let mut known: Vec<_> = space.engine().connections().collect();
        known.sort();
        assert_eq!(known, [(Ends::new(gone, peer), false), (Ends::new(here, peer), true)]);
        std::fs::remove_file(&file).expect("it was there");
        drop((client, listener));
        spaces.stop(|_| true);
    }
}
