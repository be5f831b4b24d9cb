//! HMAC (RFC 2104), also as TLS uses it below CBC.

use super::context::Mac;
use super::tls;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::Params;
use crate::given::Given;
use crate::home::{self, KeyBytes, Owner, Secret};
use crate::instance::{AlgId, Instance, is_named};
use crate::names;
use core::ffi::CStr;
use sealane_crypto::Status;
use sealane_crypto::hash::{self, HashState};
use sha2::digest::{FixedOutput, HashMarker, Output, OutputSizeUser, Update, consts::U24};
use sha2::{Digest, Sha256, Sha512_224, Sha512_256};
use zeroize::{Zeroize, Zeroizing};

/// The longest digest in bytes.
const MAX_LEN: usize = 64;

/// A hash that HMAC takes. A fetched HMAC cannot hand on to another provider's, so these are more than the digests that we
/// offer.
struct Hash {
    names: &'static CStr,
    block_len: usize,
    len: usize,
    source: Source,
}

/// The way to HMAC over a hash.
enum Source {
    /// An algorithm of the core.
    Core(AlgId),
    /// Built here over a hash, by its block in bytes and a key.
    Over(fn(usize, &[u8]) -> Box<dyn HashState>),
}

const fn core(names: &'static CStr, block_len: usize, len: usize, name: &str) -> Hash {
    Hash { names, block_len, len, source: Source::Core(AlgId::of(name)) }
}

static HASHES: [Hash; 18] = [
    core(names::MD5, 64, 16, "hmac(md5)"),
    core(names::SHA1, 64, 20, "hmac(sha1)"),
    core(names::SHA2_224, 64, 28, "hmac(sha224)"),
    core(names::SHA2_256, 64, 32, "hmac(sha256)"),
    core(names::SHA2_384, 128, 48, "hmac(sha384)"),
    core(names::SHA2_512, 128, 64, "hmac(sha512)"),
    Hash { names: names::SHA2_512_224, block_len: 128, len: 28, source: Source::Over(over::<Sha512_224>) },
    Hash { names: names::SHA2_512_256, block_len: 128, len: 32, source: Source::Over(over::<Sha512_256>) },
    Hash {
        names: c"SHA2-256/192:SHA-256/192:SHA256-192",
        block_len: 64,
        len: 24,
        source: Source::Over(over::<Sha256_192>),
    },
    core(names::SHA3_224, 144, 28, "hmac(sha3-224)"),
    core(names::SHA3_256, 136, 32, "hmac(sha3-256)"),
    core(names::SHA3_384, 104, 48, "hmac(sha3-384)"),
    core(names::SHA3_512, 72, 64, "hmac(sha3-512)"),
    core(c"RIPEMD-160:RIPEMD160:RIPEMD:RMD160:1.3.36.3.2.1", 64, 20, "hmac(rmd160)"),
    core(c"SM3:1.2.156.10197.1.401", 64, 32, "hmac(sm3)"),
    core(c"BLAKE2B-512:BLAKE2b512:1.3.6.1.4.1.1722.12.2.1.16", 128, 64, "hmac(blake2b-512)"),
    core(c"MD4:1.2.840.113549.2.4", 64, 16, "hmac(md4)"),
    core(c"WHIRLPOOL:1.0.10118.3.0.55", 64, 64, "hmac(wp512)"),
];

/// SHA-256 cut to 24 bytes (SP 800-208 section 2.3).
#[derive(Clone, Default)]
struct Sha256_192(Sha256);

impl HashMarker for Sha256_192 {}

impl OutputSizeUser for Sha256_192 {
    type OutputSize = U24;
}

impl Update for Sha256_192 {
    fn update(&mut self, data: &[u8]) {
        Update::update(&mut self.0, data);
    }
}

impl FixedOutput for Sha256_192 {
    fn finalize_into(self, out: &mut Output<Self>) {
        let mut whole = self.0.finalize_fixed();
        let len = out.len();
        out.copy_from_slice(&whole[..len]);
        whole.zeroize();
    }
}

/// A key that HMAC has taken.
struct Started<'a> {
    /// The state before the first byte.
    running: Box<dyn HashState>,
    /// The key, if it is of this process.
    here: Option<&'a [u8]>,
}

impl Hash {
    fn named(name: &str) -> Result<&'static Hash, Failure> {
        let found = HASHES.iter().find(|hash| is_named(hash.names, name));
        found.ok_or_else(|| Failure::text(Reason::InvalidDigest, format!("HMAC over {name}")))
    }

    /// Takes a key.
    fn start<'a>(&self, instance: &Instance, key: Given<'a>) -> Result<Started<'a>, Failure> {
        match self.source {
            Source::Core(id) => {
                let ready = instance.key(id, key, None)?;
                let here = match key {
                    Given::Bytes(key) if !ready.is_kept() => Some(key),
                    _ => None,
                };
                Ok(Started { running: ready.started()?, here })
            }
            Source::Over(start) => {
                let key = instance.key_here("HMAC over SHA-256/192, SHA-512/224 and SHA-512/256", key)?;
                let failed = |error| home::failed(error, Failure::SILENT);
                let running = hash::try_hold(start(self.block_len, key)).map_err(failed)?;
                Ok(Started { running, here: Some(key) })
            }
        }
    }
}

/// HMAC over any hash. All of it is in the value itself, so that it can lie in guarded memory.
#[derive(Clone)]
struct Over<D> {
    inner: D,
    /// The hash behind the inner pad block, from which each message starts.
    inner_start: D,
    outer_start: D,
}

/// The state of HMAC over a hash.
fn over<D: Digest + Clone + Send + Sync + 'static>(block_len: usize, key: &[u8]) -> Box<dyn HashState> {
    let mut block = Zeroizing::new([0u8; 128]);
    let block = &mut block[..block_len];
    if key.len() > block_len {
        let mut hashed = D::digest(key);
        block[..hashed.len()].copy_from_slice(&hashed);
        hashed.zeroize();
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut padded = |pad: u8| {
        block.iter_mut().for_each(|b| *b ^= pad);
        let state = D::new().chain_update(&*block);
        block.iter_mut().for_each(|b| *b ^= pad);
        state
    };
    let inner_start = padded(0x36);
    Box::new(Over { inner: inner_start.clone(), outer_start: padded(0x5c), inner_start })
}

impl<D: Digest + Clone + Send + Sync + 'static> HashState for Over<D> {
    fn update(&mut self, data: &[u8]) {
        self.inner.update(data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        let inner = core::mem::replace(&mut self.inner, self.inner_start.clone());
        let mut digest = inner.finalize();
        let tag = self.outer_start.clone().chain_update(&digest).finalize();
        digest.zeroize();
        out.copy_from_slice(&tag[..out.len()]);
        Ok(())
    }

    fn reset(&mut self) {
        self.inner = self.inner_start.clone();
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(self.clone())
    }
}

/// A key, and the message under it.
struct Keyed {
    hash: &'static Hash,
    owner: Owner,
    /// Kept for records of TLS, whose keys are not longer than a block.
    key: Option<Secret<KeyBytes<{ tls::MAX_BLOCK_LEN }>>>,
    /// Whether the key is computed with elsewhere.
    is_kept: bool,
    running: Box<dyn HashState>,
}

/// A record of TLS below CBC: where its text ends is a secret until its MAC has been checked.
#[derive(Clone, Default)]
struct Record {
    /// The length of the record with MAC and padding, 0 where this is no record.
    public_len: usize,
    header: Option<[u8; tls::HEADER_LEN]>,
    tag: Option<Zeroizing<[u8; MAX_LEN]>>,
}

#[derive(Default)]
struct Hmac {
    hash: Option<&'static Hash>,
    keyed: Option<Keyed>,
    record: Record,
}

pub(super) fn new() -> Box<dyn Mac> {
    Box::new(Hmac::default())
}

impl Hmac {
    fn set_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        let hash = self.hash.or_else(|| self.keyed.as_ref().map(|k| k.hash));
        let hash = hash.ok_or_else(|| Failure::new(Reason::InvalidDigest))?;
        // If there is no room for the new key, there is none: a caller that does not look would go on under the old one.
        self.keyed = None;
        self.hash = Some(hash);
        let Started { running, here } = hash.start(instance, key)?;
        let is_kept = here.is_none();
        let key = here.filter(|key| key.len() <= hash.block_len.min(tls::MAX_BLOCK_LEN));
        let key = key.map(|key| Secret::new(KeyBytes::boxed(key))).transpose()?;
        let owner = if is_kept { Owner::of_kept() } else { Owner::this_process() };
        self.keyed = Some(Keyed { hash, owner, key, is_kept, running });
        Ok(())
    }

    fn keyed(&mut self) -> Result<&mut Keyed, Failure> {
        self.keyed.as_mut().ok_or_else(|| Reason::NoKeySet.into())
    }

    /// The first piece is the record's header, the second its text.
    fn update_record(&mut self, data: &[u8], len: usize) -> Done {
        let Some(header) = self.record.header else {
            self.record.header = Some(data.get(..len).and_then(|d| d.try_into().ok()).ok_or(Failure::SILENT)?);
            return Ok(());
        };
        // Never of a record that libssl has decrypted, so that this says nothing of one.
        if len > data.len() || self.record.public_len >= tls::MAX_RECORD {
            return Err(Failure::SILENT);
        }
        let Keyed { hash, key, is_kept, .. } = self.keyed()?;
        if *is_kept {
            // The requests to the keeper would tell where the text ends.
            let why = "sealane: the keeper does not compute MACs of records that CBC has decrypted";
            return Err(Failure::text(Reason::NotSupported, why.to_owned()));
        }
        let mut tag = Zeroizing::new([0u8; MAX_LEN]);
        let key = key.as_ref().ok_or(Failure::SILENT)?;
        key.with(|key| tls::digest_record(hash.names, &mut tag[..hash.len], header, data, len, key.get()))??;
        self.record.tag = Some(tag);
        Ok(())
    }
}

impl Mac for Hmac {
    fn set(&mut self, instance: &Instance, params: Params<'_>) -> Done {
        if let Some(name) = params.get(c"digest") {
            self.hash = Some(Hash::named(name.text()?)?);
        }
        if let Some(key) = params.get(c"key") {
            self.set_key(instance, Given::Bytes(key.octets()?.unwrap_or_default()))?;
        }
        if let Some(len) = params.get(c"tls-data-size") {
            self.record.public_len = len.size()?;
        }
        Ok(())
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        self.set_key(instance, key)
    }

    fn init(&mut self, instance: &Instance, key: Option<&[u8]>) -> Done {
        match key {
            Some(key) => self.set_key(instance, Given::Bytes(key)),
            None => {
                self.keyed()?.running.reset();
                Ok(())
            }
        }
    }

    fn reach(&self, len: usize) -> usize {
        // The text of a record is followed by its MAC and padding, and where it ends must not be seen from outside.
        // A length that no record has is not believed, because the caller's memory would end before it; `update` refuses it.
        let is_text = self.record.header.is_some() && (1..tls::MAX_RECORD).contains(&self.record.public_len);
        if is_text { self.record.public_len } else { len }
    }

    fn update(&mut self, data: &[u8], len: usize) -> Done {
        if self.record.public_len > 0 {
            return self.update_record(data, len);
        }
        self.keyed()?.running.update(data);
        Ok(())
    }

    fn len(&self) -> usize {
        self.keyed.as_ref().map_or(0, |keyed| keyed.hash.len)
    }

    fn block_len(&self) -> usize {
        self.hash.map_or(0, |hash| hash.block_len)
    }

    fn finish(&mut self, tag: &mut [u8]) -> Done {
        if self.record.public_len > 0 {
            let full = self.record.tag.as_ref().ok_or(Failure::SILENT)?;
            tag.copy_from_slice(&full[..tag.len()]);
            return Ok(());
        }
        self.keyed()?.running.finish(tag).map_err(|error| home::failed(error, Failure::SILENT))
    }

    fn owner(&self) -> Option<Owner> {
        self.keyed.as_ref().map(|keyed| keyed.owner)
    }

    fn duplicate(&self) -> Result<Box<dyn Mac>, Failure> {
        let again = |Keyed { hash, owner, key, is_kept, running }: &Keyed| {
            let key = key.as_ref().map(Secret::again).transpose()?;
            Ok::<_, Failure>(Keyed { hash, owner: *owner, key, is_kept: *is_kept, running: running.fork() })
        };
        let keyed = self.keyed.as_ref().map(again).transpose()?;
        Ok(Box::new(Hmac { hash: self.hash, keyed, record: self.record.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OpenSSL's tests (evpmac_common.txt), with a key that is shorter than a block and one that is longer: the longer one is hashed to
    /// 24 bytes.
    #[test]
    fn hmac_over_sha256_192_hashes_to_24_bytes() {
        let vectors: [(usize, &[u8], [u8; 24]); 2] = [
            (
                28,
                b"Sample message for keylen<blocklen",
                [
                    0x6e, 0xcc, 0xab, 0x0b, 0xe3, 0xf7, 0x65, 0x7c, 0xaf, 0x65, 0xca, 0xd9, 0x78, 0x4c, 0x81, 0x77,
                    0xc9, 0xf8, 0x3a, 0x68, 0x5a, 0xb5, 0x2f, 0x4c,
                ],
            ),
            (
                100,
                b"Sample message for keylen=blocklen",
                [
                    0x4f, 0xc1, 0x51, 0x85, 0x39, 0x42, 0x71, 0xa6, 0x26, 0x62, 0x78, 0x35, 0xb9, 0x12, 0xa9, 0xcf,
                    0x64, 0x1c, 0x9c, 0xd8, 0x4f, 0x79, 0x09, 0xa4,
                ],
            ),
        ];
        for (key_len, text, want) in vectors {
            let key: Vec<u8> = (0..key_len as u8).collect();
            let mut running = over::<Sha256_192>(64, &key);
            running.update(text);
            let mut tag = [0; 24];
            running.finish(&mut tag).unwrap();
            assert_eq!(tag, want, "{key_len}");
        }
    }
}
