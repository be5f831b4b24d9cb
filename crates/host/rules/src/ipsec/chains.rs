//! A function for each chain: from what its rules depend on to its rules.

use super::refused::{Refused, refusing};
use super::wanted::{Rules, StateMark, Then, Wanted};
use crate::field::{self, Field};
use crate::late::{self, Late};
use crate::rule::{Rule, Step, Test};
use crate::value::Value;
use sealane_sys::marks::{Bits, Opened};

/// The rules' knowledge of this process and its kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Means {
    /// The name of the TUN device.
    pub(super) device: String,
    pub(super) bits: Bits,
    /// The user of our own sockets as rules see it, where they can tell.
    pub(super) user: Option<u32>,
    /// Whether policies that differ by their addresses have one rule, with a set.
    pub(super) sets: bool,
    /// Whether this kernel's rules support socket lookups and counters.
    pub(super) sockets: bool,
    pub(super) counts: bool,
    /// Whether they can answer with an ICMP error.
    pub(super) rejects: bool,
    /// The marks of opened packets that come in by the devices that they came by sealed, where there are such packets and rules
    /// can tell for whom a packet is before it is routed.
    pub(super) opened: Option<Opened>,
    /// The late way of packets, where there is one.
    pub(super) late: Option<Late>,
}

/// The part of all that is wanted on which the rules of a chain depend. The rest is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Inputs<'a> {
    pub(super) policies: Option<&'a Rules>,
    /// Those of what leaves, in a chain that has others of its own.
    outbound: Option<&'a Rules>,
    devices: &'a [String],
    interfaces: &'a [String],
    marks: &'a [StateMark],
    /// Whether the chain is one of the guard's.
    pub(super) guards: bool,
}

impl<'a> Inputs<'a> {
    pub(super) fn guarding(self) -> Self {
        Inputs { guards: true, ..self }
    }

    pub(super) fn rules(self, of: &'a Rules) -> Self {
        Inputs { policies: Some(of), ..self }
    }

    pub(super) fn outbound(self, of: &'a Rules) -> Self {
        Inputs { outbound: Some(of), ..self }
    }

    /// Those of packets and the xfrm interfaces.
    pub(super) fn devices(self, of: &'a Wanted) -> Self {
        self.packet_devices(of).interfaces(of)
    }

    pub(super) fn packet_devices(self, of: &'a Wanted) -> Self {
        Inputs { devices: &of.devices, ..self }
    }

    pub(super) fn interfaces(self, of: &'a Wanted) -> Self {
        Inputs { interfaces: &of.interfaces, ..self }
    }

    pub(super) fn marks(self, of: &'a Wanted) -> Self {
        Inputs { marks: &of.marks, ..self }
    }
}

/// The numbers of packets that the rules have dropped, in the order of [`Refused::ALL`].
pub(super) type Dropped = [u64; Refused::ALL.len()];

/// The chain of packets that may leave.
pub(super) const LEAVING: &str = "leaving";
/// That of packets behind routing that policies cover: other ways may be for them.
pub(super) const ESCAPING: &str = "escaping";
/// That of packets through this host that may come in, and that of those of IPv6 where opened ones come in by the devices that they came by.
pub(super) const ONWARD: &str = "onward";
pub(super) const FORWARD_V6: &str = "forward-v6";
/// Those among them that were opened, and those that have bits of ours behind routing.
pub(super) const WAS_OPENED: &str = "was-opened";
pub(super) const AS_IT_CAME: &str = "as-it-came";
/// Those of packets that come and were opened, before anything else is done with them.
pub(super) const OPENED: &str = "opened";
/// Those of packets of this host: our own ones, those that are to leave by the stack's device, those that policies protect by it, and all
/// others that they cover.
pub(super) const OUTPUT_OURS: &str = "output-ours";
pub(super) const OUTPUT_TO_DEVICE: &str = "output-to-device";
pub(super) const OUTPUT_LED: &str = "output-led";
pub(super) const OUTPUT_COVERED: &str = "output-covered";
/// Those of packets that come and that policies cover.
pub(super) const INPUT_COVERED: &str = "input-covered";
pub(super) const PREROUTING_LED: &str = "prerouting-led";
pub(super) const PREROUTING_COVERED: &str = "prerouting-covered";
pub(super) const ARRIVING_COVERED: &str = "arriving-covered";

/// The interface of a host to itself.
const LOOPBACK: u32 = 1;
/// The user whose programs may exempt sockets from policies.
const ROOT: u32 = 0;
/// ICMPv6 types of neighbour discovery (RFC 4861), and their hop limit.
const ND_FIRST: u8 = 133;
const ND_LAST: u8 = 137;
const ND_HOP_LIMIT: u8 = 255;
const IKE_PORTS: [u16; 2] = [500, 4500];
/// Type and code of the errors by which a host says that it does not know a protocol (RFC 792, RFC 4443).
const ICMP_UNKNOWN_PROTOCOL: [u8; 2] = [3, 2];
const ICMPV6_UNKNOWN_HEADER: [u8; 2] = [4, 1];
/// Of SYN, RST and ACK those that the first segment of a connection has.
const TCP_OPENING: (u8, u8) = (0x16, 0x02);

const TCP: u8 = libc::IPPROTO_TCP as u8;
const UDP: u8 = libc::IPPROTO_UDP as u8;
const ESP: u8 = libc::IPPROTO_ESP as u8;
const AH: u8 = libc::IPPROTO_AH as u8;
const ICMP: u8 = libc::IPPROTO_ICMP as u8;
const ICMPV6: u8 = libc::IPPROTO_ICMPV6 as u8;

impl Means {
    /// Those of root's daemon on a kernel that can do all that rules ask for.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn complete(device: &str, bits: Bits) -> Means {
        Means {
            device: device.to_owned(),
            bits,
            user: Some(ROOT),
            sets: true,
            sockets: true,
            counts: true,
            rejects: true,
            opened: None,
            late: None,
        }
    }

    /// Chooses the next best rules where the kernel does not know all that there were in the last ones. Returns whether there
    /// are any: rules that drop more or in silence, or do not count, are better than none.
    pub(super) fn do_without(&mut self) -> bool {
        if self.opened.take().is_some() {
            return true;
        }
        match (self.rejects, self.sockets, self.counts) {
            (true, ..) => self.rejects = false,
            (false, true, _) => (self.rejects, self.sockets) = (true, false),
            (false, false, true) => (self.rejects, self.counts) = (true, false),
            (false, false, false) => return false,
        }
        true
    }

    /// Packets of this host, on their way out.
    pub(super) fn output(&self, of: Inputs<'_>) -> Vec<Rule> {
        // Without a daemon nobody reads ESP, and the kernel would tell the peer that this host does not know it.
        let [quoted4, quoted6] = field::QUOTED_PROTOCOLS;
        let mut rules: Vec<Rule> = [(ICMP, ICMP_UNKNOWN_PROTOCOL, quoted4), (ICMPV6, ICMPV6_UNKNOWN_HEADER, quoted6)]
            .map(|(icmp, unknown, quoted)| {
                let rule = Rule::new().is(field::PROTOCOL, icmp).is(field::ICMP_TYPE_CODE, unknown);
                rule.tests(quoted, [Test::Ge(ESP.into()), Test::Le(AH.into())]).drop()
            })
            .into();
        rules.push(self.ours().jump(OUTPUT_OURS));
        rules.push(self.to_stack().instead_of_accept(OUTPUT_TO_DEVICE));
        rules.extend(self.sorted(of.policies, OUTPUT_LED, OUTPUT_COVERED));
        rules
    }

    /// Our own ones.
    pub(super) fn output_ours(&self, of: Inputs<'_>) -> Vec<Rule> {
        // A state's mark on packets that we send through it, except for the bits that select our devices.
        let devices = self.bits.protect | self.bits.device;
        let marked = |of: &StateMark| Rule::new().of_state(of).set_mark(0, of.mark & !devices).accept();
        let mut rules: Vec<Rule> = of.marks.iter().map(marked).collect();
        // If the route to the peer led through its own tunnel, packets would be encrypted endlessly.
        rules.extend(of.interfaces.iter().map(|name| Rule::new().is(field::OUT_NAME, Value::name(name)).drop()));
        rules.push(Rule::new().of_user(self.user).accept());
        rules
    }

    /// Those that are to leave by the stack's device.
    pub(super) fn output_to_device(&self, _: Inputs<'_>) -> Vec<Rule> {
        let mut rules = self.output_exempt();
        // Every user may bind a socket to a device. What no policy protects would leave as a packet of ours.
        let bound = Rule::new().other_than(field::USER, Value::host(ROOT));
        rules.extend([bound.jump(Refused::Escape.chain()), Rule::new().accept()]);
        rules
    }

    /// Those that policies protect by that device.
    pub(super) fn output_led(&self, of: Inputs<'_>) -> Vec<Rule> {
        let mut rules = self.output_uncovered(of);
        rules.push(self.lead_out(0));
        rules
    }

    /// All others that policies cover.
    pub(super) fn output_covered(&self, of: Inputs<'_>) -> Vec<Rule> {
        let mut rules = self.output_uncovered(of);
        rules.push(Rule::new().jump(LEAVING));
        rules
    }

    /// Those of them that policies are not for.
    fn output_uncovered(&self, of: Inputs<'_>) -> Vec<Rule> {
        let mut rules = vec![in_this_host()];
        rules.extend(self.output_exempt());
        rules.extend(of.devices.iter().map(|name| leaves_by(name)));
        if !self.sockets {
            rules.extend(ours_by_protocol());
        }
        rules.push(neighbour_discovery());
        rules.extend(ike_out());
        rules
    }

    /// Those of sockets of ours and of programs that are exempt.
    fn output_exempt(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        if self.sockets {
            // The mangle tables of others may have given them another mark.
            rules.push(self.exempt(Rule::new(), field::SOCKET_MARK).of_user(self.user).accept());
            rules.push(self.program(field::SOCKET_MARK, Bits::PROGRAM_OUT).of_user(Some(ROOT)).accept());
        }
        rules.push(self.program_out());
        rules
    }

    /// Packets that come from elsewhere, before anything else is done with them.
    pub(super) fn arrived(&self, _: Inputs<'_>) -> Vec<Rule> {
        let Some(opened) = self.opened else { return Vec::new() };
        vec![
            Rule::new().is(field::PRIORITY, Value::host(opened.priority)).set_priority(0),
            Rule::new().has_mark(!Opened::MARKED, opened.plain).jump(OPENED),
        ]
    }

    /// Opened ones get the mark that they have in Linux, and a priority by which they are known until they are routed, whatever becomes of
    /// the mark.
    pub(super) fn opened(&self, _: Inputs<'_>) -> Vec<Rule> {
        let Some(opened) = self.opened else { return Vec::new() };
        let plain = Rule::new().is(field::MARK, Value::host(opened.plain)).set_priority(opened.priority);
        let marked = Rule::new().set_priority(opened.priority).step(Step::SetMarkTo(field::LINK_MARK));
        vec![plain.set_mark(0, 0).accept(), marked.accept()]
    }

    /// Packets that come from elsewhere, right before they are routed. IPv4 forgets the priority of those that it forwards
    /// (`ip_forward`), so that they are judged here.
    pub(super) fn arriving(&self, of: Inputs<'_>) -> Vec<Rule> {
        let v4 = of.policies.map(|rules| rules.of_families(&[true]));
        self.sorted(v4.as_ref(), ARRIVING_COVERED, ARRIVING_COVERED)
    }

    /// Those of them that policies cover.
    pub(super) fn arriving_covered(&self, of: Inputs<'_>) -> Vec<Rule> {
        let mut rules = Vec::from_iter(self.was_opened());
        rules.extend(self.exempt_in());
        rules.extend(self.by_our_devices(of));
        rules.push(Rule::new().is(field::FAMILY, libc::NFPROTO_IPV6 as u8).accept());
        // Those that are not forwarded come to the rules of `input`, and copies of multicast packets are not judged, as in Linux.
        let stays = [libc::RTN_LOCAL, libc::RTN_BROADCAST, libc::RTN_ANYCAST, libc::RTN_MULTICAST];
        rules.extend(stays.map(|kind| Rule::new().is(field::DESTINATION_TYPE, Value::host(kind.into())).accept()));
        rules.extend(self.passing(of, &[true]));
        rules
    }

    /// Packets that come from elsewhere, before they are routed.
    pub(super) fn prerouting(&self, of: Inputs<'_>) -> Vec<Rule> {
        self.sorted(of.policies, PREROUTING_LED, PREROUTING_COVERED)
    }

    /// Those of them that policies protect by the stack's device.
    pub(super) fn prerouting_led(&self, _: Inputs<'_>) -> Vec<Rule> {
        let mut rules = Vec::from(self.exempt_in());
        rules.push(self.protect(0));
        rules
    }

    /// All others that policies cover.
    pub(super) fn prerouting_covered(&self, _: Inputs<'_>) -> Vec<Rule> {
        let mut rules = Vec::from(self.exempt_in());
        rules.push(Rule::new().jump(LEAVING));
        rules
    }

    /// Packets that may leave, by the policies.
    pub(super) fn leaving(&self, of: Inputs<'_>) -> Vec<Rule> {
        let block = Rule::new().jump(Refused::OutBlock.chain());
        let verdict = |then| match then {
            Then::Pass => Rule::new().accept(),
            Then::Protect(number) => self.lead_out(number),
            Then::Block => block.clone(),
        };
        // A fragment that leaves may belong to another policy's packet: the engine knows.
        let fragment = |then| if then == Then::Block { self.protect(0) } else { verdict(then) };
        let rest = Rule::new().jump(Refused::OutRest.chain());
        self.policies(of.policies, verdict, Some(&fragment), rest)
    }

    /// Packets for this host.
    pub(super) fn input(&self, of: Inputs<'_>) -> Vec<Rule> {
        let verdict = |then| if then == Then::Pass { Rule::new().accept() } else { Rule::new().jump(INPUT_COVERED) };
        // They are complete when they get to these rules, or useless without the first fragment.
        self.policies(of.policies, verdict, None, Rule::new().jump(INPUT_COVERED))
    }

    /// Those of them that policies cover.
    pub(super) fn input_covered(&self, of: Inputs<'_>) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self.by_our_devices(of).collect();
        rules.extend(self.was_opened());
        rules.extend(self.exempt_in());
        rules.extend([ESP, AH].map(|protocol| Rule::new().is(field::PROTOCOL, protocol).accept()));
        rules.push(neighbour_discovery());
        // An IKE daemon creates the policies, so none applies to its own messages.
        rules.extend(
            IKE_PORTS.map(|port| Rule::new().is(field::PROTOCOL, UDP).is(field::DESTINATION_PORT, port).accept()),
        );
        let verdict = refusing(|why| why.input());
        rules.extend(self.policies(of.policies, verdict, None, Rule::new().jump(Refused::Rest.input())));
        rules
    }

    /// Packets through this host: those that may come in may go on.
    pub(super) fn forward(&self, of: Inputs<'_>) -> Vec<Rule> {
        let mut rules = Vec::new();
        if self.opened.is_some() {
            if !of.guards {
                // What a policy covers in IPv4 was opened, or would have been dropped by `arriving`.
                let verdict = |then| Rule::new().jump(if then == Then::Pass { ONWARD } else { WAS_OPENED });
                let list = of.policies.map(|rules| rules.of_families(&[true]));
                let v4 = Rule::new().is(field::FAMILY, libc::NFPROTO_IPV4 as u8);
                rules.extend(self.policies(list.as_ref(), verdict, Some(&verdict), v4.jump(WAS_OPENED)));
            }
            rules.push(Rule::new().is(field::FAMILY, libc::NFPROTO_IPV6 as u8).jump(FORWARD_V6));
        } else {
            rules.extend(self.may_come_in(of, &[true, false]));
        }
        rules.extend(self.goes_on(of.outbound, of.guards));
        rules
    }

    /// Those of IPv6, where packets of IPv4 are judged by `arriving`.
    pub(super) fn forward_v6(&self, of: Inputs<'_>) -> Vec<Rule> {
        let was_opened = self.was_opened().filter(|_| !of.guards).map(|rule| rule.instead_of_accept(WAS_OPENED));
        let mut rules = Vec::from_iter(was_opened);
        rules.extend(self.may_come_in(of, &[false]));
        rules
    }

    /// Packets through this host of these families that policies do not refuse.
    fn may_come_in(&self, of: Inputs<'_>, families: &[bool]) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self.by_our_devices(of).collect();
        rules.extend(self.was_opened().filter(|_| of.guards));
        rules.extend(self.passing(of, families));
        rules.into_iter().map(|rule| rule.instead_of_accept(ONWARD)).collect()
    }

    /// Packets through this host that were opened, before anything else is done with them. A rule of others may have a flowtable take over
    /// their flow, whose other direction would then leave by the device that an opened packet came by, in clear. Linux knows by the secpath
    /// that such a flow is none for a flowtable. Here the kernel, which asks for the way back with the packet's mark, finds none
    /// (`nft_flow_route`).
    pub(super) fn through_opened(&self, of: Inputs<'_>) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self.by_our_devices(of).collect();
        // What is to be sealed again has no way back by that device either.
        rules.push(self.led().accept());
        rules.push(Rule::new().set_mark(!self.bits.nowhere(), self.bits.nowhere()).accept());
        rules.into_iter().map(|rule| rule.instead_of_accept(ONWARD)).collect()
    }

    /// Packets that have bits of ours behind routing, before source NAT. What [`Means::through_opened`] has given them is for nobody behind
    /// it, and they go on as they came.
    pub(super) fn as_it_came(&self, _: Inputs<'_>) -> Vec<Rule> {
        let Some(opened) = self.opened else { return Vec::new() };
        vec![
            // It would choose a class of a queue.
            Rule::new().is(field::PRIORITY, Value::host(opened.priority)).set_priority(0),
            self.led_through().jump(self.strayed_chain()),
            Rule::new().set_mark(!self.bits.nowhere(), 0),
        ]
    }

    /// Packets through this host that may come in.
    pub(super) fn onward(&self, of: Inputs<'_>) -> Vec<Rule> {
        let mut rules = self.goes_on(of.outbound, of.guards);
        rules.push(Rule::new().accept());
        rules
    }

    /// The same, by the policies of what leaves, before a rule of others may have a flowtable take over their flow.
    fn goes_on(&self, outbound: Option<&Rules>, guards: bool) -> Vec<Rule> {
        let (protected, mut rules) = match self.late {
            Some(late) => (late::LOOKED_AT, Vec::from_iter(late.judged(guards))),
            None => (ESCAPING, Vec::new()),
        };
        rules.push(self.led_through().jump(protected));
        rules.extend(self.sorted(outbound, protected, ESCAPING));
        rules
    }

    /// Packets behind routing, before source NAT. It may make something else of those that policies protect, or nothing.
    pub(super) fn before_nat(&self, of: Inputs<'_>) -> Vec<Rule> {
        let has_bits = if self.opened.is_some() && !of.guards { AS_IT_CAME } else { self.strayed_chain() };
        let mut rules = vec![self.led().jump(has_bits)];
        rules.extend(self.sorted(of.policies, self.strayed_chain(), ESCAPING));
        rules
    }

    /// The chain of those that policies protect and that are not on their way to the TUN device.
    fn strayed_chain(&self) -> &'static str {
        if self.late.is_some() { late::STRAYED } else { ESCAPING }
    }

    /// Packets that are about to leave.
    pub(super) fn depart(&self, of: Inputs<'_>) -> Vec<Rule> {
        let mut rules = vec![self.led().jump(ESCAPING)];
        rules.extend(self.sorted(of.policies, ESCAPING, ESCAPING));
        rules
    }

    /// Packets and later fragments, by the policies. One chain gets those that are protected by the stack's device, and another one all
    /// others that are not to pass.
    pub(super) fn sorted(&self, of: Option<&Rules>, led: &'static str, covered: &'static str) -> Vec<Rule> {
        let verdict = |then| match then {
            Then::Pass => Rule::new().accept(),
            Then::Protect(0) => Rule::new().jump(led),
            Then::Protect(_) | Then::Block => Rule::new().jump(covered),
        };
        self.policies(of, verdict, Some(&verdict), Rule::new().jump(covered))
    }

    /// Packets behind routing that policies protect or block, or that have been on their way to a TUN device.
    pub(super) fn escaping(&self, of: Inputs<'_>) -> Vec<Rule> {
        self.covered(of, Refused::Escape.chain())
    }

    /// The same, whose chain gets those that no other way is for.
    pub(super) fn covered(&self, of: Inputs<'_>, chain: &'static str) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self.by_other_ways(of).collect();
        rules.push(self.led().jump(chain));
        rules.extend(self.unjudged(of));
        rules.push(Rule::new().jump(chain));
        rules
    }

    /// Packets that were on their way to a TUN device. Policies that select marks do not match them any more.
    pub(super) fn led(&self) -> Rule {
        Rule::new().has_any(field::MARK, Value::host(self.bits.protect))
    }

    /// The same while packets go through this host: opened ones may have the same bits until [`Means::as_it_came`].
    pub(super) fn led_through(&self) -> Rule {
        let nowhere = Value::host(self.bits.nowhere());
        let other = Step::Is { field: field::MARK, mask: Some(nowhere), tests: vec![Test::Ne(nowhere)] };
        self.led().steps(self.opened.map(|_| other))
    }

    /// Packets that leave by our devices, where the engine checks them, stay in this host, are our own or those of a program that is exempt.
    pub(super) fn by_other_ways<'a>(&'a self, of: Inputs<'a>) -> impl Iterator<Item = Rule> + 'a {
        let others = of.devices.iter().chain(of.interfaces).map(|name| leaves_by(name));
        // Most of them leave by this one.
        core::iter::once(self.to_stack()).chain(self.exempt_out()).chain([self.program_out()]).chain(others)
    }

    /// Packets that leave by the TUN device of the stack's path.
    pub(super) fn to_stack(&self) -> Rule {
        leaves_by(&self.device)
    }

    /// Packets behind routing that policies are not for.
    pub(super) fn unjudged(&self, of: Inputs<'_>) -> Vec<Rule> {
        // Ours, where others have overwritten its mark.
        let mut rules = Vec::from(ours_by_protocol());
        // ESP in UDP whose mark we have replaced by that of its state.
        rules.extend(of.marks.iter().map(|of| Rule::new().of_user(Some(ROOT)).of_state(of).accept()));
        rules.push(neighbour_discovery());
        rules.extend(ike_out());
        rules
    }

    /// Packets that a chain jumps here with are counted and dropped.
    pub(super) fn refused(&self, dropped: u64) -> Vec<Rule> {
        vec![Rule::new().steps(self.counts.then_some(Step::Count(dropped))).drop()]
    }

    /// Packets that a policy keeps from leaving. A packet that is dropped on its way out of this host fails the call that
    /// sends it with EPERM, as in Linux, but the one that begins a TCP connection: that would be sent again and again.
    pub(super) fn kept_from_leaving(&self, dropped: u64) -> Vec<Rule> {
        // The engine drops and counts what is forwarded. Linux does not tell its sender either.
        let forwarded = Rule::new().other_than(field::IN, Value::host(0));
        let mut rules = vec![forwarded.steps(self.protect(0).steps)];
        rules.extend(self.counts.then(|| Rule::new().step(Step::Count(dropped))));
        if self.rejects {
            let opening = Rule::new().is(field::PROTOCOL, TCP).has(field::TCP_FLAGS, TCP_OPENING.0, TCP_OPENING.1);
            rules.push(opening.step(Step::Reject));
        }
        rules.push(Rule::new().drop());
        rules
    }

    /// Packets to this host that a policy refuses, unless they are for a socket that no policy is for.
    pub(super) fn refused_here(&self, why: Refused) -> Vec<Rule> {
        let mut rules = Vec::new();
        if self.sockets {
            let ours = Rule::new().is(field::PROTOCOL, UDP).is(field::SOCKET_MARK, Value::host(self.bits.exempt));
            rules.push(ours.accept());
            rules.push(self.program(field::SOCKET_MARK, Bits::PROGRAM_IN).accept());
        }
        // IPv6 fragments are reassembled after this hook. Later fragments are useless without the first one, which
        // is checked.
        rules.push(Rule::new().is(field::FAMILY, libc::NFPROTO_IPV6 as u8).of_fragment_behind(true).accept());
        rules.push(Rule::new().jump(why.chain()));
        rules
    }

    /// The first rules of packets that leave: they stay in this host, or are our own.
    fn exempt_out(&self) -> [Rule; 2] {
        [
            in_this_host(),
            // One that leaves has a socket.
            self.ours().of_user(self.user).accept(),
        ]
    }

    /// The first rules of packets that come: from this host, or from our own devices.
    fn exempt_in(&self) -> [Rule; 2] {
        [
            Rule::new().is(field::IN, Value::host(LOOPBACK)).accept(),
            // Nobody can set the mark of a packet that comes from elsewhere.
            self.ours().accept(),
        ]
    }

    /// Packets of programs' sockets that no policy covers.
    fn program_out(&self) -> Rule {
        self.program(field::MARK, Bits::PROGRAM_OUT).of_user(Some(ROOT)).accept()
    }

    /// The policies for packets through this host, of these families: whether each is IPv4.
    fn passing(&self, of: Inputs<'_>, families: &[bool]) -> Vec<Rule> {
        let verdict = refusing(Refused::chain);
        let rules = of.policies.map(|rules| rules.of_families(families));
        self.policies(rules.as_ref(), &verdict, Some(&verdict), Rule::new().jump(Refused::Rest.chain()))
    }

    /// Packets from our devices have passed their policies.
    fn by_our_devices<'a>(&'a self, of: Inputs<'a>) -> impl Iterator<Item = Rule> + 'a {
        let names = self.tun_devices(of.devices).chain(of.interfaces);
        names.map(|name| Rule::new().is(field::IN_NAME, Value::name(name)).accept())
    }

    /// Opened packets that came in by the devices that they came by sealed have passed their policies.
    fn was_opened(&self) -> Option<Rule> {
        self.opened.map(|of| Rule::new().is(field::PRIORITY, Value::host(of.priority)).accept())
    }

    /// The names of our TUN devices.
    fn tun_devices<'a>(&'a self, others: &'a [String]) -> impl Iterator<Item = &'a String> {
        core::iter::once(&self.device).chain(others)
    }

    /// Leads packets of this host to the TUN device with a number.
    fn lead_out(&self, number: u8) -> Rule {
        if number == 0 && self.late.is_some() { Rule::new().jump(late::LED) } else { self.protect(number) }
    }

    /// Leads packets to the TUN device with a number.
    pub(super) fn protect(&self, number: u8) -> Rule {
        // A mark set by a program must not lead to another device.
        Rule::new().set_mark(!self.bits.device, self.bits.to_device(number)).accept()
    }

    /// Goes on for packets with our own mark.
    fn ours(&self) -> Rule {
        self.exempt(Rule::new(), field::MARK)
    }

    /// Goes on where a mark is that of a socket of ours.
    fn exempt(&self, rule: Rule, mark: &'static Field) -> Rule {
        rule.has(mark, Value::host(!3), Value::host(self.bits.exempt))
    }

    /// Goes on where a mark is that of a program's socket that is exempt in a direction.
    fn program(&self, mark: &'static Field, direction: u32) -> Rule {
        let either = Bits::PROGRAM_IN | Bits::PROGRAM_OUT;
        Rule::new().has(mark, Value::host(!either | direction), Value::host(self.bits.programs | direction))
    }
}

/// Packets that leave by a device of ours.
fn leaves_by(name: &str) -> Rule {
    Rule::new().is(field::OUT_NAME, Value::name(name)).accept()
}

/// Packets that stay in this host.
fn in_this_host() -> Rule {
    Rule::new().is(field::OUT, Value::host(LOOPBACK)).accept()
}

/// Encrypted packets of our own.
fn ours_by_protocol() -> [Rule; 2] {
    [ESP, AH].map(|protocol| Rule::new().is(field::PROTOCOL, protocol).of_user(Some(ROOT)).accept())
}

/// Neighbour discovery works on the link, whatever the policies say about hosts; messages from the TUN device would be
/// useless for it.
pub(super) fn neighbour_discovery() -> Rule {
    let rule = Rule::new().is(field::PROTOCOL, ICMPV6);
    let rule = rule.tests(field::ICMP_TYPE, [Test::Ge(ND_FIRST.into()), Test::Le(ND_LAST.into())]);
    // No router has forwarded it, and none is going to.
    rule.is(field::V6_HOP_LIMIT, ND_HOP_LIMIT).accept()
}

/// Messages of the IKE daemon, which creates the policies: none applies to them.
fn ike_out() -> [Rule; 2] {
    IKE_PORTS.map(|port| Rule::new().is(field::PROTOCOL, UDP).of_user(Some(ROOT)).is(field::SOURCE_PORT, port).accept())
}
