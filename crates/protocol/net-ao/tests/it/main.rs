//! TCP-AO without I/O: vectors of the RFCs, limits, and two ends.

mod common;
mod decisions;
mod macs;
mod observe;
#[path = "../../../wire/tests/it/random.rs"]
mod random;
mod segments;
mod table;
mod two_ends;
mod vectors;
