//! AES-NI: one block a vector, eight vectors in flight.

use super::aes::{self, BLOCK, Modes, Rounds, double};
use super::aes_kernels::{chains, modes};
use super::cmac::{self, Chains, LaneBlocks, LaneKeys, MAX_LANES};
use core::arch::x86_64::*;
use sealane_crypto::registry::Row;

pub(super) fn available() -> bool {
    is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("avx")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("ssse3")
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = aes::rows::<Ni>();
    rows.extend(cmac::rows::<NiChains>());
    rows.into_iter().map(|row| row.leaving_traces(aes::TRACES)).collect()
}

type V = __m128i;
/// Blocks of a vector.
const B: usize = 1;

macro_rules! op {
    ($(fn $name:ident ($($arg:ident),*) = $body:expr;)*) => {$(
        #[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
        #[inline]
        fn $name ($($arg: V),*) -> V { $body }
    )*};
}
op! {
    fn zero() = _mm_setzero_si128();
    fn xor(a, b) = _mm_xor_si128(a, b);
    fn enc(a, key) = _mm_aesenc_si128(a, key);
    fn enc_last(a, key) = _mm_aesenclast_si128(a, key);
    fn dec(a, key) = _mm_aesdec_si128(a, key);
    fn dec_last(a, key) = _mm_aesdeclast_si128(a, key);
    fn count_on(a) = _mm_add_epi64(a, _mm_set_epi64x(0, 1));
    fn big_endian(a) = _mm_shuffle_epi8(a, _mm_set_epi32(0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f));
}

#[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
#[inline]
fn shift_in(before: V, _: V) -> V {
    before
}

#[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
#[inline]
fn spread(block: &[u8; BLOCK]) -> V {
    // SAFETY: 16 bytes.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

#[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
#[inline]
unsafe fn load(from: *const u8) -> V {
    // SAFETY: the caller has a vector there.
    unsafe { _mm_loadu_si128(from.cast()) }
}

#[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
#[inline]
unsafe fn store(to: *mut u8, v: V) {
    // SAFETY: the caller has a vector there.
    unsafe { _mm_storeu_si128(to.cast(), v) }
}

#[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
#[inline]
unsafe fn load_part(from: *const u8, n: usize) -> V {
    if n == BLOCK {
        // SAFETY: the caller has n bytes there.
        return unsafe { load(from) };
    }
    let mut block = [0u8; BLOCK];
    // SAFETY: the caller has n bytes there, fewer than a block.
    unsafe { from.copy_to_nonoverlapping(block.as_mut_ptr(), n) };
    spread(&block)
}

#[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
#[inline]
unsafe fn store_part(to: *mut u8, n: usize, v: V) {
    let mut block = [0u8; BLOCK];
    // SAFETY: the caller has n bytes there, a block at most.
    unsafe {
        if n == BLOCK {
            return store(to, v);
        }
        store(block.as_mut_ptr(), v);
        block.as_ptr().copy_to_nonoverlapping(to, n);
    }
}

#[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
#[inline]
fn counters(counter: u128) -> V {
    _mm_set_epi64x((counter >> 64) as i64, counter as i64)
}

/// Times x to the power `S`; `REST` is 64 - S.
#[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
#[inline]
fn times_x<const S: i32, const REST: i32>(t: V) -> V {
    let over = _mm_srli_epi64::<REST>(t);
    let wrapped = _mm_clmulepi64_si128::<0x01>(over, _mm_set_epi64x(0, 0x87));
    xor(xor(_mm_slli_epi64::<S>(t), _mm_bslli_si128::<8>(over)), wrapped)
}

#[target_feature(enable = "aes,avx,pclmulqdq,ssse3")]
#[inline]
unsafe fn gather(from: &[*const u8], at: usize) -> V {
    // SAFETY: the caller has a block there.
    unsafe { load(from[0].add(at)) }
}

modes!(Ni, "aesni", "aes,avx,pclmulqdq,ssse3");
chains!(NiChains, "aesni", "aes,avx,pclmulqdq,ssse3", 8, 8);
