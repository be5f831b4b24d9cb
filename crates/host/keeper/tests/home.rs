//! Algorithms of the crypto core that a keeper computes for a program, over a real socket.

use inout::InOutBuf;
use sealane_crypto::aead::{self, AeadDriver, AeadOp, AeadStream, AeadTfm, FlatAeadOp};
use sealane_crypto::data::Data;
use sealane_crypto::hash::HashState;
use sealane_crypto::home::{KeepError, KeyHome};
use sealane_crypto::key::{PreparedKey, as_prepared};
use sealane_crypto::mac::{self, MacDriver, MacOp, MacTfm};
use sealane_crypto::registry::{Driver, TestState};
use sealane_crypto::skcipher::{self, Direction, FlatSkcipherOp, SkcipherDriver, SkcipherOp, SkcipherTfm};
use sealane_crypto::{Alg, AlgInfo, KeyError, KeyUse, Kind, OpError, Registry, Row, Status, selftest, templates};
use sealane_keeper::private::Maker;
use sealane_keeper::seal::{Cost, Protection, Sealer};
use sealane_keeper::server::{Bounds, serve};
use sealane_keeper::service::Service;
use sealane_keeper::store::Store;
use sealane_keeper::wrapped::Wrapping;
use sealane_keeper_client::client::{Client, ClientError};
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::key::{Limits, Listed, Name, Spec, Uses};
use sealane_keeper_client::limits::{MAX_LONG_TEXT_LEN, MAX_STEPS, MAX_STREAMS};
use sealane_keeper_client::message::Operation;
use sealane_keeper_client::pool::Manner;
use sealane_keeper_client::reference::KeyRef;
use sealane_sys::poll::Waker;
use sealane_sys::{process, unix};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use zeroize::Zeroizing;

fn registry() -> Registry {
    sealane_drivers::system_registry().0
}

/// A keeper in a thread of this process.
struct Keeper {
    folder: PathBuf,
    serving: Option<(Arc<Waker>, JoinHandle<()>)>,
}

impl Keeper {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sealane-home-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let mut keeper = Keeper { folder, serving: None };
        keeper.start(true);
        keeper
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn home(&self) -> KeeperHome {
        KeeperHome::new(self.socket(), Manner::default())
    }

    /// Starts it, with a store or without.
    fn start(&mut self, has_store: bool) {
        let (registry, socket, folder) = (registry(), self.socket(), self.folder.join("keys"));
        let sealer = || Sealer::new(&registry).unwrap();
        let store = if has_store {
            let protection = Protection::Passphrase(Zeroizing::new(b"right".to_vec()));
            let cheap = Cost { memory_kib: 64, passes: 1, lanes: 1 };
            Store::open(&folder, &protection, cheap, sealer()).unwrap()
        } else {
            Store::in_memory()
        };
        let wrapping = Wrapping::new(sealer(), store.wrapping_key().unwrap(), None);
        let admins = Listed { users: vec![process::effective_user()], groups: vec![] };
        let mut service = Service::new(registry, store, admins).with_wrapping(wrapping);
        let listener = unix::listen_for_packets(&socket).unwrap();
        let end = Arc::new(Waker::new().unwrap());
        let woken = end.clone();
        let run = move || {
            let bounds = Bounds { clients: 128, per_user: 100 };
            serve(&listener, &mut service, bounds, &Maker::start().unwrap(), &woken).unwrap();
            service.end();
        };
        self.serving = Some((end, std::thread::spawn(run)));
    }

    fn stop(&mut self) {
        if let Some((end, thread)) = self.serving.take() {
            end.wake();
            let ended = thread.join();
            std::fs::remove_file(self.socket()).unwrap();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }

    /// Makes a key of its own.
    fn make(&self, name: &str, algorithm: &str, change: impl FnOnce(&mut Spec)) {
        let kind = sealane_keeper_client::key::Kind::Skcipher;
        let mut spec = Spec {
            kind,
            algorithm: algorithm.to_owned(),
            uses: Uses::possible(kind),
            expires_s: 0,
            limits: Limits::default(),
            users: Listed { users: vec![process::effective_user()], groups: vec![] },
            admins: Listed::default(),
        };
        change(&mut spec);
        self.admin(Operation::Generate { name: Name::new(name).unwrap(), spec, secret_len: 0 });
    }

    fn admin(&self, operation: Operation) {
        Client::connect(&self.socket()).unwrap().ask(operation).map(drop).unwrap();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Pseudorandom bytes that are the same in each run.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed + 1);
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    };
    (0..len).map(next).collect()
}

/// A driver whose keys go to the keeper when they are set, as a program's do.
struct Keeping {
    home: KeeperHome,
    local: Alg,
    adopted: Alg,
}

impl Keeping {
    /// The reference to a key that a local driver takes.
    fn keep<T>(&self, local: Result<T, KeyError>, key: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        local?;
        Ok(self.home.keep(self.local.info(), key).unwrap())
    }
}

impl MacDriver for Keeping {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        if key.is_empty() && self.local.info().key_use == KeyUse::Optional {
            return Ok(Box::new(self.local.mac(key)?));
        }
        Ok(Box::new(self.adopted.mac(&self.keep(self.local.mac(key), key)?)?))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        as_prepared::<MacTfm>(key).start()
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        for op in ops {
            op.status = op.tfm.key::<MacTfm>(slot).sign(op.data, op.tag);
        }
    }
}

impl SkcipherDriver for Keeping {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(self.adopted.skcipher(&self.keep(self.local.skcipher(key), key)?)?))
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        op.tfm.key::<SkcipherTfm>(slot).one(op.dir, op.iv, Data::from(op.data))
    }
}

impl AeadDriver for Keeping {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(self.adopted.aead(&self.keep(self.local.aead(key), key)?)?))
    }

    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status {
        op.tfm.key::<AeadTfm>(slot).one(op.dir, op.nonce, op.aad, Data::from(op.data), op.tag)
    }

    fn stream(&self, key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        // The keeper has pieces of what has them here.
        self.local.aead_stream(key)?.err().map(Err).or_else(|| {
            let reference = self.keep(Ok(()), key).unwrap();
            let kept = self.adopted.aead_stream(&reference)?;
            let (home, info) = (self.home.clone(), self.local.info().clone());
            Some(kept.map(|kept| -> Box<dyn AeadStream> { Box::new(KeepingPieces { home, info, kept }) }))
        })
    }
}

/// The same for messages in pieces.
struct KeepingPieces {
    home: KeeperHome,
    info: AlgInfo,
    kept: Box<dyn AeadStream>,
}

impl AeadStream for KeepingPieces {
    fn set_key(&mut self, key: &[u8]) -> Result<(), KeyError> {
        self.kept.set_key(&self.home.keep(&self.info, key).unwrap())
    }

    fn start(&mut self, nonce: &[u8]) -> Status {
        self.kept.start(nonce)
    }

    fn associated(&mut self, data: &[u8]) -> Status {
        self.kept.associated(data)
    }

    fn text(&mut self, dir: Direction, data: InOutBuf<'_, '_, u8>) -> Status {
        self.kept.text(dir, data)
    }

    fn seal(&mut self, tag: &mut [u8]) -> Status {
        self.kept.seal(tag)
    }

    fn open(&mut self, tag: &[u8]) -> Status {
        self.kept.open(tag)
    }

    fn fork(&self) -> Result<Box<dyn AeadStream>, OpError> {
        let (home, info) = (self.home.clone(), self.info.clone());
        Ok(Box::new(KeepingPieces { home, info, kept: self.kept.fork()? }))
    }
}

/// All algorithms with a key that have another kind than a nonce MAC, by kind and name.
fn keyed(registry: &Registry) -> BTreeSet<(Kind, String)> {
    let rows = registry.rows().iter().filter(|row| row.test_state() != TestState::Exempt);
    let rows = rows.filter(|row| row.info.key_use != KeyUse::None && row.info.kind != Kind::NonceMac);
    let composed = templates::well_known().iter().map(|(kind, name)| (*kind, (*name).to_owned()));
    rows.map(|row| (row.info.kind, row.info.name.clone())).chain(composed).collect()
}

#[test]
fn every_algorithm_computes_the_same_in_the_keeper() {
    let keeper = Keeper::new("all");
    let (registry, home) = (registry(), keeper.home());
    let all = keyed(&registry);
    assert!(all.len() > 60, "{}", all.len());
    for (kind, name) in all {
        let local = registry.lookup(kind, &name).unwrap();
        let adopted = home.adopt(&local).unwrap();
        assert_eq!((adopted.info(), adopted.rows()[0].module), (local.info(), "keeper"));
        let keeping = Keeping { home: home.clone(), local: local.clone(), adopted };
        let driver = match kind {
            Kind::Hash => Driver::Mac(Arc::new(keeping)),
            Kind::Skcipher => Driver::Skcipher(Arc::new(keeping)),
            Kind::Aead => Driver::Aead(Arc::new(keeping)),
            Kind::NonceMac | Kind::Rng => panic!("{name} has no key"),
        };
        let alg = local.served_by(Row::new(local.info().clone(), &name, "test", 0, driver));
        selftest::run(&alg, Some(&local)).unwrap();
    }
}

#[test]
fn what_has_no_key_is_not_adopted() {
    let (registry, home) = (registry(), KeeperHome::new("/nowhere".into(), Manner::default()));
    for (kind, name) in [(Kind::Hash, "sha256"), (Kind::Rng, "stdrng"), (Kind::NonceMac, "gmac(aes)")] {
        assert!(home.adopt(&registry.lookup(kind, name).unwrap()).is_none(), "{name}");
    }
    let hmac = home.adopt(&registry.lookup(Kind::Hash, "hmac(sha256)").unwrap()).unwrap();
    assert_eq!(hmac.rows()[0].driver, "hmac-sha256-keeper");
    let gcm = home.adopt(&registry.lookup(Kind::Aead, "rfc4106(gcm(aes))").unwrap()).unwrap();
    assert_eq!(gcm.rows()[0].driver, "rfc4106-gcm-aes-keeper");
    // A key is a reference and nothing else.
    let other = KeyRef::Named { name: Name::new("k").unwrap(), version: 0, algorithm: "hmac(sha1)".to_owned() };
    for wrong in [&[][..], &[1; 16], &other.encode()] {
        assert_eq!(hmac.mac(wrong).err(), Some(KeyError::Malformed));
    }
}

/// A local transform and the keeper's, under the same key.
fn both<T>(
    keeper: &Keeper,
    kind: Kind,
    name: &str,
    key: &[u8],
    make: impl Fn(&Alg, &[u8]) -> Result<T, KeyError>,
) -> [T; 2] {
    let (alg, home) = (registry().lookup(kind, name).unwrap(), keeper.home());
    let reference = home.keep(alg.info(), key).unwrap();
    [make(&alg, key).unwrap(), make(&home.adopt(&alg).unwrap(), &reference).unwrap()]
}

#[test]
fn long_texts_are_ciphered_as_here() {
    let keeper = Keeper::new("long");
    let chained = 3 * MAX_LONG_TEXT_LEN + 4096;
    for (name, len, expected) in [
        ("ecb(aes)", chained, Ok(())),
        ("cbc(aes)", chained, Ok(())),
        ("ctr(aes)", chained + 7, Ok(())),
        ("cbc(aes)", chained + 7, Err(OpError::Length)),
        ("xts(aes)", MAX_LONG_TEXT_LEN, Ok(())),
        ("xts(aes)", MAX_LONG_TEXT_LEN + 16, Err(OpError::Driver)),
        ("cts(cbc(aes))", MAX_LONG_TEXT_LEN - 3, Ok(())),
        ("cts(cbc(aes))", MAX_LONG_TEXT_LEN + 3, Err(OpError::Driver)),
    ] {
        let key = bytes(32, 1);
        let tfms = both(&keeper, Kind::Skcipher, name, &key, |alg, key| alg.skcipher(key));
        for direction in [Direction::Encrypt, Direction::Decrypt] {
            let text = bytes(len, 2);
            let [(done, iv, out), (kept_done, kept_iv, kept_out)] = [0, 1].map(|which: usize| {
                let (mut iv, mut out) = (bytes(tfms[which].info().iv_len, 3), text.clone());
                let done = tfms[which].one(direction, &mut iv, Data::from(&mut out[..]));
                (done, iv, out)
            });
            assert_eq!(kept_done, expected, "{name}, {len} bytes");
            match expected {
                Err(_) => assert!(kept_out == text, "{name}: a refused text has changed"),
                Ok(()) => assert!(done.is_ok() && iv == kept_iv && out == kept_out, "{name}, {len} bytes"),
            }
        }
    }
}

#[test]
fn long_texts_are_sealed_as_here() {
    let keeper = Keeper::new("sealed");
    let [local, kept] = both(&keeper, Kind::Aead, "gcm(aes)", &bytes(16, 1), |alg, key| alg.aead(key));
    let nonce = [2; 12];
    // What an AF_ALG socket holds, and the most that a message does.
    for (aad_len, len) in [(0, 212_992), (50_000, 150_000), (16, MAX_LONG_TEXT_LEN - 16), (MAX_LONG_TEXT_LEN, 0)] {
        let (aad, text) = (bytes(aad_len, 3), bytes(len, 4));
        let (front, back) = aad.split_at(aad_len / 3);
        let [(tag, sealed), (kept_tag, kept_sealed)] = [&local, &kept].map(|tfm| {
            let (mut tag, mut out) = ([0; 16], text.clone());
            tfm.seal(&nonce, &[front, back], Data::from(&mut out[..]), &mut tag).unwrap();
            (tag, out)
        });
        assert!(tag == kept_tag && sealed == kept_sealed, "{aad_len} and {len} bytes");
        let mut out = sealed.clone();
        kept.open(&nonce, &[&aad], Data::from(&mut out[..]), &tag).unwrap();
        assert!(out == text);
        out.clone_from(&sealed);
        assert_eq!(kept.open(&nonce, &[&aad], Data::from(&mut out[..]), &[0; 16]), Err(OpError::Auth));
        assert!(out.iter().all(|byte| *byte == 0), "a forged text is left");
    }
    let mut text = vec![1; MAX_LONG_TEXT_LEN];
    assert_eq!(kept.seal(&nonce, &[&[1]], Data::from(&mut text[..]), &mut [0; 16]), Err(OpError::Driver));
    assert!(text.iter().all(|byte| *byte == 1));
    // The last bytes of the associated data are the IV.
    let [_, kept] = both(&keeper, Kind::Aead, "rfc4106(gcm(aes))", &bytes(20, 1), |alg, key| alg.aead(key));
    assert_eq!(kept.seal(&[2; 8], &[&[1; 17]], Data::from(&mut text[..16]), &mut [0; 16]), Err(OpError::AssocLen));
}

#[test]
fn long_messages_are_authenticated_as_here() {
    let keeper = Keeper::new("pieces");
    for name in ["hmac(sha256)", "cmac(aes)"] {
        let [local, kept] = both(&keeper, Kind::Hash, name, &bytes(16, 1), |alg, key| alg.mac(key));
        let tag_len = local.info().digest_len;
        let tag = |text: &[u8]| {
            let mut tag = vec![0; tag_len];
            local.sign(&[text], &mut tag).unwrap();
            tag
        };
        let mut got = vec![0; tag_len];
        for len in [0, 65_535, 65_536, 65_537, MAX_LONG_TEXT_LEN, MAX_LONG_TEXT_LEN + 1, 1_000_000] {
            let text = bytes(len, len as u64);
            let (front, back) = text.split_at(len / 3);
            kept.sign(&[front, back], &mut got).unwrap();
            assert_eq!(got, tag(&text), "{name}, {len} bytes");
            kept.verify(&[&text], &got).unwrap();
            // In pieces, twice by the same state, with a fork that goes on by itself.
            let mut state = kept.start();
            for _ in 0..2 {
                state.update(front);
                let mut fork = state.fork();
                back.chunks(30_000).for_each(|piece| state.update(piece));
                state.finish(&mut got).unwrap();
                assert_eq!(got, tag(&text), "{name}, {len} bytes in pieces");
                fork.update(&text);
                fork.finish(&mut got).unwrap();
                assert_eq!(got, tag(&[front, &text].concat()), "{name}, a fork behind {} bytes", front.len());
            }
            state.update(&text);
            state.reset();
            state.update(b"other");
            state.finish(&mut got[..tag_len - 1]).unwrap();
            assert_eq!(got[..tag_len - 1], tag(b"other")[..tag_len - 1]);
        }
        assert_eq!(kept.sign(&[b"text"], &mut vec![0; tag_len + 1]), Err(OpError::TagLen));
    }
}

/// A message in pieces: its text, in both directions, and its tag.
fn pieces(stream: &mut dyn AeadStream, nonce: &[u8], aad: &[u8], text: &[u8]) -> (Vec<u8>, [u8; 16]) {
    let (mut out, mut tag) = (text.to_vec(), [0; 16]);
    stream.start(nonce).unwrap();
    let (front, back) = aad.split_at(aad.len() / 3);
    stream.associated(front).unwrap();
    stream.associated(back).unwrap();
    let (front, back) = out.split_at_mut(text.len() / 4);
    stream.text(Direction::Encrypt, front.into()).unwrap();
    stream.text(Direction::Encrypt, back.into()).unwrap();
    stream.seal(&mut tag).unwrap();
    let mut opened = out.clone();
    stream.start(nonce).unwrap();
    stream.associated(aad).unwrap();
    stream.text(Direction::Decrypt, (&mut opened[..]).into()).unwrap();
    let mut fork = stream.fork().unwrap();
    stream.open(&tag).unwrap();
    assert!(opened == text);
    assert_eq!(fork.open(&[0; 16]), Err(OpError::Auth));
    (out, tag)
}

#[test]
fn long_messages_are_sealed_in_pieces_as_here() {
    let keeper = Keeper::new("sealed-pieces");
    let home = keeper.home();
    let alg = registry().lookup(Kind::Aead, "gcm(aes)").unwrap();
    let key = bytes(32, 1);
    let reference = home.keep(alg.info(), &key).unwrap();
    let mut local = alg.aead_stream(&key).unwrap().unwrap();
    let mut kept = home.adopt(&alg).unwrap().aead_stream(&reference).unwrap().unwrap();
    for aad_len in [0, 65_535, 65_536, 65_537, 150_000] {
        for len in [0, 1, 65_536, 65_537, 300_000] {
            // A nonce of another length than whole messages have, too.
            for nonce in [&[2; 12][..], &[3; 128]] {
                let (aad, text) = (bytes(aad_len, 3), bytes(len, 4));
                let [a, b] = [&mut local, &mut kept].map(|stream| pieces(&mut **stream, nonce, &aad, &text));
                assert!(a == b, "{aad_len} and {len} bytes, a nonce of {}", nonce.len());
            }
        }
    }
    // Order and lengths are refused as here.
    for stream in [&mut local, &mut kept] {
        assert_eq!(stream.seal(&mut [0; 16]), Err(OpError::Driver), "nothing has begun");
        assert_eq!(stream.start(&[]), Err(OpError::Nonce));
        stream.start(&[2; 12]).unwrap();
        stream.text(Direction::Encrypt, (&mut [1; 5][..]).into()).unwrap();
        assert_eq!(stream.associated(&[1]), Err(OpError::AssocLen));
        assert_eq!((stream.seal(&mut [0; 17]), stream.open(&[])), (Err(OpError::TagLen), Err(OpError::TagLen)));
        stream.seal(&mut [0; 4]).unwrap();
    }
    assert!(kept.set_key(&key).is_err(), "a key is no reference");
}

#[test]
fn a_sealed_message_ends_with_its_keeper_and_the_next_one_goes_on() {
    let mut keeper = Keeper::new("sealed-lost");
    let home = keeper.home();
    let alg = registry().lookup(Kind::Aead, "rfc7539(chacha20,poly1305)").unwrap();
    let reference = home.keep(alg.info(), &bytes(32, 1)).unwrap();
    let mut kept = home.adopt(&alg).unwrap().aead_stream(&reference).unwrap().unwrap();
    let begin = |stream: &mut dyn AeadStream| {
        stream.start(&[2; 12])?;
        stream.text(Direction::Encrypt, (&mut [1; 100][..]).into())
    };
    begin(&mut *kept).unwrap();
    keeper.stop();
    let mut text = [7; 10];
    assert_eq!(kept.text(Direction::Encrypt, (&mut text[..]).into()), Err(OpError::Driver));
    assert_eq!(text, [7; 10]);
    assert_eq!(kept.seal(&mut [0; 16]), Err(OpError::Driver));
    assert_eq!(begin(&mut *kept), Err(OpError::Driver));
    keeper.start(true);
    // It stays lost: no tag is made of a part.
    assert_eq!(kept.seal(&mut [0; 16]), Err(OpError::Driver));
    begin(&mut *kept).unwrap();
    kept.seal(&mut [0; 16]).unwrap();
    // More messages at a time than a connection holds, because each has its own.
    let mut many: Vec<_> = (0..2 * MAX_STREAMS).map(|_| kept.fork().unwrap()).collect();
    many.iter_mut().for_each(|stream| begin(&mut **stream).unwrap());
    many.iter_mut().for_each(|stream| stream.seal(&mut [0; 16]).unwrap());
}

#[test]
fn a_connection_has_room_for_some_messages_and_all_are_freed() {
    let keeper = Keeper::new("room");
    let [local, kept] = both(&keeper, Kind::Hash, "hmac(sha256)", b"key", |alg, key| alg.mac(key));
    let text = bytes(200_000, 1);
    let (mut want, mut got) = ([0; 32], [0; 32]);
    local.sign(&[&text], &mut want).unwrap();
    let mut state = kept.start();
    state.update(&text);
    // More than the keeper holds for one connection, of which it forgets those that end in any way.
    for round in 0..3 * MAX_STREAMS {
        let mut fork = state.fork();
        match round % 3 {
            0 => fork.finish(&mut got).unwrap(),
            1 => fork.reset(),
            _ => {}
        }
    }
    let mut forks: Vec<_> = (0..MAX_STREAMS).map(|_| state.fork()).collect();
    let ended: Vec<Status> = forks.iter_mut().map(|fork| fork.finish(&mut got)).collect();
    // One place is the first message's.
    assert!(ended[..MAX_STREAMS - 1].iter().all(Result::is_ok));
    assert_eq!(ended[MAX_STREAMS - 1], Err(OpError::Driver));
    state.finish(&mut got).unwrap();
    assert_eq!(got, want);
}

#[test]
fn keys_outlive_a_keeper_with_a_store_and_no_tag_is_made_up() {
    let mut keeper = Keeper::new("restart");
    let [local, kept] = both(&keeper, Kind::Hash, "hmac(sha256)", b"key", |alg, key| alg.mac(key));
    let (mut want, mut got) = ([0; 32], [0; 32]);
    local.sign(&[b"text"], &mut want).unwrap();
    let mut lost = kept.start();
    lost.update(&bytes(100_000, 1));
    keeper.stop();
    assert_eq!(kept.sign(&[b"text"], &mut got), Err(OpError::Driver));
    assert_eq!(lost.finish(&mut got), Err(OpError::Driver));
    assert_eq!(kept.verify(&[b"text"], &want), Err(OpError::Driver));
    let info = registry().lookup(Kind::Hash, "hmac(sha256)").unwrap().info().clone();
    assert!(matches!(keeper.home().keep(&info, b"key"), Err(KeepError::Unreachable(_))));
    keeper.start(true);
    kept.sign(&[b"text"], &mut got).unwrap();
    assert_eq!(got, want);
    // A state whose message was lost begins anew.
    lost.update(b"text");
    lost.finish(&mut got).unwrap();
    assert_eq!(got, want);
    keeper.stop();
    keeper.start(false);
    assert_eq!(kept.sign(&[b"text"], &mut got), Err(OpError::Driver));
    let reference = keeper.home().keep(&info, b"key").unwrap();
    let again = keeper.home().adopt(&registry().lookup(Kind::Hash, "hmac(sha256)").unwrap()).unwrap();
    again.mac(&reference).unwrap().sign(&[b"text"], &mut got).unwrap();
    assert_eq!(got, want);
}

#[test]
fn keys_of_the_keeper_are_found_by_name() {
    let keeper = Keeper::new("named");
    let home = keeper.home();
    keeper.make("good", "cbc(aes)", |_| {});
    keeper.make("expired", "cbc(aes)", |spec| (spec.uses, spec.expires_s) = (Uses::ENCRYPT.and(Uses::CALLER_NONCE), 1));
    keeper.make("nonces", "cbc(aes)", |spec| spec.uses = Uses::ENCRYPT);
    keeper.make("others", "cbc(aes)", |spec| spec.users.users = vec![process::effective_user() + 1]);
    keeper.make("revoked", "cbc(aes)", |_| {});
    keeper.admin(Operation::Revoke { name: Name::new("revoked").unwrap(), version: 0 });
    let alg = registry().lookup(Kind::Skcipher, "cbc(aes)").unwrap();
    let other = registry().lookup(Kind::Skcipher, "ctr(aes)").unwrap();
    let error = |name| home.named(alg.info(), name).unwrap_err();
    assert!(matches!(error("expired"), KeepError::Expired(_)));
    assert!(matches!(error("nonces"), KeepError::Denied(_)));
    // This user administers it.
    assert!(matches!(error("others"), KeepError::Denied(_)));
    assert!(matches!(error("revoked"), KeepError::Revoked(_)));
    assert!(matches!(error("none"), KeepError::NoKey(_)));
    assert!(matches!(error("no name"), KeepError::NoKey(_)));
    assert!(matches!(home.named(other.info(), "good"), Err(KeepError::Algorithm(_))));
    let tfm = |reference: &[u8]| home.adopt(&alg).unwrap().skcipher(reference).unwrap();
    let one = |tfm: &SkcipherTfm, direction, text: &mut [u8]| tfm.one(direction, &mut [3; 16], Data::from(text));
    let first = tfm(&home.named(alg.info(), "good").unwrap());
    let mut text = [1; 32];
    one(&first, Direction::Encrypt, &mut text).unwrap();
    // A transform keeps the version that it has.
    keeper.admin(Operation::Rotate { name: Name::new("good").unwrap(), secret: Zeroizing::default() });
    let second = tfm(&home.named(alg.info(), "good").unwrap());
    let mut anew = text;
    one(&second, Direction::Decrypt, &mut anew).unwrap();
    assert_ne!(anew, [1; 32]);
    one(&first, Direction::Decrypt, &mut text).unwrap();
    assert_eq!(text, [1; 32]);
    keeper.admin(Operation::Revoke { name: Name::new("good").unwrap(), version: 1 });
    assert_eq!(one(&first, Direction::Encrypt, &mut text), Err(OpError::Driver));
    assert_eq!(one(&second, Direction::Encrypt, &mut text), Ok(()));
}

#[test]
fn threads_share_a_home() {
    let keeper = Keeper::new("threads");
    let [local, kept] = both(&keeper, Kind::Hash, "hmac(sha256)", b"key", |alg, key| alg.mac(key));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (local, kept) = (&local, &kept);
            scope.spawn(move || {
                for round in 0..20 {
                    let text = bytes(thread * 20_000 + round, round as u64);
                    let (mut want, mut got) = ([0; 32], [0; 32]);
                    local.sign(&[&text], &mut want).unwrap();
                    let mut state = kept.start();
                    text.chunks(7_000).for_each(|piece| state.update(piece));
                    state.finish(&mut got).unwrap();
                    assert_eq!(got, want);
                }
            });
        }
    });
}

#[test]
fn a_keeper_that_hangs_is_waited_for_once() {
    let folder = std::env::temp_dir().join(format!("sealane-home-hangs-{}", std::process::id()));
    let _ = std::fs::remove_file(&folder);
    let listener = unix::listen_for_packets(&folder).unwrap();
    let home = KeeperHome::new(folder.clone(), Manner { patience: Duration::from_millis(50), ..Manner::default() });
    let info = registry().lookup(Kind::Hash, "hmac(sha256)").unwrap().info().clone();
    for text in ["does not answer in time", "in time a moment ago"] {
        match home.keep(&info, b"key") {
            Err(KeepError::Unreachable(why)) => assert!(why.contains(text), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    // The second time it was not even connected to.
    assert!(unix::accept(listener.as_fd()).is_ok());
    assert_eq!(unix::accept(listener.as_fd()).unwrap_err().kind(), ErrorKind::WouldBlock);
    std::fs::remove_file(folder).unwrap();
}

/// Lengths of the texts of a burst: more texts than a request has, longer than a slot together, and one that is longer alone.
fn lens(block_len: usize) -> Vec<usize> {
    let some = [0, 1, 16, 100, 1024, 4096, 4097, 9000, 30_000, 65_536, 65_537, 80_000];
    let all = some.into_iter().chain((0..2 * MAX_STEPS).map(|at| at * 17)).chain([200_000, 5]);
    all.map(|len| len - len % block_len).collect()
}

#[test]
fn bursts_are_ciphered_as_here() {
    let keeper = Keeper::new("ciphered");
    for name in ["ctr(aes)", "cbc(aes)", "xts(aes)"] {
        let alg = registry().lookup(Kind::Skcipher, name).unwrap();
        let kept = keeper.home().adopt(&alg).unwrap();
        let keys = [bytes(32, 1), bytes(32, 2)];
        let local_tfms = keys.each_ref().map(|key| alg.skcipher(key).unwrap());
        let keep = |key: &Vec<u8>| kept.skcipher(&keeper.home().keep(alg.info(), key).unwrap()).unwrap();
        let kept_tfms = keys.each_ref().map(keep);
        let lens: Vec<usize> =
            lens(alg.info().block_len).into_iter().filter(|len| name != "xts(aes)" || *len >= 16).collect();
        let run = |tfms: &[SkcipherTfm; 2]| {
            let mut texts: Vec<Vec<u8>> = lens.iter().map(|len| bytes(*len, *len as u64)).collect();
            let mut ivs = vec![[9; 16]; texts.len()];
            let mut ops: Vec<SkcipherOp<'_>> = core::iter::zip(&mut texts, &mut ivs)
                .enumerate()
                // Runs of one key and direction, and some that are short.
                .map(|(at, (text, iv))| SkcipherOp {
                    tfm: &tfms[usize::from(at % 7 == 3)],
                    dir: if at % 11 == 5 { Direction::Decrypt } else { Direction::Encrypt },
                    iv,
                    data: (&mut text[..]).into(),
                    status: Err(OpError::Driver),
                })
                .collect();
            skcipher::crypt(&mut ops);
            let statuses: Vec<Status> = ops.iter().map(|op| op.status).collect();
            assert!(statuses.iter().all(Result::is_ok), "{name}: {statuses:?}");
            (texts, ivs)
        };
        // The first ones go over the socket.
        for _ in 0..3 {
            assert!(run(&local_tfms) == run(&kept_tfms), "{name}");
        }
    }
}

#[test]
fn bursts_are_sealed_as_here_and_a_forged_text_fails_alone() {
    let keeper = Keeper::new("bursts");
    let [local, kept] = both(&keeper, Kind::Aead, "gcm(aes)", &bytes(16, 1), |alg, key| alg.aead(key));
    let lens = lens(1);
    let aad = bytes(20_000, 5);
    // One that is longer than its place in a slot, too.
    let aads: Vec<[&[u8]; 2]> =
        lens.iter().enumerate().map(|(at, _)| [&aad[..at], if at == 40 { &aad[..] } else { &[] }]).collect();
    let run = |tfm: &AeadTfm, dir, texts: &mut [Vec<u8>], tags: &mut [[u8; 16]]| -> Vec<Status> {
        let ops = core::iter::zip(core::iter::zip(texts, tags), &aads);
        let mut ops: Vec<AeadOp<'_>> = ops
            .map(|((text, tag), aad)| AeadOp {
                tfm,
                dir,
                nonce: &[2; 12],
                aad,
                data: (&mut text[..]).into(),
                tag,
                status: Err(OpError::Driver),
            })
            .collect();
        aead::crypt(&mut ops);
        ops.iter().map(|op| op.status).collect()
    };
    let plain: Vec<Vec<u8>> = lens.iter().map(|len| bytes(*len, *len as u64)).collect();
    let mut sealed = [(); 2].map(|()| (plain.clone(), vec![[0; 16]; plain.len()]));
    for _ in 0..2 {
        for (tfm, (texts, tags)) in core::iter::zip([&local, &kept], &mut sealed) {
            texts.clone_from(&plain);
            assert!(run(tfm, Direction::Encrypt, texts, tags).iter().all(Result::is_ok));
        }
        assert!(sealed[0] == sealed[1]);
    }
    let [_, (mut texts, mut tags)] = sealed;
    let is_forged = |at: usize| at % 5 == 2;
    tags.iter_mut().enumerate().filter(|(at, _)| is_forged(*at)).for_each(|(_, tag)| tag[0] ^= 1);
    let statuses = run(&kept, Direction::Decrypt, &mut texts, &mut tags);
    for (at, (status, (text, plain))) in statuses.into_iter().zip(texts.iter().zip(&plain)).enumerate() {
        if is_forged(at) {
            assert!(status == Err(OpError::Auth) && text.iter().all(|byte| *byte == 0), "text {at} is left");
        } else {
            assert!(status == Ok(()) && text == plain, "text {at}: {status:?}");
        }
    }
}

#[test]
fn bursts_are_authenticated_as_here() {
    let keeper = Keeper::new("tags");
    let [local, kept] = both(&keeper, Kind::Hash, "hmac(sha256)", b"key", |alg, key| alg.mac(key));
    let texts: Vec<Vec<u8>> = lens(1).into_iter().chain([MAX_LONG_TEXT_LEN + 1, 3]).map(|len| bytes(len, 1)).collect();
    let pieces: Vec<[&[u8]; 2]> = texts.iter().map(|text| text.split_at(text.len() / 3).into()).collect();
    let run = |tfm: &MacTfm| {
        let mut tags = vec![[0; 32]; texts.len()];
        let mut ops: Vec<MacOp<'_>> =
            core::iter::zip(&pieces, &mut tags).map(|(pieces, tag)| MacOp::new(tfm, pieces, tag)).collect();
        mac::sign(&mut ops);
        assert!(ops.iter().all(|op| op.status.is_ok()));
        tags
    };
    for _ in 0..2 {
        assert!(run(&local) == run(&kept));
    }
}

#[test]
fn a_burst_ends_where_its_key_does() {
    thread_local! {
        static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }
    let mut keeper = Keeper::new("limit");
    let alg = registry().lookup(Kind::Skcipher, "ctr(aes)").unwrap();
    keeper.make("few", "ctr(aes)", |spec| spec.limits.operations = 10);
    keeper.make("fewer", "ctr(aes)", |spec| spec.limits.operations = 2);
    let failed = |error: &ClientError| TOLD.with_borrow_mut(|told| told.push(error.to_string()));
    let home = KeeperHome::new(keeper.socket(), Manner { failed, ..Manner::default() });
    let tfm = |name| home.adopt(&alg).unwrap().skcipher(&home.named(alg.info(), name).unwrap()).unwrap();
    let run = |tfm: &SkcipherTfm, count: usize| {
        let (mut texts, mut ivs) = (vec![vec![1; 100]; count], vec![[2; 16]; count]);
        let mut ops: Vec<SkcipherOp<'_>> = core::iter::zip(&mut texts, &mut ivs)
            .map(|(text, iv)| SkcipherOp {
                tfm,
                dir: Direction::Encrypt,
                iv,
                data: (&mut text[..]).into(),
                status: Ok(()),
            })
            .collect();
        skcipher::crypt(&mut ops);
        let statuses: Vec<Status> = ops.iter().map(|op| op.status).collect();
        for ((status, text), iv) in statuses.iter().zip(&texts).zip(&ivs) {
            assert_eq!((text[..] == [1; 100], *iv == [2; 16]), (status.is_err(), status.is_err()));
        }
        statuses
    };
    let refused = Err(OpError::Driver);
    let told = |texts: &[&str]| {
        let told = TOLD.take();
        assert!(
            told.len() == texts.len() && told.iter().zip(texts).all(|(told, text)| told.contains(text)),
            "{told:?}"
        );
    };
    // Over the socket, and through shared memory. Each time the program is told once.
    let (few, fewer) = (tfm("few"), tfm("fewer"));
    assert_eq!(run(&fewer, 4), [Ok(()), Ok(()), refused, refused]);
    told(&["key 'fewer': 2 operations"]);
    assert_eq!(run(&few, 3), [Ok(()); 3]);
    told(&[]);
    assert_eq!(run(&few, 10), [[Ok(()); 7].as_slice(), &[refused; 3]].concat());
    told(&["refuses it: limit"]);
    assert_eq!(run(&few, 2), [refused; 2]);
    told(&["key 'few': 10 operations"]);
    keeper.stop();
    assert_eq!(run(&few, 2), [refused; 2]);
    told(&["keeper at "]);
}
