//! Every row against the portable row of its name: all lengths to 2100, odd alignments, bursts of 1 to 70 with mixed
//! lengths and keys, in place and apart, truncated tags, wrong tags, gathered messages, other threads, forked children.

use inout::InOutBuf;
use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::data::Data;
use sealane_crypto::hash::{HashOp, HashTfm};
use sealane_crypto::mac::{self, MacOp, MacTfm, NonceMacOp, NonceMacTfm};
use sealane_crypto::registry::Alg;
use sealane_crypto::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use sealane_crypto::{KeyError, Kind, Lengths, OpError, Registry, templates};
use sealane_crypto_portable as portable;

/// The longest text of the sweep over all lengths.
const SWEEP: usize = 2100;

/// The algorithms that must have a row when the library is there.
const SERVED: [&str; 23] = [
    "sha1",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "hmac(md5)",
    "hmac(sha1)",
    "hmac(sha224)",
    "hmac(sha256)",
    "hmac(sha384)",
    "hmac(sha512)",
    "cmac(aes)",
    "xcbc(aes)",
    "gmac(aes)",
    "poly1305",
    "ctr(aes)",
    "cbc(aes)",
    "ecb(aes)",
    "cbc(des)",
    "cbc(des3_ede)",
    "gcm(aes)",
    "ccm(aes)",
    "rfc7539(chacha20,poly1305)",
];

/// Deterministic bytes: xorshift64*.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 56) as u8).collect()
    }
}

/// Each algorithm of `kind`: this crate's, the portable one.
fn pairs(kind: Kind) -> Vec<(Alg, Alg)> {
    if let Err(why) = sealane_crypto_ipsecmb::available() {
        eprintln!("SKIPPED: {why}");
        return Vec::new();
    }
    let ours = Registry::builder(|_| Ok(())).rows(sealane_crypto_ipsecmb::rows()).build();
    let theirs = Registry::builder(|_| Ok(())).rows(portable::rows()).templates(templates::all()).build();
    let pairs: Vec<_> = ours
        .rows()
        .iter()
        .filter(|row| row.info.kind == kind)
        .map(|row| {
            let one = |registry: &Registry, name: &str| registry.lookup(kind, name).expect("a row");
            (one(&ours, &row.driver), one(&theirs, &row.info.name))
        })
        .collect();
    // A row may be absent only because its portable counterpart is, or because this version's DES is wrong.
    let wrong = sealane_crypto_ipsecmb::describe().is_ok_and(|library| library.starts_with("intel-ipsec-mb 2.0.0,"));
    let served = SERVED.iter().filter(|name| !(wrong && name.starts_with("cbc(des")));
    for name in served.filter(|name| theirs.lookup(kind, name).is_ok()) {
        assert!(pairs.iter().any(|(ours, _)| ours.info().name == *name), "no row for {name}");
    }
    if pairs.is_empty() {
        eprintln!("SKIPPED: no portable rows of type {} to compare with", kind.name());
    }
    pairs
}

/// A key of each length that matters.
fn keys(alg: &Alg, noise: &mut Noise) -> Vec<Vec<u8>> {
    match alg.info().key_lens {
        Lengths::Of(list) => list.iter().map(|n| noise.bytes(*n)).collect(),
        Lengths::Range(min, max) if max > 256 => {
            [min.max(1), 16, 20, 63, 64, 65, 127, 128, 129, 200].iter().map(|n| noise.bytes(*n)).collect()
        }
        Lengths::Range(min, max) => (min..=max).map(|n| noise.bytes(n)).collect(),
        Lengths::None => Vec::new(),
    }
}

/// Lengths that a mode takes.
fn takes(alg: &Alg, len: usize) -> bool {
    len.is_multiple_of(if alg.info().chunk_len == alg.info().block_len { alg.info().block_len } else { 1 })
}

/// `message` cut into up to five pieces.
fn cut<'a>(message: &'a [u8], noise: &mut Noise) -> Vec<&'a [u8]> {
    let mut rest = message;
    let mut pieces = Vec::new();
    for _ in 0..noise.below(5) {
        let (piece, after) = rest.split_at(noise.below(rest.len() + 1));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

fn mixed_len(noise: &mut Noise) -> usize {
    match noise.below(8) {
        0 => 0,
        1 => noise.below(20),
        7 => 1400 + noise.below(8000),
        _ => noise.below(600),
    }
}

#[test]
fn self_test_of_the_registry_passes() {
    if let Err(why) = sealane_crypto_ipsecmb::available() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    eprintln!("{}", sealane_crypto_ipsecmb::describe().unwrap());
    let registry = Registry::builder(sealane_crypto_portable::self_test).rows(sealane_crypto_ipsecmb::rows()).build();
    for row in registry.rows() {
        registry.self_test(row).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn hashes() {
    let mut noise = Noise(1);
    for (ours, theirs) in pairs(Kind::Hash).into_iter().filter(|(alg, _)| alg.info().key_lens == Lengths::None) {
        let name = ours.info().name.clone();
        let (ours, theirs): (HashTfm, HashTfm) = (ours.hash(), theirs.hash());
        let full = ours.info().digest_len;
        let text = noise.bytes(200_000);
        for len in (0..=SWEEP).chain([65534, 65535, 65536, 150_000]) {
            let message = &text[len % 17..len % 17 + len];
            let (mut a, mut b) = ([0; 64], [0; 64]);
            ours.one(&[message], &mut a[..full]).unwrap();
            theirs.one(&[message], &mut b[..full]).unwrap();
            assert_eq!(a, b, "{name} of {len} bytes");
        }
        for burst in 1..=70 {
            let messages: Vec<Vec<u8>> = (0..burst)
                .map(|_| {
                    let n = mixed_len(&mut noise);
                    noise.bytes(n)
                })
                .collect();
            let pieces: Vec<Vec<&[u8]>> = messages.iter().map(|m| cut(m, &mut noise)).collect();
            let mut out = vec![[0xeeu8; 64]; burst];
            let lens: Vec<usize> = (0..burst).map(|i| if i % 3 == 0 { full } else { 1 + noise.below(full) }).collect();
            let mut ops: Vec<HashOp<'_>> =
                out.iter_mut().zip(&pieces).zip(&lens).map(|((o, p), n)| HashOp::new(p, &mut o[..*n])).collect();
            ours.burst(&mut ops);
            assert!(ops.iter().all(|op| op.status == Ok(())));
            for ((out, message), len) in out.iter().zip(&messages).zip(&lens) {
                let mut want = [0xee; 64];
                theirs.one(&[message], &mut want[..*len]).unwrap();
                assert_eq!(out, &want, "{name} in a burst of {burst}, {} bytes", message.len());
            }
        }
        let mut state = ours.start();
        state.update(b"in two ");
        let mut other = state.fork();
        state.update(b"pieces");
        other.update(b"pieces");
        let (mut a, mut b, mut c) = (vec![0; full], vec![0; full], vec![0; full]);
        state.finish(&mut a).unwrap();
        other.finish(&mut b).unwrap();
        ours.one(&[b"in two pieces"], &mut c).unwrap();
        assert_eq!((&a, &b), (&c, &c), "{name} in pieces");
    }
}

#[test]
fn macs() {
    let mut noise = Noise(2);
    for (ours, theirs) in pairs(Kind::Hash).into_iter().filter(|(alg, _)| alg.info().key_lens != Lengths::None) {
        let name = ours.info().name.clone();
        let full = ours.info().digest_len;
        let text = noise.bytes(70_000);
        let tfms: Vec<(MacTfm, MacTfm)> =
            keys(&ours, &mut noise).iter().map(|k| (ours.mac(k).unwrap(), theirs.mac(k).unwrap())).collect();
        for len in (0..=SWEEP).chain([65534, 65535, 65536]) {
            let (ours, theirs) = &tfms[len % tfms.len()];
            let message = &text[len % 13..len % 13 + len];
            let (mut a, mut b) = ([0; 64], [0; 64]);
            ours.sign(&[message], &mut a[..full]).unwrap();
            theirs.sign(&[message], &mut b[..full]).unwrap();
            assert_eq!(a, b, "{name} of {len} bytes");
            ours.verify(&[message], &b[..full.min(12)]).unwrap();
            b[0] ^= 1;
            assert_eq!(ours.verify(&[message], &b[..full]), Err(OpError::Auth));
        }
        for burst in 1..=70 {
            let messages: Vec<Vec<u8>> = (0..burst)
                .map(|_| {
                    let n = mixed_len(&mut noise);
                    noise.bytes(n)
                })
                .collect();
            let pieces: Vec<Vec<&[u8]>> = messages.iter().map(|m| cut(m, &mut noise)).collect();
            let lens: Vec<usize> = (0..burst).map(|i| if i % 3 == 0 { full } else { 1 + noise.below(full) }).collect();
            let mut out = vec![[0xeeu8; 64]; burst];
            let mut ops: Vec<MacOp<'_>> = out
                .iter_mut()
                .enumerate()
                .map(|(i, o)| MacOp::new(&tfms[i % tfms.len()].0, &pieces[i], &mut o[..lens[i]]))
                .collect();
            mac::sign(&mut ops);
            assert!(ops.iter().all(|op| op.status == Ok(())));
            for (i, out) in out.iter().enumerate() {
                let mut want = [0xee; 64];
                tfms[i % tfms.len()].1.sign(&[&messages[i]], &mut want[..lens[i]]).unwrap();
                assert_eq!(out, &want, "{name} in a burst of {burst}, {} bytes", messages[i].len());
            }
        }
        let mut state = tfms[0].0.start();
        state.update(&text[..100]);
        state.update(&text[100..333]);
        let (mut a, mut b) = (vec![0; full], vec![0; full]);
        state.finish(&mut a).unwrap();
        tfms[0].0.sign(&[&text[..333]], &mut b).unwrap();
        assert_eq!(a, b, "{name} in pieces");
        if ours.info().key_lens.max() <= 64 {
            assert_eq!(ours.mac(&noise.bytes(17)).err(), Some(KeyError::Length), "{name}");
        }
    }
}

#[test]
fn nonce_macs() {
    let mut noise = Noise(3);
    for (ours, theirs) in pairs(Kind::NonceMac) {
        let name = ours.info().name.clone();
        let (full, iv_len) = (ours.info().digest_len, ours.info().iv_len);
        let text = noise.bytes(400_000);
        let tfms: Vec<(NonceMacTfm, NonceMacTfm)> = keys(&ours, &mut noise)
            .iter()
            .map(|k| (ours.nonce_mac(k).unwrap(), theirs.nonce_mac(k).unwrap()))
            .collect();
        for len in (0..=SWEEP).chain([65534, 65535, 65536, 300_000]) {
            let (ours, theirs) = &tfms[len % tfms.len()];
            let (nonce, message) = (noise.bytes(iv_len), &text[len % 13..len % 13 + len]);
            let (mut a, mut b) = ([0; 16], [0; 16]);
            ours.sign(&nonce, &[message], &mut a[..full]).unwrap();
            theirs.sign(&nonce, &[message], &mut b[..full]).unwrap();
            assert_eq!(a, b, "{name} of {len} bytes");
            let (mut a, mut b) = ([0; 16], [0; 16]);
            let pieces = cut(message, &mut noise);
            ours.sign(&nonce, &pieces, &mut a[..full.min(12)]).unwrap();
            theirs.sign(&nonce, &pieces, &mut b[..full.min(12)]).unwrap();
            assert_eq!(a, b, "{name} of {len} bytes in pieces");
        }
        for burst in 1..=70 {
            let messages: Vec<Vec<u8>> = (0..burst)
                .map(|_| {
                    let n = mixed_len(&mut noise);
                    noise.bytes(n)
                })
                .collect();
            let pieces: Vec<Vec<&[u8]>> = messages.iter().map(|m| cut(m, &mut noise)).collect();
            let nonces: Vec<Vec<u8>> = (0..burst).map(|_| noise.bytes(iv_len)).collect();
            let mut out = vec![[0u8; 16]; burst];
            let mut ops: Vec<NonceMacOp<'_>> = out
                .iter_mut()
                .enumerate()
                .map(|(i, tag)| NonceMacOp {
                    tfm: &tfms[i % tfms.len()].0,
                    nonce: &nonces[i],
                    data: &pieces[i],
                    tag,
                    status: Err(OpError::Driver),
                })
                .collect();
            mac::nonce_sign(&mut ops);
            assert!(ops.iter().all(|op| op.status == Ok(())));
            for (i, out) in out.iter().enumerate() {
                let mut want = [0; 16];
                tfms[i % tfms.len()].1.sign(&nonces[i], &[&messages[i]], &mut want).unwrap();
                assert_eq!(out, &want, "{name} in a burst of {burst}");
            }
        }
        assert_eq!(tfms[0].0.sign(&[0; 5], &[b"x"], &mut [0; 16]), Err(OpError::Nonce), "{name}");
    }
}

/// Runs one text with both and compares text and IV.
fn same_cipher(ours: &SkcipherTfm, theirs: &SkcipherTfm, dir: Direction, iv: &[u8], text: &[u8], in_place: bool) {
    let what = format!("{} {dir:?} {} bytes, in place: {in_place}", ours.info().name, text.len());
    let (mut iv_a, mut iv_b) = (iv.to_vec(), iv.to_vec());
    let mut want = text.to_vec();
    let b = theirs.one(dir, &mut iv_b, Data::Flat((&mut want[..]).into()));
    let mut got = vec![0x55; text.len()];
    let a = if in_place {
        got.copy_from_slice(text);
        ours.one(dir, &mut iv_a, Data::Flat((&mut got[..]).into()))
    } else {
        ours.one(dir, &mut iv_a, Data::Flat(InOutBuf::new(text, &mut got).unwrap()))
    };
    assert_eq!(a, b, "{what}");
    if a.is_ok() {
        assert_eq!(got, want, "{what}");
    }
    assert_eq!(iv_a, iv_b, "IV of {what}");
}

#[test]
fn ciphers() {
    let mut noise = Noise(4);
    for (ours, theirs) in pairs(Kind::Skcipher) {
        let name = ours.info().name.clone();
        let iv_len = ours.info().iv_len;
        let text = noise.bytes(140_000);
        let tfms: Vec<(SkcipherTfm, SkcipherTfm)> =
            keys(&ours, &mut noise).iter().map(|k| (ours.skcipher(k).unwrap(), theirs.skcipher(k).unwrap())).collect();
        let mut turn = 0;
        for len in (0..=SWEEP).chain([65519, 65520, 65521, 65536, 131_072]) {
            for dir in [Direction::Encrypt, Direction::Decrypt] {
                let (ours, theirs) = &tfms[turn % tfms.len()];
                let iv = noise.bytes(iv_len);
                same_cipher(ours, theirs, dir, &iv, &text[turn % 7..turn % 7 + len], turn % 2 == 0);
                turn += 1;
            }
        }
        if name == "ctr(aes)" {
            // The counter runs over at 32, 64 and 128 bits.
            for ones in [4, 8, 16] {
                for before in 1..=20 {
                    let mut iv = vec![0x77; 16];
                    iv[16 - ones..].fill(0xff);
                    iv[15] -= before - 1;
                    for len in [1, 16, 100, 16 * usize::from(before), 300, 70_000] {
                        same_cipher(&tfms[0].0, &tfms[0].1, Direction::Encrypt, &iv, &text[..len], len % 2 == 0);
                    }
                }
            }
        }
        for burst in 1..=70 {
            for dir in [Direction::Encrypt, Direction::Decrypt] {
                let texts: Vec<Vec<u8>> = (0..burst)
                    .map(|_| {
                        let n = mixed_len(&mut noise);
                        // One in nine has a length that the mode may refuse, the others are adjusted.
                        let fit = takes(&ours, n) || noise.below(9) == 0;
                        noise.bytes(if fit { n } else { n / 16 * 16 })
                    })
                    .collect();
                let ivs: Vec<Vec<u8>> = (0..burst).map(|_| noise.bytes(iv_len)).collect();
                let mut outs = texts.clone();
                let mut iv_outs = ivs.clone();
                let mut ops: Vec<SkcipherOp<'_>> = outs
                    .iter_mut()
                    .zip(iv_outs.iter_mut())
                    .enumerate()
                    .map(|(i, (out, iv))| {
                        let data = if i % 2 == 0 {
                            (&mut out[..]).into()
                        } else {
                            InOutBuf::new(&texts[i][..], &mut out[..]).unwrap()
                        };
                        SkcipherOp { tfm: &tfms[i % tfms.len()].0, dir, iv, data, status: Err(OpError::Driver) }
                    })
                    .collect();
                skcipher::crypt(&mut ops);
                let statuses: Vec<_> = ops.iter().map(|op| op.status).collect();
                for i in 0..burst {
                    let (mut want, mut iv) = (texts[i].clone(), ivs[i].clone());
                    let status = tfms[i % tfms.len()].1.one(dir, &mut iv, Data::Flat((&mut want[..]).into()));
                    assert_eq!(statuses[i], status, "{name}");
                    assert_eq!(outs[i], want, "{name} {dir:?} in a burst of {burst}, {} bytes", texts[i].len());
                    assert_eq!(iv_outs[i], iv, "{name} IV");
                }
            }
        }
    }
}

/// A nonce that the mode takes. CCM needs its length octet, and a counter long enough for all texts here.
fn nonce(alg: &Alg, noise: &mut Noise) -> Vec<u8> {
    let mut nonce = noise.bytes(alg.info().iv_len);
    if alg.info().name == "ccm(aes)" {
        nonce[0] = 2 + noise.below(6) as u8;
    }
    nonce
}

fn tag_len(alg: &Alg, noise: &mut Noise) -> usize {
    loop {
        let n = 1 + noise.below(16);
        if alg.info().tag_lens.contains(n) {
            return n;
        }
    }
}

#[test]
fn aeads() {
    let mut noise = Noise(5);
    for (ours, theirs) in pairs(Kind::Aead) {
        let name = ours.info().name.clone();
        let text = noise.bytes(140_000);
        let tfms: Vec<(AeadTfm, AeadTfm)> =
            keys(&ours, &mut noise).iter().map(|k| (ours.aead(k).unwrap(), theirs.aead(k).unwrap())).collect();
        for len in (0..=SWEEP).chain([65534, 65535, 65536, 131_072]) {
            let (a, b) = &tfms[len % tfms.len()];
            let (nonce, n) = (nonce(&ours, &mut noise), tag_len(&ours, &mut noise));
            let aad_len = match len {
                65534 => 70_000,
                _ if len % 50 == 3 => noise.below(1000),
                _ => noise.below(60),
            };
            let aad = &text[len % 5..len % 5 + aad_len];
            let aad = &cut(aad, &mut noise)[..];
            let plain = &text[len % 11..len % 11 + len];
            let (mut got, mut want) = (plain.to_vec(), plain.to_vec());
            let (mut tag, mut want_tag) = (vec![0; n], vec![0; n]);
            b.seal(&nonce, aad, (&mut want[..]).into(), &mut want_tag).unwrap();
            if len % 2 == 0 {
                a.seal(&nonce, aad, (&mut got[..]).into(), &mut tag).unwrap();
            } else {
                a.seal(&nonce, aad, InOutBuf::new(plain, &mut got[..]).unwrap().into(), &mut tag).unwrap();
            }
            let what = format!("{name}: {len} bytes, {aad_len} associated, tag of {n}");
            assert_eq!((&got, &tag), (&want, &want_tag), "{what}");
            a.open(&nonce, aad, (&mut got[..]).into(), &tag).unwrap();
            assert_eq!(got, plain, "{what}");
            tag[n - 1] ^= 0x80;
            let mut out = vec![0xee; len];
            let opened = a.open(&nonce, aad, InOutBuf::new(&want[..], &mut out[..]).unwrap().into(), &tag);
            assert_eq!(opened, Err(OpError::Auth), "{what}");
            assert!(out.iter().all(|b| *b == 0), "{what}: not wiped");
        }
        // Associated data in pieces that together are longer than the joining buffer.
        let large = vec![7u8; 200_000];
        let (mut a, mut b, nonce1) = ([0; 16], [0; 16], nonce(&ours, &mut noise));
        tfms[0].0.seal(&nonce1, &[&large, &large], (&mut [][..]).into(), &mut a).unwrap();
        tfms[0].1.seal(&nonce1, &[&large, &large], (&mut [][..]).into(), &mut b).unwrap();
        assert_eq!(a, b, "{name}");
        aead_bursts(&ours, &tfms, &mut noise);
    }
}

fn aead_bursts(alg: &Alg, tfms: &[(AeadTfm, AeadTfm)], noise: &mut Noise) {
    let name = &alg.info().name;
    for burst in 1..=70 {
        let texts: Vec<Vec<u8>> = (0..burst)
            .map(|_| {
                let n = mixed_len(noise);
                noise.bytes(n)
            })
            .collect();
        let aads: Vec<Vec<u8>> = (0..burst)
            .map(|_| {
                let n = noise.below(50);
                noise.bytes(n)
            })
            .collect();
        let pieces: Vec<Vec<&[u8]>> = aads.iter().map(|a| cut(a, noise)).collect();
        let nonces: Vec<Vec<u8>> = (0..burst).map(|_| nonce(alg, noise)).collect();
        let mut tags: Vec<Vec<u8>> = (0..burst).map(|_| vec![0; tag_len(alg, noise)]).collect();
        let mut outs = texts.clone();
        let mut ops: Vec<AeadOp<'_>> = outs
            .iter_mut()
            .zip(tags.iter_mut())
            .enumerate()
            .map(|(i, (out, tag))| AeadOp {
                tfm: &tfms[i % tfms.len()].0,
                dir: Direction::Encrypt,
                nonce: &nonces[i],
                aad: &pieces[i],
                data: (&mut out[..]).into(),
                tag,
                status: Err(OpError::Driver),
            })
            .collect();
        aead::crypt(&mut ops);
        assert!(ops.iter().all(|op| op.status == Ok(())), "{name}");
        for i in 0..burst {
            let (mut want, mut tag) = (texts[i].clone(), vec![0; tags[i].len()]);
            tfms[i % tfms.len()].1.seal(&nonces[i], &pieces[i], (&mut want[..]).into(), &mut tag).unwrap();
            assert_eq!((&outs[i], &tags[i]), (&want, &tag), "{name} in a burst of {burst}");
        }
        // Open them again; every fifth tag is wrong.
        let sealed = outs.clone();
        tags.iter_mut().step_by(5).for_each(|tag| tag[0] ^= 1);
        let mut ops: Vec<AeadOp<'_>> = outs
            .iter_mut()
            .zip(tags.iter_mut())
            .enumerate()
            .map(|(i, (out, tag))| AeadOp {
                tfm: &tfms[i % tfms.len()].0,
                dir: Direction::Decrypt,
                nonce: &nonces[i],
                aad: &pieces[i],
                data: if i % 2 == 0 {
                    (&mut out[..]).into()
                } else {
                    InOutBuf::new(&sealed[i][..], &mut out[..]).unwrap()
                },
                tag,
                status: Err(OpError::Driver),
            })
            .collect();
        aead::crypt(&mut ops);
        let statuses: Vec<_> = ops.iter().map(|op| op.status).collect();
        for i in 0..burst {
            if i % 5 == 0 {
                assert_eq!(statuses[i], Err(OpError::Auth), "{name}");
                assert!(outs[i].iter().all(|b| *b == 0), "{name}: not wiped");
            } else {
                assert_eq!((statuses[i], &outs[i]), (Ok(()), &texts[i]), "{name} in a burst of {burst}");
            }
        }
    }
}

#[test]
fn threads_and_forked_children_have_managers_of_their_own() {
    let Some((ours, theirs)) = pairs(Kind::Hash).into_iter().find(|(alg, _)| alg.info().name == "hmac(sha256)") else {
        return;
    };
    let (ours, theirs) = (ours.mac(b"key").unwrap(), theirs.mac(b"key").unwrap());
    let mut want = [0; 32];
    theirs.sign(&[b"message"], &mut want).unwrap();
    let check = || {
        let mut tags = [[0u8; 32]; 20];
        let mut ops: Vec<MacOp<'_>> = tags.iter_mut().map(|t| MacOp::new(&ours, &[b"message"], t)).collect();
        mac::sign(&mut ops);
        assert!(ops.iter().all(|op| op.status == Ok(())));
        assert_eq!(tags, [want; 20]);
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| check()));
        }
    });
    check();
    // SAFETY: the child runs the check and leaves by _exit. It needs no lock that another thread may hold, except that
    // of the C heap, which stays usable after fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (0..100).for_each(|_| check()))).is_ok();
        // SAFETY: leaves without running destructors, as a forked child should.
        unsafe { libc::_exit(i32::from(!ok)) }
    }
    (0..100).for_each(|_| check());
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child's tags differ: {status:#x}");
}
