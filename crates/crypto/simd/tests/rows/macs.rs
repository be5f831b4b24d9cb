//! Hashes and MACs.

use crate::common::{Guarded, Rand, portable, rows};
use hmac::digest::{Digest, KeyInit};
use hmac::{Hmac, Mac};
use sealane_crypto::hash::HashOp;
use sealane_crypto::mac::{MacOp, MacTfm, sign};
use sealane_crypto::{Alg, Kind};

/// The tag of `data` by RustCrypto.
fn mac_reference(name: &str, key: &[u8], data: &[u8]) -> Vec<u8> {
    fn mac<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> Vec<u8> {
        let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key length that the MAC takes");
        mac.update(data);
        mac.finalize().into_bytes().to_vec()
    }
    match (name, key.len()) {
        ("hmac(md5)", _) => mac::<Hmac<md5::Md5>>(key, data),
        ("hmac(sha1)", _) => mac::<Hmac<sha1::Sha1>>(key, data),
        ("hmac(sha224)", _) => mac::<Hmac<sha2::Sha224>>(key, data),
        ("hmac(sha256)", _) => mac::<Hmac<sha2::Sha256>>(key, data),
        ("hmac(sha384)", _) => mac::<Hmac<sha2::Sha384>>(key, data),
        ("hmac(sha512)", _) => mac::<Hmac<sha2::Sha512>>(key, data),
        ("cmac(aes)", 16) => mac::<cmac::Cmac<aes::Aes128>>(key, data),
        ("cmac(aes)", 24) => mac::<cmac::Cmac<aes::Aes192>>(key, data),
        ("cmac(aes)", 32) => mac::<cmac::Cmac<aes::Aes256>>(key, data),
        ("xcbc(aes)", _) => {
            let mut tag = vec![0; 16];
            portable(Kind::Hash, name).mac(key).unwrap().sign(&[data], &mut tag).unwrap();
            tag
        }
        _ => panic!("no reference for {name}"),
    }
}

fn hash_reference(name: &str, data: &[u8]) -> Vec<u8> {
    match name {
        "md5" => md5::Md5::digest(data).to_vec(),
        "sha1" => sha1::Sha1::digest(data).to_vec(),
        "sha224" => sha2::Sha224::digest(data).to_vec(),
        "sha256" => sha2::Sha256::digest(data).to_vec(),
        "sha384" => sha2::Sha384::digest(data).to_vec(),
        "sha512" => sha2::Sha512::digest(data).to_vec(),
        _ => panic!("no reference for {name}"),
    }
}

fn is_mac(alg: &Alg) -> bool {
    alg.info().name.contains('(')
}

/// A key of some length that the algorithm takes; for HMAC sometimes longer than a block.
fn some_key(rand: &mut Rand, name: &str) -> Vec<u8> {
    let len = if name == "xcbc(aes)" {
        16
    } else if name.contains("(aes)") {
        [16, 24, 32][rand.below(3)]
    } else {
        1 + rand.below(200)
    };
    rand.bytes(len)
}

/// Signs `messages`, cut at random, in one burst, and compares every tag, truncated at random.
fn check_macs(driver: &str, alg: &Alg, rand: &mut Rand, messages: &[&[u8]]) {
    let name = &alg.info().name;
    let keys: Vec<Vec<u8>> = (0..1 + rand.below(messages.len())).map(|_| some_key(rand, name)).collect();
    let tfms: Vec<MacTfm> = keys.iter().map(|key| alg.mac(key).unwrap()).collect();
    let owner: Vec<usize> = messages.iter().map(|_| rand.below(keys.len())).collect();
    let pieces: Vec<Vec<&[u8]>> = messages.iter().map(|m| rand.cut(m)).collect();
    let full = alg.info().digest_len;
    let mut tags: Vec<Vec<u8>> =
        messages.iter().map(|_| vec![0xee; if rand.below(2) == 0 { full } else { 1 + rand.below(full) }]).collect();
    let mut ops: Vec<MacOp<'_>> =
        tags.iter_mut().enumerate().map(|(i, tag)| MacOp::new(&tfms[owner[i]], &pieces[i], tag)).collect();
    sign(&mut ops);
    assert!(ops.iter().all(|op| op.status.is_ok()));
    drop(ops);
    for (i, tag) in tags.iter().enumerate() {
        let want = mac_reference(name, &keys[owner[i]], messages[i]);
        let lens: Vec<usize> = messages.iter().map(|m| m.len()).collect();
        assert_eq!(*tag, want[..tag.len()], "{driver}: message {i} of lengths {lens:?}");
    }
}

fn check_hashes(driver: &str, alg: &Alg, rand: &mut Rand, messages: &[&[u8]]) {
    let pieces: Vec<Vec<&[u8]>> = messages.iter().map(|m| rand.cut(m)).collect();
    let mut digests = vec![vec![0u8; alg.info().digest_len]; messages.len()];
    let mut ops: Vec<HashOp<'_>> = digests.iter_mut().zip(&pieces).map(|(d, p)| HashOp::new(p, d)).collect();
    alg.hash().burst(&mut ops);
    assert!(ops.iter().all(|op| op.status.is_ok()));
    drop(ops);
    for (digest, message) in digests.iter().zip(messages) {
        assert_eq!(*digest, hash_reference(&alg.info().name, message), "{driver}: {} bytes", message.len());
    }
}

fn check(driver: &str, alg: &Alg, rand: &mut Rand, messages: &[&[u8]]) {
    if is_mac(alg) {
        check_macs(driver, alg, rand, messages);
    } else {
        check_hashes(driver, alg, rand, messages);
    }
}

#[test]
fn all_lengths_alike() {
    let mut rand = Rand::new(1);
    let text = rand.bytes(20_000);
    for (driver, alg) in rows(Kind::Hash) {
        for len in 0..=300 {
            // Lanes full, one more than full, and too few for lanes; each message at its own misalignment.
            let n = [1, 3, 8, 16, 17, 33][len % 6];
            let messages: Vec<&[u8]> = (0..n).map(|i| &text[i * 97..][..len]).collect();
            check(&driver, &alg, &mut rand, &messages);
            let messages: Vec<&[u8]> = (0..16).map(|i| &text[i * 301..][..len]).collect();
            check(&driver, &alg, &mut rand, &messages);
        }
    }
}

#[test]
fn all_lengths_and_bursts_mixed() {
    let mut rand = Rand::new(2);
    let text = rand.bytes(20_000);
    for (driver, alg) in rows(Kind::Hash) {
        for n in (1..=100).chain([257, 300]) {
            let max = [130, 700, 5000][rand.below(3)];
            let lens: Vec<(usize, usize)> = (0..n).map(|_| (rand.below(10_000), rand.below(max + 1))).collect();
            let messages: Vec<&[u8]> = lens.iter().map(|(at, len)| &text[*at..][..*len]).collect();
            check(&driver, &alg, &mut rand, &messages);
        }
    }
}

#[test]
fn one_long_among_short() {
    let mut rand = Rand::new(3);
    let text = rand.bytes(70_000);
    for (driver, alg) in rows(Kind::Hash) {
        let mut messages: Vec<&[u8]> = (0..40).map(|i| &text[i..][..i * 3]).collect();
        messages[7] = &text[1..];
        check(&driver, &alg, &mut rand, &messages);
    }
}

#[test]
fn pages_beyond_the_message_are_never_touched() {
    let mut rand = Rand::new(4);
    let mut memory: Vec<Guarded> = (0..20).map(|_| Guarded::new(1)).collect();
    for (driver, alg) in rows(Kind::Hash) {
        for len in (0..=260).chain([1000, 4096]) {
            for (i, page) in memory.iter_mut().enumerate() {
                let text = if i % 3 == 0 { page.head(len) } else { page.tail(len) };
                text.copy_from_slice(&rand.bytes(len));
            }
            let messages: Vec<&[u8]> = memory
                .iter_mut()
                .enumerate()
                .map(|(i, page)| if i % 3 == 0 { &*page.head(len) } else { &*page.tail(len) })
                .collect();
            check(&driver, &alg, &mut rand, &messages);
        }
    }
}

#[test]
fn tags_are_written_to_their_end_and_no_further() {
    let mut rand = Rand::new(5);
    let text = rand.bytes(144);
    for (driver, alg) in rows(Kind::Hash).into_iter().filter(|(_, alg)| is_mac(alg)) {
        let key = some_key(&mut rand, &alg.info().name);
        let tfm = alg.mac(&key).unwrap();
        let want = mac_reference(&alg.info().name, &key, &text);
        for n in [1, 20] {
            for len in 1..=alg.info().digest_len {
                let mut memory: Vec<Guarded> = (0..n).map(|_| Guarded::new(1)).collect();
                let pieces = [&text[..]];
                let mut ops: Vec<MacOp<'_>> =
                    memory.iter_mut().map(|m| MacOp::new(&tfm, &pieces, m.tail(len))).collect();
                sign(&mut ops);
                assert!(ops.iter().all(|op| op.status.is_ok() && *op.tag == want[..len]), "{driver}: tag of {len}");
            }
        }
    }
}

#[test]
fn incremental_is_one_shot() {
    let mut rand = Rand::new(6);
    let text = rand.bytes(1000);
    for (driver, alg) in rows(Kind::Hash) {
        let name = alg.info().name.clone();
        let key = some_key(&mut rand, &name);
        let mut state = if is_mac(&alg) { alg.mac(&key).unwrap().start() } else { alg.hash().start() };
        for len in (0..300).chain([777, 1000]) {
            let want = if is_mac(&alg) {
                mac_reference(&name, &key, &text[..len])
            } else {
                hash_reference(&name, &text[..len])
            };
            // Data from before a reset, or fed into a fork, has no effect.
            state.update(&text[..len / 3]);
            state.reset();
            let cut = rand.below(len + 1);
            for piece in rand.cut(&text[..cut]) {
                state.update(piece);
            }
            let mut fork = state.fork();
            fork.update(&text[cut..len]);
            state.update(b"another end");
            let mut tag = vec![0; want.len()];
            fork.finish(&mut tag).unwrap();
            assert_eq!(tag, want, "{driver}: {len} bytes");
            let mut other = vec![0; want.len()];
            state.finish(&mut other).unwrap();
            assert_ne!(other, want);
        }
    }
}
