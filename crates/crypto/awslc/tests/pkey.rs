//! Private keys over AWS-LC, against what OpenSSL has made (`pkey/make.sh`, `pkey/implicit.py`).

use sealane_crypto_awslc::pkey::{self, ImportError, PrivateKey, UseError};
use sealane_pkey::{Algorithm, Digest, Padding, Scheme};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pkey")).join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn key(name: &str) -> PrivateKey {
    PrivateKey::import(&file(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn refused(der: &[u8]) -> Option<ImportError> {
    PrivateKey::import(der).err()
}

#[test]
fn known_answers_are_right() {
    assert_eq!(pkey::self_test(), Ok(()));
}

#[test]
fn keys_of_each_format_are_read_and_come_back() {
    for (algorithm, name) in Algorithm::ALL {
        let key = key(&format!("{name}.der"));
        assert_eq!((key.algorithm(), key.spki()), (algorithm, Ok(file(&format!("{name}.pub")))));
        let pkcs8 = key.pkcs8().unwrap();
        assert_eq!(pkcs8.capacity(), pkcs8.len());
        let again = PrivateKey::import(&pkcs8).unwrap();
        assert_eq!((again.pkcs8(), again.spki()), (Ok(pkcs8), key.spki()));
    }
    for (old, new) in [("rsa-2048.pkcs1", "rsa-2048.der"), ("ec-p256.sec1", "ec-p256.der")] {
        assert_eq!(key(old).pkcs8(), key(new).pkcs8(), "{old}");
    }
}

#[test]
fn made_keys_are_read_and_no_two_are_the_same() {
    for (algorithm, name) in Algorithm::ALL {
        let (read, make) = (|| key(&format!("{name}.der")), || PrivateKey::generate(algorithm).unwrap());
        // To make RSA keys takes long.
        let (key, other) = (make(), if algorithm.modulus_len().is_some() { read() } else { make() });
        assert_ne!(key.spki(), other.spki());
        let again = PrivateKey::import(&key.pkcs8().unwrap()).unwrap();
        assert_eq!((again.algorithm(), again.spki()), (algorithm, key.spki()));
    }
}

#[test]
fn what_is_not_taken_is_named() {
    assert_eq!(refused(&file("bits-1024.bad")), Some(ImportError::Bits(1024)));
    assert_eq!(refused(&file("bits-2056.bad")), Some(ImportError::Bits(2056)));
    for name in ["pss", "p521", "k256", "x25519"] {
        assert_eq!(refused(&file(&format!("algorithm-{name}.bad"))), Some(ImportError::Algorithm), "{name}");
    }
    assert_eq!(refused(&file("encrypted.bad")), Some(ImportError::Encrypted));
    // DSA, before its numbers are looked at.
    let dsa = [0x30, 0x13, 2, 1, 0, 0x30, 9, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1, 4, 3, 2, 1, 5];
    assert_eq!(refused(&dsa), Some(ImportError::Algorithm));
    for bytes in [&[][..], b"text", &[0x30, 0], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &file("ec-p256.pub")] {
        assert_eq!(refused(bytes), Some(ImportError::Malformed));
    }
}

#[test]
fn a_key_that_is_cut_off_longer_or_changed_is_refused() {
    for name in ["ec-p256.der", "ec-p256.sec1", "ed25519.der", "rsa-2048.pkcs1"] {
        let der = file(name);
        for len in 0..der.len() {
            assert!(refused(&der[..len]).is_some(), "{name} cut off at {len}");
        }
        assert!(refused(&[&der[..], &[0]].concat()).is_some(), "{name} and a byte");
    }
    // A curve of ours and no point on it, with or without SEC 1 around: that the curve is not taken would be wrong.
    for name in ["ec-p256", "ec-p384"] {
        let mut changed = file(&format!("{name}.der"));
        *changed.last_mut().unwrap() ^= 4;
        assert_eq!(refused(&changed), Some(ImportError::Malformed), "{name}");
    }
    // The first bytes of RSA's numbers, and those of the public point: no change leaves parts that belong together.
    let rsa = file("rsa-2048.pkcs1");
    for at in [20, 300, 600, 750, 880, 1000, 1150, rsa.len() - 1] {
        let mut changed = rsa.clone();
        changed[at] ^= 4;
        assert!(refused(&changed).is_some(), "RSA changed at {at}");
    }
    let ec = file("ec-p256.der");
    for at in [40, ec.len() - 1] {
        let mut changed = ec.clone();
        changed[at] ^= 4;
        assert!(refused(&changed).is_some(), "EC changed at {at}");
    }
}

/// Java writes keys without public exponent and primes, which have zeros in their place. They would be computed with unblinded.
#[test]
fn an_rsa_key_without_all_its_numbers_is_refused() {
    let der = file("rsa-2048.pkcs1");
    let mut rest = &der[4..];
    let mut numbers = Vec::new();
    while !rest.is_empty() {
        let (head, len) = match rest[1] {
            0x82 => (4, usize::from(rest[2]) << 8 | usize::from(rest[3])),
            0x81 => (3, usize::from(rest[2])),
            len => (2, usize::from(len)),
        };
        let (number, tail) = rest.split_at(head + len);
        numbers.push(number.to_vec());
        rest = tail;
    }
    let whole = |numbers: &[Vec<u8>]| {
        let body = numbers.concat();
        [&[0x30, 0x82, (body.len() >> 8) as u8, body.len() as u8][..], &body].concat()
    };
    assert_eq!(whole(&numbers), der);
    // Version, n, e, d, p, q, d mod p-1, d mod q-1, 1/q mod p.
    for zeros in [&[2, 4, 5, 6, 7, 8][..], &[4, 5, 6, 7, 8], &[6, 7, 8], &[2], &[3]] {
        let mut fewer = numbers.clone();
        zeros.iter().for_each(|at| fewer[*at] = vec![2, 1, 0]);
        assert!(refused(&whole(&fewer)).is_some(), "{zeros:?}");
    }
}

/// AWS-LC takes an exponent that it cannot compute with, and what is no prime. Such a key must not become the newest version.
#[test]
fn an_rsa_key_that_can_never_be_used_is_refused() {
    assert_eq!(refused(&file("wide.bad")), Some(ImportError::Inconsistent));
    assert_eq!(refused(&file("composite.bad")), None);
    let tried = |name: &str| PrivateKey::import(&file(name)).and_then(PrivateKey::tried).err();
    assert_eq!(tried("composite.bad"), Some(ImportError::Inconsistent));
    for (_, name) in Algorithm::ALL {
        assert_eq!(tried(&format!("{name}.der")), None);
    }
}

/// An Ed25519 key with its public part beside it (RFC 8410, section 7, version 2 of RFC 5958).
#[test]
fn the_public_part_of_ed25519_has_to_belong_to_its_seed() {
    let der = file("ed25519.der");
    let public = file("ed25519.pub");
    let with_public = |public: &[u8]| {
        let body = [&[2, 1, 1][..], &der[5..], &[0x81, 0x21, 0], public].concat();
        [&[0x30, body.len() as u8][..], &body].concat()
    };
    let right = with_public(&public[12..]);
    assert_eq!(PrivateKey::import(&right).unwrap().spki(), Ok(public));
    assert!(refused(&with_public(&[9; 32])).is_some());
}

#[test]
fn rsa_signs_as_openssl_does() {
    for name in ["rsa-2048", "rsa-4096"] {
        let key = key(&format!("{name}.der"));
        for (digest, named) in Digest::ALL {
            let text = vec![7; digest.len()];
            assert_eq!(key.sign(Scheme::RsaPkcs1(digest), &text), Ok(file(&format!("{name}-{named}.sig"))));
            let pss = Scheme::RsaPss { digest, mgf1: Digest::Sha256, salt_len: 0 };
            assert_eq!(key.sign(pss, &text), Ok(file(&format!("{name}-{named}.pss"))));
            assert_eq!(key.sign(Scheme::RsaPkcs1(digest), &text[1..]), Err(UseError::Text));
        }
    }
    let key = key("rsa-2048.der");
    assert_eq!(key.sign(Scheme::RsaPkcs1Md5Sha1, &[7; 36]), Ok(file("rsa-2048-md5-sha1.sig")));
    // A salt is drawn for each signature.
    let pss = Scheme::RsaPss { digest: Digest::Sha256, mgf1: Digest::Sha256, salt_len: 32 };
    assert_ne!(key.sign(pss, &[7; 32]), key.sign(pss, &[7; 32]));
    for wrong in [Scheme::Ecdsa, Scheme::Ed25519] {
        assert_eq!(key.sign(wrong, &[7; 32]), Err(UseError::Scheme));
    }
}

#[test]
fn ed25519_signs_as_rfc_8032_does() {
    // Section 7.1, tests 1 and 3.
    for (seed, message, signature) in [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ] {
        let der = [&file("ed25519.der")[..16], &bytes(seed)].concat();
        let key = PrivateKey::import(&der).unwrap();
        assert_eq!(key.sign(Scheme::Ed25519, &bytes(message)), Ok(bytes(signature)));
    }
}

#[test]
fn ecdsa_signs_with_a_nonce_of_its_own_each_time() {
    for name in ["ec-p256", "ec-p384"] {
        let key = key(&format!("{name}.der"));
        let signatures: BTreeSet<Vec<u8>> = (0..100).map(|_| key.sign(Scheme::Ecdsa, &[7; 32]).unwrap()).collect();
        assert_eq!(signatures.len(), 100);
        assert!(signatures.iter().all(|one| one.len() <= key.algorithm().max_signature_len() && one[0] == 0x30));
        assert_eq!(key.sign(Scheme::RsaPkcs1(Digest::Sha256), &[7; 32]), Err(UseError::Scheme));
        assert_eq!(key.decrypt(&Padding::Pkcs1, &[1; 256]).err(), Some(UseError::Scheme));
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

#[test]
fn a_wrong_padding_gives_the_text_that_openssl_gives() {
    // Each length of a modulus has a bound and a mask of its own for the lengths of texts.
    for (key, vectors, lines) in [
        (key("rsa-2048.der"), "implicit.txt", 51),
        (key("rsa-3072.der"), "implicit-3072.txt", 16),
        (key("rsa-4096.der"), "implicit-4096.txt", 16),
    ] {
        assert_eq!(as_openssl(&key, vectors), lines, "{vectors}");
    }
    let key = key("rsa-2048.der");
    for text in [&[][..], &[0xff; 256], &[1; 257]] {
        assert_eq!(key.decrypt(&Padding::Pkcs1, text).err(), Some(UseError::Text));
    }
}

/// Compares the texts of a file, and returns their number.
fn as_openssl(key: &PrivateKey, vectors: &str) -> usize {
    let vectors = String::from_utf8(file(vectors)).unwrap();
    let mut count = 0;
    for line in vectors.lines() {
        let (ciphertext, text) = line.split_once(' ').unwrap();
        let ciphertext = bytes(ciphertext);
        assert_eq!(key.decrypt(&Padding::Pkcs1, &ciphertext).map(|text| text.to_vec()), Ok(bytes(text)), "{line}");
        // Zeros before a number are none.
        let short: Vec<u8> = ciphertext.iter().copied().skip_while(|byte| *byte == 0).collect();
        if !short.is_empty() {
            assert_eq!(key.decrypt(&Padding::Pkcs1, &short).map(|text| text.to_vec()), Ok(bytes(text)));
        }
        count += 1;
    }
    count
}

#[test]
fn oaep_has_one_error() {
    let key = key("rsa-2048.der");
    let oaep = |digest, mgf1, label: &[u8]| Padding::Oaep { digest, mgf1, label: label.to_vec() };
    let sha256 = oaep(Digest::Sha256, Digest::Sha256, b"");
    for (padding, name) in [
        (&oaep(Digest::Sha1, Digest::Sha1, b""), "sha1-sha1"),
        (&sha256, "sha256-sha256"),
        (&oaep(Digest::Sha512, Digest::Sha1, b"label"), "sha512-sha1-label"),
    ] {
        let ciphertext = file(&format!("{name}.oaep"));
        assert_eq!(key.decrypt(padding, &ciphertext).map(|text| text.to_vec()), Ok(b"a text".to_vec()), "{name}");
        let other = oaep(Digest::Sha384, Digest::Sha1, b"label");
        assert_eq!(key.decrypt(&other, &ciphertext).err(), Some(UseError::Auth));
        let mut changed = ciphertext.clone();
        changed[100] ^= 1;
        assert_eq!(key.decrypt(padding, &changed).err(), Some(UseError::Auth));
    }
    // Ciphertexts that are their own powers, and one of PKCS #1.
    for text in [vec![0], vec![1], file("premaster.enc")] {
        assert_eq!(key.decrypt(&sha256, &text).err(), Some(UseError::Auth));
    }
}

#[test]
fn a_premaster_secret_comes_in_each_case() {
    let key = key("rsa-2048.der");
    let ciphertext = file("premaster.enc");
    let right = [&[3, 3][..], &[5; 46]].concat();
    let open = |client_version, negotiated, text: &[u8]| {
        key.decrypt(&Padding::Tls { client_version, negotiated }, text).unwrap().to_vec()
    };
    assert_eq!(open(0x0303, 0, &ciphertext), right);
    assert_eq!(open(0x0304, 0x0303, &ciphertext), right);
    // The same request has the same answer, be it right or wrong: otherwise asking twice would tell.
    let mut changed = ciphertext.clone();
    changed[200] ^= 1;
    let others = [(0x0302, &ciphertext[..]), (0x0303, &changed), (0x0303, &[0]), (0x0303, &file("sha1-sha1.oaep"))];
    let mut seen = BTreeSet::from([right]);
    for (version, text) in others {
        let other = open(version, 0, text);
        assert_eq!((other.len(), &open(version, 0, text)), (48, &other));
        assert!(seen.insert(other));
    }
}

#[test]
fn threads_share_nothing_that_breaks() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let key = key("rsa-2048.der");
                let right = file("rsa-2048-sha256.sig");
                for _ in 0..20 {
                    assert_eq!(key.sign(Scheme::RsaPkcs1(Digest::Sha256), &[7; 32]).as_ref(), Ok(&right));
                }
            });
        }
    });
}
