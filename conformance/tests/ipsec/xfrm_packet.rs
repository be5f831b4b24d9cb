//! Packet offload: a packet core of the daemon against a real kernel's ESP over a tap, and two packet cores over a
//! wire.

use sealane_conformance::ipsec::{Host, INNER, LIMIT, OUTER, Pair, Tapped, ping_all, pings, program, protected};
use sealane_conformance::lab::Lab;
use sealane_conformance::target::sealane;
use std::time::{Duration, Instant};

const DEVICE: &str = "[ipsec]\n[[ipsec.device]]\nname = \"sealane0\"\nkind = \"packet\"\n";
const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128";
const CBC: &str = "enc 'cbc(aes)' 0x000102030405060708090a0b0c0d0e0f \
                   auth-trunc 'hmac(sha256)' 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128";

/// The parameters of two ends.
#[derive(Clone, Copy)]
struct Case {
    what: &'static str,
    mode: &'static str,
    algorithm: &'static str,
    flags: &'static str,
    /// Whether outer and inner addresses are IPv6.
    v6: [bool; 2],
    /// The protocols that are protected.
    protos: &'static [&'static str],
    spi: u32,
}

const TUNNEL: Case = Case {
    what: "tunnel",
    mode: "tunnel",
    algorithm: GCM,
    flags: "replay-window 64",
    v6: [false; 2],
    protos: &["icmp"],
    spi: 0x1001,
};
/// ICMPv6 without neighbour discovery, which stays unprotected.
const PING6: &[&str] = &["ipv6-icmp type 128", "ipv6-icmp type 129"];

fn cases() -> Vec<Case> {
    let af_unspec = "replay-window 32 flag af-unspec";
    let cases = [
        TUNNEL,
        Case { what: "cbc", algorithm: CBC, ..TUNNEL },
        Case { what: "6 in 6", v6: [true; 2], protos: PING6, flags: af_unspec, ..TUNNEL },
        Case { what: "6 in 4", v6: [false, true], protos: PING6, flags: af_unspec, ..TUNNEL },
        Case { what: "4 in 6", v6: [true, false], flags: af_unspec, ..TUNNEL },
        Case { what: "extended numbers", flags: "replay-window 128 flag esn", ..TUNNEL },
        Case { what: "in UDP", flags: "replay-window 32 encap espinudp 4500 4500 0.0.0.0", ..TUNNEL },
        Case { what: "transport", mode: "transport", ..TUNNEL },
        Case { what: "transport of IPv6", mode: "transport", v6: [true; 2], protos: PING6, ..TUNNEL },
    ];
    // What comes late does not reach the states of the next one.
    (TUNNEL.spi..).zip(cases).map(|(spi, case)| Case { spi, ..case }).collect()
}

impl Case {
    fn outer(&self) -> [&'static str; 2] {
        OUTER[usize::from(self.v6[0])]
    }

    fn inner(&self) -> [&'static str; 2] {
        if self.mode == "transport" { self.outer() } else { INNER[usize::from(self.v6[1])] }
    }

    fn state(&self, from: usize, rest: &str) -> String {
        let Case { mode, algorithm, flags, spi, .. } = self;
        let (outer, spi) = (self.outer(), spi + 0x1000 * from as u32);
        format!(
            "xfrm state add src {} dst {} proto esp spi {spi:#x} reqid 1 mode {mode} {algorithm} {flags} {rest}\n",
            outer[from],
            outer[1 - from]
        )
    }

    fn policies(&self, from: usize, dir: &str, rest: &str) -> String {
        let (outer, inner) = (self.outer(), self.inner());
        let template =
            if self.mode == "tunnel" { format!("src {} dst {}", outer[from], outer[1 - from]) } else { String::new() };
        let one = |proto: &&str| {
            format!(
                "xfrm policy update dir {dir} src {} dst {} proto {proto} {rest} tmpl {template} proto esp reqid 1 mode {}\n",
                inner[from],
                inner[1 - from],
                self.mode
            )
        };
        self.protos.iter().map(one).collect()
    }

    /// Returns the commands of one end for `program`, on a device or in software.
    fn commands(&self, end: usize, program: &str, device: Option<&str>) -> String {
        let mut script = String::new();
        for from in 0..2 {
            let dir = if from == end { "out" } else { "in" };
            let state = device.map_or(String::new(), |name| format!("offload packet dev {name} dir {dir}"));
            let policy = device.map_or(String::new(), |name| format!("offload packet dev {name}"));
            script += &self.state(from, &state);
            script += &self.policies(from, dir, &policy);
        }
        script.lines().map(|line| format!("{program} {line}\n")).collect()
    }
}

/// Deletes everything.
const FLUSH: &str = "ip xfrm state flush; ip xfrm policy flush\n";

/// Runs a script in which `sealane` is the program under test.
fn run(host: &Host, lab: &Lab, script: &str) -> String {
    host.ip(lab, &format!("sealane() {{ '{}' \"$@\"; }}\n{script}", sealane().display()))
}

/// Several lengths of packets, so that the padding differs.
const LENS: [u32; 7] = [0, 1, 2, 3, 56, 1000, 1300];

/// Whether the device's states have carried packets in both directions, without failures.
fn counted(text: &str) -> bool {
    text.matches("replay-window 0 replay 0 failed 0").count() == 2
        && !text.contains("lifetime current:\n\t  0(bytes)")
        && text.matches("dev sealane0").count() == 2
}

#[test]
fn with_a_kernel() {
    let Some(Tapped { mut guest, mut host, lab }) = Tapped::new("xfrm_packet::with_a_kernel", DEVICE) else { return };
    for case in cases() {
        println!("{}", case.what);
        run(&host, &lab, &(FLUSH.to_owned() + &case.commands(0, "sealane", Some("sealane0"))));
        guest.must(&(FLUSH.to_owned() + &case.commands(1, "ip", None)));
        let inner = case.inner();
        let there = guest.run(&pings(inner[0], &LENS, 3));
        let states = || host.ip(&lab, "ip -s xfrm state; cat /proc/net/xfrm_stat; ip -s link show sealane0");
        assert_eq!(there.0, "0", "{}: from the kernel: {}\n{}", case.what, there.1, states());
        let here = lab.start(&host.space, &["sh", "-c", &pings(inner[1], &LENS, 3)]).finish(LIMIT);
        let theirs = guest.must("ip -s xfrm state; cat /proc/net/xfrm_stat");
        assert_eq!(here.0, Some(0), "{}: to the kernel: {}\n{}\n{theirs}", case.what, here.1, states());
        host.ip_until(&lab, "ip -s xfrm state", counted);
        // The policies have been used.
        let policies = host.ip(&lab, "ip -s xfrm policy");
        assert!(!policies.contains("use -"), "all have been used: {policies}");
    }
    // Lengths are checked before packets are sealed, and fragments are not taken.
    let case = TUNNEL;
    run(&host, &lab, &(FLUSH.to_owned() + &case.commands(0, "sealane", Some("sealane0"))));
    guest.must(&(FLUSH.to_owned() + &case.commands(1, "ip", None)));
    let (status, text) = lab
        .start(&host.space, &["ping", "-c", "3", "-i", "0.01", "-W", "1", "-M", "do", "-s", "1440", "10.82.2.1"])
        .finish(LIMIT);
    assert_ne!(status, Some(0), "{text}");
    assert!(text.contains("mtu") && text.contains("0 received"), "{text}");
    let (status, text) = lab
        .start(&host.space, &["ping", "-c", "3", "-i", "0.01", "-W", "1", "-M", "dont", "-s", "3000", "10.82.2.1"])
        .finish(LIMIT);
    assert_ne!(status, Some(0), "{text}");
    let text = host.ip(&lab, "ip -s xfrm state");
    assert!(!counted(&text), "none was counted: {text}");
    // At a hard limit the device drops, and the key manager is told and asked for another state.
    let mut monitor = host.begin(&lab, &["ip", "xfrm", "monitor"]);
    // The monitor listens once it shows a new state.
    let start = Instant::now();
    while !monitor.output().contains("src ") {
        assert!(start.elapsed() < LIMIT, "nothing is told");
        run(&host, &lab, &(FLUSH.to_owned() + &case.commands(0, "sealane", Some("sealane0"))));
    }
    let limited = case.commands(0, "sealane", Some("sealane0")).replacen(
        "replay-window 64",
        "replay-window 64 limit packet-soft 3 limit packet-hard 6",
        1,
    );
    run(&host, &lab, &(FLUSH.to_owned() + &limited));
    guest.must(&(FLUSH.to_owned() + &case.commands(1, "ip", None)));
    let six = format!("{} 10.82.2.1", ping_all(6));
    let (_, text) = lab.start(&host.space, &["sh", "-c", &six]).finish(LIMIT);
    assert!(text.contains("6 packets transmitted, 6 received"), "{text}");
    let (_, text) = lab.start(&host.space, &["ping", "-c", "6", "-i", "0.05", "-W", "1", "10.82.2.1"]).finish(LIMIT);
    assert!(text.contains("6 packets transmitted, 0 received"), "{text}");
    monitor.expect("acquire", 1);
    monitor.expect("Expired", 2);
    let told = monitor.output();
    drop(monitor);
    assert_eq!(
        (told.matches("Expired").count(), told.matches("hard 0").count(), told.matches("hard 1").count()),
        (2, 1, 1),
        "{told}"
    );
    assert_eq!(guest.must("ip -s xfrm state").matches("6(packets)").count(), 2, "what the device sent, and no more");
    // A state in software is not used by a policy of the device.
    run(
        &host,
        &lab,
        &(FLUSH.to_owned()
            + &case.commands(0, "sealane", Some("sealane0")).replace("offload packet dev sealane0 dir out", "")),
    );
    let (_, text) = lab.start(&host.space, &["ping", "-c", "3", "-i", "0.05", "-W", "1", "10.82.2.1"]).finish(LIMIT);
    assert!(text.contains("0 received"), "{text}");
    // A key that the other end does not have.
    run(
        &host,
        &lab,
        &(FLUSH.to_owned() + &case.commands(0, "sealane", Some("sealane0")).replace("0x000102", "0xff0102")),
    );
    let failed = guest.run("ping -q -c 5 -i 0.01 -W 1 10.82.1.1");
    assert_ne!(failed.0, "0", "{}", failed.1);
    host.ip_until(&lab, "ip -s xfrm state; cat /proc/net/xfrm_stat", |text| {
        text.contains("replay-window 0 replay 0 failed 5") && text.contains("XfrmInStateProtoError   \t5")
    });
    host.end(libc::SIGTERM);
}

/// A tunnel between the inner addresses, for everything.
fn set(pair: &Pair, end: usize, spi: u32, before: &str) {
    set_case(pair, end, &Case { protos: &["any"], spi, ..TUNNEL }, before);
}

fn set_case(pair: &Pair, end: usize, case: &Case, before: &str) {
    let script = case.commands(end, "sealane", Some("sealane0")).replace(" proto any ", " ");
    run(&pair.hosts[end], &pair.lab, &(before.to_owned() + &script));
}

#[test]
fn nothing_in_clear() {
    let Some(mut pair) = Pair::new("xfrm_packet::nothing_in_clear", DEVICE) else { return };
    (0..2).for_each(|end| set(&pair, end, 0x1001, ""));
    let watch = pair.watch(1, &[]);
    let sender = pair.lab.start(&pair.hosts[0].space, &["python3", &program("clear_send.py"), "10.82.2.1"]);
    let space = pair.hosts[0].space.clone();
    // Waits until packets have left; `pause` leaves time for packets that must not.
    let flows = |pair: &Pair| pair.lab.sends(&space, "veth", 150);
    let pause = || std::thread::sleep(Duration::from_millis(400));
    flows(&pair);
    // Rekeying under traffic.
    (0..2).for_each(|end| set(&pair, end, 0x3001, "ip xfrm state flush\n"));
    flows(&pair);
    // The daemon dies; the next one goes on with its states and policies, on its device.
    pair.hosts[0].end(libc::SIGKILL);
    pause();
    pair.hosts[0].start(&pair.lab);
    flows(&pair);
    (0..2).for_each(|end| set(&pair, end, 0x5001, "ip xfrm state flush\n"));
    flows(&pair);
    let (_, sent) = sender.finish(LIMIT);
    let (_, seen) = watch.finish(LIMIT);
    assert!(protected(&seen) > 300, "protected packets did leave: {seen} {sent}");
}

#[test]
fn replays() {
    let Some(pair) = Pair::new("xfrm_packet::replays", DEVICE) else { return };
    // The window is so wide that no replay falls out of it.
    let case = Case { protos: &["any"], flags: "replay-window 128", ..TUNNEL };
    (0..2).for_each(|end| set_case(&pair, end, &case, ""));
    pair.replays();
    let states = pair.hosts[0].ip(&pair.lab, "ip -s xfrm state; cat /proc/net/xfrm_stat");
    assert!(states.contains("XfrmInStateSeqError     \t50"), "{states}");
    // The sequence number is reported as it is.
    assert!(states.contains("oseq 0x00000064") || states.contains("oseq 0x64"), "{states}");
}

#[test]
fn the_device_owns_its_states() {
    let Some(pair) = Pair::new("xfrm_packet::the_device_owns_its_states", DEVICE) else { return };
    (0..2).for_each(|end| set(&pair, end, 0x1001, ""));
    // Sends pings, all of which are answered, or none.
    let answered = |count: u32, answered: bool| {
        let patience = if answered { "" } else { "-W 1" };
        let ping = format!("{} {patience} 10.82.2.1", ping_all(count));
        let (_, text) = pair.lab.start(&pair.hosts[0].space, &["sh", "-c", &ping]).finish(LIMIT);
        assert!(text.contains(&format!(" {} received", if answered { count } else { 0 })), "{text}");
    };
    answered(5, true);
    let say = |script: &str| run(&pair.hosts[0], &pair.lab, script);
    // Adding a state again fails, and an update keeps its numbers.
    let case = Case { protos: &["any"], ..TUNNEL };
    let again = format!("sealane {}", case.state(0, "offload packet dev sealane0 dir out"));
    assert!(say(&format!("{} 2>&1 || true", again.trim())).contains("File exists"));
    say(&again.replace("state add", "state update").replace("replay-window 64", "limit packet-hard 8"));
    let states = say("ip -s xfrm state");
    assert!(states.contains("oseq 0x5"), "{states}");
    // The device applies the new limit.
    answered(3, true);
    answered(2, false);
    let states = say("ip -s xfrm state");
    assert!(!states.contains("hard 8(packets)"), "it is gone: {states}");
    // States in software are not used by the device's policies.
    say(&format!("sealane {}", case.state(0, "").replace("0x1001", "0x9001")));
    answered(5, false);
    // States of the device again, with other keys.
    for host in &pair.hosts {
        run(host, &pair.lab, "ip xfrm state flush");
    }
    (0..2).for_each(|end| set(&pair, end, 0x3001, ""));
    answered(5, true);
    // When its interface goes down its states are deleted without events, and software does not take over: policies stay,
    // behind all others.
    say(
        "ip link set sealane0 down; until ip xfrm state count | grep -q 'count 0'; do sleep 0.05; done; ip link set sealane0 up",
    );
    assert_eq!(say("ip xfrm policy count"), "\t SPD IN  1 OUT 1 FWD 0\n");
    answered(2, false);
    set(&pair, 0, 0x3001, "");
    run(&pair.hosts[1], &pair.lab, "ip xfrm state flush");
    set(&pair, 1, 0x3001, "");
    answered(5, true);
}

/// States of the device, of another device and in software side by side: one thread receives, and each uses its own
/// states.
#[test]
fn beside_software() {
    let second = format!("{DEVICE}[[ipsec.device]]\nname = \"sealane1\"\nkind = \"packet\"\n");
    let Some(pair) = Pair::new("xfrm_packet::beside_software", &second) else { return };
    let Pair { lab, hosts } = &pair;
    // The last byte of an address selects the device of its traffic.
    const WHOSE: [(u32, Option<&str>); 3] = [(1, Some("sealane0")), (2, None), (3, Some("sealane1"))];
    for flags in ["replay-window 64", "replay-window 64 encap espinudp 4500 4500 0.0.0.0"] {
        for (end, host) in hosts.iter().enumerate() {
            let mut script = FLUSH.to_owned();
            for (last, device) in WHOSE {
                let (n, m) = (end + 1, 2 - end);
                lab.ip(&host.space, &format!("addr replace 10.83.{n}.{last}/32 dev lo"));
                lab.ip(&host.space, &format!("route replace 10.83.{m}.{last}/32 dev veth src 10.83.{n}.{last}"));
                let case = Case { flags, spi: 0x1001 + 0x10_0000 * last, ..TUNNEL };
                let commands = case.commands(end, "sealane", device).replace("reqid 1", &format!("reqid {last}"));
                let commands = commands.replace("10.82.1.1", &format!("10.83.1.{last}"));
                script += &commands.replace("10.82.2.1", &format!("10.83.2.{last}"));
            }
            run(host, lab, &script);
        }
        for (last, _) in WHOSE {
            let to = format!("10.83.2.{last}");
            let ping = format!("{} {to}", ping_all(20));
            let (_, text) = lab.start(&hosts[0].space, &["sh", "-c", &ping]).finish(LIMIT);
            assert!(text.contains(" 20 received"), "{to}: {text}");
        }
        for host in hosts {
            let text = host.ip_until(lab, "ip -s xfrm state; cat /proc/net/xfrm_stat", |text| {
                text.matches(", 20(packets)").count() == 6
            });
            assert!(text.lines().filter(|line| line.starts_with("Xfrm")).all(|line| line.ends_with("\t0")), "{text}");
        }
    }
    let (_, text) = hosts[0].sealane(lab, "xfrm show interval 0");
    assert!(text.contains("device sealane0: packet, up, 2 states") && text.contains("sealed 40"), "{text}");
}
