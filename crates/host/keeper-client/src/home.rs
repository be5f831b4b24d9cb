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
use crate::connection::Outcome;
use crate::held::PIECE_LEN;
use crate::key::{Kind, MAX_SECRET_LEN, Name};
use crate::message::{Answer, Code, MAX_LONG_TEXT_LEN, Operation};
use crate::pieces::Pieces;
use crate::pool::{Manner, Pool};
use crate::reference::KeyRef;
use crate::stream::{Stream, tag, write_tag};
use crate::text::Step;
use inout::InOutBuf;
use sealane_crypto::aead::{AeadDriver, AeadStream, FlatAeadOp};
use sealane_crypto::hash::HashState;
use sealane_crypto::home::{KeepError, KeyHome};
use sealane_crypto::key::{PreparedKey, as_prepared};
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver};
use sealane_crypto::{Alg, AlgInfo, CipherMode, KeyError, KeyUse, OpError, Row, Status};
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
        Ok(Box::new(KeyRef::of_algorithm(key, &self.info.name)?))
    }

    /// Computes on a text: the IV that continues it, and the tag.
    fn computed(&self, key: &KeyRef, step: &Step<'_>, data: InOutBuf<'_, '_, u8>) -> Result<Outcome, OpError> {
        self.pool.compute(key, step, data).unwrap_or(Err(OpError::Driver))
    }
}

impl SkcipherDriver for Remote {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.reference(key)
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        let FlatSkcipherOp { dir, iv, data, tfm } = op;
        let (key, info) = (tfm.key::<KeyRef>(slot), tfm.info());
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
            let (next, _) = self.computed(key, &Step::Cipher { direction: dir, iv }, data)?;
            iv.copy_from_slice(&next);
            return Ok(());
        }
        // If a piece fails nothing is written.
        let (mut next, mut out) = (iv.to_vec(), Wiped::from(data.get_in()));
        for piece in out.chunks_mut(piece_len) {
            next = self.computed(key, &Step::Cipher { direction: dir, iv: &next }, piece.into())?.0;
        }
        let mut data = data;
        data.get_out().copy_from_slice(&out);
        iv.copy_from_slice(&next);
        Ok(())
    }
}

impl AeadDriver for Remote {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.reference(key)
    }

    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status {
        let FlatAeadOp { dir, nonce, aad, mut data, tag, tfm } = op;
        let aad_len: usize = aad.iter().map(|piece| piece.len()).sum();
        if aad_len.saturating_add(data.len()) > MAX_LONG_TEXT_LEN {
            return Err(self.pool.too_long(&self.info.name));
        }
        let (key, aad) = (tfm.key::<KeyRef>(slot), aad.concat());
        match dir {
            Direction::Encrypt => {
                let tag_len = u16::try_from(tag.len()).map_err(|_| OpError::TagLen)?;
                let (_, made) = self.computed(key, &Step::Seal { nonce, aad: &aad, tag_len }, data)?;
                tag.copy_from_slice(&made);
                Ok(())
            }
            Direction::Decrypt => {
                let done = self.computed(key, &Step::Open { nonce, aad: &aad, tag }, data.reborrow());
                if matches!(done, Err(OpError::Auth)) {
                    data.get_out().fill(0);
                }
                done.map(drop)
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
        Box::new(Stream::new(&self.pool, as_prepared(key)))
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        for op in ops {
            let key = op.tfm.key::<KeyRef>(slot);
            op.status = if op.len() <= MAX_LONG_TEXT_LEN {
                let text = Wiped::from(op.data.concat());
                let answer = self.pool.ask(Operation::MacBy { key: key.clone(), text });
                answer.map_err(|_| OpError::Driver).and_then(tag).and_then(|tag| write_tag(&tag, op.tag))
            } else {
                let mut message = Stream::new(&self.pool, key);
                op.data.iter().for_each(|piece| message.update(piece));
                message.finish(op.tag)
            };
        }
    }
}
