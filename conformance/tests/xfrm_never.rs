//! Nothing that happens to the daemon, its rules, its routes or its marks lets a packet of a protected flow pass
//! unprotected, out or in.
//!
//! ```text
//!  c ── lan ── a ── wire ── b      a: the daemon, policies between 10.82.1.0/24 and 10.82.2.0/24, fd82:1::/64 and fd82:2::/64
//! ```
//! For each event: everybody sends before, while and after it happens, and the wire is watched all the time. `b` has no IPsec:
//! what it sends from the protected networks is forged, and what it gets in clear was to be sealed.

use sealane_conformance::ipsec::{Host, LIMIT, OUTER, program};
use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, sealane};
use std::time::{Duration, Instant};

const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128";
/// Datagrams from each sender to each address.
const COUNT: &str = "9";

/// Networks: `a`'s side, `b`'s side.
const NETS: [[&str; 2]; 2] = [["10.82.1.0/24", "10.82.2.0/24"], ["fd82:1::/64", "fd82:2::/64"]];
const A: [&str; 2] = ["10.82.1.1", "fd82:1::1"];
const B: [&str; 2] = ["10.82.2.1", "fd82:2::1"];
const C: [&str; 2] = ["10.82.1.2", "fd82:1::2"];

struct Scene {
    a: Host,
    b: String,
    c: String,
    lab: Lab,
}

/// The packets seen since a moment.
struct Watches {
    wire: Running,
    a: Running,
    c: Running,
}

impl Scene {
    fn new(test: &str) -> Option<Scene> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let [a, b, c] = ["a", "b", "c"].map(|which| lab.space(which));
        lab.veth([&a, &b], ["wire", "wire"]);
        lab.veth([&a, &c], ["lan", "lan"]);
        for (i, space) in [&a, &b].into_iter().enumerate() {
            lab.address(space, "wire", &format!("{}/24", OUTER[0][i]), &format!("{}/64", OUTER[1][i]));
        }
        for (space, of) in [(&a, A), (&c, C)] {
            lab.address(space, "lan", &format!("{}/24", of[0]), &format!("{}/64", of[1]));
        }
        lab.ip(&b, &format!("addr add {}/32 dev lo", B[0]));
        lab.ip(&b, &format!("addr add {}/128 dev lo nodad", B[1]));
        for (family, of) in [("-4", 0), ("-6", 1)] {
            lab.ip(&a, &format!("{family} route add {} via {} dev wire src {}", NETS[of][1], OUTER[of][1], A[of]));
            lab.ip(&b, &format!("{family} route add {} via {} dev wire src {}", NETS[of][0], OUTER[of][0], B[of]));
            lab.ip(&c, &format!("{family} route add {} via {} dev lan", NETS[of][1], A[of]));
        }
        let forward = "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0";
        sh(&lab, &a, forward);
        let host = Host::new(&lab, &a);
        let mut script = String::new();
        for (of, [ours, theirs]) in NETS.into_iter().enumerate() {
            let [us, them] = OUTER[of];
            script += &format!(
                "ip xfrm state add src {us} dst {them} proto esp spi {:#x} reqid 1 mode tunnel {GCM} flag af-unspec\n",
                0x1001 + of
            );
            for (dir, from, to, src, dst) in
                [("out", ours, theirs, us, them), ("in", theirs, ours, them, us), ("fwd", theirs, ours, them, us)]
            {
                script += &format!(
                    "ip xfrm policy add dir {dir} src {from} dst {to} tmpl src {src} dst {dst} proto esp reqid 1 mode tunnel\n"
                );
            }
        }
        host.ip(&lab, &script);
        let scene = Scene { a: host, b, c, lab };
        // Link addresses are resolved, and the first packets of each flow sealed: without protection everything would arrive.
        let seen = scene.during("at the beginning", |_| {});
        assert!(seen.esp > 0, "nothing is sealed");
        Some(scene)
    }

    fn watch(&self) -> Watches {
        let program = program("never.py");
        let start = |space: &str, how: &[&str]| {
            let mut watch = self.lab.start(space, &[&["python3", &*program], how].concat());
            watch.expect("watching", 1);
            watch
        };
        Watches {
            wire: start(&self.b, &["wire", "wire"]),
            a: start(&self.a.space, &["listen"]),
            c: start(&self.c, &["listen"]),
        }
    }

    /// The output of a script in the daemon's namespace.
    fn text(&self, script: &str) -> String {
        let (status, text) = self.lab.start(&self.a.space, &["sh", "-c", script]).finish(LIMIT);
        assert_eq!(status, Some(0), "{script}\n{text}");
        text
    }

    /// Waits until the output of a script is as wanted.
    fn until_text(&self, script: &str, is_wanted: impl Fn(&str) -> bool) {
        let start = Instant::now();
        while !is_wanted(&self.text(script)) {
            assert!(start.elapsed() < LIMIT, "{script}: {}", self.text(script));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Everybody sends to the other side.
    fn send(&self, size: &str) {
        let program = program("never.py");
        let [a4, a6] = A;
        let [b4, b6] = B;
        let [c4, c6] = C;
        let sends = [
            (&self.a.space, a4, vec![b4]),
            (&self.a.space, a6, vec![b6]),
            (&self.c, c4, vec![b4]),
            (&self.c, c6, vec![b6]),
            (&self.b, b4, vec![a4, c4]),
            (&self.b, b6, vec![a6, c6]),
        ];
        let running: Vec<Running> = sends
            .iter()
            .map(|(space, from, to)| {
                self.lab.start(space, &[&["python3", &*program, "send", COUNT, size, from], &to[..]].concat())
            })
            .collect();
        for one in running {
            let (status, text) = one.finish(LIMIT);
            assert_eq!(status, Some(0), "{text}");
        }
    }

    /// Sends before and after an event, and checks that nothing has passed unprotected.
    fn during(&self, what: &str, event: impl FnOnce(&Self)) -> Seen {
        let watches = self.watch();
        self.send("100");
        event(self);
        self.send("100");
        // In fragments, too: later ones carry no ports.
        self.send("4000");
        let seen = watches.end();
        assert_eq!((seen.clear, seen.at_a, seen.at_c), (0, 0, 0), "{what}: in clear on the wire, at a, at c");
        seen
    }
}

/// Packets that were seen.
#[derive(Debug)]
struct Seen {
    clear: u64,
    esp: u64,
    at_a: u64,
    at_c: u64,
}

impl Watches {
    fn end(self) -> Seen {
        // Packets that are on their way arrive.
        std::thread::sleep(Duration::from_millis(100));
        let last = |watch: Running| {
            let (status, text) = watch.finish(LIMIT);
            assert_eq!(status, Some(0), "{text}");
            let line = text.lines().last().unwrap_or_default().to_owned();
            line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<u64>>()
        };
        let [wire, a, c] = [self.wire, self.a, self.c].map(last);
        Seen { clear: wire[0], esp: wire[1], at_a: a[0], at_c: c[0] }
    }
}

fn sh(lab: &Lab, space: &str, script: &str) {
    let (status, text) = lab.start(space, &["sh", "-ec", script]).finish(LIMIT);
    assert_eq!(status, Some(0), "{script}\n{text}");
}

/// Events that are commands in the daemon's namespace.
const COMMANDS: [(&str, &str); 9] = [
    (
        "routing rules are flushed, as systemd-networkd does it",
        "for f in -4 -6; do ip $f rule flush; ip $f rule add pref 32766 lookup main; done; ip rule add pref 32767 lookup default",
    ),
    (
        "a rule before ours",
        "ip rule add pref 10 to 10.82.0.0/16 lookup main; ip -6 rule add pref 10 to fd82::/16 lookup main",
    ),
    ("our routes are flushed", "ip route flush table 24225; ip -6 route flush table 24225"),
    (
        "another table clears the mark",
        "nft 'add table inet other; add chain inet other o { type route hook output priority -140; }; \
         add chain inet other p { type filter hook prerouting priority -140; }; \
         add rule inet other o meta mark set 0; add rule inet other p meta mark set 0'",
    ),
    (
        "another table sets a mark of its own",
        "nft 'add table inet other; add chain inet other o { type route hook output priority 0; }; \
         add chain inet other p { type filter hook prerouting priority 0; }; \
         add rule inet other o meta mark set 51820; add rule inet other p meta mark set 51820'",
    ),
    (
        "connection tracking begins, and is flushed",
        "nft 'add table inet t; add chain inet t c { type filter hook forward priority 0; }; \
         add rule inet t c ct state established accept'",
    ),
    ("the rules are flushed", "nft flush ruleset"),
    ("the TUN device is put down", "ip link set sealane-ipsec down"),
    ("the TUN device is deleted", "ip link del sealane-ipsec"),
];

#[test]
fn whatever_others_do() {
    for (what, script) in COMMANDS {
        println!("{what}");
        let Some(scene) = Scene::new("xfrm_never::whatever_others_do") else { return };
        scene.during(what, |scene| sh(&scene.lab, &scene.a.space, script));
    }
}

/// An administrator reloads rules all the time, as a script may do whose `/etc/nftables.conf` begins with a flush.
const RELOADS: &str = "while [ ! -e \"$0\" ]; do nft 'flush ruleset; add table inet filter; \
                       add chain inet filter input { type filter hook input priority 0; }'; done";

#[test]
fn rules_are_reloaded_all_the_time() {
    let Some(mut scene) = Scene::new("xfrm_never::rules_are_reloaded_all_the_time") else { return };
    let mut turn = 0;
    let mut reloads = |scene: &mut Scene, what: &str, event: &dyn Fn(&mut Scene)| {
        turn += 1;
        let enough = scene.lab.folder().join(format!("enough{turn}"));
        let watches = scene.watch();
        let running = scene.lab.start(&scene.a.space, &["sh", "-c", RELOADS, &enough.to_string_lossy()]);
        for _ in 0..3 {
            scene.send("100");
        }
        event(scene);
        for _ in 0..3 {
            scene.send("100");
        }
        std::fs::write(&enough, "").expect("a file");
        let (status, text) = running.finish(LIMIT);
        assert_eq!(status, Some(0), "{text}");
        let seen = watches.end();
        assert_eq!((seen.clear, seen.at_a, seen.at_c), (0, 0, 0), "{what}: {seen:?}");
    };
    reloads(&mut scene, "the daemon runs", &|_| {});
    reloads(&mut scene, "it is killed", &|scene| scene.a.end(libc::SIGKILL));
    reloads(&mut scene, "the next one starts", &|scene| scene.a.start(&scene.lab));
}

/// Rules and routes that others remove are put back by themselves.
#[test]
fn what_is_removed_comes_back() {
    let Some(scene) = Scene::new("xfrm_never::what_is_removed_comes_back") else { return };
    for (what, script, show) in [
        (
            "routing rules",
            "for f in -4 -6; do ip $f rule flush; ip $f rule add pref 32766 lookup main; done; ip rule add pref 32767 lookup default",
            "ip rule; ip -6 rule",
        ),
        (
            "routes",
            "ip route flush table 24225; ip -6 route flush table 24225",
            "ip route show table 24225; ip -6 route show table 24225",
        ),
    ] {
        let wanted = scene.text(show);
        assert!(!wanted.is_empty());
        let seen = scene.during(what, |scene| {
            sh(&scene.lab, &scene.a.space, script);
            let start = Instant::now();
            loop {
                let there = scene.text(show);
                // Routes with a path MTU come back with the next large packet.
                if wanted
                    .lines()
                    .filter(|line| line.contains("default") || line.contains("24225"))
                    .all(|line| there.contains(line))
                {
                    break;
                }
                assert!(start.elapsed() < LIMIT, "{what}: {there}, not {wanted}");
            }
        });
        // Without an interruption all of these would be sealed: two senders, two families, three rounds.
        assert!(seen.esp > 72, "{what}: sealed again: {seen:?}");
    }
}

/// The TUN device that others have put down and up, or deleted, is used again, with the states of before.
#[test]
fn the_device_comes_back() {
    let Some(mut scene) = Scene::new("xfrm_never::the_device_comes_back") else { return };
    let sealed = |scene: &Scene, what: &str| {
        let seen = scene.during(what, |_| {});
        // Two senders, two families, two rounds; large datagrams have several fragments.
        assert!(seen.esp >= 72, "{what}: {seen:?}");
    };
    sealed(&scene, "before");
    scene.during("down and up", |scene| {
        sh(&scene.lab, &scene.a.space, "ip link set sealane-ipsec down; sleep 0.2; ip link set sealane-ipsec up");
        scene.until_text("ip route show table 24225; ip -6 route show table 24225", |text| {
            text.matches("default dev sealane-ipsec").count() == 2
        });
    });
    sealed(&scene, "after it was down");
    let watches = scene.watch();
    scene.send("100");
    sh(&scene.lab, &scene.a.space, "ip link del sealane-ipsec");
    scene.send("100");
    scene.a.expect_start(2);
    scene.send("100");
    let seen = watches.end();
    assert_eq!((seen.clear, seen.at_a, seen.at_c), (0, 0, 0), "{seen:?}");
    sealed(&scene, "after it was deleted");
}

#[test]
fn whatever_happens_to_the_daemon() {
    let Some(mut scene) = Scene::new("xfrm_never::whatever_happens_to_the_daemon") else { return };
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        println!("signal {signal}");
        let watches = scene.watch();
        scene.send("100");
        scene.a.end(signal);
        scene.send("100");
        // Somebody else still owns the rules.
        sh(&scene.lab, &scene.a.space, "nft flush ruleset");
        scene.send("100");
        scene.send("4000");
        scene.a.start(&scene.lab);
        scene.send("100");
        // One of the policies is updated, as by a rekey.
        let [us, them] = OUTER[0];
        let [ours, theirs] = NETS[0];
        scene.a.ip(
            &scene.lab,
            &format!("ip xfrm policy update dir out src {ours} dst {theirs} tmpl src {us} dst {them} proto esp reqid 1 mode tunnel"),
        );
        scene.send("100");
        scene.send("4000");
        let seen = watches.end();
        assert_eq!((seen.clear, seen.at_a, seen.at_c), (0, 0, 0), "signal {signal}: {seen:?}");
        let policies = scene.a.ip(&scene.lab, "ip xfrm policy");
        assert_eq!(policies.matches("dir ").count(), 6, "all of them are there again: {policies}");
    }
    scene.during("it is stopped", |scene| scene.a.signal(libc::SIGSTOP));
    scene.a.signal(libc::SIGCONT);
}

#[test]
fn an_explicit_command_hands_back() {
    let Some(mut scene) = Scene::new("xfrm_never::an_explicit_command_hands_back") else { return };
    let (status, text) = scene.a.sealane(&scene.lab, "xfrm clear");
    assert_ne!(status, Some(0), "{text}");
    assert!(text.contains("serves this network namespace"), "{text}");
    scene.a.end(libc::SIGTERM);
    scene.during("that of TCP-AO is another", |scene| {
        let (status, text) = scene.a.sealane(&scene.lab, "tcp-ao clear");
        assert_eq!(status, Some(0), "{text}");
    });
    let (status, text) = scene.a.sealane(&scene.lab, "xfrm clear");
    assert_eq!(status, Some(0), "{text}");
    let watches = scene.watch();
    scene.send("100");
    let seen = watches.end();
    // 9 to each address, both families: from a and c to b; from b to a; from b to c.
    assert_eq!((seen.clear, seen.at_a, seen.at_c, seen.esp), (36, 18, 18, 0));
    // The next daemon begins without policies.
    scene.a.start(&scene.lab);
    assert_eq!(scene.a.ip(&scene.lab, "ip xfrm policy"), "");
}

/// The marks in the rules of packets that leave: those of the daemon's own packets, and of programs' sockets.
fn exempt_marks(scene: &Scene) -> (u32, u32) {
    let text = scene.text("nft list chain inet sealane-ipsec backstop");
    let number = |line: &str| {
        let word = line.split([' ', '/']).find(|word| word.starts_with("0x") && !word.starts_with("0xffff"));
        u32::from_str_radix(word?.trim_start_matches("0x"), 16).ok()
    };
    let exempt: Vec<u32> =
        text.lines().filter(|line| line.contains("mark") && line.contains("accept")).filter_map(number).collect();
    assert_eq!(exempt.len(), 2, "{text}");
    (exempt[0], exempt[1])
}

/// Nobody but root and the daemon passes by a mark, even if it is known, and nobody passes by guessing.
#[test]
fn marks_of_others() {
    let Some(mut scene) = Scene::new("xfrm_never::marks_of_others") else { return };
    let (own, programs) = exempt_marks(&scene);
    let program = program("never.py");
    let known = format!("{own} {} {} {programs}", own | 1, own | 2);
    // Those that every daemon had until marks were drawn.
    let guessed = "0x58460000 0x58460001 0x58460002";
    let marked =
        |how: &str, of: usize, marks: &str| format!("python3 {program} {how} {COUNT} {} {} {marks}", A[of], B[of]);
    for of in [0, 1] {
        scene.during("a container that knows the marks", |scene| {
            sh(&scene.lab, &scene.a.space, &marked("container", of, &known));
        });
        scene.during("guessed marks", |scene| sh(&scene.lab, &scene.a.space, &marked("marked", of, guessed)));
        let watches = scene.watch();
        sh(&scene.lab, &scene.a.space, &marked("marked", of, &programs.to_string()));
        assert_eq!(watches.end().clear, 9, "root may exempt its sockets");
    }
    // The next daemon has other marks of its own, and the same for programs.
    scene.a.end(libc::SIGKILL);
    scene.a.start(&scene.lab);
    let after = exempt_marks(&scene);
    assert_ne!(after.0, own);
    assert_eq!(after.1, programs);
}

/// A key manager's socket is exempt from policies before and after a restart, and while no daemon runs.
#[test]
fn sockets_that_are_exempt() {
    let Some(mut scene) = Scene::new("xfrm_never::sockets_that_are_exempt") else { return };
    let program = program("never.py");
    for of in [0, 1] {
        let path = scene.lab.file("count", "");
        let mut exempt = scene.a.begin(&scene.lab, &["python3", &program, "exempt", COUNT, A[of], B[of], &path]);
        exempt.expect("ready", 1);
        for turn in 1..=3 {
            match turn {
                2 => scene.a.end(libc::SIGKILL),
                3 => scene.a.start(&scene.lab),
                _ => {}
            }
            let watches = scene.watch();
            let _ = scene.lab.file("count", &turn.to_string());
            exempt.expect(&format!("sent {turn}."), 1);
            assert_eq!(watches.end().clear, 9, "turn {turn}");
        }
        let _ = scene.lab.file("count", "0");
        let (status, text) = exempt.finish(LIMIT);
        assert_eq!(status, Some(0), "{text}");
    }
}

/// On Debian 12's kernel rules go with their owner, and `/etc/nftables.conf` begins with a flush.
#[test]
fn rules_are_reloaded_on_linux_6_1() {
    let kernel = Target::kernel("linux-6.1");
    if skip_without("xfrm_never::rules_are_reloaded_on_linux_6_1", &[&kernel, &Target::sealane("open")]) {
        return;
    }
    let this = std::env::current_exe().expect("a path");
    let exe = format!("SEALANE={}", sealane().display());
    let name = "rules_are_reloaded_all_the_time";
    let argv = ["env", &*exe, &*this.to_string_lossy(), "--exact", name, "--nocapture"];
    let done = kernel.run(&argv, LIMIT * 4).expect("it starts");
    let passed = done.text.contains(&format!("test {name} ... ok")) || done.text.contains("1 passed");
    assert!(passed && !done.text.contains("SKIPPED"), "{}{}", done.text, done.errors);
}
