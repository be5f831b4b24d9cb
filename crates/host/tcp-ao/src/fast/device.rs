//! One device of the fast path: its ring, the link headers that the ring shows, and the way up to the stack.

use super::super::path::Shared;
use super::super::tables::Sockets;
use super::super::transmit::Links;
use super::connection::{Activity, FastConnection, RingsServed};
use super::to_stack::{Delivered, ToStack};
use arrayvec::ArrayVec;
use sealane_engine_ao::{Inbound, Located, Verdict, VerifyBurst};
use sealane_net_ao::mac::BURST;
use sealane_net_ao::segment::ChecksumState;
use sealane_packets::ring::{MAX_FRAMES, Ring};
use sealane_sys::link::{self, Facts};
use sealane_sys::marks::Marks;
use sealane_sys::poll::Waits;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

/// Ring, way up and link headers of one device.
pub(super) struct Device {
    ring: Ring,
    pub(super) links: Links,
    to_stack: ToStack,
    facts: Facts,
    /// Packets that did not fit into the ring before it was used.
    early_drops: u64,
    /// Whether a packet was too long for the ring.
    truncated: bool,
    /// Whether the device went down, or away, or into a VRF.
    failed: bool,
    /// Whether its frames are not to be judged any more.
    has_ended: bool,
    /// Whether the worker waits for the ring.
    is_awaited: bool,
}

impl Device {
    pub(super) fn open(index: u32, facts: Facts, marks: Marks) -> io::Result<Self> {
        Ok(Device {
            ring: Ring::open(index, facts.mtu, marks)?,
            to_stack: ToStack::open(index, &facts, marks)?,
            links: Links::open(index, marks)?,
            facts,
            early_drops: 0,
            truncated: false,
            failed: false,
            has_ended: false,
            is_awaited: false,
        })
    }

    /// Judges no more frames. It is removed soon.
    pub(super) fn end(&mut self) {
        (self.failed, self.has_ended) = (true, true);
    }

    /// Whether it judges no more frames.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Skips the frames in the ring, but not those that come meanwhile: under a flood there would be no end. Those that did not fit
    /// into it do not count.
    pub(super) fn start_afresh(&mut self) {
        for _ in 0..MAX_FRAMES.div_ceil(BURST) {
            if self.ring.read(BURST, |_| {}) == 0 {
                break;
            }
            self.ring.release(self.ring.next());
        }
        self.early_drops = self.ring.drops();
    }

    /// The number of packets that did not fit into the ring.
    pub(super) fn drops(&mut self) -> u64 {
        self.ring.drops() - self.early_drops
    }

    /// Whether there are superframes that may still grow.
    pub(super) fn has_open(&self) -> bool {
        !self.to_stack.is_empty()
    }

    /// Judges a burst of frames, of connections of the fast path.
    pub(super) fn serve(
        &mut self,
        shared: &Shared,
        work: &mut VerifyBurst,
        kernel: &mut Sockets,
        connections: &mut HashMap<FastConnection, Activity>,
    ) -> RingsServed {
        if self.has_ended {
            return RingsServed::default();
        }
        let frames = self.burst(shared, work, kernel, connections);
        let mut pass = RingsServed { frames, open: false, more: frames == BURST };
        self.to_stack.flush_idle(&self.ring, &shared.counters);
        self.release();
        pass.open = self.has_open();
        if pass.frames == 0 && !pass.open {
            // A wake-up without frames: an error would wake the worker again and again.
            self.failed |= self.ring.failed();
        }
        pass
    }

    /// Judges one burst, and returns the number of frames read.
    fn burst(
        &mut self,
        shared: &Shared,
        work: &mut VerifyBurst,
        kernel: &mut Sockets,
        connections: &mut HashMap<FastConnection, Activity>,
    ) -> usize {
        let mut batch: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
        let mut numbers: ArrayVec<u64, BURST> = ArrayVec::new();
        let (links, truncated, mtu) = (&mut self.links, &mut self.truncated, self.facts.mtu as usize);
        let device = self.ring.device();
        let read = self.ring.read(BURST, |frame| {
            *truncated |= frame.truncated;
            if frame.leaves {
                return links.learn(frame.packet(), frame.link);
            }
            let Some(located) = Located::received(frame.packet()) else { return };
            if connections.contains_key(&FastConnection { device, ends: located.ends }) {
                let checksum = if frame.partial_checksum { ChecksumState::Partial } else { ChecksumState::Complete };
                numbers.push(frame.number);
                let packet = frame.into_packet();
                let verdict = Verdict::Pass;
                batch.push(Inbound { packet, located: Some(located), checksum, device, mtu, verdict });
            }
        });
        if !batch.is_empty() {
            shared.verify(work, &mut batch, kernel);
        }
        let mut delivered: ArrayVec<Delivered, BURST> = ArrayVec::new();
        for (p, frame) in batch.iter().zip(numbers) {
            // All but authentic segments are dropped.
            if let (Verdict::Deliver(from, at), Some(located)) = (p.verdict, p.located) {
                let partial_checksum = p.checksum == ChecksumState::Partial;
                delivered.push(Delivered { frame, from, located: Located { at, ..located }, partial_checksum });
            }
        }
        drop(batch);
        shared.counters.fast_in.fetch_add(delivered.len() as u64, Relaxed);
        for one in &delivered {
            if let Some(activity) = connections.get_mut(&FastConnection { device, ends: one.located.ends }) {
                activity.deliver(&one.segment(&self.ring));
            }
        }
        self.to_stack.push_all(&delivered, &self.ring, &shared.counters);
        self.release();
        read
    }

    /// Returns frames to the kernel that no superframe needs any more.
    fn release(&mut self) {
        let keep = self.to_stack.oldest().unwrap_or_else(|| self.ring.next());
        self.ring.release(keep);
    }

    /// Has `waits` wait for the ring, unless that fails.
    pub(super) fn follow_ring(&mut self, waits: &Waits, token: u32) {
        if self.is_awaited == self.failed {
            self.is_awaited = !self.failed;
            let done = match self.failed {
                true => waits.remove(self.ring.as_fd()),
                false => waits.add(self.ring.as_fd(), token),
            };
            // Without a wait its frames would stay where they are.
            self.failed |= done.is_err();
        }
    }

    /// Has `waits` not wait for the ring any more.
    pub(super) fn forget_ring(&mut self, waits: &Waits) {
        if core::mem::take(&mut self.is_awaited) {
            // It fails only for a ring that is not waited for.
            let _ = waits.remove(self.ring.as_fd());
        }
    }

    /// The reason why no packets can be given to the stack any more.
    pub(super) fn broken(&mut self) -> Option<String> {
        self.to_stack.broken()
    }

    /// Forgets old link headers, and checks the device. Returns whether it is unusable now: it is down or gone, packets
    /// do not fit into the ring, or its address has changed.
    pub(super) fn check_unusable(&mut self) -> bool {
        self.links.forget();
        let changed = link::facts(self.ring.device()).is_ok_and(|now| {
            self.facts.mtu = now.mtu;
            now.mtu > self.ring.max_packet() || now.address != self.facts.address
        });
        changed || self.failed || self.truncated || self.ring.failed()
    }
}
