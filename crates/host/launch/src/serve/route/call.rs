//! A call on a socket of NETLINK_ROUTE.

use crate::serve::supervisor::CallContext;
use std::os::fd::OwnedFd;

/// The length of `struct ifinfomsg`.
pub(super) const IFINFOMSG: usize = 16;

/// One call.
pub(super) struct RouteCall<'a> {
    pub(super) call: &'a CallContext<'a>,
    /// A duplicate of the program's descriptor, which goes with the call.
    pub(super) fd: OwnedFd,
}
