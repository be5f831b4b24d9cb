//! HMAC (RFC 2104) over any hash, with the two padded key blocks absorbed once.

use super::driver::{self, Mac};
use crate::hash::{Hash, each_hash};
use digest::block_api::{Block, BlockSizeUser};
use digest::typenum::{U20, U32, U48, U64};
use digest::{Digest, Output};
use sealane_crypto::error::KeyError;
use sealane_crypto::mac::MAX_TAG_LEN;
use sealane_crypto::registry::Row;
use sealane_crypto::{AlgInfo, Lengths};
use std::marker::PhantomData;
use zeroize::Zeroize;

struct Hmac<D>(PhantomData<D>);

/// The hash after `key ^ ipad` and after `key ^ opad`. The hashes wipe themselves when dropped.
pub(crate) struct Key<D> {
    inner: D,
    outer: D,
}

impl<D: Hash> Key<D> {
    /// Prepares a key of any length, also an empty one: RFC 2104 sets no limit, and Linux accepts empty keys.
    pub(crate) fn new(key: &[u8]) -> Self {
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

    fn end(&self, running: D) -> Output<D> {
        let mut digest = Output::<D>::default();
        Digest::finalize_into(running, &mut digest);
        let mut outer = self.outer.clone();
        Digest::update(&mut outer, &digest);
        Digest::finalize_into(outer, &mut digest);
        digest
    }

    /// The tag of a message in pieces.
    pub(crate) fn tag<'a>(&self, pieces: impl IntoIterator<Item = &'a &'a [u8]>) -> Output<D> {
        let mut running = self.inner.clone();
        for piece in pieces {
            Digest::update(&mut running, piece);
        }
        self.end(running)
    }
}

impl<D: Hash> Mac for Hmac<D> {
    type Key = Key<D>;
    type Running = D;

    fn prepare(key: &[u8]) -> Result<Key<D>, KeyError> {
        Ok(Key::new(key))
    }

    fn begin(key: &Key<D>) -> D {
        key.inner.clone()
    }

    fn update(_: &Key<D>, running: &mut D, data: &[u8]) {
        Digest::update(running, data);
    }

    fn end(key: &Key<D>, running: D, tag: &mut [u8; MAX_TAG_LEN]) {
        let digest = key.end(running);
        tag[..digest.len()].copy_from_slice(&digest);
    }
}

fn row<D: Hash>(hash: &str, legacy: bool) -> Row {
    let (block_len, digest_len) = (<D as BlockSizeUser>::block_size(), <D as Digest>::output_size());
    let info = AlgInfo::mac(&format!("hmac({hash})"), block_len, digest_len, Lengths::Range(0, usize::MAX));
    driver::row::<Hmac<D>>(AlgInfo { legacy, ..info })
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = each_hash!(row);
    // Linux also allows HMAC over hashes whose key is optional, such as BLAKE2b.
    rows.extend([
        row::<blake2::Blake2b<U20>>("blake2b-160", false),
        row::<blake2::Blake2b<U32>>("blake2b-256", false),
        row::<blake2::Blake2b<U48>>("blake2b-384", false),
        row::<blake2::Blake2b<U64>>("blake2b-512", false),
    ]);
    rows
}
