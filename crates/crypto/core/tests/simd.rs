//! Every SIMD row that this CPU has, against RustCrypto: all lengths, any pieces, any mix of keys and lengths in a
//! burst, buffers that end at an unmapped page.

#[path = "simd/ciphers.rs"]
mod ciphers;
#[path = "simd/common.rs"]
mod common;
#[path = "simd/macs.rs"]
mod macs;
