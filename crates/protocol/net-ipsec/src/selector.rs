//! Selectors, marks, and the flow of a packet.

use core::net::IpAddr;
use sealane_wire::ip::{Family, be16};
use sealane_wire::walk::{Malformed, Walk, addresses};
use sealane_wire::{gre, proto};

/// A mark with a mask (`struct xfrm_mark`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Mark {
    /// The value.
    pub value: u32,
    /// The mask: only these bits are compared.
    pub mask: u32,
}

impl Mark {
    /// Whether a packet's mark matches.
    #[must_use]
    pub fn matches(&self, mark: u32) -> bool {
        mark & self.mask == self.value
    }

    /// The mark of a packet that has this one set, where it has the mark `mark` (`xfrm_smark_get`).
    #[must_use]
    pub fn set_in(&self, mark: u32) -> u32 {
        self.value & self.mask | mark & !self.mask
    }
}

/// The fields of a packet that policies match (`struct flowi`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Upper-layer protocol, behind IPv6 extension headers.
    pub proto: u8,
    /// Source port; the type of an ICMP or mobility message; the high half of a GRE key.
    pub sport: u16,
    /// Destination port; the code of an ICMP message; the low half of a GRE key.
    pub dport: u16,
    /// The packet's mark.
    pub mark: u32,
    /// The output interface, or the input interface of inbound packets.
    pub ifindex: i32,
}

impl Flow {
    /// The flow of an IP packet. A later fragment has no ports, and where its fragment header names an extension header
    /// of IPv6 the protocol is that header's number: nothing in it tells the protocol.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn of(packet: &[u8], mark: u32, ifindex: i32) -> Result<Self, Malformed> {
        let walk = Walk::find(packet)?;
        let (source, destination) = addresses(packet, walk.family);
        let (mut sport, mut dport) = (0, 0);
        if !walk.is_later_fragment() {
            let upper = &packet[walk.upper_at..walk.end];
            match (walk.upper, upper) {
                (proto::TCP | proto::UDP | proto::UDPLITE | proto::SCTP | proto::DCCP, [_, _, _, _, ..]) => {
                    (sport, dport) = (be16(upper, 0), be16(upper, 2));
                }
                (proto::ICMP | proto::ICMPV6, [kind, code, ..]) => {
                    (sport, dport) = (u16::from(*kind), u16::from(*code));
                }
                (proto::GRE, _) => {
                    let key = gre::key(upper).unwrap_or(0);
                    (sport, dport) = ((key >> 16) as u16, key as u16);
                }
                (proto::MOBILITY, [_, _, kind, ..]) => sport = u16::from(*kind),
                _ => {}
            }
        }
        Ok(Flow { source, destination, proto: walk.upper, sport, dport, mark, ifindex })
    }
}

/// A set of flows (`struct xfrm_selector`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The address family; `None` for both (`AF_UNSPEC`).
    pub family: Option<Family>,
    /// Source address; only the first `source_len` bits are compared.
    pub source: IpAddr,
    /// Length of the source prefix in bits.
    pub source_len: u8,
    /// Destination address; only the first `destination_len` bits are compared.
    pub destination: IpAddr,
    /// Length of the destination prefix in bits.
    pub destination_len: u8,
    /// Source port.
    pub sport: u16,
    /// The mask: only these bits are compared.
    pub sport_mask: u16,
    /// Destination port.
    pub dport: u16,
    /// The mask: only these bits are compared.
    pub dport_mask: u16,
    /// Protocol; 0 for all.
    pub proto: u8,
    /// Interface; 0 for all.
    pub ifindex: i32,
}

impl Selector {
    /// All flows of both families.
    pub const ANY: Selector = Selector {
        family: None,
        source: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
        source_len: 0,
        destination: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
        destination_len: 0,
        sport: 0,
        sport_mask: 0,
        dport: 0,
        dport_mask: 0,
        proto: 0,
        ifindex: 0,
    };

    /// All flows between two prefixes of one family.
    #[must_use]
    pub fn between(source: (IpAddr, u8), destination: (IpAddr, u8)) -> Self {
        Selector {
            family: Some(family_of(source.0)),
            source: source.0,
            source_len: source.1,
            destination: destination.0,
            destination_len: destination.1,
            ..Selector::ANY
        }
    }

    /// Whether `flow` is in the set (`xfrm_selector_match`).
    #[must_use]
    pub fn matches(&self, flow: &Flow) -> bool {
        self.family.is_none_or(|family| family == family_of(flow.destination))
            && equal_in(flow.destination, self.destination, self.destination_len)
            && equal_in(flow.source, self.source, self.source_len)
            && (flow.dport ^ self.dport) & self.dport_mask == 0
            && (flow.sport ^ self.sport) & self.sport_mask == 0
            && (self.proto == 0 || self.proto == flow.proto)
            && (self.ifindex == 0 || self.ifindex == flow.ifindex)
    }
}

/// The family of an address.
#[must_use]
pub fn family_of(addr: IpAddr) -> Family {
    if addr.is_ipv4() { Family::V4 } else { Family::V6 }
}

/// Whether two addresses are equal in their first `len` bits. A prefix of length 0 contains every address of either
/// family.
#[must_use]
pub fn equal_in(a: IpAddr, b: IpAddr, len: u8) -> bool {
    let (a, b, width) = match (a, b) {
        _ if len == 0 => return true,
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    (a ^ b) >> (width - u32::from(len).min(width)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(source: &str, destination: &str) -> Flow {
        Flow {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            proto: 17,
            sport: 1000,
            dport: 2000,
            mark: 0,
            ifindex: 3,
        }
    }

    #[test]
    fn selectors() {
        let selector = Selector::between(("10.1.0.0".parse().unwrap(), 16), ("10.2.3.4".parse().unwrap(), 32));
        let good = flow("10.1.255.9", "10.2.3.4");
        assert!(selector.matches(&good));
        assert!(!selector.matches(&flow("10.2.255.9", "10.2.3.4")));
        assert!(!selector.matches(&flow("10.1.255.9", "10.2.3.5")));
        assert!(!selector.matches(&flow("fd00::1", "fd00::2")));
        assert!(Selector::ANY.matches(&good) && Selector::ANY.matches(&flow("fd00::1", "fd00::2")));
        for (changed, fits) in [
            (Selector { proto: 17, ..selector }, true),
            (Selector { proto: 6, ..selector }, false),
            (Selector { dport: 2000, dport_mask: 0xffff, ..selector }, true),
            (Selector { dport: 1792, dport_mask: 0xff00, ..selector }, true),
            (Selector { dport: 2001, dport_mask: 0xffff, ..selector }, false),
            (Selector { sport: 1, sport_mask: 0xffff, ..selector }, false),
            (Selector { ifindex: 3, ..selector }, true),
            (Selector { ifindex: 4, ..selector }, false),
        ] {
            assert_eq!(changed.matches(&good), fits, "{changed:?}");
        }
        assert!(Mark { value: 0x10, mask: 0xf0 }.matches(0x1f) && !Mark { value: 0x10, mask: 0xff }.matches(0x1f));
        assert!(Mark::default().matches(77));
    }

    #[test]
    fn flows() {
        let mut packet =
            vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 7, 208, 0, 8, 0, 0];
        let found = Flow::of(&packet, 5, 3).unwrap();
        assert_eq!(found, Flow { mark: 5, ..flow("10.0.0.1", "10.0.0.2") });
        packet[7] = 1;
        assert_eq!((Flow::of(&packet, 0, 0).unwrap().sport, Flow::of(&packet, 0, 0).unwrap().proto), (0, 17));
        packet[7] = 0;
        packet[9] = 1;
        assert_eq!((Flow::of(&packet, 0, 0).unwrap().sport, Flow::of(&packet, 0, 0).unwrap().dport), (3, 232));
        packet[3] = 20;
        assert_eq!(Flow::of(&packet[..20], 0, 0).unwrap().sport, 0, "no ICMP header at all");
        assert_eq!(Flow::of(&packet[..19], 0, 0), Err(Malformed));
        let v6 = [&[0x60, 0, 0, 0, 0, 8, proto::MOBILITY, 64][..], &[1; 32], &[59, 0, 5, 0, 0, 0, 0, 0]].concat();
        assert_eq!((Flow::of(&v6, 0, 0).unwrap().sport, Flow::of(&v6, 0, 0).unwrap().dport), (5, 0));
    }

    #[test]
    fn gre_keys() {
        let of = |gre: &[u8]| {
            let len = [0, 20 + gre.len() as u8];
            let header = [&[0x45, 0][..], &len, &[0, 0, 0, 0, 64, proto::GRE, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]].concat();
            let flow = Flow::of(&[&header, gre].concat(), 0, 0).unwrap();
            (flow.sport, flow.dport)
        };
        assert_eq!(of(&[0x20, 0, 8, 0, 0, 1, 0, 5]), (1, 5));
        assert_eq!(of(&[0xa0, 0, 8, 0, 9, 9, 9, 9, 0, 1, 0, 5]), (1, 5), "behind a checksum");
        assert_eq!(of(&[0xb0, 0, 8, 0, 9, 9, 9, 9, 0, 1, 0, 5, 7, 7, 7, 7]), (1, 5), "before a sequence number");
        assert_eq!(of(&[0x30, 1, 0x88, 0x0b, 0, 99, 0, 5]), (0, 5), "PPTP: payload length and call");
        for none in [
            &[0, 0, 8, 0, 0, 1, 0, 5][..],
            &[0x60, 0, 8, 0, 0, 1, 0, 5],
            &[0x20, 2, 8, 0, 0, 1, 0, 5],
            &[0x20, 1, 8, 0, 0, 1, 0, 5],
            &[0x20, 0, 8, 0, 0, 1, 0],
            &[0x20, 0, 8],
        ] {
            assert_eq!(of(none), (0, 0), "{none:x?}");
        }
    }
}
