//! A function for each chain: from what its rules depend on to its rules.

use super::connections::{FLOWS, KNOWN, ends};
use super::peers::PEERS;
use crate::field::{self, Field};
use crate::key::V4_ANY_FRAGMENT;
use crate::rule::{QueueWay, Rule, Step, Test};
use crate::value::Value;
use sealane_sys::marks::Marks;
use sealane_sys::vrf;

/// Parameters of the rules.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The number of the first queue for outgoing packets.
    pub output_queue: u16,
    /// The number of the first queue for incoming packets of known connections.
    pub input_queue: u16,
    /// The number of the first queue for other segments that come from the addresses of peers. It is another one, because
    /// anybody may forge these addresses: a flood neither delays nor displaces the segments of connections whose ports it
    /// does not know.
    pub newcomers_queue: u16,
    /// The number of queues that follow one another for each of these. The kernel picks one by a hash of both addresses
    /// that is the same in both directions (`nfqueue_hash`).
    pub queues: u16,
    /// The marks of packets that we send or return to the stack.
    pub marks: Marks,
    /// The number of the queue for packets that anybody may send: TCP segments with option 29 that are not from a peer,
    /// and ICMP errors. It is none of the peers' queues, so that a flood neither delays nor displaces theirs. `None`:
    /// such segments are not queued, and the errors are in a queue of newcomers; it has to be so where a kernel with TCP-AO
    /// serves other programs.
    pub any_option: Option<u16>,
}

/// The rules' knowledge of this process and its kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    pub(super) options: Options,
    /// The user of our own sockets as rules see it, where they can tell.
    pub(super) user: Option<u32>,
    /// The way to a queue that this kernel has.
    pub(super) way: QueueWay,
    /// Whether another table drops what this one does not judge.
    pub(super) guarded: bool,
}

/// The bit of a packet's mark from the chains of the first table to those of the guard, which take it away again: the packet
/// has been judged.
pub(super) const JUDGED: u32 = 0x8000_0000;

const TCP: u8 = libc::IPPROTO_TCP as u8;

/// The families of packets, as netfilter numbers them.
const FAMILIES: [u8; 2] = [libc::NFPROTO_IPV4 as u8, libc::NFPROTO_IPV6 as u8];
/// The protocols of errors.
const ICMP: [u8; 2] = [libc::IPPROTO_ICMP as u8, libc::IPPROTO_ICMPV6 as u8];
/// Type and code of the errors about segments to a peer that RFC 5925, section 7.8, requires to be ignored: v4 type 3, codes 2
/// to 4; v6 type 1, codes 1 and 4, whatever the quoted packet carries.
const ERRORS: [&[[u8; 2]]; 2] = [&[[3, 2], [3, 3], [3, 4]], &[[1, 1], [1, 4]]];

impl Means {
    /// Packets of this host, on their way out.
    pub(super) fn output(&self) -> Vec<Rule> {
        let mut rules = Vec::from(self.ours_out());
        let queue = |family| of_peers(family, &field::DESTINATIONS, |rule| self.judge(rule, self.options.output_queue));
        rules.extend([0, 1].into_iter().flat_map(queue));
        rules
    }

    /// Packets for this host.
    pub(super) fn input(&self) -> Vec<Rule> {
        let mut rules = vec![self.ours_in()];
        rules.extend([0, 1].map(|family| {
            let rule = segments(family).in_set(ends(family), KNOWN[family].0);
            self.judge(rule, self.options.input_queue)
        }));
        for family in [0, 1] {
            rules.extend(of_peers(family, &field::SOURCES, |rule| self.judge(rule, self.options.newcomers_queue)));
            rules.extend(self.errors(family));
        }
        if let Some(strangers) = self.options.any_option {
            let signed = Rule::new().is(field::PROTOCOL, TCP).is(field::TCP_AO, 1u8);
            rules.push(self.queue(signed, strangers, 1));
        }
        rules
    }

    /// Packets of this host that the first table has not judged.
    pub(super) fn guard_output(&self) -> Vec<Rule> {
        let mut rules = Vec::from(self.ours_out());
        rules.push(judged());
        rules.extend([0, 1].into_iter().flat_map(|family| of_peers(family, &field::DESTINATIONS, Rule::drop)));
        rules
    }

    /// Packets for this host that the first table has not judged.
    pub(super) fn guard_input(&self) -> Vec<Rule> {
        let mut rules = vec![self.ours_in(), judged()];
        rules.extend([0, 1].into_iter().flat_map(|family| of_peers(family, &field::SOURCES, Rule::drop)));
        rules
    }

    /// Our own packets, and those that come here again.
    fn ours_out(&self) -> [Rule; 2] {
        [
            Rule::new().has_mark(!1, self.options.marks.signed()).of_user(self.user).accept(),
            // What leaves by a VRF passes this hook first for the VRF, and then for the device of it that it leaves by.
            Rule::new().is(field::OUT_KIND, Value::name(vrf::KIND)).accept(),
        ]
    }

    /// Packets that we have returned to the stack.
    fn ours_in(&self) -> Rule {
        Rule::new().is(field::MARK, Value::host(self.options.marks.verified())).accept()
    }

    /// Queues the ICMP errors about segments to a peer.
    fn errors(&self, family: usize) -> Vec<Rule> {
        let Options { newcomers_queue, queues, any_option, .. } = self.options;
        let (queue, total) = any_option.map_or((newcomers_queue, queues), |strangers| (strangers, 1));
        let mut rules = Vec::new();
        for error in ERRORS[family] {
            for set in PEERS[family].sets {
                let mut rule = Rule::new().is(field::FAMILY, FAMILIES[family]).is(field::PROTOCOL, ICMP[family]);
                rule = rule.is(field::ICMP_TYPE_CODE, *error);
                // In a quoted IPv6 packet TCP may be behind extension headers: whoever judges the error follows them.
                if family == 0 {
                    rule = rule.is(field::QUOTED_PROTOCOLS[0], TCP);
                }
                rules.push(self.queue(rule.in_set([field::QUOTED_DESTINATIONS[family]], set), queue, total));
            }
        }
        rules
    }

    /// Queues segments of peers. They come back from the queue with the mark that they have now.
    fn judge(&self, rule: Rule, first: u16) -> Rule {
        let rule = if self.guarded { rule.set_mark(u32::MAX, JUDGED) } else { rule };
        self.queue(rule, first, self.options.queues)
    }

    fn queue(&self, rule: Rule, first: u16, total: u16) -> Rule {
        rule.step(Step::Queue { first, total, way: self.way })
    }
}

/// Segments of TCP.
fn segments(family: usize) -> Rule {
    Rule::new().is(field::FAMILY, FAMILIES[family]).is(field::PROTOCOL, TCP)
}

/// A rule for the segments of each set of peers, by their address.
fn of_peers(family: usize, address: &[&'static Field; 2], then: impl Fn(Rule) -> Rule) -> [Rule; 2] {
    PEERS[family].sets.map(|set| then(segments(family).in_set([address[family]], set)))
}

/// A packet that the first table has judged passes the second, without the bit that says so.
fn judged() -> Rule {
    Rule::new().has_mark(JUDGED, JUDGED).set_mark(!JUDGED, 0).accept()
}

/// Segments at a device's ingress that its ring has seen. The conditions match those of the ring's filter
/// ([`sealane_packets::ring`]).
pub(super) fn seen(family: usize) -> Rule {
    let ether_type = [libc::ETH_P_IP, libc::ETH_P_IPV6][family] as u16;
    let mut rule = Rule::new().is(field::ETHER_TYPE, ether_type);
    if family == 0 {
        rule = rule.has(field::V4_FRAGMENT, V4_ANY_FRAGMENT, 0u16);
    }
    rule = rule.is([field::V4_PROTOCOL, field::V6_NEXT][family], TCP);
    // There are options, and the first is TCP-AO's. It is removed from segments that we return, so this rule lets them pass.
    rule = rule.tests(field::TCP_LENGTH, [Test::Ge(0x60u8.into())]).is(field::TCP_FIRST_OPTION, field::TCPOPT_AO);
    let mut key = vec![field::IN];
    key.extend(ends(family));
    rule.in_set(key, FLOWS[family].0).drop()
}
