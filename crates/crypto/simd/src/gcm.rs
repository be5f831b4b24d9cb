//! AES-GCM on the kernels of an instruction set: keys, and the contract of the kernels.

use super::aes::{BLOCK, Rounds};
use core::mem::MaybeUninit;
use sealane_crypto::error::KeyError;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::wipe::wipe;

pub(super) const NONCE_LEN: usize = 12;

/// The most blocks whose products are summed before they are reduced.
pub(super) const GROUP: usize = 32;

/// The longest text (SP 800-38D section 5.2.1.1): its counters have 32 bits, and two of them serve other ends.
pub(super) const MAX_LEN: u64 = (1 << 36) - 32;

/// Powers of H in descending order, in the form that the kernels multiply with: one for each block of a group, for what comes behind it,
/// and zeros.
#[repr(C, align(64))]
#[derive(Clone)]
pub(super) struct Powers {
    pub(super) blocks: [[u8; BLOCK]; GROUP + 8],
    /// In both halves of each block the sum of the halves of the power.
    pub(super) sums: [[u8; BLOCK]; GROUP + 8],
}

impl Drop for Powers {
    fn drop(&mut self) {
        wipe(self.blocks.as_flattened_mut());
        wipe(self.sums.as_flattened_mut());
    }
}

#[derive(Clone)]
pub(super) struct GcmKey {
    pub(super) rounds: Rounds,
    pub(super) powers: Powers,
}

/// A message in pieces, as far as its key stream and its hash have come.
#[derive(Clone)]
pub(super) struct State {
    /// GHASH of whole blocks, with its bytes in reverse order.
    pub(super) hashed: [u8; BLOCK],
    /// The block that is not whole yet, of associated data or ciphertext.
    pub(super) part: [u8; BLOCK],
    /// The key stream of the block of text that is not whole yet.
    pub(super) stream: [u8; BLOCK],
}

impl Drop for State {
    fn drop(&mut self) {
        wipe(&mut self.hashed);
        wipe(&mut self.part);
        wipe(&mut self.stream);
    }
}

/// GCM on one instruction set.
///
/// # Safety
/// All functions: the CPU must have the instruction set. The first pointer of `text` must be readable and the second writable for `len`
/// bytes, [`MAX_LEN`] at most, and they are the same or do not overlap. Nobody else writes to either until [`Gcm::end`].
pub(super) trait Gcm: Send + Sync + 'static {
    const MODULE: &'static str;
    /// A text between its begin and its end.
    type Begun;
    unsafe fn powers(rounds: &Rounds, powers: &mut Powers);
    /// Encrypts or decrypts. `begun` is written; of a text that is encrypted the ciphertext has to stay where it is until [`Gcm::end`].
    unsafe fn begin(
        key: &GcmKey,
        dir: Direction,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        text: (*const u8, *mut u8),
        len: usize,
        begun: &mut MaybeUninit<Self::Begun>,
    );
    /// Writes the tag of a text that has begun under this key.
    unsafe fn end(key: &GcmKey, begun: &Self::Begun, tag: &mut [u8; BLOCK]);
    /// Goes on with GHASH, whose state has its bytes in reverse order, over data that is filled up to whole blocks.
    unsafe fn hash(key: &GcmKey, hashed: &mut [u8; BLOCK], data: &[u8]);
    /// The key stream of one counter.
    unsafe fn block(key: &GcmKey, counter: u128) -> [u8; BLOCK];
    /// Encrypts or decrypts from a counter on, whose lower 32 bits do not wrap within the text. GHASH goes on over a block that begins
    /// with `before` bytes of the state's part, if there are any, and over the whole blocks of ciphertext; what is behind them is the
    /// part then.
    unsafe fn piece(
        key: &GcmKey,
        dir: Direction,
        counter: u128,
        state: &mut State,
        before: usize,
        text: (*const u8, *mut u8),
        len: usize,
    );
}

/// The first counter of a nonce of 96 bits (SP 800-38D section 7.1).
pub(super) fn first_counter(nonce: &[u8; NONCE_LEN]) -> u128 {
    // No copy of it: the processor would wait for its parts.
    let (high, low) = nonce.split_at(8);
    let high = u64::from_be_bytes(high.try_into().expect("eight bytes"));
    let low = u32::from_be_bytes(low.try_into().expect("four bytes"));
    u128::from(high) << 64 | u128::from(low) << 32 | 1
}

/// Data of one block, filled up with zeros, as a number; `None` for no data and for more than a block.
pub(super) fn only_block(data: &[u8]) -> Option<u128> {
    // Two loads that overlap, for the same reason. Of the second one, those bytes leave that the first one has.
    let behind = |taken: usize, width: usize| (2 * width - taken) as u32 * 8;
    match data.len() {
        1..=3 => Some(data.iter().enumerate().map(|(i, byte)| u128::from(*byte) << (120 - 8 * i)).sum()),
        n @ 4..=7 => {
            let high = u32::from_be_bytes(*data.first_chunk()?);
            let low = u32::from_be_bytes(*data.last_chunk()?).checked_shl(behind(n, 4)).unwrap_or(0);
            Some(u128::from(high) << 96 | u128::from(low) << 64)
        }
        n @ 8..=16 => {
            let high = u64::from_be_bytes(*data.first_chunk()?);
            let low = u64::from_be_bytes(*data.last_chunk()?).checked_shl(behind(n, 8)).unwrap_or(0);
            Some(u128::from(high) << 64 | u128::from(low))
        }
        _ => None,
    }
}

impl GcmKey {
    pub(super) fn new<K: Gcm>(key: &[u8]) -> Result<Self, KeyError> {
        let powers = Powers { blocks: [[0; BLOCK]; GROUP + 8], sums: [[0; BLOCK]; GROUP + 8] };
        let mut key = GcmKey { rounds: Rounds::encrypt(key)?, powers };
        // SAFETY: the row exists because the CPU has the instructions.
        unsafe { K::powers(&key.rounds, &mut key.powers) };
        Ok(key)
    }
}
