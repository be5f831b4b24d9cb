//! Between the threads of a gateway: packets that go through another one's states, and chunks on their way home.
//!
//! ```text
//!  thread 0: whose? ─ own ─▶ seal, send                   sent, or dropped: whose chunk? ─ own ─▶ free
//!              └─ ring of packets ─▶ thread 1: seal, send ─────┘  └─ ring of chunks ─▶ thread 0: free
//! ```
//!
//! A ring has one producer and one consumer. When one of packets is full what has no place in it is dropped and counted, as a card
//! does: a state with more packets than its thread can seal holds nothing up of the others. Rings of chunks have room for all.

use crate::data::doorbell::Doorbell;
use arrayvec::ArrayVec;
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use sealane_sys::poll::Waker;
use sealane_sys::xsk::{Frame, Sockets};
use std::sync::Arc;

/// Packets that may be under way from one thread to another.
const DEPTH: usize = 1024;

/// A frame, and where its packet lies in its chunk.
#[derive(Debug)]
pub(super) struct Relayed {
    pub(super) frame: Frame,
    pub(super) at: (usize, usize),
}

/// A thread's way to another one, and whether that is to be told.
struct ToThread {
    packets: Producer<Relayed>,
    chunks: Producer<Frame>,
    doorbell: Arc<Doorbell>,
    fresh: bool,
}

/// A thread's way from another one.
struct FromThread {
    packets: Consumer<Relayed>,
    chunks: Consumer<Frame>,
}

/// What a thread of a gateway has to do with the others.
pub(super) struct Relay {
    index: usize,
    doorbell: Arc<Doorbell>,
    /// By number; none to itself.
    there: Vec<Option<ToThread>>,
    here: Vec<FromThread>,
    /// Whom it is to take from next.
    next: usize,
}

impl Relay {
    /// Those of threads that are woken by `wakers`, of whose sockets there is a share each.
    pub(super) fn all(wakers: &[Arc<Waker>], shares: &[Sockets]) -> Vec<Relay> {
        let chunks: Vec<usize> = (0..shares.len()).map(|i| shares[i].chunks(i)).collect();
        Relay::between(wakers, &chunks)
    }

    /// Those of threads that have so many chunks each.
    fn between(wakers: &[Arc<Waker>], chunks: &[usize]) -> Vec<Relay> {
        let new = |(index, waker): (usize, &Arc<Waker>)| Relay {
            index,
            doorbell: Arc::new(Doorbell::new(waker.clone())),
            there: Vec::new(),
            here: Vec::new(),
            next: 0,
        };
        let mut relays: Vec<Relay> = wakers.iter().enumerate().map(new).collect();
        for from in 0..relays.len() {
            for to in 0..relays.len() {
                if from == to {
                    relays[from].there.push(None);
                    continue;
                }
                let (packets, taken) = RingBuffer::new(DEPTH);
                let (homeward, home) = RingBuffer::new(chunks[to]);
                let doorbell = relays[to].doorbell.clone();
                relays[from].there.push(Some(ToThread { packets, chunks: homeward, doorbell, fresh: false }));
                relays[to].here.push(FromThread { packets: taken, chunks: home });
            }
        }
        relays
    }

    /// How many threads there are.
    pub(super) fn of(&self) -> u32 {
        self.there.len() as u32
    }

    /// Whether a thread is this one.
    pub(super) fn is_mine(&self, thread: u32) -> bool {
        thread as usize == self.index
    }

    /// Puts a packet into another thread's ring; back where there is no room. It is told by [`Self::tell`].
    pub(super) fn pass(&mut self, to: u32, packet: Relayed) -> Result<(), Relayed> {
        let Some(there) = self.there.get_mut(to as usize).and_then(Option::as_mut) else { return Err(packet) };
        there.fresh = true;
        there.packets.push(packet).map_err(|PushError::Full(packet)| packet)
    }

    /// Wakes those that were given packets and sleep.
    pub(super) fn tell(&mut self) {
        for there in self.there.iter_mut().flatten() {
            if core::mem::take(&mut there.fresh) {
                there.doorbell.tell();
            }
        }
    }

    /// Takes packets that others have put into rings, in turns, as far as there is room for them.
    pub(super) fn take<const N: usize>(&mut self, packets: &mut ArrayVec<Relayed, N>) {
        for _ in 0..self.here.len() {
            self.next = (self.next + 1) % self.here.len();
            let ring = &mut self.here[self.next].packets;
            while !packets.is_full()
                && let Ok(packet) = ring.pop()
            {
                packets.push(packet);
            }
        }
    }

    /// Sends chunks home that are others', and takes back its own.
    pub(super) fn bring_home(&mut self, sockets: &mut Sockets) {
        while let Some((home, frame)) = sockets.stray() {
            if let Some(there) = self.there.get_mut(home).and_then(Option::as_mut) {
                // There is room for all of its chunks.
                let _ = there.chunks.push(frame);
            }
        }
        for here in &mut self.here {
            while let Ok(frame) = here.chunks.pop() {
                sockets.put(frame);
            }
        }
    }

    /// The thread is about to wait: from now on it is woken when others hand something over. Whether they have already.
    pub(super) fn arm(&self) -> bool {
        if self.here.is_empty() {
            return false;
        }
        self.doorbell.arm();
        self.here.iter().any(|here| !here.packets.is_empty())
    }

    /// It is awake.
    pub(super) fn disarm(&self) {
        self.doorbell.disarm();
    }
}

#[cfg(test)]
mod tests;
