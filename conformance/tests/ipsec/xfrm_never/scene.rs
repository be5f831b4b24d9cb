//! A gateway with a daemon and policies, a host behind it, and a neighbour without IPsec.
//!
//! ```text
//!  c ── lan ── a ── wire ── b      a: the daemon, policies between 10.82.1.0/24 and 10.82.2.0/24, fd82:1::/64 and fd82:2::/64
//! ```
//! Packets that `b` sends from the protected networks are forged, and those that it gets in clear were to be sealed.

use sealane_conformance::ipsec::{Host, LIMIT, OUTER, program};
use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::Target;
use std::time::{Duration, Instant};

const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128";
/// Datagrams from each sender to each address.
pub(crate) const COUNT: &str = "9";

/// Networks: `a`'s side, `b`'s side.
pub(crate) const NETS: [[&str; 2]; 2] = [["10.82.1.0/24", "10.82.2.0/24"], ["fd82:1::/64", "fd82:2::/64"]];
pub(crate) const A: [&str; 2] = ["10.82.1.1", "fd82:1::1"];
pub(crate) const B: [&str; 2] = ["10.82.2.1", "fd82:2::1"];
const C: [&str; 2] = ["10.82.1.2", "fd82:1::2"];

pub(crate) struct Scene {
    pub(crate) a: Host,
    pub(crate) b: String,
    pub(crate) c: String,
    pub(crate) lab: Lab,
}

/// The packets seen since a moment.
pub(crate) struct Watches {
    wire: Running,
    a: Option<Running>,
    c: Running,
}

impl Scene {
    /// A daemon that uses its TUN device, and policies for everything between the networks.
    pub(crate) fn new(test: &str) -> Option<Scene> {
        Scene::configured(test, "[ipsec]\n", "", |_| {})
    }

    /// A daemon with a configuration, and policies with further words in their selectors. `prepare` is told the lab's folder
    /// before the daemon starts.
    pub(crate) fn configured(test: &str, config: &str, selector: &str, prepare: impl FnOnce(&Lab)) -> Option<Scene> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let [a, b, c] = ["a", "b", "c"].map(|which| lab.space(which));
        let socket = "import socket; socket.socket(44, socket.SOCK_RAW)";
        if config.contains("gateway") && lab.start(&a, &["python3", "-c", socket]).finish(LIMIT).0 != Some(0) {
            skip(test, "this kernel has no sockets of AF_XDP");
            return None;
        }
        lab.veth([&a, &c], ["lan", "lan"]);
        for (space, of) in [(&a, A), (&c, C)] {
            lab.address(space, "lan", &format!("{}/24", of[0]), &format!("{}/64", of[1]));
        }
        lab.ip(&b, &format!("addr add {}/32 dev lo", B[0]));
        lab.ip(&b, &format!("addr add {}/128 dev lo nodad", B[1]));
        wire(&lab, &a, &b);
        for (family, of) in [("-4", 0), ("-6", 1)] {
            lab.ip(&c, &format!("{family} route add {} via {} dev lan", NETS[of][1], A[of]));
        }
        let forward = "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0";
        sh(&lab, &a, forward);
        if config.contains("gateway") {
            // XDP sees frames before their checksums are computed on veth.
            for (space, device) in [(&a, "wire"), (&a, "lan"), (&b, "wire"), (&c, "lan")] {
                sh(&lab, space, &format!("ethtool -K {device} tx off"));
            }
        }
        prepare(&lab);
        let host = Host::configured(&lab, &a, config);
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
                    "ip xfrm policy add dir {dir} src {from} dst {to} {selector} tmpl src {src} dst {dst} proto esp reqid 1 mode tunnel\n"
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

    pub(crate) fn watch(&self) -> Watches {
        Watches { a: Some(self.watcher(&self.a.space, &["listen"])), ..self.watch_others() }
    }

    /// Watches the wire and the host behind the daemon's.
    pub(crate) fn watch_others(&self) -> Watches {
        let wire = self.watcher(&self.b, &["wire", "wire"]);
        Watches { wire, a: None, c: self.watcher(&self.c, &["listen"]) }
    }

    fn watcher(&self, space: &str, how: &[&str]) -> Running {
        let mut watch = self.lab.start(space, &[&["python3", &*program("never.py")], how].concat());
        watch.expect("watching", 1);
        watch
    }

    /// Everybody sends to the other side, until the returned programs are told to end.
    pub(crate) fn stream(&self) -> Vec<Running> {
        self.stream_of([true; 3])
    }

    /// The same for some of `a`, `b` and `c`.
    pub(crate) fn stream_of(&self, who: [bool; 3]) -> Vec<Running> {
        self.senders(who, &["stream"], |sender| sender.expect("sending", 1))
    }

    /// Waits until packets are sealed again, for both families, from the daemon's host and from behind it.
    pub(crate) fn until_sealed(&self, what: &str) {
        let start = Instant::now();
        loop {
            let seen = self.during(what, |_| {});
            // Two senders, two families, two rounds; large datagrams have several fragments.
            if seen.esp >= 72 {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{what}: {seen:?}");
        }
    }

    /// The output of a script in the daemon's namespace.
    pub(crate) fn text(&self, script: &str) -> String {
        let (status, text) = self.lab.start(&self.a.space, &["sh", "-c", script]).finish(LIMIT);
        assert_eq!(status, Some(0), "{script}\n{text}");
        text
    }

    /// Waits until the output of a script is as wanted.
    pub(crate) fn until_text(&self, script: &str, is_wanted: impl Fn(&str) -> bool) {
        let start = Instant::now();
        while !is_wanted(&self.text(script)) {
            assert!(start.elapsed() < LIMIT, "{script}: {}", self.text(script));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Everybody sends to the other side.
    pub(crate) fn send(&self, size: &str) {
        for one in self.senders([true; 3], &["send", COUNT, size], |_| {}) {
            let (status, text) = one.finish(LIMIT);
            assert_eq!(status, Some(0), "{text}");
        }
    }

    fn senders(&self, [a, b, c]: [bool; 3], how: &[&str], each: impl Fn(&mut Running)) -> Vec<Running> {
        let program = program("never.py");
        let [a4, a6] = A;
        let [b4, b6] = B;
        let [c4, c6] = C;
        let sends = [
            (a, &self.a.space, vec![a4, b4, "and", a6, b6]),
            (c, &self.c, vec![c4, b4, "and", c6, b6]),
            (b, &self.b, vec![b4, a4, c4, "and", b6, a6, c6]),
        ];
        let mut running = Vec::new();
        for (_, space, flows) in sends.iter().filter(|(sends, ..)| *sends) {
            running.push(self.lab.start(space, &[&["python3", &*program], how, &flows[..]].concat()));
        }
        running.iter_mut().for_each(each);
        running
    }

    /// Sends before and after an event, and checks that nothing has passed unprotected.
    pub(crate) fn during(&self, what: &str, event: impl FnOnce(&Self)) -> Seen {
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
pub(crate) struct Seen {
    pub(crate) clear: u64,
    pub(crate) esp: u64,
    pub(crate) at_a: u64,
    pub(crate) at_c: u64,
}

impl Watches {
    pub(crate) fn end(self) -> Seen {
        // Packets that are on their way arrive.
        std::thread::sleep(Duration::from_millis(100));
        let last = |watch: Running| {
            let (status, text) = watch.finish(LIMIT);
            assert_eq!(status, Some(0), "{text}");
            let line = text.lines().last().unwrap_or_default().to_owned();
            line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<u64>>()
        };
        let at_a = self.a.map_or(0, |watch| last(watch)[0]);
        let [wire, c] = [self.wire, self.c].map(last);
        Seen { clear: wire[0], esp: wire[1], at_a, at_c: c[0] }
    }
}

/// Runs a script in a namespace, which has to succeed.
pub(crate) fn sh(lab: &Lab, space: &str, script: &str) {
    let (status, text) = lab.start(space, &["sh", "-ec", script]).finish(LIMIT);
    assert_eq!(status, Some(0), "{script}\n{text}");
}

/// Makes the wire between the daemon's host and its neighbour, with addresses and routes.
pub(crate) fn wire(lab: &Lab, a: &str, b: &str) {
    lab.veth([a, b], ["wire", "wire"]);
    for (i, space) in [a, b].into_iter().enumerate() {
        lab.address(space, "wire", &format!("{}/24", OUTER[0][i]), &format!("{}/64", OUTER[1][i]));
    }
    for (family, of) in [("-4", 0), ("-6", 1)] {
        lab.ip(a, &format!("{family} route add {} via {} dev wire src {}", NETS[of][1], OUTER[of][1], A[of]));
        lab.ip(b, &format!("{family} route add {} via {} dev wire src {}", NETS[of][0], OUTER[of][0], B[of]));
    }
}
