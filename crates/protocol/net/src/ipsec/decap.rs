//! Inbound modes: what is left when the headers around it are taken away (`net/xfrm/xfrm_input.c`).

use crate::ipsec::drop::DropReason;
use crate::ipsec::encap::{BEET_MAX_LEN, put_v6_fields};
use crate::ipsec::packet::Packet;
use crate::ipsec::sa::{Mode, Sa};
use crate::wire::ip::{Family, V6_HEADER_LEN};
use crate::wire::walk::{V4_HEADER_LEN, Walk, ds_field, proto, set_ds_field, set_total_len};
use core::net::IpAddr;

const ECN_MASK: u8 = 3;

/// What was opened, in the packet's own bytes.
#[derive(Clone, Copy)]
pub(crate) struct Payload {
    /// The IP headers before it: from the packet's start on, this long.
    pub(crate) headers_len: usize,
    /// The byte in there that names ESP, AH or UDP.
    pub(crate) next_at: usize,
    /// The payload in the buffer.
    pub(crate) at: usize,
    pub(crate) end: usize,
    /// Its protocol.
    pub(crate) next: u8,
}

/// Takes the headers away.
pub(crate) fn unwrap(sa: &Sa, packet: &mut Packet<'_>, payload: &Payload) -> Result<(), DropReason> {
    match sa.mode {
        Mode::Tunnel => tunnel(sa, packet, payload),
        Mode::Transport => transport(sa, packet, payload),
        Mode::Beet => beet(sa, packet, payload),
    }
}

fn tunnel(sa: &Sa, packet: &mut Packet<'_>, payload: &Payload) -> Result<(), DropReason> {
    let (family, header_len) = match payload.next {
        proto::IPIP => (Family::V4, V4_HEADER_LEN),
        proto::IPV6 => (Family::V6, V6_HEADER_LEN),
        _ => return Err(DropReason::InMode),
    };
    if payload.end - payload.at < header_len {
        return Err(DropReason::InMode);
    }
    let outer_tos = ds_field(packet.bytes(), sa.family());
    packet.set(payload.at, payload.end);
    // Padding for traffic flow confidentiality lies behind the inner packet.
    let walk = Walk::find(packet.bytes()).ok().filter(|walk| walk.family == family).ok_or(DropReason::Malformed)?;
    packet.set(payload.at, payload.at + walk.end);
    let tos = ds_field(packet.bytes(), family);
    let mut new = tos;
    if sa.flags.decap_dscp {
        new = outer_tos & !ECN_MASK | tos & ECN_MASK;
    }
    // RFC 6040 section 4.2, but that the kernel lets pass what was not capable of ECN.
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

fn beet(sa: &Sa, packet: &mut Packet<'_>, payload: &Payload) -> Result<(), DropReason> {
    let Payload { mut at, end, mut next, .. } = *payload;
    let outer = packet.bytes();
    let tos = ds_field(outer, sa.family());
    let (id, frag, ttl, label) = match sa.family() {
        Family::V4 => ([outer[4], outer[5]], [outer[6], outer[7]], outer[8], [0; 3]),
        // What came over IPv6 has no fragments, and must not become any.
        Family::V6 => ([0; 2], [0x40, 0], outer[7], [outer[1] & 0x0f, outer[2], outer[3]]),
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
            at = at.checked_sub(V4_HEADER_LEN).ok_or(DropReason::NoRoom)?;
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
            at = at.checked_sub(V6_HEADER_LEN).ok_or(DropReason::NoRoom)?;
            let header = &mut packet.buf()[at..at + V6_HEADER_LEN];
            put_v6_fields(header, tos, label);
            (header[6], header[7]) = (next, ttl);
            header[8..24].copy_from_slice(&source.octets());
            header[24..40].copy_from_slice(&destination.octets());
        }
        _ => return Err(DropReason::InMode),
    }
    packet.set(at, end);
    let family = crate::ipsec::selector::family_of(sa.selector.source);
    set_total_len(packet.bytes_mut(), family).map_err(|_| DropReason::InMode)?;
    // The extension headers of IPv6 are the peer's.
    Walk::find(packet.bytes()).map_err(|_| DropReason::Malformed).map(|_| ())
}
