//! Every driver of this build against the portable one: all lengths, odd alignments, in place and apart, forward and
//! backward, forged tags, and bursts of mixed lengths and keys.

use inout::InOutBuf;
use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::choice::Table;
use sealane_crypto::data::Data;
use sealane_crypto::hash::HashOp;
use sealane_crypto::mac::{self, MacOp, MacTfm, NonceMacOp, NonceMacTfm};
use sealane_crypto::registry::TestState;
use sealane_crypto::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use sealane_crypto::{Alg, AlgInfo, KeyError, KeyUse, Kind, Lengths, OpError, Registry, Status};
use sealane_drivers::SystemEntropy;
use std::sync::Arc;

/// The longest text: longer than a page, and than the largest step of any SIMD loop.
const MAX_LEN: usize = 4200;

/// Drivers that are checked at every single length; the others at every length up to 300 and then at awkward ones.
const EVERY_LENGTH: [&str; 6] = ["hmac(sha1)", "hmac(sha256)", "sha512", "cbc(aes)", "ctr(aes)", "gcm(aes)"];

const DIRECTIONS: [Direction; 2] = [Direction::Encrypt, Direction::Decrypt];

fn registry() -> Registry {
    sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy))
}

/// Runs `test(driver, its algorithm, the portable algorithm)` for each driver that is not portable.
fn each_driver(kind: Kind, test: impl Fn(&str, &Alg, &Alg)) {
    let (registry, portable) = (registry(), sealane_crypto_portable::registry());
    for row in registry.rows() {
        if row.info.kind != kind || row.module == "portable" || row.test_state() == TestState::Exempt {
            continue;
        }
        let reference = portable.lookup(kind, &row.info.name);
        let reference = reference.unwrap_or_else(|e| panic!("{}: the portable {}: {e}", row.driver, row.info.name));
        test(&row.driver, &Alg::of_row(row, registry.entropy()), &reference);
    }
}

fn lengths(info: &AlgInfo) -> Vec<usize> {
    let step = if EVERY_LENGTH.contains(&&*info.name) { 1 } else { 17 };
    (0..300).chain((300..=MAX_LEN).step_by(step)).chain([511, 512, 1023, 1024, 4095, 4096]).collect()
}

/// Pseudorandom bytes that are the same in each run.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed as u64 + 1);
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 24) as u8
        })
        .collect()
}

/// Both drivers under a few keys of every length.
fn keyed<T>(driver: &str, info: &AlgInfo, make: impl Fn(&[u8]) -> Result<(T, T), KeyError>) -> Vec<(T, T)> {
    let mut lens = match info.key_lens {
        Lengths::None => Vec::new(),
        Lengths::Of(list) => list.to_vec(),
        Lengths::Range(min, max) => {
            let near = [min, 1, 16, info.block_len, info.block_len + 1, 200];
            near.into_iter().filter(|len| (min..=max).contains(len)).collect()
        }
    };
    if info.key_use == KeyUse::Optional {
        lens.push(0);
    }
    let key = |len: usize| if info.name.contains("authenc") { authenc_key(&info.name, len) } else { bytes(len, len) };
    if info.name.contains("authenc") {
        lens = vec![16, 20, 32];
    }
    let made: Vec<(T, T)> = lens
        .iter()
        .map(|len| make(&key(*len)).unwrap_or_else(|e| panic!("{driver}: a key of {len} bytes: {e}")))
        .collect();
    assert!(!made.is_empty(), "{driver}: no key");
    made
}

/// `struct rtattr` (length 8, type 1), the length of the cipher's key in big endian, the MAC's key, the cipher's key.
fn authenc_key(name: &str, auth_len: usize) -> Vec<u8> {
    let enc_len = match name {
        n if n.contains("des3_ede") => 24,
        n if n.contains("rfc3686") => 20,
        n if n.contains("(des") => 8,
        n if n.contains("null") => 0,
        _ => 16,
    };
    let mut key = vec![8, 0, 1, 0];
    key.extend_from_slice(&(enc_len as u32).to_be_bytes());
    key.extend(bytes(auth_len + enc_len, auth_len));
    key
}

/// `text` at an odd address, cut into `n` pieces.
struct Placed {
    buf: Vec<u8>,
    at: usize,
    len: usize,
}

const MARGIN: usize = 64;
const CANARY: u8 = 0xc5;

impl Placed {
    fn new(text: &[u8], offset: usize) -> Self {
        let at = MARGIN + offset % 37;
        let mut buf = vec![CANARY; at + text.len() + MARGIN];
        buf[at..at + text.len()].copy_from_slice(text);
        Placed { buf, at, len: text.len() }
    }

    fn text(&self) -> &[u8] {
        &self.buf[self.at..self.at + self.len]
    }

    fn text_mut(&mut self) -> &mut [u8] {
        &mut self.buf[self.at..self.at + self.len]
    }

    /// The text. Panics if bytes around it were written.
    fn checked(&self, at: &str) -> &[u8] {
        let around = self.buf[..self.at].iter().chain(&self.buf[self.at + self.len..]);
        assert!(around.into_iter().all(|b| *b == CANARY), "{at}: wrote outside of the text");
        self.text()
    }
}

/// One piece, or three of odd lengths.
fn pieces(text: &[u8], three: bool) -> Vec<&[u8]> {
    if !three {
        return vec![text];
    }
    let (a, rest) = text.split_at(text.len() / 3);
    let (b, c) = rest.split_at(rest.len() / 2);
    vec![a, b, c]
}

#[test]
fn every_row_passes_its_self_test() {
    let registry = registry();
    for row in registry.rows() {
        if let Err(what) = registry.self_test(row) {
            panic!("{what}");
        }
    }
}

#[test]
fn hashes() {
    each_driver(Kind::Hash, |driver, alg, reference| {
        if alg.info().key_use != KeyUse::None {
            return;
        }
        let (tfm, reference) = (alg.hash(), reference.hash());
        let full = alg.info().digest_len;
        let mut want = vec![0; full];
        for len in lengths(alg.info()) {
            let text = Placed::new(&bytes(len, len), len);
            reference.one(&[text.text()], &mut want).expect("portable hashes do not fail");
            let mut got = Placed::new(&vec![0; full - len % 3], len);
            tfm.one(&pieces(text.text(), len % 4 == 3), got.text_mut()).expect("hashing does not fail");
            let at = format!("{driver}, {len} bytes");
            assert_eq!(got.checked(&at), &want[..full - len % 3], "{at}");
        }
        for (seed, n) in [2, 3, 5, 16, 33, 64].into_iter().enumerate() {
            let texts: Vec<Vec<u8>> = mixed(n, seed, 1).into_iter().map(|len| bytes(len, len)).collect();
            let data: Vec<[&[u8]; 1]> = texts.iter().map(|t| [&t[..]]).collect();
            let mut out = vec![vec![0; full]; n];
            let mut ops: Vec<HashOp<'_>> = data.iter().zip(&mut out).map(|(d, out)| HashOp::new(d, out)).collect();
            tfm.burst(&mut ops);
            assert!(ops.iter().all(|op| op.status.is_ok()), "{driver}");
            for (text, got) in texts.iter().zip(&out) {
                reference.one(&[text], &mut want).expect("portable hashes do not fail");
                assert_eq!(*got, want, "{driver}, {} bytes in a burst of {n}", text.len());
            }
        }
    });
}

/// `n` lengths, whole blocks, from short to long and mixed.
fn mixed(n: usize, seed: usize, block: usize) -> Vec<usize> {
    (0..n)
        .map(|i| {
            let random = usize::from(bytes(i + 1, seed)[i]) * usize::from(bytes(i + 1, seed + 9)[i]);
            let len = if seed.is_multiple_of(3) { random % 200 } else { random % MAX_LEN };
            len / block * block
        })
        .collect()
}

#[test]
fn macs() {
    each_driver(Kind::Hash, |driver, alg, reference| {
        if alg.info().key_use == KeyUse::None {
            return;
        }
        let keys = keyed::<MacTfm>(driver, alg.info(), |key| Ok((alg.mac(key)?, reference.mac(key)?)));
        let full = alg.info().digest_len;
        let mut want = vec![0; full];
        for len in lengths(alg.info()) {
            let (tfm, reference) = &keys[len % keys.len()];
            let text = Placed::new(&bytes(len, len), len);
            reference.sign(&[text.text()], &mut want).expect("portable MACs do not fail");
            let mut got = Placed::new(&vec![0; full - len % 3], len);
            tfm.sign(&pieces(text.text(), len % 4 == 3), got.text_mut()).expect("signing does not fail");
            let at = format!("{driver}, {len} bytes");
            assert_eq!(got.checked(&at), &want[..full - len % 3], "{at}");
            if len % 16 == 5 {
                let mut state = tfm.start();
                for piece in text.text().chunks(len % 150 + 1) {
                    state.update(piece);
                }
                let mut got = vec![0; full];
                state.finish(&mut got).unwrap();
                assert_eq!(got, want, "{at}, in pieces");
            }
        }
        for (seed, n) in [2, 3, 5, 16, 33, 64].into_iter().enumerate() {
            let texts: Vec<Vec<u8>> = mixed(n, seed, 1).into_iter().map(|len| bytes(len, len)).collect();
            let data: Vec<Vec<&[u8]>> = texts.iter().enumerate().map(|(i, t)| pieces(t, i % 3 == 1)).collect();
            let mut out = vec![vec![0; full]; n];
            let mut ops: Vec<MacOp<'_>> = data
                .iter()
                .zip(&mut out)
                .enumerate()
                .map(|(i, (d, out))| MacOp::new(&keys[i % keys.len()].0, d, out))
                .collect();
            mac::sign(&mut ops);
            assert!(ops.iter().all(|op| op.status.is_ok()), "{driver}");
            for (i, (text, got)) in texts.iter().zip(&out).enumerate() {
                keys[i % keys.len()].1.sign(&[text], &mut want).expect("portable MACs do not fail");
                assert_eq!(*got, want, "{driver}, {} bytes in a burst of {n}", text.len());
            }
        }
    });
}

#[test]
fn nonce_macs() {
    each_driver(Kind::NonceMac, |driver, alg, reference| {
        let make = |key: &[u8]| Ok((alg.nonce_mac(key)?, reference.nonce_mac(key)?));
        let keys = keyed::<NonceMacTfm>(driver, alg.info(), make);
        let full = alg.info().digest_len;
        let nonce = bytes(alg.info().iv_len, 3);
        let mut want = vec![0; full];
        for len in lengths(alg.info()) {
            let (tfm, reference) = &keys[len % keys.len()];
            let text = Placed::new(&bytes(len, len), len);
            reference.sign(&nonce, &[text.text()], &mut want).expect("portable MACs do not fail");
            let mut got = Placed::new(&vec![0; full - len % 3], len);
            tfm.sign(&nonce, &pieces(text.text(), len % 4 == 3), got.text_mut()).expect("signing does not fail");
            let at = format!("{driver}, {len} bytes");
            assert_eq!(got.checked(&at), &want[..full - len % 3], "{at}");
        }
        for (seed, n) in [2, 5, 33].into_iter().enumerate() {
            let texts: Vec<Vec<u8>> = mixed(n, seed, 1).into_iter().map(|len| bytes(len, len)).collect();
            let data: Vec<[&[u8]; 1]> = texts.iter().map(|t| [&t[..]]).collect();
            let mut out = vec![vec![0; full]; n];
            let mut ops: Vec<NonceMacOp<'_>> = data
                .iter()
                .zip(&mut out)
                .enumerate()
                .map(|(i, (data, tag))| {
                    let tfm = &keys[i % keys.len()].0;
                    NonceMacOp { tfm, nonce: &nonce, data, tag, status: Ok(()) }
                })
                .collect();
            mac::nonce_sign(&mut ops);
            assert!(ops.iter().all(|op| op.status.is_ok()), "{driver}");
            for (i, (text, got)) in texts.iter().zip(&out).enumerate() {
                keys[i % keys.len()].1.sign(&nonce, &[text], &mut want).expect("portable MACs do not fail");
                assert_eq!(*got, want, "{driver}, {} bytes in a burst of {n}", text.len());
            }
        }
    });
}

/// The result of a cipher: status, text, IV.
type Left = (Status, Vec<u8>, Vec<u8>);

/// Runs one text in place or apart; a refused one must not have been changed.
fn crypt_one(tfm: &SkcipherTfm, dir: Direction, iv: &[u8], text: &[u8], apart: bool, at: &str) -> Left {
    let mut iv = iv.to_vec();
    let (status, out) = if apart {
        let src = Placed::new(text, text.len() + 3);
        let mut dst = Placed::new(&vec![0; text.len()], text.len() + 11);
        let data = InOutBuf::new(src.text(), dst.text_mut()).expect("the same length");
        let status = tfm.one(dir, &mut iv, Data::Flat(data));
        assert_eq!(src.checked(at), text, "{at}: wrote its input");
        (status, dst)
    } else {
        let mut buf = Placed::new(text, text.len());
        (tfm.one(dir, &mut iv, Data::from(buf.text_mut())), buf)
    };
    (status, out.checked(at).to_vec(), iv)
}

#[test]
fn skciphers() {
    each_driver(Kind::Skcipher, |driver, alg, reference| {
        let make = |key: &[u8]| Ok((alg.skcipher(key)?, reference.skcipher(key)?));
        let keys = keyed::<SkcipherTfm>(driver, alg.info(), make);
        let iv_len = alg.info().iv_len;
        for len in lengths(alg.info()) {
            let (tfm, reference) = &keys[len % keys.len()];
            // Counters that are about to wrap, now and then.
            let iv = if len % 5 == 1 { vec![0xff; iv_len] } else { bytes(iv_len, len) };
            let text = bytes(len, len);
            for dir in DIRECTIONS {
                for apart in [false, true] {
                    let at = format!("{driver}, {dir:?}, {len} bytes, {}", if apart { "apart" } else { "in place" });
                    let want = crypt_one(reference, dir, &iv, &text, apart, &at);
                    let got = crypt_one(tfm, dir, &iv, &text, apart, &at);
                    assert_eq!(got.0, want.0, "{at}");
                    assert!(got.1 == want.1, "{at}: text");
                    assert_eq!(got.2, want.2, "{at}: IV on return");
                }
            }
        }
        // XTS and CTS refuse less than a block.
        let least = if alg.info().block_len > 1 { alg.info().block_len } else { 1 };
        for (seed, n) in [2, 3, 5, 16, 33, 64].into_iter().enumerate() {
            for dir in DIRECTIONS {
                let lens: Vec<usize> = mixed(n, seed, least).into_iter().map(|len| len.max(least)).collect();
                let texts: Vec<Vec<u8>> = lens.iter().map(|len| bytes(*len, *len)).collect();
                let ivs: Vec<Vec<u8>> = (0..n).map(|i| bytes(iv_len, i)).collect();
                let (mut out, mut iv_out) = (texts.clone(), ivs.clone());
                let mut ops: Vec<SkcipherOp<'_>> = out
                    .iter_mut()
                    .zip(&mut iv_out)
                    .zip(&texts)
                    .enumerate()
                    .map(|(i, ((out, iv), text))| {
                        let data = match i % 2 {
                            0 => InOutBuf::from(&mut out[..]),
                            _ => InOutBuf::new(text, out).expect("the same length"),
                        };
                        SkcipherOp { tfm: &keys[i % keys.len()].0, dir, iv, data, status: Ok(()) }
                    })
                    .collect();
                skcipher::crypt(&mut ops);
                let statuses: Vec<Status> = ops.iter().map(|op| op.status).collect();
                for (i, text) in texts.iter().enumerate() {
                    let at = format!("{driver}, {dir:?}, {} bytes in a burst of {n}", text.len());
                    let want = crypt_one(&keys[i % keys.len()].1, dir, &ivs[i], text, false, &at);
                    assert_eq!(statuses[i], want.0, "{at}");
                    assert!(out[i] == want.1, "{at}: text");
                    assert_eq!(iv_out[i], want.2, "{at}: IV on return");
                }
            }
        }
    });
}

struct AeadText {
    nonce: Vec<u8>,
    aad: Vec<u8>,
    plain: Vec<u8>,
    tag_len: usize,
}

impl AeadText {
    fn new(info: &AlgInfo, len: usize, seed: usize) -> Self {
        let mut nonce = bytes(info.iv_len, seed);
        if info.name.contains("ccm(") && info.iv_len == 16 {
            // CCM's IV starts with L - 1: 2 to 8 bytes of length.
            nonce[0] = 1 + (seed % 7) as u8;
        }
        let aad_len = match info.name.as_str() {
            n if n.starts_with("rfc4") => 8 + info.iv_len + 4 * (seed % 2),
            n if n.starts_with("rfc7539esp") => 8 + info.iv_len,
            _ => [0, 8, 13, 16, 20, 48, 64, 67, 300][seed % 9],
        };
        let tag_lens: Vec<usize> = (1..=info.tag_lens.max()).filter(|len| info.tag_lens.contains(*len)).collect();
        // The full tag every other time.
        let tag_len = if seed.is_multiple_of(2) { info.tag_lens.max() } else { tag_lens[seed / 2 % tag_lens.len()] };
        AeadText { nonce, aad: bytes(aad_len, seed + 5), plain: bytes(len, seed), tag_len }
    }

    fn aad(&self) -> Vec<&[u8]> {
        pieces(&self.aad, self.plain.len() % 3 == 1)
    }
}

/// Seals or opens one text; returns status, text and tag.
fn aead_one(tfm: &AeadTfm, dir: Direction, t: &AeadText, text: &[u8], tag: &[u8], apart: bool, at: &str) -> Left {
    let mut tag = Placed::new(tag, text.len() + 5);
    let (status, out) = if apart {
        let src = Placed::new(text, text.len() + 3);
        let mut dst = Placed::new(&vec![0; text.len()], text.len() + 11);
        let data = InOutBuf::new(src.text(), dst.text_mut()).expect("the same length");
        let status = tfm.one(dir, &t.nonce, &t.aad(), Data::Flat(data), tag.text_mut());
        assert_eq!(src.checked(at), text, "{at}: wrote its input");
        (status, dst)
    } else {
        let mut buf = Placed::new(text, text.len());
        (tfm.one(dir, &t.nonce, &t.aad(), Data::from(buf.text_mut()), tag.text_mut()), buf)
    };
    (status, out.checked(at).to_vec(), tag.checked(at).to_vec())
}

#[test]
fn aeads() {
    each_driver(Kind::Aead, |driver, alg, reference| {
        let keys = keyed::<AeadTfm>(driver, alg.info(), |key| Ok((alg.aead(key)?, reference.aead(key)?)));
        let block = if alg.info().name.contains("authenc") { alg.info().block_len } else { 1 };
        for (seed, len) in lengths(alg.info()).into_iter().enumerate() {
            let len = len.next_multiple_of(block);
            let (tfm, reference) = &keys[seed % keys.len()];
            let t = AeadText::new(alg.info(), len, seed);
            let apart = seed % 2 == 1;
            let at = format!("{driver}, {len} bytes, tag {}, {}", t.tag_len, if apart { "apart" } else { "in place" });
            let blank = vec![0; t.tag_len];
            let want = aead_one(reference, Direction::Encrypt, &t, &t.plain, &blank, apart, &at);
            let got = aead_one(tfm, Direction::Encrypt, &t, &t.plain, &blank, apart, &at);
            assert_eq!(got.0, want.0, "{at}");
            assert!(got.1 == want.1, "{at}: ciphertext");
            assert_eq!(got.2, want.2, "{at}: tag");
            let opened = aead_one(tfm, Direction::Decrypt, &t, &got.1, &got.2, apart, &at);
            assert_eq!(opened.0, Ok(()), "{at}: open");
            assert!(opened.1 == t.plain, "{at}: plaintext");
            let mut forged = got.2.clone();
            forged[seed % t.tag_len] ^= 1 << (seed % 8);
            let opened = aead_one(tfm, Direction::Decrypt, &t, &got.1, &forged, apart, &at);
            assert_eq!(opened.0, Err(OpError::Auth), "{at}: a forged tag");
            assert!(opened.1.iter().all(|b| *b == 0), "{at}: a refused text was not wiped");
        }
        for (seed, n) in [2, 3, 5, 16, 33, 64].into_iter().enumerate() {
            let texts: Vec<AeadText> = mixed(n, seed, block)
                .into_iter()
                .enumerate()
                .map(|(i, len)| AeadText::new(alg.info(), len, i))
                .collect();
            aead_bursts(driver, &keys, &texts);
        }
    });
}

/// Seals a burst, opens it, and opens it again with every third tag forged.
fn aead_bursts(driver: &str, keys: &[(AeadTfm, AeadTfm)], texts: &[AeadText]) {
    let at = |t: &AeadText| format!("{driver}, {} bytes in a burst of {}", t.plain.len(), texts.len());
    let burst = |dir, data: &[Vec<u8>], tags: &[Vec<u8>]| -> Vec<Left> {
        let aads: Vec<Vec<&[u8]>> = texts.iter().map(AeadText::aad).collect();
        let (mut out, mut tags_out) = (data.to_vec(), tags.to_vec());
        let mut ops: Vec<AeadOp<'_>> = out
            .iter_mut()
            .zip(&mut tags_out)
            .zip(texts.iter().zip(&aads))
            .enumerate()
            .map(|(i, ((out, tag), (t, aad)))| {
                let data = match i % 2 {
                    0 => InOutBuf::from(&mut out[..]),
                    _ => InOutBuf::new(&data[i], out).expect("the same length"),
                };
                let tfm = &keys[i % keys.len()].0;
                AeadOp { tfm, dir, nonce: &t.nonce, aad, data, tag, status: Ok(()) }
            })
            .collect();
        aead::crypt(&mut ops);
        let statuses: Vec<Status> = ops.iter().map(|op| op.status).collect();
        statuses.into_iter().zip(out).zip(tags_out).map(|((s, o), t)| (s, o, t)).collect()
    };
    let plain: Vec<Vec<u8>> = texts.iter().map(|t| t.plain.clone()).collect();
    let blank: Vec<Vec<u8>> = texts.iter().map(|t| vec![0; t.tag_len]).collect();
    let sealed = burst(Direction::Encrypt, &plain, &blank);
    for (i, (t, got)) in texts.iter().zip(&sealed).enumerate() {
        let reference = &keys[i % keys.len()].1;
        let want = aead_one(reference, Direction::Encrypt, t, &t.plain, &blank[i], false, &at(t));
        assert_eq!(got.0, want.0, "{}", at(t));
        assert!(got.1 == want.1, "{}: ciphertext", at(t));
        assert_eq!(got.2, want.2, "{}: tag", at(t));
    }
    let cipher: Vec<Vec<u8>> = sealed.iter().map(|s| s.1.clone()).collect();
    let mut tags: Vec<Vec<u8>> = sealed.iter().map(|s| s.2.clone()).collect();
    for (t, got) in texts.iter().zip(burst(Direction::Decrypt, &cipher, &tags)) {
        assert_eq!(got.0, Ok(()), "{}", at(t));
        assert!(got.1 == t.plain, "{}: plaintext", at(t));
    }
    for tag in tags.iter_mut().step_by(3) {
        *tag.last_mut().expect("tags are not empty") ^= 0x80;
    }
    for (i, (t, got)) in texts.iter().zip(burst(Direction::Decrypt, &cipher, &tags)).enumerate() {
        if i % 3 == 0 {
            assert_eq!(got.0, Err(OpError::Auth), "{}: a forged tag", at(t));
            assert!(got.1.iter().all(|b| *b == 0), "{}: a refused text was not wiped", at(t));
        } else {
            assert_eq!(got.0, Ok(()), "{}: beside a forged tag", at(t));
            assert!(got.1 == t.plain, "{}: beside a forged tag", at(t));
        }
    }
}

/// RFC 3610 section 2.1: a text is shorter than 2^(8L) bytes.
#[test]
fn ccm_takes_no_text_beyond_its_length_field() {
    let registry = registry();
    let rows: Vec<_> = registry.rows().iter().filter(|row| row.info.name == "ccm(aes)").collect();
    assert!(rows.len() > 1, "ccm(aes) has portable and other drivers");
    for row in rows {
        let tfm = Alg::of_row(row, registry.entropy()).aead(&[7; 16]).expect("a key of 16 bytes");
        let mut text = vec![0; 65537];
        let mut seal = |len: usize, field: u8| {
            let mut nonce = [0; 16];
            nonce[0] = field - 1;
            tfm.seal(&nonce, &[], (&mut text[..len]).into(), &mut [0; 16])
        };
        for (len, field, want) in [
            (65535, 2, Ok(())),
            (65536, 2, Err(OpError::TooLong)),
            (65537, 2, Err(OpError::TooLong)),
            (65537, 3, Ok(())),
            (65537, 8, Ok(())),
        ] {
            assert_eq!(seal(len, field), want, "{}: {len} bytes, a length field of {field}", row.driver);
        }
    }
}
