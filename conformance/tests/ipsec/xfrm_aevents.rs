//! Replay events: `ip xfrm monitor aevent` shows the same at a real kernel and at a daemon for the same packets. The
//! kernel's events are recorded; a second daemon takes its place.
//!
//! No step depends on the speed of the machine. With the timer off (`xfrm_aevent_etime` 0) packets alone cause events.
//! With the timer on, a single packet causes exactly one event before the next packet is sent: when the timer expires,
//! or at once if it had expired before the packet came (`XFRM_TIME_DEFER`). Tests in `crates/engine` cover exact times,
//! with a clock of their own.

use sealane_conformance::ipsec::{Host, KERNEL, LIMIT, Peer, Wired};
use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::recorded::Sequence;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const ENDS: [&str; 2] = ["10.81.0.1", "10.81.0.2"];
/// The events as `ip` prints them.
const BY_PACKETS: &str = "(0x10)  replay update";
const BY_TIME: &str = "(0x20)  timer expired";

/// A threshold and a timer, and the packets that are sent with them.
struct Phase<'a> {
    /// Packets between two events (`net.core.xfrm_aevent_rseqth`).
    thresh: u32,
    /// Tenths of a second between two events (`net.core.xfrm_aevent_etime`).
    tenths: u32,
    steps: &'a [Step],
}

/// A number of pings, and the events of each state that they lead to before the next step.
struct Step {
    pings: u32,
    shows: &'static [&'static str],
}

const fn step(pings: u32, shows: &'static [&'static str]) -> Step {
    Step { pings, shows }
}

/// Single packets, each of which causes one event; before the last one the timer expires without news.
const SINGLY: &[Step] = &[step(1, &[BY_TIME]), step(1, &[BY_TIME]), step(0, &[]), step(1, &[BY_TIME])];

/// The states with events: without a replay window the number of received packets is not counted.
#[derive(Clone, Copy, PartialEq)]
enum Telling {
    Both,
    Outbound,
}

/// A monitor, in a namespace or in a kernel, where it writes a file.
enum Monitor {
    Running(Running),
    File(PathBuf),
}

impl Monitor {
    fn output(&self) -> String {
        match self {
            Monitor::Running(running) => running.output(),
            Monitor::File(path) => std::fs::read_to_string(path).unwrap_or_default(),
        }
    }
}

/// The two ends with their monitors.
struct Watched {
    monitors: [Monitor; 2],
    peer: Peer,
    host: Host,
    lab: Lab,
    /// Number of phases so far, part of SPIs and keys: a daemon continues the numbers of a key that is added again.
    phases: usize,
}

impl Watched {
    fn new(test: &str, with_kernel: bool) -> Option<Watched> {
        let Wired { mut peer, host, lab } = Wired::new(test, "[ipsec]\n", with_kernel)?;
        let begin = |host: &Host| Monitor::Running(host.begin(&lab, &["ip", "xfrm", "monitor", "aevent"]));
        let there = match &mut peer {
            Peer::Daemon(peer) => begin(peer),
            Peer::Kernel(guest) => {
                let file = lab.folder().join("aevents");
                guest.must(&format!("ip xfrm monitor aevent > {} 2>&1 &", file.display()));
                Monitor::File(file)
            }
        };
        let mut watched = Watched { monitors: [begin(&host), there], peer, host, lab, phases: 0 };
        // A daemon checks every second whether anybody listens; from then on each packet causes an event.
        watched.add("replay-window 32", 1, 0);
        let start = Instant::now();
        while watched.shown().iter().any(|[out, _]| out.is_empty()) {
            assert!(start.elapsed() < LIMIT, "nothing is told: {:?}", watched.shown());
            watched.ping(0, 1);
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(watched)
    }

    /// Returns the commands for an end: states and policies of ESP between the two addresses, for ping.
    fn commands(&self, end: usize, flags: &str) -> String {
        let mut script = "ip xfrm state flush\nip xfrm policy flush\n".to_owned();
        for from in 0..2 {
            let (source, destination, spi) = (ENDS[from], ENDS[1 - from], self.spi(from));
            let direction = if from == end { "out" } else { "in" };
            script += &format!(
                "ip xfrm state add src {source} dst {destination} proto esp spi {spi} reqid 1 mode transport \
                 aead 'rfc4106(gcm(aes))' 0x{:02x}0102030405060708090a0b0c0d0e0f10111213 128 {flags}\n\
                 ip xfrm policy add dir {direction} src {source} dst {destination} proto icmp \
                 tmpl proto esp reqid 1 mode transport\n",
                self.phases
            );
        }
        script
    }

    /// Returns the SPI of the packets from this end in the current phase.
    fn spi(&self, from: usize) -> String {
        format!("{:#x}", 0x1000 * (from + 1) + self.phases)
    }

    /// Replaces the states at both ends by new ones.
    fn add(&mut self, flags: &str, thresh: u32, tenths: u32) {
        self.phases += 1;
        let settings = format!(
            "echo {thresh} > /proc/sys/net/core/xfrm_aevent_rseqth\necho {tenths} > /proc/sys/net/core/xfrm_aevent_etime\n"
        );
        self.host.ip(&self.lab, &(settings.clone() + &self.commands(0, flags)));
        let commands = self.commands(1, flags);
        self.peer.must(&self.lab, &(settings + &commands));
    }

    fn ping(&mut self, pinger: usize, count: u32) {
        let line = format!("ping -q -c {count} -i 0.01 -W 30 {}", ENDS[1 - pinger]);
        if pinger == 0 {
            let (status, text) = self.lab.start(&self.host.space, &["sh", "-ec", &line]).finish(LIMIT);
            assert_eq!(status, Some(0), "{text}");
        } else {
            self.peer.must(&self.lab, &line);
        }
    }

    /// Returns the events of the current phase at each end, outbound state first.
    fn shown(&self) -> [[Vec<String>; 2]; 2] {
        let texts = self.monitors.each_ref().map(Monitor::output);
        [0, 1].map(|end| {
            [end, 1 - end].map(|from| {
                let is_its = |event: &&str| event.split_whitespace().any(|word| word == self.spi(from));
                let events = texts[end].split("Async event").skip(1).filter(is_its);
                events.map(|event| event.lines().next().unwrap_or_default().trim().to_owned()).collect()
            })
        })
    }

    /// Sends the packets of a phase; each step waits for its events. Returns those of the peer.
    fn run(&mut self, flags: &str, phase: &Phase<'_>, pinger: usize, telling: Telling) -> String {
        self.add(flags, phase.thresh, phase.tenths);
        let mut expected: Vec<&str> = Vec::new();
        let later = Duration::from_millis(250 * u64::from(phase.tenths));
        for step in phase.steps {
            if step.pings == 0 {
                std::thread::sleep(later);
            } else {
                self.ping(pinger, step.pings);
            }
            expected.extend(step.shows);
            let start = Instant::now();
            let is_short = |shown: &[Vec<String>; 2]| {
                shown[0].len() < expected.len() || telling == Telling::Both && shown[1].len() < expected.len()
            };
            while self.shown().iter().any(is_short) {
                assert!(start.elapsed() < LIMIT, "{flags}: not {expected:?}: {:#?}", self.shown());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        // No event follows, not of timers either.
        std::thread::sleep(later.max(Duration::from_millis(300)).min(Duration::from_secs(3)));
        let inbound = if telling == Telling::Both { expected.clone() } else { Vec::new() };
        let all = [expected, inbound];
        for (end, shown) in ["daemon", "peer"].into_iter().zip(self.shown()) {
            assert_eq!(shown, all, "{flags}, pinged by {pinger}, {end}: sent, received");
        }
        let Phase { thresh, tenths, .. } = phase;
        let [sent, received] =
            all.map(|events| if events.is_empty() { "nothing".to_owned() } else { events.join(", ") });
        format!("pinged by {pinger}, {thresh} packets, {tenths} tenths:\n  sent {sent}\n  received {received}\n")
    }
}

/// Runs the phases with pings from either end.
fn shown_as_linux_shows(test: &str, name: &str, flags: &str, phases: &[Phase<'_>], telling: Telling) {
    let run = |with_kernel| {
        let mut watched = Watched::new(test, with_kernel)?;
        let turns = (0..2).flat_map(|pinger| phases.iter().map(move |phase| (pinger, phase)));
        Some(turns.map(|(pinger, phase)| watched.run(flags, phase, pinger, telling)).collect::<String>())
    };
    let sequence = Sequence::new(KERNEL, &format!("xfrm-aevents-{name}"));
    let sequence = sequence.files(&["conformance/tests/ipsec/xfrm_aevents.rs"]).tools(&["ip -V"]);
    let Some(of_linux) = sequence.answer(test, || run(true)) else { return };
    if let Some(ours) = run(false) {
        assert_eq!(ours, of_linux);
    }
}

#[test]
fn of_a_window_in_the_old_way() {
    let steps = &[step(1, &[]), step(1, &[BY_PACKETS]), step(3, &[BY_PACKETS])];
    let phases = [Phase { thresh: 2, tenths: 0, steps }, Phase { thresh: 2, tenths: 10, steps: SINGLY }];
    shown_as_linux_shows(
        "xfrm_aevents::of_a_window_in_the_old_way",
        "old-window",
        "replay-window 32",
        &phases,
        Telling::Both,
    );
}

#[test]
fn of_extended_numbers() {
    let steps = &[step(2, &[]), step(1, &[BY_PACKETS]), step(5, &[BY_PACKETS])];
    let phases = [Phase { thresh: 3, tenths: 0, steps }, Phase { thresh: 3, tenths: 10, steps: SINGLY }];
    shown_as_linux_shows(
        "xfrm_aevents::of_extended_numbers",
        "numbers",
        "replay-window 64 flag esn",
        &phases,
        Telling::Both,
    );
}

#[test]
fn by_time_alone() {
    let phases = [Phase { thresh: 0, tenths: 10, steps: SINGLY }];
    shown_as_linux_shows("xfrm_aevents::by_time_alone", "time", "replay-window 64", &phases, Telling::Both);
}

#[test]
fn of_no_window() {
    let steps = &[step(1, &[]), step(2, &[BY_PACKETS]), step(5, &[BY_PACKETS])];
    let phases = [Phase { thresh: 3, tenths: 0, steps }];
    shown_as_linux_shows("xfrm_aevents::of_no_window", "no-window", "replay-window 0", &phases, Telling::Outbound);
}

/// Packets and time together: the timer is long enough to expire after all packets. The last one comes after the event: a
/// daemon that is late tells of several packets once.
#[test]
fn by_packets_and_then_by_time() {
    let phases = [Phase { thresh: 2, tenths: 100, steps: &[step(2, &[BY_PACKETS]), step(1, &[BY_TIME])] }];
    shown_as_linux_shows(
        "xfrm_aevents::by_packets_and_then_by_time",
        "packets-and-time",
        "replay-window 64",
        &phases,
        Telling::Both,
    );
}
