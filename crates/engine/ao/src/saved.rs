//! The state of a connection when it was saved.

use sealane_net::ao::info::AoInfo;
use sealane_net::ao::table::KeyRef;

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

/// The keys in use of a restored connection that were not there when it was restored.
#[derive(Default)]
pub(crate) struct Wishes {
    pub(crate) current: Option<Wish>,
    pub(crate) rnext: Option<Wish>,
}

/// A key that a connection had in use.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    /// SendID of the current key, RecvID of the rnext key.
    pub(crate) key_id: u8,
    /// The key that it uses meanwhile. The wish is over when the peer has it use another one.
    pub(crate) instead: Option<KeyRef>,
}

impl Wishes {
    /// The wishes that are not over.
    pub(crate) fn open(&self, info: &AoInfo) -> [Option<u8>; 2] {
        let is_open = |wish: Option<Wish>, now| wish.filter(|wish| wish.instead == now).map(|wish| wish.key_id);
        [is_open(self.current, info.current()), is_open(self.rnext, info.rnext())]
    }

    /// Wishes of a connection that uses the keys of now meanwhile.
    pub(crate) fn meanwhile([current, rnext]: [Option<u8>; 2], info: &AoInfo) -> Self {
        let wish = |key_id: Option<u8>, instead| key_id.map(|key_id| Wish { key_id, instead });
        Wishes { current: wish(current, info.current()), rnext: wish(rnext, info.rnext()) }
    }
}
