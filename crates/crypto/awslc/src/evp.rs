//! Keys and contexts of AWS-LC's `EVP_PKEY` interface, which private and public keys share.

use aws_lc_sys as c;
use core::ptr::{self, NonNull};
use sealane_pkey::Digest;

/// An `EVP_PKEY` of our own.
pub(crate) struct Pkey(pub(crate) NonNull<c::EVP_PKEY>);

// SAFETY: a key belongs to no thread: AWS-LC counts its references, and locks its blinding and what it computes once.
unsafe impl Send for Pkey {}

impl Drop for Pkey {
    fn drop(&mut self) {
        // SAFETY: the only reference to the key is ours.
        unsafe { c::EVP_PKEY_free(self.0.as_ptr()) };
    }
}

/// A context of operations with a key.
pub(crate) struct Context(pub(crate) NonNull<c::EVP_PKEY_CTX>);

impl Context {
    pub(crate) fn new(key: &Pkey) -> Option<Self> {
        // SAFETY: a new context of a live key, whose references it counts, or null.
        NonNull::new(unsafe { c::EVP_PKEY_CTX_new(key.0.as_ptr(), ptr::null_mut()) }).map(Context)
    }

    pub(crate) fn get(&self) -> *mut c::EVP_PKEY_CTX {
        self.0.as_ptr()
    }

    /// Sets OAEP for an operation that has begun, with the digests of label and mask. Returns whether it did.
    pub(crate) fn set_oaep(&self, digest: Digest, mgf1: Digest, label: &[u8]) -> bool {
        let at = self.get();
        // SAFETY: a live context; AWS-LC refuses what is not for its key. The label is copied to the C heap, and belongs to the
        // context if that takes it. Without memory there is no copy, which the context would take, and read.
        unsafe {
            c::EVP_PKEY_CTX_set_rsa_padding(at, c::RSA_PKCS1_OAEP_PADDING) == 1
                && c::EVP_PKEY_CTX_set_rsa_oaep_md(at, md(digest)) == 1
                && c::EVP_PKEY_CTX_set_rsa_mgf1_md(at, md(mgf1)) == 1
                && (label.is_empty() || {
                    let copy: *mut u8 = c::OPENSSL_memdup(label.as_ptr().cast(), label.len()).cast();
                    let taken = !copy.is_null() && c::EVP_PKEY_CTX_set0_rsa_oaep_label(at, copy, label.len()) == 1;
                    if !taken {
                        c::OPENSSL_free(copy.cast());
                    }
                    taken
                })
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nobody has it any more.
        unsafe { c::EVP_PKEY_CTX_free(self.0.as_ptr()) };
    }
}

/// Forgets, when it is dropped, what failed calls have left in the thread's queue of errors, which may hold a part of what they
/// looked at. It does so in each case, so that it takes no longer where something is wrong.
pub(crate) struct ForgetErrors;

impl Drop for ForgetErrors {
    fn drop(&mut self) {
        // SAFETY: it only touches the thread's queue.
        unsafe { c::ERR_clear_error() };
    }
}

pub(crate) fn md(digest: Digest) -> *const c::EVP_MD {
    // SAFETY: they return constants.
    unsafe {
        match digest {
            Digest::Sha1 => c::EVP_sha1(),
            Digest::Sha224 => c::EVP_sha224(),
            Digest::Sha256 => c::EVP_sha256(),
            Digest::Sha384 => c::EVP_sha384(),
            Digest::Sha512 => c::EVP_sha512(),
        }
    }
}
