//! Wiping of memory.

use core::ptr;

/// Overwrites memory with zeros.
///
/// # Safety
/// It is the caller's to write, for `len` bytes.
pub(crate) unsafe fn wipe(at: *mut u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        ptr::write_bytes(at, 0, len);
        zeroize::optimization_barrier(core::slice::from_raw_parts(at, len));
    }
}
