//! Sequences of TCP-AO socket options, of connect() and of accepted connections in a namespace, made from the input's
//! bytes. For any sequence there is no panic; a refused call changes nothing except what Linux changes when it refuses
//! to delete a key in use; keys with overlapping peers never share an id; the current and the rnext key exist; a list
//! is not longer than its buffer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_abi::tcp::{State, TCP_AO_DEL_KEY, TCP_AO_GET_KEYS, TCP_MD5SIG, TCP_MD5SIG_EXT, TcpAoGetsockopt};
use sealane_abi::{Errno, Profile};
use sealane_engine_ao::{Accepted, Answer, Family, Interfaces, Namespace, RepairSeqs, SocketFacts, SocketId};
use sealane_fuzz::{Input, registry};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::info::{AoInfo, Child, Conn};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;
use zerocopy::{FromZeros, IntoBytes};

const SOCKETS: u8 = 4;

struct Vrfs;

impl Interfaces for Vrfs {
    /// Device 7 is a VRF, and device 8 is in it.
    fn vrf(&self, ifindex: i32) -> i32 {
        if matches!(ifindex, 7 | 8) { 7 } else { 0 }
    }
}

fn addr(choice: u8, family: Family) -> SocketAddr {
    let v4 = Ipv4Addr::new(10, 0, choice & 3, choice >> 6);
    let ip = match family {
        Family::V4 => IpAddr::V4(v4),
        Family::V6 if choice & 4 != 0 => IpAddr::V6(v4.to_ipv6_mapped()),
        Family::V6 => {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, u16::from(choice & 3), u16::from(choice >> 6)))
        }
    };
    SocketAddr::new(ip, 179)
}

fn facts(input: &mut Input<'_>) -> SocketFacts<'static> {
    let (a, b) = (input.byte(), input.byte());
    let family = if a & 1 == 0 { Family::V4 } else { Family::V6 };
    let state = match (a >> 1) & 7 {
        0..=3 => State::Close,
        4 => State::Listen,
        5 => State::SynSent,
        _ => State::Established,
    };
    SocketFacts {
        family,
        state,
        local: (a & 0x10 != 0).then(|| addr(1, family)),
        peer: (state == State::Established).then(|| addr(b, family)),
        v6only: false,
        bound_ifindex: if a & 0x20 != 0 { 7 } else { 0 },
        repair: (a & 0x40 != 0).then(|| RepairSeqs { send: b.into(), receive: 7 }),
        net_admin: a & 0x80 == 0,
        interfaces: &Vrfs,
    }
}

/// Returns everything that a program can see of a socket, keys included.
fn seen(ns: &Namespace, id: SocketId) -> Option<Vec<u8>> {
    let info = ns.info(id)?;
    let mut out = vec![u8::from(info.ao_required), u8::from(info.accept_icmps)];
    for n in [info.counters.good, info.counters.bad, info.counters.key_not_found, info.counters.required] {
        out.extend(n.to_le_bytes());
    }
    for (r, k) in info.keys().iter() {
        out.extend([u8::from(info.current() == Some(r)), u8::from(info.rnext() == Some(r))]);
        out.extend([k.mkt.send_id, k.mkt.recv_id, k.mkt.peer.len, k.mkt.mac_len as u8]);
        out.extend_from_slice(k.mkt.key());
    }
    Some(out)
}

fn check(info: &AoInfo) {
    for key in [info.current(), info.rnext()].into_iter().flatten() {
        assert!(info.key(key).is_some(), "a key in use is gone");
    }
    let keys: Vec<_> = info.keys().iter().collect();
    assert_eq!(keys.len(), info.keys().len());
    for (i, (_, a)) in keys.iter().enumerate() {
        for (_, b) in &keys[..i] {
            let shared = a.mkt.send_id == b.mkt.send_id || a.mkt.recv_id == b.mkt.recv_id;
            // When it is added, a key without a VRF counts as one of the default VRF, as in Linux.
            let vrf = a.mkt.ifindex.unwrap_or(0) == b.mkt.ifindex.unwrap_or(0);
            assert!(!(shared && vrf && a.mkt.peer.overlaps(&b.mkt.peer)), "ids overlap");
        }
    }
}

fn check_answer(ns: &Namespace, id: SocketId, name: i32, answer: &Answer, asked: &[u8], optlen: i32) {
    let len = optlen as usize;
    if name != TCP_AO_GET_KEYS {
        assert!(answer.last.is_none() && answer.optlen.is_none());
        assert!(answer.writes.iter().all(|w| w.offset == 0 && w.bytes.len() <= len));
        return;
    }
    let mut fields = TcpAoGetsockopt::new_zeroed();
    let given = asked.len().min(304).min(len);
    fields.as_mut_bytes()[..given].copy_from_slice(&asked[..given]);
    let room = fields.nkeys.get() as usize * len;
    assert!(answer.writes.iter().all(|w| w.offset + w.bytes.len() <= room));
    let last = answer.last.as_ref().expect("the count");
    let count = u32::from_ne_bytes(last.bytes[..].try_into().expect("a word")) as usize;
    let keys = ns.info(id).expect("listed").keys().len();
    assert!(last.offset == TcpAoGetsockopt::NKEYS_AT && count <= keys);
    assert!(fields.flags.get() != TcpAoGetsockopt::GET_ALL || count == keys);
}

fn step(ns: &mut Namespace, input: &mut Input<'_>) {
    let op = input.byte();
    let id = SocketId(u64::from(op >> 4 & (SOCKETS - 1)));
    let facts = facts(input);
    let name = 38 + i32::from(input.byte() % 5);
    match op & 15 {
        0..=6 => {
            let optlen = input.word() as i16;
            let bytes = input.take(input.0.len().min(400).min(optlen.max(0) as usize));
            let before = seen(ns, id);
            let done = ns.setsockopt(id, &facts, name, bytes, optlen.into());
            let reordered = name == TCP_AO_DEL_KEY && done == Err(Errno::EBUSY);
            assert!(done.is_ok() || reordered || seen(ns, id) == before, "{done:?} has changed the socket");
        }
        7..=9 => {
            let optlen = input.word() as i16;
            let bytes = input.take(input.0.len().min(400).min(optlen.max(0) as usize));
            if let Ok(answer) = ns.getsockopt(id, &facts, name, bytes, optlen.into()) {
                check_answer(ns, id, name, &answer, bytes, optlen.into());
            }
        }
        10 => {
            let name = if input.byte() & 1 == 0 { TCP_MD5SIG } else { TCP_MD5SIG_EXT };
            let refused = input.byte() == 0;
            let bytes = input.take(216);
            let kernel = || if refused { Err(Errno::EINVAL) } else { Ok(()) };
            let _ = ns.md5_setsockopt(id, &facts, name, bytes, bytes.len() as i32, kernel);
        }
        11 | 12 => {
            let peer = addr(input.byte(), facts.family);
            let before = seen(ns, id);
            let may = ns.connect(id, &facts, peer);
            assert_eq!(seen(ns, id), before, "nothing has happened yet");
            let after = input.byte();
            if after & 1 != 0 && may.is_ok() {
                ns.syn_sent(id, addr(9, facts.family), peer, 77);
            }
            let answer = match (may, after & 6) {
                (Err(e), _) => Err(e),
                (Ok(()), 0) => Ok(()),
                (Ok(()), 2) => Err(Errno::EINPROGRESS),
                (Ok(()), _) => Err(Errno::ENETUNREACH),
            };
            let _ = ns.connect_done(id, &facts, answer);
        }
        13 => {
            let (remote, child) = (addr(input.byte(), facts.family), SocketId(u64::from(input.byte() % SOCKETS)));
            let conn = Conn::new(addr(1, facts.family), remote, 1, 2);
            let handshake = Child { conn, ifindex: 0, key_id: input.byte(), rnext_key_id: input.byte() };
            if child != id && ns.accepted(&Accepted { listener: id, child, handshake }).is_ok() {
                let info = ns.info(child).expect("a child has keys");
                assert!(info.current().is_some() && info.rnext().is_some() && !info.keys().is_empty());
            }
        }
        14 => ns.disconnect(id),
        _ => drop(ns.closed(id)),
    }
    if let Some(info) = ns.info(id) {
        check(info);
    }
}

fuzz_target!(|data: &[u8]| {
    static REGISTRY: LazyLock<sealane_crypto::Registry> = LazyLock::new(registry);
    let mut input = Input(data);
    let profile = [Profile::Open, Profile::Linux7_3, Profile::Linux6_12][usize::from(input.byte() % 3)];
    let mut ns = Namespace::new(profile, Algorithms::new(&REGISTRY));
    // Few keys, because the check of all pairs is quadratic.
    ns.set_optmem_max(1 << 14);
    while !input.is_empty() {
        step(&mut ns, &mut input);
    }
});
