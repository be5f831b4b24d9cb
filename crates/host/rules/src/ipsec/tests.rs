//! Tests of the rules by their effect on packets, and of the parts that a change leaves alone. Those that write rules need
//! root.

use super::examples::{between, means, means_with_opened, rules};
use super::tables::TABLE;
use super::*;
use crate::ingress::IngressTable;
use crate::late::Late;
use crate::table::{Family, Owned, Table};
use crate::transaction::Transaction;
use crate::value::{Prefix, Value};
use sealane_packets::outgoing::{DEVICE, OutgoingDevice};
use sealane_packets::tun::FRAME_LEN;
use sealane_sys::marks::{Bits, Opened};
use sealane_sys::netlink::Socket;
use sealane_sys::netns::Netns;
use sealane_sys::{link, peer, testing};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Matches packets from `b` to a UDP port.
fn to_port(port: u16) -> Match {
    let [from, to] = [2, 1].map(|last| (IpAddr::from([10, 77, 0, last]), 32));
    let proto = libc::IPPROTO_UDP as u8;
    Match { source: from, destination: to, proto, sport: (0, 0), dport: (port, u16::MAX), mark: (0, 0) }
}

#[test]
fn only_chains_that_say_something_else_are_written() {
    let one = Wanted { input: rules(&[(to_port(1), Then::Block)]), ..Wanted::default() };
    let means = means();
    let differ = |that: &Wanted| means.changed(&one, that).map(|chain| chain.name).collect::<Vec<_>>();
    assert_eq!(differ(&one), [] as [&str; 0]);
    assert_eq!(differ(&Wanted::default()), ["input-covered", "input"]);
    assert_eq!(
        differ(&Wanted { output: one.input.clone(), ..one.clone() }),
        ["leaving", "output", "prerouting", "onward", "before-nat", "backstop", "forward"]
    );
    let more = Wanted { forward: Rules { block_rest: true, ..Rules::default() }, ..one.clone() };
    assert_eq!(differ(&more), ["forward"]);
    assert_eq!(
        differ(&Wanted { devices: vec!["x".into()], ..one.clone() }),
        ["output-led", "output-covered", "escaping", "input-covered", "forward"]
    );
    let destination = IpAddr::from([10, 77, 0, 2]);
    let mark = StateMark { destination, proto: libc::IPPROTO_ESP as u8, spi: 1, mark: 1 };
    assert_eq!(differ(&Wanted { marks: vec![mark], ..one.clone() }), ["output-ours", "escaping"]);
    let means = means_with_opened();
    let differ = |that: &Wanted| means.changed(&one, that).map(|chain| chain.name).collect::<Vec<_>>();
    assert_eq!(differ(&more), ["forward-v6", "arriving-covered", "arriving", "forward"]);
}

#[test]
fn what_the_kernel_tells_is_compared_with_what_was_written() {
    let Some(mut scene) = Scene::new("rules::ipsec::told") else { return };
    let [v4, v6] = ["10.0.0.0", "fd00::"].map(|address| address.parse::<IpAddr>().expect("an address"));
    let of = |any: IpAddr, proto: i32, dport| {
        let proto = proto as u8;
        Match { source: (any, 7), destination: (any, 8), proto, sport: (0, 0), dport, mark: (5, 0xf) }
    };
    let list = [
        (of(v4, libc::IPPROTO_TCP, (443, 0xfff0)), Then::Block),
        (of(v4, libc::IPPROTO_GRE, (7, u16::MAX)), Then::Protect(3)),
        (of(v6, libc::IPPROTO_AH, (0, 0)), Then::Block),
        (of(v6, libc::IPPROTO_ICMPV6, (1, u16::MAX)), Then::Protect(0)),
        (between("10.0.0.0/8", "10.1.0.0/16"), Then::Protect(0)),
        (between("0.0.0.0/0", "10.2.0.1/32"), Then::Protect(0)),
        (between("fd01::/64", "fd02::/64"), Then::Protect(0)),
        (between("fd01::/64", "::/0"), Then::Protect(0)),
        (between("fd03::1/128", "fd02::1/128"), Then::Protect(0)),
        (of(v6, 0, (0, 0)), Then::Pass),
    ];
    let all = Rules { block_rest: true, ..rules(&list) };
    let mark = StateMark { destination: v6, proto: libc::IPPROTO_UDP as u8, spi: 1, mark: 8 };
    let wanted = Wanted {
        input: all.clone(),
        output: all.clone(),
        forward: all,
        devices: vec!["packet0".into()],
        interfaces: vec!["ipsec0".into()],
        marks: vec![mark],
    };
    let unlike = |table: &mut PolicyTable, wanted: &Wanted| {
        table.unlike(wanted).expect("rules").into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(unlike(&mut scene.table, &Wanted::default()), "");
    assert_eq!(
        unlike(&mut scene.table, &wanted),
        "arriving arriving-covered backstop before-nat escaping forward forward-v6 input input-covered leaving onward output output-covered output-led output-ours prerouting was-opened"
    );
    scene.table.write(wanted.clone()).expect("rules");
    assert_eq!(unlike(&mut scene.table, &wanted), "");
    scene.table.settle().expect("sets");
    assert!(scene.sets() > 0);
    assert_eq!(unlike(&mut scene.table, &wanted), "");
    // The last rule, which is for IPv6, has one bit more, or is not there, or is the first.
    let last = |change: fn(&mut Vec<(Match, Then)>)| {
        let mut changed = wanted.clone();
        change(&mut changed.forward.list);
        changed
    };
    let end = list.len() - 1;
    assert_eq!((list[5].0.destination.1, end), (32, 9));
    let host = |list: &mut Vec<(Match, Then)>| list[5].0.destination.1 = 31;
    let mark = |list: &mut Vec<(Match, Then)>| list[9].0.mark.0 = 4;
    for changed in [last(mark), last(|list| list.truncate(9)), last(|list| list.rotate_right(1))] {
        assert_eq!(unlike(&mut scene.table, &changed), "forward-v6");
    }
    // What is forwarded in IPv4 is judged before it is routed.
    for changed in [last(|list| list[0].0.mark.0 = 4), last(host)] {
        assert_eq!(unlike(&mut scene.table, &changed), "arriving arriving-covered forward");
    }
    // Packets that are counted change nothing.
    scene.send(7001, 3);
    assert_eq!(unlike(&mut scene.table, &wanted), "");
    // Somebody else.
    let mut changes = Transaction::new();
    changes.empty(TABLE, "refused-block");
    changes.commit(&mut scene.table.socket).expect("rules");
    assert_eq!(unlike(&mut scene.table, &wanted), "refused-block");
}

/// A packet that a policy covers and nobody has led to a TUN device comes to that of the late way: by a chain of its interface, as long as
/// that is listed.
#[test]
fn what_leaves_by_a_listed_device_comes_to_ours() {
    const TEST: &str = "rules::ipsec::late";
    let Some((a, b)) = testing::pair(TEST) else { return };
    let bits = Bits::new(Bits::draw(), Bits::draw());
    let opened = a.run(|| {
        let device = OutgoingDevice::open()?;
        let late = Late::probe(bits, device.index(), DEVICE)?;
        Ok((device, PolicyTable::new("sealane-ipsec", bits, (None, Some(late)), None)?, link::index("a")?))
    });
    let (mut device, mut table, index) = match opened {
        Err(e) if testing::missing(TEST, &e) => return,
        done => done.expect("a device and a table"),
    };
    let covers = |port| rules(&[(Match { sport: (0, 0), ..to_port(port) }, Then::Protect(0))]);
    let reverse = |of: Rules| Rules {
        list: of
            .list
            .into_iter()
            .map(|(of, then)| (Match { source: of.destination, destination: of.source, ..of }, then))
            .collect(),
        ..of
    };
    let wanted = Wanted { output: reverse(covers(7003)), ..Wanted::default() };
    let list = |table: &mut PolicyTable, name: &str, suitable: &[u32], gone: bool| {
        let there = [(index, name.to_owned())].into();
        table.list(&there, &suitable.iter().copied().collect(), |of| gone && of == index).expect("chains");
    };
    list(&mut table, "a", &[index], false);
    table.write(wanted.clone()).expect("rules");
    let socket = a.run(|| UdpSocket::bind("10.77.0.1:0")).expect("a socket");
    let there = b.run(|| UdpSocket::bind("10.77.0.2:7003")).expect("a socket");
    there.set_nonblocking(true).expect("a socket");
    let mut comes = |table: &mut PolicyTable, sent: bool| {
        let done = socket.send_to(b"covered", "10.77.0.2:7003").is_ok();
        let mut buffer = vec![0; FRAME_LEN];
        let start = Instant::now();
        let found = loop {
            match device.read(&mut buffer).expect("a device") {
                Some((range, _, origin)) if buffer[range.clone()].ends_with(b"covered") => break Some(origin.device),
                None if !sent || start.elapsed() > PATIENCE => break None,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        assert!(there.recv(&mut buffer).is_err(), "in clear");
        assert_eq!((done, found), (sent, sent.then_some(index)));
        assert_eq!(table.unlike(&wanted).expect("rules").into_iter().collect::<Vec<_>>(), [] as [String; 0]);
    };
    comes(&mut table, true);
    // Not by one that is not listed, and by one with another name only once that is listed.
    list(&mut table, "a", &[], false);
    comes(&mut table, false);
    list(&mut table, "a", &[index], false);
    comes(&mut table, true);
    let rename = |to: &'static str| {
        a.run(|| {
            link::set_up(&link::name(index)?, false)?;
            link::rename(index, to)?;
            link::set_up(to, true)
        })
        .expect("another name");
    };
    rename("c");
    comes(&mut table, false);
    list(&mut table, "c", &[index], false);
    comes(&mut table, true);
    // One that has been away, whose chain may be lost or not.
    list(&mut table, "c", &[index], true);
    comes(&mut table, true);
    // Other policies, and everything written anew.
    table.write(Wanted::default()).expect("rules");
    assert_eq!(socket.send_to(b"in clear", "10.77.0.2:7003").ok(), Some(8));
    table.write(wanted.clone()).expect("rules");
    table.restore().expect("rules");
    let start = Instant::now();
    while there.recv(&mut [0; 8]).is_err() {
        assert!(start.elapsed() < PATIENCE, "what no policy covers comes");
        std::thread::sleep(Duration::from_millis(1));
    }
    comes(&mut table, true);
    table.delete().expect("an orderly end");
}

struct Scene {
    a: Netns,
    b: Netns,
    table: PolicyTable,
    /// Bound to port 7001.
    here: UdpSocket,
}

impl Scene {
    fn new(test: &str) -> Option<Self> {
        let (a, b) = testing::pair(test)?;
        let here = a.run(|| UdpSocket::bind("10.77.0.1:7001")).expect("a socket");
        here.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let bits = Bits::new(Bits::draw(), Bits::draw());
        let table = a.run(|| PolicyTable::new("sealane-ipsec", bits, (Some(Opened::draw()), None), None));
        let mut table = table.expect("a table");
        match table.write(Wanted::default()) {
            Err(e) if testing::missing(test, &e) => None,
            done => done.map(|_| Scene { a, b, table, here }).map_err(|e| panic!("{e}")).ok(),
        }
    }

    fn send(&self, port: u16, packets: u64) {
        let socket = self.b.run(|| UdpSocket::bind("10.77.0.2:0")).expect("a socket");
        (0..packets).for_each(|_| assert_eq!(socket.send_to(b"x", ("10.77.0.1", port)).expect("it leaves"), 1));
    }

    /// Waits until a blocking policy has dropped this many packets.
    fn dropped(&mut self, packets: u64) {
        let start = Instant::now();
        while self.table.dropped() != [0, packets, 0, 0, 0, 0] {
            assert!(start.elapsed() < PATIENCE, "{:?}, not {packets}", self.table.dropped());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The number of sets that the rules of the first table look into.
    fn sets(&self) -> usize {
        self.table.sets.iter().filter(|(table, _)| *table == TABLE).count()
    }

    /// A socket by which packets leave with headers of their own.
    fn raw(&self, family: rustix::net::AddressFamily) -> OwnedFd {
        use rustix::net::{Protocol, SocketType, socket};
        let raw = Protocol::from_raw(core::num::NonZero::new(255).expect("IPPROTO_RAW"));
        self.a.run(|| Ok(socket(family, SocketType::RAW, Some(raw))?)).expect("a raw socket")
    }

    /// Checks that packets pass.
    fn passes(&self) {
        self.send(7001, 1);
        self.here.recv(&mut [0; 8]).expect("it comes");
    }
}

/// The rules of workers come and go with traffic. They are in a table of the same name.
#[test]
fn only_changes_of_these_rules_are_noticed() {
    let Some(mut scene) = Scene::new("rules::ipsec::noticed") else { return };
    let mut watch = scene.a.run(|| scene.table.watch()).expect("a watch");
    let device = scene.a.run(|| link::index("a")).expect("a device");
    let mut ingress = scene.a.run(|| IngressTable::new(1, 0)).expect("a table");
    match ingress.add_device(device, "a") {
        Err(e) if testing::missing("rules::ipsec::noticed", &e) => return,
        done => done.expect("a device"),
    }
    ingress.remove_device(device).expect("no device");
    scene.table.write(Wanted { input: rules(&[(to_port(1), Then::Block)]), ..Wanted::default() }).expect("rules");
    assert!(!watch.changed());
    // By another socket, as others do it, to a table without an owner.
    scene.table.delete().expect("no rules");
    let mut other = scene.a.run(|| Socket::open(libc::NETLINK_NETFILTER)).expect("a socket");
    let mut changes = Transaction::new();
    let (family, name) = (Family::Inet, TABLE.name.into());
    changes.create(&Table { family, name, owned: Owned::Nobody, sets: Vec::new(), chains: Vec::new() });
    changes.commit(&mut other).expect("a table");
    assert!(watch.changed());
}

/// Without a daemon nobody reads ESP: the kernel would tell the peer so.
#[test]
fn nobody_is_told_that_esp_is_unknown() {
    use rustix::net::{AddressFamily, Protocol, SendFlags, SocketAddrV4, SocketAddrV6, SocketType, sendto, socket};
    let Some(mut scene) = Scene::new("rules::ipsec::esp") else { return };
    let raw = |family, number| {
        let protocol = Protocol::from_raw(core::num::NonZero::new(number).expect("a protocol"));
        scene.b.run(|| Ok(socket(family, SocketType::RAW, Some(protocol))?)).expect("a raw socket")
    };
    let icmp = [raw(AddressFamily::INET, 1), raw(AddressFamily::INET6, 58)];
    let send = |number: u32| {
        let v4 = SocketAddrV4::new([10, 77, 0, 1].into(), 0);
        sendto(raw(AddressFamily::INET, number), &[0; 24], SendFlags::empty(), &v4).expect("it leaves");
        let v6 = SocketAddrV6::new("fd77::1".parse().expect("an address"), 0, 0, 0);
        sendto(raw(AddressFamily::INET6, number), &[0; 24], SendFlags::empty(), &v6).expect("it leaves");
    };
    // The protocol of the packet that the next error about an unknown protocol quotes, of either family.
    let next = || {
        [(0, 20, [3, 2], 9), (1, 0, [4, 1], 6)].map(|(which, header, error, at): (usize, usize, [u8; 2], usize)| {
            loop {
                assert!(peer::readable(icmp[which].as_fd(), 20_000), "an error");
                let mut message = [0; 1500];
                let len = rustix::io::read(&icmp[which], &mut message).expect("a message");
                let message = &message[header..len];
                if message[..2] == error {
                    break message[8 + at];
                }
            }
        })
    };
    // Protocols for experiments (RFC 3692) come after those of IPsec.
    send(50);
    send(51);
    send(253);
    assert_eq!(next(), [253, 253]);
    scene.table.delete().expect("no rules");
    send(50);
    assert_eq!(next(), [50, 50]);
}

#[test]
fn what_is_counted_stays_when_rules_change() {
    let Some(mut scene) = Scene::new("rules::ipsec::counted") else { return };
    scene.passes();
    let block = Wanted { input: rules(&[(to_port(7002), Then::Block)]), ..Wanted::default() };
    scene.table.write(block.clone()).expect("rules");
    scene.passes();
    scene.send(7002, 3);
    scene.dropped(3);
    // Changes of other chains, and writing the same rules again, leave the counters alone.
    let [output, forward] = [Then::Protect(0), Then::Block].map(|then| rules(&[(to_port(9), then)]));
    let both = Wanted { output, forward, ..block.clone() };
    scene.table.write(both.clone()).expect("rules");
    scene.table.write(both.clone()).expect("rules");
    scene.send(7002, 2);
    scene.dropped(5);
    scene.table.write(Wanted { input: rules(&[(to_port(7001), Then::Block)]), ..both }).expect("rules");
    scene.send(7001, 1);
    scene.dropped(6);
    // Somebody has deleted the table.
    let mut changes = Transaction::new();
    changes.delete(TABLE);
    changes.commit(&mut scene.table.socket).expect("it is gone");
    scene.passes();
    scene.table.write(block.clone()).expect("rules");
    scene.send(7002, 1);
    scene.dropped(7);
    // On a kernel without table owners, everything is rewritten and the counters continue.
    scene.table.delete().expect("no rules");
    scene.passes();
    scene.table.owned = Owned::Nobody;
    for packets in [8, 9] {
        scene.table.write(block.clone()).expect("rules");
        scene.send(7002, 1);
        scene.dropped(packets);
    }
    scene.table.delete().expect("an orderly end");
}

/// A later fragment of IPv6 tells its protocol only if no other header follows the fragment header.
#[test]
fn later_fragments_of_any_protocol_are_covered() {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrV6, sendto};
    const UDP: u8 = libc::IPPROTO_UDP as u8;
    const TCP: u8 = libc::IPPROTO_TCP as u8;
    let Some(mut scene) = Scene::new("rules::ipsec::fragments") else { return };
    let [from, to] = [1, 2].map(|last| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last));
    let of = |proto: u8, port: u16| {
        let dport = (port, if port == 0 { 0 } else { u16::MAX });
        let (source, destination) = ((from.into(), 128), (to.into(), 128));
        Match { source, destination, proto, sport: (0, 0), dport, mark: (0, 0) }
    };
    let raw = scene.raw(AddressFamily::INET6);
    let send = |next: u8, offset_flags: [u8; 2]| {
        let upper = [&[UDP, 0, 1, 4, 0, 0, 0, 0][..], &[0, 9, 0, 7, 0, 16, 0, 0], &[0; 16]].concat();
        let rest = [&[next, 0, offset_flags[0], offset_flags[1], 0, 0, 0, 9][..], &upper].concat();
        let header = [&[0x60, 0, 0, 0, 0, rest.len() as u8, 44, 64][..], &from.octets(), &to.octets()].concat();
        // The sender may be told that a rule has dropped it.
        let _ = sendto(&raw, &[header, rest].concat(), SendFlags::empty(), &SocketAddrV6::new(to, 0, 0, 0));
    };
    let mut refused = 0;
    for (proto, port) in [(UDP, 7), (UDP, 0), (libc::IPPROTO_AH as u8, 0)] {
        let output = rules(&[(of(proto, port), Then::Protect(0))]);
        scene.table.write(Wanted { output, ..Wanted::default() }).expect("rules");
        // Destination options and then UDP in the first; the header that a later one's fragment header names.
        let (dstopts, ah) = (libc::IPPROTO_DSTOPTS as u8, libc::IPPROTO_AH as u8);
        let first = (dstopts, [0, 1], proto == UDP);
        let named = [(UDP, proto == UDP), (TCP, false), (58, false), (ah, proto == ah)];
        let nameless = [0, 43, 44, dstopts].map(|next| (next, true));
        let later = named.into_iter().chain(nameless).map(|(next, covered)| (next, [1, 0], covered));
        for (next, offset_flags, covered) in core::iter::once(first).chain(later) {
            send(next, offset_flags);
            refused += u64::from(covered);
            let case = format!("a policy for {proto}, port {port}: {next} at {offset_flags:?}");
            assert_eq!(scene.table.dropped(), [0, 0, 0, refused, 0, 0], "{case}");
        }
    }
    scene.table.delete().expect("an orderly end");
}

/// Neighbour discovery is for the link: what a router may have forwarded, or is to forward, goes by policies.
#[test]
fn neighbour_discovery_that_could_be_forwarded_is_covered() {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrV6, sendto};
    let Some(mut scene) = Scene::new("rules::ipsec::neighbours") else { return };
    let [from, to] = [1, 2].map(|last| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last));
    let (source, destination) = ((from.into(), 128), (to.into(), 128));
    let all = Match { source, destination, proto: 0, sport: (0, 0), dport: (0, 0), mark: (0, 0) };
    scene.table.write(Wanted { output: rules(&[(all, Then::Protect(0))]), ..Wanted::default() }).expect("rules");
    let raw = scene.raw(AddressFamily::INET6);
    let mut refused = 0;
    for (kind, hop_limit, covered) in
        [(133, 255, false), (137, 255, false), (135, 254, true), (136, 64, true), (132, 255, true), (138, 255, true)]
    {
        let header = [&[0x60, 0, 0, 0, 0, 8, 58, hop_limit][..], &from.octets(), &to.octets()].concat();
        let packet = [&header[..], &[kind, 0, 0, 0, 0, 0, 0, 0]].concat();
        let _ = sendto(&raw, &packet, SendFlags::empty(), &SocketAddrV6::new(to, 0, 0, 0));
        refused += u64::from(covered);
        assert_eq!(scene.table.dropped(), [0, 0, 0, refused, 0, 0], "type {kind}, hop limit {hop_limit}");
    }
    scene.table.delete().expect("an orderly end");
}

/// The sender of a blocked packet hears of it at once. Fragments that may be another policy's are led to the engine.
#[test]
fn senders_hear_of_what_is_blocked() {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrV4, sendto};
    let Some(mut scene) = Scene::new("rules::ipsec::blocked") else { return };
    let (here, there) = (Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2));
    let of = |proto: i32, port: u16| {
        let (source, destination) = ((here.into(), 32), (there.into(), 32));
        let dport = (port, if port == 0 { 0 } else { u16::MAX });
        Match { source, destination, proto: proto as u8, sport: (0, 0), dport, mark: (0, 0) }
    };
    let block = [of(libc::IPPROTO_UDP, 7), of(libc::IPPROTO_TCP, 0)].map(|of| (of, Then::Block));
    scene.table.write(Wanted { output: rules(&block), ..Wanted::default() }).expect("rules");
    let udp = scene.a.run(|| UdpSocket::bind((here, 0))).expect("a socket");
    let refused = |to: u16| udp.send_to(b"x", (there, to)).err().and_then(|e| e.raw_os_error());
    assert_eq!((refused(7), refused(8)), (Some(libc::EPERM), None));
    assert_eq!(scene.table.dropped()[4], 1);
    let connected = scene.a.run(|| std::net::TcpStream::connect_timeout(&(there, 9).into(), PATIENCE));
    assert_eq!(connected.err().and_then(|e| e.raw_os_error()), Some(libc::EHOSTUNREACH));
    // A later fragment has no ports. No route leads it to the engine here, so that it may not leave.
    let raw = scene.raw(AddressFamily::INET);
    let before = scene.table.dropped();
    let header = [&[0x45, 0, 0, 28, 0, 9, 0, 1, 64, 17, 0, 0][..], &here.octets(), &there.octets()].concat();
    let _ = sendto(&raw, &[header, vec![0; 8]].concat(), SendFlags::empty(), &SocketAddrV4::new(there, 0));
    let after = scene.table.dropped();
    assert_eq!((after[3], after[4]), (before[3] + 1, before[4]));
    // By default.
    let default = Rules { list: Vec::new(), block_rest: true };
    scene.table.write(Wanted { output: default, ..Wanted::default() }).expect("rules");
    assert_eq!(refused(8), Some(libc::EPERM));
    // The kernel's own packets are blocked, too.
    assert!(scene.table.dropped()[5] >= 1);
    scene.table.write(Wanted::default()).expect("rules");
    assert_eq!(refused(7), None);
    // By rules that cannot answer.
    (scene.table.means.rejects, scene.table.ours) = (false, false);
    scene.table.write(Wanted { output: rules(&block), ..Wanted::default() }).expect("rules");
    assert_eq!((refused(7), refused(8)), (Some(libc::EPERM), None));
    // Sockets are looked for, and packets counted, for as long as that may be what the kernel knows.
    let means = &mut scene.table.means;
    (means.rejects, means.sockets, means.counts, means.opened) = (true, true, true, None);
    let next = || means.do_without().then_some((means.rejects, means.sockets, means.counts));
    let tried: Vec<_> = core::iter::from_fn(next).collect();
    let [all, sockets, counts] = [(false, true, true), (true, false, true), (false, false, true)];
    assert_eq!(tried, [all, sockets, counts, (true, false, false), (false, false, false)]);
    scene.table.delete().expect("an orderly end");
}

/// The kernel finds in a rule's set what the policies select, and nothing beside.
#[test]
fn a_set_has_the_addresses_of_its_policies() {
    let Some(mut scene) = Scene::new("rules::ipsec::sets") else { return };
    let addresses = [("10.200.0.1", 8), ("fd00::1", 8)];
    let add = |(address, bits): (&str, u8)| testing::address("a", address.parse().expect("an address"), bits);
    scene.a.run(|| addresses.into_iter().try_for_each(add)).expect("addresses");
    let [mut v4, mut v6] = [Vec::new(), Vec::new()];
    for n in 0..100u32 {
        v4.push((IpAddr::from([10, 100 + (n / 50) as u8, (n % 50 * 5) as u8, 128]), 24 + (n % 9) as u8));
        let last = if n % 9 == 8 { 1 } else { 0 };
        v6.push((IpAddr::from([0xfd00, 7, n as u16 * 2, 0, 0, 0, 0, last]), 48 + (n % 9) as u8 * 10));
    }
    let block = |(to, bits): &(IpAddr, u8)| {
        (between(if to.is_ipv4() { "0.0.0.0/0" } else { "fd00::/8" }, &format!("{to}/{bits}")), Then::Block)
    };
    let list: Vec<_> = v4.iter().chain(&v6).map(block).collect();
    scene.table.write(Wanted { output: rules(&list), ..Wanted::default() }).expect("rules");
    scene.table.settle().expect("sets");
    assert_eq!(scene.sets(), 4, "of 64 pairs at most");
    let sockets = ["10.200.0.1:0", "[fd00::1]:0"].map(|at| scene.a.run(|| UdpSocket::bind(at)).expect("a socket"));
    let is_blocked = |to: IpAddr| {
        let sent = sockets[usize::from(to.is_ipv6())].send_to(b"x", (to, 9));
        sent.err().and_then(|e| e.raw_os_error()) == Some(libc::EPERM)
    };
    for (to, bits) in v4.iter().chain(&v6) {
        let prefix = Prefix::new(*to, *bits);
        let number = |value: Value| value.bytes().iter().fold(0, |whole, byte| whole << 8 | u128::from(*byte));
        let address = |number: u128| match to {
            IpAddr::V4(_) => Ipv4Addr::from_bits(number as u32).into(),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::from_bits(number)),
        };
        let (first, last) = (number(prefix.first()), number(prefix.last()));
        for (of, inside) in [(first - 1, false), (first, true), (last, true), (last + 1, false)] {
            assert_eq!(is_blocked(address(of)), inside, "{} and {to}/{bits}", address(of));
        }
    }
    scene.table.delete().expect("an orderly end");
}

/// Sets whose elements come with their rules are empty for a moment.
#[test]
fn no_packet_passes_while_rules_get_sets_and_lose_them() {
    let Some(mut scene) = Scene::new("rules::ipsec::settling") else { return };
    let nets = (0..70).map(|n| between(&format!("10.78.{n}.0/24"), "10.77.0.1/32"));
    let list: Vec<_> = nets.chain([between("10.77.0.2/32", "10.77.0.0/24")]).map(|of| (of, Then::Block)).collect();
    let [one, other] = [0, 1].map(|at| Wanted { input: rules(&list[at..]), ..Wanted::default() });
    scene.table.write(one.clone()).expect("rules");
    let mut seen = Vec::new();
    let (socket, done) = (scene.b.run(|| UdpSocket::bind("10.77.0.2:0")).expect("a socket"), AtomicBool::new(false));
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0u64;
            while !done.load(Ordering::Relaxed) {
                sent += u64::from(socket.send_to(b"x", "10.77.0.1:7001").is_ok());
            }
            sent
        });
        let start = Instant::now();
        // Each takes long where the sender has the only CPU.
        for round in (0..100).take_while(|round| *round < 6 || start.elapsed() < Duration::from_secs(4)) {
            let mut settled = [scene.table.settle(), Ok(())];
            let with = scene.sets();
            settled[1] = match round % 3 {
                0 => scene.table.restore(),
                1 => scene.table.write(other.clone()).map(|_| ()),
                _ => scene.table.write(one.clone()).map(|_| ()),
            };
            seen.push((settled.map(|done| done.err().map(|e| e.kind())), with, scene.sets()));
        }
        done.store(true, Ordering::Relaxed);
        sender.join().expect("a sender")
    });
    assert!(seen.len() >= 6 && seen.iter().all(|round| *round == ([None, None], 2, 0)), "{seen:?}");
    scene.here.set_nonblocking(true).expect("a socket");
    assert!(sent > 100 && scene.here.recv(&mut [0; 8]).is_err(), "one of {sent} has passed");
    scene.table.delete().expect("an orderly end");
    scene.here.set_nonblocking(false).expect("a socket");
    scene.passes();
}

/// All rules are in one transaction, which is longer than the kernel takes from a socket as it was opened.
#[test]
fn very_many_rules_are_written_at_once() {
    let Some(mut scene) = Scene::new("rules::ipsec::many") else { return };
    // A rule for a port has some 400 bytes.
    let mut list: Vec<_> = (0..60_000).map(|at| (to_port(10_000 + (at % 50_000) as u16), Then::Block)).collect();
    list.push((to_port(7002), Then::Block));
    scene.table.write(Wanted { input: rules(&list), ..Wanted::default() }).expect("rules");
    scene.send(7002, 1);
    scene.dropped(1);
    scene.passes();
    scene.table.delete().expect("an orderly end");
}
