//! The keys of a keeper: in memory, and in a folder if they are to outlive it.
//!
//! The folder, which a keeper locks, holds `store`, the key of the store under a passphrase or credential, and `NAME.key` for
//! each key ([`crate::seal`]), and while no keeper runs `counters` ([`crate::counters`]). A file is written beside its name, synced, renamed and its folder synced, before
//! anybody learns that it is kept: a crash leaves the old file or the new one.

use crate::counters::{Counters, Entry, Used};
use crate::key::Key;
use crate::seal::{Cost, MAX_FILE_LEN, Protection, SealError, Sealer, StoreKey, WrappingKey};
use sealane_keeper_client::key::{MAX_NAME_LEN, MAX_VERSIONS, Name};
use sealane_sys::runtime;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The most keys, those that are revoked included.
pub const MAX_KEYS: usize = 16_384;

const STORE: &str = "store";
const COUNTERS: &str = "counters";
/// The longest file of counters: a name, a number and four counters for each version of each key, and what is around them.
const MAX_COUNTERS_LEN: usize = 1024 + MAX_KEYS * MAX_VERSIONS * (4 + MAX_NAME_LEN + 4 + 4 * 8);
const SUFFIX: &str = ".key";
/// The name of a file until it is complete. No key has a name that begins with a dot.
const PREFIX_NEW: &str = ".new-";

/// The reason why a store cannot be opened, or a key not be kept.
#[derive(Debug)]
pub enum StoreError {
    /// The file system's, with the file.
    Io(PathBuf, io::Error),
    /// A file cannot be opened, or sealed.
    Seal(PathBuf, SealError),
    /// Another keeper has it.
    Taken(PathBuf),
    /// There are keys, but no key of the store: a new one would lose them.
    NoStore(PathBuf),
    /// [`MAX_KEYS`] are there.
    Full,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io(path, e) => write!(f, "{}: {e}", path.display()),
            StoreError::Seal(path, e) => write!(f, "{}: {e}", path.display()),
            StoreError::Taken(path) => write!(f, "{}: another keeper has it", path.display()),
            StoreError::NoStore(path) => {
                write!(f, "{}: there are keys, but the file '{STORE}' that opens them is missing", path.display())
            }
            StoreError::Full => write!(f, "there are {MAX_KEYS} keys already"),
        }
    }
}

impl std::error::Error for StoreError {}

fn io(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |e| StoreError::Io(path, e)
}

struct Folder {
    path: PathBuf,
    sealer: Sealer,
    key: StoreKey,
    /// Locked as long as this keeper lives.
    _lock: File,
}

/// All keys.
pub struct Store {
    folder: Option<Folder>,
    keys: BTreeMap<Name, Key>,
    /// Keys whose files cannot be read, with the reason. The files stay, and nobody can make a key of that name.
    broken: BTreeMap<Name, String>,
    /// Counters that are known exactly. Those of other versions are as they were written ahead.
    counters: Counters,
    /// Why the counters that the keeper before has left cannot be read, if that is so.
    lost_counters: Option<String>,
}

impl Store {
    /// A store without files: all keys are gone when it is dropped.
    #[must_use]
    pub fn in_memory() -> Self {
        Store {
            folder: None,
            keys: BTreeMap::new(),
            broken: BTreeMap::new(),
            counters: Counters::default(),
            lost_counters: None,
        }
    }

    /// Opens the store in a folder, which is made if it is not there.
    ///
    /// # Errors
    /// [`StoreError`]. A key whose file cannot be read is no error ([`Self::broken`]).
    pub fn open(path: &Path, protection: &Protection, cost: Cost, sealer: Sealer) -> Result<Self, StoreError> {
        runtime::make_private(path).map_err(io(path))?;
        let lock = File::open(path).map_err(io(path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Taken(path.to_owned())),
            Err(TryLockError::Error(e)) => return Err(StoreError::Io(path.to_owned(), e)),
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(io(path))? {
            let file_name = entry.map_err(io(path))?.file_name();
            let Some(text) = file_name.to_str() else { continue };
            if text.starts_with(PREFIX_NEW) {
                // What a crash has left before it was complete.
                runtime::remove(&path.join(text)).map_err(io(path))?;
            }
            names.extend(text.strip_suffix(SUFFIX).and_then(Name::new));
        }
        if names.len() > MAX_KEYS {
            return Err(StoreError::Full);
        }
        let at = path.join(STORE);
        let key = match read(&at, MAX_FILE_LEN) {
            Ok(file) => sealer.open_store(&file, protection).map_err(|e| StoreError::Seal(at.clone(), e))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound && names.is_empty() => {
                let (file, key) = sealer.create_store(protection, cost).map_err(|e| StoreError::Seal(at.clone(), e))?;
                replace(path, STORE, &file)?;
                key
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(StoreError::NoStore(path.to_owned())),
            Err(e) => return Err(StoreError::Io(at, e)),
        };
        let mut store = Store::in_memory();
        for name in names {
            let file = path.join(format!("{name}{SUFFIX}"));
            let opened = read(&file, MAX_FILE_LEN).map_err(|e| e.to_string());
            match opened.and_then(|bytes| sealer.open_key(&key, &name, &bytes).map_err(|e| e.to_string())) {
                Ok(key) => drop(store.keys.insert(name, key)),
                Err(why) => drop(store.broken.insert(name, format!("{}: {why}", file.display()))),
            }
        }
        store.read_counters(path, &sealer, &key);
        store.folder = Some(Folder { path: path.to_owned(), sealer, key, _lock: lock });
        Ok(store)
    }

    /// Reads the counters that the keeper before has left.
    fn read_counters(&mut self, path: &Path, sealer: &Sealer, key: &StoreKey) {
        let at = path.join(COUNTERS);
        let bytes = match read(&at, MAX_COUNTERS_LEN) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return,
            read => read,
        };
        match bytes.map_err(|e| e.to_string()).and_then(|b| sealer.open_counters(key, &b).map_err(|e| e.to_string())) {
            Ok(entries) => entries.into_iter().for_each(|Entry { name, version, used, written }| {
                if self.written(&name, version) == Some(written) {
                    self.counters.set(&name, version, used);
                }
            }),
            Err(why) => self.lost_counters = Some(format!("{}: {why}", at.display())),
        }
    }

    /// Takes up the counters that the keeper before has left: their file is gone after that. To be called before a key is used, because
    /// what the file says would be too low then; and when nothing else can fail, because it is all that knows.
    ///
    /// # Errors
    /// [`StoreError`]: no key may be used.
    pub fn take_counters(&self) -> Result<(), StoreError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let at = folder.path.join(COUNTERS);
        match fs::remove_file(&at).and_then(|()| File::open(&folder.path)?.sync_all()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io(&at)(e)),
            _ => Ok(()),
        }
    }

    /// Why the counters that the keeper before has left cannot be read, if that is so: what was written ahead counts as used.
    #[must_use]
    pub fn lost_counters(&self) -> Option<&str> {
        self.lost_counters.as_deref()
    }

    /// The counters of a version as they were written ahead.
    fn written(&self, name: &Name, number: u32) -> Option<Used> {
        let version = self.keys.get(name)?.versions.iter().find(|version| version.number == number)?;
        Some(Used { bytes: version.bytes, operations: version.operations })
    }

    /// The counters of a version, as far as the store knows them.
    #[must_use]
    pub fn used(&self, name: &Name, number: u32) -> Used {
        self.counters.of(name, number).or_else(|| self.written(name, number)).unwrap_or_default()
    }

    /// Forgets what is known exactly of a version, because more goes through it: its user counts.
    pub fn forget_used(&mut self, name: &Name, number: u32) {
        self.counters.forget(name, number);
    }

    /// Notes what has gone through a version exactly. Nothing is written.
    pub fn note_used(&mut self, name: &Name, number: u32, used: Used) {
        self.counters.set(name, number, used);
    }

    /// Leaves the counters that are known exactly for the next keeper. After that no key may be used.
    ///
    /// # Errors
    /// [`StoreError`]: what was written ahead will count as used.
    pub fn leave_counters(&self) -> Result<(), StoreError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let versions = |(name, key): (&Name, &Key)| -> Vec<(Name, u32)> {
            let left = key.versions.iter().filter(|version| version.revoked_s == 0);
            left.map(|version| (name.clone(), version.number)).collect()
        };
        let entry = |(name, version): (Name, u32)| {
            let (used, written) = (self.counters.of(&name, version)?, self.written(&name, version)?);
            Some(Entry { name, version, used, written })
        };
        let entries: Vec<Entry> = self.keys.iter().flat_map(versions).filter_map(entry).collect();
        let sealed = folder.sealer.seal_counters(&folder.key, &entries);
        let sealed = sealed.map_err(|e| StoreError::Seal(folder.path.join(COUNTERS), e))?;
        replace(&folder.path, COUNTERS, &sealed)
    }

    /// The key for keys of programs: that of the folder, or a random one without.
    ///
    /// # Errors
    /// [`SealError::Crypto`].
    pub fn wrapping_key(&self) -> Result<WrappingKey, SealError> {
        self.folder.as_ref().map_or_else(|| Ok(WrappingKey::random()), |folder| folder.sealer.wrapping_key(&folder.key))
    }

    /// A key.
    #[must_use]
    pub fn key(&self, name: &Name) -> Option<&Key> {
        self.keys.get(name)
    }

    /// All keys whose names come behind `after`, in order.
    pub fn keys<'a>(&'a self, after: Option<&'a Name>) -> impl Iterator<Item = (&'a Name, &'a Key)> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.keys.range::<Name, _>((from, Bound::<&Name>::Unbounded))
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys whose files cannot be read, with the reason.
    pub fn broken(&self) -> impl Iterator<Item = (&Name, &str)> {
        self.broken.iter().map(|(name, why)| (name, why.as_str()))
    }

    /// Why the file of a key cannot be read, if that is so.
    #[must_use]
    pub fn why_broken(&self, name: &Name) -> Option<&str> {
        self.broken.get(name).map(String::as_str)
    }

    /// Keeps a key in place of the one with its name. After an error the one of before is in force.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn put(&mut self, name: &Name, key: Key) -> Result<(), StoreError> {
        if !self.keys.contains_key(name) && self.keys.len() + self.broken.len() >= MAX_KEYS {
            return Err(StoreError::Full);
        }
        if let Some(folder) = &self.folder {
            let file_name = format!("{name}{SUFFIX}");
            let sealed = folder.sealer.seal_key(&folder.key, name, &key);
            let sealed = sealed.map_err(|e| StoreError::Seal(folder.path.join(&file_name), e))?;
            replace(&folder.path, &file_name, &sealed)?;
        }
        self.hold(name, key);
        Ok(())
    }

    /// Puts a key in place of the one with its name in memory only, as long as this keeper lives.
    pub fn hold(&mut self, name: &Name, key: Key) {
        self.keys.insert(name.clone(), key);
    }
}

/// Reads a file of bounded length: of a longer one so much that it is refused.
fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Puts a file in place of another one, whole and on stable storage.
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let (new, at) = (folder.join(format!("{PREFIX_NEW}{name}")), folder.join(name));
    let write = || {
        runtime::remove(&new)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &at)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&new);
        StoreError::Io(at.clone(), e)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::key::tests::key;
    use crate::seal::tests::{CHEAP, passphrase, sealer};

    /// A folder that goes with the test.
    pub(crate) struct Place(PathBuf);

    impl Place {
        pub(crate) fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sealane-keeper-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Place(path)
        }

        pub(crate) fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        pub(crate) fn open(&self, text: &str) -> Result<Store, StoreError> {
            Store::open(&self.0, &passphrase(text), CHEAP, sealer())
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn keys_outlive_the_keeper_and_no_secret_is_in_a_file() {
        let place = Place::new("outlive");
        let mut store = place.open("right").unwrap();
        store.put(&name("a"), key()).unwrap();
        store.put(&name("a"), key()).unwrap();
        assert!(matches!(place.open("right").err(), Some(StoreError::Taken(_))));
        drop(store);
        assert!(matches!(place.open("wrong").err(), Some(StoreError::Seal(_, SealError::Wrong))));
        let store = place.open("right").unwrap();
        assert!(store.key(&name("a")).is_some_and(|back| back.encode() == key().encode()));
        for entry in fs::read_dir(&place.0).unwrap() {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(16).any(|window| window == [8; 16]));
        }
    }

    #[test]
    fn a_file_that_is_cut_off_costs_no_other_key() {
        let place = Place::new("cut");
        let mut store = place.open("right").unwrap();
        for text in ["a", "b"] {
            store.put(&name(text), key()).unwrap();
        }
        drop(store);
        let file = place.0.join("a.key");
        let whole = fs::read(&file).unwrap();
        for len in 0..whole.len() {
            fs::write(&file, &whole[..len]).unwrap();
            let store = place.open("right").unwrap();
            assert!(store.key(&name("a")).is_none() && store.key(&name("b")).is_some(), "cut off at {len}");
            assert!(store.why_broken(&name("a")).is_some(), "cut off at {len}");
        }
        fs::write(&file, &whole).unwrap();
        assert_eq!(place.open("right").unwrap().broken().count(), 0);
    }

    #[test]
    fn what_a_crash_leaves_is_removed_and_lost_keys_are_not_replaced() {
        let place = Place::new("crash");
        let mut store = place.open("right").unwrap();
        store.put(&name("a"), key()).unwrap();
        drop(store);
        fs::write(place.0.join(".new-a.key"), b"half").unwrap();
        assert_eq!(place.open("right").unwrap().len(), 1);
        assert!(!place.0.join(".new-a.key").exists());
        fs::remove_file(place.0.join(STORE)).unwrap();
        assert!(matches!(place.open("right").err(), Some(StoreError::NoStore(_))));
    }

    #[test]
    fn a_key_that_cannot_be_written_is_not_in_force() {
        let place = Place::new("written");
        let mut store = place.open("right").unwrap();
        fs::remove_dir_all(&place.0).unwrap();
        assert!(matches!(store.put(&name("a"), key()), Err(StoreError::Io(..))));
        assert!(store.is_empty());
    }
}
