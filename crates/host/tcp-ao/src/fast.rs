//! The fast path: busy connections bypass the kernel's queues.
//!
//! ```text
//! out  queue (superframe) ─▶ engine ─▶ pieces ─▶ frames behind a learnt link header      │ raw socket
//! in   ring of the device ─▶ engine ─▶ joined ─▶ TAP device ─▶ ingress of the same device
//!         └ a rule drops at the ingress what the ring has seen
//! ```
//!
//! It changes the route of packets, never whether they are judged. Only segments that the engine has signed leave, and
//! the rules of [`sealane_rules::ao`] are the same as without it: an inbound packet without our mark goes to the queue.
//! When a connection changes its path, a segment may pass both by the ring and by the queue. TCP gets it twice then, as
//! may happen in any network.
//!
//! Devices are opened and closed aside ([`Aside`]): segments that wait for their worker would be late by seconds on a busy machine.

mod connection;
mod device;
mod to_stack;

use super::path::Shared;
use super::tables::Sockets;
use super::transmit::Links;
pub(super) use connection::RingsServed;
use connection::{Activity, FastConnection};
use device::Device;
use sealane_abi::admin::{DataPath, NotFast};
use sealane_engine_ao::{Ends, VerifyBurst};
use sealane_packets::fast_path::{Barred, Demand, IDLE_TICKS, WINDOW};
use sealane_rules::ao::PeerTable;
use sealane_sys::aside::Aside;
use sealane_sys::link;
use sealane_sys::marks::Marks;
use sealane_sys::poll::Waits;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};
use tracing::debug;

/// The most devices with a ring.
const MAX_DEVICES: usize = 16;

/// The fast path of one worker.
pub(super) struct Fast {
    marks: Marks,
    wanted: DataPath,
    /// Packets dropped by the rings of removed devices.
    drops: u64,
    demand: Demand<FastConnection>,
    devices: BTreeMap<u32, Device>,
    opening: Aside<u32, io::Result<Device>>,
    /// Devices that are open, and that no connection has asked for since, with the ticks that have passed.
    ready: BTreeMap<u32, (Device, u8)>,
    /// Devices to close, once the worker does not wait for their rings any more.
    leaving: Vec<Device>,
    /// Devices that cannot have the fast path: no Ethernet, a feature missing in the kernel, or it did not work.
    unable: Barred<u32, String>,
    connections: HashMap<FastConnection, Activity>,
}

impl Fast {
    /// A fast path without connections, in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's, if there can be no thread.
    pub(super) fn new(marks: Marks, wanted: DataPath) -> io::Result<Self> {
        // In tests of this crate a connection earns it by its packets alone, however slow the machine is.
        let window = if cfg!(test) { Duration::MAX } else { WINDOW };
        Ok(Fast {
            marks,
            wanted,
            drops: 0,
            demand: Demand::new(window, Instant::now()),
            devices: BTreeMap::new(),
            opening: Aside::new("sealane-ao-open")?,
            ready: BTreeMap::new(),
            leaving: Vec::new(),
            unable: Barred::default(),
            connections: HashMap::new(),
        })
    }

    /// Has `waits` wait for the rings that there are now, by this token.
    pub(super) fn follow_rings(&mut self, waits: &Waits, token: u32) {
        for mut device in self.leaving.drain(..) {
            device.forget_ring(waits);
            self.opening.close(device);
        }
        self.devices.values_mut().for_each(|device| device.follow_ring(waits, token));
    }

    /// Counts an authentic segment that came by the queue. Returns whether its connection should be promoted
    /// ([`Fast::promote`]).
    pub(super) fn count(&mut self, device: u32, ends: Ends) -> bool {
        if self.wanted == DataPath::Queue || self.unable.contains(&device) {
            return false;
        }
        // A device in a VRF hands its frames to the VRF.
        if ends.vrf != 0 {
            return false;
        }
        let connection = FastConnection { device, ends };
        self.demand.count(connection, Instant::now()) && !self.connections.contains_key(&connection)
    }

    /// Notes an unsigned segment that came by the queue. If it belongs to a connection of the fast path, the fast path
    /// has probably given it to the stack, and other rules have changed its mark.
    pub(super) fn unsigned(&mut self, device: u32, ends: Ends) {
        if let Some(activity) = self.connections.get_mut(&FastConnection { device, ends }) {
            activity.lost = true;
        }
    }

    /// Moves a connection from the queue to the ring of its device, and returns whether it did. Packets in the ring have to
    /// be judged right before, those in the queue before what comes by the ring from now on. If the device is not open, that is
    /// begun, and the connection has to ask again. On failure all connections of the device stay with the queue.
    pub(super) fn promote(&mut self, device: u32, ends: Ends, table: &mut PeerTable) -> bool {
        let connection = FastConnection { device, ends };
        if self.unable.contains(&device) || self.connections.contains_key(&connection) {
            return false;
        }
        match self.try_promote(connection, table) {
            Ok(promoted) => promoted,
            Err(why) => {
                self.give_up(device, why.to_string());
                false
            }
        }
    }

    fn try_promote(&mut self, connection: FastConnection, table: &mut PeerTable) -> io::Result<bool> {
        let FastConnection { device, ends } = connection;
        if !self.devices.contains_key(&device) {
            let ready = self.ready.remove(&device).map(|(ready, _)| Ok(ready)).or_else(|| self.opening.take(&device));
            let Some(opened) = ready else {
                self.open(device);
                return Ok(false);
            };
            if !self.adopt(device, opened?, table)? {
                return Ok(false);
            }
        }
        if self.devices.get(&device).is_some_and(Device::has_ended) {
            return Ok(false);
        }
        table.add_flow(connection.flow())?;
        debug!(ifindex = device, peer = %ends.remote, "TCP-AO: a connection takes the fast path");
        self.connections.insert(connection, Activity::default());
        Ok(true)
    }

    /// Begins to open a device.
    fn open(&mut self, device: u32) {
        if self.opening.has(&device) || self.devices.len() + self.opening.len() + self.ready.len() >= MAX_DEVICES {
            return;
        }
        let marks = self.marks;
        self.opening.start(device, move || open(device, marks));
    }

    /// Takes up a device that is open, and returns whether it can be used: it may have changed meanwhile.
    fn adopt(&mut self, index: u32, mut device: Device, table: &mut PeerTable) -> io::Result<bool> {
        let done = match device.check_unusable() {
            true => Ok(false),
            false => link::name(index).and_then(|name| table.add_device(index, &name)).map(|()| true),
        };
        match done {
            Ok(true) => {
                // Frames that are in the ring so far have gone to the queue as well.
                device.start_afresh();
                self.devices.insert(index, device);
            }
            _ => self.opening.close(device),
        }
        done
    }

    /// Does not try a device again for a while.
    fn give_up(&mut self, device: u32, why: String) {
        debug!(ifindex = device, "TCP-AO: a device cannot have the fast path: {why}");
        self.unable.insert(device, why, Instant::now());
    }

    /// The link headers of a device with a ring.
    pub(super) fn links(&mut self, device: u32) -> Option<&mut Links> {
        self.devices.get_mut(&device).map(|device| &mut device.links)
    }

    /// Judges frames in the rings.
    pub(super) fn serve(&mut self, shared: &Shared, work: &mut VerifyBurst, kernel: &mut Sockets) -> RingsServed {
        let mut pass = RingsServed::default();
        for device in self.devices.values_mut() {
            let one = device.serve(shared, work, kernel, &mut self.connections);
            pass.frames += one.frames;
            pass.open |= one.open;
            pass.more |= one.more;
        }
        pass
    }

    /// Whether there are superframes that may still grow.
    pub(super) fn has_open(&self) -> bool {
        self.devices.values().any(Device::has_open)
    }

    /// Ends the use of devices that have come into a VRF: what their rings show is another VRF's from then on.
    pub(super) fn leave_vrfs(&mut self, is_in_vrf: impl Fn(u32) -> bool) {
        self.devices.iter_mut().filter(|(index, _)| is_in_vrf(**index)).for_each(|(_, device)| device.end());
        for (_, (device, _)) in self.ready.extract_if(.., |index, _| is_in_vrf(*index)) {
            self.opening.close(device);
        }
    }

    /// Moves idle or stuck connections back to the queue, and removes ended ones and unused devices. To be called about
    /// once a second.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn tick(&mut self, shared: &Shared) -> io::Result<()> {
        let mut table = shared.table.lock();
        let Some(table) = table.as_mut() else { return Ok(()) };
        self.unable.expire(Instant::now());
        let engine = shared.engine.lock();
        let (mut leaving, mut stuck) = (Vec::new(), Vec::new());
        for (connection, activity) in &mut self.connections {
            let (is_idle, is_stuck) = activity.tick();
            if is_stuck {
                stuck.push(connection.device);
            }
            if is_idle || !self.devices.contains_key(&connection.device) || !engine.tracks(&connection.ends) {
                leaving.push(*connection);
            }
        }
        drop(engine);
        let mut done = Ok(());
        for connection in leaving {
            debug!(ifindex = connection.device, peer = %connection.ends.remote, "TCP-AO: a connection goes by the queues again");
            self.connections.remove(&connection);
            done = done.and(table.remove_flow(connection.flow()));
        }
        let mut gone = Vec::new();
        for (&index, device) in &mut self.devices {
            let used = self.connections.keys().any(|w| w.device == index);
            if stuck.contains(&index) {
                gone.push((index, Some("what was given back did not arrive".to_owned())));
            } else if let Some(why) = device.broken() {
                gone.push((index, Some(why)));
            } else if !used || !table.has_device(index) || device.check_unusable() {
                gone.push((index, None));
            }
        }
        for (index, why) in gone {
            if let Some(mut device) = self.devices.remove(&index) {
                self.drops += device.drops();
                self.leaving.push(device);
            }
            for connection in self.connections.extract_if(|connection, _| connection.device == index) {
                done = done.and(table.remove_flow(connection.0.flow()));
            }
            // Other workers may still need it.
            if !table.has_flows(index) {
                done = done.and(table.remove_device(index));
            }
            if let Some(why) = why {
                self.give_up(index, why);
            }
        }
        let is_forgotten = |_: &u32, (_, ticks): &mut (Device, u8)| {
            *ticks += 1;
            *ticks > IDLE_TICKS
        };
        for (_, (device, _)) in self.ready.extract_if(.., is_forgotten) {
            self.opening.close(device);
        }
        for (index, opened) in self.opening.take_all() {
            match opened {
                Ok(device) => drop(self.ready.insert(index, (device, 0))),
                Err(why) => self.give_up(index, why.to_string()),
            }
        }
        done
    }

    /// The number of packets that did not fit into a ring.
    pub(super) fn drops(&mut self) -> u64 {
        self.drops + self.devices.values_mut().map(Device::drops).sum::<u64>()
    }

    /// The number of connections of the fast path.
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Devices that cannot have the fast path, with the reasons, in the order of their indices.
    pub(super) fn unsupported_devices(&self) -> Vec<NotFast> {
        let name = |index: u32| link::name(index).unwrap_or_else(|_| format!("device {index}"));
        let unable: BTreeMap<u32, &String> = self.unable.iter().map(|(&index, why)| (index, why)).collect();
        unable.into_iter().map(|(index, why)| NotFast { device: name(index), why: why.clone() }).collect()
    }
}

impl Drop for Fast {
    fn drop(&mut self) {
        // Some aside and the others here, because the kernel may take seconds for each.
        let ready = core::mem::take(&mut self.ready).into_values().map(|(device, _)| device);
        let all = core::mem::take(&mut self.devices).into_values().chain(self.leaving.drain(..)).chain(ready);
        for (at, device) in all.enumerate() {
            match at % 2 {
                0 => drop(device),
                _ => self.opening.close(device),
            }
        }
    }
}

/// Opens everything that a device needs.
fn open(index: u32, marks: Marks) -> io::Result<Device> {
    let facts = link::facts(index)?;
    if !facts.ethernet {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "no Ethernet device"));
    }
    Device::open(index, facts, marks)
}

#[cfg(test)]
mod tests;
