//! The transform side of a socket, for bind, setsockopt and accept.

use super::cipher::{CipherKey, CipherOp};
use super::error::{keep_errno, key_errno};
use super::hash::{HashKey, HashOp};
use super::keyed::Keyed;
use super::rng::{RngOp, SharedRng};
use super::work::Work;
use crate::host::{NAME_AS_KEY, Task};
use crate::image::{Malformed, Reader, Writer};
use crate::rules::Rules;
use crate::system::System;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use lock_api::{Mutex, MutexGuard, RawMutex};
use sealane_abi::{Caller, Errno};
use sealane_crypto::aead::AeadTfm;
use sealane_crypto::mac::{MAX_TAG_LEN, MacTfm};
use sealane_crypto::skcipher::SkcipherTfm;
use sealane_crypto::{Alg, KeyError, KeyUse, Kind};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A transform socket. The counters are the kernel's: all operations accepted from it, and those of them that were
/// accepted without a key and have not been used since.
pub(super) struct TfmSocket<L: RawMutex> {
    refcnt: AtomicU32,
    nokey_refcnt: AtomicU32,
    /// The same two of other processes that have the transform.
    others: [AtomicU32; 2],
    /// Other processes have it: keys are kept for them as they were set.
    shared: AtomicBool,
    bound: Mutex<L, Option<Bound<L>>>,
}

/// The type and name of a socket's algorithm, for an audit.
pub(super) struct Label {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) driver: String,
}

/// The algorithm of a bound socket, with its key.
pub(super) struct Bound<L: RawMutex> {
    pub(super) label: Arc<Label>,
    /// The number of binds so far, with this one.
    binds: u64,
    /// The number of changes of the key since.
    keys: u64,
    /// The key as other processes that have the transform take it: as it was set, or its reference where it is at home. None of a
    /// key that is guarded.
    told_key: Option<Zeroizing<Vec<u8>>>,
    /// Another process that has the transform has set the key, and guards it.
    elsewhere: bool,
    alg: Alg,
    /// The same algorithm with keys that are at home, where there is one and the algorithm has keys.
    at_home: Option<Alg>,
    /// The kernel's kind of cipher that has no check of the key's length before its own.
    lskcipher: bool,
    transform: Transform<L>,
}

/// `None`: a key is needed and not there (the kernel's `CRYPTO_TFM_NEED_KEY`).
enum Transform<L: RawMutex> {
    Hash(HashKey),
    Mac(Option<MacTfm>),
    Skcipher(Option<SkcipherTfm>),
    Aead { tfm: Option<AeadTfm>, tag_len: usize },
    Rng(SharedRng<L>),
}

impl<L: RawMutex> TfmSocket<L> {
    pub(super) fn new() -> Self {
        TfmSocket {
            refcnt: AtomicU32::new(0),
            nokey_refcnt: AtomicU32::new(0),
            others: Default::default(),
            shared: AtomicBool::new(false),
            bound: Mutex::new(None),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, L, Option<Bound<L>>> {
        self.bound.lock()
    }

    /// Locks it for a change, which must wait until every operation that has a key is gone.
    pub(super) fn lock_idle(&self) -> Result<MutexGuard<'_, L, Option<Bound<L>>>, Errno> {
        let guard = self.lock();
        let (own, [all, nokey]) = (self.counts(), &self.others);
        let idle = own[0] == own[1] && all.load(Relaxed) == nokey.load(Relaxed);
        if idle { Ok(guard) } else { Err(Errno::EBUSY) }
    }

    pub(super) fn bind(&self, mut bound: Bound<L>) -> Result<(), Errno> {
        let mut guard = self.lock();
        if self.counts()[0] != 0 || self.others[0].load(Relaxed) != 0 {
            return Err(Errno::EBUSY);
        }
        bound.binds = guard.as_ref().map_or(0, |old| old.binds) + 1;
        let old = guard.replace(bound);
        drop(guard);
        drop(old);
        Ok(())
    }

    /// Counts a new operation; called with the lock held.
    pub(super) fn hold(&self, nokey: bool) {
        self.refcnt.fetch_add(1, Relaxed);
        if nokey {
            self.nokey_refcnt.fetch_add(1, Relaxed);
        }
    }

    /// Counts an operation that was accepted without a key and has one now; called with the lock held.
    pub(super) fn key_given(&self) {
        self.nokey_refcnt.fetch_sub(1, Relaxed);
    }

    /// The operations accepted from it, all and without a key, of this process.
    pub(super) fn counts(&self) -> [u32; 2] {
        [self.refcnt.load(Relaxed), self.nokey_refcnt.load(Relaxed)]
    }

    /// The same of other processes.
    pub(super) fn set_others(&self, counts: [u32; 2]) {
        self.others.iter().zip(counts).for_each(|(to, count)| to.store(count, Relaxed));
    }

    /// Whether keys have to be kept as they are set.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Relaxed)
    }

    /// Begins to keep what other processes need, or ends it.
    pub(super) fn share(&self, on: bool) {
        self.shared.store(on, Relaxed);
        if !on {
            self.set_others([0, 0]);
            if let Some(bound) = &mut *self.lock() {
                bound.told_key = None;
            }
        }
    }

    /// Writes its algorithm and key into an image.
    pub(super) fn save(&self, image: &mut Writer) {
        let bound = self.lock();
        image.flag(bound.is_some());
        let Some(bound) = &*bound else { return };
        image.number(bound.binds);
        image.bytes(bound.label.kind.name().as_bytes());
        image.bytes(bound.label.name.as_bytes());
        image.number(bound.keys);
        image.option(bound.told_key.as_ref().map(|key| &key[..]));
        image.flag(bound.needs_key());
        image.number(bound.tag_len().unwrap_or(0) as u64);
    }

    /// Takes its algorithm and key from an image, as far as this process has others.
    pub(super) fn load(&self, sys: &System, image: &mut Reader<'_>) -> Result<(), Malformed> {
        if !image.flag()? {
            return Ok(());
        }
        let (binds, kind, name) = (image.number()?, image.bytes()?, image.bytes()?);
        let (keys, told_key) = (image.number()?, image.option()?);
        let (needs_key, tag_len) = (image.flag()?, image.word()? as usize);
        let kind = crate::catalog::kind_named(kind).ok_or(Malformed)?;
        let name = core::str::from_utf8(name).map_err(|_| Malformed)?;
        let known = self.lock().as_ref().map_or(0, |bound| bound.binds);
        if binds < known {
            return Err(Malformed);
        }
        if binds > known {
            // Who bound it had the right to.
            let alg = sys.resolve(kind, name, Caller { privileged: true }).map_err(|_| Malformed)?;
            let mut bound = Bound::new(kind, name, alg, sys).map_err(|_| Malformed)?;
            bound.binds = binds;
            *self.lock() = Some(bound);
        }
        let mut guard = self.lock();
        let bound = guard.as_mut().ok_or(Malformed)?;
        if bound.keys > keys {
            return Err(Malformed);
        }
        if bound.keys < keys {
            match (needs_key, told_key, &mut bound.transform) {
                (_, _, Transform::Rng(rng)) => rng.seed(&[]).map_err(|_| Malformed)?,
                (false, Some(key), _) => bound.take_key(key, sys).map_err(|_| Malformed)?,
                (false, None, Transform::Mac(_) | Transform::Skcipher(_) | Transform::Aead { .. })
                    if sys.keys_are_guarded() =>
                {
                    bound.lose_key();
                    bound.elsewhere = true;
                }
                // The last key was refused, and took the one before with it.
                (true, _, _) => bound.lose_key(),
                (false, None, _) => return Err(Malformed),
            }
            bound.keys = keys;
        }
        match bound.tag_len() {
            Some(known) if known != tag_len => bound.set_tag_len(tag_len).map_err(|_| Malformed),
            _ => Ok(()),
        }
    }

    /// Counts an operation that has gone. No lock: the order is the kernel's, in which a change made in between finds
    /// the counters unequal and is refused.
    pub(super) fn release(&self, nokey: bool) {
        if nokey {
            self.nokey_refcnt.fetch_sub(1, Relaxed);
        }
        self.refcnt.fetch_sub(1, Relaxed);
    }
}

impl<L: RawMutex> Bound<L> {
    /// # Errors
    /// [`Errno::ENOENT`] for an algorithm whose digest or tag is longer than any that the operations have room for.
    pub(super) fn new(kind: Kind, name: &str, alg: Alg, sys: &System) -> Result<Self, Errno> {
        let info = alg.info();
        if info.digest_len > MAX_TAG_LEN {
            return Err(Errno::ENOENT);
        }
        let transform = match (kind, info.key_use) {
            (Kind::Hash, KeyUse::None) => Transform::Hash(HashKey::Hash(alg.hash())),
            // The unkeyed hash: it stays if a key is refused later.
            (Kind::Hash, KeyUse::Optional) => Transform::Mac(Some(alg.mac(&[]).map_err(key_errno)?)),
            (Kind::Hash, KeyUse::Required) => Transform::Mac(None),
            (Kind::Skcipher, _) => Transform::Skcipher(None),
            (Kind::Aead, _) => Transform::Aead { tfm: None, tag_len: info.digest_len },
            (Kind::Rng, _) => Transform::Rng(SharedRng::new(alg.rng())),
            (Kind::NonceMac, _) => return Err(Errno::ENOENT),
        };
        let at_home = sys.host().key_home().and_then(|home| home.adopt(&alg));
        let first = at_home.as_ref().filter(|_| info.key_use == KeyUse::Required).unwrap_or(&alg);
        let label = Arc::new(Label { kind, name: name.to_owned(), driver: first_driver(first).to_owned() });
        let lskcipher = sys.catalog().is_lskcipher(name);
        // One driver is enough to try a key that does not stay.
        let alg = match (&at_home, alg.rows()) {
            (Some(_), [first, ..]) => Alg::of_row(first, sys.registry().entropy()),
            _ => alg,
        };
        let (told_key, elsewhere) = (None, false);
        Ok(Bound { label, binds: 0, keys: 0, told_key, elsewhere, alg, at_home, lskcipher, transform })
    }

    pub(super) fn needs_key(&self) -> bool {
        let none = matches!(
            self.transform,
            Transform::Mac(None) | Transform::Skcipher(None) | Transform::Aead { tfm: None, .. }
        );
        none && !self.elsewhere
    }

    /// Sets the key, or the seed of a generator. A key goes to its home, if there is one, when the algorithm has taken it here.
    /// A seed stays. A text that begins as a name is no key.
    ///
    /// A refused key takes the old one away, except where the kernel refuses before it looks at the transform: ciphers
    /// check the range of the length first, unless they are of the kind `lskcipher`. One that its home did not take takes the
    /// old one away, too. `keep`: for other processes. Without a `task` it is a key that another process has set, and nothing of it
    /// goes to a home.
    pub(super) fn set_key(
        &mut self,
        task: Option<&dyn Task>,
        key: &[u8],
        sys: &System,
        keep: bool,
    ) -> Result<(), Errno> {
        if sys.host().key_home().is_none() && !sys.keys_are_guarded() {
            return self.set(task, key, sys, keep);
        }
        let mut done = Ok(());
        sys.host().without_traces(&mut || done = self.set(task, key, sys, keep));
        done
    }

    fn set(&mut self, task: Option<&dyn Task>, key: &[u8], sys: &System, keep: bool) -> Result<(), Errno> {
        let home = sys.host().key_home().zip(task).filter(|_| self.has_home());
        if let Some(name) = key.strip_prefix(NAME_AS_KEY)
            && !matches!(self.transform, Transform::Hash(_) | Transform::Rng(_))
        {
            // Whoever writes a name knows it, and so do others: it is never the key itself.
            return match home.and_then(|(home, task)| Some((home.name(name)?, task))) {
                Some((name, task)) if sys.host().admits_name(name) => self.set_named(task, name, sys, keep),
                _ => {
                    self.changed();
                    self.lose_key();
                    Err(Errno::ENOKEY)
                }
            };
        }
        let (done, changed) = self.try_key(key, sys.rules());
        if !changed {
            return done;
        }
        self.changed();
        let mut told = None;
        let done = done.and_then(|()| match home {
            Some((home, task)) if !self.has_no_key(key) => {
                // Nothing of it stays here.
                self.lose_key();
                let kept = task.may_use_home().and_then(|()| home.keep(self.alg.info(), key));
                let reference = kept.map_err(keep_errno)?;
                self.refer(&reference)?;
                told = Some(reference);
                Ok(())
            }
            _ => {
                self.name_driver(false);
                Ok(())
            }
        });
        let is_guarded = sys.keys_are_guarded() && !self.has_no_key(key);
        // No other process takes a seed over.
        if keep && done.is_ok() && !is_guarded && !matches!(self.transform, Transform::Rng(_)) {
            self.told_key = told.or_else(|| Some(Zeroizing::new(key.to_vec())));
        }
        done
    }

    /// Uses a key that is at home under a name. Its length and its form are the home's affair.
    pub(super) fn set_named(&mut self, task: &dyn Task, name: &str, sys: &System, keep: bool) -> Result<(), Errno> {
        let home = sys.host().key_home().filter(|_| self.has_home()).ok_or(Errno::ENOPROTOOPT)?;
        self.changed();
        self.lose_key();
        let named = task.may_use_home().and_then(|()| home.named(self.alg.info(), name));
        let reference = named.map_err(keep_errno)?;
        self.refer(&reference)?;
        self.told_key = keep.then_some(reference);
        Ok(())
    }

    /// Takes over a key that another process has set.
    fn take_key(&mut self, told: &[u8], sys: &System) -> Result<(), Errno> {
        if !self.has_home() || self.has_no_key(told) {
            return self.set_key(None, told, sys, true);
        }
        self.changed();
        self.refer(told)?;
        self.told_key = Some(Zeroizing::new(told.to_vec()));
        Ok(())
    }

    /// Whether its keys are at home.
    pub(super) fn has_home(&self) -> bool {
        self.at_home.is_some()
    }

    /// Whether a key of this algorithm is none: the empty one of a hash that needs none.
    fn has_no_key(&self, key: &[u8]) -> bool {
        key.is_empty() && self.alg.info().key_use == KeyUse::Optional
    }

    /// Prepares the reference of a key that is at home.
    fn refer(&mut self, reference: &[u8]) -> Result<(), Errno> {
        let Some(alg) = &self.at_home else { return Err(Errno::ENOKEY) };
        match &mut self.transform {
            Transform::Mac(tfm) => put(tfm, alg.mac(reference)),
            Transform::Skcipher(tfm) => put(tfm, alg.skcipher(reference)),
            Transform::Aead { tfm, .. } => put(tfm, alg.aead(reference)),
            Transform::Hash(_) | Transform::Rng(_) => Err(Errno::ENOSYS),
        }?;
        self.name_driver(true);
        Ok(())
    }

    /// Names the driver that serves the key.
    fn name_driver(&mut self, at_home: bool) {
        let driver = first_driver(self.at_home.as_ref().filter(|_| at_home).unwrap_or(&self.alg));
        if self.label.driver != driver {
            let (kind, name) = (self.label.kind, self.label.name.clone());
            self.label = Arc::new(Label { kind, name, driver: driver.to_owned() });
        }
    }

    /// The key of before has gone.
    fn changed(&mut self) {
        self.keys += 1;
        (self.told_key, self.elsewhere) = (None, false);
    }

    /// Sets the key; also whether the one of before is gone.
    fn try_key(&mut self, key: &[u8], rules: Rules) -> (Result<(), Errno>, bool) {
        let info = self.alg.info();
        match &mut self.transform {
            Transform::Hash(_) => (Err(Errno::ENOSYS), false),
            Transform::Mac(tfm) if info.key_use == KeyUse::Optional => {
                // To the core an empty key is none, which only one kind of hash takes for one.
                let taken = match key {
                    [] => rules.empty_blake2b_key && info.empty_key,
                    key => info.key_lens.contains(key.len()),
                };
                if !taken {
                    return (Err(Errno::EINVAL), false);
                }
                match self.alg.mac(key) {
                    Ok(made) => {
                        *tfm = Some(made);
                        (Ok(()), true)
                    }
                    // There is no room for the key: what has none would go on as an unkeyed hash, or under the key of before.
                    Err(e @ KeyError::Driver) => {
                        *tfm = None;
                        (Err(key_errno(e)), true)
                    }
                    Err(e) => (Err(key_errno(e)), false),
                }
            }
            Transform::Mac(tfm) => (put(tfm, self.alg.mac(key)), true),
            Transform::Skcipher(tfm) => {
                if !self.lskcipher && !(info.key_lens.min()..=info.key_lens.max()).contains(&key.len()) {
                    return (Err(Errno::EINVAL), false);
                }
                (put(tfm, self.alg.skcipher(key)), true)
            }
            Transform::Aead { tfm, .. } => (put(tfm, self.alg.aead(key)), true),
            Transform::Rng(rng) => (rng.seed(key), true),
        }
    }

    /// Takes the key away.
    fn lose_key(&mut self) {
        (self.told_key, self.elsewhere) = (None, false);
        match &mut self.transform {
            Transform::Mac(tfm) => *tfm = None,
            Transform::Skcipher(tfm) => *tfm = None,
            Transform::Aead { tfm, .. } => *tfm = None,
            Transform::Hash(_) | Transform::Rng(_) => {}
        }
    }

    /// The tag length of an AEAD in bytes.
    fn tag_len(&self) -> Option<usize> {
        match &self.transform {
            Transform::Aead { tag_len, .. } => Some(*tag_len),
            _ => None,
        }
    }

    pub(super) fn set_tag_len(&mut self, len: usize) -> Result<(), Errno> {
        let Transform::Aead { tag_len, .. } = &mut self.transform else { return Err(Errno::ENOPROTOOPT) };
        if !self.alg.info().tag_lens.contains(len) {
            return Err(Errno::EINVAL);
        }
        *tag_len = len;
        Ok(())
    }

    pub(super) fn set_entropy(&mut self, val: Option<&[u8]>, len: usize, caller: Caller) -> Result<(), Errno> {
        let Transform::Rng(rng) = &mut self.transform else { return Err(Errno::ENOPROTOOPT) };
        rng.set_entropy(val, len, caller)
    }

    /// A new operation, with the key if there is one.
    pub(super) fn operation(&self) -> Work<L> {
        let (info, nokey) = (self.alg.info(), self.needs_key());
        match &self.transform {
            Transform::Hash(_) | Transform::Mac(_) => {
                let mut op = HashOp::new(info.digest_len);
                self.give_hash_key(&mut op);
                Work::Hash(Mutex::new(Keyed { nokey, op }))
            }
            Transform::Skcipher(_) | Transform::Aead { .. } => {
                let mut op = CipherOp::new(info, self.lskcipher);
                self.give_cipher_key(&mut op);
                Work::Cipher(Mutex::new(Keyed { nokey, op }))
            }
            Transform::Rng(rng) => Work::Rng(Mutex::new(RngOp::new(rng))),
        }
    }

    /// Gives the key to a hash operation that this transform accepted.
    pub(super) fn give_hash_key(&self, op: &mut HashOp) {
        match &self.transform {
            _ if self.elsewhere => op.set_key(HashKey::Elsewhere),
            Transform::Hash(key) => op.set_key(key.clone()),
            Transform::Mac(Some(tfm)) => op.set_key(HashKey::Mac(tfm.clone())),
            _ => {}
        }
    }

    /// Gives the key to a cipher operation that this transform accepted.
    pub(super) fn give_cipher_key(&self, op: &mut CipherOp) {
        match &self.transform {
            _ if self.elsewhere => op.set_key(CipherKey::Elsewhere),
            Transform::Skcipher(Some(tfm)) => op.set_key(CipherKey::Skcipher(tfm.clone())),
            Transform::Aead { tfm: Some(tfm), tag_len } => {
                op.set_key(CipherKey::Aead { tfm: tfm.clone(), tag_len: *tag_len });
            }
            _ => {}
        }
    }
}

/// The name of the driver that serves an algorithm; of several, the first candidate.
fn first_driver(alg: &Alg) -> &str {
    alg.rows().first().map_or("", |row| &row.driver)
}

fn put<T>(slot: &mut Option<T>, made: Result<T, KeyError>) -> Result<(), Errno> {
    let (tfm, done) = match made {
        Ok(tfm) => (Some(tfm), Ok(())),
        Err(e) => (None, Err(key_errno(e))),
    };
    *slot = tfm;
    done
}
