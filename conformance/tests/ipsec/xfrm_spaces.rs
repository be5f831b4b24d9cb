//! One daemon for a host: network namespaces that are served because their names match a pattern, and come and go by themselves.

use sealane_conformance::ipsec::{LIMIT, ping_all};
use sealane_conformance::spaces::{Host, ip_netns};
use sealane_conformance::target::sealane;

const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128";
const COUNT: &str = "ip xfrm policy count";

/// Runs a script under `sealane run` in a namespace, which succeeds; returns its output.
fn ip(host: &Host, space: &str, script: &str) -> String {
    let (status, told) = host.run(space, script);
    assert_eq!(status, Some(0), "{space}: {script}: {told}");
    told
}

fn has_policies(host: &Host, space: &str, count: u32) {
    let told = ip(host, space, COUNT);
    assert!(told.contains(&format!("OUT {count} ")), "{space}: {told}");
}

/// A daemon that serves IPsec in `netns`.
fn host(test: &str, netns: &str) -> Option<Host> {
    Host::new(test, "ipsec", netns)
}

/// The commands for both directions of a tunnel at an end.
fn tunnel(end: usize) -> String {
    let one = |(from, dir): (usize, &str)| {
        let (src, dst) = (format!("10.91.0.{}", from + 1), format!("10.91.0.{}", 2 - from));
        format!(
            "ip xfrm state add src {src} dst {dst} proto esp spi {:#x} reqid 1 mode transport {GCM}\n\
             ip xfrm policy add dir {dir} src {src} dst {dst} tmpl proto esp reqid 1 mode transport\n",
            0x1001 + from
        )
    };
    [(end, "out"), (1 - end, "in")].map(one).concat()
}

/// Namespaces that are made while the daemon runs are served at once: a program that is started as soon as a namespace has
/// its name is not refused. They stay so across restarts, and go when their names go.
#[test]
fn namespaces_come_and_go() {
    let Some(mut host) = host("xfrm_spaces::namespaces_come_and_go", "\"%-found?\"") else { return };
    let ends = ["found1", "found2"].map(|which| host.lab.space(which));
    for (end, space) in ends.iter().enumerate() {
        ip(&host, space, &tunnel(end));
    }
    let [a, b] = &ends;
    host.lab.veth([a, b], ["veth", "veth"]);
    host.lab.address(a, "veth", "10.91.0.1/24", "fd91::1/64");
    host.lab.address(b, "veth", "10.91.0.2/24", "fd91::2/64");
    let pings = |host: &Host| {
        let ping = format!("{} 10.91.0.2", ping_all(5));
        let (_, told) = host.lab.start(a, &["sh", "-c", &ping]).finish(LIMIT);
        assert!(told.contains(" 5 received"), "{told}");
        // They went through the states.
        let states = ip(host, a, "ip -s xfrm state");
        assert!(!states.contains(" 0(bytes), 0(packets)"), "{states}");
    };
    pings(&host);
    // Others are not.
    let other = host.lab.space("other");
    let own = host.own.clone();
    for space in [&other, &own] {
        let (status, told) = host.run(space, COUNT);
        assert!(status == Some(1) && told.contains("no daemon serves IPsec"), "{space}: {status:?}: {told}");
    }
    // An interface that a program makes is one of the next daemon's, too.
    ip(&host, a, "ip link add made0 type xfrm if_id 9");
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        host.restart(signal);
        pings(&host);
        let told = ip(&host, a, &format!("{} xfrm show --json", sealane().display()));
        assert!(told.contains("\"made0\""), "{told}");
    }
    // Whoever administers a namespace troubles no other one: only this one starts again.
    host.lab.ip(b, "link del sealane-ipsec");
    host.daemon().expect("its threads have failed; it starts again", 1);
    let served = format!("IPsec in {b}: served");
    host.daemon().expect(&served, 2);
    pings(&host);
    assert!(!host.daemon().output().contains("starting again"), "{}", host.daemon().output());
    host.lets_go(b, [a, "veth"]);
    // The same name may come again, for another namespace.
    ip_netns(&["add", b]);
    has_policies(&host, b, 0);
}

/// A namespace without a name goes on as long as somebody lives in it.
#[test]
fn a_namespace_outlives_its_name() {
    let Some(mut host) = host("xfrm_spaces::a_namespace_outlives_its_name", "\"%-found*\"") else { return };
    let space = host.lab.space("found");
    ip(&host, &space, &tunnel(0));
    let mut inside = host.lab.start(&space, &["sh", "-c", "echo here; exec cat"]);
    inside.expect("here", 1);
    ip_netns(&["del", &space]);
    let count = format!("nsenter --net=/proc/{}/ns/net ip xfrm policy count", inside.id());
    let enter = format!("echo; {count}");
    // Whoever goes there without a name of it is served, too.
    let (status, told) = host.run(&host.own, &enter);
    assert!(status == Some(0) && told.contains("OUT 1 "), "{status:?}: {told}");
    assert!(!host.daemon().output().contains("it has gone"));
    inside.finish(LIMIT);
    host.daemon().expect("it has gone", 1);
}

/// No more are served than the configuration says, and one that goes makes room.
#[test]
fn as_many_as_the_configuration_says() {
    let Some(mut host) = host("xfrm_spaces::as_many_as_the_configuration_says", "\"%-found*\"\nmax-found = 2") else {
        return;
    };
    let [a, b] = ["found1", "found2"].map(|which| host.lab.space(which));
    has_policies(&host, &a, 0);
    has_policies(&host, &b, 0);
    let c = host.lab.space("found3");
    host.daemon().expect("'max-found' of [ipsec]", 1);
    let (status, told) = host.run(&c, COUNT);
    assert!(status == Some(1) && told.contains("no daemon serves IPsec"), "{status:?}: {told}");
    ip_netns(&["del", &a]);
    has_policies(&host, &c, 0);
}

/// A namespace that the configuration comes to name, or to find by a pattern, keeps what it has; one that is neither any
/// more is handed back.
#[test]
fn a_configuration_changes() {
    let Some(mut host) = host("xfrm_spaces::a_configuration_changes", "[\"\", \"%-found*\"]") else { return };
    let space = host.lab.space("found");
    ip(&host, &space, &tunnel(0));
    for (times, netns) in
        ["[\"%-found\"]", "[\"%-f*\", \"%-none?\"]", "[\"%-found\", \"%-f*\"]", "\"%-fo??d\""].iter().enumerate()
    {
        host.reload(netns, times + 1);
        has_policies(&host, &space, 1);
    }
    host.reload("\"%-none*\"", 5);
    let (status, told) = host.run(&space, COUNT);
    assert!(status == Some(1) && told.contains("no daemon serves IPsec"), "{status:?}: {told}");
    let rules = host.lab.start(&space, &["nft", "list", "ruleset"]).finish(LIMIT);
    assert_eq!(rules, (Some(0), String::new()));
}

/// The daemon's own namespace is no pattern's. A file that is no namespace makes no trouble, and one namespace may have two
/// names.
#[test]
fn names_of_all_kinds() {
    let Some(mut host) = host("xfrm_spaces::names_of_all_kinds", "\"%-*\"") else { return };
    let (status, told) = host.run(&host.own, COUNT);
    assert!(status == Some(1) && told.contains("no daemon serves IPsec"), "{status:?}: {told}");
    let plain = PlainName::new(&host.own.replace("own", "plain"));
    let space = host.lab.space("found");
    ip(&host, &space, &tunnel(0));
    let mut inside = host.lab.start(&space, &["sh", "-c", "echo here; exec cat"]);
    inside.expect("here", 1);
    let again = host.own.replace("own", "again");
    ip_netns(&["attach", &again, &inside.id().to_string()]);
    inside.finish(LIMIT);
    ip_netns(&["del", &space]);
    has_policies(&host, &again, 1);
    ip_netns(&["del", &again]);
    host.daemon().expect("it has gone", 1);
    assert!(!host.daemon().output().contains(&plain.0), "{}", host.daemon().output());
}

/// A file beside those of namespaces, until it is dropped.
struct PlainName(String);

impl PlainName {
    fn new(name: &str) -> Self {
        std::fs::write(format!("/run/netns/{name}"), "").expect("a file");
        PlainName(name.to_owned())
    }
}

impl Drop for PlainName {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(format!("/run/netns/{}", self.0));
    }
}
