//! Key derivation: the traffic key of one direction from a master key and a connection (RFC 5926 section 3.1).

use crate::alg::{Algorithm, Kdf, MAX_TRAFFIC_KEY_LEN};
use core::net::{IpAddr, SocketAddr};
use sealane_crypto::mac::MacTfm;
use sealane_crypto::{Alg, KeyError};
use zeroize::Zeroizing;

/// The key length of AES-128 in bytes.
const AES_KEY_LEN: usize = 16;

/// The default salt of KMAC256 in NIST SP 800-56C section 4.1, option 3.
const KMAC_SALT: [u8; 132] = [0; 132];

/// A connection as one end sends on it (RFC 5925 section 5.2, "connection identifier" and ISNs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context {
    /// The sender. Both ends are of one family; v4-mapped addresses are IPv4 here.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// Initial sequence number of the sender.
    pub source_isn: u32,
    /// Initial sequence number of the receiver; 0 for a SYN, which cannot know it.
    pub destination_isn: u32,
}

impl Context {
    /// The longest encoding in bytes: two addresses, two ports, two ISNs.
    const MAX_LEN: usize = 2 * 16 + 2 * 2 + 2 * 4;

    fn encode<'b>(&self, out: &'b mut [u8; Context::MAX_LEN]) -> &'b [u8] {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        for end in [self.source, self.destination] {
            match end.ip() {
                IpAddr::V4(a) => put(&a.octets()),
                IpAddr::V6(a) => put(&a.octets()),
            }
        }
        put(&self.source.port().to_be_bytes());
        put(&self.destination.port().to_be_bytes());
        put(&self.source_isn.to_be_bytes());
        put(&self.destination_isn.to_be_bytes());
        &out[..at]
    }
}

/// A master key, prepared for its KDF.
pub(crate) struct Master {
    /// The MAC under the master key; with [`Kdf::Hkdf`] under the PRK, with [`Kdf::Kmac`] under the salt.
    tfm: MacTfm,
    /// The master key as the kernel keeps it; with [`Kdf::CounterExtracted`], the 16 bytes extracted from it. Empty if it is elsewhere.
    pub(crate) kept: Zeroizing<Vec<u8>>,
    /// The reference of a key that is elsewhere.
    pub(crate) reference: Option<Zeroizing<Vec<u8>>>,
}

impl Master {
    pub(crate) fn new(algorithm: &Algorithm, key: &[u8]) -> Result<Self, KeyError> {
        let mac = &algorithm.kdf_mac;
        let mut kept = Zeroizing::new(key.to_vec());
        let tfm = match algorithm.kdf {
            Kdf::Counter => mac.mac(key)?,
            Kdf::CounterExtracted => {
                if key.len() != AES_KEY_LEN {
                    let mut extracted = Zeroizing::new(vec![0; AES_KEY_LEN]);
                    mac.mac(&[0; AES_KEY_LEN])?.sign(&[key], &mut extracted).map_err(|_| KeyError::Driver)?;
                    kept = extracted;
                }
                mac.mac(&kept)?
            }
            Kdf::Hkdf => {
                let mut prk = Zeroizing::new([0; 32]);
                mac.mac(&[0; 32])?.sign(&[key], &mut *prk).map_err(|_| KeyError::Driver)?;
                mac.mac(&*prk)?
            }
            Kdf::Kmac => mac.mac(&KMAC_SALT)?,
        };
        Ok(Master { tfm, kept, reference: None })
    }

    /// A key that is elsewhere, and by which `mac` computes there.
    pub(crate) fn elsewhere(mac: &Alg, reference: &[u8]) -> Result<Self, KeyError> {
        let reference = Zeroizing::new(reference.to_vec());
        Ok(Master { tfm: mac.mac(&reference)?, kept: Zeroizing::default(), reference: Some(reference) })
    }
}

/// A traffic key before it is prepared; wiped on drop.
pub struct TrafficKey {
    bytes: Zeroizing<[u8; MAX_TRAFFIC_KEY_LEN]>,
    len: usize,
}

impl TrafficKey {
    /// The key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Master {
    /// Derives the traffic key of one direction by the KDF of `algorithm`, for which this was prepared.
    ///
    /// # Errors
    /// [`KeyError::Driver`] when the driver fails; software drivers do not, and where the key is elsewhere it may.
    pub(crate) fn traffic_key(&self, algorithm: &Algorithm, context: &Context) -> Result<TrafficKey, KeyError> {
        let mut buf = [0; Context::MAX_LEN];
        let context = context.encode(&mut buf);
        let len = algorithm.traffic_key_len;
        let mut key = TrafficKey { bytes: Zeroizing::new([0; MAX_TRAFFIC_KEY_LEN]), len };
        let out = &mut key.bytes[..len];
        let out_bits = (len as u16 * 8).to_be_bytes();
        let tfm = &self.tfm;
        match algorithm.kdf {
            // i || Label || Context || Output_Length; one block of the PRF is enough.
            Kdf::Counter | Kdf::CounterExtracted => tfm.sign(&[&[1], b"TCP-AO", context, &out_bits], out),
            Kdf::Hkdf => tfm.sign(&[context, &[1]], out),
            Kdf::Kmac => tfm.sign(&[&1u32.to_be_bytes(), &self.kept, context], out),
        }
        .map_err(|_| KeyError::Driver)?;
        Ok(key)
    }
}
