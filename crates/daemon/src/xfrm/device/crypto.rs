//! The crypto core: a thread that seals and opens bursts for the workers of the stack (crypto offload).
//!
//! ```text
//!  worker ══ ring ══▶ the core's thread: keys by StateKey, one burst of crypto at a time ══ ring ══▶ worker
//! ```
//!
//! A worker has a queue of its own, two rings of one producer and one consumer each ([`ring`]). The thread has nothing but keys,
//! its own copies of them: numbers, windows, headers and policies are the stack's. It spins for a moment when there is nothing,
//! and sleeps then; both ends wake each other only when they sleep.
//!
//! The keys are locked while a burst is computed. So a state that is given back is used by nobody once its key is out of the
//! map; what was begun under it before is computed first, because sealed packets with numbers may well leave.

mod ring;

use super::{Place, Running};
use crate::transport::cpu::{has_others, stay_on};
use crate::transport::tun::Tun;
use parking_lot::Mutex;
use ring::{End, Line, Ring};
use sealane_engine::xfrm::device::crypto::{Crypto, CryptoBurst, Queue};
use sealane_engine::xfrm::device::{Caps, Device, Mode, Offered, Refusal, StateKey};
use sealane_net::ipsec::burst::Key;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long it is looked for work before the thread sleeps: less than what sleeping and waking cost both sides.
const SPIN: Duration = Duration::from_micros(30);
/// How long a state that is given back waits for what is in flight.
const DRAIN: Duration = Duration::from_secs(1);

/// What a core has counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    bursts: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Time of the thread, waiting aside.
    busy_ns: AtomicU64,
    /// Jobs whose state had been given back.
    no_key: AtomicU64,
    /// Bursts of workers that had to wait.
    full: AtomicU64,
}

/// What the thread and its users share.
pub(super) struct Core {
    keys: Mutex<HashMap<StateKey, Key>>,
    /// Queues that the thread has not seen yet.
    inbox: Mutex<Vec<End>>,
    news: AtomicBool,
    /// What is in flight, by queue.
    lines: Mutex<Vec<Arc<Line>>>,
    thread: OnceLock<Thread>,
    sleeping: AtomicBool,
    stop: AtomicBool,
    alive: AtomicBool,
    /// How long it is looked for work.
    spin: Duration,
    counters: Arc<Counters>,
}

impl Core {
    /// Starts a thread of this name, kept on `cpu` if told.
    ///
    /// # Errors
    /// The kernel's.
    fn start(name: &str, cpu: Option<u32>, counters: Arc<Counters>) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let core = Arc::new(Core {
            keys: Mutex::default(),
            inbox: Mutex::default(),
            news: AtomicBool::new(false),
            lines: Mutex::default(),
            thread: OnceLock::new(),
            sleeping: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            alive: AtomicBool::new(true),
            // Where the stack's thread has no other CPU whoever spins keeps it from its work.
            spin: match cpu {
                _ if !has_others(cpu) => Duration::ZERO,
                Some(_) => super::DEDICATED_SPIN,
                None => SPIN,
            },
            counters,
        });
        let (there, (tell, told)) = (core.clone(), std::sync::mpsc::sync_channel(1));
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let pinned = cpu.map_or(Ok(()), stay_on);
            let fine = pinned.is_ok();
            let _ = tell.send(pinned);
            if fine {
                there.run();
            }
        })?;
        let _ = core.thread.set(thread.thread().clone());
        match told.recv() {
            Ok(Ok(())) => Ok((core, thread)),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(io::Error::other("the thread ended")),
        }
    }

    /// Wakes the thread where it sleeps.
    fn wake(&self) {
        // What was submitted is seen by a thread that is about to sleep, or that it sleeps is seen here.
        fence(SeqCst);
        if self.sleeping.load(Relaxed) && self.sleeping.swap(false, AcqRel) {
            self.thread.get().inspect(|thread| thread.unpark());
        }
    }

    fn end(&self) {
        self.stop.store(true, Release);
        self.sleeping.store(false, Release);
        self.thread.get().inspect(|thread| thread.unpark());
    }

    fn run(&self) {
        let mut ends = Ends { core: self, list: Vec::new() };
        while !self.stop.load(Acquire) {
            if ends.work() {
                continue;
            }
            let from = Instant::now();
            let mut worked = false;
            while !worked && from.elapsed() < self.spin && !self.stop.load(Relaxed) {
                (0..64).for_each(|_| core::hint::spin_loop());
                // To a thread that wants this CPU.
                std::thread::yield_now();
                worked = ends.work();
            }
            if worked {
                continue;
            }
            self.sleeping.store(true, Relaxed);
            fence(SeqCst);
            if ends.is_idle() && !self.stop.load(Acquire) {
                std::thread::park();
            }
            self.sleeping.store(false, Relaxed);
        }
    }

    fn compute(&self, burst: &mut CryptoBurst) {
        let from = Instant::now();
        {
            let keys = self.keys.lock();
            burst.run(|name| keys.get(&name));
            let missing = |name: &&StateKey| !keys.contains_key(name);
            let missing = burst.keys.iter().flatten().filter(missing).count() as u64;
            self.counters.no_key.fetch_add(missing, Relaxed);
        }
        let mine = burst.jobs.iter().zip(&burst.keys).filter(|(_, key)| key.is_some());
        let (mut packets, mut bytes) = (0, 0);
        for (job, _) in mine {
            let slot = &burst.slots[job.packet()];
            (packets, bytes) = (packets + 1, bytes + (slot.end - slot.start) as u64);
        }
        self.counters.bursts.fetch_add(1, Relaxed);
        self.counters.packets.fetch_add(packets, Relaxed);
        self.counters.bytes.fetch_add(bytes, Relaxed);
        self.counters.busy_ns.fetch_add(from.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Waits until what has been submitted by now is computed.
    fn drain(&self) {
        let lines: Vec<(Arc<Line>, u64)> = self.lines.lock().iter().map(|l| (l.clone(), l.submitted())).collect();
        let until = Instant::now() + DRAIN;
        for (line, submitted) in lines {
            while line.done() < submitted && !line.is_over() && self.alive.load(Acquire) && Instant::now() < until {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }
}

/// The thread's ends of the queues. Whoever waits for them is woken when they go.
struct Ends<'c> {
    core: &'c Core,
    list: Vec<End>,
}

impl Ends<'_> {
    /// Computes a burst of each queue; whether there was any.
    fn work(&mut self) -> bool {
        if self.core.news.swap(false, AcqRel) {
            self.list.append(&mut self.core.inbox.lock());
        }
        let mut any = false;
        for end in &mut self.list {
            if let Some(mut burst) = end.take() {
                any = true;
                self.core.compute(&mut burst);
                end.give(burst);
            }
        }
        any
    }

    /// Whether there is nothing, now that those who submit know that they have to wake. Queues of workers that have gone are
    /// forgotten.
    fn is_idle(&mut self) -> bool {
        self.list.retain(|end| !end.is_over());
        self.core.lines.lock().retain(|line| !line.is_over());
        self.list.iter().all(|end| end.is_empty()) && !self.core.news.load(Acquire)
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.core.alive.store(false, Release);
        self.list.append(&mut self.core.inbox.lock());
        self.list.drain(..).for_each(End::leave);
    }
}

/// Queues for workers.
struct Queues(Arc<Core>);

impl Crypto for Queues {
    fn queue(&self, wake: Box<dyn Fn() + Send>) -> Option<Box<dyn Queue>> {
        let (ring, end, line) = Ring::new(self.0.clone(), wake);
        let mut inbox = self.0.inbox.lock();
        // It is asked under the lock that whoever empties the inbox for the last time takes after it has said so.
        if !self.0.alive.load(Acquire) {
            return None;
        }
        inbox.push(end);
        drop(inbox);
        self.0.lines.lock().push(line);
        self.0.news.store(true, Release);
        self.0.wake();
        Some(Box::new(ring))
    }
}

/// The engine's half.
struct Half(Arc<Core>);

impl Device for Half {
    fn caps(&self) -> Caps {
        Caps { states: true, esn: true, policies: false }
    }

    fn state_add(&mut self, state: Offered<'_>) -> Result<(), Refusal> {
        let Some(spec) = state.spec.filter(|_| state.mode == Mode::Crypto) else { return Err(Refusal::CRYPTO_ONLY) };
        self.0.keys.lock().insert(state.key, spec.transform.key());
        Ok(())
    }

    fn state_del(&mut self, key: StateKey) {
        self.0.drain();
        self.0.keys.lock().remove(&key);
    }

    fn crypto(&self) -> Option<Arc<dyn Crypto>> {
        Some(Arc::new(Queues(self.0.clone())))
    }
}

/// The device: its interface, and the core as long as that is up. What somebody routes to the interface goes nowhere.
pub(super) struct CryptoCore {
    name: String,
    tun: Tun,
    cpu: Option<u32>,
    counters: Arc<Counters>,
    running: Option<(Arc<Core>, JoinHandle<()>)>,
}

impl CryptoCore {
    /// Makes the interface.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(name: &str, cpu: Option<u32>, place: &Place<'_>) -> io::Result<Self> {
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
        Ok(Box::new(Half(core)))
    }

    fn down(&mut self) {
        if let Some((core, thread)) = self.running.take() {
            core.end();
            let _ = thread.join();
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counters { bursts, packets, bytes, busy_ns, no_key, full } = &*self.counters;
        let all = [
            ("bursts", bursts),
            ("packets", packets),
            ("bytes", bytes),
            ("busy_ns", busy_ns),
            ("no_key", no_key),
            ("full", full),
        ];
        all.map(|(name, count)| (name, count.load(Relaxed))).into()
    }
}

impl Drop for CryptoCore {
    fn drop(&mut self) {
        self.down();
    }
}

#[cfg(test)]
mod tests;
