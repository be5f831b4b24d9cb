//! The space of one network namespace: an engine, its clock, and the thread that answers requests at
//! [`XFRM_PORT`], or at another port where somebody has taken that.

use crate::control::keepalive;
use crate::control::kept::Kept;
use crate::control::listeners::{LISTENERS, Listeners, Sysctls};
use crate::control::numbers;
use crate::control::path::{DataPath, Watches};
use crate::control::questions::{self, Budget};
use crate::control::socket::{Server, Socket, refuse};
use crate::control::vti::keys;
use crate::device::{Devices, Refused};
use crate::interface::Interfaces;
use crate::surroundings::{Settings, Surroundings};
use arrayvec::ArrayVec;
use parking_lot::{Mutex, MutexGuard};
use sealane_abi::Errno;
use sealane_abi::admin::{DropCount, ipsec};
use sealane_abi::sealane::{Question, XFRM_PORT, read_interface_request};
use sealane_abi::xfrm::XFRMNLGRP_AEVENTS;
use sealane_config::{OffloadDevice, XfrmInterface};
use sealane_engine_xfrm::numbers::{FOR_GOOD, Numbers, Series};
use sealane_engine_xfrm::{Notice, Now, RateRule, Setup, VtiKeys, Xfrm, proc_xfrm_stat};
use sealane_ipsec_data::Gateway;
use sealane_net_ipsec::drop::{Counter, DropReason, Stat, TrafficCounters};
use sealane_net_ipsec::sad::pairs::PairView;
use sealane_sys::cpu;
use sealane_sys::life::{self, Kind};
use sealane_sys::netlink::errno;
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use sealane_sys::presence::{self, Presence, boot};
use sealane_sys::random;
use sealane_sys::unix;
use sealane_sys::vti::Vti;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{Span, debug, error, error_span, warn};
use zeroize::Zeroizing;

/// The time until rules are written again that could not be written.
const AGAIN: Duration = Duration::from_millis(100);

/// The most rates that the status has: it is one datagram.
const MOST_RATES: usize = 256;

/// The longest sleep of the thread. Other threads wake it when they change the engine.
const LONGEST: Duration = Duration::from_secs(60);

/// The space of one network namespace.
pub(crate) struct Space {
    netns: Netns,
    /// The context of messages about it.
    context: Span,
    socket: Arc<Socket>,
    waker: Arc<Waker>,
    numbers: numbers::Storage,
    data: DataPath,
    devices: Mutex<Devices>,
    gateway: Mutex<Option<Gateway>>,
    interfaces: Mutex<Interfaces>,
    /// Readable when an interface has changed.
    links: OwnedFd,
    stop: AtomicBool,
    /// Tells launchers that a daemon serves the namespace, even after it has died.
    presence: Presence,
    /// Nobody else serves the namespace.
    _claim: File,
    sysctls: Sysctls,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Space {
    /// Serves a namespace of this name.
    ///
    /// # Errors
    /// `AddrInUse` when another daemon does; otherwise the kernel's.
    pub(crate) fn start(
        netns: Netns,
        name: Option<&str>,
        place: &Surroundings,
        settings: Settings,
    ) -> io::Result<Arc<Self>> {
        let Settings { path, partial_macs } = settings;
        let Surroundings { registry, folder, keeper, on_failure } = place;
        let id = netns.id()?;
        // Of the highest level, so that warnings have it even if less is told.
        let context = error_span!("ipsec", netns = id.name(), netns_inode = id.inode());
        let _context = context.enter();
        let claim = presence::claim(folder, &netns)?;
        let leases = numbers::Home::of(folder);
        let owner = numbers::Owner { cookie: netns.cookie()?, boot: boot() };
        let numbers = numbers::Log::open(&leases, name, &owner, registry, random::fill)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", numbers::path(&leases.folder, name).display())))?;
        let numbers = numbers::Storage::new(numbers);
        if partial_macs && let Err(why) = numbers.check(&[FOR_GOOD]) {
            warn!("xfrm: states with partial MACs that may send are refused: {}", why.text());
        }
        let mut engine = Xfrm::new(Setup {
            registry: registry.clone(),
            random: Box::new(random::fill),
            cpus: cpu::possible(),
            numbers: Some(Box::new(numbers.clone())),
        });
        // States of a former daemon are asked, too. There are none yet that could end.
        let _none = engine.allow_partial_macs(partial_macs);
        let socket = Arc::new(Socket::open(&netns)?);
        let waker = Arc::new(Waker::new()?);
        let publish = {
            let (socket, waker) = (socket.clone(), waker.clone());
            Box::new(move |events: Vec<Notice>| {
                socket.publish(&events);
                // A new timer may be due before the others.
                waker.wake();
            })
        };
        let kept = Kept::of(folder, &netns, keeper.clone())?;
        let data = DataPath::start(netns.try_clone()?, engine, publish, on_failure.clone(), path, kept)?;
        let devices = Devices::new(netns.try_clone()?, waker.clone())?;
        let links = devices.links()?;
        let port = socket.port().unwrap_or(XFRM_PORT);
        if port != XFRM_PORT {
            warn!(port, "xfrm: another program has the usual port of IPsec's requests: they come to {port}");
        }
        let presence = Presence::write(folder, &netns, port)?;
        let sysctls = netns.run(|| Ok(Sysctls::open()))?;
        let interfaces = Mutex::new(Interfaces::new(netns.try_clone()?, folder)?);
        let space = Arc::new(Space {
            netns,
            context: context.clone(),
            socket,
            waker,
            numbers,
            data,
            devices: Mutex::new(devices),
            gateway: Mutex::default(),
            interfaces,
            links,
            stop: AtomicBool::new(false),
            presence,
            _claim: claim,
            sysctls,
            thread: Mutex::default(),
        });
        let shared = space.clone();
        let thread = std::thread::Builder::new().name("sealane-xfrm".into()).spawn(move || shared.work())?;
        *space.thread.lock() = Some(thread);
        debug!(workers = path.workers, "xfrm: the namespace is served");
        Ok(space)
    }

    fn work(&self) {
        let _context = self.context.enter();
        let _alive = life::begin("sealane-xfrm", Kind::Control);
        let Some(mut server) = Server::new(&self.socket) else { return };
        let mut listeners = Listeners::new(&self.netns)
            .inspect_err(|e| error!(error = %e, "xfrm: {e}: programs that listen to events are not seen"))
            .ok();
        let mut budget = Budget::default();
        let mut keepalives = keepalive::Sender::default();
        let mut watches = self
            .data
            .watch()
            .inspect_err(|e| error!(error = %e, "xfrm: {e}: rules that others remove stay removed"))
            .ok();
        while !self.stop.load(Ordering::Acquire) {
            // The kernel is asked before the engine is locked, because packets wait for the lock.
            let listen = listeners.as_mut().is_some_and(|listeners| listeners.has_listeners(XFRMNLGRP_AEVENTS));
            let timeout = {
                let now = self.now();
                let mut engine = self.engine();
                engine.note_time(now);
                engine.set_aevent_listeners(listen, now);
                let longest = if engine.has_states() { LISTENERS } else { LONGEST };
                engine.poll_timeout(now).unwrap_or(longest).min(longest)
            };
            let mut fds: ArrayVec<BorrowedFd<'_>, 4> = ArrayVec::new();
            fds.push(self.links.as_fd());
            fds.extend(watches.iter().flat_map(Watches::fds));
            let timeout = if self.data.catch_up() { timeout } else { timeout.min(AGAIN) };
            self.data.settle();
            let again = [self.data.list_again(), self.data.settle_again()];
            let timeout = again.into_iter().flatten().fold(timeout, Duration::min);
            server.serve_once(timeout, &self.waker, &fds, |datagram, from| {
                if from.caller.privileged {
                    // As on Linux, a client that has put an interface down finds its states gone.
                    self.devices.lock().update(&self.data);
                }
                let answer = questions::answer(datagram, &from, &mut budget, |question, words| match question {
                    Question::Stat => proc_xfrm_stat(&self.data.stat()),
                    // Nothing in it can fail to become text.
                    Question::Status => {
                        // Peers are for those who may ask for states.
                        let status = if from.caller.privileged { self.status() } else { self.status_without_peers() };
                        serde_json::to_string(&status).unwrap_or_default()
                    }
                    Question::ExemptMark if !from.caller.privileged => String::new(),
                    Question::ExemptMark => self.data.shared().bits.programs.to_string(),
                    Question::Ports => {
                        self.data.join_key_managers();
                        String::new()
                    }
                    Question::Interface | Question::Stream if !from.caller.privileged => {
                        Errno::EPERM.number().to_string()
                    }
                    Question::Interface => self.make_interface(words),
                    Question::Stream => self.take_stream(words),
                    Question::Rules if !from.caller.privileged => String::new(),
                    Question::Rules => match self.data.unlike() {
                        Ok(chains) => chains.into_iter().collect::<Vec<_>>().join(", "),
                        Err(e) => e.to_string(),
                    },
                });
                if let Some(answer) = answer {
                    return answer;
                }
                // Anybody may ask at any rate: neither the engine nor its workers are troubled.
                if !from.caller.privileged {
                    return Xfrm::call_without_rights(datagram, from);
                }
                let settings = self.sysctls.read();
                let vtis = self.vtis_of(datagram);
                let flush = || {
                    if let Some(proto) = Xfrm::flushed_protocol(datagram) {
                        while self.data.with(|engine, _| engine.flush_ahead(proto))? {
                            life::beat();
                        }
                    }
                    Ok(())
                };
                let wanted = if Xfrm::adds_states(datagram) { self.engine().series_of(datagram) } else { Vec::new() };
                let reserved = self.reserve(&wanted);
                let done = flush().and_then(|()| {
                    self.data.with(|engine, now| {
                        settings.apply(engine);
                        engine.set_vtis(vtis);
                        engine.call(datagram, from, now)
                    })
                });
                self.numbers.release(reserved);
                done.unwrap_or_else(|e| {
                    error!(error = %e, "xfrm: the rules for policies could not be written: {e}");
                    refuse(datagram, from)
                })
            });
            drop(fds);
            self.tell_of_silence();
            let have_changed = watches.as_mut().is_none_or(|watches| self.data.repair(watches));
            self.devices.lock().update(&self.data);
            if have_changed && let Err(e) = self.interfaces.lock().follow(&self.data) {
                error!(error = %e, "xfrm: the rules for policies could not be written: {e}");
            }
            // Workers remove states whose limits packets have reached.
            if self.engine().has_changes()
                && let Err(e) = self.data.with(|_, _| ())
            {
                error!(error = %e, "xfrm: the rules for policies could not be written: {e}");
            }
            let now = self.now();
            self.engine().look_after_leases(now);
            let told = self.engine().take_device_events();
            if !told.is_empty() {
                match self.data.with(|engine, _| engine.handle_device_events(told)) {
                    Ok(events) => self.publish(&events),
                    Err(e) => error!(error = %e, "xfrm: the rules for policies could not be written: {e}"),
                }
            }
            let now = self.now();
            if self.engine().poll_timeout(now).is_some_and(|t| t.is_zero()) {
                match self.data.with(|engine, now| engine.handle_timeout(now)) {
                    Ok(events) => self.publish(&events),
                    Err(e) => error!(error = %e, "xfrm: the rules for policies could not be written: {e}"),
                }
                let due = self.engine().keepalives(now);
                if let Err(e) = keepalives.send(&self.netns, self.data.shared().bits.exempt, &due) {
                    warn!(error = %e, "xfrm: NAT keep-alives: {e}");
                }
            }
        }
    }

    /// Tells of peers that send no feedback to states of IP-TFS whose rate follows it.
    fn tell_of_silence(&self) {
        let silent = self.engine().take_silent_pairs();
        for PairView { key, interval_ns, .. } in silent {
            let (remote, every_ms) = (key.remote, interval_ns / 1_000_000);
            warn!(
                local = %key.local, %remote, reqid = key.reqid, if_id = key.if_id, cpu = key.cpu,
                "xfrm: nothing tells how packets of IP-TFS come to {remote}, so that only one leaves every {every_ms} ms: the path is \
                 interrupted, or the other end has no congestion control (congestion-control in [[ipsec.iptfs]])"
            );
        }
    }

    /// Leases numbers for the series that are about to be used, until [`numbers::Storage::release`]. A disk that takes
    /// its time keeps its caller waiting, and no packet.
    fn reserve(&self, wanted: &[Zeroizing<Vec<u8>>]) -> Vec<Series> {
        wanted.iter().filter_map(|identity| self.numbers.reserve(identity)).collect()
    }

    /// The keys of the VTI devices whose policies a datagram sets.
    fn vtis_of(&self, datagram: &[u8]) -> Vec<VtiKeys> {
        let policies = Xfrm::marked_policies(datagram);
        if policies.is_empty() {
            return Vec::new();
        }
        let mut all = self.netns.run(Vti::all).unwrap_or_else(|e| {
            warn!(error = %e, "xfrm: VTI devices are not looked for: {e}");
            Vec::new()
        });
        all.retain(|vti| policies.iter().any(|(dir, mark)| keys(vti).fit(*dir, *mark)));
        for Vti { name, .. } in &all {
            warn!(
                device = name,
                "xfrm: a policy for the packets of {name} is refused: its mark is the key of that VTI device, which the \
                 kernel serves and Sealane does not; an xfrm interface ([[ipsec.interface]]) takes its place"
            );
        }
        all.iter().map(keys).collect()
    }

    /// The status of IPsec in this namespace.
    pub(crate) fn status(&self) -> ipsec::Status {
        let rates = self.engine().sad().pairs().take(MOST_RATES).map(controlled_rate).collect();
        let unused_rates = self.engine().unused_rates().iter().take(MOST_RATES).map(rate_table).collect();
        ipsec::Status { rates, unused_rates, ..self.status_without_peers() }
    }

    /// The same without what names peers.
    fn status_without_peers(&self) -> ipsec::Status {
        let stat = self.data.stat();
        let (states, [input, output, forward]) = self.engine().sizes();
        let shared = self.data.shared();
        ipsec::Status {
            states: states as u64,
            policies: ipsec::Policies { input: input.into(), output: output.into(), forward: forward.into() },
            path: shared.path_status(),
            workers: shared.worker_status(),
            devices: self.devices.lock().status(),
            interfaces: self.interfaces.lock().status(),
            gateway: self.gateway.lock().as_ref().map(Gateway::status),
            ..drops_and_traffic(&stat)
        }
    }

    /// The network namespace.
    pub(crate) fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The engine. Policies are changed by [`DataPath::with`] only.
    pub(crate) fn engine(&self) -> MutexGuard<'_, Xfrm> {
        self.data.shared().xfrm()
    }

    /// Its data path.
    pub(crate) fn data(&self) -> &DataPath {
        &self.data
    }

    /// The time by the engine's clock.
    pub(crate) fn now(&self) -> Now {
        self.data.shared().now()
    }

    /// Sends events to listeners.
    pub(crate) fn publish(&self, events: &[Notice]) {
        self.socket.publish(events);
    }

    /// Replaces devices, interfaces and gateway by these, and takes up what those of before have left in this namespace.
    ///
    /// # Errors
    /// The part that failed, and why; those before it are in place.
    pub(crate) fn put_in_place(
        &self,
        devices: &[OffloadDevice],
        interfaces: &[XfrmInterface],
        gateway: &[String],
    ) -> Result<(), Refused> {
        let _context = self.context.enter();
        self.set_devices(devices).map_err(|(device, e)| (format!("device '{device}'"), e))?;
        self.set_interfaces(interfaces).map_err(|(which, e)| (format!("interface '{which}'"), e))?;
        self.set_gateway(gateway).map_err(|e| ("the gateway".to_owned(), e))?;
        debug!("xfrm: devices, interfaces and gateway are those of the configuration");
        Ok(())
    }

    /// Has states of IP-TFS send at these rates, and all others when there is something to send.
    pub(crate) fn set_rates(&self, rates: Vec<RateRule>) {
        self.data.shared().xfrm().set_rates(rates);
    }

    /// Whether states may have partial MACs from now on. Where not, those that have one end, and key managers hear of it.
    pub(crate) fn allow_partial_macs(&self, allowed: bool) {
        let _context = self.context.enter();
        // They have ended even if the rules cannot follow.
        let mut ended = Vec::new();
        let written = self.data.with(|engine, _| ended = engine.allow_partial_macs(allowed));
        if !ended.is_empty() {
            let states = ended.len();
            warn!(states, "xfrm: {states} states with partial MACs have ended: they are not allowed any more");
        }
        self.publish(&ended);
        if let Err(e) = written {
            error!(error = %e, "xfrm: the rules for policies could not be written: {e}");
        }
    }

    /// Replaces the offload devices by these. Launchers report them to programs that ask (`esp-hw-offload`).
    ///
    /// # Errors
    /// The name of the one that failed, and why; those before it are in place.
    fn set_devices(&self, wanted: &[OffloadDevice]) -> Result<(), Refused> {
        let mut devices = self.devices.lock();
        let done = devices.configure(wanted, &self.data);
        self.presence.set_devices(&devices.names()).map_err(|e| ("their names".to_owned(), e))?;
        drop(devices);
        let reserved = self.reserve(&self.data.series_of_waiting());
        self.data.restore_devices();
        self.numbers.release(reserved);
        done
    }

    /// Replaces the xfrm interfaces by these, but for those that programs have made.
    ///
    /// # Errors
    /// The name of the one that failed, and why; those before it are in place.
    fn set_interfaces(&self, wanted: &[XfrmInterface]) -> Result<(), Refused> {
        let mut interfaces = self.interfaces.lock();
        interfaces.adopt(&self.data)?;
        interfaces.set(wanted, &self.data)
    }

    /// Makes or changes an xfrm interface for a program. Returns the number of an error, or nothing.
    fn make_interface(&self, words: &str) -> String {
        let Some((name, interface)) = read_interface_request(words) else { return Errno::EINVAL.number().to_string() };
        match self.interfaces.lock().make(name, interface, &self.data) {
            Ok(()) => String::new(),
            Err(e) => {
                warn!(interface = name, error = %e, "xfrm: a program's interface {name}: {e}");
                errno(&e).unwrap_or(Errno::EIO.number()).to_string()
            }
        }
    }

    /// Takes over a connection for ESP in TCP that a launcher has. Returns the number of an error, or nothing.
    fn take_stream(&self, name: &str) -> String {
        let launcher = self.netns.run(|| unix::connect_to_name(name));
        match launcher.and_then(|launcher| self.data.shared().streams.expect(launcher)) {
            Ok(()) => String::new(),
            Err(e) => {
                warn!(error = %e, "xfrm: a key manager's connection for ESP in TCP: {e}");
                errno(&e).unwrap_or(Errno::EIO.number()).to_string()
            }
        }
    }

    /// Forwards between these interfaces past the stack, and between no others.
    ///
    /// # Errors
    /// The kernel's.
    fn set_gateway(&self, interfaces: &[String]) -> io::Result<()> {
        let mut gateway = self.gateway.lock();
        if gateway.as_ref().map_or(&[][..], Gateway::names) == interfaces {
            return Ok(());
        }
        // One program at a time.
        *gateway = None;
        if !interfaces.is_empty() {
            *gateway = Some(Gateway::start(&self.netns, self.data.shared(), self.data.tun()?, interfaces)?);
        }
        Ok(())
    }

    /// Ends the service, and hands the namespace back to the kernel's own IPsec.
    pub(crate) fn hand_back(&self) {
        let _context = self.context.enter();
        self.end_control();
        self.interfaces.lock().stop(&self.data);
        self.devices.lock().stop(&self.data);
        self.data.hand_back();
        self.presence.remove();
    }

    /// Ends the service for another daemon to go on: traffic covered by policies is dropped meanwhile, and programs are refused.
    pub(crate) fn stop(&self) {
        let _context = self.context.enter();
        self.end_control();
        // Devices that end take their states with them; those of the next daemon get them back.
        self.data.leave();
        self.interfaces.lock().leave(&self.data);
        self.devices.lock().stop(&self.data);
        self.data.stop_threads();
    }

    /// Ends the service of a namespace that nobody lives in any more: its states are wiped, and nothing is kept for a next daemon.
    /// If it stays for whatever reason, packets that its policies cover are dropped.
    pub(crate) fn give_up(&self) {
        let _context = self.context.enter();
        self.end_control();
        self.interfaces.lock().give_up(&self.data);
        self.devices.lock().stop(&self.data);
        self.data.give_up();
        self.presence.forget();
    }

    fn end_control(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        // The rest takes a while, in which requests are not answered.
        self.socket.close();
        *self.gateway.lock() = None;
    }
}

/// The rate of a pair of states, as the status has it.
fn controlled_rate(pair: PairView) -> ipsec::ControlledRate {
    let PairView { key, interval_ns, least_interval_ns, rtt_us, loss_interval, is_silent } = pair;
    ipsec::ControlledRate {
        local: key.local.to_string(),
        remote: key.remote.to_string(),
        reqid: key.reqid,
        if_id: key.if_id,
        cpu: key.cpu,
        interval_us: interval_ns / 1000,
        least_interval_us: least_interval_ns / 1000,
        rtt_us: rtt_us.into(),
        loss_interval: loss_interval.into(),
        has_feedback: !is_silent,
    }
}

/// The states that a rule about rates is about, as the status has them.
fn rate_table(rule: &RateRule) -> ipsec::RateTable {
    ipsec::RateTable { remote: rule.remote.map(|remote| remote.to_string()), reqid: rule.reqid, if_id: rule.if_id }
}

/// The part of the status about drops and traffic.
fn drops_and_traffic(stat: &Stat) -> ipsec::Status {
    let counter = |counter: &Counter| ipsec::Counter {
        name: format!("Xfrm{}", counter.name_suffix()),
        packets: stat.value(*counter),
        help: counter.help().to_owned(),
    };
    let reason = |reason: &DropReason| DropCount { reason: reason.name().to_owned(), count: stat.drops(*reason) };
    let TrafficCounters { sealed_packets, sealed_bytes, opened_packets, opened_bytes } = stat.traffic;
    ipsec::Status {
        counters: Counter::ALL.iter().map(counter).collect(),
        drops: DropReason::ALL.iter().map(reason).collect(),
        traffic: ipsec::Traffic { sealed_packets, sealed_bytes, opened_packets, opened_bytes },
        ..ipsec::Status::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_has_every_counter_and_every_reason() {
        let mut stat = Stat::default();
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            stat.count(*reason, i as u64 + 1);
        }
        stat.traffic = TrafficCounters { sealed_packets: 1, sealed_bytes: 2, opened_packets: 3, opened_bytes: 4 };
        let status = drops_and_traffic(&stat);
        let drops: Vec<(&str, u64)> = status.drops.iter().map(|d| (&*d.reason, d.count)).collect();
        let wanted: Vec<(&str, u64)> = DropReason::ALL.iter().map(|r| r.name()).zip(1..).collect();
        assert_eq!(drops, wanted);
        let text: String = status.counters.iter().map(|c| format!("{:<24}\t{}\n", c.name, c.packets)).collect();
        assert_eq!(text, proc_xfrm_stat(&stat));
        let bytes = (status.traffic.sealed_bytes, status.traffic.opened_bytes);
        assert_eq!(bytes, (2, 4));
        assert_eq!(serde_json::from_str::<ipsec::Status>(&serde_json::to_string(&status).unwrap()).unwrap(), status);
    }
}
