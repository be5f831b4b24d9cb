//! What connect() and accept() do with keys (`tcp_connect`, `tcp_ao_connect_init`, `tcp_ao_copy_all_matching`).

use super::add::key_errno;
use super::md5::Md5Key;
use super::repair::Isns;
use super::{Family, Namespace, Socket, SocketFacts, SocketId};
use crate::Errno;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use sealane_abi::tcp::State;
use sealane_net::ao::info::{Child, ChildError, Conn};
use sealane_net::ao::mkt::unmapped;
use sealane_net::ao::table::Ids;

/// A connect() that may happen.
pub(super) struct Connecting {
    peer: IpAddr,
    vrf: i32,
    /// What becomes of the keys.
    keys: Keys,
    /// It happened: the SYN was seen.
    sent: bool,
    /// The MD5 keys that went then.
    dropped: Vec<Md5Key>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// There are none of TCP-AO.
    None,
    /// TCP-AO: other keys, and all of MD5, go.
    Ao,
    /// MD5: TCP-AO goes altogether.
    Md5,
}

/// A connection that the kernel accepted, told when its socket comes into being.
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
    /// connect() to `peer`, before the kernel makes it. It changes nothing but what the kernel remembers of a refused
    /// one: whoever calls then tells by [`Namespace::syn_sent`] or [`Namespace::connect_done`] that it happened.
    ///
    /// # Errors
    /// [`Errno::EKEYREJECTED`] when the socket has TCP-AO keys and none for the peer, or keys of both kinds.
    pub fn connect(&mut self, id: SocketId, facts: &SocketFacts<'_>, peer: SocketAddr) -> Result<(), Errno> {
        let Some(socket) = self.sockets.get_mut(&id) else { return Ok(()) };
        socket.connecting = None;
        if !may_connect(facts, peer) {
            // The kernel refuses this one before it looks at keys.
            return Ok(());
        }
        let peer = target(facts, peer.ip());
        let vrf = facts.vrf();
        let ao = socket.info.as_ref().is_some_and(|i| i.keys().lookup(peer, Ids::any(vrf)).is_some());
        let md5 = socket.md5.lookup(unmapped(peer), Some(vrf)).is_some();
        let required = socket.info.as_ref().is_some_and(|i| i.ao_required);
        let keys = match &socket.info {
            None => Keys::None,
            Some(_) if md5 && !ao && !required => Keys::Md5,
            Some(_) if ao && !md5 => Keys::Ao,
            Some(_) => {
                socket.peer = Some(peer);
                return Err(Errno::EKEYREJECTED);
            }
        };
        socket.connecting = Some(Connecting { peer, vrf, keys, sent: false, dropped: Vec::new() });
        Ok(())
    }

    /// The SYN of a connect() was seen: it happens. `isn` is its sequence number.
    pub fn syn_sent(&mut self, id: SocketId, local: SocketAddr, peer: SocketAddr, isn: u32) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if let Some(mut connecting) = socket.connecting.take() {
            socket.commit(&mut connecting);
            socket.connecting = Some(connecting);
        }
        let risn = socket.isns.risn;
        socket.isns = Isns { lisn: isn, snd_sne: 0, ..socket.isns };
        if let Some(info) = &mut socket.info
            && info.conn().is_none_or(|c| (c.lisn, c.local, c.remote) != (isn, local, peer))
        {
            info.clear_conn();
            info.set_conn(Conn::new(local, peer, isn, risn));
        }
    }

    /// The kernel's answer to the connect() that [`Namespace::connect`] allowed, with the facts after it. Returns the MD5
    /// keys that the kernel's TCP-AO would have deleted with it: whoever calls deletes them.
    ///
    /// # Errors
    /// When the traffic keys of a connection in repair mode cannot be derived.
    pub fn connect_done(
        &mut self,
        id: SocketId,
        facts: &SocketFacts<'_>,
        answer: Result<(), Errno>,
    ) -> Result<Vec<Md5Key>, Errno> {
        let Some(socket) = self.sockets.get_mut(&id) else { return Ok(Vec::new()) };
        let Some(mut connecting) = socket.connecting.take() else { return Ok(Vec::new()) };
        // However the wait for the handshake ends, a SYN was sent; otherwise these are the answers to one that was.
        if !connecting.sent && !matches!(answer, Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR)) {
            // An IPv6 socket remembers the peer before it looks for a route.
            if facts.family == Family::V6 {
                socket.peer = Some(connecting.peer);
            }
            return Ok(Vec::new());
        }
        socket.commit(&mut connecting);
        if let Some(seqs) = facts.repair.filter(|_| answer.is_ok() && facts.peer.is_some()) {
            // In repair mode no SYN is sent; the connection stands at once.
            let isns = Isns { lisn: seqs.send, snd_sne: 0, rcv_sne: 0, ..socket.isns };
            socket.set_isns(facts, isns)?;
        }
        Ok(connecting.dropped)
    }

    /// A listening socket accepted a connection whose SYN was signed: the new socket starts with the keys for its peer.
    ///
    /// # Errors
    /// [`Errno::EKEYREJECTED`] when they have gone in the meantime, [`Errno::ENOMEM`]; the connection must not be then.
    pub fn accepted(&mut self, accepted: &Accepted) -> Result<(), Errno> {
        let listener = self.info(accepted.listener).ok_or(Errno::EKEYREJECTED)?;
        let info = listener.for_child(&accepted.handshake).map_err(|e| match e {
            ChildError::NoKey => Errno::EKEYREJECTED,
            ChildError::Key(e) => key_errno(e),
        })?;
        let mut child =
            Socket { info: Some(info), peer: Some(accepted.handshake.conn.remote.ip()), ..Socket::default() };
        child.recount();
        if child.omem >= self.optmem_max {
            return Err(Errno::ENOMEM);
        }
        self.sockets.insert(accepted.child, child);
        Ok(())
    }
}

impl Socket {
    /// The connect() happens, unless it already did: the keys that it rules out go.
    fn commit(&mut self, connecting: &mut Connecting) {
        if core::mem::replace(&mut connecting.sent, true) {
            return;
        }
        self.peer = Some(connecting.peer);
        match (connecting.keys, &mut self.info) {
            (Keys::Ao, Some(info)) => {
                info.clear_conn();
                info.keep_matching(connecting.peer, connecting.vrf);
                connecting.dropped = self.md5.take();
            }
            (Keys::Md5, _) => self.info = None,
            _ => {}
        }
        self.recount();
    }
}

/// Whether the kernel gets as far as looking at keys; about routes only it knows.
fn may_connect(facts: &SocketFacts<'_>, peer: SocketAddr) -> bool {
    let linked = match peer {
        SocketAddr::V6(p) if p.ip().is_unicast_link_local() => p.scope_id() != 0 || facts.bound_ifindex != 0,
        _ => true,
    };
    let ip = peer.ip();
    let reachable = match (facts.family, ip) {
        (Family::V4, IpAddr::V4(a)) => !a.is_broadcast(),
        (Family::V6, IpAddr::V6(a)) => !(facts.v6only && a.to_ipv4_mapped().is_some()),
        _ => false,
    };
    facts.state == State::Close && linked && reachable && !unmapped(ip).is_multicast()
}

/// The address that connect() to `peer` leads to: the unspecified one stands for this machine.
fn target(facts: &SocketFacts<'_>, peer: IpAddr) -> IpAddr {
    let local = facts.local.map(|l| l.ip()).filter(|l| !unmapped(*l).is_unspecified());
    let here = local.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), unmapped);
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
