//! IP-TFS (RFC 9347): between two daemons, and between a daemon and a kernel's IP-TFS.

use crate::xfrm_ipcomp::{connections, pings, seen};
use sealane_conformance::ipsec::{INNER, LIMIT, OUTER, Peer, Wired, ping_all, program};
use std::time::{Duration, Instant};

const KERNEL: &str = "linux-7.3-net";

/// A packet of the longest of these does not fit one outer packet, however the path is; the first few do.
const LENS: [&str; 7] = ["0", "1", "56", "1000", "1414", "1472", "4000"];
const SHORT: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Case {
    v6: bool,
    /// Of both ends, see `iptfs.py`.
    options: &'static str,
    /// The longest outer packet.
    longest: u32,
}

const CASES: [Case; 5] = [
    Case { v6: false, options: "", longest: 1500 },
    Case { v6: true, options: "", longest: 1500 },
    // As Linux counts, without trailer and ICV.
    Case { v6: false, options: "pkt-size=600 init-delay=5000 reorder-window=0 drop-time=500000", longest: 600 + 20 },
    Case { v6: true, options: "init-delay=5000", longest: 1500 },
    Case { v6: false, options: "esn dont-frag", longest: 1500 },
];

const IN_UDP: [Case; 2] = [
    Case { v6: true, options: "encap init-delay=5000", longest: 1500 },
    Case { v6: false, options: "encap esn dont-frag", longest: 1500 },
];

impl Case {
    fn outer(&self) -> [&'static str; 2] {
        OUTER[usize::from(self.v6)]
    }

    fn inner(&self) -> [&'static str; 2] {
        INNER[usize::from(self.v6)]
    }

    fn cuts(&self) -> bool {
        !self.options.contains("dont-frag")
    }

    /// Linux sends nothing that is longer than its path with `dont-frag`, and its answers do not learn how long that is.
    fn lens(&self, wired: &Wired) -> &'static [&'static str] {
        let is_all = self.cuts() || matches!(wired.peer, Peer::Daemon(_));
        if is_all { &LENS } else { &LENS[..SHORT] }
    }

    fn waits(&self) -> bool {
        self.options.contains("init-delay")
    }

    /// The command that gives an end its states and policies.
    fn command(&self, end: usize) -> String {
        let ([a, b], [c, d]) = (self.outer(), self.inner());
        format!("python3 {} {end} {a} {b} {c} {d} {}", program("iptfs.py"), self.options)
    }

    fn begin(&self, wired: &mut Wired) {
        let ours = |wired: &Wired| drop(wired.host.ip(&wired.lab, &self.command(0)));
        // At a constant rate packets leave at once; a kernel would count those that come before its states.
        let kernel_first = matches!(wired.peer, Peer::Kernel(_));
        if !kernel_first {
            ours(wired);
        }
        wired.peer.must(&wired.lab, &self.command(1));
        if kernel_first {
            ours(wired);
        }
    }

    /// Packets of all lengths and connections, both ways, and what the wire has of them.
    fn passes(&self, wired: &mut Wired) {
        self.begin(wired);
        let mut watch = wired.lab.start(&wired.host.space, &["python3", &program("iptfs_watch.py"), "kernel"]);
        watch.expect("watching", 1);
        let lens = self.lens(wired);
        pings(wired, self.inner(), lens);
        connections(wired, self.inner());
        // Twenty at once, both ways.
        let [ours, theirs] = self.inner();
        let burst = |to| format!("{} -s 20 {to}", ping_all(20));
        let (status, text) = wired.lab.start(&wired.host.space, &["sh", "-ec", &burst(theirs)]).finish(LIMIT);
        assert_eq!(status, Some(0), "{self:?}: {text}");
        wired.peer.must(&wired.lab, &burst(ours));
        let words = ["tfs", "other", "clear", "pieces", "several", "wrong", "longest"];
        let [tfs, other, clear, pieces, several, wrong, longest] = *seen(watch, &words) else { panic!("{words:?}") };
        assert_eq!((other, clear, wrong), (0, 0, 0), "{self:?}: {tfs} of IP-TFS");
        assert!(tfs > 200 && longest <= self.longest, "{self:?}: {tfs} packets, the longest has {longest} bytes");
        // Without a delay only what comes at the same time leaves together.
        assert!(several > 0 || !self.waits(), "{self:?}: {several} of {tfs} with several packets");
        assert_eq!(pieces > 50, self.cuts(), "{self:?}: {pieces} of {tfs} go on with a packet");
        assert!(self.cuts() || pieces == 0, "{self:?}: {pieces} go on with a packet");
    }

    /// Nothing was dropped that came in, here or by a kernel.
    fn is_clean(&self, wired: &mut Wired) {
        const TELL: &str = "cat /proc/net/xfrm_stat";
        let ours = faults(&wired.host.ip(&wired.lab, TELL));
        let theirs = match wired.peer {
            Peer::Kernel(_) => faults(&wired.peer.must(&wired.lab, TELL)),
            Peer::Daemon(_) => Vec::new(),
        };
        if !(ours.is_empty() && theirs.is_empty()) {
            let (_, told) = wired.host.sealane(&wired.lab, "xfrm show interval 0");
            panic!("{self:?}: here {ours:?}, there {theirs:?}\n{told}");
        }
    }
}

/// The counters of what was dropped as it came in, or for a queue that was full, that are not 0.
fn faults(stat: &str) -> Vec<String> {
    let counters = stat.lines().filter(|line| line.starts_with("XfrmIn") || line.starts_with("XfrmOutNoQueue"));
    counters.filter(|line| line.split_whitespace().last() != Some("0")).map(str::to_owned).collect()
}

#[test]
fn between_two_daemons() {
    const TEST: &str = "xfrm_iptfs::between_two_daemons";
    let Some(mut wired) = Wired::with(TEST, "[ipsec]\n", None) else { return };
    for case in CASES.into_iter().chain(IN_UDP) {
        case.passes(&mut wired);
        case.is_clean(&mut wired);
    }
    // The next daemon goes on with the states, ended in order or not; what waited is lost.
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let case = CASES[2];
        case.begin(&mut wired);
        pings(&mut wired, case.inner(), &LENS);
        let told = "ip xfrm state | grep -v anti-replay | sort";
        let before = wired.host.ip(&wired.lab, told);
        wired.host.end(signal);
        wired.host.start(&wired.lab);
        assert_eq!(wired.host.ip(&wired.lab, told), before);
        pings(&mut wired, case.inner(), &LENS);
    }
    wired.host.ip(&wired.lab, "ip xfrm state flush");
    assert_eq!(wired.host.ip(&wired.lab, "ip xfrm state"), "");
}

#[test]
fn with_workers() {
    const TEST: &str = "xfrm_iptfs::with_workers";
    let Some(mut wired) = Wired::with(TEST, "[ipsec]\nworkers = 2\n", None) else { return };
    for case in [CASES[0], IN_UDP[0]] {
        case.passes(&mut wired);
        case.is_clean(&mut wired);
    }
}

#[test]
fn with_a_kernel() {
    const TEST: &str = "xfrm_iptfs::with_a_kernel";
    let Some(mut wired) = Wired::with(TEST, "[ipsec]\n", Some(KERNEL)) else { return };
    assert!(matches!(wired.peer, Peer::Kernel(_)), "it was asked for");
    for case in CASES {
        case.passes(&mut wired);
        case.is_clean(&mut wired);
    }
    // Payloads of several packets in ESP in UDP have memory of Linux 7.3 behind them, and a wrong checksum: one at a time.
    // A busy guest answers requests together that came one after the other. Now and then its device keeps a frame until the
    // next one comes: those of a ping outside the tunnel come long before a request is repeated.
    for case in IN_UDP {
        case.begin(&mut wired);
        let [ours, theirs] = case.inner();
        let each = |to| case.lens(&wired).iter().map(move |len| format!("ping -q -c 1 -i 5 -w 60 -s {len} {to}\n"));
        let [to_ours, to_theirs] = [ours, theirs].map(|to| each(to).collect::<String>().repeat(5));
        let outside = wired.lab.start(&wired.host.space, &["ping", "-q", "-i", "0.2", case.outer()[1]]);
        wired.host.ip(&wired.lab, &to_theirs);
        wired.peer.must(&wired.lab, &to_ours);
        drop(outside);
        case.is_clean(&mut wired);
    }
}

/// Outer packets of 1,000 bytes, 50 a second.
const CONSTANT: &str = "[ipsec]\n[[ipsec.iptfs]]\nrate = 50\npacket-size = 1000\n";
const INTERVAL_US: u64 = 20_000;
/// The number of packets whose times are looked at.
const COUNT: u64 = 150;

/// Has packets of one length at one rate, with and without something to send, until the state goes.
fn tells_nothing(wired: &mut Wired) {
    let case = CASES[0];
    let ([ours, _], count) = (case.outer(), COUNT.to_string());
    let mut watch = wired.lab.start(&wired.host.space, &["python3", &program("iptfs_rate.py"), "kernel", ours, &count]);
    watch.expect("watching", 1);
    let has_unused = |wired: &Wired| {
        let (status, text) = wired.host.sealane(&wired.lab, "xfrm show interval 0");
        assert_eq!(status, Some(0), "{text}");
        text.contains("[[ipsec.iptfs]]: no state now that it decides about")
    };
    assert!(has_unused(wired), "there is no state so far");
    case.begin(wired);
    assert!(!has_unused(wired), "there is a state");
    pings(wired, case.inner(), &LENS);
    watch.expect("they have come", 1);
    pings(wired, case.inner(), &LENS);
    case.is_clean(wired);
    wired.host.ip(&wired.lab, "ip xfrm policy flush\nip xfrm state flush");
    let (status, seen) = watch.finish(LIMIT);
    assert_eq!(status, Some(0), "{seen}");
    let span_us = span_us(&seen);
    // The first one may have been late by as much as a busy machine makes it, and those behind it are not made up for.
    assert!(span_us >= COUNT * INTERVAL_US / 2, "{seen}");
}

/// Microseconds from the first to the last of the packets that were watched, all of which have one length.
fn span_us(seen: &str) -> u64 {
    let (lengths, span_us) = seen
        .split_once("quiet: lengths [")
        .and_then(|(_, rest)| rest.split_once("], in "))
        .and_then(|(lengths, rest)| Some((lengths, rest.split_once(" us.")?.0.parse::<u64>().ok()?)))
        .expect(seen);
    assert_eq!(lengths, "1000", "{seen}");
    span_us
}

#[test]
fn a_constant_rate() {
    const TEST: &str = "xfrm_iptfs::a_constant_rate";
    let Some(mut wired) = Wired::with(TEST, CONSTANT, None) else { return };
    tells_nothing(&mut wired);
}

#[test]
fn a_constant_rate_to_a_kernel() {
    const TEST: &str = "xfrm_iptfs::a_constant_rate_to_a_kernel";
    let Some(mut wired) = Wired::with(TEST, CONSTANT, Some(KERNEL)) else { return };
    tells_nothing(&mut wired);
}

/// At most 300 outer packets a second: fewer than make a way past the stack, and past its rules, worth it.
const CONTROLLED: &str = "[ipsec]\n[[ipsec.iptfs]]\nrate = 300\npacket-size = 1000\ncongestion-control = true\n";
const LEAST_INTERVAL_US: u64 = 3333;

/// Of ESP that comes in, 100 packets a second pass.
const POLICE: &str = "nft add table netdev police\n\
    nft 'add chain netdev police in { type filter hook ingress device \"vec0\" priority -500; }'\n\
    nft add rule netdev police in ip protocol esp limit rate over 100/second burst 5 packets drop\n";

fn sh(wired: &Wired, space: &str, script: &str) {
    let (status, text) = wired.lab.start(space, &["sh", "-ec", script]).finish(LIMIT);
    assert_eq!(status, Some(0), "{script}\n{text}");
}

/// A number of the daemon's only rate that follows congestion.
fn of_rate(wired: &Wired, name: &str) -> u64 {
    let (status, text) = wired.host.sealane(&wired.lab, "xfrm show interval 0 --json");
    assert_eq!(status, Some(0), "{text}");
    let found = text.split_once(&format!("\"{name}\": ")).and_then(|(_, rest)| {
        let number = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        number.parse().ok()
    });
    found.unwrap_or_else(|| panic!("{name}: {text}"))
}

fn wait_for(wired: &Wired, name: &str, is_wanted: impl Fn(u64) -> bool) {
    let start = Instant::now();
    loop {
        let found = of_rate(wired, name);
        if is_wanted(found) {
            return;
        }
        assert!(start.elapsed() < LIMIT, "{name} is {found}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_rate_that_follows_congestion() {
    const TEST: &str = "xfrm_iptfs::a_rate_that_follows_congestion";
    const COUNT: u64 = 500;
    let Some(mut wired) = Wired::with(TEST, CONTROLLED, None) else { return };
    let Peer::Daemon(peer) = &mut wired.peer else { unreachable!("it was asked for") };
    peer.reload(&wired.lab, CONTROLLED);
    let (here, there) = (wired.host.space.clone(), peer.space.clone());
    let case = CASES[0];
    let ours = case.outer()[0];
    let mut watch = wired.lab.start(&here, &["python3", &program("iptfs_rate.py"), "kernel", ours, "500"]);
    watch.expect("watching", 1);
    case.begin(&mut wired);
    let is_highest = |us: u64| us < LEAST_INTERVAL_US * 11 / 10;
    wait_for(&wired, "interval_us", is_highest);
    pings(&mut wired, case.inner(), &LENS);
    case.is_clean(&mut wired);
    // Never above the highest rate, but for what leaves late.
    let start = Instant::now();
    wired.lab.sends(&here, "kernel", COUNT);
    let least = Duration::from_micros(LEAST_INTERVAL_US * COUNT * 9 / 10);
    assert!(start.elapsed() > least, "{COUNT} in {:?}", start.elapsed());
    sh(&wired, &there, POLICE);
    wait_for(&wired, "loss_interval", |pkts| pkts > 0);
    wait_for(&wired, "interval_us", |us| us > LEAST_INTERVAL_US * 2);
    // It stays near what passes: at the highest rate they would take less than two seconds, and a busy machine is slower.
    let start = Instant::now();
    wired.lab.sends(&here, "kernel", COUNT);
    assert!(start.elapsed() > Duration::from_secs(3), "{COUNT} in {:?}", start.elapsed());
    sh(&wired, &there, "nft delete table netdev police");
    wait_for(&wired, "interval_us", is_highest);
    pings(&mut wired, case.inner(), &LENS);
    // The other end sends as well, as long as it has a state.
    let flush = "ip xfrm policy flush\nip xfrm state flush";
    wired.host.ip(&wired.lab, flush);
    wired.peer.must(&wired.lab, flush);
    let (status, seen) = watch.finish(LIMIT);
    assert_eq!(status, Some(0), "{seen}");
    let _ = span_us(&seen);
}

/// The daemon's words about a peer without feedback.
const SILENT: &str = "nothing tells how packets of IP-TFS come to";

#[test]
fn a_kernel_sends_no_feedback() {
    const TEST: &str = "xfrm_iptfs::a_kernel_sends_no_feedback";
    let Some(mut wired) = Wired::with(TEST, CONTROLLED, Some(KERNEL)) else { return };
    let case = CASES[0];
    case.begin(&mut wired);
    wired.host.expect(SILENT, 1);
    assert_eq!(of_rate(&wired, "interval_us"), 2_000_000);
    // It is slow, and works.
    let [ours, theirs] = case.inner();
    wired.host.ip(&wired.lab, &format!("ping -q -c 2 -i 5 -w 60 {theirs}"));
    wired.peer.must(&wired.lab, &format!("ping -q -c 2 -i 5 -w 60 {ours}"));
    case.is_clean(&mut wired);
    assert_eq!(wired.host.output().matches(SILENT).count(), 1, "{}", wired.host.output());
}
