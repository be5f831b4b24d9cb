//! CBC, CTR and ECB. CBC encryption gains most: a single text is one chain, many texts fill the lanes.

use crate::aead::AesKey;
use crate::batch::{Batch, Entry};
use crate::fallback::Portable;
use crate::ffi::{self, MAX_LANE_LEN, MAX_OPS, MbAlg, Op};
use crate::manager::{self, Manager};
use crate::row::row;
use arrayvec::ArrayVec;
use inout::InOutBuf;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::registry::{Alg, Driver};
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver, SkcipherOp};
use sealane_crypto::{KeyError, Kind, OpError, Row, Status};
use std::sync::Arc;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The longest block here, in bytes.
const MAX_BLOCK_LEN: usize = 16;

/// The longest text of one job, the limit of a lane in whole blocks. Longer texts are divided.
const MAX_JOB_LEN: usize = MAX_LANE_LEN / MAX_BLOCK_LEN * MAX_BLOCK_LEN;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Chaining {
    Cbc,
    Ctr,
    Ecb,
}

/// Prepares a key in place, because a key that is moved leaves a copy behind.
type MakeKey<K> = fn(&Cipher<K>, &[u8]) -> Result<Box<K>, KeyError>;

/// One mode of one block cipher.
struct Cipher<K> {
    alg: MbAlg,
    chaining: Chaining,
    block_len: usize,
    make_key: MakeKey<K>,
    portable: Alg,
}

/// A key in the library's form.
trait LibraryKey: Send + Sync + 'static {
    /// An operation under this key.
    fn op(&self) -> Op;
}

impl LibraryKey for AesKey {
    fn op(&self) -> Op {
        Op { key: [self.enc.as_ptr(), self.dec.as_ptr(), core::ptr::null()], key_len: self.key_len, ..Op::EMPTY }
    }
}

/// One schedule for DES, three for triple DES.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
struct DesKey<const N: usize>([[u64; 16]; N]);

impl<const N: usize> DesKey<N> {
    fn new(key: &[u8]) -> Result<Box<Self>, KeyError> {
        if key.len() != 8 * N {
            return Err(KeyError::Length);
        }
        let mut prepared = Box::new(DesKey([[0; 16]; N]));
        manager::with(|manager| {
            for (schedule, part) in prepared.0.iter_mut().zip(key.chunks_exact(8)) {
                // SAFETY: `part` has 8 bytes and a schedule 128.
                unsafe { ffi::slmb_des_expand(manager.ptr(), part.as_ptr(), schedule.as_mut_ptr()) };
            }
        })
        .map_err(|_| KeyError::Driver)?;
        Ok(prepared)
    }
}

impl<const N: usize> LibraryKey for DesKey<N> {
    fn op(&self) -> Op {
        let schedule = |i: usize| self.0.get(i).map_or(core::ptr::null(), |s| s.as_ptr().cast());
        Op { key: [schedule(0), schedule(1), schedule(2)], key_len: 8 * N as u32, ..Op::EMPTY }
    }
}

impl<K: LibraryKey> SkcipherDriver for Cipher<K> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok((self.make_key)(self, key)?)
    }

    fn one(&self, slot: usize, mut op: FlatSkcipherOp<'_, '_>) -> Status {
        let mut ops = [SkcipherOp { tfm: op.tfm, dir: op.dir, iv: op.iv, data: op.data.reborrow(), status: Ok(()) }];
        self.burst(slot, &mut ops);
        ops[0].status
    }

    fn burst(&self, slot: usize, ops: &mut [SkcipherOp<'_>]) {
        let ran = manager::with(|manager| {
            let mut rest = &mut *ops;
            while !rest.is_empty() {
                let taken = self.run_some(slot, manager, rest);
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

impl<K: LibraryKey> Cipher<K> {
    fn iv_len(&self) -> usize {
        if self.chaining == Chaining::Ecb { 0 } else { self.block_len }
    }

    /// The number of bytes of a text that one job may take.
    fn piece_len(&self, iv: &[u8], len: usize) -> usize {
        let mut piece = len.min(MAX_JOB_LEN);
        if self.chaining == Chaining::Ctr {
            // The library counts in the last 32 bits of the counter block, the kernel in all 128, so a job ends where
            // the 32 bits wrap.
            let low = u32::from_be_bytes(iv[12..16].try_into().expect("the counter block has 16 bytes"));
            let to_wrap = ((1u64 << 32) - u64::from(low)) * MAX_BLOCK_LEN as u64;
            piece = piece.min(usize::try_from(to_wrap).unwrap_or(usize::MAX));
        }
        piece
    }

    /// Runs as many of the first `ops` as one batch takes, and returns their number.
    fn run_some(&self, slot: usize, manager: &mut Manager, ops: &mut [SkcipherOp<'_>]) -> usize {
        let dir = ops[0].dir;
        let mut batch = Batch::new(manager);
        let mut which: ArrayVec<(u32, NextIv), MAX_OPS> = ArrayVec::new();
        let mut long = None;
        let mut taken = 0;
        for (i, op) in ops.iter_mut().enumerate() {
            let text = &mut op.data;
            if let Some(status) = self.settled(op.iv, text.len()) {
                op.status = status;
                taken = i + 1;
                continue;
            }
            if batch.is_full() || op.dir != dir {
                break;
            }
            if self.piece_len(op.iv, text.len()) < text.len() {
                long = Some(i);
                taken = i + 1;
                break;
            }
            let key = op.tfm.key::<K>(slot);
            let next = NextIv::before(self, dir, text);
            // SAFETY: the batch runs before this function returns, and text, IV and key are borrowed until then.
            unsafe { batch.push(self.op(key, op.iv, text.reborrow())) };
            which.push((u32::try_from(i).expect("fewer than 2^32 operations"), next));
            taken = i + 1;
        }
        for (mb, (i, next)) in batch.run(Entry::Jobs(self.alg), dir == Direction::Encrypt).iter().zip(&which) {
            let op = &mut ops[*i as usize];
            op.status = if mb.done == 1 { Ok(()) } else { Err(OpError::Driver) };
            if op.status.is_ok() {
                next.after(self, op.iv, op.data.get_out());
            }
        }
        if let Some(i) = long {
            let op = &mut ops[i];
            op.status = self.run_long(manager, op.tfm.key::<K>(slot), dir, op.iv, op.data.reborrow());
        }
        taken
    }

    /// The status of an operation that is malformed or empty.
    fn settled(&self, iv: &[u8], len: usize) -> Option<Status> {
        if iv.len() != self.iv_len() {
            Some(Err(OpError::Nonce))
        } else if self.chaining != Chaining::Ctr && !len.is_multiple_of(self.block_len) {
            Some(Err(OpError::Length))
        } else {
            (len == 0).then_some(Ok(()))
        }
    }

    fn op(&self, key: &K, iv: &[u8], text: InOutBuf<'_, '_, u8>) -> Op {
        let len = text.len() as u64;
        let (src, dst) = text.into_raw();
        Op { src, dst, len, iv: iv.as_ptr(), iv_len: iv.len() as u8, ..key.op() }
    }

    /// Runs one text in several pieces, each with the IV on return from the one before.
    fn run_long(
        &self,
        manager: &mut Manager,
        key: &K,
        dir: Direction,
        iv: &mut [u8],
        mut text: InOutBuf<'_, '_, u8>,
    ) -> Status {
        while !text.is_empty() {
            let (mut piece, rest) = {
                let n = self.piece_len(iv, text.len());
                text.split_at(n)
            };
            let next = NextIv::before(self, dir, &piece);
            let mut batch = Batch::new(manager);
            // SAFETY: the batch runs at once; piece, IV and key are borrowed.
            unsafe { batch.push(self.op(key, iv, piece.reborrow())) };
            if batch.run(Entry::Jobs(self.alg), dir == Direction::Encrypt)[0].done == 0 {
                return Err(OpError::Driver);
            }
            next.after(self, iv, piece.get_out());
            text = rest;
        }
        Ok(())
    }
}

/// The IV on return, as far as it must be determined before the text is overwritten in place.
#[derive(Clone, Copy)]
enum NextIv {
    /// Unchanged.
    Same,
    /// The last block of the input.
    Known([u8; MAX_BLOCK_LEN]),
    /// The last block of the output.
    LastOut,
    /// The counter, advanced by this many blocks.
    Counter(u128),
}

impl NextIv {
    /// Determines it for a text that is not empty.
    fn before<K: LibraryKey>(cipher: &Cipher<K>, dir: Direction, text: &InOutBuf<'_, '_, u8>) -> Self {
        match (cipher.chaining, dir) {
            (Chaining::Ecb, _) => NextIv::Same,
            (Chaining::Ctr, _) => NextIv::Counter(text.len().div_ceil(MAX_BLOCK_LEN) as u128),
            (Chaining::Cbc, Direction::Encrypt) => NextIv::LastOut,
            (Chaining::Cbc, Direction::Decrypt) => {
                let input = text.get_in();
                let mut last = [0; MAX_BLOCK_LEN];
                last[..cipher.block_len].copy_from_slice(&input[input.len() - cipher.block_len..]);
                NextIv::Known(last)
            }
        }
    }

    fn after<K: LibraryKey>(self, cipher: &Cipher<K>, iv: &mut [u8], output: &[u8]) {
        match self {
            NextIv::Same => {}
            NextIv::Known(block) => iv.copy_from_slice(&block[..cipher.block_len]),
            NextIv::LastOut => iv.copy_from_slice(&output[output.len() - cipher.block_len..]),
            NextIv::Counter(blocks) => {
                let now = u128::from_be_bytes((&*iv).try_into().expect("the counter block has 16 bytes"));
                iv.copy_from_slice(&now.wrapping_add(blocks).to_be_bytes());
            }
        }
    }
}

fn cipher<K: LibraryKey>(
    portable: &Portable,
    name: &str,
    alg: MbAlg,
    chaining: Chaining,
    block_len: usize,
    make_key: MakeKey<K>,
) -> Option<Row> {
    let reference = portable.alg(Kind::Skcipher, name)?;
    let driver = Cipher { alg, chaining, block_len, make_key, portable: reference.clone() };
    Some(row(reference.info(), Driver::Skcipher(Arc::new(driver))))
}

/// Prepares a DES key, if the portable driver accepts it.
fn des_key<const N: usize>(cipher: &Cipher<DesKey<N>>, key: &[u8]) -> Result<Box<DesKey<N>>, KeyError> {
    cipher.portable.skcipher(key)?;
    DesKey::new(key)
}

/// Whether the library's DES can be used. With AVX-512, version 2.0.0 (that of Debian 13) writes results of a burst to
/// each other's places: <https://github.com/intel/intel-ipsec-mb/issues/169>.
fn des() -> Option<()> {
    (manager::version() != 0x02_00_00).then_some(())
}

/// The rows of these modes: CTR, CBC and ECB of AES, and CBC of DES.
pub(crate) fn rows(portable: &Portable) -> Vec<Row> {
    let aes = |_: &Cipher<AesKey>, key: &[u8]| {
        let mut prepared = Box::new(AesKey::EMPTY);
        prepared.set(key)?;
        Ok(prepared)
    };
    [
        cipher(portable, "ctr(aes)", MbAlg::AesCtr, Chaining::Ctr, 16, aes),
        cipher(portable, "cbc(aes)", MbAlg::AesCbc, Chaining::Cbc, 16, aes),
        cipher(portable, "ecb(aes)", MbAlg::AesEcb, Chaining::Ecb, 16, aes),
        des().and_then(|()| cipher::<DesKey<1>>(portable, "cbc(des)", MbAlg::DesCbc, Chaining::Cbc, 8, des_key)),
        des().and_then(|()| cipher::<DesKey<3>>(portable, "cbc(des3_ede)", MbAlg::Des3Cbc, Chaining::Cbc, 8, des_key)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
