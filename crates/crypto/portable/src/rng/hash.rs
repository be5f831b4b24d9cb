//! Hash_DRBG, SP 800-90A section 10.1.1.

use super::drbg::Mechanism;
use crate::hash::Hash;
use digest::{Digest, Output};
use std::marker::PhantomData;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// `N` is the seed length in bytes (table 2): 55 for SHA-256, 111 for SHA-384 and SHA-512.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct HashDrbg<D, const N: usize> {
    v: [u8; N],
    c: [u8; N],
    /// Requests since the last seeding, from 1.
    counter: u64,
    #[zeroize(skip)]
    hash: PhantomData<fn() -> D>,
}

/// `a += b` modulo 2^(8N), both in big endian; `b` is not longer than `a`.
fn add(a: &mut [u8], b: &[u8]) {
    let mut carry = 0;
    let b = b.iter().rev().copied().chain(std::iter::repeat(0));
    for (a, b) in a.iter_mut().rev().zip(b) {
        let sum = u16::from(*a) + u16::from(b) + carry;
        *a = sum as u8;
        carry = sum >> 8;
    }
}

fn hash<'a, D: Hash>(pieces: impl IntoIterator<Item = &'a &'a [u8]>) -> Output<D> {
    let mut hash = D::new();
    for piece in pieces {
        Digest::update(&mut hash, piece);
    }
    hash.finalize()
}

impl<D: Hash, const N: usize> HashDrbg<D, N> {
    /// Hash_df (section 10.3.1): `N` bytes from `head` and `input`.
    fn derive(head: &[&[u8]], input: &[&[u8]]) -> [u8; N] {
        let mut out = [0; N];
        let bits = (N as u32 * 8).to_be_bytes();
        for (counter, chunk) in (1u8..).zip(out.chunks_mut(<D as Digest>::output_size())) {
            let mut digest = hash::<D>([&[counter][..], &bits].iter().chain(head).chain(input));
            chunk.copy_from_slice(&digest[..chunk.len()]);
            digest.zeroize();
        }
        out
    }

    fn seed(&mut self, v: [u8; N]) {
        self.v = v;
        self.c = Self::derive(&[&[0], &self.v], &[]);
        self.counter = 1;
    }
}

impl<D: Hash, const N: usize> Mechanism for HashDrbg<D, N> {
    // SHA-256 and longer.
    const STRENGTH: usize = 32;

    fn instantiate(seed: &[&[u8]]) -> Self {
        let mut drbg = HashDrbg { v: [0; N], c: [0; N], counter: 0, hash: PhantomData };
        drbg.seed(Self::derive(&[], seed));
        drbg
    }

    fn reseed(&mut self, seed: &[&[u8]]) {
        let v = Self::derive(&[&[1], &self.v], seed);
        self.seed(v);
    }

    fn generate(&mut self, additional: &[&[u8]], out: &mut [u8]) {
        if additional.iter().any(|a| !a.is_empty()) {
            let mut w = hash::<D>([&[2][..], &self.v].iter().chain(additional));
            add(&mut self.v, &w);
            w.zeroize();
        }
        let mut data = self.v;
        for chunk in out.chunks_mut(<D as Digest>::output_size()) {
            let mut w = hash::<D>(&[&data[..]]);
            chunk.copy_from_slice(&w[..chunk.len()]);
            w.zeroize();
            add(&mut data, &[1]);
        }
        data.zeroize();
        let mut h = hash::<D>(&[&[3][..], &self.v]);
        add(&mut self.v, &h);
        h.zeroize();
        add(&mut self.v, &self.c);
        add(&mut self.v, &self.counter.to_be_bytes());
        self.counter += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::add;

    #[test]
    fn sums_carry_and_wrap() {
        for (a, b, sum) in [
            (&[0, 0xff][..], &[1][..], &[1, 0][..]),
            (&[0xff, 0xff], &[1], &[0, 0]),
            (&[1, 2, 3], &[0xff, 0xff], &[2, 2, 2]),
            (&[0x12], &[0x34], &[0x46]),
        ] {
            let mut got = a.to_vec();
            add(&mut got, b);
            assert_eq!(got, sum);
        }
    }
}
