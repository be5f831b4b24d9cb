//! The algorithms that sequences draw from.

/// An algorithm, as far as a sequence needs to know it to make sensible calls. Lengths in bytes.
#[derive(Debug)]
pub struct Alg {
    /// `salg_type`.
    pub ty: &'static str,
    /// `salg_name`.
    pub name: &'static str,
    /// Key lengths that it takes; empty when it takes no key.
    pub keys: &'static [usize],
    /// Length of the IV.
    pub iv: usize,
    /// Block size of a cipher, 1 when it takes any length.
    pub block: usize,
    /// Tag lengths of an AEAD, or the digest length of a hash.
    pub tags: &'static [usize],
    /// Least length of the associated data (RFC 4106 carries the IV there).
    pub assoc: usize,
}

const fn hash(name: &'static str, digest: &'static [usize]) -> Alg {
    Alg { ty: "hash", name, keys: &[], iv: 0, block: 1, tags: digest, assoc: 0 }
}

const fn mac(name: &'static str, keys: &'static [usize], tag: &'static [usize]) -> Alg {
    Alg { keys, ..hash(name, tag) }
}

const fn cipher(name: &'static str, keys: &'static [usize], iv: usize, block: usize) -> Alg {
    Alg { ty: "skcipher", keys, iv, block, ..hash(name, &[]) }
}

const fn aead(name: &'static str, keys: &'static [usize], iv: usize, tags: &'static [usize], assoc: usize) -> Alg {
    Alg { ty: "aead", iv, assoc, ..mac(name, keys, tags) }
}

const fn rng(name: &'static str) -> Alg {
    Alg { ty: "rng", ..hash(name, &[]) }
}

const AES: &[usize] = &[16, 24, 32];
const GCM_TAGS: &[usize] = &[16, 16, 4, 8, 12, 13, 14, 15];
const CCM_TAGS: &[usize] = &[16, 8, 4, 6, 10, 12, 14];

/// Generic names that all kernels of SEALANE_KERNELS have.
pub const CORE: &[Alg] = &[
    hash("md5", &[16]),
    hash("sha1", &[20]),
    hash("sha224", &[28]),
    hash("sha256", &[32]),
    hash("sha384", &[48]),
    hash("sha512", &[64]),
    hash("rmd160", &[20]),
    mac("hmac(md5)", &[16, 1, 64, 65, 200], &[16]),
    mac("hmac(sha1)", &[20, 1, 64, 65, 200], &[20]),
    mac("hmac(sha256)", &[32, 16, 64, 65, 200], &[32]),
    mac("hmac(sha512)", &[64, 1, 128, 129, 300], &[64]),
    mac("cmac(aes)", AES, &[16]),
    // No xcbc(aes): Linux before 7 takes longer keys than RFC 3566 allows, and Sealane does not (LIMITATIONS.md).
    cipher("ecb(aes)", AES, 0, 16),
    cipher("cbc(aes)", AES, 16, 16),
    cipher("cbc(aes)", AES, 16, 16),
    cipher("ctr(aes)", AES, 16, 1),
    cipher("ctr(aes)", AES, 16, 1),
    cipher("xts(aes)", &[32, 64], 16, 16),
    cipher("rfc3686(ctr(aes))", &[20, 28, 36], 8, 1),
    cipher("ecb(des3_ede)", &[24], 0, 8),
    cipher("cbc(des3_ede)", &[24], 8, 8),
    cipher("cbc(des)", &[8], 8, 8),
    cipher("chacha20", &[32], 16, 1),
    aead("gcm(aes)", AES, 12, GCM_TAGS, 0),
    aead("gcm(aes)", AES, 12, GCM_TAGS, 0),
    aead("ccm(aes)", AES, 16, CCM_TAGS, 0),
    aead("rfc4106(gcm(aes))", &[20, 28, 36], 8, &[16, 8, 12], 16),
    aead("rfc4309(ccm(aes))", &[19, 27, 35], 8, &[16, 8, 12], 16),
    aead("rfc4543(gcm(aes))", &[20, 28, 36], 8, &[16], 16),
    aead("rfc7539(chacha20,poly1305)", &[32], 12, &[16], 0),
    aead("authenc(hmac(sha256),cbc(aes))", &[56, 72], 16, &[32, 16], 0),
];

/// Driver names of several kernels, generators, and names that do not exist.
///
/// Without `seqiv(...)` and `echainiv(...)`: they do not bind (LIMITATIONS.md), and their output is random.
pub const ODD: &[Alg] = &[
    hash("sha256-generic", &[32]),
    hash("sha256-lib", &[32]),
    mac("hmac(sha256-generic)", &[32], &[32]),
    mac("hmac-sha256-lib", &[32], &[32]),
    mac("hmac(rmd160)", &[20, 65], &[20]),
    cipher("cbc(aes-generic)", AES, 16, 16),
    cipher("cbc-aes-lib", AES, 16, 16),
    cipher("xchacha20", &[32], 32, 1),
    rng("stdrng"),
    rng("stdrng"),
    rng("jitterentropy_rng"),
    rng("drbg_nopr_hmac_sha256"),
    hash("nope", &[8]),
    hash("cbc(aes)", &[16]),
    hash("hmac(sha256", &[32]),
    hash("hmac(nope)", &[32]),
    hash("hmac(hmac(sha1))", &[32]),
    hash("SHA256", &[32]),
    hash(" sha256", &[32]),
    cipher("sha256", &[16], 16, 16),
    cipher("aes", AES, 16, 16),
    cipher("gcm(aes)", AES, 12, 16),
    cipher("", AES, 16, 16),
    aead("cbc(aes)", AES, 16, &[16], 0),
    rng("sha256"),
    Alg { ty: "foo", ..hash("sha1", &[20]) },
    Alg { ty: "", ..hash("sha1", &[20]) },
];

/// Names of Linux that the configuration of a small kernel may leave out, for comparisons with a kernel that has them.
pub const EXTRA: &[Alg] = &[
    hash("sha3-256", &[32]),
    hash("sha3-512", &[64]),
    hash("blake2b-256", &[32]),
    hash("md4", &[16]),
    hash("sm3", &[32]),
    hash("crc32c", &[4]),
    hash("xxhash64", &[8]),
    mac("hmac(sha3-256)", &[32, 136, 137], &[32]),
    cipher("cts(cbc(aes))", AES, 16, 16),
    cipher("cbc(serpent)", &[16, 32], 16, 16),
    cipher("xts(camellia)", &[32, 64], 16, 16),
    cipher("adiantum(xchacha12,aes)", &[32], 32, 1),
    cipher("hctr2(aes)", AES, 32, 1),
    rng("ansi_cprng"),
];
