//! Wiping of small structs on the stack, by whole words.

/// A struct that consists of integers only: all bit patterns are valid, so zeros are, and it has no destructor.
///
/// # Safety
/// The type must have these properties.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: arrays of integers.
unsafe impl<const N: usize> Plain for [u8; N] {}
// SAFETY: arrays of integers.
unsafe impl<const N: usize> Plain for [u32; N] {}
// SAFETY: arrays of integers.
unsafe impl<const N: usize> Plain for [u64; N] {}
// SAFETY: an array of integers and an integer.
unsafe impl Plain for aws_lc_sys::AES_KEY {}
// SAFETY: an array of integers.
unsafe impl Plain for aws_lc_sys::DES_key_schedule {}

/// Overwrites `value` with zeros; the barrier keeps the compiler from removing the stores. `Zeroize` stores byte by
/// byte, which takes longer than the hash of a short message.
#[inline]
pub(crate) fn wipe<T: Plain>(value: &mut T) {
    // SAFETY: zeros are a value of a `Plain` type, and nothing is dropped.
    *value = unsafe { core::mem::zeroed() };
    zeroize::optimization_barrier(value);
}

/// A `Plain` value that is wiped when it is dropped.
#[repr(align(16))]
pub(crate) struct Wiped<T: Plain>(pub(crate) T);

impl<T: Plain> Drop for Wiped<T> {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}
