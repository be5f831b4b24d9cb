//! Dropped segments.

use core::net::SocketAddr;
use sealane_net::ao::drop::DropReason;
use sealane_net::ao::kdf::Context;
use sealane_net::wire::tcp::AoOption;

/// Segments that were dropped.
#[derive(Default)]
pub(crate) struct Drops {
    pub(crate) by_reason: [u64; DropReason::ALL.len()],
    /// Of those that belong to no socket.
    pub(crate) stray: Option<Box<LastDrop>>,
}

/// A segment that was dropped.
pub(crate) struct LastDrop {
    pub(crate) at_ms: u64,
    pub(crate) reason: DropReason,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) option: Option<AoOption>,
    /// Initial sequence numbers and extension under which it should have verified.
    pub(crate) numbers: Option<(Context, u32)>,
    /// From the IP header on; empty when no closer look makes sense.
    pub(crate) packet: Vec<u8>,
}
