//! Hashes and MACs: one `sendmsg` and one `readv` for each message.

use crate::held::held;
use crate::sockets::{KeyId, Wanted, with};
use crate::sys::MAX_PIECES;
use sealane_crypto::hash::{HashDriver, HashOp, HashState, HashTfm};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MAX_TAG_LEN, MacDriver, MacOp, MacTfm};
use sealane_crypto::registry::Driver;
use sealane_crypto::{Alg, AlgInfo, KeyError, OpError, Status};
use sealane_guarded::Held;
use std::any::Any;
use std::sync::Arc;

fn digest(wanted: &Wanted<'_>, full: usize, data: &[&[u8]], out: &mut [u8]) -> Status {
    let mut digest = [0u8; MAX_TAG_LEN];
    let digest = digest.get_mut(..full).ok_or(OpError::Driver)?;
    with(wanted, |op| {
        let mut chunks = data.chunks(MAX_PIECES).peekable();
        if chunks.peek().is_none() {
            op.send(None, &[], false)?;
        }
        while let Some(chunk) = chunks.next() {
            op.send(None, chunk, chunks.peek().is_some())?;
        }
        op.recv(&mut [&mut *digest])
    })
    .map_err(|_| OpError::Driver)?;
    out.copy_from_slice(&digest[..out.len()]);
    Ok(())
}

struct KernelHash {
    id: KeyId,
    name: String,
    digest_len: usize,
    portable: HashTfm,
}

impl HashDriver for KernelHash {
    /// The portable driver keeps the state, because it lies in memory that processes share, and a socket cannot.
    fn start(&self) -> Box<dyn HashState> {
        self.portable.start()
    }

    fn burst(&self, ops: &mut [HashOp<'_>]) {
        let wanted = Wanted { id: self.id, kind: "hash", name: &self.name, key: None, authsize: 0 };
        for op in ops {
            op.status = digest(&wanted, self.digest_len, op.data, op.digest);
        }
    }
}

pub(crate) fn hash(info: &AlgInfo, portable: Alg) -> Option<Driver> {
    let id = KeyId::new().ok()?;
    let (name, digest_len) = (info.name.clone(), info.digest_len);
    Some(Driver::Hash(Arc::new(KernelHash { id, name, digest_len, portable: portable.hash() })))
}

struct KernelMac {
    name: String,
    digest_len: usize,
    portable: Alg,
}

struct HashKey {
    id: KeyId,
    bytes: Held<[u8]>,
    portable: MacTfm,
}

impl MacDriver for KernelMac {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let portable = self.portable.mac(key)?;
        let id = KeyId::new().map_err(|_| KeyError::Driver)?;
        Ok(Box::new(HashKey { id, bytes: held(key)?, portable }))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        let key: &dyn Any = key;
        key.downcast_ref::<HashKey>().expect("the key that prepare returned").portable.start()
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        for op in ops {
            let key = op.tfm.key::<HashKey>(slot);
            let wanted = Wanted { id: key.id, kind: "hash", name: &self.name, key: Some(key.bytes.get()), authsize: 0 };
            op.status = digest(&wanted, self.digest_len, op.data, op.tag);
        }
    }
}

pub(crate) fn mac(info: &AlgInfo, portable: Alg) -> Option<Driver> {
    Some(Driver::Mac(Arc::new(KernelMac { name: info.name.clone(), digest_len: info.digest_len, portable })))
}
