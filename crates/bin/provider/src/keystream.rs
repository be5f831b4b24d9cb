//! AES in counter mode over text that arrives in pieces of any length.

use inout::InOutBuf;
use sealane_crypto::Status;
use sealane_crypto::skcipher::{Direction, SkcipherTfm};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a block.
pub(crate) const BLOCK_LEN: usize = 16;

/// A keystream that has got as far as `used` bytes of its current block. The counter is first, because kernels read and write it as one
/// vector, and wait where that meets two cache lines.
#[derive(Clone)]
#[repr(C, align(16))]
pub(crate) struct Keystream {
    /// The next block's counter, all of which counts (SP 800-38A).
    pub(crate) counter: [u8; BLOCK_LEN],
    block: Zeroizing<[u8; BLOCK_LEN]>,
    /// 0: nothing of the block is left.
    pub(crate) used: usize,
}

impl Keystream {
    pub(crate) fn new(counter: [u8; BLOCK_LEN]) -> Self {
        Keystream { counter, block: Zeroizing::default(), used: 0 }
    }

    /// Starts again from a counter.
    pub(crate) fn restart(&mut self, counter: [u8; BLOCK_LEN]) {
        self.counter = counter;
        self.block.zeroize();
        self.used = 0;
    }

    /// Encrypts or decrypts whole blocks where the next one begins, and returns whether it did. If not, nothing has changed. Both compute the
    /// same, and take different rights to the key.
    #[inline]
    pub(crate) fn quick(&mut self, tfm: &SkcipherTfm, dir: Direction, data: InOutBuf<'_, '_, u8>) -> bool {
        let is_whole = self.used == 0 && data.len().is_multiple_of(BLOCK_LEN);
        is_whole && tfm.flat(dir, &mut self.counter, data).is_ok()
    }

    /// Encrypts or decrypts the next bytes. The key is the same for all of them.
    pub(crate) fn apply<'a>(&mut self, tfm: &SkcipherTfm, dir: Direction, mut data: InOutBuf<'a, 'a, u8>) -> Status {
        if self.used > 0 {
            let len = data.len().min(BLOCK_LEN - self.used);
            let (mut head, rest) = data.split_at(len);
            head.xor_in2out(&self.block[self.used..self.used + len]);
            self.used = (self.used + len) % BLOCK_LEN;
            data = rest;
        }
        let whole = data.len() - data.len() % BLOCK_LEN;
        let (body, mut tail) = data.split_at(whole);
        if !body.is_empty() {
            tfm.flat(dir, &mut self.counter, body)?;
        }
        if !tail.is_empty() {
            self.block.zeroize();
            tfm.flat(dir, &mut self.counter, self.block.as_mut_slice().into())?;
            let len = tail.len();
            tail.xor_in2out(&self.block[..len]);
            self.used = len;
        }
        Ok(())
    }
}
