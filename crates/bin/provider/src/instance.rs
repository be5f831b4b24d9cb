//! One load of the provider: its drivers, and what its configuration says.

use crate::ct;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Core, Spares};
use crate::given::{Given, Kept, Ready};
use crate::home;
use crate::keeper::{self, Keeper};
use crate::settings::{Home, Names, Settings};
use core::ffi::CStr;
use core::fmt::{Display, Write as _};
use core::sync::atomic::{AtomicUsize, Ordering};
use once_cell::race::OnceBox;
use sealane_crypto::aead::AeadStream;
use sealane_crypto::home::{KeepError, KeyHome};
use sealane_crypto::{Alg, CipherMode, Kind, Registry};
use sealane_drivers::tables::LoadError;
use std::ffi::CString;

/// The algorithms of the core that are used.
const ALGS: &[(Kind, &str)] = &[
    (Kind::Hash, "md5"),
    (Kind::Hash, "sha1"),
    (Kind::Hash, "sha224"),
    (Kind::Hash, "sha256"),
    (Kind::Hash, "sha384"),
    (Kind::Hash, "sha512"),
    (Kind::Hash, "sha3-224"),
    (Kind::Hash, "sha3-256"),
    (Kind::Hash, "sha3-384"),
    (Kind::Hash, "sha3-512"),
    (Kind::Hash, "hmac(md4)"),
    (Kind::Hash, "hmac(md5)"),
    (Kind::Hash, "hmac(sha1)"),
    (Kind::Hash, "hmac(sha224)"),
    (Kind::Hash, "hmac(sha256)"),
    (Kind::Hash, "hmac(sha384)"),
    (Kind::Hash, "hmac(sha512)"),
    (Kind::Hash, "hmac(sha3-224)"),
    (Kind::Hash, "hmac(sha3-256)"),
    (Kind::Hash, "hmac(sha3-384)"),
    (Kind::Hash, "hmac(sha3-512)"),
    (Kind::Hash, "hmac(rmd160)"),
    (Kind::Hash, "hmac(sm3)"),
    (Kind::Hash, "hmac(wp512)"),
    (Kind::Hash, "hmac(blake2b-512)"),
    (Kind::Hash, "cmac(aes)"),
    (Kind::Hash, "cmac(camellia)"),
    (Kind::Hash, "cmac(sm4)"),
    (Kind::Hash, "cmac(des3_ede)"),
    (Kind::Skcipher, "ecb(aes)"),
    (Kind::Skcipher, "cbc(aes)"),
    (Kind::Skcipher, "ctr(aes)"),
    (Kind::Skcipher, "xts(aes)"),
    (Kind::Skcipher, "cbc(des3_ede)"),
    (Kind::Skcipher, "chacha20"),
    (Kind::Aead, "gcm(aes)"),
    (Kind::Aead, "ccm(aes)"),
    (Kind::Aead, "rfc7539(chacha20,poly1305)"),
];

/// An algorithm of the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AlgId(usize);

impl AlgId {
    /// The algorithm with a name, at compile time: a name that is not among [`ALGS`] does not compile.
    pub(crate) const fn of(name: &str) -> Self {
        let mut i = 0;
        while !same(ALGS[i].1.as_bytes(), name.as_bytes()) {
            i += 1;
        }
        AlgId(i)
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// One load of the provider.
pub(crate) struct Instance {
    core: Core,
    registry: Registry,
    /// The reason for which the shipped table is used.
    table_error: Option<LoadError>,
    settings: Settings,
    home: Home,
    /// Algorithms that have been looked up, in the order of [`ALGS`]. No lock: another thread may hold it when the program
    /// forks, and the child would wait for it forever.
    algs: Vec<OnceBox<Alg>>,
    /// The same algorithms as the keeper computes them.
    kept: Vec<OnceBox<Alg>>,
    contexts: AtomicUsize,
    spares: Spares,
    is_openssl_3_0: bool,
    has_opaque_keys: bool,
    keeper: Keeper,
    /// The reason for which no keys are offered.
    no_keys: Option<String>,
    build_info: OnceBox<CString>,
}

impl Instance {
    /// Reads the configuration and this machine's calibrated table.
    pub(crate) fn new(core: Core, names: &Names<'_>) -> Result<Self, (Core, Failure)> {
        let read = |key: &CStr| core.setting(key);
        let invalid = |why: String| Failure::text(Reason::InvalidConfigData, format!("sealane: {why}"));
        // Before all else, so that no key that is made here lies elsewhere.
        let home = match Home::read(&read).map_err(invalid).and_then(|home| home::establish(home).map(|()| home)) {
            Ok(home) => home,
            Err(failure) => return Err((core, failure)),
        };
        // A table that cannot be used costs speed, and a program that runs as another user than its HOME meets one.
        let (registry, table_error) = sealane_drivers::system_registry();
        let is_driver = |name: &str| {
            let rows = registry.rows().iter();
            rows.filter(|row| row.driver == name)
                .any(|row| ALGS.iter().any(|(kind, alg)| *kind == row.info.kind && *alg == row.info.name))
        };
        let settings = match Settings::read(&read, home, names, &is_driver) {
            Ok(settings) => settings,
            Err(why) => return Err((core, invalid(why))),
        };
        let (algs, kept) =
            (ALGS.iter().map(|_| OnceBox::new()).collect(), ALGS.iter().map(|_| OnceBox::new()).collect());
        let (contexts, build_info) = (AtomicUsize::new(0), OnceBox::new());
        let spares = Spares::default();
        let version = core.setting(c"openssl-version").unwrap_or_default();
        let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
        let numbers = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let (is_openssl_3_0, has_opaque_keys) = (numbers == (3, 0), numbers >= (3, 5));
        let no_keys = no_keys(&core);
        let has_use = no_keys.is_none() || home == Home::Keeper;
        let keeper = Keeper::new(settings.keeper.clone(), settings.connects_at_load && has_use);
        // A program whose keys are to be there does not go on without it.
        if home == Home::Keeper
            && let Err(why) = keeper.home().reach()
        {
            let why = format!("sealane: sealane-keys = keeper: {why}");
            return Err((core, Failure::text(Reason::NoKeeper, why)));
        }
        Ok(Instance {
            core,
            registry,
            table_error,
            settings,
            home,
            algs,
            kept,
            contexts,
            spares,
            is_openssl_3_0,
            has_opaque_keys,
            keeper,
            no_keys,
            build_info,
        })
    }

    /// Whether libcrypto is that of OpenSSL 3.0.
    pub(crate) fn is_openssl_3_0(&self) -> bool {
        self.is_openssl_3_0
    }

    /// The keeper of keys.
    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// Whether keys are offered.
    pub(crate) fn has_keys(&self) -> bool {
        self.no_keys.is_none()
    }

    /// An error where no keys are offered.
    pub(crate) fn check_keys(&self) -> Done {
        match &self.no_keys {
            None => Ok(()),
            Some(why) => Err(Failure::text(Reason::KeysNotOffered, format!("sealane: {why}"))),
        }
    }

    /// libcrypto.
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// The configuration's settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs what may make keys, which lie where this load has its keys: another one of the process may have guarded memory.
    #[inline]
    pub(crate) fn at_home<R>(&self, f: impl FnOnce() -> R) -> R {
        match self.home {
            Home::Process | Home::Keeper if sealane_guarded::is_established() => sealane_guarded::unguarded(f),
            Home::Process | Home::Keeper | Home::Guarded { .. } => f(),
        }
    }

    /// The drivers of an algorithm, which have passed their self-tests.
    pub(crate) fn alg(&self, id: AlgId) -> Result<&Alg, Failure> {
        let slot = &self.algs[id.0];
        if let Some(known) = slot.get() {
            return Ok(known);
        }
        let (kind, name) = ALGS[id.0];
        let found = self.registry.lookup(kind, self.asked(kind, name));
        let found = found.map_err(|e| Failure::text(Reason::NoDriver, format!("sealane: {name}: {e}")))?;
        // Another thread may have been faster; then its result is used.
        let _ = slot.set(Box::new(found));
        slot.get().ok_or_else(|| Reason::Internal.into())
    }

    /// An algorithm as the keeper computes it: its keys are references.
    pub(crate) fn kept(&self, id: AlgId) -> Result<&Alg, Failure> {
        let slot = &self.kept[id.0];
        if slot.get().is_none() {
            let adopted = self.keeper.home().adopt(self.alg(id)?);
            let adopted = adopted.ok_or_else(|| Failure::from(Reason::Internal))?;
            // As in `alg`.
            let _ = slot.set(Box::new(adopted));
        }
        slot.get().ok_or_else(|| Reason::Internal.into())
    }

    /// A key of an algorithm, in its home. One of the keeper's by name has to have `len` bytes, if that is said.
    pub(crate) fn key<'a>(&'a self, id: AlgId, given: Given<'a>, len: Option<usize>) -> Result<Ready<'a>, Failure> {
        let (alg, home) = (self.alg(id)?, self.keeper.home());
        let reference = match given {
            Given::Bytes(key) if self.home != Home::Keeper => return Ok(Ready::here(alg, key)),
            Given::Bytes(key) => home.keep(alg.info(), key)?,
            Given::Named(uri) => home.reference(alg.info(), &uri.name, uri.version, len.unwrap_or(0) as u32)?,
            Given::Kept(kept) => {
                let name = ALGS[id.0].1;
                let found = kept.references.iter().find(|(of, _)| *of == name);
                let not_for = || {
                    let why = format!("sealane: the keeper has this key for other algorithms than {name}");
                    Failure::text(Reason::NotSupported, why)
                };
                found.ok_or_else(not_for)?.1.clone()
            }
        };
        Ok(Ready::kept(self.kept(id)?, reference))
    }

    /// Gives the keeper a key for each of these algorithms, as far as it is a key of theirs; `None` where keys are in this process.
    pub(crate) fn kept_for(&self, key: &[u8], algs: &[AlgId]) -> Result<Option<Kept>, Failure> {
        if self.home != Home::Keeper {
            return Ok(None);
        }
        let mut references = Vec::with_capacity(algs.len());
        for id in algs {
            let info = self.alg(*id)?.info();
            let is_weak = info.mode == CipherMode::Xts && ct::halves_are_same(key);
            if is_weak || !info.key_lens.contains(key.len()) {
                continue;
            }
            match self.keeper.home().keep(info, key) {
                Ok(reference) => references.push((ALGS[id.0].1, reference)),
                // It is no key of this one.
                Err(KeepError::Algorithm(_)) => keeper::forget_failure(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(Kept { len: key.len(), references }))
    }

    /// Whether libcrypto has opaque keys: from 3.5 on.
    pub(crate) fn has_opaque_keys(&self) -> bool {
        self.has_opaque_keys
    }

    /// The bytes of a key of something that this process alone computes.
    pub(crate) fn key_here<'a>(&self, what: &str, given: Given<'a>) -> Result<&'a [u8], Failure> {
        match given {
            Given::Bytes(key) if self.home != Home::Keeper => Ok(key),
            Given::Bytes(_) | Given::Named(_) | Given::Kept(_) => {
                Err(Failure::text(Reason::NotSupported, format!("sealane: the keeper does not compute {what}")))
            }
        }
    }

    /// A key for messages in pieces. Where the configuration names a driver that takes whole messages only, another one takes
    /// the pieces.
    pub(crate) fn aead_stream(&self, id: AlgId, key: &Ready<'_>) -> Result<Box<dyn AeadStream>, Failure> {
        let no_driver =
            |why: &dyn Display| Failure::text(Reason::NoDriver, format!("sealane: {}: {why}", ALGS[id.0].1));
        let made = match key.made(Alg::aead_stream) {
            Some(made) => made,
            None => {
                let (kind, name) = ALGS[id.0];
                let any = self.registry.lookup(kind, name).map_err(|e| no_driver(&e))?;
                any.aead_stream(key.bytes()).ok_or_else(|| no_driver(&"no driver takes messages in pieces"))?
            }
        };
        made.map_err(home::refused)
    }

    /// The driver that the configuration names for an algorithm, or else its own name.
    fn asked<'a>(&'a self, kind: Kind, name: &'a str) -> &'a str {
        let is_its = |driver: &&String| {
            let mut rows = self.registry.rows().iter();
            rows.any(|row| row.driver == **driver && row.info.kind == kind && row.info.name == name)
        };
        self.settings.drivers.iter().find(is_its).map_or(name, String::as_str)
    }

    /// The places of contexts that are used again.
    pub(crate) fn spares(&self) -> &Spares {
        &self.spares
    }

    /// Counts a context that is made.
    pub(crate) fn count_context(&self) {
        self.contexts.fetch_add(1, Ordering::Relaxed);
    }

    /// The contexts that were made since the provider was loaded, or made ready for another text.
    pub(crate) fn contexts(&self) -> usize {
        self.contexts.load(Ordering::Relaxed) + self.spares.reused()
    }

    /// The text that `openssl list -providers -verbose` has beside the version: the home of keys, and the drivers of each algorithm. It
    /// stays as it is when somebody first asks.
    pub(crate) fn build_info(&self) -> &CStr {
        self.build_info.get_or_init(|| {
            let mut text = format!("sealane {}", env!("CARGO_PKG_VERSION"));
            match home::memory() {
                _ if self.home == Home::Keeper => {
                    let _ = write!(text, "\n      keys: in the keeper at {}", self.settings.keeper.display());
                }
                None => text.push_str("\n      keys: in the process"),
                Some(memory) => {
                    let (len, used) = (memory.len(), memory.used());
                    let _ = write!(text, "\n      keys: in guarded memory of {len} bytes, of which {used} are taken");
                    for lack in memory.lacks() {
                        let _ = write!(text, "\n      guarded memory lacks: {lack}");
                    }
                }
            }
            if let Some(error) = &self.table_error {
                let _ = write!(text, "\n      calibration: {error}; using the shipped table");
            }
            for (i, (_, name)) in ALGS.iter().enumerate() {
                let drivers = match self.alg(AlgId(i)) {
                    Ok(alg) => alg.rows().iter().map(|row| row.driver.as_str()).collect::<Vec<_>>().join(", "),
                    Err(failure) => failure.text.into_owned(),
                };
                let _ = write!(text, "\n      {name}: {drivers}");
            }
            Box::new(CString::new(text).unwrap_or_default())
        })
    }
}

/// The reason for which keys must not be offered: there is no provider before this one that has keys.
///
/// Whoever asks libcrypto for RSA gets it from the first provider that has it, unless properties say otherwise. Ours has the keys
/// of the keeper only, and would keep programs from making keys and from reading those of files. So the properties of keys are
/// not those that `?provider=sealane` prefers, and they are offered only behind another provider's, in the order of activation
/// and in that of names, by which libcrypto sorts now and then.
fn no_keys(core: &Core) -> Option<String> {
    let (active, own) = (core.active(), core.own_name().unwrap_or_default());
    let is_before = |name: &String| ["default", "fips"].contains(&name.as_str()) && *name < own;
    if active.iter().any(is_before) {
        return None;
    }
    Some(if own.as_str() < "default" {
        format!("the configuration calls this provider {own}: its keys are offered under a name behind `default`")
    } else {
        "keys are offered where the provider `default` is activated before this one".to_owned()
    })
}

/// Whether `name` is one of the names of an algorithm, which stand between colons. OpenSSL ignores their case.
pub(crate) fn is_named(names: &CStr, name: &str) -> bool {
    names.to_bytes().split(|b| *b == b':').any(|known| known.eq_ignore_ascii_case(name.as_bytes()))
}
