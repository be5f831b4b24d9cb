//! AES-GCM over messages in pieces.

use super::aes::BLOCK;
use super::gcm::{Gcm, GcmKey, MAX_LEN, NONCE_LEN, State, first_counter};
use core::marker::PhantomData;
use inout::InOutBuf;
use sealane_crypto::aead::AeadStream;
use sealane_crypto::mac::same;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::wipe::wipe;
use sealane_crypto::{KeyError, OpError, Status};
use zeroize::Zeroizing;

/// The longest associated data in bytes: its length in bits has 64 bits.
const MAX_ASSOCIATED: u64 = (1 << 61) - 1;

/// A key over the kernels `K`, with the message so far.
pub(super) struct GcmStream<K> {
    key: GcmKey,
    /// Whether a message has begun and not ended.
    is_open: bool,
    /// Hides the tag.
    mask: [u8; BLOCK],
    /// The counter of the next block.
    counter: u128,
    state: State,
    associated_len: u64,
    text_len: u64,
    kernels: PhantomData<K>,
}

impl<K> Drop for GcmStream<K> {
    fn drop(&mut self) {
        wipe(&mut self.mask);
    }
}

/// The bytes of a block that is not whole.
fn fill(len: u64) -> usize {
    len as usize % BLOCK
}

impl<K: Gcm> GcmStream<K> {
    pub(super) fn new(key: &[u8]) -> Result<Self, KeyError> {
        Ok(GcmStream {
            key: GcmKey::new::<K>(key)?,
            is_open: false,
            mask: [0; BLOCK],
            counter: 0,
            state: State { hashed: [0; BLOCK], part: [0; BLOCK], stream: [0; BLOCK] },
            associated_len: 0,
            text_len: 0,
            kernels: PhantomData,
        })
    }

    fn hash(&mut self, data: &[u8]) {
        // SAFETY: the row exists because the CPU has the instructions. The same holds below.
        unsafe { K::hash(&self.key, &mut self.state.hashed, data) };
    }

    fn block(&self, counter: u128) -> [u8; BLOCK] {
        // SAFETY: as above.
        unsafe { K::block(&self.key, counter) }
    }

    /// Hashes the block that is not whole, which begins with so many bytes, filled up with zeros.
    fn flush(&mut self, fill: usize) {
        if fill > 0 {
            let part = self.state.part;
            self.hash(&part[..fill]);
        }
    }

    /// Encrypts or decrypts bytes by the key stream of the block that is not whole, from a place on.
    ///
    /// # Safety
    /// `src` is readable and `dst` writable for `n` bytes, and they are the same or do not overlap.
    unsafe fn by_bytes(&mut self, dir: Direction, at: usize, (src, dst): (*const u8, *mut u8), n: usize) {
        for i in 0..n {
            // SAFETY: as the caller promises.
            let text = unsafe { src.add(i).read() };
            let out = text ^ self.state.stream[at + i];
            self.state.part[at + i] = if dir == Direction::Encrypt { out } else { text };
            // SAFETY: as above.
            unsafe { dst.add(i).write(out) };
        }
        if at + n == BLOCK {
            self.flush(BLOCK);
        }
    }

    /// Ends the message; returns its tag, which is a secret if another one came.
    fn end(&mut self, tag_len: usize) -> Result<Zeroizing<[u8; BLOCK]>, OpError> {
        if !(1..=BLOCK).contains(&tag_len) {
            return Err(OpError::TagLen);
        }
        if !self.is_open {
            return Err(OpError::Driver);
        }
        self.is_open = false;
        let fill = fill(if self.text_len > 0 { self.text_len } else { self.associated_len });
        // What is not whole and the lengths in one go.
        let mut last = [0; 2 * BLOCK];
        last[..fill].copy_from_slice(&self.state.part[..fill]);
        let at = if fill > 0 { BLOCK } else { 0 };
        last[at..at + 8].copy_from_slice(&(self.associated_len << 3).to_be_bytes());
        last[at + 8..at + 16].copy_from_slice(&(self.text_len << 3).to_be_bytes());
        self.hash(&last[..at + BLOCK]);
        let tag = u128::from_le_bytes(self.state.hashed) ^ u128::from_be_bytes(self.mask);
        Ok(Zeroizing::new(tag.to_be_bytes()))
    }
}

impl<K: Gcm> AeadStream for GcmStream<K> {
    fn set_key(&mut self, key: &[u8]) -> Result<(), KeyError> {
        self.key = GcmKey::new::<K>(key)?;
        self.is_open = false;
        Ok(())
    }

    fn start(&mut self, nonce: &[u8]) -> Status {
        if nonce.is_empty() || nonce.len() as u64 > MAX_ASSOCIATED {
            return Err(OpError::Nonce);
        }
        self.state.hashed = [0; BLOCK];
        let counter = match <&[u8; NONCE_LEN]>::try_from(nonce) {
            Ok(nonce) => first_counter(nonce),
            // SP 800-38D section 7.1.
            Err(_) => {
                self.hash(nonce);
                self.hash(&(u128::from(nonce.len() as u64) << 3).to_be_bytes());
                u128::from_le_bytes(core::mem::take(&mut self.state.hashed))
            }
        };
        self.mask = self.block(counter);
        self.counter = next(counter, 1);
        (self.associated_len, self.text_len, self.is_open) = (0, 0, true);
        Ok(())
    }

    fn associated(&mut self, mut data: &[u8]) -> Status {
        if self.text_len > 0 || data.len() as u64 > MAX_ASSOCIATED - self.associated_len {
            return Err(OpError::AssocLen);
        }
        if !self.is_open {
            return Err(OpError::Driver);
        }
        let at = fill(self.associated_len);
        self.associated_len += data.len() as u64;
        if at > 0 {
            let n = data.len().min(BLOCK - at);
            self.state.part[at..at + n].copy_from_slice(&data[..n]);
            data = &data[n..];
            if at + n < BLOCK {
                return Ok(());
            }
            self.flush(BLOCK);
        }
        let (whole, rest) = data.split_at(data.len() - data.len() % BLOCK);
        self.hash(whole);
        self.state.part[..rest.len()].copy_from_slice(rest);
        Ok(())
    }

    fn text(&mut self, dir: Direction, data: InOutBuf<'_, '_, u8>) -> Status {
        let len = data.len();
        if len as u64 > MAX_LEN - self.text_len {
            return Err(OpError::TooLong);
        }
        if !self.is_open {
            return Err(OpError::Driver);
        }
        if len == 0 {
            return Ok(());
        }
        // Associated data that are no whole block go before the text; of the text, what is no whole block waits for more.
        let mut before = if self.text_len == 0 { fill(self.associated_len) } else { 0 };
        let at = fill(self.text_len);
        self.text_len += len as u64;
        let (src, dst) = data.into_raw();
        // SAFETY: the halves of an `InOutBuf` are the same memory or apart, and have `len` bytes.
        unsafe {
            let mut place = if at > 0 { len.min(BLOCK - at) } else { 0 };
            if place > 0 {
                self.by_bytes(dir, at, (src, dst), place);
            }
            while place < len {
                // The counter's lower 32 bits may begin anywhere, and wrap once, if the nonce has another length.
                let until_wrap = ((1 << 32) - (self.counter as u32 as usize)) * BLOCK;
                let now = (len - place).min(until_wrap);
                let text = (src.add(place), dst.add(place));
                K::piece(&self.key, dir, self.counter, &mut self.state, before, text, now);
                self.counter = next(self.counter, now.div_ceil(BLOCK) as u64);
                (place, before) = (place + now, 0);
            }
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
        if same(&whole[..tag.len()], tag) { Ok(()) } else { Err(OpError::Auth) }
    }

    fn fork(&self) -> Result<Box<dyn AeadStream>, OpError> {
        Ok(Box::new(GcmStream::<K> {
            key: self.key.clone(),
            is_open: self.is_open,
            mask: self.mask,
            counter: self.counter,
            state: self.state.clone(),
            associated_len: self.associated_len,
            text_len: self.text_len,
            kernels: PhantomData,
        }))
    }
}

/// A counter so many blocks on: its lower 32 bits count, and wrap (SP 800-38D section 6.2).
fn next(counter: u128, blocks: u64) -> u128 {
    let low = (counter as u32).wrapping_add(blocks as u32);
    counter & !u128::from(u32::MAX) | u128::from(low)
}
