//! The connections of a namespace, by their ends and by their sockets, with the times at which they are due.

use crate::facts::SocketId;
use core::net::{IpAddr, SocketAddr};
use sealane_net_ao::endpoint::Request;
use sealane_net_ao::mkt::unmapped;
use sealane_wire::ip::{self, Family};
use sealane_wire::tcp::Segment;
use std::collections::{BTreeSet, HashMap};

/// The most half-open connections. Above that the oldest is forgotten, and its peer tries again.
pub const MAX_HALF_OPEN: usize = 16_384;

/// Marks made-up cookies, for connections whose own is not known yet. The kernel's cookies count from 1.
pub(crate) const MADE_UP: u64 = 1 << 63;

/// The ends of a connection, and the VRF in which these addresses are meant. Addresses are never v4-mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ends {
    /// Ours.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// The VRF that its segments pass, 0 for none: VRFs may have connections between the same addresses and ports.
    pub vrf: i32,
}

impl Ends {
    /// Ends from two addresses, which may be v4-mapped, in no VRF.
    #[must_use]
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        let canonical = |a: SocketAddr| SocketAddr::new(unmapped(a.ip()), a.port());
        Ends { local: canonical(local), remote: canonical(remote), vrf: 0 }
    }

    /// The same ends in a VRF.
    #[must_use]
    pub fn in_vrf(self, vrf: i32) -> Self {
        Ends { vrf, ..self }
    }

    /// The ends of an inbound segment.
    #[must_use]
    pub fn received(segment: &Segment<'_>) -> Self {
        Ends::new(segment.destination(), segment.source())
    }

    /// The ends of an outbound segment.
    #[must_use]
    pub fn sent(segment: &Segment<'_>) -> Self {
        Ends::new(segment.source(), segment.destination())
    }

    /// The ends of an outbound packet of which only the front is given, up to the ports, as in an ICMP error. `None`
    /// when it has no TCP header there. Lengths are not checked.
    #[must_use]
    pub fn sent_front(family: Family, packet: &[u8]) -> Option<Self> {
        let (protocol, source, destination, ports_at) = match family {
            Family::V4 => {
                let ip = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
                (*packet.get(9)?, ip(12)?, ip(16)?, ip::v4_header_len(packet)?)
            }
            Family::V6 => {
                let ip = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
                let upper = ip::v6_upper(packet, ip::ExtensionHeaders::WithAh)?;
                (upper.kind, ip(8)?, ip(24)?, upper.at)
            }
        };
        let port = |at: usize| Some(u16::from_be_bytes(*packet.get(ports_at + at..)?.first_chunk()?));
        (protocol == ip::PROTO_TCP).then_some(())?;
        Some(Ends::new(SocketAddr::new(source, port(0)?), SocketAddr::new(destination, port(2)?)))
    }
}

/// The stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Our SYN was sent.
    SynSent,
    /// Both SYNs crossed each other.
    SynReceived,
    /// A SYN was verified for a listener.
    Half(Request),
    /// The handshake is done.
    Open,
    /// The kernel's socket is gone, except for TIME_WAIT.
    Gone,
}

/// One connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    /// The socket that holds its keys: its own, or the listener while it is half open.
    pub(super) id: SocketId,
    pub(super) stage: Stage,
    pub(super) vrf: i32,
    /// The device at which it was first seen; 0 if it was not.
    pub(super) device: u32,
    /// The time, in milliseconds of [`Namespace::expire`](crate::Namespace::expire)'s clock, at which a half-open or
    /// gone connection is forgotten, or the kernel is asked about another one. 0 means never.
    pub(super) due_ms: u64,
    /// The MSS that the peer announced in its SYN; 0 when it was not seen.
    pub(super) peer_mss: u16,
    /// Whether it uses accurate ECN: a counter in its segments begins with AE set.
    pub(super) accurate_ecn: bool,
}

impl Flow {
    /// An established connection of a socket.
    pub(super) fn open(id: SocketId, vrf: i32) -> Self {
        Flow { id, stage: Stage::Open, vrf, device: 0, due_ms: 0, peer_mss: 0, accurate_ecn: false }
    }
}

/// Connections in the order in which they are due.
type Due = BTreeSet<(u64, Ends)>;

/// All connections of a namespace. Each of them is due at one time only, however often it changes.
#[derive(Default)]
pub(crate) struct Flows {
    by_ends: HashMap<Ends, Flow>,
    /// The connection of a socket.
    by_id: HashMap<SocketId, Ends>,
    half_open: Due,
    gone: Due,
    /// Connections that the kernel is to be asked about.
    unseen: Due,
    next_child: u64,
    changes: u64,
}

impl Flows {
    pub(super) fn get(&self, ends: &Ends) -> Option<&Flow> {
        self.by_ends.get(ends)
    }

    /// The count of insertions and removals so far; a change is one of each.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The connection of a socket.
    pub(crate) fn ends_of(&self, id: SocketId) -> Option<Ends> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Ends, &Flow)> {
        self.by_ends.iter()
    }

    /// Adds a connection. It replaces the one between the same ends, which is returned, and the former one of its
    /// socket.
    pub(super) fn insert(&mut self, ends: Ends, flow: Flow) -> Option<Flow> {
        let replaced = self.remove(&ends);
        if matches!(flow.stage, Stage::Half(_)) {
            while self.half_open.len() >= MAX_HALF_OPEN {
                let Some(&(_, oldest)) = self.half_open.first() else { break };
                self.remove(&oldest);
            }
        } else if let Some(before) = self.by_id.insert(flow.id, ends) {
            self.remove(&before);
            self.by_id.insert(flow.id, ends);
        }
        if let Some(due) = self.due(&flow) {
            due.insert((flow.due_ms, ends));
        }
        self.by_ends.insert(ends, flow);
        self.changes += 1;
        replaced
    }

    pub(super) fn remove(&mut self, ends: &Ends) -> Option<Flow> {
        let flow = self.by_ends.remove(ends)?;
        self.changes += 1;
        if let Some(due) = self.due(&flow) {
            due.remove(&(flow.due_ms, *ends));
        }
        if !matches!(flow.stage, Stage::Half(_)) {
            self.by_id.remove(&flow.id);
        }
        Some(flow)
    }

    /// Changes a connection, if it is known.
    pub(super) fn change(&mut self, ends: &Ends, change: impl FnOnce(&mut Flow)) {
        if let Some(mut flow) = self.remove(ends) {
            change(&mut flow);
            self.insert(*ends, flow);
        }
    }

    /// The list of due times that this connection is in.
    fn due(&mut self, flow: &Flow) -> Option<&mut Due> {
        match flow.stage {
            Stage::Half(_) => Some(&mut self.half_open),
            Stage::Gone => Some(&mut self.gone),
            _ if flow.due_ms > 0 => Some(&mut self.unseen),
            _ => None,
        }
    }

    /// Removes a connection that has expired.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Option<Flow> {
        let first = |due: &Due| due.first().filter(|(at, _)| *at <= now_ms).map(|(_, ends)| *ends);
        let ends = first(&self.half_open).or_else(|| first(&self.gone))?;
        self.remove(&ends)
    }

    /// A connection that the kernel is to be asked about now.
    pub(super) fn first_unseen(&self, now_ms: u64) -> Option<(Ends, Flow)> {
        let (_, ends) = self.unseen.first().filter(|(at, _)| *at <= now_ms)?;
        Some((*ends, *self.by_ends.get(ends)?))
    }

    /// The number of connections that the kernel is to be asked about, now or later.
    pub(super) fn unseen(&self) -> usize {
        self.unseen.len()
    }

    /// Makes a cookie up for a connection whose own is not known.
    pub(super) fn make_up_id(&mut self) -> SocketId {
        self.next_child += 1;
        SocketId(MADE_UP | (self.next_child - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        Ends::new(([10, 0, 0, 2], 179).into(), ([10, 0, 0, 1], port).into())
    }

    fn half(isn: u32, due_ms: u64) -> Flow {
        let request = Request { used_ao: true, rcv_isn: isn, snt_isn: 0, key_id: 1, rnext_key_id: 2 };
        Flow { stage: Stage::Half(request), due_ms, ..Flow::open(SocketId(2), 0) }
    }

    fn noted(flows: &Flows) -> [usize; 5] {
        let due = [&flows.half_open, &flows.gone, &flows.unseen].map(BTreeSet::len);
        [flows.by_ends.len(), flows.by_id.len(), due[0], due[1], due[2]]
    }

    #[test]
    fn replays_take_no_room() {
        let mut flows = Flows::default();
        for i in 0..10_000u32 {
            flows.insert(ends(1), half(i % 2, u64::from(i)));
        }
        assert_eq!(noted(&flows), [1, 0, 1, 0, 0]);
        // Whole connections, one after another between the same ends.
        for i in 0..10_000u64 {
            flows.insert(ends(1), half(7, i));
            flows.insert(ends(1), Flow { due_ms: i + 5, ..Flow::open(SocketId(MADE_UP | i), 0) });
            for _ in 0..2 {
                flows.change(&ends(1), |f| (f.stage, f.due_ms) = (Stage::Gone, i + 9));
            }
        }
        assert_eq!(noted(&flows), [1, 1, 0, 1, 0]);
        assert!(flows.take_due(10_007).is_none());
        assert!(flows.take_due(10_008).is_some());
        assert_eq!(noted(&flows), [0; 5]);
    }

    #[test]
    fn half_open_ones_are_bounded_and_the_oldest_goes() {
        let mut flows = Flows::default();
        // A gone one is older than all of them, and stays.
        flows.insert(ends(0), Flow { stage: Stage::Gone, due_ms: 1, ..Flow::open(SocketId(1), 0) });
        for port in 1..=60_000 {
            flows.insert(ends(port), half(1, 1_000 + u64::from(port)));
        }
        assert_eq!(noted(&flows), [MAX_HALF_OPEN + 1, 1, MAX_HALF_OPEN, 1, 0]);
        assert!(flows.get(&ends(60_000 - MAX_HALF_OPEN as u16)).is_none());
        assert!(flows.get(&ends(60_001 - MAX_HALF_OPEN as u16)).is_some() && flows.get(&ends(0)).is_some());
    }

    #[test]
    fn a_socket_has_one_connection() {
        let mut flows = Flows::default();
        for port in 1..100 {
            flows.insert(ends(port), Flow { stage: Stage::SynSent, ..Flow::open(SocketId(5), 0) });
        }
        assert_eq!((flows.ends_of(SocketId(5)), noted(&flows)), (Some(ends(99)), [1, 1, 0, 0, 0]));
    }
}
