//! Prepared keys.

use crate::error::{KeyError, OpError, Status};
use crate::wipe::wipe_traces;
use core::any::Any;
use sealane_cpu::prefetch;
use sealane_guarded::{Opened, Typed};
use std::sync::Arc;

/// A key in the form in which one driver uses it: midstates, round keys, powers of H.
///
/// Contract for every driver: the bytes are wiped on drop; there is no `Debug`; and the key lies in the value itself, not behind a
/// pointer of it (to the heap of Rust or C, to a thread-local, or to a per-process handle), except in a
/// [`Held`](sealane_guarded::Held) or in a transform of another algorithm: the core moves prepared keys to guarded memory where the
/// process has it, and in the shim they lie in the home of their socket, which is wiped with it.
pub trait PreparedKey: Any + Send + Sync {}

impl<T: Any + Send + Sync> PreparedKey for T {}

/// A row's driver.
pub(crate) struct RowDriver<'a, D: ?Sized> {
    pub(crate) driver: &'a Arc<D>,
    /// As [`Row::traces`](crate::Row::traces).
    pub(crate) traces: usize,
}

/// A driver with the key that it prepared.
pub(crate) struct Keyed<D: ?Sized> {
    pub(crate) driver: Arc<D>,
    pub(crate) key: Typed<dyn PreparedKey>,
    pub(crate) traces: usize,
}

/// A key in use: guarded memory is open. At the end what a driver has left of a guarded key is overwritten.
#[must_use]
pub(crate) struct InUse {
    traces: usize,
    _open: Opened,
}

impl InUse {
    #[inline]
    pub(crate) fn new(open: Opened, is_guarded: bool, traces: usize) -> Self {
        InUse { traces: if is_guarded { traces } else { 0 }, _open: open }
    }
}

impl Drop for InUse {
    #[inline]
    fn drop(&mut self) {
        if self.traces > 0 {
            wipe_traces(self.traces);
        }
    }
}

impl<D: ?Sized> Keyed<D> {
    /// The key, for as long as guarded memory is open.
    #[inline]
    pub(crate) fn key(&self) -> &dyn PreparedKey {
        self.key.get()
    }

    /// The same, as the type that the driver's `prepare` returned.
    ///
    /// # Panics
    /// When it is of another type: a bug in the driver.
    #[inline]
    pub(crate) fn key_as<K: 'static>(&self) -> &K {
        self.key.get_as::<K>().expect(ANOTHER_TYPE)
    }

    /// Whether the key lies in guarded memory.
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        self.key.is_guarded()
    }

    /// Whether the key can be used in this process: not in a child of the one in whose guarded memory it lies.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.key.is_here()
    }

    /// Opens guarded memory for an operation with the key.
    ///
    /// # Errors
    /// [`OpError::Driver`] when the key is not here.
    #[inline]
    pub(crate) fn open(&self) -> Result<InUse, OpError> {
        let open = self.key.open().ok_or(OpError::Driver)?;
        Ok(InUse::new(open, self.is_guarded(), self.traces))
    }

    /// The same for a burst, of whose keys this is one; others may be guarded.
    #[inline]
    pub(crate) fn open_for_burst(&self) -> InUse {
        InUse::new(sealane_guarded::open(), sealane_guarded::is_established(), self.traces)
    }
}

/// The drivers and prepared keys of one transform, one slot for each row of its [`Alg`](crate::Alg), same order. Clones
/// share them.
pub(crate) type Slots<D> = Arc<[Keyed<D>]>;

/// Has each of `drivers` prepare a key.
pub(crate) fn prepare<'a, D: ?Sized + 'a>(
    drivers: impl Iterator<Item = RowDriver<'a, D>>,
    prepare: impl Fn(&D) -> Result<Box<dyn PreparedKey>, KeyError>,
) -> Result<Slots<D>, KeyError> {
    let _open = sealane_guarded::begin().map_err(|_| KeyError::Driver)?;
    let held = |key| Typed::new(key, |key: &dyn PreparedKey| key).map_err(|_| KeyError::Driver);
    let keyed = |RowDriver { driver, traces }: RowDriver<'a, D>| {
        Ok(Keyed { driver: driver.clone(), key: held(prepare(driver)?)?, traces })
    };
    drivers.map(keyed).collect()
}

/// Has a driver compute the operations of a burst whose keys are here; the others fail.
#[inline]
pub(crate) fn burst<O, D: ?Sized + 'static>(
    ops: &mut [O],
    keyed: impl Fn(&O) -> &Keyed<D>,
    mut compute: impl FnMut(&mut [O]),
    status: impl Fn(&mut O) -> &mut Status,
) {
    if !sealane_guarded::is_established() {
        return compute(ops);
    }
    let _open = keyed(&ops[0]).open_for_burst();
    for run in ops.chunk_by_mut(|a, b| keyed(a).is_here() == keyed(b).is_here()) {
        if keyed(&run[0]).is_here() {
            compute(run);
        } else {
            run.iter_mut().for_each(|op| *status(op) = Err(OpError::Driver));
        }
    }
}

/// Cache lines of a key that are prefetched: the round keys of AES and the powers of H.
const WARM_LINES: usize = 24;

/// Prefetches the keys of a burst where they differ, so that their cache misses overlap.
pub(crate) fn warm<'a, D: ?Sized + 'a>(burst: impl Iterator<Item = &'a Slots<D>>, slot: usize) {
    let mut last = core::ptr::null();
    for slots in burst {
        if !core::ptr::eq(last, slots.as_ptr()) {
            last = slots.as_ptr();
            prefetch(slots[slot].key(), WARM_LINES);
        }
    }
}

/// For drivers: a prepared key as the type that their own `prepare` returned.
///
/// # Panics
/// When it is of another type: a bug in the driver.
#[inline]
#[must_use]
pub fn as_prepared<K: 'static>(key: &dyn PreparedKey) -> &K {
    let key: &dyn Any = key;
    key.downcast_ref::<K>().expect(ANOTHER_TYPE)
}

const ANOTHER_TYPE: &str = "a driver asks for the key type that its own prepare returned";
