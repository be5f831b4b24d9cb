//! The AEADs of IPsec. The key ends with a salt; the nonce is the salt and the packet's explicit IV. The IV is also the
//! end of the associated data (`assoclen` counts it, as in Linux).

use super::gather::{self, Gather};
use super::part::{CHUNK, only_part, part, row, salted};
use crate::aead::{self, AeadDriver, AeadOp, AeadTfm, BurstKeys, FlatAeadOp};
use crate::data::Data;
use crate::error::{KeyError, OpError, Status};
use crate::info::{AlgInfo, Kind, Lengths};
use crate::key::PreparedKey;
use crate::registry::{Alg, Driver, Registry, Row};
use crate::skcipher::Direction;
use crate::template::Name;
use arrayvec::ArrayVec;
use inout::InOutBuf;
use std::sync::Arc;
use zeroize::Zeroize;

const IV_LEN: usize = 8;

/// The four AEADs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// GCM; associated data of 16 or 20 bytes.
    Rfc4106,
    /// CCM with a salt of 3 bytes; associated data of 16 or 20 bytes.
    Rfc4309,
    /// GMAC: nothing is encrypted, and the explicit IV is authenticated too.
    Rfc4543,
    /// ChaCha20-Poly1305; associated data of at least 8 bytes.
    Rfc7539esp,
}

impl Shape {
    fn salt_len(self) -> usize {
        if self == Shape::Rfc4309 { 3 } else { 4 }
    }
}

pub(super) fn rfc4106(registry: &Registry, name: &Name<'_>) -> Option<Row> {
    let gcm = only_part(registry, Kind::Aead, name, "rfc4106")?;
    (gcm.info().iv_len == 12).then(|| make("rfc4106", &gcm, Shape::Rfc4106, Lengths::Of(&[8, 12, 16])))
}

pub(super) fn rfc4309(registry: &Registry, name: &Name<'_>) -> Option<Row> {
    let ccm = only_part(registry, Kind::Aead, name, "rfc4309")?;
    (ccm.info().iv_len == 16).then(|| make("rfc4309", &ccm, Shape::Rfc4309, Lengths::Of(&[8, 12, 16])))
}

pub(super) fn rfc4543(registry: &Registry, name: &Name<'_>) -> Option<Row> {
    let gcm = only_part(registry, Kind::Aead, name, "rfc4543")?;
    (gcm.info().iv_len == 12).then(|| make("rfc4543", &gcm, Shape::Rfc4543, Lengths::Of(&[16])))
}

/// `rfc7539esp(chacha20,poly1305)` runs over `rfc7539(chacha20,poly1305)`, or over a driver of it that the name gives.
pub(super) fn rfc7539esp(registry: &Registry, name: &Name<'_>) -> Option<Row> {
    const INNER: &str = "rfc7539(chacha20,poly1305)";
    let inner = match &name.args[..] {
        _ if name.head != "rfc7539esp" => return None,
        [chacha, poly] if (chacha.text, poly.text) == ("chacha20", "poly1305") => {
            part(registry, Kind::Aead, &Name::parse(INNER).ok()?)?
        }
        [driver] => part(registry, Kind::Aead, driver).filter(|alg| alg.info().name == INNER)?,
        _ => return None,
    };
    let info = info_of(&inner, Shape::Rfc7539esp, Lengths::Of(&[16]));
    let driver = Driver::Aead(Arc::new(Ipsec { inner: inner.clone(), shape: Shape::Rfc7539esp }));
    let mut made = row("rfc7539esp", &[&inner], info, driver);
    "rfc7539esp(chacha20,poly1305)".clone_into(&mut made.info.name);
    Some(made)
}

fn info_of(inner: &Alg, shape: Shape, tag_lens: Lengths) -> AlgInfo {
    AlgInfo::aead("", inner.info().block_len, salted(inner.info().key_lens, shape.salt_len()), IV_LEN, tag_lens)
}

fn make(template: &str, inner: &Alg, shape: Shape, tag_lens: Lengths) -> Row {
    let driver = Driver::Aead(Arc::new(Ipsec { inner: inner.clone(), shape }));
    row(template, &[inner], info_of(inner, shape, tag_lens), driver)
}

struct Ipsec {
    inner: Alg,
    shape: Shape,
}

struct IpsecKey {
    inner: AeadTfm,
    /// The part of the nonce before the explicit IV.
    salt: [u8; 4],
}

impl Drop for IpsecKey {
    fn drop(&mut self) {
        self.salt.zeroize();
    }
}

/// An operation on its way from the packet's form to that of the inner AEAD. It is moved more than once, so it is kept
/// small: it holds the one or two pieces of associated data that callers have; operations with more run one by one.
struct InnerOp<'a> {
    tfm: &'a AeadTfm,
    nonce: [u8; 16],
    aad: UpToThree<'a>,
    data: InOutBuf<'a, 'a, u8>,
    tag: &'a mut [u8],
    /// Index in the burst.
    at: usize,
}

/// At most three pieces; those from `len` on are empty.
struct UpToThree<'a> {
    list: [&'a [u8]; 3],
    len: usize,
}

/// The first `len` bytes of one or two pieces; `None` for more pieces.
fn front<'a>(pieces: &[&'a [u8]], len: usize) -> Option<[&'a [u8]; 2]> {
    match *pieces {
        [only] => Some([&only[..len], &[]]),
        [first, second] => {
            let (head, rest) = first.split_at(len.min(first.len()));
            Some(if rest.is_empty() { [head, &second[..len - head.len()]] } else { [head, &[]] })
        }
        _ => None,
    }
}

/// The nonce, padded with zeros. It is put together in registers, because bytes that were just written one by one are
/// slow to read as a word.
fn nonce(key: &IpsecKey, iv: &[u8]) -> Result<[u8; 16], OpError> {
    let iv: &[u8; IV_LEN] = iv.try_into().map_err(|_| OpError::Nonce)?;
    let bits = u128::from(u64::from_le_bytes(*iv)) << 32 | u128::from(u32::from_le_bytes(key.salt));
    Ok(bits.to_le_bytes())
}

impl Ipsec {
    fn nonce_len(&self) -> usize {
        self.inner.info().iv_len
    }

    /// The number of bytes of associated data that the inner AEAD authenticates.
    fn covered_len(&self, aad: &[&[u8]]) -> Result<usize, OpError> {
        let len = gather::len(aad);
        let accepted = if self.shape == Shape::Rfc7539esp { len >= IV_LEN } else { len == 16 || len == 20 };
        if !accepted {
            return Err(OpError::AssocLen);
        }
        Ok(if self.shape == Shape::Rfc4543 { len } else { len - IV_LEN })
    }

    fn covered<'a>(&self, aad: &[&'a [u8]]) -> Result<Gather<'a>, OpError> {
        let len = self.covered_len(aad)?;
        let mut covered = Gather::new();
        covered.push_range(aad, 0, len);
        Ok(covered)
    }

    fn one_gmac(&self, key: &IpsecKey, dir: Direction, nonce: &[u8], aad: &[&[u8]], text: Text<'_>) -> Status {
        let Text { mut data, tag } = text;
        let mut covered = self.covered(aad)?;
        covered.push(data.get_in());
        let done = key.inner.one(dir, nonce, covered.as_slice(), (&mut [][..]).into(), tag);
        drop(covered);
        match done {
            Ok(()) => {
                let _out = data.into_out_with_copied_in();
                Ok(())
            }
            Err(e) => {
                if e == OpError::Auth {
                    data.get_out().zeroize();
                }
                Err(e)
            }
        }
    }
}

struct Text<'a> {
    data: InOutBuf<'a, 'a, u8>,
    tag: &'a mut [u8],
}

impl AeadDriver for Ipsec {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let salt_len = self.shape.salt_len();
        let (key, tail) = key.split_at_checked(key.len().wrapping_sub(salt_len)).ok_or(KeyError::Length)?;
        let inner = self.inner.aead(key)?;
        // With a salt of 3 bytes, the first byte is that of the IV of `ccm`: 3, for a length field of 4 bytes (RFC 4309
        // section 4).
        let mut salt = [3; 4];
        salt[4 - salt_len..].copy_from_slice(tail);
        Ok(Box::new(IpsecKey { inner, salt }))
    }

    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status {
        let key = op.tfm.key::<IpsecKey>(slot);
        let nonce = nonce(key, op.nonce)?;
        let nonce = &nonce[..self.nonce_len()];
        if self.shape == Shape::Rfc4543 {
            return self.one_gmac(key, op.dir, nonce, op.aad, Text { data: op.data, tag: op.tag });
        }
        let covered = self.covered(op.aad)?;
        key.inner.one(op.dir, nonce, covered.as_slice(), Data::Flat(op.data), op.tag)
    }

    fn burst(&self, slot: usize, ops: &mut [AeadOp<'_>]) {
        for chunk in ops.chunks_mut(CHUNK) {
            self.chunk(slot, chunk);
        }
    }
}

impl Ipsec {
    fn chunk(&self, slot: usize, ops: &mut [AeadOp<'_>]) {
        let dir = ops[0].dir;
        let gmac = self.shape == Shape::Rfc4543;
        let mut items: ArrayVec<InnerOp<'_>, CHUNK> = ArrayVec::new();
        let mut keys = BurstKeys::<IpsecKey>::new(slot);
        for (at, op) in ops.iter_mut().enumerate() {
            let AeadOp { tfm, nonce, aad, data, tag, status, .. } = op;
            let tfm = *tfm;
            let key = keys.of(tfm);
            let ready = self.covered_len(aad).and_then(|len| Ok((front(aad, len), self::nonce(key, nonce)?)));
            let Ok((Some([first, second]), ready)) = ready else {
                // Malformed, or in more pieces than an item has room for.
                *status = self.one(slot, FlatAeadOp { dir, nonce, aad, data: data.reborrow(), tag, tfm });
                continue;
            };
            // GMAC covers the text and encrypts nothing.
            let (text, data): (&[u8], _) =
                if gmac { (data.get_in(), InOutBuf::from(&mut [][..])) } else { (&[], data.reborrow()) };
            let list = if second.is_empty() { [first, text, &[]] } else { [first, second, text] };
            let aad = UpToThree { list, len: 1 + usize::from(!second.is_empty()) + usize::from(gmac) };
            items.push(InnerOp { tfm: &key.inner, nonce: ready, aad, data, tag, at });
        }
        let nonce_len = self.nonce_len();
        let mut inner: ArrayVec<AeadOp<'_>, CHUNK> = ArrayVec::new();
        inner.extend(items.iter_mut().map(|item| AeadOp {
            tfm: item.tfm,
            dir,
            nonce: &item.nonce[..nonce_len],
            aad: &item.aad.list[..item.aad.len],
            data: item.data.reborrow(),
            tag: item.tag,
            status: Ok(()),
        }));
        aead::crypt(&mut inner);
        let statuses: ArrayVec<Status, CHUNK> = inner.iter().map(|op| op.status).collect();
        drop(inner);
        let places: ArrayVec<usize, CHUNK> = items.iter().map(|item| item.at).collect();
        drop(items);
        for (at, status) in places.into_iter().zip(statuses) {
            let op = &mut ops[at];
            op.status = status;
            if !gmac {
                continue;
            }
            match status {
                Ok(()) => {
                    let _out = op.data.reborrow().into_out_with_copied_in();
                }
                Err(OpError::Auth) => op.data.get_out().zeroize(),
                Err(_) => {}
            }
        }
    }
}
