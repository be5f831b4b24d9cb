//! IPsec's data path: threads that move packets between a TUN device and the wire, past the stack where that is possible,
//! and between the interfaces of a gateway.
//!
//! ```text
//!  stack ─ TUN ─▶ outbound: cut, seal in bursts ─▶ ESP in UDP by superframes, or raw ESP ─▶ wire
//!  stack ◀─ TAP ─ join ◀─ open in bursts, check policies ◀── sockets of ESP, rings ◀─────── wire
//!  lan ── AF_XDP ─▶ Gateway ─ AF_XDP ─▶ wan
//! ```
//!
//! Somebody else makes a [`Shared`] of an engine, leads packets to the TUN device by rules, answers requests, and runs the
//! workers in threads. This crate changes of the stack's what follows from packets: routes with a narrower MTU, the table and the XDP
//! programs by which packets of ESP come past the stack. It writes no file and asks nobody to keep anything.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bypass;
mod cores;
mod counters;
mod doorbell;
mod entrance;
mod errand;
mod flight;
mod gates;
mod gateway;
mod groups;
mod inbound;
mod join;
mod kernel_states;
mod lane;
mod late;
mod outbound;
mod ports;
mod ready;
mod receiver;
mod routes;
mod run;
mod shared;
mod sockets;
mod stack;
mod streams;
mod tables;
mod wire;
mod worker;

pub use cores::{CoreCounts, DeviceTables};
pub use entrance::Entrances;
pub use errand::Errand;
pub use gates::{Gate, Gates};
pub use gateway::Gateway;
pub use kernel_states::KernelStates;
pub use late::LateWay;
pub use shared::{Publish, Settings, Shared};
pub use streams::Streams;
pub use worker::{Worker, WorkerHandle};

#[cfg(test)]
mod tests;
