//! The client of a keeper of keys, and all that clients and keepers tell each other.
//!
//! - [`key`]: names, rules and uses of keys;
//! - [`message`]: requests and replies, over [`codec`];
//! - [`client`]: the side of a client.
//!
//! It lives in other people's processes, too: it has few dependencies, and neither keys at rest nor drivers.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod client;
pub mod codec;
pub mod key;
pub mod message;

pub use codec::Malformed;
