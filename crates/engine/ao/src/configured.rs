//! Keys from a configuration, for programs that know nothing of TCP-AO.
//!
//! A configured peer is a template: a listener without a kernel socket, from which connections in both directions take
//! their keys. When the configuration or the time of day changes its keys, those of its connections follow.

use crate::facts::SocketId;
use crate::flows::{Ends, MADE_UP};
use crate::namespace::{Namespace, Socket};
use crate::saved::Saved;
use core::net::IpAddr;
use sealane_crypto::mac::MacTfm;
use sealane_net_ao::info::{AoInfo, Conn};
use sealane_net_ao::mkt::Mkt;
use sealane_net_ao::sne::Sne;
use sealane_net_ao::table::{Ids, Key, KeyRef};
use sealane_net_ao::traffic::Wanted;
use std::collections::HashSet;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Marks the cookies of templates. Made-up cookies of connections count up from [`MADE_UP`].
const TEMPLATE: u64 = MADE_UP | 1 << 62;

/// A key of a configured peer at the present time.
pub struct ConfiguredKey {
    /// The key.
    pub mkt: Arc<Mkt>,
    /// Whether segments may be sent with it. A key may be accepted for longer than it is sent with.
    pub send: bool,
    /// Whether new connections begin with it, and peers are asked to use it.
    pub preferred: bool,
}

/// A configured peer at the present time.
pub struct ConfiguredPeer<'a> {
    /// Its number, which stays as long as it is configured.
    pub number: u32,
    /// Its name.
    pub name: &'a str,
    /// Its keys. Without any all segments to and from it are dropped.
    pub keys: Vec<ConfiguredKey>,
    /// Whether ICMP errors about its connections count.
    pub accept_icmps: bool,
}

/// The state of a connection that survives a restart of the process. It holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedConnection {
    /// The kernel's cookie of its socket; 0 when it is not known.
    pub cookie: u64,
    /// The name of the configured peer.
    pub peer: String,
    /// Both ends, both ISNs, and the SNEs with their bases.
    pub conn: Conn,
    /// SendID of the key that it sends with.
    pub current: Option<u8>,
    /// RecvID of the key that it asks for.
    pub rnext: Option<u8>,
    /// The MSS that the peer announced, 0 when it is not known.
    pub peer_mss: u16,
    /// Its VRF, 0 for none.
    pub vrf: i32,
}

fn template(peer: u32) -> SocketId {
    SocketId(TEMPLATE | u64::from(peer))
}

fn ids_of(mkt: &Mkt) -> (u8, u8) {
    (mkt.send_id, mkt.recv_id)
}

fn same(a: &Mkt, b: &Mkt) -> bool {
    a.send_id == b.send_id
        && a.recv_id == b.recv_id
        && a.mac_len == b.mac_len
        && a.exclude_options == b.exclude_options
        && a.peer == b.peer
        && a.ifindex == b.ifindex
        && a.algorithm.name == b.algorithm.name
        && a.reference() == b.reference()
        && bool::from(a.key().ct_eq(b.key()))
}

/// Replaces the keys of a socket by the configured ones. `remote` is its peer, `None` for the template.
fn update(info: &mut AoInfo, keys: &[ConfiguredKey], remote: Option<IpAddr>) {
    let meant: Vec<&ConfiguredKey> = keys.iter().filter(|k| remote.is_none_or(|ip| k.mkt.peer.contains(ip))).collect();
    let find = |info: &AoInfo, mkt: &Mkt| info.keys().iter().find(|(_, k)| same(&k.mkt, mkt)).map(|(r, _)| r);
    let gone: Vec<KeyRef> = (info.keys().iter())
        .filter(|(_, have)| !meant.iter().any(|want| same(&have.mkt, &want.mkt)))
        .map(|(r, _)| r)
        .collect();
    // New keys come before old ones go. One may have the ids of an old one: nobody sees both, because segments wait meanwhile.
    for want in &meant {
        if find(info, &want.mkt).is_none() && info.add_key(want.mkt.clone()).is_err() {
            // It is derived again for the next segment, and once a second. What is signed with it is dropped until then.
            info.add_key_later(want.mkt.clone());
        }
    }
    for key in gone {
        info.remove_key_async(key);
    }
    let preferred = meant.iter().find(|k| k.preferred).and_then(|k| find(info, &k.mkt));
    // The peer is asked for a key when that is there: it would silence a connection that has another one.
    let waits = |info: &AoInfo, key| info.rnext().is_some() && info.key(key).is_some_and(Key::is_wanted);
    if let Some(key) = preferred.filter(|key| !waits(info, *key)) {
        info.set_rnext(key);
    }
    // The peer chooses the current key, which stays until its time is over even if another one is preferred.
    let keeps = info
        .current()
        .and_then(|r| info.key(r))
        .is_some_and(|have| meant.iter().any(|want| want.send && same(&have.mkt, &want.mkt)));
    if let Some(key) = preferred.filter(|_| !keeps) {
        info.set_current(key);
    }
}

impl Namespace {
    /// Sets the keys of configured peers, and of their connections. No other sockets are looked at.
    pub fn configure(&mut self, peers: &[ConfiguredPeer<'_>]) {
        for peer in peers {
            self.may_want |= peer.keys.iter().any(|key| key.mkt.reference().is_some());
            self.name(peer);
            for id in self.sockets.of_peer(peer.number) {
                let Some(info) = self.sockets.get_mut(id).and_then(|socket| socket.info.as_mut()) else { continue };
                info.ao_required = true;
                info.accept_icmps = peer.accept_icmps;
                let remote = if id.0 & TEMPLATE == TEMPLATE { None } else { info.conn().map(|c| c.remote.ip()) };
                update(info, &peer.keys, remote);
                // A driver here may have failed, too.
                self.may_want |= info.wanted().next().is_some();
            }
        }
        self.dirty = true;
    }

    /// Makes the template of a configured peer, if there is none yet, and gives it the peer's name.
    fn name(&mut self, peer: &ConfiguredPeer<'_>) {
        let name: Arc<str> = Arc::from(peer.name);
        let id = template(peer.number);
        let socket = self.sockets.get_or_insert_with(id, || Socket {
            info: Some(AoInfo::new()),
            listening: true,
            configured: Some((peer.number, name.clone())),
            ..Socket::default()
        });
        let before = socket.configured.as_ref().map(|(_, name)| name.clone()).filter(|before| *before != name);
        if let Some(before) = before {
            self.sockets.set_configured(id, Some((peer.number, name.clone())));
            self.peers.remove(&before);
        }
        self.peers.insert(name, peer.number);
    }

    /// Forgets configured peers that are not among `names`, and removes the keys of their connections.
    pub fn retain_configured(&mut self, names: &HashSet<String>) {
        let gone: Vec<u32> = (self.sockets.iter())
            .filter(|(id, _)| id.0 & TEMPLATE == TEMPLATE)
            .filter_map(|(_, s)| s.configured.as_ref())
            .filter(|(_, name)| !names.contains(&**name))
            .map(|(peer, _)| *peer)
            .collect();
        if gone.is_empty() {
            return;
        }
        let without_keys = |number| ConfiguredPeer { number, name: "", keys: Vec::new(), accept_icmps: false };
        self.configure(&gone.iter().copied().map(without_keys).collect::<Vec<_>>());
        for peer in gone {
            self.sockets.remove(template(peer));
        }
        self.peers.retain(|name, _| names.contains(&**name));
    }

    /// The template of a configured peer.
    pub(crate) fn template(&self, peer: u32) -> Option<SocketId> {
        Some(template(peer)).filter(|id| self.sockets.contains_key(id))
    }

    /// Gives the keys of a configured peer to a socket that is about to connect.
    pub(crate) fn adopt_configured(&mut self, id: SocketId, peer: u32, remote: IpAddr) {
        let Some(from) = self.sockets.get(&template(peer)) else { return };
        let (Some(source), configured) = (&from.info, from.configured.clone()) else { return };
        let mut info = AoInfo::new();
        info.ao_required = true;
        info.accept_icmps = source.accept_icmps;
        let mkts: Vec<Arc<Mkt>> =
            source.keys().iter().filter(|(_, k)| k.mkt.peer.contains(remote)).map(|(_, k)| k.mkt.clone()).collect();
        for mkt in mkts.into_iter().rev() {
            let _ = info.add_key(mkt);
        }
        let ids = |k: Option<KeyRef>| k.and_then(|k| source.key(k)).map(|k| ids_of(&k.mkt));
        let at = |info: &AoInfo, ids: Option<(u8, u8)>| {
            ids.and_then(|(send, recv)| info.keys().by_ids(Ids::default().send(send).recv(recv)))
        };
        let (current, rnext) = (at(&info, ids(source.current())), at(&info, ids(source.rnext())));
        if let Some(key) = current {
            info.set_current(key);
        }
        if let Some(key) = rnext {
            info.set_rnext(key);
        }
        self.sockets.insert(id, Socket { info: Some(info), configured, ..Socket::default() });
    }

    /// Whether connections of configured peers have come or gone since the last [`Namespace::save`].
    #[must_use]
    pub fn dirty(&self) -> bool {
        self.dirty
    }

    /// Whether the state of configured peers' connections that survives a restart has changed since the last
    /// [`Namespace::save`].
    #[must_use]
    pub fn unsaved(&self) -> bool {
        self.dirty || self.sockets.values().any(|socket| socket.configured.is_some() && socket.is_unsaved())
    }

    /// The connections of configured peers.
    pub fn save(&mut self) -> Vec<SavedConnection> {
        self.dirty = false;
        let mut list = Vec::new();
        for (id, ends) in self.configured_flows() {
            let peer_mss = self.mss_of(&ends);
            let Some(socket) = self.sockets.data_mut(id) else { continue };
            let (Some((_, name)), Some(info)) = (&socket.configured, &socket.info) else { continue };
            let Some(conn) = info.conn().filter(|_| info.is_keyed()) else { continue };
            let key = |k: Option<KeyRef>| k.and_then(|k| info.key(k)).map(|k| ids_of(&k.mkt));
            socket.saved = Saved::of(info);
            list.push(SavedConnection {
                cookie: if id.0 & MADE_UP == 0 { id.0 } else { 0 },
                peer: name.to_string(),
                conn: *conn,
                current: key(info.current()).map(|k| k.0),
                rnext: key(info.rnext()).map(|k| k.1),
                peer_mss,
                vrf: ends.vrf,
            });
        }
        list
    }

    /// The traffic keys that connections of configured peers still want, and that are to be asked for: `most` at most, and each once.
    pub fn wanted(&mut self, most: usize, mut is_asked: impl FnMut(&Wanted) -> bool) -> Vec<(SocketId, Wanted)> {
        if !self.may_want {
            return Vec::new();
        }
        let configured = self.sockets.iter().filter(|(_, socket)| socket.configured.is_some());
        let infos = || configured.clone().filter_map(|(id, socket)| Some((*id, socket.info.as_ref()?)));
        let wanted = infos().flat_map(|(id, info)| info.wanted().map(move |wanted| (id, wanted)));
        let asked = wanted.filter(|(_, wanted)| is_asked(wanted)).take(most);
        let asked: Vec<(SocketId, Wanted)> = asked.map(|(id, wanted)| (id, wanted.clone())).collect();
        // Connections that begin later will want keys if their peer has one that is elsewhere.
        let has_elsewhere = |info: &AoInfo| info.keys().iter().any(|(_, key)| key.mkt.reference().is_some());
        self.may_want =
            !asked.is_empty() || infos().any(|(_, info)| has_elsewhere(info) || info.wanted().next().is_some());
        asked
    }

    /// Gives a connection a traffic key that it [wanted](Self::wanted).
    pub fn give(&mut self, id: SocketId, wanted: &Wanted, tfm: &Arc<MacTfm>) {
        // The verdict about segments of other bursts is as it was: they were dropped for want of the key, or had it themselves.
        if let Some(info) = self.sockets.data_mut(id).and_then(|socket| socket.info.as_mut()) {
            info.learn(wanted, tfm);
        }
        self.prefer(id);
    }

    /// Has a connection ask its peer for the key that the configuration prefers, if it has that key: it may have waited for it.
    pub(crate) fn prefer(&mut self, id: SocketId) {
        let peer = self.sockets.get(&id).and_then(|socket| socket.configured.as_ref()).map(|(peer, _)| *peer);
        let source = peer.and_then(|peer| self.info(template(peer)));
        // A peer with several prefixes has as many MKTs for each of its keys.
        let Some(preferred) = source.and_then(|info| info.key(info.rnext()?)).map(|key| ids_of(&key.mkt)) else {
            return;
        };
        let Some(info) = self.sockets.data_mut(id).and_then(|socket| socket.info.as_mut()) else { return };
        let found = info.keys().iter().find(|(_, key)| ids_of(&key.mkt) == preferred && !key.is_wanted());
        if let Some(key) = found.map(|(key, _)| key) {
            info.set_rnext(key);
        }
    }

    /// Restores a connection that an earlier process saved. Returns whether its peer is still configured.
    pub fn restore(&mut self, saved: &SavedConnection) -> bool {
        let Some(&peer) = self.peers.get(&*saved.peer) else { return false };
        let id = self.restored_id(saved.cookie);
        self.adopt_configured(id, peer, saved.conn.remote.ip());
        let Some(info) = self.info_mut(id) else { return false };
        // The SNEs continue from their saved bases; both ends have moved less than half of the sequence space since.
        info.set_conn(Conn {
            snd: Sne { ext: saved.conn.snd.ext, base: saved.conn.snd.base },
            rcv: Sne { ext: saved.conn.rcv.ext, base: saved.conn.rcv.base },
            ..saved.conn
        });
        if info.derive().is_err() {
            // The connection stays, and nothing of it passes as long as it has no keys: without it the kernel's would be ended.
            info.derive_later();
            self.may_want = true;
        }
        let Some(info) = self.info_mut(id) else { return false };
        let by = |ids| info.keys().by_ids(ids);
        let (current, rnext) = (
            saved.current.and_then(|id| by(Ids::default().send(id))),
            saved.rnext.and_then(|id| by(Ids::default().recv(id))),
        );
        // One that is missing leaves the key with which connections begin.
        if let Some(key) = current {
            info.set_current(key);
        }
        if let Some(key) = rnext {
            info.set_rnext(key);
        }
        self.reopen(id, Ends::new(saved.conn.local, saved.conn.remote).in_vrf(saved.vrf), saved.peer_mss);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_abi::Profile;
    use sealane_net_ao::alg::Algorithms;
    use sealane_net_ao::mkt::{MktSpec, Prefix};
    use std::collections::BTreeSet;

    /// Peers, each with connections.
    const PEERS: u32 = 300;
    const CONNECTIONS: u64 = 4;

    fn remote(peer: u32) -> IpAddr {
        IpAddr::from([10, 0, (peer >> 8) as u8, peer as u8])
    }

    fn configured(algorithms: &Algorithms, number: u32, key: &[u8]) -> ConfiguredPeer<'static> {
        let spec = MktSpec {
            algorithm: algorithms.get("hmac(sha1)").expect("in every build"),
            key,
            send_id: 1,
            recv_id: 1,
            mac_len: 12,
            exclude_options: false,
            peer: Prefix::host(remote(number)),
            ifindex: None,
        };
        let mkt = Arc::new(Mkt::new(&spec).unwrap_or_else(|e| panic!("{e}")));
        let name = Box::leak(format!("peer {number}").into_boxed_str());
        let keys = vec![ConfiguredKey { mkt, send: true, preferred: true }];
        ConfiguredPeer { number, name, keys, accept_icmps: false }
    }

    fn connection(peer: u32, n: u64) -> SocketId {
        SocketId(1 + u64::from(peer) * CONNECTIONS + n)
    }

    /// A namespace with peers and their connections, and as many sockets with keys of programs.
    fn namespace(algorithms: &Algorithms) -> Namespace {
        let mut namespace = Namespace::new(Profile::Open, algorithms.clone());
        namespace.configure(&(0..PEERS).map(|n| configured(algorithms, n, b"before")).collect::<Vec<_>>());
        for peer in 0..PEERS {
            (0..CONNECTIONS).for_each(|n| namespace.adopt_configured(connection(peer, n), peer, remote(peer)));
            namespace.sockets.insert(SocketId(1 << 40 | u64::from(peer)), Socket::default());
        }
        namespace.sockets.note_changes();
        namespace.sockets.take_touched();
        namespace
    }

    fn key(namespace: &Namespace, id: SocketId) -> Option<Vec<u8>> {
        let info = namespace.info(id)?;
        info.keys().iter().map(|(_, k)| k.mkt.key().to_vec()).next()
    }

    /// Each mutable access to a socket is counted: they are as many as there are sockets of these peers, and not as all sockets
    /// for each of them.
    #[test]
    fn only_the_sockets_of_a_peer_are_looked_at() {
        let algorithms = Algorithms::new(&sealane_crypto_portable::registry());
        let mut namespace = namespace(&algorithms);
        for some in [7..8, 0..PEERS] {
            let before = namespace.changes();
            namespace.configure(&some.clone().map(|n| configured(&algorithms, n, b"after")).collect::<Vec<_>>());
            let mut expected: HashSet<SocketId> = some.clone().map(template).collect();
            expected.extend(some.clone().flat_map(|peer| (0..CONNECTIONS).map(move |n| connection(peer, n))));
            // The template is looked up before all.
            let looked = expected.len() + some.len();
            assert_eq!(namespace.changes().sockets_since(before), looked as u64, "{some:?}");
            assert_eq!(namespace.sockets.take_touched(), expected, "{some:?}");
            assert!(expected.iter().all(|id| key(&namespace, *id).as_deref() == Some(b"after")), "{some:?}");
        }
    }

    #[test]
    fn the_sockets_of_a_peer_are_known_as_they_come_and_go() {
        let algorithms = Algorithms::new(&sealane_crypto_portable::registry());
        let mut namespace = namespace(&algorithms);
        let by_walking = |namespace: &Namespace| -> BTreeSet<(u32, SocketId)> {
            let sockets = namespace.sockets.iter();
            sockets.filter_map(|(id, socket)| Some((socket.configured.as_ref()?.0, *id))).collect()
        };
        let same = |namespace: &Namespace| {
            let indexed =
                (0..PEERS).flat_map(|peer| namespace.sockets.of_peer(peer).into_iter().map(move |id| (peer, id)));
            assert_eq!(indexed.collect::<BTreeSet<_>>(), by_walking(namespace));
        };
        same(&namespace);
        // A program sets keys of its own, a connection gets another peer's, and others close.
        namespace.sockets.insert(connection(1, 0), Socket::default());
        namespace.adopt_configured(connection(1, 1), 2, remote(2));
        namespace.sockets.set_configured(connection(1, 2), Some((3, Arc::from("peer 3"))));
        namespace.closed(connection(1, 3));
        same(&namespace);
        assert_eq!(namespace.sockets.of_peer(1), [template(1)]);
        let names = (2..PEERS).map(|n| format!("peer {n}")).collect();
        namespace.retain_configured(&names);
        same(&namespace);
        assert!(namespace.template(0).is_none() && namespace.template(2).is_some());
        assert!(key(&namespace, connection(0, 0)).is_none(), "its peer is gone");
        assert_eq!(namespace.peers.len(), names.len());
    }

    #[test]
    fn a_saved_connection_finds_its_peer_by_name() {
        let algorithms = Algorithms::new(&sealane_crypto_portable::registry());
        let mut namespace = namespace(&algorithms);
        let renamed = ConfiguredPeer { name: "another name", ..configured(&algorithms, 9, b"after") };
        namespace.configure(&[renamed]);
        let [local, end] = [remote(999), remote(9)].map(|ip| std::net::SocketAddr::new(ip, 179));
        let mut restore = |peer: &str| {
            let conn = Conn::new(local, end, 1, 2);
            let peer = peer.to_owned();
            namespace.restore(&SavedConnection {
                cookie: 77,
                peer,
                conn,
                current: None,
                rnext: None,
                peer_mss: 0,
                vrf: 0,
            })
        };
        assert_eq!(["peer 9", "peer of before", "another name"].map(&mut restore), [false, false, true]);
        assert_eq!(key(&namespace, SocketId(77)).as_deref(), Some(&b"after"[..]));
    }
}
