//! The rules that follow from policies.

use sealane_engine_xfrm::{OutputMark, Xfrm};
use sealane_net_ipsec::icmp;
use sealane_net_ipsec::sa::{Mode, Proto};
use sealane_net_ipsec::selector::equal_in;
use sealane_net_ipsec::spd::{Action, Dir, Policy, Spd, Template};
use sealane_rules::ipsec::{Match, Rules, StateMark, Then, Wanted};
use sealane_sys::route::PrefixRule;
use sealane_wire::proto;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most policies of a direction that get a rule each. With more, one rule takes all packets of a family, and the
/// engine decides.
const MAX_RULES: usize = 1024;

/// The target of packets covered by the policies of an offload device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Its own TUN device, with this number and this name.
    Tun(u8, String),
    /// The kernel's own IPsec.
    Kernel,
}

/// Targets by the index of the device's interface.
pub(crate) type Targets = BTreeMap<u32, Target>;

/// The most routing rules for prefixes: every packet of the host is compared with each of them.
const MAX_WAYS: usize = 16;

/// The traffic between prefixes that a packet core protects and no policy of another device or of the stack is for.
///
/// Marks do the same for all traffic, at the cost of a second route lookup for each packet. An IKE daemon's own traffic
/// is not between these prefixes.
pub(crate) fn prefix_rules(spd: &Spd, targets: &Targets) -> BTreeSet<PrefixRule> {
    let policies = spd.ordered(Dir::Out);
    if policies.len() > MAX_RULES || spd.default_action(Dir::Out) == Action::Block {
        return BTreeSet::new();
    }
    let prefix_rule = |policy: &&Policy| {
        let Some(Target::Tun(number, _)) = targets.get(&policy.device?) else { return None };
        let of = of(policy);
        let holds = |prefix: (IpAddr, u8), address| equal_in(prefix.0, address, prefix.1);
        let ends = |t: &Template| holds(of.source, t.src) && holds(of.destination, t.dst);
        let plain = Match { proto: 0, sport: (0, 0), dport: (0, 0), mark: (0, 0), ..of } == of
            && policy.selector.ifindex == 0
            && policy.if_id == 0
            && policy.action == Action::Allow
            && !policy.templates.is_empty()
            && !policy.templates.iter().any(|t| t.mode == Mode::Transport || ends(t))
            && of.destination.1 > 0;
        let others = || policies.iter().filter(|other| other.device != policy.device);
        let alone = plain && !others().any(|other| overlap(&self::of(other), &of));
        alone.then_some(PrefixRule { source: of.source, destination: of.destination, number: *number })
    };
    policies.iter().filter_map(prefix_rule).take(MAX_WAYS).collect()
}

/// Whether both may match the same packet.
fn overlap(a: &Match, b: &Match) -> bool {
    let prefixes = |a: (IpAddr, u8), b: (IpAddr, u8)| equal_in(a.0, b.0, a.1.min(b.1));
    a.source.0.is_ipv4() == b.source.0.is_ipv4()
        && prefixes(a.source, b.source)
        && prefixes(a.destination, b.destination)
}

/// The most states whose output marks are set by rules, the oldest first: every packet that the daemon sends is
/// compared with each.
const MAX_MARKS: usize = 1024;

/// The output marks that rules set.
pub(crate) fn marks(xfrm: &Xfrm) -> Vec<StateMark> {
    let rule = |of: OutputMark| StateMark {
        destination: of.destination,
        proto: match (of.udp, of.proto) {
            (true, _) => libc::IPPROTO_UDP,
            (false, Proto::Ah) => libc::IPPROTO_AH,
            (false, _) => libc::IPPROTO_ESP,
        } as u8,
        spi: of.spi,
        mark: of.mark,
    };
    xfrm.output_marks().take(MAX_MARKS).map(rule).collect()
}

/// The rules that these policies and states with output marks ask for.
///
/// `mirrored` has the indices of policies that the kernel has for states in crypto offload.
pub(crate) fn wanted_rules(spd: &Spd, marks: Vec<StateMark>, targets: &Targets, mirrored: &BTreeSet<u32>) -> Wanted {
    let rules = |dir| rules(spd, dir, targets, mirrored);
    let name = |target: &Target| if let Target::Tun(_, name) = target { Some(name.clone()) } else { None };
    Wanted {
        input: rules(Dir::In),
        output: rules(Dir::Out),
        forward: rules(Dir::Fwd),
        devices: targets.values().filter_map(name).collect(),
        interfaces: Vec::new(),
        marks,
    }
}

/// The rules that the policies and states of an engine without offload devices ask for, for simulations.
#[cfg(feature = "testing")]
pub fn rules_of(xfrm: &Xfrm) -> Wanted {
    wanted_rules(xfrm.spd(), marks(xfrm), &Targets::new(), &BTreeSet::new())
}

/// Rules that lead all packets to the engine.
const ANYTHING: [(Match, Then); 2] = {
    const fn all(any: IpAddr) -> (Match, Then) {
        let (source, destination) = ((any, 0), (any, 0));
        (Match { source, destination, proto: 0, sport: (0, 0), dport: (0, 0), mark: (0, 0) }, Then::Protect(0))
    }
    [all(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), all(IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
};

/// Rules that lead ICMP errors to the engine, which knows what they are about.
fn errors() -> impl Iterator<Item = (Match, Then)> {
    let all = |proto, types: &'static [u16]| {
        let any: IpAddr =
            if proto == proto::ICMP { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let (source, destination) = ((any, 0), (any, 0));
        types.iter().map(move |kind| {
            let sport = (*kind, u16::MAX);
            (Match { source, destination, proto, sport, dport: (0, 0), mark: (0, 0) }, Then::Protect(0))
        })
    };
    all(proto::ICMP, &icmp::V4_ERRORS).chain(all(proto::ICMPV6, &icmp::V6_ERRORS))
}

fn rules(spd: &Spd, dir: Dir, targets: &Targets, mirrored: &BTreeSet<u32>) -> Rules {
    let mut policies = spd.ordered(dir);
    // Policies of xfrm interfaces are for packets routed to these, and are applied there.
    policies.retain(|p| p.if_id == 0);
    let block_rest = spd.default_action(dir) == Action::Block;
    let mut all = None;
    if policies.len() > MAX_RULES {
        // Inbound packets are not looked at again. Policies of devices come first, and only rules apply them.
        policies.retain(|p| {
            p.device.is_some()
                || mirrored.contains(&p.index)
                || dir != Dir::Out && then(p, targets, mirrored) != Then::Pass
        });
        all = (dir == Dir::Out).then_some(ANYTHING);
    }
    let mut list: Vec<_> = Vec::with_capacity(policies.len());
    let takes_errors = |p: &&Policy| p.icmp && matches!(then(p, targets, mirrored), Then::Protect(_));
    if dir == Dir::Out && policies.iter().any(takes_errors) {
        list.extend(errors());
    }
    let mut is_exact_so_far = true;
    for policy in policies {
        let (of, mut then) = (of(policy), then(policy, targets, mirrored));
        let is_exact = is_exact(policy);
        // A rule must not let more pass than its policy does; it may protect more.
        if then == Then::Pass && !is_exact {
            is_exact_so_far = false;
            continue;
        }
        // Nor must it block more, for itself or for a policy before it that has no rule: the engine decides.
        if then == Then::Block && dir == Dir::Out && !(is_exact && is_exact_so_far) {
            then = Then::Protect(0);
        }
        list.push((of, then));
    }
    if dir == Dir::Out && block_rest && !is_exact_so_far {
        all = Some(ANYTHING);
    }
    list.extend(all.into_iter().flatten());
    Rules { list, block_rest }
}

/// Whether a rule says exactly what a policy does.
pub(crate) fn is_exact(policy: &Policy) -> bool {
    of(policy).is_exact() && policy.selector.ifindex == 0
}

fn then(policy: &Policy, targets: &Targets, mirrored: &BTreeSet<u32>) -> Then {
    let required = match policy.dir {
        Dir::Out => !policy.templates.is_empty(),
        // Optional transformations may be missing.
        Dir::In | Dir::Fwd => policy.templates.iter().any(|t| !t.optional),
    };
    match policy.device.and_then(|device| targets.get(&device)) {
        Some(Target::Kernel) => Then::Pass,
        None if policy.device.is_none() && mirrored.contains(&policy.index) => Then::Pass,
        _ if policy.action != Action::Block && !required => Then::Pass,
        _ if policy.action == Action::Block && policy.dir != Dir::Out => Then::Block,
        // Devices, and what is left of them, count what they drop.
        None if policy.action == Action::Block && policy.device.is_none() => Then::Block,
        Some(Target::Tun(number, _)) => Then::Protect(*number),
        // The engine drops packets for a device that is gone.
        None => Then::Protect(0),
    }
}

fn of(policy: &Policy) -> Match {
    let s = &policy.selector;
    Match {
        source: (s.source, s.source_len),
        destination: (s.destination, s.destination_len),
        proto: s.proto,
        sport: (s.sport, s.sport_mask),
        dport: (s.dport, s.dport_mask),
        mark: (policy.mark.value, policy.mark.mask),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_net_ipsec::selector::Selector;

    const ANY: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    fn policy(dir: Dir, last: u16, action: Action, device: Option<u32>) -> Policy {
        let [a, b] = last.to_be_bytes();
        let host = (IpAddr::from([10, 0, a, b]), 32);
        Policy { action, device, ..Policy::allow(dir, Selector::between(ANY, host)) }
    }

    fn template(src: &str, dst: &str, mode: Mode) -> Template {
        Template {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            proto: Proto::Esp,
            mode,
            reqid: 1,
            spi: 0,
            optional: false,
        }
    }

    #[test]
    fn what_devices_have_goes_to_them() {
        let mut spd = Spd::new(1);
        for (last, action, device) in [
            (1, Action::Block, None),
            (2, Action::Block, Some(7)),
            (3, Action::Block, Some(8)),
            (4, Action::Block, Some(9)),
            (5, Action::Allow, Some(7)),
        ] {
            for dir in [Dir::Out, Dir::In] {
                spd.add(policy(dir, last, action, device), false).expect("a policy");
            }
        }
        let targets = Targets::from([(7, Target::Tun(2, "sealane0".into())), (8, Target::Kernel)]);
        let wanted = wanted_rules(&spd, Vec::new(), &targets, &BTreeSet::new());
        assert_eq!(wanted.devices, ["sealane0"]);
        for rules in [&wanted.output, &wanted.input] {
            let is_output = core::ptr::eq(rules, &wanted.output);
            let then = |last: u8| {
                let host = IpAddr::from([10, 0, 0, last]);
                rules.list.iter().find(|(of, _)| of.destination.0 == host).map(|(_, then)| *then)
            };
            let to = |number| if is_output { Then::Protect(number) } else { Then::Block };
            assert_eq!(then(1), Some(Then::Block));
            assert_eq!(then(2), Some(to(2)));
            assert_eq!(then(3), Some(Then::Pass), "the kernel protects it");
            assert_eq!(then(4), Some(to(0)), "of a device that is not there");
            assert_eq!(then(5), Some(Then::Pass));
        }
    }

    /// The engine knows what an error is about, unless another policy is for it.
    #[test]
    fn errors_come_to_the_engine_where_a_policy_asks_for_them() {
        let first = |change: fn(&mut Policy)| {
            let mut spd = Spd::new(1);
            spd.add(policy(Dir::Out, 1, Action::Allow, None), false).expect("a policy");
            let mut asks = policy(Dir::Out, 2, Action::Allow, None);
            asks.icmp = true;
            asks.templates.push(template("192.0.2.1", "192.0.2.2", Mode::Tunnel));
            change(&mut asks);
            spd.add(asks, false).expect("a policy");
            let list = wanted_rules(&spd, Vec::new(), &Targets::new(), &BTreeSet::new()).output.list;
            let errors = list.iter().take_while(|(of, then)| of.sport.1 != 0 && *then == Then::Protect(0));
            let errors: Vec<_> = errors.map(|(of, _)| (of.proto, of.sport.0)).collect();
            (errors, list.len())
        };
        let all = [(1, 3), (1, 11), (58, 1), (58, 2), (58, 3)];
        assert_eq!(first(|_| ()), (all.to_vec(), 7));
        assert_eq!(first(|p| p.icmp = false), (vec![], 2));
        assert_eq!(first(|p| p.templates.clear()), (vec![], 2));
        assert_eq!(first(|p| p.if_id = 7), (vec![], 1));
    }

    /// A rule that blocks is the end of a packet. The engine decides where a rule may match more than its policy, and where a
    /// policy before it lets something pass that no rule can tell.
    #[test]
    fn rules_block_no_more_than_policies() {
        let out = |change: fn(&mut Policy)| {
            let mut spd = Spd::new(1);
            let mut first = policy(Dir::Out, 1, Action::Allow, None);
            change(&mut first);
            spd.add(first, false).expect("a policy");
            spd.add(policy(Dir::Out, 2, Action::Block, None), false).expect("a policy");
            spd.set_default(Dir::Out, Action::Block);
            let Rules { list, block_rest } = wanted_rules(&spd, Vec::new(), &Targets::new(), &BTreeSet::new()).output;
            assert!(block_rest);
            list.into_iter().map(|(_, then)| then).collect::<Vec<_>>()
        };
        let engine = Then::Protect(0);
        assert_eq!(out(|_| ()), [Then::Pass, Then::Block]);
        assert_eq!(out(|p| p.action = Action::Block), [Then::Block, Then::Block]);
        // A port of a protocol that has none.
        let port = |p: &mut Policy| (p.selector.proto, p.selector.dport, p.selector.dport_mask) = (133, 7, u16::MAX);
        assert_eq!(out(port), [engine, engine, engine], "and what is left, of each family");
        assert_eq!(out(|p| p.selector.ifindex = 7), [engine, engine, engine]);
        let inexact = |p: &mut Policy| (p.action, p.selector.ifindex) = (Action::Block, 7);
        assert_eq!(out(inexact), [engine, Then::Block]);
    }

    #[test]
    fn routes_lead_what_only_one_device_protects() {
        let net = |text: &str, bits| (text.parse::<IpAddr>().unwrap(), bits);
        let tunnel = |from, to, device| {
            let mut policy = Policy { device, ..Policy::allow(Dir::Out, Selector::between(from, to)) };
            policy.templates.push(template("192.0.2.1", "192.0.2.2", Mode::Tunnel));
            policy
        };
        let (a, b, c) = (net("10.1.0.0", 16), net("10.2.0.0", 16), net("10.3.0.0", 16));
        let targets =
            Targets::from([(7, Target::Tun(2, "x".into())), (8, Target::Tun(3, "y".into())), (9, Target::Kernel)]);
        let found = |policies: Vec<Policy>| {
            let mut spd = Spd::new(1);
            for policy in policies {
                spd.add(policy, false).expect("a policy");
            }
            prefix_rules(&spd, &targets)
                .into_iter()
                .map(|w| (w.source.0, w.destination.0, w.number))
                .collect::<Vec<_>>()
        };
        let prefix_rule = |(from, _): (IpAddr, u8), (to, _): (IpAddr, u8), number| (from, to, number);
        assert_eq!(found(vec![tunnel(a, b, Some(7))]), [prefix_rule(a, b, 2)]);
        assert_eq!(
            found(vec![tunnel(a, b, Some(7)), tunnel(a, c, Some(8))]),
            [prefix_rule(a, b, 2), prefix_rule(a, c, 3)]
        );
        // Other policies that are for a part of it, whatever their device.
        for other in [None, Some(8), Some(9)] {
            let narrow = (net("10.1.7.0", 24), net("10.0.0.0", 8));
            assert_eq!(found(vec![tunnel(a, b, Some(7)), tunnel(narrow.0, narrow.1, other)]), []);
        }
        // Policies for less than all traffic between prefixes, or not through a tunnel between other addresses.
        let with = |change: fn(&mut Policy)| {
            let mut policy = tunnel(a, b, Some(7));
            change(&mut policy);
            policy
        };
        for policy in [
            with(|p| p.selector.proto = 6),
            with(|p| p.mark = sealane_net_ipsec::selector::Mark { value: 1, mask: 1 }),
            with(|p| p.action = Action::Block),
            with(|p| p.templates.clear()),
            with(|p| p.templates[0].mode = Mode::Transport),
            with(|p| (p.templates[0].src, p.templates[0].dst) = ([10, 1, 0, 1].into(), [10, 2, 0, 1].into())),
            tunnel(a, ANY, Some(7)),
            tunnel(a, b, Some(9)),
            tunnel(a, b, None),
        ] {
            assert_eq!(found(vec![policy]), []);
        }
    }

    #[test]
    fn of_many_policies_only_those_of_devices_are_rules() {
        let mut spd = Spd::new(1);
        for last in 0..=MAX_RULES as u16 {
            spd.add(policy(Dir::Out, last, Action::Block, None), false).expect("a policy");
        }
        spd.add(policy(Dir::Out, 9999, Action::Block, Some(7)), false).expect("a policy");
        let rules =
            wanted_rules(&spd, Vec::new(), &Targets::from([(7, Target::Tun(1, "x".into()))]), &BTreeSet::new()).output;
        let then: Vec<Then> = rules.list.iter().map(|(_, then)| *then).collect();
        assert_eq!(then, [Then::Protect(1), Then::Protect(0), Then::Protect(0)], "and one for each family");
        assert_eq!(rules.list[1].0.source.1, 0);
    }
}
