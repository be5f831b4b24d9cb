//! `linux/xfrm.h` of Linux 7.3: NETLINK_XFRM, the interface of IPsec.
//!
//! A message consists of a [`Body`], which is one fixed structure, and [`Attribute`]s. It can be read in two ways:
//! [`Request`] reads like the kernel, one attribute at a time and the last of each kind, so that an engine can refuse
//! things in the kernel's order; [`XfrmMessage`] is the whole message in its own order, for key managers and for answers.
//!
//! Numbers are in host order except SPIs and ports, whose types say so. Structures include their padding, because the
//! kernel returns the padding that it received. Keys are wiped and have no `Debug`, and neither has anything that
//! contains them.

mod attr;
mod common;
mod dump;
mod key;
mod layout;
mod message;
mod payload;
mod policy;
mod reason;
mod state;

pub use attr::*;
pub use common::*;
pub use dump::*;
pub use key::*;
pub use message::*;
pub use policy::*;
pub use reason::*;
pub use state::*;

/// Group of events: acquire.
pub const XFRMNLGRP_ACQUIRE: u32 = 1;
/// Group of events: expire, of states and policies.
pub const XFRMNLGRP_EXPIRE: u32 = 2;
/// Group of events: states are added, changed and deleted.
pub const XFRMNLGRP_SA: u32 = 3;
/// Group of events: policies are added, changed and deleted; defaults change.
pub const XFRMNLGRP_POLICY: u32 = 4;
/// Group of events: replay and lifetime.
pub const XFRMNLGRP_AEVENTS: u32 = 5;
/// Group of events: reports.
pub const XFRMNLGRP_REPORT: u32 = 6;
/// Group of events: migrations.
pub const XFRMNLGRP_MIGRATE: u32 = 7;
/// Group of events: the address or port of a peer behind a NAT has changed.
pub const XFRMNLGRP_MAPPING: u32 = 8;

/// The bit of a group in [`crate::netlink::SockaddrNl::nl_groups`].
///
/// # Panics
/// For a group that is not 1 to 32.
#[must_use]
pub const fn group_bit(group: u32) -> u32 {
    assert!(group >= 1 && group <= 32);
    1 << (group - 1)
}
