//! What the benches share: rounds in turns, medians, CPU time, and AF_ALG as a program uses it.

pub mod af_alg;
pub mod report;
pub mod turns;
