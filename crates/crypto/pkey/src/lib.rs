//! Private keys: their algorithms, and what is done with them.
//!
//! The types are plain, so that a program which only asks for signatures links no computation. Beside them are [`pem`], and
//! [`padding`], which looks at what RSA has decrypted.
#![forbid(unsafe_code)]

pub mod listed;
pub mod padding;
pub mod pem;

use std::fmt;
use std::ops::RangeInclusive;

/// The longest signature of all algorithms, in bytes: that of RSA-4096.
pub const MAX_SIGNATURE_LEN: usize = 512;
/// The longest SubjectPublicKeyInfo of all algorithms, in bytes. RSA-4096 has 550 with the usual exponent.
pub const MAX_SPKI_LEN: usize = 1024;
/// The longest ciphertext of all algorithms, in bytes.
pub const MAX_CIPHERTEXT_LEN: usize = 512;
/// The longest label of OAEP, in bytes.
pub const MAX_LABEL_LEN: usize = 1024;
/// The longest digest, in bytes.
pub const MAX_DIGEST_LEN: usize = 64;
/// The length of a TLS premaster secret of RSA key exchange (RFC 5246, section 7.4.7.1).
pub const PREMASTER_LEN: usize = 48;

/// The algorithm of a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSA with a modulus of 2048 bits.
    Rsa2048,
    /// RSA with a modulus of 3072 bits.
    Rsa3072,
    /// RSA with a modulus of 4096 bits.
    Rsa4096,
    /// ECDSA on the curve P-256.
    EcP256,
    /// ECDSA on the curve P-384.
    EcP384,
    /// Ed25519 (RFC 8032).
    Ed25519,
}

impl Algorithm {
    /// All of them with their names. A place in this list, counted from 1, is the number in messages.
    pub const ALL: [(Algorithm, &'static str); 6] = [
        (Algorithm::Rsa2048, "rsa-2048"),
        (Algorithm::Rsa3072, "rsa-3072"),
        (Algorithm::Rsa4096, "rsa-4096"),
        (Algorithm::EcP256, "ec-p256"),
        (Algorithm::EcP384, "ec-p384"),
        (Algorithm::Ed25519, "ed25519"),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        listed::name(&Self::ALL, self)
    }

    /// The one of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(one, _)| *one)
    }

    /// Its number in messages.
    #[must_use]
    pub fn number(self) -> u8 {
        listed::number(&Self::ALL, self)
    }

    /// The one of this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        listed::of_number(&Self::ALL, number)
    }

    /// The length of its modulus in bytes; `None` if it is not RSA.
    #[must_use]
    pub fn modulus_len(self) -> Option<usize> {
        match self {
            Algorithm::Rsa2048 => Some(256),
            Algorithm::Rsa3072 => Some(384),
            Algorithm::Rsa4096 => Some(512),
            Algorithm::EcP256 | Algorithm::EcP384 | Algorithm::Ed25519 => None,
        }
    }

    /// The length of its longest signature, in bytes. Those of ECDSA, which are in DER, may be shorter.
    #[must_use]
    pub fn max_signature_len(self) -> usize {
        match self {
            Algorithm::EcP256 => 72,
            Algorithm::EcP384 => 104,
            Algorithm::Ed25519 => 64,
            rsa => rsa.modulus_len().unwrap_or(0),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Digest {
    /// SHA-1, which old signatures and OAEP's default have.
    Sha1,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Digest {
    /// All of them with their names. A place in this list, counted from 1, is the number in messages.
    pub const ALL: [(Digest, &'static str); 5] = [
        (Digest::Sha1, "sha1"),
        (Digest::Sha224, "sha224"),
        (Digest::Sha256, "sha256"),
        (Digest::Sha384, "sha384"),
        (Digest::Sha512, "sha512"),
    ];

    /// Its number in messages.
    #[must_use]
    pub fn number(self) -> u8 {
        listed::number(&Self::ALL, self)
    }

    /// The one of this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        listed::of_number(&Self::ALL, number)
    }

    /// The length of its output, in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no digest is empty")]
    pub fn len(self) -> usize {
        match self {
            Digest::Sha1 => 20,
            Digest::Sha224 => 28,
            Digest::Sha256 => 32,
            Digest::Sha384 => 48,
            Digest::Sha512 => 64,
        }
    }
}

/// A way to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 (RFC 8017, section 8.2) of a digest.
    RsaPkcs1(Digest),
    /// The signature of TLS 1.0 and 1.1: PKCS #1 v1.5 padding around MD5 and SHA-1, 36 bytes without a DigestInfo.
    RsaPkcs1Md5Sha1,
    /// RSASSA-PSS (RFC 8017, section 8.1) of a digest.
    RsaPss {
        /// The digest of the message.
        digest: Digest,
        /// The digest of the mask.
        mgf1: Digest,
        /// The length of the salt, in bytes.
        salt_len: u16,
    },
    /// ECDSA of a digest. The signature is in DER.
    Ecdsa,
    /// Ed25519 of a message.
    Ed25519,
}

impl Scheme {
    /// Its name in errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::RsaPkcs1(_) | Scheme::RsaPkcs1Md5Sha1 => "rsa-pkcs1",
            Scheme::RsaPss { .. } => "rsa-pss",
            Scheme::Ecdsa => "ecdsa",
            Scheme::Ed25519 => "ed25519",
        }
    }

    /// Whether keys of this algorithm sign so. PSS also needs room for its salt: `emLen >= hLen + sLen + 2` (RFC 8017, section
    /// 9.1.1). The lengths of our moduli are multiples of 8 bits, so that `emLen` is theirs.
    #[must_use]
    pub fn is_for(self, algorithm: Algorithm) -> bool {
        match self {
            Scheme::RsaPkcs1(_) | Scheme::RsaPkcs1Md5Sha1 => algorithm.modulus_len().is_some(),
            Scheme::RsaPss { digest, salt_len, .. } => {
                algorithm.modulus_len().is_some_and(|len| digest.len() + usize::from(salt_len) + 2 <= len)
            }
            Scheme::Ecdsa => matches!(algorithm, Algorithm::EcP256 | Algorithm::EcP384),
            Scheme::Ed25519 => algorithm == Algorithm::Ed25519,
        }
    }

    /// The lengths that a text may have; `None` if it may have any, because it is the message itself.
    #[must_use]
    pub fn text_lens(self) -> Option<RangeInclusive<usize>> {
        match self {
            Scheme::RsaPkcs1(digest) | Scheme::RsaPss { digest, .. } => Some(digest.len()..=digest.len()),
            Scheme::RsaPkcs1Md5Sha1 => Some(36..=36),
            Scheme::Ecdsa => Some(20..=MAX_DIGEST_LEN),
            Scheme::Ed25519 => None,
        }
    }
}

/// The padding of a text that RSA decrypts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Padding {
    /// RSAES-PKCS1-v1_5 (RFC 8017, section 7.2) with implicit rejection: a wrong padding gives a text that only the key and the
    /// ciphertext decide, and no error.
    Pkcs1,
    /// RSAES-OAEP (RFC 8017, section 7.1).
    Oaep {
        /// The digest of the label.
        digest: Digest,
        /// The digest of the mask.
        mgf1: Digest,
        /// The label; at most [`MAX_LABEL_LEN`] bytes.
        label: Vec<u8>,
    },
    /// The premaster secret of TLS up to 1.2 (RFC 5246, section 7.4.7.1): always [`PREMASTER_LEN`] bytes. If the padding, the
    /// length or the version is wrong they are others, which only the key and the ciphertext decide.
    Tls {
        /// The version of the client's hello, `0x0303`.
        client_version: u16,
        /// The version that both have agreed on, which some clients put there instead; 0 for none.
        negotiated: u16,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_come_back() {
        for (at, (algorithm, name)) in Algorithm::ALL.into_iter().enumerate() {
            assert_eq!((algorithm.name(), usize::from(algorithm.number())), (name, at + 1));
            assert_eq!(Algorithm::of_name(name), Some(algorithm));
            assert_eq!(Algorithm::of_number(algorithm.number()), Some(algorithm));
            assert!(algorithm.max_signature_len() <= MAX_SIGNATURE_LEN);
        }
        assert_eq!((Algorithm::of_name("rsa"), Algorithm::of_number(0), Algorithm::of_number(7)), (None, None, None));
        for (digest, _) in Digest::ALL {
            assert_eq!(Digest::of_number(digest.number()), Some(digest));
            assert!(digest.len() <= MAX_DIGEST_LEN);
        }
        assert_eq!((Digest::of_number(0), Digest::of_number(6)), (None, None));
    }

    #[test]
    fn a_scheme_is_for_keys_of_its_kind_with_room_for_the_salt() {
        let pss = |salt_len| Scheme::RsaPss { digest: Digest::Sha512, mgf1: Digest::Sha512, salt_len };
        assert!(pss(190).is_for(Algorithm::Rsa2048) && !pss(191).is_for(Algorithm::Rsa2048));
        assert!(!pss(u16::MAX).is_for(Algorithm::Rsa4096) && !pss(0).is_for(Algorithm::EcP256));
        for (algorithm, _) in Algorithm::ALL {
            let rsa = algorithm.modulus_len().is_some();
            assert_eq!(Scheme::RsaPkcs1Md5Sha1.is_for(algorithm), rsa);
            assert_eq!(Scheme::Ed25519.is_for(algorithm), algorithm == Algorithm::Ed25519);
            assert_eq!(Scheme::Ecdsa.is_for(algorithm), !rsa && algorithm != Algorithm::Ed25519);
        }
    }
}
