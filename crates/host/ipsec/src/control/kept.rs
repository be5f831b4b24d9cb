//! Policies and states of a network namespace in journals, from which the next daemon takes them: after a crash, a stop
//! or an upgrade they are in force as before, and only their own removal takes them away.
//!
//! Policies are in a file of the runtime folder, which holds no secret and outlives everything but the boot. States
//! hold keys, and are in a file of memory that a [`Keeper`] keeps. States are taken over with their policies only:
//! where somebody has removed these (`sealane xfrm clear`), nobody wants the states either.

use sealane_abi::Errno;
use sealane_abi::xfrm::UserOffload;
use sealane_engine_xfrm::{Now, Record, Recorder, Xfrm};
use sealane_handover::progress::{Entry, Progress};
use sealane_handover::{Journal, Keeper, RulesOwner};
use sealane_net::ipsec::progress::{Progress as Noted, Words};
use sealane_sys::clock::boot_ns;
use sealane_sys::link;
use sealane_sys::mapping::memory_file;
use sealane_sys::marks::Bits;
use sealane_sys::netns::Netns;
use sealane_sys::presence::boot;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tracing::{debug, error, warn};
use zeroize::Zeroizing;

const POLICIES: &str = "ipsec policies 2";
const STATES: &str = "ipsec states 1";

/// The journals of one namespace.
pub(crate) struct Kept {
    netns: Netns,
    policies: PathBuf,
    /// The name of the file of states.
    states: String,
    rules: RulesOwner,
    /// The file with the mark of programs' sockets that no policy covers.
    mark: PathBuf,
    keeper: Arc<Keeper>,
    /// The journals that are written: from [`Kept::begin`] on.
    open: Option<Open>,
    /// Whether they are the next daemon's, or nobody's.
    ended: bool,
    /// Policies and states of before whose devices are not there yet.
    waiting: Vec<Waiting>,
    /// Whether a write has failed, which is told once.
    failed: bool,
    /// Whether nobody could be found who keeps states, which is told once, too.
    is_unkept: bool,
    /// The journal of states of the daemon before, in use again or not, between [`Kept::restore`] and [`Kept::begin`].
    before: Option<File>,
    /// Makes a file of memory.
    memory: fn(&str) -> io::Result<File>,
}

struct Open {
    /// `None` after a write has failed.
    policies: Option<Journal>,
    /// Whether the journal of policies is not yet in its place.
    is_new: bool,
    /// `None` where there was no memory or descriptor for it so far.
    states: Option<States>,
    /// The journal of states of the daemon before, until ours is in its place.
    before: Option<File>,
}

struct States {
    journal: Journal,
    progress: Progress,
    /// Whether somebody keeps it for the next daemon.
    is_kept: bool,
}

/// A state or policy that waits for its device.
struct Waiting {
    device: String,
    flags: u8,
    request: Zeroizing<Vec<u8>>,
    /// The progress of a state; `None` for a policy.
    state: Option<Option<Noted>>,
}

/// The result of reading the journals of the daemon before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restored {
    /// There were none of this boot.
    Nothing,
    /// All policies, and the states that could be read.
    All,
    /// The policies could not be read: nobody knows what they covered.
    Damaged,
}

/// Changes to write, collected while the engine is locked.
#[derive(Default)]
pub(crate) struct Batch {
    puts: Vec<(Table, u64, Zeroizing<Vec<u8>>)>,
    removals: Vec<(Table, u64)>,
    /// Entries of progress that no state uses any more: their records are gone, or go with this batch.
    dropped: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    Policies,
    States,
}

/// An entry of progress as the engine uses it.
struct EntryWords(Entry);

impl Words for EntryWords {
    fn index(&self) -> u32 {
        self.0.index()
    }

    fn words(&self) -> &[AtomicU64; 8] {
        self.0.words()
    }
}

/// Collects the changes of an engine.
pub(crate) struct Collector<'a> {
    batch: &'a mut Batch,
    progress: Option<&'a Progress>,
    netns: &'a Netns,
    /// Names of devices that were looked up.
    names: HashMap<i32, Option<String>>,
}

impl Collector<'_> {
    fn record(&mut self, record: &Record<'_>) -> Zeroizing<Vec<u8>> {
        let netns = self.netns;
        let device = record.device.map(|of| {
            let name = self.names.entry(of.ifindex).or_insert_with(|| {
                let index = u32::try_from(of.ifindex).ok()?;
                netns.run(|| link::name(index)).ok()
            });
            (name.clone().unwrap_or_default(), of.flags)
        });
        encode(device.as_ref().map(|(name, flags)| (&**name, *flags)), record.progress, record.request)
    }
}

impl Recorder for Collector<'_> {
    fn words(&mut self) -> Option<Arc<dyn Words>> {
        let entry = self.progress?.take().inspect_err(|e| debug!(error = %e, "xfrm: no memory for progress: {e}"));
        Some(Arc::new(EntryWords(entry.ok()?)))
    }

    fn put_state(&mut self, key: u64, record: &Record<'_>) {
        let record = self.record(record);
        self.batch.puts.push((Table::States, key, record));
    }

    fn remove_state(&mut self, key: u64) {
        self.batch.removals.push((Table::States, key));
    }

    fn put_policy(&mut self, key: u64, record: &Record<'_>) {
        let record = self.record(record);
        self.batch.puts.push((Table::Policies, key, record));
    }

    fn remove_policy(&mut self, key: u64) {
        self.batch.removals.push((Table::Policies, key));
    }
}

/// A record of a journal: device (length of its name, name, flags), number of the progress, request.
fn encode(device: Option<(&str, u8)>, progress: Option<u32>, request: &[u8]) -> Zeroizing<Vec<u8>> {
    let (name, flags) = device.unwrap_or_default();
    let name = &name.as_bytes()[..name.len().min(u8::MAX.into())];
    let mut bytes = Zeroizing::new(Vec::with_capacity(7 + name.len() + request.len()));
    bytes.extend_from_slice(&[u8::from(device.is_some()), name.len() as u8]);
    bytes.extend_from_slice(name);
    bytes.push(flags);
    bytes.extend_from_slice(&progress.unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(request);
    bytes
}

/// A record as it was encoded.
#[derive(Debug, PartialEq, Eq)]
struct Decoded<'a> {
    device: Option<(&'a str, u8)>,
    progress: Option<u32>,
    request: &'a [u8],
}

fn decode(bytes: &[u8]) -> Option<Decoded<'_>> {
    let ([has_device, len], rest) = bytes.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    let ([flags], rest) = rest.split_first_chunk()?;
    let (progress, request) = rest.split_first_chunk()?;
    let progress = Some(u32::from_le_bytes(*progress)).filter(|index| *index != u32::MAX);
    let device = match has_device {
        0 => None,
        _ => Some((core::str::from_utf8(name).ok()?, *flags)),
    };
    Some(Decoded { device, progress, request })
}

impl Kept {
    /// The journals of this namespace, which need not exist.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn of(folder: &Path, netns: &Netns, keeper: Arc<Keeper>) -> io::Result<Self> {
        let cookie = netns.cookie()?;
        Ok(Kept {
            netns: netns.try_clone()?,
            policies: folder.join(format!("policies.{cookie}")),
            states: format!("ipsec.{cookie}"),
            rules: RulesOwner::new(keeper.clone(), "ipsec", cookie),
            mark: folder.join(format!("mark.{cookie}")),
            keeper,
            open: None,
            ended: false,
            waiting: Vec::new(),
            failed: false,
            is_unkept: false,
            before: None,
            memory: memory_file,
        })
    }

    /// Adds the policies and states of before to an engine without any. Those of devices wait until
    /// [`Kept::restore_devices`]; traffic of such a policy is covered by it without the device meanwhile.
    pub(crate) fn restore(&mut self, xfrm: &mut Xfrm, now: Now) -> Restored {
        let taken = self.keeper.take(&self.states).map(|before| self.before = before);
        match self.restore_policies(xfrm, now) {
            Ok(None) => return Restored::Nothing,
            Ok(Some(policies)) => debug!(policies, "xfrm: the policies of before are in force"),
            Err(e) => {
                let file = self.policies.display();
                error!(%file, error = %e, "xfrm: {file}: {e}; the rules of before stay until new policies come");
                return Restored::Damaged;
            }
        }
        match taken.and_then(|()| self.restore_states(xfrm, now)) {
            Ok([0, 0]) => {}
            Ok([states, 0]) => debug!(states, "xfrm: the states of before are in force"),
            Ok([states, refused]) => {
                warn!(
                    states,
                    refused,
                    "xfrm: {refused} of {} states of before could not be made again",
                    states + refused
                );
            }
            Err(e) => error!(error = %e, "xfrm: the states of before: {e}; key managers have to make new ones"),
        }
        Restored::All
    }

    fn restore_policies(&mut self, xfrm: &mut Xfrm, now: Now) -> io::Result<Option<usize>> {
        let file = match File::open(&self.policies) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let Some(read) = Journal::read(&file, POLICIES, &boot())? else { return Ok(None) };
        let refused = || io::Error::new(io::ErrorKind::InvalidData, "a policy is refused");
        let count = read.records.len().saturating_sub(1);
        for record in read.records.into_values() {
            let decoded = decode(&record).ok_or_else(refused)?;
            // Without its device a policy protects the same packets.
            xfrm.restore_policy(decoded.request, None, now).map_err(|_| refused())?;
            if let Some((device, flags)) = decoded.device {
                let request = Zeroizing::new(decoded.request.to_vec());
                self.waiting.push(Waiting { device: device.to_owned(), flags, request, state: None });
            }
        }
        Ok(Some(count))
    }

    /// Returns how many states were added or wait, and how many were refused.
    fn restore_states(&mut self, xfrm: &mut Xfrm, now: Now) -> io::Result<[usize; 2]> {
        let mut counts = [0, 0];
        let Some(file) = &self.before else { return Ok(counts) };
        let Some(read) = Journal::read(file, STATES, &boot())? else { return Ok(counts) };
        let progress = Progress::new(file.try_clone()?);
        for record in read.records.into_values() {
            let restored = decode(&record).is_some_and(|decoded| {
                let noted = match decoded.progress.map(|index| progress.read(index)) {
                    None => None,
                    Some(Ok(words)) => Some(Noted::of(words)),
                    // Without it packets could be accepted twice.
                    Some(Err(_)) => return false,
                };
                if let Some((device, flags)) = decoded.device {
                    let request = Zeroizing::new(decoded.request.to_vec());
                    self.waiting.push(Waiting { device: device.to_owned(), flags, request, state: Some(noted) });
                    return true;
                }
                let done = xfrm.restore_state(decoded.request, None, noted, now);
                done.inspect_err(|errno| debug!(?errno, "xfrm: a state of before is refused")).is_ok()
            });
            counts[usize::from(!restored)] += 1;
        }
        Ok(counts)
    }

    /// The identities of the series of the states that wait for their devices ([`Xfrm::series_of`]).
    pub(crate) fn series_of_waiting(&self, xfrm: &mut Xfrm) -> Vec<Zeroizing<Vec<u8>>> {
        let states = self.waiting.iter().filter(|waiting| waiting.state.is_some());
        states.flat_map(|waiting| xfrm.series_of(&waiting.request)).collect()
    }

    /// Makes policies and states of before again whose devices have waited. Without its device a state is forgotten, and a
    /// policy is behind all others, as when a device goes down.
    pub(crate) fn restore_devices(&mut self, xfrm: &mut Xfrm, now: Now) {
        for waiting in core::mem::take(&mut self.waiting) {
            let Waiting { device, flags, request, state } = waiting;
            let index = self.netns.run(|| link::index(&device));
            let done = index.map_err(|_| Errno::ENODEV).and_then(|index| {
                let device = Some(UserOffload { ifindex: index as i32, flags, ..UserOffload::default() });
                match state {
                    Some(noted) => xfrm.restore_state(&request, device, noted, now),
                    None => xfrm.restore_policy(&request, device, now),
                }
            });
            if let Err(errno) = done {
                match state {
                    // It had lost its device before.
                    None if device.is_empty() => xfrm.restore_orphan(&request),
                    Some(_) => warn!(device, ?errno, "xfrm: {device}: a state of before is refused: {errno:?}"),
                    None => {
                        warn!(device, ?errno, "xfrm: {device}: {errno:?}: traffic of a policy of before is dropped");
                        xfrm.restore_orphan(&request);
                    }
                }
            }
        }
    }

    /// The mark of programs' sockets that no policy covers. Sockets have it when a daemon ends, so that the next one goes on
    /// with it; it is a new one after a boot.
    pub(crate) fn programs_mark(&self) -> u32 {
        let text = fs::read_to_string(&self.mark).unwrap_or_default();
        if let Some((boot_id, mark)) = text.trim().split_once(' ')
            && boot_id == boot()
            && let Ok(mark) = mark.parse()
            && Bits::is_drawn(mark)
        {
            return mark;
        }
        let mark = Bits::draw();
        if let Err(e) = self.write_mark(mark) {
            let file = self.mark.display();
            warn!(%file, error = %e, "xfrm: {file}: {e}: after a restart policies would cover the sockets of key managers");
        }
        mark
    }

    fn write_mark(&self, mark: u32) -> io::Result<()> {
        let new = self.mark.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{} {mark}", boot())?;
        fs::rename(&new, &self.mark)
    }

    /// The place of the socket that owns the rules.
    pub(crate) fn rules_owner(&self) -> &RulesOwner {
        &self.rules
    }

    /// Whether changes are written.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Begins new journals in the place of those of before: what is [collected](Kept::collect) next is all that the
    /// engine has. Nobody is waited for, because the engine is locked.
    pub(crate) fn begin(&mut self, xfrm: &mut Xfrm) {
        if self.ended {
            return;
        }
        self.open = Some(Open { policies: None, is_new: true, states: None, before: self.before.take() });
        xfrm.start_recording();
    }

    /// Gives a new journal of states to the keeper: from here on the next daemon finds them, whole and all at once.
    fn keep_states(&mut self) {
        let Some(Open { states, before, .. }) = &mut self.open else { return };
        let put = states
            .as_ref()
            .filter(|states| !states.is_kept)
            .map(|states| self.keeper.put(&self.states, states.journal.file()));
        // Also if there is none of ours yet, or nobody keeps it: the windows in it are not moved on any more, so that a
        // daemon that took it would accept packets twice.
        if let Some(before) = before.take() {
            let _ = Journal::wipe(&before);
        }
        let (Some(put), Some(states)) = (put, states) else { return };
        match put {
            Ok(()) => (states.is_kept, self.is_unkept) = (true, false),
            Err(e) => self.told_unkept(&e),
        }
    }

    fn told_unkept(&mut self, error: &io::Error) {
        if !core::mem::replace(&mut self.is_unkept, true) {
            warn!(%error, "xfrm: nobody keeps states for the next daemon yet: {error}");
        }
    }

    fn begin_policies(&self) -> io::Result<Journal> {
        let new = self.policies.with_extension("new");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        Journal::create(file, POLICIES, &boot(), boot_ns())
    }

    fn begin_states(&self) -> io::Result<States> {
        let file = (self.memory)("sealane-states")?;
        let progress = Progress::new(file.try_clone()?);
        let journal = Journal::create(file, STATES, &boot(), boot_ns())?;
        Ok(States { journal, progress, is_kept: false })
    }

    /// Collects the changes of an engine since the last time.
    pub(crate) fn collect(&mut self, xfrm: &mut Xfrm) -> Batch {
        let mut batch = Batch::default();
        let is_new = self.open.as_ref().is_some_and(|open| open.is_new);
        if self.open.is_some() && (is_new || xfrm.has_changes()) {
            self.begin_again(xfrm);
        }
        if let Some(open) = &self.open
            && xfrm.has_changes()
        {
            let progress = open.states.as_ref().map(|states| &states.progress);
            let names = HashMap::new();
            xfrm.record(&mut Collector { batch: &mut batch, progress, netns: &self.netns, names });
        }
        if let Some(Open { states: Some(states), .. }) = &self.open {
            batch.dropped = states.progress.take_dropped();
        }
        batch
    }

    /// Begins the journals that are not there, or not any more. What fails is tried again with the next change.
    fn begin_again(&mut self, xfrm: &mut Xfrm) {
        let Some(open) = &self.open else { return };
        let (lacks_policies, lacks_states) = (open.policies.is_none(), open.states.is_none());
        let policies = lacks_policies.then(|| {
            self.begin_policies().or_else(|_| {
                // The one of before does not say any more what is in force, and takes the room of ours.
                self.remove_policies();
                self.begin_policies()
            })
        });
        let states = lacks_states.then(|| self.begin_states());
        let Some(open) = &mut self.open else { return };
        let mut failed = (None, None);
        match policies {
            Some(Ok(journal)) => {
                (open.policies, open.is_new) = (Some(journal), true);
                xfrm.start_recording();
            }
            Some(Err(e)) => failed.0 = Some(e),
            None => {}
        }
        match states {
            Some(Ok(states)) => {
                open.states = Some(states);
                xfrm.start_recording();
            }
            Some(Err(e)) => failed.1 = Some(e),
            None => {}
        }
        failed.0.iter().for_each(|e| self.told(e));
        failed.1.iter().for_each(|e| self.told_unkept(e));
    }

    /// Writes changes. What fails is told, and the journal is given up: it would not say what is in force.
    pub(crate) fn write(&mut self, batch: Batch) {
        let Some(open) = &mut self.open else { return };
        let Open { policies, states, is_new, .. } = open;
        let (mut states, progress) = states.as_mut().map(|states| (&mut states.journal, &states.progress)).unzip();
        let (mut failed, mut is_whole) = (None, true);
        let mut each = |table, change: &mut dyn FnMut(&mut Journal) -> io::Result<()>| {
            match table {
                Table::Policies if failed.is_none() => failed = policies.as_mut().and_then(|p| change(p).err()),
                Table::Policies => {}
                Table::States => {
                    if let Some(Err(e)) = states.as_deref_mut().map(change) {
                        // The next daemon lacks this state: packets of its peer are dropped then.
                        is_whole = false;
                        warn!(error = %e, "xfrm: a state would not survive us: {e}");
                    }
                }
            }
        };
        for (table, key, record) in &batch.puts {
            each(*table, &mut |journal| journal.put(*key, record));
        }
        for (table, key) in &batch.removals {
            each(*table, &mut |journal| journal.remove(*key));
        }
        // A record that could not be removed needs its words, which are lost then.
        if let Some(progress) = progress.filter(|_| is_whole) {
            progress.free(&batch.dropped);
        }
        let failed = failed.or_else(|| {
            let placed = *is_new && policies.is_some();
            let new = self.policies.with_extension("new");
            placed.then(|| fs::rename(&new, &self.policies).inspect(|()| *is_new = false).err()).flatten()
        });
        match failed {
            Some(e) => self.give_up(&e),
            None => self.failed = false,
        }
        self.keep_states();
    }

    fn told(&mut self, error: &io::Error) {
        if !core::mem::replace(&mut self.failed, true) {
            let file = self.policies.display();
            warn!(%file, %error, "xfrm: {file}: {error}: policies would not survive us, their rules would");
        }
    }

    /// Without a journal of policies the next daemon finds only the rules, which it leaves in place.
    fn give_up(&mut self, error: &io::Error) {
        self.told(error);
        if let Some(open) = &mut self.open {
            open.policies = None;
        }
        self.remove_policies();
    }

    /// Removes the journal of policies, so that the next daemon finds only their rules.
    fn remove_policies(&self) {
        let _ = fs::remove_file(&self.policies);
        let _ = fs::remove_file(self.policies.with_extension("new"));
    }

    /// Leaves the journals to the next daemon: nothing that happens from now on changes them.
    pub(crate) fn leave(&mut self) {
        if let Some(Open { states: Some(states), .. }) = &self.open {
            states.progress.leave();
        }
        (self.open, self.ended) = (None, true);
    }

    /// Removes the journals, and wipes the keys in them.
    pub(crate) fn remove(&mut self) {
        (self.open, self.ended) = (None, true);
        // It is no error if a file is gone already.
        let _ = fs::remove_file(&self.policies);
        let _ = fs::remove_file(&self.mark);
        let done = self.keeper.take(&self.states).and_then(|file| {
            file.map_or(Ok(()), |file| Journal::wipe(&file)).and_then(|()| self.keeper.remove(&self.states))
        });
        if let Err(e) = done {
            warn!(error = %e, "xfrm: the states that were kept for the next daemon: {e}");
        }
        self.rules.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without memory for our journal, that of before must not be there for the next daemon either.
    #[test]
    fn states_of_before_are_wiped_without_a_journal_of_ours() {
        let folder = std::env::temp_dir().join(format!("sealane-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let netns = Netns::current().unwrap();
        let mut kept = Kept::of(&folder, &netns, Arc::new(Keeper::of_folder(&folder))).unwrap();
        let file = memory_file("before").unwrap();
        let mut before = Journal::create(file.try_clone().unwrap(), STATES, &boot(), 1).unwrap();
        before.put(1, b"a state").unwrap();
        kept.memory = |_| Err(io::ErrorKind::OutOfMemory.into());
        kept.before = Some(file.try_clone().unwrap());
        let mut xfrm = Xfrm::new(sealane_engine_xfrm::Setup {
            registry: Arc::new(sealane_crypto_portable::registry()),
            random: Box::new(|bytes| bytes.fill(7)),
            cpus: 1,
            numbers: None,
        });
        kept.begin(&mut xfrm);
        assert!(
            Journal::read(&file, STATES, &boot()).is_ok_and(|read| read.is_some()),
            "not while the engine is locked"
        );
        let batch = kept.collect(&mut xfrm);
        kept.write(batch);
        assert!(Journal::read(&file, STATES, &boot()).is_err(), "it is wiped");
        // As soon as there is memory, there is a journal.
        kept.memory = memory_file;
        xfrm.start_recording();
        let batch = kept.collect(&mut xfrm);
        kept.write(batch);
        assert!(kept.open.as_ref().is_some_and(|open| open.states.is_some()));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Their numbers can be leased before the engine is locked for long.
    #[test]
    fn states_that_wait_need_series() {
        let netns = Netns::current().unwrap();
        let folder = Path::new("/nonexistent");
        let mut kept = Kept::of(folder, &netns, Arc::new(Keeper::of_folder(folder))).unwrap();
        let mut xfrm = Xfrm::new(sealane_engine_xfrm::Setup {
            registry: Arc::new(sealane_crypto_portable::registry()),
            random: Box::new(|bytes| bytes.fill(7)),
            cpus: 1,
            numbers: None,
        });
        let [a, b] = [1, 2].map(|n| std::net::Ipv4Addr::new(192, 0, 2, n).into());
        let state = crate::tests::state(a, b, 7, crate::tests::TUNNEL, false);
        let policy = crate::tests::policy(1, (a, 32), (b, 32), (a, b), crate::tests::TUNNEL);
        for (request, state) in [(&policy, None), (&state, Some(None))] {
            let request = Zeroizing::new(request.clone());
            kept.waiting.push(Waiting { device: "sealane0".to_owned(), flags: 0, request, state });
        }
        let wanted = xfrm.series_of(&state);
        assert_eq!(wanted.len(), 1);
        assert_eq!(kept.series_of_waiting(&mut xfrm), wanted);
    }

    /// Those with partial MACs come with the leave of this daemon's configuration only.
    #[test]
    fn states_of_before_need_the_leave_of_now() {
        let netns = Netns::current().unwrap();
        let folder = Path::new("/nonexistent");
        let mut kept = Kept::of(folder, &netns, Arc::new(Keeper::of_folder(folder))).unwrap();
        let file = memory_file("before").unwrap();
        let mut before = Journal::create(file.try_clone().unwrap(), STATES, &boot(), 1).unwrap();
        for (spi, mac) in [(1, "partial(cmac(aes),1/4)"), (2, "cmac(aes)")] {
            let request = crate::tests::with_mac(spi, mac);
            before.put(spi.into(), &encode(None, None, &request)).unwrap();
        }
        kept.before = Some(file);
        for (allowed, wanted) in [(None, [1, 1]), (Some(false), [1, 1]), (Some(true), [2, 0])] {
            let mut xfrm = Xfrm::new(sealane_engine_xfrm::Setup {
                registry: Arc::new(sealane_crypto_portable::registry()),
                random: Box::new(|bytes| bytes.fill(7)),
                cpus: 1,
                numbers: None,
            });
            if let Some(allowed) = allowed {
                assert!(xfrm.allow_partial_macs(allowed).is_empty());
            }
            let restored = kept.restore_states(&mut xfrm, Now { monotonic_ns: 1, wall_s: 1_800_000_000 }).unwrap();
            assert_eq!((restored, xfrm.sizes().0), (wanted, wanted[0]), "{allowed:?}");
        }
    }

    /// Daemons of other versions read these records. A change of their layout needs other versions in [`POLICIES`] and
    /// [`STATES`]. The requests in them are pinned by the engine's tests.
    #[test]
    fn records_are_as_other_versions_read_them() {
        assert_eq!((POLICIES, STATES), ("ipsec policies 2", "ipsec states 1"));
        let record = encode(Some(("sealane0", 3)), Some(0x0102_0304), b"request");
        assert_eq!(&record[..], b"\x01\x08sealane0\x03\x04\x03\x02\x01request");
        assert_eq!(&encode(None, None, b"request")[..], b"\0\0\0\xff\xff\xff\xffrequest");
    }

    #[test]
    fn a_record_is_decoded_as_it_was_encoded() {
        for (device, progress) in [(None, None), (Some(("sealane0", 3)), Some(7)), (Some(("", 0)), None)] {
            let bytes = encode(device, progress, b"request");
            assert_eq!(decode(&bytes), Some(Decoded { device, progress, request: b"request" }));
            for len in 0..bytes.len() - b"request".len() {
                assert_eq!(decode(&bytes[..len]), None, "{len} bytes");
            }
        }
    }
}
