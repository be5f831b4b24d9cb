//! The sockets of a network namespace.

use crate::connecting::{Connecting, Progress};
use crate::drops::{Drops, LastDrop};
use crate::facts::{Family, SocketFacts, SocketId};
use crate::flows::Flows;
use crate::isns::Isns;
use crate::md5_keys::Md5Keys;
use crate::rules::Rules;
use crate::saved::Saved;
use crate::user::key_memory;
use core::net::IpAddr;
use core::ops::Deref;
use sealane_abi::Profile;
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::drop::Netstat;
use sealane_net_ao::info::AoInfo;
use sealane_net_ao::mkt::Prefix;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The state of one socket.
#[derive(Default)]
pub(crate) struct Socket {
    pub(crate) info: Option<AoInfo>,
    /// ISNs and SNEs while [`AoInfo`] has no connection to hold them.
    pub(crate) isns: Isns,
    pub(crate) md5: Md5Keys,
    /// Memory of its options in bytes, as the kernel counts it (`sk_omem_alloc`).
    pub(crate) omem: usize,
    /// The peer of the last connect(), which a socket keeps when its connection ends (`inet_daddr`), and the socket's
    /// port at that time.
    pub(crate) remembered: Option<(IpAddr, Option<u16>)>,
    pub(crate) progress: Progress,
    /// A connect() that was allowed and has no answer yet.
    pub(crate) connecting: Option<Connecting>,
    /// The last segment for it that was dropped.
    pub(crate) last_drop: Option<Box<LastDrop>>,
    /// Whether it was seen to listen.
    pub(crate) listening: bool,
    /// The configured peer whose keys it has: number and name. `None` when the program set them. Of a socket that is among
    /// the others it is changed by [`Sockets::set_configured`] only.
    pub(crate) configured: Option<(u32, Arc<str>)>,
    /// Its state when it was last saved.
    pub(crate) saved: Option<Saved>,
}

impl Socket {
    /// The peer that a new key has to match.
    pub(crate) fn peer(&self, facts: &SocketFacts<'_>) -> Option<IpAddr> {
        // An IPv4 socket forgets its peer when it is bound again.
        let forgotten = |port| facts.family == Family::V4 && port != facts.local_port();
        let remembered = self.remembered.filter(|(_, port)| !forgotten(*port)).map(|(peer, _)| peer);
        facts.peer.map(|p| p.ip()).or(remembered).filter(|p| !p.is_unspecified())
    }

    /// Whether its connection has gone so far since it was saved that it has to be saved again.
    pub(crate) fn is_unsaved(&self) -> bool {
        matches!((&self.saved, &self.info), (Some(saved), Some(info)) if saved.is_outdated(info))
    }

    /// Counts the memory of all keys anew.
    pub(crate) fn recount(&mut self) {
        let keys = self.info.iter().flat_map(|i| i.keys().iter());
        self.omem = self.md5.memory() + keys.map(|(_, k)| key_memory(&k.mkt.algorithm)).sum::<usize>();
    }
}

/// The sockets of a namespace. Each mutable access to one counts as a change by which a burst that has been begun may have
/// to be judged again; [`Sockets::data_mut`] is the exception.
#[derive(Default)]
pub(crate) struct Sockets {
    by_id: HashMap<SocketId, Socket>,
    /// The sockets of each configured peer, by its number.
    of_peers: BTreeSet<(u32, SocketId)>,
    changes: u64,
    /// The sockets that changed or went since they were last taken; `None` if nobody asks.
    touched: Option<HashSet<SocketId>>,
}

impl Sockets {
    /// Notes which sockets change from now on, and counts all of now as changed.
    pub(crate) fn note_changes(&mut self) {
        self.touched = Some(self.by_id.keys().copied().collect());
    }

    /// Whether [`Sockets::take_touched`] would return any.
    pub(crate) fn is_touched(&self) -> bool {
        self.touched.as_ref().is_some_and(|touched| !touched.is_empty())
    }

    /// The sockets that changed or went since the last call.
    pub(crate) fn take_touched(&mut self) -> HashSet<SocketId> {
        self.touched.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Counts a socket as changed for [`Sockets::take_touched`] only.
    pub(crate) fn touch(&mut self, id: SocketId) {
        if let Some(touched) = self.touched.as_mut().filter(|_| self.by_id.contains_key(&id)) {
            touched.insert(id);
        }
    }

    /// A socket, mutable for changes that packets make: counters, sequence numbers, the key that the peer asks for, the
    /// last drop. These do not alter the verdict about segments of other bursts.
    pub(crate) fn data_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.changes += 1;
        self.touch(id);
        self.by_id.get_mut(&id)
    }

    pub(crate) fn get_or_insert_with(&mut self, id: SocketId, make: impl FnOnce() -> Socket) -> &mut Socket {
        self.changes += 1;
        let socket = self.by_id.entry(id).or_insert_with(make);
        if let Some((peer, _)) = socket.configured {
            self.of_peers.insert((peer, id));
        }
        if let Some(touched) = &mut self.touched {
            touched.insert(id);
        }
        socket
    }

    pub(crate) fn insert(&mut self, id: SocketId, socket: Socket) {
        self.changes += 1;
        let now = socket.configured.as_ref().map(|(peer, _)| *peer);
        let before = self.by_id.insert(id, socket);
        self.index(id, before.and_then(|socket| socket.configured), now);
        self.touch(id);
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Socket> {
        self.changes += 1;
        self.touch(id);
        let socket = self.by_id.remove(&id);
        let before = socket.as_ref().and_then(|socket| socket.configured.clone());
        self.index(id, before, None);
        socket
    }

    /// Gives a socket the configured peer whose keys it has.
    pub(crate) fn set_configured(&mut self, id: SocketId, configured: Option<(u32, Arc<str>)>) {
        let Some(socket) = self.get_mut(id) else { return };
        let now = configured.as_ref().map(|(peer, _)| *peer);
        let before = core::mem::replace(&mut socket.configured, configured);
        self.index(id, before, now);
    }

    fn index(&mut self, id: SocketId, before: Option<(u32, Arc<str>)>, now: Option<u32>) {
        if let Some((peer, _)) = before {
            self.of_peers.remove(&(peer, id));
        }
        if let Some(peer) = now {
            self.of_peers.insert((peer, id));
        }
    }

    /// The sockets of a configured peer: its template, and its connections.
    pub(crate) fn of_peer(&self, peer: u32) -> Vec<SocketId> {
        self.of_peers.range((peer, SocketId(0))..=(peer, SocketId(u64::MAX))).map(|(_, id)| *id).collect()
    }
}

impl Deref for Sockets {
    type Target = HashMap<SocketId, Socket>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

/// Counts of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changes {
    sockets: u64,
    flows: u64,
}

#[cfg(test)]
impl Changes {
    /// The number of mutable accesses to sockets since an earlier count.
    pub(crate) fn sockets_since(self, before: Changes) -> u64 {
        self.sockets - before.sockets
    }
}

/// The sockets of one network namespace.
pub struct Namespace {
    pub(crate) profile: Profile,
    pub(crate) algorithms: Algorithms,
    pub(crate) sockets: Sockets,
    /// The numbers of configured peers by their names.
    pub(crate) peers: HashMap<Arc<str>, u32>,
    pub(crate) netstat: Netstat,
    pub(crate) flows: Flows,
    pub(crate) drops: Drops,
    /// Whether a connection has changed that must survive a restart of the process.
    pub(crate) dirty: bool,
    /// Whether connections of configured peers may want traffic keys that are still to be derived.
    pub(crate) may_want: bool,
    pub(crate) optmem_max: usize,
}

/// `net.core.optmem_max` of Linux since 6.8, in bytes.
pub const OPTMEM_MAX: usize = 131_072;

impl Namespace {
    /// A namespace without sockets. The open profile does not limit the memory of a socket's keys; the others limit it
    /// to [`OPTMEM_MAX`] until [`Namespace::set_optmem_max`] is called.
    #[must_use]
    pub fn new(profile: Profile, algorithms: Algorithms) -> Self {
        let optmem_max = if profile == Profile::Open { usize::MAX } else { OPTMEM_MAX };
        Namespace {
            profile,
            algorithms,
            sockets: Sockets::default(),
            peers: HashMap::new(),
            netstat: Netstat::default(),
            flows: Flows::default(),
            drops: Drops::default(),
            dirty: false,
            may_want: false,
            optmem_max,
        }
    }

    /// Limits the memory of a socket's keys, in bytes as the kernel counts them (`/proc/sys/net/core/optmem_max`).
    pub fn set_optmem_max(&mut self, bytes: usize) {
        self.optmem_max = bytes;
    }

    /// Forgets a socket that is gone, and returns its state, which TIME_WAIT may still need.
    pub fn closed(&mut self, id: SocketId) -> Option<AoInfo> {
        self.sockets.remove(id)?.info
    }

    /// The number of known sockets.
    #[must_use]
    pub fn socket_count(&self) -> usize {
        self.sockets.len()
    }

    /// Whether a socket ever used TCP-AO or, since then, TCP-MD5.
    #[must_use]
    pub fn knows(&self, id: SocketId) -> bool {
        self.sockets.contains_key(&id)
    }

    /// The TCP-AO state of a socket; `None` for one without.
    #[must_use]
    pub fn info(&self, id: SocketId) -> Option<&AoInfo> {
        self.sockets.get(&id)?.info.as_ref()
    }

    /// The TCP-AO state of a socket, mutable.
    pub fn info_mut(&mut self, id: SocketId) -> Option<&mut AoInfo> {
        self.sockets.get_mut(id)?.info.as_mut()
    }

    /// All sockets with TCP-AO, in no order.
    pub fn sockets(&self) -> impl Iterator<Item = (SocketId, &AoInfo)> {
        self.sockets.iter().filter_map(|(id, s)| Some((*id, s.info.as_ref()?)))
    }

    /// The peers of all keys, with repetitions.
    pub fn key_peers(&self) -> impl Iterator<Item = Prefix> {
        self.sockets().flat_map(|(_, info)| info.keys().iter().map(|(_, key)| key.mkt.peer))
    }

    /// Whether any socket requires TCP-AO of all peers.
    #[must_use]
    pub fn requires(&self) -> bool {
        self.sockets().any(|(_, info)| info.ao_required)
    }

    /// Counters of the namespace.
    #[must_use]
    pub fn netstat(&self) -> &Netstat {
        &self.netstat
    }

    /// Counters of the namespace, mutable.
    pub fn netstat_mut(&mut self) -> &mut Netstat {
        &mut self.netstat
    }

    /// The count of changes that may alter the verdict about a packet. A burst that was begun before such a change is
    /// judged again when it ends.
    pub(crate) fn changes(&self) -> Changes {
        Changes { sockets: self.sockets.changes, flows: self.flows.changes() }
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules::of(self.profile)
    }

    /// A socket, mutable, created by its first accepted option.
    pub(crate) fn socket(&mut self, id: SocketId) -> &mut Socket {
        self.sockets.get_or_insert_with(id, Socket::default)
    }
}
