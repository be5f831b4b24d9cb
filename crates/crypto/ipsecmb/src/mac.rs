//! HMAC, CMAC and XCBC.

use crate::batch::{Digester, Entry};
use crate::fallback::Portable;
use crate::ffi::{self, MbAlg, Op};
use crate::manager;
use crate::row::row;
use core::any::Any;
use sealane_crypto::hash::{HashState, HashTfm};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp, MacTfm};
use sealane_crypto::registry::{Alg, Driver};
use sealane_crypto::{KeyError, Kind, Row};
use std::sync::Arc;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The longest block of a hash under HMAC (SHA-512), in bytes.
const MAX_BLOCK_LEN: usize = 128;

/// HMAC over a hash whose state has `STATE` bytes.
struct Hmac<const STATE: usize> {
    alg: MbAlg,
    digester: Digester,
    block_len: usize,
    /// Hashes keys that are longer than a block.
    hash: HashTfm,
    portable: Alg,
}

/// One cache line for HMAC-SHA-1 and HMAC-MD5, two for the SHA-256 family, three for the SHA-512 family.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
struct HmacKey<const STATE: usize> {
    inner: [u8; STATE],
    outer: [u8; STATE],
    /// Wipes itself.
    #[zeroize(skip)]
    portable: MacTfm,
}

impl<const STATE: usize> MacDriver for Hmac<STATE> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let mut prepared =
            Box::new(HmacKey { inner: [0; STATE], outer: [0; STATE], portable: self.portable.mac(key)? });
        let mut block = [0u8; MAX_BLOCK_LEN];
        let block = &mut block[..self.block_len];
        if key.len() > block.len() {
            let digest_len = self.hash.info().digest_len;
            self.hash.one(&[key], &mut block[..digest_len]).map_err(|_| KeyError::Driver)?;
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let done = manager::with(|manager| {
            block.iter_mut().for_each(|b| *b ^= 0x36);
            // SAFETY: `block` is one block of the hash, and the state has room for the bytes written: 16 (MD5), 20
            // (SHA-1), 32 (SHA-224 and SHA-256) or 64 (SHA-384 and SHA-512), as `rows` pairs them.
            unsafe {
                ffi::slmb_hmac_state(manager.ptr(), self.alg as u32, block.as_ptr(), prepared.inner.as_mut_ptr());
            }
            block.iter_mut().for_each(|b| *b ^= 0x36 ^ 0x5c);
            // SAFETY: as above.
            unsafe {
                ffi::slmb_hmac_state(manager.ptr(), self.alg as u32, block.as_ptr(), prepared.outer.as_mut_ptr());
            }
        });
        block.zeroize();
        done.map_err(|_| KeyError::Driver)?;
        Ok(prepared)
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        own_key::<HmacKey<STATE>>(key).portable.start()
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        let keys = |op: &MacOp<'_>| {
            let key = op.tfm.key::<HmacKey<STATE>>(slot);
            Some(Op { key: [key.inner.as_ptr(), key.outer.as_ptr(), core::ptr::null()], ..Op::EMPTY })
        };
        let other = |op: &mut MacOp<'_>| {
            op.status = op.tfm.key::<HmacKey<STATE>>(slot).portable.sign(op.data, op.tag);
        };
        // SAFETY: the states belong to the operation's transform, which it borrows.
        unsafe { self.digester.run(ops, keys, other) }
    }
}

/// CMAC, or XCBC, which differs from CMAC only in the derivation of the three keys.
struct BlockMac {
    xcbc: bool,
    digester: Digester,
    portable: Alg,
}

#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
struct BlockMacKey {
    schedule: [u8; 240],
    k1: [u8; 16],
    k2: [u8; 16],
    /// 16 or 32; 24 is left to the portable driver.
    key_len: u32,
    /// Wipes itself.
    #[zeroize(skip)]
    portable: MacTfm,
}

impl MacDriver for BlockMac {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let mut k = Box::new(BlockMacKey {
            schedule: [0; 240],
            k1: [0; 16],
            k2: [0; 16],
            key_len: u32::try_from(key.len()).map_err(|_| KeyError::Length)?,
            portable: self.portable.mac(key)?,
        });
        if !matches!((key.len(), self.xcbc), (16, _) | (24 | 32, false)) {
            return Err(KeyError::Length);
        }
        let mut decrypt = AesSchedule([0; 240]);
        manager::with(|manager| {
            let (m, schedule, k1, k2) = (manager.ptr(), k.schedule.as_mut_ptr(), k.k1.as_mut_ptr(), k.k2.as_mut_ptr());
            // SAFETY: the key has `key.len()` bytes, which is a length that each function takes, and the outputs are
            // aligned to 16 and have room for 15 round keys and for a block.
            unsafe {
                if self.xcbc {
                    ffi::slmb_xcbc_keys(m, key.as_ptr(), schedule, k1, k2);
                } else {
                    ffi::slmb_aes_expand(m, key.as_ptr(), key.len(), schedule, decrypt.0.as_mut_ptr());
                    if key.len() != 24 {
                        ffi::slmb_cmac_subkeys(m, schedule, key.len(), k1, k2);
                    }
                }
            }
        })
        .map_err(|_| KeyError::Driver)?;
        Ok(k)
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        own_key::<BlockMacKey>(key).portable.start()
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        let keys = |op: &MacOp<'_>| {
            let key = op.tfm.key::<BlockMacKey>(slot);
            (key.key_len != 24).then_some(Op {
                key: [key.schedule.as_ptr(), key.k1.as_ptr(), key.k2.as_ptr()],
                key_len: key.key_len,
                ..Op::EMPTY
            })
        };
        let other = |op: &mut MacOp<'_>| op.status = op.tfm.key::<BlockMacKey>(slot).portable.sign(op.data, op.tag);
        // SAFETY: the keys belong to the operation's transform, which it borrows.
        unsafe { self.digester.run(ops, keys, other) }
    }
}

/// Round keys that are discarded.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
struct AesSchedule([u8; 240]);

fn own_key<K: 'static>(key: &dyn PreparedKey) -> &K {
    let key: &dyn Any = key;
    key.downcast_ref().expect("a driver is given the keys that it prepared")
}

fn hmac<const STATE: usize>(portable: &Portable, hash: &str, alg: MbAlg, block_len: usize) -> Option<Row> {
    let reference = portable.alg(Kind::Hash, &format!("hmac({hash})"))?;
    let hash = portable.alg(Kind::Hash, hash)?.hash();
    let digester =
        Digester { entry: Entry::Jobs(alg), full: reference.info().digest_len, min_len: 1, over_reads: false };
    let driver = Hmac::<STATE> { alg, digester, block_len, hash, portable: reference.clone() };
    Some(row(reference.info(), Driver::Mac(Arc::new(driver))))
}

fn block_mac(portable: &Portable, name: &str, xcbc: bool) -> Option<Row> {
    let reference = portable.alg(Kind::Hash, name)?;
    // XCBC runs as CMAC jobs with XCBC's keys, because the library's XCBC jobs give tags of 12 bytes only.
    let digester = Digester { entry: Entry::Jobs(MbAlg::Cmac), full: 16, min_len: 0, over_reads: true };
    let driver = BlockMac { xcbc, digester, portable: reference.clone() };
    Some(row(reference.info(), Driver::Mac(Arc::new(driver))))
}

/// The rows of these MACs.
pub(crate) fn rows(portable: &Portable) -> Vec<Row> {
    [
        hmac::<16>(portable, "md5", MbAlg::HmacMd5, 64),
        hmac::<20>(portable, "sha1", MbAlg::HmacSha1, 64),
        hmac::<32>(portable, "sha224", MbAlg::HmacSha224, 64),
        hmac::<32>(portable, "sha256", MbAlg::HmacSha256, 64),
        hmac::<64>(portable, "sha384", MbAlg::HmacSha384, 128),
        hmac::<64>(portable, "sha512", MbAlg::HmacSha512, 128),
        block_mac(portable, "cmac(aes)", false),
        block_mac(portable, "xcbc(aes)", true),
    ]
    .into_iter()
    .flatten()
    .collect()
}
