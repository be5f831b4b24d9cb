//! Hash operations (`crypto/algif_hash.c`).

use super::error::op_errno;
use super::iov::Sink;
use super::message::Received;
use sealane_abi::Errno;
use sealane_abi::socket::MSG_TRUNC;
use sealane_crypto::Status;
use sealane_crypto::hash::{HashState, HashTfm};
use sealane_crypto::mac::{MAX_TAG_LEN, MacTfm};
use zeroize::Zeroize;

/// The algorithm of a hash operation, with its key.
#[derive(Clone)]
pub(super) enum HashKey {
    Hash(HashTfm),
    Mac(MacTfm),
}

impl HashKey {
    fn one(&self, data: &[&[u8]], out: &mut [u8]) -> Status {
        match self {
            HashKey::Hash(tfm) => tfm.one(data, out),
            HashKey::Mac(tfm) => tfm.sign(data, out),
        }
    }

    fn start(&self) -> Box<dyn HashState> {
        match self {
            HashKey::Hash(tfm) => tfm.start(),
            HashKey::Mac(tfm) => tfm.start(),
        }
    }
}

/// A hash operation.
pub(super) struct HashOp {
    key: Option<HashKey>,
    /// Made at the first message that comes in pieces, and kept: between messages it is at its start.
    state: Option<Box<dyn HashState>>,
    /// The last send had MSG_MORE: `state` holds a message.
    more: bool,
    /// `result` holds the digest of a message that has ended.
    ready: bool,
    digest_len: usize,
    result: [u8; MAX_TAG_LEN],
}

impl HashOp {
    pub(super) fn new(digest_len: usize) -> Self {
        HashOp { key: None, state: None, more: false, ready: false, digest_len, result: [0; MAX_TAG_LEN] }
    }

    pub(super) fn set_key(&mut self, key: HashKey) {
        self.key = Some(key);
    }

    /// # Errors
    /// [`Errno::ENOKEY`].
    fn key(&self) -> Result<&HashKey, Errno> {
        self.key.as_ref().ok_or(Errno::ENOKEY)
    }

    /// A second operation that continues the message, if one is running.
    pub(super) fn copy(&self) -> HashOp {
        HashOp {
            key: self.key.clone(),
            state: self.state.as_ref().filter(|_| self.more).map(|s| s.fork()),
            more: self.more,
            ..HashOp::new(self.digest_len)
        }
    }

    pub(super) fn send(&mut self, data: &[&[u8]], more: bool) -> Result<usize, Errno> {
        let len: usize = data.iter().map(|d| d.len()).sum();
        if !self.more {
            // An unread result is dropped; an empty send does nothing else.
            self.ready = false;
            if len == 0 {
                return Ok(0);
            }
            if !more {
                let key = self.key.as_ref().ok_or(Errno::ENOKEY)?;
                key.one(data, &mut self.result[..self.digest_len]).map_err(op_errno)?;
                self.ready = true;
                return Ok(len);
            }
        }
        if self.state.is_none() {
            self.state = Some(self.key()?.start());
        }
        if let Some(state) = &mut self.state {
            for piece in data {
                state.update(piece);
            }
            if !more {
                state.finish(&mut self.result[..self.digest_len]);
                self.ready = true;
            }
        }
        self.more = more;
        Ok(len)
    }

    /// A send that meets memory that cannot be read: the message that was running is lost.
    pub(super) fn fault(&mut self) -> Result<usize, Errno> {
        if let Some(state) = &mut self.state {
            state.reset();
        }
        self.ready = false;
        self.more = false;
        Err(Errno::EFAULT)
    }

    pub(super) fn recv(&mut self, sink: &mut Sink<'_, '_>) -> Result<Received, Errno> {
        if !self.ready {
            match &mut self.state {
                Some(state) if self.more => state.finish(&mut self.result[..self.digest_len]),
                _ => {
                    let key = self.key.as_ref().ok_or(Errno::ENOKEY)?;
                    key.one(&[], &mut self.result[..self.digest_len]).map_err(op_errno)?;
                }
            }
            self.more = false;
        }
        self.ready = false;
        let flags = if sink.left < self.digest_len { MSG_TRUNC } else { 0 };
        let len = sink.left.min(self.digest_len);
        sink.check(len)?;
        sink.write(&self.result[..len]);
        Ok(Received { len, flags })
    }
}

impl Drop for HashOp {
    fn drop(&mut self) {
        self.result.zeroize();
    }
}
