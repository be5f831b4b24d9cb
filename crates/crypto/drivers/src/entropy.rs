//! The system's random generator.

use sealane_crypto::OpError;
use sealane_crypto::rng::Entropy;

/// `getrandom(2)`: blocks until the kernel's generator is seeded, once after boot.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, out: &mut [u8]) -> Result<(), OpError> {
        let mut done = 0;
        while done < out.len() {
            let rest = &mut out[done..];
            // SAFETY: the pointer and length are of a live slice; getrandom writes at most that much.
            let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
            match usize::try_from(n) {
                Ok(n) => done += n,
                Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err(OpError::Driver),
            }
        }
        Ok(())
    }
}
