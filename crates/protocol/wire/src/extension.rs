//! The extension headers of IPv6 (RFC 8200 section 4), which stand one behind another between the fixed header and the
//! upper-layer protocol.
//!
//! Every walk over them goes over [`Chain`]. Each caller says which numbers are extension headers to it, and where it stops,
//! because these differ in Linux, too:
//!
//! | caller | goes over | stops also at | in Linux |
//! |---|---|---|---|
//! | [`Walk`](super::walk::Walk) | those of [`is_basic`] | a later fragment | `decode_session6` |
//! | [`unfragmentable`](super::walk::unfragmentable) | hop-by-hop, routing, destination in front of routing | – | `ip6_find_1stfragopt` |
//! | [`v6_upper`](super::ip::v6_upper) | those of `is_basic`, AH if the caller wants | a later fragment | `ipv6_skip_exthdr` |
//! | [`Layout`](super::ip::Layout) of TCP | those of `is_basic`, AH, mobility | any fragment, segments left | `ip6_protocol_deliver_rcu` |
//! | the fields that AH covers | hop-by-hop, routing, destination | – | `ipv6_clear_mutable_options` |
//!
//! Programs that the kernel runs for us cannot share it: nftables finds the upper-layer protocol itself (`rules`), and the programs
//! of sockets and XDP leave every packet to the stack that has anything between the fixed header and what they look for
//! (`sys::cbpf`, `sys::xdp`).
//!
//! ```text
//!   0 next header   1 length in words of 8, minus 1 (AH: of 4, minus 2)   2 routing: type      3 segments left
//!                                                                         2 fragment: offset (13 bits), 0 0 M   4 id
//! ```

use crate::proto;

/// IPv6's fixed header in bytes.
pub const V6_HEADER_LEN: usize = 40;

/// The offset of its next header field.
const NEXT_HEADER: usize = 6;

/// An error: not a complete IP packet, or its lengths contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// A fragment of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// The identification, which all fragments of a packet share.
    pub id: u32,
    /// The protocol that IPv4's header names, or IPv6's fragment header.
    pub next: u8,
    /// Whether it is another one than the first: ports are in the first, and so are IPv6's headers behind the fragment
    /// header.
    pub is_later: bool,
}

/// Whether a number is an extension header that no other protocol is needed for: hop-by-hop options, routing, fragment or
/// destination options.
#[must_use]
#[inline]
pub fn is_basic(kind: u8) -> bool {
    matches!(kind, proto::HOP_BY_HOP | proto::ROUTING | proto::FRAGMENT | proto::DESTINATION)
}

/// A place in the chain of headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// The number of the header here.
    pub kind: u8,
    /// The offset of the byte that names it.
    pub named_at: usize,
    /// Its offset, which may be behind the end of the packet.
    pub at: usize,
}

impl Chain {
    /// The first header behind the fixed one. `None` where the packet ends before it is named.
    #[must_use]
    #[inline]
    pub fn of(packet: &[u8]) -> Option<Self> {
        Some(Chain { kind: *packet.get(NEXT_HEADER)?, named_at: NEXT_HEADER, at: V6_HEADER_LEN })
    }

    /// Goes over the header here and returns it if its number `is_extension`. Otherwise nothing changes. A loop of calls
    /// ends, because every header has at least eight bytes.
    ///
    /// # Errors
    /// [`Malformed`] if its first eight bytes are not all in the packet. The rest of it is not looked for.
    #[inline]
    pub fn over(
        &mut self,
        packet: &[u8],
        is_extension: impl FnOnce(u8) -> bool,
    ) -> Result<Option<Extension>, Malformed> {
        let Chain { kind, at, .. } = *self;
        if !is_extension(kind) {
            return Ok(None);
        }
        let front = *packet.get(at..).and_then(|header| header.first_chunk()).ok_or(Malformed)?;
        let header = Extension { kind, at, front };
        *self = Chain { kind: front[0], named_at: at, at: at + header.total_len() };
        Ok(Some(header))
    }
}

/// An extension header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension {
    /// Its number.
    pub kind: u8,
    /// Its offset.
    pub at: usize,
    front: [u8; 8],
}

impl Extension {
    /// Its length in bytes, at least 8.
    #[inline]
    fn total_len(&self) -> usize {
        let field = usize::from(self.front[1]);
        match self.kind {
            proto::FRAGMENT => 8,
            proto::AH => (field + 2) * 4,
            _ => (field + 1) * 8,
        }
    }

    /// The part of a packet that a fragment header says it is; `None` for other headers, and where it is the whole packet.
    #[must_use]
    #[inline]
    pub fn fragment(&self) -> Option<Fragment> {
        let [next, _, high, low, id @ ..] = self.front;
        // The offset and the more-fragments flag, without the reserved bits.
        let bits = u16::from_be_bytes([high, low]) & 0xfff9;
        let of = || Fragment { id: u32::from_be_bytes(id), next, is_later: bits & 0xfff8 != 0 };
        (self.kind == proto::FRAGMENT && bits != 0).then(of)
    }

    /// Whether it is a routing header that names nodes still to be visited.
    #[must_use]
    #[inline]
    pub fn has_segments_left(&self) -> bool {
        self.kind == proto::ROUTING && self.front[3] != 0
    }
}
