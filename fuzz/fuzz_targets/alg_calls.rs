//! Sequences of AF_ALG calls on the engine, made from the input's bytes. For any sequence there is no panic, no more
//! output than input (and tags), and no more buffered bytes than the send buffer allows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_abi::if_alg::{
    ALG_SET_AEAD_ASSOCLEN, ALG_SET_AEAD_AUTHSIZE, ALG_SET_DRBG_ENTROPY, ALG_SET_IV, ALG_SET_KEY,
    ALG_SET_KEY_BY_KEY_SERIAL, ALG_SET_OP, AlgAddress, push_cmsg,
};
use sealane_abi::socket::{MSG_DONTWAIT, MSG_MORE, SOCK_SEQPACKET, SOL_ALG, SOL_SOCKET};
use sealane_crypto::Kind;
use sealane_engine_alg::{SendMsg, System};
use sealane_fuzz::{Alone, Input, ROOT, Socket, system};
use std::rc::Rc;
use std::sync::Arc;

const SLOTS: usize = 6;
const SO_SNDBUF: i32 = 7;
/// Length of the largest tag, and of the largest digest.
const MAX_TAG: usize = 64;
/// A partial page may be filled even if the buffer is full.
const PAGE: usize = 4096;

const NAMES: &[(&str, &str)] = &[
    ("hash", "sha256"),
    ("hash", "md5"),
    ("hash", "sha3-256"),
    ("hash", "blake2b-256"),
    ("hash", "crc32c"),
    ("hash", "hmac(sha256)"),
    ("hash", "cmac(aes)"),
    ("hash", "xcbc(aes)"),
    ("skcipher", "ecb(aes)"),
    ("skcipher", "cbc(aes)"),
    ("skcipher", "ctr(aes)"),
    ("skcipher", "xts(aes)"),
    ("skcipher", "cts(cbc(aes))"),
    ("skcipher", "rfc3686(ctr(aes))"),
    ("skcipher", "cbc(des3_ede)"),
    ("skcipher", "chacha20"),
    ("skcipher", "adiantum(xchacha12,aes)"),
    ("skcipher", "hctr2(aes)"),
    ("aead", "gcm(aes)"),
    ("aead", "ccm(aes)"),
    ("aead", "rfc4106(gcm(aes))"),
    ("aead", "rfc4309(ccm(aes))"),
    ("aead", "rfc4543(gcm(aes))"),
    ("aead", "rfc7539(chacha20,poly1305)"),
    ("aead", "authenc(hmac(sha256),cbc(aes))"),
    ("aead", "authencesn(hmac(sha1),cbc(aes))"),
    ("rng", "stdrng"),
    ("rng", "jitterentropy_rng"),
    ("rng", "drbg_nopr_sha256"),
];

/// A socket, and the bytes that passed through it.
#[derive(Clone)]
struct Slot {
    socket: Arc<Socket>,
    /// Shared by the slots of one socket (dup).
    tally: Rc<std::cell::RefCell<Tally>>,
}

#[derive(Default)]
struct Tally {
    sent: usize,
    received: usize,
    receives: usize,
    sndbuf: usize,
}

fn sndbuf(socket: &Socket) -> usize {
    let mut out = [0; 4];
    socket.getsockopt(SOL_SOCKET, SO_SNDBUF, &mut out).expect("SO_SNDBUF can be asked for");
    i32::from_ne_bytes(out) as usize
}

impl Slot {
    fn new(socket: Arc<Socket>) -> Self {
        let tally = Tally { sndbuf: sndbuf(&socket), ..Tally::default() };
        Slot { socket, tally: Rc::new(tally.into()) }
    }

    fn send(&self, input: &mut Input<'_>) {
        let flags = input.byte();
        let control = if flags & 4 != 0 { control(input) } else { Vec::new() };
        let data = vec![flags; input.len()];
        let (a, b) = data.split_at(usize::from(flags >> 5).min(data.len()));
        let msg = SendMsg {
            data: &[a, &[], b],
            control: &control,
            flags: if flags & 1 != 0 { MSG_MORE } else { 0 } | if flags & 2 != 0 { MSG_DONTWAIT } else { 0 },
            spliced: flags & 8 != 0,
            unreadable: if flags & 16 != 0 { 1 + usize::from(flags) } else { 0 },
        };
        let Ok(n) = self.socket.sendmsg(&Alone, &msg) else { return };
        assert!(n <= data.len(), "more taken than given");
        let mut tally = self.tally.borrow_mut();
        tally.sent += n;
        tally.sndbuf = tally.sndbuf.max(sndbuf(&self.socket));
        if self.socket.kind() == Some(Kind::Skcipher) {
            let kept = tally.sent - tally.received;
            assert!(kept <= tally.sndbuf + PAGE, "{kept} bytes kept, the send buffer has {}", tally.sndbuf);
        }
    }

    fn receive(&self, input: &mut Input<'_>) {
        let (flags, len) = (input.byte(), input.len());
        let mut out = vec![0xa5; len];
        let (a, b) = out.split_at_mut(usize::from(flags >> 4).min(len));
        let flags = if flags & 1 != 0 { MSG_DONTWAIT } else { 0 };
        let Ok(got) = self.socket.recvmsg(&Alone, &mut [a, &mut [], b], flags) else { return };
        assert!(got.len <= len, "more given than there was room for");
        let mut tally = self.tally.borrow_mut();
        tally.received += got.len;
        tally.receives += 1;
        match self.socket.kind() {
            Some(Kind::Hash) => assert!(got.len <= MAX_TAG),
            Some(Kind::Rng) => assert!(got.len <= 128),
            Some(Kind::Skcipher) => assert!(tally.received <= tally.sent, "more came out than went in"),
            Some(Kind::Aead) => assert!(tally.received <= tally.sent + tally.receives * MAX_TAG),
            _ => panic!("an operation without a kind"),
        }
    }
}

fn control(input: &mut Input<'_>) -> Vec<u8> {
    let shape = input.byte();
    let mut out = Vec::new();
    if shape & 1 != 0 {
        push_cmsg(&mut out, SOL_ALG, ALG_SET_OP, &[&u32::from(input.byte() % 3).to_ne_bytes()]);
    }
    if shape & 2 != 0 {
        let len = input.byte();
        let iv = vec![len; usize::from(len % 40)];
        push_cmsg(&mut out, SOL_ALG, ALG_SET_IV, &[&(iv.len() as u32).to_ne_bytes(), &iv]);
    }
    if shape & 4 != 0 {
        push_cmsg(&mut out, SOL_ALG, ALG_SET_AEAD_ASSOCLEN, &[&u32::from(input.word()).to_ne_bytes()]);
    }
    if shape & 8 != 0 {
        let len = input.len();
        out.extend_from_slice(input.take(len));
    }
    out
}

fn create(sys: &Arc<System>, input: &mut Input<'_>) -> Arc<Socket> {
    let socket = Socket::create(sys, SOCK_SEQPACKET, 0).expect("a socket can always be made");
    bind(&socket, input);
    socket
}

fn bind(socket: &Socket, input: &mut Input<'_>) {
    let choice = usize::from(input.byte());
    let _ = match NAMES.get(choice) {
        Some((kind, name)) => socket.bind(&Alone, &AlgAddress::build(kind, name), ROOT),
        None => {
            let len = input.len();
            socket.bind(&Alone, input.take(len), ROOT)
        }
    };
}

fn setsockopt(socket: &Socket, input: &mut Input<'_>) {
    let len = input.len();
    let value = vec![len as u8 ^ 0x5a; len];
    let _ = match input.byte() % 8 {
        0..=2 => socket.setsockopt(&Alone, SOL_ALG, ALG_SET_KEY, Some(&value), len, ROOT),
        3 => socket.setsockopt(&Alone, SOL_ALG, ALG_SET_AEAD_AUTHSIZE, None, len, ROOT),
        4 => socket.setsockopt(&Alone, SOL_ALG, ALG_SET_KEY_BY_KEY_SERIAL, Some(&(len as i32).to_ne_bytes()), 4, ROOT),
        5 => socket.setsockopt(&Alone, SOL_ALG, ALG_SET_DRBG_ENTROPY, Some(&value), len, ROOT),
        6 => socket.setsockopt(&Alone, SOL_SOCKET, SO_SNDBUF, Some(&(len as i32).to_ne_bytes()), 4, ROOT),
        _ => {
            let key = input.take(len);
            socket.setsockopt(&Alone, SOL_ALG, i32::from(input.byte()), Some(key), key.len(), ROOT)
        }
    };
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let sys = system(input.byte());
    let mut slots: [Option<Slot>; SLOTS] = [const { None }; SLOTS];
    while !input.is_empty() {
        let call = input.byte();
        let (at, to) = (usize::from(input.byte()), usize::from(call >> 4) % SLOTS);
        let Some(slot) = slots[at % SLOTS].clone() else {
            slots[at % SLOTS] = Some(Slot::new(create(sys, &mut input)));
            continue;
        };
        match call % 12 {
            0 => bind(&slot.socket, &mut input),
            1 | 2 => setsockopt(&slot.socket, &mut input),
            3 => {
                if let Ok(op) = slot.socket.accept(&Alone) {
                    assert!(op.is_op());
                    slots[to] = Some(Slot::new(op));
                }
            }
            4..=6 => slot.send(&mut input),
            7..=9 => slot.receive(&mut input),
            10 => slots[to] = Some(slot),
            _ if call & 0x80 != 0 => slots[at % SLOTS] = None,
            _ => {
                slot.socket.poll();
                let mut out = vec![0; input.byte().into()];
                let _ = slot.socket.getsockopt(SOL_SOCKET, input.byte().into(), &mut out);
            }
        }
    }
});
