//! Steps that only packets of a selector or state pass.

use super::group::Group;
use super::wanted::{Match, StateMark};
use crate::field::{self, Field};
use crate::rule::{Pair, Rule, Step, Test};
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
        self.between(&[of.between()], of.source.0.is_ipv6()).above(of)
    }

    /// Goes on for packets of a group of selectors.
    pub(super) fn of_group(self, of: &Group<'_>) -> Rule {
        self.between(&of.between, of.of.source.0.is_ipv6()).above(of.of)
    }

    /// Goes on for packets of a family, between addresses of one of these pairs.
    fn between(self, pairs: &[Pair], v6: bool) -> Rule {
        let family = [libc::NFPROTO_IPV4, libc::NFPROTO_IPV6][usize::from(v6)] as u8;
        let fields = [field::SOURCES, field::DESTINATIONS].map(|of| of[usize::from(v6)]);
        let rule = self.is(field::FAMILY, family);
        let [pair] = pairs else { return rule.step(Step::Between { fields, pairs: pairs.to_vec() }) };
        fields.into_iter().zip(pair).fold(rule, |rule, (field, prefix)| match prefix.bits() as usize {
            0 => rule,
            bits if bits < prefix.first().bytes().len() * 8 => rule.has(field, prefix.mask(), prefix.first()),
            _ => rule.is(field, prefix.first()),
        })
    }

    /// Goes on for packets that a selector selects by what is above their addresses.
    fn above(self, of: &Match) -> Rule {
        let mut rule = self;
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
    pub(super) fn of_later_fragments(self, of: &Group<'_>) -> Rule {
        let portless = Match { sport: (0, 0), dport: (0, 0), ..*of.of };
        self.of_group(&Group { of: &portless, ..of.clone() }).of_fragment_behind(portless.source.0.is_ipv6())
    }

    /// Goes on for fragments behind the first.
    pub(super) fn of_fragment_behind(self, v6: bool) -> Rule {
        if v6 { self.has_any(field::V6_FRAGMENT, V6_OFFSET) } else { self.has_any(field::V4_FRAGMENT, V4_OFFSET) }
    }

    /// Goes on for the fragments of IPv6 behind the first, between the addresses and with the mark, whose fragment header
    /// names an extension header: nobody can tell their protocol, and for rules they have none.
    pub(super) fn of_nameless_fragments(self, of: &Group<'_>) -> Rule {
        let authenticated = libc::IPPROTO_AH as u8;
        let outside = |first: u8, last: u8| Test::Outside(first.into(), last.into());
        let mut tests = vec![Test::Le(V6_LAST_HEADER.into())];
        for (first, last) in V6_PROTOCOLS {
            // AH counts as a protocol, and as one that rules cannot see here.
            if i32::from(of.of.proto) == libc::IPPROTO_AH && (first..=last).contains(&authenticated) {
                tests.extend([outside(first, authenticated - 1), outside(authenticated + 1, last)]);
            } else {
                tests.push(outside(first, last));
            }
        }
        let between = Match { proto: 0, sport: (0, 0), dport: (0, 0), ..*of.of };
        self.of_group(&Group { of: &between, ..of.clone() })
            .of_fragment_behind(true)
            .tests(field::V6_FRAGMENT_NEXT, tests)
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
