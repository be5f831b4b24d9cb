//! Public keys of RSA, ECDSA and Ed25519: what may be done without a secret.
//!
//! The keys are on the heap of the library, as the C structures that have no other place. They are for a process that asks
//! another one for its signatures, and are never in memory that processes share.

use crate::evp::{Context, ForgetErrors, Pkey, md};
use aws_lc_sys as c;
use core::ffi::c_int;
use core::ptr::{self, NonNull};
use sealane_pkey::{Digest, Padding};

/// The longest modulus in bytes: the library takes no longer one.
pub const MAX_MODULUS_LEN: usize = 2048;

/// The elliptic curves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// NIST's P-256.
    P256,
    /// NIST's P-384.
    P384,
}

impl Curve {
    fn nid(self) -> c_int {
        match self {
            Curve::P256 => c::NID_X9_62_prime256v1,
            Curve::P384 => c::NID_secp384r1,
        }
    }

    /// The length of a coordinate in bytes.
    #[must_use]
    pub fn coordinate_len(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
        }
    }
}

/// A public key in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parts {
    /// An RSA key; the numbers have the most significant byte first, and no zeros before it.
    Rsa {
        /// The modulus.
        n: Vec<u8>,
        /// The exponent.
        e: Vec<u8>,
    },
    /// A point of a curve, uncompressed: 4, and both coordinates.
    Ec(Curve, Vec<u8>),
    /// The 32 bytes of an Ed25519 key.
    Ed25519([u8; 32]),
}

/// The length of the salt of a PSS signature that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaltLen {
    /// The length that it has.
    Any,
    /// This many bytes.
    Bytes(u16),
}

/// A kind of signature that is checked. RSA and ECDSA sign digests, Ed25519 messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// PKCS #1 v1.5 over a digest.
    RsaPkcs1(Digest),
    /// PKCS #1 v1.5 over MD5 and SHA-1 without the name of either, as in TLS before 1.2.
    RsaPkcs1Md5Sha1,
    /// PSS.
    RsaPss {
        /// The digest of the message.
        digest: Digest,
        /// The digest of the mask.
        mgf1: Digest,
        /// The salt.
        salt_len: SaltLen,
    },
    /// ECDSA, with its signature in DER.
    Ecdsa,
    /// Ed25519.
    Ed25519,
}

/// A public key.
pub struct PublicKey(Pkey);

// SAFETY: nothing here writes a key after it was made, and AWS-LC locks what it computes once.
unsafe impl Sync for PublicKey {}

/// A number that is freed when this is dropped.
struct Number(NonNull<c::BIGNUM>);

impl Number {
    fn new(bytes: &[u8]) -> Option<Self> {
        // SAFETY: it reads the slice, and makes a new number.
        NonNull::new(unsafe { c::BN_bin2bn(bytes.as_ptr(), bytes.len(), ptr::null_mut()) }).map(Number)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // SAFETY: the number is ours.
        unsafe { c::BN_free(self.0.as_ptr()) };
    }
}

/// The bytes of a number, the most significant one first.
///
/// # Safety
/// `number` is null or a number that nobody changes.
unsafe fn bytes_of(number: *const c::BIGNUM) -> Option<Vec<u8>> {
    if number.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise; the vector has as many bytes as the number.
    unsafe {
        let mut bytes = vec![0; c::BN_num_bytes(number) as usize];
        let len = c::BN_bn2bin(number, bytes.as_mut_ptr());
        bytes.truncate(len);
        Some(bytes)
    }
}

impl PublicKey {
    fn new(key: *mut c::EVP_PKEY) -> Option<Self> {
        let _errors = ForgetErrors;
        NonNull::new(key).map(|key| PublicKey(Pkey(key)))
    }

    /// A key from a SubjectPublicKeyInfo in DER, with nothing behind it. `None` if it is none of these algorithms, or no key.
    #[must_use]
    pub fn from_spki(der: &[u8]) -> Option<Self> {
        let mut cbs = c::CBS { data: ptr::null(), len: 0 };
        // SAFETY: the slice is readable, and outlives the reader.
        let (key, rest) = unsafe {
            c::CBS_init(&raw mut cbs, der.as_ptr(), der.len());
            (c::EVP_parse_public_key(&raw mut cbs), cbs.len)
        };
        let key = Self::new(key).filter(|_| rest == 0)?;
        key.parts().map(|_| key)
    }

    /// A key from its numbers. `None` if they are no key.
    #[must_use]
    pub fn from_parts(parts: &Parts) -> Option<Self> {
        match parts {
            Parts::Rsa { n, e } => Self::from_rsa(n, e),
            Parts::Ec(curve, point) => Self::from_point(*curve, point),
            Parts::Ed25519(bytes) => {
                // SAFETY: it copies the slice.
                Self::new(unsafe {
                    c::EVP_PKEY_new_raw_public_key(c::EVP_PKEY_ED25519, ptr::null_mut(), bytes.as_ptr(), bytes.len())
                })
            }
        }
    }

    fn from_rsa(n: &[u8], e: &[u8]) -> Option<Self> {
        if n.len() > MAX_MODULUS_LEN || e.len() > MAX_MODULUS_LEN {
            return None;
        }
        let (n, e) = (Number::new(n)?, Number::new(e)?);
        // SAFETY: both numbers live until it has returned, and it copies them.
        let rsa = unsafe { c::RSA_new_public_key(n.0.as_ptr(), e.0.as_ptr()) };
        if rsa.is_null() {
            return Self::new(ptr::null_mut());
        }
        // SAFETY: the key takes its own reference of `rsa`, and ours is given back.
        unsafe {
            let key = c::EVP_PKEY_new();
            let done = !key.is_null() && c::EVP_PKEY_set1_RSA(key, rsa) == 1;
            c::RSA_free(rsa);
            let key = Self::new(key)?;
            done.then_some(key)
        }
    }

    fn from_point(curve: Curve, point: &[u8]) -> Option<Self> {
        // SAFETY: each object is used while it lives, and given back once; `set1` takes references of its own.
        unsafe {
            let ec = c::EC_KEY_new_by_curve_name(curve.nid());
            if ec.is_null() {
                return Self::new(ptr::null_mut());
            }
            let group = c::EC_KEY_get0_group(ec);
            let at = c::EC_POINT_new(group);
            let on_curve = !at.is_null()
                && c::EC_POINT_oct2point(group, at, point.as_ptr(), point.len(), ptr::null_mut()) == 1
                && c::EC_KEY_set_public_key(ec, at) == 1
                && c::EC_KEY_check_key(ec) == 1;
            let key = if on_curve { c::EVP_PKEY_new() } else { ptr::null_mut() };
            let done = !key.is_null() && c::EVP_PKEY_set1_EC_KEY(key, ec) == 1;
            c::EC_POINT_free(at);
            c::EC_KEY_free(ec);
            let key = Self::new(key)?;
            done.then_some(key)
        }
    }

    /// The numbers of the key; `None` if it is of another algorithm or curve.
    #[must_use]
    pub fn parts(&self) -> Option<Parts> {
        let key = self.0.0.as_ptr();
        // SAFETY: the key lives; what `get0` gives lives as long as it, and nobody changes it.
        unsafe {
            match c::EVP_PKEY_id(key) {
                c::EVP_PKEY_RSA => {
                    let rsa = c::EVP_PKEY_get0_RSA(key);
                    Some(Parts::Rsa { n: bytes_of(c::RSA_get0_n(rsa))?, e: bytes_of(c::RSA_get0_e(rsa))? })
                }
                c::EVP_PKEY_EC => {
                    let ec = c::EVP_PKEY_get0_EC_KEY(key);
                    let group = c::EC_KEY_get0_group(ec);
                    let nid = c::EC_GROUP_get_curve_name(group);
                    let curve = [Curve::P256, Curve::P384].into_iter().find(|curve| curve.nid() == nid)?;
                    let mut point = vec![0; 1 + 2 * curve.coordinate_len()];
                    let form = c::point_conversion_form_t::POINT_CONVERSION_UNCOMPRESSED;
                    let at = c::EC_KEY_get0_public_key(ec);
                    let len = c::EC_POINT_point2oct(group, at, form, point.as_mut_ptr(), point.len(), ptr::null_mut());
                    (len == point.len()).then_some(Parts::Ec(curve, point))
                }
                c::EVP_PKEY_ED25519 => {
                    let (mut bytes, mut len) = ([0; 32], 32);
                    let done = c::EVP_PKEY_get_raw_public_key(key, bytes.as_mut_ptr(), &raw mut len) == 1;
                    (done && len == bytes.len()).then_some(Parts::Ed25519(bytes))
                }
                _ => None,
            }
        }
    }

    /// Whether a signature is one of a digest, or with Ed25519 of a message.
    #[must_use]
    pub fn verify(&self, check: Check, text: &[u8], signature: &[u8]) -> bool {
        // SAFETY: the key lives.
        let id = unsafe { c::EVP_PKEY_id(self.0.0.as_ptr()) };
        let expected = match check {
            Check::Ecdsa => c::EVP_PKEY_EC,
            Check::Ed25519 => c::EVP_PKEY_ED25519,
            Check::RsaPkcs1(_) | Check::RsaPkcs1Md5Sha1 | Check::RsaPss { .. } => c::EVP_PKEY_RSA,
        };
        if id != expected {
            return false;
        }
        if check == Check::Ed25519 {
            let Some(Parts::Ed25519(key)) = self.parts() else { return false };
            return signature.len() == 64
                // SAFETY: the signature has 64 bytes, and the key 32.
                && unsafe { c::ED25519_verify(text.as_ptr(), text.len(), signature.as_ptr(), key.as_ptr()) } == 1;
        }
        let _errors = ForgetErrors;
        let Some(ctx) = Context::new(&self.0) else { return false };
        let at = ctx.get();
        // SAFETY: the context and the slices live; digests are static.
        unsafe {
            let is_set = c::EVP_PKEY_verify_init(at) == 1
                && match check {
                    Check::RsaPkcs1(digest) => set_pkcs1(at, md(digest)),
                    Check::RsaPkcs1Md5Sha1 => set_pkcs1(at, c::EVP_md5_sha1()),
                    Check::RsaPss { digest, mgf1, salt_len } => {
                        let salt = match salt_len {
                            SaltLen::Any => -2,
                            SaltLen::Bytes(len) => c_int::from(len),
                        };
                        c::EVP_PKEY_CTX_set_rsa_padding(at, c::RSA_PKCS1_PSS_PADDING) == 1
                            && c::EVP_PKEY_CTX_set_signature_md(at, md(digest)) == 1
                            && c::EVP_PKEY_CTX_set_rsa_pss_saltlen(at, salt) == 1
                            && c::EVP_PKEY_CTX_set_rsa_mgf1_md(at, md(mgf1)) == 1
                    }
                    Check::Ecdsa | Check::Ed25519 => true,
                };
            is_set && c::EVP_PKEY_verify(at, signature.as_ptr(), signature.len(), text.as_ptr(), text.len()) == 1
        }
    }

    /// The digest in a PKCS #1 v1.5 signature; `None` if it is no such signature.
    #[must_use]
    pub fn recover(&self, digest: Digest, signature: &[u8]) -> Option<Vec<u8>> {
        let _errors = ForgetErrors;
        let ctx = Context::new(&self.0)?;
        let at = ctx.get();
        let (mut out, mut len) = (vec![0; MAX_MODULUS_LEN], MAX_MODULUS_LEN);
        // SAFETY: the context and the slices live, and the output has the length that is given.
        let done = unsafe {
            c::EVP_PKEY_id(self.0.0.as_ptr()) == c::EVP_PKEY_RSA
                && c::EVP_PKEY_verify_recover_init(at) == 1
                && set_pkcs1(at, md(digest))
                && c::EVP_PKEY_verify_recover(at, out.as_mut_ptr(), &raw mut len, signature.as_ptr(), signature.len())
                    == 1
        };
        out.truncate(len);
        done.then_some(out)
    }

    /// Encrypts for the owner of an RSA key. `None` if the text is too long, the key is another one, or the padding is TLS's, by
    /// which nobody encrypts.
    #[must_use]
    pub fn encrypt(&self, padding: &Padding, text: &[u8]) -> Option<Vec<u8>> {
        let _errors = ForgetErrors;
        let ctx = Context::new(&self.0)?;
        let at = ctx.get();
        let (mut out, mut len) = (vec![0; MAX_MODULUS_LEN], MAX_MODULUS_LEN);
        // SAFETY: the context and the slices live, and the output has the length that is given; digests are static.
        let done = unsafe {
            c::EVP_PKEY_id(self.0.0.as_ptr()) == c::EVP_PKEY_RSA
                && c::EVP_PKEY_encrypt_init(at) == 1
                && match padding {
                    Padding::Pkcs1 => c::EVP_PKEY_CTX_set_rsa_padding(at, c::RSA_PKCS1_PADDING) == 1,
                    Padding::Oaep { digest, mgf1, label } => ctx.set_oaep(*digest, *mgf1, label),
                    Padding::Tls { .. } => false,
                }
                && c::EVP_PKEY_encrypt(at, out.as_mut_ptr(), &raw mut len, text.as_ptr(), text.len()) == 1
        };
        out.truncate(len);
        done.then_some(out)
    }
}

/// # Safety
/// `ctx` is a context of an RSA key that has been set to an operation, and `md` is static.
unsafe fn set_pkcs1(ctx: *mut c::EVP_PKEY_CTX, md: *const c::EVP_MD) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        c::EVP_PKEY_CTX_set_rsa_padding(ctx, c::RSA_PKCS1_PADDING) == 1
            && c::EVP_PKEY_CTX_set_signature_md(ctx, md) == 1
    }
}
