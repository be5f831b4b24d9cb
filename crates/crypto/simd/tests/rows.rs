//! Every SIMD row that this CPU has, against RustCrypto: all lengths, any pieces, any mix of keys and lengths in a
//! burst, buffers that end at an unmapped page.

#[path = "rows/aeads.rs"]
mod aeads;
#[path = "rows/ciphers.rs"]
mod ciphers;
#[path = "rows/common.rs"]
mod common;
#[path = "rows/macs.rs"]
mod macs;
