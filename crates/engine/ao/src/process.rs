//! Bursts of packets through a namespace: the MACs of a burst are computed in one call of the drivers, and whoever shares
//! the namespace by a lock does not hold it meanwhile.
//!
//! ```text
//! begin  with the namespace   where each packet belongs, key, numbers     VerifyBurst · SignBurst
//! run    without              the MACs of the burst
//! end    with the namespace   verdicts, and what an authentic segment changes
//! finish without              inbound: the option goes
//! ```
//!
//! Verdict *i* belongs to packet *i*; nothing is reordered, and nothing is allocated for a packet.
//!
//! The namespace may change between begin and end: a key is deleted, a socket closed, a connection taken over. Each packet
//! comes out as if all of its judgement had happened at the end. A burst therefore remembers the count of changes at its
//! beginning; if there are others since, it is judged again, and a MAC is computed again where its key or what it covers is
//! another one. What packets themselves change, such as sequence numbers, is no such change.

pub(crate) mod inbound;
pub(crate) mod outbound;

use crate::flows::Ends;
use sealane_net::ao::drop::DropReason;
use sealane_net::ao::segment::ChecksumState;
use sealane_net::wire::ip::Layout;
use sealane_net::wire::tcp::Segment;

/// What is to become of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing of ours: it goes on as it is.
    Pass,
    /// It is no TCP segment, or a piece of one.
    NotTcp,
    /// Inbound: it is authentic and goes on from this offset of its buffer, without the option.
    Deliver(usize, Layout),
    /// Outbound: it left as signed packets.
    Sent,
    /// It goes no further.
    Drop(DropReason),
}

/// A TCP segment that was found in a packet: the packet is parsed once, by its receiver, and this goes with it.
#[derive(Debug, Clone, Copy)]
pub struct Located {
    /// Where its parts lie.
    pub at: Layout,
    /// The ends of its connection.
    pub ends: Ends,
}

impl Located {
    /// The segment of a packet that comes in; `None` for one without, or with a piece of one.
    #[must_use]
    pub fn received(packet: &[u8]) -> Option<Self> {
        let segment = Segment::parse(packet).ok()?;
        Some(Located { at: *segment.layout(), ends: Ends::received(&segment) })
    }

    /// The segment of a packet that leaves; `None` for one without, or with a piece of one.
    #[must_use]
    pub fn sent(packet: &[u8]) -> Option<Self> {
        let segment = Segment::parse(packet).ok()?;
        Some(Located { at: *segment.layout(), ends: Ends::sent(&segment) })
    }
}

/// One inbound packet.
pub struct Inbound<'a> {
    /// From the IP header on. Rewritten in place when it is delivered.
    pub packet: &'a mut [u8],
    /// Its segment, see [`Located::received`].
    pub located: Option<Located>,
    /// What its TCP checksum is.
    pub checksum: ChecksumState,
    /// Index of the device that it came in by.
    pub device: u32,
    /// The largest packet that can go back to its sender, in bytes.
    pub mtu: usize,
    /// The answer.
    pub verdict: Verdict,
}

impl Inbound<'_> {
    fn segment(&self) -> Option<(Segment<'_>, Ends)> {
        self.located.map(|l| (Segment::with_layout(self.packet, l.at), l.ends))
    }
}

/// One outbound packet, possibly a superframe.
pub struct Outbound<'a> {
    /// From the IP header on.
    pub packet: &'a [u8],
    /// Its segment, see [`Located::sent`].
    pub located: Option<Located>,
    /// Index of the device that it leaves by.
    pub device: u32,
    /// The largest packet that can leave, in bytes.
    pub mtu: usize,
    /// The answer.
    pub verdict: Verdict,
}

impl<'a> Outbound<'a> {
    fn segment(&self) -> Option<(Segment<'a>, Ends)> {
        self.located.map(|l| (Segment::with_layout(self.packet, l.at), l.ends))
    }
}
