//! Tests that evaluate the rules of the late way.

use super::super::chains::{Dropped, Means};
use super::super::examples::{between, means, means_with_late, means_with_opened, picture, rules};
use super::super::wanted::{Match, Then, Wanted};
use crate::eval::{Device, Packet, Verdict, at};
use crate::late::{Devices, EXAMPLE};
use crate::table::{Owned, Point, Table};
use std::net::IpAddr;

const UDP: u8 = libc::IPPROTO_UDP as u8;
const ESP: u8 = libc::IPPROTO_ESP as u8;
/// The bit of a mark that leads to a TUN device.
const PROTECT: u32 = 0x2000_0000;

const ETH: Device = Device { index: 2, name: "eth0", kind: "" };
const HERE: &str = "198.51.100.1";
const INSIDE: &str = "10.0.0.5";
const THERE: &str = "192.0.2.7";

/// The end of a packet's way out.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It leaves in clear.
    Leaves,
    /// The daemon has it, from this device and with this mark.
    Sealed(u32, u32),
    /// The rules of a chain drop it.
    Dropped(String),
}

/// The tables of a daemon, perhaps without those that went with it.
struct Tables {
    inet: Vec<Table>,
    egress: Vec<Table>,
}

/// The devices of the example: eth0.
fn devices() -> Devices {
    Devices::default().next(&[(2, "eth0".to_owned())].into(), &[2].into())
}

impl Tables {
    fn new(means: &Means, owned: Owned, wanted: &Wanted) -> Tables {
        let mut inet = vec![means.table(owned, wanted, Dropped::default(), &devices())];
        if owned == Owned::Goes {
            inet.push(means.guard(wanted, Dropped::default()));
        }
        Tables { inet, egress: means.late_tables(owned, wanted, &devices()) }
    }

    /// Lets a packet leave, which others change before the last look.
    fn leave(&self, mut packet: Packet, nat: fn(&mut Packet)) -> Fate {
        for chain in ["before-nat", "backstop"] {
            for table in &self.inet {
                if let (Verdict::Drop, why) = table.judge(chain, &mut packet) {
                    return Fate::Dropped(why.unwrap_or_default().to_owned());
                }
            }
            if chain == "before-nat" {
                nat(&mut packet);
            }
        }
        self.egress(packet)
    }

    /// Lets it leave by its device, if there is nothing before.
    fn egress(&self, mut packet: Packet) -> Fate {
        let chain = format!("out{}", packet.to.index);
        for table in self.egress.iter().filter(|table| table.chains.iter().any(|there| *there.name == chain)) {
            match table.judge(&chain, &mut packet) {
                (Verdict::Accept, _) => {}
                (Verdict::Forward(device), _) => {
                    assert_eq!(device, EXAMPLE.device);
                    let number = |at: usize| u32::from_ne_bytes(*packet.link[at..].first_chunk().expect("four bytes"));
                    return Fate::Sealed(number(0), number(6));
                }
                (_, why) => return Fate::Dropped(why.unwrap_or_default().to_owned()),
            }
        }
        Fate::Leaves
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn packet(from: &str, to: &str) -> Packet {
    let ports = [&7u16.to_be_bytes()[..], &9u16.to_be_bytes(), &[0; 16]].concat();
    Packet { to: ETH, user: Some(1000), ..Packet::new(address(from), address(to), UDP, &ports) }
}

/// A policy for what goes from one address to a net.
fn from(source: &str, then: Then) -> Wanted {
    Wanted { output: rules(&[(between(source, "192.0.2.0/24"), then)]), ..Wanted::default() }
}

/// Source NAT, from INSIDE to HERE.
fn masquerade(packet: &mut Packet) {
    packet.bytes[12..16].copy_from_slice(&[198, 51, 100, 1]);
}

fn nothing(_: &mut Packet) {}

fn escape() -> Fate {
    Fate::Dropped("refused-escape".into())
}

#[test]
fn the_documentation_shows_the_rules() {
    let shown: Vec<String> =
        means_with_late().late_tables(Owned::Persists, &picture(), &devices()).iter().map(Table::to_string).collect();
    assert_eq!(
        shown.concat(),
        include_str!("../../late/picture.txt"),
        "late/picture.txt has to be\n{}",
        shown.concat()
    );
    let set = EXAMPLE.set(&devices()).to_string();
    assert_eq!(set, "set late { type iface_index . ifname; timeout 10s; elements = { 2 . \"eth0\" } }");
}

#[test]
fn no_flowtable_takes_over_what_nobody_looks_at_again() {
    for owned in [Owned::Persists, Owned::Goes] {
        let end = |then, to| {
            let tables = Tables::new(&means_with_late(), owned, &from("0.0.0.0/0", then));
            let mut packet =
                Packet { user: None, from: Device { index: 3, ..ETH }, to, mark: 9, ..packet(INSIDE, THERE) };
            let all: Vec<&Table> = tables.inet.iter().collect();
            let (verdict, chain) = at(&all, Point::Forward, &mut packet);
            (verdict, chain.unwrap_or_default().to_owned())
        };
        for (then, looked_at) in [(Then::Protect(0), true), (Then::Block, false), (Then::Protect(2), false)] {
            // One that has a chain, and one that cannot have any.
            let without = Device { index: 4, name: "ppp0", ..ETH };
            assert_eq!(end(then, ETH).0 == Verdict::Accept, looked_at, "{then:?}");
            assert_eq!(end(then, without), (Verdict::Drop, "refused-escape".to_owned()), "{then:?}");
        }
    }
}

#[test]
fn what_is_covered_only_then_is_sealed_as_it_leaves() {
    for owned in [Owned::Persists, Owned::Goes] {
        let of = |wanted: &Wanted| Tables::new(&means_with_late(), owned, wanted);
        let covered = of(&from("198.51.100.1/32", Then::Protect(0)));
        // Translated into a policy, own and forwarded; with a mark.
        let inside = Packet { mark: 5, ..packet(INSIDE, THERE) };
        assert_eq!(covered.leave(inside.clone(), masquerade), Fate::Sealed(2, 5));
        let forwarded = Packet { user: None, from: Device { index: 3, ..ETH }, ..inside.clone() };
        assert_eq!(covered.leave(forwarded, masquerade), Fate::Sealed(2, 5));
        assert_eq!(covered.leave(inside.clone(), nothing), Fate::Leaves);
        // By a bound socket, which was led to the TUN device in vain; past flushed routing rules; behind a mark of others.
        for mark in [PROTECT, PROTECT | 5, 0, 5] {
            let Fate::Sealed(2, left) = covered.leave(Packet { mark, ..packet(HERE, THERE) }, nothing) else {
                panic!("{mark:#x}")
            };
            assert_eq!(left & !PROTECT, mark & !PROTECT);
        }
        // By another device, or one of its name or of its index.
        for to in [(7, "eth1"), (7, "eth0"), (2, "eth1")] {
            let to = Device { index: to.0, name: to.1, kind: "" };
            assert_eq!(covered.leave(Packet { to, ..packet(HERE, THERE) }, nothing), escape());
        }
        // Out of a policy, whether it was led to the TUN device or not.
        let inner = of(&from("10.0.0.0/8", Then::Protect(0)));
        for mark in [PROTECT, 0] {
            assert_eq!(inner.leave(Packet { mark, ..packet(INSIDE, THERE) }, masquerade), escape());
            assert_eq!(inner.leave(Packet { mark, ..packet(INSIDE, THERE) }, nothing), Fate::Sealed(2, PROTECT));
        }
        assert_eq!(inner.leave(Packet { mark: PROTECT, ..packet(HERE, THERE) }, nothing), escape());
        // Whatever else is in its mark, also where all these bits mean something to packets through this host.
        for means in [means_with_late(), Means { late: Some(EXAMPLE), ..means_with_opened() }] {
            let inner = Tables::new(&means, owned, &from("10.0.0.0/8", Then::Protect(0)));
            for mark in [5, means.bits.device, means.bits.nowhere()] {
                assert_eq!(inner.leave(Packet { mark, ..packet(INSIDE, THERE) }, masquerade), escape(), "{mark:#x}");
            }
        }
        // Out of one into another.
        let both = of(&from("0.0.0.0/0", Then::Protect(0)));
        assert_eq!(both.leave(packet(INSIDE, THERE), masquerade), Fate::Sealed(2, PROTECT));
        // What no late way is for.
        for then in [Then::Block, Then::Protect(1)] {
            let other = of(&from("198.51.100.1/32", then));
            assert_eq!(other.leave(packet(INSIDE, THERE), masquerade), escape(), "{then:?}");
            assert_eq!(other.leave(packet(HERE, THERE), nothing), escape(), "{then:?}");
        }
        let mut rest = from("203.0.113.0/24", Then::Pass);
        rest.output.block_rest = true;
        assert_eq!(of(&rest).leave(packet(HERE, THERE), nothing), escape());
        // Nobody else's priority counts.
        let forged = Packet { priority: EXAMPLE.priority, ..packet(HERE, "203.0.113.1") };
        assert_eq!(covered.leave(forged, nothing), Fate::Leaves);
        let late_again = |packet: &mut Packet| packet.priority = EXAMPLE.priority;
        assert_eq!(covered.leave(packet(HERE, "203.0.113.1"), late_again), Fate::Leaves);
        // Packets of our own, and of programs that no policy covers.
        let exempt = means().bits.exempt;
        let ours = Packet { mark: exempt, user: Some(0), ..packet(HERE, THERE) };
        assert_eq!(covered.leave(ours, nothing), Fate::Leaves);
        let esp = Packet { user: Some(0), to: ETH, ..Packet::new(address(HERE), address(THERE), ESP, &[0; 20]) };
        assert_eq!(covered.leave(esp.clone(), nothing), Fate::Leaves);
        // One of somebody else that was led to the TUN device.
        assert_eq!(covered.leave(Packet { mark: PROTECT, ..esp }, nothing), escape());
    }
}

/// Whatever goes with the daemon, or is gone for a moment.
#[test]
fn without_a_part_of_the_way_nothing_leaves_in_clear() {
    let wanted = from("198.51.100.1/32", Then::Protect(0));
    let tables = || Tables::new(&means_with_late(), Owned::Goes, &wanted);
    let late = packet(INSIDE, THERE);
    // The tables that have an owner go with it.
    let mut left = tables();
    left.inet.remove(0);
    left.egress.remove(0);
    assert_eq!(left.leave(late.clone(), masquerade), escape());
    // A packet on its way between both looks.
    let mut left = tables();
    left.egress.remove(0);
    assert_eq!(left.leave(late.clone(), masquerade), Fate::Dropped("to-daemon".into()));
    // A flow of a flowtable.
    let mut flow = Packet { user: None, from: Device { index: 3, ..ETH }, ..late };
    masquerade(&mut flow);
    assert_eq!(left.egress(flow), Fate::Dropped("to-daemon".into()));
}

#[test]
fn flows_of_a_flowtable_are_judged_as_they_leave() {
    let flow = |from: &str, to: &str| Packet { user: None, mark: 7, ..packet(from, to) };
    let v6 = |to: &str| Packet { user: None, ..packet("2001:db8:1::1", to) };
    let mut wanted = from("198.51.100.1/32", Then::Protect(0));
    wanted.output.list.insert(0, (Match { dport: (23, u16::MAX), proto: UDP, ..wanted.output.list[0].0 }, Then::Block));
    wanted.output.list.push((between("::/0", "2001:db8:2::/48"), Then::Protect(0)));
    let tables = Tables::new(&means_with_late(), Owned::Persists, &wanted);
    assert_eq!(tables.egress(flow(HERE, THERE)), Fate::Sealed(2, 7));
    assert_eq!(tables.egress(v6("2001:db8:2::7")), Fate::Sealed(2, 0));
    assert_eq!(tables.egress(flow(INSIDE, THERE)), Fate::Leaves);
    assert_eq!(tables.egress(v6("2001:db8:3::7")), Fate::Leaves);
    let mut blocked = flow(HERE, THERE);
    blocked.bytes[22..24].copy_from_slice(&23u16.to_be_bytes());
    assert_eq!(tables.egress(blocked), Fate::Dropped("blocked".into()));
    // What has a socket has been judged, and what has no route is somebody else's.
    assert_eq!(tables.egress(packet(HERE, THERE)), Fate::Leaves);
    assert_eq!(tables.egress(Packet { is_routed: false, ..flow(HERE, THERE) }), Fate::Leaves);
}

#[test]
fn packets_of_this_host_may_be_of_bound_sockets() {
    let table = means_with_late().table(
        Owned::Persists,
        &from("198.51.100.1/32", Then::Protect(0)),
        Dropped::default(),
        &devices(),
    );
    let led = |mut packet: Packet, point: Point| {
        let (verdict, _) = at(&[&table], point, &mut packet);
        assert_eq!(verdict, Verdict::Accept);
        packet.mark
    };
    let perhaps_bound = means().bits.perhaps_bound();
    assert_eq!(led(packet(HERE, THERE), Point::Output), perhaps_bound);
    // A program's mark leads to no other device.
    let marked = Packet { mark: 0x1c00_0005, ..packet(HERE, THERE) };
    assert_eq!(led(marked, Point::Output), perhaps_bound | 5);
    assert_eq!(led(packet(INSIDE, THERE), Point::Output), 0);
    // No packet leaves late by these devices, and what is forwarded has none yet.
    for to in [Device { index: 7, name: "eth1", kind: "" }, Device::default()] {
        assert_eq!(led(Packet { to, ..packet(HERE, THERE) }, Point::Output), PROTECT);
    }
    let forwarded = Packet { from: ETH, to: Device::default(), user: None, ..packet(HERE, THERE) };
    assert_eq!(led(forwarded, Point::Prerouting), PROTECT);
    // It is sealed as it leaves, wherever the routes lead it.
    let tables = Tables::new(&means_with_late(), Owned::Persists, &from("198.51.100.1/32", Then::Protect(0)));
    let fate = tables.leave(Packet { mark: perhaps_bound | 5, ..packet(HERE, THERE) }, nothing);
    assert_eq!(fate, Fate::Sealed(2, perhaps_bound | 5));
}

#[test]
fn chains_stay_with_their_devices() {
    let there = |names: &[(u32, &str)]| names.iter().map(|(index, name)| (*index, (*name).to_owned())).collect();
    let both = Devices::default().next(&there(&[(2, "eth0"), (3, "eth1"), (4, "br0")]), &[2, 3, 9].into());
    assert_eq!(both, Devices { with_chain: there(&[(2, "eth0"), (3, "eth1")]), listed: [2, 3].into() });
    // One that has become a member of another one may have packets that wait for a neighbour's address.
    let one = both.next(&there(&[(2, "eth0"), (3, "eth1")]), &[2].into());
    assert_eq!(one, Devices { with_chain: both.with_chain.clone(), listed: [2].into() });
    assert_eq!(one.elements().len(), 1);
    let mut gone = both.clone();
    assert_eq!(gone.forget(|index| index == 3).collect::<Vec<_>>(), [3]);
    assert_eq!(gone, both.next(&there(&[(2, "eth0")]), &[2].into()));
    let renamed = both.next(&there(&[(2, "wan"), (3, "eth1")]), &[2, 3].into());
    assert_eq!(renamed.with_chain[&2], "wan");
}
