//! Policies and states that come, change and go in any order: the rules follow them, and nothing stays behind.

use crate::xfrm_restart::tunnel;
use sealane_conformance::ipsec::{Host, INNER, LIMIT, OUTER, Pair, ping_all, program};
use sealane_conformance::lab::Lab;
use sealane_conformance::rng::Rng;
use sealane_conformance::target::sealane;
use std::time::{Duration, Instant};

const CONFIG: &str = "[ipsec]\n[[ipsec.device]]\nname = \"packet0\"\nkind = \"packet\"\n\
                      [[ipsec.interface]]\nname = \"ipsec0\"\nif_id = 7\n";
const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128";
const EMPTY: &str =
    "ip xfrm policy flush\nip xfrm state flush\nip xfrm policy setdefault in accept fwd accept out accept";
/// The time in which the daemon puts back what a device has lost that went down.
const SETTLED: Duration = Duration::from_secs(30);
/// The rules and routes of the daemon and its device.
const RULES: &str = "nft list ruleset\nfor v in -4 -6; do ip $v rule; done\n\
                     for table in 24225 24226; do for v in -4 -6; do ip $v route show table $table || true; done; done";

/// Networks whose traffic policies select, some within others.
const NETS: [[&str; 2]; 6] = [
    ["10.82.1.0/24", "10.82.2.0/24"],
    ["10.82.1.1/32", "10.82.2.1/32"],
    ["10.82.0.0/16", "10.82.0.0/16"],
    ["0.0.0.0/0", "0.0.0.0/0"],
    ["10.81.0.1/32", "10.81.0.2/32"],
    ["fd82:1::/64", "fd82:2::/64"],
];
/// What else they select. Rules cannot express the last two.
const UPPER: [&str; 9] =
    ["", "", "", "", "proto icmp", "proto udp sport 5", "proto tcp dport 80", "dev lo", "proto 133"];
const MARKS: [&str; 6] = ["", "", "", "mark 5", "mark 1 mask 0xf", "mark 0x20000001"];
const PRIORITIES: [&str; 3] = ["", "priority 5", "priority 9"];
const STATES: [&str; 5] =
    ["", "", "encap espinudp 4500 4500 0.0.0.0", "output-mark 0x8", "replay-window 32 output-mark 0x20000008"];

/// A command about policies or states, which may be refused. A policy has one of these priorities.
fn command(rng: &mut Rng, priorities: &[&str]) -> String {
    let [a, b] = *rng.of(&[[0, 1], [1, 0]]);
    let ends = format!("src {} dst {}", OUTER[0][a], OUTER[0][b]);
    let (nets, dir) = (rng.of(&NETS), *rng.of(&["in", "out", "fwd"]));
    let selector = format!("src {} dst {} {} dir {dir}", nets[a], nets[b], rng.of(&UPPER));
    let (mark, if_id) = (*rng.of(&MARKS), *rng.of(&["", "", "", "if_id 7"]));
    let state = format!("{ends} proto esp spi {} {mark}", rng.of(&["0x1001", "0x2001", "0x3001"]));
    let priority = rng.of(priorities);
    match rng.weighted(&[40, 12, 15, 2, 5, 15, 7, 2, 2]) {
        0 => {
            let how = rng.of(&["add", "add", "update"]);
            let action = rng.of(&["", "", "", "action block"]);
            let templates: String = (0..*rng.of(&[0, 1, 1, 1, 2, 3])).map(|_| template(rng, &ends)).collect();
            format!("ip xfrm policy {how} {selector} {action} {priority} {mark} {if_id} {templates}")
        }
        1 => {
            let sealane = sealane().display().to_string();
            let template = format!("tmpl {ends} proto esp reqid 1 mode tunnel");
            format!("'{sealane}' xfrm policy add {selector} {priority} {mark} {template} offload packet dev packet0")
        }
        2 => format!("ip xfrm policy delete {selector} {mark} {if_id}"),
        3 => "ip xfrm policy flush".to_owned(),
        4 => format!("ip xfrm policy setdefault {dir} {}", rng.of(&["block", "accept"])),
        5 => {
            let (how, mode) = (rng.of(&["add", "update"]), rng.of(&["tunnel", "transport", "beet"]));
            format!(
                "ip xfrm state {how} {state} reqid {} mode {mode} {if_id} {GCM} {}",
                rng.of(&[1, 2]),
                rng.of(&STATES)
            )
        }
        6 => format!("ip xfrm state delete {state}"),
        7 => "ip xfrm state flush".to_owned(),
        _ => format!("ip xfrm state allocspi {ends} proto esp mode tunnel min 0x100 max 0x200"),
    }
}

fn template(rng: &mut Rng, ends: &str) -> String {
    let (proto, mode) = (rng.of(&["esp", "esp", "ah", "comp"]), rng.of(&["tunnel", "tunnel", "transport", "beet"]));
    let (reqid, level) = (rng.of(&[0, 1, 2]), rng.of(&["required", "required", "use"]));
    format!(" tmpl {ends} proto {proto} reqid {reqid} mode {mode} level {level}")
}

/// The rules without what differs between two daemons: the marks and priorities that each has drawn, what was counted, and who owns them.
fn without_marks(rules: &str) -> String {
    let own = rules.split_once("socket mark ").and_then(|(_, rest)| rest.split_whitespace().next());
    let own = own.unwrap_or_else(|| panic!("no rule lets our own packets pass: {rules}"));
    let drawn = drawn_for_opened(rules);
    let line = |line: &str| match line.split_once("counter packets") {
        Some((before, _)) => format!("{before}\n"),
        None => {
            let line = drawn.iter().fold(line.replace(own, "own"), |line, drawn| line.replace(drawn, "opened"));
            line.split(" # progname").next().unwrap_or_default().to_owned() + "\n"
        }
    };
    rules.lines().map(line).collect()
}

/// The marks and the priority of opened packets that come in by the device that they came by sealed; none where all come by ours.
fn drawn_for_opened(rules: &str) -> Vec<&str> {
    let sets =
        rules.lines().filter_map(|line| line.trim().strip_prefix("meta mark ")?.split_once(" meta priority set "));
    sets.flat_map(|(mark, rest)| [mark, rest.split(' ').next().unwrap_or(rest)]).collect()
}

fn rules(lab: &Lab, host: &Host) -> String {
    let (status, text) = lab.start(&host.space, &["sh", "-ec", RULES]).finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    let (_, shown) = host.sealane(lab, "xfrm show interval 0");
    assert!(shown.contains("rules: as policies and states ask for\n"), "{shown}{text}");
    without_marks(&text)
}

/// Rules that were written by their differences are those that the next daemon writes at once. After a flush they are
/// as before all policies, and a tunnel loses nothing.
#[test]
fn nothing_stays_behind() {
    let Some(mut pair) = Pair::new("xfrm_history::nothing_stays_behind", CONFIG) else { return };
    let empty = [0, 1].map(|end| {
        pair.hosts[end].ip(&pair.lab, EMPTY);
        rules(&pair.lab, &pair.hosts[end])
    });
    let mut rng = Rng::new(30);
    for round in 0..10 {
        let mut history = String::new();
        for end in [0, 1, 0, 1] {
            let commands: String = (0..20).map(|_| command(&mut rng, &PRIORITIES) + "\n").collect();
            history += &format!("# at end {end}\n{commands}");
            // Some of them are refused.
            let _ = pair.hosts[end].run(&pair.lab, &["sh", "-c", &commands]);
            if rng.chance(50) {
                let written = rules(&pair.lab, &pair.hosts[end]);
                pair.hosts[end].end(libc::SIGKILL);
                pair.hosts[end].start(&pair.lab);
                history += "# the next daemon\n";
                assert_eq!(written, rules(&pair.lab, &pair.hosts[end]), "round {round}, end {end}, after\n{history}");
            }
        }
        for (end, empty) in empty.iter().enumerate() {
            pair.hosts[end].ip(&pair.lab, EMPTY);
            assert_eq!(*empty, rules(&pair.lab, &pair.hosts[end]), "round {round}, end {end}, after\n{history}");
        }
        a_tunnel_loses_nothing(&pair, &format!("round {round}, after\n{history}"));
    }
}

/// Lets both ends, which have neither policies nor states, ping each other through a tunnel.
fn a_tunnel_loses_nothing(pair: &Pair, when: &str) {
    let stat = || [0, 1].map(|end| pair.hosts[end].ip(&pair.lab, "cat /proc/net/xfrm_stat"));
    let before = stat();
    for end in 0..2 {
        pair.hosts[end].ip(&pair.lab, &tunnel(end, "replay-window 32"));
    }
    for end in 0..2 {
        let ping = format!("{} {}", ping_all(4), INNER[0][1 - end]);
        let (_, text) = pair.lab.start(&pair.hosts[end].space, &["sh", "-c", &ping]).finish(LIMIT);
        assert!(text.contains(" 4 received"), "from end {end}, {when}\n{text}{:?}", stat());
    }
    assert_eq!(before, stat(), "{when}");
    for host in &pair.hosts {
        host.ip(&pair.lab, EMPTY);
    }
}

/// A daemon in a namespace of its own that has only ever been told the tables of an end: its rules.
fn rules_of_tables(pair: &mut Pair, end: usize, which: &str) -> String {
    let [space, other] = ["", "-other"].map(|end| pair.lab.space(&format!("{which}{end}")));
    pair.lab.veth([&space, &other], ["veth", "veth"]);
    pair.lab.address(&space, "veth", &format!("{}/24", OUTER[0][end]), &format!("{}/64", OUTER[1][end]));
    let mut fresh = Host::configured(&pair.lab, &space, CONFIG);
    let tables = pair.hosts[end].ip(&pair.lab, &format!("python3 {} tell", program("xfrm_tables.py")));
    let tables = pair.lab.file(&format!("{space}.tables"), &tables);
    fresh.ip(&pair.lab, &format!("python3 {} add <{tables}", program("xfrm_tables.py")));
    let rules = rules(&pair.lab, &fresh);
    fresh.end(libc::SIGTERM);
    without_programs(&rules)
}

/// The rules also without the two marks of programs' sockets and the priority beside them, which are drawn for a namespace.
fn without_programs(rules: &str) -> String {
    let first = rules.split_once("socket mark & 0xfffffffd == 0x").and_then(|(_, rest)| rest.split_whitespace().next());
    let first = first.and_then(|mark| u32::from_str_radix(mark, 16).ok()).unwrap_or_else(|| panic!("no mark: {rules}"));
    let late = first | 3;
    let late = format!("priority set {:x}:{:x}", late >> 16, late & 0xffff);
    let drawn = [format!("{first:#010x}"), format!("{:#010x}", first + 1), late.clone(), late.replace(" set", "")];
    drawn.iter().fold(rules.to_owned(), |text, drawn| text.replace(drawn, "programs"))
}

/// The events of devices at an end, beside policies and states.
fn event(rng: &mut Rng, end: usize) -> String {
    let [us, them] = [INNER[0][end], INNER[0][1 - end]];
    let device = *rng.of(&["sealane-ipsec", "packet0", "ipsec0", "veth"]);
    let again = format!("ip link set {device} down; ip link set {device} up");
    // The kernel forgets these of a device that is down.
    let lost =
        format!("ip route replace {them}/32 dev veth src {us}; ip -6 addr replace {}/64 dev veth nodad", OUTER[1][end]);
    if device == "veth" { format!("{again}; {lost}") } else { again }
}

/// Whatever has happened, rules and routes are those of a daemon that has never known anything but the tables of this end, and a
/// tunnel loses nothing afterwards.
#[test]
fn rules_follow_from_the_tables() {
    const TEST: &str = "xfrm_history::rules_follow_from_the_tables";
    let Some(mut pair) = Pair::new(TEST, CONFIG) else { return };
    let first: u64 = std::env::var("SEALANE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(300);
    for seed in first..first + 2 {
        let (mut rng, mut history) = (Rng::new(seed), String::new());
        for part in 0..6 {
            let end = rng.below(2);
            let step = |rng: &mut Rng| {
                // Of two of the same priority the older one comes first, and of a device's the latest: tables do not tell.
                let priority = format!("priority {}", rng.below(1 << 30));
                if rng.chance(10) { event(rng, end) } else { command(rng, &[&priority]) }
            };
            let steps = std::iter::repeat_with(|| step(&mut rng)).filter(|step| !step.contains("offload packet"));
            let commands: String = steps.take(12).map(|step| step + "\n").collect();
            history += &format!("# at end {end}\n{commands}");
            // Some of them are refused.
            let _ = pair.hosts[end].run(&pair.lab, &["sh", "-c", &commands]);
            if rng.chance(40) {
                let signal = *rng.of(&[libc::SIGKILL, libc::SIGTERM]);
                pair.hosts[end].end(signal);
                pair.hosts[end].start(&pair.lab);
                history += &format!("# the next daemon, after signal {signal}\n");
            }
            let wanted = rules_of_tables(&mut pair, end, &format!("{seed}-{part}"));
            settle(&pair, end, &wanted, &format!("seed {seed}, after\n{history}"));
        }
        for host in &pair.hosts {
            host.ip(&pair.lab, EMPTY);
        }
        a_tunnel_loses_nothing(&pair, &format!("seed {seed}, after\n{history}"));
    }
}

/// Waits until the rules of an end are these: routes of a device that went down come back a moment later.
fn settle(pair: &Pair, end: usize, wanted: &str, when: &str) {
    let start = Instant::now();
    loop {
        let found = without_programs(&rules(&pair.lab, &pair.hosts[end]));
        if found == wanted {
            return;
        }
        assert!(start.elapsed() < SETTLED, "end {end}, {when}\nfound:\n{found}\nwanted:\n{wanted}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Packets remove a state whose limit they reach, and its rule goes with it.
#[test]
fn a_mark_goes_with_its_state() {
    let Some(pair) = Pair::new("xfrm_history::a_mark_goes_with_its_state", CONFIG) else { return };
    let [host, other] = &pair.hosts;
    host.ip(&pair.lab, &tunnel(0, ""));
    other.ip(&pair.lab, &tunnel(1, ""));
    let without = rules(&pair.lab, host);
    let marked = tunnel(0, "output-mark 0x8 limit packet-hard 3");
    let state = marked.lines().find(|line| line.contains("spi 0x1001")).expect("a state");
    let [us, them] = OUTER[0];
    host.ip(&pair.lab, &format!("ip xfrm state delete src {us} dst {them} proto esp spi 0x1001\n{state}"));
    assert_ne!(without, rules(&pair.lab, host));
    let ping = format!("ping -q -c 5 -i 0.01 -W 1 {} || true", INNER[0][1]);
    let (_, text) = pair.lab.start(&host.space, &["sh", "-c", &ping]).finish(LIMIT);
    assert!(text.contains(" 3 received"), "{text}");
    host.ip_until(&pair.lab, RULES, |rules| without_marks(rules) == without);
}
