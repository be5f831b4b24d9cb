//! The outer header of an association, prebuilt once and copied in front of each packet.

use crate::carrier::Carrier;
use core::net::IpAddr;
use sealane_wire::ip::{Family, V4_HEADER_LEN, V6_HEADER_LEN, fold, sum};
use sealane_wire::proto;

/// The part of the outer header that is the same for all packets.
#[derive(Clone)]
pub(crate) struct PrebuiltHeader {
    pub(crate) bytes: [u8; V6_HEADER_LEN],
    pub(crate) len: u8,
    /// IPv4: the sum of the header, for the checksum.
    pub(crate) sum: u32,
    /// The protocol behind the IP header.
    pub(crate) proto: u8,
    /// Length in bytes of what is between it and ESP: UDP's header, or the length field of a message in TCP.
    pub(crate) encap_len: u8,
}

impl PrebuiltHeader {
    /// Builds the header for packets of protocol `proto` between two addresses, with `carrier` in between.
    pub(crate) fn new(src: IpAddr, dst: IpAddr, proto: u8, hop_limit: u8, carrier: Option<Carrier>) -> Self {
        let proto = match carrier {
            None => proto,
            Some(Carrier::Udp) => proto::UDP,
            Some(Carrier::Tcp) => proto::TCP,
        };
        let encap_len = carrier.map_or(0, Carrier::header_len);
        let mut bytes = [0; V6_HEADER_LEN];
        let len = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                bytes[0] = 0x45;
                (bytes[8], bytes[9]) = (hop_limit, proto);
                bytes[12..16].copy_from_slice(&src.octets());
                bytes[16..20].copy_from_slice(&dst.octets());
                V4_HEADER_LEN
            }
            (src, dst) => {
                let octets = |addr| match addr {
                    IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
                    IpAddr::V6(addr) => addr.octets(),
                };
                bytes[0] = 0x60;
                (bytes[6], bytes[7]) = (proto, hop_limit);
                bytes[8..24].copy_from_slice(&octets(src));
                bytes[24..40].copy_from_slice(&octets(dst));
                V6_HEADER_LEN
            }
        };
        let sum = fold(sum(&bytes[..len], 0)).into();
        PrebuiltHeader { bytes, len: len as u8, sum, proto, encap_len: encap_len as u8 }
    }

    /// TTL or hop limit.
    pub(crate) fn hop_limit(&self) -> u8 {
        match self.family() {
            Family::V4 => self.bytes[8],
            Family::V6 => self.bytes[7],
        }
    }

    pub(crate) fn family(&self) -> Family {
        if usize::from(self.len) == V4_HEADER_LEN { Family::V4 } else { Family::V6 }
    }
}
