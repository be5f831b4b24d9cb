//! Packet headers: parsing, editing and checksums.
//!
//! Headers are views over the bytes of their packet, and nothing is allocated. [`ip`] finds a TCP segment in an IP packet and
//! has the checksums, [`tcp`] its fields and options; [`walk`] goes over the headers of any packet, and [`extension`] over
//! those of IPv6. [`outer`] describes headers that are not in a buffer, [`gre`] and [`proto`] have numbers. [`gso`] cuts
//! superframes, [`forward`] does what a router does to a packet.
#![forbid(unsafe_code)]

pub mod extension;
pub mod forward;
pub mod gre;
pub mod gso;
pub mod ip;
pub mod outer;
pub mod proto;
pub mod tcp;
pub mod walk;
