//! `sealane daemon`: TCP-AO for programs that know nothing of it, and IPsec for those that speak NETLINK_XFRM, from a
//! configuration.

use super::leftover;
use super::path::{Keep, Policy, Shared, complain};
use super::space::{Space, Spaces};
use super::state;
use crate::admin;
use crate::config::{Config, Flow, LoadError, Peer};
use crate::metrics::http;
use crate::transport::clock::wall_ms;
use crate::transport::netns::Netns;
use crate::transport::process::{self, Signal, Signals};
use crate::transport::runtime;
use crate::transport::sock_diag::{Entry, SockDiag};
use sealane_abi::admin::{Role, Snapshot, VERSION};
use sealane_abi::tcp::State;
use sealane_engine::Profile;
use sealane_engine::tcp_ao::{ConfiguredKey, Ends, SocketId};
use sealane_net::ao::alg::Algorithms;
use sealane_net::ao::mkt::{Mkt, MktSpec, Prefix};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Why the daemon does not start.
#[derive(Debug)]
pub enum Error {
    /// The configuration.
    Config(LoadError),
    /// What it says cannot be done here.
    Peer(String, String),
    /// The system, and what was wanted of it.
    System(String, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(e) => e.fmt(f),
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

/// How often the time of day is compared with key chains.
const TICK: Duration = Duration::from_secs(1);

/// A configured peer with its keys made.
struct Made {
    config: Arc<Config>,
    /// Which of its peers.
    at: usize,
    number: u32,
    /// For each key of the chain one MKT for each prefix.
    mkts: Vec<Vec<Arc<Mkt>>>,
}

impl Made {
    fn peer(&self) -> &Peer {
        &self.config.peers()[self.at]
    }

    /// The keys that it has at a time of day.
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

/// The daemon.
struct Host {
    spaces: Spaces,
    ipsec: crate::xfrm::Spaces,
    folder: PathBuf,
    /// Numbers of peers, by name: they stay when the configuration is read again.
    numbers: HashMap<String, u32>,
    /// What is served, by network namespace.
    served: BTreeMap<Option<String>, (Arc<Space>, Vec<Made>)>,
}

/// Runs until it is told to end. `ready` is called when all peers are protected.
///
/// When it ends, whether told or not, the rules stay: what was protected is dropped until the daemon is back or
/// [`clear`] is called.
///
/// # Errors
/// Why it does not start.
pub fn run(path: &Path, ready: impl FnOnce(&str)) -> Result<(), Error> {
    let config = Arc::new(Config::load(path).map_err(Error::Config)?);
    process::no_core_for_us();
    let signals = Signals::block();
    let folder = runtime::folder().unwrap_or_else(|| "/run/sealane".into());
    runtime::make_private(&folder).map_err(system(folder.display().to_string()))?;
    let registry = crate::run::registry();
    let spaces = Spaces::new(Profile::Open, Algorithms::new(&registry), config.daemon.data_path);
    let ipsec = crate::xfrm::Spaces::new(registry, folder.clone());
    let mut host = Host { spaces, ipsec, folder, numbers: HashMap::new(), served: BTreeMap::new() };
    host.apply(&config)?;
    let host = Arc::new(parking_lot::Mutex::new(host));
    let source = source(&host);
    let server =
        admin::Server::start(&host.lock().folder.clone(), source.clone()).map_err(system("the admin socket"))?;
    let mut told = format!("{} peers protected", config.peers().len());
    if let Some(ipsec) = &config.ipsec {
        told = format!("{told}, IPsec in {} network namespaces", ipsec.netns.len());
        if !ipsec.devices.is_empty() {
            told = format!("{told} with {} offload devices", ipsec.devices.len());
        }
    }
    if let Some(addr) = config.daemon.metrics {
        let addr = http::serve(addr, source).map_err(system(format!("metrics on {addr}")))?;
        told = format!("{told}, metrics on http://{addr}/metrics");
    }
    for warning in config.warnings(wall_ms() / 1000) {
        eprintln!("sealane: warning: {warning}");
    }
    process::notify("READY=1");
    ready(&told);
    let clock = host.clone();
    std::thread::Builder::new()
        .name("sealane-keys".into())
        .spawn(move || {
            loop {
                std::thread::sleep(TICK);
                clock.lock().follow_the_time();
            }
        })
        .map_err(system("a thread for key chains"))?;
    loop {
        match signals.wait() {
            Signal::Sent(libc::SIGHUP) => reload(path, &host),
            Signal::Sent(libc::SIGTERM | libc::SIGINT) | Signal::Terminal => break,
            Signal::Sent(_) | Signal::Child => {}
        }
    }
    process::notify("STOPPING=1");
    let mut host = host.lock();
    for (space, _) in host.served.values() {
        space.shared().save(&mut space.engine());
    }
    host.ipsec.stop();
    drop(server);
    Ok(())
}

/// Reads the configuration again; a wrong one changes nothing.
fn reload(path: &Path, host: &parking_lot::Mutex<Host>) {
    process::notify("RELOADING=1");
    let done = Config::load(path).map_err(Error::Config).and_then(|config| host.lock().apply(&Arc::new(config)));
    match done {
        Ok(()) => eprintln!("sealane: {}: read again", path.display()),
        Err(e) => eprintln!("sealane: {e}; everything stays as it was"),
    }
    process::notify("READY=1");
}

fn source(host: &Arc<parking_lot::Mutex<Host>>) -> admin::Source {
    let host = host.clone();
    let started_s = wall_ms() / 1000;
    Arc::new(move || Snapshot {
        version: VERSION,
        release: env!("CARGO_PKG_VERSION").to_owned(),
        role: Role::Daemon,
        pid: std::process::id(),
        program: String::new(),
        started_s,
        taken_s: wall_ms() / 1000,
        namespaces: host.lock().spaces.describe(),
    })
}

/// Takes the rules of a network namespace away, those of a daemon that has ended: what was protected passes in clear.
///
/// # Errors
/// When a running instance owns them, or the kernel's.
pub fn clear(netns: Option<&str>) -> Result<(), Error> {
    let ns = Netns::named(netns).map_err(system(netns.unwrap_or("this network namespace")))?;
    ns.run(super::path::clear).and_then(|()| ns.run(crate::xfrm::path::clear)).map_err(system("the rules"))
}

impl Host {
    /// Makes a configuration the one in force.
    fn apply(&mut self, config: &Arc<Config>) -> Result<(), Error> {
        // Everything that can fail comes before anything changes.
        let mut wanted: BTreeMap<Option<String>, Vec<Made>> = BTreeMap::new();
        for at in 0..config.peers().len() {
            let made = self.make(config, at)?;
            wanted.entry(made.peer().netns.clone()).or_default().push(made);
        }
        let now_s = wall_ms() / 1000;
        for (netns, made) in wanted {
            let made: Vec<Made> = made;
            let prefixes: Vec<Prefix> = made.iter().flat_map(Made::prefixes).collect();
            let policy = policy(config, &netns, &made);
            let space = match self.served.get(&netns) {
                Some((space, _)) => {
                    let space = space.clone();
                    for prefix in prefixes {
                        space.shared().protect(prefix).map_err(system("the rules"))?;
                    }
                    set_keys(space.shared(), &made, now_s);
                    *space.shared().policy.write() = Some(policy);
                    end_strangers(space.shared(), space.netns());
                    space
                }
                None => {
                    let name = netns.as_deref();
                    let ns = Netns::named(name).map_err(system(name.unwrap_or("this network namespace").to_owned()))?;
                    let file = state::path(&self.folder, ns.id().map_err(system("a network namespace"))?.inode());
                    let there = ns.try_clone().map_err(system("a network namespace"))?;
                    let prepare = |shared: &Shared| {
                        set_keys(shared, &made, now_s);
                        *shared.policy.write() = Some(policy);
                        take_up(shared, &file, &there);
                        end_strangers(shared, &there);
                        let _ = shared.keep.set(keep(file));
                    };
                    self.spaces.open(ns, &prefixes, prepare).map_err(system("TCP-AO"))?
                }
            };
            self.served.insert(netns, (space, made));
        }
        // Peers that are gone from the configuration are cut off: their keys are not ours any more.
        for (netns, (space, made)) in &mut self.served {
            if !config.peers().iter().any(|p| p.netns == *netns) {
                made.clear();
            }
            let names: HashSet<String> = made.iter().map(|m| m.peer().name.clone()).collect();
            space.engine().retain_configured(&names);
        }
        self.ipsec.serve(config.ipsec.as_ref()).map_err(|(what, e)| Error::System(what, e))
    }

    fn make(&mut self, config: &Arc<Config>, at: usize) -> Result<Made, Error> {
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
            let of = |prefix: &crate::config::Prefix| {
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
        Ok(Made { config: config.clone(), at, number, mkts })
    }

    /// Makes the keys those of the time of day, where a chain has come to an edge.
    fn follow_the_time(&mut self) {
        let now_s = wall_ms() / 1000;
        for (space, made) in self.served.values() {
            let due: Vec<&Made> =
                made.iter().filter(|m| m.peer().chain.next_change_s(now_s - 2).is_some_and(|t| t <= now_s)).collect();
            for m in due {
                set_keys(space.shared(), std::slice::from_ref(m), now_s);
            }
        }
    }
}

fn set_keys(shared: &Shared, made: &[Made], now_s: i64) {
    let mut engine = shared.engine.lock();
    for m in made {
        engine.configure(m.number, &m.peer().name, &m.keys(now_s), m.peer().accept_icmps);
    }
}

fn policy(config: &Arc<Config>, netns: &Option<String>, made: &[Made]) -> Policy {
    let numbers: HashMap<String, u32> = made.iter().map(|m| (m.peer().name.clone(), m.number)).collect();
    let (config, netns) = (config.clone(), netns.clone());
    Arc::new(move |ends: &Ends| {
        let flow = Flow { netns: netns.as_deref(), vrf: None, local: ends.local, remote: ends.remote };
        config.peer_of(&flow).and_then(|p| numbers.get(&p.name).copied())
    })
}

/// Goes on with the connections of a daemon before us. Those that ended in between are over, and their peers are told.
fn take_up(shared: &Shared, file: &Path, netns: &Netns) {
    let list = match state::read(file) {
        Ok(list) => list,
        Err(e) => return eprintln!("sealane: {}: {e}: connections of before are lost", file.display()),
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
        eprintln!("sealane: {going_on} connections go on");
    }
    complain("which connections are left", asked);
}

/// Ends the connections with configured peers whose handshake nobody here has seen or kept: from before there were keys, or of
/// a daemon whose state is lost. Nothing of theirs can be signed, so they would hang until somebody's patience ends.
fn end_strangers(shared: &Shared, netns: &Netns) {
    let Some(policy) = shared.policy.read().clone() else { return };
    let is_stranger = |e: &Entry| {
        // A handshake is begun anew by itself, and what waits for its time to pass sends nothing of its own.
        let done = !matches!(e.state, State::SynSent | State::SynRecv | State::NewSynRecv | State::TimeWait);
        let ends = Ends::new(e.local, e.remote);
        done && policy(&ends).is_some() && !shared.engine.lock().tracks(&ends)
    };
    match netns.run(|| leftover::end_connections(is_stranger)) {
        Ok(0) => {}
        Ok(ended) => {
            eprintln!("sealane: ended {ended} connections with peers of the configuration that cannot be signed")
        }
        Err(e) => complain("connections that cannot be signed", Err(e)),
    }
}

fn keep(file: PathBuf) -> Keep {
    Box::new(move |connections| {
        if let Err(e) = state::write(&file, connections) {
            eprintln!("sealane: {}: {e}: connections would not survive us", file.display());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::testing;
    use sealane_abi::admin::DataPath;
    use sealane_engine::tcp_ao::SavedConnection;
    use sealane_net::ao::info::Conn;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    #[test]
    fn connections_that_ended_without_us_are_over() {
        let Some(ns) = testing::namespace("transport::take_up") else { return };
        let spaces = Spaces::new(Profile::Open, Algorithms::new(&crate::run::registry()), DataPath::Auto);
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
        let space = spaces.open(ns, &[spec.peer], |shared| {
            shared.engine.lock().configure(0, "peer", &[ConfiguredKey { mkt, send: true, preferred: true }], false);
            take_up(shared, &file, &there);
        });
        let space = space.expect("it can be served");
        let mut known: Vec<_> = space.engine().connections().collect();
        known.sort();
        assert_eq!(known, [(Ends::new(gone, peer), false), (Ends::new(here, peer), true)]);
        std::fs::remove_file(&file).expect("it was there");
        drop((client, listener));
        spaces.stop();
    }
}
