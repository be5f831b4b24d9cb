//! SHA-1 and SHA-2 by the library's multi-buffer routines.

use crate::batch::{Digester, Entry};
use crate::fallback::Portable;
use crate::ffi::{MbAlg, Op};
use crate::row::row;
use sealane_crypto::hash::{HashDriver, HashOp, HashState, HashTfm};
use sealane_crypto::registry::Driver;
use sealane_crypto::{Kind, Row};
use std::sync::Arc;

struct Sha {
    digester: Digester,
    portable: HashTfm,
}

impl HashDriver for Sha {
    fn start(&self) -> Box<dyn HashState> {
        // A message that arrives piece by piece would leave the other lanes empty.
        self.portable.start()
    }

    fn burst(&self, ops: &mut [HashOp<'_>]) {
        // SAFETY: a plain hash has no key.
        unsafe {
            self.digester.run(ops, |_| Some(Op::EMPTY), |op| op.status = self.portable.one(op.data, op.digest));
        }
    }
}

/// The rows of the hashes.
pub(crate) fn rows(portable: &Portable) -> Vec<Row> {
    let table = [
        ("sha1", MbAlg::Sha1, 20),
        ("sha224", MbAlg::Sha224, 28),
        ("sha256", MbAlg::Sha256, 32),
        ("sha384", MbAlg::Sha384, 48),
        ("sha512", MbAlg::Sha512, 64),
    ];
    table
        .into_iter()
        .filter_map(|(name, alg, full)| {
            let reference = portable.alg(Kind::Hash, name)?;
            let digester = Digester { entry: Entry::Jobs(alg), full, min_len: 0, over_reads: false };
            let driver = Sha { digester, portable: reference.hash() };
            Some(row(reference.info(), Driver::Hash(Arc::new(driver))))
        })
        .collect()
}
