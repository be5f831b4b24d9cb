//! The TCP-AO rules of one network namespace, in tables of our own. With 192.0.2.1 and 198.51.100.0/24 as peers, a known
//! connection, and a flow of the fast path at eth0:
//!
//! ```text
#![doc = include_str!("ao/picture.txt")]
//! ```
//!
//! Queue 1 is that of what leaves, 2 that of known connections, 3 that of newcomers, and 4 that of strangers. A queue without a
//! listener drops, so nothing passes while no daemon runs. What leaves by a VRF is not queued the first time: it comes to
//! `output` again, for a device of the VRF. What an ingress chain drops has been seen by the device's ring before this hook.
//!
//! On kernels that support it (6.9), the table is owned by this socket and persists without it: nobody else's
//! `nft flush ruleset` affects it, and after a crash it stays in place for the next daemon. On older kernels an owned table
//! goes with its owner's socket, so that another one without an owner, `sealane-guard`, has the same sets and chains right
//! after: they drop segments of peers that the first table has not judged. It takes a flush and the end of everybody who has
//! the socket to remove both.
//!
//! Prefixes are in sets of intervals, of which the kernel shows packets nothing for a moment while a transaction puts others in their
//! place. `sealane-cover`, of the same kind as the guard, is there meanwhile.

mod chains;
mod connections;
mod left;
mod peer_table;
mod peers;
mod tables;

pub use chains::Options;
pub use connections::{Connection, Flow};
pub use left::left;
pub use peer_table::{MAX_KNOWN, PeerTable};

#[cfg(test)]
mod given_back;
#[cfg(test)]
mod judged;
#[cfg(test)]
mod queues;
#[cfg(test)]
mod tests;
