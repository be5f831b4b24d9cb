//! Receiving: payloads in the order of their numbers, as far as they come within the window, and the packets in them.

use super::config::{CC_HEADER_LEN, Config, HEADER_LEN, NS_IN_US, Origin, SUBTYPE_BASIC, SUBTYPE_CC};
use super::congestion::header::KNOWN_FLAGS;
use crate::drop::DropReason;
use arrayvec::ArrayVec;
use sealane_wire::ip::{V4_HEADER_LEN, V6_HEADER_LEN, be16};
use std::collections::VecDeque;

/// The most bytes of payloads that wait for earlier ones. Linux has no such limit: 65,535 payloads of any length.
pub const MAX_WAITING_LEN: usize = 16 << 20;

/// Bytes of an IPv6 header up to the end of its length; IPv4's comes earlier.
const LENGTH_END: usize = 6;

/// A packet that came out of payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emerged {
    /// As many bytes as its header says. Nothing else of it is checked.
    pub packet: Vec<u8>,
    /// The origin of the payload in which it began.
    pub origin: Origin,
}

/// The packets and faults that came out of payloads.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Packets, in their order.
    pub packets: Vec<Emerged>,
    /// Faults, each to be counted.
    pub faults: Vec<DropReason>,
}

impl Received {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.faults.is_empty()
    }
}

/// A payload that waits for earlier ones.
struct Waiting {
    payload: Vec<u8>,
    origin: Origin,
}

struct Slot {
    /// `None` if it has not come.
    waiting: Option<Waiting>,
    /// When those before it are given up.
    drop_ns: u64,
}

/// A packet of which a part has come.
struct Partial {
    bytes: Vec<u8>,
    /// The length of the whole packet.
    len: usize,
    origin: Origin,
    /// When it is given up.
    drop_ns: u64,
}

/// The receiving end of an association.
pub struct Receiver {
    reorder_pkts: u64,
    drop_after_ns: u64,
    /// The number that comes next; `None` before the first.
    next: Option<u64>,
    /// Payloads that came early: the first slot is for the number after the next one, and the last slot is never empty.
    slots: VecDeque<Slot>,
    waiting_len: usize,
    partial: Option<Partial>,
    /// The first bytes of a packet, where too few have come to know its length.
    runt: ArrayVec<u8, LENGTH_END>,
    /// The number of the payload with the rest of the packet that has begun.
    rest: u64,
}

impl Receiver {
    /// One that nothing has come to.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Receiver {
            reorder_pkts: config.reorder_pkts.into(),
            drop_after_ns: u64::from(config.drop_time_us) * NS_IN_US,
            next: None,
            slots: VecDeque::new(),
            waiting_len: 0,
            partial: None,
            runt: ArrayVec::new(),
            rest: 0,
        }
    }

    /// Takes the payload of the authentic outer packet with this sequence number, never the same twice.
    pub fn input(&mut self, number: u64, payload: &[u8], origin: &Origin, now_ns: u64, to: &mut Received) {
        if self.reorder_pkts == 0 {
            return self.ordered(number, payload, origin, now_ns, to);
        }
        let next = *self.next.get_or_insert(number);
        match number.checked_sub(next) {
            // It has been given up.
            None => {}
            Some(0) => {
                self.ordered(number, payload, origin, now_ns, to);
                self.advance(now_ns, to);
            }
            Some(_) => {
                // What leaves the window makes room.
                if let Some(first) = self.shift(number.saturating_sub(self.reorder_pkts), now_ns, to) {
                    self.deliver(first, now_ns, to);
                    self.advance(now_ns, to);
                }
                if self.next == Some(number) {
                    self.ordered(number, payload, origin, now_ns, to);
                    self.advance(now_ns, to);
                } else if self.waiting_len + payload.len() > MAX_WAITING_LEN {
                    to.faults.push(DropReason::IptfsFull);
                } else {
                    self.put(number, payload, origin, now_ns);
                }
            }
        }
    }

    /// When [`Self::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let first = self.slots.front().map(|slot| slot.drop_ns);
        self.partial.as_ref().map(|partial| partial.drop_ns).into_iter().chain(first).min()
    }

    /// Gives up what has not come in time.
    pub fn handle_timeout(&mut self, now_ns: u64, to: &mut Received) {
        if self.partial.as_ref().is_some_and(|partial| partial.drop_ns <= now_ns) {
            self.partial = None;
        }
        while self.slots.front().is_some_and(|slot| slot.drop_ns <= now_ns) {
            // Its rest is what has not come.
            self.partial = None;
            self.advance(now_ns, to);
        }
    }

    /// The next number is done with, and so are those after it that have come.
    fn advance(&mut self, now_ns: u64, to: &mut Received) {
        loop {
            self.next = self.next.map(|next| next.saturating_add(1));
            match self.slots.pop_front() {
                Some(Slot { waiting: Some(waiting), .. }) => self.deliver(waiting, now_ns, to),
                _ => return,
            }
        }
    }

    /// Moves the window so that `least` is the next number, if it is not so far yet. What was waiting before that is
    /// delivered; returns the payload of that number, if it was waiting.
    fn shift(&mut self, least: u64, now_ns: u64, to: &mut Received) -> Option<Waiting> {
        let mut first = None;
        while self.next.is_some_and(|next| next < least) {
            if let Some(waiting) = first.take() {
                self.deliver(waiting, now_ns, to);
            }
            match self.slots.pop_front() {
                Some(slot) => {
                    self.next = self.next.map(|next| next + 1);
                    first = slot.waiting;
                }
                None => self.next = Some(least),
            }
        }
        first
    }

    /// Keeps a payload until those before it have come, or are given up.
    fn put(&mut self, number: u64, payload: &[u8], origin: &Origin, now_ns: u64) {
        let index = (number - self.next.unwrap_or(number) - 1) as usize;
        let drop_ns = now_ns.saturating_add(self.drop_after_ns);
        while self.slots.len() <= index {
            self.slots.push_back(Slot { waiting: None, drop_ns });
        }
        let slot = &mut self.slots[index];
        if slot.waiting.is_none() {
            self.waiting_len += payload.len();
            slot.waiting = Some(Waiting { payload: payload.to_vec(), origin: origin.clone() });
        }
    }

    /// Delivers the payload of the next number.
    fn deliver(&mut self, waiting: Waiting, now_ns: u64, to: &mut Received) {
        self.waiting_len -= waiting.payload.len();
        let number = self.next.unwrap_or_default();
        self.ordered(number, &waiting.payload, &waiting.origin, now_ns, to);
    }

    /// Takes the packets out of a payload (`iptfs_input_ordered`).
    fn ordered(&mut self, number: u64, payload: &[u8], origin: &Origin, now_ns: u64, to: &mut Received) {
        let Some([subtype, flags, offset @ ..]) = payload.first_chunk::<HEADER_LEN>() else {
            return to.faults.push(DropReason::IptfsBlock);
        };
        let (at, known) = match *subtype {
            SUBTYPE_BASIC => (HEADER_LEN, 0),
            // Its fields are for a sender that controls congestion.
            SUBTYPE_CC if payload.len() < CC_HEADER_LEN => return to.faults.push(DropReason::IptfsBlock),
            SUBTYPE_CC => (CC_HEADER_LEN, KNOWN_FLAGS),
            _ => return to.faults.push(DropReason::IptfsHeader),
        };
        if *flags & !known != 0 {
            return to.faults.push(DropReason::IptfsHeader);
        }
        let (blocks, offset) = (&payload[at..], usize::from(u16::from_be_bytes(*offset)));
        let begun = self.partial.is_some() || !self.runt.is_empty();
        let at = if begun {
            self.go_on(number, blocks, offset, now_ns, origin, to)
        } else {
            // The rest of a packet whose beginning has not come.
            offset.min(blocks.len())
        };
        self.begin(number, &blocks[at..], origin, now_ns, to);
    }

    /// Goes on with the packet that has begun (`iptfs_reassem_cont`). Returns how many bytes are done with.
    fn go_on(
        &mut self,
        number: u64,
        blocks: &[u8],
        offset: usize,
        now_ns: u64,
        origin: &Origin,
        to: &mut Received,
    ) -> usize {
        let (all, skipped) = (blocks.len(), offset.min(blocks.len()));
        if number < self.rest {
            // Only without a window.
            return all;
        }
        if number == self.rest && offset == 0 && blocks.first().is_none_or(|byte| byte >> 4 == 0) {
            // Nothing but padding may come in between (RFC 9347 section 2.2.3).
            self.rest = self.rest.saturating_add(1);
            return all;
        }
        let piece = &blocks[..skipped];
        if number > self.rest || self.add(piece, offset, now_ns, origin).is_none() {
            to.faults.push(DropReason::IptfsFragment);
            self.partial = None;
            self.runt.clear();
            return skipped;
        }
        self.rest = self.rest.saturating_add(1);
        if let Some(Partial { bytes, origin, .. }) = self.partial.take_if(|partial| partial.bytes.len() == partial.len)
        {
            to.packets.push(Emerged { packet: bytes, origin });
        }
        skipped
    }

    /// Adds a piece to the packet that has begun, of which `offset` bytes are still to come as the sender says. `None` if
    /// that cannot be.
    fn add(&mut self, mut piece: &[u8], mut offset: usize, now_ns: u64, origin: &Origin) -> Option<()> {
        if !self.runt.is_empty() {
            let (head, others) = piece.split_at_checked(LENGTH_END - self.runt.len())?;
            let mut bytes = self.runt.to_vec();
            bytes.extend_from_slice(head);
            self.runt.clear();
            let (len, header_len) = lengths(&bytes);
            if header_len < V4_HEADER_LEN || len < header_len {
                return None;
            }
            offset -= head.len();
            piece = others;
            let drop_ns = now_ns.saturating_add(self.drop_after_ns);
            self.partial = Some(Partial { bytes, len, origin: origin.clone(), drop_ns });
        }
        let partial = self.partial.as_mut()?;
        let missing = partial.len - partial.bytes.len();
        if offset < missing {
            return None;
        }
        partial.bytes.extend_from_slice(&piece[..piece.len().min(missing)]);
        Some(())
    }

    /// Takes packets from where one begins (`__input_process_payload`).
    fn begin(&mut self, number: u64, mut blocks: &[u8], origin: &Origin, now_ns: u64, to: &mut Received) {
        while let Some(first) = blocks.first() {
            let known_from = match first >> 4 {
                // Padding, up to the end.
                0 => return,
                4 => 4,
                6 => LENGTH_END,
                _ => return to.faults.push(DropReason::IptfsBlock),
            };
            if blocks.len() < known_from {
                self.runt.clear();
                self.runt.extend(blocks.iter().copied());
                self.rest = number.saturating_add(1);
                return;
            }
            let (len, header_len) = lengths(blocks);
            if header_len < V4_HEADER_LEN || len < header_len {
                return to.faults.push(DropReason::IptfsHeader);
            }
            let Some((packet, others)) = blocks.split_at_checked(len) else {
                let mut bytes = Vec::with_capacity(len);
                bytes.extend_from_slice(blocks);
                let drop_ns = now_ns.saturating_add(self.drop_after_ns);
                self.partial = Some(Partial { bytes, len, origin: origin.clone(), drop_ns });
                self.rest = number.saturating_add(1);
                return;
            };
            to.packets.push(Emerged { packet: packet.to_vec(), origin: origin.clone() });
            blocks = others;
        }
    }
}

/// The lengths of a packet and of its header, by its first bytes.
fn lengths(packet: &[u8]) -> (usize, usize) {
    if packet[0] >> 4 == 4 {
        (be16(packet, 2).into(), usize::from(packet[0] & 15) * 4)
    } else {
        (usize::from(be16(packet, 4)) + V6_HEADER_LEN, V6_HEADER_LEN)
    }
}
