//! `rfc3686(ctr(X))`: CTR for IPsec. The key ends with a nonce of 4 bytes; the counter block is nonce, IV, 1.

use super::part::{CHUNK, only_part, row, salted};
use crate::data::Data;
use crate::error::{KeyError, OpError, Status};
use crate::info::{AlgInfo, Kind};
use crate::key::PreparedKey;
use crate::registry::{Alg, Driver, Registry, Row};
use crate::skcipher::{self, FlatSkcipherOp, SkcipherDriver, SkcipherOp, SkcipherTfm};
use crate::template::Name;
use arrayvec::ArrayVec;
use std::sync::Arc;
use zeroize::Zeroize;

const NONCE_LEN: usize = 4;
const IV_LEN: usize = 8;

pub(super) fn rfc3686(registry: &Registry, name: &Name<'_>) -> Option<Row> {
    let ctr = only_part(registry, Kind::Skcipher, name, "rfc3686")?;
    if ctr.info().iv_len != 16 || ctr.info().block_len != 1 {
        return None;
    }
    let info = AlgInfo::skcipher("", 1, salted(ctr.info().key_lens, NONCE_LEN), IV_LEN);
    let info = AlgInfo { chunk_len: ctr.info().chunk_len, ..info };
    let driver = Driver::Skcipher(Arc::new(Rfc3686 { ctr: ctr.clone() }));
    Some(row("rfc3686", &[&ctr], info, driver))
}

struct Rfc3686 {
    ctr: Alg,
}

struct Rfc3686Key {
    ctr: SkcipherTfm,
    nonce: [u8; NONCE_LEN],
}

impl Drop for Rfc3686Key {
    fn drop(&mut self) {
        self.nonce.zeroize();
    }
}

impl Rfc3686Key {
    fn counter(&self, iv: &[u8]) -> Result<[u8; 16], OpError> {
        let iv: &[u8; IV_LEN] = iv.try_into().map_err(|_| OpError::Nonce)?;
        let mut counter = [0; 16];
        counter[..4].copy_from_slice(&self.nonce);
        counter[4..12].copy_from_slice(iv);
        counter[15] = 1;
        Ok(counter)
    }
}

/// The IV on return is unchanged, as in Linux.
impl SkcipherDriver for Rfc3686 {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let (key, nonce) = key.split_last_chunk::<NONCE_LEN>().ok_or(KeyError::Length)?;
        Ok(Box::new(Rfc3686Key { ctr: self.ctr.skcipher(key)?, nonce: *nonce }))
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        let key = op.tfm.key::<Rfc3686Key>(slot);
        let mut counter = key.counter(op.iv)?;
        key.ctr.one(op.dir, &mut counter, Data::Flat(op.data))
    }

    fn burst(&self, slot: usize, ops: &mut [SkcipherOp<'_>]) {
        for chunk in ops.chunks_mut(CHUNK) {
            let mut counters = [[0; 16]; CHUNK];
            let mut inner: ArrayVec<SkcipherOp<'_>, CHUNK> = ArrayVec::new();
            for (op, counter) in chunk.iter_mut().zip(&mut counters) {
                let tfm = op.tfm;
                let key = tfm.key::<Rfc3686Key>(slot);
                *counter = key.counter(op.iv).expect("the length of IVs has been checked for a burst");
                let data = op.data.reborrow();
                inner.push(SkcipherOp { tfm: &key.ctr, dir: op.dir, iv: counter, data, status: Ok(()) });
            }
            skcipher::crypt(&mut inner);
            let statuses: ArrayVec<Status, CHUNK> = inner.iter().map(|op| op.status).collect();
            drop(inner);
            chunk.iter_mut().zip(statuses).for_each(|(op, status)| op.status = status);
        }
    }
}
