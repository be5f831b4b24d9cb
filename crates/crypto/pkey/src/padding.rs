//! The padding of PKCS #1 v1.5 in what RSA has decrypted, looked at in constant time.
//!
//! Whether it is right must not be learnt: it tells who may send ciphertexts what others' ciphertexts hold (Bleichenbacher 1998).
//! So nothing here fails, and neither branches nor addresses depend on the padding, until a text of some length is given back.

use crate::PREMASTER_LEN;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq, ConstantTimeLess};
use zeroize::Zeroizing;

/// The bytes before a text: `00 02`, at least eight that are not zero, and `00` (RFC 8017, section 7.2.1).
const OVERHEAD: usize = 11;
/// The lengths that are drawn for a text in place of a wrong one.
const DRAWS: usize = 128;
/// The length of a key that texts are derived from, in bytes.
const PRF_LEN: usize = 32;

/// HMAC-SHA-256 of a message under the key of the derivation.
///
/// A ciphertext has one key: HMAC-SHA-256 of it, under SHA-256 of the private exponent, both as long as the modulus.
pub trait Prf {
    /// The MAC of these bytes.
    fn mac(&self, message: &[u8]) -> [u8; PRF_LEN];
}

/// The text in an encoded message as long as the modulus, at least 64 bytes. In place of a wrong one comes a text which `prf`
/// decides, of length from 0 to the longest: implicit rejection as in OpenSSL since 3.2, and draft-irtf-cfrg-rsa-guidance.
///
/// # Panics
/// If `em` is shorter than 64 bytes or longer than 8 KiB, which moduli of ours are not.
#[must_use]
pub fn pkcs1(em: &[u8], prf: &impl Prf) -> Zeroizing<Vec<u8>> {
    let (whole, begin) = text(em, prf);
    // From here on the length is known, as it will be to the client.
    Zeroizing::new(whole[begin as usize..].to_vec())
}

/// The text that [`pkcs1`] gives, as the end of bytes as long as `em`, and the place where it begins.
fn text(em: &[u8], prf: &impl Prf) -> (Zeroizing<Vec<u8>>, u32) {
    let len = em.len();
    assert!((64..=8192).contains(&len), "an encoded message of {len} bytes");
    let synthetic = derived(prf, b"message", len);
    let draws = derived(prf, b"length", DRAWS * 2);

    // The last draw below the bound, after the bits above its highest one are gone.
    let bound = (len - 2 - 8) as u32;
    let mask = bound.next_power_of_two().wrapping_sub(1) | bound;
    let mut synthetic_len = 0u32;
    for draw in draws.chunks_exact(2) {
        let candidate = (u32::from(draw[0]) << 8 | u32::from(draw[1])) & mask;
        synthetic_len.conditional_assign(&candidate, candidate.ct_lt(&bound));
    }

    let mut good = em[0].ct_eq(&0) & em[1].ct_eq(&2);
    let (mut found, mut zero_at) = (Choice::from(0), 0u32);
    for (at, byte) in (0..).zip(em).skip(2) {
        let first = byte.ct_eq(&0) & !found;
        zero_at.conditional_assign(&at, first);
        found |= first;
    }
    good &= found & !zero_at.ct_lt(&(OVERHEAD as u32 - 1));
    let begin = u32::conditional_select(&(len as u32 - synthetic_len), &(zero_at + 1), good);

    let mut whole = Zeroizing::new(vec![0u8; len]);
    for ((to, right), other) in whole.iter_mut().zip(em).zip(&synthetic[..]) {
        *to = u8::conditional_select(other, right, good);
    }
    (whole, begin)
}

/// The premaster secret in an encoded message, or another secret, which `prf` decides, if its padding, its length or its version
/// is wrong (RFC 5246, section 7.4.7.1). `negotiated` is a version that may stand in place of the client's; 0 for none.
///
/// Length and version are those of the text that [`pkcs1`] gives, also where that stands in place of a wrong one. So the result
/// follows from this text and from bytes that are nothing else's: for whoever may ask for both, and again with other versions,
/// it tells no more of the padding than the text does. Random bytes would: only a right secret comes twice.
///
/// # Panics
/// As [`pkcs1`].
#[must_use]
pub fn premaster(em: &[u8], prf: &impl Prf, client_version: u16, negotiated: u16) -> Zeroizing<Vec<u8>> {
    let (whole, begin) = text(em, prf);
    let other = derived(prf, b"premaster", PREMASTER_LEN);
    let at = em.len() - PREMASTER_LEN;
    let secret = &whole[at..];
    let version = u16::from_be_bytes([secret[0], secret[1]]);
    let second = version.ct_eq(&negotiated) & !negotiated.ct_eq(&0);
    let good = begin.ct_eq(&(at as u32)) & (version.ct_eq(&client_version) | second);
    let mut chosen = Zeroizing::new(vec![0u8; PREMASTER_LEN]);
    for ((to, right), other) in chosen.iter_mut().zip(secret).zip(&other[..]) {
        *to = u8::conditional_select(other, right, good);
    }
    chosen
}

/// `len` bytes: the MACs of a counter, the label and the number of bits, one after the other.
fn derived(prf: &impl Prf, label: &[u8], len: usize) -> Zeroizing<Vec<u8>> {
    let bits = (len as u16).wrapping_mul(8);
    let mut bytes = Zeroizing::new(vec![0u8; len]);
    for (counter, block) in (0u16..).zip(bytes.chunks_mut(PRF_LEN)) {
        let message = [&counter.to_be_bytes()[..], label, &bits.to_be_bytes()].concat();
        block.copy_from_slice(&Zeroizing::new(prf.mac(&message))[..block.len()]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No MAC, and enough to tell texts from one another.
    struct Fake(u8);

    impl Prf for Fake {
        fn mac(&self, message: &[u8]) -> [u8; PRF_LEN] {
            let mut state = 0x9e37_79b9_u32 ^ u32::from(self.0);
            for byte in message {
                state = (state ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
            }
            std::array::from_fn(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
        }
    }

    fn em(padding: usize, text: &[u8]) -> Vec<u8> {
        [&[0, 2][..], &vec![7; padding], &[0], text].concat()
    }

    #[test]
    fn a_right_padding_gives_its_text() {
        for len in [0, 1, 100, 256 - OVERHEAD] {
            let text = vec![0; len];
            assert_eq!(*pkcs1(&em(256 - 3 - len, &text), &Fake(1)), text);
        }
    }

    #[test]
    fn each_wrong_padding_gives_the_text_of_its_key() {
        let right = em(253 - 4, b"text");
        let synthetic = |key| pkcs1(&[9; 256], &Fake(key));
        assert!(synthetic(1) != synthetic(2));
        let change = |at: usize, byte: u8| {
            let mut wrong = right.clone();
            wrong[at] = byte;
            wrong
        };
        let mut wrongs: Vec<Vec<u8>> = (2..10).map(|at| change(at, 0)).collect();
        wrongs.extend([change(0, 1), change(1, 1), change(1, 3), change(251, 5), vec![0; 256]]);
        for wrong in wrongs {
            assert_eq!(pkcs1(&wrong, &Fake(1)), synthetic(1));
            assert_eq!(pkcs1(&wrong, &Fake(2)), synthetic(2));
        }
        // Eight bytes of padding are enough.
        assert_eq!(pkcs1(&change(10, 0), &Fake(1)).len(), 256 - 11);
    }

    #[test]
    fn the_lengths_of_texts_in_place_of_wrong_ones_vary_within_bounds() {
        let lens: std::collections::BTreeSet<usize> = (0..=255).map(|key| pkcs1(&[9; 256], &Fake(key)).len()).collect();
        assert!(lens.len() > 50 && lens.iter().all(|len| *len < 256 - 10), "{lens:?}");
    }

    #[test]
    fn a_premaster_secret_is_taken_or_replaced_whole() {
        let other = derived(&Fake(1), b"premaster", PREMASTER_LEN);
        let mut secret = [5; PREMASTER_LEN];
        secret[..2].copy_from_slice(&[3, 3]);
        let right = em(256 - 3 - 48, &secret);
        let taken = |em: &[u8], client, negotiated| *premaster(em, &Fake(1), client, negotiated) == secret;
        assert!(taken(&right, 0x0303, 0) && taken(&right, 0x0304, 0x0303));
        assert!(!taken(&right, 0x0302, 0) && !taken(&right, 0x0302, 0x0301));
        let mut zero = right.clone();
        zero[208..210].fill(0);
        let mut wrongs = vec![zero];
        for (at, byte) in [(0, 1), (1, 1), (2, 0), (100, 0), (206, 0), (207, 1)] {
            let mut wrong = right.clone();
            wrong[at] = byte;
            wrongs.push(wrong);
        }
        wrongs.extend([47, 49].map(|len| em(253 - len, &vec![3; len])));
        for wrong in wrongs {
            assert_eq!(premaster(&wrong, &Fake(1), 0x0303, 0), other);
        }
    }

    /// A text in place of a wrong one that has the length and version of a premaster secret is taken for one. Otherwise whoever has
    /// asked for the text would learn here that the padding is wrong.
    #[test]
    fn a_premaster_secret_follows_from_the_text_that_is_given() {
        let (mut taken, mut replaced) = (0, 0);
        for key in 0..=255 {
            // With 64 bytes the text has one of 54 lengths, so some of these keys give 48.
            let (text, wrong) = (pkcs1(&[9; 64], &Fake(key)), [9; 64]);
            let other = derived(&Fake(key), b"premaster", PREMASTER_LEN);
            if text.len() == PREMASTER_LEN {
                let version = u16::from_be_bytes([text[0], text[1]]);
                assert_eq!(premaster(&wrong, &Fake(key), version, 0), text);
                assert_eq!(premaster(&wrong, &Fake(key), version ^ 1, version), text);
                assert_eq!(premaster(&wrong, &Fake(key), version ^ 1, 0), other);
                taken += 1;
            } else {
                assert!((0..=u16::MAX).step_by(257).all(|version| premaster(&wrong, &Fake(key), version, 0) == other));
                replaced += 1;
            }
        }
        assert!(taken > 0 && replaced > 0, "{taken} {replaced}");
    }
}
