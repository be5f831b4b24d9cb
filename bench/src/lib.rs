//! Shared parts of the benches: reports, a keeper of keys, and AF_ALG as a program uses it.

pub mod af_alg;
pub mod keeper;
pub mod report;
