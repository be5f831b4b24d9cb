//! Symmetric key ciphers without authentication: ECB, CBC, CTR, XTS, CTS, ChaCha20, ...

use crate::choice::{MeasuredDirection, Selection};
use crate::data::Data;
use crate::error::{KeyError, OpError, Status};
use crate::info::AlgInfo;
use crate::key::{Keyed, PreparedKey, RowDriver, Slots, prepare, warm};
use inout::InOutBuf;

/// Encrypt or decrypt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Plaintext in, ciphertext out.
    Encrypt,
    /// Ciphertext in, plaintext out.
    Decrypt,
}

impl From<Direction> for MeasuredDirection {
    fn from(dir: Direction) -> MeasuredDirection {
        match dir {
            Direction::Encrypt => MeasuredDirection::Forward,
            Direction::Decrypt => MeasuredDirection::Backward,
        }
    }
}

/// One text to encrypt or decrypt.
pub struct SkcipherOp<'a> {
    /// The key. Keys may differ within a burst; their algorithm should not.
    pub tfm: &'a SkcipherTfm,
    /// Encrypt or decrypt.
    pub dir: Direction,
    /// In: the IV, `iv_len` bytes. Out: the IV that continues this text, as Linux leaves it in the request
    /// (CBC: the last ciphertext block; CTR: the next counter; ECB: none; others: see each driver).
    pub iv: &'a mut [u8],
    /// The text, in one piece; [`SkcipherTfm::one`] takes scattered ones.
    pub data: InOutBuf<'a, 'a, u8>,
    /// Set by the driver.
    pub status: Status,
}

/// A single operation as a driver takes it.
pub struct FlatSkcipherOp<'a, 'b> {
    /// Encrypt or decrypt.
    pub dir: Direction,
    /// IV, in and out.
    pub iv: &'b mut [u8],
    /// The text.
    pub data: InOutBuf<'b, 'b, u8>,
    /// The transform, for [`SkcipherTfm::key`].
    pub tfm: &'a SkcipherTfm,
}

/// A driver for one cipher mode.
///
/// The driver checks the length of a text, and returns [`OpError::Length`] for one that the mode cannot take. An empty
/// text succeeds and changes nothing, except under XTS and CTS, which need a block.
pub trait SkcipherDriver: Send + Sync {
    /// Prepares a key.
    ///
    /// # Errors
    /// When the length is not one the algorithm takes.
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError>;
    /// Runs one operation. The key is `op.tfm.key::<K>(slot)`.
    ///
    /// # Errors
    /// [`OpError::Length`], [`OpError::Nonce`]; nothing has been written then.
    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status;
    /// Runs all of `ops`, each with the same direction. Drivers that gain from several texts at a time (CBC encryption)
    /// override this; the others inherit a loop over [`Self::one`].
    fn burst(&self, slot: usize, ops: &mut [SkcipherOp<'_>]) {
        for op in ops {
            op.status =
                self.one(slot, FlatSkcipherOp { dir: op.dir, iv: op.iv, data: op.data.reborrow(), tfm: op.tfm });
        }
    }
}

impl Keyed<dyn SkcipherDriver> {
    /// Runs one operation under a key in guarded memory. A call of its own, so that those under other keys do not make room for it.
    #[inline(never)]
    fn in_guarded(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        let _open = self.open()?;
        self.driver.one(slot, op)
    }
}

/// A cipher under a key.
#[derive(Clone)]
pub struct SkcipherTfm {
    selection: Selection,
    slots: Slots<dyn SkcipherDriver>,
}

impl SkcipherTfm {
    pub(crate) fn new<'a>(
        selection: Selection,
        drivers: impl Iterator<Item = RowDriver<'a, dyn SkcipherDriver>>,
        key: &[u8],
    ) -> Result<Self, KeyError> {
        Ok(SkcipherTfm { selection, slots: prepare(drivers, |driver| driver.prepare(key))? })
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
    #[inline]
    #[must_use]
    pub fn key<K: 'static>(&self, slot: usize) -> &K {
        self.slots[slot].key_as()
    }

    /// Runs one text. `iv` is the IV on entry and the continuing IV on return.
    ///
    /// # Errors
    /// [`OpError::Nonce`] when `iv` has the wrong length, [`OpError::Length`] when the mode does not take the text's
    /// length.
    pub fn one(&self, dir: Direction, iv: &mut [u8], data: Data<'_>) -> Status {
        match data {
            Data::Flat(data) => self.flat(dir, iv, data),
            Data::Scattered { src, dst, scratch } => scratch.through(src, dst, |text| self.flat(dir, iv, text.into())),
        }
    }

    /// Runs one text that is in one piece.
    ///
    /// # Errors
    /// As for [`Self::one`].
    // Not a call of its own: the two addresses of `data` would go through memory, written one by one and read as one vector, for which
    // a CPU waits until all that comes before has ended.
    #[inline(always)]
    pub fn flat(&self, dir: Direction, iv: &mut [u8], data: InOutBuf<'_, '_, u8>) -> Status {
        if iv.len() != self.info().iv_len {
            return Err(OpError::Nonce);
        }
        let slot = self.selection.pick_one(dir.into(), data.len());
        let keyed = &self.slots[slot];
        let op = FlatSkcipherOp { dir, iv, data, tfm: self };
        if keyed.is_guarded() { keyed.in_guarded(slot, op) } else { keyed.driver.one(slot, op) }
    }
}

/// Runs all of `ops`; runs of one algorithm and direction go to one driver together.
pub fn crypt(ops: &mut [SkcipherOp<'_>]) {
    for run in ops.chunk_by_mut(|a, b| a.tfm.same_alg(b.tfm) && a.dir == b.dir) {
        if let [only] = run {
            only.status = only.tfm.one(only.dir, only.iv, Data::Flat(only.data.reborrow()));
            continue;
        }
        let tfm = run[0].tfm;
        let iv_len = tfm.info().iv_len;
        let bytes: usize = run.iter().map(|op| op.data.len()).sum();
        let slot = tfm.selection.pick(run[0].dir.into(), bytes / run.len(), run.len());
        let is_guarded = sealane_guarded::is_established();
        if run.iter().any(|op| op.iv.len() != iv_len || is_guarded && !op.tfm.slots[slot].is_here()) {
            for op in run {
                op.status = op.tfm.one(op.dir, op.iv, Data::Flat(op.data.reborrow()));
            }
            continue;
        }
        let _open = tfm.slots[slot].open_for_burst();
        warm(run.iter().map(|op| &op.tfm.slots), slot);
        tfm.slots[slot].driver.burst(slot, run);
    }
}
