//! Authenticated encryption with associated data.

use crate::choice::Selection;
use crate::data::Data;
use crate::error::{KeyError, OpError, Status};
use crate::info::AlgInfo;
use crate::key::{InUse, Keyed, PreparedKey, RowDriver, Slots, prepare, warm};
use crate::skcipher::Direction;
use inout::InOutBuf;
use sealane_guarded::Held;

/// One text to seal (encrypt) or open (decrypt).
pub struct AeadOp<'a> {
    /// The key. Keys may differ within a burst; their algorithm should not.
    pub tfm: &'a AeadTfm,
    /// Seal or open.
    pub dir: Direction,
    /// The nonce (`iv_len` bytes), unique for each seal under one key.
    pub nonce: &'a [u8],
    /// The associated data, in pieces. For `rfc4106`, `rfc4309` and `rfc4543` its last `iv_len` bytes are the explicit
    /// IV, as in Linux.
    pub aad: &'a [&'a [u8]],
    /// The text without the tag, in one piece; [`AeadTfm::one`] takes scattered ones. After an open that fails by
    /// [`OpError::Auth`] or [`OpError::Driver`] its output is zeros.
    pub data: InOutBuf<'a, 'a, u8>,
    /// Sealing: receives the tag. Opening: the tag to check. Its length is the authentication size.
    pub tag: &'a mut [u8],
    /// Set by the driver.
    pub status: Status,
}

/// A single operation as a driver takes it: nonce and tag have acceptable lengths.
pub struct FlatAeadOp<'a, 'b> {
    /// Seal or open.
    pub dir: Direction,
    /// The nonce, `iv_len` bytes.
    pub nonce: &'b [u8],
    /// The associated data, in pieces.
    pub aad: &'b [&'b [u8]],
    /// The text.
    pub data: InOutBuf<'b, 'b, u8>,
    /// Tag, out or in.
    pub tag: &'b mut [u8],
    /// The transform, for [`AeadTfm::key`].
    pub tfm: &'a AeadTfm,
}

/// A driver for one AEAD.
pub trait AeadDriver: Send + Sync {
    /// Prepares a key.
    ///
    /// # Errors
    /// When the length is not one the algorithm takes, or a composite key is malformed.
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError>;
    /// Runs one operation. The key is `op.tfm.key::<K>(slot)`. Tags are compared in constant time.
    ///
    /// # Errors
    /// [`OpError::Auth`] when the tag does not match: the output is zeros. [`OpError::Driver`]: the output is anything, and the caller
    /// wipes it after an open. Others when lengths do not suit the mode: nothing was written.
    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status;
    /// Runs all of `ops`, each with the same direction; lengths of nonces and tags have been checked. Drivers that gain
    /// from several texts at a time override this.
    fn burst(&self, slot: usize, ops: &mut [AeadOp<'_>]) {
        for op in ops {
            let AeadOp { tfm, dir, nonce, aad, data, tag, .. } = op;
            op.status = self.one(slot, FlatAeadOp { dir: *dir, nonce, aad, data: data.reborrow(), tag, tfm });
        }
    }
    /// Prepares a key for messages that arrive in pieces; `None` where the driver takes whole messages only.
    fn stream(&self, _key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        None
    }
}

/// A key under which messages arrive in pieces, one message after the other.
///
/// Text is opened before its tag is known: the caller must not use it before [`Self::open`] has found the tag right.
/// A stream lives in the memory of one process and may own memory of the C heap, unlike a [`PreparedKey`].
///
/// A failed call changes nothing, except that the message has ended after [`Self::open`]. Where the key is elsewhere, any failure ends the
/// message, and of a longer text some of it may have come.
pub trait AeadStream: Send + Sync {
    /// Takes another key, and forgets the message so far.
    ///
    /// # Errors
    /// [`KeyError::Length`], [`KeyError::Driver`].
    fn set_key(&mut self, key: &[u8]) -> Result<(), KeyError>;
    /// Starts a message under a nonce of any length that the mode defines, not only
    /// [`AlgInfo::iv_len`](crate::AlgInfo::iv_len).
    ///
    /// # Errors
    /// [`OpError::Nonce`].
    fn start(&mut self, nonce: &[u8]) -> Status;
    /// Adds associated data, which comes before all text.
    ///
    /// # Errors
    /// [`OpError::AssocLen`] behind text, or when there is more than the mode can take.
    fn associated(&mut self, data: &[u8]) -> Status;
    /// Encrypts or decrypts text. The tag is over the ciphertext, so that pieces of one message may differ in their direction.
    ///
    /// # Errors
    /// [`OpError::TooLong`] when there is more than the mode can take.
    fn text(&mut self, dir: Direction, data: InOutBuf<'_, '_, u8>) -> Status;
    /// Ends the message, and writes the first `tag.len()` bytes of its tag.
    ///
    /// # Errors
    /// [`OpError::TagLen`].
    fn seal(&mut self, tag: &mut [u8]) -> Status;
    /// Ends the message, and compares its tag with `tag` in constant time. A tag that was cut is compared as far as it goes.
    ///
    /// # Errors
    /// [`OpError::Auth`], [`OpError::TagLen`].
    fn open(&mut self, tag: &[u8]) -> Status;
    /// A second stream that continues from here.
    ///
    /// # Errors
    /// [`OpError::Driver`] when there is no memory for it.
    fn fork(&self) -> Result<Box<dyn AeadStream>, OpError>;
}

/// A stream in guarded memory; it can be used in the process that made it.
struct HeldStream {
    stream: Held<dyn AeadStream>,
    traces: usize,
}

/// Moves a stream to guarded memory, where the process has it; with the traces of keys that its driver leaves.
///
/// # Errors
/// [`KeyError::Driver`] when there is no room.
pub(crate) fn hold(stream: Box<dyn AeadStream>, traces: usize) -> Result<Box<dyn AeadStream>, KeyError> {
    if !sealane_guarded::is_established() {
        return Ok(stream);
    }
    let stream = Held::new(stream).map_err(|_| KeyError::Driver)?;
    Ok(Box::new(HeldStream { stream, traces }))
}

impl HeldStream {
    fn open_memory(&self) -> Option<InUse> {
        Some(InUse::new(self.stream.open()?, self.stream.is_guarded(), self.traces))
    }

    fn with(&mut self, f: impl FnOnce(&mut dyn AeadStream) -> Status) -> Status {
        let _open = self.open_memory().ok_or(OpError::Driver)?;
        f(self.stream.get_mut())
    }
}

impl AeadStream for HeldStream {
    fn set_key(&mut self, key: &[u8]) -> Result<(), KeyError> {
        let _open = self.open_memory().ok_or(KeyError::Driver)?;
        self.stream.get_mut().set_key(key)
    }

    fn start(&mut self, nonce: &[u8]) -> Status {
        self.with(|stream| stream.start(nonce))
    }

    fn associated(&mut self, data: &[u8]) -> Status {
        self.with(|stream| stream.associated(data))
    }

    fn text(&mut self, dir: Direction, data: InOutBuf<'_, '_, u8>) -> Status {
        self.with(|stream| stream.text(dir, data))
    }

    fn seal(&mut self, tag: &mut [u8]) -> Status {
        self.with(|stream| stream.seal(tag))
    }

    fn open(&mut self, tag: &[u8]) -> Status {
        self.with(|stream| stream.open(tag))
    }

    fn fork(&self) -> Result<Box<dyn AeadStream>, OpError> {
        let fork = || {
            let _open = self.open_memory().ok_or(OpError::Driver)?;
            hold(self.stream.get().fork()?, self.traces).map_err(|_| OpError::Driver)
        };
        // Of a key that is no secret here the fork is none either.
        if self.stream.is_guarded() { fork() } else { sealane_guarded::unguarded(fork) }
    }
}

/// An AEAD under a key.
#[derive(Clone)]
pub struct AeadTfm {
    selection: Selection,
    slots: Slots<dyn AeadDriver>,
}

impl AeadTfm {
    pub(crate) fn new<'a>(
        selection: Selection,
        drivers: impl Iterator<Item = RowDriver<'a, dyn AeadDriver>>,
        key: &[u8],
    ) -> Result<Self, KeyError> {
        Ok(AeadTfm { selection, slots: prepare(drivers, |driver| driver.prepare(key))? })
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

    fn check(&self, nonce: &[u8], tag: &[u8]) -> Status {
        if nonce.len() != self.info().iv_len {
            Err(OpError::Nonce)
        } else if !self.info().tag_lens.contains(tag.len()) {
            Err(OpError::TagLen)
        } else {
            Ok(())
        }
    }

    /// Seals one text: encrypts `data` and writes `tag`.
    ///
    /// # Errors
    /// [`OpError::Nonce`], [`OpError::TagLen`], [`OpError::AssocLen`], [`OpError::Length`]: nothing was written.
    pub fn seal(&self, nonce: &[u8], aad: &[&[u8]], data: Data<'_>, tag: &mut [u8]) -> Status {
        self.one(Direction::Encrypt, nonce, aad, data, tag)
    }

    /// Opens one text: checks `tag` in constant time and decrypts `data`.
    ///
    /// # Errors
    /// [`OpError::Auth`], [`OpError::Driver`]: the output is zeros, or nothing was written to a scattered one. Others as for
    /// [`Self::seal`].
    pub fn open(&self, nonce: &[u8], aad: &[&[u8]], data: Data<'_>, tag: &[u8]) -> Status {
        let mut copy = [0u8; crate::mac::MAX_TAG_LEN];
        let copy = copy.get_mut(..tag.len()).ok_or(OpError::TagLen)?;
        copy.copy_from_slice(tag);
        self.one(Direction::Decrypt, nonce, aad, data, copy)
    }

    /// Runs one text.
    ///
    /// # Errors
    /// As for [`Self::seal`] and [`Self::open`].
    pub fn one(&self, dir: Direction, nonce: &[u8], aad: &[&[u8]], data: Data<'_>, tag: &mut [u8]) -> Status {
        self.check(nonce, tag)?;
        let slot = self.selection.pick(dir.into(), data.len(), 1);
        let keyed = &self.slots[slot];
        let driver = &keyed.driver;
        match data {
            Data::Flat(mut data) => {
                let op = FlatAeadOp { dir, nonce, aad, data: data.reborrow(), tag, tfm: self };
                let done = keyed.open().and_then(|_open| driver.one(slot, op));
                wipe_lost(dir, done, &mut data);
                done
            }
            Data::Scattered { src, dst, scratch } => scratch.through(src, dst, |text| {
                let _open = keyed.open()?;
                driver.one(slot, FlatAeadOp { dir, nonce, aad, data: text.into(), tag, tfm: self })
            }),
        }
    }
}

/// Wipes the output of an open in the middle of which the driver has failed: nobody knows what it has written.
fn wipe_lost(dir: Direction, status: Status, data: &mut InOutBuf<'_, '_, u8>) {
    if dir == Direction::Decrypt && status == Err(OpError::Driver) {
        data.get_out().fill(0);
    }
}

/// For drivers: the keys of a burst. Operations that follow one another often have one transform, and to ask for a key's
/// type takes longer than to notice that.
pub struct BurstKeys<'a, K> {
    slot: usize,
    last: Option<(&'a AeadTfm, &'a K)>,
}

impl<'a, K: 'static> BurstKeys<'a, K> {
    /// The keys that the driver in `slot` prepared.
    #[must_use]
    pub fn new(slot: usize) -> Self {
        BurstKeys { slot, last: None }
    }

    /// The key of an operation's transform.
    #[inline]
    #[must_use]
    pub fn of(&mut self, tfm: &'a AeadTfm) -> &'a K {
        match self.last {
            Some((last, key)) if core::ptr::eq(last, tfm) => key,
            _ => {
                let key = tfm.key::<K>(self.slot);
                self.last = Some((tfm, key));
                key
            }
        }
    }
}

/// Runs all of `ops`; runs of one algorithm and direction go to one driver together.
pub fn crypt(ops: &mut [AeadOp<'_>]) {
    let is_guarded = sealane_guarded::is_established();
    let is_here = |op: &AeadOp<'_>| !is_guarded || op.tfm.slots.iter().all(Keyed::is_here);
    let together = |op: &AeadOp<'_>| op.tfm.check(op.nonce, op.tag).is_ok() && is_here(op);
    let mut rest = ops;
    while let Some((first, behind)) = rest.split_first() {
        let alike = |op: &AeadOp<'_>| first.tfm.same_alg(op.tfm) && first.dir == op.dir && together(op);
        let len = if together(first) { 1 + behind.iter().take_while(|op| alike(op)).count() } else { 1 };
        let (run, behind) = rest.split_at_mut(len);
        rest = behind;
        if let [only] = run {
            only.status = only.tfm.one(only.dir, only.nonce, only.aad, Data::Flat(only.data.reborrow()), only.tag);
            continue;
        }
        let (tfm, dir) = (run[0].tfm, run[0].dir);
        let bytes: usize = run.iter().map(|op| op.data.len()).sum();
        let slot = tfm.selection.pick(dir.into(), bytes / run.len(), run.len());
        let _open = tfm.slots[slot].open_for_burst();
        warm(run.iter().map(|op| &op.tfm.slots), slot);
        tfm.slots[slot].driver.burst(slot, run);
        run.iter_mut().for_each(|op| wipe_lost(op.dir, op.status, &mut op.data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::Lengths;
    use crate::registry::{Alg, Driver, Row};
    use crate::rng::Entropy;
    use std::sync::Arc;

    /// A driver that fails in the middle of a text.
    struct Breaks;

    impl AeadDriver for Breaks {
        fn prepare(&self, _: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
            Ok(Box::new(()))
        }

        fn one(&self, _: usize, op: FlatAeadOp<'_, '_>) -> Status {
            let mut data = op.data;
            data.get_out()[..2].fill(7);
            Err(OpError::Driver)
        }
    }

    struct NoEntropy;

    impl Entropy for NoEntropy {
        fn fill(&self, _: &mut [u8]) -> Status {
            Err(OpError::Driver)
        }
    }

    #[test]
    fn nothing_is_left_of_a_text_whose_driver_fails() {
        let info = AlgInfo::aead("gcm(aes)", 1, Lengths::Of(&[16]), 12, Lengths::Of(&[16]));
        let row = Row::new(info, "gcm-aes-breaks", "test", 0, Driver::Aead(Arc::new(Breaks)));
        let entropy: Arc<dyn Entropy> = Arc::new(NoEntropy);
        let tfm = Alg::of_row(&Arc::new(row), &entropy).aead(&[1; 16]).unwrap();
        let (mut separate, mut in_place) = ([5; 4], [5; 4]);
        let apart = Data::Flat(InOutBuf::new(&[1; 4], &mut separate).unwrap());
        assert_eq!(tfm.open(&[2; 12], &[], apart, &[3; 16]), Err(OpError::Driver));
        assert_eq!(tfm.open(&[2; 12], &[], Data::from(&mut in_place[..]), &[3; 16]), Err(OpError::Driver));
        assert_eq!((separate, in_place), ([0; 4], [0; 4]));
        let (mut texts, mut tags) = ([[5; 4]; 3], [[3; 16]; 3]);
        let dir = Direction::Decrypt;
        let mut ops: Vec<AeadOp<'_>> = core::iter::zip(&mut texts, &mut tags)
            .map(|(text, tag)| AeadOp {
                tfm: &tfm,
                dir,
                nonce: &[2; 12],
                aad: &[],
                data: (&mut text[..]).into(),
                tag,
                status: Ok(()),
            })
            .collect();
        crypt(&mut ops);
        assert!(ops.iter().all(|op| op.status == Err(OpError::Driver)));
        drop(ops);
        assert_eq!(texts, [[0; 4]; 3]);
    }
}
