//! Operations by reference: by keys of programs, and by the keeper's own as programs use them. They have the semantics of the
//! crypto core.

use super::{Now, Service, refuse, version_of, wrong_kind};
use crate::prepared::{self, Prepared};
use crate::streams::{Message, Running, Streams};
use crate::wrapped::{Unwrapped, Wrapping};
use sealane_crypto::OpError;
use sealane_crypto::aead::AeadStream;
use sealane_crypto::data::Data;
use sealane_crypto::mac::{MAX_TAG_LEN, MacTfm};
use sealane_crypto::skcipher::Direction;
use sealane_keeper_client::codec::Wiped;
use sealane_keeper_client::key::{Kind, Name, Peer, Uses};
use sealane_keeper_client::message::{Answer, Code, Operation, Refusal, Reply};
use sealane_keeper_client::reference::KeyRef;
use sealane_keeper_client::text::{Step, TextRequest, reply_around};

/// The outcome of a computation on a text, beside the text.
struct Done {
    version: u32,
    /// The IV that continues a cipher's text.
    iv: Vec<u8>,
    /// The tag of a text that an AEAD has sealed.
    tag: Vec<u8>,
}

impl Done {
    fn with(self, text: Wiped) -> Answer {
        let Done { version, iv, tag } = self;
        Answer::Computed { version, iv, text, tag }
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
                Ok(answer(done.map(|done| done.with(text))))
            }
            Operation::SealBy { key, nonce, aad, mut text, tag_len } => {
                let step = Step::Seal { nonce: &nonce, aad: &aad, tag_len };
                let done = self.step(peer, &key, &step, &mut text, now)?;
                Ok(answer(done.map(|done| done.with(text))))
            }
            Operation::OpenBy { key, nonce, aad, text, tag } => {
                let mut text = Wiped::from(text);
                let step = Step::Open { nonce: &nonce, aad: &aad, tag: &tag };
                let done = self.step(peer, &key, &step, &mut text, now)?;
                Ok(answer(done.map(|done| done.with(text))))
            }
            Operation::MacBy { key, text } => {
                let (version, tfm) = self.mac(peer, &key, text.len(), now)?;
                let mut tag = vec![0; tfm.info().digest_len];
                Ok(answer(tfm.sign(&[&text], &mut tag).map(|()| Answer::Tag { version, tag })))
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
                let begun = self.begun(peer, &key, (direction, &aad, &mut text), &nonce, now)?;
                Ok(answer(begun.map(|running| {
                    let version = running.version();
                    streams.put(stream, running);
                    Done { version, iv: Vec::new(), tag: Vec::new() }.with(text)
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
                    Done { version, iv: Vec::new(), tag: Vec::new() }.with(text)
                })))
            }
            Operation::AeadSeal { stream } => {
                let (mut state, version, whole_len) =
                    self.ended(peer, stream, streams.take(stream)?, uses(Direction::Encrypt), None, now)?;
                let mut tag = vec![0; whole_len];
                Ok(answer(state.seal(&mut tag).map(|()| Answer::Tag { version, tag })))
            }
            Operation::AeadOpen { stream, tag } => {
                let (mut state, version, _) =
                    self.ended(peer, stream, streams.take(stream)?, uses(Direction::Decrypt), Some(&tag), now)?;
                Ok(answer(state.open(&tag).map(|()| Answer::Version(version))))
            }
            Operation::StreamForget { stream } => {
                streams.take(stream).map(|running| Answer::Version(running.version()))
            }
            other => refuse(Code::Use, format!("{} is by the name of a key", other.name())),
        }
    }

    /// Answers a request of a text, which is computed where it is. The answer is what stands before the text and behind it.
    ///
    /// # Errors
    /// A whole reply, where there is no text: the request is refused, or the computation has failed.
    pub fn text(&mut self, peer: &Peer, request: &mut TextRequest<'_>, now: Now) -> Result<(Wiped, Wiped), Wiped> {
        let TextRequest { id, key, step, text } = request;
        let answer = match self.step(peer, key, step, text, now) {
            Ok(Ok(Done { version, iv, tag })) => {
                self.audit.note(peer, step.name(key), key.name(), Ok(Some(version)), now.mono_ns);
                return Ok(reply_around(*id, version, &iv, text.len(), &tag));
            }
            Ok(Err(error)) => Answer::Failed(error),
            Err(refusal) => Answer::Refused(refusal),
        };
        self.note(peer, step.name(key), key.name(), &answer, now);
        Err(Reply { id: *id, answer }.encode())
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
        let (direction, aad_len) = match step {
            Step::Cipher { direction, .. } => (*direction, 0),
            Step::Seal { aad, .. } => (Direction::Encrypt, aad.len()),
            Step::Open { aad, .. } => (Direction::Decrypt, aad.len()),
        };
        let (version, prepared) = self.prepared(peer, key, uses(direction), aad_len + text.len(), now)?;
        if let (KeyRef::Named { name, .. }, Prepared::Aead { tfm, .. }) = (key, prepared) {
            let len = match step {
                Step::Cipher { .. } => None,
                Step::Seal { tag_len, .. } => Some(usize::from(*tag_len)),
                Step::Open { tag, .. } => Some(tag.len()),
            };
            len.map_or(Ok(()), |len| whole_tag(name, len, tfm.info().digest_len))?;
        }
        let text = Data::from(text);
        let (no_iv, mut tag) = (Vec::new(), Vec::new());
        Ok(match (step, prepared) {
            (Step::Cipher { iv, .. }, Prepared::Skcipher(tfm)) => {
                let mut iv = iv.to_vec();
                tfm.one(direction, &mut iv, text).map(|()| Done { version, iv, tag })
            }
            (Step::Seal { tag_len, .. }, Prepared::Aead { .. }) if usize::from(*tag_len) > MAX_TAG_LEN => {
                Err(OpError::TagLen)
            }
            (Step::Seal { nonce, aad, tag_len }, Prepared::Aead { tfm, .. }) => {
                tag.resize(usize::from(*tag_len), 0);
                tfm.seal(nonce, &[aad], text, &mut tag).map(|()| Done { version, iv: no_iv, tag })
            }
            (Step::Open { nonce, aad, tag: expected }, Prepared::Aead { tfm, .. }) => {
                tfm.open(nonce, &[aad], text, expected).map(|()| Done { version, iv: no_iv, tag })
            }
            (_, other) => return wrong_type(key, other),
        })
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
        let makes = if kind == Kind::Hash { Uses::MAC } else { uses(Direction::Encrypt) };
        let made = self.usable(peer, name, makes, version).and_then(|_| self.not_expired(name, now));
        // A key that only decrypts is good for programs that only decrypt.
        match made {
            Err(_) if self.usable(peer, name, Uses::DECRYPT, version).is_ok() => Ok(version),
            made => made.map(|()| version),
        }
    }

    /// Begins a message of an AEAD with a piece: its direction, associated data and text.
    fn begun(
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
    fn ended(
        &mut self,
        peer: &Peer,
        stream: u32,
        running: Running,
        uses: Uses,
        tag: Option<&[u8]>,
        now: Now,
    ) -> Result<(Box<dyn AeadStream>, u32, usize), Refusal> {
        self.may_go_on(peer, &running, uses, 0, now)?;
        let version = running.version();
        let Message::Aead { state, whole_len } = running.message else { return wrong_message(stream) };
        if let (Some((name, _)), Some(tag)) = (&running.key, tag) {
            whole_tag(name, tag.len(), whole_len)?;
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

/// The uses that a key needs for a direction under nonces of the caller.
fn uses(direction: Direction) -> Uses {
    match direction {
        Direction::Encrypt => Uses::ENCRYPT.and(Uses::CALLER_NONCE),
        Direction::Decrypt => Uses::DECRYPT,
    }
}

/// The same for a piece of a message. Associated data alone tells nothing, so that it needs none.
fn uses_of(direction: Direction, text: &[u8]) -> Uses {
    if text.is_empty() { Uses::default() } else { uses(direction) }
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

/// A refusal of a tag that is cut off. Tags of GCM that are cut are guessed one after the other, a longer one from a shorter one, which
/// gives away the key of the authentication. So nobody may choose such tags who was not given the key itself.
fn whole_tag(name: &Name, len: usize, whole_len: usize) -> Result<(), Refusal> {
    if len < whole_len {
        return refuse(Code::Parameter, format!("key '{name}': its tags have {whole_len} bytes, and no fewer"));
    }
    Ok(())
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
