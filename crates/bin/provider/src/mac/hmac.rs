//! HMAC (RFC 2104), also as TLS uses it below CBC.

use super::context::Mac;
use super::tls;
use crate::digest::{sha512_224, sha512_256};
use crate::failure::{Done, Failure, Reason};
use crate::ffi::Params;
use crate::instance::{AlgId, Instance, is_named};
use crate::names;
use core::ffi::CStr;
use sealane_crypto::Status;
use sealane_crypto::hash::HashState;
use zeroize::Zeroizing;

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
    /// Built here over a hash, of which this starts a message.
    Over(fn() -> Box<dyn HashState>),
}

const fn core(names: &'static CStr, block_len: usize, len: usize, name: &str) -> Hash {
    Hash { names, block_len, len, source: Source::Core(AlgId::of(name)) }
}

static HASHES: [Hash; 17] = [
    core(names::MD5, 64, 16, "hmac(md5)"),
    core(names::SHA1, 64, 20, "hmac(sha1)"),
    core(names::SHA2_224, 64, 28, "hmac(sha224)"),
    core(names::SHA2_256, 64, 32, "hmac(sha256)"),
    core(names::SHA2_384, 128, 48, "hmac(sha384)"),
    core(names::SHA2_512, 128, 64, "hmac(sha512)"),
    Hash { names: names::SHA2_512_224, block_len: 128, len: 28, source: Source::Over(sha512_224) },
    Hash { names: names::SHA2_512_256, block_len: 128, len: 32, source: Source::Over(sha512_256) },
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

impl Hash {
    fn named(name: &str) -> Result<&'static Hash, Failure> {
        let found = HASHES.iter().find(|hash| is_named(hash.names, name));
        found.ok_or_else(|| Failure::text(Reason::InvalidDigest, format!("HMAC over {name}")))
    }

    /// The state of HMAC before the first byte.
    fn start(&self, instance: &Instance, key: &[u8]) -> Result<Box<dyn HashState>, Failure> {
        match self.source {
            Source::Core(id) => {
                let keyed = instance.alg(id)?.mac(key).map_err(|_| Failure::new(Reason::InvalidKeyLength))?;
                Ok(keyed.start())
            }
            Source::Over(start) => Ok(Box::new(Over::new(self, start(), key)?)),
        }
    }
}

/// HMAC over any hash.
struct Over {
    len: usize,
    inner: Box<dyn HashState>,
    /// The hash behind the inner pad block, from which each message starts.
    inner_start: Box<dyn HashState>,
    outer_start: Box<dyn HashState>,
}

impl Over {
    fn new(hash: &Hash, mut fresh: Box<dyn HashState>, key: &[u8]) -> Result<Self, Failure> {
        let mut block = Zeroizing::new([0u8; 128]);
        let block = &mut block[..hash.block_len];
        if key.len() > hash.block_len {
            fresh.update(key);
            fresh.finish(&mut block[..hash.len]).map_err(|_| Failure::SILENT)?;
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let mut padded = |pad: u8| {
            let mut state = fresh.fork();
            block.iter_mut().for_each(|b| *b ^= pad);
            state.update(block);
            block.iter_mut().for_each(|b| *b ^= pad);
            state
        };
        let inner_start = padded(0x36);
        Ok(Over { len: hash.len, inner: inner_start.fork(), outer_start: padded(0x5c), inner_start })
    }
}

impl HashState for Over {
    fn update(&mut self, data: &[u8]) {
        self.inner.update(data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        let mut digest = Zeroizing::new([0u8; MAX_LEN]);
        let digest = &mut digest[..self.len];
        let inner = self.inner.finish(digest);
        let mut outer = self.outer_start.fork();
        outer.update(digest);
        self.reset();
        inner.and(outer.finish(out))
    }

    fn reset(&mut self) {
        self.inner = self.inner_start.fork();
    }

    fn fork(&self) -> Box<dyn HashState> {
        let [inner, inner_start, outer_start] =
            [&self.inner, &self.inner_start, &self.outer_start].map(|state| state.fork());
        Box::new(Over { len: self.len, inner, inner_start, outer_start })
    }
}

/// A key, and the message under it.
struct Keyed {
    hash: &'static Hash,
    /// Kept for records of TLS.
    key: Zeroizing<Vec<u8>>,
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
    fn set_key(&mut self, instance: &Instance, key: &[u8]) -> Done {
        let hash = self.hash.or_else(|| self.keyed.as_ref().map(|k| k.hash));
        let hash = hash.ok_or_else(|| Failure::new(Reason::InvalidDigest))?;
        let running = hash.start(instance, key)?;
        self.keyed = Some(Keyed { hash, key: Zeroizing::new(key.to_vec()), running });
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
        let Keyed { hash, key, .. } = self.keyed()?;
        let mut tag = Zeroizing::new([0u8; MAX_LEN]);
        tls::digest_record(hash.names, &mut tag[..hash.len], header, data, len, key)?;
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
            self.set_key(instance, key.octets()?.unwrap_or_default())?;
        }
        if let Some(len) = params.get(c"tls-data-size") {
            self.record.public_len = len.size()?;
        }
        Ok(())
    }

    fn init(&mut self, instance: &Instance, key: Option<&[u8]>) -> Done {
        match key {
            Some(key) => self.set_key(instance, key),
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
        self.keyed()?.running.finish(tag).map_err(|_| Failure::SILENT)
    }

    fn duplicate(&self) -> Result<Box<dyn Mac>, Failure> {
        let keyed = self.keyed.as_ref().map(|k| Keyed { hash: k.hash, key: k.key.clone(), running: k.running.fork() });
        Ok(Box::new(Hmac { hash: self.hash, keyed, record: self.record.clone() }))
    }
}
