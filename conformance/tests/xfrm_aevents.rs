//! Replay events: `ip xfrm monitor aevent` shows the same at a real kernel and at a daemon for the same packets.
//!
//! No step depends on how fast the machine is. Packets alone tell where the timer is off (`xfrm_aevent_etime` 0). Where it runs,
//! a single packet is told exactly once before the next one is sent: when the timer expires, or at once if it had expired before
//! the packet came (`XFRM_TIME_DEFER`). The order of timers and packets at exact times is tested with the engine's own clock, in
//! `crates/engine`.

use sealane_conformance::ipsec::{Guest, Host, LIMIT, Tapped};
use sealane_conformance::lab::{Lab, Running};
use std::time::{Duration, Instant};

const ENDS: [&str; 2] = ["10.81.0.1", "10.81.0.2"];
/// Events as `ip` prints them.
const BY_PACKETS: &str = "(0x10)  replay update";
const BY_TIME: &str = "(0x20)  timer expired";

/// A configured threshold and timer, and the packets that are sent under them.
struct Phase<'a> {
    /// Packets between two events (`net.core.xfrm_aevent_rseqth`).
    thresh: u32,
    /// Tenths of a second between two events (`net.core.xfrm_aevent_etime`).
    tenths: u32,
    steps: &'a [Step],
}

/// A number of pings, and the events that each state shows after them, before the next step.
struct Step {
    pings: u32,
    shows: &'static [&'static str],
}

const fn step(pings: u32, shows: &'static [&'static str]) -> Step {
    Step { pings, shows }
}

/// A single packet at a time: each is told once, the last one after the timer has expired without news.
const SINGLY: &[Step] = &[step(1, &[BY_TIME]), step(1, &[BY_TIME]), step(0, &[]), step(1, &[BY_TIME])];

/// Which states tell anything: with no replay window the number of received packets never moves.
#[derive(Clone, Copy, PartialEq)]
enum Telling {
    Both,
    Outbound,
}

/// The two ends with their monitors.
struct Watched {
    here: Running,
    there: std::path::PathBuf,
    guest: Guest,
    host: Host,
    lab: Lab,
    /// The number of phases so far, which SPIs and keys are made of: a daemon goes on counting where a key is added again.
    phases: usize,
}

impl Watched {
    fn new(test: &str) -> Option<Watched> {
        let Tapped { mut guest, host, lab } = Tapped::new(test, "[ipsec]\n")?;
        let there = lab.folder().join("aevents");
        let here = host.begin(&lab, &["ip", "xfrm", "monitor", "aevent"]);
        guest.must(&format!("ip xfrm monitor aevent > {} 2>&1 &", there.display()));
        let mut watched = Watched { here, there, guest, host, lab, phases: 0 };
        // A daemon looks every second whether anybody listens: from then on each packet is told.
        watched.add("replay-window 32", 1, 0);
        let start = Instant::now();
        while watched.shown().iter().any(|[out, _]| out.is_empty()) {
            assert!(start.elapsed() < LIMIT, "nothing is told: {:?}", watched.shown());
            watched.ping(0, 1);
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(watched)
    }

    /// States and policies of ESP between the ends' addresses, for ping.
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

    /// The SPI of what this end sends in the current phase.
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
        self.guest.must(&(settings + &self.commands(1, flags)));
    }

    fn ping(&mut self, pinger: usize, count: u32) {
        let line = format!("ping -q -c {count} -i 0.01 -W 30 {}", ENDS[1 - pinger]);
        if pinger == 0 {
            let (status, text) = self.lab.start(&self.host.space, &["sh", "-ec", &line]).finish(LIMIT);
            assert_eq!(status, Some(0), "{text}");
        } else {
            self.guest.must(&line);
        }
    }

    /// The events of the current phase at each end, first those of the state that the end sends by.
    fn shown(&self) -> [[Vec<String>; 2]; 2] {
        let texts = [self.here.output(), std::fs::read_to_string(&self.there).unwrap_or_default()];
        [0, 1].map(|end| {
            [end, 1 - end].map(|from| {
                let is_its = |event: &&str| event.split_whitespace().any(|word| word == self.spi(from));
                let events = texts[end].split("Async event").skip(1).filter(is_its);
                events.map(|event| event.lines().next().unwrap_or_default().trim().to_owned()).collect()
            })
        })
    }

    /// Sends the packets of a phase; each step waits for the events that it leads to.
    fn run(&mut self, flags: &str, phase: &Phase<'_>, pinger: usize, telling: Telling) {
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
        // Nothing follows, of timers neither.
        std::thread::sleep(later.max(Duration::from_millis(300)).min(Duration::from_secs(3)));
        let inbound = if telling == Telling::Both { expected.clone() } else { Vec::new() };
        for (end, shown) in ["daemon", "kernel"].into_iter().zip(self.shown()) {
            assert_eq!(
                shown,
                [expected.clone(), inbound.clone()],
                "{flags}, pinged by {pinger}, {end}: sent, received"
            );
        }
    }
}

/// Runs a case with either end pinging.
fn shown_as_linux_shows(test: &str, flags: &str, phases: &[Phase<'_>], telling: Telling) {
    let Some(mut watched) = Watched::new(test) else { return };
    for pinger in 0..2 {
        for phase in phases {
            watched.run(flags, phase, pinger, telling);
        }
    }
}

#[test]
fn of_a_window_in_the_old_way() {
    let steps = &[step(1, &[]), step(1, &[BY_PACKETS]), step(3, &[BY_PACKETS])];
    let phases = [Phase { thresh: 2, tenths: 0, steps }, Phase { thresh: 2, tenths: 10, steps: SINGLY }];
    shown_as_linux_shows("xfrm_aevents::of_a_window_in_the_old_way", "replay-window 32", &phases, Telling::Both);
}

#[test]
fn of_extended_numbers() {
    let steps = &[step(2, &[]), step(1, &[BY_PACKETS]), step(5, &[BY_PACKETS])];
    let phases = [Phase { thresh: 3, tenths: 0, steps }, Phase { thresh: 3, tenths: 10, steps: SINGLY }];
    shown_as_linux_shows("xfrm_aevents::of_extended_numbers", "replay-window 64 flag esn", &phases, Telling::Both);
}

#[test]
fn by_time_alone() {
    let phases = [Phase { thresh: 0, tenths: 10, steps: SINGLY }];
    shown_as_linux_shows("xfrm_aevents::by_time_alone", "replay-window 64", &phases, Telling::Both);
}

#[test]
fn of_no_window() {
    let steps = &[step(1, &[]), step(2, &[BY_PACKETS]), step(5, &[BY_PACKETS])];
    let phases = [Phase { thresh: 3, tenths: 0, steps }];
    shown_as_linux_shows("xfrm_aevents::of_no_window", "replay-window 0", &phases, Telling::Outbound);
}

/// Packets and time together. The timer is so long that it expires after all of them.
#[test]
fn by_packets_and_then_by_time() {
    let phases = [Phase { thresh: 2, tenths: 100, steps: &[step(3, &[BY_PACKETS, BY_TIME])] }];
    shown_as_linux_shows("xfrm_aevents::by_packets_and_then_by_time", "replay-window 64", &phases, Telling::Both);
}
