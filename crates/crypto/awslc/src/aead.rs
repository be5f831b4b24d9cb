//! AES-GCM, ChaCha20-Poly1305 and GMAC on an `EVP_AEAD_CTX` in place.

use crate::aes::KEY_LENS;
use crate::stream::GcmStream;
use crate::wipe::{Plain, Wiped};
use aws_lc_sys as c;
use sealane_crypto::aead::{AeadDriver, AeadStream, FlatAeadOp};
use sealane_crypto::gather::gather;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{NonceMacDriver, NonceMacOp};
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{AlgInfo, KeyError, Lengths, OpError, Row, Status};
use std::sync::Arc;

const TAG_LEN: usize = 16;
const NONCE_LEN: usize = 12;

// SAFETY: it consists of a pointer to a constant method table, bytes and small integers; zeros are the state after
// `EVP_AEAD_CTX_zero`. Both AEADs used here keep keys, tables and function pointers in `state` and own nothing, so a
// byte-wise copy is a second context (the library copies GCM contexts in this way) and forgetting one is sound.
unsafe impl Plain for c::EVP_AEAD_CTX {}

/// A keyed context. It points to method tables that are constants of this program.
struct Ctx(Wiped<c::EVP_AEAD_CTX>);

// SAFETY: the library only reads a context after its initialisation, and its pointer leads to constants.
unsafe impl Send for Ctx {}
// SAFETY: as above.
unsafe impl Sync for Ctx {}

impl Ctx {
    fn new(aead: *const c::EVP_AEAD, key: &[u8]) -> Result<Box<Self>, KeyError> {
        // SAFETY: zeros are a value of a `Plain` type.
        let mut ctx = Box::new(Ctx(Wiped(unsafe { core::mem::zeroed() })));
        // SAFETY: the context is valid for writing; `aead` is one of the library's; the key is readable.
        let ok = unsafe {
            c::EVP_AEAD_CTX_init(&mut ctx.0.0, aead, key.as_ptr(), key.len(), TAG_LEN, core::ptr::null_mut())
        };
        if ok == 1 { Ok(ctx) } else { Err(KeyError::Driver) }
    }

    fn aes_gcm(key: &[u8]) -> Result<Box<Self>, KeyError> {
        // SAFETY: these functions return constants.
        let aead = unsafe {
            match key.len() {
                16 => c::EVP_aead_aes_128_gcm(),
                24 => c::EVP_aead_aes_192_gcm(),
                32 => c::EVP_aead_aes_256_gcm(),
                _ => return Err(KeyError::Length),
            }
        };
        Ctx::new(aead, key)
    }

    fn chacha20_poly1305(key: &[u8]) -> Result<Box<Self>, KeyError> {
        if key.len() != 32 {
            return Err(KeyError::Length);
        }
        // SAFETY: the function returns a constant.
        Ctx::new(unsafe { c::EVP_aead_chacha20_poly1305() }, key)
    }

    /// Encrypts `len` bytes and writes the whole tag.
    ///
    /// # Safety
    /// `src` is readable and `dst` writable for `len` bytes; they are the same or do not overlap.
    #[inline]
    unsafe fn seal(
        &self,
        nonce: &[u8],
        aad: &[u8],
        src: *const u8,
        dst: *mut u8,
        len: usize,
        tag: &mut [u8; TAG_LEN],
    ) -> Status {
        let mut tag_len = 0;
        // SAFETY: as the caller promises; the tag has the length that the context was made for; no extra input.
        let ok = unsafe {
            c::EVP_AEAD_CTX_seal_scatter(
                &self.0.0,
                dst,
                tag.as_mut_ptr(),
                &mut tag_len,
                TAG_LEN,
                nonce.as_ptr(),
                nonce.len(),
                src,
                len,
                core::ptr::null(),
                0,
                aad.as_ptr(),
                aad.len(),
            )
        };
        // All else has been checked, so a refusal means a text beyond the mode's limit (64 GB for GCM).
        if ok == 1 { Ok(()) } else { Err(OpError::Length) }
    }
}

/// Decrypts `len` bytes if `tag` matches, otherwise wipes them. The context determines the tag length.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes; they are the same or do not overlap.
unsafe fn open(
    ctx: &c::EVP_AEAD_CTX,
    nonce: &[u8],
    aad: &[u8],
    src: *const u8,
    dst: *mut u8,
    len: usize,
    tag: &[u8],
) -> Status {
    // SAFETY: as the caller promises.
    let ok = unsafe {
        c::EVP_AEAD_CTX_open_gather(
            ctx,
            dst,
            nonce.as_ptr(),
            nonce.len(),
            src,
            len,
            tag.as_ptr(),
            tag.len(),
            aad.as_ptr(),
            aad.len(),
        )
    };
    // On failure the library has wiped the output; it leaves a line in the thread's error queue, a ring of 16.
    if ok == 1 { Ok(()) } else { Err(OpError::Auth) }
}

/// Prepares a key for messages in pieces, of an AEAD that has them.
type Stream = fn(&[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>>;

struct Aead {
    prepare: fn(&[u8]) -> Result<Box<Ctx>, KeyError>,
    stream: Stream,
}

fn gcm_stream(key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
    Some(GcmStream::new(key).map(|stream| -> Box<dyn AeadStream> { Box::new(stream) }))
}

impl AeadDriver for Aead {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok((self.prepare)(key)?)
    }

    fn one(&self, slot: usize, mut op: FlatAeadOp<'_, '_>) -> Status {
        let ctx = op.tfm.key::<Ctx>(slot);
        let (src, dst, len) = (op.data.get_in().as_ptr(), op.data.get_out().as_mut_ptr(), op.data.len());
        gather(op.aad, |aad| match op.dir {
            // SAFETY: the halves of an `InOutBuf` are the same memory or apart, and have `len` bytes.
            Direction::Encrypt => unsafe {
                if let Ok(tag) = (&mut *op.tag).try_into() {
                    return ctx.seal(op.nonce, aad, src, dst, len, tag);
                }
                let mut tag = [0; TAG_LEN];
                ctx.seal(op.nonce, aad, src, dst, len, &mut tag)?;
                op.tag.copy_from_slice(&tag[..op.tag.len()]);
                Ok(())
            },
            // SAFETY: as above.
            Direction::Decrypt if op.tag.len() == TAG_LEN => unsafe {
                open(&ctx.0.0, op.nonce, aad, src, dst, len, op.tag)
            },
            Direction::Decrypt => {
                let mut short = Wiped(ctx.0.0);
                short.0.tag_len = op.tag.len() as u8;
                // SAFETY: as above.
                unsafe { open(&short.0, op.nonce, aad, src, dst, len, op.tag) }
            }
        })
    }

    fn stream(&self, key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        (self.stream)(key)
    }
}

/// GMAC: GCM without text.
struct Gmac;

impl NonceMacDriver for Gmac {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Ctx::aes_gcm(key)?)
    }

    fn burst(&self, slot: usize, ops: &mut [NonceMacOp<'_>]) {
        for op in ops {
            if op.nonce.len() != NONCE_LEN {
                op.status = Err(OpError::Nonce);
                continue;
            }
            let ctx = op.tfm.key::<Ctx>(slot);
            let mut tag = [0u8; TAG_LEN];
            let none = core::ptr::NonNull::dangling().as_ptr();
            // SAFETY: no text at all.
            op.status = gather(op.data, |data| unsafe { ctx.seal(op.nonce, data, none, none, 0, &mut tag) });
            if op.status.is_ok() {
                op.tag.copy_from_slice(&tag[..op.tag.len()]);
            }
        }
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let gcm = AlgInfo::aead("gcm(aes)", 1, KEY_LENS, NONCE_LEN, Lengths::Of(&[4, 8, 12, 13, 14, 15, 16]));
    let chacha = AlgInfo::aead("rfc7539(chacha20,poly1305)", 1, Lengths::Of(&[32]), NONCE_LEN, Lengths::Of(&[16]));
    let gmac = AlgInfo::nonce_mac("gmac(aes)", TAG_LEN, KEY_LENS, NONCE_LEN);
    vec![
        crate::row::row(gcm, "gcm-aes", Driver::Aead(Arc::new(Aead { prepare: Ctx::aes_gcm, stream: gcm_stream }))),
        crate::row::row(
            chacha,
            "rfc7539-chacha20-poly1305",
            Driver::Aead(Arc::new(Aead { prepare: Ctx::chacha20_poly1305, stream: |_| None })),
        ),
        crate::row::row(gmac, "gmac-aes", Driver::NonceMac(Arc::new(Gmac))),
    ]
}
