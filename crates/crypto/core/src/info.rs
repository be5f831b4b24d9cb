//! Properties of algorithms that do not depend on the driver.

/// The types of algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Hashes and MACs (AF_ALG "hash").
    Hash,
    /// MACs that need a nonce; AF_ALG does not offer them.
    NonceMac,
    /// Ciphers without authentication.
    Skcipher,
    /// Authenticated ciphers.
    Aead,
    /// Random number generators.
    Rng,
}

impl Kind {
    /// The name in `sockaddr_alg.salg_type` and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::NonceMac => "nonce-mac",
            Kind::Skcipher => "skcipher",
            Kind::Aead => "aead",
            Kind::Rng => "rng",
        }
    }
}

/// A set of lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengths {
    /// No length: the algorithm has no key, or no tag.
    None,
    /// All lengths from the first to the second, both included.
    Range(usize, usize),
    /// Exactly these lengths, ascending.
    Of(&'static [usize]),
}

impl Lengths {
    /// Whether `len` is one of these lengths.
    #[must_use]
    pub fn contains(&self, len: usize) -> bool {
        match self {
            Lengths::None => false,
            Lengths::Range(min, max) => (*min..=*max).contains(&len),
            Lengths::Of(list) => list.contains(&len),
        }
    }

    /// The smallest length, 0 when there is none.
    #[must_use]
    pub fn min(&self) -> usize {
        match self {
            Lengths::None => 0,
            Lengths::Range(min, _) => *min,
            Lengths::Of(list) => list.first().copied().unwrap_or(0),
        }
    }

    /// The largest length, 0 when there is none.
    #[must_use]
    pub fn max(&self) -> usize {
        match self {
            Lengths::None => 0,
            Lengths::Range(_, max) => *max,
            Lengths::Of(list) => list.last().copied().unwrap_or(0),
        }
    }
}

/// Whether an algorithm takes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// Never (`sha256`).
    None,
    /// The algorithm also works without a key (`blake2b-256`, `crc32c`, `xxhash64`); the kernel's
    /// `CRYPTO_ALG_OPTIONAL_KEY`.
    Optional,
    /// Always (`hmac(sha256)`).
    Required,
}

/// The mode of operation of a cipher or AEAD, where code other than its driver depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CipherMode {
    /// Electronic codebook; it has no IV.
    Ecb,
    /// Cipher block chaining: the IV on return is the last ciphertext block, and `cts` may wrap it.
    Cbc,
    /// Counter mode over the whole block: the IV on return is the next counter.
    Ctr,
    /// XTS. In some versions of Linux the IV on return is the advanced tweak, in others it is unchanged.
    Xts,
    /// ChaCha20 as a stream cipher; the IV stays.
    ChaCha20,
    /// Counter with CBC-MAC: the first byte of the IV is the size of the length field, less one (RFC 3610 section 2.3).
    Ccm,
    /// Any other, or none.
    Other,
}

/// The layout of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFormat {
    /// One key.
    Plain,
    /// An `rtattr` with the length of the cipher's key, the MAC's key, the cipher's key (`crypto/authenc.c`).
    Authenc {
        /// Key lengths of the cipher.
        cipher_key_lens: Lengths,
    },
}

/// Properties of an algorithm that do not depend on the driver. Lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlgInfo {
    /// Generic name, `gcm(aes)`.
    pub name: String,
    /// Type.
    pub kind: Kind,
    /// `cra_blocksize`: 1 for stream ciphers and AEADs over them, the compression block for hashes.
    pub block_len: usize,
    /// `chunksize` of a cipher: the granule in which a text may be split between calls (CTR: 16, ChaCha20: 64).
    /// Equal to `block_len` for block modes; 1 for algorithms that are not ciphers.
    pub chunk_len: usize,
    /// Accepted key lengths.
    pub key_lens: Lengths,
    /// Whether a key is needed.
    pub key_use: KeyUse,
    /// Layout of the key.
    pub key_format: KeyFormat,
    /// Whether Linux's `setkey` accepts an empty key where the key is optional (`blake2b`); it means no key.
    pub empty_key: bool,
    /// Mode of a cipher or AEAD.
    pub mode: CipherMode,
    /// Length of the IV or nonce that the caller supplies.
    pub iv_len: usize,
    /// Digest, full MAC tag, or largest AEAD tag (`maxauthsize`).
    pub digest_len: usize,
    /// Tag lengths that an AEAD offers.
    pub tag_lens: Lengths,
    /// Whether it is kept for old protocols only; `sealane crypto list` marks it.
    pub legacy: bool,
}

impl AlgInfo {
    /// A plain hash.
    #[must_use]
    pub fn hash(name: &str, block_len: usize, digest_len: usize) -> Self {
        AlgInfo {
            name: name.to_owned(),
            kind: Kind::Hash,
            block_len,
            chunk_len: 1,
            key_lens: Lengths::None,
            key_use: KeyUse::None,
            key_format: KeyFormat::Plain,
            empty_key: false,
            mode: CipherMode::Other,
            iv_len: 0,
            digest_len,
            tag_lens: Lengths::None,
            legacy: false,
        }
    }

    /// A MAC.
    #[must_use]
    pub fn mac(name: &str, block_len: usize, digest_len: usize, key_lens: Lengths) -> Self {
        AlgInfo { key_lens, key_use: KeyUse::Required, ..AlgInfo::hash(name, block_len, digest_len) }
    }

    /// A MAC with a nonce.
    #[must_use]
    pub fn nonce_mac(name: &str, digest_len: usize, key_lens: Lengths, iv_len: usize) -> Self {
        AlgInfo { kind: Kind::NonceMac, iv_len, ..AlgInfo::mac(name, 16, digest_len, key_lens) }
    }

    /// A cipher whose chunk is its block.
    #[must_use]
    pub fn skcipher(name: &str, block_len: usize, key_lens: Lengths, iv_len: usize) -> Self {
        AlgInfo {
            kind: Kind::Skcipher,
            block_len,
            chunk_len: block_len,
            key_lens,
            key_use: KeyUse::Required,
            iv_len,
            digest_len: 0,
            ..AlgInfo::hash(name, block_len, 0)
        }
    }

    /// An AEAD.
    #[must_use]
    pub fn aead(name: &str, block_len: usize, key_lens: Lengths, iv_len: usize, tag_lens: Lengths) -> Self {
        AlgInfo {
            kind: Kind::Aead,
            key_lens,
            key_use: KeyUse::Required,
            iv_len,
            digest_len: tag_lens.max(),
            tag_lens,
            ..AlgInfo::hash(name, block_len, 0)
        }
    }

    /// A generator.
    #[must_use]
    pub fn rng(name: &str) -> Self {
        AlgInfo { kind: Kind::Rng, ..AlgInfo::hash(name, 1, 0) }
    }

    /// The same algorithm with its mode set.
    #[must_use]
    pub fn mode(self, mode: CipherMode) -> Self {
        AlgInfo { mode, ..self }
    }

    /// The same algorithm, marked as kept for old protocols only.
    #[must_use]
    pub fn legacy(self) -> Self {
        AlgInfo { legacy: true, ..self }
    }
}
