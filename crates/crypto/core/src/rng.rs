//! Random number generators: deterministic ones (SP 800-90A) and the system's, under the kernel's names.

use crate::error::{KeyError, OpError};

/// A source of entropy, supplied by the host (shim, daemon, test); the core opens no device.
pub trait Entropy: Send + Sync {
    /// Fills `out` with fresh random bytes.
    ///
    /// # Errors
    /// [`OpError::Driver`] when the source cannot deliver.
    fn fill(&self, out: &mut [u8]) -> Result<(), OpError>;
}

/// A driver for one generator.
pub trait RngDriver: Send + Sync {
    /// Returns a generator that has not been seeded. It may keep `entropy` for reseeding.
    fn start(&self, entropy: std::sync::Arc<dyn Entropy>) -> Box<dyn RngState>;
    /// The seed length in bytes that the kernel reports (`seedsize`); 0 if the generator takes seeds of any length, or
    /// none.
    fn seed_len(&self) -> usize;
}

/// A generator.
pub trait RngState: Send + Sync {
    /// Seeds or reseeds from the entropy source, mixed with `seed` (the kernel's `crypto_rng_reset`; for a DRBG `seed`
    /// is the personalization string).
    ///
    /// # Errors
    /// [`KeyError::Length`] when the seed is too short, [`KeyError::Driver`] when entropy failed.
    fn seed(&mut self, seed: &[u8]) -> Result<(), KeyError>;
    /// Replaces the entropy source by `entropy` for the next [`Self::seed`], for tests and CAVP vectors
    /// (`ALG_SET_DRBG_ENTROPY`).
    ///
    /// # Errors
    /// [`KeyError::NotKeyed`] when this generator cannot be made deterministic.
    fn set_entropy(&mut self, entropy: &[u8]) -> Result<(), KeyError>;
    /// Fills `out`, mixing in `additional` input.
    ///
    /// # Errors
    /// [`OpError::Driver`] when the generator needs a seed and has none, or when the entropy source failed.
    fn generate(&mut self, additional: &[u8], out: &mut [u8]) -> Result<(), OpError>;
}
