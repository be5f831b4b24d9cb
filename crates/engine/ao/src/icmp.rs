//! Parsing of ICMP errors about connections (RFC 792, RFC 4443).

use crate::flows::Ends;
use sealane_net_ao::input::IcmpError;
use sealane_wire::ip::{self, Family};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const UNREACHABLE: u8 = 3;
const V6_UNREACHABLE: u8 = 1;
const ICMP_HEADER_LEN: usize = 8;

/// The IP version of an ICMP packet and the offset of its ICMP header, behind options and extension headers.
fn located(packet: &[u8]) -> Option<(Family, usize)> {
    let (family, at, is_icmp) = match packet.first()? >> 4 {
        4 => (Family::V4, ip::v4_header_len(packet)?, *packet.get(9)? == ICMP),
        6 => {
            let upper = ip::v6_upper(packet, ip::ExtensionHeaders::WithAh)?;
            (Family::V6, upper.at, upper.kind == ICMPV6)
        }
        _ => return None,
    };
    is_icmp.then_some((family, at))
}

/// Whether a packet is ICMP of its IP version.
#[must_use]
pub fn is_icmp(packet: &[u8]) -> bool {
    located(packet).is_some()
}

/// The connection and the error of an ICMP error about TCP; `None` for every other packet.
#[must_use]
pub fn icmp_error(packet: &[u8]) -> Option<(Ends, IcmpError)> {
    let (family, icmp_at) = located(packet)?;
    let unreachable = match family {
        Family::V4 => UNREACHABLE,
        Family::V6 => V6_UNREACHABLE,
    };
    let (code, sent) = inner(packet, icmp_at, unreachable)?;
    let error = match family {
        Family::V4 => IcmpError::V4(code),
        Family::V6 => IcmpError::V6(code),
    };
    Some((Ends::sent_front(family, sent)?, error))
}

/// A protocol number for experiments, which no socket has (RFC 3692).
const NOBODY: u8 = 253;

/// Changes the protocol of the inner packet of an ICMP error that [`icmp_error`] understood, and the checksum with it.
/// The kernel then counts the error and finds no socket for it.
pub fn hide_from_sockets(packet: &mut [u8]) {
    let Some((family, icmp_at)) = located(packet) else { return };
    let named_at = match family {
        Family::V4 => 9,
        Family::V6 => {
            match packet.get(icmp_at + ICMP_HEADER_LEN..).and_then(|p| ip::v6_upper(p, ip::ExtensionHeaders::WithAh)) {
                Some(upper) => upper.named_at,
                None => return,
            }
        }
    };
    let protocol_at = icmp_at + ICMP_HEADER_LEN + named_at;
    // The checksum is adjusted by the word that contains the protocol (RFC 1624).
    let word_at = icmp_at + (protocol_at - icmp_at) / 2 * 2;
    let word = |p: &[u8], at: usize| u16::from_be_bytes([p[at], p[at + 1]]);
    let before = word(packet, word_at);
    packet[protocol_at] = NOBODY;
    let mut sum = u32::from(!word(packet, icmp_at + 2)) + u32::from(!before) + u32::from(word(packet, word_at));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[icmp_at + 2..icmp_at + 4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Code and inner packet of an error of type `wanted`.
fn inner(packet: &[u8], at: usize, wanted: u8) -> Option<(u8, &[u8])> {
    let icmp = packet.get(at..)?;
    (*icmp.first()? == wanted).then_some(())?;
    Some((*icmp.get(1)?, icmp.get(ICMP_HEADER_LEN..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn what_is_ignored_stays_a_good_packet() {
        let mut p = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0, 9, 9, 9, 9, 10, 0, 0, 1];
        p.extend([UNREACHABLE, 3, 0, 0, 0, 0, 0, 0]);
        p.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, ip::PROTO_TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 179, 0x9c, 0x40]);
        let sum = |p: &[u8]| {
            let mut sum: u32 = p[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            !(sum as u16)
        };
        let checksum = sum(&p).to_be_bytes();
        p[22..24].copy_from_slice(&checksum);
        assert_eq!(sum(&p), 0);
        hide_from_sockets(&mut p);
        assert_eq!((sum(&p), icmp_error(&p)), (0, None));
    }

    #[test]
    fn extension_headers_hide_no_error() {
        const HOP: [u8; 8] = [60, 0, 1, 4, 0, 0, 0, 0];
        const DESTINATION: [u8; 16] = [44, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let fragment = |next: u8, offset: u16| [&[next, 0][..], &offset.to_be_bytes(), &[0, 0, 0, 9]].concat();
        let header = |next: u8, from: [u8; 16], to: [u8; 16]| {
            [&[0x60, 0, 0, 0, 0, 0, next, 64][..], &from[..], &to[..]].concat()
        };
        let (a, b) = ([0xa; 16], [0xb; 16]);
        let all = |next: u8| [&HOP[..], &DESTINATION, &fragment(next, 1)].concat();
        let ends = Ends::new(SocketAddr::from((a, 179)), SocketAddr::from((b, 40000)));
        let sum = |p: &[u8]| p.chunks(2).fold(0u32, |s, w| (s + (u32::from(w[0]) << 8 | u32::from(w[1]))) % 0xffff);
        for (outer, quoted) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut p = header(if outer { 0 } else { ICMPV6 }, [9; 16], a);
            p.extend(if outer { all(ICMPV6) } else { Vec::new() });
            p.extend([V6_UNREACHABLE, 4, 0, 0, 0, 0, 0, 0]);
            p.extend(header(if quoted { 0 } else { ip::PROTO_TCP }, a, b));
            p.extend(if quoted { all(ip::PROTO_TCP) } else { Vec::new() });
            p.extend([0, 179, 0x9c, 0x40]);
            assert_eq!(icmp_error(&p), Some((ends, IcmpError::V6(4))), "{outer} {quoted}");
            assert!(is_icmp(&p));
            for len in 0..p.len() {
                assert_eq!(icmp_error(&p[..len]), None, "{len} bytes");
            }
            let before = sum(&p);
            hide_from_sockets(&mut p);
            assert_eq!((icmp_error(&p), sum(&p)), (None, before), "{outer} {quoted}");
        }
        // A later fragment has no ports.
        let mut p = [header(ICMPV6, [9; 16], a), vec![V6_UNREACHABLE, 4, 0, 0, 0, 0, 0, 0], header(44, a, b)].concat();
        p.extend([&fragment(ip::PROTO_TCP, 8)[..], &[0, 179, 0x9c, 0x40]].concat());
        assert_eq!(icmp_error(&p), None);
    }

    #[test]
    fn errors_about_tcp_and_nothing_else() {
        let mut p = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0, 9, 9, 9, 9, 10, 0, 0, 1];
        p.extend([UNREACHABLE, 3, 0, 0, 0, 0, 0, 0]);
        p.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, ip::PROTO_TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 179, 0x9c, 0x40]);
        let ends = Ends::new("10.0.0.1:179".parse().unwrap(), "10.0.0.2:40000".parse().unwrap());
        assert_eq!(icmp_error(&p), Some((ends, IcmpError::V4(3))));
        for len in 0..p.len() {
            assert_eq!(icmp_error(&p[..len]), None, "{len} bytes");
        }
        for (at, value) in [(9, 6), (20, 8), (37, 17), (28, 0x44), (0, 0x55)] {
            let mut other = p.clone();
            other[at] = value;
            assert_eq!(icmp_error(&other), None, "byte {at}");
        }
    }
}
