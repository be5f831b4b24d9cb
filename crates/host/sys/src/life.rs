//! Signs of life of long-running threads, and the watcher that looks for threads that show none.
//!
//! A thread that is inside a wait of its own ([`wait`]) is healthy however long the wait lasts. One that is between two
//! waits has to come to the next one, or call [`beat`], before its limit. What counts is not time by a clock but the
//! number of looks at which the thread was found without progress, so that neither a machine that was suspended, nor a
//! process that was stopped as a whole, nor a thread that gets no CPU is taken for one that hangs.

use crate::process::behind_name;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The interval of looks that the limits are counted in.
pub const LOOK: Duration = Duration::from_millis(100);

/// The looks at a thread that is stopped while others run: up to 300 ms.
const STOPPED: u32 = 3;
/// The looks at a thread of packets that is blocked by nobody who works: a second. Whoever reads messages may be late.
const BLOCKED: u32 = 10;
/// The looks at a thread of packets that runs, or waits for one that works, without coming to an end: 5 s.
const LONG: u32 = 50;
/// The same for threads that serve requests: 30 s. One request may remove a million states, or write a hundred thousand
/// rules.
const VERY_LONG: u32 = 300;

/// The tasks of a thread, by which its limit is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It moves packets: nothing that it does takes long.
    Data,
    /// It serves requests.
    Control,
}

/// The signs of one thread.
struct Pulse {
    name: String,
    kind: Kind,
    /// The number of beats. It is odd while the thread waits.
    beats: AtomicU64,
    /// `/proc/self/task/TID/stat`, opened at once: later there may be no free descriptor.
    stat: Option<File>,
}

/// The threads that are watched.
static THREADS: Mutex<Vec<Arc<Pulse>>> = Mutex::new(Vec::new());

thread_local! {
    static MINE: RefCell<Option<Arc<Pulse>>> = const { RefCell::new(None) };
}

/// Runs `f` on the calling thread's signs, if it is watched.
fn with_mine(f: impl FnOnce(&Pulse)) {
    // A thread that ends waits in destructors, too: it is not watched any more.
    let _ = MINE.try_with(|mine| mine.borrow().as_deref().map(f));
}

/// The calling thread is watched until this value is dropped.
#[derive(Debug)]
pub struct Alive(());

/// Has the calling thread watched from now on.
#[must_use = "it is watched as long as the value lives"]
pub fn begin(name: &str, kind: Kind) -> Alive {
    let stat = File::open("/proc/thread-self/stat").ok();
    let pulse = Arc::new(Pulse { name: name.to_owned(), kind, beats: AtomicU64::new(0), stat });
    THREADS.lock().push(pulse.clone());
    MINE.set(Some(pulse));
    Alive(())
}

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some(mine) = MINE.take() {
            THREADS.lock().retain(|other| !Arc::ptr_eq(other, &mine));
        }
    }
}

/// Shows that the calling thread makes progress.
pub fn beat() {
    with_mine(|mine| mine.beats.store(mine.beats.load(Ordering::Relaxed) + 2, Ordering::Relaxed));
}

/// The calling thread waits for something to do until this value is dropped.
#[derive(Debug)]
pub struct Waiting(());

/// The calling thread is about to wait for something to do, as long as it takes. Waits are not nested.
#[must_use = "it waits as long as the value lives"]
pub fn wait() -> Waiting {
    with_mine(|mine| mine.beats.store((mine.beats.load(Ordering::Relaxed) + 1) | 1, Ordering::Relaxed));
    Waiting(())
}

impl Drop for Waiting {
    fn drop(&mut self) {
        with_mine(|mine| mine.beats.store((mine.beats.load(Ordering::Relaxed) | 1) + 1, Ordering::Relaxed));
    }
}

/// The kernel's view of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Task {
    /// The state as in proc(5): R, S, D, T, t and others.
    state: u8,
    /// The CPU time that it has used, in ticks of 10 ms.
    cpu: u64,
}

impl Task {
    fn of(pulse: &Pulse) -> Option<Self> {
        let mut text = [0; 512];
        let len = pulse.stat.as_ref()?.read_at(&mut text, 0).ok()?;
        Task::parse(core::str::from_utf8(text.get(..len)?).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = behind_name(text)?;
        let state = *words.next()?.as_bytes().first()?;
        let mut times = words.skip(10).map(str::parse::<u64>);
        Some(Task { state, cpu: times.next()?.ok()? + times.next()?.ok()? })
    }

    fn is_stopped(self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

/// The signs of a thread at the last looks.
struct Seen {
    pulse: Arc<Pulse>,
    beats: u64,
    cpu: u64,
    /// The looks in a row at which it was stopped, and had not run since the one before.
    stopped: u32,
    /// The looks at which it was blocked by nobody who works.
    blocked: u32,
    /// The looks at which it was found without progress for another reason.
    slow: u32,
}

/// A thread that shows no life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hung {
    /// Its name.
    pub name: String,
    /// The looks without progress.
    pub looks: u32,
    /// Its state as in proc(5), for example `S` or `t`.
    pub state: char,
}

/// Looks for threads that show no life.
#[derive(Default)]
pub struct Watcher {
    seen: Vec<Seen>,
    /// The looks in a row for which the list of threads was locked.
    missed: u32,
}

impl Watcher {
    /// Starts without having seen a thread.
    #[must_use]
    pub fn new() -> Self {
        Watcher::default()
    }

    /// Looks once at all watched threads; to be called every [`LOOK`]. Returns the first one that hangs.
    pub fn look(&mut self) -> Option<Hung> {
        let Some(threads) = THREADS.try_lock_for(LOOK).map(|threads| threads.clone()) else {
            // Registering takes no time: a thread that has the lock for longer hangs.
            self.missed += 1;
            let hung = || Hung { name: "of an unknown name".to_owned(), looks: self.missed, state: '?' };
            return (self.missed >= BLOCKED).then(hung);
        };
        self.missed = 0;
        self.seen.retain(|seen| threads.iter().any(|pulse| Arc::ptr_eq(pulse, &seen.pulse)));
        for pulse in threads {
            if !self.seen.iter().any(|seen| Arc::ptr_eq(&seen.pulse, &pulse)) {
                let beats = pulse.beats.load(Ordering::Relaxed).wrapping_sub(1);
                self.seen.push(Seen { pulse, beats, cpu: 0, stopped: 0, blocked: 0, slow: 0 });
            }
        }
        let still: Vec<(usize, Task)> = (self.seen.iter_mut().enumerate())
            .filter_map(|(at, seen)| {
                let beats = seen.pulse.beats.load(Ordering::Relaxed);
                if beats != seen.beats {
                    seen.beats = beats;
                    seen.forget();
                    return None;
                }
                Some((at, Task::of(&seen.pulse)?))
            })
            .collect();
        // A thread that is blocked may wait for a lock of one of these.
        let works = |(at, task): &(usize, Task)| {
            let seen = &self.seen[*at];
            let stays_stopped = task.is_stopped() && seen.stopped > 0 && seen.cpu == task.cpu;
            let is_working = seen.beats.is_multiple_of(2) && !stays_stopped;
            is_working && (seen.pulse.kind == Kind::Control || task.state != b'S')
        };
        let anybody_works = still.iter().any(works);
        still.into_iter().find_map(|(at, task)| self.seen[at].note(task, anybody_works))
    }
}

impl Seen {
    /// It has shown a sign.
    fn forget(&mut self) {
        (self.stopped, self.blocked, self.slow) = (0, 0, 0);
    }

    /// Notes a look at which the thread had shown no sign since the last one.
    fn note(&mut self, task: Task, anybody_works: bool) -> Option<Hung> {
        let waits = !self.beats.is_multiple_of(2);
        let ran = core::mem::replace(&mut self.cpu, task.cpu) != task.cpu;
        // One that is traced stops for a moment at each system call.
        if !task.is_stopped() || ran {
            self.slow += core::mem::take(&mut self.stopped);
        }
        match task.state {
            _ if task.is_stopped() => self.stopped += 1,
            _ if waits => self.forget(),
            // Without a CPU it cannot make progress.
            b'R' if !ran => {}
            b'S' if self.pulse.kind == Kind::Data && !anybody_works => self.blocked += 1,
            _ => self.slow += 1,
        }
        let most = if self.pulse.kind == Kind::Data { LONG } else { VERY_LONG };
        let looks = self.stopped + self.blocked + self.slow;
        let hangs = self.stopped >= STOPPED || self.blocked >= BLOCKED || looks >= most;
        hangs.then(|| Hung { name: self.pulse.name.clone(), looks, state: char::from(task.state) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: Kind, beats: u64) -> Seen {
        let pulse = Pulse { name: "one".into(), kind, beats: AtomicU64::new(beats), stat: None };
        Seen { pulse: Arc::new(pulse), beats, cpu: 0, stopped: 0, blocked: 0, slow: 0 }
    }

    /// The number of the look at which a thread is found to hang that is always in one state, and uses a tick of CPU
    /// between looks if it runs.
    fn found(kind: Kind, waits: bool, state: u8, runs: bool, anybody_works: bool) -> Option<u32> {
        let mut seen = seen(kind, u64::from(waits));
        (1..1000).find(|look| {
            let cpu = if runs { u64::from(*look) } else { 0 };
            seen.note(Task { state, cpu }, anybody_works).is_some()
        })
    }

    #[test]
    fn who_hangs_is_found_in_time() {
        use Kind::{Control, Data};
        for kind in [Data, Control] {
            assert_eq!(found(kind, true, b'S', false, false), None, "it waits for something to do");
            assert_eq!(found(kind, true, b'R', false, false), None, "it has something to do, but no CPU");
            assert_eq!(found(kind, false, b'R', false, false), None, "it gets no CPU");
            for waits in [true, false] {
                assert_eq!(found(kind, waits, b't', false, true), Some(STOPPED));
                assert_eq!(found(kind, waits, b'T', false, true), Some(STOPPED));
            }
        }
        assert_eq!(found(Data, false, b't', true, true), Some(LONG), "it is traced, and makes no progress");
        assert_eq!(found(Data, false, b'S', false, false), Some(BLOCKED), "a deadlock");
        assert_eq!(found(Data, false, b'S', false, true), Some(LONG), "a lock of a thread that works");
        assert_eq!(found(Data, false, b'D', false, false), Some(LONG), "a long call of the kernel");
        assert_eq!(found(Data, false, b'R', true, false), Some(LONG), "an endless loop");
        assert_eq!(found(Control, false, b'S', false, false), Some(VERY_LONG));
        assert_eq!(found(Control, false, b'R', true, false), Some(VERY_LONG));
    }

    #[test]
    fn one_that_is_traced_works() {
        let mut seen = seen(Kind::Data, 0);
        let states = b"tRttRttStRttR".repeat(3);
        assert!(states.iter().all(|state| seen.note(Task { state: *state, cpu: 0 }, true).is_none()));
    }

    #[test]
    fn a_line_of_the_kernel() {
        let line = "7 (a) b) t 1 7 7 0 -1 4194368 1 2 3 4 120 35 0 0 20 0 9 0 1 2 3";
        assert_eq!(Task::parse(line), Some(Task { state: b't', cpu: 155 }));
        assert_eq!(Task::parse("7 (a) b"), None);
    }

    #[test]
    fn signs_of_threads_of_this_process() {
        let (tell, told) = std::sync::mpsc::channel();
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock();
        let theirs = lock.clone();
        let thread = std::thread::spawn(move || {
            let alive = begin("blocked", Kind::Data);
            beat();
            drop(wait());
            tell.send(()).expect("it is heard");
            drop(theirs.lock());
            let _wait = wait();
            tell.send(()).expect("it is heard");
            drop(alive);
        });
        told.recv().expect("it has begun");
        let mut watcher = Watcher::new();
        let hung = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            watcher.look().filter(|hung| hung.name == "blocked")
        });
        let hung = hung.expect("it hangs");
        assert!(hung.looks >= BLOCKED && hung.state == 'S', "{hung:?}");
        drop(held);
        told.recv().expect("it goes on");
        thread.join().expect("it ends");
        watcher.look();
        assert!(watcher.seen.iter().all(|seen| seen.pulse.name != "blocked"));
    }
}
