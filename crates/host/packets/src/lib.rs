//! Packets from the kernel and to it, by safe wrappers of system calls.
//!
//! - Through the stack: `nfqueue` (queued packets and their verdicts), `raw` (sending), `tun` (plaintext of IPsec), `tap`,
//!   `incoming` and `bpf` (returning packets to the stack), `outgoing` (packets that are about to leave), `esp` (ESP and AH, plain and in
//!   UDP), `shard` (distribution over workers), `udp_group` (ports shared with key managers) by `udp_table` (the kernel's table of them).
//! - Past the stack: `ring` (receiving from a device), `frames` (sending), `fast_path` (which flows use them), and for gateways `xdp` (the
//!   program that selects frames) and `xsk` (the sockets that get them).

pub mod bpf;
pub mod esp;
pub mod fast_path;
pub mod frames;
pub mod incoming;
pub mod nfqueue;
pub mod outgoing;
pub mod raw;
pub mod ring;
mod sent;
pub mod shard;
pub mod tap;
pub mod tun;
pub mod udp_group;
pub mod udp_table;
pub mod xdp;
pub mod xsk;
