//! Connections between two namespaces, both served. They need root.

use crate::counters::Counters;
use crate::space::Spaces;
use crate::start::{DYING, Peers};
use sealane_abi::Profile;
use sealane_abi::admin::DataPath;
use sealane_engine_ao::{ConfiguredKey, ConfiguredPeer};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_sys::netns::Netns;
use sealane_sys::{link, testing};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Serves a namespace with keys for its peer, for both families.
fn serve(spaces: &Spaces, namespace: &Netns, peers: [&str; 2], key: &[u8]) -> std::io::Result<Arc<crate::Space>> {
    let algorithm = spaces.algorithms().get("hmac(sha1)").expect("in every build").clone();
    let prefixes = peers.map(|p| Prefix::host(p.parse().expect("an address")));
    let keys = prefixes.map(|peer| {
        let spec = MktSpec {
            algorithm: &algorithm,
            key,
            send_id: 1,
            recv_id: 1,
            mac_len: 12,
            exclude_options: false,
            peer,
            ifindex: None,
        };
        let mkt = Arc::new(Mkt::new(&spec).unwrap_or_else(|e| panic!("{e}")));
        ConfiguredKey { mkt, send: true, preferred: true }
    });
    let covered = Peers { fixed: &prefixes, by_keys: &[] };
    spaces.open(namespace.try_clone()?, &covered, DYING, |shared| {
        let peer = ConfiguredPeer { number: 0, name: "peer", keys: keys.into(), accept_icmps: false };
        shared.engine.lock().configure(&[peer]);
        *shared.peer_lookup.write() = Some(Arc::new(|_| Some(0)));
    })
}

/// Sends `len` bytes there and back and compares them.
fn exchange(a: &Netns, b: &Netns, at: SocketAddr, len: usize) {
    let listener = b.run(|| TcpListener::bind(at)).expect("a listener");
    let mut client = a.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(10))).expect("a connection");
    let (mut server, _) = listener.accept().expect("a connection");
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    }
    let pattern = |i: usize| (i.wrapping_mul(2_654_435_761) >> 13) as u8;
    let check = |stream: &mut TcpStream| {
        let (mut buf, mut at) = (vec![0; 1 << 16], 0);
        while at < len {
            let n = stream.read(&mut buf).expect("bytes");
            assert!(n > 0, "after {at} of {len} bytes");
            assert!(buf[..n].iter().enumerate().all(|(i, b)| *b == pattern(at + i)), "around {at}");
            at += n;
        }
    };
    let bytes: Vec<u8> = (0..len).map(pattern).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| check(&mut server));
        client.write_all(&bytes).expect("there");
    });
    std::thread::scope(|scope| {
        scope.spawn(|| check(&mut client));
        server.write_all(&bytes).expect("and back");
    });
}

/// Closes them when nothing is on the way any more.
fn stop(spaces: &Spaces) {
    spaces.stop(|time| {
        std::thread::sleep(time);
        false
    });
}

fn spaces(workers: u16) -> Spaces {
    let algorithms = Algorithms::new(&sealane_drivers::system_registry().0);
    Spaces::new(Profile::Open, algorithms, DataPath::Auto).with_workers(workers)
}

/// Two connected namespaces, served with these keys. `None`, with a message, where the kernel lacks a feature.
#[allow(clippy::type_complexity, reason = "two of everything")]
fn pair(test: &str, workers: u16, keys: [&[u8]; 2]) -> Option<([Netns; 2], [Spaces; 2], [Arc<crate::Space>; 2])> {
    let (a, b) = testing::pair(test)?;
    let both = [spaces(workers), spaces(workers)];
    let served = serve(&both[0], &a, ["10.77.0.2", "fd77::2"], keys[0])
        .and_then(|one| Ok([one, serve(&both[1], &b, ["10.77.0.1", "fd77::1"], keys[1])?]));
    match served {
        Ok(served) => Some(([a, b], both, served)),
        Err(error) if testing::missing(test, &error) => None,
        Err(error) => panic!("{error}"),
    }
}

fn fast(counters: &Counters) -> [u64; 2] {
    [&counters.fast_in, &counters.fast_out].map(|c| c.load(Ordering::Relaxed))
}

#[test]
fn a_long_transfer_takes_the_fast_path_both_ways() {
    let Some(([a, b], spaces, served)) = pair("ao::fast::long", 1, [b"key", b"key"]) else { return };
    for at in ["10.77.0.2:7401", "[fd77::2]:7401"] {
        let before = [0, 1].map(|i| fast(&served[i].shared().counters));
        exchange(&a, &b, at.parse().expect("an address"), 32 << 20);
        for (space, before) in served.iter().zip(before) {
            let now = fast(&space.shared().counters);
            // There are 22,000 segments each way; TCP joins them to as few as 512, the more so on a busy machine. The first
            // ones, and some while the link header is asked for, do not count.
            assert!(now[0] - before[0] > 256 && now[1] - before[1] > 256, "{at}: {before:?}, then {now:?}");
        }
    }
    // With another MTU, segments become longer than the ring was made for.
    for (namespace, name) in [(&a, "a"), (&b, "b")] {
        namespace.run(|| link::set_mtu(name, 9000)).expect("another MTU");
    }
    exchange(&a, &b, "10.77.0.2:7402".parse().expect("an address"), 8 << 20);
    spaces.iter().for_each(stop);
    // Without the rules TCP works without TCP-AO again.
    exchange(&a, &b, "10.77.0.2:7403".parse().expect("an address"), 1 << 20);
}

#[test]
fn with_another_key_nothing_comes_through() {
    let Some(([a, b], spaces, _)) = pair("ao::fast::another_key", 1, [b"one", b"two"]) else { return };
    let at: SocketAddr = "10.77.0.2:7404".parse().expect("an address");
    let _listener = b.run(|| TcpListener::bind(at)).expect("a listener");
    a.run(|| TcpStream::connect_timeout(&at, Duration::from_millis(1500))).expect_err("no connection");
    spaces.iter().for_each(stop);
}

#[test]
fn several_workers_share_the_connections() {
    let Some(([a, b], spaces, served)) = pair("ao::fast::workers", 3, [b"key", b"key"]) else { return };
    // Two pairs of addresses at once. Their hashes select the workers.
    std::thread::scope(|scope| {
        for at in ["10.77.0.2:7405", "10.77.0.2:7406", "[fd77::2]:7405", "[fd77::2]:7406"] {
            let (a, b) = (&a, &b);
            scope.spawn(move || exchange(a, b, at.parse().expect("an address"), 8 << 20));
        }
    });
    for space in &served {
        let [fast_in, fast_out] = fast(&space.shared().counters);
        // As many bytes as above.
        assert!(fast_in > 256 && fast_out > 256, "{fast_in} in, {fast_out} out");
    }
    spaces.iter().for_each(stop);
}
