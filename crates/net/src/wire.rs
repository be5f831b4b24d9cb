//! Headers as they lie in a packet.

pub mod ip;
pub mod tcp;
pub mod walk;
