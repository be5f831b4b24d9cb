//! AES-CMAC (RFC 4493) over AES_cbc_encrypt, of whose ciphertext only the last block is used.

use crate::aes::{AesKey, BLOCK_LEN, KEY_LENS};
use crate::wipe::{Wiped, wipe};
use sealane_crypto::hash::HashState;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::Driver;
use sealane_crypto::{AlgInfo, KeyError, Row, Status};
use std::any::Any;
use std::sync::Arc;

/// Size of the buffer for ciphertext that is discarded.
const SINK_LEN: usize = 512;

/// The running value of a CBC-MAC.
pub(crate) type Chain = [u8; BLOCK_LEN];

/// Absorbs whole blocks into a CBC-MAC.
pub(crate) fn cbc_mac(key: &AesKey, chain: &mut Chain, blocks: &[u8]) {
    debug_assert_eq!(blocks.len() % BLOCK_LEN, 0);
    if blocks.len() == BLOCK_LEN {
        cbc_mac_block(key, chain, blocks.try_into().expect("one block"));
        return;
    }
    // The sink holds intermediate values of the chain, so its used part is wiped.
    let mut sink = [const { core::mem::MaybeUninit::<u8>::uninit() }; SINK_LEN];
    for part in blocks.chunks(SINK_LEN) {
        // SAFETY: `part` is no longer than the sink, and apart from it.
        unsafe { key.cbc(part.as_ptr(), sink.as_mut_ptr().cast(), part.len(), chain, true) };
    }
    sink[..blocks.len().min(SINK_LEN)].fill(core::mem::MaybeUninit::zeroed());
    zeroize::optimization_barrier(&sink);
}

/// Absorbs one block into a CBC-MAC.
#[inline]
pub(crate) fn cbc_mac_block(key: &AesKey, chain: &mut Chain, block: &Chain) {
    *chain = (u128::from_ne_bytes(*chain) ^ u128::from_ne_bytes(*block)).to_ne_bytes();
    key.encrypt(chain);
}

struct CmacKey {
    aes: AesKey,
    /// K1 for a whole last block, K2 for a padded one (RFC 4493 section 2.3).
    subkeys: Wiped<[u64; 4]>,
}

/// Doubles in GF(2^128), most significant bit first.
fn double(block: u128) -> u128 {
    (block << 1) ^ ((block >> 127) * 0x87)
}

impl CmacKey {
    fn new(key: &[u8]) -> Result<Self, KeyError> {
        let aes = AesKey::encrypting(key)?;
        let mut zero = Wiped([0u8; BLOCK_LEN]);
        aes.encrypt(&mut zero.0);
        let k1 = double(u128::from_be_bytes(zero.0));
        let k2 = double(k1);
        let words = |k: u128| [(k >> 64) as u64, k as u64];
        let [[a, b], [c, d]] = [words(k1), words(k2)];
        Ok(CmacKey { aes, subkeys: Wiped([a, b, c, d]) })
    }

    fn again(&self) -> Self {
        CmacKey { aes: self.aes.again(), subkeys: Wiped(self.subkeys.0) }
    }

    fn subkey(&self, padded: bool) -> u128 {
        let [a, b, c, d] = self.subkeys.0;
        let (high, low) = if padded { (c, d) } else { (a, b) };
        (u128::from(high) << 64) | u128::from(low)
    }

    /// Absorbs the last 0 to 16 bytes and writes the first `out.len()` bytes of the tag.
    #[inline]
    fn close(&self, chain: &mut Chain, last: &[u8], out: &mut [u8]) {
        let mut block = [0u8; BLOCK_LEN];
        block[..last.len()].copy_from_slice(last);
        let padded = last.len() < BLOCK_LEN;
        if padded {
            block[last.len()] = 0x80;
        }
        block = (u128::from_be_bytes(block) ^ self.subkey(padded)).to_be_bytes();
        cbc_mac_block(&self.aes, chain, &block);
        out.copy_from_slice(&chain[..out.len()]);
        wipe(&mut block);
    }
}

/// The bytes that are held back, up to a whole block, because the last block is processed differently.
#[derive(Clone, Default)]
struct Held {
    buf: [u8; BLOCK_LEN],
    used: usize,
}

impl Held {
    fn update(&mut self, key: &AesKey, chain: &mut Chain, mut data: &[u8]) {
        let (fill, rest) = data.split_at(data.len().min(BLOCK_LEN - self.used));
        self.buf[self.used..self.used + fill.len()].copy_from_slice(fill);
        self.used += fill.len();
        data = rest;
        if data.is_empty() {
            return;
        }
        cbc_mac_block(key, chain, &self.buf);
        let (blocks, last) = data.split_at((data.len() - 1) / BLOCK_LEN * BLOCK_LEN);
        if !blocks.is_empty() {
            cbc_mac(key, chain, blocks);
        }
        self.buf[..last.len()].copy_from_slice(last);
        self.used = last.len();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        wipe(&mut self.buf);
    }
}

struct Cmac;

impl MacDriver for Cmac {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(CmacKey::new(key)?))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        let key: &dyn Any = key;
        let key = key.downcast_ref::<CmacKey>().expect("the key that prepare returned");
        Box::new(CmacState { key: key.again(), chain: Wiped([0; BLOCK_LEN]), held: Held::default() })
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        for op in ops {
            let key = op.tfm.key::<CmacKey>(slot);
            let mut chain = Wiped([0u8; BLOCK_LEN]);
            match op.data {
                [only] => {
                    let (blocks, last) = only.split_at(only.len().saturating_sub(1) / BLOCK_LEN * BLOCK_LEN);
                    if !blocks.is_empty() {
                        cbc_mac(&key.aes, &mut chain.0, blocks);
                    }
                    key.close(&mut chain.0, last, op.tag);
                }
                many => {
                    let mut held = Held::default();
                    for piece in many {
                        held.update(&key.aes, &mut chain.0, piece);
                    }
                    key.close(&mut chain.0, &held.buf[..held.used], op.tag);
                }
            }
            op.status = Ok(());
        }
    }
}

struct CmacState {
    key: CmacKey,
    chain: Wiped<Chain>,
    held: Held,
}

impl HashState for CmacState {
    fn update(&mut self, data: &[u8]) {
        self.held.update(&self.key.aes, &mut self.chain.0, data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        self.key.close(&mut self.chain.0, &self.held.buf[..self.held.used], out);
        self.reset();
        Ok(())
    }

    fn reset(&mut self) {
        self.chain = Wiped([0; BLOCK_LEN]);
        self.held = Held::default();
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(CmacState { key: self.key.again(), chain: Wiped(self.chain.0), held: self.held.clone() })
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let info = AlgInfo::mac("cmac(aes)", BLOCK_LEN, BLOCK_LEN, KEY_LENS);
    vec![crate::row::row(info, "cmac-aes", Driver::Mac(Arc::new(Cmac)))]
}
