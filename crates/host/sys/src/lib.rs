//! Safe wrappers of the system calls that the daemon and the launcher make. Of their crates, only this one and `sealane-packets` have
//! unsafe code.
//!
//! - Served programs: `process` (start and wait), `loader` (what programs take a library), `seccomp` (the filter and its
//!   notifications), `older_filters` (those of containers and units), `thread` (a caller's memory and descriptors),
//!   `proc_folder` (files about a process that it names), `peer` (its stand-ins), `rights` (its capabilities), `gone` (when its files are closed), `keys` (keyrings).
//! - A process of ours that serves others: `confine` (what it cannot do any more).
//! - Memory and threads: `mapping`, `slots` (shared with a client of ours), `cpu`, `sleep`, `poll`, `life` (threads that hang), `aside` (jobs that a worker
//!   cannot wait for), `clock`, `random`.
//! - Sockets: `socket` (of any kind), `tcp_socket` (a program's), `sock_diag` (the kernel's tables), `usersock` (netlink between
//!   programs), `unix`, `stream` (a key manager's TCP connection with IKE and ESP), `cbpf` (programs that filter what a socket gets).
//! - Network configuration: `netlink` (messages), `netns` and `named_netns` (namespaces), `link` and `ethtool` (devices), `vrf`, `families`, `route`
//!   (rules, routes, the ways of flows, addresses), `hops` (next hops and neighbours), `marks` (of packets). Packets themselves are in the
//!   crate `sealane-packets`.
//! - Errors that pass by themselves: `transient`.
//! - Files: `runtime` (the folder for sockets and state), `presence` (which namespaces are served).
//! - Namespaces that come and go: `found` (those that are served because their names match a pattern).

pub mod aside;
pub mod cbpf;
pub mod clock;
pub mod confine;
pub mod cpu;
pub mod ethtool;
pub mod families;
pub mod forks;
pub mod found;
pub mod gone;
pub mod hops;
pub mod interrupt;
pub mod keys;
pub mod life;
pub mod link;
pub mod listening;
pub mod loader;
pub mod mapping;
pub mod marks;
pub mod named_netns;
pub mod netconf;
pub mod netlink;
pub mod netns;
pub mod noted_calls;
pub mod older_filters;
pub mod peer;
pub mod poll;
pub mod presence;
pub mod proc_folder;
pub mod process;
pub mod random;
mod refusal;
pub mod release;
pub mod rights;
pub mod route;
pub mod runtime;
pub mod seccomp;
pub mod sleep;
pub mod slots;
pub mod sock_diag;
pub mod socket;
pub mod stream;
pub mod tcp_socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod thread;
pub mod transient;
pub mod unix;
pub mod usersock;
pub mod vrf;
pub mod vti;

/// A mask of the upper `len` of 128 bits; all bits if `len` is larger.
pub fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}
