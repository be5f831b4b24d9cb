//! NETLINK_XFRM from outside: limits of time become events, devices take states and policies, memory is bounded.

use sealane_abi::cryptouser::name_field;
use sealane_abi::netlink::answer::AckOptions;
use sealane_abi::netlink::{Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use sealane_abi::xfrm::*;
use sealane_abi::{Caller, Errno};
use sealane_engine_xfrm::numbers::Numbers;
use sealane_engine_xfrm::{Now, Replies, Sender, Setup, Xfrm, proc_xfrm_stat};
use sealane_net_ipsec::drop::{DropReason, Stat};
use sealane_net_ipsec::progress::Progress;
use std::sync::Arc;
use std::time::Duration;

mod bursts;
mod crypto;
mod devices;
mod ipcomp;
mod iptfs;
mod macs;
mod notices;
mod numbers;
mod packet_core;
mod packets;
mod partial;
mod vti;

const START_S: u64 = 1_800_000_000;

fn xfrm() -> Xfrm {
    xfrm_with(None)
}

fn xfrm_with(numbers: Option<Box<dyn Numbers>>) -> Xfrm {
    let mut seed = 88_172_645_463_325_252u64;
    let random = move |bytes: &mut [u8]| {
        for byte in bytes {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *byte = seed as u8;
        }
    };
    let registry = Arc::new(sealane_crypto_portable::registry());
    Xfrm::new(Setup { registry, random: Box::new(random), cpus: 2, numbers })
}

fn at(seconds: u64) -> Now {
    Now { monotonic_ns: seconds * 1_000_000_000, wall_s: START_S + seconds }
}

fn sender(privileged: bool) -> Sender {
    Sender { port: 9, caller: Caller { privileged }, ack: AckOptions { ext: true, cap: false } }
}

fn call(xfrm: &mut Xfrm, message: &XfrmMessage, now: Now) -> Replies {
    xfrm.call(&message.encode(NLM_F_REQUEST | NLM_F_ACK, 1, 0), sender(true), now)
}

/// The error number and text of an acknowledgement.
fn answer(replies: &Replies) -> (i32, String) {
    let last = replies.unicast.last().unwrap();
    let message = Messages::new(last).next().unwrap();
    assert_eq!(message.header.nlmsg_type, NLMSG_ERROR);
    let errno = i32::from_ne_bytes(*message.payload.first_chunk().unwrap());
    let text = String::from_utf8_lossy(message.payload).into_owned();
    let text = Reason::ALL.iter().map(|r| r.text()).filter(|t| text.contains(*t)).max_by_key(|t| t.len());
    (-errno, text.unwrap_or("").to_owned())
}

fn ok(xfrm: &mut Xfrm, message: &XfrmMessage, now: Now) -> Replies {
    let replies = call(xfrm, message, now);
    assert_eq!(answer(&replies).0, 0, "{}", answer(&replies).1);
    replies
}

fn address(text: &str) -> Address {
    text.parse::<core::net::IpAddr>().unwrap().into()
}

fn state(spi: u32) -> UsersaInfo {
    UsersaInfo {
        id: Id { daddr: address("192.0.2.2"), spi: spi.into(), proto: IPPROTO_ESP, pad: [0; 3] },
        saddr: address("192.0.2.1"),
        lft: LifetimeCfg::NONE,
        family: AF_INET,
        mode: XFRM_MODE_TUNNEL,
        reqid: 7,
        ..UsersaInfo::default()
    }
}

fn aead() -> Attribute {
    Attribute::AlgAead(AlgoAead {
        alg_name: name_field("rfc4106(gcm(aes))"),
        alg_key_len: 160,
        alg_icv_len: 128,
        alg_key: Key::new(&[7; 20]),
    })
}

fn auth(name: &str, key: &[u8], icv_bits: u32) -> Attribute {
    Attribute::AlgAuthTrunc(AlgoAuth {
        alg_name: name_field(name),
        alg_key_len: key.len() as u32 * 8,
        alg_trunc_len: icv_bits,
        alg_key: Key::new(key),
    })
}

/// Extended sequence numbers with a window of 32.
fn esn() -> Attribute {
    Attribute::ReplayEsnVal(ReplayStateEsn {
        bmp_len: 1,
        oseq: 0,
        seq: 0,
        oseq_hi: 0,
        seq_hi: 0,
        replay_window: 32,
        bmp: vec![0],
    })
}

fn new_state(info: UsersaInfo) -> XfrmMessage {
    XfrmMessage::new(Body::NewSa(info)).with(aead())
}

fn policy(dir: u8) -> UserpolicyInfo {
    let sel = Selector {
        daddr: address("198.51.100.0"),
        saddr: address("203.0.113.0"),
        family: AF_INET,
        prefixlen_d: 24,
        prefixlen_s: 24,
        ..Selector::default()
    };
    UserpolicyInfo { sel, lft: LifetimeCfg::NONE, dir, ..UserpolicyInfo::default() }
}

fn tmpl() -> Attribute {
    let id = Id { daddr: address("192.0.2.2"), proto: IPPROTO_ESP, ..Id::default() };
    let tmpl = UserTmpl {
        id,
        family: AF_INET,
        saddr: address("192.0.2.1"),
        reqid: 7,
        mode: XFRM_MODE_TUNNEL,
        ..UserTmpl::default()
    };
    Attribute::Tmpl(vec![tmpl])
}

fn count(xfrm: &mut Xfrm) -> u32 {
    let replies = call(xfrm, &XfrmMessage::new(Body::GetSadInfo(0)), at(0));
    let bytes = &replies.unicast[0];
    match &XfrmMessage::decode(&Messages::new(bytes).next().unwrap()).unwrap().attrs[0] {
        Attribute::SadCnt(count) => *count,
        _ => panic!("no count"),
    }
}

fn body(bytes: &[u8]) -> Body {
    XfrmMessage::decode(&Messages::new(bytes).next().unwrap()).unwrap().body
}

#[test]
fn limits_of_time_become_events() {
    let mut xfrm = xfrm();
    let lft = LifetimeCfg { soft_add_expires_seconds: 50, hard_add_expires_seconds: 60, ..LifetimeCfg::NONE };
    ok(&mut xfrm, &new_state(UsersaInfo { lft, ..state(0x100) }), at(0));
    // States of Mobile IPv6's mode carry no packets (LIMITATIONS.md, IPSEC-01).
    let id = Id { daddr: address("2001:db8::2"), spi: 0x77.into(), ..state(0).id };
    let mobile = UsersaInfo { lft, id, family: AF_INET6, mode: XFRM_MODE_ROUTEOPTIMIZATION, ..state(0) };
    ok(&mut xfrm, &new_state(mobile), at(0));
    assert_eq!((count(&mut xfrm), xfrm.sad().len()), (2, 1));
    ok(&mut xfrm, &XfrmMessage::new(Body::NewPolicy(UserpolicyInfo { lft, ..policy(1) })).with(tmpl()), at(10));
    assert_eq!(xfrm.poll_timeout(at(0)), Some(Duration::from_secs(50)));
    assert!(xfrm.handle_timeout(at(49)).is_empty());
    let soft = xfrm.handle_timeout(at(50));
    assert_eq!(soft.len(), 2, "a state that packets go through, and one that they do not");
    for notice in &soft {
        assert_eq!(notice.group, XFRMNLGRP_EXPIRE);
        let Body::Expire(expire) = body(&notice.bytes) else { panic!("no expire") };
        assert_eq!((expire.hard, expire.state.curlft.add_time), (0, START_S));
    }
    assert_eq!(xfrm.poll_timeout(at(50)), Some(Duration::from_secs(10)));
    let hard = xfrm.handle_timeout(at(60));
    let kinds: Vec<_> = hard.iter().map(|n| body(&n.bytes)).collect();
    assert!(matches!(kinds[0], Body::Expire(e) if e.hard == 1) && matches!(kinds[1], Body::Expire(e) if e.hard == 1));
    assert!(matches!(kinds[2], Body::PolExpire(e) if e.hard == 0));
    assert_eq!((kinds.len(), count(&mut xfrm)), (3, 0));
    let gone = xfrm.handle_timeout(at(70));
    assert!(matches!(body(&gone[0].bytes), Body::PolExpire(e) if e.hard == 1));
    assert_eq!((gone.len(), xfrm.poll_timeout(at(70))), (1, None));
}

#[test]
fn limits_of_time_outlive_a_clock_that_is_set() {
    const YEAR_S: u64 = 365 * 86_400;
    let mut xfrm = xfrm();
    let lft = LifetimeCfg { soft_add_expires_seconds: 50, hard_add_expires_seconds: 60, ..LifetimeCfg::NONE };
    let limited = |soft| LifetimeCfg { soft_add_expires_seconds: soft, ..lft };
    let key_of = |spi| new_state(UsersaInfo { lft: limited(50), ..state(spi) });
    xfrm.note_time(at(0));
    ok(&mut xfrm, &key_of(1), at(0));
    // Somebody sets the clock a year on: nothing is due, and the key manager is warned before the state ends.
    let later = |seconds| Now { wall_s: START_S + YEAR_S + seconds, ..at(seconds) };
    xfrm.note_time(later(10));
    assert!(xfrm.handle_timeout(later(10)).is_empty());
    assert_eq!(xfrm.poll_timeout(later(10)), Some(Duration::from_secs(40)));
    ok(&mut xfrm, &new_state(UsersaInfo { lft: limited(0), ..state(2) }), later(10));
    let soft = xfrm.handle_timeout(later(50));
    let Body::Expire(expire) = body(&soft[0].bytes) else { panic!("no expire") };
    // As `xfrm_timer_handler` has it: the state counts as added when the time to the soft limit had passed, and a second.
    let added = (expire.hard, expire.state.curlft.add_time);
    assert_eq!((soft.len(), added), (1, (0, START_S + YEAR_S - 1)));
    assert!(matches!(body(&xfrm.handle_timeout(later(60))[0].bytes), Body::Expire(e) if e.hard == 1));
    assert_eq!(count(&mut xfrm), 1);
    // Back again: a timer goes off when it would have, and finds that the state is young.
    let back = |seconds| Now { wall_s: START_S + 10 + seconds, ..at(seconds) };
    xfrm.note_time(back(61));
    assert_eq!(xfrm.poll_timeout(back(61)), Some(Duration::from_secs(9)));
    assert!(xfrm.handle_timeout(back(70)).is_empty());
    assert_eq!((count(&mut xfrm), xfrm.poll_timeout(back(70))), (1, Some(Duration::from_secs(YEAR_S - 10))));
}

#[test]
fn limits_that_come_too_late_count_a_second_later() {
    let mut xfrm = xfrm();
    ok(&mut xfrm, &new_state(state(1)), at(0));
    ok(&mut xfrm, &new_state(state(2)), at(0));
    let lft = |soft, hard| LifetimeCfg {
        soft_add_expires_seconds: soft,
        hard_add_expires_seconds: hard,
        ..LifetimeCfg::NONE
    };
    let update = |spi, lft| XfrmMessage::new(Body::UpdSa(UsersaInfo { lft, ..state(spi) })).with(aead());
    ok(&mut xfrm, &update(1, lft(50, 60)), at(100));
    ok(&mut xfrm, &update(2, lft(50, 200)), at(100));
    assert_eq!(xfrm.poll_timeout(at(100)), Some(Duration::from_secs(1)));
    let told = xfrm.handle_timeout(at(101));
    let mut hard: Vec<(u32, u8)> = told
        .iter()
        .map(|n| match body(&n.bytes) {
            Body::Expire(e) => (e.state.id.spi.get(), e.hard),
            other => panic!("{other:?}"),
        })
        .collect();
    hard.sort_unstable();
    assert_eq!(hard, [(1, 1), (2, 0)]);
    assert_eq!((count(&mut xfrm), xfrm.poll_timeout(at(101))), (1, Some(Duration::from_secs(99))));
}

#[test]
fn a_reserved_spi_expires_like_an_acquire() {
    let mut xfrm = xfrm();
    let order = XfrmMessage::new(Body::AllocSpi(UserspiInfo { info: state(0), min: 0x100, max: 0x1ff }));
    let replies = ok(&mut xfrm, &order, at(0));
    let Body::NewSa(info) = body(&replies.unicast[0]) else { panic!("no state") };
    assert!((0x100..=0x1ff).contains(&info.id.spi.get()));
    assert_eq!(xfrm.poll_timeout(at(0)), Some(Duration::from_secs(30)));
    let gone = xfrm.handle_timeout(at(30));
    assert!(matches!(body(&gone[0].bytes), Body::Expire(e) if e.hard == 1 && e.state.id.spi == info.id.spi));
    assert_eq!(count(&mut xfrm), 0);
}

/// The next daemon does not accept once more what came late after a state was recorded, and before a higher number.
#[test]
fn a_window_is_as_it_was_or_full() {
    let recorded = UsersaInfo {
        replay_window: 32,
        curlft: LifetimeCur { bytes: 900, packets: 9, add_time: START_S, use_time: START_S },
        ..state(0x100)
    };
    let window = |bitmap| Attribute::ReplayVal(ReplayState { oseq: 0, seq: 10, bitmap });
    // All but the eighth.
    const MOST: u32 = 0b11_1111_1011;
    let request = new_state(recorded).with(window(MOST)).encode(NLM_F_REQUEST, 1, 0);
    for (top, packets, left) in [(10, 9, MOST), (10, 10, u32::MAX), (11, 10, u32::MAX), (11, 9, u32::MAX)] {
        let mut xfrm = xfrm();
        let noted = Progress { top, bytes: 100 * packets, packets, use_time_s: START_S, last_used_s: START_S };
        xfrm.restore_state(&request, None, Some(noted), at(1)).unwrap();
        let told = packets::asked(&mut xfrm, at(2));
        let told = told.attrs.iter().find_map(|a| if let Attribute::ReplayVal(said) = a { Some(*said) } else { None });
        assert_eq!(told, Some(ReplayState { oseq: 0, seq: top as u32, bitmap: left }), "{top} {packets}");
    }
}

/// Packets pass between the parts of a flush of very many states; nobody else sees that there are parts.
#[test]
fn many_states_are_flushed_in_parts() {
    let mut xfrm = xfrm();
    for spi in 1..=3000 {
        ok(&mut xfrm, &new_state(state(spi)), at(0));
    }
    let flush = |proto| XfrmMessage::new(Body::FlushSa(UsersaFlush { proto }));
    let flushed = |message: &XfrmMessage, flags| Xfrm::flushed_protocol(&message.encode(flags, 1, 0));
    assert_eq!(flushed(&flush(IPPROTO_ESP), NLM_F_REQUEST), Some(IPPROTO_ESP));
    assert_eq!(flushed(&flush(IPPROTO_ESP), 0), None, "it is no request");
    assert_eq!(flushed(&XfrmMessage::new(Body::GetSadInfo(0)), NLM_F_REQUEST), None);
    assert!(!xfrm.flush_ahead(IPPROTO_AH));
    assert_eq!(count(&mut xfrm), 3000);
    let counts = [(); 3].map(|()| (xfrm.flush_ahead(IPPROTO_ESP), count(&mut xfrm)));
    assert_eq!(counts, [(true, 1976), (true, 952), (false, 952)]);
    assert_eq!(ok(&mut xfrm, &flush(IPPROTO_ESP), at(1)).events.len(), 1);
    assert_eq!(count(&mut xfrm), 0);
}

#[test]
fn nobody_asks_without_privilege() {
    let mut xfrm = xfrm();
    for body in [Body::GetSadInfo(0), Body::NewSa(state(1)), Body::DumpSa] {
        let flags = NLM_F_REQUEST | if body == Body::DumpSa { NLM_F_DUMP } else { 0 };
        let replies = xfrm.call(&XfrmMessage::new(body).encode(flags, 1, 0), sender(false), at(0));
        assert_eq!((answer(&replies).0, replies.events.len()), (Errno::EPERM.number(), 0));
    }
}

#[test]
fn counters_are_told_as_a_kernel_does() {
    let mut stat = Stat::default();
    assert_eq!(proc_xfrm_stat(&stat), include_str!("../data/xfrm_stat-linux-7.3.txt"));
    (0..12).for_each(|_| stat.dropped(DropReason::Replayed));
    assert!(proc_xfrm_stat(&stat).contains("\nXfrmInStateSeqError     \t12\n"));
}

#[test]
fn a_dump_is_many_datagrams_and_an_end() {
    let mut xfrm = xfrm();
    for spi in 1..=100 {
        ok(&mut xfrm, &new_state(state(spi)), at(0));
    }
    let request = XfrmMessage::new(Body::DumpSa).encode(NLM_F_REQUEST | NLM_F_DUMP, 5, 0);
    let replies = xfrm.call(&request, sender(true), at(0));
    assert!(replies.unicast.len() > 5 && replies.unicast.iter().all(|d| d.len() <= 4096));
    let types: Vec<u16> = replies.unicast.iter().flat_map(|d| Messages::new(d).map(|m| m.header.nlmsg_type)).collect();
    assert_eq!((types.len(), types[100]), (101, NLMSG_DONE));
    assert!(types[..100].iter().all(|t| *t == XFRM_MSG_NEWSA));
    // A second dump waits for the end of the first, unless there is nothing to dump.
    let twice = xfrm.call(&request.repeat(1000), sender(true), at(0));
    assert_eq!(twice.unicast.len(), replies.unicast.len() + 999);
    assert_eq!(answer(&twice).0, Errno::EBUSY.number());
    let policies = XfrmMessage::new(Body::DumpPolicy).encode(NLM_F_REQUEST | NLM_F_DUMP, 5, 0);
    assert_eq!(xfrm.call(&policies.repeat(3), sender(true), at(0)).unicast.len(), 3);
}
