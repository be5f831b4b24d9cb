//! TCP-AO's socket options, case by case. Random sequences of them against real kernels are in the package
//! `conformance`.

use sealane_abi::tcp::{
    SockaddrStorage, State, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY, TCP_AO_GET_KEYS, TCP_AO_INFO, TCP_AO_KEYF_IFINDEX,
    TCP_AO_REPAIR, TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_MD5SIG_FLAG_PREFIX, TcpAoAdd, TcpAoDel, TcpAoGetsockopt,
    TcpAoInfoOpt, TcpAoRepair, TcpMd5sig,
};
use sealane_abi::{Errno, Profile};
use sealane_crypto::Registry;
use sealane_engine_ao::{
    Accepted, Answer, Family, Interfaces, Namespace, NoVrfs, OPTMEM_MAX, RepairSeqs, SocketFacts, SocketId,
};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::info::{Child, Conn};
use std::net::{Ipv4Addr, SocketAddr};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const A: SocketId = SocketId(1);
const B: SocketId = SocketId(2);
const KEY: &[u8] = b"password";

fn namespace(profile: Profile) -> Namespace {
    let registry = Registry::builder(sealane_crypto_portable::self_test).rows(sealane_crypto_portable::rows()).build();
    Namespace::new(profile, Algorithms::new(&registry))
}

/// A fresh socket of a privileged program.
fn facts() -> SocketFacts<'static> {
    SocketFacts {
        family: Family::V4,
        state: State::Close,
        local: None,
        peer: None,
        v6only: false,
        bound_ifindex: 0,
        repair: None,
        net_admin: true,
        interfaces: &NoVrfs,
    }
}

fn v6() -> SocketFacts<'static> {
    SocketFacts { family: Family::V6, ..facts() }
}

fn listening() -> SocketFacts<'static> {
    SocketFacts { state: State::Listen, ..facts() }
}

fn to(peer: &str) -> SocketAddr {
    peer.parse().unwrap()
}

fn established(peer: &str) -> SocketFacts<'static> {
    SocketFacts { state: State::Established, local: Some(to("10.0.0.1:179")), peer: Some(to(peer)), ..facts() }
}

fn add(alg: &str, addr: &str, prefix: u8, (sndid, rcvid): (u8, u8)) -> TcpAoAdd {
    let mut a = TcpAoAdd::new_zeroed();
    a.addr = SockaddrStorage::new(addr.parse().unwrap());
    a.alg_name[..alg.len()].copy_from_slice(alg.as_bytes());
    (a.prefix, a.sndid, a.rcvid, a.keylen) = (prefix, sndid, rcvid, KEY.len() as u8);
    a.key[..KEY.len()].copy_from_slice(KEY);
    a
}

fn sha1(addr: &str, prefix: u8, ids: (u8, u8)) -> TcpAoAdd {
    add("hmac(sha1)", addr, prefix, ids)
}

fn del(addr: &str, prefix: u8, (sndid, rcvid): (u8, u8)) -> TcpAoDel {
    let mut d = TcpAoDel::new_zeroed();
    d.addr = SockaddrStorage::new(addr.parse().unwrap());
    (d.prefix, d.sndid, d.rcvid) = (prefix, sndid, rcvid);
    d
}

fn set(ns: &mut Namespace, f: SocketFacts<'_>, name: i32, value: &impl Bytes) -> Result<(), Errno> {
    set_on(ns, A, f, name, value)
}

fn set_on(ns: &mut Namespace, id: SocketId, f: SocketFacts<'_>, name: i32, v: &impl Bytes) -> Result<(), Errno> {
    let bytes = v.bytes();
    ns.setsockopt(id, &f, name, bytes, bytes.len() as i32)
}

/// Bytes of a struct or of a slice.
trait Bytes {
    fn bytes(&self) -> &[u8];
}

macro_rules! structs {
    ($($t:ty),*) => { $(impl Bytes for $t { fn bytes(&self) -> &[u8] { self.as_bytes() } })* };
}
structs!(TcpAoAdd, TcpAoDel, TcpAoInfoOpt, TcpAoRepair);

fn info(flags: u32) -> TcpAoInfoOpt {
    let mut i = TcpAoInfoOpt::new_zeroed();
    i.flags.set(flags);
    i
}

/// The contents after getsockopt of a buffer of `size` bytes that held `input`.
fn apply(answer: &Answer, input: &[u8], size: usize) -> Vec<u8> {
    let mut out = input.to_vec();
    out.resize(size, 0xee);
    for w in answer.optval() {
        out[w.offset..w.offset + w.bytes.len()].copy_from_slice(&w.bytes);
    }
    out
}

fn get_info(ns: &Namespace, id: SocketId) -> Result<TcpAoInfoOpt, Errno> {
    let answer = ns.getsockopt(id, &facts(), TCP_AO_INFO, &[0; 48], 48)?;
    assert_eq!(answer.optlen, None);
    Ok(TcpAoInfoOpt::read_from_bytes(&apply(&answer, &[], 48)).unwrap())
}

/// All keys: SendID, RecvID, and whether each is the current and the rnext key.
fn all_keys(ns: &Namespace, id: SocketId) -> Vec<(u8, u8, bool, bool)> {
    let mut asked = TcpAoGetsockopt::new_zeroed();
    asked.flags.set(TcpAoGetsockopt::GET_ALL);
    asked.nkeys.set(1000);
    let answer = ns.getsockopt(id, &facts(), TCP_AO_GET_KEYS, asked.as_bytes(), 304).unwrap();
    let count = u32::from_ne_bytes(answer.last.as_ref().unwrap().bytes[..].try_into().unwrap()) as usize;
    let out = apply(&answer, asked.as_bytes(), 304 * count.max(1));
    out.chunks_exact(304)
        .take(count)
        .map(|e| {
            let e = TcpAoGetsockopt::ref_from_bytes(e).unwrap();
            let flag = |f| e.flags.get() & f != 0;
            (e.sndid, e.rcvid, flag(TcpAoGetsockopt::IS_CURRENT), flag(TcpAoGetsockopt::IS_RNEXT))
        })
        .collect()
}

#[test]
fn what_a_key_may_be() {
    let mut ns = namespace(Profile::Linux7_3);
    let mut try_ = |f, change: &dyn Fn(&mut TcpAoAdd)| {
        let mut a = sha1("10.0.0.2", 32, (1, 1));
        change(&mut a);
        let answer = set(&mut ns, f, TCP_AO_ADD_KEY, &a);
        ns.closed(A);
        answer
    };
    let addr = |s: &str| SockaddrStorage::new(s.parse().unwrap());
    assert_eq!(try_(facts(), &|_| ()), Ok(()));
    assert_eq!(try_(facts(), &|a| a.keylen = 81), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), &|a| a.flags.set(4)), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), &|a| a.reserved2.set(1)), Err(Errno::EINVAL));
    assert_eq!(try_(v6(), &|_| ()), Err(Errno::EINVAL), "family of the socket");
    assert_eq!(try_(facts(), &|a| a.addr = a.addr.with_port(179)), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), &|a| a.prefix = 33), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), &|a| a.prefix = 30), Err(Errno::EINVAL), "bits behind the prefix");
    assert_eq!(try_(facts(), &|a| a.prefix = 31), Ok(()));
    assert_eq!(try_(facts(), &|a| a.prefix = 0), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), &|a| (a.prefix, a.addr) = (0, addr("0.0.0.0"))), Ok(()));
    assert_eq!(try_(facts(), &|a| a.addr = addr("0.0.0.0")), Err(Errno::EINVAL));
    assert_eq!(try_(established("10.0.0.2:5"), &|_| ()), Err(Errno::EISCONN));
    assert_eq!(try_(v6(), &|a| a.addr = addr("::ffff:10.0.0.2")), Ok(()));
    assert_eq!(try_(v6(), &|a| (a.prefix, a.addr) = (33, addr("::ffff:10.0.0.2"))), Err(Errno::EINVAL));
    assert_eq!(try_(v6(), &|a| (a.prefix, a.addr) = (64, addr("2001:db8::"))), Ok(()));
    assert_eq!(try_(v6(), &|a| (a.prefix, a.addr) = (64, addr("2001:db8::1"))), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), &|a| a.keyflags = 4), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), &|a| a.keyflags = 3), Ok(()));
    assert_eq!(try_(facts(), &|a| a.ifindex.set(1)), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), &|a| (a.keyflags = 1, a.ifindex.set(1)).1), Err(Errno::EINVAL), "no such VRF");
    assert_eq!(try_(facts(), &|a| a.maclen = 16), Ok(()));
    assert_eq!(try_(facts(), &|a| a.maclen = 17), Err(Errno::EMSGSIZE));
    assert_eq!(try_(facts(), &|a| a.flags.set(3)), Ok(()));
    assert_eq!(try_(listening(), &|a| a.flags.set(1)), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), &|a| a.alg_name[0] = b'x'), Err(Errno::ENOENT));
    assert_eq!(try_(facts(), &|a| a.keylen = 0), Ok(()));
}

#[test]
fn names_by_profile() {
    let case = |profile, alg: &str, keylen| {
        let mut a = add(alg, "10.0.0.2", 32, (1, 1));
        a.keylen = keylen;
        set(&mut namespace(profile), facts(), TCP_AO_ADD_KEY, &a)
    };
    let bird =
        ["hmac(md5)", "hmac(sha1)", "hmac(sha224)", "hmac(sha256)", "hmac(sha384)", "hmac(sha512)", "cmac(aes128)"];
    for alg in bird {
        let new = matches!(alg, "hmac(sha1)" | "hmac(sha256)" | "cmac(aes128)");
        assert_eq!(case(Profile::Linux7_3, alg, 8), if new { Ok(()) } else { Err(Errno::ENOENT) }, "{alg}");
        assert_eq!(case(Profile::Linux6_12, alg, 8), Ok(()), "{alg}");
        assert_eq!(case(Profile::Open, alg, 8), Ok(()), "{alg}");
        assert_eq!(case(Profile::Linux6_1, alg, 8), Err(Errno::ENOPROTOOPT), "{alg}");
    }
    // Linux 6.12 has the first ones (asked); the others only with more modules than that kernel has here.
    for alg in [
        "hmac(sha3-224)",
        "hmac(sha3-256)",
        "hmac(sha3-384)",
        "hmac(sha3-512)",
        "hmac(rmd160)",
        "hmac(sm3)",
        "hmac(streebog256)",
        "hmac(streebog512)",
        "hmac(wp512)",
        "hmac(blake2b-160)",
        "hmac(blake2b-256)",
        "hmac(blake2b-384)",
        "hmac(blake2b-512)",
    ] {
        assert_eq!(case(Profile::Linux7_3, alg, 8), Err(Errno::ENOENT), "{alg}");
        assert_eq!([Profile::Linux6_12, Profile::Open].map(|profile| case(profile, alg, 8)), [Ok(()); 2], "{alg}");
    }
    for weak in ["hmac(md4)", "cbcmac(aes)", "siphash24", "gmac(aes)", "poly1305", "crc32c"] {
        assert_eq!(case(Profile::Open, weak, 16), Err(Errno::ENOENT), "{weak}");
    }
    for (profile, other) in
        [(Profile::Open, Errno::ENOENT), (Profile::Linux7_3, Errno::ENOENT), (Profile::Linux6_12, Errno::EINVAL)]
    {
        assert_eq!(case(profile, "cmac(aes)", 16), Ok(()));
        assert_eq!(case(profile, "cmac(aes)", 15), Err(other));
    }
    assert_eq!(case(Profile::Open, "hmac-sha256-128", 8), Ok(()));
    assert_eq!(case(Profile::Linux6_12, "hmac-sha256-128", 8), Err(Errno::ENOENT));
}

#[test]
fn bytes_behind_a_struct() {
    let mut ns = namespace(Profile::Linux7_3);
    let mut bytes = sha1("10.0.0.2", 32, (1, 1)).as_bytes().to_vec();
    let mut call = |bytes: &[u8], len| ns.setsockopt(A, &facts(), TCP_AO_ADD_KEY, bytes, len);
    assert_eq!(call(&bytes, -1), Err(Errno::EINVAL));
    assert_eq!(call(&bytes, 3), Err(Errno::EINVAL));
    assert_eq!(call(&bytes[..3], 288), Err(Errno::EFAULT));
    assert_eq!(call(&bytes, 287), Err(Errno::EINVAL));
    assert_eq!(call(&bytes[..287], 288), Err(Errno::EFAULT));
    bytes.push(0);
    assert_eq!(call(&bytes, 289), Ok(()));
    bytes[288] = 1;
    assert_eq!(call(&bytes, 289), Err(Errno::E2BIG));
    assert_eq!(namespace(Profile::Linux6_12).setsockopt(A, &facts(), TCP_AO_ADD_KEY, &bytes, 289), Ok(()));
}

#[test]
fn ids_must_not_overlap() {
    let mut ns = namespace(Profile::Open);
    let mut try_ = |a| set(&mut ns, facts(), TCP_AO_ADD_KEY, &a);
    assert_eq!(try_(sha1("10.0.0.0", 8, (1, 2))), Ok(()));
    assert_eq!(try_(sha1("10.1.0.0", 16, (1, 3))), Err(Errno::EEXIST), "SendID");
    assert_eq!(try_(sha1("10.1.0.0", 16, (3, 2))), Err(Errno::EEXIST), "RecvID");
    assert_eq!(try_(sha1("0.0.0.0", 0, (1, 3))), Err(Errno::EEXIST));
    assert_eq!(try_(sha1("11.0.0.0", 8, (1, 2))), Ok(()), "other peers");
    assert_eq!(try_(sha1("10.1.0.0", 16, (2, 1))), Ok(()), "SendID and RecvID are apart");
}

struct Vrfs;

impl Interfaces for Vrfs {
    /// 7 is a VRF, 8 a device in it, 9 in none.
    fn vrf(&self, ifindex: i32) -> i32 {
        if matches!(ifindex, 7 | 8) { 7 } else { 0 }
    }
}

#[test]
fn keys_of_vrfs() {
    let f = SocketFacts { interfaces: &Vrfs, ..facts() };
    for profile in [Profile::Linux7_3, Profile::Linux6_12] {
        let mut ns = namespace(profile);
        let in_vrf = |ifindex, ids| {
            let mut a = sha1("10.0.0.2", 32, ids);
            a.keyflags = TCP_AO_KEYF_IFINDEX;
            a.ifindex.set(ifindex);
            a
        };
        assert_eq!(set(&mut ns, f, TCP_AO_ADD_KEY, &in_vrf(8, (1, 1))), Err(Errno::EINVAL), "in a VRF, none itself");
        assert_eq!(set(&mut ns, f, TCP_AO_ADD_KEY, &in_vrf(7, (1, 1))), Ok(()));
        assert_eq!(set(&mut ns, f, TCP_AO_ADD_KEY, &in_vrf(0, (1, 1))), Ok(()), "the default VRF is another one");
        assert_eq!(set(&mut ns, f, TCP_AO_ADD_KEY, &sha1("10.0.0.2", 32, (1, 2))), Err(Errno::EEXIST));
        let mut d = del("10.0.0.2", 32, (1, 1));
        d.keyflags = TCP_AO_KEYF_IFINDEX;
        d.ifindex.set(7);
        let found = if profile == Profile::Linux7_3 { 0 } else { 7 };
        assert_eq!(set(&mut ns, f, TCP_AO_DEL_KEY, &d), Ok(()));
        let left: Vec<_> = ns.info(A).unwrap().keys().iter().map(|(_, k)| k.mkt.ifindex).collect();
        assert_eq!(left, [Some(found)], "6.12 ignores the VRF and takes the one of the default");
    }
}

#[test]
fn deletion() {
    let mut ns = namespace(Profile::Linux7_3);
    assert_eq!(set(&mut ns, facts(), TCP_AO_DEL_KEY, &del("10.0.0.2", 32, (1, 1))), Err(Errno::ENOENT), "no key yet");
    for id in 1..=4 {
        set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1("10.0.0.2", 32, (id, id + 10))).unwrap();
    }
    let mut i = info(TcpAoInfoOpt::SET_CURRENT | TcpAoInfoOpt::SET_RNEXT);
    (i.current_key, i.rnext) = (1, 12);
    set(&mut ns, facts(), TCP_AO_INFO, &i).unwrap();
    let mut try_ = |f, d: TcpAoDel| set(&mut ns, f, TCP_AO_DEL_KEY, &d);
    assert_eq!(try_(facts(), del("10.0.0.2", 31, (3, 13))), Err(Errno::ENOENT), "another prefix");
    assert_eq!(try_(facts(), del("10.0.0.2", 32, (3, 14))), Err(Errno::ENOENT), "the ids of two keys");
    assert_eq!(try_(facts(), del("10.0.0.2", 32, (1, 11))), Err(Errno::EBUSY), "the current key");
    let change = |flags, (current, rnext), ids| {
        let mut d = del("10.0.0.2", 32, ids);
        d.flags.set(flags);
        (d.current_key, d.rnext) = (current, rnext);
        d
    };
    let (current, rnext) = (TcpAoDel::SET_CURRENT, TcpAoDel::SET_RNEXT);
    assert_eq!(try_(facts(), change(current, (9, 0), (1, 11))), Err(Errno::ENOENT), "no such current key");
    assert_eq!(try_(facts(), change(rnext, (0, 9), (1, 11))), Err(Errno::ENOENT));
    assert_eq!(try_(facts(), change(current, (1, 0), (1, 11))), Err(Errno::ENOENT), "becomes current and goes");
    assert_eq!(try_(listening(), change(current, (4, 0), (3, 13))), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), change(TcpAoDel::DEL_ASYNC, (0, 0), (3, 13))), Err(Errno::EINVAL));
    assert_eq!(try_(facts(), change(current, (4, 0), (1, 11))), Ok(()));
    assert_eq!(try_(facts(), change(current, (3, 0), (2, 12))), Err(Errno::EBUSY), "the rnext key");
    // The refused call has changed the current key and the order nevertheless.
    assert_eq!(all_keys(&ns, A), [(2, 12, false, true), (4, 14, false, false), (3, 13, true, false)]);
    let d = change(TcpAoDel::DEL_ASYNC, (0, 0), (2, 12));
    assert_eq!(set(&mut ns, listening(), TCP_AO_DEL_KEY, &d), Ok(()));
    assert_eq!(get_info(&ns, A).unwrap().flags.get(), TcpAoInfoOpt::SET_CURRENT);
}

#[test]
fn socket_settings() {
    let mut ns = namespace(Profile::Linux7_3);
    assert_eq!(get_info(&ns, A).err(), Some(Errno::ENOENT));
    let mut i = info(TcpAoInfoOpt::AO_REQUIRED | TcpAoInfoOpt::SET_COUNTERS);
    i.pkt_bad.set(7);
    i.pkt_dropped_icmp.set(9);
    assert_eq!(set(&mut ns, established("10.0.0.2:5"), TCP_AO_INFO, &i), Err(Errno::EISCONN));
    assert_eq!(set(&mut ns, facts(), TCP_AO_INFO, &i), Ok(()));
    let got = get_info(&ns, A).unwrap();
    assert_eq!(got.flags.get(), TcpAoInfoOpt::AO_REQUIRED);
    assert_eq!((got.pkt_good.get(), got.pkt_bad.get(), got.pkt_dropped_icmp.get()), (0, 7, 9));
    // Without the flag counters stay, and the switches follow the call.
    assert_eq!(set(&mut ns, facts(), TCP_AO_INFO, &info(TcpAoInfoOpt::ACCEPT_ICMPS)), Ok(()));
    let got = get_info(&ns, A).unwrap();
    assert_eq!((got.flags.get(), got.pkt_bad.get()), (TcpAoInfoOpt::ACCEPT_ICMPS, 7));
    assert_eq!(set(&mut ns, facts(), TCP_AO_INFO, &info(TcpAoInfoOpt::SET_CURRENT)), Err(Errno::ENOENT));
    assert_eq!(set(&mut ns, listening(), TCP_AO_INFO, &info(TcpAoInfoOpt::SET_CURRENT)), Err(Errno::EINVAL));
    assert_eq!(set(&mut ns, facts(), TCP_AO_INFO, &info(32)), Err(Errno::EINVAL));
    let short = ns.getsockopt(A, &facts(), TCP_AO_INFO, &[0; 2], 2).unwrap();
    assert_eq!(apply(&short, &[], 3), [TcpAoInfoOpt::ACCEPT_ICMPS as u8, 0, 0xee]);
    assert_eq!(ns.getsockopt(A, &facts(), TCP_AO_INFO, &[0; 48], 0).err(), Some(Errno::EINVAL));
    assert_eq!(ns.getsockopt(A, &facts(), TCP_AO_INFO, &[0xff; 48], 48).err(), Some(Errno::EINVAL));
}

fn asked(flags: u16) -> TcpAoGetsockopt {
    let mut g = TcpAoGetsockopt::new_zeroed();
    g.flags.set(flags);
    g.nkeys.set(10);
    g
}

#[test]
fn listing_keys() {
    let mut ns = namespace(Profile::Linux7_3);
    assert_eq!(ns.getsockopt(A, &v6(), TCP_AO_GET_KEYS, &[], 0).err(), Some(Errno::ENOENT));
    let mut cmac = add("cmac(aes128)", "::ffff:10.0.0.0", 8, (1, 2));
    (cmac.maclen, cmac.keyflags) = (4, 2);
    set(&mut ns, v6(), TCP_AO_ADD_KEY, &cmac).unwrap();
    set(&mut ns, v6(), TCP_AO_ADD_KEY, &sha1("2001:db8::", 32, (1, 2))).unwrap();
    let get = |g: &TcpAoGetsockopt| {
        let answer = ns.getsockopt(A, &v6(), TCP_AO_GET_KEYS, g.as_bytes(), 304)?;
        assert_eq!(answer.optlen, Some(304));
        let out = apply(&answer, g.as_bytes(), 3 * 304);
        let count = TcpAoGetsockopt::ref_from_bytes(&out[..304]).unwrap().nkeys.get();
        Ok((count, TcpAoGetsockopt::read_from_bytes(&out[..304]).unwrap()))
    };
    let fails = |g: &TcpAoGetsockopt| get(g).err();

    // RFC 5926 section 3.1.1.2: a key of another length than 16 bytes is replaced by its CMAC.
    let mut by_addr = asked(0);
    by_addr.addr = SockaddrStorage::new("10.0.0.0".parse().unwrap());
    (by_addr.prefix, by_addr.sndid, by_addr.rcvid) = (16, 1, 2);
    let (count, key) = get(&by_addr).unwrap();
    assert_eq!((count, key.addr.family(), key.prefix, key.maclen, key.keyflags, key.keylen), (1, 2, 8, 4, 2, 16));
    assert_eq!(&key.alg_name[..10], b"cmac(aes)\0");
    assert_ne!(&key.key[..8], KEY);
    by_addr.addr = SockaddrStorage::new("::ffff:10.0.0.0".parse().unwrap());
    assert_eq!(get(&by_addr).unwrap().0, 1);
    by_addr.sndid = 0;
    assert_eq!(get(&by_addr).unwrap().0, 0, "0 is an id like others");

    assert_eq!(get(&asked(TcpAoGetsockopt::GET_ALL)).unwrap().0, 2);
    assert_eq!(get(&asked(TcpAoGetsockopt::IS_CURRENT)).unwrap().0, 0);
    assert_eq!(fails(&asked(0)), Some(Errno::EAFNOSUPPORT));
    assert_eq!(fails(&asked(5)), Some(Errno::EINVAL));
    assert_eq!(fails(&asked(8)), Some(Errno::EINVAL));
    let wrong = |change: &dyn Fn(&mut TcpAoGetsockopt)| {
        let mut g = asked(TcpAoGetsockopt::GET_ALL);
        change(&mut g);
        fails(&g)
    };
    assert_eq!(wrong(&|g| g.pkt_good.set(1)), Some(Errno::EINVAL));
    assert_eq!(wrong(&|g| g.keyflags = 2), Some(Errno::EINVAL));
    assert_eq!(wrong(&|g| g.sndid = 1), Some(Errno::EINVAL));
    assert_eq!(wrong(&|g| g.addr = SockaddrStorage::new("::".parse().unwrap())), Some(Errno::EINVAL));

    // Entries stand in the program's stride; the count goes where the field is, even beyond its entry.
    let mut g = asked(TcpAoGetsockopt::GET_ALL);
    g.nkeys.set(1);
    let answer = ns.getsockopt(A, &v6(), TCP_AO_GET_KEYS, g.as_bytes(), 304).unwrap();
    assert_eq!((answer.writes.len(), answer.writes[0].bytes.len()), (1, 304), "one fits");
    assert_eq!(answer.last.unwrap().bytes[..], 2u32.to_ne_bytes(), "two match");
    let answer = ns.getsockopt(A, &v6(), TCP_AO_GET_KEYS, asked(4).as_bytes(), 279).unwrap();
    assert_eq!(answer.writes[0].bytes.len(), 2 * 279);
    let long = [asked(4).as_bytes(), &[0; 6]].concat();
    let answer = ns.getsockopt(A, &v6(), TCP_AO_GET_KEYS, &long, 310).unwrap();
    assert_eq!(answer.writes.iter().map(|w| (w.offset, w.bytes.len())).collect::<Vec<_>>(), [(0, 304), (310, 304)]);
}

#[test]
fn connecting_picks_keys() {
    let mut ns = namespace(Profile::Linux7_3);
    for (addr, ids) in [("10.0.0.2", (1, 1)), ("10.0.0.3", (1, 1)), ("10.0.0.2", (2, 3))] {
        set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1(addr, 32, ids)).unwrap();
    }
    assert_eq!(ns.connect(A, &facts(), to("10.0.0.9:179")), Err(Errno::EKEYREJECTED));
    assert_eq!(ns.connect(A, &facts(), to("10.0.0.2:179")), Ok(()));
    assert_eq!(all_keys(&ns, A).len(), 3, "nothing has happened yet");
    assert_eq!(ns.connect_done(A, &facts(), Err(Errno::EADDRINUSE)), Ok(vec![]));
    assert_eq!(all_keys(&ns, A).len(), 3, "and did not");
    assert_eq!(ns.connect(A, &facts(), to("10.0.0.2:179")), Ok(()));
    assert_eq!(ns.connect_done(A, &facts(), Err(Errno::EINPROGRESS)), Ok(vec![]));
    assert_eq!(all_keys(&ns, A), [(2, 3, true, true), (1, 1, false, false)]);
    // Keys have to match the peer from now on, also after the connection.
    let other = sha1("10.0.0.3", 32, (5, 5));
    assert_eq!(set(&mut ns, facts(), TCP_AO_ADD_KEY, &other), Err(Errno::EINVAL));
    let mut more = sha1("10.0.0.2", 32, (6, 6));
    more.flags.set(TcpAoAdd::SET_RNEXT);
    assert_eq!(set(&mut ns, established("10.0.0.2:179"), TCP_AO_ADD_KEY, &more), Ok(()));
    assert_eq!(all_keys(&ns, A), [(6, 6, false, true), (2, 3, true, false), (1, 1, false, false)]);
}

#[test]
fn a_seen_syn_decides() {
    let mut ns = namespace(Profile::Linux7_3);
    for (addr, ids) in [("10.0.0.2", (1, 1)), ("10.0.0.3", (1, 1))] {
        set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1(addr, 32, ids)).unwrap();
    }
    ns.connect(A, &facts(), to("10.0.0.2:179")).unwrap();
    ns.syn_sent(A, to("10.0.0.1:5000"), to("10.0.0.2:179"), 77);
    assert_eq!(all_keys(&ns, A), [(1, 1, true, true)]);
    assert_eq!(ns.info(A).unwrap().conn().unwrap().lisn, 77);
    assert_eq!(ns.connect_done(A, &facts(), Err(Errno::ECONNREFUSED)), Ok(vec![]));
    assert_eq!(all_keys(&ns, A), [(1, 1, true, true)]);
}

fn md5(addr: &str, prefix: Option<u8>, keylen: u16) -> TcpMd5sig {
    let mut m = TcpMd5sig::new_zeroed();
    m.tcpm_addr = SockaddrStorage::new(addr.parse().unwrap());
    m.tcpm_keylen.set(keylen);
    if let Some(prefix) = prefix {
        (m.tcpm_flags, m.tcpm_prefixlen) = (TCP_MD5SIG_FLAG_PREFIX, prefix);
    }
    m
}

fn set_md5(ns: &mut Namespace, m: &TcpMd5sig) -> Result<(), Errno> {
    let name = if m.tcpm_flags == 0 { TCP_MD5SIG } else { TCP_MD5SIG_EXT };
    ns.md5_setsockopt(A, &facts(), name, m.as_bytes(), 216, || Ok(()))
}

#[test]
fn a_peer_has_keys_of_one_kind() {
    let mut ns = namespace(Profile::Linux7_3);
    set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1("10.0.0.0", 8, (1, 1))).unwrap();
    assert_eq!(set_md5(&mut ns, &md5("10.0.0.2", None, 5)), Err(Errno::EKEYREJECTED));
    assert_eq!(set_md5(&mut ns, &md5("10.0.0.2", None, 0)), Ok(()), "deleting asks nobody");
    assert_eq!(set_md5(&mut ns, &md5("11.0.0.0", Some(8), 5)), Ok(()));
    let asked = |ns: &mut Namespace| {
        let mut calls = 0;
        let m = md5("12.0.0.0", None, 81);
        let answer = ns.md5_setsockopt(A, &facts(), TCP_MD5SIG, m.as_bytes(), 216, || {
            calls += 1;
            Err(Errno::EINVAL)
        });
        (answer, calls)
    };
    assert_eq!(asked(&mut ns), (Err(Errno::EINVAL), 1), "what the kernel refuses is not remembered");
    assert_eq!(set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1("11.1.0.0", 16, (1, 1))), Err(Errno::EKEYREJECTED));
    assert_eq!(set(&mut ns, facts(), TCP_AO_INFO, &info(TcpAoInfoOpt::AO_REQUIRED)), Err(Errno::EKEYREJECTED));
    assert_eq!(set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1("12.0.0.0", 8, (1, 1))), Ok(()));
    // Wide keys of both kinds meet at one peer.
    assert_eq!(set_md5(&mut ns, &md5("10.0.0.0", Some(7), 5)), Err(Errno::EKEYREJECTED));
    assert_eq!(set_md5(&mut ns, &md5("8.0.0.0", Some(6), 5)), Ok(()));
    assert_eq!(ns.connect(A, &facts(), to("10.0.0.2:179")), Err(Errno::EKEYREJECTED));
    // With TCP-AO all MD5 keys go.
    assert_eq!(ns.connect(A, &facts(), to("12.0.0.2:179")), Ok(()));
    let dropped = ns.connect_done(A, &facts(), Ok(())).unwrap();
    assert_eq!(dropped.iter().map(|k| k.peer.len).collect::<Vec<_>>(), [8, 6]);
    assert_eq!(set(&mut ns, facts(), TCP_AO_INFO, &info(TcpAoInfoOpt::AO_REQUIRED)), Ok(()));
}

#[test]
fn md5_alone_ends_tcp_ao() {
    let mut ns = namespace(Profile::Linux7_3);
    set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1("10.0.0.2", 32, (1, 1))).unwrap();
    set_md5(&mut ns, &md5("10.0.0.3", None, 5)).unwrap();
    ns.connect(A, &facts(), to("10.0.0.3:179")).unwrap();
    assert!(ns.info(A).is_some());
    assert_eq!(ns.connect_done(A, &facts(), Err(Errno::EINPROGRESS)), Ok(vec![]));
    assert!(ns.info(A).is_none());
}

#[test]
fn a_child_inherits() {
    let mut ns = namespace(Profile::Linux7_3);
    for (addr, prefix, ids) in [("10.0.0.0", 8, (1, 11)), ("10.0.0.3", 32, (3, 13)), ("10.0.0.2", 32, (2, 12))] {
        set(&mut ns, listening(), TCP_AO_ADD_KEY, &sha1(addr, prefix, ids)).unwrap();
    }
    set(&mut ns, listening(), TCP_AO_INFO, &info(TcpAoInfoOpt::ACCEPT_ICMPS)).unwrap();
    let mut handshake = Child {
        conn: Conn::new(to("10.0.0.1:179"), to("10.0.0.2:5000"), 1, 2),
        ifindex: 0,
        key_id: 12,
        rnext_key_id: 1,
    };
    ns.accepted(&Accepted { listener: A, child: B, handshake }).unwrap();
    // The order is turned round; the SYN's RNextKeyID picks what is sent with, its KeyID what is asked for.
    assert_eq!(all_keys(&ns, B), [(1, 11, true, false), (2, 12, false, true)]);
    assert_eq!(get_info(&ns, B).unwrap().flags.get() & TcpAoInfoOpt::ACCEPT_ICMPS, TcpAoInfoOpt::ACCEPT_ICMPS);
    handshake.conn = Conn::new(to("10.0.0.1:179"), to("11.0.0.2:5000"), 1, 2);
    let child = SocketId(3);
    assert_eq!(ns.accepted(&Accepted { listener: A, child, handshake }), Err(Errno::EKEYREJECTED));
    assert!(ns.info(child).is_none());
}

#[test]
fn repair() {
    let mut ns = namespace(Profile::Linux7_3);
    let seqs = RepairSeqs { send: 1000, receive: 2000 };
    let mut f = SocketFacts { repair: Some(seqs), ..facts() };
    let isns = TcpAoRepair { snt_isn: 1.into(), rcv_isn: 2.into(), snd_sne: 3.into(), rcv_sne: 4.into() };
    let get = |ns: &Namespace, f: &SocketFacts<'_>| {
        let answer = ns.getsockopt(A, f, TCP_AO_REPAIR, &[], 16)?;
        Ok(TcpAoRepair::read_from_bytes(&apply(&answer, &[], 16)).unwrap())
    };
    assert_eq!(set(&mut ns, f, TCP_AO_REPAIR, &isns), Err(Errno::ENOENT));
    assert_eq!(get(&ns, &f), Err(Errno::ENOENT));
    set(&mut ns, f, TCP_AO_ADD_KEY, &sha1("10.0.0.2", 32, (1, 1))).unwrap();
    assert_eq!(set(&mut ns, SocketFacts { net_admin: false, ..f }, TCP_AO_REPAIR, &isns), Err(Errno::EPERM));
    assert_eq!(set(&mut ns, SocketFacts { state: State::Listen, ..f }, TCP_AO_REPAIR, &isns), Err(Errno::EPERM));
    assert_eq!(set(&mut ns, facts(), TCP_AO_REPAIR, &isns), Err(Errno::EPERM));
    assert_eq!(set(&mut ns, f, TCP_AO_REPAIR, &isns), Ok(()));
    assert_eq!(get(&ns, &f), Ok(isns));
    // In repair mode connect() makes the connection, from the sequence number that was set.
    ns.connect(A, &f, to("10.0.0.2:179")).unwrap();
    f = SocketFacts { repair: Some(seqs), ..established("10.0.0.2:179") };
    ns.connect_done(A, &f, Ok(())).unwrap();
    let want = TcpAoRepair { snt_isn: 1000.into(), rcv_isn: 2.into(), snd_sne: 0.into(), rcv_sne: 0.into() };
    assert_eq!(get(&ns, &f), Ok(want));
    assert_eq!(set(&mut ns, f, TCP_AO_REPAIR, &isns), Ok(()));
    assert_eq!(get(&ns, &f), Ok(isns));
    let conn = *ns.info(A).unwrap().conn().unwrap();
    assert_eq!((conn.snd.base, conn.snd.ext, conn.rcv.base, conn.rcv.ext), (1000, 3, 2000, 4));
    assert!(ns.info(A).unwrap().is_keyed());
    // An established connection may take keys in repair mode: the first one is current and rnext.
    assert_eq!(set_on(&mut ns, B, f, TCP_AO_ADD_KEY, &sha1("10.0.0.2", 32, (1, 1))), Ok(()));
    assert_eq!(all_keys(&ns, B), [(1, 1, true, true)]);
    assert_eq!(set_on(&mut ns, SocketId(3), f, TCP_AO_INFO, &info(0)), Err(Errno::EINVAL));
}

#[test]
fn option_memory() {
    let mut ns = namespace(Profile::Linux7_3);
    let fits = (0..).take_while(|n| {
        let addr = format!("10.{}.{}.2", n / 200, n % 200);
        set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1(&addr, 32, (1, 1))).is_ok()
    });
    // struct tcp_ao_key with two traffic keys of 20 bytes.
    assert_eq!(fits.count(), (OPTMEM_MAX - 1) / (168 + 40));
    let full = set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1("10.0.0.3", 32, (1, 1)));
    assert_eq!(full, Err(Errno::ENOMEM));
    set(&mut ns, facts(), TCP_AO_DEL_KEY, &del("10.0.0.2", 32, (1, 1))).unwrap();
    assert_eq!(set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1("10.0.0.3", 32, (1, 1))), Ok(()));
}

#[test]
fn names_without_a_setter_or_getter() {
    let mut ns = namespace(Profile::Linux7_3);
    let set = |ns: &mut Namespace, name| ns.setsockopt(A, &facts(), name, &[0; 304], 304);
    assert_eq!(set(&mut ns, TCP_AO_GET_KEYS), Err(Errno::ENOPROTOOPT));
    for name in [TCP_AO_ADD_KEY, TCP_AO_DEL_KEY] {
        assert_eq!(ns.getsockopt(A, &facts(), name, &[0; 304], 304).err(), Some(Errno::ENOPROTOOPT));
    }
}

#[test]
fn a_second_connect_does_not_undo_the_first() {
    let mut ns = namespace(Profile::Linux7_3);
    for addr in ["10.0.0.2", "10.0.0.3"] {
        set(&mut ns, facts(), TCP_AO_ADD_KEY, &sha1(addr, 32, (1, 1))).unwrap();
    }
    ns.connect(A, &facts(), to("10.0.0.2:179")).unwrap();
    // It is under way, and its SYN still waits to be seen.
    let sent = SocketFacts { state: State::SynSent, local: Some(to("10.0.0.1:5000")), ..facts() };
    assert_eq!(ns.connect(A, &sent, to("10.0.0.9:179")), Ok(()), "the kernel says that it is on its way");
    assert_eq!(all_keys(&ns, A), [(1, 1, true, true)]);
    // A later call comes to the same, also without the answer and the SYN.
    set_on(&mut ns, B, facts(), TCP_AO_ADD_KEY, &sha1("10.0.0.2", 32, (1, 1))).unwrap();
    ns.connect(B, &facts(), to("10.0.0.2:179")).unwrap();
    ns.adopt(B, &facts());
    assert_eq!(all_keys(&ns, B), [(1, 1, false, false)], "nothing is known yet");
    ns.adopt(B, &sent);
    assert_eq!(all_keys(&ns, B), [(1, 1, true, true)]);
}

#[test]
fn isns_begin_with_the_keys() {
    let mut ns = namespace(Profile::Linux7_3);
    let repair = Some(RepairSeqs { send: 2, receive: 0 });
    set_md5(&mut ns, &md5("10.0.0.9", None, 5)).unwrap();
    ns.connect(A, &SocketFacts { repair, ..facts() }, to("10.0.0.2:179")).unwrap();
    let f = SocketFacts { repair, ..established("10.0.0.2:179") };
    ns.connect_done(A, &f, Ok(())).unwrap();
    // The connection came first: the keys start without any ISN.
    set(&mut ns, f, TCP_AO_ADD_KEY, &sha1("10.0.0.2", 32, (1, 1))).unwrap();
    let answer = ns.getsockopt(A, &f, TCP_AO_REPAIR, &[], 16).unwrap();
    assert_eq!(apply(&answer, &[], 16), [0; 16]);
}

#[test]
fn a_hundred_thousand_keys() {
    // A listener with a key for each peer: no call on one key may look at all of them, or this takes minutes.
    const KEYS: u32 = 100_000;
    let mut ns = namespace(Profile::Open);
    for n in 0..KEYS {
        let addr = Ipv4Addr::from_bits(0x0a00_0000 + n * 3);
        set(&mut ns, listening(), TCP_AO_ADD_KEY, &sha1(&addr.to_string(), 32, (1, 1))).unwrap();
    }
    let clash = sha1("10.0.0.0", 8, (1, 2));
    assert_eq!(set(&mut ns, listening(), TCP_AO_ADD_KEY, &clash), Err(Errno::EEXIST));
    let mut all = asked(TcpAoGetsockopt::GET_ALL);
    all.nkeys.set(KEYS);
    let answer = ns.getsockopt(A, &listening(), TCP_AO_GET_KEYS, all.as_bytes(), 304).unwrap();
    assert_eq!(answer.writes[0].bytes.len(), 304 * KEYS as usize);
    for n in (0..KEYS).step_by(2) {
        let addr = Ipv4Addr::from_bits(0x0a00_0000 + n * 3);
        set(&mut ns, listening(), TCP_AO_DEL_KEY, &del(&addr.to_string(), 32, (1, 1))).unwrap();
    }
    assert_eq!(ns.info(A).unwrap().keys().len(), KEYS as usize / 2);
}
