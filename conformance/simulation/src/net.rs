//! The network that the simulated host is in.
//!
//! ```text
//!  10.1.0.0/24 ── lan [ host ] wan ── 198.51.100.1 (A) ── 10.2.0.0/24
//!                10.1.0.1   192.0.2.1 ── 198.51.100.2 (B) ── 10.3.0.0/24
//!                                    └── everybody else, 203.0.113.0/24 among them
//! ```

use sealane_rules::eval::Device;
use std::net::Ipv4Addr;

pub(crate) const LO: Device = Device { index: 1, name: "lo", kind: "" };
pub(crate) const LAN: Device = Device { index: 2, name: "lan", kind: "" };
pub(crate) const WAN: Device = Device { index: 3, name: "wan", kind: "" };
pub(crate) const TUN: Device = Device { index: 9, name: "sealane-ipsec", kind: "tun" };

/// The host's addresses.
pub(crate) const HOST_LAN: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
pub(crate) const HOST_WAN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A host behind it.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 5);

/// An address that nobody has, and the one that destination NAT makes of it.
pub(crate) const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 7);

/// Hosts on the other side.
pub(crate) const REMOTE: [Ipv4Addr; 5] =
    [SERVER, Ipv4Addr::new(10, 2, 0, 9), Ipv4Addr::new(10, 3, 0, 7), Ipv4Addr::new(203, 0, 113, 7), SERVICE];

/// A set of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix(pub(crate) Ipv4Addr, pub(crate) u8);

impl Prefix {
    pub(crate) fn has(self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.1)).unwrap_or(0);
        u32::from(self.0) & mask == u32::from(address) & mask
    }
}

const EVERYTHING: Prefix = Prefix(Ipv4Addr::UNSPECIFIED, 0);
const TENS: Prefix = Prefix(Ipv4Addr::new(10, 0, 0, 0), 8);

/// Prefixes of policies on the host's side.
pub(crate) const NEAR: [Prefix; 4] = [Prefix(Ipv4Addr::new(10, 1, 0, 0), 24), TENS, Prefix(HOST_WAN, 32), EVERYTHING];
/// Prefixes of policies on the other side.
pub(crate) const FAR: [Prefix; 6] = [
    Prefix(Ipv4Addr::new(10, 2, 0, 0), 24),
    Prefix(Ipv4Addr::new(10, 3, 0, 0), 24),
    TENS,
    Prefix(SERVER, 32),
    Prefix(Ipv4Addr::new(203, 0, 113, 0), 24),
    EVERYTHING,
];

/// The two other ends of tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    A,
    B,
}

impl Peer {
    pub(crate) const ALL: [Peer; 2] = [Peer::A, Peer::B];

    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 51, 100, self.reqid() as u8)
    }

    pub(crate) fn reqid(self) -> u32 {
        self as u32 + 1
    }
}

pub(crate) fn is_local(address: Ipv4Addr) -> bool {
    [HOST_LAN, HOST_WAN].contains(&address)
}
