//! AVX-512 (F, BW, DQ, VL): 16 messages with 32-bit words, 8 with 64-bit ones.

use super::hash;
use super::md::{Md5, Sha1, Sha224, Sha256, Sha384, Sha512};
use sealane_crypto::registry::Row;

pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("bmi2")
}

pub(super) fn rows() -> Vec<Row> {
    const MODULE: &str = "avx512";
    [
        hash::rows::<Md5, words32::Md5, words32::pairs::Md5>(MODULE),
        hash::rows::<Sha1, words32::Sha1, words32::pairs::Sha1>(MODULE),
        hash::rows::<Sha224, words32::Sha256, words32::pairs::Sha256>(MODULE),
        hash::rows::<Sha256, words32::Sha256, words32::pairs::Sha256>(MODULE),
        hash::rows::<Sha384, words64::Sha512, words64::pairs::Sha512>(MODULE),
        hash::rows::<Sha512, words64::Sha512, words64::pairs::Sha512>(MODULE),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Vectors of sixteen `u32`.
mod words32 {
    use super::super::kernels::{K_MD5, K_SHA256, kernel, md5, paired, sha1, sha2, states};
    use super::super::lanes::{Alike, Kernel, MAX_LANES, State, Tails};
    use core::arch::x86_64::*;
    use core::mem::MaybeUninit;

    type V = __m512i;
    type M = __mmask16;
    const LANES: usize = 16;

    /// Makes an array with an element for each lane. It is written out, because a loop would keep the array in memory
    /// and fill it with zeros first.
    macro_rules! each_lane {
        ($l:ident => $body:expr) => {
            each_lane!(@ $l, $body, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        };
        (@ $l:ident, $body:expr, $($n:literal),*) => {[$({ let $l = $n; $body }),*]};
    }

    macro_rules! op {
        ($(fn $name:ident $(<$(const $c:ident),*>)? ($($arg:ident),*) = $body:expr;)*) => {$(
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
            #[inline]
            fn $name $(<$(const $c: i32),*>)? ($($arg: V),*) -> V { $body }
        )*};
    }
    op! {
        fn add(a, b) = _mm512_add_epi32(a, b);
        fn xor(a, b) = _mm512_xor_si512(a, b);
        fn xor3(a, b, c) = _mm512_ternarylogic_epi32::<0x96>(a, b, c);
        fn ch(a, b, c) = _mm512_ternarylogic_epi32::<0xca>(a, b, c);
        fn maj(a, b, c) = _mm512_ternarylogic_epi32::<0xe8>(a, b, c);
        fn md5_g(b, c, d) = _mm512_ternarylogic_epi32::<0xca>(d, b, c);
        fn md5_i(b, c, d) = _mm512_ternarylogic_epi32::<0x39>(b, c, d);
        fn rotr<const R, const L>(a) = { const { assert!(R + L == 32) }; _mm512_ror_epi32::<R>(a) };
        fn swap_bytes(a) = _mm512_shuffle_epi8(a, _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203));
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn shr<const N: u32>(a: V) -> V {
        _mm512_srli_epi32::<N>(a)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn set1(a: u32) -> V {
        _mm512_set1_epi32(a as i32)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn settle(mut a: V) -> V {
        // SAFETY: no instruction at all.
        unsafe { core::arch::asm!("/* {0} */", inout(zmm_reg) a, options(pure, nomem, nostack, preserves_flags)) };
        a
    }

    /// The message schedule stays in registers.
    #[inline(always)]
    fn pin(_: &mut [V; 16]) {}

    fn mask(active: u32) -> M {
        active as M
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn select(mask: M, yes: V, no: V) -> V {
        _mm512_mask_mov_epi32(no, mask, yes)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn load(from: *const u32) -> V {
        // SAFETY: the caller has 64 aligned bytes there.
        unsafe { _mm512_load_si512(from.cast()) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn store(to: *mut u32, v: V) {
        // SAFETY: the caller has 64 aligned bytes there.
        unsafe { _mm512_store_si512(to.cast(), v) }
    }

    /// Rows become columns.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn transpose(r: &mut [V; 16]) {
        let mut t = [_mm512_setzero_si512(); 16];
        for i in 0..8 {
            t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
        }
        for b in [0, 4, 8, 12] {
            r[b] = _mm512_unpacklo_epi64(t[b], t[b + 2]);
            r[b + 1] = _mm512_unpackhi_epi64(t[b], t[b + 2]);
            r[b + 2] = _mm512_unpacklo_epi64(t[b + 1], t[b + 3]);
            r[b + 3] = _mm512_unpackhi_epi64(t[b + 1], t[b + 3]);
        }
        for i in 0..4 {
            t[i] = _mm512_shuffle_i32x4::<0x88>(r[i], r[i + 4]);
            t[i + 4] = _mm512_shuffle_i32x4::<0xdd>(r[i], r[i + 4]);
            t[i + 8] = _mm512_shuffle_i32x4::<0x88>(r[i + 8], r[i + 12]);
            t[i + 12] = _mm512_shuffle_i32x4::<0xdd>(r[i + 8], r[i + 12]);
        }
        for i in 0..8 {
            r[i] = _mm512_shuffle_i32x4::<0x88>(t[i], t[i + 8]);
            r[i + 8] = _mm512_shuffle_i32x4::<0xdd>(t[i], t[i + 8]);
        }
    }

    /// The sixteen words at each pointer, a vector for each word; writes all of `w`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn gather<const SWAP: bool>(from: &[*const u8], at: usize, w: &mut MaybeUninit<[V; 16]>) {
        let from: &[*const u8; LANES] = from.first_chunk().expect("a pointer for each lane");
        let mut r = each_lane!(l => {
            // SAFETY: the caller has 64 bytes there; a prefetch is valid for any address.
            let words = unsafe {
                _mm_prefetch::<_MM_HINT_T0>(from[l].wrapping_add(at + 256).cast());
                _mm512_loadu_si512(from[l].add(at).cast())
            };
            if SWAP { swap_bytes(words) } else { words }
        });
        transpose(&mut r);
        w.write(r);
    }

    /// As `gather`, for the ends of messages, each followed by 0x80 and zeros.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn gather_tails<const SWAP: bool>(from: &[*const u8], len: &[usize], w: &mut MaybeUninit<[V; 16]>) {
        let from: &[*const u8; LANES] = from.first_chunk().expect("a pointer for each lane");
        let len: &[usize; LANES] = len.first_chunk().expect("a length for each lane");
        let end = _mm512_set1_epi8(-128);
        let mut r = each_lane!(l => {
            let stop = 1u64 << len[l];
            // SAFETY: the mask leaves only the bytes of the message, and masked loads do not touch the others.
            let words = unsafe { _mm512_maskz_loadu_epi8(stop - 1, from[l].cast()) };
            let words = _mm512_mask_mov_epi8(words, stop, end);
            if SWAP { swap_bytes(words) } else { words }
        });
        transpose(&mut r);
        w.write(r);
    }

    /// The most bytes that [`short_ends`] takes, for which a transposition within each quarter of a vector is enough.
    const SHORT: usize = 16;

    /// The first five words of ends of one length, 1 to `SHORT` bytes; those after them are zeros.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn short_ends<const SWAP: bool>(from: &[*const u8], at: usize, len: usize) -> [V; 5] {
        let from = &from[..LANES];
        let stop = 1u32 << len;
        let have = (stop - 1) as __mmask16;
        // SAFETY: the mask leaves only the bytes of the message, and masked loads do not touch the others.
        let quarter = |lane: usize| unsafe { _mm_maskz_loadu_epi8(have, from[lane].wrapping_add(at).cast()) };
        let four = |lane: usize| {
            let v = _mm512_castsi128_si512(quarter(lane));
            let v = _mm512_inserti32x4::<1>(v, quarter(lane + 4));
            let v = _mm512_inserti32x4::<2>(v, quarter(lane + 8));
            let v = _mm512_inserti32x4::<3>(v, quarter(lane + 12));
            let end = _mm512_broadcast_i32x4(_mm_maskz_mov_epi8(stop as __mmask16, _mm_set1_epi8(-128)));
            let v = _mm512_or_si512(v, end);
            if SWAP { swap_bytes(v) } else { v }
        };
        let (a, b, c, d) = (four(0), four(1), four(2), four(3));
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (w0, w1) = (_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
        let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        let (w2, w3) = (_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
        let after = if SWAP { 1 << 31 } else { 0x80 };
        [w0, w1, w2, w3, set1(if len == 16 { after } else { 0 })]
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn join(low: __m256i, high: __m256i) -> V {
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    }

    /// The last two words of the padding.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn lengths<const SWAP: bool>(bits: &[u64]) -> [V; 2] {
        assert!(bits.len() >= LANES);
        let at = bits.as_ptr();
        // SAFETY: sixteen numbers are twice 64 bytes.
        let (a, b) = unsafe { (_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(8).cast())) };
        let low = join(_mm512_cvtepi64_epi32(a), _mm512_cvtepi64_epi32(b));
        let (a, b) = (_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
        let high = join(_mm512_cvtepi64_epi32(a), _mm512_cvtepi64_epi32(b));
        if SWAP { [high, low] } else { [low, high] }
    }

    /// Each lane's eight words, one after another: lanes i and i + 4 in element i, then 8 + i and 12 + i.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn untranspose<const SWAP: bool>(state: &[V; 8]) -> [V; 8] {
        // Within each quarter, four words of four lanes become four lanes of four words.
        let quarters = |[a, b, c, d]: [V; 4]| {
            let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
            let (l0, l1) = (_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
            let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
            let (l2, l3) = (_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
            if SWAP { [swap_bytes(l0), swap_bytes(l1), swap_bytes(l2), swap_bytes(l3)] } else { [l0, l1, l2, l3] }
        };
        let [a, b, c, d, e, f, g, h] = *state;
        let (low, high) = (quarters([a, b, c, d]), quarters([e, f, g, h]));
        // Quarter q of `low[i]` belongs to lane 4q + i; its other half is quarter q of `high[i]`.
        let first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
        let last = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
        let pair = |i: usize, index: V| _mm512_permutex2var_epi64(low[i], index, high[i]);
        [
            pair(0, first),
            pair(1, first),
            pair(2, first),
            pair(3, first),
            pair(0, last),
            pair(1, last),
            pair(2, last),
            pair(3, last),
        ]
    }

    /// Writes the first `len` bytes, 32 at most, of each lane's eight words to its pointer; lanes without one are left
    /// out.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn scatter<const SWAP: bool>(state: &[V; 8], to: &[*mut u8], len: usize) {
        let have = ((1u64 << len) - 1) as __mmask32;
        // Pairs of lanes: (0, 4), (1, 5), (2, 6), (3, 7), (8, 12), ...
        for (i, lanes) in untranspose::<SWAP>(state).into_iter().enumerate() {
            let lane = i % 4 + i / 4 * 8;
            if let Some(to) = to.get(lane) {
                // SAFETY: the caller has `len` bytes there; masked stores do not touch the others.
                unsafe { _mm256_mask_storeu_epi8(to.cast(), have, _mm512_castsi512_si256(lanes)) };
            }
            if let Some(to) = to.get(lane + 4) {
                // SAFETY: as above.
                unsafe { _mm256_mask_storeu_epi8(to.cast(), have, _mm512_extracti64x4_epi64::<1>(lanes)) };
            }
        }
    }

    macro_rules! kernels {
        () => {
            use super::super::super::kernels::{K_MD5, K_SHA256, kernel, md5, sha1, sha2, states};
            kernels!(@here);
        };
        (@here) => {
            states!(u32, "avx512f,avx512bw,avx512dq,avx512vl,bmi2");
            md5!(compress_md5, "avx512f,avx512bw,avx512dq,avx512vl,bmi2");
            sha1!(compress_sha1, "avx512f,avx512bw,avx512dq,avx512vl,bmi2");
            sha2!(compress_sha256, "avx512f,avx512bw,avx512dq,avx512vl,bmi2", K_SHA256,
                [2 30, 13 19, 22 10] [6 26, 11 21, 25 7] [7 25, 18 14, 3] [17 15, 19 13, 10]);
            kernel!(Md5, u32, "avx512f,avx512bw,avx512dq,avx512vl,bmi2", compress_md5, swap: false, tails: true);
            kernel!(Sha1, u32, "avx512f,avx512bw,avx512dq,avx512vl,bmi2", compress_sha1, swap: true, tails: true);
            kernel!(Sha256, u32, "avx512f,avx512bw,avx512dq,avx512vl,bmi2", compress_sha256, swap: true, tails: true);
        };
    }
    kernels!(@here);
    paired!(u32, "avx512f,avx512bw,avx512dq,avx512vl,bmi2",
        ops: [settle(a), add(a, b), xor(a, b), xor3(a, b, c), ch(a, b, c), maj(a, b, c), md5_g(b, c, d), md5_i(b, c, d)], kernels);
}

/// Vectors of eight `u64`.
mod words64 {
    use super::super::kernels::{K_SHA512, kernel, paired, sha2, states};
    use super::super::lanes::{Alike, Kernel, MAX_LANES, State, Tails};
    use core::arch::x86_64::*;
    use core::mem::MaybeUninit;

    type V = __m512i;
    type M = __mmask8;
    const LANES: usize = 8;

    /// Makes an array with an element for each lane, as with 32-bit words.
    macro_rules! each_lane {
        ($l:ident => $body:expr) => {
            each_lane!(@ $l, $body, 0, 1, 2, 3, 4, 5, 6, 7)
        };
        (@ $l:ident, $body:expr, $($n:literal),*) => {[$({ let $l = $n; $body }),*]};
    }

    macro_rules! op {
        ($(fn $name:ident $(<$(const $c:ident),*>)? ($($arg:ident),*) = $body:expr;)*) => {$(
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
            #[inline]
            fn $name $(<$(const $c: i32),*>)? ($($arg: V),*) -> V { $body }
        )*};
    }
    op! {
        fn add(a, b) = _mm512_add_epi64(a, b);
        fn xor3(a, b, c) = _mm512_ternarylogic_epi64::<0x96>(a, b, c);
        fn ch(a, b, c) = _mm512_ternarylogic_epi64::<0xca>(a, b, c);
        fn maj(a, b, c) = _mm512_ternarylogic_epi64::<0xe8>(a, b, c);
        fn rotr<const R, const L>(a) = { const { assert!(R + L == 64) }; _mm512_ror_epi64::<R>(a) };
        fn swap_bytes(a) = _mm512_shuffle_epi8(a, _mm512_set4_epi32(0x0809_0a0b, 0x0c0d_0e0f, 0x0001_0203, 0x0405_0607));
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn shr<const N: u32>(a: V) -> V {
        _mm512_srli_epi64::<N>(a)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn set1(a: u64) -> V {
        _mm512_set1_epi64(a as i64)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn settle(mut a: V) -> V {
        // SAFETY: no instruction at all.
        unsafe { core::arch::asm!("/* {0} */", inout(zmm_reg) a, options(pure, nomem, nostack, preserves_flags)) };
        a
    }

    /// The message schedule stays in registers.
    #[inline(always)]
    fn pin(_: &mut [V; 16]) {}

    fn mask(active: u32) -> M {
        active as M
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn select(mask: M, yes: V, no: V) -> V {
        _mm512_mask_mov_epi64(no, mask, yes)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn load(from: *const u64) -> V {
        // SAFETY: the caller has 64 aligned bytes there.
        unsafe { _mm512_load_si512(from.cast()) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn store(to: *mut u64, v: V) {
        // SAFETY: the caller has 64 aligned bytes there.
        unsafe { _mm512_store_si512(to.cast(), v) }
    }

    /// Rows become columns.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn transpose(r: [V; 8]) -> [V; 8] {
        let mut t = r;
        for i in [0, 2, 4, 6] {
            t[i] = _mm512_unpacklo_epi64(r[i], r[i + 1]);
            t[i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 1]);
        }
        // A quarter of t[i] holds a pair of rows at columns 2q + (i & 1).
        let mut u = t;
        for i in [0, 1] {
            for half in [0, 4] {
                u[half + i] = _mm512_shuffle_i64x2::<0x88>(t[half + i], t[half + i + 2]);
                u[half + i + 2] = _mm512_shuffle_i64x2::<0xdd>(t[half + i], t[half + i + 2]);
            }
        }
        let mut out = u;
        for i in [0, 1] {
            out[i] = _mm512_shuffle_i64x2::<0x88>(u[i], u[i + 4]);
            out[i + 4] = _mm512_shuffle_i64x2::<0xdd>(u[i], u[i + 4]);
            out[i + 2] = _mm512_shuffle_i64x2::<0x88>(u[i + 2], u[i + 6]);
            out[i + 6] = _mm512_shuffle_i64x2::<0xdd>(u[i + 2], u[i + 6]);
        }
        out
    }

    /// The sixteen words at each pointer, a vector for each word; writes all of `w`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn gather<const SWAP: bool>(from: &[*const u8], at: usize, w: &mut MaybeUninit<[V; 16]>) {
        let from: &[*const u8; LANES] = from.first_chunk().expect("a pointer for each lane");
        let half = |h: usize| {
            transpose(each_lane!(l => {
                // SAFETY: the caller has 128 bytes there.
                let words = unsafe { _mm512_loadu_si512(from[l].add(at + 64 * h).cast()) };
                if SWAP { swap_bytes(words) } else { words }
            }))
        };
        join(w, half(0), half(1));
    }

    /// As `gather`, for the ends of messages, each followed by 0x80 and zeros.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn gather_tails<const SWAP: bool>(from: &[*const u8], len: &[usize], w: &mut MaybeUninit<[V; 16]>) {
        let from: &[*const u8; LANES] = from.first_chunk().expect("a pointer for each lane");
        let len: &[usize; LANES] = len.first_chunk().expect("a length for each lane");
        let end = _mm512_set1_epi8(-128);
        let half = |h: usize| {
            transpose(each_lane!(l => {
                let stop = 1u128 << len[l];
                let (part, stop) = (((stop - 1) >> (64 * h)) as u64, (stop >> (64 * h)) as u64);
                // SAFETY: the mask leaves only the bytes of the message, and masked loads do not touch the others.
                let words = unsafe { _mm512_maskz_loadu_epi8(part, from[l].wrapping_add(64 * h).cast()) };
                let words = _mm512_mask_mov_epi8(words, stop, end);
                if SWAP { swap_bytes(words) } else { words }
            }))
        };
        join(w, half(0), half(1));
    }

    #[inline(always)]
    fn join(w: &mut MaybeUninit<[V; 16]>, low: [V; 8], high: [V; 8]) {
        let ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]) = (low, high);
        w.write([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]);
    }

    const SHORT: usize = 0;

    unsafe fn short_ends<const SWAP: bool>(_: &[*const u8], _: usize, _: usize) -> [V; 5] {
        unreachable!("no end is shorter than SHORT")
    }

    /// The last two words of the padding.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    fn lengths<const SWAP: bool>(bits: &[u64]) -> [V; 2] {
        assert!(bits.len() >= LANES);
        const { assert!(SWAP) };
        // SAFETY: the first eight numbers are 64 bytes.
        [set1(0), unsafe { _mm512_loadu_si512(bits.as_ptr().cast()) }]
    }

    /// Writes the first `len` bytes, 64 at most, of each lane's eight words to its pointer; lanes without one are left
    /// out.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
    #[inline]
    unsafe fn scatter<const SWAP: bool>(state: &[V; 8], to: &[*mut u8], len: usize) {
        let have = ((1u128 << len) - 1) as __mmask64;
        for (row, to) in transpose(*state).into_iter().zip(to) {
            let row = if SWAP { swap_bytes(row) } else { row };
            // SAFETY: the caller has `len` bytes there; masked stores do not touch the others.
            unsafe { _mm512_mask_storeu_epi8(to.cast(), have, row) };
        }
    }

    macro_rules! kernels {
        () => {
            use super::super::super::kernels::{K_SHA512, kernel, sha2, states};
            kernels!(@here);
        };
        (@here) => {
            states!(u64, "avx512f,avx512bw,avx512dq,avx512vl,bmi2");
            sha2!(compress_sha512, "avx512f,avx512bw,avx512dq,avx512vl,bmi2", K_SHA512,
                [28 36, 34 30, 39 25] [14 50, 18 46, 41 23] [1 63, 8 56, 7] [19 45, 61 3, 6]);
            kernel!(Sha512, u64, "avx512f,avx512bw,avx512dq,avx512vl,bmi2", compress_sha512, swap: true, tails: true);
        };
    }
    kernels!(@here);
    paired!(u64, "avx512f,avx512bw,avx512dq,avx512vl,bmi2", ops: [settle(a), add(a, b), xor3(a, b, c), ch(a, b, c), maj(a, b, c)], kernels);
}
