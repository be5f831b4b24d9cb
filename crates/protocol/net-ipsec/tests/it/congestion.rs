//! Congestion control of IP-TFS over pretended paths: bottlenecks with queues, delays and interruptions. There is no clock, and the
//! same seeds make the same losses.

use sealane_net_ipsec::iptfs::congestion::Congestion;
use sealane_net_ipsec::iptfs::congestion::header::CcHeader;
use sealane_net_ipsec::iptfs::{CC_HEADER_LEN, Rate};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// The highest rate: 1,000 packets a second.
const RATE: Rate = Rate { interval_ns: MS, packet_len: 1400, congestion_control: true };

/// One direction of a path.
#[derive(Clone, Copy)]
struct Link {
    /// Nanoseconds that a packet takes; 0 for as many as there are.
    each_ns: u64,
    /// The number of packets that find room.
    queue: u64,
    /// Whether packets that find room pass at once, as by a policer.
    polices: bool,
    /// The number of packets from which on others are marked.
    marks_from: u64,
    delay_ns: u64,
    is_broken: bool,
    free_ns: u64,
}

impl Link {
    fn wide() -> Link {
        let (polices, is_broken) = (false, false);
        Link { each_ns: 0, queue: 0, polices, marks_from: u64::MAX, delay_ns: 20 * MS, is_broken, free_ns: 0 }
    }

    fn narrow(pkts_per_second: u64, queue: u64) -> Link {
        Link { each_ns: SECOND / pkts_per_second, queue, ..Link::wide() }
    }

    /// When a packet arrives, and whether it has a mark then; `None` if it is lost.
    fn carry(&mut self, now_ns: u64) -> Option<(u64, bool)> {
        let ahead_ns = self.free_ns.saturating_sub(now_ns);
        if self.is_broken || self.each_ns != 0 && ahead_ns >= self.queue * self.each_ns {
            return None;
        }
        let marked = self.each_ns != 0 && ahead_ns >= self.marks_from.saturating_mul(self.each_ns);
        self.free_ns = self.free_ns.max(now_ns) + self.each_ns;
        let leaves_ns = if self.polices { now_ns } else { self.free_ns };
        Some((leaves_ns + self.delay_ns, marked))
    }
}

/// One end of a tunnel.
struct End {
    congestion: Congestion,
    serial: u64,
    number: u64,
    sent: u64,
    came: u64,
    marked: u64,
}

impl End {
    fn new() -> End {
        End { congestion: Congestion::new(&RATE), serial: 1, number: 0, sent: 0, came: 0, marked: 0 }
    }

    fn interval_ns(&self) -> u64 {
        self.congestion.sending().interval_ns()
    }
}

struct Packet {
    serial: u64,
    number: u64,
    payload: [u8; CC_HEADER_LEN],
    marked: bool,
}

enum Event {
    Leaves,
    Comes(Packet),
}

/// Tunnels whose packets share a path. The first end of each sends over the first link.
struct World {
    tunnels: Vec<[End; 2]>,
    links: [Link; 2],
    /// By time and order: the tunnel and the end where it happens.
    events: BTreeMap<(u64, u64), (usize, usize, Event)>,
    order: u64,
    seed: u64,
}

impl World {
    fn new(tunnels: usize, links: [Link; 2], seed: u64) -> World {
        let mut world = World {
            tunnels: (0..tunnels).map(|_| [End::new(), End::new()]).collect(),
            links,
            events: BTreeMap::new(),
            order: 0,
            seed,
        };
        for tunnel in 0..tunnels {
            (0..2).for_each(|end| world.plan(SECOND + tunnel as u64 * 7919, tunnel, end, Event::Leaves));
        }
        world
    }

    fn plan(&mut self, at_ns: u64, tunnel: usize, end: usize, event: Event) {
        self.order += 1;
        self.events.insert((at_ns, self.order), (tunnel, end, event));
    }

    /// Threads are woken late by up to 200 microseconds.
    fn late_ns(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 33) % 200_000
    }

    fn run_until(&mut self, until_s: u64) {
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 < until_s * SECOND) {
            let ((now_ns, _), (tunnel, at, event)) = entry.remove_entry();
            let end = &mut self.tunnels[tunnel][at];
            match event {
                Event::Comes(packet) => {
                    end.came += 1;
                    end.marked += u64::from(packet.marked);
                    end.congestion.input(packet.serial, packet.number, &packet.payload, packet.marked, now_ns);
                }
                Event::Leaves => {
                    let (interval_ns, header) = end.congestion.output(now_ns);
                    (end.number, end.sent) = (end.number + 1, end.sent + 1);
                    let mut payload = [0; CC_HEADER_LEN];
                    header.write(&mut payload);
                    let (serial, number) = (end.serial, end.number);
                    if let Some((at_ns, marked)) = self.links[at].carry(now_ns) {
                        self.plan(at_ns, tunnel, 1 - at, Event::Comes(Packet { serial, number, payload, marked }));
                    }
                    let late_ns = self.late_ns();
                    self.plan((now_ns + interval_ns + late_ns).saturating_sub(100_000), tunnel, at, Event::Leaves);
                }
            }
        }
    }

    /// The packets that come through the first link until this time, of each tunnel.
    fn come_until(&mut self, until_s: u64) -> Vec<u64> {
        let before: Vec<u64> = self.tunnels.iter().map(|[_, right]| right.came).collect();
        self.run_until(until_s);
        self.tunnels.iter().zip(before).map(|([_, right], before)| right.came - before).collect()
    }

    fn left(&self) -> &End {
        &self.tunnels[0][0]
    }
}

#[test]
fn a_wide_path_is_used() {
    let mut world = World::new(1, [Link::wide(); 2], 1);
    world.run_until(10);
    let sending = world.left().congestion.sending();
    assert_eq!((sending.interval_ns(), sending.loss_interval()), (MS, 0));
    // Two delays, and a thread that is woken late.
    assert!((39_900..41_000).contains(&sending.rtt_us()), "{} us", sending.rtt_us());
    let came = world.come_until(20)[0];
    assert!((9_500..=10_500).contains(&came), "{came}");
}

#[test]
fn the_rate_is_that_of_the_bottleneck() {
    for seed in 1..5 {
        let mut world = World::new(1, [Link::narrow(200, 20), Link::wide()], seed);
        world.run_until(20);
        let before = world.left().sent;
        let came = world.come_until(50)[0];
        let sent = world.left().sent - before;
        assert!((5_400..=6_000).contains(&came), "seed {seed}: {came} of 6,000");
        assert!(sent < 7_000, "seed {seed}: {sent} for {came}");
        // The other direction has no losses.
        assert_eq!(world.tunnels[0][1].congestion.sending().loss_interval(), 0);
    }
}

#[test]
fn two_share_a_bottleneck() {
    for seed in 1..5 {
        let mut world = World::new(2, [Link::narrow(400, 40), Link::wide()], seed);
        world.run_until(20);
        let came = world.come_until(80);
        let all: u64 = came.iter().sum();
        assert!((21_000..=24_000).contains(&all), "seed {seed}: {came:?}");
        assert!(came.iter().all(|one| *one > all / 3), "seed {seed}: {came:?}");
    }
}

/// One that comes later gets its part.
#[test]
fn another_one_comes() {
    let mut world = World::new(1, [Link::narrow(400, 40), Link::wide()], 9);
    world.run_until(30);
    world.tunnels.push([End::new(), End::new()]);
    (0..2).for_each(|end| world.plan(30 * SECOND, 1, end, Event::Leaves));
    world.run_until(60);
    let came = world.come_until(120);
    let all: u64 = came.iter().sum();
    assert!(all > 20_000 && came.iter().all(|one| *one > all / 4), "{came:?}");
}

#[test]
fn an_interruption_ends_in_silence_and_is_over() {
    for broken in [0, 1] {
        let mut world = World::new(1, [Link::narrow(200, 20), Link::wide()], 3);
        world.run_until(30);
        world.links[broken].is_broken = true;
        // Whichever direction it is, no end hears of what it has sent.
        world.run_until(60);
        for end in &world.tunnels[0] {
            let sending = end.congestion.sending();
            assert!((sending.interval_ns(), sending.is_silent()) == (2 * SECOND, true), "{broken}");
        }
        let before = world.left().sent;
        world.run_until(80);
        assert!((9..=11).contains(&(world.left().sent - before)), "one in two seconds");
        world.links[broken].is_broken = false;
        world.run_until(130);
        let came = world.come_until(160)[0];
        assert!((4_800..=6_000).contains(&came), "{broken}: {came} of 6,000");
        assert!(!world.left().congestion.sending().is_silent());
    }
}

#[test]
fn the_path_becomes_narrow_and_wide() {
    let mut world = World::new(1, [Link::wide(); 2], 4);
    world.run_until(15);
    world.links[0] = Link { free_ns: 15 * SECOND, ..Link::narrow(100, 10) };
    world.run_until(40);
    let before = world.left().sent;
    let came = world.come_until(70)[0];
    let sent = world.left().sent - before;
    assert!((2_600..=3_000).contains(&came) && sent < 4_000, "{came} of {sent}");
    world.links[0] = Link::wide();
    world.run_until(100);
    // But for what a microsecond more or less of a delay makes of it.
    assert!(world.left().interval_ns() < 1_100_000, "{} ns", world.left().interval_ns());
}

/// A policer lets a burst of five pass, and as many in a second as it says: up to 1,000 leave. The path is long, or shorter than
/// the time from one packet to the next.
#[test]
fn the_rate_is_that_of_a_policer() {
    for (delay_ns, pkts_per_second) in
        [(MS / 10, 10), (MS / 10, 100), (MS / 10, 400), (MS, 100), (5 * MS, 100), (50 * MS, 100)]
    {
        for seed in 1..4 {
            let wide = Link { delay_ns, ..Link::wide() };
            let mut world = World::new(1, [wide; 2], seed);
            world.run_until(20);
            assert_eq!(world.left().interval_ns(), MS, "{delay_ns}, {pkts_per_second}: at first");
            let (polices, free_ns) = (true, 20 * SECOND);
            world.links[0] = Link { polices, free_ns, delay_ns, ..Link::narrow(pkts_per_second, 5) };
            world.run_until(40);
            let before = world.left().sent;
            let came = world.come_until(100)[0];
            let (sent, most) = (world.left().sent - before, 60 * pkts_per_second);
            assert!(came > most / 2, "{delay_ns}, {pkts_per_second}, seed {seed}: {came} of {most} came");
            assert!(sent < most * 2, "{delay_ns}, {pkts_per_second}, seed {seed}: {sent} sent, {came} came");
            world.links[0] = wide;
            world.run_until(160);
            assert!(world.left().interval_ns() < 2 * MS, "{delay_ns}, {pkts_per_second}, seed {seed}: at the end");
        }
    }
}

/// Keys change, and numbers begin anew.
#[test]
fn other_keys_change_nothing() {
    let mut world = World::new(1, [Link::narrow(200, 20), Link::wide()], 5);
    world.run_until(20);
    for turn in 1..10 {
        for end in &mut world.tunnels[0] {
            (end.serial, end.number) = (end.serial + 1, 0);
        }
        let came = world.come_until(20 + turn * 5)[0];
        assert!((880..=1001).contains(&came), "{turn}: {came} of 1,000");
    }
}

/// Marks do what losses do, before there are any.
#[test]
fn marks_lower_the_rate() {
    let mut world = World::new(1, [Link { marks_from: 10, ..Link::narrow(200, 200) }, Link::wide()], 6);
    world.run_until(30);
    let (sent, came, marked) = (world.left().sent, world.tunnels[0][1].came, world.tunnels[0][1].marked);
    world.run_until(60);
    let [left, right] = &mut world.tunnels[0];
    let (_, header) = right.congestion.output(60 * SECOND);
    assert!(header.marked && header.loss_interval > 0, "{header:?}");
    let (sent, came, marked) = (left.sent - sent, right.came - came, right.marked - marked);
    assert!(
        (5_000..=7_000).contains(&sent) && came + 100 > sent && marked > 10,
        "{sent} sent, {came} came, {marked} marked"
    );
}

/// Whatever a peer says, the rate stays within its limits.
#[test]
fn a_peer_may_say_anything() {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 32) as u32
    };
    for _ in 0..300 {
        let mut congestion = Congestion::new(&RATE);
        let mut now_ns = u64::from(next()) << 12;
        for number in 0..300 {
            now_ns = now_ns.saturating_add(u64::from(next()) >> (next() % 32));
            let (interval_ns, ours) = congestion.output(now_ns);
            assert!((MS..=2 * SECOND).contains(&interval_ns), "{interval_ns}");
            let echo = [ours.time.wrapping_sub(next() >> (next() % 32)), 0, next()][next() as usize % 3];
            let theirs = CcHeader {
                probing: next().is_multiple_of(2),
                marked: next().is_multiple_of(2),
                offset: next() as u16,
                loss_interval: next() >> (next() % 32),
                rtt_us: next() >> (next() % 32),
                echo_delay_us: next() >> (next() % 32),
                transmit_delay_us: next() >> (next() % 32),
                time: next() % 3,
                echo,
            };
            let mut payload = [0; CC_HEADER_LEN];
            theirs.write(&mut payload);
            let number = u64::from(next() >> (next() % 32)) + number;
            congestion.input(u64::from(next() % 2), number, &payload, next().is_multiple_of(2), now_ns);
        }
    }
}
