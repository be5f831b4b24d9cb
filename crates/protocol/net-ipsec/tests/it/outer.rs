//! Outer headers as a description instead of bytes: sealing and opening give the same bytes and verdicts as with
//! headers in the buffer, and databases have the same counters, numbers and events.

use core::net::IpAddr;
use sealane_net_ipsec::burst::{BURST, Jobs};
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::event::Event;
use sealane_net_ipsec::open::{self, Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, OPEN_HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{Encap, Mode, SaFlags, SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{self, Outbound};
use sealane_net_ipsec::selector::Selector;
use sealane_net_ipsec::tcp::MAX_LEN;
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use sealane_wire::outer::OuterHeader;
use sealane_wire::proto;
use sealane_wire::walk::{Walk, set_total_len};
use std::sync::Arc;

const KEY: [u8; 64] = [0x51; 64];

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n as u64) as usize
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn transform(kind: usize, esn: bool) -> Transform {
    let mut transforms = Transforms::new(Arc::new(sealane_crypto_portable::registry()));
    let keyed = |name, len: usize| Keyed { name, key: &KEY[..len] };
    let auth = keyed("hmac(sha256)", 32);
    let spec = match kind {
        0 => TransformSpec::Aead { aead: keyed("rfc4106(gcm(aes))", 20), icv_bits: 128 },
        1 => TransformSpec::EncAuth { enc: keyed("cbc(aes)", 16), auth, icv_bits: 128 },
        _ => TransformSpec::EncAuth { enc: keyed("ecb(cipher_null)", 0), auth, icv_bits: 96 },
    };
    transforms.prepare(&spec, esn).unwrap()
}

const MODES: [Mode; 3] = [Mode::Tunnel, Mode::Transport, Mode::Beet];

/// Outer addresses of a family.
fn outside(v6: bool) -> (IpAddr, IpAddr) {
    if v6 { (addr("2001:db8::1"), addr("2001:db8::2")) } else { (addr("192.0.2.1"), addr("192.0.2.2")) }
}

/// Inner addresses of a family.
fn inside(v6: bool) -> (IpAddr, IpAddr) {
    if v6 { (addr("fd00::1"), addr("fd00::2")) } else { (addr("10.0.0.1"), addr("10.0.0.2")) }
}

/// The properties of an association, except its random flags.
#[derive(Clone, Copy)]
struct Kind {
    mode: Mode,
    v6: bool,
    inner_v6: bool,
    udp: bool,
}

/// Associations of every mode, family and kind of algorithm, in UDP and not.
fn specs(seed: u64) -> Vec<(Kind, SaSpec)> {
    let mut rng = Rng(seed);
    let mut all = Vec::new();
    for mode in MODES {
        for (v6, inner_v6) in [(false, false), (true, true), (false, true), (true, false)] {
            // In BEET mode the selector's addresses are of one family, which may differ from the outer one.
            if mode == Mode::Transport && v6 != inner_v6 {
                continue;
            }
            for (udp, algorithm) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 2)] {
                let esn = rng.flip();
                let flags = SaFlags {
                    esn,
                    noecn: rng.flip(),
                    decap_dscp: rng.flip(),
                    nopmtudisc: rng.flip(),
                    dont_encap_dscp: rng.flip(),
                    ..SaFlags::default()
                };
                let ((src, dst), (from, to)) = (outside(v6), inside(inner_v6));
                let len = if inner_v6 { 128 } else { 32 };
                let selector =
                    if mode == Mode::Beet { Selector::between((from, len), (to, len)) } else { Selector::ANY };
                let encap = udp.then_some(Encap::udp(4500, if rng.flip() { 4500 } else { 7000 }));
                let spec = SaSpec {
                    mode,
                    flags,
                    encap,
                    selector,
                    window_pkts: 64,
                    tfc_pad: if mode == Mode::Tunnel && rng.flip() { 200 } else { 0 },
                    iv_salt: [rng.below(256) as u8; 16],
                    hop_limit: 1 + rng.below(255) as u8,
                    ..SaSpec::tunnel(1 + all.len() as u32, src, dst, transform(algorithm, esn))
                };
                all.push((Kind { mode, v6, inner_v6, udp }, spec));
            }
        }
    }
    all
}

fn database(seed: u64) -> (Sad, Vec<SaId>, Vec<Kind>) {
    let mut sad = Sad::new(7);
    let (kinds, ids) = specs(seed).into_iter().map(|(kind, spec)| (kind, sad.add(spec).unwrap())).unzip();
    (sad, ids, kinds)
}

/// A packet that an association accepts, sometimes with options or extension headers.
fn plain(rng: &mut Rng, kind: Kind) -> Vec<u8> {
    let v6 = if kind.mode == Mode::Transport { kind.v6 } else { kind.inner_v6 };
    let (from, to) = if kind.mode == Mode::Transport { outside(v6) } else { inside(v6) };
    let outer = OuterHeader {
        source: from,
        destination: to,
        tos: rng.below(256) as u8,
        ttl: rng.below(256) as u8,
        dont_fragment: !v6 && rng.flip(),
        ports: None,
        tcp: false,
    };
    let options = rng.below(4) == 0;
    let mut packet = vec![rng.below(256) as u8; outer.ip_len() + if options { 8 } else { 0 } + 8 + rng.below(300)];
    outer.write_ip(&mut packet, proto::UDP).unwrap();
    if options && v6 {
        packet[6] = proto::DESTINATION;
        packet[40..48].copy_from_slice(&[proto::UDP, 0, 1, 4, 0, 0, 0, 0]);
    } else if options {
        packet[0] = 0x47;
        packet[20..28].fill(1);
        set_total_len(&mut packet, outer.family()).unwrap();
    }
    packet
}

fn room(packet: &[u8]) -> Vec<u8> {
    [&[0; HEADROOM][..], packet, &[0; TAILROOM + 256]].concat()
}

type Sealed = Result<(Option<OuterHeader>, Vec<u8>), DropReason>;

fn seal(sad: &mut Sad, burst: &[(SaId, Vec<u8>)], by_socket: bool, mtu: u32) -> (Vec<Sealed>, Vec<Event>) {
    let mut bufs: Vec<Vec<u8>> = burst.iter().map(|(_, plain)| room(plain)).collect();
    let each = bufs.iter_mut().zip(burst);
    let mut packets: Vec<Outbound<'_>> = each
        .map(|(buf, (id, plain))| {
            let packet = Packet::new(buf, HEADROOM, HEADROOM + plain.len());
            Outbound { by_socket, mtu, ..Outbound::new(*id, packet) }
        })
        .collect();
    let mut events = Vec::new();
    seal::seal(sad, &mut packets, 1, &mut events);
    let sealed = packets.iter().map(|out| out.status.map(|()| (out.outer, out.packet.bytes().to_vec())));
    (sealed.collect(), events)
}

#[test]
fn sealed_with_headers_or_a_description_of_them() {
    for seed in 0..12 {
        let mut rng = Rng(seed);
        let ((mut written, ids, kinds), (mut described, ..)) = (database(seed), database(seed));
        let mut count = 0;
        for _ in 0..12 {
            let burst: Vec<(SaId, Vec<u8>)> = (0..1 + rng.below(BURST))
                .map(|_| {
                    let at = rng.below(ids.len());
                    (ids[at], plain(&mut rng, kinds[at]))
                })
                .collect();
            let mtu = [0, 0, 250][rng.below(3)];
            let (a, events) = seal(&mut written, &burst, false, mtu);
            let (b, same_events) = seal(&mut described, &burst, true, mtu);
            assert_eq!(events, same_events);
            for (((id, plain), a), b) in burst.iter().zip(&a).zip(&b) {
                let at = ids.iter().position(|of| of == id).unwrap();
                let ((none, whole), (outer, bytes)) = match (a, b) {
                    (Ok(a), Ok(b)) => (a, b),
                    (a, b) => {
                        assert_eq!(a.as_ref().err(), b.as_ref().err());
                        continue;
                    }
                };
                assert_eq!(*none, None);
                let has_options = plain[0] == 0x47 || plain[0] >> 4 == 6 && plain[6] == proto::DESTINATION;
                let describable = !(kinds[at].mode == Mode::Transport && has_options);
                assert_eq!(outer.is_some(), kinds[at].udp && describable);
                let Some(outer) = outer else {
                    assert_eq!(whole, bytes);
                    continue;
                };
                let (read, payload_at) = OuterHeader::of(whole).expect("plain headers");
                assert_eq!((*outer, &bytes[..]), (read, &whole[payload_at..]), "{:?}", kinds[at].mode);
                count += 1;
            }
        }
        assert!(count > 50);
        for id in &ids {
            assert_eq!(written.usage(*id), described.usage(*id));
            assert_eq!(written.out_number(*id), described.out_number(*id));
        }
    }
}

#[test]
fn nothing_is_put_around_a_payload_without_headers() {
    let (mut sad, ids, kinds) = database(1);
    let at = kinds.iter().position(|kind| kind.udp && kind.mode == Mode::Tunnel).unwrap();
    let plain = plain(&mut Rng(1), Kind { inner_v6: false, ..kinds[at] });
    let mut buf = room(&plain);
    let packet = Packet::new(&mut buf, HEADROOM, HEADROOM + plain.len());
    let mut burst = [Outbound { by_socket: true, ..Outbound::new(ids[at], packet) }];
    seal::seal(&mut sad, &mut burst, 1, &mut Vec::new());
    assert_eq!((burst[0].status, burst[0].outer.is_some()), (Ok(()), true));
    seal::seal(&mut sad, &mut burst, 1, &mut Vec::new());
    assert_eq!(burst[0].status, Err(DropReason::OutMode));
    // A refused packet has no description.
    let mut buf = room(&plain);
    let packet = Packet::new(&mut buf[HEADROOM..], 0, plain.len());
    let mut burst = [Outbound { by_socket: true, ..Outbound::new(ids[at], packet) }];
    seal::seal(&mut sad, &mut burst, 1, &mut Vec::new());
    assert_eq!((burst[0].status, burst[0].outer), (Err(DropReason::NoRoom), None));
}

type Verdict = Result<(Opened, Vec<u8>), DropReason>;

/// A payload and the headers that it came with.
type Arrived = (OuterHeader, Vec<u8>);

/// Opens packets with headers in front, as the reader of a socket would write them.
fn open_written(sad: &mut Sad, burst: &[Arrived]) -> (Vec<Verdict>, Vec<Event>) {
    let mut bufs: Vec<Vec<u8>> = burst
        .iter()
        .map(|(outer, payload)| {
            let mut packet = vec![0; outer.ip_len()];
            if let Some((sport, dport)) = outer.ports {
                let len = 8 + payload.len() as u16;
                packet.extend([sport, dport, len, 0].iter().flat_map(|field| field.to_be_bytes()));
            }
            packet.extend(payload);
            outer.write_ip(&mut packet, if outer.ports.is_some() { proto::UDP } else { proto::ESP }).unwrap();
            room(&packet)
        })
        .collect();
    let mut packets: Vec<Inbound<'_>> = bufs
        .iter_mut()
        .zip(burst)
        .map(|(buf, (outer, _))| {
            let end = buf.len() - TAILROOM - 256;
            Inbound { udp_encap: outer.ports.is_some(), ..Inbound::new(Packet::new(buf, HEADROOM, end)) }
        })
        .collect();
    let mut events = Vec::new();
    open::open(sad, &mut packets, 1, &mut events);
    let verdicts = packets.iter().zip(burst).map(|(inn, (outer, _))| {
        let bytes = match inn.status? {
            Opened::Packet => inn.packet.bytes(),
            // With described headers only the payload is in the buffer.
            _ => &inn.packet.bytes()[outer.ip_len() + 8..],
        };
        Ok((inn.status?, bytes.to_vec()))
    });
    (verdicts.collect(), events)
}

/// Opens payloads in place, back to back with this much headroom each.
fn open_described(sad: &mut Sad, burst: &[Arrived], before: usize, phased: bool) -> (Vec<Verdict>, Vec<Event>) {
    let mut buf: Vec<u8> = burst.iter().flat_map(|(_, payload)| [&vec![0xcc; before][..], payload].concat()).collect();
    let mut rest = &mut buf[..];
    let mut packets: Vec<Inbound<'_>> = burst
        .iter()
        .map(|(outer, payload)| {
            let (slot, others) = core::mem::take(&mut rest).split_at_mut(before + payload.len());
            rest = others;
            Inbound::described(Packet::new(slot, before, before + payload.len()), *outer)
        })
        .collect();
    let mut events = Vec::new();
    if phased {
        let mut jobs = Jobs::new();
        open::begin(sad, &mut packets, 1, &mut events, &mut jobs);
        open::finish(sad, &mut packets, &jobs, 1, &mut events);
    }
    open::open(sad, &mut packets, 1, &mut events);
    (packets.iter().map(|inn| inn.status.map(|opened| (opened, inn.packet.bytes().to_vec()))).collect(), events)
}

/// Payloads of sealed packets and others, some of them forged, replayed, or from another port.
fn arrivals(rng: &mut Rng, sender: &mut Sad, ids: &[SaId], kinds: &[Kind], history: &mut Vec<Arrived>) -> Vec<Arrived> {
    let burst: Vec<(SaId, Vec<u8>)> = (0..1 + rng.below(BURST))
        .map(|_| {
            let at = rng.below(ids.len());
            let mut packet = plain(rng, kinds[at]);
            if kinds[at].mode == Mode::Transport {
                while OuterHeader::of(&packet).is_none() {
                    packet = plain(rng, kinds[at]);
                }
            }
            (ids[at], packet)
        })
        .collect();
    let (sealed, _) = seal(sender, &burst, false, 0);
    let mut arrived = Vec::new();
    for whole in sealed.into_iter().flatten().map(|(_, whole)| whole) {
        let (outer, at) = OuterHeader::of(&whole).expect("plain headers");
        history.push((outer, whole[at..].to_vec()));
        let (mut outer, mut payload) = match rng.below(10) {
            0 => history[rng.below(history.len())].clone(),
            _ => history[history.len() - 1].clone(),
        };
        let last = payload.len() - 1;
        match rng.below(12) {
            0 => payload[last - rng.below(20)] ^= 4,
            1 => payload.truncate(rng.below(60)),
            2 => payload = [&[0; 4][..], &payload].concat(),
            3 => payload = vec![[0xff, 0xfe][rng.below(2)]],
            4 => outer.ports = if outer.ports.is_some() { None } else { Some((4500, 4500)) },
            5 => outer.ports = outer.ports.map(|(_, dport)| (1234, dport)),
            6 => outer.tos ^= 3,
            7 => payload[0] ^= 0x80,
            _ => {}
        }
        arrived.push((outer, payload));
    }
    arrived.truncate(BURST);
    arrived
}

#[test]
fn opened_behind_headers_or_a_description_of_them() {
    for seed in 0..16 {
        let mut rng = Rng(seed);
        let (mut sender, ids, kinds) = database(seed);
        let ((mut written, ..), (mut described, ..), (mut phased, ..)) =
            (database(seed), database(seed), database(seed));
        let mut history = Vec::new();
        let mut seen = [0; 5];
        for _ in 0..16 {
            let arrived = arrivals(&mut rng, &mut sender, &ids, &kinds, &mut history);
            let (verdicts, events) = open_written(&mut written, &arrived);
            let (same, same_events) = open_described(&mut described, &arrived, OPEN_HEADROOM, false);
            assert!(verdicts == same, "seed {seed}: {:?}", differing(&verdicts, &same));
            assert_eq!(events, same_events);
            let (same, same_events) = open_described(&mut phased, &arrived, OPEN_HEADROOM, true);
            assert!(verdicts == same, "seed {seed}: {:?}", differing(&verdicts, &same));
            assert_eq!(events, same_events);
            for verdict in &verdicts {
                seen[match verdict {
                    Ok((Opened::Packet, packet)) => {
                        assert_eq!(Walk::find(packet).map(|walk| walk.end), Ok(packet.len()));
                        0
                    }
                    Ok((Opened::Ike, _)) => 1,
                    Ok((Opened::Keepalive, _)) => 2,
                    Ok(_) => unreachable!("all of it is ESP"),
                    Err(DropReason::Icv) => 3,
                    Err(_) => 4,
                }] += 1;
            }
        }
        assert!(seen.iter().all(|n| *n > 5), "{seen:?}");
        for id in &ids {
            for sad in [&described, &phased] {
                assert_eq!(written.usage(*id), sad.usage(*id));
                let (a, b) = (written.get(*id).unwrap(), sad.get(*id).unwrap());
                assert_eq!((a.window().top(), a.stat), (b.window().top(), b.stat));
            }
        }
    }
}

fn differing<'v>(a: &'v [Verdict], b: &'v [Verdict]) -> Option<(&'v Verdict, &'v Verdict)> {
    a.iter().zip(b).find(|(a, b)| a != b)
}

#[test]
fn without_room_around_it_a_payload_is_opened_where_it_was_received() {
    let (mut sender, ids, kinds) = database(5);
    let ((mut roomy, ..), (mut tight, ..)) = (database(5), database(5));
    assert!(!tight.has_only_tunnels());
    for (id, kind) in ids.iter().zip(kinds) {
        let mut rng = Rng(3);
        let mut packet = plain(&mut rng, kind);
        while OuterHeader::of(&packet).is_none() {
            packet = plain(&mut rng, kind);
        }
        let (sealed, _) = seal(&mut sender, &[(*id, packet)], false, 0);
        let whole = &sealed[0].as_ref().unwrap().1;
        let (outer, at) = OuterHeader::of(whole).unwrap();
        let arrived = [(outer, whole[at..].to_vec())];
        let ((with, _), (without, _)) = (
            open_described(&mut roomy, &arrived, OPEN_HEADROOM, false),
            open_described(&mut tight, &arrived, 0, false),
        );
        assert!(matches!(with[0], Ok((Opened::Packet, _))));
        let header_v6 = kind.mode != Mode::Tunnel && kind.inner_v6;
        assert!(without == with || header_v6 && without[0] == Err(DropReason::NoRoom), "{:?}", kind.mode);
    }
    for id in ids {
        if roomy.get(id).unwrap().mode != Mode::Tunnel {
            roomy.remove(id);
        }
    }
    assert!(roomy.has_only_tunnels());
}

#[test]
fn a_description_that_was_lost_opens_nothing() {
    let ((mut sender, ids, kinds), (mut receiver, ..)) = (database(9), database(9));
    let (sealed, _) = seal(&mut sender, &[(ids[0], plain(&mut Rng(1), kinds[0]))], true, 0);
    let (outer, mut payload) = sealed[0].clone().unwrap();
    let end = payload.len();
    let mut burst = [Inbound::described(Packet::new(&mut payload, 0, end), outer.unwrap())];
    let mut jobs = Jobs::new();
    open::begin(&mut receiver, &mut burst, 1, &mut Vec::new(), &mut jobs);
    burst[0].outer = None;
    open::finish(&mut receiver, &mut burst, &jobs, 1, &mut Vec::new());
    assert_eq!(burst[0].status, Err(DropReason::Malformed));
}

/// ESP in TCP: the payload is a message of the stream, and belongs to a state of that kind alone. Without a socket that writes
/// the headers nothing is sealed.
#[test]
fn messages_of_a_stream() {
    let carriers = [Some(Encap::tcp(4501, 4500)), Some(Encap::udp(4501, 4500)), None];
    for v6 in [false, true] {
        let (src, dst) = outside(v6);
        let sad_of = |encap| {
            let mut sad = Sad::new(7);
            let spec = SaSpec { encap, window_pkts: 64, ..SaSpec::tunnel(7, src, dst, transform(0, false)) };
            let id = sad.add(spec).unwrap();
            (sad, id)
        };
        let inner = plain(&mut Rng(9), Kind { mode: Mode::Tunnel, v6, inner_v6: false, udp: true });
        let (mut sender, id) = sad_of(carriers[0]);
        let mut sealed = |by_socket| {
            let mut buf = room(&inner);
            let packet = Packet::new(&mut buf, HEADROOM, HEADROOM + inner.len());
            let mut burst = [Outbound { by_socket, ..Outbound::new(id, packet) }];
            seal::seal(&mut sender, &mut burst, 1, &mut Vec::new());
            burst[0].status.map(|()| (burst[0].outer.unwrap(), burst[0].packet.bytes().to_vec()))
        };
        assert_eq!(sealed(false), Err(DropReason::OutMode));
        let (outer, message) = sealed(true).unwrap();
        assert_eq!((outer.source, outer.destination, outer.ports, outer.tcp), (src, dst, Some((4501, 4500)), true));
        assert_eq!(message[..8], [0, 0, 0, 7, 0, 0, 0, 1]);
        // It may be as long as its length can say, whatever the family.
        let of_packet = |len: u16| {
            let mut packet = inner.clone();
            packet.resize(len.into(), 0);
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            let mut buf = room(&packet);
            let packet = Packet::new(&mut buf, HEADROOM, HEADROOM + usize::from(len));
            let mut burst = [Outbound { by_socket: true, ..Outbound::new(id, packet) }];
            seal::seal(&mut sender, &mut burst, 1, &mut Vec::new());
            burst[0].status.ok().map(|()| burst[0].packet.len())
        };
        let longest = (65_400..=u16::MAX).filter_map(of_packet).max();
        assert!(longest.is_some_and(|len| (MAX_LEN - 16..=MAX_LEN).contains(&len)), "{longest:?}");
        let arrived = [outer, OuterHeader { tcp: false, ..outer }, OuterHeader { tcp: false, ports: None, ..outer }];
        for (of_state, encap) in carriers.into_iter().enumerate() {
            for (of_packet, outer) in arrived.into_iter().enumerate() {
                let (verdicts, _) = open_described(&mut sad_of(encap).0, &[(outer, message.clone())], HEADROOM, false);
                let opened = (of_state == of_packet).then(|| (Opened::Packet, inner.clone()));
                assert_eq!(verdicts, [opened.ok_or(DropReason::Encap)], "{encap:?} {outer:?}");
            }
        }
    }
}
