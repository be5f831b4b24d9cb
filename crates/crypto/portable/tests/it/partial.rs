//! Partial MACs: their vectors, what is bound into a tag, what is covered, and how often a change is found.

use crate::hash::Numbers;
use sealane_crypto::partial::detection::{BLOCKS, Level, PARTS, Point, escapes, points};
use sealane_crypto::partial::{
    BLOCK_LEN, Fraction, MAX_BODY_LEN, Message, PartialAlg, PartialOp, PartialTfm, PartialVerifyOp, names, sign, verify,
};
use sealane_crypto::{KeyError, Kind, LookupError, OpError, Registry};
use std::collections::BTreeSet;
use std::sync::LazyLock;

static REGISTRY: LazyLock<Registry> = LazyLock::new(sealane_crypto_portable::registry);

fn alg(name: &str) -> PartialAlg {
    PartialAlg::lookup(&REGISTRY, name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn tfm(name: &str) -> PartialTfm {
    alg(name).key(&[0x2b; 32], b"spi.").unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The whole tag of a message of three parts.
fn tag(tfm: &PartialTfm, number: u64, [always, body, tail]: [&[u8]; 3]) -> Vec<u8> {
    let mut tag = vec![0; tfm.info().full_tag_len()];
    tfm.sign(&Message { number, always: &[always], body, tail }, &mut tag).unwrap();
    tag
}

/// Each look-up compares with the vectors of a program that knows nothing of this one (`make_partial.py`).
#[test]
fn vectors() {
    let all: Vec<String> = names().map(|name| alg(&name).info().name()).collect();
    assert!(all.len() == 16 && names().eq(all));
}

#[test]
fn no_other_look_up_leads_to_one() {
    for name in names() {
        for kind in [Kind::Hash, Kind::NonceMac, Kind::Skcipher, Kind::Aead, Kind::Rng] {
            let found = REGISTRY.lookup(kind, &name).err();
            assert_eq!(found, Some(LookupError::NotFound), "{name}");
        }
        for template in ["authenc", "authencesn"] {
            let composed = format!("{template}({name},cbc(aes))");
            assert_eq!(REGISTRY.lookup(Kind::Aead, &composed).err(), Some(LookupError::NotFound), "{composed}");
        }
    }
    for name in ["gmac(aes)", "hmac(sha1)", "partial(hmac(md5),1/4)", "partial(cmac-aes-portable,1/4)"] {
        assert_eq!(PartialAlg::lookup(&REGISTRY, name).err(), Some(LookupError::NotFound), "{name}");
    }
}

#[test]
fn lengths_of_keys_and_tags() {
    for name in names() {
        let alg = alg(&name);
        for len in [0, 15, 65, 200] {
            assert_eq!(alg.key(&vec![1; len], b"").err(), Some(KeyError::Length), "{name} {len}");
        }
        let (tfm, info) = (alg.key(&[1; 16], b"").unwrap(), alg.info());
        assert!(alg.key(&[1; 64], b"").is_ok());
        let message = Message { number: 1, always: &[b"a header"], body: &[2; 100], tail: b"" };
        for len in 0..=64 {
            let mut tag = vec![0; len];
            let fits = (info.min_tag_len()..=info.full_tag_len()).contains(&len);
            let wanted = if fits { Ok(()) } else { Err(OpError::TagLen) };
            assert_eq!(tfm.sign(&message, &mut tag), wanted, "{name} {len}");
            assert_eq!(tfm.verify(&message, &tag), wanted, "{name} {len}");
        }
        let body = vec![3; MAX_BODY_LEN + 1];
        let mut tag = vec![0; info.full_tag_len()];
        let whole = Message { body: &body[1..], ..message };
        assert_eq!(tfm.sign(&whole, &mut tag), Ok(()));
        assert_eq!(tfm.verify(&whole, &tag), Ok(()));
        let long = Message { body: &body, ..message };
        assert_eq!(
            (tfm.sign(&long, &mut tag), tfm.verify(&long, &tag)),
            (Err(OpError::TooLong), Err(OpError::TooLong))
        );
        assert_eq!(tfm.selection(1, body.len()).err(), Some(OpError::TooLong));
    }
}

/// Nothing that a tag depends on can be another and leave it as it is: MAC, fraction, key, context, number, lengths, length of the tag.
#[test]
fn all_is_bound() {
    let (always, body, tail) = ([1; 40], [2; 400], [3; 48]);
    let mut seen = BTreeSet::new();
    let mut put = |tag: Vec<u8>, what: &str| assert!(seen.insert(tag[..12].to_vec()), "{what}");
    for name in names() {
        let alg = alg(&name);
        for (key, context) in [([7; 16], &b"spi."[..]), ([8; 16], b"spi."), ([7; 16], b"spj."), ([7; 16], b"")] {
            let tfm = alg.key(&key, context).unwrap();
            for number in [1, 2, 1 << 32 | 1] {
                put(tag(&tfm, number, [&always, &body, &tail]), &name);
            }
            // The same bytes, divided otherwise, and others of which each is like its neighbours.
            put(tag(&tfm, 1, [&always[..39], &body, &tail]), &name);
            put(tag(&tfm, 1, [&always, &body[..399], &tail]), &name);
            put(tag(&tfm, 1, [&always, &body[..384], &tail]), &name);
            put(tag(&tfm, 1, [&always, &body, &tail[..47]]), &name);
            put(tag(&tfm, 1, [&always, &body, &[]]), &name);
            put(tag(&tfm, 1, [&[], &body, &tail]), &name);
            let info = tfm.info();
            for len in info.min_tag_len()..info.full_tag_len() {
                let mut short = vec![0; len];
                let message = Message { number: 1, always: &[&always], body: &body, tail: &tail };
                tfm.sign(&message, &mut short).unwrap();
                put(short, "a shorter tag is no prefix of a longer one");
            }
        }
    }
}

/// HMAC takes a key with zeros behind it for the same key; a partial MAC does not.
#[test]
fn zeros_make_another_key() {
    let mut numbers = Numbers(6);
    let key = [numbers.bytes(16), vec![0; 48]].concat();
    for name in names() {
        let alg = alg(&name);
        let of = |len: usize| tag(&alg.key(&key[..len], b"spi.").unwrap(), 1, [b"always", &[2; 400], b"tail"]);
        let tags: BTreeSet<Vec<u8>> = (16..=64).map(of).collect();
        assert_eq!(tags.len(), 49, "{name}");
    }
}

/// The selection of a body says nothing of that of a longer one that begins in the same way.
#[test]
fn the_length_selects() {
    for name in names().filter(|name| !name.ends_with(",1)")) {
        let tfm = tfm(&name);
        let selections: BTreeSet<Vec<bool>> = (1600..1700)
            .map(|len| {
                let selection = tfm.selection(1, len).unwrap();
                (0..100).map(|block| selection.covers(block)).collect()
            })
            .collect();
        assert_eq!(selections.len(), 100, "{name}: each length has its own");
    }
}

/// A byte before or behind the body is always covered; one of the body is if its block is selected.
#[test]
fn covered_is_what_is_selected() {
    for name in names() {
        let tfm = tfm(&name);
        let whole = tfm.info().fraction == Fraction::Whole;
        let mut numbers = Numbers(5);
        let (always, mut body, tail) = (numbers.bytes(30), numbers.bytes(150 * BLOCK_LEN - 7), numbers.bytes(20));
        for number in [1, 2, u64::MAX] {
            let good = tag(&tfm, number, [&always, &body, &tail]);
            for at in 0..always.len() {
                let mut other = always.clone();
                other[at] ^= 1 << (at % 8);
                assert_ne!(tag(&tfm, number, [&other, &body, &tail]), good, "{name}");
            }
            for at in 0..tail.len() {
                let mut other = tail.clone();
                other[at] ^= 1 << (at % 8);
                assert_ne!(tag(&tfm, number, [&always, &body, &other]), good, "{name}");
            }
            let selection = tfm.selection(number, body.len()).unwrap();
            let mut covered = 0;
            for block in 0..150 {
                let at = block * BLOCK_LEN + numbers.below(BLOCK_LEN.min(body.len() - block * BLOCK_LEN));
                body[at] ^= 0x80;
                let message = Message { number, always: &[&always], body: &body, tail: &tail };
                let passes = tfm.verify(&message, &good) == Ok(());
                assert_eq!(passes, !selection.covers(block), "{name}: block {block}");
                body[at] ^= 0x80;
                covered += usize::from(!passes);
            }
            assert_eq!((covered, covered == 150), (selection.count(), whole), "{name}");
            assert!(!selection.covers(150) && !selection.covers(150 + 128) && covered > 4);
        }
    }
}

/// Covered blocks keep their order: two that differ cannot change places, and a selected one cannot take the place of another.
#[test]
fn blocks_keep_their_places() {
    for name in names() {
        let tfm = tfm(&name);
        let body: Vec<u8> = (0..60 * BLOCK_LEN).map(|at| (at / BLOCK_LEN) as u8).collect();
        let good = tag(&tfm, 9, [b"always", &body, b"tail"]);
        let selection = tfm.selection(9, body.len()).unwrap();
        for (a, b) in (0..60).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let mut swapped = body.clone();
            for at in 0..BLOCK_LEN {
                swapped.swap(a * BLOCK_LEN + at, b * BLOCK_LEN + at);
            }
            let passes = tag(&tfm, 9, [b"always", &swapped, b"tail"]) == good;
            assert_eq!(passes, !selection.covers(a) && !selection.covers(b), "{name}: {a} and {b}");
        }
    }
}

/// In a burst of messages of all lengths, under keys of all algorithms, each tag is that of the message alone.
#[test]
fn a_burst_is_its_messages() {
    let tfms: Vec<PartialTfm> = names().map(|name| tfm(&name)).collect();
    let mut numbers = Numbers(8);
    let lens = [0, 1, 15, 16, 17, 300, 2047, 2048, 2049, 9000, 33_000, 65_535];
    let messages: Vec<(&PartialTfm, u64, Vec<u8>)> = (0..150u64)
        .map(|i| {
            let len = lens[numbers.below(lens.len())];
            (&tfms[numbers.below(tfms.len())], i << 20, numbers.bytes(len))
        })
        .collect();
    let alone: Vec<Vec<u8>> = messages.iter().map(|(tfm, n, body)| tag(tfm, *n, [b"head", body, b"tail"])).collect();
    let mut tags: Vec<Vec<u8>> = alone.iter().map(|tag| vec![0; tag.len()]).collect();
    // Ones that cannot be computed leave the others as they are.
    tags[20] = vec![0; 3];
    tags[140] = vec![0; 65];
    let message =
        |at: usize| Message { number: messages[at].1, always: &[b"he", b"ad"], body: &messages[at].2, tail: b"tail" };
    let mut ops: Vec<PartialOp<'_>> = (tags.iter_mut().enumerate())
        .map(|(at, tag)| PartialOp { tfm: messages[at].0, message: message(at), tag, status: Ok(()) })
        .collect();
    sign(&mut ops);
    for (at, op) in ops.iter().enumerate() {
        match at {
            20 | 140 => assert_eq!(op.status, Err(OpError::TagLen)),
            _ => assert_eq!((op.status, &*op.tag), (Ok(()), &alone[at][..]), "message {at}"),
        }
    }
    for forged in [0, 15, 16, 77, 149] {
        tags[forged][5] ^= 1;
    }
    let mut ops: Vec<PartialVerifyOp<'_>> = (tags.iter().enumerate())
        .map(|(at, tag)| PartialVerifyOp { tfm: messages[at].0, message: message(at), tag, status: Ok(()) })
        .collect();
    verify(&mut ops);
    for (at, op) in ops.iter().enumerate() {
        let wanted = match at {
            20 | 140 => Err(OpError::TagLen),
            0 | 15 | 16 | 77 | 149 => Err(OpError::Auth),
            _ => Ok(()),
        };
        assert_eq!(op.status, wanted, "message {at}");
    }
}

const P999: Level = Level { outside: 0.001, z: 3.290_527 };
/// 99 % for all 264 points of a series at once (Bonferroni).
const P99_OF_ALL: Level = Level { outside: 0.01 / 264.0, z: 4.125 };

/// Every fraction and number of altered blocks, with (1 - f)^m beside it.
fn series(trials: u64, seed: u64) -> Vec<Point> {
    let of = |fraction: Fraction| {
        let alg = alg(&format!("partial(cmac(aes),{})", fraction.name()));
        points(&alg, trials, seed).expect("the cipher works")
    };
    PARTS.into_iter().flat_map(of).collect()
}

/// Of all of a body nothing is ever left out.
#[test]
fn a_whole_one_lets_nothing_escape() {
    assert_eq!(escapes(&alg("partial(cmac(aes),1)"), 1000, 1), Ok([0; BLOCKS]));
}

/// With 10^4 packets a point and the interval of 99.9 %. The numbers are the same in every run.
#[test]
fn detection_is_as_the_formula_says() {
    let points = series(10_000, 0x5ea1_a4e5);
    assert_eq!(points.len(), PARTS.len() * BLOCKS);
    for point in &points {
        assert!(point.is_within(P999), "{point:?}");
    }
}

/// With 10^6 packets a point, in ten series with the seeds 0 to 9. By chance alone one point in a hundred is outside of its interval of
/// 99 %, and as the points of a fraction are about the same packets, several of a series at once. So each point of each series has to
/// be within an interval of 99 % for all points at once; within their own ones all but one in fifty. The first series is printed.
#[test]
#[ignore = "make accept: 10^6 packets a point; prints figures"]
fn detection_of_a_million() {
    const TRIALS: u64 = 1_000_000;
    let all: Vec<Vec<Point>> = (0..10).map(|seed| series(TRIALS, seed)).collect();
    println!("fraction,blocks,altered,trials,escaped,formula,low99,high99");
    for point @ Point { fraction, altered, escaped, formula, .. } in &all[0] {
        let [low, high] = point.interval(Level::P99);
        println!("{},{BLOCKS},{altered},{TRIALS},{escaped},{formula:.4e},{low:.4e},{high:.4e}", fraction.name());
    }
    for point in all.iter().flatten() {
        assert!(point.is_within(P99_OF_ALL), "{point:?}");
    }
    let outside_of = |series: &[Point]| series.iter().filter(|point| !point.is_within(Level::P99)).count();
    let outside: Vec<usize> = all.iter().map(|series| outside_of(series)).collect();
    println!("# points outside of their intervals, series by series: {outside:?}");
    let (outside, points) = (outside.iter().sum::<usize>(), all.len() * all[0].len());
    println!("# {outside} of {points} points of ten series are outside of their intervals");
    assert!(outside * 50 <= points, "{outside} of {points}");
}
