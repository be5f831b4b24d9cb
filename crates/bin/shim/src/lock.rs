//! A mutex for memory that several processes share: one word, the owner's thread id.
//!
//! An owner that died is noticed and its lock taken over. In memory of the process alone that is a thread of the process
//! that this one was forked from; in shared memory (cell.rs) it is a process that was killed, of which nothing half done
//! is seen.

use crate::atomic::AtomicU32;
use crate::limits::SPINS;
use crate::{mapping, proc, sys, thread};
use core::sync::atomic::Ordering;

/// Set in the word while somebody sleeps on it.
const WAITERS: u32 = 1 << 31;
/// The wait after which a sleeper checks whether the owner still lives.
const SUSPICION_MS: u32 = 100;

/// The calling thread's id, remembered.
#[inline]
pub(crate) fn tid() -> u32 {
    thread::slot().tid()
}

/// Whether the thread that holds `lock` is gone: it ended, or it is a thread of the process that we were forked from.
fn is_gone(owner: u32, lock: &RawLock) -> bool {
    let at = core::ptr::from_ref(lock) as usize;
    if mapping::is_shared(at) {
        return match proc::started(owner) {
            // A zombie exists for kill(2), and is not gone while its parent waits for us. Without /proc, or for a process
            // that /proc hides from us, only a missing one is gone.
            None => !sys::alive(owner) || (sys::may_signal(owner) && proc::started(sys::getpid()).is_some()),
            Some(_) => !mapping::has(owner, at),
        };
    }
    sys::is_no_thread(owner)
}

/// The lock itself; [`lock_api::Mutex`] gives it contents.
pub(crate) struct RawLock(AtomicU32);

impl RawLock {
    #[cold]
    fn lock_slow(&self, me: u32) {
        let mut spins = SPINS;
        loop {
            let seen = self.0.load(Ordering::Relaxed);
            if seen == 0 {
                // Others may be asleep: only the one who finds the bit unset may drop it.
                if self.0.compare_exchange(0, me | WAITERS, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return;
                }
                continue;
            }
            // Entry points refuse to come here from a signal handler that interrupted a holder (entry.rs), so a lock of
            // this thread's own id belongs to a dead namesake.
            if seen & !WAITERS == me {
                if self.0.compare_exchange(seen, me | WAITERS, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return;
                }
                continue;
            }
            if spins > 0 {
                spins -= 1;
                core::hint::spin_loop();
                continue;
            }
            let marked = seen | WAITERS;
            if seen != marked && self.0.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                continue;
            }
            if sys::futex_wait(&self.0, marked, Some(SUSPICION_MS)) == Err(libc::ETIMEDOUT) {
                let gone = is_gone(marked & !WAITERS, self);
                if gone && self.0.compare_exchange(marked, me | WAITERS, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return;
                }
            }
        }
    }
}

// SAFETY: the word is zero or its owner's id, changed from zero by one compare-exchange at a time; the guard marker
// keeps guards on their thread.
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api wants a constant to start from")]
    const INIT: Self = RawLock(AtomicU32::new(0));
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        let me = tid();
        if self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow(me);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(0, tid(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.0.swap(0, Ordering::Release) & WAITERS != 0 {
            sys::futex_wake(&self.0, 1);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// A mutex in shared memory.
pub(crate) type Lock<T> = lock_api::Mutex<RawLock, T>;
