//! Keys that a driver has prepared.

use core::any::Any;
use sealane_cpu::prefetch;

/// A key in the form in which one driver uses it: midstates, round keys, powers of H.
///
/// Contract for every driver: the bytes are wiped on drop; there is no `Debug`; and all of it lives in Rust-owned
/// memory (no pointer into a C heap, to a thread-local, or to a per-process handle), because the shim shares prepared
/// keys between processes after `fork`.
pub trait PreparedKey: Any + Send + Sync {}

impl<T: Any + Send + Sync> PreparedKey for T {}

/// The prepared keys of one transform: one for each candidate driver of its [`Alg`](crate::Alg), same order. Clones share
/// them.
pub(crate) type Keys = std::sync::Arc<[Box<dyn PreparedKey>]>;

/// How many cache lines of a key are asked for ahead: AES' round keys and the powers of H.
const WARM_LINES: usize = 24;

/// Asks for the memory of a burst's keys where they differ, so that the misses overlap.
pub(crate) fn warm<'a>(burst: impl Iterator<Item = &'a Keys>, slot: usize) {
    let mut last = core::ptr::null();
    for keys in burst {
        if !core::ptr::eq(last, keys.as_ptr()) {
            last = keys.as_ptr();
            prefetch(&*keys[slot], WARM_LINES);
        }
    }
}

/// The key that the driver in `slot` prepared.
///
/// # Panics
/// When `K` is not the type that this driver's `prepare` returned: a bug in the driver.
pub(crate) fn downcast<K: 'static>(keys: &Keys, slot: usize) -> &K {
    as_prepared(&*keys[slot])
}

/// For drivers: a prepared key as the type that their own `prepare` returned.
///
/// # Panics
/// When it is of another type: a bug in the driver.
#[must_use]
pub fn as_prepared<K: 'static>(key: &dyn PreparedKey) -> &K {
    let key: &dyn Any = key;
    key.downcast_ref::<K>().expect("a driver asks for the key type that its own prepare returned")
}
