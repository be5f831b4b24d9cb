//! A connect() in progress.

use crate::md5_keys::Md5Key;
use core::net::IpAddr;

/// A connect() that was allowed and may still fail.
pub(crate) struct Connecting {
    pub(crate) peer: IpAddr,
    pub(crate) vrf: i32,
    /// The keys that the connection will use.
    pub(crate) keys: Keys,
    /// The peer that the socket remembered before.
    pub(crate) before: Option<(IpAddr, Option<u16>)>,
    /// Whether its SYN was seen.
    pub(crate) sent: bool,
    /// The MD5 keys that were dropped with it.
    pub(crate) dropped: Vec<Md5Key>,
}

/// The keys that a connection will use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// The socket has no TCP-AO keys.
    None,
    /// TCP-AO keys for the peer. Keys for other peers and all MD5 keys are dropped.
    Ao,
    /// An MD5 key. All TCP-AO keys are dropped.
    Md5,
    /// The keys do not allow the connection.
    Rejected,
}

/// The state of a socket with respect to connect() (`enum socket_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Progress {
    /// The next connect() connects it.
    #[default]
    Unconnected,
    /// A connect() is in progress, or ended in the background. The next one returns its result.
    Connecting,
    /// A connect() succeeded, or the socket was accepted. The next one is refused, even when the connection has ended.
    Connected,
}
