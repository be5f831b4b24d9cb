//! The fast path of TCP-AO: bulk data takes it, it leaves nothing behind, and connections survive changes of devices
//! and rules. Over VLAN devices the queues are tried too. Every byte is compared (`ao-peer`), and the outbound segments
//! of both ends are watched (`wire-watch`).

use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::{Target, sealane};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PEER: &str = env!("CARGO_BIN_EXE_ao-peer");
const WATCH: &str = env!("CARGO_BIN_EXE_wire-watch");
const LINK: &str = env!("CARGO_BIN_EXE_lossy-link");
const LIMIT: Duration = Duration::from_secs(120);
const PORT: &str = "6179";

/// Two namespaces; the client sends from the first to the second.
struct Pair {
    lab: Lab,
    spaces: [String; 2],
    device: &'static str,
    target: String,
    from: String,
    keys: [String; 2],
    /// The path that both launchers are asked for.
    wanted: &'static str,
}

impl Pair {
    fn new(test: &str, v6: bool, vlan: bool) -> Option<Self> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let spaces = [lab.space("a"), lab.space("b")];
        lab.veth([&spaces[0], &spaces[1]], ["wire", "wire"]);
        let device = if vlan { "wire.7" } else { "wire" };
        for (i, space) in spaces.iter().enumerate() {
            if vlan {
                lab.ip(space, "link set wire up");
                lab.ip(space, "link add link wire name wire.7 type vlan id 7");
            }
            lab.address(space, device, &format!("10.82.0.{}/24", i + 1), &format!("fd82::{}/64", i + 1));
        }
        let keys = [("a", "1 2", "3 4"), ("b", "2 1", "4 3")].map(|(end, used, other)| {
            lab.file(end, &format!("hmac(sha256) {other} 12 0 another-key\ncmac(aes128) {used} 12 0 the-key"))
        });
        let (target, from) = match v6 {
            true => (format!("[fd82::2]:{PORT}"), "fd82::1/128".to_owned()),
            false => (format!("10.82.0.2:{PORT}"), "10.82.0.1/32".to_owned()),
        };
        Some(Pair { lab, spaces, device, target, from, keys, wanted: "auto" })
    }

    fn runtime(&self, which: usize) -> String {
        format!("SEALANE_RUNTIME_DIR={}", self.lab.folder().join(format!("run{which}")).display())
    }

    fn sealane(&self, which: usize, args: &[&str]) -> Running {
        let (exe, runtime) = (sealane().display().to_string(), self.runtime(which));
        let argv = [&["env", &*runtime, &*exe, "run", "--tcp-ao", "--tcp-ao-path", self.wanted, "--"], args].concat();
        self.lab.start(&self.spaces[which], &argv)
    }

    fn server(&self) -> Running {
        let args = [PEER, "serve", &self.target, "--peer", &self.from, "--keys", &self.keys[1], "--count", "1"];
        let mut server = self.sealane(1, &[&args[..], &["--seconds", "100"]].concat());
        server.expect("listening on", 1);
        server
    }

    /// A client that sends until it is told to end, or so many bytes.
    fn client(&self, how: &[&str]) -> Running {
        let args = [&[PEER, "connect", &self.target, "--keys", &self.keys[0]], how].concat();
        self.sealane(0, &[&args[..], &["--seconds", "100"]].concat())
    }

    /// Watches the outbound segments of each end.
    fn watch(&self) -> [Running; 2] {
        self.spaces.each_ref().map(|space| {
            let mut watch = self.lab.start(space, &[WATCH, self.device, PORT]);
            watch.expect("watching", 1);
            watch
        })
    }

    /// Returns the path of an end, as `tcp-ao show` prints it.
    fn path(&self, which: usize) -> Value {
        let mut show = Command::new(sealane());
        let runtime = self.runtime(which);
        let (name, folder) = runtime.split_once('=').unwrap();
        let told = show.args(["tcp-ao", "show", "--json"]).env(name, folder).output().unwrap();
        let all: Value = serde_json::from_slice(&told.stdout).unwrap_or_else(|e| panic!("{e}: {told:?}"));
        all[0]["namespaces"][0]["path"].clone()
    }

    /// Waits until bulk data reaches the server by the fast path, and returns the server's path.
    fn expect_fast(&self) -> Value {
        let start = Instant::now();
        loop {
            let path = self.path(1);
            if path["fast_in"].as_u64().is_some_and(|n| n > 5000) && path["connections"] == 1 {
                return path;
            }
            assert!(start.elapsed() < LIMIT, "no fast path: {path}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the server's end gives up the fast path on its device, and returns the reason.
    fn expect_given_up(&self) -> String {
        let start = Instant::now();
        loop {
            let path = self.path(1);
            if let Some(why) = path["not_fast"][0]["why"].as_str() {
                assert!(path["not_fast"][0]["device"] == self.device && path["connections"] == 0, "{path}");
                return why.to_owned();
            }
            assert!(start.elapsed() < LIMIT, "still on the fast path: {path}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a shell line in one of the namespaces.
    fn sh(&self, which: usize, line: &str) {
        let (status, told) = self.lab.start(&self.spaces[which], &["sh", "-c", line]).finish(LIMIT);
        assert_eq!(status, Some(0), "{line}: {told}");
    }

    /// Lists Sealane's devices and tables in a namespace.
    fn left(&self, which: usize) -> String {
        let list = "ip -o link show 2>/dev/null | grep -o 'sealane-ao[0-9]*' || true; nft list tables 2>/dev/null | grep sealane || true";
        self.lab.start(&self.spaces[which], &["sh", "-c", list]).finish(LIMIT).1
    }
}

/// Ends the ends and their watches, all of which were content; returns what the client has told.
fn well(ends: [Running; 2], watch: [Running; 2]) -> String {
    let [client, _] = ends.map(|end| {
        let (status, told) = end.finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
        told
    });
    for watch in watch {
        let (status, told) = watch.finish(LIMIT);
        assert_eq!(status, Some(0), "not all segments on the wire were signed: {told}");
    }
    client
}

fn have(test: &str, tool: &str, args: &[&str]) -> bool {
    let mut command = Command::new(tool);
    let there = command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if !there {
        skip(test, &format!("no {tool} here"));
    }
    there
}

/// Sends bulk data by one path, while the server's keys rotate.
fn bulk(test: &str, vlan: bool, wanted: &'static str) {
    for v6 in [false, true] {
        let Some(pair) = Pair::new(test, v6, vlan) else { return };
        let pair = Pair { wanted, ..pair };
        let (watch, server) = (pair.watch(), pair.server());
        let client = pair.client(&["--until-told", "--rotate", "15"]);
        if wanted == "auto" {
            let path = pair.expect_fast();
            assert!(path["not_fast"] == Value::Array(vec![]), "v6 {v6}, VLAN {vlan}: {path}");
            assert!(pair.left(1).contains("sealane-ao0"), "a device to give back by");
        } else {
            pair.lab.sends(&pair.spaces[0], pair.device, 2000);
            let path = pair.path(1);
            assert!(path["wanted"] == wanted && path["fast_in"] == 0, "v6 {v6}, VLAN {vlan}: {path}");
        }
        let told = well([client, server], watch);
        assert!(told.contains("\"rotations\":") && !told.contains("\"rotations\":0"), "{told}");
        for which in [0, 1] {
            assert_eq!(pair.left(which), "", "v6 {v6}, VLAN {vlan}");
        }
    }
}

#[test]
fn bulk_data_takes_it_and_nothing_is_left() {
    bulk("tcp_ao_fast::bulk", false, "auto");
}

#[test]
fn bulk_data_of_a_vlan_too() {
    let test = "tcp_ao_fast::vlan";
    let Some(mut lab) = Lab::new(test) else { return };
    let space = lab.space("a");
    // Not on lo, which takes none on any kernel.
    lab.ip(&space, "link add wire type veth");
    let probe = ["-n", &*space, "link", "add", "link", "wire", "name", "wire.7", "type", "vlan", "id", "7"];
    let vlans = Command::new("ip").args(probe).output().is_ok_and(|o| o.status.success());
    if !vlans {
        return skip(test, "this kernel makes no VLAN devices");
    }
    bulk(test, true, "auto");
    bulk(test, true, "queue");
}

#[test]
fn asked_for_the_queues_it_takes_the_queues() {
    let Some(pair) = Pair::new("tcp_ao_fast::queues", false, false) else { return };
    let (exe, runtime, folder) = (sealane().display().to_string(), pair.runtime(1), "SEALANE_TCP_AO_PATH=queue");
    let serve = [PEER, "serve", &pair.target, "--peer", &pair.from, "--keys", &pair.keys[1], "--count", "1"];
    let run = ["env", &*runtime, folder, &*exe, "run", "--tcp-ao", "--"];
    let mut server = pair.lab.start(&pair.spaces[1], &[&run[..], &serve[..]].concat());
    server.expect("listening on", 1);
    let client = pair.client(&["--until-told"]);
    pair.lab.sends(&pair.spaces[0], "wire", 2000);
    let path = pair.path(1);
    assert!(path["wanted"] == "queue" && path["fast_in"] == 0, "{path}");
    drop(client);
    let run = ["env", "SEALANE_TCP_AO_PATH=fastest", &*exe, "run", "--tcp-ao", "--", "true"];
    let (status, told) = pair.lab.start(&pair.spaces[0], &run).finish(LIMIT);
    assert!(status == Some(125) && told.contains("SEALANE_TCP_AO_PATH"), "{status:?}: {told}");
}

/// A killed launcher takes its device along and leaves its rules, which drop; the next launcher leaves nothing behind.
#[test]
fn killed_and_taken_over() {
    let Some(pair) = Pair::new("tcp_ao_fast::killed", false, false) else { return };
    for _ in 0..3 {
        let watch = pair.watch();
        let (server, client) = (pair.server(), pair.client(&["--until-told"]));
        pair.expect_fast();
        server.signal(libc::SIGKILL);
        let start = Instant::now();
        while pair.left(1).contains("sealane-ao0") {
            assert!(start.elapsed() < LIMIT, "its device is still there");
        }
        // The client has lost its peer, and is not waited for.
        drop(client);
        let (server, client) = (pair.server(), pair.client(&["--until-told"]));
        pair.expect_fast();
        well([client, server], watch);
        assert_eq!(pair.left(1), "");
    }
}

#[test]
fn a_device_that_goes_down_and_another_mtu() {
    let Some(pair) = Pair::new("tcp_ao_fast::down", false, false) else { return };
    let (watch, server) = (pair.watch(), pair.server());
    let client = pair.client(&["--until-told"]);
    for round in 0..3 {
        pair.expect_fast();
        pair.sh(round % 2, "ip link set wire down; sleep 0.3; ip link set wire up");
        std::thread::sleep(Duration::from_millis(300));
        for mtu in [1300, 9000, 1500] {
            for which in [0, 1] {
                pair.sh(which, &format!("ip link set wire mtu {mtu}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    well([client, server], watch);
}

/// The wire loses, duplicates and reorders 1 % each.
#[test]
fn loss_and_reordering() {
    let Some(mut pair) = Pair::new("tcp_ao_fast::loss", false, false) else { return };
    let [a, b] = pair.spaces.clone();
    let between = pair.lab.space("between");
    pair.lab.ip(&a, "link del wire");
    for (i, space) in [&a, &b].into_iter().enumerate() {
        pair.lab.veth([space, &between], ["wire", ["left", "right"][i]]);
        pair.lab.address(space, "wire", &format!("10.82.0.{}/24", i + 1), &format!("fd82::{}/64", i + 1));
        pair.lab.ip(&between, &format!("link set {} up", ["left", "right"][i]));
    }
    let spoilt = ["--loss", "1", "--duplicate", "1", "--reorder", "1", "--seed", "5"];
    let link = pair.lab.start(&between, &[&[LINK, "left", "right"], &spoilt[..]].concat());
    let (watch, server) = (pair.watch(), pair.server());
    let client = pair.client(&["--bytes", "100000000"]);
    pair.expect_fast();
    well([client, server], watch);
    let (status, told) = link.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
}

/// The device that gives segments back is set down: the connection continues by the queue.
#[test]
fn nothing_can_be_given_back() {
    let Some(pair) = Pair::new("tcp_ao_fast::tap_down", true, false) else { return };
    let (watch, server) = (pair.watch(), pair.server());
    let client = pair.client(&["--until-told"]);
    pair.expect_fast();
    pair.sh(1, "ip link set sealane-ao0 down");
    let why = pair.expect_given_up();
    assert!(why.contains("takes nothing back"), "{why}");
    well([client, server], watch);
}

/// Other rules mark packets, so that segments that are given back reach the queue as if they came from outside.
#[test]
fn what_is_given_back_does_not_arrive() {
    let test = "tcp_ao_fast::marks";
    if !have(test, "nft", &["--version"]) {
        return;
    }
    let Some(pair) = Pair::new(test, false, false) else { return };
    let (watch, server) = (pair.watch(), pair.server());
    let client = pair.client(&["--until-told"]);
    pair.expect_fast();
    pair.sh(1, "nft 'table inet other { chain c { type filter hook prerouting priority 0; meta mark set 7; }; }'");
    let why = pair.expect_given_up();
    assert!(why.contains("did not arrive"), "{why}");
    well([client, server], watch);
}
