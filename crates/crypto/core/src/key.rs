//! Prepared keys.

use crate::error::KeyError;
use core::any::Any;
use sealane_cpu::prefetch;
use std::sync::Arc;

/// A key in the form in which one driver uses it: midstates, round keys, powers of H.
///
/// Contract for every driver: the bytes are wiped on drop; there is no `Debug`; and the key lies in memory that Rust
/// owns (without pointers into a C heap, to a thread-local, or to a per-process handle), because the shim shares
/// prepared keys between processes after `fork`.
pub trait PreparedKey: Any + Send + Sync {}

impl<T: Any + Send + Sync> PreparedKey for T {}

/// A driver with the key that it prepared.
pub(crate) struct Keyed<D: ?Sized> {
    pub(crate) driver: Arc<D>,
    pub(crate) key: Box<dyn PreparedKey>,
}

/// The drivers and prepared keys of one transform, one slot for each row of its [`Alg`](crate::Alg), same order. Clones
/// share them.
pub(crate) type Slots<D> = Arc<[Keyed<D>]>;

/// Has each of `drivers` prepare a key.
pub(crate) fn prepare<'a, D: ?Sized + 'a>(
    drivers: impl Iterator<Item = &'a Arc<D>>,
    prepare: impl Fn(&D) -> Result<Box<dyn PreparedKey>, KeyError>,
) -> Result<Slots<D>, KeyError> {
    drivers.map(|driver| Ok(Keyed { driver: driver.clone(), key: prepare(driver)? })).collect()
}

/// Cache lines of a key that are prefetched: the round keys of AES and the powers of H.
const WARM_LINES: usize = 24;

/// Prefetches the keys of a burst where they differ, so that their cache misses overlap.
pub(crate) fn warm<'a, D: ?Sized + 'a>(burst: impl Iterator<Item = &'a Slots<D>>, slot: usize) {
    let mut last = core::ptr::null();
    for slots in burst {
        if !core::ptr::eq(last, slots.as_ptr()) {
            last = slots.as_ptr();
            prefetch(&*slots[slot].key, WARM_LINES);
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
    key.downcast_ref::<K>().expect("a driver asks for the key type that its own prepare returned")
}
