//! Errors to senders whose packets would be too big once sealed (path MTU discovery: RFC 1191, RFC 8201, RFC 4301
//! section 8.2) or go nowhere, and errors received about sealed packets.
//!
//! ```text
//!  too big      ICMP    0 type 3  1 code 4  2 checksum  4 unused  6 MTU   8 the packet's start
//!               ICMPv6  0 type 2  1 code 0  2 checksum  4 MTU             8 the packet's start
//!  unreachable  ICMP    0 type 3  1 code 1  2 checksum  4 unused          8 the packet's start
//!               ICMPv6  0 type 1  1 code 3  2 checksum  4 unused          8 the packet's start
//! ```

use crate::encap::ESP_LEN;
use crate::sa::Proto;
use crate::selector::Flow;
use core::net::IpAddr;
use sealane_wire::ip::{ExtensionHeaders, Family, V4_HEADER_LEN, V6_HEADER_LEN, be16, be32, finish, sum, v6_upper};
use sealane_wire::proto;
use sealane_wire::walk::{Walk, addresses, set_total_len};

/// Length of the headers of ICMP and ICMPv6.
const ICMP_LEN: usize = 8;

/// The maximum length of an IPv4 error (RFC 1812 section 4.3.2.3).
const V4_MAX_LEN: usize = 576;

/// The maximum length of an IPv6 error, which is the minimum MTU (RFC 4443 section 2.4).
const V6_MAX_LEN: usize = 1280;

/// The maximum length of an error in bytes.
pub const MAX_ERROR_LEN: usize = V6_MAX_LEN;

/// The lowest MTU accepted from an error (Linux' `min_pmtu`), as anybody can forge one.
pub const V4_MIN_MTU: u32 = 552;

/// IPv4: destination unreachable, fragmentation needed.
const V4_TOO_BIG: [u8; 2] = [3, 4];
/// IPv6: packet too big.
const V6_TOO_BIG: [u8; 2] = [2, 0];
/// IPv4: destination unreachable, host.
const V4_UNREACHABLE: [u8; 2] = [3, 1];
/// IPv6: destination unreachable, address.
const V6_UNREACHABLE: [u8; 2] = [1, 3];

/// The types of errors of IPv4 that are told by the flow that they quote: destination unreachable, time exceeded.
pub const V4_ERRORS: [u16; 2] = [3, 11];
/// Those of IPv6: destination unreachable, packet too big, time exceeded.
pub const V6_ERRORS: [u16; 3] = [1, 2, 3];

/// The subject of an error to a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Its packet is longer than this MTU.
    TooBig(u32),
    /// Its packet goes nowhere (`dst_link_failure`).
    Unreachable,
}

/// Writes an error to `out` that reports `trouble` to the sender of `packet`, with the source address `from`. Returns its
/// length, or `None` if no error may be sent: about ICMP errors and later fragments of IPv4, and to addresses that do
/// not belong to a single host (RFC 1122 section 3.2.2).
///
/// # Panics
/// When `out` is shorter than [`MAX_ERROR_LEN`].
#[must_use]
pub fn write_error(packet: &[u8], trouble: Trouble, from: IpAddr, out: &mut [u8]) -> Option<usize> {
    let walk = Walk::find(packet).ok()?;
    let (source, destination) = addresses(packet, walk.family);
    let upper = &packet[walk.upper_at..walk.end];
    // RFC 4443 section 2.4 (e) makes no exception for later fragments of IPv6: any of them causes an error
    // (`is_ineligible` in `net/ipv6/icmp.c`).
    let error = match walk.upper {
        _ if walk.is_later_fragment() => walk.family == Family::V4,
        // Echo, timestamp and information messages are not errors.
        proto::ICMP => !matches!(upper.first(), Some(0 | 8 | 13..=18)),
        proto::ICMPV6 => upper.first().is_none_or(|kind| *kind < 128),
        _ => false,
    };
    let nobody = |a: IpAddr| a.is_unspecified() || a.is_multicast() || a == IpAddr::V4(core::net::Ipv4Addr::BROADCAST);
    // Groups of IPv6 are told of nothing but their MTU (RFC 4443 section 2.4 (e.3)).
    let group = nobody(destination) && (destination.is_ipv4() || trouble == Trouble::Unreachable);
    if error || nobody(source) || source.is_loopback() || group {
        return None;
    }
    let packet = &packet[..walk.end];
    match (source, from) {
        (IpAddr::V4(to), IpAddr::V4(from)) => {
            let quoted = packet.len().min(V4_MAX_LEN - V4_HEADER_LEN - ICMP_LEN);
            let len = V4_HEADER_LEN + ICMP_LEN + quoted;
            let out = &mut out[..len];
            out.fill(0);
            // Internetwork control, the TOS of Linux' errors.
            out[..2].copy_from_slice(&[0x45, 0xc0]);
            (out[8], out[9]) = (64, proto::ICMP);
            out[12..16].copy_from_slice(&from.octets());
            out[16..20].copy_from_slice(&to.octets());
            set_total_len(out, Family::V4).ok()?;
            let icmp = &mut out[V4_HEADER_LEN..];
            match trouble {
                Trouble::TooBig(mtu) => {
                    icmp[..2].copy_from_slice(&V4_TOO_BIG);
                    icmp[6..8].copy_from_slice(&u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes());
                }
                Trouble::Unreachable => icmp[..2].copy_from_slice(&V4_UNREACHABLE),
            }
            icmp[ICMP_LEN..].copy_from_slice(&packet[..quoted]);
            let checksum = finish(sum(icmp, 0));
            icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
            Some(len)
        }
        (IpAddr::V6(to), IpAddr::V6(from)) => {
            let quoted = packet.len().min(V6_MAX_LEN - V6_HEADER_LEN - ICMP_LEN);
            let len = V6_HEADER_LEN + ICMP_LEN + quoted;
            let out = &mut out[..len];
            out.fill(0);
            out[0] = 0x60;
            (out[6], out[7]) = (proto::ICMPV6, 64);
            out[8..24].copy_from_slice(&from.octets());
            out[24..40].copy_from_slice(&to.octets());
            set_total_len(out, Family::V6).ok()?;
            let icmp = &mut out[V6_HEADER_LEN..];
            match trouble {
                Trouble::TooBig(mtu) => {
                    icmp[..2].copy_from_slice(&V6_TOO_BIG);
                    // An MTU below the minimum of IPv6 cannot be reported (RFC 8201 section 4).
                    icmp[4..8].copy_from_slice(&mtu.max(V6_MAX_LEN as u32).to_be_bytes());
                }
                Trouble::Unreachable => icmp[..2].copy_from_slice(&V6_UNREACHABLE),
            }
            icmp[ICMP_LEN..].copy_from_slice(&packet[..quoted]);
            let pseudo = sum(&out[8..40], (ICMP_LEN + quoted) as u64 + u64::from(proto::ICMPV6));
            let checksum = finish(sum(&out[V6_HEADER_LEN..], pseudo));
            out[V6_HEADER_LEN + 2..V6_HEADER_LEN + 4].copy_from_slice(&checksum.to_be_bytes());
            Some(len)
        }
        _ => None,
    }
}

/// The association whose packet was too big.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotedSa {
    /// The one with this SPI, see [`Sad::find_in`](crate::sad::Sad::find_in).
    Spi(Proto, u32),
    /// One with these UDP ports: the SPI was cut off.
    Udp {
        /// Source port of the packet.
        sport: u16,
        /// Its destination port.
        dport: u16,
    },
}

/// A report that a packet was too big.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MtuReport {
    /// The destination of the packet, which is the association's.
    pub destination: IpAddr,
    /// The association.
    pub sa: QuotedSa,
    /// The MTU, raised to the lowest one accepted.
    pub mtu: u32,
}

/// Parses an ICMP error about a packet that was sealed here. Returns `None` for anything else. `udp_port` is the local
/// port of ESP in UDP.
///
/// Such an error can be forged by anybody who can send packets. Accept it only if an association has this destination.
/// MTUs below [`V4_MIN_MTU`] and 1280 are raised to these.
#[must_use]
pub fn parse_too_big(packet: &[u8], udp_port: u16) -> Option<MtuReport> {
    let walk = Walk::find(packet).ok().filter(|walk| walk.fragment.is_none())?;
    let icmp = packet[walk.upper_at..walk.end].get(..)?;
    let quoted = icmp.get(ICMP_LEN..)?;
    // Either protocol can follow either header; with the other family's header it is not an error.
    let (family, mtu) = match (walk.family, walk.upper, icmp[..2].try_into().ok()?) {
        (Family::V4, proto::ICMP, V4_TOO_BIG) if finish(sum(icmp, 0)) == 0 => {
            (Family::V4, u32::from(be16(icmp, 6)).max(V4_MIN_MTU))
        }
        (Family::V6, proto::ICMPV6, V6_TOO_BIG) => {
            let pseudo = sum(&packet[8..V6_HEADER_LEN], icmp.len() as u64 + u64::from(proto::ICMPV6));
            if finish(sum(icmp, pseudo)) != 0 {
                return None;
            }
            (Family::V6, be32(icmp, 4).max(V6_MAX_LEN as u32))
        }
        _ => return None,
    };
    // The quoted packet is truncated: its length fields exceed what is there.
    let (next, at) = match (family, quoted.first()? >> 4) {
        (Family::V4, 4) if quoted.len() >= V4_HEADER_LEN => (quoted[9], usize::from(quoted[0] & 15) * 4),
        (Family::V6, 6) if quoted.len() >= V6_HEADER_LEN => (quoted[6], V6_HEADER_LEN),
        _ => return None,
    };
    let (_, destination) = addresses(quoted, family);
    let upper = quoted.get(at..)?;
    let sa = match next {
        proto::ESP if upper.len() >= 4 => QuotedSa::Spi(Proto::Esp, be32(upper, 0)),
        proto::AH if upper.len() >= 8 => QuotedSa::Spi(Proto::Ah, be32(upper, 4)),
        proto::UDP if upper.len() >= 8 && be16(upper, 0) == udp_port => match upper.get(8..8 + ESP_LEN) {
            Some(esp) if be32(esp, 0) != 0 => QuotedSa::Spi(Proto::Esp, be32(esp, 0)),
            Some(_) => return None,
            None => QuotedSa::Udp { sport: be16(upper, 0), dport: be16(upper, 2) },
        },
        _ => return None,
    };
    Some(MtuReport { destination, sa, mtu })
}

/// The flow of the packet that an ICMP error quotes, reversed: source and destination are exchanged. Returns `None` if
/// `flow`, the flow of `packet`, is not such an error, or the quoted part is too short. With the `icmp` flag of a state
/// or policy, IPsec treats an error like the packet that caused it (`xfrm_icmp_flow_decode`).
#[must_use]
pub fn quoted(packet: &[u8], flow: &Flow) -> Option<Flow> {
    // Like the kernel, this assumes IP headers of minimum length.
    let quoted_at = match (flow.destination, flow.proto, flow.sport) {
        (IpAddr::V4(_), proto::ICMP, kind) if V4_ERRORS.contains(&kind) => V4_HEADER_LEN + ICMP_LEN,
        (IpAddr::V6(_), proto::ICMPV6, kind) if V6_ERRORS.contains(&kind) => V6_HEADER_LEN + ICMP_LEN,
        _ => return None,
    };
    let inner = packet.get(quoted_at..)?;
    let (family, header_len) = match inner.first()? >> 4 {
        4 if flow.destination.is_ipv4() => (Family::V4, V4_HEADER_LEN.max(usize::from(inner[0] & 15) * 4)),
        6 if flow.destination.is_ipv6() => (Family::V6, V6_HEADER_LEN),
        _ => return None,
    };
    let header = inner.get(..header_len)?;
    let (source, destination) = addresses(header, family);
    // The quoted packet is truncated, so its length fields are ignored. A later fragment, and a packet that ends within
    // its extension headers, has no ports: in IPv6 no protocol either.
    let (upper, ports) = match family {
        Family::V4 if be16(header, 6) & 0x1fff != 0 => (header[9], &[][..]),
        Family::V4 => (header[9], &inner[header_len..]),
        Family::V6 => match v6_upper(inner, ExtensionHeaders::BeforeIpsec) {
            Some(upper) => (upper.kind, inner.get(upper.at..).unwrap_or_default()),
            None => (header[6], &[][..]),
        },
    };
    let (sport, dport) = match (upper, ports) {
        (proto::TCP | proto::UDP | proto::UDPLITE | proto::SCTP | proto::DCCP, ports @ [_, _, _, _, ..]) => {
            (be16(ports, 2), be16(ports, 0))
        }
        (proto::ICMP | proto::ICMPV6, [kind, code, ..]) => (u16::from(*kind), u16::from(*code)),
        _ => (0, 0),
    };
    Some(Flow { source: destination, destination: source, proto: upper, sport, dport, ..*flow })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_errors() {
        let udp = [&[0, 7, 0, 9, 0, 0, 0, 0][..], &[1; 600]].concat();
        for packet in [v4(17, &udp), v6(17, &udp)] {
            let error = told(&packet, 1400).unwrap();
            let flow = Flow::of(&error, 5, 3).unwrap();
            let sent = Flow::of(&packet, 5, 3).unwrap();
            let back = Flow { source: sent.destination, destination: sent.source, sport: 9, dport: 7, ..sent };
            assert_eq!(quoted(&error, &flow), Some(back));
            assert_eq!(quoted(&packet, &sent), None);
            // Two IP headers and the ICMP header.
            for len in 0..2 * (packet.len() - udp.len()) + ICMP_LEN {
                assert_eq!(quoted(&error[..len], &flow), None, "cut off at {len}");
            }
        }
        // Hop-by-hop options and a first fragment before UDP.
        let carried = [&[44, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 9][..], &udp].concat();
        let packet = v6(0, &carried);
        let error = told(&packet, 1400).unwrap();
        let sent = Flow::of(&packet, 5, 3).unwrap();
        let back = Flow { source: sent.destination, destination: sent.source, sport: 9, dport: 7, ..sent };
        assert_eq!((sent.proto, sent.sport), (17, 7));
        assert_eq!(quoted(&error, &Flow::of(&error, 5, 3).unwrap()), Some(back));
        // A later fragment.
        let mut later = error;
        later[40 + 8 + 40 + 8 + 3] = 9;
        let back = quoted(&later, &Flow::of(&later, 5, 3).unwrap()).unwrap();
        assert_eq!((back.sport, back.dport), (0, 0));
        let ping = v4(1, &[8, 0, 0, 0, 1, 2, 3, 4]);
        let error = told(&ping, 1400).unwrap();
        let back = quoted(&error, &Flow::of(&error, 0, 0).unwrap()).unwrap();
        assert_eq!((back.proto, back.sport, back.dport), (1, 8, 0));
        assert_eq!(quoted(&ping, &Flow::of(&ping, 0, 0).unwrap()), None, "echo quotes nothing");
    }
    /// A correct checksum of the other family's protocol does not make it an error of this family.
    #[test]
    fn errors_behind_the_other_family_s_header() {
        let quoted = v4(proto::ESP, &[0, 0, 1, 0, 0, 0, 0, 1]);
        for (kind, protocol) in [(V4_TOO_BIG, proto::ICMP), (V6_TOO_BIG, proto::ICMPV6)] {
            let mut error = [&kind[..], &[0, 0, 0, 0, 5, 0], &quoted].concat();
            let sum = finish(sum(&error, 0)).to_be_bytes();
            error[2..4].copy_from_slice(&sum);
            assert_eq!(parse_too_big(&v4(protocol, &error), 4500).is_some(), protocol == proto::ICMP);
            assert_eq!(parse_too_big(&v6(protocol, &error), 4500), None);
            assert_eq!(parse_too_big(&v4(protocol, &error[..ICMP_LEN]), 4500), None, "nothing is quoted");
        }
    }

    use crate::packet::Packet;

    fn v4(proto: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, proto, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        packet.extend(body);
        set_total_len(&mut packet, Family::V4).unwrap();
        packet
    }

    fn v6(next: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        for last in [1, 2] {
            packet.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        packet.extend(body);
        set_total_len(&mut packet, Family::V6).unwrap();
        packet
    }

    fn error(packet: &[u8], trouble: Trouble) -> Option<Vec<u8>> {
        let from = if packet[0] >> 4 == 4 { "192.0.2.9" } else { "2001:db8::9" };
        let mut out = vec![0xee; MAX_ERROR_LEN];
        let len = write_error(packet, trouble, from.parse().unwrap(), &mut out)?;
        out.truncate(len);
        Some(out)
    }

    fn told(packet: &[u8], mtu: u32) -> Option<Vec<u8>> {
        error(packet, Trouble::TooBig(mtu))
    }

    #[test]
    fn told_and_heard() {
        let esp = [&[0, 0, 0x12, 0x34, 0, 0, 0, 1][..], &[7; 1400]].concat();
        let ah = [&[17, 4, 0, 0, 0, 0, 0x12, 0x35][..], &[7; 100]].concat();
        let udp = [&[0x11, 0x94, 0x11, 0x95, 0, 0, 0, 0][..], &esp].concat();
        let heard = |packet: &[u8], mtu| parse_too_big(&told(packet, mtu).unwrap(), 4500);
        let report =
            |destination: &str, sa, mtu| Some(MtuReport { destination: destination.parse().unwrap(), sa, mtu });
        for (body, proto, sa) in [
            (&esp, proto::ESP, QuotedSa::Spi(Proto::Esp, 0x1234)),
            (&ah, proto::AH, QuotedSa::Spi(Proto::Ah, 0x1235)),
            (&udp, proto::UDP, QuotedSa::Spi(Proto::Esp, 0x1234)),
        ] {
            assert_eq!(heard(&v4(proto, body), 1400), report("192.0.2.2", sa, 1400));
            assert_eq!(heard(&v6(proto, body), 1400), report("2001:db8::2", sa, 1400));
        }
        assert_eq!(heard(&v4(50, &esp), 68), report("192.0.2.2", QuotedSa::Spi(Proto::Esp, 0x1234), V4_MIN_MTU));
        assert_eq!(heard(&v6(50, &esp), 68), report("2001:db8::2", QuotedSa::Spi(Proto::Esp, 0x1234), 1280));
        assert_eq!(told(&v4(50, &esp), 1).unwrap().len(), 576);
        assert_eq!(told(&v6(50, &esp), 1).unwrap().len(), 1280);
        assert_eq!(told(&v4(50, b"short"), 1).unwrap().len(), 20 + 8 + 25);
        // A router must quote only eight bytes.
        let mut cut = told(&v4(17, &udp), 1400).unwrap();
        cut.truncate(20 + 8 + 28);
        set_total_len(&mut cut, Family::V4).unwrap();
        cut[22..24].fill(0);
        let checksum = finish(sum(&cut[20..], 0));
        cut[22..24].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(parse_too_big(&cut, 4500), report("192.0.2.2", QuotedSa::Udp { sport: 4500, dport: 4501 }, 1400));
        assert_eq!(parse_too_big(&cut, 4501), None, "not our port");
        cut[30] ^= 1;
        assert_eq!(parse_too_big(&cut, 4500), None, "its checksum is wrong");
        assert_eq!(heard(&v4(6, &esp), 1400), None, "not sealed");
        assert_eq!(parse_too_big(&v4(50, &esp), 4500), None);
        for len in 0..60 {
            let short = told(&v6(50, &esp), 1400).unwrap();
            assert_eq!(parse_too_big(&short[..len], 4500), None);
        }
    }

    #[test]
    fn unreachable() {
        let udp = [0, 7, 0, 9, 0, 9, 0, 0, 1];
        let v4_error = error(&v4(17, &udp), Trouble::Unreachable).unwrap();
        let v6_error = error(&v6(17, &udp), Trouble::Unreachable).unwrap();
        assert_eq!((&v4_error[20..22], &v4_error[24..28]), (&[3, 1][..], &[0; 4][..]));
        assert_eq!((&v6_error[40..42], &v6_error[44..48]), (&[1, 3][..], &[0; 4][..]));
        for (packet, error) in [(v4(17, &udp), &v4_error), (v6(17, &udp), &v6_error)] {
            assert!(error.ends_with(&packet));
            let sent = Flow::of(&packet, 0, 0).unwrap();
            let back = quoted(error, &Flow::of(error, 0, 0).unwrap()).unwrap();
            assert_eq!((back.source, back.sport, back.dport), (sent.destination, 9, 7));
        }
        assert_eq!(finish(sum(&v4_error[20..], 0)), 0);
        let pseudo = sum(&v6_error[8..40], (v6_error.len() - 40) as u64 + u64::from(proto::ICMPV6));
        assert_eq!(finish(sum(&v6_error[40..], pseudo)), 0);
    }

    #[test]
    fn nobody_to_tell() {
        assert!(told(&v4(1, &[8, 0, 0, 0]), 1400).is_some(), "echo is no error");
        assert_eq!(told(&v4(1, &[3, 4, 0, 0]), 1400), None);
        assert_eq!(told(&v6(58, &[2, 0, 0, 0]), 1400), None);
        assert!(told(&v6(58, &[128, 0, 0, 0]), 1400).is_some());
        let piece = |offset: u8, first: u8| [&[58, 0, offset, 1, 0, 0, 0, 9, first][..], &[0; 40]].concat();
        assert!(told(&v6(44, &piece(0, 128)), 1400).is_some(), "the first piece of an echo");
        assert_eq!(told(&v6(44, &piece(0, 2)), 1400), None, "the first piece of an error");
        assert!(told(&v6(44, &piece(1, 2)), 1400).is_some(), "a later piece of anything");
        let changed = |at: usize, to: &[u8]| {
            let mut packet = v4(17, &[0; 100]);
            packet[at..at + to.len()].copy_from_slice(to);
            told(&packet, 1400)
        };
        assert_eq!(changed(6, &[0, 1]), None, "a later fragment");
        assert!(changed(6, &[0x20, 0]).is_some(), "the first one");
        assert_eq!(changed(12, &[224, 0, 0, 1]), None);
        assert_eq!(changed(12, &[0; 4]), None);
        assert_eq!(changed(16, &[239, 1, 1, 1]), None);
        assert_eq!(changed(16, &[255; 4]), None);
        let mut out = [0; MAX_ERROR_LEN];
        assert_eq!(
            write_error(&v4(17, &[0; 9]), Trouble::TooBig(1400), "::1".parse().unwrap(), &mut out),
            None,
            "no address to tell from"
        );
        // Nobody is told that a group of IPv6 is unreachable, but of its MTU.
        let mut group = v6(17, &[0; 9]);
        group[24] = 0xff;
        assert!(told(&group, 1400).is_some());
        assert_eq!(error(&group, Trouble::Unreachable), None);
        // An error fits a packet's buffer.
        let mut buf = told(&v4(17, &[0; 100]), 1400).unwrap();
        let len = buf.len();
        assert_eq!(Packet::new(&mut buf, 0, len).len(), 20 + 8 + 120);
    }
}
