//! The guarded memory of this process.

use crate::lock::Opening;
use crate::memory::{Memory, NoRoom, Plan};
use core::alloc::Layout;
use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::io;

/// The memory of this process or, in a child that has made no key, of its parent. Null: keys are on the heap. Those of before are
/// never freed, because a [`Held`](crate::Held) may know them.
static CURRENT: AtomicPtr<Memory> = AtomicPtr::new(core::ptr::null_mut());

/// The memory that [`CURRENT`] leads to.
#[inline]
fn known() -> Option<&'static Memory> {
    let memory = CURRENT.load(Ordering::Acquire);
    // SAFETY: it is null, or was leaked by `establish` or `successor`.
    unsafe { memory.as_ref() }
}

/// Whether keys of this process lie in guarded memory, or of its parent's.
#[inline]
#[must_use]
pub fn is_established() -> bool {
    known().is_some()
}

/// Gives this process guarded memory, in which keys lie that are made from now on. A process that has it keeps what it has. It is best done
/// before other threads fork: a child that is forked in the middle of it has the memory.
///
/// Later there are system calls for each page but the first ones, where the plan takes less ([`Plan::or_less`]); and a child makes them
/// all for memory of its own ([`renew`]). A program that goes into a sandbox makes a plan without, and lets its children renew in time.
///
/// # Errors
/// There is no memory at all, or less than the plan says: `ENOMEM`, `EAGAIN` (RLIMIT_MEMLOCK), what `madvise` says.
pub fn establish(plan: Plan) -> io::Result<&'static Memory> {
    if known().is_none() {
        let made = leaked(plan, || Memory::make(plan))?;
        if CURRENT.compare_exchange(core::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: another thread was first, and nobody has seen this one.
            unsafe { Box::from_raw(made) }.end();
        }
    }
    renew()?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The guarded memory of this process, if it has been established. A child gets its own here, under its parent's plan.
///
/// # Errors
/// As for [`establish`]: there is no memory for the child.
pub fn renew() -> io::Result<Option<&'static Memory>> {
    match known() {
        Some(memory) if memory.is_here() => Ok(Some(memory)),
        Some(memory) if !core::ptr::eq(memory, WITHOUT_SUCCESSOR.load(Ordering::Acquire)) => {
            successor(memory).map(Some)
        }
        Some(_) => Err(io::ErrorKind::OutOfMemory.into()),
        None => Ok(None),
    }
}

/// The memory of a parent for which a child could not have its own when it was to ([`renew_once`]).
static WITHOUT_SUCCESSOR: AtomicPtr<Memory> = AtomicPtr::new(core::ptr::null_mut());

/// For a child that has just been forked: [`renew`], and if there is no memory now, no key of this process tries again. Nothing is left
/// to be done in a sandbox then.
pub fn renew_once() {
    WITHOUT_SUCCESSOR.store(core::ptr::null_mut(), Ordering::Release);
    if renew().is_err()
        && let Some(memory) = known()
    {
        WITHOUT_SUCCESSOR.store(core::ptr::from_ref(memory).cast_mut(), Ordering::Release);
    }
}

/// Makes what lasts as long as the process.
fn leaked(plan: Plan, make: impl Fn() -> io::Result<Memory>) -> io::Result<*mut Memory> {
    let mut made = Err(io::ErrorKind::OutOfMemory.into());
    (plan.lasting)(&mut || made = make().map(|memory| Box::into_raw(Box::new(memory))));
    made
}

#[cold]
fn successor(parents: &'static Memory) -> io::Result<&'static Memory> {
    let old = core::ptr::from_ref(parents).cast_mut();
    match leaked(parents.plan(), || parents.again()) {
        Ok(made) => match CURRENT.compare_exchange(old, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: leaked above.
            Ok(_) => Ok(unsafe { &*made }),
            Err(others) => {
                // SAFETY: another thread was first, and nobody has seen this one.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: that one's was leaked, too.
                Ok(unsafe { &*others })
            }
        },
        // Another thread's may have taken what there was.
        Err(error) => known().filter(|memory| memory.is_here()).ok_or(error),
    }
}

thread_local! {
    /// Whether what this thread makes is no secret.
    static IS_PUBLIC: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, whose keys are no secrets, such as those of a test: they lie in ordinary memory, and need no room.
pub fn unguarded<R>(f: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_PUBLIC.set(self.0);
        }
    }
    let _before = Before(IS_PUBLIC.replace(true));
    f()
}

/// Whether a key that this thread makes now lies in guarded memory, if there is room.
#[must_use]
pub fn guards() -> bool {
    is_established() && !IS_PUBLIC.get()
}

/// The memory for a new key; none where it is to lie in ordinary memory.
pub(crate) fn for_key() -> Result<Option<&'static Memory>, NoRoom> {
    if IS_PUBLIC.get() { Ok(None) } else { renew().map_err(|_| NoRoom) }
}

/// Opens guarded memory before a key is made. A child gets its own here: made later, it would be made of what the stack has of the
/// key by then, and would not be open.
///
/// # Errors
/// [`NoRoom`]: there is none for the child.
pub fn begin() -> Result<Opened, NoRoom> {
    Ok(for_key()?.map_or(Opened::NOTHING, Opened::of))
}

/// Memory that this thread has opened; dropped, it is as before.
#[must_use]
pub struct Opened {
    opening: Opening<'static>,
    /// Another thread would close what is open for itself.
    stays_in_thread: PhantomData<*mut ()>,
}

impl Opened {
    pub(crate) const NOTHING: Opened = Opened { opening: Opening::Nothing, stays_in_thread: PhantomData };

    #[inline]
    pub(crate) fn of(memory: &'static Memory) -> Self {
        Opened { opening: memory.open(), stays_in_thread: PhantomData }
    }
}

/// Opens the guarded memory for this thread, if there is any: around an operation, and no longer.
#[inline]
pub fn open() -> Opened {
    known().map_or(Opened::NOTHING, Opened::of)
}

impl Drop for Opened {
    #[inline]
    fn drop(&mut self) {
        self.opening.close();
    }
}

/// Takes guarded memory, for C libraries that ask for it; `None` where there is none established, or keys are no secrets
/// ([`unguarded`]). It is zeros.
///
/// # Errors
/// [`NoRoom`].
pub fn allocate(layout: Layout) -> Result<Option<NonNull<u8>>, NoRoom> {
    match for_key()? {
        None => Ok(None),
        Some(memory) => memory.take(layout).map(Some).ok_or(NoRoom),
    }
}

/// Whether an address is in this process's guarded memory.
#[must_use]
pub fn has(at: *const u8) -> bool {
    known().is_some_and(|memory| memory.is_here() && memory.has(at))
}

/// Wipes memory of [`allocate`], and takes it back. Returns whether it was from there.
///
/// # Safety
/// Nobody uses it any more, and it was taken for this layout.
pub unsafe fn give_back(at: NonNull<u8>, layout: Layout) -> bool {
    match known() {
        // In a child these addresses may be those of other memory by now.
        Some(memory) if memory.is_here() && memory.has(at.as_ptr()) => {
            // SAFETY: as the caller promises.
            unsafe { memory.give(at, layout) };
            true
        }
        _ => false,
    }
}
