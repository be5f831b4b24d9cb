//! Texts that come in parts through a slot, of clients that are slow, die, or lie.

use super::slots::with_slots;
use super::*;
use sealane_crypto::data::Data;
use sealane_crypto::skcipher::Direction;
use sealane_keeper_client::codec::Writer;
use sealane_keeper_client::limits::{MAX_TEXTS_LEN, PART_LEN, TEXTS_AT};
use sealane_keeper_client::message::{SLOT_LEN, SLOTS};
use sealane_keeper_client::text::{Step, StepsReply, StepsRequest, write_request};
use sealane_sys::slots::Slots;
use std::time::Instant;

const SECRET: [u8; 16] = [7; 16];
const LEN: usize = 4 * PART_LEN + 100;

/// A client that does by hand what a lane does.
struct Hand {
    socket: OwnedFd,
    slots: Slots,
    key: KeyRef,
}

impl Hand {
    /// Connects, with a key of this algorithm that has been used once.
    fn new(path: &Path, kind: Kind, algorithm: &str) -> Self {
        let mut client = Client::connect(path).unwrap();
        let name = Name::new(&algorithm.replace(['(', ')'], "-")).unwrap();
        let mut spec = spec(kind, algorithm);
        spec.users.users = vec![process::effective_user()];
        let import = Operation::Import { name: name.clone(), spec, secret: Zeroizing::new(SECRET.to_vec()) };
        // Another one of the test may have made it.
        let _ = client.ask(import);
        let (socket, file) = with_slots(path);
        let key = KeyRef::Named { name, version: 1, algorithm: algorithm.to_owned() };
        let hand = Hand { socket, slots: Slots::of(&file, SLOTS, SLOT_LEN).unwrap(), key };
        let step = hand.cipher_or_seal();
        hand.post(&[(step, 1)], &[0], 1);
        hand.reply();
        hand
    }

    fn cipher_or_seal(&self) -> Step<'static> {
        match &self.key {
            KeyRef::Named { algorithm, .. } if algorithm == "gcm(aes)" => {
                Step::Seal { nonce: &[0; 12], aad: &[], tag_len: 16 }
            }
            _ => Step::Cipher { direction: Direction::Encrypt, iv: &[0; 16] },
        }
    }

    /// Asks for steps, with the first bytes of their texts, and says that `written` of them are there.
    fn post(&self, steps: &[(Step<'_>, usize)], text: &[u8], written: usize) {
        let mut front = Writer::new();
        write_request(&mut front, 5, &self.key.encode(), steps.iter().copied());
        self.post_front(&front.done(), text, written);
    }

    fn post_front(&self, front: &[u8], text: &[u8], written: usize) {
        self.slots.put(0, 0, front);
        self.slots.put(0, TEXTS_AT, text);
        if self.slots.post(0, front.len(), written) {
            self.ring();
        }
    }

    fn ring(&self) {
        unix::send_packet(self.socket.as_fd(), &BELL).unwrap();
    }

    fn write(&self, at: usize, text: &[u8]) {
        self.slots.put(0, TEXTS_AT + at, text);
        self.wrote(at + text.len());
    }

    fn wrote(&self, written: usize) {
        self.slots.wrote(0, written);
        if self.slots.is_asleep() {
            self.ring();
        }
    }

    fn text(&self, at: usize, len: usize) -> Vec<u8> {
        let mut text = vec![0; len];
        assert!(self.slots.part(0, TEXTS_AT + at, &mut text));
        text
    }

    /// Waits until so much is computed.
    fn await_computed(&self, len: usize) {
        let until = Instant::now() + PATIENCE;
        while self.slots.computed(0) < len {
            assert!(Instant::now() < until, "{} of {len} bytes", self.slots.computed(0));
            std::thread::yield_now();
        }
    }

    /// The bytes before the texts of the reply.
    fn reply(&self) -> Vec<u8> {
        let until = Instant::now() + PATIENCE;
        while !self.slots.has_reply(0) {
            assert!(Instant::now() < until, "no reply");
            std::thread::yield_now();
        }
        let mut reply = vec![0; self.slots.reply_len(0)];
        assert!(self.slots.part(0, 0, &mut reply));
        reply
    }

    fn refusal(&self) -> Code {
        match Reply::decode(&self.reply()).unwrap().answer {
            Answer::Refused(refusal) => refusal.code,
            _ => panic!("not refused"),
        }
    }

    /// Requires that one step is done, with this IV.
    fn done(&self, iv: &[u8]) {
        let reply = self.reply();
        let mut reply = StepsReply::of(&reply).unwrap().expect("the steps are done");
        assert_eq!(&reply.next().unwrap().unwrap().unwrap().iv[..], iv);
        assert!(reply.next().unwrap().is_none());
    }
}

fn ctr() -> Step<'static> {
    Step::Cipher { direction: Direction::Encrypt, iv: &[3; 16] }
}

/// A text, what becomes of it by [`ctr`], and the IV after that.
fn text() -> (Vec<u8>, Vec<u8>, [u8; 16]) {
    let text: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
    let (mut out, mut iv) = (text.clone(), [3; 16]);
    let alg = registry().lookup(sealane_crypto::Kind::Skcipher, "ctr(aes)").unwrap();
    let tfm = alg.skcipher(&SECRET).unwrap();
    tfm.one(Direction::Encrypt, &mut iv, Data::from(&mut out[..])).unwrap();
    (text, out, iv)
}

#[test]
fn parts_are_computed_as_they_come_and_a_slow_client_delays_nobody() {
    with_keeper("parts", WIDE, |path| {
        let (text, out, iv) = text();
        let hand = Hand::new(path, Kind::Skcipher, "ctr(aes)");
        let others = || assert!(Client::connect(path).unwrap().ask(seal(1)).is_ok());
        hand.post(&[(ctr(), LEN)], &text[..PART_LEN], PART_LEN);
        hand.await_computed(PART_LEN);
        assert!(hand.text(0, PART_LEN) == out[..PART_LEN]);
        others();
        // Less than a part is not looked at, and what is behind `written` neither.
        hand.write(PART_LEN, &text[PART_LEN..2 * PART_LEN - 1]);
        others();
        assert!(hand.slots.computed(0) == PART_LEN && !hand.slots.has_reply(0));
        hand.write(2 * PART_LEN - 1, &text[2 * PART_LEN - 1..3 * PART_LEN]);
        hand.await_computed(3 * PART_LEN);
        assert!(hand.text(0, 3 * PART_LEN) == out[..3 * PART_LEN]);
        others();
        hand.write(3 * PART_LEN, &text[3 * PART_LEN..]);
        hand.done(&iv);
        assert!(hand.text(0, LEN) == out && hand.slots.computed(0) == LEN);
        // The next request begins anew.
        hand.post(&[(ctr(), 5)], &text[..5], 5);
        hand.reply();
        assert!(hand.text(0, 5) == out[..5]);
    });
}

#[test]
fn texts_that_have_to_be_whole_are_waited_for() {
    with_keeper("whole", WIDE, |path| {
        let hand = Hand::new(path, Kind::Aead, "gcm(aes)");
        let step = Step::Seal { nonce: &[2; 12], aad: b"aad", tag_len: 16 };
        hand.post(&[(step, PART_LEN), (step, PART_LEN)], &[1; PART_LEN], PART_LEN);
        assert!(Client::connect(path).unwrap().ask(seal(1)).is_ok());
        assert!(!hand.slots.has_reply(0) && hand.text(0, PART_LEN) == [1; PART_LEN]);
        hand.write(PART_LEN, &[1; PART_LEN]);
        hand.reply();
        let (first, second) = (hand.text(0, PART_LEN), hand.text(PART_LEN, PART_LEN));
        assert!(first == second && first != [1; PART_LEN]);
        // Several texts that are shorter than a part are seen when some of them are there.
        let (len, some) = (PART_LEN / 4, PART_LEN / 4 + 1);
        hand.post(&[(step, len); 3], &[1; PART_LEN][..some], some);
        assert!(Client::connect(path).unwrap().ask(seal(1)).is_ok());
        assert!(!hand.slots.has_reply(0) && hand.text(0, some) == [1; PART_LEN][..some]);
        hand.write(some, &[1; PART_LEN][..3 * len - some]);
        hand.reply();
        assert!((0..3).all(|text| hand.text(text * len, len) == first[..len]));
    });
}

#[test]
fn a_client_that_goes_away_in_the_middle_of_a_text_leaves_its_place() {
    with_keeper("gone", WIDE, |path| {
        let (text, out, iv) = text();
        // One more than a user has places.
        for _ in 0..9 {
            let hand = Hand::new(path, Kind::Skcipher, "ctr(aes)");
            hand.post(&[(ctr(), LEN)], &text[..PART_LEN + 1], PART_LEN + 1);
            hand.await_computed(PART_LEN);
            drop(hand);
            assert!(Client::connect(path).unwrap().ask(seal(1)).is_ok());
        }
        let hand = Hand::new(path, Kind::Skcipher, "ctr(aes)");
        hand.post(&[(ctr(), LEN)], &text, LEN);
        hand.done(&iv);
        assert!(hand.text(0, LEN) == out);
    });
}

#[test]
fn words_that_lie_harm_their_client_only() {
    with_keeper("lies", WIDE, |path| {
        let (text, out, iv) = text();
        let hand = Hand::new(path, Kind::Skcipher, "ctr(aes)");
        // More is written than there can be: the text is what lies there.
        hand.post(&[(ctr(), LEN)], &text, u32::MAX as usize);
        hand.done(&iv);
        assert!(hand.text(0, LEN) == out);
        // Less than before.
        hand.post(&[(ctr(), LEN)], &text, 2 * PART_LEN);
        hand.await_computed(2 * PART_LEN);
        hand.wrote(0);
        assert!(Client::connect(path).unwrap().ask(seal(1)).is_ok());
        assert_eq!(hand.slots.computed(0), 2 * PART_LEN);
        // What is computed does not count any more, and the request is the one of the beginning.
        hand.slots.put(0, 0, &[0xff; 4096]);
        hand.slots.put(0, TEXTS_AT, &[0xff; PART_LEN]);
        hand.slots.publish(0, usize::MAX);
        hand.wrote(LEN);
        hand.done(&iv);
        assert!(hand.text(PART_LEN, LEN - PART_LEN) == out[PART_LEN..]);
        // Lengths and counts that nobody has room for end the connection.
        let key = hand.key.encode();
        let mut hand = hand;
        for (steps, texts) in [(vec![], 0), (vec![(ctr(), MAX_TEXTS_LEN), (ctr(), 1)], 10), (vec![(ctr(), 1); 40], 40)]
        {
            let mut front = Writer::new();
            write_request(&mut front, 5, &key, steps.into_iter());
            let front = front.done();
            assert!(StepsRequest::of(&front).is_err());
            hand.post_front(&front, &vec![1; texts], texts);
            assert_eq!(hand.refusal(), Code::Malformed);
            hand = Hand::new(path, Kind::Skcipher, "ctr(aes)");
        }
        // One that does not fit before its texts.
        let mut front = Writer::new();
        write_request(
            &mut front,
            5,
            &key,
            [(Step::Seal { nonce: &[0; 12], aad: &[1; TEXTS_AT], tag_len: 16 }, 1)].into_iter(),
        );
        hand.post_front(&front.done(), &[], 1);
        assert_eq!(hand.refusal(), Code::Malformed);
    });
}

#[test]
fn a_key_that_is_revoked_in_the_middle_of_a_text_ends_it() {
    with_keeper("revoked", WIDE, |path| {
        let (text, _, _) = text();
        let hand = Hand::new(path, Kind::Skcipher, "ctr(aes)");
        hand.post(&[(ctr(), LEN)], &text[..2 * PART_LEN], 2 * PART_LEN);
        hand.await_computed(2 * PART_LEN);
        let KeyRef::Named { name, .. } = hand.key.clone() else { panic!("it has a name") };
        Client::connect(path).unwrap().ask(Operation::Revoke { name, version: 0 }).map(drop).unwrap();
        hand.write(2 * PART_LEN, &text[2 * PART_LEN..]);
        assert_eq!(hand.refusal(), Code::Revoked);
        assert!(hand.text(2 * PART_LEN, LEN - 2 * PART_LEN) == text[2 * PART_LEN..]);
    });
}

#[test]
fn a_text_that_changes_while_it_is_opened_is_authentic_or_refused() {
    with_keeper("changes", WIDE, |path| {
        let hand = Hand::new(path, Kind::Aead, "gcm(aes)");
        let alg = registry().lookup(sealane_crypto::Kind::Aead, "gcm(aes)").unwrap();
        let (plain, mut sealed, mut tag) = (vec![5; 16 * 1024], vec![5; 16 * 1024], [0; 16]);
        alg.aead(&SECRET).unwrap().seal(&[2; 12], &[], Data::from(&mut sealed[..]), &mut tag).unwrap();
        let step = Step::Open { nonce: &[2; 12], aad: &[], tag: &tag };
        let (mut opened, mut refused) = (0, 0);
        // Both happen, or at least what is changed before is refused and what is not changed is opened.
        for round in 0..300usize {
            let at = (round * 811) % sealed.len();
            hand.post(&[(step, sealed.len())], &sealed, if round == 0 { sealed.len() } else { PART_LEN });
            if round > 0 {
                // While it is copied and computed.
                hand.slots.put(0, TEXTS_AT + at, &[sealed[at] ^ 1]);
                hand.wrote(sealed.len());
                if round % 2 == 0 {
                    hand.slots.put(0, TEXTS_AT + at, &[sealed[at]]);
                }
            }
            let reply = hand.reply();
            let done = StepsReply::of(&reply).unwrap().unwrap().next().unwrap().unwrap();
            let text = hand.text(0, sealed.len());
            if done.is_ok() {
                opened += 1;
                // A byte may be the client's own, written behind the keeper's.
                let other = plain.iter().zip(&text).filter(|(a, b)| a != b).count();
                assert!(other <= 1, "{other} bytes of an authentic text are others");
            } else {
                refused += 1;
                let kept = sealed.iter().zip(&text).filter(|(a, b)| a == b).count();
                assert!(kept >= sealed.len() - 1, "a text that is not authentic was written");
            }
        }
        assert!(opened >= 1 && refused >= 1, "{opened} opened, {refused} refused");
    });
}
