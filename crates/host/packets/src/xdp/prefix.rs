//! Address prefixes as in the program's tables, with both families in one space.

use sealane_sys::mask;
use std::net::IpAddr;

/// A prefix of either family; those of IPv4 are IPv4-mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    bits: u128,
    len: u8,
}

/// An address as 128 bits.
pub(super) fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl Prefix {
    /// The prefix of all addresses of both families.
    pub const ANY: Prefix = Prefix { bits: 0, len: 0 };

    /// The first `len` bits of an address; all of them if `len` is larger.
    pub fn new(address: IpAddr, len: u8) -> Self {
        let len = if address.is_ipv4() { 96 + len.min(32) } else { len.min(128) };
        Prefix { bits: wide(address) & mask(len), len }
    }

    /// The prefix length, out of 128 bits.
    pub fn prefix_len(self) -> u8 {
        self.len
    }

    /// All 128 bits, zero after the prefix, in network byte order.
    pub(super) fn bytes(self) -> [u8; 16] {
        self.bits.to_be_bytes()
    }

    /// Whether it contains all of another prefix.
    pub fn covers(self, other: Prefix) -> bool {
        self.len <= other.len && (self.bits ^ other.bits) & mask(self.len) == 0
    }

    /// Whether it contains an address.
    pub fn has(self, address: IpAddr) -> bool {
        (self.bits ^ wide(address)) & mask(self.len) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_in_one_space() {
        let prefix = |text: &str, len| Prefix::new(text.parse().unwrap(), len);
        let has = |p: Prefix, text: &str| p.has(text.parse().unwrap());
        let net = prefix("10.1.2.3", 16);
        assert_eq!((net, net.prefix_len()), (prefix("10.1.0.0", 16), 112));
        assert_eq!(net.bytes()[10..], [0xff, 0xff, 10, 1, 0, 0]);
        assert!(has(net, "10.1.255.255") && !has(net, "10.2.0.0") && !has(net, "::10.1.0.0"));
        assert!(net.covers(prefix("10.1.128.0", 17)) && net.covers(net) && !net.covers(prefix("10.0.0.0", 15)));
        // The prefix of all IPv4 addresses does not contain IPv6 ones.
        let v4 = prefix("192.0.2.1", 0);
        assert!(v4.covers(net) && has(v4, "255.255.255.255") && !has(v4, "fd01::1"));
        assert!(Prefix::ANY.covers(v4) && has(Prefix::ANY, "fd01::1") && Prefix::ANY == prefix("::", 0));
        // Prefix lengths beyond an address's.
        assert_eq!((prefix("10.0.0.1", 200).prefix_len(), prefix("fd01::1", 200).prefix_len()), (128, 128));
        assert!(!has(prefix("fd01::1", 128), "fd01::2"));
    }
}
