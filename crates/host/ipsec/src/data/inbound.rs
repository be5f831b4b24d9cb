//! From the wire to the TUN device.

use crate::bypass::fast_in::{FastIn, Given};
use crate::data::counters::Counters;
use crate::data::flight::{Begun, Origin};
use crate::data::join::{Joins, Kept, settle};
use crate::data::worker::Worker;
use crate::interface::Gates;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::BURST;
use sealane_engine_xfrm::device::crypto::Direction;
use sealane_net::ipsec::burst::Jobs;
use sealane_net::ipsec::open::{Inbound, Opened};
use sealane_net::ipsec::packet::Packet;
use sealane_sys::esp::{Around, Received, UdpEsp};
use sealane_sys::nft::ingress::EspWay;
use sealane_sys::tun::Tun;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Room in front of a datagram: IP and UDP headers, and what BEET mode needs.
const ROOM: usize = 128;
const UDP_LEN: usize = 8;

/// Where packets come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A socket of UDP.
    Udp(usize),
    /// A raw one.
    Raw(usize),
}

impl Worker {
    /// Opens a burst of what a socket has and gives it to the stack; whether there may be more.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn inbound(&mut self, source: Source) -> io::Result<bool> {
        let Worker { shared, tables, flights, tun, udp, raw, received, pending, routes, fast_in, kept, .. } = self;
        let empty = if flights.has_room() { flights.empty() } else { None };
        let Some(mut burst) = empty else {
            settle(kept, flights, tun, &shared.counters);
            return Ok(true);
        };
        let mut packets: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
        // Whose they are, of those that could take the ring.
        let mut ways: ArrayVec<Option<EspWay>, BURST> = ArrayVec::new();
        let mut rest = &mut burst.buffer[..];
        let mut more = true;
        while !packets.is_full() {
            let (read, mut at) = match pending.take() {
                Some((of, read, at)) if of == source => (read, at),
                // Another socket's comes first, when its turn is.
                other => {
                    let read = match source {
                        _ if other.is_some() => None,
                        Source::Udp(i) => udp[i].receive(received)?,
                        Source::Raw(i) => raw[i].receive(received)?,
                    };
                    *pending = other;
                    let Some(read) = read else {
                        more = false;
                        break;
                    };
                    (read, 0)
                }
            };
            let (protocol, whole) = match source {
                Source::Udp(i) => (Upper::Udp { from: read.port, to: udp[i].port() }, false),
                Source::Raw(i) => (Upper::Raw(raw[i].protocol()), !raw[i].is_v6()),
            };
            let mut way = None;
            if let (Upper::Raw(50), Some(fast)) = (protocol, fast_in.as_mut()) {
                let esp = received[..read.len].get(if whole { header_len(received) } else { 0 }..).unwrap_or_default();
                match fast.given(&read, esp) {
                    Given::Had => continue,
                    Given::Open(of) => way = of,
                }
            }
            // A packet may be empty behind what is given here: it is counted.
            loop {
                let data = &received[at..read.len.min(at + read.segment)];
                let slot_len = (ROOM + data.len()).next_multiple_of(64);
                if slot_len > rest.len() {
                    break;
                }
                at += data.len();
                let (slot, others) = core::mem::take(&mut rest).split_at_mut(slot_len);
                rest = others;
                slot[ROOM..ROOM + data.len()].copy_from_slice(data);
                let start = if whole { ROOM } else { front(slot, data.len(), &read, protocol) };
                let mut packet = Inbound::new(Packet::new(slot, start, ROOM + data.len()));
                packet.udp_encap = matches!(protocol, Upper::Udp { .. });
                if !shared.elsewhere.has(packet.packet.bytes()) {
                    packets.push(packet);
                    ways.push(way);
                }
                if at >= read.len || packets.is_full() {
                    break;
                }
            }
            if at < read.len {
                *pending = Some((source, read, at));
                break;
            }
            // The next superframe is probably as long. Cut in two by the end of this burst it would go up as two.
            let count = read.len.div_ceil(read.segment);
            if packets.len() + count > BURST {
                break;
            }
        }
        if packets.is_empty() {
            drop(packets);
            flights.put(burst);
            if !more {
                settle(kept, flights, tun, &shared.counters);
            }
            return Ok(more);
        }
        let mut jobs = Jobs::new();
        let origin = Origin::Socket(source);
        match shared.inbound(tables, &mut packets, routes, &mut jobs) {
            None if flights.is_empty(Direction::Decrypt) => {
                let mut stack = Stack { tun, kept, gates: &shared.gates, more };
                arrived(&packets, &ways, origin, &mut stack, udp, fast_in, &shared.counters, routes.now());
                drop(packets);
                flights.put(burst);
            }
            None => {
                let begun = Begun::inn(&packets, &ways, origin);
                drop(packets);
                flights.follow(burst, Direction::Decrypt, begun);
            }
            Some(locked) => {
                let begun = Begun::inn(&packets, &ways, origin);
                drop(packets);
                flights.depart(burst, Direction::Decrypt, begun, jobs, &locked.xfrm);
                locked.tell();
            }
        }
        Ok(more)
    }
}

/// What opened packets are given to.
pub(crate) struct Stack<'w> {
    pub(crate) tun: &'w mut Tun,
    pub(crate) kept: &'w mut Kept,
    pub(crate) gates: &'w Gates,
    /// Whether another burst is looked for at once.
    pub(crate) more: bool,
}

/// Gives what was opened to the stack; whether there were messages of IKE among it.
pub(crate) fn deliver(packets: &[Inbound<'_>], stack: &mut Stack<'_>, counters: &Counters) -> bool {
    let Stack { tun, kept, gates, more } = stack;
    let mut joins = Joins::new(kept);
    let mut lost = 0;
    let (mut ike, mut elsewhere) = (false, false);
    for packet in packets {
        match packet.status {
            Ok(Opened::Packet { .. }) if packet.if_id != 0 => elsewhere = true,
            Ok(Opened::Packet { .. }) => lost += u64::from(joins.push(packet.packet.bytes(), *tun).is_err()),
            // What is shorter than the marker the program cannot tell, and anybody can send it.
            Ok(Opened::Ike) => ike |= is_marked(packet.packet.bytes()),
            _ => {}
        }
    }
    lost += u64::from(joins.finish(*more, *tun).is_err());
    if elsewhere {
        lost += gates.deliver(packets);
    }
    counters.refused_in.fetch_add(lost, Relaxed);
    ike
}

/// What is to be done with a burst that has been opened, beside what becomes of its packets: those that are busy earn the ring.
pub(crate) fn arrived(
    packets: &[Inbound<'_>],
    ways: &[Option<EspWay>],
    origin: Origin,
    stack: &mut Stack<'_>,
    udp: &[Arc<UdpEsp>],
    fast: &mut Option<FastIn>,
    counters: &Counters,
    now: Instant,
) {
    let ike = deliver(packets, stack, counters);
    if let (true, Origin::Socket(Source::Udp(i))) = (ike, origin) {
        udp[i].steer_otherwise();
    }
    let Some(fast) = fast else { return };
    let authentic = packets.iter().zip(ways).filter(|(packet, _)| matches!(packet.status, Ok(Opened::Packet { .. })));
    for way in authentic.filter_map(|(_, way)| *way) {
        match origin {
            Origin::Socket(_) => fast.count(way, now),
            Origin::Ring => fast.carried(way, counters),
        }
    }
}

/// Length of an IPv4 header in bytes.
fn header_len(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0xf) * 4
}

/// Whether a datagram begins with the marker of IKE (RFC 3948 section 2.2).
fn is_marked(packet: &[u8]) -> bool {
    let headers_len = if packet.first().is_some_and(|b| b >> 4 == 6) { 40 } else { 20 };
    packet.get(headers_len + UDP_LEN..headers_len + UDP_LEN + 4) == Some(&[0; 4])
}

#[derive(Clone, Copy)]
enum Upper {
    Udp { from: u16, to: u16 },
    Raw(u8),
}

/// Writes the headers in front of what a socket gave without them; where the packet starts.
fn front(slot: &mut [u8], len: usize, read: &Received, upper: Upper) -> usize {
    let Around { source, destination, tos, ttl } = read.around;
    let mut at = ROOM;
    let protocol = match upper {
        Upper::Udp { from, to } => {
            at -= UDP_LEN;
            slot[at..at + 2].copy_from_slice(&from.to_be_bytes());
            slot[at + 2..at + 4].copy_from_slice(&to.to_be_bytes());
            slot[at + 4..at + 6].copy_from_slice(&((len + UDP_LEN) as u16).to_be_bytes());
            slot[at + 6..at + 8].fill(0);
            17
        }
        Upper::Raw(protocol) => read.first.unwrap_or(protocol),
    };
    let upper_len = len + ROOM - at;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            at -= 20;
            let ip = &mut slot[at..at + 20];
            ip.fill(0);
            ip[0] = 0x45;
            ip[1] = tos;
            ip[2..4].copy_from_slice(&((upper_len + 20) as u16).to_be_bytes());
            (ip[8], ip[9]) = (ttl, protocol);
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            at -= 40;
            let ip = &mut slot[at..at + 40];
            ip[..4].copy_from_slice(&[0x60 | tos >> 4, tos << 4, 0, 0]);
            ip[4..6].copy_from_slice(&(upper_len as u16).to_be_bytes());
            (ip[6], ip[7]) = (protocol, ttl);
            ip[8..24].copy_from_slice(&source.octets());
            ip[24..40].copy_from_slice(&destination.octets());
        }
        _ => {}
    }
    at
}
