//! The TCP-MD5 keys of a socket.

use core::net::IpAddr;
use sealane_net_ao::mkt::Prefix;

/// `struct tcp_md5sig_key` in bytes (64-bit kernels).
const KEY_STRUCT: usize = 136;

/// An MD5 key of a socket, without the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Md5Key {
    /// The peers; host bits may be set and do not count.
    pub peer: Prefix,
    /// Bound to this VRF (0 is the default one); `None` for any.
    pub ifindex: Option<i32>,
}

/// The MD5 keys of a socket.
#[derive(Default)]
pub(crate) struct Md5Keys(Vec<Md5Key>);

impl Md5Keys {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The memory that the kernel counts for them in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.0.len() * KEY_STRUCT
    }

    /// Whether there is a key for `peer` in VRF `ifindex`; `None` asks for any VRF (`__tcp_md5_do_lookup`).
    pub(crate) fn lookup(&self, peer: IpAddr, ifindex: Option<i32>) -> Option<&Md5Key> {
        self.0.iter().find(|k| {
            (ifindex.is_none() || k.ifindex.is_none() || k.ifindex == ifindex)
                && equal_in(k.peer.addr, peer, k.peer.len)
        })
    }

    /// Removes all of them.
    pub(crate) fn take(&mut self) -> Vec<Md5Key> {
        core::mem::take(&mut self.0)
    }

    pub(crate) fn set(&mut self, key: Md5Key) {
        if !self.0.contains(&key) {
            self.0.push(key);
        }
    }

    pub(crate) fn remove(&mut self, key: &Md5Key) {
        self.0.retain(|k| k != key);
    }
}

/// Whether both are of one family and equal in the first `bits` bits. Unlike with TCP-AO, 0.0.0.0 is an ordinary
/// address.
fn equal_in(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    let (a, b, width) = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    (a ^ b).checked_shr(width - u32::from(bits).min(width)).unwrap_or(0) == 0
}
