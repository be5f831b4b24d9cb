//! ChaCha20-Poly1305 over messages in pieces.

use super::chacha;
use chacha20::R20;
use inout::InOutBuf;
use poly1305::{Block, Poly1305};
use sealane_crypto::aead::AeadStream;
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::skcipher::Direction;
use subtle::ConstantTimeEq;
use universal_hash::{KeyInit, UniversalHash};
use zeroize::{Zeroize, Zeroizing};

const TAG_LEN: usize = 16;
/// Bytes of the keystream that one counter gives.
const CHUNK_LEN: usize = 64;
/// The longest text: the counter has 32 bits, of which the first value is Poly1305's key (RFC 8439 section 2.8).
const MAX_TEXT: u64 = ((1 << 32) - 1) * CHUNK_LEN as u64;

/// The part of a universal hash's block that is not whole yet.
#[derive(Clone, Default)]
struct Partial {
    block: Block,
    fill: usize,
}

impl Partial {
    fn absorb(&mut self, poly: &mut Poly1305, mut data: &[u8]) {
        if self.fill > 0 {
            let (head, rest) = data.split_at(data.len().min(TAG_LEN - self.fill));
            self.block[self.fill..self.fill + head.len()].copy_from_slice(head);
            self.fill += head.len();
            if self.fill < TAG_LEN {
                return;
            }
            poly.update(&[self.block]);
            data = rest;
        }
        let (blocks, tail) = Block::slice_as_chunks(data);
        poly.update(blocks);
        self.block[..tail.len()].copy_from_slice(tail);
        self.fill = tail.len();
    }

    /// Adds zeros up to a whole block.
    fn pad(&mut self, poly: &mut Poly1305) {
        if self.fill > 0 {
            self.block[self.fill..].fill(0);
            poly.update(&[self.block]);
            self.fill = 0;
        }
    }
}

/// A message under a nonce.
#[derive(Clone)]
struct Message {
    nonce: [u8; 12],
    /// The counter of the next chunk.
    counter: u32,
    /// The keystream of the current chunk, of which so many bytes are used.
    chunk: Zeroizing<[u8; CHUNK_LEN]>,
    used: usize,
    poly: Poly1305,
    partial: Partial,
    associated_len: u64,
    text_len: u64,
}

impl Message {
    fn new(key: &[u8; 32], nonce: [u8; 12]) -> Self {
        let mut chunk = Zeroizing::new([0; CHUNK_LEN]);
        chacha::xor::<R20>(key, 0, &nonce, InOutBuf::from(&mut chunk[..]));
        let mut one_time = poly1305::Key::default();
        one_time[..].copy_from_slice(&chunk[..32]);
        let poly = Poly1305::new(&one_time);
        one_time[..].zeroize();
        let (partial, used) = (Partial::default(), CHUNK_LEN);
        Message { nonce, counter: 1, chunk, used, poly, partial, associated_len: 0, text_len: 0 }
    }

    fn crypt(&mut self, key: &[u8; 32], data: InOutBuf<'_, '_, u8>) {
        let (mut head, rest) = {
            let len = data.len().min(CHUNK_LEN - self.used);
            data.split_at(len)
        };
        let len = head.len();
        head.xor_in2out(&self.chunk[self.used..self.used + len]);
        self.used += len;
        let whole = rest.len() - rest.len() % CHUNK_LEN;
        let (body, mut tail) = rest.split_at(whole);
        if whole > 0 {
            chacha::xor::<R20>(key, self.counter, &self.nonce, body);
            // The length of the text was checked, so that this wraps at its very end only.
            self.counter = self.counter.wrapping_add((whole / CHUNK_LEN) as u32);
        }
        if !tail.is_empty() {
            self.chunk.zeroize();
            chacha::xor::<R20>(key, self.counter, &self.nonce, InOutBuf::from(&mut self.chunk[..]));
            self.counter = self.counter.wrapping_add(1);
            self.used = tail.len();
            let len = self.used;
            tail.xor_in2out(&self.chunk[..len]);
        }
    }

    fn tag(mut self) -> [u8; TAG_LEN] {
        self.partial.pad(&mut self.poly);
        let lens = (u128::from(self.text_len) << 64 | u128::from(self.associated_len)).to_le_bytes();
        self.poly.update(&[Block::from(lens)]);
        self.poly.clone().finalize().into()
    }
}

/// A key, with the message that has begun under it.
#[derive(Clone)]
pub(super) struct Stream {
    key: Zeroizing<[u8; 32]>,
    message: Option<Message>,
}

impl Stream {
    pub(super) fn new(key: &[u8]) -> Result<Self, KeyError> {
        let key: &[u8; 32] = key.try_into().map_err(|_| KeyError::Length)?;
        Ok(Stream { key: Zeroizing::new(*key), message: None })
    }

    fn end(&mut self, tag_len: usize) -> Result<[u8; TAG_LEN], OpError> {
        if !(1..=TAG_LEN).contains(&tag_len) {
            return Err(OpError::TagLen);
        }
        Ok(self.message.take().ok_or(OpError::Driver)?.tag())
    }
}

impl AeadStream for Stream {
    fn set_key(&mut self, key: &[u8]) -> Result<(), KeyError> {
        *self = Stream::new(key)?;
        Ok(())
    }

    fn start(&mut self, nonce: &[u8]) -> Status {
        let nonce = nonce.try_into().map_err(|_| OpError::Nonce)?;
        self.message = Some(Message::new(&self.key, nonce));
        Ok(())
    }

    fn associated(&mut self, data: &[u8]) -> Status {
        let message = self.message.as_mut().ok_or(OpError::Driver)?;
        if message.text_len > 0 {
            return Err(OpError::AssocLen);
        }
        message.associated_len = message.associated_len.checked_add(data.len() as u64).ok_or(OpError::AssocLen)?;
        message.partial.absorb(&mut message.poly, data);
        Ok(())
    }

    fn text(&mut self, dir: Direction, mut data: InOutBuf<'_, '_, u8>) -> Status {
        let message = self.message.as_mut().ok_or(OpError::Driver)?;
        if data.len() as u64 > MAX_TEXT - message.text_len {
            return Err(OpError::TooLong);
        }
        if data.is_empty() {
            return Ok(());
        }
        if message.text_len == 0 {
            message.partial.pad(&mut message.poly);
        }
        message.text_len += data.len() as u64;
        if dir == Direction::Decrypt {
            message.partial.absorb(&mut message.poly, data.get_in());
        }
        message.crypt(&self.key, data.reborrow());
        if dir == Direction::Encrypt {
            message.partial.absorb(&mut message.poly, data.get_out());
        }
        Ok(())
    }

    fn seal(&mut self, tag: &mut [u8]) -> Status {
        let full = self.end(tag.len())?;
        tag.copy_from_slice(&full[..tag.len()]);
        Ok(())
    }

    fn open(&mut self, tag: &[u8]) -> Status {
        let full = self.end(tag.len())?;
        if bool::from(full[..tag.len()].ct_eq(tag)) { Ok(()) } else { Err(OpError::Auth) }
    }

    fn fork(&self) -> Result<Box<dyn AeadStream>, OpError> {
        Ok(Box::new(self.clone()))
    }
}
