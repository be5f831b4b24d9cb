//! The part of a gateway that its threads share.

use super::opening::ThreadPart;
use super::plan::OutboundPrefixes;
use crate::shared::Shared;
use parking_lot::{Condvar, Mutex};
use sealane_abi::admin::ipsec;
use sealane_packets::xsk::Lost;
use sealane_sys::poll::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The interval at which the coordinator looks whether all threads have closed their sockets.
const PATIENCE: Duration = Duration::from_millis(100);
/// Counters of a gateway.
#[derive(Debug, Default)]
pub(super) struct GatewayCounts {
    /// Packets sealed, packets opened and let pass.
    pub(super) sealed: AtomicU64,
    pub(super) opened: AtomicU64,
    /// Packets of both kinds that left past the stack, and those given to it.
    pub(super) sent: AtomicU64,
    pub(super) to_stack: AtomicU64,
    /// Packets dropped by policies and states, or because they must not be forwarded.
    pub(super) dropped: AtomicU64,
    /// Packets dropped because the interface that they were to leave by took no more.
    pub(super) full: AtomicU64,
    /// Packets handed over to another thread, and those dropped because it had no room for them.
    pub(super) handed_over: AtomicU64,
    pub(super) not_handed_over: AtomicU64,
}

impl GatewayCounts {
    /// The counters as the status shows them.
    pub(super) fn status(&self) -> ipsec::GatewayCounters {
        let GatewayCounts { sealed, opened, sent, to_stack, dropped, full, handed_over, not_handed_over } = self;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ipsec::GatewayCounters {
            sealed: value(sealed),
            opened: value(opened),
            sent: value(sent),
            to_stack: value(to_stack),
            dropped: value(dropped),
            not_sent_full: value(full),
            handed_over: value(handed_over),
            not_handed_over_full: value(not_handed_over),
        }
    }
}

/// The part that the threads of a gateway share.
pub(super) struct Common {
    pub(super) shared: Arc<Shared>,
    pub(super) counts: GatewayCounts,
    pub(super) stop: AtomicBool,
    /// Whether this host forwards IPv6, which routes do not tell.
    pub(super) forwards_v6: AtomicBool,
    /// The mailboxes of the threads. The first thread is the coordinator.
    pub(super) posts: Vec<Mailbox>,
}

impl Common {
    /// Ends all threads.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.posts.iter().for_each(Mailbox::wake);
    }
}

/// A thread's mailbox: orders of the coordinator, and reports to it.
pub(super) struct Mailbox {
    waker: Arc<Waker>,
    pub(super) told: AtomicBool,
    pub(super) orders: Mutex<Orders>,
    /// Notified when the thread has given its part up.
    pub(super) done: Condvar,
    /// Frames lost by its sockets, for each interface.
    pub(super) lost: Mutex<Vec<Lost>>,
}

#[derive(Default)]
pub(super) struct Orders {
    /// The part that it has from now on, or none.
    pub(super) part: Option<Option<Box<ThreadPart>>>,
    pub(super) leaving: Option<Arc<OutboundPrefixes>>,
    /// Whether it has a part, or will have.
    pub(super) holds: bool,
}

impl Mailbox {
    /// Makes the mailbox of a thread without a part.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Mailbox {
            waker,
            told: AtomicBool::new(false),
            orders: Mutex::default(),
            done: Condvar::new(),
            lost: Mutex::default(),
        }
    }

    /// Wakes it.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// The thread's waker.
    pub(super) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Frames of an interface that its sockets have lost.
    pub(super) fn lost(&self, device: usize) -> Lost {
        self.lost.lock().get(device).copied().unwrap_or_default()
    }

    fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut self.orders.lock());
        self.told.store(true, Ordering::Release);
        self.wake();
    }

    /// Gives the thread a part.
    pub(super) fn give(&self, part: ThreadPart) {
        self.order(|orders| (orders.part, orders.holds) = (Some(Some(Box::new(part))), true));
    }

    /// Asks for its part back. [`Self::wait`] waits until it has none.
    pub(super) fn take(&self) {
        self.order(|orders| orders.part = Some(None));
    }

    /// Waits until it has no part, or `stop`.
    pub(super) fn wait(&self, stop: &AtomicBool) {
        let mut orders = self.orders.lock();
        while orders.holds && !stop.load(Ordering::Acquire) {
            self.done.wait_for(&mut orders, PATIENCE);
        }
    }

    /// Tells the XDP program which packets are protected from now on.
    pub(super) fn set_leaving(&self, leaving: Arc<OutboundPrefixes>) {
        self.order(|orders| orders.leaving = Some(leaving));
    }
}
