//! Sockets whose programs set their keys, as they survive a restart of the process.
//!
//! The process that keeps them asks for changes ([`Namespace::take_changes`]), and writes them before the program learns
//! that its call was successful.

use crate::connecting::{Connecting, Keys, Progress};
use crate::facts::SocketId;
use crate::flows::{Ends, MADE_UP};
use crate::namespace::{Namespace, Socket};
use crate::saved::Saved;
use core::net::IpAddr;
use sealane_net_ao::info::{AoInfo, Conn};
use sealane_net_ao::mkt::Mkt;
use std::sync::Arc;

/// A socket with keys of its program. It holds secrets: no `Debug`.
#[derive(Clone)]
pub struct KeptSocket {
    /// The kernel's cookie; 0 when it is not known.
    pub cookie: u64,
    /// Its keys, the newest first.
    pub keys: Vec<Arc<Mkt>>,
    /// The place among `keys` of the key that it signs with.
    pub current: Option<usize>,
    /// The place of the key that it asks its peer for.
    pub rnext: Option<usize>,
    /// Segments without the option are dropped.
    pub ao_required: bool,
    /// ICMP errors reach it.
    pub accept_icmps: bool,
    /// It was seen to listen.
    pub listening: bool,
    /// The peer of its last connect(), and its port at that time.
    pub remembered: Option<(IpAddr, Option<u16>)>,
    /// A connect() that was allowed, and may still fail.
    pub connecting: Option<KeptConnect>,
    /// Its connection.
    pub conn: Option<Conn>,
    /// Whether both ISNs of the connection are known, and with them its traffic keys.
    pub keyed: bool,
    /// The MSS that the peer announced, 0 when it is not known.
    pub peer_mss: u16,
    /// The VRF of the connection, 0 for none.
    pub vrf: i32,
}

/// A connect() whose SYN may have left already or may leave at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptConnect {
    /// The peer.
    pub peer: IpAddr,
    /// The VRF, 0 for none.
    pub vrf: i32,
    /// The keys that the connection will use.
    pub keys: Keys,
    /// The peer of the connect() before, and the socket's port at that time.
    pub before: Option<(IpAddr, Option<u16>)>,
    /// Whether its SYN was seen.
    pub sent: bool,
}

/// A change of a socket.
pub struct Change {
    /// The number under which it is kept.
    pub number: u64,
    /// Its state; `None` if it is gone, or its program has no keys any more.
    pub socket: Option<KeptSocket>,
}

impl Namespace {
    /// Notes changes of sockets with keys of programs from now on, and counts all of now as changed.
    pub fn note_changes(&mut self) {
        self.sockets.note_changes();
    }

    /// Whether there are changes of sockets with keys of programs.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.sockets.is_touched()
    }

    /// Counts sockets as changed whose sequence numbers have gone far, or whose peer asks for another key, since they
    /// were taken as changes. To be called about once a second.
    pub fn note_progress(&mut self) {
        let gone_far: Vec<SocketId> =
            self.sockets.iter().filter(|(_, s)| s.configured.is_none() && s.is_unsaved()).map(|(id, _)| *id).collect();
        gone_far.into_iter().for_each(|id| self.sockets.touch(id));
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let touched = self.sockets.take_touched();
        touched.into_iter().map(|id| Change { number: id.0, socket: self.kept(id) }).collect()
    }

    fn kept(&mut self, id: SocketId) -> Option<KeptSocket> {
        let (peer_mss, vrf) = self.flows.ends_of(id).map_or((0, 0), |ends| (self.mss_of(&ends), ends.vrf));
        let socket = self.sockets.data_mut(id).filter(|socket| socket.configured.is_none())?;
        let info = socket.info.as_ref()?;
        socket.saved = Saved::of(info);
        let refs: Vec<_> = info.keys().iter().collect();
        let place = |wanted| refs.iter().position(|(key, _)| Some(*key) == wanted);
        Some(KeptSocket {
            cookie: if id.0 & MADE_UP == 0 { id.0 } else { 0 },
            keys: refs.iter().map(|(_, key)| key.mkt.clone()).collect(),
            current: place(info.current()),
            rnext: place(info.rnext()),
            ao_required: info.ao_required,
            accept_icmps: info.accept_icmps,
            listening: socket.listening,
            remembered: socket.remembered,
            connecting: socket.connecting.as_ref().map(|c| KeptConnect {
                peer: c.peer,
                vrf: c.vrf,
                keys: c.keys,
                before: c.before,
                sent: c.sent,
            }),
            conn: info.conn().copied(),
            keyed: info.is_keyed(),
            peer_mss,
            vrf,
        })
    }

    /// Puts a socket back that an earlier process kept. Returns its id, and whether its keys could be derived: without
    /// them it is cut off.
    pub fn restore_kept(&mut self, kept: &KeptSocket) -> (SocketId, bool) {
        let keyed = keyed(kept);
        let is_keyed = keyed.is_some();
        let info = keyed.unwrap_or_else(|| {
            let mut info = AoInfo::new();
            info.ao_required = true;
            info
        });
        let id = self.restored_id(kept.cookie);
        let progress = if kept.keyed { Progress::Connected } else { Progress::Unconnected };
        let (remembered, listening) = (kept.remembered, kept.listening);
        let connecting = kept.connecting.map(|c| Connecting {
            peer: c.peer,
            vrf: c.vrf,
            keys: c.keys,
            before: c.before,
            sent: c.sent,
            dropped: Vec::new(),
        });
        let mut socket = Socket { info: Some(info), remembered, progress, connecting, listening, ..Socket::default() };
        socket.recount();
        self.sockets.insert(id, socket);
        if let Some(conn) = kept.conn {
            let ends = Ends::new(conn.local, conn.remote).in_vrf(kept.vrf);
            if kept.keyed {
                self.reopen(id, ends, kept.peer_mss);
            } else {
                self.reopen_handshake(id, ends);
            }
        }
        (id, is_keyed)
    }

    /// Takes all keys away that programs set. Their connections are cut off where rules protect them.
    pub fn forget_programs(&mut self) {
        let ids: Vec<SocketId> = self
            .sockets
            .iter()
            .filter(|(_, s)| s.configured.is_none() && s.info.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(info) = self.info_mut(id) else { continue };
            let keys: Vec<_> = info.keys().iter().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| info.remove_key_async(key));
            // Without keys, and required, nothing passes.
            info.ao_required = true;
        }
    }
}

/// The state of a socket with its keys; `None` if a driver cannot derive them.
fn keyed(kept: &KeptSocket) -> Option<AoInfo> {
    let mut info = AoInfo::new();
    info.ao_required = kept.ao_required;
    info.accept_icmps = kept.accept_icmps;
    // The newest key is added last.
    let mut refs = Vec::new();
    for mkt in kept.keys.iter().rev() {
        refs.push(info.add_key(mkt.clone()).ok()?);
    }
    refs.reverse();
    let at = |place: Option<usize>| place.and_then(|place| refs.get(place)).copied();
    if let Some(key) = at(kept.current) {
        info.set_current(key);
    }
    if let Some(key) = at(kept.rnext) {
        info.set_rnext(key);
    }
    // The SNEs continue from their saved bases; both ends have moved less than half of the sequence space since.
    if let Some(conn) = kept.conn {
        info.set_conn(conn);
        if kept.keyed {
            info.derive().ok()?;
        }
    }
    Some(info)
}
