//! Workers of TCP-AO that panic, hang or get errors: sessions go on by themselves, and no segment is unsigned meanwhile.
//!
//! The faults are real: `inject.py` traces the worker, and lets its system calls fail or the thread stop.

use sealane_conformance::ipsec::program;
use sealane_conformance::lab::{Lab, Running, child};
use sealane_conformance::skip::skip_without;
use sealane_conformance::sys::signal;
use sealane_conformance::target::{Target, sealane};
use std::time::{Duration, Instant};

const PEER: &str = env!("CARGO_BIN_EXE_ao-peer");
const WATCH: &str = env!("CARGO_BIN_EXE_wire-watch");
const LIMIT: Duration = Duration::from_secs(180);
const PORT: &str = "5179";
const A: &str = "10.81.0.1";
const B: &str = "10.81.0.2";

/// Two namespaces whose wire is watched.
struct Scene {
    lab: Lab,
    spaces: [String; 2],
    watches: [Running; 2],
}

impl Scene {
    fn new(test: &str) -> Option<Self> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let spaces = [lab.space("a"), lab.space("b")];
        lab.veth([&spaces[0], &spaces[1]], ["wire", "wire"]);
        lab.address(&spaces[0], "wire", &format!("{A}/24"), "fd81::1/64");
        lab.address(&spaces[1], "wire", &format!("{B}/24"), "fd81::2/64");
        let watches = spaces.each_ref().map(|space| {
            let mut watch = lab.start(space, &[WATCH, "wire", PORT]);
            watch.expect("watching", 1);
            watch
        });
        Some(Scene { lab, spaces, watches })
    }

    fn runtime(&self, which: usize) -> String {
        format!("SEALANE_RUNTIME_DIR={}", self.lab.folder().join(format!("run{which}")).display())
    }

    /// Starts `sealane` at an end.
    fn sealane(&self, which: usize, argv: &[&str]) -> Running {
        self.sealane_by(which, &[], argv)
    }

    /// Starts `sealane` at an end, by a program that runs others.
    fn sealane_by(&self, which: usize, by: &[&str], argv: &[&str]) -> Running {
        let (exe, runtime) = (sealane(), self.runtime(which));
        self.lab.start(&self.spaces[which], &[&["env", &runtime], by, &[&*exe.to_string_lossy()], argv].concat())
    }

    /// Starts a daemon at an end.
    fn daemon(&self, which: usize) -> Running {
        self.daemon_by(which, &[])
    }

    /// Starts a daemon at an end, by a program that runs others.
    fn daemon_by(&self, which: usize, by: &[&str]) -> Running {
        let (peer, send, recv) = if which == 0 { (B, 1, 2) } else { (A, 2, 1) };
        let text = format!(
            "[[peer]]\nname = \"{peer}\"\nprefix = \"{peer}\"\nport = {PORT}\n\
             [[peer.key]]\nsend-id = {send}\nrecv-id = {recv}\nalgorithm = \"hmac(sha512)\"\nsecret = \"secret\"\n"
        );
        let path = self.lab.file(&format!("{which}.toml"), &text);
        self.lab.make_private(&path);
        let mut daemon = self.sealane_by(which, by, &["daemon", "--config", &path]);
        daemon.expect("1 peers protected", 1);
        daemon
    }

    /// Injects a fault into the worker of a process at the first end.
    fn inject(&self, id: u32, how: &str) -> Running {
        let (inject, id) = (program("inject.py"), id.to_string());
        let argv: Vec<&str> = ["python3", &inject, &id, "sealane-ao"].into_iter().chain(how.split(' ')).collect();
        let mut injection = self.lab.start(&self.spaces[0], &argv);
        injection.expect("injects", 1);
        injection
    }

    /// The value of a metric at the first end.
    fn metric(&self, name: &str) -> u64 {
        let (status, text) = self.sealane(0, &["tcp-ao", "show", "--metrics"]).finish(LIMIT);
        assert_eq!(status, Some(0), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        line.and_then(|(_, value)| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
    }

    /// Waits until an injection has made so many calls fail.
    fn wait(&self, injection: Running, count: u64) {
        let start = Instant::now();
        while !injection.output().contains("done") {
            assert!(start.elapsed() < LIMIT, "{}", injection.output());
            std::thread::sleep(Duration::from_millis(10));
        }
        let (_, told) = injection.finish(LIMIT);
        assert!(told.contains(&format!("done {count}")), "{told}");
    }

    /// All segments were signed.
    fn end(self) {
        for watch in self.watches {
            let (status, told) = watch.finish(LIMIT);
            assert_eq!(status, Some(0), "not all segments on the wire were signed: {told}");
        }
    }
}

/// A session between two daemons, in which one end sends without an end.
fn session(scene: &Scene) -> [Running; 2] {
    let none = scene.lab.file("none", "");
    let at = format!("{B}:{PORT}");
    let mut server = scene.lab.start(&scene.spaces[1], &[PEER, "serve", &at, "--keys", &none]);
    server.expect("listening", 1);
    let argv = [PEER, "connect", &at, "--keys", &none, "--bytes", "1000000000000", "--seconds", "120"];
    let client = scene.lab.start(&scene.spaces[0], &argv);
    scene.lab.sends(&scene.spaces[0], "wire", 300);
    [server, client]
}

/// A worker that panics or hangs: the daemon starts again by itself, and the session goes on.
#[test]
fn workers_that_fail_are_back() {
    let Some(mut scene) = Scene::new("tcp_ao_faults::workers_that_fail_are_back") else { return };
    scene.lab.makes_panics();
    let (mut daemon, _other) = (scene.daemon(0), scene.daemon(1));
    let [_server, client] = session(&scene);
    let mut starts = 1;
    for (how, reason) in
        [("long sendmmsg 1", "panic"), ("stop recvmmsg", "hang"), ("freeze", "hang"), ("long sendmmsg 1", "panic")]
    {
        let counter = format!("sealane_failures_total{{reason=\"{reason}\"}}");
        let before = scene.metric(&counter);
        let from = Instant::now();
        let injection = scene.inject(daemon.id(), how);
        starts += 1;
        daemon.expect("1 peers protected", starts);
        println!("{how}: a new daemon after {} ms", from.elapsed().as_millis());
        scene.wait(injection, 1);
        scene.lab.sends(&scene.spaces[0], "wire", 300);
        println!("{how}: 300 segments after {} ms", from.elapsed().as_millis());
        assert_eq!(scene.metric(&counter), before + 1, "{how}");
        let told = daemon.output();
        assert_eq!(told.matches("starting again").count() + 1, starts, "{told}");
        assert_eq!(told.matches("1 connections go on").count() + 1, starts, "{told}");
        assert_eq!(client.output(), "", "{how}: it sends");
    }
    drop(client);
    scene.end();
}

/// Errors that pass by themselves end nothing.
#[test]
fn errors_that_pass_end_nothing() {
    let Some(scene) = Scene::new("tcp_ao_faults::errors_that_pass_end_nothing") else { return };
    let (mut daemon, _other) = (scene.daemon(0), scene.daemon(1));
    let [_server, client] = session(&scene);
    for (errno, calls) in [
        ("ENOBUFS", "sendmmsg"),
        ("ENOBUFS", "recvmmsg"),
        ("ENOMEM", "recvmmsg"),
        ("ENOMEM", "sendto"),
        ("ENOMEM", "epoll_pwait,epoll_pwait2"),
    ] {
        let counter = format!("sealane_transient_errors_total{{errno=\"{errno}\"}}");
        let before = scene.metric(&counter);
        let injection = scene.inject(daemon.id(), &format!("{errno} {calls} 20"));
        scene.wait(injection, 20);
        assert!(scene.metric(&counter) >= before + 20, "{errno} {calls}");
        scene.lab.sends(&scene.spaces[0], "wire", 300);
        assert_eq!(client.output(), "", "{errno} {calls}: it sends");
    }
    // It is reported now and then, not once for each.
    ["ENOBUFS", "ENOMEM"].iter().for_each(|errno| daemon.expect(&format!("({errno})"), 1));
    let told = daemon.output();
    for errno in ["ENOBUFS", "ENOMEM"] {
        assert!((1..10).contains(&told.matches(&format!("({errno})")).count()), "{errno}: {told}");
    }
    assert!(!told.contains("starting again"), "{told}");
    drop(client);
    scene.end();
}

/// To open and close what the fast path needs takes the kernel seconds on a busy machine. The worker, for which all segments wait,
/// sets no option of a packet socket: here that would fail.
#[test]
fn a_worker_opens_no_device() {
    let Some(scene) = Scene::new("tcp_ao_faults::a_worker_opens_no_device") else { return };
    let refuse = program("refuse_to_thread.py");
    let (daemon, _other) = (scene.daemon_by(0, &["python3", &refuse, "sealane-ao"]), scene.daemon(1));
    let [_server, client] = session(&scene);
    let start = Instant::now();
    let connections = |wanted: u64| {
        while scene.metric("sealane_tcp_ao_fast_path_connections") != wanted {
            assert!(start.elapsed() < LIMIT, "not {wanted} connections by the fast path");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    connections(1);
    drop(client);
    // It is idle, and its device is closed.
    connections(0);
    let devices = || scene.lab.start(&scene.spaces[0], &["ip", "-o", "link", "show"]).finish(LIMIT).1;
    while devices().contains("sealane-ao") {
        assert!(start.elapsed() < LIMIT, "{}", devices());
    }
    assert!(!daemon.output().contains("refused"), "{}", daemon.output());
    scene.end();
}

/// Echoes what comes by one connection.
const ECHO: &str = r#"
import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
c, _ = s.accept()
while data := c.recv(100):
    c.sendall(data)
"#;

/// Sends a byte and waits for its echo whenever it is told to.
const ASK: &str = r#"
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for _ in sys.stdin:
    c.sendall(b"?")
    assert c.recv(1) == b"?"
    print("answered", flush=True)
"#;

/// Where a verdict cannot be sent at all its packet is dropped a little later. A program that waits for an answer sends nothing else
/// that would bring it about, and TCP repeats nothing that still waits in a queue.
#[test]
fn a_verdict_that_cannot_be_sent_stops_no_connection() {
    let Some(scene) = Scene::new("tcp_ao_faults::a_verdict_that_cannot_be_sent_stops_no_connection") else { return };
    let (daemon, _other) = (scene.daemon(0), scene.daemon(1));
    let mut server = scene.lab.start(&scene.spaces[1], &["python3", "-c", ECHO, B, PORT]);
    server.expect("listening", 1);
    let mut client = scene.lab.start(&scene.spaces[0], &["python3", "-c", ASK, B, PORT]);
    for round in 1..=3 {
        client.tell("ask");
        client.expect("answered", 2 * round - 1);
        // An answer without an acknowledgement would be repeated, and bring about that there is more to send.
        let start = Instant::now();
        while scene.lab.start(&scene.spaces[1], &["ss", "-tinH"]).finish(LIMIT).1.contains("unacked") {
            assert!(start.elapsed() < LIMIT, "no acknowledgement");
        }
        // One verdict is tried ten times.
        let injection = scene.inject(daemon.id(), "ENOBUFS sendto 12");
        client.tell("ask");
        scene.wait(injection, 12);
        client.expect("answered", 2 * round);
    }
    drop(client);
    scene.end();
}

/// A worker of `sealane run` that panics is replaced by another one, and the program's session goes on.
#[test]
fn a_worker_of_a_launcher_is_replaced() {
    let Some(mut scene) = Scene::new("tcp_ao_faults::a_worker_of_a_launcher_is_replaced") else { return };
    scene.lab.makes_panics();
    let keys = [scene.lab.file("a", "hmac(sha256) 1 2 12 0 k"), scene.lab.file("b", "hmac(sha256) 2 1 12 0 k")];
    let at = format!("{B}:{PORT}");
    let run = ["run", "--tcp-ao", "--", PEER];
    let serve = ["serve", &at, "--peer", &format!("{A}/32"), "--keys", &keys[1]];
    let mut server = scene.sealane(1, &[&run[..], &serve].concat());
    server.expect("listening on", 1);
    let connect = ["connect", &at, "--keys", &keys[0], "--bytes", "1000000000000", "--seconds", "120"];
    let client = scene.sealane(0, &[&run[..], &connect].concat());
    scene.lab.sends(&scene.spaces[0], "wire", 300);
    for round in 1..=2 {
        let injection = scene.inject(client.launcher(), "long sendmmsg 1");
        scene.wait(injection, 1);
        scene.lab.sends(&scene.spaces[0], "wire", 300);
        assert_eq!(scene.metric("sealane_tcp_ao_worker_restarts_total"), round);
        assert!(client.output().contains("another one takes its place"), "{}", client.output());
    }
    drop(client);
    scene.end();
}

/// A client under a launcher, and a daemon with a server at the other end; both ends with further arguments.
fn under_a_launcher(scene: &Scene, serve: &[&str], connect: &[&str]) -> (Running, [Running; 2]) {
    let daemon = scene.daemon(1);
    let (none, keys) = (scene.lab.file("none", ""), scene.lab.file("keys", "hmac(sha512) 1 2 12 0 secret"));
    let at = format!("{B}:{PORT}");
    let mut server = scene.lab.start(&scene.spaces[1], &[&[PEER, "serve", &at, "--keys", &none], serve].concat());
    server.expect("listening", 1);
    let client = [&["run", "--tcp-ao", "--", PEER, "connect", &at, "--keys", &keys], connect].concat();
    (scene.sealane(0, &client), [daemon, server])
}

/// Connections that cannot be ended when their program has gone keep the rules, which drop what the kernel still repeats for them.
#[test]
fn connections_that_stay_keep_the_rules() {
    let Some(scene) = Scene::new("tcp_ao_faults::connections_that_stay_keep_the_rules") else { return };
    let (client, _others) = under_a_launcher(&scene, &[], &["--bytes", "1000000000000", "--seconds", "120"]);
    scene.lab.sends(&scene.spaces[0], "wire", 300);
    let launcher = client.launcher();
    // A launcher that gets no descriptors cannot ask the kernel for anything new.
    let argv = ["prlimit", "--pid", &launcher.to_string(), "--nofile=3"];
    let (status, told) = scene.lab.start(&scene.spaces[0], &argv).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    // From now on nothing comes back.
    let deaf = "add table ip deaf; add chain ip deaf in { type filter hook prerouting priority raw; policy drop; }";
    let (status, told) = scene.lab.start(&scene.spaces[1], &["nft", deaf]).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    signal(child(launcher), libc::SIGKILL);
    let (status, told) = client.finish(LIMIT);
    assert!(status == Some(128 + libc::SIGKILL) && told.contains("could not be ended"), "{status:?}: {told}");
    let repeated = || {
        let (_, text) = scene.lab.start(&scene.spaces[0], &["nstat", "-asz", "TcpRetransSegs"]).finish(LIMIT);
        let value =
            text.lines().find_map(|line| line.strip_prefix("TcpRetransSegs")?.split_whitespace().next()?.parse().ok());
        value.unwrap_or_else(|| panic!("{text}"))
    };
    let (before, start): (u64, _) = (repeated(), Instant::now());
    while repeated() < before + 2 {
        assert!(start.elapsed() < LIMIT, "nothing is repeated");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (status, told) = scene.sealane(0, &["tcp-ao", "clear"]).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    scene.end();
}

/// A program that has ended leaves data on the way, which a slow peer takes in its time. Whoever does not want to wait is told
/// how to end that, and nothing leaves unsigned then either.
#[test]
fn a_signal_ends_the_wait_for_last_bytes() {
    let Some(scene) = Scene::new("tcp_ao_faults::a_signal_ends_the_wait_for_last_bytes") else { return };
    let (mut client, _others) = under_a_launcher(&scene, &["--slow"], &["--bytes", "8000000", "--leave"]);
    client.expect("waits for peers to take its last bytes", 1);
    client.signal(libc::SIGTERM);
    let (status, told) = client.finish(LIMIT);
    assert!(status == Some(0) && told.contains("end at once"), "{status:?}: {told}");
    scene.end();
}
