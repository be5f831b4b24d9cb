//! The client of a keeper of keys, and all that clients and keepers tell each other.
//!
//! - [`key`]: names, rules and uses of keys; [`mod@reference`]: keys as operations name them;
//! - [`message`] and [`reply`]: requests and replies, over [`codec`], with their [`limits`]; [`text`]: the same around a text;
//! - [`client`]: the side of a client; [`pool`]: the same from inside a process that is somebody else's, over several of its [`connection`]s;
//!   [`lane`]: requests through shared memory;
//! - [`home`]: algorithms of the crypto core, computed by a keeper; `held`: messages in pieces, which it holds; `stream`: MACs of them,
//!   `pieces`: AEADs;
//! - [`uri`]: keys as OpenSSL names them.
//!
//! It lives in other people's processes, too: it has few dependencies, and neither keys at rest nor drivers.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod client;
pub mod codec;
pub mod connection;
mod held;
pub mod home;
pub mod key;
pub mod lane;
pub mod limits;
mod listener;
pub mod message;
mod pieces;
pub mod pool;
pub mod reference;
pub mod reply;
mod stream;
pub mod text;
pub mod uri;

pub use codec::Malformed;
