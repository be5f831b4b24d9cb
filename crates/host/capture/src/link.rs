//! Link types of captures, and the position of the IP packet after the link header.

use std::fmt;

/// The type of the link header of frames: a LINKTYPE_ number of pcap and pcapng.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: an address family in the byte order of the capturing machine.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// IP without a link header. Old files use the systems' own numbers for it.
    pub const RAW: LinkType = LinkType(101);
    const RAW_OLD: [LinkType; 2] = [LinkType(12), LinkType(14)];
    /// OpenBSD loopback: an address family in network byte order.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux's "cooked" capture of any device, version 1.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// IPv4 without a link header.
    pub const IPV4: LinkType = LinkType(228);
    /// IPv6 without a link header.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux's "cooked" capture of any device, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);
}

/// The reason why a frame has no IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotIp {
    /// It has another protocol, or is cut off within the link header.
    Other,
    /// Its link type is not supported.
    Link(LinkType),
}

impl fmt::Display for NotIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotIp::Other => f.write_str("no IP"),
            NotIp::Link(link) => write!(f, "link type {} is not understood", link.0),
        }
    }
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad, and the latter's predecessor.
const ETHERTYPE_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// The most nested VLAN tags.
const MAX_TAGS: usize = 4;

fn be16(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..).and_then(|d| d.first_chunk()).map(|b| u16::from_be_bytes(*b))
}

impl LinkType {
    /// The offset of the IP packet in a frame.
    ///
    /// # Errors
    /// [`NotIp`].
    pub fn ip_at(self, frame: &[u8]) -> Result<usize, NotIp> {
        let at = match self {
            LinkType::ETHERNET => behind_tags(frame, 12, 14),
            LinkType::LINUX_SLL => behind_tags(frame, 14, 16),
            LinkType::LINUX_SLL2 => behind_tags(frame, 0, 20),
            // The numbers of the families differ between systems; the IP version is sufficient.
            LinkType::NULL | LinkType::LOOP => Some(4),
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Some(0),
            _ if LinkType::RAW_OLD.contains(&self) => Some(0),
            _ => return Err(NotIp::Link(self)),
        };
        let is_ip = |at: &usize| frame.get(*at).is_some_and(|b| matches!(b >> 4, 4 | 6));
        at.filter(is_ip).ok_or(NotIp::Other)
    }
}

/// Skips VLAN tags: the protocol number is at `protocol_at`, its payload at `at`.
fn behind_tags(frame: &[u8], protocol_at: usize, at: usize) -> Option<usize> {
    let (mut protocol, mut at) = (be16(frame, protocol_at)?, at);
    for _ in 0..MAX_TAGS {
        if !ETHERTYPE_VLAN.contains(&protocol) {
            break;
        }
        // Two bytes of tag, then the protocol number of its payload.
        protocol = be16(frame, at + 2)?;
        at += 4;
    }
    [ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&protocol).then_some(at)
}
