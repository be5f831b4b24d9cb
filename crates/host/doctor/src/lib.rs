//! A machine's state for Sealane (what it has, blocks and lacks), and units of systemd that run under it.
//!
//! - [`examine`] gathers [`Facts`]: files below a root folder, and questions to the kernel. It changes nothing.
//! - [`findings()`] is a pure function of the facts: what is wrong, and the commands that help.
//! - [mod@unit] reads units of systemd as systemd does, and [`adopt`] writes the drop-in that puts a unit under `sealane run`.
//!
//! Everything here reads files of others: a line that it does not understand is passed over.
#![forbid(unsafe_code)]

pub mod adopt;
mod facts;
mod findings;
mod gather;
mod modules;
mod programs;
pub mod unit;

pub use facts::{
    Configuration, Facts, Kernel, Module, ModuleState, Networkd, Outcome, Process, Program, Service, UnitFact,
};
pub use findings::{Finding, Level, findings};
pub use gather::examine;
pub use programs::Need;
