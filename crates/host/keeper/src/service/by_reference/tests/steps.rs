//! Steps of one request, and texts in parts.

use super::*;
use crate::service::{InParts, StepsDone};
use sealane_crypto::data::Data;
use sealane_keeper_client::codec::Writer;
use sealane_keeper_client::limits::{MAX_IV_LEN, PART_LEN};
use sealane_keeper_client::message::Refusal;
use sealane_keeper_client::text::{NotDone, Outcome, Step, StepsRequest, write_request};

const NONCE: &[u8] = &[2; 12];

/// A request of these steps, whose texts are encoded apart from it.
fn request(key: &KeyRef, steps: &[(Step<'_>, usize)]) -> Vec<u8> {
    let mut to = Writer::new();
    write_request(&mut to, 5, &key.encode(), steps.iter().copied());
    to.done().to_vec()
}

fn all(
    service: &mut Service,
    key: &KeyRef,
    steps: &[(Step<'_>, usize)],
    texts: &mut [u8],
) -> Result<StepsDone, Refusal> {
    let bytes = request(key, steps);
    service.steps(&peer(1000), key, &StepsRequest::of(&bytes).unwrap(), texts, NOW)
}

fn cipher(len: usize) -> (Step<'static>, usize) {
    (Step::Cipher { direction: Direction::Encrypt, iv: &[0; 16] }, len)
}

fn codes(done: &[Result<Outcome, NotDone>]) -> Vec<Option<NotDone>> {
    done.iter().map(|done| done.as_ref().err().copied()).collect()
}

fn count(service: &Service, what: &str) -> usize {
    service.noted().iter().filter(|line| *line == what).count()
}

#[test]
fn the_ivs_of_all_ciphers_have_room_in_outcomes() {
    let registry = registry();
    let ciphers = || registry.rows().iter().map(|row| &row.info).filter(|i| i.kind == sealane_crypto::Kind::Skcipher);
    assert!(ciphers().all(|info| info.iv_len <= MAX_IV_LEN));
    assert!(ciphers().any(|info| info.iv_len == MAX_IV_LEN));
}

#[test]
fn steps_do_what_single_requests_do() {
    let mut s = service();
    let registry = registry();
    // A cipher, both directions and an empty text.
    let alg = registry.lookup(sealane_crypto::Kind::Skcipher, "cbc(aes)").unwrap();
    let (key, local) = (wrapped(&mut s, Kind::Skcipher, "cbc(aes)", &[1; 16]), alg.skcipher(&[1; 16]).unwrap());
    let back = Step::Cipher { direction: Direction::Decrypt, iv: &[7; 16] };
    let mut texts = [5; 16 + 48 + 32];
    let mut expected = texts;
    let (version, done) = all(&mut s, &key, &[cipher(16), cipher(0), (back, 48), cipher(32)], &mut texts).unwrap();
    let mut ivs = [[0; 16], [0; 16], [7; 16], [0; 16]];
    let mut rest = &mut expected[..];
    let lens = [16, 0, 48, 32];
    for (at, len) in lens.into_iter().enumerate() {
        let (text, behind) = core::mem::take(&mut rest).split_at_mut(len);
        rest = behind;
        let direction = if at == 2 { Direction::Decrypt } else { Direction::Encrypt };
        local.one(direction, &mut ivs[at], Data::from(text)).unwrap();
    }
    assert!(version == 0 && texts == expected);
    assert_eq!(done, ivs.map(|iv| Ok(Outcome::of(&iv, &[]).unwrap())));
    assert_eq!((count(&s, "encrypt-wrapped "), count(&s, "decrypt-wrapped ")), (3, 1));
    // A MAC, whose texts stay.
    let alg = registry.lookup(sealane_crypto::Kind::Hash, "hmac(sha256)").unwrap();
    let (key, local) = (wrapped(&mut s, Kind::Hash, "hmac(sha256)", b"key"), alg.mac(b"key").unwrap());
    let mut texts = *b"one, two";
    let (_, done) = all(&mut s, &key, &[(Step::Mac, 3), (Step::Mac, 5)], &mut texts).unwrap();
    for (text, done) in [b"one".as_slice(), b", two"].into_iter().zip(&done) {
        assert_eq!(local.verify(&[text], &done.as_ref().unwrap().tag), Ok(()));
    }
    assert!(&texts == b"one, two" && done.len() == 2);
    assert_eq!(count(&s, "mac-wrapped "), 2);
}

#[test]
fn a_step_that_fails_fails_alone_and_leaves_nothing() {
    let mut s = service();
    let key = wrapped(&mut s, Kind::Aead, "gcm(aes)", &[1; 16]);
    let seal = Step::Seal { nonce: NONCE, aad: b"aad", tag_len: 16 };
    let mut texts = *b"first...second..third...";
    let (_, sealed) = all(&mut s, &key, &[(seal, 8); 3], &mut texts).unwrap();
    let mut tags: Vec<Vec<u8>> = sealed.iter().map(|done| done.as_ref().unwrap().tag.to_vec()).collect();
    tags[1][15] ^= 1;
    let open = |tag| (Step::Open { nonce: NONCE, aad: b"aad", tag }, 8);
    let steps = [
        open(&tags[0]),
        open(&tags[1]),
        open(&tags[2]),
        // Neither a nonce, nor a tag, nor a type of its own.
        (Step::Seal { nonce: &[2; 11], aad: b"", tag_len: 16 }, 0),
        (Step::Seal { nonce: NONCE, aad: b"", tag_len: 300 }, 0),
        (Step::Mac, 0),
        cipher(0),
    ];
    let (_, done) = all(&mut s, &key, &steps, &mut texts).unwrap();
    let failed = |error| Some(NotDone::Failed(error));
    let refused = Some(NotDone::Refused(Code::Use));
    assert_eq!(
        codes(&done),
        [None, failed(OpError::Auth), None, failed(OpError::Nonce), failed(OpError::TagLen), refused, refused]
    );
    // An outcome of an open is its text alone.
    assert_eq!(done[0], Ok(Outcome::default()));
    assert_eq!(&texts, b"first...\0\0\0\0\0\0\0\0third...");
    assert_eq!((count(&s, "open-wrapped "), count(&s, "open-wrapped auth"), count(&s, "mac-wrapped use")), (2, 1, 1));
}

#[test]
fn each_step_counts_and_those_beyond_a_limit_are_refused() {
    let limit = Some(NotDone::Refused(Code::Limit));
    let (mut s, key) = with_key(Kind::Skcipher, "ctr(aes)", |spec| spec.limits.operations = 5);
    let mut texts = [1; 80];
    let (version, done) = all(&mut s, &key, &[cipher(10); 3], &mut texts[..30]).unwrap();
    assert!(version == 1 && done.iter().all(Result::is_ok));
    let (_, done) = all(&mut s, &key, &[cipher(10); 4], &mut texts[40..]).unwrap();
    assert_eq!(codes(&done), [None, None, limit, limit]);
    assert!(texts[60..] == [1; 20] && texts[40..60] != [1; 20], "a refused text has changed");
    let done = all(&mut s, &key, &[cipher(10); 2], &mut texts[..20]);
    assert_eq!(done.unwrap_err().code, Code::Limit);
    assert_eq!((count(&s, "encrypt 'k' "), count(&s, "encrypt 'k' limit")), (5, 4));
    // Bytes, of which a shorter text may be left.
    let (mut s, key) = with_key(Kind::Skcipher, "ctr(aes)", |spec| spec.limits.bytes = 40);
    let (_, done) = all(&mut s, &key, &[cipher(30), cipher(11), cipher(10), cipher(1)], &mut texts[..52]).unwrap();
    assert_eq!(codes(&done), [None, limit, None, limit]);
    // A rate.
    let (mut s, key) = with_key(Kind::Skcipher, "ctr(aes)", |spec| spec.limits.per_second = 2);
    let (_, done) = all(&mut s, &key, &[cipher(1); 4], &mut texts[..4]).unwrap();
    assert_eq!(codes(&done)[..3], [None, None, Some(NotDone::Refused(Code::Rate))]);
}

#[test]
fn steps_obey_the_rules_of_a_key() {
    let mut texts = [1; 8];
    let (mut s, key) = with_key(Kind::Aead, "gcm(aes)", |_| {});
    // Whole tags.
    let seal = |tag_len| (Step::Seal { nonce: NONCE, aad: &[], tag_len }, 4);
    let (_, done) = all(&mut s, &key, &[seal(12), seal(16)], &mut texts).unwrap();
    assert_eq!(codes(&done), [Some(NotDone::Refused(Code::Parameter)), None]);
    assert!(texts[..4] == [1; 4]);
    // Uses, one by one.
    let (mut s, key) = with_key(Kind::Skcipher, "ctr(aes)", |spec| spec.uses = Uses::DECRYPT);
    let back = (Step::Cipher { direction: Direction::Decrypt, iv: &[0; 16] }, 4);
    let (_, done) = all(&mut s, &key, &[cipher(4), back], &mut texts).unwrap();
    assert_eq!(codes(&done), [Some(NotDone::Refused(Code::Use)), None]);
    // Each for its own reason, also if all are refused.
    let (mut s, key) = with_key(Kind::Skcipher, "ctr(aes)", |spec| {
        (spec.uses, spec.limits.operations) = (Uses::DECRYPT, 1);
    });
    let mut four = [1; 4];
    assert!(all(&mut s, &key, &[back], &mut four).is_ok());
    let (version, done) = all(&mut s, &key, &[cipher(4), back], &mut texts).unwrap();
    assert_eq!(
        (version, codes(&done)),
        (0, vec![Some(NotDone::Refused(Code::Use)), Some(NotDone::Refused(Code::Limit))])
    );
    assert_eq!((count(&s, "encrypt 'k' use"), count(&s, "decrypt 'k' limit")), (1, 1));
    // Others, and a revoked key.
    let (mut s, key) = with_key(Kind::Skcipher, "ctr(aes)", |spec| spec.uses = Uses::DECRYPT);
    let other = peer(1);
    let bytes = request(&key, &[back, back]);
    let parsed = StepsRequest::of(&bytes).unwrap();
    assert_eq!(s.steps(&other, &key, &parsed, &mut texts, NOW).unwrap_err().code, Code::NoKey);
    let revoke = Operation::Revoke { name: Name::new("k").unwrap(), version: 0 };
    assert!(outcome(s.answer(&peer(0), revoke, NOW)).is_ok());
    assert_eq!(all(&mut s, &key, &[back, back], &mut texts).unwrap_err().code, Code::Revoked);
}

fn in_parts(s: &mut Service, key: &KeyRef, step: (Step<'_>, usize)) -> Result<Option<InParts>, Refusal> {
    let bytes = request(key, &[step]);
    s.in_parts(&peer(1000), key, &StepsRequest::of(&bytes).unwrap(), NOW)
}

#[test]
fn texts_of_ciphers_that_go_on_are_computed_in_parts() {
    let registry = sealane_drivers::system_registry().0;
    let mut s = of_registry(sealane_drivers::system_registry().0, Store::in_memory(), None);
    let long = 3 * PART_LEN + 48;
    for (name, comes) in [("cbc(aes)", true), ("ctr(aes)", true), ("ecb(aes)", true), ("cts(cbc(aes))", false)] {
        let key = wrapped(&mut s, Kind::Skcipher, name, &[1; 16]);
        let alg = registry.lookup(sealane_crypto::Kind::Skcipher, name).unwrap();
        let iv_len = alg.info().iv_len;
        let step = Step::Cipher { direction: Direction::Decrypt, iv: &[3; 16][..iv_len] };
        assert!(in_parts(&mut s, &key, (step, PART_LEN)).unwrap().is_none(), "{name}: a short one");
        let parts = in_parts(&mut s, &key, (step, long)).unwrap();
        assert_eq!(parts.is_some(), comes, "{name}");
        let Some(mut parts) = parts else { continue };
        let mut text: Vec<u8> = (0..long).map(|at| at as u8).collect();
        let (mut expected, mut iv) = (text.clone(), vec![3; iv_len]);
        alg.skcipher(&[1; 16]).unwrap().one(Direction::Decrypt, &mut iv, Data::from(&mut expected[..])).unwrap();
        for part in text.chunks_mut(PART_LEN) {
            let tfm = s.cipher(&peer(1000), &parts, NOW).unwrap();
            tfm.one(parts.direction, &mut parts.iv, Data::from(part)).unwrap();
        }
        assert!(text == expected && parts.iv[..] == iv, "{name}");
        // What cannot be computed to its end is not begun in parts, and fails as a whole.
        if name != "ctr(aes)" {
            assert!(in_parts(&mut s, &key, (step, long + 1)).unwrap().is_none(), "{name}");
            let done = all(&mut s, &key, &[(step, long + 1)], &mut vec![1; long + 1]).unwrap();
            assert_eq!(codes(&done.1), [Some(NotDone::Failed(OpError::Length))], "{name}");
        }
        let wrong = Step::Cipher { direction: Direction::Decrypt, iv: &[3; 17] };
        assert!(in_parts(&mut s, &key, (wrong, long)).unwrap().is_none(), "{name}");
    }
    let aead = wrapped(&mut s, Kind::Aead, "gcm(aes)", &[1; 16]);
    assert!(in_parts(&mut s, &aead, cipher(long)).unwrap().is_none());
    let seal = Step::Seal { nonce: NONCE, aad: &[], tag_len: 16 };
    assert!(in_parts(&mut s, &aead, (seal, long)).unwrap().is_none());
}

#[test]
fn a_text_in_parts_counts_once_and_ends_with_the_right_to_its_key() {
    let (mut s, key) = with_key(Kind::Skcipher, "ctr(aes)", |spec| {
        (spec.limits.operations, spec.limits.bytes) = (3, 10 * PART_LEN as u64);
    });
    // It is prepared with its first text.
    assert!(in_parts(&mut s, &key, cipher(2 * PART_LEN)).unwrap().is_none());
    assert!(all(&mut s, &key, &[cipher(1)], &mut [0]).is_ok());
    let parts = in_parts(&mut s, &key, cipher(2 * PART_LEN)).unwrap().unwrap();
    assert!(s.cipher(&peer(1000), &parts, NOW).is_ok() && s.cipher(&peer(1000), &parts, NOW).is_ok());
    assert_eq!(in_parts(&mut s, &key, cipher(8 * PART_LEN)).err().map(|refusal| refusal.code), Some(Code::Limit));
    let second = in_parts(&mut s, &key, cipher(2 * PART_LEN)).unwrap().unwrap();
    assert_eq!(in_parts(&mut s, &key, cipher(2 * PART_LEN)).err().map(|refusal| refusal.code), Some(Code::Limit));
    // It is noted when it begins, and once.
    assert_eq!((count(&s, "encrypt 'k' "), count(&s, "encrypt 'k' limit")), (3, 2));
    s.ended(&peer(1000), &parts, &Ok(Ok(())), NOW);
    assert_eq!(count(&s, "encrypt 'k' "), 3);
    // It keeps its version after a rotation, and ends with it.
    let rotate = Operation::Rotate { name: Name::new("k").unwrap(), secret: secret(b"") };
    assert!(outcome(s.answer(&peer(0), rotate, NOW)).is_ok());
    assert!(second.version == 1 && s.cipher(&peer(1000), &second, NOW).is_ok());
    let revoke = Operation::Revoke { name: Name::new("k").unwrap(), version: 1 };
    assert!(outcome(s.answer(&peer(0), revoke, NOW)).is_ok());
    let refused = s.cipher(&peer(1000), &second, NOW).map(drop);
    assert_eq!(refused.as_ref().err().map(|refusal| refusal.code), Some(Code::Revoked));
    s.ended(&peer(1000), &second, &refused.map(Ok), NOW);
    assert_eq!(count(&s, "encrypt 'k' revoked"), 1);
}

#[test]
fn a_text_in_parts_ends_when_its_key_expires() {
    let (mut s, key) = with_key(Kind::Skcipher, "ctr(aes)", |spec| spec.expires_s = 2000);
    assert!(all(&mut s, &key, &[cipher(1)], &mut [0]).is_ok());
    let parts = in_parts(&mut s, &key, cipher(2 * PART_LEN)).unwrap().unwrap();
    assert!(s.cipher(&peer(1000), &parts, NOW).is_ok());
    assert_eq!(s.cipher(&peer(1000), &parts, LATER).err().map(|refusal| refusal.code), Some(Code::Expired));
    let back = (Step::Cipher { direction: Direction::Decrypt, iv: &[0; 16] }, 2 * PART_LEN);
    let parts = in_parts(&mut s, &key, back).unwrap().unwrap();
    assert!(s.cipher(&peer(1000), &parts, LATER).is_ok(), "what it has encrypted is decrypted");
}
