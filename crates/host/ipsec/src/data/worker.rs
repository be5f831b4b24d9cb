//! The threads of a data path: each moves packets between a TUN device and the wire.

use crate::bypass::fast_in::{FastIn, MAX_DEVICES};
use crate::bypass::fast_out::FastOut;
use crate::control::path::Shared;
use crate::data::flight::Flights;
use crate::data::inbound::Source;
use crate::data::join::{Kept, settle};
use crate::data::lane::{Intake, Lane};
use crate::data::ports::{Lent, Port, close_unused};
use crate::data::routes::Routes;
use crate::data::tables::Tables;
use parking_lot::Mutex;
use sealane_abi::socket::NAT_T;
use sealane_config::DEVICE;
use sealane_engine_xfrm::device::crypto::Direction;
use sealane_net::wire::gso::Cutter;
use sealane_sys::cpu;
use sealane_sys::esp::{RawEsp, Received, UdpEsp};
use sealane_sys::nft::Marks;
use sealane_sys::poll::{Waker, ready, sleep_precisely};
use sealane_sys::raw::Raw;
use sealane_sys::route::Narrow;
use sealane_sys::shard::Shard;
use sealane_sys::tun::Tun;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
pub(crate) fn most_udp(raw: usize) -> usize {
    FDS.saturating_sub(3 + MAX_DEVICES + raw)
}

/// The thread's own.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// Whose states and policies its packets go by.
    pub(crate) tables: Tables,
    pub(crate) post: Post,
    pub(crate) tun: Tun,
    pub(crate) udp: Vec<Arc<UdpEsp>>,
    /// Sockets of other ports that other workers read.
    pub(crate) lent: Lent,
    /// Its own that no state had when it looked last.
    unused: BTreeSet<Port>,
    pub(crate) raw: Vec<Arc<RawEsp>>,
    /// How many of the sockets of UDP all threads have: one of them reads them.
    common: usize,
    pub(crate) out: Raw,
    pub(crate) fast_out: Option<FastOut>,
    pub(crate) fast_in: Option<FastIn>,
    pub(crate) routes: Routes,
    /// Frames of the TUN device, and how far the one at hand is cut.
    pub(crate) intake: Intake,
    pub(crate) cutting: Option<(core::ops::Range<usize>, Cutter)>,
    /// What a socket gave, and how far it is taken.
    pub(crate) received: Box<[u8]>,
    pub(crate) pending: Option<(Source, Received, usize)>,
    /// A superframe that grows.
    pub(crate) kept: Kept,
    /// Bursts, empty ones and those that are with a device.
    pub(crate) flights: Flights,
    /// How long it looks for packets before it sleeps.
    pub(crate) spin: Duration,
}

/// What a thread is woken and ended by.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) waker: Arc<Waker>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Sockets of a worker of the stack, or of all of them.
#[derive(Clone, Default)]
pub(crate) struct Sockets {
    pub(crate) udp: Vec<Arc<UdpEsp>>,
    pub(crate) raw: Vec<Arc<RawEsp>>,
}

impl Sockets {
    /// Those of each of so many workers.
    pub(crate) fn open(exempt: u32, workers: u32) -> io::Result<Vec<Self>> {
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

impl Worker {
    /// The stack's, in the calling thread's namespace.
    pub(crate) fn open_all(shared: &Arc<Shared>) -> io::Result<Vec<Self>> {
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
    pub(crate) fn open(shared: &Arc<Shared>, tun: Tun, number: u8, post: Post) -> io::Result<Self> {
        let narrow = Some(Arc::new(Mutex::new(Narrow::new(number, tun.index())?)));
        Worker::make(shared, tun, narrow, post, Sockets::all(&shared.sockets), Some(Shard::ALL), None)
    }

    /// An xfrm interface's, between its TUN device and the wire, in the calling thread's namespace. What comes in the stack's
    /// threads open.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open_interface(shared: &Arc<Shared>, tun: Tun, if_id: u32, post: Post) -> io::Result<Self> {
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
    pub(crate) fn run(&mut self) -> io::Result<()> {
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
