//! IPsec without I/O: packets of Linux, limits, and two ends.

mod burst;
mod congestion;
mod ends;
mod hex;
mod iptfs;
mod linux;
mod outer;
mod partial;
mod phases;
#[path = "../../../wire/tests/it/random.rs"]
mod random;
mod sad;
mod spd;
