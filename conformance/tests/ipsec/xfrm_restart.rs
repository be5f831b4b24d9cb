//! The next daemon goes on where the one before ended, however it ended: with its policies, states, windows, counters
//! and devices.

use sealane_conformance::ipsec::{INNER, LIMIT, Pair, ping_all, program};
use sealane_conformance::lab::Running;
use std::time::{Duration, Instant};

const PLAIN: &str = "[ipsec]\n";
const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128";

/// The commands for a tunnel between the inner addresses at an end.
pub(crate) fn tunnel(end: usize, flags: &str) -> String {
    let mut script = String::new();
    for (from, spi) in [(0, 0x1001), (1, 0x2001)] {
        let (to, dir) = (1 - from, if from == end { "out" } else { "in" });
        let [src, dst] = [format!("10.81.0.{}", from + 1), format!("10.81.0.{}", to + 1)];
        script += &format!(
            "ip xfrm state add src {src} dst {dst} proto esp spi {spi:#x} reqid 1 mode tunnel {flags} {GCM}\n\
             ip xfrm policy add dir {dir} src {} dst {} tmpl src {src} dst {dst} proto esp reqid 1 mode tunnel\n",
            INNER[0][from], INNER[0][to]
        );
    }
    script
}

fn numbers(pair: &Pair, end: usize) -> Running {
    let mut watch = pair.lab.start(&pair.hosts[end].space, &["python3", &program("esp_numbers.py"), "veth"]);
    watch.expect("watching", 1);
    watch
}

/// The value after a word of the line that `esp_numbers.py` ends with.
fn value(seen: &str, word: &str) -> u64 {
    let rest = seen.split_once(&format!("{word} ")).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_else(|| panic!("no {word}: {seen}"))
}

/// Whether pings from the first end are answered.
fn answered(pair: &Pair, count: u32) -> bool {
    let ping = format!("{} {} || true", ping_all(count), INNER[0][1]);
    let (_, text) = pair.lab.start(&pair.hosts[0].space, &["sh", "-c", &ping]).finish(LIMIT);
    text.contains(&format!(" {count} received"))
}

/// The number of packets that a state of the first end has counted.
fn packets(pair: &Pair, spi: &str) -> u64 {
    let states = pair.hosts[0].ip(&pair.lab, "ip -s xfrm state");
    let of = states.split("\nsrc ").find(|part| part.contains(spi)).unwrap_or_else(|| panic!("no {spi}: {states}"));
    let line = of.split("lifetime current:").nth(1).and_then(|rest| rest.lines().nth(1)).expect("counters");
    line.split(", ").nth(1).and_then(|part| part.split('(').next()?.trim().parse().ok()).expect("packets")
}

#[test]
fn traffic_goes_on() {
    let Some(mut pair) = Pair::new("xfrm_restart::traffic_goes_on", PLAIN) else { return };
    for end in 0..2 {
        pair.hosts[end].ip(&pair.lab, &tunnel(end, "replay-window 64"));
    }
    assert!(answered(&pair, 5));
    let monitor = pair.hosts[0].begin(&pair.lab, &["ip", "xfrm", "monitor", "acquire"]);
    let watch = numbers(&pair, 1);
    let sender = pair.lab.start(&pair.hosts[0].space, &["python3", &program("clear_send.py"), INNER[0][1]]);
    for (round, signal) in [libc::SIGTERM, libc::SIGKILL].into_iter().cycle().take(6).enumerate() {
        let end = round / 2 % 2;
        pair.hosts[end].end(signal);
        pair.hosts[end].start(&pair.lab);
        assert!(answered(&pair, 5), "round {round}: signal {signal} at end {end}");
    }
    // Nobody has been asked for new states, and none of those that there are is another one.
    monitor.signal(libc::SIGTERM);
    assert_eq!(monitor.finish(LIMIT).1, "");
    for host in &pair.hosts {
        let states = host.ip(&pair.lab, "ip xfrm state; ip xfrm state count; ip xfrm policy count");
        assert!(states.contains("0x00001001") && states.contains("0x00002001"), "{states}");
        assert!(states.contains("SAD count 2") && states.contains("OUT 1"), "{states}");
    }
    let (_, sent) = sender.finish(LIMIT);
    let (_, seen) = watch.finish(LIMIT);
    assert_eq!((value(&seen, "clear"), value(&seen, "twice")), (0, 0), "{seen} {sent}");
    assert!(value(&seen, "esp") > 100, "{seen} {sent}");
}

/// A packet that was accepted before a crash is not accepted again after it, and counters go on.
#[test]
fn nothing_is_accepted_twice() {
    for flags in ["replay-window 64", "replay-window 128", "replay-window 128 flag esn"] {
        let Some(mut pair) = Pair::new("xfrm_restart::nothing_is_accepted_twice", PLAIN) else { return };
        for end in 0..2 {
            pair.hosts[end].ip(&pair.lab, &tunnel(end, flags));
        }
        let mut watch = numbers(&pair, 1);
        assert!(answered(&pair, 50));
        assert_eq!((packets(&pair, "0x00001001"), packets(&pair, "0x00002001")), (50, 50), "{flags}");
        pair.hosts[0].end(libc::SIGKILL);
        pair.hosts[0].start(&pair.lab);
        assert_eq!((packets(&pair, "0x00001001"), packets(&pair, "0x00002001")), (50, 50), "{flags}");
        watch.tell("again 50\n");
        watch.expect("repeated 50", 1);
        pair.hosts[0].ip_until(&pair.lab, "ip -s xfrm state", |states| states.contains("replay 50 failed 0"));
        assert!(answered(&pair, 5), "{flags}: later ones are accepted");
        assert_eq!((packets(&pair, "0x00001001"), packets(&pair, "0x00002001")), (55, 55), "{flags}");
        let (_, seen) = watch.finish(LIMIT);
        assert_eq!((value(&seen, "clear"), value(&seen, "twice")), (0, 0), "{flags}: {seen}");
    }
}

/// The processes that keep states for a daemon.
fn holders(pair: &Pair) -> Vec<String> {
    let pattern = format!("hold {}", pair.hosts[0].folder());
    let (_, found) = pair.lab.start(&pair.hosts[0].space, &["pgrep", "-f", &pattern]).finish(LIMIT);
    // `pgrep` does not find itself.
    found.lines().map(str::to_owned).collect()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Without the process that keeps states there are none, and traffic of policies is dropped. A daemon that runs starts
/// another one.
#[test]
fn states_are_kept_by_a_process_that_may_end() {
    let Some(mut pair) = Pair::new("xfrm_restart::states_are_kept_by_a_process_that_may_end", PLAIN) else { return };
    for end in 0..2 {
        pair.hosts[end].ip(&pair.lab, &tunnel(end, "replay-window 64"));
    }
    assert!(answered(&pair, 5));
    let watch = numbers(&pair, 1);
    let sender = pair.lab.start(&pair.hosts[0].space, &["python3", &program("clear_send.py"), INNER[0][1]]);
    let kill = |pids: &[String]| {
        let all = [&["kill", "-9"][..], &pids.iter().map(String::as_str).collect::<Vec<_>>()].concat();
        assert_eq!(pair.lab.start(&pair.hosts[0].space, &all).finish(LIMIT).0, Some(0));
    };
    let first = holders(&pair);
    assert_eq!(first.len(), 1, "{first:?}");
    // It keeps no network namespace alive, has no rights, and nobody can look into it.
    let look = format!(
        "[ \"$(readlink /proc/{0}/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; grep -E '^(CapEff|CapPrm|NoNewPrivs)' /proc/{0}/status",
        first[0]
    );
    let (status, text) = pair.lab.start(&pair.hosts[0].space, &["sh", "-ec", &look]).finish(LIMIT);
    let rights: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(
        (status, &rights[..]),
        (Some(0), &["CapPrm:", "0000000000000000", "CapEff:", "0000000000000000", "NoNewPrivs:", "1"][..])
    );
    kill(&first);
    until("another one", || holders(&pair).iter().any(|pid| !first.contains(pid)));
    // Its socket is there before it has everything.
    pair.hosts[0].expect("had ended, and is there again", 1);
    let second = holders(&pair);
    pair.hosts[0].end(libc::SIGKILL);
    pair.hosts[0].start(&pair.lab);
    assert!(answered(&pair, 5));
    assert_eq!(holders(&pair), second);
    pair.hosts[0].end(libc::SIGKILL);
    let all = [&["kill", "-9"][..], &second.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    assert_eq!(pair.lab.start(&pair.hosts[0].space, &all).finish(LIMIT).0, Some(0));
    pair.hosts[0].start(&pair.lab);
    // A key manager is asked for new ones.
    let states = pair.hosts[0].ip(&pair.lab, "ip xfrm state; ip xfrm policy count");
    assert!(!states.contains("aead") && states.contains("OUT 1"), "{states}");
    pair.hosts[0].ip(&pair.lab, &tunnel(0, "replay-window 64").replace("policy add", "policy update"));
    assert!(answered(&pair, 5));
    // Nothing is left of what an administrator takes away.
    pair.hosts[0].end(libc::SIGTERM);
    let (_, sent) = sender.finish(LIMIT);
    let (_, seen) = watch.finish(LIMIT);
    assert_eq!((value(&seen, "clear"), value(&seen, "twice")), (0, 0), "{seen} {sent}");
    assert_eq!(pair.hosts[0].sealane(&pair.lab, "xfrm clear"), (Some(0), String::new()));
    until("the end of the holder", || holders(&pair).is_empty());
    pair.hosts[0].start(&pair.lab);
    let states = pair.hosts[0].ip(&pair.lab, "ip xfrm state count; ip xfrm policy count");
    assert!(states.contains("SAD count 0") && states.contains("OUT 0"), "{states}");
}

/// A key manager that asks while no daemon runs waits for the next one; `charon` does not notice a restart.
#[test]
fn a_request_waits_for_the_next_daemon() {
    let Some(mut pair) = Pair::new("xfrm_restart::a_request_waits_for_the_next_daemon", PLAIN) else { return };
    let policy = "ip xfrm policy add dir out src 10.1.0.0/16 dst 10.2.0.0/16 action block";
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        pair.hosts[0].end(signal);
        let asking =
            pair.hosts[0].begin(&pair.lab, &["sh", "-c", &format!("echo asks; {policy}; ip xfrm policy flush")]);
        pair.hosts[0].start(&pair.lab);
        assert_eq!(asking.finish(LIMIT), (Some(0), "asks\n".to_owned()), "signal {signal}");
    }
    // If none comes it is told so.
    pair.hosts[0].end(libc::SIGTERM);
    let (status, text) = pair.hosts[0].run(&pair.lab, &["sh", "-c", policy]);
    assert!(status == Some(2) && text.contains("Connection refused"), "{text}");
}

/// Anybody may take the daemon's port while it does not run. The next one has another port, and launchers find it: also
/// those of programs that have had their sockets for longer.
#[test]
fn a_port_that_somebody_takes_is_not_needed() {
    let Some(mut pair) = Pair::new("xfrm_restart::a_port_that_somebody_takes_is_not_needed", PLAIN) else { return };
    for end in 0..2 {
        pair.hosts[end].ip(&pair.lab, &tunnel(end, "replay-window 64"));
    }
    // A key manager that is connected to the kernel, and a listener.
    let asks = "import socket, struct, sys\n\
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)\n\
        s.bind((0, 0))\n\
        s.connect((0, 0))\n\
        while True:\n \
        s.send(struct.pack('=IHHIII', 20, 0x23, 1, 7, 0, 0))\n \
        print('answered', hex(struct.unpack_from('=H', s.recv(4096), 4)[0]), flush=True)\n \
        if not sys.stdin.readline(): break\n";
    let mut manager = pair.hosts[0].begin(&pair.lab, &["python3", "-c", asks]);
    manager.expect("answered 0x22", 1);
    let mut monitor = pair.hosts[0].begin(&pair.lab, &["ip", "xfrm", "monitor", "policy"]);
    until("the listener", || {
        pair.hosts[0].ip(&pair.lab, "ip xfrm policy update dir out src 10.3.0.0/16 dst 10.2.0.0/16 action block");
        monitor.output().contains("10.3.0.0/16")
    });
    let mut taker = pair.lab.start(&pair.hosts[0].space, &["python3", &program("port_taker.py")]);
    taker.expect("waits", 1);
    for (round, signal) in [libc::SIGKILL, libc::SIGTERM].into_iter().enumerate() {
        pair.hosts[0].end(signal);
        taker.expect("has it", 1);
        pair.hosts[0].start(&pair.lab);
        let policy = format!("ip xfrm policy add dir out src 10.1.{round}.0/24 dst 10.2.0.0/16 action block");
        assert_eq!(pair.hosts[0].ip(&pair.lab, &policy), "", "signal {signal}");
        manager.tell("");
        manager.expect("answered 0x22", round + 2);
        monitor.expect(&format!("10.1.{round}.0/24"), 1);
        assert!(answered(&pair, 5), "signal {signal}");
        assert_eq!(pair.hosts[0].sealane(&pair.lab, "xfrm state count").0, Some(0), "signal {signal}");
    }
    pair.hosts[0].end(libc::SIGTERM);
    assert_eq!(pair.hosts[0].sealane(&pair.lab, "xfrm clear"), (Some(0), String::new()));
    taker.signal(libc::SIGKILL);
    taker.finish(LIMIT);
}
