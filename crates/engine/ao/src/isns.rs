//! Initial sequence numbers.

use sealane_net_ao::info::Conn;

/// Initial sequence numbers and sequence number extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Isns {
    /// Ours.
    pub(crate) lisn: u32,
    /// The peer's.
    pub(crate) risn: u32,
    /// SNE of the sending direction.
    pub(crate) snd_sne: u32,
    /// SNE of the receiving direction.
    pub(crate) rcv_sne: u32,
}

impl Isns {
    pub(crate) fn of(conn: &Conn) -> Self {
        Isns { lisn: conn.lisn, risn: conn.risn, snd_sne: conn.snd.ext, rcv_sne: conn.rcv.ext }
    }
}
