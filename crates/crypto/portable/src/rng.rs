//! Random number generators: those of SP 800-90A under the names of Linux, and the host's own entropy.
//!
//! No maintained crate has all three mechanisms with reseeding and prediction resistance, so they are implemented here,
//! over the hashes and ciphers of the other drivers, and checked with NIST's vectors.

mod ctr;
mod drbg;
mod hash;
mod hmac;
mod row;

use row::row;
use sealane_crypto::error::{KeyError, OpError};
use sealane_crypto::registry::Row;
use sealane_crypto::rng::{Entropy, RngDriver, RngState};
use std::sync::Arc;

/// `jitterentropy_rng`. Linux measures the jitter of the CPU; here the host's entropy source serves under this name.
struct HostEntropy;

struct HostState(Arc<dyn Entropy>);

impl RngDriver for HostEntropy {
    fn start(&self, entropy: Arc<dyn Entropy>) -> Box<dyn RngState> {
        Box::new(HostState(entropy))
    }

    fn seed_len(&self) -> usize {
        0
    }
}

impl RngState for HostState {
    /// Checks that entropy is available. The seed is ignored, as in Linux.
    fn seed(&mut self, _: &[u8]) -> Result<(), KeyError> {
        self.0.fill(&mut [0]).map_err(|_| KeyError::Driver)
    }

    fn set_entropy(&mut self, _: &[u8]) -> Result<(), KeyError> {
        Err(KeyError::NotKeyed)
    }

    fn generate(&mut self, _: &[u8], out: &mut [u8]) -> Result<(), OpError> {
        self.0.fill(out)
    }
}

/// The generators of Linux 6.12, in its order of preference: the preferred one is last. Linux 7.3 has only that one.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![row("jitterentropy_rng", "jitterentropy_rng", HostEntropy)];
    for resist in [true, false] {
        let prefix = if resist { "drbg_pr_" } else { "drbg_nopr_" };
        let mut add = |name: &str, row: fn(&str, bool) -> Row| rows.push(row(&format!("{prefix}{name}"), resist));
        add("ctr_aes128", drbg::row::<ctr::Ctr<aes::Aes128, 32>>);
        add("ctr_aes192", drbg::row::<ctr::Ctr<aes::Aes192, 40>>);
        add("ctr_aes256", drbg::row::<ctr::Ctr<aes::Aes256, 48>>);
        add("sha384", drbg::row::<hash::HashDrbg<sha2::Sha384, 111>>);
        add("sha512", drbg::row::<hash::HashDrbg<sha2::Sha512, 111>>);
        add("sha256", drbg::row::<hash::HashDrbg<sha2::Sha256, 55>>);
        add("hmac_sha384", drbg::row::<hmac::HmacDrbg<sha2::Sha384>>);
        add("hmac_sha256", drbg::row::<hmac::HmacDrbg<sha2::Sha256>>);
        add("hmac_sha512", drbg::row::<hmac::HmacDrbg<sha2::Sha512>>);
    }
    rows
}
