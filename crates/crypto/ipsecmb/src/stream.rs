//! AES-GCM over messages in pieces, by the library's functions for one message, which belong to no manager.

use crate::ffi::{self, GCM_CONTEXT_LEN, GcmCalls};
use crate::gcm_key::{GcmKey, NONCE_LEN};
use crate::manager::{self, wipe};
use inout::InOutBuf;
use sealane_crypto::aead::AeadStream;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{KeyError, OpError, Status};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

const TAG_LEN: usize = 16;
const BLOCK_LEN: usize = 16;
/// The longest nonce in bytes: its length in bits has 64 bits.
const MAX_NONCE_LEN: u64 = (1 << 61) - 1;
/// The longest text under one nonce (SP 800-38D section 5.2.1.1), in bytes.
const MAX_TEXT: u64 = (1 << 36) - 32;
/// The longest associated data in bytes: its length in bits has 64 bits.
const MAX_ASSOCIATED: u64 = (1 << 61) - 1;
/// The most bytes that are given to the library at a time, whole blocks: longer texts than that of a message it refuses without a word.
const MAX_PIECE: usize = 1 << 30;
/// Associated data that waits for the first text, so that what is short is hashed by the call that starts the message.
const SHORT: usize = 64;

/// The library's state of a message.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Context([u8; GCM_CONTEXT_LEN]);

/// The place of a message in its life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// There is none.
    Ended,
    /// It has a nonce of the usual length, which the library has not got yet; associated data waits.
    Waiting,
    /// The library has it, and takes associated data.
    Associated,
    /// The library has all associated data.
    Text,
}

/// AES-GCM under a key. All that is secret is in the value itself, and is wiped when it is dropped.
pub(crate) struct GcmStream {
    key: GcmKey,
    context: Context,
    /// `None`: there is no key.
    calls: Option<&'static GcmCalls>,
    stage: Stage,
    nonce: [u8; NONCE_LEN],
    /// Associated data; all of it is written, so that nothing of an older value is moved along.
    waiting: [u8; SHORT],
    waiting_len: usize,
    associated_len: u64,
    text_len: u64,
}

impl Drop for GcmStream {
    fn drop(&mut self) {
        wipe(&mut self.context.0);
    }
}

/// A function of the library, or an error where there is no key.
macro_rules! call {
    ($self:ident . $name:ident) => {
        $self.calls.and_then(|calls| calls.$name).ok_or(OpError::Driver)
    };
}

impl GcmStream {
    pub(crate) fn new(key: &[u8]) -> Result<Box<Self>, KeyError> {
        // The key is written where it stays: one that is moved leaves a copy behind.
        let mut stream = Box::new(GcmStream {
            key: GcmKey::EMPTY,
            context: Context([0; GCM_CONTEXT_LEN]),
            calls: None,
            stage: Stage::Ended,
            nonce: [0; NONCE_LEN],
            waiting: [0; SHORT],
            waiting_len: 0,
            associated_len: 0,
            text_len: 0,
        });
        stream.set_key(key)?;
        Ok(stream)
    }

    /// Gives a message that waits to the library, with so many bytes of the associated data that waits, which is padded there.
    fn hand_over(&mut self, len: usize) -> Status {
        let (key, context) = (self.key.as_ptr(), self.context.0.as_mut_ptr());
        let (start, associated) = (call!(self.start)?, &self.waiting[..len]);
        // SAFETY: key and context are the library's, aligned and of the right lengths; the nonce has twelve bytes.
        unsafe { start(key, context, self.nonce.as_ptr(), associated.as_ptr(), len as u64) };
        Ok(())
    }

    /// Has the library ready for text, or for the end.
    fn begin(&mut self) -> Status {
        if self.stage == Stage::Waiting {
            self.hand_over(self.waiting_len)?;
            self.stage = Stage::Text;
        }
        match self.stage {
            Stage::Associated => self.pad(),
            Stage::Text => Ok(()),
            Stage::Ended | Stage::Waiting => Err(OpError::Driver),
        }
    }

    /// Gives associated data to the library, which was given the message before it.
    fn hash(&mut self, data: &[u8]) -> Status {
        let associated = call!(self.associated)?;
        // SAFETY: as in `hand_over`; the data is readable.
        unsafe { associated(self.key.as_ptr(), self.context.0.as_mut_ptr(), data.as_ptr(), data.len() as u64) };
        Ok(())
    }

    /// Ends associated data that came in pieces: it is hashed with zeros up to a whole block, which are not counted.
    fn pad(&mut self) -> Status {
        let pad = (BLOCK_LEN - (self.associated_len % BLOCK_LEN as u64) as usize) % BLOCK_LEN;
        if pad > 0 {
            self.hash(&[0; BLOCK_LEN][..pad])?;
            // SAFETY: the context is the library's.
            unsafe { ffi::slmb_gcm_less_associated(self.context.0.as_mut_ptr(), pad as u64) };
        }
        self.stage = Stage::Text;
        Ok(())
    }

    /// Ends the message and returns its whole tag, which is a secret if the one that came was wrong.
    fn end(&mut self, tag_len: usize) -> Result<Zeroizing<[u8; TAG_LEN]>, OpError> {
        if !(1..=TAG_LEN).contains(&tag_len) {
            return Err(OpError::TagLen);
        }
        self.begin()?;
        let end = call!(self.end)?;
        self.stage = Stage::Ended;
        let mut tag = Zeroizing::new([0; TAG_LEN]);
        // SAFETY: as in `hand_over`; the tag has room for as many bytes as are asked for.
        unsafe { end(self.key.as_ptr(), self.context.0.as_mut_ptr(), tag.as_mut_ptr(), TAG_LEN as u64) };
        Ok(tag)
    }
}

impl AeadStream for GcmStream {
    fn set_key(&mut self, key: &[u8]) -> Result<(), KeyError> {
        let calls = manager::gcm_calls(key.len())?;
        self.key.set(key)?;
        self.stage = Stage::Ended;
        self.calls = Some(calls);
        Ok(())
    }

    fn start(&mut self, nonce: &[u8]) -> Status {
        if nonce.is_empty() || nonce.len() as u64 > MAX_NONCE_LEN {
            return Err(OpError::Nonce);
        }
        let start = call!(self.start_any)?;
        (self.associated_len, self.text_len) = (0, 0);
        self.waiting_len = 0;
        if let Ok(nonce) = nonce.try_into() {
            self.nonce = nonce;
            self.stage = Stage::Waiting;
            return Ok(());
        }
        let (key, context) = (self.key.as_ptr(), self.context.0.as_mut_ptr());
        // SAFETY: as in `hand_over`; the nonce is readable, and there is no associated data.
        unsafe { start(key, context, nonce.as_ptr(), nonce.len() as u64, nonce.as_ptr(), 0) };
        self.stage = Stage::Associated;
        Ok(())
    }

    fn associated(&mut self, data: &[u8]) -> Status {
        if self.text_len > 0 || data.len() as u64 > MAX_ASSOCIATED - self.associated_len {
            return Err(OpError::AssocLen);
        }
        match self.stage {
            Stage::Ended | Stage::Text => return Err(OpError::Driver),
            Stage::Waiting if data.len() <= SHORT - self.waiting_len => {
                self.waiting[self.waiting_len..self.waiting_len + data.len()].copy_from_slice(data);
                self.waiting_len += data.len();
            }
            Stage::Waiting => {
                let (waiting, len) = (self.waiting, self.waiting_len);
                // More than the library takes at the start: all of it comes in pieces.
                self.hand_over(0)?;
                self.stage = Stage::Associated;
                self.hash(&waiting[..len])?;
                self.hash(data)?;
            }
            Stage::Associated => self.hash(data)?,
        }
        self.associated_len += data.len() as u64;
        Ok(())
    }

    fn text(&mut self, dir: Direction, data: InOutBuf<'_, '_, u8>) -> Status {
        let data_len = data.len();
        let len = data_len as u64;
        if len > MAX_TEXT - self.text_len {
            return Err(OpError::TooLong);
        }
        if len == 0 && self.stage != Stage::Ended {
            return Ok(());
        }
        self.begin()?;
        let update = match dir {
            Direction::Encrypt => call!(self.encrypt)?,
            Direction::Decrypt => call!(self.decrypt)?,
        };
        self.text_len += len;
        let ((mut src, mut dst), mut left) = (data.into_raw(), data_len);
        while left > 0 {
            let now = left.min(MAX_PIECE);
            // SAFETY: as in `hand_over`; the two halves of an `InOutBuf` are the same memory or apart, and have as many bytes.
            unsafe {
                update(self.key.as_ptr(), self.context.0.as_mut_ptr(), dst, src, now as u64);
                (src, dst) = (src.add(now), dst.add(now));
            }
            left -= now;
        }
        Ok(())
    }

    fn seal(&mut self, tag: &mut [u8]) -> Status {
        let whole = self.end(tag.len())?;
        tag.copy_from_slice(&whole[..tag.len()]);
        Ok(())
    }

    fn open(&mut self, tag: &[u8]) -> Status {
        let whole = self.end(tag.len())?;
        if bool::from(whole[..tag.len()].ct_eq(tag)) { Ok(()) } else { Err(OpError::Auth) }
    }

    fn fork(&self) -> Result<Box<dyn AeadStream>, OpError> {
        let mut stream = Box::new(GcmStream {
            key: GcmKey::EMPTY,
            context: Context([0; GCM_CONTEXT_LEN]),
            calls: self.calls,
            stage: self.stage,
            nonce: self.nonce,
            waiting: self.waiting,
            waiting_len: self.waiting_len,
            associated_len: self.associated_len,
            text_len: self.text_len,
        });
        stream.key.become_as(&self.key);
        stream.context.0.copy_from_slice(&self.context.0);
        Ok(stream)
    }
}
