//! Checks and edits of a router that forwards a packet.

use super::ip::{V4_HEADER_LEN, V6_HEADER_LEN, finish, sum};
use super::proto;
use super::walk::address_pair;
use std::net::IpAddr;

/// Returns a packet's length in bytes, without link padding, and its source and destination. Returns `None` for a
/// packet that is cut short, or whose IPv4 header checksum is wrong; a router drops both (RFC 1812 section 5.2.2).
#[must_use]
pub fn validate(packet: &[u8]) -> Option<(usize, (IpAddr, IpAddr))> {
    let first = *packet.first()?;
    let (header_len, len) = match first >> 4 {
        4 => (usize::from(first & 15) * 4, usize::from(u16::from_be_bytes(*packet.get(2..)?.first_chunk()?))),
        6 => (V6_HEADER_LEN, V6_HEADER_LEN + usize::from(u16::from_be_bytes(*packet.get(4..)?.first_chunk()?))),
        _ => return None,
    };
    let packet = packet.get(..len).filter(|_| len >= header_len && header_len >= V4_HEADER_LEN)?;
    let summed = first >> 4 == 6 || finish(sum(&packet[..header_len], 0)) == 0;
    Some((len, address_pair(packet).ok().filter(|_| summed)?))
}

/// Decrements the TTL or hop limit of a packet that [`validate`] accepted. Returns false, and changes nothing, if it
/// would reach 0.
pub fn decrement_hop_limit(packet: &mut [u8]) -> bool {
    let v6 = packet.first().is_some_and(|b| b >> 4 == 6);
    let at = if v6 { 7 } else { 8 };
    match packet.get(at) {
        None | Some(0 | 1) => return false,
        Some(_) => packet[at] -= 1,
    }
    if !v6 && packet.len() >= V4_HEADER_LEN {
        // RFC 1624: the sum of the header is 0x100 less now.
        let sum = u32::from(u16::from_be_bytes([packet[10], packet[11]])) + 0x100;
        let sum = (sum & 0xffff) + (sum >> 16);
        packet[10..12].copy_from_slice(&(sum as u16).to_be_bytes());
    }
    true
}

/// Whether a packet has no options that every router must process: no IPv4 options, no IPv6 hop-by-hop options.
#[must_use]
pub fn is_plain(packet: &[u8]) -> bool {
    match packet.first() {
        Some(0x45) => true,
        Some(0x60..=0x6f) => packet.get(6).is_some_and(|next| *next != proto::HOP_BY_HOP),
        _ => false,
    }
}

/// Whether two packets certainly belong to one flow: same addresses, same protocol, same first four bytes behind the
/// header (ports, or type and code).
#[must_use]
pub fn is_same_flow(a: &[u8], b: &[u8]) -> bool {
    let key = |p: &[u8]| -> Option<([u8; 36], u8)> {
        let mut key = [0; 36];
        match p.first()? {
            0x45 => {
                key[..12].copy_from_slice(p.get(12..24)?);
                Some((key, *p.get(9)?))
            }
            0x60..=0x6f => {
                key.copy_from_slice(p.get(8..44)?);
                Some((key, *p.get(6)?))
            }
            _ => None,
        }
    };
    let (a, b) = (key(a), key(b));
    a.is_some() && a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::set_v4_checksum;

    #[test]
    fn the_hop_limit_counts_down() {
        let mut packet = [0x45, 0, 0, 20, 1, 2, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        for tos in 0..=255 {
            (packet[1], packet[8]) = (tos, 64);
            set_v4_checksum(&mut packet);
            for hops in (1..64).rev() {
                assert!(decrement_hop_limit(&mut packet));
                assert_eq!((packet[8], validate(&packet).map(|w| w.0)), (hops, Some(20)), "{tos}");
            }
            assert!(!decrement_hop_limit(&mut packet), "the last one is not taken");
        }
        let mut v6 = [0u8; 40];
        (v6[0], v6[7]) = (0x60, 2);
        assert!(decrement_hop_limit(&mut v6) && v6[7] == 1 && !decrement_hop_limit(&mut v6));
        assert!(!decrement_hop_limit(&mut []));
    }

    #[test]
    fn short_packets_lose_their_padding_and_broken_ones_are_none() {
        let mut frame = [0u8; 46];
        let of = |frame: &mut [u8; 46], len| {
            frame[3] = len;
            set_v4_checksum(frame);
            validate(frame).map(|w| w.0)
        };
        frame[0] = 0x45;
        assert_eq!(of(&mut frame, 28), Some(28));
        assert_eq!(of(&mut frame, 47), None);
        assert_eq!(of(&mut frame, 19), None);
        frame[0] = 0x46;
        assert_eq!((of(&mut frame, 23), of(&mut frame, 24)), (None, Some(24)));
        frame[22] = 1;
        assert_eq!(validate(&frame), None, "a wrong checksum");
        frame[0] = 0x44;
        assert_eq!(validate(&frame), None);
        let mut v6 = [0u8; 60];
        (v6[0], v6[5]) = (0x60, 8);
        assert_eq!(validate(&v6).map(|w| w.0), Some(48));
        assert_eq!(validate(&[]), None);
    }

    #[test]
    fn flows() {
        let mut a = [0u8; 28];
        (a[0], a[9]) = (0x45, 17);
        assert!(is_same_flow(&a, &a) && is_plain(&a));
        for (at, same) in [(8, true), (9, false), (12, false), (19, false), (23, false), (24, true)] {
            let mut b = a;
            b[at] ^= 1;
            assert_eq!(is_same_flow(&a, &b), same, "{at}");
        }
        a[0] = 0x46;
        assert!(!is_same_flow(&a, &a) && !is_plain(&a));
        assert!(!is_same_flow(&[], &[]));
    }
}
