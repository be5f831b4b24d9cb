//! The boundary between C and us.

use super::libcrypto::Core;
use super::raw::Callback;
use super::spare::{Spare, Spares};
use crate::failure::{Done, Failure, Reason};
use crate::home::{Owner, check_here, explained, forget_traces};
use crate::instance::Instance;
use crate::keeper::forget_failure;
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// The reason and place of this thread's last panic.
    static PANICKED_AT: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Makes a panic an entry of the queue of errors instead of lines on the program's standard error.
pub(super) fn note_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |l| format!("{}:{}", l.file(), l.line()));
        let why = info.payload_as_str().unwrap_or("no reason given");
        // Leaked, because it is rare, and because a destructor of the thread would keep the library from being unloaded.
        PANICKED_AT.set(Some(Box::leak(format!("sealane: {why} ({place})").into_boxed_str())));
    }));
}

/// Runs `f` for a C caller, and returns its value, or `None` with an error in the queue. No panic gets through: one that
/// did would unwind frames of C.
// Inlined with its callers: what `f` has captured is moved at each call, by vectors of what was written word by word, for which a CPU
// waits as long as a block of SHA-256 takes.
#[inline(always)]
pub(super) fn guarded<T>(core: &Core, f: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Some(value),
        Ok(Err(failure)) => {
            refused(core, &failure);
            None
        }
        Err(_) => {
            defect(core);
            None
        }
    }
}

/// Tells why a call has failed.
#[cold]
fn refused(core: &Core, failure: &Failure) {
    core.raise(failure);
    // Whatever the keeper said was about this call.
    forget_failure();
}

/// Tells of this thread's last panic.
#[cold]
fn defect(core: &Core) {
    let text = PANICKED_AT.take().unwrap_or_default().to_owned();
    core.raise(&Failure::text(Reason::Defect, text));
}

/// A context of an algorithm, as C has it behind a pointer.
pub(super) struct Context<T> {
    instance: *const Instance,
    pub(super) inner: T,
}

impl<T> Context<T> {
    pub(super) fn instance(&self) -> &Instance {
        // SAFETY: the provider's context outlives those of its algorithms.
        unsafe { &*self.instance }
    }
}

/// The provider's context behind a pointer.
///
/// # Safety
/// `raw` is null or what `OSSL_provider_init` has returned, not torn down.
pub(super) unsafe fn instance<'a>(raw: *mut c_void) -> Option<&'a Instance> {
    // SAFETY: by the caller's promise.
    unsafe { raw.cast::<Instance>().as_ref() }
}

/// Makes a context for C, or returns null with an error in the queue.
///
/// # Safety
/// As for [`instance`].
pub(super) unsafe fn create<T>(raw: *mut c_void, f: impl FnOnce(&Instance) -> Result<T, Failure>) -> *mut c_void {
    // SAFETY: by the caller's promise.
    let Some(instance) = (unsafe { instance(raw) }) else { return ptr::null_mut() };
    let made = guarded(instance.core(), || {
        let inner = instance.at_home(|| f(instance))?;
        instance.count_context();
        Ok(Box::into_raw(Box::new(Context { instance, inner })))
    });
    made.map_or(ptr::null_mut(), |context| context.cast())
}

/// Frees a context.
///
/// # Safety
/// `raw` is null or a context of this type that nobody uses any more.
pub(super) unsafe fn free<T>(raw: *mut c_void) {
    if !raw.is_null() {
        // SAFETY: `create` and `duplicate` made it of a box.
        let context = unsafe { Box::from_raw(raw.cast::<Context<T>>()) };
        let core = ptr::from_ref(context.instance().core());
        // SAFETY: the core is part of the provider's context, which outlives this one.
        guarded(unsafe { &*core }, move || {
            drop(context);
            Ok(())
        });
    }
}

/// Takes a context that was put aside, or makes one.
///
/// # Safety
/// As for [`create`]; the contexts in this place are of this type.
pub(super) unsafe fn take_or_create<T>(
    raw: *mut c_void,
    place: impl FnOnce(&Spares) -> &Spare,
    f: impl FnOnce(&Instance) -> Result<T, Failure>,
) -> *mut c_void {
    // SAFETY: by the caller's promise.
    let Some(instance) = (unsafe { instance(raw) }) else { return ptr::null_mut() };
    let spare = place(instance.spares()).take();
    if spare.is_null() {
        // SAFETY: by the caller's promise.
        return unsafe { create(raw, f) };
    }
    spare
}

/// Puts a context aside after `renew`, or frees it.
///
/// # Safety
/// As for [`free`]; the contexts in this place are of this type.
pub(super) unsafe fn keep_or_free<T>(
    raw: *mut c_void,
    place: impl FnOnce(&Spares) -> &Spare,
    renew: impl FnOnce(&mut T),
) {
    // SAFETY: by the caller's promise.
    let Some(context) = (unsafe { raw.cast::<Context<T>>().as_mut() }) else { return };
    // SAFETY: the provider's context outlives those of its algorithms.
    let instance = unsafe { &*context.instance };
    let renewed = guarded(instance.core(), || {
        renew(&mut context.inner);
        Ok(())
    });
    if renewed.is_none() || !place(instance.spares()).put(raw) {
        // SAFETY: by the caller's promise.
        unsafe { free::<T>(raw) };
    }
}

/// Makes a copy of a context.
///
/// # Safety
/// `raw` is null or a context of this type.
pub(super) unsafe fn duplicate<T>(raw: *mut c_void, f: impl FnOnce(&T) -> Result<T, Failure>) -> *mut c_void {
    // SAFETY: by the caller's promise.
    let Some(context) = (unsafe { raw.cast::<Context<T>>().as_ref() }) else { return ptr::null_mut() };
    let made = guarded(context.instance().core(), || {
        let inner = context.instance().at_home(|| f(&context.inner))?;
        context.instance().count_context();
        Ok(Box::into_raw(Box::new(Context { instance: context.instance, inner })))
    });
    made.map_or(ptr::null_mut(), |copy| copy.cast())
}

/// Runs `f` on a context, and returns 1, or 0 with an error in the queue.
///
/// # Safety
/// `raw` is null or a context of this type that nobody else uses meanwhile.
#[inline(always)]
pub(super) unsafe fn on<T>(raw: *mut c_void, f: impl FnOnce(&mut T, &Instance) -> Done) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(context) = (unsafe { raw.cast::<Context<T>>().as_mut() }) else { return 0 };
    // SAFETY: the provider's context outlives those of its algorithms.
    let instance = unsafe { &*context.instance };
    let done = guarded(instance.core(), || instance.at_home(|| f(&mut context.inner, instance)));
    c_int::from(done.is_some())
}

/// A context that may have a key.
pub(super) trait Keyed: Sized {
    /// The process in which its key was set.
    fn owner(&self) -> Option<Owner>;

    /// Another one, at the same place of its message.
    fn copy(&self) -> Result<Self, Failure>;
}

/// Makes a copy of a context that may have a key.
///
/// # Safety
/// As for [`duplicate`].
pub(super) unsafe fn duplicate_keyed<T: Keyed>(raw: *mut c_void) -> *mut c_void {
    // SAFETY: by the caller's promise.
    unsafe {
        duplicate(raw, |context: &T| {
            let copy = context.copy();
            forget_traces();
            copy.map_err(|failure| explained(context.owner(), failure))
        })
    }
}

/// Runs `f` on a context, under the key that it has.
///
/// # Safety
/// As for [`on`].
#[inline(always)]
pub(super) unsafe fn on_keyed<T: Keyed>(raw: *mut c_void, f: impl FnOnce(&mut T, &Instance) -> Done) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        on(raw, |context: &mut T, instance| {
            check_here(context.owner())?;
            f(context, instance)
        })
    }
}

/// A context behind a pointer.
///
/// # Safety
/// `raw` is null or a context of this type that nobody changes for `'a`.
pub(super) unsafe fn context<'a, T>(raw: *const c_void) -> Option<&'a Context<T>> {
    // SAFETY: by the caller's promise.
    unsafe { raw.cast::<Context<T>>().as_ref() }
}

/// The content of a context behind a pointer.
///
/// # Safety
/// As for [`context`].
pub(super) unsafe fn inner<'a, T>(raw: *const c_void) -> Option<&'a T> {
    // SAFETY: by the caller's promise.
    unsafe { context(raw) }.map(|context: &Context<T>| &context.inner)
}

/// A context behind a pointer, to change it.
///
/// # Safety
/// `raw` is null or a context of this type that nobody else uses for `'a`.
pub(super) unsafe fn context_mut<'a, T>(raw: *mut c_void) -> Option<&'a mut Context<T>> {
    // SAFETY: by the caller's promise.
    unsafe { raw.cast::<Context<T>>().as_mut() }
}

/// Runs `f` on a context that other threads may read meanwhile, and returns 1, or 0 with an error in the queue.
///
/// # Safety
/// `raw` is null or a context of this type that nobody changes meanwhile.
pub(super) unsafe fn shared<T>(raw: *const c_void, f: impl FnOnce(&T, &Instance) -> Done) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(context) = (unsafe { context::<T>(raw) }) else { return 0 };
    let instance = context.instance();
    c_int::from(guarded(instance.core(), || f(&context.inner, instance)).is_some())
}

/// Has a callback told of something by `tell`, and returns what it returns, or 0 with an error in the queue.
///
/// # Safety
/// As for [`context`].
pub(super) unsafe fn told<T>(
    raw: *const c_void,
    callback: Option<Callback>,
    tell: impl FnOnce(&T, Callback) -> Result<c_int, Failure>,
) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(context) = (unsafe { context::<T>(raw) }) else { return 0 };
    let done = guarded(context.instance().core(), || tell(&context.inner, callback.ok_or(Failure::SILENT)?));
    done.unwrap_or_default()
}

/// Runs `f` on a context, and returns what it does: whether all was done. `None` after a panic, with an error in the queue.
///
/// # Safety
/// As for [`on`]; `raw` is not null.
#[inline]
pub(super) unsafe fn quick<T>(raw: *mut c_void, f: impl FnOnce(&mut T) -> bool) -> Option<bool> {
    // SAFETY: by the caller's promise.
    let context = unsafe { &mut *raw.cast::<Context<T>>() };
    match catch_unwind(AssertUnwindSafe(|| f(&mut context.inner))) {
        Ok(done) => Some(done),
        Err(_) => {
            defect(context.instance().core());
            None
        }
    }
}

/// Runs `f` without a context, and returns 1 or 0. There is no queue to put an error into.
pub(super) fn alone(f: impl FnOnce() -> Done) -> c_int {
    c_int::from(matches!(catch_unwind(AssertUnwindSafe(f)), Ok(Ok(()))))
}

/// Writes a length that C asks for, if it does.
///
/// # Safety
/// `place` is null or writable.
pub(super) unsafe fn tell(place: *mut usize, len: usize) {
    if !place.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { place.write(len) };
    }
}

/// A string of bytes of C: `None` for null.
///
/// # Safety
/// `at` is null or readable for `len` bytes for `'a`.
pub(super) unsafe fn bytes<'a>(at: *const u8, len: usize) -> Option<&'a [u8]> {
    // SAFETY: by the caller's promise.
    (!at.is_null()).then(|| unsafe { core::slice::from_raw_parts(at, len) })
}
