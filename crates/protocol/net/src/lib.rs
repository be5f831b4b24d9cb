//! Network protocols that authenticate or encrypt, without I/O: parsing of packets, choice of keys, verdicts.
//!
//! - [`wire`]: IP and TCP headers as views over bytes;
//! - [`ipsec`]: ESP and AH (RFC 4301 to 4303, 3948), from associations and policies to sealed packets;
//! - [`ao`]: TCP-AO (RFC 5925, 5926, 9187), from master keys to signed segments.
//!
//! This crate knows no errno, socket or clock; the engines do. It allocates nothing per packet, except for segments
//! outside of established connections, whose traffic key is derived for that segment alone.
#![forbid(unsafe_code)]

pub mod ao;
pub mod ipsec;
pub mod wire;
