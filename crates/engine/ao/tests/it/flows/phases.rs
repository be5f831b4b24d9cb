//! Changes of the namespace between the beginning and the end of a burst. The verdict about each packet has to be as if
//! the change had come first.

use super::*;
use sealane_engine_ao::{SignBurst, VerifyBurst};

/// A change of the server between the beginning and the end of a burst.
type Change = fn(&mut End, &mut End);

const ACCEPTED: SocketId = SocketId(77);

fn set(end: &mut End, peer: SocketAddr, name: i32, value: &[u8]) {
    let now = facts(State::Established, Some(end.addr), Some(peer));
    end.engine.adopt(ACCEPTED, &now);
    end.engine.setsockopt(ACCEPTED, &now, name, value, value.len() as i32).unwrap();
}

/// Makes the key of these ids the one to sign with and the one to ask for.
fn use_key(end: &mut End, peer: SocketAddr, send: u8, recv: u8) {
    let mut info = vec![0; 48];
    // set_current and set_rnext.
    info[0] = 3;
    (info[6], info[7]) = (send, recv);
    set(end, peer, tcp::TCP_AO_INFO, &info);
}

fn delete(end: &mut End, peer: SocketAddr, send: u8, recv: u8) {
    let SocketAddr::V4(v4) = peer else { panic!("IPv4") };
    let mut del = vec![0; 144];
    del[..2].copy_from_slice(&tcp::AF_INET.to_ne_bytes());
    del[4..8].copy_from_slice(&v4.ip().octets());
    del[138..141].copy_from_slice(&[32, send, recv]);
    set(end, peer, tcp::TCP_AO_DEL_KEY, &del);
}

fn add_again(end: &mut End, peer: SocketAddr, key: &[u8], mac_len: u8) {
    let mut add = add(peer, "cmac(aes128)", 4, 3, key);
    add[205] = mac_len;
    set(end, peer, tcp::TCP_AO_ADD_KEY, &add);
}

/// The client's key is 3, 4 (the newest, in use) and 1, 2; the server's are their mirrors.
const CHANGES: [(&str, Change); 14] = [
    ("nothing", |_, _| {}),
    ("an accepted socket is recognised", |b, a| {
        b.engine.adopt(ACCEPTED, &facts(State::Established, Some(b.addr), Some(a.addr)));
    }),
    ("another current key", |b, a| use_key(b, a.addr, 2, 1)),
    ("the key is deleted", |b, a| {
        use_key(b, a.addr, 2, 1);
        delete(b, a.addr, 4, 3);
    }),
    ("the key is another one of the same ids", |b, a| {
        use_key(b, a.addr, 2, 1);
        delete(b, a.addr, 4, 3);
        add_again(b, a.addr, b"another", 0);
        use_key(b, a.addr, 4, 3);
    }),
    ("the key comes back", |b, a| {
        use_key(b, a.addr, 2, 1);
        delete(b, a.addr, 4, 3);
        add_again(b, a.addr, b"secret", 0);
        use_key(b, a.addr, 4, 3);
    }),
    ("a longer MAC", |b, a| {
        use_key(b, a.addr, 2, 1);
        delete(b, a.addr, 4, 3);
        add_again(b, a.addr, b"secret", 16);
        use_key(b, a.addr, 4, 3);
    }),
    ("a key for somebody else", |b, _| {
        let other = "10.3.3.3:0".parse().unwrap();
        b.key(2, other, "hmac(sha1)", 9, 9);
    }),
    ("the listener goes", |b, _| b.engine.destroyed(SocketId(2), None, 0)),
    ("the socket goes", |b, a| {
        let (here, there) = (b.addr, a.addr);
        b.kernel.0.remove(&(here, Some(there)));
        b.engine.destroyed(ACCEPTED, Some(Ends::new(here, there)), 0);
    }),
    ("the connection is forgotten", |b, a| {
        let (here, there) = (b.addr, a.addr);
        b.kernel.0.remove(&(here, Some(there)));
        b.engine.destroyed(ACCEPTED, Some(Ends::new(here, there)), 0);
        b.engine.expire(1_000_000);
    }),
    ("all is forgotten", |b, a| {
        let (here, there) = (b.addr, a.addr);
        b.kernel.0.clear();
        b.engine.destroyed(ACCEPTED, Some(Ends::new(here, there)), 0);
        b.engine.destroyed(SocketId(2), None, 0);
        b.engine.expire(1_000_000);
    }),
    ("data of the same connection comes in", |b, a| {
        let (_, out) = a.send(&packet(a.addr, b.addr, ACK, A_ISN + 1, B_ISN + 1, &[], b"before"));
        b.receive(&out[0]).unwrap();
    }),
    ("data of the same connection leaves", |b, a| {
        let frame = packet(b.addr, a.addr, ACK, B_ISN + 1, A_ISN + 1, &[], &[7; 5_000]);
        assert_eq!(b.send(&frame).0, Verdict::Sent);
    }),
];

/// The whole visible state of a namespace.
fn seen(end: &End) -> String {
    format!("{:?} {:?}", end.engine.snapshot(0).finish(), known(end))
}

/// The time of the change: before the burst, or during it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    Before,
    BeforeMacs,
    AfterMacs,
}

const IN_IT: [When; 2] = [When::BeforeMacs, When::AfterMacs];

/// Judges inbound packets; returns the verdicts, and the packets.
fn come_in(when: When, b: &mut End, a: &mut End, packets: &[Vec<u8>], change: Change) -> Vec<(Verdict, Vec<u8>)> {
    let mut buffers = packets.to_vec();
    let mut burst: Vec<Inbound<'_>> = buffers.iter_mut().map(|p| arriving(p)).collect();
    if when == When::Before {
        change(b, a);
    }
    let mut work = VerifyBurst::new();
    let (mut done, mut changed) = (0, when == When::Before);
    while done < burst.len() {
        let count = b.engine.begin_input(&mut work, &burst[done..], &mut b.kernel);
        if when == When::BeforeMacs && !core::mem::replace(&mut changed, true) {
            change(b, a);
        }
        work.run(&burst[done..done + count], &mut |_| None);
        if when == When::AfterMacs && !core::mem::replace(&mut changed, true) {
            change(b, a);
        }
        b.engine.end_input(&mut work, &mut burst[done..done + count], &mut b.kernel, 0);
        work.finish(&mut burst[done..done + count]);
        done += count;
    }
    burst.iter().map(|p| (p.verdict, p.packet.to_vec())).collect()
}

/// Signs outbound packets; returns the verdicts, and the pieces.
fn leave(
    when: When,
    b: &mut End,
    a: &mut End,
    packets: &[Vec<u8>],
    change: Change,
) -> (Vec<Verdict>, Vec<(usize, Vec<u8>)>) {
    let mut burst: Vec<Outbound<'_>> = packets.iter().map(|p| leaving(p)).collect();
    if when == When::Before {
        change(b, a);
    }
    let mut work = SignBurst::new();
    let (mut done, mut changed, mut out) = (0, when == When::Before, Vec::new());
    while done < burst.len() {
        let count = b.engine.begin_output(&mut work, &burst[done..], &mut b.kernel, 0);
        if when == When::BeforeMacs && !core::mem::replace(&mut changed, true) {
            change(b, a);
        }
        work.run(&burst[done..done + count], &mut |_| None);
        if when == When::AfterMacs && !core::mem::replace(&mut changed, true) {
            change(b, a);
        }
        b.engine.end_output(&mut work, &mut burst[done..done + count], &mut b.kernel, 0);
        out.extend(work.pieces().map(|piece| (done + piece.of, piece.packet.to_vec())));
        done += count;
    }
    (burst.iter().map(|p| p.verdict).collect(), out)
}

/// Data segments of the client, one of them forged and one unsigned.
fn data(a: &mut End, b: &End) -> Vec<Vec<u8>> {
    let (at, to) = (a.addr, b.addr);
    let signed = |a: &mut End, seq: u32, ack: u32| {
        let (_, out) = a.send(&packet(at, to, ACK, A_ISN + seq, B_ISN.wrapping_add(ack), &[], b"data"));
        out[0].clone()
    };
    let mut list = vec![signed(a, 7, 1), signed(a, 11, 1)];
    let mut forged = signed(a, 15, 1);
    *forged.last_mut().unwrap() ^= 1;
    list.push(forged);
    list.push(packet(at, to, ACK, A_ISN + 15, B_ISN + 1, &[], b"bare"));
    list.push(vec![0x45; 5]);
    list.push(packet("10.9.9.9:5".parse().unwrap(), to, SYN, 5, 0, &MSS, &[]));
    list.push(signed(a, 15, 1));
    list
}

#[test]
fn what_comes_in_is_judged_as_if_the_change_had_come_first() {
    for (name, change) in CHANGES {
        let outcome = |when| {
            let (mut a, mut b) = connected();
            let packets = data(&mut a, &b);
            let verdicts = come_in(when, &mut b, &mut a, &packets, change);
            (verdicts, seen(&b))
        };
        let wanted = outcome(When::Before);
        for when in IN_IT {
            assert_eq!(outcome(when), wanted, "{name}, {when:?}");
        }
    }
}

#[test]
fn what_leaves_is_signed_as_if_the_change_had_come_first() {
    for (name, change) in CHANGES {
        let outcome = |when| {
            let (mut a, mut b) = connected();
            let (at, to) = (a.addr, b.addr);
            let frames = [
                packet(to, at, ACK, B_ISN.wrapping_add(5_001), A_ISN + 1, &[], &[1; 4_000]),
                packet(to, "10.9.9.9:5".parse().unwrap(), ACK, 1, 1, &[], b"in clear"),
                packet(to, at, ACK, B_ISN.wrapping_add(9_001), A_ISN + 1, &[], &[2; 50_000]),
                packet(to, at, ACK, B_ISN.wrapping_add(59_001), A_ISN + 1, &[], &[3; 60_000]),
                packet(to, at, ACK, B_ISN.wrapping_add(119_001), A_ISN + 1, &[], b"end"),
            ];
            let done = leave(when, &mut b, &mut a, &frames, change);
            (done, seen(&b))
        };
        let wanted = outcome(When::Before);
        assert!(wanted.0.1.is_sorted_by_key(|(of, _)| *of), "{name}: in order");
        for when in IN_IT {
            let ((verdicts, pieces), shown) = outcome(when);
            assert_eq!((&verdicts, &shown), (&wanted.0.0, &wanted.1), "{name}, {when:?}");
            assert_eq!(pieces.len(), wanted.0.1.len(), "{name}, {when:?}");
            assert!(pieces == wanted.0.1, "{name}, {when:?}: other bytes");
        }
    }
}

#[test]
fn handshakes_are_judged_as_if_the_change_had_come_first() {
    // The client's SYN, and the segment that ends its handshake, for a server whose keys change.
    let changes: [(&str, Change); 5] = [
        ("nothing", |_, _| {}),
        ("a key for somebody else", |b, _| b.key(2, "10.3.3.3:0".parse().unwrap(), "hmac(sha1)", 9, 9)),
        ("the keys are deleted", |b, a| {
            let SocketAddr::V4(v4) = a.addr else { panic!("IPv4") };
            for ids in [[2, 1], [4, 3]] {
                let mut del = vec![0; 144];
                del[..2].copy_from_slice(&tcp::AF_INET.to_ne_bytes());
                del[4..8].copy_from_slice(&v4.ip().octets());
                del[138..141].copy_from_slice(&[32, ids[0], ids[1]]);
                let now = facts(State::Listen, Some(b.addr), None);
                b.engine.setsockopt(SocketId(2), &now, tcp::TCP_AO_DEL_KEY, &del, 144).unwrap();
            }
        }),
        ("the listener goes", |b, _| {
            b.kernel.0.clear();
            b.engine.destroyed(SocketId(2), None, 0);
        }),
        ("the listener goes, and its socket stays", |b, _| b.engine.destroyed(SocketId(2), None, 0)),
    ];
    for (name, change) in changes {
        for which in 0..2 {
            let outcome = |when| {
                let (mut a, _, [syn, ack]) = handshake();
                let mut b = End::new("10.0.0.2:179");
                for alg in [("hmac(sha1)", 1, 2), ("cmac(aes128)", 3, 4)] {
                    b.key(2, a.addr, alg.0, alg.2, alg.1);
                }
                b.socket(2, None, State::Listen);
                let (at, to) = (a.addr, b.addr);
                if which == 1 {
                    b.receive(&syn).unwrap();
                    b.send(&packet(to, at, SYN | ACK, B_ISN, A_ISN + 1, &MSS, &[]));
                }
                let packet = [if which == 0 { syn } else { ack }];
                let verdicts = come_in(when, &mut b, &mut a, &packet, change);
                (verdicts, seen(&b))
            };
            let wanted = outcome(When::Before);
            for when in IN_IT {
                assert_eq!(outcome(when), wanted, "{name}, segment {which}, {when:?}");
            }
        }
    }
}

#[test]
fn bursts_of_one_connection_may_end_in_any_order() {
    for swapped in [false, true] {
        let (mut a, mut b) = connected();
        let packets = data(&mut a, &b);
        let (mut one, mut two) = (packets[0].clone(), packets[1].clone());
        let mut both = [[arriving(&mut one)], [arriving(&mut two)]];
        let mut work = [VerifyBurst::new(), VerifyBurst::new()];
        for (burst, work) in both.iter_mut().zip(&mut work) {
            b.engine.begin_input(work, burst, &mut b.kernel);
            work.run(burst, &mut |_| None);
        }
        for i in if swapped { [1, 0] } else { [0, 1] } {
            b.engine.end_input(&mut work[i], &mut both[i], &mut b.kernel, 0);
            work[i].finish(&mut both[i]);
            assert!(matches!(both[i][0].verdict, Verdict::Deliver(..)), "burst {i}, swapped: {swapped}");
        }
        // The handshake's three, of which the server verified two, and these.
        assert_eq!(b.counter(Counter::Good), 4);
        let (_, info) = b.engine.sockets().find(|(id, _)| id.0 != 2).unwrap();
        assert_eq!(info.conn().unwrap().rcv.base, A_ISN + 11, "the later one is the base, whoever ended last");
    }
}

#[test]
fn macs_that_nobody_computed_prove_nothing() {
    let (mut a, mut b) = connected();
    let mut bytes = data(&mut a, &b)[0].clone();
    let mut burst = [arriving(&mut bytes)];
    let mut work = VerifyBurst::new();
    b.engine.begin_input(&mut work, &burst, &mut b.kernel);
    b.engine.end_input(&mut work, &mut burst, &mut b.kernel, 0);
    work.finish(&mut burst);
    assert_eq!(burst[0].verdict, Verdict::Drop(DropReason::Driver));
    let frame = packet(b.addr, a.addr, ACK, B_ISN + 1, A_ISN + 1, &[], b"unsigned");
    let mut burst = [leaving(&frame)];
    let mut work = SignBurst::new();
    b.engine.begin_output(&mut work, &burst, &mut b.kernel, 0);
    b.engine.end_output(&mut work, &mut burst, &mut b.kernel, 0);
    assert_eq!(work.pieces().count(), 0);
}

#[test]
fn bursts_may_be_begun_before_the_kernel_has_answered() {
    let outcome = |unanswered: bool| {
        let (mut a, _, [syn, ack]) = handshake();
        let mut b = End::new("10.0.0.2:179");
        for alg in [("hmac(sha1)", 1, 2), ("cmac(aes128)", 3, 4)] {
            b.key(2, a.addr, alg.0, alg.2, alg.1);
        }
        b.socket(2, None, State::Listen);
        let (at, to) = (a.addr, b.addr);
        let mut seen_after = Vec::new();
        let data = a.send(&packet(at, to, ACK, A_ISN + 1, B_ISN + 1, &[], b"data")).1;
        let stranger = packet("10.0.0.1:5".parse().unwrap(), to, SYN, 5, 0, &MSS, &[]);
        for (bytes, leaves) in [
            (syn, false),
            (packet(to, at, SYN | ACK, B_ISN, A_ISN + 1, &MSS, &[]), true),
            (ack, false),
            (data[0].clone(), false),
            (stranger, false),
            (packet(to, at, ACK, B_ISN + 1, A_ISN + 5, &[], b"answer"), true),
        ] {
            let mut buffer = bytes.clone();
            if unanswered && leaves {
                b.engine.begin_output(&mut SignBurst::new(), &[leaving(&bytes)], &mut Table::default(), 0);
            } else if unanswered {
                b.engine.begin_input(&mut VerifyBurst::new(), &[arriving(&mut buffer)], &mut Table::default());
            }
            let done = if leaves { format!("{:?}", b.send(&bytes)) } else { format!("{:?}", b.receive(&bytes)) };
            seen_after.push((done, seen(&b)));
        }
        seen_after
    };
    assert_eq!(outcome(true), outcome(false));
}
