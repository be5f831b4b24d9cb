//! Tests that evaluate the rules.

use super::chains::{JUDGED, Means, Options};
use super::connections::{Connection, Flow};
use super::peers::{Peers, bits};
use super::tables::devices;
use crate::eval::{Device, Packet, Verdict, at};
use crate::rule::QueueWay;
use crate::table::{Owned, Point, Table};
use sealane_sys::marks::Marks;
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

const TCP: u8 = libc::IPPROTO_TCP as u8;
const UDP: u8 = libc::IPPROTO_UDP as u8;

const MARKS: Marks = Marks::new(0x5ea1_1a40);
/// TCP-AO's option with a MAC of 12 bytes.
const AO: [u8; 16] = [29, 16, 1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];

/// The queues of the documentation, and rules that others do not guard.
fn means() -> Means {
    let options =
        Options { output_queue: 1, input_queue: 2, newcomers_queue: 3, queues: 1, marks: MARKS, any_option: Some(4) };
    Means { options, user: Some(0), way: QueueWay::Native, guarded: false }
}

fn peers() -> [Peers; 2] {
    let mut peers = [Peers::new(0), Peers::new(1)];
    for (address, len) in [("192.0.2.1", 32), ("198.51.100.0", 24), ("2001:db8::1", 128), ("2001:db8:1::", 48)] {
        let (family, prefix) = bits(address.parse().expect("an address"), len);
        peers[family].add(prefix);
    }
    peers
}

fn known() -> HashSet<Connection> {
    let [v4, v6] = [("192.0.2.1:179", "203.0.113.1:1024"), ("[2001:db8::1]:179", "[2001:db8:9::1]:1024")]
        .map(|(remote, local)| [remote, local].map(|end| end.parse::<SocketAddr>().expect("an end")));
    [v4, v6].map(|[remote, local]| Connection { remote, local }).into()
}

fn table(means: Means) -> Table {
    means.table(Owned::Persists, &peers(), &known())
}

/// A TCP segment with options.
fn segment(from: &str, to: &str, options: &[u8]) -> Packet {
    let [from, to] = [from, to].map(|end| end.parse::<SocketAddr>().expect("an end"));
    let len = ((20 + options.len()) * 4) as u8;
    let tcp = [&from.port().to_be_bytes()[..], &to.port().to_be_bytes(), &[0; 8], &[len, 2], &[0; 6], options].concat();
    Packet::new(from.ip(), to.ip(), TCP, &tcp)
}

/// The number of the queue that a packet comes to at a hook, if any.
fn queue(table: &Table, point: Point, mut packet: Packet) -> Option<u16> {
    match at(&[table], point, &mut packet).0 {
        Verdict::Queue { first, total: 1 } => Some(first),
        Verdict::Accept => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_documentation_shows_the_rules() {
    let v4 = |prefixes: [(&str, u8); 2]| {
        let mut peers = [Peers::new(0), Peers::new(1)];
        for (address, len) in prefixes {
            peers[0].add(bits(address.parse().expect("an address"), len).1);
        }
        peers
    };
    let peers = v4([("192.0.2.1", 32), ("198.51.100.0", 24)]);
    let connection = known().into_iter().find(|connection| connection.remote.is_ipv4()).expect("one");
    let flow = Flow { device: 2, source: connection.remote, destination: connection.local };
    let first = means().table(Owned::Persists, &peers, &[connection].into());
    let second = devices(Owned::Persists, &[(2, "eth0".to_owned())].into(), &[flow].into());
    let shown = format!("{first}\n{second}");
    assert_eq!(shown, include_str!("picture.txt"), "ao/picture.txt has to be\n{shown}");
}

#[test]
fn each_segment_has_its_queue() {
    let table = table(means());
    let output = |to| {
        queue(&table, Point::Output, segment(if to < "[" { "203.0.113.1:5" } else { "[2001:db8:9::1]:5" }, to, &[]))
    };
    for to in ["192.0.2.1:9", "198.51.100.77:9", "[2001:db8::1]:9", "[2001:db8:1::5]:9"] {
        assert_eq!(output(to), Some(1), "{to}");
    }
    for to in ["192.0.2.2:9", "198.51.99.255:9", "198.51.101.0:9", "[2001:db8::2]:9", "[2001:db8:2::]:9"] {
        assert_eq!(output(to), None, "{to}");
    }
    let input = |from, to, options: &[u8]| queue(&table, Point::Input, segment(from, to, options));
    assert_eq!(input("192.0.2.1:179", "203.0.113.1:1024", &[]), Some(2), "known");
    assert_eq!(input("[2001:db8::1]:179", "[2001:db8:9::1]:1024", &AO), Some(2), "known");
    assert_eq!(input("192.0.2.1:179", "203.0.113.1:1025", &[]), Some(3), "another port");
    assert_eq!(input("198.51.100.1:179", "203.0.113.1:1024", &AO), Some(3));
    assert_eq!(input("[2001:db8:1::1]:179", "[2001:db8:9::1]:1024", &[]), Some(3));
    assert_eq!(input("192.0.2.9:179", "203.0.113.1:1024", &AO), Some(4), "a stranger");
    assert_eq!(input("192.0.2.9:179", "203.0.113.1:1024", &[1, 1, 29, 4, 0, 0, 0, 0]), Some(4), "behind others");
    assert_eq!(input("192.0.2.9:179", "203.0.113.1:1024", &[2, 4, 29, 4]), None, "in another option");
    assert_eq!(input("192.0.2.9:179", "203.0.113.1:1024", &[]), None);
    // The rules are about TCP.
    let [here, there] = ["203.0.113.1", "192.0.2.1"].map(|address| address.parse::<IpAddr>().expect("an address"));
    assert_eq!(queue(&table, Point::Output, Packet::new(here, there, UDP, &[0; 8])), None);
    // Where the kernel serves the option of others, nobody's segments but those of peers are queued.
    let options = Options { any_option: None, ..means().options };
    let table = self::table(Means { options, ..means() });
    assert_eq!(queue(&table, Point::Input, segment("192.0.2.9:179", "203.0.113.1:1024", &AO)), None);
}

#[test]
fn our_own_segments_pass() {
    let table = table(means());
    let out = segment("203.0.113.1:1024", "192.0.2.1:179", &[]);
    let ours = |mark, user| queue(&table, Point::Output, Packet { mark, user, ..out.clone() });
    assert_eq!((ours(MARKS.signed(), Some(0)), ours(MARKS.learn(), Some(0))), (None, None));
    assert_eq!((ours(MARKS.signed(), Some(1000)), ours(MARKS.signed(), None)), (Some(1), Some(1)));
    assert_eq!(ours(MARKS.verified(), Some(0)), Some(1));
    let inward = segment("192.0.2.1:179", "203.0.113.1:1024", &[]);
    let ours = |mark| queue(&table, Point::Input, Packet { mark, ..inward.clone() });
    assert_eq!((ours(MARKS.verified()), ours(MARKS.signed()), ours(0)), (None, Some(2), Some(2)));
    // It comes again, for a device of the VRF.
    let vrf = |kind| queue(&table, Point::Output, Packet { to: Device { index: 5, name: "red", kind }, ..out.clone() });
    assert_eq!((vrf("vrf"), vrf("veth"), vrf("")), (None, Some(1), Some(1)));
}

#[test]
fn errors_about_segments_to_peers_are_queued() {
    let strangers = table(means());
    let options = Options { any_option: None, queues: 3, ..means().options };
    let newcomers = table(Means { options, ..means() });
    // Type and code, the quoted protocol, the quoted destination, and whether the error is to be ignored.
    let rows = [
        (1, [3, 2], TCP, "192.0.2.1", true),
        (1, [3, 4], TCP, "198.51.100.9", true),
        (1, [3, 1], TCP, "192.0.2.1", false),
        (1, [11, 2], TCP, "192.0.2.1", false),
        (1, [3, 3], UDP, "192.0.2.1", false),
        (1, [3, 3], TCP, "192.0.2.2", false),
        (58, [1, 1], 0, "2001:db8::1", true),
        (58, [1, 4], TCP, "2001:db8:1::9", true),
        (58, [1, 3], TCP, "2001:db8::1", false),
        (58, [1, 4], TCP, "2001:db8::2", false),
    ];
    for (proto, error, quoted, destination, ignored) in rows {
        let destination = destination.parse::<IpAddr>().expect("an address");
        let here = if destination.is_ipv4() { "203.0.113.1" } else { "2001:db8:9::1" }.parse().expect("an address");
        let inner = Packet::new(here, destination, quoted, &[0; 8]);
        let message = [&error[..], &[0; 6], &inner.bytes].concat();
        let mut packet = Packet::new(destination, here, proto, &message);
        let judged = at(&[&newcomers], Point::Input, &mut packet.clone()).0;
        let expected = if ignored { Verdict::Queue { first: 3, total: 3 } } else { Verdict::Accept };
        assert_eq!(judged, expected, "{error:?} {destination}");
        let judged = at(&[&strangers], Point::Input, &mut packet).0;
        let expected = if ignored { Verdict::Queue { first: 4, total: 1 } } else { Verdict::Accept };
        assert_eq!(judged, expected, "{error:?} {destination}");
    }
}

#[test]
fn the_guard_drops_what_is_not_judged() {
    let means = Means { guarded: true, ..means() };
    let (first, guard) = (table(means), means.guard(&peers()));
    let rows = [
        (Point::Output, segment("203.0.113.1:1024", "192.0.2.1:179", &[])),
        (Point::Output, segment("[2001:db8:9::1]:5", "[2001:db8:1::1]:179", &[])),
        (Point::Input, segment("192.0.2.1:179", "203.0.113.1:1024", &[])),
        (Point::Input, segment("198.51.100.1:179", "203.0.113.1:1024", &[])),
    ];
    for (point, packet) in rows {
        let packet = Packet { mark: 5, ..packet };
        assert_eq!(at(&[&guard], point, &mut packet.clone()).0, Verdict::Drop, "its owner took the first table along");
        let mut queued = packet.clone();
        assert!(matches!(at(&[&first, &guard], point, &mut queued).0, Verdict::Queue { .. }));
        assert_eq!(queued.mark, JUDGED | 5);
        // It comes back from the queue behind the chain that queued it.
        assert_eq!(at(&[&guard], point, &mut queued).0, Verdict::Accept);
        assert_eq!(queued.mark, 5);
    }
    for (point, mark) in [(Point::Output, MARKS.signed()), (Point::Input, MARKS.verified())] {
        let [one, other] = ["203.0.113.1:1024", "192.0.2.1:179"];
        let (from, to) = if point == Point::Output { (one, other) } else { (other, one) };
        let mut packet = Packet { mark, user: Some(0), ..segment(from, to, &[]) };
        assert_eq!(at(&[&first, &guard], point, &mut packet).0, Verdict::Accept, "ours");
        assert_eq!(packet.mark, mark);
    }
    let mut other = segment("203.0.113.1:1024", "192.0.2.9:179", &[]);
    assert_eq!(at(&[&first, &guard], Point::Output, &mut other).0, Verdict::Accept);
}

#[test]
fn a_device_drops_what_its_ring_has() {
    let flow = |source: &str, destination: &str| {
        let [source, destination] = [source, destination].map(|end| end.parse().expect("an end"));
        Flow { device: 2, source, destination }
    };
    let of = [flow("192.0.2.1:179", "203.0.113.1:1024"), flow("[2001:db8::1]:179", "[2001:db8:9::1]:1024")];
    let names: BTreeMap<u32, String> = [(2, "eth0".to_owned()), (3, "eth1".to_owned())].into();
    let table = devices(Owned::Goes, &names, &of.into());
    let dropped = |index: u32, packet: Packet| {
        let from = Device { index, name: "eth", kind: "" };
        table.judge(if index == 2 { "in2" } else { "in3" }, &mut Packet { from, ..packet }).0 == Verdict::Drop
    };
    for (from, to) in [("192.0.2.1:179", "203.0.113.1:1024"), ("[2001:db8::1]:179", "[2001:db8:9::1]:1024")] {
        assert!(dropped(2, segment(from, to, &AO)));
        assert!(!dropped(3, segment(from, to, &AO)), "by another device");
        assert!(!dropped(2, segment(to, from, &AO)), "another flow");
        assert!(!dropped(2, segment(from, to, &[])), "without options");
        assert!(!dropped(2, segment(from, to, &[1, 1, 29, 4])), "behind others, where the ring does not look");
    }
    let mut fragment = segment("192.0.2.1:179", "203.0.113.1:1024", &AO);
    fragment.bytes[6] = 0x20;
    assert!(!dropped(2, fragment), "the first fragment");
}
