//! The control of one network namespace's data path: its threads ([`sealane_ipsec_data::Worker`]), and the rules that lead
//! packets to them.

use super::kept::{Kept, Restored};
use super::late;
use super::policies::{self, Target, Targets, prefix_rules, wanted_rules};
use super::socket::Socket;
use super::vti::has_policies;
use crate::device::mirror::Mirror;
use parking_lot::Mutex;
use sealane_config::{DEVICE, Incoming};
use sealane_engine_xfrm::{Now, Xfrm};
use sealane_handover::Keeper;
use sealane_ipsec_data::{Publish, Settings, Shared, Worker};
use sealane_net_ipsec::drop::{DropReason, Stat};
use sealane_packets::outgoing::OutgoingDevice;
use sealane_packets::tun::{self, Tun};
use sealane_rules::ipsec::{PolicyTable, Refused, Wanted};
use sealane_rules::late::Late;
use sealane_rules::watch::Watch;
use sealane_sys::cpu;
use sealane_sys::families::Families;
use sealane_sys::found::OnFailure;
use sealane_sys::life::{self, Kind};
use sealane_sys::link;
use sealane_sys::marks::{Bits, Opened};
use sealane_sys::netconf;
use sealane_sys::netlink::errno;
use sealane_sys::netns::Netns;
use sealane_sys::presence::{self, Presence};
use sealane_sys::route::{self, Gone, PrefixRule, PrefixRules, Ways};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{Span, debug, error, warn};
use zeroize::Zeroizing;

/// The data path of a namespace. Rules, routes and policies outlive it, unless it is ended by [`DataPath::hand_back`].
pub(crate) struct DataPath {
    netns: Netns,
    shared: Arc<Shared>,
    /// The rules, and the journals for the next daemon, which change together.
    rules: Mutex<(Rules, Kept)>,
    targets: Mutex<Targets>,
    prefix_rules: Mutex<PrefixRules>,
    mirror: Arc<Mirror>,
    /// The device for others that give packets to the stack.
    tun: Tun,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Whether the rules could not be written, and have to be written again.
    stale: AtomicBool,
    /// Whether packets are to be sealed that policies cover only as they leave.
    is_late: bool,
}

/// The time between two lists of devices, of which containers make and remove many.
const LIST_APART: Duration = Duration::from_millis(100);
/// The time after which devices that could not be listed are listed again.
const LIST_AGAIN: Duration = Duration::from_secs(1);
/// The most VTI devices whose names are kept: others may make a million.
const MAX_WARNED: usize = 1024;

/// Tells when others change the rules or routes that protection needs.
pub(crate) struct Watches {
    rules: Watch,
    routes: route::Watch,
    /// The names of VTI devices that have been warned of.
    vtis: BTreeSet<String>,
}

impl Watches {
    /// The descriptors that become readable.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 3] {
        let [rules, routes] = self.routes.fds();
        [self.rules.as_fd(), rules, routes]
    }
}

/// Ends all threads as soon as one of them ends, even by a panic: traffic covered by policies is dropped then, until
/// whoever is told starts everything again.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if !self.0.end() {
            (self.0.on_failure)();
        }
    }
}

impl DataPath {
    /// Starts a data path, which takes over the policies and states in `kept`. From now on traffic covered by policies goes through it,
    /// or is dropped.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without its privileges, `ENOENT` without `/dev/net/tun`.
    pub(crate) fn start(
        netns: Netns,
        xfrm: Xfrm,
        publish: Publish,
        on_failure: OnFailure,
        settings: Settings,
        mut kept: Kept,
    ) -> io::Result<Self> {
        let programs = kept.programs_mark();
        let shared = Arc::new(Shared::new(&netns, xfrm, publish, on_failure, settings, programs)?);
        let bits = shared.bits;
        let restored = kept.restore(&mut shared.xfrm(), shared.now());
        shared.note_modes(&shared.xfrm());
        shared.xfrm().leave_unknown();
        let owner = kept.rules_owner().take();
        let ways = (shared.entrances.opened, shared.late.as_ref().map(|late| late.way));
        let (workers, mut rules) = netns.run(|| Ok((Worker::open_all(&shared)?, Rules::new(bits, ways, owner)?)))?;
        kept.rules_owner().keep(rules.table.owner());
        // Without the policies of before, traffic that they covered stays covered by their rules until a key manager
        // says which policies there are now.
        if rules.table.is_there() && restored != Restored::All {
            shared.set_leftover(true);
        } else {
            let marks = policies::marks(&shared.xfrm());
            shared.set_marks(!marks.is_empty());
            if shared.late.is_some() {
                rules.list(&netns, |_| false)?;
            }
            rules.write(wanted_rules(shared.xfrm().spd(), marks, &Targets::new(), &BTreeSet::new()), &shared)?;
            kept.begin(&mut shared.xfrm());
            let batch = kept.collect(&mut shared.xfrm());
            kept.write(batch);
        }
        rules.version = Version::of(&shared.xfrm());
        let tun = workers.first().ok_or(io::ErrorKind::InvalidInput)?.tun()?;
        let index = tun.index();
        let mut prefix_rules = PrefixRules::default();
        netns.run(|| {
            // Devices may have other numbers now. Until rules for prefixes are set again, marks lead their packets.
            prefix_rules.clear(bits)?;
            install(&shared, 0, index)
        })?;
        tun.keep()?;
        let data = DataPath {
            netns,
            shared,
            rules: Mutex::new((rules, kept)),
            targets: Mutex::default(),
            prefix_rules: Mutex::new(prefix_rules),
            mirror: Arc::default(),
            tun,
            threads: Mutex::default(),
            stale: AtomicBool::new(false),
            is_late: settings.late,
        };
        match data.spawn(workers) {
            Ok(()) => Ok(data),
            Err(e) => {
                data.stop_threads();
                Err(e)
            }
        }
    }

    fn spawn(&self, workers: Vec<Worker>) -> io::Result<()> {
        for (i, mut worker) in workers.into_iter().enumerate() {
            let there = self.netns.try_clone()?;
            let name = if i == 0 { DEVICE.to_owned() } else { format!("{DEVICE}{i}") };
            let (alarm, context) = (EndOnDrop(self.shared.clone()), Span::current());
            // The kernel has a queue for each CPU, so packets that a thread sent before it moved to another CPU may
            // arrive late. With several threads that would happen all the time.
            let cpu = if self.shared.has_several() { cpu::nth(i as u32) } else { None };
            let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
                let (alarm, _alive) = (alarm, life::begin(&name, Kind::Data));
                let _context = context.entered();
                debug!(worker = i, "xfrm: a worker has started");
                // A thread that may not be pinned moves packets all the same.
                let _ = cpu.map(cpu::stay_on);
                // The thread asks for paths and opens sockets in this namespace.
                if let Err(e) = there.enter().and_then(|()| worker.run()) {
                    error!(error = %e, "the data path of IPsec ended: {e}; traffic covered by policies is dropped");
                }
                drop(alarm);
            })?;
            self.threads.lock().push(thread);
        }
        self.spawn_late()?;
        let (there, shared, context) = (self.netns.try_clone()?, self.shared.clone(), Span::current());
        let alarm = EndOnDrop(self.shared.clone());
        let looker = std::thread::Builder::new().name("sealane-ports".into()).spawn(move || {
            let (alarm, _alive) = (alarm, life::begin("sealane-ports", Kind::Control));
            let _context = context.entered();
            match there.enter() {
                Ok(()) => shared.look_when_asked(),
                Err(e) => error!(error = %e, "xfrm: sockets of key managers are not looked for: {e}"),
            }
            drop(alarm);
        })?;
        self.threads.lock().push(looker);
        self.shared.note_request();
        Ok(())
    }

    /// Starts the thread that seals what has come late, if there is one.
    fn spawn_late(&self) -> io::Result<()> {
        const NAME: &str = "sealane-late";
        let Some(late) = &self.shared.late else { return Ok(()) };
        let tun = self.tun()?;
        let mut worker = self.netns.run(|| Worker::open_late(&self.shared, late, tun))?;
        let (there, alarm, context) = (self.netns.try_clone()?, EndOnDrop(self.shared.clone()), Span::current());
        let thread = std::thread::Builder::new().name(NAME.into()).spawn(move || {
            let (alarm, _alive) = (alarm, life::begin(NAME, Kind::Data));
            let _context = context.entered();
            if let Err(e) = there.enter().and_then(|()| worker.run()) {
                error!(error = %e, "the late way of IPsec ended: {e}; traffic covered by policies is dropped");
            }
            drop(alarm);
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Its TUN device, for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn tun(&self) -> io::Result<Tun> {
        self.tun.try_clone()
    }

    /// The interface by which opened packets come in, where the kernel allows that.
    pub(crate) fn incoming(&self) -> Incoming {
        self.shared.entrances.incoming()
    }

    /// Whether packets are to be sealed that policies cover only as they leave, where the kernel allows that.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// The number of its workers.
    pub(crate) fn workers(&self) -> u32 {
        self.shared.worker_count()
    }

    /// Whether all of its threads have ended.
    #[cfg(test)]
    pub(crate) fn has_ended(&self) -> bool {
        self.threads.lock().iter().all(JoinHandle::is_finished)
    }

    /// Does the last thing that an ending thread does: all of them end.
    pub(crate) fn end_one(&self) {
        drop(EndOnDrop(self.shared.clone()));
    }

    /// The part that its threads share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs a function on the engine, and updates the rules before it returns: a policy is in force when its sender
    /// gets the answer.
    ///
    /// # Errors
    /// The kernel's, when the rules could not be changed: traffic covered by them is dropped then.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Xfrm, Now) -> R) -> io::Result<R> {
        self.with_kept(|_, xfrm, now| f(xfrm, now))
    }

    fn with_kept<R>(&self, f: impl FnOnce(&mut Kept, &mut Xfrm, Now) -> R) -> io::Result<R> {
        let mut guard = self.rules.lock();
        let (rules, kept) = &mut *guard;
        let now = self.shared.now();
        let (result, wanted, batch) = {
            let mut xfrm = self.shared.xfrm();
            xfrm.note_time(now);
            let result = f(kept, &mut xfrm, now);
            self.shared.note_modes(&xfrm);
            self.shared.note_request();
            // Packets may have removed a state with a mark since the rules were written.
            let version = Version::of(&xfrm);
            // Rules of a former daemon stay until a key manager says which policies there are now.
            let remarked = version.marks != rules.version.marks && !self.shared.is_leftover();
            let changed = version.policies != rules.version.policies || remarked || self.mirror.has_changed();
            let wanted = changed.then(|| self.asked(&xfrm, &self.targets.lock()));
            if changed && !kept.is_open() {
                // Now it is known again which policies there are.
                kept.begin(&mut xfrm);
            }
            (result, wanted, kept.collect(&mut xfrm))
        };
        kept.write(batch);
        if let Some(wanted) = wanted {
            self.write(rules, wanted)?;
        }
        self.shared.choose_reader();
        self.shared.wake();
        self.shared.wake_gateway();
        Ok(result)
    }

    /// Has ESP in UDP come to sockets of ours, whatever key managers have opened since the last look. A worker reads new ones
    /// within milliseconds.
    pub(crate) fn join_key_managers(&self) {
        if let Err(e) = self.netns.run(|| self.shared.look_for_key_managers()) {
            warn!(error = %e, "xfrm: sockets of key managers: {e}");
        }
    }

    /// Writes the rules again where that has failed. Returns whether they are as they should be.
    pub(crate) fn catch_up(&self) -> bool {
        if !self.stale.swap(false, Ordering::AcqRel) {
            return true;
        }
        let rules = &mut self.rules.lock().0;
        let wanted = self.asked(&self.shared.xfrm(), &self.targets.lock());
        let done = self.write(rules, wanted).is_ok();
        if done {
            warn!("xfrm: the rules for policies are written at last");
        }
        done
    }

    /// Has the rules follow what policies, states, devices and interfaces ask for.
    fn write(&self, rules: &mut Rules, asked: Asked) -> io::Result<()> {
        rules.version = asked.version;
        // What has changed stays changed, so that the rules have to follow.
        rules.write(asked.rules, &self.shared).inspect_err(|_| self.stale.store(true, Ordering::Release))?;
        self.set_prefix_rules(asked.prefix_rules);
        self.mirror.remove_unwanted();
        self.shared.set_leftover(false);
        Ok(())
    }

    /// Watches over the rules and routes.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn watch(&self) -> io::Result<Watches> {
        let rules = self.netns.run(|| self.rules.lock().0.table.watch())?;
        let routes = self.netns.run(route::Watch::new)?;
        self.follow_forwarding(&[self.tun.index()]);
        self.list_late(|_| true);
        Ok(Watches { rules, routes, vtis: BTreeSet::new() })
    }

    /// Puts rules, routes and the TUN device back that others have removed. What is missing meanwhile is dropped by what
    /// is left. Returns whether devices have changed.
    pub(crate) fn repair(&self, watches: &mut Watches) -> bool {
        if watches.rules.changed() {
            match self.rules.lock().0.restore() {
                Ok(()) => warn!("xfrm: rules that somebody changed are as they were"),
                Err(e) => {
                    error!(error = %e, "xfrm: rules that somebody changed: {e}");
                    self.stale.store(true, Ordering::Release);
                }
            }
        }
        let changes = watches.routes.changes();
        if changes.devices {
            self.keep_device();
        }
        if changes.devices {
            self.note_devices(&changes.gone);
        }
        if self.list_again().is_some_and(|again| again.is_zero()) {
            self.list_late(|index| changes.gone.has(index));
        }
        for vti in &changes.vtis {
            // A device is told of with each of its changes.
            if !watches.vtis.contains(&vti.name) && has_policies(vti, self.shared.xfrm().spd()) {
                if watches.vtis.len() >= MAX_WARNED {
                    watches.vtis.clear();
                }
                watches.vtis.insert(vti.name.clone());
                warn!(
                    device = vti.name,
                    "xfrm: there are policies for the packets of the VTI device {}, which the kernel drops: Sealane does \
                     not serve it; an xfrm interface ([[ipsec.interface]]) takes its place",
                    vti.name
                );
            }
        }
        let targets = self.targets.lock();
        let devices = targets.iter().filter_map(|(index, target)| match target {
            Target::Tun(number, _) => Some((*number, *index)),
            Target::Kernel => None,
        });
        let ours: Vec<_> = [(0, self.tun.index())].into_iter().chain(devices).collect();
        if changes.forwarding {
            self.follow_forwarding(&ours.iter().map(|(_, index)| *index).collect::<Vec<_>>());
        }
        if changes.addresses {
            let ours = ours.iter().map(|(_, index)| *index);
            ours.chain(self.interfaces()).for_each(|index| self.keep_address(index));
        }
        for (number, index) in ours {
            if changes.routes
                && let Err(e) = self.netns.run(|| install(&self.shared, number, index))
            {
                // The device may be gone: then the route to nowhere is what is left, as it should be.
                debug!(error = %e, "xfrm: routing rules that somebody removed: {e}");
            }
            if changes.strict.contains(&index) {
                match self.netns.run(|| netconf::filter_loosely(index)) {
                    Ok(()) => {
                        warn!(ifindex = index, "xfrm: rp_filter of our device, which somebody set to 1, is 2 again")
                    }
                    Err(e) => error!(error = %e, "xfrm: rp_filter of our device, which somebody set to 1: {e}"),
                }
            }
        }
        changes.devices
    }

    /// Has the devices listed again by which packets may leave late: at once if one of them has gone.
    fn note_devices(&self, gone: &Gone) {
        if self.shared.late.is_none() {
            return;
        }
        let rules = &mut self.rules.lock().0;
        let lost = rules.table.loses_chain(|index| gone.has(index));
        rules.list_after = Some(if lost { Duration::ZERO } else { LIST_APART });
    }

    /// The time until the devices have to be listed again by which packets may leave late, if they do not stay.
    pub(crate) fn list_again(&self) -> Option<Duration> {
        self.shared.late.as_ref()?;
        let rules = &self.rules.lock().0;
        let again = rules.list_after.into_iter().chain(rules.table.list_again()).min()?;
        Some(rules.listed.map_or(Duration::ZERO, |listed| again.saturating_sub(listed.elapsed())))
    }

    /// The time until rules have to be settled, if there is anything to settle.
    pub(crate) fn settle_again(&self) -> Option<Duration> {
        self.rules.lock().0.table.settle_again()
    }

    /// Settles the rules when they have not changed for a while: see [`PolicyTable::settle`].
    pub(crate) fn settle(&self) {
        let table = &mut self.rules.lock().0.table;
        if table.settle_again().is_some_and(|again| again.is_zero())
            && let Err(e) = table.settle()
        {
            // Memory may be short.
            debug!(error = %e, "xfrm: rules with sets: {e}");
        }
    }

    /// Lists the devices by which packets may leave late. Those that are `gone` have been so since the last time, even if they are back.
    fn list_late(&self, gone: impl Fn(u32) -> bool) {
        if self.shared.late.is_none() {
            return;
        }
        let rules = &mut self.rules.lock().0;
        let done = rules.list(&self.netns, gone);
        rules.list_after = done.is_err().then_some(LIST_AGAIN);
        if let Err(e) = done {
            warn!(error = %e, "xfrm: the devices by which packets may leave late: {e}; what policies cover only then is dropped");
        }
    }

    /// Gives a device its address again if somebody has removed it.
    fn keep_address(&self, index: u32) {
        match self.netns.run(|| tun::keep_address(index)) {
            Ok(true) => warn!(ifindex = index, "xfrm: the address of our device, which somebody removed, is back"),
            Ok(false) => {}
            // The device may be gone.
            Err(e) => debug!(error = %e, "xfrm: the address of our device: {e}"),
        }
    }

    /// The numbers of the xfrm interfaces in the namespace.
    fn interfaces(&self) -> Vec<u32> {
        let names = self.shared.gates.names();
        if names.is_empty() {
            return Vec::new();
        }
        // Somebody may delete one at this moment.
        let numbers = || Ok(names.iter().filter_map(|name| link::index(name).ok()).collect());
        self.netns.run(numbers).unwrap_or_default()
    }

    /// Sets `forwarding` of our devices as long as a device of the machine has it. In Linux an opened packet belongs to the device
    /// by which it came sealed, and that device's setting counts; that of the others (IPv6) is one for all devices.
    fn follow_forwarding(&self, ours: &[u32]) {
        const LOOPBACK: u32 = 1;
        let interfaces = self.shared.gates.names();
        let done = self.netns.run(|| {
            let interfaces: Vec<_> = interfaces.iter().filter_map(|name| link::index(name).ok()).collect();
            let devices = netconf::forwarding()?;
            let is_ours = |index: &u32| *index == LOOPBACK || ours.contains(index) || interfaces.contains(index);
            let wanted = devices.iter().any(|(index, on)| *on && !is_ours(index));
            for (index, _) in devices.iter().filter(|(index, on)| ours.contains(index) && *on != wanted) {
                netconf::forward(*index, wanted)?;
                debug!(ifindex = index, on = wanted, "xfrm: forwarding of our device");
            }
            Ok(())
        });
        if let Err(e) = done {
            warn!(error = %e, "xfrm: forwarding of our devices: {e}");
        }
    }

    /// Gives the TUN device its name back, or has everything start again with another one where it is gone.
    fn keep_device(&self) {
        match self.netns.run(|| self.tun.keep_name(DEVICE)) {
            Ok(false) => {}
            Ok(true) => warn!("xfrm: our device {DEVICE}, which somebody renamed, has its name again"),
            // It may live on in another namespace, to which opened packets must not go.
            Err(e) if matches!(errno(&e), Some(libc::ENODEV | libc::EBUSY)) => {
                error!(error = %e, "xfrm: our device {DEVICE} is deleted, renamed, or in another network namespace");
                let _ = self.tun.let_go();
                self.end_one();
            }
            Err(e) => {
                error!(
                    error = %e,
                    "xfrm: our device {DEVICE}, which somebody renamed: {e}; traffic covered by policies is dropped"
                );
            }
        }
    }

    /// Updates engine and rules after the xfrm interfaces have changed.
    ///
    /// # Errors
    /// The kernel's, when the rules could not be changed.
    pub(crate) fn update_interfaces(&self) -> io::Result<()> {
        let rules = &mut self.rules.lock().0;
        let wanted = {
            let mut xfrm = self.shared.xfrm();
            xfrm.set_interfaces(self.shared.gates.if_ids());
            self.asked(&xfrm, &self.targets.lock())
        };
        // Rules of a former daemon stay until a key manager says which policies there are now.
        if self.shared.is_leftover() { Ok(()) } else { self.write(rules, wanted) }
    }

    /// The rules that policies, devices and interfaces ask for.
    fn asked(&self, xfrm: &Xfrm, targets: &Targets) -> Asked {
        let rules = self.wanted(xfrm, targets, &self.mirror.put(xfrm));
        self.shared.set_marks(!rules.marks.is_empty());
        Asked { version: Version::of(xfrm), rules, prefix_rules: prefix_rules(xfrm.spd(), targets) }
    }

    /// The rules of nftables among them. The kernel's own policies with the indices in `mirrored` are in force.
    fn wanted(&self, xfrm: &Xfrm, targets: &Targets, mirrored: &BTreeSet<u32>) -> Wanted {
        let interfaces = self.shared.gates.names();
        Wanted { interfaces, ..wanted_rules(xfrm.spd(), policies::marks(xfrm), targets, mirrored) }
    }

    /// The names of the chains of nftables whose rules in the kernel are not those that are asked for.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn unlike(&self) -> io::Result<BTreeSet<String>> {
        let rules = &mut self.rules.lock().0;
        let wanted = self.wanted(&self.shared.xfrm(), &self.targets.lock(), &self.mirror.held());
        rules.table.unlike(&wanted)
    }

    /// The statistics of packets that the engine has judged and of those that the rules have dropped.
    pub(crate) fn stat(&self) -> Stat {
        let mut stat = self.shared.xfrm().stat();
        let dropped = self.rules.lock().0.table.dropped();
        for (why, packets) in Refused::ALL.into_iter().zip(dropped) {
            let reason = match why {
                Refused::Template => DropReason::Template,
                Refused::Block => DropReason::InBlock,
                Refused::Rest => DropReason::InNoPolicy,
                Refused::Escape => DropReason::Escape,
                Refused::OutBlock => DropReason::OutBlock,
                Refused::OutRest => DropReason::OutRest,
            };
            stat.count(reason, packets);
        }
        stat
    }

    /// Sets routing rules that lead packets to their devices without a mark. If that fails, marks do it.
    fn set_prefix_rules(&self, wanted: BTreeSet<PrefixRule>) {
        let prefix_rules = &mut *self.prefix_rules.lock();
        if !prefix_rules.are(&wanted)
            && let Err(e) = self.netns.run(|| prefix_rules.set(wanted))
        {
            warn!(error = %e, "the routing rules of offload devices could not be set: {e}");
            let _ = self.netns.run(|| prefix_rules.clear(self.shared.bits));
        }
    }

    /// The policies that are mirrored into the kernel.
    pub(crate) fn mirror(&self) -> &Arc<Mirror> {
        &self.mirror
    }

    /// A free number for the TUN device of a packet core; `None` when there are too many.
    pub(crate) fn free_number(&self) -> Option<u8> {
        let targets = self.targets.lock();
        let taken = |n: u8| targets.values().any(|target| matches!(target, Target::Tun(number, _) if *number == n));
        (1..=self.shared.bits.last_device()).find(|n| !taken(*n))
    }

    /// Leads packets covered by the policies of an offload device to its target from now on; they are dropped when its
    /// TUN device is gone. `None` when it has no policies any more.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn set_target(&self, ifindex: u32, target: Option<Target>) -> io::Result<()> {
        if let Some(Target::Tun(number, _)) = target {
            self.netns.run(|| install(&self.shared, number, ifindex))?;
        }
        let rules = &mut self.rules.lock().0;
        let (before, after) = {
            let mut targets = self.targets.lock();
            let before = targets.clone();
            match target {
                Some(target) => targets.insert(ifindex, target),
                None => targets.remove(&ifindex),
            };
            (before, targets.clone())
        };
        // Rules of a former daemon stay until a key manager says which policies there are now.
        if before == after || self.shared.is_leftover() {
            return Ok(());
        }
        let wanted = self.asked(&self.shared.xfrm(), &after);
        self.write(rules, wanted)
    }

    /// Ends the data path, and removes rules, routes and kept policies: traffic that policies covered passes unencrypted.
    pub(crate) fn hand_back(&self) {
        self.stop_threads();
        let (rules, kept) = &mut *self.rules.lock();
        kept.remove();
        // They may be gone already.
        let _ = self.tun.let_go();
        self.shared.late.iter().for_each(|late| {
            let _ = late.let_go();
        });
        let done = rules.table.delete().and_then(|()| {
            self.netns.run(|| {
                self.prefix_rules.lock().clear(self.shared.bits)?;
                route::remove_all(self.shared.bits)
            })
        });
        if let Err(e) = done {
            error!(error = %e, "IPsec's rules could not be removed: {e}");
        }
    }

    /// The identities of the series that [`Self::restore_devices`] needs.
    pub(crate) fn series_of_waiting(&self) -> Vec<Zeroizing<Vec<u8>>> {
        self.rules.lock().1.series_of_waiting(&mut self.shared.xfrm())
    }

    /// Makes policies and states of before again whose devices have not been there so far.
    pub(crate) fn restore_devices(&self) {
        let done = self.with_kept(|kept, xfrm, now| kept.restore_devices(xfrm, now));
        if let Err(e) = done {
            error!(error = %e, "xfrm: the rules for policies could not be written: {e}");
        }
    }

    /// Leaves policies and states to the next daemon as they are now.
    pub(crate) fn leave(&self) {
        self.rules.lock().1.leave();
    }

    /// Ends its threads, and forgets policies and states, whose rules stay: traffic covered by them is dropped from then on.
    pub(crate) fn give_up(&self) {
        self.stop_threads();
        self.rules.lock().1.remove();
    }

    /// Ends its threads: traffic covered by policies is dropped from then on.
    pub(crate) fn stop_threads(&self) {
        self.shared.end();
        for thread in core::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
        self.shared.streams.end_all();
    }
}

/// The numbers of changes of an engine that rules depend on.
#[derive(Default)]
struct Version {
    policies: u64,
    marks: u64,
}

impl Version {
    fn of(xfrm: &Xfrm) -> Self {
        Version { policies: xfrm.spd().changes(), marks: xfrm.output_mark_changes() }
    }
}

/// The rules that policies, states, devices and interfaces ask for.
struct Asked {
    /// Of the policies and states.
    version: Version,
    rules: Wanted,
    prefix_rules: BTreeSet<PrefixRule>,
}

/// The rules for policies, and the ways of flows that there were before them.
struct Rules {
    table: PolicyTable,
    ways: Ways,
    /// Of the policies and states that they are for, or that they are to be written again for.
    version: Version,
    /// When the devices by which packets may leave late were listed.
    listed: Option<Instant>,
    /// The time after which they have to be listed again.
    list_after: Option<Duration>,
}

impl Rules {
    /// Those of the calling thread's namespace, with the socket that owns the rules of a predecessor.
    fn new(bits: Bits, special: (Option<Opened>, Option<Late>), owner: Option<OwnedFd>) -> io::Result<Self> {
        let (table, ways) = (PolicyTable::new(DEVICE, bits, special, owner)?, Ways::new(bits)?);
        Ok(Rules { table, ways, version: Version::default(), listed: None, list_after: None })
    }

    /// Writes rules. From then on packets of all flows see them, and opened packets come in by the devices that rules know them by.
    ///
    /// # Errors
    /// The kernel's: the rules before stay, or those flows pass them by that a flowtable has taken over.
    fn write(&mut self, wanted: Wanted, shared: &Shared) -> io::Result<()> {
        let families = self.table.write(wanted)?;
        shared.entrances.set_known(self.table.knows_opened());
        self.ways.choose_anew(families)?;
        debug!("xfrm: the rules for policies are written");
        Ok(())
    }

    /// Lists the devices of a namespace by which packets may leave late; see [`PolicyTable::list`].
    ///
    /// # Errors
    /// The kernel's.
    fn list(&mut self, netns: &Netns, gone: impl Fn(u32) -> bool) -> io::Result<()> {
        self.listed = Some(Instant::now());
        let late::Devices { there, suitable } = netns.run(late::devices)?;
        self.table.list(&there, &suitable, gone)
    }

    /// Writes the last rules again, whatever is there.
    ///
    /// # Errors
    /// As [`Rules::write`].
    fn restore(&mut self) -> io::Result<()> {
        self.table.restore()?;
        self.ways.choose_anew(Families::ALL)
    }
}

/// Routes packets that are marked with a number to its device, in the calling thread's namespace.
///
/// # Errors
/// The kernel's.
fn install(shared: &Shared, number: u8, device: u32) -> io::Result<()> {
    route::install(shared.bits, number, device)?;
    if number == 0 && shared.late.is_some() {
        route::install_perhaps_bound(shared.bits, device)?;
    }
    Ok(())
}

/// Removes the rules, routes and policies of a daemon that has ended: traffic that policies covered passes unencrypted.
/// `folder` is where it kept them.
///
/// # Errors
/// `AddrInUse` while a daemon serves the namespace; otherwise the kernel's.
pub fn clear(netns: &Netns, folder: &Path) -> io::Result<()> {
    // As long as we have both, no daemon starts. Where there is no folder nobody has kept anything.
    let _claim = folder.exists().then(|| presence::claim(folder, netns)).transpose()?;
    let _port = Socket::open(netns)?;
    let mut kept = Kept::of(folder, netns, Arc::new(Keeper::of_folder(folder)))?;
    let owner = kept.rules_owner().take();
    kept.remove();
    netns.run(|| {
        let bits = Bits::new(0, 0);
        PolicyTable::new(DEVICE, bits, (None, None), owner)?.delete()?;
        PrefixRules::default().clear(bits)?;
        route::remove_all(bits)?;
        OutgoingDevice::remove()?;
        Tun::remove_stack(DEVICE)
    })?;
    Presence::clear(folder, netns)
}
