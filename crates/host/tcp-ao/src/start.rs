//! The start and the end of the data path of one network namespace.

use super::counters::Counters;
use super::covered::Protected;
use super::kept::Store;
use super::path::{Shared, WorkerHandle};
use super::remote;
use super::state;
use super::worker::{Place, Worker};
use parking_lot::{Mutex, RwLock};
use sealane_abi::admin::DataPath;
use sealane_engine_ao::{Desk, Namespace};
use sealane_handover::{Keeper, RulesOwner};
use sealane_net_ao::mkt::Prefix;
use sealane_packets::nfqueue::{self, Claim, Queue};
use sealane_rules::ao::{Options, PeerTable};
use sealane_sys::clock::wall_ms;
use sealane_sys::life::{self, Kind};
use sealane_sys::marks::Marks;
use sealane_sys::netns::Netns;
use sealane_sys::runtime;
use sealane_sys::sock_diag::Departures;
use sealane_sys::tcp_socket;
use sealane_sys::vrf::Vrfs;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{Span, debug, error};

/// The first queue number that is tried.
pub(super) const FIRST_QUEUE: u16 = 0x5ea1;
/// The number of a queue that no rule uses: whoever has it serves TCP-AO in its network namespace.
const EXCLUSIVE: u16 = FIRST_QUEUE - 1;
/// The time for which a predecessor that has ended may still have its queues, until the kernel has released them.
pub(super) const DYING: Duration = Duration::from_secs(2);

/// The protocol of the rules whose owner is kept.
pub(super) const PROTOCOL: &str = "tcp-ao";

/// The pause before something that has failed is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// The peers that the rules cover from the beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peers<'a> {
    /// Those of the configuration or of a predecessor: for good.
    pub(super) fixed: &'a [Prefix],
    /// Those for which programs have keys: as long as they have.
    pub(super) by_keys: &'a [Prefix],
}

/// Settings of a data path.
#[derive(Clone)]
pub(super) struct PathSettings {
    pub(super) data_path: DataPath,
    pub(super) workers: u16,
    /// The time for which a process that still serves the namespace may take to end.
    pub(super) patience: Duration,
    /// The desk at which traffic keys are asked for.
    pub(super) desk: Arc<Desk>,
}

/// Makes sure that nobody else serves TCP-AO in the calling thread's namespace as long as the claim lives.
///
/// # Errors
/// `AddrInUse` when somebody still does after `patience`; otherwise the kernel's.
fn claim(patience: Duration) -> io::Result<Claim> {
    let began = Instant::now();
    loop {
        match nfqueue::claim(EXCLUSIVE) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                if began.elapsed() >= patience {
                    return Err(io::Error::new(
                        e.kind(),
                        "another sealane serves TCP-AO in this network namespace, or a program has taken its queue's number",
                    ));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            claimed => return claimed,
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
    peers: &Peers<'_>,
    wanted: PathSettings,
    owner: Option<&RulesOwner>,
    prepare: impl FnOnce(&Shared),
) -> io::Result<(Arc<Shared>, Vec<JoinHandle<()>>)> {
    let list: Vec<_> = peers.fixed.iter().chain(peers.by_keys).map(|p| (p.addr, p.len)).collect();
    let (workers, shared, marks) = netns.run(|| {
        let say = |what: &'static str| move |e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
        let claim = claim(wanted.patience)?;
        let count = usize::from(wanted.workers.max(1));
        let output = Queue::open_many(FIRST_QUEUE, count, true).map_err(say("a queue for packets that leave"))?;
        let first = |queues: &[Queue]| queues.first().map_or(FIRST_QUEUE, Queue::number);
        let input = Queue::open_many(first(&output) + wanted.workers.max(1), count, false)
            .map_err(say("a queue for packets that come in"))?;
        let strangers = Queue::open_for_strangers(first(&input) + wanted.workers.max(1))
            .map_err(say("a queue for segments of strangers"))?;
        let marks = Marks::draw();
        let newcomers = Queue::open_many(strangers.number() + 1, count, false)
            .map_err(say("a queue for segments of new connections"))?;
        let options = Options {
            output_queue: first(&output),
            input_queue: first(&input),
            newcomers_queue: first(&newcomers),
            queues: wanted.workers.max(1),
            marks,
            // Segments that others sign for the kernel's own TCP-AO are its matter, and those that nobody here knows, too.
            any_option: (!tcp_socket::kernel_has_tcp_ao().map_err(say("a question to the kernel"))?)
                .then(|| strangers.number()),
        };
        let table =
            PeerTable::install(options, &list, owner.and_then(RulesOwner::take)).map_err(say("nftables rules"))?;
        if let Some(owner) = owner {
            owner.keep(table.as_fd());
        }
        let watch = table.watch().map_err(say("watching over the rules"))?;
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            desk: wanted.desk.clone(),
            table: Mutex::new(Some(table)),
            protected: Mutex::new(Protected::new(peers.fixed, peers.by_keys)),
            posts: (0..count).map(|_| WorkerHandle::new()).collect::<io::Result<_>>()?,
            stop: AtomicBool::new(false),
            peer_lookup: RwLock::new(None),
            keep: OnceLock::new(),
            keeping: Mutex::default(),
            kept: OnceLock::new(),
            counters: Counters::new(count),
            vrfs: Arc::new(Mutex::new(Vrfs::open().map_err(say("news of VRFs"))?)),
            wanted_vrfs: Mutex::default(),
            not_known: AtomicBool::new(false),
            _claim: claim,
            start: Instant::now(),
            start_wall_ms: wall_ms(),
        });
        let departures = Departures::open().map_err(say("news of sockets that close"))?;
        let mut duties = Some((watch, departures, strangers));
        let make = |(index, ((output, input), newcomers))| {
            Worker::open(&shared, index, [output, input, newcomers], marks, wanted.data_path, duties.take())
        };
        let queues = output.into_iter().zip(input).zip(newcomers).enumerate();
        let workers: Vec<Worker> = queues.map(make).collect::<io::Result<_>>().map_err(say("sockets"))?;
        Ok((workers, shared, marks))
    })?;
    prepare(&shared);
    shared.know_open_connections();
    let mut threads = Vec::new();
    let alone = workers.len() == 1;
    for worker in workers {
        let (netns, context) = (netns.try_clone()?, Span::current());
        let shared = shared.clone();
        let place = if alone { worker.place(marks, wanted.data_path) } else { None };
        threads.push(std::thread::Builder::new().name("sealane-ao".into()).spawn(move || {
            let _context = context.entered();
            let _alive = life::begin("sealane-ao", Kind::Data);
            while let Err(e) = netns.enter() {
                error!(error = %e, "cannot enter a network namespace: {e}");
                std::thread::sleep(PAUSE);
            }
            debug!("TCP-AO: a worker has started");
            run(worker, place, &shared);
            debug!("TCP-AO: a worker has ended");
        })?);
    }
    Ok((shared, threads))
}

/// Runs a worker, and another one in its place whenever it fails. Where there are several, the first one that fails ends
/// its thread: the panic has told the daemon, which starts everything again.
fn run(worker: Worker, place: Option<Place>, shared: &Shared) {
    let mut worker = Some(worker);
    while !shared.stop.load(Ordering::Acquire) {
        if let Some(mut now) = worker.take() {
            let is_done = catch_unwind(AssertUnwindSafe(|| now.run())).is_ok();
            // It closes the devices of its fast path, for which the kernel may take seconds.
            let waiting = life::wait();
            drop(now);
            drop(waiting);
            if is_done {
                return;
            }
        }
        let Some(place) = &place else { return };
        shared.counters.restarts.fetch_add(1, Ordering::Relaxed);
        error!("TCP-AO: a worker has failed: another one takes its place");
        match Worker::reopen(place) {
            Ok(another) => worker = Some(another),
            Err(e) => {
                error!(error = %e, "TCP-AO: another worker: {e}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Stops the workers of a data path.
pub(super) fn stop_workers(shared: &Shared, threads: Vec<JoinHandle<()>>) {
    shared.stop.store(true, Ordering::Release);
    shared.posts.iter().for_each(|post| post.waker.wake());
    for thread in threads {
        let _ = thread.join();
    }
}

/// Removes the rules of the calling thread's namespace, whoever left them. `folder` is the daemon's runtime folder.
///
/// # Errors
/// The kernel's; `AddrInUse` while an instance runs.
pub fn clear(folder: &Path) -> io::Result<()> {
    // As long as we have it, no instance starts.
    let _claim = claim(DYING)?;
    let [output_queue, input_queue, newcomers_queue] = [FIRST_QUEUE; 3];
    let options =
        Options { output_queue, input_queue, newcomers_queue, queues: 1, marks: Marks::draw(), any_option: None };
    let keeper = Arc::new(Keeper::of_folder(folder));
    let netns = Netns::current()?;
    let cookie = netns.cookie()?;
    let owner = RulesOwner::new(keeper.clone(), PROTOCOL, cookie);
    PeerTable::install(options, &[], owner.take())?.delete()?;
    owner.release();
    runtime::remove(&state::path(folder, netns.id()?.inode()))?;
    remote::forget(folder, cookie);
    Store::new(keeper, cookie).clear()
}
