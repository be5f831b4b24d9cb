//! The drivers of AES-GCM and GMAC over the kernels of an instruction set.

use super::aes::BLOCK;
use super::gcm::{Gcm, GcmKey, MAX_LEN, NONCE_LEN};
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
use sealane_crypto::{AlgInfo, Lengths};
use std::sync::Arc;
use zeroize::Zeroizing;

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
    let text = data.into_raw();
    gather(associated, |associated| {
        // SAFETY: `InOutBuf` says that both are good for `len` bytes and the same or apart, and `len` was checked; the row exists
        // because the CPU has the instructions.
        unsafe { K::begin(key, dir, nonce, associated, text, len, begun) };
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
            let none = InOutBuf::from(&mut [][..]).into_raw();
            let (mut begun, mut tag) = (MaybeUninit::uninit(), Zeroizing::new([0; BLOCK]));
            // SAFETY: no text at all; the row exists because the CPU has the instructions, here and below.
            gather(op.data, |data| unsafe { K::begin(key, Direction::Encrypt, nonce, data, none, 0, &mut begun) });
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
