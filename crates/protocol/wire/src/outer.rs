//! Outer headers as a description: the fields that a socket reports with a received payload, and takes with one to
//! send. With them a payload needs no headers in its buffer.

use crate::extension::is_basic;
use crate::ip::{Family, UDP_HEADER_LEN, V4_HEADER_LEN, V6_HEADER_LEN, be16};
use crate::proto;
use crate::walk::{Malformed, addresses, ds_field, set_total_len};
use core::net::IpAddr;

/// Don't fragment, in the byte of IPv4's flags.
const DF: u8 = 0x40;

/// An IP header without options or extension headers, and the ports of a UDP or TCP header behind it. Lengths, checksums,
/// identification and flow label are not included: the writer of the headers chooses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OuterHeader {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// DSCP and ECN: the TOS of IPv4, the traffic class of IPv6.
    pub tos: u8,
    /// The TTL of IPv4, the hop limit of IPv6.
    pub ttl: u8,
    /// Whether IPv4's header forbids fragmentation; false for IPv6.
    pub dont_fragment: bool,
    /// Source and destination port of UDP or TCP; `None` where the payload follows the IP header.
    pub ports: Option<(u16, u16)>,
    /// Whether the ports are TCP's, and the payload a message of its stream (RFC 9329).
    pub tcp: bool,
}

impl OuterHeader {
    /// Describes a packet's headers and returns the offset of the payload behind them. Returns `None` if the packet is
    /// cut short or has options or extension headers, which a description cannot hold.
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<(Self, usize)> {
        let (outer, next) = OuterHeader::of_ip(packet)?;
        let len = outer.ip_len();
        match next {
            next if outer.family() == Family::V6 && is_basic(next) => None,
            proto::UDP => {
                let ports = packet.get(len..len + UDP_HEADER_LEN)?;
                Some((OuterHeader { ports: Some((be16(ports, 0), be16(ports, 2))), ..outer }, len + UDP_HEADER_LEN))
            }
            _ => Some((outer, len)),
        }
    }

    /// Describes an IP header and returns the protocol behind it. Returns `None` if the header is cut short or has IPv4
    /// options.
    #[must_use]
    pub fn of_ip(header: &[u8]) -> Option<(Self, u8)> {
        let (family, next, ttl, dont_fragment) = match header {
            [0x45, ..] if header.len() >= V4_HEADER_LEN => (Family::V4, header[9], header[8], header[6] & DF != 0),
            [0x60..=0x6f, ..] if header.len() >= V6_HEADER_LEN => (Family::V6, header[6], header[7], false),
            _ => return None,
        };
        let (source, destination) = addresses(header, family);
        let tos = ds_field(header, family);
        Some((OuterHeader { source, destination, tos, ttl, dont_fragment, ports: None, tcp: false }, next))
    }

    /// The IP version.
    #[must_use]
    #[inline]
    pub fn family(&self) -> Family {
        if self.destination.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Length of the IP header in bytes.
    #[must_use]
    #[inline]
    pub fn ip_len(&self) -> usize {
        match self.family() {
            Family::V4 => V4_HEADER_LEN,
            Family::V6 => V6_HEADER_LEN,
        }
    }

    /// Writes the IP header to the start of `packet`, which is a whole packet: room for the header, then a payload of
    /// protocol `proto`. Identification and flow label are 0.
    ///
    /// # Errors
    /// [`Malformed`] if the addresses are of two families, or the packet is longer than an IP packet can be or shorter
    /// than its header.
    pub fn write_ip(&self, packet: &mut [u8], proto: u8) -> Result<(), Malformed> {
        let header = packet.get_mut(..self.ip_len()).ok_or(Malformed)?;
        header.fill(0);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (header[0], header[1]) = (0x45, self.tos);
                header[6] = if self.dont_fragment { DF } else { 0 };
                (header[8], header[9]) = (self.ttl, proto);
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                (header[0], header[1]) = (0x60 | self.tos >> 4, self.tos << 4);
                (header[6], header[7]) = (proto, self.ttl);
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&destination.octets());
            }
            _ => return Err(Malformed),
        }
        set_total_len(packet, self.family())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{finish, sum};

    #[test]
    fn written_and_read_again() {
        for (source, destination) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            for (tos, dont_fragment) in [(0, false), (0xb9, source.contains('.'))] {
                let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
                let outer = OuterHeader { source, destination, tos, ttl: 63, dont_fragment, ports: None, tcp: false };
                let mut packet = vec![0xee; outer.ip_len() + 30];
                outer.write_ip(&mut packet, proto::ESP).unwrap();
                assert_eq!(OuterHeader::of(&packet), Some((outer, outer.ip_len())));
                assert!(outer.family() == Family::V6 || finish(sum(&packet[..20], 0)) == 0);
                outer.write_ip(&mut packet, proto::UDP).unwrap();
                let udp = OuterHeader { ports: Some((0xeeee, 0xeeee)), ..outer };
                assert_eq!(OuterHeader::of(&packet), Some((udp, outer.ip_len() + 8)));
                for len in 0..outer.ip_len() + 8 {
                    assert_eq!(OuterHeader::of(&packet[..len]), None, "cut off at {len}");
                }
                assert_eq!(outer.write_ip(&mut vec![0; 70_000], proto::ESP), Err(Malformed));
                assert_eq!(outer.write_ip(&mut [0; 19], proto::ESP), Err(Malformed));
            }
        }
        let mut options = vec![0x46; 60];
        assert_eq!(OuterHeader::of(&options), None);
        (options[0], options[6]) = (0x60, proto::HOP_BY_HOP);
        assert_eq!(OuterHeader::of(&options), None);
    }
}
