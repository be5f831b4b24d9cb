//! The fast path of ESP and AH past the stack: out behind a link header that the stack gave, in from the ring of a
//! device.

pub(crate) mod fast_in;
pub(crate) mod fast_out;
pub(crate) mod rings;
