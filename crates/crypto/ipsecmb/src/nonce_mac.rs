//! GMAC, which is GCM without text, and Poly1305.

use crate::batch::{Digester, Entry};
use crate::fallback::Portable;
use crate::ffi::{MbAlg, Op};
use crate::gcm_key::{GcmKey, NONCE_LEN};
use crate::row::row;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{NonceMacDriver, NonceMacOp, NonceMacTfm};
use sealane_crypto::registry::{Alg, Driver};
use sealane_crypto::{KeyError, Kind, OpError, Row};
use std::sync::Arc;
use zeroize::{Zeroize, ZeroizeOnDrop};

const GMAC: Digester = Digester { entry: Entry::Gcm, full: 16, min_len: 0, over_reads: false };
const POLY1305: Digester = Digester { entry: Entry::Jobs(MbAlg::Poly1305), full: 16, min_len: 1, over_reads: false };

struct Gmac {
    portable: Alg,
}

struct GmacKey {
    gcm: GcmKey,
    portable: NonceMacTfm,
}

impl NonceMacDriver for Gmac {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let mut prepared = Box::new(GmacKey { gcm: GcmKey::EMPTY, portable: self.portable.nonce_mac(key)? });
        prepared.gcm.set(key)?;
        Ok(prepared)
    }

    fn burst(&self, slot: usize, ops: &mut [NonceMacOp<'_>]) {
        let keys = |op: &NonceMacOp<'_>| {
            let key = op.tfm.key::<GmacKey>(slot);
            (op.nonce.len() == NONCE_LEN).then(|| Op { iv: op.nonce.as_ptr(), ..key.gcm.op() })
        };
        let other = |op: &mut NonceMacOp<'_>| {
            op.status = if op.nonce.len() == NONCE_LEN {
                op.tfm.key::<GmacKey>(slot).portable.sign(op.nonce, op.data, op.tag)
            } else {
                Err(OpError::Nonce)
            };
        };
        // SAFETY: the key belongs to the operation's transform, which it borrows, as it does the nonce of 12 bytes.
        unsafe { GMAC.run(ops, keys, other) }
    }
}

struct Poly1305 {
    portable: Alg,
}

#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
struct Poly1305Key {
    key: [u8; 32],
    /// Wipes itself.
    #[zeroize(skip)]
    portable: NonceMacTfm,
}

impl NonceMacDriver for Poly1305 {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let mut prepared = Box::new(Poly1305Key { key: [0; 32], portable: self.portable.nonce_mac(key)? });
        if key.len() != prepared.key.len() {
            return Err(KeyError::Length);
        }
        prepared.key.copy_from_slice(key);
        Ok(prepared)
    }

    fn burst(&self, slot: usize, ops: &mut [NonceMacOp<'_>]) {
        let keys = |op: &NonceMacOp<'_>| {
            let key = op.tfm.key::<Poly1305Key>(slot).key.as_ptr();
            op.nonce.is_empty().then_some(Op { key: [key, core::ptr::null(), core::ptr::null()], ..Op::EMPTY })
        };
        let other = |op: &mut NonceMacOp<'_>| {
            op.status = op.tfm.key::<Poly1305Key>(slot).portable.sign(op.nonce, op.data, op.tag);
        };
        // SAFETY: the key belongs to the operation's transform, which it borrows.
        unsafe { POLY1305.run(ops, keys, other) }
    }
}

/// The rows of these MACs.
pub(crate) fn rows(portable: &Portable) -> Vec<Row> {
    let gmac = portable.alg(Kind::NonceMac, "gmac(aes)").map(|reference| {
        let driver = Gmac { portable: reference.clone() };
        row(reference.info(), Driver::NonceMac(Arc::new(driver)))
    });
    let poly1305 = portable.alg(Kind::NonceMac, "poly1305").map(|reference| {
        let driver = Poly1305 { portable: reference.clone() };
        row(reference.info(), Driver::NonceMac(Arc::new(driver)))
    });
    gmac.into_iter().chain(poly1305).collect()
}
