//! Copies of a socket in several processes, kept in step by images: here two sockets of one process play them.

use crate::common::{DONTWAIT, MORE, TASK, bound, guarded_system, keyed, recv, send, set_key, system};
use parking_lot::RawMutex;
use sealane_engine_alg::image::{Malformed, Reader, Writer};
use sealane_engine_alg::{Errno, Profile, Socket};
use std::sync::Arc;

type Shared = Arc<Socket<RawMutex>>;

/// Takes over into `to` what has happened to `from`.
fn pass(from: &Shared, to: &Shared) -> Result<(), Malformed> {
    let (mut family, mut socket) = (Writer::new(), Writer::new());
    from.family().save(&mut family);
    from.save(&mut socket);
    to.family().load(&mut Reader::new(&family.finish()))?;
    to.load(&mut Reader::new(&socket.finish()), &|| false)
}

/// Two copies of an operation as a fork makes them.
fn copies(kind: &str, name: &str, key: Option<&[u8]>) -> [Shared; 2] {
    [(); 2].map(|()| {
        let sys = system(Profile::Open);
        let tfm = match key {
            Some(key) => keyed(&sys, kind, name, key),
            None => bound(&sys, kind, name).unwrap(),
        };
        let op = tfm.accept(TASK).unwrap();
        tfm.share(true);
        op.share(true);
        op
    })
}

#[test]
fn a_message_in_pieces_goes_on_in_another_process() {
    let [a, b] = copies("hash", "hmac(sha256)", Some(b"key"));
    let [whole, _] = copies("hash", "hmac(sha256)", Some(b"key"));
    for round in 0..3 {
        send(&a, b"one", MORE).unwrap();
        send(&a, b"two", MORE).unwrap();
        pass(&a, &b).unwrap();
        send(&b, b"three", MORE).unwrap();
        pass(&b, &a).unwrap();
        send(&a, b"four", 0).unwrap();
        pass(&a, &b).unwrap();
        send(&whole, b"onetwothreefour", 0).unwrap();
        assert_eq!(recv(&b, 32, 0), recv(&whole, 32, 0), "{round}");
        pass(&b, &a).unwrap();
    }
}

#[test]
fn a_message_of_which_too_much_is_missing_fails_once() {
    let [a, b] = copies("hash", "sha256", None);
    let [whole, _] = copies("hash", "sha256", None);
    let long = vec![7; (1 << 20) + 1];
    send(&a, &long, MORE).unwrap();
    pass(&a, &b).unwrap();
    assert_eq!(send(&b, b"x", MORE), Err(Errno::EIO));
    send(&b, b"abc", 0).unwrap();
    send(&whole, b"abc", 0).unwrap();
    assert_eq!(recv(&b, 32, 0), recv(&whole, 32, 0), "the next message");

    // Whoever has all of it goes on, whatever the others look at in between.
    send(&a, &long, MORE).unwrap();
    let [c, d] = copies("hash", "sha256", None);
    send(&c, &long, MORE).unwrap();
    pass(&c, &d).unwrap();
    pass(&d, &c).unwrap();
    send(&c, b"x", 0).unwrap();
    send(&whole, &long, MORE).unwrap();
    send(&whole, b"x", 0).unwrap();
    assert_eq!(recv(&c, 32, 0), recv(&whole, 32, 0));
}

#[test]
fn keys_and_queued_text_arrive() {
    let [a, b] = copies("skcipher", "cbc(aes)", None);
    assert_eq!(send(&b, &[0; 16], 0), Err(Errno::ENOKEY));
    // The key is set on the transform that the family stands for, after its operation was accepted.
    let sys = system(Profile::Open);
    let tfm = bound(&sys, "skcipher", "cbc(aes)").unwrap();
    let op = tfm.accept(TASK).unwrap();
    tfm.share(true);
    op.share(true);
    set_key(&tfm, &[3; 16]).unwrap();
    send(&op, &[5; 32], MORE).unwrap();
    pass(&op, &a).unwrap();
    assert_eq!(a.family().counts(), [1, 0], "the operation counts as one with a key");
    assert_eq!(recv(&a, 32, DONTWAIT), recv(&op, 32, DONTWAIT));
}

#[test]
fn a_guarded_key_is_told_to_nobody() {
    const KEY: [u8; 16] = *b"nowhere else.  \x01";
    for (kind, name, text_len) in [("skcipher", "cbc(aes)", 32), ("aead", "gcm(aes)", 32), ("hash", "hmac(sha256)", 5)]
    {
        let open = |shares: bool| {
            let sys = guarded_system(Profile::Open);
            let tfm = bound(&sys, kind, name).unwrap();
            let op = tfm.accept(TASK).unwrap();
            tfm.share(shares);
            op.share(shares);
            (tfm, op)
        };
        let [(a_tfm, a), (_, b)] = [open(true), open(true)];
        let (alone_tfm, alone) = open(false);
        let calls = |op: &Shared| {
            let sent = send(op, &vec![5; text_len], 0);
            [sent.map(drop), recv(op, text_len + 32, DONTWAIT).map(drop)]
        };
        set_key(&a_tfm, &KEY).unwrap();
        set_key(&alone_tfm, &KEY).unwrap();
        let mut image = Writer::new();
        a.family().save(&mut image);
        let image = image.finish();
        assert!(!image.windows(KEY.len()).any(|window| window == KEY), "{name}");
        assert_eq!(send(&b, &[5; 16], 0), Err(Errno::ENOKEY), "{name}");
        // The other one knows that there is a key, and can do nothing by it, twice.
        pass(&a, &b).unwrap();
        for _ in 0..2 {
            assert_eq!(calls(&b)[1], Err(Errno::EIO), "{name}");
        }
        // A message in pieces is of the process that has the key.
        if kind == "hash" {
            send(&a, b"one", MORE).unwrap();
            pass(&a, &b).unwrap();
            send(&b, b"two", MORE).unwrap();
            pass(&b, &a).unwrap();
            send(&alone, b"onetwo", 0).unwrap();
            assert_eq!(recv(&a, 64, 0), recv(&alone, 64, 0), "{name}");
            pass(&a, &b).unwrap();
            send(&b, b"one", MORE).unwrap();
            assert_eq!(recv(&b, 64, 0), Err(Errno::EIO), "{name}");
            pass(&b, &a).unwrap();
        }
        let done = calls(&a);
        assert_eq!(done, calls(&alone), "{name}");
        assert_ne!(done[1], Err(Errno::EIO), "{name}");
    }
}

#[test]
fn a_key_that_is_missing_is_no_guarded_one() {
    let sys = guarded_system(Profile::Open);
    let tfm = bound(&sys, "skcipher", "cbc(aes)").unwrap();
    tfm.share(true);
    set_key(&tfm, &[3; 16]).unwrap();
    // Who has keys in ordinary memory tells them.
    let [other, _] = copies("skcipher", "cbc(aes)", None);
    let mut image = Writer::new();
    tfm.family().save(&mut image);
    assert_eq!(other.family().load(&mut Reader::new(&image.finish())), Err(Malformed));
}

#[test]
fn operations_of_others_keep_a_transform_busy() {
    let sys = system(Profile::Open);
    let tfm = bound(&sys, "aead", "gcm(aes)").unwrap();
    tfm.family().set_others([2, 1]);
    assert_eq!(set_key(&tfm, &[3; 16]), Err(Errno::EBUSY));
    tfm.family().set_others([2, 2]);
    set_key(&tfm, &[3; 16]).unwrap();
}

#[test]
fn an_image_of_another_kind_is_refused() {
    let [hash, _] = copies("hash", "sha256", None);
    let [cipher, _] = copies("skcipher", "cbc(aes)", Some(&[1; 16]));
    let mut image = Writer::new();
    cipher.save(&mut image);
    let image = image.finish();
    assert_eq!(hash.load(&mut Reader::new(&image), &|| false), Err(Malformed));
    for len in 0..image.len() {
        assert_eq!(cipher.load(&mut Reader::new(&image[..len]), &|| false), Err(Malformed), "{len}");
    }
}
