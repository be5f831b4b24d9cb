//! No bytes from outside make the engine panic.

use crate::common::{DONTWAIT, PRIVILEGED, TASK, bound, keyed, set_key, socket, system};
use sealane_abi::if_alg::{AlgAddress, push_cmsg};
use sealane_abi::netlink::NETLINK_CRYPTO;
use sealane_abi::socket::{SOCK_RAW, SOL_ALG};
use sealane_engine_alg::{Profile, SendMsg};

/// Marsaglia's xorshift: the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..self.below(max + 1)).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn addresses_and_options() {
    let mut r = Numbers(1);
    let sys = system(Profile::Linux7_3);
    let names =
        ["hmac(sha256)", "cbc(aes)", "gcm(aes)", "authenc(hmac(sha1),cbc(aes))", "hmac(", "((((", "a,b", "\u{e9}"];
    for i in 0..3000 {
        let s = socket(&sys);
        let mut addr = match i % 3 {
            0 => r.bytes(140),
            _ => AlgAddress::build(["hash", "skcipher", "aead", "rng"][r.below(4)], names[r.below(names.len())]),
        };
        if i % 3 == 2 {
            let at = r.below(addr.len());
            addr[at] = r.next() as u8;
            addr.truncate(r.below(addr.len() + 1));
        }
        let _ = s.bind(TASK, &addr, PRIVILEGED);
        let val = r.bytes(70);
        let (level, name) = ([0, 1, 279][r.below(3)], r.below(90) as i32 - 1);
        let _ = s.setsockopt(TASK, level, name, Some(&val), val.len(), PRIVILEGED);
        let _ = s.setsockopt(TASK, level, name, None, r.below(1 << 20), PRIVILEGED);
        let _ = s.getsockopt(level, name, &mut vec![0; r.below(40)]);
    }
}

#[test]
fn calls_in_any_order() {
    let mut r = Numbers(2);
    for profile in [Profile::Linux6_1, Profile::Linux6_12, Profile::Linux7_3] {
        let sys = system(profile);
        let tfms = [
            bound(&sys, "hash", "sha256").unwrap(),
            keyed(&sys, "hash", "hmac(sha1)", b"key"),
            keyed(&sys, "skcipher", "cbc(aes)", &[1; 16]),
            keyed(&sys, "skcipher", "ctr(aes)", &[1; 16]),
            keyed(&sys, "aead", "gcm(aes)", &[1; 16]),
            bound(&sys, "aead", "ccm(aes)").unwrap(),
        ];
        for _ in 0..400 {
            let tfm = &tfms[r.below(tfms.len())];
            let Ok(op) = tfm.accept(TASK) else { continue };
            for _ in 0..r.below(12) {
                let mut c = Vec::new();
                for _ in 0..r.below(4) {
                    let len = [4, 8, 16, 20][r.below(4)];
                    let mut data = r.bytes(len);
                    if data.len() >= 4 && r.below(2) == 0 {
                        data[..4].copy_from_slice(&(r.below(24) as u32).to_ne_bytes());
                    }
                    push_cmsg(&mut c, SOL_ALG, r.below(6) as i32, &[&data]);
                }
                c.truncate(c.len() - r.below(3).min(c.len()));
                let most = if r.below(20) == 0 { 9000 } else { 40 };
                let (a, b) = (r.bytes(80), r.bytes(most));
                let flags = [0, 0x8000][r.below(2)] | DONTWAIT;
                let spliced = r.below(4) == 0;
                let unreadable = if r.below(8) == 0 { r.below(5000) } else { 0 };
                let _ = op.sendmsg(TASK, &SendMsg { data: &[&a, &[], &b], unreadable, control: &c, flags, spliced });
                let (mut x, mut y) = (vec![0; r.below(70)], vec![0; r.below(70)]);
                if let Ok(got) = op.recvmsg_faulty(TASK, &mut [&mut x, &mut [], &mut y], r.below(2) * 9, DONTWAIT) {
                    assert!(got.len <= x.len() + y.len());
                }
                let _ = op.poll();
            }
            let key = r.bytes(40);
            let _ = set_key(tfm, &key);
        }
    }
}

#[test]
fn netlink_bytes() {
    let mut r = Numbers(3);
    for profile in [Profile::Open, Profile::Linux7_3] {
        let s =
            sealane_engine_alg::CryptoUser::<parking_lot::RawMutex>::create(&system(profile), SOCK_RAW, NETLINK_CRYPTO)
                .unwrap();
        for _ in 0..3000 {
            let mut bytes = r.bytes(300);
            if bytes.len() >= 8 {
                let len = r.below(bytes.len() + 8) as u32;
                bytes[..4].copy_from_slice(&len.to_ne_bytes());
                bytes[4..8].copy_from_slice(&[r.below(24) as u8, 0, r.below(8) as u8, r.below(4) as u8]);
            }
            let _ = s.send(&bytes, PRIVILEGED);
            while s.recv(TASK, &mut [0; 100], DONTWAIT).is_ok() {}
        }
    }
}
