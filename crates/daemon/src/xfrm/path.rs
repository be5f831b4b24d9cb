//! The data path of one network namespace: a thread between its TUN device and the wire.

use super::NAT_T;
pub(crate) use super::counters::Counters;
use super::device::mirror::{Elsewhere, Mirror};
use super::fast_in::{FastIn, MAX_DEVICES};
use super::fast_out::FastOut;
use super::flight::Flights;
use super::inbound::Source;
use super::interface::Gates;
use super::join::{Kept, settle};
use super::lane::{Counts, Intake, Lane};
use super::policies::{self, Lead, Leads, wanted, ways};
use super::ports::{Lent, Port, close_unused};
use super::routes::Routes;
use super::tables::{Cores, Tables};
use crate::transport::cpu;
use crate::transport::esp::{RawEsp, Received, UdpEsp};
use crate::transport::netns::Netns;
use crate::transport::nft::Marks;
use crate::transport::nft::ipsec::{Bits, PolicyTable, Refused, Wanted};
use crate::transport::poll::{Waker, ready, sleep_precisely};
use crate::transport::raw::Raw;
use crate::transport::route::{self, Narrow, Way, Ways};
use crate::transport::shard::Shard;
use crate::transport::tun::Tun;
use parking_lot::{Mutex, MutexGuard};
use sealane_engine::xfrm::device::crypto::Direction;
use sealane_engine::xfrm::{Notice, Now, Xfrm};
use sealane_net::ipsec::drop::{Counter, Stat};
use sealane_net::wire::gso::Cutter;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// The TUN device's name.
pub(crate) const DEVICE: &str = "sealane-ipsec";
/// How often time is looked at when nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// How often it is looked for what is old.
const TIDY: Duration = Duration::from_secs(60);
/// How long packets are given that are expected. A tunnel with so many packets has so much latency anyway.
const NAP: Duration = Duration::from_micros(80);
/// Bursts of a socket before others have their turn.
const TURN: usize = 4;
/// Descriptors that are waited for: those of a packet device, which reads what all workers of a stack do otherwise, and some.
const FDS: usize = 128;

/// How many sockets of UDP a thread with so many raw ones can wait for, beside its waker, its queue, addresses and rings.
pub(super) fn most_udp(raw: usize) -> usize {
    FDS.saturating_sub(3 + MAX_DEVICES + raw)
}

/// Tells key managers.
pub(crate) type Publish = Box<dyn Fn(Vec<Notice>) + Send + Sync>;

/// What the threads of a namespace share.
pub(crate) struct Shared {
    xfrm: Mutex<Xfrm>,
    publish: Publish,
    stop: Arc<AtomicBool>,
    /// What wakes the stack's workers, and what each of them has counted.
    workers: Vec<(Arc<Waker>, Arc<Counts>)>,
    pub(super) cores: Cores,
    /// States of the kernel's own IPsec.
    pub(super) elsewhere: Elsewhere,
    /// Each worker's.
    pub(super) sockets: Vec<Sockets>,
    /// Sockets of other ports, each of which one of the stack's workers reads.
    pub(super) ports: Mutex<Lent>,
    /// Where packets of xfrm interfaces come out.
    pub(super) gates: Gates,
    /// Wakes the gateway's thread, if there is one, and whether there is.
    gateway: Mutex<Option<Arc<Waker>>>,
    has_gateway: AtomicBool,
    /// Whether rules of a daemon that died are in force: their policies are not known here.
    leftover: AtomicBool,
    /// Whether rules give marks to what leaves through some states.
    pub(super) marks: AtomicBool,
    pub(crate) counters: Counters,
    pub(super) bits: Bits,
    started: Instant,
}

impl Shared {
    /// What the threads of a namespace are to share, of which so many are the stack's.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn new(netns: &Netns, xfrm: Xfrm, publish: Publish, workers: u32) -> io::Result<Self> {
        let bits = Bits::default();
        let worker = |_| Ok((Arc::new(Waker::new()?), Arc::default()));
        Ok(Shared {
            xfrm: Mutex::new(xfrm),
            publish,
            stop: Arc::default(),
            sockets: netns.run(|| Sockets::open(bits.exempt, workers))?,
            ports: Mutex::default(),
            workers: (0..workers).map(worker).collect::<io::Result<_>>()?,
            cores: Cores::default(),
            elsewhere: Elsewhere::default(),
            gates: Gates::default(),
            gateway: Mutex::default(),
            has_gateway: AtomicBool::new(false),
            leftover: AtomicBool::new(false),
            marks: AtomicBool::new(false),
            counters: Counters::default(),
            bits,
            started: Instant::now(),
        })
    }

    /// The engine.
    pub(crate) fn xfrm(&self) -> MutexGuard<'_, Xfrm> {
        self.xfrm.lock()
    }

    /// The engine, for a worker: that it was another's is counted.
    pub(super) fn contended(&self) -> MutexGuard<'_, Xfrm> {
        self.xfrm.try_lock().unwrap_or_else(|| {
            self.counters.lock_waits.fetch_add(1, Ordering::Relaxed);
            self.xfrm.lock()
        })
    }

    /// Whether the stack has more than one worker.
    pub(super) fn has_several(&self) -> bool {
        self.workers.len() > 1
    }

    /// Whether other threads than one have packets for the stack's tables. Who is wrong about it for a burst only holds them longer.
    pub(super) fn is_contended(&self) -> bool {
        self.has_several() || self.has_gateway.load(Ordering::Relaxed) || self.gates.any()
    }

    /// A gateway's thread is there from now on, which this wakes, or none.
    pub(super) fn set_gateway(&self, waker: Option<Arc<Waker>>) {
        let mut gateway = self.gateway.lock();
        self.has_gateway.store(waker.is_some(), Ordering::Relaxed);
        *gateway = waker;
    }

    /// Wakes the stack's workers.
    pub(super) fn wake(&self) {
        self.workers.iter().for_each(|(waker, _)| waker.wake());
    }

    /// What the path of packets has counted: a line each of a name and a number.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.counters.describe();
        for (i, (_, counts)) in self.workers.iter().enumerate().filter(|_| self.has_several()) {
            let Counts { read, handed_over, taken_over, full } = &**counts;
            for (name, counter) in
                [("read", read), ("handed_over", handed_over), ("taken_over", taken_over), ("full", full)]
            {
                // Writing to a string does not fail.
                let _ = writeln!(text, "worker{i}_{name} {}", counter.load(Ordering::Relaxed));
            }
        }
        text
    }

    /// The time.
    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { monotonic_ns: self.started.elapsed().as_nanos() as u64, wall_s: wall.as_secs() }
    }

    /// Whether rules of a daemon before this one are in force.
    pub(super) fn is_leftover(&self) -> bool {
        self.leftover.load(Ordering::Acquire)
    }

    pub(super) fn tell(&self, notices: Vec<Notice>) {
        if !notices.is_empty() {
            (self.publish)(notices);
        }
    }
}

/// The thread's own.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    /// Whose states and policies its packets go by.
    pub(super) tables: Tables,
    pub(super) post: Post,
    pub(super) tun: Tun,
    pub(super) udp: Vec<Arc<UdpEsp>>,
    /// Sockets of other ports that other workers read.
    pub(super) lent: Lent,
    /// Its own that no state had when it looked last.
    unused: BTreeSet<Port>,
    pub(super) raw: Vec<Arc<RawEsp>>,
    /// How many of the sockets of UDP all threads have: one of them reads them.
    common: usize,
    pub(super) out: Raw,
    pub(super) fast_out: Option<FastOut>,
    pub(super) fast_in: Option<FastIn>,
    pub(super) routes: Routes,
    /// Frames of the TUN device, and how far the one at hand is cut.
    pub(super) intake: Intake,
    pub(super) cutting: Option<(core::ops::Range<usize>, Cutter)>,
    /// What a socket gave, and how far it is taken.
    pub(super) received: Box<[u8]>,
    pub(super) pending: Option<(Source, Received, usize)>,
    /// A superframe that grows.
    pub(super) kept: Kept,
    /// Bursts, empty ones and those that are with a device.
    pub(super) flights: Flights,
    /// How long it looks for packets before it sleeps.
    pub(super) spin: Duration,
}

/// What a thread is woken and ended by.
#[derive(Clone)]
pub(super) struct Post {
    pub(super) waker: Arc<Waker>,
    pub(super) stop: Arc<AtomicBool>,
}

/// Sockets of a worker of the stack, or of all of them.
#[derive(Clone, Default)]
pub(super) struct Sockets {
    pub(super) udp: Vec<Arc<UdpEsp>>,
    pub(super) raw: Vec<Arc<RawEsp>>,
}

impl Sockets {
    /// Those of each of so many workers.
    fn open(exempt: u32, workers: u32) -> io::Result<Vec<Self>> {
        let mut all: Vec<Sockets> = (0..workers).map(|_| Sockets::default()).collect();
        for (v6, protocol) in [(false, 50), (true, 50), (false, 51), (true, 51)] {
            for (index, of) in (0..).zip(&mut all) {
                match RawEsp::open(v6, protocol, exempt, Shard { index, of: workers }) {
                    Err(e) if v6 && e.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
                    socket => of.raw.push(Arc::new(socket?)),
                }
            }
        }
        for v6 in [false, true] {
            // The port of an IKE daemon that shares it not is its own.
            let sockets = UdpEsp::open_all(v6, NAT_T, exempt, workers).unwrap_or_default();
            all.iter_mut().zip(sockets).for_each(|(of, socket)| of.udp.push(Arc::new(socket)));
        }
        Ok(all)
    }

    /// All of them.
    fn all(each: &[Self]) -> Self {
        let udp = each.iter().flat_map(|of| of.udp.iter().cloned()).collect();
        Sockets { udp, raw: each.iter().flat_map(|of| of.raw.iter().cloned()).collect() }
    }
}

/// The data path of a namespace. Rules and routes outlive it, unless it is ended by [`DataPath::stop`].
pub(crate) struct DataPath {
    netns: Netns,
    shared: Arc<Shared>,
    table: Mutex<PolicyTable>,
    leads: Mutex<Leads>,
    /// The names of xfrm interfaces.
    interfaces: Mutex<Vec<String>>,
    ways: Mutex<Ways>,
    mirror: Arc<Mirror>,
    /// For who gives packets to the stack beside its threads.
    tun: Tun,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Ends all workers with the first of them that ends, however it does: nothing of what policies protect passes then.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
        self.0.wake();
    }
}

impl DataPath {
    /// Starts one with so many workers. From now on what the policies protect goes through it, or nowhere.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without its privileges, `ENOENT` without `/dev/net/tun`.
    pub(crate) fn start(netns: Netns, xfrm: Xfrm, publish: Publish, workers: u32) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(&netns, xfrm, publish, workers)?);
        let bits = shared.bits;
        shared.xfrm().look_elsewhere();
        let (workers, mut table) = netns.run(|| Ok((Worker::open_all(&shared)?, PolicyTable::new(DEVICE, bits)?)))?;
        // What policies protected before a crash stays protected until somebody says what is so now.
        if table.is_there() {
            shared.leftover.store(true, Ordering::Release);
        } else {
            table.write(wanted(shared.xfrm().spd(), Vec::new(), &Leads::new(), &BTreeSet::new()))?;
        }
        let tun = workers.first().ok_or(io::ErrorKind::InvalidInput)?.tun.try_clone()?;
        let index = tun.index();
        let mut ways = Ways::default();
        netns.run(|| {
            // Devices may have other numbers now; what these led, marks do.
            ways.clear(bits)?;
            route::lead(bits, 0, index)
        })?;
        let data = DataPath {
            netns,
            shared,
            table: Mutex::new(table),
            leads: Mutex::default(),
            interfaces: Mutex::default(),
            ways: Mutex::new(ways),
            mirror: Arc::default(),
            tun,
            threads: Mutex::default(),
        };
        match data.spawn(workers) {
            Ok(()) => Ok(data),
            Err(e) => {
                data.halt();
                Err(e)
            }
        }
    }

    fn spawn(&self, workers: Vec<Worker>) -> io::Result<()> {
        for (i, mut worker) in workers.into_iter().enumerate() {
            let there = self.netns.try_clone()?;
            let name = if i == 0 { DEVICE.to_owned() } else { format!("{DEVICE}{i}") };
            let alarm = Alarm(self.shared.clone());
            // What a thread that moves from one CPU to another has sent before may arrive behind what it sends then: the kernel has
            // a queue for each. Where several send that happens all the time.
            let cpu = if self.shared.has_several() { cpu::nth(i as u32) } else { None };
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                let alarm = alarm;
                // Where it may not stay it moves packets nevertheless.
                let _ = cpu.map(cpu::stay_on);
                // Paths and sockets of new ports are looked for from here.
                if let Err(e) = there.enter().and_then(|()| worker.run()) {
                    eprintln!(
                        "sealane: the data path of IPsec ended: {e}; what policies protect is dropped from now on"
                    );
                }
                drop(alarm);
            })?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Its TUN device, for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn tun(&self) -> io::Result<Tun> {
        self.tun.try_clone()
    }

    /// How many threads it has.
    pub(super) fn workers(&self) -> u32 {
        self.shared.workers.len() as u32
    }

    /// Whether all of its threads have ended.
    #[cfg(test)]
    pub(super) fn has_ended(&self) -> bool {
        self.threads.lock().iter().all(JoinHandle::is_finished)
    }

    /// Does what a thread that ends does last.
    #[cfg(test)]
    pub(super) fn end_one(&self) {
        drop(Alarm(self.shared.clone()));
    }

    /// What its threads share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Does something with the engine and makes the rules follow before it returns: what a policy says is in force when
    /// its sender hears of it.
    ///
    /// # Errors
    /// The kernel's, when the rules could not be changed: nothing of what they protect passes then.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Xfrm, Now) -> R) -> io::Result<R> {
        let mut table = self.table.lock();
        let now = self.shared.now();
        let (result, rules) = {
            let mut xfrm = self.shared.xfrm();
            let before = (xfrm.spd().changes(), xfrm.output_mark_changes());
            let result = f(&mut xfrm, now);
            // Rules of a daemon before this one stay until somebody says what policies there are now.
            let remarked = xfrm.output_mark_changes() != before.1 && !self.shared.is_leftover();
            let changed = xfrm.spd().changes() != before.0 || remarked || self.mirror.has_changed();
            let leads = self.leads.lock();
            let rules = || (self.wanted(&xfrm, &leads), ways(xfrm.spd(), &leads));
            (result, changed.then(rules))
        };
        if let Some((rules, ways)) = rules {
            table.write(rules)?;
            self.shorten(ways);
            self.mirror.settle();
            self.shared.leftover.store(false, Ordering::Release);
        }
        self.shared.choose_reader();
        self.shared.wake();
        self.shared.gateway.lock().iter().for_each(|gateway| gateway.wake());
        Ok(result)
    }

    /// From now on these are the xfrm interfaces, whose devices are there.
    ///
    /// # Errors
    /// The kernel's, when the rules could not be changed.
    pub(super) fn set_interfaces(&self, interfaces: &[(String, u32)]) -> io::Result<()> {
        let mut table = self.table.lock();
        *self.interfaces.lock() = interfaces.iter().map(|(name, _)| name.clone()).collect();
        let rules = {
            let mut xfrm = self.shared.xfrm();
            xfrm.set_interfaces(interfaces.iter().map(|(_, if_id)| *if_id).collect());
            self.wanted(&xfrm, &self.leads.lock())
        };
        // Rules of a daemon before this one stay until somebody says what policies there are now.
        if self.shared.is_leftover() { Ok(()) } else { table.write(rules) }
    }

    /// What the rules have to say.
    fn wanted(&self, xfrm: &Xfrm, leads: &Leads) -> Wanted {
        let marks = policies::marks(xfrm);
        self.shared.marks.store(!marks.is_empty(), Ordering::Release);
        let interfaces = self.interfaces.lock().clone();
        Wanted { interfaces, ..wanted(xfrm.spd(), marks, leads, &self.mirror.put(xfrm)) }
    }

    /// What became of packets: those that the engine has judged, and those that the rules have dropped.
    pub(crate) fn stat(&self) -> Stat {
        let mut stat = self.shared.xfrm().stat();
        let dropped = self.table.lock().dropped();
        for (why, packets) in Refused::ALL.into_iter().zip(dropped) {
            let counter = match why {
                Refused::Template => Counter::InTmplMismatch,
                Refused::Block => Counter::InPolBlock,
                Refused::Rest => Counter::InNoPols,
            };
            stat.count(counter, packets);
        }
        stat
    }

    /// Leads packets to their devices without a mark. Where that fails marks do it.
    fn shorten(&self, wanted: BTreeSet<Way>) {
        let ways = &mut *self.ways.lock();
        if !ways.are(&wanted)
            && let Err(e) = self.netns.run(|| ways.set(wanted))
        {
            eprintln!("sealane: the routing rules of offload devices: {e}");
            let _ = self.netns.run(|| ways.clear(self.shared.bits));
        }
    }

    /// The policies that the kernel has in our place.
    pub(super) fn mirror(&self) -> &Arc<Mirror> {
        &self.mirror
    }

    /// The number of a TUN device that has none yet, for packet offload; `None` when there are too many.
    pub(crate) fn free_number(&self) -> Option<u8> {
        let leads = self.leads.lock();
        let taken = |n: u8| leads.values().any(|lead| matches!(lead, Lead::Tun(number, _) if *number == n));
        (1..=self.shared.bits.last_device()).find(|n| !taken(*n))
    }

    /// Leads what the policies of an offload device protect there, from now on: to a TUN device, or nowhere when that is gone.
    /// `None` when it has no policies any more.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn lead(&self, ifindex: u32, lead: Option<Lead>) -> io::Result<()> {
        if let Some(Lead::Tun(number, _)) = lead {
            self.netns.run(|| route::lead(self.shared.bits, number, ifindex))?;
        }
        let mut table = self.table.lock();
        let (before, after) = {
            let mut leads = self.leads.lock();
            let before = leads.clone();
            match lead {
                Some(lead) => leads.insert(ifindex, lead),
                None => leads.remove(&ifindex),
            };
            (before, leads.clone())
        };
        // Rules of a daemon before this one stay until somebody says what is so now.
        if before == after || self.shared.is_leftover() {
            return Ok(());
        }
        let (rules, ways) = {
            let xfrm = self.shared.xfrm();
            (self.wanted(&xfrm, &after), ways(xfrm.spd(), &after))
        };
        table.write(rules)?;
        self.shorten(ways);
        self.mirror.settle();
        Ok(())
    }

    /// Ends it in good order: rules and routes go, and what was protected passes in clear.
    pub(crate) fn stop(&self) {
        self.halt();
        let done = self.table.lock().delete().and_then(|()| {
            self.netns.run(|| {
                self.ways.lock().clear(self.shared.bits)?;
                route::lead_no_more(self.shared.bits)
            })
        });
        if let Err(e) = done {
            eprintln!("sealane: taking the rules of IPsec away: {e}");
        }
    }

    /// Ends its threads alone: nothing of what policies protect passes any more.
    pub(crate) fn halt(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        for thread in core::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }
}

impl Worker {
    /// The stack's, in the calling thread's namespace.
    fn open_all(shared: &Arc<Shared>) -> io::Result<Vec<Self>> {
        let queues = Tun::open_queues(DEVICE, shared.workers.len())?;
        let index = queues.first().map_or(0, Tun::index);
        let narrow = Some(Arc::new(Mutex::new(Narrow::new(0, index)?)));
        let lanes = Lane::all(&shared.workers).into_iter().map(|lane| Some(lane).filter(|_| shared.has_several()));
        let each = lanes.zip(queues).zip(shared.workers.iter().zip(&shared.sockets));
        each.map(|((lane, tun), ((waker, _), sockets))| {
            let shard = lane.as_ref().map_or(Shard::ALL, |lane| Shard { index: lane.index(), of: lane.of() });
            let post = Post { waker: waker.clone(), stop: shared.stop.clone() };
            Worker::make(shared, tun, narrow.clone(), post, sockets.clone(), Some(shard), lane)
        })
        .collect()
    }

    /// A device's, between a TUN device of a number and the wire, in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(shared: &Arc<Shared>, tun: Tun, number: u8, post: Post) -> io::Result<Self> {
        let narrow = Some(Arc::new(Mutex::new(Narrow::new(number, tun.index())?)));
        Worker::make(shared, tun, narrow, post, Sockets::all(&shared.sockets), Some(Shard::ALL), None)
    }

    /// An xfrm interface's, between its TUN device and the wire, in the calling thread's namespace. What comes in the stack's
    /// threads open.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open_interface(shared: &Arc<Shared>, tun: Tun, if_id: u32, post: Post) -> io::Result<Self> {
        // For sending any socket of the port will do.
        let sockets = shared.sockets.first().cloned().unwrap_or_default();
        let worker = Worker::make(shared, tun, None, post, sockets, None, None)?;
        Ok(Worker { tables: Tables::Interface(if_id), ..worker })
    }

    fn make(
        shared: &Arc<Shared>,
        tun: Tun,
        narrow: Option<Arc<Mutex<Narrow>>>,
        post: Post,
        sockets: Sockets,
        shard: Option<Shard>,
        lane: Option<Lane>,
    ) -> io::Result<Self> {
        let exempt = shared.bits.exempt;
        let marks = Marks::new(exempt);
        let out = Raw::open(marks)?;
        out.ignore_learnt_mtu()?;
        let routes = Routes::new(narrow, exempt)?;
        let Sockets { udp, raw } = sockets;
        Ok(Worker {
            shared: shared.clone(),
            tables: Tables::Stack,
            flights: Flights::new(post.waker.clone()),
            post,
            tun,
            common: udp.len(),
            udp,
            lent: Lent::new(),
            unused: BTreeSet::new(),
            fast_in: shard.and_then(|shard| FastIn::new(&raw, marks.verified(), shard)),
            raw,
            fast_out: FastOut::new(&out, marks),
            out,
            routes,
            intake: Intake::new(lane),
            cutting: None,
            received: vec![0; 65_536].into(),
            pending: None,
            kept: Kept::new(),
            spin: Duration::ZERO,
        })
    }

    /// Moves packets until it is told to stop.
    ///
    /// # Errors
    /// The kernel's: nothing passes any more.
    pub(super) fn run(&mut self) -> io::Result<()> {
        sleep_precisely();
        cpu::be_preferred();
        let [mut tidied, mut looked, mut worked, mut closed] = [Instant::now(); 4];
        let mut again: Option<Source> = None;
        let (mut cutting, mut ringing) = (false, false);
        while !self.post.stop.load(Ordering::Acquire) {
            // Many packets come one after another: a nap lets them come together, and wakes nobody in between.
            if ringing && again.is_none() && !cutting {
                std::thread::sleep(NAP);
            }
            let landed = self.land();
            // While nobody says by its place which socket something came from.
            if self.udp.len() > self.common
                && self.routes.now().duration_since(closed) > TIDY
                && again.is_none()
                && self.flights.is_empty(Direction::Decrypt)
            {
                closed = self.routes.now();
                close_unused(&mut self.udp, self.common, &self.shared, &mut self.unused);
            }
            // What a device takes no more of waits in the kernel.
            let room = self.flights.has_room();
            let busy = landed || room && (again.is_some() || cutting || ringing || self.intake.has_mail());
            if busy {
                worked = self.routes.now();
            }
            let spins = !self.spin.is_zero() && self.routes.now().duration_since(worked) < self.spin;
            let worked_since = busy || spins || self.flights.arm() && self.land() || room && self.intake.arm();
            let wait = if worked_since { Duration::ZERO } else { TICK };
            // Nothing is read of its queue as long as others have no room for what is theirs.
            let queue = if self.intake.is_held() { self.post.waker.as_fd() } else { self.tun.as_fd() };
            let fds = [self.post.waker.as_fd(), queue, self.routes.as_fd()];
            // The ports that it has alone it reads alone.
            let reads = !matches!(self.tables, Tables::Interface(_)) && self.shared.cores.reads(self.tables.number());
            let (first, raw) = if reads { (0, self.raw.len()) } else { (self.common, 0) };
            let sockets = self.udp[first..].iter().map(|s| s.as_fd()).chain(self.raw[..raw].iter().map(|s| s.as_fd()));
            let rings = self.fast_in.iter().flat_map(FastIn::fds);
            let before = 3 + self.fast_in.as_ref().map_or(0, |fast| fast.fds().count());
            let all = fds.into_iter().chain(rings).chain(sockets).take(if room { FDS } else { 1 });
            let woken = ready::<FDS>(all, wait);
            self.intake.disarm();
            self.routes.tick();
            if woken.contains(&true) {
                worked = self.routes.now();
            }
            if let Tables::Device(device) = &self.tables
                && self.routes.now().duration_since(looked) >= TICK
            {
                looked = self.routes.now();
                if device.core.handle_timeout(self.shared.now()) {
                    device.events.wake();
                }
            }
            if self.routes.now().duration_since(tidied) > TIDY && self.routes.tidy() {
                tidied = self.routes.now();
            }
            let is = |i: usize| woken.get(i).copied().unwrap_or(false);
            if is(0) {
                self.post.waker.drain();
            }
            if is(2) {
                self.routes.locals().refresh()?;
            }
            if is(1) || cutting || self.intake.has_mail() || self.intake.is_held() {
                cutting = self.outbound()? && self.cutting.is_some();
            }
            ringing = self.rings((3..before).any(is), reads)?;
            let before_that = again.take();
            let udp = self.udp.len();
            for i in 0..udp + self.raw.len() {
                let source = if i < udp { Source::Udp(i) } else { Source::Raw(i - udp) };
                let begun = before_that == Some(source);
                let ready = i >= first && i < udp + raw && is(before + i - first);
                if (ready || begun) && self.take(source)? {
                    again = Some(source);
                }
            }
            if let Some((source, ..)) = self.pending {
                again = Some(source);
            }
            if again.is_none() && !ringing {
                settle(&mut self.kept, &self.flights, &mut self.tun, &self.shared.counters);
            }
        }
        Ok(())
    }

    /// Opens what a socket has, as long as others can wait; whether there may be more.
    ///
    /// # Errors
    /// The socket's.
    fn take(&mut self, source: Source) -> io::Result<bool> {
        for _ in 0..TURN {
            if !self.inbound(source)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Takes rules and routes of a daemon that has ended away, in the calling thread's namespace: what was protected passes in
/// clear.
///
/// # Errors
/// When a running daemon owns them, or the kernel's.
pub(crate) fn clear() -> io::Result<()> {
    let bits = Bits::default();
    PolicyTable::new(DEVICE, bits)?.delete()?;
    Ways::default().clear(bits)?;
    route::lead_no_more(bits)
}
