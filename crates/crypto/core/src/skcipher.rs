//! Symmetric key ciphers without authentication: ECB, CBC, CTR, XTS, CTS, ChaCha20, ...

use crate::choice::Way;
use crate::data::Data;
use crate::error::{KeyError, OpError, Status};
use crate::key::{Keys, PreparedKey, downcast, warm};
use crate::registry::{Alg, Driver};
use inout::InOutBuf;

/// Encrypt or decrypt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Plaintext in, ciphertext out.
    Encrypt,
    /// Ciphertext in, plaintext out.
    Decrypt,
}

impl From<Direction> for Way {
    fn from(dir: Direction) -> Way {
        match dir {
            Direction::Encrypt => Way::Forward,
            Direction::Decrypt => Way::Backward,
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
    /// (CBC: the last ciphertext block; CTR: the next counter; ECB: nothing; others: see each driver).
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
/// Lengths are checked here, by the driver: [`OpError::Length`] for a text that the mode cannot take. A text of length
/// zero succeeds and changes nothing, except under XTS and CTS, which need a block.
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

/// A cipher under a key.
#[derive(Clone)]
pub struct SkcipherTfm {
    alg: Alg,
    keys: Keys,
}

impl SkcipherTfm {
    pub(crate) fn new(alg: Alg, key: &[u8]) -> Result<Self, KeyError> {
        let keys = alg
            .candidates()
            .map(|d| match d {
                Driver::Skcipher(d) => d.prepare(key),
                _ => unreachable!("SkcipherTfm is only made from skcipher drivers"),
            })
            .collect::<Result<Keys, _>>()?;
        Ok(SkcipherTfm { alg, keys })
    }

    /// The algorithm.
    #[must_use]
    pub fn alg(&self) -> &Alg {
        &self.alg
    }

    /// For drivers: the key that the driver in `slot` prepared.
    #[must_use]
    pub fn key<K: 'static>(&self, slot: usize) -> &K {
        downcast(&self.keys, slot)
    }

    /// Runs one text. `iv` is the IV on entry and the continuing IV on return.
    ///
    /// # Errors
    /// [`OpError::Nonce`] when `iv` has not the algorithm's length, [`OpError::Length`] as the mode demands.
    pub fn one(&self, dir: Direction, iv: &mut [u8], data: Data<'_>) -> Status {
        if iv.len() != self.alg.info().iv_len {
            return Err(OpError::Nonce);
        }
        let (slot, driver) = self.alg.pick(dir.into(), data.len(), 1);
        let Driver::Skcipher(driver) = driver else { unreachable!("SkcipherTfm is only made from skcipher drivers") };
        match data {
            Data::Flat(data) => driver.one(slot, FlatSkcipherOp { dir, iv, data, tfm: self }),
            Data::Scattered { src, dst, scratch } => scratch
                .through(src, dst, |text| driver.one(slot, FlatSkcipherOp { dir, iv, data: text.into(), tfm: self })),
        }
    }
}

/// Runs all of `ops`; runs of one algorithm and direction go to one driver together.
pub fn crypt(ops: &mut [SkcipherOp<'_>]) {
    for run in ops.chunk_by_mut(|a, b| a.tfm.alg.same(&b.tfm.alg) && a.dir == b.dir) {
        if let [only] = run {
            only.status = only.tfm.one(only.dir, only.iv, Data::Flat(only.data.reborrow()));
            continue;
        }
        let alg = &run[0].tfm.alg;
        let iv_len = alg.info().iv_len;
        if run.iter().any(|op| op.iv.len() != iv_len) {
            for op in run {
                op.status = op.tfm.one(op.dir, op.iv, Data::Flat(op.data.reborrow()));
            }
            continue;
        }
        let bytes: usize = run.iter().map(|op| op.data.len()).sum();
        match alg.pick(run[0].dir.into(), bytes / run.len(), run.len()) {
            (slot, Driver::Skcipher(d)) => {
                warm(run.iter().map(|op| &op.tfm.keys), slot);
                d.burst(slot, run);
            }
            _ => unreachable!("SkcipherTfm is only made from skcipher drivers"),
        }
    }
}
