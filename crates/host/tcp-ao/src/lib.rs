//! TCP-AO on this host: an engine and a data path for each network namespace in which a key was ever added.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod burst;
mod configured;
mod counters;
mod covered;
mod fast;
mod leftover;
mod path;
mod protected;
mod space;
mod start;
mod state;
mod tables;
mod transmit;
mod worker;

pub use configured::{Configured, Error};
pub use protected::KeyGuard;
pub use space::{Space, Spaces};
pub use start::clear;
