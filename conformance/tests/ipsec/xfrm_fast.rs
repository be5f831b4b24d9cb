//! The fast path of plain ESP past the stack: busy states take it, filters of others still apply, and it leaves nothing
//! behind.

use sealane_conformance::ipsec::{INNER, LIMIT, OUTER, Pair, Tapped, program, protected};
use sealane_conformance::lab::Lab;
use sealane_conformance::target::sealane;
use std::time::{Duration, Instant};

const PLAIN: &str = "[ipsec]\n";

/// A tunnel, or transport mode between the outer addresses.
struct Case {
    v6: bool,
    tunnel: bool,
}

impl Case {
    fn outer(&self) -> [&'static str; 2] {
        OUTER[usize::from(self.v6)]
    }

    fn inner(&self) -> [&'static str; 2] {
        if self.tunnel { INNER[usize::from(self.v6)] } else { self.outer() }
    }

    fn commands(&self, end: usize) -> String {
        let (outer, inner) = (self.outer(), self.inner());
        let mode = if self.tunnel { "tunnel" } else { "transport" };
        let proto = if self.v6 { "ipv6-icmp" } else { "icmp" };
        let mut script = "ip xfrm state flush\nip xfrm policy flush\n".to_owned();
        // What comes late does not reach the states of the next case.
        let spi = 0x1001 + 0x10 * usize::from(self.v6) + 0x20 * usize::from(self.tunnel);
        for from in 0..2 {
            let (to, spi) = (1 - from, spi + from);
            script += &format!(
                "ip xfrm state add src {} dst {} proto esp spi {spi:#x} reqid 1 mode {mode} replay-window 2048 flag esn \
                 aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128\n",
                outer[from], outer[to]
            );
            let ends = if self.tunnel { format!("src {} dst {}", outer[from], outer[to]) } else { String::new() };
            let direction = if from == end { "out" } else { "in" };
            // Neighbour discovery stays unprotected.
            for kind in if self.v6 { &["type 128", "type 129"][..] } else { &[""] } {
                script += &format!(
                    "ip xfrm policy add dir {direction} src {} dst {} proto {proto} {kind} tmpl {ends} proto esp reqid 1 mode {mode}\n",
                    inner[from], inner[to]
                );
            }
        }
        script
    }
}

/// Returns the command for a flood of `count` pings, which fails unless all are answered. Several are in flight at any
/// time, so that a state is busy on a slow machine, too; few, because those sent while the link header is asked for pass
/// the stack.
fn flood(to: &str, count: u32) -> String {
    format!("python3 {} - {to} {count} 0 600 30 8", program("pings.py"))
}

/// Runs a shell line in a namespace; returns whether it succeeded, and its output.
fn sh(lab: &Lab, space: &str, line: &str) -> (bool, String) {
    let (status, text) = lab.start(space, &["sh", "-c", line]).finish(LIMIT);
    (status == Some(0), text)
}

fn elements(lab: &Lab, space: &str) -> usize {
    // Each worker has a table.
    let (_, text) = sh(lab, space, "nft list ruleset netdev");
    text.lines().filter(|line| line.contains("elements")).count()
}

/// Pings from a namespace until all of `spaces` have states on the ring.
fn speed_up(lab: &Lab, space: &str, to: &str, spaces: &[&str]) {
    let start = Instant::now();
    while spaces.iter().any(|space| elements(lab, space) == 0) {
        let (done, text) = sh(lab, space, &flood(to, 5000));
        assert!(done, "{text}");
        assert!(start.elapsed() < LIMIT, "{}", sh(lab, space, "nft list ruleset").1);
    }
}

/// Waits until a namespace has no state on the ring.
fn expect_none(lab: &Lab, space: &str) {
    let start = Instant::now();
    while elements(lab, space) > 0 {
        assert!(start.elapsed() < LIMIT, "{}", sh(lab, space, "nft list ruleset").1);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Counts ESP that passes the stack's rules.
const COUNT: &str = "nft add table inet watch\n\
    nft add chain inet watch out '{ type filter hook output priority 0; }'\n\
    nft add chain inet watch in '{ type filter hook input priority 0; }'\n\
    nft add rule inet watch out meta l4proto esp counter\n\
    nft add rule inet watch in meta l4proto esp counter\n";

/// Returns the counters: out, in.
fn counted(lab: &Lab, space: &str) -> [u64; 2] {
    ["out", "in"].map(|chain| {
        let (_, text) = sh(lab, space, &format!("nft list chain inet watch {chain}"));
        let number = text.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    })
}

#[test]
fn with_a_kernel() {
    let Some(Tapped { mut guest, host, lab }) = Tapped::new("xfrm_fast::with_a_kernel", PLAIN) else { return };
    let space = host.space.clone();
    assert!(sh(&lab, &space, COUNT).0);
    for case in [(false, true), (true, true), (false, false), (true, false)].map(|(v6, tunnel)| Case { v6, tunnel }) {
        println!("v6 {}, tunnel {}", case.v6, case.tunnel);
        host.ip(&lab, &case.commands(0));
        guest.must(&case.commands(1));
        let inner = case.inner();
        speed_up(&lab, &space, inner[1], &[&space]);
        let before = counted(&lab, &space);
        let (done, text) = sh(&lab, &space, &flood(inner[1], 8000));
        assert!(done, "{text}");
        let after = counted(&lab, &space);
        for (before, after) in before.into_iter().zip(after) {
            assert!((1..4000).contains(&(after - before)), "of 8,000: {before} {after}");
        }
        let shown = lab.start(&space, &[&sealane().to_string_lossy(), "xfrm", "show", "interval", "0"]).finish(LIMIT).1;
        assert!(shown.contains("received past stack") && shown.contains("sent past stack"), "{shown}");
        guest.must(&format!("python3 {} - {} 100 0.01 56 30", program("pings.py"), inner[0]));
        for text in [guest.must("ip -s xfrm state"), host.ip(&lab, "ip -s xfrm state")] {
            assert_eq!(text.matches("replay 0 failed 0").count(), 2, "{text}");
        }
    }
}

const CASE: Case = Case { v6: false, tunnel: true };

/// Two ends with a tunnel between them.
fn pair(test: &str) -> Option<Pair> {
    let pair = Pair::new(test, PLAIN)?;
    for (end, host) in pair.hosts.iter().enumerate() {
        host.ip(&pair.lab, &CASE.commands(end).replace(" proto icmp  ", " "));
    }
    Some(pair)
}

/// Runs a line at an end.
fn at(pair: &Pair, end: usize, line: &str) -> (bool, String) {
    sh(&pair.lab, &pair.hosts[end].space, line)
}

/// Pings until both ends use the fast path.
fn both_speed_up(pair: &Pair) {
    let spaces = pair.hosts.each_ref().map(|host| &*host.space);
    speed_up(&pair.lab, spaces[0], "10.82.2.1", &spaces);
}

#[test]
fn filters_still_count() {
    let Some(pair) = pair("xfrm_fast::filters_still_count") else { return };
    both_speed_up(&pair);
    // Some packets of each state still pass the rules; if all of these are dropped, the state leaves the fast path.
    assert!(at(&pair, 1, COUNT).0);
    let drop = |chain| format!("nft insert rule inet watch {chain} meta l4proto esp drop");
    for chain in ["in", "out"] {
        assert!(at(&pair, 1, &drop(chain)).0);
        let start = Instant::now();
        loop {
            let (_, text) = at(&pair, 0, "ping -q -c 200 -i 0.001 -W 1 10.82.2.1");
            if text.contains(" 0 received") {
                break;
            }
            assert!(start.elapsed() < LIMIT, "rules of {chain} do not count: {text}");
        }
        assert!(at(&pair, 1, &format!("nft flush chain inet watch {chain}")).0);
        let (done, text) = at(&pair, 0, &flood("10.82.2.1", 200));
        assert!(done, "{text}");
    }
    // A state that filters held back is not tried again soon.
    expect_none(&pair.lab, &pair.hosts[1].space);
}

#[test]
fn nothing_is_left_behind() {
    let Some(mut pair) = pair("xfrm_fast::nothing_is_left_behind") else { return };
    both_speed_up(&pair);
    let watch = pair.watch(0, &[]);
    pair.hosts[1].end(libc::SIGKILL);
    let (_, text) = at(&pair, 1, "nft list tables; ip xfrm policy");
    assert!(
        !text.lines().any(|table| table == "table netdev sealane-ipsec") && text.contains("inet sealane-ipsec"),
        "{text}"
    );
    // The kernel sees ESP again.
    assert!(at(&pair, 1, COUNT).0);
    let (done, text) = at(&pair, 0, "ping -q -c 50 -i 0.01 -W 1 10.82.2.1");
    assert!(!done, "{text}");
    let (_, seen) = at(&pair, 1, "nft list chain inet watch in");
    assert!(!seen.contains("packets 0"), "{seen}");
    // A new daemon has no states, and gets new ones.
    pair.hosts[1].start(&pair.lab);
    for (end, host) in pair.hosts.iter().enumerate() {
        host.ip(&pair.lab, &CASE.commands(end).replace(" proto icmp  ", " ").replace("0x100", "0x200"));
    }
    both_speed_up(&pair);
    // Packets of a deleted state go to the stack again.
    assert!(at(&pair, 1, COUNT).0);
    pair.hosts[1].ip(&pair.lab, "ip xfrm state flush");
    let pings =
        pair.lab.start(&pair.hosts[0].space, &["ping", "-q", "-c", "6000", "-i", "0.01", "-W", "1", "10.82.2.1"]);
    let passed = |text: &str| text.split("packets ").nth(1).and_then(|t| t.split(' ').next()?.parse::<u32>().ok());
    let start = Instant::now();
    while passed(&at(&pair, 1, "nft list chain inet watch in").1).is_none_or(|n| n < 50) {
        assert!(start.elapsed() < LIMIT, "the stack sees none of them");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(pings);
    // Idle states return to the sockets, and with the last of them the rules are removed.
    for host in &pair.hosts {
        expect_none(&pair.lab, &host.space);
    }
    let (_, seen) = watch.finish(LIMIT);
    assert!(protected(&seen) > 0, "{seen}");
}

#[test]
fn the_ground_shifts() {
    let Some(pair) = pair("xfrm_fast::the_ground_shifts") else { return };
    both_speed_up(&pair);
    let passes = |count: u32| {
        let (done, text) = at(&pair, 0, &flood("10.82.2.1", count));
        assert!(done, "{text}");
    };
    // An MTU beyond the ring's frames, and a long packet once the path has been looked up again.
    for which in 0..2 {
        assert!(at(&pair, which, "ip link set veth mtu 9000").0);
    }
    std::thread::sleep(Duration::from_millis(1500));
    let start = Instant::now();
    while !at(&pair, 0, "ping -q -M do -s 8000 -c 3 -i 0.1 -W 1 10.82.2.1").0 {
        assert!(start.elapsed() < LIMIT);
    }
    both_speed_up(&pair);
    // Down and up again.
    assert!(at(&pair, 1, "ip link set veth down").0);
    assert!(!at(&pair, 0, "ping -q -c 2 -i 0.1 -W 1 10.82.2.1").0);
    assert!(at(&pair, 1, "ip link set veth up; ip route add 10.82.1.1/32 dev veth src 10.82.2.1").0);
    let start = Instant::now();
    while !at(&pair, 0, "ping -q -c 3 -i 0.1 -W 1 10.82.2.1").0 {
        assert!(start.elapsed() < LIMIT);
    }
    passes(1000);
    // Fragments of ESP do not come by the ring.
    for which in 0..2 {
        assert!(at(&pair, which, "ip link set veth mtu 1500").0);
    }
    both_speed_up(&pair);
    // A path is cached for a second.
    let start = Instant::now();
    while !at(&pair, 0, "ping -q -M dont -s 4000 -c 50 -i 0.01 -W 2 10.82.2.1").0 {
        assert!(start.elapsed() < LIMIT);
    }
    passes(1000);
    for host in &pair.hosts {
        let states = host.ip(&pair.lab, "ip -s xfrm state");
        assert_eq!(states.matches("replay 0 failed 0").count(), 2, "{states}");
    }
}
