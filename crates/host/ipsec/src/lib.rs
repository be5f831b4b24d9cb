//! IPsec on this host: an engine for each network namespace that the configuration names, and the sockets that reach
//! it.
//!
//! Programs speak NETLINK_XFRM. Under `sealane run` the launcher gives them a socket of NETLINK_USERSOCK instead, whose
//! frames go to the port of [`control::socket`]; a program may also speak to that port without a launcher.
//! [`control::space`] has the parts of one namespace: the engine, its clock, and the thread that answers.
//!
//! Packets have their own threads in each namespace (`sealane_ipsec_data`), which this crate starts. It leads packets to them by
//! rules and routes, gives states and policies to offload devices, and keeps what the next daemon takes over.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod control;
mod device;
mod interface;
mod surroundings;

use control::numbers;
pub use control::path::clear;
#[cfg(feature = "testing")]
pub use control::policies::rules_of;
use control::space::Space;
use device::Refused;
use sealane_abi::admin::ipsec;
use sealane_config::{Ipsec, IptfsRate, Namespaces};
use sealane_engine_xfrm::RateRule;
use sealane_ipsec_data::Settings as PathSettings;
use sealane_net_ipsec::iptfs::Rate;
use sealane_sys::found::{Found, OnFailure, Service};
use sealane_sys::named_netns::Named;
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use sealane_sys::presence;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use surroundings::Settings;
pub use surroundings::Surroundings;
use tracing::warn;

/// All namespaces that are served.
pub struct Spaces {
    place: Surroundings,
    /// Those that the configuration names; `None` is the daemon's own.
    by_name: BTreeMap<Option<String>, Arc<Space>>,
    /// Those of patterns, none of which is in `by_name`.
    found: Found<Arc<Space>>,
    settings: Settings,
}

impl Spaces {
    /// Starts without namespaces. `waker` wakes whoever is to call [`Spaces::follow`], because a namespace has failed.
    pub fn new(place: Surroundings, waker: Arc<Waker>) -> Self {
        Spaces {
            place,
            by_name: BTreeMap::new(),
            found: Found::new(waker),
            settings: Settings { path: path_settings(&Ipsec::default()), partial_macs: false },
        }
    }

    /// Looks for mistakes in a configuration, and changes nothing.
    ///
    /// # Errors
    /// The part that cannot be served, and the reason.
    pub fn check(&self, config: Option<&Ipsec>) -> Result<(), (String, io::Error)> {
        let nothing = Ipsec::default();
        let config = config.unwrap_or(&nothing);
        let Ipsec { spaces: Namespaces { netns: names, .. }, devices, workers, incoming, late, .. } = config;
        device::check(devices)?;
        if self.all().any(|space| space.data().workers() != *workers) {
            let what = "'workers' is taken up at the start: another number needs the daemon to be started again";
            return Err(("IPsec".to_owned(), io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        if self.all().any(|space| space.data().incoming() != *incoming) {
            let what = "'incoming' is taken up at the start: another interface needs the daemon to be started again";
            return Err(("IPsec".to_owned(), io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        if self.all().any(|space| space.data().is_late() != *late) {
            let what = "'late' is taken up at the start: another way needs the daemon to be started again";
            return Err(("IPsec".to_owned(), io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        for name in names.iter().filter(|n| !self.by_name.contains_key(*n)) {
            Netns::named(name.as_deref()).map_err(|e| (ipsec_in(name), e))?;
        }
        Ok(())
    }

    /// Ends what a configuration does not allow any more: states with partial MACs. It is done before anything of the configuration
    /// is put in place, and cannot fail.
    pub fn restrict(&mut self, config: Option<&Ipsec>) {
        if !config.is_some_and(|config| config.partial_macs) {
            self.settings.partial_macs = false;
            self.all().for_each(|space| space.allow_partial_macs(false));
        }
    }

    /// Serves the namespaces of a configuration in which [`Self::check`] has found no mistake, and no others, with its devices and
    /// no others.
    ///
    /// # Errors
    /// The name of the one that cannot be served, and why; those before it are served.
    pub fn serve(&mut self, config: Option<&Ipsec>) -> Result<(), (String, io::Error)> {
        let nothing = Ipsec::default();
        let config = config.unwrap_or(&nothing);
        self.restrict(Some(config));
        let Ipsec { spaces, devices, interfaces, gateways, rates, partial_macs, .. } = config;
        let names = &spaces.netns;
        self.settings = Settings { path: path_settings(config), partial_macs: *partial_macs };
        if *partial_macs {
            self.all().for_each(|space| space.allow_partial_macs(true));
        }
        let of = ipsec_in;
        let id = |name: &Option<String>| Netns::named(name.as_deref()).and_then(|netns| netns.id()).ok();
        let named = names.iter().filter_map(id).collect();
        let (patterns, service) = ((&*spaces.patterns, spaces.max_found), Patterns::of(&self.place, self.settings));
        let set = self.found.set(&service, &self.place.folder, patterns, &named);
        set.map_err(|e| ("the patterns of IPsec".to_owned(), e))?;
        for name in names.iter().filter(|n| !self.by_name.contains_key(*n)).collect::<Vec<_>>() {
            let netns = Netns::named(name.as_deref()).map_err(|e| (of(name), e))?;
            let found = netns.id().ok().and_then(|id| self.found.take(id));
            let settings = self.settings;
            let start = || Space::start(netns, name.as_deref(), &self.place, settings).map_err(|e| (of(name), e));
            let space = found.map_or_else(start, Ok)?;
            self.by_name.insert(name.clone(), space);
        }
        let gone: Vec<_> = self.by_name.keys().filter(|n| !names.contains(n)).cloned().collect();
        for name in gone {
            let Some(space) = self.by_name.remove(&name) else { continue };
            space.set_rates(Vec::new());
            space.put_in_place(&[], &[], &[]).map_err(of_part(&of(&name)))?;
            if let Some(space) = self.found.adopt::<Patterns<'_>>(space) {
                space.hand_back();
            }
        }
        for (name, space) in &self.by_name {
            let devices: Vec<_> = devices.iter().filter(|d| d.netns == *name).cloned().collect();
            let interfaces: Vec<_> = interfaces.iter().filter(|i| i.netns == *name).cloned().collect();
            space.set_rates(rates.iter().filter(|r| r.netns == *name).map(rule).collect());
            let gateway = gateways.iter().find(|g| g.netns == *name);
            let gateway = gateway.map_or(&[][..], |g| &g.interfaces);
            space.put_in_place(&devices, &interfaces, gateway).map_err(of_part(&of(name)))?;
        }
        self.follow();
        Ok(())
    }

    /// Serves the namespaces that have come and match a pattern, and gives up those that have gone. Returns the time until the
    /// next look, if nothing is mounted before.
    pub fn follow(&mut self) -> Option<Duration> {
        let named: HashSet<_> = self.by_name.values().filter_map(|space| space.netns().id().ok()).collect();
        self.found.follow(&Patterns::of(&self.place, self.settings), &named)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.by_name.values().chain(self.found.spaces())
    }

    /// The status of each namespace.
    pub fn status(&self) -> Vec<ipsec::IpsecNamespace> {
        let status = |space: &Arc<Space>| {
            let id = space.netns().id().ok();
            let name = id.and_then(|id| id.name());
            ipsec::IpsecNamespace { inode: id.map_or(0, |id| id.inode()), name, status: space.status() }
        };
        self.all().map(status).collect()
    }

    /// Ends all of them. Their policies stay in force: traffic that they cover is dropped until the next daemon serves
    /// it, or [`clear`] is called.
    pub fn stop(&mut self) {
        for space in core::mem::take(&mut self.by_name).into_values() {
            space.stop();
        }
        self.found.stop(&Patterns::of(&self.place, self.settings));
    }
}

/// IPsec in the namespaces of patterns.
struct Patterns<'a> {
    place: &'a Surroundings,
    settings: Settings,
}

impl<'a> Patterns<'a> {
    fn of(place: &'a Surroundings, settings: Settings) -> Self {
        Patterns { place, settings }
    }
}

impl Service for Patterns<'_> {
    type Space = Arc<Space>;
    const NAME: &'static str = "IPsec";
    const SECTION: &'static str = presence::IPSEC;

    fn start(&self, Named { name, netns, .. }: Named, on_failure: OnFailure) -> io::Result<Arc<Space>> {
        let (numbers, place) = (numbers::found(&name), self.place.with_failures_for(on_failure));
        let space = Space::start(netns, Some(&numbers), &place, self.settings)?;
        // Programs may have made interfaces there while an earlier daemon served.
        if let Err((part, e)) = space.put_in_place(&[], &[], &[]) {
            warn!(netns = name, error = %e, "IPsec in {name}: {part}: {e}");
        }
        Ok(space)
    }

    fn netns(space: &Arc<Space>) -> &Netns {
        space.netns()
    }

    fn stop(&self, space: Arc<Space>) {
        space.stop();
    }

    fn give_up(&self, space: Arc<Space>) {
        space.give_up();
        drop(space);
        if let Err(e) = numbers::tidy(&numbers::Home::of(&self.place.folder).folder, &self.place.registry) {
            warn!(error = %e, "xfrm: the numbers of network namespaces that have gone: {e}");
        }
    }

    fn hand_back(&self, space: Arc<Space>) {
        space.hand_back();
    }
}

/// A rule about rates, as the engine has it.
fn rule(of: &IptfsRate) -> RateRule {
    let IptfsRate { remote, reqid, if_id, interval_ns, packet_len, congestion_control, .. } = *of;
    RateRule { remote, reqid, if_id, rate: Rate { interval_ns, packet_len, congestion_control } }
}

/// The settings of data paths in a configuration.
fn path_settings(config: &Ipsec) -> PathSettings {
    PathSettings { workers: config.workers, incoming: config.incoming, late: config.late }
}

/// Puts the words for a namespace before the part of it that could not be put in place.
fn of_part(of: &str) -> impl FnOnce(Refused) -> Refused {
    move |(part, e)| (format!("{of}: {part}"), e)
}

/// The words for IPsec in a namespace.
fn ipsec_in(name: &Option<String>) -> String {
    format!("IPsec in {}", name.as_deref().unwrap_or("this network namespace"))
}

#[cfg(test)]
mod tests;
