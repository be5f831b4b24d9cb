//! The table of this process's descriptors that belong to the library.
//!
//! A [`Handle`] corresponds to the kernel's open file: one socket, shared by every descriptor that dup or SCM_RIGHTS made
//! from it.
//!
//! Looking a descriptor up takes no lock. Handles have reference counts, and their memory is only ever reused for
//! handles. If another thread closes the descriptor during a look-up, the look-up therefore finds a count of zero, or
//! that the slot has changed; it never returns the handle of another descriptor.

use crate::arena::Arena;
use crate::borrow::{Borrow, leave_home, release};
use crate::handle::{Handle, Object, Standin};
use crate::lock::Lock;
use crate::record::{AioQueue, FANOUT, Leaf, Process};
use crate::tie::Tie;
use crate::{share, sys, thread};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use lock_api::RawMutex as _;

/// This process's record; null until the process has an AF_ALG socket.
pub(crate) static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
/// A page that reads 1 in a process whose record is its own, and 0 in its children, even in those that were forked without
/// our handlers.
static MINE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Whether this process, or one that it was forked from, has AF_ALG sockets.
#[inline]
pub(crate) fn active() -> bool {
    !PROCESS.load(Ordering::Relaxed).is_null()
}

#[inline]
fn slot_of(process: *mut Process, fd: c_int) -> Option<&'static AtomicPtr<Handle>> {
    let fd = fd as usize;
    if process.is_null() || fd >= FANOUT * FANOUT {
        return None;
    }
    // SAFETY: our own record and its leaves are never freed while this process lives.
    unsafe {
        let leaf = (*process).top[fd / FANOUT].load(Ordering::Acquire);
        leaf.as_ref().map(|leaf| &leaf[fd % FANOUT])
    }
}

/// Whether `fd` is in the table. This is a hint: another thread may change the entry at the same time.
#[inline]
pub(crate) fn ours(fd: c_int) -> bool {
    slot_of(PROCESS.load(Ordering::Acquire), fd).is_some_and(|s| !s.load(Ordering::Relaxed).is_null())
}

/// Looks `fd` up and takes a reference to its handle.
#[inline]
pub(crate) fn borrow(fd: c_int) -> Option<Borrow> {
    let slot = slot_of(PROCESS.load(Ordering::Acquire), fd)?;
    loop {
        let handle = slot.load(Ordering::Acquire);
        // SAFETY: handles are never unmapped.
        let h = unsafe { handle.as_ref() }?;
        let Some(borrow) = Borrow::of(h) else { continue };
        if slot.load(Ordering::Acquire) == handle {
            return Some(borrow);
        }
    }
}

/// This process's record, whose lock `changing` is held until this is dropped.
pub(crate) struct Changing(pub(crate) &'static Process);

impl Drop for Changing {
    fn drop(&mut self) {
        // SAFETY: taken in `changing()`.
        unsafe { self.0.changing.unlock() }
    }
}

/// Locks a record for a change; `None` if `process` is null.
pub(crate) fn changing(process: *mut Process) -> Option<Changing> {
    // SAFETY: our own record is never freed while we live.
    let process = unsafe { process.as_ref() }?;
    process.changing.lock();
    Some(Changing(process))
}

/// Returns this process's record. A process that was forked without our handlers notices it here.
pub(crate) fn own() -> *mut Process {
    let process = PROCESS.load(Ordering::Acquire);
    // SAFETY: the page is mapped for good.
    let mine = unsafe { MINE.load(Ordering::Relaxed).as_ref() };
    if !process.is_null() && mine.is_some_and(|mine| mine.load(Ordering::Relaxed) == 0) {
        child(false);
    }
    process
}

/// Makes what a child has from its parent its own. `prepared`: by the handlers of fork.rs.
pub(crate) fn child(prepared: bool) {
    share::child(prepared);
    claim();
    // Contexts are the parent's.
    if let Some(queues) = aio() {
        queues.lock().clear();
    }
    if prepared {
        thread::open_gate();
    }
}

/// Makes `process` the calling process's record.
pub(crate) fn adopt(process: *mut Process) {
    if MINE.load(Ordering::Relaxed).is_null() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private page; wiped in children so that they notice the fork.
        unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            if let Ok(at) = sys::check(sys::raw!(libc::SYS_mmap, 0, 4096, prot, flags, -1isize, 0))
                && sys::check(sys::raw!(libc::SYS_madvise, at, 4096, libc::MADV_WIPEONFORK)).is_ok()
            {
                MINE.store(at as *mut AtomicU32, Ordering::Relaxed);
            }
        }
    }
    claim();
    PROCESS.store(process, Ordering::Release);
}

/// Notes that the record is this process's, and not that of one which it was forked from.
fn claim() {
    // SAFETY: the page is mapped for good.
    if let Some(mine) = unsafe { MINE.load(Ordering::Relaxed).as_ref() } {
        mine.store(1, Ordering::Relaxed);
    }
}

/// A handle whose home is ready and which has no object yet; it belongs to the caller alone.
pub(crate) struct Fresh {
    arena: &'static Arena,
    handle: *mut Handle,
}

/// Takes a handle for a socket, which is accepted from `parent`'s if that is not null.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn fresh(arena: &'static Arena, parent: *const Handle) -> Result<Fresh, i32> {
    let index = arena.take_handle().ok_or(libc::ENOMEM)?;
    let handle = arena.handle(index);
    // The count, and the home with its users and its parent, are zeros from the kernel or from the last user, and stay so: who
    // looks a handle up late, or looks at all handles, may read them at this moment.
    // SAFETY: nobody else has it, and nobody reads the rest of a handle without references.
    unsafe {
        (&raw mut (*handle).object).write(UnsafeCell::new(None));
        (&raw mut (*handle).standin).write(Lock::new(Standin::default()));
        (&raw mut (*handle).bounce).write(Lock::new(Vec::new()));
        (&raw mut (*handle).tie).write(Tie::default());
        (*handle).nonblock.store(false, Ordering::Relaxed);
        (*handle).polled.store(false, Ordering::Relaxed);
        (*handle).home.users.store(1, Ordering::Relaxed);
    }
    if !parent.is_null() {
        let parent = arena.index_of(parent);
        // An operation that was accepted from an operation has the key of the same transform.
        let parent = match arena.home(parent).parent.load(Ordering::Relaxed) {
            0 => parent,
            transform => transform,
        };
        arena.home(parent).users.fetch_add(1, Ordering::Relaxed);
        // SAFETY: ours.
        unsafe { (*handle).home.parent.store(parent, Ordering::Relaxed) };
    }
    Ok(Fresh { arena, handle })
}

impl Fresh {
    /// The handle, of which nobody else knows.
    pub(crate) fn as_handle(&self) -> &Handle {
        // SAFETY: handles are never unmapped.
        unsafe { &*self.handle }
    }

    /// The handle, for [`thread::within`].
    pub(crate) fn handle(&self) -> *mut Handle {
        self.handle
    }

    /// Puts a new socket at `fd`.
    ///
    /// # Errors
    /// `EMFILE` for a descriptor beyond the table, `ENOMEM`.
    pub(crate) fn install(self, fd: c_int, object: Object, nonblock: bool, standin: Standin) -> Result<(), i32> {
        let handle = core::mem::ManuallyDrop::new(self).handle;
        // SAFETY: no one else can use a handle that has no references.
        let h = unsafe { &*handle };
        // SAFETY: as above.
        unsafe { *h.object.get() = Some(object) };
        h.nonblock.store(nonblock, Ordering::Relaxed);
        *h.standin.lock() = standin;
        h.refs.store(1, Ordering::Release);
        // SAFETY: the reference that the count begins with.
        place(fd, unsafe { Borrow::from_raw(handle) })
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        leave_home(self.arena, self.arena.index_of(self.handle));
    }
}

/// Puts a reference at `fd`.
///
/// # Errors
/// `EMFILE` for a descriptor beyond the table, `ENOMEM`.
pub(crate) fn place(fd: c_int, handle: Borrow) -> Result<(), i32> {
    let _commons = thread::within(core::ptr::null_mut());
    let held = changing(own()).ok_or(libc::ENOMEM)?;
    let i = usize::try_from(fd).map_err(|_| libc::EBADF)?;
    let top = held.0.top.get(i / FANOUT).ok_or(libc::EMFILE)?;
    if top.load(Ordering::Acquire).is_null() {
        let leaf: Box<Leaf> = Box::new([const { AtomicPtr::new(core::ptr::null_mut()) }; FANOUT]);
        top.store(Box::into_raw(leaf), Ordering::Release);
    }
    // SAFETY: just made, or there before; leaves live as long as their record.
    let slot = unsafe { &(*top.load(Ordering::Acquire))[i % FANOUT] };
    let old = slot.swap(handle.into_raw(), Ordering::AcqRel);
    drop(held);
    if !old.is_null() {
        // SAFETY: the table's reference, just taken out.
        unsafe { release(old) };
    }
    Ok(())
}

/// Takes `fd` out of the table.
pub(crate) fn remove(fd: c_int) {
    if !ours(fd) {
        return;
    }
    let Some(held) = changing(own()) else { return };
    let old = slot_of(core::ptr::from_ref(held.0).cast_mut(), fd)
        .map_or(core::ptr::null_mut(), |s| s.swap(core::ptr::null_mut(), Ordering::AcqRel));
    drop(held);
    if !old.is_null() {
        // SAFETY: the table's reference, just taken out.
        unsafe { release(old) };
    }
}

/// Takes `fd` out of the table in a signal handler that interrupted our code: without a lock, and without releasing the
/// reference, which could need one. This leaks the handle; leaving the entry would give the socket the calls for the
/// next file with this number.
pub(crate) fn abandon(fd: c_int) {
    if let Some(slot) = slot_of(PROCESS.load(Ordering::Acquire), fd) {
        slot.store(core::ptr::null_mut(), Ordering::Release);
    }
}

/// Returns the descriptors of the table from `first` to `last`, both included.
pub(crate) fn in_range(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let process = PROCESS.load(Ordering::Acquire);
    let end = (last as usize).min(FANOUT * FANOUT - 1);
    // SAFETY: our own record is never freed while we live.
    let tops = unsafe { process.as_ref() }.map_or(&[][..], |p| &p.top[..]);
    tops.iter().enumerate().filter(|(_, leaf)| !leaf.load(Ordering::Acquire).is_null()).flat_map(move |(i, _)| {
        let from = (i * FANOUT).max(first as usize);
        let to = ((i + 1) * FANOUT).min(end + 1);
        (from..to).map(|fd| fd as c_int).filter(|&fd| ours(fd))
    })
}

/// This process's AIO queues.
pub(crate) fn aio() -> Option<&'static Lock<Vec<AioQueue>>> {
    // SAFETY: our own record is never freed while we live.
    unsafe { own().as_ref() }.map(|p| &p.aio)
}

/// The handle that the table has at `fd`, or null.
pub(crate) fn at(fd: c_int) -> *mut Handle {
    slot_of(PROCESS.load(Ordering::Acquire), fd).map_or(core::ptr::null_mut(), |s| s.load(Ordering::Acquire))
}
