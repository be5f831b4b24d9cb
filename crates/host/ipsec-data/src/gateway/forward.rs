//! Bursts of frames, in their chunks from one interface to the other.

use super::common::GatewayCounts;
use super::forwarder::Forwarder;
use super::hops::{Hop, HopTable};
use super::opening::ThreadPart;
use super::relay::RelayedFrame;
use arrayvec::ArrayVec;
use core::ops::Range;
use sealane_engine_xfrm::data::{BURST, Run};
use sealane_net_ipsec::burst::Jobs;
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::icmp;
use sealane_net_ipsec::open::{self, Inbound};
use sealane_net_ipsec::packet::Packet;
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::seal::Outbound;
use sealane_net_ipsec::selector::Flow;
use sealane_packets::xsk::Received;
use sealane_sys::hops::Asked;
use sealane_wire::forward::{decrement_hop_limit, is_plain, is_same_flow, validate};
use sealane_wire::proto;
use sealane_wire::walk::address_pair;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Length of Ethernet's header.
const LINK_LEN: usize = 14;
const NAT_T: [u8; 2] = sealane_abi::socket::NAT_T.to_be_bytes();

/// The fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its packet, from there to there, leaves by this hop, in the order of packets with this number.
    Send(Hop, usize, usize, u32),
    /// Its packet is given to the stack.
    Stack,
    /// It is dropped, and the stack tells its sender.
    Tell,
    /// It is dropped.
    Drop,
}

type Frames = ArrayVec<RelayedFrame, BURST>;
type Fates = ArrayVec<Fate, BURST>;

impl Forwarder {
    /// Moves a burst of a socket. Returns the number of frames.
    pub(super) fn forward_burst(&mut self, i: usize) -> usize {
        let Forwarder { common, part, tables, .. } = self;
        let Some(part) = part else { return 0 };
        let routes = &tables.routes;
        let (mut plain, mut sealed): (Frames, Frames) = (ArrayVec::new(), ArrayVec::new());
        let now = routes.now();
        let forwards_v6 = common.forwards_v6.load(Relaxed);
        let iif = part.slots[i];
        let ThreadPart { sockets, memory, hops, .. } = &mut **part;
        hops.begin();
        let mut refused: ArrayVec<Received, BURST> = ArrayVec::new();
        let (mut to, mut last, protect) = (None, None, common.shared.bits.protect);
        let read = sockets.receive(i, BURST, |mut got| {
            let bytes = memory.bytes(&mut got.frame);
            let Some((len, ends)) = validate(&bytes[(got.start + LINK_LEN).min(got.end)..got.end]) else {
                refused.push(got);
                return;
            };
            let at = (got.start + LINK_LEN, got.start + LINK_LEN + len);
            let packet = &mut bytes[at.0..at.1];
            if to.is_none_or(|(before, _)| before != ends.1) {
                to = Some((ends.1, routes.has(ends.1)));
            }
            if to.is_some_and(|(_, here)| here) {
                // The program took it for its state.
                sealed.push(RelayedFrame { frame: got.frame, at });
                return;
            }
            let (source, destination) = ends;
            if last.is_none_or(|(before, _)| before != source) {
                let forwards = source.is_ipv4() || forwards_v6;
                let asked = Asked { source, destination, iif, mark: protect };
                last = Some((source, forwards && hops.admits(asked, now)));
            }
            if last.is_some_and(|(_, admitted)| admitted) && decrement_hop_limit(packet) {
                plain.push(RelayedFrame { frame: got.frame, at });
            } else {
                refused.push(got);
            }
        });
        add(&common.counts.dropped, refused.len());
        refused.into_iter().for_each(|got| sockets.put(got.frame));
        self.sort(&mut plain);
        if !plain.is_empty() {
            self.outbound(plain);
        }
        if !sealed.is_empty() {
            self.inbound(i, sealed);
        }
        read
    }

    /// Hands packets over that go through the states of other threads.
    fn sort(&mut self, frames: &mut Frames) {
        let Forwarder { common, part, tables, index, .. } = self;
        let Some(part) = part.as_mut().filter(|part| part.relay.of() > 1 && !frames.is_empty()) else { return };
        let ThreadPart { sockets, memory, relay, .. } = &mut **part;
        let packets: ArrayVec<&[u8], BURST> =
            frames.iter_mut().map(|RelayedFrame { frame, at }| &memory.bytes(frame)[at.0..at.1]).collect();
        // Packets of a flow that follow one another go through one state.
        let flows = || packets.chunk_by(|a, b| is_same_flow(a, b));
        let asked = flows().map(|flow| flow[0]);
        let owners: ArrayVec<u32, BURST> = tables.owners(&common.shared, *index as u32, relay.of(), asked);
        let owners: ArrayVec<u32, BURST> =
            flows().zip(owners).flat_map(|(flow, owner)| core::iter::repeat_n(owner, flow.len())).collect();
        drop(packets);
        if owners.iter().all(|owner| relay.is_mine(*owner)) {
            return;
        }
        let (mut passed, mut full) = (0, 0);
        for (packet, owner) in core::mem::take(frames).into_iter().zip(owners) {
            if relay.is_mine(owner) {
                frames.push(packet);
            } else if let Err(packet) = relay.pass(owner, packet) {
                sockets.put(packet.frame);
                full += 1;
            } else {
                passed += 1;
            }
        }
        relay.wake_threads();
        add(&common.counts.handed_over, passed);
        add(&common.counts.not_handed_over, full);
    }

    /// Seals packets and sends them on.
    pub(super) fn outbound(&mut self, mut frames: Frames) {
        let Forwarder { common, part, index, tx, stack, tables, .. } = self;
        let Some(part) = part else { return };
        let ThreadPart { memory, hops, .. } = &mut **part;
        let (shared, counts) = (&common.shared, &common.counts);
        let now = tables.routes.now();
        let mut packets: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
        let mut runs: ArrayVec<Run, BURST> = ArrayVec::new();
        for RelayedFrame { frame, at } in &mut frames {
            let packet = Outbound::new(SaId::NONE, Packet::new(memory.bytes(frame), at.0, at.1));
            match (packets.last(), runs.last_mut()) {
                (Some(before), Some(run)) if is_same_flow(before.packet.bytes(), packet.packet.bytes()) => {
                    run.packets += 1
                }
                _ => runs.push(Run::new(1)),
            }
            packets.push(packet);
        }
        let (mut jobs, cpu) = (Jobs::new(), *index as u32);
        // Nothing is handed over to a device.
        if let Some(mut locked) = tables.outbound(shared, cpu, &runs, &mut packets, &mut jobs) {
            locked.xfrm.tables(cpu, shared.now()).outbound_finish(&mut packets, &jobs);
            locked.finish();
        }
        let fates: Fates = packets
            .iter()
            .map(|packet| match fate_of(packet) {
                Fate::Stack => sealed_hop(packet, hops, shared.bits.exempt, now).unwrap_or(Fate::Stack),
                fate => fate,
            })
            .collect();
        stack_ranges(&fates).for_each(|stretch| tx.send(&packets[stretch], tables, stack));
        drop(packets);
        count(counts, &counts.sealed, &fates);
        leave(part, counts, frames, fates);
    }

    /// Opens packets, and sends on those for other hosts that no further policy covers. The rest is given to the stack.
    fn inbound(&mut self, i: usize, mut frames: Frames) {
        let Forwarder { common, part, stack, tables, .. } = self;
        let Some(part) = part else { return };
        let ThreadPart { memory, hops, leaving, .. } = &mut **part;
        let (shared, counts, forwards_v6) = (&common.shared, &common.counts, common.forwards_v6.load(Relaxed));
        let now = tables.routes.now();
        let mut packets: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
        for RelayedFrame { frame, at } in &mut frames {
            let mut packet = Inbound::new(Packet::new(memory.bytes(frame), at.0, at.1));
            packet.udp_encap = is_udp(packet.packet.bytes());
            packets.push(packet);
        }
        let mut jobs = Jobs::new();
        if let Some(mut locked) = tables.inbound(shared, &mut packets, &mut jobs) {
            locked.xfrm.tables(0, shared.now()).inbound_finish(&mut packets, &mut tables.routes, &jobs);
            locked.finish();
        }
        // A new policy may cover the opened packets, which are left to the stack then.
        let changes = shared.xfrm().spd().changes();
        let mut fates: Fates = ArrayVec::new();
        let mut last = None;
        for Inbound { packet, if_id, status, .. } in &mut packets {
            let Ok(open::Opened::Packet) = status else {
                fates.push(Fate::Drop);
                continue;
            };
            if *if_id != 0 {
                fates.push(Fate::Stack);
                continue;
            }
            let hop = address_pair(packet.bytes()).ok().and_then(|ends| {
                if last.is_none_or(|(before, _)| before != ends) {
                    let (source, destination) = ends;
                    let covered = leaving.may_cover(changes, source, destination);
                    let own = covered || destination.is_ipv6() && !forwards_v6 || tables.routes.has(destination);
                    let asked = Asked { source, destination, iif: stack.index(), mark: 0 };
                    last = Some((ends, if own { None } else { hops.hop(asked, now) }));
                }
                last.and_then(|(_, hop)| hop)
            });
            let leaves = |packet: &[u8]| is_plain(packet) && !is_error(packet);
            let hop = hop.filter(|hop| packet.len() <= hop.mtu as usize && leaves(packet.bytes()));
            fates.push(match hop {
                // In the order of its queue.
                // What IPComp has inflated is in no chunk.
                Some(hop) if !packet.is_owned() && decrement_hop_limit(packet.bytes_mut()) => {
                    Fate::Send(hop, packet.start(), packet.end(), i as u32)
                }
                _ => Fate::Stack,
            });
        }
        for stretch in stack_ranges(&fates) {
            stack.deliver(shared, &packets[stretch], false);
        }
        stack.deliver_emerged(shared, tables, false);
        drop(packets);
        count(counts, &counts.opened, &fates);
        leave(part, counts, frames, fates);
    }
}

/// Whether a packet is an ICMP error, which a policy may protect that is not for its addresses.
fn is_error(packet: &[u8]) -> bool {
    let protocol = packet.get(if packet.first().is_some_and(|byte| byte >> 4 == 4) { 9 } else { 6 });
    !matches!(protocol, Some(&(proto::TCP | proto::UDP)))
        && Flow::of(packet, 0, 0).is_ok_and(|flow| icmp::quoted(packet, &flow).is_some())
}

/// Decides the fate of a packet that was to be sealed. The stack sends those that may leave.
fn fate_of(packet: &Outbound<'_>) -> Fate {
    match packet.status {
        // No policy protects it any more, and it has not met the rules of the stack; or the state is new and wants a
        // socket.
        Ok(()) if packet.sa == SaId::NONE || is_of_another_port(packet.packet.bytes()) => Fate::Drop,
        Ok(()) => Fate::Stack,
        Err(DropReason::TooBig) => Fate::Tell,
        Err(_) => Fate::Drop,
    }
}

/// Finds the hop by which a sealed packet leaves past the stack. `None` if the stack has to send it.
fn sealed_hop(packet: &Outbound<'_>, hops: &mut HopTable, mark: u32, now: Instant) -> Option<Fate> {
    let Outbound { packet, sa, .. } = packet;
    let (source, destination) = address_pair(packet.bytes()).ok()?;
    let hop = hops.hop(Asked { source, destination, iif: 0, mark }, now)?;
    (packet.len() <= hop.mtu as usize).then(|| Fate::Send(hop, packet.start(), packet.end(), sa.index()))
}

/// The ranges of packets that need the stack, each as long as possible.
fn stack_ranges(fates: &[Fate]) -> impl Iterator<Item = Range<usize>> {
    let is = |fate: &Fate| matches!(fate, Fate::Stack | Fate::Tell);
    let mut at = 0;
    fates.chunk_by(move |a, b| is(a) == is(b)).filter_map(move |stretch| {
        let from = at;
        at += stretch.len();
        stretch.first().is_some_and(is).then_some(from..at)
    })
}

/// Counts each packet of a burst once, as dropped or as `passed`, and those given to the stack as well.
fn count(counts: &GatewayCounts, passed: &AtomicU64, fates: &[Fate]) {
    let stack = fates.iter().filter(|fate| matches!(fate, Fate::Stack)).count();
    let dropped = fates.iter().filter(|fate| matches!(fate, Fate::Tell | Fate::Drop)).count();
    add(passed, fates.len() - dropped);
    add(&counts.to_stack, stack);
    add(&counts.dropped, dropped);
}

/// Puts link headers in front of packets that leave, and frees the chunks of the others.
fn leave(part: &mut ThreadPart, counts: &GatewayCounts, frames: Frames, fates: Fates) {
    let (mut sent, mut full) = (0, 0);
    for (RelayedFrame { mut frame, .. }, fate) in frames.into_iter().zip(fates) {
        let Fate::Send(hop, start, end, number) = fate else {
            part.sockets.put(frame);
            continue;
        };
        let bytes = part.memory.bytes(&mut frame);
        let Some(link_at) = start.checked_sub(LINK_LEN) else {
            part.sockets.put(frame);
            continue;
        };
        let protocol: [u8; 2] = if bytes[start] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        bytes[link_at..link_at + 12].copy_from_slice(&hop.link);
        bytes[link_at + 12..start].copy_from_slice(&protocol);
        let by = part.leaving_by(hop.device, number);
        if part.sockets.send(by, frame, link_at, end) { sent += 1 } else { full += 1 }
    }
    add(&counts.sent, sent);
    add(&counts.full, full);
}

fn add(counter: &AtomicU64, n: usize) {
    if n > 0 {
        counter.fetch_add(n as u64, Relaxed);
    }
}

/// Whether a sealed packet leaves by another UDP port than 4500.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_has_one_fate_and_is_counted_once() {
        let sa = crate::tests::sa_id();
        let hop = Hop { device: 0, link: [0; 12], mtu: 1500 };
        let of = |v6: bool, sa, protocol, sport: u16, status| {
            let mut packet = if v6 { vec![0; 60] } else { vec![0; 40] };
            (packet[0], packet[if v6 { 6 } else { 9 }]) = (if v6 { 0x60 } else { 0x45 }, protocol);
            let udp = if v6 { 40 } else { 20 };
            packet[udp..udp + 2].copy_from_slice(&sport.to_be_bytes());
            let end = packet.len();
            let mut packet = Outbound::new(sa, Packet::new(&mut packet, 0, end));
            packet.status = status;
            fate_of(&packet)
        };
        for v6 in [false, true] {
            let fates = [
                of(v6, sa, 50, 0, Ok(())),
                of(v6, sa, 17, 4500, Ok(())),
                of(v6, SaId::NONE, 50, 0, Ok(())),
                // Of another port: it is not sent at all.
                of(v6, sa, 17, 4501, Ok(())),
                of(v6, sa, 50, 0, Err(DropReason::TooBig)),
                of(v6, sa, 50, 0, Err(DropReason::OutExpired)),
                Fate::Send(hop, 14, 54, 0),
            ];
            use Fate::{Drop, Stack, Tell};
            assert_eq!(fates[..6], [Stack, Stack, Drop, Drop, Tell, Drop]);
            let counts = GatewayCounts::default();
            count(&counts, &counts.sealed, &fates);
            let counted = counts.status();
            assert_eq!([counted.sealed, counted.to_stack, counted.dropped], [3, 2, 4]);
            assert_eq!(stack_ranges(&fates).collect::<Vec<_>>(), [0..2, 4..5]);
        }
    }

    #[test]
    fn what_the_stack_gets_is_kept_together() {
        let of = |fates: &[Fate]| stack_ranges(fates).collect::<Vec<_>>();
        use Fate::{Drop, Stack, Tell};
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[Drop, Drop]), []);
        assert_eq!(of(&[Stack, Tell, Stack, Drop, Tell]), [0..3, 4..5]);
        assert_eq!(of(&[Drop, Stack, Drop, Drop, Stack, Stack]), [1..2, 4..6]);
    }
}
