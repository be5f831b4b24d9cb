//! The inbound fast path at work: a worker reads its rings, and moves flows between rings and sockets.

use super::fast_in::{FastIn, Handover, MAX_DEVICES, MAX_HELD, RingDevice, count_authentic, named};
use crate::flight::{ARENA_LEN, Arrival, BegunBurst, Origin};
use crate::sockets::SocketId;
use crate::tables::is_authentic;
use crate::worker::Worker;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::BURST;
use sealane_engine_xfrm::device::crypto::Direction;
use sealane_net_ipsec::burst::Jobs;
use sealane_net_ipsec::open::Inbound;
use sealane_net_ipsec::packet::Packet;
use sealane_packets::fast_path::{MANY, TICK};
use sealane_rules::ingress::EspFlow;
use sealane_sys::poll::ready;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use tracing::debug;

/// Bursts of a ring before others have their turn.
const TURN: usize = 2;

/// Shows an SPI as `ip xfrm` does.
fn hex(spi: u32) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "{spi:#010x}"))
}

impl Worker {
    /// Opens the packets of all rings, and moves flows to the rings and back. Returns whether more packets are
    /// expected. With `woken` one of [`FastIn::fds`] was readable; with `reads` this worker reads the sockets.
    ///
    /// # Errors
    /// A socket's.
    pub(crate) fn rings(&mut self, woken: bool, reads: bool) -> io::Result<bool> {
        let Some(fast) = &mut self.rx.fast else { return Ok(false) };
        let now = self.tables.routes.now();
        let mut more = false;
        let devices: ArrayVec<u32, MAX_DEVICES> = fast.devices.keys().copied().collect();
        let due = now.duration_since(fast.ticked) > TICK;
        let mut any = false;
        for &device in &devices {
            for _ in 0..TURN {
                let read = self.ring(device);
                any |= read > 0;
                more |= read >= MANY;
                if read < BURST {
                    break;
                }
            }
        }
        if woken
            && !any
            && let Some(fast) = &mut self.rx.fast
        {
            // Woken for nothing: an error would wake us again and again.
            fast.devices.values_mut().for_each(|device| device.failed |= device.ring.failed());
        }
        while let Some(flow) = self.rx.fast.as_mut().and_then(|fast| fast.wanted.pop()) {
            self.promote(flow)?;
        }
        if let Some(fast) = &mut self.rx.fast {
            fast.take_done(now);
        }
        if due && self.rx.fast.as_ref().is_some_and(|fast| fast.table.is_some()) {
            let Worker { rx, tables, .. } = self;
            let Some(fast) = &mut rx.fast else { return Ok(false) };
            // Another worker's states are in its rings.
            let leaving = fast.tick(now, |address| reads && tables.routes.has(address));
            for flow in leaving {
                self.demote(flow)?;
            }
            if let Some(fast) = &mut self.rx.fast {
                fast.close_unused_rings(&self.shared);
            }
        }
        Ok(more)
    }

    /// Takes a flow's packets from the ring instead of the sockets.
    fn promote(&mut self, flow: EspFlow) -> io::Result<()> {
        let now = self.tables.routes.now();
        if !self.rx.fast.as_mut().is_some_and(|fast| fast.begin(flow, now)) {
            return Ok(());
        }
        // Packets that came before the rule are in the sockets, and perhaps in the ring too.
        self.drain_sockets()?;
        self.skip_noted();
        self.drain_ring(flow.device);
        self.end_change();
        debug!(ifindex = flow.device, spi = %hex(flow.spi), "xfrm: a state takes the inbound fast path");
        Ok(())
    }

    /// Leaves a flow's packets to the sockets again.
    fn demote(&mut self, flow: EspFlow) -> io::Result<()> {
        self.drain_ring(flow.device);
        if let Some(fast) = &mut self.rx.fast {
            // An error means that the table is not there, or the element.
            let _ = fast.table.as_mut().map(|table| table.take(flow, false));
            fast.changing = Handover::NoteRing(flow, HashSet::new());
        }
        self.drain_ring(flow.device);
        if let Some(fast) = &mut self.rx.fast {
            fast.flows.remove(&flow);
        }
        self.skip_noted();
        self.drain_sockets()?;
        self.end_change();
        debug!(ifindex = flow.device, spi = %hex(flow.spi), "xfrm: the packets of a state come by the sockets again");
        Ok(())
    }

    fn skip_noted(&mut self) {
        if let Some(fast) = &mut self.rx.fast {
            fast.changing.start_skipping();
        }
    }

    fn end_change(&mut self) {
        if let Some(fast) = &mut self.rx.fast {
            fast.end_change();
        }
    }

    /// Opens all packets that are in the raw sockets at this moment.
    fn drain_sockets(&mut self) -> io::Result<()> {
        while let Some(socket) = self.rx.pending() {
            self.make_room();
            self.inbound(socket)?;
        }
        for i in 0..self.rx.raw().len() {
            for _ in 0..MAX_HELD {
                self.make_room();
                if !self.inbound(SocketId::Raw(i))? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Opens all packets that are in a ring at this moment.
    fn drain_ring(&mut self, device: u32) {
        for _ in 0..MAX_HELD {
            self.make_room();
            if self.ring(device) < BURST {
                break;
            }
        }
    }

    /// Opens a burst of a ring and gives it to the stack. Returns the number of packets, or [`BURST`] if there may be
    /// more.
    fn ring(&mut self, device: u32) -> usize {
        if !self.flights.has_room() {
            self.flush_superframe();
            return 0;
        }
        let Worker { shared, tables, flights, stack, rx, .. } = self;
        let Some(FastIn { devices, flows, changing, late, .. }) = &mut rx.fast else { return 0 };
        let Some(RingDevice { ring, truncated, .. }) = devices.get_mut(&device) else { return 0 };
        let mut packets: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
        let mut arrivals: ArrayVec<Arrival, BURST> = ArrayVec::new();
        // As many as can be copied.
        let most = BURST.min(ARENA_LEN / ring.frame_len());
        let read = ring.read(most, |frame| {
            *truncated |= frame.truncated;
            let Some((flow, number)) = named(device, frame.packet()) else { return };
            let taken = arrivals.last().is_some_and(|last| last.flow == Some(flow)) || flows.contains_key(&flow);
            let opened = number.is_some_and(|number| changing.was_opened(flow, number, true));
            if taken && !frame.truncated && !opened {
                if let Some((late, number)) = late.get_mut(&flow).zip(number) {
                    late.note(number);
                }
                let (buffer, at) = frame.into_buffer();
                packets.push(Inbound { device, ..Inbound::new(Packet::new(buffer, at.start, at.end)) });
                arrivals.push(Arrival { at: 0, flow: Some(flow) });
            }
        });
        if !packets.is_empty() {
            let mut jobs = Jobs::new();
            match tables.inbound(shared, &mut packets, &mut jobs) {
                None if flights.is_empty(Direction::Decrypt) => {
                    // The next burst may continue the superframe that a full one began.
                    stack.deliver(shared, &packets, read == most);
                    stack.deliver_emerged(shared, tables, read == most);
                    let authentic = packets.iter().zip(&arrivals).filter(|(packet, _)| is_authentic(packet));
                    let mut all = 0;
                    for (_, arrival) in authentic {
                        all += 1;
                        count_authentic(flows, arrival.flow);
                    }
                    shared.counters.fast_in.fetch_add(all, Relaxed);
                }
                locked => {
                    // Packets that wait are copied, because the ring needs its frames back.
                    let begun = flights.begin().and_then(|mut burst| {
                        BegunBurst::copied(&mut packets, &arrivals, Origin::Ring, &mut burst)
                            .map(|begun| (begun, burst))
                    });
                    match (locked, begun) {
                        (Some(locked), Some((begun, burst))) => {
                            flights.submit(burst, Direction::Decrypt, begun, jobs, &locked.xfrm);
                            locked.finish();
                        }
                        (None, Some((begun, burst))) => flights.enqueue(burst, Direction::Decrypt, begun),
                        (locked, None) => drop(locked),
                    }
                }
            }
        }
        drop(packets);
        // The first packet of a burst stands for all.
        let first = arrivals.first().and_then(|first| first.flow);
        if let Some(activity) = first.and_then(|flow| flows.get_mut(&flow)) {
            activity.any = true;
        }
        ring.release(ring.next());
        if read < most {
            self.flush_superframe();
        }
        // A full read means there may be more.
        if read == most { BURST } else { read }
    }

    /// Waits until a burst can be begun, where all are with a core.
    fn make_room(&mut self) {
        while !self.flights.has_room() {
            if !self.complete() && self.flights.arm() && !self.complete() {
                ready::<1>(core::iter::once(self.post.waker.as_fd()), TICK);
                self.post.waker.drain();
            }
        }
    }
}
