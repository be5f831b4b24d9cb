//! Random calls on TCP sockets with TCP-AO's options.
//!
//! `ao-calls` makes them in a real kernel ([`generate`], [`plan`], [`perform`]) and writes for each call what was true of
//! the socket before it ([`facts`]) and what the kernel answered. The test `tcp_ao` gives the same calls with the same
//! facts to `sealane_engine_ao` and compares the answers.

pub mod facts;
pub mod generate;
pub mod perform;
pub mod plan;
pub mod rle;
