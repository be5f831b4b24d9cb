//! TCP-AO on this host: an engine and a data path for each network namespace in which a key was ever added.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod burst;
pub mod calls;
mod configured;
mod counters;
mod covered;
mod fast;
mod finder;
mod homes;
pub mod kept;
mod leftover;
mod older;
mod path;
mod patterns;
mod programs;
mod protected;
pub mod remote;
mod served;
mod space;
mod start;
mod state;
mod tables;
mod transmit;
mod worker;

pub use configured::{Configured, Error, Prepared};
pub use finder::{Finder, Missing, References};
pub use homes::{FindKey, FoundKey, KeyHomes};
pub use protected::KeyGuard;
pub use space::{Space, Spaces};
pub use start::clear;
