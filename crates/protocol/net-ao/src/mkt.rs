//! Master key tuples (RFC 5925 section 3.1).

use crate::alg::Algorithm;
pub use crate::alg::MAX_KEY_LEN;
use crate::kdf::{Context, Master, TrafficKey};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use sealane_crypto::mac::MacTfm;
use sealane_crypto::{Alg, KeyError};
use std::sync::Arc;

/// The option's bytes before the MAC: kind, length, KeyID, RNextKeyID.
pub const OPTION_HEADER_LEN: usize = 4;

/// The longest option in bytes, padding included: of the 40 bytes of options in a SYN, MSS, timestamps (with
/// SACK-permitted) and window scale take 20.
pub const MAX_OPTION_LEN: usize = 40 - 4 - 12 - 4;

/// The longest MAC in bytes.
pub const MAX_MAC_LEN: usize = MAX_OPTION_LEN - OPTION_HEADER_LEN;

/// The peers that a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address; bits behind `len` are 0. A v4-mapped IPv6 address is an IPv4 one here, see [`unmapped`].
    pub addr: IpAddr,
    /// Length of the prefix in bits; 0 with the unspecified address means every peer of this family.
    pub len: u8,
}

/// `addr`, with ::ffff:a.b.c.d turned into a.b.c.d.
#[must_use]
pub fn unmapped(addr: IpAddr) -> IpAddr {
    addr.to_canonical()
}

impl Prefix {
    /// Every IPv4 peer.
    pub const ANY_V4: Prefix = Prefix { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// Every IPv6 peer.
    pub const ANY_V6: Prefix = Prefix { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

    /// One host.
    #[must_use]
    pub fn host(addr: IpAddr) -> Self {
        let addr = unmapped(addr);
        Prefix { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether `peer` is of the same family and equal in the first `len` bits.
    #[must_use]
    pub fn contains(&self, peer: IpAddr) -> bool {
        self.equal_in(unmapped(peer), self.len)
    }

    /// Whether some peer matches both prefixes.
    #[must_use]
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.equal_in(other.addr, self.len.min(other.len))
    }

    /// Whether `addr` is of the same family and equal in the first `bits` bits, or one of the two is unspecified, as
    /// the kernel compares (`__tcp_ao_key_cmp`). Does not look at `self.len`.
    #[must_use]
    pub fn equal_in(&self, addr: IpAddr, bits: u8) -> bool {
        let (a, b, width) = match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return false,
        };
        let differing = width - u32::from(bits).min(width);
        a == 0 || b == 0 || (a ^ b).checked_shr(differing).unwrap_or(0) == 0
    }
}

impl fmt::Display for Prefix {
    /// `192.0.2.0/24`; a single host without its length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.addr, self.len) {
            (IpAddr::V4(addr), 32) => addr.fmt(f),
            (IpAddr::V6(addr), 128) => addr.fmt(f),
            (addr, len) => write!(f, "{addr}/{len}"),
        }
    }
}

/// The fields from which a master key tuple is made.
pub struct MktSpec<'a> {
    /// The algorithm.
    pub algorithm: &'a Arc<Algorithm>,
    /// The master key, at most [`MAX_KEY_LEN`] bytes.
    pub key: &'a [u8],
    /// KeyID of what we send with it.
    pub send_id: u8,
    /// KeyID of what the peer sends with it.
    pub recv_id: u8,
    /// Length of the MAC in the option in bytes; 0 means [`Algorithm::default_mac_len`].
    pub mac_len: usize,
    /// Whether the MAC leaves TCP options other than TCP-AO out (`TCP_AO_KEYF_EXCLUDE_OPT`).
    pub exclude_options: bool,
    /// The peers it is for.
    pub peer: Prefix,
    /// Bound to this VRF (`TCP_AO_KEYF_IFINDEX`; 0 is the default VRF); `None` for any.
    pub ifindex: Option<i32>,
}

/// A master key tuple. It has no `Debug` and its key is wiped on drop; sockets share it by [`Arc`].
pub struct Mkt {
    /// The algorithm.
    pub algorithm: Arc<Algorithm>,
    /// KeyID of what we send with it.
    pub send_id: u8,
    /// KeyID of what the peer sends with it.
    pub recv_id: u8,
    /// Length of the MAC in the option in bytes.
    pub mac_len: usize,
    /// Whether the MAC leaves TCP options other than TCP-AO out.
    pub exclude_options: bool,
    /// The peers it is for.
    pub peer: Prefix,
    /// Bound to this VRF (0 is the default VRF); `None` for any.
    pub ifindex: Option<i32>,
    pub(crate) master: Master,
}

/// The reason why a master key tuple cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MktError {
    /// The master key is longer than [`MAX_KEY_LEN`].
    KeyLen,
    /// The MAC is longer than [`MAX_MAC_LEN`], so that the option would not fit beside those of a SYN.
    OptionSpace,
    /// The MAC is longer than the algorithm's digest.
    MacLen,
    /// The algorithm refused the key.
    Key(KeyError),
}

impl fmt::Display for MktError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MktError::KeyLen => write!(f, "master key longer than {MAX_KEY_LEN} bytes"),
            MktError::OptionSpace => {
                write!(f, "MAC longer than {MAX_MAC_LEN} bytes: the option would not fit into a SYN")
            }
            MktError::MacLen => f.write_str("MAC longer than the algorithm's"),
            MktError::Key(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for MktError {}

impl Mkt {
    /// Prepares the master key.
    ///
    /// # Errors
    /// [`MktError`], checked in the order of its variants.
    pub fn new(spec: &MktSpec<'_>) -> Result<Self, MktError> {
        if spec.key.len() > MAX_KEY_LEN {
            return Err(MktError::KeyLen);
        }
        Mkt::with(spec, || Master::new(spec.algorithm, spec.key))
    }

    /// The same for a master key that is elsewhere: the key of `spec` is a reference to it, and `mac` the MAC of [`Algorithm::kdf_mac`],
    /// which is computed there. Traffic keys are here once they have been derived ([`crate::traffic`]).
    ///
    /// # Errors
    /// As [`Mkt::new`].
    pub fn elsewhere(spec: &MktSpec<'_>, mac: &Alg) -> Result<Self, MktError> {
        Mkt::with(spec, || Master::elsewhere(mac, spec.key))
    }

    fn with(spec: &MktSpec<'_>, master: impl FnOnce() -> Result<Master, KeyError>) -> Result<Self, MktError> {
        let mac_len = if spec.mac_len == 0 { spec.algorithm.default_mac_len } else { spec.mac_len };
        if option_len(mac_len) > MAX_OPTION_LEN {
            return Err(MktError::OptionSpace);
        }
        if mac_len > spec.algorithm.digest_len {
            return Err(MktError::MacLen);
        }
        Ok(Mkt {
            algorithm: spec.algorithm.clone(),
            send_id: spec.send_id,
            recv_id: spec.recv_id,
            mac_len,
            exclude_options: spec.exclude_options,
            peer: spec.peer,
            ifindex: spec.ifindex,
            master: master().map_err(MktError::Key)?,
        })
    }

    /// The master key as the kernel keeps and reports it: as it was given, except that AES-128-CMAC replaces a key of
    /// another length than 16 bytes by the 16 bytes extracted from it. Empty if it is elsewhere.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.master.kept
    }

    /// The reference of a master key that is elsewhere.
    #[must_use]
    pub fn reference(&self) -> Option<&[u8]> {
        self.master.reference.as_ref().map(|reference| &reference[..])
    }

    /// Length of the option in bytes, without padding.
    #[must_use]
    pub fn bare_option_len(&self) -> usize {
        OPTION_HEADER_LEN + self.mac_len
    }

    /// Length of the option in bytes, padded to whole words of the TCP header.
    #[must_use]
    pub fn option_len(&self) -> usize {
        option_len(self.mac_len)
    }

    /// Derives the traffic key of one direction.
    ///
    /// # Errors
    /// [`KeyError::Driver`] when the driver fails; software drivers do not. The same if the master key is elsewhere: it is not asked
    /// for by accident, see [`crate::traffic::Wanted`].
    pub fn traffic_key(&self, context: &Context) -> Result<TrafficKey, KeyError> {
        if self.reference().is_some() {
            return Err(KeyError::Driver);
        }
        self.master.traffic_key(&self.algorithm, context)
    }

    /// Derives the traffic key of one direction and prepares the MAC under it.
    ///
    /// # Errors
    /// [`KeyError`] as with [`Mkt::traffic_key`].
    pub fn traffic_mac(&self, context: &Context) -> Result<MacTfm, KeyError> {
        self.algorithm.mac.mac(self.traffic_key(context)?.as_bytes())
    }

    /// The same where the master key is elsewhere: this waits for whoever has it.
    pub(crate) fn traffic_mac_elsewhere(&self, context: &Context) -> Result<MacTfm, KeyError> {
        self.algorithm.mac.mac(self.master.traffic_key(&self.algorithm, context)?.as_bytes())
    }
}

/// Length in bytes, padded to whole words of the TCP header, of an option with a MAC of `mac_len` bytes.
#[must_use]
pub const fn option_len(mac_len: usize) -> usize {
    (OPTION_HEADER_LEN + mac_len).next_multiple_of(4)
}
