//! Network protocols with keys, without I/O: what a packet says, which key it needs, what becomes of it.
//!
//! - [`wire`]: IP and TCP headers as views over bytes;
//! - [`ipsec`]: ESP and AH (RFC 4301 to 4303, 3948), from association and policy to sealed packet;
//! - [`ao`]: TCP-AO (RFC 5925, 5926, 9187), from master key to signed segment.
//!
//! Nothing here knows an errno, a socket or a clock; `engine` does. Nothing allocates for a packet, except for segments
//! outside of established connections, whose traffic key is derived and thrown away.
#![forbid(unsafe_code)]

pub mod ao;
pub mod ipsec;
pub mod wire;
