//! Random bytes from the kernel.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills a buffer. Waits for the kernel's generator to be seeded, which happens once after boot.
///
/// # Panics
/// When the kernel lacks getrandom(2), which exists since 3.17.
pub fn fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(n) => bytes = &mut bytes[n..],
            Err(error) => assert_eq!(error, Errno::INTR, "getrandom: {error}"),
        }
    }
}
