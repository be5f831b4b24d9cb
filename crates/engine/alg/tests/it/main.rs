//! The engine against what real kernels were seen to do.

mod common;
mod names;
mod netlink;
mod probe;
mod robust;
mod sharing;
mod tcp_ao;
mod tcp_ao_flows;
