//! The memory that a process shares with its later children: states, tables, keys.
//!
//! The kernel shares an AF_ALG socket between a process and its children after fork. So must we: everything this
//! library allocates lies in one shared mapping, made at the first allocation, which is the first `socket(AF_ALG)`.
//! Before that the library allocates nothing.

use crate::handle::Handle;
use crate::lock::{Lock, RawLock};
use crate::record::Process;
use crate::sys;
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicPtr, Ordering};
use talc::source::Manual;
use zeroize::Zeroizing;

/// Sizes to try, in bytes. Address space only: memory is taken when touched.
const SIZES: [usize; 4] = [16 << 30, 1 << 30, 256 << 20, 64 << 20];

/// The header of the shared memory.
pub(crate) struct Arena {
    talc: talc::TalcLock<RawLock, Manual>,
    /// The processes that share this arena.
    pub(crate) processes: Lock<Vec<*mut Process>>,
    /// Handles without a user, for reuse. Their memory never becomes anything else (table.rs says why).
    pub(crate) spare: Lock<Vec<*mut Handle>>,
    /// Handles travelling in SCM_RIGHTS messages: (inode of the stand-in, handle).
    pub(crate) in_flight: Lock<std::collections::VecDeque<(u64, *mut Handle)>>,
    /// Payloads of `logon` keys that were added under our eyes: user space cannot read them back.
    pub(crate) logon: Lock<Vec<(i32, Zeroizing<Vec<u8>>)>>,
    /// The engine's system, shared by every socket of this family of processes; null before the first.
    pub(crate) system: AtomicPtr<sealane_engine_alg::System>,
    /// Held while the system is being made.
    pub(crate) making: Lock<()>,
}

/// Null until the first allocation.
static ARENA: AtomicPtr<Arena> = AtomicPtr::new(core::ptr::null_mut());

/// The arena, if there is one.
pub(crate) fn existing() -> Option<&'static Arena> {
    // SAFETY: published only when complete, and never taken away.
    unsafe { ARENA.load(Ordering::Acquire).as_ref() }
}

/// The arena, made now if need be; none when the kernel gives no memory.
pub(crate) fn get() -> Option<&'static Arena> {
    existing().or_else(make)
}

#[cold]
fn make() -> Option<&'static Arena> {
    let (at, len) = SIZES.iter().find_map(|&len| Some((sys::map_shared(len)?, len)))?;
    let arena = at.cast::<Arena>();
    // SAFETY: the mapping is fresh, page-aligned, writable, and larger than the header by far. The heap that talc
    // claims lies behind the header. Collections start empty and allocate only after publication.
    unsafe {
        arena.write(Arena {
            talc: talc::TalcLock::new(Manual),
            processes: Lock::new(Vec::new()),
            spare: Lock::new(Vec::new()),
            in_flight: Lock::new(std::collections::VecDeque::new()),
            logon: Lock::new(Vec::new()),
            system: AtomicPtr::new(core::ptr::null_mut()),
            making: Lock::new(()),
        });
        let header = size_of::<Arena>().next_multiple_of(64);
        (*arena).talc.lock().claim(at.add(header), len - header)?;
    }
    match ARENA.compare_exchange(core::ptr::null_mut(), arena, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just written.
        Ok(_) => Some(unsafe { &*arena }),
        Err(first) => {
            // SAFETY: nobody has seen our mapping; the winner's is complete and stays.
            unsafe {
                sys::unmap(at, len);
                Some(&*first)
            }
        }
    }
}

/// The address of the arena, by which it is recognised in another process's map.
pub(crate) fn address() -> usize {
    ARENA.load(Ordering::Relaxed) as usize
}

/// The allocator of everything in this library.
struct ArenaAllocator;

// SAFETY: talc keeps the contract of GlobalAlloc under its lock; no arena means no memory, which is a null pointer.
unsafe impl GlobalAlloc for ArenaAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        get().map_or(core::ptr::null_mut(), |a| unsafe { a.talc.alloc(layout) })
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if let Some(a) = existing() {
            // SAFETY: the caller's pointer came from here.
            unsafe { a.talc.dealloc(ptr, layout) }
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's pointer came from here.
        existing().map_or(core::ptr::null_mut(), |a| unsafe { a.talc.realloc(ptr, layout, new_size) })
    }
}

#[global_allocator]
static ALLOCATOR: ArenaAllocator = ArenaAllocator;
