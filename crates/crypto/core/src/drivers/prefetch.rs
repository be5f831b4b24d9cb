//! Asking for memory before it is needed.
#![cfg_attr(target_arch = "x86_64", allow(unsafe_code))]

/// A cache line in bytes.
const LINE: usize = 64;

/// Asks the CPU for the cache lines that `what` lies in, `lines` at most, and does not wait for them. Whoever goes over a burst
/// does so first, so that the misses of all its packets overlap. Where there is no such instruction nothing happens.
#[inline]
pub fn prefetch<T: ?Sized>(what: &T, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = core::ptr::from_ref(what).cast::<i8>();
        for line in 0..size_of_val(what).div_ceil(LINE).min(lines) {
            // SAFETY: the address is within `what`; and a prefetch changes nothing that a program can see, wherever it points.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.add(line * LINE)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (what, lines, LINE);
}
