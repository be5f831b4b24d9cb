//! Operations by reference: by keys of programs, and by the keeper's own as programs use them. They have the semantics of the
//! crypto core.

use super::{Now, Service, failed_code, refuse, version_of, wrong_kind};
use crate::audit::Why;
use crate::prepared::{self, Prepared};
use crate::streams::{Message, Running, Streams};
use crate::wrapped::{Unwrapped, Wrapping};
use sealane_crypto::aead::{self, AeadOp, AeadStream};
use sealane_crypto::data::Data;
use sealane_crypto::mac::{self, MAX_TAG_LEN, MacOp, MacTfm};
use sealane_crypto::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use sealane_crypto::{CipherMode, OpError, Status};
use sealane_keeper_client::codec::Wiped;
use sealane_keeper_client::key::{Kind, Name, Peer, Uses};
use sealane_keeper_client::limits::PART_LEN;
use sealane_keeper_client::message::{Answer, Code, Operation, Refusal};
use sealane_keeper_client::reference::KeyRef;
use sealane_keeper_client::text::{Iv, NotDone, Outcome, Step, StepsRequest};

/// The version of a key that has computed, and the outcome beside the text.
type Done = (u32, Outcome);

fn with_text((version, Outcome { iv, tag }): Done, text: Wiped) -> Answer {
    Answer::Computed { version, iv: iv.to_vec(), text, tag: tag.to_vec() }
}

/// The outcomes of the steps of a request, with the version of the key.
pub type StepsDone = (u32, Vec<Result<Outcome, NotDone>>);

/// A text of a cipher that is computed in parts, as they come.
pub struct InParts {
    /// The id of the request.
    pub id: u64,
    key: KeyRef,
    /// The version of the key; 0 for a wrapped one.
    pub version: u32,
    /// Encrypt or decrypt.
    pub direction: Direction,
    /// The IV that continues the text.
    pub iv: Iv,
    /// The length of the text.
    pub len: usize,
    /// The length of the part that is computed.
    pub at: usize,
}

impl InParts {
    /// The computation, for the audit log.
    fn step(&self) -> Step<'_> {
        Step::Cipher { direction: self.direction, iv: &self.iv }
    }
}

/// An answer, or the core's failure of the operation.
type Computed = Result<Answer, OpError>;

fn answer(computed: Computed) -> Answer {
    computed.unwrap_or_else(Answer::Failed)
}

impl Service {
    /// Answers an operation by reference, or one that leads to a reference.
    pub(super) fn by_reference(
        &mut self,
        peer: &Peer,
        streams: &mut Streams,
        operation: Operation,
        now: Now,
    ) -> Result<Answer, Refusal> {
        match operation {
            Operation::Wrap { kind, algorithm, secret } => self.wrap(peer, Unwrapped { kind, algorithm, secret }),
            Operation::Try { key, kind, secret_len } => {
                self.try_key(peer, &key, kind, secret_len as usize, now).map(Answer::Version)
            }
            Operation::CipherBy { key, direction, iv, mut text } => {
                let done = self.step(peer, &key, &Step::Cipher { direction, iv: &iv }, &mut text, now)?;
                Ok(answer(done.map(|done| with_text(done, text))))
            }
            Operation::SealBy { key, nonce, aad, mut text, tag_len } => {
                let step = Step::Seal { nonce: &nonce, aad: &aad, tag_len };
                let done = self.step(peer, &key, &step, &mut text, now)?;
                Ok(answer(done.map(|done| with_text(done, text))))
            }
            Operation::OpenBy { key, nonce, aad, text, tag } => {
                let mut text = Wiped::from(text);
                let step = Step::Open { nonce: &nonce, aad: &aad, tag: &tag };
                let done = self.step(peer, &key, &step, &mut text, now)?;
                Ok(answer(done.map(|done| with_text(done, text))))
            }
            Operation::MacBy { key, mut text } => {
                let done = self.step(peer, &key, &Step::Mac, &mut text, now)?;
                let tag = |(version, made): Done| Answer::Tag { version, tag: made.tag.to_vec() };
                Ok(answer(done.map(tag)))
            }
            Operation::MacBegin { key, stream, text } => {
                streams.check_free(stream)?;
                let (version, tfm) = self.mac(peer, &key, text.len(), now)?;
                let mut state = tfm.start();
                state.update(&text);
                let key = key.name().map(|name| (name.clone(), version));
                let message = Message::Mac { state, digest_len: tfm.info().digest_len };
                streams.put(stream, Running { message, key });
                Ok(Answer::Version(version))
            }
            Operation::MacMore { stream, text } => {
                let running = self.gone_on(peer, streams.take(stream)?, &text, now)?;
                let version = running.version();
                streams.put(stream, running);
                Ok(Answer::Version(version))
            }
            Operation::MacEnd { stream, text } => {
                let running = self.gone_on(peer, streams.take(stream)?, &text, now)?;
                let version = running.version();
                let Message::Mac { mut state, digest_len } = running.message else { return wrong_message(stream) };
                let mut tag = vec![0; digest_len];
                Ok(answer(state.finish(&mut tag).map(|()| Answer::Tag { version, tag })))
            }
            Operation::StreamFork { stream, to } => {
                streams.check_free(to)?;
                let running = streams.get(stream)?;
                self.may_go_on(peer, running, running.uses(), 0, now)?;
                let version = running.version();
                Ok(answer(running.forked().map(|fork| {
                    streams.put(to, fork);
                    Answer::Version(version)
                })))
            }
            Operation::AeadBegin { key, stream, direction, nonce, aad, mut text } => {
                streams.check_free(stream)?;
                let begun = self.aead_begun(peer, &key, (direction, &aad, &mut text), &nonce, now)?;
                Ok(answer(begun.map(|running| {
                    let version = running.version();
                    streams.put(stream, running);
                    with_text((version, Outcome::default()), text)
                })))
            }
            Operation::AeadMore { stream, direction, aad, mut text } => {
                let mut running = streams.take(stream)?;
                self.may_go_on(peer, &running, uses_of(direction, &text), aad.len() + text.len(), now)?;
                let (version, Message::Aead { state, .. }) = (running.version(), &mut running.message) else {
                    return wrong_message(stream);
                };
                let done = piece(&mut **state, (direction, &aad, &mut text));
                Ok(answer(done.map(|()| {
                    streams.put(stream, running);
                    with_text((version, Outcome::default()), text)
                })))
            }
            Operation::AeadSeal { stream } => {
                let (mut state, version, whole_len) =
                    self.aead_ended(peer, stream, streams.take(stream)?, Direction::Encrypt, None, now)?;
                let mut tag = vec![0; whole_len];
                Ok(answer(state.seal(&mut tag).map(|()| Answer::Tag { version, tag })))
            }
            Operation::AeadOpen { stream, tag } => {
                let (mut state, version, _) =
                    self.aead_ended(peer, stream, streams.take(stream)?, Direction::Decrypt, Some(&tag), now)?;
                Ok(answer(state.open(&tag).map(|()| Answer::Version(version))))
            }
            Operation::StreamForget { stream } => {
                streams.take(stream).map(|running| Answer::Version(running.version()))
            }
            other => refuse(Code::Use, format!("{} is by the name of a key", other.name())),
        }
    }

    /// Computes the steps of a request by a key, whose texts stand one behind the other. Each is counted, and has an outcome of its own.
    ///
    /// # Errors
    /// A refusal of all of them.
    pub fn steps(
        &mut self,
        peer: &Peer,
        key: &KeyRef,
        request: &StepsRequest<'_>,
        texts: &mut [u8],
        now: Now,
    ) -> Result<StepsDone, Refusal> {
        let done = match &request.steps[..] {
            [(step, _)] => {
                let done = self.step(peer, key, step, texts, now);
                done.map(|done| match done {
                    Ok((version, outcome)) => (version, vec![Ok(outcome)]),
                    Err(error) => (0, vec![Err(NotDone::Failed(error))]),
                })
            }
            steps => self.burst(peer, key, steps, texts, now),
        };
        let noted = |at: usize| match &done {
            Ok((version, done)) => match done.get(at) {
                Some(Ok(_)) => Ok(Some(*version)),
                Some(Err(NotDone::Failed(error))) => Err(Why::Refused(failed_code(*error))),
                Some(Err(NotDone::Refused(code))) => Err(Why::Refused(*code)),
                None => Err(Why::Refused(Code::Driver)),
            },
            Err(refusal) => Err(Why::Refused(refusal.code)),
        };
        // The same is noted together.
        let events: Vec<_> =
            request.steps.iter().enumerate().map(|(at, (step, _))| (step.name(key), noted(at))).collect();
        for same in events.chunk_by(|a, b| a == b) {
            let (name, noted) = same[0];
            self.audit.note_all(peer, name, key.name(), noted, same.len() as u64, now.mono_ns);
        }
        done
    }

    /// Begins with a text that may be computed in parts, as they come: it is counted and noted. `None`: it has to be whole, or there are
    /// several.
    ///
    /// # Errors
    /// A refusal.
    pub fn in_parts(
        &mut self,
        peer: &Peer,
        key: &KeyRef,
        request: &StepsRequest<'_>,
        now: Now,
    ) -> Result<Option<InParts>, Refusal> {
        let [(step, len)] = request.steps[..] else { return Ok(None) };
        let Step::Cipher { direction, iv } = step else { return Ok(None) };
        if len <= PART_LEN || !self.chains(peer, key, iv.len(), len) {
            return Ok(None);
        }
        let admitted = self.prepared(peer, key, uses(&step), len, now).map(|(version, _)| version);
        // Whatever becomes of it, its key is used from here on, and the first parts may be read before the last one is written.
        let noted = admitted.as_ref().map(|version| Some(*version)).map_err(|refusal| Why::Refused(refusal.code));
        self.audit.note(peer, step.name(key), key.name(), noted, now.mono_ns);
        let version = admitted?;
        // It is as long as the cipher's.
        let Ok(iv) = Iv::try_from(iv) else { return Ok(None) };
        Ok(Some(InParts { id: request.id, key: key.clone(), version, direction, iv, len, at: 0 }))
    }

    /// Whether the IV that comes back from a part of a text continues it, and all its parts can be computed.
    fn chains(&mut self, peer: &Peer, key: &KeyRef, iv_len: usize, len: usize) -> bool {
        let prepared = match key {
            KeyRef::Wrapped(wrapped) => self.unwrapped(peer, wrapped).ok(),
            // One that was never used before is prepared with its first text.
            KeyRef::Named { name, version, .. } => {
                let version = self.usable(peer, name, Uses::default(), *version);
                version.ok().and_then(|version| self.live.get(&(name.clone(), version))?.prepared.as_ref())
            }
        };
        let Some(Prepared::Skcipher(tfm)) = prepared else { return false };
        let info = tfm.info();
        let chains = matches!(info.mode, CipherMode::Ecb | CipherMode::Cbc | CipherMode::Ctr);
        chains && info.iv_len == iv_len && len.is_multiple_of(info.block_len) && PART_LEN.is_multiple_of(info.block_len)
    }

    /// The cipher of a text in parts, if its key may still be used.
    ///
    /// # Errors
    /// A refusal.
    pub fn cipher(&mut self, peer: &Peer, parts: &InParts, now: Now) -> Result<&SkcipherTfm, Refusal> {
        match self.ready(peer, &parts.key, uses(&parts.step()), parts.version, now)? {
            Prepared::Skcipher(tfm) => Ok(tfm),
            other => wrong_type(&parts.key, other),
        }
    }

    /// Notes the end of a text in parts, if that is a failure.
    pub fn ended(&mut self, peer: &Peer, parts: &InParts, done: &Result<Status, Refusal>, now: Now) {
        let code = match done {
            Ok(Ok(())) => return,
            Ok(Err(error)) => failed_code(*error),
            Err(refusal) => refusal.code,
        };
        self.audit.note(peer, parts.step().name(&parts.key), parts.key.name(), Err(Why::Refused(code)), now.mono_ns);
    }

    /// Computes on a text.
    fn step(
        &mut self,
        peer: &Peer,
        key: &KeyRef,
        step: &Step<'_>,
        text: &mut [u8],
        now: Now,
    ) -> Result<Result<Done, OpError>, Refusal> {
        let (version, prepared) = self.prepared(peer, key, uses(step), counted_len(step, text.len()), now)?;
        let mut made = match begun(key, prepared, step)? {
            Ok(made) => made,
            Err(error) => return Ok(Err(error)),
        };
        let done = match (step, prepared) {
            (Step::Cipher { direction, .. }, Prepared::Skcipher(tfm)) => {
                tfm.one(*direction, &mut made.iv, Data::from(text))
            }
            (Step::Seal { nonce, aad, .. }, Prepared::Aead { tfm, .. }) => {
                tfm.seal(nonce, &[aad], Data::from(text), &mut made.tag)
            }
            (Step::Open { nonce, aad, tag }, Prepared::Aead { tfm, .. }) => {
                made.tag.clear();
                tfm.open(nonce, &[aad], Data::from(text), tag)
            }
            (Step::Mac, Prepared::Mac(tfm)) => tfm.sign(&[text], &mut made.tag),
            (_, other) => return wrong_type(key, other),
        };
        Ok(done.map(|()| (version, made)))
    }

    /// Computes on texts that stand one behind the other, by one key.
    fn burst(
        &mut self,
        peer: &Peer,
        key: &KeyRef,
        steps: &[(Step<'_>, usize)],
        texts: &mut [u8],
        now: Now,
    ) -> Result<StepsDone, Refusal> {
        // Each is counted before any is computed.
        let mut admit = |step, len| match key {
            KeyRef::Wrapped(_) => Ok(0),
            KeyRef::Named { .. } => {
                self.prepared(peer, key, uses(step), counted_len(step, len), now).map(|(version, _)| version)
            }
        };
        let admitted: Vec<Result<u32, Refusal>> = steps.iter().map(|(step, len)| admit(step, *len)).collect();
        let Some((version, uses)) = core::iter::zip(&admitted, steps)
            .find_map(|(version, (step, _))| Some((*version.as_ref().ok()?, uses(step))))
        else {
            return all_refused(admitted.into_iter().filter_map(Result::err).collect());
        };
        let prepared = self.ready(peer, key, uses, version, now)?;
        let begin = |(admitted, (step, _)): (Result<u32, Refusal>, &(Step<'_>, usize))| match admitted
            .and_then(|_| begun(key, prepared, step))
        {
            Ok(made) => made.map_err(NotDone::Failed),
            Err(refusal) => Err(NotDone::Refused(refusal.code)),
        };
        let mut done: Vec<Result<Outcome, NotDone>> = core::iter::zip(admitted, steps).map(begin).collect();
        compute(prepared, steps, &mut done, texts);
        for (done, (step, _)) in core::iter::zip(&mut done, steps) {
            if let (Ok(made), Step::Open { .. }) = (done, step) {
                made.tag.clear();
            }
        }
        Ok((version, done))
    }

    fn may_wrap(&self, peer: &Peer) -> Result<&Wrapping, Refusal> {
        let Some(wrapping) = &self.wrapping else {
            return refuse(Code::Denied, "the keeper takes no keys of programs: 'wrapped-keys' is false");
        };
        if wrapping.users().is_some_and(|users| !users.admits(peer)) {
            return refuse(Code::Denied, format!("the keeper takes no keys of user {}", peer.user));
        }
        Ok(wrapping)
    }

    fn wrap(&mut self, peer: &Peer, key: Unwrapped) -> Result<Answer, Refusal> {
        self.may_wrap(peer)?;
        self.prepare_unwrapped(peer, &key)?;
        match self.may_wrap(peer)?.wrap(peer.user, &key) {
            Ok(wrapped) => Ok(Answer::Wrapped(wrapped)),
            Err(e) => refuse(Code::Driver, format!("a key of {} cannot be wrapped: {e}", key.algorithm)),
        }
    }

    fn prepare_unwrapped(&mut self, peer: &Peer, key: &Unwrapped) -> Result<Prepared, Refusal> {
        let refusal = |code, text: String| Refusal { code, text: format!("key of a program: {text}") };
        let wrong = |text| refusal(Code::Parameter, text);
        let (name, user) = (&key.algorithm, peer.user);
        let kind = key.kind.registry().ok_or_else(|| wrong("it is a private key".to_owned()))?;
        self.composed.check(&self.registry, user, kind, name).map_err(|text| refusal(Code::Full, text))?;
        let alg = prepared::algorithm(&self.registry, kind, name).map_err(wrong)?;
        self.composed.note(&self.registry, user, kind, name);
        Prepared::new(&self.registry, &alg, &key.secret).map_err(|e| wrong(format!("{name}: {e}")))
    }

    /// A wrapped key, ready for use.
    fn unwrapped(&mut self, peer: &Peer, wrapped: &[u8]) -> Result<&Prepared, Refusal> {
        let wrapping = self.may_wrap(peer)?;
        let not_ours = || Refusal {
            code: Code::Wrapped,
            text: format!("the wrapped key is not this keeper's for user {}, or was changed", peer.user),
        };
        if !self.ready_wrapped.has(peer.user, wrapped) {
            let key = wrapping.unwrap(peer.user, wrapped).map_err(|_| not_ours())?;
            let prepared = self.prepare_unwrapped(peer, &key)?;
            self.ready_wrapped.put(peer.user, wrapped.to_vec(), prepared);
        }
        self.ready_wrapped.get(peer.user, wrapped).ok_or_else(not_ours)
    }

    /// A key for a use of so many bytes, which is counted, with its version.
    fn prepared(
        &mut self,
        peer: &Peer,
        key: &KeyRef,
        uses: Uses,
        len: usize,
        now: Now,
    ) -> Result<(u32, &Prepared), Refusal> {
        match key {
            KeyRef::Wrapped(wrapped) => Ok((0, self.unwrapped(peer, wrapped)?)),
            KeyRef::Named { name, version, algorithm } => {
                let version = self.usable(peer, name, uses, *version)?;
                self.is_of(name, None, algorithm)?;
                // What an expired key has made is still opened.
                if makes(uses) {
                    self.not_expired(name, now)?;
                }
                let live = self.charge(name, version, len, u64::MAX, now)?;
                match &live.prepared {
                    Some(prepared) => Ok((version, prepared)),
                    None => wrong_kind(name),
                }
            }
        }
    }

    /// A version of a key that a use was counted for, if it may still be used.
    fn ready(&mut self, peer: &Peer, key: &KeyRef, uses: Uses, version: u32, now: Now) -> Result<&Prepared, Refusal> {
        match key {
            KeyRef::Wrapped(wrapped) => self.unwrapped(peer, wrapped),
            KeyRef::Named { name, .. } => {
                let version = self.usable(peer, name, uses, version)?;
                if makes(uses) {
                    self.not_expired(name, now)?;
                }
                match self.live.get(&(name.clone(), version)).and_then(|live| live.prepared.as_ref()) {
                    Some(prepared) => Ok(prepared),
                    None => wrong_kind(name),
                }
            }
        }
    }

    fn mac(&mut self, peer: &Peer, key: &KeyRef, len: usize, now: Now) -> Result<(u32, &MacTfm), Refusal> {
        match self.prepared(peer, key, Uses::MAC, len, now)? {
            (version, Prepared::Mac(tfm)) => Ok((version, tfm)),
            (_, other) => wrong_type(key, other),
        }
    }

    /// Whether a key is of this algorithm, and of this type if one is given.
    fn is_of(&self, name: &Name, kind: Option<Kind>, algorithm: &str) -> Result<(), Refusal> {
        match self.store.key(name) {
            Some(key) if key.spec.algorithm == algorithm && kind.is_none_or(|kind| kind == key.spec.kind) => Ok(()),
            Some(key) => {
                let (is, kind) = (&key.spec.algorithm, key.spec.kind.name());
                refuse(Code::Parameter, format!("key '{name}' is a key of {is} ({kind}), not of {algorithm}"))
            }
            None => wrong_kind(name),
        }
    }

    /// Whether the secret of a version has this length: a program that asks for AES-256 by a name does not mean AES-128.
    fn has_len(&self, name: &Name, version: u32, len: usize) -> Result<(), Refusal> {
        let versions = self.store.key(name).map_or(&[][..], |key| &key.versions);
        match versions.iter().find(|one| one.number == version).map(|one| one.secret.len()) {
            Some(is) if len != 0 && is != len => {
                refuse(Code::Parameter, format!("version {version} of key '{name}' has {is} bytes, not {len}"))
            }
            _ => Ok(()),
        }
    }

    /// The version by which a client could use a key of this type, and of this length unless that is 0, now.
    fn try_key(&mut self, peer: &Peer, key: &KeyRef, kind: Kind, secret_len: usize, now: Now) -> Result<u32, Refusal> {
        let (name, version, algorithm) = match key {
            KeyRef::Wrapped(wrapped) => {
                let prepared = self.unwrapped(peer, wrapped)?;
                return if Some(prepared.kind()) == kind.registry() { Ok(0) } else { wrong_type(key, prepared) };
            }
            KeyRef::Named { name, version, algorithm } => (name, *version, algorithm),
        };
        let version = self.usable(peer, name, Uses::default(), version)?;
        self.is_of(name, Some(kind), algorithm)?;
        self.has_len(name, version, secret_len)?;
        let makes = if kind == Kind::Hash { Uses::MAC } else { direction_uses(Direction::Encrypt) };
        let made = self.usable(peer, name, makes, version).and_then(|_| self.not_expired(name, now));
        // A key that only decrypts is good for programs that only decrypt.
        match made {
            Err(_) if self.usable(peer, name, Uses::DECRYPT, version).is_ok() => Ok(version),
            made => made.map(|()| version),
        }
    }

    /// Begins a message of an AEAD with a piece: its direction, associated data and text.
    fn aead_begun(
        &mut self,
        peer: &Peer,
        key: &KeyRef,
        first: (Direction, &[u8], &mut [u8]),
        nonce: &[u8],
        now: Now,
    ) -> Result<Result<Running, OpError>, Refusal> {
        let (direction, aad, text) = &first;
        let (version, prepared) = self.prepared(peer, key, uses_of(*direction, text), aad.len() + text.len(), now)?;
        let Prepared::Aead { tfm, pieces } = prepared else { return wrong_type(key, prepared) };
        let Some(pieces) = pieces else {
            return refuse(Code::Parameter, format!("messages of {} come whole", tfm.info().name));
        };
        let whole_len = tfm.info().digest_len;
        let begun = pieces.fork().and_then(|mut state| {
            state.start(nonce)?;
            piece(&mut *state, first)?;
            let key = key.name().map(|name| (name.clone(), version));
            Ok(Running { message: Message::Aead { state, whole_len }, key })
        });
        Ok(begun)
    }

    /// The state of an AEAD's message whose end is asked for, with the version of its key and the length of its tag. A tag that is to
    /// be compared is whole, as [`whole_tag`] says.
    fn aead_ended(
        &mut self,
        peer: &Peer,
        stream: u32,
        running: Running,
        direction: Direction,
        tag: Option<&[u8]>,
        now: Now,
    ) -> Result<(Box<dyn AeadStream>, u32, usize), Refusal> {
        self.may_go_on(peer, &running, direction_uses(direction), 0, now)?;
        let version = running.version();
        let Message::Aead { state, whole_len } = running.message else { return wrong_message(stream) };
        if let Some(tag) = tag {
            whole_tag(running.key.as_ref().map(|(name, _)| name), tag.len(), whole_len)?;
        }
        Ok((state, version, whole_len))
    }

    /// Counts an operation on the key of a running message, if it may still be used.
    fn may_go_on(&mut self, peer: &Peer, running: &Running, uses: Uses, len: usize, now: Now) -> Result<(), Refusal> {
        if let Some((name, version)) = &running.key {
            self.usable(peer, name, uses, *version)?;
            if makes(uses) {
                self.not_expired(name, now)?;
            }
            self.charge(name, *version, len, u64::MAX, now)?;
        }
        Ok(())
    }

    /// A message with another piece, if its key may still be used.
    fn gone_on(&mut self, peer: &Peer, mut running: Running, text: &[u8], now: Now) -> Result<Running, Refusal> {
        self.may_go_on(peer, &running, Uses::MAC, text.len(), now)?;
        match &mut running.message {
            Message::Mac { state, .. } => state.update(text),
            Message::Aead { .. } => return refuse(Code::Parameter, "a message of an AEAD is no MAC's"),
        }
        Ok(running)
    }

    /// The number of revocations so far. When it changes, [`Self::drop_revoked`] has to see all messages in pieces.
    #[must_use]
    pub fn revocations(&self) -> u64 {
        self.revocations
    }

    /// Drops the messages in pieces whose keys are revoked: what they hold is made of the secret.
    pub fn drop_revoked(&self, streams: &mut Streams) {
        streams.retain(|name, number| {
            let key = self.store.key(name);
            key.is_some_and(|key| version_of(name, key, number).is_ok())
        });
    }
}

/// The steps of a request when each is refused: with the text of the refusal if it is the same for all.
fn all_refused(refusals: Vec<Refusal>) -> Result<StepsDone, Refusal> {
    match &refusals[..] {
        [] => refuse(Code::Malformed, "no steps"),
        [first, rest @ ..] if rest.iter().all(|refusal| refusal.code == first.code) => Err(first.clone()),
        _ => Ok((0, refusals.iter().map(|refusal| Err(NotDone::Refused(refusal.code))).collect())),
    }
}

/// The uses that a key needs for a computation.
fn uses(step: &Step<'_>) -> Uses {
    match step {
        Step::Cipher { direction, .. } => direction_uses(*direction),
        Step::Seal { .. } => direction_uses(Direction::Encrypt),
        Step::Open { .. } => direction_uses(Direction::Decrypt),
        Step::Mac => Uses::MAC,
    }
}

/// Those for a direction under nonces of the caller.
fn direction_uses(direction: Direction) -> Uses {
    match direction {
        Direction::Encrypt => Uses::ENCRYPT.and(Uses::CALLER_NONCE),
        Direction::Decrypt => Uses::DECRYPT,
    }
}

/// The same for a piece of a message. Associated data alone tells nothing, so that it needs none.
fn uses_of(direction: Direction, text: &[u8]) -> Uses {
    if text.is_empty() { Uses::default() } else { direction_uses(direction) }
}

/// Whether something is made by these uses that an expired key must not make.
fn makes(uses: Uses) -> bool {
    uses != Uses::DECRYPT && uses != Uses::default()
}

/// Adds associated data and text.
fn piece(state: &mut dyn AeadStream, (direction, aad, text): (Direction, &[u8], &mut [u8])) -> Result<(), OpError> {
    if !aad.is_empty() {
        state.associated(aad)?;
    }
    if text.is_empty() { Ok(()) } else { state.text(direction, text.into()) }
}

/// The operation is for messages of the other kind.
fn wrong_message<T>(stream: u32) -> Result<T, Refusal> {
    refuse(Code::Parameter, format!("the message in pieces with number {stream} is of another kind"))
}

/// The bytes of a computation that count.
fn counted_len(step: &Step<'_>, text_len: usize) -> usize {
    match step {
        Step::Cipher { .. } | Step::Mac => text_len,
        Step::Seal { aad, .. } | Step::Open { aad, .. } => aad.len() + text_len,
    }
}

/// The IV and the tag with which a computation begins: a cipher's IV, and room for a tag that is made, or the tag that is expected.
///
/// # Errors
/// A refusal, or the failure of lengths that nothing here has.
fn begun(key: &KeyRef, prepared: &Prepared, step: &Step<'_>) -> Result<Result<Outcome, OpError>, Refusal> {
    let made = match (step, prepared) {
        (Step::Cipher { iv, .. }, Prepared::Skcipher(_)) => Outcome::of(iv, &[]).ok_or(OpError::Nonce),
        (Step::Seal { tag_len, .. }, Prepared::Aead { tfm, .. }) => {
            let len = usize::from(*tag_len);
            whole_tag(key.name(), len, tfm.info().digest_len)?;
            [0; MAX_TAG_LEN].get(..len).and_then(|room| Outcome::of(&[], room)).ok_or(OpError::TagLen)
        }
        (Step::Open { tag, .. }, Prepared::Aead { tfm, .. }) => {
            whole_tag(key.name(), tag.len(), tfm.info().digest_len)?;
            Outcome::of(&[], tag).ok_or(OpError::TagLen)
        }
        (Step::Mac, Prepared::Mac(tfm)) => {
            let room = [0; MAX_TAG_LEN];
            room.get(..tfm.info().digest_len).and_then(|room| Outcome::of(&[], room)).ok_or(OpError::TagLen)
        }
        (_, other) => return wrong_type(key, other),
    };
    Ok(made)
}

/// Computes on texts that stand one behind the other: those for which there is an outcome to begin with, which is one of a step of the
/// key's type ([`begun`]).
fn compute(
    prepared: &Prepared,
    steps: &[(Step<'_>, usize)],
    done: &mut [Result<Outcome, NotDone>],
    mut texts: &mut [u8],
) {
    let mut going: Vec<(&Step<'_>, &mut [u8], &mut Outcome)> = Vec::with_capacity(steps.len());
    for ((step, len), made) in core::iter::zip(steps, &mut *done) {
        let (text, rest) = core::mem::take(&mut texts).split_at_mut(*len);
        texts = rest;
        if let Ok(made) = made {
            going.push((step, text, made));
        }
    }
    let statuses: Vec<Status> = match prepared {
        Prepared::Skcipher(tfm) => {
            let op = |(step, text, made)| {
                let (step, made): (&Step<'_>, &mut Outcome) = (step, made);
                let dir = if let Step::Cipher { direction, .. } = step { *direction } else { Direction::Encrypt };
                let text: &mut [u8] = text;
                SkcipherOp { tfm, dir, iv: &mut made.iv, data: text.into(), status: Ok(()) }
            };
            let mut ops: Vec<SkcipherOp<'_>> = going.into_iter().map(op).collect();
            skcipher::crypt(&mut ops);
            ops.iter().map(|op| op.status).collect()
        }
        Prepared::Aead { tfm, .. } => {
            let aads: Vec<[&[u8]; 1]> = going.iter().map(|(step, ..)| [step.aad()]).collect();
            let op = |((step, text, made), aad)| {
                let (step, made): (&Step<'_>, &mut Outcome) = (step, made);
                let (dir, nonce) = match step {
                    Step::Open { nonce, .. } => (Direction::Decrypt, *nonce),
                    Step::Seal { nonce, .. } => (Direction::Encrypt, *nonce),
                    Step::Cipher { .. } | Step::Mac => (Direction::Encrypt, &[][..]),
                };
                let (text, aad): (&mut [u8], &[&[u8]; 1]) = (text, aad);
                AeadOp { tfm, dir, nonce, aad, data: text.into(), tag: &mut made.tag, status: Ok(()) }
            };
            let mut ops: Vec<AeadOp<'_>> = core::iter::zip(going, &aads).map(op).collect();
            aead::crypt(&mut ops);
            ops.iter().map(|op| op.status).collect()
        }
        Prepared::Mac(tfm) => {
            let (texts, mades): (Vec<[&[u8]; 1]>, Vec<&mut Outcome>) =
                going.into_iter().map(|(_, text, made)| ([&*text], made)).unzip();
            let op = |(text, made)| {
                let (text, made): (&[&[u8]; 1], &mut Outcome) = (text, made);
                MacOp::new(tfm, text, &mut made.tag)
            };
            let mut ops: Vec<MacOp<'_>> = core::iter::zip(&texts, mades).map(op).collect();
            mac::sign(&mut ops);
            ops.iter().map(|op| op.status).collect()
        }
    };
    let mut statuses = statuses.into_iter();
    for made in done.iter_mut().filter(|made| made.is_ok()) {
        if let Some(Err(error)) = statuses.next() {
            *made = Err(NotDone::Failed(error));
        }
    }
}

/// A refusal of a tag that is cut off. Tags of GCM that are cut are guessed one after the other, a longer one from a shorter one, which
/// gives away the key of the authentication. So nobody may choose such tags who was not given the key itself.
fn whole_tag(key: Option<&Name>, len: usize, whole_len: usize) -> Result<(), Refusal> {
    match key {
        Some(name) if len < whole_len => {
            refuse(Code::Parameter, format!("key '{name}': its tags have {whole_len} bytes, and no fewer"))
        }
        _ => Ok(()),
    }
}

/// The operation is not one of the key's type.
fn wrong_type<T>(key: &KeyRef, prepared: &Prepared) -> Result<T, Refusal> {
    match key {
        KeyRef::Named { name, .. } => wrong_kind(name),
        KeyRef::Wrapped(_) => refuse(Code::Use, format!("the wrapped key is one of type {}", prepared.kind().name())),
    }
}

#[cfg(test)]
mod tests;
