//! AES-GCM and GMAC, against the portable rows.

use crate::common::{Guarded, Rand, portable, rows};
use inout::InOutBuf;
use sealane_crypto::aead::{AeadOp, crypt};
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{Alg, Kind, OpError};

const TAGS: [usize; 7] = [4, 8, 12, 13, 14, 15, 16];

fn key(alg: &Alg, rand: &mut Rand) -> Vec<u8> {
    let lens: Vec<usize> = (1..=64).filter(|n| alg.info().key_lens.contains(*n)).collect();
    let len = lens[rand.below(lens.len())];
    rand.bytes(len)
}

/// Seals and opens one text on a row, in place and apart, and compares text and tag with those of the portable one; a tag with one
/// wrong bit leaves zeros.
fn check(driver: &str, alg: &Alg, rand: &mut Rand, associated: &[u8], text: &[u8]) {
    let (key, nonce) = (key(alg, rand), rand.bytes(12));
    let what = format!("{driver}, key of {}, {} bytes with {}", key.len(), text.len(), associated.len());
    let pieces = rand.cut(associated);
    let tag_len = TAGS[rand.below(TAGS.len())];
    let (mut want, mut want_tag) = (text.to_vec(), vec![0; tag_len]);
    let reference = portable(Kind::Aead, &alg.info().name).aead(&key).unwrap();
    reference.seal(&nonce, &[associated], (&mut want[..]).into(), &mut want_tag).unwrap();

    let tfm = alg.aead(&key).unwrap();
    // Both misaligned, in different ways.
    let (in_at, out_at) = (rand.below(70), rand.below(70));
    let mut src = vec![0; in_at];
    src.extend_from_slice(text);
    let mut dst = vec![0xa5; out_at + text.len() + 1];
    let mut tag = vec![0; tag_len];
    let data = InOutBuf::new(&src[in_at..], &mut dst[out_at..][..text.len()]).unwrap();
    tfm.seal(&nonce, &pieces, data.into(), &mut tag).unwrap();
    assert_eq!(dst[out_at..][..text.len()], want, "{what}, apart");
    assert_eq!(tag, want_tag, "{what}, apart");
    assert!(dst[out_at + text.len()] == 0xa5 && dst[..out_at].iter().all(|b| *b == 0xa5), "{what}: beyond the output");
    tfm.seal(&nonce, &pieces, (&mut src[in_at..]).into(), &mut tag).unwrap();
    assert_eq!(src[in_at..], want, "{what}, in place");
    assert_eq!(tag, want_tag, "{what}, in place");

    let data = InOutBuf::new(&src[in_at..], &mut dst[out_at..][..text.len()]).unwrap();
    tfm.open(&nonce, &pieces, data.into(), &tag).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(&dst[out_at..][..text.len()], text, "{what}, opened apart");
    tag[rand.below(tag_len)] ^= 1 << rand.below(8);
    let data = InOutBuf::new(&src[in_at..], &mut dst[out_at..][..text.len()]).unwrap();
    assert_eq!(tfm.open(&nonce, &pieces, data.into(), &tag), Err(OpError::Auth), "{what}");
    assert!(dst[out_at..][..text.len()].iter().all(|b| *b == 0), "{what}: zeros");
    tfm.open(&nonce, &pieces, (&mut src[in_at..]).into(), &want_tag).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(&src[in_at..], text, "{what}, opened in place");
}

#[test]
fn all_lengths_as_portable() {
    let mut rand = Rand::new(31);
    if rows(Kind::Aead).is_empty() {
        println!("skipped: this CPU has no VAES");
    }
    for (driver, alg) in rows(Kind::Aead) {
        for len in (0..=1100).chain([1420, 4095, 4096, 4097, 16384]) {
            let (associated, text) = ([0, 8, 12, 13, 16, 17, 20][rand.below(7)], rand.bytes(len));
            let associated = rand.bytes(associated);
            check(&driver, &alg, &mut rand, &associated, &text);
        }
        for associated in 0..=1100 {
            let (associated, len) = (rand.bytes(associated), [0, 1, 16, 40, 48, 49, 100][rand.below(7)]);
            let text = rand.bytes(len);
            check(&driver, &alg, &mut rand, &associated, &text);
        }
        for _ in 0..200 {
            let (associated, len) = (rand.below(3000), rand.below(5000));
            let (associated, text) = (rand.bytes(associated), rand.bytes(len));
            check(&driver, &alg, &mut rand, &associated, &text);
        }
    }
}

#[test]
fn bursts_of_any_mix_as_one_by_one() {
    let mut rand = Rand::new(32);
    for (driver, alg) in rows(Kind::Aead) {
        let tfms: Vec<_> = (0..3).map(|_| alg.aead(&key(&alg, &mut rand)).unwrap()).collect();
        for round in 0..200 {
            let dir = [Direction::Encrypt, Direction::Decrypt][round % 2];
            let mut messages: Vec<_> = (0..=rand.below(12))
                .map(|_| {
                    let (associated, len) = (rand.below(40), rand.below(700));
                    let (tfm, nonce, associated) = (rand.below(3), rand.bytes(12), rand.bytes(associated));
                    (&tfms[tfm], nonce, associated, rand.bytes(len), vec![0; 16])
                })
                .collect();
            let plain: Vec<_> = messages.iter().map(|m| m.3.clone()).collect();
            for (tfm, nonce, associated, text, tag) in &mut messages {
                tfm.seal(nonce, &[associated], (&mut text[..]).into(), tag).unwrap();
            }
            let sealed: Vec<_> = messages.iter().map(|m| (m.3.clone(), m.4.clone())).collect();
            // One of those to open has another tag.
            let wrong = rand.below(messages.len());
            for (i, (message, plain)) in messages.iter_mut().zip(&plain).enumerate() {
                match dir {
                    Direction::Encrypt => (message.3, message.4) = (plain.clone(), vec![0; 16]),
                    Direction::Decrypt => message.4[0] ^= u8::from(i == wrong),
                }
            }
            let associated: Vec<_> = messages.iter().map(|m| m.2.clone()).collect();
            let pieces: Vec<_> = associated.iter().map(|a| [&a[..]]).collect();
            let mut ops: Vec<_> = messages
                .iter_mut()
                .zip(&pieces)
                .map(|((tfm, nonce, _, text, tag), aad)| AeadOp {
                    tfm,
                    dir,
                    nonce,
                    aad,
                    data: InOutBuf::from(&mut text[..]),
                    tag,
                    status: Err(OpError::Driver),
                })
                .collect();
            crypt(&mut ops);
            let done: Vec<_> = ops.iter().map(|op| op.status).collect();
            drop(ops);
            for (i, message) in messages.iter().enumerate() {
                if dir == Direction::Encrypt {
                    assert_eq!((&message.3, &message.4), (&sealed[i].0, &sealed[i].1), "{driver}");
                    assert_eq!(done[i], Ok(()), "{driver}");
                } else if i == wrong {
                    assert_eq!(done[i], Err(OpError::Auth), "{driver}");
                    assert!(message.3.iter().all(|b| *b == 0), "{driver}");
                } else {
                    assert_eq!((done[i], &message.3), (Ok(()), &plain[i]), "{driver}");
                }
            }
        }
    }
}

#[test]
fn pieces_as_whole() {
    let mut rand = Rand::new(35);
    for (driver, alg) in rows(Kind::Aead) {
        let mut stream = alg.aead_stream(&[9; 16]).expect("it takes pieces").unwrap();
        for round in 0..400 {
            let key = key(&alg, &mut rand);
            let (associated, len) = (rand.below([40, 2000][round % 2]), rand.below([100, 3000][round / 2 % 2]));
            let (nonce, associated, text) = (rand.bytes(12), rand.bytes(associated), rand.bytes(len));
            let what = format!("{driver}, {len} bytes with {}", associated.len());
            let (mut want, mut want_tag) = (text.clone(), [0; 16]);
            let reference = portable(Kind::Aead, &alg.info().name).aead(&key).unwrap();
            reference.seal(&nonce, &[&associated], (&mut want[..]).into(), &mut want_tag).unwrap();

            stream.set_key(&key).unwrap();
            stream.start(&nonce).unwrap();
            for piece in rand.cut(&associated) {
                stream.associated(piece).unwrap();
            }
            // A copy goes on alone.
            let mut other = stream.fork().unwrap();
            let mut sealed = text.clone();
            let mut rest = &mut sealed[..];
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at_mut(1 + rand.below(rest.len()));
                stream.text(Direction::Encrypt, piece.into()).unwrap();
                assert!(stream.associated(b"x").is_err(), "{what}");
                rest = behind;
            }
            // A start that fails changes nothing.
            assert_eq!(stream.start(&[]), Err(OpError::Nonce), "{what}");
            let mut tag = [0; 16];
            stream.seal(&mut tag).unwrap();
            assert_eq!((&sealed, tag), (&want, want_tag), "{what}");
            assert_eq!(stream.seal(&mut tag), Err(OpError::Driver), "{what}: it has ended");

            let mut opened = vec![0; len];
            let at = rand.below(len + 1);
            for range in [0..at, at..len] {
                let data = InOutBuf::new(&want[range.clone()], &mut opened[range]).unwrap();
                other.text(Direction::Decrypt, data).unwrap();
            }
            let short = TAGS[rand.below(TAGS.len())];
            let wrong = round % 3 == 0;
            want_tag[short - 1] ^= u8::from(wrong);
            assert_eq!(other.open(&want_tag[..short]), if wrong { Err(OpError::Auth) } else { Ok(()) }, "{what}");
            assert_eq!(opened, text, "{what}");
        }
    }
}

#[test]
fn macs_as_portable() {
    let mut rand = Rand::new(33);
    for (driver, alg) in rows(Kind::NonceMac).into_iter().filter(|(_, alg)| alg.info().name == "gmac(aes)") {
        for len in (0..=1100).chain([1420, 4095, 4096, 4097]) {
            let (key, nonce, data) = (key(&alg, &mut rand), rand.bytes(12), rand.bytes(len));
            let (mut want, mut tag) = ([0; 16], [0; 16]);
            portable(Kind::NonceMac, "gmac(aes)").nonce_mac(&key).unwrap().sign(&nonce, &[&data], &mut want).unwrap();
            alg.nonce_mac(&key).unwrap().sign(&nonce, &rand.cut(&data), &mut tag).unwrap();
            assert_eq!(tag, want, "{driver}: {len} bytes");
        }
    }
}

#[test]
fn pages_beyond_the_text_are_never_touched() {
    let mut rand = Rand::new(34);
    let (mut src, mut dst, mut data) = (Guarded::new(1), Guarded::new(1), Guarded::new(1));
    for (driver, alg) in rows(Kind::Aead) {
        let tfm = alg.aead(&rand.bytes(alg.info().key_lens.max())).unwrap();
        for len in (0..=700).chain([4095, 4096]) {
            for at_end in [false, true] {
                let associated = len.min(600);
                let (src, dst, associated) = if at_end {
                    (src.tail(len), dst.tail(len), data.tail(associated))
                } else {
                    (src.head(len), dst.head(len), data.head(associated))
                };
                src.copy_from_slice(&rand.bytes(len));
                let (nonce, mut tag) = (rand.bytes(12), [[0; 16]; 2]);
                let text = src.to_vec();
                tfm.seal(&nonce, &[associated], InOutBuf::new(src, dst).unwrap().into(), &mut tag[0]).unwrap();
                tfm.seal(&nonce, &[associated], (&mut *src).into(), &mut tag[1]).unwrap();
                assert!(src == dst && tag[0] == tag[1], "{driver}: {len} bytes");
                tfm.open(&nonce, &[associated], InOutBuf::new(dst, src).unwrap().into(), &tag[0]).unwrap();
                assert_eq!(*src, text, "{driver}: {len} bytes");
            }
        }
    }
}
