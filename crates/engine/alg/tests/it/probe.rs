//! The AF_ALG probe: one line for each experiment, compared with what real kernels printed.
//!
//! `tests/data/af_alg_linux-*.txt` are the outputs of a Python probe on user-mode Linux 6.1, 6.12 and 7.3 (unprivileged
//! names allowed, root). What the probe learns about descriptors (dup, fork, splice, fstat) is not the engine's.

use crate::common::{
    DONTWAIT, MORE, PRIVILEGED, Socket, TASK, bound, control, interrupted, keyed, recv, recvmsg, send, sendmsg,
    set_key, set_tag_len, socket, system_with,
};
use crate::home::FakeHome;
use sealane_abi::if_alg::{AlgAddress, push_cmsg};
use sealane_abi::socket::{MSG_PEEK, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM, SOL_ALG, SOL_SOCKET};
use sealane_engine_alg::{Errno, Profile, SendMsg, System};
use std::fmt::Write as _;
use std::sync::Arc;

type Line = Result<String, Errno>;

/// Experiments that are about descriptors, other processes or the host's keyrings.
const NOT_OURS: [&str; 14] = [
    "fstat is sock",
    "fork shares state (want sha256(abc)=ba7816bf)",
    "dup shares state (2nd empty digest)",
    "recv len 0 consumes?", // Python answers this itself
    "splice pipe->hash",
    "splice pipe->hash SPLICE_F_MORE",
    "sendfile->hash",
    "splice alg->pipe",
    "SCM_RIGHTS shares state",
    "bind KERN_DRIVER_ONLY feat",
    "key by serial logon",
    "bind generic driver name",
    "hmac key 100000", // the limit (optmem_max) is the host's
    "rng jitterentropy",
];

const I: [u8; 16] = [0; 16];
const N: [u8; 12] = [0; 12];

fn key() -> Vec<u8> {
    (0..16).collect()
}

fn text() -> Vec<u8> {
    (0..64).collect()
}

fn hex(b: &[u8]) -> String {
    b.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

fn bytes(b: Vec<u8>) -> String {
    format!("{}:{}", b.len(), hex(&b[..b.len().min(24)]))
}

fn none(done: Result<(), Errno>) -> Line {
    done.map(|()| "None".to_owned())
}

struct Probe {
    sys: Arc<System>,
    lines: Vec<(String, String)>,
}

impl Probe {
    fn t(&mut self, name: &str, f: impl FnOnce(&Arc<System>) -> Line) {
        interrupted();
        let line = f(&self.sys);
        let blocked = interrupted() > 0;
        let text = match line {
            _ if blocked => "BLOCKED".to_owned(),
            Ok(text) => text,
            Err(Errno::EOPNOTSUPP) => "-ENOTSUP".to_owned(),
            Err(e) => format!("-{e}"),
        };
        self.lines.push((name.to_owned(), text));
    }
}

fn accept(s: &Arc<Socket>) -> Arc<Socket> {
    s.accept(TASK).unwrap()
}

fn op(sys: &Arc<System>, kind: &str, name: &str) -> Result<Arc<Socket>, Errno> {
    bound(sys, kind, name)?.accept(TASK)
}

fn cipher(sys: &Arc<System>, name: &str, key: &[u8]) -> Arc<Socket> {
    accept(&keyed(sys, "skcipher", name, key))
}

/// Encrypts under CBC: sends `data` with `control`, receives up to 64 bytes.
fn cbc(sys: &Arc<System>, data: &[u8], control: &[u8]) -> Line {
    let o = cipher(sys, "cbc(aes)", &key());
    let n = sendmsg(&o, data, control, 0)?;
    let got = recv(&o, 64, 0)?;
    Ok(format!("({n}, '{}')", hex(&got[..16])))
}

fn enc() -> Vec<u8> {
    control(Some(1), Some(&I), None)
}

fn gcm(sys: &Arc<System>) -> Arc<Socket> {
    let s = keyed(sys, "aead", "gcm(aes)", &key());
    set_tag_len(&s, 16).unwrap();
    accept(&s)
}

fn seal(assoc: u32) -> Vec<u8> {
    control(Some(1), Some(&N), Some(assoc))
}

fn open(assoc: u32) -> Vec<u8> {
    control(Some(0), Some(&N), Some(assoc))
}

fn create_and_bind(p: &mut Probe) {
    let made = |r: Result<Arc<Socket>, Errno>| r.map(|_| "made".to_owned());
    p.t("socket STREAM", |s| made(Socket::create(s, SOCK_STREAM, 0)));
    p.t("socket DGRAM", |s| made(Socket::create(s, SOCK_DGRAM, 0)));
    p.t("socket proto=1", |s| made(Socket::create(s, SOCK_SEQPACKET, 1)));
    let word = |s: &Arc<System>, level, name| {
        let mut out = [0; 4];
        socket(s).getsockopt(level, name, &mut out).map(|_| i32::from_ne_bytes(out).to_string())
    };
    p.t("SO_TYPE", |s| word(s, SOL_SOCKET, 3));
    p.t("SO_DOMAIN", |s| word(s, SOL_SOCKET, 39));
    p.t("getsockopt SOL_ALG", |s| word(s, SOL_ALG, 1));
    for name in ["getsockname", "getpeername", "listen", "connect", "shutdown"] {
        p.t(name, |s| none(socket(s).unsupported()));
    }
    p.t("setsockopt SO_SNDBUF", |s| {
        none(socket(s).setsockopt(TASK, SOL_SOCKET, 7, Some(&65536u32.to_ne_bytes()), 4, PRIVILEGED))
    });
    p.t("SO_SNDBUF", |s| {
        let s = socket(s);
        s.setsockopt(TASK, SOL_SOCKET, 7, Some(&65536u32.to_ne_bytes()), 4, PRIVILEGED)?;
        let mut out = [0; 4];
        s.getsockopt(SOL_SOCKET, 7, &mut out).map(|_| i32::from_ne_bytes(out).to_string())
    });
    p.t("accept unbound", |s| made(socket(s).accept(TASK)));
    p.t("setkey unbound", |s| none(set_key(&socket(s), &key())));
    p.t("send unbound", |s| send(&socket(s), b"a", 0).map(|n| n.to_string()));
    p.t("recv unbound", |s| recv(&socket(s), 4, 0).map(bytes));
    p.t("bind unknown type", |s| made(bound(s, "foo", "sha1")));
    p.t("bind unknown alg", |s| made(bound(s, "hash", "nope")));
    p.t("bind hash as skcipher", |s| made(bound(s, "skcipher", "sha1")));
    p.t("bind empty name", |s| made(bound(s, "hash", "")));
    let raw = |s: &Arc<System>, addr: &[u8]| socket(s).bind(TASK, addr, PRIVILEGED).map(|()| "0".to_owned());
    let head = |name: &[u8]| [&AlgAddress::build("hash", "")[..24], name].concat();
    p.t("bind feat=1", |s| {
        let mut addr = head(b"sha1\0");
        addr[16] = 1;
        raw(s, &addr)
    });
    p.t("bind short addrlen 24", |s| raw(s, &head(b"")));
    p.t("bind addrlen 25", |s| raw(s, &head(b"\0")));
    p.t("bind name unterminated \"sha1X\"(last byte cut)", |s| raw(s, &head(b"sha1X")));
    p.t("bind long name 200", |s| {
        let mut addr = head(b"sha1");
        addr.resize(224, 0);
        raw(s, &addr)
    });
    p.t("bind family wrong", |s| {
        let mut addr = head(b"sha1\0");
        addr[0] = 2;
        raw(s, &addr)
    });
    p.t("rebind before accept", |s| {
        let s = bound(s, "hash", "sha1")?;
        s.bind(TASK, &AlgAddress::build("hash", "sha256"), PRIVILEGED)?;
        Ok(recv(&*s.accept(TASK)?, 99, 0)?.len().to_string())
    });
    p.t("rebind after accept", |s| {
        let s = bound(s, "hash", "sha1")?;
        let _op = s.accept(TASK)?;
        none(s.bind(TASK, &AlgAddress::build("hash", "sha256"), PRIVILEGED))
    });
    p.t("bind on op", |s| none(op(s, "hash", "sha1")?.bind(TASK, &AlgAddress::build("hash", "sha1"), PRIVILEGED)));
}

fn hashes(p: &mut Probe) {
    let sha256 = |s: &Arc<System>| bound(s, "hash", "sha256").unwrap();
    let hash = |s: &Arc<System>| accept(&bound(s, "hash", "sha256").unwrap());
    p.t("send on tfm", |s| send(&sha256(s), b"x", 0).map(|n| n.to_string()));
    p.t("recv on tfm", |s| recv(&sha256(s), 9, 0).map(bytes));
    p.t("poll tfm", |s| Ok(sha256(s).poll().0.to_string()));
    p.t("setkey on unkeyed hash", |s| none(set_key(&sha256(s), &key())));
    p.t("setauthsize on hash", |s| none(set_tag_len(&sha256(s), 4)));
    p.t("optname 99", |s| none(sha256(s).setsockopt(TASK, SOL_ALG, 99, Some(b"x"), 1, PRIVILEGED)));
    p.t("level SOL_SOCKET opt 999", |s| {
        none(sha256(s).setsockopt(TASK, SOL_SOCKET, 999, Some(b"abcd"), 4, PRIVILEGED))
    });
    p.t("poll hash op", |s| Ok(hash(s).poll().0.to_string()));
    p.t("recv w/o send (empty digest)", |s| recv(&hash(s), 99, 0).map(bytes));
    p.t("again", |s| {
        let o = hash(s);
        recv(&o, 99, 0)?;
        recv(&o, 99, 0).map(bytes)
    });
    p.t("setkey on op", |s| none(set_key(&hash(s), &key())));
    p.t("getsockname op", |s| none(hash(s).unsupported()));
    p.t("short recv then recv", |s| {
        let o = hash(s);
        send(&o, b"abc", 0)?;
        let mut got = recv(&o, 10, 0)?;
        got.push(b'|');
        got.extend_from_slice(&recv(&o, 99, 0)?[..8]);
        Ok(bytes(got))
    });
    p.t("short recvmsg flags", |s| {
        let o = hash(s);
        send(&o, b"abc", 0)?;
        let (data, got) = recvmsg(&o, 10, 0)?;
        Ok(format!("({}, '{:#x}')", data.len(), got.flags))
    });
    let digest = |s: &Arc<System>, data: &[u8]| {
        let o = hash(s);
        send(&o, data, 0).unwrap();
        recv(&o, 99, 0).unwrap()
    };
    let truth = |b: bool| if b { "True" } else { "False" };
    p.t("recv while MORE finalises", |s| {
        let o = hash(s);
        send(&o, b"ab", MORE)?;
        Ok(truth(recv(&o, 99, 0)? == digest(s, b"ab")).to_owned())
    });
    p.t("accept clones state", |s| {
        let o = hash(s);
        send(&o, b"ab", MORE)?;
        let copy = o.accept(TASK)?;
        send(&o, b"c", 0)?;
        send(&copy, b"d", 0)?;
        let (a, b) = (recv(&o, 99, 0)? == digest(s, b"abc"), recv(&copy, 99, 0)? == digest(s, b"abd"));
        Ok(format!("({}, {})", truth(a), truth(b)))
    });
    p.t("accept after final -> empty digest", |s| {
        let o = hash(s);
        send(&o, b"abc", 0)?;
        recv(&accept(&o), 4, 0).map(bytes)
    });
    p.t("send \"\" after final discards -> empty digest", |s| {
        let o = hash(s);
        send(&o, b"abc", 0)?;
        send(&o, b"", 0)?;
        recv(&o, 4, 0).map(bytes)
    });
    p.t("send \"\" after MORE finalises", |s| {
        let o = hash(s);
        send(&o, b"abc", MORE)?;
        send(&o, b"", 0)?;
        recv(&o, 4, 0).map(bytes)
    });
    p.t("hash with bogus cmsg ignored", |s| {
        let o = hash(s);
        let mut c = Vec::new();
        push_cmsg(&mut c, SOL_ALG, 99, &[b"abcd"]);
        let n = sendmsg(&o, b"abc", &c, 0)?;
        assert_eq!(recv(&o, 4, 0)?, [0xba, 0x78, 0x16, 0xbf]);
        Ok(format!("({n}, b'\\xbax\\x16\\xbf')"))
    });
    p.t("op survives close(tfm)", |s| {
        let o = hash(s);
        send(&o, b"abc", 0)?;
        recv(&o, 4, 0).map(bytes)
    });
    p.t("MSG_PEEK", |s| {
        let o = hash(s);
        send(&o, b"abc", 0)?;
        let a = recv(&o, 4, MSG_PEEK)?;
        Ok(format!("('{}', '{}')", hex(&a), hex(&recv(&o, 4, 0)?)))
    });
}

fn keys(p: &mut Probe) {
    let hmac = bound(&p.sys, "hash", "hmac(sha256)").unwrap();
    let o = accept(&hmac);
    p.t("  poll nokey op", |_| Ok(o.poll().0.to_string()));
    p.t("  send nokey", |_| send(&o, b"a", 0).map(|n| n.to_string()));
    p.t("  recv nokey", |_| recv(&o, 4, 0).map(bytes));
    p.t("  accept nokey op", |_| o.accept(TASK).map(|_| "made".to_owned()));
    p.t("  setkey after nokey accept", |_| none(set_key(&hmac, &key())));
    p.t("  send now", |_| send(&o, b"a", 0).map(|n| n.to_string()));
    p.t("  recv now", |_| recv(&o, 4, 0).map(bytes));
    p.t("  setkey again (child live)", |_| none(set_key(&hmac, &key())));
    drop(o);
    p.t("  setkey after child closed", |_| none(set_key(&hmac, &key())));
    p.t("hmac no key sequence", |_| Ok("None".to_owned()));
    for (name, len) in [("0", 0), ("1000", 1000), ("1MB", 1 << 20)] {
        let name = if name == "0" { "hmac key len 0".to_owned() } else { format!("hmac key {name}") };
        p.t(&name, |s| none(set_key(&*bound(s, "hash", "hmac(sha256)")?, &vec![0; len])));
    }
    for n in [0, 15, 16, 17, 24, 32, 33] {
        p.t(&format!("cbc(aes) setkey len {n}"), |s| none(set_key(&*bound(s, "skcipher", "cbc(aes)")?, &vec![0; n])));
    }
    for n in [31usize, 32, 48, 64] {
        let key: Vec<u8> = (0..n).map(|i| i as u8).collect();
        p.t(&format!("xts(aes) setkey len {n}"), |s| none(set_key(&*bound(s, "skcipher", "xts(aes)")?, &key)));
    }
    p.t("xts(aes) equal halves", |s| none(set_key(&*bound(s, "skcipher", "xts(aes)")?, &[0; 32])));
    p.t("des3 weak (k1==k2==k3)", |s| none(set_key(&*bound(s, "skcipher", "cbc(des3_ede)")?, &[0; 24])));
    for n in [0, 3, 4, 8, 11, 12, 13, 16, 17] {
        p.t(&format!("gcm authsize {n}"), |s| none(set_tag_len(&*bound(s, "aead", "gcm(aes)")?, n)));
    }
    for n in [3, 4, 5, 16] {
        p.t(&format!("ccm authsize {n}"), |s| none(set_tag_len(&*bound(s, "aead", "ccm(aes)")?, n)));
    }
    let serial = |s: &Arc<System>, serial: i32, len: usize| {
        let t = bound(s, "skcipher", "cbc(aes)")?;
        t.setsockopt(TASK, SOL_ALG, 7, Some(&serial.to_ne_bytes()[..len]), len, PRIVILEGED)?;
        let o = t.accept(TASK)?;
        sendmsg(&o, &text()[..16], &enc(), 0)?;
        recv(&o, 16, 0).map(bytes)
    };
    p.t("key by serial user", |s| serial(s, 7, 4));
    p.t("key serial bad", |s| serial(s, 123_456_789, 4));
    p.t("key serial optlen 3", |s| serial(s, 7, 3));
    p.t("key serial wrong keylen", |s| serial(s, 8, 4));
    p.t("key serial = keyring", |s| serial(s, 9, 4));
}

fn cbc_messages(p: &mut Probe) {
    let m = text();
    let fresh = |s: &Arc<System>| cipher(s, "cbc(aes)", &key());
    p.t("cbc poll fresh", |s| Ok((fresh(s).poll().0 & 7).to_string()));
    p.t("cbc recv DONTWAIT fresh", |s| recv(&fresh(s), 16, DONTWAIT).map(bytes));
    p.t("cbc recv fresh (blocking)", |s| recv(&fresh(s), 16, 0).map(bytes));
    p.t("cbc enc 16 recv exactly 16", |s| {
        let o = fresh(s);
        let n = sendmsg(&o, &m[..16], &enc(), 0)?;
        Ok(format!("({n}, '{}')", hex(&recv(&o, 16, 0)?[..4])))
    });
    p.t("cbc accept on op", |s| fresh(s).accept(TASK).map(|_| "made".to_owned()));
    p.t("cbc enc 16", |s| cbc(s, &m[..16], &enc()));
    p.t("cbc enc 17 recv", |s| cbc(s, &m[..17], &enc()));
    p.t("cbc enc no cmsg (op default)", |s| cbc(s, &m[..16], &[]));
    p.t("cbc op=2", |s| cbc(s, &m[..16], &control(Some(2), Some(&I), None)));
    p.t("cbc only IV (op=0 dec)", |s| cbc(s, &m[..16], &control(None, Some(&I), None)));
    p.t("cbc iv len 8", |s| cbc(s, &m[..16], &control(Some(1), Some(&I[..8]), None)));
    p.t("cbc iv len 17", |s| cbc(s, &m[..16], &control(Some(1), Some(&[0; 17]), None)));
    let with = |level: i32, type_: i32, data: &[u8]| {
        let mut c = enc();
        push_cmsg(&mut c, level, type_, &[data]);
        c
    };
    p.t("cbc iv truncated cmsg", |s| cbc(s, &m[..16], &with(SOL_ALG, 2, &[16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])));
    p.t("unknown SOL_ALG cmsg", |s| cbc(s, &m[..16], &with(SOL_ALG, 77, b"abcd")));
    p.t("cmsg other level", |s| cbc(s, &m[..16], &with(0, 77, b"abcd")));
    p.t("short OP cmsg", |s| cbc(s, &m[..16], &with(SOL_ALG, 3, b"ab")));
    p.t("assoc on skcipher", |s| cbc(s, &m[..16], &control(Some(1), Some(&I), Some(5))));
    p.t("assoc >= 2^31", |s| cbc(s, &m[..16], &control(Some(1), Some(&I), Some(0x8000_0000))));
    let three = |s: &Arc<System>, last: usize| {
        let o = fresh(s);
        sendmsg(&o, &m, &enc(), 0)?;
        let lens = (recv(&o, 16, 0)?.len(), recv(&o, 20, 0)?.len(), recv(&o, last, 0)?.len());
        Ok(format!("{lens:?}"))
    };
    p.t("cbc 64 in; recv 16,20,32", |s| three(s, 32));
    p.t("cbc 64 in; recv 16,20,99", |s| three(s, 99));
    p.t("cbc recv 7 of 64", |s| {
        let o = fresh(s);
        sendmsg(&o, &m, &enc(), 0)?;
        recv(&o, 7, 0).map(bytes)
    });
    p.t("cbc MORE, partial recv then continue = chained", |s| {
        let o = fresh(s);
        sendmsg(&o, &m[..16], &enc(), MORE)?;
        recv(&o, 99, 0).map(bytes)
    });
    p.t("cbc 2nd send after !MORE with pending", |s| {
        let o = fresh(s);
        sendmsg(&o, &m[..16], &enc(), 0)?;
        send(&o, &m[16..32], 0).map(|n| n.to_string())
    });
    p.t("cbc next message continues IV?", |s| {
        let o = fresh(s);
        sendmsg(&o, &m[..16], &enc(), 0)?;
        let mut two = recv(&o, 16, 0)?;
        send(&o, &m[16..32], 0)?;
        two.extend(recv(&o, 16, 0)?);
        let o = fresh(s);
        sendmsg(&o, &m[..32], &enc(), 0)?;
        Ok(if two == recv(&o, 32, 0)? { "True" } else { "False" }.to_owned())
    });
    p.t("cbc 8 bytes MORE recv DONTWAIT", |s| {
        let o = fresh(s);
        sendmsg(&o, &m[..8], &enc(), MORE)?;
        recv(&o, 16, DONTWAIT).map(bytes)
    });
    for (name, flags) in [("cbc empty control MORE then data", MORE), ("cbc empty control no MORE then data", 0)] {
        p.t(name, |s| {
            let o = fresh(s);
            sendmsg(&o, &[], &enc(), flags)?;
            send(&o, &m[..16], 0)?;
            recv(&o, 99, 0).map(bytes)
        });
    }
    p.t("cbc recv after drained DONTWAIT", |s| {
        let o = fresh(s);
        sendmsg(&o, &m[..16], &enc(), 0)?;
        recv(&o, 16, 0)?;
        recv(&o, 16, DONTWAIT).map(bytes)
    });
    p.t("cbc nonblocking fill (SNDBUF limit)", |s| {
        let o = fresh(s);
        sendmsg(&o, &[], &enc(), MORE | DONTWAIT)?;
        let mut total = 0;
        loop {
            match send(&o, &[0; 4096], MORE | DONTWAIT) {
                Ok(n) => total += n,
                Err(Errno::EAGAIN) => return Ok(format!("EAGAIN after {total}, poll={}", o.poll().0 & 7)),
                Err(e) => return Err(e),
            }
        }
    });
    p.t("cbc nonblocking send 4MB returns", |s| {
        let o = fresh(s);
        sendmsg(&o, &[], &enc(), MORE | DONTWAIT)?;
        send(&o, &vec![0; 1 << 22], MORE | DONTWAIT).map(|n| n.to_string())
    });
    p.t("cbc 64K in recv 1M", |s| {
        let o = fresh(s);
        sendmsg(&o, &[0; 65536], &enc(), 0)?;
        recv(&o, 1 << 20, 0).map(|d| d.len().to_string())
    });
}

fn other_ciphers(p: &mut Probe) {
    let m = text();
    let ctr = |s: &Arc<System>, flags: u32| {
        let o = cipher(s, "ctr(aes)", &key());
        sendmsg(&o, &m[..20], &enc(), flags).map(|_| o)
    };
    p.t("ctr 20 in recv 7 then 99", |s| {
        let o = ctr(s, 0)?;
        recv(&o, 7, 0)?;
        recv(&o, 99, 0).map(bytes)
    });
    p.t("ctr 20 in recv 99", |s| recv(&*ctr(s, 0)?, 99, 0).map(bytes));
    p.t("ctr 20 MORE recv 99", |s| recv(&*ctr(s, MORE)?, 99, 0).map(bytes));
    for (name, iv) in [("ecb with IV", &I[..]), ("ecb with empty IV cmsg", &[])] {
        p.t(name, |s| {
            let o = cipher(s, "ecb(aes)", &key());
            sendmsg(&o, &m[..16], &control(Some(1), Some(iv), None), 0)?;
            recv(&o, 16, 0).map(bytes)
        });
    }
    let long: Vec<u8> = (0..32).collect();
    p.t("xts split recv chains?", |s| {
        let o = cipher(s, "xts(aes)", &long);
        sendmsg(&o, &m, &enc(), 0)?;
        let mut two = recv(&o, 32, 0)?;
        two.extend(recv(&o, 32, 0)?);
        sendmsg(&o, &m, &enc(), 0)?;
        Ok(if two == recv(&o, 64, 0)? { "True" } else { "False" }.to_owned())
    });
    for (name, len) in [("xts 17 bytes (CTS)", 17), ("xts 15 bytes", 15)] {
        p.t(name, |s| {
            let o = cipher(s, "xts(aes)", &long);
            sendmsg(&o, &m[..len], &enc(), 0)?;
            recv(&o, 99, 0).map(bytes)
        });
    }
}

fn aeads(p: &mut Probe) {
    let m = text();
    let sealed = |s: &Arc<System>, len: usize| {
        let o = gcm(s);
        sendmsg(&o, &m[..20], &seal(4), 0)?;
        recv(&o, len, 0).map(|d| (o, d))
    };
    p.t("gcm enc aad4 pt16 recv 99", |s| sealed(s, 99).map(|(_, d)| bytes(d)));
    p.t("gcm enc outbuf 1 short", |s| sealed(s, 35).map(|(_, d)| bytes(d)));
    p.t("gcm enc outbuf 20 (partial)", |s| {
        let (o, d) = sealed(s, 20)?;
        Ok(format!("(20, {}, {})", d.len(), o.poll().0 & 7))
    });
    p.t("gcm dec roundtrip", |s| {
        let (o, d) = sealed(s, 36)?;
        sendmsg(&o, &d, &open(4), 0)?;
        assert_eq!(recv(&o, 20, 0)?, m[..20]);
        recv(&o, 99, 0).map(bytes)
    });
    p.t("gcm bad tag", |s| {
        let (o, mut d) = sealed(s, 36)?;
        d[35] ^= 1;
        sendmsg(&o, &d, &open(4), 0)?;
        assert_eq!(recv(&o, 20, 0), Err(Errno::EBADMSG));
        recv(&o, 99, 0).map(bytes)
    });
    p.t("gcm usable after EBADMSG", |s| {
        let (o, mut d) = sealed(s, 36)?;
        d[35] ^= 1;
        sendmsg(&o, &d, &open(4), 0)?;
        assert_eq!(recv(&o, 99, 0), Err(Errno::EBADMSG));
        sendmsg(&o, &m[..20], &seal(4), 0)?;
        recv(&o, 99, 0).map(bytes)
    });
    p.t("gcm dec too short", |s| {
        let o = gcm(s);
        sendmsg(&o, &m[..19], &open(4), 0)?;
        recv(&o, 99, 0).map(bytes)
    });
    p.t("gcm aad longer than data", |s| {
        let o = gcm(s);
        sendmsg(&o, &m[..3], &seal(4), 0)?;
        recv(&o, 99, 0).map(bytes)
    });
    p.t("gcm recv while MORE DONTWAIT", |s| {
        let o = gcm(s);
        sendmsg(&o, &m[..20], &seal(4), MORE)?;
        recv(&o, 99, DONTWAIT).map(bytes)
    });
    p.t("gcm empty pt+aad", |s| {
        let o = gcm(s);
        sendmsg(&o, &[], &seal(0), 0)?;
        recv(&o, 99, 0).map(bytes)
    });
    p.t("gcm empty, MORE then \"\"", |s| {
        let o = gcm(s);
        sendmsg(&o, &[], &seal(0), MORE)?;
        send(&o, &[], 0)?;
        recv(&o, 99, 0).map(bytes)
    });
    p.t("gcm iv 16", |s| sendmsg(&gcm(s), &m, &control(Some(1), Some(&I), Some(0)), 0).map(|n| n.to_string()));
    p.t("gcm readv split", |s| {
        let o = gcm(s);
        let msg = SendMsg { data: &[&m[..4], &m[4..20]], control: &seal(4), ..SendMsg::default() };
        let n = o.sendmsg(TASK, &msg)?;
        let (mut a, mut b, mut c) = ([0; 4], [0; 16], [0; 16]);
        let got = o.recvmsg(TASK, &mut [&mut a, &mut b, &mut c], 0)?;
        assert_eq!([&a[..], &b, &c].concat(), sealed(s, 36)?.1);
        Ok(format!("({n}, {})", got.len))
    });
    p.t("  gcm nokey send", |s| sendmsg(&*op(s, "aead", "gcm(aes)")?, &m, &seal(0), 0).map(|n| n.to_string()));
    p.t("gcm nokey", |_| Ok("None".to_owned()));
}

fn generators(p: &mut Probe) {
    p.t("rng stdrng 16", |s| recv(&*op(s, "rng", "stdrng")?, 16, 0).map(|d| d.len().to_string()));
    p.t("rng recv 200 -> cap", |s| recv(&*op(s, "rng", "stdrng")?, 200, 0).map(|d| d.len().to_string()));
    p.t("rng drbg seed", |s| {
        let t = bound(s, "rng", "drbg_nopr_sha256")?;
        set_key(&t, &[0; 48])?;
        recv(&*t.accept(TASK)?, 16, 0).map(|d| d.len().to_string())
    });
    p.t("rng ansi_cprng no seed", |s| recv(&*op(s, "rng", "ansi_cprng")?, 16, 0).map(|d| d.len().to_string()));
    p.t("rng send", |s| send(&*op(s, "rng", "stdrng")?, b"x", 0).map(|n| n.to_string()));
    p.t("rng poll", |s| Ok(op(s, "rng", "stdrng")?.poll().0.to_string()));
    p.t("rng setentropy", |s| {
        none(bound(s, "rng", "drbg_nopr_sha256")?.setsockopt(TASK, SOL_ALG, 6, Some(&[0; 16]), 16, PRIVILEGED))
    });
    p.t("rng accept on op", |s| op(s, "rng", "stdrng")?.accept(TASK).map(|_| "made".to_owned()));
}

/// The lines of the probe when keys are in `home`, if there is one.
fn lines(profile: Profile, home: Option<Arc<FakeHome>>) -> Vec<(String, String)> {
    let sys = system_with(profile, home);
    let mut p = Probe { sys, lines: Vec::new() };
    create_and_bind(&mut p);
    hashes(&mut p);
    keys(&mut p);
    cbc_messages(&mut p);
    other_ciphers(&mut p);
    aeads(&mut p);
    generators(&mut p);
    p.lines
}

fn exam(profile: Profile, reference: &str) {
    let printed = lines(profile, None);
    // Nobody can tell where a key is.
    let home = Arc::new(FakeHome::default());
    assert_eq!(lines(profile, Some(home.clone())), printed, "{profile}, with keys at home");
    assert!(home.kept() > 50, "{profile}: {} keys were kept", home.kept());
    let mut differences = Vec::new();
    for line in reference.lines() {
        let (name, want) = line.split_at_checked(58).unwrap_or((line, ""));
        let name = name.trim_end();
        if NOT_OURS.contains(&name) {
            continue;
        }
        match printed.iter().find(|(n, _)| n == name || n.trim_end() == name) {
            Some((_, got)) if got == want.trim() => {}
            Some((_, got)) => differences.push(format!("{name}: kernel {} engine {got}", want.trim())),
            None => differences.push(format!("{name}: not tried")),
        }
    }
    assert!(differences.is_empty(), "{profile}:\n{}", differences.join("\n"));
}

#[test]
fn like_linux_6_1() {
    exam(Profile::Linux6_1, include_str!("../data/af_alg_linux-6.1.txt"));
}

#[test]
fn like_linux_6_12() {
    exam(Profile::Linux6_12, include_str!("../data/af_alg_linux-6.12.txt"));
}

#[test]
fn like_linux_7_3() {
    exam(Profile::Linux7_3, include_str!("../data/af_alg_linux-7.3.txt"));
}
