//! Wiping of small structs on the stack, whole words at a time.

/// A plain struct of numbers: any bytes are a value, zeros among them, and it has no destructor.
///
/// # Safety
/// That must be true of the type.
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

/// Overwrites `value` with zeros that the compiler may not leave out. `Zeroize` does the same byte by byte with
/// volatile stores, which costs more than the hash of a short message.
#[inline]
pub(crate) fn wipe<T: Plain>(value: &mut T) {
    // SAFETY: zeros are a value of a `Plain` type, and nothing is dropped.
    *value = unsafe { core::mem::zeroed() };
    zeroize::optimization_barrier(value);
}

/// A `Plain` value that is wiped when it goes.
#[repr(align(16))]
pub(crate) struct Wiped<T: Plain>(pub(crate) T);

impl<T: Plain> Drop for Wiped<T> {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}
