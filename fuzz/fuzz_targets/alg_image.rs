//! Images of sockets as another process may have written them: any bytes. There is no panic, and the socket goes on; what
//! a socket writes itself, its copy takes, and writes the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_abi::if_alg::{ALG_SET_KEY, AlgAddress};
use sealane_abi::socket::{AF_NETLINK, MSG_DONTWAIT, MSG_MORE, SOCK_RAW, SOCK_SEQPACKET, SOL_ALG};
use sealane_engine_alg::front::{Object, socket};
use sealane_engine_alg::image::{Reader, Writer};
use sealane_engine_alg::{Errno, SendMsg, System};
use sealane_fuzz::{Alone, Input, Lock, ROOT, Socket, system};
use std::sync::Arc;

const NAMES: [(&str, &str, usize); 7] = [
    ("hash", "sha256", 0),
    ("hash", "hmac(sha256)", 16),
    ("hash", "blake2b-256", 0),
    ("skcipher", "cbc(aes)", 16),
    ("skcipher", "ctr(aes)", 16),
    ("aead", "gcm(aes)", 16),
    ("rng", "stdrng", 0),
];

/// A transform and an operation, of which other processes have copies.
fn pair(sys: &Arc<System>, choice: usize, keyed: bool) -> (Arc<Socket>, Arc<Socket>) {
    let (kind, name, key_len) = NAMES[choice];
    let tfm = Socket::create(sys, SOCK_SEQPACKET, 0).unwrap();
    tfm.bind(&Alone, &AlgAddress::build(kind, name), ROOT).unwrap();
    let op = tfm.accept(&Alone).unwrap();
    tfm.share(true);
    op.share(true);
    if keyed && key_len > 0 {
        tfm.setsockopt(&Alone, SOL_ALG, ALG_SET_KEY, Some(&vec![7; key_len]), key_len, ROOT).unwrap();
    }
    (tfm, op)
}

fn save(object: &Socket) -> Vec<u8> {
    let mut image = Writer::new();
    object.save(&mut image);
    image.finish().to_vec()
}

fn save_family(object: &Socket) -> Vec<u8> {
    let mut image = Writer::new();
    object.family().save(&mut image);
    image.finish().to_vec()
}

fn send(op: &Socket, len: usize, flags: u32) {
    let text = vec![3; len];
    let _ = op.sendmsg(&Alone, &SendMsg { data: &[&text], flags: flags | MSG_DONTWAIT, ..SendMsg::default() });
}

fn recv(op: &Socket, len: usize) {
    let mut out = vec![0; len];
    let _ = op.recvmsg(&Alone, &mut [&mut out], MSG_DONTWAIT);
}

fn netlink(sys: &Arc<System>, image: &[u8]) {
    let made = |sys: &Arc<System>| socket::<Lock, Errno>(AF_NETLINK, SOCK_RAW, 21, || Ok(sys.clone()));
    let (Ok(Object::Netlink(one)), Ok(Object::Netlink(two))) = (made(sys), made(sys)) else { return };
    let loaded = one.load(&mut Reader::new(image));
    let _ = one.recv(&Alone, &mut [0; 256], MSG_DONTWAIT);
    let mut saved = Writer::new();
    one.save(&mut saved);
    let saved = saved.finish();
    two.load(&mut Reader::new(&saved)).unwrap();
    let mut again = Writer::new();
    two.save(&mut again);
    assert_eq!(saved, again.finish(), "{loaded:?}");
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let sys = system(0).clone();
    let choice = usize::from(input.byte()) % (NAMES.len() + 1);
    let (keyed, sends) = (input.byte() & 1 != 0, input.byte() % 3);
    let family_len = usize::from(input.byte());
    if choice == NAMES.len() {
        return netlink(&sys, input.take(usize::MAX));
    }
    let (tfm, op) = pair(&sys, choice, keyed);
    let (other_tfm, other_op) = pair(&sys, choice, false);
    // What a process writes itself, the others take.
    for i in 0..sends {
        send(&op, 16 + usize::from(i), if i == 0 { MSG_MORE } else { 0 });
    }
    let images = [save_family(&tfm), save(&op)];
    other_tfm.family().load(&mut Reader::new(&images[0])).unwrap();
    other_op.load(&mut Reader::new(&images[1]), &|| false).unwrap();
    assert_eq!([save_family(&other_tfm), save(&other_op)], images);
    recv(&other_op, 64);
    // What anybody may write.
    let rest = input.take(usize::MAX);
    let (family, image) = rest.split_at(family_len.min(rest.len()));
    let _ = tfm.family().load(&mut Reader::new(family));
    let _ = op.load(&mut Reader::new(image), &|| true);
    let _ = tfm.load(&mut Reader::new(image), &|| true);
    for len in [0, 1, 20, 5000] {
        send(&op, len, if len == 1 { MSG_MORE } else { 0 });
        recv(&op, len);
        let _ = op.poll();
        let _ = op.accept(&Alone);
    }
    let _ = tfm.accept(&Alone).map(|op| recv(&op, 16));
    let _ = save(&op);
});
