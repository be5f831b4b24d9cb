//! The tables that a thread looks packets up in: the states and policies of the stack, or those of a packet core, and
//! routes.
//!
//! Packets that a thread's own tables do not know are looked up in the others. Outbound those are the stack's, which
//! raises the acquire; inbound those of anybody who has the state. Nothing is sealed in software that a policy gives to
//! a device: the stack's own tables have its states as [`Offloaded`](sealane_net_ipsec::sa::SaState::Offloaded).

use crate::cores::DeviceTables;
use crate::routes::Routes;
use crate::shared::Shared;
use arrayvec::ArrayVec;
use parking_lot::MutexGuard;
use sealane_engine_xfrm::data::{Assignment, BURST, Run, each_run, is_left, is_unknown, sealed};
use sealane_engine_xfrm::device::crypto::Status;
use sealane_engine_xfrm::{Now, Xfrm};
use sealane_net_ipsec::burst::{self, Direction, Job, Jobs, Keys};
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::sa::{Mode, SaId};
use sealane_net_ipsec::seal::Outbound;
use sealane_packets::shard::shard;
use std::time::Duration;

/// The states and policies that a thread's packets go by first.
#[derive(Clone)]
pub(crate) enum Scope {
    /// The stack's.
    Stack,
    /// The stack's, for what leaves by the xfrm interface with this interface id.
    Interface(u32),
    /// The stack's, for what has come late.
    Late,
    /// A packet core's.
    Device(DeviceTables),
}

/// The locked engine, with notices still to be sent.
pub(crate) struct Locked<'s> {
    shared: &'s Shared,
    pub(crate) xfrm: MutexGuard<'s, Xfrm>,
    now: Now,
}

impl Locked<'_> {
    /// Unlocks it and sends the notices.
    pub(crate) fn finish(self) {
        let Locked { shared, mut xfrm, now } = self;
        let notices = xfrm.take_notices(now);
        drop(xfrm);
        shared.send_notices(notices);
    }
}

/// The IP-TFS of a thread: packets wait in states, and come out of them later or several at a time.
struct Gathered {
    /// The number of the thread.
    thread: u32,
    /// When the engine is to be asked for what leaves or is given up.
    due_ns: Option<u64>,
    /// Packets that came out and are to be delivered.
    emerged: Vec<Inbound<'static>>,
}

impl Gathered {
    /// Takes up what a burst has left in the engine.
    fn note(&mut self, xfrm: &mut Xfrm, now: Now) {
        self.due_ns = xfrm.tables(0, now).of_thread(self.thread).poll_gathered();
        self.emerged.append(&mut xfrm.take_emerged());
    }
}

/// The tables of one thread.
pub(crate) struct Tables {
    scope: Scope,
    pub(crate) routes: Routes,
    gathered: Gathered,
}

impl Tables {
    /// Makes the tables of a thread. All that have a number are asked for what waits in states of IP-TFS
    /// ([`Self::gathered`]).
    pub(crate) fn new(scope: Scope, routes: Routes, thread: u32) -> Self {
        Tables { scope, routes, gathered: Gathered { thread, due_ns: None, emerged: Vec::new() } }
    }

    /// The time until [`Self::gathered`] is to be called.
    pub(crate) fn until_gathered(&self, shared: &Shared) -> Option<Duration> {
        let due_ns = self.gathered.due_ns?;
        Some(Duration::from_nanos(due_ns.saturating_sub(shared.now().monotonic_ns)))
    }

    /// Takes packets that came out of states of IP-TFS and are to be delivered.
    pub(crate) fn take_emerged(&mut self) -> Vec<Inbound<'static>> {
        core::mem::take(&mut self.gathered.emerged)
    }

    /// Seals what leaves states of IP-TFS now, as [`Self::outbound`] does with packets of the stack, and gives up what they have
    /// waited for too long. To be called again until no packet comes. With `more` of the stack's packets at hand, what they may
    /// share an outer packet with waits for them.
    pub(crate) fn gathered<'s, 'b>(
        &mut self,
        shared: &'s Shared,
        buffer: &'b mut [u8],
        packets: &mut ArrayVec<Outbound<'b>, BURST>,
        jobs: &mut Jobs,
        more: bool,
    ) -> Option<Locked<'s>> {
        let Tables { routes, gathered, .. } = self;
        let now = shared.now();
        let mut xfrm = shared.contended();
        xfrm.tables(0, now).of_thread(gathered.thread).gathered_begin(buffer, packets, routes, jobs, more);
        gathered.note(&mut xfrm, now);
        seal_rest(Locked { shared, xfrm, now }, 0, packets, jobs)
    }

    /// Changes the tables that are asked first.
    pub(crate) fn set_scope(&mut self, scope: Scope) {
        self.scope = scope;
    }

    /// Whether these are the tables of an xfrm interface.
    pub(crate) fn are_of_interface(&self) -> bool {
        matches!(self.scope, Scope::Interface(_))
    }

    /// Whether these are the tables for what has come late.
    pub(crate) fn are_late(&self) -> bool {
        matches!(self.scope, Scope::Late)
    }

    /// Whether this thread reads what comes from the wire.
    pub(crate) fn reads(&self, shared: &Shared) -> bool {
        match &self.scope {
            Scope::Stack => shared.cores.reads(0),
            Scope::Interface(_) | Scope::Late => false,
            Scope::Device(device) => shared.cores.reads(device.number),
        }
    }

    /// Looks what other threads may have left in states of IP-TFS, and handles timers of the packet core, if these are its
    /// tables.
    pub(crate) fn handle_timeout(&mut self, shared: &Shared) {
        self.gathered.note(&mut shared.xfrm(), shared.now());
        if let Scope::Device(device) = &self.scope
            && device.core.handle_timeout(shared.now())
        {
            device.events.wake();
        }
    }

    /// Seals packets. If it returns the locked engine they are only begun: `jobs` are to be run by a core, and must be
    /// handed over before the engine is unlocked.
    pub(crate) fn outbound<'s>(
        &mut self,
        shared: &'s Shared,
        cpu: u32,
        runs: &[Run],
        packets: &mut [Outbound<'_>],
        jobs: &mut Jobs,
    ) -> Option<Locked<'s>> {
        let Tables { scope, routes, gathered } = self;
        let now = shared.now();
        let Scope::Device(device) = scope else {
            let if_id = if let Scope::Interface(if_id) = scope { *if_id } else { 0 };
            let mut xfrm = shared.contended();
            let mut tables = xfrm.tables(cpu, now).of_interface(if_id).of_thread(gathered.thread);
            tables.outbound_begin(runs, packets, routes, jobs);
            gathered.note(&mut xfrm, now);
            return seal_rest(Locked { shared, xfrm, now }, cpu, packets, jobs);
        };
        device.outbound(runs, packets, routes, now);
        for (run, these) in each_run(runs, packets) {
            if these.first().is_some_and(is_left) {
                for out in &mut *these {
                    (out.status, out.sa, out.mtu) = (Ok(()), SaId::NONE, 0);
                }
                let mut xfrm = shared.xfrm();
                let mut tables = xfrm.tables(0, now).of_thread(gathered.thread);
                tables.outbound(core::slice::from_ref(run), these, routes);
                gathered.note(&mut xfrm, now);
                Locked { shared, xfrm, now }.finish();
            }
        }
        None
    }

    /// Finds the thread, of so many, that owns the state of each packet. Packets without a state belong to the calling
    /// thread, number `mine`.
    pub(crate) fn owners<'p, const N: usize>(
        &mut self,
        shared: &Shared,
        mine: u32,
        of: u32,
        packets: impl Iterator<Item = &'p [u8]>,
    ) -> ArrayVec<u32, N> {
        let routes = &mut self.routes;
        let now = shared.now();
        let mut xfrm = shared.contended();
        let mut tables = xfrm.tables(mine, now);
        let owner = |packet| match tables.assignment(packet, &Run::new(1), routes) {
            None => mine,
            Some(Assignment::First) => 0,
            Some(Assignment::Cpu(cpu)) => cpu % of,
            Some(Assignment::Number(number)) => shard(number, of),
        };
        let owners = packets.map(owner).collect();
        Locked { shared, xfrm, now }.finish();
        owners
    }

    /// Ends a burst that a core has sealed.
    pub(crate) fn outbound_end(shared: &Shared, packets: &mut [Outbound<'_>], jobs: &[Job], done: &[Status]) {
        let now = shared.now();
        let mut xfrm = shared.xfrm();
        xfrm.tables(0, now).outbound_end(packets, jobs, done);
        Locked { shared, xfrm, now }.finish();
    }

    /// Counts packets that were dropped outside of the tables: with a core that went away, or of a stream.
    pub(crate) fn lost(shared: &Shared, reasons: &[DropReason]) {
        let now = shared.now();
        let mut xfrm = shared.xfrm();
        let tables = xfrm.tables(0, now);
        reasons.iter().for_each(|reason| tables.stat.dropped(*reason));
    }

    /// Opens packets. If it returns the locked engine they are only begun, as with [`Self::outbound`].
    pub(crate) fn inbound<'s>(
        &mut self,
        shared: &'s Shared,
        packets: &mut [Inbound<'_>],
        jobs: &mut Jobs,
    ) -> Option<Locked<'s>> {
        let Tables { scope, routes, gathered } = self;
        match scope {
            Scope::Stack | Scope::Interface(_) | Scope::Late => {
                let now = shared.now();
                let mut xfrm = shared.contended();
                xfrm.tables(0, now).inbound_begin(packets, jobs);
                if xfrm.needs_device(jobs) {
                    return Some(Locked { shared, xfrm, now });
                }
                if !shared.is_contended() {
                    xfrm.tables(0, now).of_thread(gathered.thread).inbound_finish(packets, routes, jobs);
                    gathered.note(&mut xfrm, now);
                    Locked { shared, xfrm, now }.finish();
                } else {
                    let mut keys = Keys::default();
                    xfrm.sad().keys(jobs, &mut keys);
                    Locked { shared, xfrm, now }.finish();
                    let these = packets.iter_mut().map(|inbound| &mut inbound.packet);
                    let done = burst::run_with(Direction::Decrypt, these, jobs, &keys);
                    let mut xfrm = shared.contended();
                    xfrm.tables(0, now).of_thread(gathered.thread).inbound_end(packets, routes, jobs, &done);
                    gathered.note(&mut xfrm, now);
                    Locked { shared, xfrm, now }.finish();
                }
            }
            Scope::Device(device) => device.inbound(packets, routes, shared.now()),
        }
        self.open_unknown(shared, packets);
        None
    }

    /// Ends a burst that a core has opened.
    pub(crate) fn inbound_end(&mut self, shared: &Shared, packets: &mut [Inbound<'_>], jobs: &[Job], done: &[Status]) {
        let Tables { routes, gathered, .. } = self;
        let now = shared.now();
        let mut xfrm = shared.xfrm();
        xfrm.tables(0, now).of_thread(gathered.thread).inbound_end(packets, routes, jobs, done);
        gathered.note(&mut xfrm, now);
        Locked { shared, xfrm, now }.finish();
        self.open_unknown(shared, packets);
    }

    /// Opens packets whose states these tables do not have. States of a crypto core are used right here: the stack has
    /// the same keys.
    fn open_unknown(&mut self, shared: &Shared, packets: &mut [Inbound<'_>]) {
        let Tables { scope, routes, gathered } = self;
        let mut open = |device: Option<&DeviceTables>, packets: &mut [Inbound<'_>], routes: &mut Routes| match device {
            None => {
                let now = shared.now();
                let mut xfrm = shared.xfrm();
                xfrm.tables(0, now).of_thread(gathered.thread).inbound(packets, routes);
                gathered.note(&mut xfrm, now);
                Locked { shared, xfrm, now }.finish();
            }
            Some(device) => device.inbound(packets, routes, shared.now()),
        };
        if !packets.iter().any(is_unknown) {
            return;
        }
        let devices = shared.cores.all();
        let number = if let Scope::Device(device) = scope { device.number } else { 0 };
        let all = core::iter::once(None).chain(devices.iter().map(Some));
        for other in all.filter(|other| other.map_or(0, |device| device.number) != number) {
            for these in packets.chunk_by_mut(|a, b| is_unknown(a) == is_unknown(b)) {
                if !these.first().is_some_and(is_unknown) {
                    continue;
                }
                let before: ArrayVec<_, BURST> = these.iter().map(|packet| packet.status).take(BURST).collect();
                these.iter_mut().for_each(|packet| packet.status = Ok(Opened::Waiting));
                open(other, these, routes);
                for (packet, before) in these.iter_mut().zip(before) {
                    // The verdict of tables with the state counts, not that of tables without it.
                    if packet.status == Err(DropReason::NoState) && is_unknown(packet) {
                        packet.status = before;
                    }
                }
            }
        }
        if packets.iter().any(is_unknown) {
            shared.xfrm().count_unknown(packets);
        }
    }

    /// The mode of a state that a packet was to go through.
    pub(crate) fn mode(&self, shared: &Shared, sa: SaId) -> Option<Mode> {
        let stack = || shared.xfrm().sad().get(sa).map(|sa| sa.mode);
        match &self.scope {
            Scope::Stack | Scope::Interface(_) | Scope::Late => stack(),
            Scope::Device(device) => device.core.mode(sa).or_else(stack),
        }
    }
}

/// Whether a packet was opened by a state whose policies let it pass, or by one of IP-TFS.
pub(crate) fn is_authentic(packet: &Inbound<'_>) -> bool {
    matches!(packet.status, Ok(Opened::Packet | Opened::Aggregate))
}

/// The other phases of packets that are sealed, or the locked engine if a core is to do them: see [`Tables::outbound`].
fn seal_rest<'s>(mut locked: Locked<'s>, cpu: u32, packets: &mut [Outbound<'_>], jobs: &[Job]) -> Option<Locked<'s>> {
    let Locked { shared, xfrm, now } = &mut locked;
    let (shared, now) = (*shared, *now);
    if xfrm.needs_device(jobs) {
        return Some(locked);
    }
    if !shared.is_contended() {
        xfrm.tables(cpu, now).outbound_finish(packets, jobs);
        locked.finish();
        return None;
    }
    // Other threads begin their packets meanwhile.
    let mut keys = Keys::default();
    xfrm.sad().keys(jobs, &mut keys);
    locked.finish();
    let these = packets.iter_mut().map(|out| &mut out.packet);
    let done = burst::run_with(Direction::Encrypt, these, jobs, &keys);
    if sealed(packets, jobs, &done) {
        shared.contended().tables(cpu, now).count_out(packets);
    }
    None
}
