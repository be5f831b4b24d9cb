//! The system's random bytes.

/// Fills a buffer, waiting for the kernel's generator to be seeded once after the boot.
///
/// # Panics
/// Where the kernel has no getrandom(2), as only kernels before 3.17.
pub fn fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        // SAFETY: the kernel writes no more than this many bytes of a live buffer.
        let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => bytes = &mut bytes[n..],
            Err(_) => {
                let error = std::io::Error::last_os_error();
                assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "getrandom: {error}");
            }
        }
    }
}
