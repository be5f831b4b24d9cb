//! The object behind a descriptor.

use crate::alg::Family;
use crate::image::{Malformed, Reader, Writer};
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

    /// Begins to keep what other processes that have the socket need, or ends it.
    pub fn share(&self, on: bool) {
        if let Object::Alg(socket) = self {
            socket.share(on);
        }
    }

    /// Writes its state into an image; see [`Socket::save`].
    pub fn save(&self, image: &mut Writer) {
        match self {
            Object::Alg(socket) => socket.save(image),
            Object::Netlink(socket) => socket.save(image),
        }
    }

    /// Takes its state from an image; see [`Socket::load`].
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn load(&self, image: &mut Reader<'_>, sender_gone: &dyn Fn() -> bool) -> Result<(), Malformed> {
        match self {
            Object::Alg(socket) => socket.load(image, sender_gone),
            Object::Netlink(socket) => socket.load(image),
        }
    }

    /// The transform of an AF_ALG socket; see [`Socket::family`].
    pub fn family(&self) -> Option<Family<L>> {
        match self {
            Object::Alg(socket) => Some(socket.family()),
            Object::Netlink(_) => None,
        }
    }

    /// Whether it draws from its transform; see [`Socket::leans`].
    pub fn leans(&self) -> bool {
        matches!(self, Object::Alg(socket) if socket.leans())
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
