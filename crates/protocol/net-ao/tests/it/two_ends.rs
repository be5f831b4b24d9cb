//! Two ends and a pretend wire with loss, reordering, duplication, bit errors and replays; seeded, so that each run is
//! the same. The ends keep just so much of TCP that data arrives in order.

use crate::common::{mkt, segment, spec};
use crate::random::Random;
use core::net::SocketAddr;
use sealane_net_ao::drop::{Counter, DropReason, Netstat};
use sealane_net_ao::endpoint::{Endpoint, EndpointState, Request};
use sealane_net_ao::info::{AoInfo, Child, Conn};
use sealane_net_ao::input::{Class, Ticket, classify, refuse, settle};
use sealane_net_ao::mac::{Checksum, Sign, Verify, sign, verify};
use sealane_net_ao::mkt::{MktSpec, Prefix};
use sealane_net_ao::output::{Choice, choose, sent};
use sealane_net_ao::segment::cut::Cut;
use sealane_net_ao::segment::join::{Join, Pushed};
use sealane_net_ao::segment::{ChecksumState, make_room, max_payload, strip};
use sealane_net_ao::table::{Ids, KeyRef};
use sealane_wire::ip::{self, Layout};
use sealane_wire::tcp::{AoOption, Flags, Segment};
use std::collections::{BTreeMap, HashMap};

const MTU: usize = 600;
const MSS_OPTION: [u8; 4] = [2, 4, 0xff, 0xff];

/// The keys that both ends have, with the ids of the client; the server has them the other way round.
const KEYS: [(&str, u8, u8, usize, bool); 4] = [
    ("hmac(sha1)", 1, 11, 12, false),
    ("cmac(aes128)", 2, 12, 16, true),
    ("hmac(sha256)", 3, 13, 7, false),
    ("hmac(md5)", 4, 14, 4, true),
];

fn keys(info: &mut AoInfo, client: bool, v6: bool) {
    for (name, a, b, mac_len, exclude_options) in KEYS {
        let (send_id, recv_id) = if client { (a, b) } else { (b, a) };
        let peer = if v6 { Prefix::ANY_V6 } else { Prefix::ANY_V4 };
        let key = MktSpec { mac_len, exclude_options, peer, ..spec(name, send_id, recv_id) };
        info.add_key(mkt(&key)).unwrap();
    }
}

/// One end.
struct End {
    local: SocketAddr,
    remote: SocketAddr,
    state: EndpointState,
    /// The keys of the listener, or of the connection.
    info: AoInfo,
    request: Option<Request>,
    /// Whether half-open connections are forgotten, and live in a SYN cookie only.
    cookies: bool,
    isn: u32,
    /// Sequence numbers that one byte of payload takes: more than one makes them wrap soon.
    scale: u32,
    mss: usize,
    /// Positions in bytes of payload since the start.
    una: u64,
    next: u64,
    furthest: u64,
    to_send: u64,
    received: u64,
    early: BTreeMap<u64, u64>,
    netstat: Netstat,
    /// Signed packets as they left, with their place in the 64-bit sequence space.
    signed: HashMap<Vec<u8>, u64>,
    joined: usize,
    refused: usize,
    identification: u16,
}

/// The byte of the stream at `at`.
fn stream(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl End {
    fn new(local: &str, remote: &str, isn: u32, scale: u32) -> Self {
        End {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            state: EndpointState::Listen,
            info: AoInfo::new(),
            request: None,
            cookies: false,
            isn,
            scale,
            mss: 0,
            una: 0,
            next: 0,
            furthest: 0,
            to_send: 0,
            received: 0,
            early: BTreeMap::new(),
            netstat: Netstat::default(),
            signed: HashMap::new(),
            joined: 0,
            refused: 0,
            identification: 0,
        }
    }

    /// The sequence number of byte `at` of our stream, and the whole of it.
    fn seq(&self, at: u64) -> (u32, u64) {
        let long = u64::from(self.isn) + 1 + at * u64::from(self.scale);
        (long as u32, long)
    }

    fn peer_isn(&self) -> u32 {
        match &self.request {
            Some(r) => r.rcv_isn,
            None => self.info.conn().map_or(0, |c| c.risn),
        }
    }

    fn ack(&self) -> u32 {
        self.peer_isn().wrapping_add(1).wrapping_add((self.received * u64::from(self.scale)) as u32)
    }

    /// Signs what the stack sends; the packets that go on the wire.
    fn emit(&mut self, flags: u8, seq: (u32, u64), payload: &[u8]) -> Vec<Vec<u8>> {
        let syn = flags & Flags::SYN != 0;
        let options: &[u8] = if syn { &MSS_OPTION } else { &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2] };
        let ack = if flags & Flags::ACK != 0 { self.ack() } else { 0 };
        let mut plain = segment(self.local, self.remote, seq.0, ack, flags, options, payload);
        let at = Layout::find(&plain).unwrap();
        if self.local.is_ipv4() {
            plain[4..6].copy_from_slice(&self.identification.to_be_bytes());
            ip::set_len(&mut plain, &at);
        }
        let plain = Segment::parse(&plain).unwrap();
        let request = self.request.filter(|_| self.state == EndpointState::Listen);
        let from =
            Endpoint { info: Some(&self.info), state: self.state, request: request.as_ref(), ifindex: 0, md5: false };
        let signature = match choose(&plain, &from) {
            Choice::Sign(signature) => signature,
            Choice::Unsigned => panic!("unsigned"),
            Choice::Drop(reason) => panic!("{reason:?}"),
        };
        let options_len = options.len() + signature.option.padded_len();
        let gso_size = if self.scale == 1 { max_payload(&at, options_len, MTU) } else { payload.len().max(1) };
        let cut = Cut::new(&plain, &signature.option, gso_size.min(self.mss.max(1))).unwrap();
        let mut out = vec![0; cut.total_len()];
        cut.write(plain.packet(), &mut out).unwrap();
        let mut ops: Vec<Sign<'_>> = cut
            .packets(&mut out)
            .map(|(packet, at, seq)| Sign {
                tfm: signature.traffic.here().unwrap(),
                packet,
                at,
                cover: signature.coverage(seq),
                checksum: Checksum::Full,
                status: Ok(()),
            })
            .collect();
        sign(&mut ops);
        let packets: Vec<Vec<u8>> = ops.iter().map(|op| (op.status.unwrap(), op.packet.to_vec()).1).collect();
        for (i, packet) in packets.iter().enumerate() {
            assert!(packet.len() <= MTU);
            self.signed.insert(packet.clone(), seq.1 + (i * cut.payload_len()) as u64);
        }
        self.identification = self.identification.wrapping_add(packets.len() as u16);
        if request.is_none() {
            sent(&mut self.info, &plain);
            let long = seq.1 + (payload.len() as u64) * u64::from(self.scale);
            let conn = self.info.conn_mut().unwrap();
            conn.snd_nxt = conn.snd_nxt.max(long);
        }
        packets
    }

    fn syn(&mut self) -> Vec<Vec<u8>> {
        assert!(self.info.keep_matching(self.remote.ip(), 0));
        self.state = EndpointState::SynSent;
        self.emit(Flags::SYN, (self.isn, self.isn.into()), &[])
    }

    fn syn_ack(&mut self) -> Vec<Vec<u8>> {
        self.emit(Flags::SYN | Flags::ACK, (self.isn, self.isn.into()), &[])
    }

    fn pure_ack(&mut self) -> Vec<Vec<u8>> {
        let seq = self.seq(self.next);
        self.emit(Flags::ACK, seq, &[])
    }

    /// Sends what the window allows; after a timeout from the front again.
    fn pump(&mut self, timeout: bool) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        if self.state != EndpointState::Established {
            return match (self.state, timeout) {
                (EndpointState::SynSent, true) => self.syn(),
                (EndpointState::SynReceived, true) => self.syn_ack(),
                (EndpointState::Listen, true) if self.request.is_some() && !self.cookies => self.syn_ack(),
                _ => out,
            };
        }
        if timeout {
            self.next = self.una;
        }
        let window = 24 * self.mss as u64;
        while self.next < self.to_send.min(self.una + window) {
            let superframe = if self.scale == 1 { 8 * self.mss as u64 } else { self.mss as u64 };
            let len = superframe.min(self.to_send - self.next);
            let payload: Vec<u8> = (self.next..self.next + len).map(stream).collect();
            let seq = self.seq(self.next);
            self.next += len;
            self.furthest = self.furthest.max(self.next);
            out.extend(self.emit(Flags::ACK | Flags::PSH, seq, &payload));
        }
        out
    }

    /// Takes a burst from the wire; what it answers.
    fn receive(&mut self, mut packets: Vec<Vec<u8>>, other: &HashMap<Vec<u8>, u64>, peer_place: u64) -> Vec<Vec<u8>> {
        let verdicts = self.judge(&packets);
        let mut out = Vec::new();
        let mut good = Vec::new();
        for ((packet, ticket), at) in packets.iter_mut().zip(verdicts).zip(0..) {
            let Some((option, verdict)) = ticket else { continue };
            if let Err(reason) = verdict {
                assert_eq!(reason, DropReason::Mac);
                continue;
            }
            // A segment that was accepted was sent like this, and not before a wrap of the sequence numbers.
            let place = *other.get(packet).unwrap_or_else(|| panic!("packet {at} was never sent"));
            // (A SYN can come again: it is signed without the receiver's ISN, and TCP answers it with an ACK.)
            let first_syn = Segment::parse(packet).unwrap().flags().0 & (Flags::SYN | Flags::ACK) == Flags::SYN;
            // The receiver may be a window behind what the sender has sent.
            let round = (1 << 31) + 24 * u64::from(self.scale) * 1024;
            assert!(first_syn || place.abs_diff(peer_place) < round, "a replay was believed");
            let layout = Layout::find(packet).unwrap();
            let (start, layout) = strip(packet, &layout, &option, ChecksumState::Complete);
            packet.drain(..start);
            make_room(packet, &layout, MTU, 20, ChecksumState::Complete);
            assert!(ip::tcp_checksum_ok(packet, &layout));
            good.push((std::mem::take(packet), option));
        }
        let (mut open, mut data): (Option<Join>, Vec<(u64, u64)>) = (None, Vec::new());
        for (packet, option) in &good {
            let plain = Segment::parse(packet).unwrap();
            // A superframe as the stack would see it; the data is taken from the segments either way.
            match open.as_mut().map_or(Pushed::No, |join| join.push(&plain)) {
                Pushed::No => open = Join::start(&plain),
                Pushed::Yes => self.joined += 1,
                Pushed::Last => (open, self.joined) = (None, self.joined + 1),
            }
            out.extend(self.stack(&plain, option, &mut data));
        }
        for (at, len) in data {
            self.early.insert(at, len);
        }
        let before = self.received;
        while let Some((at, len)) = self.early.pop_first() {
            if at > self.received {
                self.early.insert(at, len);
                break;
            }
            self.received = self.received.max(at + len);
        }
        if self.state == EndpointState::Established
            && (self.received != before || good.iter().any(|(p, _)| p.len() > 60))
        {
            out.extend(self.pure_ack());
        }
        out
    }

    /// The AO verdict on each packet, in one burst; `None` where it went without one.
    fn judge(&mut self, packets: &[Vec<u8>]) -> Vec<Option<(AoOption, Result<(), DropReason>)>> {
        let segments: Vec<Option<Segment<'_>>> = packets.iter().map(|p| Segment::parse(p).ok()).collect();
        let request = self.request;
        let to =
            Endpoint { info: Some(&self.info), state: self.state, request: request.as_ref(), ifindex: 0, md5: false };
        let classes: Vec<Option<Class>> = segments.iter().map(|s| s.as_ref().map(|s| classify(s, &to))).collect();
        let mut ops: Vec<Verify<'_>> = Vec::new();
        for (class, segment) in classes.iter().zip(&segments) {
            if let (Some(Class::Verify(check)), Some(segment)) = (class, segment) {
                ops.push(check.op(check.traffic.here().unwrap(), segment));
            }
        }
        verify(&mut ops);
        let mut statuses: Vec<Result<(), DropReason>> = ops.iter().map(|op| op.status).collect();
        statuses.reverse();
        let outcomes: Vec<Option<Result<(AoOption, Ticket), _>>> = classes
            .into_iter()
            .map(|class| match class {
                Some(Class::Verify(check)) => Some(Ok((check.option, check.ticket))),
                Some(Class::Drop(refusal)) => Some(Err(refusal)),
                Some(_) => panic!("let through without a MAC"),
                None => None,
            })
            .collect();
        outcomes
            .into_iter()
            .map(|outcome| match outcome? {
                Ok((option, ticket)) => {
                    let verdict = statuses.pop().unwrap();
                    assert_eq!(settle(&mut self.info, &ticket, verdict, &mut self.netstat), verdict);
                    Some((option, verdict))
                }
                Err(refusal) => {
                    self.refused += 1;
                    refuse(&refusal, Some(&mut self.info), &mut self.netstat);
                    None
                }
            })
            .collect()
    }

    /// Handles a verified segment as the kernel's TCP does.
    fn stack(&mut self, plain: &Segment<'_>, option: &AoOption, data: &mut Vec<(u64, u64)>) -> Vec<Vec<u8>> {
        let flags = plain.flags();
        match (self.state, flags.syn(), flags.ack()) {
            (EndpointState::Listen, true, false) => {
                self.learn_mss(plain);
                let (key_id, rnext_key_id) = (option.key_id, option.rnext_key_id);
                let (rcv_isn, snt_isn) = (plain.seq(), self.isn);
                self.request = Some(Request { used_ao: true, rcv_isn, snt_isn, key_id, rnext_key_id });
                let out = self.syn_ack();
                if self.cookies {
                    self.request = None;
                }
                return out;
            }
            (EndpointState::Listen, false, true) => {
                let (risn, lisn) = (plain.seq().wrapping_sub(1), plain.ack_seq().wrapping_sub(1));
                if self.request.is_none() && (plain.layout().payload_len() > 0 || lisn != self.isn) {
                    return Vec::new(); // Not the ACK of a cookie of ours.
                }
                let (key_id, rnext_key_id, risn) = match self.request.take() {
                    Some(r) => (r.key_id, r.rnext_key_id, r.rcv_isn),
                    None => (option.key_id, option.rnext_key_id, risn),
                };
                let conn = Conn::new(self.local, self.remote, self.isn, risn);
                self.info = self.info.for_child(&Child { conn, ifindex: 0, key_id, rnext_key_id }).unwrap();
                self.state = EndpointState::Established;
            }
            (EndpointState::SynSent, true, false) => {
                self.learn_mss(plain);
                self.state = EndpointState::SynReceived;
                return self.syn_ack();
            }
            (EndpointState::SynSent | EndpointState::SynReceived, true, true) => {
                self.learn_mss(plain);
                self.state = EndpointState::Established;
                return self.pure_ack();
            }
            (EndpointState::SynReceived, false, true) => self.state = EndpointState::Established,
            (EndpointState::Established, true, _) => return self.pure_ack(),
            (EndpointState::Established, false, true) => {}
            other => panic!("{other:?}"),
        }
        let conn = *self.info.conn().unwrap();
        let scale = u64::from(self.scale);
        // Places relative to what is known, in the 64-bit space.
        let ahead = plain.ack_seq().wrapping_sub(self.seq(self.una).0);
        let acknowledged = self.una + u64::from(ahead) / scale;
        if acknowledged <= self.furthest {
            self.una = acknowledged;
            self.next = self.next.max(self.una);
        }
        if plain.layout().payload_len() > 0 {
            let expected = conn.risn.wrapping_add(1).wrapping_add((self.received * scale) as u32);
            let offset = i64::from(plain.seq().wrapping_sub(expected) as i32) / scale as i64;
            let at = self.received.saturating_add_signed(offset);
            assert!(plain.payload().iter().zip(at..).all(|(byte, at)| *byte == stream(at)), "the data is right");
            data.push((at, plain.layout().payload_len() as u64));
        }
        Vec::new()
    }

    fn learn_mss(&mut self, plain: &Segment<'_>) {
        let mss = u16::from_be_bytes([plain.option_bytes()[2], plain.option_bytes()[3]]);
        self.mss = usize::from(mss) - 12;
    }

    fn send_id(&self, key: Option<KeyRef>) -> u8 {
        self.info.key(key.unwrap()).unwrap().mkt.send_id
    }

    fn count(&self, counter: Counter) -> u64 {
        self.netstat.value(counter)
    }
}

/// The faults of the wire.
struct Wire {
    random: Random,
    /// One packet in so many is lost, doubled, overtaken, changed; 0 for never.
    lose: usize,
    double: usize,
    overtake: usize,
    change: usize,
    replay: usize,
    seen: Vec<Vec<u8>>,
}

impl Wire {
    fn perfect(seed: u64) -> Self {
        Wire { random: Random(seed), lose: 0, double: 0, overtake: 0, change: 0, replay: 0, seen: Vec::new() }
    }

    fn bad(seed: u64) -> Self {
        Wire { lose: 30, double: 40, overtake: 10, change: 50, replay: 25, ..Wire::perfect(seed) }
    }

    fn one_in(&mut self, n: usize) -> bool {
        n != 0 && self.random.one_in(n)
    }

    fn carry(&mut self, packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut out: Vec<Vec<u8>> = Vec::new();
        for packet in packets {
            if self.replay != 0 && self.seen.len() < 2000 {
                self.seen.push(packet.clone());
            }
            if self.one_in(self.replay) {
                let old = self.random.below(self.seen.len());
                out.push(self.seen[old].clone());
            }
            if self.one_in(self.lose) {
                continue;
            }
            if self.one_in(self.double) {
                out.push(packet.clone());
            }
            if self.one_in(self.change) {
                let mut changed = packet.clone();
                // Every MAC covers the addresses of the IP header, but not the TCP checksum and the options.
                let (first, tcp) = if changed[0] >> 4 == 4 { (12, 20) } else { (8, 40) };
                let at = first + self.random.below(changed.len() - first);
                if !(tcp + 12..tcp + 13).contains(&at) && !(tcp + 16..tcp + 52).contains(&at) {
                    changed[at] ^= 1 << self.random.below(8);
                    out.push(changed);
                }
            }
            let at = if self.one_in(self.overtake) { self.random.below(out.len() + 1) } else { out.len() };
            out.insert(at, packet);
        }
        out
    }
}

/// Lets the two talk until both have all data, with a new key asked for now and then.
fn talk(a: &mut End, b: &mut End, wire: &mut Wire, bytes: (u64, u64), rotate: bool) {
    (a.to_send, b.to_send) = bytes;
    let (mut to_b, mut to_a) = (a.syn(), Vec::new());
    let mut quiet = 0;
    let mut progress = 0;
    for tick in 0u64.. {
        assert!(tick < 200_000, "no end: {} {} {:?} {:?}", a.received, b.received, a.state, b.state);
        if a.received >= b.to_send && b.received >= a.to_send && a.una == a.to_send && b.una == b.to_send {
            return;
        }
        let (place_a, place_b) = (a.seq(a.next).1, b.seq(b.next).1);
        let answers_b = b.receive(wire.carry(std::mem::take(&mut to_b)), &a.signed, place_a);
        to_a.extend(answers_b);
        let answers_a = a.receive(wire.carry(std::mem::take(&mut to_a)), &b.signed, place_b);
        to_b.extend(answers_a);
        let now = a.una + b.una + a.received + b.received;
        quiet = if now == progress { quiet + 1 } else { 0 };
        progress = now;
        let timeout = quiet > 3;
        if timeout {
            quiet = 0;
        }
        to_b.extend(a.pump(timeout));
        to_a.extend(b.pump(timeout));
        if rotate && tick % 50 == 49 {
            let end = if wire.random.one_in(2) { &mut *a } else { &mut *b };
            if end.state == EndpointState::Established {
                let keys: Vec<KeyRef> = end.info.keys().iter().map(|(r, _)| r).collect();
                let key = keys[wire.random.below(keys.len())];
                end.info.set_rnext(key);
            }
        }
    }
}

fn pair(v6: bool, isns: (u32, u32), scale: u32) -> (End, End) {
    let (a, b) = if v6 { ("[2001:db8::1]:4000", "[2001:db8::2]:179") } else { ("192.0.2.1:4000", "192.0.2.2:179") };
    let (mut client, mut server) = (End::new(a, b, isns.0, scale), End::new(b, a, isns.1, scale));
    keys(&mut client.info, true, v6);
    keys(&mut server.info, false, v6);
    (client, server)
}

/// Superframes cut and joined, data both ways, sequence numbers that wrap once.
#[test]
fn data_over_a_perfect_wire() {
    for v6 in [false, true] {
        let (mut a, mut b) = pair(v6, (u32::MAX - 9_000, u32::MAX - 3_000), 1);
        talk(&mut a, &mut b, &mut Wire::perfect(1), (100_000, 30_000), false);
        for end in [&a, &b] {
            assert_eq!((end.refused, end.count(Counter::Bad), end.count(Counter::KeyNotFound)), (0, 0, 0));
            assert!(end.joined > 20, "{}", end.joined);
            let conn = end.info.conn().unwrap();
            assert_eq!((conn.snd.ext, conn.rcv.ext), (1, 1));
        }
        assert_eq!(a.count(Counter::Good), a.info.counters.good);
        assert_eq!(a.send_id(a.info.current()), 4, "the last key added");
    }
}

#[test]
fn data_over_a_bad_wire_while_keys_rotate() {
    for seed in 0..6 {
        let (mut a, mut b) = pair(seed % 2 == 1, (u32::MAX - 50_000, 77), 1);
        b.cookies = seed % 3 == 2;
        talk(&mut a, &mut b, &mut Wire::bad(seed), (150_000, 50_000), true);
        assert!(a.count(Counter::Bad) + b.count(Counter::Bad) > 0);
        // The last key that the peer asked for is in use.
        let asked = |end: &End| end.info.key(end.info.rnext().unwrap()).unwrap().mkt.recv_id;
        let mut settled = Wire::perfect(0);
        for _ in 0..3 {
            let (from_a, from_b) = (settled.carry(a.pure_ack()), settled.carry(b.pure_ack()));
            let (place_a, place_b) = (a.seq(a.next).1, b.seq(b.next).1);
            b.receive(from_a, &a.signed, place_a);
            a.receive(from_b, &b.signed, place_b);
        }
        assert_eq!((a.send_id(a.info.current()), b.send_id(b.info.current())), (asked(&b), asked(&a)));
    }
}

/// A byte counts as 16,384 sequence numbers: these wrap many times, and replays of earlier rounds come again and again.
/// With data in one direction only, all acknowledgments of the other one have one sequence number, and so are as well
/// signed when they come again a round later.
#[test]
fn sequence_numbers_wrap_many_times() {
    const BYTES: u64 = 6 << 18;
    const ROUNDS: u64 = (BYTES << 14) >> 32;
    for back in [BYTES / 3, 0] {
        let (mut a, mut b) = pair(false, (0x7000_0000, 0x4000_0000), 1 << 14);
        talk(&mut a, &mut b, &mut Wire::bad(9), (BYTES, back), true);
        let (conn_a, conn_b) = (a.info.conn().unwrap(), b.info.conn().unwrap());
        assert_eq!((u64::from(conn_b.rcv.ext), u64::from(conn_a.snd.ext)), (ROUNDS, ROUNDS));
        let rounds_back = if back > 0 { ROUNDS / 3 } else { 0 };
        assert_eq!((u64::from(conn_a.rcv.ext), u64::from(conn_b.snd.ext)), (rounds_back, rounds_back));
        assert!(b.count(Counter::Bad) > 10, "replays are refused: {}", b.count(Counter::Bad));
    }
}

/// Both send a SYN at once.
#[test]
fn simultaneous_open() {
    let (mut a, mut b) = pair(false, (5, u32::MAX), 1);
    let (syn_a, syn_b) = (a.syn(), b.syn());
    let (at_a, at_b) = (5, u64::from(u32::MAX));
    let answer_b = b.receive(syn_a, &a.signed, at_a);
    let answer_a = a.receive(syn_b, &b.signed, at_b);
    assert_eq!((a.state, b.state), (EndpointState::SynReceived, EndpointState::SynReceived));
    let ack_a = a.receive(answer_b, &b.signed, at_b);
    let ack_b = b.receive(answer_a, &a.signed, at_a);
    assert_eq!((a.state, b.state), (EndpointState::Established, EndpointState::Established));
    a.receive(ack_b, &b.signed, at_b);
    b.receive(ack_a, &a.signed, at_a);
    for end in [&a, &b] {
        assert_eq!((end.refused, end.count(Counter::Bad), end.count(Counter::Good)), (0, 0, 3));
    }
}

/// RST: of a connection; of a listener that refuses a SYN; none without either.
#[test]
fn resets() {
    let (mut a, mut b) = pair(true, (100, 200), 1);
    talk(&mut a, &mut b, &mut Wire::perfect(1), (3_000, 1_000), false);
    let (seq, place) = (b.seq(b.next), b.seq(b.next).1);
    let rst = b.emit(Flags::RST, seq, &[]);
    let judged = a.judge(&rst);
    assert!(matches!(judged[..], [Some((_, Ok(())))]), "place {place}");

    // A refused SYN: RST|ACK with number 0, which the client believes.
    let (mut a, mut b) = pair(false, (100, 200), 1);
    let syn = a.syn();
    assert!(matches!(b.judge(&syn)[..], [Some((_, Ok(())))]));
    let from = Endpoint { info: Some(&b.info), state: EndpointState::Listen, request: None, ifindex: 0, md5: false };
    let signed_as = |flags, seq, ack| {
        let plain = segment(b.local, b.remote, seq, ack, flags, &[], &[]);
        let plain = Segment::parse(&plain).unwrap();
        let signature = match choose(&plain, &from) {
            Choice::Sign(signature) => signature,
            Choice::Drop(reason) => return Err(reason),
            Choice::Unsigned => panic!("unsigned"),
        };
        let cut = Cut::new(&plain, &signature.option, 1).unwrap();
        let mut out = vec![0; cut.total_len()];
        cut.write(plain.packet(), &mut out).unwrap();
        let (tfm, cover) = (&**signature.traffic.here().unwrap(), signature.coverage(seq));
        let mut op =
            [Sign { tfm, packet: &mut out, at: cut.layout(0), cover, checksum: Checksum::Full, status: Ok(()) }];
        sign(&mut op);
        Ok(out)
    };
    let rst = signed_as(Flags::RST | Flags::ACK, 0, 101).unwrap();
    assert!(matches!(a.judge(&[rst])[..], [Some((_, Ok(())))]));
    assert_eq!(signed_as(Flags::RST, 5, 0), Err(DropReason::NoSendKey));
    assert_eq!(signed_as(Flags::ACK, 5, 6), Err(DropReason::NoSendKey));
    let lookup = |info: &AoInfo| info.keys().by_ids(Ids::default()).is_some();
    assert!(lookup(&a.info) && lookup(&b.info));
}
