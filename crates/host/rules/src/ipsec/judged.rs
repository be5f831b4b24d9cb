//! Tests that evaluate the rules.

use super::chains::{Dropped, Means};
use super::examples::{OPENED, between, means, means_with_late, means_with_opened, picture, rules, to_port};
use super::wanted::{Match, Rules, StateMark, Then, Wanted};
use crate::eval::{Device, Packet, Verdict, at};
use crate::field::SOCKET_MARK;
use crate::late::Devices;
use crate::rule::Step;
use crate::table::{Owned, Point, Table};
use sealane_sys::marks::Bits;
use std::net::IpAddr;

const TCP: u8 = libc::IPPROTO_TCP as u8;
const UDP: u8 = libc::IPPROTO_UDP as u8;
const ESP: u8 = libc::IPPROTO_ESP as u8;
const AH: u8 = libc::IPPROTO_AH as u8;
const ICMPV6: u8 = libc::IPPROTO_ICMPV6 as u8;

/// The bits of a mark that lead to a TUN device: the mark of a packet that did not leave by a policy has none.
const PROTECT: u32 = 0x2000_0000;

const HERE: &str = "198.51.100.1";
const THERE: &str = "192.0.2.7";
const HERE6: &str = "2001:db8:1::1";
const THERE6: &str = "2001:db8:2::7";

const ETH: Device = Device { index: 2, name: "eth0", kind: "" };
const TUN: Device = Device { index: 9, name: "sealane-ipsec", kind: "tun" };
const LO: Device = Device { index: 1, name: "lo", kind: "" };

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A packet of this host's root that leaves by eth0, with ports where its protocol has them.
fn out(to: &str, proto: u8, ports: [u16; 2]) -> Packet {
    let from = if to.contains(':') { HERE6 } else { HERE };
    Packet { to: ETH, user: Some(0), ..Packet::new(address(from), address(to), proto, &payload(proto, ports)) }
}

/// A packet that has come by eth0.
fn inward(from: &str, proto: u8, ports: [u16; 2]) -> Packet {
    let to = if from.contains(':') { HERE6 } else { HERE };
    Packet { from: ETH, ..Packet::new(address(from), address(to), proto, &payload(proto, ports)) }
}

/// Twenty bytes with ports; TCP's have SYN.
fn payload(proto: u8, [from, to]: [u16; 2]) -> Vec<u8> {
    let mut payload = [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0; 16]].concat();
    if proto == TCP {
        (payload[12], payload[13]) = (0x50, 2);
    }
    payload
}

/// The table for these policies.
fn table(wanted: &Wanted) -> Table {
    means().table(Owned::Persists, wanted, Dropped::default(), &Devices::default())
}

/// The verdict at a hook, the chain that said so, and the mark that the packet has then.
fn judge(table: &Table, point: Point, mut packet: Packet) -> (Verdict, String, u32) {
    let (verdict, chain) = at(&[table], point, &mut packet);
    (verdict, chain.unwrap_or_default().to_owned(), packet.mark)
}

fn accepted(table: &Table, point: Point, packet: Packet) -> (bool, u32) {
    let (verdict, _, mark) = judge(table, point, packet);
    (verdict == Verdict::Accept, mark)
}

/// The chain that drops a packet at a hook, or nothing.
fn dropped(table: &Table, point: Point, packet: Packet) -> String {
    match judge(table, point, packet) {
        (Verdict::Drop, chain, _) => chain,
        _ => String::new(),
    }
}

#[test]
fn the_documentation_shows_the_rules() {
    let shown = table(&picture()).to_string();
    assert_eq!(shown, include_str!("picture.txt"), "ipsec/picture.txt has to be\n{shown}");
}

#[test]
fn what_a_policy_protects_is_led_to_its_device() {
    let [direct, offload] = [0, 3].map(|number| {
        let list = [(between("0.0.0.0/0", "192.0.2.0/24"), Then::Protect(number))];
        table(&Wanted { output: rules(&list), ..Wanted::default() })
    });
    let packet = out(THERE, UDP, [1, 2]);
    for (point, chain) in [(Point::Output, "output-led"), (Point::Prerouting, "prerouting-led")] {
        assert_eq!(judge(&direct, point, packet.clone()), (Verdict::Accept, chain.into(), PROTECT));
        assert_eq!(judge(&offload, point, packet.clone()).2, PROTECT | 3 << 26);
        // A mark stays, but for the bits that would choose a device.
        let marked = Packet { mark: 0x1c00_00ff, ..packet.clone() };
        assert_eq!(judge(&direct, point, marked).2, PROTECT | 0xff);
        assert_eq!(accepted(&direct, point, out("203.0.113.1", UDP, [1, 2])), (true, 0), "no policy");
    }
}

#[test]
fn what_is_not_protected_does_not_come_in() {
    let table = table(&picture());
    let packet = inward(THERE, UDP, [1, 2]);
    assert_eq!(dropped(&table, Point::Input, packet.clone()), "refused-template");
    assert_eq!(dropped(&table, Point::Forward, packet.clone()), "refused-template");
    let opened = Packet { from: TUN, ..packet };
    assert_eq!(accepted(&table, Point::Input, opened.clone()), (true, 0));
    assert_eq!(accepted(&table, Point::Forward, opened), (true, 0));
    for proto in [ESP, AH] {
        assert_eq!(accepted(&table, Point::Input, inward(THERE, proto, [0, 1])), (true, 0));
        assert_eq!(dropped(&table, Point::Forward, inward(THERE, proto, [0, 1])), "refused-template");
    }
    assert_eq!(accepted(&table, Point::Input, inward("203.0.113.1", UDP, [1, 2])), (true, 0), "no policy");
}

/// The bits of a mark with which no route leads to a device.
const NOWHERE: u32 = 0x3c00_0000;

/// The way in of a packet of these marks: the chain that drops it, or nothing, and the packet afterwards. `between` is what others make
/// of it between our first chain and our last one before it is routed.
fn arrives(table: &Table, mut packet: Packet, between: fn(&mut Packet)) -> (String, Packet) {
    let chain_of = |(verdict, chain): (Verdict, Option<&str>)| match verdict {
        Verdict::Drop => Some(chain.unwrap_or_default().to_owned()),
        _ => None,
    };
    for name in ["arrived", "prerouting", "arriving"] {
        if let Some(chain) = chain_of(table.judge(name, &mut packet)) {
            return (chain, packet);
        }
        if name == "arrived" {
            between(&mut packet);
        }
    }
    let is_local = packet.destination_type == libc::RTN_LOCAL;
    // As the kernel does (`ip_forward`), which chooses a priority by the type of service.
    if !is_local && packet.bytes[0] >> 4 == 4 {
        packet.priority = 0;
    }
    if is_local {
        let chain = chain_of(at(&[table], Point::Input, &mut packet)).unwrap_or_default();
        return (chain, packet);
    }
    let mark = packet.mark;
    for name in ["forward", "before-nat"] {
        if let Some(chain) = chain_of(table.judge(name, &mut packet)) {
            return (chain, packet);
        }
        // While others have it no flowtable finds a way back.
        let is_known = match packet.bytes[0] >> 4 {
            4 => packet.destination_type == libc::RTN_UNICAST,
            _ => packet.priority == OPENED.priority,
        };
        assert!(!is_known || name == "before-nat" || packet.mark == mark | NOWHERE, "{name}: {packet:?}");
    }
    assert_eq!(packet.mark, mark);
    (String::new(), packet)
}

#[test]
fn opened_packets_come_in_by_the_device_that_they_came_by_sealed() {
    let Wanted { input, forward, .. } = everything(Then::Protect(0));
    let wanted = Wanted { input, forward, ..Wanted::default() };
    let table = means_with_opened().table(Owned::Persists, &wanted, Dropped::default(), &Devices::default());
    let nothing = |_: &mut Packet| ();
    for from in [THERE, THERE6] {
        for kind in [libc::RTN_LOCAL, libc::RTN_UNICAST] {
            let clear = Packet { destination_type: kind, ..inward(from, UDP, [1, 2]) };
            assert_eq!(arrives(&table, clear.clone(), nothing).0, "refused-template", "{from}, {kind}");
            for (first, mark) in [(OPENED.plain, 0), (OPENED.marked(), 7), (OPENED.marked(), 0x8000_0001)] {
                let mut opened = Packet { mark: first, ..clear.clone() };
                opened.link[6..10].copy_from_slice(&u32::to_ne_bytes(mark));
                let (chain, after) = arrives(&table, opened.clone(), nothing);
                assert_eq!((&*chain, after.mark), ("", mark), "{from}, {kind}");
                // Whatever others make of its mark.
                let (chain, after) = arrives(&table, opened, |packet| packet.mark = 0x77);
                assert_eq!((&*chain, after.mark), ("", 0x77), "{from}, {kind}");
                assert!(kind == libc::RTN_LOCAL || after.priority == 0, "it would choose a class of a queue");
            }
            // A priority that somebody has found out, alone and as a mark, and a frame that has come from elsewhere.
            let mut framed = clear.clone();
            framed.link[6..10].copy_from_slice(&OPENED.marked().to_ne_bytes());
            for forged in [
                framed,
                Packet { priority: OPENED.priority, ..clear.clone() },
                Packet { mark: OPENED.priority, ..clear.clone() },
            ] {
                assert_eq!(arrives(&table, forged, nothing).0, "refused-template", "{from}, {kind}");
            }
            // Others take it for their own.
            let opened = Packet { mark: OPENED.plain, ..clear };
            assert_eq!(arrives(&table, opened, |packet| packet.priority = 3).0, "refused-template", "{from}, {kind}");
        }
    }
    // Copies of multicast packets are not judged on their way through this host, in Linux neither.
    let multicast = Packet { destination_type: libc::RTN_MULTICAST, ..inward(THERE, UDP, [1, 2]) };
    assert_eq!(arrives(&table, multicast, nothing).0, "");
}

/// Policies for everything in both families, each with this treatment.
fn everything(then: Then) -> Wanted {
    let all = rules(&[(between("0.0.0.0/0", "0.0.0.0/0"), then), (between("::/0", "::/0"), then)]);
    Wanted { input: all.clone(), output: all.clone(), forward: all, ..Wanted::default() }
}

#[test]
fn no_flowtable_takes_over_what_nobody_looks_at_again() {
    let through = |mark| Packet { mark, from: ETH, user: None, ..out(THERE, UDP, [1, 2]) };
    for means in [means(), means_with_opened()] {
        let nowhere = means.bits.nowhere();
        let tables = |output: Rules| {
            let wanted = Wanted { output, ..Wanted::default() };
            let table = means.table(Owned::Goes, &wanted, Dropped::default(), &Devices::default());
            [table, means.guard(&wanted, Dropped::default())]
        };
        for then in [Then::Protect(0), Then::Protect(2), Then::Block] {
            for table in tables(everything(then).output) {
                // Whatever others have made of the mark by which it was to go to the TUN device.
                for mark in [0, 9, PROTECT, nowhere] {
                    for point in [Point::Forward, Point::Postrouting] {
                        assert_eq!(dropped(&table, point, through(mark)), "refused-escape", "{then:?}, {mark:#x}");
                    }
                }
                assert_eq!(dropped(&table, Point::Forward, Packet { to: TUN, ..through(PROTECT) }), "");
            }
        }
        let opened = means.opened.is_some();
        for table in tables(Rules::default()) {
            assert_eq!(dropped(&table, Point::Forward, through(9)), "");
            assert_eq!(dropped(&table, Point::Forward, through(PROTECT)), "refused-escape");
            assert_eq!(dropped(&table, Point::Forward, through(nowhere)).is_empty(), opened);
            // Behind routing it has these bits no more.
            let clears = opened && table.owned != Owned::Nobody;
            let (verdict, _, mark) = judge(&table, Point::Postrouting, through(nowhere));
            let expected = if clears { (Verdict::Accept, 0) } else { (Verdict::Drop, nowhere) };
            assert_eq!((verdict, mark), expected);
        }
    }
}

#[test]
fn key_managers_neighbours_and_this_host_itself_are_exempt() {
    let table = table(&everything(Then::Protect(0)));
    let passes = |packet: &Packet| {
        let [output, postrouting] =
            [Point::Output, Point::Postrouting].map(|point| accepted(&table, point, packet.clone()));
        assert_eq!(output.0 && output.1 & PROTECT == 0, postrouting.0, "{packet:?}");
        postrouting.0
    };
    for (to, port) in [(THERE, 500), (THERE6, 4500)] {
        let ike = out(to, UDP, [port, 9]);
        assert!(passes(&ike));
        assert!(!passes(&Packet { user: Some(1000), ..ike.clone() }), "somebody else's");
        assert!(!passes(&out(to, UDP, [9, port])), "not from that port");
        assert!(!passes(&out(to, TCP, [port, 9])));
        assert_eq!(accepted(&table, Point::Input, inward(to, UDP, [9, port])), (true, 0));
        assert_eq!(dropped(&table, Point::Input, inward(to, UDP, [port, 9])), "refused-template");
        assert!(passes(&Packet { to: LO, user: None, ..out(to, TCP, [1, 2]) }));
        assert_eq!(accepted(&table, Point::Input, Packet { from: LO, ..inward(to, TCP, [1, 2]) }), (true, 0));
        assert_eq!(accepted(&table, Point::Prerouting, Packet { from: LO, ..inward(to, TCP, [1, 2]) }), (true, 0));
    }
    for (kind, hop_limit, passing) in
        [(132, 255, false), (133, 255, true), (137, 255, true), (138, 255, false), (135, 254, false)]
    {
        let mut packet = out(THERE6, ICMPV6, [kind << 8, 0]);
        packet.bytes[7] = hop_limit;
        assert_eq!(passes(&packet), passing, "type {kind}, hop limit {hop_limit}");
        let (from, to) = (ETH, Device::default());
        assert_eq!(accepted(&table, Point::Input, Packet { from, to, ..packet }).0, passing);
    }
}

#[test]
fn marks_exempt_for_their_users_only() {
    let table = table(&everything(Then::Protect(0)));
    let Bits { exempt, programs, .. } = means().bits;
    let [program_in, program_out] = [Bits::PROGRAM_IN, Bits::PROGRAM_OUT].map(|direction| programs | direction);
    // A mark, the user who has set it, and whether it is exempt.
    let rows = [
        (exempt, Some(0), true),
        (exempt | 3, Some(0), true),
        (exempt, Some(1000), false),
        (exempt, None, false),
        (exempt ^ 4, Some(0), false),
        (program_out, Some(0), true),
        (program_out | program_in, Some(0), true),
        (program_in, Some(0), false),
        (program_out, Some(1000), false),
        (0, Some(0), false),
    ];
    for (mark, user, passing) in rows {
        let packet = Packet { user, mark, ..out(THERE, UDP, [1, 2]) };
        let (_, left) = accepted(&table, Point::Output, packet.clone());
        assert_eq!(left & PROTECT == 0, passing, "{mark:#x} of {user:?}");
        assert_eq!(accepted(&table, Point::Postrouting, packet.clone()).0, passing, "{mark:#x} of {user:?}");
        // The mangle tables of others may have given it another mark: its socket still has ours.
        let socket = Packet { mark: 7, socket_mark: Some(mark), ..packet };
        assert_eq!(
            accepted(&table, Point::Output, socket).1 & PROTECT == 0,
            passing,
            "a socket's {mark:#x} of {user:?}"
        );
    }
    // Rules that cannot tell our user go by the mark alone.
    let blind = Means { user: None, ..means() }.table(
        Owned::Nobody,
        &everything(Then::Protect(0)),
        Dropped::default(),
        &Devices::default(),
    );
    let packet = Packet { user: Some(1000), mark: exempt, ..out(THERE, UDP, [1, 2]) };
    assert_eq!(accepted(&blind, Point::Output, packet), (true, exempt));
    // What is for a socket that is exempt.
    let for_socket =
        |socket_mark, proto| accepted(&table, Point::Input, Packet { socket_mark, ..inward(THERE, proto, [1, 2]) }).0;
    assert!(for_socket(Some(exempt), UDP) && !for_socket(Some(exempt), TCP), "ESP in UDP comes to our own");
    assert!(for_socket(Some(program_in), TCP) && !for_socket(Some(program_out), TCP));
    assert!(!for_socket(None, UDP) && !for_socket(Some(0), UDP));
    // Nobody else may send by our device what no policy covers.
    let bound = |user| judge(&table, Point::Output, Packet { to: TUN, user, ..out(THERE, UDP, [1, 2]) });
    assert_eq!(bound(Some(1000)), (Verdict::Drop, "refused-escape".into(), 0));
    assert_eq!(bound(Some(0)), (Verdict::Accept, "output-to-device".into(), 0));
}

#[test]
fn senders_are_told_of_what_is_blocked() {
    let table = table(&everything(Then::Block));
    assert_eq!(judge(&table, Point::Output, out(THERE, TCP, [1, 2])), (Verdict::Reject, "out-block".into(), 0));
    let mut answer = out(THERE, TCP, [1, 2]);
    answer.bytes[33] = 0x12;
    assert_eq!(dropped(&table, Point::Output, answer), "out-block", "not the first segment");
    assert_eq!(dropped(&table, Point::Output, out(THERE6, UDP, [1, 2])), "out-block");
    // The engine drops what is forwarded.
    let through = Packet { from: ETH, user: None, ..out(THERE, TCP, [1, 2]) };
    assert_eq!(judge(&table, Point::Prerouting, through), (Verdict::Accept, "out-block".into(), PROTECT));
    assert_eq!(dropped(&table, Point::Input, inward(THERE, UDP, [1, 2])), "refused-block");
    assert_eq!(dropped(&table, Point::Forward, inward(THERE, UDP, [1, 2])), "refused-block");
    assert_eq!(dropped(&table, Point::Postrouting, out(THERE, UDP, [1, 2])), "refused-escape");
    // By default.
    let rest = Rules { list: Vec::new(), block_rest: true };
    let wanted = Wanted { input: rest.clone(), output: rest.clone(), forward: rest, ..Wanted::default() };
    let table = self::table(&wanted);
    assert_eq!(dropped(&table, Point::Output, out(THERE, UDP, [1, 2])), "out-rest");
    assert_eq!(dropped(&table, Point::Input, inward(THERE, UDP, [1, 2])), "refused-rest");
    assert_eq!(dropped(&table, Point::Forward, inward(THERE, UDP, [1, 2])), "refused-rest");
    assert_eq!(dropped(&table, Point::Postrouting, out(THERE, UDP, [1, 2])), "refused-escape");
    // Rules that cannot answer drop.
    let silent =
        Means { rejects: false, ..means() }.table(Owned::Nobody, &wanted, Dropped::default(), &Devices::default());
    assert_eq!(dropped(&silent, Point::Output, out(THERE, TCP, [1, 2])), "out-rest");
}

/// A fragment behind the first: of IPv4, or of IPv6 with this number in its fragment header.
fn later(mut packet: Packet, next: u8) -> Packet {
    if packet.bytes[0] >> 4 == 4 {
        packet.bytes[6..8].copy_from_slice(&[0, 2]);
    } else {
        packet.bytes[6] = libc::IPPROTO_FRAGMENT as u8;
        packet.bytes.splice(40..40, [next, 0, 1, 0, 0, 0, 0, 9]);
    }
    packet
}

#[test]
fn later_fragments_go_where_their_packet_may_belong() {
    let v6 = Match { proto: TCP, dport: (23, u16::MAX), ..between("::/0", "2001:db8:2::/48") };
    let v4 = to_port(libc::IPPROTO_TCP, 23);
    for then in [Then::Protect(0), Then::Block] {
        let both = rules(&[(v4, then), (v6, then)]);
        let wanted = Wanted { output: both.clone(), input: both.clone(), forward: both, ..Wanted::default() };
        let table = table(&wanted);
        // The destination, the number in the fragment header, and whether it may be TCP.
        let rows = [
            (out(THERE, TCP, [1, 2]), 0, true),
            (out(THERE, UDP, [1, 2]), 0, false),
            (out("203.0.113.1", TCP, [1, 2]), 0, false),
            (out(THERE6, TCP, [1, 2]), TCP, true),
            (out(THERE6, TCP, [1, 2]), UDP, false),
            (out(THERE6, TCP, [1, 2]), libc::IPPROTO_DSTOPTS as u8, true),
            (out(THERE6, TCP, [1, 2]), libc::IPPROTO_ROUTING as u8, true),
            (out(THERE6, TCP, [1, 2]), 0, true),
            (out(THERE6, TCP, [1, 2]), AH, false),
            (out(HERE6, TCP, [1, 2]), TCP, false),
        ];
        for (packet, next, covered) in rows {
            let packet = later(packet, next);
            let case = format!("{then:?}, {next}, {covered}");
            assert_eq!(
                accepted(&table, Point::Output, packet.clone()),
                (true, if covered { PROTECT } else { 0 }),
                "{case}"
            );
            assert_eq!(accepted(&table, Point::Postrouting, packet.clone()).0, !covered, "{case}");
            assert_eq!(accepted(&table, Point::Forward, packet.clone()).0, !covered, "{case}");
            // They are useless without the first, which is checked.
            assert!(accepted(&table, Point::Input, packet).0, "{case}");
        }
    }
    // AH behind a fragment header has no protocol for rules.
    let list = rules(&[(Match { proto: AH, ..between("::/0", "::/0") }, Then::Protect(0))]);
    let table = table(&Wanted { output: list, ..Wanted::default() });
    for (next, covered) in [(AH, true), (ESP, false), (TCP, false), (0, true)] {
        let packet = later(out(THERE6, AH, [1, 2]), next);
        assert_eq!(accepted(&table, Point::Output, packet), (true, if covered { PROTECT } else { 0 }), "{next}");
    }
}

#[test]
fn what_leaves_by_another_way_is_dropped() {
    let destination = address(THERE);
    let mark = StateMark { destination, proto: UDP, spi: 0x101, mark: 5 };
    let wanted = Wanted {
        devices: vec!["sealane1".into()],
        interfaces: vec!["ipsec0".into()],
        marks: vec![mark],
        ..everything(Then::Protect(0))
    };
    let both = [table(&wanted), means().guard(&wanted, Dropped::default())];
    let mut esp_in_udp = out(THERE, UDP, [4501, 4500]);
    esp_in_udp.bytes[28..32].copy_from_slice(&mark.spi.to_be_bytes());
    let by = |name| Packet { to: Device { index: 8, name, kind: "" }, ..out(THERE, TCP, [1, 2]) };
    let rows = [
        (out(THERE, TCP, [1, 2]), false),
        (by("sealane-ipsec"), true),
        (by("sealane1"), true),
        (by("ipsec0"), true),
        (by("sealane"), false),
        (Packet { mark: PROTECT, ..out("203.0.113.1", TCP, [1, 2]) }, false),
        (out(THERE, ESP, [1, 2]), true),
        (out(THERE, AH, [1, 2]), true),
        (Packet { user: Some(1000), ..out(THERE, ESP, [1, 2]) }, false),
        (Packet { user: None, from: ETH, ..out(THERE, ESP, [1, 2]) }, false),
        (esp_in_udp.clone(), true),
        (Packet { user: Some(1000), ..esp_in_udp.clone() }, false),
    ];
    for (packet, passes) in rows {
        for table in &both {
            for chain in ["onward", "before-nat", "backstop"] {
                let judged = table.judge(chain, &mut packet.clone());
                let expected = if passes { (Verdict::Accept, "escaping") } else { (Verdict::Drop, "refused-escape") };
                assert_eq!((judged.0, judged.1.expect("a rule")), expected, "{}: {packet:?}", table.name);
            }
        }
    }
    // Our own packets of the state get its mark, without the bits that choose a device.
    let ours = Packet { mark: means().bits.exempt, ..esp_in_udp };
    assert_eq!(judge(&both[0], Point::Output, ours.clone()), (Verdict::Accept, "output-ours".into(), 5));
    let wide = Wanted { marks: vec![StateMark { mark: 0xffff_ffff, ..mark }], ..Wanted::default() };
    assert_eq!(judge(&table(&wide), Point::Output, ours).2, 0xc3ff_ffff);
    // They must not enter an xfrm interface again.
    let again = Packet { mark: means().bits.exempt, ..by("ipsec0") };
    assert_eq!(dropped(&both[0], Point::Output, again), "output-ours");
}

#[test]
fn nobody_is_told_of_unknown_protocols() {
    let table = table(&Wanted::default());
    for (to, icmp, error, at) in [(THERE, 1, [3, 2], 9), (THERE6, ICMPV6, [4, 1], 6)] {
        for (quoted, told) in [(ESP, false), (AH, false), (AH + 1, true), (ESP - 1, true)] {
            let mut message = [0; 48];
            message[..2].copy_from_slice(&error);
            message[8 + at] = quoted;
            let from = if at == 9 { HERE } else { HERE6 };
            let packet = Packet { to: ETH, ..Packet::new(address(from), address(to), icmp, &message) };
            assert_eq!(accepted(&table, Point::Output, packet).0, told, "{quoted}");
        }
    }
}

#[test]
fn keys_of_gre_are_where_the_flags_say() {
    const GRE: u8 = libc::IPPROTO_GRE as u8;
    let key = |sport: u16, dport: u16| Match {
        proto: GRE,
        sport: (sport, u16::MAX),
        dport: (dport, u16::MAX),
        ..between("0.0.0.0/0", "0.0.0.0/0")
    };
    let covers = |of: Match, header: &[u8]| {
        let table = table(&Wanted { output: rules(&[(of, Then::Protect(0))]), ..Wanted::default() });
        let packet = Packet { to: ETH, ..Packet::new(address(HERE), address(THERE), GRE, header) };
        accepted(&table, Point::Output, packet).1 & PROTECT != 0
    };
    let plain = [0x20, 0, 8, 0, 0, 1, 0, 2, 0, 0, 0, 0];
    let summed = [0xa0, 0, 8, 0, 9, 9, 0, 0, 0, 1, 0, 2];
    let routed = [0x60, 0, 8, 0, 0, 1, 0, 2, 0, 0, 0, 0];
    let pptp = [0x20, 1, 0x88, 0x0b, 0, 4, 0, 2, 0, 0, 0, 0];
    assert_eq!([&plain, &summed, &routed, &pptp].map(|header| covers(key(1, 2), header)), [true, true, false, false]);
    assert_eq!([&plain, &summed, &routed, &pptp].map(|header| covers(key(0, 2), header)), [false, false, false, true]);
    assert!(!covers(key(1, 2), &plain[..6]), "cut short");
}

/// Random policies and packets: the first policy that has a packet by its plain definition decides.
#[test]
fn the_first_policy_that_matches_decides() {
    let mut state = 7u64;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let (mut seen, mut sets) = ([0; 4], 0);
    for _ in 0..600 {
        let mut list = Vec::new();
        for _ in 0..random(6) {
            let v6 = random(2) == 0;
            let prefix = |n: u64, len: u64| match v6 {
                true => (IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n as u16]), [0, 96, 126, 128][len as usize]),
                false => (IpAddr::from([10, 0, 0, n as u8]), [0, 8, 30, 32][len as usize]),
            };
            let port = |n: u64, mask: u64| (n as u16, [0, 0xffff, 0xfffc][mask as usize]);
            let (source, destination) = (prefix(random(8), random(4)), prefix(random(8), random(4)));
            let proto = [0, TCP, UDP][random(3) as usize];
            let ports = |p: (u16, u16)| if proto == 0 { (0, 0) } else { (p.0 & p.1, p.1) };
            let (sport, dport) = (ports(port(random(8), random(3))), ports(port(random(8), random(3))));
            let mark = [(0, 0), (1, 3)][random(2) as usize];
            let of = Match { source, destination, proto, sport, dport, mark };
            assert!(of.is_exact());
            let then = [Then::Pass, Then::Protect(random(8) as u8), Then::Block][random(3) as usize];
            // Half of them differ from the one before by their addresses only.
            let before = list.last().filter(|(last, _): &&(Match, Then)| last.source.0.is_ipv6() == v6);
            list.push(match before {
                Some((last, then)) if random(2) == 0 => (Match { source, destination, ..*last }, *then),
                _ => (of, then),
            });
        }
        let block_rest = random(4) == 0;
        let table = table(&Wanted { output: Rules { list: list.clone(), block_rest }, ..Wanted::default() });
        sets += table.chains.iter().flat_map(|chain| &chain.rules).filter(|rule| rule.pairs().is_some()).count();
        for _ in 0..20 {
            let v6 = random(2) == 0;
            let end = |n: u64| match v6 {
                true => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n as u16]),
                false => IpAddr::from([10, 0, 0, n as u8]),
            };
            let (from, to) = (end(random(8)), end(random(8)));
            let (proto, ports) = ([TCP, UDP][random(2) as usize], [random(8) as u16, random(8) as u16]);
            let mark = random(4) as u32;
            let is_in = |(address, bits): (IpAddr, u8), of: IpAddr| match (address, of) {
                (IpAddr::V4(net), IpAddr::V4(of)) => (net.to_bits() ^ of.to_bits()).leading_zeros() >= u32::from(bits),
                (IpAddr::V6(net), IpAddr::V6(of)) => (net.to_bits() ^ of.to_bits()).leading_zeros() >= u32::from(bits),
                _ => false,
            };
            let has = |of: &Match| {
                is_in(of.source, from)
                    && is_in(of.destination, to)
                    && (of.proto == 0 || of.proto == proto)
                    && ports[0] & of.sport.1 == of.sport.0
                    && ports[1] & of.dport.1 == of.dport.0
                    && mark & of.mark.1 == of.mark.0
            };
            let packet = Packet { to: ETH, mark, ..Packet::new(from, to, proto, &payload(proto, ports)) };
            let first = list.iter().find(|(of, _)| has(of)).map(|(_, then)| *then);
            let lost = if proto == TCP { Verdict::Reject } else { Verdict::Drop };
            let (which, expected) = match first {
                Some(Then::Pass) => (0, (Verdict::Accept, mark)),
                Some(Then::Protect(number)) => (1, (Verdict::Accept, mark | means().bits.to_device(number))),
                Some(Then::Block) => (2, (lost, mark)),
                None if block_rest => (2, (lost, mark)),
                None => (3, (Verdict::Accept, mark)),
            };
            seen[which] += 1;
            let (verdict, _, mark) = judge(&table, Point::Output, packet.clone());
            assert_eq!((verdict, mark), expected, "{packet:?} by {list:?}");
            // What is left to pass may leave, and nothing else.
            let plain = first == Some(Then::Pass) || first.is_none() && !block_rest;
            assert_eq!(accepted(&table, Point::Postrouting, packet).0, plain);
        }
    }
    assert!(seen.iter().all(|times| *times > 100) && sets > 100, "{seen:?}, {sets} sets");
}

/// A change of anything on which a chain does not depend leaves its rules as they are.
#[test]
fn every_chain_that_differs_is_written() {
    let mark = StateMark { destination: address(THERE), proto: ESP, spi: 1, mark: 1 };
    let all = [
        Wanted::default(),
        picture(),
        everything(Then::Block),
        Wanted { devices: vec!["x".into()], ..picture() },
        Wanted { interfaces: vec!["y".into()], ..picture() },
        Wanted { marks: vec![mark], ..picture() },
    ];
    for means in [means(), means_with_late()] {
        let mut written = 0;
        for (before, after) in all.iter().flat_map(|before| all.iter().map(move |after| (before, after))) {
            let changed: Vec<_> = means.changed(before, after).collect();
            let [before, after] = [before, after]
                .map(|wanted| means.table(Owned::Persists, wanted, Dropped::default(), &Devices::default()));
            let differ = after.chains.iter().zip(&before.chains).filter(|(after, before)| after != before);
            assert_eq!(changed.iter().collect::<Vec<_>>(), differ.map(|(after, _)| after).collect::<Vec<_>>());
            written += changed.len();
        }
        assert!(written > 60, "{written}");
    }
}

#[test]
fn the_guard_judges_right_after_the_table() {
    let wanted =
        Wanted { devices: vec!["sealane1".into()], interfaces: vec!["ipsec0".into()], ..everything(Then::Protect(0)) };
    let (table, guard) = (table(&wanted), means().guard(&wanted, Dropped::default()));
    let based = |table: &Table| table.chains.iter().filter(|chain| chain.hook.is_some()).cloned().collect::<Vec<_>>();
    let names: Vec<String> = based(&guard).iter().map(|chain| chain.name.to_string()).collect();
    assert_eq!(names, ["before-nat", "backstop", "input", "forward"]);
    for chain in &guard.chains {
        let one = table.chains.iter().find(|one| one.name == chain.name).expect("the table has it");
        assert_eq!(chain.rules, one.rules, "{}", chain.name);
        let later = one.hook.clone().map(|mut hook| {
            hook.priority += 1;
            hook
        });
        assert_eq!(chain.hook, later, "{}", chain.name);
    }
    assert!(guard.owned == Owned::Nobody && guard.chains.iter().all(|chain| chain.name != "leaving"));
}

#[test]
fn kernels_without_sockets_or_counters_in_rules() {
    let wanted = everything(Then::Protect(0));
    let steps = |means: &Means| {
        let table = means.table(Owned::Persists, &wanted, Dropped::default(), &Devices::default());
        table.chains.into_iter().flat_map(|chain| chain.rules).flat_map(|rule| rule.steps).collect::<Vec<_>>()
    };
    let asks =
        |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Is { field, .. } if *field == SOCKET_MARK));
    let counts = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Count(_)));
    let all = steps(&means());
    assert!(asks(&all) && counts(&all));
    let (bare, silent) = (Means { sockets: false, ..means() }, Means { counts: false, ..means() });
    assert!(!asks(&steps(&bare)) && counts(&steps(&bare)));
    assert!(asks(&steps(&silent)) && !counts(&steps(&silent)));
    // Where the mark of ours may have been overwritten, root's ESP passes by what it is.
    let table = bare.table(Owned::Persists, &wanted, Dropped::default(), &Devices::default());
    for proto in [ESP, AH] {
        assert_eq!(accepted(&table, Point::Output, out(THERE, proto, [1, 2])), (true, 0));
        let users = Packet { user: Some(1000), ..out(THERE, proto, [1, 2]) };
        assert_eq!(accepted(&table, Point::Output, users), (true, PROTECT), "led to our device");
    }
}
