//! Whose states and policies the packets of a thread go by: the stack's, or those that a packet device has.
//!
//! What a thread's own tables do not know is asked of the others. Outbound that is the stack, which raises the acquire; inbound
//! it is anybody who has the state. Nothing is sealed in software that a policy gives to a device: the stack's own tables have
//! its states as [`Offloaded`](sealane_net::ipsec::sa::State::Offloaded).

use crate::control::path::Shared;
use crate::data::routes::Routes;
use arrayvec::ArrayVec;
use parking_lot::{MutexGuard, RwLock};
use sealane_engine_xfrm::data::{BURST, Owned, Run, is_left, is_unknown, sealed};
use sealane_engine_xfrm::device::crypto::Status;
use sealane_engine_xfrm::packet::PacketCore;
use sealane_engine_xfrm::{Now, Xfrm};
use sealane_net::ipsec::burst::{self, Direction, Job, Jobs, Keys};
use sealane_net::ipsec::drop::DropReason;
use sealane_net::ipsec::open::{Inbound, Opened};
use sealane_net::ipsec::sa::{Mode, SaId};
use sealane_net::ipsec::seal::Outbound;
use sealane_sys::poll::Waker;
use sealane_sys::shard::shard;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a packet device has done to packets.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Packets sealed, packets opened and let pass.
    pub(crate) sealed: AtomicU64,
    pub(crate) opened: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// Outbound packets that it had no policy or no state for.
    pub(crate) asked: AtomicU64,
}

/// The tables of a packet device.
#[derive(Clone)]
pub(crate) struct DeviceTables {
    pub(crate) core: PacketCore,
    pub(crate) counts: Arc<Counts>,
    /// The number of its TUN device.
    pub(crate) number: u8,
    /// To be woken when the device has something to tell.
    pub(crate) events: Arc<Waker>,
    /// Wakes its thread.
    pub(crate) thread: Arc<Waker>,
}

/// The tables that a thread's packets go by first.
#[derive(Clone)]
pub(crate) enum Tables {
    /// The stack's.
    Stack,
    /// The stack's, for what leaves by the xfrm interface with this interface id.
    Interface(u32),
    /// A packet device's.
    Device(DeviceTables),
}

impl DeviceTables {
    /// Seals packets; those of which [`is_left`] speaks are the stack's matter.
    fn outbound(&self, runs: &[Run], packets: &mut [Outbound<'_>], routes: &mut Routes, now: Now) {
        if self.core.outbound(runs, packets, routes, now) {
            self.events.wake();
        }
        let (mut sealed, mut asked) = (0, 0);
        for packet in &*packets {
            sealed += u64::from(packet.status.is_ok());
            asked += u64::from(is_left(packet));
        }
        self.counts.sealed.fetch_add(sealed, Ordering::Relaxed);
        self.counts.asked.fetch_add(asked, Ordering::Relaxed);
        self.counts.dropped.fetch_add(packets.len() as u64 - sealed - asked, Ordering::Relaxed);
    }

    /// Opens packets; those of which [`is_unknown`] speaks may be others'.
    fn inbound(&self, packets: &mut [Inbound<'_>], routes: &mut Routes, now: Now) {
        if self.core.inbound(packets, routes, now) {
            self.events.wake();
        }
        let (mut opened, mut dropped) = (0, 0);
        for packet in &*packets {
            opened += u64::from(matches!(packet.status, Ok(Opened::Packet { .. })));
            dropped += u64::from(packet.status.is_err() && !is_unknown(packet));
        }
        self.counts.opened.fetch_add(opened, Ordering::Relaxed);
        self.counts.dropped.fetch_add(dropped, Ordering::Relaxed);
    }
}

impl Tables {
    /// The number of the TUN device that goes with them.
    pub(crate) fn number(&self) -> u8 {
        match self {
            Tables::Stack | Tables::Interface(_) => 0,
            Tables::Device(device) => device.number,
        }
    }

    /// The interface id of what leaves by them; 0 for none.
    fn if_id(&self) -> u32 {
        if let Tables::Interface(if_id) = self { *if_id } else { 0 }
    }
}

/// The packet devices of a namespace.
#[derive(Default)]
pub(crate) struct Cores {
    list: RwLock<Arc<[DeviceTables]>>,
    /// Whose thread reads what comes from the wire: the first device's that has inbound states, as packets come in by a card,
    /// or the stack's.
    reader: AtomicU8,
}

impl Cores {
    /// Whether the thread with this number reads what comes from the wire.
    pub(crate) fn reads(&self, number: u8) -> bool {
        self.reader.load(Ordering::Acquire) == number
    }
}

/// The engine, locked, with what its packets brought about still to be told.
pub(crate) struct Locked<'s> {
    shared: &'s Shared,
    pub(crate) xfrm: MutexGuard<'s, Xfrm>,
    now: Now,
}

impl Locked<'_> {
    /// Unlocks it and tells.
    pub(crate) fn tell(self) {
        let Locked { shared, mut xfrm, now } = self;
        let notices = xfrm.told(now);
        drop(xfrm);
        shared.tell(notices);
    }
}

impl Shared {
    /// A packet device is there from now on.
    pub(crate) fn add_core(&self, tables: DeviceTables) {
        let mut list = self.cores.list.write();
        *list = list.iter().cloned().chain([tables]).collect();
    }

    /// It is not any more.
    pub(crate) fn remove_core(&self, number: u8) {
        let mut list = self.cores.list.write();
        *list = list.iter().filter(|tables| tables.number != number).cloned().collect();
        drop(list);
        self.choose_reader();
    }

    /// States may have come or gone.
    pub(crate) fn choose_reader(&self) {
        let list = self.cores.list.read();
        let reader = list.iter().find(|tables| tables.core.has_inbound()).map_or(0, |tables| tables.number);
        let before = self.cores.reader.swap(reader, Ordering::AcqRel);
        if before != reader {
            list.iter().for_each(|tables| tables.thread.wake());
            self.wake();
        }
    }

    /// Seals packets. Where it gives the engine back, still locked, they are merely begun: `jobs` are to be run, by a device, and
    /// are to be handed over before it is unlocked.
    pub(crate) fn outbound(
        &self,
        by: &Tables,
        cpu: u32,
        runs: &[Run],
        packets: &mut [Outbound<'_>],
        routes: &mut Routes,
        jobs: &mut Jobs,
    ) -> Option<Locked<'_>> {
        let now = self.now();
        let Tables::Device(device) = by else {
            let mut xfrm = self.contended();
            xfrm.tables(cpu, now).of_interface(by.if_id()).outbound_begin(runs, packets, routes, jobs);
            if xfrm.needs_device(jobs) {
                return Some(Locked { shared: self, xfrm, now });
            }
            if !self.is_contended() {
                xfrm.tables(cpu, now).outbound_finish(packets, jobs);
                Locked { shared: self, xfrm, now }.tell();
                return None;
            }
            // Others have their packets begun meanwhile.
            let mut keys = Keys::default();
            xfrm.sad().keys(jobs, &mut keys);
            Locked { shared: self, xfrm, now }.tell();
            let these = packets.iter_mut().map(|out| &mut out.packet);
            let done = burst::run_with(Direction::Encrypt, these, jobs, &keys);
            if sealed(packets, jobs, &done) {
                self.contended().tables(cpu, now).count_out(packets);
            }
            return None;
        };
        device.outbound(runs, packets, routes, now);
        let mut rest = packets;
        for run in runs {
            let (these, others) = rest.split_at_mut(run.packets.min(rest.len()));
            rest = others;
            if these.first().is_some_and(is_left) {
                for out in &mut *these {
                    (out.status, out.sa, out.mtu) = (Ok(()), SaId::NONE, 0);
                }
                let notices = self.xfrm().outbound(core::slice::from_ref(run), these, routes, 0, now);
                self.tell(notices);
            }
        }
        None
    }

    /// Which of so many threads has each of some packets, by the state that it goes through; those that go through none are the
    /// asker's, which is number `mine`.
    pub(crate) fn owners<'p, const N: usize>(
        &self,
        mine: u32,
        of: u32,
        packets: impl Iterator<Item = &'p [u8]>,
        routes: &mut Routes,
    ) -> ArrayVec<u32, N> {
        let now = self.now();
        let mut xfrm = self.contended();
        let mut tables = xfrm.tables(mine, now);
        let owner = |packet| match tables.owner(packet, &Run::new(1), routes) {
            None => mine,
            Some(Owned::First) => 0,
            Some(Owned::Cpu(cpu)) => cpu % of,
            Some(Owned::Number(number)) => shard(number, of),
        };
        let owners = packets.map(owner).collect();
        Locked { shared: self, xfrm, now }.tell();
        owners
    }

    /// Ends what a device has sealed.
    pub(crate) fn outbound_end(&self, packets: &mut [Outbound<'_>], jobs: &[Job], done: &[Status]) {
        let now = self.now();
        let mut xfrm = self.xfrm();
        xfrm.tables(0, now).outbound_end(packets, jobs, done);
        Locked { shared: self, xfrm, now }.tell();
    }

    /// Counts packets that a device took with it.
    pub(crate) fn lost(&self, reasons: &[DropReason]) {
        let now = self.now();
        let mut xfrm = self.xfrm();
        let tables = xfrm.tables(0, now);
        reasons.iter().for_each(|reason| tables.stat.dropped(*reason));
    }

    /// Opens packets. Where it gives the engine back, still locked, they are merely begun, as with [`Self::outbound`].
    pub(crate) fn inbound(
        &self,
        by: &Tables,
        packets: &mut [Inbound<'_>],
        routes: &mut Routes,
        jobs: &mut Jobs,
    ) -> Option<Locked<'_>> {
        match by {
            Tables::Stack | Tables::Interface(_) => {
                let now = self.now();
                let mut xfrm = self.contended();
                xfrm.tables(0, now).inbound_begin(packets, jobs);
                if xfrm.needs_device(jobs) {
                    return Some(Locked { shared: self, xfrm, now });
                }
                if !self.is_contended() {
                    xfrm.tables(0, now).inbound_finish(packets, routes, jobs);
                    Locked { shared: self, xfrm, now }.tell();
                } else {
                    let mut keys = Keys::default();
                    xfrm.sad().keys(jobs, &mut keys);
                    Locked { shared: self, xfrm, now }.tell();
                    let these = packets.iter_mut().map(|inn| &mut inn.packet);
                    let done = burst::run_with(Direction::Decrypt, these, jobs, &keys);
                    let mut xfrm = self.contended();
                    xfrm.tables(0, now).inbound_end(packets, routes, jobs, &done);
                    Locked { shared: self, xfrm, now }.tell();
                }
            }
            Tables::Device(device) => device.inbound(packets, routes, self.now()),
        }
        self.elsewhere(by, packets, routes);
        None
    }

    /// Ends what a device has opened.
    pub(crate) fn inbound_end(&self, packets: &mut [Inbound<'_>], routes: &mut Routes, jobs: &[Job], done: &[Status]) {
        let now = self.now();
        let mut xfrm = self.xfrm();
        xfrm.tables(0, now).inbound_end(packets, routes, jobs, done);
        Locked { shared: self, xfrm, now }.tell();
        self.elsewhere(&Tables::Stack, packets, routes);
    }

    /// Opens packets of states that these tables do not know. What a crypto device has is opened here and now: it has no other
    /// key than the stack.
    fn elsewhere(&self, by: &Tables, packets: &mut [Inbound<'_>], routes: &mut Routes) {
        let open = |device: Option<&DeviceTables>, packets: &mut [Inbound<'_>], routes: &mut Routes| match device {
            None => {
                let now = self.now();
                let notices = self.xfrm().inbound(packets, routes, now);
                self.tell(notices);
            }
            Some(device) => device.inbound(packets, routes, self.now()),
        };
        if !packets.iter().any(is_unknown) {
            return;
        }
        let devices = self.cores.list.read().clone();
        let all = core::iter::once(None).chain(devices.iter().map(Some));
        for other in all.filter(|other| other.map_or(0, |device| device.number) != by.number()) {
            for these in packets.chunk_by_mut(|a, b| is_unknown(a) == is_unknown(b)) {
                if !these.first().is_some_and(is_unknown) {
                    continue;
                }
                let before: ArrayVec<_, BURST> = these.iter().map(|packet| packet.status).take(BURST).collect();
                these.iter_mut().for_each(|packet| packet.status = Ok(Opened::Waiting));
                open(other, these, routes);
                for (packet, before) in these.iter_mut().zip(before) {
                    // Who has the state says more of it than who has not.
                    if packet.status == Err(DropReason::NoState) && is_unknown(packet) {
                        packet.status = before;
                    }
                }
            }
        }
        if packets.iter().any(is_unknown) {
            self.xfrm().count_unknown(packets);
        }
    }

    /// The mode of a state that a packet was to go through.
    pub(crate) fn mode(&self, by: &Tables, sa: SaId) -> Option<Mode> {
        let stack = || self.xfrm().sad().get(sa).map(|sa| sa.mode);
        match by {
            Tables::Stack | Tables::Interface(_) => stack(),
            Tables::Device(device) => device.core.mode(sa).or_else(stack),
        }
    }
}
