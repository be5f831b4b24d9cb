//! Fields of packets that rules look at.

use sealane_wire::gre::{CHECKSUM, key_at};

/// A field: its name, the place where the kernel finds it, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The words by which rules are printed; those of `nft` where it has any.
    pub term: &'static str,
    /// Its place.
    pub place: Place,
    /// The meaning of its bytes.
    pub kind: Kind,
}

/// The place of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Knowledge of the kernel's about the packet: the number of a key of `meta`.
    Meta(i32),
    /// Bytes of a header.
    Header {
        /// The header.
        of: Header,
        /// Their offset from its beginning.
        at: u32,
        /// Their number.
        len: u32,
    },
    /// 1 where TCP's header has the option, else 0.
    TcpOption(u8),
    /// Bytes of IPv6's fragment header (RFC 8200 section 4.5); there is no such field in packets without it.
    V6Fragment {
        /// Their offset.
        at: u32,
        /// Their number.
        len: u32,
    },
    /// The mark of the socket that the packet is for or from; there is no such field where there is none.
    SocketMark,
    /// The kind of addresses that the destination is one of (`RTN_LOCAL` and so on), by the routes that packets without a mark have.
    DestinationType,
}

/// The headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Of the link layer.
    Link,
    /// Of IP.
    Network,
    /// Of the protocol above it. Fragments behind the first have none.
    Transport,
}

/// The meaning of a field's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number in network byte order.
    Number,
    /// Bits in network byte order.
    Bits,
    /// A number in the byte order of this machine.
    HostNumber,
    /// Bits in the byte order of this machine.
    HostBits,
    /// A name with zeros behind it.
    Name,
    /// An address of IP.
    Address,
    /// The number of a family of netfilter's.
    Family,
    /// The number of a protocol above IP.
    Protocol,
    /// A type of Ethernet.
    EtherType,
    /// A kind of addresses (`RTN_LOCAL`).
    AddressType,
    /// 1 where it is there, else 0.
    Exists,
}

impl Field {
    const fn meta(term: &'static str, key: i32, kind: Kind) -> Field {
        Field { term, place: Place::Meta(key), kind }
    }

    const fn network(term: &'static str, at: u32, len: u32, kind: Kind) -> Field {
        Field { term, place: Place::Header { of: Header::Network, at, len }, kind }
    }

    const fn transport(term: &'static str, at: u32, len: u32, kind: Kind) -> Field {
        Field { term, place: Place::Header { of: Header::Transport, at, len }, kind }
    }
}

/// `NFT_META_OIFKIND` of `linux/netfilter/nf_tables.h`, which `libc` lacks.
const NFT_META_OIFKIND: i32 = 27;

/// The family of the packet, in tables of both.
pub const FAMILY: &Field = &Field::meta("meta nfproto", libc::NFT_META_NFPROTO, Kind::Family);
/// The type of Ethernet that says what is in the frame.
pub const ETHER_TYPE: &Field = &Field::meta("meta protocol", libc::NFT_META_PROTOCOL, Kind::EtherType);
/// The protocol above IP. Later fragments of IPv6 whose fragment header names another extension header have none.
pub const PROTOCOL: &Field = &Field::meta("meta l4proto", libc::NFT_META_L4PROTO, Kind::Protocol);
/// The packet's mark.
pub const MARK: &Field = &Field::meta("mark", libc::NFT_META_MARK, Kind::HostBits);
/// The packet's priority (`skb->priority`).
pub const PRIORITY: &Field = &Field::meta("meta priority", libc::NFT_META_PRIORITY, Kind::HostBits);
/// The index of the interface that the packet came by; 0 where it is of this host.
pub const IN: &Field = &Field::meta("iif", libc::NFT_META_IIF, Kind::HostNumber);
/// The index of the interface that the packet leaves by.
pub const OUT: &Field = &Field::meta("oif", libc::NFT_META_OIF, Kind::HostNumber);
/// The name of the interface that the packet came by.
pub const IN_NAME: &Field = &Field::meta("iifname", libc::NFT_META_IIFNAME, Kind::Name);
/// The name of the interface that the packet leaves by.
pub const OUT_NAME: &Field = &Field::meta("oifname", libc::NFT_META_OIFNAME, Kind::Name);
/// The kind of the interface that the packet leaves by.
pub const OUT_KIND: &Field = &Field::meta("oifkind", NFT_META_OIFKIND, Kind::Name);
/// The user of the socket that the packet is from.
pub const USER: &Field = &Field::meta("skuid", libc::NFT_META_SKUID, Kind::HostNumber);
/// The realm of the packet's route; there is no such field where the packet has no route.
pub const REALM: &Field = &Field::meta("rtclassid", libc::NFT_META_RTCLASSID, Kind::HostNumber);
/// Whose packet it is on the link: 0 for this host's.
pub const PACKET_TYPE: &Field = &Field::meta("pkttype", libc::NFT_META_PKTTYPE, Kind::Number);

/// The type of Ethernet in the frame's header: that of a VLAN tag, if there is one, even where the device has removed it.
pub const LINK_TYPE: &Field =
    &Field { term: "ether type", place: Place::Header { of: Header::Link, at: 12, len: 2 }, kind: Kind::EtherType };

/// The first four bytes of the destination in the frame's header: the index of the device that a frame was about to leave by, when it
/// went to a device of ours.
pub const LINK_DEVICE: &Field =
    &Field { term: "@ll,0,32", place: Place::Header { of: Header::Link, at: 0, len: 4 }, kind: Kind::HostNumber };

/// The first four bytes of the source in the frame's header: the mark of a packet between the stack and a device of ours.
pub const LINK_MARK: &Field =
    &Field { term: "@ll,48,32", place: Place::Header { of: Header::Link, at: 6, len: 4 }, kind: Kind::HostBits };

/// Version and length of IPv4's header.
pub const V4_VERSION_LEN: &Field = &Field::network("ip version-hdrlength", 0, 1, Kind::Bits);
/// Flags and offset of a fragment of IPv4.
pub const V4_FRAGMENT: &Field = &Field::network("ip frag-off", 6, 2, Kind::Bits);
/// The protocol that IPv4's header names.
pub const V4_PROTOCOL: &Field = &Field::network("ip protocol", 9, 1, Kind::Protocol);
/// The header that IPv6's fixed header names.
pub const V6_NEXT: &Field = &Field::network("ip6 nexthdr", 6, 1, Kind::Protocol);
/// IPv6's hop limit.
pub const V6_HOP_LIMIT: &Field = &Field::network("ip6 hoplimit", 7, 1, Kind::Number);

/// The sources of both families.
pub const SOURCES: [&Field; 2] =
    [&Field::network("ip saddr", 12, 4, Kind::Address), &Field::network("ip6 saddr", 8, 16, Kind::Address)];
/// The destinations of both families.
pub const DESTINATIONS: [&Field; 2] =
    [&Field::network("ip daddr", 16, 4, Kind::Address), &Field::network("ip6 daddr", 24, 16, Kind::Address)];

/// Offset, reserved bits and flag of IPv6's fragment header.
pub const V6_FRAGMENT: &Field =
    &Field { term: "frag frag-off", place: Place::V6Fragment { at: 2, len: 2 }, kind: Kind::Bits };
/// The number of the header behind IPv6's fragment header.
pub const V6_FRAGMENT_NEXT: &Field =
    &Field { term: "frag nexthdr", place: Place::V6Fragment { at: 0, len: 1 }, kind: Kind::Number };

/// The source port of protocols with ports.
pub const SOURCE_PORT: &Field = &Field::transport("th sport", 0, 2, Kind::Number);
/// The destination port of protocols with ports.
pub const DESTINATION_PORT: &Field = &Field::transport("th dport", 2, 2, Kind::Number);
/// The length of TCP's header in words of four bytes, in the upper half.
pub const TCP_LENGTH: &Field = &Field::transport("tcp doff", 12, 1, Kind::Bits);
/// TCP's flags.
pub const TCP_FLAGS: &Field = &Field::transport("tcp flags", 13, 1, Kind::Bits);
/// The number of TCP's first option.
pub const TCP_FIRST_OPTION: &Field = &Field::transport("tcp first option", 20, 1, Kind::Number);
/// The type of a message of ICMP or ICMPv6.
pub const ICMP_TYPE: &Field = &Field::transport("icmp type", 0, 1, Kind::Number);
/// Its code.
pub const ICMP_CODE: &Field = &Field::transport("icmp code", 1, 1, Kind::Number);
/// Both.
pub const ICMP_TYPE_CODE: &Field = &Field::transport("icmp type-code", 0, 2, Kind::Bits);
/// The length of the header of both before the packet that they quote.
pub const ICMP_LEN: u32 = 8;
/// The protocol of the packet that an error of ICMP quotes, of either family.
pub const QUOTED_PROTOCOLS: [&Field; 2] = [
    &Field::transport("icmp quoted protocol", ICMP_LEN + 9, 1, Kind::Protocol),
    &Field::transport("icmp quoted protocol", ICMP_LEN + 6, 1, Kind::Protocol),
];
/// The destination of the packet that an error of ICMP quotes, of either family.
pub const QUOTED_DESTINATIONS: [&Field; 2] = [
    &Field::transport("icmp quoted daddr", ICMP_LEN + 16, 4, Kind::Address),
    &Field::transport("icmp quoted daddr", ICMP_LEN + 24, 16, Kind::Address),
];
/// The type of a message of mobile IPv6.
pub const MOBILITY_TYPE: &Field = &Field::transport("mh type", 2, 1, Kind::Number);
/// ESP's SPI.
pub const ESP_SPI: &Field = &Field::transport("esp spi", 0, 4, Kind::Bits);
/// AH's SPI.
pub const AH_SPI: &Field = &Field::transport("ah spi", 4, 4, Kind::Bits);
/// The SPI of ESP in UDP.
pub const UDP_ESP_SPI: &Field = &Field::transport("udp esp spi", 8, 4, Kind::Bits);
/// The last byte of ESP's sequence number.
pub const ESP_LAST_BYTE: &Field = &Field::transport("esp sequence last byte", 7, 1, Kind::Number);
/// GRE's flags and version.
pub const GRE_FLAGS: &Field = &Field::transport("gre flags", 0, 2, Kind::Bits);
/// The protocol in GRE.
pub const GRE_PROTOCOL: &Field = &Field::transport("gre protocol", 2, 2, Kind::Bits);

/// GRE's key, without and with a checksum before it.
pub const GRE_KEYS: [&Field; 2] = [
    &Field::transport("gre key", key_at(0) as u32, 4, Kind::Bits),
    &Field::transport("gre key", key_at(CHECKSUM) as u32, 4, Kind::Bits),
];

/// The mark of the packet's socket.
pub const SOCKET_MARK: &Field = &Field { term: "socket mark", place: Place::SocketMark, kind: Kind::HostBits };

/// The kind of addresses that the destination is one of.
pub const DESTINATION_TYPE: &Field =
    &Field { term: "fib daddr type", place: Place::DestinationType, kind: Kind::AddressType };

/// Whether TCP has the option of TCP-AO (RFC 5925, section 2.2).
pub const TCP_AO: &Field = &Field { term: "tcp option 29", place: Place::TcpOption(TCPOPT_AO), kind: Kind::Exists };
/// Its number.
pub const TCPOPT_AO: u8 = 29;
