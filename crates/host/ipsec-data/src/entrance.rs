//! The devices by which opened packets come in: those that they came by sealed, as in Linux, where the kernel and its settings allow
//! that. All others come by our TUN device.
//!
//! Linux knows an opened packet by what it has been through (`skb->sp`), which is lost here. So packets come by the TUN device
//!
//! - where the source filter of the device is strict (`rp_filter`) and the route back is by another device: Linux does not filter what
//!   it has opened;
//! - where the device has no hardware addresses and the packet has a mark, or its index is above 65,535: a frame of ours cannot say so.

use sealane_config::{DEVICE, Incoming};
use sealane_packets::incoming::{By, IncomingDevice};
use sealane_packets::tap::Headers;
use sealane_sys::link::Facts;
use sealane_sys::marks::Opened;
use sealane_sys::netlink::errno;
use sealane_sys::{link, netconf, release, route, transient};
use sealane_wire::walk::address_pair;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::warn;

/// The time for which what is known of devices and routes is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// The most devices, and the most routes, that a thread knows something of.
const MAX_KNOWN: usize = 4096;
/// The interface of a host to itself.
const LOOPBACK: u32 = 1;

/// The knowledge that the threads of a data path share.
pub struct Entrances {
    incoming: Incoming,
    /// The marks of opened packets, where the kernel has what it takes to return them.
    pub opened: Option<Opened>,
    device: Option<IncomingDevice>,
    /// Whether rules know opened packets.
    are_known: AtomicBool,
    /// Whether somebody has deleted the device, or has put it down, and that has been told.
    is_told: AtomicBool,
}

impl Entrances {
    /// Makes the device that returns packets, in the calling thread's namespace, where there is to be one. Where that fails all packets
    /// come by the TUN device.
    ///
    /// # Errors
    /// Those of a moment.
    pub(crate) fn open(incoming: Incoming) -> io::Result<Self> {
        let [are_known, is_told] = [const { AtomicBool::new(false) }; 2];
        let none = Entrances { incoming, opened: None, device: None, are_known, is_told };
        if incoming == Incoming::Ours {
            return Ok(none);
        }
        // Before, flowtables ask for the way back of a flow without the mark of its packet (`nft_flow_route`), and would lead the other
        // direction of a tunnel's flow past it.
        if !release::is_at_least(5, 19) {
            warn!(
                "xfrm: opened packets come by {DEVICE}, and not by the interface that they came by sealed: that takes Linux 5.19"
            );
            return Ok(none);
        }
        let opened = Opened::draw();
        match IncomingDevice::open(opened) {
            Ok(device) => Ok(Entrances { opened: Some(opened), device: Some(device), ..none }),
            Err(e) if transient::is(&e) => Err(e),
            Err(e) => {
                warn!(
                    error = %e,
                    "xfrm: opened packets come by {DEVICE}, and not by the interface that they came by sealed: {e}"
                );
                Ok(none)
            }
        }
    }

    /// Returns a packet to the interface that it came by. None if it is to come by the TUN device.
    pub(crate) fn give<'a>(
        &self,
        by: By,
        headers: Headers<'a>,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Option<io::Result<()>> {
        let done = self.device.as_ref()?.give(by, headers, pieces);
        if !matches!(done.as_ref().err().and_then(errno), Some(libc::EBADFD | libc::EIO)) {
            return Some(done);
        }
        if !self.is_told.swap(true, Ordering::Relaxed) {
            warn!(
                "xfrm: somebody has deleted our device sealane-in0, or has put it down: opened packets come by {DEVICE}"
            );
        }
        None
    }

    /// The interface by which opened packets are to come in.
    pub fn incoming(&self) -> Incoming {
        self.incoming
    }

    /// Whether the rules that are in force know opened packets.
    pub fn set_known(&self, are_known: bool) {
        self.are_known.store(are_known, Ordering::Release);
    }
}

/// A device.
#[derive(Debug, Clone, Copy)]
struct Device {
    /// None if it has gone.
    facts: Option<Facts>,
    /// Whether its source filter is strict.
    is_strict: bool,
}

/// A thread's knowledge of devices.
#[derive(Default)]
pub(crate) struct Entrance {
    devices: HashMap<u32, Device>,
    /// The devices with a strict source filter; none if the kernel has not told them.
    strict: Option<BTreeSet<u32>>,
    /// By device and source, whether the route back is by that device.
    back: HashMap<(u32, IpAddr), bool>,
    until: Option<Instant>,
}

impl Entrance {
    /// The device by which a packet comes in that has this mark and is to come by that one; none if that is our TUN device.
    pub(crate) fn by(&mut self, of: &Entrances, device: u32, mark: u32, packet: &[u8], now: Instant) -> Option<By> {
        if device <= LOOPBACK || of.device.is_none() || !of.are_known.load(Ordering::Acquire) {
            return None;
        }
        if self.until.is_none_or(|until| now >= until) {
            self.refresh(now);
        }
        let Device { facts, is_strict } = self.device(device)?;
        let Facts { ethernet, address, .. } = facts?;
        if is_strict && !self.leads_back(device, packet) || !ethernet && mark != 0 {
            return None;
        }
        Some(By { device: device.try_into().ok()?, address, mark })
    }

    /// Asks the kernel about all devices.
    fn refresh(&mut self, now: Instant) {
        self.strict = netconf::strict().ok();
        self.devices.clear();
        self.back.clear();
        self.until = Some(now + BELIEVED);
    }

    /// A device; none while nothing is known of filters.
    fn device(&mut self, index: u32) -> Option<Device> {
        if let Some(known) = self.devices.get(&index) {
            return Some(*known);
        }
        let device = Device { facts: link::facts(index).ok(), is_strict: self.strict.as_ref()?.contains(&index) };
        if self.devices.len() >= MAX_KNOWN {
            self.devices.clear();
        }
        self.devices.insert(index, device);
        Some(device)
    }

    /// Whether the route to the source of a packet is by the device that it came by. IPv6 has no such filter.
    fn leads_back(&mut self, device: u32, packet: &[u8]) -> bool {
        let Ok((source @ IpAddr::V4(_), _)) = address_pair(packet) else { return true };
        let key = (device, source);
        if let Some(known) = self.back.get(&key) {
            return *known;
        }
        let leads = route::device_to(source).is_ok_and(|there| there == Some(device));
        if self.back.len() >= MAX_KNOWN {
            self.back.clear();
        }
        self.back.insert(key, leads);
        leads
    }
}
