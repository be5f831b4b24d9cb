//! VAES on 256 bits, for CPUs without AVX-512 (Zen 3, Alder Lake and later clients): two blocks a vector, eight vectors in flight.

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
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = aes::rows::<Vaes>();
    rows.extend(cmac::rows::<VaesChains>());
    rows.extend(gcm_drivers::rows::<VaesGcm>());
    rows.into_iter().map(|row| row.leaving_traces(aes::TRACES)).collect()
}

type V = __m256i;
/// Blocks of a vector.
const B: usize = 2;

macro_rules! op {
    ($(fn $name:ident ($($arg:ident),*) = $body:expr;)*) => {$(
        #[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
        #[inline]
        fn $name ($($arg: V),*) -> V { $body }
    )*};
}
op! {
    fn zero() = _mm256_setzero_si256();
    fn xor(a, b) = _mm256_xor_si256(a, b);
    fn enc(a, key) = _mm256_aesenc_epi128(a, key);
    fn enc_last(a, key) = _mm256_aesenclast_epi128(a, key);
    fn dec(a, key) = _mm256_aesdec_epi128(a, key);
    fn dec_last(a, key) = _mm256_aesdeclast_epi128(a, key);
    fn count_on(a) = _mm256_add_epi64(a, _mm256_set_epi64x(0, 2, 0, 2));
    fn big_endian(a) = _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(_mm_set_epi32(0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f)));
    fn shift_in(before, now) = _mm256_permute2x128_si256::<0x21>(before, now);
    fn shift_out(a) = _mm256_permute2x128_si256::<0x81>(a, a);
    fn product_00(a, b) = _mm256_clmulepi64_epi128::<0x00>(a, b);
    fn product_11(a, b) = _mm256_clmulepi64_epi128::<0x11>(a, b);
    fn xor3(a, b, c) = xor(a, xor(b, c));
    fn swap_halves(a) = _mm256_shuffle_epi32::<0x4e>(a);
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
fn spread(block: &[u8; BLOCK]) -> V {
    // SAFETY: 16 bytes.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(block.as_ptr().cast()) })
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
unsafe fn load(from: *const u8) -> V {
    // SAFETY: the caller has a vector there.
    unsafe { _mm256_loadu_si256(from.cast()) }
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
unsafe fn store(to: *mut u8, v: V) {
    // SAFETY: the caller has a vector there.
    unsafe { _mm256_storeu_si256(to.cast(), v) }
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
unsafe fn load_part(from: *const u8, n: usize) -> V {
    // SAFETY: the caller has n bytes there, 1 to 32; none of the others is touched.
    unsafe {
        match n {
            32 => load(from),
            16 => _mm256_zextsi128_si256(_mm_loadu_si128(from.cast())),
            _ => {
                let mut vector = [0u8; W];
                from.copy_to_nonoverlapping(vector.as_mut_ptr(), n);
                load(vector.as_ptr())
            }
        }
    }
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
unsafe fn store_part(to: *mut u8, n: usize, v: V) {
    // SAFETY: as above.
    unsafe {
        match n {
            32 => store(to, v),
            16 => _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(v)),
            _ => {
                let mut vector = [0u8; W];
                store(vector.as_mut_ptr(), v);
                vector.as_ptr().copy_to_nonoverlapping(to, n);
            }
        }
    }
}

/// The first `n` bytes, 1 to 32, before zeros.
#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
fn keep(v: V, n: usize) -> V {
    const MASK: [u8; 2 * W] = {
        let mut mask = [0; 2 * W];
        let mut i = 0;
        while i < W {
            mask[i] = 0xff;
            i += 1;
        }
        mask
    };
    // SAFETY: `n` is a vector's length at most, and a vector is left.
    _mm256_and_si256(v, unsafe { load(MASK[W - n..].as_ptr()) })
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
fn widen(block: __m128i) -> V {
    _mm256_zextsi128_si256(block)
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
fn lowest(v: V) -> __m128i {
    _mm256_castsi256_si128(v)
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
fn fold(v: V) -> __m128i {
    _mm_xor_si128(lowest(v), _mm256_extracti128_si256::<1>(v))
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
fn counters(counter: u128) -> V {
    let (high, low) = ((counter >> 64) as i64, counter as i64);
    _mm256_add_epi64(_mm256_set_epi64x(high, low, high, low), _mm256_set_epi64x(0, 1, 0, 0))
}

/// Times x to the power `S`; `REST` is 64 - S.
#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
fn times_x<const S: i32, const REST: i32>(t: V) -> V {
    let over = _mm256_srli_epi64::<REST>(t);
    let wrapped = _mm256_clmulepi64_epi128::<0x01>(over, _mm256_set_epi64x(0, 0x87, 0, 0x87));
    xor(xor(_mm256_slli_epi64::<S>(t), _mm256_bslli_epi128::<8>(over)), wrapped)
}

#[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
#[inline]
unsafe fn gather(from: &[*const u8], at: usize) -> V {
    // SAFETY: the caller has a block at each of the two.
    unsafe {
        let block = |lane: usize| _mm_loadu_si128(from[lane].add(at).cast());
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(block(0)), block(1))
    }
}

modes!(Vaes, "vaes-avx2", "aes,avx2,vaes,vpclmulqdq");
chains!(VaesChains, "vaes-avx2", "aes,avx2,vaes,vpclmulqdq", 8, 8);
gcm!(VaesGcm, "vaes-avx2", "aes,avx2,vaes,vpclmulqdq");
