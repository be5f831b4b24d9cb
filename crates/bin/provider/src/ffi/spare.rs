//! The places of contexts that C has freed and that are used again: programs that hash many short texts make a context for each.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The number of kinds of contexts: one for each digest.
pub(super) const KINDS: usize = 14;

/// The threads that have places for each kind: the first ones to come. To the others contexts are made anew.
const THREADS: usize = 4;

/// A place for one context of one thread. Nothing is locked, and no other thread looks at the context: an exchange that all threads see
/// takes as long as a tenth of a short text, twice for each.
#[derive(Default)]
#[repr(align(64))]
struct Place {
    context: AtomicPtr<c_void>,
    /// The times that a context was taken out.
    reused: AtomicUsize,
}

/// The threads that have places, or 0: in a cache line that nobody writes after the beginning.
#[derive(Default)]
#[repr(align(64))]
struct Owners([AtomicUsize; THREADS]);

/// The places of contexts of one kind. A thread keeps its place, also after it has ended, for the next one that has its memory. A child
/// has the places of its parent's threads, and its one thread its own.
#[derive(Default)]
pub(super) struct Spare {
    owners: Owners,
    places: [Place; THREADS],
}

/// A number that no other running thread has, and not 0.
fn this_thread() -> usize {
    // SAFETY: it needs nothing.
    let id = unsafe { libc::pthread_self() };
    id as usize
}

impl Spare {
    /// This thread's place, if it has one.
    fn own(&self) -> Option<&Place> {
        let me = this_thread();
        let index = self.owners.0.iter().position(|owner| owner.load(Ordering::Relaxed) == me)?;
        Some(&self.places[index])
    }

    /// Takes this thread's context out, or null.
    pub(super) fn take(&self) -> *mut c_void {
        let Some(place) = self.own() else { return ptr::null_mut() };
        let context = place.context.load(Ordering::Relaxed);
        if !context.is_null() {
            place.context.store(ptr::null_mut(), Ordering::Relaxed);
            place.reused.store(place.reused.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        context
    }

    /// Puts a context in, which nobody else uses from then on, and returns whether there was room.
    pub(super) fn put(&self, context: *mut c_void) -> bool {
        let Some(place) = self.own().or_else(|| self.new_place()) else { return false };
        let has_room = place.context.load(Ordering::Relaxed).is_null();
        if has_room {
            place.context.store(context, Ordering::Relaxed);
        }
        has_room
    }

    #[cold]
    fn new_place(&self) -> Option<&Place> {
        let me = this_thread();
        // What a thread has left that had the same number before is seen: the memory of that thread has become this one's.
        let becomes = |owner: &AtomicUsize| {
            owner.load(Ordering::Relaxed) == 0
                && owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index = self.owners.0.iter().position(becomes)?;
        Some(&self.places[index])
    }

    /// The times that contexts were taken out, by all threads.
    fn reused(&self) -> usize {
        self.places.iter().map(|place| place.reused.load(Ordering::Relaxed)).sum()
    }

    /// Takes the contexts of all threads out.
    ///
    /// # Safety
    /// No thread uses a place any more.
    pub(super) unsafe fn drain(&self) -> impl Iterator<Item = *mut c_void> {
        self.places.iter().map(|place| place.context.swap(ptr::null_mut(), Ordering::AcqRel))
    }
}

/// The places of one load of the provider, all of whose contexts are of that load. Whoever unloads it frees them.
#[derive(Default)]
pub(crate) struct Spares(pub(super) [Spare; KINDS]);

impl Spares {
    /// The times that contexts were used again.
    pub(crate) fn reused(&self) -> usize {
        self.0.iter().map(Spare::reused).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn each_thread_gets_its_own_and_the_first_ones_have_places() {
        let (spare, barrier) = (Spare::default(), Barrier::new(THREADS + 1));
        // What is wrong is told behind the barrier: a thread that ends before it would leave the others there.
        let kept = thread::scope(|scope| {
            let work = |i: usize| {
                let mine = ptr::without_provenance_mut::<c_void>(16 * (i + 1));
                let was_empty = spare.take().is_null();
                let is_kept = spare.put(mine);
                let was_full = !spare.put(ptr::dangling_mut());
                // All are there at once, so that none has another one's number.
                barrier.wait();
                assert!(was_empty && was_full, "there is room for one");
                for _ in 0..1000 {
                    assert_eq!(spare.take(), if is_kept { mine } else { ptr::null_mut() });
                    assert_eq!(spare.put(mine), is_kept);
                }
                is_kept
            };
            let threads: Vec<_> = (0..=THREADS).map(|i| scope.spawn(move || work(i))).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
        });
        assert_eq!((kept, spare.reused()), (THREADS, 1000 * THREADS));
        // SAFETY: the threads have ended.
        let left = unsafe { spare.drain() }.filter(|context| !context.is_null()).count();
        assert_eq!(left, THREADS);
    }
}
