//! A thread of a gateway, which moves the packets of its queues.

use super::common::Common;
use super::coordinator::Coordinator;
use super::opening::{MAX_SOCKETS, ThreadPart};
use super::relay::RelayedFrame;
use crate::ready::PollTable;
use crate::stack::Stack;
use crate::tables::Tables;
use crate::wire::Wire;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::BURST;
use sealane_sys::poll::sleep_precisely;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The interval at which changes without notification are looked for.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// The sleep while more frames are expected.
const NAP: Duration = Duration::from_micros(30);
/// The most bursts of a socket before others have their turn.
const TURN: usize = 4;
/// After this many frames in one round more are expected.
const MANY: usize = 8;
/// The most descriptors to wait for: sockets, the waker, addresses, routes.
const FDS: usize = MAX_SOCKETS + 3;

/// A descriptor that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wakeup {
    /// Another thread wakes it.
    Waker,
    /// Addresses of this host have changed.
    Addresses,
    /// Routes or neighbours have changed.
    Hops,
    /// A socket of an interface.
    Socket,
}

/// A thread of a gateway.
pub(super) struct Forwarder {
    pub(super) common: Arc<Common>,
    pub(super) index: usize,
    /// The first thread's. It is dropped before the sockets that its program gives frames to.
    coordinator: Option<Coordinator>,
    /// None while it has no queue to serve.
    pub(super) part: Option<Box<ThreadPart>>,
    /// The transmitter for packets that the stack has to send.
    pub(super) tx: Wire,
    /// The way up to the stack for opened packets that are not sent on.
    pub(super) stack: Stack,
    pub(super) tables: Tables,
}

impl Forwarder {
    /// Makes the thread with this index.
    pub(super) fn new(
        common: &Arc<Common>,
        index: usize,
        coordinator: Option<Coordinator>,
        tx: Wire,
        stack: Stack,
        tables: Tables,
    ) -> Self {
        Forwarder { common: common.clone(), index, coordinator, part: None, tx, stack, tables }
    }

    /// Opens the interfaces, if it is the coordinator's thread.
    pub(super) fn begin(&mut self) {
        let Forwarder { common, coordinator, part, tables, .. } = self;
        if let Some(coordinator) = coordinator {
            coordinator.look(common, part, &tables.routes);
        }
    }

    /// Carries out the orders of its mailbox.
    fn follow_orders(&mut self) {
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
            self.follow_orders();
            let count = self.part.as_ref().map_or(0, |part| part.slots.len());
            let rests = self
                .coordinator
                .as_ref()
                .is_some_and(|coordinator| coordinator.has_delayed_update(self.tables.routes.now()));
            let has_mail = self.part.as_ref().is_some_and(|part| part.relay.arm());
            let wait = match busy || has_mail {
                true => Duration::ZERO,
                false if rests => Duration::from_millis(1),
                false => TICK,
            };
            let woken = self.poll(wait);
            let is = |source| woken.contains(&source);
            let now = self.tables.routes.tick();
            let Forwarder { common, index, coordinator, part, tables, .. } = &mut *self;
            part.iter().for_each(|part| part.relay.disarm());
            for source in &woken {
                match source {
                    Wakeup::Waker => common.posts[*index].waker().drain(),
                    Wakeup::Addresses => tables.routes.refresh()?,
                    Wakeup::Hops => part.iter_mut().for_each(|part| part.hops.refresh()),
                    // All sockets are read below.
                    Wakeup::Socket => {}
                }
            }
            if let Some(coordinator) = coordinator {
                coordinator.note_changes(is(Wakeup::Waker), is(Wakeup::Addresses));
                coordinator.update(common, part, &tables.routes);
            }
            let mut got = self.seal_handed_over();
            for i in 0..count {
                for _ in 0..TURN {
                    let read = self.forward_burst(i);
                    got += read;
                    if read < BURST {
                        break;
                    }
                }
            }
            busy = false;
            if let Some(part) = &mut self.part {
                part.sockets.flush();
                part.relay.return_chunks(&mut part.sockets);
                busy = got >= MANY || part.sockets.is_sending() || part.sockets.is_short();
            }
            // A readable socket without frames has lost its interface.
            let lost = got == 0 && is(Wakeup::Socket);
            if lost || now.duration_since(looked) >= TICK {
                looked = now;
                self.tables.routes.catch_up()?;
                self.look();
            }
            if busy && got < BURST {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// Waits until there is something to do.
    fn poll(&self, wait: Duration) -> ArrayVec<Wakeup, FDS> {
        let mut table = PollTable::new();
        table.add(Wakeup::Waker, self.common.posts[self.index].waker().as_fd());
        table.add(Wakeup::Addresses, self.tables.routes.as_fd());
        if let Some(part) = &self.part {
            table.add(Wakeup::Hops, part.hops.as_fd());
            (0..part.slots.len()).for_each(|i| table.add(Wakeup::Socket, part.sockets.fd(i)));
        }
        table.wait(wait)
    }

    /// Reports the frames that its sockets have lost, and checks the interfaces if it is the coordinator's thread.
    fn look(&mut self) {
        let Forwarder { common, coordinator, part, tables, .. } = self;
        if let Some(coordinator) = coordinator {
            coordinator.look(common, part, &tables.routes);
        }
        *common.posts[self.index].lost.lock() = part.as_ref().map(|part| part.lost()).unwrap_or_default();
    }

    /// Seals packets that other threads have handed over. Returns their number.
    fn seal_handed_over(&mut self) -> usize {
        let mut got = 0;
        for _ in 0..TURN {
            let Some(part) = &mut self.part else { break };
            let mut frames: ArrayVec<RelayedFrame, BURST> = ArrayVec::new();
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
