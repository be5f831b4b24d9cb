//! NIST's CAVP vectors (`vectors/nist-*.txt`, made by `vectors/make.py`) through every driver of this build: out of
//! place, in place, in pieces and in bursts.

use inout::InOutBuf;
use sealane_crypto::aead::{self, AeadOp};
use sealane_crypto::choice::Table;
use sealane_crypto::hash::HashOp;
use sealane_crypto::mac::{self, MacOp};
use sealane_crypto::registry::TestState;
use sealane_crypto::skcipher::{self, Direction, SkcipherOp};
use sealane_crypto::{Alg, Kind, OpError, Registry};
use sealane_drivers::SystemEntropy;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Number of vectors in a burst.
const BURST: usize = 23;

struct Vector {
    line: usize,
    fields: HashMap<&'static str, &'static str>,
}

impl Vector {
    fn bytes(&self, field: &str) -> Vec<u8> {
        let hex = self.fields.get(field).copied().unwrap_or("");
        assert_eq!(hex.len() % 2, 0, "line {}", self.line);
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    fn must_fail(&self) -> bool {
        self.fields.contains_key("fail")
    }
}

/// Reads the vectors of a file, by algorithm.
fn parse(text: &'static str) -> BTreeMap<&'static str, Vec<Vector>> {
    let mut out: BTreeMap<&str, Vec<Vector>> = BTreeMap::new();
    let mut fields = HashMap::new();
    for (i, line) in text.lines().enumerate() {
        if let Some((name, value)) = line.split_once(" =") {
            fields.insert(name, value.trim());
        } else if line.is_empty() && !fields.is_empty() {
            let fields = std::mem::take(&mut fields);
            out.entry(fields["alg"]).or_default().push(Vector { line: i, fields });
        }
    }
    assert!(fields.is_empty(), "the last vector has no empty line after it");
    out
}

/// Calls `test` with each driver of each algorithm that has vectors. The portable driver has to exist.
fn each_driver(text: &'static str, kind: Kind, test: impl Fn(&str, &Alg, &[Vector])) {
    let registry: Registry = sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy));
    for (name, vectors) in parse(text) {
        let rows = registry.rows().iter().filter(|row| row.info.kind == kind && row.info.name == name);
        let rows: Vec<_> = rows.filter(|row| row.test_state() != TestState::Exempt).collect();
        assert!(rows.iter().any(|row| row.module == "portable"), "no portable driver for {name}");
        for row in rows {
            test(&row.driver, &Alg::of_row(row, registry.entropy()), &vectors);
        }
    }
}

#[test]
fn hashes() {
    each_driver(include_str!("../../vectors/nist-hash.txt"), Kind::Hash, |driver, alg, vectors| {
        let tfm = alg.hash();
        let texts: Vec<Vec<u8>> = vectors.iter().map(|v| v.bytes("in")).collect();
        for (v, text) in vectors.iter().zip(&texts) {
            let want = v.bytes("out");
            let mut got = vec![0; want.len()];
            tfm.one(&[text], &mut got).unwrap();
            assert_eq!(got, want, "{driver}, line {}", v.line);
            let mut state = tfm.start();
            for piece in text.chunks(61) {
                state.update(piece);
            }
            got.fill(0);
            state.finish(&mut got).unwrap();
            assert_eq!(got, want, "{driver}, line {}, in pieces", v.line);
        }
        for (vectors, texts) in vectors.chunks(BURST).zip(texts.chunks(BURST)) {
            let pieces: Vec<[&[u8]; 1]> = texts.iter().map(|t| [&t[..]]).collect();
            let mut digests: Vec<Vec<u8>> = vectors.iter().map(|_| vec![0; alg.info().digest_len]).collect();
            let mut ops: Vec<HashOp<'_>> = pieces.iter().zip(&mut digests).map(|(p, d)| HashOp::new(p, d)).collect();
            tfm.burst(&mut ops);
            assert!(ops.iter().all(|op| op.status.is_ok()), "{driver}");
            for (v, digest) in vectors.iter().zip(&digests) {
                assert_eq!(*digest, v.bytes("out"), "{driver}, line {}, burst", v.line);
            }
        }
    });
}

#[test]
fn macs() {
    each_driver(include_str!("../../vectors/nist-mac.txt"), Kind::Hash, |driver, alg, vectors| {
        let tfms: Vec<_> = vectors.iter().map(|v| alg.mac(&v.bytes("key")).unwrap()).collect();
        let texts: Vec<Vec<u8>> = vectors.iter().map(|v| v.bytes("in")).collect();
        for ((v, tfm), text) in vectors.iter().zip(&tfms).zip(&texts) {
            let mut tag = v.bytes("out");
            assert_eq!(tfm.verify(&[text], &tag), Ok(()), "{driver}, line {}", v.line);
            tag[0] ^= 0x80;
            assert_eq!(tfm.verify(&[text], &tag), Err(OpError::Auth), "{driver}, line {}, forged", v.line);
        }
        let pieces: Vec<[&[u8]; 1]> = texts.iter().map(|t| [&t[..]]).collect();
        let mut tags: Vec<Vec<u8>> = vectors.iter().map(|v| vec![0; v.bytes("out").len()]).collect();
        let mut ops: Vec<MacOp<'_>> =
            tfms.iter().zip(&pieces).zip(&mut tags).map(|((tfm, p), tag)| MacOp::new(tfm, p, tag)).collect();
        mac::sign(&mut ops);
        for (v, tag) in vectors.iter().zip(&tags) {
            assert_eq!(*tag, v.bytes("out"), "{driver}, line {}, burst", v.line);
        }
    });
}

#[test]
fn ciphers() {
    each_driver(include_str!("../../vectors/nist-skcipher.txt"), Kind::Skcipher, |driver, alg, vectors| {
        let ways = [(Direction::Encrypt, "in", "out"), (Direction::Decrypt, "out", "in")];
        let tfms: Vec<_> = vectors
            .iter()
            .map(|v| alg.skcipher(&v.bytes("key")).unwrap_or_else(|e| panic!("{driver}, line {}: {e}", v.line)))
            .collect();
        for (dir, from, to) in ways {
            for (v, tfm) in vectors.iter().zip(&tfms) {
                let (text, want) = (v.bytes(from), v.bytes(to));
                let mut got = vec![0; text.len()];
                let (mut iv, data) = (v.bytes("iv"), InOutBuf::new(&text, &mut got).unwrap());
                assert_eq!(tfm.one(dir, &mut iv, data.into()), Ok(()), "{driver}, line {}, {dir:?}", v.line);
                assert_eq!(got, want, "{driver}, line {}, {dir:?}", v.line);
                let (mut iv, mut in_place) = (v.bytes("iv"), text);
                assert_eq!(tfm.one(dir, &mut iv, in_place[..].as_mut().into()), Ok(()), "{driver}, line {}", v.line);
                assert_eq!(in_place, want, "{driver}, line {}, {dir:?}, in place", v.line);
            }
            for (vectors, tfms) in vectors.chunks(BURST).zip(tfms.chunks(BURST)) {
                let mut ivs: Vec<Vec<u8>> = vectors.iter().map(|v| v.bytes("iv")).collect();
                let mut texts: Vec<Vec<u8>> = vectors.iter().map(|v| v.bytes(from)).collect();
                let mut ops: Vec<SkcipherOp<'_>> = tfms
                    .iter()
                    .zip(&mut ivs)
                    .zip(&mut texts)
                    .map(|((tfm, iv), text)| SkcipherOp {
                        tfm,
                        dir,
                        iv,
                        data: text[..].as_mut().into(),
                        status: Ok(()),
                    })
                    .collect();
                skcipher::crypt(&mut ops);
                assert!(ops.iter().all(|op| op.status.is_ok()), "{driver}");
                for (v, text) in vectors.iter().zip(&texts) {
                    assert_eq!(*text, v.bytes(to), "{driver}, line {}, {dir:?}, burst", v.line);
                }
            }
        }
    });
}

#[test]
fn aeads() {
    each_driver(include_str!("../../vectors/nist-aead.txt"), Kind::Aead, |driver, alg, vectors| {
        let vectors: Vec<&Vector> =
            vectors.iter().filter(|v| alg.info().tag_lens.contains(v.bytes("tag").len())).collect();
        assert!(vectors.len() > 100, "{driver}: {} vectors", vectors.len());
        let tfms: Vec<_> = vectors.iter().map(|v| alg.aead(&v.bytes("key")).unwrap()).collect();
        for (v, tfm) in vectors.iter().zip(&tfms) {
            let (iv, aad, cipher) = (v.bytes("iv"), v.bytes("aad"), v.bytes("out"));
            let mut tag = v.bytes("tag");
            let mut got = cipher.clone();
            let opened = tfm.one(Direction::Decrypt, &iv, &[&aad], got[..].as_mut().into(), &mut tag);
            if v.must_fail() {
                assert_eq!(opened, Err(OpError::Auth), "{driver}, line {}", v.line);
                assert!(got.iter().all(|&b| b == 0), "{driver}, line {}: the output was not wiped", v.line);
                continue;
            }
            let plain = v.bytes("in");
            assert_eq!(opened, Ok(()), "{driver}, line {}", v.line);
            assert_eq!(got, plain, "{driver}, line {}", v.line);
            let mut made = vec![0; tag.len()];
            let data = InOutBuf::new(&plain, &mut got).unwrap();
            assert_eq!(tfm.one(Direction::Encrypt, &iv, &[&aad], data.into(), &mut made), Ok(()), "{driver}");
            assert_eq!((&got, &made), (&cipher, &v.bytes("tag")), "{driver}, line {}", v.line);
        }
        // Good and forged messages in one burst each get their own verdict.
        for (vectors, tfms) in vectors.chunks(BURST).zip(tfms.chunks(BURST)) {
            let ivs: Vec<Vec<u8>> = vectors.iter().map(|v| v.bytes("iv")).collect();
            let aads: Vec<Vec<u8>> = vectors.iter().map(|v| v.bytes("aad")).collect();
            let pieces: Vec<[&[u8]; 1]> = aads.iter().map(|a| [&a[..]]).collect();
            let mut texts: Vec<Vec<u8>> = vectors.iter().map(|v| v.bytes("out")).collect();
            let mut tags: Vec<Vec<u8>> = vectors.iter().map(|v| v.bytes("tag")).collect();
            let mut ops = Vec::new();
            for (i, (text, tag)) in texts.iter_mut().zip(&mut tags).enumerate() {
                ops.push(AeadOp {
                    tfm: &tfms[i],
                    dir: Direction::Decrypt,
                    nonce: &ivs[i],
                    aad: &pieces[i],
                    data: (&mut text[..]).into(),
                    tag,
                    status: Ok(()),
                });
            }
            aead::crypt(&mut ops);
            let statuses: Vec<_> = ops.iter().map(|op| op.status).collect();
            for ((v, text), status) in vectors.iter().zip(&texts).zip(statuses) {
                let want = if v.must_fail() { Err(OpError::Auth) } else { Ok(()) };
                assert_eq!(status, want, "{driver}, line {}, burst", v.line);
                if !v.must_fail() {
                    assert_eq!(*text, v.bytes("in"), "{driver}, line {}, burst", v.line);
                }
            }
        }
    });
}
