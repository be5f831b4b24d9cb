//! The socket options of TCP-AO (`net/ipv4/tcp_ao.c`), and what TCP-MD5 and connect() have to do with them.
//!
//! A [`Namespace`] holds the sockets of one network namespace that ever used TCP-AO or TCP-MD5. Intercepted calls are
//! handed over with the facts about the socket at that moment ([`SocketFacts`]), and answered as the imitated kernel
//! would. All state of a socket lies in its [`AoInfo`](sealane_net_ao::info::AoInfo), which the data path shares.
//!
//! ```text
//! setsockopt ─▶ tcp.c's checks ─▶ add · del · info · repair ─▶ AoInfo ◀─ data path
//! getsockopt ─▶ tcp.c's checks ─▶ keys · info · repair ─▶ Answer
//! connect ────▶ connect(): allowed? ─▶ the kernel's own ─▶ connect_done(): its result
//! TCP_MD5SIG ─▶ md5_setsockopt(): allowed? ─▶ the kernel's own ─▶ remembered without its key
//! ```
#![forbid(unsafe_code)]

mod add;
mod configured;
mod connect;
mod connecting;
mod del;
mod desk;
mod drops;
mod facts;
mod flows;
mod icmp;
mod info;
mod isns;
mod kept;
mod keys;
mod md5;
mod md5_keys;
mod namespace;
pub mod netstat;
mod process;
mod repair;
mod rules;
mod saved;
mod snapshot;
mod sockopt;
mod user;

pub use configured::{ConfiguredKey, ConfiguredPeer, SavedConnection};
pub use connect::Accepted;
pub use connecting::Keys;
pub use desk::{Desk, Failing, Hurry, Resting};
pub use facts::{Family, Interfaces, NoVrfs, RepairSeqs, SocketFacts, SocketId};
pub use flows::{Ends, Found, Kernel, MAX_HALF_OPEN, Target, Track};
pub use icmp::{hide_from_sockets, icmp_error, is_icmp};
pub use kept::{Change, KeptConnect, KeptSocket};
pub use md5_keys::Md5Key;
pub use namespace::{Namespace, OPTMEM_MAX};
pub use process::inbound::VerifyBurst;
pub use process::outbound::{Piece, SignBurst};
pub use process::{Derive, Inbound, Located, Outbound, Verdict};
pub use snapshot::Snapshot;
pub use user::{Answer, Write};
