//! Keys, counters, sleepers and several users of one socket.

use crate::common::{
    DONTWAIT, MORE, PRIVILEGED, TASK, WOKEN, bound, control, keyed, recv, recvmsg_by, send, send_by, sendmsg, set_key,
    set_tag_len, system,
};
use sealane_abi::if_alg::AlgAddress;
use sealane_abi::socket::{SOL_ALG, SOL_SOCKET};
use sealane_engine_alg::{Caller, Errno, Profile};
use std::thread;
use std::time::Duration;

#[test]
fn a_transform_is_busy_while_an_operation_with_a_key_lives() {
    let sys = system(Profile::Linux7_3);
    let t = bound(&sys, "hash", "hmac(sha256)").unwrap();
    let (a, b) = (t.accept(TASK).unwrap(), t.accept(TASK).unwrap());
    // Both were accepted without a key: the key may still be set, twice even.
    set_key(&t, b"one").unwrap();
    set_key(&t, b"two").unwrap();
    send(&a, b"x", 0).unwrap();
    assert_eq!(set_key(&t, b"three"), Err(Errno::EBUSY), "a has its key now");
    assert_eq!(
        t.setsockopt(TASK, 6, 1, Some(b"abcd"), 4, PRIVILEGED),
        Err(Errno::EBUSY),
        "busy comes before the level"
    );
    drop(a);
    set_key(&t, b"three").unwrap();
    // b still has none; it takes the one that is there when it is first used.
    send(&b, b"x", 0).unwrap();
    let fresh = keyed(&sys, "hash", "hmac(sha256)", b"three").accept(TASK).unwrap();
    send(&fresh, b"x", 0).unwrap();
    assert_eq!(recv(&b, 32, 0), recv(&fresh, 32, 0));
    assert_eq!(t.bind(TASK, &AlgAddress::build("hash", "sha1"), PRIVILEGED), Err(Errno::EBUSY));
    drop(b);
    t.bind(TASK, &AlgAddress::build("hash", "sha1"), PRIVILEGED).unwrap();
}

#[test]
fn an_unused_operation_without_a_key_keeps_bind_busy_but_not_setsockopt() {
    let sys = system(Profile::Linux7_3);
    let t = bound(&sys, "aead", "gcm(aes)").unwrap();
    let o = t.accept(TASK).unwrap();
    assert_eq!(t.bind(TASK, &AlgAddress::build("hash", "sha1"), PRIVILEGED), Err(Errno::EBUSY));
    set_tag_len(&t, 12).unwrap();
    set_key(&t, &[0; 16]).unwrap();
    drop(o);
    t.bind(TASK, &AlgAddress::build("hash", "sha1"), PRIVILEGED).unwrap();
}

#[test]
fn a_refused_key_takes_the_old_one_away_unless_its_length_is_out_of_range() {
    // Tried on both kernels: what a send says after a good key and then a bad one.
    for (profile, kind, name, good, bad, kept) in [
        (Profile::Linux7_3, "skcipher", "ctr(aes)", 16, 17, false),
        (Profile::Linux7_3, "skcipher", "ctr(aes)", 16, 15, true),
        (Profile::Linux7_3, "skcipher", "cbc(aes)", 16, 33, true),
        (Profile::Linux7_3, "skcipher", "cbc(des)", 8, 9, false),
        (Profile::Linux7_3, "skcipher", "xts(aes)", 32, 31, true),
        (Profile::Linux7_3, "aead", "ccm(aes)", 16, 15, false),
        (Profile::Linux7_3, "hash", "cmac(aes)", 16, 15, false),
        (Profile::Linux6_12, "skcipher", "ctr(aes)", 16, 33, true),
        (Profile::Linux6_12, "skcipher", "cbc(aes)", 16, 33, false),
        (Profile::Linux6_12, "skcipher", "ecb(aes)", 16, 0, false),
        (Profile::Linux6_12, "hash", "crc32c", 4, 3, true),
    ] {
        let key: Vec<u8> = (0..40).collect();
        let t = keyed(&system(profile), kind, name, &key[..good]);
        assert_eq!(set_key(&t, &key[..bad]), Err(Errno::EINVAL), "{profile} {name} {bad}");
        let sent = send(&t.accept(TASK).unwrap(), b"", 0);
        assert_eq!(sent, if kept { Ok(0) } else { Err(Errno::ENOKEY) }, "{profile} {name} {bad}");
    }
}

#[test]
fn a_receiver_sleeps_until_a_sender_ends_the_message() {
    let sys = system(Profile::Linux7_3);
    let o = keyed(&sys, "skcipher", "ctr(aes)", &[0; 16]).accept(TASK).unwrap();
    let receiver = thread::spawn({
        let o = o.clone();
        move || recvmsg_by(WOKEN, &o, 40, 0).map(|(d, _)| d.len())
    });
    thread::sleep(Duration::from_millis(20));
    sendmsg(&o, &[0; 20], &control(Some(1), Some(&[0; 16]), None), MORE).unwrap();
    thread::sleep(Duration::from_millis(10));
    send(&o, &[0; 20], 0).unwrap();
    assert_eq!(receiver.join().unwrap(), Ok(40));
}

#[test]
fn a_second_sender_is_refused_while_the_first_sleeps() {
    let sys = system(Profile::Linux7_3);
    let o = keyed(&sys, "skcipher", "ctr(aes)", &[0; 16]).accept(TASK).unwrap();
    // Without MSG_MORE before, the kernel forgets that a message has begun as soon as the queue is empty, and so do we.
    send(&o, b"", MORE).unwrap();
    let sender = thread::spawn({
        let o = o.clone();
        move || send_by(WOKEN, &o, &vec![7; 300_000], 0)
    });
    while o.poll().0 & 4 != 0 {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(5));
    assert_eq!(send(&o, b"x", MORE), Err(Errno::EBUSY));
    let first = recv(&o, 212_992, 0).unwrap().len();
    assert_eq!(first, 212_992);
    assert_eq!(sender.join().unwrap(), Ok(300_000));
    assert_eq!(recv(&o, 300_000 - first, 0).unwrap().len(), 300_000 - first);
}

#[test]
fn a_sender_that_a_signal_interrupts_returns_what_was_taken() {
    let sys = system(Profile::Linux7_3);
    let o = keyed(&sys, "skcipher", "ctr(aes)", &[0; 16]).accept(TASK).unwrap();
    assert_eq!(send(&o, &vec![7; 300_000], 0), Ok(212_992));
    assert_eq!(send(&o, b"x", 0), Err(Errno::EINVAL), "the message counts as complete");
}

#[test]
fn buffers_go_by_pages() {
    let sys = system(Profile::Linux7_3);
    let o = keyed(&sys, "skcipher", "ctr(aes)", &[0; 16]).accept(TASK).unwrap();
    o.setsockopt(TASK, SOL_SOCKET, 7, Some(&4096u32.to_ne_bytes()), 4, PRIVILEGED).unwrap();
    assert_eq!(sendmsg(&o, &[1; 100], &control(Some(1), None, None), MORE | DONTWAIT), Ok(100));
    assert_eq!(send(&o, &[1; 8192], MORE | DONTWAIT), Ok(8092), "the begun page and one more");
    assert_eq!(send(&o, &[1; 1], MORE | DONTWAIT), Err(Errno::EAGAIN));
    assert_eq!(recv(&o, 16, 0).unwrap().len(), 16);
    assert_eq!(send(&o, &[1; 1], MORE | DONTWAIT), Err(Errno::EAGAIN), "no whole page is free");
    assert_eq!(recv(&o, 4080, 0).unwrap().len(), 4080);
    assert_eq!(send(&o, &[1; 1], MORE | DONTWAIT), Ok(1));
}

#[test]
fn the_restricted_profile_has_an_allowlist() {
    let sys = system(Profile::Linux7_3Restricted);
    let bind = |kind, name, privileged| {
        crate::common::socket(&sys).bind(TASK, &AlgAddress::build(kind, name), Caller { privileged })
    };
    assert_eq!(bind("hash", "sha256", false), Err(Errno::ENOENT));
    assert_eq!(bind("hash", "sha256", true), Ok(()));
    assert_eq!(bind("hash", "sha1", false), Ok(()));
    assert_eq!(bind("hash", "sha1-lib", true), Err(Errno::ENOENT), "driver names are not listed");
    assert_eq!(bind("hash", "sha3-256", true), Err(Errno::ENOENT));
    assert_eq!(bind("skcipher", "xts(aes)", false), Ok(()));
    assert_eq!(bind("skcipher", "cbc(aes)", false), Err(Errno::ENOENT));
    assert_eq!(bind("skcipher", "cbc(aes)", true), Ok(()));
    assert_eq!(bind("aead", "ccm(aes)", true), Ok(()));
    assert_eq!(bind("aead", "gcm(aes)", true), Err(Errno::ENOENT));
    assert_eq!(bind("rng", "stdrng", true), Err(Errno::ENOENT));
}

#[test]
fn driver_names_bind_where_they_did() {
    let bind = |profile, name| bound(&system(profile), "hash", name).map(|_| ());
    assert_eq!(bind(Profile::Linux6_12, "sha256-generic"), Ok(()));
    assert_eq!(bind(Profile::Linux6_12, "sha256-lib"), Err(Errno::ENOENT));
    assert_eq!(bind(Profile::Linux7_3, "sha256-generic"), Err(Errno::ENOENT));
    assert_eq!(bind(Profile::Linux7_3, "sha256-lib"), Ok(()));
    assert_eq!(bind(Profile::Linux7_3, "sha256-portable"), Err(Errno::ENOENT), "ours is not a name of that kernel");
    assert_eq!(bind(Profile::Linux7_3, "hmac(sha1,sha1)"), Err(Errno::EEXIST));
    for name in ["sha256-generic", "sha256-lib", "sha256-portable"] {
        assert_eq!(bind(Profile::Open, name), Ok(()), "{name}");
    }
    assert_eq!(bind(Profile::Open, "nope"), Err(Errno::ENOENT));
}

#[test]
fn the_flag_for_kernel_drivers_selects_nothing_before_7_3() {
    let mut addr = AlgAddress::build("hash", "sha1");
    addr[17] = 0x10;
    addr[21] = 0x10;
    let bind = |profile| crate::common::socket(&system(profile)).bind(TASK, &addr, PRIVILEGED);
    assert_eq!(bind(Profile::Linux6_12), Err(Errno::ENOENT));
    assert_eq!(bind(Profile::Linux7_3), Ok(()));
}

#[test]
fn additional_input_of_a_generator_under_test() {
    let sys = system(Profile::Open);
    let t = bound(&sys, "rng", "drbg_nopr_hmac_sha256").unwrap();
    let entropy = |len: usize, caller| t.setsockopt(TASK, SOL_ALG, 6, Some(&vec![5; len]), len, caller);
    assert_eq!(entropy(48, Caller::default()), Err(Errno::EACCES));
    assert_eq!(entropy(129, PRIVILEGED), Err(Errno::EMSGSIZE));
    entropy(48, PRIVILEGED).unwrap();
    assert_eq!(entropy(48, PRIVILEGED), Err(Errno::EINVAL), "once");
    set_key(&t, b"").unwrap();
    let o = t.accept(TASK).unwrap();
    assert_eq!(send(&o, &[0; 129], 0), Err(Errno::EMSGSIZE));
    assert_eq!(send(&o, &[0; 16], 0), Ok(16));
    assert_eq!(recv(&o, 200, 0).unwrap().len(), 128);
    assert_eq!(recv(&o, 0, 0).unwrap().len(), 0);
}

#[test]
fn kernels_of_distributions_take_no_entropy_for_tests() {
    for profile in [Profile::Linux6_1, Profile::Linux6_12] {
        let t = bound(&system(profile), "rng", "drbg_nopr_hmac_sha256").unwrap();
        let done = t.setsockopt(TASK, SOL_ALG, 6, Some(&[5; 48]), 48, PRIVILEGED);
        assert_eq!(done, Err(Errno::ENOPROTOOPT), "{profile:?}");
    }
}
