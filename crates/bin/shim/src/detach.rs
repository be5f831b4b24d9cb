//! A process that is about to change its credentials gets an arena of its own.
//!
//! The new arena lies at the same addresses and holds what belongs to the process: the commons, and the homes of the
//! sockets that it has descriptors for. All other homes, with the keys of sockets that it has closed or never had, stay
//! behind. From then on the process and those that it shared sockets with operate on copies.
//!
//! Meanwhile no other thread of the process is inside (thread.rs). Other processes go on: what is copied is locked while it
//! is copied. Locks are copied in their locked state and opened in the copy, where nobody else can hold them.

use crate::arena::{self, Arena};
use crate::handle::{Handle, Object, Standin};
use crate::home::COMMONS;
use crate::pages::{PAGE, PageInfo};
use crate::record::Process;
use crate::{fork, standin, sys, table, thread};
use core::ffi::c_int;
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};
use lock_api::RawMutex as _;

/// Room for what other processes take while we copy.
const SLACK: usize = 64 << 20;
/// In [`Handle::next_free`] of a copy: it is one.
const COPIED: u32 = u32::MAX;
/// The same, and other processes go on using the original.
const SHARED: u32 = u32::MAX - 1;
/// In [`Handle::next_free`]: below it a free handle, from it on a descriptor of the new stand-in.
const NEW_STANDIN: u32 = 1 << 30;

/// Parts from all other processes. Does nothing in a process without AF_ALG sockets.
pub(crate) fn detach() {
    if arena::existing().is_none() {
        return;
    }
    thread::alone(alone);
}

/// Parts while no other thread is inside.
fn alone() {
    sys::wipe_stack();
    let Ok(arena) = fork::ensure() else { fail() };
    // More has been taken in the meantime than there was room for: once more, with more room.
    while !part(arena) {}
}

/// There is no way back: to go on would be to share keys with a process of other rights.
fn fail() -> ! {
    sys::complain(format_args!("no memory to part from the processes that share our keys, before a change of rights"));
    std::process::abort();
}

/// The copy under construction.
struct Stage {
    arena: &'static Arena,
    at: usize,
    len: usize,
    /// Something lay beyond the end.
    short: core::cell::Cell<bool>,
}

impl Stage {
    /// The copy of what is at `original`.
    fn of<T>(&self, original: *const T) -> *mut T {
        (original as usize - self.arena.pages.base() + self.at) as *mut T
    }

    fn copy(&self, at: usize, len: usize) {
        if at + len > self.arena.pages.base() + self.len {
            self.short.set(true);
            return;
        }
        // SAFETY: both ranges lie in mappings of ours.
        unsafe { core::ptr::copy_nonoverlapping(at as *const u8, self.of(at as *const u8), len) };
    }

    /// The header of the copy.
    fn arena(&self) -> &Arena {
        // SAFETY: the copy begins with a copy of the header.
        unsafe { &*self.of(core::ptr::from_ref(self.arena)) }
    }

    /// Copies the pages of a home, whose lock is held, and marks them.
    fn copy_home(&self, index: u32) {
        self.arena.home(index).runs(&self.arena.pages, |at, len| {
            self.copy(at, len);
            let page = self.arena.pages.page_of(at);
            let info = self.arena.pages.info(page);
            if !self.short.get() {
                // SAFETY: zeros or a copy, in a mapping of ours.
                let copy = unsafe { &*self.of(info) };
                copy.order.store(info.order.load(Relaxed), Relaxed);
                copy.next.store(info.next.load(Relaxed), Relaxed);
                copy.home.store(index, Relaxed);
                copy.copied.store(1, Relaxed);
                let next = &self.arena().pages.next_page;
                next.store(next.load(Relaxed).max(page + (len / PAGE) as u32), Relaxed);
            }
        });
    }

    /// Copies a handle and its home. References are counted by the caller.
    fn copy_handle(&self, handle: *mut Handle) {
        let copy = self.of(handle);
        // SAFETY: handles are never unmapped; the copy is zeros or a handle.
        unsafe {
            let refs = (*copy).refs.load(Relaxed);
            (*handle).home.lock.lock();
            core::ptr::copy_nonoverlapping(handle, copy, 1);
            self.copy_home(self.arena.index_of(handle));
            (*handle).home.lock.unlock();
            (*copy).refs.store(refs, Relaxed);
            (*copy).next_free.store(COPIED, Relaxed);
            (*copy).home.lock.reset();
            (*copy).standin.raw().reset();
            (*copy).bounce.raw().reset();
        }
    }

    /// Takes one reference to a socket into the copy.
    fn take(&self, handle: *mut Handle) {
        // SAFETY: this process has a reference, so that there is an object.
        let h = unsafe { &*handle };
        // SAFETY: zeros or a copy.
        let copy = unsafe { &*self.of(handle) };
        if copy.refs.load(Relaxed) == 0 {
            let _bounce = h.bounce.lock();
            let _standin = h.standin.lock();
            // SAFETY: as above.
            let object = unsafe { (*h.object.get()).as_ref() };
            object.expect("a counted handle has an object").still(&mut || {
                self.copy_handle(handle);
                let parent = h.home.parent.load(Relaxed);
                // SAFETY: as above.
                if parent != 0 && unsafe { &*self.of(self.arena.handle(parent)) }.refs.load(Relaxed) == 0 {
                    self.copy_handle(self.arena.handle(parent));
                }
            });
        }
        copy.refs.fetch_add(1, Relaxed);
    }

    /// Takes every reference to a socket of AF_ALG, or of NETLINK_CRYPTO, into the copy.
    fn take_all(&self, netlink: bool) {
        let take = |handle: *mut Handle| {
            // SAFETY: this process has a reference, so that there is an object.
            let object = unsafe { handle.as_ref().and_then(|h| (*h.object.get()).as_ref()) };
            if !self.short.get() && object.is_some_and(|o| matches!(o, Object::Netlink(_)) == netlink) {
                self.take(handle);
            }
        };
        descriptors(|_, handle| take(handle));
        thread::sleepers(|handle, _| take(handle.cast()));
    }

    /// Copies the commons and the lists, as they are at one moment. The caller holds `making`, so that no algorithm is
    /// resolved meanwhile.
    fn copy_commons(&self) {
        let arena = self.arena;
        let _logon = arena.logon.lock();
        let locks = [&arena.enlisting, &arena.boarding, &arena.commons.lock, &arena.pages.paging, &arena.handling];
        locks.iter().for_each(|lock| lock.lock());
        self.copy(arena.pages.base(), size_of::<Arena>());
        let pages = arena.pages.next_page.load(Relaxed);
        self.copy(core::ptr::from_ref(arena.pages.info(0)) as usize, pages as usize * size_of::<PageInfo>());
        self.copy_home(COMMONS);
        // SAFETY: taken above.
        locks.iter().for_each(|lock| unsafe { lock.unlock() });
        let copy = self.arena();
        for lock in [&copy.enlisting, &copy.boarding, &copy.commons.lock, &copy.pages.paging, &copy.handling] {
            lock.reset();
        }
        // SAFETY: only looked at.
        unsafe {
            copy.making.raw().reset();
            copy.logon.raw().reset();
        }
    }

    /// Counts the users of each home, and makes the lists of what is free. Runs of pages whose copy was not taken are.
    fn put_in_order(&self) {
        let copy = self.arena();
        copy.free_handle.store(0, Relaxed);
        let all = || COMMONS + 1..copy.next_handle.load(Relaxed);
        // SAFETY: zeros or copies, in a mapping of ours.
        let handle = |index| unsafe { &*self.of(self.arena.handle(index)) };
        for index in all() {
            let h = handle(index);
            match h.next_free.load(Relaxed) {
                COPIED => h.home.users.store(u32::from(h.refs.load(Relaxed) > 0), Relaxed),
                _ => {
                    h.next_free.store(copy.free_handle.load(Relaxed), Relaxed);
                    copy.free_handle.store(index, Relaxed);
                }
            }
        }
        for index in all() {
            let h = handle(index);
            let parent = h.home.parent.load(Relaxed);
            if h.refs.load(Relaxed) > 0 && parent != 0 {
                handle(parent).home.users.fetch_add(1, Relaxed);
            } else if h.refs.load(Relaxed) == 0 && h.next_free.load(Relaxed) == COPIED {
                // The key of a socket that others may have, but not we.
                // SAFETY: the object's memory is a copy that nobody else knows of, and is wiped with its home.
                unsafe { h.object.get().write(None) };
            }
        }
        copy.pages.forget_free_runs();
        let mut page = 1;
        while page < copy.pages.next_page.load(Relaxed) {
            // SAFETY: zeros or a copy, in a mapping of ours.
            let info = unsafe { &*self.of(self.arena.pages.info(page)) };
            let order = info.order.load(Relaxed);
            if info.copied.swap(0, Relaxed) == 0 {
                info.home.store(0, Relaxed);
                copy.pages.note_free_run(info, page, order);
            }
            page += 1 << order;
        }
        copy.processes.store(table::PROCESS.load(Relaxed), Relaxed);
        for place in &copy.flying {
            place.handle.store(core::ptr::null_mut(), Relaxed);
        }
    }
}

/// Calls `each` with every descriptor of this process's table and its handle.
fn descriptors(mut each: impl FnMut(c_int, *mut Handle)) {
    for fd in table::in_range(0, u32::MAX) {
        each(fd, table::at(fd));
    }
}

/// Moves this process into a copy of its part of the arena. False: the copy did not fit.
fn part(arena: &'static Arena) -> bool {
    let len = (arena.pages.used() + SLACK).min(arena.pages.len).next_multiple_of(PAGE);
    let Some(at) = sys::map_shared(len) else { fail() };
    let stage = Stage { arena, at: at as usize, len, short: core::cell::Cell::new(false) };

    // Calls that sleep wake up and wait for us outside: afterwards their words lie in other memory.
    thread::sleepers(|_, word| {
        word.fetch_add(1, SeqCst);
        sys::futex_wake(word, i32::MAX);
    });
    // Sockets name algorithms in the commons. None may be resolved between the copies of both; but a NETLINK_CRYPTO
    // socket, which names none, has algorithms resolved while it is locked.
    let making = arena.making.lock();
    stage.copy_commons();
    stage.take_all(false);
    drop(making);
    stage.take_all(true);
    if stage.short.get() {
        // SAFETY: ours alone.
        unsafe { sys::unmap(at, len) };
        return false;
    }
    let records = stage.arena().processes.load(Relaxed);
    stage.put_in_order();

    let record = table::PROCESS.load(Relaxed);
    // SAFETY: our own record is never freed while we live.
    leave(unsafe { &*record });
    descriptors_of(&stage, |copy, handle| {
        // SAFETY: handles are never unmapped; one that was closed with us has no references.
        if unsafe { (*handle).refs.load(Acquire) } > 0 {
            copy.next_free.store(SHARED, Relaxed);
        }
    });
    // SAFETY: the copy is complete; every other thread of ours is outside, and ours has nothing of it at hand but the
    // arena itself, which stays at its place.
    unsafe {
        let moved = sys::move_mapping(at, len, arena.pages.base()).and_then(|()| {
            if len < arena.pages.len {
                sys::map_shared_at(arena.pages.base() + len, arena.pages.len - len)
            } else {
                Ok(())
            }
        });
        if moved.is_err() {
            fail();
        }
    }
    settle(arena, record, records);
    true
}

/// Calls `each` with the copy of each open handle and its original.
fn descriptors_of(stage: &Stage, mut each: impl FnMut(&Handle, *mut Handle)) {
    for index in COMMONS + 1..stage.arena().next_handle.load(Relaxed) {
        let handle = stage.arena.handle(index);
        // SAFETY: zeros or a copy, in a mapping of ours.
        let copy = unsafe { &*stage.of(handle) };
        if copy.refs.load(Relaxed) > 0 {
            each(copy, handle);
        }
    }
}

/// Leaves the old arena: gives back the references that this process had in it.
///
/// Its record stays, for those who remain to bury it (reap.rs): threads outside still glance at it until the copy is at
/// its place.
fn leave(record: &Process) {
    // First: a process that is killed in between has given too little back, and never anything twice.
    record.left.store(true, SeqCst);
    let release = |handle: *mut Handle| {
        if !handle.is_null() {
            // SAFETY: the table's reference, or the sleeping call's: each has one in the copy in its place.
            unsafe { table::release(handle) };
        }
    };
    thread::sleepers(|handle, _| release(handle.cast()));
    descriptors(|_, handle| release(handle));
}

/// Makes the copy a whole again, now that it is at its place.
fn settle(arena: &Arena, record: *mut Process, mut each: *mut Process) {
    while !each.is_null() {
        // SAFETY: a copy of a record, which no other list has any more; ours is alive.
        let next = unsafe { (*each).next.swap(core::ptr::null_mut(), Relaxed) };
        if each != record {
            // SAFETY: as above. Its references are not counted in the copy.
            unsafe { table::drop_record(each, |_| ()) };
        }
        each = next;
    }
    let pid = sys::getpid();
    arena.logon.lock().retain(|key| key.pid == pid);
    let open = || {
        (COMMONS + 1..arena.next_handle.load(Relaxed)).filter_map(|index| {
            // SAFETY: handles are never unmapped.
            let handle = unsafe { &*arena.handle(index) };
            // SAFETY: nobody else is inside.
            let object = unsafe { (*handle.object.get()).as_ref() }.filter(|_| handle.refs.load(Relaxed) > 0)?;
            Some((handle, object))
        })
    };
    for (handle, object) in open() {
        let mut asleep = 0;
        thread::sleepers(|at, _| asleep += u32::from(core::ptr::eq(at.cast(), handle)));
        // Opens the locks that were copied while they were held, by this very thread.
        object.still(&mut || ());
        object.forget_others(asleep);
    }
    open().for_each(|(_, object)| object.join());
    descriptors(new_standin);
}

/// Gives a descriptor whose open file other processes have, too, a stand-in of its own: readiness is shown in it.
fn new_standin(fd: c_int, handle: *mut Handle) {
    // SAFETY: ours, and nobody else is inside.
    let handle = unsafe { &*handle };
    let mark = handle.next_free.load(Relaxed);
    let mut old = handle.standin.lock();
    if !old.lively {
        return;
    }
    let nonblock = if handle.nonblock.load(Relaxed) { libc::SOCK_NONBLOCK } else { 0 };
    let from = match mark {
        SHARED => match standin::open(true, nonblock | libc::SOCK_CLOEXEC) {
            Ok(new) => new,
            // The old one goes on showing what others do, which is wrong and harmless.
            Err(_) => return,
        },
        COPIED => return,
        known if known >= NEW_STANDIN => (known - NEW_STANDIN) as c_int,
        _ => return,
    };
    sys::replace(from, fd);
    if mark == SHARED {
        sys::close(from);
        *old = Standin::new(true);
        handle.polled.store(false, Relaxed);
        handle.next_free.store(NEW_STANDIN + fd as u32, Relaxed);
    }
}
