//! Sealane against Linux itself.
//!
//! `alg-sequence` makes random AF_ALG calls from a seed ([`generate`], [`plan`], [`perform`]) and writes a line for
//! each ([`sequences`]). `diff-alg` runs it in a real kernel and under `sealane run`, compares the two transcripts
//! ([`transcript`]) and shrinks the sequences that differ ([`shrink`]). [`target`] runs a program in either place.
//! [`ao`] does the same for TCP-AO's socket options. [`lab`] puts kernels and namespaces behind wires, and [`ipsec`]
//! gives them states and policies; [`spaces`] has a daemon that serves some by patterns of their names. [`recorded`] keeps
//! the answers to sequences that never change.
#![deny(unsafe_code)]

pub mod ao;
pub mod differ;
pub mod generate;
pub mod ipsec;
pub mod keeper;
pub mod keyring;
pub mod lab;
pub mod names;
pub mod perform;
pub mod plan;
pub mod recorded;
pub mod rng;
pub mod sequences;
pub mod shrink;
pub mod skip;
pub mod spaces;
pub mod summary;
pub mod sys;
pub mod target;
pub mod transcript;
