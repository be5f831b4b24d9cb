//! Sealane against Linux itself.
//!
//! `alg-sequence` makes random calls of AF_ALG from a seed ([`generate`], [`plan`], [`perform`]) and writes one line for
//! each ([`sequences`] it is asked for); `diff-alg` runs it in a real kernel and under `sealane run`, compares ([`transcript`]) and shrinks what differs
//! ([`shrink`]). [`target`] knows how to run a program in either place. [`ao`] does the like for TCP-AO's socket options.
//! [`lab`] puts both behind wires, [`ipsec`] lets them agree on states.
#![deny(unsafe_code)]

pub mod ao;
pub mod differ;
pub mod generate;
pub mod ipsec;
pub mod lab;
pub mod names;
pub mod perform;
pub mod plan;
pub mod rng;
pub mod sequences;
pub mod shrink;
pub mod skip;
pub mod summary;
pub mod sys;
pub mod target;
pub mod transcript;
