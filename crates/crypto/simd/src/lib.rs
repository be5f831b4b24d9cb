//! Our own SIMD kernels: for bursts of small messages under many keys, which no library does well (each lane of a vector has a
//! message of its own), and for AES on vectors.
//!
//! Every instruction set has its own rows (`avx512`, `avx2`, ...), which are tested and measured separately, and the
//! calibrated table chooses between them. A row exists only where the CPU has the instructions; on other architectures
//! there are none.

#[cfg(target_arch = "x86_64")]
mod aes;
#[cfg(target_arch = "x86_64")]
mod aes_kernels;
#[cfg(target_arch = "x86_64")]
mod aesni;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod cmac;
#[cfg(target_arch = "x86_64")]
mod gcm;
#[cfg(target_arch = "x86_64")]
mod gcm_drivers;
#[cfg(target_arch = "x86_64")]
mod gcm_kernels;
#[cfg(target_arch = "x86_64")]
mod gcm_stream;
#[cfg(target_arch = "x86_64")]
mod hash;
#[cfg(target_arch = "x86_64")]
mod kernels;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod md;
mod priority;
#[cfg(target_arch = "x86_64")]
mod vaes;
#[cfg(target_arch = "x86_64")]
mod vaes256;

use sealane_crypto::Row;

pub use priority::PRIORITY;

/// The rows that this CPU can run.
#[must_use]
pub fn rows() -> Vec<Row> {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "nothing to add elsewhere"))]
    let mut rows = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if aesni::available() {
            rows.extend(aesni::rows());
        }
        if vaes256::available() {
            rows.extend(vaes256::rows());
        }
        if vaes::available() {
            rows.extend(vaes::rows());
        }
        if avx2::available() {
            rows.extend(avx2::rows());
        }
        if avx512::available() {
            rows.extend(avx512::rows());
        }
    }
    rows
}
