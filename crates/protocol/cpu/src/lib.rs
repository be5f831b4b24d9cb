//! CPU instructions that the compiler does not choose by itself: prefetches, vectors to sum words with, and the wiping of registers.
//!
//! The crate depends on nothing, so that `crypto` and the protocols can use it without knowing each other's needs.

mod prefetch;
mod registers;
pub mod sum;

pub use prefetch::prefetch;
pub use registers::wipe_registers;
