//! Effects of packets on states, as key managers hear of them.

use super::*;
use sealane_engine_xfrm::data::{Paths, Run};
use sealane_net_ipsec::drop::{Counter, DropReason};
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::seal::Outbound;
use std::net::{IpAddr, Ipv4Addr};

pub(super) struct Local;

impl Paths for Local {
    fn mtu(&mut self, _: IpAddr) -> u32 {
        1500
    }

    fn is_unreachable(&mut self, _: IpAddr, _: IpAddr) -> bool {
        false
    }

    fn source(&mut self, _: IpAddr) -> IpAddr {
        Ipv4Addr::UNSPECIFIED.into()
    }

    fn is_local(&mut self, _: IpAddr) -> bool {
        true
    }
}

/// Paths of a host that has no routes.
struct Nowhere;

impl Paths for Nowhere {
    fn mtu(&mut self, _: IpAddr) -> u32 {
        0
    }

    fn is_unreachable(&mut self, _: IpAddr, _: IpAddr) -> bool {
        true
    }

    fn source(&mut self, _: IpAddr) -> IpAddr {
        Ipv4Addr::UNSPECIFIED.into()
    }

    fn is_local(&mut self, _: IpAddr) -> bool {
        false
    }
}

/// A UDP datagram from the policy's source to its destination.
pub(super) fn datagram() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 36, 0, 0, 0x40, 0, 64, 17, 0, 0, 203, 0, 113, 5, 198, 51, 100, 9];
    let sum: u32 = packet.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0x30, 0x39, 0, 7, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    packet
}

/// Sends one packet: what leaves, and what is told.
pub(super) fn send(xfrm: &mut Xfrm, now: Now) -> (Result<Vec<u8>, DropReason>, Vec<Body>) {
    send_along(xfrm, &mut Local, now)
}

fn send_along(xfrm: &mut Xfrm, paths: &mut impl Paths, now: Now) -> (Result<Vec<u8>, DropReason>, Vec<Body>) {
    send_packet(xfrm, &datagram(), paths, now)
}

fn send_packet(
    xfrm: &mut Xfrm,
    packet: &[u8],
    paths: &mut impl Paths,
    now: Now,
) -> (Result<Vec<u8>, DropReason>, Vec<Body>) {
    let mut buffer = vec![0; HEADROOM + packet.len() + TAILROOM];
    buffer[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
    let mut burst = [Outbound::new(SaId::NONE, Packet::new(&mut buffer, HEADROOM, HEADROOM + packet.len()))];
    let events = xfrm.outbound(&[Run::new(1)], &mut burst, paths, 0, now);
    let events = events.iter().map(|n| body(&n.bytes)).collect();
    (burst[0].status.map(|()| burst[0].packet.bytes().to_vec()), events)
}

pub(super) fn receive(xfrm: &mut Xfrm, packet: &[u8], now: Now) -> Result<Opened, DropReason> {
    receive_marked(xfrm, packet, 0, now)
}

fn receive_marked(xfrm: &mut Xfrm, packet: &[u8], mark: u32, now: Now) -> Result<Opened, DropReason> {
    let mut buffer = vec![0; HEADROOM + packet.len()];
    buffer[HEADROOM..].copy_from_slice(packet);
    let end = buffer.len();
    let mut burst = [Inbound { mark, ..Inbound::new(Packet::new(&mut buffer, HEADROOM, end)) }];
    assert!(xfrm.inbound(&mut burst, &mut Local, now).is_empty());
    burst[0].status
}

pub(super) fn asked(xfrm: &mut Xfrm, now: Now) -> XfrmMessage {
    let id = UsersaId { daddr: state(0).id.daddr, spi: 0x100.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    let replies = ok(xfrm, &XfrmMessage::new(Body::GetSa(id)), now);
    XfrmMessage::decode(&Messages::new(&replies.unicast[0]).next().unwrap()).unwrap()
}

#[test]
fn what_packets_move_is_told() {
    let (mut left, mut right) = (xfrm(), xfrm());
    let lft = LifetimeCfg { soft_packet_limit: 2, hard_packet_limit: 4, ..LifetimeCfg::NONE };
    ok(&mut left, &new_state(UsersaInfo { lft, ..state(0x100) }), at(0));
    ok(&mut left, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(0));
    ok(&mut right, &new_state(UsersaInfo { replay_window: 32, ..state(0x100) }), at(0));
    ok(&mut right, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_IN))).with(tmpl()), at(0));
    let mut sealed = Vec::new();
    for sent in 1..=4 {
        let (packet, events) = send(&mut left, at(10 + sent));
        let soft = events.iter().filter(|e| matches!(e, Body::Expire(e) if e.hard == 0)).count();
        assert_eq!((events.len(), soft), if sent == 3 { (1, 1) } else { (0, 0) }, "packet {sent}");
        sealed.push(packet.unwrap());
    }
    // The third is late, and comes twice.
    for (at_s, index) in [(20, 0), (21, 1), (22, 3), (30, 2)] {
        assert!(matches!(receive(&mut right, &sealed[index], at(at_s)), Ok(Opened::Packet)));
    }
    assert_eq!(receive(&mut right, &sealed[2], at(31)), Err(DropReason::Replayed));
    let told = asked(&mut left, at(40));
    let Body::NewSa(info) = told.body else { panic!("no state") };
    let len = 4 * sealed[0].len() as u64;
    assert!(info.curlft.packets == 4 && info.curlft.bytes > 0 && info.curlft.bytes <= len);
    assert_eq!((info.curlft.add_time, info.curlft.use_time), (START_S, START_S + 11));
    assert!(told.attrs.iter().any(|a| *a == Attribute::Lastused(START_S + 14)));
    assert!(told.attrs.iter().any(|a| *a == Attribute::ReplayVal(ReplayState { oseq: 4, seq: 0, bitmap: 0 })));
    let told = asked(&mut right, at(40));
    let Body::NewSa(info) = told.body else { panic!("no state") };
    assert_eq!((info.stats.replay, info.curlft.packets), (1, 4));
    assert!(told.attrs.iter().any(|a| *a == Attribute::Lastused(START_S + 30)));
    assert!(told.attrs.iter().any(|a| *a == Attribute::ReplayVal(ReplayState { oseq: 0, seq: 4, bitmap: 15 })));
    // The hard limit deletes the state; the next packet asks for another.
    let (dropped, events) = send(&mut left, at(41));
    assert!(dropped == Err(DropReason::OutExpired) && matches!(events[..], [Body::Expire(e)] if e.hard == 1));
    let (dropped, events) = send(&mut left, at(42));
    let [Body::Acquire(acquire)] = events[..] else { panic!("no acquire: {events:?}") };
    assert_eq!((dropped, acquire.seq, acquire.policy.dir), (Err(DropReason::OutNoState), 1, XFRM_POLICY_OUT));
    assert_eq!((send(&mut left, at(43)).1.len(), count(&mut left)), (0, 1), "it is asked once");
    ok(&mut left, &new_state(UsersaInfo { seq: acquire.seq, ..state(0x101) }), at(44));
    assert_eq!(count(&mut left), 1, "the state takes the place of what stood for it");
    assert!(send(&mut left, at(45)).0.is_ok());
}

#[test]
fn an_acquire_that_nobody_answers_expires() {
    let mut xfrm = xfrm();
    ok(&mut xfrm, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(0));
    assert!(matches!(send(&mut xfrm, at(0)).1[..], [Body::Acquire(_)]));
    assert!(xfrm.handle_timeout(at(29)).is_empty());
    let gone = xfrm.handle_timeout(at(30));
    assert!(matches!(body(&gone[0].bytes), Body::Expire(e) if e.hard == 1 && e.state.id.spi.get() == 0));
    assert_eq!(count(&mut xfrm), 0);
    assert!(matches!(send(&mut xfrm, at(31)).1[..], [Body::Acquire(a)] if a.seq == 2));
}

#[test]
fn a_state_without_a_route_seals_nothing() {
    let mut xfrm = xfrm();
    ok(&mut xfrm, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(0));
    ok(&mut xfrm, &new_state(state(0x100)), at(0));
    assert_eq!(send_along(&mut xfrm, &mut Nowhere, at(1)).0, Err(DropReason::NoPath));
    assert_eq!(xfrm.stat().value(Counter::OutBundleGenError), 1);
    // No number has been taken for it.
    let sealed = send(&mut xfrm, at(1)).0.expect("it is sealed");
    assert_eq!(sealed[20 + 4..20 + 8], [0, 0, 0, 1]);
}

/// Between hosts IPv6 packets are cut once they are sealed, unless nobody could cut them.
#[test]
fn what_nobody_cuts_is_told_its_mtu() {
    let mut xfrm = xfrm();
    let (id, saddr) = (Id { daddr: address("fd78::2"), ..state(0x100).id }, address("fd78::1"));
    let mode = XFRM_MODE_TRANSPORT;
    ok(&mut xfrm, &new_state(UsersaInfo { id, saddr, family: AF_INET6, mode, ..state(0x100) }), at(0));
    let sel = Selector {
        family: AF_INET6,
        daddr: id.daddr,
        saddr,
        prefixlen_d: 128,
        prefixlen_s: 128,
        ..Selector::default()
    };
    let template =
        UserTmpl { id: Id { spi: 0.into(), ..id }, saddr, family: AF_INET6, reqid: 7, mode, ..UserTmpl::default() };
    let order = XfrmMessage::new(Body::NewPolicy(UserpolicyInfo { sel, ..policy(XFRM_POLICY_OUT) }));
    ok(&mut xfrm, &order.with(Attribute::Tmpl(vec![template])), at(0));
    for (name, next, cut) in
        [("TCP", 6, false), ("UDP", 17, true), ("GRE", 47, true), ("a tunnel's GRE, with its limit", 60, false)]
    {
        let mut packet = vec![0; 1500];
        (packet[0], packet[6], packet[7]) = (0x60, next, 64);
        packet[4..6].copy_from_slice(&1460u16.to_be_bytes());
        for (at, last) in [(8, 1), (24, 2)] {
            packet[at..at + 2].copy_from_slice(&[0xfd, 0x78]);
            packet[at + 15] = last;
        }
        // As destination options: those of RFC 2473, before GRE.
        packet[40..48].copy_from_slice(&[47, 0, 4, 1, 4, 1, 1, 0]);
        let wanted = if cut { Ok(()) } else { Err(DropReason::TooBig) };
        assert_eq!(send_packet(&mut xfrm, &packet, &mut Local, at(1)).0.map(|_| ()), wanted, "{name}");
    }
}

#[test]
fn a_state_that_packets_cannot_go_through_lets_none_pass() {
    let mut xfrm = xfrm();
    // Mobile IPv6's destination options.
    let id = Id { daddr: address("192.0.2.2"), proto: 60, ..Id::default() };
    let options =
        UserTmpl { id, family: AF_INET, saddr: address("192.0.2.1"), mode: XFRM_MODE_TUNNEL, ..UserTmpl::default() };
    let order = XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(Attribute::Tmpl(vec![options]));
    ok(&mut xfrm, &order, at(0));
    assert_eq!(send(&mut xfrm, at(1)).0, Err(DropReason::OutBlock));
}

/// Sends one packet by an xfrm interface, or by none.
fn send_by(xfrm: &mut Xfrm, if_id: u32) -> Result<Vec<u8>, DropReason> {
    let packet = datagram();
    let mut buffer = vec![0; HEADROOM + packet.len() + TAILROOM];
    buffer[HEADROOM..HEADROOM + packet.len()].copy_from_slice(&packet);
    let mut burst = [Outbound::new(SaId::NONE, Packet::new(&mut buffer, HEADROOM, HEADROOM + packet.len()))];
    xfrm.tables(0, at(1)).of_interface(if_id).outbound(&[Run::new(1)], &mut burst, &mut Local);
    burst[0].status.map(|()| burst[0].packet.bytes().to_vec())
}

#[test]
fn an_xfrm_interface_has_its_own_policies_and_states() {
    let spi = |packet: &[u8]| u32::from_be_bytes(*packet[20..].first_chunk().unwrap());
    let with_id = |message: XfrmMessage, if_id| if if_id == 0 { message } else { message.with(Attribute::IfId(if_id)) };
    let (mut left, mut right) = (xfrm(), xfrm());
    // Two interfaces, and what is of none.
    for if_id in [0, 42, 43] {
        for (end, dir) in [(&mut left, XFRM_POLICY_OUT), (&mut right, XFRM_POLICY_IN)] {
            ok(end, &with_id(new_state(state(0x100 + if_id)), if_id), at(0));
            ok(end, &with_id(XfrmMessage::new(Body::NewPolicy(policy(dir))).with(tmpl()), if_id), at(0));
        }
    }
    right.set_interfaces(vec![42]);
    for (if_id, out_of) in [(0, 0), (42, 42), (43, 0)] {
        let sealed = send_by(&mut left, if_id).expect("it is protected");
        assert_eq!(spi(&sealed), 0x100 + if_id);
        let mut buffer = [&[0; HEADROOM][..], &sealed].concat();
        let end = buffer.len();
        let mut burst = [Inbound::new(Packet::new(&mut buffer, HEADROOM, end))];
        assert!(right.inbound(&mut burst, &mut Local, at(2)).is_empty());
        assert!(matches!(burst[0].status, Ok(Opened::Packet)));
        // One that there is no interface of has the policies of none, as in Linux.
        assert_eq!(burst[0].if_id, out_of, "{if_id}");
    }
    let (sent, received) = (left.stat().traffic, right.stat().traffic);
    assert_eq!((sent.sealed_packets, received.opened_packets), (3, 3));
    assert_eq!((sent.opened_packets, sent.opened_bytes), (0, 0));
    assert!(sent.sealed_bytes > 0 && sent.sealed_bytes == received.opened_bytes);
    // Traffic without a policy with a template does not leave by the interface, not even in clear, and is not counted.
    assert_eq!(send_by(&mut left, 44), Err(DropReason::NoWay));
    let allow = XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(Attribute::IfId(44));
    ok(&mut left, &allow, at(0));
    assert_eq!(send_by(&mut left, 44), Err(DropReason::NoWay));
    let stat = left.stat();
    assert!(Counter::ALL.iter().all(|counter| stat.value(*counter) == 0));
    assert_eq!((stat.drops(DropReason::NoWay), DropReason::ALL.iter().map(|r| stat.drops(*r)).sum::<u64>()), (2, 2));
    // Of what came by an interface the policies are asked that are its own.
    let id = UserpolicyId { sel: policy(0).sel, index: 0, dir: XFRM_POLICY_IN, pad: [0; 3] };
    ok(&mut right, &with_id(XfrmMessage::new(Body::DelPolicy(id)), 42), at(3));
    assert_eq!(receive(&mut right, &send_by(&mut left, 42).unwrap(), at(4)), Err(DropReason::InNoPolicy));
    assert!(receive(&mut right, &send_by(&mut left, 43).unwrap(), at(4)).is_ok());
}

#[test]
fn of_several_layers_the_outermost_alone_leaves_by_a_socket() {
    let (mut left, mut right) = (xfrm(), xfrm());
    let encap = Attribute::Encap(EncapTmpl {
        // UDP_ENCAP_ESPINUDP
        encap_type: 2,
        encap_sport: 4500.into(),
        encap_dport: 4500.into(),
        ..EncapTmpl::default()
    });
    let mut templates = Vec::new();
    for (spi, reqid) in [(0x100, 7), (0x200, 8)] {
        for end in [&mut left, &mut right] {
            ok(end, &new_state(UsersaInfo { reqid, ..state(spi) }).with(encap.clone()), at(0));
        }
        let Attribute::Tmpl(of) = tmpl() else { panic!("no template") };
        let of: Vec<_> = of.into_iter().map(|template| UserTmpl { reqid, ..template }).collect();
        let mut info = policy(XFRM_POLICY_IN);
        if reqid == 8 {
            let (saddr, daddr) = (address("192.0.2.1"), address("192.0.2.2"));
            info.sel = Selector { saddr, daddr, prefixlen_s: 32, prefixlen_d: 32, ..info.sel };
        }
        ok(&mut right, &XfrmMessage::new(Body::NewPolicy(info)).with(Attribute::Tmpl(of.clone())), at(0));
        templates.extend(of);
    }
    let order = XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(Attribute::Tmpl(templates));
    ok(&mut left, &order, at(0));
    let packet = datagram();
    let mut buffer = vec![0; HEADROOM + packet.len() + TAILROOM];
    buffer[HEADROOM..HEADROOM + packet.len()].copy_from_slice(&packet);
    let out = Outbound::new(SaId::NONE, Packet::new(&mut buffer, HEADROOM, HEADROOM + packet.len()));
    let mut burst = [Outbound { by_socket: true, ..out }];
    assert!(left.outbound(&[Run::new(1)], &mut burst, &mut Local, 0, at(1)).is_empty());
    let [Outbound { status: Ok(()), outer: Some(outer), packet: sealed, .. }] = &burst else { panic!("it is sealed") };
    assert_eq!((outer.ports, sealed.bytes()[..4].to_vec()), (Some((4500, 4500)), vec![0, 0, 2, 0]));
    // Outer headers lie in the buffer between the layers.
    let mut buffer = sealed.bytes().to_vec();
    let end = buffer.len();
    let mut burst = [Inbound::described(Packet::new(&mut buffer, 0, end), *outer)];
    assert!(right.inbound(&mut burst, &mut Local, at(2)).is_empty());
    assert!(matches!(burst[0].status, Ok(Opened::Packet)), "{:?}", burst[0].status);
    let inner = burst[0].packet.bytes();
    assert_eq!((inner[9], &inner[20..24], &inner[28..32]), (17, &[0x11, 0x94, 0x11, 0x94][..], &[0, 0, 1, 0][..]));
    let mut buffer = [&[0; HEADROOM][..], inner].concat();
    let end = buffer.len();
    let mut burst = [Inbound { udp_encap: true, ..Inbound::new(Packet::new(&mut buffer, HEADROOM, end)) }];
    assert!(right.inbound(&mut burst, &mut Local, at(2)).is_empty());
    assert!(matches!(burst[0].status, Ok(Opened::Packet)), "{:?}", burst[0].status);
    assert_eq!(burst[0].packet.bytes(), packet);
}

/// A use is when a policy was asked, also where it keeps packets from passing.
#[test]
fn policies_that_refuse_packets_are_used() {
    let marked = || Attribute::Mark(Mark { v: 0x42, m: 0xff });
    let used_s = |xfrm: &mut Xfrm, dir: u8, mark: bool| {
        let id = UserpolicyId { sel: policy(dir).sel, dir, ..UserpolicyId::default() };
        let asks = mark.then(marked).into_iter().fold(XfrmMessage::new(Body::GetPolicy(id)), XfrmMessage::with);
        let replies = ok(xfrm, &asks, at(9));
        let Body::NewPolicy(told) = body(&replies.unicast[0]) else { panic!("no policy") };
        told.curlft.use_time
    };
    let block = |dir| XfrmMessage::new(Body::NewPolicy(UserpolicyInfo { action: XFRM_POLICY_BLOCK, ..policy(dir) }));
    for mark in [false, true] {
        let mut xfrm = xfrm();
        ok(&mut xfrm, &mark.then(marked).into_iter().fold(block(XFRM_POLICY_OUT), XfrmMessage::with), at(0));
        assert_eq!(used_s(&mut xfrm, XFRM_POLICY_OUT, mark), 0);
        assert_eq!(send(&mut xfrm, at(1)).0, Err(DropReason::OutBlock));
        assert_eq!(used_s(&mut xfrm, XFRM_POLICY_OUT, mark), START_S + 1, "with a mark: {mark}");
    }
    let Attribute::Tmpl(of) = tmpl() else { panic!("no template") };
    let other = Attribute::Tmpl(of.into_iter().map(|template| UserTmpl { reqid: 8, ..template }).collect());
    let wants_another = XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_IN))).with(other);
    for (order, reason) in [(block(XFRM_POLICY_IN), DropReason::InBlock), (wants_another, DropReason::Template)] {
        let (mut left, mut right) = (xfrm(), xfrm());
        ok(&mut left, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(0));
        for end in [&mut left, &mut right] {
            ok(end, &new_state(state(0x100)), at(0));
        }
        ok(&mut right, &order, at(0));
        let sealed = send(&mut left, at(1)).0.expect("it is sealed");
        assert_eq!(receive(&mut right, &sealed, at(2)), Err(reason));
        assert_eq!(used_s(&mut right, XFRM_POLICY_IN, false), START_S + 2, "{reason:?}");
    }
}

/// The mark of a sealed packet, as its state changes it, is that of what comes out of it.
#[test]
fn policies_see_the_mark_of_what_came_in() {
    let set = |v: u32, m: u32| vec![Attribute::SetMark(v), Attribute::SetMarkMask(m)];
    let (opened, refused) = (Ok(Opened::Packet), Err(DropReason::InNoPolicy));
    for (name, of_packet, of_state, wanted) in [
        ("none", 0, vec![], refused),
        ("the packet's", 0x742, vec![], opened),
        ("another one of the packet", 0x743, vec![], refused),
        ("the state's", 0, set(0x42, 0xff), opened),
        ("the state's over the packet's", 0x743, set(0x42, 0xff), opened),
        ("another one of the state over the packet's", 0x42, set(0x43, 0xff), refused),
        ("the packet's beside the state's", 0x42, set(0x700, 0xff00), opened),
    ] {
        let (mut left, mut right) = (xfrm(), xfrm());
        ok(&mut left, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(0));
        ok(&mut left, &new_state(state(0x100)), at(0));
        let marked = Attribute::Mark(Mark { v: 0x42, m: 0xff });
        ok(&mut right, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_IN))).with(tmpl()).with(marked), at(0));
        let order = of_state.iter().cloned().fold(new_state(state(0x100)), XfrmMessage::with);
        ok(&mut right, &order, at(0));
        let mut sealed = |now| send(&mut left, now).0.expect("it is sealed");
        assert_eq!(receive_marked(&mut right, &sealed(at(1)), of_packet, at(1)), wanted, "{name}");
        // An update changes what the state gives.
        let other =
            set(0x42, u32::MAX).into_iter().fold(XfrmMessage::new(Body::UpdSa(state(0x100))), XfrmMessage::with);
        ok(&mut right, &other.with(aead()), at(2));
        assert_eq!(receive_marked(&mut right, &sealed(at(2)), of_packet, at(2)), opened, "{name}, updated");
    }
}

/// Packets come without their marks: where these decide between two ways, none is taken.
#[test]
fn policies_that_differ_by_mark_never_send_to_the_wrong_peer() {
    let to = |peer: u8| {
        let id = Id { daddr: address(&format!("192.0.2.{peer}")), proto: IPPROTO_ESP, ..Id::default() };
        let saddr = address("192.0.2.1");
        Attribute::Tmpl(vec![UserTmpl { id, family: AF_INET, saddr, mode: XFRM_MODE_TUNNEL, ..UserTmpl::default() }])
    };
    let message = |of: UserpolicyInfo, mark: u32, ways: Option<u8>| {
        let marked = (mark != 0).then_some(Attribute::Mark(Mark { v: mark, m: 0xff }));
        let attributes = marked.into_iter().chain(ways.map(to));
        attributes.fold(XfrmMessage::new(Body::NewPolicy(of)), XfrmMessage::with)
    };
    let out = policy(XFRM_POLICY_OUT);
    let block = UserpolicyInfo { action: XFRM_POLICY_BLOCK, ..out };
    let late = UserpolicyInfo { priority: 9, ..out };
    let peer = |sent: Result<Vec<u8>, DropReason>| sent.map(|packet| packet[19]);
    let unknown = Err(DropReason::Ambiguous);
    for (name, policies, wanted) in [
        ("one of a mark", vec![message(out, 1, Some(2))], Ok(2)),
        ("two of the same way", vec![message(out, 1, Some(2)), message(out, 2, Some(2))], Ok(2)),
        ("two", vec![message(out, 1, Some(2)), message(out, 2, Some(3))], unknown),
        ("two, in the other order", vec![message(out, 1, Some(3)), message(out, 2, Some(2))], unknown),
        ("one, and one for all", vec![message(out, 1, Some(2)), message(late, 0, Some(3))], unknown),
        ("one behind one for all", vec![message(out, 0, Some(3)), message(late, 1, Some(2))], Ok(3)),
        ("one of the same way, and one for all", vec![message(out, 1, Some(2)), message(late, 0, Some(2))], Ok(2)),
        // nftables lets those of the first policy pass, by their mark.
        ("one that passes, and one for all", vec![message(out, 1, None), message(late, 0, Some(3))], Ok(3)),
        ("one that blocks, and one for all", vec![message(block, 1, None), message(late, 0, Some(3))], unknown),
        ("two that block", vec![message(block, 1, None), message(block, 2, None)], Err(DropReason::OutBlock)),
    ] {
        let mut xfrm = xfrm();
        for peer in [2, 3] {
            let mut info = state(0x100);
            info.id.daddr = address(&format!("192.0.2.{peer}"));
            info.reqid = 0;
            ok(&mut xfrm, &new_state(info), at(0));
        }
        for each in &policies {
            ok(&mut xfrm, each, at(0));
        }
        // Once found, and once in the cache of flows.
        for times in 1..=2 {
            assert_eq!(peer(send(&mut xfrm, at(times)).0), wanted, "{name}");
        }
    }
}
