//! Programs that set TCP-AO keys themselves, under `sealane run --tcp-ao` where a daemon serves them: the daemon has their
//! keys, which outlive it and their launcher, and several launchers share it. At both ends `wire-watch` counts the
//! outbound segments without option 29: none.

use crate::two_ends::{A, B, Ends, PEER, PORT, connect, nothing_in_clear};
use sealane_conformance::ipsec::program;
use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, sealane};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// A second port, of a program that knows nothing of TCP-AO.
const PLAIN: &str = "6180";

/// Two namespaces with a daemon each that serves programs.
struct Hosts {
    daemons: [Option<Running>; 2],
    /// The names of their runtime folders.
    folders: [&'static str; 2],
    lab: Lab,
    spaces: [String; 2],
    configs: [String; 2],
    keys: [String; 2],
}

impl Hosts {
    fn new(test: &str) -> Option<Self> {
        Hosts::with(test, "[tcp-ao]\n", ["run-a", "run-b"])
    }

    /// Both daemons have this configuration.
    fn with(test: &str, config: &str, folders: [&'static str; 2]) -> Option<Self> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let spaces = [lab.space("a"), lab.space("b")];
        let keys = connect(&lab, &spaces);
        let configs = ["a.toml", "b.toml"].map(|name| {
            let path = lab.file(name, config);
            lab.make_private(&path);
            path
        });
        let mut hosts = Hosts { daemons: [None, None], folders, lab, spaces, configs, keys };
        hosts.start(0);
        hosts.start(1);
        Some(hosts)
    }

    fn runtime(&self, which: usize) -> String {
        format!("SEALANE_RUNTIME_DIR={}", self.lab.folder().join(self.folders[which]).display())
    }

    fn start(&mut self, which: usize) -> &Running {
        let (exe, runtime) = (sealane(), self.runtime(which));
        let argv = ["env", &runtime, &*exe.to_string_lossy(), "daemon", "--config", &self.configs[which]];
        let mut daemon = self.lab.start(&self.spaces[which], &argv);
        daemon.expect("peers protected", 1);
        self.daemons[which].insert(daemon)
    }

    fn daemon(&mut self, which: usize) -> &mut Running {
        self.daemons[which].as_mut().expect("it runs")
    }

    fn end(&mut self, which: usize, signal: i32) {
        let daemon = self.daemons[which].take().expect("it runs");
        daemon.signal(signal);
        daemon.finish(LIMIT);
    }

    /// Runs a command of the executable.
    fn sealane(&self, which: usize, words: &[&str]) -> (Option<i32>, String) {
        let (exe, runtime) = (sealane().to_string_lossy().into_owned(), self.runtime(which));
        let argv = [&["env", &runtime, &exe], words].concat();
        self.lab.start(&self.spaces[which], &argv).finish(LIMIT)
    }

    /// Starts a client that sends without end, and waits until it does.
    fn sending(&self) -> Running {
        let client = self.client(&["--bytes", "1000000000000", "--seconds", "600"]);
        self.goes_on();
        client
    }
}

impl Ends for Hosts {
    fn lab(&self) -> &Lab {
        &self.lab
    }

    fn spaces(&self) -> &[String; 2] {
        &self.spaces
    }

    fn keys(&self) -> &[String; 2] {
        &self.keys
    }

    fn launch(&self, end: usize, argv: &[&str]) -> Running {
        let (exe, runtime) = (sealane().to_string_lossy().into_owned(), self.runtime(end));
        let launcher = ["env", &runtime, &exe, "run", "--tcp-ao", "--"];
        self.lab.start(&self.spaces[end], &[&launcher, argv].concat())
    }
}

/// A connection goes on across daemons that are ended in any way at either end, the listener's keys are there for new ones,
/// and the daemon tells what it serves.
#[test]
fn keys_outlive_the_daemon() {
    let Some(mut hosts) = Hosts::new("tcp_ao_programs::keys_outlive_the_daemon") else { return };
    let watch = hosts.watch();
    let server = hosts.server();
    let client = hosts.sending();
    for (which, signal) in
        [(1, libc::SIGKILL), (0, libc::SIGKILL), (1, libc::SIGTERM), (0, libc::SIGTERM), (1, libc::SIGKILL)]
    {
        hosts.end(which, signal);
        let told = hosts.start(which).output();
        assert!(told.contains(" connections of programs go on"), "daemon {which}, signal {signal}: {told}");
        hosts.goes_on();
        hosts.assert_answers();
    }
    for which in [0, 1] {
        let (status, told) = hosts.sealane(which, &["tcp-ao", "show"]);
        assert!(status == Some(0) && told.contains("hmac(sha256)"), "{told}");
    }
    assert_eq!((client.output(), server.output().matches("fail").count()), (String::new(), 0));
    nothing_in_clear(watch);
}

/// Daemons of two network namespaces share a runtime folder: each serves the programs of its own.
#[test]
fn two_daemons_share_a_folder() {
    let test = "tcp_ao_programs::two_daemons_share_a_folder";
    let Some(mut hosts) = Hosts::with(test, "[tcp-ao]\n", ["run"; 2]) else { return };
    let watch = hosts.watch();
    let _server = hosts.server();
    let client = hosts.sending();
    for which in [0, 1, 0] {
        hosts.end(which, libc::SIGKILL);
        let told = hosts.start(which).output();
        assert!(told.contains(" connections of programs go on"), "daemon {which}: {told}");
        hosts.goes_on();
        hosts.assert_answers();
    }
    assert_eq!(client.output(), "");
    nothing_in_clear(watch);
}

/// A program goes on when its launcher is killed, and when its guard is: its connections, new ones of its listener, and new
/// sockets that get keys.
#[test]
fn programs_outlive_their_launcher() {
    let Some(mut hosts) = Hosts::new("tcp_ao_programs::programs_outlive_their_launcher") else { return };
    let watch = hosts.watch();
    let mut server = hosts.server();
    let client = hosts.sending();
    let one = format!("{PEER} connect {B}:{PORT} --keys {} --ping 2", hosts.keys[0]);
    let again = format!("while :; do {one} >/dev/null && echo done || echo lost; done");
    let mut clients = hosts.launch(0, &["sh", "-c", &again]);
    clients.expect("done", 3);
    for running in [&mut server, &mut clients] {
        let launcher = running.launcher();
        sealane_conformance::sys::signal(launcher, libc::SIGKILL);
        running.expect("its guard serves the program", 1);
        hosts.goes_on();
    }
    // The guard of the first client: its launcher stays.
    client.signal(libc::SIGKILL);
    hosts.goes_on();
    let done = clients.output().matches("done").count();
    clients.expect("done", done + 5);
    // Also when the daemon comes and goes after that.
    for which in [0, 1] {
        hosts.end(which, libc::SIGKILL);
        hosts.start(which);
    }
    let done = clients.output().matches("done").count();
    clients.expect("done", done + 5);
    assert!(!clients.output().contains("lost"), "{}", clients.output());
    nothing_in_clear(watch);
}

/// Keys of connections outlive daemons that come and go at both ends while connections come and go, too.
#[test]
fn handshakes_meet_daemons_that_come_and_go() {
    let Some(mut hosts) = Hosts::new("tcp_ao_programs::handshakes_meet_daemons_that_come_and_go") else { return };
    let watch = hosts.watch();
    let _server = hosts.server();
    let one = format!("{PEER} connect {B}:{PORT} --keys {} --ping 2", hosts.keys[0]);
    let script = format!("for i in $(seq 60); do {one} >/dev/null || echo lost; done; echo all; sleep 60");
    let mut clients = hosts.launch(0, &["sh", "-c", &script]);
    for round in 0..6 {
        std::thread::sleep(Duration::from_millis(100 + 37 * round));
        let which = (round % 2) as usize;
        hosts.end(which, libc::SIGKILL);
        hosts.start(which);
    }
    clients.expect("all", 1);
    assert!(!clients.output().contains("lost"), "{}", clients.output());
    nothing_in_clear(watch);
}

/// A handshake that is half done at the listener's end when its daemon is killed: SYN-ACKs that the kernel repeats do not
/// leave unsigned, and the connection comes up when the client repeats its SYN.
#[test]
fn a_half_open_connection_goes_on() {
    let Some(mut hosts) = Hosts::new("tcp_ao_programs::a_half_open_connection_goes_on") else { return };
    let watch = hosts.watch();
    let _server = hosts.server();
    let run = |space: &str, script: &str| {
        let (status, told) = hosts.lab.start(space, &["sh", "-c", script]).finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
        told
    };
    let (a, b) = (hosts.spaces[0].clone(), hosts.spaces[1].clone());
    run(
        &a,
        "nft add table ip hold; nft 'add chain ip hold in { type filter hook prerouting priority -350; }'; \
         nft add rule ip hold in 'tcp flags & (syn|ack) == syn|ack' drop",
    );
    let client = hosts.client(&["--ping", "3"]);
    run(&b, "until ss -Htn state syn-recv | grep -q .; do sleep 0.02; done");
    hosts.end(1, libc::SIGKILL);
    hosts.start(1);
    // By then the kernel has repeated its SYN-ACK by itself.
    let run = |space: &str, script: &str| hosts.lab.start(space, &["sh", "-c", script]).finish(LIMIT);
    let repeated = "until ss -Htno state syn-recv | grep -q 'timer:(on,[^,]*,[2-9])'; do sleep 0.02; done";
    assert_eq!(run(&b, repeated).0, Some(0));
    assert_eq!(run(&a, "nft delete table ip hold").0, Some(0));
    let (status, told) = client.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    nothing_in_clear(watch);
}

/// Calls wait for a daemon that is restarted, and fail when it does not come back.
#[test]
fn calls_wait_for_the_daemon() {
    let Some(mut hosts) = Hosts::new("tcp_ao_programs::calls_wait_for_the_daemon") else { return };
    let watch = hosts.watch();
    let _server = hosts.server();
    let gate = hosts.lab.folder().join("gate");
    let one = format!("{PEER} connect {B}:{PORT} --keys {} --ping 2", hosts.keys[0]);
    let wait = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    let mut waiting = hosts.launch(
        0,
        &["sh", "-c", &format!("echo ready; {wait}; {one} && echo served || echo refused; {one} || echo refused")],
    );
    waiting.expect("ready", 1);
    hosts.end(0, libc::SIGKILL);
    std::fs::write(&gate, "").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(!waiting.output().contains("served") && !waiting.output().contains("refused"), "{}", waiting.output());
    hosts.start(0);
    let (_, told) = waiting.finish(LIMIT);
    assert!(told.contains("served") && !told.contains("refused"), "{told}");

    // Nobody comes: the call fails, and the program's segments do not leave.
    std::fs::remove_file(&gate).unwrap();
    let mut waiting = hosts.launch(0, &["sh", "-c", &format!("echo ready; {wait}; {one} || echo refused")]);
    waiting.expect("ready", 1);
    hosts.end(0, libc::SIGTERM);
    std::fs::write(&gate, "").unwrap();
    let (_, told) = waiting.finish(LIMIT);
    assert!(told.contains("refused"), "{told}");
    nothing_in_clear(watch);
}

/// Two launchers and a configured peer share one daemon at each end.
#[test]
fn several_launchers_share_a_daemon() {
    let config = format!(
        "[tcp-ao]\n[[peer]]\nname = \"plain\"\nprefix = \"10.83.0.0/24\"\nport = {PLAIN}\n\
         [[peer.key]]\nsend-id = 9\nrecv-id = 9\nalgorithm = \"hmac(sha512)\"\nsecret = \"another\"\n"
    );
    let (test, folders) = ("tcp_ao_programs::several_launchers_share_a_daemon", ["run-a", "run-b"]);
    let Some(mut hosts) = Hosts::with(test, &config, folders) else { return };
    let watch = hosts.watch();
    let _server = hosts.server();
    let (other_keys, none) =
        (hosts.lab.file("other", "cmac(aes128) 7 7 12 0 0123456789abcdef"), hosts.lab.file("none", ""));
    let (at, peer, plain) = (format!("{B}:6181"), format!("{A}/32"), format!("{B}:{PLAIN}"));
    let mut other = hosts.launch(1, &[PEER, "serve", &at, "--peer", &peer, "--keys", &other_keys, "--count", "9"]);
    other.expect("listening on", 1);
    let mut plain_server = hosts.lab.start(&hosts.spaces[1], &[PEER, "serve", &plain, "--keys", &none, "--count", "9"]);
    plain_server.expect("listening on", 1);
    let client = hosts.sending();
    for round in 0..2 {
        let (status, told) =
            hosts.launch(0, &[PEER, "connect", &at, "--keys", &other_keys, "--ping", "3"]).finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
        let plain = hosts.lab.start(&hosts.spaces[0], &[PEER, "connect", &plain, "--keys", &none, "--ping", "3"]);
        let (status, told) = plain.finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
        // The keys of one are none of the other's.
        let (status, told) = hosts
            .launch(0, &[PEER, "connect", &at, "--keys", &hosts.keys[0], "--ping", "3", "--seconds", "2"])
            .finish(LIMIT);
        assert_eq!(status, Some(1), "{told}");
        hosts.goes_on();
        if round == 0 {
            for which in [0, 1] {
                hosts.end(which, libc::SIGKILL);
                hosts.start(which);
            }
        }
    }
    assert_eq!(client.output(), "");
    nothing_in_clear(watch);
}

/// Without the memory that keeps them, keys are lost with the daemon: their connections are cut off, and what gets new keys
/// works.
#[test]
fn lost_keys_cut_their_peers_off() {
    let Some(mut hosts) = Hosts::new("tcp_ao_programs::lost_keys_cut_their_peers_off") else { return };
    let watch = hosts.watch();
    let server = hosts.server();
    let client = hosts.sending();
    let folder = hosts.lab.folder().join("run-b").display().to_string();
    hosts.end(1, libc::SIGKILL);
    let holders = format!(
        "for p in /proc/[0-9]*; do grep -qa 'hol[d].{folder}' $p/cmdline 2>/dev/null && kill -9 ${{p#/proc/}}; done; true"
    );
    let (status, told) = hosts.lab.start(&hosts.spaces[1], &["sh", "-c", &holders]).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    let told = hosts.start(1).output();
    assert!(told.contains("are lost"), "{told}");
    // The server's listener has no keys any more. Neither an unsigned nor a signed connection gets to it.
    drop(client);
    let (status, told) = hosts.client(&["--ping", "1", "--seconds", "2"]).finish(LIMIT);
    assert_eq!(status, Some(1), "{told}");
    let (none, at) = (hosts.lab.file("none", ""), format!("{B}:{PORT}"));
    let bare = hosts
        .lab
        .start(&hosts.spaces[1], &[PEER, "connect", &format!("{A}:{PORT}"), "--keys", &none, "--seconds", "2"]);
    assert_eq!(bare.finish(LIMIT).0, Some(1), "nobody gets through to {at}'s peer");
    drop(server);
    let _server = hosts.server();
    hosts.assert_answers();
    // The daemon after this one knows all keys again.
    hosts.end(1, libc::SIGKILL);
    let told = hosts.start(1).output();
    assert!(!told.contains("are lost"), "{told}");
    hosts.assert_answers();
    nothing_in_clear(watch);
}

/// Programs that the configuration no longer has are cut off, and `tcp-ao clear` ends all of it.
#[test]
fn programs_that_are_no_longer_served_are_cut_off() {
    let Some(mut hosts) = Hosts::new("tcp_ao_programs::programs_that_are_no_longer_served_are_cut_off") else { return };
    let watch = hosts.watch();
    let _server = hosts.server();
    hosts.assert_answers();
    let client = hosts.client(&["--ping", "100000", "--seconds", "600"]);
    hosts.lab.sends(&hosts.spaces[0], "wire", 20);
    std::fs::write(&hosts.configs[0], "").unwrap();
    let daemon = hosts.daemon(0);
    daemon.signal(libc::SIGHUP);
    daemon.expect("read again", 1);
    drop(client);
    // A launcher of now has an engine of its own, which finds the namespace taken.
    let (status, told) = hosts.client(&["--ping", "1", "--seconds", "2"]).finish(LIMIT);
    assert!(status != Some(0), "{told}");
    nothing_in_clear(watch);
    for which in [0, 1] {
        hosts.end(which, libc::SIGTERM);
        let (status, told) = hosts.sealane(which, &["tcp-ao", "clear"]);
        assert_eq!(status, Some(0), "{told}");
    }
    std::fs::write(&hosts.configs[0], "[tcp-ao]\n").unwrap();
    for which in [0, 1] {
        let told = hosts.start(which).output();
        assert!(!told.contains("go on") && !told.contains("are lost"), "{told}");
    }
}

/// While one process of a program waits for a daemon that does not answer, the others, and the program itself, go on.
#[test]
fn a_silent_daemon_keeps_only_those_waiting_who_ask_it() {
    let test = "tcp_ao_programs::a_silent_daemon_keeps_only_those_waiting_who_ask_it";
    if skip_without(test, &[&Target::sealane("open")]) {
        return;
    }
    let Some(mut lab) = Lab::new(test) else { return };
    let (space, script) = (lab.space("a"), program("ao_silent.py"));
    let (exe, folder) = (sealane().to_string_lossy().into_owned(), lab.folder().join("run").display().to_string());
    let mut daemon = lab.start(&space, &["python3", &script, "daemon", &folder]);
    daemon.expect("listening", 1);
    let runtime = format!("SEALANE_RUNTIME_DIR={folder}");
    let launcher = ["env", &runtime, &exe, "run", "--tcp-ao", "--intercept", "seccomp", "--"];
    let asks = ["python3", &script, "program", &folder];
    let done = lab.start(&space, &[&launcher[..], &asks].concat()).finish(LIMIT);
    let told = "settles 1 times, waits: True\nasks 1 times, waits: True\n";
    assert_eq!(done, (Some(0), told.to_owned()));
}

/// The output of ao_at_once.py for 20 connections where a handshake with a socket of the same machine is over when connect() returns, even
/// one that does not wait, and a reset has arrived when close() does.
pub(crate) const AT_ONCE: &str = "connected 20, reset 20\n";

/// Our data path does at once whatever a kernel does at once, however busy the machine is.
#[test]
fn what_a_kernel_does_at_once_is_done_at_once() {
    let script = program("ao_at_once.py");
    let argv = ["python3", &*script, "20"];
    let Some(mut hosts) = Hosts::new("tcp_ao_programs::what_a_kernel_does_at_once_is_done_at_once") else { return };
    // Behind it the launcher may say that connections end later.
    let all = |(status, told): (Option<i32>, String)| status == Some(0) && told.starts_with(AT_ONCE);
    let done = hosts.launch(0, &argv).finish(LIMIT);
    assert!(all(done.clone()), "by a daemon: {done:?}");
    let alone = hosts.lab.space("c");
    let exe = sealane().to_string_lossy().into_owned();
    let runtime = format!("SEALANE_RUNTIME_DIR={}", hosts.lab.folder().join("none").display());
    let launcher = ["env", &runtime, &exe, "run", "--tcp-ao", "--"];
    let done = hosts.lab.start(&alone, &[&launcher[..], &argv].concat()).finish(LIMIT);
    assert!(all(done.clone()), "by the launcher: {done:?}");
}
