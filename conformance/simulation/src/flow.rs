//! Packets: what they say of their flow, and a number by which each is known.

use sealane_rules::eval::Packet;
use std::net::Ipv4Addr;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const GRE: u8 = 47;
pub(crate) const ESP: u8 = 50;

/// The length of an IPv4 header without options.
const HEADER: usize = 20;

/// A packet as policies see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) upper: Upper,
}

/// The protocol above IP, with its ports, key, or number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Upper {
    Tcp {
        from: u16,
        to: u16,
    },
    Udp {
        from: u16,
        to: u16,
    },
    /// With this key.
    Gre(u32),
    Esp {
        spi: u32,
        number: u32,
    },
}

impl Upper {
    /// The other direction of it.
    pub(crate) fn back(self) -> Upper {
        match self {
            Upper::Tcp { from, to } => Upper::Tcp { from: to, to: from },
            Upper::Udp { from, to } => Upper::Udp { from: to, to: from },
            other => other,
        }
    }

    pub(crate) fn protocol(self) -> u8 {
        match self {
            Upper::Tcp { .. } => TCP,
            Upper::Udp { .. } => UDP,
            Upper::Gre(_) => GRE,
            Upper::Esp { .. } => ESP,
        }
    }

    /// The bytes before a packet's number.
    fn header(self) -> Vec<u8> {
        let ports = |from: u16, to: u16| [from.to_be_bytes(), to.to_be_bytes()].concat();
        match self {
            // ACK, with a header of five words.
            Upper::Tcp { from, to } => [&ports(from, to)[..], &[0; 8], &[0x50, 0x10], &[0; 6]].concat(),
            Upper::Udp { from, to } => [&ports(from, to)[..], &16_u16.to_be_bytes(), &[0; 2]].concat(),
            // There is a key, and IPv4 behind it.
            Upper::Gre(key) => [&[0x20, 0, 8, 0][..], &key.to_be_bytes()].concat(),
            Upper::Esp { .. } => unreachable!("nobody makes it by hand"),
        }
    }
}

impl Flow {
    pub(crate) fn back(self) -> Flow {
        Flow { source: self.destination, destination: self.source, upper: self.upper.back() }
    }

    /// A packet of this flow with a number.
    pub(crate) fn packet(self, number: u64) -> Packet {
        let payload = [&self.upper.header()[..], &number.to_be_bytes()].concat();
        Packet::new(self.source.into(), self.destination.into(), self.upper.protocol(), &payload)
    }

    /// The flow of a packet, as far as this simulation makes packets.
    pub(crate) fn of(packet: &[u8]) -> Flow {
        let (header, rest) = packet.split_first_chunk::<HEADER>().expect("a header of IPv4");
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
        let word = |at: usize| u32::from_be_bytes(*rest[at..].first_chunk().expect("four bytes"));
        let upper = match header[9] {
            TCP => Upper::Tcp { from: port(0), to: port(2) },
            UDP => Upper::Udp { from: port(0), to: port(2) },
            GRE => Upper::Gre(word(4)),
            ESP => Upper::Esp { spi: word(0), number: word(4) },
            other => panic!("nobody sends protocol {other}"),
        };
        Flow { source: address(12), destination: address(16), upper }
    }
}

/// The number of a packet in clear.
pub(crate) fn number(packet: &[u8]) -> u64 {
    u64::from_be_bytes(*packet.last_chunk().expect("it has a number"))
}

/// A packet with these bytes, of nobody and from nowhere.
pub(crate) fn raw(bytes: Vec<u8>) -> Packet {
    let none = Ipv4Addr::UNSPECIFIED.into();
    Packet { bytes, ..Packet::new(none, none, 0, &[]) }
}

/// Changes the addresses of a packet, as NAT does.
pub(crate) fn set_addresses(packet: &mut Packet, source: Ipv4Addr, destination: Ipv4Addr) {
    packet.bytes[12..16].copy_from_slice(&source.octets());
    packet.bytes[16..20].copy_from_slice(&destination.octets());
}
