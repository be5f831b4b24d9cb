//! Steps that only packets of a selector or state pass.

use super::wanted::{Match, StateMark};
use crate::field::{self, Field};
use crate::rule::{Rule, Test};
use crate::value::Value;
use sealane_sys::mask;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocols with ports at the place of TCP's.
const PORTS: [i32; 5] =
    [libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_UDPLITE, libc::IPPROTO_SCTP, libc::IPPROTO_DCCP];

/// The last number of an extension header of IPv6 that may stand behind a fragment header and before another header, and the
/// ranges of protocols below it: what is left are hop-by-hop options (0), routing and fragment header (43, 44), and
/// destination options (60).
const V6_LAST_HEADER: u8 = libc::IPPROTO_DSTOPTS as u8;
const V6_PROTOCOLS: [(u8, u8); 2] =
    [(1, libc::IPPROTO_ROUTING as u8 - 1), (libc::IPPROTO_FRAGMENT as u8 + 1, V6_LAST_HEADER - 1)];

/// The offset in IPv6's fragment header, without its flags.
const V6_OFFSET: u16 = 0xfff8;
/// The offset of a fragment of IPv4, without its flags.
const V4_OFFSET: u16 = 0x1fff;

impl Rule {
    /// Goes on for packets of a selector, as far as rules can tell.
    pub(super) fn of(self, of: &Match) -> Rule {
        let v6 = usize::from(of.source.0.is_ipv6());
        let family = [libc::NFPROTO_IPV4, libc::NFPROTO_IPV6][v6] as u8;
        let mut rule = self.is(field::FAMILY, family);
        for ((address, bits), field) in [(of.source, field::SOURCES[v6]), (of.destination, field::DESTINATIONS[v6])] {
            let address = Value::from(address);
            let len = address.bytes().len();
            let mask = Value::new(&mask(bits).to_be_bytes()[..len]);
            rule = match usize::from(bits) {
                0 => rule,
                bits if bits < len * 8 => rule.has(field, mask, address.and(mask)),
                _ => rule.is(field, address),
            };
        }
        if of.proto != 0 {
            rule = rule.is(field::PROTOCOL, of.proto);
        }
        if of.mark.1 != 0 {
            rule = rule.has_mark(of.mark.1, of.mark.0);
        }
        let icmp = [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6].contains(&i32::from(of.proto));
        let ports = [field::SOURCE_PORT, field::DESTINATION_PORT];
        let types = [field::ICMP_TYPE, field::ICMP_CODE];
        for (which, (port, mask)) in [of.sport, of.dport].into_iter().enumerate() {
            let whole = mask == u16::MAX;
            rule = match i32::from(of.proto) {
                _ if mask == 0 => rule,
                // Type and code are one byte each.
                _ if icmp && whole => rule.is(types[which], port as u8),
                libc::IPPROTO_MH if which == 0 && whole => rule.is(field::MOBILITY_TYPE, port as u8),
                proto if PORTS.contains(&proto) => rule.has(ports[which], mask, port & mask),
                _ => rule,
            };
        }
        rule
    }

    /// Goes on for the fragments behind the first between the addresses, with the protocol and the mark.
    pub(super) fn of_later_fragments(self, of: &Match) -> Rule {
        self.of(&Match { sport: (0, 0), dport: (0, 0), ..*of }).of_fragment_behind(of.source.0.is_ipv6())
    }

    /// Goes on for fragments behind the first.
    pub(super) fn of_fragment_behind(self, v6: bool) -> Rule {
        if v6 { self.has_any(field::V6_FRAGMENT, V6_OFFSET) } else { self.has_any(field::V4_FRAGMENT, V4_OFFSET) }
    }

    /// Goes on for the fragments of IPv6 behind the first, between the addresses and with the mark, whose fragment header
    /// names an extension header: nobody can tell their protocol, and for rules they have none.
    pub(super) fn of_nameless_fragments(self, of: &Match) -> Rule {
        let authenticated = libc::IPPROTO_AH as u8;
        let outside = |first: u8, last: u8| Test::Outside(first.into(), last.into());
        let mut tests = vec![Test::Le(V6_LAST_HEADER.into())];
        for (first, last) in V6_PROTOCOLS {
            // AH counts as a protocol, and as one that rules cannot see here.
            if i32::from(of.proto) == libc::IPPROTO_AH && (first..=last).contains(&authenticated) {
                tests.extend([outside(first, authenticated - 1), outside(authenticated + 1, last)]);
            } else {
                tests.push(outside(first, last));
            }
        }
        let between = Match { proto: 0, sport: (0, 0), dport: (0, 0), ..*of };
        self.of(&between).of_fragment_behind(true).tests(field::V6_FRAGMENT_NEXT, tests)
    }

    /// Goes on for packets of a state.
    pub(super) fn of_state(self, of: &StateMark) -> Rule {
        let (any, bits) = match of.destination {
            IpAddr::V4(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 32),
            IpAddr::V6(_) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
        };
        let to = Match {
            source: (any, 0),
            destination: (of.destination, bits),
            proto: of.proto,
            sport: (0, 0),
            dport: (0, 0),
            mark: (0, 0),
        };
        self.of(&to).is(spi(of.proto), of.spi)
    }
}

/// The SPI behind a header of this protocol: AH's, that of ESP in UDP, or ESP's.
fn spi(proto: u8) -> &'static Field {
    match i32::from(proto) {
        libc::IPPROTO_UDP => field::UDP_ESP_SPI,
        libc::IPPROTO_AH => field::AH_SPI,
        _ => field::ESP_SPI,
    }
}
