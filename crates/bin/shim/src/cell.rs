//! What the processes that have a socket in common share of it: a lock, the list of those processes, and an image of the
//! state, as bytes (share.rs).
//!
//! A process may be killed at any instruction: of the two images the newer one counts once it is whole. What other
//! processes write here may be anything.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::limits::MEMBERS;
use crate::lock::RawLock;
use crate::{mapping, proc, sys};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use lock_api::RawMutex as _;
use zeroize::Zeroizing;

/// Bytes before the images.
const HEAD: usize = size_of::<Cell>().next_multiple_of(4096);
/// The longest image in bytes. Address space only: memory is taken when touched.
const IMAGE: usize = 16 << 20;
const CELL: usize = HEAD + 2 * IMAGE;
/// In place of a process id: a child that has not run yet.
pub(crate) const UNBORN: u32 = u32::MAX;
/// The time after which an unborn child is the trace of a fork that failed, in seconds.
const BIRTH_S: u64 = 10;
/// No place among the members.
const NOWHERE: u32 = u32::MAX;

/// A process that has the socket.
struct Member {
    /// Its id; 0: nobody, or [`UNBORN`].
    pid: AtomicU32,
    /// When it started, in clock ticks since boot; seconds of the clock for an unborn one.
    started: AtomicU64,
    /// Its operations that were accepted from this transform: all, and those without a key.
    counts: [AtomicU32; 2],
}

/// What the processes that have a socket share. Zeros are a new one.
#[repr(C)]
pub(crate) struct Cell {
    /// Held during a call.
    lock: RawLock,
    /// Changes with the image. Calls that wait sleep on it.
    changes: AtomicU32,
    /// The number of calls that wait.
    sleepers: AtomicU32,
    /// The process whose call went to sleep last.
    sleeper: AtomicU32,
    sleeper_started: AtomicU64,
    /// The number of the newest image, and its length in the lower half. Even numbers are in the first place.
    current: AtomicU64,
    members: [Member; MEMBERS],
}

impl Cell {
    fn image_at(&self, number: u32) -> *mut u8 {
        let half = (number as usize & 1) * IMAGE;
        (core::ptr::from_ref(self) as usize + HEAD + half) as *mut u8
    }

    /// New cells in one mapping, as children of this process have it, too; the first one.
    pub(crate) fn map(count: u32) -> Option<&'static Cell> {
        // SAFETY: zeros are a cell; it stays mapped while its handle lives (tie.rs).
        mapping::new(count, CELL).map(|at| unsafe { &*at.cast() })
    }

    /// Makes a cell ready to be shared once more; false where that cannot be. While no other thread is inside.
    pub(crate) fn renew(&self) -> bool {
        // After what other processes wrote made no sense, they may still have it.
        mapping::share_again(core::ptr::from_ref(self) as usize, carry)
            && self.members.iter().all(|member| member.pid.load(Relaxed) == 0)
    }

    /// Puts private memory in the place of every cell. No handle is tied. False: the kernel gives no memory.
    pub(crate) fn make_all_private() -> bool {
        mapping::make_private(carry)
    }

    /// The cell that comes as the `n`th after this one in its mapping.
    pub(crate) fn sibling(&'static self, n: usize) -> &'static Cell {
        // SAFETY: the caller has mapped as many.
        unsafe { &*((core::ptr::from_ref(self) as usize + n * CELL) as *const Cell) }
    }

    /// Locks it, for a call on the socket.
    pub(crate) fn lock(&self) {
        self.lock.lock();
    }

    /// Unlocks it.
    pub(crate) fn unlock(&self) {
        // SAFETY: every caller has taken it.
        unsafe { self.lock.unlock() }
    }

    /// The newest image's number, and a copy of the image, which nobody changes any more.
    pub(crate) fn image(&self) -> Option<(u32, Zeroizing<Vec<u8>>)> {
        let current = self.current.load(Acquire);
        let (number, len) = ((current >> 32) as u32, current as u32 as usize);
        let mut copy = Zeroizing::new(vec![0; Some(len).filter(|len| *len <= IMAGE)?]);
        // SAFETY: the image lies in the mapping; whatever is written meanwhile, bytes are read.
        unsafe { core::ptr::copy_nonoverlapping(self.image_at(number), copy.as_mut_ptr(), len) };
        Some((number, copy))
    }

    /// Makes `image` the newest, unless it is; its number.
    pub(crate) fn put(&self, image: &[u8]) -> Option<u32> {
        let current = self.current.load(Acquire);
        let (number, len) = ((current >> 32) as u32, current as u32 as usize);
        // SAFETY: in the mapping, and only compared.
        let same = len == image.len() && unsafe { core::slice::from_raw_parts(self.image_at(number), len) } == image;
        if same {
            return Some(number);
        }
        let next = match number.wrapping_add(1) {
            // 0 is no image.
            0 => 2,
            next => next,
        };
        Some(image.len()).filter(|len| *len <= IMAGE)?;
        // SAFETY: both images lie in the mapping, and the caller has locked it.
        unsafe {
            core::ptr::copy_nonoverlapping(image.as_ptr(), self.image_at(next), image.len());
            self.current.store(u64::from(next) << 32 | image.len() as u64, Release);
            if next & 1 != number & 1 {
                core::ptr::write_bytes(self.image_at(number), 0, len.min(IMAGE));
            }
        }
        self.tell();
        Some(next)
    }

    /// Wipes the newest image, which nobody else reads any more, and gives the memory of both back.
    pub(crate) fn wipe(&self) {
        let current = self.current.load(Acquire);
        let (number, len) = ((current >> 32) as u32, current as u32 as usize);
        // SAFETY: in the mapping.
        unsafe { core::ptr::write_bytes(self.image_at(number), 0, len.min(IMAGE)) };
        sys::discard_shared(self.image_at(0) as usize, 2 * IMAGE);
    }

    /// The number of the newest image; 0 before the first.
    pub(crate) fn number(&self) -> u32 {
        (self.current.load(Acquire) >> 32) as u32
    }

    /// The word that changes with the image.
    pub(crate) fn changes(&self) -> &AtomicU32 {
        &self.changes
    }

    /// Notes that a call of this process waits.
    pub(crate) fn fall_asleep(&self) {
        self.sleepers.fetch_add(1, SeqCst);
        let pid = sys::getpid();
        self.sleeper.store(pid, Relaxed);
        self.sleeper_started.store(proc::started(pid).unwrap_or(0), Relaxed);
    }

    /// Notes that it waits no longer.
    pub(crate) fn wake_up(&self) {
        self.sleepers.fetch_sub(1, SeqCst);
    }

    /// Whether the process is gone whose call went to sleep last.
    pub(crate) fn is_sleeper_gone(&self) -> bool {
        is_gone(self.sleeper.load(Relaxed), self.sleeper_started.load(Relaxed), self)
    }

    /// Begins a new count of them.
    pub(crate) fn forget_sleepers(&self) {
        self.sleepers.store(0, SeqCst);
    }

    /// Wakes the calls that wait.
    fn tell(&self) {
        self.changes.fetch_add(1, SeqCst);
        if self.sleepers.load(SeqCst) != 0 {
            sys::futex_wake(&self.changes, i32::MAX);
        }
    }

    /// Wakes the calls that wait, whatever other processes say about their number.
    pub(crate) fn tell_all(&self) {
        self.changes.fetch_add(1, SeqCst);
        sys::futex_wake(&self.changes, i32::MAX);
    }

    /// The operations of one member.
    pub(crate) fn counts(&self, place: u32) -> [u32; 2] {
        let member = self.members.get(place as usize);
        member.map_or([0, 0], |member| [member.counts[0].load(Relaxed), member.counts[1].load(Relaxed)])
    }

    /// Notes the operations of one member.
    pub(crate) fn count(&self, place: u32, counts: [u32; 2]) {
        if let Some(member) = self.members.get(place as usize) {
            member.counts.iter().zip(counts).for_each(|(to, n)| to.store(n, Relaxed));
        }
    }

    /// Gives a place to the child that it was taken for. Called with the lock held.
    pub(crate) fn be_born(&self, place: u32, pid: u32, started: u64) {
        if let Some(member) = self.members.get(place as usize) {
            member.started.store(started, Relaxed);
            member.pid.store(pid, Release);
        }
    }

    /// Gives a place up.
    pub(crate) fn unjoin(&self, place: u32) {
        if let Some(member) = self.members.get(place as usize) {
            member.set(0, 0, [0, 0]);
        }
    }

    /// The operations of the others.
    pub(crate) fn others(&self, own: u32) -> [u32; 2] {
        let mut sums = [0u32; 2];
        for (place, member) in (0..).zip(&self.members) {
            if place != own && member.pid.load(Relaxed) != 0 {
                sums.iter_mut().zip(&member.counts).for_each(|(sum, n)| *sum = sum.wrapping_add(n.load(Relaxed)));
            }
        }
        sums
    }

    /// Takes a place for `pid`; called with the lock held.
    pub(crate) fn join(&self, pid: u32, started: u64, counts: [u32; 2]) -> u32 {
        let Some((place, member)) = (0..).zip(&self.members).find(|(_, member)| member.pid.load(Relaxed) == 0) else {
            return NOWHERE;
        };
        member.set(pid, started, counts);
        place
    }

    /// Strikes members that are gone off; whether there were any. Called with the lock held.
    pub(crate) fn sweep(&self, own: u32) -> bool {
        let mut any = false;
        for (place, member) in (0..).zip(&self.members) {
            let pid = member.pid.load(Relaxed);
            if place != own && pid != 0 && is_gone(pid, member.started.load(Relaxed), self) {
                member.set(0, 0, [0, 0]);
                any = true;
            }
        }
        any
    }

    /// Whether no other process has it.
    pub(crate) fn is_alone(&self, own: u32) -> bool {
        own != NOWHERE && (0..).zip(&self.members).all(|(place, m)| place == own || m.pid.load(Relaxed) == 0)
    }
}

impl Member {
    fn set(&self, pid: u32, started: u64, counts: [u32; 2]) {
        self.started.store(started, Relaxed);
        self.counts.iter().zip(counts).for_each(|(to, n)| to.store(n, Relaxed));
        self.pid.store(pid, Release);
    }
}

/// Copies the part of a cell that stays when its memory is replaced: the word on which calls may be about to sleep, and how many will say that
/// they wait no longer.
fn carry(from: usize, to: usize) {
    // SAFETY: both are mapped, and zeros are a cell.
    let (from, to) = unsafe { (&*(from as *const Cell), &*(to as *const Cell)) };
    to.changes.store(from.changes.load(SeqCst), SeqCst);
    to.sleepers.store(from.sleepers.load(SeqCst), SeqCst);
}

/// Whether a process that had the mapping of `at` is gone, or has it no longer.
pub(crate) fn is_gone<T>(pid: u32, started: u64, at: *const T) -> bool {
    if pid == UNBORN {
        return now_s().saturating_sub(started) > BIRTH_S;
    }
    match proc::started(pid) {
        // A zombie exists for kill(2), and is not gone while its parent waits for us. Without /proc, or for a process that
        // /proc hides from us, only a missing one is gone.
        None => !sys::alive(pid) || (sys::may_signal(pid) && proc::started(sys::getpid()).is_some()),
        Some(t) => (started != 0 && t != started) || !mapping::has(pid, at as usize),
    }
}

/// Seconds of the monotonic clock.
pub(crate) fn now_s() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64
}
