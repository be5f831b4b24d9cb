//! Fetching memory before it is needed.

/// A cache line in bytes.
const LINE: usize = 64;

/// Fetches the cache lines of `what` into the CPU's first cache, `lines` at most, without waiting for them. Code that
/// walks over a burst calls this for all its packets first, so that their cache misses overlap. It does nothing on
/// architectures other than x86-64.
#[inline]
pub fn prefetch<T: ?Sized>(what: &T, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = core::ptr::from_ref(what).cast::<i8>();
        for line in 0..size_of_val(what).div_ceil(LINE).min(lines) {
            // SAFETY: the address is within `what`, and a prefetch has no effect that a program can see, wherever it
            // points.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.add(line * LINE)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (what, lines, LINE);
}
