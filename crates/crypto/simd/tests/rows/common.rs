//! Helpers of the tests: a generator of awkward inputs, rows as algorithms, memory that faults beyond its end.

use sealane_crypto::{Alg, Kind, Registry};
use sealane_crypto_portable::self_test;
use sealane_crypto_simd as simd;

/// A small generator (xorshift64*), seeded, so that a failure can be repeated.
pub(crate) struct Rand(u64);

impl Rand {
    pub(crate) fn new(seed: u64) -> Self {
        Rand(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    /// `data` cut into up to six pieces, some of them empty.
    pub(crate) fn cut<'a>(&mut self, data: &'a [u8]) -> Vec<&'a [u8]> {
        let mut cuts: Vec<usize> = (0..self.below(6)).map(|_| self.below(data.len() + 1)).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|w| &data[w[0]..w[1]]).collect()
    }
}

/// All SIMD rows of a kind, each as an algorithm of that one row, with its driver name.
pub(crate) fn rows(kind: Kind) -> Vec<(String, Alg)> {
    assert_eq!(simd::rows().is_empty(), !is_avx2(), "rows exist where AVX2 does");
    let registry = Registry::builder(self_test).rows(simd::rows()).build();
    registry
        .rows()
        .iter()
        .filter(|row| row.info.kind == kind)
        .map(|row| (row.driver.clone(), registry.lookup(kind, &row.driver).expect("a row has its driver name")))
        .collect()
}

/// The portable row of an algorithm.
pub(crate) fn portable(kind: Kind, name: &str) -> Alg {
    let registry = Registry::builder(|_| Ok(())).rows(sealane_crypto_portable::rows()).build();
    registry.lookup(kind, name).expect("every algorithm has a portable row")
}

/// Pages between two that fault.
pub(crate) struct Guarded {
    base: *mut u8,
    len: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    pub(crate) fn new(pages: usize) -> Self {
        let len = pages * PAGE;
        // SAFETY: a new anonymous mapping; its first and last page are made inaccessible.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let all = libc::mmap(core::ptr::null_mut(), len + 2 * PAGE, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(all, libc::MAP_FAILED);
            let base = all.cast::<u8>().add(PAGE);
            assert_eq!(libc::mprotect(base.cast(), len, libc::PROT_READ | libc::PROT_WRITE), 0);
            Guarded { base, len }
        }
    }

    /// The last `n` bytes before the page that faults.
    pub(crate) fn tail(&mut self, n: usize) -> &mut [u8] {
        assert!(n <= self.len);
        // SAFETY: within the accessible pages, borrowed as long as `self`.
        unsafe { core::slice::from_raw_parts_mut(self.base.add(self.len - n), n) }
    }

    /// The first `n` bytes after the page that faults.
    pub(crate) fn head(&mut self, n: usize) -> &mut [u8] {
        assert!(n <= self.len);
        // SAFETY: within the accessible pages, borrowed as long as `self`.
        unsafe { core::slice::from_raw_parts_mut(self.base, n) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made.
        unsafe { libc::munmap(self.base.sub(PAGE).cast(), self.len + 2 * PAGE) };
    }
}

#[cfg(target_arch = "x86_64")]
fn is_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_avx2() -> bool {
    false
}
