//! A call on a socket of NETLINK_ROUTE.

use crate::serve::server::Server;
use sealane_sys::seccomp::Notification;
use sealane_sys::thread::Thread;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The length of `struct ifinfomsg`.
pub(super) const IFINFOMSG: usize = 16;

/// One call.
pub(super) struct RouteCall<'a> {
    pub(super) server: &'a Arc<Server>,
    pub(super) peer: &'a Thread,
    pub(super) n: &'a Notification,
    /// A duplicate of the program's descriptor, which goes with the call.
    pub(super) fd: OwnedFd,
}
