//! The TUN device of a daemon's stack, which others change or delete while packets pass both ways: they are protected or
//! dropped all the time, and pass again by themselves.

use sealane_conformance::ipsec::{INNER, LIMIT, OUTER, Pair, protected};
use std::time::Instant;

/// `clear_watch.py`'s marker, for `ping`.
const MARKER: &str = "6e6576657220696e20636c656172";

/// Commands of others in the first end's namespace.
const EVENTS: [(&str, &str); 6] = [
    ("put down and up", "ip link set sealane-ipsec down; sleep 0.3; ip link set sealane-ipsec up"),
    ("deleted", "ip link del sealane-ipsec"),
    ("without addresses", "ip addr flush dev sealane-ipsec"),
    (
        "renamed",
        "ip link set sealane-ipsec down; ip link set sealane-ipsec name other; ip link set other up 2>/dev/null || true",
    ),
    ("moved to another namespace", "ip link set sealane-ipsec netns ELSEWHERE"),
    (
        "put down and up, and deleted",
        "ip link set sealane-ipsec down; ip link set sealane-ipsec up; ip link del sealane-ipsec",
    ),
];

#[test]
fn it_comes_back() {
    whatever("xfrm_tun::it_comes_back", "[ipsec]\n");
}

#[test]
fn it_comes_back_with_several_queues() {
    whatever("xfrm_tun::it_comes_back_with_several_queues", "[ipsec]\nworkers = 2\n");
}

/// Lets every event happen to the device of a daemon with this configuration.
fn whatever(test: &str, config: &str) {
    let Some(mut pair) = Pair::new(test, config) else { return };
    let elsewhere = pair.lab.space("elsewhere");
    for (end, host) in pair.hosts.iter().enumerate() {
        let (here, there, via) = (INNER[1][end], INNER[1][1 - end], OUTER[1][1 - end]);
        pair.lab.ip(&host.space, &format!("addr add {here}/128 dev lo nodad"));
        pair.lab.ip(&host.space, &format!("route add {there}/128 via {via} dev veth src {here}"));
        host.ip(&pair.lab, &commands(end));
    }
    let ping = |(end, family): (usize, usize), options: &str| {
        let (from, to) = (INNER[family][end], INNER[family][1 - end]);
        let argv = format!("ping -q {options} -p {MARKER} -I {from} {to}");
        pair.lab.start(&pair.hosts[end].space, &argv.split(' ').collect::<Vec<_>>())
    };
    let sh = |script: &str| pair.lab.start(&pair.hosts[0].space, &["sh", "-ec", script]).finish(LIMIT);
    let flows = [(0, 0), (0, 1), (1, 0), (1, 1)];
    let until_answered = |what: &str| {
        for flow in flows {
            let start = Instant::now();
            while ping(flow, "-c 1 -W 1").finish(LIMIT).0 != Some(0) {
                assert!(start.elapsed() < LIMIT, "{what}: {flow:?}\n{}", pair.hosts[0].output());
            }
        }
    };
    until_answered("at the beginning");
    for (what, script) in EVENTS {
        println!("{what}");
        let watch = pair.watch(1, &[]);
        let streams = flows.map(|flow| ping(flow, "-i 0.01"));
        until_answered("before it");
        let (status, text) = sh(&script.replace("ELSEWHERE", &elsewhere));
        assert_eq!(status, Some(0), "{what}: {text}");
        until_answered(what);
        for stream in streams {
            stream.signal(libc::SIGINT);
            stream.finish(LIMIT);
        }
        let (_, seen) = watch.finish(LIMIT);
        assert!(protected(&seen) > 0, "{what}: {seen}");
        let (_, devices) = sh("ip -o link");
        assert!(!devices.contains("other") && devices.matches("sealane-ipsec").count() == 1, "{what}: {devices}");
        let (_, left) = pair.lab.start(&elsewhere, &["ip", "-o", "link"]).finish(LIMIT);
        assert!(!left.contains("sealane"), "{what}: {left}");
    }
}

/// The commands of an end: a tunnel of each family.
fn commands(end: usize) -> String {
    let mut script = String::new();
    for family in 0..2 {
        let (outer, inner) = (OUTER[family], INNER[family]);
        for from in 0..2 {
            let (to, spi) = (1 - from, 0x1001 + family * 16 + from);
            let dir = if from == end { "out" } else { "in" };
            script += &format!(
                "ip xfrm state add src {} dst {} proto esp spi {spi:#x} reqid {family} mode tunnel replay-window 32 \
                 aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128\n\
                 ip xfrm policy add dir {dir} src {} dst {} tmpl src {} dst {} proto esp reqid {family} mode tunnel\n",
                outer[from], outer[to], inner[from], inner[to], outer[from], outer[to]
            );
        }
    }
    script
}
