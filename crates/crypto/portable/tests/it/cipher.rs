//! The portable ciphers and AEADs: self-tests of every row, and properties that the vectors do not show.

use inout::InOutBuf;
use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::data::{Data, Scratch};
use sealane_crypto::selftest::vectors;
use sealane_crypto::skcipher::{Direction, SkcipherTfm};
use sealane_crypto::{Alg, KeyError, Kind, Lengths, LookupError, OpError, templates};
use sealane_crypto_portable::registry;

#[test]
fn every_row_passes_its_self_test() {
    let registry = registry();
    let mut tested = 0;
    for row in registry.rows().iter().filter(|row| matches!(row.info.kind, Kind::Skcipher | Kind::Aead)) {
        registry.self_test(row).unwrap_or_else(|what| panic!("{what}"));
        tested += 1;
    }
    assert!(tested > 30, "{tested}");
}

#[test]
fn well_known_compositions_pass_their_self_tests() {
    let registry = registry();
    for (kind, name) in templates::well_known() {
        let alg = registry.lookup(*kind, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((alg.info().kind, &*alg.info().name), (*kind, *name));
        assert!(!vectors::of(name).is_empty(), "{name} has no vector");
        let again = registry.lookup(*kind, &alg.rows()[0].driver).unwrap();
        assert_eq!(again.info(), alg.info(), "a driver name leads to the same algorithm");
    }
}

#[test]
fn compositions_are_named_after_their_parts() {
    let registry = registry();
    for (kind, name, driver) in [
        (Kind::Aead, "rfc4106(gcm(aes))", "rfc4106(gcm-aes-portable)"),
        (Kind::Aead, "authenc(hmac(sha256),cbc(aes))", "authenc(hmac-sha256-portable,cbc-aes-portable)"),
        (Kind::Aead, "authenc(hmac(sha1),rfc3686(ctr(aes)))", "authenc(hmac-sha1-portable,rfc3686(ctr-aes-portable))"),
        (Kind::Aead, "authenc(cmac(aes),cbc(aes))", "authenc(cmac-aes-portable,cbc-aes-portable)"),
        (Kind::Skcipher, "cts(cbc(camellia))", "cts(cbc-camellia-portable)"),
    ] {
        assert_eq!(registry.lookup(kind, name).unwrap().rows()[0].driver, driver);
        assert_eq!(registry.lookup(kind, driver).unwrap().info().name, name);
    }
    for (kind, name) in [
        (Kind::Aead, "rfc4106(ccm(aes))"),
        (Kind::Aead, "rfc4106(gcm(aes),gcm(aes))"),
        (Kind::Aead, "authenc(sha256,cbc(aes))"),
        (Kind::Aead, "authenc(hmac(sha256))"),
        (Kind::Aead, "rfc7539esp(chacha20,poly1306)"),
        (Kind::Skcipher, "cts(ctr(aes))"),
        (Kind::Skcipher, "rfc3686(cbc(aes))"),
        (Kind::Skcipher, "rfc4106(gcm(aes))"),
    ] {
        assert_eq!(registry.lookup(kind, name).err(), Some(LookupError::NotFound), "{name}");
    }
}

#[test]
fn a_composition_is_made_and_tested_once() {
    let registry = registry();
    let row = |name| registry.lookup(Kind::Aead, name).unwrap().rows()[0].clone();
    let first = row("rfc4106(gcm(aes))");
    let named = row("rfc4106(gcm-aes-portable)");
    assert!(std::sync::Arc::ptr_eq(&first, &row("rfc4106(gcm(aes))")));
    assert!(std::sync::Arc::ptr_eq(&named, &row("rfc4106(gcm-aes-portable)")));
    assert!(!std::sync::Arc::ptr_eq(&first, &named), "a named driver is not what measurement would choose");
    assert_eq!(registry.instances().count(), 2);
    let many = |i: usize| format!("authenc({},cbc({}))", ["hmac(md5)", "hmac(sha1)"][i % 2], ["aes", "sm4"][i / 2]);
    std::thread::scope(|scope| {
        for t in 0..2 {
            let registry = &registry;
            scope.spawn(move || (0..4).for_each(|i| drop(registry.lookup(Kind::Aead, &many((i + t) % 4)).unwrap())));
        }
    });
    // Two threads may make the same one at once; nothing is lost.
    assert!((6..=10).contains(&registry.instances().count()));
}

/// Pseudorandom bytes that are the same in each run.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (x >> 9) as u8
        })
        .collect()
}

fn first_key(lens: Lengths) -> Vec<u8> {
    noise([16, 20, 32, 36, 19].into_iter().find(|n| lens.contains(*n)).unwrap_or(lens.max().min(64)), 1)
}

fn skciphers() -> Vec<(Alg, SkcipherTfm)> {
    let registry = registry();
    let rows = registry.rows().iter().filter(|row| row.info.kind == Kind::Skcipher);
    let mut names: Vec<String> = rows.map(|row| row.info.name.clone()).collect();
    names.extend(["rfc3686(ctr(aes))", "cts(cbc(aes))", "cts(cbc(twofish))", "cts(cbc(des3_ede))"].map(String::from));
    let algs = names.iter().map(|name| registry.lookup(Kind::Skcipher, name).unwrap());
    algs.map(|alg| (alg.clone(), alg.skcipher(&first_key(alg.info().key_lens)).unwrap())).collect()
}

/// `rtattr` header, the cipher's key length, and both keys, as `crypto/authenc.c` reads them.
fn authenc_key(mac_len: usize, enc_len: usize) -> Vec<u8> {
    let header = [8u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat();
    [header, (enc_len as u32).to_be_bytes().to_vec(), noise(mac_len + enc_len, 3)].concat()
}

fn aeads() -> Vec<(Alg, AeadTfm)> {
    let registry = registry();
    let rows = registry.rows().iter().filter(|row| row.info.kind == Kind::Aead);
    let mut names: Vec<String> = rows.map(|row| row.info.name.clone()).collect();
    names.extend(templates::well_known().iter().filter(|(kind, _)| *kind == Kind::Aead).map(|(_, n)| (*n).to_owned()));
    let with_key = |name: &String| {
        let alg = registry.lookup(Kind::Aead, name).unwrap();
        let key = match &**name {
            n if n.contains("des3_ede") => authenc_key(20, 24),
            n if n.starts_with("authenc") => authenc_key(20, 20 - if n.contains("rfc3686") { 0 } else { 4 }),
            _ => first_key(alg.info().key_lens),
        };
        let tfm = alg.aead(&key).unwrap();
        (alg, tfm)
    };
    names.iter().map(with_key).collect()
}

/// Associated data that each AEAD accepts, and a nonce that CCM accepts.
fn aad_and_nonce(alg: &Alg) -> (Vec<u8>, Vec<u8>) {
    let mut nonce = noise(alg.info().iv_len, 5);
    nonce[0] = 3;
    (noise(20, 4), nonce)
}

/// The lengths that Linux takes: whole blocks, at least a block, or anything.
fn taken(name: &str, block: usize, len: usize) -> bool {
    let whole_texts = ["xts(", "cts(", "hctr2(", "adiantum("];
    if whole_texts.iter().any(|mode| name.starts_with(mode)) { len >= block } else { len.is_multiple_of(block) }
}

const LARGE: [usize; 3] = [4096, 4099, 65552];

#[test]
fn ciphers_round_trip_at_all_lengths_in_place_apart_and_scattered() {
    let mut scratch = Scratch::new();
    for (alg, tfm) in skciphers() {
        let info = alg.info();
        for len in (0..=300).chain(LARGE) {
            let (text, iv) = (noise(len, 7), noise(info.iv_len, 8));
            let (mut place, mut place_iv) = (text.clone(), iv.clone());
            let status = tfm.one(Direction::Encrypt, &mut place_iv, (&mut place[..]).into());
            let what = format!("{} with {len} bytes", info.name);
            if !taken(&info.name, info.block_len, len) {
                assert_eq!(status, Err(OpError::Length), "{what}");
                assert_eq!((place, place_iv), (text, iv), "{what}: nothing is written");
                continue;
            }
            assert_eq!(status, Ok(()), "{what}");
            let (mut apart, mut apart_iv) = (vec![0; len], iv.clone());
            tfm.one(Direction::Encrypt, &mut apart_iv, InOutBuf::new(&text, &mut apart).unwrap().into()).unwrap();
            assert_eq!((&apart, &apart_iv), (&place, &place_iv), "{what}");
            let (mut dealt, mut dealt_iv) = (vec![0; len + 3], iv.clone());
            let (head, tail) = dealt.split_at_mut(len / 4);
            let data = Data::Scattered {
                src: &[&text[..len / 3], &text[len / 3..]],
                dst: &mut [head, tail],
                scratch: &mut scratch,
            };
            tfm.one(Direction::Encrypt, &mut dealt_iv, data).unwrap();
            assert_eq!((&dealt[..len], &dealt[len..], &dealt_iv), (&place[..], &[0; 3][..], &place_iv), "{what}");
            let mut back_iv = iv.clone();
            tfm.one(Direction::Decrypt, &mut back_iv, (&mut place[..]).into()).unwrap();
            assert_eq!(place, text, "{what}");
        }
    }
}

#[test]
fn modes_that_chain_go_on_where_they_stopped() {
    for (alg, tfm) in skciphers() {
        let info = alg.info();
        if !["cbc(", "ctr(", "ecb("].iter().any(|mode| info.name.starts_with(mode)) {
            continue;
        }
        for dir in [Direction::Encrypt, Direction::Decrypt] {
            let text = noise(20 * info.chunk_len, 9);
            let (mut whole, mut whole_iv) = (text.clone(), vec![0xff; info.iv_len]);
            tfm.one(dir, &mut whole_iv, (&mut whole[..]).into()).unwrap();
            let (mut pieces, mut iv) = (text, vec![0xff; info.iv_len]);
            let mut rest = &mut pieces[..];
            for blocks in [1, 2, 17] {
                let (piece, after) = rest.split_at_mut(blocks * info.chunk_len);
                tfm.one(dir, &mut iv, piece.into()).unwrap();
                rest = after;
            }
            assert_eq!((pieces, iv), (whole, whole_iv), "{}", info.name);
        }
    }
}

/// Measured on Linux 7.3: two messages on one socket, the second without an IV.
#[test]
fn xts_and_chacha_leave_the_iv_that_linux_leaves() {
    let registry = registry();
    let text = |n: usize, start: usize| -> Vec<u8> { (0..n).map(|i| (start + i) as u8).collect() };
    for (name, key_len, iv_len, first, dir, want) in [
        ("xts(aes)", 32, 16, 16, Direction::Encrypt, "80d7714be7416e8fe00fac7b4dff1b33"),
        ("xts(aes)", 32, 16, 16, Direction::Decrypt, "1bdb9685cd789382ce6c62882ffe7684"),
        ("xts(aes)", 32, 16, 32, Direction::Encrypt, "042ba56e2b1841bb7b124f1a67697255"),
        ("xts(aes)", 32, 16, 40, Direction::Encrypt, "042ba56e2b1841bb7b124f1a67697255"),
        ("xts(aes)", 32, 16, 40, Direction::Decrypt, "1bdb9685cd789382ce6c62882ffe7684"),
        ("chacha20", 32, 16, 70, Direction::Encrypt, "5613eb75e518efec8e822feedc942ed3"),
        ("xchacha20", 32, 32, 70, Direction::Encrypt, "b2de8e5fe8757594b0d71e2a2dafd7bf"),
        ("rfc3686(ctr(aes))", 20, 8, 20, Direction::Encrypt, "c78b1fbcd62b3922385eac2c19914304"),
        ("ctr(aes)", 16, 16, 20, Direction::Encrypt, "045266dbdbfa666b44c636754fe97058"),
        ("cbc(aes)", 16, 16, 32, Direction::Decrypt, "a8464f9cabc6f0a9a1bf28e7d2a258fb"),
    ] {
        let tfm = registry.lookup(Kind::Skcipher, name).unwrap().skcipher(&text(key_len, 0)).unwrap();
        let mut iv = text(iv_len, 100);
        tfm.one(dir, &mut iv, (&mut text(first, 0)[..]).into()).unwrap();
        let mut second = text(16, 7);
        tfm.one(dir, &mut iv, (&mut second[..]).into()).unwrap();
        let hex: String = second.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, want, "{name} {dir:?} after {first} bytes");
    }
}

#[test]
fn aeads_round_trip_at_all_lengths_and_refuse_forgeries() {
    for (alg, tfm) in aeads() {
        let info = alg.info();
        let (aad, nonce) = aad_and_nonce(&alg);
        for len in (0..=300).chain(LARGE) {
            let what = format!("{} with {len} bytes", info.name);
            let text = noise(len, 10);
            let (mut sealed, mut tag) = (text.clone(), vec![0; info.tag_lens.max()]);
            let status = tfm.seal(&nonce, &[&aad], (&mut sealed[..]).into(), &mut tag);
            if !len.is_multiple_of(info.block_len) {
                assert_eq!(status, Err(OpError::Length), "{what}");
                continue;
            }
            assert_eq!(status, Ok(()), "{what}");
            // Associated data in single bytes: more pieces than fit on the stack.
            let pieces: Vec<&[u8]> = aad.chunks(1).collect();
            let (mut apart, mut apart_tag) = (vec![0; len], tag.clone());
            let data = InOutBuf::new(&text, &mut apart).unwrap();
            tfm.seal(&nonce, &pieces, data.into(), &mut apart_tag).unwrap();
            assert_eq!((&apart, &apart_tag), (&sealed, &tag), "{what}");
            let mut opened = sealed.clone();
            tfm.open(&nonce, &pieces, (&mut opened[..]).into(), &tag).unwrap();
            assert_eq!(opened, text, "{what}");
            let mut forged_aad = aad.clone();
            forged_aad[1] ^= 1;
            let mut forged_tag = tag.clone();
            forged_tag[0] ^= 0x80;
            let mut out = vec![0xee; len];
            for (aad, tag) in [(&forged_aad, &tag), (&aad, &forged_tag)] {
                let data = InOutBuf::new(&sealed, &mut out).unwrap();
                assert_eq!(tfm.open(&nonce, &[aad], data.into(), tag), Err(OpError::Auth), "{what}");
                assert_eq!(out, vec![0; len], "{what}: wiped");
                out.fill(0xee);
            }
        }
    }
}

#[test]
fn tags_have_the_lengths_that_linux_takes() {
    for (alg, tfm) in aeads() {
        let (aad, nonce) = aad_and_nonce(&alg);
        let (mut full_text, mut full) = ([1; 32], vec![0; alg.info().tag_lens.max()]);
        tfm.seal(&nonce, &[&aad], (&mut full_text[..]).into(), &mut full).unwrap();
        for len in 0..=70 {
            let (mut text, mut tag) = ([1; 32], vec![0; len]);
            let status = tfm.seal(&nonce, &[&aad], (&mut text[..]).into(), &mut tag);
            if !alg.info().tag_lens.contains(len) {
                assert_eq!(status, Err(OpError::TagLen), "{}: {len}", alg.info().name);
                continue;
            }
            assert_eq!(status, Ok(()), "{}: {len}", alg.info().name);
            assert_eq!(text, full_text);
            if !alg.info().name.contains("ccm") {
                assert_eq!(tag, full[..len], "{}: truncation", alg.info().name);
            }
            tfm.open(&nonce, &[&aad], (&mut text[..]).into(), &tag).unwrap();
        }
    }
}

/// Seventy messages, more than a composition hands on at a time. Every third is forged; every fifth has associated data
/// of a length that the IPsec AEADs refuse.
#[test]
fn bursts_keep_order_among_failures() {
    for (alg, tfm) in aeads() {
        let info = alg.info();
        let (aad, nonce) = aad_and_nonce(&alg);
        let ipsec = info.name.starts_with("rfc4");
        let texts: Vec<Vec<u8>> = (0..70).map(|i| noise((i * 16) % 160, i as u32)).collect();
        let mut sealed = texts.clone();
        let mut tags = vec![vec![0; info.tag_lens.max()]; texts.len()];
        for (text, tag) in sealed.iter_mut().zip(&mut tags) {
            tfm.seal(&nonce, &[&aad], (&mut text[..]).into(), tag).unwrap();
        }
        let whole = [&aad[..]];
        let short = [&aad[..9]];
        let aad_of = |i: usize| if ipsec && i % 5 == 4 { &short[..] } else { &whole[..] };
        for dir in [Direction::Encrypt, Direction::Decrypt] {
            let forge = dir == Direction::Decrypt;
            let mut data = if forge { sealed.clone() } else { texts.clone() };
            let mut given = tags.clone();
            if forge {
                given.iter_mut().step_by(3).for_each(|tag| tag[2] ^= 4);
            } else {
                given.iter_mut().for_each(|tag| tag.fill(0));
            }
            let mut ops: Vec<AeadOp<'_>> = data
                .iter_mut()
                .zip(&mut given)
                .enumerate()
                .map(|(i, (text, tag))| AeadOp {
                    tfm: &tfm,
                    dir,
                    nonce: &nonce,
                    aad: aad_of(i),
                    data: (&mut text[..]).into(),
                    tag,
                    status: Ok(()),
                })
                .collect();
            aead::crypt(&mut ops);
            let statuses: Vec<_> = ops.iter().map(|op| op.status).collect();
            for (i, status) in statuses.into_iter().enumerate() {
                let what = format!("{} {dir:?} number {i}", info.name);
                if ipsec && i % 5 == 4 {
                    assert_eq!(status, Err(OpError::AssocLen), "{what}");
                    assert_eq!(&data[i], if forge { &sealed[i] } else { &texts[i] }, "{what}");
                } else if forge && i % 3 == 0 {
                    assert_eq!((status, &data[i]), (Err(OpError::Auth), &vec![0; data[i].len()]), "{what}");
                } else {
                    assert_eq!((status, &data[i]), (Ok(()), if forge { &texts[i] } else { &sealed[i] }), "{what}");
                    assert_eq!(given[i], tags[i], "{what}");
                }
            }
        }
    }
}

#[test]
fn composite_keys_are_read_as_linux_reads_them() {
    let alg = registry().lookup(Kind::Aead, "authenc(hmac(sha256),cbc(aes))").unwrap();
    let good = authenc_key(32, 16);
    let with = |at: usize, byte: u8| {
        let mut key = good.clone();
        key[at] = byte;
        key
    };
    assert!(alg.aead(&good).is_ok());
    assert!(alg.aead(&authenc_key(0, 16)).is_ok(), "an empty MAC key");
    let malformed =
        [vec![], good[..4].to_vec(), good[..7].to_vec(), with(0, 4), with(0, 12), with(2, 2), with(4, 1), with(7, 49)];
    for key in malformed {
        assert_eq!(alg.aead(&key).err(), Some(KeyError::Malformed), "{key:?}");
    }
    assert_eq!(alg.aead(&with(7, 5)).err(), Some(KeyError::Length), "AES with 5 bytes");
}

#[test]
fn ccm_has_its_limits() {
    let tfm = registry().lookup(Kind::Aead, "ccm(aes)").unwrap().aead(&[0; 16]).unwrap();
    let mut text = vec![0; 65536];
    let mut seal = |len: usize, l: u8| {
        let mut nonce = [0; 16];
        nonce[0] = l;
        tfm.seal(&nonce, &[], (&mut text[..len]).into(), &mut [0; 16])
    };
    for (l, want) in
        [(0, Err(OpError::Nonce)), (1, Ok(())), (7, Ok(())), (8, Err(OpError::Nonce)), (255, Err(OpError::Nonce))]
    {
        assert_eq!(seal(32, l), want, "{l}");
    }
    assert_eq!((seal(65535, 1), seal(65536, 1), seal(65536, 2)), (Ok(()), Err(OpError::TooLong), Ok(())));
    // SP 800-38C example 4 with 65280 bytes of associated data, from where on their length takes six bytes; by OpenSSL.
    let count = |n: usize, start: usize| -> Vec<u8> { (start..start + n).map(|i| i as u8).collect() };
    let tfm = registry().lookup(Kind::Aead, "ccm(aes)").unwrap().aead(&count(16, 0x40)).unwrap();
    let nonce = [&[1][..], &count(13, 0x10), &[0, 0]].concat();
    let mut tag = [0; 14];
    tfm.seal(&nonce, &[&count(65280, 0)], (&mut count(32, 0x20)[..]).into(), &mut tag).unwrap();
    assert_eq!(tag, [0x10, 0x7f, 0xb7, 0x8c, 0x91, 0xdb, 0xb3, 0xc2, 0x1c, 0xd8, 0x10, 0xce, 0x52, 0xa6]);
}
