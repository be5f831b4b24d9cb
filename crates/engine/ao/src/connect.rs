//! The effects of connect() and accept() on keys (`tcp_connect`, `tcp_ao_connect_init`, `tcp_ao_copy_all_matching`).

use crate::add::key_errno;
use crate::connecting::{Connecting, Keys, Progress};
use crate::facts::{Family, SocketFacts, SocketId};
use crate::isns::Isns;
use crate::md5_keys::Md5Key;
use crate::namespace::{Namespace, Socket};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use sealane_abi::Errno;
use sealane_abi::tcp::State;
use sealane_net_ao::info::{Child, ChildError, Conn};
use sealane_net_ao::mkt::unmapped;
use sealane_net_ao::table::Ids;

/// The point that the kernel reaches in connect(), apart from routing errors, which only the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectStage {
    /// It fails before anything has changed.
    Refused,
    /// It fails after it has stored the peer's address.
    AddressTaken,
    /// It looks up keys.
    Keys,
}

/// A connection that the kernel accepted.
#[derive(Debug, Clone, Copy)]
pub struct Accepted {
    /// The listening socket.
    pub listener: SocketId,
    /// The new one.
    pub child: SocketId,
    /// Both ends, ISNs and the KeyIDs of the SYN.
    pub handshake: Child,
}

impl Namespace {
    /// Decides about a connect() to `peer` before the kernel makes it. Nothing changes yet. The caller reports the
    /// result by [`Namespace::syn_sent`] and [`Namespace::connect_done`]; without the latter, [`Namespace::adopt`]
    /// infers it.
    ///
    /// # Errors
    /// [`Errno::EKEYREJECTED`] when the socket has TCP-AO keys and none for the peer, or keys of both kinds.
    pub fn connect(&mut self, id: SocketId, facts: &SocketFacts<'_>, peer: SocketAddr) -> Result<(), Errno> {
        // An earlier connect() may be in progress without its SYN having been seen.
        self.infer_connect(id, facts);
        let Some(socket) = self.sockets.get_mut(id) else { return Ok(()) };
        let stage = connect_stage(facts, peer);
        if stage == ConnectStage::Refused || socket.progress != Progress::Unconnected {
            return Ok(());
        }
        let peer = target(facts, peer.ip());
        let vrf = facts.vrf();
        let keys = if stage == ConnectStage::AddressTaken { Keys::None } else { socket.keys_for(peer, vrf) };
        let before = socket.remembered;
        // An IPv6 socket stores the peer before it looks for a route, an IPv4 socket before it looks up keys.
        if facts.family == Family::V6 || keys == Keys::Rejected {
            socket.remembered = Some((peer, facts.local_port()));
        }
        socket.connecting = Some(Connecting { peer, vrf, keys, before, sent: false, dropped: Vec::new() });
        if keys == Keys::Rejected { Err(Errno::EKEYREJECTED) } else { Ok(()) }
    }

    /// Handles a connect() with `AF_UNSPEC`: the socket may be connected again.
    pub fn disconnect(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.progress = Progress::Unconnected;
            socket.connecting = None;
        }
    }

    /// Infers from its SYN a connect() that was not reported: io_uring(7) and MSG_FASTOPEN connect without the call.
    pub(crate) fn infer_from_syn(&mut self, id: SocketId, vrf: i32, local: SocketAddr, peer: SocketAddr, isn: u32) {
        let unreported = |socket: &Socket| {
            let same = |c: &Conn| (c.lisn, c.local, c.remote) == (isn, local, peer);
            socket.connecting.is_none()
                && socket.progress == Progress::Unconnected
                && socket.configured.is_none()
                && !socket.info.as_ref().and_then(|i| i.conn()).is_some_and(same)
        };
        if !self.sockets.get(&id).is_some_and(unreported) {
            return;
        }
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let keys = socket.keys_for(peer.ip(), vrf);
        let before = socket.remembered.replace((peer.ip(), Some(local.port())));
        // With keys that do not allow the connection there is none to sign the SYN by, which is dropped.
        socket.connecting = Some(Connecting { peer: peer.ip(), vrf, keys, before, sent: false, dropped: Vec::new() });
        socket.progress = Progress::Connecting;
    }

    /// Handles the SYN of a connect(), which therefore happens. `isn` is its sequence number.
    pub fn syn_sent(&mut self, id: SocketId, local: SocketAddr, peer: SocketAddr, isn: u32) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if let Some(mut connecting) = socket.connecting.take() {
            socket.commit(&mut connecting);
            socket.connecting = Some(connecting);
        }
        let Some(info) = &mut socket.info else { return };
        let conn = Conn::new(local, peer, isn, socket.isns.risn);
        socket.isns = Isns { lisn: isn, snd_sne: 0, ..socket.isns };
        let same = |c: &Conn| (c.lisn, c.local, c.remote) == (conn.lisn, conn.local, conn.remote);
        if !info.conn().is_some_and(same) {
            info.clear_conn();
            info.set_conn(conn);
        }
    }

    /// Handles the kernel's answer to a connect() that [`Namespace::connect`] allowed, with the facts after it. Returns
    /// the MD5 keys that the kernel's own TCP-AO would have deleted; the caller deletes them.
    ///
    /// # Errors
    /// When the traffic keys of a connection in repair mode cannot be derived.
    pub fn connect_done(
        &mut self,
        id: SocketId,
        facts: &SocketFacts<'_>,
        answer: Result<(), Errno>,
    ) -> Result<Vec<Md5Key>, Errno> {
        let Some(socket) = self.sockets.get_mut(id) else { return Ok(Vec::new()) };
        socket.progress = match answer {
            Ok(()) => Progress::Connected,
            Err(Errno::EINPROGRESS | Errno::EINTR) => Progress::Connecting,
            Err(Errno::EALREADY | Errno::EISCONN) => socket.progress,
            Err(_) => Progress::Unconnected,
        };
        let Some(mut connecting) = socket.connecting.take() else { return Ok(Vec::new()) };
        // With these answers a SYN was sent, however the wait for the handshake ended.
        if !connecting.sent && !matches!(answer, Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR)) {
            let tried = !matches!(answer, Err(Errno::ECONNREFUSED | Errno::ECONNRESET | Errno::ECONNABORTED));
            socket.remembered = if answer == Err(Errno::EKEYREJECTED) || facts.family == Family::V6 && tried {
                Some((connecting.peer, facts.local_port()))
            } else {
                connecting.before
            };
            return Ok(Vec::new());
        }
        socket.commit(&mut connecting);
        socket.remembered = Some((connecting.peer, facts.local_port()));
        if let Some(seqs) = facts.repair.filter(|_| answer.is_ok() && facts.peer.is_some()) {
            // In repair mode no SYN is sent, and the connection is established at once.
            let isns = Isns { lisn: seqs.send, snd_sne: 0, rcv_sne: 0, ..socket.isns };
            socket.set_isns(facts, isns)?;
        }
        Ok(connecting.dropped)
    }

    /// Infers the result of a connect() whose answer was not reported from the facts at a later call.
    pub(crate) fn infer_connect(&mut self, id: SocketId, facts: &SocketFacts<'_>) {
        // Mostly there is nothing to infer, and that must not count as a change.
        if self.sockets.get(&id).is_none_or(|s| s.connecting.is_none()) {
            return;
        }
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let Some(mut connecting) = socket.connecting.take() else { return };
        if !connecting.sent && facts.unconnected() {
            // It failed early, or its SYN has not been sent yet.
            socket.connecting = Some(connecting);
            return;
        }
        socket.remembered = Some((connecting.peer, facts.local_port()));
        let unseen = !connecting.sent;
        socket.commit(&mut connecting);
        if let Some(seqs) = facts.repair.filter(|_| unseen && facts.state == State::Established) {
            let isns = Isns { lisn: seqs.send, snd_sne: 0, rcv_sne: 0, ..socket.isns };
            // Without traffic keys no segment can be sent, so a failure of the driver needs no further handling.
            let _ = socket.set_isns(facts, isns);
        }
    }

    /// Creates the socket of a connection that a listener accepted with a signed SYN, with the listener's keys for its
    /// peer.
    ///
    /// # Errors
    /// [`Errno::EKEYREJECTED`] when these have been deleted meanwhile, [`Errno::ENOMEM`]. The connection must not go on
    /// then.
    pub fn accepted(&mut self, accepted: &Accepted) -> Result<(), Errno> {
        let listener = self.info(accepted.listener).ok_or(Errno::EKEYREJECTED)?;
        let info = listener.for_child(&accepted.handshake).map_err(|e| match e {
            ChildError::NoKey => Errno::EKEYREJECTED,
            ChildError::Key(e) => key_errno(e),
        })?;
        let conn = &accepted.handshake.conn;
        let remembered = Some((conn.remote.ip(), Some(conn.local.port())));
        let progress = Progress::Connected;
        let mut child = Socket { info: Some(info), remembered, progress, ..Socket::default() };
        child.recount();
        if child.omem >= self.optmem_max {
            return Err(Errno::ENOMEM);
        }
        self.sockets.insert(accepted.child, child);
        Ok(())
    }
}

impl Socket {
    /// The keys of a connection to `peer`.
    fn keys_for(&self, peer: IpAddr, vrf: i32) -> Keys {
        let Some(info) = &self.info else { return Keys::None };
        let ao = info.keys().lookup(peer, Ids::any(vrf)).is_some();
        let md5 = self.md5.lookup(unmapped(peer), Some(vrf)).is_some();
        match (ao, md5) {
            (false, true) if !info.ao_required => Keys::Md5,
            (true, false) => Keys::Ao,
            _ => Keys::Rejected,
        }
    }

    /// Drops the keys that a connect() rules out, once.
    fn commit(&mut self, connecting: &mut Connecting) {
        if core::mem::replace(&mut connecting.sent, true) {
            return;
        }
        match (connecting.keys, &mut self.info) {
            (Keys::Ao, Some(info)) => {
                info.clear_conn();
                info.keep_matching(connecting.peer, connecting.vrf);
                connecting.dropped = self.md5.take();
            }
            (Keys::Md5, _) => (self.info, self.isns) = (None, Isns::default()),
            _ => {}
        }
        self.recount();
    }
}

fn connect_stage(facts: &SocketFacts<'_>, peer: SocketAddr) -> ConnectStage {
    let bound_to_v4 = bound(facts).map(|l| l.is_ipv4());
    if facts.state != State::Close || peer.ip().is_multicast() {
        return ConnectStage::Refused;
    }
    let (pass, otherwise) = match (facts.family, peer) {
        (Family::V4, SocketAddr::V4(p)) => (!p.ip().is_broadcast(), ConnectStage::Refused),
        (Family::V6, SocketAddr::V6(p)) if p.ip().is_unicast_link_local() => {
            (p.scope_id() != 0 || facts.bound_ifindex != 0, ConnectStage::Refused)
        }
        (Family::V6, SocketAddr::V6(p)) => match p.ip().to_ipv4_mapped() {
            Some(a) => {
                let unicast = !a.is_multicast() && !a.is_broadcast();
                (unicast && !facts.v6only && bound_to_v4 != Some(false), ConnectStage::AddressTaken)
            }
            None => (p.ip().is_unspecified() || bound_to_v4 != Some(true), ConnectStage::AddressTaken),
        },
        _ => (false, ConnectStage::Refused),
    };
    if pass { ConnectStage::Keys } else { otherwise }
}

/// The address that the socket is bound to, if it is bound to one.
fn bound(facts: &SocketFacts<'_>) -> Option<IpAddr> {
    facts.local.map(|l| unmapped(l.ip())).filter(|l| !l.is_unspecified())
}

/// The address that connect() to `peer` connects to: the unspecified one means this host.
fn target(facts: &SocketFacts<'_>, peer: IpAddr) -> IpAddr {
    let local = bound(facts);
    let here = local.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    match (peer, here) {
        (IpAddr::V4(a), _) if a.is_unspecified() => here,
        (IpAddr::V6(a), IpAddr::V4(here)) if a.to_ipv4_mapped().is_some_and(|a| a.is_unspecified()) => {
            here.to_ipv6_mapped().into()
        }
        (IpAddr::V6(a), IpAddr::V4(_)) if a.is_unspecified() && local.is_some() => {
            Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()
        }
        (IpAddr::V6(a), _) if a.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        _ => peer,
    }
}
