//! Joining received segments into superframes (GRO), by the kernel's rules (`tcp_gro_receive`, `inet_gro_flush`).

use arrayvec::ArrayVec;
use sealane_wire::ip::{self, Family, Layout, MAX_TCP_HEADER_LEN, V6_HEADER_LEN, be16, be32};
use sealane_wire::tcp::{Flags, Segment};

/// The longest headers of a superframe. Packets with IP options or extension headers are not joined.
const MAX_HEADER_LEN: usize = V6_HEADER_LEN + MAX_TCP_HEADER_LEN;

/// The longest superframe in bytes: its length has to fit into the IP header.
pub const MAX_LEN: usize = u16::MAX as usize;

/// Flags of segments behind which nothing is joined.
const LAST: u8 = Flags::FIN | Flags::SYN | Flags::RST | Flags::PSH | Flags::URG;

/// The result of offering a segment to a [`Join`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It does not continue the superframe, which is complete.
    No,
    /// It was joined.
    Yes,
    /// It was joined, and nothing can follow it.
    Last,
}

/// A superframe that is being built: its headers, and the length of the payload. The payload itself stays in the
/// segments, and is gathered from there when the superframe is sent.
pub struct Join {
    header: ArrayVec<u8, MAX_HEADER_LEN>,
    at: Layout,
    gso_size: usize,
    payload_len: usize,
    count: usize,
    /// Whether the IPv4 identification stays the same instead of counting up; decided by the second segment.
    fixed_id: bool,
    open: bool,
}

impl Join {
    /// Starts a superframe with a segment whose option has been removed. `None` means that no superframe can start with
    /// it (no payload, IP options, or a flag behind which nothing is joined).
    #[must_use]
    pub fn start(segment: &Segment<'_>) -> Option<Self> {
        let at = *segment.layout();
        let plain = match at.family {
            Family::V4 => 20,
            Family::V6 => V6_HEADER_LEN,
        };
        if at.payload_len() == 0 || at.tcp_at != plain || segment.flags().0 & LAST != 0 {
            return None;
        }
        Some(Join {
            header: segment.packet()[..at.payload_at].try_into().ok()?,
            at,
            gso_size: at.payload_len(),
            payload_len: at.payload_len(),
            count: 1,
            fixed_id: false,
            open: true,
        })
    }

    /// Whether a segment is of the same connection and direction.
    #[must_use]
    pub fn is_of(&self, segment: &Segment<'_>) -> bool {
        let at = segment.layout();
        (at.family, at.tcp_at) == (self.at.family, self.at.tcp_at)
            && segment.header()[..4] == self.header[self.at.tcp_at..self.at.tcp_at + 4]
            && at.addresses(segment.packet()) == self.at.addresses(&self.header)
    }

    /// Adds the segment if it continues the superframe: same addresses and ports, the next sequence number, same
    /// acknowledgment, window, options, flags but FIN and PSH, TTL, TOS, don't-fragment bit, identification that counts
    /// up or stays, and not more payload than the first.
    pub fn push(&mut self, segment: &Segment<'_>) -> Pushed {
        if !self.open || !self.tcp_continues(segment) || !self.ip_continues(segment.packet()) {
            return Pushed::No;
        }
        let (len, flags) = (segment.layout().payload_len(), segment.flags().0);
        self.payload_len += len;
        self.count += 1;
        self.header[self.at.tcp_at + 13] |= flags & (Flags::FIN | Flags::PSH);
        self.open = len == self.gso_size && flags & LAST == 0;
        if self.open { Pushed::Yes } else { Pushed::Last }
    }

    fn tcp_continues(&self, segment: &Segment<'_>) -> bool {
        let at = segment.layout();
        if (at.family, at.tcp_at, at.payload_at) != (self.at.family, self.at.tcp_at, self.at.payload_at) {
            return false;
        }
        let (tcp, first) = (segment.header(), &self.header[self.at.tcp_at..]);
        let len = at.payload_len();
        // Ports; acknowledgment and data offset; flags; window; urgent pointer and options.
        tcp[..4] == first[..4]
            && segment.seq() == be32(first, 4).wrapping_add(self.payload_len as u32)
            && tcp[8..13] == first[8..13]
            && (tcp[13] ^ first[13]) & !(Flags::FIN | Flags::PSH) == 0
            && tcp[14..16] == first[14..16]
            && tcp[18..] == first[18..]
            && (1..=self.gso_size).contains(&len)
            && self.at.payload_at + self.payload_len + len <= MAX_LEN
            && at.addresses(segment.packet()) == self.at.addresses(&self.header)
    }

    fn ip_continues(&mut self, packet: &[u8]) -> bool {
        let first = &self.header[..];
        if self.at.family == Family::V6 {
            // Traffic class and hop limit; the flow label may differ.
            return (be16(packet, 0) ^ be16(first, 0)) & 0x0ff0 == 0 && packet[7] == first[7];
        }
        let step = be16(packet, 4).wrapping_sub(be16(first, 4));
        let fixed = if self.count == 1 { step == 0 } else { self.fixed_id };
        let continues = packet[8] == first[8]
            && packet[1] == first[1]
            && (packet[6] ^ first[6]) & 0x40 == 0
            && step == if fixed { 0 } else { self.count as u16 };
        if continues {
            self.fixed_id = fixed;
        }
        continues
    }

    /// The number of segments.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Payload of each segment but the last, in bytes: `gso_size` of the vnet header, if there are two or more.
    #[must_use]
    pub fn gso_size(&self) -> usize {
        self.gso_size
    }

    /// Whether the IPv4 identification stays the same in all segments (`SKB_GSO_TCP_FIXEDID`).
    #[must_use]
    pub fn fixed_id(&self) -> bool {
        self.fixed_id
    }

    /// The layout of the superframe.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout { end: self.at.payload_at + self.payload_len, ..self.at }
    }

    /// The headers of the superframe. The TCP checksum holds the sum of the pseudo-header; all other fields are final.
    /// The payloads of the segments follow in their order.
    pub fn header(&mut self) -> &[u8] {
        let layout = self.layout();
        ip::set_len(&mut self.header, &layout);
        ip::set_partial_checksum(&mut self.header, &layout);
        &self.header
    }
}
