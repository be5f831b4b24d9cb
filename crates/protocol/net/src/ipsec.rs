//! IPsec as Linux has it (`net/xfrm`): ESP (RFC 4303), AH (RFC 4302), ESP in UDP (RFC 3948), security associations and
//! policies (RFC 4301).
//!
//! Control, top to bottom: [`transform`] resolves the kernel's algorithm names once and prepares keys; [`sa`] is a security
//! association, [`sad`] the database of them, by handle, by what an inbound packet names, by what a policy's template asks
//! for; [`selector`] and [`spd`] say which traffic needs which.
//!
//! Data: [`seal`] and [`open`] take bursts of packets, each lying in a buffer with room around it ([`packet`]), through
//! three steps: what depends on state (sequence number, window, lifetime), one [`burst`] of crypto over many associations, and
//! what only an authentic packet may change. The second needs no tables and may be run elsewhere. [`encap`] and [`decap`] are the modes, [`ah`] what AH covers, [`replay`] the
//! window, [`seq`] the sequence numbers that are never used twice, [`lifetime`] the limits, [`mtu`] the overhead, [`icmp`] what is told about it.
//! A packet that fails gets one [`drop::DropReason`]; what a key manager must hear of is an [`event::Event`].

pub mod ah;
pub mod burst;
pub mod decap;
pub mod drop;
pub mod encap;
pub mod event;
pub mod icmp;
mod id;
mod index;
pub mod lifetime;
pub mod mtu;
pub mod open;
pub mod packet;
mod prebuilt;
pub mod replay;
pub mod sa;
pub mod sad;
pub mod seal;
pub mod selector;
pub mod seq;
pub mod spd;
pub mod transform;
