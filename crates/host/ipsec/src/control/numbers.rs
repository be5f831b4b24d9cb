//! Sequence numbers in stable storage: a file for each network namespace, with a record of fixed size for each series
//! of numbers.
//!
//! A record holds the highest number of a series that may have been used, and becomes exact when the state is deleted in
//! good order. The record of a new state is written before the request is served ([`Storage::reserve`]), and survives a crash of
//! the daemon; it survives a crash of the machine after at most [`SYNC`], so that adding states does not wait for disks. A lease is renewed
//! when half of it is left, by a thread of its own: whatever the disk does, packets go on with the rest of the lease, and
//! numbers of the next one are sent when they are on the disk.
//!
//! Some series are kept [for good](FOR_GOOD): those of partial MACs. Their leases are on the disk when they are given out, and they are
//! never forgotten for others. They are refused without a folder that outlives a boot, in namespaces that are served by a pattern, and
//! when [`MOST_FOR_GOOD`] are there.
//!
//! A series is named by a MAC of the state's parameters, keys included, under a secret of the file: the name reveals no
//! key.
//!
//! A file has the name of the namespace in the configuration, which outlives a boot as the namespace itself does not. Within a
//! boot the namespace may get another name there while its states stay. So a file says whose it is in this boot, and follows
//! its namespace to the new name. If there is a file of that name from before, both count: the other one is only read from
//! then on.
//!
//! The files of namespaces that are served by a pattern have names that the configuration cannot have. Containers have another
//! name each time, so that only the [`MAX_FOUND`] of them that were written last stay.

use parking_lot::{Mutex, MutexGuard};
use sealane_crypto::mac::MacTfm;
use sealane_crypto::{Kind, Registry};
use sealane_engine_xfrm::numbers::{FOR_GOOD, LeaseError, Leased, Numbers, Series};
use sealane_ipsec_data::Errand;
use sealane_net_ipsec::seq::Lease;
use sealane_sys::life;
use sealane_sys::runtime::remove;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{Span, error};
use zeroize::Zeroizing;

/// The numbers of one lease: enough for seconds of a fast state, and few enough for a 32-bit state to survive a
/// thousand crashes.
const BLOCK: u64 = 1 << 22;
/// The most series without a state that are remembered, because their keys may come back.
const REMEMBERED: usize = 1 << 16;
/// The most series that are kept for good, with a state or without.
const MOST_FOR_GOOD: usize = 1 << 16;
/// The most records that are written before others may write.
const AT_ONCE: usize = 256;
/// The longest time until written records are on the disk, disks permitting.
const SYNC: Duration = Duration::from_millis(20);

const MAGIC: &[u8; 16] = b"sealane numbers1";
const SECRET_LEN: usize = 32;
/// The length of the file's header, a multiple of a record's.
const HEADER_LEN: u64 = 64;
const RECORD_LEN: usize = 32;
/// The length of what tells a file's owner, behind the secret.
const STAMP_LEN: usize = 16;
const STAMP_AT: u64 = (MAGIC.len() + SECRET_LEN) as u64;

/// The beginning of the names of files, and of those that are only read.
const FILES: &str = "ipsec-numbers";
const READ_ONLY: &str = "ipsec-numbers-before.";
/// The beginning of the last part of those of namespaces that are served by patterns.
const FOUND: &str = ".*";
/// The most files of namespaces that were served by patterns and are not any more.
const MAX_FOUND: usize = 1024;

/// The last part of the names of a namespace's files: nothing for the daemon's own namespace.
fn suffix(netns: Option<&str>) -> String {
    // Names of namespaces are names of files; a namespace may be named by a path, too.
    netns.map_or_else(String::new, |name| format!(".{}", name.replace('/', "%2F")))
}

/// Returns the path of a namespace's file.
pub(crate) fn path(folder: &Path, netns: Option<&str>) -> PathBuf {
    folder.join(format!("{FILES}{}", suffix(netns)))
}

/// The name of a namespace's file that is served by a pattern: no name in the configuration has a `*`.
pub(crate) fn found(name: &str) -> String {
    format!("*{name}")
}

/// Removes files of namespaces that were served by patterns: those without a record, and the oldest ones. Those with a series that is kept
/// for good stay: their namespaces had a name before.
///
/// # Errors
/// The file system's.
pub(crate) fn tidy(folder: &Path, registry: &Registry) -> io::Result<()> {
    tidy_to(folder, registry, MAX_FOUND)
}

fn tidy_to(folder: &Path, registry: &Registry, most: usize) -> io::Result<()> {
    let mut left = Vec::new();
    for name in names(folder)?.into_iter().filter(|name| name.contains(FOUND)) {
        let path = folder.join(name);
        let Ok(file) = File::open(&path) else { continue };
        let about = file.metadata()?;
        // Nobody uses it.
        if file.try_lock().is_ok() {
            left.push((about.len() > HEADER_LEN, about.modified()?, file, path));
        }
    }
    left.sort_unstable_by_key(|(has_records, written, ..)| std::cmp::Reverse((*has_records, *written)));
    let is_wanted = left.iter().take(most).take_while(|(has_records, ..)| *has_records).count();
    let must_stay = |file| keeps_for_good(file, registry).unwrap_or(true);
    let gone = left[is_wanted..].iter().filter(|(has_records, _, file, _)| !has_records || !must_stay(file));
    gone.into_iter().try_for_each(|(.., path)| remove(path))
}

/// Whether a file has a series that is kept for good, and numbers of it.
fn keeps_for_good(file: &File, registry: &Registry) -> io::Result<bool> {
    let Header { secret, .. } = Header::read(file, registry)?;
    for slot in 0..slots(file.metadata()?.len())? {
        if Record::read(file, &secret, slot)?.is_some_and(|record| record.is_for_good && record.end != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A network namespace in one boot, whatever the configuration calls it.
pub(crate) struct Owner {
    /// Cookies are never used twice in a boot.
    pub(crate) cookie: u64,
    /// The boot; empty if nobody knows.
    pub(crate) boot: String,
}

/// The start of a file.
struct Header {
    secret: MacTfm,
    /// Tells the owner; zeros for none.
    stamp: [u8; STAMP_LEN],
}

impl Header {
    /// Reads the header of a file of ours.
    ///
    /// # Errors
    /// The file system's; `InvalidData` for a file of somebody else's.
    fn read(file: &File, registry: &Registry) -> io::Result<Self> {
        let mut header = Zeroizing::new([0; HEADER_LEN as usize]);
        file.read_exact_at(&mut *header, 0)?;
        let other = || io::Error::new(io::ErrorKind::InvalidData, "it is no file of ours");
        let rest = header.strip_prefix(MAGIC).ok_or_else(other)?;
        let (secret, stamp) = rest.split_at(SECRET_LEN);
        let mac = registry.lookup(Kind::Hash, "hmac(sha256)").map_err(|e| io::Error::other(e.to_string()))?;
        let secret = mac.mac(secret).map_err(|e| io::Error::other(e.to_string()))?;
        Ok(Header { secret, stamp: first(stamp, 0) })
    }

    /// The stamp of an owner in this file, if it can be told.
    fn stamp_of(&self, owner: &Owner) -> Option<[u8; STAMP_LEN]> {
        let parts = [&b"namespace"[..], &owner.cookie.to_le_bytes(), owner.boot.as_bytes()];
        (!owner.boot.is_empty()).then(|| first(&mac(&self.secret, &parts), 0))
    }

    fn is_of(&self, owner: &Owner) -> bool {
        self.stamp_of(owner) == Some(self.stamp)
    }
}

fn mac(secret: &MacTfm, parts: &[&[u8]]) -> [u8; 32] {
    let mut tag = [0; 32];
    secret.sign(parts, &mut tag).expect("software drivers do not fail");
    tag
}

fn series_of(secret: &MacTfm, identity: &[u8]) -> Series {
    Series(first(&mac(secret, &[identity]), 0))
}

/// A record of the file.
#[derive(Clone, Copy)]
struct Record {
    series: Series,
    /// The last number that may have been used.
    end: u64,
    is_for_good: bool,
}

impl Record {
    fn bytes(self, secret: &MacTfm) -> [u8; RECORD_LEN] {
        let mut record = [0; RECORD_LEN];
        record[..16].copy_from_slice(&self.series.0);
        record[16..24].copy_from_slice(&self.end.to_le_bytes());
        let kind = if self.is_for_good { &b"for good"[..] } else { b"" };
        let check = mac(secret, &[&record[..24], kind]);
        record[24..].copy_from_slice(&check[..8]);
        record
    }

    /// The record in a slot; `None` for one that is torn.
    fn read(file: &File, secret: &MacTfm, slot: u32) -> io::Result<Option<Self>> {
        let mut bytes = [0; RECORD_LEN];
        file.read_exact_at(&mut bytes, place(slot))?;
        let (series, end) = (Series(first(&bytes, 0)), u64::from_le_bytes(first(&bytes, 16)));
        let kinds = [false, true].map(|is_for_good| Record { series, end, is_for_good });
        Ok(kinds.into_iter().find(|record| record.bytes(secret) == bytes))
    }
}

/// Whether the series that `identity` makes is kept for good.
fn is_for_good(identity: &[u8]) -> bool {
    identity.first() == Some(&FOR_GOOD)
}

/// The number of records in a file of this length.
fn slots(len: u64) -> io::Result<u32> {
    u32::try_from(len.saturating_sub(HEADER_LEN) / RECORD_LEN as u64).map_err(io::Error::other)
}

/// The series of a file that is not written any more.
struct ReadOnly {
    secret: MacTfm,
    ends: HashMap<Series, u64>,
}

impl ReadOnly {
    fn read(path: &Path, registry: &Registry) -> io::Result<Self> {
        let file = File::open(path)?;
        let Header { secret, .. } = Header::read(&file, registry)?;
        let mut ends = HashMap::new();
        for slot in 0..slots(file.metadata()?.len())? {
            if let Some(Record { series, end, .. }) = Record::read(&file, &secret, slot)? {
                let known = ends.entry(series).or_insert(end);
                *known = end.max(*known);
            }
        }
        Ok(ReadOnly { secret, ends })
    }

    /// The last number that may have been used of the series that `identity` makes.
    fn used(&self, identity: &[u8]) -> u64 {
        self.ends.get(&series_of(&self.secret, identity)).copied().unwrap_or(0)
    }
}

/// The names of all files in the folder, those that are only read included, in their order.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| name.starts_with(FILES)));
    }
    names.sort_unstable();
    Ok(names)
}

/// The number of a file that is only read, if it belongs to the namespace with this suffix.
fn number_of(name: &str, suffix: &str) -> Option<u32> {
    name.strip_prefix(READ_ONLY)?.strip_suffix(suffix)?.parse().ok()
}

/// Puts the files of a namespace to the name that it has now. Returns those that are only read.
fn settle(folder: &Path, netns: Option<&str>, owner: &Owner, registry: &Registry) -> io::Result<Vec<PathBuf>> {
    let suffix = suffix(netns);
    let wanted = format!("{FILES}{suffix}");
    let is_ours = |name: &String| {
        let header = File::open(folder.join(name)).and_then(|file| Header::read(&file, registry));
        header.is_ok_and(|header| header.is_of(owner))
    };
    let all = names(folder)?;
    let ours: Vec<&String> = all.iter().filter(|name| is_ours(name)).collect();
    let mut number = all.iter().filter_map(|name| number_of(name, &suffix)).max().unwrap_or(0);
    let mut set_aside = |name: &str| {
        number += 1;
        std::fs::rename(folder.join(name), folder.join(format!("{READ_ONLY}{number}{suffix}")))
    };
    if let Some(found) = ours.first().filter(|_| !ours.iter().any(|name| **name == wanted)) {
        for name in [found.as_str(), &wanted] {
            match File::open(folder.join(name)) {
                Ok(file) => lock(&file)?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        // Whenever this ends early, the next attempt goes on.
        if all.contains(&wanted) {
            set_aside(&wanted)?;
        }
        if let Some(before) = found.strip_prefix(FILES).filter(|_| !found.starts_with(READ_ONLY)) {
            all.iter().filter(|name| number_of(name, before).is_some()).try_for_each(|name| set_aside(name))?;
        }
        std::fs::rename(folder.join(found), folder.join(&wanted))?;
        sync_names(folder)?;
    }
    Ok(names(folder)?.iter().filter(|name| number_of(name, &suffix).is_some()).map(|name| folder.join(name)).collect())
}

/// Has the disk write the names of files: after a crash of the machine they are all that tells whose a file is.
fn sync_names(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes sure that nobody else uses a file.
fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|e| match e {
        TryLockError::WouldBlock => io::Error::new(io::ErrorKind::WouldBlock, "another daemon uses it"),
        TryLockError::Error(e) => e,
    })
}

/// The folder of the files.
pub(crate) struct Home {
    pub(crate) folder: PathBuf,
    outlives_boots: bool,
}

impl Home {
    /// The folder that outlives a boot if there is one (systemd's `StateDirectory=`), else the runtime folder, which outlives the daemon.
    pub(crate) fn of(runtime: &Path) -> Self {
        Home::of_folders(runtime, std::env::var_os("STATE_DIRECTORY").map(PathBuf::from))
    }

    fn of_folders(runtime: &Path, state: Option<PathBuf>) -> Self {
        match state.filter(|folder| folder.is_absolute()) {
            Some(folder) => Home { folder, outlives_boots: true },
            None => Home { folder: runtime.to_owned(), outlives_boots: false },
        }
    }
}

struct SeriesEntry {
    slot: u32,
    /// The last number that may have been used.
    end: u64,
    use_: Use,
    is_for_good: bool,
}

/// The user of a series.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// A state.
    State,
    /// A request that is about to add one ([`Storage::reserve`]). The numbers up to `used` may have been used before.
    Request { used: u64 },
    /// Nobody any more. Its place among the series that have ended.
    Ended(u64),
}

/// A record that is to be written.
struct Queued {
    record: [u8; RECORD_LEN],
    /// The lease that it is for, if somebody waits for that.
    renewal: Option<(Series, Lease)>,
}

/// Work for the thread that writes, and what has become of it.
#[derive(Default)]
struct Queue {
    /// By slots.
    records: BTreeMap<u32, Queued>,
    done: Vec<(Series, Option<Lease>)>,
}

/// The part that the writing thread shares.
struct Sync {
    file: File,
    errand: Errand,
    /// It is never locked for as long as a disk takes.
    queue: Mutex<Queue>,
    /// Records are written one after another: a later one of the same slot counts.
    writing: Mutex<()>,
}

impl Sync {
    fn of(file: File) -> Self {
        Sync { file, errand: Errand::default(), queue: Mutex::default(), writing: Mutex::default() }
    }

    /// Has a record written, in place of one of this slot that has not been written yet.
    fn queue(&self, slot: u32, queued: Queued) {
        self.queue.lock().records.insert(slot, queued);
        self.errand.ask();
    }

    /// Writes a record of a lease here and now. One that is kept for good is on the disk then.
    fn write(&self, plan: &Plan) -> io::Result<()> {
        let one = self.writing.lock();
        self.queue.lock().records.remove(&plan.slot);
        self.file.write_all_at(&plan.record, place(plan.slot))?;
        drop(one);
        if plan.is_for_good {
            return self.file.sync_data();
        }
        self.errand.ask();
        Ok(())
    }

    fn work(&self) {
        let _alive = life::begin("sealane-numbers", life::Kind::Control);
        self.errand.work(|_| SYNC, || self.catch_up());
    }

    /// Writes all that is queued, and has the disk write it.
    fn catch_up(&self) {
        // A disk may take as long as it wants.
        let wait = life::wait();
        let mut written = Vec::new();
        loop {
            let one = self.writing.lock();
            let records: Vec<(u32, Queued)> = {
                let mut queue = self.queue.lock();
                core::iter::from_fn(|| queue.records.pop_first()).take(AT_ONCE).collect()
            };
            if records.is_empty() {
                break;
            }
            let write =
                |(slot, queued): (u32, Queued)| (self.file.write_all_at(&queued.record, place(slot)), queued.renewal);
            written.extend(records.into_iter().map(write).filter(|(done, renewal)| done.is_err() || renewal.is_some()));
            // Whoever adds a state need not wait until a million others are written that are gone.
            MutexGuard::unlock_fair(one);
        }
        let synced = self.file.sync_data().or_else(|e| match e.kind() {
            // The file system has nothing that it could synchronise.
            io::ErrorKind::InvalidInput => Ok(()),
            _ => Err(e),
        });
        drop(wait);
        let mut done = Vec::new();
        let (mut not_leased_of, mut not_given_back) = (0, 0);
        let mut why = None;
        for (written, renewal) in written {
            if let Err(e) = &written {
                *(if renewal.is_some() { &mut not_leased_of } else { &mut not_given_back }) += 1;
                why.get_or_insert_with(|| e.to_string());
            }
            let is_there = written.is_ok() && synced.is_ok();
            done.extend(renewal.map(|(series, lease)| (series, is_there.then_some(lease))));
        }
        if let Some(why) = why {
            // A lease that is not given back stays in the file: its unused numbers are skipped.
            error!(
                leases = not_leased_of,
                ends = not_given_back,
                "xfrm: sequence numbers of {not_leased_of} states cannot be leased, of {not_given_back} not given back: {why}"
            );
        }
        if let Err(e) = synced {
            error!(error = %e, "xfrm: sequence numbers cannot be synchronised: {e}");
        }
        self.queue.lock().done.extend(done);
    }
}

/// The open file with its records.
pub(crate) struct Log {
    sync: Arc<Sync>,
    secret: MacTfm,
    entries: HashMap<Series, SeriesEntry>,
    /// Series that have ended and not come back, the oldest first, without those that are kept for good.
    ended: BTreeMap<u64, Series>,
    /// The number of series that have ended so far.
    endings: u64,
    /// Files that the namespace has from names of before.
    read_only: Vec<ReadOnly>,
    /// Slots without a series.
    free: Vec<u32>,
    slots: u32,
    /// Why series are not kept for good here.
    not_for_good: Option<LeaseError>,
    /// The number of series that are kept for good, and the most that may be.
    for_good: usize,
    most_for_good: usize,
    thread: Option<JoinHandle<()>>,
}

impl Log {
    /// Opens the file of a namespace, by its name in the configuration and as it is known in this boot, or makes one.
    ///
    /// # Errors
    /// The file system's; `WouldBlock` when another daemon has it; `InvalidData` when it is not a file of Sealane's.
    pub(crate) fn open(
        home: &Home,
        netns: Option<&str>,
        owner: &Owner,
        registry: &Registry,
        secret: impl FnOnce(&mut [u8]),
    ) -> io::Result<Self> {
        let folder = &*home.folder;
        let not_for_good = match netns {
            _ if !home.outlives_boots => Some(LeaseError::Volatile),
            Some(name) if suffix(Some(name)).starts_with(FOUND) => Some(LeaseError::Nameless),
            _ => None,
        };
        let read_only = settle(folder, netns, owner, registry)?;
        let read_only = read_only.iter().map(|path| ReadOnly::read(path, registry)).collect::<io::Result<_>>()?;
        let path = path(folder, netns);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        lock(&file)?;
        let len = file.metadata()?.len();
        if len < HEADER_LEN {
            let mut header = Zeroizing::new([0; HEADER_LEN as usize]);
            header[..MAGIC.len()].copy_from_slice(MAGIC);
            secret(&mut header[MAGIC.len()..MAGIC.len() + SECRET_LEN]);
            file.write_all_at(&*header, 0)?;
            file.sync_data()?;
            sync_names(folder)?;
        }
        let header = Header::read(&file, registry)?;
        // A name may be another namespace's now.
        if !header.is_of(owner) {
            file.write_all_at(&header.stamp_of(owner).unwrap_or_default(), STAMP_AT)?;
        }
        let secret = header.secret;
        let sync = Arc::new(Sync::of(file));
        let (entries, ended, free) = (HashMap::new(), BTreeMap::new(), Vec::new());
        let sync_too = sync.clone();
        let mut log = Log {
            sync,
            secret,
            entries,
            ended,
            endings: 0,
            read_only,
            free,
            slots: 0,
            not_for_good,
            for_good: 0,
            most_for_good: MOST_FOR_GOOD,
            thread: None,
        };
        log.read(len)?;
        let context = Span::current();
        let work = move || context.in_scope(|| sync_too.work());
        log.thread = Some(std::thread::Builder::new().name("sealane-numbers".into()).spawn(work)?);
        Ok(log)
    }

    /// Reads all records. A torn record was never a lease: its slot is free.
    fn read(&mut self, len: u64) -> io::Result<()> {
        self.slots = slots(len)?;
        for slot in 0..self.slots {
            let is_wanted = |found: &Record| {
                let is_more = self.entries.get(&found.series).is_none_or(|entry| entry.end < found.end);
                is_more && (found.end != 0 || !found.is_for_good)
            };
            let found = Record::read(&self.sync.file, &self.secret, slot)?;
            let Some(Record { series, end, is_for_good }) = found.filter(is_wanted) else {
                self.free.push(slot);
                continue;
            };
            let use_ = Use::Ended(self.is_over(series, is_for_good));
            if let Some(older) = self.set(series, SeriesEntry { slot, end, use_, is_for_good }) {
                self.free.push(older.slot);
            }
        }
        Ok(())
    }

    /// Notes that a series has ended. Returns its place among those that have.
    fn is_over(&mut self, series: Series, is_for_good: bool) -> u64 {
        self.endings += 1;
        if !is_for_good {
            self.ended.insert(self.endings, series);
        }
        self.endings
    }

    /// Sets what is known of a series. Returns what was known before.
    fn set(&mut self, series: Series, entry: SeriesEntry) -> Option<SeriesEntry> {
        let is_for_good = entry.is_for_good;
        let Some(before) = self.entries.insert(series, entry) else {
            self.for_good += usize::from(is_for_good);
            return None;
        };
        if let Use::Ended(at) = before.use_ {
            self.ended.remove(&at);
        }
        Some(before)
    }

    /// Forgets a series: its slot is free.
    fn forget(&mut self, series: Series) {
        if let Some(entry) = self.entries.remove(&series) {
            self.for_good -= usize::from(entry.is_for_good);
            self.free.push(entry.slot);
        }
    }

    /// Prepares a lease behind all that was leased before, and its record.
    fn plan(&mut self, identity: &[u8], series: Series, used: u64) -> Plan {
        let known = self.entries.get(&series);
        let before = self.read_only.iter().map(|file| file.used(identity));
        let used = before.chain(known.map(|entry| entry.end)).fold(used, u64::max);
        let slot = known.map(|entry| entry.slot).unwrap_or_else(|| self.slot());
        let (lease, is_for_good) = (Lease::after(used, BLOCK), is_for_good(identity));
        let record = Record { series, end: lease.end, is_for_good }.bytes(&self.secret);
        Plan { slot, record, is_for_good, leased: Leased { series, used, lease } }
    }

    /// Has a record written by the thread.
    fn queue(&self, slot: u32, record: Record, renewal: Option<Lease>) {
        let renewal = renewal.map(|lease| (record.series, lease));
        self.sync.queue(slot, Queued { record: record.bytes(&self.secret), renewal });
    }

    /// Takes a free slot, by preference one that exists already.
    fn slot(&mut self) -> u32 {
        while self.free.is_empty() && self.ended.len() > REMEMBERED {
            let Some((_, oldest)) = self.ended.pop_first() else { break };
            self.forget(oldest);
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

/// A lease that is not written down yet.
struct Plan {
    slot: u32,
    record: [u8; RECORD_LEN],
    is_for_good: bool,
    leased: Leased,
}

impl Numbers for Log {
    fn check(&self, identity: &[u8]) -> Result<(), LeaseError> {
        if !is_for_good(identity) {
            return Ok(());
        }
        let is_full = || {
            let is_new = !self.entries.contains_key(&series_of(&self.secret, identity));
            (is_new && self.for_good >= self.most_for_good).then_some(LeaseError::Full)
        };
        self.not_for_good.or_else(is_full).map_or(Ok(()), Err)
    }

    fn lease(&mut self, identity: &[u8], used: u64) -> Result<Leased, LeaseError> {
        let series = series_of(&self.secret, identity);
        if let Some(entry) = self.entries.get_mut(&series) {
            match entry.use_ {
                Use::State => return Err(LeaseError::InUse),
                Use::Request { used: before } if used <= before => {
                    entry.use_ = Use::State;
                    return Ok(Leased { series, used: before, lease: Lease::after(before, BLOCK) });
                }
                Use::Request { .. } | Use::Ended(_) => {}
            }
        }
        self.check(identity)?;
        let plan = self.plan(identity, series, used);
        let written = {
            // A disk may take as long as it wants.
            let _wait = plan.is_for_good.then(life::wait);
            self.sync.write(&plan)
        };
        let Plan { slot, is_for_good, leased, .. } = plan;
        if let Err(e) = written {
            not_leased(&e);
            if !self.entries.contains_key(&series) {
                self.free.push(slot);
            }
            return Err(LeaseError::Storage);
        }
        self.set(series, SeriesEntry { slot, end: leased.lease.end, use_: Use::State, is_for_good });
        Ok(leased)
    }

    fn renew(&mut self, series: Series, used: u64) {
        let Some(entry) = self.entries.get_mut(&series) else { return };
        let lease = Lease::after(used, BLOCK);
        entry.end = lease.end;
        let (slot, record) = (entry.slot, Record { series, end: lease.end, is_for_good: entry.is_for_good });
        self.queue(slot, record, Some(lease));
    }

    fn written(&mut self) -> Vec<(Series, Option<Lease>)> {
        core::mem::take(&mut self.sync.queue.lock().done)
    }

    fn end(&mut self, series: Series, used: Option<u64>) {
        let Some(entry) = self.entries.get(&series) else { return };
        let (slot, is_for_good, end) = (entry.slot, entry.is_for_good, used.unwrap_or(entry.end).min(entry.end));
        self.queue(slot, Record { series, end, is_for_good }, None);
        if is_for_good && end == 0 {
            // No number of it has been used: a request that was refused takes no place.
            return self.forget(series);
        }
        let use_ = Use::Ended(self.is_over(series, is_for_good));
        self.set(series, SeriesEntry { slot, end, use_, is_for_good });
    }
}

/// The numbers of a namespace: of its engine, and of the thread that serves requests.
#[derive(Clone)]
pub(crate) struct Storage(Arc<Mutex<Log>>);

impl Storage {
    pub(crate) fn new(log: Log) -> Self {
        Storage(Arc::new(Mutex::new(log)))
    }

    /// Leases the numbers of a state that a request is about to add, so that the engine, which packets wait for, need not wait
    /// for a disk. Returns the series; `None` if the engine has to ask for itself, and will be told why there are none.
    pub(crate) fn reserve(&self, identity: &[u8]) -> Option<Series> {
        let (series, plan, before, sync) = {
            let mut log = self.0.lock();
            let series = series_of(&log.secret, identity);
            if log.entries.get(&series).is_some_and(|entry| !matches!(entry.use_, Use::Ended(_))) {
                return None;
            }
            log.check(identity).ok()?;
            let plan = log.plan(identity, series, 0);
            let Plan { slot, is_for_good, leased, .. } = plan;
            // Nobody gets it before it is written down.
            let before = log.set(series, SeriesEntry { slot, end: leased.lease.end, use_: Use::State, is_for_good });
            (series, plan, before, log.sync.clone())
        };
        let written = {
            // A disk may take as long as it wants.
            let _wait = life::wait();
            sync.write(&plan)
        };
        let used = plan.leased.used;
        let mut log = self.0.lock();
        match (written, before) {
            (Ok(()), _) => {
                if let Some(entry) = log.entries.get_mut(&series) {
                    entry.use_ = Use::Request { used };
                }
                return Some(series);
            }
            (Err(_), Some(SeriesEntry { slot, end, is_for_good, .. })) => {
                let use_ = Use::Ended(log.is_over(series, is_for_good));
                log.set(series, SeriesEntry { slot, end, use_, is_for_good });
            }
            (Err(_), None) => log.forget(series),
        }
        None
    }

    /// The request has been served: what no state has taken has not been used.
    pub(crate) fn release(&self, reserved: impl IntoIterator<Item = Series>) {
        let mut log = self.0.lock();
        for series in reserved {
            if let Some(Use::Request { used }) = log.entries.get(&series).map(|entry| entry.use_) {
                log.end(series, Some(used));
            }
        }
    }
}

impl Numbers for Storage {
    fn check(&self, identity: &[u8]) -> Result<(), LeaseError> {
        self.0.lock().check(identity)
    }

    fn lease(&mut self, identity: &[u8], used: u64) -> Result<Leased, LeaseError> {
        self.0.lock().lease(identity, used)
    }

    fn renew(&mut self, series: Series, used: u64) {
        self.0.lock().renew(series, used);
    }

    fn written(&mut self) -> Vec<(Series, Option<Lease>)> {
        self.0.lock().written()
    }

    fn end(&mut self, series: Series, used: Option<u64>) {
        self.0.lock().end(series, used);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.sync.errand.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if !self.sync.queue.lock().records.is_empty() {
            self.sync.catch_up();
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
            self.open_as("a", 1, "this boot")
        }

        fn open_as(&self, name: &str, cookie: u64, boot: &str) -> io::Result<Log> {
            let owner = Owner { cookie, boot: boot.to_owned() };
            // Each file has a secret of its own.
            let secret = |secret: &mut [u8]| secret.fill(name.len() as u8 ^ cookie as u8);
            let home = Home { folder: self.0.clone(), outlives_boots: true };
            Log::open(&home, Some(name), &owner, &sealane_crypto_portable::registry(), secret)
        }

        /// The first number that a key may use under a name; its lease ends with the file.
        fn used(&self, name: &str, cookie: u64, boot: &str, identity: &[u8]) -> u64 {
            self.open_as(name, cookie, boot).unwrap().lease(identity, 0).unwrap().used
        }
    }

    /// Waits for what becomes of a renewal.
    fn written(log: &mut Log) -> (Series, Option<Lease>) {
        loop {
            if let Some(done) = log.written().pop() {
                return done;
            }
            std::thread::sleep(Duration::from_millis(1));
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

    /// The identity of a series that is kept for good.
    fn for_good(name: &[u8]) -> Vec<u8> {
        [&[FOR_GOOD], name].concat()
    }

    /// Boots that clear the runtime folder, as they do.
    #[test]
    fn no_number_comes_again_after_a_reboot() {
        let (runtime, state) = (Folder::new("runtime"), Folder::new("state"));
        let registry = sealane_crypto_portable::registry();
        let boot = |home: &Home, boot: &str| {
            std::fs::remove_dir_all(&runtime.0).unwrap();
            std::fs::create_dir_all(&runtime.0).unwrap();
            let owner = Owner { cookie: 1, boot: boot.to_owned() };
            Log::open(home, Some("a"), &owner, &registry, |secret| secret.fill(3)).unwrap()
        };
        let one = for_good(b"one");
        let home = Home::of_folders(&runtime.0, Some(state.0.clone()));
        let mut log = boot(&home, "first");
        assert_eq!((log.check(&one), log.lease(&one, 0).unwrap().used), (Ok(()), 0));
        drop(log);
        assert_eq!(boot(&home, "second").lease(&one, 0).unwrap().used, BLOCK);
        // Without the folder there is none, neither before a request nor for it, and other series are as they were.
        for nowhere in [None, Some(PathBuf::from("")), Some(PathBuf::from("state"))] {
            let home = Home::of_folders(&runtime.0, nowhere);
            let mut log = boot(&home, "third");
            assert_eq!((log.check(&one), log.lease(&one, 0)), (Err(LeaseError::Volatile), Err(LeaseError::Volatile)));
            assert_eq!((log.check(b"two"), log.lease(b"two", 0).unwrap().used), (Ok(()), 0));
            assert_eq!(Storage::new(log).reserve(&one), None);
        }
        // Nor is there any in a namespace that a pattern has found, which has another name in the next boot.
        let mut found = state.open_as(&found("c"), 7, "third").unwrap();
        assert_eq!((found.check(&one), found.lease(&one, 0)), (Err(LeaseError::Nameless), Err(LeaseError::Nameless)));
    }

    #[test]
    fn what_is_for_good_is_on_the_disk_first() {
        let folder = Folder::new("synced");
        let mut storage = Storage::new(folder.open().unwrap());
        let known = storage.lease(&for_good(b"known"), 0).unwrap();
        storage.end(known.series, Some(5));
        // It takes everything and has no disk.
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let whole = core::mem::replace(&mut storage.0.lock().sync, Arc::new(Sync::of(null)));
        assert!(storage.lease(b"other", 0).is_ok());
        for name in [b"new", &b"known"[..]] {
            assert_eq!(storage.reserve(&for_good(name)), None);
            assert_eq!(storage.lease(&for_good(name), 0), Err(LeaseError::Storage));
        }
        storage.0.lock().sync = whole;
        assert_eq!(storage.lease(&for_good(b"new"), 0).unwrap().used, 0);
        assert_eq!(storage.reserve(&for_good(b"known")), Some(known.series));
        assert_eq!(storage.lease(&for_good(b"known"), 0).unwrap().used, 5);
    }

    #[test]
    fn what_is_for_good_is_never_forgotten() {
        let folder = Folder::new("good");
        let mut log = folder.open().unwrap();
        log.most_for_good = 3;
        let all = [1u8, 2, 3].map(|n| for_good(&[n]));
        for (identity, used) in all.iter().zip(1..) {
            let leased = log.lease(identity, 0).unwrap();
            log.end(leased.series, Some(used));
        }
        // There is no place for another one, and it does not take that of those.
        let other = for_good(b"other");
        assert_eq!((log.check(&other), log.lease(&other, 0)), (Err(LeaseError::Full), Err(LeaseError::Full)));
        // Others are forgotten in their place.
        for i in 0..REMEMBERED as u64 + 10 {
            let leased = log.lease(&i.to_be_bytes(), 0).unwrap();
            log.end(leased.series, Some(1));
        }
        assert_eq!(log.lease(&0u64.to_be_bytes(), 0).unwrap().used, 0, "this one is");
        drop(log);
        let mut log = folder.open().unwrap();
        log.most_for_good = 4;
        for (identity, used) in all.iter().zip(1..) {
            assert_eq!(log.lease(identity, 0).unwrap().used, used);
        }
        // A request that is refused takes no place, in the file either.
        for _ in 0..3 {
            let mut storage = Storage::new(log);
            let series = storage.reserve(&other).unwrap();
            assert_eq!(storage.check(&for_good(b"one more")), Err(LeaseError::Full));
            storage.release([series]);
            assert_eq!(storage.check(&for_good(b"one more")), Ok(()));
            let leased = storage.lease(&other, 0).unwrap();
            storage.end(leased.series, Some(0));
            drop(storage);
            log = folder.open().unwrap();
            log.most_for_good = 4;
            assert_eq!(log.for_good, 3);
        }
    }

    #[test]
    fn of_namespaces_that_were_found_the_last_ones_stay() {
        let registry = sealane_crypto_portable::registry();
        let tidy_to = |folder: &Path, most| tidy_to(folder, &registry, most);
        let folder = Folder::new("found");
        let files = || names(&folder.0).unwrap().len();
        assert_eq!(folder.used("named", 1, "boot", b"one"), 0);
        drop(folder.open_as(&found("unused"), 2, "boot").unwrap());
        for i in 0..7 {
            assert_eq!(folder.used(&found(&i.to_string()), 3 + i as u64, "boot", b"one"), 0);
        }
        let first = [0, 1].map(|i| path(&folder.0, Some(&found(&format!("{i}")))));
        for (i, path) in first.iter().enumerate() {
            let then = std::time::UNIX_EPOCH + Duration::from_secs(i as u64);
            File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
        }
        // One that is in use stays.
        let log = folder.open_as(&found("0"), 3, "boot").unwrap();
        tidy_to(&folder.0, 5).unwrap();
        assert_eq!(files(), 1 + 1 + 5);
        assert!(!path(&folder.0, Some(&found("unused"))).exists());
        drop(log);
        assert_eq!((first[0].exists(), first[1].exists()), (true, false));
        tidy_to(&folder.0, 5).unwrap();
        assert_eq!((first[0].exists(), first[1].exists(), files()), (false, false, 1 + 5));
        // One with a series for good, which it has from a name of before.
        folder.used("named before", 20, "boot", &for_good(b"one"));
        drop(folder.open_as(&found("x"), 20, "boot").unwrap());
        let path = path(&folder.0, Some(&found("x")));
        File::options().write(true).open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        tidy_to(&folder.0, 5).unwrap();
        assert!(path.exists());
        // Within a boot numbers follow from a pattern to a name in the configuration.
        assert_eq!(folder.used("5", 3 + 5, "boot", b"one"), BLOCK);
    }

    #[test]
    fn numbers_follow_a_namespace_to_another_name() {
        let folder = Folder::new("renamed");
        assert_eq!(folder.used("left", 1, "first", b"one"), 0);
        assert_eq!(folder.used("/run/netns/left", 1, "first", b"one"), BLOCK, "another name");
        assert_eq!(folder.used("/run/netns/left", 1, "first", b"one"), 2 * BLOCK);
        assert_eq!(names(&folder.0).unwrap(), ["ipsec-numbers.%2Frun%2Fnetns%2Fleft"], "there is one file");
        // After a boot names count, whatever the cookie is.
        assert_eq!(folder.used("/run/netns/left", 5, "second", b"one"), 3 * BLOCK);
        // Another namespace that has got the name goes on, too.
        assert_eq!(folder.used("/run/netns/left", 6, "second", b"one"), 4 * BLOCK);
        // A name with a file from a boot before, which knows another key.
        assert_eq!(folder.used("right", 1, "first", b"two"), 0);
        assert_eq!(folder.used("right", 6, "second", b"one"), 5 * BLOCK);
        assert_eq!(folder.used("right", 6, "second", b"two"), BLOCK);
        assert_eq!(names(&folder.0).unwrap(), ["ipsec-numbers-before.1.right", "ipsec-numbers.right"]);
        // Both follow to the next name, and to the next boot.
        assert_eq!(folder.used("x", 6, "second", b"three"), 0);
        assert_eq!(names(&folder.0).unwrap(), ["ipsec-numbers-before.1.x", "ipsec-numbers.x"]);
        let mut log = folder.open_as("x", 9, "third").unwrap();
        assert_eq!([b"one", b"two"].map(|key| log.lease(key, 0).unwrap().used), [6 * BLOCK, 2 * BLOCK]);
        // A file that is in use stays where it is.
        let refused = folder.open_as("y", 9, "third").err().map(|e| e.kind());
        assert_eq!(refused, Some(io::ErrorKind::WouldBlock));
        drop(log);
        // Where nobody knows the boot, names are all there is.
        assert_eq!(folder.used("z", 9, "", b"one"), 0);
        assert_eq!(folder.used("x", 9, "", b"one"), 7 * BLOCK);
    }

    /// Files of versions that do not say whose they are.
    #[test]
    fn a_file_without_an_owner_is_the_name_s() {
        let folder = Folder::new("unowned");
        assert_eq!(folder.used("a", 1, "", b"one"), 0);
        let mut header = [0; HEADER_LEN as usize];
        File::open(path(&folder.0, Some("a"))).unwrap().read_exact_at(&mut header, 0).unwrap();
        assert_eq!(header[STAMP_AT as usize..], [0; STAMP_LEN]);
        assert_eq!(folder.used("a", 1, "first", b"one"), BLOCK);
        assert_eq!(folder.used("b", 1, "first", b"one"), 2 * BLOCK, "it is known now");
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
        log.renew(first.series, 5_000_000);
        assert_eq!(written(&mut log), (first.series, Some(Lease::after(5_000_000, BLOCK))));
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
            let leased = log.lease(&i.to_be_bytes(), 0).unwrap();
            log.end(leased.series, Some(1));
        }
        assert!(log.slots as usize <= REMEMBERED + 3 && log.entries.len() <= REMEMBERED + 3);
        assert_eq!(log.lease(&1000u64.to_be_bytes(), 0).unwrap().used, 1);
        assert_eq!(log.lease(&0u64.to_be_bytes(), 0).unwrap().used, 0);
        log.renew(kept.series, 9);
        assert!(written(&mut log).1.is_some());
        // A key that comes back again and again takes no more, and is the last to be forgotten.
        let again = 700u64.to_be_bytes();
        for _ in 0..1000 {
            let leased = log.lease(&again, 0).unwrap();
            log.end(leased.series, Some(1));
        }
        assert_eq!(log.ended.len() + 3, log.entries.len(), "three have a state");
        for i in 0..1000u64 {
            let leased = log.lease(&(1 << 40 | i).to_be_bytes(), 0).unwrap();
            log.end(leased.series, Some(1));
        }
        assert_eq!((log.lease(&again, 0).unwrap().used, log.lease(&701u64.to_be_bytes(), 0).unwrap().used), (1, 0));
    }

    #[test]
    fn a_full_disk_leases_nothing() {
        let folder = Folder::new("full");
        drop(folder.open().unwrap());
        let mut log = folder.open().unwrap();
        let one = log.lease(b"one", 0).unwrap();
        let file = File::open(path(&folder.0, Some("a"))).unwrap();
        // A file opened for reading cannot be written to.
        let whole = core::mem::replace(&mut log.sync, Arc::new(Sync::of(file)));
        assert_eq!(log.lease(b"two", 0), Err(LeaseError::Storage));
        log.renew(one.series, 4_000_000);
        log.sync.catch_up();
        assert_eq!(log.written(), [(one.series, None)]);
        log.sync = whole;
        log.renew(one.series, 4_000_000);
        assert!(log.lease(b"two", 0).is_ok() && written(&mut log).1.is_some());
    }

    /// A disk that takes its time has nobody wait but the thread that writes.
    #[test]
    fn a_disk_that_is_stuck_leases_nothing_and_stops_nobody() {
        let folder = Folder::new("stuck");
        let mut log = folder.open().unwrap();
        let [one, two] = [b"one", b"two"].map(|name| log.lease(name, 0).unwrap());
        let file = File::open(path(&folder.0, Some("a"))).unwrap();
        let end = |slot: u32| {
            let mut end = [0; 8];
            file.read_exact_at(&mut end, place(slot) + 16).unwrap();
            u64::from_le_bytes(end)
        };
        let sync = log.sync.clone();
        let stuck = sync.writing.lock();
        log.renew(one.series, 4_000_000);
        log.end(two.series, Some(7));
        assert_eq!((log.written(), end(0), end(1)), (Vec::new(), BLOCK, BLOCK));
        // What a series has used is known at once.
        assert_eq!(log.entries[&two.series].end, 7);
        drop(stuck);
        let lease = Lease::after(4_000_000, BLOCK);
        assert_eq!(written(&mut log), (one.series, Some(lease)));
        assert_eq!((end(0), end(1)), (lease.end, 7));
        // Of one slot the last thing counts.
        let stuck = sync.writing.lock();
        log.renew(one.series, 5_000_000);
        log.end(one.series, Some(5_000_001));
        drop(stuck);
        drop(log);
        assert_eq!(end(0), 5_000_001);
    }

    /// Numbers that are leased before a state is added are its own then, or nobody's.
    #[test]
    fn numbers_are_reserved() {
        let folder = Folder::new("reserved");
        let mut storage = Storage::new(folder.open().unwrap());
        let series = storage.reserve(b"one").unwrap();
        assert!(storage.reserve(b"one").is_none(), "it is reserved already");
        let leased = storage.lease(b"one", 0).unwrap();
        assert_eq!(leased, Leased { series, used: 0, lease: Lease::after(0, BLOCK) });
        assert!(storage.reserve(b"one").is_none() && storage.lease(b"one", 0) == Err(LeaseError::InUse));
        storage.release([series]);
        assert_eq!(storage.lease(b"one", 0), Err(LeaseError::InUse), "a state keeps what it has");
        // A request that has failed: nothing is skipped.
        let two = storage.reserve(b"two").unwrap();
        storage.release([two]);
        assert_eq!(storage.lease(b"two", 0).unwrap().used, 0);
        storage.end(two, Some(7));
        // One that comes with numbers of its own gets others.
        assert_eq!(storage.reserve(b"two"), Some(two));
        assert_eq!(storage.lease(b"two", 9).unwrap().used, 7 + BLOCK);
        drop(storage);
        // A crash between the two steps skips what was leased.
        let storage = Storage::new(folder.open().unwrap());
        storage.reserve(b"one").unwrap();
        drop(storage);
        assert_eq!(folder.used("a", 1, "this boot", b"one"), 2 * BLOCK);
    }

    /// While a disk is stuck in the middle of a reservation, everybody else goes on.
    #[test]
    fn a_reservation_keeps_nobody_waiting() {
        let folder = Folder::new("reserving");
        let mut storage = Storage::new(folder.open().unwrap());
        let one = storage.lease(b"one", 0).unwrap();
        let sync = storage.0.lock().sync.clone();
        let stuck = sync.writing.lock();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| storage.clone().reserve(b"two"));
            let series = loop {
                // It is nobody's until it is written down.
                let known = storage.0.lock().entries.iter().find(|(series, _)| **series != one.series).map(|(s, _)| *s);
                match known {
                    Some(series) => break series,
                    None => std::thread::yield_now(),
                }
            };
            let mut engine = storage.clone();
            assert_eq!(engine.lease(b"two", 0), Err(LeaseError::InUse));
            engine.renew(one.series, 4_000_000);
            engine.end(one.series, Some(4_000_001));
            assert!(!waits.is_finished());
            drop(stuck);
            assert_eq!(waits.join().unwrap(), Some(series));
            assert_eq!(engine.lease(b"two", 0).unwrap().series, series);
        });
        // A disk that refuses leaves things as they were.
        let file = File::open(path(&folder.0, Some("a"))).unwrap();
        let whole = core::mem::replace(&mut storage.0.lock().sync, Arc::new(Sync::of(file)));
        assert_eq!((storage.reserve(b"one"), storage.reserve(b"three")), (None, None));
        storage.0.lock().sync = whole;
        assert_eq!(storage.lease(b"one", 0).unwrap().used, 4_000_001);
        assert_eq!(storage.lease(b"three", 0).unwrap().used, 0);
    }
}
