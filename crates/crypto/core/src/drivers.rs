//! The drivers of this crate. Those that link a C library have crates of their own (`crypto-awslc`, `crypto-ipsecmb`).

pub mod null;
pub mod portable;
pub mod simd;
