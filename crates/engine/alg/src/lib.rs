//! The kernel's crypto sockets as state machines.
//!
//! - [`alg`]: AF_ALG, a [`Socket`] for each descriptor;
//! - [`crypto_user`]: NETLINK_CRYPTO, a [`CryptoUser`] for each descriptor;
//! - [`procfs`]: the text of `/proc/crypto`;
//! - [`front`]: the calls of a program on a descriptor of either;
//! - [`catalog`]: the names of the imitated kernel's algorithms;
//! - [`system`] and [`host`]: the state that all sockets share, and the services that they need from outside;
//! - [`audit`]: counters of the algorithms that programs use;
//! - [`image`]: the state of a socket as plain bytes.
//!
//! The crate opens nothing, reads no clock and sleeps only by the [`Task`] that makes a call. Processes that have copies of a socket
//! keep them in step by their [`image`]s.
#![forbid(unsafe_code)]

pub mod alg;
pub mod audit;
pub mod catalog;
pub mod crypto_user;
pub mod front;
pub mod host;
pub mod image;
mod options;
pub mod procfs;
mod rules;
pub mod system;

pub use alg::{Received, SendMsg, Socket};
pub use crypto_user::CryptoUser;
pub use host::{Call, Event, Host, KeyringKey, NetDefaults, Observer, Task};
pub use procfs::proc_crypto;
pub use sealane_abi::poll::PollMask;
pub use sealane_abi::socket::{is_device_ioctl, is_generic_ioctl};
pub use sealane_abi::{Caller, Errno, Profile};
pub use system::System;
