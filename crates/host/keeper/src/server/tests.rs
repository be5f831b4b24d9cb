mod parts;
mod slots;

use super::*;
use crate::key::tests::spec;
use crate::private;
use crate::seal::tests::registry;
use crate::store::Store;
use sealane_keeper_client::client::{Client, ClientError};
use sealane_keeper_client::key::{Kind, Listed, Name, Spec, Uses};
use sealane_keeper_client::message::{MAX_LONG_TEXT_LEN, Operation, Request};
use sealane_keeper_client::reference::KeyRef;
use sealane_pkey::{Algorithm, Digest, Scheme};
use sealane_sys::process;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use zeroize::Zeroizing;

/// Serves this user with a key for it, while `clients` runs with the socket's path.
fn with_keeper(test: &str, bounds: Bounds, clients: impl FnOnce(&Path)) {
    with_maker(test, bounds, &Maker::start().unwrap(), clients);
}

fn with_maker(test: &str, bounds: Bounds, maker: &Maker, clients: impl FnOnce(&Path)) -> Service {
    let path: PathBuf = std::env::temp_dir().join(format!("sealane-keeper-{test}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let user = process::effective_user();
    let admins = Listed { users: vec![user], groups: vec![] };
    let mut service = Service::new(registry(), Store::in_memory(), admins);
    let listener = unix::listen_for_packets(&path).unwrap();
    let waker = Waker::new().unwrap();
    std::thread::scope(|scope| {
        /// Ends the keeper also when a test fails: its thread is waited for.
        struct End<'a>(&'a Waker);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.wake();
            }
        }
        let (listener, service, end) = (&listener, &mut service, &waker);
        scope.spawn(move || serve(listener, service, bounds, maker, end).unwrap());
        let _end = End(&waker);
        let mut spec = spec(Kind::Aead, "gcm(aes)");
        spec.users.users = vec![user];
        let make = Operation::Generate { name: name(), spec, secret_len: 16 };
        Client::connect(&path).unwrap().ask(make).map(drop).unwrap();
        clients(&path);
    });
    std::fs::remove_file(&path).unwrap();
    service
}

const WIDE: Bounds = Bounds { clients: 64, per_user: 64 };

fn name() -> Name {
    Name::new("k").unwrap()
}

fn seal(text: usize) -> Operation {
    Operation::Seal { name: name(), nonce: vec![], aad: vec![], text: Zeroizing::new(vec![1; text]) }
}

#[test]
fn a_client_seals_and_opens() {
    with_keeper("seals", WIDE, |path| {
        let mut client = Client::connect(path).unwrap();
        let Ok(Answer::Sealed { version, nonce, text }) = client.ask(seal(64 * 1024)) else { panic!("not sealed") };
        let open = Operation::Open { name: name(), version, nonce, aad: vec![], text };
        match client.ask(open) {
            Ok(Answer::Opened(text)) => assert!(text.len() == 64 * 1024 && text.iter().all(|byte| *byte == 1)),
            _ => panic!("not opened"),
        }
    });
}

#[test]
fn messages_of_a_revoked_key_are_dropped_for_all_clients() {
    with_keeper("revoked-streams", WIDE, |path| {
        let [mut admin, mut one, mut other] = [(); 3].map(|()| Client::connect(path).unwrap());
        let mut make = |name: &str| {
            let name = Name::new(name).unwrap();
            let mut spec = spec(Kind::Hash, "hmac(sha256)");
            spec.users.users = vec![process::effective_user()];
            admin.ask(Operation::Generate { name: name.clone(), spec, secret_len: 0 }).map(drop).unwrap();
            name
        };
        let (revoked, stays) = (make("revoked"), make("stays"));
        let begin = |client: &mut Client, name: &Name, stream| {
            let key = KeyRef::Named { name: name.clone(), version: 0, algorithm: "hmac(sha256)".to_owned() };
            match client.ask(Operation::MacBegin { key, stream, text: b"text"[..].into() }) {
                Ok(Answer::Version(1)) => true,
                Err(ClientError::Refused(refusal)) if refusal.code == Code::Parameter => false,
                _ => panic!("neither begun nor taken"),
            }
        };
        for client in [&mut one, &mut other] {
            assert!(begin(client, &revoked, 1) && begin(client, &stays, 2));
        }
        admin.ask(Operation::Revoke { name: revoked, version: 0 }).map(drop).unwrap();
        for client in [&mut one, &mut other] {
            // The number of the one is free again, and that of the other is not.
            assert_eq!((begin(client, &stays, 1), begin(client, &stays, 2)), (true, false));
        }
    });
}

#[test]
fn a_client_that_reads_nothing_delays_nobody() {
    with_keeper("floods", WIDE, |path| {
        let flood = unix::connect_for_packets(path, Duration::from_millis(200)).unwrap();
        let request = Request { id: 1, operation: seal(60_000) }.encode();
        // Until the keeper takes no more of them, because its replies are not taken.
        let mut sent = 0;
        while unix::send_packet(flood.as_fd(), &request).is_ok() {
            sent += 1;
            assert!(sent < 10_000, "it takes requests without end");
        }
        let mut other = Client::connect(path).unwrap();
        for _ in 0..10 {
            assert!(matches!(other.ask(seal(100)), Ok(Answer::Sealed { .. })));
        }
    });
}

#[test]
fn one_user_gets_so_many_connections_and_is_told_why() {
    with_keeper("many", Bounds { clients: 64, per_user: 2 }, |path| {
        // Replies wait for both, so that they have no place to give.
        let request = Request { id: 1, operation: seal(60_000) }.encode();
        let _floods = [(); 2].map(|()| {
            let flood = unix::connect_for_packets(path, Duration::from_secs(2)).unwrap();
            while unix::send_packet(flood.as_fd(), &request).is_ok() {}
            flood
        });
        match Client::connect(path).unwrap().ask(seal(1)).map(drop) {
            Err(ClientError::Refused(refusal)) => assert_eq!(refusal.code, Code::Busy, "{refusal}"),
            Err(other) => panic!("{other}"),
            Ok(()) => panic!("too many are served"),
        }
    });
}

#[test]
fn a_client_that_is_idle_longest_gives_its_place() {
    with_keeper("idle", Bounds { clients: 64, per_user: 3 }, |path| {
        let served = || {
            let mut client = Client::connect(path).unwrap();
            assert!(client.ask(seal(1)).is_ok());
            client
        };
        let [mut first, mut second, mut third] = [(); 3].map(|()| served());
        assert!(first.ask(seal(1)).is_ok());
        let mut fourth = served();
        assert!(matches!(second.ask(seal(1)), Err(ClientError::Io(..))), "the second one was idle longest");
        for client in [&mut first, &mut third, &mut fourth] {
            assert!(client.ask(seal(1)).is_ok());
        }
    });
}

#[test]
fn places_are_given_by_those_who_have_many() {
    let bounds = Bounds { clients: 20, per_user: 4 };
    // A user, and the time since which it has no request, if it has none.
    type Row = (u32, Option<u64>);
    let place = |user: u32, idle_ns: Option<u64>| -> Row { (user, idle_ns) };
    let full = |user: u32, count: usize| vec![place(user, None); count];
    let way = |rows: &[Row], user: u32, is_admin: bool| {
        let place = |row: &Row| Place {
            user: row.0,
            is_admin: row.0 == 0,
            has_streams: false,
            used_ns: row.1.unwrap_or_default(),
        };
        let places: Vec<Place> = rows.iter().map(place).collect();
        gives_way(&places, user, is_admin, bounds, |at| rows[*at].1.is_some())
    };
    // All of one's own: another user's are not looked at.
    let mut own = full(1, 3);
    own.extend([place(1, Some(9)), place(2, Some(1))]);
    assert_eq!(way(&own, 1, false), Some(3));
    own[3].1 = None;
    assert_eq!(way(&own, 1, false), None);
    // All places, 12 of which are for everybody: of the user with most, longest first.
    let mut all = full(1, 4);
    all.extend(full(2, 3));
    all.extend(full(3, 3));
    all.extend(full(4, 2));
    for (at, idle) in [(2, 7), (3, 6), (4, 5), (8, 4), (10, 3)] {
        all[at].1 = Some(idle);
    }
    assert_eq!(way(&all, 5, false), Some(3));
    (all[2].1, all[3].1) = (None, None);
    assert_eq!(way(&all, 5, false), Some(8), "two users have three: the one that is idle longer");
    // Only of those with more, and of one's own.
    assert_eq!(way(&all, 4, false), Some(10), "one of three would have two then, and ask for it back");
    assert_eq!(way(&all, 2, false), Some(4));
    (all[4].1, all[8].1) = (None, None);
    assert_eq!(way(&all, 3, false), None);
    assert_eq!(way(&all, 4, false), Some(10));
    // An administrator's place in the reserved ones is no other user's.
    let mut with_admins = full(1, 4);
    with_admins.extend(full(2, 4));
    with_admins.extend(full(3, 4));
    with_admins.push(place(0, Some(1)));
    with_admins.push(place(0, Some(2)));
    assert_eq!(way(&with_admins, 5, false), None);
    assert_eq!(way(&with_admins, 5, true), Some(12));
}

/// A client of a simulation: its user, and its number among all.
struct Simulated {
    user: u32,
    number: u32,
    waits: bool,
}

impl Queued for Simulated {
    fn user(&self) -> u32 {
        self.user
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn set_waits(&mut self, waits: bool) {
        self.waits = waits;
    }
}

/// The order in which clients, all of which always have a request, are served in so many rounds. The first `many` are of one user,
/// and the next of others. Each request takes `cost_ns`.
fn simulated(many: u32, others: u32, cost_ns: u64, rounds: usize) -> Vec<u32> {
    let client = |number: u32| Simulated { user: 1000 + number.saturating_sub(many - 1), number, waits: false };
    let mut clients: Vec<Simulated> = (0..many + others).map(client).collect();
    let clock_ns = std::cell::Cell::new(0);
    let mut served = Vec::new();
    for _ in 0..rounds {
        let needs = vec![Needs::Turn; clients.len()];
        let turn = |client: &mut Simulated| {
            clock_ns.set(clock_ns.get() + cost_ns);
            served.push(client.number);
            Turn::Stays
        };
        round(&mut clients, &needs, &mut Shares::default(), || clock_ns.get(), turn);
    }
    served
}

#[test]
fn a_user_with_many_clients_delays_another_by_a_share_and_a_request() {
    // As by RSA-4096: the first two begin within the share.
    let served = simulated(256, 1, 4_000_000, 300);
    let turns_of_the_other: Vec<&[u32]> = served.split(|number| *number == 256).collect();
    assert_eq!(turns_of_the_other.len(), 301);
    // In the last place after the last one there is none.
    assert!(turns_of_the_other[1..300].iter().all(|between| between.len() == 2), "{served:?}");
    // All clients of the first user have their turns, one after the other.
    let first: Vec<u32> = served.iter().copied().filter(|number| *number < 256).collect();
    assert_eq!(first.len(), 600);
    assert!(first.iter().zip((0..256).cycle()).all(|(number, due)| *number == due), "{first:?}");
}

#[test]
fn short_requests_are_all_served_in_each_round() {
    assert_eq!(simulated(256, 3, 1_000, 2), (0..259).chain(0..259).collect::<Vec<u32>>());
    // One request has more than a share: it is served all the same, and each user's.
    assert_eq!(simulated(2, 1, u64::MAX / 100, 2), [0, 2, 1, 2]);
}

#[test]
fn a_client_that_ends_leaves_the_others_their_places() {
    let client = |number: u32| Simulated { user: number, number, waits: true };
    let mut clients: Vec<Simulated> = (0..4).map(client).collect();
    let turn = |client: &mut Simulated| if client.number == 3 { Turn::Gone } else { Turn::Stays };
    let needs = [Needs::Turn, Needs::End, Needs::Nothing, Needs::Turn];
    round(&mut clients, &needs, &mut Shares::default(), || 0, turn);
    let left: Vec<(u32, bool)> = clients.iter().map(|client| (client.number, client.waits)).collect();
    assert_eq!(left, [(0, false), (2, false)]);
}

#[test]
fn many_clients_of_one_user_are_all_served() {
    with_keeper("all", WIDE, |path| {
        let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(path).unwrap()).collect();
        let sockets: Vec<_> =
            (0..10).map(|_| unix::connect_for_packets(path, Duration::from_secs(60)).unwrap()).collect();
        let request = Request { id: 7, operation: seal(64 * 1024) }.encode();
        for _ in 0..20 {
            sockets.iter().for_each(|socket| unix::send_packet(socket.as_fd(), &request).unwrap());
            assert!(clients.iter_mut().all(|client| client.ask(seal(64 * 1024)).is_ok()));
            assert!(sockets.iter().all(|socket| matches!(reply(socket), Answer::Sealed { .. })));
        }
    });
}

#[test]
fn long_replies_are_taken_one_by_one() {
    with_keeper("long", WIDE, |path| {
        let key = |version| KeyRef::Named { name: name(), version, algorithm: "gcm(aes)".to_owned() };
        let seal_long = || Operation::SealBy {
            key: key(0),
            nonce: vec![1; 12],
            aad: vec![],
            text: vec![1; MAX_LONG_TEXT_LEN].into(),
            tag_len: 16,
        };
        let request = |id, operation| Request { id, operation }.encode();
        let hoards = unix::connect_for_packets(path, Duration::from_secs(10)).unwrap();
        let sends = |bytes: &[u8]| unix::send_packet(hoards.as_fd(), bytes).unwrap();
        let takes = |id: u64, buffer: &mut [u8]| {
            let len = unix::receive_packet(hoards.as_fd(), buffer).unwrap();
            Reply::answer_to(id, &buffer[..len]).unwrap()
        };
        let mut buffer = vec![0; MAX_MESSAGE_LEN];
        // It takes none of its replies: a long request is not served then, and whatever comes behind a long reply waits.
        sends(&request(1, seal(64 * 1024)));
        sends(&request(2, seal_long()));
        let mut other = Client::connect(path).unwrap();
        // In each of its turns one of them is read.
        for _ in 0..4 {
            assert!(matches!(other.ask(seal_long()), Ok(Answer::Computed { tag, .. }) if tag.len() == 16));
        }
        assert!(matches!(takes(1, &mut buffer), Answer::Sealed { .. }));
        assert!(matches!(takes(2, &mut buffer), Answer::Refused(Refusal { code: Code::Busy, .. })));
        sends(&request(3, seal_long()));
        sends(&request(4, seal(1)));
        for _ in 0..4 {
            assert!(other.ask(seal(1)).is_ok());
        }
        assert!(matches!(takes(3, &mut buffer), Answer::Computed { text, .. } if text.len() == MAX_LONG_TEXT_LEN));
        assert!(matches!(takes(4, &mut buffer), Answer::Sealed { .. }));
    });
}

#[test]
fn what_cannot_be_read_ends_that_connection_only() {
    with_keeper("malformed", WIDE, |path| {
        let mut other = Client::connect(path).unwrap();
        for bytes in [&[1u8][..], &[9; 100], &vec![1; 100_000]] {
            let socket = unix::connect_for_packets(path, Duration::from_secs(10)).unwrap();
            unix::send_packet(socket.as_fd(), bytes).unwrap();
            let mut reply = vec![0; MAX_MESSAGE_LEN];
            let len = unix::receive_packet(socket.as_fd(), &mut reply).unwrap();
            let refused = Reply::decode(&reply[..len])
                .is_ok_and(|reply| matches!(reply.answer, Answer::Refused(Refusal { code: Code::Malformed, .. })));
            assert!(refused);
            assert_eq!(unix::receive_packet(socket.as_fd(), &mut reply).unwrap(), 0);
            assert!(other.ask(seal(1)).is_ok());
        }
    });
}

/// Asks for a new RSA key.
fn wants(path: &Path, name: &str) -> OwnedFd {
    let mut spec = Spec { uses: Uses::SIGN, ..spec(Kind::Private, "rsa-2048") };
    spec.users.users = vec![process::effective_user()];
    let operation = Operation::Generate { name: Name::new(name).unwrap(), spec, secret_len: 0 };
    let socket = unix::connect_for_packets(path, Duration::from_secs(120)).unwrap();
    unix::send_packet(socket.as_fd(), &Request { id: 7, operation }.encode()).unwrap();
    socket
}

fn reply(socket: &OwnedFd) -> Answer {
    let mut bytes = vec![0; MAX_MESSAGE_LEN];
    let len = unix::receive_packet(socket.as_fd(), &mut bytes).unwrap();
    let reply = Reply::decode(&bytes[..len]).unwrap();
    assert_eq!(reply.id, 7);
    reply.answer
}

/// A maker that tells each algorithm when it begins, and goes on when it is told to.
fn held_maker() -> (Maker, mpsc::Receiver<Algorithm>, mpsc::Sender<()>) {
    let ((begin, begins), (go, goes)) = (mpsc::channel(), mpsc::channel());
    let maker = Maker::of(move |algorithm| {
        let _ = begin.send(algorithm);
        let _ = goes.recv();
        private::made(algorithm)
    });
    (maker.unwrap(), begins, go)
}

#[test]
fn others_are_served_while_an_rsa_key_is_made() {
    let (maker, begins, go) = held_maker();
    with_maker("makes", WIDE, &maker, |path| {
        let first = wants(path, "k0");
        assert_eq!(begins.recv(), Ok(Algorithm::Rsa2048));
        let mut other = Client::connect(path).unwrap();
        assert!(matches!(other.ask(seal(1)), Ok(Answer::Sealed { .. })));
        // This user's first one is not done.
        match reply(&wants(path, "k1")) {
            Answer::Refused(refusal) => assert_eq!(refusal.code, Code::Busy, "{refusal}"),
            _ => panic!("a user has two keys made at a time"),
        }
        go.send(()).unwrap();
        assert!(matches!(reply(&first), Answer::Version(1)));
        let sign = Operation::Sign {
            name: Name::new("k0").unwrap(),
            version: 0,
            scheme: Scheme::RsaPkcs1(Digest::Sha256),
            text: Zeroizing::new(vec![1; 32]),
        };
        assert!(matches!(other.ask(sign), Ok(Answer::Signature { version: 1, signature }) if signature.len() == 256));
        // There is room again.
        go.send(()).unwrap();
        assert!(matches!(reply(&wants(path, "k2")), Answer::Version(1)));
    });
}

#[test]
fn a_client_that_goes_away_gets_no_key_and_a_line_in_the_audit_log() {
    let (maker, begins, go) = held_maker();
    let other_job = |number, algorithm| Job { number: u64::MAX - number, user: u32::MAX - number as u32, algorithm };
    let service = with_maker("goes", WIDE, &maker, |path| {
        // The thread is busy for somebody else.
        maker.ask(other_job(0, Algorithm::Rsa3072), false).unwrap();
        assert_eq!(begins.recv(), Ok(Algorithm::Rsa3072));
        let waiting = wants(path, "gone");
        let mut other = Client::connect(path).unwrap();
        // Once to be sure that it is accepted, and once that it is read.
        for _ in 0..2 {
            assert!(matches!(other.ask(seal(1)), Ok(Answer::Sealed { .. })));
        }
        drop(waiting);
        // The keeper sees it in the round of the next request, and this user may ask again.
        for _ in 0..2 {
            assert!(other.ask(seal(1)).is_ok());
        }
        maker.ask(other_job(1, Algorithm::Rsa4096), false).unwrap();
        let again = wants(path, "kept");
        for _ in 0..2 {
            go.send(()).unwrap();
        }
        assert_eq!((begins.recv(), begins.recv()), (Ok(Algorithm::Rsa4096), Ok(Algorithm::Rsa2048)));
        go.send(()).unwrap();
        assert!(matches!(reply(&again), Answer::Version(1)));
    });
    let made: Vec<&str> =
        service.noted().iter().map(String::as_str).filter(|one| one.starts_with("generate")).collect();
    assert_eq!(made, ["generate 'k' ", "generate 'gone' gone", "generate 'kept' "]);
}
