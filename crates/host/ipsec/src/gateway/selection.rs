//! Which packets of the interfaces the program is to take ([`sealane_sys::xdp`]), from the policies.
//!
//! A packet is taken when the first policy that is for its addresses, whatever else they ask for, protects it and asks for nothing
//! else. So there is nothing to decide about it, but how; all others meet the stack, its rules, and the TUN device. Destinations
//! and sources are looked up one after the other, each by its longest prefix; for a destination's prefix there stand all sources
//! of policies that are for it, those of wider ones too.

use sealane_net::ipsec::sa::Mode;
use sealane_net::ipsec::spd::{Action, Dir, Policy, Spd};
use sealane_sys::xdp::{Prefix, Tables};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr};

/// How many policies are looked at, of both directions; with more of them everything is the stack's.
pub(super) const MAX_POLICIES: usize = 2048;
/// How many comparisons it may take.
const MAX_WORK: usize = 4 << 20;

/// What nobody forwards: groups, links, loopback, this network.
const NEVER: [(IpAddr, u8); 7] = [
    (IpAddr::V4(std::net::Ipv4Addr::new(224, 0, 0, 0)), 3),
    (IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(std::net::Ipv4Addr::new(0, 0, 0, 0)), 8),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
];

/// What a policy is for, as far as addresses say, and whether what is for it may be taken.
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

    /// Whether it may be for packets between these addresses.
    pub(super) fn is_for(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.source.has(source) && self.destination.has(destination)
    }
}

/// The rules of the policies that packets meet before they leave.
pub(super) fn leaving(spd: &Spd) -> Vec<Rule> {
    policies(spd, Dir::Out).map(Rule::of).collect()
}

/// The rules of those that packets meet when they came in to be forwarded, where these ask for something: what is to have come
/// through a tunnel, or to be dropped, is not taken when it comes in clear.
pub(super) fn arrived(spd: &Spd) -> Vec<Rule> {
    let asks = |p: &&Policy| p.action == Action::Block || p.templates.iter().any(|t| !t.optional);
    policies(spd, Dir::Fwd).filter(asks).map(|policy| Rule { take: false, ..Rule::of(policy) }).collect()
}

fn policies(spd: &Spd, dir: Dir) -> impl Iterator<Item = &Policy> {
    // Those of xfrm interfaces concern nothing.
    spd.ordered(dir).into_iter().filter(|p| p.if_id == 0)
}

/// For prefixes of destinations those of sources, and whether what comes from there is taken.
type Wanted = BTreeMap<Prefix, BTreeMap<Prefix, bool>>;

/// What rules, in their order, say; `locals` are addresses of this host.
fn wanted(rules: &[Rule], locals: impl Iterator<Item = IpAddr>) -> Wanted {
    if rules.len() > MAX_POLICIES || !rules.iter().any(|rule| rule.take) {
        return Wanted::new();
    }
    let own = locals.map(|address| (address, 128)).chain(NEVER);
    let own =
        own.map(|(address, len)| Rule { source: Prefix::ANY, destination: Prefix::new(address, len), take: false });
    let rules: Vec<Rule> = own.chain(rules.iter().copied()).collect();
    let mut wanted: Wanted = rules.iter().map(|rule| (rule.destination, BTreeMap::new())).collect();
    let mut work = 0;
    for (destination, sources) in &mut wanted {
        let here: Vec<&Rule> = rules.iter().filter(|rule| rule.destination.covers(*destination)).collect();
        work += rules.len() + here.len() * here.len();
        if work > MAX_WORK {
            return Wanted::new();
        }
        for rule in &here {
            let first = here.iter().find(|first| first.source.covers(rule.source));
            sources.insert(rule.source, first.is_some_and(|first| first.take));
        }
    }
    wanted
}

/// What the program's tables have, and how they become what is wanted.
#[derive(Debug, Default)]
pub(super) struct Selection {
    numbers: HashMap<Prefix, u32>,
    last: u32,
    to: BTreeMap<Prefix, u32>,
    from: BTreeMap<(u32, Prefix), bool>,
}

impl Selection {
    /// Makes the tables say what the rules do. In between less is taken, never more.
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
        for (destination, sources) in wanted(rules, locals) {
            // All of it the stack's.
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
        // What is not to be taken any more first.
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

    /// What the program's two lookups say.
    fn takes(wanted: &Wanted, source: &str, destination: &str) -> bool {
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
        let wanted = wanted(&rules, ["10.2.0.1", "192.0.2.1", "fd02::1"].map(|a| a.parse().unwrap()).into_iter());
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
            // Another policy was before that of the longer prefixes.
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
        assert!(wanted(&[rule("10.0.0.0/8", "10.0.0.0/8", false)], core::iter::empty()).is_empty());
        let many = vec![rule("10.0.0.0/8", "10.0.0.0/8", true); MAX_POLICIES + 1];
        assert!(wanted(&many, core::iter::empty()).is_empty());
        assert!(!wanted(&many[..MAX_POLICIES / 2], core::iter::empty()).is_empty());
    }

    #[test]
    fn only_a_policy_that_protects_and_asks_for_nothing_else() {
        use sealane_net::ipsec::sa::Proto;
        use sealane_net::ipsec::selector::{Mark, Selector};
        use sealane_net::ipsec::spd::Template;
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
