//! HMAC_DRBG, SP 800-90A section 10.1.2.

use super::drbg::Mechanism;
use crate::hash::Hash;
use crate::mac::HmacKey;
use digest::{Digest, Output};
use zeroize::Zeroize;

pub(super) struct HmacDrbg<D: Hash> {
    key: HmacKey<D>,
    v: Output<D>,
}

impl<D: Hash> Drop for HmacDrbg<D> {
    fn drop(&mut self) {
        // The key wipes itself.
        self.v.zeroize();
    }
}

impl<D: Hash> HmacDrbg<D> {
    /// HMAC_DRBG_Update.
    fn update(&mut self, provided: &[&[u8]]) {
        let empty = provided.iter().all(|p| p.is_empty());
        for round in if empty { 0..1 } else { 0..2u8 } {
            let head = [&self.v[..], &[round]];
            let mut key = self.key.tag(head.iter().chain(provided));
            self.key = HmacKey::new(&key);
            key.zeroize();
            self.v = self.key.tag([&&self.v[..]]);
        }
    }
}

impl<D: Hash> Mechanism for HmacDrbg<D> {
    // SHA-256 and longer.
    const STRENGTH: usize = 32;

    fn instantiate(seed: &[&[u8]]) -> Self {
        let mut v = Output::<D>::default();
        let key = HmacKey::new(&v[..<D as Digest>::output_size()]);
        v.fill(1);
        let mut drbg = HmacDrbg { key, v };
        drbg.update(seed);
        drbg
    }

    fn reseed(&mut self, seed: &[&[u8]]) {
        self.update(seed);
    }

    fn generate(&mut self, additional: &[&[u8]], out: &mut [u8]) {
        if additional.iter().any(|a| !a.is_empty()) {
            self.update(additional);
        }
        for chunk in out.chunks_mut(<D as Digest>::output_size()) {
            self.v = self.key.tag([&&self.v[..]]);
            chunk.copy_from_slice(&self.v[..chunk.len()]);
        }
        self.update(additional);
    }
}
