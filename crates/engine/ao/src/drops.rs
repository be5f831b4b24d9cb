//! Dropped segments.

use core::net::SocketAddr;
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::kdf::Context;
use sealane_wire::tcp::AoOption;

/// Segments that were dropped.
#[derive(Default)]
pub(crate) struct Drops {
    pub(crate) by_reason: [u64; DropReason::ALL.len()],
    /// The last dropped segment that belongs to no socket.
    pub(crate) stray: Option<Box<LastDrop>>,
}

/// A segment that was dropped.
pub(crate) struct LastDrop {
    pub(crate) at_ms: u64,
    pub(crate) reason: DropReason,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) option: Option<AoOption>,
    /// The KDF context and SNE under which it should have verified.
    pub(crate) numbers: Option<(Context, u32)>,
    /// The packet from the IP header on; empty if there is nothing to diagnose.
    pub(crate) packet: Vec<u8>,
}
