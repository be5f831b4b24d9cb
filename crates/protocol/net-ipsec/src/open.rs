//! Inbound processing: opens bursts of packets with their associations.

mod pending;

use self::pending::Pending;
use crate::ah;
use crate::burst::{self, BURST, Direction, Item, Job, Jobs, SpiSeq, Task};
use crate::comp;
use crate::decap::{Payload, unwrap};
use crate::drop::DropReason;
use crate::encap::ESP_LEN;
use crate::event::Event;
pub use crate::id::MAX_DEPTH;
use crate::iptfs::Origin;
use crate::packet::Packet;
use crate::sa::{Carrier, Hot, Mode, Proto, Sa, SaDir, SaId, SaState};
use crate::sad::Sad;
use arrayvec::ArrayVec;
use sealane_crypto::{OpError, Status};
use sealane_wire::ip::{self, Family, Layout, TCP_HEADER_LEN, UDP_HEADER_LEN, be16, be32};
use sealane_wire::outer::OuterHeader;
use sealane_wire::proto;
use sealane_wire::walk::{ECN_MASK, Walk, addresses, ds_field};

/// The result of opening a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// Not processed yet, or only in part.
    Waiting,
    /// Not an IPsec packet; unchanged.
    Clear,
    /// An IKE message on the port of ESP in UDP (RFC 3948 section 2.2); unchanged.
    Ike,
    /// A NAT keep-alive (RFC 3948 section 2.3), to be ignored.
    Keepalive,
    /// A packet opened with the associations in [`Inbound::path`]. Policies have not been checked yet.
    Packet,
    /// A payload of IP-TFS, opened with the associations in [`Inbound::path`]. The packets that came out of it are in
    /// [`Sad::take_received`].
    Aggregate,
}

/// An inbound packet.
pub struct Inbound<'b> {
    /// The packet, reassembled from its fragments. BEET mode needs up to 40 bytes of headroom. With [`Self::outer`] it
    /// starts behind the outer headers, see [`Self::described`].
    pub packet: Packet<'b>,
    /// The outer headers, if they are not in the buffer.
    pub outer: Option<OuterHeader>,
    /// Its mark, as associations change it that it comes through.
    pub mark: u32,
    /// The index of the device that it came by; 0 if unknown.
    pub device: u32,
    /// Whether it was received by a UDP socket that accepts ESP (`UDP_ENCAP_ESPINUDP`). For described headers,
    /// [`OuterHeader::ports`] says so instead.
    pub udp_encap: bool,
    /// The associations that opened it, outermost first.
    pub path: ArrayVec<SaId, MAX_DEPTH>,
    /// The interface id of the xfrm interface that it is received by, 0 for none. Set by the policy check.
    pub if_id: u32,
    /// Set by [`open`].
    pub status: Result<Opened, DropReason>,
}

impl<'b> Inbound<'b> {
    /// A packet with its headers in the buffer, not processed yet.
    #[must_use]
    pub fn new(packet: Packet<'b>) -> Self {
        let (path, status) = (ArrayVec::new(), Ok(Opened::Waiting));
        Inbound { packet, outer: None, mark: 0, device: 0, udp_encap: false, path, if_id: 0, status }
    }

    /// A payload that a socket delivered without its headers: ESP, a datagram received on the port of ESP in UDP, or a
    /// message of ESP in TCP ([`tcp`](crate::tcp)). AH covers the headers, so its packets need them in the buffer
    /// ([`Self::new`]).
    ///
    /// The verdict is the same as for a packet with these headers. An opened packet has headers of its own; anything
    /// that is not IPsec stays a payload. Tunnel mode needs no headroom, so the payload can be opened where it was
    /// received. Other modes write a header in front: it always fits with
    /// [`OPEN_HEADROOM`](crate::packet::OPEN_HEADROOM), and an IPv4 header also without. Otherwise the packet is
    /// dropped ([`DropReason::NoRoom`]). [`Sad::has_only_tunnels`] says whether any association is in another mode.
    #[must_use]
    pub fn described(payload: Packet<'b>, outer: OuterHeader) -> Self {
        Inbound { outer: Some(outer), ..Inbound::new(payload) }
    }

    /// The description of the headers of the layer to be opened next. Inner headers are in the buffer.
    fn description(&self) -> Option<&OuterHeader> {
        self.outer.as_ref().filter(|_| self.path.is_empty())
    }
}

/// Opens each waiting packet in place, layer by layer, up to the end of the first tunnel: the packet inside a tunnel
/// goes through the stack again, and so do those inside IP-TFS ([`Sad::take_received`]). Status *i* belongs to packet
/// *i*. A dropped packet may have been overwritten.
pub fn open(sad: &mut Sad, packets: &mut [Inbound<'_>], now_s: u64, events: &mut Vec<Event>) {
    for chunk in packets.chunks_mut(BURST) {
        while layer(sad, chunk, now_s, events) {}
    }
}

/// Removes one layer of each waiting packet. Returns false if there was none.
fn layer(sad: &mut Sad, chunk: &mut [Inbound<'_>], now_s: u64, events: &mut Vec<Event>) -> bool {
    let mut jobs = Jobs::new();
    begin(sad, chunk, now_s, events, &mut jobs);
    if jobs.is_empty() {
        return false;
    }
    finish(sad, chunk, &jobs, now_s, events);
    true
}

/// Runs the remaining phases of one layer of [`open`] with the database's own keys.
pub fn finish(sad: &mut Sad, packets: &mut [Inbound<'_>], jobs: &[Job], now_s: u64, events: &mut Vec<Event>) {
    let hot = sad.hot();
    let mut items: ArrayVec<Item<'_, '_>, BURST> = ArrayVec::new();
    let mut rest = jobs.iter().peekable();
    for (at, inbound) in packets.iter_mut().enumerate() {
        if let Some(job) = rest.next_if(|job| job.packet() == at) {
            items.push(Item::of(job, &hot[job.sa.index as usize].crypt, &mut inbound.packet));
        }
    }
    burst::run(Direction::Decrypt, &mut items);
    let done: ArrayVec<Status, BURST> = items.iter().map(|item| item.done).collect();
    drop(items);
    end(sad, packets, jobs, &done, now_s, events);
}

/// The first phase of one layer of [`open`], for at most [`BURST`] packets: all checks that precede the crypto. Every
/// packet with a job must be [`run`](burst::run) next, in this thread or another one; if there is none, no packet is
/// waiting any more. A packet whose verdict depends on those in front of it waits without a job and must be passed to
/// [`open`] after [`end`].
///
/// # Panics
/// When there are more packets.
pub fn begin(sad: &mut Sad, packets: &mut [Inbound<'_>], now_s: u64, events: &mut Vec<Event>, jobs: &mut Jobs) {
    assert!(packets.len() <= BURST, "a burst");
    let waiting = packets.iter().filter(|inbound| inbound.status == Ok(Opened::Waiting));
    sad.warm_in(waiting.filter_map(|inbound| spi_and_seq(inbound.packet.bytes(), inbound.description().is_some())));
    let mut pending = Pending::new(jobs);
    for (at, Inbound { packet, outer, mark, udp_encap, path, status, .. }) in (0..).zip(packets) {
        if *status != Ok(Opened::Waiting) {
            continue;
        }
        let mut end = packet.end();
        let mut classified = match outer {
            Some(outer) if path.is_empty() => classify_described(packet.bytes(), outer),
            _ => classify(sad, packet, *udp_encap, path),
        };
        // Layers without keys are opened at once.
        let mut unwrapped = None;
        while let Ok(Classified::Ipsec(header)) = &classified
            && header.proto.is_keyless()
        {
            match keyless(sad, packet, header, mark, now_s, path, events) {
                Ok(Opened::Waiting) => {}
                other => {
                    unwrapped = Some(other);
                    break;
                }
            }
            end = packet.end();
            classified = classify(sad, packet, false, path);
        }
        if let Some(concluded) = unwrapped {
            *status = concluded;
            continue;
        }
        let concluded = classified.and_then(|found| match found {
            Classified::Ipsec(header) => {
                if prepare(sad, packet, &header, mark, now_s, path, events, &mut pending)? {
                    pending.jobs.last_mut().expect("it was put there").at = at;
                } else {
                    // It stays unchanged for the next round.
                    packet.set(packet.start(), end);
                }
                Ok(Opened::Waiting)
            }
            Classified::Other(Opened::Clear) if !path.is_empty() => {
                let natted = |sa: &Sa| sa.encap.is_some() && sa.mode == Mode::Transport;
                if path.iter().any(|id| sad.get(*id).is_some_and(natted)) {
                    renew_checksum(packet.bytes_mut());
                }
                Ok(Opened::Packet)
            }
            Classified::Other(other) => Ok(other),
        });
        *status = concluded;
    }
}

/// The last phase of one layer of [`open`]: the changes that only authentic packets cause. A number that another burst
/// has seen in the meantime is a replay; an association that was deleted or has expired in the meantime opens nothing.
/// A packet that still waits may have another layer or depend on others: pass it to [`open`] next.
pub fn end(
    sad: &mut Sad,
    packets: &mut [Inbound<'_>],
    jobs: &[Job],
    done: &[Status],
    now_s: u64,
    events: &mut Vec<Event>,
) {
    for (job, done) in jobs.iter().zip(done) {
        let Inbound { packet, outer, status, path, mark, device, .. } = &mut packets[job.packet()];
        let outer = outer.as_ref().filter(|_| job.described);
        let start = packet.start();
        *status = conclude(sad, job, *done, packet, outer, now_s, events);
        if *status == Ok(Opened::Aggregate) {
            let origin = Origin { path: path.clone(), mark: *mark, device: *device };
            // The headers are still in front of the payload.
            let tos = outer.map_or_else(|| tos(&packet.buf()[start..]), |outer| outer.tos);
            let marked = tos & ECN_MASK == ECN_MASK;
            sad.take_apart(job.sa, job.spi_seq.number(), packet.bytes(), &origin, marked);
        }
    }
}

/// DSCP and ECN of a packet whose header is complete.
fn tos(packet: &[u8]) -> u8 {
    ds_field(packet, if packet[0] >> 4 == 4 { Family::V4 } else { Family::V6 })
}

/// The IPsec header of a packet.
struct IpsecHeader<'o> {
    proto: Proto,
    /// Its offset from the packet's start.
    at: usize,
    /// Length of the IP headers in front of it or of UDP; 0 if they are described.
    headers_len: usize,
    next_at: usize,
    port: Option<u16>,
    /// The description of the headers in front, if they are described.
    outer: Option<&'o OuterHeader>,
}

impl IpsecHeader<'_> {
    fn carrier(&self) -> Option<Carrier> {
        let by = if self.outer.is_some_and(|outer| outer.tcp) { Carrier::Tcp } else { Carrier::Udp };
        self.port.map(|_| by)
    }
}

enum Classified<'o> {
    Ipsec(IpsecHeader<'o>),
    Other(Opened),
}

/// Finds the IPsec header behind the headers of a packet that has come through the associations in `path`.
fn classify<'o>(
    sad: &Sad,
    packet: &mut Packet<'_>,
    udp_encap: bool,
    path: &[SaId],
) -> Result<Classified<'o>, DropReason> {
    let walk = Walk::find(packet.bytes()).map_err(|_| DropReason::Malformed)?;
    // Padding behind the packet (Ethernet's) is not part of it.
    packet.set(packet.start(), packet.start() + walk.end);
    let upper = &packet.bytes()[walk.upper_at..];
    let (mut at, mut port) = (walk.upper_at, None);
    let proto = match walk.upper {
        proto::ESP | proto::AH | proto::COMP if walk.fragment.is_some() => return Err(DropReason::Fragment),
        proto::ESP => Proto::Esp,
        proto::AH => Proto::Ah,
        proto::COMP => Proto::Comp,
        // Other IP in IP is for tunnel devices.
        proto::IPIP | proto::IPV6 if !path.is_empty() && walk.fragment.is_none() && sad.has_ipip(packet.bytes()) => {
            Proto::Ipip
        }
        proto::UDP if udp_encap && path.is_empty() && walk.fragment.is_none() => {
            let datagram = upper.get(..usize::from(be16(upper, 4))).ok_or(DropReason::Malformed)?;
            let data = datagram.get(UDP_HEADER_LEN..).ok_or(DropReason::Malformed)?;
            if let Some(other) = not_esp(data, walk.upper_at)? {
                return Ok(Classified::Other(other));
            }
            port = Some(be16(upper, 0));
            at += UDP_HEADER_LEN;
            let end = walk.upper_at + datagram.len();
            packet.set(packet.start(), packet.start() + end);
            Proto::Esp
        }
        _ => return Ok(Classified::Other(Opened::Clear)),
    };
    let (headers_len, next_at) = (walk.upper_at, walk.next_at);
    Ok(Classified::Ipsec(IpsecHeader { proto, at, headers_len, next_at, port, outer: None }))
}

/// Finds the IPsec header of a payload whose headers are described.
fn classify_described<'o>(payload: &[u8], outer: &'o OuterHeader) -> Result<Classified<'o>, DropReason> {
    if outer.ports.is_some()
        && !outer.tcp
        && let Some(other) = not_esp(payload, outer.ip_len())?
    {
        return Ok(Classified::Other(other));
    }
    let port = outer.ports.map(|(source, _)| source);
    Ok(Classified::Ipsec(IpsecHeader {
        proto: Proto::Esp,
        at: 0,
        headers_len: 0,
        next_at: 0,
        port,
        outer: Some(outer),
    }))
}

/// Classifies a datagram received on the port of ESP in UDP (RFC 3948 section 2). Returns `None` for ESP.
fn not_esp(data: &[u8], ip_len: usize) -> Result<Option<Opened>, DropReason> {
    match data {
        [0xff] => Ok(Some(Opened::Keepalive)),
        // IKE has its marker in the place of ESP's SPI.
        _ if data.len() > ESP_LEN && be32(data, 0) != 0 => {
            // Like Linux: the data must be at least as long as the IP header, and a shorter one is not counted.
            if data.len() < ip_len { Err(DropReason::Malformed) } else { Ok(None) }
        }
        _ => Ok(Some(Opened::Ike)),
    }
}

/// Guesses the SPI and sequence number of a packet that looks like ESP or AH, to prefetch memory.
fn spi_and_seq(packet: &[u8], described: bool) -> Option<(u32, u32)> {
    let at = if described {
        0
    } else {
        let walk = Walk::find(packet).ok()?;
        match walk.upper {
            proto::ESP => walk.upper_at,
            proto::AH => walk.upper_at + 4,
            proto::UDP => walk.upper_at + UDP_HEADER_LEN,
            _ => return None,
        }
    };
    let [spi, seq] = *packet.get(at..at + 8)?.as_chunks::<4>().0 else { return None };
    Some((u32::from_be_bytes(spi), u32::from_be_bytes(seq)))
}

/// Makes all checks that precede the crypto, in the kernel's order. Returns false if the packet must wait for others.
fn prepare(
    sad: &mut Sad,
    packet: &Packet<'_>,
    header: &IpsecHeader<'_>,
    mark: &mut u32,
    now_s: u64,
    path: &mut ArrayVec<SaId, MAX_DEPTH>,
    events: &mut Vec<Event>,
    pending: &mut Pending<'_>,
) -> Result<bool, DropReason> {
    let bytes = packet.bytes();
    let at = header.at;
    let (least, spi_at) = match header.proto {
        Proto::Ah => (ah::FIXED_LEN, at + 4),
        _ => (ESP_LEN, at),
    };
    if bytes.len() < at + least {
        return Err(DropReason::Header);
    }
    if path.is_full() {
        return Err(DropReason::Depth);
    }
    let (spi, seq) = (be32(bytes, spi_at), be32(bytes, spi_at + 4));
    let destination = match header.outer {
        Some(outer) => outer.destination,
        None => addresses(bytes, if bytes[0] >> 4 == 4 { Family::V4 } else { Family::V6 }).1,
    };
    let id = sad.find_in(spi, destination, header.proto, *mark).ok_or(DropReason::NoState)?;
    let (hot, sa) = sad.pair_mut(id).ok_or(DropReason::NoState)?;
    check_state(hot, sa)?;
    if sa.encap.map(|encap| encap.by) != header.carrier() {
        return Err(DropReason::Encap);
    }
    let number = sa.window.extend(seq);
    if pending.must_wait(id, hot, &sa.window, seq, number) {
        return Ok(false);
    }
    sa.window.check_whole(seq, number).inspect_err(|reason| count_replay(&mut sa.stat, *reason))?;
    if hot.bytes_left == 0 || hot.packets_left == 0 {
        sad.at_limit(id, SaDir::In, events)?;
    }
    let (hot, sa) = sad.pair_mut(id).ok_or(DropReason::NoState)?;
    if sa.use_time_s == 0 {
        sa.use_time_s = now_s;
    }
    let rest = bytes.len() - at;
    let icv_len = usize::from(hot.icv_len);
    let (task, text_at, icv_at) = match (header.proto, &hot.crypt) {
        (Proto::Ah, _) => {
            let len = (usize::from(bytes[at + 1]) + 2) * 4;
            let align = if sa.flags.align4 { 4 } else { 8 };
            let wanted = |icv_len: usize| (ah::FIXED_LEN + icv_len).next_multiple_of(align);
            if len != wanted(icv_len) && len != wanted(sa.full_icv_len.into()) || len > rest {
                return Err(DropReason::AhLen);
            }
            (Task::Ah, len, ah::FIXED_LEN)
        }
        (_, crypt) => {
            let text_at = ESP_LEN + usize::from(hot.iv_len);
            let text_len = rest.checked_sub(text_at + icv_len).ok_or(DropReason::Short)?;
            // Only a cipher's block length is checked: like the kernel, not an alignment of 4 bytes.
            let block = usize::from(hot.align);
            if block > 4 && !text_len.is_multiple_of(block) || text_len + icv_len == 0 {
                return Err(DropReason::Short);
            }
            (Task::of_esp(crypt), text_at, text_at + text_len)
        }
    };
    path.push(id);
    *mark = sa.set_mark.set_in(*mark);
    let head_at = packet.start() + at;
    pending.push(id, &sa.window, number, bytes.len());
    pending.jobs.push(Job {
        task,
        at: 0,
        icv_len: hot.icv_len,
        iv_len: hot.iv_len,
        esn: sa.flags.esn,
        chained: false,
        described: header.outer.is_some(),
        ip_len: header.headers_len as u32,
        next_at: header.next_at as u32,
        port: header.port,
        sa: id,
        head_at: head_at as u32,
        text_at: (head_at + text_at) as u32,
        icv_at: (head_at + icv_at) as u32,
        udp6_at: 0,
        spi_seq: SpiSeq::new(spi, number),
        iv: [0; 16],
    });
    Ok(true)
}

/// Checks that packets may come in by a state.
fn check_state(hot: &Hot, sa: &Sa) -> Result<(), DropReason> {
    if sa.dir == Some(SaDir::Out) {
        return Err(DropReason::InDirection);
    }
    match hot.state {
        SaState::Valid => Ok(()),
        SaState::Acquiring => Err(DropReason::Acquiring),
        SaState::Offloaded | SaState::Expired | SaState::Dead => Err(DropReason::InInvalid),
    }
}

/// Removes a layer of IPComp, or of IP in IP that a peer did not compress, in the kernel's order.
fn keyless(
    sad: &mut Sad,
    packet: &mut Packet<'_>,
    header: &IpsecHeader<'_>,
    mark: &mut u32,
    now_s: u64,
    path: &mut ArrayVec<SaId, MAX_DEPTH>,
    events: &mut Vec<Event>,
) -> Result<Opened, DropReason> {
    let bytes = packet.bytes();
    if header.proto == Proto::Comp && bytes.len() < header.at + comp::HEADER_LEN {
        return Err(DropReason::Header);
    }
    if path.is_full() {
        return Err(DropReason::Depth);
    }
    let (source, destination) = addresses(bytes, if bytes[0] >> 4 == 4 { Family::V4 } else { Family::V6 });
    let found = match header.proto {
        Proto::Comp => sad.find_in(be16(bytes, header.at + 2).into(), destination, Proto::Comp, *mark),
        _ => sad.find_ipip(source, destination, *mark),
    };
    let id = found.ok_or(DropReason::NoState)?;
    let (hot, sa) = sad.pair_mut(id).ok_or(DropReason::NoState)?;
    check_state(hot, sa)?;
    // There are no sequence numbers: a state with a window takes nothing.
    sa.window.check_whole(0, 0).inspect_err(|reason| count_replay(&mut sa.stat, *reason))?;
    if hot.bytes_left == 0 || hot.packets_left == 0 {
        sad.at_limit(id, SaDir::In, events)?;
    }
    let payload = match header.proto {
        Proto::Comp => {
            let mut codec = sad.codec.take().unwrap_or_default();
            let payload = decompress(&mut codec, packet, header);
            sad.codec = Some(codec);
            payload?
        }
        _ => Payload {
            headers_len: header.headers_len,
            next_at: header.next_at,
            at: packet.start() + header.at,
            end: packet.end(),
            next: packet.bytes()[header.next_at],
        },
    };
    let (hot, sa) = sad.pair_mut(id).ok_or(DropReason::InInvalid)?;
    path.push(id);
    *mark = sa.set_mark.set_in(*mark);
    sa.count(hot, payload.end - payload.at, now_s);
    unwrap(sa, packet, &payload, None)?;
    Ok(if sa.mode == Mode::Transport { Opened::Waiting } else { Opened::Packet })
}

/// Puts what a packet's payload of IPComp inflates to in its place, in another buffer if this one has no room.
fn decompress(
    codec: &mut comp::Codec,
    packet: &mut Packet<'_>,
    header: &IpsecHeader<'_>,
) -> Result<Payload, DropReason> {
    let (bytes, at) = (packet.bytes(), header.at);
    let next = bytes[at];
    let plain = codec.decompress(&bytes[at + comp::HEADER_LEN..])?;
    if next == proto::HOP_BY_HOP {
        // 0 is an error of `ipcomp_input`.
        return Err(DropReason::Inflate);
    }
    let start = packet.start();
    if start + at + plain.len() <= packet.room() {
        packet.buf()[start + at..][..plain.len()].copy_from_slice(plain);
        packet.set(start, start + at + plain.len());
    } else {
        packet.replace([&bytes[..at], plain].concat().into());
    }
    let IpsecHeader { headers_len, next_at, .. } = *header;
    Ok(Payload { headers_len, next_at, at: packet.start() + at, end: packet.end(), next })
}

fn count_replay(stat: &mut crate::sa::SaStat, reason: DropReason) {
    match reason {
        DropReason::BehindWindow | DropReason::SeqHigh => stat.replay_window += 1,
        DropReason::Replayed => stat.replay += 1,
        _ => {}
    }
}

/// Applies the changes that an authentic packet causes, and unwraps it.
fn conclude(
    sad: &mut Sad,
    job: &Job,
    done: Status,
    packet: &mut Packet<'_>,
    outer: Option<&OuterHeader>,
    now_s: u64,
    events: &mut Vec<Event>,
) -> Result<Opened, DropReason> {
    if job.described && outer.is_none() {
        // The caller has lost the description that it began with.
        return Err(DropReason::Malformed);
    }
    let (hot, sa) = sad.pair_mut(job.sa).ok_or(DropReason::InInvalid)?;
    match done {
        Ok(()) => {}
        Err(OpError::Auth) => {
            sa.stat.integrity_failed += 1;
            return Err(DropReason::Icv);
        }
        Err(OpError::Driver) => return Err(DropReason::InDriver),
        Err(_) => return Err(DropReason::Short),
    }
    let payload = match job.task {
        Task::Ah => {
            let next = packet.buf()[job.head_at as usize];
            Payload {
                headers_len: job.ip_len as usize,
                next_at: job.next_at as usize,
                at: job.text_at as usize,
                end: packet.end(),
                next,
            }
        }
        Task::Aead | Task::Mac | Task::Partial => trailer(job, packet)?,
    };
    if let (Some(port), Some(encap)) = (job.port, &sa.encap) {
        let source = outer.map_or_else(|| addresses(packet.bytes(), sa.family()).0, |outer| outer.source);
        if (source != sa.src || port != encap.sport) && sa.mapping_is_due(now_s) {
            events.push(Event::Mapping { state: job.sa, address: source, port });
        }
    }
    if hot.state != SaState::Valid {
        return Err(DropReason::InInvalid);
    }
    // Packets of other bursts may have been counted in the meantime.
    if hot.bytes_left == 0 || hot.packets_left == 0 {
        sad.at_limit(job.sa, SaDir::In, events)?;
    }
    let (hot, sa) = sad.pair_mut(job.sa).ok_or(DropReason::InInvalid)?;
    sa.window.commit(job.spi_seq.number()).inspect_err(|reason| count_replay(&mut sa.stat, *reason))?;
    if sa.window.top() >= sa.notify_from[1] {
        sa.notify_from = [u64::MAX; 2];
        events.push(Event::Numbers(job.sa));
    }
    sa.count(hot, payload.end - payload.at, now_s);
    unwrap(sa, packet, &payload, outer)?;
    let mode = sa.mode;
    sad.traffic.opened_packets += 1;
    sad.traffic.opened_bytes += (payload.end - payload.at) as u64;
    Ok(match mode {
        // There may be more layers.
        Mode::Transport => Opened::Waiting,
        Mode::Tunnel | Mode::Beet => Opened::Packet,
        Mode::Iptfs => Opened::Aggregate,
    })
}

/// Writes the checksum of the upper protocol anew: a NAT has changed addresses that it is about, which its sender did not know
/// (RFC 3948 section 3.1.2). What ESP protects has not changed on the way.
fn renew_checksum(packet: &mut [u8]) {
    let Ok(Walk { family, upper, upper_at, end, fragment: None, .. }) = Walk::find(packet) else { return };
    let at = Layout { family, tcp_at: upper_at, payload_at: end, end };
    let header = &packet[upper_at..end];
    match upper {
        proto::TCP if header.len() >= TCP_HEADER_LEN => ip::set_tcp_checksum(packet, &at),
        proto::UDP if has_udp_checksum(header) => ip::set_udp_checksum(packet, &at),
        proto::ICMPV6 if header.len() >= 4 => ip::set_icmpv6_checksum(packet, &at),
        _ => {}
    }
}

/// Whether a datagram has a checksum and as many bytes as it says.
fn has_udp_checksum(datagram: &[u8]) -> bool {
    datagram.len() >= UDP_HEADER_LEN && usize::from(be16(datagram, 4)) == datagram.len() && datagram[6..8] != [0, 0]
}

/// Reads ESP's trailer: padding, its length, next header.
fn trailer(job: &Job, packet: &mut Packet<'_>) -> Result<Payload, DropReason> {
    let text = &packet.buf()[job.text_at as usize..job.icv_at as usize];
    let [.., pad_len, next] = *text else { return Err(DropReason::Padding) };
    // Like Linux: the payload has at least one byte, and the padding itself is not checked.
    let len = text.len().checked_sub(2 + usize::from(pad_len)).filter(|len| *len > 0).ok_or(DropReason::Padding)?;
    if next == proto::NONE {
        return Err(DropReason::Dummy);
    }
    let at = job.text_at as usize;
    Ok(Payload { headers_len: job.ip_len as usize, next_at: job.next_at as usize, at, end: at + len, next })
}
