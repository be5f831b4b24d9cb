//! The common envelope of the generators of SP 800-90A (section 9): seeding, reseeding, and the limits of a request.

use sealane_crypto::error::{KeyError, OpError};
use sealane_crypto::registry::Row;
use sealane_crypto::rng::{Entropy, RngDriver, RngState};
use std::marker::PhantomData;
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

/// Requests between two reseedings, as in Linux 7.3; SP 800-90A allows 2^48.
const MAX_REQUESTS: u32 = 4096;

/// The most bytes of one request (2^19 bits, tables 2 and 3); longer ones are divided.
const MAX_REQUEST_LEN: usize = 1 << 16;

/// The longest personalization string and additional input (2^35 bits), slightly reduced as in Linux.
const MAX_INPUT_LEN: u64 = u32::MAX as u64 - 1;

/// The highest security strength, in bytes.
const MAX_STRENGTH: usize = 32;

/// Bytes of fresh entropy that are added to the additional input of each request. They make requests independent of
/// earlier states (Woodage and Shumow, "An Analysis of NIST SP 800-90A"), and make two copies of a state, as after a
/// `fork`, differ at once. Linux 7.3 does the same.
const FRESH_LEN: usize = 32;

/// One mechanism (section 10) without its envelope. Inputs come in pieces that are concatenated. Wiped on drop.
pub(super) trait Mechanism: Send + Sync + Sized + 'static {
    /// Security strength in bytes.
    const STRENGTH: usize;
    /// Instantiates from the entropy input, the nonce and the personalization string.
    fn instantiate(seed: &[&[u8]]) -> Self;
    /// Reseeds from the entropy input and the additional input.
    fn reseed(&mut self, seed: &[&[u8]]);
    /// Fills `out`, at most 64 KiB, and updates the state.
    fn generate(&mut self, additional: &[&[u8]], out: &mut [u8]);
}

struct Drbg<M> {
    resist: bool,
    mechanism: PhantomData<fn() -> M>,
}

struct DrbgState<M> {
    entropy: Arc<dyn Entropy>,
    /// Replaces `entropy` in tests and validation.
    test_entropy: Option<Zeroizing<Vec<u8>>>,
    /// Prediction resistance: reseed before each request.
    resist: bool,
    mechanism: Option<M>,
    requests: u32,
}

impl<M: Mechanism> DrbgState<M> {
    /// Reseeds, or instantiates at the first call.
    fn seed_with(&mut self, input: &[u8]) -> Result<(), OpError> {
        if input.len() as u64 > MAX_INPUT_LEN {
            return Err(OpError::Length);
        }
        let mut fresh = Zeroizing::new([0; MAX_STRENGTH / 2 * 3]);
        let entropy: &[u8] = if let Some(test) = &self.test_entropy {
            test
        } else {
            // The nonce of an instantiation is half as long as the entropy (section 8.6.7), and both are random.
            let len = if self.mechanism.is_some() { M::STRENGTH } else { M::STRENGTH.div_ceil(2) * 3 };
            self.entropy.fill(&mut fresh[..len])?;
            &fresh[..len]
        };
        let seed = [entropy, input];
        match &mut self.mechanism {
            Some(mechanism) => mechanism.reseed(&seed),
            None => self.mechanism = Some(M::instantiate(&seed)),
        }
        self.requests = 0;
        Ok(())
    }

    fn request(&mut self, mut additional: &[u8], out: &mut [u8]) -> Result<(), OpError> {
        if self.mechanism.is_none() || additional.len() as u64 > MAX_INPUT_LEN {
            return Err(OpError::Driver);
        }
        if self.resist || self.requests >= MAX_REQUESTS {
            self.seed_with(additional)?;
            additional = &[];
        }
        let mut fresh = Zeroizing::new([0; FRESH_LEN]);
        let fresh: &[u8] = if self.test_entropy.is_some() {
            &[]
        } else {
            self.entropy.fill(&mut fresh[..])?;
            &fresh[..]
        };
        self.requests += 1;
        match &mut self.mechanism {
            Some(mechanism) => mechanism.generate(&[additional, fresh], out),
            None => return Err(OpError::Driver),
        }
        Ok(())
    }
}

impl<M: Mechanism> RngDriver for Drbg<M> {
    fn start(&self, entropy: Arc<dyn Entropy>) -> Box<dyn RngState> {
        Box::new(DrbgState::<M> { entropy, test_entropy: None, resist: self.resist, mechanism: None, requests: 0 })
    }

    /// 0, which accepts any length: the "seed" is a personalization string.
    fn seed_len(&self) -> usize {
        0
    }
}

impl<M: Mechanism> RngState for DrbgState<M> {
    fn seed(&mut self, seed: &[u8]) -> Result<(), KeyError> {
        self.seed_with(seed).map_err(|e| if e == OpError::Length { KeyError::Length } else { KeyError::Driver })
    }

    fn set_entropy(&mut self, entropy: &[u8]) -> Result<(), KeyError> {
        self.test_entropy = Some(Zeroizing::new(entropy.to_vec()));
        Ok(())
    }

    fn generate(&mut self, additional: &[u8], out: &mut [u8]) -> Result<(), OpError> {
        for at in (0..out.len()).step_by(MAX_REQUEST_LEN) {
            let end = out.len().min(at + MAX_REQUEST_LEN);
            if let Err(e) = self.request(additional, &mut out[at..end]) {
                out.zeroize();
                return Err(e);
            }
        }
        Ok(())
    }
}

/// A row of `stdrng`.
pub(super) fn row<M: Mechanism>(driver: &str, resist: bool) -> Row {
    super::row::row("stdrng", driver, Drbg::<M> { resist, mechanism: PhantomData })
}
