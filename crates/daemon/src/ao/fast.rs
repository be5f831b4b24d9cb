//! The fast path: connections with many segments, past the kernel's queues.
//!
//! ```text
//! out  queue (superframe) ─▶ engine ─▶ pieces ─▶ frames behind a learnt link header      │ raw socket
//! in   ring of the device ─▶ engine ─▶ joined ─▶ TAP device ─▶ ingress of the same device
//!         └ a rule drops at the ingress what the ring has seen
//! ```
//!
//! It changes how packets travel, never whether they are judged. Nothing leaves that the engine has not handed out, and
//! the rules of [`crate::transport::nft`] stand as they do without it: what comes in and does not bear our mark goes to
//! the queue. A segment that passes by the ring and by the queue as well, when a connection changes its way, reaches TCP
//! twice, which TCP knows from networks.

mod device;
mod join;

use super::path::{Counters, Shared};
use crate::transport::link;
use crate::transport::nft::{Flow, Marks, Table};
use crate::transport::raw::Raw;
use device::Device;
use sealane_engine::tcp_ao::{Ends, Kernel};
use sealane_net::wire::tcp::Segment;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The most devices with a ring.
pub(super) const MAX_DEVICES: usize = 16;
/// A connection is worth it from this many segments in [`WINDOW`] on.
const WORTH: u32 = 64;
/// For how long segments are counted.
const WINDOW: Duration = Duration::from_millis(100);
/// Connections that are counted at a time.
const MAX_COUNTED: usize = 4096;
/// A connection that had fewer segments than [`WORTH`] for so many ticks goes back to the queue.
const IDLE_TICKS: u8 = 10;

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

/// How busy a connection of the fast path is.
#[derive(Debug, Default, Clone, Copy)]
struct Activity {
    /// Segments since the last tick.
    segments: u32,
    idle_ticks: u8,
}

/// The fast path of one namespace.
pub(super) struct Fast {
    marks: Marks,
    /// Whether there is to be one.
    wanted: bool,
    /// Packets that rings of devices which are gone have dropped.
    drops: u64,
    counted: HashMap<Way, u32>,
    window: Instant,
    devices: BTreeMap<u32, Device>,
    /// Devices that cannot have it: no Ethernet, or the kernel lacks something.
    unable: HashSet<u32>,
    ways: HashMap<Way, Activity>,
}

/// What a look at the rings came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    /// Frames that were read.
    pub(super) frames: usize,
    /// Whether superframes are left that may grow.
    pub(super) open: bool,
}

impl Fast {
    /// Without any connection, for good if it is not `wanted`.
    pub(super) fn new(marks: Marks, wanted: bool) -> Self {
        Fast {
            marks,
            wanted,
            drops: 0,
            counted: HashMap::new(),
            window: Instant::now(),
            devices: BTreeMap::new(),
            unable: HashSet::new(),
            ways: HashMap::new(),
        }
    }

    /// What becomes readable when frames arrive.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.devices.values().filter_map(Device::waits_for)
    }

    /// Counts an authentic segment that came by the queue, and says whether its connection is worth [`Fast::promote`].
    pub(super) fn count(&mut self, device: u32, packet: &[u8]) -> Option<Ends> {
        if self.window.elapsed() > WINDOW {
            self.window = Instant::now();
            self.counted.clear();
        }
        if !self.wanted || self.unable.contains(&device) {
            return None;
        }
        let segment = Segment::parse(packet).ok()?;
        let way = Way { device, ends: Ends::new(segment.destination(), segment.source()) };
        if self.counted.len() >= MAX_COUNTED && !self.counted.contains_key(&way) {
            return None;
        }
        let segments = self.counted.entry(way).or_insert(0);
        *segments += 1;
        (*segments == WORTH && !self.ways.contains_key(&way)).then_some(way.ends)
    }

    /// Takes a connection's segments from the device instead of the queue. Those that wait in the queue are to be judged
    /// before.
    ///
    /// # Errors
    /// Why the device or the rules cannot. The connection stays with the queue then, and so do all of a device that
    /// cannot.
    pub(super) fn promote(&mut self, device: u32, ends: Ends, table: &mut Table) -> io::Result<()> {
        let way = Way { device, ends };
        if !self.devices.contains_key(&device) {
            if self.unable.contains(&device) || self.devices.len() == MAX_DEVICES {
                return Ok(());
            }
            // Until it works, it does not.
            self.unable.insert(device);
            let facts = link::facts(device)?;
            if !facts.ethernet {
                return Ok(());
            }
            let made = Device::open(device, facts, self.marks)?;
            table.add_device(device, &link::name(device)?)?;
            self.devices.insert(device, made);
            self.unable.remove(&device);
        }
        // What is in the ring so far has gone to the queue too.
        if let Some(device) = self.devices.get_mut(&device) {
            device.skip();
        }
        table.add_flow(way.flow())?;
        self.ways.insert(way, Activity::default());
        Ok(())
    }

    /// Sends pieces of one superframe that is to leave by `device`; `bound` says that its socket leaves by no other.
    /// What cannot be sent is lost, and sent again.
    pub(super) fn send(&mut self, counters: &Counters, raw: &Raw, device: u32, bound: bool, packets: &[&[u8]]) {
        let only = if bound { device } else { 0 };
        match self.devices.get_mut(&device) {
            Some(by) => by.send(counters, raw, only, packets),
            None => {
                let sent = raw.send(packets, only, false);
                counters.refused.fetch_add(sent.refused as u64, Ordering::Relaxed);
            }
        }
    }

    /// Judges what is in the rings.
    pub(super) fn serve(&mut self, shared: &Shared, kernel: &mut dyn Kernel) -> Pass {
        let mut pass = Pass::default();
        for (&index, device) in &mut self.devices {
            let ways = &mut self.ways;
            let one = device.serve(shared, kernel, |ends| match ways.get_mut(&Way { device: index, ends }) {
                Some(activity) => {
                    activity.segments += 1;
                    true
                }
                None => false,
            });
            pass.frames += one.frames;
            pass.open |= one.open;
        }
        pass
    }

    /// Gives connections that are gone or idle back to the queue, and devices that nobody needs. To be called about
    /// once a second.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn tick(&mut self, shared: &Shared) -> io::Result<()> {
        let mut table = shared.table.lock();
        let Some(table) = table.as_mut() else { return Ok(()) };
        let engine = shared.engine.lock();
        let mut leaving = Vec::new();
        for (way, activity) in &mut self.ways {
            activity.idle_ticks = if activity.segments < WORTH { activity.idle_ticks + 1 } else { 0 };
            activity.segments = 0;
            let served = self.devices.contains_key(&way.device);
            if activity.idle_ticks > IDLE_TICKS || !served || !engine.tracks(&way.ends) {
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
            device.tick();
            let used = self.ways.keys().any(|w| w.device == index);
            if !used || !table.has_device(index) || device.unfit(index) {
                gone.push(index);
            }
        }
        let drops: u64 = self.devices.values_mut().map(|d| d.ring.drops()).sum();
        shared.counters.ring_drops.store(self.drops + drops, Ordering::Relaxed);
        for index in gone {
            self.drops += self.devices.remove(&index).map_or(0, |mut d| d.ring.drops());
            for way in self.ways.extract_if(|way, _| way.device == index) {
                done = done.and(table.remove_flow(way.0.flow()));
            }
            done = done.and(table.remove_device(index));
        }
        // Another device may have the index by now, or the kernel more modules.
        if self.unable.len() > MAX_COUNTED {
            self.unable.clear();
        }
        done
    }
}

#[cfg(test)]
mod tests;
