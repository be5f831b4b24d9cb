//! The network namespaces in which TCP-AO is served.

use super::homes::KeyHomes;
use super::kept::Store;
use super::leftover;
use super::path::{Shared, WorkerHandle, maybe_unbound};
use super::protected::KeyGuard;
use super::start::{self, DYING, PathSettings, Peers};
use parking_lot::{Mutex, MutexGuard};
use sealane_abi::Profile;
use sealane_abi::admin::{self, DataPath};
use sealane_abi::tcp::State;
use sealane_engine_ao::{Desk, Ends, Interfaces, Namespace};
use sealane_handover::{Keeper, RulesOwner};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::drop::Counter;
use sealane_net_ao::mkt::Prefix;
use sealane_rules::ao::PeerTable;
use sealane_sys::netns::{Netns, NetnsId};
use sealane_sys::sock_diag::{Entry, SockDiag};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{Span, debug, error, error_span, warn};

/// The spaces of all network namespaces.
pub struct Spaces {
    profile: Profile,
    algorithms: Algorithms,
    wanted: PathSettings,
    /// Keeps for the next daemon what has to outlive this one. A launcher has none.
    keeper: Option<Arc<Keeper>>,
    /// The home of configured keys that are not in the configuration.
    key_home: Option<KeyHomes>,
    by_id: Mutex<HashMap<NetnsId, Arc<Space>>>,
    any: AtomicBool,
    /// The engine that answers for sockets in namespaces without TCP-AO.
    blank: Mutex<Namespace>,
    /// The sockets with TCP-MD5 in namespaces without TCP-AO.
    early: Mutex<HashMap<NetnsId, Namespace>>,
}

/// The longest time that a program is made to wait for segments that are under way, when a worker hangs.
const SETTLING: Duration = Duration::from_secs(5);
/// The looks of each worker meanwhile. A handshake passes a worker six times, and the last look is in vain.
const LOOKS: u32 = 8;

/// The most sockets with TCP-MD5 in a namespace without TCP-AO, where closed sockets are not noticed.
const MAX_EARLY: usize = 4096;

impl Spaces {
    /// No spaces yet. Keys can use `algorithms`, segments travel as `data_path` says, and each space has one worker.
    pub fn new(profile: Profile, algorithms: Algorithms, data_path: DataPath) -> Self {
        let blank = Mutex::new(Namespace::new(profile, algorithms.clone()));
        Spaces {
            profile,
            algorithms,
            wanted: PathSettings { data_path, workers: 1, patience: DYING, desk: Arc::default() },
            keeper: None,
            key_home: None,
            by_id: Mutex::default(),
            any: AtomicBool::new(false),
            blank,
            early: Mutex::default(),
        }
    }

    /// Sets the number of workers of each space that is opened from now on.
    #[must_use]
    pub fn with_workers(mut self, workers: u16) -> Self {
        self.wanted.workers = workers.max(1);
        self
    }

    /// Keeps what owns the rules of each space for the next daemon.
    #[must_use]
    pub fn with_keeper(mut self, keeper: Arc<Keeper>) -> Self {
        self.keeper = Some(keeper);
        self
    }

    /// Has a home for configured keys that are not in the configuration.
    #[must_use]
    pub fn with_key_home(mut self, mut homes: KeyHomes) -> Self {
        self.wanted.desk = Arc::new(Desk::new(core::mem::replace(&mut homes.why, Box::new(String::new))));
        self.key_home = Some(homes);
        self
    }

    /// The desk at which traffic keys are asked for whose master keys are at that home.
    pub(super) fn desk(&self) -> &Arc<Desk> {
        &self.wanted.desk
    }

    /// The home of configured keys that are not in the configuration.
    pub(super) fn key_home(&self) -> Option<&KeyHomes> {
        self.key_home.as_ref()
    }

    /// Whether there are no spaces. Only calls that set a key matter then.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Whether the memory of keys is limited as in the kernel; the open profile lifts the limit.
    pub fn limits_memory(&self) -> bool {
        self.profile != Profile::Open
    }

    /// The engine of a namespace without TCP-AO.
    pub fn blank(&self) -> MutexGuard<'_, Namespace> {
        self.blank.lock()
    }

    /// The space of a socket's namespace. With `make`, it is opened if there is none.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    pub fn of_socket(&self, socket: BorrowedFd<'_>, make: bool) -> io::Result<Option<Arc<Space>>> {
        if !make && self.is_empty() {
            return Ok(None);
        }
        self.of(Netns::of_socket(socket)?, make)
    }

    /// Whether a daemon serves programs of a namespace.
    pub fn serves_programs(&self, netns: Netns) -> bool {
        self.of(netns, false).is_ok_and(|space| space.is_some_and(|space| space.serves_programs()))
    }

    /// The space of a namespace. With `make`, a launcher opens it if there is none. A daemon opens those of its
    /// configuration only.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    pub fn of(&self, netns: Netns, make: bool) -> io::Result<Option<Arc<Space>>> {
        let id = netns.id()?;
        let mut spaces = self.by_id.lock();
        if let Some(space) = spaces.get(&id) {
            return Ok(Some(space.clone()));
        }
        if !make || self.keeper.is_some() {
            return Ok(None);
        }
        let context = context(id);
        let left = netns.run(|| context.in_scope(|| leftover::take_over(id.inode())))?;
        let engine = self.early.lock().remove(&id).unwrap_or_else(|| self.new_engine());
        let peers = Peers { fixed: &left, by_keys: &[] };
        let space = Space::start(netns, context, engine, &peers, self.wanted.clone(), None, |_| {})?;
        Ok(Some(self.add(&mut spaces, id, space)))
    }

    /// Opens the space of a namespace with peers that are known in advance. `prepare` sets their keys before the first
    /// packet is judged. A process that still serves it has so much time to end.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    pub(super) fn open(
        &self,
        netns: Netns,
        peers: &Peers<'_>,
        patience: Duration,
        prepare: impl FnOnce(&Shared),
    ) -> io::Result<Arc<Space>> {
        let id = netns.id()?;
        let owner = self.owner(&netns)?;
        let wanted = PathSettings { patience, ..self.wanted.clone() };
        let space = Space::start(netns, context(id), self.new_engine(), peers, wanted, owner, prepare)?;
        Ok(self.add(&mut self.by_id.lock(), id, space))
    }

    /// Waits until no worker finds a segment: what sockets of this machine send each other through these namespaces has
    /// arrived then, and so has what they answer. It gives up after [`LOOKS`], because others may send without an end.
    pub fn settle(&self) {
        let until = Instant::now() + SETTLING;
        let spaces: Vec<Arc<Space>> = self.by_id.lock().values().cloned().collect();
        let posts = || spaces.iter().flat_map(|space| &space.shared.posts);
        let judged = || posts().map(|post| post.judged.load(Ordering::Acquire)).sum::<u64>();
        for _ in 0..LOOKS {
            let before = judged();
            if posts().all(WorkerHandle::has_nothing) && judged() == before {
                return;
            }
            let looks: Vec<u64> = posts().map(WorkerHandle::ask).collect();
            let all = posts().zip(looks).all(|(post, look)| post.looks.wait(look, until));
            if !all {
                return;
            }
        }
    }

    /// Ends the service of a namespace. Its rules stay, and drop what its peers send and what is sent to them.
    pub(super) fn close(&self, space: &Space) {
        space.leave();
        if let Ok(id) = space.netns.id() {
            self.by_id.lock().remove(&id);
        }
    }

    /// Keeps the owner of the rules of a namespace that is not served no longer, as [`Space::disown`].
    pub(super) fn disown(&self, netns: &Netns) {
        match self.owner(netns) {
            Ok(owner) => owner.iter().for_each(RulesOwner::release),
            Err(e) => warn!(error = %e, "TCP-AO: the owner of the rules is still kept: {e}"),
        }
    }

    fn owner(&self, netns: &Netns) -> io::Result<Option<RulesOwner>> {
        let owner = |keeper| Ok(RulesOwner::new(keeper, start::PROTOCOL, netns.cookie()?));
        self.keeper.clone().map(owner).transpose()
    }

    fn add(&self, spaces: &mut HashMap<NetnsId, Arc<Space>>, id: NetnsId, space: Arc<Space>) -> Arc<Space> {
        spaces.insert(id, space.clone());
        self.any.store(true, Ordering::Release);
        space
    }

    fn new_engine(&self) -> Namespace {
        Namespace::new(self.profile, self.algorithms.clone())
    }

    /// Makes a call with TCP-MD5 in a namespace without TCP-AO. Its effect is kept for when TCP-AO is used there.
    ///
    /// # Errors
    /// When the socket's namespace cannot be found out.
    pub fn call_early<R>(&self, socket: BorrowedFd<'_>, call: impl FnOnce(&mut Namespace) -> R) -> io::Result<R> {
        let id = Netns::of_socket(socket)?.id()?;
        let mut early = self.early.lock();
        let engine = early.entry(id).or_insert_with(|| self.new_engine());
        if engine.socket_count() >= MAX_EARLY {
            *engine = self.new_engine();
        }
        Ok(call(engine))
    }

    /// The place where sockets of programs are kept for the next daemon.
    ///
    /// # Errors
    /// When the namespace's cookie cannot be read.
    pub(super) fn store(&self, netns: &Netns) -> io::Result<Option<Store>> {
        let store = |keeper| Ok(Store::new(keeper, netns.cookie()?));
        self.keeper.clone().map(store).transpose()
    }

    /// The algorithms that keys can use.
    pub(super) fn algorithms(&self) -> &Algorithms {
        &self.algorithms
    }

    /// The status of all spaces.
    pub fn describe(&self) -> Vec<admin::AoNamespace> {
        let spaces: Vec<(NetnsId, Arc<Space>)> = self.by_id.lock().iter().map(|(id, s)| (*id, s.clone())).collect();
        let mut list: Vec<admin::AoNamespace> = (spaces.iter())
            .map(|(id, space)| {
                // Dropped segments are diagnosed without the lock of the engine.
                let copied = space.shared.delivered().snapshot(space.shared.start_wall_ms);
                let path = Some(space.shared.counters.describe(self.wanted.data_path));
                let mut namespace = admin::AoNamespace { inode: id.inode(), name: id.name(), path, ..copied.finish() };
                if let Err(e) = space.ask_kernel(&mut namespace.sockets) {
                    let _context = space.context.enter();
                    warn!(error = %e, "TCP-AO: what the kernel knows of sockets: {e}");
                }
                namespace
            })
            .collect();
        list.sort_by_key(|n| n.inode);
        list
    }

    /// Closes all spaces when the program has ended, with as much patience for its last bytes as TCP needs. `pause` waits for
    /// so long, and says whether somebody is in a hurry.
    pub fn stop(&self, mut pause: impl FnMut(Duration) -> bool) {
        let spaces: Vec<Arc<Space>> = self.by_id.lock().values().cloned().collect();
        let start = Instant::now();
        let (mut good, mut moved, mut told) = (0, start, false);
        while start.elapsed() < LINGER_MOST {
            let patience = spaces.iter().map(|space| space.patience()).max().unwrap_or_default();
            if moved.elapsed() >= patience {
                break;
            }
            if pause(Duration::from_millis(10)) {
                warn!("TCP-AO: connections end at once");
                break;
            }
            if patience == LINGER && start.elapsed() > LINGER && !core::mem::replace(&mut told, true) {
                let most = LINGER_MOST.as_secs();
                warn!(
                    "TCP-AO: the program has ended, and waits for peers to take its last bytes: {most} s at most; SIGINT or SIGTERM end that"
                );
            }
            let now = spaces.iter().map(|s| s.engine().netstat().value(Counter::Good)).sum();
            if now != good {
                (good, moved) = (now, Instant::now());
            }
        }
        self.by_id.lock().clear();
        for space in spaces {
            space.stop();
        }
    }
}

/// The time for which connections may go on after their program has ended while their peers send nothing. Their last
/// bytes are on the way and may have to be repeated.
const LINGER: Duration = Duration::from_secs(2);
/// The time for which they may go on while their peers acknowledge data. Linux would deliver all of it.
const LINGER_MOST: Duration = Duration::from_secs(60);
/// The time for which the answer to a peer's FIN may turn out to be lost: the peer repeats the FIN after its round trip time and
/// 200 ms, and finds nobody who could sign an answer when the rules are gone.
const QUIET: Duration = Duration::from_millis(400);
/// The time that the last segments need to leave.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// The context of messages about a network namespace, with its name in /run/netns, if it has one, and its inode. It is of
/// the highest level, so that warnings have it even if less is told.
fn context(id: NetnsId) -> Span {
    error_span!("tcp_ao", netns = id.name(), netns_inode = id.inode())
}

/// The VRFs of a namespace, as they are at each question.
struct VrfsOf<'a>(&'a Shared);

impl Interfaces for VrfsOf<'_> {
    fn vrf(&self, ifindex: i32) -> i32 {
        let mut vrfs = self.0.vrfs.lock();
        // Workers tell of errors.
        let _ = vrfs.refresh();
        u32::try_from(ifindex).map_or(0, |device| vrfs.of(device).cast_signed())
    }
}

/// TCP-AO in one network namespace.
pub struct Space {
    netns: Netns,
    context: Span,
    shared: Arc<Shared>,
    /// Whether programs may set keys. They may at a launcher, and at a daemon whose configuration says so.
    programs: AtomicBool,
    owner: Option<RulesOwner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Space {
    fn start(
        netns: Netns,
        context: Span,
        engine: Namespace,
        peers: &Peers<'_>,
        wanted: PathSettings,
        owner: Option<RulesOwner>,
        prepare: impl FnOnce(&Shared),
    ) -> io::Result<Arc<Self>> {
        let (shared, threads) =
            context.in_scope(|| start::start(&netns, engine, peers, wanted, owner.as_ref(), prepare))?;
        context.in_scope(|| debug!(workers = threads.len(), "TCP-AO: the namespace is served"));
        let programs = AtomicBool::new(owner.is_none());
        Ok(Arc::new(Space { netns, context, shared, programs, owner, threads: Mutex::new(threads) }))
    }

    /// The engine, for answers with counters: see [`Shared::delivered`].
    pub fn delivered(&self) -> MutexGuard<'_, Namespace> {
        self.shared.delivered()
    }

    /// The engine.
    pub fn engine(&self) -> MutexGuard<'_, Namespace> {
        self.shared.engine.lock()
    }

    /// Whether programs may set keys.
    pub fn serves_programs(&self) -> bool {
        self.programs.load(Ordering::Acquire)
    }

    /// Allows programs to set keys, or no longer.
    pub(super) fn serve_programs(&self, serve: bool) {
        self.programs.store(serve, Ordering::Release);
    }

    /// Keeps what has changed of programs' sockets, if a daemon serves them.
    pub(super) fn keep_changes(&self) {
        self.shared.keep_changes();
    }

    /// The network namespace.
    pub(super) fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The context of messages about it.
    pub(super) fn context(&self) -> &Span {
        &self.context
    }

    /// The state that its workers share.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The interfaces of the namespace.
    pub fn interfaces(&self) -> impl Interfaces + use<'_> {
        VrfsOf(&self.shared)
    }

    /// Protects the peers of prefixes, for a key that is set while the returned guard lives: no segment to or from them
    /// passes the rules from now on.
    ///
    /// # Errors
    /// The kernel's; the peers are not protected then.
    pub fn protect(&self, prefixes: &[Prefix]) -> io::Result<KeyGuard<'_>> {
        self.shared.protect_for_key(prefixes)
    }

    /// The limit for the memory of a socket's keys in bytes: `net.core.optmem_max`.
    pub fn optmem_max(&self) -> Option<usize> {
        let text = self.netns.run(|| std::fs::read_to_string("/proc/sys/net/core/optmem_max")).ok()?;
        text.trim().parse().ok()
    }

    /// Adds facts that only the kernel knows: the addresses of listeners, and inodes, by which processes are found.
    fn ask_kernel(&self, sockets: &mut [admin::Socket]) -> io::Result<()> {
        if sockets.is_empty() {
            return Ok(());
        }
        for (socket, vrf) in sockets.iter_mut().filter_map(|socket| socket.vrf.map(|vrf| (socket, vrf))) {
            socket.vrf_name = self.shared.vrfs.lock().name(vrf.cast_unsigned()).map(str::to_owned);
        }
        let mut by_cookie: HashMap<u64, Entry> = HashMap::new();
        self.netns.run(|| {
            let mut diag = SockDiag::open()?;
            let mut note = |entry: Entry| {
                by_cookie.insert(entry.cookie, entry);
            };
            diag.listeners(&mut note)?;
            diag.connections(note)
        })?;
        for socket in sockets {
            let Some(entry) = by_cookie.get(&socket.cookie) else { continue };
            socket.inode = (entry.inode > 0).then_some(u64::from(entry.inode));
            if socket.local.is_none() && entry.state == State::Listen {
                socket.state = admin::SocketState::Listen;
                socket.local = Some(entry.local);
            }
        }
        Ok(())
    }

    /// The time for which its peers may send nothing before its connections end: none without connections.
    fn patience(&self) -> Duration {
        let mut over = HashSet::new();
        for (ends, alive) in self.engine().connections() {
            if alive {
                return LINGER;
            }
            over.extend(maybe_unbound(ends));
        }
        if over.is_empty() {
            return Duration::ZERO;
        }
        let mut patience = Duration::ZERO;
        let asked = self.netns.run(|| {
            SockDiag::open()?.connections(|e| {
                if over.contains(&self.shared.ends_of(&e)) {
                    patience = patience.max(if e.half_closed { LINGER } else { QUIET });
                }
            })
        });
        if asked.is_ok() { patience } else { QUIET }
    }

    /// Ends all connections. Their peers get a signed RST.
    ///
    /// # Errors
    /// The kernel's: connections may be left.
    fn end_connections(&self) -> io::Result<()> {
        let ends: HashSet<Ends> = self.engine().connections().flat_map(|(ends, _)| maybe_unbound(ends)).collect();
        if ends.is_empty() {
            return Ok(());
        }
        self.netns.run(|| leftover::end_connections(|e| ends.contains(&self.shared.ends_of(e)))).map(drop)
    }

    /// Ends the workers. The rules stay.
    fn leave(&self) {
        start::stop_workers(&self.shared, core::mem::take(&mut *self.threads.lock()));
        drop(self.shared.table.lock().take());
    }

    /// Keeps the owner of the rules no longer: they stay where they need none, or another table of ours drops in their place.
    pub(super) fn disown(&self) {
        self.owner.iter().for_each(RulesOwner::release);
    }

    /// Closes the space: first the connections, then the workers, last the rules.
    fn stop(&self) {
        let _context = self.context.enter();
        let ended = self.end_connections();
        std::thread::sleep(LAST_WORDS);
        start::stop_workers(&self.shared, core::mem::take(&mut *self.threads.lock()));
        if let Err(e) = ended {
            // As when this process is killed: without rules the connections that are left would send unsigned.
            error!(error = %e, "TCP-AO: connections could not be ended: {e}: the rules stay, which drop what they send; sealane tcp-ao clear removes them");
            return;
        }
        match self.shared.table.lock().take().map(PeerTable::delete) {
            Some(Err(e)) => error!(error = %e, "TCP-AO: taking the rules away: {e}"),
            Some(Ok(())) => self.owner.iter().for_each(RulesOwner::release),
            None => {}
        }
        debug!("TCP-AO: the namespace is served no longer");
    }
}
