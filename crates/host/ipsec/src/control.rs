//! The control path: NETLINK_XFRM's daemon end, policies as rules of nftables, and the threads of the data path.

pub(crate) mod keepalive;
pub(crate) mod kept;
mod late;
pub(crate) mod listeners;
pub(crate) mod numbers;
pub(crate) mod path;
pub(crate) mod policies;
pub(crate) mod questions;
pub(crate) mod socket;
pub(crate) mod space;
pub(crate) mod vti;
