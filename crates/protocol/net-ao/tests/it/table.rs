//! The key list against a plain one, and at the size of a route reflector.

use crate::common::{mkt, spec};
use crate::random::Random;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use sealane_net_ao::endpoint::{Endpoint, EndpointState};
use sealane_net_ao::info::{AoInfo, Child, Conn};
use sealane_net_ao::input::{Class, classify, settle};
use sealane_net_ao::mac::{Checksum, Sign, Verify, sign, verify};
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net_ao::output::{Choice, choose};
use sealane_net_ao::segment::insert;
use sealane_net_ao::table::{Ids, KeyRef, KeyTable};
use sealane_wire::tcp::{Flags, Segment};
use std::collections::HashMap;
use std::sync::Arc;

/// The kernel's list: newest first, walked from the front.
#[derive(Default)]
struct Plain(Vec<(KeyRef, Arc<Mkt>)>);

impl Plain {
    fn find(&self, wanted: impl Fn(&Mkt) -> bool) -> Option<KeyRef> {
        self.0.iter().find(|(_, mkt)| wanted(mkt)).map(|(r, _)| *r)
    }
}

/// Few bits, so that prefixes nest and meet.
fn some_prefix(random: &mut Random) -> Prefix {
    if random.one_in(3) {
        let len = [0, 16, 32, 64, 127, 128][random.below(6)];
        let addr = u128::from(random.next() as u16 & 0x8181) << 112 | u128::from(random.next() & 1);
        let addr = if len == 0 { 0 } else { (addr | 1 << 127) >> (128 - len) << (128 - len) };
        Prefix { addr: IpAddr::V6(Ipv6Addr::from_bits(addr)), len }
    } else {
        let len = [0, 1, 8, 24, 31, 32][random.below(6)];
        let addr = (random.next() as u32 & 0x8100_0181) | 1 << 31;
        let addr = if len == 0 { 0 } else { addr >> (32 - len) << (32 - len) };
        Prefix { addr: IpAddr::V4(Ipv4Addr::from_bits(addr)), len }
    }
}

fn some_ids(random: &mut Random) -> Ids {
    let mut ids = Ids::default();
    if random.one_in(2) {
        ids.ifindex = Some(random.below(3) as i32);
    }
    if random.one_in(2) {
        ids.send_id = Some(random.below(4) as u8);
    }
    if random.one_in(2) {
        ids.recv_id = Some(random.below(4) as u8);
    }
    ids
}

#[test]
fn answers_as_a_plain_list_does() {
    let mut random = Random(7);
    let peers: [IpAddr; 6] = [
        "128.0.0.1".parse().unwrap(),
        "129.0.1.128".parse().unwrap(),
        "::ffff:129.0.0.1".parse().unwrap(),
        "8000::1".parse().unwrap(),
        "8181::".parse().unwrap(),
        "0.0.0.0".parse().unwrap(),
    ];
    // Below and above the size from which there is an index, and back.
    for size in [3, 15, 17, 200] {
        let (mut table, mut plain) = (KeyTable::new(), Plain::default());
        let mut gone = Vec::new();
        for _ in 0..1500 {
            match random.below(8) {
                0..3 if plain.0.len() < size => {
                    let spec = MktSpec {
                        peer: some_prefix(&mut random),
                        ifindex: random.one_in(3).then(|| random.below(3) as i32),
                        ..spec("hmac(sha1)", random.below(4) as u8, random.below(4) as u8)
                    };
                    let mkt = mkt(&spec);
                    let key = table.add(mkt.clone(), None);
                    assert!(!gone.contains(&key), "a reference to a removed key must not name another one");
                    plain.0.insert(0, (key, mkt));
                }
                3 if !plain.0.is_empty() => {
                    let (key, mkt) = plain.0.remove(random.below(plain.0.len()));
                    assert!(Arc::ptr_eq(&table.remove(key).unwrap().mkt, &mkt));
                    gone.push(key);
                }
                4 if !plain.0.is_empty() => {
                    let entry = plain.0.remove(random.below(plain.0.len()));
                    table.move_to_front(entry.0);
                    plain.0.insert(0, entry);
                }
                _ => {}
            }
            let ids = some_ids(&mut random);
            let peer = peers[random.below(peers.len())];
            let want = plain.find(|m| ids.matches(m) && m.peer.contains(peer));
            assert_eq!(table.lookup(peer, ids), want);
            let all = plain.0.iter().filter(|(_, m)| ids.matches(m) && m.peer.contains(peer)).map(|(r, _)| *r);
            assert_eq!(table.matching(peer, ids), all.collect::<Vec<_>>());
            let of_peer = table.iter().filter(|(_, k)| k.mkt.peer.contains(peer));
            assert_eq!(table.option_room(peer), of_peer.map(|(_, k)| k.mkt.option_len()).max().unwrap_or(0));
            let prefix = some_prefix(&mut random);
            assert_eq!(table.overlapping(&prefix, ids), plain.find(|m| ids.matches(m) && m.peer.overlaps(&prefix)));
            assert_eq!(table.by_ids(ids), plain.find(|m| ids.matches(m)));
            if let Some((_, m)) = plain.0.get(random.below(plain.0.len() + 1)) {
                let equal =
                    |o: &Mkt| (o.peer, o.ifindex, o.send_id, o.recv_id) == (m.peer, m.ifindex, m.send_id, m.recv_id);
                let want: Vec<KeyRef> = plain.0.iter().filter(|(_, o)| equal(o)).map(|(r, _)| *r).collect();
                let got = table.exact(m.peer, m.ifindex, m.send_id, m.recv_id);
                assert_eq!(got.collect::<Vec<_>>(), want);
            }
        }
        assert_eq!(
            table.iter().map(|(r, _)| r).collect::<Vec<_>>(),
            plain.0.iter().map(|(r, _)| *r).collect::<Vec<_>>()
        );
        assert!(gone.iter().all(|key| table.get(*key).is_none()));
        assert_eq!(table.len(), plain.0.len());
    }
}

#[test]
fn a_key_in_use_stays_and_moves_to_the_front() {
    let mut info = AoInfo::new();
    let keys: Vec<KeyRef> = (0..3).map(|i| info.add_key(mkt(&spec("hmac(sha1)", i, i))).unwrap()).collect();
    assert!(info.keep_matching("1.2.3.4".parse().unwrap(), 0));
    assert_eq!((info.current(), info.rnext()), (Some(keys[2]), Some(keys[2])), "the last one added");
    info.set_rnext(keys[0]);
    assert!(info.remove_key(keys[0], Some(keys[1]), None).is_err());
    assert_eq!(info.current(), Some(keys[1]), "set although the removal failed, as in the kernel");
    let order: Vec<KeyRef> = info.keys().iter().map(|(r, _)| r).collect();
    assert_eq!(order, [keys[0], keys[2], keys[1]]);
    assert!(info.remove_key(keys[0], None, Some(keys[2])).is_ok());
    assert_eq!((info.keys().len(), info.rnext()), (2, Some(keys[2])));
    info.remove_key_async(keys[1]);
    assert_eq!(info.current(), None);
}

#[test]
fn a_child_has_the_matching_keys_in_reverse() {
    let mut listener = AoInfo::new();
    let prefix = |text: &str, len| Prefix { addr: text.parse().unwrap(), len };
    for (id, peer) in [(1, prefix("10.0.0.0", 8)), (2, prefix("10.1.0.0", 16)), (3, prefix("11.0.0.0", 8))] {
        listener.add_key(mkt(&MktSpec { peer, ..spec("cmac(aes128)", id, id + 10) })).unwrap();
    }
    listener.ao_required = true;
    let end = |text: &str| -> SocketAddr { text.parse().unwrap() };
    let mut child = Child {
        conn: Conn::new(end("[::ffff:10.9.9.9]:179"), end("[::ffff:10.1.2.3]:4000"), 1, 2),
        ifindex: 0,
        key_id: 12,
        rnext_key_id: 1,
    };
    let info = listener.for_child(&child).unwrap();
    let ids: Vec<u8> = info.keys().iter().map(|(_, k)| k.mkt.send_id).collect();
    assert_eq!(ids, [1, 2], "the oldest of the listener first");
    let send_id = |key: Option<KeyRef>| info.key(key.unwrap()).unwrap().mkt.send_id;
    assert_eq!((send_id(info.current()), send_id(info.rnext())), (1, 2));
    assert!(info.ao_required && info.is_keyed());
    assert!(info.keys().iter().all(|(_, k)| k.traffic.is_some()));
    (child.key_id, child.rnext_key_id) = (99, 99);
    let info = listener.for_child(&child).unwrap();
    assert_eq!(
        (info.current(), info.rnext()),
        (info.keys().by_ids(Ids::default()), info.keys().by_ids(Ids::default()))
    );
    child.conn.remote = end("12.0.0.1:1");
    assert!(listener.for_child(&child).is_err());
}

fn peer(i: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + i as u32))
}

/// 100,000 keys on one listener, 100,000 connections, and a signed segment for each: what a walk of the list would take
/// 10,000,000,000 steps for.
#[test]
fn a_hundred_thousand_keys_and_connections() {
    const N: usize = 100_000;
    let mut listener = AoInfo::new();
    for i in 0..N {
        let key = (i as u32).to_be_bytes();
        let spec = MktSpec { key: &key, peer: Prefix::host(peer(i)), ..spec("hmac(sha1)", 1, 2) };
        assert!(listener.keys().overlapping(&spec.peer, Ids::any(0).recv(2)).is_none());
        listener.add_key(mkt(&spec)).unwrap();
    }
    assert!(listener.keys().overlapping(&Prefix { addr: peer(0), len: 8 }, Ids::any(0).recv(2)).is_some());
    assert_eq!(listener.keys().lookup(peer(N), Ids::any(0)), None);

    let local: SocketAddr = "192.0.2.1:179".parse().unwrap();
    let mut connections: HashMap<SocketAddr, AoInfo> = HashMap::new();
    for i in 0..N {
        let remote = SocketAddr::new(peer(i), 1024);
        let child = Child { conn: Conn::new(local, remote, 7, 9), ifindex: 0, key_id: 2, rnext_key_id: 1 };
        connections.insert(remote, listener.for_child(&child).unwrap());
    }
    // The other end of every thousandth signs a segment with its own copy of the key; one in ten of those is bad.
    let mut netstat = sealane_net_ao::drop::Netstat::default();
    let mut packets = Vec::new();
    for i in (0..N).step_by(1000) {
        let key = (i as u32).to_be_bytes();
        let mut other = AoInfo::new();
        let ours = other.add_key(mkt(&MktSpec { key: &key, ..spec("hmac(sha1)", 2, 1) })).unwrap();
        let remote = SocketAddr::new(peer(i), 1024);
        other.set_conn(Conn::new(remote, local, 9, 7));
        other.derive().unwrap();
        other.set_current(ours);
        other.set_rnext(ours);
        let plain = crate::common::segment(remote, local, 10, 8, Flags::ACK, &[], b"data");
        let plain = Segment::parse(&plain).unwrap();
        let from =
            Endpoint { info: Some(&other), state: EndpointState::Established, request: None, ifindex: 0, md5: false };
        let Choice::Sign(signature) = choose(&plain, &from) else { panic!("not signed") };
        let mut out = vec![0; 200];
        let at = insert(&plain, &signature.option, &mut out).unwrap();
        let cover = signature.coverage(plain.seq());
        let tfm = signature.traffic.here().unwrap();
        let mut op = [Sign { tfm, packet: &mut out, at, cover, checksum: Checksum::Full, status: Ok(()) }];
        sign(&mut op);
        out.truncate(at.end);
        if i % 10_000 == 0 {
            *out.last_mut().unwrap() ^= 1;
        }
        packets.push(out);
    }
    let segments: Vec<Segment<'_>> = packets.iter().map(|p| Segment::parse(p).unwrap()).collect();
    let checks: Vec<_> = segments
        .iter()
        .map(|s| {
            let info = connections.get(&s.source());
            let to = Endpoint { info, state: EndpointState::Established, request: None, ifindex: 0, md5: false };
            match classify(s, &to) {
                Class::Verify(check) => check,
                _ => panic!("not signed"),
            }
        })
        .collect();
    let mut ops: Vec<Verify<'_>> =
        checks.iter().zip(&segments).map(|(c, s)| c.op(c.traffic.here().unwrap(), s)).collect();
    verify(&mut ops);
    let verdicts: Vec<_> = ops.iter().map(|op| op.status).zip(checks.iter().map(|c| c.ticket)).collect();
    for ((verdict, ticket), segment) in verdicts.into_iter().zip(&segments) {
        let info = connections.get_mut(&segment.source()).unwrap();
        assert_eq!(settle(info, &ticket, verdict, &mut netstat), verdict);
        assert_eq!((info.counters.good, info.counters.bad), if verdict.is_ok() { (1, 0) } else { (0, 1) });
    }
    use sealane_net_ao::drop::Counter;
    assert_eq!((netstat.value(Counter::Good), netstat.value(Counter::Bad)), (90, 10));
}
