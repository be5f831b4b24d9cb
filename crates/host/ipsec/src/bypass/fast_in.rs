//! ESP on its way in past the stack: from the ring of its device, while a rule keeps the stack from the same packets.
//!
//! A state that is busy earns it, by authentic packets. The rule ([`IngressTable`]) goes with us when we die; then, and for
//! fragments, IP options, VLANs' parents and devices that are not Ethernet, packets come by the raw sockets. Of each state one
//! packet in 256 goes to the stack as well, marked: its copy is not looked at, but shows that filters would let all of them
//! pass. When none arrives any more, the state goes back to the sockets, which those filters stand in front of.

use crate::data::counters::Counters;
use crate::data::flight::{ARENA_LEN, Arrival, Begun, Origin};
use crate::data::shared::Shared;
use crate::data::sockets::SocketId;
use crate::data::worker::Worker;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::BURST;
use sealane_engine_xfrm::device::crypto::Direction;
use sealane_net::ipsec::burst::Jobs;
use sealane_net::ipsec::open::{Inbound, Opened};
use sealane_net::ipsec::packet::Packet;
use sealane_sys::esp::{RawEsp, Received};
use sealane_sys::fast_path::{Barred, Demand, IDLE_TICKS, Idle, TICK};
use sealane_sys::link;
use sealane_sys::nft::ingress::{EspWay, IngressTable};
use sealane_sys::poll::ready;
use sealane_sys::ring::Ring;
use sealane_sys::shard::Shard;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Instant;

/// The most devices with a ring.
pub(crate) const MAX_DEVICES: usize = 8;
/// The most states that take it.
const MAX_FLOWS: usize = 1024;
/// So many ticks with packets of which none is authentic do as well.
const STRANGE_TICKS: u8 = 2;
/// Of so many packets some must have come by the sockets too.
const UNSEEN: u32 = 2048;
/// Bursts that a ring or a socket may hold when a state changes its way.
const MAX_HELD: usize = 512;
/// Packets of one look at a ring from which on more are expected.
const MANY: usize = 8;
/// Bursts of a ring before others have their turn.
const TURN: usize = 2;

/// How busy a state is that takes it.
#[derive(Debug, Default)]
struct Activity {
    /// Authentic packets since the last tick.
    packets: u32,
    idle: Idle,
    /// Authentic packets since one came by a socket.
    unseen: u32,
    /// Whether there were packets since the last tick, authentic or not.
    any: bool,
    /// For how many ticks none of its packets was authentic.
    strange_ticks: u8,
}

struct Device {
    ring: Ring,
    /// For how many ticks no state has needed it.
    idle_ticks: u8,
    /// Whether packets are, or may be, too long for it.
    truncated: bool,
    /// Whether the device went down, or away.
    failed: bool,
}

impl Device {
    /// Whether it is of no use any more.
    fn is_unfit(&self) -> bool {
        self.truncated || self.failed
    }
}

/// Packets that came, or come, both ways while a state changes from one to the other.
#[derive(Debug, Default)]
enum Changing {
    #[default]
    Not,
    /// The sockets' numbers are noted.
    Note(EspWay, HashSet<u32>),
    /// The ring's numbers are noted.
    NoteRing(EspWay, HashSet<u32>),
    /// Packets with these numbers have been.
    Skip(EspWay, HashSet<u32>),
}

impl Changing {
    /// Whether a packet, of the ring or of a socket, has been.
    fn had(&mut self, way: EspWay, number: u32, ring: bool) -> bool {
        match self {
            Changing::Note(of, noted) if *of == way && !ring => {
                noted.insert(number);
                false
            }
            Changing::NoteRing(of, noted) if *of == way && ring => {
                noted.insert(number);
                false
            }
            Changing::Skip(of, noted) if *of == way => noted.remove(&number),
            _ => false,
        }
    }

    /// From noting to skipping.
    fn turn(&mut self) {
        *self = match core::mem::take(self) {
            Changing::Note(way, noted) | Changing::NoteRing(way, noted) => Changing::Skip(way, noted),
            other => other,
        };
    }
}

/// What a thread of its own has done: the kernel waits for all its CPUs to make or end a ring or a chain, and packets cannot.
struct Away {
    table: IngressTable,
    opened: Option<(u32, io::Result<Ring>)>,
    drops: u64,
}

/// The fast path of one worker.
pub(crate) struct FastIn {
    /// Not while a thread has it.
    table: Option<IngressTable>,
    away: Option<JoinHandle<Away>>,
    /// The mark of packets that come both ways.
    mark: u32,
    shard: Shard,
    demand: Demand<EspWay>,
    wanted: Vec<EspWay>,
    devices: BTreeMap<u32, Device>,
    ways: HashMap<EspWay, Activity>,
    /// States that filters hold back, and devices that cannot have it.
    barred: Barred<EspWay>,
    unable: Barred<u32>,
    changing: Changing,
    ticked: Instant,
    /// Packets that did not fit into rings which are gone.
    drops: u64,
}

/// What becomes of a packet that a raw socket gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    /// It is to be opened; whose it is, if it could take the ring.
    Open(Option<EspWay>),
    /// It has been.
    Had,
}

/// The sequence number's lower half, in front of which the SPI stands.
fn number(esp: &[u8]) -> Option<(u32, u32)> {
    let (spi, rest) = esp.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*spi), u32::from_be_bytes(*rest.first_chunk()?)))
}

/// Whose a packet of a device's ring is, and its number.
fn named(device: u32, packet: &[u8]) -> Option<(EspWay, u32)> {
    let (destination, esp): (IpAddr, _) = match packet.first()? >> 4 {
        4 => ((*packet.get(16..20)?.first_chunk::<4>()?).into(), packet.get(20..)?),
        _ => ((*packet.get(24..40)?.first_chunk::<16>()?).into(), packet.get(40..)?),
    };
    let (spi, number) = number(esp)?;
    Some((EspWay { device, destination, spi }, number))
}

impl FastIn {
    /// That of a worker of these states, without any; `mark` is that of packets which come both ways. None where the kernel is too
    /// old.
    pub(crate) fn new(raw: &[Arc<RawEsp>], mark: u32, shard: Shard) -> Option<Self> {
        raw.iter().try_for_each(|socket| socket.tell_marks()).ok()?;
        let now = Instant::now();
        Some(FastIn {
            table: Some(IngressTable::new(mark, shard.index).ok()?),
            away: None,
            mark,
            shard,
            demand: Demand::new(now),
            wanted: Vec::new(),
            devices: BTreeMap::new(),
            ways: HashMap::new(),
            barred: Barred::default(),
            unable: Barred::default(),
            changing: Changing::Not,
            ticked: now,
            drops: 0,
        })
    }

    /// What becomes readable when packets arrive.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.devices.values().filter(|device| !device.failed).map(|device| device.ring.as_fd())
    }

    /// Looks at what a raw socket of ESP gave.
    pub(crate) fn given(&mut self, read: &Received, esp: &[u8]) -> Given {
        let Some((spi, number)) = number(esp) else { return Given::Open(None) };
        let way = EspWay { device: read.device, destination: read.outer.destination, spi };
        if read.mark == self.mark {
            if let Some(activity) = self.ways.get_mut(&way) {
                activity.unseen = 0;
            }
            return Given::Had;
        }
        if self.changing.had(way, number, false) {
            return Given::Had;
        }
        Given::Open(Some(way))
    }

    /// Counts an authentic packet that a ring gave.
    pub(crate) fn carried(&mut self, way: EspWay, counters: &Counters) {
        carried(&mut self.ways, Some(way));
        counters.fast_in.fetch_add(1, Relaxed);
    }

    /// Counts an authentic packet that a raw socket gave.
    pub(crate) fn count(&mut self, way: EspWay, now: Instant) {
        if self.unable.contains(&way.device) || way.destination.is_multicast() || !self.demand.count(way, now) {
            return;
        }
        if self.ways.len() < MAX_FLOWS && !self.ways.contains_key(&way) && !self.barred.contains(&way) {
            self.wanted.push(way);
        }
    }

    /// Makes the rule for a state, whose packets so far are in the sockets; where its device is not open, that is begun, and it
    /// has to come again. From here on the numbers of its packets are noted.
    fn begin(&mut self, way: EspWay, now: Instant) -> bool {
        if self.ways.contains_key(&way) || self.unable.contains(&way.device) {
            return false;
        }
        let Some(device) = self.devices.get_mut(&way.device) else {
            self.open(way.device, now);
            return false;
        };
        let Some(table) = &mut self.table else { return false };
        skip(&mut device.ring);
        if table.take(way, true).is_err() {
            self.unable.insert(way.device, (), now);
            return false;
        }
        self.ways.insert(way, Activity::default());
        self.changing = Changing::Note(way, HashSet::new());
        true
    }

    /// Begins to open a device.
    fn open(&mut self, index: u32, now: Instant) {
        if self.devices.len() == MAX_DEVICES {
            return;
        }
        let Some(mut table) = self.table.take() else { return };
        let shard = self.shard;
        let open = move || {
            let ring = open(index, &mut table, shard);
            Away { table, opened: Some((index, ring)), drops: 0 }
        };
        self.send_away(open, now);
    }

    /// Has a thread do something, in this one's namespace.
    fn send_away(&mut self, job: impl FnOnce() -> Away + Send + 'static, now: Instant) {
        match std::thread::Builder::new().name("sealane-rings".into()).spawn(job) {
            Ok(thread) => self.away = Some(thread),
            // The table went with the job. Whoever has no threads goes by the sockets.
            Err(_) => {
                self.ways.clear();
                self.devices.clear();
                self.table = IngressTable::new(self.mark, self.shard.index).ok();
                self.ticked = now;
            }
        }
    }

    /// Takes up what the thread has done.
    fn come_back(&mut self, now: Instant) {
        let Some(thread) = self.away.take_if(|thread| thread.is_finished()) else { return };
        let Ok(Away { table, opened, drops }) = thread.join() else { return };
        self.table = Some(table);
        self.drops += drops;
        match opened {
            Some((index, Ok(ring))) => {
                self.devices.insert(index, Device { ring, idle_ticks: 0, truncated: false, failed: false });
            }
            Some((index, Err(_))) => {
                self.unable.insert(index, (), now);
            }
            None => {}
        }
    }

    /// Who is to go back to the sockets: idle, held back by filters, or of a device or address that is not there any more.
    fn tick(&mut self, now: Instant, is_local: impl Fn(IpAddr) -> bool) -> Vec<EspWay> {
        self.ticked = now;
        self.barred.expire(now);
        self.unable.expire(now);
        let (ways, barred) = (&mut self.ways, &mut self.barred);
        for (index, device) in &mut self.devices {
            device.truncated |= link::facts(*index).is_ok_and(|now| now.mtu > device.ring.max_packet());
            device.failed |= device.ring.failed();
        }
        let unfit: Vec<u32> = self.devices.iter().filter(|(_, d)| d.is_unfit()).map(|(index, _)| *index).collect();
        let leaving = ways.iter_mut().filter_map(|(way, activity)| {
            let idle = activity.idle.tick(activity.packets);
            // A state that we have no more may be another's now, which the rule must not keep its packets from.
            let strange = activity.any && activity.packets == 0;
            activity.strange_ticks = if strange { activity.strange_ticks + 1 } else { 0 };
            (activity.packets, activity.any) = (0, false);
            let held = activity.unseen > UNSEEN;
            if held {
                barred.insert(*way, (), now);
            }
            let strange = activity.strange_ticks >= STRANGE_TICKS;
            (held || idle || strange || unfit.contains(&way.device) || !is_local(way.destination)).then_some(*way)
        });
        leaving.collect()
    }

    /// Closes devices that nobody uses, and counts what did not fit into rings.
    fn tidy(&mut self, shared: &Shared) {
        for (index, device) in &mut self.devices {
            let used = self.ways.keys().any(|way| way.device == *index);
            device.idle_ticks = if used { 0 } else { device.idle_ticks + 1 };
        }
        let unused = |device: &Device| device.idle_ticks > IDLE_TICKS || (device.idle_ticks > 0 && device.is_unfit());
        let unused = self.devices.iter().find(|(_, device)| unused(device)).map(|(index, _)| *index);
        if let Some(index) = unused
            && let Some(mut table) = self.table.take()
            && let Some(Device { mut ring, .. }) = self.devices.remove(&index)
        {
            let close = move || {
                // Gone with the device is as good.
                let _ = table.remove_device(index);
                Away { table, opened: None, drops: ring.drops() }
            };
            self.send_away(close, self.ticked);
        }
        let drops: u64 = self.devices.values_mut().map(|device| device.ring.drops()).sum();
        shared.counters.ring_drops.store(self.drops + drops, Relaxed);
    }
}

/// Makes all that a device needs.
fn open(index: u32, table: &mut IngressTable, shard: Shard) -> io::Result<Ring> {
    let facts = link::facts(index)?;
    if !facts.ethernet {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let ring = Ring::open_esp(index, facts.mtu, shard)?;
    table.add_device(index, &link::name(index)?)?;
    Ok(ring)
}

/// Forgets what is in a ring.
fn skip(ring: &mut Ring) {
    for _ in 0..MAX_HELD {
        if ring.read(BURST, |_| {}) == 0 {
            break;
        }
        ring.release(ring.next());
    }
}

impl Worker {
    /// Opens what the rings have, and moves flows to the rings and back. Returns whether more packets are expected. With `woken` one of
    /// [`FastIn::fds`] was readable; with `reads` the sockets are this worker's.
    ///
    /// # Errors
    /// A socket's.
    pub(crate) fn rings(&mut self, woken: bool, reads: bool) -> io::Result<bool> {
        let Some(fast) = &mut self.rx.fast else { return Ok(false) };
        let now = self.tables.routes.now();
        let mut more = false;
        let devices: ArrayVec<u32, MAX_DEVICES> = fast.devices.keys().copied().collect();
        let due = now.duration_since(fast.ticked) > TICK;
        let mut any = false;
        for &device in &devices {
            for _ in 0..TURN {
                let read = self.ring(device);
                any |= read > 0;
                more |= read >= MANY;
                if read < BURST {
                    break;
                }
            }
        }
        if woken
            && !any
            && let Some(fast) = &mut self.rx.fast
        {
            // Woken for nothing: an error would wake us again and again.
            fast.devices.values_mut().for_each(|device| device.failed |= device.ring.failed());
        }
        while let Some(way) = self.rx.fast.as_mut().and_then(|fast| fast.wanted.pop()) {
            self.promote(way)?;
        }
        if let Some(fast) = &mut self.rx.fast {
            fast.come_back(now);
        }
        if due && self.rx.fast.as_ref().is_some_and(|fast| fast.table.is_some()) {
            let Worker { rx, tables, .. } = self;
            let Some(fast) = &mut rx.fast else { return Ok(false) };
            // Another worker's states are in its rings.
            let leaving = fast.tick(now, |address| reads && tables.routes.has(address));
            for way in leaving {
                self.demote(way)?;
            }
            if let Some(fast) = &mut self.rx.fast {
                fast.tidy(&self.shared);
            }
        }
        Ok(more)
    }

    /// Takes a flow's packets from the ring instead of the sockets.
    fn promote(&mut self, way: EspWay) -> io::Result<()> {
        let now = self.tables.routes.now();
        if !self.rx.fast.as_mut().is_some_and(|fast| fast.begin(way, now)) {
            return Ok(());
        }
        // What came before the rule is in the sockets, and perhaps in the ring too.
        self.drain_sockets()?;
        self.skip_noted();
        self.drain_ring(way.device);
        self.end_change();
        Ok(())
    }

    /// Leaves a flow's packets to the sockets again.
    fn demote(&mut self, way: EspWay) -> io::Result<()> {
        self.drain_ring(way.device);
        if let Some(fast) = &mut self.rx.fast {
            // An error means that the table is not there, or the element.
            let _ = fast.table.as_mut().map(|table| table.take(way, false));
            fast.changing = Changing::NoteRing(way, HashSet::new());
        }
        self.drain_ring(way.device);
        if let Some(fast) = &mut self.rx.fast {
            fast.ways.remove(&way);
        }
        self.skip_noted();
        self.drain_sockets()?;
        self.end_change();
        Ok(())
    }

    fn skip_noted(&mut self) {
        if let Some(fast) = &mut self.rx.fast {
            fast.changing.turn();
        }
    }

    fn end_change(&mut self) {
        if let Some(fast) = &mut self.rx.fast {
            fast.changing = Changing::Not;
        }
    }

    /// Opens what is in the raw sockets of ESP at this moment.
    fn drain_sockets(&mut self) -> io::Result<()> {
        while let Some(socket) = self.rx.pending() {
            self.make_room();
            self.inbound(socket)?;
        }
        for i in 0..self.rx.raw().len() {
            for _ in 0..MAX_HELD {
                self.make_room();
                if !self.inbound(SocketId::Raw(i))? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Opens what is in a ring at this moment.
    fn drain_ring(&mut self, device: u32) {
        for _ in 0..MAX_HELD {
            self.make_room();
            if self.ring(device) < BURST {
                break;
            }
        }
    }

    /// Opens a burst of what a ring has and gives it to the stack. Returns how many packets it had; [`BURST`] if there may be more.
    fn ring(&mut self, device: u32) -> usize {
        if !self.flights.has_room() {
            self.settle();
            return 0;
        }
        let Worker { shared, tables, flights, stack, rx, .. } = self;
        let Some(FastIn { devices, ways, changing, .. }) = &mut rx.fast else { return 0 };
        let Some(Device { ring, truncated, .. }) = devices.get_mut(&device) else { return 0 };
        let mut packets: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
        let mut arrivals: ArrayVec<Arrival, BURST> = ArrayVec::new();
        // As many as can be copied.
        let most = BURST.min(ARENA_LEN / ring.frame_len());
        let read = ring.read(most, |frame| {
            *truncated |= frame.truncated;
            let Some((way, number)) = named(device, frame.packet()) else { return };
            let taken = arrivals.last().is_some_and(|last| last.flow == Some(way)) || ways.contains_key(&way);
            if taken && !frame.truncated && !changing.had(way, number, true) {
                let (buffer, at) = frame.into_buffer();
                packets.push(Inbound::new(Packet::new(buffer, at.start, at.end)));
                arrivals.push(Arrival { at: 0, flow: Some(way) });
            }
        });
        if !packets.is_empty() {
            let mut jobs = Jobs::new();
            match tables.inbound(shared, &mut packets, &mut jobs) {
                None if flights.is_empty(Direction::Decrypt) => {
                    // What a full burst began the next one may continue.
                    stack.deliver(shared, &packets, read == most);
                    let authentic = packets
                        .iter()
                        .zip(&arrivals)
                        .filter(|(packet, _)| matches!(packet.status, Ok(Opened::Packet { .. })));
                    let mut all = 0;
                    for (_, arrival) in authentic {
                        all += 1;
                        carried(ways, arrival.flow);
                    }
                    shared.counters.fast_in.fetch_add(all, Relaxed);
                }
                locked => {
                    // The ring's frames are wanted back: what waits lies elsewhere.
                    let begun = flights.begin().and_then(|mut burst| {
                        Begun::copied(&packets, &arrivals, Origin::Ring, &mut burst).map(|begun| (begun, burst))
                    });
                    match (locked, begun) {
                        (Some(locked), Some((begun, burst))) => {
                            flights.submit(burst, Direction::Decrypt, begun, jobs, &locked.xfrm);
                            locked.tell();
                        }
                        (None, Some((begun, burst))) => flights.enqueue(burst, Direction::Decrypt, begun),
                        (locked, None) => drop(locked),
                    }
                }
            }
        }
        drop(packets);
        // One of a burst will do.
        let first = arrivals.first().and_then(|first| first.flow);
        if let Some(activity) = first.and_then(|way| ways.get_mut(&way)) {
            activity.any = true;
        }
        ring.release(ring.next());
        if read < most {
            self.settle();
        }
        // A full read means there may be more.
        if read == most { BURST } else { read }
    }

    /// Waits until a burst can be begun, where all are with a core.
    fn make_room(&mut self) {
        while !self.flights.has_room() {
            if !self.complete() && self.flights.arm() && !self.complete() {
                ready::<1>(core::iter::once(self.post.waker.as_fd()), TICK);
                self.post.waker.drain();
            }
        }
    }
}

/// Counts an authentic packet of a flow that has the ring.
fn carried(ways: &mut HashMap<EspWay, Activity>, way: Option<EspWay>) {
    if let Some(activity) = way.and_then(|way| ways.get_mut(&way)) {
        activity.packets = activity.packets.saturating_add(1);
        activity.unseen = activity.unseen.saturating_add(1);
    }
}
