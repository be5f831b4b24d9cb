//! The data path of one network namespace: the state that its workers share, and their start.
//!
//! ```text
//! queues, rings ─▶ begin ─▶ run ─▶ end ─▶ verdicts, frames, raw sockets, TAP devices
//!                  └ lock ┘      └ lock ┘
//! ```
//!
//! Socket calls wait for the lock of the engine. It is held while a burst is judged, but not while MACs are computed or
//! packets are given to the kernel.

use super::counters::Counters;
use super::protected::Protected;
use super::tables::Sockets;
use super::worker::Worker;
use parking_lot::{Mutex, MutexGuard, RwLock};
use sealane_abi::admin::DataPath;
use sealane_abi::tcp::State;
use sealane_engine_ao::{Ends, Inbound, Namespace, Outbound, SavedConnection, SignBurst, VerifyBurst};
use sealane_net::ao::mkt::Prefix;
use sealane_sys::clock::wall_ms;
use sealane_sys::netns::Netns;
use sealane_sys::nfqueue::Queue;
use sealane_sys::nft::{Marks, Options, Table, Watch};
use sealane_sys::poll::Waker;
use sealane_sys::sock_diag::{Departures, SockDiag};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

/// The first queue number that is tried.
pub(super) const FIRST_QUEUE: u16 = 0x5ea1;

/// Finds the number of the configured peer to which a connection belongs.
pub(super) type Policy = Arc<dyn Fn(&Ends) -> Option<u32> + Send + Sync>;
/// Saves connections.
pub(super) type Keep = Box<dyn Fn(&[SavedConnection]) + Send + Sync>;

/// Settings of a data path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) data_path: DataPath,
    pub(super) workers: u16,
}

/// The part of a worker that other threads use.
pub(super) struct Post {
    pub(super) waker: Waker,
    /// Locked from the moment that segments are counted until the kernel has delivered them.
    delivering: Mutex<()>,
}

/// The state that the threads of a namespace share.
pub(super) struct Shared {
    pub(super) engine: Mutex<Namespace>,
    /// The rules; `None` when they have been removed.
    pub(super) table: Mutex<Option<Table>>,
    /// Lock order: this, then `table`, then `engine`.
    pub(super) protected: Mutex<Protected>,
    pub(super) posts: Vec<Post>,
    pub(super) stop: AtomicBool,
    /// The configuration for connections whose program set no keys.
    pub(super) policy: RwLock<Option<Policy>>,
    /// Called with the connections to save whenever they have changed.
    pub(super) keep: OnceLock<Keep>,
    /// Locked while connections are saved, so that the latest state is written last. Locked before `engine`.
    keeping: Mutex<()>,
    pub(super) counters: Counters,
    /// The start of [`Namespace::expire`]'s clock.
    start: Instant,
    /// The time of day at the start, in milliseconds since 1970.
    pub(super) start_wall_ms: i64,
}

impl Shared {
    /// The engine's clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Judges inbound packets and removes the option from authentic ones. Changed connections are saved when this
    /// returns, that is, before the segment that completes a handshake is delivered.
    pub(super) fn verify(&self, work: &mut VerifyBurst, packets: &mut [Inbound<'_>], kernel: &mut Sockets) {
        let mut dirty = false;
        let mut rest = packets;
        while !rest.is_empty() {
            let count = kernel.ask_unlocked(|kernel| self.engine.lock().begin_input(work, rest, kernel));
            let (now, later) = rest.split_at_mut(count);
            work.run(now);
            let mut engine = self.engine.lock();
            engine.end_input(work, now, kernel, self.now_ms());
            dirty |= engine.dirty();
            drop(engine);
            work.finish(now);
            rest = later;
        }
        if dirty {
            self.save();
        }
    }

    /// Judges and signs the first of `packets`, which are outbound. Returns their number; their pieces may leave then.
    pub(super) fn sign(&self, work: &mut SignBurst, packets: &mut [Outbound<'_>], kernel: &mut Sockets) -> usize {
        let now_ms = self.now_ms();
        let count = kernel.ask_unlocked(|kernel| self.engine.lock().begin_output(work, packets, kernel, now_ms));
        let now = &mut packets[..count];
        work.run(now);
        let mut engine = self.engine.lock();
        engine.end_output(work, now, kernel, now_ms);
        let dirty = engine.dirty();
        drop(engine);
        if dirty {
            self.save();
        }
        count
    }

    /// Delays answers with counters while a worker has counted segments that are not delivered yet.
    pub(super) fn delivering(&self, worker: usize) -> MutexGuard<'_, ()> {
        self.posts[worker].delivering.lock()
    }

    /// The engine, when all counted segments have been delivered. A program that sees a segment counted must also see
    /// its effect on the socket, as with the kernel's own TCP-AO.
    pub(super) fn delivered(&self) -> MutexGuard<'_, Namespace> {
        let waited: Vec<MutexGuard<'_, ()>> = self.posts.iter().map(|post| post.delivering.lock()).collect();
        let engine = self.engine.lock();
        drop(waited);
        engine
    }

    /// Saves the connections, if that is configured.
    pub(super) fn save(&self) {
        if let Some(keep) = self.keep.get() {
            let _in_turn = self.keeping.lock();
            let connections = self.engine.lock().save();
            keep(&connections);
        }
    }
}

/// Opens queues and rules in `netns` and starts the workers. `prepare` is called when the rules for `peers` are in
/// place and before the first packet is judged.
///
/// # Errors
/// The kernel's, with the object that could not be opened.
pub(super) fn start(
    netns: &Netns,
    engine: Namespace,
    peers: &[Prefix],
    wanted: Wanted,
    prepare: impl FnOnce(&Shared),
) -> io::Result<(Arc<Shared>, Vec<JoinHandle<()>>)> {
    let list: Vec<_> = peers.iter().map(|p| (p.addr, p.len)).collect();
    let (workers, shared) = netns.run(|| {
        let say = |what: &'static str| move |e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
        let count = usize::from(wanted.workers.max(1));
        let output = Queue::open_many(FIRST_QUEUE, count, true).map_err(say("a queue for packets that leave"))?;
        let first = |queues: &[Queue]| queues.first().map_or(FIRST_QUEUE, Queue::number);
        let input = Queue::open_many(first(&output) + wanted.workers.max(1), count, false)
            .map_err(say("a queue for packets that come in"))?;
        let marks = Marks::default();
        let options = Options {
            output_queue: first(&output),
            input_queue: first(&input),
            queues: wanted.workers.max(1),
            marks,
            any_option: true,
        };
        let table = Table::install(options, &list).map_err(say("nftables rules"))?;
        let watch = Watch::new(&table).map_err(say("watching over the rules"))?;
        let post = |_| Ok(Post { waker: Waker::new()?, delivering: Mutex::default() });
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            table: Mutex::new(Some(table)),
            protected: Mutex::new(Protected::new(peers.iter().copied())),
            posts: (0..count).map(post).collect::<io::Result<_>>()?,
            stop: AtomicBool::new(false),
            policy: RwLock::new(None),
            keep: OnceLock::new(),
            keeping: Mutex::default(),
            counters: Counters::new(count),
            start: Instant::now(),
            start_wall_ms: wall_ms(),
        });
        let departures = Departures::open().map_err(say("news of sockets that close"))?;
        let mut watches = Some((watch, departures));
        let make = |(index, (output, input))| {
            Worker::open(&shared, index, (output, input), marks, wanted.data_path, watches.take())
        };
        let workers: Vec<Worker> =
            output.into_iter().zip(input).enumerate().map(make).collect::<io::Result<_>>().map_err(say("sockets"))?;
        Ok((workers, shared))
    })?;
    prepare(&shared);
    let mut threads = Vec::new();
    for mut worker in workers {
        let netns = netns.try_clone()?;
        threads.push(std::thread::Builder::new().name("sealane-ao".into()).spawn(move || {
            if let Err(e) = netns.enter() {
                eprintln!("sealane: cannot enter a network namespace: {e}");
                return;
            }
            worker.run();
        })?);
    }
    Ok((shared, threads))
}

/// Stops the workers of a data path.
pub(super) fn halt(shared: &Shared, threads: Vec<JoinHandle<()>>) {
    shared.stop.store(true, Ordering::Release);
    shared.posts.iter().for_each(|post| post.waker.wake());
    for thread in threads {
        let _ = thread.join();
    }
}

/// Ends all connections. Their peers get a signed RST.
///
/// # Errors
/// The kernel's.
pub(super) fn end_connections(netns: &Netns, shared: &Shared) -> io::Result<()> {
    let ends: Vec<Ends> = shared.engine.lock().connections().map(|(ends, _)| ends).collect();
    if ends.is_empty() {
        return Ok(());
    }
    netns.run(|| {
        let mut diag = SockDiag::open()?;
        for ends in ends {
            if let Some(entry) = diag.find(ends.local, ends.remote, 0)?.filter(|e| e.state != State::Listen) {
                diag.destroy(&entry)?;
            }
        }
        Ok(())
    })
}

/// Removes the rules of the calling thread's namespace, whoever left them.
///
/// # Errors
/// The kernel's; `EPERM` while a process owns them.
pub fn clear() -> io::Result<()> {
    let (output_queue, input_queue, queues) = (FIRST_QUEUE, FIRST_QUEUE, 1);
    let options = Options { output_queue, input_queue, queues, marks: Marks::default(), any_option: false };
    Table::install(options, &[])?.delete()
}

pub(super) fn complain(what: &str, done: io::Result<()>) {
    if let Err(e) = done {
        eprintln!("sealane: TCP-AO: {what}: {e}");
    }
}
