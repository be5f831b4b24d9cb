//! `cts(cbc(X))`: CBC with ciphertext stealing, variant CS3 (SP 800-38A addendum, RFC 3962). The last two blocks are
//! always swapped, even when no byte is stolen.

use super::part::{only_part, row};
use crate::data::Data;
use crate::error::{KeyError, OpError, Status};
use crate::info::{AlgInfo, CipherMode, Kind};
use crate::key::PreparedKey;
use crate::registry::{Alg, Driver, Registry, Row};
use crate::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver, SkcipherTfm};
use crate::template::Name;
use std::sync::Arc;
use zeroize::Zeroizing;

const MAX_BLOCK: usize = 16;

pub(super) fn cts(registry: &Registry, name: &Name<'_>) -> Option<Row> {
    let cbc = only_part(registry, Kind::Skcipher, name, "cts")?;
    let info = cbc.info();
    // The mode is checked as well, as in Linux (`crypto/cts.c`): a mode with an IV of one block need not be CBC.
    if info.iv_len != info.block_len || info.block_len > MAX_BLOCK || info.mode != CipherMode::Cbc {
        return None;
    }
    let info = AlgInfo::skcipher("", info.block_len, info.key_lens, info.iv_len);
    Some(row("cts", &[&cbc], info, Driver::Skcipher(Arc::new(Cts { cbc: cbc.clone() }))))
}

struct Cts {
    cbc: Alg,
}

/// The IV on return is the same as under Linux's template: the ciphertext block of the last CBC step, which is the last
/// but one of the ciphertext.
impl SkcipherDriver for Cts {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(self.cbc.skcipher(key)?))
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        let cbc = op.tfm.key::<SkcipherTfm>(slot);
        let block = self.cbc.info().block_len;
        let len = op.data.len();
        if len < block {
            return Err(OpError::Length);
        }
        if len == block {
            return cbc.one(op.dir, op.iv, Data::Flat(op.data));
        }
        let tail_len = (len - 1) % block + 1;
        let (mut head, mut tail) = op.data.split_at(len - tail_len);
        // The ciphertext of the last full block of the head is swapped with that of the tail.
        let last = head.len() - block;
        let mut own = Zeroizing::new([0; MAX_BLOCK]);
        let mut other = Zeroizing::new([0; MAX_BLOCK]);
        let (own, other) = (&mut own[..block], &mut other[..block]);
        match op.dir {
            Direction::Encrypt => {
                cbc.one(op.dir, op.iv, Data::Flat(head.reborrow()))?;
                other[..tail_len].copy_from_slice(tail.get_in());
                tail.get_out().copy_from_slice(&head.get_out()[last..][..tail_len]);
                cbc.one(op.dir, op.iv, other.into())?;
                head.get_out()[last..].copy_from_slice(other);
            }
            Direction::Decrypt => {
                let (bulk, mut head_last) = head.split_at(last);
                let mut chain = [0; MAX_BLOCK];
                own.copy_from_slice(head_last.get_in());
                chain[..block].copy_from_slice(own);
                cbc.one(op.dir, op.iv, Data::Flat(bulk))?;
                // One block of CBC under a zero IV is the bare cipher.
                cbc.one(op.dir, &mut [0; MAX_BLOCK][..block], own.as_mut().into())?;
                other.copy_from_slice(own);
                other[..tail_len].copy_from_slice(tail.get_in());
                own.iter_mut().zip(tail.get_in()).for_each(|(o, t)| *o ^= t);
                tail.get_out().copy_from_slice(&own[..tail_len]);
                cbc.one(op.dir, op.iv, other.as_mut().into())?;
                head_last.get_out().copy_from_slice(other);
                op.iv.copy_from_slice(&chain[..block]);
            }
        }
        Ok(())
    }
}
