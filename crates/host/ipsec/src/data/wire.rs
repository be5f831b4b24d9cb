//! What sealed packets leave by.

use crate::bypass::fast_out::FastOut;
use crate::control::path::Shared;
use crate::data::counters::Counters;
use crate::data::ports::{Lent, socket};
use crate::data::routes::Routes;
use crate::data::tables::Tables;
use crate::data::worker::most_udp;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::BURST;
use sealane_net::ipsec::drop::DropReason;
use sealane_net::ipsec::icmp;
use sealane_net::ipsec::sa::{Mode, SaId};
use sealane_net::ipsec::seal::Outbound;
use sealane_net::wire::walk::address_pair;
use sealane_sys::esp::{self, Around, MAX_SEGMENTS, RawEsp, UdpEsp};
use sealane_sys::raw::Raw;
use sealane_sys::tap::Headers;
use sealane_sys::tun::Tun;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Superframes' longest payload of UDP, in bytes: what an IPv4 packet carries.
const MAX_SEND: usize = 65_535 - 20 - 8;
const UDP_LEN: usize = 8;
/// What ESP adds to a packet of a tunnel, by all algorithms more or less.
const ESP_MORE: usize = 48;

/// How many packets of a length leave in one superframe once they are sealed, roughly.
pub(crate) fn superframe(len: usize) -> usize {
    MAX_SEND / (len + ESP_MORE)
}

/// What packets leave by.
pub(crate) struct Wire<'w> {
    pub(crate) udp: &'w mut Vec<Arc<UdpEsp>>,
    /// Those that others read.
    pub(crate) lent: &'w mut Lent,
    pub(crate) raw: &'w [Arc<RawEsp>],
    pub(crate) out: &'w Raw,
    /// Past the stack, where that can be.
    pub(crate) fast: &'w mut Option<FastOut>,
    pub(crate) shared: &'w Shared,
    pub(crate) tables: &'w Tables,
    pub(crate) routes: &'w mut Routes,
}

impl Wire<'_> {
    pub(crate) fn send(&mut self, packets: &[Outbound<'_>], tun: &mut Tun) {
        let Wire { udp, lent, raw, out, fast, shared, tables, routes } = self;
        let counters = &shared.counters;
        let mut plain: ArrayVec<&[u8], BURST> = ArrayVec::new();
        let mut i = 0;
        while i < packets.len() {
            let packet = &packets[i];
            let bytes = packet.packet.bytes();
            i += 1;
            match packet.status {
                Ok(()) if packet.sa == SaId::NONE => {
                    counters.clear.fetch_add(1, Relaxed);
                    plain.push(bytes);
                }
                Ok(()) => match Outer::of(bytes) {
                    Some(outer) if outer.ports.is_some() => {
                        // Rules give marks by the first packet of a superframe.
                        let apart = shared.marks.load(Acquire).then_some(packet.sa);
                        let group = group(&packets[i - 1..], &outer, apart);
                        i += group.len() - 1;
                        let port = outer.ports.unwrap_or_default().0;
                        let most = most_udp(raw.len());
                        let port = (outer.around.source.is_ipv6(), port);
                        let by = socket(udp, lent, most, shared, tables, port);
                        send_udp(by.as_deref(), &outer, &group, counters, routes);
                    }
                    Some(outer) if !outer.df && bytes.len() > routes.path(outer.around.destination).mtu as usize => {
                        let mtu = routes.path(outer.around.destination).mtu as usize;
                        let sent = if outer.around.source.is_ipv4() {
                            send_pieces(out, bytes, mtu)
                        } else {
                            let socket = raw.iter().find(|s| s.is_v6() && Some(&s.protocol()) == bytes.get(6));
                            socket.is_some_and(|s| s.send_fragmented(&outer.around, &bytes[outer.len..]).is_ok())
                        };
                        let counter = if sent { &counters.sent } else { &counters.refused };
                        counter.fetch_add(1, Relaxed);
                    }
                    _ => plain.push(bytes),
                },
                Err(DropReason::TooBig) => {
                    let mode = shared.mode(tables, packet.sa);
                    // What is cut before it is sealed is no packet for transport mode.
                    tell_too_big(bytes, packet.inner_mtu, mode != Some(Mode::Transport), tun, routes);
                }
                Err(_) => {}
            }
        }
        // Families apart: each has its socket.
        for v6 in [false, true] {
            let these: ArrayVec<&[u8], BURST> =
                plain.iter().copied().filter(|b| (b.first().is_some_and(|b| b >> 4 == 6)) == v6).collect();
            if !these.is_empty() {
                let sent = match fast {
                    Some(fast) => fast.send(out, &these, counters, routes.now()),
                    None => out.send(&these, 0, false),
                };
                counters.sent.fetch_add(sent.taken as u64, Relaxed);
                counters.refused.fetch_add(sent.refused as u64, Relaxed);
            }
        }
    }
}

/// Tells the sender of a packet that it is too big, as if the other end did.
fn tell_too_big(packet: &[u8], mtu: u32, narrow: bool, tun: &mut Tun, routes: &mut Routes) {
    let mut error = [0; icmp::MAX_ERROR_LEN];
    let Ok((_, destination)) = address_pair(packet) else { return };
    if let Some(len) = icmp::write_too_big(packet, mtu, destination, &mut error) {
        routes.tell(destination, mtu, narrow);
        let headers = Headers { bytes: &error[..len], tcp_at: 0, partial_checksum: false, gso_size: None };
        let _ = tun.give(headers, core::iter::empty());
    }
}

/// The longest fragment that is sent, in bytes.
const MAX_PIECE: usize = 9216;

/// Sends a packet of IPv4 without options in fragments. The kernel would do it too, but with an identification of its own,
/// which AH covers.
fn send_pieces(out: &Raw, packet: &[u8], mtu: usize) -> bool {
    const HEADER_LEN: usize = 20;
    // Offsets count in eights.
    let most = mtu.min(MAX_PIECE).saturating_sub(HEADER_LEN) / 8 * 8;
    let (header, payload) = packet.split_at(HEADER_LEN);
    if most == 0 {
        return false;
    }
    let mut piece = [0; MAX_PIECE];
    let count = payload.len().div_ceil(most);
    payload.chunks(most).enumerate().all(|(i, part)| {
        let len = HEADER_LEN + part.len();
        piece[..HEADER_LEN].copy_from_slice(header);
        piece[HEADER_LEN..len].copy_from_slice(part);
        piece[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        let more = if i + 1 < count { 0x2000 } else { 0 };
        piece[6..8].copy_from_slice(&((i * most / 8) as u16 | more).to_be_bytes());
        // The kernel writes the checksum of a header that it is given.
        out.send(&[&piece[..len]], 0, false).refused == 0
    })
}

/// What stands in front of ESP.
struct Outer {
    around: Around,
    /// Length of the IP header.
    len: usize,
    df: bool,
    /// With UDP.
    ports: Option<(u16, u16)>,
}

impl Outer {
    /// `None` for IP options and extension headers: such a packet is sent as it is.
    fn of(packet: &[u8]) -> Option<Self> {
        let around = esp::around(packet)?;
        let (len, protocol, df) = match packet[0] {
            0x45 => (20, packet[9], packet[6] & 0x40 != 0),
            0x60..=0x6f => (40, packet[6], false),
            _ => return None,
        };
        let ports = match (protocol, packet.get(len..len + UDP_LEN)) {
            (17, Some(udp)) => Some((u16::from_be_bytes([udp[0], udp[1]]), u16::from_be_bytes([udp[2], udp[3]]))),
            (17, None) => return None,
            (50 | 51, _) => None,
            _ => return None,
        };
        Some(Outer { around, len, df, ports })
    }
}

/// Whether packets that have UDP behind plain IP headers differ in nothing there but lengths, identification and checksums.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let same = |from: usize, until: usize| a.get(from..until).zip(b.get(from..until)).is_some_and(|(a, b)| a == b);
    match a.first() {
        Some(0x45) => same(0, 2) && same(6, 10) && same(12, 24),
        // Flow labels are the socket's.
        _ => same(0, 1) && (a.get(1).zip(b.get(1)).is_some_and(|(a, b)| (a ^ b) & 0xf0 == 0)) && same(6, 44),
    }
}

/// The datagrams that leave in one superframe: all of the first one's length but the last, which may be shorter. Where only those
/// `of` one state may, they do.
fn group<'p>(packets: &'p [Outbound<'_>], outer: &Outer, of: Option<SaId>) -> ArrayVec<&'p [u8], MAX_SEGMENTS> {
    let mut group: ArrayVec<&[u8], MAX_SEGMENTS> = ArrayVec::new();
    let from = outer.len + UDP_LEN;
    let (mut total, mut len) = (0, 0);
    for packet in packets {
        if packet.status.is_err() || packet.sa == SaId::NONE || of.is_some_and(|of| of != packet.sa) || group.is_full()
        {
            break;
        }
        // Another one may be shorter than the first one's headers.
        let Some(datagram) = packet.packet.bytes().get(from..) else { break };
        if group.is_empty() {
            len = datagram.len();
        } else if datagram.len() > len
            || total + datagram.len() > MAX_SEND
            || !is_same(packets[0].packet.bytes(), packet.packet.bytes())
        {
            break;
        }
        group.push(datagram);
        total += datagram.len();
        if datagram.len() < len {
            break;
        }
    }
    group
}

fn send_udp(socket: Option<&UdpEsp>, outer: &Outer, group: &[&[u8]], counters: &Counters, routes: &mut Routes) {
    let (_, dport) = outer.ports.unwrap_or_default();
    let Some(socket) = socket else {
        counters.refused.fetch_add(group.len() as u64, Relaxed);
        return;
    };
    let fragments = !outer.df;
    match socket.send(&outer.around, dport, group, fragments) {
        Ok(()) => {
            counters.sent.fetch_add(group.len() as u64, Relaxed);
        }
        // A device that cannot cut, or a path that has become narrower.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE)) => {
            routes.forget(outer.around.destination);
            for datagram in group {
                let done = socket.send(&outer.around, dport, &[datagram], fragments);
                let counter = if done.is_ok() { &counters.sent } else { &counters.refused };
                counter.fetch_add(1, Relaxed);
            }
        }
        Err(_) => {
            counters.refused.fetch_add(group.len() as u64, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_net::ipsec::packet::Packet;

    /// A sealed packet, in UDP or not, with so many bytes of payload.
    fn sealed(v6: bool, udp: bool, payload: usize) -> Vec<u8> {
        let protocol = if udp { 17 } else { 50 };
        let mut packet = vec![0; if v6 { 40 } else { 20 }];
        (packet[0], packet[if v6 { 6 } else { 9 }]) = (if v6 { 0x60 } else { 0x45 }, protocol);
        packet.extend_from_slice(&[0x11, 0x94, 0x11, 0x94, 0, 0, 0, 0]);
        packet.resize(packet.len() + payload, 1);
        packet
    }

    fn whole(bytes: &mut [u8]) -> Packet<'_> {
        let end = bytes.len();
        Packet::new(bytes, 0, end)
    }

    #[test]
    fn what_leaves_in_one_superframe() {
        let sa = crate::tests::sa_id();
        let lens = |packets: &[Vec<u8>]| {
            let mut buffers = packets.to_vec();
            let packets: Vec<_> = buffers.iter_mut().map(|bytes| Outbound::new(sa, whole(bytes))).collect();
            let outer = Outer::of(packets[0].packet.bytes()).expect("in UDP");
            group(&packets, &outer, None).iter().map(|d| d.len()).collect::<Vec<_>>()
        };
        for v6 in [false, true] {
            let udp = |payload| sealed(v6, true, payload);
            assert_eq!(lens(&[udp(100), udp(100), udp(40), udp(100)]), [100, 100, 40], "the last one may be shorter");
            assert_eq!(lens(&[udp(100), udp(101)]), [100]);
            assert_eq!(lens(&[udp(100), sealed(!v6, true, 100)]), [100]);
            assert_eq!(lens(&[udp(100), sealed(v6, false, 100)]), [100]);
            // Shorter than the headers of the first one.
            assert_eq!(lens(&[udp(100), sealed(false, false, 0)]), [100]);
        }
    }
}
