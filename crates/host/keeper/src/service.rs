//! The keeper's work on requests: who may do what, within which bounds, and the computation. It reads no clock and no socket.

use crate::audit::{Audit, Why};
use crate::composed::Composed;
use crate::counters::Used;
use crate::key::{Key, Version};
use crate::prepared::{self, Prepared};
use crate::private::{self, NotMade, Ready};
use crate::store::{Store, StoreError};
use crate::streams::Streams;
use crate::wrapped::{ReadyWrapped, Wrapping};
use sealane_crypto::data::Data;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{Alg, CipherMode, KeyFormat, KeyUse, OpError, Registry};
use sealane_crypto_awslc::pkey::{PrivateKey, UseError};
use sealane_keeper_client::codec::Wiped;
use sealane_keeper_client::key::{Kind, Limits, Listed, MAX_SYMMETRIC_LEN, MAX_VERSIONS, Name, Peer, Spec, Uses};
use sealane_keeper_client::message::{
    Answer, Code, Info, MAX_PAGE, MAX_TEXT_LEN, Operation, Refusal, Reply, Request, VersionInfo,
};
use sealane_pkey::{Algorithm, Padding, Scheme};
use sealane_sys::random;
use std::collections::HashMap;
use subtle::ConstantTimeEq;
use tracing::error;
use zeroize::Zeroizing;

/// The shortest nonce that the keeper makes by chance.
const MIN_RANDOM_NONCE_LEN: usize = 12;
/// The operations under one version with random nonces of 12 bytes: the chance that two are the same stays below 2^-32 (NIST SP
/// 800-38D, section 8.3).
const MAX_RANDOM_NONCES: u64 = 1 << 32;
/// The shortest MAC that a key may make, in bytes.
const MIN_TAG_LEN: usize = 12;
/// The amounts written ahead of the counters: after a crash, so much counts as used.
const LEASE: Limits = Limits { bytes: 1 << 30, operations: 1 << 20, per_second: 0 };

/// The time of a request.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The time of day, in seconds since 1970.
    pub wall_s: u64,
    /// A clock that only goes forward, in nanoseconds.
    pub mono_ns: u64,
}

/// The outcome of a message.
pub enum Served {
    /// A reply, and whether the connection ends with it.
    Reply(Wiped, bool),
    /// A key has to be made first, which takes longer than others can wait for: [`Service::made`] has the reply then.
    Later(Box<Making>),
    /// The client of the request with this number asks for slots of shared memory, which are the server's to give.
    Slots(u64),
}

/// A request that waits for a key to be made: [`Service::made`] or [`Service::given_up`] takes it back.
pub struct Making {
    id: u64,
    peer: Peer,
    operation: &'static str,
    name: Name,
    /// The rules of a new key; `None` for a new version of one.
    spec: Option<Spec>,
    algorithm: Algorithm,
}

impl Making {
    /// The algorithm of the key.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The client that asks.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

/// The next step of a request that was looked at.
enum Step {
    Answer(Answer),
    /// A key of RSA has to be made for this key, with these rules if it is a new one.
    Make(Name, Option<Spec>, Algorithm),
    /// The connection is to have slots.
    Slots,
}

impl From<Answer> for Step {
    fn from(answer: Answer) -> Self {
        Step::Answer(answer)
    }
}

/// A version that has been used since the keeper started.
struct Live {
    /// `None` for a private key: it is among [`Service::ready`], or not any more.
    prepared: Option<Prepared>,
    /// Its counters. Its [`Version`] never says less.
    used: Used,
}

/// A keeper without its sockets.
pub struct Service {
    registry: Registry,
    store: Store,
    admins: Listed,
    live: HashMap<(Name, u32), Live>,
    ready: Ready,
    /// `None` where keys of programs are not taken.
    wrapping: Option<Wrapping>,
    ready_wrapped: ReadyWrapped,
    composed: Composed,
    /// For each key with a limit of rate: the time at which all that was allowed so far would be done at that rate.
    busy_until_ns: HashMap<Name, u64>,
    revocations: u64,
    audit: Audit,
}

fn refuse<T>(code: Code, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { code, text: text.into() })
}

impl Service {
    /// A keeper of these keys. `admins` may make keys, and administer all.
    #[must_use]
    pub fn new(registry: Registry, store: Store, admins: Listed) -> Self {
        let (live, busy_until_ns) = (HashMap::new(), HashMap::new());
        let (ready, ready_wrapped, composed, audit) = Default::default();
        Service {
            registry,
            store,
            admins,
            live,
            ready,
            wrapping: None,
            ready_wrapped,
            composed,
            busy_until_ns,
            revocations: 0,
            audit,
        }
    }

    /// The same keeper, which also takes keys of programs.
    #[must_use]
    pub fn with_wrapping(self, wrapping: Wrapping) -> Self {
        Service { wrapping: Some(wrapping), ..self }
    }

    /// The keys.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether a client may administer all keys.
    #[must_use]
    pub fn is_admin(&self, peer: &Peer) -> bool {
        self.admins.admits(peer)
    }

    /// Serves a message of a connection, which `streams` belong to.
    pub fn message(&mut self, peer: &Peer, streams: &mut Streams, bytes: &[u8], now: Now) -> Served {
        let Request { id, operation } = match Request::decode(bytes) {
            Ok(request) => request,
            Err(e) => {
                self.audit.note(peer, "?", None, Err(Why::Refused(Code::Malformed)), now.mono_ns);
                let answer = Answer::Refused(Refusal { code: Code::Malformed, text: format!("request: {e}") });
                return Served::Reply(Reply { id: Request::id_of(bytes), answer }.encode(), true);
            }
        };
        let stream_key = operation.stream().and_then(|stream| streams.key(stream));
        let (about, key) = (operation.name(), operation.key().or(stream_key).cloned());
        let answer = match self.perform(peer, streams, operation, now) {
            Ok(Step::Make(name, spec, algorithm)) => {
                let making = Making { id, peer: peer.clone(), operation: about, name, spec, algorithm };
                return Served::Later(Box::new(making));
            }
            Ok(Step::Slots) => return Served::Slots(id),
            Ok(Step::Answer(answer)) => answer,
            Err(refusal) => Answer::Refused(refusal),
        };
        self.note(peer, about, key.as_ref(), &answer, now);
        Served::Reply(Reply { id, answer }.encode(), false)
    }

    /// The reply to a request that has waited for a key, `secret`.
    pub fn made(&mut self, making: Box<Making>, secret: Result<Zeroizing<Vec<u8>>, NotMade>, now: Now) -> Wiped {
        let Making { id, peer, operation, name, spec, algorithm } = *making;
        let text = |what: &str| format!("key '{name}': {what}");
        let done = match secret {
            Err(NotMade::Own) => refuse(
                Code::Busy,
                text(&format!("another key of user {}'s is being made, and has to be done first", peer.user)),
            ),
            Err(NotMade::Full) => refuse(Code::Busy, text("too many keys are being made")),
            Err(NotMade::InSlot) => refuse(Code::Parameter, text("keys are made over the socket")),
            Err(NotMade::Failed) => refuse(Code::Driver, text(&format!("an {algorithm} key cannot be made"))),
            // Much may have changed meanwhile.
            Ok(secret) => match spec {
                Some(spec) => self.may_make(&peer, &name).and_then(|()| self.make(name.clone(), spec, secret, now)),
                None => self.rotated(&peer, &name, secret, now),
            },
        };
        let answer = done.unwrap_or_else(Answer::Refused);
        self.note(&peer, operation, Some(&name), &answer, now);
        Reply { id, answer }.encode()
    }

    /// The client of a request that has waited for a key is gone: there is no key, and no reply.
    pub fn given_up(&mut self, making: &Making, now: Now) {
        self.audit.note(&making.peer, making.operation, Some(&making.name), Err(Why::Gone), now.mono_ns);
    }

    /// Answers a request of a connection of its own. It makes a key itself if it has to.
    pub fn answer(&mut self, peer: &Peer, operation: Operation, now: Now) -> Answer {
        match self.message(peer, &mut Streams::default(), &Request { id: 0, operation }.encode(), now) {
            Served::Reply(reply, _) => decoded(&reply),
            Served::Later(making) => {
                let secret = private::made(making.algorithm());
                decoded(&self.made(making, secret.map_err(|_| NotMade::Failed), now))
            }
            Served::Slots(_) => Answer::Slots { count: 0, room: 0 },
        }
    }

    /// Notes that a client was given slots, or refused some.
    pub fn gave_slots(&mut self, peer: &Peer, refused: Option<&Refusal>, now: Now) {
        let done = refused.map_or(Ok(None), |refusal| Err(Why::Refused(refusal.code)));
        self.audit.note(peer, "slots", None, done, now.mono_ns);
    }

    fn note(&mut self, peer: &Peer, operation: &'static str, key: Option<&Name>, answer: &Answer, now: Now) {
        let done = match answer {
            Answer::Refused(refusal) => Err(Why::Refused(refusal.code)),
            Answer::Failed(error) => Err(Why::Refused(failed_code(*error))),
            Answer::Version(version)
            | Answer::Sealed { version, .. }
            | Answer::Tag { version, .. }
            | Answer::Public { version, .. }
            | Answer::Signature { version, .. }
            | Answer::Computed { version, .. } => Ok(Some(*version)),
            Answer::Keys(..) | Answer::Opened(_) | Answer::Wrapped(_) | Answer::Slots { .. } => Ok(None),
        };
        self.audit.note(peer, operation, key, done, now.mono_ns);
    }

    /// Everything that was noted.
    #[cfg(test)]
    pub(crate) fn noted(&self) -> &[String] {
        &self.audit.noted
    }

    /// Does what time asks for. To be called every few seconds.
    pub fn follow(&mut self, now: Now) {
        self.audit.follow(now.mono_ns);
    }

    /// Writes the counters as they are, and what the audit log has counted, before the keeper ends.
    pub fn end(&mut self) {
        self.audit.tell();
        for ((name, number), live) in &self.live {
            self.store.note_used(name, *number, live.used);
        }
        if let Err(e) = self.store.leave_counters() {
            error!(error = %e, "counters of keys are not written, and stay too high: {e}");
        }
    }

    fn perform(&mut self, peer: &Peer, streams: &mut Streams, operation: Operation, now: Now) -> Result<Step, Refusal> {
        match operation {
            Operation::Generate { name, spec, secret_len } => {
                self.may_make(peer, &name)?;
                if spec.kind == Kind::Private {
                    if secret_len != 0 {
                        return refuse(Code::Parameter, format!("key '{name}': private keys have no other length"));
                    }
                    let algorithm = private_algorithm(&name, &spec)?;
                    let spec = with_uses(&name, spec, algorithm)?;
                    return self.made_now_or_later(name, Some(spec), algorithm, peer, now);
                }
                let alg = self.algorithm(&name, &spec)?;
                let len = if secret_len == 0 { usual_len(&alg) } else { secret_len as usize };
                if len > MAX_SYMMETRIC_LEN {
                    return refuse(
                        Code::Parameter,
                        format!("key '{name}': {len} bytes are more than {MAX_SYMMETRIC_LEN}"),
                    );
                }
                let mut secret = Zeroizing::new(vec![0u8; len]);
                random::fill(&mut secret);
                self.make(name, spec, secret, now).map(Step::Answer)
            }
            Operation::Import { name, spec, secret } => {
                self.may_make(peer, &name)?;
                if spec.kind == Kind::Private {
                    let key = from_outside(&name, &secret)?;
                    let spec = Spec { algorithm: named(&name, &spec.algorithm, key.algorithm())?, ..spec };
                    let spec = with_uses(&name, spec, key.algorithm())?;
                    let secret = key.pkcs8().map_err(|e| not_used(&name, e))?;
                    return self.make(name, spec, secret, now).map(Step::Answer);
                }
                self.make(name, spec, secret, now).map(Step::Answer)
            }
            Operation::List { after } => {
                let mut seen = self.store.keys(after.as_ref()).filter(|(_, key)| self.may_see(peer, key));
                let page: Vec<Info> = seen.by_ref().take(MAX_PAGE).map(|(name, key)| self.info(name, key)).collect();
                let more = seen.next().is_some();
                Ok(Answer::Keys(page, more).into())
            }
            Operation::Show { name } => {
                let info = self.info(&name, self.seen(peer, &name)?);
                Ok(Answer::Keys(vec![info], false).into())
            }
            Operation::Revoke { name, version } => self.revoke(peer, &name, version, now).map(Step::Answer),
            Operation::Rotate { name, secret } => self.rotate(peer, name, secret, now),
            Operation::Seal { name, nonce, aad, text } => {
                self.seal(peer, &name, nonce, &aad, text, now).map(Step::Answer)
            }
            Operation::Open { name, version, nonce, aad, text } => {
                let wanted = self.usable(peer, &name, Uses::DECRYPT, version)?;
                // Private keys have this use too.
                if self.store.key(&name).is_some_and(|key| key.spec.kind == Kind::Private) {
                    return wrong_kind(&name);
                }
                let live = self.charge(&name, wanted, text.len(), u64::MAX, now)?;
                open(&name, live, nonce, &aad, text).map(|text| Answer::Opened(text).into())
            }
            Operation::Mac { name, text } => {
                let version = self.usable(peer, &name, Uses::MAC, 0)?;
                self.not_expired(&name, now)?;
                let live = self.charge(&name, version, text.len(), u64::MAX, now)?;
                let Some(Prepared::Mac(tfm)) = &live.prepared else { return wrong_kind(&name) };
                let mut tag = vec![0; tfm.info().digest_len];
                tfm.sign(&[&text[..]], &mut tag).map_err(|e| failed(&name, e))?;
                Ok(Answer::Tag { version, tag }.into())
            }
            Operation::Verify { name, version, text, tag } => {
                let version = self.usable(peer, &name, Uses::VERIFY, version)?;
                let live = self.charge(&name, version, text.len(), u64::MAX, now)?;
                let Some(Prepared::Mac(tfm)) = &live.prepared else { return wrong_kind(&name) };
                // A short tag is guessed soon.
                if tag.len() != tfm.info().digest_len {
                    return refuse(
                        Code::Parameter,
                        format!("key '{name}': its tags have {} bytes", tfm.info().digest_len),
                    );
                }
                tfm.verify(&[&text[..]], &tag).map_err(|e| failed(&name, e))?;
                Ok(Answer::Version(version).into())
            }
            Operation::Public { name, version } => self.public(peer, &name, version).map(Step::Answer),
            Operation::Sign { name, version, scheme, text } => {
                self.sign(peer, &name, version, scheme, &text, now).map(Step::Answer)
            }
            Operation::Slots => Ok(Step::Slots),
            Operation::Decrypt { name, version, padding, text } => {
                self.decrypt(peer, &name, version, &padding, &text, now).map(|text| Answer::Opened(text).into())
            }
            by_reference => self.by_reference(peer, streams, by_reference, now).map(Step::Answer),
        }
    }

    /// Makes a private key: at once, unless it is RSA's.
    fn made_now_or_later(
        &mut self,
        name: Name,
        spec: Option<Spec>,
        algorithm: Algorithm,
        peer: &Peer,
        now: Now,
    ) -> Result<Step, Refusal> {
        if algorithm.modulus_len().is_some() {
            return Ok(Step::Make(name, spec, algorithm));
        }
        let secret = private::made(algorithm).map_err(|e| not_used(&name, e))?;
        match spec {
            Some(spec) => self.make(name, spec, secret, now),
            None => self.rotated(peer, &name, secret, now),
        }
        .map(Step::Answer)
    }

    /// The public part of a version, for those who may use or administer the key.
    fn public(&mut self, peer: &Peer, name: &Name, wanted: u32) -> Result<Answer, Refusal> {
        let version = version_of(name, self.seen(peer, name)?, wanted)?;
        let key = self.private(name, version)?;
        let (algorithm, spki) = (key.algorithm(), key.spki().map_err(|e| not_used(name, e))?);
        Ok(Answer::Public { version, algorithm, spki })
    }

    fn sign(
        &mut self,
        peer: &Peer,
        name: &Name,
        wanted: u32,
        scheme: Scheme,
        text: &[u8],
        now: Now,
    ) -> Result<Answer, Refusal> {
        let version = self.usable(peer, name, Uses::SIGN, wanted)?;
        self.not_expired(name, now)?;
        let key = self.private(name, version)?;
        let algorithm = key.algorithm();
        if !scheme.is_for(algorithm) {
            let text = format!("key '{name}': {algorithm} does not sign by {}, or not with such a salt", scheme.name());
            return refuse(Code::Parameter, text);
        }
        // A request that nothing can come of is not counted.
        key.may_sign(scheme, text).map_err(|e| not_used(name, e))?;
        self.charge(name, version, text.len(), u64::MAX, now)?;
        let signature = self.private(name, version)?.sign(scheme, text).map_err(|e| not_used(name, e))?;
        Ok(Answer::Signature { version, signature })
    }

    fn decrypt(
        &mut self,
        peer: &Peer,
        name: &Name,
        wanted: u32,
        padding: &Padding,
        text: &[u8],
        now: Now,
    ) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let version = self.usable(peer, name, Uses::DECRYPT, wanted)?;
        self.private(name, version)?.may_decrypt(text).map_err(|e| not_used(name, e))?;
        self.charge(name, version, text.len(), u64::MAX, now)?;
        self.private(name, version)?.decrypt(padding, text).map_err(|e| not_used(name, e))
    }

    /// A version of a private key, ready for use.
    fn private(&mut self, name: &Name, number: u32) -> Result<&PrivateKey, Refusal> {
        let at = (name.clone(), number);
        if self.ready.get(&at).is_none() {
            let key = self.store.key(name).filter(|key| key.spec.kind == Kind::Private);
            let version = key.and_then(|key| key.versions.iter().find(|version| version.number == number));
            let Some(version) = version else { return wrong_kind(name) };
            let key = stored(name, number, &version.secret)?;
            self.ready.put(at.clone(), key);
        }
        match self.ready.get(&at) {
            Some(key) => Ok(key),
            None => wrong_kind(name),
        }
    }

    /// Whether a client may learn of a key.
    fn may_see(&self, peer: &Peer, key: &Key) -> bool {
        key.spec.users.admits(peer) || self.may_administer(peer, key)
    }

    fn may_administer(&self, peer: &Peer, key: &Key) -> bool {
        self.admins.admits(peer) || key.spec.admins.admits(peer)
    }

    /// A key that the client may know of. That a key exists is told to nobody else.
    fn seen(&self, peer: &Peer, name: &Name) -> Result<&Key, Refusal> {
        match self.store.key(name).filter(|key| self.may_see(peer, key)) {
            Some(key) => Ok(key),
            None => match self.store.why_broken(name).filter(|_| self.admins.admits(peer)) {
                Some(why) => refuse(Code::Storage, format!("key '{name}' cannot be read: {why}")),
                None => refuse(Code::NoKey, format!("there is no key '{name}' for user {}", peer.user)),
            },
        }
    }

    fn administered(&self, peer: &Peer, name: &Name) -> Result<&Key, Refusal> {
        let key = self.seen(peer, name)?;
        if self.may_administer(peer, key) {
            Ok(key)
        } else {
            refuse(Code::Denied, format!("user {} may use key '{name}', and not administer it", peer.user))
        }
    }

    /// The version by which a client may do this: the newest one if `wanted` is 0.
    fn usable(&self, peer: &Peer, name: &Name, uses: Uses, wanted: u32) -> Result<u32, Refusal> {
        let key = self.seen(peer, name)?;
        if !key.spec.users.admits(peer) {
            return refuse(Code::Denied, format!("user {} may administer key '{name}', and not use it", peer.user));
        }
        if !key.spec.uses.contains(uses) {
            let missing: Vec<&str> =
                uses.names().filter(|name| !key.spec.uses.names().any(|has| has == *name)).collect();
            return refuse(Code::Use, format!("key '{name}' is not for: {}", missing.join(", ")));
        }
        version_of(name, key, wanted)
    }

    fn not_expired(&self, name: &Name, now: Now) -> Result<(), Refusal> {
        match self.store.key(name) {
            Some(key) if key.spec.expires_s != 0 && key.spec.expires_s <= now.wall_s => refuse(
                Code::Expired,
                format!("key '{name}' has expired: it only opens and checks what was made before"),
            ),
            _ => Ok(()),
        }
    }

    fn may_make(&self, peer: &Peer, name: &Name) -> Result<(), Refusal> {
        if !self.admins.admits(peer) {
            return refuse(Code::Denied, format!("key '{name}': user {} may not make keys", peer.user));
        }
        if self.store.key(name).is_some() || self.store.why_broken(name).is_some() {
            return refuse(Code::Exists, format!("there is a key '{name}' already"));
        }
        Ok(())
    }

    /// The algorithm of a key, if its rules make sense.
    fn algorithm(&self, name: &Name, spec: &Spec) -> Result<Alg, Refusal> {
        let wrong = |what: &str| refuse(Code::Parameter, format!("key '{name}': {what}"));
        if !spec.is_bounded() {
            return wrong("a list of users or groups, or the name of the algorithm, is too long");
        }
        let Some(kind) = spec.kind.registry() else { return wrong("it is a private key") };
        let alg = match prepared::algorithm(&self.registry, kind, &spec.algorithm) {
            Ok(alg) => alg,
            Err(e) => return wrong(&e),
        };
        let info = alg.info();
        if info.key_use != KeyUse::Required || info.key_format != KeyFormat::Plain {
            return wrong(&format!("{} takes no key, or more than one", info.name));
        }
        if spec.kind == Kind::Hash && info.digest_len < MIN_TAG_LEN {
            return wrong(&format!("tags of {} are shorter than {MIN_TAG_LEN} bytes", info.name));
        }
        if spec.uses == Uses::default() || !Uses::possible(spec.kind).contains(spec.uses) {
            let names: Vec<&str> = Uses::possible(spec.kind).names().collect();
            return wrong(&format!("{} can be for: {}", info.name, names.join(", ")));
        }
        Ok(alg)
    }

    fn make(&mut self, name: Name, spec: Spec, secret: Zeroizing<Vec<u8>>, now: Now) -> Result<Answer, Refusal> {
        if spec.kind == Kind::Private {
            if !spec.is_bounded() {
                return refuse(Code::Parameter, format!("key '{name}': a list of users or groups is too long"));
            }
        } else {
            let alg = self.algorithm(&name, &spec)?;
            prepare(&self.registry, &name, &alg, &secret)?;
            refuse_weak(&name, &alg, &secret)?;
        }
        let version = new_version(1, &spec, secret, now);
        self.keep(&name, Key { spec, versions: vec![version] })?;
        self.store.note_used(&name, 1, Used::default());
        Ok(Answer::Version(1))
    }

    fn keep(&mut self, name: &Name, key: Key) -> Result<(), Refusal> {
        self.store.put(name, key).map_err(|e| {
            error!(error = %e, key = name.as_str(), "key '{name}' cannot be stored: {e}");
            match e {
                StoreError::Full => Refusal { code: Code::Full, text: format!("key '{name}': {e}") },
                // Paths and the like are for the log.
                _ => Refusal {
                    code: Code::Storage,
                    text: format!("key '{name}' cannot be stored: see the keeper's log"),
                },
            }
        })
    }

    fn revoke(&mut self, peer: &Peer, name: &Name, wanted: u32, now: Now) -> Result<Answer, Refusal> {
        let mut key = self.with_counters(name, self.administered(peer, name)?);
        if wanted != 0 && !key.versions.iter().any(|version| version.number == wanted) {
            return refuse(Code::Revoked, format!("there is no version {wanted} of key '{name}'"));
        }
        for version in key.versions.iter_mut().filter(|version| wanted == 0 || version.number == wanted) {
            if version.revoked_s == 0 {
                // 0 would mean that it is not.
                version.revoked_s = now.wall_s.max(1);
            }
            version.secret = Zeroizing::new(Vec::new());
            // Nothing more will go through it.
            let used = self.used(name, version.number);
            (version.bytes, version.operations) = (used.bytes, used.operations);
        }
        self.live.retain(|(of, number), _| of != name || (wanted != 0 && *number != wanted));
        self.ready.forget(name, wanted);
        self.revocations += 1;
        let again = copied(&key);
        if let Err(refusal) = self.keep(name, key) {
            // At least nobody uses these secrets until the keeper starts again.
            self.store.hold(name, again);
            let text = format!("key '{name}' is revoked only until the keeper starts again: {refusal}");
            return refuse(refusal.code, text);
        }
        Ok(Answer::Version(wanted))
    }

    fn rotate(&mut self, peer: &Peer, name: Name, secret: Zeroizing<Vec<u8>>, now: Now) -> Result<Step, Refusal> {
        let key = self.administered(peer, &name)?;
        has_room(&name, key)?;
        let spec = &key.spec;
        if spec.kind == Kind::Private {
            let algorithm = private_algorithm(&name, spec)?;
            if secret.is_empty() {
                return self.made_now_or_later(name, None, algorithm, peer, now);
            }
            let key = from_outside(&name, &secret)?;
            named(&name, algorithm.name(), key.algorithm())?;
            let secret = key.pkcs8().map_err(|e| not_used(&name, e))?;
            return self.rotated(peer, &name, secret, now).map(Step::Answer);
        }
        let alg = self.algorithm(&name, spec)?;
        let secret = if secret.is_empty() {
            let former = key.versions.iter().map(|version| version.secret.len()).rfind(|len| *len > 0);
            let mut random = Zeroizing::new(vec![0u8; former.unwrap_or_else(|| usual_len(&alg))]);
            random::fill(&mut random);
            random
        } else {
            secret
        };
        prepare(&self.registry, &name, &alg, &secret)?;
        refuse_weak(&name, &alg, &secret)?;
        self.rotated(peer, &name, secret, now).map(Step::Answer)
    }

    /// Adds a version with this secret, which is fit for the key.
    fn rotated(&mut self, peer: &Peer, name: &Name, secret: Zeroizing<Vec<u8>>, now: Now) -> Result<Answer, Refusal> {
        let mut key = self.with_counters(name, self.administered(peer, name)?);
        let number = has_room(name, &key)?;
        if key.versions.len() >= MAX_VERSIONS
            && let Some(at) = key.versions.iter().position(|version| version.revoked_s != 0)
        {
            key.versions.remove(at);
        }
        key.versions.push(new_version(number, &key.spec, secret, now));
        self.keep(name, key)?;
        self.store.note_used(name, number, Used::default());
        Ok(Answer::Version(number))
    }

    fn seal(
        &mut self,
        peer: &Peer,
        name: &Name,
        nonce: Vec<u8>,
        aad: &[u8],
        text: Zeroizing<Vec<u8>>,
        now: Now,
    ) -> Result<Answer, Refusal> {
        let own = nonce.is_empty();
        let uses = if own { Uses::ENCRYPT } else { Uses::ENCRYPT.and(Uses::CALLER_NONCE) };
        let version = self.usable(peer, name, uses, 0)?;
        self.not_expired(name, now)?;
        let most = if own { MAX_RANDOM_NONCES } else { u64::MAX };
        let live = self.charge(name, version, text.len(), most, now)?;
        let info = match &live.prepared {
            Some(Prepared::Aead { tfm, .. }) => tfm.info(),
            Some(Prepared::Skcipher(tfm)) => tfm.info(),
            Some(Prepared::Mac(_)) | None => return wrong_kind(name),
        };
        let nonce = match own {
            // The first byte of CCM's is a length.
            true if info.iv_len < MIN_RANDOM_NONCE_LEN || info.mode == CipherMode::Ccm => {
                return refuse(Code::Parameter, format!("key '{name}': {} needs a nonce of the caller's", info.name));
            }
            true => {
                let mut random = vec![0; info.iv_len];
                random::fill(&mut random);
                random
            }
            false => nonce,
        };
        let mut text = text;
        match &live.prepared {
            Some(Prepared::Aead { tfm, .. }) => {
                let mut tag = vec![0; tfm.info().digest_len];
                tfm.seal(&nonce, &[aad], Data::from(&mut text[..]), &mut tag).map_err(|e| failed(name, e))?;
                let mut sealed = core::mem::take(&mut *text);
                sealed.extend_from_slice(&tag);
                Ok(Answer::Sealed { version, nonce, text: sealed })
            }
            Some(Prepared::Skcipher(tfm)) => {
                no_aad(name, aad)?;
                let mut iv = nonce.clone();
                tfm.one(Direction::Encrypt, &mut iv, Data::from(&mut text[..])).map_err(|e| failed(name, e))?;
                Ok(Answer::Sealed { version, nonce, text: core::mem::take(&mut *text) })
            }
            Some(Prepared::Mac(_)) | None => wrong_kind(name),
        }
    }

    /// Counts an operation on a version, and returns the version ready for use. `most` bounds its operations beside the key's own
    /// limit.
    fn charge(&mut self, name: &Name, number: u32, len: usize, most: u64, now: Now) -> Result<&Live, Refusal> {
        let at = (name.clone(), number);
        let first = (!self.live.contains_key(&at)).then(|| self.store.used(name, number));
        let Some(key) = self.store.key(name) else { return wrong_kind(name) };
        let Some(version) = key.versions.iter().find(|version| version.number == number) else {
            return wrong_kind(name);
        };
        let limits = key.spec.limits;
        if let Some(interval_ns) = 1_000_000_000u64.checked_div(limits.per_second.into()) {
            let busy = self.busy_until_ns.get(name).copied().unwrap_or(0).max(now.mono_ns);
            // A second's worth may come at once.
            if busy + interval_ns > now.mono_ns + 1_000_000_000 {
                return refuse(
                    Code::Rate,
                    format!("key '{name}': more than {} operations in a second", limits.per_second),
                );
            }
            self.busy_until_ns.insert(name.clone(), busy + interval_ns);
        }
        if let Some(used) = first {
            let prepared = if key.spec.kind == Kind::Private {
                None
            } else {
                let alg = self.algorithm(name, &key.spec)?;
                Some(prepare(&self.registry, name, &alg, &version.secret)?)
            };
            self.live.insert(at.clone(), Live { prepared, used });
        }
        let Some(live) = self.live.get(&at) else { return wrong_kind(name) };
        let used = live.used;
        let (bytes, operations) = (used.bytes.saturating_add(len as u64), used.operations.saturating_add(1));
        let most = if limits.operations == 0 { most } else { most.min(limits.operations) };
        if limits.bytes != 0 && bytes > limits.bytes {
            return refuse(
                Code::Limit,
                format!("key '{name}': {} bytes have gone through version {number}", used.bytes),
            );
        }
        if operations > most {
            return refuse(Code::Limit, format!("key '{name}': {} operations with version {number}", used.operations));
        }
        if bytes > version.bytes || operations > version.operations {
            let mut copy = copied(key);
            if let Some(leased) = copy.versions.iter_mut().find(|version| version.number == number) {
                leased.bytes = lease(bytes, limits.bytes, LEASE.bytes);
                leased.operations = lease(operations, limits.operations, LEASE.operations);
            }
            self.keep(name, copy)?;
        }
        if first.is_some() {
            // From now on what is here counts.
            self.store.forget_used(name, number);
        }
        match self.live.get_mut(&at) {
            Some(live) => {
                live.used = Used { bytes, operations };
                Ok(live)
            }
            None => wrong_kind(name),
        }
    }

    /// A copy of a key with the counters as they are now.
    fn with_counters(&self, name: &Name, key: &Key) -> Key {
        let mut copy = copied(key);
        for version in &mut copy.versions {
            if let Some(live) = self.live.get(&(name.clone(), version.number)) {
                version.bytes = version.bytes.max(live.used.bytes);
                version.operations = version.operations.max(live.used.operations);
            }
        }
        copy
    }

    /// The counters of a version.
    fn used(&self, name: &Name, number: u32) -> Used {
        self.live.get(&(name.clone(), number)).map_or_else(|| self.store.used(name, number), |live| live.used)
    }

    fn info(&self, name: &Name, key: &Key) -> Info {
        let versions = key.versions.iter().map(|version| {
            let Used { bytes, operations } = self.used(name, version.number);
            let (number, made_s, revoked_s) = (version.number, version.made_s, version.revoked_s);
            VersionInfo { number, made_s, revoked_s, bytes, operations }
        });
        Info { name: name.clone(), spec: key.spec.clone(), versions: versions.collect() }
    }
}

/// The value that is written for a counter that stands at `used`: a thousandth of its limit ahead, and no more than the limit.
fn lease(used: u64, limit: u64, most: u64) -> u64 {
    match limit {
        0 => used.saturating_add(most),
        limit => used.saturating_add((limit / 1024).min(most)).min(limit),
    }
}

/// A version that nothing has gone through yet, with its counters written ahead.
fn new_version(number: u32, spec: &Spec, secret: Zeroizing<Vec<u8>>, now: Now) -> Version {
    let bytes = lease(0, spec.limits.bytes, LEASE.bytes);
    let operations = lease(0, spec.limits.operations, LEASE.operations);
    Version { number, made_s: now.wall_s, revoked_s: 0, bytes, operations, secret }
}

fn copied(key: &Key) -> Key {
    let versions = key.versions.iter().map(|version| Version { secret: version.secret.clone(), ..*version });
    Key { spec: key.spec.clone(), versions: versions.collect() }
}

/// The length of a random secret, where nobody has asked for another: that of a MAC's tag, or else the longest one.
fn usual_len(alg: &Alg) -> usize {
    let info = alg.info();
    if info.kind == sealane_crypto::Kind::Hash && info.key_lens.contains(info.digest_len) {
        info.digest_len
    } else {
        info.key_lens.max().min(MAX_SYMMETRIC_LEN)
    }
}

/// The reply to a request of our own.
fn decoded(reply: &[u8]) -> Answer {
    match Reply::decode(reply) {
        Ok(reply) => reply.answer,
        Err(e) => Answer::Refused(Refusal { code: Code::Malformed, text: format!("reply: {e}") }),
    }
}

/// The version of a key that a client means: the newest one if `wanted` is 0.
fn version_of(name: &Name, key: &Key, wanted: u32) -> Result<u32, Refusal> {
    let found = match wanted {
        0 => key.versions.last(),
        number => key.versions.iter().find(|version| version.number == number),
    };
    match found {
        Some(version) if version.revoked_s == 0 => Ok(version.number),
        Some(version) => refuse(Code::Revoked, format!("version {} of key '{name}' is revoked", version.number)),
        None => refuse(Code::Revoked, format!("there is no version {wanted} of key '{name}', or not any more")),
    }
}

/// The number of the next version of a key, if it can have one.
fn has_room(name: &Name, key: &Key) -> Result<u32, Refusal> {
    let Some(newest) = key.versions.last() else { return wrong_kind(name) };
    if key.versions.iter().all(|version| version.revoked_s != 0) {
        return refuse(Code::Revoked, format!("key '{name}' is revoked: make another one"));
    }
    let Some(number) = newest.number.checked_add(1) else {
        return refuse(Code::Full, format!("key '{name}' has had too many versions"));
    };
    // Those that are revoked are forgotten first. Nothing that still opens texts is.
    if key.versions.len() >= MAX_VERSIONS && key.versions.iter().all(|version| version.revoked_s == 0) {
        return refuse(Code::Full, format!("key '{name}' has {MAX_VERSIONS} versions: revoke one first"));
    }
    Ok(number)
}

/// The algorithm that the rules of a private key name.
fn private_algorithm(name: &Name, spec: &Spec) -> Result<Algorithm, Refusal> {
    Algorithm::of_name(&spec.algorithm).ok_or_else(|| {
        let all = Algorithm::ALL.map(|(_, name)| name).join(", ");
        Refusal { code: Code::Parameter, text: format!("key '{name}': the algorithms of private keys are {all}") }
    })
}

/// The name of the algorithm of an imported key, which is what the rules say, if they say one.
fn named(name: &Name, said: &str, is: Algorithm) -> Result<String, Refusal> {
    if said.is_empty() || said == is.name() {
        Ok(is.name().to_owned())
    } else {
        refuse(Code::Parameter, format!("key '{name}': this key is {is}, not {said}"))
    }
}

/// The rules with the uses that the algorithm can have, if they name none.
fn with_uses(name: &Name, spec: Spec, algorithm: Algorithm) -> Result<Spec, Refusal> {
    let possible = if algorithm.modulus_len().is_some() { Uses::possible(Kind::Private) } else { Uses::SIGN };
    if spec.uses == Uses::default() {
        Ok(Spec { uses: possible, ..spec })
    } else if possible.contains(spec.uses) {
        Ok(spec)
    } else {
        let names: Vec<&str> = possible.names().collect();
        refuse(Code::Parameter, format!("key '{name}': {algorithm} can be for: {}", names.join(", ")))
    }
}

/// A key of the store's. Whoever wants to use it cannot help it if it is refused.
fn stored(name: &Name, version: u32, secret: &[u8]) -> Result<PrivateKey, Refusal> {
    PrivateKey::import(secret).map_err(|e| {
        error!(error = %e, key = name.as_str(), version, "version {version} of key '{name}' cannot be read: {e}");
        let text = format!("version {version} of key '{name}' cannot be read: see the keeper's log");
        Refusal { code: Code::Storage, text }
    })
}

/// A key that a client gives, which has signed once: what is kept can be used.
fn from_outside(name: &Name, secret: &[u8]) -> Result<PrivateKey, Refusal> {
    let tried = PrivateKey::import(secret).and_then(PrivateKey::tried);
    tried.map_err(|e| Refusal { code: Code::Parameter, text: format!("key '{name}': {e}") })
}

fn not_used(name: &Name, error: UseError) -> Refusal {
    let (code, what) = match error {
        UseError::Scheme => (Code::Parameter, "its algorithm is not for this"),
        UseError::Text => (Code::Parameter, "the text has a wrong length, or is not below the modulus"),
        UseError::Auth => (Code::Auth, "the text is not encrypted for it, or its padding is another one"),
        UseError::Driver => (Code::Driver, "the computation fails"),
    };
    Refusal { code, text: format!("key '{name}': {what}") }
}

fn prepare(registry: &Registry, name: &Name, alg: &Alg, secret: &[u8]) -> Result<Prepared, Refusal> {
    let wrong = |what: String| refuse(Code::Parameter, format!("key '{name}': {}: {what}", alg.info().name));
    // Linux takes an empty key of HMAC; nobody means one.
    if secret.is_empty() {
        return wrong("the secret is empty".to_owned());
    }
    if secret.len() > MAX_SYMMETRIC_LEN {
        return wrong(format!("the secret has more than {MAX_SYMMETRIC_LEN} bytes"));
    }
    Prepared::new(registry, alg, secret).or_else(wrong)
}

/// Refuses a new secret that makes the tweaks of XTS predictable: equal halves (Rogaway 2004, section 6). What was encrypted by one before
/// stays readable.
fn refuse_weak(name: &Name, alg: &Alg, secret: &[u8]) -> Result<(), Refusal> {
    let (data, tweak) = secret.split_at(secret.len() / 2);
    if alg.info().mode == CipherMode::Xts && bool::from(data.ct_eq(tweak)) {
        return refuse(
            Code::Parameter,
            format!("key '{name}': {}: both halves of the secret are the same", alg.info().name),
        );
    }
    Ok(())
}

fn open(name: &Name, live: &Live, nonce: Vec<u8>, aad: &[u8], text: Vec<u8>) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let mut text = Zeroizing::new(text);
    match &live.prepared {
        Some(Prepared::Aead { tfm, .. }) => {
            let Some(len) = text.len().checked_sub(tfm.info().digest_len) else {
                return refuse(Code::Parameter, format!("key '{name}': the text is shorter than its tag"));
            };
            let tag = text.split_off(len);
            tfm.open(&nonce, &[aad], Data::from(&mut text[..]), &tag).map_err(|e| failed(name, e))?;
        }
        Some(Prepared::Skcipher(tfm)) => {
            no_aad(name, aad)?;
            if text.len() > MAX_TEXT_LEN {
                return refuse(Code::Parameter, format!("key '{name}': the text is longer than {MAX_TEXT_LEN} bytes"));
            }
            let mut iv = nonce;
            tfm.one(Direction::Decrypt, &mut iv, Data::from(&mut text[..])).map_err(|e| failed(name, e))?;
        }
        Some(Prepared::Mac(_)) | None => return wrong_kind(name),
    }
    Ok(text)
}

fn no_aad(name: &Name, aad: &[u8]) -> Result<(), Refusal> {
    if aad.is_empty() {
        Ok(())
    } else {
        refuse(Code::Parameter, format!("key '{name}': its algorithm takes no associated data"))
    }
}

fn failed(name: &Name, error: OpError) -> Refusal {
    Refusal { code: failed_code(error), text: format!("key '{name}': {error}") }
}

fn failed_code(error: OpError) -> Code {
    match error {
        OpError::Auth => Code::Auth,
        OpError::Driver => Code::Driver,
        OpError::Length | OpError::TooLong | OpError::Nonce | OpError::AssocLen | OpError::TagLen => Code::Parameter,
    }
}

/// The rules of a key do not allow what got here.
fn wrong_kind<T>(name: &Name) -> Result<T, Refusal> {
    refuse(Code::Use, format!("key '{name}': its algorithm is not for this"))
}

mod by_reference;
pub use by_reference::{InParts, StepsDone};
#[cfg(test)]
mod tests;
