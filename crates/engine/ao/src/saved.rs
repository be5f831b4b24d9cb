//! The state of a connection when it was saved.

use sealane_net::ao::table::KeyRef;

/// What tells whether a connection has to be saved again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Saved {
    /// Sequence numbers: what we sent, what we received.
    pub(crate) bases: (u32, u32),
    /// The keys in use.
    pub(crate) keys: [Option<KeyRef>; 2],
}
