//! Ciphers: one `sendmsg` with operation and IV, one `readv`.

use crate::held::held;
use crate::sockets::{KeyId, Wanted, with};
use crate::sys::Control;
use sealane_crypto::data::Data;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver, SkcipherTfm};
use sealane_crypto::{Alg, AlgInfo, CipherMode, KeyError, OpError, Status};
use sealane_guarded::Held;
use std::sync::Arc;

/// The longest text that is sent at once. Sockets buffer about 200 KiB; a longer send would block, and this thread
/// could not receive.
pub(crate) const MAX_LEN: usize = 128 << 10;

/// The IV on return. AF_ALG does not return it, so it is computed here.
#[derive(Clone, Copy)]
enum IvOut {
    /// Unchanged.
    Same,
    /// The last block of ciphertext.
    LastBlock,
    /// A big-endian counter, incremented for each block.
    Counter,
}

struct KernelSkcipher {
    info: AlgInfo,
    iv_out: IvOut,
    portable: Alg,
}

struct SkcipherKey {
    id: KeyId,
    bytes: Held<[u8]>,
    portable: SkcipherTfm,
}

impl SkcipherDriver for KernelSkcipher {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let portable = self.portable.skcipher(key)?;
        let id = KeyId::new().map_err(|_| KeyError::Driver)?;
        Ok(Box::new(SkcipherKey { id, bytes: held(key)?, portable }))
    }

    fn one(&self, slot: usize, mut op: FlatSkcipherOp<'_, '_>) -> Status {
        let len = op.data.len();
        let block = self.info.block_len;
        if !len.is_multiple_of(block) {
            return Err(OpError::Length);
        }
        if op.iv.len() != self.info.iv_len {
            return Err(OpError::Nonce);
        }
        if len == 0 {
            return Ok(());
        }
        let key = op.tfm.key::<SkcipherKey>(slot);
        if len > MAX_LEN {
            return key.portable.one(op.dir, op.iv, Data::Flat(op.data));
        }
        let encrypt = op.dir == Direction::Encrypt;
        let mut next = [0u8; crate::sys::MAX_IV_LEN];
        let next = &mut next[..op.iv.len()];
        if matches!(self.iv_out, IvOut::LastBlock) && !encrypt {
            next.copy_from_slice(&op.data.get_in()[len - block..]);
        }
        let wanted =
            Wanted { id: key.id, kind: "skcipher", name: &self.info.name, key: Some(key.bytes.get()), authsize: 0 };
        let control = Control { encrypt, iv: op.iv, assoc_len: None };
        with(&wanted, |socket| {
            socket.send(Some(&control), &[op.data.get_in()], false)?;
            socket.recv(&mut [op.data.get_out()])
        })
        .map_err(|_| OpError::Driver)?;
        match self.iv_out {
            IvOut::Same => {}
            IvOut::LastBlock if encrypt => op.iv.copy_from_slice(&op.data.get_out()[len - block..]),
            IvOut::LastBlock => op.iv.copy_from_slice(next),
            IvOut::Counter => {
                let mut carry = len.div_ceil(op.iv.len()) as u64;
                for byte in op.iv.iter_mut().rev() {
                    carry += u64::from(*byte);
                    *byte = carry as u8;
                    carry >>= 8;
                }
            }
        }
        Ok(())
    }
}

/// The driver of a mode whose IV on return can be computed outside the kernel: ECB, CBC, CTR and ChaCha20.
pub(crate) fn driver(info: &AlgInfo, portable: Alg) -> Option<Driver> {
    let iv_out = match info.mode {
        CipherMode::Ecb | CipherMode::ChaCha20 => IvOut::Same,
        CipherMode::Cbc => IvOut::LastBlock,
        CipherMode::Ctr => IvOut::Counter,
        CipherMode::Xts | CipherMode::Ccm | CipherMode::Other => return None,
    };
    Some(Driver::Skcipher(Arc::new(KernelSkcipher { info: info.clone(), iv_out, portable })))
}
