//! Bursts of frames, in their chunks from one interface to the other.

use super::opening::Opened;
use super::ways::Hop;
use super::{Counts, Worker};
use crate::transport::hops::Asked;
use crate::transport::xsk::Received;
use crate::xfrm::inbound::{Stack, deliver};
use crate::xfrm::tables::Tables;
use crate::xfrm::wire::Wire;
use arrayvec::ArrayVec;
use sealane_engine::xfrm::data::{BURST, Run};
use sealane_net::ipsec::burst::Jobs;
use sealane_net::ipsec::drop::DropReason;
use sealane_net::ipsec::open::{self, Inbound};
use sealane_net::ipsec::packet::Packet;
use sealane_net::ipsec::sa::SaId;
use sealane_net::ipsec::seal::Outbound;
use sealane_net::wire::forward::{hop_less, is_plain, is_same_flow, whole};
use sealane_net::wire::gso::ends;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Length of Ethernet's header.
const LINK_LEN: usize = 14;
const NAT_T: [u8; 2] = crate::xfrm::NAT_T.to_be_bytes();

/// A frame, and where its packet lies in its chunk.
struct Taken {
    got: Received,
    at: (usize, usize),
}

/// What becomes of a frame.
#[derive(Clone, Copy)]
enum Fate {
    /// Its packet lies there, and leaves by this hop.
    Send(Hop, usize, usize),
    /// Nothing more.
    Done,
}

type Frames = ArrayVec<Taken, BURST>;
type Fates = ArrayVec<Fate, BURST>;

impl Worker {
    /// Moves a burst of what a socket has; how many frames it had.
    pub(super) fn turn(&mut self, i: usize) -> usize {
        let Some(open) = &mut self.open else { return 0 };
        let (mut plain, mut sealed): (Frames, Frames) = (ArrayVec::new(), ArrayVec::new());
        let now = self.routes.now();
        let iif = open.slots[i];
        let Opened { sockets, memory, ways, .. } = &mut **open;
        ways.begin();
        let mut refused: ArrayVec<Received, BURST> = ArrayVec::new();
        let (mut to, mut last, protect) = (None, None, self.shared.bits.protect);
        let read = sockets.receive(i, BURST, |mut got| {
            let bytes = memory.bytes(&mut got.frame);
            let Some((len, ends)) = whole(&bytes[(got.start + LINK_LEN).min(got.end)..got.end]) else {
                refused.push(got);
                return;
            };
            let at = (got.start + LINK_LEN, got.start + LINK_LEN + len);
            let packet = &mut bytes[at.0..at.1];
            if to.is_none_or(|(before, _)| before != ends.1) {
                to = Some((ends.1, self.routes.has(ends.1)));
            }
            if to.is_some_and(|(_, here)| here) {
                // The program took it for its state.
                sealed.push(Taken { got, at });
                return;
            }
            let (source, destination) = ends;
            if last.is_none_or(|(before, _)| before != source) {
                let forwards = source.is_ipv4() || self.forwards_v6;
                let asked = Asked { source, destination, iif, mark: protect };
                last = Some((source, forwards && ways.admits(asked, now)));
            }
            if last.is_some_and(|(_, admitted)| admitted) && hop_less(packet) {
                plain.push(Taken { got, at });
            } else {
                refused.push(got);
            }
        });
        add(&self.counts.dropped, refused.len());
        refused.into_iter().for_each(|got| sockets.put(got.frame));
        if !plain.is_empty() {
            self.outbound(i, plain);
        }
        if !sealed.is_empty() {
            self.inbound(i, sealed);
        }
        read
    }

    /// Seals packets and sends them on.
    fn outbound(&mut self, i: usize, mut frames: Frames) {
        let Worker { shared, counts, open, routes, udp, raw, out, tun, .. } = self;
        let Some(open) = open else { return };
        let Opened { memory, ways, .. } = &mut **open;
        let now = routes.now();
        let mut packets: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
        let mut runs: ArrayVec<Run, BURST> = ArrayVec::new();
        for Taken { got, at } in &mut frames {
            let packet = Outbound::new(SaId::NONE, Packet::new(memory.bytes(&mut got.frame), at.0, at.1));
            match (packets.last(), runs.last_mut()) {
                (Some(before), Some(run)) if is_same_flow(before.packet.bytes(), packet.packet.bytes()) => {
                    run.packets += 1
                }
                _ => runs.push(Run::new(1)),
            }
            packets.push(packet);
        }
        let mut jobs = Jobs::new();
        // Nothing is handed over to a device.
        if let Some(mut locked) = shared.outbound(&Tables::Stack, 0, &runs, &mut packets, routes, &mut jobs) {
            locked.xfrm.tables(0, shared.now()).outbound_finish(&mut packets, &jobs);
            locked.tell();
        }
        let mut fates: Fates = ArrayVec::new();
        let (mut sealed, mut dropped) = (0, 0);
        let (lent, fast, tables) = (&mut Vec::new(), &mut None, &Tables::Stack);
        let mut wire = Wire { udp, lent, raw, out, fast, shared, tables, routes };
        let mut stack = 0..0;
        for (at, packet) in packets.iter().enumerate() {
            let mut by_stack = false;
            let fate = match packet.status {
                // No policy protects it any more, and it has not met the rules of the stack; or the state is new and wants a socket.
                Ok(()) if packet.sa == SaId::NONE || is_of_another_port(packet.packet.bytes()) => {
                    dropped += 1;
                    Fate::Done
                }
                Ok(()) => {
                    sealed += 1;
                    let bytes = packet.packet.bytes();
                    let asked = ends(bytes).ok().map(|(source, destination)| {
                        let mark = shared.bits.exempt;
                        Asked { source, destination, iif: 0, mark }
                    });
                    let hop =
                        asked.and_then(|asked| ways.hop(asked, now)).filter(|hop| bytes.len() <= hop.mtu as usize);
                    by_stack = hop.is_none();
                    hop.map_or(Fate::Done, |hop| Fate::Send(hop, packet.packet.start(), packet.packet.end()))
                }
                Err(reason) => {
                    dropped += 1;
                    // Its sender is told.
                    by_stack = reason == DropReason::TooBig;
                    Fate::Done
                }
            };
            fates.push(fate);
            if by_stack && stack.end == at && !stack.is_empty() {
                stack.end = at + 1;
            } else if by_stack {
                wire.send(&packets[stack], tun);
                stack = at..at + 1;
            }
        }
        add(&counts.to_stack, to_stack(&packets, &fates));
        wire.send(&packets[stack], tun);
        drop(packets);
        add(&counts.sealed, sealed);
        add(&counts.dropped, dropped);
        leave(open, counts, i, frames, fates);
    }

    /// Opens packets and sends on what is for others and met by no policy more; the rest is the stack's.
    fn inbound(&mut self, i: usize, mut frames: Frames) {
        let Worker { shared, counts, open, routes, tun, kept, prefixes, forwards_v6, .. } = self;
        let Some(open) = open else { return };
        let Opened { memory, ways, .. } = &mut **open;
        let now = routes.now();
        let mut packets: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
        for Taken { got, at } in &mut frames {
            let mut packet = Inbound::new(Packet::new(memory.bytes(&mut got.frame), at.0, at.1));
            packet.udp_encap = is_udp(packet.packet.bytes());
            packets.push(packet);
        }
        let mut jobs = Jobs::new();
        if let Some(mut locked) = shared.inbound(&Tables::Stack, &mut packets, routes, &mut jobs) {
            locked.xfrm.tables(0, shared.now()).inbound_finish(&mut packets, routes, &jobs);
            locked.tell();
        }
        // A policy that is new may be for what was opened: then it is the stack's.
        let known = shared.xfrm().spd().changes() == prefixes.0;
        let mut fates: Fates = ArrayVec::new();
        let (mut opened, mut given, mut last) = (0, 0, None);
        let mut stack = 0..0;
        for Inbound { packet, status, .. } in &mut packets {
            let Ok(open::Opened::Packet { .. }) = status else {
                fates.push(Fate::Done);
                continue;
            };
            opened += 1;
            let hop = ends(packet.bytes()).ok().and_then(|ends| {
                if last.is_none_or(|(before, _)| before != ends) {
                    let (source, destination) = ends;
                    let protected = || prefixes.1.iter().any(|rule| rule.is_for(source, destination));
                    let stays = !known || destination.is_ipv6() && !*forwards_v6;
                    let own = stays || routes.has(destination) || protected();
                    let asked = Asked { source, destination, iif: tun.index(), mark: 0 };
                    last = Some((ends, if own { None } else { ways.hop(asked, now) }));
                }
                last.and_then(|(_, hop)| hop)
            });
            let hop = hop.filter(|hop| packet.len() <= hop.mtu as usize && is_plain(packet.bytes()));
            fates.push(match hop {
                Some(hop) if hop_less(packet.bytes_mut()) => Fate::Send(hop, packet.start(), packet.end()),
                _ => Fate::Done,
            });
        }
        let mut to = Stack { tun, kept, more: false };
        for at in 0..packets.len() {
            let by_stack = matches!(fates[at], Fate::Done) && packets[at].status.is_ok();
            if by_stack && stack.end == at && !stack.is_empty() {
                stack.end = at + 1;
            } else if by_stack {
                given += stack.len();
                deliver(&packets[stack], &mut to, &shared.counters);
                stack = at..at + 1;
            }
        }
        given += stack.len();
        deliver(&packets[stack], &mut to, &shared.counters);
        let all = packets.len();
        drop(packets);
        add(&counts.opened, opened);
        add(&counts.to_stack, given);
        add(&counts.dropped, all - opened);
        leave(open, counts, i, frames, fates);
    }
}

/// Puts link headers in front of packets that leave, and chunks back that nothing leaves in.
fn leave(open: &mut Opened, counts: &Counts, came: usize, frames: Frames, fates: Fates) {
    let (mut sent, mut full) = (0, 0);
    for (Taken { mut got, .. }, fate) in frames.into_iter().zip(fates) {
        let Fate::Send(hop, start, end) = fate else {
            open.sockets.put(got.frame);
            continue;
        };
        let bytes = open.memory.bytes(&mut got.frame);
        let Some(link_at) = start.checked_sub(LINK_LEN) else {
            open.sockets.put(got.frame);
            continue;
        };
        let protocol: [u8; 2] = if bytes[start] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        bytes[link_at..link_at + 12].copy_from_slice(&hop.link);
        bytes[link_at + 12..start].copy_from_slice(&protocol);
        let by = open.leaving(hop.device, came);
        if open.sockets.send(by, got.frame, link_at, end) { sent += 1 } else { full += 1 }
    }
    add(&counts.sent, sent);
    add(&counts.full, full);
}

fn to_stack(packets: &[Outbound<'_>], fates: &[Fate]) -> usize {
    let sealed = |packet: &Outbound<'_>| packet.status.is_ok() && packet.sa != SaId::NONE;
    packets.iter().zip(fates).filter(|(packet, fate)| matches!(fate, Fate::Done) && sealed(packet)).count()
}

fn add(counter: &AtomicU64, n: usize) {
    if n > 0 {
        counter.fetch_add(n as u64, Relaxed);
    }
}

/// Whether a sealed packet leaves by a port of ours that is not IKE's.
fn is_of_another_port(packet: &[u8]) -> bool {
    match packet.first() {
        Some(0x45) => packet.get(9) == Some(&17) && packet.get(20..22) != Some(&NAT_T),
        Some(0x60..=0x6f) => packet.get(6) == Some(&17) && packet.get(40..42) != Some(&NAT_T),
        _ => false,
    }
}

/// Whether a packet of ESP comes in UDP.
fn is_udp(packet: &[u8]) -> bool {
    match packet.first() {
        Some(0x45) => packet.get(9) == Some(&17) && packet.get(22..24) == Some(&NAT_T),
        Some(0x60..=0x6f) => packet.get(6) == Some(&17) && packet.get(42..44) == Some(&NAT_T),
        _ => false,
    }
}
