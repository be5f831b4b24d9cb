//! Hash operations (`crypto/algif_hash.c`).

use super::error::op_errno;
use super::iov::Sink;
use super::message::Received;
use crate::image::{Malformed, Reader, Writer};
use crate::rules::Rules;
use sealane_abi::Errno;
use sealane_abi::socket::MSG_TRUNC;
use sealane_crypto::hash::{self, HashState, HashTfm};
use sealane_crypto::mac::{MAX_TAG_LEN, MacTfm};
use sealane_crypto::{OpError, Status};
use zeroize::{Zeroize, Zeroizing};

/// The algorithm of a hash operation, with its key.
#[derive(Clone)]
pub(super) enum HashKey {
    Hash(HashTfm),
    Mac(MacTfm),
    /// Another process guards it.
    Elsewhere,
}

impl HashKey {
    fn one(&self, data: &[&[u8]], out: &mut [u8]) -> Status {
        match self {
            HashKey::Hash(tfm) => tfm.one(data, out),
            HashKey::Mac(tfm) => tfm.sign(data, out),
            HashKey::Elsewhere => Err(OpError::Driver),
        }
    }

    fn start(&self) -> Box<dyn HashState> {
        match self {
            HashKey::Hash(tfm) => tfm.start(),
            HashKey::Mac(tfm) => tfm.start(),
            HashKey::Elsewhere => hash::lost(),
        }
    }
}

/// The most of a message in pieces that is kept for other processes, in bytes.
const MAX_LOG: usize = 1 << 20;

/// The pieces of a running message since other processes have the operation, too: they add them to their own states.
/// Drivers' states have no form that another process could read.
#[derive(Default)]
struct Log {
    pieces: Zeroizing<Vec<u8>>,
    /// The message became too long: only the process that wrote it can go on with it.
    cut: bool,
}

impl Log {
    fn add(&mut self, piece: &[u8]) {
        if self.cut || self.pieces.len() + piece.len() > MAX_LOG {
            self.cut = true;
            self.pieces.zeroize();
            return;
        }
        if self.pieces.capacity() - self.pieces.len() < piece.len() {
            // Growth would leave plaintext in the memory of before.
            let mut more = Vec::with_capacity((self.pieces.len() + piece.len()).next_power_of_two());
            more.extend_from_slice(&self.pieces);
            self.pieces.zeroize();
            *self.pieces = more;
        }
        self.pieces.extend_from_slice(piece);
    }
}

/// A hash operation.
pub(super) struct HashOp {
    key: Option<HashKey>,
    /// Made at the first message that comes in pieces, and kept at its end; one that is given up takes it away.
    state: Option<Box<dyn HashState>>,
    /// The last send had MSG_MORE: `state` holds a message.
    more: bool,
    /// `result` holds the digest of a message that has ended.
    ready: bool,
    digest_len: usize,
    result: [u8; MAX_TAG_LEN],
    /// The number of messages in pieces that have ended.
    ended: u64,
    /// Bytes of the running message that are in `state`.
    len: u64,
    /// Bytes of the running message in all.
    total: u64,
    /// None while no other process has the operation.
    log: Option<Log>,
    /// `state` lacks pieces that another process has added.
    lost: bool,
    /// The driver has failed to end the last message, which has no result: until the next one begins there is none to receive.
    failed: bool,
}

impl HashOp {
    pub(super) fn new(digest_len: usize) -> Self {
        HashOp {
            key: None,
            state: None,
            more: false,
            ready: false,
            digest_len,
            result: [0; MAX_TAG_LEN],
            ended: 0,
            len: 0,
            total: 0,
            log: None,
            lost: false,
            failed: false,
        }
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
        let mut copy = HashOp::new(self.digest_len);
        copy.key = self.key.clone();
        copy.state = self.state.as_ref().filter(|_| self.more).map(|s| s.fork());
        (copy.more, copy.len, copy.total, copy.lost) = (self.more, self.len, self.total, self.lost);
        copy
    }

    pub(super) fn send(&mut self, data: &[&[u8]], more: bool) -> Result<usize, Errno> {
        let len: usize = data.iter().map(|d| d.len()).sum();
        if !self.more {
            // An unread result is dropped; an empty send does nothing else.
            (self.ready, self.failed) = (false, false);
            if len == 0 {
                return Ok(0);
            }
            if !more {
                let key = self.key.as_ref().ok_or(Errno::ENOKEY)?;
                let done = key.one(data, &mut self.result[..self.digest_len]);
                (self.ready, self.failed) = (done.is_ok(), done.is_err());
                return done.map(|()| len).map_err(op_errno);
            }
        }
        self.check_whole()?;
        if self.state.is_none() {
            self.state = Some(self.key()?.start());
        }
        if let Some(state) = &mut self.state {
            for piece in data {
                state.update(piece);
                self.len += piece.len() as u64;
                self.total = self.len;
                if let Some(log) = &mut self.log {
                    log.add(piece);
                }
            }
        }
        self.more = more;
        if !more {
            self.finish()?;
            self.ready = true;
        }
        Ok(len)
    }

    /// Ends a message in pieces, whose digest is the result.
    ///
    /// # Errors
    /// The driver's.
    fn finish(&mut self) -> Result<(), Errno> {
        let state = self.state.as_mut().ok_or(Errno::ENOKEY)?;
        let done = state.finish(&mut self.result[..self.digest_len]);
        self.more = false;
        self.failed = done.is_err();
        if self.failed {
            // One that found no room for a key has none for good: the next message looks again.
            self.state = None;
        }
        self.end_message();
        done.map_err(op_errno)
    }

    /// A message in pieces has ended.
    fn end_message(&mut self) {
        self.ended += 1;
        (self.len, self.total) = (0, 0);
        if let Some(log) = &mut self.log {
            *log = Log::default();
        }
    }

    /// # Errors
    /// [`Errno::EIO`] when pieces are missing; the message is given up.
    fn check_whole(&mut self) -> Result<(), Errno> {
        if !core::mem::take(&mut self.lost) {
            return Ok(());
        }
        self.give_up();
        Err(Errno::EIO)
    }

    /// A send that meets memory that cannot be read, behind `len` bytes: the message that was running is lost.
    pub(super) fn fault(&mut self, len: usize, more: bool, rules: Rules) -> Result<usize, Errno> {
        let result_stays = rules.hash_to_fault && self.ready && !more;
        self.give_up();
        self.ready = result_stays;
        if rules.hash_to_fault && len > 0 { Ok(len) } else { Err(Errno::EFAULT) }
    }

    /// Forgets the message that was running.
    fn give_up(&mut self) {
        self.state = None;
        self.ready = false;
        self.more = false;
        self.end_message();
    }

    /// Begins to keep what other processes need, or ends it.
    pub(super) fn share(&mut self, on: bool) {
        match on {
            true => _ = self.log.get_or_insert_default(),
            false => self.log = None,
        }
    }

    /// Writes its state, without the key, into an image.
    pub(super) fn save(&self, image: &mut Writer) {
        image.flag(self.more);
        image.flag(self.failed);
        image.option(self.ready.then(|| &self.result[..self.digest_len]));
        image.number(self.ended);
        image.number(self.total);
        let log = self.log.as_ref();
        image.flag(self.lost || log.is_some_and(|log| log.cut));
        image.bytes(log.map_or(&[], |log| &log.pieces));
    }

    /// Takes its state from an image, and adds the pieces that it lacks.
    pub(super) fn load(&mut self, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let (more, failed) = (image.flag()?, image.flag()?);
        let result = image.option()?;
        let (ended, total, cut, pieces) = (image.number()?, image.number()?, image.flag()?, image.bytes()?);
        if result.is_some_and(|r| r.len() != self.digest_len) || pieces.len() > MAX_LOG || ended < self.ended {
            return Err(Malformed);
        }
        if ended != self.ended {
            self.state = None;
            self.lost = false;
            self.len = 0;
            self.log = Some(Log::default());
        }
        self.ended = ended;
        let log = self.log.get_or_insert_default();
        if cut {
            log.cut = true;
            log.pieces.zeroize();
            self.lost |= self.len != total;
        } else {
            let missing = pieces.get(log.pieces.len()..).ok_or(Malformed)?;
            if self.lost || self.len.checked_add(missing.len() as u64) != Some(total) {
                return Err(Malformed);
            }
            self.len = total;
            if self.state.is_none() && (more || !missing.is_empty()) {
                self.state = Some(self.key.as_ref().ok_or(Malformed)?.start());
            }
            if let Some(state) = &mut self.state {
                state.update(missing);
            }
            log.add(missing);
        }
        self.total = total;
        (self.more, self.failed) = (more, failed);
        self.ready = result.is_some();
        self.result[..self.digest_len].copy_from_slice(result.unwrap_or(&[0; MAX_TAG_LEN][..self.digest_len]));
        Ok(())
    }

    pub(super) fn recv(&mut self, sink: &mut Sink<'_, '_>) -> Result<Received, Errno> {
        if !self.ready {
            if self.failed {
                return Err(Errno::EIO);
            }
            self.check_whole()?;
            if self.more {
                self.finish()?;
            } else {
                let key = self.key.as_ref().ok_or(Errno::ENOKEY)?;
                key.one(&[], &mut self.result[..self.digest_len]).map_err(op_errno)?;
            }
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
