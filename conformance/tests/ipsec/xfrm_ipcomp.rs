//! IPComp within ESP: between two daemons, and between a daemon and a kernel's IPComp.

use sealane_conformance::ipsec::{INNER, LIMIT, OUTER, Peer, Wired, program};
use sealane_conformance::lab::Running;

/// It has IPComp over IPv6, too.
const KERNEL: &str = "linux-7.3-net";

/// ESP that everybody can read.
const GMAC: &str = "aead 'rfc4543(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128";

#[derive(Debug, Clone, Copy)]
struct Case {
    v6: bool,
    tunnel: bool,
    /// The CPI of what the first end sends.
    cpi: u32,
}

const CASES: [Case; 4] = [
    Case { v6: false, tunnel: true, cpi: 0x1001 },
    Case { v6: false, tunnel: false, cpi: 0x1002 },
    Case { v6: true, tunnel: true, cpi: 0x1003 },
    Case { v6: true, tunnel: false, cpi: 0x1004 },
];

impl Case {
    fn outer(&self) -> [&'static str; 2] {
        OUTER[usize::from(self.v6)]
    }

    fn inner(&self) -> [&'static str; 2] {
        if self.tunnel { INNER[usize::from(self.v6)] } else { self.outer() }
    }

    fn mode(&self) -> &'static str {
        if self.tunnel { "tunnel" } else { "transport" }
    }

    fn cpis(&self) -> [u32; 2] {
        [self.cpi, self.cpi + 0x1000]
    }

    /// The commands of one end, as charon gives them: inbound, IPComp is optional. `offload` is for its states of ESP.
    fn commands(&self, end: usize, offload: &str) -> String {
        self.commands_between(self.inner(), end, offload)
    }

    /// The same for packets between these addresses.
    fn commands_between(&self, inner: [&str; 2], end: usize, offload: &str) -> String {
        let (outer, mode) = (self.outer(), self.mode());
        let mut script = "ip xfrm state flush\nip xfrm policy flush\n".to_owned();
        for (from, cpi) in self.cpis().into_iter().enumerate() {
            let to = 1 - from;
            let (dir, level) = if from == end { ("out", "") } else { ("in", "level use") };
            let dirs = if from == end { &["out"][..] } else { &["in", "fwd"] };
            let ends = format!("src {} dst {}", outer[from], outer[to]);
            let tmpl_ends = if self.tunnel { &*ends } else { "" };
            let offload = if offload.is_empty() { String::new() } else { format!("{offload} dir {dir}") };
            script += &format!(
                "ip xfrm state add {ends} proto comp spi {cpi:#x} reqid 1 mode {mode} comp deflate\n\
                 ip xfrm state add {ends} proto esp spi {:#x} reqid 1 mode transport replay-window 64 {GMAC} {offload}\n",
                cpi + 0x10000
            );
            // Neighbour discovery stays unprotected.
            let icmp: &[&str] = if self.v6 { &["ipv6-icmp type 128", "ipv6-icmp type 129"] } else { &["icmp"] };
            for (proto, dir) in icmp.iter().chain(&["tcp"]).flat_map(|proto| dirs.iter().map(move |dir| (proto, dir))) {
                script += &format!(
                    "ip xfrm policy add dir {dir} src {} dst {} proto {proto} tmpl {tmpl_ends} proto comp reqid 1 \
                     mode {mode} {level} tmpl proto esp reqid 1 mode transport\n",
                    inner[from], inner[to]
                );
            }
        }
        script
    }
}

/// Takes connections, reads each to its end and answers with the digest.
const SERVE: &str = r#"
import hashlib, socket, sys
s = socket.create_server((sys.argv[1], 7), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print("listening", flush=True)
for _ in range(int(sys.argv[2])):
    c, _ = s.accept()
    digest = hashlib.sha256()
    while data := c.recv(65536):
        digest.update(data)
    c.sendall(digest.digest())
    c.close()
"#;

/// Sends what shrinks, what does not, and both in turn.
const SEND: &str = r#"
import hashlib, os, socket, sys
noise = os.urandom(300_000)
for data in (b"all work and no play " * 30_000, noise, b"".join(noise[i:i + 5000] + bytes(5000) for i in range(0, 200_000, 5000))):
    c = socket.create_connection((sys.argv[1], 7), timeout=60)
    c.sendall(data)
    c.shutdown(socket.SHUT_WR)
    got = c.recv(32, socket.MSG_WAITALL)
    assert got == hashlib.sha256(data).digest(), (len(data), got)
print("the same")
"#;
const CONNECTIONS: &str = "3";

/// The numbers behind these words in the last line of a watch.
pub(super) fn seen(watch: Running, words: &[&str]) -> Vec<u32> {
    let (_, text) = watch.finish(LIMIT);
    let number = |word: &&str| {
        let found = text.split_once(&format!("{word} ")).map(|(_, rest)| rest);
        found.and_then(|rest| rest.split([' ', '.']).next()?.parse().ok()).unwrap_or_else(|| panic!("{word}: {text}"))
    };
    words.iter().map(number).collect()
}

/// Pings with so many bytes between these addresses, both ways. The default pattern of `ping` shrinks; one byte does not.
pub(super) fn pings(wired: &mut Wired, inner: [&str; 2], lens: &[&str]) {
    let space = wired.host.space.clone();
    pings_of(wired, &space, inner, lens);
}

/// The same, where the first of these addresses is in another namespace.
fn pings_of(wired: &mut Wired, space: &str, inner: [&str; 2], lens: &[&str]) {
    let ping = |to: &str| {
        let each = |len: &&str| format!("ping -q -c 5 -i 0.02 -W 30 -s {len} {to}");
        lens.iter().map(each).collect::<Vec<_>>().join(" && ")
    };
    let [ours, theirs] = inner;
    let (status, text) = wired.lab.start(space, &["sh", "-ec", &ping(theirs)]).finish(LIMIT);
    let stat = wired.host.ip(&wired.lab, "ip -s xfrm state; cat /proc/net/xfrm_stat");
    assert_eq!(status, Some(0), "{inner:?}: {text}\n{stat}");
    wired.peer.must(&wired.lab, &ping(ours));
}

/// Connections between these addresses, both ways.
pub(super) fn connections(wired: &mut Wired, inner: [&str; 2]) {
    let space = wired.host.space.clone();
    connections_of(wired, &space, inner);
}

/// The same, where the first of these addresses is in another namespace.
fn connections_of(wired: &mut Wired, space: &str, inner: [&str; 2]) {
    let [ours, theirs] = inner;
    let mut server = wired.lab.start(space, &["python3", "-c", SERVE, ours, CONNECTIONS]);
    server.expect("listening", 1);
    let text = wired.peer.must(&wired.lab, &format!("python3 -c '{SEND}' {ours}"));
    assert!(text.contains("the same"), "{inner:?}: {text}");
    assert_eq!(server.finish(LIMIT).0, Some(0));
    let file = wired.lab.file("serving", "");
    let serve = format!(
        "python3 -c '{SERVE}' {theirs} {CONNECTIONS} > {file} 2>&1 &\nuntil grep -q listening {file}; do sleep 0.02; done"
    );
    wired.peer.must(&wired.lab, &serve);
    let (status, text) = wired.lab.start(space, &["python3", "-c", SEND, theirs]).finish(LIMIT);
    let stat = wired.host.ip(&wired.lab, "ip -s xfrm state; cat /proc/net/xfrm_stat");
    assert_eq!(status, Some(0), "{inner:?}: {text}\n{stat}");
}

impl Case {
    fn pings(&self, wired: &mut Wired) {
        pings(wired, self.inner(), &["0", "1", "56", "200", "1300"]);
    }

    /// Both kinds of traffic, both ways, and what the wire has of it.
    fn passes(&self, wired: &mut Wired, offload: &str) {
        wired.host.ip(&wired.lab, &self.commands(0, offload));
        wired.peer.must(&wired.lab, &self.commands(1, ""));
        let watch = program("comp_watch.py");
        let [a, b] = self.cpis().map(|cpi| format!("{cpi:x}"));
        let mut watch = wired.lab.start(&wired.host.space, &["python3", &watch, "kernel", &a, &b]);
        watch.expect("watching", 1);
        self.pings(wired);
        connections(wired, self.inner());
        let [comp, ip, other, wrong] = *seen(watch, &["comp", "ip", "other", "wrong"]) else { panic!("four numbers") };
        assert!(comp > 100, "{self:?}: {comp} packets of IPComp");
        // What does not shrink: IP in IP in tunnel mode, and the payload itself in transport mode.
        let (plain, none) = if self.tunnel { (ip, other) } else { (other, ip) };
        assert!(plain > 100 && none == 0 && wrong == 0, "{self:?}: {ip} of IP, {other} others, {wrong} wrong");
    }

    /// The states count what went through them, those of IP in IP too.
    fn is_counted(&self, wired: &mut Wired) {
        let states = wired.host.ip(&wired.lab, "ip -s xfrm state");
        let kinds = states.matches("comp deflate").count();
        assert_eq!(kinds, 2, "{states}");
        let of_tunnels = states.matches(if self.v6 { "proto 41 spi" } else { "proto 4 spi" }).count();
        assert_eq!(of_tunnels, if self.tunnel { 2 } else { 0 }, "{states}");
        let stat = wired.host.ip(&wired.lab, "cat /proc/net/xfrm_stat");
        let (errors, _) = stat.split_once("XfrmOutError").expect("inbound counters come first");
        assert!(errors.lines().all(|line| line.trim_end().ends_with(['0', '\t']) || line.ends_with("\t0")), "{stat}");
    }
}

#[test]
fn between_two_daemons() {
    const TEST: &str = "xfrm_ipcomp::between_two_daemons";
    let Some(mut wired) = Wired::with(TEST, "[ipsec]\n", None) else { return };
    for case in CASES {
        case.passes(&mut wired, "");
        case.is_counted(&mut wired);
    }
    // The next daemon goes on with the states.
    let case = CASES[0];
    wired.host.ip(&wired.lab, &case.commands(0, ""));
    wired.peer.must(&wired.lab, &case.commands(1, ""));
    let told = "ip xfrm state | grep -v anti-replay | sort";
    let before = wired.host.ip(&wired.lab, told);
    wired.host.end(libc::SIGTERM);
    wired.host.start(&wired.lab);
    assert_eq!(wired.host.ip(&wired.lab, told), before);
    case.pings(&mut wired);
    wired.host.ip(&wired.lab, "ip xfrm state flush");
    assert_eq!(wired.host.ip(&wired.lab, "ip xfrm state"), "");
}

#[test]
fn with_workers() {
    const TEST: &str = "xfrm_ipcomp::with_workers";
    let Some(mut wired) = Wired::with(TEST, "[ipsec]\nworkers = 2\n", None) else { return };
    for case in [CASES[0], CASES[3]] {
        case.passes(&mut wired, "");
    }
}

#[test]
fn with_a_kernel() {
    const TEST: &str = "xfrm_ipcomp::with_a_kernel";
    let Some(mut wired) = Wired::with(TEST, "[ipsec]\n", Some(KERNEL)) else { return };
    // Linux 7.3 drops IPComp within ESP that its GRO has opened.
    let Peer::Kernel(guest) = &mut wired.peer else { unreachable!("it was asked for") };
    guest.must("ethtool -K vec0 gro off");
    for case in CASES {
        case.passes(&mut wired, "");
        case.is_counted(&mut wired);
    }
}

/// The states of ESP around those of IPComp are with a crypto core, in both directions.
#[test]
fn with_a_kernel_by_a_crypto_core() {
    const TEST: &str = "xfrm_ipcomp::with_a_kernel_by_a_crypto_core";
    const CONFIG: &str = "[ipsec]\n[[ipsec.device]]\nname = \"sealane0\"\nkind = \"crypto\"\n";
    let Some(mut wired) = Wired::with(TEST, CONFIG, Some(KERNEL)) else { return };
    let Peer::Kernel(guest) = &mut wired.peer else { unreachable!("it was asked for") };
    guest.must("ethtool -K vec0 gro off");
    for case in CASES {
        case.passes(&mut wired, "offload dev sealane0");
        case.is_counted(&mut wired);
    }
    let (_, text) = wired.host.sealane(&wired.lab, "xfrm show interval 0");
    assert_eq!(text.matches("crypto on sealane0").count(), 2, "{text}");
    let packets = text.split_once("crypto, up, 2 states").and_then(|(_, rest)| {
        let (_, rest) = rest.lines().next()?.split_once("packets ")?;
        rest.split(';').next()?.trim().parse::<u64>().ok()
    });
    // Each case has more than 200 each way.
    assert!(packets.is_some_and(|packets| packets > 4 * 400), "{text}");
}

/// A host of its own, behind the daemon's: its addresses.
const BEHIND: [&str; 2] = ["10.82.1.9", "fd82:1::9"];

/// The daemon forwards, and the packets of others are compressed.
fn forwards(test: &str, kernel: Option<&str>) {
    let Some(mut wired) = Wired::with(test, "[ipsec]\n", kernel) else { return };
    if let Peer::Kernel(guest) = &mut wired.peer {
        guest.must("ethtool -K vec0 gro off");
    }
    let (space, behind) = (wired.host.space.clone(), wired.lab.space("c"));
    let lab = &wired.lab;
    lab.veth([&space, &behind], ["lan", "wire"]);
    lab.address(&space, "lan", "10.83.0.1/24", "fd83::1/64");
    lab.address(&behind, "wire", "10.83.0.9/24", "fd83::9/64");
    let [v4, v6] = BEHIND;
    lab.ip(&behind, &format!("addr add {v4}/32 dev lo"));
    lab.ip(&behind, &format!("addr add {v6}/128 dev lo nodad"));
    let [[_, to4], [_, to6]] = INNER;
    lab.ip(&behind, &format!("route add {to4}/32 via 10.83.0.1 src {v4}"));
    lab.ip(&behind, &format!("route add {to6}/128 via fd83::1 src {v6}"));
    lab.ip(&space, &format!("route add {v4}/32 via 10.83.0.9"));
    lab.ip(&space, &format!("route add {v6}/128 via fd83::9"));
    let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
    assert_eq!(lab.start(&space, &["sh", "-ec", forward]).finish(LIMIT).0, Some(0));
    let routes = format!(
        "ip route add {v4}/32 dev vec0 src {to4}; ip route add {v6}/128 via {} dev vec0 src {to6}",
        OUTER[1][0]
    );
    wired.peer.must(&wired.lab, &routes);
    for case in CASES.into_iter().filter(|case| case.tunnel) {
        let inner = [BEHIND[usize::from(case.v6)], case.inner()[1]];
        wired.host.ip(&wired.lab, &case.commands_between(inner, 0, ""));
        wired.peer.must(&wired.lab, &case.commands_between(inner, 1, ""));
        pings_of(&mut wired, &behind, inner, &["0", "1", "56", "200", "1300"]);
        connections_of(&mut wired, &behind, inner);
        case.is_counted(&mut wired);
        // A packet that is too long for the path, and does not want to be cut, is refused by the one that forwards it, as by one
        // that sends: however much shorter it would become.
        let [here, there] = longest(&mut wired, &behind, inner);
        assert!(here == there && here > 1300, "{case:?}: {here} and {there} bytes");
    }
}

/// The longest pings that pass uncut: by a program here to the peer, and by one there.
fn longest(wired: &mut Wired, space: &str, [ours, theirs]: [&str; 2]) -> [u32; 2] {
    let script = |to: &str| {
        format!(
            "low=1000; high=1600; while [ $((high - low)) -gt 1 ]; do try=$(((low + high) / 2))\n             if ping -q -c 1 -W 5 -M do -s $try {to} >/dev/null 2>&1; then low=$try; else high=$try; fi; done; echo longest $low\n"
        )
    };
    let number = |text: &str| {
        let found = text.split_once("longest ").and_then(|(_, rest)| rest.trim().parse().ok());
        found.unwrap_or_else(|| panic!("{text}"))
    };
    let (_, here) = wired.lab.start(space, &["sh", "-ec", &script(theirs)]).finish(LIMIT);
    [number(&here), number(&wired.peer.must(&wired.lab, &script(ours)))]
}

#[test]
fn forwarded_to_a_daemon() {
    forwards("xfrm_ipcomp::forwarded_to_a_daemon", None);
}

#[test]
fn forwarded_to_a_kernel() {
    forwards("xfrm_ipcomp::forwarded_to_a_kernel", Some(KERNEL));
}
