//! AVX2: 8 messages with 32-bit words, 4 with 64-bit ones.

use super::hash;
use super::md::{Md5, Sha1, Sha224, Sha256, Sha384, Sha512};
use sealane_crypto::registry::Row;

pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

pub(super) fn rows() -> Vec<Row> {
    const MODULE: &str = "avx2";
    [
        hash::rows::<Md5, words32::Md5x8, words32::Md5x8>(MODULE),
        hash::rows::<Sha1, words32::Sha1x8, words32::Sha1x8>(MODULE),
        hash::rows::<Sha224, words32::Sha256x8, words32::Sha256x8>(MODULE),
        hash::rows::<Sha256, words32::Sha256x8, words32::Sha256x8>(MODULE),
        hash::rows::<Sha384, words64::Sha512x4, words64::Sha512x4>(MODULE),
        hash::rows::<Sha512, words64::Sha512x4, words64::Sha512x4>(MODULE),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Vectors of eight `u32`.
mod words32 {
    use super::super::kernels::{K_MD5, K_SHA256, kernel, md5, pin, sha1, sha2, states};
    use super::super::lanes::{Alike, Kernel, MAX_LANES, State, Tails};
    use core::arch::x86_64::*;
    use core::mem::MaybeUninit;

    type V = __m256i;
    type M = __m256i;
    const LANES: usize = 8;

    macro_rules! op {
        ($(fn $name:ident $(<$(const $c:ident),*>)? ($($arg:ident),*) = $body:expr;)*) => {$(
            #[target_feature(enable = "avx2")]
            #[inline]
            fn $name $(<$(const $c: i32),*>)? ($($arg: V),*) -> V { $body }
        )*};
    }
    op! {
        fn add(a, b) = _mm256_add_epi32(a, b);
        fn xor(a, b) = _mm256_xor_si256(a, b);
        fn xor3(a, b, c) = xor(xor(a, b), c);
        fn ch(a, b, c) = xor(c, _mm256_and_si256(a, xor(b, c)));
        fn maj(a, b, c) = _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_or_si256(a, b)));
        fn md5_g(b, c, d) = ch(d, b, c);
        fn md5_i(b, c, d) = xor(c, _mm256_or_si256(b, xor(d, _mm256_set1_epi32(-1))));
        fn rotr<const R, const L>(a) = _mm256_or_si256(_mm256_srli_epi32::<R>(a), _mm256_slli_epi32::<L>(a));
        fn shr<const N>(a) = _mm256_srli_epi32::<N>(a);
        fn swap_bytes(a) = _mm256_shuffle_epi8(a, _mm256_set_epi32(
            0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203, 0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203));
        fn select(mask, yes, no) = _mm256_blendv_epi8(no, yes, mask);
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn set1(a: u32) -> V {
        _mm256_set1_epi32(a as i32)
    }

    pin!();

    #[target_feature(enable = "avx2")]
    #[inline]
    fn settle(mut a: V) -> V {
        // SAFETY: no instruction at all.
        unsafe { core::arch::asm!("/* {0} */", inout(ymm_reg) a, options(pure, nomem, nostack, preserves_flags)) };
        a
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn mask(active: u32) -> M {
        let bit = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
        _mm256_cmpeq_epi32(_mm256_and_si256(set1(active), bit), bit)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn load(from: *const u32) -> V {
        // SAFETY: the caller has 32 aligned bytes there.
        unsafe { _mm256_load_si256(from.cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn store(to: *mut u32, v: V) {
        // SAFETY: the caller has 32 aligned bytes there.
        unsafe { _mm256_store_si256(to.cast(), v) }
    }

    /// Rows become columns.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn transpose(r: [V; 8]) -> [V; 8] {
        let mut t = r;
        for i in [0, 2, 4, 6] {
            t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
            t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
        }
        let mut u = t;
        for b in [0, 4] {
            u[b] = _mm256_unpacklo_epi64(t[b], t[b + 2]);
            u[b + 1] = _mm256_unpackhi_epi64(t[b], t[b + 2]);
            u[b + 2] = _mm256_unpacklo_epi64(t[b + 1], t[b + 3]);
            u[b + 3] = _mm256_unpackhi_epi64(t[b + 1], t[b + 3]);
        }
        let mut out = u;
        for i in 0..4 {
            out[i] = _mm256_permute2x128_si256::<0x20>(u[i], u[i + 4]);
            out[i + 4] = _mm256_permute2x128_si256::<0x31>(u[i], u[i + 4]);
        }
        out
    }

    /// The sixteen words at each pointer, a vector for each word.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn gather<const SWAP: bool>(from: &[*const u8], at: usize, w: &mut MaybeUninit<[V; 16]>) {
        let w = w.write([_mm256_setzero_si256(); 16]);
        for half in [0, 1] {
            let mut rows = [_mm256_setzero_si256(); LANES];
            for (row, from) in rows.iter_mut().zip(from) {
                // SAFETY: the caller has 64 bytes there.
                let words = unsafe { _mm256_loadu_si256(from.add(at + 32 * half).cast()) };
                *row = if SWAP { swap_bytes(words) } else { words };
            }
            w[8 * half..8 * half + 8].copy_from_slice(&transpose(rows));
        }
    }

    /// Writes each lane's eight words to its pointer.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn scatter<const SWAP: bool>(state: &[V; 8], to: &[*mut u8], len: usize) {
        assert_eq!(len, size_of::<[V; 8]>() / LANES);
        for (row, to) in transpose(*state).iter().zip(to) {
            let row = if SWAP { swap_bytes(*row) } else { *row };
            // SAFETY: the caller has 32 bytes there.
            unsafe { _mm256_storeu_si256(to.cast(), row) };
        }
    }

    states!(u32, "avx2");
    md5!(compress_md5, "avx2");
    sha1!(compress_sha1, "avx2");
    sha2!(compress_sha256, "avx2", K_SHA256,
        [2 30, 13 19, 22 10] [6 26, 11 21, 25 7] [7 25, 18 14, 3] [17 15, 19 13, 10]);
    kernel!(Md5x8, u32, "avx2", compress_md5, swap: false, tails: false);
    kernel!(Sha1x8, u32, "avx2", compress_sha1, swap: true, tails: false);
    kernel!(Sha256x8, u32, "avx2", compress_sha256, swap: true, tails: false);
}

/// Vectors of four `u64`.
mod words64 {
    use super::super::kernels::{K_SHA512, kernel, pin, sha2, states};
    use super::super::lanes::{Alike, Kernel, MAX_LANES, State, Tails};
    use core::arch::x86_64::*;
    use core::mem::MaybeUninit;

    type V = __m256i;
    type M = __m256i;
    const LANES: usize = 4;

    macro_rules! op {
        ($(fn $name:ident $(<$(const $c:ident),*>)? ($($arg:ident),*) = $body:expr;)*) => {$(
            #[target_feature(enable = "avx2")]
            #[inline]
            fn $name $(<$(const $c: i32),*>)? ($($arg: V),*) -> V { $body }
        )*};
    }
    op! {
        fn add(a, b) = _mm256_add_epi64(a, b);
        fn xor(a, b) = _mm256_xor_si256(a, b);
        fn xor3(a, b, c) = xor(xor(a, b), c);
        fn ch(a, b, c) = xor(c, _mm256_and_si256(a, xor(b, c)));
        fn maj(a, b, c) = _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_or_si256(a, b)));
        fn rotr<const R, const L>(a) = _mm256_or_si256(_mm256_srli_epi64::<R>(a), _mm256_slli_epi64::<L>(a));
        fn shr<const N>(a) = _mm256_srli_epi64::<N>(a);
        fn swap_bytes(a) = _mm256_shuffle_epi8(a, _mm256_set_epi32(
            0x0809_0a0b, 0x0c0d_0e0f, 0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f, 0x0001_0203, 0x0405_0607));
        fn select(mask, yes, no) = _mm256_blendv_epi8(no, yes, mask);
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn set1(a: u64) -> V {
        _mm256_set1_epi64x(a as i64)
    }

    pin!();

    #[target_feature(enable = "avx2")]
    #[inline]
    fn settle(mut a: V) -> V {
        // SAFETY: no instruction at all.
        unsafe { core::arch::asm!("/* {0} */", inout(ymm_reg) a, options(pure, nomem, nostack, preserves_flags)) };
        a
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn mask(active: u32) -> M {
        let bit = _mm256_set_epi64x(8, 4, 2, 1);
        _mm256_cmpeq_epi64(_mm256_and_si256(set1(u64::from(active)), bit), bit)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn load(from: *const u64) -> V {
        // SAFETY: the caller has 32 aligned bytes there.
        unsafe { _mm256_load_si256(from.cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn store(to: *mut u64, v: V) {
        // SAFETY: the caller has 32 aligned bytes there.
        unsafe { _mm256_store_si256(to.cast(), v) }
    }

    /// Rows become columns.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn transpose(r: [V; 4]) -> [V; 4] {
        let (a, b) = (_mm256_unpacklo_epi64(r[0], r[1]), _mm256_unpackhi_epi64(r[0], r[1]));
        let (c, d) = (_mm256_unpacklo_epi64(r[2], r[3]), _mm256_unpackhi_epi64(r[2], r[3]));
        [
            _mm256_permute2x128_si256::<0x20>(a, c),
            _mm256_permute2x128_si256::<0x20>(b, d),
            _mm256_permute2x128_si256::<0x31>(a, c),
            _mm256_permute2x128_si256::<0x31>(b, d),
        ]
    }

    /// The sixteen words at each pointer, a vector for each word.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn gather<const SWAP: bool>(from: &[*const u8], at: usize, w: &mut MaybeUninit<[V; 16]>) {
        let w = w.write([_mm256_setzero_si256(); 16]);
        for quarter in 0..4 {
            let mut rows = [_mm256_setzero_si256(); LANES];
            for (row, from) in rows.iter_mut().zip(from) {
                // SAFETY: the caller has 128 bytes there.
                let words = unsafe { _mm256_loadu_si256(from.add(at + 32 * quarter).cast()) };
                *row = if SWAP { swap_bytes(words) } else { words };
            }
            w[4 * quarter..4 * quarter + 4].copy_from_slice(&transpose(rows));
        }
    }

    /// Writes each lane's eight words to its pointer.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn scatter<const SWAP: bool>(state: &[V; 8], to: &[*mut u8], len: usize) {
        assert_eq!(len, size_of::<[V; 8]>() / LANES);
        for half in [0, 1] {
            let words = [state[4 * half], state[4 * half + 1], state[4 * half + 2], state[4 * half + 3]];
            for (row, to) in transpose(words).iter().zip(to) {
                let row = if SWAP { swap_bytes(*row) } else { *row };
                // SAFETY: the caller has 64 bytes there, of which one half is written.
                unsafe { _mm256_storeu_si256(to.add(32 * half).cast(), row) };
            }
        }
    }

    states!(u64, "avx2");
    sha2!(compress_sha512, "avx2", K_SHA512,
        [28 36, 34 30, 39 25] [14 50, 18 46, 41 23] [1 63, 8 56, 7] [19 45, 61 3, 6]);
    kernel!(Sha512x4, u64, "avx2", compress_sha512, swap: true, tails: false);
}
