//! Message authentication codes: keyed hashes (HMAC, CMAC, ...), and MACs that need a nonce.
//!
//! The two are different types on purpose: a nonce MAC (GMAC, Poly1305) reveals its key when a nonce is used twice, so
//! it must not be accepted in place of a plain MAC (TCP-AO has no nonce).

use crate::choice::{MeasuredDirection, STREAM_BYTES, Selection};
use crate::error::{KeyError, OpError, Status};
use crate::hash::{self, HashState};
use crate::info::AlgInfo;
use crate::key::{self, PreparedKey, RowDriver, Slots, prepare};
use crate::wipe::wipe;
use arrayvec::ArrayVec;

/// The longest tag of any MAC here (HMAC-SHA-512, BLAKE2b-512), in bytes.
pub const MAX_TAG_LEN: usize = 64;

/// Tags that a verification computes at a time, on the stack.
const VERIFY_CHUNK: usize = 64;

/// One message to authenticate.
pub struct MacOp<'a> {
    /// The key. Keys may differ within a burst; their algorithm should not.
    pub tfm: &'a MacTfm,
    /// The message, in pieces.
    pub data: &'a [&'a [u8]],
    /// Receives the first `tag.len()` bytes of the tag; at most the full length.
    pub tag: &'a mut [u8],
    /// Set by the driver.
    pub status: Status,
}

impl<'a> MacOp<'a> {
    /// An operation that has not run yet.
    #[inline]
    pub fn new(tfm: &'a MacTfm, data: &'a [&'a [u8]], tag: &'a mut [u8]) -> Self {
        MacOp { tfm, data, tag, status: Ok(()) }
    }

    /// Length of the message in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match self.data {
            [one] => one.len(),
            pieces => pieces.iter().map(|d| d.len()).sum(),
        }
    }

    /// Whether the message is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A driver for one MAC.
pub trait MacDriver: Send + Sync {
    /// Prepares a key.
    ///
    /// # Errors
    /// When the length is not one the algorithm takes.
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError>;
    /// A state before the first byte, under a key that this driver prepared. The state must not borrow the key.
    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState>;
    /// Computes each tag of `ops`. The key of an operation is `op.tfm.key::<K>(slot)`.
    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]);
}

/// A MAC under a key.
#[derive(Clone)]
pub struct MacTfm {
    selection: Selection,
    slots: Slots<dyn MacDriver>,
}

impl MacTfm {
    pub(crate) fn new<'a>(
        selection: Selection,
        drivers: impl Iterator<Item = RowDriver<'a, dyn MacDriver>>,
        key: &[u8],
    ) -> Result<Self, KeyError> {
        let make = || prepare(drivers, |driver| driver.prepare(key));
        // There is nothing to guard in no key.
        let slots = if key.is_empty() { sealane_guarded::unguarded(make) } else { make() };
        Ok(MacTfm { selection, slots: slots? })
    }

    /// The algorithm.
    #[inline]
    #[must_use]
    pub fn info(&self) -> &AlgInfo {
        self.selection.info()
    }

    /// Whether both are transforms of one [`Alg`](crate::Alg), so that operations under both may share a burst.
    #[inline]
    #[must_use]
    pub fn same_alg(&self, other: &Self) -> bool {
        self.selection.same(&other.selection)
    }

    /// For drivers: the key that the driver in `slot` prepared.
    #[must_use]
    pub fn key<K: 'static>(&self, slot: usize) -> &K {
        self.slots[slot].key_as()
    }

    /// For drivers: the address of that key. Transforms of one algorithm ([`Self::same_alg`]) have keys of one type in
    /// one slot, so a driver that has checked the type of one need not check the others.
    #[inline]
    #[must_use]
    pub fn key_address(&self, slot: usize) -> *const () {
        core::ptr::from_ref(self.slots[slot].key()).cast()
    }

    /// Computes one tag.
    ///
    /// # Errors
    /// The driver's; software drivers do not fail.
    pub fn sign(&self, data: &[&[u8]], tag: &mut [u8]) -> Status {
        let mut op = [MacOp::new(self, data, tag)];
        let bytes = op[0].len();
        run_alg(&mut op, bytes);
        op[0].status
    }

    /// Checks one tag, in constant time; `tag` may be truncated.
    ///
    /// # Errors
    /// [`OpError::Auth`] when it does not match, [`OpError::TagLen`] when it is empty or too long.
    pub fn verify(&self, data: &[&[u8]], tag: &[u8]) -> Status {
        let mut op = [VerifyOp { tfm: self, data, tag, status: Ok(()) }];
        verify(&mut op);
        op[0].status
    }

    /// Starts a message whose pieces are not known yet. If it cannot be started, it has no tag ([`OpError::Driver`]).
    #[must_use]
    pub fn start(&self) -> Box<dyn HashState> {
        self.try_start().unwrap_or_else(|_| hash::lost())
    }

    /// The same, for a caller that looks.
    ///
    /// # Errors
    /// [`OpError::Driver`] when the key is not in this process, or guarded memory has no room for the message.
    pub fn try_start(&self) -> Result<Box<dyn HashState>, OpError> {
        let keyed = &self.slots[self.selection.pick(MeasuredDirection::Forward, STREAM_BYTES, 1)];
        let _open = keyed.open()?;
        let state = keyed.driver.start(keyed.key());
        if keyed.is_guarded() { hash::hold(state, keyed.traces) } else { Ok(state) }
    }
}

/// Computes each tag of `ops`; runs of one algorithm go to one driver together.
pub fn sign(mut ops: &mut [MacOp<'_>]) {
    while let [first, ..] = ops {
        let tfm = first.tfm;
        // One pass finds the end of the run and its bytes.
        let (mut count, mut bytes) = (0, 0);
        for op in ops.iter().take_while(|op| op.tfm.same_alg(tfm)) {
            count += 1;
            bytes += op.len();
        }
        let (run, rest) = ops.split_at_mut(count);
        ops = rest;
        run_alg(run, bytes);
    }
}

/// Runs operations of one algorithm, `bytes` in all.
fn run_alg(ops: &mut [MacOp<'_>], bytes: usize) {
    let tfm = ops[0].tfm;
    let slot = tfm.selection.pick(MeasuredDirection::Forward, bytes / ops.len(), ops.len());
    key::burst(ops, |op| &op.tfm.slots[slot], |run| tfm.slots[slot].driver.burst(slot, run), |op| &mut op.status);
}

/// One tag to check.
pub struct VerifyOp<'a> {
    /// The key.
    pub tfm: &'a MacTfm,
    /// The message, in pieces.
    pub data: &'a [&'a [u8]],
    /// The tag that came with it, possibly truncated.
    pub tag: &'a [u8],
    /// Set by [`verify`]: [`OpError::Auth`] when the tag does not match.
    pub status: Status,
}

/// Checks each tag of `ops` in constant time. An empty tag never matches, nor does any tag under a null driver.
#[expect(clippy::missing_panics_doc, reason = "there are as many buffers as operations in a chunk")]
pub fn verify(ops: &mut [VerifyOp<'_>]) {
    if let [only] = ops {
        let mut buf = [0u8; MAX_TAG_LEN];
        check_len(only);
        let mut sign_op = [MacOp::new(only.tfm, only.data, &mut buf[..only.tag_len()])];
        let bytes = sign_op[0].len();
        run_alg(&mut sign_op, bytes);
        let MacOp { tag, status, .. } = &sign_op[0];
        only.judge(tag, *status);
        wipe(&mut buf);
        return;
    }
    let used = ops.len().min(VERIFY_CHUNK);
    let mut tags = [[0u8; MAX_TAG_LEN]; VERIFY_CHUNK];
    for chunk in ops.chunks_mut(VERIFY_CHUNK) {
        let mut buf = tags.iter_mut();
        let mut sign_ops: ArrayVec<MacOp<'_>, VERIFY_CHUNK> = ArrayVec::new();
        for op in chunk.iter_mut() {
            check_len(op);
            let tag = buf.next().expect("as many buffers as operations");
            sign_ops.push(MacOp::new(op.tfm, op.data, &mut tag[..op.tag_len()]));
        }
        sign(&mut sign_ops);
        for (op, done) in chunk.iter_mut().zip(&sign_ops) {
            op.judge(done.tag, done.status);
        }
    }
    wipe(tags[..used].as_flattened_mut());
}

fn check_len(op: &mut VerifyOp<'_>) {
    let full = op.tfm.info().digest_len;
    op.status = if op.tag.is_empty() || op.tag.len() > full {
        Err(OpError::TagLen)
    } else if op.tfm.selection.computes_nothing() {
        Err(OpError::Auth)
    } else {
        Ok(())
    };
}

impl VerifyOp<'_> {
    fn tag_len(&self) -> usize {
        self.tag.len().min(self.tfm.info().digest_len)
    }

    fn judge(&mut self, computed: &[u8], status: Status) {
        if self.status.is_err() {
            return;
        }
        self.status = match status {
            Ok(()) if same(computed, self.tag) => Ok(()),
            Ok(()) => Err(OpError::Auth),
            Err(e) => Err(e),
        };
    }
}

/// Compares tags in a time that depends only on their lengths. It goes word by word: byte by byte, as `subtle` does,
/// the comparison takes a tenth of the time of a short MAC.
#[must_use]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    let (a_words, a_tail) = a.as_chunks::<4>();
    let (b_words, b_tail) = b.as_chunks::<4>();
    let mut differing = 0;
    for (x, y) in a_words.iter().zip(b_words) {
        differing |= u32::from_ne_bytes(*x) ^ u32::from_ne_bytes(*y);
    }
    for (x, y) in a_tail.iter().zip(b_tail) {
        differing |= u32::from(x ^ y);
    }
    // The barrier hides the meaning of `differing` from the compiler, so that the loops do not end early.
    a.len() == b.len() && core::hint::black_box(differing) == 0
}

/// One message to authenticate under a nonce.
pub struct NonceMacOp<'a> {
    /// The key.
    pub tfm: &'a NonceMacTfm,
    /// The nonce, unique for each message under one key; [`AlgInfo::iv_len`](crate::AlgInfo::iv_len) bytes. Empty for
    /// Poly1305, whose key serves one message only.
    pub nonce: &'a [u8],
    /// The message, in pieces.
    pub data: &'a [&'a [u8]],
    /// Receives the first `tag.len()` bytes of the tag.
    pub tag: &'a mut [u8],
    /// Set by the driver.
    pub status: Status,
}

/// A driver for one nonce MAC.
pub trait NonceMacDriver: Send + Sync {
    /// Prepares a key.
    ///
    /// # Errors
    /// When the length is not one the algorithm takes.
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError>;
    /// Computes each tag of `ops`. The key of an operation is `op.tfm.key::<K>(slot)`.
    fn burst(&self, slot: usize, ops: &mut [NonceMacOp<'_>]);
}

/// A nonce MAC under a key.
#[derive(Clone)]
pub struct NonceMacTfm {
    selection: Selection,
    slots: Slots<dyn NonceMacDriver>,
}

impl NonceMacTfm {
    pub(crate) fn new<'a>(
        selection: Selection,
        drivers: impl Iterator<Item = RowDriver<'a, dyn NonceMacDriver>>,
        key: &[u8],
    ) -> Result<Self, KeyError> {
        Ok(NonceMacTfm { selection, slots: prepare(drivers, |driver| driver.prepare(key))? })
    }

    /// The algorithm.
    #[inline]
    #[must_use]
    pub fn info(&self) -> &AlgInfo {
        self.selection.info()
    }

    /// Whether both are transforms of one [`Alg`](crate::Alg), so that operations under both may share a burst.
    #[inline]
    #[must_use]
    pub fn same_alg(&self, other: &Self) -> bool {
        self.selection.same(&other.selection)
    }

    /// For drivers: the key that the driver in `slot` prepared.
    #[must_use]
    pub fn key<K: 'static>(&self, slot: usize) -> &K {
        self.slots[slot].key_as()
    }

    /// Computes one tag.
    ///
    /// # Errors
    /// [`OpError::Nonce`] when the nonce has the wrong length.
    pub fn sign(&self, nonce: &[u8], data: &[&[u8]], tag: &mut [u8]) -> Status {
        let mut op = [NonceMacOp { tfm: self, nonce, data, tag, status: Ok(()) }];
        nonce_sign(&mut op);
        op[0].status
    }

    /// Checks one tag, in constant time.
    ///
    /// # Errors
    /// [`OpError::Auth`] when it does not match, [`OpError::TagLen`] when it is empty or too long.
    pub fn verify(&self, nonce: &[u8], data: &[&[u8]], tag: &[u8]) -> Status {
        if tag.is_empty() || tag.len() > self.info().digest_len {
            return Err(OpError::TagLen);
        }
        let mut computed = [0u8; MAX_TAG_LEN];
        self.sign(nonce, data, &mut computed[..tag.len()])?;
        let same = same(&computed[..tag.len()], tag);
        wipe(&mut computed);
        if same { Ok(()) } else { Err(OpError::Auth) }
    }
}

/// Computes each tag of `ops`; runs of one algorithm go to one driver together.
pub fn nonce_sign(ops: &mut [NonceMacOp<'_>]) {
    for run in ops.chunk_by_mut(|a, b| a.tfm.same_alg(b.tfm)) {
        let tfm = run[0].tfm;
        let bytes: usize = run.iter().flat_map(|o| o.data).map(|d| d.len()).sum();
        let slot = tfm.selection.pick(MeasuredDirection::Forward, bytes / run.len(), run.len());
        key::burst(run, |op| &op.tfm.slots[slot], |run| tfm.slots[slot].driver.burst(slot, run), |op| &mut op.status);
    }
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn tags_that_differ_anywhere_differ() {
        let tag: Vec<u8> = (1..=64).collect();
        for len in 0..=tag.len() {
            assert!(same(&tag[..len], &tag[..len]));
            assert!(len == 0 || !same(&tag[..len], &tag[..len - 1]));
            for i in 0..len {
                let mut other = tag[..len].to_vec();
                other[i] ^= 0x80;
                assert!(!same(&tag[..len], &other), "byte {i} of {len}");
            }
        }
    }
}
