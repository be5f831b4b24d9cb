//! Sequence numbers in stable storage: a file for each network namespace, with a record of fixed size for each series
//! of numbers.
//!
//! A record holds the highest number of a series that may have been used. It is written before a packet gets such a
//! number, and becomes exact when the state is deleted in good order. A written record survives a crash of the daemon;
//! it survives a crash of the machine after at most [`SYNC`] (a thread of its own synchronises the file, so that adding
//! states does not wait for disks). A lease is renewed when a quarter of it is left: long before its numbers are in
//! use.
//!
//! A series is named by a MAC of the state's parameters, keys included, under a secret of the file: the name reveals no
//! key.

use crate::errand::Errand;
use sealane_crypto::mac::MacTfm;
use sealane_crypto::{Kind, Registry};
use sealane_engine_xfrm::numbers::{LeaseError, Leased, Numbers, Series};
use sealane_net::ipsec::seq::Lease;
use sealane_sys::life;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{Span, error, warn};
use zeroize::Zeroizing;

/// The numbers of one lease: enough for seconds of a fast state, and few enough for a 32-bit state to survive a
/// thousand crashes.
const BLOCK: u64 = 1 << 22;
/// The most series without a state that are remembered, because their keys may come back.
const REMEMBERED: usize = 1 << 16;
/// The longest time until written records are on the disk, disks permitting.
const SYNC: Duration = Duration::from_millis(20);

const MAGIC: &[u8; 16] = b"sealane numbers1";
const SECRET_LEN: usize = 32;
/// The length of the file's header, a multiple of a record's.
const HEADER_LEN: u64 = 64;
const RECORD_LEN: usize = 32;

/// Returns the path of a namespace's file.
pub(crate) fn path(folder: &Path, netns: Option<&str>) -> PathBuf {
    // Names of namespaces are names of files; a namespace may be named by a path, too.
    let name = netns.map(|name| name.replace('/', "%2F"));
    folder.join(name.map_or_else(|| "ipsec-numbers".to_owned(), |name| format!("ipsec-numbers.{name}")))
}

/// Returns the folder that outlives a boot if there is one (systemd's `StateDirectory=`), else the runtime folder,
/// which outlives the daemon.
pub(crate) fn folder(runtime: &Path) -> PathBuf {
    let state = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    state.filter(|folder| folder.is_absolute()).unwrap_or_else(|| runtime.to_owned())
}

struct SeriesEntry {
    slot: u32,
    /// The last number that may have been used.
    end: u64,
    /// Its place among the series that have ended; `None` while it has a state.
    ended: Option<u64>,
}

/// The part that the synchronising thread shares.
struct Sync {
    file: File,
    errand: Errand,
}

/// The open file with its records.
pub(crate) struct Log {
    sync: Arc<Sync>,
    secret: MacTfm,
    entries: HashMap<Series, SeriesEntry>,
    /// Series that have ended and not come back, the oldest first.
    ended: BTreeMap<u64, Series>,
    /// The number of series that have ended so far.
    endings: u64,
    /// Slots without a series.
    free: Vec<u32>,
    slots: u32,
    thread: Option<JoinHandle<()>>,
}

impl Log {
    /// Opens the file, or makes one.
    ///
    /// # Errors
    /// The file system's; `WouldBlock` when another daemon has it; `InvalidData` when it is not a file of Sealane's.
    pub(crate) fn open(path: &Path, registry: &Registry, secret: impl FnOnce(&mut [u8])) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => io::Error::new(io::ErrorKind::WouldBlock, "another daemon uses it"),
            TryLockError::Error(e) => e,
        })?;
        let mut header = Zeroizing::new([0; HEADER_LEN as usize]);
        let len = file.metadata()?.len();
        if len < HEADER_LEN {
            header[..MAGIC.len()].copy_from_slice(MAGIC);
            secret(&mut header[MAGIC.len()..MAGIC.len() + SECRET_LEN]);
            file.write_all_at(&*header, 0)?;
            file.sync_data()?;
        } else {
            file.read_exact_at(&mut *header, 0)?;
        }
        let other = || io::Error::new(io::ErrorKind::InvalidData, format!("{} is no file of ours", path.display()));
        let secret = header.strip_prefix(MAGIC).ok_or_else(other)?;
        let mac = registry.lookup(Kind::Hash, "hmac(sha256)").map_err(|e| io::Error::other(e.to_string()))?;
        let secret = mac.mac(&secret[..SECRET_LEN]).map_err(|e| io::Error::other(e.to_string()))?;
        let sync = Arc::new(Sync { file, errand: Errand::default() });
        let (entries, ended, free) = (HashMap::new(), BTreeMap::new(), Vec::new());
        let mut log = Log { sync: sync.clone(), secret, entries, ended, endings: 0, free, slots: 0, thread: None };
        log.read(len)?;
        let context = Span::current();
        let work = move || context.in_scope(|| sync.work());
        log.thread = Some(std::thread::Builder::new().name("sealane-numbers".into()).spawn(work)?);
        Ok(log)
    }

    /// Reads all records. A torn record was never a lease: its slot is free.
    fn read(&mut self, len: u64) -> io::Result<()> {
        self.slots = u32::try_from(len.saturating_sub(HEADER_LEN) / RECORD_LEN as u64).map_err(io::Error::other)?;
        for slot in 0..self.slots {
            let mut record = [0; RECORD_LEN];
            self.sync.file.read_exact_at(&mut record, place(slot))?;
            let (series, end) = (Series(first(&record, 0)), u64::from_le_bytes(first(&record, 16)));
            let known = self.entries.get(&series).is_some_and(|entry| entry.end >= end);
            if known || record != self.record(series, end) {
                self.free.push(slot);
                continue;
            }
            let ended = Some(self.is_over(series));
            if let Some(older) = self.entries.insert(series, SeriesEntry { slot, end, ended }) {
                self.free.push(older.slot);
                older.ended.map(|at| self.ended.remove(&at));
            }
        }
        Ok(())
    }

    /// Notes that a series has ended. Returns its place among those that have.
    fn is_over(&mut self, series: Series) -> u64 {
        self.endings += 1;
        self.ended.insert(self.endings, series);
        self.endings
    }

    fn record(&self, series: Series, end: u64) -> [u8; RECORD_LEN] {
        let mut record = [0; RECORD_LEN];
        record[..16].copy_from_slice(&series.0);
        record[16..24].copy_from_slice(&end.to_le_bytes());
        let check = self.mac(&[&record[..24]]);
        record[24..].copy_from_slice(&check[..8]);
        record
    }

    fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut tag = [0; 32];
        self.secret.sign(parts, &mut tag).expect("software drivers do not fail");
        tag
    }

    fn write(&self, slot: u32, series: Series, end: u64) -> io::Result<()> {
        self.sync.file.write_all_at(&self.record(series, end), place(slot))?;
        self.sync.errand.ask();
        Ok(())
    }

    /// Takes a free slot, by preference one that exists already.
    fn slot(&mut self) -> u32 {
        while self.free.is_empty() && self.ended.len() > REMEMBERED {
            let Some((_, oldest)) = self.ended.pop_first() else { break };
            self.free.extend(self.entries.remove(&oldest).map(|entry| entry.slot));
        }
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }
}

/// Returns the offset of a record.
fn place(slot: u32) -> u64 {
    HEADER_LEN + u64::from(slot) * RECORD_LEN as u64
}

fn first<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    *record[at..].first_chunk().expect("a record is long enough")
}

/// Reports that a lease could not be written.
fn not_leased(error: &io::Error) {
    error!(%error, "xfrm: sequence numbers cannot be leased: {error}");
}

impl Numbers for Log {
    fn lease(&mut self, identity: &[u8], used: u64) -> Result<Leased, LeaseError> {
        let series = Series(first(&self.mac(&[identity]), 0));
        let known = self.entries.get(&series);
        if known.is_some_and(|entry| entry.ended.is_none()) {
            return Err(LeaseError::InUse);
        }
        let used = known.map_or(used, |entry| entry.end.max(used));
        let slot = known.map(|entry| entry.slot).unwrap_or_else(|| self.slot());
        let lease = Lease::after(used, BLOCK);
        if let Err(e) = self.write(slot, series, lease.end) {
            not_leased(&e);
            if !self.entries.contains_key(&series) {
                self.free.push(slot);
            }
            return Err(LeaseError::Storage);
        }
        let before = self.entries.insert(series, SeriesEntry { slot, end: lease.end, ended: None });
        before.and_then(|entry| entry.ended).map(|at| self.ended.remove(&at));
        Ok(Leased { series, used, lease })
    }

    fn renew(&mut self, series: Series, used: u64) -> Option<Lease> {
        let slot = self.entries.get(&series)?.slot;
        let lease = Lease::after(used, BLOCK);
        self.write(slot, series, lease.end).inspect_err(not_leased).ok()?;
        self.entries.get_mut(&series)?.end = lease.end;
        Some(lease)
    }

    fn end(&mut self, series: Series, used: Option<u64>) {
        let Some(entry) = self.entries.get(&series) else { return };
        let (slot, end) = (entry.slot, used.unwrap_or(entry.end).min(entry.end));
        entry.ended.map(|at| self.ended.remove(&at));
        let ended = Some(self.is_over(series));
        self.entries.insert(series, SeriesEntry { slot, end, ended });
        if let Err(e) = self.write(slot, series, end) {
            // The lease stays in the file: its unused numbers are skipped.
            warn!(error = %e, "xfrm: sequence numbers cannot be given back: {e}");
        }
    }
}

impl Sync {
    fn work(&self) {
        let _alive = life::begin("sealane-numbers", life::Kind::Control);
        self.errand.work(
            |_| SYNC,
            || {
                // A disk may take as long as it wants.
                let wait = life::wait();
                let synced = self.file.sync_data();
                drop(wait);
                if let Err(e) = synced {
                    error!(error = %e, "xfrm: sequence numbers cannot be synchronised: {e}");
                }
            },
        );
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.sync.errand.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("sealane-numbers-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }

        fn open(&self) -> io::Result<Log> {
            let path = path(&self.0, Some("a"));
            Log::open(&path, &sealane_crypto_portable::registry(), |secret| secret.fill(7))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_namespace_named_by_a_path_has_a_file_too() {
        let folder = Path::new("/run/sealane");
        assert_eq!(path(folder, None), folder.join("ipsec-numbers"));
        assert_eq!(path(folder, Some("a")), folder.join("ipsec-numbers.a"));
        assert_eq!(path(folder, Some("/proc/7/ns/net")), folder.join("ipsec-numbers.%2Fproc%2F7%2Fns%2Fnet"));
    }

    #[test]
    fn numbers_go_on_after_a_crash() {
        let folder = Folder::new("crash");
        let mut log = folder.open().unwrap();
        let first = log.lease(b"one", 0).unwrap();
        assert_eq!((first.used, first.lease), (0, Lease::after(0, BLOCK)));
        assert_eq!(log.lease(b"one", 0), Err(LeaseError::InUse));
        let other = log.lease(b"other", 1000).unwrap();
        assert_ne!(other.series, first.series);
        assert_eq!(log.renew(first.series, 5_000_000).unwrap().end, 5_000_000 + BLOCK);
        // Another daemon must not lease the same.
        assert_eq!(folder.open().err().map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
        drop(log);

        let mut log = folder.open().unwrap();
        assert_eq!(log.lease(b"one", 7).unwrap().used, 5_000_000 + BLOCK);
        let other = log.lease(b"other", 0).unwrap();
        assert_eq!(other.used, 1000 + BLOCK);
        // In good order nothing is skipped.
        log.end(other.series, Some(other.used + 3));
        assert_eq!(log.lease(b"other", 0).unwrap().used, 1000 + BLOCK + 3);
        log.end(other.series, Some(other.used + 4));
        drop(log);
        assert_eq!(folder.open().unwrap().lease(b"other", 0).unwrap().used, 1000 + BLOCK + 4);
    }

    #[test]
    fn what_is_torn_is_nobody_s() {
        let folder = Folder::new("torn");
        let mut log = folder.open().unwrap();
        for name in [b"a", b"b", b"c"] {
            log.lease(name, 0).unwrap();
        }
        drop(log);
        let file = OpenOptions::new().write(true).open(path(&folder.0, Some("a"))).unwrap();
        file.write_all_at(&[1], place(1) + 17).unwrap();
        let mut log = folder.open().unwrap();
        assert_eq!(log.lease(b"a", 0).unwrap().used, BLOCK);
        // Its slot is the first to be used again.
        assert_eq!(log.free, [1]);
        assert_eq!(log.lease(b"b", 0).unwrap().used, 0);
        assert_eq!(log.lease(b"c", 0).unwrap().used, BLOCK);
        drop(log);
        file.write_all_at(b"something else", 0).unwrap();
        assert_eq!(folder.open().err().map(|e| e.kind()), Some(io::ErrorKind::InvalidData));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let folder = Folder::new("many");
        let mut log = folder.open().unwrap();
        let kept = log.lease(b"kept", 0).unwrap();
        for i in 0..REMEMBERED as u64 + 500 {
            let leased = log.lease(&i.to_le_bytes(), 0).unwrap();
            log.end(leased.series, Some(1));
        }
        assert!(log.slots as usize <= REMEMBERED + 3 && log.entries.len() <= REMEMBERED + 3);
        assert_eq!(log.lease(&1000u64.to_le_bytes(), 0).unwrap().used, 1);
        assert_eq!(log.lease(&0u64.to_le_bytes(), 0).unwrap().used, 0);
        assert!(log.renew(kept.series, 9).is_some());
        // A key that comes back again and again takes no more, and is the last to be forgotten.
        let again = 700u64.to_le_bytes();
        for _ in 0..1000 {
            let leased = log.lease(&again, 0).unwrap();
            log.end(leased.series, Some(1));
        }
        assert_eq!(log.ended.len() + 3, log.entries.len(), "three have a state");
        for i in 0..1000u64 {
            let leased = log.lease(&(1 << 40 | i).to_le_bytes(), 0).unwrap();
            log.end(leased.series, Some(1));
        }
        assert_eq!((log.lease(&again, 0).unwrap().used, log.lease(&701u64.to_le_bytes(), 0).unwrap().used), (1, 0));
    }

    #[test]
    fn a_full_disk_leases_nothing() {
        let folder = Folder::new("full");
        drop(folder.open().unwrap());
        let mut log = folder.open().unwrap();
        let one = log.lease(b"one", 0).unwrap();
        let file = File::open(path(&folder.0, Some("a"))).unwrap();
        // A file opened for reading cannot be written to.
        let sync = Sync { file, errand: Errand::default() };
        let whole = core::mem::replace(&mut log.sync, Arc::new(sync));
        assert_eq!(log.lease(b"two", 0), Err(LeaseError::Storage));
        assert_eq!(log.renew(one.series, 4_000_000), None);
        log.sync = whole;
        assert!(log.lease(b"two", 0).is_ok() && log.renew(one.series, 4_000_000).is_some());
    }
}
