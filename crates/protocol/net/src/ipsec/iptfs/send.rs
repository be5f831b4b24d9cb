//! Sending: packets wait a moment for others, and leave together or in pieces.

use super::config::{CC_HEADER_LEN, Config, HEADER_LEN, NS_IN_US, SUBTYPE_BASIC};
use super::congestion::header::CcHeader;
use crate::ipsec::drop::DropReason;
use crate::ipsec::id::{MAX_DEPTH, SaId};
use crate::wire::ip::Family;
use crate::wire::walk::{ECN_MASK, ds_field, set_ds_field};
use arrayvec::ArrayVec;
use std::collections::VecDeque;

/// From this part of the queue on, in percent, packets are marked as having met congestion.
const ECN_PERCENT: u64 = 95;

/// The sending end of an association.
#[derive(Default)]
pub struct Sender {
    queue: VecDeque<Vec<u8>>,
    queued_len: usize,
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
        let len = (self.queued_len + packet.len()) as u64;
        if len > config.max_queue_len.into() {
            return Err(DropReason::IptfsQueue);
        }
        let mut packet = packet.to_vec();
        if len > u64::from(config.max_queue_len) * ECN_PERCENT / 100 {
            mark_congestion(&mut packet);
        }
        self.queued_len += packet.len();
        self.queue.push_back(packet);
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
        (self.due, self.timer_ns) = (self.queue.len(), None);
    }

    /// Writes the payload of the next outer packet, which has room for a header and `most` bytes, at least one: as many whole
    /// packets as fit, or the next piece of one that does not (`iptfs_output_queued`). Returns its length; `None` if
    /// nothing leaves now. With `dont_frag` packets that do not fit are dropped and added to `refused`.
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
        while dont_frag && self.due > 0 && self.queue.front().is_some_and(|first| first.len() > most) {
            // The path has become narrower since it was queued.
            self.pop();
            refused.push(DropReason::IptfsTooBig);
        }
        let first = self.queue.front().filter(|_| self.due > 0)?;
        let (header, blocks) = to.split_at_mut(HEADER_LEN);
        let rest = &first[self.left..];
        // Nothing of a packet that begins is before the first block.
        let offset = if self.left == 0 { 0 } else { rest.len() as u16 };
        header[..2].copy_from_slice(&[SUBTYPE_BASIC, 0]);
        header[2..].copy_from_slice(&offset.to_be_bytes());
        let piece = &rest[..rest.len().min(most)];
        blocks[..piece.len()].copy_from_slice(piece);
        let mut at = piece.len();
        if at < rest.len() {
            self.left += at;
            return Some(HEADER_LEN + at);
        }
        self.pop();
        while self.due > 0
            && let Some(packet) = self.queue.front().filter(|packet| packet.len() <= most - at)
        {
            blocks[at..at + packet.len()].copy_from_slice(packet);
            at += packet.len();
            self.pop();
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

    fn pop(&mut self) {
        if let Some(packet) = self.queue.pop_front() {
            self.queued_len -= packet.len();
            (self.due, self.left) = (self.due - 1, 0);
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
