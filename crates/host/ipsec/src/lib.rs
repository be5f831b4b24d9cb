//! IPsec on this host: an engine for each network namespace that the configuration names, and the sockets that reach
//! it.
//!
//! Programs speak NETLINK_XFRM. Under `sealane run` the launcher gives them a socket of NETLINK_USERSOCK instead, whose
//! frames go to the port of [`control::socket`]; a program may also speak to that port without a launcher.
//! [`control::space`] has the parts of one namespace: the engine, its clock, and the thread that answers.
//!
//! Packets have their own threads in each namespace ([`data`]):
//!
//! ```text
//!  stack ─ mark (nft) ─ rule ─ TUN ─▶ outbound: cut, seal in bursts ─▶ ESP in UDP by superframes, or raw ESP ─▶ wire
//!  stack ◀──────────────────── TUN ◀─ join ◀─ open in bursts, check policies ◀─ sockets of ESP ◀──────────── wire
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bypass;
mod control;
mod data;
mod device;
mod errand;
mod gateway;
mod interface;
mod surroundings;

pub use control::path::clear;
use control::space::Space;
use sealane_abi::admin::ipsec;
use sealane_config::Ipsec;
use sealane_sys::netns::Netns;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
pub use surroundings::Surroundings;
use tracing::debug;

/// All namespaces that are served, by name; `None` is the daemon's own.
pub struct Spaces {
    place: Surroundings,
    by_name: BTreeMap<Option<String>, Arc<Space>>,
}

impl Spaces {
    /// Starts without namespaces.
    pub fn new(place: Surroundings) -> Self {
        Spaces { place, by_name: BTreeMap::new() }
    }

    /// Looks for mistakes in a configuration, and changes nothing.
    ///
    /// # Errors
    /// The part that cannot be served, and the reason.
    pub fn check(&self, config: Option<&Ipsec>) -> Result<(), (String, io::Error)> {
        let nothing = Ipsec::default();
        let Ipsec { netns: names, devices, workers, .. } = config.unwrap_or(&nothing);
        device::check(devices)?;
        if self.by_name.values().any(|space| space.data().workers() != *workers) {
            let what = "'workers' is taken up at the start: another number needs the daemon to be started again";
            return Err(("IPsec".to_owned(), io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        for name in names.iter().filter(|n| !self.by_name.contains_key(*n)) {
            Netns::named(name.as_deref()).map_err(|e| (ipsec_in(name), e))?;
        }
        Ok(())
    }

    /// Serves the namespaces of a configuration in which [`Self::check`] has found no mistake, and no others, with its devices and
    /// no others.
    ///
    /// # Errors
    /// The name of the one that cannot be served, and why; those before it are served.
    pub fn serve(&mut self, config: Option<&Ipsec>) -> Result<(), (String, io::Error)> {
        let nothing = Ipsec::default();
        let Ipsec { netns: names, devices, interfaces, gateways, workers } = config.unwrap_or(&nothing);
        let of = ipsec_in;
        for name in names.iter().filter(|n| !self.by_name.contains_key(*n)).collect::<Vec<_>>() {
            let netns = Netns::named(name.as_deref()).map_err(|e| (of(name), e))?;
            let space = Space::start(netns, name.as_deref(), &self.place, *workers).map_err(|e| (of(name), e))?;
            self.by_name.insert(name.clone(), space);
        }
        let gone: Vec<_> = self.by_name.keys().filter(|n| !names.contains(n)).cloned().collect();
        for name in gone {
            if let Some(space) = self.by_name.remove(&name) {
                space.hand_back();
            }
        }
        for (name, space) in &self.by_name {
            let _context = space.context().enter();
            let here: Vec<_> = devices.iter().filter(|d| d.netns == *name).cloned().collect();
            space.set_devices(&here).map_err(|(device, e)| (format!("{}: device '{device}'", of(name)), e))?;
            let here: Vec<_> = interfaces.iter().filter(|i| i.netns == *name).cloned().collect();
            space.set_interfaces(&here).map_err(|(which, e)| (format!("{}: interface '{which}'", of(name)), e))?;
            let gateway = gateways.iter().find(|g| g.netns == *name);
            let interfaces = gateway.map_or(&[][..], |g| &g.interfaces);
            space.set_gateway(interfaces).map_err(|e| (format!("{}: the gateway", of(name)), e))?;
            debug!("xfrm: devices, interfaces and gateway are those of the configuration");
        }
        Ok(())
    }

    /// The status of each namespace.
    pub fn status(&self) -> Vec<ipsec::IpsecNamespace> {
        let status = |space: &Arc<Space>| {
            let id = space.netns().id().ok();
            let name = id.and_then(|id| id.name());
            ipsec::IpsecNamespace { inode: id.map_or(0, |id| id.inode()), name, status: space.status() }
        };
        self.by_name.values().map(status).collect()
    }

    /// Ends all of them. Their policies stay in force: traffic that they cover is dropped until the next daemon serves
    /// it, or [`clear`] is called.
    pub fn stop(&mut self) {
        for space in core::mem::take(&mut self.by_name).into_values() {
            space.stop();
        }
    }
}

/// The words for IPsec in a namespace.
fn ipsec_in(name: &Option<String>) -> String {
    format!("IPsec in {}", name.as_deref().unwrap_or("this network namespace"))
}

#[cfg(test)]
mod tests;
