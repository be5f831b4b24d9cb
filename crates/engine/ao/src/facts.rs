//! Sockets, and what is true of them at the moment of a call.

use core::net::SocketAddr;
use sealane_abi::tcp::State;

/// A socket, by its cookie (`SO_COOKIE`), which the kernel never uses twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u64);

/// Address family of a socket, which decides how addresses in options are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`; peers may be v4-mapped.
    V6,
}

/// Interfaces of the network namespace.
pub trait Interfaces {
    /// The VRF of an interface: its own index for a VRF device itself (an L3 master), its master's for a device in a
    /// VRF, 0 for any other and for one that does not exist.
    fn vrf(&self, ifindex: i32) -> i32;
}

/// A namespace without VRFs.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoVrfs;

impl Interfaces for NoVrfs {
    fn vrf(&self, _: i32) -> i32 {
        0
    }
}

/// Facts about a TCP socket and the caller at the moment of a call.
#[derive(Clone, Copy)]
pub struct SocketFacts<'a> {
    /// Address family.
    pub family: Family,
    /// State.
    pub state: State,
    /// Its local address; `None` before it is bound.
    pub local: Option<SocketAddr>,
    /// Its peer; `None` where `getpeername` has none.
    pub peer: Option<SocketAddr>,
    /// Whether an IPv6 socket speaks IPv6 only (`IPV6_V6ONLY`).
    pub v6only: bool,
    /// The interface it is bound to, 0 for none.
    pub bound_ifindex: i32,
    /// The next sequence numbers to send and to receive in repair mode (`TCP_REPAIR`); `None` outside it.
    pub repair: Option<RepairSeqs>,
    /// Whether the caller has CAP_NET_ADMIN in the user namespace of the network namespace.
    pub net_admin: bool,
    /// Interfaces.
    pub interfaces: &'a dyn Interfaces,
}

/// Sequence numbers of a socket in repair mode (`TCP_QUEUE_SEQ`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepairSeqs {
    /// The next to send.
    pub send: u32,
    /// The next to receive.
    pub receive: u32,
}

impl SocketFacts<'_> {
    /// Whether the state is one in which a socket has no connection.
    pub(crate) fn unconnected(&self) -> bool {
        matches!(self.state, State::Close | State::Listen)
    }

    /// Its port, once it has one.
    pub(crate) fn local_port(&self) -> Option<u16> {
        self.local.map(|l| l.port())
    }

    /// `tcp_can_repair_sock`.
    pub(crate) fn can_repair(&self) -> bool {
        self.net_admin && self.state != State::Listen
    }

    /// The VRF that the socket is in.
    pub(crate) fn vrf(&self) -> i32 {
        if self.bound_ifindex == 0 { 0 } else { self.interfaces.vrf(self.bound_ifindex) }
    }
}
