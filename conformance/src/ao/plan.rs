//! A sequence of calls on TCP sockets is a list made from a seed alone, independent of the results.
//!
//! A slot stands for a descriptor. A call on an empty slot is made on descriptor -1.

use super::rle;
use sealane_abi::tcp;
use std::fmt;
use std::net::SocketAddr;

/// Number of slots of a sequence.
pub const SLOTS: usize = 6;

/// One of the options 14, 32 and 38 to 42, with the memory behind its pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opt {
    /// The descriptor.
    pub slot: usize,
    /// Its number.
    pub name: i32,
    /// The accessible memory, from the pointer on.
    pub memory: Vec<u8>,
    /// `optlen`.
    pub len: i32,
    /// Whether the caller has no capabilities.
    pub as_user: bool,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the call's arguments")]
pub enum Call {
    Socket {
        slot: usize,
        v6: bool,
    },
    Close {
        slot: usize,
    },
    V6only {
        slot: usize,
        on: bool,
    },
    Bind {
        slot: usize,
        addr: SocketAddr,
    },
    Listen {
        slot: usize,
    },
    Connect {
        slot: usize,
        addr: SocketAddr,
    },
    /// `connect` with `AF_UNSPEC`.
    Disconnect {
        slot: usize,
    },
    Accept {
        slot: usize,
        new: usize,
    },
    /// `TCP_REPAIR`: 1, 0 or -1.
    Repair {
        slot: usize,
        mode: i32,
    },
    /// `TCP_REPAIR_QUEUE` and `TCP_QUEUE_SEQ`.
    QueueSeq {
        slot: usize,
        queue: i32,
        seq: u32,
    },
    Set(Opt),
    Get(Opt),
}

impl Call {
    /// The slot that it is made on.
    #[must_use]
    pub fn slot(&self) -> usize {
        match self {
            Call::Socket { slot, .. }
            | Call::Close { slot }
            | Call::V6only { slot, .. }
            | Call::Bind { slot, .. }
            | Call::Listen { slot }
            | Call::Connect { slot, .. }
            | Call::Disconnect { slot }
            | Call::Accept { slot, .. }
            | Call::Repair { slot, .. }
            | Call::QueueSeq { slot, .. } => *slot,
            Call::Set(o) | Call::Get(o) => o.slot,
        }
    }
}

/// The name of an option.
#[must_use]
pub fn option_name(name: i32) -> &'static str {
    match name {
        tcp::TCP_MD5SIG => "MD5SIG",
        tcp::TCP_MD5SIG_EXT => "MD5SIG_EXT",
        tcp::TCP_AO_ADD_KEY => "ADD_KEY",
        tcp::TCP_AO_DEL_KEY => "DEL_KEY",
        tcp::TCP_AO_INFO => "INFO",
        tcp::TCP_AO_GET_KEYS => "GET_KEYS",
        tcp::TCP_AO_REPAIR => "AO_REPAIR",
        _ => "?",
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Socket { slot, v6 } => write!(f, "socket s{slot} {}", if *v6 { "v6" } else { "v4" }),
            Call::Close { slot } => write!(f, "close s{slot}"),
            Call::V6only { slot, on } => write!(f, "v6only s{slot} {on}"),
            Call::Bind { slot, addr } => write!(f, "bind s{slot} {addr}"),
            Call::Listen { slot } => write!(f, "listen s{slot}"),
            Call::Connect { slot, addr } => write!(f, "connect s{slot} {addr}"),
            Call::Disconnect { slot } => write!(f, "disconnect s{slot}"),
            Call::Accept { slot, new } => write!(f, "accept s{slot} s{new}"),
            Call::Repair { slot, mode } => write!(f, "repair s{slot} {mode}"),
            Call::QueueSeq { slot, queue, seq } => write!(f, "queue_seq s{slot} {queue} {seq}"),
            Call::Set(o) | Call::Get(o) => {
                let verb = if matches!(self, Call::Set(_)) { "set" } else { "get" };
                let user = if o.as_user { " as_user" } else { "" };
                write!(f, "{verb}:{} s{}{user} {} {}", option_name(o.name), o.slot, o.len, rle::encode(&o.memory))
            }
        }
    }
}
