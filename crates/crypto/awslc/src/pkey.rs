//! Private keys over AWS-LC's `EVP_PKEY`: making, reading, signing and decrypting.
//!
//! Unlike the prepared keys of the drivers these live on the C heap, whose blocks AWS-LC wipes when it frees them: only a process
//! that shares no memory, the keeper, has them. RSA is computed with blinding, and AWS-LC checks each result by the public
//! exponent before it leaves (`rsa_default_private_transform`), so that a fault of the CPU shows no factor of the modulus. Ed25519
//! is verified here: a right and a wrong signature of the same message would show the key. ECDSA draws a nonce each time.

use crate::evp::{Context, ForgetErrors, Pkey, md};
use aws_lc_sys as c;
use sealane_pkey::padding::{self, Prf};
use sealane_pkey::{Algorithm, Digest, MAX_SPKI_LEN, Padding, Scheme};
use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use zeroize::Zeroizing;

/// The longest key in PKCS #8 that is written, in bytes. RSA-4096 has 2,375.
const MAX_PKCS8_LEN: usize = 4096;

/// The reason why bytes are no private key of ours. None of their content is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportError {
    /// Neither PKCS #8, nor PKCS #1, nor SEC 1, or bytes come after it, or its numbers are no key.
    Malformed,
    /// PKCS #8 under a passphrase.
    Encrypted,
    /// A key of another algorithm or curve.
    Algorithm,
    /// RSA of another length than 2048, 3072 and 4096 bits.
    Bits(u32),
    /// The private and the public part do not belong together, or a check of AWS-LC fails.
    Inconsistent,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Malformed => {
                f.write_str("no private key in PKCS #8, PKCS #1 or SEC 1, or its numbers are no key")
            }
            ImportError::Encrypted => {
                f.write_str("the private key is encrypted: decrypt it first, for example by 'openssl pkey -in FILE'")
            }
            ImportError::Algorithm => {
                f.write_str("a private key that is neither RSA, nor on P-256 or P-384, nor Ed25519")
            }
            ImportError::Bits(bits) => write!(f, "an RSA key of {bits} bits: only 2048, 3072 and 4096 are taken"),
            ImportError::Inconsistent => f.write_str("the numbers of the private key do not belong together"),
        }
    }
}

impl std::error::Error for ImportError {}

/// The reason why a key signs or decrypts nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UseError {
    /// The scheme or padding is not for keys of this algorithm.
    Scheme,
    /// The text has not the length that the scheme wants, or is not below the modulus.
    Text,
    /// The padding of the text is wrong (OAEP).
    Auth,
    /// AWS-LC fails.
    Driver,
}

/// A private key, ready for use. No `Debug`; wiped when it is dropped.
pub struct PrivateKey {
    pkey: Pkey,
    algorithm: Algorithm,
    /// The form that Ed25519 signs with: the seed and the public key.
    ed25519: Option<Box<Zeroizing<[u8; 64]>>>,
}

fn nid(digest: Digest) -> c_int {
    match digest {
        Digest::Sha1 => c::NID_sha1,
        Digest::Sha224 => c::NID_sha224,
        Digest::Sha256 => c::NID_sha256,
        Digest::Sha384 => c::NID_sha384,
        Digest::Sha512 => c::NID_sha512,
    }
}

impl PrivateKey {
    /// Makes a key. RSA takes up to some seconds.
    ///
    /// # Errors
    /// [`UseError::Driver`].
    pub fn generate(algorithm: Algorithm) -> Result<Self, UseError> {
        let (id, bits, curve) = match algorithm {
            Algorithm::Rsa2048 => (c::EVP_PKEY_RSA, 2048, 0),
            Algorithm::Rsa3072 => (c::EVP_PKEY_RSA, 3072, 0),
            Algorithm::Rsa4096 => (c::EVP_PKEY_RSA, 4096, 0),
            Algorithm::EcP256 => (c::EVP_PKEY_EC, 0, c::NID_X9_62_prime256v1),
            Algorithm::EcP384 => (c::EVP_PKEY_EC, 0, c::NID_secp384r1),
            Algorithm::Ed25519 => (c::EVP_PKEY_ED25519, 0, 0),
        };
        let made = || {
            // SAFETY: a new context, or null.
            let context = Context(NonNull::new(unsafe { c::EVP_PKEY_CTX_new_id(id, ptr::null_mut()) })?);
            let at = context.get();
            // SAFETY: a live context of this kind of key. `EVP_PKEY_keygen` writes a key that is ours, or nothing.
            let pkey = unsafe {
                let mut pkey = ptr::null_mut();
                let ready = c::EVP_PKEY_keygen_init(at) == 1
                    && (bits == 0 || c::EVP_PKEY_CTX_set_rsa_keygen_bits(at, bits) == 1)
                    && (curve == 0 || c::EVP_PKEY_CTX_set_ec_paramgen_curve_nid(at, curve) == 1)
                    && c::EVP_PKEY_keygen(at, &raw mut pkey) == 1;
                ready.then_some(pkey).and_then(NonNull::new)?
            };
            Self::checked(Pkey(pkey)).ok().filter(|key| key.algorithm == algorithm)
        };
        let _errors = ForgetErrors;
        made().ok_or(UseError::Driver)
    }

    /// Reads a key in DER: PKCS #8 (RFC 5958), PKCS #1's RSAPrivateKey (RFC 8017), or SEC 1's ECPrivateKey with the name of its
    /// curve (RFC 5915). Its parts are checked to belong together; [`Self::tried`] says more of RSA's.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn import(der: &[u8]) -> Result<Self, ImportError> {
        let _errors = ForgetErrors;
        parsed(der).and_then(Self::checked)
    }

    /// Signs once with a key that comes from outside, if it is RSA's. A key with other numbers in place of its primes passes all
    /// other checks, and each signature by it fails.
    ///
    /// # Errors
    /// [`ImportError::Inconsistent`].
    pub fn tried(self) -> Result<Self, ImportError> {
        let scheme = Scheme::RsaPkcs1(Digest::Sha256);
        if scheme.is_for(self.algorithm) {
            self.sign(scheme, &[7; 32]).map_err(|_| ImportError::Inconsistent)?;
        }
        Ok(self)
    }

    fn checked(pkey: Pkey) -> Result<Self, ImportError> {
        let at = pkey.0.as_ptr();
        // SAFETY: a live key; the pointers to its parts are borrowed within this function.
        let (algorithm, consistent) = unsafe {
            match c::EVP_PKEY_id(at) {
                c::EVP_PKEY_RSA => {
                    let rsa = c::EVP_PKEY_get0_RSA(at);
                    let algorithm = match c::RSA_bits(rsa) {
                        2048 => Algorithm::Rsa2048,
                        3072 => Algorithm::Rsa3072,
                        4096 => Algorithm::Rsa4096,
                        bits => return Err(ImportError::Bits(bits)),
                    };
                    // AWS-LC also takes keys without some of these, and then neither checks nor blinds.
                    let parts: [unsafe extern "C" fn(*const c::RSA) -> *const c::BIGNUM; 8] = [
                        c::RSA_get0_n,
                        c::RSA_get0_e,
                        c::RSA_get0_d,
                        c::RSA_get0_p,
                        c::RSA_get0_q,
                        c::RSA_get0_dmp1,
                        c::RSA_get0_dmq1,
                        c::RSA_get0_iqmp,
                    ];
                    let whole = parts.iter().all(|part| !part(rsa).is_null());
                    // It takes an exponent of any length, and refuses to compute with a longer one than the modulus.
                    let below = || c::BN_cmp(c::RSA_get0_d(rsa), c::RSA_get0_n(rsa)) < 0;
                    (algorithm, whole && below() && c::RSA_check_key(rsa) == 1)
                }
                c::EVP_PKEY_EC => {
                    let ec = c::EVP_PKEY_get0_EC_KEY(at);
                    let algorithm = match c::EC_GROUP_get_curve_name(c::EC_KEY_get0_group(ec)) {
                        c::NID_X9_62_prime256v1 => Algorithm::EcP256,
                        c::NID_secp384r1 => Algorithm::EcP384,
                        _ => return Err(ImportError::Algorithm),
                    };
                    (algorithm, !c::EC_KEY_get0_private_key(ec).is_null() && c::EC_KEY_check_key(ec) == 1)
                }
                c::EVP_PKEY_ED25519 => (Algorithm::Ed25519, true),
                _ => return Err(ImportError::Algorithm),
            }
        };
        if !consistent {
            return Err(ImportError::Inconsistent);
        }
        let ed25519 = if algorithm == Algorithm::Ed25519 { Some(expanded(&pkey)?) } else { None };
        Ok(PrivateKey { pkey, algorithm, ed25519 })
    }

    /// Its algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The key in PKCS #8.
    ///
    /// # Errors
    /// [`UseError::Driver`].
    pub fn pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, UseError> {
        self.marshalled(MAX_PKCS8_LEN, c::EVP_marshal_private_key)
    }

    /// The public key as SubjectPublicKeyInfo in DER.
    ///
    /// # Errors
    /// [`UseError::Driver`].
    pub fn spki(&self) -> Result<Vec<u8>, UseError> {
        self.marshalled(MAX_SPKI_LEN, c::EVP_marshal_public_key).map(|mut bytes| std::mem::take(&mut *bytes))
    }

    fn marshalled(
        &self,
        most: usize,
        marshal: unsafe extern "C" fn(*mut c::CBB, *const c::EVP_PKEY) -> c_int,
    ) -> Result<Zeroizing<Vec<u8>>, UseError> {
        let _errors = ForgetErrors;
        let mut bytes = Zeroizing::new(vec![0u8; most]);
        let mut cbb = MaybeUninit::uninit();
        // SAFETY: the writer has a fixed buffer, which lives longer than it does, and is cleaned up in either case. `marshal` is
        // one of AWS-LC's functions of this type, which write within the buffer or fail.
        let len = unsafe {
            let cbb: *mut c::CBB = cbb.as_mut_ptr();
            c::CBB_zero(cbb);
            let done = c::CBB_init_fixed(cbb, bytes.as_mut_ptr(), bytes.len()) == 1
                && marshal(cbb, self.pkey.0.as_ptr()) == 1
                && c::CBB_flush(cbb) == 1;
            let len = if done { Some(c::CBB_len(cbb)) } else { None };
            c::CBB_cleanup(cbb);
            len
        };
        // A copy of just that length: it is kept as long as the key is.
        let len = len.filter(|len| (1..=most).contains(len)).ok_or(UseError::Driver)?;
        Ok(Zeroizing::new(bytes[..len].to_vec()))
    }

    /// Whether the key signs such a text by this scheme, as far as can be said without computing.
    ///
    /// # Errors
    /// [`UseError::Scheme`], or [`UseError::Text`].
    pub fn may_sign(&self, scheme: Scheme, text: &[u8]) -> Result<(), UseError> {
        if !scheme.is_for(self.algorithm) {
            return Err(UseError::Scheme);
        }
        if scheme.text_lens().is_some_and(|lens| !lens.contains(&text.len())) {
            return Err(UseError::Text);
        }
        Ok(())
    }

    /// Signs a digest, or with Ed25519 a message.
    ///
    /// # Errors
    /// [`UseError`], but for [`UseError::Auth`].
    pub fn sign(&self, scheme: Scheme, text: &[u8]) -> Result<Vec<u8>, UseError> {
        self.may_sign(scheme, text)?;
        let _errors = ForgetErrors;
        let mut signature = vec![0u8; self.algorithm.max_signature_len()];
        let len = match scheme {
            Scheme::RsaPkcs1(digest) => self.sign_pkcs1(nid(digest), text, &mut signature),
            Scheme::RsaPkcs1Md5Sha1 => self.sign_pkcs1(c::NID_md5_sha1, text, &mut signature),
            Scheme::RsaPss { digest, mgf1, salt_len } => {
                let mut len = 0;
                // SAFETY: an RSA key, as `is_for` says; the buffer is as long as it is said to be, and the text as long as the
                // digest.
                let done = unsafe {
                    c::RSA_sign_pss_mgf1(
                        self.rsa(),
                        &raw mut len,
                        signature.as_mut_ptr(),
                        signature.len(),
                        text.as_ptr(),
                        text.len(),
                        md(digest),
                        md(mgf1),
                        c_int::from(salt_len),
                    )
                };
                (done == 1).then_some(len)
            }
            Scheme::Ecdsa => self.sign_ecdsa(text, &mut signature),
            Scheme::Ed25519 => self.ed25519.as_ref().and_then(|key| {
                // SAFETY: the buffer has 64 bytes, as signatures have, and so has the key, whose second half is the public key.
                let done = unsafe {
                    c::ED25519_sign(signature.as_mut_ptr(), text.as_ptr(), text.len(), key.as_ptr()) == 1
                        && c::ED25519_verify(text.as_ptr(), text.len(), signature.as_ptr(), key[32..].as_ptr()) == 1
                };
                done.then_some(64)
            }),
        };
        let len = len.filter(|len| *len <= signature.len()).ok_or(UseError::Driver)?;
        signature.truncate(len);
        Ok(signature)
    }

    fn rsa(&self) -> *mut c::RSA {
        // SAFETY: a live key. The result is borrowed from it, and null if it is no RSA key.
        unsafe { c::EVP_PKEY_get0_RSA(self.pkey.0.as_ptr()) }
    }

    fn sign_pkcs1(&self, nid: c_int, text: &[u8], signature: &mut [u8]) -> Option<usize> {
        let mut len = 0;
        // SAFETY: an RSA key, as the caller has asked `is_for`; it writes as much as the modulus has, which is the buffer's length.
        let done =
            unsafe { c::RSA_sign(nid, text.as_ptr(), text.len(), signature.as_mut_ptr(), &raw mut len, self.rsa()) };
        (done == 1).then_some(len as usize)
    }

    fn sign_ecdsa(&self, text: &[u8], signature: &mut [u8]) -> Option<usize> {
        let mut len = 0;
        // SAFETY: an EC key, as the caller has asked `is_for`; the buffer has room for the longest signature.
        let done = unsafe {
            let ec = c::EVP_PKEY_get0_EC_KEY(self.pkey.0.as_ptr());
            c::ECDSA_size(ec) <= signature.len()
                && c::ECDSA_sign(0, text.as_ptr(), text.len(), signature.as_mut_ptr(), &raw mut len, ec) == 1
        };
        done.then_some(len as usize)
    }

    /// Whether the key decrypts such a text, as far as can be said without computing: it is RSA, and the text below the modulus.
    ///
    /// # Errors
    /// [`UseError`].
    pub fn may_decrypt(&self, text: &[u8]) -> Result<(), UseError> {
        let _errors = ForgetErrors;
        self.ciphertext(text).map(drop)
    }

    /// The text with zeros before it up to the length of the modulus, and the modulus.
    fn ciphertext(&self, text: &[u8]) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), UseError> {
        let len = self.algorithm.modulus_len().ok_or(UseError::Scheme)?;
        let zeros = len.checked_sub(text.len()).filter(|_| !text.is_empty()).ok_or(UseError::Text)?;
        let text = [&vec![0; zeros][..], text].concat();
        let modulus = self.number(c::RSA_get0_n, len)?;
        // Both are public.
        if text >= *modulus {
            return Err(UseError::Text);
        }
        Ok((text, modulus))
    }

    /// Decrypts by RSA. A text shorter than the modulus counts as if zeros came before it. PKCS #1's padding is no reason to fail
    /// ([`padding`]); whatever is wrong with OAEP's is one error.
    ///
    /// # Errors
    /// [`UseError`].
    pub fn decrypt(&self, padding: &Padding, text: &[u8]) -> Result<Zeroizing<Vec<u8>>, UseError> {
        let _errors = ForgetErrors;
        let (text, modulus) = self.ciphertext(text)?;
        match padding {
            Padding::Oaep { digest, mgf1, label } => self.oaep(*digest, *mgf1, label, &text),
            Padding::Pkcs1 => {
                let em = self.raw(&text, &modulus)?;
                Ok(padding::pkcs1(&em, &self.derivation(&text)?))
            }
            Padding::Tls { client_version, negotiated } => {
                let em = self.raw(&text, &modulus)?;
                Ok(padding::premaster(&em, &self.derivation(&text)?, *client_version, *negotiated))
            }
        }
    }

    /// A number of an RSA key, with leading zeros up to `len` bytes.
    fn number(
        &self,
        of: unsafe extern "C" fn(*const c::RSA) -> *const c::BIGNUM,
        len: usize,
    ) -> Result<Zeroizing<Vec<u8>>, UseError> {
        let mut bytes = Zeroizing::new(vec![0u8; len]);
        // SAFETY: an RSA key, whose numbers are borrowed from it; it writes `len` bytes or fails.
        let done = unsafe {
            let number = of(self.rsa());
            !number.is_null() && c::BN_bn2bin_padded(bytes.as_mut_ptr(), len, number) == 1
        };
        if done { Ok(bytes) } else { Err(UseError::Driver) }
    }

    /// The text to the power of the private exponent.
    fn raw(&self, text: &[u8], modulus: &[u8]) -> Result<Zeroizing<Vec<u8>>, UseError> {
        // AWS-LC refuses the texts that are their own powers: 0, 1, and, since the exponent is odd, -1.
        let (last, head) = text.split_last().ok_or(UseError::Text)?;
        let (modulus_last, modulus_head) = modulus.split_last().ok_or(UseError::Driver)?;
        if (head.iter().all(|byte| *byte == 0) && *last <= 1) || (head == modulus_head && *last == modulus_last - 1) {
            return Ok(Zeroizing::new(text.to_vec()));
        }
        let mut out = Zeroizing::new(vec![0u8; text.len()]);
        let mut len = 0;
        // SAFETY: an RSA key; the text has the length of its modulus, and so has the buffer.
        let done = unsafe {
            c::RSA_decrypt(
                self.rsa(),
                &raw mut len,
                out.as_mut_ptr(),
                out.len(),
                text.as_ptr(),
                text.len(),
                c::RSA_NO_PADDING,
            )
        };
        if done == 1 && len == out.len() { Ok(out) } else { Err(UseError::Driver) }
    }

    /// The derivation of the text in place of one with a wrong padding, for this ciphertext.
    fn derivation(&self, text: &[u8]) -> Result<Hmac, UseError> {
        let exponent = self.number(c::RSA_get0_d, text.len())?;
        let mut hash = Zeroizing::new([0u8; 32]);
        // SAFETY: it writes 32 bytes.
        unsafe { c::SHA256(exponent.as_ptr(), exponent.len(), hash.as_mut_ptr()) };
        Ok(Hmac(Zeroizing::new(Hmac(hash).mac(text))))
    }

    fn oaep(&self, digest: Digest, mgf1: Digest, label: &[u8], text: &[u8]) -> Result<Zeroizing<Vec<u8>>, UseError> {
        let context = Context::new(&self.pkey).ok_or(UseError::Driver)?;
        let at = context.get();
        // SAFETY: a live context of an RSA key.
        let ready = unsafe { c::EVP_PKEY_decrypt_init(at) == 1 } && context.set_oaep(digest, mgf1, label);
        if !ready {
            return Err(UseError::Driver);
        }
        let mut out = Zeroizing::new(vec![0u8; text.len()]);
        let mut len = out.len();
        // SAFETY: the buffer is as long as it is said to be, and as the modulus.
        let done = unsafe { c::EVP_PKEY_decrypt(at, out.as_mut_ptr(), &raw mut len, text.as_ptr(), text.len()) };
        if done != 1 || len > out.len() {
            return Err(UseError::Auth);
        }
        out.truncate(len);
        Ok(out)
    }
}

/// HMAC-SHA-256 under a key of 32 bytes.
struct Hmac(Zeroizing<[u8; 32]>);

impl Prf for Hmac {
    fn mac(&self, message: &[u8]) -> [u8; 32] {
        let mut out = [0u8; 32];
        let mut len = 0;
        // SAFETY: it writes 32 bytes, and their number.
        let done = unsafe {
            c::HMAC(
                c::EVP_sha256(),
                self.0.as_ptr().cast(),
                self.0.len(),
                message.as_ptr(),
                message.len(),
                out.as_mut_ptr(),
                &raw mut len,
            )
        };
        // It fails without memory only. A text that everybody can compute must not come of it.
        assert!(!done.is_null() && len == 32, "HMAC without memory");
        out
    }
}

/// A reader of these bytes.
fn reader(bytes: &[u8]) -> Reader<'_> {
    let mut cbs = MaybeUninit::uninit();
    // SAFETY: the reader borrows the bytes, as its type says.
    let cbs = unsafe {
        c::CBS_init(cbs.as_mut_ptr(), bytes.as_ptr(), bytes.len());
        cbs.assume_init()
    };
    Reader(cbs, PhantomData)
}

/// A reader of DER.
#[derive(Clone, Copy)]
struct Reader<'a>(c::CBS, PhantomData<&'a [u8]>);

impl Reader<'_> {
    /// The content of the next element, which is left behind, if it has this tag.
    fn element(&mut self, tag: c_int) -> Option<Self> {
        let tag = tag as c::CBS_ASN1_TAG;
        let (mut rest, mut inner) = (self.0, MaybeUninit::uninit());
        // SAFETY: a live reader; the inner one is written if it succeeds.
        let inner =
            unsafe { (c::CBS_get_asn1(&raw mut rest, inner.as_mut_ptr(), tag) == 1).then(|| inner.assume_init()) }?;
        // A failure leaves the reader somewhere.
        self.0 = rest;
        Some(Reader(inner, PhantomData))
    }

    fn is(&self, bytes: &[u8]) -> bool {
        // SAFETY: a live reader, and bytes as long as they are said to be.
        unsafe { c::CBS_mem_equal(&raw const self.0, bytes.as_ptr(), bytes.len()) == 1 }
    }

    fn is_at_end(&self) -> bool {
        // SAFETY: a live reader.
        unsafe { c::CBS_len(&raw const self.0) == 0 }
    }
}

/// The format of a key, by its first elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// PKCS #8 with one of our algorithms. If AWS-LC refuses it, this is why.
    Pkcs8(ImportError),
    /// PKCS #8 with another algorithm.
    Other,
    /// PKCS #8 under a passphrase.
    Encrypted,
    /// PKCS #1 or SEC 1, or nothing.
    Old,
}

/// Looks at the algorithm before anything is computed: AWS-LC reads, and in part checks, keys of many algorithms. PKCS #8 has a
/// version and an algorithm (RFC 5958, section 2), under a passphrase an algorithm and bytes (section 3), and the old formats have a
/// version and something else.
fn format(mut key: Reader<'_>) -> Format {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
    let Some(mut outer) = key.element(c::CBS_ASN1_SEQUENCE) else { return Format::Old };
    let has_version = outer.element(c::CBS_ASN1_INTEGER).is_some();
    let Some(mut algorithm) = outer.element(c::CBS_ASN1_SEQUENCE) else { return Format::Old };
    if !has_version {
        let encrypted = outer.element(c::CBS_ASN1_OCTETSTRING).is_some() && outer.is_at_end();
        return if encrypted { Format::Encrypted } else { Format::Old };
    }
    let Some(oid) = algorithm.element(c::CBS_ASN1_OBJECT) else { return Format::Old };
    if oid.is(RSA) || oid.is(ED25519) {
        return Format::Pkcs8(ImportError::Malformed);
    }
    if !oid.is(EC) {
        return Format::Other;
    }
    // The curve may also be given by its numbers, and then be any.
    let curve = algorithm.element(c::CBS_ASN1_OBJECT);
    let ours = curve.is_some_and(|oid| oid.is(P256) || oid.is(P384));
    Format::Pkcs8(if ours { ImportError::Malformed } else { ImportError::Algorithm })
}

/// A key in one of the formats, not checked yet.
fn parsed(der: &[u8]) -> Result<Pkey, ImportError> {
    match format(reader(der)) {
        Format::Pkcs8(why) => {
            let mut from = reader(der);
            // SAFETY: a live reader; the key is ours.
            let pkey = unsafe { NonNull::new(c::EVP_parse_private_key(&raw mut from.0)) }.map(Pkey).ok_or(why)?;
            if from.is_at_end() { Ok(pkey) } else { Err(ImportError::Malformed) }
        }
        Format::Other => Err(ImportError::Algorithm),
        Format::Encrypted => Err(ImportError::Encrypted),
        Format::Old => old(der),
    }
}

/// A key in PKCS #1 or SEC 1.
fn old(der: &[u8]) -> Result<Pkey, ImportError> {
    let mut from = reader(der);
    // SAFETY: a live reader. The RSA key is freed where it does not become part of the other.
    let rsa = unsafe {
        NonNull::new(c::RSA_parse_private_key(&raw mut from.0)).map(|rsa| {
            let pkey = NonNull::new(c::EVP_PKEY_new()).map(Pkey);
            let taken = pkey.filter(|pkey| c::EVP_PKEY_set1_RSA(pkey.0.as_ptr(), rsa.as_ptr()) == 1);
            c::RSA_free(rsa.as_ptr());
            taken
        })
    };
    if let Some(pkey) = rsa {
        return pkey.filter(|_| from.is_at_end()).ok_or(ImportError::Malformed);
    }
    let mut from = reader(der);
    // SAFETY: as above. Without a group the key has to name its curve.
    let ec = unsafe {
        NonNull::new(c::EC_KEY_parse_private_key(&raw mut from.0, ptr::null())).map(|ec| {
            let pkey = NonNull::new(c::EVP_PKEY_new()).map(Pkey);
            let taken = pkey.filter(|pkey| c::EVP_PKEY_set1_EC_KEY(pkey.0.as_ptr(), ec.as_ptr()) == 1);
            c::EC_KEY_free(ec.as_ptr());
            taken
        })
    };
    ec.flatten().filter(|_| from.is_at_end()).ok_or(ImportError::Malformed)
}

/// The seed and the public key of Ed25519. The public key is computed, and what the key says of it has to be the same.
fn expanded(pkey: &Pkey) -> Result<Box<Zeroizing<[u8; 64]>>, ImportError> {
    let mut key = Box::new(Zeroizing::new([0u8; 64]));
    let (mut seed, mut said, mut public) = (Zeroizing::new([0u8; 32]), [0u8; 32], [0u8; 32]);
    // SAFETY: each buffer is as long as it is said to be, and as these keys are.
    let done = unsafe {
        let (mut seed_len, mut said_len) = (32, 32);
        let at = pkey.0.as_ptr();
        let read = c::EVP_PKEY_get_raw_private_key(at, seed.as_mut_ptr(), &raw mut seed_len) == 1
            && c::EVP_PKEY_get_raw_public_key(at, said.as_mut_ptr(), &raw mut said_len) == 1;
        c::ED25519_keypair_from_seed(public.as_mut_ptr(), key.as_mut_ptr(), seed.as_ptr());
        read && (seed_len, said_len) == (32, 32)
    };
    if done && said == public { Ok(key) } else { Err(ImportError::Inconsistent) }
}

/// Known answers, and whatever AWS-LC does once in a process and once in a thread: it opens its generator of random numbers here.
/// A thread calls it before its system calls are confined.
///
/// # Errors
/// The part that fails. Nothing of this module is to be used then.
pub fn self_test() -> Result<(), &'static str> {
    let _errors = ForgetErrors;
    let mut random = [0u8; 32];
    // SAFETY: it writes as many bytes as the buffer has.
    if unsafe { c::RAND_bytes(random.as_mut_ptr(), random.len()) } != 1 {
        return Err("random numbers");
    }
    // RFC 8032, section 7.1, test 2.
    let seed = [
        0x4c, 0xcd, 0x08, 0x9b, 0x28, 0xff, 0x96, 0xda, 0x9d, 0xb6, 0xc3, 0x46, 0xec, 0x11, 0x4e, 0x0f, 0x5b, 0x8a,
        0x31, 0x9f, 0x35, 0xab, 0xa6, 0x24, 0xda, 0x8c, 0xf6, 0xed, 0x4f, 0xb8, 0xa6, 0xfb,
    ];
    let der = [&[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20][..], &seed].concat();
    let key = PrivateKey::import(&der).map_err(|_| "reading an Ed25519 key")?;
    let signature = key.sign(Scheme::Ed25519, &[0x72]).map_err(|_| "signing by Ed25519")?;
    let right = [
        0x92, 0xa0, 0x09, 0xa9, 0xf0, 0xd4, 0xca, 0xb8, 0x72, 0x0e, 0x82, 0x0b, 0x5f, 0x64, 0x25, 0x40, 0xa2, 0xb2,
        0x7b, 0x54, 0x16, 0x50, 0x3f, 0x8f, 0xb3, 0x76, 0x22, 0x23, 0xeb, 0xdb, 0x69, 0xda, 0x08, 0x5a, 0xc1, 0xe4,
        0x3e, 0x15, 0x99, 0x6e, 0x45, 0x8f, 0x36, 0x13, 0xd0, 0xf1, 0x1d, 0x8c, 0x38, 0x7b, 0x2e, 0xae, 0xb4, 0x30,
        0x2a, 0xee, 0xb0, 0x0d, 0x29, 0x16, 0x12, 0xbb, 0x0c, 0x00,
    ];
    if signature != right {
        return Err("Ed25519 signs otherwise than RFC 8032");
    }
    let key = PrivateKey::import(include_bytes!("pkey/self_test.der")).map_err(|_| "reading an RSA key")?;
    let signature = key.sign(Scheme::RsaPkcs1(Digest::Sha256), &[7; 32]).map_err(|_| "signing by RSA")?;
    if signature != include_bytes!("pkey/self_test.sig") {
        return Err("RSA signs otherwise than OpenSSL");
    }
    let opened = key.decrypt(&Padding::Pkcs1, include_bytes!("pkey/self_test.enc")).map_err(|_| "decrypting by RSA")?;
    if *opened != b"a text" {
        return Err("RSA decrypts otherwise than OpenSSL");
    }
    let key = PrivateKey::generate(Algorithm::EcP256).map_err(|_| "making a key on P-256")?;
    let signature = key.sign(Scheme::Ecdsa, &[7; 32]).map_err(|_| "signing by ECDSA")?;
    // SAFETY: an EC key, and bytes as long as they are said to be.
    let right = unsafe {
        let ec = c::EVP_PKEY_get0_EC_KEY(key.pkey.0.as_ptr());
        c::ECDSA_verify(0, [7u8; 32].as_ptr(), 32, signature.as_ptr(), signature.len(), ec)
    };
    if right == 1 { Ok(()) } else { Err("ECDSA's signature is none") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As by a fault of the memory or the CPU: the scalar, or the point that is hashed with the message, is another one.
    #[test]
    fn a_wrong_signature_of_ed25519_does_not_leave() {
        for at in [0, 31, 32, 63] {
            let mut key = PrivateKey::generate(Algorithm::Ed25519).unwrap();
            assert!(key.sign(Scheme::Ed25519, b"text").is_ok());
            key.ed25519.as_mut().unwrap()[at] ^= 1;
            assert_eq!(key.sign(Scheme::Ed25519, b"text"), Err(UseError::Driver), "{at}");
        }
    }
}
