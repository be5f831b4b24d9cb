//! AES-GCM as a cipher, with the records of TLS 1.2 (RFC 5288).

use super::pieces::{TAG_LEN, silent};
use super::pipes::{MAX_IV_LEN, PipeCalls, PipeKey, Pipes};
use super::record::{self, AAD_LEN, EXPLICIT_LEN, FIXED_LEN};
use super::row::{Cipher, CipherRow};
use crate::ct;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Call, Params, Requests};
use crate::given::Given;
use crate::home::{self, KeyBytes, Owner, Secret};
use crate::instance::Instance;
use sealane_crypto::OpError;
use sealane_crypto::aead::{AeadStream, AeadTfm};
use sealane_crypto::rng::Entropy;
use sealane_crypto::skcipher::Direction;
use sealane_drivers::SystemEntropy;
use std::sync::Arc;

/// The longest key.
const MAX_KEY_LEN: usize = 32;
/// The shortest IV that is drawn at random.
const RANDOM_IV_LEN: usize = 12;

/// The place of an IV in its life: it serves one message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IvState {
    Missing,
    /// Set, and not used.
    Waiting,
    /// In use.
    Used,
    Spent,
}

/// A key as it was set, for whole messages (records of TLS, pipelines): their driver is prepared with the first of them.
enum Source {
    Here(Secret<KeyBytes<MAX_KEY_LEN>>),
    /// The reference of a key that is computed with elsewhere.
    Kept(Arc<[u8]>),
}

impl Source {
    fn is_kept(&self) -> bool {
        matches!(self, Source::Kept(_))
    }

    fn again(&self) -> Result<Self, Failure> {
        match self {
            Source::Here(bytes) => bytes.again().map(Source::Here),
            Source::Kept(reference) => Ok(Source::Kept(reference.clone())),
        }
    }
}

/// A key, with the message that has begun under it.
struct Key {
    stream: Box<dyn AeadStream>,
    source: Source,
    owner: Owner,
    whole: Option<AeadTfm>,
}

struct Gcm {
    row: &'static CipherRow,
    dir: Direction,
    key: Option<Key>,
    iv: [u8; MAX_IV_LEN],
    iv_len: usize,
    iv_state: IvState,
    /// Whether each record has the next IV.
    iv_counts: bool,
    tag: [u8; TAG_LEN],
    /// Its length, once it is known.
    tag_len: Option<usize>,
    /// Associated data of the next record.
    record: Option<[u8; AAD_LEN]>,
    /// The bytes by which a record grows.
    record_growth: usize,
    /// Records that were sealed under the key.
    sealed: u64,
    /// The messages of a pipeline, once there was one.
    pipes: Option<Box<Pipes>>,
}

pub(super) fn new(row: &'static CipherRow) -> Box<dyn Cipher> {
    Box::new(Gcm {
        row,
        dir: Direction::Encrypt,
        key: None,
        iv: [0; MAX_IV_LEN],
        iv_len: row.iv_len,
        iv_state: IvState::Missing,
        iv_counts: false,
        tag: [0; TAG_LEN],
        tag_len: None,
        record: None,
        record_growth: 0,
        sealed: 0,
        pipes: None,
    })
}

fn random(out: &mut [u8]) -> Done {
    SystemEntropy.fill(out).map_err(|_| Reason::ErrorRetrievingEntropy.into())
}

impl Gcm {
    fn set_iv(&mut self, iv: &[u8]) -> Done {
        if iv.is_empty() || iv.len() > MAX_IV_LEN {
            return Err(Reason::InvalidIvLength.into());
        }
        self.iv_len = iv.len();
        self.iv[..iv.len()].copy_from_slice(iv);
        self.iv_state = IvState::Waiting;
        Ok(())
    }

    fn set_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        key.check_len(self.row.key_len)?;
        if let Some(pipes) = &mut self.pipes {
            pipes.end_texts();
        }
        // If the keeper gives none there is none, so that no caller goes on under the old key.
        let key = instance.key(self.row.alg, key, Some(self.row.key_len)).inspect_err(|_| self.key = None)?;
        match &mut self.key {
            Some(Key { stream, source: Source::Here(bytes), owner, whole }) if owner.is_here() && !key.is_kept() => {
                // Programs set the key with the IV of each message: the powers of H are computed for another key only.
                if !bytes.with(|bytes| ct::same(bytes.get(), key.bytes()))? {
                    *whole = None;
                    let set = stream.set_key(key.bytes()).map_err(home::refused);
                    let set = set.and_then(|()| bytes.with_mut(|bytes| bytes.set(key.bytes())));
                    // After a failure there is no key, also not the one of before.
                    set.inspect_err(|_| self.key = None)?;
                }
            }
            _ => {
                self.key = None;
                let source = match key.is_kept() {
                    true => Source::Kept(key.bytes().into()),
                    false => Source::Here(Secret::new(KeyBytes::boxed(key.bytes()))?),
                };
                let stream = instance.aead_stream(self.row.alg, &key)?;
                self.key = Some(Key { stream, source, owner: key.owner(), whole: None });
            }
        }
        self.sealed = 0;
        // A message that had begun under another key begins again.
        if self.iv_state == IvState::Used {
            self.iv_state = IvState::Waiting;
        }
        Ok(())
    }

    /// The message under the IV, which is started when it is first needed.
    fn message(&mut self) -> Result<&mut dyn AeadStream, Failure> {
        let Some(Key { stream, .. }) = &mut self.key else { return Err(Failure::SILENT) };
        if self.iv_state == IvState::Missing {
            if self.dir == Direction::Decrypt || self.iv_len < RANDOM_IV_LEN {
                return Err(Failure::SILENT);
            }
            random(&mut self.iv[..self.iv_len])?;
            self.iv_state = IvState::Waiting;
        }
        if self.iv_state == IvState::Waiting {
            stream.start(&self.iv[..self.iv_len]).map_err(silent)?;
            self.iv_state = IvState::Used;
        }
        match self.iv_state {
            IvState::Used => Ok(&mut **stream),
            IvState::Missing | IvState::Waiting | IvState::Spent => Err(Failure::SILENT),
        }
    }

    /// Associated data, text, or the end, as the call has them; returns the length of what was given.
    fn run(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        if let Some(aad) = self.record.take() {
            let done = self.run_record(instance, aad, call);
            self.iv_state = IvState::Spent;
            return done;
        }
        let (dir, len) = (self.dir, call.len());
        if !call.has_input() {
            return self.end().map(|()| 0);
        }
        if !call.has_output() {
            return self.message()?.associated(call.input()).map(|()| len).map_err(silent);
        }
        let message = self.message()?;
        message.text(dir, call.text(len)?.all()).map(|()| len).map_err(silent)
    }

    fn end(&mut self) -> Done {
        if self.dir == Direction::Decrypt && self.tag_len.is_none() {
            return Err(Failure::SILENT);
        }
        let (dir, mut tag, len) = (self.dir, self.tag, self.tag_len.unwrap_or(0));
        let message = self.message()?;
        let done = match dir {
            Direction::Encrypt => message.seal(&mut tag),
            Direction::Decrypt => message.open(&tag[..len]),
        };
        self.iv_state = IvState::Spent;
        done.map_err(silent)?;
        if dir == Direction::Encrypt {
            (self.tag, self.tag_len) = (tag, Some(TAG_LEN));
        }
        Ok(())
    }

    /// Seals or opens a record of TLS 1.2 in place: explicit part of the IV, text, tag. Returns the bytes of a sealed record,
    /// or those of the text.
    fn run_record(&mut self, instance: &Instance, aad: [u8; AAD_LEN], call: Call<'_>) -> Result<usize, Failure> {
        let len = call.len();
        if !call.in_place() || len < EXPLICIT_LEN + TAG_LEN {
            return Err(Failure::SILENT);
        }
        self.prepare_whole(instance)?;
        let mut text = call.text(len)?;
        let (explicit, rest) = text.output().split_at_mut(EXPLICIT_LEN);
        let (data, tag) = rest.split_at_mut(len - EXPLICIT_LEN - TAG_LEN);
        let iv = match self.dir {
            Direction::Encrypt => {
                self.sealed = self.sealed.checked_add(1).ok_or_else(|| Failure::new(Reason::TooManyRecords))?;
                self.next_iv(explicit)?
            }
            Direction::Decrypt => self.explicit_iv(explicit)?,
        };
        let key = self.key.as_mut().ok_or(Failure::SILENT)?;
        let dir = self.dir;
        let done = match (&key.whole, self.iv_len) {
            (Some(tfm), RANDOM_IV_LEN) => tfm.one(dir, &iv[..RANDOM_IV_LEN], &[&aad], (&mut *data).into(), tag),
            // Whole messages have IVs of one length only.
            _ => one(&mut *key.stream, dir, &iv[..self.iv_len], &aad, data, tag),
        };
        match (done, dir) {
            (Ok(()), Direction::Encrypt) => Ok(len),
            (Ok(()), Direction::Decrypt) => Ok(len - EXPLICIT_LEN - TAG_LEN),
            (Err(error), _) => {
                data.fill(0);
                Err(silent(error))
            }
        }
    }

    fn prepare_whole(&mut self, instance: &Instance) -> Done {
        let key = self.key.as_mut().ok_or(Failure::SILENT)?;
        if key.whole.is_none() {
            let whole = match &key.source {
                Source::Here(bytes) => {
                    let alg = instance.alg(self.row.alg)?;
                    let whole = bytes.with(|bytes| alg.aead(bytes.get()))?;
                    home::forget_traces();
                    whole
                }
                Source::Kept(reference) => {
                    let kept = instance.kept(self.row.alg)?;
                    sealane_guarded::unguarded(|| kept.aead(reference))
                }
            };
            key.whole = Some(whole.map_err(home::refused)?);
        }
        Ok(())
    }

    /// Runs `f` on the pipeline.
    fn on_pipes<T>(
        &mut self,
        instance: &Instance,
        f: impl FnOnce(&mut Pipes, &PipeKey<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.prepare_whole(instance)?;
        let (Some(pipes), Some(Key { stream, source, whole: Some(whole), .. })) = (&mut self.pipes, &self.key) else {
            return Err(Failure::SILENT);
        };
        f(pipes, &PipeKey { whole, stream: &**stream, is_kept: source.is_kept() })
    }

    /// The IV of the next record, whose last bytes go into `explicit`.
    fn next_iv(&mut self, explicit: &mut [u8]) -> Result<[u8; MAX_IV_LEN], Failure> {
        // An IV without room for the counter may have been asked for since the counter began.
        if !self.iv_counts || self.key.is_none() || self.iv_len < EXPLICIT_LEN {
            return Err(Failure::SILENT);
        }
        let iv = self.iv;
        let len = if explicit.is_empty() || explicit.len() > self.iv_len { self.iv_len } else { explicit.len() };
        let place = explicit.len().min(len);
        explicit[..place].copy_from_slice(&iv[self.iv_len - len..][..place]);
        let counter = &mut self.iv[self.iv_len - EXPLICIT_LEN..self.iv_len];
        for byte in counter.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
        self.iv_state = IvState::Used;
        Ok(iv)
    }

    /// The IV of a record that came with its last bytes.
    fn explicit_iv(&mut self, explicit: &[u8]) -> Result<[u8; MAX_IV_LEN], Failure> {
        if !self.iv_counts || self.key.is_none() || self.dir == Direction::Encrypt || explicit.len() > self.iv_len {
            return Err(Failure::SILENT);
        }
        self.iv[self.iv_len - explicit.len()..self.iv_len].copy_from_slice(explicit);
        self.iv_state = IvState::Used;
        Ok(self.iv)
    }

    /// Takes the associated data of a record and corrects its length, which counts explicit IV and tag.
    fn set_record(&mut self, aad: &[u8]) -> Done {
        let extra = EXPLICIT_LEN + if self.dir == Direction::Decrypt { TAG_LEN } else { 0 };
        let (aad, _) = record::associated(aad, extra).ok_or_else(|| Failure::new(Reason::InvalidAad))?;
        self.record = Some(aad);
        self.record_growth = TAG_LEN;
        Ok(())
    }

    /// Takes the part of the IV that all records have in common, and draws the first one of the other part.
    fn set_fixed_iv(&mut self, fixed: &[u8]) -> Done {
        if fixed.len() < FIXED_LEN || self.iv_len < fixed.len() + EXPLICIT_LEN {
            return Err(Reason::FailedToGetParameter.into());
        }
        self.iv[..fixed.len()].copy_from_slice(fixed);
        if self.dir == Direction::Encrypt {
            random(&mut self.iv[fixed.len()..self.iv_len])?;
        }
        self.iv_counts = true;
        self.iv_state = IvState::Waiting;
        Ok(())
    }

    /// Takes a whole IV from which the records go on.
    fn restore_iv(&mut self, iv: &[u8]) {
        self.iv[..self.iv_len].copy_from_slice(iv);
        self.iv_counts = true;
        self.iv_state = IvState::Waiting;
    }
}

/// Seals or opens a record under an IV of any length.
fn one(
    stream: &mut dyn AeadStream,
    dir: Direction,
    iv: &[u8],
    aad: &[u8],
    data: &mut [u8],
    tag: &mut [u8],
) -> Result<(), OpError> {
    stream.start(iv)?;
    stream.associated(aad)?;
    stream.text(dir, data.into())?;
    match dir {
        Direction::Encrypt => stream.seal(tag),
        Direction::Decrypt => stream.open(tag),
    }
}

impl Cipher for Gcm {
    fn init(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done {
        self.dir = dir;
        if let Some(pipes) = &mut self.pipes {
            pipes.spend();
        }
        iv.map_or(Ok(()), |iv| self.set_iv(iv))?;
        key.map_or(Ok(()), |key| self.set_key(instance, Given::Bytes(key)))
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        self.set_key(instance, key)
    }

    fn quick(&mut self, call: &mut Call<'_>) -> bool {
        if self.iv_state != IvState::Used || self.record.is_some() {
            return false;
        }
        let (Some(key), Some(text)) = (&mut self.key, call.flat()) else { return false };
        if key.source.is_kept() {
            return false;
        }
        key.stream.text(self.dir, text).is_ok()
    }

    fn update(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        if call.len() == 0 {
            return Ok(0);
        }
        if call.room() < call.len() {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        self.run(instance, call).map_err(|failure| failure.or(Reason::CipherOperationFailed))
    }

    fn finish(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        self.run(instance, call).map(|_| 0)
    }

    fn cipher(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        if call.room() < call.len() {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        // The length of what was given, also where a record has become shorter.
        let len = call.len();
        self.run(instance, call).map(|_| len)
    }

    fn start_pipes(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, ivs: &[Option<&[u8]>]) -> Done {
        self.dir = dir;
        // Text beside the pipeline needs an IV of its own.
        self.iv_state = IvState::Spent;
        // A start that fails leaves no message that could go on in another direction.
        self.pipes.get_or_insert_with(|| Box::new(Pipes::new())).spend();
        key.map_or(Ok(()), |key| self.set_key(instance, Given::Bytes(key)))?;
        self.pipes.as_mut().ok_or(Failure::SILENT)?.start(dir, ivs)
    }

    fn update_pipes(&mut self, instance: &Instance, calls: PipeCalls<'_>) -> Done {
        let done = self.on_pipes(instance, |pipes, key| pipes.update(key, calls));
        done.map_err(|failure| failure.or(Reason::CipherOperationFailed))
    }

    fn finish_pipes(&mut self, instance: &Instance) -> Done {
        self.on_pipes(instance, |pipes, key| pipes.finish(key))
    }

    fn get(&mut self, _: &Instance, asked: &mut Requests<'_>) -> Done {
        // Each message asks for these, in lists of one.
        if let Some(mut p) = asked.only(c"ivlen") {
            return p.size(self.iv_len);
        }
        if let Some(mut p) = asked.only(c"keylen") {
            return p.size(self.row.key_len);
        }
        asked.answer(c"pipeline-tag", |p| match &self.pipes {
            Some(pipes) if (1..=TAG_LEN).contains(&p.room()) => p.octets_for_each(pipes.tags()?.map(|tag| &tag[..])),
            _ => Err(Reason::InvalidTag.into()),
        })?;
        asked.answer(c"ivlen", |p| p.size(self.iv_len))?;
        asked.answer(c"keylen", |p| p.size(self.row.key_len))?;
        asked.answer(c"taglen", |p| p.size(self.tag_len.unwrap_or(TAG_LEN)))?;
        for key in [c"iv", c"updated-iv"] {
            asked.answer(key, |p| {
                if self.iv_state == IvState::Missing {
                    return Err(Failure::SILENT);
                }
                if p.room() < self.iv_len {
                    return Err(Reason::InvalidIvLength.into());
                }
                p.octets_or_address(&self.iv[..self.iv_len])
            })?;
        }
        asked.answer(c"tlsaadpad", |p| p.size(self.record_growth))?;
        asked.answer(c"tag", |p| {
            let known = self.tag_len.is_some() && self.dir == Direction::Encrypt;
            if !known || !(1..=TAG_LEN).contains(&p.room()) {
                return Err(Reason::InvalidTag.into());
            }
            p.octets(&self.tag[..p.room()])
        })?;
        asked.answer(c"tlsivgen", |p| {
            if !p.wants_copy() {
                return Err(Failure::SILENT);
            }
            let len = if (1..=self.iv_len).contains(&p.room()) { p.room() } else { self.iv_len };
            let mut explicit = [0; MAX_IV_LEN];
            let iv = self.next_iv(&mut explicit[..len])?;
            // The message that follows has this IV (OpenSSH asks for one before each packet); the next one is in `self.iv`.
            let key = self.key.as_mut().ok_or(Failure::SILENT)?;
            key.stream.start(&iv[..self.iv_len]).map_err(|error| {
                self.iv_state = IvState::Spent;
                silent(error)
            })?;
            p.octets_of_unsaid_room(&explicit[..len])
        })
    }

    fn set(&mut self, instance: &Instance, params: Params<'_>) -> Done {
        if let Some(tags) = params.get(c"pipeline-tag") {
            if !(1..=TAG_LEN).contains(&tags.len()) {
                return Err(Reason::InvalidTag.into());
            }
            self.on_pipes(instance, |pipes, key| pipes.set_tags(key, &tags.octets_of_each(pipes.len())?))?;
        }
        if let Some(tag) = params.get(c"tag") {
            let tag = tag.octets()?.filter(|tag| tag.len() <= TAG_LEN);
            let tag = tag.ok_or_else(|| Failure::new(Reason::FailedToGetParameter))?;
            if tag.is_empty() || self.dir == Direction::Encrypt {
                return Err(Reason::InvalidTag.into());
            }
            self.tag[..tag.len()].copy_from_slice(tag);
            self.tag_len = Some(tag.len());
        }
        if let Some(len) = params.get(c"ivlen") {
            let len = len.size()?;
            if !(1..=MAX_IV_LEN).contains(&len) {
                return Err(Reason::InvalidIvLength.into());
            }
            if self.iv_len != len {
                if self.iv_state != IvState::Missing {
                    self.iv_state = IvState::Spent;
                }
                self.iv_len = len;
            }
        }
        if let Some(aad) = params.get(c"tlsaad") {
            self.set_record(aad.octets()?.unwrap_or_default())?;
        }
        if let Some(fixed) = params.get(c"tlsivfixed") {
            match fixed.octets_of_unsaid_length(self.iv_len) {
                Some(iv) => self.restore_iv(iv),
                None => self.set_fixed_iv(fixed.octets()?.unwrap_or_default())?,
            }
        }
        if let Some(explicit) = params.get(c"tlsivinv") {
            self.explicit_iv(explicit.octets()?.ok_or(Failure::SILENT)?)?;
            // Text may follow under this IV.
            self.iv_state = IvState::Waiting;
        }
        Ok(())
    }

    fn owner(&self) -> Option<Owner> {
        self.key.as_ref().map(|key| key.owner)
    }

    fn duplicate(&self) -> Result<Box<dyn Cipher>, Failure> {
        let key = match &self.key {
            Some(Key { stream, source, owner, whole }) => Some(Key {
                stream: stream.fork().map_err(|error| home::failed(error, Reason::CipherOperationFailed.into()))?,
                source: source.again()?,
                owner: *owner,
                whole: whole.clone(),
            }),
            None => None,
        };
        let pipes = self.pipes.as_ref().map(|pipes| pipes.again().map(Box::new)).transpose()?;
        Ok(Box::new(Gcm { key, pipes, ..*self }))
    }
}
