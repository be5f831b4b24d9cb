//! Next hops by the kernel's routes and neighbours: asked over netlink, kept up to date by its notifications.

use super::netlink::{Messages, RTA_ENCAP, RTA_VIA, RTAX_MTU, Socket, family, ip};
use sealane_abi::netlink as nl;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// States in which a neighbour's address is usable.
const VALID: u16 = SURE | libc::NUD_STALE;
/// States in which the kernel trusts the address or is verifying it.
const SURE: u16 = libc::NUD_REACHABLE | libc::NUD_DELAY | libc::NUD_PROBE | libc::NUD_PERMANENT;

/// A packet whose route is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Asked {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The interface that it arrived at; 0 for packets of this host.
    pub iif: u32,
    /// Packet mark.
    pub mark: u32,
}

/// The result of a route lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The outgoing interface.
    pub oif: u32,
    /// The next hop.
    pub via: IpAddr,
    /// The MTU of the route or the path MTU learnt so far; 0 if there is neither.
    pub mtu: u32,
}

/// A change in the kernel's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Routes, rules, addresses or interfaces.
    Routes,
    /// A neighbour: its interface, its address, and its hardware address if known.
    Neighbour(u32, IpAddr, Option<[u8; 6]>),
}

/// Asks the kernel for routes and neighbours in the namespace of the thread that created it.
#[derive(Debug)]
pub struct Asker {
    ask: Socket,
    told: Socket,
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

impl Asker {
    /// Creates one, and subscribes to changes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        const GROUPS: [u32; 8] = [
            libc::RTNLGRP_LINK,
            libc::RTNLGRP_NEIGH,
            libc::RTNLGRP_IPV4_IFADDR,
            libc::RTNLGRP_IPV4_ROUTE,
            libc::RTNLGRP_IPV4_RULE,
            libc::RTNLGRP_IPV6_IFADDR,
            libc::RTNLGRP_IPV6_ROUTE,
            libc::RTNLGRP_IPV6_RULE,
        ];
        let told = Socket::open(libc::NETLINK_ROUTE)?;
        // These groups exist even in a kernel without IPv6.
        GROUPS.iter().try_for_each(|group| told.join(*group))?;
        Ok(Asker { ask: Socket::open(libc::NETLINK_ROUTE)?, told })
    }

    /// Looks up the route of a packet as the stack would, including reverse path filters. Returns `None` for a packet
    /// that is local, has no route or would be encapsulated.
    pub fn route(&mut self, asked: &Asked) -> Option<Route> {
        let bits = if asked.destination.is_ipv4() { 32 } else { 128 };
        let mut messages = Messages::new();
        // struct rtmsg: family, lengths of prefixes, TOS; table, protocol, scope, type; flags.
        let fixed = [family(asked.destination), bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        messages.push(libc::RTM_GETROUTE, 0, &fixed, |a| {
            a.ip(libc::RTA_DST, asked.destination);
            a.ip(libc::RTA_SRC, asked.source);
            if asked.iif != 0 {
                a.u32(libc::RTA_IIF, asked.iif);
            }
            a.u32(libc::RTA_MARK, asked.mark);
        });
        let mut route = None;
        let done = self.ask.request(&messages, |message| {
            if message.header.nlmsg_type == libc::RTM_NEWROUTE {
                route = read_route(message.payload, asked.destination);
            }
        });
        done.ok().and(route)
    }

    /// A neighbour's hardware address, if the kernel knows it. Unless the kernel is sure of it, it is asked to resolve
    /// it.
    pub fn neighbour(&mut self, ifindex: u32, to: IpAddr) -> Option<[u8; 6]> {
        let fixed = |state: u16, flags: u8| {
            // struct ndmsg: family, padding; index; state, flags, type.
            let mut fixed = [0; 12];
            fixed[0] = family(to);
            fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
            fixed[8..10].copy_from_slice(&state.to_ne_bytes());
            fixed[10] = flags;
            fixed
        };
        let mut messages = Messages::new();
        messages.push(libc::RTM_GETNEIGH, 0, &fixed(0, 0), |a| a.ip(libc::NDA_DST, to));
        let mut found = None;
        let _ = self.ask.request(&messages, |message| {
            if let Some((_, _, state, hardware)) = read_neighbour(message) {
                found = hardware.map(|hardware| (state, hardware));
            }
        });
        if found.is_none_or(|(state, _)| state & SURE == 0) {
            let mut messages = Messages::new();
            let flags = nl::NLM_F_ACK | libc::NLM_F_CREATE as u16 | libc::NLM_F_REPLACE as u16;
            messages.push(libc::RTM_NEWNEIGH, flags, &fixed(0, libc::NTF_USE), |a| a.ip(libc::NDA_DST, to));
            // On failure, the packet is left to the stack.
            let _ = self.ask.transact(&messages);
        }
        found.map(|(_, hardware)| hardware)
    }

    /// Hands the changes since the last call to `each`. Does not wait.
    ///
    /// # Errors
    /// `ENOBUFS` when some changes were lost.
    pub fn changes(&mut self, mut each: impl FnMut(Change)) -> io::Result<()> {
        self.told.receive(|message| match message.header.nlmsg_type {
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
                if let Some((ifindex, to, _, hardware)) = read_neighbour(message) {
                    each(Change::Neighbour(ifindex, to, hardware));
                }
            }
            _ => each(Change::Routes),
        })
    }
}

impl AsFd for Asker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }
}

fn read_route(payload: &[u8], destination: IpAddr) -> Option<Route> {
    const TYPE_AT: usize = 7;
    if *payload.get(TYPE_AT)? != libc::RTN_UNICAST {
        return None;
    }
    let mut route = Route { oif: 0, via: destination, mtu: 0 };
    for attribute in nl::Attrs::new(payload.get(12..)?) {
        match attribute.type_ {
            libc::RTA_OIF => route.oif = word(attribute.payload)?,
            libc::RTA_GATEWAY => route.via = ip(attribute.payload)?,
            // A gateway of the other family: struct rtvia, family and address.
            RTA_VIA => route.via = ip(attribute.payload.get(2..)?)?,
            RTA_ENCAP => return None,
            libc::RTA_METRICS => {
                let mtu = nl::Attrs::new(attribute.payload).find(|a| a.type_ == RTAX_MTU);
                route.mtu = mtu.and_then(|a| word(a.payload)).unwrap_or(0);
            }
            _ => {}
        }
    }
    (route.oif != 0).then_some(route)
}

/// The interface, address, state, and the hardware address if it is usable.
fn read_neighbour(message: &nl::Message<'_>) -> Option<(u32, IpAddr, u16, Option<[u8; 6]>)> {
    let fixed = message.payload.get(..12)?;
    let ifindex = word(&fixed[4..])?;
    let state = u16::from_ne_bytes([fixed[8], fixed[9]]);
    let (mut to, mut hardware) = (None, None);
    for attribute in nl::Attrs::new(message.payload.get(12..)?) {
        match attribute.type_ {
            libc::NDA_DST => to = ip(attribute.payload),
            libc::NDA_LLADDR => hardware = <[u8; 6]>::try_from(attribute.payload).ok(),
            _ => {}
        }
    }
    let valid = message.header.nlmsg_type == libc::RTM_NEWNEIGH && state & VALID != 0;
    Some((ifindex, to?, state, hardware.filter(|_| valid)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{link, testing};
    use std::time::{Duration, Instant};

    #[test]
    fn ways_and_neighbours() {
        let Some((a, b)) = testing::pair("sys::hops") else { return };
        let hardware = b.run(|| Ok(link::facts(link::index("b")?)?.address)).expect("facts");
        a.run(|| {
            let index = link::index("a")?;
            let mut asker = Asker::new()?;
            for (source, destination) in [("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")] {
                let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
                let asked = Asked { source, destination, iif: 0, mark: 0 };
                assert_eq!(asker.route(&asked), Some(Route { oif: index, via: destination, mtu: 0 }));
                assert_eq!(asker.route(&Asked { destination: source, source, ..asked }), None, "this host's");
                // The address is unknown at first; the kernel resolves it and reports it.
                let start = Instant::now();
                while asker.neighbour(index, destination) != Some(hardware) {
                    assert!(start.elapsed() < Duration::from_secs(20), "no neighbour");
                    std::thread::sleep(Duration::from_millis(5));
                }
                let mut told = Vec::new();
                asker.changes(|change| told.push(change))?;
                assert!(told.contains(&Change::Neighbour(index, destination, Some(hardware))), "{told:?}");
            }
            let nowhere = "192.0.2.1".parse().unwrap();
            let asked = Asked { source: "10.77.0.1".parse().unwrap(), destination: nowhere, iif: 0, mark: 0 };
            assert_eq!(asker.route(&asked), None);
            testing::address("a", "192.0.2.2".parse().unwrap(), 24)?;
            let mut told = Vec::new();
            asker.changes(|change| told.push(change))?;
            assert!(told.contains(&Change::Routes));
            assert_eq!(asker.route(&asked).map(|r| r.oif), Some(index));
            Ok(())
        })
        .expect("routes");
    }
}
