//! Tests of the rules by their effect on packets. They need root.

use super::tables::COVER;
use super::*;
use crate::table::Owned;
use crate::transaction::{Transaction, exists};
use sealane_sys::marks::Marks;
use sealane_sys::netlink::{Socket, errno};
use sealane_sys::netns::Netns;
use sealane_sys::{link, testing};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const OPTIONS: Options = Options {
    output_queue: 1,
    input_queue: 2,
    newcomers_queue: 4,
    queues: 1,
    marks: Marks::new(0x5ea1_1a40),
    any_option: Some(3),
};

/// Installs a table in `namespace`; reports a skip and returns `None` where the kernel lacks a feature.
fn install(test: &str, namespace: &Netns, peers: &[(IpAddr, u8)]) -> Option<PeerTable> {
    match namespace.run(|| PeerTable::install(OPTIONS, peers, None)) {
        Ok(table) => Some(table),
        Err(error) if testing::missing(test, &error) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Whether a connection to `address` succeeds, even slowly on a busy machine.
fn connects(namespace: &Netns, address: &str) -> bool {
    connects_in(namespace, address, Duration::from_secs(10))
}

/// Whether no connection succeeds, within a time in which it normally would.
fn stops(namespace: &Netns, address: &str) -> bool {
    !connects_in(namespace, address, Duration::from_millis(300))
}

fn connects_in(namespace: &Netns, address: &str, limit: Duration) -> bool {
    let address = address.parse().expect("an address");
    namespace.run(|| Ok(TcpStream::connect_timeout(&address, limit).is_ok())).expect("a thread")
}

/// Listens on every address of `namespace` at `port`; connections wait in the backlog.
fn listen(namespace: &Netns, port: u16) -> TcpListener {
    namespace.run(|| TcpListener::bind(("::", port))).expect("a listener")
}

#[test]
fn segments_of_peers_stop_where_nobody_listens_to_the_queue() {
    let Some((a, b)) = testing::pair("rules::ao::segments_stop") else { return };
    let _listener = listen(&b, 7001);
    let Some(mut table) = install("rules::ao::segments_stop", &a, &[]) else { return };
    assert!(connects(&a, "10.77.0.2:7001") && connects(&a, "[fd77::2]:7001"), "no peers yet");
    table.protect(&[("10.77.0.2".parse().expect("v4"), 32)]).expect("a peer");
    assert!(stops(&a, "10.77.0.2:7001"));
    assert!(connects(&a, "[fd77::2]:7001"), "the other family");
    table.protect(&[("fd77::".parse().expect("v6"), 64), ("10.0.0.0".parse().expect("v4"), 8)]).expect("peers");
    assert!(stops(&a, "[fd77::2]:7001"));
    // The rules apply to TCP only.
    let sent = a.run(|| UdpSocket::bind("10.77.0.1:0")?.send_to(b"x", "10.77.0.2:9")).expect("a datagram");
    assert_eq!(sent, 1);
    // The host stays protected when the prefix that covers it is removed.
    table.unprotect(&[("10.0.0.0".parse().expect("v4"), 8)]).expect("one less");
    assert!(stops(&a, "10.77.0.2:7001"));
    table.unprotect(&[("10.77.0.2".parse().expect("v4"), 32), ("fd77::".parse().expect("v6"), 64)]).expect("none");
    assert!(connects(&a, "10.77.0.2:7001") && connects(&a, "[fd77::2]:7001"));
    // On the other side, incoming segments are dropped.
    let mut other = install("rules::ao::segments_stop", &b, &[("0.0.0.0".parse().expect("v4"), 0)]).expect("too");
    assert!(stops(&a, "10.77.0.2:7001"));
    other.protect(&[("::".parse().expect("v6"), 0)]).expect("all of v6");
    assert!(stops(&a, "[fd77::2]:7001"));
    other.delete().expect("an orderly end");
    assert!(connects(&a, "10.77.0.2:7001") && connects(&a, "[fd77::2]:7001"));
}

#[test]
fn a_crash_leaves_the_rules_and_a_successor_replaces_them() {
    let Some((a, b)) = testing::pair("rules::ao::a_crash") else { return };
    let _listener = listen(&b, 7002);
    let peer = ("10.77.0.2".parse().expect("v4"), 32);
    let Some(table) = install("rules::ao::a_crash", &a, &[peer]) else { return };
    drop(table);
    assert!(stops(&a, "10.77.0.2:7002"), "nobody deleted it");
    let table = install("rules::ao::a_crash", &a, &[peer]).expect("a successor");
    assert!(stops(&a, "10.77.0.2:7002"));
    table.delete().expect("an orderly end");
    assert!(connects(&a, "10.77.0.2:7002"));
}

/// Intervals that come with their rules, or in place of others, are not seen for a moment.
#[test]
fn no_segment_passes_while_rules_are_replaced() {
    use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType};
    use rustix::net::{recv, sendto, socket_with};
    const TEST: &str = "rules::ao::replaced";
    let Some((a, b)) = testing::pair(TEST) else { return };
    let [net, wide] = [24, 16].map(|len| (IpAddr::from([10, 77, 0, 0]), len));
    let Some(mut table) = install(TEST, &a, &[net]) else { return };
    let tcp = Protocol::from_raw(core::num::NonZero::new(6).expect("TCP"));
    let raw = |of: &Netns| {
        of.run(|| Ok(socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::NONBLOCK, Some(tcp))?))
            .expect("a socket")
    };
    let (out, there, done) = (raw(&a), raw(&b), AtomicBool::new(false));
    let segment = testing::segment(false, &[], b"");
    let (to, header) = (SocketAddrV4::new([10, 77, 0, 2].into(), 0), 20);
    let mut seen = Vec::new();
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0u64;
            while !done.load(Ordering::Relaxed) {
                // What is dropped, because nobody listens to the queue, is an error.
                let _ = sendto(&out, &segment[header..], SendFlags::empty(), &to);
                sent += 1;
            }
            sent
        });
        let start = Instant::now();
        for round in (0..150).take_while(|round| *round < 6 || start.elapsed() < Duration::from_secs(4)) {
            seen.push(match round % 3 {
                0 => table.restore(),
                1 => table.protect(&[wide]),
                _ => table.unprotect(&[wide]),
            });
        }
        done.store(true, Ordering::Relaxed);
        sender.join().expect("a sender")
    });
    assert!(seen.iter().all(Result::is_ok), "{seen:?}");
    let mut buffer = [0; 256];
    let passed = recv(&there, &mut buffer[..], RecvFlags::empty()).is_ok();
    assert!(seen.len() >= 6 && !passed, "one passed in {} rounds, {sent} sent", seen.len());
    // A table that a process has left which died meanwhile, where tables have no owners.
    let mut changes = Transaction::new();
    changes.create(&table.cover(Owned::Nobody));
    changes.commit(&mut table.socket).expect("a table");
    table.unprotect(&[net]).expect("no peer");
    table.restore().expect("rules");
    assert!(!exists(&mut table.socket, COVER).expect("an answer"));
    table.delete().expect("an orderly end");
}

/// Deletes every table of every family, like `nft flush ruleset`.
fn flush() -> io::Result<()> {
    let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
    let mut changes = Transaction::new();
    changes.flush();
    changes.commit(&mut socket)
}

#[test]
fn a_flush_by_others_is_refused_or_noticed() {
    let Some((a, b)) = testing::pair("rules::ao::a_flush") else { return };
    let _listener = listen(&b, 7003);
    let peer = ("10.77.0.2".parse().expect("v4"), 32);
    let Some(mut table) = install("rules::ao::a_flush", &a, &[peer]) else { return };
    let mut watch = a.run(|| table.watch()).expect("a watch");
    table.protect(&[("10.99.0.0".parse().expect("v4"), 16)]).expect("a change of our own");
    assert!(!watch.changed());
    a.run(flush).expect("a flush");
    if table.owned != Owned::Nobody {
        assert!(!watch.changed(), "the flush passed us by");
        assert!(stops(&a, "10.77.0.2:7003"));
    } else {
        assert!(watch.changed());
        table.restore().expect("restored");
        assert!(stops(&a, "10.77.0.2:7003"));
    }
    // The same as on a kernel without table owners.
    table.delete().expect("an orderly end");
    let mut table = install("rules::ao::a_flush", &a, &[]).expect("a table");
    table.owned = Owned::Nobody;
    table.restore().map_or_else(|e| assert_eq!(errno(&e), Some(libc::EOPNOTSUPP)), |()| {});
    table.delete().expect("gone");
    let socket = a.run(|| Socket::open(libc::NETLINK_NETFILTER)).expect("a socket");
    let mut table = PeerTable::new(socket, OPTIONS, None, Owned::Nobody);
    table.restore().expect("a table without an owner");
    let mut watch = a.run(|| table.watch()).expect("a watch");
    table.protect(&[peer]).expect("a peer");
    assert!(!watch.changed());
    assert!(stops(&a, "10.77.0.2:7003"));
    a.run(flush).expect("a flush");
    assert!(connects(&a, "10.77.0.2:7003"), "this is what is open until it is noticed");
    assert!(watch.changed());
    table.restore().expect("restored");
    assert!(stops(&a, "10.77.0.2:7003"));
}

#[test]
fn flows_of_a_device_come_and_go() {
    let Some((a, _b)) = testing::pair("rules::ao::flows") else { return };
    let Some(mut table) = install("rules::ao::flows", &a, &[]) else { return };
    let device = a.run(|| link::index("a")).expect("a device");
    let flow = |last: u16| Flow {
        device,
        source: SocketAddr::from(([10, 77, 0, 2], last)),
        destination: SocketAddr::from(([10, 77, 0, 1], 179)),
    };
    let v6 = Flow {
        device,
        source: "[fd77::2]:179".parse().expect("v6"),
        destination: "[fd77::1]:1024".parse().expect("v6"),
    };
    table.add_device(device, "a").expect("a chain");
    table.add_device(device, "a").expect("once more is nothing");
    for f in [flow(1), flow(2), v6] {
        table.add_flow(f).expect("a flow");
    }
    table.add_flow(v6).expect("once more is nothing");
    table.restore().expect("all of it again");
    table.remove_flow(flow(1)).expect("one less");
    table.remove_flow(flow(1)).expect("once more is nothing");
    table.remove_device(device).expect("no chain");
    table.remove_flow(v6).expect("one less");
    table.delete().expect("an orderly end");
}

#[test]
fn a_hundred_thousand_peers() {
    let Some(a) = testing::namespace("rules::ao::many") else { return };
    let peers: Vec<(IpAddr, u8)> = (0..100_000u32).map(|i| ((0x0a00_0000 + i * 7).to_be_bytes().into(), 32)).collect();
    let Some(mut table) = install("rules::ao::many", &a, &peers) else { return };
    table.protect(&[("11.0.0.1".parse().expect("v4"), 32)]).expect("one more");
    table.unprotect(&peers).expect("none of them");
    table.delete().expect("an orderly end");
}
