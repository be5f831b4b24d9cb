//! `sealane doctor`: what this machine has, blocks or lacks, for the programs on it that Sealane can serve.
//!
//! [`Facts`] are gathered by reading files and by questions to the kernel that load no module: no socket of AF_ALG or
//! NETLINK_XFRM is opened, and no device. [`Report::new`] judges them and does no I/O. The texts of others (modprobe.d,
//! lists of modules, units, sysctl.d) are parsed by pure functions: [`modprobe`], [`modules`], [`sections`],
//! [`sysctl`]. No file is read that holds keys, except the daemon's own configuration, of which no secret is kept.
//! A keeper of keys is asked whether the daemon may use those that the configuration names.
//! [`adopt`] has the drop-in that puts a unit under Sealane.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod adopt;
mod facts;
mod files;
mod finding;
mod keeper;
mod lines;
pub mod modprobe;
pub mod modules;
mod programs;
mod report;
mod rules;
pub mod sections;
pub mod sysctl;

pub use facts::{Configuration, Daemon, Facts, Lacks, Live};
pub use finding::{Fact, Finding, Id, Level};
pub use keeper::{Keeper, LackingKey, Seen};
pub use report::Report;

#[cfg(test)]
mod tests;
