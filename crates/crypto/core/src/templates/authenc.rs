//! `authenc(MAC,CIPHER)`, encrypt then MAC, and `authencesn`, the same with extended sequence numbers (RFC 4303): its
//! associated data starts with SPI, high half and low half of the number, and the MAC takes the high half last.

use super::gather::{self, Gather};
use super::part::{CHUNK, MAX_IV_LEN, part, row};
use crate::aead::{AeadDriver, AeadOp, BurstKeys, FlatAeadOp};
use crate::data::Data;
use crate::error::{KeyError, OpError, Status};
use crate::info::{AlgInfo, KeyFormat, KeyUse, Kind, Lengths};
use crate::key::PreparedKey;
use crate::mac::{self, MAX_TAG_LEN, MacOp, MacTfm};
use crate::registry::{Alg, Driver, Registry, Row};
use crate::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use crate::template::Name;
use arrayvec::ArrayVec;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// `CRYPTO_AUTHENC_KEYA_PARAM`.
const KEY_PARAM: u16 = 1;
/// `struct rtattr`, then `struct crypto_authenc_key_param`: the length of the cipher's key, big endian.
const HEADER_LEN: usize = 8;

pub(super) fn authenc(registry: &Registry, name: &Name<'_>) -> Option<Row> {
    make(registry, name, "authenc", false)
}

pub(super) fn authencesn(registry: &Registry, name: &Name<'_>) -> Option<Row> {
    make(registry, name, "authencesn", true)
}

fn make(registry: &Registry, name: &Name<'_>, template: &str, esn: bool) -> Option<Row> {
    let [mac, cipher] = &name.args[..] else { return None };
    if name.head != template {
        return None;
    }
    let (mac, cipher) = (part(registry, Kind::Hash, mac)?, part(registry, Kind::Skcipher, cipher)?);
    if mac.info().key_use == KeyUse::None || cipher.info().iv_len > MAX_IV_LEN {
        return None;
    }
    // Linux 7.3 requires tags of `authencesn` to be at least as long as the half of the sequence number that it moves.
    let tags = Lengths::Range(if esn { 4 } else { 1 }, mac.info().digest_len);
    let keys = Lengths::Range(HEADER_LEN, usize::MAX);
    let info = AlgInfo::aead("", cipher.info().block_len, keys, cipher.info().iv_len, tags);
    let key_format = KeyFormat::Authenc { cipher_key_lens: cipher.info().key_lens };
    let info = AlgInfo { chunk_len: cipher.info().chunk_len, key_format, ..info };
    let driver = Driver::Aead(Arc::new(Authenc { mac: mac.clone(), cipher: cipher.clone(), esn }));
    Some(row(template, &[&mac, &cipher], info, driver))
}

struct Authenc {
    mac: Alg,
    cipher: Alg,
    esn: bool,
}

struct AuthencKey {
    mac: MacTfm,
    cipher: SkcipherTfm,
}

/// Divides a composite key into the MAC's and the cipher's.
fn split_key(key: &[u8]) -> Result<(&[u8], &[u8]), KeyError> {
    let (header, keys) = key.split_first_chunk::<HEADER_LEN>().ok_or(KeyError::Malformed)?;
    let [l0, l1, t0, t1, enc_len @ ..] = *header;
    if usize::from(u16::from_ne_bytes([l0, l1])) != HEADER_LEN || u16::from_ne_bytes([t0, t1]) != KEY_PARAM {
        return Err(KeyError::Malformed);
    }
    let enc_len = u32::from_be_bytes(enc_len) as usize;
    keys.split_at_checked(keys.len().wrapping_sub(enc_len)).ok_or(KeyError::Malformed)
}

/// The data that the MAC authenticates, except for the text.
struct Covered<'a> {
    head: [u8; 8],
    esn: bool,
    aad: &'a [&'a [u8]],
}

impl<'a> Covered<'a> {
    fn new(esn: bool, aad: &'a [&'a [u8]]) -> Result<Self, OpError> {
        let mut head = [0; 8];
        if esn {
            if gather::len(aad) < head.len() {
                return Err(OpError::AssocLen);
            }
            gather::copy_head(aad, &mut head);
        }
        Ok(Covered { head, esn, aad })
    }

    fn with<'b>(&'b self, text: &'b [u8]) -> Gather<'b> {
        let mut pieces = Gather::new();
        if self.esn {
            pieces.push(&self.head[..4]);
            pieces.push_range(self.aad, 8, usize::MAX);
            pieces.push(text);
            pieces.push(&self.head[4..]);
        } else {
            self.aad.iter().for_each(|piece| pieces.push(piece));
            pieces.push(text);
        }
        pieces
    }
}

impl AeadDriver for Authenc {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let (mac, cipher) = split_key(key)?;
        Ok(Box::new(AuthencKey { mac: self.mac.mac(mac)?, cipher: self.cipher.skcipher(cipher)? }))
    }

    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status {
        let key = op.tfm.key::<AuthencKey>(slot);
        let covered = Covered::new(self.esn, op.aad)?;
        let mut iv = [0; MAX_IV_LEN];
        let iv = &mut iv[..op.nonce.len()];
        iv.copy_from_slice(op.nonce);
        let mut data = op.data;
        match op.dir {
            Direction::Encrypt => {
                key.cipher.one(op.dir, iv, Data::Flat(data.reborrow()))?;
                key.mac.sign(covered.with(data.get_out()).as_slice(), op.tag)
            }
            Direction::Decrypt => {
                let mut computed = Zeroizing::new([0; MAX_TAG_LEN]);
                let computed = &mut computed[..op.tag.len()];
                key.mac.sign(covered.with(data.get_in()).as_slice(), computed)?;
                if !bool::from(computed.ct_eq(op.tag)) {
                    data.get_out().zeroize();
                    return Err(OpError::Auth);
                }
                key.cipher.one(op.dir, iv, Data::Flat(data))
            }
        }
    }

    fn burst(&self, slot: usize, ops: &mut [AeadOp<'_>]) {
        for chunk in ops.chunks_mut(CHUNK) {
            for op in chunk.iter_mut() {
                op.status = Covered::new(self.esn, op.aad).map(|_| ());
            }
            match chunk[0].dir {
                Direction::Encrypt => {
                    crypt(slot, chunk);
                    self.sign(slot, chunk);
                }
                Direction::Decrypt => {
                    self.verify(slot, chunk);
                    crypt(slot, chunk);
                }
            }
        }
    }
}

/// Encrypts or decrypts the texts whose status is good.
fn crypt(slot: usize, ops: &mut [AeadOp<'_>]) {
    let mut keys = BurstKeys::<AuthencKey>::new(slot);
    let mut ivs = [[0; MAX_IV_LEN]; CHUNK];
    let mut inner: ArrayVec<SkcipherOp<'_>, CHUNK> = ArrayVec::new();
    for (op, iv) in ops.iter_mut().filter(|op| op.status.is_ok()).zip(&mut ivs) {
        let iv = &mut iv[..op.nonce.len()];
        iv.copy_from_slice(op.nonce);
        let tfm = op.tfm;
        let data = op.data.reborrow();
        inner.push(SkcipherOp { tfm: &keys.of(tfm).cipher, dir: op.dir, iv, data, status: Ok(()) });
    }
    skcipher::crypt(&mut inner);
    let statuses: ArrayVec<Status, CHUNK> = inner.iter().map(|op| op.status).collect();
    drop(inner);
    let ran = ops.iter_mut().filter(|op| op.status.is_ok());
    ran.zip(statuses).for_each(|(op, status)| op.status = status);
}

impl Authenc {
    /// Tags the ciphertexts of the operations whose status is good.
    fn sign(&self, slot: usize, ops: &mut [AeadOp<'_>]) {
        let mut covered: ArrayVec<Covered<'_>, CHUNK> = ArrayVec::new();
        for op in ops.iter().filter(|op| op.status.is_ok()) {
            covered.push(Covered::new(self.esn, op.aad).expect("its length has been checked"));
        }
        let mut pieces: ArrayVec<Gather<'_>, CHUNK> = ArrayVec::new();
        let mut keys = BurstKeys::<AuthencKey>::new(slot);
        let mut rest: ArrayVec<(&MacTfm, &mut [u8]), CHUNK> = ArrayVec::new();
        for (op, covered) in ops.iter_mut().filter(|op| op.status.is_ok()).zip(&covered) {
            let tfm = op.tfm;
            pieces.push(covered.with(op.data.get_out()));
            rest.push((&keys.of(tfm).mac, op.tag));
        }
        let mut inner: ArrayVec<MacOp<'_>, CHUNK> =
            rest.iter_mut().zip(&pieces).map(|((tfm, tag), pieces)| MacOp::new(tfm, pieces.as_slice(), tag)).collect();
        mac::sign(&mut inner);
        let statuses: ArrayVec<Status, CHUNK> = inner.iter().map(|op| op.status).collect();
        drop(inner);
        drop((pieces, rest));
        let ran = ops.iter_mut().filter(|op| op.status.is_ok());
        ran.zip(statuses).for_each(|(op, status)| op.status = status);
    }

    /// Checks the tags of the operations whose status is good, and wipes the outputs of the forged ones.
    fn verify(&self, slot: usize, ops: &mut [AeadOp<'_>]) {
        let mut tags = Zeroizing::new([[0u8; MAX_TAG_LEN]; CHUNK]);
        let mut covered: ArrayVec<Covered<'_>, CHUNK> = ArrayVec::new();
        for op in ops.iter().filter(|op| op.status.is_ok()) {
            covered.push(Covered::new(self.esn, op.aad).expect("its length has been checked"));
        }
        let judged = || ops.iter().filter(|op| op.status.is_ok());
        let mut pieces: ArrayVec<Gather<'_>, CHUNK> = ArrayVec::new();
        for (op, covered) in judged().zip(&covered) {
            pieces.push(covered.with(op.data.get_in()));
        }
        let mut keys = BurstKeys::<AuthencKey>::new(slot);
        let mut inner: ArrayVec<MacOp<'_>, CHUNK> = ArrayVec::new();
        for ((op, pieces), tag) in judged().zip(&pieces).zip(tags.iter_mut()) {
            inner.push(MacOp::new(&keys.of(op.tfm).mac, pieces.as_slice(), &mut tag[..op.tag.len()]));
        }
        mac::sign(&mut inner);
        let statuses: ArrayVec<Status, CHUNK> = inner.iter().map(|op| op.status).collect();
        drop(inner);
        drop(pieces);
        let judged = ops.iter_mut().filter(|op| op.status.is_ok());
        for ((op, status), computed) in judged.zip(statuses).zip(tags.iter()) {
            op.status = match status {
                Ok(()) if bool::from(computed[..op.tag.len()].ct_eq(op.tag)) => Ok(()),
                Ok(()) => {
                    op.data.get_out().zeroize();
                    Err(OpError::Auth)
                }
                Err(e) => Err(e),
            };
        }
    }
}
