//! The threads of a gateway: each moves the packets of its queues.

use super::Common;
use super::lead::Lead;
use super::opening::{Leaving, MAX_SOCKETS, Part};
use super::relay::Taken;
use crate::data::stack::Stack;
use crate::data::tables::Tables;
use crate::data::wire::Wire;
use arrayvec::ArrayVec;
use parking_lot::{Condvar, Mutex};
use sealane_engine_xfrm::data::BURST;
use sealane_sys::poll::{Waker, ready, sleep_precisely};
use sealane_sys::xsk::Lost;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked at what nobody told of.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// How long frames are given that are expected.
const NAP: Duration = Duration::from_micros(30);
/// How long one waits that is to have the interfaces' sockets closed by all.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bursts of a socket before others have their turn.
const TURN: usize = 4;
/// Frames of one round from which on more are expected.
const MANY: usize = 8;
/// Descriptors that are waited for: sockets, the waker, addresses, routes.
const FDS: usize = MAX_SOCKETS + 3;

/// What a thread is told by the one that leads, and what it says of itself.
pub(super) struct Post {
    waker: Arc<Waker>,
    told: AtomicBool,
    orders: Mutex<Orders>,
    /// Somebody has given its part up.
    done: Condvar,
    /// What its sockets have lost, for each device.
    lost: Mutex<Vec<Lost>>,
}

#[derive(Default)]
struct Orders {
    /// The part that it is to have from now on, or none.
    part: Option<Option<Box<Part>>>,
    leaving: Option<Arc<Leaving>>,
    /// Whether it has a part, or will have.
    holds: bool,
}

impl Post {
    /// That of a thread without a part, which this wakes.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Post {
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
    pub(super) fn follow(&self, leaving: Arc<Leaving>) {
        self.tell(|orders| orders.leaving = Some(leaving));
    }
}

/// A thread's own.
pub(super) struct Worker {
    pub(super) common: Arc<Common>,
    pub(super) index: usize,
    /// The first one's. Programs go before the sockets that they give frames to.
    lead: Option<Lead>,
    /// None while it has no queue to serve.
    pub(super) part: Option<Box<Part>>,
    /// Where packets leave that the stack has to send.
    pub(super) tx: Wire,
    /// Where opened packets go that are not sent on.
    pub(super) stack: Stack,
    pub(super) tables: Tables,
}

impl Worker {
    /// One of a number, which leads or has nothing to do yet.
    pub(super) fn new(
        common: &Arc<Common>,
        index: usize,
        lead: Option<Lead>,
        tx: Wire,
        stack: Stack,
        tables: Tables,
    ) -> Self {
        Worker { common: common.clone(), index, lead, part: None, tx, stack, tables }
    }

    /// Opens the interfaces that are there, where it leads.
    pub(super) fn begin(&mut self) {
        let Worker { common, lead, part, tables, .. } = self;
        if let Some(lead) = lead {
            lead.look(common, part, &tables.routes);
        }
    }

    /// Does what it was told.
    fn obey(&mut self) {
        let post = &self.common.posts[self.index];
        if !post.told.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut orders = post.orders.lock();
        if let Some(part) = orders.part.take() {
            orders.holds = part.is_some();
            self.part = part;
            post.done.notify_all();
        }
        if let Some((leaving, part)) = orders.leaving.take().zip(self.part.as_mut()) {
            part.leaving = leaving;
        }
    }

    /// Moves packets until it is told to stop.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn run(&mut self) -> io::Result<()> {
        sleep_precisely();
        let mut looked = Instant::now();
        let mut busy = false;
        while !self.common.stop.load(Ordering::Acquire) {
            self.obey();
            let count = self.part.as_ref().map_or(0, |part| part.slots.len());
            let rests = self.lead.as_ref().is_some_and(|lead| lead.rests(self.tables.routes.now()));
            let has_mail = self.part.as_ref().is_some_and(|part| part.relay.arm());
            let wait = match busy || has_mail {
                true => Duration::ZERO,
                false if rests => Duration::from_millis(1),
                false => TICK,
            };
            let woken = {
                let parts = self.part.iter();
                let sockets = parts.flat_map(|part| (0..part.slots.len()).map(|i| part.sockets.fd(i)));
                let ways = self.part.iter().map(|part| part.ways.as_fd());
                let waker = self.common.posts[self.index].waker.as_fd();
                ready::<FDS>([waker, self.tables.routes.as_fd()].into_iter().chain(ways).chain(sockets), wait)
            };
            let is = |i: usize| woken.get(i).copied().unwrap_or(false);
            let now = self.tables.routes.tick();
            let Worker { common, index, lead, part, tables, .. } = &mut *self;
            part.iter().for_each(|part| part.relay.disarm());
            if is(0) {
                common.posts[*index].waker.drain();
            }
            if is(1) {
                tables.routes.locals().refresh()?;
            }
            if is(2) {
                part.iter_mut().for_each(|part| part.ways.refresh());
            }
            if let Some(lead) = lead {
                lead.note(is(0), is(1));
                lead.follow(common, part, &tables.routes);
            }
            let mut got = self.mail();
            for i in 0..count {
                for _ in 0..TURN {
                    let read = self.turn(i);
                    got += read;
                    if read < BURST {
                        break;
                    }
                }
            }
            busy = false;
            if let Some(part) = &mut self.part {
                part.sockets.flush();
                part.relay.bring_home(&mut part.sockets);
                busy = got >= MANY || part.sockets.is_sending() || part.sockets.is_short();
            }
            // A socket that is readable for nothing has lost its interface.
            let lost = got == 0 && (3..3 + count).any(is);
            if lost || now.duration_since(looked) >= TICK {
                looked = now;
                self.look();
            }
            if busy && got < BURST {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// Notes what its sockets have lost, and looks at the interfaces where it leads.
    fn look(&mut self) {
        let Worker { common, lead, part, tables, .. } = self;
        if let Some(lead) = lead {
            lead.look(common, part, &tables.routes);
        }
        *common.posts[self.index].lost.lock() = part.as_ref().map(|part| part.lost()).unwrap_or_default();
    }

    /// Seals what others have handed over; how many packets.
    fn mail(&mut self) -> usize {
        let mut got = 0;
        for _ in 0..TURN {
            let Some(part) = &mut self.part else { break };
            let mut frames: ArrayVec<Taken, BURST> = ArrayVec::new();
            part.relay.take(&mut frames);
            let read = frames.len();
            if read > 0 {
                self.outbound(frames);
            }
            got += read;
            if read < BURST {
                break;
            }
        }
        got
    }
}
