//! The packet core: its own states and policies, its own counts, the stack's questions.

use super::numbers::Storage;
use super::packets::{Local, asked, datagram, receive, send};
use super::*;
use sealane_engine_xfrm::data::{Run, is_left, is_unknown};
use sealane_engine_xfrm::packet::{PacketCore, PacketDevice};
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::seal::Outbound;

const DEVICE: i32 = 5;

fn add_core(xfrm: &mut Xfrm, ifindex: i32) -> PacketCore {
    let device = PacketDevice::new(|| 3);
    let core = device.core();
    xfrm.add_device(ifindex, Box::new(device));
    core
}

fn on(ifindex: i32, flags: u8) -> Attribute {
    Attribute::OffloadDev(UserOffload { ifindex, flags: XFRM_OFFLOAD_PACKET | flags, pad: [0; 3] })
}

fn out_policy() -> XfrmMessage {
    XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()).with(on(DEVICE, 0))
}

/// Sends a packet by the device: what leaves, and whether the device has something to tell.
fn seal(core: &PacketCore, packet: &[u8], now: Now) -> (Result<Vec<u8>, DropReason>, bool, bool) {
    let mut buffer = vec![0; HEADROOM + packet.len() + TAILROOM];
    buffer[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
    let mut burst = [Outbound::new(SaId::NONE, Packet::new(&mut buffer, HEADROOM, HEADROOM + packet.len()))];
    let told = core.outbound(&[Run::new(1)], &mut burst, &mut Local, now);
    (burst[0].status.map(|()| burst[0].packet.bytes().to_vec()), told, is_left(&burst[0]))
}

fn open(core: &PacketCore, packet: &[u8], now: Now) -> (Result<Opened, DropReason>, bool) {
    let mut buffer = vec![0; HEADROOM + packet.len()];
    buffer[HEADROOM..].copy_from_slice(packet);
    let end = buffer.len();
    let mut burst = [Inbound::new(Packet::new(&mut buffer, HEADROOM, end))];
    let _ = core.inbound(&mut burst, &mut Local, now);
    (burst[0].status, is_unknown(&burst[0]))
}

fn count_of(xfrm: &Xfrm, name: &str) -> u64 {
    let text = proc_xfrm_stat(&xfrm.stat());
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn limits_and_counters_are_the_device_s() {
    let mut xfrm = xfrm();
    let core = add_core(&mut xfrm, DEVICE);
    let lft = LifetimeCfg {
        soft_packet_limit: 2,
        hard_packet_limit: 4,
        soft_add_expires_seconds: 50,
        hard_add_expires_seconds: 60,
        ..LifetimeCfg::NONE
    };
    ok(&mut xfrm, &new_state(UsersaInfo { lft, ..state(0x100) }).with(on(DEVICE, 0)), at(0));
    ok(&mut xfrm, &out_policy(), at(0));
    for sent in 1..=4 {
        let (packet, told, _) = seal(&core, &datagram(), at(10 + sent));
        assert!(packet.is_ok() && told == (sent >= 3), "packet {sent}");
        // The stack's own tables have the state and never use it.
        assert_eq!(send(&mut xfrm, at(10 + sent)).0, Err(DropReason::OutInvalid));
    }
    let told = xfrm.device_events();
    assert!(
        matches!(body(&told[0].bytes), Body::Expire(e) if e.hard == 0 && e.state.curlft.packets == 4)
            && told.len() == 1
    );
    let told = asked(&mut xfrm, at(40));
    let Body::NewSa(info) = told.body else { panic!("no state") };
    assert_eq!((info.curlft.packets, info.curlft.add_time, info.curlft.use_time), (4, START_S, START_S + 11));
    assert!(told.attrs.contains(&Attribute::Lastused(START_S + 14)));
    assert!(told.attrs.contains(&Attribute::ReplayVal(ReplayState { oseq: 4, seq: 0, bitmap: 0 })));
    // Another limit is told to the device, and holds there.
    let more = LifetimeCfg { hard_packet_limit: 5, ..lft };
    let update = XfrmMessage::new(Body::UpdSa(UsersaInfo { lft: more, ..state(0x100) })).with(aead());
    ok(&mut xfrm, &update.with(on(DEVICE, 0)), at(41));
    assert!(seal(&core, &datagram(), at(42)).0.is_ok());
    let (dropped, told, left) = seal(&core, &datagram(), at(43));
    assert_eq!((dropped, told, left), (Err(DropReason::OutExpired), true, false));
    let told = xfrm.device_events();
    let hard = |n: &sealane_engine_xfrm::Notice| matches!(body(&n.bytes), Body::Expire(e) if e.hard == 1);
    assert!(hard(told.last().unwrap()));
    assert_eq!((count(&mut xfrm), count_of(&xfrm, "XfrmOutStateExpired")), (0, 1));
    // Time is the device's too, and told once.
    ok(&mut xfrm, &new_state(UsersaInfo { lft, ..state(0x101) }).with(on(DEVICE, 0)), at(100));
    assert!(core.handle_timeout(at(150)) && xfrm.handle_timeout(at(150)).is_empty());
    assert_eq!(xfrm.device_events().len(), 1);
    assert!(core.handle_timeout(at(160)) && xfrm.handle_timeout(at(160)).is_empty());
    assert!(hard(&xfrm.device_events()[0]) && count(&mut xfrm) == 0);
}

#[test]
fn what_the_device_has_no_state_for_is_asked_of_the_stack() {
    let mut xfrm = xfrm();
    let core = add_core(&mut xfrm, DEVICE);
    let others = add_core(&mut xfrm, 6);
    assert_eq!(seal(&core, &datagram(), at(1)).0, Err(DropReason::OutRest), "no policy of its own");
    assert!(send(&mut xfrm, at(1)).0.is_ok(), "the stack has none either: in clear");
    ok(&mut xfrm, &out_policy(), at(2));
    // In software, and another device's: neither is for its policy.
    ok(&mut xfrm, &new_state(state(0x100)), at(2));
    ok(&mut xfrm, &new_state(state(0x101)).with(on(6, 0)), at(2));
    let (dropped, told, left) = seal(&core, &datagram(), at(3));
    assert_eq!((dropped, told, left), (Err(DropReason::OutNoState), false, true));
    let (dropped, events) = send(&mut xfrm, at(3));
    assert!(dropped == Err(DropReason::OutNoState) && matches!(events[..], [Body::Acquire(_)]), "{events:?}");
    assert_eq!(send(&mut xfrm, at(3)).1.len(), 0, "it is asked once");
    assert_eq!(count_of(&xfrm, "XfrmOutNoStates"), 2, "by the stack alone");
    assert_eq!(seal(&others, &datagram(), at(3)).0, Err(DropReason::OutRest), "a policy is one device's");
    // The key manager answers: the state takes the place of what stood for it, and the device's policy finds it.
    ok(&mut xfrm, &new_state(UsersaInfo { seq: 1, ..state(0x102) }).with(on(DEVICE, 0)), at(4));
    assert!(seal(&core, &datagram(), at(5)).0.is_ok());
    assert!(matches!(send(&mut xfrm, at(5)), (Err(DropReason::OutInvalid), _)), "no fallback");
    // A policy that takes the place of another one, and one that does not.
    assert_eq!(answer(&call(&mut xfrm, &out_policy(), at(6))).0, 17);
    assert!(seal(&core, &datagram(), at(6)).0.is_ok());
    let Body::NewPolicy(info) = out_policy().body else { panic!("a policy") };
    let update =
        |action| XfrmMessage::new(Body::UpdPolicy(UserpolicyInfo { action, ..info })).with(tmpl()).with(on(DEVICE, 0));
    ok(&mut xfrm, &update(XFRM_POLICY_BLOCK), at(7));
    assert_eq!(seal(&core, &datagram(), at(7)).0, Err(DropReason::OutBlock));
    assert_eq!(send(&mut xfrm, at(7)).0, Err(DropReason::OutBlock));
    ok(&mut xfrm, &update(XFRM_POLICY_ALLOW), at(8));
    assert!(seal(&core, &datagram(), at(8)).0.is_ok());
    // When it was used is the device's to say.
    let id = UserpolicyId { sel: info.sel, dir: info.dir, ..UserpolicyId::default() };
    let replies = ok(&mut xfrm, &XfrmMessage::new(Body::GetPolicy(id)), at(9));
    assert!(matches!(body(&replies.unicast[0]), Body::NewPolicy(told) if told.curlft.use_time == START_S + 8));
    xfrm.device_down(DEVICE);
    assert_eq!(seal(&core, &datagram(), at(10)).0, Err(DropReason::OutRest), "nothing is left there");
    assert!(send(&mut xfrm, at(10)).0.is_ok_and(|sealed| sealed[9] == IPPROTO_ESP), "its policy is still in force");
    // Behind any other policy, and in nobody's place.
    let replies = ok(&mut xfrm, &XfrmMessage::new(Body::GetPolicy(id)), at(10));
    let Body::NewPolicy(told) = body(&replies.unicast[0]) else { panic!("a policy") };
    assert_eq!((told.priority, told.curlft.use_time), (u32::MAX, START_S + 10));
    let software = XfrmMessage::new(Body::NewPolicy(info)).with(tmpl());
    ok(&mut xfrm, &software, at(11));
    assert_eq!(answer(&call(&mut xfrm, &software, at(11))).0, 17, "this one has its place");
}

#[test]
fn a_device_takes_no_fragments_and_nothing_too_long() {
    let mut xfrm = xfrm();
    let core = add_core(&mut xfrm, DEVICE);
    ok(&mut xfrm, &new_state(state(0x100)).with(on(DEVICE, 0)), at(0));
    ok(&mut xfrm, &out_policy(), at(0));
    let mut fragment = datagram();
    for (flags, offset, reason) in
        [(0x20, 0, Err(DropReason::Fragment)), (0, 3, Err(DropReason::Fragment)), (0x40, 0, Ok(()))]
    {
        (fragment[6], fragment[7]) = (flags, offset);
        assert_eq!(seal(&core, &fragment, at(1)).0.map(|_| ()), reason, "{flags:#x} {offset}");
    }
    for (len, flags, fits) in [(1400, 0x40, true), (1460, 0x40, false), (1460, 0, false), (1400, 0, true)] {
        let mut long = datagram();
        long.resize(len, 0);
        long[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        long[6] = flags;
        let expected = if fits { Ok(()) } else { Err(DropReason::TooBig) };
        assert_eq!(seal(&core, &long, at(1)).0.map(|_| ()), expected, "{len} {flags:#x}");
    }
    let told = asked(&mut xfrm, at(2));
    assert!(matches!(told.body, Body::NewSa(info) if info.curlft.packets == 3), "what was not taken is not counted");
}

#[test]
fn the_other_way() {
    let (mut left, mut right) = (xfrm(), xfrm());
    right.leave_unknown();
    let core = add_core(&mut right, DEVICE);
    ok(&mut left, &new_state(state(0x100)), at(0));
    ok(&mut left, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(0));
    let sealed: Vec<Vec<u8>> = (0..3).map(|_| send(&mut left, at(1)).0.unwrap()).collect();
    assert_eq!(open(&core, &sealed[0], at(1)), (Err(DropReason::NoState), true));
    let inbound = on(DEVICE, XFRM_OFFLOAD_INBOUND);
    ok(&mut right, &new_state(UsersaInfo { replay_window: 32, ..state(0x100) }).with(inbound.clone()), at(2));
    // The stack cannot open it, and does not count what the device will.
    assert_eq!(receive(&mut right, &sealed[0], at(3)), Err(DropReason::InInvalid));
    assert_eq!(count_of(&right, "XfrmInStateInvalid"), 0);
    // A policy in software does not let pass what the device has opened; that of the device does.
    ok(&mut right, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_IN))).with(tmpl()), at(3));
    assert_eq!(open(&core, &sealed[0], at(3)), (Err(DropReason::InNoPolicy), false));
    ok(&mut right, &XfrmMessage::new(Body::UpdPolicy(policy(XFRM_POLICY_IN))).with(tmpl()).with(on(DEVICE, 0)), at(4));
    assert!(matches!(open(&core, &sealed[1], at(4)).0, Ok(Opened::Packet)));
    assert_eq!(open(&core, &sealed[1], at(5)), (Err(DropReason::Replayed), false));
    let mut forged = sealed[2].clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(open(&core, &forged, at(5)), (Err(DropReason::Icv), false));
    let told = asked(&mut right, at(6));
    let Body::NewSa(info) = told.body else { panic!("no state") };
    assert_eq!((info.stats.replay, info.stats.integrity_failed, info.curlft.packets), (1, 1, 2));
    assert!(told.attrs.contains(&Attribute::ReplayVal(ReplayState { oseq: 0, seq: 2, bitmap: 3 })));
    assert_eq!((count_of(&right, "XfrmInStateSeqError"), count_of(&right, "XfrmInStateProtoError")), (1, 1));
    // An event of replay asks the device too.
    let sa_id = UsersaId { daddr: state(0).id.daddr, spi: 0x100.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    let id = AeventId { sa_id, flags: XFRM_AE_RVAL, ..AeventId::default() };
    let replies = ok(&mut right, &XfrmMessage::new(Body::GetAe(id)), at(6));
    let told = XfrmMessage::decode(&Messages::new(&replies.unicast[0]).next().unwrap()).unwrap();
    assert!(told.attrs.contains(&Attribute::ReplayVal(ReplayState { oseq: 0, seq: 2, bitmap: 3 })));
}

#[test]
fn numbers_go_on_and_are_leased() {
    let storage = Storage::default();
    let mut xfrm = storage.boot();
    let core = add_core(&mut xfrm, DEVICE);
    let (order, said) = (new_state(state(0x100)).with(on(DEVICE, 0)), ReplayState { oseq: 100, seq: 0, bitmap: 0 });
    ok(&mut xfrm, &order.clone().with(Attribute::ReplayVal(said)), at(0));
    ok(&mut xfrm, &out_policy(), at(0));
    let number = |packet: Result<Vec<u8>, DropReason>| {
        let packet = packet.unwrap();
        u32::from_be_bytes(*packet[24..].first_chunk().unwrap())
    };
    // A lease has eight numbers, of which four may be used before more are asked for.
    for n in 101..=130 {
        let (packet, told, _) = seal(&core, &datagram(), at(1));
        assert_eq!(number(packet), n);
        if told {
            assert!(xfrm.device_events().is_empty(), "leases are nobody's but ours");
        }
    }
    // Deleted and added again, it goes on where it was; after a crash, behind what was leased.
    let id = UsersaId { daddr: state(0).id.daddr, spi: 0x100.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    ok(&mut xfrm, &XfrmMessage::new(Body::DelSa(id)), at(2));
    ok(&mut xfrm, &order, at(2));
    assert_eq!(number(seal(&core, &datagram(), at(3)).0), 131);
    let mut xfrm = storage.boot();
    let core = add_core(&mut xfrm, DEVICE);
    ok(&mut xfrm, &order, at(4));
    ok(&mut xfrm, &out_policy(), at(4));
    let next = number(seal(&core, &datagram(), at(5)).0);
    assert!((132..=140).contains(&next) && next > 131, "{next}");
}

/// As a key manager does it that has reserved an SPI.
#[test]
fn a_reserved_spi_becomes_the_device_s() {
    let mut xfrm = xfrm();
    let core = add_core(&mut xfrm, DEVICE);
    let info = UsersaInfo { seq: 9, ..state(0) };
    ok(&mut xfrm, &XfrmMessage::new(Body::AllocSpi(UserspiInfo { info, min: 0x100, max: 0x100 })), at(0));
    assert!(!core.has_inbound() && count(&mut xfrm) == 1);
    let encap = EncapTmpl { encap_type: 2, encap_sport: 4500.into(), encap_dport: 4500.into(), ..EncapTmpl::default() };
    let update = XfrmMessage::new(Body::UpdSa(UsersaInfo { replay_window: 32, seq: 9, ..state(0x100) })).with(aead());
    let update = update.with(Attribute::Encap(encap)).with(on(DEVICE, XFRM_OFFLOAD_INBOUND));
    ok(&mut xfrm, &update, at(1));
    assert!(core.has_inbound() && count(&mut xfrm) == 1);
    ok(&mut xfrm, &XfrmMessage::new(Body::UpdPolicy(policy(XFRM_POLICY_IN))).with(tmpl()).with(on(DEVICE, 0)), at(1));
    // The peer's NAT gives it another port: the device tells it.
    let mut peer = super::xfrm();
    let theirs = EncapTmpl { encap_sport: 5000.into(), ..encap };
    ok(&mut peer, &new_state(state(0x100)).with(Attribute::Encap(theirs)), at(1));
    ok(&mut peer, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(1));
    let packet = send(&mut peer, at(2)).0.unwrap();
    let mut buffer = [&[0; HEADROOM][..], &packet].concat();
    let end = buffer.len();
    let mut burst = [Inbound::new(Packet::new(&mut buffer, HEADROOM, end))];
    burst[0].udp_encap = true;
    assert!(core.inbound(&mut burst, &mut Local, at(2)));
    assert!(matches!(burst[0].status, Ok(Opened::Packet)), "{:?}", burst[0].status);
    let told = xfrm.device_events();
    assert!(matches!(body(&told[0].bytes), Body::Mapping(m) if m.new_sport.get() == 5000 && m.old_sport.get() == 4500));
}
