//! The threads of this process that use the library: whether they are inside, and in whose memory they work.
//!
//! The slots lie in memory of the process alone. Entering is one store and one look at the gate; a thread that closes the
//! gate makes sure by membarrier(2) that every other thread has seen it or is seen inside.

use crate::atomic::{AtomicPtr, AtomicU32, AtomicUsize, compiler_fence, fence, thread_local};
use crate::limits::THREADS;
use crate::sys;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// A socket's handle, whose home a thread works in. Only its address counts here.
pub(crate) type Place = core::ffi::c_void;

/// Outside of the library.
const OUTSIDE: usize = 0;
/// Inside, and in nobody's memory.
const INSIDE: usize = 1;
/// Calls of one thread that sleep, each in a handler that interrupted the one before.
const MAX_SLEEPS: usize = 4;

/// A call that sleeps, with no lock held.
struct Sleep {
    /// The socket; null for none.
    handle: AtomicPtr<Place>,
    /// The word that it sleeps on.
    word: AtomicPtr<AtomicU32>,
}

/// One thread.
#[repr(align(128))]
pub(crate) struct Slot {
    /// Its id; 0: nobody's.
    tid: AtomicU32,
    /// [`OUTSIDE`], [`INSIDE`], or the address of the handle in whose home it works.
    state: AtomicUsize,
    depth: AtomicU32,
    sleeps: [Sleep; MAX_SLEEPS],
    /// The cell of a transform that the call of this thread has locked beside its socket's (share.rs). Only its address
    /// counts here.
    leaning: AtomicPtr<Place>,
}

impl Slot {
    const fn new() -> Self {
        Slot {
            tid: AtomicU32::new(0),
            state: AtomicUsize::new(OUTSIDE),
            depth: AtomicU32::new(0),
            sleeps: [const {
                Sleep { handle: AtomicPtr::new(core::ptr::null_mut()), word: AtomicPtr::new(core::ptr::null_mut()) }
            }; MAX_SLEEPS],
            leaning: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Notes the cell that the call has locked beside its socket's.
    pub(crate) fn lean_on(&self, cell: *const Place) {
        self.leaning.store(cell.cast_mut(), Relaxed);
    }

    /// Forgets that cell; null if there is none.
    pub(crate) fn lean_off(&self) -> *const Place {
        self.leaning.swap(core::ptr::null_mut(), Relaxed)
    }

    /// The thread's id.
    #[inline]
    pub(crate) fn tid(&self) -> u32 {
        self.tid.load(Relaxed)
    }

    /// Whether the thread is between our locks, where a signal handler may have interrupted it.
    pub(crate) fn is_inside(&self) -> bool {
        self.state.load(Relaxed) != OUTSIDE
    }

    /// Enters; false from within.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        if self.is_inside() {
            return false;
        }
        self.pass_gate(INSIDE);
        true
    }

    #[inline]
    fn pass_gate(&self, state: usize) {
        self.state.store(state, Relaxed);
        // The gate closes with a membarrier on the other side, which stands for the fence that this lacks.
        compiler_fence(SeqCst);
        if GATE.load(Acquire) != OPEN {
            self.wait_outside(state);
        }
    }

    #[cold]
    fn wait_outside(&self, state: usize) {
        loop {
            self.state.store(OUTSIDE, Release);
            match GATE.load(Acquire) {
                OPEN => {}
                DUE => do_due(),
                closed => {
                    let _ = sys::futex_wait(&GATE, closed, Some(10));
                }
            }
            self.state.store(state, SeqCst);
            if GATE.load(SeqCst) == OPEN {
                return;
            }
        }
    }

    /// Leaves.
    #[inline]
    pub(crate) fn leave(&self) {
        self.state.store(OUTSIDE, Release);
    }
}

/// Slots, and where there are more of them.
struct Chunk {
    slots: [Slot; THREADS],
    next: AtomicPtr<Chunk>,
}

static FIRST: Chunk = Chunk { slots: [const { Slot::new() }; THREADS], next: AtomicPtr::new(core::ptr::null_mut()) };

const OPEN: u32 = 0;
/// Nobody enters before [`WORK`] has been done.
const DUE: u32 = 1;
const CLOSED: u32 = 2;
static GATE: AtomicU32 = AtomicU32::new(OPEN);

thread_local! {
    static SLOT: core::cell::Cell<*const Slot> = const { core::cell::Cell::new(core::ptr::null()) };
}

/// The calling thread's slot.
#[inline]
pub(crate) fn slot() -> &'static Slot {
    // SAFETY: slots live as long as the process.
    unsafe { SLOT.get().as_ref() }.unwrap_or_else(claim)
}

/// The handle in whose home the calling thread works.
#[inline]
pub(crate) fn place() -> Option<*mut Place> {
    // SAFETY: slots live as long as the process.
    let state = unsafe { SLOT.get().as_ref() }?.state.load(Relaxed);
    (state > INSIDE).then_some(state as *mut Place)
}

fn all() -> impl Iterator<Item = &'static Slot> {
    // SAFETY: chunks live as long as the process.
    core::iter::successors(Some(&FIRST), |chunk| unsafe { chunk.next.load(Acquire).as_ref() }).flat_map(|c| &c.slots)
}

#[cold]
fn claim() -> &'static Slot {
    let me = sys::gettid();
    let free = |slot: &Slot| {
        let tid = slot.tid.load(Relaxed);
        let gone = tid == 0 || tid == me || sys::is_no_thread(tid);
        gone && slot.tid.compare_exchange(tid, me, Acquire, Relaxed).is_ok()
    };
    loop {
        if let Some(slot) = all().find(|slot| free(slot)) {
            slot.state.store(OUTSIDE, Relaxed);
            slot.depth.store(0, Relaxed);
            SLOT.set(slot);
            return slot;
        }
        let mut last = &FIRST;
        // SAFETY: chunks live as long as the process.
        while let Some(next) = unsafe { last.next.load(Acquire).as_ref() } {
            last = next;
        }
        let Some(chunk) = sys::map_private(size_of::<Chunk>()) else {
            sys::complain(format_args!("no memory for one more thread"));
            std::process::abort();
        };
        // Zeros are free slots.
        if last.next.compare_exchange(core::ptr::null_mut(), chunk.cast(), SeqCst, Relaxed).is_err() {
            // SAFETY: nobody has seen it.
            unsafe { sys::unmap(chunk, size_of::<Chunk>()) };
        }
    }
}

/// To be called first in the child of a fork: this thread has another id now.
pub(crate) fn renew() {
    slot().tid.store(sys::gettid(), Relaxed);
}

/// To be called in the child after a fork: there are no other threads. Calls `lost` with the handle of every call that
/// sleeps in the parent.
pub(crate) fn forget_others(mut lost: impl FnMut(*mut Place)) {
    let mine = slot();
    for other in all().filter(|slot| !core::ptr::eq(*slot, mine) && slot.tid() != 0) {
        for sleep in other.sleeps.iter().take(other.depth.load(Acquire) as usize) {
            lost(sleep.handle.load(Relaxed));
        }
        other.state.store(OUTSIDE, Relaxed);
        other.depth.store(0, Relaxed);
        other.tid.store(0, Relaxed);
    }
    reopen();
}

/// The calling thread works in a handle's home until this is dropped: what it allocates belongs to that socket.
pub(crate) struct Within(&'static Slot, usize);

/// Works in the home of `handle`, or in the commons.
#[inline]
pub(crate) fn within(handle: *mut Place) -> Within {
    let slot = slot();
    let before = slot.state.load(Relaxed);
    // A thread that is not inside allocates nothing that lasts.
    if before != OUTSIDE {
        slot.state.store(if handle.is_null() { INSIDE } else { handle as usize }, Relaxed);
    }
    Within(slot, before)
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        self.0.state.store(self.1, Relaxed);
    }
}

/// Sleeps, on `word` if there is one, with no lock of ours held that a signal handler would need: handlers may call us
/// meanwhile.
pub(crate) fn asleep<T>(word: Option<&AtomicU32>, f: impl FnOnce() -> T) -> T {
    let slot = slot();
    let state = slot.state.load(Relaxed);
    let depth = slot.depth.load(Relaxed) as usize;
    if let Some(sleep) = slot.sleeps.get(depth) {
        sleep.handle.store(if state > INSIDE { state as *mut Place } else { core::ptr::null_mut() }, Relaxed);
        sleep.word.store(word.map_or(core::ptr::null_mut(), |word| word.as_ptr().cast()), Relaxed);
    }
    slot.depth.store(depth as u32 + 1, SeqCst);
    slot.state.store(OUTSIDE, SeqCst);
    let value = f();
    slot.pass_gate(state);
    slot.depth.store(depth as u32, Release);
    value
}

/// Calls `each` with the handle and the word of every call that sleeps. The gate is closed.
pub(crate) fn sleepers(mut each: impl FnMut(*mut Place, &AtomicU32)) {
    for slot in all().filter(|slot| slot.tid() != 0) {
        for sleep in slot.sleeps.iter().take(slot.depth.load(Acquire) as usize) {
            // SAFETY: the word is in the memory of a socket that the sleeping call has borrowed, or in its cell (tie.rs).
            if let Some(word) = unsafe { sleep.word.load(Relaxed).as_ref() } {
                each(sleep.handle.load(Relaxed), word);
            }
        }
    }
}

/// A function that a signal handler left undone, for the next thread that enters; null: nothing is due.
///
/// It is stored before the gate becomes [`DUE`], and taken by whoever has closed the gate. A gate that is closed stays closed:
/// whoever opens it sees the function and leaves it at [`DUE`] ([`reopen`]).
static WORK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

#[cold]
fn do_due() {
    let mine = slot();
    exclude(mine);
    let work = WORK.swap(core::ptr::null_mut(), SeqCst);
    // Another thread may have done it.
    if !work.is_null() {
        // SAFETY: only functions of this type are stored there, by `alone`, in memory of this process alone.
        (unsafe { core::mem::transmute::<*mut (), fn()>(work) })();
    }
    admit(mine);
}

/// Runs `f` while no other thread of this process is inside; from a signal handler that interrupted this thread inside,
/// it is left to the next that enters.
pub(crate) fn alone(f: fn()) {
    let mine = slot();
    if mine.is_inside() {
        WORK.store(f as *mut (), SeqCst);
        let _ = GATE.compare_exchange(OPEN, DUE, SeqCst, Relaxed);
        return;
    }
    exclude(mine);
    f();
    admit(mine);
}

/// Enters and keeps all other threads of this process outside; false from within.
pub(crate) fn close_gate() -> bool {
    let mine = slot();
    let outside = !mine.is_inside();
    if outside {
        if GATE.load(Acquire) == DUE {
            do_due();
        }
        exclude(mine);
    }
    outside
}

/// Ends what [`close_gate`] began.
pub(crate) fn open_gate() {
    admit(slot());
}

fn exclude(mine: &Slot) {
    loop {
        mine.state.store(INSIDE, SeqCst);
        let seen = GATE.load(SeqCst);
        if seen != CLOSED && GATE.compare_exchange(seen, CLOSED, SeqCst, Relaxed).is_ok() {
            break;
        }
        mine.state.store(OUTSIDE, SeqCst);
        let _ = sys::futex_wait(&GATE, CLOSED, Some(10));
    }
    sys::barrier();
    for other in all().filter(|slot| !core::ptr::eq(*slot, mine) && slot.tid() != 0) {
        while other.is_inside() {
            sys::pause();
        }
    }
    fence(SeqCst);
}

fn admit(mine: &Slot) {
    reopen();
    sys::futex_wake(&GATE, i32::MAX);
    mine.leave();
}

/// Opens the gate, unless something has become due meanwhile.
fn reopen() {
    GATE.store(OPEN, SeqCst);
    if !WORK.load(SeqCst).is_null() {
        let _ = GATE.compare_exchange(OPEN, DUE, SeqCst, Relaxed);
    }
}
