//! AES-GCM over messages in pieces, on an `EVP_CIPHER_CTX`, whose assembly encrypts and hashes in one pass.
//!
//! The library leaves a context in a state of its own after a failure, and lines in the thread's error queue. So all that
//! can fail is checked here before, except for a tag that is wrong.

use crate::memory;
use aws_lc_sys as c;
use core::ptr::{self, NonNull};
use inout::InOutBuf;
use sealane_crypto::aead::AeadStream;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{KeyError, OpError, Status};

const TAG_LEN: usize = 16;
/// The nonce of the usual length, which the library uses as it is.
const NONCE_LEN: usize = 12;
/// The longest nonce in bytes: fewer than GCM has, because the library counts them with a C int.
const MAX_NONCE_LEN: usize = i32::MAX as usize;
/// The longest text under one nonce (SP 800-38D section 5.2.1.1), in bytes.
const MAX_TEXT: u64 = (1 << 36) - 32;
/// The longest associated data in bytes: its length in bits has 64 bits.
const MAX_ASSOCIATED: u64 = 1 << 61;
/// The most bytes that are given to the library at a time, whole blocks, because it counts them with a C int.
const MAX_PIECE: usize = 1 << 30;

/// A context of the library, on its heap ([`crate::memory`]), which wipes what is freed.
struct Ctx(NonNull<c::EVP_CIPHER_CTX>);

// SAFETY: a context belongs to no thread, and functions that write it need `&mut`.
unsafe impl Send for Ctx {}
// SAFETY: through `&Ctx` it is only copied.
unsafe impl Sync for Ctx {}

impl Ctx {
    /// In guarded memory, or not.
    fn new(is_guarded: bool) -> Option<Self> {
        // SAFETY: it needs nothing.
        NonNull::new(allocating(is_guarded, || unsafe { c::EVP_CIPHER_CTX_new() })).map(Ctx)
    }

    fn get(&mut self) -> *mut c::EVP_CIPHER_CTX {
        self.0.as_ptr()
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        // SAFETY: it was made by `EVP_CIPHER_CTX_new`, and nobody has it any more.
        unsafe { c::EVP_CIPHER_CTX_free(self.0.as_ptr()) };
    }
}

/// AES-GCM under a key.
pub(crate) struct GcmStream {
    ctx: Ctx,
    /// Whether the library's part of it lies in guarded memory: not one that was made before that was established.
    is_guarded: bool,
    key_len: usize,
    nonce_len: usize,
    dir: Direction,
    /// Whether a message has begun and not ended.
    is_open: bool,
    associated_len: u64,
    text_len: u64,
}

/// Runs what may allocate for a key, in guarded memory or not.
fn allocating<R>(is_guarded: bool, f: impl FnOnce() -> R) -> R {
    if is_guarded { memory::for_key(f) } else { f() }
}

fn cipher(key_len: usize) -> Result<*const c::EVP_CIPHER, KeyError> {
    // SAFETY: these functions return constants.
    unsafe {
        match key_len {
            16 => Ok(c::EVP_aes_128_gcm()),
            24 => Ok(c::EVP_aes_192_gcm()),
            32 => Ok(c::EVP_aes_256_gcm()),
            _ => Err(KeyError::Length),
        }
    }
}

impl GcmStream {
    pub(crate) fn new(key: &[u8]) -> Result<Self, KeyError> {
        cipher(key.len())?;
        let is_guarded = sealane_guarded::guards();
        // It may have been established since the caller opened what was there.
        let _open = sealane_guarded::open();
        if is_guarded && !memory::is_set() {
            return Err(KeyError::Driver);
        }
        let mut stream = GcmStream {
            ctx: Ctx::new(is_guarded).ok_or(KeyError::Driver)?,
            is_guarded,
            key_len: 0,
            nonce_len: NONCE_LEN,
            dir: Direction::Encrypt,
            is_open: false,
            associated_len: 0,
            text_len: 0,
        };
        stream.set_key(key)?;
        Ok(stream)
    }

    /// Sets the direction of what follows.
    fn turn(&mut self, dir: Direction) -> Status {
        if self.dir == dir {
            return Ok(());
        }
        self.dir = dir;
        // SAFETY: the context has its cipher; without key and nonce only the direction changes.
        check(unsafe { self.init(ptr::null(), ptr::null(), ptr::null()) })
    }

    /// Gives the context a cipher, a key or a nonce, and the direction. Returns what the library does.
    ///
    /// # Safety
    /// Each pointer is null, or a cipher, a key or a nonce of the length that the context has for it.
    unsafe fn init(&mut self, cipher: *const c::EVP_CIPHER, key: *const u8, nonce: *const u8) -> i32 {
        let encrypts = i32::from(self.dir == Direction::Encrypt);
        // SAFETY: as the caller promises.
        unsafe { c::EVP_CipherInit_ex(self.ctx.get(), cipher, ptr::null_mut(), key, nonce, encrypts) }
    }

    /// Ends the message, if so many bytes are those of a tag. The library's last step follows.
    fn end(&mut self, dir: Direction, tag_len: usize) -> Result<*mut c::EVP_CIPHER_CTX, OpError> {
        if !(1..=TAG_LEN).contains(&tag_len) {
            return Err(OpError::TagLen);
        }
        if !self.is_open {
            return Err(OpError::Driver);
        }
        self.turn(dir)?;
        self.is_open = false;
        Ok(self.ctx.get())
    }

    /// # Safety
    /// `src` is readable for `len` bytes, `dst` is null (for associated data) or writable for as many; they are the same or
    /// do not overlap.
    unsafe fn update(&mut self, mut src: *const u8, mut dst: *mut u8, mut len: usize) -> Status {
        while len > 0 {
            let now = len.min(MAX_PIECE);
            let mut written = 0;
            // SAFETY: as the caller promises.
            let ok = unsafe { c::EVP_CipherUpdate(self.ctx.get(), dst, &mut written, src, now as i32) };
            check(ok)?;
            len -= now;
            // SAFETY: within the text, or at its end.
            src = unsafe { src.add(now) };
            if !dst.is_null() {
                // SAFETY: as above.
                dst = unsafe { dst.add(now) };
            }
        }
        Ok(())
    }
}

/// The outcome of a function of the library that has no reason to fail.
fn check(ok: i32) -> Status {
    if ok == 1 { Ok(()) } else { Err(OpError::Driver) }
}

impl AeadStream for GcmStream {
    fn set_key(&mut self, key: &[u8]) -> Result<(), KeyError> {
        let cipher = if key.len() == self.key_len { ptr::null() } else { cipher(key.len())? };
        // SAFETY: the key has the length of the cipher's keys; a new cipher starts with nonces of 12 bytes.
        let ok = allocating(self.is_guarded, || unsafe { self.init(cipher, key.as_ptr(), ptr::null()) });
        self.is_open = false;
        if !cipher.is_null() {
            self.nonce_len = NONCE_LEN;
        }
        self.key_len = if ok == 1 { key.len() } else { 0 };
        if ok == 1 { Ok(()) } else { Err(KeyError::Driver) }
    }

    fn start(&mut self, nonce: &[u8]) -> Status {
        if !(1..=MAX_NONCE_LEN).contains(&nonce.len()) {
            return Err(OpError::Nonce);
        }
        let ctx = self.ctx.get();
        if nonce.len() != self.nonce_len {
            let len = nonce.len() as i32;
            // SAFETY: the context has its cipher.
            let set = || unsafe { c::EVP_CIPHER_CTX_ctrl(ctx, c::EVP_CTRL_AEAD_SET_IVLEN, len, ptr::null_mut()) };
            check(allocating(self.is_guarded, set))?;
            self.nonce_len = nonce.len();
        }
        // SAFETY: the context has its key, and the nonce the length that was set.
        let ok = unsafe { self.init(ptr::null(), ptr::null(), nonce.as_ptr()) };
        self.is_open = ok == 1;
        (self.associated_len, self.text_len) = (0, 0);
        check(ok)
    }

    fn associated(&mut self, data: &[u8]) -> Status {
        if self.text_len > 0 || data.len() as u64 > MAX_ASSOCIATED - self.associated_len {
            return Err(OpError::AssocLen);
        }
        if !self.is_open {
            return Err(OpError::Driver);
        }
        self.associated_len += data.len() as u64;
        // SAFETY: the data is readable.
        unsafe { self.update(data.as_ptr(), ptr::null_mut(), data.len()) }
    }

    fn text(&mut self, dir: Direction, data: InOutBuf<'_, '_, u8>) -> Status {
        let len = data.len();
        if len as u64 > MAX_TEXT - self.text_len {
            return Err(OpError::TooLong);
        }
        if !self.is_open {
            return Err(OpError::Driver);
        }
        self.turn(dir)?;
        self.text_len += len as u64;
        let (src, dst) = data.into_raw();
        // SAFETY: the two halves of an `InOutBuf` are the same memory or apart, and have `len` bytes.
        unsafe { self.update(src, dst, len) }
    }

    fn seal(&mut self, tag: &mut [u8]) -> Status {
        let ctx = self.end(Direction::Encrypt, tag.len())?;
        let (mut none, mut written) = ([0u8; TAG_LEN], 0);
        // SAFETY: the end of a message writes no text, and the tag is writable for the length that is asked for.
        unsafe {
            check(c::EVP_EncryptFinal_ex(ctx, none.as_mut_ptr(), &mut written))?;
            check(c::EVP_CIPHER_CTX_ctrl(ctx, c::EVP_CTRL_AEAD_GET_TAG, tag.len() as i32, tag.as_mut_ptr().cast()))
        }
    }

    fn open(&mut self, tag: &[u8]) -> Status {
        let ctx = self.end(Direction::Decrypt, tag.len())?;
        let (mut none, mut written) = ([0u8; TAG_LEN], 0);
        // SAFETY: the library reads the tag, for as many bytes as it has; the end of a message writes no text.
        let ok = unsafe {
            let tag_at = tag.as_ptr().cast_mut().cast();
            check(c::EVP_CIPHER_CTX_ctrl(ctx, c::EVP_CTRL_AEAD_SET_TAG, tag.len() as i32, tag_at))?;
            c::EVP_DecryptFinal_ex(ctx, none.as_mut_ptr(), &mut written)
        };
        if ok == 1 { Ok(()) } else { Err(OpError::Auth) }
    }

    fn fork(&self) -> Result<Box<dyn AeadStream>, OpError> {
        let mut ctx = Ctx::new(self.is_guarded).ok_or(OpError::Driver)?;
        // SAFETY: both contexts are valid, and the one that is copied is only read.
        check(allocating(self.is_guarded, || unsafe { c::EVP_CIPHER_CTX_copy(ctx.get(), self.ctx.0.as_ptr()) }))?;
        let GcmStream { is_guarded, key_len, nonce_len, dir, is_open, associated_len, text_len, .. } = *self;
        Ok(Box::new(GcmStream { ctx, is_guarded, key_len, nonce_len, dir, is_open, associated_len, text_len }))
    }
}
