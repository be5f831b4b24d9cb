//! Headers as they lie in a packet.

pub mod gso;
pub mod ip;
pub mod tcp;
pub mod walk;
