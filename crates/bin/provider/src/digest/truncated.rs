//! SHA-512/224 and SHA-512/256 (FIPS 180-4 section 5.3.6): SHA-512 from other starting values, cut.

use sealane_crypto::Status;
use sealane_crypto::hash::HashState;
use sha2::digest::FixedOutputReset;
use sha2::{Digest, Sha512_224, Sha512_256};

/// A running hash, wiped on drop as its type is.
struct State<D>(D);

impl<D: Digest + FixedOutputReset + Clone + Send + Sync + 'static> HashState for State<D> {
    fn update(&mut self, data: &[u8]) {
        Digest::update(&mut self.0, data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        out.copy_from_slice(&self.0.finalize_reset()[..out.len()]);
        // Wiped where it is: one that was moved would leave its bytes.
        self.0 = D::new();
        Ok(())
    }

    fn reset(&mut self) {
        self.0 = D::new();
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(State(self.0.clone()))
    }
}

pub(crate) fn sha512_224() -> Box<dyn HashState> {
    Box::new(State(Sha512_224::new()))
}

pub(crate) fn sha512_256() -> Box<dyn HashState> {
    Box::new(State(Sha512_256::new()))
}
