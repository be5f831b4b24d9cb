//! AES modes, against the portable rows.

use crate::common::{Guarded, Rand, portable, rows};
use inout::InOutBuf;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{Alg, Kind, OpError};

const BOTH: [Direction; 2] = [Direction::Encrypt, Direction::Decrypt];

/// Runs one text on a row and on the portable one, in place and apart, and compares text and IV.
fn check(driver: &str, alg: &Alg, rand: &mut Rand, dir: Direction, iv: &[u8], text: &[u8]) {
    let lens: Vec<usize> = (1..=64).filter(|n| alg.info().key_lens.contains(*n)).collect();
    let key_len = lens[rand.below(lens.len())];
    let key = rand.bytes(key_len);
    let run =
        |alg: &Alg, iv: &mut [u8], data: InOutBuf<'_, '_, u8>| alg.skcipher(&key).unwrap().one(dir, iv, data.into());
    let (mut want, mut want_iv) = (text.to_vec(), iv.to_vec());
    let wanted = run(&portable(Kind::Skcipher, &alg.info().name), &mut want_iv, InOutBuf::from(&mut want[..]));
    let what = format!("{driver}, {dir:?}, key of {}, {} bytes, IV {iv:02x?}", key.len(), text.len());
    // Both misaligned, in different ways.
    let (in_at, out_at) = (rand.below(17), rand.below(17));
    let mut src = vec![0; in_at];
    src.extend_from_slice(text);
    let mut dst = vec![0xa5; out_at + text.len() + 1];
    let mut next = iv.to_vec();
    let data = InOutBuf::new(&src[in_at..], &mut dst[out_at..][..text.len()]).unwrap();
    assert_eq!(run(alg, &mut next, data), wanted, "{what}");
    if wanted.is_ok() {
        assert_eq!(dst[out_at..][..text.len()], want, "{what}, apart");
        assert_eq!(next, want_iv, "{what}, apart: IV");
    }
    assert!(dst[out_at + text.len()] == 0xa5 && dst[..out_at].iter().all(|b| *b == 0xa5), "{what}: beyond the output");
    let mut next = iv.to_vec();
    assert_eq!(run(alg, &mut next, InOutBuf::from(&mut src[in_at..])), wanted, "{what}");
    assert_eq!(src[in_at..], want, "{what}, in place");
    assert_eq!(next, want_iv, "{what}, in place: IV");
}

#[test]
fn all_lengths_as_portable() {
    let mut rand = Rand::new(11);
    for (driver, alg) in rows(Kind::Skcipher) {
        for len in (0..=600).chain([1023, 1024, 1040, 4095, 4096, 4097]) {
            let (iv, text) = (rand.bytes(alg.info().iv_len), rand.bytes(len));
            for dir in BOTH {
                check(&driver, &alg, &mut rand, dir, &iv, &text);
            }
        }
        for _ in 0..100 {
            let len = rand.below(5000);
            let (iv, text) = (rand.bytes(alg.info().iv_len), rand.bytes(len));
            check(&driver, &alg, &mut rand, BOTH[len % 2], &iv, &text);
        }
    }
}

#[test]
fn counters_carry_through_all_bytes() {
    let mut rand = Rand::new(12);
    let ctr: Vec<_> = rows(Kind::Skcipher).into_iter().filter(|(_, alg)| alg.info().name == "ctr(aes)").collect();
    for (driver, alg) in ctr {
        for from in 0..16 {
            // Ones from byte `from` on, less a little, so that the carry happens inside the text.
            for below in [0u128, 1, 3, 4, 31, 32, 33, 70] {
                let ones = u128::MAX >> (8 * from);
                let iv = (0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10u128 | ones).wrapping_sub(below).to_be_bytes();
                let len = 600 + rand.below(1000);
                let text = rand.bytes(len);
                check(&driver, &alg, &mut rand, Direction::Encrypt, &iv, &text);
            }
        }
    }
}

#[test]
fn lengths_that_do_not_suit_change_nothing() {
    for (driver, alg) in rows(Kind::Skcipher) {
        let bad: &[usize] = match alg.info().name.as_str() {
            "ecb(aes)" | "cbc(aes)" => &[1, 15, 17, 100],
            "xts(aes)" => &[0, 1, 15],
            _ => continue,
        };
        let tfm = alg.skcipher(&vec![7; alg.info().key_lens.max()]).unwrap();
        for len in bad {
            for dir in BOTH {
                let (mut text, mut iv) = (vec![9u8; *len], vec![3u8; alg.info().iv_len]);
                assert_eq!(
                    tfm.one(dir, &mut iv, (&mut text[..]).into()),
                    Err(OpError::Length),
                    "{driver}: {len} bytes"
                );
                assert!(text.iter().all(|b| *b == 9) && iv.iter().all(|b| *b == 3), "{driver}: {len} bytes");
            }
        }
    }
}

#[test]
fn pages_beyond_the_text_are_never_touched() {
    let mut rand = Rand::new(13);
    let (mut src, mut dst) = (Guarded::new(1), Guarded::new(1));
    for (driver, alg) in rows(Kind::Skcipher) {
        let tfm = alg.skcipher(&rand.bytes(alg.info().key_lens.max())).unwrap();
        for len in (0..=600).chain([4095, 4096]) {
            for dir in BOTH {
                for tail in [false, true] {
                    let (src, dst) = if tail { (src.tail(len), dst.tail(len)) } else { (src.head(len), dst.head(len)) };
                    src.copy_from_slice(&rand.bytes(len));
                    let iv = rand.bytes(alg.info().iv_len);
                    let apart = tfm.one(dir, &mut iv.clone(), InOutBuf::new(src, dst).unwrap().into());
                    let in_place = tfm.one(dir, &mut iv.clone(), src.into());
                    assert_eq!(apart, in_place, "{driver}: {len} bytes");
                    assert!(apart.is_err() || src == dst, "{driver}: {len} bytes");
                }
            }
        }
    }
}
