//! Algorithms by the kernel's names (`net/xfrm/xfrm_algo.c`), and prepared keys.
//!
//! ESP uses one AEAD of the crypto core: `rfc4106(...)` and the like directly, a cipher with a MAC as `authenc(...)`,
//! or as `authencesn(...)` with extended sequence numbers. Null encryption and AH use only a MAC. A partial MAC stands beside its
//! cipher and in no composition.

use crate::partial::PartialKey;
use core::fmt;
use sealane_crypto::aead::AeadTfm;
use sealane_crypto::mac::MacTfm;
use sealane_crypto::partial::PartialAlg;
pub use sealane_crypto::partial::PartialInfo;
use sealane_crypto::{Alg, KeyError, KeyUse, Kind, LookupError, Registry, Row};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The longest ICV in bytes (HMAC-SHA-512 in full).
pub const MAX_ICV_LEN: usize = 64;

/// The longest IV in a packet in bytes.
pub const MAX_IV_LEN: usize = 16;

/// An AEAD: name, and permitted lengths of the ICV in bits.
struct AeadRow(&'static str, &'static [u32]);

const AEADS: [AeadRow; 4] = [
    AeadRow("rfc4106(gcm(aes))", &[64, 96, 128]),
    AeadRow("rfc4309(ccm(aes))", &[64, 96, 128]),
    AeadRow("rfc4543(gcm(aes))", &[128]),
    AeadRow("rfc7539esp(chacha20,poly1305)", &[128]),
];

/// A MAC: name, older name, default length of the ICV in bits, full length in bits.
struct AuthRow(&'static str, &'static str, u32, u32);

/// The MACs of `xfrm_algo.c` of Linux 7.3. Lengths and keys are as there.
const LINUX_AUTHS: usize = 9;

/// The shortest ICV of the other MACs in bits: that of RFC 4302 and 4303.
const MIN_ICV_BITS: u32 = 96;

/// The MACs of `xfrm_algo.c`, and behind them those of the crypto core that Linux has no row for: nobody knows a forgery of them cheaper
/// than to guess, and they need no nonce, because there is none beside the packet.
const AUTHS: [AuthRow; LINUX_AUTHS + 25] = [
    AuthRow("digest_null", "", 0, 0),
    AuthRow("hmac(md5)", "md5", 96, 128),
    AuthRow("hmac(sha1)", "sha1", 96, 160),
    AuthRow("hmac(sha256)", "sha256", 96, 256),
    AuthRow("hmac(sha384)", "", 192, 384),
    AuthRow("hmac(sha512)", "", 256, 512),
    AuthRow("xcbc(aes)", "", 96, 128),
    AuthRow("cmac(aes)", "", 96, 128),
    AuthRow("hmac(sm3)", "sm3", 256, 256),
    // Linux 6.12 has it, 7.3 has not.
    AuthRow("hmac(rmd160)", "rmd160", 96, 160),
    // Half of the tag, as RFC 4868 has it for the SHA-2 of these lengths.
    AuthRow("hmac(sha224)", "", 112, 224),
    AuthRow("hmac(sha3-224)", "", 112, 224),
    AuthRow("hmac(sha3-256)", "", 128, 256),
    AuthRow("hmac(sha3-384)", "", 192, 384),
    AuthRow("hmac(sha3-512)", "", 256, 512),
    AuthRow("hmac(streebog256)", "", 128, 256),
    AuthRow("hmac(streebog512)", "", 256, 512),
    AuthRow("hmac(wp512)", "", 256, 512),
    AuthRow("hmac(blake2b-160)", "", 96, 160),
    AuthRow("hmac(blake2b-256)", "", 128, 256),
    AuthRow("hmac(blake2b-384)", "", 192, 384),
    AuthRow("hmac(blake2b-512)", "", 256, 512),
    AuthRow("blake2b-160", "", 96, 160),
    AuthRow("blake2b-256", "", 128, 256),
    AuthRow("blake2b-384", "", 192, 384),
    AuthRow("blake2b-512", "", 256, 512),
    AuthRow("blake2s-128", "", 96, 128),
    AuthRow("blake2s-160", "", 96, 160),
    AuthRow("blake2s-224", "", 112, 224),
    AuthRow("blake2s-256", "", 128, 256),
    AuthRow("blake3", "", 128, 256),
    AuthRow("kmac256-128", "", 128, 128),
    AuthRow("cmac(camellia)", "", 96, 128),
    AuthRow("cmac(sm4)", "", 96, 128),
];

/// The construction of a packet's IV from its sequence number. IVs are unique as long as the numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IvKind {
    /// None (null encryption, AH).
    None,
    /// The number XORed with a secret salt, for modes that need a nonce (the kernel's `seqiv`).
    Counter,
    /// A block that depends on the number, encrypted, for CBC, whose IV must be unpredictable (the kernel's
    /// `echainiv`).
    Encrypted,
}

/// A cipher: name, older name, construction of the IV.
struct EncRow(&'static str, &'static str, IvKind);

const ENCS: [EncRow; 11] = [
    EncRow("ecb(cipher_null)", "cipher_null", IvKind::None),
    EncRow("cbc(des)", "des", IvKind::Encrypted),
    EncRow("cbc(des3_ede)", "des3_ede", IvKind::Encrypted),
    EncRow("cbc(cast5)", "cast5", IvKind::Encrypted),
    EncRow("cbc(blowfish)", "blowfish", IvKind::Encrypted),
    EncRow("cbc(aes)", "aes", IvKind::Encrypted),
    EncRow("cbc(serpent)", "serpent", IvKind::Encrypted),
    EncRow("cbc(camellia)", "camellia", IvKind::Encrypted),
    EncRow("cbc(twofish)", "twofish", IvKind::Encrypted),
    EncRow("rfc3686(ctr(aes))", "", IvKind::Counter),
    EncRow("cbc(sm4)", "sm4", IvKind::Encrypted),
];

/// The row of a MAC in the kernel's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthInfo {
    /// The name, not the older one.
    pub name: &'static str,
    /// Default length of the ICV in bits.
    pub icv_bits: u32,
    /// Full length of the MAC in bits.
    pub full_bits: u32,
}

/// The row of a MAC by its name or its older name (`xfrm_aalg_get_byname`).
#[must_use]
pub fn auth_info(name: &str) -> Option<AuthInfo> {
    let row = AUTHS.iter().find(|row| row.0 == name || (row.1 == name && !row.1.is_empty()))?;
    Some(AuthInfo { name: row.0, icv_bits: row.2, full_bits: row.3 })
}

/// The name of a cipher by its name or its older name (`xfrm_ealg_get_byname`).
#[must_use]
pub fn enc_name(name: &str) -> Option<&'static str> {
    ENCS.iter().find(|row| row.0 == name || (row.1 == name && !row.1.is_empty())).map(|row| row.0)
}

/// The name of an AEAD with an ICV of this many bits (`xfrm_aead_get_byname`).
#[must_use]
pub fn aead_name(name: &str, icv_bits: u32) -> Option<&'static str> {
    AEADS.iter().find(|row| row.0 == name && row.1.contains(&icv_bits)).map(|row| row.0)
}

/// The AEADs, each with the lengths of its ICV in bits.
pub fn aeads() -> impl Iterator<Item = (&'static str, &'static [u32])> {
    AEADS.iter().map(|row| (row.0, row.1))
}

/// The MACs. One of them is no MAC: `digest_null`, with an ICV of 0 bits, which is refused.
pub fn auths() -> impl Iterator<Item = AuthInfo> {
    AUTHS.iter().map(|row| AuthInfo { name: row.0, icv_bits: row.2, full_bits: row.3 })
}

/// The ciphers, each with the construction of its IV; null encryption has none.
pub fn encs() -> impl Iterator<Item = (&'static str, IvKind)> {
    ENCS.iter().map(|row| (row.0, row.2))
}

/// A name with its key.
#[derive(Clone, Copy)]
pub struct Keyed<'a> {
    /// The kernel's name, or the older one that it still accepts (`aes` for `cbc(aes)`).
    pub name: &'a str,
    /// The key, followed by the salt if the algorithm has one.
    pub key: &'a [u8],
}

/// The algorithms and keys of a state.
#[derive(Clone, Copy)]
pub enum TransformSpec<'a> {
    /// Encryption and integrity in one (`XFRMA_ALG_AEAD`).
    Aead {
        /// The AEAD.
        aead: Keyed<'a>,
        /// Length of the ICV in bits.
        icv_bits: u32,
    },
    /// A cipher and a MAC (`XFRMA_ALG_CRYPT` with `XFRMA_ALG_AUTH_TRUNC` or `XFRMA_ALG_AUTH`).
    EncAuth {
        /// The cipher.
        enc: Keyed<'a>,
        /// The MAC.
        auth: Keyed<'a>,
        /// Length of the ICV in bits; 0 for the default.
        icv_bits: u32,
    },
    /// A cipher, or none, and a partial MAC (`XFRMA_ALG_AUTH_TRUNC` with a name of [`PartialInfo`]): weaker than any other, and only
    /// for callers who ask for it.
    Partial {
        /// The cipher.
        enc: Keyed<'a>,
        /// The partial MAC.
        auth: Keyed<'a>,
        /// Length of the ICV in bits; 0 for the default.
        icv_bits: u32,
        /// The SPI, which subkeys depend on.
        spi: u32,
    },
    /// A MAC alone: AH.
    Auth {
        /// The MAC.
        auth: Keyed<'a>,
        /// Length of the ICV in bits; 0 for the default.
        icv_bits: u32,
    },
}

/// Reasons why a transform cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransformError {
    /// There is no AEAD with this name and ICV length.
    NoAead,
    /// There is no MAC with this name.
    NoAuth,
    /// There is no cipher with this name.
    NoEnc,
    /// The ICV is longer than the MAC, or not a whole number of bytes.
    IcvLen,
    /// Encryption without integrity (`digest_null`): refused.
    NullAuth,
    /// A partial MAC without extended sequence numbers.
    PartialNumbers,
    /// The registry does not have the algorithm, or its self-test failed.
    Lookup(LookupError),
    /// The key was refused.
    Key(KeyError),
}

impl fmt::Display for TransformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransformError::NoAead => f.write_str("no such AEAD for IPsec with this length of ICV"),
            TransformError::NoAuth => f.write_str("no such MAC for IPsec"),
            TransformError::NoEnc => f.write_str("no such cipher for IPsec"),
            TransformError::IcvLen => f.write_str("the MAC cannot be truncated to this length"),
            TransformError::NullAuth => f.write_str("encryption without integrity is refused"),
            TransformError::PartialNumbers => f.write_str("a partial MAC needs extended sequence numbers"),
            TransformError::Lookup(e) => e.fmt(f),
            TransformError::Key(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for TransformError {}

/// Prepared keys. There is no `Debug`, so that they are never printed.
#[derive(Clone)]
pub(crate) enum Crypt {
    /// No keys yet.
    None,
    /// No keys at all: IPComp and IP in IP.
    Keyless,
    Aead(AeadTfm),
    Mac(MacTfm),
    /// A type of its own, so that no packet of a state with another MAC is ever checked by a partial one.
    Partial(Arc<PartialKey>),
}

/// The prepared key of an association, for [`burst::run`](crate::burst::run). Clones share it. It has no `Debug`
/// and is wiped when the last clone is dropped.
#[derive(Clone)]
pub struct SaKey(pub(crate) Crypt);

/// A keyed transform, ready for packets.
#[derive(Clone)]
pub struct Transform {
    pub(crate) crypt: Crypt,
    /// The construction of IVs.
    pub iv: IvKind,
    /// Length of the IV in a packet in bytes.
    pub iv_len: u8,
    /// Length of the ICV in bytes.
    pub icv_len: u8,
    /// Full length of the MAC in bytes; 0 for an AEAD.
    pub full_icv_len: u8,
    /// The block length to which ESP's payload and trailer are padded, in bytes.
    pub align: u8,
}

impl Transform {
    /// The transform of a state whose keys are not known yet.
    #[must_use]
    pub fn larval() -> Self {
        Transform { crypt: Crypt::None, iv: IvKind::None, iv_len: 0, icv_len: 0, full_icv_len: 0, align: 4 }
    }

    /// The transform of a state that protects nothing: IPComp and IP in IP.
    #[must_use]
    pub fn keyless() -> Self {
        Transform { crypt: Crypt::Keyless, ..Transform::larval() }
    }

    /// Its prepared key, for a device.
    #[must_use]
    pub fn key(&self) -> SaKey {
        SaKey(self.crypt.clone())
    }
}

/// Resolves algorithm names. States with the same algorithm share an [`Alg`], so that their packets share bursts.
pub struct Transforms {
    registry: Arc<Registry>,
    resolved: Vec<(String, Alg)>,
    partials: Vec<(String, PartialAlg)>,
}

impl Transforms {
    /// Resolves names with this registry.
    #[must_use]
    pub fn new(registry: Arc<Registry>) -> Self {
        Transforms { registry, resolved: Vec::new(), partials: Vec::new() }
    }

    fn alg(&mut self, kind: Kind, name: &str) -> Result<Alg, TransformError> {
        if let Some((_, alg)) = self.resolved.iter().find(|(known, alg)| known == name && alg.info().kind == kind) {
            return Ok(alg.clone());
        }
        let alg = self.registry.lookup(kind, name).map_err(TransformError::Lookup)?;
        self.resolved.push((name.to_owned(), alg.clone()));
        Ok(alg)
    }

    /// Whether the registry has an algorithm.
    pub fn offers(&mut self, kind: Kind, name: &str) -> bool {
        self.alg(kind, name).is_ok()
    }

    /// Whether the registry has a MAC of this name that needs a key, be it one for packets or not.
    #[must_use]
    pub fn has_mac(&self, name: &str) -> bool {
        let is_mac = |row: &Row| {
            row.info.kind == Kind::NonceMac || row.info.kind == Kind::Hash && row.info.key_use != KeyUse::None
        };
        self.registry.rows().iter().any(|row| row.info.name == name && is_mac(row))
    }

    /// Prepares keys. `esn` says whether sequence numbers are extended, which changes what the MAC of a cipher with a
    /// MAC covers.
    ///
    /// # Errors
    /// [`TransformError`].
    pub fn prepare(&mut self, spec: &TransformSpec<'_>, esn: bool) -> Result<Transform, TransformError> {
        match *spec {
            TransformSpec::Aead { aead, icv_bits } => self.aead(aead, icv_bits),
            TransformSpec::Auth { auth, icv_bits } => self.mac(auth, icv_bits),
            TransformSpec::EncAuth { enc, auth, icv_bits } => self.enc_auth(enc, auth, icv_bits, esn),
            TransformSpec::Partial { .. } if !esn => Err(TransformError::PartialNumbers),
            TransformSpec::Partial { enc, auth, icv_bits, spi } => self.partial(enc, auth, icv_bits, spi),
        }
    }

    fn aead(&mut self, aead: Keyed<'_>, icv_bits: u32) -> Result<Transform, TransformError> {
        let row = AEADS.iter().find(|row| row.0 == aead.name && row.1.contains(&icv_bits));
        let name = row.ok_or(TransformError::NoAead)?.0;
        let alg = self.alg(Kind::Aead, name)?;
        let tfm = alg.aead(aead.key).map_err(TransformError::Key)?;
        Ok(Transform {
            crypt: Crypt::Aead(tfm),
            iv: IvKind::Counter,
            iv_len: short(alg.info().iv_len),
            icv_len: short(icv_bits as usize / 8),
            full_icv_len: 0,
            align: short(alg.info().block_len.max(4)),
        })
    }

    fn mac(&mut self, auth: Keyed<'_>, icv_bits: u32) -> Result<Transform, TransformError> {
        let (row, icv_len) = auth_row(auth, icv_bits)?;
        let tfm = self.alg(Kind::Hash, row.0)?.mac(auth.key).map_err(TransformError::Key)?;
        Ok(Transform {
            crypt: Crypt::Mac(tfm),
            iv: IvKind::None,
            iv_len: 0,
            icv_len,
            full_icv_len: short(row.3 as usize / 8),
            align: 4,
        })
    }

    fn enc_auth(
        &mut self,
        enc: Keyed<'_>,
        auth: Keyed<'_>,
        icv_bits: u32,
        esn: bool,
    ) -> Result<Transform, TransformError> {
        let EncRow(cipher, _, iv) = *enc_row(enc.name)?;
        if iv == IvKind::None {
            if !enc.key.is_empty() {
                return Err(TransformError::Key(KeyError::Length));
            }
            return self.mac(auth, icv_bits);
        }
        let (row, icv_len) = auth_row(auth, icv_bits)?;
        let template = if esn { "authencesn" } else { "authenc" };
        let alg = self.alg(Kind::Aead, &format!("{template}({},{cipher})", row.0))?;
        // `struct rtattr`, `struct crypto_authenc_key_param`, the MAC's key, the cipher's key.
        let mut key = Zeroizing::new(Vec::with_capacity(8 + auth.key.len() + enc.key.len()));
        key.extend_from_slice(&8u16.to_ne_bytes());
        key.extend_from_slice(&1u16.to_ne_bytes());
        let enc_len = u32::try_from(enc.key.len()).map_err(|_| TransformError::Key(KeyError::Length))?;
        key.extend_from_slice(&enc_len.to_be_bytes());
        key.extend_from_slice(auth.key);
        key.extend_from_slice(enc.key);
        let tfm = alg.aead(&key).map_err(TransformError::Key)?;
        Ok(Transform {
            crypt: Crypt::Aead(tfm),
            iv,
            iv_len: short(alg.info().iv_len),
            icv_len,
            full_icv_len: short(row.3 as usize / 8),
            align: short(alg.info().block_len.max(4)),
        })
    }

    fn partial_alg(&mut self, name: &str) -> Result<PartialAlg, TransformError> {
        if PartialInfo::of(name).is_none() {
            return Err(TransformError::NoAuth);
        }
        if let Some((_, alg)) = self.partials.iter().find(|(known, _)| known == name) {
            return Ok(alg.clone());
        }
        let alg = PartialAlg::lookup(&self.registry, name).map_err(TransformError::Lookup)?;
        self.partials.push((name.to_owned(), alg.clone()));
        Ok(alg)
    }

    fn partial(
        &mut self,
        enc: Keyed<'_>,
        auth: Keyed<'_>,
        icv_bits: u32,
        spi: u32,
    ) -> Result<Transform, TransformError> {
        let EncRow(cipher, _, iv) = *enc_row(enc.name)?;
        let partial = self.partial_alg(auth.name)?;
        let info = partial.info();
        let icv_len = if icv_bits == 0 { info.usual_tag_len() } else { icv_bits as usize / 8 };
        if !icv_bits.is_multiple_of(8) || !(info.min_tag_len()..=info.full_tag_len()).contains(&icv_len) {
            return Err(TransformError::IcvLen);
        }
        let mac = partial.key(auth.key, &spi.to_be_bytes()).map_err(TransformError::Key)?;
        let (cipher, iv_len, align) = if iv == IvKind::None {
            if !enc.key.is_empty() {
                return Err(TransformError::Key(KeyError::Length));
            }
            (None, 0, 4)
        } else {
            let alg = self.alg(Kind::Skcipher, cipher)?;
            let tfm = alg.skcipher(enc.key).map_err(TransformError::Key)?;
            (Some(tfm), short(alg.info().iv_len), short(alg.info().block_len.max(4)))
        };
        Ok(Transform {
            crypt: Crypt::Partial(Arc::new(PartialKey { cipher, mac })),
            iv,
            iv_len,
            icv_len: short(icv_len),
            full_icv_len: short(info.full_tag_len()),
            align,
        })
    }
}

/// The row of a cipher.
fn enc_row(name: &str) -> Result<&'static EncRow, TransformError> {
    let matches = |row: &&EncRow| row.0 == name || (row.1 == name && !row.1.is_empty());
    ENCS.iter().find(matches).ok_or(TransformError::NoEnc)
}

fn short(len: usize) -> u8 {
    u8::try_from(len).expect("lengths of ciphers and MACs are short")
}

/// The row of a MAC and the length of its ICV in bytes. Linux takes ICVs of 8 bits, and HMACs without a key.
fn auth_row(auth: Keyed<'_>, icv_bits: u32) -> Result<(&'static AuthRow, u8), TransformError> {
    let matches = |row: &AuthRow| row.0 == auth.name || (row.1 == auth.name && !row.1.is_empty());
    let at = AUTHS.iter().position(matches).ok_or(TransformError::NoAuth)?;
    let row = &AUTHS[at];
    // Without a key anybody computes it.
    if at >= LINUX_AUTHS && auth.key.is_empty() {
        return Err(TransformError::Key(KeyError::Length));
    }
    if row.3 == 0 {
        return Err(TransformError::NullAuth);
    }
    let bits = if icv_bits == 0 { row.2 } else { icv_bits };
    if bits > row.3 || !bits.is_multiple_of(8) || at >= LINUX_AUTHS && bits < MIN_ICV_BITS {
        return Err(TransformError::IcvLen);
    }
    Ok((row, short(bits as usize / 8)))
}
