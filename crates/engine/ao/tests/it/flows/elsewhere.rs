//! Master keys that are elsewhere: with a home of keys that is slow, fails, counts, and must not be asked while others wait for the
//! namespace.

use super::*;
use sealane_crypto::hash::HashState;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp, MacTfm};
use sealane_crypto::registry::Driver;
use sealane_crypto::{KeyError, OpError, Row};
use sealane_engine_ao::{ConfiguredKey, ConfiguredPeer, Desk, Hurry, SavedConnection, SignBurst, VerifyBurst};
use sealane_net_ao::info::Conn;
use sealane_net_ao::kdf::Context;
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net_ao::traffic::{Origin, Wanted};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const ALGORITHM: &str = "hmac(sha1)";
/// The connection of the sockets here.
const CONNECTION: SocketId = SocketId(77);
const NONE: Verdict = Verdict::Drop(DropReason::NoTrafficKey);

/// The home, and the clock of everybody.
#[derive(Default)]
struct Home {
    asked: AtomicUsize,
    says_no: AtomicBool,
    /// The time that each answer takes.
    takes_ms: AtomicU64,
    now_ms: AtomicU64,
    /// Whether somebody has the namespace.
    is_locked: AtomicBool,
}

impl Home {
    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(Ordering::Relaxed))
    }

    fn pass(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn says_no(&self, no: bool) {
        self.says_no.store(no, Ordering::Relaxed);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Computes by the secret that its home has for every reference.
struct AtHome(Arc<Home>, MacTfm);

impl MacDriver for AtHome {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(key.to_vec()))
    }

    fn start(&self, _: &dyn PreparedKey) -> Box<dyn HashState> {
        panic!("a KDF has one block")
    }

    fn burst(&self, _: usize, ops: &mut [MacOp<'_>]) {
        let AtHome(home, tfm) = self;
        for op in ops {
            assert!(!home.is_locked.load(Ordering::Relaxed), "the namespace is locked");
            home.asked.fetch_add(1, Ordering::Relaxed);
            home.pass(home.takes_ms.load(Ordering::Relaxed));
            let no = home.says_no.load(Ordering::Relaxed);
            op.status = if no { Err(OpError::Driver) } else { tfm.sign(op.data, op.tag) };
        }
    }
}

/// The kernel's sockets, with one configured peer for all of them.
struct WithPeer<'t>(&'t mut Table);

impl Kernel for WithPeer<'_> {
    fn find(&mut self, local: SocketAddr, remote: SocketAddr, device: u32) -> Option<Found> {
        self.0.find(local, remote, device)
    }

    fn has(&mut self, ends: &Ends, device: u32) -> Option<bool> {
        self.0.has(ends, device)
    }

    fn configured(&mut self, _: &Ends) -> Option<u32> {
        Some(0)
    }
}

/// An end whose keys are configured.
struct Host {
    end: End,
    home: Arc<Home>,
    desk: Desk,
    peer: SocketAddr,
}

impl Host {
    fn new(addr: &str, peer: &str) -> Self {
        let home = Arc::new(Home::default());
        Host { end: End::new(addr), home, desk: Desk::default(), peer: peer.parse().unwrap() }
    }

    fn mkt(&self, ids: [u8; 2], secret: &str, is_elsewhere: bool) -> Arc<Mkt> {
        self.mkt_for(self.peer.ip(), ids, secret, is_elsewhere)
    }

    fn mkt_for(&self, addr: IpAddr, [send_id, recv_id]: [u8; 2], secret: &str, is_elsewhere: bool) -> Arc<Mkt> {
        let algorithms = Algorithms::new(&sealane_crypto_portable::registry());
        let algorithm = algorithms.get(ALGORITHM).unwrap();
        let spec = |key| MktSpec {
            algorithm,
            key,
            send_id,
            recv_id,
            mac_len: 12,
            exclude_options: false,
            peer: Prefix::host(addr),
            ifindex: None,
        };
        if !is_elsewhere {
            return Arc::new(Mkt::new(&spec(secret.as_bytes())).unwrap());
        }
        let (mac, _) = algorithm.kdf_mac().unwrap();
        let driver = AtHome(self.home.clone(), mac.mac(secret.as_bytes()).unwrap());
        let row = Row::new(mac.info().clone(), "hmac-sha1-home", "home", 0, Driver::Mac(Arc::new(driver)));
        let reference = format!("reference of {secret}");
        Arc::new(Mkt::elsewhere(&spec(reference.as_bytes()), &mac.served_by(row)).unwrap())
    }

    /// Has these keys, of which new connections begin with the first.
    fn configure(&mut self, mkts: &[Arc<Mkt>]) {
        self.configure_preferring(mkts, mkts.first().map(|mkt| mkt.send_id));
    }

    /// The same, where new connections begin with those of this SendID.
    fn configure_preferring(&mut self, mkts: &[Arc<Mkt>], preferred: Option<u8>) {
        self.configure_sending(mkts, preferred, |_| true);
    }

    /// The same, where the time for sending of some is over.
    fn configure_sending(&mut self, mkts: &[Arc<Mkt>], preferred: Option<u8>, sends: impl Fn(u8) -> bool) {
        let key = |mkt: &Arc<Mkt>| {
            let (send, preferred) = (sends(mkt.send_id), preferred == Some(mkt.send_id));
            ConfiguredKey { mkt: mkt.clone(), send, preferred }
        };
        let keys = mkts.iter().map(key).collect();
        self.locked(|end| {
            end.engine.configure(&[ConfiguredPeer { number: 0, name: "peer", keys, accept_icmps: false }])
        });
    }

    fn locked<T>(&mut self, f: impl FnOnce(&mut End) -> T) -> T {
        self.home.is_locked.store(true, Ordering::Relaxed);
        let done = f(&mut self.end);
        self.home.is_locked.store(false, Ordering::Relaxed);
        done
    }

    /// Sends packets in bursts, as the data path does; returns their verdicts and the signed pieces.
    fn send(&mut self, packets: &[Vec<u8>]) -> (Vec<Verdict>, Vec<Vec<u8>>) {
        let mut batch: Vec<Outbound<'_>> = packets.iter().map(|packet| leaving(packet)).collect();
        let (mut work, mut done, mut out) = (SignBurst::new(), 0, Vec::new());
        while done < batch.len() {
            let rest = &mut batch[done..];
            let count = self.locked(|end| end.engine.begin_output(&mut work, rest, &mut WithPeer(&mut end.kernel), 0));
            let now = &mut rest[..count];
            let clock = || self.home.now();
            work.run(now, &mut |wanted| self.desk.derive(wanted, Hurry::Segment, &clock));
            self.locked(|end| end.engine.end_output(&mut work, now, &mut WithPeer(&mut end.kernel), 0));
            out.extend(work.pieces().map(|piece| piece.packet.to_vec()));
            done += count;
        }
        (batch.iter().map(|p| p.verdict).collect(), out)
    }

    fn send_one(&mut self, packet: Vec<u8>) -> Result<Vec<u8>, Verdict> {
        let (verdicts, out) = self.send(&[packet]);
        assert_eq!(out.len(), usize::from(verdicts[0] == Verdict::Sent), "{verdicts:?}");
        out.into_iter().next().ok_or(verdicts[0])
    }

    fn receive(&mut self, packets: &[Vec<u8>]) -> Vec<Verdict> {
        let mut packets = packets.to_vec();
        let mut batch: Vec<Inbound<'_>> = packets.iter_mut().map(|packet| arriving(packet)).collect();
        let (mut work, mut done) = (VerifyBurst::new(), 0);
        while done < batch.len() {
            let rest = &mut batch[done..];
            let count = self.locked(|end| end.engine.begin_input(&mut work, rest, &mut WithPeer(&mut end.kernel)));
            let now = &mut rest[..count];
            let clock = || self.home.now();
            work.run(now, &mut |wanted| self.desk.derive(wanted, Hurry::Segment, &clock));
            self.locked(|end| end.engine.end_input(&mut work, now, &mut WithPeer(&mut end.kernel), 0));
            work.finish(now);
            done += count;
        }
        batch.iter().map(|p| p.verdict).collect()
    }

    /// Whether a segment is delivered.
    fn takes(&mut self, packet: &[u8]) -> bool {
        matches!(self.receive(&[packet.to_vec()])[0], Verdict::Deliver(..))
    }

    /// Does the work of each second.
    fn tick(&mut self) {
        let (home, desk) = (&self.home, &self.desk);
        let resting = desk.resting(home.now());
        let wanted = self.end.engine.wanted(64, |wanted| !resting.has(wanted));
        let twice = wanted.iter().enumerate().any(|(i, (_, one))| wanted[..i].iter().any(|(_, other)| one == other));
        assert!(!twice, "each is asked for once");
        for (id, wanted) in wanted {
            if let Some(tfm) = desk.derive(&wanted, Hurry::Later, &|| home.now()) {
                self.end.engine.give(id, &wanted, &tfm);
            }
        }
        desk.tidy(home.now());
    }

    fn syn(&self, isn: u32) -> Vec<u8> {
        packet(self.end.addr, self.peer, SYN, isn, 0, &MSS, &[])
    }

    fn data(&self, seq: u32, ack: u32) -> Vec<u8> {
        packet(self.end.addr, self.peer, ACK, seq, ack, &[], b"data")
    }
}

/// A client and a server, either of which has its key elsewhere.
fn hosts(elsewhere: [bool; 2]) -> [Host; 2] {
    let mut hosts = [Host::new("10.0.0.1:40000", "10.0.0.2:179"), Host::new("10.0.0.2:179", "10.0.0.1:40000")];
    for ((host, ids), elsewhere) in hosts.iter_mut().zip([[1, 2], [2, 1]]).zip(elsewhere) {
        let mkt = host.mkt(ids, "secret", elsewhere);
        host.configure(&[mkt]);
    }
    let [a, b] = &mut hosts;
    a.end.socket(CONNECTION.0, Some(a.peer), State::SynSent);
    b.end.socket(2, None, State::Listen);
    hosts
}

/// The client connects, and sends.
fn connect([a, b]: &mut [Host; 2]) {
    let syn = a.send_one(a.syn(A_ISN)).unwrap();
    assert!(b.takes(&syn));
    let syn_ack = b.send_one(packet(b.end.addr, b.peer, SYN | ACK, B_ISN, A_ISN + 1, &MSS, &[])).unwrap();
    assert!(a.takes(&syn_ack));
    a.end.socket(CONNECTION.0, Some(a.peer), State::Established);
    let data = a.send_one(a.data(A_ISN + 1, B_ISN + 1)).unwrap();
    assert!(b.takes(&data));
}

fn connected_hosts(elsewhere: [bool; 2]) -> [Host; 2] {
    let mut hosts = hosts(elsewhere);
    connect(&mut hosts);
    let [_, b] = &mut hosts;
    b.end.socket(CONNECTION.0, Some(b.peer), State::Established);
    hosts
}

#[test]
fn a_connection_takes_three_answers_at_each_end_and_nobody_waits_with_the_namespace() {
    for elsewhere in [[true, false], [false, true], [true, true]] {
        let mut hosts = connected_hosts(elsewhere);
        for _ in 0..100 {
            let [a, b] = &mut hosts;
            let there = a.send_one(a.data(A_ISN + 5, B_ISN + 1)).unwrap();
            let back = b.send_one(b.data(B_ISN + 1, A_ISN + 9)).unwrap();
            assert!(b.takes(&there) && a.takes(&back));
        }
        for (host, elsewhere) in hosts.iter_mut().zip(elsewhere) {
            let asked = 3 * usize::from(elsewhere);
            assert_eq!(host.home.asked(), asked);
            // Answers are forgotten after a while, and the connection has its keys.
            host.home.pass(60_000);
            host.home.says_no(true);
            host.tick();
            let data = host.data(if host.end.addr.port() == 179 { B_ISN + 5 } else { A_ISN + 9 }, 1);
            assert_eq!(host.send(&[data]).0, [Verdict::Sent]);
            assert_eq!(host.home.asked(), asked);
        }
    }
}

#[test]
fn a_slow_home_is_waited_for_a_moment() {
    let [mut a, mut b] = hosts([false, true]);
    b.home.takes_ms.store(95, Ordering::Relaxed);
    let ports = |range: core::ops::Range<u16>| range.map(|port| SocketAddr::new(a.end.addr.ip(), port));
    let syns: Vec<Vec<u8>> = ports(1..65).map(|from| packet(from, a.peer, SYN, A_ISN, 0, &MSS, &[])).collect();
    for from in ports(1..65) {
        a.end
            .kernel
            .0
            .insert((from, Some(a.peer)), Found { id: SocketId(from.port().into()), state: State::SynSent, vrf: 0 });
    }
    let (_, syns) = a.send(&syns);
    assert_eq!(syns.len(), 64);
    for round in 1..4 {
        let began = b.home.now();
        let verdicts = b.receive(&syns[4 * round..]);
        let waited = b.home.now() - began;
        assert!(waited <= Duration::from_millis(190), "{waited:?}");
        assert!(verdicts.iter().all(|v| *v == NONE || matches!(v, Verdict::Deliver(..))), "{verdicts:?}");
        assert_eq!(b.home.asked(), 2 * round, "no more is asked for in these two seconds");
        // Segments that come before the time is over wait for nobody.
        b.home.pass(1_800 - u64::try_from(waited.as_millis()).unwrap());
        let began = b.home.now();
        b.receive(&syns[..4]);
        assert_eq!(b.home.now(), began);
        b.home.pass(201);
    }
}

#[test]
fn what_forgers_ask_for_is_bounded() {
    let [mut a, mut b] = connected_hosts([true, true]);
    let asked = b.home.asked();
    let syn = |isn: u32, port: u16, mac_len: usize| {
        let mut options = vec![29, 4 + mac_len as u8, 2, 1];
        // The KeyID is the one that the listener takes, and the MAC is nobody's.
        (options[2], options[3]) = (1, 2);
        options.extend(vec![0xee; mac_len]);
        packet(SocketAddr::new([10, 0, 0, 1].into(), port), ([10, 0, 0, 2], 179).into(), SYN, isn, 0, &options, &[])
    };
    // Another length of the MAC is no reason to ask.
    let short: Vec<Vec<u8>> = (0..100).map(|i| syn(i, 7, 8)).collect();
    assert!(b.receive(&short).iter().all(|v| *v == Verdict::Drop(DropReason::MacLen)));
    assert_eq!(b.home.asked(), asked);
    let many: Vec<Vec<u8>> = (0..1_000).map(|i| syn(i, 7, 12)).collect();
    let verdicts = b.receive(&many);
    assert_eq!(b.home.asked(), asked + 63, "64 at once, of which the connection took one");
    assert!(verdicts[..63].iter().all(|v| *v == Verdict::Drop(DropReason::Mac)));
    assert!(verdicts[63..].iter().all(|v| *v == NONE));
    b.home.pass(500);
    b.receive(&many);
    assert_eq!(b.home.asked(), asked + 63 + 8, "16 in a second");
    // A connection that is there already has nothing to do with that.
    let there = a.send_one(a.data(A_ISN + 5, B_ISN + 1)).unwrap();
    assert!(b.takes(&there));
    // Answers to a SYN that was never sent ask for nothing.
    let [mut a, _] = hosts([true, true]);
    a.send_one(a.syn(A_ISN)).unwrap();
    let asked = a.home.asked();
    let answers: Vec<Vec<u8>> = (0..50)
        .map(|isn| {
            let options = [&[29, 16, 2, 1][..], &[0xee; 12]].concat();
            packet(a.peer, a.end.addr, SYN | ACK, isn, A_ISN + 2 + isn, &options, &[])
        })
        .chain([forged(a.peer, a.end.addr, Flags::RST, B_ISN, 0, [2, 1])])
        .collect();
    assert!(a.receive(&answers).iter().all(|v| *v == Verdict::Drop(DropReason::Mac)));
    assert_eq!(a.home.asked(), asked);
}

/// A signed segment whose MAC is nobody's, under the key with which the hosts connect.
fn forged(from: SocketAddr, to: SocketAddr, flags: u8, seq: u32, ack: u32, ids: [u8; 2]) -> Vec<u8> {
    packet(from, to, flags, seq, ack, &[&[29, 16, ids[0], ids[1]][..], &[0xee; 12]].concat(), &[])
}

/// Nobody who may ask for any number of keys takes those of others: forgers of first segments, programs that begin connections, and
/// whoever reads our first segments and answers them.
#[test]
fn a_flood_of_one_kind_leaves_connections_of_other_kinds_alone() {
    type Flood = fn(&mut Host);
    let syns: Flood = |a| {
        a.end.socket(2, None, State::Listen);
        let from = SocketAddr::new(a.peer.ip(), 7);
        let many: Vec<Vec<u8>> = (0..1_000).map(|isn| forged(from, a.end.addr, SYN, isn, 0, [2, 1])).collect();
        let verdicts = a.receive(&many);
        assert_eq!(verdicts.iter().filter(|v| **v == NONE).count(), 1_000 - 64);
    };
    let connects: Flood = |a| {
        let locals: Vec<SocketAddr> = (1..=1_000).map(|port| SocketAddr::new(a.end.addr.ip(), port)).collect();
        for local in &locals {
            let found = Found { id: SocketId(local.port().into()), state: State::SynSent, vrf: 0 };
            a.end.kernel.0.insert((*local, Some(a.peer)), found);
        }
        let many: Vec<Vec<u8>> = locals.iter().map(|from| packet(*from, a.peer, SYN, A_ISN, 0, &MSS, &[])).collect();
        let (verdicts, _) = a.send(&many);
        assert_eq!(verdicts.iter().filter(|v| **v == NONE).count(), 1_000 - 64);
    };
    let answers: Flood = |a| {
        let local = SocketAddr::new(a.end.addr.ip(), 1_001);
        let found = Found { id: SocketId(1_001), state: State::SynSent, vrf: 0 };
        a.end.kernel.0.insert((local, Some(a.peer)), found);
        a.send_one(packet(local, a.peer, SYN, A_ISN, 0, &MSS, &[])).unwrap();
        let many: Vec<Vec<u8>> =
            (0..1_000).map(|isn| forged(a.peer, local, SYN | ACK, isn, A_ISN + 1, [2, 1])).collect();
        let verdicts = a.receive(&many);
        assert_eq!(verdicts.iter().filter(|v| **v == NONE).count(), 1_000 - 64);
    };
    // A connection of ours, in the middle of a flood of forged first segments.
    let mut ends = hosts([true, true]);
    syns(&mut ends[0]);
    connect(&mut ends);
    // A connection of the peer's.
    for flood in [connects, answers] {
        let [mut a, mut b] = hosts([true, false]);
        flood(&mut a);
        a.end.socket(2, None, State::Listen);
        b.end.kernel.0.clear();
        b.end.socket(3, Some(b.peer), State::SynSent);
        a.end.kernel.0.retain(|(_, peer), _| peer.is_none());
        let syn = b.send_one(packet(b.end.addr, b.peer, SYN, B_ISN, 0, &MSS, &[])).unwrap();
        assert!(a.takes(&syn));
        let syn_ack = a.send_one(packet(a.end.addr, a.peer, SYN | ACK, A_ISN, B_ISN + 1, &MSS, &[])).unwrap();
        assert!(b.takes(&syn_ack));
    }
}

/// A key that is wanted, one of any number.
fn wanted(mkt: &Arc<Mkt>, number: u32, origin: Origin) -> Wanted {
    let end = |port| SocketAddr::new([10, 0, 0, 9].into(), port);
    let context = Context { source: end(1), destination: end(2), source_isn: number, destination_isn: 0 };
    Wanted { mkt: mkt.clone(), context, origin }
}

#[test]
fn each_kind_of_asking_has_its_own_time() {
    use Hurry::{Later, Segment};
    use Origin::{Answer, Begun, Forged, Known};
    let kinds = [(Known, Segment), (Known, Later), (Forged, Segment), (Begun, Segment), (Answer, Segment)];
    for flood in kinds {
        let host = Host::new("10.0.0.1:40000", "10.0.0.2:179");
        host.home.takes_ms.store(1, Ordering::Relaxed);
        let clock = || host.home.now();
        let key = |i: u8| host.mkt_for([10, 0, 1, i].into(), [1, 2], "secret", true);
        let mut numbers = 0..;
        let mut ask = |mkt: &Arc<Mkt>, (origin, hurry): (Origin, Hurry)| {
            let wanted = wanted(mkt, numbers.next().unwrap(), origin);
            host.desk.derive(&wanted, hurry, &clock).is_some()
        };
        // Several keys are attacked at once, more than their kind has time for.
        let attacked: Vec<Arc<Mkt>> = (0..5).map(key).collect();
        let answers = attacked.iter().flat_map(|mkt| [mkt; 10]).filter(|mkt| ask(mkt, flood)).count();
        assert!(answers <= 30, "{flood:?}: {answers}");
        assert_eq!(host.desk.has_time(clock()), flood.1 == Segment);
        // One that is not has its answers, of the same kind and of the others.
        let other = key(99);
        for kind in kinds {
            let is_bounded_by_time_alone = kind == flood && kind.0 == Known;
            assert_eq!(ask(&other, kind), !is_bounded_by_time_alone, "{flood:?}, {kind:?}");
        }
    }
}

#[test]
fn there_are_sixteen_answers_in_a_second_however_often_somebody_asks() {
    for step_ms in [10, 100, 1_000] {
        let host = Host::new("10.0.0.1:40000", "10.0.0.2:179");
        let mkt = host.mkt([1, 2], "secret", true);
        let mut numbers = 0..;
        let mut take_all = || {
            let mut next = || wanted(&mkt, numbers.next().unwrap(), Origin::Forged);
            let derive = |wanted: &Wanted| host.desk.derive(wanted, Hurry::Segment, &|| host.home.now()).is_some();
            (0..100).take_while(|_| derive(&next())).count()
        };
        assert_eq!(take_all(), 64);
        let taken: usize = (0..10_000 / step_ms).map(|_| (host.home.pass(step_ms), take_all()).1).sum();
        assert_eq!(taken, 160);
    }
}

/// A connection that an earlier process had, as this one restores it.
fn restored(host: &mut Host) {
    restored_with(host, 1, 2);
}

/// The same with these keys in use.
fn restored_with(host: &mut Host, current: u8, rnext: u8) {
    let conn = Conn::new(host.end.addr, host.peer, A_ISN, B_ISN);
    let (peer, current, rnext) = ("peer".to_owned(), Some(current), Some(rnext));
    let saved = SavedConnection { cookie: CONNECTION.0, peer, conn, current, rnext, peer_mss: 0, vrf: 0 };
    assert!(host.locked(|end| end.engine.restore(&saved)));
    host.end.socket(CONNECTION.0, Some(host.peer), State::Established);
}

/// KeyID and RNextKeyID of what a host sends now.
fn sends_with(host: &mut Host) -> Result<(u8, u8), Verdict> {
    let data = host.data(A_ISN + 5, B_ISN + 1);
    host.send_one(data).map(|packet| match Segment::parse(&packet).unwrap().auth().unwrap() {
        Some(sealane_wire::tcp::Auth::Ao(option)) => (option.key_id, option.rnext_key_id),
        other => panic!("{other:?}"),
    })
}

fn saved_keys(host: &mut Host) -> (Option<u8>, Option<u8>) {
    let saved = host.locked(|end| end.engine.save());
    (saved[0].current, saved[0].rnext)
}

#[test]
fn a_restored_connection_does_without_a_key_that_is_missing() {
    // RNext, or both, are missing.
    for current in [1, 3] {
        let mut a = Host::new("10.0.0.1:40000", "10.0.0.2:179");
        let (first, second) = (a.mkt([1, 2], "secret", true), a.mkt([3, 4], "second", true));
        a.configure_preferring(std::slice::from_ref(&first), Some(1));
        restored_with(&mut a, current, 4);
        assert_eq!(sends_with(&mut a), Ok((1, 2)));
        // It is there, and nothing is derived by it.
        a.home.says_no(true);
        a.configure_preferring(&[first, second], Some(3));
        a.tick();
        assert_eq!(sends_with(&mut a), Ok((1, 2)));
        a.home.says_no(false);
        a.home.pass(3_000);
        a.tick();
        assert_eq!(sends_with(&mut a), Ok((1, 4)), "the peer is asked for it");
    }
}

/// A key that is not derived yet is no reason to speak with another one, which the peer may not have.
#[test]
fn a_key_that_is_here_does_not_take_the_place_of_one_that_is_derived_elsewhere() {
    for says_no in [false, true] {
        let mut a = Host::new("10.0.0.1:40000", "10.0.0.2:179");
        let (first, here) = (a.mkt([1, 2], "secret", true), a.mkt([3, 4], "second", false));
        a.home.says_no(says_no);
        a.configure_preferring(&[first, here], Some(1));
        restored_with(&mut a, 1, 2);
        if says_no {
            assert_eq!(sends_with(&mut a), Err(NONE));
            a.home.says_no(false);
            a.home.pass(3_000);
        }
        assert_eq!(sends_with(&mut a), Ok((1, 2)));
    }
}

/// The time of the key in use is over, and the next one is not derived yet, or was never found.
#[test]
fn a_key_whose_time_is_over_gives_way_to_one_that_is_wanted_and_stays_if_there_is_none() {
    for next_is_found in [true, false] {
        let [mut a, _] = connected_hosts([true, true]);
        let (first, second) = (a.mkt([1, 2], "secret", true), a.mkt([3, 4], "second", true));
        a.home.says_no(true);
        let keys = if next_is_found { &[first, second][..] } else { std::slice::from_ref(&first) };
        a.configure_sending(keys, next_is_found.then_some(3), |id| id != 1);
        for _ in 0..3 {
            assert_eq!(sends_with(&mut a), if next_is_found { Err(NONE) } else { Ok((1, 2)) });
            a.home.pass(3_000);
            a.tick();
        }
        a.home.says_no(false);
        a.home.pass(3_000);
        assert_eq!(sends_with(&mut a).map(|(key, _)| key), Ok(if next_is_found { 3 } else { 1 }));
    }
}

/// A peer has an MKT for each prefix, and the first one is not the only one whose connections change over.
#[test]
fn connections_of_each_prefix_are_asked_to_use_the_preferred_key() {
    for (local, peer) in [("10.0.0.1:40000", "10.0.0.2:179"), ("[fd00::1]:40000", "[fd00::2]:179")] {
        let mut a = Host::new(local, peer);
        let both: [IpAddr; 2] = ["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        let of = |ids, secret| both.map(|addr| a.mkt_for(addr, ids, secret, true));
        let mkts = [of([3, 4], "second"), of([1, 2], "secret")].concat();
        a.configure(&mkts);
        restored(&mut a);
        assert_eq!(saved_keys(&mut a), (Some(1), Some(2)));
        a.tick();
        assert_eq!(saved_keys(&mut a), (Some(1), Some(4)), "{peer}");
    }
}

#[test]
fn a_restored_connection_waits_for_its_keys_and_goes_on() {
    for by_tick in [true, false] {
        let [_, mut b] = connected_hosts([false, false]);
        let [mut a, _] = hosts([true, false]);
        a.home.says_no(true);
        restored(&mut a);
        assert_eq!(a.home.asked(), 0, "to restore it asks for nothing");
        let back = b.send_one(b.data(B_ISN + 1, A_ISN + 5)).unwrap();
        assert_eq!(a.send_one(a.data(A_ISN + 5, B_ISN + 1)), Err(NONE));
        assert_eq!(a.receive(std::slice::from_ref(&back)), [NONE]);
        let bare = packet(a.peer, a.end.addr, ACK, B_ISN + 1, A_ISN + 5, &[], b"bare");
        assert_eq!(a.receive(&[bare]), [Verdict::Drop(DropReason::Required)]);
        assert_eq!(a.home.asked(), 1, "a home that has said no has two seconds of peace");
        assert!(a.desk.failing(a.home.now()).iter().any(|failing| failing.mkt.send_id == 1));
        assert_eq!(a.desk.news().len(), 1);
        assert_eq!(a.desk.news().len(), 0, "it is told once");
        a.home.says_no(false);
        a.home.pass(2_001);
        if by_tick {
            a.tick();
            assert_eq!(a.home.asked(), 3, "both directions");
            a.home.says_no(true);
        }
        let data = a.send_one(a.data(A_ISN + 5, B_ISN + 1)).unwrap();
        assert!(b.takes(&data) && a.takes(&back));
        assert_eq!(a.home.asked(), 3);
        assert!(a.desk.failing(a.home.now()).is_empty());
        assert!(a.desk.news().iter().all(|(_, trouble)| trouble.is_none()));
    }
}

/// At the start of a process the home may not even say which key is meant.
#[test]
fn a_peer_without_its_key_is_cut_off_until_it_has_one() {
    let [_, mut b] = connected_hosts([false, false]);
    let mut a = Host::new("10.0.0.1:40000", "10.0.0.2:179");
    a.configure(&[]);
    a.end.socket(CONNECTION.0, Some(a.peer), State::Established);
    restored(&mut a);
    let back = b.send_one(b.data(B_ISN + 1, A_ISN + 5)).unwrap();
    for _ in 0..2 {
        a.tick();
        assert_eq!(a.send_one(a.data(A_ISN + 5, B_ISN + 1)), Err(Verdict::Drop(DropReason::NoSendKey)));
        assert_eq!(a.receive(std::slice::from_ref(&back)), [Verdict::Drop(DropReason::KeyNotFound)]);
        let bare = packet(a.peer, a.end.addr, ACK, B_ISN + 1, A_ISN + 5, &[], b"bare");
        assert_eq!(a.receive(&[bare]), [Verdict::Drop(DropReason::Required)]);
    }
    let key = a.mkt([1, 2], "secret", true);
    a.configure(&[key]);
    let data = a.send_one(a.data(A_ISN + 5, B_ISN + 1)).unwrap();
    assert!(b.takes(&data) && a.takes(&back));
}

#[test]
fn a_new_key_silences_nobody_while_it_cannot_be_had() {
    let [mut a, mut b] = connected_hosts([true, true]);
    let keys = |host: &Host, ids: [[u8; 2]; 2]| [host.mkt(ids[0], "second", true), host.mkt(ids[1], "secret", true)];
    let (of_a, of_b) = (keys(&a, [[3, 4], [1, 2]]), keys(&b, [[4, 3], [2, 1]]));
    // Both are told to prefer another key, and one of them cannot have it.
    a.home.says_no(true);
    a.configure(&of_a);
    b.configure(&of_b);
    b.tick();
    let ids = |packet: &[u8]| match Segment::parse(packet).unwrap().auth().unwrap() {
        Some(sealane_wire::tcp::Auth::Ao(option)) => (option.key_id, option.rnext_key_id),
        other => panic!("{other:?}"),
    };
    for _ in 0..3 {
        let back = b.send_one(b.data(B_ISN + 1, A_ISN + 9)).unwrap();
        assert_eq!(ids(&back), (2, 3), "it has the new key, and asks for it");
        assert!(a.takes(&back));
        let there = a.send_one(a.data(A_ISN + 5, B_ISN + 1)).unwrap();
        assert_eq!(ids(&there), (1, 2));
        assert!(b.takes(&there));
        a.home.pass(3_000);
        a.tick();
    }
    a.home.says_no(false);
    a.home.pass(3_000);
    a.tick();
    a.home.says_no(true);
    let back = b.send_one(b.data(B_ISN + 1, A_ISN + 9)).unwrap();
    assert!(a.takes(&back));
    let there = a.send_one(a.data(A_ISN + 5, B_ISN + 1)).unwrap();
    assert_eq!(ids(&there), (3, 4));
    assert!(b.takes(&there));
    let back = b.send_one(b.data(B_ISN + 1, A_ISN + 9)).unwrap();
    assert_eq!(ids(&back), (4, 3));
    assert!(a.takes(&back));
    // A key that goes takes nobody with it who has another one, and a connection whose only key is new waits for that.
    let third = [a.mkt([5, 6], "third", true)];
    a.configure(&third);
    assert_eq!(a.send_one(a.data(A_ISN + 5, B_ISN + 1)), Err(NONE));
    a.home.says_no(false);
    a.home.pass(3_000);
    let there = a.send_one(a.data(A_ISN + 5, B_ISN + 1)).unwrap();
    assert_eq!(ids(&there), (5, 6));
}

/// Whoever changes keys while MACs are computed has packets judged again, with the namespace: nobody is asked for a key then.
#[test]
fn a_change_in_the_middle_of_a_burst_asks_for_nothing() {
    for (secret, inbound, outbound) in [("secret", true, Verdict::Sent), ("another", false, NONE)] {
        let [mut a, mut b] = hosts([false, true]);
        let syn = a.send_one(a.syn(A_ISN)).unwrap();
        let again = [b.mkt([2, 1], secret, true)];
        let same = b.mkt([2, 1], "secret", true);
        b.configure(std::slice::from_ref(&same));
        let again = if secret == "secret" { [same] } else { again };
        let clock = |home: &Arc<Home>| home.now();
        let mut bytes = syn.clone();
        let mut batch = [arriving(&mut bytes)];
        let mut work = VerifyBurst::new();
        b.locked(|end| end.engine.begin_input(&mut work, &batch, &mut WithPeer(&mut end.kernel)));
        work.run(&batch, &mut |wanted| b.desk.derive(wanted, Hurry::Segment, &|| clock(&b.home)));
        b.configure(&again);
        b.locked(|end| end.engine.end_input(&mut work, &mut batch, &mut WithPeer(&mut end.kernel), 0));
        work.finish(&mut batch);
        assert_eq!(matches!(batch[0].verdict, Verdict::Deliver(..)), inbound, "{secret}: {:?}", batch[0].verdict);
        assert!(inbound || batch[0].verdict == NONE);
        assert_eq!(b.home.asked(), 1);

        let [mut a, _] = hosts([true, false]);
        let same = a.mkt([1, 2], "secret", true);
        a.configure(std::slice::from_ref(&same));
        let again = if secret == "secret" { [same] } else { [a.mkt([1, 2], secret, true)] };
        let syn = a.syn(A_ISN);
        let mut batch = [leaving(&syn)];
        let mut work = SignBurst::new();
        a.locked(|end| end.engine.begin_output(&mut work, &batch, &mut WithPeer(&mut end.kernel), 0));
        work.run(&batch, &mut |wanted| a.desk.derive(wanted, Hurry::Segment, &|| clock(&a.home)));
        a.configure(&again);
        a.locked(|end| end.engine.end_output(&mut work, &mut batch, &mut WithPeer(&mut end.kernel), 0));
        assert_eq!((batch[0].verdict, work.pieces().count()), (outbound, usize::from(inbound)), "{secret}");
        assert_eq!(a.home.asked(), 1);
    }
}

#[test]
fn the_status_asks_for_nothing() {
    let [_, mut b] = connected_hosts([true, true]);
    let [mut a, _] = connected_hosts([true, true]);
    let mut bad = a.send_one(a.data(A_ISN + 5, B_ISN + 1)).unwrap();
    *bad.last_mut().unwrap() ^= 1;
    assert_eq!(b.receive(&[bad]), [Verdict::Drop(DropReason::Mac)]);
    let asked = b.home.asked();
    let status = b.locked(|end| end.engine.snapshot(0)).finish();
    assert!(status.sockets.iter().any(|socket| socket.last_drop.is_some()));
    assert_eq!(b.home.asked(), asked);
}
