//! Packet headers, as other crates see them.

mod extension;
mod random;
