//! Opened packets on their way into the TUN device: segments that follow one another go in together (GRO).
//!
//! A superframe may begin in one burst and end in a later one, as the sender's superframes are not those of its tunnel,
//! so the last one may stay open while more packets are at hand. Each that goes in costs the stack the same, wakes the
//! reader and is acknowledged.

use crate::counters::Counters;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::BURST;
use sealane_net_ao::segment::join::{Join, MAX_LEN, Pushed};
use sealane_packets::incoming::By;
use sealane_packets::tap::Headers;
use sealane_packets::tun::Tun;
use sealane_wire::ip::tcp_checksum_ok;
use sealane_wire::tcp::Segment;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// Connections whose superframes grow at a time, as in the kernel (`MAX_GRO_SKBS`).
const MAX_OPEN: usize = 8;

/// Takes packets for the stack.
pub(crate) trait Sink {
    /// Takes a packet that comes in by a device, or by our own: its headers, then the pieces of its payload.
    ///
    /// # Errors
    /// The stack's; the packet is lost.
    fn give<'a>(
        &mut self,
        by: Option<By>,
        headers: Headers<'a>,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()>;
}

/// All packets come in by the TUN device.
impl Sink for Tun {
    fn give<'a>(
        &mut self,
        _: Option<By>,
        headers: Headers<'a>,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()> {
        Tun::give(self, headers, pieces)
    }
}

/// A superframe in the making.
struct OpenSuperframe<'p> {
    join: Join,
    by: Option<By>,
    /// Payload from earlier bursts in bytes, which lies in [`UnfinishedSuperframe`].
    kept: usize,
    payloads: ArrayVec<&'p [u8], BURST>,
}

/// A superframe that earlier bursts began.
pub(crate) struct UnfinishedSuperframe {
    join: Option<(Join, Option<By>)>,
    payload: Box<[u8]>,
    /// Length of the payload in bytes.
    len: usize,
}

impl UnfinishedSuperframe {
    /// Starts without one.
    pub(crate) fn new() -> Self {
        UnfinishedSuperframe { join: None, payload: vec![0; MAX_LEN].into(), len: 0 }
    }

    /// Whether there is one.
    #[cfg(test)]
    fn is_some(&self) -> bool {
        self.join.is_some()
    }

    /// Gives the unfinished superframe to the stack as it is.
    pub(crate) fn give(&mut self, tun: &mut impl Sink, counters: &Counters) {
        if let Some((join, by)) = self.join.take()
            && give(OpenSuperframe { join, by, kept: self.len, payloads: ArrayVec::new() }, &self.payload, tun).is_err()
        {
            counters.refused_in.fetch_add(1, Relaxed);
        }
    }
}

/// The superframes of one burst.
pub(crate) struct Joins<'k, 'p> {
    before: &'k mut UnfinishedSuperframe,
    open: ArrayVec<OpenSuperframe<'p>, MAX_OPEN>,
}

impl<'k, 'p> Joins<'k, 'p> {
    /// Starts a burst. The first superframe may be one that earlier bursts began.
    pub(crate) fn new(before: &'k mut UnfinishedSuperframe) -> Self {
        let begun = |(join, by)| OpenSuperframe { join, by, kept: before.len, payloads: ArrayVec::new() };
        let begun = before.join.take().map(begun);
        Joins { before, open: begun.into_iter().collect() }
    }

    /// Takes a packet that comes in by a device, or by our own, and gives superframes to the stack that are complete now.
    ///
    /// # Errors
    /// The stack's; packets are lost.
    pub(crate) fn push(&mut self, packet: &'p [u8], by: Option<By>, tun: &mut impl Sink) -> io::Result<()> {
        // The peer may have sealed a wrong checksum, which nobody would check any more once the segment is joined.
        let Ok(segment) = Segment::parse(packet) else { return alone(packet, by, tun) };
        let at = segment.layout();
        let good = at.payload_len() > 0 && tcp_checksum_ok(packet, at);
        let mut done = Ok(());
        if let Some(i) = self.open.iter().position(|open| open.join.is_of(&segment)) {
            let open = &mut self.open[i];
            let fits = good && open.by == by && !open.payloads.is_full();
            let pushed = if fits { open.join.push(&segment) } else { Pushed::No };
            if pushed != Pushed::No {
                open.payloads.push(&packet[at.payload_at..at.end]);
            }
            match pushed {
                Pushed::Yes => return Ok(()),
                Pushed::Last => return give(self.open.remove(i), &self.before.payload, tun),
                Pushed::No => done = give(self.open.remove(i), &self.before.payload, tun),
            }
        }
        if good && let Some(join) = Join::start(&segment) {
            if self.open.is_full() {
                done = done.and(give(self.open.remove(0), &self.before.payload, tun));
            }
            let payloads = core::iter::once(&packet[at.payload_at..at.end]).collect();
            self.open.push(OpenSuperframe { join, by, kept: 0, payloads });
            return done;
        }
        done.and(alone(packet, by, tun))
    }

    /// Gives the rest to the stack. The superframe begun last stays open if more is about to follow and this burst had
    /// a part of it.
    ///
    /// # Errors
    /// The stack's.
    pub(crate) fn finish(mut self, more: bool, tun: &mut impl Sink) -> io::Result<()> {
        let grows = more && self.open.last().is_some_and(|open| !open.payloads.is_empty());
        let last = if grows { self.open.pop() } else { None };
        let mut done = Ok(());
        for open in self.open {
            done = done.and(give(open, &self.before.payload, tun));
        }
        if let Some(OpenSuperframe { join, by, kept, payloads }) = last {
            let mut len = kept;
            for payload in payloads {
                self.before.payload[len..len + payload.len()].copy_from_slice(payload);
                len += payload.len();
            }
            (self.before.join, self.before.len) = (Some((join, by)), len);
        }
        done
    }
}

/// Gives a packet as it is.
fn alone(packet: &[u8], by: Option<By>, tun: &mut impl Sink) -> io::Result<()> {
    let headers = Headers { bytes: packet, tcp_at: 0, partial_checksum: false, gso_size: None };
    tun.give(by, headers, core::iter::empty())
}

fn give(mut open: OpenSuperframe<'_>, before: &[u8], tun: &mut impl Sink) -> io::Result<()> {
    let (count, size, tcp_at) = (open.join.count(), open.join.gso_size(), open.join.layout().tcp_at);
    let headers = Headers {
        bytes: open.join.header(),
        tcp_at,
        partial_checksum: true,
        gso_size: (count > 1).then_some(size as u16),
    };
    let before = (open.kept > 0).then(|| &before[..open.kept]);
    tun.give(open.by, headers, before.into_iter().chain(open.payloads))
}

#[cfg(test)]
mod tests;
