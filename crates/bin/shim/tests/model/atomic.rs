//! Atomics whose contents each process has for itself, unless they lie in memory that it shares (world.rs). They are as
//! large as the real ones.

use super::world;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

macro_rules! atomics {
    ($($Name:ident $(<$T:ident>)?: $type:ty, $to:expr, $from:expr;)+) => {$(
        #[repr(transparent)]
        pub(crate) struct $Name $(<$T>)? {
            initial: UnsafeCell<$type>,
        }

        // SAFETY: what is in it never changes.
        unsafe impl $(<$T>)? Sync for $Name $(<$T>)? {}
        // SAFETY: as above.
        unsafe impl $(<$T>)? Send for $Name $(<$T>)? {}

        impl $(<$T>)? $Name $(<$T>)? {
            pub(crate) const fn new(initial: $type) -> Self {
                Self { initial: UnsafeCell::new(initial) }
            }

            /// The present value; no other thread runs before.
            pub(crate) fn look(&self) -> $type {
                // SAFETY: it never changes.
                let initial = unsafe { *self.initial.get() };
                $from(world::read(core::ptr::from_ref(self) as usize, $to(initial)))
            }

            fn put(&self, value: $type) {
                world::write(core::ptr::from_ref(self) as usize, $to(value));
            }

            pub(crate) fn load(&self, _: Ordering) -> $type {
                world::step();
                self.look()
            }

            pub(crate) fn store(&self, value: $type, _: Ordering) {
                world::step();
                self.put(value);
            }

            pub(crate) fn swap(&self, value: $type, _: Ordering) -> $type {
                world::step();
                let old = self.look();
                self.put(value);
                old
            }

            pub(crate) fn compare_exchange(
                &self,
                seen: $type,
                new: $type,
                _: Ordering,
                _: Ordering,
            ) -> Result<$type, $type> {
                world::step();
                let old = self.look();
                if old != seen {
                    return Err(old);
                }
                self.put(new);
                Ok(old)
            }
        }
    )+};
}

atomics! {
    AtomicBool: bool, u64::from, |v| v != 0;
    AtomicU32: u32, u64::from, |v| v as u32;
    AtomicU64: u64, |v| v, |v| v;
    AtomicUsize: usize, |v| v as u64, |v| v as usize;
    AtomicPtr<T>: *mut T, |v: *mut T| v as usize as u64, |v| v as usize as *mut T;
}

impl AtomicU32 {
    pub(crate) fn fetch_add(&self, n: u32, _: Ordering) -> u32 {
        world::step();
        let old = self.look();
        self.put(old.wrapping_add(n));
        old
    }

    pub(crate) fn fetch_sub(&self, n: u32, _: Ordering) -> u32 {
        world::step();
        let old = self.look();
        world::must(old >= n, "a count falls below zero");
        self.put(old - n);
        old
    }

    pub(crate) fn as_ptr(&self) -> *mut u32 {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Default for AtomicU32 {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(core::ptr::null_mut())
    }
}

/// Memory is sequentially consistent here; in the shim the gate's membarrier(2) stands for the fence that entering lacks.
pub(crate) fn compiler_fence(_: Ordering) {}
/// As above.
pub(crate) fn fence(_: Ordering) {}

macro_rules! local {
    (static $name:ident: core::cell::Cell<$type:ty> = $($rest:tt)*) => {
        static $name: crate::world::Local<$type> = crate::world::Local::new();
    };
}
pub(crate) use local as thread_local;
