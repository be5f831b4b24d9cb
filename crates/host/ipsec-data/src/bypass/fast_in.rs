//! The inbound fast path of ESP: packets are read from the ring of their device, while a rule keeps them from the
//! stack.
//!
//! A flow earns it by authentic packets. The rule ([`IngressTable`]) is gone when the daemon dies; then, and for
//! fragments, IP options, parents of VLANs and devices that are not Ethernet, packets come by the raw sockets. One
//! packet in 256 of each flow goes to the stack as well, marked: the copy is not opened, but shows that filters would
//! let all of them pass. When none arrives any more the flow goes back to the sockets, behind those filters.

use crate::counters::Counters;
use crate::shared::Shared;
use sealane_engine_xfrm::data::BURST;
use sealane_packets::esp::{RawEsp, Received};
use sealane_packets::fast_path::{Barred, Demand, IDLE_TICKS, Idle, WINDOW};
use sealane_packets::ring::Ring;
use sealane_packets::shard::Shard;
use sealane_rules::ingress::{EspFlow, IngressTable};
use sealane_sys::aside::Aside;
use sealane_sys::link;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tracing::{debug, warn};

/// The most devices with a ring.
pub(crate) const MAX_DEVICES: usize = 8;
/// The most flows that take it.
const MAX_FLOWS: usize = 1024;
/// A flow loses it after so many ticks with packets of which none is authentic.
const STRANGE_TICKS: u8 = 2;
/// One of this many packets at least must have come by the sockets too.
const UNSEEN: u32 = 2048;
/// The most bursts that are read from a ring or a socket when a flow is moved.
pub(super) const MAX_HELD: usize = 512;
/// The activity of a flow that takes it.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Authentic packets since the last tick.
    packets: u32,
    idle: Idle,
    /// Authentic packets since one came by a socket.
    unseen: u32,
    /// Whether there were packets since the last tick, authentic or not.
    pub(super) any: bool,
    /// The number of ticks in a row without an authentic packet.
    strange_ticks: u8,
}

pub(super) struct RingDevice {
    pub(super) ring: Ring,
    /// The number of ticks in a row without a flow.
    idle_ticks: u8,
    /// Whether packets are, or may be, too long for it.
    pub(super) truncated: bool,
    /// Whether the device went down, or away.
    pub(super) failed: bool,
}

impl RingDevice {
    /// Whether the ring is to be closed.
    fn is_unfit(&self) -> bool {
        self.truncated || self.failed
    }
}

/// Packets that come by ring and socket while a flow is moved from one to the other.
#[derive(Debug, Default)]
pub(super) enum Handover {
    #[default]
    Not,
    /// The sockets' numbers are noted.
    Note(EspFlow, HashSet<u32>),
    /// The ring's numbers are noted.
    NoteRing(EspFlow, HashSet<u32>),
    /// Packets with these numbers were opened already.
    Skip(EspFlow, HashSet<u32>),
}

impl Handover {
    /// Whether a packet, of the ring or of a socket, was opened already.
    pub(super) fn was_opened(&mut self, flow: EspFlow, number: u32, ring: bool) -> bool {
        match self {
            Handover::Note(of, noted) if *of == flow && !ring => {
                noted.insert(number);
                false
            }
            Handover::NoteRing(of, noted) if *of == flow && ring => {
                noted.insert(number);
                false
            }
            Handover::Skip(of, noted) if *of == flow => noted.remove(&number),
            _ => false,
        }
    }

    /// Goes from noting numbers to skipping them.
    pub(super) fn start_skipping(&mut self) {
        *self = match core::mem::take(self) {
            Handover::Note(flow, noted) | Handover::NoteRing(flow, noted) => Handover::Skip(flow, noted),
            other => other,
        };
    }
}

/// Numbers of packets of a flow that the ring gave around a change. Another CPU may have had such a packet between the device's taps and
/// its rules when these changed: the socket gives it, too, and later than it was looked for there.
#[derive(Debug, Default)]
pub(super) struct Late {
    numbers: HashSet<u32>,
    is_old: bool,
}

impl Late {
    /// The most numbers.
    const MOST: usize = 4096;

    /// Those that the ring has given so far.
    fn of(numbers: HashSet<u32>) -> Self {
        Late { numbers, is_old: false }
    }

    /// The ring has given one.
    pub(super) fn note(&mut self, number: u32) {
        if self.numbers.len() < Self::MOST {
            self.numbers.insert(number);
        }
    }

    /// Whether the ring has given one that a socket gives.
    fn had(&mut self, number: u32) -> bool {
        self.numbers.remove(&number)
    }

    /// Whether it is worth keeping at a tick: for one of them at least.
    fn lasts(&mut self) -> bool {
        !core::mem::replace(&mut self.is_old, true)
    }
}

/// The result of a job that was done aside.
struct Done {
    table: IngressTable,
    opened: Option<(u32, io::Result<Ring>)>,
    drops: u64,
}

/// The fast path of one worker.
pub(crate) struct FastIn {
    /// `None` while a job has it: there is one at a time.
    pub(super) table: Option<IngressTable>,
    aside: Aside<(), Done>,
    /// The mark of packets that come by both ring and socket.
    mark: u32,
    shard: Shard,
    demand: Demand<EspFlow>,
    pub(super) wanted: Vec<EspFlow>,
    pub(super) devices: BTreeMap<u32, RingDevice>,
    pub(super) flows: HashMap<EspFlow, Activity>,
    /// Flows that filters hold back, and devices that cannot have it.
    barred: Barred<EspFlow>,
    unable: Barred<u32>,
    pub(super) changing: Handover,
    /// Flows that have changed lately.
    pub(super) late: HashMap<EspFlow, Late>,
    pub(super) ticked: Instant,
    /// Packets that did not fit into rings that are closed now.
    drops: u64,
}

/// The verdict on a packet of a raw socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawVerdict {
    /// It is to be opened. Its flow, if that could take the ring.
    Open(Option<EspFlow>),
    /// It was opened already.
    Had,
}

/// Reads the SPI and the lower half of the sequence number; none where the packet is cut before its end.
fn number(esp: &[u8]) -> Option<(u32, Option<u32>)> {
    let (spi, rest) = esp.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*spi), rest.first_chunk().map(|number| u32::from_be_bytes(*number))))
}

/// Reads the flow and the number of a packet of a device's ring. One that is cut behind its SPI comes by the ring alone, and
/// has to be counted.
pub(super) fn named(device: u32, packet: &[u8]) -> Option<(EspFlow, Option<u32>)> {
    let (destination, esp): (IpAddr, _) = match packet.first()? >> 4 {
        4 => ((*packet.get(16..20)?.first_chunk::<4>()?).into(), packet.get(20..)?),
        _ => ((*packet.get(24..40)?.first_chunk::<16>()?).into(), packet.get(40..)?),
    };
    let (spi, number) = number(esp)?;
    Some((EspFlow { device, destination, spi }, number))
}

impl FastIn {
    /// Makes the fast path of a worker, without flows. `mark` is that of packets that come by both ring and socket. `None` if
    /// the kernel is too old, or there can be no thread.
    pub(crate) fn new(raw: &[Arc<RawEsp>], mark: u32, shard: Shard) -> Option<Self> {
        raw.iter().try_for_each(|socket| socket.tell_marks()).ok()?;
        let aside =
            Aside::new("sealane-rings").inspect_err(|e| warn!(error = %e, "xfrm: no thread for the fast path: {e}"));
        let now = Instant::now();
        Some(FastIn {
            table: Some(IngressTable::new(mark, shard.index).ok()?),
            aside: aside.ok()?,
            mark,
            shard,
            demand: Demand::new(WINDOW, now),
            wanted: Vec::new(),
            devices: BTreeMap::new(),
            flows: HashMap::new(),
            barred: Barred::default(),
            unable: Barred::default(),
            changing: Handover::Not,
            late: HashMap::new(),
            ticked: now,
            drops: 0,
        })
    }

    /// The descriptors that become readable when packets arrive.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.devices.values().filter(|device| !device.failed).map(|device| device.ring.as_fd())
    }

    /// Judges a packet of a raw socket of ESP.
    pub(crate) fn judge_raw(&mut self, read: &Received, esp: &[u8]) -> RawVerdict {
        let Some((spi, number)) = number(esp) else { return RawVerdict::Open(None) };
        let flow = EspFlow { device: read.device, destination: read.outer.destination, spi };
        if read.mark == self.mark {
            if let Some(activity) = self.flows.get_mut(&flow) {
                activity.unseen = 0;
            }
            return RawVerdict::Had;
        }
        let Some(number) = number else { return RawVerdict::Open(None) };
        let is_late = self.late.get_mut(&flow).is_some_and(|late| late.had(number));
        if self.changing.was_opened(flow, number, false) || is_late {
            return RawVerdict::Had;
        }
        // Rules have marked it, perhaps for policies or states; a ring's packets have no mark.
        RawVerdict::Open((read.mark == 0).then_some(flow))
    }

    /// Counts an authentic packet that a ring gave.
    pub(crate) fn count_authentic(&mut self, flow: EspFlow, counters: &Counters) {
        count_authentic(&mut self.flows, Some(flow));
        counters.fast_in.fetch_add(1, Relaxed);
    }

    /// Counts an authentic packet that a raw socket gave.
    pub(crate) fn count(&mut self, flow: EspFlow, now: Instant) {
        if self.unable.contains(&flow.device) || flow.destination.is_multicast() || !self.demand.count(flow, now) {
            return;
        }
        if self.flows.len() < MAX_FLOWS && !self.flows.contains_key(&flow) && !self.barred.contains(&flow) {
            self.wanted.push(flow);
        }
    }

    /// Makes the rule for a flow, whose earlier packets are in the sockets. From here on the numbers of its packets are
    /// noted. If its device is not open, that is begun, and the flow has to ask again.
    pub(super) fn begin(&mut self, flow: EspFlow, now: Instant) -> bool {
        if self.flows.contains_key(&flow) || self.unable.contains(&flow.device) {
            return false;
        }
        let Some(device) = self.devices.get_mut(&flow.device) else {
            self.open(flow.device);
            return false;
        };
        let Some(table) = &mut self.table else { return false };
        skip(&mut device.ring);
        if let Err(e) = table.take(flow, true) {
            debug!(ifindex = flow.device, error = %e, "xfrm: a device cannot have the fast path: {e}");
            self.unable.insert(flow.device, (), now);
            return false;
        }
        self.flows.insert(flow, Activity::default());
        self.late.insert(flow, Late::default());
        self.changing = Handover::Note(flow, HashSet::new());
        true
    }

    /// A flow has changed its way.
    pub(super) fn end_change(&mut self) {
        if let Handover::Skip(flow, noted) = core::mem::take(&mut self.changing)
            && !self.flows.contains_key(&flow)
        {
            // Back to the sockets: these are the ring's.
            self.late.insert(flow, Late::of(noted));
        }
    }

    /// Begins to open a device.
    fn open(&mut self, index: u32) {
        if self.devices.len() == MAX_DEVICES {
            return;
        }
        let Some(mut table) = self.table.take() else { return };
        let shard = self.shard;
        let open = move || {
            let ring = open(index, &mut table, shard);
            Done { table, opened: Some((index, ring)), drops: 0 }
        };
        self.aside.start((), open);
    }

    /// Takes up the result of a job.
    pub(super) fn take_done(&mut self, now: Instant) {
        let Some(Done { table, opened, drops }) = self.aside.take(&()) else { return };
        self.table = Some(table);
        self.drops += drops;
        match opened {
            Some((index, Ok(ring))) => {
                self.devices.insert(index, RingDevice { ring, idle_ticks: 0, truncated: false, failed: false });
            }
            Some((index, Err(e))) => {
                debug!(ifindex = index, error = %e, "xfrm: a device cannot have the fast path: {e}");
                self.unable.insert(index, (), now);
            }
            None => {}
        }
    }

    /// Finds the flows that go back to the sockets: idle ones, those that filters hold back, and those of a device or
    /// address that is gone.
    pub(super) fn tick(&mut self, now: Instant, is_local: impl Fn(IpAddr) -> bool) -> Vec<EspFlow> {
        self.ticked = now;
        self.barred.expire(now);
        self.unable.expire(now);
        self.late.retain(|_, late| late.lasts());
        let (flows, barred) = (&mut self.flows, &mut self.barred);
        for (index, device) in &mut self.devices {
            device.truncated |= link::facts(*index).is_ok_and(|now| now.mtu > device.ring.max_packet());
            device.failed |= device.ring.failed();
        }
        let unfit: Vec<u32> = self.devices.iter().filter(|(_, d)| d.is_unfit()).map(|(index, _)| *index).collect();
        let leaving = flows.iter_mut().filter_map(|(flow, activity)| {
            let idle = activity.idle.tick(activity.packets);
            // A state that is gone here may belong to another program now, whose packets the rule must not hold back.
            let strange = activity.any && activity.packets == 0;
            activity.strange_ticks = if strange { activity.strange_ticks + 1 } else { 0 };
            (activity.packets, activity.any) = (0, false);
            let held = activity.unseen > UNSEEN;
            if held {
                barred.insert(*flow, (), now);
            }
            let strange = activity.strange_ticks >= STRANGE_TICKS;
            (held || idle || strange || unfit.contains(&flow.device) || !is_local(flow.destination)).then_some(*flow)
        });
        leaving.collect()
    }

    /// Closes unused rings, and counts packets that did not fit into rings.
    pub(super) fn close_unused_rings(&mut self, shared: &Shared) {
        for (index, device) in &mut self.devices {
            let used = self.flows.keys().any(|flow| flow.device == *index);
            device.idle_ticks = if used { 0 } else { device.idle_ticks + 1 };
        }
        let unused =
            |device: &RingDevice| device.idle_ticks > IDLE_TICKS || (device.idle_ticks > 0 && device.is_unfit());
        let unused = self.devices.iter().find(|(_, device)| unused(device)).map(|(index, _)| *index);
        if let Some(index) = unused
            && let Some(mut table) = self.table.take()
            && let Some(RingDevice { mut ring, .. }) = self.devices.remove(&index)
        {
            let close = move || {
                // The chain may be gone with the device.
                let _ = table.remove_device(index);
                Done { table, opened: None, drops: ring.drops() }
            };
            self.aside.start((), close);
        }
        let drops: u64 = self.devices.values_mut().map(|device| device.ring.drops()).sum();
        shared.counters.ring_drops.store(self.drops + drops, Relaxed);
    }
}

/// Opens the ring of a device and makes its chain.
fn open(index: u32, table: &mut IngressTable, shard: Shard) -> io::Result<Ring> {
    let facts = link::facts(index)?;
    if !facts.ethernet {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let ring = Ring::open_esp(index, facts.mtu, shard)?;
    table.add_device(index, &link::name(index)?)?;
    Ok(ring)
}

/// Skips all packets of a ring.
fn skip(ring: &mut Ring) {
    for _ in 0..MAX_HELD {
        if ring.read(BURST, |_| {}) == 0 {
            break;
        }
        ring.release(ring.next());
    }
}

/// Counts an authentic packet of a flow that has the ring.
pub(super) fn count_authentic(flows: &mut HashMap<EspFlow, Activity>, flow: Option<EspFlow>) {
    if let Some(activity) = flow.and_then(|flow| flows.get_mut(&flow)) {
        activity.packets = activity.packets.saturating_add(1);
        activity.unseen = activity.unseen.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_late_once_and_for_a_tick() {
        let mut late = Late::of(HashSet::from([7]));
        late.note(8);
        assert_eq!([7, 7, 8, 9].map(|number| late.had(number)), [true, false, true, false]);
        (0..5000).for_each(|number| late.note(number));
        assert_eq!(late.numbers.len(), Late::MOST);
        assert_eq!([late.lasts(), late.lasts()], [true, false]);
    }
}
