//! The second half of a self-test: one driver against another, and pieces, bursts and forks against single texts.

use super::report::{self, equal};
use crate::KeyError;
use crate::aead::{self, AeadOp, AeadStream, AeadTfm};
use crate::data::{Data, Scratch};
use crate::error::{OpError, Status};
use crate::hash::{HashOp, HashState};
use crate::info::{AlgInfo, KeyUse, Kind, Lengths};
use crate::mac::{self, MAX_TAG_LEN, MacOp, MacTfm, NonceMacOp, NonceMacTfm};
use crate::registry::Alg;
use crate::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use inout::InOutBuf;

/// Lengths around the block lengths 8, 16, 64, 128, 136, 144 and their paddings, and around the steps of SIMD loops.
const LENS: [usize; 25] =
    [0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 48, 55, 56, 63, 64, 65, 111, 112, 127, 128, 129, 143, 257, 511, 640];

/// Sizes of the bursts: a single operation, a few, and enough for the lanes of SIMD drivers.
const BURSTS: [usize; 3] = [1, 3, 17];

const DIRECTIONS: [Direction; 2] = [Direction::Encrypt, Direction::Decrypt];

/// Compares the drivers of `alg` and `reference`, which may be the same.
pub(super) fn run(alg: &Alg, reference: &Alg) -> Result<(), String> {
    match alg.info().kind {
        Kind::Hash if alg.info().key_use == KeyUse::None => hash(alg, reference),
        Kind::Hash => {
            let keyed = make_keys(alg.info(), |key| Ok((alg.mac(key)?, reference.mac(key)?)))?;
            mac(&keyed, alg.info())
        }
        Kind::NonceMac => {
            let keyed = make_keys(alg.info(), |key| Ok((alg.nonce_mac(key)?, reference.nonce_mac(key)?)))?;
            nonce_mac(&keyed, alg.info())
        }
        Kind::Skcipher => {
            let keyed = make_keys(alg.info(), |key| Ok((alg.skcipher(key)?, reference.skcipher(key)?)))?;
            skcipher(&keyed, alg.info())
        }
        Kind::Aead => {
            let keyed = make_keys(alg.info(), |key| Ok((alg.aead(key)?, reference.aead(key)?)))?;
            aead(&keyed, alg.info())?;
            streams(alg, reference)
        }
        Kind::Rng => rng(alg),
    }
}

/// Pseudorandom bytes that are the same in each run.
fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let mut x = 0x9e37_79b9_u32.wrapping_mul(u32::from(seed) + 1);
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (x >> 11) as u8
        })
        .collect()
}

/// The text of the `i`-th operation of a burst: lengths are mixed.
fn text_of_op(i: usize) -> Vec<u8> {
    bytes(LENS[(i * 7 + 3) % LENS.len()], i as u8)
}

/// A transform under test and its reference, for each kind of key that the algorithm takes.
fn make_keys<T>(info: &AlgInfo, make: impl Fn(&[u8]) -> Result<(T, T), KeyError>) -> Result<Vec<(T, T)>, String> {
    let of_range = |min: usize, max: usize| {
        let near_block = [min, 1, 20, info.block_len, info.block_len + 1, max.min(info.block_len + 1)];
        let mut lens: Vec<usize> = near_block.into_iter().filter(|len| (min..=max).contains(len)).collect();
        lens.sort_unstable();
        lens.dedup();
        lens
    };
    let mut lens = match info.key_lens {
        Lengths::None => Vec::new(),
        Lengths::Range(min, max) => of_range(min, max),
        Lengths::Of(list) => list.to_vec(),
    };
    if info.key_use == KeyUse::Optional && !lens.contains(&0) {
        lens.push(0);
    }
    let made = lens.iter().map(|len| make(&bytes(*len, *len as u8))).collect::<Result<Vec<_>, _>>();
    let made = match made {
        // A key of `authenc` starts with a header that gives the lengths of its parts.
        Err(KeyError::Malformed) => {
            let with = |auth_len| {
                let made = [8, 16, 20, 24, 32, 64].map(|enc_len| make(&authenc_key(auth_len, enc_len)).ok());
                Vec::from_iter(made.into_iter().flatten())
            };
            // HMACs take keys of any length, CMAC and XCBC 16 bytes, BLAKE3 32.
            Ok([20, 16, 32].into_iter().map(with).find(|made| !made.is_empty()).unwrap_or_default())
        }
        made => made,
    };
    match made {
        Ok(made) if made.is_empty() => Err("no key was accepted".to_owned()),
        Ok(made) => Ok(made),
        Err(e) => Err(format!("a key was refused: {e}")),
    }
}

/// `struct rtattr` (length 8, type 1), the length of the cipher's key in big endian, the MAC's key, the cipher's key.
fn authenc_key(auth_len: usize, enc_len: usize) -> Vec<u8> {
    let mut key = Vec::new();
    key.extend_from_slice(&8u16.to_ne_bytes());
    key.extend_from_slice(&1u16.to_ne_bytes());
    key.extend_from_slice(&(enc_len as u32).to_be_bytes());
    key.extend(bytes(auth_len + enc_len, 77));
    key
}

/// A hash state gives `want` however the message is cut, and again after `finish`; a fork is independent.
fn incremental(state: &mut dyn HashState, text: &[u8], want: &[u8]) -> Result<(), String> {
    let mut got = [0; MAX_TAG_LEN];
    let got = &mut got[..want.len()];
    let len = text.len();
    for cut in [0, 1, len / 3, len / 2] {
        let (head, tail) = text.split_at(cut.min(len));
        state.update(head);
        let mut fork = state.fork();
        state.update(tail);
        state.finish(got).map_err(report::op)?;
        equal("result in pieces", got, want)?;
        fork.update(tail);
        fork.finish(got).map_err(report::op)?;
        equal("result of a fork", got, want)?;
    }
    state.update(b"forgotten");
    state.reset();
    state.update(text);
    state.finish(got).map_err(report::op)?;
    equal("result after a reset", got, want)
}

fn hash(alg: &Alg, reference: &Alg) -> Result<(), String> {
    let (tfm, reference) = (alg.hash(), reference.hash());
    let full = alg.info().digest_len;
    let result = |text: &[u8]| -> Result<Vec<u8>, String> {
        let mut want = vec![0; full];
        reference.one(&[text], &mut want).map_err(report::op)?;
        Ok(want)
    };
    for len in LENS {
        let text = bytes(len, 1);
        let (want, mut got) = (result(&text)?, vec![0; full]);
        let pieces = text.split_at(len / 3);
        tfm.one(&[pieces.0, pieces.1], &mut got).map_err(report::op)?;
        equal(&format!("digest of {len} bytes"), &got, &want)?;
    }
    for len in [0, 65, 257] {
        let text = bytes(len, 2);
        incremental(&mut *tfm.start(), &text, &result(&text)?)?;
    }
    for burst in BURSTS {
        let texts: Vec<Vec<u8>> = (0..burst).map(text_of_op).collect();
        let data: Vec<[&[u8]; 1]> = texts.iter().map(|t| [&t[..]]).collect();
        // Every third digest is truncated.
        let mut out: Vec<Vec<u8>> = (0..burst).map(|i| vec![0; if i % 3 == 2 { full / 2 } else { full }]).collect();
        let mut ops: Vec<HashOp<'_>> = data.iter().zip(&mut out).map(|(d, out)| HashOp::new(d, out)).collect();
        tfm.burst(&mut ops);
        for (op, text) in ops.iter().zip(&texts) {
            op.status.map_err(report::op)?;
            equal(&format!("digest in a burst of {burst}"), op.digest, &result(text)?[..op.digest.len()])?;
        }
    }
    Ok(())
}

fn mac(keyed: &[(MacTfm, MacTfm)], info: &AlgInfo) -> Result<(), String> {
    let full = info.digest_len;
    let result = |reference: &MacTfm, text: &[u8]| -> Result<Vec<u8>, String> {
        let mut want = vec![0; full];
        reference.sign(&[text], &mut want).map_err(report::op)?;
        Ok(want)
    };
    for (at, (tfm, reference)) in keyed.iter().enumerate() {
        // All lengths under the first key, some under the others.
        for len in LENS.into_iter().step_by(if at == 0 { 1 } else { 6 }) {
            let text = bytes(len, 3);
            let (want, mut got) = (result(reference, &text)?, vec![0; full]);
            let pieces = text.split_at(len / 3);
            tfm.sign(&[pieces.0, pieces.1], &mut got).map_err(report::op)?;
            equal(&format!("tag of {len} bytes"), &got, &want)?;
            tfm.verify(&[&text], &want).map_err(report::op)?;
        }
        let text = bytes(129, 4);
        let want = result(reference, &text)?;
        incremental(&mut *tfm.start(), &text, &want)?;
        let mut wrong = want;
        wrong[0] ^= 1;
        if tfm.verify(&[&text], &wrong) != Err(OpError::Auth) {
            return Err("a wrong tag was accepted".to_owned());
        }
    }
    for burst in BURSTS {
        let texts: Vec<Vec<u8>> = (0..burst).map(text_of_op).collect();
        let data: Vec<[&[u8]; 1]> = texts.iter().map(|t| [&t[..]]).collect();
        let mut out: Vec<Vec<u8>> = (0..burst).map(|i| vec![0; if i % 3 == 2 { full / 2 } else { full }]).collect();
        let keys: Vec<&(MacTfm, MacTfm)> = keyed.iter().cycle().take(burst).collect();
        let mut ops: Vec<MacOp<'_>> =
            data.iter().zip(&mut out).zip(&keys).map(|((d, out), k)| MacOp::new(&k.0, d, out)).collect();
        mac::sign(&mut ops);
        for ((op, text), key) in ops.iter().zip(&texts).zip(&keys) {
            op.status.map_err(report::op)?;
            equal(&format!("tag in a burst of {burst}"), op.tag, &result(&key.1, text)?[..op.tag.len()])?;
        }
    }
    Ok(())
}

fn nonce_mac(keyed: &[(NonceMacTfm, NonceMacTfm)], info: &AlgInfo) -> Result<(), String> {
    let (full, nonce) = (info.digest_len, bytes(info.iv_len, 5));
    let result = |reference: &NonceMacTfm, text: &[u8]| -> Result<Vec<u8>, String> {
        let mut want = vec![0; full];
        reference.sign(&nonce, &[text], &mut want).map_err(report::op)?;
        Ok(want)
    };
    for (tfm, reference) in keyed {
        for len in LENS {
            let text = bytes(len, 6);
            let (want, mut got) = (result(reference, &text)?, vec![0; full]);
            let pieces = text.split_at(len / 3);
            tfm.sign(&nonce, &[pieces.0, pieces.1], &mut got).map_err(report::op)?;
            equal(&format!("tag of {len} bytes"), &got, &want)?;
        }
    }
    for burst in BURSTS {
        let texts: Vec<Vec<u8>> = (0..burst).map(text_of_op).collect();
        let data: Vec<[&[u8]; 1]> = texts.iter().map(|t| [&t[..]]).collect();
        let mut out: Vec<Vec<u8>> = (0..burst).map(|i| vec![0; if i % 3 == 2 { full / 2 } else { full }]).collect();
        let keys: Vec<&(NonceMacTfm, NonceMacTfm)> = keyed.iter().cycle().take(burst).collect();
        let mut ops: Vec<NonceMacOp<'_>> = data
            .iter()
            .zip(&mut out)
            .zip(&keys)
            .map(|((data, tag), k)| NonceMacOp { tfm: &k.0, nonce: &nonce, data, tag, status: Ok(()) })
            .collect();
        mac::nonce_sign(&mut ops);
        for ((op, text), key) in ops.iter().zip(&texts).zip(&keys) {
            op.status.map_err(report::op)?;
            equal(&format!("tag in a burst of {burst}"), op.tag, &result(&key.1, text)?[..op.tag.len()])?;
        }
    }
    Ok(())
}

fn same_status(what: &str, got: Status, want: Status) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what} ended as {got:?}, expected {want:?}")) }
}

fn skcipher(keyed: &[(SkcipherTfm, SkcipherTfm)], info: &AlgInfo) -> Result<(), String> {
    let iv = bytes(info.iv_len, 7);
    // The result of the reference: status, text, IV on return.
    let result = |reference: &SkcipherTfm, dir, text: &[u8]| {
        let (mut iv, mut out) = (iv.clone(), text.to_vec());
        (reference.one(dir, &mut iv, (&mut out[..]).into()), out, iv)
    };
    for (at, (tfm, reference)) in keyed.iter().enumerate() {
        for (dir, len) in DIRECTIONS.into_iter().flat_map(|dir| LENS.map(|len| (dir, len))).step_by(1 + at * 2) {
            let what = format!("{dir:?} of {len} bytes");
            let text = bytes(len, 8);
            let (status, want, want_iv) = result(reference, dir, &text);
            let (mut place, mut place_iv) = (text.clone(), iv.clone());
            same_status(&what, tfm.one(dir, &mut place_iv, (&mut place[..]).into()), status)?;
            let (mut apart, mut apart_iv) = (vec![0; len], iv.clone());
            let data = InOutBuf::new(&text, &mut apart).map_err(|_| "lengths differ".to_owned())?;
            same_status(&what, tfm.one(dir, &mut apart_iv, Data::Flat(data)), status)?;
            if status.is_err() {
                continue;
            }
            equal(&format!("{what} in place"), &place, &want)?;
            equal(&format!("{what} apart"), &apart, &want)?;
            equal(&format!("IV after {what} in place"), &place_iv, &want_iv)?;
            equal(&format!("IV after {what} apart"), &apart_iv, &want_iv)?;
            let (_, back, _) =
                result(tfm, if dir == Direction::Encrypt { Direction::Decrypt } else { Direction::Encrypt }, &want);
            equal(&format!("{what} and back"), &back, &text)?;
            if len == 64 {
                scattered(tfm, dir, &iv, &text, &want)?;
            }
        }
    }
    for (dir, burst) in DIRECTIONS.into_iter().flat_map(|dir| BURSTS.map(|burst| (dir, burst))) {
        let keys: Vec<&(SkcipherTfm, SkcipherTfm)> = keyed.iter().cycle().take(burst).collect();
        let inputs: Vec<Vec<u8>> = (0..burst).map(text_of_op).collect();
        let (mut texts, mut ivs) = (inputs.clone(), vec![iv.clone(); burst]);
        let mut ops: Vec<SkcipherOp<'_>> = (keys.iter().zip(&mut texts).zip(&mut ivs))
            .map(|((key, text), iv)| SkcipherOp { tfm: &key.0, dir, iv, data: (&mut text[..]).into(), status: Ok(()) })
            .collect();
        skcipher::crypt(&mut ops);
        let statuses: Vec<Status> = ops.iter().map(|op| op.status).collect();
        for (i, key) in keys.iter().enumerate() {
            let what = format!("{dir:?} in a burst of {burst}");
            let (status, want, want_iv) = result(&key.1, dir, &inputs[i]);
            same_status(&what, statuses[i], status)?;
            if status.is_ok() {
                equal(&what, &texts[i], &want)?;
                equal(&format!("IV after {what}"), &ivs[i], &want_iv)?;
            }
        }
    }
    Ok(())
}

fn scattered(tfm: &SkcipherTfm, dir: Direction, iv: &[u8], text: &[u8], want: &[u8]) -> Result<(), String> {
    let (mut iv, mut out, mut scratch) = (iv.to_vec(), vec![0; text.len()], Scratch::new());
    let (head, tail) = text.split_at(text.len() / 3);
    let (out_head, out_tail) = out.split_at_mut(text.len() / 5);
    let data = Data::Scattered { src: &[head, tail], dst: &mut [out_head, out_tail], scratch: &mut scratch };
    tfm.one(dir, &mut iv, data).map_err(report::op)?;
    equal("scattered text", &out, want)
}

fn aead(keyed: &[(AeadTfm, AeadTfm)], info: &AlgInfo) -> Result<(), String> {
    let mut nonce = bytes(info.iv_len, 9);
    if let Some(first) = nonce.first_mut() {
        // CCM: the first octet gives the length of the length field, 2 to 8 bytes as 1 to 7 (RFC 3610).
        *first = 3;
    }
    // The result of the reference: status, ciphertext, tag.
    let sealed = |reference: &AeadTfm, aad: &[u8], text: &[u8], tag_len: usize| {
        let (mut out, mut tag) = (text.to_vec(), vec![0; tag_len]);
        (reference.seal(&nonce, &[aad], (&mut out[..]).into(), &mut tag), out, tag)
    };
    let full = info.tag_lens.max();
    for (at, (tfm, reference)) in keyed.iter().enumerate() {
        for (i, len) in LENS.into_iter().enumerate().step_by(1 + at * 2) {
            // The AEADs of IPsec take 16 or 20 bytes, the others any number.
            let aad = bytes([16, 20, 0, 20, 1, 16, 33][i % 7], 10);
            let tag_len = if i % 4 == 3 { info.tag_lens.min() } else { full };
            let what = format!("{len} bytes with {} of associated data", aad.len());
            let text = bytes(len, 11);
            let (status, want, want_tag) = sealed(reference, &aad, &text, tag_len);
            let (got_status, place, tag) = sealed(tfm, &aad, &text, tag_len);
            same_status(&format!("sealing {what}"), got_status, status)?;
            if status.is_err() {
                continue;
            }
            equal(&format!("sealing {what} in place"), &place, &want)?;
            equal(&format!("tag of {what}"), &tag, &want_tag)?;
            let (mut apart, mut tag) = (vec![0; len], vec![0; tag_len]);
            let pieces = aad.split_at(aad.len() / 3);
            let data = InOutBuf::new(&text, &mut apart).map_err(|_| "lengths differ".to_owned())?;
            tfm.seal(&nonce, &[pieces.0, pieces.1], Data::Flat(data), &mut tag).map_err(report::op)?;
            equal(&format!("sealing {what} apart"), &apart, &want)?;
            equal(&format!("tag of {what} apart"), &tag, &want_tag)?;
            let mut back = want.clone();
            tfm.open(&nonce, &[&aad], (&mut back[..]).into(), &tag).map_err(report::op)?;
            equal(&format!("opening {what}"), &back, &text)?;
            if let Some(last) = tag.last_mut() {
                *last ^= 0x80;
                let mut out = vec![0xa5; len];
                let data = InOutBuf::new(&want, &mut out).map_err(|_| "lengths differ".to_owned())?;
                same_status(
                    "opening with a wrong tag",
                    tfm.open(&nonce, &[&aad], Data::Flat(data), &tag),
                    Err(OpError::Auth),
                )?;
                equal("text of a refused message", &out, &vec![0; len])?;
            }
        }
    }
    for burst in BURSTS {
        let keys: Vec<&(AeadTfm, AeadTfm)> = keyed.iter().cycle().take(burst).collect();
        let inputs: Vec<Vec<u8>> = (0..burst).map(text_of_op).collect();
        let aad = bytes(20, 12);
        let (mut texts, mut tags) = (inputs.clone(), vec![vec![0; full]; burst]);
        for dir in DIRECTIONS {
            let mut ops: Vec<AeadOp<'_>> = (keys.iter().zip(&mut texts).zip(&mut tags))
                .map(|((key, text), tag)| AeadOp {
                    tfm: &key.0,
                    dir,
                    nonce: &nonce,
                    aad: &[],
                    data: (&mut text[..]).into(),
                    tag,
                    status: Ok(()),
                })
                .collect();
            let aad = [&aad[..]];
            for op in &mut ops {
                op.aad = &aad;
            }
            aead::crypt(&mut ops);
            let statuses: Vec<Status> = ops.iter().map(|op| op.status).collect();
            for (i, key) in keys.iter().enumerate() {
                let what = format!("{dir:?} in a burst of {burst}");
                let (status, cipher, tag) = sealed(&key.1, aad[0], &inputs[i], full);
                if status.is_err() {
                    // A text that cannot be sealed cannot be opened: there is nothing to compare.
                    continue;
                }
                same_status(&what, statuses[i], Ok(()))?;
                equal(&what, &texts[i], if dir == Direction::Encrypt { &cipher } else { &inputs[i] })?;
                equal(&format!("tag, {what}"), &tags[i], &tag)?;
            }
        }
    }
    Ok(())
}

/// A driver that takes messages in pieces: the results are those of whole messages, however they are cut.
fn streams(alg: &Alg, reference: &Alg) -> Result<(), String> {
    let info = alg.info();
    let (first_key, nonce, aad) = (bytes(info.key_lens.min(), 14), bytes(info.iv_len, 15), bytes(33, 16));
    let Some(stream) = alg.aead_stream(&first_key) else { return Ok(()) };
    let mut stream = stream.map_err(report::key)?;
    for key_len in (0..=info.key_lens.max()).filter(|len| info.key_lens.contains(*len)) {
        let key = bytes(key_len, 18);
        let tfm = reference.aead(&key).map_err(report::key)?;
        stream.set_key(&key).map_err(report::key)?;
        // More associated data than a driver lets wait, in pieces that end within a block and at its end.
        for (len, text_len) in [(64, 40), (65, 40), (80, 0), (200, 40), (201, 0)] {
            let (text, aad) = (bytes(text_len, 17), bytes(len, 16));
            let (mut sealed, mut tag) = (text.clone(), vec![0; info.tag_lens.max()]);
            tfm.seal(&nonce, &[&aad], (&mut sealed[..]).into(), &mut tag).map_err(report::op)?;
            let mut got_tag = vec![0; tag.len()];
            in_pieces(&mut *stream, Direction::Encrypt, &nonce, &aad, &text, &sealed)?
                .seal(&mut got_tag)
                .map_err(report::op)?;
            equal(&format!("tag behind {len} bytes of associated data in pieces"), &got_tag, &tag)?;
        }
        for (i, len) in LENS.into_iter().enumerate() {
            let text = bytes(len, 17);
            let aad = &aad[..(i * 5) % aad.len()];
            let (mut sealed, mut tag) = (text.clone(), vec![0; info.tag_lens.max()]);
            tfm.seal(&nonce, &[aad], (&mut sealed[..]).into(), &mut tag).map_err(report::op)?;
            let what = format!("{len} bytes in pieces");
            let mut got_tag = vec![0; tag.len()];
            in_pieces(&mut *stream, Direction::Encrypt, &nonce, aad, &text, &sealed)?;
            stream.seal(&mut got_tag).map_err(report::op)?;
            equal(&format!("tag of {what}"), &got_tag, &tag)?;
            let mut again = in_pieces(&mut *stream, Direction::Decrypt, &nonce, aad, &sealed, &text)?;
            let tag = &tag[..if i % 4 == 3 { info.tag_lens.min() } else { tag.len() }];
            again.open(tag).map_err(report::op)?;
            // Text may also be hashed as ciphertext first, and go on as plaintext.
            stream.start(&nonce).map_err(report::op)?;
            stream.associated(aad).map_err(report::op)?;
            let (mut front, mut back) = (sealed[..len / 2].to_vec(), text[len / 2..].to_vec());
            stream.text(Direction::Decrypt, (&mut front[..]).into()).map_err(report::op)?;
            stream.text(Direction::Encrypt, (&mut back[..]).into()).map_err(report::op)?;
            stream.seal(&mut got_tag).map_err(report::op)?;
            equal(&format!("tag of {what} in both directions"), &got_tag[..tag.len()], tag)?;
            let mut again = in_pieces(&mut *stream, Direction::Decrypt, &nonce, aad, &sealed, &text)?;
            let mut wrong = tag.to_vec();
            wrong[tag.len() - 1] ^= 0x80;
            same_status(&format!("a wrong tag of {what}"), again.open(&wrong), Err(OpError::Auth))?;
        }
    }
    Ok(())
}

/// Begins a message, in pieces of mixed lengths that are partly in place and partly apart, and compares the text. Returns a
/// fork from behind the text.
fn in_pieces(
    stream: &mut dyn AeadStream,
    dir: Direction,
    nonce: &[u8],
    aad: &[u8],
    text: &[u8],
    want: &[u8],
) -> Result<Box<dyn AeadStream>, String> {
    stream.start(nonce).map_err(report::op)?;
    for piece in aad.chunks(7) {
        stream.associated(piece).map_err(report::op)?;
    }
    let (mut out, mut at) = (text.to_vec(), 0usize);
    for len in [1, 16, 15, 31, 288, 5, usize::MAX] {
        let end = text.len().min(at.saturating_add(len));
        let place = &mut out[at..end];
        let data = if len % 2 == 0 {
            place.into()
        } else {
            InOutBuf::new(&text[at..end], place).map_err(|_| "lengths differ".to_owned())?
        };
        stream.text(dir, data).map_err(report::op)?;
        at = end;
    }
    equal(&format!("{dir:?} of {} bytes in pieces", text.len()), &out, want)?;
    stream.fork().map_err(report::op)
}

/// Checks that a generator does not return the same bytes twice, and nothing at all when it could not be seeded.
fn rng(alg: &Alg) -> Result<(), String> {
    let mut rng = alg.rng();
    let mut out = [[0; 32]; 2];
    if rng.seed(&bytes(alg.rng_seed_len(), 13)).is_err() {
        return match rng.generate(&[], &mut out[0]) {
            Err(_) => Ok(()),
            Ok(()) => Err("a generator delivered although seeding had failed".to_owned()),
        };
    }
    for out in &mut out {
        rng.generate(&[], out).map_err(report::op)?;
    }
    if out[0] == out[1] { Err("the same bytes twice".to_owned()) } else { Ok(()) }
}
