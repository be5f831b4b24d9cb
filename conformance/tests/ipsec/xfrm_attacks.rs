//! Attacks on ESP and AH against a real kernel and a daemon: both drop and count the same packets, line by line. The
//! kernel's counters are recorded; a second daemon takes its place beside the one that is attacked.

use sealane_conformance::ipsec::{Guest, Host, INNER, KERNEL, LIMIT, OUTER, Peer, program};
use sealane_conformance::lab::Lab;
use sealane_conformance::recorded::{Sequence, changed, changes};
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::Target;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time that a daemon may need to count.
const PATIENCE: Duration = Duration::from_secs(30);
const PROGRAM: &str = "esp_attack.py";
/// The end of 32-bit sequence numbers.
const WRAP: u64 = 1 << 32;

/// A daemon and its peer with a bridge between them; the attacker is in the namespace of the bridge.
///
/// ```text
///  lab-host               lab-wire                          the kernel, or lab-peer
///  veth  10.81.0.1 ───── host ─ bridge ─ kernel ─────────── vec0  10.81.0.2
/// ```
struct Scene {
    lab: Lab,
    wire: String,
    host: Host,
    peer: Peer,
    key: u8,
}

/// The end that is attacked: the peer when it is a kernel, or the first daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Kernel,
    Daemon,
}

impl Victim {
    /// Its index among the two ends.
    fn end(self) -> usize {
        usize::from(self == Victim::Kernel)
    }

    /// The attacker's ports: to the victim, and to its peer.
    fn ports(self) -> [&'static str; 2] {
        if self == Victim::Kernel { ["kernel", "host"] } else { ["host", "kernel"] }
    }
}

const SPI: [&str; 2] = ["0x1001", "0x2001"];
/// The first byte of the cipher's key changes each time, because a daemon continues the numbers of a key that is added
/// again.
const ALGORITHM: &str = "enc 'rfc3686(ctr(aes))' 0xKK0102030405060708090a0b0c0d0e0f10111213 auth-trunc 'hmac(sha256)' \
                         0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128";

/// The states that are attacked.
struct Case {
    what: &'static str,
    v6: bool,
    mode: &'static str,
    flags: &'static str,
    /// The sequence number before the first packet, in both directions.
    start: u64,
    /// Number of packets before the attacks.
    packets: u32,
    /// Whether they come as fast as they can, so that a state may be busy enough for the path past the stack.
    busy: bool,
}

impl Case {
    /// Returns the commands of one end.
    fn commands(&self, end: usize, key: u8) -> String {
        let Case { v6, mode, flags, start, .. } = self;
        let outer = OUTER[usize::from(*v6)];
        let esn = flags.contains("esn");
        let algorithm = ALGORITHM.replace("KK", &format!("{key:02x}"));
        let mut script = "ip xfrm state flush\nip xfrm policy flush\n".to_owned();
        for from in 0..2 {
            let to = 1 - from;
            let way = if from == end { "oseq" } else { "seq" };
            let (high, low) = (start >> 32, start & 0xffff_ffff);
            let numbers = match (start, esn) {
                (0, _) => String::new(),
                (_, false) => format!("replay-{way} {low:#x}"),
                (_, true) => format!("replay-{way} {low:#x} replay-{way}-hi {high:#x}"),
            };
            script += &format!(
                "ip xfrm state add src {} dst {} proto esp spi {} reqid 1 mode {mode} {algorithm} {flags} {numbers}\n",
                outer[from], outer[to], SPI[from]
            );
            let inner = if *mode == "transport" { outer } else { INNER[0] };
            let direction = if from == end { "out" } else { "in" };
            let ends =
                if *mode == "transport" { String::new() } else { format!("src {} dst {}", outer[from], outer[to]) };
            let template = format!("tmpl {ends} proto esp reqid 1 mode {mode}");
            let mut policy = |what: &str, rest: &str| {
                script += &format!(
                    "ip xfrm policy add dir {direction} src {} dst {} {what} {rest}\n",
                    inner[from], inner[to]
                );
            };
            policy(if *v6 && *mode == "transport" { "proto ipv6-icmp type 128" } else { "proto icmp" }, &template);
            if *v6 && *mode == "transport" {
                policy("proto ipv6-icmp type 129", &template);
            }
            if direction == "in" {
                policy("proto udp dport 1001", "action block");
                policy("proto udp dport 1002", &template.replace("reqid 1", "reqid 2"));
                policy("proto udp dport 1003", &format!("{template} {}", template.replace("esp", "ah")));
                policy("proto udp dport 1005", "");
            }
        }
        script
    }
}

/// The counters of a victim.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    /// The lines of `/proc/net/xfrm_stat` that grew, with the difference. Packets right behind the one that reaches a
    /// hard limit find their state expired or already deleted, depending on a timer of the kernel, so both are counted
    /// together.
    stat: BTreeMap<String, u64>,
    /// `ip -s xfrm state` without names and dates.
    states: String,
}

fn counters(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    lines
        .filter(|(name, _)| name.starts_with("Xfrm"))
        .map(|(name, n)| (name.to_owned(), n.trim().parse().unwrap()))
        .collect()
}

/// Returns the states without the parts that must differ: addresses, SPIs, keys, dates.
fn plain_states(text: &str, victim: Victim, v6: bool, key: u8) -> String {
    let (own, other) = (victim.end(), 1 - victim.end());
    let mut text = text.replace(&format!("0x{key:02x}01"), "0x..01");
    for (end, address, spi) in [(own, "VICTIM", "OUT"), (other, "PEER", "IN")] {
        let number = u32::from_str_radix(&SPI[end][2..], 16).expect("hexadecimal");
        text = text.replace(OUTER[usize::from(v6)][end], address).replace(&format!("{number:#010x}({number})"), spi);
    }
    let mut blocks: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("src ") {
            blocks.push(String::new());
        }
        let date = ["add 20", "lastused 20"].iter().any(|start| line.trim_start().starts_with(start));
        if let (Some(block), false) = (blocks.last_mut(), date) {
            *block += line;
            block.push('\n');
        }
    }
    blocks.sort();
    blocks.concat()
}

/// Writes the records of a case, each against the one before.
fn written(records: &[Record]) -> String {
    let (mut text, mut before) = (String::new(), "");
    for Record { stat, states } in records {
        text += "--\n";
        text.extend(stat.iter().map(|(name, n)| format!("{name} {n}\n")));
        text += &changes(before, states);
        before = states;
    }
    text
}

/// Reads what [`written`] writes.
fn read(text: &str) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for part in text.split("--\n").skip(1) {
        let is_counter = |line: &&str| line.starts_with("Xfrm") || line.starts_with("late ");
        let (stat, states): (Vec<&str>, Vec<&str>) = part.lines().partition(is_counter);
        let counter = |line: &&str| line.split_once(' ').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
        let states = changed(records.last().map_or("", |record| &record.states), &states.join("\n"));
        records.push(Record { stat: stat.iter().filter_map(counter).collect(), states });
    }
    records
}

/// Shows the differences of two records.
fn difference(wanted: &Record, found: &Record) -> String {
    let mut text = String::new();
    if wanted.stat != found.stat {
        text += &format!("  linux {:?}\n  here  {:?}\n", wanted.stat, found.stat);
    }
    for (wanted, found) in wanted.states.lines().zip(found.states.lines()).filter(|(a, b)| a != b) {
        text += &format!("  linux {wanted}\n  here  {found}\n");
    }
    text
}

impl Scene {
    /// Starts both ends; returns none and reports a skip when something is missing.
    fn new(test: &str, with_kernel: bool) -> Option<Scene> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let (wire, space, other) = (lab.space("wire"), lab.space("host"), lab.space("peer"));
        // A busy machine has a daemon send several datagrams at once, which the recorder would take for one.
        let apart = |space: &str, device: &str| {
            let apart = ["ethtool", "-K", device, "tx-udp-segmentation", "off"];
            assert_eq!(lab.start(space, &apart).finish(LIMIT).0, Some(0), "ethtool");
        };
        lab.veth([&wire, &space], ["host", "veth"]);
        apart(&space, "veth");
        if with_kernel {
            lab.ip(&wire, "tuntap add kernel mode tap");
        } else {
            lab.veth([&wire, &other], ["kernel", "vec0"]);
            apart(&other, "vec0");
            lab.address(&other, "vec0", "10.81.0.2/24", "fd81::2/64");
        }
        lab.ip(&wire, "link add bridge type bridge mcast_snooping 0");
        for port in ["host", "kernel"] {
            lab.ip(&wire, &format!("link set {port} master bridge up"));
        }
        lab.ip(&wire, "link set bridge up");
        lab.address(&space, "veth", "10.81.0.1/24", "fd81::1/64");
        let host = Host::new(&lab, &space);
        let mut peer = if with_kernel {
            let mut guest = Guest::boot(&lab, &wire, "kernel", KERNEL, &["10.81.0.2/24", "fd81::2/64"]);
            OUTER.iter().for_each(|of| guest.reaches(of[0]));
            guest.takes_esp_in_udp();
            Peer::Kernel(guest)
        } else {
            Peer::Daemon(Host::new(&lab, &other))
        };
        // Forwarding, for packets to other destinations.
        let inner = |end: usize, device: &str| {
            let (own, other) = (INNER[0][end], INNER[0][1 - end]);
            format!(
                "echo 1 > /proc/sys/net/ipv4/ip_forward\nip addr add {own}/32 dev lo\n\
                 ip route add {other}/32 dev {device} src {own}"
            )
        };
        host.ip(&lab, &inner(0, "veth"));
        peer.must(&lab, &inner(1, "vec0"));
        Some(Scene { lab, wire, host, peer, key: 0 })
    }

    fn counted(&mut self, victim: Victim) -> String {
        const COUNTERS: &str = "cat /proc/net/xfrm_stat; ip -s xfrm state";
        match victim {
            Victim::Kernel => self.peer.must(&self.lab, COUNTERS),
            Victim::Daemon => self.host.ip(&self.lab, COUNTERS),
        }
    }

    /// Adds states and policies at both ends, and records packets from the victim's peer.
    fn prepare(&mut self, victim: Victim, case: &Case) -> String {
        let file = self.lab.folder().join("frames").to_string_lossy().into_owned();
        self.host.ip(&self.lab, &case.commands(0, self.key));
        self.peer.must(&self.lab, &case.commands(1, self.key));
        let (own, other) = (victim.end(), 1 - victim.end());
        let count = case.packets.to_string();
        let mut recorder = self
            .lab
            .start(&self.wire, &["python3", &program(PROGRAM), "record", victim.ports()[1], SPI[other], &count, &file]);
        recorder.expect("recording", 1);
        let to = if case.mode == "transport" { OUTER[usize::from(case.v6)][own] } else { INNER[0][own] };
        let pace = if case.busy { "-A" } else { "-i 0.002" };
        let ping = format!("ping -q -c {count} {pace} -W 30 {to}");
        let pinger = match (&self.peer, victim) {
            (Peer::Daemon(peer), Victim::Daemon) => peer,
            _ => &self.host,
        };
        let (status, text) = self.lab.start(&pinger.space, &["sh", "-c", &ping]).finish(LIMIT);
        assert_eq!(status, Some(0), "{victim:?}: {}: {text}\n{}", case.what, self.counted(victim));
        let (status, text) = recorder.finish(LIMIT);
        assert_eq!(status, Some(0), "not all packets were recorded: {text}");
        file
    }

    /// Attacks a victim; returns its counters before the attacks and after each group of them. A kernel has counted
    /// everything before it runs the next command; a daemon is waited for until it equals `like`.
    fn attack(&mut self, victim: Victim, case: &Case, groups: &[&[String]], like: &[Record]) -> Vec<Record> {
        self.key += 1;
        let mut before = counters(&self.counted(victim));
        let file = self.prepare(victim, case);
        let top = (case.start + u64::from(case.packets)).to_string();
        let esn = if case.flags.contains("esn") { "esn" } else { "no" };
        let argv = [
            "python3",
            &program(PROGRAM),
            "play",
            victim.ports()[0],
            &file,
            &top,
            esn,
            case.mode,
            &self.key.to_string(),
        ];
        let mut attacker = self.lab.start(&self.wire, &argv);
        let mut records: Vec<Record> = Vec::new();
        let mut played = 0;
        for (i, group) in groups.iter().enumerate() {
            group.iter().for_each(|name| attacker.tell(name));
            played += group.len();
            attacker.expect("played", played);
            let start = Instant::now();
            let (record, now) = loop {
                let text = self.counted(victim);
                let now = counters(&text);
                let grown = |(name, n): (&String, &u64)| (name.clone(), n - before.get(name).unwrap_or(&0));
                let mut stat: BTreeMap<String, u64> = now.iter().map(grown).filter(|(_, n)| *n > 0).collect();
                if case.flags.contains("hard") {
                    let late = ["XfrmInNoStates", "XfrmInStateInvalid"].iter().filter_map(|name| stat.remove(*name));
                    let late = late.sum();
                    stat.insert("late".to_owned(), late);
                }
                let record = Record { stat, states: plain_states(&text, victim, case.v6, self.key) };
                if like.get(i).is_none_or(|like| *like == record) || start.elapsed() > PATIENCE {
                    break (record, now);
                }
            };
            records.push(record);
            before = now;
        }
        records
    }
}

/// Returns a case in tunnel mode over IPv4, with a window of 64.
fn tunnel(what: &'static str) -> Case {
    Case { what, v6: false, mode: "tunnel", flags: "replay-window 64", start: 0, packets: 80, busy: false }
}

/// The questions of a test of this file to a kernel.
fn sequence(name: &str) -> Sequence {
    let sources = ["conformance/tests/ipsec/xfrm_attacks.rs", "conformance/programs/esp_attack.py"];
    Sequence::new(KERNEL, &format!("xfrm-attacks-{name}")).files(&sources).tools(&["ip -V"])
}

/// Runs all attacks on each of `cases`.
fn counted_as_linux_counts(test: &str, name: &str, cases: &[Case]) {
    let listed = Command::new("python3").args([&program(PROGRAM), "names"]).output().expect("python3");
    let names: Vec<String> = String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect();
    assert!(names.len() > 40, "{names:?}");
    // A single case runs attack by attack.
    let only = std::env::var("SEALANE_ATTACKS").unwrap_or_default();
    let cases: Vec<&Case> = cases.iter().filter(|c| c.what.contains(&only)).collect();
    let at_a_time = if only.is_empty() { 8 } else { 1 };
    let groups: Vec<&[String]> = core::iter::once(&[][..]).chain(names.chunks(at_a_time)).collect();
    let of_linux = sequence(name).fixed(only.is_empty()).answer(test, || {
        let mut scene = Scene::new(test, true)?;
        let mut attack = |case: &&Case| written(&scene.attack(Victim::Kernel, case, &groups, &[]));
        Some(cases.iter().map(|case| format!("## {}\n{}", case.what, attack(case))).collect())
    });
    let Some(of_linux) = of_linux else { return };
    let Some(mut scene) = Scene::new(test, false) else { return };
    let mut different = String::new();
    for (case, wanted) in cases.iter().zip(of_linux.split("## ").skip(1)) {
        let wanted = read(wanted);
        let found = scene.attack(Victim::Daemon, case, &groups, &wanted);
        assert_eq!(wanted.len(), found.len(), "{}", case.what);
        for (group, (wanted, found)) in groups.iter().zip(wanted.iter().zip(&found)) {
            if wanted != found {
                different += &format!("{}: {group:?}:\n{}", case.what, difference(wanted, found));
            }
        }
        let dropped: u64 = wanted.iter().flat_map(|r| r.stat.values()).sum();
        println!("{}: {} attacks, {dropped} packets dropped", case.what, names.len());
        assert!(dropped > 50, "the attacks did arrive: {wanted:?}");
    }
    assert!(different.is_empty(), "{different}");
}

#[test]
fn on_windows() {
    let cases = [
        tunnel("a window of 64"),
        Case { flags: "replay-window 32", ..tunnel("a window of 32, in the old way") },
        Case { flags: "replay-window 1024", packets: 200, ..tunnel("a window of 1024") },
        Case { flags: "replay-window 1024", packets: 400, busy: true, ..tunnel("a busy state") },
        Case { flags: "replay-window 0", ..tunnel("no window") },
        Case { start: WRAP - 100, ..tunnel("numbers that are nearly used up") },
    ];
    counted_as_linux_counts("xfrm_attacks::on_windows", "windows", &cases);
}

#[test]
fn on_extended_numbers() {
    let esn = |what, flags, start| Case { flags, start, ..tunnel(what) };
    let cases = [
        esn("extended numbers", "replay-window 64 flag esn", 0),
        esn("extended numbers across 2^32", "replay-window 64 flag esn", WRAP - 40),
        esn("the window's end at 2^32", "replay-window 128 flag esn", WRAP - 80),
        esn("the window begins below 2^32", "replay-window 128 flag esn", WRAP - 1),
        esn("a large window over 2^32", "replay-window 4096 flag esn", WRAP - 50),
        esn("a high half of many", "replay-window 64 flag esn", 0x1234_5678_ffff_ffe0),
    ];
    counted_as_linux_counts("xfrm_attacks::on_extended_numbers", "numbers", &cases);
}

#[test]
fn on_ways_and_limits() {
    let cases = [
        Case { flags: "replay-window 64 encap espinudp 4500 4500 0.0.0.0", ..tunnel("in UDP") },
        Case { v6: true, flags: "replay-window 64 flag af-unspec", ..tunnel("in IPv6") },
        Case { mode: "transport", ..tunnel("transport") },
        Case { flags: "replay-window 64 limit packet-hard 84", ..tunnel("a hard limit of packets") },
        Case { flags: "replay-window 64 limit byte-hard 6900", ..tunnel("a hard limit of bytes") },
    ];
    counted_as_linux_counts("xfrm_attacks::on_ways_and_limits", "ways", &cases);
}

/// A destination behind the victim.
const BEHIND: &str = "10.82.3.9";

impl Scene {
    /// Runs a script at the victim, or at its peer.
    fn script(&mut self, at_peer: bool, script: &str) -> String {
        if at_peer { self.peer.must(&self.lab, script) } else { self.host.ip(&self.lab, script) }
    }

    /// Sends unprotected packets from the victim's peer, and returns the victim's counters step by step. A daemon is
    /// waited for until it equals `like`.
    fn clear(&mut self, victim: Victim, like: &[BTreeMap<String, u64>]) -> Vec<BTreeMap<String, u64>> {
        let (own, other) = (victim.end(), 1 - victim.end());
        let kernel = victim == Victim::Kernel;
        let (from, to, next) = (INNER[0][other], INNER[0][own], OUTER[0]);
        // No other traffic.
        const QUIET: &str =
            "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6\nip xfrm state flush\nip xfrm policy flush\n";
        self.script(!kernel, &format!("{QUIET}ip route replace {BEHIND}/32 via {} src {from}", next[own]));
        self.script(kernel, &format!("{QUIET}ip route replace {BEHIND}/32 via {}", next[other]));
        let template = format!("tmpl src {} dst {} proto esp reqid 1 mode tunnel", next[other], next[own]);
        let add =
            |dir: &str, to: &str, rest: &str| format!("ip xfrm policy add dir {dir} src {from} dst {to} {rest}\n");
        let policies = [
            add("in", to, &format!("proto icmp {template}")),
            add("in", to, "proto udp dport 1001 action block"),
            add("in", to, &format!("proto udp dport 1002 {template}")),
            add("in", to, &format!("proto udp dport 1003 {template} level use")),
            add("in", to, "proto udp dport 1005"),
            add("fwd", BEHIND, "proto udp dport 1001 action block"),
            add("fwd", BEHIND, &format!("proto udp dport 1002 {template}")),
        ]
        .concat();
        let send = |to: &str, port: u16, count: u16| {
            format!(
                "python3 -c \"import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('{from}', 0)); \
                 [s.sendto(b'clear', ('{to}', {port})) for _ in range({count})]\"\n"
            )
        };
        // Commands at the victim, and then packets from its peer.
        let steps = [
            (policies, send(to, 1001, 2) + &send(to, 1002, 4) + &send(to, 1003, 1) + &send(to, 1005, 1)),
            (String::new(), format!("ping -q -c 3 -i 0.01 -W 1 -I {from} {to} || true")),
            // Rules are replaced, and their counters kept.
            (add("in", to, "proto udp dport 1004 action block"), send(to, 1004, 3) + &send(to, 1001, 1)),
            (String::new(), send(BEHIND, 1001, 5) + &send(BEHIND, 1002, 6)),
            ("ip xfrm policy setdefault in block\n".to_owned(), send(to, 1006, 7)),
            ("ip xfrm policy setdefault in accept\n".to_owned(), send(to, 1006, 7)),
            ("ip xfrm policy setdefault fwd block\n".to_owned(), send(BEHIND, 1006, 8)),
            ("ip xfrm policy setdefault fwd accept\nip xfrm policy flush\n".to_owned(), send(to, 1001, 2)),
        ];
        let mut before = counters(&self.counted(victim));
        let mut grown = Vec::new();
        for (i, (told, sent)) in steps.iter().enumerate() {
            if !told.is_empty() {
                self.script(kernel, told);
            }
            let device = if kernel { "veth" } else { "vec0" };
            let reach = format!("python3 {} reach {device} {}\n", program(PROGRAM), next[own]);
            self.script(!kernel, &format!("{sent}\n{reach}"));
            let start = Instant::now();
            let (more, now) = loop {
                let now = counters(&self.counted(victim));
                let more = |(name, n): (&String, &u64)| (name.clone(), n.wrapping_sub(*before.get(name).unwrap_or(&0)));
                let more: BTreeMap<String, u64> = now.iter().map(more).filter(|(_, n)| *n > 0).collect();
                if like.get(i).is_none_or(|like| *like == more) || start.elapsed() > PATIENCE {
                    break (more, now);
                }
            };
            grown.push(more);
            before = now;
        }
        grown
    }
}

#[test]
fn clear_packets_are_counted_as_linux_counts() {
    const TEST: &str = "xfrm_attacks::clear_packets_are_counted_as_linux_counts";
    let line = |step: &BTreeMap<String, u64>| {
        format!("counted{}\n", step.iter().map(|(name, n)| format!(" {name} {n}")).collect::<String>())
    };
    let of_linux = sequence("clear")
        .answer(TEST, || Some(Scene::new(TEST, true)?.clear(Victim::Kernel, &[]).iter().map(line).collect()));
    let Some(of_linux) = of_linux else { return };
    let wanted: Vec<BTreeMap<String, u64>> = (of_linux.lines())
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .map(|words| {
            words[1..].chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a number"))).collect()
        })
        .collect();
    let Some(mut scene) = Scene::new(TEST, false) else { return };
    let found = scene.clear(Victim::Daemon, &wanted);
    assert_eq!(found, wanted);
    let total = |name: &str| wanted.iter().filter_map(|step| step.get(name)).sum::<u64>();
    let seen = ["XfrmInTmplMismatch", "XfrmInPolBlock", "XfrmInNoPols"].map(total);
    assert_eq!(seen, [4 + 3 + 6, 2 + 3 + 1 + 5, 7 + 8], "{wanted:?}");
}
