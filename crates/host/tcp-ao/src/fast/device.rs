//! One device of the fast path.

use super::join::{Delivered, Joins};
use super::{Activity, Pass, Way};
use crate::path::{Counters, Shared};
use arrayvec::ArrayVec;
use sealane_engine_ao::{Ends, Inbound, Kernel, Verdict};
use sealane_net::ao::mac::BURST;
use sealane_net::ao::segment::ChecksumState;
use sealane_net::wire::ip::Family;
use sealane_net::wire::tcp::Segment;
use sealane_sys::frames::Frames;
use sealane_sys::link::{self, Facts};
use sealane_sys::nft::Marks;
use sealane_sys::raw::Raw;
use sealane_sys::ring::{LINK_HEADER_LEN, Ring};
use sealane_sys::tap::Tap;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a link header is good: then the stack is asked again, whose routes and neighbours may have changed.
const FRESH: Duration = Duration::from_millis(100);
/// Connections whose link header is remembered.
const MAX_LINKS: usize = 4096;

/// What is known of the way to a peer.
#[derive(Debug, Clone, Copy)]
struct Link {
    /// The link header, if it was seen.
    header: Option<[u8; LINK_HEADER_LEN]>,
    /// When it was asked for.
    asked: Instant,
    /// Fields of the IP header that somebody may change on the way out: traffic class and hop limit.
    fields: [u8; 2],
}

/// Ring, TAP device and socket of one device.
pub(super) struct Device {
    pub(super) ring: Ring,
    tap: Tap,
    frames: Frames,
    facts: Facts,
    joins: Joins,
    links: HashMap<Ends, Link>,
    /// Whether a packet was too long for the ring.
    truncated: bool,
    /// Whether the device went down, or away.
    failed: bool,
    /// Why nothing can be given back any more.
    broken: Option<String>,
}

impl Device {
    pub(super) fn open(index: u32, facts: Facts, marks: Marks) -> io::Result<Self> {
        Ok(Device {
            ring: Ring::open(index, facts.mtu, marks)?,
            tap: Tap::open(index, &facts, marks)?,
            frames: Frames::open(index, marks)?,
            facts,
            joins: Joins::default(),
            links: HashMap::new(),
            truncated: false,
            failed: false,
            broken: None,
        })
    }

    /// Forgets what is in the ring.
    pub(super) fn skip(&mut self) {
        while self.ring.read(BURST, |_| {}) > 0 {
            self.ring.release(self.ring.next());
        }
    }

    /// Sends pieces of one superframe.
    pub(super) fn send(&mut self, counters: &Counters, raw: &Raw, only: u32, packets: &[&[u8]]) {
        let Some((ends, fields)) = packets.first().and_then(|p| outgoing(p)) else { return };
        let link = self.links.get(&ends);
        if let Some(link) = link.filter(|l| l.asked.elapsed() < FRESH) {
            let sent = match &link.header {
                Some(header) => {
                    let sent = self.frames.send(header, packets);
                    counters.fast_out.fetch_add(sent.taken as u64, Ordering::Relaxed);
                    sent
                }
                None => raw.send(packets, only, false),
            };
            counters.refused.fetch_add(sent.refused as u64, Ordering::Relaxed);
            return;
        }
        // The old header is not used any more while the new one is asked for: a new answer, or none.
        if self.links.len() < MAX_LINKS || link.is_some() {
            self.links.insert(ends, Link { header: None, asked: Instant::now(), fields });
        }
        let refused = raw.send(&packets[..1], only, true).refused + raw.send(&packets[1..], only, false).refused;
        counters.refused.fetch_add(refused as u64, Ordering::Relaxed);
    }

    /// Judges what is in the ring, of connections that take this way.
    pub(super) fn serve(
        &mut self,
        shared: &Shared,
        kernel: &mut dyn Kernel,
        ways: &mut HashMap<Way, Activity>,
    ) -> Pass {
        let mut pass = Pass::default();
        loop {
            let mut batch: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
            let mut numbers: ArrayVec<u64, BURST> = ArrayVec::new();
            let (links, truncated, mtu) = (&mut self.links, &mut self.truncated, self.facts.mtu as usize);
            let device = self.ring.device();
            let read = self.ring.read(BURST, |frame| {
                *truncated |= frame.truncated;
                if frame.leaves {
                    return learn(links, frame.packet(), frame.link);
                }
                let Ok(segment) = Segment::parse(frame.packet()) else { return };
                if ways.contains_key(&Way::of(device, &segment)) {
                    let checksum =
                        if frame.partial_checksum { ChecksumState::Partial } else { ChecksumState::Complete };
                    numbers.push(frame.number);
                    let packet = frame.into_packet();
                    batch.push(Inbound { packet, checksum, device, mtu, verdict: Verdict::Pass });
                }
            });
            pass.frames += read;
            let mut delivered: ArrayVec<Delivered, BURST> = ArrayVec::new();
            if !batch.is_empty() {
                let mut engine = shared.engine.lock();
                engine.input(&mut batch, kernel, shared.now_ms());
                if engine.dirty() {
                    shared.save(&mut engine);
                }
                drop(engine);
                for (p, frame) in batch.iter().zip(numbers) {
                    // Anything but an authentic segment of such a connection goes no further.
                    if let Verdict::Deliver(from, at) = p.verdict {
                        let partial_checksum = p.checksum == ChecksumState::Partial;
                        delivered.push(Delivered { frame, from, end: from + at.end, partial_checksum });
                    }
                }
            }
            drop(batch);
            shared.counters.fast_in.fetch_add(delivered.len() as u64, Ordering::Relaxed);
            for one in &delivered {
                let done = self.joins.push(one, &self.ring, &mut self.tap, |segment| {
                    if let Some(activity) = ways.get_mut(&Way::of(device, segment)) {
                        activity.deliver(segment);
                    }
                });
                given(done, &mut self.broken, &shared.counters);
            }
            let keep = self.joins.oldest().unwrap_or_else(|| self.ring.next());
            self.ring.release(keep);
            if read < BURST {
                break;
            }
        }
        given(self.joins.look(&self.ring, &mut self.tap), &mut self.broken, &shared.counters);
        let keep = self.joins.oldest().unwrap_or_else(|| self.ring.next());
        self.ring.release(keep);
        pass.open = !self.joins.is_empty();
        if pass.frames == 0 && !pass.open {
            // Woken for nothing: an error would wake us again and again.
            self.failed |= self.ring.failed();
        }
        pass
    }

    /// The ring, while it can be waited for.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        (!self.failed).then(|| self.ring.as_fd())
    }

    /// Why nothing can be given back any more.
    pub(super) fn broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    /// Forgets link headers that have not been used for a while, and looks what has changed of the device: whether it is
    /// of no use any more, because it is down or gone, packets do not fit into the ring, or it has another address.
    pub(super) fn unfit(&mut self) -> bool {
        self.links.retain(|_, link| link.asked.elapsed() < FRESH);
        let changed = link::facts(self.ring.device()).is_ok_and(|now| {
            self.facts.mtu = now.mtu;
            now.mtu > self.ring.max_packet() || now.address != self.facts.address
        });
        changed || self.failed || self.truncated || self.ring.failed()
    }
}

/// Counts what the stack did not take, and notes an error that will not pass.
fn given(done: io::Result<()>, broken: &mut Option<String>, counters: &Counters) {
    if let Err(e) = done {
        counters.refused.fetch_add(1, Ordering::Relaxed);
        if !matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR)) {
            *broken = Some(format!("the stack takes nothing back: {e}"));
        }
    }
}

/// A packet of ours: whose it is, and the fields of its IP header that may change on the way out.
fn outgoing(packet: &[u8]) -> Option<(Ends, [u8; 2])> {
    // The ring keeps its front only.
    let (family, fields) = match packet.first()? >> 4 {
        4 => (Family::V4, [*packet.get(1)?, *packet.get(8)?]),
        6 => (Family::V6, [packet[0] << 4 | *packet.get(1)? >> 4, *packet.get(7)?]),
        _ => return None,
    };
    Some((Ends::sent_front(family, packet)?, fields))
}

/// Learns the link header from a frame of ours, if the packet is as we sent it: rules may translate or mark it, and
/// then every packet has to pass them.
fn learn(links: &mut HashMap<Ends, Link>, packet: &[u8], header: [u8; LINK_HEADER_LEN]) {
    if let Some((ends, fields)) = outgoing(packet)
        && let Some(link) = links.get_mut(&ends)
        && link.fields == fields
    {
        link.header = Some(header);
    }
}
