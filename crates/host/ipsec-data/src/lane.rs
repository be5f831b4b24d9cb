//! The exchange between several workers of one stack: each reads a queue of the TUN device, and hands frames that go
//! through another worker's states over to that worker.
//!
//! ```text
//!  queue 0 ─▶ worker 0: owner? ─ own ─▶ cut, seal, send
//!                  │  ▲
//!               ring  ring      parcels of frames, superframes whole, in the order of their queue
//!                  ▼  │
//!  queue 1 ─▶ worker 1: owner? ─ own ─▶ cut, seal, send
//! ```
//!
//! So the packets of one state get their sequence numbers in the order in which they leave, and replay windows may be
//! small. A ring has one producer and one consumer. When it is full its producer stops reading its queue, which then
//! fills up as any device's does, and goes on with parcels from other workers: no worker waits for another.

use crate::doorbell::Doorbell;
use crate::late::Source;
use arrayvec::ArrayVec;
use core::ops::Range;
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use sealane_abi::admin::ipsec;
use sealane_config::MAX_WORKERS;
use sealane_packets::outgoing::Origin;
use sealane_packets::tun::FRAME_LEN;
use sealane_sys::poll::Waker;
use sealane_wire::gso::Offload;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

/// The most frames of one parcel.
pub(crate) const FRAMES: usize = 32;
/// The most parcels under way from one worker to all others together, of 128 KB each.
const DEPTH: usize = 64;
/// The least room for parcels from one worker to another.
const LEAST: usize = 4;

/// A frame of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The place of its packet in the buffer.
    pub(crate) range: Range<usize>,
    /// The work that the stack left to the device.
    pub(crate) offload: Offload,
    /// The mark of its packet, and the device that it was about to leave by.
    pub(crate) origin: Origin,
}

/// A buffer with frames of the device.
pub(crate) struct Parcel {
    buffer: Box<[u8]>,
    frames: ArrayVec<Frame, FRAMES>,
    /// The number of frames that have been taken.
    taken: usize,
    /// The worker that read them, which stands for their CPU.
    cpu: u32,
}

impl Parcel {
    fn new(len: usize) -> Self {
        Parcel { buffer: vec![0; len].into(), frames: ArrayVec::new(), taken: 0, cpu: 0 }
    }

    /// The packets of its frames.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().map(|frame| &self.buffer[frame.range.clone()])
    }

    fn clear(&mut self, cpu: u32) {
        self.frames.clear();
        (self.taken, self.cpu) = (0, cpu);
    }

    fn is_done(&self) -> bool {
        self.taken == self.frames.len()
    }

    /// Reads at most so many frames, as far as there is room for another one.
    fn fill(&mut self, source: &mut Source, most: usize) -> io::Result<()> {
        let mut at = 0;
        while self.frames.len() < most && self.buffer.len() - at >= FRAME_LEN {
            let Some((range, offload, origin)) = source.read(&mut self.buffer[at..at + FRAME_LEN])? else { break };
            self.frames.push(Frame { range: at + range.start..at + range.end, offload, origin });
            at += range.end;
        }
        Ok(())
    }

    /// Appends a frame of another one that is as long.
    fn copy(&mut self, from: &Parcel, frame: usize) {
        let Frame { range, offload, origin } = &from.frames[frame];
        let at = self.frames.last().map_or(0, |last| last.range.end);
        self.buffer[at..at + range.len()].copy_from_slice(&from.buffer[range.clone()]);
        self.frames.push(Frame { range: at..at + range.len(), offload: *offload, origin: *origin });
    }
}

/// Counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounts {
    /// Frames that it read from its queue.
    pub(crate) read: AtomicU64,
    /// The packets among them that it handed over to others.
    pub(crate) handed_over: AtomicU64,
    /// Frames that others handed over to it.
    pub(crate) taken_over: AtomicU64,
    /// The number of times that a ring was full.
    pub(crate) full: AtomicU64,
}

impl WorkerCounts {
    /// The counters as the status shows them.
    pub(crate) fn status(&self) -> ipsec::Worker {
        let WorkerCounts { read, handed_over, taken_over, full } = self;
        let value = |counter: &AtomicU64| counter.load(Relaxed);
        ipsec::Worker {
            read: value(read),
            handed_over: value(handed_over),
            taken_over: value(taken_over),
            full: value(full),
        }
    }
}

/// A worker's end of the rings to another one.
struct ToWorker {
    to: Producer<Box<Parcel>>,
    /// Empty parcels on their way back.
    back: Consumer<Box<Parcel>>,
    doorbell: Arc<Doorbell>,
    /// Whether it waits for room.
    waits: Arc<AtomicBool>,
}

/// A worker's end of the rings from another one.
struct FromWorker {
    from: Consumer<Box<Parcel>>,
    back: Producer<Box<Parcel>>,
    doorbell: Arc<Doorbell>,
    waits: Arc<AtomicBool>,
}

/// The rings between one of several workers and the others.
pub(crate) struct Lane {
    index: u32,
    of: u32,
    doorbell: Arc<Doorbell>,
    there: Vec<Option<ToWorker>>,
    here: Vec<FromWorker>,
    /// The ring that was read last: rings have turns.
    next: usize,
    /// Parcels that rings had no room for. Nothing is read from the queue meanwhile.
    parked: ArrayVec<(u32, Box<Parcel>), { MAX_WORKERS as usize }>,
    counts: Arc<WorkerCounts>,
}

impl Lane {
    /// Connects all workers of a stack.
    pub(crate) fn all(workers: &[(Arc<Waker>, Arc<WorkerCounts>)]) -> Vec<Lane> {
        let new = |(index, (waker, counts)): (u32, &(Arc<Waker>, Arc<WorkerCounts>))| Lane {
            index,
            of: workers.len() as u32,
            doorbell: Arc::new(Doorbell::new(waker.clone())),
            there: Vec::new(),
            here: Vec::new(),
            next: 0,
            parked: ArrayVec::new(),
            counts: counts.clone(),
        };
        let mut lanes: Vec<Lane> = (0..).zip(workers).map(new).collect();
        let depth = (DEPTH / workers.len().max(1)).max(LEAST);
        for from in 0..lanes.len() {
            for to in 0..lanes.len() {
                if from == to {
                    lanes[from].there.push(None);
                    continue;
                }
                let (producer, consumer) = RingBuffer::new(depth);
                let (empty, back) = RingBuffer::new(depth + 2);
                let waits = Arc::new(AtomicBool::new(false));
                let doorbells = [lanes[from].doorbell.clone(), lanes[to].doorbell.clone()];
                let [of_from, of_to] = doorbells;
                lanes[from].there.push(Some(ToWorker { to: producer, back, doorbell: of_to, waits: waits.clone() }));
                lanes[to].here.push(FromWorker { from: consumer, back: empty, doorbell: of_from, waits });
            }
        }
        lanes
    }

    /// The index of the worker.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The number of workers.
    pub(crate) fn of(&self) -> u32 {
        self.of
    }

    fn has_mail(&self) -> bool {
        self.here.iter().any(|here| !here.from.is_empty())
    }

    /// Exchanges an empty parcel for one of another worker, in turns.
    fn take(&mut self, parcel: &mut Box<Parcel>) -> bool {
        for _ in 0..self.here.len() {
            self.next = (self.next + 1) % self.here.len();
            let here = &mut self.here[self.next];
            let Ok(full) = here.from.pop() else { continue };
            // If the ring has enough empty parcels, this one is dropped.
            let _ = here.back.push(core::mem::replace(parcel, full));
            fence(SeqCst);
            if here.waits.load(Relaxed) && here.waits.swap(false, AcqRel) {
                here.doorbell.wake();
            }
            self.counts.taken_over.fetch_add(parcel.frames.len() as u64, Relaxed);
            return true;
        }
        false
    }

    /// Takes an empty parcel: one that came back, or a new one. No more are made than rings have room for.
    fn empty(&mut self) -> Box<Parcel> {
        let back = self.there.iter_mut().flatten().find_map(|there| there.back.pop().ok());
        let mut parcel = back.unwrap_or_else(|| Box::new(Parcel::new(2 * FRAME_LEN)));
        parcel.clear(self.index);
        parcel
    }

    /// Hands a parcel over, or returns it when there is no room.
    fn push(&mut self, to: u32, parcel: Box<Parcel>) -> Result<(), Box<Parcel>> {
        let Some(there) = self.there.get_mut(to as usize).and_then(Option::as_mut) else { return Ok(()) };
        let frames = parcel.frames.len() as u64;
        match there.to.push(parcel) {
            Ok(()) => {
                self.counts.handed_over.fetch_add(frames, Relaxed);
                there.doorbell.ring();
                Ok(())
            }
            Err(PushError::Full(parcel)) => Err(parcel),
        }
    }

    /// Hands a parcel over, now or as soon as there is room.
    fn post(&mut self, to: u32, parcel: Box<Parcel>) {
        if let Err(parcel) = self.push(to, parcel) {
            self.counts.full.fetch_add(1, Relaxed);
            self.parked.push((to, parcel));
            self.post_parked();
        }
    }

    /// Hands over parcels that wait for room. Returns whether none waits any more; otherwise the worker is woken when
    /// there is room.
    fn post_parked(&mut self) -> bool {
        for (to, parcel) in core::mem::take(&mut self.parked) {
            let waits = self.there.get(to as usize).and_then(Option::as_ref).map(|there| there.waits.clone());
            let Err(parcel) = self.push(to, parcel) else { continue };
            waits.inspect(|waits| waits.store(true, Relaxed));
            fence(SeqCst);
            // Room that came before `waits` was set wakes nobody.
            if let Err(parcel) = self.push(to, parcel) {
                self.parked.push((to, parcel));
            }
        }
        self.parked.is_empty()
    }

    /// Hands over the frames of other workers, and leaves the rest in its order. `owners` names a worker for each
    /// frame.
    fn sort(&mut self, parcel: &mut Box<Parcel>, owners: &[u32]) {
        let mine = self.index;
        if owners.iter().all(|owner| *owner == mine) {
            return;
        }
        if let [first, rest @ ..] = owners
            && rest.iter().all(|owner| owner == first)
        {
            let empty = self.empty();
            self.post(*first, core::mem::replace(parcel, empty));
            return;
        }
        for to in (0..self.of).filter(|to| *to != mine && owners.contains(to)) {
            let mut part = self.empty();
            let theirs = owners.iter().enumerate().filter(|(_, owner)| **owner == to);
            theirs.for_each(|(frame, _)| part.copy(parcel, frame));
            self.post(to, part);
        }
        let mut owners = owners.iter();
        parcel.frames.retain(|_| owners.next() == Some(&mine));
    }
}

/// The source of a worker's frames: its queue of a device, and parcels of other workers.
pub(crate) struct Intake {
    parcel: Box<Parcel>,
    lane: Option<Lane>,
    /// Whether the queue's turn is next.
    queue: bool,
}

/// The next frame of an [`Intake`].
pub(crate) enum NextFrame {
    /// A frame, whose packet is in [`Intake::buffer`].
    Frame(Frame),
    /// A frame of another CPU than those before it, or one that leaves by another device.
    Other,
    /// Nothing.
    Nothing,
}

impl Intake {
    /// Makes the part of a worker, which is one of several if it has a lane.
    pub(crate) fn new(lane: Option<Lane>) -> Self {
        let len = if lane.is_some() { 2 * FRAME_LEN } else { FRAME_LEN };
        Intake { parcel: Box::new(Parcel::new(len)), lane, queue: false }
    }

    /// The buffer with the frames.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.parcel.buffer
    }

    /// The CPU of the frame at hand.
    pub(crate) fn cpu(&self) -> u32 {
        self.parcel.cpu
    }

    /// Whether there are frames that need no reading.
    pub(crate) fn has_mail(&self) -> bool {
        !self.parcel.is_done() || self.lane.as_ref().is_some_and(Lane::has_mail)
    }

    /// Whether nothing is to be read from the queue.
    pub(crate) fn is_held(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| !lane.parked.is_empty())
    }

    /// Asks other workers to wake this one from now on, as it is about to wait. Returns whether they have handed
    /// something over already.
    pub(crate) fn arm(&self) -> bool {
        let Some(lane) = &self.lane else { return false };
        lane.doorbell.arm();
        lane.has_mail()
    }

    /// Asks the others not to wake this worker any more.
    pub(crate) fn disarm(&self) {
        self.lane.iter().for_each(|lane| lane.doorbell.disarm());
    }

    /// Takes the next frame. `begun` is the CPU of those before it and the device that they leave by, if it must have the same ones; `owners`
    /// names the worker of each frame.
    ///
    /// # Errors
    /// The TUN device's.
    pub(crate) fn next(
        &mut self,
        source: &mut Source,
        begun: Option<(u32, u32)>,
        mut owners: impl FnMut(&Lane, &Parcel) -> ArrayVec<u32, FRAMES>,
    ) -> io::Result<NextFrame> {
        loop {
            let Intake { parcel, lane, queue } = self;
            if let Some(frame) = parcel.frames.get(parcel.taken).cloned() {
                if begun.is_some_and(|begun| begun != (parcel.cpu, frame.origin.device)) {
                    return Ok(NextFrame::Other);
                }
                parcel.taken += 1;
                return Ok(NextFrame::Frame(frame));
            }
            let Some(lane) = lane else {
                parcel.clear(0);
                parcel.fill(source, 1)?;
                if parcel.frames.is_empty() {
                    return Ok(NextFrame::Nothing);
                }
                continue;
            };
            *queue = !*queue;
            if !*queue && lane.take(parcel) {
                continue;
            }
            parcel.clear(lane.index);
            if lane.post_parked() {
                parcel.fill(source, FRAMES)?;
            }
            if parcel.frames.is_empty() {
                if lane.take(parcel) {
                    continue;
                }
                return Ok(NextFrame::Nothing);
            }
            lane.counts.read.fetch_add(parcel.frames.len() as u64, Relaxed);
            let owners = owners(lane, parcel);
            lane.sort(parcel, &owners);
        }
    }
}

#[cfg(test)]
mod tests;
