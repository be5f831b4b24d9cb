//! Requests in slots of shared memory.

use super::*;
use sealane_keeper_client::lane::Lane;
use sealane_keeper_client::message::{SLOT_LEN, SLOTS};
use sealane_sys::slots::Slots;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A connection, and the answer to its request for slots with what came beside it.
fn ask_for_slots(path: &Path) -> (OwnedFd, Answer, Option<OwnedFd>) {
    let socket = unix::connect_for_packets(path, PATIENCE).unwrap();
    let (answer, file) = again(&socket);
    (socket, answer, file)
}

fn again(socket: &OwnedFd) -> (Answer, Option<OwnedFd>) {
    unix::send_packet(socket.as_fd(), &Request { id: 7, operation: Operation::Slots }.encode()).unwrap();
    let mut bytes = vec![0; MAX_MESSAGE_LEN];
    let (len, file) = unix::receive_with(socket, &mut bytes).unwrap();
    let reply = Reply::decode(&bytes[..len]).unwrap();
    assert_eq!(reply.id, 7);
    (reply.answer, file)
}

/// A connection with slots, as soon as there is a place.
pub(super) fn with_slots(path: &Path) -> (OwnedFd, OwnedFd) {
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "no place becomes free");
        match ask_for_slots(path) {
            (socket, Answer::Slots { count, room }, Some(file)) => {
                assert_eq!((count as usize, room as usize), (SLOTS, SLOT_LEN));
                return (socket, file);
            }
            // The keeper has not seen the end of another one yet, or keeps its memory for a moment.
            (_, answer, _) => assert_eq!(refusal(answer), Code::Busy),
        }
    }
}

struct Fast {
    socket: OwnedFd,
    lane: Lane,
}

impl Fast {
    fn new(path: &Path) -> Self {
        let (socket, file) = with_slots(path);
        Fast { socket, lane: Lane::new(&file).unwrap() }
    }

    fn bytes(&mut self, request: &[u8]) -> io::Result<Answer> {
        let reply = self.lane.exchange(|| Ok(&self.socket), &[request], Instant::now() + PATIENCE)?;
        let mut bytes = vec![0; reply.whole_len()];
        reply.read(0, &mut bytes)?;
        Ok(Reply::decode(&bytes).unwrap().answer)
    }

    fn ask(&mut self, operation: Operation) -> Answer {
        self.bytes(&Request { id: 1, operation }.encode()).unwrap()
    }
}

fn refusal(answer: Answer) -> Code {
    match answer {
        Answer::Refused(refusal) => refusal.code,
        _ => panic!("it is done"),
    }
}

#[test]
fn a_request_in_a_slot_is_served_like_one_of_the_socket() {
    with_keeper("slots", WIDE, |path| {
        let mut fast = Fast::new(path);
        let mut slow = Client::connect(path).unwrap();
        for len in [0, 1, 100, 64 * 1024] {
            let Answer::Sealed { version, nonce, text } = fast.ask(seal(len)) else { panic!("not sealed") };
            let Ok(Answer::Opened(back)) =
                slow.ask(Operation::Open { name: name(), version, nonce, aad: vec![], text })
            else {
                panic!("not opened")
            };
            assert!(back.len() == len && back.iter().all(|byte| *byte == 1));
        }
        // Both ways of one connection.
        unix::send_packet(fast.socket.as_fd(), &Request { id: 3, operation: seal(1) }.encode()).unwrap();
        let mut bytes = vec![0; MAX_MESSAGE_LEN];
        let len = unix::receive_packet(fast.socket.as_fd(), &mut bytes).unwrap();
        assert_eq!(Reply::decode(&bytes[..len]).unwrap().id, 3);
        assert!(matches!(fast.ask(seal(1)), Answer::Sealed { .. }));
    });
}

#[test]
fn requests_in_slots_and_over_sockets_go_on_beside_each_other() {
    with_keeper("beside", WIDE, |path| {
        let (ended, fast) = (AtomicBool::new(false), &mut Fast::new(path));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    assert!(matches!(fast.ask(seal(60_000)), Answer::Sealed { .. }));
                }
            });
            let mut slow = Client::connect(path).unwrap();
            for _ in 0..200 {
                assert!(slow.ask(seal(10)).is_ok());
            }
            let mut other = Fast::new(path);
            for _ in 0..200 {
                assert!(matches!(other.ask(seal(10)), Answer::Sealed { .. }));
            }
            ended.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_keeper_that_sleeps_is_told() {
    let (client, server) = pair("told");
    let (slots, file) = Slots::new(SLOTS, SLOT_LEN).unwrap();
    let mut lane = Lane::new(&file).unwrap();
    for asleep in [true, false, true] {
        slots.sleep(asleep);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !slots.has_request(0) {
                    std::thread::yield_now();
                }
                slots.reply(0, &[b"done"]);
            });
            let reply = lane.exchange(|| Ok(&client), &[b"request"], Instant::now() + PATIENCE).unwrap();
            let mut bytes = [0; 4];
            assert!(reply.whole_len() == 4 && reply.read(0, &mut bytes).is_ok() && &bytes == b"done");
            assert!(reply.read(1, &mut bytes).is_err() && reply.read(usize::MAX, &mut bytes).is_err());
        });
        // One that the program has closed is not used, whatever is there now.
        slots.sleep(true);
        let done =
            lane.exchange(|| Err::<&OwnedFd, _>(rustix::io::Errno::BADF), &[b"request"], Instant::now() + PATIENCE);
        assert_eq!(done.map(|reply| reply.whole_len()).map_err(|e| e.raw_os_error()), Err(Some(9)));
        slots.reply(0, &[]);
        let told = unix::peek_packet(server.as_fd()).map_err(|e| e.kind());
        assert_eq!(told, if asleep { Ok(1) } else { Err(io::ErrorKind::WouldBlock) });
        if asleep {
            unix::receive_packet(server.as_fd(), &mut [0; 10]).unwrap();
        }
    }
}

#[test]
fn only_so_many_of_one_user_get_slots() {
    with_keeper("few-slots", WIDE, |path| {
        let mut all: Vec<(OwnedFd, OwnedFd)> = (0..8).map(|_| with_slots(path)).collect();
        let (_socket, answer, file) = ask_for_slots(path);
        assert_eq!((refusal(answer), file.is_none()), (Code::Busy, true));
        // The end of a connection gives its place, and one connection gets no second place.
        drop(all.pop());
        let (socket, _file) = with_slots(path);
        assert_eq!(refusal(again(&socket).0), Code::Parameter);
    });
}

#[test]
fn a_client_that_writes_what_it_likes_harms_itself() {
    with_keeper("hostile", WIDE, |path| {
        // A request that cannot be read ends the connection, after its reply.
        let mut fast = Fast::new(path);
        assert_eq!(refusal(fast.bytes(&[9; 100]).unwrap()), Code::Malformed);
        assert!(fast.bytes(&Request { id: 1, operation: seal(1) }.encode()).is_err());
        // A length beyond the slot, and a state that is none.
        let (socket, file) = with_slots(path);
        let mapped = Slots::of(&file, SLOTS, SLOT_LEN).unwrap();
        let raw = std::fs::File::from(file);
        use std::os::unix::fs::FileExt;
        let write = |at: u64, word: u32| raw.write_all_at(&word.to_ne_bytes(), at).unwrap();
        write(64, 0x7777_7777);
        write(68, u32::MAX);
        write(64, 1);
        unix::send_packet(socket.as_fd(), &BELL).unwrap();
        let until = Instant::now() + 2 * PATIENCE;
        while !mapped.has_reply(0) {
            assert!(Instant::now() < until, "no reply");
            mapped.wait(0, Duration::from_millis(1));
        }
        let mut reply = vec![0; mapped.reply_len(0)];
        assert!(mapped.part(0, 0, &mut reply));
        assert_eq!(refusal(Reply::decode(&reply).unwrap().answer), Code::Malformed);
        // Others are served.
        assert!(matches!(Fast::new(path).ask(seal(1)), Answer::Sealed { .. }));
    });
}

#[test]
fn keys_are_not_made_in_slots() {
    with_keeper("no-making", WIDE, |path| {
        let mut fast = Fast::new(path);
        let spec = Spec { uses: Uses::SIGN, ..spec(Kind::Private, "rsa-2048") };
        let make = Operation::Generate { name: Name::new("r").unwrap(), spec, secret_len: 0 };
        assert_eq!(refusal(fast.ask(make)), Code::Parameter);
        assert_eq!(refusal(fast.ask(Operation::Slots)), Code::Parameter);
        assert!(matches!(fast.ask(seal(1)), Answer::Sealed { .. }));
    });
}

/// Both ends of a connection.
fn pair(test: &str) -> (OwnedFd, OwnedFd) {
    let path: PathBuf = std::env::temp_dir().join(format!("sealane-keeper-{test}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = unix::listen_for_packets(&path).unwrap();
    let client = unix::connect_for_packets(&path, PATIENCE).unwrap();
    let server = unix::accept(listener.as_fd()).unwrap();
    std::fs::remove_file(path).unwrap();
    (client, server)
}

#[test]
fn the_end_of_the_keeper_ends_a_request_that_waits() {
    let (client, server) = pair("ends");
    let (_slots, file) = Slots::new(SLOTS, SLOT_LEN).unwrap();
    let mut lane = Lane::new(&file).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(server);
        });
        let done = lane.exchange(|| Ok(&client), &[b"request"], Instant::now() + PATIENCE);
        assert_eq!(done.map(|reply| reply.whole_len()).map_err(|e| e.kind()), Err(io::ErrorKind::ConnectionReset));
    });
    // One that hangs ends it, too.
    let (client, _server) = pair("hangs");
    let mut lane = Lane::new(&file).unwrap();
    let until = Instant::now() + Duration::from_millis(100);
    let done = lane.exchange(|| Ok(&client), &[b"request"], until);
    assert_eq!(done.map(|reply| reply.whole_len()).map_err(|e| e.kind()), Err(io::ErrorKind::TimedOut));
}
