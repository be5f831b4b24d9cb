//! The data path of one network namespace: what its workers share, and how they are started.
//!
//! ```text
//! queues, rings ─▶ begin ─▶ run ─▶ end ─▶ verdicts, frames, raw sockets, TAP devices
//!                  └ lock ┘      └ lock ┘
//! ```
//!
//! Whoever calls about a socket waits for the lock of the engine. It is held while a burst is judged, not while MACs are
//! computed and packets given to the kernel.

use super::counters::Counters;
use super::protected::Protected;
use super::worker::Worker;
use parking_lot::{Mutex, MutexGuard, RwLock};
use sealane_abi::admin::DataPath;
use sealane_abi::tcp::State;
use sealane_engine_ao::{Ends, Inbound, Kernel, Namespace, Outbound, SavedConnection, SignBurst, VerifyBurst};
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

/// The first queue that we try to get.
pub(super) const FIRST_QUEUE: u16 = 0x5ea1;

/// The number of the configured peer that a connection belongs to.
pub(super) type Policy = Arc<dyn Fn(&Ends) -> Option<u32> + Send + Sync>;
/// Keeps connections.
pub(super) type Keep = Box<dyn Fn(&[SavedConnection]) + Send + Sync>;

/// How segments travel, and how many threads move them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) data_path: DataPath,
    pub(super) workers: u16,
}

/// What others have to do with one worker.
pub(super) struct Post {
    pub(super) waker: Waker,
    /// Held from when segments are counted until the kernel has delivered them.
    delivering: Mutex<()>,
}

/// What the threads of a namespace share.
pub(super) struct Shared {
    pub(super) engine: Mutex<Namespace>,
    /// `None` when it has been taken away.
    pub(super) table: Mutex<Option<Table>>,
    /// Locked before `table`, and that before `engine`.
    pub(super) protected: Mutex<Protected>,
    pub(super) posts: Vec<Post>,
    pub(super) stop: AtomicBool,
    /// What a configuration says of connections whose program set no keys.
    pub(super) policy: RwLock<Option<Policy>>,
    /// Called with the connections that have to survive us, whenever there are others.
    pub(super) keep: OnceLock<Keep>,
    /// Held while connections are kept, so that the last ones are. Locked before `engine`.
    keeping: Mutex<()>,
    pub(super) counters: Counters,
    /// Milliseconds of [`Namespace::expire`]'s clock count from here.
    start: Instant,
    /// The time of day then, in milliseconds since 1970.
    pub(super) start_wall_ms: i64,
}

impl Shared {
    /// The engine's clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Judges packets that came in and takes the option off those that are authentic. What must survive us is kept when it
    /// returns, before the segment that completes a handshake is delivered.
    pub(super) fn verify(&self, work: &mut VerifyBurst, packets: &mut [Inbound<'_>], kernel: &mut dyn Kernel) {
        let mut dirty = false;
        let mut rest = packets;
        while !rest.is_empty() {
            let count = self.engine.lock().begin_input(work, rest, kernel);
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

    /// Judges the first of `packets` that leave, and signs them. Returns how many; their pieces may leave then.
    pub(super) fn sign(&self, work: &mut SignBurst, packets: &mut [Outbound<'_>], kernel: &mut dyn Kernel) -> usize {
        let now_ms = self.now_ms();
        let count = self.engine.lock().begin_output(work, packets, kernel, now_ms);
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

    /// Holds back answers about counters while a worker's segments are counted and not yet delivered.
    pub(super) fn delivering(&self, worker: usize) -> MutexGuard<'_, ()> {
        self.posts[worker].delivering.lock()
    }

    /// The engine, for an answer that shows what segments did: who sees that one was counted sees what it did to its socket, as
    /// with the kernel's own.
    pub(super) fn delivered(&self) -> MutexGuard<'_, Namespace> {
        let waited: Vec<MutexGuard<'_, ()>> = self.posts.iter().map(|post| post.delivering.lock()).collect();
        let engine = self.engine.lock();
        drop(waited);
        engine
    }

    /// Keeps the connections, if somebody keeps them.
    pub(super) fn save(&self) {
        if let Some(keep) = self.keep.get() {
            let _in_turn = self.keeping.lock();
            let connections = self.engine.lock().save();
            keep(&connections);
        }
    }
}

/// Opens queues and rules in `netns` and starts the threads that serve them. `prepare` is called when the rules for `peers`
/// stand and before a packet is looked at.
///
/// # Errors
/// The kernel's, with what could not be made.
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

/// Ends the threads of a data path.
pub(super) fn halt(shared: &Shared, threads: Vec<JoinHandle<()>>) {
    shared.stop.store(true, Ordering::Release);
    shared.posts.iter().for_each(|post| post.waker.wake());
    for thread in threads {
        let _ = thread.join();
    }
}

/// Ends the connections that are still there, so that nobody sends for them any more: their peers get a signed RST.
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

/// Takes the rules of the calling thread's namespace away, whoever left them.
///
/// # Errors
/// The kernel's; `EPERM` while somebody owns them.
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
