//! Prefixes of addresses as the program's tables have them, of both families in one space.

use crate::mask;
use std::net::IpAddr;

/// A prefix of both families: IPv4's are those of IPv4-mapped addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    bits: u128,
    len: u8,
}

/// An address with 128 bits.
pub(super) fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl Prefix {
    /// Everything, of both families.
    pub const ANY: Prefix = Prefix { bits: 0, len: 0 };

    /// The first `len` bits of an address, all of it where that is more than it has.
    pub fn new(address: IpAddr, len: u8) -> Self {
        let len = if address.is_ipv4() { 96 + len.min(32) } else { len.min(128) };
        Prefix { bits: wide(address) & mask(len), len }
    }

    /// The length of the prefix in bits of 128.
    pub fn prefix_len(self) -> u8 {
        self.len
    }

    /// All 128 bits, 0 behind the prefix, in network byte order.
    pub(super) fn bytes(self) -> [u8; 16] {
        self.bits.to_be_bytes()
    }

    /// Whether it has all of another one.
    pub fn covers(self, other: Prefix) -> bool {
        self.len <= other.len && (self.bits ^ other.bits) & mask(self.len) == 0
    }

    /// Whether it has an address.
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
        // All of IPv4 is not all there is.
        let v4 = prefix("192.0.2.1", 0);
        assert!(v4.covers(net) && has(v4, "255.255.255.255") && !has(v4, "fd01::1"));
        assert!(Prefix::ANY.covers(v4) && has(Prefix::ANY, "fd01::1") && Prefix::ANY == prefix("::", 0));
        // Longer than an address.
        assert_eq!((prefix("10.0.0.1", 200).prefix_len(), prefix("fd01::1", 200).prefix_len()), (128, 128));
        assert!(!has(prefix("fd01::1", 128), "fd01::2"));
    }
}
