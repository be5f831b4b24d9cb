//! The sponge of Keccak with outputs of any length: SHAKE (FIPS 202 section 6.2), and cSHAKE for KMAC (SP 800-185).

use keccak::Keccak;
use sealane_crypto::hash::HashState;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bits that end a message of SHAKE, with the first bit of the padding.
const SHAKE_END: u8 = 0x1f;
/// Those of cSHAKE.
const CSHAKE_END: u8 = 0x04;

/// A sponge that has absorbed `pos` bytes of the current block.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(crate) struct Sponge {
    state: [u64; 25],
    pos: usize,
    /// Bytes of a block: 1600 bits less twice the strength.
    rate: usize,
    end: u8,
}

impl Sponge {
    /// cSHAKE of 128 or 256 bits of strength, by its block: 168 or 136 bytes.
    pub(crate) fn cshake(rate: usize) -> Self {
        Sponge { state: [0; 25], pos: 0, rate, end: CSHAKE_END }
    }

    fn permute(&mut self) {
        Keccak::new().with_f1600(|f1600| f1600(&mut self.state));
        self.pos = 0;
    }

    pub(crate) fn absorb(&mut self, data: &[u8]) {
        let mut rest = data;
        while !rest.is_empty() {
            if self.pos == 0 && rest.len() >= self.rate {
                let (block, tail) = rest.split_at(self.rate);
                for (word, bytes) in self.state.iter_mut().zip(block.as_chunks::<8>().0) {
                    *word ^= u64::from_le_bytes(*bytes);
                }
                rest = tail;
                self.permute();
            } else {
                self.absorb_byte(rest[0]);
                rest = &rest[1..];
            }
        }
    }

    fn absorb_byte(&mut self, byte: u8) {
        self.state[self.pos / 8] ^= u64::from(byte) << (8 * (self.pos % 8));
        self.pos += 1;
        if self.pos == self.rate {
            self.permute();
        }
    }

    /// Zeros up to a whole block (SP 800-185 section 2.3.3).
    pub(crate) fn fill_block(&mut self) {
        if self.pos != 0 {
            self.permute();
        }
    }

    /// `left_encode` (section 2.3.1): a number behind the count of its bytes.
    pub(crate) fn left_encode(&mut self, value: usize) {
        let bytes = value.to_be_bytes();
        let bytes = significant(&bytes);
        self.absorb_byte(bytes.len() as u8);
        self.absorb(bytes);
    }

    /// `right_encode` (section 2.3.1): a number before the count of its bytes.
    pub(crate) fn right_encode(&mut self, value: usize) {
        let bytes = value.to_be_bytes();
        let bytes = significant(&bytes);
        self.absorb(bytes);
        self.absorb_byte(bytes.len() as u8);
    }

    /// `encode_string` (section 2.3.2).
    pub(crate) fn encode_string(&mut self, text: &[u8]) {
        self.left_encode(text.len() * 8);
        self.absorb(text);
    }

    /// Ends the message and fills `out`.
    pub(crate) fn squeeze(&mut self, out: &mut [u8]) {
        self.state[self.pos / 8] ^= u64::from(self.end) << (8 * (self.pos % 8));
        self.state[self.rate / 8 - 1] ^= 1 << 63;
        for block in out.chunks_mut(self.rate) {
            self.permute();
            for (bytes, word) in block.chunks_mut(8).zip(&self.state) {
                bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
            }
        }
    }
}

/// The bytes of a number without leading zeros; zero has one byte.
fn significant(bytes: &[u8; size_of::<usize>()]) -> &[u8] {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    &bytes[zeros.min(bytes.len() - 1)..]
}

impl HashState for Sponge {
    fn update(&mut self, data: &[u8]) {
        self.absorb(data);
    }

    fn finish(&mut self, out: &mut [u8]) {
        self.squeeze(out);
        self.reset();
    }

    fn reset(&mut self) {
        self.state.zeroize();
        self.pos = 0;
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(self.clone())
    }
}

fn shake(rate: usize) -> Box<dyn HashState> {
    Box::new(Sponge { state: [0; 25], pos: 0, rate, end: SHAKE_END })
}

pub(super) fn shake128() -> Box<dyn HashState> {
    shake(168)
}

pub(super) fn shake256() -> Box<dyn HashState> {
    shake(136)
}
