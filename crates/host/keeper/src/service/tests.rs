use super::*;
use crate::key::tests::spec;
use crate::seal::tests::registry;
use crate::store::tests::Place;
use sealane_pkey::Digest;
use std::collections::BTreeSet;
use std::fs;

const NOW: Now = Now { wall_s: 1000, mono_ns: 50_000_000_000 };

fn root() -> Peer {
    Peer { process: 1, user: 0, groups: vec![0] }
}

/// The user that keys of these tests are for.
fn user() -> Peer {
    Peer { process: 2, user: 1000, groups: vec![1000] }
}

fn name() -> Name {
    Name::new("k").unwrap()
}

fn service() -> Service {
    Service::new(registry(), Store::in_memory(), Listed { users: vec![0], groups: vec![] })
}

/// A service with a key, changed by `change` from one that may do everything.
fn with_key(kind: Kind, algorithm: &str, change: impl FnOnce(&mut Spec)) -> Service {
    let mut service = service();
    let mut spec = spec(kind, algorithm);
    change(&mut spec);
    let made = service.answer(&root(), Operation::Generate { name: name(), spec, secret_len: 0 }, NOW);
    assert_eq!(version(made), 1);
    service
}

fn version(answer: Answer) -> u32 {
    match answer {
        Answer::Version(version) => version,
        other => panic!("{:?}", code(other)),
    }
}

/// Why it is refused; `None` if it is not.
fn code(answer: Answer) -> Option<Code> {
    match answer {
        Answer::Refused(refusal) => {
            assert!(refusal.code == Code::Malformed || refusal.text.contains("key 'k'"), "{}", refusal.text);
            Some(refusal.code)
        }
        _ => None,
    }
}

fn seal(service: &mut Service, peer: &Peer, text: &[u8], now: Now) -> Answer {
    let text = Zeroizing::new(text.to_vec());
    service.answer(peer, Operation::Seal { name: name(), nonce: vec![], aad: vec![1], text }, now)
}

fn sealed(answer: Answer) -> (u32, Vec<u8>, Vec<u8>) {
    match answer {
        Answer::Sealed { version, nonce, text } => (version, nonce, text),
        other => panic!("{:?}", code(other)),
    }
}

fn open(service: &mut Service, peer: &Peer, (version, nonce, text): (u32, Vec<u8>, Vec<u8>)) -> Answer {
    service.answer(peer, Operation::Open { name: name(), version, nonce, aad: vec![1], text }, NOW)
}

fn revoke(service: &mut Service, peer: &Peer, version: u32) -> Answer {
    service.answer(peer, Operation::Revoke { name: name(), version }, NOW)
}

fn rotate(service: &mut Service, peer: &Peer) -> Answer {
    service.answer(peer, Operation::Rotate { name: name(), secret: Zeroizing::new(vec![]) }, NOW)
}

#[test]
fn a_text_is_sealed_and_opened_and_a_changed_one_is_not() {
    let mut service = with_key(Kind::Aead, "gcm(aes)", |_| {});
    let made = sealed(seal(&mut service, &user(), b"text", NOW));
    assert_eq!((made.0, made.1.len(), made.2.len()), (1, 12, 4 + 16));
    match open(&mut service, &user(), made.clone()) {
        Answer::Opened(text) => assert_eq!(&text[..], b"text"),
        other => panic!("{:?}", code(other)),
    }
    for at in 0..made.2.len() {
        let mut changed = made.clone();
        changed.2[at] ^= 1;
        assert_eq!(code(open(&mut service, &user(), changed)), Some(Code::Auth));
    }
    let short = (1, made.1.clone(), vec![0; 15]);
    assert_eq!(code(open(&mut service, &user(), short)), Some(Code::Parameter));
}

#[test]
fn a_mac_is_made_and_checked_in_full_length() {
    let mut service = with_key(Kind::Hash, "hmac(sha256)", |_| {});
    let text = || Zeroizing::new(b"text".to_vec());
    let made = service.answer(&user(), Operation::Mac { name: name(), text: text() }, NOW);
    let tag = match made {
        Answer::Tag { version: 1, tag } => tag,
        other => panic!("{:?}", code(other)),
    };
    let mut verify = |tag: &[u8]| {
        code(service.answer(
            &user(),
            Operation::Verify { name: name(), version: 0, text: text(), tag: tag.to_vec() },
            NOW,
        ))
    };
    assert_eq!(verify(&tag), None);
    assert_eq!(verify(&tag[..31]), Some(Code::Parameter));
    assert_eq!(verify(&[0; 32]), Some(Code::Auth));
}

#[test]
fn only_those_who_may_use_a_key_use_it_and_learn_of_it() {
    let mut service = with_key(Kind::Aead, "gcm(aes)", |spec| spec.admins.users = vec![1001]);
    let peer = |user, group| Peer { process: 3, user, groups: vec![group] };
    for (who, used, administered) in [
        (peer(1000, 1000), None, Some(Code::Denied)),
        (peer(5, 2000), None, Some(Code::Denied)),
        (peer(5, 5), Some(Code::NoKey), Some(Code::NoKey)),
        (peer(1001, 1001), Some(Code::Denied), None),
        (root(), Some(Code::Denied), None),
    ] {
        assert_eq!(code(seal(&mut service, &who, b"", NOW)), used, "{who:?}");
        assert_eq!(code(rotate(&mut service, &who)), administered, "{who:?}");
        let seen = used.is_none() || administered.is_none();
        match service.answer(&who, Operation::List { after: None }, NOW) {
            Answer::Keys(keys, false) => assert_eq!(keys.len(), usize::from(seen), "{who:?}"),
            other => panic!("{:?}", code(other)),
        }
    }
    let spec = spec(Kind::Aead, "gcm(aes)");
    let mut make = |who: &Peer| {
        code(service.answer(who, Operation::Generate { name: name(), spec: spec.clone(), secret_len: 0 }, NOW))
    };
    assert_eq!(make(&user()), Some(Code::Denied));
    assert_eq!(make(&root()), Some(Code::Exists));
}

#[test]
fn a_key_that_only_encrypts_does_not_decrypt() {
    let mut service = with_key(Kind::Aead, "gcm(aes)", |spec| spec.uses = Uses::ENCRYPT);
    let made = sealed(seal(&mut service, &user(), b"text", NOW));
    assert_eq!(code(open(&mut service, &user(), made)), Some(Code::Use));
    let text = Zeroizing::new(vec![]);
    let own = Operation::Seal { name: name(), nonce: vec![0; 12], aad: vec![], text: text.clone() };
    assert_eq!(code(service.answer(&user(), own, NOW)), Some(Code::Use));
    assert_eq!(code(service.answer(&user(), Operation::Mac { name: name(), text }, NOW)), Some(Code::Use));
}

#[test]
fn an_expired_key_only_opens() {
    let mut service = with_key(Kind::Aead, "gcm(aes)", |spec| spec.expires_s = 1001);
    let made = sealed(seal(&mut service, &user(), b"text", NOW));
    let later = Now { wall_s: 1001, ..NOW };
    assert_eq!(code(seal(&mut service, &user(), b"text", later)), Some(Code::Expired));
    assert_eq!(code(open(&mut service, &user(), made)), None);
}

#[test]
fn the_former_version_opens_until_it_is_revoked() {
    let mut service = with_key(Kind::Aead, "gcm(aes)", |_| {});
    let first = sealed(seal(&mut service, &user(), b"text", NOW));
    assert_eq!(version(rotate(&mut service, &root())), 2);
    let second = sealed(seal(&mut service, &user(), b"text", NOW));
    assert_eq!((first.0, second.0), (1, 2));
    assert_eq!(code(open(&mut service, &user(), first.clone())), None);
    assert_eq!(code(open(&mut service, &user(), (2, first.1.clone(), first.2.clone()))), Some(Code::Auth));
    assert_eq!(version(revoke(&mut service, &root(), 1)), 1);
    assert_eq!(code(open(&mut service, &user(), first)), Some(Code::Revoked));
    assert_eq!(code(open(&mut service, &user(), second)), None);
    assert_eq!(version(revoke(&mut service, &root(), 0)), 0);
    assert_eq!(code(seal(&mut service, &user(), b"text", NOW)), Some(Code::Revoked));
    assert_eq!(code(rotate(&mut service, &root())), Some(Code::Revoked));
    let key = service.store().key(&name()).unwrap();
    assert!(key.versions.iter().all(|version| version.secret.is_empty()));
}

#[test]
fn a_key_with_all_its_versions_loses_none_that_opens() {
    let mut service = with_key(Kind::Aead, "gcm(aes)", |_| {});
    for number in 2..=MAX_VERSIONS as u32 {
        assert_eq!(version(rotate(&mut service, &root())), number);
    }
    assert_eq!(code(rotate(&mut service, &root())), Some(Code::Full));
    assert_eq!(version(revoke(&mut service, &root(), 3)), 3);
    assert_eq!(version(rotate(&mut service, &root())), MAX_VERSIONS as u32 + 1);
}

#[test]
fn limits_hold_also_after_the_keeper_starts_again() {
    let mut service = with_key(Kind::Aead, "gcm(aes)", |spec| spec.limits.bytes = 10);
    assert_eq!(code(seal(&mut service, &user(), &[0; 6], NOW)), None);
    assert_eq!(code(seal(&mut service, &user(), &[0; 5], NOW)), Some(Code::Limit));
    // As after a crash: what is stored counts.
    service.live.clear();
    assert_eq!(code(seal(&mut service, &user(), &[0; 5], NOW)), Some(Code::Limit));
    assert_eq!(code(seal(&mut service, &user(), &[0; 4], NOW)), None);
    assert_eq!(version(rotate(&mut service, &root())), 2);
    assert_eq!(code(seal(&mut service, &user(), &[0; 10], NOW)), None);
    let mut service = with_key(Kind::Aead, "gcm(aes)", |spec| spec.limits.operations = 2);
    let made = sealed(seal(&mut service, &user(), b"", NOW));
    assert_eq!(code(open(&mut service, &user(), made.clone())), None);
    assert_eq!(code(open(&mut service, &user(), made)), Some(Code::Limit));
}

#[test]
fn a_rate_is_kept() {
    let mut service = with_key(Kind::Aead, "gcm(aes)", |spec| spec.limits.per_second = 10);
    let mut allowed =
        |mono_ns| (0..50).filter(|_| code(seal(&mut service, &user(), b"", Now { mono_ns, ..NOW })).is_none()).count();
    assert_eq!(allowed(NOW.mono_ns), 10);
    assert_eq!(allowed(NOW.mono_ns + 500_000_000), 5);
    assert_eq!(allowed(NOW.mono_ns + 60_000_000_000), 10);
}

#[test]
fn counters_are_written_ahead_and_never_past_the_limit() {
    assert_eq!(lease(5, 0, 100), 105);
    assert_eq!(lease(5, 10_240, 100), 15);
    assert_eq!(lease(10_239, 10_240, 100), 10_240);
    assert_eq!(lease(5, 1 << 40, 100), 105);
    assert_eq!(lease(5, 5, 100), 5);
}

/// A service with keys in a folder, and the counted operations of its key.
fn in_folder(place: &Place) -> (Service, Option<u64>) {
    let store = place.open("right").unwrap();
    store.take_counters().unwrap();
    let service = Service::new(registry(), store, Listed { users: vec![0], groups: vec![] });
    let key = service.store().key(&name());
    let counted = key.map(|key| service.info(&name(), key).versions[0].operations);
    (service, counted)
}

/// The same with a key for everything, which has been used so often.
fn used_in_folder(place: &Place, times: u64) -> Service {
    let mut service = in_folder(place).0;
    let spec = spec(Kind::Aead, "gcm(aes)");
    assert_eq!(version(service.answer(&root(), Operation::Generate { name: name(), spec, secret_len: 0 }, NOW)), 1);
    for _ in 0..times {
        assert_eq!(code(seal(&mut service, &user(), b"text", NOW)), None);
    }
    service
}

#[test]
fn counters_go_on_where_a_keeper_ended_and_the_first_use_writes_nothing() {
    let place = Place::new("counters");
    let mut service = used_in_folder(&place, 3);
    let file = || fs::read(place.file("k.key")).unwrap();
    let made = file();
    for used in 3..6 {
        service.end();
        drop(service);
        let (again, counted) = in_folder(&place);
        assert_eq!(counted, Some(used));
        assert!(!place.file("counters").exists(), "what it says is too low as soon as the key is used");
        service = again;
        assert_eq!(code(seal(&mut service, &user(), b"text", NOW)), None);
        assert!(file() == made, "a key's file is written before it is used {used} times");
    }
    // A crash: what was written ahead counts.
    drop(service);
    let (mut service, counted) = in_folder(&place);
    assert_eq!(counted, Some(LEASE.operations));
    assert_eq!(code(seal(&mut service, &user(), b"text", NOW)), None);
    assert!(file() != made, "it counts from there on");
    drop(service);
    assert_eq!(in_folder(&place).1, Some(2 * LEASE.operations + 1));
}

#[test]
fn counters_of_a_keeper_before_the_last_one_are_not_believed() {
    let place = Place::new("old-counters");
    let mut service = used_in_folder(&place, 3);
    service.end();
    drop(service);
    let of_before = fs::read(place.file("counters")).unwrap();
    // Two crashes, after which the key's file says something else.
    for _ in 0..2 {
        let mut service = in_folder(&place).0;
        assert_eq!(code(seal(&mut service, &user(), b"text", NOW)), None);
    }
    fs::write(place.file("counters"), of_before).unwrap();
    assert_eq!(in_folder(&place).1, Some(2 * LEASE.operations + 1));
}

#[test]
fn counters_that_cannot_be_read_are_lost_and_that_is_told() {
    let place = Place::new("lost-counters");
    let mut service = used_in_folder(&place, 3);
    service.end();
    drop(service);
    let whole = fs::read(place.file("counters")).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    let of_a_key = fs::read(place.file("k.key")).unwrap();
    for bytes in [changed.as_slice(), &whole[..whole.len() - 1], &[], of_a_key.as_slice()] {
        fs::write(place.file("counters"), bytes).unwrap();
        let (service, counted) = in_folder(&place);
        assert!(service.store().lost_counters().is_some_and(|why| why.contains("/counters: ")));
        assert_eq!(counted, Some(LEASE.operations));
        drop(service);
        assert!(!place.file("counters").exists());
        assert!(place.open("right").unwrap().lost_counters().is_none());
    }
    fs::write(place.file("counters"), &whole).unwrap();
    assert_eq!(in_folder(&place).1, Some(3));
}

#[test]
fn a_keeper_that_does_not_get_to_serve_takes_no_counters() {
    let place = Place::new("early-counters");
    let mut service = used_in_folder(&place, 3);
    service.end();
    drop(service);
    drop(place.open("right").unwrap());
    assert_eq!(in_folder(&place).1, Some(3));
}

#[test]
fn a_use_that_is_refused_leaves_the_counters_as_they_are() {
    let place = Place::new("refused-counters");
    let mut service = in_folder(&place).0;
    let mut spec = spec(Kind::Aead, "gcm(aes)");
    spec.limits.per_second = 1;
    assert_eq!(version(service.answer(&root(), Operation::Generate { name: name(), spec, secret_len: 0 }, NOW)), 1);
    assert_eq!(code(seal(&mut service, &user(), b"text", NOW)), None);
    // The rate is the key's: the first use of the new version is one too many.
    assert_eq!(version(rotate(&mut service, &root())), 2);
    assert_eq!(code(seal(&mut service, &user(), b"text", NOW)), Some(Code::Rate));
    service.end();
    drop(service);
    let service = in_folder(&place).0;
    let key = service.store().key(&name()).unwrap();
    let counted: Vec<u64> = service.info(&name(), key).versions.iter().map(|version| version.operations).collect();
    assert_eq!(counted, [1, 0]);
}

#[test]
fn a_key_of_xts_with_equal_halves_is_not_taken() {
    let import = |service: &mut Service, secret: Vec<u8>| {
        let (name, spec) = (name(), spec(Kind::Skcipher, "xts(aes)"));
        code(service.answer(&root(), Operation::Import { name, spec, secret: Zeroizing::new(secret) }, NOW))
    };
    let mut service = service();
    assert_eq!(import(&mut service, vec![1; 32]), Some(Code::Parameter));
    let good: Vec<u8> = (0..64).collect();
    assert_eq!(import(&mut service, good), None);
    let rotate = Operation::Rotate { name: name(), secret: Zeroizing::new(vec![2; 64]) };
    assert_eq!(code(service.answer(&root(), rotate, NOW)), Some(Code::Parameter));
}

#[test]
fn a_revoked_version_keeps_what_has_gone_through_it() {
    let place = Place::new("revoked-counters");
    let mut service = used_in_folder(&place, 3);
    assert_eq!(version(revoke(&mut service, &root(), 0)), 0);
    drop(service);
    assert_eq!(in_folder(&place).1, Some(3));
}

#[test]
fn rules_without_sense_are_refused() {
    let mut service = service();
    for (kind, algorithm, uses) in [
        (Kind::Aead, "gcm(aes)", Uses::MAC),
        (Kind::Aead, "gcm(aes)", Uses::default()),
        (Kind::Hash, "hmac(sha256)", Uses::ENCRYPT),
        (Kind::Hash, "sha256", Uses::MAC),
        (Kind::Hash, "crc32c", Uses::MAC),
        (Kind::Aead, "gcm(aes", Uses::ENCRYPT),
        (Kind::Skcipher, "gcm(aes)", Uses::ENCRYPT),
    ] {
        let spec = Spec { uses, ..spec(kind, algorithm) };
        let made = service.answer(&root(), Operation::Generate { name: name(), spec, secret_len: 0 }, NOW);
        assert_eq!(code(made), Some(Code::Parameter), "{algorithm}");
    }
    for len in [0, 15, 33] {
        let (spec, secret) = (spec(Kind::Aead, "gcm(aes)"), Zeroizing::new(vec![1; len]));
        let made = service.answer(&root(), Operation::Import { name: name(), spec, secret }, NOW);
        assert_eq!(code(made), Some(Code::Parameter), "{len}");
    }
    let spec = spec(Kind::Aead, "gcm(aes)");
    let made = service.answer(&root(), Operation::Generate { name: name(), spec, secret_len: u32::MAX }, NOW);
    assert_eq!(code(made), Some(Code::Parameter));
}

/// The reply to root's message, and whether the connection ends with it.
fn served(service: &mut Service, bytes: &[u8]) -> (Wiped, bool) {
    match service.message(&root(), &mut Streams::default(), bytes, NOW) {
        Served::Reply(reply, ends) => (reply, ends),
        Served::Later(_) | Served::Slots(_) => panic!("it has no reply yet"),
    }
}

#[test]
fn what_cannot_be_read_ends_the_connection() {
    let mut service = service();
    let request = Request { id: 7, operation: Operation::Show { name: name() } }.encode();
    let (reply, ends) = served(&mut service, &request);
    assert!(!ends && Reply::decode(&reply).is_ok_and(|reply| reply.id == 7 && code(reply.answer) == Some(Code::NoKey)));
    for len in 0..request.len() {
        let (reply, ends) = served(&mut service, &request[..len]);
        assert!(ends && Reply::decode(&reply).is_ok_and(|reply| code(reply.answer) == Some(Code::Malformed)), "{len}");
    }
}

fn private(algorithm: &str, change: impl FnOnce(&mut Spec)) -> Service {
    with_key(Kind::Private, algorithm, |spec| {
        spec.uses = Uses::default();
        change(spec);
    })
}

fn public(service: &mut Service, peer: &Peer, version: u32) -> Answer {
    service.answer(peer, Operation::Public { name: name(), version }, NOW)
}

fn spki(answer: Answer) -> Vec<u8> {
    match answer {
        Answer::Public { spki, .. } => spki,
        other => panic!("{:?}", code(other)),
    }
}

fn sign_at(service: &mut Service, peer: &Peer, version: u32, scheme: Scheme, len: usize, now: Now) -> Answer {
    let text = Zeroizing::new(vec![7; len]);
    service.answer(peer, Operation::Sign { name: name(), version, scheme, text }, now)
}

fn sign(service: &mut Service, version: u32, scheme: Scheme, len: usize) -> Answer {
    sign_at(service, &user(), version, scheme, len, NOW)
}

const PKCS1: Scheme = Scheme::RsaPkcs1(Digest::Sha256);

#[test]
fn each_private_key_signs_by_its_own_schemes() {
    let pss = Scheme::RsaPss { digest: Digest::Sha256, mgf1: Digest::Sha256, salt_len: 32 };
    for (algorithm, rights, wrongs) in [
        (
            "rsa-2048",
            &[(PKCS1, 32), (pss, 32), (Scheme::RsaPkcs1Md5Sha1, 36)][..],
            &[(Scheme::Ecdsa, 32), (PKCS1, 31)][..],
        ),
        (
            "ec-p256",
            &[(Scheme::Ecdsa, 20), (Scheme::Ecdsa, 64)],
            &[(Scheme::Ecdsa, 19), (Scheme::Ecdsa, 65), (PKCS1, 32)],
        ),
        ("ec-p384", &[(Scheme::Ecdsa, 48)], &[(Scheme::Ed25519, 48)]),
        ("ed25519", &[(Scheme::Ed25519, 0), (Scheme::Ed25519, MAX_TEXT_LEN)], &[(Scheme::Ecdsa, 32)]),
    ] {
        let mut service = private(algorithm, |_| {});
        match service.answer(&user(), Operation::Show { name: name() }, NOW) {
            Answer::Keys(keys, _) => {
                let decrypts = algorithm.starts_with("rsa");
                let spec = &keys[0].spec;
                assert_eq!((spec.algorithm.as_str(), spec.uses.contains(Uses::DECRYPT)), (algorithm, decrypts));
            }
            other => panic!("{:?}", code(other)),
        }
        for (scheme, len) in rights {
            match sign(&mut service, 0, *scheme, *len) {
                Answer::Signature { version: 1, signature } => assert!(signature.len() > 60),
                other => panic!("{algorithm} {scheme:?} {len}: {:?}", code(other)),
            }
        }
        for (scheme, len) in wrongs {
            assert_eq!(
                code(sign(&mut service, 0, *scheme, *len)),
                Some(Code::Parameter),
                "{algorithm} {scheme:?} {len}"
            );
        }
        assert_eq!(code(seal(&mut service, &user(), b"", NOW)), Some(Code::Use));
    }
}

#[test]
fn a_private_key_has_rules_that_make_sense() {
    let mut service = service();
    let mut make = |algorithm: &str, uses, secret_len| {
        let spec = Spec { uses, ..spec(Kind::Private, algorithm) };
        code(service.answer(&root(), Operation::Generate { name: name(), spec, secret_len }, NOW))
    };
    for (algorithm, uses, len) in [
        ("rsa-1024", Uses::SIGN, 0),
        ("gcm(aes)", Uses::SIGN, 0),
        ("", Uses::SIGN, 0),
        ("ed25519", Uses::SIGN, 32),
        ("ed25519", Uses::DECRYPT, 0),
        ("ec-p256", Uses::SIGN.and(Uses::DECRYPT), 0),
        ("rsa-2048", Uses::SIGN.and(Uses::MAC), 0),
    ] {
        assert_eq!(make(algorithm, uses, len), Some(Code::Parameter), "{algorithm}");
    }
    assert_eq!(make("ed25519", Uses::SIGN, 0), None);
}

#[test]
fn a_key_that_only_signs_does_not_decrypt_and_the_reverse() {
    let decrypt = |service: &mut Service| {
        let text = vec![1; 256];
        code(service.answer(
            &user(),
            Operation::Decrypt { name: name(), version: 0, padding: Padding::Pkcs1, text },
            NOW,
        ))
    };
    let mut service = private("rsa-2048", |spec| spec.uses = Uses::SIGN);
    assert_eq!((code(sign(&mut service, 0, PKCS1, 32)), decrypt(&mut service)), (None, Some(Code::Use)));
    let mut service = private("rsa-2048", |spec| spec.uses = Uses::DECRYPT);
    assert_eq!((code(sign(&mut service, 0, PKCS1, 32)), decrypt(&mut service)), (Some(Code::Use), None));
}

#[test]
fn the_former_version_signs_until_it_is_revoked() {
    let mut service = private("ec-p256", |spec| spec.admins.users = vec![1001]);
    let first = spki(public(&mut service, &user(), 0));
    assert_eq!(version(rotate(&mut service, &root())), 2);
    let second = spki(public(&mut service, &user(), 0));
    assert!(first != second && spki(public(&mut service, &user(), 1)) == first);
    for (wanted, by) in [(0, 2), (1, 1), (2, 2)] {
        assert!(
            matches!(sign(&mut service, wanted, Scheme::Ecdsa, 32), Answer::Signature { version, .. } if version == by)
        );
    }
    assert_eq!(version(revoke(&mut service, &root(), 1)), 1);
    assert_eq!(code(sign(&mut service, 1, Scheme::Ecdsa, 32)), Some(Code::Revoked));
    assert_eq!(code(public(&mut service, &user(), 1)), Some(Code::Revoked));
    assert_eq!(service.ready.len(), 1);
    assert_eq!(code(sign(&mut service, 0, Scheme::Ecdsa, 32)), None);
    // Whoever administers it may know its public part, and strangers not even its name.
    let peer = |user| Peer { process: 3, user, groups: vec![user] };
    assert_eq!(spki(public(&mut service, &peer(1001), 0)), second);
    assert_eq!(code(sign_at(&mut service, &peer(1001), 0, Scheme::Ecdsa, 32, NOW)), Some(Code::Denied));
    for answer in [public(&mut service, &peer(5), 0), sign_at(&mut service, &peer(5), 0, Scheme::Ecdsa, 32, NOW)] {
        assert_eq!(code(answer), Some(Code::NoKey));
    }
}

#[test]
fn an_expired_private_key_decrypts_and_does_not_sign() {
    let mut service = private("rsa-2048", |spec| spec.expires_s = 1001);
    let later = Now { wall_s: 1001, ..NOW };
    assert_eq!(code(sign(&mut service, 0, PKCS1, 32)), None);
    assert_eq!(code(sign_at(&mut service, &user(), 0, PKCS1, 32, later)), Some(Code::Expired));
    let decrypt = Operation::Decrypt { name: name(), version: 0, padding: Padding::Pkcs1, text: vec![1; 256] };
    assert_eq!(code(service.answer(&user(), decrypt, later)), None);
}

#[test]
fn private_keys_have_limits() {
    let mut service = private("ed25519", |spec| spec.limits.operations = 2);
    for refused in [None, None, Some(Code::Limit)] {
        assert_eq!(code(sign(&mut service, 0, Scheme::Ed25519, 3)), refused);
    }
    service.live.clear();
    assert_eq!(code(sign(&mut service, 0, Scheme::Ed25519, 3)), Some(Code::Limit));
    let mut service = private("ed25519", |spec| spec.limits.per_second = 1);
    for refused in [None, Some(Code::Rate)] {
        assert_eq!(code(sign(&mut service, 0, Scheme::Ed25519, 3)), refused);
    }
}

#[test]
fn nothing_about_a_padding_is_told() {
    let mut service = private("rsa-2048", |_| {});
    let mut decrypt = |padding: Padding, byte| {
        let text = [&[0][..], &[byte; 255]].concat();
        service.answer(&user(), Operation::Decrypt { name: name(), version: 0, padding, text }, NOW)
    };
    let oaep = || Padding::Oaep { digest: Digest::Sha256, mgf1: Digest::Sha1, label: vec![1] };
    let mut texts = BTreeSet::new();
    for byte in 1..20 {
        let tls = || Padding::Tls { client_version: 0x0303, negotiated: 0 };
        // A right secret would come twice as well.
        match (decrypt(tls(), byte), decrypt(tls(), byte)) {
            (Answer::Opened(once), Answer::Opened(twice)) => assert!(once == twice && once.len() == 48),
            _ => panic!("a wrong padding is refused"),
        }
        match (decrypt(Padding::Pkcs1, byte), decrypt(Padding::Pkcs1, byte)) {
            (Answer::Opened(once), Answer::Opened(twice)) => {
                assert!(once == twice);
                texts.insert(once.to_vec());
            }
            _ => panic!("a wrong padding is refused"),
        }
        match (decrypt(oaep(), byte), decrypt(oaep(), 1)) {
            (Answer::Refused(one), Answer::Refused(other)) => assert!(one == other && one.code == Code::Auth),
            _ => panic!("OAEP takes anything"),
        }
    }
    // The key is another one in each run, and two texts may both be empty.
    assert!(texts.len() > 10, "{}", texts.len());
}

#[test]
fn an_imported_key_is_what_it_says_and_is_kept_in_pkcs8() {
    let key = PrivateKey::generate(Algorithm::EcP384).unwrap();
    let secret = || key.pkcs8().unwrap();
    let import = |algorithm: &str, uses, secret| {
        let mut service = service();
        let spec = Spec { uses, ..spec(Kind::Private, algorithm) };
        let made = code(service.answer(&root(), Operation::Import { name: name(), spec, secret }, NOW));
        (service, made)
    };
    for algorithm in ["", "ec-p384"] {
        let (mut service, refused) = import(algorithm, Uses::default(), secret());
        assert_eq!(refused, None);
        assert_eq!(spki(public(&mut service, &user(), 0)), key.spki().unwrap());
        let spec = &service.store().key(&name()).unwrap().spec;
        assert_eq!((spec.algorithm.as_str(), spec.uses), ("ec-p384", Uses::SIGN));
        // Another version is of the same algorithm.
        let mut rotate = |algorithm| {
            let secret = PrivateKey::generate(algorithm).unwrap().pkcs8().unwrap();
            code(service.answer(&root(), Operation::Rotate { name: name(), secret }, NOW))
        };
        assert_eq!((rotate(Algorithm::EcP256), rotate(Algorithm::EcP384)), (Some(Code::Parameter), None));
    }
    let (_, other) = import("ec-p256", Uses::SIGN, secret());
    let (_, uses) = import("", Uses::DECRYPT, secret());
    let (_, none) = import("", Uses::SIGN, Zeroizing::new(vec![1; 32]));
    let (_, empty) = import("", Uses::SIGN, Zeroizing::new(vec![]));
    assert_eq!([other, uses, none, empty], [Some(Code::Parameter); 4]);
}

/// By `rotate` it would be the newest version, which everybody takes.
#[test]
fn a_key_that_can_never_be_used_is_not_kept() {
    let mut service = private("rsa-2048", |_| {});
    for wrong in [
        &include_bytes!("../../../../crypto/awslc/tests/pkey/wide.bad")[..],
        include_bytes!("../../../../crypto/awslc/tests/pkey/composite.bad"),
    ] {
        let secret = Zeroizing::new(wrong.to_vec());
        let rotate = Operation::Rotate { name: name(), secret: secret.clone() };
        let import = Operation::Import { name: Name::new("other").unwrap(), spec: spec(Kind::Private, ""), secret };
        assert_eq!(code(service.answer(&root(), rotate, NOW)), Some(Code::Parameter));
        match service.answer(&root(), import, NOW) {
            Answer::Refused(refusal) => assert_eq!(refusal.code, Code::Parameter, "{refusal}"),
            _ => panic!("it is kept"),
        }
    }
    assert!(matches!(sign(&mut service, 0, PKCS1, 32), Answer::Signature { version: 1, .. }));
}

#[test]
fn a_request_that_nothing_can_come_of_is_not_counted() {
    let mut service = private("rsa-2048", |spec| (spec.limits.operations, spec.limits.per_second) = (2, 2));
    let decrypt = |service: &mut Service, text: Vec<u8>| {
        let operation = Operation::Decrypt { name: name(), version: 0, padding: Padding::Pkcs1, text };
        code(service.answer(&user(), operation, NOW))
    };
    for _ in 0..3 {
        assert_eq!(code(sign(&mut service, 0, PKCS1, 31)), Some(Code::Parameter));
        assert_eq!(code(sign(&mut service, 0, Scheme::Ecdsa, 32)), Some(Code::Parameter));
        // Longer than the modulus, not below it, and none.
        for text in [vec![1; 257], vec![0xff; 256], vec![]] {
            assert_eq!(decrypt(&mut service, text), Some(Code::Parameter));
        }
        let symmetric = (1, vec![0; 12], vec![0; 32]);
        assert_eq!(code(open(&mut service, &user(), symmetric)), Some(Code::Use));
    }
    assert_eq!(code(sign(&mut service, 0, PKCS1, 32)), None);
    assert_eq!(decrypt(&mut service, vec![1; 256]), None);
    assert_eq!(code(sign(&mut service, 0, PKCS1, 32)), Some(Code::Rate));
}

#[test]
fn a_stored_key_that_cannot_be_read_is_no_mistake_of_the_client() {
    let mut service = service();
    let spec = Spec { uses: Uses::SIGN, ..spec(Kind::Private, "ed25519") };
    let secret = Zeroizing::new(b"no key".to_vec());
    let version = Version { number: 1, made_s: 1, revoked_s: 0, bytes: 0, operations: 0, secret };
    service.store.put(&name(), Key { spec, versions: vec![version] }).unwrap();
    assert_eq!(code(sign(&mut service, 0, Scheme::Ed25519, 3)), Some(Code::Storage));
    assert_eq!(code(public(&mut service, &user(), 0)), Some(Code::Storage));
}

/// A request of this client's that waits for an RSA key.
fn waiting(service: &mut Service, peer: &Peer, operation: Operation) -> Box<Making> {
    match service.message(peer, &mut Streams::default(), &Request { id: 7, operation }.encode(), NOW) {
        Served::Later(making) => making,
        Served::Reply(..) | Served::Slots(_) => panic!("it does not wait"),
    }
}

fn generate(name: &str) -> Operation {
    let spec = Spec { uses: Uses::SIGN, ..spec(Kind::Private, "rsa-2048") };
    Operation::Generate { name: Name::new(name).unwrap(), spec, secret_len: 0 }
}

/// Another RSA key than those of the tests above, without the time that it takes to make one.
fn rsa_2048() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(include_bytes!("../../../../crypto/awslc/tests/pkey/rsa-2048.der").to_vec())
}

fn made(service: &mut Service, making: Box<Making>) -> Answer {
    decoded(&service.made(making, Ok(rsa_2048()), NOW))
}

#[test]
fn what_has_changed_while_a_key_was_made_counts() {
    let rotate = || Operation::Rotate { name: name(), secret: Zeroizing::new(vec![]) };
    let admin = Peer { process: 3, user: 1001, groups: vec![] };
    let mut service = service();
    let making = waiting(&mut service, &root(), generate("k"));
    assert_eq!(version(made(&mut service, making)), 1);

    // The name is taken meanwhile.
    let [first, second] = ["l", "l"].map(|name| waiting(&mut service, &root(), generate(name)));
    assert_eq!(version(made(&mut service, first)), 1);
    let taken = made(&mut service, second);
    assert!(matches!(taken, Answer::Refused(refusal) if refusal.code == Code::Exists));

    // The client may not make keys any more, nor administer this one.
    let making = waiting(&mut service, &root(), generate("m"));
    service.admins = Listed { users: vec![5], groups: vec![] };
    let denied = made(&mut service, making);
    assert!(matches!(denied, Answer::Refused(refusal) if refusal.code == Code::Denied));
    assert!(service.store().key(&Name::new("m").unwrap()).is_none());
    let set_admins = |service: &mut Service, users: Vec<u32>| {
        let mut key = copied(service.store().key(&name()).unwrap());
        key.spec.admins.users = users;
        service.store.put(&name(), key).unwrap();
    };
    set_admins(&mut service, vec![1001, user().user]);
    let (by_admin, by_user) = (waiting(&mut service, &admin, rotate()), waiting(&mut service, &user(), rotate()));
    set_admins(&mut service, vec![]);
    // Whoever may not use the key either does not learn that there is one.
    assert_eq!(code(made(&mut service, by_admin)), Some(Code::NoKey));
    assert_eq!(code(made(&mut service, by_user)), Some(Code::Denied));
    assert_eq!(service.store().key(&name()).unwrap().versions.len(), 1);

    // There is no room for another version, or the key is revoked.
    service.admins = Listed { users: vec![0], groups: vec![] };
    let (late, later) = (waiting(&mut service, &root(), rotate()), waiting(&mut service, &root(), rotate()));
    for number in 2..=MAX_VERSIONS as u32 {
        let making = waiting(&mut service, &root(), rotate());
        assert_eq!(version(made(&mut service, making)), number);
    }
    assert_eq!(code(made(&mut service, late)), Some(Code::Full));
    assert_eq!(version(revoke(&mut service, &root(), 0)), 0);
    assert_eq!(code(made(&mut service, later)), Some(Code::Revoked));
}

#[test]
fn why_there_is_no_key_is_told_and_noted() {
    let mut service = service();
    for (why, refused) in [(NotMade::Own, Code::Busy), (NotMade::Full, Code::Busy), (NotMade::Failed, Code::Driver)] {
        let making = waiting(&mut service, &root(), generate("k"));
        assert_eq!(code(decoded(&service.made(making, Err(why), NOW))), Some(refused));
    }
    let making = waiting(&mut service, &root(), generate("k"));
    service.given_up(&making, NOW);
    let noted = ["generate 'k' busy", "generate 'k' busy", "generate 'k' driver", "generate 'k' gone"];
    assert_eq!(service.noted(), noted);
}
