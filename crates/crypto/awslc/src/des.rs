//! DES and triple DES (`des3_ede`), ECB and CBC, on key schedules in place. For old protocols only.

use crate::wipe::Wiped;
use aws_lc_sys as c;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver};
use sealane_crypto::{AlgInfo, CipherMode, KeyError, Lengths, OpError, Row, Status};
use std::sync::Arc;

const BLOCK_LEN: usize = 8;

type Schedule = Wiped<c::DES_key_schedule>;

fn schedule(key: &[u8; BLOCK_LEN]) -> Schedule {
    let mut schedule = Wiped(c::DES_key_schedule { subkeys: [[0; 2]; 16] });
    let key = Wiped(*key);
    // SAFETY: a `DES_cblock` is 8 bytes without alignment; the schedule is valid for writing. Weak keys are accepted,
    // as the kernel does unless asked otherwise.
    unsafe { c::DES_set_key_unchecked(key.0.as_ptr().cast(), &mut schedule.0) };
    schedule
}

struct SingleKey(Schedule);

struct TripleKey([Schedule; 3]);

struct Des {
    triple: bool,
    cbc: bool,
}

impl SkcipherDriver for Des {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let part = |i: usize| {
            let bytes = key.get(i * BLOCK_LEN..(i + 1) * BLOCK_LEN).and_then(|k| k.try_into().ok());
            bytes.map(schedule).ok_or(KeyError::Length)
        };
        match (self.triple, key.len()) {
            (false, 8) => Ok(Box::new(SingleKey(part(0)?))),
            (true, 24) => Ok(Box::new(TripleKey([part(0)?, part(1)?, part(2)?]))),
            _ => Err(KeyError::Length),
        }
    }

    fn one(&self, slot: usize, mut op: FlatSkcipherOp<'_, '_>) -> Status {
        let len = op.data.len();
        if !len.is_multiple_of(BLOCK_LEN) {
            return Err(OpError::Length);
        }
        if op.iv.len() != if self.cbc { BLOCK_LEN } else { 0 } {
            return Err(OpError::Nonce);
        }
        if len == 0 {
            return Ok(());
        }
        let enc = i32::from(op.dir == Direction::Encrypt);
        let (src, dst) = (op.data.get_in().as_ptr(), op.data.get_out().as_mut_ptr());
        let iv = op.iv.as_mut_ptr().cast();
        match (self.triple, self.cbc) {
            (false, true) => {
                let key = op.tfm.key::<SingleKey>(slot);
                // SAFETY: whole blocks; the halves of an `InOutBuf` are the same memory or apart; the IV has a block.
                unsafe { c::DES_ncbc_encrypt(src, dst, len, &key.0.0, iv, enc) };
            }
            (true, true) => {
                let [k1, k2, k3] = &op.tfm.key::<TripleKey>(slot).0;
                // SAFETY: as above.
                unsafe { c::DES_ede3_cbc_encrypt(src, dst, len, &k1.0, &k2.0, &k3.0, iv, enc) };
            }
            (false, false) => {
                let key = op.tfm.key::<SingleKey>(slot);
                for at in (0..len).step_by(BLOCK_LEN) {
                    // SAFETY: a whole block lies at `at`; blocks are the same memory or apart.
                    unsafe { c::DES_ecb_encrypt(src.add(at).cast(), dst.add(at).cast(), &key.0.0, enc) };
                }
            }
            (true, false) => {
                let [k1, k2, k3] = &op.tfm.key::<TripleKey>(slot).0;
                for at in (0..len).step_by(BLOCK_LEN) {
                    // SAFETY: as above.
                    unsafe {
                        c::DES_ecb3_encrypt(src.add(at).cast(), dst.add(at).cast(), &k1.0, &k2.0, &k3.0, enc);
                    }
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (cipher, triple, key_lens) in [("des", false, Lengths::Of(&[8])), ("des3_ede", true, Lengths::Of(&[24]))] {
        for (name, cbc) in [("ecb", false), ("cbc", true)] {
            let (mode, iv_len) = if cbc { (CipherMode::Cbc, BLOCK_LEN) } else { (CipherMode::Ecb, 0) };
            let info = AlgInfo::skcipher(&format!("{name}({cipher})"), BLOCK_LEN, key_lens, iv_len).mode(mode).legacy();
            let driver = Driver::Skcipher(Arc::new(Des { triple, cbc }));
            rows.push(crate::row::row(info, &format!("{name}-{cipher}"), driver));
        }
    }
    rows
}
