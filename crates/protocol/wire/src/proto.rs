//! Protocol numbers assigned by IANA, as in IPv4's protocol and IPv6's next header fields.

/// IPv6 hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// ICMP for IPv4.
pub const ICMP: u8 = 1;
/// IPv4 in IP.
pub const IPIP: u8 = 4;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// DCCP.
pub const DCCP: u8 = 33;
/// IPv6 in IP.
pub const IPV6: u8 = 41;
/// IPv6 routing header.
pub const ROUTING: u8 = 43;
/// IPv6 fragment header.
pub const FRAGMENT: u8 = 44;
/// Generic routing encapsulation (RFC 2784, with the key of RFC 2890).
pub const GRE: u8 = 47;
/// Encapsulating security payload.
pub const ESP: u8 = 50;
/// Authentication header.
pub const AH: u8 = 51;
/// ICMP for IPv6.
pub const ICMPV6: u8 = 58;
/// No next header; in ESP a dummy packet.
pub const NONE: u8 = 59;
/// IPv6 destination options.
pub const DESTINATION: u8 = 60;
/// The pseudo-header with the IPv4 options of BEET mode.
pub const BEETPH: u8 = 94;
/// IP payload compression.
pub const COMP: u8 = 108;
/// SCTP.
pub const SCTP: u8 = 132;
/// Mobility header of IPv6 (RFC 6275).
pub const MOBILITY: u8 = 135;
/// UDP-Lite.
pub const UDPLITE: u8 = 136;
/// The payloads of IP-TFS (RFC 9347).
pub const AGGFRAG: u8 = 144;
