//! Keys that are at home: what a socket keeps of them, and what it answers when their home does not.

use crate::common::{
    MORE, PRIVILEGED, Socket, TASK, WOKEN, bound, control, keyed, recv, send, send_by, sendmsg, set_key, set_tag_len,
    system, system_with,
};
use sealane_abi::if_alg::{ALG_OP_ENCRYPT, ALG_SET_KEY_BY_KEY_SERIAL};
use sealane_abi::socket::SOL_ALG;
use sealane_crypto::aead::{AeadDriver, AeadTfm, FlatAeadOp};
use sealane_crypto::data::Data;
use sealane_crypto::hash::HashState;
use sealane_crypto::home::{KeepError, KeyHome};
use sealane_crypto::key::{PreparedKey, as_prepared};
use sealane_crypto::mac::{MacDriver, MacOp, MacTfm};
use sealane_crypto::registry::Driver;
use sealane_crypto::skcipher::{FlatSkcipherOp, SkcipherDriver, SkcipherTfm};
use sealane_crypto::{Alg, AlgInfo, KeyError, KeyUse, Kind, OpError, Row, Status};
use sealane_engine_alg::image::{Reader, Writer};
use sealane_engine_alg::{Errno, Profile, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zeroize::Zeroizing;

/// A home in the same process. A reference is the key with other bits, so that neither passes for the other.
#[derive(Default)]
pub(crate) struct FakeHome {
    is_away: Arc<AtomicBool>,
    kept: AtomicUsize,
}

const MARK: &[u8] = b"reference";

fn reference(key: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(MARK.iter().copied().chain(key.iter().map(|b| b ^ 0x5a)).collect())
}

fn key_of(reference: &[u8]) -> Result<Vec<u8>, KeyError> {
    let hidden = reference.strip_prefix(MARK).ok_or(KeyError::Malformed)?;
    Ok(hidden.iter().map(|b| b ^ 0x5a).collect())
}

impl FakeHome {
    /// The keys that it has been given.
    pub(crate) fn kept(&self) -> usize {
        self.kept.load(Ordering::SeqCst)
    }

    fn go_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    fn reach(&self) -> Result<(), KeepError> {
        if self.is_away.load(Ordering::SeqCst) { Err(KeepError::Unreachable(String::new())) } else { Ok(()) }
    }
}

impl KeyHome for FakeHome {
    fn adopt(&self, alg: &Alg) -> Option<Alg> {
        let (alg, is_away) = (alg.clone(), self.is_away.clone());
        let (info, at) = (alg.info().clone(), At { alg, is_away });
        let driver = match info.kind {
            _ if info.key_use == KeyUse::None => return None,
            Kind::Hash => Driver::Mac(Arc::new(at)),
            Kind::Skcipher => Driver::Skcipher(Arc::new(at)),
            Kind::Aead => Driver::Aead(Arc::new(at)),
            Kind::NonceMac | Kind::Rng => return None,
        };
        let name = format!("{}-at-home", info.name);
        let registry = sealane_crypto::Registry::builder(sealane_crypto_portable::self_test).build();
        Some(Alg::of_row(&Arc::new(Row::new(info, &name, "home", 0, driver)), registry.entropy()))
    }

    fn keep(&self, _: &AlgInfo, key: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeepError> {
        self.reach()?;
        self.kept.fetch_add(1, Ordering::SeqCst);
        Ok(reference(key))
    }

    fn name<'a>(&self, text: &'a [u8]) -> Option<&'a str> {
        core::str::from_utf8(text).ok().filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase()))
    }

    fn named(&self, _: &AlgInfo, name: &str) -> Result<Zeroizing<Vec<u8>>, KeepError> {
        self.reach()?;
        match name {
            "known" | "unlisted" => Ok(reference(&KEY)),
            "old" => Err(KeepError::Expired(String::new())),
            "gone" => Err(KeepError::Revoked(String::new())),
            "others" => Err(KeepError::Denied(String::new())),
            "different" => Err(KeepError::Algorithm(String::new())),
            "exhausted" => Err(KeepError::Refused(String::new())),
            _ => Err(KeepError::NoKey(String::new())),
        }
    }
}

/// An algorithm with keys at home.
struct At {
    alg: Alg,
    is_away: Arc<AtomicBool>,
}

impl At {
    fn reach(&self) -> Status {
        if self.is_away.load(Ordering::SeqCst) { Err(OpError::Driver) } else { Ok(()) }
    }
}

impl MacDriver for At {
    fn prepare(&self, reference: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(self.alg.mac(&key_of(reference)?)?))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        Box::new(Running { state: as_prepared::<MacTfm>(key).start(), is_away: self.is_away.clone() })
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        for op in ops {
            op.status = self.reach().and_then(|()| op.tfm.key::<MacTfm>(slot).sign(op.data, op.tag));
        }
    }
}

/// A message in pieces whose end is at home.
struct Running {
    state: Box<dyn HashState>,
    is_away: Arc<AtomicBool>,
}

impl HashState for Running {
    fn update(&mut self, data: &[u8]) {
        self.state.update(data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        if self.is_away.load(Ordering::SeqCst) {
            self.state.reset();
            return Err(OpError::Driver);
        }
        self.state.finish(out)
    }

    fn reset(&mut self) {
        self.state.reset();
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(Running { state: self.state.fork(), is_away: self.is_away.clone() })
    }
}

impl SkcipherDriver for At {
    fn prepare(&self, reference: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(self.alg.skcipher(&key_of(reference)?)?))
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        self.reach()?;
        op.tfm.key::<SkcipherTfm>(slot).one(op.dir, op.iv, Data::Flat(op.data))
    }
}

impl AeadDriver for At {
    fn prepare(&self, reference: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(self.alg.aead(&key_of(reference)?)?))
    }

    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status {
        self.reach()?;
        op.tfm.key::<AeadTfm>(slot).one(op.dir, op.nonce, op.aad, Data::Flat(op.data), op.tag)
    }
}

const KEY: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

fn with_home(profile: Profile) -> (Arc<System>, Arc<FakeHome>) {
    let home = Arc::new(FakeHome::default());
    (system_with(profile, Some(home.clone())), home)
}

fn by_serial(socket: &Socket, serial: i32) -> Result<(), Errno> {
    socket.setsockopt(TASK, SOL_ALG, ALG_SET_KEY_BY_KEY_SERIAL, Some(&serial.to_ne_bytes()), 4, PRIVILEGED)
}

fn encrypted(op: &Socket, text: &[u8]) -> Result<Vec<u8>, Errno> {
    sendmsg(op, text, &control(Some(ALG_OP_ENCRYPT), Some(&[7; 16]), None), 0)?;
    recv(op, text.len(), 0)
}

#[test]
fn a_key_is_named_by_its_text_or_by_its_place_in_a_keyring() {
    let (sys, home) = with_home(Profile::Open);
    let expected = encrypted(&keyed(&system(Profile::Open), "skcipher", "ctr(aes)", &KEY).accept(TASK).unwrap(), &KEY);
    for set in [|s: &Socket| set_key(s, b"sealane://known"), |s: &Socket| by_serial(s, 10)] {
        let socket = bound(&sys, "skcipher", "ctr(aes)").unwrap();
        set(&socket).unwrap();
        assert_eq!(encrypted(&socket.accept(TASK).unwrap(), &KEY), expected);
    }
    assert_eq!(home.kept(), 0);
    let socket = bound(&sys, "skcipher", "ctr(aes)").unwrap();
    for (name, errno) in [
        ("old", Errno::EKEYEXPIRED),
        ("gone", Errno::EKEYREVOKED),
        ("others", Errno::EACCES),
        ("different", Errno::EINVAL),
        ("exhausted", Errno::EKEYREJECTED),
        ("unknown", Errno::ENOKEY),
    ] {
        assert_eq!(set_key(&socket, format!("sealane://{name}").as_bytes()), Err(errno), "{name}");
    }
    assert_eq!(by_serial(&socket, 11), Err(Errno::ENOKEY), "no such key");
    assert_eq!(by_serial(&socket, 12), Err(Errno::ENOKEY), "no key can have this name");
    // Without a home there are no names. A payload is a key.
    let alone = bound(&system(Profile::Open), "skcipher", "ctr(aes)").unwrap();
    assert_eq!(by_serial(&alone, 10), Ok(()));
    assert_eq!(by_serial(&alone, 11), Err(Errno::ENOKEY));
}

/// Somebody who mistypes a name, or forgets that there is no home, would encrypt under a text that everybody knows.
#[test]
fn what_begins_as_a_name_is_never_a_key() {
    let (sys, home) = with_home(Profile::Open);
    for (kind, name) in [("hash", "hmac(sha256)"), ("skcipher", "ctr(aes)"), ("hash", "blake2b-256")] {
        for sys in [sys.clone(), system(Profile::Open)] {
            for key in
                [&b"sealane://"[..], b"sealane://known\n", b"sealane://KNOWN.", b"sealane://not.a.name.of.32.bytes"]
            {
                let socket = keyed(&sys, kind, name, &KEY);
                assert_eq!(set_key(&socket, key), Err(Errno::ENOKEY), "{name}: {key:?}");
                assert_eq!(
                    send(&socket.accept(TASK).unwrap(), b"x", 0),
                    Err(Errno::ENOKEY),
                    "{name}: the key of before"
                );
            }
        }
    }
    let alone = bound(&system(Profile::Open), "skcipher", "ctr(aes)").unwrap();
    assert_eq!(set_key(&alone, b"sealane://known."), Err(Errno::ENOKEY), "a key's length");
    let kept = home.kept();
    let socket = bound(&sys, "hash", "hmac(sha256)").unwrap();
    for key in [&b"sealane:/known"[..], b"sealane:known", b"Sealane://known", b" sealane://known"] {
        set_key(&socket, key).unwrap();
    }
    assert_eq!(home.kept(), kept + 4);
    // Hashes and generators have no keys that could have a home.
    assert_eq!(set_key(&bound(&sys, "hash", "sha256").unwrap(), b"sealane://known"), Err(Errno::ENOSYS));
    assert_eq!(home.kept(), kept + 4);
}

/// A service would else use a key of its own where its client gives it a name.
#[test]
fn a_name_that_is_not_admitted_is_refused_but_by_serial() {
    let (sys, _) = with_home(Profile::Open);
    let socket = keyed(&sys, "skcipher", "ctr(aes)", &KEY);
    assert_eq!(set_key(&socket, b"sealane://unlisted"), Err(Errno::ENOKEY));
    assert_eq!(send(&socket.accept(TASK).unwrap(), b"x", 0), Err(Errno::ENOKEY));
    assert_eq!(by_serial(&socket, 13), Ok(()));
}

#[test]
fn other_processes_are_not_told_a_seed() {
    const SEED: &[u8] = b"a seed that is nowhere else, 48 bytes in length.";
    let (sys, _) = with_home(Profile::Open);
    let socket = bound(&sys, "rng", "drbg_nopr_sha256").unwrap();
    socket.share(true);
    set_key(&socket, SEED).unwrap();
    let mut image = Writer::new();
    socket.save(&mut image);
    let image = image.finish();
    assert!(!image.windows(SEED.len()).any(|window| window == SEED));
}

#[test]
fn a_key_that_is_refused_here_never_goes_home() {
    let (sys, home) = with_home(Profile::Linux7_3);
    for (kind, name, len) in [("skcipher", "ctr(aes)", 15), ("aead", "ccm(aes)", 15), ("hash", "cmac(aes)", 15)] {
        assert_eq!(set_key(&bound(&sys, kind, name).unwrap(), &vec![1; len]), Err(Errno::EINVAL), "{name}");
    }
    assert_eq!(home.kept(), 0);
}

#[test]
fn a_key_that_its_home_does_not_take_leaves_none() {
    let (sys, home) = with_home(Profile::Open);
    for (kind, name) in
        [("skcipher", "ctr(aes)"), ("aead", "gcm(aes)"), ("hash", "hmac(sha256)"), ("hash", "blake2b-256")]
    {
        let socket = keyed(&sys, kind, name, &KEY);
        home.go_away(true);
        for key in [&KEY[..], b"sealane://known"] {
            assert_eq!(set_key(&socket, key), Err(Errno::EIO), "{name}");
            assert_eq!(send(&socket.accept(TASK).unwrap(), b"x", 0), Err(Errno::ENOKEY), "{name}");
        }
        home.go_away(false);
        set_key(&socket, &KEY).unwrap();
        assert_eq!(send(&socket.accept(TASK).unwrap(), b"x", MORE), Ok(1), "{name}");
    }
}

#[test]
fn a_hash_without_a_key_needs_no_home() {
    let (sys, home) = with_home(Profile::Open);
    home.go_away(true);
    let socket = bound(&sys, "hash", "blake2b-256").unwrap();
    let digest = |socket: &Arc<Socket>| {
        let op = socket.accept(TASK).unwrap();
        send(&op, b"text", 0).and_then(|_| recv(&op, 32, 0))
    };
    let unkeyed = digest(&socket).unwrap();
    set_key(&socket, &[]).unwrap();
    assert_eq!(digest(&socket), Ok(unkeyed.clone()));
    home.go_away(false);
    set_key(&socket, &KEY).unwrap();
    assert_ne!(digest(&socket), Ok(unkeyed));
    let elsewhere = keyed(&system(Profile::Open), "hash", "blake2b-256", &KEY);
    assert_eq!(digest(&socket), digest(&elsewhere));
}

#[test]
fn an_operation_fails_while_the_home_is_away_and_goes_on_afterwards() {
    let (sys, home) = with_home(Profile::Open);
    let text: Vec<u8> = (0..64).collect();
    let cipher = keyed(&sys, "skcipher", "cbc(aes)", &KEY).accept(TASK).unwrap();
    let expected = encrypted(&cipher, &text).unwrap();
    let mac = keyed(&sys, "hash", "hmac(sha256)", &KEY).accept(TASK).unwrap();
    send(&mac, &text, 0).unwrap();
    let tag = recv(&mac, 32, 0).unwrap();
    let aead = keyed(&sys, "aead", "gcm(aes)", &KEY);
    set_tag_len(&aead, 16).unwrap();
    let aead = aead.accept(TASK).unwrap();
    let seal = |aead: &Socket| {
        sendmsg(aead, &text, &control(Some(ALG_OP_ENCRYPT), Some(&[7; 12]), Some(4)), 0)?;
        recv(aead, 80, 0)
    };
    let sealed = seal(&aead).unwrap();
    home.go_away(true);
    for _ in 0..2 {
        assert_eq!(encrypted(&cipher, &text), Err(Errno::EIO));
        assert_eq!(send(&mac, &text, 0), Err(Errno::EIO));
        assert_eq!(recv(&mac, 32, 0), Err(Errno::EIO), "no tag, and none of another text");
        assert_eq!(seal(&aead), Err(Errno::EIO));
    }
    home.go_away(false);
    assert_eq!(encrypted(&cipher, &text), Ok(expected));
    send(&mac, &text, 0).unwrap();
    assert_eq!(recv(&mac, 32, 0), Ok(tag));
    assert_eq!(seal(&aead), Ok(sealed));
}

#[test]
fn a_message_that_failed_has_no_tag_when_the_home_is_back() {
    let (sys, home) = with_home(Profile::Open);
    let [mac, other] = [(); 2].map(|()| {
        let op = keyed(&sys, "hash", "hmac(sha256)", &KEY).accept(TASK).unwrap();
        op.share(true);
        op
    });
    let pass = || {
        let mut image = Writer::new();
        mac.save(&mut image);
        other.load(&mut Reader::new(&image.finish()), &|| false).unwrap();
    };
    let text = [5; 100];
    for in_pieces in [false, true] {
        let send_all = || {
            if in_pieces {
                send(&mac, &text[..40], MORE).unwrap();
                send(&mac, &text[40..], 0)
            } else {
                send(&mac, &text, 0)
            }
        };
        home.go_away(true);
        assert_eq!(send_all(), Err(Errno::EIO));
        home.go_away(false);
        pass();
        for op in [&mac, &other, &mac] {
            assert_eq!(recv(op, 32, 0), Err(Errno::EIO), "the tag of an empty message is not that of this one");
        }
        send_all().unwrap();
        pass();
        let tag = recv(&mac, 32, 0).unwrap();
        assert_eq!(recv(&other, 32, 0), Ok(tag));
    }
    // The end of a message that the receiver asks for.
    send(&mac, &text, MORE).unwrap();
    home.go_away(true);
    assert_eq!(recv(&mac, 32, 0), Err(Errno::EIO));
    home.go_away(false);
    assert_eq!(recv(&mac, 32, 0), Err(Errno::EIO));
    // No message at all is an empty one.
    send(&mac, b"", 0).unwrap();
    let empty = recv(&mac, 32, 0).unwrap();
    assert_eq!(recv(&keyed(&sys, "hash", "hmac(sha256)", &KEY).accept(TASK).unwrap(), 32, 0), Ok(empty));
}

#[test]
fn a_sender_that_waits_for_room_hears_that_its_message_is_lost() {
    let home = Arc::new(FakeHome::default());
    let sys = system_with(Profile::Linux7_3, Some(home.clone()));
    let op = keyed(&sys, "skcipher", "ctr(aes)", &KEY).accept(TASK).unwrap();
    home.go_away(true);
    send(&op, b"", MORE).unwrap();
    let sender = std::thread::spawn({
        let op = op.clone();
        move || send_by(WOKEN, &op, &vec![7; 300_000], 0)
    });
    while op.poll().0 & 4 != 0 {
        std::thread::yield_now();
    }
    // Either it sleeps already, or it is about to look whether there is room.
    assert_eq!(recv(&op, 4096, 0), Err(Errno::EIO));
    assert_eq!(sender.join().unwrap(), Err(Errno::EIO));
    home.go_away(false);
    assert_eq!(encrypted(&op, &KEY), encrypted(&keyed(&sys, "skcipher", "ctr(aes)", &KEY).accept(TASK).unwrap(), &KEY));
}

#[test]
fn nothing_is_missing_in_the_middle_of_a_text() {
    let (sys, home) = with_home(Profile::Open);
    let cipher = keyed(&sys, "skcipher", "cbc(aes)", &KEY).accept(TASK).unwrap();
    let text: Vec<u8> = (0..96).collect();
    let whole = encrypted(&cipher, &text).unwrap();
    sendmsg(&cipher, &text[..64], &control(Some(ALG_OP_ENCRYPT), Some(&[7; 16]), None), MORE).unwrap();
    assert_eq!(recv(&cipher, 32, 0).unwrap(), whole[..32]);
    home.go_away(true);
    assert_eq!(recv(&cipher, 32, 0), Err(Errno::EIO));
    home.go_away(false);
    // All that was sent has gone, and a text goes on where the last one that was encrypted has ended.
    send(&cipher, &text[32..], 0).unwrap();
    assert_eq!(recv(&cipher, 96, 0).unwrap(), whole[32..]);
}

#[test]
fn other_processes_are_told_a_reference() {
    let (sys, home) = with_home(Profile::Open);
    let [a, b] = [(); 2].map(|()| {
        let socket = bound(&sys, "skcipher", "ctr(aes)").unwrap();
        socket.share(true);
        socket
    });
    let pass = || {
        let mut image = Writer::new();
        a.family().save(&mut image);
        let image = image.finish();
        assert!(!image.windows(16).any(|w| w == KEY), "the key is in the image");
        b.family().load(&mut Reader::new(&image))
    };
    let expected = encrypted(&keyed(&sys, "skcipher", "ctr(aes)", &KEY).accept(TASK).unwrap(), &KEY);
    for key in [&KEY[..], b"sealane://known"] {
        set_key(&a, &[9; 16]).unwrap();
        set_key(&a, key).unwrap();
        let kept = home.kept();
        // The other process asks nobody.
        home.go_away(true);
        pass().unwrap();
        home.go_away(false);
        assert_eq!(home.kept(), kept);
        assert_eq!(encrypted(&b.accept(TASK).unwrap(), &KEY), expected);
    }
    home.go_away(true);
    set_key(&a, &KEY).unwrap_err();
    pass().unwrap();
    assert_eq!(send(&b.accept(TASK).unwrap(), b"x", 0), Err(Errno::ENOKEY), "the key of before has gone there, too");
}
