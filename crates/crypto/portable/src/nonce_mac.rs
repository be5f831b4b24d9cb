//! MACs that need a nonce: GMAC (SP 800-38D) and Poly1305 (RFC 8439).

use super::block::{Aes, Cipher, Family, Visit};
use super::row::{MODULE, PRIORITY};
use cipher::consts::U16;
use ghash::GHash;
use poly1305::Poly1305;
use poly1305::universal_hash::{KeyInit, UniversalHash};
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{NonceMacDriver, NonceMacOp};
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::{AlgInfo, Lengths};
use std::sync::Arc;

type Block = cipher::Array<u8, U16>;

/// Encrypts one block in place.
struct EncryptNonceBlock<'a>(&'a mut Block);

impl Visit<U16> for EncryptNonceBlock<'_> {
    type Out = ();

    fn visit<C: Cipher<U16>>(self, cipher: &C) {
        cipher.encrypt_block(self.0);
    }
}

/// Feeds `pieces` to `hash` in whole blocks, and returns the remainder: a block with fewer than 16 bytes at its front.
fn absorb(hash: &mut impl UniversalHash<BlockSize = U16>, pieces: &[&[u8]]) -> (Block, usize) {
    let (mut block, mut pos) = (Block::default(), 0);
    for piece in pieces {
        let mut rest = *piece;
        if pos != 0 {
            let n = rest.len().min(block.len() - pos);
            let (now, later) = rest.split_at(n);
            block[pos..pos + n].copy_from_slice(now);
            pos += n;
            rest = later;
            if pos < block.len() {
                continue;
            }
            hash.update(core::slice::from_ref(&block));
        }
        let (blocks, tail) = Block::slice_as_chunks(rest);
        hash.update(blocks);
        block[..tail.len()].copy_from_slice(tail);
        pos = tail.len();
    }
    (block, pos)
}

fn deliver(full: &[u8], tag: &mut [u8]) -> Status {
    tag.copy_from_slice(full.get(..tag.len()).ok_or(OpError::TagLen)?);
    Ok(())
}

/// `gmac(aes)`: GCM of an empty text. Nonces are 12 bytes.
struct Gmac;

struct GmacKey {
    aes: <Aes as Family>::Key,
    ghash: GHash,
}

impl NonceMacDriver for Gmac {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let aes = Aes::key(key)?;
        let mut h = Block::default();
        Aes::with(&aes, EncryptNonceBlock(&mut h));
        let ghash = GHash::new(&h);
        zeroize::Zeroize::zeroize(&mut h[..]);
        Ok(Box::new(GmacKey { aes, ghash }))
    }

    fn burst(&self, slot: usize, ops: &mut [NonceMacOp<'_>]) {
        for op in ops {
            let key: &GmacKey = op.tfm.key(slot);
            let Ok(nonce) = <[u8; 12]>::try_from(op.nonce) else {
                op.status = Err(OpError::Nonce);
                continue;
            };
            let mut hash = key.ghash.clone();
            let (rest, pos) = absorb(&mut hash, op.data);
            hash.update_padded(&rest[..pos]);
            let bits = op.data.iter().map(|d| d.len() as u64).sum::<u64>() * 8;
            let mut lengths = Block::default();
            lengths[..8].copy_from_slice(&bits.to_be_bytes());
            hash.update(&[lengths]);
            let mut tag = Block::default();
            tag[..12].copy_from_slice(&nonce);
            tag[15] = 1;
            Aes::with(&key.aes, EncryptNonceBlock(&mut tag));
            tag.iter_mut().zip(hash.finalize()).for_each(|(t, h)| *t ^= h);
            op.status = deliver(&tag, op.tag);
        }
    }
}

/// `poly1305`: a key of 32 bytes that serves one message; the nonce is empty.
struct OneTime;

impl NonceMacDriver for OneTime {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let mac = <Poly1305 as KeyInit>::new_from_slice(key).map_err(|_| KeyError::Length)?;
        Ok(Box::new(mac))
    }

    fn burst(&self, slot: usize, ops: &mut [NonceMacOp<'_>]) {
        for op in ops {
            if !op.nonce.is_empty() {
                op.status = Err(OpError::Nonce);
                continue;
            }
            let mut mac = op.tfm.key::<Poly1305>(slot).clone();
            let (rest, pos) = absorb(&mut mac, op.data);
            op.status = deliver(&mac.compute_unpadded(&rest[..pos]), op.tag);
        }
    }
}

fn row(info: AlgInfo, driver: impl NonceMacDriver + 'static) -> Row {
    let name = format!("{}-{MODULE}", info.name.replace('(', "-").replace(')', ""));
    Row::new(info, &name, MODULE, PRIORITY, Driver::NonceMac(Arc::new(driver)))
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(AlgInfo::nonce_mac("gmac(aes)", 16, Aes::KEY_LENS, 12), Gmac),
        row(AlgInfo::nonce_mac("poly1305", 16, Lengths::Of(&[32]), 0), OneTime),
    ]
}
