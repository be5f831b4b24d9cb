//! AES-GCM and GMAC over the kernels of an instruction set.

use super::aes::{BLOCK, Rounds};
use super::gcm_stream::GcmStream;
use super::priority::PRIORITY;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use inout::InOutBuf;
use sealane_crypto::aead::{AeadDriver, AeadOp, AeadStream, BurstKeys, FlatAeadOp};
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::gather::gather;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{NonceMacDriver, NonceMacOp, same};
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::skcipher::Direction;
use sealane_crypto::wipe::wipe;
use sealane_crypto::{AlgInfo, Lengths};
use std::sync::Arc;
use zeroize::Zeroizing;

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
/// All functions: the CPU must have the instruction set. `src` must be readable and `dst` writable for `len` bytes, [`MAX_LEN`] at
/// most (both pointers of `text` likewise), and they are the same or do not overlap. Nobody else writes to either until [`Gcm::end`].
pub(super) trait Gcm: Send + Sync + 'static {
    const MODULE: &'static str;
    /// A text between its begin and its end.
    type Begun;
    unsafe fn powers(rounds: &Rounds, powers: &mut Powers);
    /// Encrypts. `begun` is written, and the ciphertext has to stay in `dst` until [`Gcm::end`].
    unsafe fn seal(
        key: &GcmKey,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        src: *const u8,
        dst: *mut u8,
        len: usize,
        begun: &mut MaybeUninit<Self::Begun>,
    );
    /// Decrypts. `begun` is written.
    unsafe fn open(
        key: &GcmKey,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        src: *const u8,
        dst: *mut u8,
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

fn prepare<K: Gcm>(key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
    Ok(Box::new(GcmKey::new::<K>(key)?))
}

/// GCM over the kernels `K`.
struct Aead<K>(PhantomData<K>);

/// Encrypts or decrypts a text; `begun` is written if that is done.
fn begin<K: Gcm>(
    key: &GcmKey,
    dir: Direction,
    (nonce, associated): (&[u8], &[&[u8]]),
    data: InOutBuf<'_, '_, u8>,
    begun: &mut MaybeUninit<K::Begun>,
) -> Status {
    let nonce = nonce.try_into().map_err(|_| OpError::Nonce)?;
    let len = data.len();
    if len as u64 > MAX_LEN {
        return Err(OpError::Length);
    }
    let (src, dst) = data.into_raw();
    gather(associated, |associated| {
        let crypt = match dir {
            Direction::Encrypt => K::seal,
            Direction::Decrypt => K::open,
        };
        // SAFETY: `InOutBuf` says that both are good for `len` bytes and the same or apart, and `len` was checked; the row exists
        // because the CPU has the instructions.
        unsafe { crypt(key, nonce, associated, src, dst, len, begun) };
    });
    Ok(())
}

/// Writes the tag of a text, or compares it.
///
/// # Safety
/// [`begin`] was done with this key and direction, and `data` is as it has left it.
unsafe fn end<K: Gcm>(
    key: &GcmKey,
    dir: Direction,
    data: &mut InOutBuf<'_, '_, u8>,
    tag: &mut [u8],
    begun: &MaybeUninit<K::Begun>,
) -> Status {
    // SAFETY: it was written, and the ciphertext is there, as the caller says; the row exists because the CPU has the instructions.
    let end = |tag: &mut [u8; BLOCK]| unsafe { K::end(key, begun.assume_init_ref(), tag) };
    if dir == Direction::Encrypt
        && let Ok(tag) = (&mut *tag).try_into()
    {
        end(tag);
        return Ok(());
    }
    // A secret, if another one came.
    let mut whole = Zeroizing::new([0; BLOCK]);
    end(&mut whole);
    let whole = &whole[..tag.len()];
    match dir {
        Direction::Encrypt => tag.copy_from_slice(whole),
        Direction::Decrypt if same(whole, tag) => {}
        Direction::Decrypt => {
            data.get_out().fill(0);
            return Err(OpError::Auth);
        }
    }
    Ok(())
}

impl<K: Gcm> AeadDriver for Aead<K> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        prepare::<K>(key)
    }

    fn one(&self, slot: usize, mut op: FlatAeadOp<'_, '_>) -> Status {
        let (key, mut begun) = (op.tfm.key(slot), MaybeUninit::uninit());
        begin::<K>(key, op.dir, (op.nonce, op.aad), op.data.reborrow(), &mut begun)?;
        // SAFETY: the same key and direction, and nobody has changed the data.
        unsafe { end::<K>(key, op.dir, &mut op.data, op.tag, &begun) }
    }

    fn stream(&self, key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        Some(GcmStream::<K>::new(key).map(|stream| -> Box<dyn AeadStream> { Box::new(stream) }))
    }

    fn burst(&self, slot: usize, ops: &mut [AeadOp<'_>]) {
        let mut keys = BurstKeys::new(slot);
        let mut begun = [MaybeUninit::uninit(), MaybeUninit::uninit()];
        // Each text ends after the next one has begun.
        let mut before: Option<(&mut AeadOp<'_>, &GcmKey)> = None;
        let count = ops.len();
        for (i, op) in ops.iter_mut().enumerate() {
            let key = keys.of(op.tfm);
            let [this, other] = &mut begun;
            let (this, other) = if i % 2 == 0 { (this, other) } else { (other, this) };
            op.status = begin::<K>(key, op.dir, (op.nonce, op.aad), op.data.reborrow(), this);
            let next = op.status.is_ok().then_some((op, key));
            if let Some((op, key)) = core::mem::replace(&mut before, next) {
                // SAFETY: the one before has begun with the other place, by this key; its data are its own.
                op.status = unsafe { end::<K>(key, op.dir, &mut op.data, op.tag, other) };
            }
        }
        if let Some((op, key)) = before {
            let last = &begun[(count - 1) % 2];
            // SAFETY: as above.
            op.status = unsafe { end::<K>(key, op.dir, &mut op.data, op.tag, last) };
        }
    }
}

/// GMAC: GCM without text.
struct Gmac<K>(PhantomData<K>);

impl<K: Gcm> NonceMacDriver for Gmac<K> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        prepare::<K>(key)
    }

    fn burst(&self, slot: usize, ops: &mut [NonceMacOp<'_>]) {
        for op in ops {
            let Ok(nonce) = op.nonce.try_into() else {
                op.status = Err(OpError::Nonce);
                continue;
            };
            let key = op.tfm.key::<GcmKey>(slot);
            let none = core::ptr::NonNull::dangling().as_ptr();
            let (mut begun, mut tag) = (MaybeUninit::uninit(), Zeroizing::new([0; BLOCK]));
            // SAFETY: no text at all; the row exists because the CPU has the instructions, here and below.
            gather(op.data, |data| unsafe { K::seal(key, nonce, data, none, none, 0, &mut begun) });
            // SAFETY: it has begun by this key.
            unsafe { K::end(key, begun.assume_init_ref(), &mut tag) };
            op.tag.copy_from_slice(&tag[..op.tag.len()]);
            op.status = Ok(());
        }
    }
}

/// The rows of both over the kernels `K`.
pub(super) fn rows<K: Gcm>() -> Vec<Row> {
    const KEYS: Lengths = Lengths::Of(&[16, 24, 32]);
    let tags = Lengths::Of(&[4, 8, 12, 13, 14, 15, 16]);
    let gcm = AlgInfo::aead("gcm(aes)", 1, KEYS, NONCE_LEN, tags);
    let gmac = AlgInfo::nonce_mac("gmac(aes)", BLOCK, KEYS, NONCE_LEN);
    let row = |info, name: &str, driver| Row::new(info, &format!("{name}-{}", K::MODULE), K::MODULE, PRIORITY, driver);
    vec![
        row(gcm, "gcm-aes", Driver::Aead(Arc::new(Aead::<K>(PhantomData)))),
        row(gmac, "gmac-aes", Driver::NonceMac(Arc::new(Gmac::<K>(PhantomData)))),
    ]
}
