//! NETLINK_XFRM as a state machine (`net/xfrm/xfrm_user.c`, `xfrm_state.c`, `xfrm_policy.c` of Linux 7.3): one [`Xfrm`]
//! for each network namespace.
//!
//! The configuration of a key manager is kept as it was given ([`state`], [`policy`]) and reported back byte for byte;
//! the data that packets need is in `sealane_net_ipsec`, under a handle. The two change together. A state that this
//! version keeps but cannot use (Mobile IPv6's) has no handle: no packet ever finds it, and a policy that requires it
//! blocks.
//!
//! [`Xfrm::call`] takes a datagram and gives the datagrams to answer with, and events for multicast groups;
//! [`Xfrm::handle_timeout`] gives the events of time.
#![forbid(unsafe_code)]

mod acquire;
mod add;
mod aevent;
mod aevent_notify;
mod aevents;
mod ahead;
mod burst;
mod call;
mod changes;
mod convert;
pub mod data;
mod defaults;
pub mod device;
mod devices;
mod dump;
mod expire;
mod find;
mod fragments;
mod ipcomp;
mod iptfs;
mod keepalive;
mod kept;
mod lease;
mod migrate;
mod namespace;
mod nat_keepalive;
pub mod numbers;
mod offload;
mod output_mark;
pub mod packet;
mod packets;
mod partial;
mod policies;
mod policy;
mod policy_calls;
mod proc;
mod rate_calls;
mod rates;
mod replay;
mod reply;
mod scratch;
mod serial;
mod settings;
mod spi;
mod state;
mod state_limits;
mod state_message;
mod states;
mod time;
mod timers;
mod tunnel_spis;
mod verify;
mod vti;
mod vti_calls;

#[cfg(test)]
mod tests;

pub use keepalive::Keepalive;
pub use kept::{Record, Recorder};
pub use namespace::{Random, Setup, Xfrm};
pub use output_mark::OutputMark;
pub use proc::proc_xfrm_stat;
pub use rates::RateRule;
pub use reply::{Notice, Replies, Sender};
pub use time::Now;
pub use vti::VtiKeys;
