//! The part of a gateway that its threads share.

use super::opening::{Leaving, Part};
use crate::data::shared::Shared;
use parking_lot::{Condvar, Mutex};
use sealane_sys::poll::Waker;
use sealane_sys::xsk::Lost;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long one waits that is to have the interfaces' sockets closed by all.
const PATIENCE: Duration = Duration::from_millis(100);
/// What it has done to packets.
#[derive(Debug, Default)]
pub(super) struct GatewayCounts {
    /// Packets sealed, packets opened and let pass.
    pub(super) sealed: AtomicU64,
    pub(super) opened: AtomicU64,
    /// Those of both that left past the stack, and those that it was given.
    pub(super) sent: AtomicU64,
    pub(super) to_stack: AtomicU64,
    /// Packets dropped for what policies and states say, or that nobody may send so.
    pub(super) dropped: AtomicU64,
    /// Packets dropped because the interface that they were to leave by took no more.
    pub(super) full: AtomicU64,
    /// Packets handed over to another thread, and those dropped because it had no room for them.
    pub(super) handed_over: AtomicU64,
    pub(super) not_handed_over: AtomicU64,
}

impl GatewayCounts {
    /// Each by its name.
    pub(super) fn all(&self) -> [(&'static str, u64); 8] {
        let GatewayCounts { sealed, opened, sent, to_stack, dropped, full, handed_over, not_handed_over } = self;
        let all = [
            ("sealed", sealed),
            ("opened", opened),
            ("sent", sent),
            ("to_stack", to_stack),
            ("dropped", dropped),
            ("not_sent_full", full),
            ("handed_over", handed_over),
            ("not_handed_over_full", not_handed_over),
        ];
        all.map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

/// What the threads of a gateway share.
pub(super) struct Common {
    pub(super) shared: Arc<Shared>,
    pub(super) counts: GatewayCounts,
    pub(super) stop: AtomicBool,
    /// Whether this host forwards IPv6, which routes do not say.
    pub(super) forwards_v6: AtomicBool,
    /// Each thread's; the first one leads.
    pub(super) posts: Vec<Mailbox>,
}

impl Common {
    /// Ends all threads.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.posts.iter().for_each(Mailbox::wake);
    }
}

/// What a thread is told by the one that leads, and what it says of itself.
pub(super) struct Mailbox {
    waker: Arc<Waker>,
    pub(super) told: AtomicBool,
    pub(super) orders: Mutex<Orders>,
    /// Somebody has given its part up.
    pub(super) done: Condvar,
    /// What its sockets have lost, for each device.
    pub(super) lost: Mutex<Vec<Lost>>,
}

#[derive(Default)]
pub(super) struct Orders {
    /// The part that it is to have from now on, or none.
    pub(super) part: Option<Option<Box<Part>>>,
    pub(super) leaving: Option<Arc<Leaving>>,
    /// Whether it has a part, or will have.
    pub(super) holds: bool,
}

impl Mailbox {
    /// That of a thread without a part, which this wakes.
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

    /// What wakes it.
    pub(super) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// What it has lost of a device's frames.
    pub(super) fn lost(&self, device: usize) -> Lost {
        self.lost.lock().get(device).copied().unwrap_or_default()
    }

    fn tell(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut self.orders.lock());
        self.told.store(true, Ordering::Release);
        self.wake();
    }

    /// Gives it a part.
    pub(super) fn give(&self, part: Part) {
        self.tell(|orders| (orders.part, orders.holds) = (Some(Some(Box::new(part))), true));
    }

    /// Takes its part away: [`Self::wait`] until it has none.
    pub(super) fn take(&self) {
        self.tell(|orders| orders.part = Some(None));
    }

    /// Waits until it has no part, or `stop`.
    pub(super) fn wait(&self, stop: &AtomicBool) {
        let mut orders = self.orders.lock();
        while orders.holds && !stop.load(Ordering::Acquire) {
            self.done.wait_for(&mut orders, PATIENCE);
        }
    }

    /// Tells it what is protected from now on.
    pub(super) fn set_leaving(&self, leaving: Arc<Leaving>) {
        self.tell(|orders| orders.leaving = Some(leaving));
    }
}
