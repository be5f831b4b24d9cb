//! Packet headers: parsing, editing and checksums.

pub mod extension;
pub mod forward;
pub mod gre;
pub mod gso;
pub mod ip;
pub mod outer;
pub mod proto;
pub mod tcp;
pub mod walk;
