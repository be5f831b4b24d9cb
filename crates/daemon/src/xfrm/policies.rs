//! The rules that follow from policies.

use crate::transport::nft::ipsec::{Match, Rules, Then, Wanted};
use sealane_net::ipsec::spd::{Action, Dir, Policy, Spd};

/// How many policies of a direction get a rule each. Beyond that one rule takes all of a family, and the engine decides.
const MAX_RULES: usize = 1024;

/// What the rules have to say for these policies.
pub(super) fn wanted(spd: &Spd) -> Wanted {
    let rules = |dir| rules(spd, dir);
    Wanted { input: rules(Dir::In), output: rules(Dir::Out), forward: rules(Dir::Fwd) }
}

fn rules(spd: &Spd, dir: Dir) -> Rules {
    let mut policies = spd.ordered(dir);
    // Those of xfrm interfaces, which there are none of here.
    policies.retain(|p| p.if_id == 0);
    let block_rest = spd.default_action(dir) == Action::Block;
    if policies.len() > MAX_RULES {
        policies.retain(|p| then(p) == Then::Protect);
        let all = |v6: bool| {
            let any: std::net::IpAddr =
                if v6 { std::net::Ipv6Addr::UNSPECIFIED.into() } else { std::net::Ipv4Addr::UNSPECIFIED.into() };
            Match { source: (any, 0), destination: (any, 0), proto: 0, sport: (0, 0), dport: (0, 0), mark: (0, 0) }
        };
        // Inbound there is no second look.
        if dir == Dir::Out {
            return Rules { list: vec![(all(false), Then::Protect), (all(true), Then::Protect)], block_rest };
        }
    }
    let list = policies.into_iter().filter_map(|policy| {
        let (of, then) = (of(policy), then(policy));
        // A rule that lets more pass than its policy does must not be; one that protects more may.
        (then == Then::Protect || of.is_exact() && policy.selector.ifindex == 0).then_some((of, then))
    });
    Rules { list: list.collect(), block_rest }
}

fn then(policy: &Policy) -> Then {
    let required = match policy.dir {
        Dir::Out => !policy.templates.is_empty(),
        // What is optional may be missing.
        Dir::In | Dir::Fwd => policy.templates.iter().any(|t| !t.optional),
    };
    if policy.action == Action::Block || required { Then::Protect } else { Then::Pass }
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
