//! The engine against what real kernels were seen to do.

mod common;
mod names;
mod probe;
