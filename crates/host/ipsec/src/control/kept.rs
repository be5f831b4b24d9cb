//! Policies and states of a network namespace in journals, from which the next daemon takes them: after a crash, a stop
//! or an upgrade they are in force as before, and only their own removal takes them away.
//!
//! Policies are in a file of the runtime folder, which holds no secret and outlives everything but the boot. States
//! hold keys, and are in a file of memory that a [`Keeper`] keeps. States are taken over with their policies only:
//! where somebody has removed these (`sealane xfrm clear`), nobody wants the states either.

mod journals;
mod records;

use journals::{Action, Done, Ours, Table};
use records::{Batch, Collector, POLICIES, STATES, decode};
use sealane_abi::Errno;
use sealane_abi::xfrm::UserOffload;
use sealane_engine_xfrm::{Now, Xfrm};
use sealane_handover::progress::Progress;
use sealane_handover::{Journal, Keeper, RulesOwner};
use sealane_net_ipsec::progress::Progress as Noted;
use sealane_sys::clock::boot_ns;
use sealane_sys::link;
use sealane_sys::mapping::memory_file;
use sealane_sys::marks::Bits;
use sealane_sys::netns::Netns;
use sealane_sys::presence::boot;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{debug, error, warn};
use zeroize::Zeroizing;

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
    phase: Phase,
    /// Policies and states of before whose devices are not there yet.
    waiting: Vec<Waiting>,
    /// The journal of states of the daemon before, in use again or not, until the first batch of ours is written.
    before: Option<File>,
    /// Makes a file of memory.
    memory: fn(&str) -> io::Result<File>,
}

/// The owner of the journals.
#[expect(clippy::large_enum_variant, reason = "a namespace has one")]
enum Phase {
    /// The daemon before.
    Before,
    /// This one: from [`Kept::begin`] on.
    Open { policies: Ours<Journal>, states: Ours<States> },
    /// The next daemon, or nobody.
    Ended,
}

struct States {
    journal: Journal,
    progress: Progress,
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
            phase: Phase::Before,
            waiting: Vec::new(),
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
        matches!(self.phase, Phase::Open { .. })
    }

    /// Begins new journals in the place of those of before: what is [collected](Kept::collect) next is all that the
    /// engine has. Nobody is waited for, because the engine is locked.
    pub(crate) fn begin(&mut self, xfrm: &mut Xfrm) {
        if matches!(self.phase, Phase::Before) {
            self.phase = Phase::Open { policies: Ours::none(Table::Policies), states: Ours::none(Table::States) };
            xfrm.start_recording();
        }
    }

    /// Collects the changes of an engine since the last time. A journal that is not there, or not any more, is begun: that of states
    /// when there is something new to record.
    pub(crate) fn collect(&mut self, xfrm: &mut Xfrm) -> Batch {
        let mut batch = Batch::default();
        let Phase::Open { policies, states } = &mut self.phase else { return batch };
        // Where there is none of policies, every call tries again: nothing else may ever change.
        if xfrm.has_changes() || policies.get().is_none() {
            if policies.on_change() == Action::Begin {
                let file = &self.policies;
                let begun = begin_policies(file).or_else(|_| {
                    // The one of before does not say any more what is in force, and takes the room of ours.
                    remove_policies(file);
                    begin_policies(file)
                });
                let Done { action, news } = policies.begun(begun);
                if action == Action::RecordAll {
                    xfrm.start_recording();
                }
                tell_of_policies(file, news);
            }
            if states.on_change() == Action::Begin {
                let Done { action, news } = states.begun(begin_states(self.memory));
                if action == Action::RecordAll {
                    xfrm.start_recording();
                }
                tell_of_states(news);
            }
            let progress = states.get().map(|states| &states.progress);
            xfrm.record(&mut Collector::of(&mut batch, progress, &self.netns));
        }
        batch.dropped = states.get().map(|states| states.progress.take_dropped()).unwrap_or_default();
        batch
    }

    /// Writes changes, and puts journals where the next daemon finds them.
    pub(crate) fn write(&mut self, batch: Batch) {
        let Phase::Open { policies, states } = &mut self.phase else { return };
        let file = &self.policies;
        let written = policies.get_mut().map_or(Ok(()), |journal| batch.write_policies(journal));
        let Done { action, news } = policies.written(written, |_| fs::rename(file.with_extension("new"), file));
        if action == Action::GiveUp {
            // Without it the next daemon finds only the rules, which it leaves in place.
            remove_policies(file);
        }
        tell_of_policies(file, news);
        let written = states.get_mut().map_or(Ok(()), |States { journal, progress }| {
            // A record that could not be removed needs its words, which are lost then.
            batch.write_states(journal).inspect(|()| progress.free(&batch.dropped))
        });
        let Done { news, .. } = states.written(written, |states| self.keeper.put(&self.states, states.journal.file()));
        // Also if there is none of ours yet, or nobody keeps it: the windows in it are not moved on any more, so that a
        // daemon that took it would accept packets twice.
        if let Some(before) = self.before.take() {
            let _ = Journal::wipe(&before);
        }
        tell_of_states(news);
    }

    /// Leaves the journals to the next daemon: nothing that happens from now on changes them.
    pub(crate) fn leave(&mut self) {
        if let Phase::Open { states, .. } = &self.phase
            && let Some(states) = states.get()
        {
            states.progress.leave();
        }
        self.phase = Phase::Ended;
    }

    /// Removes the journals, and wipes the keys in them.
    pub(crate) fn remove(&mut self) {
        self.phase = Phase::Ended;
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

fn begin_policies(file: &Path) -> io::Result<Journal> {
    let new = file.with_extension("new");
    let new = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    Journal::create(new, POLICIES, &boot(), boot_ns())
}

/// Removes the journal of policies, so that the next daemon finds only their rules.
fn remove_policies(file: &Path) {
    let _ = fs::remove_file(file);
    let _ = fs::remove_file(file.with_extension("new"));
}

fn begin_states(memory: fn(&str) -> io::Result<File>) -> io::Result<States> {
    let file = memory("sealane-states")?;
    let progress = Progress::new(file.try_clone()?);
    let journal = Journal::create(file, STATES, &boot(), boot_ns())?;
    Ok(States { journal, progress })
}

fn tell_of_policies(file: &Path, news: Option<io::Error>) {
    if let Some(error) = news {
        let file = file.display();
        warn!(%file, %error, "xfrm: {file}: {error}: policies would not survive us, their rules would");
    }
}

fn tell_of_states(news: Option<io::Error>) {
    if let Some(error) = news {
        warn!(%error, "xfrm: nobody keeps states for the next daemon yet: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::records::encode;
    use super::*;

    fn engine() -> Xfrm {
        Xfrm::new(sealane_engine_xfrm::Setup {
            registry: Arc::new(sealane_crypto_portable::registry()),
            random: Box::new(|bytes| bytes.fill(7)),
            cpus: 1,
            numbers: None,
        })
    }

    /// A file system that takes no journal costs one attempt for each change, and none for anything else.
    #[test]
    fn a_journal_that_was_given_up_is_begun_again() {
        let folder = std::env::temp_dir().join(format!("sealane-given-up-{}", std::process::id()));
        let netns = Netns::current().unwrap();
        let mut kept = Kept::of(&folder, &netns, Arc::new(Keeper::of_folder(&folder))).unwrap();
        kept.memory = |_| Err(io::ErrorKind::OutOfMemory.into());
        let (file, new) = (kept.policies.clone(), kept.policies.with_extension("new"));
        // No file takes the place of a folder.
        fs::create_dir_all(file.join("folder")).unwrap();
        let mut xfrm = engine();
        kept.begin(&mut xfrm);
        let mut write = |xfrm: &mut Xfrm| {
            let batch = kept.collect(xfrm);
            let begun = new.exists();
            kept.write(batch);
            (begun, new.exists(), file.is_file())
        };
        for _ in 0..2 {
            assert_eq!(write(&mut xfrm), (true, false, false), "it is given up");
            assert!(!xfrm.has_changes(), "and tried again without a change");
        }
        fs::remove_dir_all(&file).unwrap();
        assert_eq!(write(&mut xfrm), (true, false, true));
        fs::remove_dir_all(&folder).unwrap();
    }

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
        let mut xfrm = engine();
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
        assert!(matches!(&kept.phase, Phase::Open { states, .. } if states.get().is_some()));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Their numbers can be leased before the engine is locked for long.
    #[test]
    fn states_that_wait_need_series() {
        let netns = Netns::current().unwrap();
        let folder = Path::new("/nonexistent");
        let mut kept = Kept::of(folder, &netns, Arc::new(Keeper::of_folder(folder))).unwrap();
        let mut xfrm = engine();
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
            let mut xfrm = engine();
            if let Some(allowed) = allowed {
                assert!(xfrm.allow_partial_macs(allowed).is_empty());
            }
            let restored = kept.restore_states(&mut xfrm, Now { monotonic_ns: 1, wall_s: 1_800_000_000 }).unwrap();
            assert_eq!((restored, xfrm.sizes().0), (wanted, wanted[0]), "{allowed:?}");
        }
    }
}
