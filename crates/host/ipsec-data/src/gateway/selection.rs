//! The selection of packets that the XDP program takes ([`sealane_packets::xdp`]), made from the policies.
//!
//! A packet is taken if the first policy for its addresses, whatever else policies select by, protects it and selects
//! by nothing else. Then it is certain that it is to be sealed; all others go to the stack, its rules, and the TUN
//! device. Destinations and sources are looked up one after the other, each by its longest prefix. A destination's
//! prefix has all sources of policies for it, including those of wider prefixes.

use sealane_net_ipsec::sa::Mode;
use sealane_net_ipsec::spd::{Action, Dir, Policy, Spd};
use sealane_packets::xdp::{Prefix, Tables};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr};

/// The most policies of both directions. With more, all packets are left to the stack.
pub(super) const MAX_POLICIES: usize = 2048;
/// The most comparisons.
const MAX_WORK: usize = 4 << 20;

/// Destinations that are never forwarded: multicast, link-local, loopback, this network.
const NEVER: [(IpAddr, u8); 7] = [
    (IpAddr::V4(std::net::Ipv4Addr::new(224, 0, 0, 0)), 3),
    (IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(std::net::Ipv4Addr::new(0, 0, 0, 0)), 8),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
];

/// The prefixes of a policy, and whether packets between them may be taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    source: Prefix,
    destination: Prefix,
    take: bool,
}

impl Rule {
    /// The rule of an outbound policy.
    pub(super) fn of(policy: &Policy) -> Rule {
        let s = &policy.selector;
        let plain = s.proto == 0 && s.sport_mask == 0 && s.dport_mask == 0 && s.ifindex == 0 && policy.mark.mask == 0;
        let tunnel = policy.templates.first().is_some_and(|t| t.mode == Mode::Tunnel);
        let protects = policy.action == Action::Allow && tunnel && !policy.templates.iter().any(|t| t.optional);
        let take = plain && protects && policy.device.is_none() && s.family.is_some();
        let (source, destination) = match s.family {
            Some(_) => (Prefix::new(s.source, s.source_len), Prefix::new(s.destination, s.destination_len)),
            None => (Prefix::ANY, Prefix::ANY),
        };
        Rule { source, destination, take }
    }

    /// Whether the policy may be for packets between these addresses.
    pub(super) fn is_for(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.source.has(source) && self.destination.has(destination)
    }
}

/// The rules of outbound policies.
pub(super) fn outbound_rules(spd: &Spd) -> Vec<Rule> {
    policies(spd, Dir::Out).map(Rule::of).collect()
}

/// The rules of forward policies that block or require states: packets that must come through a tunnel, or be dropped,
/// are not taken when they come unencrypted.
pub(super) fn forward_rules(spd: &Spd) -> Vec<Rule> {
    let asks = |p: &&Policy| p.action == Action::Block || p.templates.iter().any(|t| !t.optional);
    policies(spd, Dir::Fwd).filter(asks).map(|policy| Rule { take: false, ..Rule::of(policy) }).collect()
}

fn policies(spd: &Spd, dir: Dir) -> impl Iterator<Item = &Policy> {
    // Policies of xfrm interfaces do not apply here.
    spd.ordered(dir).into_iter().filter(|p| p.if_id == 0)
}

/// Prefixes of sources for each prefix of destinations, and whether packets between them are taken.
type PrefixPairs = BTreeMap<Prefix, BTreeMap<Prefix, bool>>;

/// Works out the tables for rules, in their order. `locals` are addresses of this host.
fn prefix_pairs(rules: &[Rule], locals: impl Iterator<Item = IpAddr>) -> PrefixPairs {
    if rules.len() > MAX_POLICIES || !rules.iter().any(|rule| rule.take) {
        return PrefixPairs::new();
    }
    let own = locals.map(|address| (address, 128)).chain(NEVER);
    let own =
        own.map(|(address, len)| Rule { source: Prefix::ANY, destination: Prefix::new(address, len), take: false });
    let rules: Vec<Rule> = own.chain(rules.iter().copied()).collect();
    let mut wanted: PrefixPairs = rules.iter().map(|rule| (rule.destination, BTreeMap::new())).collect();
    let mut work = 0;
    for (destination, sources) in &mut wanted {
        let here: Vec<&Rule> = rules.iter().filter(|rule| rule.destination.covers(*destination)).collect();
        work += rules.len() + here.len() * here.len();
        if work > MAX_WORK {
            return PrefixPairs::new();
        }
        for rule in &here {
            let first = here.iter().find(|first| first.source.covers(rule.source));
            sources.insert(rule.source, first.is_some_and(|first| first.take));
        }
    }
    wanted
}

/// The contents of the program's tables.
#[derive(Debug, Default)]
pub(super) struct Selection {
    numbers: HashMap<Prefix, u32>,
    last: u32,
    to: BTreeMap<Prefix, u32>,
    from: BTreeMap<(u32, Prefix), bool>,
}

impl Selection {
    /// Updates the tables after the rules. In between fewer packets are taken, never more.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn set(
        &mut self,
        tables: &Tables,
        rules: &[Rule],
        locals: impl Iterator<Item = IpAddr>,
    ) -> io::Result<()> {
        let (mut to, mut from) = (BTreeMap::new(), BTreeMap::new());
        for (destination, sources) in prefix_pairs(rules, locals) {
            // All packets are left to the stack.
            if !sources.values().any(|take| *take) {
                to.insert(destination, 0);
                continue;
            }
            let number = *self.numbers.entry(destination).or_insert_with(|| {
                self.last += 1;
                self.last
            });
            to.insert(destination, number);
            from.extend(sources.into_iter().map(|(source, take)| ((number, source), take)));
        }
        let changed = |key: &(u32, Prefix), take: &bool, old: &BTreeMap<_, _>| old.get(key) != Some(take);
        // Entries that stop packets from being taken come first.
        for ((number, source), _) in from.iter().filter(|(key, take)| !**take && changed(key, take, &self.from)) {
            tables.from(*number, *source, Some(false))?;
        }
        for (destination, _) in to.iter().filter(|(key, number)| **number == 0 && self.to.get(*key) != Some(&0)) {
            tables.to(*destination, Some(0))?;
        }
        for ((number, source), _) in from.iter().filter(|(key, take)| **take && changed(key, take, &self.from)) {
            tables.from(*number, *source, Some(true))?;
        }
        for (destination, number) in to.iter().filter(|(key, number)| self.to.get(*key) != Some(number)) {
            tables.to(*destination, Some(*number))?;
        }
        for destination in self.to.keys().filter(|key| !to.contains_key(key)) {
            tables.to(*destination, None)?;
        }
        for (number, source) in self.from.keys().filter(|key| !from.contains_key(key)) {
            tables.from(*number, *source, None)?;
        }
        self.numbers.retain(|destination, _| to.get(destination).is_some_and(|number| *number != 0));
        (self.to, self.from) = (to, from);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(source: &str, destination: &str, take: bool) -> Rule {
        let prefix = |text: &str| {
            let (address, len) = text.split_once('/').unwrap();
            Prefix::new(address.parse().unwrap(), len.parse().unwrap())
        };
        Rule { source: prefix(source), destination: prefix(destination), take }
    }

    /// The result of the program's two lookups.
    fn takes(wanted: &PrefixPairs, source: &str, destination: &str) -> bool {
        fn longest<T>(of: &BTreeMap<Prefix, T>, address: IpAddr) -> Option<&T> {
            of.iter()
                .filter(|(prefix, _)| prefix.has(address))
                .max_by_key(|(prefix, _)| prefix.prefix_len())
                .map(|(_, of)| of)
        }
        let sources = longest(wanted, destination.parse().unwrap());
        sources.and_then(|s| longest(s, source.parse().unwrap())).copied().unwrap_or(false)
    }

    #[test]
    fn the_first_policy_for_two_addresses_decides() {
        let rules = [
            rule("10.1.9.0/24", "10.2.0.0/16", false),
            rule("10.1.0.0/16", "10.2.0.0/16", true),
            rule("10.1.9.128/25", "10.2.3.0/24", true),
            rule("10.1.0.0/16", "0.0.0.0/0", true),
            rule("10.0.0.0/8", "10.7.0.0/16", false),
            rule("10.1.0.0/16", "10.7.0.0/16", true),
            rule("fd01::/64", "::/0", true),
        ];
        let wanted = prefix_pairs(&rules, ["10.2.0.1", "192.0.2.1", "fd02::1"].map(|a| a.parse().unwrap()).into_iter());
        let takes = |source, destination| takes(&wanted, source, destination);
        for (source, destination) in [
            ("10.1.2.3", "10.2.3.4"),
            ("10.1.2.3", "198.51.100.1"),
            ("10.1.2.3", "10.7.0.1"),
            ("10.1.9.1", "8.8.8.8"),
            ("fd01::1", "fd02::2"),
            ("fd01::1", "2001:db8::1"),
        ] {
            assert!(takes(source, destination), "{source} {destination}");
        }
        for (source, destination) in [
            ("10.1.9.1", "10.2.3.4"),
            // Another policy comes before that of the longer prefixes.
            ("10.1.9.200", "10.2.3.4"),
            ("10.3.0.1", "10.2.3.4"),
            ("10.3.0.1", "10.7.0.1"),
            ("10.1.2.3", "10.2.0.1"),
            ("10.1.2.3", "192.0.2.1"),
            ("10.1.2.3", "224.0.0.5"),
            ("10.1.2.3", "255.255.255.255"),
            ("10.1.2.3", "fd02::2"),
            ("fd01::1", "fd02::1"),
            ("fd01::1", "ff02::1"),
            ("fd01::1", "fe80::1"),
            ("fd02::1", "fd02::2"),
        ] {
            assert!(!takes(source, destination), "{source} {destination}");
        }
    }

    #[test]
    fn nothing_is_taken_of_too_many_or_none() {
        assert!(prefix_pairs(&[rule("10.0.0.0/8", "10.0.0.0/8", false)], core::iter::empty()).is_empty());
        let many = vec![rule("10.0.0.0/8", "10.0.0.0/8", true); MAX_POLICIES + 1];
        assert!(prefix_pairs(&many, core::iter::empty()).is_empty());
        assert!(!prefix_pairs(&many[..MAX_POLICIES / 2], core::iter::empty()).is_empty());
    }

    #[test]
    fn only_a_policy_that_protects_and_asks_for_nothing_else() {
        use sealane_net_ipsec::sa::Proto;
        use sealane_net_ipsec::selector::{Mark, Selector};
        use sealane_net_ipsec::spd::Template;
        let net = |text: &str| (text.parse::<IpAddr>().unwrap(), 16);
        let template = |mode, optional| Template {
            src: [192, 0, 2, 1].into(),
            dst: [192, 0, 2, 2].into(),
            proto: Proto::Esp,
            mode,
            reqid: 1,
            spi: 0,
            optional,
        };
        let mut policy = Policy::allow(Dir::Out, Selector::between(net("10.1.0.0"), net("10.2.0.0")));
        policy.templates.push(template(Mode::Tunnel, false));
        assert!(Rule::of(&policy).take);
        let changes: [fn(&mut Policy); 10] = [
            |p| p.selector.proto = 6,
            |p| p.selector.sport_mask = 0xffff,
            |p| p.selector.dport_mask = 0xff00,
            |p| p.selector.ifindex = 3,
            |p| p.selector.family = None,
            |p| p.mark = Mark { value: 0, mask: 1 },
            |p| p.action = Action::Block,
            |p| p.device = Some(7),
            |p| p.templates[0].optional = true,
            |p| p.templates[0].mode = Mode::Transport,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut policy = policy.clone();
            change(&mut policy);
            assert!(!Rule::of(&policy).take, "{i}");
        }
        policy.templates.clear();
        assert!(!Rule::of(&policy).take);
    }
}
