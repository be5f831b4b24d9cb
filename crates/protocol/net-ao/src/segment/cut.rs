//! Cutting superframes into segments (GSO), each with the option.

use super::options::{OptionBytes, options_with, set_header_len};
use crate::drop::DropReason;
use crate::output::OptionFields;
use sealane_wire::ip::{self, Family, Layout, TCP_HEADER_LEN, be16};
use sealane_wire::tcp::{Flags, Segment};

/// The plan by which a segment, or a superframe of many, becomes signed packets that lie one behind another, all of one
/// length but the last. It does not borrow the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Layout of the segment.
    at: Layout,
    /// Its sequence number.
    seq: u32,
    options: OptionBytes,
    /// Payload of each packet but the last, in bytes.
    payload: usize,
    count: usize,
    /// Whether CWR is a part of accurate ECN's counter, which each packet has.
    accurate_ecn: bool,
}

impl Cut {
    /// Plans packets with at most `max_payload` bytes of payload. That is the superframe's gso_size, or what the MTU
    /// leaves ([`max_payload`](super::max_payload)) if it is less.
    ///
    /// # Errors
    /// As [`options_with`]; [`DropReason::NoRoom`] when `max_payload` is 0 and there is payload, or when the length
    /// does not fit into the IP header.
    pub fn new(segment: &Segment<'_>, fields: &OptionFields, max_payload: usize) -> Result<Self, DropReason> {
        let options = options_with(fields, segment.option_bytes())?;
        let at = *segment.layout();
        let len = at.payload_len();
        if max_payload == 0 && len > 0 {
            return Err(DropReason::NoRoom);
        }
        let payload = len.min(max_payload);
        let count = if len == 0 { 1 } else { len.div_ceil(payload) };
        let cut = Cut { at, seq: segment.seq(), options, payload, count, accurate_ecn: segment.accurate_ecn() };
        let fixed = if at.family == Family::V6 { ip::V6_HEADER_LEN } else { 0 };
        if cut.layout(0).end - fixed > usize::from(u16::MAX) { Err(DropReason::NoRoom) } else { Ok(cut) }
    }

    /// The same for a connection of which it is known whether it uses accurate ECN.
    #[must_use]
    pub fn with_accurate_ecn(self, accurate_ecn: bool) -> Self {
        Cut { accurate_ecn: self.accurate_ecn || accurate_ecn, ..self }
    }

    /// The number of packets.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The length of all packets together in bytes.
    #[must_use]
    pub fn total_len(&self) -> usize {
        self.count * self.header_len() + self.at.payload_len()
    }

    /// Payload of each packet but the last, in bytes.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload
    }

    fn header_len(&self) -> usize {
        self.at.tcp_at + TCP_HEADER_LEN + self.options.len()
    }

    fn payload_range(&self, i: usize) -> core::ops::Range<usize> {
        let len = self.at.payload_len();
        (i * self.payload).min(len)..((i + 1) * self.payload).min(len)
    }

    /// The layout of packet `i`, from its own start.
    #[must_use]
    pub fn layout(&self, i: usize) -> Layout {
        let payload_at = self.header_len();
        Layout { payload_at, end: payload_at + self.payload_range(i).len(), ..self.at }
    }

    /// The sequence number of packet `i`.
    #[must_use]
    pub fn seq(&self, i: usize) -> u32 {
        self.seq.wrapping_add((i * self.payload) as u32)
    }

    /// Writes the packets of `source`, which is the packet of the segment, to the front of `out`, one behind another.
    /// IP headers are complete; MACs are zero and TCP checksums stale until [`mac::sign`](crate::mac::sign).
    ///
    /// As the kernel cuts (`tcp_gso_segment`): the IPv4 identification counts up, FIN and PSH stay on the last packet,
    /// CWR on the first, unless it is accurate ECN's (`SKB_GSO_TCP_ACCECN`).
    ///
    /// # Errors
    /// [`DropReason::Overload`] when `out` is shorter than [`Cut::total_len`].
    ///
    /// # Panics
    /// When `source` is shorter than the segment.
    pub fn write(&self, source: &[u8], out: &mut [u8]) -> Result<(), DropReason> {
        let out = out.get_mut(..self.total_len()).ok_or(DropReason::Overload)?;
        let at = self.at;
        let payload = &source[at.payload_at..at.end];
        let options_at = at.tcp_at + TCP_HEADER_LEN;
        for (i, packet) in out.chunks_mut(self.stride()).enumerate() {
            let layout = self.layout(i);
            packet[..options_at].copy_from_slice(&source[..options_at]);
            packet[options_at..layout.payload_at].copy_from_slice(&self.options);
            packet[layout.payload_at..].copy_from_slice(&payload[self.payload_range(i)]);
            let first_only = if i > 0 && !self.accurate_ecn { Flags::CWR } else { 0 };
            let last_only = if i + 1 < self.count { Flags::FIN | Flags::PSH } else { 0 };
            packet[at.tcp_at + 13] &= !(first_only | last_only);
            packet[at.tcp_at + 4..at.tcp_at + 8].copy_from_slice(&self.seq(i).to_be_bytes());
            if at.family == Family::V4 {
                let id = be16(source, 4).wrapping_add(i as u16);
                packet[4..6].copy_from_slice(&id.to_be_bytes());
            }
            set_header_len(packet, &layout);
            ip::set_len(packet, &layout);
        }
        Ok(())
    }

    /// The packets that [`Cut::write`] wrote to `out`, each with its layout and sequence number.
    ///
    /// # Panics
    /// When `out` is shorter than [`Cut::total_len`].
    pub fn packets<'o>(&self, out: &'o mut [u8]) -> impl Iterator<Item = (&'o mut [u8], Layout, u32)> {
        out[..self.total_len()].chunks_mut(self.stride()).enumerate().map(|(i, p)| (p, self.layout(i), self.seq(i)))
    }

    /// The distance from one packet to the next in bytes.
    fn stride(&self) -> usize {
        self.header_len() + self.payload
    }
}
