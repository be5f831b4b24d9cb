//! HMAC (RFC 2104) over any hash, with the two padded key blocks absorbed once.

use crate::drivers::portable::hash::Hash;
use crate::drivers::portable::{MODULE, PRIORITY};
use crate::error::{KeyError, OpError};
use crate::hash::HashState;
use crate::key::{PreparedKey, as_prepared};
use crate::mac::{MacDriver, MacOp};
use crate::registry::{AlgInfo, Driver, Lens, Row};
use digest::block_api::{Block, BlockSizeUser};
use digest::{Digest, Output};
use std::marker::PhantomData;
use std::sync::Arc;
use zeroize::Zeroize;

struct Hmac<D>(PhantomData<fn() -> D>);

/// The hash after `key ^ ipad` and after `key ^ opad`. The hashes wipe themselves when dropped.
#[derive(Clone)]
struct Key<D> {
    inner: D,
    outer: D,
}

impl<D: Hash> Key<D> {
    fn new(key: &[u8]) -> Self {
        let mut block = Block::<D>::default();
        if key.len() > block.len() {
            let mut digest = D::digest(key);
            block[..digest.len()].copy_from_slice(&digest);
            digest.zeroize();
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let mut absorb = |pad: u8| {
            block.iter_mut().for_each(|b| *b ^= pad);
            let hash = D::new_with_prefix(&block);
            block.iter_mut().for_each(|b| *b ^= pad);
            hash
        };
        let key = Key { inner: absorb(0x36), outer: absorb(0x5c) };
        block.zeroize();
        key
    }

    fn finish(&self, inner: D) -> Output<D> {
        let mut digest = Output::<D>::default();
        Digest::finalize_into(inner, &mut digest);
        let mut outer = self.outer.clone();
        Digest::update(&mut outer, &digest);
        Digest::finalize_into(outer, &mut digest);
        digest
    }
}

struct State<D> {
    key: Key<D>,
    running: D,
}

impl<D: Hash> HashState for State<D> {
    fn update(&mut self, data: &[u8]) {
        Digest::update(&mut self.running, data);
    }

    fn finish(&mut self, out: &mut [u8]) {
        let running = std::mem::replace(&mut self.running, self.key.inner.clone());
        let tag = self.key.finish(running);
        out.copy_from_slice(&tag[..out.len()]);
    }

    fn reset(&mut self) {
        self.running = self.key.inner.clone();
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(State { key: self.key.clone(), running: self.running.clone() })
    }
}

impl<D: Hash> MacDriver for Hmac<D> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(Key::<D>::new(key)))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        let key: &Key<D> = as_prepared(key);
        Box::new(State { key: key.clone(), running: key.inner.clone() })
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        for op in ops {
            let key: &Key<D> = op.tfm.key(slot);
            let mut running = key.inner.clone();
            for piece in op.data {
                Digest::update(&mut running, piece);
            }
            let tag = key.finish(running);
            op.status = match tag.get(..op.tag.len()) {
                Some(tag) => {
                    op.tag.copy_from_slice(tag);
                    Ok(())
                }
                None => Err(OpError::TagLen),
            };
        }
    }
}

fn row<D: Hash>(hash: &str) -> Row {
    let (block_len, digest_len) = (<D as BlockSizeUser>::block_size(), <D as Digest>::output_size());
    let info = AlgInfo::mac(&format!("hmac({hash})"), block_len, digest_len, Lens::Range(0, usize::MAX));
    let driver = format!("hmac-{hash}-{MODULE}");
    Row::new(info, &driver, MODULE, PRIORITY, Driver::Mac(Arc::new(Hmac::<D>(PhantomData))))
}

pub(super) fn rows() -> Vec<Row> {
    vec![row::<sha2::Sha256>("sha256")]
}
