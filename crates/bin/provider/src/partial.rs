//! The block that is not whole yet, of a universal hash (Poly1305) over a message that arrives in pieces.

use crate::keystream::BLOCK_LEN;
use poly1305::Block;

/// Bytes that wait for a whole block. Their count follows from the length of the message so far, which the caller knows.
#[derive(Clone, Default)]
pub(crate) struct Partial([u8; BLOCK_LEN]);

impl Partial {
    /// Gives `data`, behind `waiting` bytes, to `hash` in whole blocks; the rest waits.
    pub(crate) fn absorb(&mut self, mut data: &[u8], waiting: usize, mut hash: impl FnMut(&[Block])) {
        if waiting > 0 {
            let (head, rest) = data.split_at(data.len().min(BLOCK_LEN - waiting));
            self.0[waiting..waiting + head.len()].copy_from_slice(head);
            if waiting + head.len() < BLOCK_LEN {
                return;
            }
            hash(&[Block::from(self.0)]);
            data = rest;
        }
        let (blocks, tail) = Block::slice_as_chunks(data);
        hash(blocks);
        self.0[..tail.len()].copy_from_slice(tail);
    }

    /// Gives zeros up to a whole block to `hash`, behind `waiting` bytes.
    pub(crate) fn fill(&mut self, waiting: usize, hash: impl FnOnce(&[Block])) {
        if waiting > 0 {
            self.0[waiting..].fill(0);
            hash(&[Block::from(self.0)]);
        }
    }
}
