//! The offload devices of a network namespace: opened by their kind, watched by their interface's state.
//!
//! A device has two halves. The engine has the one that takes states and policies ([`sealane_engine_xfrm::device::Device`], Linux's
//! `xfrmdev_ops`), as long as the interface is up. The other one ([`Running`]) stays here as long as the device is
//! configured: its interface, its threads, its counters.
//!
//! ```text
//!  configuration ─▶ Devices::configure ─▶ open(kind) ─▶ Running ── up() ──▶ Box<dyn engine::Device> ─▶ Xfrm::add_device
//!  RTNLGRP_LINK  ─▶ Devices::update    ─▶ down: Xfrm::device_down, which drops the engine's half;  up: another one
//! ```

mod crypto;
mod inline;
mod kernel;
mod kernel_socket;
pub(crate) mod mirror;
mod packet;
mod running;

use crate::control::path::DataPath;
use crate::control::policies::Target;
use running::{DeviceContext, Running};
use sealane_abi::admin::ipsec as status;
use sealane_config::{DeviceKind, OffloadDevice};
use sealane_sys::cpu;
use sealane_sys::link::{self, Links};
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use std::io;
use std::sync::Arc;
use tracing::{debug, error, warn};

/// Checks whether devices can exist on this host, before anything is changed for them.
///
/// # Errors
/// The name of the one that cannot, and why.
pub(crate) fn check(devices: &[OffloadDevice]) -> Result<(), Refused> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    let missing = |cpu: u32| online.as_ref().is_ok_and(|list| !cpu::is_listed(list, cpu));
    match devices.iter().find_map(|d| Some((d, d.cpu.filter(|cpu| missing(*cpu))?))) {
        None => Ok(()),
        Some((device, cpu)) => {
            let there = online.as_ref().map_or("", |list| list.trim());
            let what = format!("there is no CPU {cpu} here; online: {there}");
            Err((format!("device '{}'", device.name), io::Error::new(io::ErrorKind::InvalidInput, what)))
        }
    }
}

/// Opens a device. Afterwards its interface exists and is up.
///
/// # Errors
/// The kernel's; `Unsupported` if this build or this kernel cannot do it.
fn open(config: &OffloadDevice, place: &DeviceContext<'_>) -> io::Result<Box<dyn Running>> {
    match config.kind {
        DeviceKind::Inline => Ok(Box::new(inline::Inline::open(&config.name, place)?)),
        DeviceKind::Crypto => Ok(Box::new(crypto::CryptoCore::open(&config.name, config.cpu, place)?)),
        DeviceKind::Packet => Ok(Box::new(packet::Packet::open(&config.name, config.cpu, place)?)),
        DeviceKind::Kernel => Ok(Box::new(kernel::Kernel::open(&config.name, place)?)),
    }
}

/// A configured device.
struct DeviceEntry {
    config: OffloadDevice,
    running: Box<dyn Running>,
    /// The target of packets covered by its policies, if it takes policies.
    target: Option<Target>,
    up: bool,
}

/// The devices of a namespace.
pub(crate) struct Devices {
    netns: Netns,
    waker: Arc<Waker>,
    links: Links,
    list: Vec<DeviceEntry>,
}

/// The name of a configured device that cannot be opened, and why.
pub(crate) type Refused = (String, io::Error);

impl Devices {
    /// Starts without devices. `waker` is woken when one of them has events.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(netns: Netns, waker: Arc<Waker>) -> io::Result<Self> {
        let links = netns.run(Links::new)?;
        Ok(Devices { netns, waker, links, list: Vec::new() })
    }

    /// Replaces the devices by these; those that stay the same are left alone.
    ///
    /// # Errors
    /// The first one that cannot be opened. Those before it are open, and those that are not wanted any more are
    /// closed.
    pub(crate) fn configure(&mut self, wanted: &[OffloadDevice], data: &DataPath) -> Result<(), Refused> {
        self.update(data);
        let (stay, go) =
            core::mem::take(&mut self.list).into_iter().partition(|e: &DeviceEntry| wanted.contains(&e.config));
        self.list = stay;
        for entry in go {
            end(entry, data);
        }
        for config in wanted {
            if !self.list.iter().any(|e| e.config == *config) {
                self.open(config, data).map_err(|e| (config.name.clone(), e))?;
            }
        }
        Ok(())
    }

    fn open(&mut self, config: &OffloadDevice, data: &DataPath) -> io::Result<()> {
        let number = match config.kind {
            DeviceKind::Packet => data.free_number().ok_or_else(|| {
                let most = format!("there can be {} devices for packet offload", data.shared().bits.last_device());
                io::Error::new(io::ErrorKind::InvalidInput, most)
            })?,
            _ => 0,
        };
        let place = DeviceContext {
            netns: &self.netns,
            shared: data.shared(),
            waker: &self.waker,
            mirror: data.mirror(),
            number,
        };
        let running = open(config, &place)?;
        // Link messages about its making are old news.
        self.update(data);
        let name = &config.name;
        let is_up = self.netns.run(|| link::is_up(name))?;
        let target = match config.kind {
            DeviceKind::Inline | DeviceKind::Crypto => None,
            DeviceKind::Packet => Some(Target::Tun(number, config.name.clone())),
            DeviceKind::Kernel => Some(Target::Kernel),
        };
        let mut entry = DeviceEntry { config: config.clone(), running, target, up: false };
        match if is_up { bring_up(&mut entry, data) } else { Ok(()) } {
            Ok(()) => {
                self.list.push(entry);
                Ok(())
            }
            Err(e) => {
                end(entry, data);
                Err(e)
            }
        }
    }

    /// Handles changes of the interfaces. Does not wait.
    pub(crate) fn update(&mut self, data: &DataPath) {
        let Devices { netns, links, list, .. } = self;
        let mut gone = Vec::new();
        let all_told = links.changes(|change| {
            let Some(entry) = list.iter_mut().find(|e| e.running.ifindex() == change.ifindex) else { return };
            match change.up {
                true => bring_up_or_report(entry, data),
                false => bring_down(entry, data),
            }
            if change.gone {
                gone.push(change.ifindex);
            }
        });
        if all_told.is_err() {
            // Some may have been down in between.
            for entry in list.iter_mut() {
                bring_down(entry, data);
                let name = &entry.config.name;
                match netns.run(|| Ok((link::index(name)?, link::is_up(name)?))) {
                    Ok((index, true)) if index == entry.running.ifindex() => bring_up_or_report(entry, data),
                    Ok((index, _)) if index == entry.running.ifindex() => {}
                    _ => gone.push(entry.running.ifindex()),
                }
            }
        }
        for entry in list.extract_if(.., |e| gone.contains(&e.running.ifindex())) {
            let name = &entry.config.name;
            warn!(device = name, "xfrm: {name}: the device is gone until the configuration is read again");
            end(entry, data);
        }
    }

    /// The descriptor that becomes readable when [`Devices::update`] is needed.
    pub(crate) fn links(&self) -> io::Result<std::os::fd::OwnedFd> {
        self.links.try_clone()
    }

    /// The interfaces that programs may ask for `esp-hw-offload`. The kernel answers for interfaces that are not the
    /// daemon's.
    pub(crate) fn names(&self) -> Vec<String> {
        let ours = self.list.iter().filter(|e| e.config.kind != DeviceKind::Kernel);
        ours.map(|e| e.config.name.clone()).collect()
    }

    /// The status of each device.
    pub(crate) fn status(&self) -> Vec<status::Device> {
        let status = |entry: &DeviceEntry| status::Device {
            name: entry.config.name.clone(),
            up: entry.up,
            kind: entry.running.status(),
        };
        self.list.iter().map(status).collect()
    }

    /// Ends all of them.
    pub(crate) fn stop(&mut self, data: &DataPath) {
        self.list.drain(..).for_each(|entry| end(entry, data));
    }
}

/// Puts a device up, and reports it if that fails.
fn bring_up_or_report(entry: &mut DeviceEntry, data: &DataPath) {
    if let Err(e) = bring_up(entry, data) {
        let name = &entry.config.name;
        error!(device = name, error = %e, "xfrm: {name}: {e}: the device stays down");
    }
}

fn bring_up(entry: &mut DeviceEntry, data: &DataPath) -> io::Result<()> {
    if entry.up {
        return Ok(());
    }
    let half = entry.running.up()?;
    let ifindex = entry.running.ifindex();
    if let Some(target) = &entry.target {
        // Each time, because the kernel removes the routes of an interface that goes down.
        data.set_target(ifindex, Some(target.clone()))?;
    }
    data.with(|xfrm, _| xfrm.add_device(ifindex as i32, half))?;
    entry.up = true;
    debug!(device = entry.config.name, "xfrm: {}: the device is up", entry.config.name);
    Ok(())
}

/// Closes a device.
fn end(mut entry: DeviceEntry, data: &DataPath) {
    bring_down(&mut entry, data);
    if entry.target.is_some()
        && let Err(e) = data.set_target(entry.running.ifindex(), None)
    {
        rules_not_written(&entry, &e);
    }
}

fn bring_down(entry: &mut DeviceEntry, data: &DataPath) {
    if !core::mem::take(&mut entry.up) {
        return;
    }
    let ifindex = entry.running.ifindex() as i32;
    if let Err(e) = data.with(|xfrm, _| xfrm.device_down(ifindex)) {
        // The old rules stay, and packets covered by them are dropped.
        rules_not_written(entry, &e);
    }
    entry.running.down();
    debug!(device = entry.config.name, "xfrm: {}: the device is down", entry.config.name);
}

/// Reports that the rules could not be changed for a device.
fn rules_not_written(entry: &DeviceEntry, error: &io::Error) {
    let name = &entry.config.name;
    error!(device = name, %error, "xfrm: {name}: the rules for policies could not be written: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_here_is_told() {
        let device = |cpu| OffloadDevice { name: "x".into(), kind: DeviceKind::Packet, netns: None, cpu };
        assert!(check(&[device(None), device(Some(0))]).is_ok());
        let (what, e) = check(&[device(Some(8191))]).expect_err("so many there are not");
        assert!(what.contains("'x'") && e.to_string().contains("no CPU 8191"));
    }
}
