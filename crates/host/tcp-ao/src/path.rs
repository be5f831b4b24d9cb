//! The data path of one network namespace: packets of protected peers between the kernel's queues and the engine.

use super::fast::{Fast, MAX_DEVICES, Pass};
use super::protected::Protected;
use arrayvec::ArrayVec;
use parking_lot::{Mutex, RwLock};
use sealane_abi::admin::{self, DataPath, NotFast};
use sealane_abi::tcp::State;
use sealane_engine_ao::{
    Ends, Found, Inbound, Kernel, Namespace, Outbound, SavedConnection, SocketId, Verdict, icmp_error, tell_nobody,
};
use sealane_net::ao::drop::DropReason;
use sealane_net::ao::mac::BURST;
use sealane_net::ao::mkt::Prefix;
use sealane_net::ao::segment::ChecksumState;
use sealane_net::wire::ip;
use sealane_sys::clock::wall_ms;
use sealane_sys::link;
use sealane_sys::netns::Netns;
use sealane_sys::nfqueue::{BATCH, Queue, Verdict as Fate};
use sealane_sys::nft::{Marks, Options, Table, Watch};
use sealane_sys::poll::{Waker, ready, sleep_precisely};
use sealane_sys::raw::Raw;
use sealane_sys::sock_diag::{Departures, Entry, SockDiag};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The first queue that we try to get.
pub(super) const FIRST_QUEUE: u16 = 0x5ea1;
/// Room for what one batch becomes: a superframe of 64 KB cut into the smallest pieces that make sense, with headers.
const ROOM: usize = 1 << 20;
/// How often time is looked at when nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// How often it is looked for peers that nobody needs any more.
const TIDY: Duration = Duration::from_secs(60);
/// The smallest MTU that IPv6 allows: what we go by when a device does not tell.
const MIN_MTU: usize = 1280;

/// Descriptors that are waited for.
const FDS: usize = 5 + MAX_DEVICES;
/// Frames of one look at the rings from which on more are expected.
const MANY: usize = 8;
/// How long they are given. A connection with so many segments has so much latency anyway.
const NAP: Duration = Duration::from_micros(30);
/// Naps before everything else is looked at.
const NAPS: u32 = 32;

/// The number of the configured peer that a connection belongs to.
pub(super) type Policy = Arc<dyn Fn(&Ends) -> Option<u32> + Send + Sync>;
/// Keeps connections.
pub(super) type Keep = Box<dyn Fn(&[SavedConnection]) + Send + Sync>;

/// What the threads of a namespace share.
pub(super) struct Shared {
    pub(super) engine: Mutex<Namespace>,
    /// `None` when it has been taken away.
    pub(super) table: Mutex<Option<Table>>,
    /// Locked before `table`, and that before `engine`.
    pub(super) protected: Mutex<Protected>,
    pub(super) waker: Waker,
    pub(super) stop: AtomicBool,
    /// What a configuration says of connections whose program set no keys.
    pub(super) policy: RwLock<Option<Policy>>,
    /// Called with the connections that have to survive us, whenever there are others.
    pub(super) keep: OnceLock<Keep>,
    pub(super) counters: Counters,
    /// Milliseconds of [`Namespace::expire`]'s clock count from here.
    start: Instant,
    /// The time of day then, in milliseconds since 1970.
    pub(super) start_wall_ms: i64,
}

/// What happened to packets on their way, besides what the engine counts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Segments that came in by the fast path.
    pub(super) fast_in: AtomicU64,
    /// Segments that left by the fast path.
    pub(super) fast_out: AtomicU64,
    /// Segments that the kernel did not take: no route, no room.
    pub(super) refused: AtomicU64,
    /// Packets that did not fit into a ring.
    pub(super) ring_drops: AtomicU64,
    /// Packets that did not fit into a queue's socket.
    pub(super) queue_drops: AtomicU64,
    /// Connections of the fast path.
    fast_connections: AtomicU64,
    not_fast: Mutex<Vec<NotFast>>,
}

impl Counters {
    /// What may be shown of them.
    pub(super) fn describe(&self, wanted: DataPath) -> admin::Path {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        admin::Path {
            wanted,
            connections: value(&self.fast_connections),
            fast_in: value(&self.fast_in),
            fast_out: value(&self.fast_out),
            refused: value(&self.refused),
            ring_drops: value(&self.ring_drops),
            queue_drops: value(&self.queue_drops),
            not_fast: self.not_fast.lock().clone(),
        }
    }

    fn note(&self, fast: &Fast) {
        self.fast_connections.store(fast.connections() as u64, Ordering::Relaxed);
        *self.not_fast.lock() = fast.unable();
    }
}

impl Shared {
    /// The engine's clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Keeps the connections, if it is time.
    pub(super) fn save(&self, engine: &mut Namespace) {
        if let Some(keep) = self.keep.get() {
            keep(&engine.save());
        }
    }
}

/// One thread's view of it.
struct Path {
    shared: Arc<Shared>,
    output: Queue,
    input: Queue,
    watch: Watch,
    raw: Raw,
    departures: Departures,
    sockets: Sockets,
    devices: Devices,
    bound: Bound,
    fast: Fast,
    room: Vec<u8>,
}

/// Opens queues and rules in `netns` and starts the thread that serves them. `prepare` is called when the rules for `peers`
/// stand and before a packet is looked at.
///
/// # Errors
/// The kernel's, with what could not be made.
pub(super) fn start(
    netns: &Netns,
    engine: Namespace,
    peers: &[Prefix],
    wanted: DataPath,
    prepare: impl FnOnce(&Shared),
) -> io::Result<(Arc<Shared>, JoinHandle<()>)> {
    let list: Vec<_> = peers.iter().map(|p| (p.addr, p.len)).collect();
    let (mut path, shared) = netns.run(|| {
        let say = |what: &'static str| move |e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
        let output = Queue::open(FIRST_QUEUE, true).map_err(say("a queue for packets that leave"))?;
        let input = Queue::open(output.number() + 1, false).map_err(say("a queue for packets that come in"))?;
        let marks = Marks::default();
        let options = Options { output_queue: output.number(), input_queue: input.number(), marks, any_option: true };
        let table = Table::install(options, &list).map_err(say("nftables rules"))?;
        let watch = Watch::new(&table).map_err(say("watching over the rules"))?;
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            table: Mutex::new(Some(table)),
            protected: Mutex::new(Protected::new(peers.iter().copied())),
            waker: Waker::new()?,
            stop: AtomicBool::new(false),
            policy: RwLock::new(None),
            keep: OnceLock::new(),
            counters: Counters::default(),
            start: Instant::now(),
            start_wall_ms: wall_ms(),
        });
        let path = Path {
            shared: shared.clone(),
            output,
            input,
            watch,
            raw: Raw::open(marks).map_err(say("raw sockets"))?,
            departures: Departures::open().map_err(say("news of sockets that close"))?,
            sockets: Sockets {
                diag: SockDiag::open().map_err(say("the kernel's table of sockets"))?,
                shared: shared.clone(),
            },
            devices: Devices::default(),
            bound: Bound::default(),
            fast: Fast::new(marks, wanted),
            room: vec![0; ROOM],
        };
        Ok((path, shared))
    })?;
    prepare(&shared);
    let netns = netns.try_clone()?;
    let thread = std::thread::Builder::new().name("sealane-ao".into()).spawn(move || {
        if let Err(e) = netns.enter() {
            eprintln!("sealane: cannot enter a network namespace: {e}");
            return;
        }
        path.serve();
    })?;
    Ok((shared, thread))
}

impl Path {
    fn serve(&mut self) {
        sleep_precisely();
        let mut ticked = Instant::now();
        let mut tidied = Instant::now();
        let (mut busy, mut naps) = (false, 0);
        while !self.shared.stop.load(Ordering::Acquire) {
            // Many segments come one after another: a nap lets them come together, and wakes nobody in between.
            if busy && naps < NAPS {
                std::thread::sleep(NAP);
                naps += 1;
                busy = self.packets([true; 3]);
                continue;
            }
            let fds = [
                self.output.as_fd(),
                self.input.as_fd(),
                self.watch.as_fd(),
                self.departures.as_fd(),
                self.shared.waker.as_fd(),
            ];
            let fds = fds.into_iter().chain(self.fast.fds());
            let ready: ArrayVec<bool, FDS> = ready(fds, if busy { Duration::ZERO } else { TICK });
            naps = 0;
            busy = self.packets([ready[0], ready[1], busy || ready[5..].contains(&true)]);
            if ready[2] && self.watch.changed() {
                let restored = self.shared.table.lock().as_mut().map_or(Ok(()), Table::restore);
                complain("rules that somebody changed", restored);
            }
            if ready[3] {
                self.departed();
            }
            if ready[4] {
                self.shared.waker.drain();
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.devices.forget();
                self.bound.forget();
                complain("the fast path", self.fast.tick(&self.shared));
                self.shared.counters.note(&self.fast);
                let drops = self.output.overruns() + self.input.overruns();
                self.shared.counters.queue_drops.store(drops, Ordering::Relaxed);
                let mut engine = self.shared.engine.lock();
                let now_ms = self.shared.now_ms();
                engine.expire(now_ms);
                engine.sweep(&mut self.sockets, now_ms);
                if engine.unsaved() {
                    self.shared.save(&mut engine);
                }
            }
            if tidied.elapsed() >= TIDY {
                tidied = Instant::now();
                complain("peers that nobody needs", self.shared.unprotect_unused(tidied));
            }
        }
        // What is left in the queues is dropped with them; only then do the rules go.
    }

    /// Judges the packets that wait in both queues and in the rings, as far as somebody said that there are some, and
    /// says whether more are to be expected at once.
    fn packets(&mut self, [output, input, rings]: [bool; 3]) -> bool {
        if output {
            complain("packets that leave", self.outgoing());
        }
        if input {
            complain("packets that come in", self.incoming());
        }
        let pass = if rings { self.fast.serve(&self.shared, &mut self.sockets) } else { Pass::default() };
        pass.open || pass.frames >= MANY
    }

    fn outgoing(&mut self) -> io::Result<()> {
        loop {
            let count = self.output.receive()?;
            if count == 0 {
                break;
            }
            let now_ms = self.shared.now_ms();
            let (packets, mut verdicts) = self.output.split();
            let mut batch: ArrayVec<Outbound<'_>, BATCH> = ArrayVec::new();
            let mut about: ArrayVec<About, BATCH> = ArrayVec::new();
            for p in packets {
                let bound = p.superframe && self.bound.is(p.bytes, p.out_device, &mut self.sockets.diag);
                about.push(About { id: p.id, superframe: p.superframe, device: p.out_device, bound });
                let mtu = self.devices.mtu(p.out_device);
                batch.push(Outbound { packet: p.bytes, device: p.out_device, mtu, verdict: Verdict::Pass });
            }
            let (raw, fast) = (&self.raw, &mut self.fast);
            let mut engine = self.shared.engine.lock();
            engine.output(&mut batch, &mut self.room, &mut self.sockets, now_ms, |pieces| {
                for pieces in pieces.chunk_by(|a, b| a.of == b.of) {
                    let about = &about[pieces[0].of];
                    if pieces[0].pieces == 1 && !about.superframe {
                        verdicts.judge(about.id, Fate::Replace(pieces[0].packet));
                        continue;
                    }
                    // A packet that cannot be sent is a packet that is lost, and sent again. Those before it go first.
                    let _ = verdicts.flush();
                    let packets: ArrayVec<&[u8], BURST> = pieces.iter().map(|p| p.packet).collect();
                    fast.send(&self.shared.counters, raw, about.device, about.bound, &packets);
                }
            });
            if engine.dirty() {
                self.shared.save(&mut engine);
            }
            drop(engine);
            for (about, p) in about.iter().zip(&batch) {
                if p.verdict == Verdict::Pass {
                    verdicts.judge(about.id, Fate::Accept);
                }
            }
            drop(batch);
            self.output.finish()?;
            if count < BATCH {
                break;
            }
        }
        Ok(())
    }

    fn incoming(&mut self) -> io::Result<()> {
        loop {
            let count = self.input.receive()?;
            if count == 0 {
                break;
            }
            let now_ms = self.shared.now_ms();
            let (packets, mut verdicts) = self.input.split();
            let mut batch: ArrayVec<Inbound<'_>, BATCH> = ArrayVec::new();
            let mut ids: ArrayVec<u32, BATCH> = ArrayVec::new();
            for p in packets {
                ids.push(p.id);
                let mtu = self.devices.mtu(p.in_device);
                let checksum = if p.partial_checksum { ChecksumState::Partial } else { ChecksumState::Complete };
                batch.push(Inbound { packet: p.bytes, checksum, device: p.in_device, mtu, verdict: Verdict::Pass });
            }
            let mut worth: ArrayVec<(u32, Ends), BATCH> = ArrayVec::new();
            let mut engine = self.shared.engine.lock();
            engine.input(&mut batch, &mut self.sockets, now_ms);
            for (id, p) in ids.iter().zip(&mut batch) {
                match p.verdict {
                    Verdict::Pass => verdicts.judge(*id, Fate::Accept),
                    // The rules queue ICMP errors and TCP. What is no ICMP and no whole segment cannot be judged: a
                    // fragment, for example, that the stack would put together behind us.
                    Verdict::NotTcp if !is_icmp(p.packet) => {}
                    Verdict::NotTcp => {
                        let ignored = icmp_error(p.packet).is_some_and(|(ends, error)| engine.ignore_icmp(ends, error));
                        if ignored {
                            tell_nobody(p.packet);
                            verdicts.judge(*id, Fate::Replace(p.packet));
                        } else {
                            verdicts.judge(*id, Fate::Accept);
                        }
                    }
                    Verdict::Deliver(from, at) => {
                        let packet = &mut p.packet[from..];
                        if p.checksum == ChecksumState::Partial {
                            // The queue tells the kernel that there is nothing left to compute.
                            ip::set_tcp_checksum(packet, &at);
                        }
                        verdicts.judge(*id, Fate::Replace(&packet[..at.end]));
                        if let Some(ends) = self.fast.count(p.device, packet) {
                            worth.push((p.device, ends));
                        }
                    }
                    Verdict::Drop(DropReason::Required) => self.fast.unsigned(p.device, p.packet),
                    Verdict::Sent | Verdict::Drop(_) => {}
                }
            }
            // Before the segment that completes a handshake is delivered.
            if engine.dirty() {
                self.shared.save(&mut engine);
            }
            drop(batch);
            // Who sees that a segment was counted sees what it did to the socket, as with the kernel's own: the kernel delivers
            // it before this returns.
            self.input.finish()?;
            drop(engine);
            if !worth.is_empty() {
                self.fast.serve(&self.shared, &mut self.sockets);
                if let Some(table) = self.shared.table.lock().as_mut() {
                    for &(device, ends) in &worth {
                        self.fast.promote(device, ends, table);
                    }
                }
                self.shared.counters.note(&self.fast);
                // What came meanwhile, still by the queue, is older than what will be in the ring.
                continue;
            }
            if count < BATCH {
                break;
            }
        }
        Ok(())
    }

    fn departed(&mut self) {
        let now_ms = self.shared.now_ms();
        let mut engine = self.shared.engine.lock();
        let diag = &mut self.sockets.diag;
        let told = self.departures.each(|entry| {
            let ends = (entry.remote.port() != 0).then(|| Ends::new(entry.local, entry.remote));
            // Sockets go that shared the ends of one that stays: copies of a handshake, a predecessor in repair mode. Copies
            // share the cookie, too, if somebody asked about the handshake; one that is really gone is not found.
            let lives = ends.filter(|ends| engine.tracks(ends)).is_some_and(|ends| {
                let found = diag.find(ends.local, ends.remote, entry.ifindex);
                found.is_ok_and(|f| f.is_some_and(|f| !matches!(f.state, State::TimeWait | State::Listen)))
            });
            if lives {
                engine.closed_copy(SocketId(entry.cookie));
            } else {
                engine.destroyed(SocketId(entry.cookie), ends, now_ms);
            }
        });
        if told.is_err() {
            engine.doubt(now_ms);
        }
        complain("news of sockets that close", told);
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
    let options =
        Options { output_queue: FIRST_QUEUE, input_queue: FIRST_QUEUE, marks: Marks::default(), any_option: false };
    Table::install(options, &[])?.delete()
}

pub(super) fn complain(what: &str, done: io::Result<()>) {
    if let Err(e) = done {
        eprintln!("sealane: TCP-AO: {what}: {e}");
    }
}

/// Whether a packet is ICMP, whose errors the rules queue beside TCP.
fn is_icmp(packet: &[u8]) -> bool {
    match packet.first().map(|b| b >> 4) {
        Some(4) => packet.get(9) == Some(&(libc::IPPROTO_ICMP as u8)),
        Some(6) => packet.get(6) == Some(&(libc::IPPROTO_ICMPV6 as u8)),
        _ => false,
    }
}

/// The kernel's sockets, for the engine.
struct Sockets {
    diag: SockDiag,
    shared: Arc<Shared>,
}

impl Kernel for Sockets {
    fn find(&mut self, local: SocketAddr, remote: SocketAddr, device: u32) -> Option<Found> {
        let found = |e: Entry| Found { id: SocketId(e.cookie), state: e.state, vrf: 0 };
        let entry = self.diag.find(local, remote, device).ok()??;
        if entry.state != State::NewSynRecv {
            return Some(found(entry));
        }
        // Its keys are the listener's.
        self.diag.listener(local, remote, device).ok()?.map(found)
    }

    fn configured(&mut self, ends: &Ends) -> Option<u32> {
        self.shared.policy.read().as_ref()?(ends)
    }

    fn has(&mut self, ends: &Ends, device: u32) -> Option<bool> {
        match self.diag.find(ends.local, ends.remote, device).ok()?.map(|e| e.state) {
            Some(State::NewSynRecv) => None,
            state => Some(state.is_some_and(|s| s != State::Listen)),
        }
    }
}

/// What is to be known of a packet that leaves, besides what the engine needs.
struct About {
    id: u32,
    superframe: bool,
    device: u32,
    bound: bool,
}

/// Whether sockets are bound to their device, asked once in a while.
#[derive(Default)]
struct Bound(HashMap<Ends, bool>);

impl Bound {
    fn is(&mut self, packet: &[u8], device: u32, diag: &mut SockDiag) -> bool {
        let Ok(at) = ip::Layout::find(packet) else { return false };
        let (local, remote) = ip::sockets(packet, &at);
        *self.0.entry(Ends::new(local, remote)).or_insert_with(|| {
            let link_local = matches!(remote.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local());
            link_local || diag.find(local, remote, device).is_ok_and(|f| f.is_some_and(|f| f.ifindex != 0))
        })
    }

    fn forget(&mut self) {
        self.0.clear();
    }
}

/// MTUs, asked once in a while.
#[derive(Default)]
struct Devices(HashMap<u32, usize>);

impl Devices {
    fn mtu(&mut self, index: u32) -> usize {
        *self.0.entry(index).or_insert_with(|| link::facts(index).map_or(MIN_MTU, |f| f.mtu as usize))
    }

    fn forget(&mut self) {
        self.0.clear();
    }
}
