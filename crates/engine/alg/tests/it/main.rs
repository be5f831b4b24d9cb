//! AF_ALG, NETLINK_CRYPTO and /proc/crypto against what real kernels were seen to do.

mod common;
mod failing;
mod front;
mod home;
mod images;
mod kernels;
mod names;
mod netlink;
mod probe;
mod robust;
mod sharing;
