//! The way to the wire: sealed packets leave in UDP superframes, in TCP streams, as frames past the stack, or by raw sockets.

use crate::bypass::fast_out::FastOut;
use crate::counters::Counters;
use crate::ports::Ports;
use crate::routes::Routes;
use crate::shared::Shared;
use crate::sockets::Sockets;
use crate::stack::Stack;
use crate::tables::Tables;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::BURST;
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::sa::{Mode, SaId};
use sealane_net_ipsec::seal::Outbound;
use sealane_packets::esp::{MAX_SEGMENTS, RawEsp};
use sealane_packets::raw::Raw;
use sealane_sys::marks::Marks;
use sealane_wire::outer::OuterHeader;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The longest payload of a UDP superframe, in bytes: that of an IPv4 packet.
const MAX_SEND: usize = 65_535 - 20 - 8;
/// Roughly the bytes that ESP adds to a packet of a tunnel.
const ESP_MORE: usize = 48;

/// Roughly the number of packets of this length that leave in one superframe once they are sealed.
pub(crate) fn superframe(len: usize) -> usize {
    MAX_SEND / (len + ESP_MORE)
}

/// A thread's way to the wire.
pub(crate) struct Wire {
    shared: Arc<Shared>,
    ports: Ports,
    raw: Vec<Arc<RawEsp>>,
    out: Raw,
    /// The way past the stack, where there can be one.
    fast: Option<FastOut>,
}

/// A packet in UDP.
struct UdpPacket<'p> {
    outer: OuterHeader,
    datagram: &'p [u8],
}

impl<'p> UdpPacket<'p> {
    /// Says how a sealed packet is sent by a UDP socket. `None` if it is not one in UDP, or is to be sent with the
    /// headers that it has.
    fn of(packet: &'p Outbound<'_>) -> Option<Self> {
        let bytes = packet.packet.bytes();
        match packet.outer {
            Some(outer) => Some(UdpPacket { outer, datagram: bytes }),
            None => {
                let (outer, at) = OuterHeader::of(bytes).filter(|(outer, _)| outer.ports.is_some())?;
                Some(UdpPacket { outer, datagram: &bytes[at..] })
            }
        }
    }

    /// The family and number of the port that it leaves by.
    fn port(&self) -> (bool, u16) {
        (self.outer.source.is_ipv6(), self.outer.ports.map_or(0, |(source, _)| source))
    }
}

impl Wire {
    /// Opens the raw socket that packets leave by, for a thread with these sockets of ESP and ports. With `fast` busy
    /// flows go past the stack where the kernel lets them.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open(shared: &Arc<Shared>, sockets: &Sockets, ports: Ports, fast: bool) -> io::Result<Self> {
        let marks = Marks::new(shared.bits.exempt);
        let out = Raw::open(marks)?;
        out.ignore_learnt_mtu()?;
        let fast = if fast { FastOut::new(&out, marks) } else { None };
        Ok(Wire { shared: shared.clone(), ports, raw: sockets.raw.clone(), out, fast })
    }

    /// The UDP sockets.
    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Opens sockets beside those of key managers; see [`Ports::join_key_managers`].
    pub(crate) fn join_key_managers(&mut self) {
        self.ports.join_key_managers(&self.shared);
    }

    /// Closes sockets that no key manager is beside any more.
    pub(crate) fn close_left_ports(&mut self) {
        self.ports.close_left(&self.shared);
    }

    /// Closes UDP sockets whose ports no state has any more.
    pub(crate) fn close_unused_ports(&mut self) {
        self.ports.close_unused(&self.shared);
    }

    /// Sends those packets of a burst that may leave, and tells the senders of those that are too big or go nowhere.
    pub(crate) fn send(&mut self, packets: &[Outbound<'_>], tables: &mut Tables, stack: &mut Stack) {
        let mut plain: ArrayVec<&[u8], BURST> = ArrayVec::new();
        let mut i = 0;
        while i < packets.len() {
            let packet = &packets[i];
            let bytes = packet.packet.bytes();
            i += 1;
            match packet.status {
                Ok(()) if packet.sa == SaId::NONE => {
                    self.shared.counters.clear.fetch_add(1, Relaxed);
                    plain.push(bytes);
                }
                Ok(()) if packet.outer.is_some_and(|outer| outer.tcp) => {
                    let same = |next: &&Outbound<'_>| next.status.is_ok() && next.outer == packet.outer;
                    let more = packets[i..].iter().take_while(same).count();
                    self.send_in_stream(&packets[i - 1..i + more]);
                    i += more;
                }
                Ok(()) => match UdpPacket::of(packet) {
                    Some(first) => {
                        // Rules give marks by the first packet of a superframe.
                        let apart = self.shared.has_marks().then_some(packet.sa);
                        let group = group(&packets[i..], &first, apart);
                        i += group.len() - 1;
                        self.send_udp(&first, &group, &mut tables.routes);
                    }
                    None => self.send_plain(bytes, &mut tables.routes, &mut plain),
                },
                Err(DropReason::TooBig | DropReason::IptfsTooBig) => {
                    let mode = tables.mode(&self.shared, packet.sa);
                    // Fragments made before sealing cannot go through transport mode.
                    stack.tell_too_big(
                        &self.shared,
                        bytes,
                        packet.inner_mtu,
                        mode != Some(Mode::Transport),
                        &mut tables.routes,
                    );
                }
                // Linux answers whenever it finds no way through states, whatever the reason (`xfrmi_xmit2`).
                Err(
                    DropReason::NoWay
                    | DropReason::NoPath
                    | DropReason::OutBlock
                    | DropReason::OutRest
                    | DropReason::OutNoState
                    | DropReason::OutDirection
                    | DropReason::Ambiguous,
                ) if tables.are_of_interface() => stack.tell_unreachable(&self.shared, bytes, &tables.routes),
                // Forwarded ones are dropped in silence (`__xfrm_route_forward`).
                Err(DropReason::NoPath) => stack.tell_own_unreachable(&self.shared, bytes, &tables.routes),
                Err(_) => {}
            }
        }
        // Families apart: each has its socket.
        for v6 in [false, true] {
            let these: ArrayVec<&[u8], BURST> =
                plain.iter().copied().filter(|b| (b.first().is_some_and(|b| b >> 4 == 6)) == v6).collect();
            if !these.is_empty() {
                let Wire { shared, out, fast, .. } = self;
                let sent = match fast {
                    Some(fast) => fast.send(out, &these, &shared.counters, tables.routes.now()),
                    None => out.send(&these, tables.routes.device(), false),
                };
                shared.counters.sent.fetch_add(sent.taken as u64, Relaxed);
                shared.counters.refused.fetch_add(sent.refused as u64, Relaxed);
            }
        }
    }

    /// Sends a packet of ESP or AH in fragments, where it may be cut and does not fit the path. Others are left in
    /// `plain`.
    fn send_plain<'p>(&self, bytes: &'p [u8], routes: &mut Routes, plain: &mut ArrayVec<&'p [u8], BURST>) {
        let cut = OuterHeader::of(bytes)
            .filter(|(outer, _)| !outer.dont_fragment && bytes.len() > routes.path(outer.destination).mtu as usize);
        let Some((outer, at)) = cut else { return plain.push(bytes) };
        let mtu = routes.path(outer.destination).mtu as usize;
        let sent = if outer.source.is_ipv4() {
            send_pieces(&self.out, bytes, mtu, routes.device())
        } else {
            let socket = self.raw.iter().find(|s| s.is_v6() && Some(&s.protocol()) == bytes.get(6));
            socket.is_some_and(|s| s.send_fragmented(&outer, routes.device(), &bytes[at..]).is_ok())
        };
        let Counters { sent: taken, refused, .. } = &self.shared.counters;
        if sent { taken } else { refused }.fetch_add(1, Relaxed);
    }

    /// Sends packets with the same headers by the key manager's connection.
    fn send_in_stream(&self, packets: &[Outbound<'_>]) {
        let Some(outer) = packets.first().and_then(|packet| packet.outer) else { return };
        let messages: ArrayVec<&[u8], BURST> = packets.iter().map(|packet| packet.packet.bytes()).take(BURST).collect();
        let sent = self.shared.streams.send(&outer, &messages);
        if sent.is_none() {
            let reasons: ArrayVec<_, BURST> = messages.iter().map(|_| DropReason::NoStream).collect();
            Tables::lost(&self.shared, &reasons);
        }
        let sent = sent.unwrap_or(0) as u64;
        self.shared.counters.sent.fetch_add(sent, Relaxed);
        self.shared.counters.refused.fetch_add(packets.len() as u64 - sent, Relaxed);
    }

    /// Sends datagrams with the same headers in one superframe.
    fn send_udp(&mut self, first: &UdpPacket<'_>, group: &[&[u8]], routes: &mut Routes) {
        let Wire { shared, ports, .. } = self;
        let Counters { sent, refused, .. } = &shared.counters;
        let outer = &first.outer;
        let Some(socket) = ports.socket(shared, first.port()) else {
            refused.fetch_add(group.len() as u64, Relaxed);
            return;
        };
        let device = routes.device();
        match socket.send(outer, device, group) {
            Ok(()) => {
                sent.fetch_add(group.len() as u64, Relaxed);
            }
            // A device that cannot cut, or a path that has become narrower.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE)) => {
                routes.forget(outer.destination);
                for datagram in group {
                    let done = socket.send(outer, device, &[datagram]);
                    let counter = if done.is_ok() { sent } else { refused };
                    counter.fetch_add(1, Relaxed);
                }
            }
            Err(_) => {
                refused.fetch_add(group.len() as u64, Relaxed);
            }
        }
    }
}

/// The longest fragment that is sent, in bytes.
const MAX_PIECE: usize = 9216;

/// Sends a packet of IPv4 without options in fragments. The kernel would do it too, but with an identification of its
/// own, which AH covers.
fn send_pieces(out: &Raw, packet: &[u8], mtu: usize, device: u32) -> bool {
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
        out.send(&[&piece[..len]], device, false).refused == 0
    })
}

/// The datagrams that leave in one superframe: `first` and those of `others`, which follow it, that have the same
/// headers. All have the first one's length but the last, which may be shorter. With `of` only those of that state do.
fn group<'p>(others: &'p [Outbound<'_>], first: &UdpPacket<'p>, of: Option<SaId>) -> ArrayVec<&'p [u8], MAX_SEGMENTS> {
    let len = first.datagram.len();
    let mut total = len;
    let mut group: ArrayVec<&[u8], MAX_SEGMENTS> = ArrayVec::new();
    group.push(first.datagram);
    for packet in others {
        if packet.status.is_err() || packet.sa == SaId::NONE || of.is_some_and(|of| of != packet.sa) || group.is_full()
        {
            break;
        }
        let Some(UdpPacket { datagram, .. }) = UdpPacket::of(packet).filter(|next| next.outer == first.outer) else {
            break;
        };
        total += datagram.len();
        if datagram.len() > len || total > MAX_SEND {
            break;
        }
        group.push(datagram);
        if datagram.len() < len {
            break;
        }
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_net_ipsec::packet::Packet;

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
            let first = UdpPacket::of(&packets[0]).expect("in UDP");
            group(&packets[1..], &first, None).iter().map(|d| d.len()).collect::<Vec<_>>()
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
