//! Random bytes from the kernel.

/// Fills a buffer. Waits for the kernel's generator to be seeded, which happens once after boot.
///
/// # Panics
/// When the kernel lacks getrandom(2), which exists since 3.17.
pub fn fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        // SAFETY: the kernel writes at most this many bytes of a live buffer.
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
