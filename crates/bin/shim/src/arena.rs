//! The memory of this library in a process: states, tables, keys.
//!
//! Everything that the library allocates lies in one mapping, made at the first allocation, which is the first
//! `socket(AF_ALG)`. Before that the library allocates nothing. A child of fork gets a copy, as of all other memory; the
//! sockets that parent and child then both have are kept in step by share.rs.
//!
//! ```text
//! Arena: locks, lists, commons │ a PageInfo for each page │ handles, each with the home of a socket │ pages
//! ```
//!
//! Each socket has a home of its own ([`crate::home`]): the pages with its key, its state and its data. What belongs to
//! no socket (the drivers, the tables of descriptors) lies in the commons. The pages of a closed socket are wiped as a
//! whole.

use crate::handle::Handle;
use crate::home::{COMMONS, Home};
use crate::lock::{Lock, RawLock};
use crate::pages::{PAGE, PageInfo, Pages};
use crate::{sys, thread};
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use lock_api::RawMutex as _;
use sealane_guarded::Held;

/// Sizes to try, in bytes. Address space only: memory is taken when touched.
const SIZES: [usize; 4] = [16 << 30, 1 << 30, 256 << 20, 64 << 20];
/// The most handles that are remembered while they travel; beyond, the oldest is forgotten.
pub(crate) const MAX_FLYING: usize = 256;

/// A handle on its way in an SCM_RIGHTS message.
pub(crate) struct Flying {
    /// The stand-in's identity: its device and its inode.
    pub(crate) device: AtomicU64,
    pub(crate) inode: AtomicU64,
    /// Null: nothing here.
    pub(crate) handle: AtomicPtr<Handle>,
}

impl Flying {
    const fn none() -> Self {
        Flying { device: AtomicU64::new(0), inode: AtomicU64::new(0), handle: AtomicPtr::new(core::ptr::null_mut()) }
    }
}

/// The payload of a `logon` key, which user space cannot read back.
pub(crate) struct Logon {
    /// The process that added the key.
    pub(crate) pid: u32,
    pub(crate) serial: i32,
    pub(crate) payload: Held<[u8]>,
}

/// The header of the memory.
#[repr(C)]
pub(crate) struct Arena {
    /// The pages of the whole mapping, which begins with them.
    pub(crate) pages: Pages,
    /// The home of everything that belongs to no socket.
    pub(crate) commons: Home,
    /// Held while handles are taken or given back.
    pub(crate) handling: RawLock,
    /// Handles without a user, for reuse. Their memory never becomes anything else (table.rs says why).
    pub(crate) free_handle: AtomicU32,
    /// The first handle that was never used; 0 and [`COMMONS`] never are.
    pub(crate) next_handle: AtomicU32,
    /// Held while `flying` changes.
    pub(crate) boarding: RawLock,
    /// Handles travelling in SCM_RIGHTS messages.
    pub(crate) flying: [Flying; MAX_FLYING],
    /// The place in `flying` where the next one goes.
    pub(crate) next_flying: AtomicU32,
    /// Payloads of `logon` keys that were added under our eyes: user space cannot read them back.
    pub(crate) logon: Lock<Vec<Logon>>,
    /// The engine's system; null before the first socket.
    pub(crate) system: AtomicPtr<sealane_engine_alg::System>,
    /// Held while the system is being made, and while it grows.
    pub(crate) making: Lock<()>,
}

/// Null until the first allocation.
static ARENA: AtomicPtr<Arena> = AtomicPtr::new(core::ptr::null_mut());

/// The arena, if there is one.
pub(crate) fn existing() -> Option<&'static Arena> {
    // SAFETY: published only when complete, and never taken away.
    unsafe { ARENA.load(Acquire).as_ref() }
}

/// The arena, made now if need be; none when the kernel gives no memory.
pub(crate) fn get() -> Option<&'static Arena> {
    existing().or_else(make)
}

#[cold]
fn make() -> Option<&'static Arena> {
    let (at, len) = SIZES.iter().find_map(|&len| Some((sys::map_private(len)?, len)))?;
    let arena = at.cast::<Arena>();
    // SAFETY: the mapping is fresh, page-aligned, writable, and larger than the header by far. Collections start empty
    // and allocate only after publication.
    unsafe {
        arena.write(Arena {
            pages: Pages::new(len, infos_at(), heap_at(len)),
            commons: Home::new(),
            handling: RawLock::INIT,
            free_handle: AtomicU32::new(0),
            next_handle: AtomicU32::new(COMMONS + 1),
            boarding: RawLock::INIT,
            flying: [const { Flying::none() }; MAX_FLYING],
            next_flying: AtomicU32::new(0),
            logon: Lock::new(Vec::new()),
            system: AtomicPtr::new(core::ptr::null_mut()),
            making: Lock::new(()),
        });
    }
    match ARENA.compare_exchange(core::ptr::null_mut(), arena, core::sync::atomic::Ordering::AcqRel, Acquire) {
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

/// The offset of the array of [`PageInfo`].
fn infos_at() -> usize {
    size_of::<Arena>().next_multiple_of(PAGE)
}

/// The offset of the array of handles in an arena of `len` bytes.
fn handles_at(len: usize) -> usize {
    infos_at() + (len / PAGE * size_of::<PageInfo>()).next_multiple_of(PAGE)
}

/// The number of handles in an arena of `len` bytes: a quarter of its pages. Each needs one for its socket, and sockets
/// have more.
fn max_handles(len: usize) -> usize {
    len / PAGE / 4
}

/// The offset of page 0 in an arena of `len` bytes.
fn heap_at(len: usize) -> usize {
    handles_at(len) + (max_handles(len) * size_of::<Handle>()).next_multiple_of(PAGE)
}

impl Arena {
    /// The address of the first handle.
    fn handles(&self) -> usize {
        self.pages.base() + handles_at(self.pages.len)
    }

    fn max_handles(&self) -> usize {
        max_handles(self.pages.len)
    }

    /// The handle with this index.
    pub(crate) fn handle(&self, index: u32) -> *mut Handle {
        debug_assert!((index as usize) < self.max_handles());
        // SAFETY: the array lies in the mapping.
        unsafe { (self.handles() as *mut Handle).add(index as usize) }
    }

    /// The index of a handle.
    pub(crate) fn index_of(&self, handle: *const Handle) -> u32 {
        ((handle as usize - self.handles()) / size_of::<Handle>()) as u32
    }

    /// The home with this index.
    pub(crate) fn home(&self, index: u32) -> &Home {
        // SAFETY: every index but that of the commons is a handle's, and handles are never unmapped.
        if index <= COMMONS { &self.commons } else { unsafe { &(*self.handle(index)).home } }
    }

    /// Takes a handle without references; its index. It is zeros, or what its last user left.
    pub(crate) fn take_handle(&self) -> Option<u32> {
        self.handling.lock();
        let mut index = self.free_handle.load(Relaxed);
        if index != 0 {
            // SAFETY: handles are never unmapped.
            self.free_handle.store(unsafe { &*self.handle(index) }.next_free.load(Relaxed), Release);
        } else {
            index = self.next_handle.load(Relaxed);
            if (index as usize) < self.max_handles() {
                self.next_handle.store(index + 1, Release);
            } else {
                index = 0;
            }
        }
        // SAFETY: taken above.
        unsafe { self.handling.unlock() };
        (index != 0).then_some(index)
    }

    /// Takes a handle back.
    pub(crate) fn give_handle(&self, index: u32) {
        // SAFETY: handles are never unmapped.
        let handle = unsafe { &*self.handle(index) };
        self.handling.lock();
        handle.next_free.store(self.free_handle.load(Relaxed), Relaxed);
        self.free_handle.store(index, Release);
        // SAFETY: taken above.
        unsafe { self.handling.unlock() };
    }
}

/// The allocator of everything in this library.
struct ArenaAllocator;

impl ArenaAllocator {
    fn alloc_in(arena: &Arena, index: u32, layout: Layout) -> *mut u8 {
        arena.home(index).alloc(&arena.pages, index, layout)
    }
}

// SAFETY: homes keep the contract of GlobalAlloc under their locks; no arena means no memory, which is a null pointer.
unsafe impl GlobalAlloc for ArenaAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(arena) = get() else { return core::ptr::null_mut() };
        let index = match thread::place() {
            // The message of a panic may outlive the socket that it happened in.
            Some(_) if std::thread::panicking() => COMMONS,
            Some(handle) => arena.index_of(handle.cast()),
            None => COMMONS,
        };
        Self::alloc_in(arena, index, layout)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if let Some(arena) = existing() {
            let page = arena.pages.page_of(ptr as usize);
            let home = arena.home(arena.pages.info(page).home.load(Relaxed));
            // SAFETY: the caller's pointer came from here.
            unsafe { home.dealloc(&arena.pages, ptr, layout) }
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's, who keeps to the limits of a layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if Home::room(layout) == Home::room(new) {
            return ptr;
        }
        let Some(arena) = existing() else { return core::ptr::null_mut() };
        // Memory that grows stays in its home, whoever makes it grow.
        let index = arena.pages.info(arena.pages.page_of(ptr as usize)).home.load(Relaxed);
        let to = Self::alloc_in(arena, index, new);
        if !to.is_null() {
            // SAFETY: both have room for the smaller one.
            unsafe {
                core::ptr::copy_nonoverlapping(ptr, to, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
        }
        to
    }
}

#[global_allocator]
static ALLOCATOR: ArenaAllocator = ArenaAllocator;
