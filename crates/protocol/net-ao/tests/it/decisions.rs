//! Each branch of Linux' inbound decision (`tcp_inbound_hash`, `tcp_inbound_ao_hash`), with its counters; and which key
//! signs what leaves.

use crate::common::{mkt, segment, spec};
use core::net::SocketAddr;
use sealane_net_ao::drop::{Counter, DropReason, Netstat};
use sealane_net_ao::endpoint::{Endpoint, EndpointState, Request};
use sealane_net_ao::info::{AoInfo, Child, Conn};
use sealane_net_ao::input::{Class, IcmpError, classify, ignore_icmp, refuse, settle};
use sealane_net_ao::kdf::Context;
use sealane_net_ao::mac::{Checksum, Coverage, Sign, sign, verify};
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net_ao::output::{Choice, OptionFields, choose};
use sealane_net_ao::segment::insert;
use sealane_wire::tcp::{Flags, Segment};
use std::sync::Arc;

const PEER_ISN: u32 = 1000;
const OUR_ISN: u32 = 0xffff_ff00;

fn local() -> SocketAddr {
    "192.0.2.1:179".parse().unwrap()
}

fn peer() -> SocketAddr {
    "198.51.100.9:4000".parse().unwrap()
}

/// Our keys: two for the peer, and one for somebody else.
fn our_keys(info: &mut AoInfo) -> [Arc<Mkt>; 3] {
    let peer = Prefix::host(peer().ip());
    let keys = [
        mkt(&MktSpec { peer, key: b"one", ..spec("hmac(sha1)", 1, 101) }),
        mkt(&MktSpec { peer, key: b"two", mac_len: 16, ..spec("hmac(sha256)", 2, 102) }),
        mkt(&MktSpec { peer: Prefix::host("203.0.113.1".parse().unwrap()), ..spec("hmac(sha1)", 3, 103) }),
    ];
    for key in &keys {
        info.add_key(key.clone()).unwrap();
    }
    keys
}

fn established(listener: &AoInfo) -> AoInfo {
    let conn = Conn::new(local(), peer(), OUR_ISN, PEER_ISN);
    listener.for_child(&Child { conn, ifindex: 0, key_id: 101, rnext_key_id: 1 }).unwrap()
}

fn request(used_ao: bool) -> Request {
    Request { used_ao, rcv_isn: PEER_ISN, snt_isn: OUR_ISN, key_id: 101, rnext_key_id: 1 }
}

/// A segment of the peer, signed with its copy of `key` under the given ISNs and SNE.
struct Sent<'a> {
    key: &'a Mkt,
    flags: u8,
    seq: u32,
    ack: u32,
    /// The peer's ISN and ours, as the traffic key has them.
    isns: (u32, u32),
    sne: u32,
    key_id: u8,
    rnext_key_id: u8,
    mac_len: usize,
}

impl<'a> Sent<'a> {
    /// A segment of the established connection.
    fn new(key: &'a Mkt) -> Self {
        Sent {
            key,
            flags: Flags::ACK,
            seq: PEER_ISN + 1,
            ack: OUR_ISN + 1,
            isns: (PEER_ISN, OUR_ISN),
            sne: 0,
            key_id: key.recv_id,
            rnext_key_id: key.send_id,
            mac_len: key.mac_len,
        }
    }

    fn syn(key: &'a Mkt) -> Self {
        Sent { flags: Flags::SYN, seq: PEER_ISN, ack: 0, isns: (PEER_ISN, 0), ..Sent::new(key) }
    }

    fn bytes(&self) -> Vec<u8> {
        let plain = segment(peer(), local(), self.seq, self.ack, self.flags, &[], b"");
        let fields = OptionFields { key_id: self.key_id, rnext_key_id: self.rnext_key_id, mac_len: self.mac_len };
        let mut out = vec![0; 200];
        let at = insert(&Segment::parse(&plain).unwrap(), &fields, &mut out).unwrap();
        let (source_isn, destination_isn) = self.isns;
        let tfm = self
            .key
            .traffic_mac(&Context { source: peer(), destination: local(), source_isn, destination_isn })
            .unwrap();
        let cover = Coverage { mac_at: 24, mac_len: self.mac_len, sne: self.sne, exclude_options: false };
        let mut op = [Sign { tfm: &tfm, packet: &mut out, at, cover, checksum: Checksum::Full, status: Ok(()) }];
        sign(&mut op);
        out.truncate(at.end);
        out
    }
}

/// `Ok(true)`: verified. `Ok(false)`: let through, unsigned or with TCP-MD5.
fn decide(packet: &[u8], info: Option<&mut AoInfo>, to: &Endpoint<'_>, stat: &mut Netstat) -> Result<bool, DropReason> {
    let segment = Segment::parse(packet).unwrap();
    let refusal = match classify(&segment, &Endpoint { info: info.as_deref(), ..*to }) {
        Class::Unsigned | Class::Md5 => return Ok(false),
        Class::Drop(refusal) => refusal,
        Class::Verify(check) => {
            let mut op = [check.op(check.traffic.here().unwrap(), &segment)];
            verify(&mut op);
            let (ticket, verdict) = (check.ticket, op[0].status);
            return settle(info.unwrap(), &ticket, verdict, stat).map(|()| true);
        }
    };
    refuse(&refusal, info, stat);
    Err(refusal.reason)
}

fn at(state: EndpointState) -> Endpoint<'static> {
    Endpoint { info: None, state, request: None, ifindex: 0, md5: false }
}

const MD5: [u8; 20] = [19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1];

#[test]
fn without_our_option() {
    let plain = |options: &[u8]| segment(peer(), local(), 1, 2, Flags::ACK, options, b"x");
    let (unsigned, md5) = (plain(&[]), plain(&MD5));
    let both = plain(&[&MD5[..], &[29, 16, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat());
    let mut stat = Netstat::default();
    let open = at(EndpointState::Established);
    assert_eq!(decide(&unsigned, None, &open, &mut stat), Ok(false));
    assert_eq!(decide(&md5, None, &open, &mut stat), Ok(false));
    assert_eq!(decide(&both, None, &open, &mut stat), Err(DropReason::BadHeader));

    // A socket with keys for others only takes unsigned segments, unless it is told not to.
    let mut others = AoInfo::new();
    others
        .add_key(mkt(&MktSpec { peer: Prefix::host("203.0.113.1".parse().unwrap()), ..spec("hmac(sha1)", 3, 4) }))
        .unwrap();
    let listen = at(EndpointState::Listen);
    assert_eq!(decide(&unsigned, Some(&mut others), &listen, &mut stat), Ok(false));
    assert_eq!(decide(&md5, Some(&mut others), &listen, &mut stat), Ok(false));
    others.ao_required = true;
    assert_eq!(decide(&unsigned, Some(&mut others), &listen, &mut stat), Err(DropReason::Required));
    assert_eq!(decide(&md5, Some(&mut others), &listen, &mut stat), Err(DropReason::Md5Unexpected));
    assert_eq!((stat.value(Counter::Required), others.counters.required), (1, 1));

    let mut ours = AoInfo::new();
    our_keys(&mut ours);
    assert_eq!(decide(&unsigned, Some(&mut ours), &listen, &mut stat), Err(DropReason::Required));
    assert_eq!(decide(&md5, Some(&mut ours), &Endpoint { md5: true, ..listen }, &mut stat), Ok(false));
    // Bound to another VRF a key is none.
    let mut vrf = AoInfo::new();
    vrf.add_key(mkt(&MktSpec { ifindex: Some(7), ..spec("hmac(sha1)", 1, 2) })).unwrap();
    assert_eq!(decide(&unsigned, Some(&mut vrf), &listen, &mut stat), Ok(false));
    assert_eq!(
        decide(&unsigned, Some(&mut vrf), &Endpoint { ifindex: 7, ..listen }, &mut stat),
        Err(DropReason::Required)
    );
    assert_eq!(stat.value(Counter::Required), 3);
    assert_eq!([Counter::Bad, Counter::Good, Counter::KeyNotFound].map(|c| stat.value(c)), [0, 0, 0]);
}

#[test]
fn on_a_connection() {
    let mut listener = AoInfo::new();
    let [one, two, _] = our_keys(&mut listener);
    let mut info = established(&listener);
    let open = at(EndpointState::Established);
    let mut stat = Netstat::default();
    let mut go = |sent: &Sent<'_>, info: &mut AoInfo| decide(&sent.bytes(), Some(info), &open, &mut stat);
    let send_id = |info: &AoInfo| info.key(info.current().unwrap()).unwrap().mkt.send_id;
    let good = |info: &AoInfo, key: &Mkt| {
        info.keys().iter().find(|(_, k)| k.mkt.send_id == key.send_id).map(|(_, k)| (k.pkt_good, k.pkt_bad)).unwrap()
    };

    assert_eq!(go(&Sent::new(&one), &mut info), Ok(true));
    assert_eq!((good(&info, &one), send_id(&info)), ((1, 0), 1));
    // The peer asks for the other key, and back again; a key that we have not changes nothing.
    assert_eq!(go(&Sent { rnext_key_id: 2, ..Sent::new(&one) }, &mut info), Ok(true));
    assert_eq!(send_id(&info), 2);
    assert_eq!(go(&Sent { rnext_key_id: 99, ..Sent::new(&two) }, &mut info), Ok(true));
    assert_eq!((good(&info, &two), send_id(&info)), ((1, 0), 2));
    assert_eq!(go(&Sent { rnext_key_id: 1, ..Sent::new(&two) }, &mut info), Ok(true));
    assert_eq!(send_id(&info), 1);

    // A bad MAC never moves anything.
    let wrong = Sent { sne: 1, rnext_key_id: 2, seq: PEER_ISN + 100, ..Sent::new(&one) };
    assert_eq!(go(&wrong, &mut info), Err(DropReason::Mac));
    assert_eq!((good(&info, &one), send_id(&info), info.conn().unwrap().rcv.base), ((2, 1), 1, PEER_ISN + 1));
    assert_eq!(go(&Sent { mac_len: 13, ..Sent::new(&one) }, &mut info), Err(DropReason::MacLen));
    assert_eq!(good(&info, &one), (2, 2));
    // Keys for others have not come along from the listener.
    assert_eq!(go(&Sent { key_id: 103, ..Sent::new(&one) }, &mut info), Err(DropReason::KeyNotFound));
    // A delayed SYN is signed as a SYN is; it moves no sequence numbers.
    assert_eq!(go(&Sent::syn(&one), &mut info), Ok(true));
    assert_eq!(go(&Sent { isns: (PEER_ISN, OUR_ISN), ..Sent::syn(&one) }, &mut info), Err(DropReason::Mac));
    // A delayed SYN-ACK is as every other segment.
    let syn_ack = Sent { flags: Flags::SYN | Flags::ACK, seq: PEER_ISN, ..Sent::new(&one) };
    assert_eq!(go(&syn_ack, &mut info), Ok(true));
    assert_eq!(info.conn().unwrap().rcv.base, PEER_ISN + 1);
    let counters = info.counters;
    assert_eq!((counters.good, counters.bad, counters.key_not_found, counters.required), (6, 3, 1, 0));
    assert_eq!([Counter::Good, Counter::Bad, Counter::KeyNotFound].map(|c| stat.value(c)), [6, 3, 1]);
    assert_eq!(decide(&Sent::new(&one).bytes(), None, &open, &mut stat), Err(DropReason::Unexpected));
    assert_eq!(stat.value(Counter::KeyNotFound), 2, "of the namespace only");
    assert_eq!(
        decide(&Sent::new(&one).bytes(), Some(&mut info), &at(EndpointState::Closed), &mut stat),
        Err(DropReason::Closed)
    );
}

#[test]
fn on_a_listener() {
    let mut info = AoInfo::new();
    let [one, two, other] = our_keys(&mut info);
    let listen = at(EndpointState::Listen);
    let mut stat = Netstat::default();
    let mut go = |sent: &Sent<'_>, to: &Endpoint<'_>| decide(&sent.bytes(), Some(&mut info), to, &mut stat);
    assert_eq!(go(&Sent::syn(&one), &listen), Ok(true));
    assert_eq!(go(&Sent::syn(&two), &listen), Ok(true));
    assert_eq!(go(&Sent { sne: 1, ..Sent::syn(&one) }, &listen), Err(DropReason::Mac));
    assert_eq!(go(&Sent::syn(&other), &listen), Err(DropReason::KeyNotFound), "a key for somebody else");
    // The ACK that answers a SYN cookie says the ISNs itself; with data of a later segment it does not.
    assert_eq!(go(&Sent::new(&one), &listen), Ok(true));
    assert_eq!(go(&Sent { seq: PEER_ISN + 2, ..Sent::new(&one) }, &listen), Err(DropReason::Mac));
    let no_ack = Sent { flags: Flags::RST, ..Sent::new(&one) };
    assert_eq!(go(&no_ack, &listen), Err(DropReason::IsnUnknown));
    assert_eq!(go(&Sent { mac_len: 13, ..no_ack }, &listen), Err(DropReason::IsnUnknown));
    let syn_ack = Sent { flags: Flags::SYN | Flags::ACK, ack: 5, ..Sent::syn(&one) };
    assert_eq!(go(&syn_ack, &listen), Ok(true), "TCP answers it with RST");

    // A half-open connection. Its numbers may be past the wrap.
    let (signed, unsigned) = (request(true), request(false));
    let half_open = Endpoint { request: Some(&signed), ..listen };
    assert_eq!(go(&Sent::new(&one), &half_open), Ok(true));
    assert_eq!(go(&Sent { seq: PEER_ISN + 2, ..Sent::new(&two) }, &half_open), Ok(true), "any key of the peer");
    assert_eq!(go(&Sent::syn(&one), &half_open), Ok(true), "the SYN again");
    assert_eq!(go(&Sent { flags: Flags::RST, ..Sent::new(&one) }, &half_open), Ok(true));
    assert_eq!(go(&Sent { seq: PEER_ISN - 1, ..Sent::new(&one) }, &half_open), Ok(true));
    let before_isn = Sent { seq: u32::MAX, sne: u32::MAX, ..Sent::new(&one) };
    assert_eq!(go(&before_isn, &half_open), Ok(true));
    assert_eq!(go(&Sent::new(&one), &Endpoint { request: Some(&unsigned), ..listen }), Err(DropReason::Handshake));
    let plain = segment(peer(), local(), PEER_ISN + 1, OUR_ISN + 1, Flags::ACK, &[], b"");
    assert_eq!(decide(&plain, Some(&mut info), &half_open, &mut stat), Err(DropReason::Handshake));
    let unsigned_to = Endpoint { request: Some(&unsigned), ..listen };
    assert_eq!(decide(&plain, Some(&mut info), &unsigned_to, &mut stat), Err(DropReason::Required));
    assert_eq!((info.counters.bad, stat.value(Counter::Bad)), (2, 4), "handshakes count for the namespace only");
    assert_eq!(info.current(), None, "a listener never has a current key");
}

#[test]
fn while_connecting() {
    let mut listener = AoInfo::new();
    let [one, two, _] = our_keys(&mut listener);
    let fresh = || {
        let mut info = AoInfo::new();
        our_keys(&mut info);
        assert!(info.keep_matching(peer().ip(), 0));
        assert_eq!(info.keys().len(), 2);
        info.set_conn(Conn::new(local(), peer(), OUR_ISN, 0));
        info
    };
    let connecting = at(EndpointState::SynSent);
    let mut stat = Netstat::default();
    let mut go = |sent: &Sent<'_>, info: &mut AoInfo| decide(&sent.bytes(), Some(info), &connecting, &mut stat);
    let syn_ack = |key| Sent { flags: Flags::SYN | Flags::ACK, seq: PEER_ISN, ..Sent::new(key) };
    for key in [&one, &two] {
        let mut info = fresh();
        assert_eq!(go(&syn_ack(key), &mut info), Ok(true));
        let conn = info.conn().unwrap();
        assert_eq!((conn.risn, conn.rcv.base, conn.rcv.ext, info.is_keyed()), (PEER_ISN, PEER_ISN, 0, true));
        assert_eq!(
            decide(&Sent::new(key).bytes(), Some(&mut info), &at(EndpointState::Established), &mut Netstat::default()),
            Ok(true)
        );
    }
    let mut info = fresh();
    // A RST that refuses us: its own number stands for the ISN that the peer never had.
    let rst = Sent { flags: Flags::RST | Flags::ACK, seq: 0, isns: (0, OUR_ISN), ..Sent::new(&one) };
    assert_eq!(go(&rst, &mut info), Ok(true));
    assert!(!info.is_keyed());
    assert_eq!(go(&Sent { isns: (0, OUR_ISN - 1), ..rst }, &mut info), Err(DropReason::Mac));
    // Its SYN crosses ours: signed as a SYN, and the ISN is known from it.
    assert_eq!(go(&Sent::syn(&one), &mut info), Ok(true));
    assert_eq!(info.conn().unwrap().risn, PEER_ISN);
    let crossed = at(EndpointState::SynReceived);
    assert_eq!(decide(&Sent::new(&one).bytes(), Some(&mut info), &crossed, &mut Netstat::default()), Ok(true));
    assert_eq!(decide(&syn_ack(&one).bytes(), Some(&mut info), &crossed, &mut Netstat::default()), Ok(true));
    let unknown = Sent { key_id: 103, ..Sent::new(&one) };
    assert_eq!(go(&unknown, &mut info), Err(DropReason::KeyNotFound));
}

#[test]
fn icmp_errors() {
    let mut listener = AoInfo::new();
    our_keys(&mut listener);
    let mut info = established(&listener);
    let mut stat = Netstat::default();
    for (state, error, ignored) in [
        (EndpointState::Established, IcmpError::V4(1), false),
        (EndpointState::Established, IcmpError::V4(2), true),
        (EndpointState::Established, IcmpError::V4(4), true),
        (EndpointState::Established, IcmpError::V4(5), false),
        (EndpointState::TimeWait, IcmpError::V4(3), true),
        (EndpointState::SynSent, IcmpError::V4(3), false),
        (EndpointState::SynReceived, IcmpError::V4(3), false),
        (EndpointState::Listen, IcmpError::V6(1), false),
        (EndpointState::Established, IcmpError::V6(0), false),
        (EndpointState::Established, IcmpError::V6(1), true),
        (EndpointState::Established, IcmpError::V6(3), false),
        (EndpointState::Established, IcmpError::V6(4), true),
    ] {
        assert_eq!(ignore_icmp(&mut info, state, error, &mut stat), ignored, "{state:?} {error:?}");
    }
    assert_eq!((info.counters.dropped_icmp, stat.value(Counter::DroppedIcmps)), (5, 5));
    info.accept_icmps = true;
    assert!(!ignore_icmp(&mut info, EndpointState::Established, IcmpError::V4(3), &mut stat));
}

/// KeyID, RNextKeyID, SNE of what we send; `None` where nothing may leave.
fn chosen(flags: u8, seq: u32, ack: u32, from: &Endpoint<'_>) -> Option<(u8, u8, u32)> {
    let plain = segment(local(), peer(), seq, ack, flags, &[], b"");
    match choose(&Segment::parse(&plain).unwrap(), from) {
        Choice::Sign(s) => Some((s.option.key_id, s.option.rnext_key_id, s.coverage(seq).sne)),
        Choice::Drop(DropReason::NoSendKey) => None,
        Choice::Drop(other) => panic!("{other:?}"),
        Choice::Unsigned => Some((0, 0, 0)),
    }
}

#[test]
fn keys_of_what_leaves() {
    let mut listener = AoInfo::new();
    our_keys(&mut listener);
    let mut info = established(&listener);
    let two = info.keys().iter().find(|(_, k)| k.mkt.send_id == 2).map(|(r, _)| r).unwrap();
    info.set_rnext(two);
    const UNSIGNED: Option<(u8, u8, u32)> = Some((0, 0, 0));
    let open = Endpoint { info: Some(&info), ..at(EndpointState::Established) };
    assert_eq!(chosen(Flags::ACK, OUR_ISN + 1, 0, &open), Some((1, 102, 0)));
    assert_eq!(chosen(Flags::ACK, 5, 0, &open), Some((1, 102, 1)), "the number has wrapped");
    assert_eq!(
        chosen(Flags::RST, OUR_ISN + 1, 0, &Endpoint { state: EndpointState::TimeWait, ..open }),
        Some((1, 102, 0))
    );
    assert_eq!(chosen(Flags::ACK, 5, 0, &at(EndpointState::Established)), UNSIGNED);
    let keyless = AoInfo::new();
    assert_eq!(chosen(Flags::SYN, 5, 0, &Endpoint { info: Some(&keyless), ..at(EndpointState::SynSent) }), None);

    let listen = Endpoint { info: Some(&listener), ..at(EndpointState::Listen) };
    let (syn_ack, ask) =
        (Flags::SYN | Flags::ACK, |key_id, rnext_key_id| Request { key_id, rnext_key_id, ..request(true) });
    // The key is the one whose SendID the SYN asked for, and RNextKeyID repeats the SYN's KeyID.
    let r = ask(101, 2);
    assert_eq!(chosen(syn_ack, OUR_ISN, 0, &Endpoint { request: Some(&r), ..listen }), Some((2, 101, 0)));
    // One that we have not: no SYN-ACK, but an ACK with whatever key there is.
    let r = ask(101, 3);
    let from = Endpoint { request: Some(&r), ..listen };
    assert_eq!(chosen(syn_ack, OUR_ISN, 0, &from), None);
    assert_eq!(chosen(Flags::ACK, OUR_ISN + 1, 0, &from), Some((2, 101, 0)));
    let r = request(false);
    assert_eq!(chosen(syn_ack, OUR_ISN, 0, &Endpoint { request: Some(&r), ..listen }), UNSIGNED);
    assert_eq!(chosen(Flags::RST, 77, 0, &listen), None);
}
