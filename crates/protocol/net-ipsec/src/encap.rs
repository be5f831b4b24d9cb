//! Outbound modes: the headers around the sealed payload (`net/xfrm/xfrm_output.c`).
//!
//! ```text
//!  tunnel      outer IP | UDP? | ESP | IV | inner IP, payload | trailer | ICV
//!  transport         IP | UDP? | ESP | IV |          payload | trailer | ICV
//!  BEET        outer IP | UDP? | ESP | IV | pseudo-header?, options?, payload | trailer | ICV
//!  IP-TFS      outer IP | UDP? | ESP | IV | payload of packets | trailer | ICV
//! ```

use crate::drop::DropReason;
use crate::packet::Packet;
use crate::prebuilt::PrebuiltHeader;
use crate::sa::{Hot, Mode, Proto, Sa};
use core::num::NonZeroU32;
use sealane_wire::ip::{Family, V4_HEADER_LEN, V6_HEADER_LEN};
use sealane_wire::outer::OuterHeader;
use sealane_wire::proto;
use sealane_wire::walk::{ECN_MASK, Walk, ds_field, unfragmentable};

/// Length of the ESP header in bytes: SPI and sequence number.
pub const ESP_LEN: usize = 8;

/// Don't fragment, in IPv4's flags.
const DF: u8 = 0x40;

/// The longest pseudo-header of BEET mode (`IPV4_BEET_PHMAXLEN`).
pub(crate) const BEET_MAX_LEN: usize = 8;

const ECN_CE: u8 = 3;
const ECN_ECT_0: u8 = 2;

/// Offsets in the buffer after a packet was wrapped.
#[derive(Clone, Copy)]
pub(crate) struct Wrapped {
    /// The outermost IP header.
    pub(crate) at: usize,
    pub(crate) family: Family,
    /// The header behind the IP headers: UDP, ESP or AH.
    pub(crate) upper_at: usize,
    /// The payload to be sealed.
    pub(crate) payload_at: usize,
    /// Its protocol number.
    pub(crate) next: u8,
    /// The byte of the IP headers that says what is at `upper_at`; unused if they are described.
    pub(crate) next_at: usize,
    /// The sum of a new outer IPv4 header without its length, kept because bytes that were just written one by one are
    /// slow to read back. It is never 0, so the option fits in one register.
    pub(crate) sum: Option<NonZeroU32>,
    /// Whether the outer headers are described instead of written.
    pub(crate) described: bool,
}

/// Bytes between the IP headers, or the start of the packet where these are only described, and the payload to be
/// sealed.
fn gap(sa: &Sa, hot: &Hot, described: bool) -> usize {
    match sa.proto {
        Proto::Esp if described => ESP_LEN + usize::from(hot.iv_len),
        Proto::Esp => usize::from(sa.outer.encap_len) + ESP_LEN + usize::from(hot.iv_len),
        Proto::Ah => sa.ah_len(hot.icv_len.into()),
        // Its header takes bytes that compression has saved.
        Proto::Comp | Proto::Ipip => 0,
    }
}

/// Places the IP headers; lengths and IPv4's checksum are written later. If the association uses UDP and `describe` is
/// given, the IP and UDP headers are described there instead of written. The exception are packets in transport mode
/// that have options or extension headers, which a description cannot hold. A packet of more than `fit` bytes has to be
/// cut once it is sealed.
#[inline(always)]
pub(crate) fn wrap(
    sa: &Sa,
    hot: &Hot,
    packet: &mut Packet<'_>,
    number: u64,
    fit: u32,
    describe: Option<&mut Option<OuterHeader>>,
) -> Result<Wrapped, DropReason> {
    match sa.mode {
        Mode::Tunnel => tunnel(sa, hot, packet, number, fit, describe),
        Mode::Transport => transport(sa, hot, packet, describe),
        Mode::Beet => beet(sa, hot, packet, number, fit, describe),
        Mode::Iptfs => iptfs(sa, hot, packet, describe),
    }
}

/// Describes an outer header that is made from the association.
fn description(sa: &Sa, tos: u8, ttl: u8, df: u8) -> OuterHeader {
    let dont_fragment = sa.outer.family() == Family::V4 && df & DF != 0;
    OuterHeader { source: sa.src, destination: sa.dst, tos, ttl, dont_fragment, ports: ports(sa), tcp: sa.is_in_tcp() }
}

fn ports(sa: &Sa) -> Option<(u16, u16)> {
    sa.encap.map(|encap| (encap.sport, encap.dport))
}

/// The fields that the outer header takes from the inner one.
struct Inner {
    tos: u8,
    /// Flags and fragment offset of IPv4. IPv6 counts as if fragmentation were forbidden, unless its packet has to be
    /// cut: its sender cannot be told to send less than 1,280 bytes (RFC 2473 section 7.1).
    frag: [u8; 2],
    /// Identification of IPv4; for an IPv6 packet that has to be cut, from its sequence number.
    id: [u8; 2],
    ttl: u8,
    label: [u8; 3],
}

impl Inner {
    fn of(bytes: &[u8], family: Family, number: u64, fit: u32) -> Self {
        let tos = ds_field(bytes, family);
        match family {
            Family::V4 => {
                Inner { tos, frag: [bytes[6], bytes[7]], id: [bytes[4], bytes[5]], ttl: bytes[8], label: [0; 3] }
            }
            Family::V6 => {
                let label = [bytes[1] & 0x0f, bytes[2], bytes[3]];
                let (df, id) = if bytes.len() > fit as usize { (0, number as u16) } else { (DF, 0) };
                Inner { tos, frag: [df, 0], id: id.to_be_bytes(), ttl: bytes[7], label }
            }
        }
    }
}

/// The offset in an IP header without extensions of the next protocol's number.
fn next_field(family: Family) -> usize {
    match family {
        Family::V4 => 9,
        Family::V6 => 6,
    }
}

fn header_of(bytes: &[u8]) -> Result<Family, DropReason> {
    match bytes.first().map(|b| b >> 4) {
        Some(4) if bytes.len() >= V4_HEADER_LEN => Ok(Family::V4),
        Some(6) if bytes.len() >= V6_HEADER_LEN => Ok(Family::V6),
        _ => Err(DropReason::Malformed),
    }
}

fn put_outer<'b>(outer: &PrebuiltHeader, buf: &'b mut [u8], at: usize) -> &'b mut [u8] {
    let len = usize::from(outer.len);
    let header = &mut buf[at..at + len];
    header.copy_from_slice(&outer.bytes[..len]);
    header
}

#[inline(always)]
fn tunnel(
    sa: &Sa,
    hot: &Hot,
    packet: &mut Packet<'_>,
    number: u64,
    fit: u32,
    describe: Option<&mut Option<OuterHeader>>,
) -> Result<Wrapped, DropReason> {
    let family = header_of(packet.bytes())?;
    let inner = Inner::of(packet.bytes(), family, number, fit);
    let ecn = if inner.tos & ECN_MASK == ECN_CE { ECN_ECT_0 } else { inner.tos & ECN_MASK };
    let dscp = if sa.flags.dont_encap_dscp { 0 } else { inner.tos & !ECN_MASK };
    let tos = dscp | if sa.flags.noecn { 0 } else { ecn };
    let df = if sa.flags.nopmtudisc { 0 } else { inner.frag[0] & DF };
    let next = if family == Family::V4 { proto::IPIP } else { proto::IPV6 };
    let id = if df == 0 { number as u16 } else { 0 };
    let fields = OuterFields { tos, df, id, label: inner.label, next };
    around(sa, hot, packet, &fields, describe)
}

/// A payload of IP-TFS: its outer header takes nothing from the packets in it (`iptfs_encap_add_ipv4`, RFC 9347 section 3.1).
#[inline(never)]
fn iptfs(
    sa: &Sa,
    hot: &Hot,
    packet: &mut Packet<'_>,
    describe: Option<&mut Option<OuterHeader>>,
) -> Result<Wrapped, DropReason> {
    let fields = OuterFields { tos: 0, df: DF, id: 0, label: [0; 3], next: proto::AGGFRAG };
    around(sa, hot, packet, &fields, describe)
}

/// The fields of an outer header that differ between packets.
struct OuterFields {
    tos: u8,
    /// IPv4: its flags, and its identification.
    df: u8,
    id: u16,
    /// IPv6.
    label: [u8; 3],
    /// The protocol number of the payload.
    next: u8,
}

/// Puts an outer header around a whole packet.
#[inline(always)]
fn around(
    sa: &Sa,
    hot: &Hot,
    packet: &mut Packet<'_>,
    fields: &OuterFields,
    describe: Option<&mut Option<OuterHeader>>,
) -> Result<Wrapped, DropReason> {
    let OuterFields { tos, df, id, label, next } = *fields;
    let payload_at = packet.start();
    let upper_at = payload_at.checked_sub(gap(sa, hot, describe.is_some())).ok_or(DropReason::NoRoom)?;
    if let Some(describe) = describe {
        *describe = Some(description(sa, tos, sa.outer.hop_limit(), df));
        return Ok(Wrapped {
            at: upper_at,
            family: sa.outer.family(),
            upper_at,
            payload_at,
            next,
            next_at: 0,
            sum: None,
            described: true,
        });
    }
    let at = upper_at.checked_sub(usize::from(sa.outer.len)).ok_or(DropReason::NoRoom)?;
    let header = put_outer(&sa.outer, packet.buf(), at);
    let sum = match sa.outer.family() {
        Family::V4 => {
            header[1] = tos;
            header[4..6].copy_from_slice(&id.to_be_bytes());
            header[6] = df;
            NonZeroU32::new(sa.outer.sum + u32::from(tos) + u32::from(id) + (u32::from(df) << 8))
        }
        Family::V6 => {
            put_v6_fields(header, tos, label);
            None
        }
    };
    let next_at = at + next_field(sa.outer.family());
    Ok(Wrapped { at, family: sa.outer.family(), upper_at, payload_at, next, next_at, sum, described: false })
}

/// Writes version, traffic class and flow label.
pub(crate) fn put_v6_fields(header: &mut [u8], tos: u8, label: [u8; 3]) {
    header[0] = 0x60 | tos >> 4;
    header[1] = tos << 4 | label[0] & 0x0f;
    header[2..4].copy_from_slice(&label[1..]);
}

#[inline(never)]
fn transport(
    sa: &Sa,
    hot: &Hot,
    packet: &mut Packet<'_>,
    describe: Option<&mut Option<OuterHeader>>,
) -> Result<Wrapped, DropReason> {
    let walk = Walk::find(packet.bytes()).map_err(|_| DropReason::Malformed)?;
    if walk.family != sa.outer.family() || walk.fragment.is_some() {
        return Err(DropReason::OutMode);
    }
    let (headers_len, next_at) = unfragmentable(packet.bytes(), &walk).map_err(|_| DropReason::Malformed)?;
    let start = packet.start();
    let payload_at = start + headers_len;
    if let Some(describe) = describe
        && let Some((outer, _)) = OuterHeader::of_ip(packet.bytes())
        && outer.ip_len() == headers_len
    {
        let at = payload_at.checked_sub(gap(sa, hot, true)).ok_or(DropReason::NoRoom)?;
        packet.set(start, start + walk.end);
        let next = packet.bytes()[next_at];
        *describe = Some(OuterHeader { ports: ports(sa), tcp: sa.is_in_tcp(), ..outer });
        return Ok(Wrapped {
            at,
            family: walk.family,
            upper_at: at,
            payload_at,
            next,
            next_at: 0,
            sum: None,
            described: true,
        });
    }
    let at = start.checked_sub(gap(sa, hot, false)).ok_or(DropReason::NoRoom)?;
    packet.set(start, start + walk.end);
    let proto = sa.outer.proto;
    let buf = packet.buf();
    buf.copy_within(start..start + headers_len, at);
    let (upper_at, next_at) = (at + headers_len, at + next_at);
    let next = std::mem::replace(&mut buf[next_at], proto);
    Ok(Wrapped { at, family: walk.family, upper_at, payload_at, next, next_at, sum: None, described: false })
}

#[inline(never)]
fn beet(
    sa: &Sa,
    hot: &Hot,
    packet: &mut Packet<'_>,
    number: u64,
    fit: u32,
    describe: Option<&mut Option<OuterHeader>>,
) -> Result<Wrapped, DropReason> {
    let family = header_of(packet.bytes())?;
    if sa.selector.family != Some(family) {
        return Err(DropReason::OutMode);
    }
    let inner = Inner::of(packet.bytes(), family, number, fit);
    let start = packet.start();
    let (mut payload_at, mut next) = match family {
        Family::V4 => (start + V4_HEADER_LEN, packet.bytes()[9]),
        Family::V6 => (start + V6_HEADER_LEN, packet.bytes()[6]),
    };
    if family == Family::V4 {
        let walk = Walk::find(packet.bytes()).map_err(|_| DropReason::Malformed)?;
        if walk.fragment.is_some() {
            return Err(DropReason::OutMode);
        }
        packet.set(start, start + walk.end);
        let options_len = walk.upper_at - V4_HEADER_LEN;
        if options_len > 0 {
            // The options are preceded by a header of 4 bytes, and by 4 bytes of padding if their length is a multiple
            // of 8.
            let len = BEET_MAX_LEN - (options_len & 4);
            payload_at -= len;
            let header = &mut packet.buf()[payload_at..payload_at + len];
            header.fill(1);
            header[..4].copy_from_slice(&[next, (options_len / 8) as u8, (len - 4) as u8, 0]);
            next = proto::BEETPH;
        }
    }
    let upper_at = payload_at.checked_sub(gap(sa, hot, describe.is_some())).ok_or(DropReason::NoRoom)?;
    if let Some(describe) = describe {
        *describe = Some(description(sa, inner.tos, inner.ttl, inner.frag[0]));
        return Ok(Wrapped {
            at: upper_at,
            family: sa.outer.family(),
            upper_at,
            payload_at,
            next,
            next_at: 0,
            sum: None,
            described: true,
        });
    }
    let at = upper_at.checked_sub(usize::from(sa.outer.len)).ok_or(DropReason::NoRoom)?;
    let header = put_outer(&sa.outer, packet.buf(), at);
    match sa.outer.family() {
        Family::V4 => {
            header[1] = inner.tos;
            header[4..6].copy_from_slice(&inner.id);
            header[6..8].copy_from_slice(&inner.frag);
            header[8] = inner.ttl;
        }
        Family::V6 => {
            put_v6_fields(header, inner.tos, inner.label);
            header[7] = inner.ttl;
        }
    }
    let next_at = at + next_field(sa.outer.family());
    Ok(Wrapped { at, family: sa.outer.family(), upper_at, payload_at, next, next_at, sum: None, described: false })
}
