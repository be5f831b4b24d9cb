//! The kernel's crypto sockets as state machines.
//!
//! - [`alg`]: AF_ALG, a [`Socket`] for each descriptor;
//! - [`crypto_user`]: NETLINK_CRYPTO, a [`CryptoUser`] for each descriptor;
//! - [`procfs`]: the text of `/proc/crypto`;
//! - [`xfrm`]: NETLINK_XFRM, an [`xfrm::Xfrm`] for each network namespace;
//! - [`profile`] and [`catalog`]: which kernel is imitated, and what it calls its algorithms;
//! - [`system`] and [`host`]: what all sockets share, and what they need from outside.
//!
//! The crate opens nothing, reads no clock and sleeps only through its [`Host`]. Objects may live in memory that several
//! processes share: locks are the caller's [`lock_api::RawMutex`], and everything else that changes is an atomic.
#![forbid(unsafe_code)]

pub mod alg;
pub mod audit;
pub mod catalog;
pub mod crypto_user;
pub mod host;
mod options;
mod packer;
pub mod procfs;
pub mod profile;
pub mod system;
pub mod tcp_ao;
pub mod xfrm;

pub use alg::{Received, SendMsg, Socket};
pub use crypto_user::CryptoUser;
pub use host::{Call, Caller, Event, Host, NetDefaults, Observer};
pub use procfs::proc_crypto;
pub use profile::Profile;
pub use sealane_abi::Errno;
pub use sealane_abi::poll::PollMask;
pub use sealane_abi::socket::{is_device_ioctl, is_generic_ioctl};
pub use system::System;
