//! The rows of OpenSSL.

use crate::evp::{CTRL_AEAD_GET_TAG, CTRL_AEAD_SET_TAG, CipherCtx, Fetch, Fetched, MacCtx, c_name, digest, library};
use parking_lot::Mutex;
use sealane_crypto::aead::{AeadDriver, FlatAeadOp};
use sealane_crypto::hash::{HashDriver, HashOp, HashState};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver};
use sealane_crypto::wipe::wipe;
use sealane_crypto::{AlgInfo, CipherMode, KeyError, Lengths, OpError, Status};
use std::ffi::{CStr, CString};
use std::sync::Arc;

const MODULE: &str = "openssl";
const AES_KEYS: Lengths = Lengths::Of(&[16, 24, 32]);

fn status(ok: bool) -> Status {
    if ok { Ok(()) } else { Err(OpError::Driver) }
}

struct Hash(Fetched);

impl HashDriver for Hash {
    fn start(&self) -> Box<dyn HashState> {
        Box::new(Running { restart: Restart::Hash(self.0), message: Vec::new() })
    }

    fn burst(&self, ops: &mut [HashOp<'_>]) {
        for op in ops {
            op.status = status(digest(self.0, op.data, op.digest));
        }
    }
}

/// A message that is buffered to its end. EVP contexts could be copied instead, but these rows serve one-shot
/// measurements.
struct Running {
    restart: Restart,
    message: Vec<u8>,
}

#[derive(Clone)]
enum Restart {
    Hash(Fetched),
    Mac(Arc<Mutex<MacCtx>>),
}

impl HashState for Running {
    fn update(&mut self, data: &[u8]) {
        self.message.extend_from_slice(data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        let done = match &self.restart {
            Restart::Hash(md) => digest(*md, &[&self.message], out),
            Restart::Mac(ctx) => ctx.lock().sign(&[&self.message], out),
        };
        self.reset();
        status(done)
    }

    fn reset(&mut self) {
        wipe(&mut self.message);
        self.message.clear();
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(Running { restart: self.restart.clone(), message: self.message.clone() })
    }
}

struct Mac {
    mac: Fetched,
    param: CString,
    properties: Option<CString>,
    /// The value of the parameter for a key of this many bytes; `None` refuses the key.
    value: fn(&str, usize) -> Option<String>,
    word: &'static str,
}

struct MacKey(Arc<Mutex<MacCtx>>);

impl MacDriver for Mac {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let value = (self.value)(self.word, key.len()).ok_or(KeyError::Length)?;
        let param = (&*self.param, &*c_name(&value));
        let ctx = MacCtx::new(self.mac, param, self.properties.as_deref(), key).ok_or(KeyError::Driver)?;
        Ok(Box::new(MacKey(Arc::new(Mutex::new(ctx)))))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        let key: &dyn std::any::Any = key;
        let key = key.downcast_ref::<MacKey>().expect("the key that prepare returned");
        Box::new(Running { restart: Restart::Mac(key.0.clone()), message: Vec::new() })
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        for op in ops {
            op.status = status(op.tfm.key::<MacKey>(slot).0.lock().sign(op.data, op.tag));
        }
    }
}

struct Cipher {
    /// The ciphers for keys of 16, 24 and 32 bytes (XTS: the first and last, for 32 and 64 bytes).
    by_key: [Option<Fetched>; 3],
    xts: bool,
    /// Computes the IV on return.
    next_iv: fn(&mut [u8], &[u8]),
}

struct CipherKey {
    encrypt: Mutex<CipherCtx>,
    decrypt: Mutex<CipherCtx>,
}

impl Cipher {
    fn fetched(&self, key_len: usize) -> Option<Fetched> {
        match key_len / if self.xts { 2 } else { 1 } {
            16 => self.by_key[0],
            24 => self.by_key[1],
            32 => self.by_key[2],
            _ => None,
        }
    }
}

impl SkcipherDriver for Cipher {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let cipher = self.fetched(key.len()).ok_or(KeyError::Length)?;
        let ctx = |encrypt| CipherCtx::new(cipher, encrypt, key).map(Mutex::new).ok_or(KeyError::Driver);
        Ok(Box::new(CipherKey { encrypt: ctx(true)?, decrypt: ctx(false)? }))
    }

    fn one(&self, slot: usize, mut op: FlatSkcipherOp<'_, '_>) -> Status {
        let key = op.tfm.key::<CipherKey>(slot);
        let info = op.tfm.info();
        if !op.data.len().is_multiple_of(info.block_len) && !self.xts || self.xts && op.data.len() < 16 {
            return Err(OpError::Length);
        }
        if op.data.is_empty() {
            return Ok(());
        }
        // The IV on return is the last ciphertext block: of the output when encrypting, of the input (which may be
        // overwritten) when decrypting.
        let mut last = [0u8; 16];
        let tail = op.data.len().saturating_sub(16);
        if op.dir == Direction::Decrypt {
            last[..op.data.len() - tail].copy_from_slice(&op.data.get_in()[tail..]);
        }
        let mut ctx = if op.dir == Direction::Encrypt { key.encrypt.lock() } else { key.decrypt.lock() };
        let len = op.data.len();
        let (src, dst) = (op.data.get_in().as_ptr(), op.data.get_out().as_mut_ptr());
        // SAFETY: an InOutBuf is valid for its length on both sides, which are equal or disjoint.
        let ok = ctx.iv(op.iv) && unsafe { ctx.update(src, dst, len) };
        if op.dir == Direction::Encrypt {
            last[..len - tail].copy_from_slice(&op.data.get_out()[tail..]);
        }
        if info.chunk_len == info.block_len {
            (self.next_iv)(op.iv, &last);
        } else {
            (self.next_iv)(op.iv, &(len.div_ceil(info.chunk_len) as u64).to_be_bytes());
        }
        status(ok)
    }
}

struct Aead {
    by_key: [Option<Fetched>; 3],
}

impl AeadDriver for Aead {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let cipher = match key.len() {
            16 => self.by_key[0],
            24 => self.by_key[1],
            32 => self.by_key[2],
            _ => None,
        }
        .ok_or(KeyError::Length)?;
        let ctx = |encrypt| CipherCtx::new(cipher, encrypt, key).map(Mutex::new).ok_or(KeyError::Driver);
        Ok(Box::new(CipherKey { encrypt: ctx(true)?, decrypt: ctx(false)? }))
    }

    fn one(&self, slot: usize, mut op: FlatAeadOp<'_, '_>) -> Status {
        let key = op.tfm.key::<CipherKey>(slot);
        let len = op.data.len();
        let seal = op.dir == Direction::Encrypt;
        let mut ctx = if seal { key.encrypt.lock() } else { key.decrypt.lock() };
        let (src, dst) = (op.data.get_in().as_ptr(), op.data.get_out().as_mut_ptr());
        // SAFETY: an InOutBuf is valid for its length on both sides, which are equal or disjoint.
        let ok = ctx.iv(op.nonce) && op.aad.iter().all(|a| ctx.aad(a)) && unsafe { ctx.update(src, dst, len) };
        if !ok {
            return Err(OpError::Driver);
        }
        if seal {
            return status(ctx.finish() && ctx.ctrl(CTRL_AEAD_GET_TAG, op.tag));
        }
        if ctx.ctrl(CTRL_AEAD_SET_TAG, op.tag) && ctx.finish() {
            Ok(())
        } else {
            op.data.get_out().fill(0);
            Err(OpError::Auth)
        }
    }
}

/// OpenSSL's rows; none where `libcrypto.so.3` cannot be opened.
#[must_use]
pub fn rows() -> Vec<Row> {
    rows_of(None)
}

/// The rows of the implementations with these properties, such as `provider=default`: OpenSSL's property query. Ciphers that none has
/// refuse every key.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "the expectations are about constants")]
pub fn rows_of(properties: Option<&CStr>) -> Vec<Row> {
    let Ok(lib) = library() else { return Vec::new() };
    let fetch = |what, name: &CStr| lib.fetch(what, name, properties);
    let owned = properties.map(CStr::to_owned);
    let mut rows = Vec::new();
    let row = |info: AlgInfo, imp| {
        let driver = format!("{}-openssl", info.name.replace(['(', ','], "-").replace(')', ""));
        Row::new(info, &driver, MODULE, 1, imp)
    };
    const HASHES: [(&str, &str, usize, usize); 7] = [
        ("md5", "MD5", 64, 16),
        ("sha1", "SHA1", 64, 20),
        ("sha224", "SHA224", 64, 28),
        ("sha256", "SHA256", 64, 32),
        ("sha384", "SHA384", 128, 48),
        ("sha512", "SHA512", 128, 64),
        ("sha3-256", "SHA3-256", 136, 32),
    ];
    let hmac = fetch(Fetch::Mac, c"HMAC");
    for (name, word, block, len) in HASHES {
        if let Some(md) = fetch(Fetch::Digest, &c_name(word)) {
            rows.push(row(AlgInfo::hash(name, block, len), Driver::Hash(Arc::new(Hash(md)))));
        }
        if let Some(mac) = hmac {
            let info = AlgInfo::mac(&format!("hmac({name})"), block, len, Lengths::Range(1, 4096));
            let value = |word: &str, _| Some(word.to_owned());
            rows.push(row(
                info,
                Driver::Mac(Arc::new(Mac { mac, param: c"digest".into(), properties: owned.clone(), value, word })),
            ));
        }
    }
    if let Some(mac) = fetch(Fetch::Mac, c"CMAC") {
        let value = |_: &str, len: usize| AES_KEYS.contains(len).then(|| format!("AES-{}-CBC", len * 8));
        let info = AlgInfo::mac("cmac(aes)", 16, 16, AES_KEYS);
        rows.push(row(
            info,
            Driver::Mac(Arc::new(Mac { mac, param: c"cipher".into(), properties: owned, value, word: "" })),
        ));
    }
    let aes = |mode: &str| [128, 192, 256].map(|bits| fetch(Fetch::Cipher, &c_name(&format!("AES-{bits}-{mode}"))));
    let copy: fn(&mut [u8], &[u8]) = |iv, last| iv.copy_from_slice(&last[..iv.len()]);
    let keep: fn(&mut [u8], &[u8]) = |_, _| {};
    let count: fn(&mut [u8], &[u8]) = |iv, blocks| {
        let blocks = u64::from_be_bytes(blocks.try_into().expect("eight bytes"));
        let counter = u128::from_be_bytes((&*iv).try_into().expect("a counter block")).wrapping_add(u128::from(blocks));
        iv.copy_from_slice(&counter.to_be_bytes());
    };
    for (name, by_key, mode, block, iv_len, next_iv) in [
        ("ecb(aes)", aes("ECB"), CipherMode::Ecb, 16, 0, keep),
        ("cbc(aes)", aes("CBC"), CipherMode::Cbc, 16, 16, copy),
        ("ctr(aes)", aes("CTR"), CipherMode::Ctr, 1, 16, count),
    ] {
        let info = AlgInfo { chunk_len: 16, ..AlgInfo::skcipher(name, block, AES_KEYS, iv_len).mode(mode) };
        rows.push(row(info, Driver::Skcipher(Arc::new(Cipher { by_key, xts: false, next_iv }))));
    }
    let info = AlgInfo::skcipher("xts(aes)", 16, Lengths::Of(&[32, 64]), 16).mode(CipherMode::Xts);
    rows.push(row(info, Driver::Skcipher(Arc::new(Cipher { by_key: aes("XTS"), xts: true, next_iv: keep }))));
    let tags = Lengths::Of(&[4, 8, 12, 13, 14, 15, 16]);
    rows.push(row(
        AlgInfo::aead("gcm(aes)", 1, AES_KEYS, 12, tags),
        Driver::Aead(Arc::new(Aead { by_key: aes("GCM") })),
    ));
    let chacha = [None, None, fetch(Fetch::Cipher, c"ChaCha20-Poly1305")];
    let info = AlgInfo::aead("rfc7539(chacha20,poly1305)", 1, Lengths::Of(&[32]), 12, Lengths::Of(&[16]));
    rows.push(row(info, Driver::Aead(Arc::new(Aead { by_key: chacha }))));
    rows
}
