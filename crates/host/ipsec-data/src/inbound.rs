//! From the wire to the TUN device.

use crate::flight::{Arrival, BegunBurst, InboundDone, Origin};
use crate::sockets::SocketId;
use crate::tables::{Tables, is_authentic};
use crate::worker::Worker;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::BURST;
use sealane_engine_xfrm::device::crypto::Direction;
use sealane_net_ipsec::burst::Jobs;
use sealane_net_ipsec::open::Inbound;
use sealane_rules::ingress::EspFlow;
use std::io;

impl Worker {
    /// Opens a burst of a socket and gives it to the stack. Returns whether there may be more.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn inbound(&mut self, socket: SocketId) -> io::Result<bool> {
        self.inbound_by(|Worker { shared, rx, tx, .. }, buffer, packets, arrivals| {
            rx.datagrams(shared, tx.ports(), socket, buffer, packets, arrivals)
        })
    }

    /// Serves connections for ESP in TCP, opens a burst of them and gives it to the stack. Returns whether there may be more.
    ///
    /// # Errors
    /// None of a connection.
    pub(crate) fn inbound_in_streams(&mut self) -> io::Result<bool> {
        self.inbound_by(|Worker { shared, streams, .. }, buffer, packets, arrivals| {
            let Some(reader) = streams else { return Ok(false) };
            let (more, drops) = shared.streams.receive(reader, buffer, packets, arrivals);
            if !drops.is_empty() {
                Tables::lost(shared, &drops);
            }
            Ok(more)
        })
    }

    /// Opens a burst that `read` fills, and gives it to the stack.
    fn inbound_by(
        &mut self,
        read: impl for<'b> FnOnce(
            &mut Self,
            &'b mut [u8],
            &mut ArrayVec<Inbound<'b>, BURST>,
            &mut ArrayVec<Arrival, BURST>,
        ) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let Some(mut burst) = self.flights.begin() else {
            self.flush_superframe();
            return Ok(true);
        };
        let mut packets: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
        let mut arrivals: ArrayVec<Arrival, BURST> = ArrayVec::new();
        let more = read(self, &mut burst.buffer, &mut packets, &mut arrivals)?;
        let Worker { shared, tables, flights, .. } = self;
        if packets.is_empty() {
            drop(packets);
            flights.put(burst);
            if !more {
                self.flush_superframe();
            }
            return Ok(more);
        }
        let mut jobs = Jobs::new();
        let origin = Origin::Socket;
        if let Some(locked) = tables.inbound(shared, &mut packets, &mut jobs) {
            let begun = BegunBurst::inbound(&mut packets, &arrivals, origin);
            drop(packets);
            flights.submit(burst, Direction::Decrypt, begun, jobs, &locked.xfrm);
            locked.finish();
        } else if flights.is_empty(Direction::Decrypt) {
            self.deliver(&packets, arrivals.iter().map(|arrival| arrival.flow), origin, more);
            drop(packets);
            self.flights.put(burst);
        } else {
            let begun = BegunBurst::inbound(&mut packets, &arrivals, origin);
            drop(packets);
            flights.enqueue(burst, Direction::Decrypt, begun);
        }
        Ok(more)
    }

    /// Ends a burst that a core has opened.
    pub(crate) fn complete_inbound(&mut self, mut done: InboundDone, origin: Origin) {
        let flows = done.flows();
        let (mut packets, jobs, statuses) = done.parts();
        self.tables.inbound_end(&self.shared, &mut packets, jobs, statuses);
        let more = !self.flights.is_empty(Direction::Decrypt);
        self.deliver(&packets, flows.into_iter(), origin, more);
        drop(packets);
        self.flights.put(done.burst);
    }

    /// Gives an opened burst to the stack. Flows that are busy earn the ring.
    fn deliver(
        &mut self,
        packets: &[Inbound<'_>],
        flows: impl Iterator<Item = Option<EspFlow>>,
        origin: Origin,
        more: bool,
    ) {
        let Worker { shared, tables, rx, stack, .. } = self;
        let outers = packets.iter().filter(|packet| is_authentic(packet)).filter_map(|packet| packet.outer.as_ref());
        outers.filter(|outer| outer.tcp).for_each(|outer| shared.streams.prove(outer));
        stack.deliver(shared, packets, more);
        stack.deliver_emerged(shared, tables, more);
        let Some(fast) = &mut rx.fast else { return };
        let authentic = packets.iter().zip(flows).filter(|(packet, _)| is_authentic(packet));
        for flow in authentic.filter_map(|(_, flow)| flow) {
            match origin {
                Origin::Socket => fast.count(flow, tables.routes.now()),
                Origin::Ring => fast.count_authentic(flow, &shared.counters),
            }
        }
    }

    /// Gives to the stack the superframe that grows, unless bursts that may continue it are with a core: the last of
    /// those does it.
    pub(crate) fn flush_superframe(&mut self) {
        if self.flights.is_empty(Direction::Decrypt) {
            self.stack.flush(&self.shared);
        }
    }
}
