//! The exchange between the threads of a gateway: packets for the states of another thread, and chunks on their way
//! back.
//!
//! ```text
//!  thread 0: owner? ─ own ─▶ seal, send                   sent, or dropped: owner of chunk? ─ own ─▶ free
//!              └─ ring of packets ─▶ thread 1: seal, send ─────┘  └─ ring of chunks ─▶ thread 0: free
//! ```
//!
//! A ring has one producer and one consumer. When a ring of packets is full further ones are dropped and counted, as a
//! card does, so a state with more packets than its thread can seal does not delay others. Rings of chunks have room
//! for all.

use crate::doorbell::Doorbell;
use arrayvec::ArrayVec;
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use sealane_packets::xsk::{Frame, Sockets};
use sealane_sys::poll::Waker;
use std::sync::Arc;

/// The most packets under way from one thread to another.
const DEPTH: usize = 1024;

/// A frame, and where its packet lies in its chunk.
#[derive(Debug)]
pub(super) struct RelayedFrame {
    pub(super) frame: Frame,
    pub(super) at: (usize, usize),
}

/// A thread's end of the rings to another one.
struct ToThread {
    packets: Producer<RelayedFrame>,
    chunks: Producer<Frame>,
    doorbell: Arc<Doorbell>,
    fresh: bool,
}

/// A thread's end of the rings from another one.
struct FromThread {
    packets: Consumer<RelayedFrame>,
    chunks: Consumer<Frame>,
}

/// The rings between a thread of a gateway and the others.
pub(super) struct Relay {
    index: usize,
    doorbell: Arc<Doorbell>,
    /// By number; none to itself.
    there: Vec<Option<ToThread>>,
    here: Vec<FromThread>,
    /// The ring that was read last: rings have turns.
    next: usize,
}

impl Relay {
    /// Connects threads that are woken by `wakers`, each with its share of sockets.
    pub(super) fn all(wakers: &[Arc<Waker>], shares: &[Sockets]) -> Vec<Relay> {
        let chunks: Vec<usize> = (0..shares.len()).map(|i| shares[i].chunks(i)).collect();
        Relay::connect(wakers, &chunks)
    }

    /// Connects threads that have so many chunks each.
    fn connect(wakers: &[Arc<Waker>], chunks: &[usize]) -> Vec<Relay> {
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

    /// The number of threads.
    pub(super) fn of(&self) -> u32 {
        self.there.len() as u32
    }

    /// Whether this is the thread's own index.
    pub(super) fn is_mine(&self, thread: u32) -> bool {
        thread as usize == self.index
    }

    /// Puts a packet into another thread's ring, or returns it if there is no room. [`Self::wake_threads`] wakes that thread.
    pub(super) fn pass(&mut self, to: u32, packet: RelayedFrame) -> Result<(), RelayedFrame> {
        let Some(there) = self.there.get_mut(to as usize).and_then(Option::as_mut) else { return Err(packet) };
        there.fresh = true;
        there.packets.push(packet).map_err(|PushError::Full(packet)| packet)
    }

    /// Wakes threads that were given packets, if they sleep.
    pub(super) fn wake_threads(&mut self) {
        for there in self.there.iter_mut().flatten() {
            if core::mem::take(&mut there.fresh) {
                there.doorbell.ring();
            }
        }
    }

    /// Takes packets from the rings in turns, as long as there is room for them.
    pub(super) fn take<const N: usize>(&mut self, packets: &mut ArrayVec<RelayedFrame, N>) {
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

    /// Sends the chunks of other threads back, and takes back its own.
    pub(super) fn return_chunks(&mut self, sockets: &mut Sockets) {
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

    /// Asks other threads to wake this one from now on, as it is about to wait. Returns whether they have handed
    /// something over already.
    pub(super) fn arm(&self) -> bool {
        if self.here.is_empty() {
            return false;
        }
        self.doorbell.arm();
        self.here.iter().any(|here| !here.packets.is_empty())
    }

    /// Asks the others not to wake this thread any more.
    pub(super) fn disarm(&self) {
        self.doorbell.disarm();
    }
}

#[cfg(test)]
mod tests;
