//! IP packets that carry TCP: offsets of their parts, and checksums.
//!
//! ```text
//!  IPv4 (RFC 791 section 3.1)                IPv6 (RFC 8200 section 3)
//!   0 version|IHL   1 TOS    2 total length   0 version|class|label    4 payload length
//!   4 id            6 flags|fragment offset   6 next header            7 hop limit
//!   8 TTL   9 protocol      10 checksum       8 source (16 bytes)
//!  12 source       16 destination            24 destination (16 bytes)
//! ```

use crate::extension::{Chain, is_basic};
use crate::proto;
use core::net::{IpAddr, SocketAddr};
use sealane_cpu::sum::words;

pub use crate::extension::V6_HEADER_LEN;

/// The protocol number of TCP.
pub const PROTO_TCP: u8 = 6;

/// IPv4's header without options, in bytes.
pub const V4_HEADER_LEN: usize = 20;

/// TCP's fixed header in bytes.
pub const TCP_HEADER_LEN: usize = 20;

/// UDP's header in bytes.
pub const UDP_HEADER_LEN: usize = 8;

/// The longest TCP header in bytes.
pub const MAX_TCP_HEADER_LEN: usize = 60;

/// An IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Reasons why a packet is not a usable TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTcp {
    /// It carries another protocol.
    Other,
    /// It is a fragment: the first one of a TCP segment, or any later one, whose protocol is not known.
    Fragment,
    /// It is cut short, its lengths contradict each other, or an IPv6 routing header still has segments left (TCP's
    /// checksum then covers another destination).
    Malformed,
}

/// Offsets of the parts of a TCP segment, in bytes from the start of its IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// IP version.
    pub family: Family,
    /// Start of the TCP header; also the length of the IP headers.
    pub tcp_at: usize,
    /// Start of the payload.
    pub payload_at: usize,
    /// End of the packet; the buffer may be longer (Ethernet pads).
    pub end: usize,
}

/// The header length that an IPv4 header states, which may exceed `packet`. Returns `None` if it is below the minimum.
#[must_use]
#[inline]
pub fn v4_header_len(packet: &[u8]) -> Option<usize> {
    let len = usize::from(packet.first()? & 15) * 4;
    (len >= V4_HEADER_LEN).then_some(len)
}

/// Two bytes, big-endian; 0 where `bytes` ends before them.
#[must_use]
#[inline]
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b))
}

/// Four bytes, big-endian; 0 where `bytes` ends before them.
#[must_use]
#[inline]
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

impl Layout {
    /// Finds the parts of a packet.
    ///
    /// A length field of 0 in more than 65,535 bytes means a superframe (Linux' BIG TCP), which ends where `packet`
    /// ends.
    ///
    /// # Errors
    /// [`NotTcp`].
    pub fn find(packet: &[u8]) -> Result<Self, NotTcp> {
        let (family, tcp_at, end) = match packet.first().map(|b| b >> 4) {
            Some(4) => v4(packet)?,
            Some(6) => v6(packet)?,
            _ => return Err(NotTcp::Malformed),
        };
        let tcp = packet.get(tcp_at..end).filter(|t| t.len() >= TCP_HEADER_LEN).ok_or(NotTcp::Malformed)?;
        let header_len = usize::from(tcp[12] >> 4) * 4;
        if header_len < TCP_HEADER_LEN || header_len > tcp.len() {
            return Err(NotTcp::Malformed);
        }
        Ok(Layout { family, tcp_at, payload_at: tcp_at + header_len, end })
    }

    /// Length of the TCP header in bytes.
    #[must_use]
    #[inline]
    pub fn tcp_header_len(&self) -> usize {
        self.payload_at - self.tcp_at
    }

    /// Length of TCP header and payload in bytes.
    #[must_use]
    #[inline]
    pub fn tcp_len(&self) -> usize {
        self.end - self.tcp_at
    }

    /// Length of the payload in bytes.
    #[must_use]
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.end - self.payload_at
    }

    /// Both addresses as they are in `packet`: source, then destination.
    #[must_use]
    #[inline]
    pub fn addresses<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        match self.family {
            Family::V4 => &packet[12..20],
            Family::V6 => &packet[8..40],
        }
    }
}

fn declared_len(field: usize, fixed: usize, packet: &[u8]) -> Result<usize, NotTcp> {
    let end = if field == 0 && packet.len() > usize::from(u16::MAX) { packet.len() } else { fixed + field };
    if end > packet.len() { Err(NotTcp::Malformed) } else { Ok(end) }
}

fn v4(packet: &[u8]) -> Result<(Family, usize, usize), NotTcp> {
    let header_len = v4_header_len(packet).filter(|len| *len <= packet.len()).ok_or(NotTcp::Malformed)?;
    let end = declared_len(be16(packet, 2).into(), 0, packet)?;
    // More fragments, or an offset: bits 13 and 0 to 12.
    let fragment = be16(packet, 6) & 0x3fff;
    match (fragment & 0x1fff, fragment, packet[9]) {
        (1.., _, _) => Err(NotTcp::Fragment),
        (_, 1.., PROTO_TCP) => Err(NotTcp::Fragment),
        (_, _, PROTO_TCP) => Ok((Family::V4, header_len, end)),
        _ => Err(NotTcp::Other),
    }
}

fn v6(packet: &[u8]) -> Result<(Family, usize, usize), NotTcp> {
    if packet.len() < V6_HEADER_LEN {
        return Err(NotTcp::Malformed);
    }
    let end = declared_len(be16(packet, 4).into(), V6_HEADER_LEN, packet)?;
    let packet = &packet[..end];
    let mut chain = Chain::of(packet).ok_or(NotTcp::Malformed)?;
    let is_extension = |kind| is_basic(kind) || matches!(kind, proto::AH | proto::MOBILITY);
    while let Some(header) = chain.over(packet, is_extension).map_err(|_| NotTcp::Malformed)? {
        if header.fragment().is_some() {
            return Err(NotTcp::Fragment);
        }
        if header.has_segments_left() {
            return Err(NotTcp::Malformed);
        }
    }
    if chain.kind == PROTO_TCP { Ok((Family::V6, chain.at, end)) } else { Err(NotTcp::Other) }
}

/// The extension headers of IPv6 that count as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtensionHeaders {
    /// AH is one of them, as when Linux looks for the socket of an ICMPv6 error (`ipv6_skip_exthdr`).
    WithAh,
    /// AH is an upper-layer protocol, as where Linux' IPsec decodes a packet's flow.
    BeforeIpsec,
}

/// Finds the upper-layer protocol of an IPv6 packet of which only the front may be given. `None` where its extension
/// headers are cut short, and for a later fragment.
#[must_use]
pub fn v6_upper(packet: &[u8], headers: ExtensionHeaders) -> Option<Chain> {
    let mut chain = Chain::of(packet)?;
    let is_extension = |kind| is_basic(kind) || kind == proto::AH && headers == ExtensionHeaders::WithAh;
    while let Some(header) = chain.over(packet, is_extension).ok()? {
        if header.fragment().is_some_and(|fragment| fragment.is_later) {
            return None;
        }
    }
    Some(chain)
}

/// Source and destination of a TCP segment, with ports.
#[must_use]
pub fn sockets(packet: &[u8], at: &Layout) -> (SocketAddr, SocketAddr) {
    let addr = |bytes: &[u8]| match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (Ok(v4), _) => IpAddr::from(v4),
        (_, Ok(v6)) => IpAddr::from(v6),
        _ => unreachable!("half of 8 or of 32 bytes"),
    };
    let both = at.addresses(packet);
    let (source, destination) = both.split_at(both.len() / 2);
    (
        SocketAddr::new(addr(source), be16(packet, at.tcp_at)),
        SocketAddr::new(addr(destination), be16(packet, at.tcp_at + 2)),
    )
}

/// Adds the one's complement sum of `bytes` to `sum`, in 64 bits (RFC 1071). Pieces may be added one after another as
/// long as all but the last have an even length.
#[must_use]
#[inline]
pub fn sum(bytes: &[u8], sum: u64) -> u64 {
    // Sums of 32-bit words in the machine's own order; the byte order is put right at the end (RFC 1071 section 2B).
    let total = u64::from(fold(words(bytes)));
    sum + u64::from(u16::from_be(total as u16))
}

/// Folds a sum to 16 bits.
#[must_use]
#[inline]
pub fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The checksum for a sum: folded and complemented.
#[must_use]
#[inline]
pub fn finish(sum: u64) -> u16 {
    !fold(sum)
}

/// The checksum for a sum, with 0xffff for 0, which is the same in one's complement: for UDP, where 0 says that there is
/// no checksum, and for TCP ([`set_tcp_checksum`]).
#[must_use]
#[inline]
pub fn finish_nonzero(sum: u64) -> u16 {
    match finish(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// The sum of the pseudo-header of a TCP segment.
#[must_use]
#[inline]
pub fn pseudo_sum(packet: &[u8], at: &Layout) -> u64 {
    pseudo_sum_of(PROTO_TCP, packet, at)
}

#[inline]
fn pseudo_sum_of(protocol: u8, packet: &[u8], at: &Layout) -> u64 {
    // Words of 32 bits fold to the same sum as words of 16.
    let (words, _) = at.addresses(packet).as_chunks::<4>();
    let addresses: u64 = words.iter().map(|w| u64::from(u32::from_be_bytes(*w))).sum();
    addresses + u64::from(protocol) + at.tcp_len() as u64
}

/// Whether the TCP checksum is right.
#[must_use]
pub fn tcp_checksum_ok(packet: &[u8], at: &Layout) -> bool {
    finish(sum(&packet[at.tcp_at..at.end], pseudo_sum(packet, at))) == 0
}

/// Updates the length field and, for IPv4, the header checksum after a packet's length changed. The length field is 0
/// where it cannot hold the length (BIG TCP).
pub fn set_len(packet: &mut [u8], at: &Layout) {
    let field = |len: usize| u16::try_from(len).unwrap_or(0).to_be_bytes();
    match at.family {
        Family::V4 => {
            packet[2..4].copy_from_slice(&field(at.end));
            packet[10..12].fill(0);
            let checksum = finish(sum(&packet[..at.tcp_at], 0));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        Family::V6 => packet[4..6].copy_from_slice(&field(at.end - V6_HEADER_LEN)),
    }
}

/// Writes the TCP checksum over header and payload, which is never 0.
///
/// Linux takes a TCP-AO segment whose checksum is 0 for one of its own that is about to leave, and exchanges the addresses
/// in the MAC's input (`tcp_ao_hash_pseudoheader` in net/ipv4/tcp_ao.c, all versions until 7.3). A valid segment would be
/// refused, and again each time that it is repeated: without timestamps it is the same every time.
pub fn set_tcp_checksum(packet: &mut [u8], at: &Layout) {
    set_checksum(PROTO_TCP, 16, packet, at);
}

/// Writes the UDP checksum over header and payload. The layout is that of TCP, with UDP's header in its place.
pub fn set_udp_checksum(packet: &mut [u8], at: &Layout) {
    set_checksum(proto::UDP, 6, packet, at);
}

/// Writes the ICMPv6 checksum. The layout is that of TCP, with the message in its place.
pub fn set_icmpv6_checksum(packet: &mut [u8], at: &Layout) {
    set_checksum(proto::ICMPV6, 2, packet, at);
}

/// Writes a protocol's checksum to a place in its header.
fn set_checksum(protocol: u8, place: usize, packet: &mut [u8], at: &Layout) {
    let place = at.tcp_at + place;
    packet[place..place + 2].fill(0);
    let checksum = finish_nonzero(sum(&packet[at.tcp_at..at.end], pseudo_sum_of(protocol, packet, at)));
    packet[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes only the sum of the pseudo-header into the checksum field, for a device (or a TUN with a vnet header) that
/// completes the checksum.
#[inline]
pub fn set_partial_checksum(packet: &mut [u8], at: &Layout) {
    let partial = fold(pseudo_sum(packet, at));
    packet[at.tcp_at + 16..at.tcp_at + 18].copy_from_slice(&partial.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_any_length() {
        let bytes: Vec<u8> = (0..100u8).map(|b| b.wrapping_mul(37) ^ 0x80).collect();
        for len in 0..=bytes.len() {
            let slow: u64 =
                bytes[..len].chunks(2).map(|c| u64::from(c[0]) << 8 | u64::from(*c.get(1).unwrap_or(&0))).sum();
            assert_eq!(fold(sum(&bytes[..len], 5)), fold(slow + 5), "{len} bytes");
        }
    }

    #[test]
    fn a_tcp_checksum_is_never_zero() {
        for mut packet in [vec![0x45; 60], vec![0x60; 80]] {
            let family = if packet[0] == 0x45 { Family::V4 } else { Family::V6 };
            let tcp_at = packet.len() - 40;
            let at = Layout { family, tcp_at, payload_at: tcp_at + 20, end: tcp_at + 40 };
            // Every value of the payload's last word, so that one of them brings the sum to 0xffff.
            let seen: std::collections::HashSet<u16> = (0..=u16::MAX)
                .map(|word| {
                    packet[at.end - 2..].copy_from_slice(&word.to_be_bytes());
                    set_tcp_checksum(&mut packet, &at);
                    assert!(tcp_checksum_ok(&packet, &at));
                    be16(&packet, tcp_at + 16)
                })
                .collect();
            assert_eq!(seen.len(), 65_535);
            assert!(!seen.contains(&0));
        }
    }

    #[test]
    fn extension_headers() {
        let tcp = [&[0u8; 12][..], &[0x50], &[0; 7]].concat();
        let packet = |next: u8, extra: &[u8]| {
            let len = (extra.len() + tcp.len()) as u16;
            [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[next, 64], &[1; 32], extra, &tcp].concat()
        };
        let hop = [60, 0, 0, 0, 0, 0, 0, 0];
        let dest = [6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let found = Layout::find(&packet(0, &[&hop[..], &dest].concat())).unwrap();
        assert_eq!((found.tcp_at, found.payload_at, found.end), (64, 84, 84));
        let fragment = |offset: u16| [&[6, 0][..], &offset.to_be_bytes(), &[0; 4]].concat();
        assert!(Layout::find(&packet(44, &fragment(0))).is_ok(), "an atomic fragment is whole");
        assert_eq!(Layout::find(&packet(44, &fragment(1))), Err(NotTcp::Fragment));
        assert_eq!(Layout::find(&packet(44, &fragment(8))), Err(NotTcp::Fragment));
        assert_eq!(Layout::find(&packet(43, &[6, 0, 0, 1, 0, 0, 0, 0])), Err(NotTcp::Malformed));
        assert!(Layout::find(&packet(43, &[6, 0, 0, 0, 0, 0, 0, 0])).is_ok());
        assert_eq!(Layout::find(&packet(17, &[])), Err(NotTcp::Other));
        assert_eq!(Layout::find(&packet(0, &[])), Err(NotTcp::Malformed), "a chain that runs off the end");
    }
}
