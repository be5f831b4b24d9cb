//! Sockets that several processes have: a child of fork shares the open sockets of its parent, and no later ones.
//!
//! Each process has such a socket in memory of its own. Common to them is a [`Cell`]: memory that they share, with an
//! image of the socket's state ([`sealane_engine_alg::image`]), which is plain bytes without an address. A call locks
//! the cell, takes over what others have changed, and leaves its own changes in it.
//!
//! ```text
//! process A                            shared                              process B
//! handle: socket, drivers' states ──── Cell: lock │ members │ 2 images ──── handle: socket, drivers' states
//! ```
//!
//! What other processes write into a cell may be anything. It can make this socket wrong, and nothing else.
//!
//! Locks come in this order: that of a transform, then those of its operations.

use crate::arena::{self, Arena};
use crate::atomic::AtomicU32;
use crate::borrow::{Borrow, publish, publish_for, release, transform_of};
use crate::cell::{Cell, UNBORN, now_s};
use crate::handle::{Family, Handle, Object};
use crate::home::COMMONS;
use crate::{proc, sys, thread, tie};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use sealane_engine_alg::image::{Malformed, Reader, Writer};

/// Whether a socket is a transform, or has none: its image is of itself alone.
fn is_first(handle: &Handle) -> bool {
    handle.home.parent.load(Relaxed) == 0
}

/// The transform that belongs to a handle's own image.
fn own_family(handle: &Handle) -> Option<Family> {
    if is_first(handle) { handle.object()?.family() } else { None }
}

/// The transform that belongs to a handle's own image, also when it is closed and lives on in its operations. While no other thread of this
/// process is inside.
fn living_family(arena: &'static Arena, handle: &Handle) -> Option<Family> {
    if !is_first(handle) || handle.object().is_some() {
        return own_family(handle);
    }
    let index = arena.index_of(handle);
    let of = |operation: &Handle| operation.home.parent.load(Relaxed) == index;
    handles(arena).filter(|h| of(h)).find_map(|operation| operation.object()?.family())
}

/// Takes over what other processes have changed; called with the cell's lock held. `object`: the handle's, unless it is
/// closed.
fn pull(handle: &Handle, object: Option<&Object>, cell: &Cell, family: Option<&Family>) -> Result<(), Malformed> {
    if let Some(family) = family {
        family.set_others(cell.others(handle.tie.place.load(Relaxed)));
    }
    if cell.number() == handle.tie.seen.load(Relaxed) {
        return Ok(());
    }
    // A call on an operation takes over its transform, too, which lives on when the operation's home is wiped.
    let _within = thread::within(core::ptr::from_ref(handle).cast_mut().cast());
    let (number, image) = cell.image().ok_or(Malformed)?;
    let mut image = Reader::new(&image);
    let (nonblock, polled, prepared) = (image.flag()?, image.flag()?, image.flag()?);
    let (shown, cookie) = (image.word()?, *image.bytes()?.first_chunk().ok_or(Malformed)?);
    let (object_image, family_image) = (image.bytes()?, image.bytes()?);
    if let Some(family) = family {
        family.load(&mut Reader::new(family_image))?;
    }
    if let Some(object) = object {
        let sender_gone = || cell.is_sleeper_gone();
        object.load(&mut Reader::new(object_image), &sender_gone)?;
        handle.set_nonblock(nonblock);
        handle.polled.store(polled, Relaxed);
        let mut standin = handle.standin.lock();
        (standin.prepared, standin.shown, standin.cookie) = (prepared, shown, cookie);
    }
    handle.tie.seen.store(number, Relaxed);
    Ok(())
}

/// Leaves what this process has changed in the cell; called with its lock held.
fn push(handle: &Handle, cell: &Cell) {
    let Some(object) = handle.object() else { return };
    let mut image = Writer::new();
    image.flag(handle.nonblock.load(Relaxed));
    image.flag(handle.polled.load(Relaxed));
    let standin = *handle.standin.lock();
    image.flag(standin.prepared);
    image.number(u64::from(standin.shown));
    image.bytes(&standin.cookie);
    let mut part = Writer::new();
    object.save(&mut part);
    image.bytes(&part.finish());
    let mut part = Writer::new();
    if let Some(family) = own_family(handle) {
        publish(handle, &family);
        family.save(&mut part);
    }
    image.bytes(&part.finish());
    match cell.put(&image.finish()) {
        Some(number) => handle.tie.seen.store(number, Relaxed),
        None => sys::complain(format_args!("an AF_ALG socket has become too large to be shared with other processes")),
    }
}

/// Begins a call on a socket: nobody else changes it until [`leave`].
#[inline]
pub(crate) fn enter(handle: &Handle) {
    if tie::any() {
        enter_shared(handle);
    }
}

#[cold]
fn enter_shared(handle: &Handle) {
    let Some(object) = handle.object() else { return };
    if object.leans()
        && let (Some(transform), Some(family)) = (transform_of(handle), object.family())
        && let Some(cell) = transform.tie.lock()
    {
        // Others may close the transform at any time.
        let held = Borrow::of(transform);
        let transform_object = held.as_ref().map(Borrow::object);
        if pull(transform, transform_object, cell, Some(&family)).is_ok() {
            thread::slot().lean_on(core::ptr::from_ref(cell).cast());
        } else {
            give_up(transform, transform_object, cell);
            cell.unlock();
        }
    }
    let Some(cell) = handle.tie.lock() else { return };
    if pull(handle, Some(object), cell, own_family(handle).as_ref()).is_err() {
        give_up(handle, Some(object), cell);
        cell.unlock();
        return;
    }
    // A look at /proc costs more than many calls.
    let calls = handle.tie.calls.fetch_add(1, Relaxed);
    if calls.is_power_of_two() || calls.is_multiple_of(1024) {
        let own = handle.tie.place.load(Relaxed);
        cell.sweep(own);
        if cell.is_alone(own) {
            part(handle, Some(object), cell);
            cell.unlock();
        }
    }
}

/// Ends a call.
#[inline]
pub(crate) fn leave(handle: &Handle) {
    if tie::any() {
        leave_shared(handle);
    }
}

#[cold]
fn leave_shared(handle: &Handle) {
    if let Some(cell) = handle.tie.tied() {
        push(handle, cell);
        cell.unlock();
    }
    // SAFETY: the cell of the operation's transform, whose home the operation's keeps (tie.rs).
    if let Some(cell) = unsafe { thread::slot().lean_off().cast::<Cell>().as_ref() } {
        publish_for(handle, handle.object().and_then(Object::family).as_ref());
        cell.unlock();
    }
}

/// A call on a socket, until it is dropped.
pub(crate) struct Entered<'a>(&'a Handle);

impl<'a> Entered<'a> {
    /// Begins it.
    #[inline]
    pub(crate) fn new(handle: &'a Handle) -> Self {
        enter(handle);
        Entered(handle)
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        leave(self.0);
    }
}

/// Sleeps in the middle of a call, in which others may change the socket: on `word` while that is `seen`, or on the
/// cell.
pub(crate) fn wait(handle: &Handle, word: &AtomicU32, seen: u32) -> Result<(), i32> {
    let (cell, times) = (handle.tie.tied(), handle.tie.times());
    let (word, seen) = match cell {
        None => (word, seen),
        Some(cell) => {
            cell.fall_asleep();
            push(handle, cell);
            (cell.changes(), cell.changes().load(SeqCst))
        }
    };
    leave(handle);
    // Without a timeout, so that the kernel restarts the sleep after a handler with SA_RESTART and reports EINTR after any
    // other, as it would for the real call.
    let slept = thread::asleep(Some(word), || sys::futex_wait(word, seen, None));
    // Whoever ties the handle once more begins a new count.
    if let Some(cell) = cell.filter(|_| times == handle.tie.times()) {
        cell.wake_up();
    }
    enter(handle);
    slept
}

/// Runs `f`, which may take long, in the middle of a call.
pub(crate) fn outside<T>(handle: &Handle, f: impl FnOnce() -> T) -> T {
    leave(handle);
    let value = thread::asleep(None, f);
    enter(handle);
    value
}

/// Strikes off the processes that are gone, in the middle of a call; whether there were any.
pub(crate) fn sweep(handle: &Handle) -> bool {
    let Some(cell) = handle.tie.tied() else { return false };
    let own = handle.tie.place.load(Relaxed);
    let any = cell.sweep(own);
    if any && let Some(family) = own_family(handle) {
        family.set_others(cell.others(own));
    }
    any
}

/// Takes over what others have done to the operations of a transform: whether they have a key decides whether it can be
/// changed. In the middle of a call on the transform.
pub(crate) fn refresh_operations(transform: &Handle) {
    let Some(arena) = arena::existing().filter(|_| tie::any()) else { return };
    let index = arena.index_of(transform);
    let is_operation = |handle: &Handle| handle.home.parent.load(Relaxed) == index;
    for handle in handles(arena).filter(|h| is_operation(h)) {
        // Others may close it at any time, and its handle may be another socket's then.
        let Some(operation) = Borrow::of(handle).filter(|borrow| is_operation(borrow)) else { continue };
        if let Some(cell) = operation.tie.lock() {
            let object = Some(operation.object());
            if pull(&operation, object, cell, None).is_err() {
                give_up(&operation, object, cell);
            }
            cell.unlock();
        }
    }
}

/// Every handle that is in use.
pub(crate) fn handles(arena: &'static Arena) -> impl Iterator<Item = &'static Handle> {
    (COMMONS + 1..arena.next_handle.load(Acquire))
        // SAFETY: handles are never unmapped.
        .map(|index| unsafe { &*arena.handle(index) })
        .filter(|handle| handle.home.users.load(Acquire) > 0)
}

/// Goes on alone with a socket whose cell, of which the lock is held, has an image that no socket wrote.
fn give_up(handle: &Handle, object: Option<&Object>, cell: &Cell) {
    sys::complain(format_args!(
        "what another process wrote about an AF_ALG socket makes no sense; it is shared no longer"
    ));
    part(handle, object, cell);
}

/// Unties a handle from its cell, of which the lock is held; whether other processes still have the socket.
fn part(handle: &Handle, object: Option<&Object>, cell: &Cell) -> bool {
    // Others use the object as soon as it is untied.
    if let Some(object) = object {
        object.share(false);
    }
    handle.tie.untie(cell)
}

/// Gives every open socket a cell, takes over what others have changed, and takes places for a child. Before a fork, while
/// no other thread of this process is inside.
pub(crate) fn before_fork(arena: &'static Arena) {
    tie_all(arena);
    // Operations take keys from their transforms.
    for first in [true, false] {
        for handle in handles(arena).filter(|h| is_first(h) == first) {
            let Some(cell) = handle.tie.lock() else { continue };
            let family = living_family(arena, handle);
            let _within = thread::within(core::ptr::from_ref(handle).cast_mut().cast());
            if pull(handle, handle.object(), cell, family.as_ref()).is_ok() {
                let place = handle.tie.place.load(Relaxed);
                let counts = cell.counts(place);
                cell.sweep(place);
                handle.tie.child.store(cell.join(UNBORN, now_s(), counts), Relaxed);
            } else {
                give_up(handle, handle.object(), cell);
            }
            cell.unlock();
        }
    }
}

fn tie_all(arena: &'static Arena) {
    let untied = || handles(arena).filter(|h| h.tie.tied().is_none() && h.object().is_some());
    if untied().next().is_none() {
        return;
    }
    let count = untied().filter(|h| h.tie.cell().is_none()).count();
    let first = if count == 0 { None } else { Cell::map(count as u32) };
    if count != 0 && first.is_none() {
        sys::complain(format_args!("no memory to share {count} AF_ALG sockets with a child: it gets copies"));
    }
    let mut new = (0..count).filter_map(|n| Some(first?.sibling(n)));
    let (pid, started) = (sys::getpid(), proc::started(sys::getpid()).unwrap_or(0));
    for handle in untied() {
        let cell = match handle.tie.cell() {
            None => new.next(),
            Some(cell) => cell.renew().then_some(cell),
        };
        let Some(cell) = cell else { continue };
        handle.tie.tie(cell, pid, started);
        if let Some(object) = handle.object() {
            let _within = thread::within(core::ptr::from_ref(handle).cast_mut().cast());
            object.share(true);
        }
        if let Some(family) = own_family(handle) {
            publish(handle, &family);
        }
    }
    wake_sleepers();
}

/// Calls that wait sleep on other words from now on.
fn wake_sleepers() {
    thread::sleepers(|_, word| {
        word.fetch_add(1, SeqCst);
        sys::futex_wake(word, i32::MAX);
    });
}

/// Makes the sockets that a child has from its parent its own. `prepared`: [`before_fork`] has run in the parent.
pub(crate) fn child(prepared: bool) {
    // Locks have this thread's new id, and cells its place, before any of them is used.
    thread::renew();
    born(prepared);
    thread::forget_others(|handle| {
        if !handle.is_null() {
            // SAFETY: the reference of a call that sleeps in the parent, and does not exist here.
            unsafe { release(handle.cast()) };
        }
    });
}

/// Takes this process's places: those that its parent took for it, or new ones after a fork without our handlers.
fn born(prepared: bool) {
    let Some(arena) = arena::existing() else { return };
    let (pid, started) = (sys::getpid(), proc::started(sys::getpid()).unwrap_or(0));
    for handle in handles(arena) {
        let Some(cell) = handle.tie.tied() else { continue };
        cell.lock();
        let place = if prepared {
            let place = handle.tie.child.load(Relaxed);
            cell.be_born(place, pid, started);
            place
        } else {
            cell.join(pid, started, [0, 0])
        };
        cell.unlock();
        handle.tie.place.store(place, Relaxed);
        if !prepared && let Some(family) = own_family(handle) {
            publish(handle, &family);
        }
    }
}

/// Unties every socket; calls `each` with those that other processes still have. While no other thread of this process is
/// inside.
pub(crate) fn part_from_all(arena: &'static Arena, mut each: impl FnMut(&'static Handle)) {
    for first in [true, false] {
        for handle in handles(arena).filter(|h| is_first(h) == first) {
            let Some(cell) = handle.tie.lock() else { continue };
            let family = living_family(arena, handle);
            let _within = thread::within(core::ptr::from_ref(handle).cast_mut().cast());
            // A message of another process's goes on here as far as it has come.
            let _ = pull(handle, handle.object(), cell, family.as_ref());
            cell.sweep(handle.tie.place.load(Relaxed));
            let shared = part(handle, handle.object(), cell);
            cell.unlock();
            if shared {
                each(handle);
            }
        }
    }
}
