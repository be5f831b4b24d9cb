//! GCM, CCM and ChaCha20-Poly1305.

use crate::batch::{Batch, Entry};
use crate::fallback::Portable;
use crate::ffi::{self, MAX_LANE_LEN, MAX_OPS, MbAlg, Op};
use crate::gcm_key::{GcmKey, NONCE_LEN};
use crate::manager::{self, Manager};
use crate::row::row;
use crate::stream::GcmStream;
use arrayvec::ArrayVec;
use sealane_crypto::aead::{AeadDriver, AeadOp, AeadStream, AeadTfm, BurstKeys, FlatAeadOp};
use sealane_crypto::data::Data;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::registry::{Alg, Driver};
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{KeyError, Kind, OpError, Row, Status};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Length of the full tag of all of them.
const TAG_LEN: usize = 16;

/// The longest associated data that the library's CCM takes.
const CCM_MAX_AAD_LEN: usize = 46;

/// The differences between the AEADs.
trait Mode: Send + Sync + 'static {
    type Key: Send + Sync + 'static;
    /// The entry of the library that runs it.
    const ENTRY: Entry;
    /// The longest text of one job.
    const MAX_LEN: usize;
    /// The longest associated data of one job.
    const MAX_AAD_LEN: usize;
    /// Length of the nonce that the caller supplies.
    const NONCE_LEN: usize;
    /// Whether the tag depends on its length, so that a short tag is not the front of the full one.
    const TAG_LEN_COUNTS: bool = false;

    /// Prepares a key in place, because a key that is moved leaves a copy behind.
    fn prepare(&self, key: &[u8]) -> Result<Box<Self::Key>, KeyError>;

    /// Key and nonce in the library's form; `None` when the portable driver has to serve this key.
    fn op(key: &Self::Key, nonce: &[u8]) -> Result<Option<Op>, OpError>;

    /// A key for messages in pieces, where the library takes them.
    fn stream(_key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        None
    }

    /// The portable transform, for operations beyond the library's limits; `None` for modes without such limits.
    fn portable(_: &Self::Key) -> Option<&AeadTfm> {
        None
    }
}

struct Aead<M>(M);

impl<M: Mode> AeadDriver for Aead<M> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(self.0.prepare(key)?)
    }

    fn one(&self, slot: usize, mut op: FlatAeadOp<'_, '_>) -> Status {
        let mut ops = [AeadOp {
            tfm: op.tfm,
            dir: op.dir,
            nonce: op.nonce,
            aad: op.aad,
            data: op.data.reborrow(),
            tag: op.tag,
            status: Ok(()),
        }];
        self.burst(slot, &mut ops);
        ops[0].status
    }

    fn stream(&self, key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        M::stream(key)
    }

    fn burst(&self, slot: usize, ops: &mut [AeadOp<'_>]) {
        let ran = manager::with(|manager| {
            let mut rest = &mut *ops;
            while !rest.is_empty() {
                let taken = run_some::<M>(slot, manager, rest);
                rest = &mut rest[taken..];
            }
        });
        if let Err(e) = ran {
            for op in ops {
                op.status = Err(e);
            }
        }
    }
}

/// Runs as many of the first `ops` as one batch takes, and returns their number.
fn run_some<M: Mode>(slot: usize, manager: &mut Manager, ops: &mut [AeadOp<'_>]) -> usize {
    let dir = ops[0].dir;
    let encrypt = dir == Direction::Encrypt;
    let mut batch = Batch::new(manager);
    let mut which: ArrayVec<u32, MAX_OPS> = ArrayVec::new();
    let mut tags: ArrayVec<[u8; TAG_LEN], MAX_OPS> = ArrayVec::new();
    let tags_ptr = tags.as_mut_ptr();
    let mut aad_apart: Vec<u8> = Vec::new();
    // Whether any tag goes to `tags` first.
    let mut apart = false;
    let mut taken = 0;
    let mut keys = BurstKeys::<M::Key>::new(slot);
    for (i, op) in ops.iter_mut().enumerate() {
        let key = keys.of(op.tfm);
        let mb = match check::<M>(key, op) {
            Ok(Some(mb)) => mb,
            Ok(None) => {
                op.status = by_portable::<M>(key, op);
                taken = i + 1;
                continue;
            }
            Err(e) => {
                op.status = Err(e);
                taken = i + 1;
                continue;
            }
        };
        if batch.is_full() || !aad_apart.is_empty() || op.dir != dir {
            break;
        }
        let aad = match batch.join(op.aad) {
            Some(aad) => aad,
            None if batch.len() > 0 => break,
            // The associated data is longer than the joining buffer, which no protocol needs. Only here is memory
            // allocated for an operation.
            None => {
                aad_apart = op.aad.concat();
                aad_apart.as_ptr()
            }
        };
        let len = op.data.len() as u64;
        let (src, dst) = op.data.reborrow().into_raw();
        let tag = if encrypt && op.tag.len() == TAG_LEN {
            op.tag.as_mut_ptr()
        } else {
            apart = true;
            // SAFETY: `tags` has MAX_OPS elements, and the batch is not full.
            unsafe {
                let tag = tags_ptr.add(batch.len()).cast::<u8>();
                tag.write_bytes(0, TAG_LEN);
                tag
            }
        };
        let tag_len = if M::TAG_LEN_COUNTS { op.tag.len() } else { TAG_LEN } as u8;
        let aad_len = op.aad.iter().map(|a| a.len()).sum::<usize>() as u64;
        which.push(u32::try_from(i).expect("fewer than 2^32 operations"));
        // SAFETY: text, associated data, nonce and key outlive this function, and `check` has looked at the lengths.
        unsafe { batch.push(Op { src, dst, len, aad, aad_len, tag, tag_len, ..mb }) };
        taken = i + 1;
    }
    for (mb, i) in batch.run(M::ENTRY, encrypt).iter().zip(&which) {
        let op = &mut ops[*i as usize];
        op.status = if mb.done == 0 {
            Err(OpError::Driver)
        } else if encrypt && op.tag.len() == TAG_LEN {
            Ok(())
        } else {
            // SAFETY: the tag's place, initialised above; the library no longer writes there.
            let tag = unsafe { &*mb.tag.cast::<[u8; TAG_LEN]>() };
            if encrypt {
                op.tag.copy_from_slice(&tag[..op.tag.len()]);
                Ok(())
            } else if equal(tag, op.tag) {
                Ok(())
            } else {
                Err(OpError::Auth)
            }
        };
        if op.status.is_err() {
            manager::wipe(op.data.get_out());
        }
    }
    if apart {
        // The correct tag is a secret if the received one was wrong.
        // SAFETY: `tags` has MAX_OPS elements.
        unsafe { ffi::slmb_wipe(tags_ptr.cast(), which.len() * TAG_LEN) };
    }
    aad_apart.zeroize();
    taken
}

/// Whether `other` is the front of `tag`, in constant time.
fn equal(tag: &[u8; TAG_LEN], other: &[u8]) -> bool {
    match other.first_chunk::<TAG_LEN>() {
        Some(other) => {
            let diff = u128::from_ne_bytes(*tag) ^ u128::from_ne_bytes(*other);
            (diff as u64 | (diff >> 64) as u64).ct_eq(&0).into()
        }
        None => tag[..other.len()].ct_eq(other).into(),
    }
}

/// The operation in the library's form; `None` when the portable driver has to serve it.
fn check<M: Mode>(key: &M::Key, op: &AeadOp<'_>) -> Result<Option<Op>, OpError> {
    if op.nonce.len() != M::NONCE_LEN {
        return Err(OpError::Nonce);
    }
    // CCM has even lengths only (RFC 3610 section 2.1); the library does not check.
    let ccm_refuses = op.tag.len() < 4 || !op.tag.len().is_multiple_of(2);
    if op.tag.is_empty() || op.tag.len() > TAG_LEN || M::TAG_LEN_COUNTS && ccm_refuses {
        return Err(OpError::TagLen);
    }
    let aad_len: usize = op.aad.iter().map(|a| a.len()).sum();
    if op.data.len() > M::MAX_LEN || aad_len > M::MAX_AAD_LEN {
        return Ok(None);
    }
    M::op(key, op.nonce)
}

fn by_portable<M: Mode>(key: &M::Key, op: &mut AeadOp<'_>) -> Status {
    match M::portable(key) {
        Some(tfm) => tfm.one(op.dir, op.nonce, op.aad, Data::Flat(op.data.reborrow()), op.tag),
        None => Err(OpError::Length),
    }
}

struct Gcm;

impl Mode for Gcm {
    type Key = GcmKey;
    const ENTRY: Entry = Entry::Gcm;
    // NIST SP 800-38D: 2^39 - 256 bits.
    const MAX_LEN: usize = (1 << 36) - 32;
    const MAX_AAD_LEN: usize = usize::MAX >> 3;
    const NONCE_LEN: usize = NONCE_LEN;

    fn prepare(&self, key: &[u8]) -> Result<Box<GcmKey>, KeyError> {
        let mut prepared = Box::new(GcmKey::EMPTY);
        prepared.set(key)?;
        Ok(prepared)
    }

    fn op(key: &GcmKey, nonce: &[u8]) -> Result<Option<Op>, OpError> {
        Ok(Some(Op { iv: nonce.as_ptr(), ..key.op() }))
    }

    fn stream(key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        Some(GcmStream::new(key).map(|stream| stream as Box<dyn AeadStream>))
    }
}

struct ChachaPoly;

#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
struct ChachaKey([u8; 32]);

impl Mode for ChachaPoly {
    type Key = ChachaKey;
    const ENTRY: Entry = Entry::Jobs(MbAlg::Chacha20Poly1305);
    // RFC 8439 section 2.8: the counter has 32 bits and starts at 1.
    const MAX_LEN: usize = (1 << 38) - 64;
    const MAX_AAD_LEN: usize = usize::MAX >> 3;
    const NONCE_LEN: usize = NONCE_LEN;

    fn prepare(&self, key: &[u8]) -> Result<Box<ChachaKey>, KeyError> {
        let mut prepared = Box::new(ChachaKey([0; 32]));
        if key.len() != prepared.0.len() {
            return Err(KeyError::Length);
        }
        prepared.0.copy_from_slice(key);
        Ok(prepared)
    }

    fn op(key: &ChachaKey, nonce: &[u8]) -> Result<Option<Op>, OpError> {
        let k = key.0.as_ptr();
        Ok(Some(Op {
            key: [k, k, core::ptr::null()],
            key_len: 32,
            iv: nonce.as_ptr(),
            iv_len: NONCE_LEN as u8,
            ..Op::EMPTY
        }))
    }
}

struct Ccm {
    portable: Alg,
}

struct CcmKey {
    /// A key of 24 bytes is left to the portable driver.
    aes: AesKey,
    portable: AeadTfm,
}

impl Mode for Ccm {
    type Key = CcmKey;
    const ENTRY: Entry = Entry::Jobs(MbAlg::AesCcm);
    const MAX_LEN: usize = MAX_LANE_LEN;
    const MAX_AAD_LEN: usize = CCM_MAX_AAD_LEN;
    // The kernel's IV for CCM is the first counter block: L - 1, the nonce, room for the counter.
    const NONCE_LEN: usize = 16;
    const TAG_LEN_COUNTS: bool = true;

    fn prepare(&self, key: &[u8]) -> Result<Box<CcmKey>, KeyError> {
        let mut prepared = Box::new(CcmKey { aes: AesKey::EMPTY, portable: self.portable.aead(key)? });
        prepared.aes.set(key)?;
        Ok(prepared)
    }

    fn op(key: &CcmKey, nonce: &[u8]) -> Result<Option<Op>, OpError> {
        let l_minus_1 = nonce[0];
        if !(1..=7).contains(&l_minus_1) {
            return Err(OpError::Nonce);
        }
        let schedule = key.aes.enc.as_ptr();
        Ok((key.aes.key_len != 24).then(|| Op {
            key: [schedule, schedule, core::ptr::null()],
            key_len: key.aes.key_len,
            iv: nonce[1..].as_ptr(),
            iv_len: 14 - l_minus_1,
            ..Op::EMPTY
        }))
    }

    fn portable(key: &CcmKey) -> Option<&AeadTfm> {
        Some(&key.portable)
    }
}

/// Both schedules of an AES key.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
pub(crate) struct AesKey {
    pub(crate) enc: [u8; 240],
    pub(crate) dec: [u8; 240],
    pub(crate) key_len: u32,
}

impl AesKey {
    pub(crate) const EMPTY: AesKey = AesKey { enc: [0; 240], dec: [0; 240], key_len: 0 };

    /// Prepares `key`: 16, 24 or 32 bytes.
    pub(crate) fn set(&mut self, key: &[u8]) -> Result<(), KeyError> {
        if !matches!(key.len(), 16 | 24 | 32) {
            return Err(KeyError::Length);
        }
        self.key_len = key.len() as u32;
        manager::with(|manager| {
            let (enc, dec) = (self.enc.as_mut_ptr(), self.dec.as_mut_ptr());
            // SAFETY: the key has a length that the function takes; both schedules have room for 15 round keys and
            // are aligned to 16, because 240 is a multiple of 16.
            unsafe { ffi::slmb_aes_expand(manager.ptr(), key.as_ptr(), key.len(), enc, dec) }
        })
        .map_err(|_| KeyError::Driver)
    }
}

/// The rows of these AEADs.
pub(crate) fn rows(portable: &Portable) -> Vec<Row> {
    manager::find_gcm_calls();
    let gcm =
        portable.alg(Kind::Aead, "gcm(aes)").map(|reference| row(reference.info(), Driver::Aead(Arc::new(Aead(Gcm)))));
    let chacha = portable
        .alg(Kind::Aead, "rfc7539(chacha20,poly1305)")
        .map(|reference| row(reference.info(), Driver::Aead(Arc::new(Aead(ChachaPoly)))));
    let ccm = portable
        .alg(Kind::Aead, "ccm(aes)")
        .map(|reference| row(reference.info(), Driver::Aead(Arc::new(Aead(Ccm { portable: reference.clone() })))));
    [gcm, chacha, ccm].into_iter().flatten().collect()
}
