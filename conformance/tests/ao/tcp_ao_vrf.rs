//! VRFs: two at each end, with the same addresses in both and a wire for each, all in one network namespace with a daemon. At both
//! ends `wire-watch` counts the outbound segments without option 29: none.
//!
//! Needs a kernel with VRF devices; `conformance/suites/never.sh` runs it inside those that have them.

use crate::two_ends::{PEER, PORT, nothing_in_clear, watch};
use sealane_conformance::ipsec::{LIMIT, program};
use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::{Target, sealane};
use std::process::Command;

const FROM: &str = "40000";
const VRFS: [&str; 2] = ["red", "blue"];

/// Two hosts.
struct Pair {
    lab: Lab,
    spaces: [String; 2],
    daemons: [Option<Running>; 2],
    configs: [String; 2],
    v6: bool,
}

impl Pair {
    /// `configs` are those of the daemons.
    fn new(test: &str, v6: bool, configs: [&str; 2]) -> Option<Pair> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let spaces = ["a", "b"].map(|which| lab.space(which));
        let words = ["-n", &spaces[0], "link", "add", "probe", "type", "vrf", "table", "99"];
        if !Command::new("ip").args(words).output().is_ok_and(|done| done.status.success()) {
            skip(test, "this kernel has no VRF devices");
            return None;
        }
        lab.ip(&spaces[0], "link del probe");
        for (table, vrf) in VRFS.iter().enumerate() {
            let wire = wire(vrf);
            lab.veth([&spaces[0], &spaces[1]], [&wire, &wire]);
            for (end, space) in spaces.iter().enumerate() {
                lab.ip(space, &format!("link add {vrf} type vrf table {}", 10 + table));
                lab.ip(space, &format!("link set {vrf} up"));
                lab.ip(space, &format!("link set {wire} master {vrf}"));
                lab.address(space, &wire, &format!("10.85.0.{}/24", end + 1), &format!("fd85::{}/64", end + 1));
            }
        }
        let configs = ["a", "b"].map(|which| lab.file(&format!("{which}.toml"), configs[usize::from(which == "b")]));
        configs.iter().for_each(|config| lab.make_private(config));
        let mut pair = Pair { lab, spaces, daemons: [None, None], configs, v6 };
        pair.start(0);
        pair.start(1);
        Some(pair)
    }

    fn runtime(&self, end: usize) -> String {
        format!("SEALANE_RUNTIME_DIR={}", self.lab.folder().join(format!("run{end}")).display())
    }

    fn start(&mut self, end: usize) {
        let (exe, runtime) = (sealane(), self.runtime(end));
        let argv = ["env", &runtime, &*exe.to_string_lossy(), "daemon", "--config", &self.configs[end]];
        let mut daemon = self.lab.start(&self.spaces[end], &argv);
        daemon.expect("peers protected", 1);
        self.daemons[end] = Some(daemon);
    }

    fn restart(&mut self, end: usize, signal: i32) {
        let daemon = self.daemons[end].take().expect("it runs");
        daemon.signal(signal);
        daemon.finish(LIMIT);
        self.start(end);
    }

    fn daemon(&mut self, end: usize) -> &mut Running {
        self.daemons[end].as_mut().expect("it runs")
    }

    /// The address of an end, which is the same in both VRFs.
    fn address(&self, end: usize) -> String {
        if self.v6 { format!("fd85::{}", end + 1) } else { format!("10.85.0.{}", end + 1) }
    }

    fn at(&self, end: usize, port: &str) -> String {
        if self.v6 { format!("[{}]:{port}", self.address(end)) } else { format!("{}:{port}", self.address(end)) }
    }

    /// Starts a program: by a launcher if it has keys of its own.
    fn launch(&self, end: usize, has_keys: bool, argv: &[&str]) -> Running {
        let (exe, runtime) = (sealane().to_string_lossy().into_owned(), self.runtime(end));
        let launcher = ["env", &runtime, &exe, "run", "--tcp-ao", "--"];
        self.lab.start(&self.spaces[end], &[if has_keys { &launcher[..] } else { &[] }, argv].concat())
    }

    /// The file with the key of an end: `secret`, with these flags; without a secret, no key.
    fn keys(&self, end: usize, secret: &str, flags: u8) -> String {
        let (send, recv) = (1 + end, 2 - end);
        let text = format!("hmac(sha256) {send} {recv} 12 {flags} {secret}\n");
        self.lab.file(&format!("{secret}{flags}{end}"), if secret.is_empty() { "" } else { &text })
    }

    /// Starts a listener of the second end that is bound to `device`.
    fn server(&self, device: &str, secret: &str, flags: u8) -> Running {
        let (at, keys) = (self.at(1, PORT), self.keys(1, secret, flags));
        let peer = format!("{}/{}", self.address(0), if self.v6 { 128 } else { 32 });
        let vrf = device.trim_start_matches("to-");
        let argv = [
            PEER,
            "serve",
            &at,
            "--peer",
            &peer,
            "--keys",
            &keys,
            "--count",
            "1000",
            "--seconds",
            "600",
            "--device",
            device,
            "--vrf",
            vrf,
        ];
        let mut server = self.launch(1, !secret.is_empty(), &argv);
        server.expect("listening on", 1);
        server
    }

    /// Starts a client of the first end that is bound to `device`.
    fn client(&self, device: &str, secret: &str, flags: u8, how: &[&str]) -> Running {
        let (at, keys) = (self.at(1, PORT), self.keys(0, secret, flags));
        let vrf = device.trim_start_matches("to-");
        let argv = [PEER, "connect", &at, "--keys", &keys, "--device", device, "--vrf", vrf];
        self.launch(0, !secret.is_empty(), &[&argv[..], how].concat())
    }

    fn assert_answers(&self, device: &str, secret: &str, flags: u8) {
        let (status, told) = self.client(device, secret, flags, &["--ping", "10"]).finish(LIMIT);
        assert_eq!(status, Some(0), "{device}: {told}");
    }

    fn assert_silence(&self, device: &str, secret: &str, flags: u8) {
        let (status, told) = self.client(device, secret, flags, &["--ping", "1", "--seconds", "3"]).finish(LIMIT);
        assert!(status != Some(0), "{device}: {told}");
    }

    /// Waits until both ends have sent more in a VRF.
    fn goes_on(&self, vrf: &str) {
        self.lab.sends(&self.spaces[0], &wire(vrf), 300);
        self.lab.sends(&self.spaces[1], &wire(vrf), 30);
    }

    fn watch(&self, vrfs: &[&str]) -> Vec<Running> {
        let start = |(vrf, space): (&&str, &String)| watch(&self.lab, space, &wire(vrf));
        vrfs.iter().flat_map(|vrf| self.spaces.iter().map(move |space| (vrf, space))).map(start).collect()
    }
}

/// The device in a VRF.
fn wire(vrf: &str) -> String {
    format!("to-{vrf}")
}

const PROGRAMS: &str = "[tcp-ao]\n";

/// Programs with keys have connections between the same addresses and ports in both VRFs: each with its own keys, which are bound
/// to the VRF in one of them, across restarts of the daemons, and with sockets that are bound to a device of the VRF.
#[test]
fn the_same_ends_in_two_vrfs() {
    for v6 in [false, true] {
        let test = "tcp_ao_vrf::the_same_ends_in_two_vrfs";
        let Some(mut pair) = Pair::new(test, v6, [PROGRAMS; 2]) else { return };
        let watch = pair.watch(&VRFS);
        let _servers = VRFS.map(|vrf| pair.server(vrf, vrf, u8::from(vrf == "red")));
        let local = pair.at(0, FROM);
        let how = ["--until-told", "--seconds", "600", "--local", &local];
        let clients = VRFS.map(|vrf| pair.client(vrf, vrf, u8::from(vrf == "red"), &how));
        VRFS.iter().for_each(|vrf| pair.goes_on(vrf));
        for (end, signal) in [(1, libc::SIGKILL), (0, libc::SIGKILL), (1, libc::SIGTERM), (0, libc::SIGTERM)] {
            pair.restart(end, signal);
            assert!(pair.daemon(end).output().contains("2 connections of programs go on"), "v6 {v6}: {end}, {signal}");
            VRFS.iter().for_each(|vrf| pair.goes_on(vrf));
        }
        let shown = pair.launch(0, false, &["env", &pair.runtime(0), &sealane().to_string_lossy(), "tcp-ao", "show"]);
        let (_, told) = shown.finish(LIMIT);
        assert!(VRFS.iter().all(|vrf| told.contains(&format!(", VRF {vrf}"))), "{told}");
        for client in clients {
            let (status, told) = client.finish(LIMIT);
            assert_eq!(status, Some(0), "v6 {v6}: {told}");
        }
        for (vrf, other) in [("red", "blue"), ("blue", "red")] {
            pair.assert_answers(&wire(vrf), vrf, 0);
            pair.assert_answers(&wire(vrf), vrf, 1);
            pair.assert_silence(vrf, other, 0);
        }
        nothing_in_clear(watch);
    }
}

/// A listener that is bound to a device of the VRF is found, as one that is bound to none, where these take segments of all VRFs.
#[test]
fn listeners_of_all_kinds() {
    let Some(pair) = Pair::new("tcp_ao_vrf::listeners_of_all_kinds", false, [PROGRAMS; 2]) else { return };
    let watch = pair.watch(&VRFS);
    let server = pair.server("to-red", "one", 1);
    pair.assert_answers("red", "one", 1);
    pair.assert_silence("red", "other", 0);
    pair.assert_silence("blue", "one", 0);
    server.signal(libc::SIGTERM);
    server.finish(LIMIT);
    let (at, peer, keys) = (pair.at(1, PORT), format!("{}/32", pair.address(0)), pair.keys(1, "all", 0));
    let argv = [PEER, "serve", &at, "--peer", &peer, "--keys", &keys, "--count", "1000", "--seconds", "600"];
    pair.lab.ip(&pair.spaces[1], "addr add 10.85.0.2/32 dev lo");
    let mut server = pair.launch(1, true, &argv);
    server.expect("listening on", 1);
    pair.assert_silence("red", "all", 0);
    // It listens on the address itself, and does not hide one in the VRF that listens on all.
    let (any, keys) = (format!("0.0.0.0:{PORT}"), pair.keys(1, "one", 1));
    let mut argv = vec![PEER, "serve", &any, "--peer", &peer, "--keys", &keys, "--count", "1000", "--seconds", "600"];
    argv.extend(["--device", "red", "--vrf", "red"]);
    let mut hidden = pair.launch(1, true, &argv);
    hidden.expect("listening on", 1);
    pair.assert_answers("red", "one", 1);
    pair.assert_silence("red", "all", 0);
    hidden.signal(libc::SIGTERM);
    hidden.finish(LIMIT);
    let accept = ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/tcp_l3mdev_accept"];
    assert_eq!(pair.lab.start(&pair.spaces[1], &accept).finish(LIMIT), (Some(0), String::new()));
    VRFS.iter().for_each(|vrf| pair.assert_answers(vrf, "all", 0));
    pair.assert_silence("blue", "other", 0);
    nothing_in_clear(watch);
}

/// The configuration of an end with a peer in each VRF of `vrfs`.
fn peers(end: usize, vrfs: &[&str]) -> String {
    let peer = |vrf: &&str| {
        let (name, to, send, recv) = (format!("peer in {vrf}"), 2 - end, 1 + end, 2 - end);
        format!(
            "[[peer]]\nname = \"{name}\"\nvrf = \"{vrf}\"\nprefix = [\"10.85.0.{to}\", \"fd85::{to}\"]\nport = {PORT}\n\
             [[peer.key]]\nsend-id = {send}\nrecv-id = {recv}\nalgorithm = \"hmac(sha1)\"\nsecret = \"{vrf}\"\n"
        )
    };
    vrfs.iter().map(peer).collect()
}

/// Configured peers are those of a VRF: connections of the other one have other keys, or none.
#[test]
fn configured_peers_of_a_vrf() {
    for vrfs in [&VRFS[..], &VRFS[..1]] {
        let configs = [0, 1].map(|end| peers(end, vrfs));
        let test = "tcp_ao_vrf::configured_peers_of_a_vrf";
        let Some(mut pair) = Pair::new(test, false, [&configs[0], &configs[1]]) else { return };
        let watch = pair.watch(vrfs);
        let _servers = VRFS.map(|vrf| pair.server(vrf, "", 0));
        let local = pair.at(0, FROM);
        let how = ["--until-told", "--seconds", "600", "--local", &local];
        let clients = VRFS.map(|vrf| pair.client(vrf, "", 0, &how));
        VRFS.iter().for_each(|vrf| pair.goes_on(vrf));
        for end in [1, 0] {
            pair.restart(end, libc::SIGKILL);
            let told = format!("{} connections go on", vrfs.len());
            assert!(pair.daemon(end).output().contains(&told), "{}", pair.daemon(end).output());
            VRFS.iter().for_each(|vrf| pair.goes_on(vrf));
        }
        for client in clients {
            let (status, told) = client.finish(LIMIT);
            assert_eq!(status, Some(0), "{told}");
        }
        nothing_in_clear(watch);
    }
}

/// A VRF that gets another name, loses its device or goes leaves nothing in clear.
#[test]
fn vrfs_that_change() {
    let configs = [0, 1].map(|end| peers(end, &VRFS[..1]));
    let Some(mut pair) = Pair::new("tcp_ao_vrf::vrfs_that_change", false, [&configs[0], &configs[1]]) else { return };
    let watch = pair.watch(&["red"]);
    let _server = pair.server("red", "", 0);
    pair.assert_answers("red", "", 0);
    let ip = |pair: &Pair, words: &str| pair.lab.ip(&pair.spaces[0], words);
    ip(&pair, "link set red down");
    ip(&pair, "link set red name rot");
    ip(&pair, "link set rot up");
    pair.daemon(0).expect("there is no VRF red", 1);
    pair.assert_silence("rot", "", 0);
    ip(&pair, "link set rot down");
    ip(&pair, "link set rot name red");
    ip(&pair, "link set red up");
    pair.daemon(0).expect("there is a VRF red", 1);
    pair.assert_answers("red", "", 0);
    // Its device goes to the other one, where the peer has no key, and comes back while a connection is there.
    let sending = pair.client("red", "", 0, &["--until-told", "--seconds", "600"]);
    pair.goes_on("red");
    ip(&pair, "link set to-red master blue");
    pair.daemon(0).expect("VRFs or the devices in them have changed", 1);
    ip(&pair, "link set to-red master red");
    ip(&pair, "addr replace 10.85.0.1/24 dev to-red");
    pair.goes_on("red");
    let (status, told) = sending.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    let _left = pair.client("red", "", 0, &["--until-told", "--seconds", "600"]);
    pair.goes_on("red");
    ip(&pair, "link del red");
    pair.daemon(0).expect("there is no VRF red", 2);
    ip(&pair, "addr replace 10.85.0.1/24 dev to-red");
    pair.assert_silence("to-red", "", 0);
    nothing_in_clear(watch);
}

/// Connections of sockets that are bound to a device go with it into another VRF, with the keys that they have.
#[test]
fn connections_go_with_their_device() {
    let configs = [0, 1].map(|end| peers(end, &VRFS[..1]));
    let test = "tcp_ao_vrf::connections_go_with_their_device";
    let Some(pair) = Pair::new(test, false, [&configs[0], &configs[1]]) else { return };
    let watch = pair.watch(&["red"]);
    let _server = pair.server(&wire("red"), "", 0);
    let client = pair.client(&wire("red"), "", 0, &["--until-told", "--seconds", "600"]);
    pair.goes_on("red");
    for place in ["nomaster", "master red"] {
        for (end, space) in pair.spaces.iter().enumerate() {
            pair.lab.ip(space, &format!("link set to-red {place}"));
            pair.lab.ip(space, &format!("addr replace 10.85.0.{}/24 dev to-red", end + 1));
        }
        pair.goes_on("red");
    }
    let (status, told) = client.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    nothing_in_clear(watch);
}

/// Calls about VRFs are answered as by Linux 7.3, whose answers are recorded; where the kernel has TCP-AO itself, it is asked, too.
#[test]
fn calls_are_answered_as_by_linux() {
    let test = "tcp_ao_vrf::calls_are_answered_as_by_linux";
    let Some(pair) = Pair::new(test, false, ["", PROGRAMS]) else { return };
    let recorded = include_str!("../../vectors/ao-vrf-linux-7.3.txt");
    let (_, recorded) = recorded.split_once('\n').expect("a line about the kernel");
    // Keys are looked for before routes (AO-03).
    pair.spaces.iter().for_each(|space| pair.lab.ip(space, "route add 10.85.0.9 dev lo"));
    let script = program("ao_vrf.py");
    let asked = |end: usize| pair.launch(end, end == 1, &["python3", &script]).finish(LIMIT);
    assert_eq!(asked(1), (Some(0), recorded.to_owned()));
    let (status, kernel) = asked(0);
    assert!(status == Some(0) && (kernel == recorded || kernel == "no TCP-AO\n"), "{kernel}");
}
