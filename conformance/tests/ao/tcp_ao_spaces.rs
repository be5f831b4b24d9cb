//! One daemon for a host: programs that set TCP-AO keys, in network namespaces that are served because their names match a
//! pattern, and come and go by themselves. At both ends `wire-watch` counts the outbound segments without option 29: none.

use crate::two_ends::{A, Ends, connect, nothing_in_clear};
use sealane_conformance::ipsec::LIMIT;
use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::spaces::{Host, ip_netns};

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
        let keys = connect(&host.lab, &ends);
        Some(Pair { host, ends, keys })
    }

    /// Starts a client that sends until it is told, and waits until it does.
    fn sending(&self) -> Running {
        let client = self.client(&["--until-told", "--seconds", "600"]);
        self.goes_on();
        client
    }

    /// The sockets that the daemon knows by namespaces, as it tells them.
    fn shown(&self) -> String {
        let (status, told) = self.host.sealane(&self.host.own, &["tcp-ao", "show"]).finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
        told
    }
}

impl Ends for Pair {
    fn lab(&self) -> &Lab {
        &self.host.lab
    }

    fn spaces(&self) -> &[String; 2] {
        &self.ends
    }

    fn keys(&self) -> &[String; 2] {
        &self.keys
    }

    fn launch(&self, end: usize, argv: &[&str]) -> Running {
        self.host.sealane(&self.ends[end], &[&["run", "--tcp-ao", "--"], argv].concat())
    }
}

/// A program that is started as soon as its namespace has its name is served by the daemon, whose restarts it does not notice.
/// All that is left of a namespace goes with its name.
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
    let [a, b] = pair.ends.clone();
    pair.host.lets_go(&b, [&a, "wire"]);
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

/// If somebody else serves a namespace, the daemon serves the others, and that one as soon as it can.
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
