//! The state of a connection when it was saved.

use sealane_net_ao::info::AoInfo;
use sealane_net_ao::table::KeyRef;

/// The distance in bytes after which saved sequence numbers are too old: far less than half of their space.
const SAVE_BYTES: u32 = 1 << 28;

/// The values of a connection when it was last saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Saved {
    /// Sequence numbers: sent, received.
    pub(crate) bases: (u32, u32),
    /// The keys in use.
    pub(crate) keys: [Option<KeyRef>; 2],
}

impl Saved {
    /// The values of a connection now; `None` if there is none.
    pub(crate) fn of(info: &AoInfo) -> Option<Self> {
        let conn = info.conn()?;
        Some(Saved { bases: (conn.snd.base, conn.rcv.base), keys: [info.current(), info.rnext()] })
    }

    /// Whether a connection has gone so far since that it has to be saved again.
    pub(crate) fn is_outdated(&self, info: &AoInfo) -> bool {
        Saved::of(info).is_some_and(|now| {
            now.bases.0.wrapping_sub(self.bases.0) > SAVE_BYTES
                || now.bases.1.wrapping_sub(self.bases.1) > SAVE_BYTES
                || now.keys != self.keys
        })
    }
}
