//! The launcher, `sealane run -- PROGRAM`.
//!
//! - [`run`]: runs a program with the preloaded library, and serves what goes around it;
//! - [`audit`]: the counters that a launched program and its children share;
//! - `serve`: the engines in the launcher, for programs that no preloaded library reaches.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod audit;
mod guard;
mod reaper;
pub mod run;
mod serve;
