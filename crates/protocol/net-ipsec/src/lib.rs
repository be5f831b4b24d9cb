//! IPsec as Linux has it (`net/xfrm`): ESP (RFC 4303), AH (RFC 4302), ESP in UDP (RFC 3948), security associations and
//! policies (RFC 4301), IPComp (RFC 3173) within them.
//!
//! Control path, top to bottom: [`transform`] resolves the kernel's algorithm names once and prepares keys; [`sa`] is a
//! security association and [`sad`] their database, indexed by handle, by the fields of inbound packets and by those of
//! policy templates; [`selector`] and [`spd`] select the traffic to protect.
//!
//! Data path: [`seal`] and [`open`] take bursts of packets, each in a buffer with room around it ([`packet`]), through
//! three phases: `begin` does everything that depends on state (sequence number, window, lifetime), [`burst`] runs the
//! crypto for many associations at once, and `end` applies the changes that only an authentic packet may cause. The
//! second phase needs no tables and may run elsewhere. [`encap`] and [`decap`] implement the modes, [`ah`] the fields
//! that AH covers, [`partial`] those of partial MACs, [`tcp`] the messages of a stream, [`comp`] the compression of a
//! payload, [`iptfs`] several packets in one, [`replay`] the window, [`seq`] sequence numbers that are never used twice,
//! [`lifetime`] the limits, [`mtu`] the overhead and [`icmp`] path MTU discovery. A dropped packet has one
//! [`drop::DropReason`]; an [`event::Event`] is a message for the key manager.
//!
//! The crate knows no errno, socket or clock; the engine does. It allocates nothing per packet, except for packets that IP-TFS
//! takes apart and for those that outgrow their buffer when they are inflated.
#![forbid(unsafe_code)]

pub mod ah;
pub mod burst;
mod carrier;
pub mod comp;
pub mod decap;
pub mod drop;
pub mod encap;
pub mod event;
pub mod icmp;
mod id;
mod index;
pub mod iptfs;
pub mod lifetime;
pub mod mtu;
pub mod open;
pub mod packet;
pub mod partial;
mod prebuilt;
pub mod progress;
pub mod replay;
pub mod sa;
pub mod sad;
pub mod seal;
pub mod selector;
pub mod seq;
pub mod spd;
pub mod tcp;
pub mod transform;
