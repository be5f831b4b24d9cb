//! Inbound modes: removal of the outer headers (`net/xfrm/xfrm_input.c`).

use crate::drop::DropReason;
use crate::encap::{BEET_MAX_LEN, put_v6_fields};
use crate::packet::Packet;
use crate::sa::{Mode, Sa};
use core::net::IpAddr;
use sealane_wire::ip::{Family, V4_HEADER_LEN, V6_HEADER_LEN};
use sealane_wire::outer::OuterHeader;
use sealane_wire::proto;
use sealane_wire::walk::{ECN_MASK, Walk, ds_field, set_ds_field, set_total_len};

/// Don't fragment, in the byte of IPv4's flags.
const DF: u8 = 0x40;

/// The location of an opened payload.
#[derive(Clone, Copy)]
pub(crate) struct Payload {
    /// Length of the IP headers before it, from the packet's start. Unused where the headers are described.
    pub(crate) headers_len: usize,
    /// The offset in the headers of the byte that holds the protocol number of ESP, AH or UDP.
    pub(crate) next_at: usize,
    /// The payload in the buffer.
    pub(crate) at: usize,
    pub(crate) end: usize,
    /// Its protocol number.
    pub(crate) next: u8,
}

/// Removes the outer headers, which lie in front of the payload or are described by `outer`. Of IP-TFS its payload is left.
pub(crate) fn unwrap(
    sa: &Sa,
    packet: &mut Packet<'_>,
    payload: &Payload,
    outer: Option<&OuterHeader>,
) -> Result<(), DropReason> {
    match (sa.mode, outer) {
        (Mode::Tunnel, _) => tunnel(sa, packet, payload, outer),
        (Mode::Transport, None) => transport(sa, packet, payload),
        (Mode::Transport, Some(outer)) => transport_described(packet, payload, outer),
        (Mode::Beet, _) => beet(sa, packet, payload, outer),
        (Mode::Iptfs, _) => {
            packet.set(payload.at, payload.end);
            Ok(())
        }
    }
}

fn tunnel(sa: &Sa, packet: &mut Packet<'_>, payload: &Payload, outer: Option<&OuterHeader>) -> Result<(), DropReason> {
    let (family, header_len) = match payload.next {
        proto::IPIP => (Family::V4, V4_HEADER_LEN),
        proto::IPV6 => (Family::V6, V6_HEADER_LEN),
        _ => return Err(DropReason::InMode),
    };
    if payload.end - payload.at < header_len {
        return Err(DropReason::InMode);
    }
    let outer_tos = outer.map_or_else(|| ds_field(packet.bytes(), sa.family()), |outer| outer.tos);
    packet.set(payload.at, payload.end);
    // Padding for traffic flow confidentiality follows the inner packet.
    let walk = Walk::find(packet.bytes()).ok().filter(|walk| walk.family == family).ok_or(DropReason::Malformed)?;
    packet.set(payload.at, payload.at + walk.end);
    let tos = ds_field(packet.bytes(), family);
    let mut new = tos;
    if sa.flags.decap_dscp {
        new = outer_tos & !ECN_MASK | tos & ECN_MASK;
    }
    // RFC 6040 section 4.2, except that, like the kernel, packets that are not ECN-capable pass.
    if !sa.flags.noecn && outer_tos & ECN_MASK == 3 && new & ECN_MASK != 0 {
        new |= 3;
    }
    if new != tos {
        set_ds_field(packet.bytes_mut(), family, new);
    }
    Ok(())
}

fn transport(sa: &Sa, packet: &mut Packet<'_>, payload: &Payload) -> Result<(), DropReason> {
    let (from, to) = (packet.start(), payload.at - payload.headers_len);
    let buf = packet.buf();
    buf[from + payload.next_at] = payload.next;
    buf.copy_within(from..from + payload.headers_len, to);
    packet.set(to, payload.end);
    set_total_len(packet.bytes_mut(), sa.family()).map_err(|_| DropReason::InMode)
}

/// Transport mode with described headers: they are written in front of the payload.
fn transport_described(packet: &mut Packet<'_>, payload: &Payload, outer: &OuterHeader) -> Result<(), DropReason> {
    let (at, end) = room_before(packet, payload.at, payload.end, outer.ip_len())?;
    packet.set(at, end);
    outer.write_ip(packet.bytes_mut(), payload.next).map_err(|_| DropReason::InMode)
}

/// Makes room for a header of `len` bytes in front of the payload at `at..end`. If the buffer begins too close before
/// the payload, the payload moves back over trailer and ICV, which are no longer needed. Returns the start of the
/// header and the end of the payload.
fn room_before(packet: &mut Packet<'_>, at: usize, end: usize, len: usize) -> Result<(usize, usize), DropReason> {
    let Some(missing) = len.checked_sub(at) else { return Ok((at - len, end)) };
    if end + missing > packet.room() {
        return Err(DropReason::NoRoom);
    }
    packet.buf().copy_within(at..end, at + missing);
    Ok((0, end + missing))
}

fn beet(sa: &Sa, packet: &mut Packet<'_>, payload: &Payload, outer: Option<&OuterHeader>) -> Result<(), DropReason> {
    let Payload { mut at, mut end, mut next, .. } = *payload;
    let headers = packet.bytes();
    // A description has no identification and no flow label.
    let (tos, id, frag, ttl, label) = match (outer, sa.family()) {
        (Some(outer), Family::V4) => {
            (outer.tos, [0; 2], [if outer.dont_fragment { DF } else { 0 }, 0], outer.ttl, [0; 3])
        }
        (Some(outer), Family::V6) => (outer.tos, [0; 2], [DF, 0], outer.ttl, [0; 3]),
        (None, Family::V4) => (headers[1], [headers[4], headers[5]], [headers[6], headers[7]], headers[8], [0; 3]),
        // A packet that came over IPv6 is not fragmented, and must not be from here on.
        (None, Family::V6) => {
            let label = [headers[1] & 0x0f, headers[2], headers[3]];
            (ds_field(headers, Family::V6), [0; 2], [DF, 0], headers[7], label)
        }
    };
    match (sa.selector.source, sa.selector.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut options_len = 0;
            if next == proto::BEETPH {
                let header = packet.buf()[at..end].first_chunk::<4>().ok_or(DropReason::InMode)?;
                let [inner, len, pad, _] = *header;
                let header_len = 4 + usize::from(pad);
                options_len =
                    (usize::from(len) * 8 + BEET_MAX_LEN).checked_sub(header_len).ok_or(DropReason::InMode)?;
                // An IP header has room for 40 bytes of options.
                if options_len & 3 != 0 || options_len > 40 || end - at < header_len + options_len {
                    return Err(DropReason::InMode);
                }
                (next, at) = (inner, at + header_len);
            }
            (at, end) = room_before(packet, at, end, V4_HEADER_LEN)?;
            let header = &mut packet.buf()[at..at + V4_HEADER_LEN];
            header[0] = 0x45 + (options_len / 4) as u8;
            header[1] = tos;
            header[4..6].copy_from_slice(&id);
            header[6..8].copy_from_slice(&frag);
            (header[8], header[9]) = (ttl, next);
            header[12..16].copy_from_slice(&source.octets());
            header[16..20].copy_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            (at, end) = room_before(packet, at, end, V6_HEADER_LEN)?;
            let header = &mut packet.buf()[at..at + V6_HEADER_LEN];
            put_v6_fields(header, tos, label);
            (header[6], header[7]) = (next, ttl);
            header[8..24].copy_from_slice(&source.octets());
            header[24..40].copy_from_slice(&destination.octets());
        }
        _ => return Err(DropReason::InMode),
    }
    packet.set(at, end);
    let family = crate::selector::family_of(sa.selector.source);
    set_total_len(packet.bytes_mut(), family).map_err(|_| DropReason::InMode)?;
    // The IPv6 extension headers come from the peer, so they are checked.
    Walk::find(packet.bytes()).map_err(|_| DropReason::Malformed).map(|_| ())
}
