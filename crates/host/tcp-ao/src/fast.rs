//! The fast path: connections with many segments, past the kernel's queues.
//!
//! ```text
//! out  queue (superframe) ─▶ engine ─▶ pieces ─▶ frames behind a learnt link header      │ raw socket
//! in   ring of the device ─▶ engine ─▶ joined ─▶ TAP device ─▶ ingress of the same device
//!         └ a rule drops at the ingress what the ring has seen
//! ```
//!
//! It changes how packets travel, never whether they are judged. Nothing leaves that the engine has not handed out, and
//! the rules of [`sealane_sys::nft`] stand as they do without it: what comes in and does not bear our mark goes to
//! the queue. A segment that passes by the ring and by the queue as well, when a connection changes its way, reaches TCP
//! twice, which TCP knows from networks.

mod device;
mod up;

use super::path::Shared;
use super::transmit::Links;
use device::Device;
use sealane_abi::admin::{DataPath, NotFast};
use sealane_engine_ao::{Ends, Kernel, VerifyBurst};
use sealane_net::wire::tcp::Segment;
use sealane_sys::link;
use sealane_sys::nft::{Flow, Marks, Table};
use sealane_sys::promote::{Counted, IDLE_TICKS, RETRY, WORTH};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// The most devices with a ring.
pub(super) const MAX_DEVICES: usize = 16;
/// So many ticks without progress mean that what is given back does not arrive.
const STUCK_TICKS: u8 = 2;

/// A connection's incoming segments, and the device that they come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Way {
    device: u32,
    ends: Ends,
}

impl Way {
    fn flow(&self) -> Flow {
        Flow { device: self.device, source: self.ends.remote, destination: self.ends.local }
    }
}

/// How busy a connection of the fast path is, and whether it gets on.
#[derive(Debug, Default, Clone, Copy)]
struct Activity {
    /// Authentic segments since the last tick.
    segments: u32,
    idle_ticks: u8,
    /// The furthest that its data and its acknowledgments have come.
    furthest: Option<[u32; 2]>,
    /// Whether they came further since the last tick.
    advanced: bool,
    /// Whether the last that came since then shows that something was lost: data once more, or what was given back, in
    /// the queue, as if it had come from outside.
    lost: bool,
    stuck_ticks: u8,
}

impl Activity {
    /// Counts a segment that is given back.
    fn deliver(&mut self, segment: &Segment<'_>) {
        self.segments += 1;
        let len = segment.layout().payload_len();
        let ack = segment.header()[8..12].first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
        let at = [segment.seq().wrapping_add(len as u32), ack];
        let furthest = self.furthest.get_or_insert(at);
        let mut further = false;
        for (furthest, at) in furthest.iter_mut().zip(at) {
            if at.wrapping_sub(*furthest).cast_signed() > 0 {
                *furthest = at;
                further = true;
            }
        }
        self.advanced |= further;
        // One byte may be a probe of our window.
        self.lost = !further && (self.lost || len > 1);
    }

    /// Looks back at the time since the last tick: whether it still is worth it, whether it is stuck.
    fn tick(&mut self) -> (bool, bool) {
        self.idle_ticks = if self.segments < WORTH { self.idle_ticks + 1 } else { 0 };
        self.stuck_ticks = match (self.lost, self.advanced) {
            (true, _) => self.stuck_ticks + 1,
            (false, true) => 0,
            (false, false) => self.stuck_ticks,
        };
        (self.segments, self.advanced, self.lost) = (0, false, false);
        (self.idle_ticks <= IDLE_TICKS, self.stuck_ticks >= STUCK_TICKS)
    }
}

/// Why a device cannot have it, and until when that is believed.
struct Unable {
    why: String,
    until: Instant,
}

/// The fast path of one worker.
pub(super) struct Fast {
    marks: Marks,
    wanted: DataPath,
    /// Packets that rings of devices which are gone have dropped.
    drops: u64,
    counted: Counted<Way>,
    devices: BTreeMap<u32, Device>,
    /// Devices that cannot have it: no Ethernet, the kernel lacks something, or it did not work.
    unable: BTreeMap<u32, Unable>,
    ways: HashMap<Way, Activity>,
}

/// What a look at the rings came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    /// Frames that were read.
    pub(super) frames: usize,
    /// Whether superframes are left that may grow.
    pub(super) open: bool,
    /// Whether frames are left, because others have their turn.
    pub(super) more: bool,
}

impl Fast {
    /// Without any connection.
    pub(super) fn new(marks: Marks, wanted: DataPath) -> Self {
        Fast {
            marks,
            wanted,
            drops: 0,
            counted: Counted::new(Instant::now()),
            devices: BTreeMap::new(),
            unable: BTreeMap::new(),
            ways: HashMap::new(),
        }
    }

    /// What becomes readable when frames arrive.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.devices.values().filter_map(Device::waits_for)
    }

    /// Counts an authentic segment that came by the queue, and says whether its connection is worth [`Fast::promote`].
    pub(super) fn count(&mut self, device: u32, ends: Ends) -> bool {
        if self.wanted == DataPath::Queue || self.unable.contains_key(&device) {
            return false;
        }
        let way = Way { device, ends };
        self.counted.count(way, Instant::now()) == WORTH && !self.ways.contains_key(&way)
    }

    /// Notes a segment that came by the queue without a signature: if it belongs to a connection of the fast path, that
    /// has probably given it back, and somebody has changed its mark.
    pub(super) fn unsigned(&mut self, device: u32, ends: Ends) {
        if let Some(activity) = self.ways.get_mut(&Way { device, ends }) {
            activity.lost = true;
        }
    }

    /// Takes a connection's segments from the device instead of the queue. What is in the ring and in the queue is to be
    /// judged right before. The connection stays with the queue, and so do all of the device, when that cannot be.
    pub(super) fn promote(&mut self, device: u32, ends: Ends, table: &mut Table) {
        let way = Way { device, ends };
        if self.unable.contains_key(&device) || self.ways.contains_key(&way) {
            return;
        }
        if !self.devices.contains_key(&device) {
            if self.devices.len() == MAX_DEVICES {
                return;
            }
            match open(device, self.marks, table) {
                Ok(made) => self.devices.insert(device, made),
                Err(why) => return self.give_up(device, why.to_string()),
            };
        }
        match table.add_flow(way.flow()) {
            Ok(()) => {
                self.ways.insert(way, Activity::default());
            }
            Err(why) => self.give_up(device, why.to_string()),
        }
    }

    /// Leaves a device alone for a while.
    fn give_up(&mut self, device: u32, why: String) {
        self.unable.insert(device, Unable { why, until: Instant::now() + RETRY });
    }

    /// The link headers of a device with a ring.
    pub(super) fn links(&mut self, device: u32) -> Option<&mut Links> {
        self.devices.get_mut(&device).map(|device| &mut device.links)
    }

    /// Judges what is in the rings.
    pub(super) fn serve(&mut self, shared: &Shared, work: &mut VerifyBurst, kernel: &mut dyn Kernel) -> Pass {
        let mut pass = Pass::default();
        for device in self.devices.values_mut() {
            let one = device.serve(shared, work, kernel, &mut self.ways);
            pass.frames += one.frames;
            pass.open |= one.open;
            pass.more |= one.more;
        }
        pass
    }

    /// Gives connections that are gone, idle or stuck back to the queue, and devices that nobody needs. To be called
    /// about once a second.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn tick(&mut self, shared: &Shared) -> io::Result<()> {
        let mut table = shared.table.lock();
        let Some(table) = table.as_mut() else { return Ok(()) };
        let now = Instant::now();
        self.unable.retain(|_, unable| unable.until > now);
        let engine = shared.engine.lock();
        let (mut leaving, mut stuck) = (Vec::new(), Vec::new());
        for (way, activity) in &mut self.ways {
            let (worth, is_stuck) = activity.tick();
            if is_stuck {
                stuck.push(way.device);
            }
            if !worth || !self.devices.contains_key(&way.device) || !engine.tracks(&way.ends) {
                leaving.push(*way);
            }
        }
        drop(engine);
        let mut done = Ok(());
        for way in leaving {
            self.ways.remove(&way);
            done = done.and(table.remove_flow(way.flow()));
        }
        let mut gone = Vec::new();
        for (&index, device) in &mut self.devices {
            let used = self.ways.keys().any(|w| w.device == index);
            if stuck.contains(&index) {
                gone.push((index, Some("what was given back did not arrive".to_owned())));
            } else if let Some(why) = device.broken() {
                gone.push((index, Some(why)));
            } else if !used || !table.has_device(index) || device.unfit() {
                gone.push((index, None));
            }
        }
        for (index, why) in gone {
            self.drops += self.devices.remove(&index).map_or(0, |mut d| d.ring.drops());
            for way in self.ways.extract_if(|way, _| way.device == index) {
                done = done.and(table.remove_flow(way.0.flow()));
            }
            // Other workers may need it still.
            if !table.has_flows(index) {
                done = done.and(table.remove_device(index));
            }
            if let Some(why) = why {
                self.give_up(index, why);
            }
        }
        done
    }

    /// Packets that did not fit into a ring.
    pub(super) fn drops(&mut self) -> u64 {
        self.drops + self.devices.values_mut().map(|d| d.ring.drops()).sum::<u64>()
    }

    /// Connections that take it.
    pub(super) fn connections(&self) -> usize {
        self.ways.len()
    }

    /// Devices that cannot have it, and why.
    pub(super) fn unable(&self) -> Vec<NotFast> {
        let name = |index: u32| link::name(index).unwrap_or_else(|_| format!("device {index}"));
        self.unable.iter().map(|(&index, u)| NotFast { device: name(index), why: u.why.clone() }).collect()
    }
}

/// Makes all that a device needs.
fn open(index: u32, marks: Marks, table: &mut Table) -> io::Result<Device> {
    let facts = link::facts(index)?;
    if !facts.ethernet {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "no Ethernet device"));
    }
    let mut device = Device::open(index, facts, marks)?;
    table.add_device(index, &link::name(index)?)?;
    // What is in the ring so far has gone to the queue too.
    device.skip();
    Ok(device)
}

#[cfg(test)]
mod tests;
