//! Memory and CPU of launcher and daemon with many sessions, many keys, and many unsigned segments.

use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, root, sealane};
use serde_json::Value;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(300);
const SERVER: &str = "10.91.0.2";

/// A namespace of many peers, and one that serves them.
struct Pair {
    lab: Lab,
    peers: String,
    server: String,
    script: String,
}

impl Pair {
    fn new(test: &str) -> Option<Self> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let (peers, server) = (lab.space("peers"), lab.space("server"));
        lab.veth([&peers, &server], ["veth", "veth"]);
        lab.address(&peers, "veth", "10.91.0.1/24", "fd91::1/64");
        lab.address(&server, "veth", &format!("{SERVER}/24"), "fd91::2/64");
        lab.ip(&peers, "route add local 10.90.0.0/16 dev lo");
        lab.ip(&server, "route add 10.90.0.0/16 via 10.91.0.1");
        let script = root().join("conformance/programs/ao_many.py").display().to_string();
        Some(Pair { lab, peers, server, script })
    }

    /// Starts the script, under `sealane run` when it sets keys itself.
    fn start(&self, space: &str, served: bool, args: &str) -> Running {
        let (exe, runtime) = (sealane().display().to_string(), self.runtime());
        let mut argv = vec!["env", &runtime];
        if served {
            argv.extend([&*exe, "run", "--tcp-ao", "--"]);
        }
        argv.extend(["python3", &self.script]);
        argv.extend(args.split(' '));
        self.lab.start(space, &argv)
    }

    /// Returns the setting of the runtime folder, which is in memory like /run: each new connection writes state there.
    fn runtime(&self) -> String {
        let shared = Path::new("/dev/shm");
        let folder = self.lab.folder();
        let folder = if shared.is_dir() { &shared.join(folder.file_name().expect("a name")) } else { folder };
        format!("SEALANE_RUNTIME_DIR={}", folder.display())
    }

    fn daemon(&self, space: &str, config: &str) -> Running {
        let exe = sealane().display().to_string();
        self.lab.start(space, &["env", &self.runtime(), &exe, "daemon", "--config", config])
    }

    /// Waits until `tcp-ao show` lists this many established sockets at both ends, all of them as wanted.
    fn connected(&self, count: usize, is_wanted: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        let runtime = self.runtime();
        let (name, folder) = runtime.split_once('=').expect("a setting");
        loop {
            let told = Command::new(sealane()).args(["tcp-ao", "show", "--json"]).env(name, folder).output().unwrap();
            let all: Value = serde_json::from_slice(&told.stdout).unwrap_or_else(|e| panic!("{e}: {told:?}"));
            let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let sockets = list(&all).into_iter().flat_map(|one| list(&one["namespaces"]));
            let sockets = sockets.flat_map(|namespace| list(&namespace["sockets"]));
            let connected: Vec<Value> = sockets.filter(|socket| socket["state"] == "established").collect();
            if connected.len() == count && connected.iter().all(&is_wanted) {
                return;
            }
            assert!(
                start.elapsed() < LIMIT,
                "{} of {count} connected, the first: {:?}",
                connected.len(),
                connected.first()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn config(&self, name: &str, text: &str) -> String {
        let path = self.lab.file(name, text);
        self.lab.make_private(&path);
        path
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let name = self.lab.folder().file_name().expect("a name");
        let _ = std::fs::remove_dir_all(Path::new("/dev/shm").join(name));
    }
}

/// Memory and CPU time of a process.
#[derive(Clone, Copy)]
struct Use {
    rss_kib: u64,
    cpu_s: f64,
}

impl Use {
    fn of(process: &Running) -> Use {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", process.id())).expect("it runs");
        let status = read("status");
        let rss = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("a size");
        let stat = read("stat");
        let after = stat.rsplit_once(')').expect("a name").1;
        let ticks: u64 = after.split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().unwrap()).sum();
        // USER_HZ is 100 on every supported architecture.
        Use { rss_kib: rss.trim().trim_end_matches(" kB").parse().unwrap(), cpu_s: ticks as f64 / 100.0 }
    }
}

/// Runs sessions of `peers` peers with `keys` keys each for `seconds`, and prints figures.
fn sessions(test: &str, peers: u32, keys: u32, seconds: u32) {
    let Some(pair) = Pair::new(test) else { return };
    let mut server = pair.start(&pair.server, true, &format!("serve {SERVER} {peers} {keys}"));
    server.expect("listening", 1);
    let keyed = Use::of(&server);
    let mut client = pair.start(&pair.peers, true, &format!("connect {SERVER} {peers} {keys} {seconds}"));
    client.expect("sessions", 1);
    let open = [Use::of(&server), Use::of(&client)];
    while !client.output().contains("keepalives") {
        assert!(Path::new(&format!("/proc/{}", client.id())).exists(), "{}", client.output());
        std::thread::sleep(Duration::from_millis(100));
        assert!(!client.output().contains("Error"), "{}", client.output());
    }
    let done = [Use::of(&server), Use::of(&client)];
    println!("{peers} sessions, {} keys at each end, {seconds} s", peers * keys);
    println!("server: {}", server.output().replace('\n', "; "));
    println!("client: {}", client.output().replace('\n', "; "));
    println!("keys on the listener: RSS {} KiB, CPU {:.2} s", keyed.rss_kib, keyed.cpu_s);
    for (i, end) in ["server", "client"].iter().enumerate() {
        let (open, done) = (open[i], done[i]);
        println!(
            "{end}: sessions open: RSS {} KiB, CPU {:.2} s; after the keepalives: RSS {} KiB, CPU {:.2} s, {:.3} cores",
            open.rss_kib,
            open.cpu_s,
            done.rss_kib,
            done.cpu_s,
            (done.cpu_s - open.cpu_s) / f64::from(seconds)
        );
        assert!(done.rss_kib < open.rss_kib + 8192, "memory grows with time");
    }
    let (status, told) = client.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    let (status, told) = server.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
}

#[test]
fn a_thousand_sessions() {
    sessions("tcp_ao_scale::a_thousand_sessions", 1000, 2, 2);
}

/// `cargo test -p sealane-conformance --release --test ao tcp_ao_scale -- --ignored --nocapture --test-threads 1`
#[test]
#[ignore = "make accept: a minute; prints figures"]
fn a_thousand_sessions_with_a_hundred_thousand_keys() {
    sessions("tcp_ao_scale::a_thousand_sessions_with_a_hundred_thousand_keys", 1000, 100, 60);
}

/// Unsigned SYNs take no memory, and peers still connect.
#[test]
fn syn_flood() {
    let Some(pair) = Pair::new("tcp_ao_scale::syn_flood") else { return };
    let mut server = pair.start(&pair.server, true, &format!("serve {SERVER} 1000 1"));
    server.expect("listening", 1);
    // A first flood fills buffers that have not been used before.
    let flood = |count: u32| {
        let (status, told) = pair.start(&pair.peers, false, &format!("flood {SERVER} {count}")).finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
        std::thread::sleep(Duration::from_millis(300));
        Use::of(&server)
    };
    let before = flood(5_000);
    let after = flood(100_000);
    println!(
        "100,000 SYNs: RSS {} KiB, then {} KiB; CPU {:.2} s",
        before.rss_kib,
        after.rss_kib,
        after.cpu_s - before.cpu_s
    );
    assert!(after.rss_kib < before.rss_kib + 1024, "{} KiB, then {} KiB", before.rss_kib, after.rss_kib);
    let (status, told) = pair.start(&pair.peers, true, &format!("connect {SERVER} 50 1 1")).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
}

/// The queues of a namespace by their numbers: the packets that came into each of them, and those that it dropped.
fn queues(pair: &Pair, space: &str) -> Vec<(u64, u64)> {
    let argv = ["cat", "/proc/net/netfilter/nfnetlink_queue"];
    let (status, text) = pair.lab.start(space, &argv).finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    let row = |line: &str| line.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<u64>>();
    let mut rows: Vec<Vec<u64>> = text.lines().map(row).collect();
    rows.sort();
    // Queue, port, waiting, mode, range, dropped by the queue, dropped by the socket, last packet.
    rows.iter().map(|row| (row[7] + row[5], row[5] + row[6])).collect()
}

/// Forged segments with the option, from strangers or from the addresses of peers, do not share a queue with those of known
/// connections, and take no memory.
#[test]
fn forged_segments_do_not_displace_those_of_peers() {
    let Some(mut pair) = Pair::new("tcp_ao_scale::forged_segments_do_not_displace_those_of_peers") else { return };
    let others = pair.lab.space("others");
    pair.lab.veth([&others, &pair.server], ["veth", "veth2"]);
    pair.lab.address(&others, "veth", "10.92.0.1/24", "fd92::1/64");
    pair.lab.address(&pair.server, "veth2", "10.92.0.2/24", "fd92::2/64");
    pair.lab.ip(&others, "route add 10.91.0.0/24 via 10.92.0.2");
    pair.lab.ip(&pair.server, "route add 10.90.200.0/24 via 10.92.0.1");
    let mut server = pair.start(&pair.server, true, &format!("serve {SERVER} 50 1"));
    server.expect("listening", 1);
    let mut sessions = pair.start(&pair.peers, true, &format!("connect {SERVER} 50 1 16"));
    sessions.expect("sessions", 1);
    let forge = |seconds: u32, peers: u32| {
        let (status, told) = pair.start(&others, false, &format!("forge {SERVER} {seconds} {peers}")).finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
        (Use::of(&server), told)
    };
    let (before, _) = forge(1, 0);
    forge(4, 50);
    let (after, told) = forge(4, 0);
    // The first one is nobody's: its number alone is taken.
    let [_, output, input, strangers, newcomers] = queues(&pair, &pair.server)[..] else { panic!("five queues") };
    println!(
        "{}; packets and drops: {output:?} out, {input:?} in, {newcomers:?} of newcomers, {strangers:?} of strangers; RSS {} KiB, then {} KiB; CPU {:.2} s",
        told.trim(),
        before.rss_kib,
        after.rss_kib,
        after.cpu_s - before.cpu_s
    );
    assert_eq!((output.1, input.1), (0, 0), "no segment of a peer was dropped by a full queue");
    assert!(strangers.0 > 10_000, "the flood came, and went by its own queue: {strangers:?}");
    assert!(newcomers.0 > 10_000, "so did that with the addresses of peers: {newcomers:?}");
    assert!(input.0 < 10_000, "and not by that of the peers: {input:?}");
    assert!(after.rss_kib < before.rss_kib + 1024, "{} KiB, then {} KiB", before.rss_kib, after.rss_kib);
    let (status, told) = sessions.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
}

/// Returns the configurations of both daemons: each peer has these keys, and the last one is preferred.
fn configs(peers: u32, keys: Range<u32>) -> [String; 2] {
    let with_keys = |out: &mut String, name: &str, peer: &str| {
        write!(out, "[[peer]]\nname = \"{name}\"\nprefix = \"{peer}\"\nport = 179\n").unwrap();
        for k in keys.clone() {
            writeln!(
                out,
                "[[peer.key]]\nsend-id = {k}\nrecv-id = {k}\nalgorithm = \"hmac(sha256)\"\nsecret = \"key {k}\"\n\
                 lifetime = {{ start = 2020-01-01T00:00:{:02}Z }}",
                k % 60
            )
            .unwrap();
        }
    };
    let (mut server, mut client) = (String::new(), String::new());
    for i in 0..peers {
        with_keys(&mut server, &format!("peer {i}"), &format!("10.90.{}.{}", i >> 8, i & 255));
    }
    with_keys(&mut client, "server", SERVER);
    [server, client]
}

/// All sessions of unmodified programs survive the death of the daemon.
fn daemon(test: &str, peers: u32, keys: u32, seconds: u32) {
    let Some(pair) = Pair::new(test) else { return };
    let [server, client] = configs(peers, 0..keys);
    let (server, client) = (pair.config("server.toml", &server), pair.config("client.toml", &client));
    let start = |space: &str, config: &str, protected: u32| {
        let begun = Instant::now();
        let mut daemon = pair.daemon(space, config);
        daemon.expect(&format!("{protected} peers protected"), 1);
        (daemon, begun.elapsed())
    };
    let (first, took) = start(&pair.server, &server, peers);
    let (other, _) = start(&pair.peers, &client, 1);
    let loaded = Use::of(&first);
    let mut program = pair.start(&pair.server, false, &format!("serve {SERVER} {peers} 0"));
    program.expect("listening", 1);
    let mut sessions = pair.start(&pair.peers, false, &format!("connect {SERVER} {peers} 0 {seconds}"));
    sessions.expect("sessions", 1);
    // Clients are connected once they have sent their last ACK; the daemon has to process and save it, too.
    pair.connected(2 * peers as usize, |_| true);
    std::thread::sleep(Duration::from_secs(1));
    let open = Use::of(&first);
    first.signal(libc::SIGKILL);
    first.finish(LIMIT);
    let (second, again) = start(&pair.server, &server, peers);
    let told = second.output();
    assert!(told.contains(&format!("{peers} connections go on")), "{told}");
    let back = Use::of(&second);
    let (status, told) = sessions.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    let done = Use::of(&second);
    program.finish(LIMIT);
    for daemon in [second, other] {
        daemon.signal(libc::SIGTERM);
        daemon.finish(LIMIT);
    }
    println!("{peers} peers, {} keys, {seconds} s; {}", peers * keys, told.replace('\n', "; "));
    println!("the daemon starts in {took:.2?}: RSS {} KiB, CPU {:.2} s", loaded.rss_kib, loaded.cpu_s);
    println!("sessions open: RSS {} KiB, CPU {:.2} s", open.rss_kib, open.cpu_s);
    println!("killed, it is back in {again:.2?}: RSS {} KiB, CPU {:.2} s", back.rss_kib, back.cpu_s);
    println!("after the keepalives: RSS {} KiB, CPU {:.2} s", done.rss_kib, done.cpu_s);
}

#[test]
fn a_thousand_sessions_outlive_their_daemon() {
    daemon("tcp_ao_scale::a_thousand_sessions_outlive_their_daemon", 1000, 2, 2);
}

/// The long form of [`a_thousand_sessions_outlive_their_daemon`].
#[test]
#[ignore = "make accept: half a minute; prints figures"]
fn a_daemon_with_a_hundred_thousand_keys() {
    daemon("tcp_ao_scale::a_daemon_with_a_hundred_thousand_keys", 1000, 100, 20);
}

/// Keys are added and removed under traffic without losing a session. An invalid configuration changes nothing.
#[test]
fn keys_come_and_go() {
    const PEERS: u32 = 200;
    let Some(pair) = Pair::new("tcp_ao_scale::keys_come_and_go") else { return };
    let write = |keys| {
        let [server, client] = configs(PEERS, keys);
        [pair.config("server.toml", &server), pair.config("client.toml", &client)]
    };
    let [server, client] = write(0..1);
    let mut daemons = [pair.daemon(&pair.server, &server), pair.daemon(&pair.peers, &client)];
    daemons[0].expect(&format!("{PEERS} peers protected"), 1);
    daemons[1].expect("1 peers protected", 1);
    let mut program = pair.start(&pair.server, false, &format!("serve {SERVER} {PEERS} 0"));
    program.expect("listening", 1);
    let mut sessions = pair.start(&pair.peers, false, &format!("connect {SERVER} {PEERS} 0 0"));
    sessions.expect("sessions", 1);
    let mut read_again = 0;
    let mut reload = |daemons: &mut [Running; 2]| {
        read_again += 1;
        for daemon in daemons {
            daemon.signal(libc::SIGHUP);
            daemon.expect("read again", read_again);
        }
    };
    // Each session sends every second, and so both ends change over.
    let changed_over =
        |key: u8| pair.connected(2 * PEERS as usize, |socket| socket["current"] == key && socket["rnext"] == key);
    write(0..2);
    reload(&mut daemons);
    changed_over(1);
    write(1..2);
    reload(&mut daemons);
    pair.config("server.toml", "[[peer]]\nname = \"x\"\nprefix = \"10.90.0.0/33\"\n");
    daemons[0].signal(libc::SIGHUP);
    daemons[0].expect("everything stays as it was", 1);
    assert!(daemons[0].output().contains("server.toml:3:"), "{}", daemons[0].output());
    write(1..3);
    reload(&mut daemons);
    changed_over(2);
    write(2..3);
    reload(&mut daemons);
    let (status, told) = sessions.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    println!("{told}");
    program.finish(LIMIT);
    for daemon in daemons {
        daemon.signal(libc::SIGTERM);
        let (status, told) = daemon.finish(LIMIT);
        assert!(status == Some(0) && !told.contains("ended"), "{told}");
    }
}
