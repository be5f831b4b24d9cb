//! The state of a connection when it was saved.

use sealane_net::ao::table::KeyRef;

/// The values of a connection when it was last saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Saved {
    /// Sequence numbers: sent, received.
    pub(crate) bases: (u32, u32),
    /// The keys in use.
    pub(crate) keys: [Option<KeyRef>; 2],
}
