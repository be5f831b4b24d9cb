use super::*;
use sealane_abi::admin::ipsec::{
    self, CryptoOffload, DeviceKind, GatewayCounters, GatewayInterface, PacketOffload, Xdp, XdpMemory, XdpMode,
};
use sealane_abi::admin::{
    AoNamespace, Counters, Drop as Dropped, DropCount, Health, KeyStatus, MissingKey, Path, Role, Socket, SocketState,
    Tally, VERSION,
};
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

/// A launcher with a listener and a connection.
pub(crate) fn example() -> Snapshot {
    let key = |send_id, current| KeyStatus {
        peer: "192.0.2.0/24".into(),
        ifindex: None,
        send_id,
        recv_id: send_id + 100,
        algorithm: "hmac(sha256)".into(),
        mac_len: 16,
        exclude_options: false,
        current,
        rnext: current,
        good: 40,
        bad: 2,
    };
    let counters = Counters { good: 40, bad: 2, key_not_found: 1, required: 3, dropped_icmps: 0 };
    let socket = |cookie, state, remote: Option<&str>| Socket {
        cookie,
        state,
        inode: Some(9),
        pid: Some(77),
        program: Some("bird".into()),
        local: Some("192.0.2.1:179".parse().unwrap()),
        remote: remote.map(|r| r.parse().unwrap()),
        vrf: None,
        vrf_name: None,
        configured: None,
        ao_required: false,
        accept_icmps: false,
        counters,
        current: remote.map(|_| 5),
        rnext: remote.map(|_| 105),
        keys: vec![key(6, false), key(5, remote.is_some())],
        last_drop: None,
    };
    let mut connection = socket(12, SocketState::Established, Some("192.0.2.2:40000"));
    connection.last_drop = Some(Dropped {
        at_ms: 1_769_903_999_123,
        source: "192.0.2.2:40000".parse().unwrap(),
        destination: "192.0.2.1:179".parse().unwrap(),
        key_id: Some(105),
        reason: "mac".into(),
        help: "wrong key, or a changed packet".into(),
        hint: Some("it verifies without the TCP options".into()),
    });
    Snapshot {
        version: VERSION,
        release: "0.1.0".into(),
        role: Role::Run,
        pid: 4242,
        program: "bird".into(),
        started_s: 1_769_900_000,
        taken_s: 1_769_904_000,
        health: Health {
            failures: vec![Tally { name: "panic".into(), count: 2 }],
            transient_errors: vec![Tally { name: "ENOBUFS".into(), count: 7 }],
        },
        namespaces: vec![AoNamespace {
            inode: 4_026_531_840,
            name: Some("blue \"x\"\\\n".into()),
            counters,
            drops: vec![DropCount { reason: "mac".into(), count: 2 }],
            last_drop: None,
            path: Some(Path { fast_in: 1, ..Path::default() }),
            sockets: vec![socket(11, SocketState::Listen, None), connection],
            missing_keys: vec![MissingKey {
                peer: "edge".into(),
                send_id: 7,
                recv_id: 107,
                key: "bgp".into(),
                why: "revoked".into(),
            }],
        }],
        ipsec: vec![ipsec()],
    }
}

/// IPsec with a device of each kind, an xfrm interface and a gateway.
fn ipsec() -> ipsec::IpsecNamespace {
    let device = |name: &str, up, kind| ipsec::Device { name: name.into(), up, kind };
    let xdp = Xdp {
        mode: XdpMode::Native,
        memory: XdpMemory::Copied,
        queues: 60,
        threads: 61,
        received_full: 62,
        received_dropped: 63,
    };
    let counter = |name: &str, packets| ipsec::Counter { name: name.into(), packets, help: "Why.".into() };
    let rate = |(reqid, has_feedback)| ipsec::ControlledRate {
        local: "192.0.2.1".into(),
        remote: "192.0.2.2".into(),
        reqid,
        if_id: 0,
        cpu: None,
        interval_us: 70,
        least_interval_us: 71,
        rtt_us: 72,
        loss_interval: 73,
        has_feedback,
    };
    let status = ipsec::Status {
        states: 1,
        policies: ipsec::Policies { input: 2, output: 3, forward: 4 },
        traffic: ipsec::Traffic { sealed_packets: 5, sealed_bytes: 6, opened_packets: 7, opened_bytes: 8 },
        counters: vec![counter("XfrmInError", 0), counter("XfrmInNoStates", 9)],
        drops: vec![DropCount { reason: "no-state".into(), count: 9 }, DropCount { reason: "icv".into(), count: 0 }],
        path: ipsec::Path {
            sent: 10,
            sent_past_stack: 11,
            not_sent: 12,
            received_past_stack: 13,
            ring_full: 14,
            not_given_to_stack: 15,
            clear: 16,
            held: 17,
            malformed: 18,
            tables_waited_for: 19,
            port_swaps: 68,
        },
        workers: vec![
            ipsec::Worker { read: 20, handed_over: 21, taken_over: 22, full: 23 },
            ipsec::Worker { read: 24, handed_over: 25, taken_over: 26, full: 27 },
        ],
        devices: vec![
            device("inline0", true, DeviceKind::Inline),
            device(
                "crypto0",
                true,
                DeviceKind::Crypto(CryptoOffload {
                    bursts: 30,
                    packets: 31,
                    bytes: 32,
                    busy_ns: 33_000_000_001,
                    no_key: 34,
                    full: 35,
                }),
            ),
            device(
                "packet0",
                false,
                DeviceKind::Packet(PacketOffload { sealed: 36, opened: 37, dropped: 38, asked: 39 }),
            ),
            device(
                "eth0",
                true,
                DeviceKind::Kernel(ipsec::KernelOffload { kernel_states: 40, kernel_policies: 41, refused: 42 }),
            ),
        ],
        interfaces: vec![ipsec::Interface { name: "ipsec0".into(), up: true, if_id: 43 }],
        gateway: Some(ipsec::Gateway {
            counters: GatewayCounters {
                sealed: 50,
                opened: 51,
                sent: 52,
                to_stack: 53,
                dropped: 54,
                not_sent_full: 55,
                handed_over: 56,
                not_handed_over_full: 57,
            },
            interfaces: vec![
                GatewayInterface { name: "lan".into(), xdp: Some(xdp) },
                GatewayInterface { name: "wan".into(), xdp: None },
            ],
        }),
        rates: [(1, true), (2, true), (3, false)].map(rate).into(),
        unused_rates: vec![ipsec::RateTable { remote: Some("192.0.2.9".into()), reqid: Some(9), if_id: None }],
    };
    ipsec::IpsecNamespace { inode: 4_026_531_841, name: None, status }
}

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sealane-admin-{name}-{}", std::process::id()))
}

#[test]
fn an_instance_answers_what_it_was_asked() {
    let folder = folder("answers");
    let server = Server::start(&folder, Arc::new(example)).unwrap();
    assert_eq!(fs::metadata(server.path()).unwrap().mode() & 0o777, 0o600);
    let instance = Instance { path: server.path().to_owned(), pid: std::process::id() };
    for _ in 0..3 {
        assert_eq!(snapshot(&instance).unwrap(), Some(example()));
    }
    assert_eq!(ask(&instance, Query::Metrics).unwrap(), Some(metrics::render(&example())));
    // Requests that are malformed, too long or empty are not answered, and do no harm.
    for bytes in [&b"\"secrets\"\n"[..], b"\n", &[b'x'; 1000], b""] {
        let mut stream = UnixStream::connect(server.path()).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
    assert!(snapshot(&instance).unwrap().is_some());
    drop(server);
    assert!(!instance.path.exists());
    assert_eq!(snapshot(&instance).unwrap(), None);
    fs::remove_dir(&folder).unwrap();
}

#[test]
fn another_version_is_no_answer() {
    let folder = folder("version");
    let server = Server::start(&folder, Arc::new(|| Snapshot { version: VERSION + 1, ..example() })).unwrap();
    let instance = Instance { path: server.path().to_owned(), pid: 1 };
    assert_eq!(snapshot(&instance).unwrap_err().kind(), io::ErrorKind::InvalidData);
    drop(server);
    fs::remove_dir(&folder).unwrap();
}

#[test]
fn a_socket_that_nobody_listens_on_is_gone() {
    let folder = folder("stale");
    DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let path = folder.join("1.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(snapshot(&Instance { path, pid: 1 }).unwrap(), None);
    // A leftover socket with the id of this process is replaced.
    drop(UnixListener::bind(folder.join(format!("{}.sock", std::process::id()))).unwrap());
    drop(Server::start(&folder, Arc::new(example)).unwrap());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn folders_that_others_could_change_are_refused() {
    let folder = folder("open");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Server::start(&folder, Arc::new(example)).is_err());
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let link = folder.join("link");
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    assert!(Server::start(&link, Arc::new(example)).is_err());
    fs::remove_dir_all(&folder).unwrap();
}
