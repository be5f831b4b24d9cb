mod steps;

use crate::composed::{MAX_COMPOSED, MAX_COMPOSED_OF_USER};
use crate::key::tests::spec;
use crate::seal::tests::{CHEAP, passphrase, registry, sealer};
use crate::seal::{Sealer, WrappingKey};
use crate::service::{Now, Served, Service};
use crate::store::Store;
use crate::streams::Streams;
use crate::wrapped::Wrapping;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::templates;
use sealane_crypto::{OpError, Registry};
use sealane_keeper_client::key::{Kind, Listed, Name, Peer, Spec, Uses};
use sealane_keeper_client::limits::MAX_STREAMS;
use sealane_keeper_client::message::{Answer, Code, Operation, Reply, Request};
use sealane_keeper_client::reference::KeyRef;
use zeroize::Zeroizing;

const NOW: Now = Now { wall_s: 1000, mono_ns: 50_000_000_000 };
const LATER: Now = Now { wall_s: 3000, mono_ns: 51_000_000_000 };

fn peer(user: u32) -> Peer {
    Peer { process: 2, user, groups: vec![user] }
}

fn of_store(store: Store, users: Option<Listed>) -> Service {
    of_registry(registry(), store, users)
}

fn of_registry(registry: Registry, store: Store, users: Option<Listed>) -> Service {
    let wrapping = Wrapping::new(Sealer::new(&registry).unwrap(), store.wrapping_key().unwrap(), users);
    Service::new(registry, store, Listed { users: vec![0], groups: vec![] }).with_wrapping(wrapping)
}

fn service() -> Service {
    of_store(Store::in_memory(), None)
}

fn secret(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(bytes.to_vec())
}

fn wrap_as(service: &mut Service, user: u32, kind: Kind, algorithm: &str, key: &[u8]) -> Result<Vec<u8>, Code> {
    let wrap = Operation::Wrap { kind, algorithm: algorithm.to_owned(), secret: secret(key) };
    match service.answer(&peer(user), wrap, NOW) {
        Answer::Wrapped(wrapped) => Ok(wrapped),
        other => Err(refused(other)),
    }
}

fn wrapped(service: &mut Service, kind: Kind, algorithm: &str, key: &[u8]) -> KeyRef {
    KeyRef::Wrapped(wrap_as(service, 1000, kind, algorithm, key).unwrap())
}

fn refused(answer: Answer) -> Code {
    match answer {
        Answer::Refused(refusal) => refusal.code,
        Answer::Failed(error) => panic!("failed: {error}"),
        _ => panic!("not refused"),
    }
}

fn failed(answer: Answer) -> OpError {
    match answer {
        Answer::Failed(error) => error,
        Answer::Refused(refusal) => panic!("refused: {refusal}"),
        _ => panic!("not failed"),
    }
}

/// The outcome of an answer: the version, or why it was refused.
fn outcome(answer: Answer) -> Result<u32, Code> {
    match answer {
        Answer::Version(version) | Answer::Computed { version, .. } | Answer::Tag { version, .. } => Ok(version),
        other => Err(refused(other)),
    }
}

fn cipher(key: &KeyRef, direction: Direction, iv: &[u8], text: &[u8]) -> Operation {
    Operation::CipherBy { key: key.clone(), direction, iv: iv.to_vec(), text: text.into() }
}

fn mac(key: &KeyRef, text: &[u8]) -> Operation {
    Operation::MacBy { key: key.clone(), text: text.into() }
}

/// One message of a connection.
fn ask(service: &mut Service, streams: &mut Streams, operation: Operation, now: Now) -> Answer {
    match service.message(&peer(1000), streams, &Request { id: 7, operation }.encode(), now) {
        Served::Reply(reply, false) => Reply::answer_to(7, &reply).unwrap(),
        _ => panic!("no reply"),
    }
}

fn begin(key: &KeyRef, stream: u32, text: &[u8]) -> Operation {
    Operation::MacBegin { key: key.clone(), stream, text: text.into() }
}

fn more(stream: u32, text: &[u8]) -> Operation {
    Operation::MacMore { stream, text: text.into() }
}

fn end(stream: u32, text: &[u8]) -> Operation {
    Operation::MacEnd { stream, text: text.into() }
}

fn tag(answer: Answer) -> Vec<u8> {
    match answer {
        Answer::Tag { tag, .. } => tag,
        other => panic!("{:?}", refused(other)),
    }
}

#[test]
fn a_wrapped_key_is_of_no_use_to_others_and_not_when_it_is_changed() {
    let mut service = service();
    let blob = wrap_as(&mut service, 1000, Kind::Hash, "hmac(sha256)", b"key").unwrap();
    assert!(!blob.windows(3).any(|window| window == b"key"));
    let key = KeyRef::Wrapped(blob.clone());
    let made = tag(service.answer(&peer(1000), mac(&key, b"text"), NOW));
    let local = registry().lookup(sealane_crypto::Kind::Hash, "hmac(sha256)").unwrap().mac(b"key").unwrap();
    assert_eq!(local.verify(&[b"text"], &made), Ok(()));
    // It is ready for the first user, and still no other one's.
    assert_eq!(refused(service.answer(&peer(1001), mac(&key, b"text"), NOW)), Code::Wrapped);
    assert_eq!(refused(service.answer(&peer(0), mac(&key, b"text"), NOW)), Code::Wrapped);
    for at in 0..blob.len() {
        let mut changed = blob.clone();
        changed[at] ^= 1;
        let key = KeyRef::Wrapped(changed);
        assert_eq!(refused(service.answer(&peer(1000), mac(&key, b""), NOW)), Code::Wrapped, "changed at {at}");
        let key = KeyRef::Wrapped(blob[..at].to_vec());
        assert_eq!(refused(service.answer(&peer(1000), mac(&key, b""), NOW)), Code::Wrapped, "cut off at {at}");
    }
    assert_eq!(refused(self::service().answer(&peer(1000), mac(&key, b"text"), NOW)), Code::Wrapped);
    // Twice the same key looks different.
    assert_ne!(wrap_as(&mut service, 1000, Kind::Hash, "hmac(sha256)", b"key").unwrap(), blob);
}

#[test]
fn wrapped_keys_outlive_a_keeper_with_a_store_only() {
    let folder = std::env::temp_dir().join(format!("sealane-keeper-wrapped-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let open = || of_store(Store::open(&folder, &passphrase("right"), CHEAP, sealer()).unwrap(), None);
    let mut first = open();
    let key = wrapped(&mut first, Kind::Hash, "hmac(sha256)", b"key");
    let made = tag(first.answer(&peer(1000), mac(&key, b"text"), NOW));
    drop(first);
    assert_eq!(tag(open().answer(&peer(1000), mac(&key, b"text"), NOW)), made);
    std::fs::remove_dir_all(&folder).unwrap();
    // Another store has another key.
    assert_eq!(refused(open().answer(&peer(1000), mac(&key, b"text"), NOW)), Code::Wrapped);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn keys_are_taken_of_those_who_may_and_only_good_ones() {
    let mut off = Service::new(registry(), Store::in_memory(), Listed::default());
    assert_eq!(wrap_as(&mut off, 0, Kind::Hash, "hmac(sha256)", b"key"), Err(Code::Denied));
    let listed = Listed { users: vec![1000], groups: vec![2000] };
    let mut some = of_store(Store::in_memory(), Some(listed));
    let key = wrapped(&mut some, Kind::Hash, "hmac(sha256)", b"key");
    assert_eq!(wrap_as(&mut some, 0, Kind::Hash, "hmac(sha256)", b"key"), Err(Code::Denied));
    assert_eq!(refused(some.answer(&peer(0), mac(&key, b""), NOW)), Code::Denied);
    assert_eq!(refused(off.answer(&peer(1000), mac(&key, b""), NOW)), Code::Denied);
    let mut all = service();
    for (kind, algorithm, key) in [
        (Kind::Hash, "no-such", &b"key"[..]),
        (Kind::Hash, "sha256", b"key"),
        (Kind::Hash, "hmac-sha256-portable", b"key"),
        (Kind::Hash, "blake2b-256", b""),
        (Kind::Skcipher, "hmac(sha256)", b"key"),
        (Kind::Skcipher, "cbc(aes)", &[1; 17]),
        (Kind::Private, "rsa-2048", b"key"),
    ] {
        assert_eq!(wrap_as(&mut all, 1000, kind, algorithm, key), Err(Code::Parameter), "{algorithm}");
    }
    // Linux takes it.
    assert!(wrap_as(&mut all, 1000, Kind::Hash, "hmac(sha256)", b"").is_ok());
    assert!(wrap_as(&mut all, 1000, Kind::Hash, "blake2b-256", b"key").is_ok());
    assert!(all.noted().iter().any(|line| line == "wrap parameter") && all.noted().iter().any(|line| line == "wrap "));
}

#[test]
fn compositions_are_bounded_and_drivers_make_none() {
    let mut s = of_registry(sealane_drivers::system_registry().0, Store::in_memory(), None);
    let wrap = |s: &mut Service, user, kind, name: &str, key: &[u8]| wrap_as(s, user, kind, name, key).map(drop);
    let instances = |s: &Service| s.registry.instances().count();
    // Spellings of drivers, alone and as parts: no instance is made of any.
    let registry = sealane_drivers::system_registry().0;
    let drivers = |kind, name: &str| {
        let found = registry.rows().iter().filter(|row| row.info.kind == kind && row.info.name == name);
        found.map(|row| row.driver.clone()).collect::<Vec<String>>()
    };
    let cbc = drivers(sealane_crypto::Kind::Skcipher, "cbc(aes)");
    assert!(!cbc.is_empty());
    for driver in cbc {
        for (kind, name) in [
            (Kind::Skcipher, driver.clone()),
            (Kind::Skcipher, format!("cts({driver})")),
            (Kind::Aead, format!("authenc(hmac(sha1),{driver})")),
            (Kind::Aead, format!("authenc(hmac(sha1),cts({driver}))")),
            (Kind::Aead, format!("nothing(cts({driver}))")),
        ] {
            assert_eq!(wrap(&mut s, 1000, kind, &name, &[1; 16]), Err(Code::Parameter), "{name}");
            assert_eq!(instances(&s), 0, "{name}");
        }
    }
    let key = |mac_len: usize| [&[8, 0, 1, 0, 0, 0, 0, 16][..], &vec![1; mac_len + 16]].concat();
    let macs = ["md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3-224", "sha3-256", "sha3-384", "sha3-512"];
    let names = |template: &str| -> Vec<String> {
        let ciphers = ["cbc(aes)", "ctr(aes)", "cbc(camellia)", "ctr(camellia)", "cts(cbc(aes))"];
        let pairs = ciphers.iter().flat_map(|cipher| macs.map(|mac| format!("{template}(hmac({mac}),{cipher})")));
        pairs.filter(|name| !templates::well_known().iter().any(|(_, known)| known == name)).collect()
    };
    let all = [names("authenc"), names("authencesn")].concat();
    let exists = |name: &String| registry.lookup(sealane_crypto::Kind::Aead, name).is_ok();
    let all: Vec<String> = all.into_iter().filter(exists).collect();
    assert!(all.len() > MAX_COMPOSED, "{}", all.len());
    // A user gets some, and those again; users together get more of them; then nobody gets others.
    for (at, name) in all.iter().enumerate() {
        let user = 1000 + (at / MAX_COMPOSED_OF_USER) as u32;
        let done = wrap(&mut s, user, Kind::Aead, name, &key(16));
        assert_eq!(done, if at < MAX_COMPOSED { Ok(()) } else { Err(Code::Full) }, "{name}");
        if at == MAX_COMPOSED_OF_USER {
            assert_eq!(wrap(&mut s, 1000, Kind::Aead, &all[at + 1], &key(16)), Err(Code::Full));
        }
        assert_eq!(wrap(&mut s, 1000, Kind::Aead, &all[0], &key(16)), Ok(()));
    }
    // What protocols use is there for all, whatever is wrong with this key.
    for (kind, name) in templates::well_known() {
        let done = wrap(&mut s, 2000, Kind::of_registry(*kind).unwrap(), name, &key(16));
        assert!(matches!(done, Ok(()) | Err(Code::Parameter)), "{name}");
    }
    assert_eq!(wrap(&mut s, 2000, Kind::Aead, "rfc4106(gcm(aes))", &[1; 20]), Ok(()));
    assert!(instances(&s) < 128, "{}", instances(&s));
}

#[test]
fn failures_are_the_crypto_cores_own() {
    let mut service = service();
    let gcm = wrapped(&mut service, Kind::Aead, "gcm(aes)", &[1; 16]);
    let ccm = wrapped(&mut service, Kind::Aead, "ccm(aes)", &[1; 16]);
    let cbc = wrapped(&mut service, Kind::Skcipher, "cbc(aes)", &[1; 16]);
    let seal = |key: &KeyRef, nonce: &[u8], text: &[u8], tag_len| Operation::SealBy {
        key: key.clone(),
        nonce: nonce.to_vec(),
        aad: vec![9],
        text: text.into(),
        tag_len,
    };
    let open = |tag: &[u8]| Operation::OpenBy {
        key: gcm.clone(),
        nonce: vec![2; 12],
        aad: vec![9],
        text: vec![3],
        tag: tag.to_vec(),
    };
    // A length field of two bytes.
    let short_of_ccm = [&[1][..], &[0; 15]].concat();
    for (operation, error) in [
        (cipher(&cbc, Direction::Encrypt, &[0; 16], &[0; 15]), OpError::Length),
        (cipher(&cbc, Direction::Decrypt, &[0; 15], &[0; 16]), OpError::Nonce),
        (seal(&gcm, &[2; 11], b"", 16), OpError::Nonce),
        (seal(&gcm, &[2; 12], b"", 3), OpError::TagLen),
        (seal(&gcm, &[2; 12], b"", 65), OpError::TagLen),
        (seal(&ccm, &short_of_ccm, &[0; 65_536], 16), OpError::TooLong),
        (open(&[0; 16]), OpError::Auth),
        (open(&[0; 4]), OpError::Auth),
        (open(&[0; 17]), OpError::TagLen),
    ] {
        let name = operation.name();
        assert_eq!(failed(service.answer(&peer(1000), operation, NOW)), error, "{name}");
    }
    let noted = |what: &str| service.noted().iter().filter(|line| *line == what).count();
    assert_eq!((noted("open-wrapped auth"), noted("encrypt-wrapped parameter")), (2, 1));
    // A short tag is the front of the whole one.
    let made =
        |service: &mut Service, tag_len| match service.answer(&peer(1000), seal(&gcm, &[2; 12], &[5], tag_len), NOW) {
            Answer::Computed { text, tag, .. } => (text, tag),
            _ => panic!("not sealed"),
        };
    let (text, tag) = made(&mut service, 4);
    let (again, whole) = made(&mut service, 16);
    assert!(text == again && tag[..] == whole[..4]);
    for tag in [tag, whole] {
        let (key, text) = (gcm.clone(), text.to_vec());
        let open = Operation::OpenBy { key, nonce: vec![2; 12], aad: vec![9], text, tag };
        match service.answer(&peer(1000), open, NOW) {
            Answer::Computed { text, .. } => assert_eq!(&text[..], [5]),
            _ => panic!("not opened"),
        }
    }
}

#[test]
fn a_key_is_used_by_its_type_only() {
    let mut service = service();
    let hash = wrapped(&mut service, Kind::Hash, "hmac(sha256)", b"key");
    let cbc = wrapped(&mut service, Kind::Skcipher, "cbc(aes)", &[1; 16]);
    let open =
        |key: &KeyRef| Operation::OpenBy { key: key.clone(), nonce: vec![], aad: vec![], text: vec![], tag: vec![] };
    for operation in [mac(&cbc, b""), begin(&cbc, 1, b""), open(&cbc), cipher(&hash, Direction::Encrypt, &[], b"")] {
        assert_eq!(refused(service.answer(&peer(1000), operation, NOW)), Code::Use);
    }
    let tried = |key: &KeyRef, kind| Operation::Try { key: key.clone(), kind, secret_len: 0 };
    assert_eq!(outcome(service.answer(&peer(1000), tried(&hash, Kind::Hash), NOW)), Ok(0));
    assert_eq!(outcome(service.answer(&peer(1000), tried(&hash, Kind::Aead), NOW)), Err(Code::Use));
    assert_eq!(outcome(service.answer(&peer(1001), tried(&hash, Kind::Hash), NOW)), Err(Code::Wrapped));
}

/// A service with a key 'k', changed by `change` from one that may do everything, and a reference to it.
fn with_key(kind: Kind, algorithm: &str, change: impl FnOnce(&mut Spec)) -> (Service, KeyRef) {
    with_key_in(service(), kind, algorithm, change)
}

fn with_key_in(mut service: Service, kind: Kind, algorithm: &str, change: impl FnOnce(&mut Spec)) -> (Service, KeyRef) {
    let mut spec = spec(kind, algorithm);
    change(&mut spec);
    let name = Name::new("k").unwrap();
    let made = service.answer(&peer(0), Operation::Generate { name: name.clone(), spec, secret_len: 0 }, NOW);
    assert_eq!(outcome(made), Ok(1));
    (service, KeyRef::Named { name, version: 0, algorithm: algorithm.to_owned() })
}

#[test]
fn a_named_key_obeys_its_rules() {
    let tried = |service: &mut Service, key: &KeyRef, kind, now| {
        outcome(service.answer(&peer(1000), Operation::Try { key: key.clone(), kind, secret_len: 0 }, now))
    };
    let used = |service: &mut Service, key: &KeyRef, direction, now| {
        outcome(service.answer(&peer(1000), cipher(key, direction, &[0; 16], &[0; 16]), now))
    };
    let (encrypt, decrypt) = (Direction::Encrypt, Direction::Decrypt);
    let uses = |uses: Uses| move |spec: &mut Spec| spec.uses = uses;
    // Its nonces are the caller's.
    let (mut service, key) = with_key(Kind::Skcipher, "cbc(aes)", uses(Uses::ENCRYPT));
    assert_eq!(used(&mut service, &key, encrypt, NOW), Err(Code::Use));
    assert_eq!(tried(&mut service, &key, Kind::Skcipher, NOW), Err(Code::Use));
    let (mut service, key) = with_key(Kind::Skcipher, "cbc(aes)", uses(Uses::DECRYPT));
    assert_eq!(
        (used(&mut service, &key, encrypt, NOW), used(&mut service, &key, decrypt, NOW)),
        (Err(Code::Use), Ok(1))
    );
    assert_eq!(tried(&mut service, &key, Kind::Skcipher, NOW), Ok(1));
    // Who, and by which algorithm.
    let (mut service, key) = with_key(Kind::Skcipher, "cbc(aes)", |_| {});
    assert_eq!(refused(service.answer(&peer(1), cipher(&key, encrypt, &[0; 16], b""), NOW)), Code::NoKey);
    assert_eq!(
        refused(service.answer(
            &peer(0),
            Operation::Try { key: key.clone(), kind: Kind::Skcipher, secret_len: 0 },
            NOW
        )),
        Code::Denied
    );
    assert_eq!(tried(&mut service, &key, Kind::Aead, NOW), Err(Code::Parameter));
    let other = KeyRef::Named { name: Name::new("k").unwrap(), version: 0, algorithm: "ctr(aes)".to_owned() };
    assert_eq!(used(&mut service, &other, encrypt, NOW), Err(Code::Parameter));
    assert_eq!(tried(&mut service, &other, Kind::Skcipher, NOW), Err(Code::Parameter));
    // Versions.
    let rotate = Operation::Rotate { name: Name::new("k").unwrap(), secret: secret(b"") };
    assert_eq!(outcome(service.answer(&peer(0), rotate, NOW)), Ok(2));
    let first = KeyRef::Named { name: Name::new("k").unwrap(), version: 1, algorithm: "cbc(aes)".to_owned() };
    assert_eq!((used(&mut service, &first, encrypt, NOW), used(&mut service, &key, encrypt, NOW)), (Ok(1), Ok(2)));
    let revoke = Operation::Revoke { name: Name::new("k").unwrap(), version: 1 };
    assert_eq!(outcome(service.answer(&peer(0), revoke, NOW)), Ok(1));
    assert_eq!(
        (used(&mut service, &first, decrypt, NOW), tried(&mut service, &first, Kind::Skcipher, NOW)),
        (Err(Code::Revoked), Err(Code::Revoked))
    );
    assert_eq!(tried(&mut service, &key, Kind::Skcipher, NOW), Ok(2));
    // Expiry.
    let (mut service, key) = with_key(Kind::Skcipher, "cbc(aes)", |spec| spec.expires_s = 2000);
    assert_eq!(
        (used(&mut service, &key, encrypt, LATER), used(&mut service, &key, decrypt, LATER)),
        (Err(Code::Expired), Ok(1))
    );
    assert_eq!(tried(&mut service, &key, Kind::Skcipher, LATER), Ok(1));
    let (mut service, key) = with_key(Kind::Hash, "hmac(sha256)", |spec| spec.expires_s = 2000);
    assert_eq!(
        (tried(&mut service, &key, Kind::Hash, NOW), tried(&mut service, &key, Kind::Hash, LATER)),
        (Ok(1), Err(Code::Expired))
    );
    // Limits.
    let (mut service, key) = with_key(Kind::Skcipher, "cbc(aes)", |spec| spec.limits.bytes = 40);
    assert_eq!([(); 3].map(|()| used(&mut service, &key, encrypt, NOW)), [Ok(1), Ok(1), Err(Code::Limit)]);
    let (mut service, key) = with_key(Kind::Skcipher, "cbc(aes)", |spec| spec.limits.per_second = 1);
    assert_eq!([(); 2].map(|()| used(&mut service, &key, decrypt, NOW)), [Ok(1), Err(Code::Rate)]);
}

#[test]
fn tags_of_a_named_key_are_whole() {
    for (algorithm, nonce) in [("gcm(aes)", &[2; 12][..]), ("ccm(aes)", &[&[1][..], &[0; 15]].concat())] {
        let (mut service, key) = with_key(Kind::Aead, algorithm, |_| {});
        let seal = |key: &KeyRef, tag_len| {
            let (key, nonce) = (key.clone(), nonce.to_vec());
            Operation::SealBy { key, nonce, aad: vec![], text: b"text"[..].into(), tag_len }
        };
        let Answer::Computed { text, tag, .. } = service.answer(&peer(1000), seal(&key, 16), NOW) else {
            panic!("not sealed")
        };
        let open = |tag: &[u8]| {
            let (key, nonce, text) = (key.clone(), nonce.to_vec(), text.to_vec());
            Operation::OpenBy { key, nonce, aad: vec![], text, tag: tag.to_vec() }
        };
        for len in [0, 4, 8, 12, 15] {
            assert_eq!(refused(service.answer(&peer(1000), seal(&key, len as u16), NOW)), Code::Parameter, "{len}");
            // Right as far as it goes, and wrong: both get the same answer.
            for byte in [0, 1] {
                let mut cut = tag[..len].to_vec();
                cut.iter_mut().for_each(|tag| *tag ^= byte);
                assert_eq!(refused(service.answer(&peer(1000), open(&cut), NOW)), Code::Parameter, "{len}");
            }
        }
        assert_eq!(outcome(service.answer(&peer(1000), open(&tag), NOW)), Ok(1));
        // Linux takes short ones, and a program's own key is the program's.
        let own = wrapped(&mut service, Kind::Aead, algorithm, &[1; 16]);
        assert_eq!(outcome(service.answer(&peer(1000), seal(&own, 8), NOW)), Ok(0));
    }
}

#[test]
fn a_message_in_pieces_is_the_whole_one() {
    let mut service = service();
    let key = wrapped(&mut service, Kind::Hash, "hmac(sha256)", b"key");
    let whole = tag(service.answer(&peer(1000), mac(&key, b"one two three"), NOW));
    let other = tag(service.answer(&peer(1000), mac(&key, b"one two 3"), NOW));
    let streams = &mut Streams::default();
    let s = &mut service;
    assert_eq!(outcome(ask(s, streams, begin(&key, 1, b"one "), NOW)), Ok(0));
    assert_eq!(outcome(ask(s, streams, begin(&key, 1, b""), NOW)), Err(Code::Parameter), "it is taken");
    assert_eq!(outcome(ask(s, streams, more(1, b"two "), NOW)), Ok(0));
    assert_eq!(outcome(ask(s, streams, Operation::StreamFork { stream: 1, to: 2 }, NOW)), Ok(0));
    assert_eq!(tag(ask(s, streams, end(1, b"three"), NOW)), whole);
    assert_eq!(tag(ask(s, streams, end(2, b"3"), NOW)), other);
    for gone in
        [more(1, b""), end(2, b""), Operation::StreamFork { stream: 2, to: 3 }, Operation::StreamForget { stream: 1 }]
    {
        assert_eq!(outcome(ask(s, streams, gone, NOW)), Err(Code::Parameter));
    }
    // There is room for so many, and again when one is gone.
    for stream in 0..MAX_STREAMS as u32 {
        assert_eq!(outcome(ask(s, streams, begin(&key, stream, b"one "), NOW)), Ok(0));
    }
    assert_eq!(outcome(ask(s, streams, begin(&key, 99, b""), NOW)), Err(Code::Full));
    assert_eq!(outcome(ask(s, streams, Operation::StreamFork { stream: 3, to: 99 }, NOW)), Err(Code::Full));
    assert_eq!(outcome(ask(s, streams, Operation::StreamForget { stream: 0 }, NOW)), Ok(0));
    assert_eq!(outcome(ask(s, streams, Operation::StreamFork { stream: 3, to: 99 }, NOW)), Ok(0));
    assert_eq!(tag(ask(s, streams, end(99, b"two three"), NOW)), whole);
    assert_eq!(tag(ask(s, streams, end(3, b"two 3"), NOW)), other);
}

#[test]
fn a_message_ends_with_the_right_to_its_key() {
    let (mut service, key) = with_key(Kind::Hash, "hmac(sha256)", |spec| {
        spec.limits.bytes = 6;
        spec.expires_s = 2000;
    });
    let (s, streams) = (&mut service, &mut Streams::default());
    for stream in [1, 2, 3] {
        assert_eq!(outcome(ask(s, streams, begin(&key, stream, b"ab"), NOW)), Ok(1));
    }
    assert_eq!(outcome(ask(s, streams, more(1, b"c"), NOW)), Err(Code::Limit));
    assert_eq!(outcome(ask(s, streams, end(1, b""), NOW)), Err(Code::Parameter), "it is gone");
    assert_eq!(outcome(ask(s, streams, end(2, b""), LATER)), Err(Code::Expired));
    let revoke = Operation::Revoke { name: Name::new("k").unwrap(), version: 0 };
    assert!(outcome(s.answer(&peer(0), revoke, NOW)).is_ok());
    assert_eq!(outcome(ask(s, streams, end(3, b""), NOW)), Err(Code::Revoked));
    assert!(streams.is_empty());
    let refused: Vec<&String> = s.noted().iter().filter(|line| line.starts_with("mac-piece")).collect();
    assert_eq!(
        refused,
        ["mac-piece 'k' limit", "mac-piece parameter", "mac-piece 'k' expired", "mac-piece 'k' revoked"]
    );
}

#[test]
fn a_copy_of_a_message_is_an_operation_of_its_key() {
    let fork = |to| Operation::StreamFork { stream: 1, to };
    let (mut service, key) = with_key(Kind::Hash, "hmac(sha256)", |spec| {
        spec.limits.operations = 3;
        spec.expires_s = 2000;
    });
    let (s, streams) = (&mut service, &mut Streams::default());
    assert_eq!(outcome(ask(s, streams, begin(&key, 1, b"ab"), NOW)), Ok(1));
    assert_eq!(outcome(ask(s, streams, fork(2), LATER)), Err(Code::Expired));
    assert_eq!(outcome(ask(s, streams, fork(2), NOW)), Ok(1));
    assert_eq!(outcome(ask(s, streams, fork(3), NOW)), Ok(1));
    assert_eq!(outcome(ask(s, streams, fork(4), NOW)), Err(Code::Limit));
    let revoke = Operation::Revoke { name: Name::new("k").unwrap(), version: 0 };
    assert!(outcome(s.answer(&peer(0), revoke, NOW)).is_ok());
    assert_eq!(outcome(ask(s, streams, fork(5), NOW)), Err(Code::Revoked));
    // No state of a revoked key stays, and those of programs do.
    let own = wrapped(s, Kind::Hash, "hmac(sha256)", b"key");
    assert_eq!(outcome(ask(s, streams, begin(&own, 6, b"ab"), NOW)), Ok(0));
    s.drop_revoked(streams);
    assert_eq!(outcome(ask(s, streams, end(6, b""), NOW)), Ok(0));
    assert!(streams.is_empty());
}

#[test]
fn no_key_is_wrapped_under_the_same_bytes_twice() {
    // Each has a salt, and so a key, of its own: the nonce is always zero.
    let key = WrappingKey::random();
    let wrapping = Wrapping::new(sealer(), key, None);
    let unwrapped =
        || crate::wrapped::Unwrapped { kind: Kind::Hash, algorithm: "hmac(sha256)".to_owned(), secret: secret(b"key") };
    let salts: std::collections::HashSet<Vec<u8>> =
        (0..100).map(|_| wrapping.wrap(1, &unwrapped()).unwrap()[1..33].to_vec()).collect();
    assert_eq!(salts.len(), 100);
}

/// A keeper with all drivers: the portable one of AES-GCM takes whole messages only.
fn with_drivers() -> Service {
    of_registry(sealane_drivers::system_registry().0, Store::in_memory(), None)
}

fn aead_begin(key: &KeyRef, stream: u32, direction: Direction, text: &[u8]) -> Operation {
    let (nonce, aad) = (vec![2; 12], vec![9; 20]);
    Operation::AeadBegin { key: key.clone(), stream, direction, nonce, aad, text: text.into() }
}

fn aead_more(stream: u32, direction: Direction, aad: &[u8], text: &[u8]) -> Operation {
    Operation::AeadMore { stream, direction, aad: aad.to_vec(), text: text.into() }
}

fn text(answer: Answer) -> Vec<u8> {
    match answer {
        Answer::Computed { text, .. } => text.to_vec(),
        other => panic!("{:?}", refused(other)),
    }
}

#[test]
fn a_sealed_message_comes_in_pieces() {
    for algorithm in ["gcm(aes)", "rfc7539(chacha20,poly1305)"] {
        let mut service = with_drivers();
        let key = wrapped(&mut service, Kind::Aead, algorithm, &[1; 32]);
        let (s, streams) = (&mut service, &mut Streams::default());
        let (encrypt, decrypt) = (Direction::Encrypt, Direction::Decrypt);
        let whole = Operation::SealBy {
            key: key.clone(),
            nonce: vec![2; 12],
            aad: [[9; 20], [8; 20]].concat(),
            text: b"one two three"[..].into(),
            tag_len: 16,
        };
        let Answer::Computed { text: sealed, tag: whole, .. } = s.answer(&peer(1000), whole, NOW) else { panic!() };
        assert!(text(ask(s, streams, aead_begin(&key, 1, encrypt, b""), NOW)).is_empty());
        let mut out = text(ask(s, streams, aead_more(1, encrypt, &[8; 20], b"one "), NOW));
        assert_eq!(outcome(ask(s, streams, Operation::StreamFork { stream: 1, to: 2 }, NOW)), Ok(0));
        out.extend(text(ask(s, streams, aead_more(1, encrypt, b"", b"two three"), NOW)));
        assert_eq!(out, sealed[..]);
        assert_eq!(tag(ask(s, streams, Operation::AeadSeal { stream: 1 }, NOW)), whole);
        assert_eq!(text(ask(s, streams, aead_more(2, encrypt, b"", b"two three"), NOW)), sealed[4..]);
        // Associated data does not come behind text, and that is the end of the message.
        assert_eq!(failed(ask(s, streams, aead_more(2, encrypt, b"a", b""), NOW)), OpError::AssocLen);
        for gone in [aead_more(2, encrypt, b"", b""), Operation::AeadSeal { stream: 1 }] {
            assert_eq!(outcome(ask(s, streams, gone, NOW)), Err(Code::Parameter));
        }
        for (given, done) in [(whole.clone(), None), (whole[..5].to_vec(), None), (vec![0; 16], Some(OpError::Auth))] {
            text(ask(s, streams, aead_begin(&key, 1, decrypt, b""), NOW));
            assert_eq!(text(ask(s, streams, aead_more(1, decrypt, &[8; 20], &sealed), NOW)), b"one two three");
            let answer = ask(s, streams, Operation::AeadOpen { stream: 1, tag: given }, NOW);
            match done {
                None => assert_eq!(outcome(answer), Ok(0)),
                Some(error) => assert_eq!(failed(answer), error),
            }
        }
        // The operations of one kind are not for messages of the other.
        text(ask(s, streams, aead_begin(&key, 1, encrypt, b"text"), NOW));
        let mac = wrapped(s, Kind::Hash, "hmac(sha256)", b"key");
        assert_eq!(outcome(ask(s, streams, begin(&mac, 2, b"text"), NOW)), Ok(0));
        for wrong in [end(1, b"text"), aead_more(2, encrypt, b"", b"text")] {
            assert_eq!(outcome(ask(s, streams, wrong, NOW)), Err(Code::Parameter));
        }
        assert!(streams.is_empty());
        assert_eq!(refused(ask(s, streams, aead_begin(&mac, 1, encrypt, b""), NOW)), Code::Use);
    }
    let mut service = with_drivers();
    let ccm = wrapped(&mut service, Kind::Aead, "ccm(aes)", &[1; 16]);
    let begin = aead_begin(&ccm, 1, Direction::Encrypt, b"");
    assert_eq!(refused(service.answer(&peer(1000), begin, NOW)), Code::Parameter);
}

#[test]
fn pieces_of_a_sealed_message_need_the_rights_to_its_key() {
    let (mut service, key) = with_key_in(with_drivers(), Kind::Aead, "gcm(aes)", |spec| {
        spec.uses = Uses::DECRYPT;
        spec.limits.operations = 9;
        spec.expires_s = 2000;
    });
    let (s, streams) = (&mut service, &mut Streams::default());
    let (encrypt, decrypt) = (Direction::Encrypt, Direction::Decrypt);
    assert_eq!(refused(ask(s, streams, aead_begin(&key, 1, encrypt, b"text"), NOW)), Code::Use);
    assert!(streams.is_empty());
    // An expired key still opens.
    for stream in 1..=4 {
        assert_eq!(outcome(ask(s, streams, aead_begin(&key, stream, decrypt, b"text"), LATER)), Ok(1));
    }
    assert_eq!(refused(ask(s, streams, aead_more(1, encrypt, b"", b"text"), NOW)), Code::Use);
    assert_eq!(refused(ask(s, streams, Operation::AeadSeal { stream: 2 }, NOW)), Code::Use);
    // Tags under a key of the keeper's are whole.
    assert_eq!(refused(ask(s, streams, Operation::AeadOpen { stream: 3, tag: vec![0; 15] }, NOW)), Code::Parameter);
    assert_eq!(failed(ask(s, streams, Operation::AeadOpen { stream: 4, tag: vec![0; 16] }, NOW)), OpError::Auth);
    assert!(streams.is_empty());
    for stream in 1..=3 {
        assert_eq!(outcome(ask(s, streams, aead_begin(&key, stream, decrypt, b"text"), NOW)), Ok(1));
    }
    assert_eq!(refused(ask(s, streams, aead_more(1, decrypt, b"", b"text"), NOW)), Code::Limit);
    let revoke = Operation::Revoke { name: Name::new("k").unwrap(), version: 0 };
    assert!(outcome(s.answer(&peer(0), revoke, NOW)).is_ok());
    assert_eq!(refused(ask(s, streams, aead_more(2, decrypt, b"", b"text"), NOW)), Code::Revoked);
    s.drop_revoked(streams);
    assert!(streams.is_empty());
}

#[test]
fn a_key_by_name_has_the_length_that_is_asked_for() {
    let (mut s, key) = with_key(Kind::Skcipher, "cbc(aes)", |_| {});
    let tried = |secret_len| Operation::Try { key: key.clone(), kind: Kind::Skcipher, secret_len };
    for (len, done) in [(0, Ok(1)), (32, Ok(1)), (16, Err(Code::Parameter)), (u32::MAX, Err(Code::Parameter))] {
        assert_eq!(outcome(s.answer(&peer(1000), tried(len), NOW)), done, "{len}");
    }
}
