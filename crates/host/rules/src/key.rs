//! Keys of sets, and names of chains.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

/// The flag and the offset of fragments of IPv4: a packet without any of these bits is whole.
pub(crate) const V4_ANY_FRAGMENT: u16 = 0x3fff;

/// The name of the chain of what comes by a device.
pub(crate) fn chain(index: u32) -> Cow<'static, str> {
    format!("in{index}").into()
}

/// The name of the chain of what leaves by a device.
pub(crate) fn out_chain(index: u32) -> Cow<'static, str> {
    format!("out{index}").into()
}

/// Appends an address to a key.
pub(crate) fn push_address(key: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => key.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => key.extend_from_slice(&v6.octets()),
    }
}

/// Appends the ends of a segment to a key.
pub(crate) fn push_ends(key: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr) {
    for side in [source, destination] {
        push_address(key, side.ip());
        key.extend_from_slice(&side.port().to_be_bytes());
        key.extend_from_slice(&[0, 0]);
    }
}
