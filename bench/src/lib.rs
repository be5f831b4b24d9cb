//! Shared parts of the benches: reports, and AF_ALG as a program uses it.

pub mod af_alg;
pub mod report;
