//! The filter of a dump of states.

use super::attr::{Attributes, XFRMA_ADDRESS_FILTER};
use super::common::{AF_INET, AF_INET6, Address, AddressFilter};
use crate::errno::Errno;
use crate::netlink::answer::ExtAck;
use crate::netlink::rules::Reject;

/// Protocol of a dump or a flush: any of AH, ESP and IPComp.
pub const IPSEC_PROTO_ANY: u8 = 255;

/// IP protocol ESP.
pub const IPPROTO_ESP: u8 = 50;
/// IP protocol AH.
pub const IPPROTO_AH: u8 = 51;
/// IP protocol IPComp.
pub const IPPROTO_COMP: u8 = 108;

/// Whether `proto` matches the protocol of a request: 0 is all, [`IPSEC_PROTO_ANY`] AH, ESP and IPComp.
#[must_use]
pub fn proto_matches(proto: u8, wanted: u8) -> bool {
    match wanted {
        0 => true,
        IPSEC_PROTO_ANY => matches!(proto, IPSEC_PROTO_ANY | IPPROTO_ESP | IPPROTO_AH | IPPROTO_COMP),
        _ => proto == wanted,
    }
}

/// The filter that a dump of states requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateFilter {
    /// Protocol; see [`proto_matches`].
    pub proto: u8,
    /// Addresses.
    pub addresses: Option<AddressFilter>,
}

impl StateFilter {
    /// Reads the filter from the attributes of [`super::Body::DumpSa`].
    ///
    /// # Errors
    /// [`Errno::EINVAL`], without a text, for a prefix of more than 128 bits.
    pub fn new(attrs: &Attributes<'_>) -> Result<Self, Reject> {
        let addresses = attrs.address_filter()?;
        if addresses.is_some_and(|a| a.splen > 128 || a.dplen > 128) {
            return Err(Reject { errno: Errno::EINVAL, attr: Some(XFRMA_ADDRESS_FILTER), ack: ExtAck::default() });
        }
        Ok(StateFilter { proto: attrs.proto()?.unwrap_or(0), addresses })
    }

    /// Whether a state matches, given its protocol, family, source and destination.
    #[must_use]
    pub fn matches(&self, proto: u8, family: u16, saddr: &Address, daddr: &Address) -> bool {
        let addresses = self.addresses.is_none_or(|f| {
            let other = matches!(f.family, AF_INET | AF_INET6) && f.family != family;
            !other && saddr.matches(&f.saddr, f.splen) && daddr.matches(&f.daddr, f.dplen)
        });
        proto_matches(proto, self.proto) && addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    #[test]
    fn states_are_filtered() {
        let a = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
        let (src, dst) = (a("10.1.2.3"), a("192.0.2.1"));
        let all = StateFilter::default();
        assert!(all.matches(IPPROTO_ESP, AF_INET, &src, &dst) && all.matches(43, AF_INET6, &src, &dst));
        let ipsec = StateFilter { proto: IPSEC_PROTO_ANY, addresses: None };
        assert!(ipsec.matches(IPPROTO_COMP, AF_INET, &src, &dst) && !ipsec.matches(43, AF_INET, &src, &dst));
        let filter = AddressFilter { saddr: a("10.1.0.0"), splen: 16, family: AF_INET, ..AddressFilter::default() };
        let some = StateFilter { proto: 0, addresses: Some(filter) };
        assert!(some.matches(IPPROTO_AH, AF_INET, &src, &dst));
        assert!(!some.matches(IPPROTO_AH, AF_INET6, &src, &dst) && !some.matches(IPPROTO_AH, AF_INET, &dst, &src));
        let any_family = StateFilter { proto: 0, addresses: Some(AddressFilter { family: 1, ..filter }) };
        assert!(any_family.matches(IPPROTO_AH, AF_INET6, &src, &dst));
    }
}
