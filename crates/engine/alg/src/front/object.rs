//! The object behind a descriptor.

use crate::{CryptoUser, Socket};
use lock_api::RawMutex;
use sealane_abi::netlink::SockaddrNl;
use sealane_abi::poll::PollMask;
use sealane_abi::socket::AF_NETLINK;
use sealane_crypto::Kind;
use std::sync::Arc;

/// The object behind a descriptor.
pub enum Object<L: RawMutex> {
    /// An AF_ALG socket, transform or operation.
    Alg(Arc<Socket<L>>),
    /// A NETLINK_CRYPTO socket.
    Netlink(Arc<CryptoUser<L>>),
}

impl<L: RawMutex> Object<L> {
    /// Whether poll can ever find it ready. Transforms, hashes and generators never are.
    pub fn is_pollable(&self) -> bool {
        match self {
            Object::Alg(socket) => socket.is_op() && matches!(socket.kind(), Some(Kind::Skcipher | Kind::Aead)),
            Object::Netlink(_) => true,
        }
    }

    /// The events that poll reports.
    pub fn poll(&self) -> PollMask {
        match self {
            Object::Alg(socket) => socket.poll(),
            Object::Netlink(socket) => socket.poll(),
        }
    }

    /// Runs `f` while nobody else changes the socket; see [`Socket::still`].
    pub fn still(&self, f: &mut dyn FnMut()) {
        match self {
            Object::Alg(socket) => socket.still(f),
            Object::Netlink(socket) => socket.still(f),
        }
    }

    /// Forgets who else has the socket; see [`Socket::forget_others`].
    pub fn forget_others(&self, sleepers: u32) {
        match self {
            Object::Alg(socket) => socket.forget_others(sleepers),
            Object::Netlink(socket) => socket.forget_others(sleepers),
        }
    }

    /// Counts an operation with its transform again; see [`Socket::join`].
    pub fn join(&self) {
        if let Object::Alg(socket) = self {
            socket.join();
        }
    }

    /// The address of the sender of received data: none, or the kernel's.
    pub(super) fn sender(&self) -> Option<SockaddrNl> {
        match self {
            Object::Alg(_) => None,
            Object::Netlink(_) => Some(netlink_address(0)),
        }
    }
}

/// The netlink address of a port; 0 is the kernel.
pub(super) fn netlink_address(port: u32) -> SockaddrNl {
    SockaddrNl { nl_family: AF_NETLINK as u16, nl_pad: 0, nl_pid: port, nl_groups: 0 }
}
