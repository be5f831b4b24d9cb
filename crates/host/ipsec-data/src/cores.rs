//! The packet cores of a namespace, as its threads use them: each has states and policies of its own.

use crate::routes::Routes;
use parking_lot::RwLock;
use sealane_engine_xfrm::Now;
use sealane_engine_xfrm::data::{Run, is_left, is_unknown};
use sealane_engine_xfrm::packet::PacketCore;
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::seal::Outbound;
use sealane_sys::poll::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Counters of a packet core.
#[derive(Debug, Default)]
pub struct CoreCounts {
    /// Packets sealed.
    pub sealed: AtomicU64,
    /// Packets opened and let pass.
    pub opened: AtomicU64,
    /// Packets dropped in either direction.
    pub dropped: AtomicU64,
    /// Outbound packets without a policy or state of the core's.
    pub asked: AtomicU64,
}

/// The tables of a packet core.
#[derive(Clone)]
pub struct DeviceTables {
    /// States and policies.
    pub core: PacketCore,
    /// Counters of its packets.
    pub counts: Arc<CoreCounts>,
    /// The number of its TUN device.
    pub number: u8,
    /// Woken when the device has events.
    pub events: Arc<Waker>,
    /// Wakes its thread.
    pub thread: Arc<Waker>,
}

impl DeviceTables {
    /// Seals packets. Those that [`is_left`] selects are left to the stack.
    pub(crate) fn outbound(&self, runs: &[Run], packets: &mut [Outbound<'_>], routes: &mut Routes, now: Now) {
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

    /// Opens packets. Those that [`is_unknown`] selects may belong to others.
    pub(crate) fn inbound(&self, packets: &mut [Inbound<'_>], routes: &mut Routes, now: Now) {
        if self.core.inbound(packets, routes, now) {
            self.events.wake();
        }
        let (mut opened, mut dropped) = (0, 0);
        for packet in &*packets {
            opened += u64::from(matches!(packet.status, Ok(Opened::Packet)));
            dropped += u64::from(packet.status.is_err() && !is_unknown(packet));
        }
        self.counts.opened.fetch_add(opened, Ordering::Relaxed);
        self.counts.dropped.fetch_add(dropped, Ordering::Relaxed);
    }
}

/// The packet cores of a namespace.
#[derive(Default)]
pub(crate) struct Cores {
    list: RwLock<Arc<[DeviceTables]>>,
    /// The number of the thread that reads what comes from the wire: the first core's with inbound states, as packets
    /// come in by a card, or the stack's.
    reader: AtomicU8,
}

impl Cores {
    /// Whether the thread with this number reads what comes from the wire.
    pub(crate) fn reads(&self, number: u8) -> bool {
        self.reader.load(Ordering::Acquire) == number
    }

    /// All of them at this moment.
    pub(crate) fn all(&self) -> Arc<[DeviceTables]> {
        self.list.read().clone()
    }

    /// A packet core is there from now on.
    pub(crate) fn add(&self, tables: DeviceTables) {
        let mut list = self.list.write();
        *list = list.iter().cloned().chain([tables]).collect();
    }

    /// The packet core with this number is not there any more.
    pub(crate) fn remove(&self, number: u8) {
        let mut list = self.list.write();
        *list = list.iter().filter(|tables| tables.number != number).cloned().collect();
    }

    /// Chooses the thread that reads what comes from the wire, as states may have come or gone. Returns whether it is
    /// another one than before; the packet cores' threads are woken then.
    pub(crate) fn choose_reader(&self) -> bool {
        let list = self.list.read();
        let reader = list.iter().find(|tables| tables.core.has_inbound()).map_or(0, |tables| tables.number);
        let changed = self.reader.swap(reader, Ordering::AcqRel) != reader;
        if changed {
            list.iter().for_each(|tables| tables.thread.wake());
        }
        changed
    }
}
