//! AEADs: each request and each result is one message of associated data, text and tag.

use crate::held::held;
use crate::skcipher::MAX_LEN;
use crate::sockets::{KeyId, Wanted, with};
use crate::sys::{Control, MAX_PIECES};
use sealane_crypto::aead::{AeadDriver, AeadTfm, FlatAeadOp};
use sealane_crypto::data::Data;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{Alg, AlgInfo, KeyError, OpError, Status};
use sealane_guarded::Held;
use std::sync::Arc;

/// The longest associated data that is sent to the kernel, which returns it with the result.
const MAX_AAD_LEN: usize = 1024;

struct KernelAead {
    info: AlgInfo,
    portable: Alg,
}

struct AeadKey {
    id: KeyId,
    bytes: Held<[u8]>,
    portable: AeadTfm,
}

impl AeadDriver for KernelAead {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let portable = self.portable.aead(key)?;
        let id = KeyId::new().map_err(|_| KeyError::Driver)?;
        Ok(Box::new(AeadKey { id, bytes: held(key)?, portable }))
    }

    fn one(&self, slot: usize, mut op: FlatAeadOp<'_, '_>) -> Status {
        let key = op.tfm.key::<AeadKey>(slot);
        let aad_len: usize = op.aad.iter().map(|a| a.len()).sum();
        if aad_len > MAX_AAD_LEN || op.data.len() > MAX_LEN || op.aad.len() + 2 > MAX_PIECES {
            return key.portable.one(op.dir, op.nonce, op.aad, Data::Flat(op.data), op.tag);
        }
        let encrypt = op.dir == Direction::Encrypt;
        let wanted = Wanted {
            id: key.id,
            kind: "aead",
            name: &self.info.name,
            key: Some(key.bytes.get()),
            authsize: op.tag.len(),
        };
        let control = Control { encrypt, iv: op.nonce, assoc_len: Some(aad_len) };
        let mut aad_back = [0u8; MAX_AAD_LEN];
        let aad_back = &mut aad_back[..aad_len];
        let done = with(&wanted, |socket| {
            let mut pieces: [&[u8]; MAX_PIECES] = [&[]; MAX_PIECES];
            pieces[..op.aad.len()].copy_from_slice(op.aad);
            pieces[op.aad.len()] = op.data.get_in();
            if !encrypt {
                pieces[op.aad.len() + 1] = op.tag;
            }
            socket.send(Some(&control), &pieces[..op.aad.len() + 2], false)?;
            if encrypt {
                socket.recv(&mut [aad_back, op.data.get_out(), op.tag])
            } else {
                socket.recv(&mut [aad_back, op.data.get_out()])
            }
        });
        match done.map_err(|e| e.raw_os_error()) {
            Ok(()) => Ok(()),
            Err(Some(libc::EBADMSG)) => {
                op.data.get_out().fill(0);
                Err(OpError::Auth)
            }
            // EINVAL has several causes (CCM's IV, lengths of composite algorithms). The portable driver finds which.
            Err(Some(libc::EINVAL)) => key.portable.one(op.dir, op.nonce, op.aad, Data::Flat(op.data), op.tag),
            Err(_) => Err(OpError::Driver),
        }
    }
}

pub(crate) fn driver(info: &AlgInfo, portable: Alg) -> Option<Driver> {
    Some(Driver::Aead(Arc::new(KernelAead { info: info.clone(), portable })))
}
