//! The interfaces that the kernel forwards IPv4 from (`net.ipv4.conf.*.forwarding`), read and set by rtnetlink: a service's
//! sandbox may protect /proc/sys.

use super::link;
use super::netlink::{Messages, Socket};
use sealane_abi::netlink as nl;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

// Constants of `linux/netconf.h` and `linux/rtnetlink.h` that `libc` lacks.
const RTM_GETNETCONF: u16 = 82;
const RTNLGRP_IPV4_NETCONF: u32 = 24;
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
/// The length of `struct netconfmsg` with its padding.
const NETCONFMSG_LEN: usize = 4;

// Constants of `linux/if_link.h` and `linux/ip.h`.
const IFLA_INET_CONF: u16 = 1;
const IPV4_DEVCONF_FORWARDING: u16 = 1;
const IPV4_DEVCONF_RP_FILTER: u16 = 8;

/// Tells when the settings of an interface have changed, or an interface has come or gone.
#[derive(Debug)]
pub struct Watch(Socket);

impl Watch {
    /// Watches in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_ROUTE)?;
        socket.join(RTNLGRP_IPV4_NETCONF)?;
        Ok(Watch(socket))
    }

    /// Whether anything has changed since the last call. Does not wait.
    pub fn changed(&mut self) -> bool {
        let mut changed = false;
        let read = self.0.receive(|_| changed = true);
        changed | read.is_err()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether packets that come by an interface are forwarded, for all interfaces of the calling thread's namespace by
/// their index.
///
/// # Errors
/// The kernel's.
pub fn forwarding() -> io::Result<BTreeMap<u32, bool>> {
    let mut messages = Messages::new();
    messages.push(RTM_GETNETCONF, libc::NLM_F_DUMP as u16, &[libc::AF_INET as u8, 0, 0, 0], |_| {});
    Socket::open(libc::NETLINK_ROUTE)?.dump(&messages, |list: &mut BTreeMap<u32, bool>, message| {
        let (mut index, mut forwards) = (None, None);
        for attribute in nl::Attrs::new(message.payload.get(NETCONFMSG_LEN..).unwrap_or_default()) {
            let value = attribute.payload.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
            match attribute.type_ {
                NETCONFA_IFINDEX => index = value,
                NETCONFA_FORWARDING => forwards = value,
                _ => {}
            }
        }
        // Those of all interfaces, and the default for new ones, have negative indices.
        if let (Some(Ok(index)), Some(forwards)) = (index.map(u32::try_from), forwards) {
            list.insert(index, forwards != 0);
        }
    })
}

/// Sets whether packets that come by an interface are forwarded.
///
/// # Errors
/// The kernel's: `ENODEV` when there is none.
pub fn set_forwarding(index: u32, forwards: bool) -> io::Result<()> {
    set(index, IPV4_DEVCONF_FORWARDING, forwards.into())
}

/// Sets `rp_filter` of an interface to its loose mode, which overrides a strict one for all interfaces.
///
/// # Errors
/// As [`set_forwarding`].
pub fn filter_loosely(index: u32) -> io::Result<()> {
    const LOOSE: u32 = 2;
    set(index, IPV4_DEVCONF_RP_FILTER, LOOSE)
}

fn set(index: u32, what: u16, value: u32) -> io::Result<()> {
    let mut messages = Messages::new();
    messages.push(libc::RTM_SETLINK, nl::NLM_F_ACK, &link::ifinfomsg(index), |a| {
        a.nest(libc::IFLA_AF_SPEC, |a| {
            a.nest(libc::AF_INET as u16, |a| a.nest(IFLA_INET_CONF, |a| a.u32(what, value)));
        });
    });
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

#[cfg(test)]
mod tests {
    use super::super::netlink::errno;
    use super::*;
    use crate::testing;

    #[test]
    fn forwarding_of_each_interface() {
        let Some((a, _b)) = testing::pair("sys::netconf") else { return };
        a.run(|| {
            let (mut watch, index, lo) = (Watch::new()?, link::index("a")?, link::index("lo")?);
            set_forwarding(index, false)?;
            set_forwarding(lo, false)?;
            let list = forwarding()?;
            assert_eq!((list.get(&index), list.get(&lo)), (Some(&false), Some(&false)));
            set_forwarding(index, true)?;
            assert_eq!((forwarding()?.get(&index), forwarding()?.get(&lo)), (Some(&true), Some(&false)));
            let _ = watch.changed();
            assert!(!watch.changed());
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            assert!(watch.changed() && forwarding()?.values().all(|forwards| *forwards));
            let refused = set_forwarding(u32::MAX >> 1, true).expect_err("no such interface");
            assert_eq!(errno(&refused), Some(libc::ENODEV));
            Ok(())
        })
        .expect("settings");
    }
}
