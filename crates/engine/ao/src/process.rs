//! Bursts of packets. The MACs of a burst are computed in one call of the drivers. This does not need the namespace, so
//! its lock is not held meanwhile.
//!
//! ```text
//! begin  with the namespace   connection, key and numbers of each packet   VerifyBurst · SignBurst
//! run    without              the MACs of the burst
//! end    with the namespace   verdicts, and the changes that authentic segments make
//! finish without              inbound: the option is removed
//! ```
//!
//! A traffic key whose master key is elsewhere is derived in `run`, by whatever its caller passes; the connection has it from `end` on.
//! In `end` nobody waits for one: a packet that needs another key then is dropped, and TCP repeats it.
//!
//! Verdict *i* belongs to packet *i*; nothing is reordered, and nothing is allocated for a packet.
//!
//! The namespace may change between begin and end: a key is deleted, a socket closed, a connection taken over. The
//! verdict about a packet is the one that it would get at the end. A burst therefore remembers the count of changes at
//! its beginning. If there have been changes since, its packets are judged again, and a MAC is computed again if its key
//! or coverage has changed. Changes that packets themselves cause, such as those of sequence numbers, do not count.

pub(crate) mod inbound;
pub(crate) mod outbound;

use crate::flows::Ends;
use sealane_crypto::mac::MacTfm;
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::segment::ChecksumState;
use sealane_net_ao::traffic::Wanted;
use sealane_wire::ip::Layout;
use sealane_wire::tcp::Segment;
use std::sync::Arc;

/// Has a traffic key derived where its master key is, or says that there is none now.
pub type Derive<'d> = &'d mut dyn FnMut(&Wanted) -> Option<Arc<MacTfm>>;

/// Waits for each key, however long that takes.
pub(crate) fn derive_waiting(wanted: &Wanted) -> Option<Arc<MacTfm>> {
    wanted.derive().ok()
}

/// Waits for none.
pub(crate) fn derive_nothing(_: &Wanted) -> Option<Arc<MacTfm>> {
    None
}

/// The verdict about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// TCP-AO does not apply: the packet passes unchanged.
    Pass,
    /// The packet is no TCP segment, or a fragment of one.
    NotTcp,
    /// The inbound packet is authentic. Without the option it starts at this offset of its buffer and has this layout.
    Deliver(usize, Layout),
    /// The outbound packet left as signed packets.
    Sent,
    /// The packet is dropped.
    Drop(DropReason),
}

/// The TCP segment in a packet. The receiver parses a packet once, and this goes along with it.
#[derive(Debug, Clone, Copy)]
pub struct Located {
    /// The layout of the packet.
    pub at: Layout,
    /// The ends of its connection.
    pub ends: Ends,
}

impl Located {
    /// Finds the segment of an inbound packet; `None` if the packet is a fragment or has no TCP segment.
    #[must_use]
    pub fn received(packet: &[u8]) -> Option<Self> {
        let segment = Segment::parse(packet).ok()?;
        Some(Located { at: *segment.layout(), ends: Ends::received(&segment) })
    }

    /// The same segment in a VRF, which packets themselves do not tell.
    #[must_use]
    pub fn in_vrf(self, vrf: i32) -> Self {
        Located { ends: self.ends.in_vrf(vrf), ..self }
    }

    /// Finds the segment of an outbound packet; `None` if the packet is a fragment or has no TCP segment.
    #[must_use]
    pub fn sent(packet: &[u8]) -> Option<Self> {
        let segment = Segment::parse(packet).ok()?;
        Some(Located { at: *segment.layout(), ends: Ends::sent(&segment) })
    }
}

/// One inbound packet.
pub struct Inbound<'a> {
    /// The packet from the IP header on. It is rewritten in place if it is delivered.
    pub packet: &'a mut [u8],
    /// Its segment, see [`Located::received`].
    pub located: Option<Located>,
    /// The content of its TCP checksum.
    pub checksum: ChecksumState,
    /// Index of the device by which it came in.
    pub device: u32,
    /// The largest packet that can go back to its sender, in bytes.
    pub mtu: usize,
    /// The verdict.
    pub verdict: Verdict,
}

impl Inbound<'_> {
    fn segment(&self) -> Option<(Segment<'_>, Ends)> {
        self.located.map(|l| (Segment::with_layout(self.packet, l.at), l.ends))
    }
}

/// One outbound packet, possibly a superframe.
pub struct Outbound<'a> {
    /// The packet from the IP header on.
    pub packet: &'a [u8],
    /// Its segment, see [`Located::sent`].
    pub located: Option<Located>,
    /// Index of the device by which it leaves.
    pub device: u32,
    /// The largest packet that can leave, in bytes.
    pub mtu: usize,
    /// The verdict.
    pub verdict: Verdict,
}

impl<'a> Outbound<'a> {
    fn segment(&self) -> Option<(Segment<'a>, Ends)> {
        self.located.map(|l| (Segment::with_layout(self.packet, l.at), l.ends))
    }
}
