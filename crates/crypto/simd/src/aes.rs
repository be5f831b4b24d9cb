//! AES keys, and the drivers of ECB, CBC, CTR and XTS over the kernels of an instruction set.

use super::priority::PRIORITY;
use core::arch::x86_64::*;
use core::marker::PhantomData;
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver};
use sealane_crypto::wipe::wipe;
use sealane_crypto::{AlgInfo, CipherMode, Lengths};
use std::sync::Arc;

pub(super) const BLOCK: usize = 16;

/// Round keys of one direction.
#[repr(C, align(64))]
#[derive(Clone)]
pub(super) struct Rounds {
    pub(super) keys: [[u8; BLOCK]; 15],
    /// 10, 12 or 14 rounds; there is one key more.
    pub(super) count: usize,
}

impl Drop for Rounds {
    fn drop(&mut self) {
        wipe(self.keys.as_flattened_mut());
    }
}

impl Rounds {
    /// The forward round keys (FIPS 197 section 5.2).
    pub(super) fn encrypt(key: &[u8]) -> Result<Self, KeyError> {
        let words = key.len() / 4;
        if ![16, 24, 32].contains(&key.len()) {
            return Err(KeyError::Length);
        }
        let mut rounds = Rounds { keys: [[0; BLOCK]; 15], count: words + 6 };
        let bytes = rounds.keys.as_flattened_mut();
        bytes[..key.len()].copy_from_slice(key);
        let mut rcon = 1u8;
        for i in words..4 * (words + 7) {
            let word = |i: usize, bytes: &[u8]| u32::from_le_bytes(bytes[4 * i..][..4].try_into().expect("four bytes"));
            let mut t = word(i - 1, bytes);
            if i % words == 0 {
                t = sub_word(t).rotate_right(8) ^ u32::from(rcon);
                rcon = (rcon << 1) ^ if rcon & 0x80 != 0 { 0x1b } else { 0 };
            } else if words > 6 && i % words == 4 {
                t = sub_word(t);
            }
            t ^= word(i - words, bytes);
            bytes[4 * i..4 * i + 4].copy_from_slice(&t.to_le_bytes());
        }
        Ok(rounds)
    }

    /// The round keys of the equivalent inverse cipher (FIPS 197 section 5.3.5).
    pub(super) fn decrypt(&self) -> Self {
        let mut rounds = Rounds { keys: [[0; BLOCK]; 15], count: self.count };
        for i in 0..=self.count {
            let key = self.keys[self.count - i];
            // SAFETY: rows over AES kernels exist only where the CPU has AES-NI.
            rounds.keys[i] = if i == 0 || i == self.count { key } else { unsafe { inverse_mix_columns(key) } };
        }
        rounds
    }
}

/// The same keys, of which the compiler does not know that they are the same. In a loop it would load them once, and put those that find
/// no register on the stack, where they stay.
#[inline(always)]
pub(super) fn afresh(keys: &Rounds) -> &Rounds {
    let mut at = core::ptr::from_ref(keys);
    // SAFETY: no instruction at all.
    unsafe { core::arch::asm!("/* {0} */", inout(reg) at, options(readonly, nostack, preserves_flags)) };
    // SAFETY: it is the address of the keys.
    unsafe { &*at }
}

fn sub_word(word: u32) -> u32 {
    #[target_feature(enable = "aes")]
    fn instruction(word: u32) -> u32 {
        _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(_mm_set1_epi32(word as i32))) as u32
    }
    // SAFETY: rows over AES kernels exist only where the CPU has AES-NI.
    unsafe { instruction(word) }
}

#[target_feature(enable = "aes")]
fn inverse_mix_columns(key: [u8; BLOCK]) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    // SAFETY: both are 16 bytes.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), _mm_aesimc_si128(_mm_loadu_si128(key.as_ptr().cast()))) };
    out
}

/// The depth of the stack to which kernels leave round keys on vectors below 512 bits: 16 registers do not hold eight vectors of text and
/// the keys that compilers fetch early. Of 512 bits there are 32.
pub(super) const TRACES: usize = 4 << 10;

/// The modes on one instruction set.
///
/// # Safety
/// All functions: the CPU must have the instruction set; `src` must be readable and `dst` writable for `len` bytes, and
/// they are the same or do not overlap. `len` is a multiple of 16, except for CTR.
pub(super) trait Modes: Send + Sync + 'static {
    const MODULE: &'static str;
    unsafe fn ecb_encrypt(keys: &Rounds, src: *const u8, dst: *mut u8, len: usize);
    unsafe fn ecb_decrypt(keys: &Rounds, src: *const u8, dst: *mut u8, len: usize);
    unsafe fn cbc_encrypt(keys: &Rounds, iv: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize);
    unsafe fn cbc_decrypt(keys: &Rounds, iv: &[u8; BLOCK], src: *const u8, dst: *mut u8, len: usize);
    /// The low half of `counter` must not wrap within `len`.
    unsafe fn ctr(keys: &Rounds, counter: u128, src: *const u8, dst: *mut u8, len: usize);
    /// `tweak` is the encrypted tweak of the first block; it becomes that of the block after the last.
    unsafe fn xts_encrypt(keys: &Rounds, tweak: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize);
    unsafe fn xts_decrypt(keys: &Rounds, tweak: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize);
}

#[derive(Clone, Copy)]
enum Mode {
    Ecb,
    Cbc,
    Ctr,
    Xts,
}

struct AesKey {
    encrypt: Rounds,
    /// Round keys for decryption, for the modes that need them.
    decrypt: Option<Rounds>,
    /// Key of the tweak, for XTS only.
    tweak: Option<Rounds>,
}

/// A mode over the kernels `M`.
struct Cipher<M> {
    mode: Mode,
    kernels: PhantomData<M>,
}

impl<M: Modes> SkcipherDriver for Cipher<M> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let (key, tweak) = match self.mode {
            Mode::Xts if !key.len().is_multiple_of(2) => return Err(KeyError::Length),
            Mode::Xts => {
                let (data, tweak) = key.split_at(key.len() / 2);
                (data, Some(Rounds::encrypt(tweak)?))
            }
            _ => (key, None),
        };
        let encrypt = Rounds::encrypt(key)?;
        let decrypt = if matches!(self.mode, Mode::Ctr) { None } else { Some(encrypt.decrypt()) };
        Ok(Box::new(AesKey { encrypt, decrypt, tweak }))
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        let key = op.tfm.key::<AesKey>(slot);
        let len = op.data.len();
        let (src, dst) = op.data.into_raw();
        // First, because CTR takes any length and needs nothing of what follows.
        if matches!(self.mode, Mode::Ctr) {
            let iv = op.iv.try_into().map_err(|_| OpError::Nonce)?;
            // SAFETY: `InOutBuf` says that both are good for `len` bytes and the same or apart; the row exists because the CPU
            // has the instructions. The same holds below.
            unsafe { ctr::<M>(&key.encrypt, iv, src, dst, len) };
            return Ok(());
        }
        let is_taken = if matches!(self.mode, Mode::Xts) { len >= BLOCK } else { len.is_multiple_of(BLOCK) };
        if !is_taken {
            return Err(OpError::Length);
        }
        let inverse = || key.decrypt.as_ref().expect("prepared for every mode but CTR");
        if matches!(self.mode, Mode::Ecb) {
            match op.dir {
                // SAFETY: as above.
                Direction::Encrypt => unsafe { M::ecb_encrypt(&key.encrypt, src, dst, len) },
                // SAFETY: as above.
                Direction::Decrypt => unsafe { M::ecb_decrypt(inverse(), src, dst, len) },
            }
            return Ok(());
        }
        let iv: &mut [u8; BLOCK] = op.iv.try_into().map_err(|_| OpError::Nonce)?;
        match (self.mode, op.dir) {
            // SAFETY: as above.
            (Mode::Cbc, Direction::Encrypt) => unsafe { M::cbc_encrypt(&key.encrypt, iv, src, dst, len) },
            (Mode::Cbc, Direction::Decrypt) if len > 0 => {
                // SAFETY: as above, and there is a last block.
                let next = unsafe { src.add(len - BLOCK).cast::<[u8; BLOCK]>().read() };
                // SAFETY: as above.
                unsafe { M::cbc_decrypt(inverse(), iv, src, dst, len) };
                *iv = next;
            }
            (Mode::Xts, dir) => {
                let tweak = key.tweak.as_ref().expect("prepared for XTS");
                // SAFETY: as above, with a block at least.
                unsafe {
                    M::ecb_encrypt(tweak, iv.as_ptr(), iv.as_mut_ptr(), BLOCK);
                    match dir {
                        Direction::Encrypt => xts_encrypt::<M>(&key.encrypt, iv, src, dst, len),
                        Direction::Decrypt => xts_decrypt::<M>(inverse(), iv, src, dst, len),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// CTR with the counter over all 128 bits; `iv` becomes the counter after the last block, which may be partial.
///
/// # Safety
/// As [`Modes`].
#[inline]
unsafe fn ctr<M: Modes>(keys: &Rounds, iv: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize) {
    let counter = u128::from_be_bytes(*iv);
    let blocks = len.div_ceil(BLOCK) as u64;
    if len > 0 && (counter as u64).checked_add(blocks).is_some() {
        // SAFETY: as the caller promises.
        unsafe { M::ctr(keys, counter, src, dst, len) };
        // Without a carry into the upper half.
        *iv = (counter + u128::from(blocks)).to_be_bytes();
    } else {
        // SAFETY: as the caller promises.
        unsafe { ctr_that_wraps::<M>(keys, iv, src, dst, len) };
    }
}

/// As [`ctr`], however long the text is, and none included.
///
/// # Safety
/// As [`Modes`].
#[cold]
unsafe fn ctr_that_wraps<M: Modes>(
    keys: &Rounds,
    iv: &mut [u8; BLOCK],
    mut src: *const u8,
    mut dst: *mut u8,
    mut len: usize,
) {
    let mut counter = u128::from_be_bytes(*iv);
    while len > 0 {
        // The kernels count in 64 bits.
        let until_wrap = u128::from(u64::MAX - counter as u64) + 1;
        let blocks = (len.div_ceil(BLOCK) as u128).min(until_wrap);
        let n = len.min((blocks as usize).saturating_mul(BLOCK));
        // SAFETY: n is at most len.
        unsafe {
            M::ctr(keys, counter, src, dst, n);
            (src, dst) = (src.add(n), dst.add(n));
        }
        counter = counter.wrapping_add(blocks);
        len -= n;
    }
    *iv = counter.to_be_bytes();
}

/// XTS with ciphertext stealing (IEEE 1619-2007 section 5.3) from an encrypted tweak. As in Linux 7.3's AES-XTS,
/// `tweak` becomes that of the block after the last whole one, or, when a stolen tail is decrypted, that of the last
/// whole one.
///
/// # Safety
/// As [`Modes`], except that `len` is any length from 16.
unsafe fn xts_encrypt<M: Modes>(keys: &Rounds, tweak: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize) {
    let (partial, whole) = (len % BLOCK, len - len % BLOCK);
    // SAFETY: within len.
    unsafe {
        let mut tail = [0u8; BLOCK];
        src.add(whole).copy_to_nonoverlapping(tail.as_mut_ptr(), partial);
        M::xts_encrypt(keys, tweak, src, dst, whole);
        if partial > 0 {
            // The last whole block is encrypted twice: above, and again with the tail's bytes in it.
            let last = dst.add(whole - BLOCK);
            last.copy_to_nonoverlapping(dst.add(whole), partial);
            tail.as_ptr().copy_to_nonoverlapping(last, partial);
            let mut next = *tweak;
            M::xts_encrypt(keys, &mut next, last, last, BLOCK);
            wipe(&mut tail);
        }
    }
}

/// # Safety
/// As [`xts_encrypt`].
unsafe fn xts_decrypt<M: Modes>(keys: &Rounds, tweak: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize) {
    let partial = len % BLOCK;
    let bulk = if partial > 0 { len - partial - BLOCK } else { len };
    // SAFETY: within len: with a partial block there is a whole one before it.
    unsafe {
        let mut tail = [0u8; BLOCK];
        src.add(len - partial).copy_to_nonoverlapping(tail.as_mut_ptr(), partial);
        M::xts_decrypt(keys, tweak, src, dst, bulk);
        if partial > 0 {
            // Stealing swaps the order of the last two tweaks.
            let (mut this, mut next) = (*tweak, double(*tweak));
            let last = dst.add(bulk);
            M::xts_decrypt(keys, &mut next, src.add(bulk), last, BLOCK);
            last.copy_to_nonoverlapping(dst.add(bulk + BLOCK), partial);
            tail.as_ptr().copy_to_nonoverlapping(last, partial);
            M::xts_decrypt(keys, &mut this, last, last, BLOCK);
        }
    }
}

/// Multiplies a tweak by x (IEEE 1619-2007 section 5.2).
pub(super) fn double(tweak: [u8; BLOCK]) -> [u8; BLOCK] {
    let t = u128::from_le_bytes(tweak);
    ((t << 1) ^ ((t >> 127) * 0x87)).to_le_bytes()
}

/// The rows of all modes over the kernels `M`.
pub(super) fn rows<M: Modes>() -> Vec<Row> {
    const KEYS: Lengths = Lengths::Of(&[16, 24, 32]);
    let row = |mode: Mode, name: &str, info: AlgInfo| {
        let driver = Driver::Skcipher(Arc::new(Cipher::<M> { mode, kernels: PhantomData }));
        Row::new(info, &format!("{name}-aes-{}", M::MODULE), M::MODULE, PRIORITY, driver)
    };
    let ecb = AlgInfo::skcipher("ecb(aes)", BLOCK, KEYS, 0).mode(CipherMode::Ecb);
    let cbc = AlgInfo::skcipher("cbc(aes)", BLOCK, KEYS, BLOCK).mode(CipherMode::Cbc);
    let ctr = AlgInfo::skcipher("ctr(aes)", 1, KEYS, BLOCK).mode(CipherMode::Ctr);
    let xts = AlgInfo::skcipher("xts(aes)", BLOCK, Lengths::Of(&[32, 48, 64]), BLOCK).mode(CipherMode::Xts);
    vec![
        row(Mode::Ecb, "ecb", ecb),
        row(Mode::Cbc, "cbc", cbc),
        row(Mode::Ctr, "ctr", AlgInfo { chunk_len: BLOCK, ..ctr }),
        row(Mode::Xts, "xts", xts),
    ]
}
