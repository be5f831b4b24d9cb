//! The transmitter of signed packets.
//!
//! The stack finds the route and link header of a packet. For a busy connection it is asked every
//! [`FRESH`](sealane_packets::fast_path::FRESH); the packets in between bypass the stack with the link header that was
//! learnt.

use super::counters::Counters;
use sealane_engine_ao::Ends;
use sealane_packets::fast_path::{LearntLink, MAX_LINKS};
use sealane_packets::frames::Frames;
use sealane_packets::raw::Raw;
use sealane_packets::ring::LINK_HEADER_LEN;
use sealane_sys::marks::Marks;
use sealane_wire::ip::Family;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The fields of an IP header that rules may change on the way out: traffic class and hop limit.
type MutableFields = [u8; 2];

/// The link headers of one device, learnt from its ring.
pub(super) struct Links {
    frames: Frames,
    by_ends: HashMap<Ends, LearntLink<MutableFields, [u8; LINK_HEADER_LEN]>>,
}

impl Links {
    /// Opens a socket of the device; no link header is known yet.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(device: u32, marks: Marks) -> io::Result<Self> {
        Ok(Links { frames: Frames::open(device, marks)?, by_ends: HashMap::new() })
    }

    /// Learns the link header from a frame of ours, if the packet left as it was sent. Otherwise rules translate or
    /// mark it, and every packet has to pass them.
    pub(super) fn learn(&mut self, packet: &[u8], header: [u8; LINK_HEADER_LEN]) {
        if let Some((ends, fields)) = outgoing(packet)
            && let Some(link) = self.by_ends.get_mut(&ends)
            && link.is_answered_by(&fields)
        {
            link.learn(header);
        }
    }

    /// Forgets link headers that have not been used for a while.
    pub(super) fn forget(&mut self) {
        let now = Instant::now();
        self.by_ends.retain(|_, link| !link.is_stale(now));
    }
}

/// The sockets by which a worker sends.
pub(super) struct Transmitter {
    raw: Raw,
}

impl Transmitter {
    /// Opens the transmitter's sockets in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(marks: Marks) -> io::Result<Self> {
        Ok(Transmitter { raw: Raw::open(marks)? })
    }

    /// Sends pieces of one packet in order. `only` is the only device by which they may leave, 0 for any. `links` are
    /// the link headers of the device that the stack chose for the packet, if it has a ring. Pieces that cannot be sent
    /// are lost, and TCP repeats them.
    pub(super) fn send(&self, counters: &Counters, links: Option<&mut Links>, only: u32, packets: &[&[u8]]) {
        let Some((first, others)) = packets.split_first() else { return };
        let refused = |refused: usize| counters.refused.fetch_add(refused as u64, Relaxed);
        let Some((links, (ends, fields))) = links.and_then(|links| Some((links, outgoing(first)?))) else {
            refused(self.raw.send(packets, only, false).refused);
            return;
        };
        let now = Instant::now();
        let link = links.by_ends.get(&ends);
        if let Some(link) = link.filter(|link| !link.is_stale(now)) {
            let sent = match link.header() {
                Some(header) => {
                    let sent = links.frames.send(header, packets);
                    counters.fast_out.fetch_add(sent.taken as u64, Relaxed);
                    sent
                }
                None => self.raw.send(packets, only, false),
            };
            refused(sent.refused);
            return;
        }
        // The old header is not used any more while the new one is asked for.
        if links.by_ends.len() < MAX_LINKS || link.is_some() {
            links.by_ends.insert(ends, LearntLink::new(Some(fields), now));
        }
        refused(self.raw.send(&[first], only, true).refused + self.raw.send(others, only, false).refused);
    }
}

/// The ends and changeable fields of an outbound packet, of which only the front may be given.
fn outgoing(packet: &[u8]) -> Option<(Ends, MutableFields)> {
    let (family, fields) = match packet.first()? >> 4 {
        4 => (Family::V4, [*packet.get(1)?, *packet.get(8)?]),
        6 => (Family::V6, [packet[0] << 4 | *packet.get(1)? >> 4, *packet.get(7)?]),
        _ => return None,
    };
    Some((Ends::sent_front(family, packet)?, fields))
}
