//! The structures common to states and policies: addresses, selectors, lifetimes, marks.

use super::layout::fixed_layout;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerocopy::big_endian::{U16, U32};

/// `AF_INET` in the width of these structures' fields.
pub const AF_INET: u16 = 2;
/// `AF_INET6` in the width of these structures' fields.
pub const AF_INET6: u16 = 10;

/// ESP in UDP (`linux/udp.h`).
pub const UDP_ENCAP_ESPINUDP: u16 = 2;
/// ESP in TCP (`linux/udp.h`).
pub const TCP_ENCAP_ESPINTCP: u16 = 7;

fixed_layout! {
    /// `xfrm_address_t`: an IPv4 address in the first 4 bytes, or an IPv6 address.
    pub struct Address(16) {
        /// Network order.
        pub bytes: [u8; 16],
    }

    /// `struct xfrm_id`: the fields that identify a state.
    pub struct Id(24) {
        /// Destination.
        pub daddr: Address,
        /// SPI.
        pub spi: U32,
        /// IP protocol: ESP 50, AH 51, IPComp 108.
        pub proto: u8,
        /// Padding.
        pub pad: [u8; 3],
    }

    /// `struct xfrm_selector`: a set of packets.
    pub struct Selector(56) {
        /// Destination.
        pub daddr: Address,
        /// Source.
        pub saddr: Address,
        /// Destination port.
        pub dport: U16,
        /// Its mask.
        pub dport_mask: U16,
        /// Source port.
        pub sport: U16,
        /// Its mask.
        pub sport_mask: U16,
        /// [`AF_INET`], [`AF_INET6`] or 0.
        pub family: u16,
        /// Prefix length of the destination in bits.
        pub prefixlen_d: u8,
        /// Prefix length of the source in bits.
        pub prefixlen_s: u8,
        /// IP protocol, 0 for any.
        pub proto: u8,
        /// Padding.
        pub pad: [u8; 3],
        /// Interface, 0 for any.
        pub ifindex: i32,
        /// User id.
        pub user: u32,
    }

    /// `struct xfrm_lifetime_cfg`: limits, [`XFRM_INF`] for none in bytes and packets, 0 for none in seconds.
    pub struct LifetimeCfg(64) {
        /// Soft, bytes.
        pub soft_byte_limit: u64,
        /// Hard, bytes.
        pub hard_byte_limit: u64,
        /// Soft, packets.
        pub soft_packet_limit: u64,
        /// Hard, packets.
        pub hard_packet_limit: u64,
        /// Soft, seconds since it was added.
        pub soft_add_expires_seconds: u64,
        /// Hard, seconds since it was added.
        pub hard_add_expires_seconds: u64,
        /// Soft, seconds since its first use.
        pub soft_use_expires_seconds: u64,
        /// Hard, seconds since its first use.
        pub hard_use_expires_seconds: u64,
    }

    /// `struct xfrm_lifetime_cur`: usage so far.
    pub struct LifetimeCur(32) {
        /// Bytes.
        pub bytes: u64,
        /// Packets.
        pub packets: u64,
        /// When it was added, seconds since 1970.
        pub add_time: u64,
        /// When it was first used, seconds since 1970; 0 is never.
        pub use_time: u64,
    }

    /// `struct xfrm_mark`.
    pub struct Mark(8) {
        /// Value.
        pub v: u32,
        /// Mask.
        pub m: u32,
    }

    /// `struct xfrm_user_offload`.
    pub struct UserOffload(8) {
        /// Device.
        pub ifindex: i32,
        /// `XFRM_OFFLOAD_...`.
        pub flags: u8,
        /// Padding.
        pub pad: [u8; 3],
    }

    /// `struct xfrm_user_tmpl`: a transformation that a policy requires.
    pub struct UserTmpl(64) {
        /// The state; zeros for any.
        pub id: Id,
        /// Family of the addresses.
        pub family: u16,
        /// Padding.
        pub pad: [u8; 2],
        /// Source.
        pub saddr: Address,
        /// The state's request id, 0 for any.
        pub reqid: u32,
        /// `XFRM_MODE_...`.
        pub mode: u8,
        /// `XFRM_SHARE_...`.
        pub share: u8,
        /// Whether it is optional (not 0).
        pub optional: u8,
        /// Padding.
        pub pad2: u8,
        /// Bit set of authentication algorithms.
        pub aalgos: u32,
        /// Bit set of ciphers.
        pub ealgos: u32,
        /// Bit set of compressions.
        pub calgos: u32,
    }

    /// `struct xfrm_encap_tmpl`: ESP in UDP or TCP.
    pub struct EncapTmpl(24) {
        /// [`UDP_ENCAP_ESPINUDP`] or [`TCP_ENCAP_ESPINTCP`].
        pub encap_type: u16,
        /// Source port.
        pub encap_sport: U16,
        /// Destination port.
        pub encap_dport: U16,
        /// Padding.
        pub pad: [u8; 2],
        /// Original address.
        pub encap_oa: Address,
    }

    /// `struct xfrm_address_filter`: selects the states of a dump.
    pub struct AddressFilter(36) {
        /// Source.
        pub saddr: Address,
        /// Destination.
        pub daddr: Address,
        /// Family; values other than IPv4's and IPv6's match any.
        pub family: u16,
        /// Prefix length of the source in bits.
        pub splen: u8,
        /// Prefix length of the destination in bits.
        pub dplen: u8,
    }
}

/// No limit.
pub const XFRM_INF: u64 = u64::MAX;

impl Address {
    /// No address.
    pub const ANY: Address = Address { bytes: [0; 16] };

    /// The address in this family; `None` for a family other than IPv4 and IPv6.
    #[must_use]
    pub fn ip(&self, family: u16) -> Option<IpAddr> {
        let [a, b, c, d, ..] = self.bytes;
        match family {
            AF_INET => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
            AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(self.bytes))),
            _ => None,
        }
    }

    /// Whether the first `prefix` bits equal those of `other`; false for more than 128.
    #[must_use]
    pub fn matches(&self, other: &Address, prefix: u8) -> bool {
        let (a, b) = (u128::from_be_bytes(self.bytes), u128::from_be_bytes(other.bytes));
        match prefix {
            0 => true,
            1..=128 => (a ^ b) >> (128 - u32::from(prefix)) == 0,
            _ => false,
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        let mut bytes = [0; 16];
        match ip {
            IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes = ip.octets(),
        }
        Address { bytes }
    }
}

impl LifetimeCfg {
    /// No limit at all.
    pub const NONE: LifetimeCfg = LifetimeCfg {
        soft_byte_limit: XFRM_INF,
        hard_byte_limit: XFRM_INF,
        soft_packet_limit: XFRM_INF,
        hard_packet_limit: XFRM_INF,
        soft_add_expires_seconds: 0,
        hard_add_expires_seconds: 0,
        soft_use_expires_seconds: 0,
        hard_use_expires_seconds: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_by_family() {
        for text in ["192.0.2.1", "2001:db8::1"] {
            let ip: IpAddr = text.parse().unwrap();
            let family = if ip.is_ipv4() { AF_INET } else { AF_INET6 };
            assert_eq!(Address::from(ip).ip(family), Some(ip));
        }
        assert_eq!(Address::ANY.ip(0), None);
    }

    #[test]
    fn prefixes_match() {
        let a = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
        assert!(a("10.1.2.3").matches(&a("10.1.200.1"), 16) && !a("10.1.2.3").matches(&a("10.1.200.1"), 17));
        assert!(a("10.1.2.3").matches(&a("1.1.1.1"), 0) && a("::1").matches(&a("::1"), 128));
        assert!(!a("::1").matches(&a("::2"), 128) && a("::2").matches(&a("::3"), 127));
        assert!(!a("::1").matches(&a("::1"), 129));
    }
}
