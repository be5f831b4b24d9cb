//! IPsec's packets: a daemon against a real kernel's ESP and AH over a tap, and two daemons over a wire that is
//! watched.

use sealane_conformance::ipsec::{
    INNER, LIMIT, OUTER, Pair, Tapped, ping_all, ping_too_long, pings, program, protected,
};
use std::time::Duration;

const PLAIN: &str = "[ipsec]\n";
const CRYPTO: &str = "[ipsec]\n[[ipsec.device]]\nname = \"sealane0\"\nkind = \"crypto\"\n";

/// The parameters of two ends.
struct Case {
    what: &'static str,
    proto: &'static str,
    mode: &'static str,
    algorithm: &'static str,
    flags: &'static str,
    /// Whether outer and inner addresses are IPv6.
    v6: [bool; 2],
    /// Of what the first end sends. Each case has its own: what comes late would not pass the next one's states.
    spi: u32,
}

const GCM: &str = "aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";
const SHA1: &str = "auth-trunc hmac(sha1) 0x0011223344556677889900112233445566778899 96";

fn cases() -> Vec<Case> {
    let tunnel = |what, algorithm| Case {
        what,
        proto: "esp",
        mode: "tunnel",
        algorithm,
        flags: "replay-window 64",
        v6: [false; 2],
        spi: 0,
    };
    let mut cases = vec![
        tunnel("gcm", GCM),
        tunnel("gcm 64", "aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 64"),
        tunnel("ccm", "aead rfc4309(ccm(aes)) 0x000102030405060708090a0b0c0d0e0f101112 128"),
        tunnel(
            "chacha",
            "aead rfc7539esp(chacha20,poly1305) \
             0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223 128",
        ),
        tunnel("gmac", "aead rfc4543(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128"),
        tunnel(
            "cbc, sha1",
            "enc cbc(aes) 0x000102030405060708090a0b0c0d0e0f auth-trunc hmac(sha1) 0x0011223344556677889900112233445566778899 96",
        ),
        tunnel(
            "ctr, sha256",
            "enc rfc3686(ctr(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 auth-trunc hmac(sha256) \
             0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128",
        ),
    ];
    for (what, v6) in [("6 in 6", [true; 2]), ("6 in 4", [false, true]), ("4 in 6", [true, false])] {
        cases.push(Case { v6, flags: "replay-window 32 flag af-unspec", ..tunnel(what, GCM) });
    }
    cases.push(Case { flags: "replay-window 128 flag esn", ..tunnel("esn", GCM) });
    cases.push(Case { flags: "replay-window 32 encap espinudp 4500 4500 0.0.0.0", ..tunnel("in UDP", GCM) });
    for v6 in [false, true] {
        cases.push(Case { mode: "transport", v6: [v6; 2], ..tunnel("transport", GCM) });
    }
    cases.push(Case { what: "ah", proto: "ah", mode: "transport", algorithm: SHA1, ..tunnel("", "") });
    cases.push(Case { what: "ah tunnel", proto: "ah", algorithm: SHA1, ..tunnel("", "") });
    for (spi, case) in (0x1001..).zip(&mut cases) {
        case.spi = spi;
    }
    cases
}

impl Case {
    fn outer(&self) -> [&'static str; 2] {
        OUTER[usize::from(self.v6[0])]
    }

    fn inner(&self) -> [&'static str; 2] {
        if self.mode == "transport" { self.outer() } else { INNER[usize::from(self.v6[1])] }
    }

    /// Returns the commands of one end.
    fn commands(&self, end: usize) -> String {
        let Case { proto, mode, algorithm, flags, .. } = self;
        let quoted = algorithm.split(' ').map(|w| format!("'{w}'")).collect::<Vec<_>>().join(" ");
        let (outer, inner) = (self.outer(), self.inner());
        let mut script = "ip xfrm state flush\nip xfrm policy flush\n".to_owned();
        for (from, spi) in [(0, self.spi), (1, self.spi + 0x1000)] {
            let to = 1 - from;
            script += &format!(
                "ip xfrm state add src {} dst {} proto {proto} spi {spi:#x} reqid 1 mode {mode} {quoted} {flags}\n",
                outer[from], outer[to]
            );
            let template =
                if mode == &"tunnel" { format!("src {} dst {}", outer[from], outer[to]) } else { String::new() };
            let direction = if from == end { "out" } else { "in" };
            script += &format!(
                "ip xfrm policy add dir {direction} src {} dst {} proto {} tmpl {template} proto {proto} reqid 1 mode {mode}\n",
                inner[from],
                inner[to],
                // Neighbour discovery stays unprotected.
                if self.v6[1] { "ipv6-icmp type 128" } else { "icmp" },
            );
            if self.v6[1] {
                script += &format!(
                    "ip xfrm policy add dir {direction} src {} dst {} proto ipv6-icmp type 129 tmpl {template} proto {proto} \
                     reqid 1 mode {mode}\n",
                    inner[from], inner[to]
                );
            }
        }
        script
    }
}

/// Returns pings of several lengths, so that the padding differs, and of one that is fragmented.
fn both_kinds(to: &str) -> String {
    pings(to, &[0, 1, 2, 3, 56, 1000, 1300], 3) + &ping_too_long(to, 2500) + &pings(to, &[2500], 3)
}

#[test]
fn with_a_kernel() {
    against_a_kernel("xfrm_path::with_a_kernel", PLAIN, None);
}

/// The states of this end are in crypto offload, in both directions.
#[test]
fn with_a_kernel_by_a_crypto_core() {
    against_a_kernel("xfrm_path::with_a_kernel_by_a_crypto_core", CRYPTO, Some("sealane0"));
}

fn against_a_kernel(test: &str, config: &str, device: Option<&str>) {
    let Some(Tapped { mut guest, host, lab }) = Tapped::new(test, config) else { return };
    // Only ESP can be offloaded.
    for case in cases().into_iter().filter(|case| device.is_none() || case.proto == "esp") {
        println!("{}, {} {:?}", case.what, case.mode, case.v6);
        host.ip(&lab, &offloaded(&case.commands(0), device));
        guest.must(&case.commands(1));
        let inner = case.inner();
        let there = guest.run(&both_kinds(inner[0]));
        assert_eq!(there.0, "0", "{}: from the kernel: {}\n{}", case.what, there.1, host.ip(&lab, "ip -s xfrm state"));
        let here = lab.start(&host.space, &["sh", "-c", &both_kinds(inner[1])]).finish(LIMIT);
        assert_eq!(
            here.0,
            Some(0),
            "{}: to the kernel: {}",
            case.what,
            guest.must("ip -s xfrm state; cat /proc/net/xfrm_stat")
        );
        for text in [guest.must("ip -s xfrm state"), host.ip(&lab, "ip -s xfrm state")] {
            assert_eq!(text.matches("replay-window 0 replay 0 failed 0").count(), 2, "{}", text);
            assert_eq!(text.matches("lifetime current:\n\t  0(bytes)").count(), 0, "both carried packets: {text}");
        }
    }
    // A key that the other end does not have.
    let case = &cases()[0];
    guest.must(&case.commands(1));
    host.ip(&lab, &offloaded(&case.commands(0), device).replace("0x000102", "0xff0102"));
    let failed = guest.run("ping -q -c 5 -i 0.01 -W 1 10.82.1.1");
    assert_ne!(failed.0, "0", "{}", failed.1);
    host.ip_until(&lab, "ip -s xfrm state", |text| text.contains("replay-window 0 replay 0 failed 5"));
    if let Some(device) = device {
        let (_, text) = host.sealane(&lab, "xfrm show interval 0");
        assert_eq!(text.matches(&format!("crypto on {device}")).count(), 2, "{text}");
        let line = text.lines().find(|line| line.starts_with("device ")).unwrap_or_else(|| panic!("{text}"));
        let counter = |name: &str| {
            let value = line.split("; ").find_map(|part| part.strip_prefix(name)?.trim().parse::<u64>().ok());
            value.unwrap_or_else(|| panic!("no {name}: {line}"))
        };
        // Each case has sent packets of 8 lengths, at least 3 of each in each direction.
        assert!(counter("bursts") > 0 && counter("packets") > 14 * 8 * 3 * 2 && counter("busy ns") > 0, "{text}");
        assert_eq!(counter("no key"), 0, "{text}");
    }
}

/// Returns the commands of the first end, whose own state comes first, with states on a device.
fn offloaded(commands: &str, device: Option<&str>) -> String {
    let Some(device) = device else { return commands.to_owned() };
    let mut dirs = ["out", "in"].into_iter();
    let line = |line: &str| match line.starts_with("ip xfrm state add").then(|| dirs.next()).flatten() {
        Some(dir) => format!("{line} offload dev {device} dir {dir}\n"),
        None => format!("{line}\n"),
    };
    commands.lines().map(line).collect()
}

/// Bursts of a busy state arrive by the ring and by the sockets, states are replaced, and a device goes down: packets
/// in flight in a crypto core arrive once and in order, or not at all, and never unprotected.
#[test]
fn crypto_cores_in_traffic() {
    let Some(pair) = Pair::new("xfrm_path::crypto_cores_in_traffic", CRYPTO) else { return };
    let commands = |end: usize, spi: u32| {
        let text = tunnel(end, spi);
        let dirs = if end == 0 { ["out", "in"] } else { ["in", "out"] };
        let line = |line: &str| match line.contains("state add") {
            true => format!(
                "{line} offload dev sealane0 dir {}\n",
                dirs[usize::from(!line.contains(&format!("spi {spi:#x} ")))]
            ),
            false => format!("{line}\n"),
        };
        text.lines().map(line).collect::<String>()
    };
    for end in 0..2 {
        pair.hosts[end].ip(&pair.lab, &commands(end, 0x1001));
    }
    // The first packets wait for neighbour resolution.
    pair.hosts[0].ip(&pair.lab, "ping -q -c 1 -W 30 10.82.2.1");
    let watch = pair.watch(1, &[]);
    let over = pair.lab.folder().join("over").to_string_lossy().into_owned();
    let pings = program("pings.py");
    // As fast as answers come: at a rate of their own they outgrow the TUN device's queue (500 packets) while a busy
    // machine keeps a worker waiting.
    let ping = ["python3", &*pings, "10.82.1.1", "10.82.2.1", &*over, "0", "1200", "30"];
    let sender = pair.lab.start(&pair.hosts[0].space, &ping);
    // Waits until the receiver's state of this SPI has carried many packets.
    let carried = |from: usize, spi: u32| {
        let states = format!("ip -s xfrm state list spi {spi:#x}");
        pair.hosts[1 - from].ip_until(&pair.lab, &states, |text| {
            let current = text.split("lifetime current:").nth(1).and_then(|text| text.split("bytes), ").nth(1));
            let packets = current.and_then(|text| text.split('(').next()?.parse().ok());
            packets.is_some_and(|packets: u32| packets >= 300)
        });
    };
    carried(0, 0x1001);
    carried(1, 0x1002);
    // New states are added, inbound ones first; then the old ones are deleted, outbound ones first.
    let add = |end: usize| -> String {
        let lines = commands(end, 0x3001);
        lines.lines().filter(|line| line.contains("state add")).map(|line| format!("{line}\n")).collect()
    };
    let only = |lines: &str, dir: &str| -> String {
        lines.lines().filter(|line| line.ends_with(dir)).map(|line| format!("{line}\n")).collect()
    };
    for dir in ["dir in", "dir out"] {
        for end in 0..2 {
            pair.hosts[end].ip(&pair.lab, &only(&add(end), dir));
        }
    }
    let delete = |from: usize, spi: u32| {
        format!("ip xfrm state delete src 10.81.0.{from} dst 10.81.0.{} proto esp spi {spi:#x}\n", 3 - from)
    };
    pair.hosts[0].ip(&pair.lab, &delete(1, 0x1001));
    pair.hosts[1].ip(&pair.lab, &delete(2, 0x1002));
    // Packets of the old states have arrived once the new ones have carried that many.
    carried(0, 0x3001);
    carried(1, 0x3002);
    pair.hosts[0].ip(&pair.lab, &delete(2, 0x1002));
    pair.hosts[1].ip(&pair.lab, &delete(1, 0x1001));
    let _ = pair.lab.file("over", "");
    let (status, text) = sender.finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("all answered, 0 twice, 0 out of order"), "{text}");
    let sender = pair.lab.start(&pair.hosts[0].space, &["python3", &program("clear_send.py"), "10.82.2.1"]);
    pair.lab.sends(&pair.hosts[0].space, "veth", 50);
    pair.hosts[0].ip(&pair.lab, "ip link set sealane0 down");
    let states = pair.hosts[0].ip(&pair.lab, "ip xfrm state list; ping -q -c 3 -i 0.1 -W 1 10.82.2.1 || true");
    assert!(!states.contains("offload") && states.contains(" 0 received"), "{states}");
    pair.hosts[0].ip(&pair.lab, "ip link set sealane0 up");
    for end in 0..2 {
        let again = commands(end, 0x5001).replace("policy add", "policy update");
        pair.hosts[end].ip(&pair.lab, &again.replace("ip xfrm policy flush\n", ""));
    }
    pair.hosts[0].ip(&pair.lab, &format!("{} 10.82.2.1", ping_all(3)));
    let (_, sent) = sender.finish(LIMIT);
    let (_, seen) = watch.finish(LIMIT);
    assert!(protected(&seen) > 0, "{seen} {sent}");
    for host in &pair.hosts {
        let (_, text) = host.sealane(&pair.lab, "xfrm show interval 0");
        assert!(text.contains("crypto, up, 2 states") && !text.contains("XfrmInStateSeqError"), "{text}");
    }
}

/// Returns the commands for a tunnel between the inner addresses, for all protocols.
fn tunnel(end: usize, spi: u32) -> String {
    let case = Case {
        what: "",
        proto: "esp",
        mode: "tunnel",
        algorithm: GCM,
        flags: "replay-window 64",
        v6: [false; 2],
        spi: 0x1001,
    };
    let script = case.commands(end).replace(" proto icmp ", " ");
    script.replace("0x1001", &format!("{:#x}", spi)).replace("0x2001", &format!("{:#x}", spi + 1))
}

#[test]
fn nothing_in_clear() {
    let Some(mut pair) = Pair::new("xfrm_path::nothing_in_clear", PLAIN) else { return };
    for end in 0..2 {
        pair.hosts[end].ip(&pair.lab, &tunnel(end, 0x1001));
    }
    let watch = pair.watch(1, &[]);
    let sender = pair.lab.start(&pair.hosts[0].space, &["python3", &program("clear_send.py"), "10.82.2.1"]);
    let space = pair.hosts[0].space.clone();
    // Waits until packets have left; `pause` leaves time for packets that must not.
    let flows = |pair: &Pair| pair.lab.sends(&space, "veth", 150);
    let pause = || std::thread::sleep(Duration::from_millis(400));
    flows(&pair);
    // New keys and a changed policy.
    for end in 0..2 {
        pair.hosts[end].ip(
            &pair.lab,
            &tunnel(end, 0x3001).replace("ip xfrm policy flush\n", "").replace("policy add", "policy update"),
        );
    }
    flows(&pair);
    // The daemon dies; the next one goes on with its states.
    pair.hosts[0].end(libc::SIGKILL);
    pause();
    pair.hosts[0].start(&pair.lab);
    flows(&pair);
    for end in 0..2 {
        pair.hosts[end].ip(
            &pair.lab,
            &tunnel(end, 0x5001).replace("ip xfrm policy flush\n", "").replace("policy add", "policy update"),
        );
    }
    flows(&pair);
    // The daemons end in order.
    let (_, sent) = sender.finish(LIMIT);
    let (_, seen) = watch.finish(LIMIT);
    assert!(protected(&seen) > 300, "protected packets did leave: {seen} {sent}");
}

/// The kernel cuts packets of IPv6 to the length that the daemon tells, also where they may be sealed late: another route leads them to it
/// then.
#[test]
fn packets_that_are_too_long_and_may_be_sealed_late() {
    const TEST: &str = "xfrm_path::packets_that_are_too_long_and_may_be_sealed_late";
    let Some(pair) = Pair::new(TEST, "[ipsec]\nlate = true\n") else { return };
    let cases = cases();
    let case = cases.iter().find(|case| case.v6 == [false, true]).expect("one with IPv6 inside");
    for (end, host) in pair.hosts.iter().enumerate() {
        let [here, there] = [case.inner()[end], case.inner()[1 - end]];
        let addresses = format!("ip addr add {here}/128 dev lo nodad\nip route add {there}/128 dev veth src {here}\n");
        host.ip(&pair.lab, &(addresses + &case.commands(end)));
    }
    let script = both_kinds(case.inner()[1]);
    let (status, text) = pair.lab.start(&pair.hosts[0].space, &["sh", "-c", &script]).finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
}

#[test]
fn replays() {
    let Some(pair) = Pair::new("xfrm_path::replays", PLAIN) else { return };
    for end in 0..2 {
        // The window is so wide that no replay falls out of it.
        pair.hosts[end].ip(&pair.lab, &tunnel(end, 0x1001).replace("replay-window 64", "replay-window 128"));
    }
    pair.replays();
}
