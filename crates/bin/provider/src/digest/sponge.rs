//! The sponge of Keccak with outputs of any length: SHAKE (FIPS 202 section 6.2), and cSHAKE for KMAC (SP 800-185).

use keccak::Keccak;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bits that end a message of SHAKE, with the first bit of the padding.
const SHAKE_END: u8 = 0x1f;
/// Those of cSHAKE.
const CSHAKE_END: u8 = 0x04;

/// A sponge that has absorbed or given `pos` bytes of the current block.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(crate) struct Sponge {
    state: [u64; 25],
    pos: usize,
    squeezed: bool,
    /// Bytes of a block: 1600 bits less twice the strength.
    rate: usize,
    end: u8,
}

impl Sponge {
    /// SHAKE of 128 or 256 bits of strength, by its block: 168 or 136 bytes.
    pub(crate) fn shake(rate: usize) -> Self {
        Self::new(rate, SHAKE_END)
    }

    /// cSHAKE, by the same blocks.
    pub(crate) fn cshake(rate: usize) -> Self {
        Self::new(rate, CSHAKE_END)
    }

    fn new(rate: usize, end: u8) -> Self {
        Sponge { state: [0; 25], pos: 0, squeezed: false, rate, end }
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

    /// Whether the message has been ended.
    pub(crate) fn is_squeezed(&self) -> bool {
        self.squeezed
    }

    /// Fills `out` with the next bytes of the output; the first call ends the message.
    pub(crate) fn squeeze(&mut self, out: &mut [u8]) {
        if !self.squeezed {
            self.state[self.pos / 8] ^= u64::from(self.end) << (8 * (self.pos % 8));
            self.state[self.rate / 8 - 1] ^= 1 << 63;
            self.permute();
            self.squeezed = true;
        }
        let mut rest = out;
        while !rest.is_empty() {
            if self.pos == self.rate {
                self.permute();
            }
            // The rest of a word, so that only a piece's ends are cut.
            let within = self.pos % 8;
            let len = rest.len().min(8 - within);
            let (bytes, tail) = rest.split_at_mut(len);
            bytes.copy_from_slice(&self.state[self.pos / 8].to_le_bytes()[within..within + len]);
            self.pos += len;
            rest = tail;
        }
    }

    /// Fills `out` with the output, and starts the next message.
    pub(crate) fn finish(&mut self, out: &mut [u8]) {
        self.squeeze(out);
        self.reset();
    }

    /// Forgets the message so far.
    pub(crate) fn reset(&mut self) {
        self.state.zeroize();
        self.pos = 0;
        self.squeezed = false;
    }
}

/// The bytes of a number without leading zeros; zero has one byte.
fn significant(bytes: &[u8; size_of::<usize>()]) -> &[u8] {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    &bytes[zeros.min(bytes.len() - 1)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_in_pieces_is_the_output_at_once() {
        for rate in [168, 136] {
            let mut whole = Sponge::shake(rate);
            whole.absorb(b"abc");
            let mut pieces = whole.clone();
            let mut expected = [0; 1000];
            whole.squeeze(&mut expected);
            let mut got = Vec::new();
            for len in [1, 7, 8, 9, 0, 150, 168, 136, 300, 200, 21] {
                let mut piece = vec![0; len];
                pieces.squeeze(&mut piece);
                got.extend(piece);
            }
            assert_eq!(got, expected, "{rate}");
        }
    }
}
