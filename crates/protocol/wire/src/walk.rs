//! Walks the headers of an IP packet to the first upper-layer protocol, and edits the fields of IP headers.

use crate::extension::{Chain, is_basic};
use crate::ip::{Family, V4_HEADER_LEN, V6_HEADER_LEN, be16, finish, sum};
use crate::proto;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use crate::extension::{Fragment, Malformed};

/// Offsets of a packet's upper-layer header and end, in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// IP version.
    pub family: Family,
    /// The first protocol that is not an IPv6 hop-by-hop, destination options, routing or fragment header; of a fragment
    /// behind the first, the protocol that its fragment header names.
    pub upper: u8,
    /// The offset of its header.
    pub upper_at: usize,
    /// The offset of the byte that holds its number.
    pub next_at: usize,
    /// The end of the packet; the buffer may be longer.
    pub end: usize,
    /// Its place among the fragments of a packet, if it is one.
    pub fragment: Option<Fragment>,
}

impl Walk {
    /// Whether the packet is a fragment behind the first.
    #[must_use]
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.is_later)
    }

    /// Walks a packet.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn find(packet: &[u8]) -> Result<Self, Malformed> {
        match packet.first().map(|b| b >> 4) {
            Some(4) => v4(packet),
            Some(6) => v6(packet),
            _ => Err(Malformed),
        }
    }
}

fn v4(packet: &[u8]) -> Result<Walk, Malformed> {
    let header_len = usize::from(packet[0] & 15) * 4;
    let end = usize::from(be16(packet, 2));
    if header_len < V4_HEADER_LEN || end < header_len || packet.len() < end {
        return Err(Malformed);
    }
    // More fragments, or an offset: bits 13 and 0 to 12.
    let bits = be16(packet, 6) & 0x3fff;
    let of = || Fragment { id: be16(packet, 4).into(), next: packet[9], is_later: bits & 0x1fff != 0 };
    let fragment = (bits != 0).then(of);
    Ok(Walk { family: Family::V4, upper: packet[9], upper_at: header_len, next_at: 9, end, fragment })
}

fn v6(packet: &[u8]) -> Result<Walk, Malformed> {
    let end = V6_HEADER_LEN + usize::from(be16(packet, 4));
    if packet.len() < end {
        return Err(Malformed);
    }
    let packet = &packet[..end];
    let mut chain = Chain::of(packet).ok_or(Malformed)?;
    let mut fragment: Option<Fragment> = None;
    while let Some(header) = chain.over(packet, is_basic)? {
        if chain.at > end {
            return Err(Malformed);
        }
        if let Some(this) = header.fragment() {
            // Of fragments of fragments the outermost are put together first.
            fragment = Some(fragment.map_or(this, |outer| Fragment { is_later: this.is_later, ..outer }));
            // A later one begins anywhere in the packet, and the first one has all headers (RFC 7112).
            if this.is_later {
                break;
            }
        }
    }
    let Chain { kind: upper, named_at: next_at, at: upper_at } = chain;
    Ok(Walk { family: Family::V6, upper, upper_at, next_at, end, fragment })
}

/// Returns the end of the headers that routers process, as Linux finds it (`ip6_find_1stfragopt`), and the offset of
/// the byte that holds the number of the next protocol. ESP and AH of transport mode are inserted there. For IPv4 it is
/// the end of the header.
///
/// # Errors
/// [`Malformed`].
pub fn unfragmentable(packet: &[u8], walk: &Walk) -> Result<(usize, usize), Malformed> {
    if walk.family == Family::V4 {
        return Ok((walk.upper_at, walk.next_at));
    }
    let packet = &packet[..walk.end];
    let (mut chain, mut routed) = (Chain::of(packet).ok_or(Malformed)?, false);
    while let Some(header) = chain.over(packet, |kind| match kind {
        proto::HOP_BY_HOP | proto::ROUTING => true,
        proto::DESTINATION => !routed,
        _ => false,
    })? {
        routed |= header.kind == proto::ROUTING;
    }
    if chain.at > walk.end { Err(Malformed) } else { Ok((chain.at, chain.named_at)) }
}

/// Source and destination of an IP packet whose header is complete.
#[must_use]
#[inline]
pub fn addresses(packet: &[u8], family: Family) -> (IpAddr, IpAddr) {
    match family {
        Family::V4 => {
            let at = |i: usize| Ipv4Addr::from(packet[i..i + 4].as_chunks::<4>().0[0]);
            (at(12).into(), at(16).into())
        }
        Family::V6 => {
            let at = |i: usize| Ipv6Addr::from(packet[i..i + 16].as_chunks::<16>().0[0]);
            (at(8).into(), at(24).into())
        }
    }
}

/// Source and destination of a packet.
///
/// # Errors
/// [`Malformed`].
#[inline]
pub fn address_pair(packet: &[u8]) -> Result<(IpAddr, IpAddr), Malformed> {
    match packet.first().map(|b| b >> 4) {
        Some(4) if packet.len() >= V4_HEADER_LEN => Ok(addresses(packet, Family::V4)),
        Some(6) if packet.len() >= V6_HEADER_LEN => Ok(addresses(packet, Family::V6)),
        _ => Err(Malformed),
    }
}

/// The bits of ECN beside DSCP.
pub const ECN_MASK: u8 = 3;

/// DSCP and ECN of an IP packet whose header is complete.
#[must_use]
#[inline]
pub fn ds_field(packet: &[u8], family: Family) -> u8 {
    match family {
        Family::V4 => packet[1],
        Family::V6 => packet[0] << 4 | packet[1] >> 4,
    }
}

/// Writes DSCP and ECN, and updates IPv4's checksum.
#[inline]
pub fn set_ds_field(packet: &mut [u8], family: Family, value: u8) {
    match family {
        Family::V4 => {
            packet[1] = value;
            set_v4_checksum(packet);
        }
        Family::V6 => {
            packet[0] = packet[0] & 0xf0 | value >> 4;
            packet[1] = packet[1] & 0x0f | value << 4;
        }
    }
}

/// Writes the length of the packet that fills the slice, and updates IPv4's checksum.
///
/// # Errors
/// [`Malformed`] when it does not fit.
#[inline]
pub fn set_total_len(packet: &mut [u8], family: Family) -> Result<(), Malformed> {
    match family {
        Family::V4 => {
            let len = u16::try_from(packet.len()).map_err(|_| Malformed)?;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            set_v4_checksum(packet);
        }
        Family::V6 => {
            let len = packet.len().checked_sub(V6_HEADER_LEN).and_then(|n| u16::try_from(n).ok()).ok_or(Malformed)?;
            packet[4..6].copy_from_slice(&len.to_be_bytes());
        }
    }
    Ok(())
}

/// Writes IPv4's checksum.
#[inline]
pub fn set_v4_checksum(packet: &mut [u8]) {
    let header_len = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let checksum = finish(sum(&packet[..header_len], 0));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6_packet(next: u8, rest: &[u8]) -> Vec<u8> {
        [&[0x60, 0, 0, 0][..], &(rest.len() as u16).to_be_bytes(), &[next, 64], &[1; 16], &[2; 16], rest].concat()
    }

    #[test]
    fn chains() {
        let hop = [proto::ROUTING, 0, 0, 0, 0, 0, 0, 0];
        let routing = [proto::DESTINATION, 0, 0, 0, 0, 0, 0, 0];
        let destination = [proto::ESP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let packet = v6_packet(0, &[&hop[..], &routing, &destination, &[7; 8]].concat());
        let walk = Walk::find(&packet).unwrap();
        assert_eq!((walk.upper, walk.upper_at, walk.next_at, walk.end), (proto::ESP, 72, 56, 80));
        assert_eq!(
            unfragmentable(&packet, &walk),
            Ok((56, 48)),
            "destination options behind a routing header are the end's"
        );
        let packet = v6_packet(proto::DESTINATION, &[&destination[..], &[7; 8]].concat());
        assert_eq!(unfragmentable(&packet, &Walk::find(&packet).unwrap()), Ok((56, 40)));
        let whole = v6_packet(proto::FRAGMENT, &[proto::ESP, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Walk::find(&whole).unwrap().fragment, None);
        assert_eq!(Walk::find(&v6_packet(0, &[0, 9, 0, 0, 0, 0, 0, 0])), Err(Malformed), "runs off the end");
        assert_eq!(Walk::find(&[0x45; 19]), Err(Malformed));
    }

    /// The first fragment has all headers; what is behind a later one's fragment header may be anything.
    #[test]
    fn fragments() {
        let of = |packet: &[u8]| Walk::find(packet).map(|walk| (walk.upper, walk.upper_at, walk.fragment));
        let found = |next, is_later| Some(Fragment { id: 0x01020304, next, is_later });
        let header = |next, offset_flags: [u8; 2]| [&[next, 0][..], &offset_flags, &[1, 2, 3, 4]].concat();
        let destination = [proto::UDP, 0, 0, 0, 0, 0, 0, 0];
        let packet = |header: Vec<u8>| v6_packet(proto::FRAGMENT, &[&header, &destination[..], &[7; 8]].concat());
        assert_eq!(of(&packet(header(proto::ESP, [0, 1]))), Ok((proto::ESP, 48, found(proto::ESP, false))));
        let first = packet(header(proto::DESTINATION, [0, 1]));
        assert_eq!(of(&first), Ok((proto::UDP, 56, found(proto::DESTINATION, false))));
        let later = packet(header(proto::DESTINATION, [0, 8]));
        assert_eq!(of(&later), Ok((proto::DESTINATION, 48, found(proto::DESTINATION, true))));
        let cut = v6_packet(proto::FRAGMENT, &header(proto::DESTINATION, [0, 1]));
        assert_eq!(of(&cut), Err(Malformed), "the first one lacks headers");
        let mut v4 = vec![0x45, 0, 0, 28, 0, 9, 0x20, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        v4.extend([0; 8]);
        assert_eq!(of(&v4), Ok((17, 20, Some(Fragment { id: 9, next: 17, is_later: false }))));
        v4[7] = 1;
        assert_eq!(of(&v4), Ok((17, 20, Some(Fragment { id: 9, next: 17, is_later: true }))));
    }

    #[test]
    fn fields() {
        let mut packet = v6_packet(59, &[]);
        set_ds_field(&mut packet, Family::V6, 0xb9);
        assert_eq!((ds_field(&packet, Family::V6), packet[0], packet[1]), (0xb9, 0x6b, 0x90));
        let mut packet = vec![0x45; 24];
        set_total_len(&mut packet, Family::V4).unwrap();
        set_ds_field(&mut packet, Family::V4, 3);
        assert_eq!((be16(&packet, 2), finish(sum(&packet[..20], 0))), (24, 0));
    }
}
