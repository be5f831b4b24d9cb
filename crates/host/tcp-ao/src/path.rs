//! The data path of one network namespace: the state that its workers share.
//!
//! ```text
//! queues, rings ─▶ begin ─▶ run ─▶ end ─▶ verdicts, frames, raw sockets, TAP devices
//!                  └ lock ┘      └ lock ┘
//! ```
//!
//! Socket calls wait for the lock of the engine. It is held while a burst is judged, but not while MACs are computed or
//! packets are given to the kernel.

use super::counters::Counters;
use super::covered::Protected;
use super::kept::KeptSockets;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use sealane_abi::tcp::State;
use sealane_engine_ao::{Desk, Ends, Namespace, SavedConnection, SocketId};
use sealane_packets::nfqueue::Claim;
use sealane_rules::ao::{Connection, PeerTable};
use sealane_sys::poll::{Waits, Waker};
use sealane_sys::sock_diag::{Entry, SockDiag};
use sealane_sys::transient;
use sealane_sys::vrf::Vrfs;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tracing::{info, warn};

/// Finds the number of the configured peer to which a connection belongs.
pub(super) type PeerLookup = Arc<dyn Fn(&Ends) -> Option<u32> + Send + Sync>;
/// Saves connections.
pub(super) type SaveConnections = Box<dyn Fn(&[SavedConnection]) + Send + Sync>;

/// The tokens of what a worker waits for.
pub(super) mod token {
    use core::ops::RangeInclusive;

    pub(in super::super) const WAKER: u32 = 0;
    /// The rules have changed.
    pub(in super::super) const CHANGED: u32 = 1;
    /// Sockets were closed.
    pub(in super::super) const DEPARTED: u32 = 2;
    pub(in super::super) const OUTPUT: u32 = 3;
    pub(in super::super) const INPUT: u32 = 4;
    pub(in super::super) const NEWCOMERS: u32 = 5;
    pub(in super::super) const STRANGERS: u32 = 6;
    /// The rings of all devices.
    pub(in super::super) const RINGS: u32 = 7;
    /// All segments.
    pub(in super::super) const SEGMENTS: RangeInclusive<u32> = OUTPUT..=RINGS;
}

/// The part of a worker that other threads use.
pub(super) struct WorkerHandle {
    pub(super) waker: Waker,
    /// The descriptors that the worker waits for, by [`token`].
    pub(super) waits: Waits,
    /// Whether the worker has no segments in hand. It is cleared before it reads any.
    pub(super) idle: AtomicBool,
    /// Locked from the moment that segments are counted until the kernel has delivered them.
    pub(super) delivering: Mutex<()>,
    /// The number of segments that it has judged.
    pub(super) judged: AtomicU64,
    pub(super) looks: Looks,
}

impl WorkerHandle {
    pub(super) fn new() -> io::Result<Self> {
        let (waker, waits) = (Waker::new()?, Waits::new()?);
        waits.add(waker.as_fd(), token::WAKER)?;
        Ok(WorkerHandle {
            waker,
            waits,
            idle: AtomicBool::new(false),
            delivering: Mutex::default(),
            judged: AtomicU64::new(0),
            looks: Looks::default(),
        })
    }

    /// Whether no segments wait for the worker, and it has none in hand.
    pub(super) fn has_nothing(&self) -> bool {
        // In this order: what it has taken from a queue before that was found empty, it still has in hand, or is done with.
        !self.waits.ready_now().has_any(token::SEGMENTS) && self.idle.load(Ordering::SeqCst)
    }

    /// Has the worker look for segments. Returns the number of that look.
    pub(super) fn ask(&self) -> u64 {
        let look = self.looks.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.waker.wake();
        look
    }
}

/// The times that a worker was asked to look for segments.
#[derive(Default)]
pub(super) struct Looks {
    asked: AtomicU64,
    done: Mutex<u64>,
    changed: Condvar,
}

impl Looks {
    /// The number of the last look that was asked for, unless it is done.
    pub(super) fn open(&self) -> Option<u64> {
        let asked = self.asked.load(Ordering::Acquire);
        (asked != *self.done.lock()).then_some(asked)
    }

    /// A look is over: nothing was left, or more came than one look takes.
    pub(super) fn done(&self, look: u64) {
        *self.done.lock() = look;
        self.changed.notify_all();
    }

    /// Waits until a look is done; `false` if that takes too long.
    pub(super) fn wait(&self, look: u64, until: Instant) -> bool {
        let mut done = self.done.lock();
        while *done < look {
            if self.changed.wait_until(&mut done, until).timed_out() {
                return *done >= look;
            }
        }
        true
    }
}

/// The state that the threads of a namespace share.
pub(super) struct Shared {
    pub(super) engine: Mutex<Namespace>,
    /// The desk at which traffic keys are asked for whose master keys are elsewhere: never with a lock.
    pub(super) desk: Arc<Desk>,
    /// The rules; `None` when they have been removed.
    pub(super) table: Mutex<Option<PeerTable>>,
    /// Lock order: this, then `table`, then `engine`.
    pub(super) protected: Mutex<Protected>,
    pub(super) posts: Vec<WorkerHandle>,
    pub(super) stop: AtomicBool,
    /// The configuration for connections whose program set no keys.
    pub(super) peer_lookup: RwLock<Option<PeerLookup>>,
    /// Called with the connections to save whenever they have changed.
    pub(super) keep: OnceLock<SaveConnections>,
    /// Locked while connections are saved, so that the latest state is written last. Locked before `engine`.
    pub(super) keeping: Mutex<()>,
    /// Keeps the sockets of programs for the next daemon, where programs are served by a daemon. Locked before `engine`.
    pub(super) kept: OnceLock<Mutex<KeptSockets>>,
    pub(super) counters: Counters,
    /// The VRFs. Whoever has this lock takes no other one.
    pub(super) vrfs: Arc<Mutex<Vrfs>>,
    /// The VRFs that peers of the configuration are in, and whether it has been told that they are not there.
    pub(super) wanted_vrfs: Mutex<BTreeMap<String, bool>>,
    /// Whether known connections could not be written to the rules a while ago.
    pub(super) not_known: AtomicBool,
    /// Nobody else serves TCP-AO in this namespace.
    pub(super) _claim: Claim,
    /// The start of [`Namespace::expire`]'s clock.
    pub(super) start: Instant,
    /// The time of day at the start, in milliseconds since 1970.
    pub(super) start_wall_ms: i64,
}

/// A connection as the rules know it: with the addresses of its segments.
fn connection(ends: &Ends) -> Connection {
    let [remote, local] = [ends.remote, ends.local].map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
    Connection { remote, local }
}

/// The ends by which [`Shared::ends_of`] may know a connection: those of a socket that is bound to no device are in no VRF, whatever
/// VRF its segments pass (`net.ipv4.tcp_l3mdev_accept`), and so are those of one that is bound to a VRF that has gone.
pub(super) fn maybe_unbound(ends: Ends) -> [Ends; 2] {
    [ends, ends.in_vrf(0)]
}

impl Shared {
    /// The engine's clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The VRF of a device, 0 for none.
    pub(super) fn vrf_of(&self, device: u32) -> i32 {
        self.vrfs.lock().of(device).cast_signed()
    }

    /// The ends of a connection of the kernel's.
    pub(super) fn ends_of(&self, entry: &Entry) -> Ends {
        Ends::new(entry.local, entry.remote).in_vrf(self.vrf_of(entry.ifindex))
    }

    /// All ends that a connection of the kernel's may have here: the segments of a socket that is bound to no device may pass any VRF.
    pub(super) fn all_ends_of(&self, entry: &Entry) -> Vec<Ends> {
        let ends = self.ends_of(entry);
        let vrfs = self.vrfs.lock();
        let others = vrfs.all().filter(|_| entry.ifindex == 0).map(|vrf| ends.in_vrf(vrf.cast_signed()));
        std::iter::once(ends).chain(others).collect()
    }

    /// Has connections of sockets that are bound to a device go on in the VRF that it is in now. `diag` is one of this namespace.
    ///
    /// # Errors
    /// The kernel's: they may be taken for others.
    pub(super) fn follow_devices(&self, diag: &mut SockDiag) -> io::Result<()> {
        let (mut bound, mut alive) = (Vec::new(), HashSet::new());
        diag.connections(|entry| {
            let ends = self.ends_of(&entry);
            if entry.state == State::TimeWait {
                return;
            }
            alive.insert(ends);
            if entry.ifindex != 0 {
                bound.push((SocketId(entry.cookie), entry.ifindex.cast_signed(), ends));
            }
        })?;
        self.engine.lock().moved(&bound, &alive);
        Ok(())
    }

    /// Tells which VRFs of the configuration are not there, and which have come.
    pub(super) fn tell_vrfs(&self) {
        for (name, is_told) in self.wanted_vrfs.lock().iter_mut() {
            let is_absent = !self.vrfs.lock().has(name);
            match core::mem::replace(is_told, is_absent) {
                false if is_absent => warn!(
                    vrf = name,
                    "TCP-AO: there is no VRF {name}: no segments of its peers pass, whichever VRF they are in, unless that has such peers"
                ),
                true if !is_absent => info!(vrf = name, "TCP-AO: there is a VRF {name}: its peers are served"),
                _ => {}
            }
        }
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

    /// Segments of these connections no longer wait behind those of others, if their handshakes are complete.
    pub(super) fn know(&self, connections: &[Ends]) {
        let engine = self.engine.lock();
        let open: Vec<Ends> = connections.iter().filter(|ends| engine.is_open(ends)).copied().collect();
        drop(engine);
        self.know_all(&open);
    }

    /// The same for all connections that the engine has.
    pub(super) fn know_open_connections(&self) {
        let open: Vec<Ends> = self.engine.lock().open_connections().collect();
        self.know_all(&open);
    }

    fn know_all(&self, open: &[Ends]) {
        let mut table = self.table.lock();
        let Some(table) = table.as_mut().filter(|_| !open.is_empty() && !self.not_known.load(Ordering::Relaxed)) else {
            return;
        };
        if let Err(e) = table.know(open.iter().map(connection)) {
            // Their segments share a queue with new connections meanwhile.
            self.not_known.store(true, Ordering::Relaxed);
            if !transient::count(&e) {
                warn!(error = %e, "TCP-AO: rules for known connections: {e}");
            }
        }
    }

    /// Removes connections that have ended from the known ones. To be called now and then.
    pub(super) fn unknow_closed(&self) {
        self.not_known.store(false, Ordering::Relaxed);
        let open: HashSet<Connection> = self.engine.lock().open_connections().map(|ends| connection(&ends)).collect();
        let mut table = self.table.lock();
        let Some(table) = table.as_mut() else { return };
        let closed: Vec<Connection> = table.known().filter(|known| !open.contains(known)).copied().collect();
        if let Err(e) = table.unknow(&closed)
            && !transient::count(&e)
        {
            warn!(error = %e, "TCP-AO: rules for connections that have ended: {e}");
        }
    }

    /// Saves the connections, if that is configured.
    pub(super) fn save(&self) {
        if let Some(keep) = self.keep.get() {
            let _in_turn = self.keeping.lock();
            let connections = self.engine.lock().save();
            keep(&connections);
        }
    }

    /// Keeps what has changed of programs' sockets, if a daemon serves them.
    pub(super) fn keep_changes(&self) {
        if let Some(kept) = self.kept.get() {
            let mut kept = kept.lock();
            // A journal that could not be written is tried again once a second.
            if kept.is_whole() {
                let changes = self.engine.lock().take_changes();
                kept.write(changes);
            }
        }
    }

    /// Keeps what has changed, also of sequence numbers that have gone far, and all sockets if that has failed before.
    pub(super) fn keep_progress(&self) {
        if let Some(kept) = self.kept.get() {
            let mut kept = kept.lock();
            let mut engine = self.engine.lock();
            if kept.is_whole() {
                engine.note_progress();
            } else {
                engine.note_changes();
            }
            let changes = engine.take_changes();
            drop(engine);
            kept.write(changes);
        }
    }
}
