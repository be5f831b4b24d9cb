//! VAES on 512 bits: four blocks a vector, eight vectors in flight.

use super::aes::{self, BLOCK, Modes, Rounds, double};
use super::aes_kernels::{chains, modes};
use super::cmac::{self, Chains, LaneBlocks, LaneKeys, MAX_LANES};
use super::gcm::{GROUP, Gcm, GcmKey, NONCE_LEN, Powers, State, first_counter, only_block};
use super::gcm_drivers;
use super::gcm_kernels::gcm;
use core::arch::x86_64::*;
use core::mem::MaybeUninit;
use sealane_crypto::registry::Row;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::wipe::wipe;

pub(super) fn available() -> bool {
    super::aesni::available()
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = aes::rows::<Vaes>();
    rows.extend(cmac::rows::<VaesChains>());
    rows.extend(gcm_drivers::rows::<VaesGcm>());
    rows
}

type V = __m512i;
/// Blocks of a vector.
const B: usize = 4;

macro_rules! op {
    ($(fn $name:ident ($($arg:ident),*) = $body:expr;)*) => {$(
        #[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
        #[inline]
        fn $name ($($arg: V),*) -> V { $body }
    )*};
}
op! {
    fn zero() = _mm512_setzero_si512();
    fn xor(a, b) = _mm512_xor_si512(a, b);
    fn enc(a, key) = _mm512_aesenc_epi128(a, key);
    fn enc_last(a, key) = _mm512_aesenclast_epi128(a, key);
    fn dec(a, key) = _mm512_aesdec_epi128(a, key);
    fn dec_last(a, key) = _mm512_aesdeclast_epi128(a, key);
    fn count_on(a) = _mm512_add_epi64(a, _mm512_set_epi64(0, 4, 0, 4, 0, 4, 0, 4));
    fn big_endian(a) = _mm512_shuffle_epi8(a, _mm512_set4_epi32(0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f));
    fn shift_in(before, now) = _mm512_alignr_epi64::<6>(now, before);
    fn shift_out(a) = _mm512_alignr_epi64::<2>(zero(), a);
    fn product_00(a, b) = _mm512_clmulepi64_epi128::<0x00>(a, b);
    fn product_11(a, b) = _mm512_clmulepi64_epi128::<0x11>(a, b);
    fn xor3(a, b, c) = _mm512_ternarylogic_epi64::<0x96>(a, b, c);
    fn swap_halves(a) = _mm512_shuffle_epi32::<0x4e>(a);
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
fn spread(block: &[u8; BLOCK]) -> V {
    // SAFETY: 16 bytes.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(block.as_ptr().cast()) })
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
unsafe fn load(from: *const u8) -> V {
    // SAFETY: the caller has a vector there.
    unsafe { _mm512_loadu_si512(from.cast()) }
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
unsafe fn store(to: *mut u8, v: V) {
    // SAFETY: the caller has a vector there.
    unsafe { _mm512_storeu_si512(to.cast(), v) }
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
unsafe fn load_part(from: *const u8, n: usize) -> V {
    // SAFETY: the caller has n bytes there, 1 to 64; masked loads do not touch the others.
    unsafe { _mm512_maskz_loadu_epi8(u64::MAX >> (64 - n), from.cast()) }
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
unsafe fn store_part(to: *mut u8, n: usize, v: V) {
    // SAFETY: the caller has n bytes there, 1 to 64; masked stores do not touch the others.
    unsafe { _mm512_mask_storeu_epi8(to.cast(), u64::MAX >> (64 - n), v) }
}

/// The first `n` bytes, 1 to 64, before zeros.
#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
fn keep(v: V, n: usize) -> V {
    _mm512_maskz_mov_epi8(u64::MAX >> (64 - n), v)
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
fn widen(block: __m128i) -> V {
    _mm512_zextsi128_si512(block)
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
fn lowest(v: V) -> __m128i {
    _mm512_castsi512_si128(v)
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
fn fold(v: V) -> __m128i {
    let half = _mm256_xor_si256(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v));
    _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half))
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
fn counters(counter: u128) -> V {
    let (high, low) = ((counter >> 64) as i64, counter as i64);
    let first = _mm512_set_epi64(high, low, high, low, high, low, high, low);
    _mm512_add_epi64(first, _mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0))
}

/// Times x to the power `S`; `REST` is 64 - S.
#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
fn times_x<const S: i32, const REST: i32>(t: V) -> V {
    let over = _mm512_srl_epi64(t, _mm_cvtsi32_si128(REST));
    let wrapped = _mm512_clmulepi64_epi128::<0x01>(over, _mm512_set4_epi32(0, 0, 0, 0x87));
    let shifted = _mm512_sll_epi64(t, _mm_cvtsi32_si128(S));
    _mm512_ternarylogic_epi64::<0x96>(shifted, _mm512_bslli_epi128::<8>(over), wrapped)
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
unsafe fn gather(from: &[*const u8], at: usize) -> V {
    // SAFETY: the caller has a block at each of the four.
    unsafe {
        let block = |lane: usize| _mm_loadu_si128(from[lane].add(at).cast());
        let v = _mm512_castsi128_si512(block(0));
        let v = _mm512_inserti32x4::<1>(v, block(1));
        let v = _mm512_inserti32x4::<2>(v, block(2));
        _mm512_inserti32x4::<3>(v, block(3))
    }
}

modes!(Vaes, "vaes", "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq");
chains!(VaesChains, "vaes", "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq", 4, 8);
gcm!(VaesGcm, "vaes", "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq");
