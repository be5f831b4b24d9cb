//! One daemon for a host: programs that set TCP-AO keys, in network namespaces that are served because their names match a
//! pattern, and come and go by themselves. At both ends `wire-watch` counts the outbound segments without option 29: none.

use sealane_conformance::ipsec::LIMIT;
use sealane_conformance::lab::Running;
use sealane_conformance::spaces::{Host, ip_netns};
use std::time::{Duration, Instant};

const PEER: &str = env!("CARGO_BIN_EXE_ao-peer");
const WATCH: &str = env!("CARGO_BIN_EXE_wire-watch");
const PORT: &str = "6179";
const A: &str = "10.84.0.1";
const B: &str = "10.84.0.2";

/// Two namespaces that a wire connects.
struct Pair {
    host: Host,
    ends: [String; 2],
    keys: [String; 2],
}

impl Pair {
    /// Both get their names while the daemon runs.
    fn new(test: &str, netns: &str) -> Option<Pair> {
        let mut host = Host::new(test, "tcp-ao", netns)?;
        let ends = ["found1", "found2"].map(|which| host.lab.space(which));
        host.lab.veth([&ends[0], &ends[1]], ["wire", "wire"]);
        host.lab.address(&ends[0], "wire", &format!("{A}/24"), "fd84::1/64");
        host.lab.address(&ends[1], "wire", &format!("{B}/24"), "fd84::2/64");
        let key = |name, ids| host.lab.file(name, &format!("hmac(sha256) {ids} 12 0 the-key"));
        let keys = [key("a", "1 2"), key("b", "2 1")];
        Some(Pair { host, ends, keys })
    }

    /// Starts a program under a launcher.
    fn launch(&self, end: usize, argv: &[&str]) -> Running {
        self.host.sealane(&self.ends[end], &[&["run", "--tcp-ao", "--"], argv].concat())
    }

    fn server(&self) -> Running {
        let (at, peer) = (format!("{B}:{PORT}"), format!("{A}/32"));
        let argv =
            [PEER, "serve", &at, "--peer", &peer, "--keys", &self.keys[1], "--count", "1000", "--seconds", "600"];
        let mut server = self.launch(1, &argv);
        server.expect("listening on", 1);
        server
    }

    fn client(&self, how: &[&str]) -> Running {
        let at = format!("{B}:{PORT}");
        self.launch(0, &[&[PEER, "connect", &at, "--keys", &self.keys[0]], how].concat())
    }

    /// Connects a new client, which gets answers.
    fn assert_answers(&self) {
        let (status, told) = self.client(&["--ping", "3"]).finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
    }

    /// Starts a client that sends until it is told, and waits until it does.
    fn sending(&self) -> Running {
        let client = self.client(&["--until-told", "--seconds", "600"]);
        self.goes_on();
        client
    }

    /// Waits until both ends have sent more.
    fn goes_on(&self) {
        self.host.lab.sends(&self.ends[0], "wire", 300);
        self.host.lab.sends(&self.ends[1], "wire", 30);
    }

    fn watch(&self) -> [Running; 2] {
        self.ends.each_ref().map(|space| {
            let mut watch = self.host.lab.start(space, &[WATCH, "wire", PORT]);
            watch.expect("watching", 1);
            watch
        })
    }

    /// The sockets that the daemon knows by namespaces, as it tells them.
    fn shown(&self) -> String {
        let (status, told) = self.host.sealane(&self.host.own, &["tcp-ao", "show"]).finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
        told
    }
}

fn nothing_in_clear(watches: [Running; 2]) {
    for (status, told) in watches.map(|watch| watch.finish(LIMIT)) {
        let signed = told.split(r#""signed":"#).nth(1).and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        assert!(status == Some(0) && signed.is_some_and(|n| n > 5), "{told}");
    }
}

/// A program that is started as soon as its namespace has its name is served by the daemon, whose restarts it does not notice.
/// What is left of a namespace goes with its name.
#[test]
fn namespaces_come_and_go() {
    let Some(mut pair) = Pair::new("tcp_ao_spaces::namespaces_come_and_go", "\"%-found?\"") else { return };
    let watch = pair.watch();
    let server = pair.server();
    let client = pair.sending();
    // The daemon has the keys of both, and not their launchers.
    let told = pair.shown();
    let shown = |end: &String| told.matches(&format!("network namespace {end} ")).count();
    assert!(pair.ends.iter().all(|end| shown(end) == 1) && told.contains("hmac(sha256)"), "{told}");
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGKILL] {
        pair.host.restart(signal);
        let told = pair.host.daemon().output();
        assert_eq!(told.matches(" connections of programs go on").count(), 2, "signal {signal}: {told}");
        pair.goes_on();
        pair.assert_answers();
    }
    let (status, told) = client.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    nothing_in_clear(watch);
    server.signal(libc::SIGTERM);
    server.finish(LIMIT);
    // The pair of devices tells when the namespace itself has gone.
    let before = pair.host.files().len();
    let [a, b] = pair.ends.clone();
    ip_netns(&["del", &b]);
    pair.host.daemon().expect("it has gone", 1);
    let started = Instant::now();
    while pair.host.lab.start(&a, &["ip", "link", "show", "wire"]).finish(LIMIT).0 == Some(0) {
        assert!(started.elapsed() < LIMIT, "somebody keeps the namespace");
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = pair.host.files();
    assert!(after.len() < before, "{after:?}");
    // The same name may come again, for another namespace, in which nobody is protected.
    ip_netns(&["add", &b]);
    pair.host.daemon().expect(&format!("TCP-AO in {b}: served"), 2);
    let (_, rules) = pair.host.lab.start(&b, &["nft", "list", "ruleset"]).finish(LIMIT);
    assert!(rules.contains("table inet sealane") && !rules.contains(A), "{rules}");
}

/// A namespace without a name goes on as long as somebody lives in it.
#[test]
fn a_namespace_outlives_its_name() {
    let Some(mut pair) = Pair::new("tcp_ao_spaces::a_namespace_outlives_its_name", "\"%-found*\"") else { return };
    let server = pair.server();
    let client = pair.sending();
    ip_netns(&["del", &pair.ends[1]]);
    // The other end's acknowledgements come from there.
    pair.host.lab.sends(&pair.ends[0], "wire", 3000);
    pair.assert_answers();
    assert!(!pair.host.daemon().output().contains("it has gone"));
    let (status, told) = client.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    server.signal(libc::SIGTERM);
    server.finish(LIMIT);
    pair.host.daemon().expect("it has gone", 1);
}

/// No more are served than the configuration says, and one that goes makes room.
#[test]
fn as_many_as_the_configuration_says() {
    let test = "tcp_ao_spaces::as_many_as_the_configuration_says";
    let Some(mut pair) = Pair::new(test, "\"%-found*\"\nmax-found = 2") else { return };
    let served = |host: &mut Host, name: &str| host.daemon().expect(&format!("TCP-AO in {name}: served"), 1);
    pair.ends.clone().iter().for_each(|end| served(&mut pair.host, end));
    let third = pair.host.lab.space("found3");
    pair.host.daemon().expect("'max-found' of [tcp-ao]", 1);
    assert!(!pair.host.daemon().output().contains(&format!("{third}: served")));
    ip_netns(&["del", &pair.ends[0]]);
    served(&mut pair.host, &third);
}

/// A namespace that the configuration comes to name, or to find by a pattern, keeps its sessions. One that is neither any more
/// is cut off, and its rules can be taken away.
#[test]
fn a_configuration_changes() {
    let test = "tcp_ao_spaces::a_configuration_changes";
    let Some(mut pair) = Pair::new(test, "\"%-found*\"") else { return };
    let watch = pair.watch();
    let _server = pair.server();
    let _client = pair.sending();
    let peer = |n: usize| {
        format!(
            "\n[[peer]]\nname = \"other\"\nnetns = \"%-found{n}\"\nprefix = \"198.51.100.1\"\n\
             [[peer.key]]\nsend-id = 1\nrecv-id = 1\nalgorithm = \"hmac(sha1)\"\nsecret = \"x\"\n"
        )
    };
    let texts = [
        "[\"%-found1\", \"%-found2\", \"%-none?\"]".to_owned(),
        "[\"%-f*\", \"%-none?\"]".to_owned(),
        // A namespace with configured peers has its programs served by the pattern.
        format!("\"%-found*\"{}", peer(1)),
        "[\"%-found1\", \"%-fo??d?\"]".to_owned(),
        format!("\"%-f*\"{}", peer(2)),
        "\"%-f*\"".to_owned(),
    ];
    for (times, netns) in texts.iter().enumerate() {
        pair.host.reload(netns, times + 1);
        pair.goes_on();
        pair.assert_answers();
    }
    pair.host.reload("[\"%-found1\", \"%-none*\"]", texts.len() + 1);
    let (status, told) = pair.client(&["--ping", "1", "--seconds", "2"]).finish(LIMIT);
    assert!(status != Some(0), "{told}");
    nothing_in_clear(watch);
    let (status, told) = pair.host.sealane(&pair.ends[1], &["tcp-ao", "clear"]).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    let rules = pair.host.lab.start(&pair.ends[1], &["nft", "list", "ruleset"]).finish(LIMIT);
    assert_eq!(rules, (Some(0), String::new()));
}

/// Where somebody else serves a namespace, the daemon serves the others, and that one as soon as it can.
#[test]
fn one_that_fails_keeps_no_other_waiting() {
    let test = "tcp_ao_spaces::one_that_fails_keeps_no_other_waiting";
    let Some(mut pair) = Pair::new(test, "\"%-none*\"") else { return };
    // Without a daemon for it, the launcher is the one that signs.
    let server = pair.server();
    let [a, b] = pair.ends.clone();
    pair.host.reload("\"%-found*\"", 1);
    pair.host.daemon().expect(&format!("TCP-AO in {a}: served"), 1);
    let failed = format!("TCP-AO in {b}: another sealane serves TCP-AO in this network namespace");
    assert!(pair.host.daemon().output().contains(&failed), "{}", pair.host.daemon().output());
    pair.assert_answers();
    server.signal(libc::SIGTERM);
    server.finish(LIMIT);
    pair.host.daemon().expect(&format!("TCP-AO in {b}: served"), 1);
    let _server = pair.server();
    pair.assert_answers();
}
