//! The machine of the model: processes with memory of their own, memory that they share, threads, futexes.
//!
//! Every access to an atomic is a point at which another thread may run, and fails if the process has no memory there.
//! Memory is sequentially consistent.

use std::cell::{RefCell, UnsafeCell};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Addresses that [`map`] hands out: real memory of zeros, so that references to it are valid.
const ROOM: usize = 1 << 30;

/// Memory that a process has mapped.
#[derive(Clone)]
struct Region {
    start: usize,
    len: usize,
    /// The number of the memory. Two processes that share it have the same number.
    memory: u64,
    shared: bool,
}

struct Task {
    pid: u32,
    tid: u32,
}

struct Sleeper {
    word: (u64, usize),
    thread: shuttle::thread::Thread,
    woken: bool,
}

#[derive(Default)]
struct World {
    /// The contents of memory, by memory and address; other places have their first contents.
    values: HashMap<(u64, usize), u64>,
    regions: HashMap<u32, Vec<Region>>,
    tasks: HashMap<usize, Task>,
    locals: HashMap<(usize, usize), usize>,
    processes: HashSet<u32>,
    threads: HashSet<u32>,
    sleepers: HashMap<u64, Sleeper>,
    last: u64,
    /// Whether sleeps with a timeout end by themselves. Otherwise a wake-up that is lost shows as a deadlock.
    timeouts: bool,
    failure: Option<String>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
    static BASE: usize = {
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(core::ptr::null_mut(), ROOM, libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        at as usize
    };
}

fn with<T>(f: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(f)
}

impl World {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn me(&self) -> &Task {
        &self.tasks[&task()]
    }

    /// The memory and the place in it at an address of the calling process.
    fn find(&self, at: usize) -> Option<(u64, usize)> {
        let pid = self.me().pid;
        if !(base()..base() + ROOM).contains(&at) {
            return Some((u64::from(pid) << 32, at));
        }
        let region = self.regions[&pid].iter().find(|r| (r.start..r.start + r.len).contains(&at))?;
        Some((region.memory, at - region.start))
    }
}

fn base() -> usize {
    BASE.with(|base| *base)
}

fn task() -> usize {
    shuttle::current::me().into()
}

/// Another thread may run here.
pub(crate) fn step() {
    shuttle::thread::sleep(Duration::ZERO);
    if with(|w| w.failure.is_some()) {
        stop();
    }
}

/// The model ends with a deadlock, and so nothing is unwound in the middle of a call.
fn stop() -> ! {
    loop {
        shuttle::thread::park();
    }
}

/// Fails the run: something has happened that must not.
pub(crate) fn fail(what: &str) -> ! {
    with(|w| {
        let Task { pid, tid } = w.me();
        let what = format!("thread {tid} of process {pid}: {what}");
        w.failure.get_or_insert(what);
    });
    stop()
}

/// Fails unless `holds`.
pub(crate) fn must(holds: bool, what: &str) {
    if !holds {
        fail(what);
    }
}

/// The failure of the last execution, if it had one.
pub(crate) fn failure() -> Option<String> {
    with(|w| w.failure.clone())
}

/// Begins an execution: one process, whose first thread is the calling one.
pub(crate) fn begin() {
    with(|w| {
        *w = World::default();
        w.regions.insert(1, Vec::new());
        w.processes.insert(1);
        w.threads.insert(1);
        w.last = 1;
        w.tasks.insert(task(), Task { pid: 1, tid: 1 });
    });
}

/// Sleeps with a timeout end by themselves from now on.
pub(crate) fn let_time_pass() {
    with(|w| w.timeouts = true);
}

/// A thread of the calling process.
pub(crate) fn thread(f: impl FnOnce() + Send + 'static) -> shuttle::thread::JoinHandle<()> {
    let (pid, tid) = with(|w| (w.me().pid, w.number() as u32));
    with(|w| w.threads.insert(tid));
    shuttle::thread::spawn(move || {
        with(|w| w.tasks.insert(task(), Task { pid, tid }));
        f();
        with(|w| w.threads.remove(&tid));
    })
}

/// A child of the calling process, with a copy of its memory but of what is shared, and one thread.
pub(crate) fn fork(f: impl FnOnce() + Send + 'static) -> shuttle::thread::JoinHandle<()> {
    let (child, locals) = with(|w| {
        let (parent, child) = (w.me().pid, w.number() as u32);
        let (from, to) = (u64::from(parent) << 32, u64::from(child) << 32);
        let mut copies = vec![(from, to)];
        let mut regions = w.regions[&parent].clone();
        for region in regions.iter_mut().filter(|r| !r.shared) {
            let memory = w.number();
            copies.push((region.memory, memory));
            region.memory = memory;
        }
        let copied: Vec<_> = copies
            .iter()
            .flat_map(|(from, to)| {
                w.values.iter().filter(move |((m, _), _)| m == from).map(move |((_, at), value)| ((*to, *at), *value))
            })
            .collect();
        w.values.extend(copied);
        w.regions.insert(child, regions);
        w.processes.insert(child);
        w.threads.insert(child);
        let mine = task();
        let locals: Vec<_> = w.locals.iter().filter(|((t, _), _)| *t == mine).map(|((_, at), v)| (*at, *v)).collect();
        (child, locals)
    });
    shuttle::thread::spawn(move || {
        with(|w| {
            w.tasks.insert(task(), Task { pid: child, tid: child });
            w.locals.extend(locals.into_iter().map(|(at, v)| ((task(), at), v)));
        });
        f();
        with(|w| {
            w.processes.remove(&child);
            w.threads.remove(&child);
            w.regions.remove(&child);
        });
    })
}

/// The id of the calling process.
pub(crate) fn pid() -> u32 {
    with(|w| w.me().pid)
}

/// The id of the calling thread.
pub(crate) fn tid() -> u32 {
    with(|w| w.me().tid)
}

/// Whether there is a process or thread with this id.
pub(crate) fn exists(id: u32) -> bool {
    with(|w| w.processes.contains(&id) || w.threads.contains(&id))
}

/// The number of mappings that the calling process has.
pub(crate) fn mappings() -> usize {
    with(|w| w.regions[&w.me().pid].len())
}

/// Whether the calling process has memory that it would share with a child.
pub(crate) fn has_shared_memory() -> bool {
    with(|w| w.regions[&w.me().pid].iter().any(|r| r.shared))
}

/// The memory that a process has from an address on.
pub(crate) fn memory_at(id: u32, at: usize) -> Option<u64> {
    with(|w| {
        let pid = w.tasks.values().find(|t| t.tid == id).map_or(id, |t| t.pid);
        w.regions.get(&pid)?.iter().find(|r| r.start == at).map(|r| r.memory)
    })
}

/// New memory, at the lowest address where no process has any: addresses are used again as soon as possible.
pub(crate) fn map(len: usize, shared: bool) -> Option<*mut u8> {
    step();
    with(|w| {
        let taken = |at: usize| w.regions.values().flatten().find(|r| at < r.start + r.len && r.start < at + len);
        let mut at = base();
        while let Some(region) = taken(at) {
            at = region.start + region.len;
        }
        assert!(at + len <= base() + ROOM);
        let (pid, memory) = (w.me().pid, w.number());
        w.regions.get_mut(&pid)?.push(Region { start: at, len, memory, shared });
        Some(at as *mut u8)
    })
}

/// Gives memory back.
pub(crate) fn unmap(at: usize, len: usize) {
    step();
    let found = with(|w| {
        let pid = w.me().pid;
        let regions = w.regions.get_mut(&pid).expect("a process");
        let before = regions.len();
        regions.retain(|r| (r.start, r.len) != (at, len));
        before != regions.len()
    });
    must(found, "gives memory back that it does not have");
}

/// Moves memory to where other memory is.
pub(crate) fn put_in_place(new: usize, at: usize) {
    step();
    with(|w| {
        let pid = w.me().pid;
        let regions = w.regions.get_mut(&pid).expect("a process");
        regions.retain(|r| r.start != at);
        regions.iter_mut().find(|r| r.start == new).expect("new memory").start = at;
    });
}

/// Sleeps while a word is `seen`.
pub(crate) fn sleep(word: &super::atomic::AtomicU32, seen: u32, timeout: bool) -> Result<(), i32> {
    step();
    let at = core::ptr::from_ref(word) as usize;
    let Some(place) = with(|w| w.find(at)) else { fail("sleeps on a word that is not mapped") };
    if word.look() != seen {
        return Err(libc::EAGAIN);
    }
    let thread = shuttle::thread::current();
    let id = with(|w| {
        let id = w.number();
        w.sleepers.insert(id, Sleeper { word: place, thread, woken: false });
        id
    });
    for tries in 0.. {
        if with(|w| w.sleepers[&id].woken) {
            with(|w| w.sleepers.remove(&id));
            return Ok(());
        }
        if timeout && with(|w| w.timeouts) {
            if tries > 3 {
                with(|w| w.sleepers.remove(&id));
                return Err(libc::ETIMEDOUT);
            }
            shuttle::thread::yield_now();
            step();
        } else {
            shuttle::thread::park();
        }
    }
    unreachable!()
}

/// Wakes some of those who sleep on a word.
pub(crate) fn wake(word: &super::atomic::AtomicU32, count: usize) {
    step();
    let at = core::ptr::from_ref(word) as usize;
    let Some(place) = with(|w| w.find(at)) else { fail("wakes those on a word that is not mapped") };
    let threads: Vec<_> = with(|w| {
        let mut ids: Vec<_> =
            w.sleepers.iter().filter(|(_, s)| s.word == place && !s.woken).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.truncate(count);
        ids.iter()
            .map(|id| {
                let sleeper = w.sleepers.get_mut(id).expect("just seen");
                sleeper.woken = true;
                sleeper.thread.clone()
            })
            .collect()
    });
    threads.iter().for_each(shuttle::thread::Thread::unpark);
}

/// A variable with a value for each thread.
pub(crate) struct Local<T>(UnsafeCell<u8>, core::marker::PhantomData<fn(T) -> T>);

// SAFETY: its contents are elsewhere.
unsafe impl<T> Sync for Local<T> {}

impl<T> Local<*const T> {
    /// Null in each thread.
    pub(crate) const fn new() -> Self {
        Local(UnsafeCell::new(0), core::marker::PhantomData)
    }

    fn at(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    pub(crate) fn get(&self) -> *const T {
        with(|w| w.locals.get(&(task(), self.at())).copied()).unwrap_or(0) as *const T
    }

    pub(crate) fn set(&self, value: *const T) {
        with(|w| w.locals.insert((task(), self.at()), value as usize));
    }
}

/// A variable of the calling process.
pub(crate) fn read(at: usize, initial: u64) -> u64 {
    match with(|w| w.find(at).map(|place| w.values.get(&place).copied().unwrap_or(initial))) {
        Some(value) => value,
        None => fail("touches memory that is not mapped"),
    }
}

/// Changes it.
pub(crate) fn write(at: usize, value: u64) {
    if !with(|w| w.find(at).map(|place| w.values.insert(place, value)).is_some()) {
        fail("touches memory that is not mapped");
    }
}

/// The memory in which an address of the calling process lies, and the place in it.
pub(crate) fn place(at: usize) -> (u64, usize) {
    with(|w| w.find(at)).unwrap_or((0, 0))
}
