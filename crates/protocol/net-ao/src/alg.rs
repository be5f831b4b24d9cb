//! The algorithms of TCP-AO, resolved once against the registry of the crypto core.

use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::{Alg, Kind, Lengths, Registry};
use std::sync::Arc;

/// The longest master key in bytes (`TCP_AO_MAXKEYLEN`).
pub const MAX_KEY_LEN: usize = 80;

/// The usual length of a MAC in bytes (RFC 5926 section 3.2: 96 bits).
pub const DEFAULT_MAC_LEN: usize = 12;

/// A key derivation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kdf {
    /// `KDF_HMAC_SHA1` (RFC 5926 section 3.1.1.1) with any HMAC: one block of NIST SP 800-108 in counter mode.
    Counter,
    /// `KDF_AES_128_CMAC` (RFC 5926 section 3.1.1.2): the same with CMAC, whose key is first brought to 16 bytes.
    CounterExtracted,
    /// HKDF-SHA256 (RFC 5869) with a salt of 32 zeros (draft section 3.1.1).
    Hkdf,
    /// One step of NIST SP 800-56C with KMAC256 and a salt of 132 zeros (draft section 3.1.2).
    Kmac,
}

/// An algorithm: a MAC with the KDF that belongs to it.
pub struct Algorithm {
    /// The name in `alg_name` of `struct tcp_ao_add`.
    pub name: &'static str,
    /// Length of the whole MAC in bytes.
    pub digest_len: usize,
    /// Length of a traffic key in bytes.
    pub traffic_key_len: usize,
    /// The MAC length in bytes that is used when a program asks for 0: 12 as in Linux, 16 for the drafts.
    pub default_mac_len: usize,
    /// The document that specifies it.
    pub source: Source,
    pub(crate) mac: Alg,
    pub(crate) kdf: Kdf,
    /// The MAC that the KDF uses, with a single driver: the algorithm's own MAC, or another one with [`Kdf::Kmac`].
    pub(crate) kdf_mac: Alg,
}

/// The document that specifies an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// RFC 5926.
    Rfc5926,
    /// No standard: Linux until 7.0, and BIRD on it, combine the KDF of RFC 5926 with another hash.
    Linux,
    /// draft-ietf-tcpm-tcp-ao-algs-07, which may still change.
    Draft,
}

struct Row {
    name: &'static str,
    mac: &'static str,
    kdf: Kdf,
    kdf_mac: &'static str,
    traffic_key_len: usize,
    source: Source,
}

impl Row {
    const fn hmac(name: &'static str, len: usize, source: Source) -> Self {
        Row { name, mac: name, kdf: Kdf::Counter, kdf_mac: name, traffic_key_len: len, source }
    }
}

/// Linux until 7.0 takes every hash with a key that its crypto API has, so there is a row for each HMAC of ours but that of MD4. MACs
/// that need a nonce have none in a segment; the others take keys of few lengths, and a secret may have any.
const ROWS: [Row; 22] = [
    Row::hmac("hmac(md5)", 16, Source::Linux),
    Row::hmac("hmac(sha1)", 20, Source::Rfc5926),
    Row::hmac("hmac(sha224)", 28, Source::Linux),
    Row::hmac("hmac(sha256)", 32, Source::Linux),
    Row::hmac("hmac(sha384)", 48, Source::Linux),
    Row::hmac("hmac(sha512)", 64, Source::Linux),
    Row::hmac("hmac(sha3-224)", 28, Source::Linux),
    Row::hmac("hmac(sha3-256)", 32, Source::Linux),
    Row::hmac("hmac(sha3-384)", 48, Source::Linux),
    Row::hmac("hmac(sha3-512)", 64, Source::Linux),
    Row::hmac("hmac(rmd160)", 20, Source::Linux),
    Row::hmac("hmac(sm3)", 32, Source::Linux),
    Row::hmac("hmac(streebog256)", 32, Source::Linux),
    Row::hmac("hmac(streebog512)", 64, Source::Linux),
    Row::hmac("hmac(wp512)", 64, Source::Linux),
    Row::hmac("hmac(blake2b-160)", 20, Source::Linux),
    Row::hmac("hmac(blake2b-256)", 32, Source::Linux),
    Row::hmac("hmac(blake2b-384)", 48, Source::Linux),
    Row::hmac("hmac(blake2b-512)", 64, Source::Linux),
    Row {
        name: "cmac(aes128)",
        mac: "cmac(aes)",
        kdf: Kdf::CounterExtracted,
        kdf_mac: "cmac(aes)",
        traffic_key_len: 16,
        source: Source::Rfc5926,
    },
    Row {
        name: "hmac-sha256-128",
        mac: "hmac(sha256)",
        kdf: Kdf::Hkdf,
        kdf_mac: "hmac(sha256)",
        traffic_key_len: 32,
        source: Source::Draft,
    },
    Row {
        name: "kmac256-128",
        mac: "kmac256-128",
        kdf: Kdf::Kmac,
        kdf_mac: "kmac256-kdf",
        traffic_key_len: 32,
        source: Source::Draft,
    },
];

impl Algorithm {
    /// The MAC that the KDF computes under the master key, and the lengths of such a key in bytes, if it does nothing else with it.
    /// Then the key may be elsewhere (`Mkt::elsewhere`): whoever has it computes the MAC.
    #[must_use]
    pub fn kdf_mac(&self) -> Option<(&Alg, Lengths)> {
        match self.kdf {
            Kdf::Counter => Some((&self.kdf_mac, Lengths::Range(1, MAX_KEY_LEN))),
            // A key of another length is a message first.
            Kdf::CounterExtracted => Some((&self.kdf_mac, Lengths::Range(self.traffic_key_len, self.traffic_key_len))),
            Kdf::Hkdf | Kdf::Kmac => None,
        }
    }

    /// The MAC, which several drivers may serve.
    #[must_use]
    pub fn mac(&self) -> &Alg {
        &self.mac
    }
}

/// Length of the KDF's input for IPv4 (RFC 5926): counter, label, addresses, ports, ISNs, length.
const KDF_INPUT_LEN: usize = 1 + 6 + 20 + 2;

/// The longest traffic key in bytes.
pub const MAX_TRAFFIC_KEY_LEN: usize = 64;

/// The algorithms that a registry can serve.
#[derive(Clone)]
pub struct Algorithms {
    list: Vec<Arc<Algorithm>>,
}

impl Algorithms {
    /// Resolves all names; an algorithm that `registry` does not have is left out.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let list = ROWS
            .iter()
            .filter_map(|row| {
                let mac = registry.lookup(Kind::Hash, row.mac).ok()?;
                // Keys are derived one by one, so one driver is enough and keeps prepared master keys small.
                let kdf_mac = registry.lookup(Kind::Hash, row.kdf_mac).ok()?;
                let kdf_driver = kdf_mac.row_for(MeasuredDirection::Forward, KDF_INPUT_LEN, 1);
                let kdf_row = kdf_mac.rows().iter().find(|r| core::ptr::eq(&raw const ***r, kdf_driver))?;
                let kdf_mac = Alg::of_row(kdf_row, registry.entropy());
                Some(Arc::new(Algorithm {
                    name: row.name,
                    digest_len: mac.info().digest_len,
                    traffic_key_len: row.traffic_key_len,
                    default_mac_len: if row.source == Source::Draft { 16 } else { DEFAULT_MAC_LEN },
                    source: row.source,
                    mac,
                    kdf: row.kdf,
                    kdf_mac,
                }))
            })
            .collect();
        Algorithms { list }
    }

    /// The algorithm of this name; `cmac(aes)` is another spelling of `cmac(aes128)`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Algorithm>> {
        let name = if name == "cmac(aes)" { "cmac(aes128)" } else { name };
        self.list.iter().find(|a| a.name == name)
    }

    /// All algorithms.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Algorithm>> {
        self.list.iter()
    }
}
