//! The part of a gateway's packets that may go past the stack, worked out from policies and states.

use super::selection::{self, Rule};
use sealane_abi::socket::NAT_T;
use sealane_net_ipsec::sa::{Carrier, Mode, Proto, Sa, SaDir, SaState};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::spd::{Action, Dir, Policy, Spd};
use sealane_packets::xdp;
use std::collections::HashSet;
use std::net::IpAddr;

/// The contents of a gateway's tables.
pub(super) struct Plan {
    /// The rules by which the XDP program takes packets that are to be sealed.
    pub(super) taken: Vec<Rule>,
    /// The policies that opened packets are compared with.
    pub(super) leaving: OutboundPrefixes,
    /// Destination and SPI of the states whose packets the program takes.
    pub(super) states: HashSet<(IpAddr, u32)>,
}

/// Prefixes of outbound policies, as of one moment.
#[derive(Debug, Default)]
pub(super) struct OutboundPrefixes {
    /// The change count of the policies from which they were made.
    changes: u64,
    /// `None` where all packets are left to the stack.
    rules: Option<Vec<Rule>>,
}

impl OutboundPrefixes {
    /// Whether an outbound policy, or the default action, may be for packets between these addresses. They are left to the
    /// stack then, and so are all while the policies, which have changed `changes` times by now, are not these any more.
    pub(super) fn may_cover(&self, changes: u64, source: IpAddr, destination: IpAddr) -> bool {
        let known = self.rules.as_ref().filter(|_| changes == self.changes);
        known.is_none_or(|rules| rules.iter().any(|rule| rule.is_for(source, destination)))
    }
}

/// Works out the tables. `others` tells whether anything else than these policies is in force: rules of a former daemon, or
/// policies that are mirrored into the kernel. All packets are left to the stack then. `here` tells this host's addresses.
pub(super) fn plan(spd: &Spd, sad: &Sad, others: bool, here: impl Fn(IpAddr) -> bool) -> Plan {
    let blocks = |dir| spd.default_action(dir) == Action::Block;
    let few = spd.len() <= selection::MAX_POLICIES;
    // ESP in TCP, and in UDP from another port, has a socket of the stack's workers, and only they look at the time when what
    // waits in states of IP-TFS is to leave.
    let has_socket = |sa: &Sa| sa.encap.is_some_and(|e| e.by == Carrier::Tcp || e.sport != NAT_T);
    let is_of_workers = |sa: &Sa| (sa.mode == Mode::Iptfs || has_socket(sa)) && here(sa.src);
    // The rules that give ESP its mark see it in the stack only.
    let by_mark = |policy: &Policy| policy.dir != Dir::Out && policy.mark.mask != 0;
    let simple = few
        && !others
        && !blocks(Dir::Out)
        && !blocks(Dir::Fwd)
        && !sad.iter().any(|(_, sa)| is_of_workers(sa))
        && !spd.iter().any(|(_, policy)| by_mark(policy));
    let rules = simple.then(|| [selection::forward_rules(spd), selection::outbound_rules(spd)]);
    let taken = rules.iter().flatten().flatten().copied().collect();
    let leaving = OutboundPrefixes { changes: spd.changes(), rules: rules.map(|[_, leaving]| leaving) };
    let ours = sad.iter().filter(|(id, sa)| {
        sa.proto == Proto::Esp
            // What waits in states is the stack's.
            && sa.mode != Mode::Iptfs
            && sa.dir != Some(SaDir::Out)
            && sa.mark.mask == 0
            && sa.if_id == 0
            && sa.spi != 0
            && sad.state(*id) == SaState::Valid
            && sad.crypto_device(*id).is_none()
            && here(sa.dst)
            && !sa.dst.is_multicast()
    });
    let most = if simple { xdp::MAX_STATES as usize } else { 0 };
    Plan { taken, leaving, states: ours.map(|(_, sa)| (sa.dst, sa.spi)).take(most).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_net_ipsec::sa::{Encap, SaSpec};
    use sealane_net_ipsec::selector::{Mark, Selector};
    use sealane_net_ipsec::spd::Template;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The hub between two spokes, 10.1.0.0/16 behind 192.0.2.1 and 10.2.0.0/16 behind 192.0.2.2.
    struct Hub {
        spd: Spd,
        sad: Sad,
        others: bool,
    }

    impl Hub {
        const ADDRESS: &str = "192.0.2.9";

        fn new() -> Self {
            let mut hub = Hub { spd: Spd::new(1), sad: Sad::new(1), others: false };
            for (dir, from, to, outer) in [
                (Dir::Out, "10.1.0.0", "10.2.0.0", [Hub::ADDRESS, "192.0.2.2"]),
                (Dir::Fwd, "10.1.0.0", "10.2.0.0", ["192.0.2.1", Hub::ADDRESS]),
            ] {
                let mut policy = Policy::allow(dir, Selector::between((ip(from), 16), (ip(to), 16)));
                let [src, dst] = outer.map(ip);
                let (proto, mode) = (Proto::Esp, Mode::Tunnel);
                policy.templates.push(Template { src, dst, proto, mode, reqid: 1, spi: 0, optional: false });
                hub.spd.add(policy, false).unwrap();
            }
            hub.sad.add(Hub::inbound()).unwrap();
            hub
        }

        fn inbound() -> SaSpec {
            SaSpec::tunnel(9, ip("192.0.2.1"), ip(Hub::ADDRESS), crate::tests::transform())
        }

        fn plan(&self) -> Plan {
            plan(&self.spd, &self.sad, self.others, |address| address == ip(Hub::ADDRESS))
        }
    }

    #[test]
    fn opened_packets_without_a_policy_go_past_the_stack() {
        let hub = Hub::new();
        let plan = hub.plan();
        assert_eq!(plan.states, HashSet::from([(ip(Hub::ADDRESS), 9)]));
        assert_eq!(plan.taken.len(), 2);
        let covers = |changes| {
            [("10.1.0.5", "10.2.0.5"), ("10.2.0.5", "10.1.0.5"), ("10.1.0.5", "198.51.100.1")]
                .map(|(from, to)| plan.leaving.may_cover(changes, ip(from), ip(to)))
        };
        assert_eq!(covers(hub.spd.changes()), [true, false, false]);
        assert_eq!(covers(hub.spd.changes() + 1), [true; 3], "policies have changed since");
        assert!(OutboundPrefixes::default().may_cover(0, ip("10.1.0.5"), ip("10.2.0.5")), "before the first plan");
    }

    /// In each of these cases the stack has everything: nothing is known of what may leave, and that there are no rules says
    /// not that no policy covers a packet.
    #[test]
    fn everything_is_left_to_the_stack() {
        type Change = fn(&mut Hub);
        let cases: [(&str, Change); 8] = [
            ("setdefault out block", |hub| hub.spd.set_default(Dir::Out, Action::Block)),
            ("setdefault fwd block", |hub| hub.spd.set_default(Dir::Fwd, Action::Block)),
            ("others", |hub| hub.others = true),
            ("a state from another UDP port", |hub| {
                let encap = Some(Encap::udp(4501, 4500));
                let out = SaSpec::tunnel(10, ip(Hub::ADDRESS), ip("192.0.2.1"), crate::tests::transform());
                hub.sad.add(SaSpec { encap, ..out }).unwrap();
            }),
            ("a state in TCP", |hub| {
                let encap = Some(Encap::tcp(4500, 4500));
                let out = SaSpec::tunnel(10, ip(Hub::ADDRESS), ip("192.0.2.1"), crate::tests::transform());
                hub.sad.add(SaSpec { encap, ..out }).unwrap();
            }),
            ("a state of IP-TFS", |hub| {
                let out = SaSpec::tunnel(10, ip(Hub::ADDRESS), ip("192.0.2.1"), crate::tests::transform());
                hub.sad.add(SaSpec { mode: Mode::Iptfs, ..out }).unwrap();
            }),
            ("a policy by mark", |hub| {
                let nets = ["10.3.0.0", "10.4.0.0"].map(|net| (ip(net), 16));
                let policy = Policy::allow(Dir::In, Selector::between(nets[0], nets[1]));
                hub.spd.add(Policy { mark: Mark { value: 1, mask: 1 }, ..policy }, false).unwrap();
            }),
            ("too many policies", |hub| {
                for n in 0..selection::MAX_POLICIES {
                    let net = (ip(&format!("172.16.{}.{}", n / 256, n % 256)), 32);
                    hub.spd.add(Policy::allow(Dir::Out, Selector::between(net, net)), false).unwrap();
                }
            }),
        ];
        for (case, change) in cases {
            let mut hub = Hub::new();
            change(&mut hub);
            let plan = hub.plan();
            assert!(plan.taken.is_empty() && plan.states.is_empty(), "{case}");
            for (from, to) in [("10.1.0.5", "10.2.0.5"), ("10.2.0.5", "10.1.0.5"), ("fd00::1", "fd00::2")] {
                assert!(plan.leaving.may_cover(hub.spd.changes(), ip(from), ip(to)), "{case}: {from} {to}");
            }
        }
    }
}
