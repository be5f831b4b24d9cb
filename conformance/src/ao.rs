//! Random calls on TCP sockets with TCP-AO's options.
//!
//! `ao-calls` makes them in a real kernel ([`generate`], [`plan`], [`perform`]) and writes for each call the facts
//! about the socket before it ([`facts`]) and the kernel's answer. The test `tcp_ao` passes the same calls with the
//! same facts to the engine and compares the answers.

pub mod facts;
pub mod generate;
pub mod perform;
pub mod plan;
pub mod rle;
