//! No segment of a protected connection is sent without TCP-AO while the launcher is killed, stopped, overloaded or
//! ended, and while rules are flushed. At both ends `wire-watch` counts the outbound segments of the protected port
//! without option 29: none.

use crate::two_ends::all_signed;
use sealane_conformance::lab::{Lab, Running, child};
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::sys::signal;
use sealane_conformance::target::{Target, sealane};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PEER: &str = env!("CARGO_BIN_EXE_ao-peer");
const WATCH: &str = env!("CARGO_BIN_EXE_wire-watch");
const LIMIT: Duration = Duration::from_secs(120);
const PORT: &str = "7179";

/// Two namespaces of this machine, a client in `a` and a server in `b`.
struct Pair {
    lab: Lab,
    a: String,
    b: String,
    keys: [String; 2],
}

impl Pair {
    fn new(test: &str) -> Option<Self> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let (a, b) = (lab.space("a"), lab.space("b"));
        lab.veth([&a, &b], ["veth", "veth"]);
        lab.address(&a, "veth", "10.79.0.1/24", "fd79::1/64");
        lab.address(&b, "veth", "10.79.0.2/24", "fd79::2/64");
        let keys = [lab.file("a", "hmac(sha256) 1 2 12 0 the-key"), lab.file("b", "hmac(sha256) 2 1 12 0 the-key")];
        Some(Pair { lab, a, b, keys })
    }

    /// Watches the outbound segments of each end.
    fn watch(&self) -> [Running; 2] {
        [&self.a, &self.b].map(|space| {
            let mut watch = self.lab.start(space, &[WATCH, "veth", PORT]);
            watch.expect("watching", 1);
            watch
        })
    }

    fn sealane(&self, space: &str, argv: &[&str]) -> Running {
        let exe = sealane();
        self.lab.start(space, &[&[&exe.to_string_lossy(), "run", "--tcp-ao", "--"], argv].concat())
    }

    fn server(&self) -> Running {
        self.server_for(&["--count", "1000"])
    }

    fn server_for(&self, how: &[&str]) -> Running {
        let addr = format!("10.79.0.2:{PORT}");
        let args = [PEER, "serve", &addr, "--peer", "10.79.0.1/32", "--keys", &self.keys[1]];
        let mut server = self.sealane(&self.b, &[&args, how].concat());
        server.expect("listening on", 1);
        server
    }

    fn client(&self, how: &[&str]) -> Running {
        let addr = format!("10.79.0.2:{PORT}");
        self.sealane(&self.a, &[&[PEER, "connect", &addr, "--keys", &self.keys[0]], how].concat())
    }

    /// Starts a client that sends without end, and waits until it does.
    fn sending(&self) -> Running {
        let client = self.client(&["--bytes", "1000000000000"]);
        // The other end sends acknowledgements alone, which are fewer.
        self.lab.sends(&self.b, "veth", 150);
        assert_eq!(client.output(), "", "it sends");
        client
    }
}

/// Ends the watches, which saw many segments, all of them signed.
fn nothing_in_clear(watches: [Running; 2]) {
    all_signed(watches, 100);
}

fn rest(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

#[test]
fn launcher_killed() {
    let Some(pair) = Pair::new("tcp_ao_clear::launcher_killed") else { return };
    let (_server, watch) = (pair.server(), pair.watch());
    let client = pair.sending();
    let program = child(client.launcher());
    signal(client.launcher(), libc::SIGKILL);
    // Its program cannot be served any more, and must not go on without the launcher.
    let start = Instant::now();
    while std::path::Path::new(&format!("/proc/{program}")).exists() {
        assert!(start.elapsed() < LIMIT, "the program outlives its launcher");
        std::thread::sleep(Duration::from_millis(50));
    }
    rest(3);
    // Another launcher takes over the namespace without knowing that connection, and ends in order.
    let (status, told) = pair.client(&["--local", "10.79.0.1", "--ping", "20"]).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    rest(3);
    nothing_in_clear(watch);
}

/// The launcher that takes over has other peers.
#[test]
fn launcher_killed_and_another_with_other_peers() {
    let Some(pair) = Pair::new("tcp_ao_clear::launcher_killed_and_another_with_other_peers") else { return };
    let (_server, watch) = (pair.server(), pair.watch());
    let client = pair.sending();
    client.signal(libc::SIGKILL);
    rest(1);
    let keys = &pair.keys[0];
    let addr = "10.79.0.99:179";
    let other = pair.sealane(&pair.a, &[PEER, "connect", addr, "--keys", keys, "--seconds", "3", "--bytes", "1"]);
    let (status, told) = other.finish(LIMIT);
    assert_eq!(status, Some(1), "there is nobody: {told}");
    rest(3);
    nothing_in_clear(watch);
}

#[test]
fn launcher_stopped() {
    let Some(pair) = Pair::new("tcp_ao_clear::launcher_stopped") else { return };
    let (_server, watch) = (pair.server(), pair.watch());
    let client = pair.client(&["--bytes", "30000000"]);
    let launcher = client.launcher();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(150));
        signal(launcher, libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(600));
        signal(launcher, libc::SIGCONT);
    }
    let (status, told) = client.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    nothing_in_clear(watch);
}

/// Queues overflow, with many connections and a launcher that gets a tenth of its time.
#[test]
fn overloaded() {
    let Some(pair) = Pair::new("tcp_ao_clear::overloaded") else { return };
    let (_server, watch) = (pair.server(), pair.watch());
    let addr = format!("10.79.0.2:{PORT}");
    let one = format!("{PEER} connect {addr} --keys {} --seconds 100 --bytes 3000000", pair.keys[0]);
    let all = format!(
        "pids= rc=0; for i in $(seq 40); do {one} & pids=\"$pids $!\"; done
        for pid in $pids; do wait $pid || rc=1; done; exit $rc"
    );
    let client = pair.sealane(&pair.a, &["sh", "-c", &all]);
    let launcher = client.launcher();
    for _ in 0..60 {
        signal(launcher, libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(45));
        signal(launcher, libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(5));
    }
    let (status, told) = client.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    nothing_in_clear(watch);
}

/// A signal ends the client, and then the server, while data is in flight.
#[test]
fn ends_in_the_middle() {
    let Some(pair) = Pair::new("tcp_ao_clear::ends_in_the_middle") else { return };
    let watch = pair.watch();
    // Not SIGINT: background jobs of a shell without a terminal ignore it.
    for signal in [libc::SIGTERM, libc::SIGUSR1] {
        let server = pair.server();
        let client = pair.sending();
        client.signal(signal);
        let (status, told) = client.finish(LIMIT);
        assert_eq!(status, Some(128 + signal), "{told}");
        rest(1);
        // Now the server ends, while a client sends to it.
        let client = pair.sending();
        server.signal(signal);
        let (status, told) = server.finish(LIMIT);
        assert_eq!(status, Some(128 + signal), "{told}");
        let (status, told) = client.finish(LIMIT);
        assert_eq!(status, Some(1), "its connection was reset: {told}");
        rest(1);
    }
    nothing_in_clear(watch);
}

/// A program ends once it has written, and its peer reads slowly: all data arrives, signed.
#[test]
fn ends_before_its_data_has_arrived() {
    let Some(pair) = Pair::new("tcp_ao_clear::ends_before_its_data_has_arrived") else { return };
    let watch = pair.watch();
    let server = pair.server_for(&["--slow"]);
    let (status, told) = pair.client(&["--bytes", "3000000", "--leave"]).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    let (status, told) = server.finish(LIMIT);
    assert!(status == Some(0) && told.contains(r#"{"ok":true,"bytes":3000000,"#), "{told}");
    nothing_in_clear(watch);
}

/// The peer closes its end a second after the program: what the kernel has kept of the connection answers, signed.
#[test]
fn the_peer_closes_after_the_end() {
    let Some(pair) = Pair::new("tcp_ao_clear::the_peer_closes_after_the_end") else { return };
    let watch = pair.watch();
    let server = pair.server_for(&["--late"]);
    let (status, told) = pair.client(&["--bytes", "3000000"]).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    let (status, told) = server.finish(LIMIT);
    assert!(status == Some(0) && told.contains(r#"{"ok":true,"bytes":3000000,"#), "{told}");
    // The server acknowledges alone, with one segment for many.
    all_signed(watch, 20);
}

#[test]
fn rules_flushed() {
    let test = "tcp_ao_clear::rules_flushed";
    let Some(pair) = Pair::new(test) else { return };
    if Command::new("nft").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip(test, "no nft to flush rules with");
    }
    let (_server, watch) = (pair.server(), pair.watch());
    let client = pair.client(&["--bytes", "30000000", "--seconds", "60"]);
    for _ in 0..30 {
        let flush = pair.lab.start(&pair.a, &["sh", "-c", "nft flush ruleset; nft delete table inet sealane"]);
        let _ = flush.finish(LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, told) = client.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    nothing_in_clear(watch);
}
