//! AES in counter mode over text that arrives in pieces of any length.

use crate::failure::{Done, Failure, Reason};
use inout::InOutBuf;
use sealane_crypto::data::Data;
use sealane_crypto::skcipher::{Direction, SkcipherTfm};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a block.
pub(crate) const BLOCK_LEN: usize = 16;

/// The part of a block that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// All of it (SP 800-38A).
    Whole,
    /// The last four bytes, which wrap without a carry (GCM, SP 800-38D section 6.2).
    Last32,
}

/// A keystream that has got as far as `used` bytes of its current block.
#[derive(Clone)]
pub(crate) struct Keystream {
    width: Counter,
    /// The next block's counter.
    pub(crate) counter: [u8; BLOCK_LEN],
    block: Zeroizing<[u8; BLOCK_LEN]>,
    /// 0: nothing of the block is left.
    pub(crate) used: usize,
}

/// The bytes under `counter`, which is left alone.
pub(crate) fn encrypt_block(
    tfm: &SkcipherTfm,
    counter: &[u8; BLOCK_LEN],
) -> Result<Zeroizing<[u8; BLOCK_LEN]>, Failure> {
    let mut block = Zeroizing::new([0; BLOCK_LEN]);
    let mut counter = *counter;
    run(tfm, &mut counter, block.as_mut_slice().into())?;
    Ok(block)
}

fn run<'a>(tfm: &SkcipherTfm, counter: &mut [u8; BLOCK_LEN], data: InOutBuf<'a, 'a, u8>) -> Done {
    tfm.one(Direction::Encrypt, counter, Data::Flat(data)).map_err(|_| Reason::CipherOperationFailed.into())
}

impl Keystream {
    pub(crate) fn new(width: Counter, counter: [u8; BLOCK_LEN]) -> Self {
        Keystream { width, counter, block: Zeroizing::default(), used: 0 }
    }

    /// Encrypts, or decrypts, the next bytes. The key is the same for all of them.
    pub(crate) fn apply<'a>(&mut self, tfm: &SkcipherTfm, mut data: InOutBuf<'a, 'a, u8>) -> Done {
        if self.used > 0 {
            let len = data.len().min(BLOCK_LEN - self.used);
            let (mut head, rest) = data.split_at(len);
            head.xor_in2out(&self.block[self.used..self.used + len]);
            self.used = (self.used + len) % BLOCK_LEN;
            data = rest;
        }
        let whole = data.len() - data.len() % BLOCK_LEN;
        let (body, mut tail) = data.split_at(whole);
        self.blocks(tfm, body)?;
        if !tail.is_empty() {
            self.block.zeroize();
            let mut block = core::mem::take(&mut self.block);
            let done = self.blocks(tfm, block.as_mut_slice().into());
            self.block = block;
            done?;
            let len = tail.len();
            tail.xor_in2out(&self.block[..len]);
            self.used = len;
        }
        Ok(())
    }

    /// Whole blocks.
    fn blocks<'a>(&mut self, tfm: &SkcipherTfm, mut data: InOutBuf<'a, 'a, u8>) -> Done {
        while !data.is_empty() {
            let len = match self.width {
                Counter::Whole => data.len(),
                Counter::Last32 => {
                    let count = u32::from_be_bytes(*self.counter.last_chunk().expect("a block"));
                    let left = (1u64 << 32) - u64::from(count);
                    usize::try_from(left * BLOCK_LEN as u64).unwrap_or(usize::MAX).min(data.len())
                }
            };
            let (now, rest) = data.split_at(len);
            let fixed = self.counter;
            run(tfm, &mut self.counter, now)?;
            if self.width == Counter::Last32 {
                self.counter[..12].copy_from_slice(&fixed[..12]);
            }
            data = rest;
        }
        Ok(())
    }
}
