//! AES-GCM (SP 800-38D) over messages that arrive in pieces, under IVs of any length.

use crate::failure::{Done, Failure, Reason};
use crate::instance::{AlgId, Instance};
use crate::keystream::{BLOCK_LEN, Counter, Keystream, encrypt_block};
use crate::partial::Partial;
use ghash::universal_hash::UniversalHash;
use ghash::{Block, GHash};
use inout::InOutBuf;
use sealane_crypto::skcipher::{Direction, SkcipherTfm};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The longest IV that the default provider takes, in bytes.
pub(crate) const MAX_IV_LEN: usize = 128;
/// The longest text under one IV: the counter has 32 bits, of which the first value is the tag's.
const MAX_TEXT: u64 = (1 << 36) - 32;
/// The longest associated data: its length in bits has 64 bits.
const MAX_ASSOCIATED: u64 = 1 << 61;

/// A key: AES, and GHASH under the encrypted zero block.
pub(crate) struct GcmKey {
    aes: SkcipherTfm,
    hash: GHash,
}

impl GcmKey {
    pub(crate) fn new(instance: &Instance, key: &[u8]) -> Result<Self, Failure> {
        const CTR: AlgId = AlgId::of("ctr(aes)");
        let aes = instance.alg(CTR)?.skcipher(key).map_err(|_| Failure::new(Reason::InvalidKeyLength))?;
        let h = encrypt_block(&aes, &[0; BLOCK_LEN])?;
        let hash = GHash::new(&(*h).into());
        Ok(GcmKey { aes, hash })
    }

    /// The counter of the tag (section 7.1, step 2).
    fn first_counter(&self, iv: &[u8]) -> [u8; BLOCK_LEN] {
        let mut counter = [0; BLOCK_LEN];
        if iv.len() == 12 {
            counter[..12].copy_from_slice(iv);
            counter[BLOCK_LEN - 1] = 1;
        } else {
            let mut hash = self.hash.clone();
            hash.update_padded(iv);
            hash.update(&[lengths(0, iv.len() as u64)]);
            counter.copy_from_slice(&hash.finalize()[..]);
        }
        counter
    }
}

/// The block of lengths that ends a message, in bits.
fn lengths(associated: u64, text: u64) -> Block {
    let mut block = Block::default();
    block[..8].copy_from_slice(&(8 * associated).to_be_bytes());
    block[8..].copy_from_slice(&(8 * text).to_be_bytes());
    block
}

/// A message under an IV.
#[derive(Clone)]
pub(crate) struct GcmMessage {
    key: Arc<GcmKey>,
    hash: GHash,
    partial: Partial,
    associated_len: u64,
    text_len: u64,
    stream: Keystream,
    tag_mask: Zeroizing<[u8; BLOCK_LEN]>,
}

impl GcmMessage {
    pub(crate) fn new(key: &Arc<GcmKey>, iv: &[u8]) -> Result<Self, Failure> {
        let mut counter = key.first_counter(iv);
        let tag_mask = encrypt_block(&key.aes, &counter)?;
        let count = u32::from_be_bytes(*counter.last_chunk().expect("a block"));
        *counter.last_chunk_mut().expect("a block") = count.wrapping_add(1).to_be_bytes();
        Ok(GcmMessage {
            key: key.clone(),
            hash: key.hash.clone(),
            partial: Partial::default(),
            associated_len: 0,
            text_len: 0,
            stream: Keystream::new(Counter::Last32, counter),
            tag_mask,
        })
    }

    /// Adds associated data, which comes before all text.
    pub(crate) fn associated(&mut self, data: &[u8]) -> Done {
        if self.text_len > 0 || data.len() as u64 > MAX_ASSOCIATED - self.associated_len {
            return Err(Failure::SILENT);
        }
        self.absorb(data, (self.associated_len % BLOCK_LEN as u64) as usize);
        self.associated_len += data.len() as u64;
        Ok(())
    }

    /// Encrypts or decrypts text.
    pub(crate) fn text<'a>(&mut self, dir: Direction, mut data: InOutBuf<'a, 'a, u8>) -> Done {
        if data.is_empty() {
            return Ok(());
        }
        if data.len() as u64 > MAX_TEXT - self.text_len {
            return Err(Failure::SILENT);
        }
        if self.text_len == 0 {
            self.fill((self.associated_len % BLOCK_LEN as u64) as usize);
        }
        let used = (self.text_len % BLOCK_LEN as u64) as usize;
        self.text_len += data.len() as u64;
        if dir == Direction::Decrypt {
            self.absorb(data.get_in(), used);
        }
        self.stream.apply(&self.key.aes, data.reborrow())?;
        if dir == Direction::Encrypt {
            self.absorb(data.get_out(), used);
        }
        Ok(())
    }

    /// Ends the message.
    pub(crate) fn tag(&mut self) -> [u8; BLOCK_LEN] {
        let open = if self.text_len > 0 { self.text_len } else { self.associated_len };
        self.fill((open % BLOCK_LEN as u64) as usize);
        self.hash.update(&[lengths(self.associated_len, self.text_len)]);
        let hash = self.hash.clone().finalize();
        core::array::from_fn(|i| hash[i] ^ self.tag_mask[i])
    }

    /// Hashes `data` behind `used` bytes that wait.
    fn absorb(&mut self, data: &[u8], used: usize) {
        self.partial.absorb(data, used, |blocks| self.hash.update(blocks));
    }

    /// Zeros up to a whole block, behind `used` bytes that wait.
    fn fill(&mut self, used: usize) {
        self.partial.fill(used, |blocks| self.hash.update(blocks));
    }
}
