//! CPU instructions that the compiler does not choose by itself: prefetches, and vectors to sum words with.
//!
//! The crate depends on nothing, so that `crypto` and `net` can use it without knowing each other's needs.

mod prefetch;
pub mod sum;

pub use prefetch::prefetch;
