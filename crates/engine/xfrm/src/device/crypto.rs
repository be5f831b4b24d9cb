//! The crypto of a device in crypto offload: bursts are submitted to a queue and come back in order.
//!
//! ```text
//!  a worker of the stack                                             the device
//!  Tables::outbound_begin / inbound_begin                               │
//!     jobs, keys' names ─▶ CryptoBurst ─▶ Queue::submit ═══════════▶ CryptoBurst::run, or kernels on a GPU
//!  Tables::outbound_end / inbound_end  ◀─ Queue::poll   ◀═══════════ statuses
//! ```
//!
//! A burst owns what the crypto needs: its packets in one buffer, where their parts lie, and what the device calls their
//! states. A device that is another piece of hardware, such as a GPU, implements [`Queue`] over the same bursts: the buffer may
//! be copied or mapped as a whole, [`CryptoBurst::packets`] and the device's own copies of the keys are all it needs.

use super::key::StateKey;
use arrayvec::ArrayVec;
pub use sealane_net_ipsec::burst::Direction;
use sealane_net_ipsec::burst::{self, BURST, Item, Job, Jobs, Keys, SaKey};
use sealane_net_ipsec::packet::Packet;

/// The outcome of a packet's crypto.
pub use sealane_crypto::Status;

/// The place of a packet in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Start of its part of the buffer.
    pub at: usize,
    /// Length of that part in bytes.
    pub len: usize,
    /// Start of the packet within its part.
    pub start: usize,
    /// End of the packet within its part.
    pub end: usize,
}

impl Slot {
    /// The slot of a packet in `buffer[at..]`.
    #[must_use]
    pub fn new(at: usize, packet: &Packet<'_>) -> Self {
        Slot { at, len: packet.room(), start: packet.start(), end: packet.end() }
    }
}

/// A burst of packets with their jobs, all in one direction.
pub struct CryptoBurst {
    /// The memory of the packets.
    pub buffer: Box<[u8]>,
    /// Their direction.
    pub dir: Direction,
    /// The place of each packet, in ascending order.
    pub slots: ArrayVec<Slot, BURST>,
    /// The jobs to be run.
    pub jobs: Jobs,
    /// The device's key of each job's state; `None` for a job of the stack.
    pub keys: ArrayVec<Option<StateKey>, BURST>,
    /// The status of each job: a failure until it has run.
    pub done: ArrayVec<Status, BURST>,
}

impl CryptoBurst {
    /// An empty one with a buffer of `len` bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        CryptoBurst {
            buffer: vec![0; len].into(),
            dir: Direction::Encrypt,
            slots: ArrayVec::new(),
            jobs: Jobs::new(),
            keys: ArrayVec::new(),
            done: ArrayVec::new(),
        }
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.jobs.clear();
        self.keys.clear();
        self.done.clear();
    }

    /// Its packets.
    ///
    /// # Panics
    /// When the slots are not within the buffer, or overlap.
    pub fn packets(&mut self) -> ArrayVec<Packet<'_>, BURST> {
        packets(&mut self.buffer, &self.slots)
    }

    /// Its packets, their jobs and what became of them.
    ///
    /// # Panics
    /// As [`Self::packets`].
    pub fn parts(&mut self) -> (ArrayVec<Packet<'_>, BURST>, &[Job], &[Status]) {
        let CryptoBurst { buffer, slots, jobs, done, .. } = self;
        (packets(buffer, slots), jobs, done)
    }

    /// Runs the jobs that are for the device. `key` is its copy of a state's key; a job whose state it does not have
    /// stays a failure.
    pub fn run<'k>(&mut self, key: impl Fn(StateKey) -> Option<&'k SaKey>) {
        let CryptoBurst { keys, .. } = self;
        let keys: ArrayVec<Option<&SaKey>, BURST> = keys.iter().map(|name| key((*name)?)).collect();
        self.run_with(|at, _| keys[at]);
    }

    /// Runs the jobs that are not for a device, in the thread that calls, with the keys that [`Sad::keys`] gave for
    /// them.
    ///
    /// [`Sad::keys`]: sealane_net_ipsec::sad::Sad::keys
    pub fn run_here(&mut self, keys: &Keys) {
        let names = self.keys.clone();
        let mut keys = keys.cursor();
        self.run_with(|at, job| keys.of(job).filter(|_| names[at].is_none()));
    }

    fn run_with<'k>(&mut self, mut key: impl FnMut(usize, &Job) -> Option<&'k SaKey>) {
        let CryptoBurst { buffer, dir, slots, jobs, done, .. } = self;
        let mut packets = packets(buffer, slots);
        let mut items: ArrayVec<Item<'_, '_>, BURST> = ArrayVec::new();
        let mut statuses: ArrayVec<&mut Status, BURST> = ArrayVec::new();
        let mut rest = jobs.iter().zip(done).enumerate().peekable();
        for (at, packet) in packets.iter_mut().enumerate() {
            let Some((nth, (job, status))) = rest.next_if(|(_, (job, _))| job.packet() == at) else { continue };
            if let Some(key) = key(nth, job) {
                items.push(Item::new(job, key, packet));
                statuses.push(status);
            }
        }
        burst::run(*dir, &mut items);
        items.iter().zip(statuses).for_each(|(item, status)| *status = item.done);
    }
}

fn packets<'b>(buffer: &'b mut [u8], slots: &[Slot]) -> ArrayVec<Packet<'b>, BURST> {
    let mut packets = ArrayVec::new();
    let (mut rest, mut from) = (buffer, 0);
    for slot in slots {
        let (_, behind) = core::mem::take(&mut rest).split_at_mut(slot.at - from);
        let (this, behind) = behind.split_at_mut(slot.len);
        (rest, from) = (behind, slot.at + slot.len);
        packets.push(Packet::new(this, slot.start, slot.end));
    }
    packets
}

/// The result of polling a queue.
pub enum Polled {
    /// The burst that was submitted first of those that are not back yet. What its device could not do is a failure.
    Burst(Box<CryptoBurst>),
    /// Nothing that is ready.
    Nothing,
    /// The device is gone, and with it all bursts that it had: their packets are to be dropped.
    Gone,
}

/// A worker's way to a device. Bursts come back in the order in which they were submitted.
pub trait Queue: Send {
    /// The number of bursts that can be submitted now. It only grows until the next submission, so that a caller who
    /// asks first does not fail.
    fn room(&self) -> usize;

    /// Hands a burst over.
    ///
    /// # Errors
    /// The burst, when there is no room or the device is gone: its packets are to be dropped, or the caller waits.
    fn submit(&mut self, burst: Box<CryptoBurst>) -> Result<(), Box<CryptoBurst>>;

    /// Takes back the next burst that is done. It does not wait: the worker is woken for it.
    fn poll(&mut self) -> Polled;

    /// The worker is about to wait: from now on it is woken when a burst is done. One that is done already is to be
    /// polled for once more after this.
    fn arm(&mut self);

    /// A burst had to wait because there was no room.
    fn count_full(&mut self);
}

/// The crypto of a device, for any number of workers.
pub trait Crypto: Send + Sync {
    /// A queue for a worker, which is woken by `wake`; `None` when the device has gone.
    fn queue(&self, wake: Box<dyn Fn() + Send>) -> Option<Box<dyn Queue>>;
}
