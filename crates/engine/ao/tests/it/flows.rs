//! Two namespaces connected by a wire: each receives exactly what the other sends.

use sealane_abi::Profile;
use sealane_abi::tcp::{self, State};
use sealane_engine_ao::{
    Ends, Family, Found, Inbound, Kernel, Located, Namespace, NoVrfs, Outbound, SocketFacts, SocketId, Verdict,
};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::drop::{Counter, DropReason};
use sealane_net_ao::segment::ChecksumState;
use sealane_wire::ip;
use sealane_wire::tcp::{Flags, Options, Segment, kind};
use std::collections::HashMap;
use std::net::SocketAddr;

mod elsewhere;
mod kept;
mod phases;
mod vrfs;

const MTU: usize = 1500;
const ACK: u8 = Flags::ACK;
const SYN: u8 = Flags::SYN;

/// The kernel of one end: sockets that a test puts there.
#[derive(Default)]
struct Table(HashMap<(SocketAddr, Option<SocketAddr>), Found>);

impl Kernel for Table {
    fn find(&mut self, local: SocketAddr, remote: SocketAddr, _: u32) -> Option<Found> {
        self.0.get(&(local, Some(remote))).or_else(|| self.0.get(&(local, None))).copied()
    }

    fn has(&mut self, ends: &Ends, device: u32) -> Option<bool> {
        assert_eq!(device, 1, "where its segments came in");
        match self.0.get(&(ends.local, Some(ends.remote))).map(|f| f.state) {
            Some(State::NewSynRecv) => None,
            state => Some(state.is_some()),
        }
    }
}

struct End {
    engine: Namespace,
    kernel: Table,
    addr: SocketAddr,
}

fn facts(state: State, local: Option<SocketAddr>, peer: Option<SocketAddr>) -> SocketFacts<'static> {
    SocketFacts {
        family: Family::V4,
        state,
        local,
        peer,
        v6only: false,
        bound_ifindex: 0,
        repair: None,
        net_admin: true,
        interfaces: &NoVrfs,
    }
}

/// `struct tcp_ao_add`.
fn add(peer: SocketAddr, alg: &str, send: u8, recv: u8, key: &[u8]) -> Vec<u8> {
    let SocketAddr::V4(peer) = peer else { panic!("IPv4") };
    let mut v = vec![0; 288];
    v[..2].copy_from_slice(&tcp::AF_INET.to_ne_bytes());
    v[4..8].copy_from_slice(&peer.ip().octets());
    v[128..128 + alg.len()].copy_from_slice(alg.as_bytes());
    v[202..208].copy_from_slice(&[32, send, recv, 0, 0, key.len() as u8]);
    v[208..208 + key.len()].copy_from_slice(key);
    v
}

impl End {
    fn new(addr: &str) -> Self {
        let algorithms = Algorithms::new(&sealane_crypto_portable::registry());
        let engine = Namespace::new(Profile::Open, algorithms);
        End { engine, kernel: Table::default(), addr: addr.parse().unwrap() }
    }

    fn key(&mut self, id: u64, peer: SocketAddr, alg: &str, send: u8, recv: u8) {
        let add = add(peer, alg, send, recv, b"secret");
        let facts = facts(State::Close, None, None);
        self.engine.setsockopt(SocketId(id), &facts, tcp::TCP_AO_ADD_KEY, &add, add.len() as i32).unwrap();
    }

    fn socket(&mut self, id: u64, peer: Option<SocketAddr>, state: State) {
        self.kernel.0.insert((self.addr, peer), Found { id: SocketId(id), state, vrf: 0 });
    }

    /// Sends a packet; returns the verdict and the signed pieces.
    fn send(&mut self, packet: &[u8]) -> (Verdict, Vec<Vec<u8>>) {
        let mut burst = [leaving(packet)];
        let mut out = Vec::new();
        self.engine.output(&mut burst, &mut self.kernel, 0, |piece| out.push(piece.packet.to_vec()));
        (burst[0].verdict, out)
    }

    /// Receives a packet; returns it without the option, or the verdict.
    fn receive(&mut self, packet: &[u8]) -> Result<Vec<u8>, Verdict> {
        let mut bytes = packet.to_vec();
        let verdict = {
            let mut burst = [arriving(&mut bytes)];
            self.engine.input(&mut burst, &mut self.kernel, 0);
            burst[0].verdict
        };
        match verdict {
            Verdict::Deliver(from, at) => {
                assert!(ip::tcp_checksum_ok(&bytes[from..], &at), "the kernel would drop it");
                Ok(bytes[from..from + at.end].to_vec())
            }
            other => Err(other),
        }
    }

    fn counter(&self, counter: Counter) -> u64 {
        self.engine.netstat().value(counter)
    }
}

fn leaving(packet: &[u8]) -> Outbound<'_> {
    Outbound { packet, located: Located::sent(packet), device: 1, mtu: MTU, verdict: Verdict::Pass }
}

fn arriving(packet: &mut [u8]) -> Inbound<'_> {
    let (located, checksum) = (Located::received(packet), ChecksumState::Complete);
    Inbound { packet, located, checksum, device: 1, mtu: MTU, verdict: Verdict::Pass }
}

/// A packet as a kernel without TCP-AO writes it.
fn packet(from: SocketAddr, to: SocketAddr, flags: u8, seq: u32, ack: u32, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let (SocketAddr::V4(a), SocketAddr::V4(b)) = (from, to) else { panic!("IPv4") };
    let header = 20 + options.len();
    let mut p = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0];
    p.extend(a.ip().octets());
    p.extend(b.ip().octets());
    p.extend(from.port().to_be_bytes());
    p.extend(to.port().to_be_bytes());
    p.extend(seq.to_be_bytes());
    p.extend(ack.to_be_bytes());
    p.extend([(header as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    p.extend(options);
    p.extend(payload);
    let total = (p.len() as u16).to_be_bytes();
    p[2..4].copy_from_slice(&total);
    let at = *Segment::parse(&p).unwrap().layout();
    ip::set_len(&mut p, &at);
    ip::set_tcp_checksum(&mut p, &at);
    p
}

const MSS: [u8; 4] = [2, 4, 0x05, 0xb4];
const A_ISN: u32 = 1000;
const B_ISN: u32 = 0xffff_ff00;

/// A client with a connection to a server. Sockets: 1 is the client's, 2 the listener's.
fn connected() -> (End, End) {
    let (a, b, _) = handshake();
    (a, b)
}

/// The same, and what the client sent for it.
fn handshake() -> (End, End, [Vec<u8>; 2]) {
    let (mut a, mut b) = (End::new("10.0.0.1:40000"), End::new("10.0.0.2:179"));
    let (at, to) = (a.addr, b.addr);
    for alg in [("hmac(sha1)", 1, 2), ("cmac(aes128)", 3, 4)] {
        a.key(1, to, alg.0, alg.1, alg.2);
        b.key(2, at, alg.0, alg.2, alg.1);
    }
    a.engine.connect(SocketId(1), &facts(State::Close, None, None), to).unwrap();
    a.socket(1, Some(to), State::SynSent);
    b.socket(2, None, State::Listen);

    let (verdict, out) = a.send(&packet(at, to, SYN, A_ISN, 0, &MSS, &[]));
    assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
    let syn = out[0].clone();
    let got = b.receive(&syn).unwrap();
    // Both ends make room for 16 bytes: 1460 less that.
    assert_eq!(Segment::parse(&got).unwrap().option_bytes(), [2, 4, 0x05, 0xa4]);

    let (verdict, out) = b.send(&packet(to, at, SYN | ACK, B_ISN, A_ISN + 1, &MSS, &[]));
    assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
    assert!(a.receive(&out[0]).is_ok());
    a.socket(1, Some(to), State::Established);

    let (verdict, out) = a.send(&packet(at, to, ACK, A_ISN + 1, B_ISN + 1, &[], &[]));
    assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
    assert!(b.receive(&out[0]).is_ok());
    b.socket(77, Some(at), State::Established);
    (a, b, [syn, out[0].clone()])
}

#[test]
fn a_connection_in_both_directions() {
    let (mut a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    // 64 KB at once leave as segments that fit the wire; the peer's numbers wrap on the way.
    let payload: Vec<u8> = (0..60_000u32).map(|i| i as u8).collect();
    let frame = packet(to, at, ACK | Flags::PSH, B_ISN + 1, A_ISN + 1, &[], &payload);
    let (verdict, out) = b.send(&frame);
    assert_eq!(verdict, Verdict::Sent);
    assert_eq!(out.len(), payload.len().div_ceil(1460 - 16));
    let mut got = Vec::new();
    for p in &out {
        assert!(p.len() <= MTU);
        let plain = a.receive(p).unwrap();
        let segment = Segment::parse(&plain).unwrap();
        assert_eq!(segment.seq(), B_ISN.wrapping_add(1 + got.len() as u32));
        assert!(segment.option_bytes().is_empty());
        got.extend_from_slice(segment.payload());
    }
    assert_eq!(got, payload);
    let before = b.counter(Counter::Good);
    let (_, out) = a.send(&packet(at, to, ACK, A_ISN + 1, B_ISN.wrapping_add(60_001), &[], b"answer"));
    assert_eq!(Segment::parse(&b.receive(&out[0]).unwrap()).unwrap().payload(), b"answer");
    assert_eq!(b.counter(Counter::Good), before + 1);
}

#[test]
fn what_was_changed_on_the_way_is_dropped() {
    let (mut a, mut b) = connected();
    let (_, out) = a.send(&packet(a.addr, b.addr, ACK, A_ISN + 1, B_ISN + 1, &[], b"data"));
    let good = &out[0];
    for i in [12, 20, 24, 33, 40, 44, good.len() - 1] {
        let mut bad = good.clone();
        bad[i] ^= 1;
        let dropped = b.receive(&bad).unwrap_err();
        assert!(matches!(dropped, Verdict::Drop(_)) || i < 24, "byte {i}: {dropped:?}");
    }
    assert!(b.counter(Counter::Bad) > 0);
    assert!(b.receive(good).is_ok());
}

#[test]
fn nothing_unsigned_passes_either_way() {
    let (mut a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    for flags in [ACK, Flags::RST, Flags::RST | ACK, Flags::FIN | ACK, SYN, SYN | ACK] {
        let bare = packet(at, to, flags, A_ISN + 1, B_ISN + 1, &[], &[]);
        assert_eq!(b.receive(&bare), Err(Verdict::Drop(DropReason::Required)), "flags {flags:#x}");
        // And what we send is never bare.
        let (verdict, out) = a.send(&packet(at, to, flags & !SYN, A_ISN + 1, B_ISN + 1, &[], &[]));
        assert_eq!(verdict, Verdict::Sent);
        let signed = |p: &Vec<u8>| {
            Options::new(Segment::parse(p).unwrap().option_bytes()).any(|o| o.unwrap().kind() == kind::AO)
        };
        assert!(out.iter().all(signed));
    }
    assert_eq!(b.counter(Counter::Required), 6);
}

/// A SYN may wait in a queue until its socket is gone, for example when connect() has timed out.
#[test]
fn a_syn_whose_socket_is_gone_does_not_leave() {
    let (mut a, peer) = (End::new("10.0.0.1:40000"), "10.0.0.2:179".parse().unwrap());
    a.key(1, peer, "hmac(sha1)", 1, 2);
    a.engine.connect(SocketId(1), &facts(State::Close, None, None), peer).unwrap();
    a.engine.destroyed(SocketId(1), None, 0);
    let (verdict, out) = a.send(&packet(a.addr, peer, SYN, A_ISN, 0, &MSS, &[]));
    assert_eq!((verdict, out.len()), (Verdict::Drop(DropReason::NoSendKey), 0));
}

#[test]
fn half_a_handshake_is_bounded_and_signed() {
    let (_, mut b) = connected();
    // Unsigned SYNs leave nothing behind: their SYN-ACK has no connection to be signed for.
    let stranger: SocketAddr = "10.0.0.1:5".parse().unwrap();
    assert_eq!(b.receive(&packet(stranger, b.addr, SYN, 5, 0, &MSS, &[])), Err(Verdict::Drop(DropReason::Required)));
    let (verdict, out) = b.send(&packet(b.addr, stranger, SYN | ACK, 9, 6, &MSS, &[]));
    assert_eq!((verdict, out.len()), (Verdict::Drop(DropReason::NoSendKey), 0));
    // Other peers have no key: they are none of ours.
    let other: SocketAddr = "10.9.9.9:5".parse().unwrap();
    assert_eq!(b.receive(&packet(other, b.addr, SYN, 5, 0, &MSS, &[])), Err(Verdict::Pass));
    assert_eq!(b.send(&packet(b.addr, other, SYN | ACK, 9, 6, &MSS, &[])).0, Verdict::Pass);
}

#[test]
fn an_accepted_socket_is_recognised_and_outlives_its_listener() {
    let (mut a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    let accepted = facts(State::Established, Some(to), Some(at));
    b.engine.adopt(SocketId(77), &accepted);
    let info = b.engine.info(SocketId(77)).expect("the child's keys");
    assert_eq!(info.keys().len(), 2);
    b.engine.destroyed(SocketId(2), None, 0);
    let (_, out) = a.send(&packet(at, to, ACK, A_ISN + 1, B_ISN + 1, &[], b"still"));
    assert!(b.receive(&out[0]).is_ok());
    // TIME_WAIT: the socket is gone, what it still says is signed.
    b.kernel.0.clear();
    b.engine.destroyed(SocketId(77), Some(Ends::new(to, at)), 1_000);
    let (verdict, out) = b.send(&packet(to, at, ACK, B_ISN + 1, A_ISN + 6, &[], &[]));
    assert_eq!(verdict, Verdict::Sent);
    assert!(a.receive(&out[0]).is_ok());
    b.engine.expire(10_000_000);
    assert!(b.engine.info(SocketId(77)).is_none());
    let (verdict, out) = b.send(&packet(to, at, ACK, B_ISN + 1, A_ISN + 6, &[], &[]));
    let lost = Verdict::Drop(DropReason::NoSendKey);
    assert_eq!((verdict, out.len()), (lost, 0), "whether its socket had keys is not known any more");
    let (verdict, _) = b.send(&packet(to, at, Flags::RST, B_ISN + 1, 0, &[], &[]));
    assert_eq!(verdict, Verdict::Pass, "the kernel's answer to an unsigned segment without a socket");
}

/// The numbers of known sockets, of connections with a socket, and of connections whose socket is gone.
fn known(end: &End) -> (usize, usize, usize) {
    let (alive, gone): (Vec<_>, Vec<_>) = end.engine.connections().partition(|(_, alive)| *alive);
    (end.engine.socket_count(), alive.len(), gone.len())
}

#[test]
fn what_a_replayed_handshake_opens_does_not_stay() {
    let (a, mut b, [_, ack]) = handshake();
    let (at, to) = (a.addr, b.addr);
    b.engine.destroyed(SocketId(77), Some(Ends::new(to, at)), 0);
    b.engine.expire(100_000);
    assert_eq!(known(&b), (1, 0, 0), "the listener");
    // Its ACK is as good as it was, and the answer to a SYN cookie for all that we know.
    b.kernel.0.remove(&(to, Some(at)));
    for round in 0..3 {
        assert!(b.receive(&ack).is_ok());
        assert_eq!(known(&b), (2, 1, 0));
        // The kernel answers with a RST, which is signed.
        let rst = packet(to, at, Flags::RST, B_ISN + 1, 0, &[], &[]);
        assert_eq!(b.send(&rst).0, Verdict::Sent, "round {round}");
        // While it is half open there, it may still become a connection.
        b.socket(78, Some(at), State::NewSynRecv);
        b.engine.sweep(&mut b.kernel, 20_000);
        assert_eq!(known(&b), (2, 1, 0));
        b.kernel.0.remove(&(to, Some(at)));
        b.engine.sweep(&mut b.kernel, 29_000);
        assert_eq!(known(&b), (2, 1, 0), "not asked again so soon");
        b.engine.sweep(&mut b.kernel, 31_000);
        assert_eq!(known(&b), (2, 0, 1));
        b.engine.expire(200_000);
        assert_eq!(known(&b), (1, 0, 0));
    }
}

#[test]
fn an_old_syn_does_not_disturb_a_handshake() {
    for cookies in [false, true] {
        let (mut a, _, [old, _]) = handshake();
        let mut b = End::new("10.0.0.2:179");
        let (at, to) = (a.addr, b.addr);
        for alg in [("hmac(sha1)", 1, 2), ("cmac(aes128)", 3, 4)] {
            b.key(2, at, alg.0, alg.2, alg.1);
        }
        b.socket(2, None, State::Listen);
        let isn = 77_000;
        let (_, out) = a.send(&packet(at, to, SYN, isn, 0, &MSS, &[]));
        b.receive(&out[0]).unwrap();
        if !cookies {
            b.socket(90, Some(at), State::NewSynRecv);
        }
        let (_, out) = b.send(&packet(to, at, SYN | ACK, B_ISN, isn + 1, &MSS, &[]));
        a.receive(&out[0]).unwrap();
        let (_, out) = a.send(&packet(at, to, ACK, isn + 1, B_ISN + 1, &[], &[]));
        // A replay, which the kernel answers with what it has to say about it.
        b.receive(&old).unwrap();
        assert!(b.receive(&out[0]).is_ok(), "with cookies: {cookies}");
        assert_eq!(known(&b), (2, 1, 0));
    }
}

#[test]
fn connections_whose_end_nobody_told_are_found_out() {
    let (a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    b.engine.sweep(&mut b.kernel, 20_000);
    b.kernel.0.remove(&(to, Some(at)));
    b.engine.sweep(&mut b.kernel, 1_000_000);
    assert_eq!(known(&b), (2, 1, 0), "it was there, and is trusted to tell when it goes");
    b.engine.recheck_all(1_000_000);
    b.engine.sweep(&mut b.kernel, 1_000_000);
    assert_eq!(known(&b), (2, 0, 1));
}

#[test]
fn peers_that_come_back_leave_nothing_behind() {
    let (mut a, mut b, [syn, _]) = handshake();
    let (at, to) = (a.addr, b.addr);
    let other = {
        let (_, out) = a.send(&packet(at, to, SYN, 5, 0, &MSS, &[]));
        out[0].clone()
    };
    b.engine.destroyed(SocketId(77), Some(Ends::new(to, at)), 0);
    b.kernel.0.remove(&(to, Some(at)));
    // Between the same ends, before TIME_WAIT is over: the keys of the connection before go.
    for _ in 0..1_000 {
        assert!(b.receive(&syn).is_ok() && b.receive(&other).is_ok());
        assert_eq!(known(&b), (1, 1, 0));
    }
}

/// A segment for the ends of a connection that has ended is for a listener, if no socket is left. An ACK may be the answer to a SYN
/// cookie there: unsigned it is refused, as on Linux.
#[test]
fn an_unsigned_ack_opens_nothing_after_the_end() {
    let (a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    b.engine.destroyed(SocketId(77), Some(Ends::new(to, at)), 0);
    let unsigned = packet(at, to, ACK, A_ISN + 1, B_ISN + 1, &[], &[]);
    b.socket(77, Some(at), State::TimeWait);
    assert_eq!(b.receive(&unsigned), Err(Verdict::Pass), "the kernel verifies nothing in TIME_WAIT");
    b.kernel.0.remove(&(to, Some(at)));
    assert!(matches!(b.receive(&unsigned), Err(Verdict::Drop(_))));
}

/// In TIME_WAIT without keys that are known, as after another launcher: a signed segment would be answered unsigned.
#[test]
fn a_signed_segment_is_not_answered_in_the_time_wait_of_others() {
    let (mut a, b) = connected();
    let (at, to) = (a.addr, b.addr);
    let (_, signed) = a.send(&packet(at, to, Flags::FIN, A_ISN + 1, B_ISN + 1, &[], &[]));
    let mut other = End::new("10.0.0.2:179");
    other.socket(77, Some(at), State::TimeWait);
    assert_eq!(other.receive(&signed[0]), Err(Verdict::Drop(DropReason::NoSocket)));
    let unsigned = packet(at, to, Flags::FIN, A_ISN + 1, B_ISN + 1, &[], &[]);
    assert_eq!(other.receive(&unsigned), Err(Verdict::Pass), "it may have had no keys");
}

/// What the kernel answers begins TIME_WAIT anew, so that the peer may close long after the program.
#[test]
fn answers_in_time_wait_keep_the_keys() {
    let (a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    b.engine.destroyed(SocketId(77), Some(Ends::new(to, at)), 0);
    let answer = packet(to, at, ACK, B_ISN + 1, A_ISN + 2, &[], &[]);
    for now in [60_000, 120_000] {
        b.engine.expire(now);
        let mut burst = [leaving(&answer)];
        b.engine.output(&mut burst, &mut b.kernel, now, |_| {});
        assert_eq!(burst[0].verdict, Verdict::Sent, "{now}");
    }
    b.engine.expire(200_000);
    assert_eq!(known(&b).2, 0);
}

/// A client that uses its port again while the server is in TIME_WAIT gets a new connection at once, as on Linux.
#[test]
fn a_connection_begins_anew_in_time_wait() {
    for told in [false, true] {
        let (mut a, mut b) = connected();
        let (at, to) = (a.addr, b.addr);
        b.socket(77, Some(at), State::TimeWait);
        if told {
            b.engine.destroyed(SocketId(77), Some(Ends::new(to, at)), 0);
        }
        a.socket(1, Some(to), State::SynSent);
        let (_, out) = a.send(&packet(at, to, SYN, 5, 0, &MSS, &[]));
        assert!(b.receive(&out[0]).is_ok(), "{told}");
        // Signed with the key of the new connection.
        let (verdict, out) = b.send(&packet(to, at, SYN | ACK, 900, 6, &MSS, &[]));
        assert_eq!((verdict, out.len()), (Verdict::Sent, 1), "{told}");
        assert!(a.receive(&out[0]).is_ok(), "{told}");
        assert_eq!(known(&b).0, 1, "the keys of the old one are gone");
    }
}

/// A connection that io_uring or MSG_FASTOPEN begins is signed, too, though nobody has heard of its connect().
#[test]
fn a_syn_without_a_connect_is_signed() {
    let (mut a, mut b) = (End::new("10.0.0.1:40000"), End::new("10.0.0.2:179"));
    let (at, to) = (a.addr, b.addr);
    a.key(1, to, "hmac(sha1)", 1, 2);
    a.key(1, "10.0.0.3:0".parse().unwrap(), "hmac(sha1)", 3, 4);
    b.key(2, at, "hmac(sha1)", 2, 1);
    a.socket(1, Some(to), State::SynSent);
    b.socket(2, None, State::Listen);
    let syn = packet(at, to, SYN, A_ISN, 0, &MSS, &[]);
    // Once more, as when it was lost.
    for _ in 0..2 {
        let (verdict, out) = a.send(&syn);
        assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
        assert!(b.receive(&out[0]).is_ok());
    }
    // Linux refuses a connect() to a peer without a key while there are keys for others.
    let mut c = End::new("10.0.0.1:40000");
    c.key(1, "10.0.0.3:0".parse().unwrap(), "hmac(sha1)", 3, 4);
    c.socket(1, Some(to), State::SynSent);
    assert!(matches!(c.send(&syn).0, Verdict::Drop(_)));
}

#[test]
fn the_key_that_the_peer_asks_for_comes_into_use() {
    let (mut a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    let key_id = |p: &[u8]| {
        let segment = Segment::parse(p).unwrap();
        let option = Options::new(segment.option_bytes()).map(|o| o.unwrap()).find(|o| o.kind() == kind::AO).unwrap();
        option.bytes[2]
    };
    // The newest key is the first in use; the client asks for the older one.
    let mut info = vec![0; 48];
    (info[0], info[7]) = (2, 2);
    let now = facts(State::Established, Some(at), Some(to));
    a.engine.setsockopt(SocketId(1), &now, tcp::TCP_AO_INFO, &info, 48).unwrap();
    let (_, before) = b.send(&packet(to, at, ACK, B_ISN + 1, A_ISN + 1, &[], b"x"));
    assert_eq!(key_id(&before[0]), 4);
    let (_, out) = a.send(&packet(at, to, ACK, A_ISN + 1, B_ISN + 1, &[], b"y"));
    b.receive(&out[0]).unwrap();
    let (_, after) = b.send(&packet(to, at, ACK, B_ISN + 2, A_ISN + 2, &[], b"z"));
    assert_eq!(key_id(&after[0]), 2);
    // Segments on the way with the old key are still good.
    assert!(a.receive(&before[0]).is_ok() && a.receive(&after[0]).is_ok());
}

#[test]
fn a_snapshot_shows_what_is_and_why_segments_were_dropped() {
    let (a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    let shown = |end: &End| end.engine.snapshot(1_000_000).finish();
    let client = shown(&a);
    let [socket] = &client.sockets[..] else { panic!("one socket") };
    assert_eq!((socket.cookie, socket.local, socket.remote), (1, Some(at), Some(to)));
    assert_eq!(socket.state, sealane_abi::admin::SocketState::Established);
    assert_eq!((socket.current, socket.rnext), (Some(3), Some(4)));
    let keys: Vec<_> = socket.keys.iter().map(|k| (&*k.peer, &*k.algorithm, k.send_id, k.recv_id, k.current)).collect();
    assert_eq!(keys, [("10.0.0.2", "cmac(aes128)", 3, 4, true), ("10.0.0.2", "hmac(sha1)", 1, 2, false)]);
    assert_eq!((client.counters.good, client.counters.bad, client.drops.len()), (1, 0, 0));
    let server = shown(&b);
    assert_eq!(server.sockets.len(), 2, "the listener and its child");
    assert!(server.sockets.iter().all(|s| s.last_drop.is_none()));

    // A client whose key says another algorithm.
    let mut other = End::new("10.0.0.1:40000");
    other.key(1, to, "hmac(sha256)", 1, 2);
    other.engine.connect(SocketId(1), &facts(State::Close, None, None), to).unwrap();
    other.socket(1, Some(to), State::SynSent);
    let (_, out) = other.send(&packet(at, to, SYN, 7, 0, &MSS, &[]));
    b.kernel.0.remove(&(to, Some(at)));
    assert_eq!(b.receive(&out[0]), Err(Verdict::Drop(DropReason::Mac)));
    let server = shown(&b);
    let listener = server.sockets.iter().find(|s| s.cookie == 2).expect("the listener");
    let drop = listener.last_drop.as_ref().expect("a segment was dropped");
    assert_eq!((drop.source, drop.destination, drop.key_id, &*drop.reason), (at, to, Some(1), "mac"));
    assert_eq!(drop.at_ms, 1_000_000);
    assert!(drop.hint.as_ref().is_some_and(|h| h.contains("hmac(sha256)")), "{:?}", drop.hint);
    assert_eq!((&*server.drops[0].reason, server.drops[0].count), ("mac", 1));
}

#[test]
fn floods_of_bad_segments_are_written_down_now_and_then() {
    let (mut a, mut b) = connected();
    let (_, out) = a.send(&packet(a.addr, b.addr, ACK, A_ISN + 1, B_ISN + 1, &[], b"data"));
    let mut bad = out[0].clone();
    *bad.last_mut().unwrap() ^= 1;
    let bare = packet(a.addr, b.addr, ACK, A_ISN + 1, B_ISN + 1, &[], b"bare");
    for _ in 0..3 {
        assert!(b.receive(&bad).is_err());
        assert!(b.receive(&bare).is_err());
    }
    let shown = b.engine.snapshot(0).finish();
    let child = shown.sockets.iter().find(|s| s.remote.is_some()).unwrap();
    assert_eq!(child.last_drop.as_ref().unwrap().reason, "mac", "the first of many at the same time");
    assert_eq!(child.last_drop.as_ref().unwrap().hint, None);
    let counts: Vec<_> = shown.drops.iter().map(|d| (&*d.reason, d.count)).collect();
    assert_eq!(counts, [("required", 3), ("mac", 3)]);
    assert_eq!((child.counters.bad, child.counters.required), (3, 3));
}

/// A kernel that has no memory for an answer.
struct Silent;

impl Kernel for Silent {
    fn find(&mut self, _: SocketAddr, _: SocketAddr, _: u32) -> Option<Found> {
        None
    }

    fn is_unanswered(&self) -> bool {
        true
    }
}

#[test]
fn nothing_unsigned_passes_while_the_kernel_does_not_answer() {
    let (a, mut b) = (End::new("10.0.0.1:40000"), End::new("10.0.0.2:179"));
    b.key(2, a.addr, "hmac(sha1)", 1, 2);
    let mut syn = packet(a.addr, b.addr, SYN, A_ISN, 0, &MSS, &[]);
    let mut burst = [arriving(&mut syn)];
    b.engine.input(&mut burst, &mut Silent, 0);
    assert_eq!(burst[0].verdict, Verdict::Drop(DropReason::NoSocket), "it may be for the listener with keys");
    let rst = packet(b.addr, a.addr, Flags::RST, B_ISN, 0, &[], &[]);
    let mut burst = [leaving(&rst)];
    b.engine.output(&mut burst, &mut Silent, 0, |_| {});
    assert_eq!(burst[0].verdict, Verdict::Drop(DropReason::NoSendKey));
}
