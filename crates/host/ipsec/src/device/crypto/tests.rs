//! The core against a database: order, back-pressure, what is deleted in flight, and a thread that dies.

use super::ring::DEPTH;
use super::*;
use sealane_engine_xfrm::device::crypto::{Polled, Slot, Status};
use sealane_net_ipsec::burst::{Jobs, NOT_RUN};
use sealane_net_ipsec::open::{Inbound, Opened, open};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{Outbound, begin, end};
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use std::sync::atomic::AtomicU64;

const LEN: usize = 100;
const SLOT: usize = HEADROOM + LEN + TAILROOM;
const NAME: StateKey = StateKey(7);

fn transform() -> Transform {
    let registry = Arc::new(sealane_crypto_portable::registry());
    let aead = Keyed { name: "rfc4106(gcm(aes))", key: &[3; 20] };
    Transforms::new(registry).prepare(&TransformSpec::Aead { aead, icv_bits: 128 }, false).expect("it is there")
}

fn spec() -> SaSpec {
    let [a, b] = [1, 2].map(|n| std::net::Ipv4Addr::new(192, 0, 2, n).into());
    SaSpec { window_pkts: 1024, ..SaSpec::tunnel(9, a, b, transform()) }
}

struct Bench {
    out: Sad,
    inn: Sad,
    id: SaId,
    half: CryptoOps,
    thread: Option<JoinHandle<()>>,
    counters: Arc<CryptoCounters>,
}

impl Bench {
    fn new() -> Self {
        let counters = Arc::default();
        let (core, thread) = Core::start("crypto-test", None, Arc::clone(&counters)).expect("a thread");
        Bench::over(core, Some(thread), counters)
    }

    /// Makes a device whose thread is the test.
    fn without_thread() -> Self {
        let counters = Arc::default();
        Bench::over(Core::new(None, Arc::clone(&counters)), None, counters)
    }

    fn over(core: Arc<Core>, thread: Option<JoinHandle<()>>, counters: Arc<CryptoCounters>) -> Self {
        let (mut out, mut inn) = (Sad::new(1), Sad::new(2));
        let id = out.add(spec()).expect("it is the first");
        inn.add(spec()).expect("it is the first");
        core.post(CoreMessage::State(NAME, transform().key()));
        Bench { out, inn, id, half: CryptoOps(core), thread, counters }
    }

    fn queue(&self) -> Box<dyn Queue> {
        self.half.crypto().and_then(|crypto| crypto.queue(Box::new(|| {}))).expect("the thread lives")
    }

    /// Begins a burst.
    fn burst(&mut self, n: usize) -> Box<CryptoBurst> {
        let mut burst = Box::new(CryptoBurst::new(n * SLOT));
        let mut jobs = Jobs::new();
        let mut packets: Vec<Outbound<'_>> = Vec::new();
        for slot in burst.buffer.chunks_mut(SLOT) {
            let header = [0x45, 0, 0, LEN as u8, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            slot[HEADROOM..HEADROOM + 20].copy_from_slice(&header);
            packets.push(Outbound::new(self.id, Packet::new(slot, HEADROOM, HEADROOM + LEN)));
        }
        begin(&mut self.out, &mut packets, 1, &mut Vec::new(), &mut jobs);
        let slots: Vec<Slot> = packets.iter().enumerate().map(|(i, out)| Slot::new(i * SLOT, &out.packet)).collect();
        drop(packets);
        burst.slots.extend(slots);
        burst.keys.extend(jobs.iter().map(|_| Some(NAME)));
        burst.done.extend(jobs.iter().map(|_| NOT_RUN));
        burst.jobs = jobs;
        burst
    }

    /// Ends a burst, and returns the packets that may leave.
    fn end(&self, mut burst: Box<CryptoBurst>) -> Vec<Vec<u8>> {
        let (jobs, done): (Jobs, Vec<Status>) = (burst.jobs.clone(), burst.done.to_vec());
        let mut packets: Vec<Outbound<'_>> =
            burst.packets().into_iter().map(|packet| Outbound::new(self.id, packet)).collect();
        end(&mut packets, &jobs, &done);
        packets.iter().filter(|out| out.status.is_ok()).map(|out| out.packet.bytes().to_vec()).collect()
    }

    fn opens(&mut self, wires: &[Vec<u8>]) -> bool {
        wires.iter().all(|wire| {
            let mut wire = wire.clone();
            let end = wire.len();
            let mut packets = [Inbound::new(Packet::new(&mut wire, 0, end))];
            open(&mut self.inn, &mut packets, 1, &mut Vec::new());
            matches!(packets[0].status, Ok(Opened::Packet))
        })
    }

    /// Stops the thread and waits for it.
    fn stop(&mut self) {
        self.half.0.end();
        let _ = self.thread.take().expect("it is stopped once").join();
    }

    fn count(&self, which: impl Fn(&CryptoCounters) -> &AtomicU64) -> u64 {
        which(&self.counters).load(Relaxed)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

/// The next burst, waited for.
fn next(queue: &mut dyn Queue) -> Option<Box<CryptoBurst>> {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        match queue.poll() {
            Polled::Burst(burst) => return Some(burst),
            Polled::Gone => return None,
            Polled::Nothing => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    panic!("nothing came")
}

fn numbers(wires: &[Vec<u8>]) -> Vec<u8> {
    wires.iter().map(|wire| wire[20 + 7]).collect()
}

#[test]
fn bursts_come_back_in_order_and_good() {
    let mut bench = Bench::new();
    let mut queue = bench.queue();
    let mut sent = Vec::new();
    for round in 0..40 {
        while queue.room() > 0 {
            let burst = bench.burst(5);
            assert!(queue.submit(burst).is_ok());
        }
        if round % 7 == 3 {
            // It goes to sleep in between.
            std::thread::sleep(Duration::from_millis(2));
        }
        let burst = next(&mut *queue).expect("the thread lives");
        sent.extend(bench.end(burst));
    }
    assert_eq!(numbers(&sent), (1..=200).collect::<Vec<u8>>());
    assert!(bench.opens(&sent));
    assert!(bench.count(|c| &c.bursts) >= 40 && bench.count(|c| &c.busy_ns) > 0);
    assert_eq!(bench.count(|c| &c.packets), 5 * bench.count(|c| &c.bursts));
    assert!(bench.count(|c| &c.bytes) > 100 * bench.count(|c| &c.packets));
}

#[test]
fn two_workers_have_queues_of_their_own() {
    let mut bench = Bench::new();
    let mut queues = [bench.queue(), bench.queue()];
    for n in 0..30 {
        let burst = bench.burst(1 + n % 3);
        let jobs = burst.jobs.len();
        let queue = &mut queues[n % 2];
        assert!(queue.submit(burst).is_ok());
        let back = next(&mut **queue).expect("the thread lives");
        assert_eq!(back.jobs.len(), jobs);
        let sent = bench.end(back);
        assert!(sent.len() == jobs && bench.opens(&sent));
    }
}

#[test]
fn a_full_ring_refuses() {
    let mut bench = Bench::new();
    let mut queue = bench.queue();
    // The thread has something to hear, and cannot.
    let core = bench.half.0.clone();
    let held = core.inbox.lock();
    core.news.store(true, Release);
    for left in (0..DEPTH).rev() {
        let burst = bench.burst(1);
        assert!(queue.submit(burst).is_ok());
        assert_eq!(queue.room(), left);
    }
    let burst = bench.burst(1);
    let Err(refused) = queue.submit(burst) else { panic!("there was no room") };
    assert_eq!(refused.jobs.len(), 1, "it is given back");
    queue.count_full();
    assert_eq!(bench.count(|c| &c.full), 1);
    drop(held);
    let sent: Vec<Vec<u8>> =
        (0..DEPTH).map(|_| next(&mut *queue)).flat_map(|burst| bench.end(burst.expect("the thread lives"))).collect();
    assert_eq!(numbers(&sent), (1..=DEPTH as u8).collect::<Vec<u8>>());
    assert_eq!(queue.room(), DEPTH);
}

#[test]
fn a_state_that_is_given_back_seals_nothing_any_more() {
    let mut bench = Bench::new();
    let mut queue = bench.queue();
    for _ in 0..DEPTH {
        let burst = bench.burst(40);
        assert!(queue.submit(burst).is_ok());
    }
    bench.half.state_del(NAME);
    // Bursts in flight are sealed; later ones are not.
    for _ in 0..DEPTH {
        let burst = next(&mut *queue).expect("the thread lives");
        let sent = bench.end(burst);
        assert!(sent.len() == 40 && bench.opens(&sent));
    }
    let burst = bench.burst(4);
    let plain = burst.buffer.clone();
    assert!(queue.submit(burst).is_ok());
    let burst = next(&mut *queue).expect("the thread lives");
    assert!(burst.done.iter().all(|done| *done == NOT_RUN) && burst.buffer == plain);
    assert!(bench.end(burst).is_empty());
    assert_eq!(bench.count(|c| &c.no_key), 4);
}

#[test]
fn a_key_is_wiped_with_the_last_burst_from_before() {
    let mut bench = Bench::without_thread();
    let core = bench.half.0.clone();
    let mut thread = Ends::new(&core);
    let mut queues = [bench.queue(), bench.queue()];
    for queue in [0, 0, 1] {
        let burst = bench.burst(3);
        assert!(queues[queue].submit(burst).is_ok());
    }
    // Nobody computes anything meanwhile.
    bench.half.state_del(NAME);
    for queue in [0, 1] {
        let burst = bench.burst(3);
        assert!(queues[queue].submit(burst).is_ok());
    }
    let mut sealed = |at: usize| {
        let burst = next(&mut *queues[at]).expect("it is there");
        bench.end(burst).len()
    };
    assert!(thread.work());
    assert_eq!([sealed(0), sealed(1)], [3, 3]);
    assert!(thread.keys.contains_key(&NAME), "a burst from before is there");
    // One from before, and one from after while the key is there.
    assert!(thread.work());
    assert_eq!([sealed(0), sealed(1)], [3, 0]);
    assert!(thread.keys.is_empty() && thread.gone.is_empty(), "what is there came later");
    assert!(thread.work());
    assert_eq!(sealed(0), 0);
    assert_eq!(bench.count(|c| &c.no_key), 6);
}

#[test]
fn a_key_is_wiped_without_bursts() {
    let mut bench = Bench::without_thread();
    let core = bench.half.0.clone();
    let mut thread = Ends::new(&core);
    let _idle = bench.queue();
    assert!(!thread.work() && thread.keys.contains_key(&NAME));
    // Another state stays, one that is not there is none.
    core.post(CoreMessage::State(StateKey(8), transform().key()));
    bench.half.state_del(NAME);
    bench.half.state_del(StateKey(9));
    assert!(!thread.work() && thread.gone.is_empty());
    assert_eq!(thread.keys.keys().collect::<Vec<_>>(), [&StateKey(8)]);
    // A thread that sleeps is woken for it.
    let mut bench = Bench::new();
    let core = bench.half.0.clone();
    let until = Instant::now() + Duration::from_secs(20);
    while !core.signal.sleeping.load(Acquire) {
        assert!(Instant::now() < until, "it has nothing to do");
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.half.state_del(NAME);
    while core.news.load(Acquire) {
        assert!(Instant::now() < until, "nobody hears of it");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thread_that_dies_seals_nothing_and_is_noticed() {
    let mut bench = Bench::new();
    let woken = Arc::new(AtomicBool::new(false));
    let seen = woken.clone();
    let crypto = bench.half.crypto().expect("it has one");
    let mut queue = crypto.queue(Box::new(move || seen.store(true, Release))).expect("the thread lives");
    let mut broken = bench.burst(2);
    broken.slots[1].end = usize::MAX;
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    assert!(queue.submit(broken).is_ok());
    let burst = bench.burst(2);
    let late = queue.submit(burst);
    assert!(next(&mut *queue).is_none(), "no burst comes back as if it were sealed");
    std::panic::set_hook(quiet);
    drop(late);
    let burst = bench.burst(2);
    let Err(burst) = queue.submit(burst) else { panic!("nobody is there") };
    assert!(bench.end(burst).is_empty());
    assert!(woken.load(Acquire), "whoever waits is told");
    assert!(crypto.queue(Box::new(|| {})).is_none());
    // Deleting its states finds nothing left, either.
    bench.half.state_del(NAME);
    assert!(bench.half.0.inbox.lock().is_empty());
}

#[test]
fn a_core_that_is_ended_is_gone() {
    let mut bench = Bench::new();
    let mut queue = bench.queue();
    bench.stop();
    assert!(matches!(queue.poll(), Polled::Gone));
    let burst = bench.burst(1);
    assert!(queue.submit(burst).is_err());
}
