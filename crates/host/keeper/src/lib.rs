//! `sealane keeper`: a process that holds keys, and computes with them for others.
//!
//! - [`key`]: a key with its rules and versions; [`seal`] and [`store`]: keys at rest; [`counters`]: what has gone through them;
//! - [`private`]: private keys, and the thread that makes RSA's;
//! - `prepared`: symmetric keys that are ready for use; [`wrapped`]: keys of programs, and `composed`, a bound on their algorithms;
//! - [`streams`]: MACs of messages in pieces;
//! - [`service`]: who may do what, and the computation; [`audit`]: the log of it. Both read no clock and no socket;
//! - [`server`]: the socket and its clients; [`mod@run`] the process, by its [`config`].
//!
//! `sealane_keeper_client` has the other end, and what both tell each other.
//!
//! Messages come over sockets, and through memory that is shared with clients: the same ones, to the same [`service`].
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod audit;
mod composed;
pub mod config;
pub mod counters;
pub mod key;
mod prepared;
pub mod private;
pub mod run;
pub mod seal;
pub mod server;
pub mod service;
pub mod store;
pub mod streams;
pub mod wrapped;
