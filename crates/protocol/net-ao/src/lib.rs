//! TCP-AO: the TCP Authentication Option (RFC 5925) as Linux has it (`net/ipv4/tcp_ao.c`).
//!
//! Control path: [`alg`] resolves algorithm names once; [`mkt`] is a master key tuple (MKT); [`table`] is the list of
//! keys that a socket owns; [`info`] adds the current and rnext key, counters and, once the peer is known, the
//! connection.
//!
//! Data path: [`input`] and [`output`] choose the key for a segment of an [`endpoint`] ([`kdf`] derives traffic keys,
//! [`traffic`] has them derived where master keys are elsewhere, [`sne`] extends sequence numbers), [`mac`] signs and verifies
//! bursts across connections, [`segment`] edits, cuts and joins segments. A segment that fails gets one [`drop::DropReason`].
//!
//! Tools: [`observe`] verifies and signs the segments of a capture; [`diagnose`] finds out why a MAC does not match.
//!
//! The crate knows no errno, socket or clock; the engine does. It allocates nothing per segment, except outside of established
//! connections, where a traffic key is derived for one segment alone.
#![forbid(unsafe_code)]

pub mod alg;
pub mod diagnose;
pub mod drop;
pub mod endpoint;
pub mod info;
pub mod input;
pub mod kdf;
pub mod mac;
pub mod mkt;
pub mod observe;
pub mod output;
pub mod segment;
pub mod sne;
pub mod table;
pub mod traffic;
