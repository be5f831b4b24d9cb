//! The portable hashes, MACs and generators, beyond their self-tests: all short lengths, and other implementations.

use digest::block_api::BlockSizeUser;
use digest::{Digest, KeyInit, Mac};
use sealane_crypto::error::{KeyError, OpError};
use sealane_crypto::hash::HashState;
use sealane_crypto::rng::Entropy;
use sealane_crypto::selftest::vectors;
use sealane_crypto::{KeyUse, Kind, Lengths, Registry};
use sealane_crypto_portable::{self as portable, registry, self_test};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn every_row_has_a_vector_and_passes() {
    let registry = registry();
    for row in registry.rows() {
        let name = if row.info.kind == Kind::Rng { &row.driver } else { &row.info.name };
        // The host's entropy under a name of the kernel's, whose output cannot be predicted.
        let random = name == "jitterentropy_rng";
        assert!(random || !vectors::of(name).is_empty(), "{name} has no vector");
        if let Err(what) = registry.self_test(row) {
            panic!("{what}");
        }
    }
}

/// Pseudorandom numbers that are the same in each run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// Adds `text` in pieces of random length, some of them empty.
fn update_in_pieces(state: &mut dyn HashState, text: &[u8], numbers: &mut Numbers) {
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(numbers.below(rest.len().min(150) + 1));
        state.update(piece);
        rest = tail;
    }
}

#[test]
fn pieces_forks_and_truncation_agree_at_all_lengths() {
    let registry = registry();
    let mut numbers = Numbers(1);
    let text = numbers.bytes(70_000);
    for row in registry.rows().iter().filter(|r| r.info.kind == Kind::Hash) {
        let name = &row.info.name;
        let alg = registry.lookup(Kind::Hash, &row.driver).unwrap();
        let key = match row.info.key_use {
            KeyUse::Required => Some(numbers.bytes(row.info.key_lens.min().max(16).min(row.info.key_lens.max()))),
            KeyUse::Optional => Some(Vec::new()),
            KeyUse::None => None,
        };
        let mac = key.as_ref().map(|key| alg.mac(key).unwrap());
        let hash = (row.info.key_use == KeyUse::None).then(|| alg.hash());
        let one = |data: &[&[u8]], out: &mut [u8]| match (&mac, &hash) {
            (Some(mac), _) => mac.sign(data, out),
            (_, Some(hash)) => hash.one(data, out),
            _ => unreachable!(),
        };
        let mut state = mac.as_ref().map_or_else(|| hash.as_ref().unwrap().start(), |mac| mac.start());
        let full = row.info.digest_len;
        for len in (0..=300).chain([1000, 4095, 4097, 65_537]) {
            // Unaligned on purpose.
            let at = numbers.below(16);
            let text = &text[at..at + len];
            let (mut want, mut got) = (vec![0; full], vec![0; full]);
            one(&[text], &mut want).unwrap();
            let (head, tail) = text.split_at(numbers.below(len + 1));
            one(&[head, &[], tail], &mut got).unwrap();
            assert_eq!(got, want, "{name}, {len} bytes in two pieces");
            update_in_pieces(&mut *state, head, &mut numbers);
            let mut fork = state.fork();
            update_in_pieces(&mut *state, tail, &mut numbers);
            state.finish(&mut got).unwrap();
            assert_eq!(got, want, "{name}, {len} bytes in pieces");
            update_in_pieces(&mut *fork, tail, &mut numbers);
            let short = &mut got[..full.div_ceil(2)];
            fork.finish(short).unwrap();
            assert_eq!(short, &want[..short.len()], "{name}, {len} bytes, truncated, in a fork");
            one(&[text], short).unwrap();
            assert_eq!(short, &want[..short.len()], "{name}, {len} bytes, truncated");
        }
        assert_eq!(one(&[b"x"], &mut vec![0; full + 1]), Err(OpError::TagLen), "{name}");
    }
}

fn tag(registry: &Registry, name: &str, key: &[u8], data: &[u8]) -> Vec<u8> {
    let alg = registry.lookup(Kind::Hash, name).unwrap();
    let mut tag = vec![0; alg.info().digest_len];
    alg.mac(key).unwrap().sign(&[data], &mut tag).unwrap();
    tag
}

fn hmac_agrees<D: Digest + BlockSizeUser>(registry: &Registry, hash: &str) {
    let mut numbers = Numbers(2);
    let block = D::block_size();
    for key_len in [0, 1, 16, block - 1, block, block + 1, 2 * block, 300] {
        let key = numbers.bytes(key_len);
        for len in [0, 1, block - 1, block, block + 1, 777] {
            let text = numbers.bytes(len);
            let mut other = hmac::SimpleHmac::<D>::new_from_slice(&key).unwrap();
            other.update(&text);
            let want = other.finalize().into_bytes().to_vec();
            assert_eq!(tag(registry, &format!("hmac({hash})"), &key, &text), want, "{hash}, key {key_len}, text {len}");
        }
    }
}

#[test]
fn hmac_agrees_with_the_hmac_crate() {
    use digest::consts::{U20, U32, U48, U64};
    let r = &registry();
    hmac_agrees::<md4::Md4>(r, "md4");
    hmac_agrees::<md5::Md5>(r, "md5");
    hmac_agrees::<sha1::Sha1>(r, "sha1");
    hmac_agrees::<sha2::Sha224>(r, "sha224");
    hmac_agrees::<sha2::Sha256>(r, "sha256");
    hmac_agrees::<sha2::Sha384>(r, "sha384");
    hmac_agrees::<sha2::Sha512>(r, "sha512");
    hmac_agrees::<sha3::Sha3_224>(r, "sha3-224");
    hmac_agrees::<sha3::Sha3_256>(r, "sha3-256");
    hmac_agrees::<sha3::Sha3_384>(r, "sha3-384");
    hmac_agrees::<sha3::Sha3_512>(r, "sha3-512");
    hmac_agrees::<blake2::Blake2b<U20>>(r, "blake2b-160");
    hmac_agrees::<blake2::Blake2b<U32>>(r, "blake2b-256");
    hmac_agrees::<blake2::Blake2b<U48>>(r, "blake2b-384");
    hmac_agrees::<blake2::Blake2b<U64>>(r, "blake2b-512");
    hmac_agrees::<ripemd::Ripemd160>(r, "rmd160");
    hmac_agrees::<sm3::Sm3>(r, "sm3");
    hmac_agrees::<streebog::Streebog256>(r, "streebog256");
    hmac_agrees::<streebog::Streebog512>(r, "streebog512");
    hmac_agrees::<whirlpool::Whirlpool>(r, "wp512");
}

fn cmac_agrees<M: Mac + KeyInit>(registry: &Registry, cipher: &str, key_len: usize) {
    let mut numbers = Numbers(3);
    let key = numbers.bytes(key_len);
    for len in 0..=100 {
        let text = numbers.bytes(len);
        let mut other = <M as KeyInit>::new_from_slice(&key).unwrap();
        Mac::update(&mut other, &text);
        let want = other.finalize().into_bytes().to_vec();
        assert_eq!(tag(registry, &format!("cmac({cipher})"), &key, &text), want, "{cipher}, {len} bytes");
    }
}

#[test]
fn cmac_agrees_with_the_cmac_crate() {
    let r = &registry();
    cmac_agrees::<cmac::Cmac<aes::Aes128>>(r, "aes", 16);
    cmac_agrees::<cmac::Cmac<aes::Aes192>>(r, "aes", 24);
    cmac_agrees::<cmac::Cmac<aes::Aes256>>(r, "aes", 32);
    cmac_agrees::<cmac::Cmac<camellia::Camellia192>>(r, "camellia", 24);
    cmac_agrees::<cmac::Cmac<sm4::Sm4>>(r, "sm4", 16);
    cmac_agrees::<cmac::Cmac<des::TdesEde3>>(r, "des3_ede", 24);
    cmac_agrees::<cmac::Cmac<des::Des>>(r, "des", 8);
}

#[test]
fn kmac_agrees_with_tiny_keccak() {
    let registry = registry();
    let mut numbers = Numbers(4);
    // Without 131, where the padded key fills a block, and that crate permutes once too often. OpenSSL does not; the
    // vectors have this length from OpenSSL.
    for key_len in [0, 1, 16, 32, 130, 132, 133, 8192, 100_000] {
        let key = numbers.bytes(key_len);
        for len in (0..300).step_by(7).chain([135, 136, 137]) {
            let text = numbers.bytes(len);
            let cases: [(&str, &[u8], usize); 3] =
                [("kmac256", b"", 64), ("kmac256-128", b"", 16), ("kmac256-kdf", b"KDF", 32)];
            for (name, custom, out_len) in cases {
                let mut want = vec![0; out_len];
                let mut other = tiny_keccak::Kmac::v256(&key, custom);
                tiny_keccak::Hasher::update(&mut other, &text);
                tiny_keccak::Hasher::finalize(other, &mut want);
                assert_eq!(tag(&registry, name, &key, &text), want, "{name}, key {key_len}, {len} bytes");
            }
        }
    }
}

#[test]
fn gmac_is_gcm_of_an_empty_text() {
    let registry = registry();
    let mut numbers = Numbers(5);
    let (gmac, gcm) = (registry.lookup(Kind::NonceMac, "gmac(aes)"), registry.lookup(Kind::Aead, "gcm(aes)"));
    let (gmac, gcm) = (gmac.unwrap(), gcm.unwrap());
    for key_len in [16, 24, 32] {
        let (key, nonce) = (numbers.bytes(key_len), numbers.bytes(12));
        let (gmac, gcm) = (gmac.nonce_mac(&key).unwrap(), gcm.aead(&key).unwrap());
        for len in 0..=100 {
            let text = numbers.bytes(len);
            let pieces = text.split_at(numbers.below(len + 1));
            let (mut got, mut want) = ([0; 16], [0; 16]);
            gmac.sign(&nonce, &[pieces.0, &[], pieces.1], &mut got).unwrap();
            gcm.seal(&nonce, &[&text], (&mut [][..]).into(), &mut want).unwrap();
            assert_eq!(got, want, "key {key_len}, {len} bytes");
            gmac.verify(&nonce, &[&text], &want[..12]).unwrap();
        }
        assert_eq!(gmac.sign(&nonce[..11], &[b"x"], &mut [0; 16]), Err(OpError::Nonce));
    }
}

#[test]
fn poly1305_takes_pieces_of_any_length() {
    let registry = registry();
    let mut numbers = Numbers(6);
    let mac = registry.lookup(Kind::NonceMac, "poly1305").unwrap().nonce_mac(&numbers.bytes(32)).unwrap();
    for len in 0..=200 {
        let text = numbers.bytes(len);
        let (head, tail) = text.split_at(numbers.below(len + 1));
        let (middle, tail) = tail.split_at(numbers.below(tail.len() + 1));
        let (mut want, mut got) = ([0; 16], [0; 16]);
        mac.sign(&[], &[&text], &mut want).unwrap();
        mac.sign(&[], &[head, middle, tail], &mut got).unwrap();
        assert_eq!(got, want, "{len} bytes");
    }
    assert_eq!(mac.sign(&[0; 12], &[], &mut [0; 16]), Err(OpError::Nonce));
}

#[test]
fn keys_of_other_lengths_are_refused() {
    let registry = registry();
    for (name, good, bad) in [
        ("cmac(aes)", &[16, 24, 32][..], &[0, 15, 17, 31, 33][..]),
        ("xcbc(aes)", &[16], &[0, 15, 24, 32]),
        ("cmac(des3_ede)", &[24], &[0, 8, 16, 25]),
        ("blake2b-256", &[0, 1, 64], &[65, 128]),
        ("blake2s-256", &[0, 1, 32], &[33, 64]),
        ("crc32c", &[0, 4], &[1, 3, 5, 8]),
        ("crc32", &[0, 4], &[1, 3, 5, 8]),
        ("xxhash64", &[0, 8], &[4, 7, 9]),
        ("blake3", &[32], &[0, 31, 33]),
        ("siphash24", &[16], &[0, 15, 17]),
    ] {
        let alg = registry.lookup(Kind::Hash, name).unwrap();
        for len in good {
            assert!(alg.mac(&vec![1; *len]).is_ok(), "{name}, {len} bytes");
            assert!(*len == 0 || alg.info().key_lens.contains(*len), "{name}, {len} bytes");
        }
        for len in bad {
            assert_eq!(alg.mac(&vec![1; *len]).err(), Some(KeyError::Length), "{name}, {len} bytes");
        }
    }
    assert_eq!(registry.lookup(Kind::Hash, "sha256").unwrap().mac(b"key").err(), Some(KeyError::NotKeyed));
    assert_eq!(registry.lookup(Kind::Hash, "sha256").unwrap().info().key_lens, Lengths::None);
}

/// An entropy source that counts its calls, and fails when its allowance is used up.
struct Counting {
    calls: AtomicUsize,
    allowance: usize,
}

impl Entropy for Counting {
    fn fill(&self, out: &mut [u8]) -> Result<(), OpError> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        out.fill(calls as u8);
        if calls < self.allowance { Ok(()) } else { Err(OpError::Driver) }
    }
}

fn with_entropy(allowance: usize) -> (Registry, Arc<Counting>) {
    let entropy = Arc::new(Counting { calls: AtomicUsize::new(0), allowance });
    let registry = Registry::builder(self_test).rows(portable::rows()).entropy(entropy.clone());
    (registry.build(), entropy)
}

/// The DRBGs of a registry whose self-tests have run.
fn drbgs(registry: &Registry) -> Vec<String> {
    let rows = registry.rows().iter().filter(|r| r.info.name == "stdrng");
    rows.map(|r| r.driver.clone()).inspect(|d| assert!(registry.lookup(Kind::Rng, d).is_ok(), "{d}")).collect()
}

#[test]
fn drbgs_reseed_when_they_must() {
    let (registry, entropy) = with_entropy(usize::MAX);
    let names = drbgs(&registry);
    assert_eq!(names.len(), 18);
    for name in names {
        let mut rng = registry.lookup(Kind::Rng, &name).unwrap().rng();
        let mut out = [0xa5; 16];
        assert_eq!(rng.generate(&[], &mut out), Err(OpError::Driver), "{name} was never seeded");
        rng.seed(b"for this test").unwrap();
        let asked = || entropy.calls.swap(0, Ordering::Relaxed);
        asked();
        rng.generate(&[], &mut out).unwrap();
        // Fresh bytes with each request; and a reseeding where prediction resistance is promised.
        let each = if name.contains("_pr_") { 2 } else { 1 };
        assert_eq!(asked(), each, "{name}");
        if each == 1 {
            (0..4095).for_each(|_| rng.generate(&[], &mut out[..1]).unwrap());
            assert_eq!(asked(), 4095, "{name}");
            rng.generate(&[], &mut out).unwrap();
            assert_eq!(asked(), 2, "{name} has not reseeded after 4096 requests");
        }
        let mut long = vec![0; (1 << 16) + 1];
        rng.generate(&[], &mut long).unwrap();
        assert_eq!(asked(), 2 * each, "{name}: a long request is two");
    }
}

#[test]
fn drbgs_deliver_nothing_without_entropy() {
    // The self-tests use up an unknown amount, so each generator gets a registry of its own.
    let (registry, _) = with_entropy(0);
    for name in drbgs(&registry) {
        let mut rng = registry.lookup(Kind::Rng, &name).unwrap().rng();
        assert_eq!(rng.seed(&[]), Err(KeyError::Driver), "{name}");
        let mut out = [0xa5; 16];
        assert_eq!(rng.generate(&[], &mut out), Err(OpError::Driver), "{name}");
    }
    let (registry, entropy) = with_entropy(1000);
    for name in drbgs(&registry) {
        let mut rng = registry.lookup(Kind::Rng, &name).unwrap().rng();
        entropy.calls.store(0, Ordering::Relaxed);
        rng.seed(&[]).unwrap();
        entropy.calls.store(1000, Ordering::Relaxed);
        let mut out = [0xa5; 16];
        assert_eq!(rng.generate(&[], &mut out), Err(OpError::Driver), "{name}");
        assert_eq!(out, [0; 16], "{name} left bytes of a failed request");
        entropy.calls.store(0, Ordering::Relaxed);
    }
}

#[test]
fn drbgs_are_deterministic_under_test_entropy() {
    let registry = registry();
    for name in drbgs(&registry) {
        let alg = registry.lookup(Kind::Rng, &name).unwrap();
        let stream = |pers: &[u8], additional: &[u8]| {
            let mut rng = alg.rng();
            rng.set_entropy(&[7; 48]).unwrap();
            rng.seed(pers).unwrap();
            let mut out = [0; 100];
            rng.generate(additional, &mut out).unwrap();
            out
        };
        assert_eq!(stream(b"a", b"b"), stream(b"a", b"b"), "{name}");
        assert_ne!(stream(b"a", b""), stream(b"b", b""), "{name}");
        assert_ne!(stream(b"a", b""), stream(b"a", b"b"), "{name}");
    }
    let mut jitter = registry.lookup(Kind::Rng, "jitterentropy_rng").unwrap().rng();
    assert_eq!(jitter.set_entropy(&[7; 48]), Err(KeyError::NotKeyed));
    assert_eq!(registry.lookup(Kind::Rng, "stdrng").unwrap().rows()[0].driver, "drbg_nopr_hmac_sha512");
}

/// In release mode the self-test of a row must take at most about 2 ms, because it runs when the row is first looked
/// up. The time is printed and not asserted, because the machine may be busy. `cargo test --release -- --ignored
/// --nocapture self_tests`
#[test]
#[ignore = "make accept: prints times"]
fn self_tests_are_short() {
    let registry = registry();
    let mut times: Vec<_> = registry
        .rows()
        .iter()
        .map(|row| {
            let before = std::time::Instant::now();
            registry.self_test(row).unwrap();
            (before.elapsed(), row.driver.clone())
        })
        .collect();
    times.sort();
    for (time, driver) in times.iter().rev().take(12) {
        println!("{:>9.1} us {driver}", time.as_secs_f64() * 1e6);
    }
}
