//! Rules of nftables as data. A chain is a function from a plain description to a list of rules, and a rule a list of steps
//! ([`rule`]). The same value
//!
//! - is printed ([`table::Table`] by `Display`), as in the documentation of [`ipsec`], [`late`], [`ingress`] and [`ao`],
//! - is written in one transaction ([`transaction`]), only where it differs from before,
//! - is compared with what the kernel tells ([`told`]),
//! - and is evaluated by tests on packets that they make (`eval`).
//!
//! The system calls are [`sealane_sys`]'s; this crate decides nothing about keys, policies or connections. It is told what is
//! wanted: prefixes of peers ([`ao::PeerTable`]), policies ([`ipsec::Wanted`]), flows of a device ([`ingress::EspFlow`]).

#![forbid(unsafe_code)]

pub mod ao;
mod encode;
#[cfg(any(test, feature = "testing"))]
pub mod eval;
pub mod field;
pub mod ingress;
pub mod ipsec;
mod key;
pub mod late;
mod nfta;
pub mod rule;
mod show;
pub mod table;
pub mod told;
pub mod transaction;
pub mod value;
pub mod watch;
