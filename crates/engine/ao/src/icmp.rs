//! Parsing of ICMP errors about connections (RFC 792, RFC 4443).

use crate::flows::Ends;
use sealane_net::ao::input::IcmpError;
use sealane_net::wire::ip::{self, Family};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const UNREACHABLE: u8 = 3;
const V6_UNREACHABLE: u8 = 1;
const ICMP_HEADER_LEN: usize = 8;

/// The connection and the error of an ICMP error about TCP; `None` for every other packet. Extension headers are not
/// followed: such a packet goes to the kernel.
#[must_use]
pub fn icmp_error(packet: &[u8]) -> Option<(Ends, IcmpError)> {
    let (family, icmp_at, protocol, unreachable) = match packet.first()? >> 4 {
        4 => (Family::V4, ip::v4_header_len(packet)?, (ICMP, *packet.get(9)?), UNREACHABLE),
        6 => (Family::V6, ip::V6_HEADER_LEN, (ICMPV6, *packet.get(6)?), V6_UNREACHABLE),
        _ => return None,
    };
    let (code, sent) = inner(packet, icmp_at, protocol, unreachable)?;
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
    let (icmp_at, inner_at) = match packet[0] >> 4 {
        4 => (usize::from(packet[0] & 0x0f) * 4, 9),
        _ => (40, 6),
    };
    let protocol_at = icmp_at + ICMP_HEADER_LEN + inner_at;
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
fn inner(packet: &[u8], at: usize, (protocol, is): (u8, u8), wanted: u8) -> Option<(u8, &[u8])> {
    let icmp = packet.get(at..)?;
    (protocol == is && *icmp.first()? == wanted).then_some(())?;
    Some((*icmp.get(1)?, icmp.get(ICMP_HEADER_LEN..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

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
