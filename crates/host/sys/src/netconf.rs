//! Settings of devices for IPv4 (`/proc/sys/net/ipv4/conf/DEVICE`) by netlink, which works where the sandbox of a service
//! protects /proc/sys.

use super::link;
use super::netlink::{Messages, Socket};
use sealane_abi::netlink as nl;
use std::collections::BTreeSet;
use std::io;

// Constants of `linux/rtnetlink.h`, `linux/netconf.h`, `linux/ip.h` and `linux/if_link.h`.
pub(super) const RTM_NEWNETCONF: u16 = 80;
pub(super) const RTM_DELNETCONF: u16 = 81;
const RTM_GETNETCONF: u16 = 82;
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_RP_FILTER: u16 = 3;
const NETCONFA_IFINDEX_ALL: i32 = -1;
/// `rp_filter` in its strict mode.
const STRICT: i32 = 1;
const IPV4_DEVCONF_FORWARDING: u16 = 1;
const IPV4_DEVCONF_RP_FILTER: u16 = 8;
const IFLA_INET_CONF: u16 = 1;

/// The settings of a device that a message tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// The device.
    pub(super) ifindex: u32,
    /// `forwarding`, if the message is about it.
    pub(super) forwarding: Option<bool>,
    /// `rp_filter`, if the message is about it.
    pub(super) rp_filter: Option<u32>,
}

/// A value in a message (`struct netconfmsg`).
fn value_in(message: &[u8], type_: u16) -> Option<i32> {
    let found = nl::Attrs::new(message.get(4..)?).find(|attribute| attribute.type_ == type_)?;
    found.payload.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

impl Told {
    /// Reads a message. `None` unless it is about a device and IPv4.
    pub(super) fn of(message: &[u8]) -> Option<Told> {
        let (family, of) = (message.first()?, |type_| value_in(message, type_));
        // What is for all devices, and for those to come, has a negative number.
        let ifindex = of(NETCONFA_IFINDEX).filter(|_| i32::from(*family) == libc::AF_INET)?.try_into().ok()?;
        let forwarding = of(NETCONFA_FORWARDING).map(|value| value != 0);
        Some(Told { ifindex, forwarding, rp_filter: of(NETCONFA_RP_FILTER).and_then(|value| value.try_into().ok()) })
    }
}

/// The devices of the calling thread's namespace, each with its `forwarding`.
///
/// # Errors
/// The kernel's.
pub fn forwarding() -> io::Result<Vec<(u32, bool)>> {
    let mut messages = Messages::new();
    messages.push(RTM_GETNETCONF, libc::NLM_F_DUMP as u16, &[libc::AF_INET as u8, 0, 0, 0], |_| {});
    Socket::open(libc::NETLINK_ROUTE)?.dump(&messages, |devices: &mut Vec<_>, message| {
        devices.extend(Told::of(message.payload).and_then(|told| Some((told.ifindex, told.forwarding?))));
    })
}

/// The devices of the calling thread's namespace whose source filter is strict: the larger of `rp_filter` of the device and of `all` is 1
/// (`IN_DEV_RPFILTER`).
///
/// # Errors
/// The kernel's.
pub fn strict() -> io::Result<BTreeSet<u32>> {
    let mut messages = Messages::new();
    messages.push(RTM_GETNETCONF, libc::NLM_F_DUMP as u16, &[libc::AF_INET as u8, 0, 0, 0], |_| {});
    let told = Socket::open(libc::NETLINK_ROUTE)?.dump(&messages, |told: &mut Vec<_>, message| {
        told.extend(value_in(message.payload, NETCONFA_IFINDEX).zip(value_in(message.payload, NETCONFA_RP_FILTER)));
    })?;
    let all = told.iter().find(|(index, _)| *index == NETCONFA_IFINDEX_ALL).map_or(0, |(_, filter)| *filter);
    let is_strict = |(index, filter): (i32, i32)| u32::try_from(index).ok().filter(|_| filter.max(all) == STRICT);
    Ok(told.into_iter().filter_map(is_strict).collect())
}

/// Sets `forwarding` of a device.
///
/// # Errors
/// The kernel's.
pub fn forward(ifindex: u32, on: bool) -> io::Result<()> {
    set(ifindex, IPV4_DEVCONF_FORWARDING, on.into())
}

/// Sets `rp_filter` of a device to its loose mode, because packets from a tunnel may have any source. This overrides a
/// strict setting for all devices.
///
/// # Errors
/// The kernel's.
pub fn filter_loosely(ifindex: u32) -> io::Result<()> {
    const LOOSE: u32 = 2;
    set(ifindex, IPV4_DEVCONF_RP_FILTER, LOOSE)
}

fn set(ifindex: u32, what: u16, value: u32) -> io::Result<()> {
    let mut messages = Messages::new();
    messages.push(libc::RTM_SETLINK, nl::NLM_F_ACK, &link::ifinfomsg(ifindex), |a| {
        a.nest(libc::IFLA_AF_SPEC, |a| {
            a.nest(libc::AF_INET as u16, |a| {
                a.nest(IFLA_INET_CONF, |a| a.u32(what, value));
            });
        });
    });
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Watch;
    use crate::testing;

    #[test]
    fn forwarding_is_told_and_set() {
        let Some((a, _b)) = testing::pair("sys::netconf::forwarding") else { return };
        a.run(|| {
            let (device, mut watch) = (link::index("a")?, Watch::new()?);
            let is = |on| forwarding().map(|all| all.contains(&(device, on)));
            assert!(is(false)?, "{:?}", forwarding()?);
            // By netlink without a word, as Linux does it.
            forward(device, true)?;
            assert!(is(true)? && !watch.changes().forwarding);
            std::fs::write("/proc/sys/net/ipv4/conf/a/forwarding", "0")?;
            assert!(is(false)? && watch.changes().forwarding);
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            assert!(is(true)? && watch.changes().forwarding);
            assert!(!watch.changes().forwarding, "nothing since");
            Ok(())
        })
        .expect("settings of devices");
    }
}
