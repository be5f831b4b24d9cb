//! The crypto offload core: a thread that seals and opens bursts for the workers of the stack.
//!
//! ```text
//!  worker ══ ring ══▶ the core's thread: keys by StateKey, one burst of crypto at a time ══ ring ══▶ worker
//! ```
//!
//! A worker has a queue of its own: two rings of one producer and one consumer each ([`ring`]). The thread has its own
//! copies of the keys and nothing else: numbers, windows, headers and policies are the stack's. Without work it spins
//! for a moment and then sleeps; both ends wake each other only when they sleep.
//!
//! The key of a deleted state stays for bursts that were submitted before: their packets have numbers and may leave.
//! Each burst carries the count of states that had been deleted by then, so that later bursts do not find the key.
//! Nobody waits for that; the key is wiped when the last burst from before is done, even if no other follows.

mod ring;
mod signal;

use super::running::{DEDICATED_SPIN, DeviceContext, Running};
use parking_lot::Mutex;
use ring::{DeviceEnd, Ring};
use sealane_abi::admin::ipsec::{self, DeviceKind};
use sealane_engine_xfrm::device::crypto::{Crypto, CryptoBurst, Queue};
use sealane_engine_xfrm::device::{Caps, Device, Mode, OffloadRequest, Refusal, StateKey};
use sealane_net_ipsec::burst::SaKey;
use sealane_packets::tun::Tun;
use sealane_sys::cpu::{has_others, stay_on};
use sealane_sys::life::{self, Kind};
use signal::{CryptoCounters, Signal};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time that the thread spins before it sleeps: less than sleeping and waking cost both sides.
const SPIN: Duration = Duration::from_micros(30);

/// A message to the thread.
enum CoreMessage {
    /// There is another queue.
    Queue(DeviceEnd),
    /// There is another state.
    State(StateKey, SaKey),
    /// A state is given back, as the nth one.
    Gone(StateKey, u64),
}

/// The part that the thread and its users share.
pub(super) struct Core {
    /// Messages that the thread has not read yet.
    inbox: Mutex<Vec<CoreMessage>>,
    news: AtomicBool,
    stop: AtomicBool,
    alive: AtomicBool,
    /// The time that it looks for work before it sleeps.
    spin: Duration,
    /// The part that the workers' ends of queues use.
    signal: Arc<Signal>,
}

impl Core {
    /// Makes a device without a thread yet, which is pinned to `cpu` if given.
    fn new(cpu: Option<u32>, counters: Arc<CryptoCounters>) -> Arc<Self> {
        Arc::new(Core {
            inbox: Mutex::default(),
            news: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            alive: AtomicBool::new(true),
            // If the stack's worker has no other CPU, spinning would keep it from its work.
            spin: match cpu {
                _ if !has_others(cpu) => Duration::ZERO,
                Some(_) => DEDICATED_SPIN,
                None => SPIN,
            },
            signal: Arc::new(Signal::new(counters)),
        })
    }

    /// Starts a thread of this name, pinned to `cpu` if given.
    ///
    /// # Errors
    /// The kernel's.
    fn start(name: &str, cpu: Option<u32>, counters: Arc<CryptoCounters>) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let core = Core::new(cpu, counters);
        let (there, (tell, told)) = (core.clone(), std::sync::mpsc::sync_channel(1));
        let called = name.to_owned();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let pinned = cpu.map_or(Ok(()), stay_on);
            let fine = pinned.is_ok();
            let _ = tell.send(pinned);
            if fine {
                let _alive = life::begin(&called, Kind::Data);
                there.run();
            }
        })?;
        let _ = core.signal.thread.set(thread.thread().clone());
        match told.recv() {
            Ok(Ok(())) => Ok((core, thread)),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(io::Error::other("the thread ended")),
        }
    }

    /// Leaves a message for the thread, without waking it. Returns whether it lives.
    fn post(&self, what: CoreMessage) -> bool {
        let mut inbox = self.inbox.lock();
        // The thread clears `alive` before it locks the inbox for the last time.
        let alive = self.alive.load(Acquire);
        if alive {
            inbox.push(what);
            self.news.store(true, Release);
        }
        alive
    }

    fn end(&self) {
        self.stop.store(true, Release);
        self.signal.wake_always();
    }

    fn run(&self) {
        let mut ends = Ends::new(self);
        while !self.stop.load(Acquire) {
            life::beat();
            if ends.work() {
                continue;
            }
            let from = Instant::now();
            let mut worked = false;
            while !worked && from.elapsed() < self.spin && !self.stop.load(Relaxed) {
                (0..64).for_each(|_| core::hint::spin_loop());
                // Lets another thread have this CPU.
                std::thread::yield_now();
                worked = ends.work();
            }
            if worked {
                continue;
            }
            self.signal.sleeping.store(true, Relaxed);
            fence(SeqCst);
            if ends.is_idle() && !self.stop.load(Acquire) {
                let _wait = life::wait();
                std::thread::park();
            }
            self.signal.sleeping.store(false, Relaxed);
        }
    }
}

/// A state's key.
struct HeldKey {
    key: SaKey,
    /// The number of its deletion, once it is deleted.
    gone: Option<u64>,
}

/// The thread's ends of the queues, and the keys. Waiting workers are woken when it is dropped.
struct Ends<'c> {
    core: &'c Core,
    list: Vec<DeviceEnd>,
    keys: HashMap<StateKey, HeldKey>,
    /// Deleted states and the numbers of their deletions, as long as there are bursts from before.
    gone: Vec<(StateKey, u64)>,
}

impl<'c> Ends<'c> {
    fn new(core: &'c Core) -> Self {
        Ends { core, list: Vec::new(), keys: HashMap::new(), gone: Vec::new() }
    }

    /// Reads the inbox.
    fn read_inbox(&mut self) {
        // The flag is written only when there are messages: submitting workers read the same cache line.
        if !self.core.news.load(Acquire) {
            return;
        }
        let mut inbox = self.core.inbox.lock();
        self.core.news.store(false, Relaxed);
        for news in inbox.drain(..) {
            match news {
                CoreMessage::Queue(end) => self.list.push(end),
                CoreMessage::State(name, key) => {
                    self.keys.insert(name, HeldKey { key, gone: None });
                }
                CoreMessage::Gone(name, nth) => {
                    if let Some(held) = self.keys.get_mut(&name) {
                        held.gone = Some(nth);
                        self.gone.push((name, nth));
                    }
                }
            }
        }
    }

    /// Computes a burst of each queue. Returns whether there was any.
    fn work(&mut self) -> bool {
        self.read_inbox();
        let mut any = false;
        for at in 0..self.list.len() {
            if let Some((given_back, mut burst)) = self.list[at].take() {
                any = true;
                // Messages about its states came before it was submitted.
                self.read_inbox();
                self.compute(given_back, &mut burst);
                self.list[at].give(burst);
            }
        }
        self.forget();
        any
    }

    /// Finds the key of a state for a burst that was submitted after so many deletions.
    fn key(&self, name: StateKey, given_back: u64) -> Option<&SaKey> {
        self.keys.get(&name).filter(|held| held.gone.is_none_or(|nth| given_back < nth)).map(|held| &held.key)
    }

    fn compute(&self, given_back: u64, burst: &mut CryptoBurst) {
        let from = Instant::now();
        burst.run(|name| self.key(name, given_back));
        let missing = burst.keys.iter().flatten().filter(|name| self.key(**name, given_back).is_none()).count();
        let mine = burst.jobs.iter().zip(&burst.keys).filter(|(_, key)| key.is_some());
        let (mut packets, mut bytes) = (0, 0);
        for (job, _) in mine {
            let slot = &burst.slots[job.packet()];
            (packets, bytes) = (packets + 1, bytes + (slot.end - slot.start) as u64);
        }
        let counters = &self.core.signal.counters;
        counters.no_key.fetch_add(missing as u64, Relaxed);
        counters.bursts.fetch_add(1, Relaxed);
        counters.packets.fetch_add(packets, Relaxed);
        counters.bytes.fetch_add(bytes, Relaxed);
        counters.busy_ns.fetch_add(from.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Wipes the keys of states that were deleted before any burst still in a queue was submitted.
    fn forget(&mut self) {
        let Ends { list, keys, gone, .. } = self;
        if !gone.is_empty() {
            // A deletion is read only after earlier bursts can be seen in the rings.
            let oldest = list.iter().filter_map(DeviceEnd::next).min().unwrap_or(u64::MAX);
            for (name, _) in gone.extract_if(.., |(_, nth)| *nth <= oldest) {
                keys.remove(&name);
            }
        }
    }

    /// Whether there is no work, now that submitting workers know that they have to wake the thread. Queues of workers
    /// that have ended are dropped.
    fn is_idle(&mut self) -> bool {
        self.list.retain(|end| !end.is_over());
        self.list.iter().all(|end| end.next().is_none()) && !self.core.news.load(Acquire)
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.core.alive.store(false, Release);
        let news = core::mem::take(&mut *self.core.inbox.lock());
        let unseen =
            news.into_iter().filter_map(|news| if let CoreMessage::Queue(end) = news { Some(end) } else { None });
        self.list.drain(..).chain(unseen).for_each(DeviceEnd::leave);
    }
}

/// Queues for workers.
struct Queues(Arc<Core>);

impl Crypto for Queues {
    fn queue(&self, wake: Box<dyn Fn() + Send>) -> Option<Box<dyn Queue>> {
        let (ring, end) = Ring::new(self.0.signal.clone(), wake);
        self.0.post(CoreMessage::Queue(end)).then(|| Box::new(ring) as Box<dyn Queue>)
    }
}

/// The engine's half.
struct CryptoOps(Arc<Core>);

impl Device for CryptoOps {
    fn caps(&self) -> Caps {
        Caps { states: true, esn: true, policies: false }
    }

    fn state_add(&mut self, state: OffloadRequest<'_>) -> Result<(), Refusal> {
        let Some(spec) = state.spec.filter(|_| state.mode == Mode::Crypto) else { return Err(Refusal::CRYPTO_ONLY) };
        // If the thread has died, packets are dropped.
        self.0.post(CoreMessage::State(state.key, spec.transform.key()));
        Ok(())
    }

    fn state_del(&mut self, key: StateKey) {
        let before = self.0.signal.given_back.fetch_add(1, Relaxed);
        self.0.post(CoreMessage::Gone(key, before + 1));
        self.0.signal.wake();
    }

    fn crypto(&self) -> Option<Arc<dyn Crypto>> {
        Some(Arc::new(Queues(self.0.clone())))
    }
}

/// The device: its interface, and the core as long as that is up. Packets routed to the interface are dropped.
pub(super) struct CryptoCore {
    name: String,
    tun: Tun,
    cpu: Option<u32>,
    counters: Arc<CryptoCounters>,
    running: Option<(Arc<Core>, JoinHandle<()>)>,
}

impl CryptoCore {
    /// Makes the interface.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(name: &str, cpu: Option<u32>, place: &DeviceContext<'_>) -> io::Result<Self> {
        let tun = place.netns.run(|| Tun::open(name))?;
        Ok(CryptoCore { name: name.to_owned(), tun, cpu, counters: Arc::default(), running: None })
    }
}

impl Running for CryptoCore {
    fn ifindex(&self) -> u32 {
        self.tun.index()
    }

    fn up(&mut self) -> io::Result<Box<dyn Device>> {
        self.down();
        let (core, thread) = Core::start(&self.name, self.cpu, self.counters.clone())?;
        self.running = Some((core.clone(), thread));
        Ok(Box::new(CryptoOps(core)))
    }

    fn down(&mut self) {
        if let Some((core, thread)) = self.running.take() {
            core.end();
            let _ = thread.join();
        }
    }

    fn status(&self) -> DeviceKind {
        let CryptoCounters { bursts, packets, bytes, busy_ns, no_key, full } = &*self.counters;
        let value = |counter: &AtomicU64| counter.load(Relaxed);
        DeviceKind::Crypto(ipsec::CryptoOffload {
            bursts: value(bursts),
            packets: value(packets),
            bytes: value(bytes),
            busy_ns: value(busy_ns),
            no_key: value(no_key),
            full: value(full),
        })
    }
}

impl Drop for CryptoCore {
    fn drop(&mut self) {
        self.down();
    }
}

#[cfg(test)]
mod tests;
