//! Algorithms of the crypto core that a keeper computes: their keys are references ([`KeyRef`]), and no secret is in this process.
//!
//! ```text
//! registry ─▶ Alg ─ adopt ─▶ Alg with one row, "gcm-aes-keeper" ─ key: an encoded reference ─▶ Tfm
//!                                         │ each operation
//!                                         ▼ a request
//!                                      keeper
//! ```

use crate::client::ClientError;
use crate::codec::Wiped;
use crate::connection::{StepOp, Text};
use crate::held::PIECE_LEN;
use crate::key::{Kind, MAX_SECRET_LEN, Name};
use crate::message::{Answer, Code, MAX_LONG_TEXT_LEN, Operation};
use crate::pieces::Pieces;
use crate::pool::{Manner, Pool};
use crate::reference::{KeyRef, Reference};
use crate::stream::{Stream, write_tag};
use crate::text::{Outcome, Step};
use inout::InOutBuf;
use sealane_crypto::aead::{AeadDriver, AeadOp, AeadStream, FlatAeadOp};
use sealane_crypto::hash::HashState;
use sealane_crypto::home::{KeepError, KeyHome};
use sealane_crypto::key::{PreparedKey, as_prepared};
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver, SkcipherOp};
use sealane_crypto::{Alg, AlgInfo, CipherMode, KeyError, KeyUse, OpError, Row, Status};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The module of rows that a keeper computes.
pub const MODULE: &str = "keeper";

impl From<ClientError> for KeepError {
    fn from(error: ClientError) -> Self {
        let text = error.to_string();
        match error {
            ClientError::Io(..) => KeepError::Unreachable(text),
            ClientError::Refused(refusal) => match refusal.code {
                Code::NoKey => KeepError::NoKey(text),
                Code::Denied | Code::Use => KeepError::Denied(text),
                Code::Expired => KeepError::Expired(text),
                Code::Revoked => KeepError::Revoked(text),
                Code::Parameter => KeepError::Algorithm(text),
                _ => KeepError::Refused(text),
            },
        }
    }
}

/// A keeper in which the keys of this process live.
#[derive(Clone)]
pub struct KeeperHome {
    pool: Arc<Pool>,
}

impl KeeperHome {
    /// The keeper that serves a socket.
    #[must_use]
    pub fn new(socket: PathBuf, manner: Manner) -> Self {
        Self::of(Arc::new(Pool::new(socket, manner)))
    }

    /// The keeper that a process reaches already.
    #[must_use]
    pub fn of(pool: Arc<Pool>) -> Self {
        KeeperHome { pool }
    }

    /// The reference of a key of the keeper's, in a version (0 is the newest one of this moment), if this user may use it now for this
    /// algorithm. Its secret has `secret_len` bytes, unless that is 0.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn reference(
        &self,
        info: &AlgInfo,
        name: &Name,
        version: u32,
        secret_len: u32,
    ) -> Result<Zeroizing<Vec<u8>>, KeepError> {
        let kind = kind_of(info)?;
        let key = |version| KeyRef::Named { name: name.clone(), version, algorithm: info.name.clone() };
        match self.pool.ask(Operation::Try { key: key(version), kind, secret_len })? {
            Answer::Version(version) => Ok(Zeroizing::new(key(version).encode())),
            _ => Err(wrong_answer()),
        }
    }

    /// Makes sure that a keeper answers.
    ///
    /// # Errors
    /// [`KeepError::Unreachable`].
    pub fn reach(&self) -> Result<(), KeepError> {
        match self.pool.ask(Operation::List { after: None }) {
            Err(error @ ClientError::Io(..)) => Err(error.into()),
            // It may have nothing for this user.
            Ok(_) | Err(ClientError::Refused(_)) => Ok(()),
        }
    }
}

impl KeeperHome {
    /// Whether texts go through memory that a keeper shares. The first requests, and all where it gives none, go over its socket.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.pool.shares_memory()
    }
}

impl KeyHome for KeeperHome {
    fn adopt(&self, alg: &Alg) -> Option<Alg> {
        let info = alg.info();
        if info.key_use == KeyUse::None {
            return None;
        }
        let remote = Remote { pool: self.pool.clone(), info: info.clone() };
        let driver = match Kind::of_registry(info.kind)? {
            Kind::Hash => Driver::Mac(Arc::new(remote)),
            Kind::Skcipher => Driver::Skcipher(Arc::new(remote)),
            Kind::Aead => Driver::Aead(Arc::new(remote)),
            Kind::Private => return None,
        };
        let flat = info.name.replace(['(', ','], "-").replace(')', "");
        Some(alg.served_by(Row::new(info.clone(), &format!("{flat}-{MODULE}"), MODULE, 0, driver)))
    }

    /// The reference has the key encrypted, for this keeper and this user.
    fn keep(&self, info: &AlgInfo, key: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeepError> {
        let kind = kind_of(info)?;
        if key.len() > MAX_SECRET_LEN {
            let text = format!("{}: the keeper takes keys of up to {MAX_SECRET_LEN} bytes", info.name);
            return Err(KeepError::Refused(text));
        }
        let secret = Zeroizing::new(key.to_vec());
        match self.pool.ask(Operation::Wrap { kind, algorithm: info.name.clone(), secret })? {
            Answer::Wrapped(wrapped) => Ok(Zeroizing::new(KeyRef::Wrapped(wrapped).encode())),
            _ => Err(wrong_answer()),
        }
    }

    fn name<'a>(&self, text: &'a [u8]) -> Option<&'a str> {
        core::str::from_utf8(text).ok().filter(|name| Name::new(name).is_some())
    }

    /// The reference is to the newest version of this moment.
    fn named(&self, info: &AlgInfo, name: &str) -> Result<Zeroizing<Vec<u8>>, KeepError> {
        let text = || KeepError::NoKey(format!("'{}' is no name of a key", name.escape_default()));
        self.reference(info, &Name::new(name).ok_or_else(text)?, 0, 0)
    }
}

fn kind_of(info: &AlgInfo) -> Result<Kind, KeepError> {
    let text = || KeepError::Algorithm(format!("the keeper has no keys of {}", info.name));
    Kind::of_registry(info.kind).ok_or_else(text)
}

fn wrong_answer() -> KeepError {
    KeepError::Refused("the keeper answers something else than was asked".to_owned())
}

/// A driver whose keys are references.
struct Remote {
    pool: Arc<Pool>,
    info: AlgInfo,
}

impl Remote {
    fn reference(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(Reference::from(KeyRef::of_algorithm(key, &self.info.name)?)))
    }

    /// Computes on a text.
    fn one(&self, key: &Reference, step: Step<'_>, text: Text<'_>) -> Result<Outcome, OpError> {
        let mut op = [StepOp::new(step, text)];
        // The pool tells of a failure.
        let _ = self.pool.compute(key, &mut op);
        let [op] = op;
        outcome(op)
    }

    /// Computes on texts by one key. Those that were computed before a failure are done.
    fn all(&self, key: &Reference, mut ops: Vec<StepOp<'_>>) -> Vec<Result<Outcome, OpError>> {
        let _ = self.pool.compute(key, &mut ops);
        ops.into_iter().map(outcome).collect()
    }
}

fn outcome(op: StepOp<'_>) -> Result<Outcome, OpError> {
    op.done.unwrap_or(Err(OpError::Driver))
}

/// Whether two references are to one key.
fn same(a: &Reference, b: &Reference) -> bool {
    core::ptr::eq(a, b) || a.bytes == b.bytes
}

impl SkcipherDriver for Remote {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.reference(key)
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        let FlatSkcipherOp { dir: direction, iv, mut data, tfm } = op;
        let (key, info) = (tfm.key::<Reference>(slot), tfm.info());
        let piece_len = match info.mode {
            // The IV that comes back continues the text.
            CipherMode::Ecb | CipherMode::Cbc | CipherMode::Ctr => PIECE_LEN,
            _ if data.len() > MAX_LONG_TEXT_LEN => return Err(self.pool.too_long(&info.name)),
            _ => MAX_LONG_TEXT_LEN,
        };
        // Before anything is computed.
        if data.len() > piece_len && data.len() % info.block_len != 0 {
            return Err(OpError::Length);
        }
        if data.len() <= piece_len {
            let done = Remote::one(self, key, Step::Cipher { direction, iv }, Text::Changed(data))?;
            iv.copy_from_slice(&done.iv);
            return Ok(());
        }
        // If a piece fails nothing is written.
        let (mut next, mut out) = (iv.to_vec(), Wiped::from(data.get_in()));
        for piece in out.chunks_mut(piece_len) {
            let step = Step::Cipher { direction, iv: &next };
            let done = Remote::one(self, key, step, Text::Changed(piece.into()))?;
            next.copy_from_slice(&done.iv);
        }
        data.get_out().copy_from_slice(&out);
        iv.copy_from_slice(&next);
        Ok(())
    }

    fn burst(&self, slot: usize, ops: &mut [SkcipherOp<'_>]) {
        let is_short = |op: &SkcipherOp<'_>| op.data.len() <= PIECE_LEN;
        let alike =
            |a: &SkcipherOp<'_>, b: &SkcipherOp<'_>| same(a.tfm.key::<Reference>(slot), b.tfm.key::<Reference>(slot));
        for run in ops.chunk_by_mut(|a, b| is_short(a) && is_short(b) && alike(a, b)) {
            if let [op] = run {
                let flat = FlatSkcipherOp { dir: op.dir, iv: op.iv, data: op.data.reborrow(), tfm: op.tfm };
                op.status = SkcipherDriver::one(self, slot, flat);
                continue;
            }
            let key = run[0].tfm.key::<Reference>(slot);
            let mut steps = Vec::with_capacity(run.len());
            for SkcipherOp { dir, iv, data, .. } in run.iter_mut() {
                let step = Step::Cipher { direction: *dir, iv };
                steps.push(StepOp::new(step, Text::Changed(data.reborrow())));
            }
            let done = self.all(key, steps);
            for (op, done) in core::iter::zip(run, done) {
                op.status = done.map(|done| op.iv.copy_from_slice(&done.iv));
            }
        }
    }
}

/// The associated data of an operation, in one piece.
fn joined<'a>(aad: &[&'a [u8]]) -> Cow<'a, [u8]> {
    match aad {
        [] => Cow::Borrowed(&[]),
        [one] => Cow::Borrowed(one),
        some => Cow::Owned(some.concat()),
    }
}

/// The computation of an AEAD.
fn step_of<'a>(dir: Direction, nonce: &'a [u8], aad: &'a [u8], tag: &'a [u8]) -> Result<Step<'a>, OpError> {
    Ok(match dir {
        Direction::Encrypt => {
            Step::Seal { nonce, aad, tag_len: u16::try_from(tag.len()).map_err(|_| OpError::TagLen)? }
        }
        Direction::Decrypt => Step::Open { nonce, aad, tag },
    })
}

/// Ends an operation of an AEAD.
fn ended(done: Result<Outcome, OpError>, dir: Direction, data: &mut InOutBuf<'_, '_, u8>, tag: &mut [u8]) -> Status {
    match (dir, done) {
        (Direction::Encrypt, Ok(made)) => tag.copy_from_slice(&made.tag),
        (Direction::Decrypt, Ok(_)) => {}
        (Direction::Decrypt, Err(OpError::Auth)) => {
            data.get_out().fill(0);
            return Err(OpError::Auth);
        }
        (_, Err(error)) => return Err(error),
    }
    Ok(())
}

/// The length of the text and the associated data of an operation.
fn whole_len(aad: &[&[u8]], text_len: usize) -> usize {
    aad.iter().map(|piece| piece.len()).fold(text_len, usize::saturating_add)
}

impl AeadDriver for Remote {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.reference(key)
    }

    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status {
        let FlatAeadOp { dir, nonce, aad, mut data, tag, tfm } = op;
        if whole_len(aad, data.len()) > MAX_LONG_TEXT_LEN {
            return Err(self.pool.too_long(&self.info.name));
        }
        let aad = joined(aad);
        let step = step_of(dir, nonce, &aad, tag)?;
        let done = Remote::one(self, tfm.key::<Reference>(slot), step, Text::Changed(data.reborrow()));
        ended(done, dir, &mut data, tag)
    }

    fn burst(&self, slot: usize, ops: &mut [AeadOp<'_>]) {
        // Those of which a request has several.
        let is_short = |op: &AeadOp<'_>| {
            whole_len(op.aad, op.data.len()) <= PIECE_LEN && step_of(op.dir, op.nonce, &[], op.tag).is_ok()
        };
        let alike = |a: &AeadOp<'_>, b: &AeadOp<'_>| same(a.tfm.key::<Reference>(slot), b.tfm.key::<Reference>(slot));
        for run in ops.chunk_by_mut(|a, b| is_short(a) && is_short(b) && alike(a, b)) {
            if let [AeadOp { tfm, dir, nonce, aad, data, tag, status }] = run {
                let flat = FlatAeadOp { dir: *dir, nonce, aad, data: data.reborrow(), tag, tfm };
                *status = AeadDriver::one(self, slot, flat);
                continue;
            }
            let key = run[0].tfm.key::<Reference>(slot);
            let aads: Vec<Cow<'_, [u8]>> = run.iter().map(|op| joined(op.aad)).collect();
            let mut steps = Vec::with_capacity(run.len());
            for (AeadOp { dir, nonce, data, tag, .. }, aad) in core::iter::zip(run.iter_mut(), &aads) {
                // The length of its tag was looked at.
                let step = step_of(*dir, nonce, aad, tag).unwrap_or(Step::Open { nonce, aad, tag });
                steps.push(StepOp::new(step, Text::Changed(data.reborrow())));
            }
            let done = self.all(key, steps);
            for (op, done) in core::iter::zip(run, done) {
                op.status = ended(done, op.dir, &mut op.data, op.tag);
            }
        }
    }

    /// Whether the keeper takes such messages shows at the first one.
    fn stream(&self, key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        let key = match KeyRef::of_algorithm(key, &self.info.name) {
            Ok(key) => key,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Box::new(Pieces::new(&self.pool, &self.info, key))))
    }
}

impl MacDriver for Remote {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.reference(key)
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        Box::new(Stream::new(&self.pool, &as_prepared::<Reference>(key).key))
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        let is_short = |op: &MacOp<'_>| op.len() <= MAX_LONG_TEXT_LEN;
        let alike = |a: &MacOp<'_>, b: &MacOp<'_>| same(a.tfm.key::<Reference>(slot), b.tfm.key::<Reference>(slot));
        for run in ops.chunk_by_mut(|a, b| is_short(a) && is_short(b) && alike(a, b)) {
            let key = run[0].tfm.key::<Reference>(slot);
            if let [op] = run
                && !is_short(op)
            {
                let mut message = Stream::new(&self.pool, &key.key);
                op.data.iter().for_each(|piece| message.update(piece));
                op.status = message.finish(op.tag);
                continue;
            }
            let done = self.all(key, run.iter().map(|op| StepOp::new(Step::Mac, Text::Read(op.data))).collect());
            for (op, done) in core::iter::zip(run, done) {
                op.status = done.and_then(|done| write_tag(&done.tag, op.tag));
            }
        }
    }
}
