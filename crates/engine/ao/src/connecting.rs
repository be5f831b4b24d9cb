//! A connect() in progress.

use crate::md5_keys::Md5Key;
use core::net::IpAddr;

/// A connect() that may happen.
pub(crate) struct Connecting {
    pub(crate) peer: IpAddr,
    pub(crate) vrf: i32,
    /// What becomes of the keys.
    pub(crate) keys: Keys,
    /// The peer that the socket remembered before.
    pub(crate) before: Option<(IpAddr, Option<u16>)>,
    /// It happened: the SYN was seen.
    pub(crate) sent: bool,
    /// The MD5 keys that went then.
    pub(crate) dropped: Vec<Md5Key>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// There are none of TCP-AO.
    None,
    /// TCP-AO: other keys, and all of MD5, go.
    Ao,
    /// MD5: TCP-AO goes altogether.
    Md5,
    /// They do not allow it.
    Rejected,
}

/// What a connect() makes of a socket apart from its connection (`enum socket_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Progress {
    /// The next one connects it.
    #[default]
    Unconnected,
    /// One went on in the background, and no later one has asked how it ended: the next tells.
    Connecting,
    /// One succeeded, or the socket was accepted: the next is refused, also when the connection has ended.
    Connected,
}
