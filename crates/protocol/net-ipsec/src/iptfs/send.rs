//! Sending: packets wait a moment for others, and leave together or in pieces.

use super::config::{CC_HEADER_LEN, Config, HEADER_LEN, NS_IN_US, SUBTYPE_BASIC};
use super::congestion::header::CcHeader;
use crate::drop::DropReason;
use crate::id::{MAX_DEPTH, SaId};
use arrayvec::ArrayVec;
use sealane_wire::ip::{Family, V6_HEADER_LEN};
use sealane_wire::walk::{ECN_MASK, ds_field, set_ds_field};
use std::collections::VecDeque;

/// From this part of the queue on, in percent, packets are marked as having met congestion.
const ECN_PERCENT: u64 = 95;

/// The least bytes of a packet that begins where there is no room for all of it: so many have every header whole.
const LEAST_BEGUN: usize = V6_HEADER_LEN;

/// Room for the packets of a burst. More than that grows, and more than a little is given back when nothing waits.
const BURST_LEN: usize = 80 << 10;
const KEPT_LEN: usize = 4 << 10;

/// The sending end of an association.
#[derive(Default)]
pub struct Sender {
    /// The bytes of all packets that wait.
    bytes: VecDeque<u8>,
    /// The lengths of these packets; those of the first one that have left count.
    lens: VecDeque<u32>,
    /// The number of packets at its front that leave now.
    due: usize,
    /// The bytes of the first one that have left.
    left: usize,
    /// When the others leave.
    timer_ns: Option<u64>,
    /// The associations around this one, innermost first, and the MTU beneath it, as its last packet found them.
    pub(crate) around: ArrayVec<SaId, MAX_DEPTH>,
    pub(crate) mtu: u32,
}

impl Sender {
    /// Queues a packet.
    ///
    /// # Errors
    /// [`DropReason::IptfsQueue`] if there is no room for it.
    pub fn push(&mut self, packet: &[u8], config: &Config, now_ns: u64) -> Result<(), DropReason> {
        let len = (self.left + self.bytes.len() + packet.len()) as u64;
        if len > config.max_queue_len.into() {
            return Err(DropReason::IptfsQueue);
        }
        if self.bytes.capacity() - self.bytes.len() < packet.len() {
            self.bytes.reserve(if self.lens.is_empty() { packet.len() } else { packet.len().max(BURST_LEN) });
        }
        if len > u64::from(config.max_queue_len) * ECN_PERCENT / 100 {
            let mut marked = packet.to_vec();
            mark_congestion(&mut marked);
            self.bytes.extend(&marked);
        } else {
            self.bytes.extend(packet);
        }
        self.lens.push_back(packet.len() as u32);
        let delay_ns = u64::from(config.init_delay_us) * NS_IN_US;
        self.timer_ns.get_or_insert_with(|| now_ns.saturating_add(delay_ns));
        Ok(())
    }

    /// When [`Self::handle_timeout`] is to be called; 0 if packets wait to be taken out ([`Self::next_payload`]).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.due > 0 { Some(0) } else { self.timer_ns }
    }

    /// Lets all packets leave whose time has come.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        if self.timer_ns.is_some_and(|at| at <= now_ns) {
            self.let_all_leave();
        }
    }

    /// Lets all packets leave.
    pub(crate) fn let_all_leave(&mut self) {
        (self.due, self.timer_ns) = (self.lens.len(), None);
    }

    /// Whether its payload does not wait for packets that come now: they would add nothing to its `most` bytes, or only if they fit
    /// whole.
    pub(crate) fn is_full(&self, most: usize, dont_frag: bool) -> bool {
        dont_frag || self.due < self.lens.len() || self.bytes.len() >= most
    }

    /// Writes the payload of the next outer packet, which has room for a header and `most` bytes, at least one. It is filled where
    /// more packets leave now: what has no room for all of a packet has its beginning, and too little for that is padding, so that
    /// outer packets behind one another have one length. Returns its length; `None` if nothing leaves now. With `dont_frag` only
    /// whole packets are in it, and those that do not fit are dropped and added to `refused`.
    ///
    /// # Panics
    /// If `to` is shorter than that.
    pub fn next_payload(
        &mut self,
        most: usize,
        dont_frag: bool,
        to: &mut [u8],
        refused: &mut Vec<DropReason>,
    ) -> Option<usize> {
        while dont_frag && self.due > 0 && self.left == 0 && self.first_len() > most {
            // The path has become narrower since it was queued.
            self.drop_first();
            refused.push(DropReason::IptfsTooBig);
        }
        if self.due == 0 {
            return None;
        }
        let (header, blocks) = to.split_at_mut(HEADER_LEN);
        // Nothing of a packet that begins is before the first block.
        let offset = if self.left == 0 { 0 } else { self.first_len() - self.left };
        header[..2].copy_from_slice(&[SUBTYPE_BASIC, 0]);
        header[2..].copy_from_slice(&u16::try_from(offset).unwrap_or(u16::MAX).to_be_bytes());
        let mut at = 0;
        while self.due > 0 && at < most {
            let (rest, room) = (self.first_len() - self.left, most - at);
            if rest <= room {
                at += rest;
                self.pop();
                continue;
            }
            let begins = at > 0 && self.left == 0;
            if begins && (dont_frag || room < LEAST_BEGUN) {
                break;
            }
            self.left += room;
            at += room;
        }
        self.take(&mut blocks[..at]);
        if self.due > 0 && !dont_frag {
            blocks[at..most].fill(0);
            at = most;
        }
        Some(HEADER_LEN + at)
    }

    /// Writes the payload of the next outer packet at a constant rate, whose header and `most` bytes behind it are always used:
    /// what waits, as [`Self::next_payload`], and padding. Where nothing waits it is padding alone (RFC 9347 section 2.2.3), or
    /// `None` unless it `pads`. With `congestion` that is its header, and its length [`CC_HEADER_LEN`].
    ///
    /// # Panics
    /// If `to` is shorter than that.
    pub fn next_constant(
        &mut self,
        most: usize,
        dont_frag: bool,
        pads: bool,
        congestion: Option<&CcHeader>,
        to: &mut [u8],
        refused: &mut Vec<DropReason>,
    ) -> Option<usize> {
        self.let_all_leave();
        let longer = if congestion.is_some() { CC_HEADER_LEN - HEADER_LEN } else { 0 };
        let payload = &mut to[longer..];
        let len = match self.next_payload(most, dont_frag, payload, refused) {
            Some(len) => len,
            None if pads => {
                payload[..HEADER_LEN].copy_from_slice(&[SUBTYPE_BASIC, 0, 0, 0]);
                HEADER_LEN
            }
            None => return None,
        };
        payload[len..HEADER_LEN + most].fill(0);
        if let Some(header) = congestion
            && let Some(place) = to.first_chunk_mut::<CC_HEADER_LEN>()
        {
            let [.., high, low] = *place;
            CcHeader { offset: u16::from_be_bytes([high, low]), ..*header }.write(place);
        }
        Some(longer + HEADER_LEN + most)
    }

    /// The length of the first packet, with what has left of it.
    fn first_len(&self) -> usize {
        self.lens.front().map_or(0, |len| *len as usize)
    }

    /// The first packet has left.
    fn pop(&mut self) {
        self.lens.pop_front();
        (self.due, self.left) = (self.due - 1, 0);
    }

    /// Moves the first bytes.
    fn take(&mut self, to: &mut [u8]) {
        let (first, second) = self.bytes.as_slices();
        let (head, tail) = to.split_at_mut(to.len().min(first.len()));
        head.copy_from_slice(&first[..head.len()]);
        tail.copy_from_slice(&second[..tail.len()]);
        self.forget(to.len());
    }

    fn drop_first(&mut self) {
        let len = self.first_len();
        self.pop();
        self.forget(len);
    }

    fn forget(&mut self, len: usize) {
        self.bytes.drain(..len);
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_LEN {
            self.bytes = VecDeque::new();
            self.lens.shrink_to(KEPT_LEN / size_of::<u32>());
        }
    }
}

/// Sets congestion experienced, where the ends know of it (`IP_ECN_set_ce`).
fn mark_congestion(packet: &mut [u8]) {
    let family = match packet.first().map(|byte| byte >> 4) {
        Some(4) => Family::V4,
        Some(6) => Family::V6,
        _ => return,
    };
    let tos = ds_field(packet, family);
    if tos & ECN_MASK != 0 && tos & ECN_MASK != ECN_MASK {
        set_ds_field(packet, family, tos | ECN_MASK);
    }
}
