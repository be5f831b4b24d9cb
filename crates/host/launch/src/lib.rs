//! The launcher, `sealane run -- PROGRAM`.
//!
//! - [`run`]: runs a program with the preloaded library, and serves what goes around it;
//! - [`keys`]: the place of a program's keys;
//! - [`audit`]: the counters that a launched program and its children share;
//! - `serve`: the engines in the launcher, for programs that no preloaded library reaches.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod audit;
mod guard;
pub mod keys;
mod ready;
mod reaper;
pub mod run;
mod serve;
