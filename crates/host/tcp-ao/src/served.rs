//! A network namespace that a daemon serves: its configured peers, what a predecessor has left there, and its programs.

use super::kept::Store;
use super::leftover;
use super::path::{PeerLookup, SaveConnections, Shared, maybe_unbound};
use super::programs::{self, ABSENT, ABSENT_NUMBER, Before, LOST, LOST_NUMBER};
use super::remote;
use super::space::{Space, Spaces};
use super::start::Peers;
use super::state;
use parking_lot::Mutex;
use sealane_abi::tcp::State;
use sealane_config::{Config, Flow, Peer};
use sealane_engine_ao::{ConfiguredKey, ConfiguredPeer, Ends, SavedConnection, SocketId};
use sealane_net_ao::mkt::{Mkt, Prefix};
use sealane_sys::netns::Netns;
use sealane_sys::runtime;
use sealane_sys::sock_diag::{Entry, SockDiag};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, error, info, warn};

/// The most peers whose keys are set before segments go on: each time all sockets are looked at once.
const AT_ONCE: usize = 256;

/// A configured peer with its prepared keys.
pub(super) struct PreparedPeer {
    pub(super) config: Arc<Config>,
    /// Index of the peer in the configuration.
    pub(super) at: usize,
    pub(super) number: u32,
    /// For each key of the chain, one MKT for each prefix.
    pub(super) mkts: Vec<Vec<Arc<Mkt>>>,
}

impl PreparedPeer {
    pub(super) fn peer(&self) -> &Peer {
        &self.config.peers()[self.at]
    }

    /// The peer at a time of day.
    fn configured(&self, now_s: i64) -> ConfiguredPeer<'_> {
        let peer = self.peer();
        let (number, keys, accept_icmps) = (self.number, self.keys(now_s), peer.accept_icmps);
        ConfiguredPeer { number, name: &peer.name, keys, accept_icmps }
    }

    /// The keys of the peer at a time of day, as far as they are there.
    fn keys(&self, now_s: i64) -> Vec<ConfiguredKey> {
        let chain = &self.peer().chain;
        let preferred = chain.preferred_of(now_s, |k| !self.mkts[k].is_empty());
        let mut keys = Vec::new();
        for k in chain.accepted(now_s) {
            let send = chain.may_send(k, now_s);
            for mkt in &self.mkts[k] {
                keys.push(ConfiguredKey { mkt: mkt.clone(), send, preferred: preferred == Some(k) });
            }
        }
        keys
    }

    pub(super) fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.peer().prefixes.iter().map(|p| Prefix { addr: p.addr, len: p.len })
    }
}

/// A network namespace that is served.
pub(super) struct Served {
    pub(super) space: Arc<Space>,
    /// The kernel's number of it.
    pub(super) cookie: u64,
    pub(super) peers: Vec<PreparedPeer>,
    /// The peers that are cut off, because the keys that programs had set for them are lost.
    pub(super) lost: Vec<Prefix>,
}

impl Served {
    /// Saves all connections for the next daemon.
    pub(super) fn save(&self) {
        self.space.context().in_scope(|| {
            self.space.shared().save();
            self.space.shared().keep_progress();
        });
    }

    /// Serves these peers in place of those of before. `named` is the configuration, and the name that the namespace has there.
    ///
    /// # Errors
    /// The kernel's: those of before are served.
    pub(super) fn serve_peers(
        &mut self,
        named: (&Arc<Config>, &Option<String>),
        peers: Vec<PreparedPeer>,
        now_s: i64,
    ) -> io::Result<()> {
        let space = self.space.clone();
        let _context = space.context().clone().entered();
        peers.iter().flat_map(PreparedPeer::prefixes).try_for_each(|prefix| space.shared().protect(prefix))?;
        set_keys(space.shared(), &peers, now_s);
        look_up_peers(space.shared(), Some(named), &peers, &self.lost);
        end_unknown_connections(space.shared(), space.netns());
        self.peers = peers;
        self.retain_peers();
        debug!(peers = self.peers.len(), "TCP-AO: peers of the configuration are served");
        Ok(())
    }

    /// Serves no configured peers any more.
    pub(super) fn leave_peers(&mut self) {
        self.peers.clear();
        // The workers keep no configuration with keys of before.
        look_up_peers(self.space.shared(), None, &[], &self.lost);
        self.retain_peers();
    }

    /// Cuts off the peers that are not configured any more.
    fn retain_peers(&self) {
        let mut names: HashSet<String> = self.peers.iter().map(|made| made.peer().name.clone()).collect();
        if !self.lost.is_empty() {
            names.insert(LOST.to_owned());
        }
        if self.peers.iter().any(|made| made.peer().vrf.is_some()) {
            names.insert(ABSENT.to_owned());
        }
        self.space.engine().retain_configured(&names);
    }

    /// Ends the service. The rules stay, and drop what they cover; whoever owns them goes on to do so. Nothing else is left.
    pub(super) fn end(self, spaces: &Spaces, folder: &Path) {
        let _context = self.space.context().clone().entered();
        spaces.close(&self.space);
        remote::forget(folder, self.cookie);
        let wiped = spaces.store(self.space.netns()).and_then(|store| store.map_or(Ok(()), |store| store.clear()));
        if let Err(e) = wiped {
            error!(error = %e, "TCP-AO: the keys of programs in a namespace that is not served any more: {e}");
        }
    }

    /// Ends the service of a namespace that has gone: nothing of ours keeps it. The rules stay, should it stay for another reason.
    pub(super) fn give_up(self, spaces: &Spaces, folder: &Path) {
        let space = self.space.clone();
        self.end(spaces, folder);
        space.disown();
        let state = space.netns().id().map(|id| state::path(folder, id.inode()));
        if let Err(e) = state.and_then(|path| runtime::remove(&path)) {
            warn!(error = %e, "TCP-AO: the connections of a namespace that has gone: {e}");
        }
    }
}

/// Serves the programs of a namespace from now on, or no longer: they lose their keys then.
///
/// # Errors
/// The kernel's.
pub(super) fn serve_programs(spaces: &Spaces, space: &Space, serve: bool) -> io::Result<()> {
    let _context = space.context().clone().entered();
    if serve && let Some(store) = spaces.store(space.netns())? {
        programs::begin(store, space.shared());
    }
    let did = space.serves_programs();
    space.serve_programs(serve);
    if did && !serve {
        space.engine().forget_programs();
        space.keep_changes();
    }
    Ok(())
}

/// A network namespace that is not served yet.
pub(super) struct NewNamespace {
    netns: Netns,
    there: Netns,
    cookie: u64,
    /// The connections of a predecessor.
    file: PathBuf,
    /// The programs of a predecessor, which go on.
    before: Option<Before>,
    /// Records of programs that are not served any more.
    forgotten: Option<Store>,
}

impl NewNamespace {
    /// Finds what a predecessor has left in a namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn find(spaces: &Spaces, folder: &Path, netns: Netns, serve_programs: bool) -> io::Result<Self> {
        let (file, cookie) = (state::path(folder, netns.id()?.inode()), netns.cookie()?);
        let (before, forgotten) = match spaces.store(&netns)? {
            Some(store) if serve_programs => {
                let of_before = |e: io::Error| io::Error::new(e.kind(), format!("the programs of before: {e}"));
                (Some(Before::find(store, spaces.algorithms(), &netns).map_err(of_before)?), None)
            }
            store => (None, store),
        };
        Ok(NewNamespace { there: netns.try_clone()?, netns, cookie, file, before, forgotten })
    }

    /// Opens it with these peers, and goes on with what was left. `named` is the configuration, and the name that it has there. A
    /// process that still serves it has so much time to end.
    ///
    /// # Errors
    /// The kernel's; `AddrInUse` when somebody else serves it.
    pub(super) fn open(
        self,
        spaces: &Spaces,
        named: Option<(&Arc<Config>, &Option<String>)>,
        peers: Vec<PreparedPeer>,
        now_s: i64,
        patience: Duration,
    ) -> io::Result<Served> {
        let NewNamespace { netns, there, cookie, file, mut before, forgotten } = self;
        if let Some(store) = forgotten {
            store.clear()?;
        }
        let prefixes: Vec<Prefix> = peers.iter().flat_map(PreparedPeer::prefixes).collect();
        let serve_programs = before.is_some();
        let covered = before.as_ref().map(|before| before.covered.clone()).unwrap_or_default();
        let mut lost = Vec::new();
        let prepare = |shared: &Shared| {
            set_keys(shared, &peers, now_s);
            if let Some(before) = &mut before {
                before.cut_off(&prefixes, shared);
                lost.clone_from(&before.lost);
            }
            look_up_peers(shared, named, &peers, &lost);
            let ids = restore_connections(shared, &file, &there);
            if let Some(before) = before.take() {
                before.restore(shared, &there);
            }
            // Devices may have come into other VRFs while no daemon ran.
            if let Err(e) = there.run(|| shared.follow_devices(&mut SockDiag::open()?)) {
                warn!(error = %e, "TCP-AO: which connections are left: {e}");
            }
            end_unknown_connections(shared, &there);
            let _ = shared.keep.set(keep(file, ids));
        };
        let space = spaces.open(netns, &Peers { fixed: &prefixes, by_keys: &covered }, patience, prepare)?;
        // By this file launchers know that the rules are a daemon's.
        space.context().in_scope(|| space.shared().save());
        space.serve_programs(serve_programs);
        Ok(Served { space, cookie, peers, lost })
    }
}

/// Has the workers find the configured peer of a connection from now on: by the configuration and the name of the namespace there,
/// if it has one.
fn look_up_peers(
    shared: &Shared,
    named: Option<(&Arc<Config>, &Option<String>)>,
    peers: &[PreparedPeer],
    lost: &[Prefix],
) {
    let vrfs: BTreeSet<String> = peers.iter().filter_map(|made| made.peer().vrf.clone()).collect();
    if !vrfs.is_empty() {
        let (keys, accept_icmps) = (Vec::new(), false);
        let absent = ConfiguredPeer { number: ABSENT_NUMBER, name: ABSENT, keys, accept_icmps };
        shared.engine.lock().configure(&[absent]);
    }
    {
        let mut wanted = shared.wanted_vrfs.lock();
        wanted.retain(|name, _| vrfs.contains(name));
        for name in &vrfs {
            wanted.entry(name.clone()).or_default();
        }
    }
    *shared.peer_lookup.write() = Some(peer_lookup(shared, named, peers, lost, vrfs));
    shared.tell_vrfs();
}

fn peer_lookup(
    shared: &Shared,
    named: Option<(&Arc<Config>, &Option<String>)>,
    peers: &[PreparedPeer],
    lost: &[Prefix],
    wanted_vrfs: BTreeSet<String>,
) -> PeerLookup {
    let numbers: HashMap<String, u32> = peers.iter().map(|made| (made.peer().name.clone(), made.number)).collect();
    let (named, lost) = (named.map(|(config, netns)| (config.clone(), netns.clone())), lost.to_vec());
    let vrfs = shared.vrfs.clone();
    Arc::new(move |ends: &Ends| {
        let in_vrf = |vrf: Option<&str>| {
            let (config, netns) = named.as_ref()?;
            let flow = Flow { netns: netns.as_deref(), vrf, local: ends.local, remote: ends.remote };
            config.peer_of(&flow).and_then(|peer| numbers.get(&peer.name).copied())
        };
        // One that has gone has no name, and no peers.
        let name_of = |vrf: i32| vrfs.lock().name(vrf.cast_unsigned()).unwrap_or_default().to_owned();
        let vrf = (ends.vrf != 0).then(|| name_of(ends.vrf));
        let is_absent = |name: &&String| !vrfs.lock().has(name);
        // A VRF of the configuration that is not there may have another name now: its peers must not go without keys.
        let absent =
            || wanted_vrfs.iter().filter(is_absent).find_map(|name| in_vrf(Some(name.as_str()))).map(|_| ABSENT_NUMBER);
        let is_lost = || lost.iter().any(|prefix| prefix.contains(ends.remote.ip())).then_some(LOST_NUMBER);
        in_vrf(vrf.as_deref()).or_else(absent).or_else(is_lost)
    })
}

/// Sets the keys of peers. Segments wait for a few at a time.
pub(super) fn set_keys<'a>(shared: &Shared, made: impl IntoIterator<Item = &'a PreparedPeer>, now_s: i64) {
    let mut made = made.into_iter().map(|m| m.configured(now_s)).peekable();
    while made.peek().is_some() {
        let some: Vec<ConfiguredPeer<'_>> = made.by_ref().take(AT_ONCE).collect();
        shared.engine.lock().configure(&some);
    }
}

/// Restores the connections of the previous daemon. Those whose sockets closed in between are ended, which their peers
/// are told. Returns which keys those that go on had.
fn restore_connections(shared: &Shared, file: &Path, netns: &Netns) -> IdsOfBefore {
    let mut ids = IdsOfBefore::new();
    let list = match state::read(file) {
        Ok(list) => list,
        Err(e) => {
            let file = file.display();
            error!(%file, error = %e, "{file}: {e}: connections of before are lost");
            return ids;
        }
    };
    if list.is_empty() {
        return ids;
    }
    let mut alive = HashSet::new();
    let asked = netns.run(|| {
        SockDiag::open()?.connections(|e| {
            if e.state != State::TimeWait {
                alive.insert(shared.ends_of(&e));
            }
        })
    });
    let mut engine = shared.engine.lock();
    let mut going_on = 0;
    for saved in list {
        if !engine.restore(&saved) {
            continue;
        }
        let ends = Ends::new(saved.conn.local, saved.conn.remote).in_vrf(saved.vrf);
        if asked.is_ok() && !maybe_unbound(ends).iter().any(|ends| alive.contains(ends)) {
            engine.destroyed(SocketId(saved.cookie), Some(ends), shared.now_ms());
        } else {
            ids.insert(Which::of(&saved), (saved.current, saved.rnext));
            going_on += 1;
        }
    }
    if going_on > 0 {
        info!(connections = going_on, "{going_on} connections go on");
    }
    if let Err(e) = asked {
        warn!(error = %e, "TCP-AO: which connections are left: {e}");
    }
    ids
}

/// Ends connections with configured peers whose handshake is not known: from before there were keys, or of a daemon
/// whose state is lost. Their segments cannot be signed, so they would hang until a timeout.
fn end_unknown_connections(shared: &Shared, netns: &Netns) {
    let Some(peer_lookup) = shared.peer_lookup.read().clone() else { return };
    let is_stranger = |e: &Entry| {
        // An unfinished handshake is tried again anyway, and a socket in TIME_WAIT sends nothing by itself.
        let done = !matches!(e.state, State::SynSent | State::SynRecv | State::NewSynRecv | State::TimeWait);
        let ends = shared.ends_of(e);
        // Those of a VRF that is not there may be another one's: they wait.
        let is_configured = peer_lookup(&ends).is_some_and(|number| number != ABSENT_NUMBER);
        // The segments of one that is bound to no device may pass a VRF.
        let passes = || shared.all_ends_of(e);
        done && is_configured && !passes().iter().any(|ends| shared.engine.lock().tracks(ends))
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

/// A connection, by what stays the same as long as it lives.
#[derive(PartialEq, Eq, Hash)]
struct Which {
    ends: (SocketAddr, SocketAddr, i32),
    isns: (u32, u32),
}

impl Which {
    fn of(saved: &SavedConnection) -> Self {
        let conn = &saved.conn;
        Which { ends: (conn.local, conn.remote, saved.vrf), isns: (conn.lisn, conn.risn) }
    }
}

/// The current and the RNext key of connections that a predecessor has left.
type IdsOfBefore = HashMap<Which, (Option<u8>, Option<u8>)>;

/// Connections as they are to be saved. One that has no key at all, or none that may be sent with, has neither a current nor an RNext
/// key until there is one. The next daemon may have them at once, and goes on with the ones of before.
fn with_ids_of_before<'a>(connections: &'a [SavedConnection], before: &mut IdsOfBefore) -> Cow<'a, [SavedConnection]> {
    if before.is_empty() {
        return Cow::Borrowed(connections);
    }
    let mut list = connections.to_vec();
    let mut left = IdsOfBefore::new();
    for connection in list.iter_mut().filter(|connection| (connection.current, connection.rnext) == (None, None)) {
        if let Some((which, ids)) = before.remove_entry(&Which::of(connection)) {
            (connection.current, connection.rnext) = ids;
            left.insert(which, ids);
        }
    }
    // The others have ended, or have keys again.
    *before = left;
    Cow::Owned(list)
}

fn keep(file: PathBuf, before: IdsOfBefore) -> SaveConnections {
    let before = Mutex::new(before);
    Box::new(move |connections| {
        if let Err(e) = state::write(&file, &with_ids_of_before(connections, &mut before.lock())) {
            let file = file.display();
            warn!(%file, error = %e, "{file}: {e}: connections would not survive us");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::start::DYING;
    use super::*;
    use sealane_abi::Profile;
    use sealane_abi::admin::DataPath;
    use sealane_net_ao::alg::Algorithms;
    use sealane_net_ao::info::Conn;
    use sealane_net_ao::mkt::MktSpec;
    use sealane_sys::testing;
    use std::net::{TcpListener, TcpStream};

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
            vrf: 0,
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
        let space = spaces.open(ns, &peers, DYING, |shared| {
            let keys = vec![ConfiguredKey { mkt, send: true, preferred: true }];
            shared.engine.lock().configure(&[ConfiguredPeer { number: 0, name: "peer", keys, accept_icmps: false }]);
            let ids = restore_connections(shared, &file, &there);
            assert!(ids.into_keys().eq([Which::of(&saved[0])]), "those that have ended need none");
        });
        let space = space.expect("it can be served");
        let mut known: Vec<_> = space.engine().connections().collect();
        known.sort();
        assert_eq!(known, [(Ends::new(gone, peer), false), (Ends::new(here, peer), true)]);
        std::fs::remove_file(&file).expect("it was there");
        drop((client, listener));
        spaces.stop(|_| true);
    }

    fn saved(port: u16, current: Option<u8>, rnext: Option<u8>) -> SavedConnection {
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let (cookie, peer, conn) = (u64::from(port), "peer".to_owned(), Conn::new(end(port), end(179), 1, 2));
        SavedConnection { cookie, peer, conn, current, rnext, peer_mss: 0, vrf: 0 }
    }

    #[test]
    fn connections_without_any_key_are_saved_with_those_of_before() {
        let of_before = [saved(1, Some(3), Some(4)), saved(2, Some(3), Some(4)), saved(3, Some(3), None)];
        let mut before = of_before.iter().map(|c| (Which::of(c), (c.current, c.rnext))).collect();
        let now = [saved(1, None, None), saved(2, Some(5), Some(6)), saved(4, None, None)];
        let expected = [of_before[0].clone(), now[1].clone(), now[2].clone()];
        assert_eq!(*with_ids_of_before(&now, &mut before), expected);
        assert_eq!(*with_ids_of_before(&now, &mut before), expected, "and again");
        // It has had other keys since.
        let keyed = [saved(1, Some(7), Some(7))];
        assert_eq!(*with_ids_of_before(&keyed, &mut before), keyed);
        assert_eq!(*with_ids_of_before(&now, &mut before), now);
        // Other connections between the same ends have other ISNs.
        before.insert(Which::of(&of_before[0]), (Some(3), Some(4)));
        let mut other = saved(1, None, None);
        other.conn.risn += 1;
        let other = [other];
        assert_eq!(*with_ids_of_before(&other, &mut before), other);
    }

    #[test]
    fn a_peer_goes_on_by_the_keys_that_are_there() {
        let key = |id: u8| {
            format!("[[peer.key]]\nsend-id = {id}\nrecv-id = {id}\nalgorithm = \"hmac(sha1)\"\nsecret = \"s\"\n")
        };
        let text = format!("[[peer]]\nname = \"p\"\nprefix = \"10.0.0.1\"\n{}{}", key(1), key(2));
        let config =
            Config::parse(&text, &mut |_| Err(io::ErrorKind::NotFound.into())).unwrap_or_else(|e| panic!("{e:?}"));
        let algorithms = Algorithms::new(&sealane_drivers::system_registry().0);
        let algorithm = algorithms.get("hmac(sha1)").expect("in every build");
        let mkt = |id: u8| {
            let peer = Prefix::host([10, 0, 0, 1].into());
            let (key, mac_len, exclude_options, ifindex) = (&b"s"[..], 12, false, None);
            let spec = MktSpec { algorithm, key, send_id: id, recv_id: id, mac_len, exclude_options, peer, ifindex };
            vec![Arc::new(Mkt::new(&spec).expect("a key"))]
        };
        let mut peer = PreparedPeer { config: Arc::new(config), at: 0, number: 0, mkts: vec![mkt(1), mkt(2)] };
        let keys = |peer: &PreparedPeer| {
            let keys = peer.keys(0).into_iter();
            keys.map(|key| (key.mkt.send_id, key.send, key.preferred)).collect::<Vec<_>>()
        };
        assert_eq!(keys(&peer), [(1, true, false), (2, true, true)]);
        peer.mkts[1].clear();
        assert_eq!(keys(&peer), [(1, true, true)]);
        peer.mkts[0].clear();
        assert_eq!(keys(&peer), []);
    }
}
