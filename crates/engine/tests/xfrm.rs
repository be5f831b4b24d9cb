//! NETLINK_XFRM from outside: limits of time become events, devices take states and policies, memory is bounded.

use sealane_abi::cryptouser::name_field;
use sealane_abi::netlink::answer::AckOptions;
use sealane_abi::netlink::{Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use sealane_abi::xfrm::*;
use sealane_engine::xfrm::device::{Caps, Device, DeviceEvent, Mode, Offered, PolicyKey, Refusal, StateKey};
use sealane_engine::xfrm::{Now, Replies, Sender, Setup, Xfrm, proc_xfrm_stat};
use sealane_engine::{Caller, Errno};
use sealane_net::ipsec::drop::{DropReason, Stat};
use sealane_net::ipsec::lifetime::Usage;
use sealane_net::ipsec::sa::SaStat;
use sealane_net::ipsec::spd::Policy;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const START_S: u64 = 1_800_000_000;

fn xfrm() -> Xfrm {
    let mut seed = 88_172_645_463_325_252u64;
    let random = move |bytes: &mut [u8]| {
        for byte in bytes {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *byte = seed as u8;
        }
    };
    let registry = Arc::new(sealane_crypto::portable_registry());
    Xfrm::new(Setup { registry, random: Box::new(random), cpus: 2 })
}

fn at(seconds: u64) -> Now {
    Now { monotonic_ns: seconds * 1_000_000_000, wall_s: START_S + seconds }
}

fn sender(privileged: bool) -> Sender {
    Sender { port: 9, caller: Caller { privileged }, ack: AckOptions { ext: true, cap: false } }
}

fn call(xfrm: &mut Xfrm, message: &Message, now: Now) -> Replies {
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

fn ok(xfrm: &mut Xfrm, message: &Message, now: Now) -> Replies {
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

fn new_state(info: UsersaInfo) -> Message {
    Message::new(Body::NewSa(info)).with(aead())
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
    let replies = call(xfrm, &Message::new(Body::GetSadInfo(0)), at(0));
    let bytes = &replies.unicast[0];
    match &Message::decode(&Messages::new(bytes).next().unwrap()).unwrap().attrs[0] {
        Attribute::SadCnt(count) => *count,
        _ => panic!("no count"),
    }
}

fn body(bytes: &[u8]) -> Body {
    Message::decode(&Messages::new(bytes).next().unwrap()).unwrap().body
}

#[test]
fn limits_of_time_become_events() {
    let mut xfrm = xfrm();
    let lft = LifetimeCfg { soft_add_expires_seconds: 50, hard_add_expires_seconds: 60, ..LifetimeCfg::NONE };
    ok(&mut xfrm, &new_state(UsersaInfo { lft, ..state(0x100) }), at(0));
    let comp = UsersaInfo {
        lft,
        id: Id { proto: IPPROTO_COMP, spi: 0x77.into(), ..state(0).id },
        mode: XFRM_MODE_TRANSPORT,
        ..state(0)
    };
    let deflate = Algo { alg_name: name_field("deflate"), alg_key_len: 0, alg_key: Key::new(&[]) };
    ok(&mut xfrm, &Message::new(Body::NewSa(comp)).with(Attribute::AlgComp(deflate)), at(0));
    ok(&mut xfrm, &Message::new(Body::NewPolicy(UserpolicyInfo { lft, ..policy(1) })).with(tmpl()), at(10));
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
fn a_reserved_spi_expires_like_an_acquire() {
    let mut xfrm = xfrm();
    let order = Message::new(Body::AllocSpi(UserspiInfo { info: state(0), min: 0x100, max: 0x1ff }));
    let replies = ok(&mut xfrm, &order, at(0));
    let Body::NewSa(info) = body(&replies.unicast[0]) else { panic!("no state") };
    assert!((0x100..=0x1ff).contains(&info.id.spi.get()));
    assert_eq!(xfrm.poll_timeout(at(0)), Some(Duration::from_secs(30)));
    let gone = xfrm.handle_timeout(at(30));
    assert!(matches!(body(&gone[0].bytes), Body::Expire(e) if e.hard == 1 && e.state.id.spi == info.id.spi));
    assert_eq!(count(&mut xfrm), 0);
}

#[test]
fn nobody_asks_without_privilege() {
    let mut xfrm = xfrm();
    for body in [Body::GetSadInfo(0), Body::NewSa(state(1)), Body::DumpSa] {
        let flags = NLM_F_REQUEST | if body == Body::DumpSa { NLM_F_DUMP } else { 0 };
        let replies = xfrm.call(&Message::new(body).encode(flags, 1, 0), sender(false), at(0));
        assert_eq!((answer(&replies).0, replies.events.len()), (Errno::EPERM.number(), 0));
    }
}

#[test]
fn counters_are_told_as_a_kernel_does() {
    let mut stat = Stat::default();
    assert_eq!(proc_xfrm_stat(&stat), include_str!("data/xfrm_stat-linux-7.3.txt"));
    (0..12).for_each(|_| stat.dropped(DropReason::Replayed));
    assert!(proc_xfrm_stat(&stat).contains("\nXfrmInStateSeqError     \t12\n"));
}

#[test]
fn a_dump_is_many_datagrams_and_an_end() {
    let mut xfrm = xfrm();
    for spi in 1..=100 {
        ok(&mut xfrm, &new_state(state(spi)), at(0));
    }
    let request = Message::new(Body::DumpSa).encode(NLM_F_REQUEST | NLM_F_DUMP, 5, 0);
    let replies = xfrm.call(&request, sender(true), at(0));
    assert!(replies.unicast.len() > 5 && replies.unicast.iter().all(|d| d.len() <= 4096));
    let types: Vec<u16> = replies.unicast.iter().flat_map(|d| Messages::new(d).map(|m| m.header.nlmsg_type)).collect();
    assert_eq!((types.len(), types[100]), (101, NLMSG_DONE));
    assert!(types[..100].iter().all(|t| *t == XFRM_MSG_NEWSA));
}

/// A device that takes what it says it can, and remembers.
#[derive(Default)]
struct Card {
    caps: Caps,
    refuse: Option<Errno>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    states: Vec<(StateKey, Mode, bool)>,
    policies: Vec<PolicyKey>,
    events: Vec<DeviceEvent>,
    used: Usage,
}

impl Device for Card {
    fn caps(&self) -> Caps {
        self.caps
    }

    fn state_add(&mut self, state: Offered<'_>) -> Result<(), Refusal> {
        if let Some(errno) = self.refuse {
            return Err(Refusal { errno, text: None });
        }
        assert!(state.spec.is_some() && state.message.attrs.iter().any(|a| a.type_() == XFRMA_ALG_AEAD));
        self.seen.lock().unwrap().states.push((state.key, state.mode, state.inbound));
        Ok(())
    }

    fn state_del(&mut self, key: StateKey) {
        self.seen.lock().unwrap().states.retain(|s| s.0 != key);
    }

    fn advance_esn(&mut self, _: StateKey, _: u32) {}

    fn policy_add(&mut self, key: PolicyKey, policy: &Policy, _: &Message) -> Result<(), Refusal> {
        assert_eq!(policy.device, Some(5));
        self.seen.lock().unwrap().policies.push(key);
        Ok(())
    }

    fn policy_del(&mut self, key: PolicyKey) {
        self.seen.lock().unwrap().policies.retain(|k| *k != key);
    }

    fn counters(&self, _: StateKey) -> Option<(Usage, SaStat)> {
        Some((self.seen.lock().unwrap().used, SaStat::default()))
    }

    fn events(&mut self, events: &mut Vec<DeviceEvent>) {
        events.append(&mut self.seen.lock().unwrap().events);
    }
}

const ALL: Caps = Caps { states: true, esn: true, policies: true };

fn with_card(caps: Caps, refuse: Option<Errno>) -> (Xfrm, Arc<Mutex<Seen>>) {
    let (mut xfrm, seen) = (xfrm(), Arc::new(Mutex::new(Seen::default())));
    xfrm.add_device(5, Box::new(Card { caps, refuse, seen: seen.clone() }));
    (xfrm, seen)
}

fn offload(flags: u8) -> Attribute {
    Attribute::OffloadDev(UserOffload { ifindex: 5, flags, pad: [0; 3] })
}

/// Device, its refusal, request: errno, reason, whether it is offloaded.
type Case = (Caps, Option<Errno>, Message, i32, Option<Reason>, bool);

/// How many states and policies a device has.
fn held(seen: &Mutex<Seen>) -> (usize, usize) {
    let seen = seen.lock().unwrap();
    (seen.states.len(), seen.policies.len())
}

fn told_offload(bytes: &[u8]) -> Option<u8> {
    let message = Message::decode(&Messages::new(bytes).next().unwrap()).unwrap();
    message.attrs.iter().find_map(|a| if let Attribute::OffloadDev(o) = a { Some(o.flags) } else { None })
}

#[test]
fn states_go_to_devices_by_the_kernels_rules() {
    let esn = Attribute::ReplayEsnVal(ReplayStateEsn {
        bmp_len: 1,
        oseq: 0,
        seq: 0,
        oseq_hi: 0,
        seq_hi: 0,
        replay_window: 32,
        bmp: vec![0],
    });
    let with_esn = Message::new(Body::NewSa(UsersaInfo { flags: XFRM_STATE_ESN, ..state(1) })).with(aead()).with(esn);
    let packet = XFRM_OFFLOAD_PACKET;
    let inbound = XFRM_OFFLOAD_INBOUND;
    let none = Caps::default();
    let no_esn = Caps { esn: false, ..ALL };
    let notsup = Some(Errno::EOPNOTSUPP);
    let cases: [Case; 13] = [
        (ALL, None, new_state(state(1)).with(offload(0)), 0, None, true),
        (ALL, None, new_state(state(1)).with(offload(packet | inbound)), 0, None, true),
        (none, None, new_state(state(1)).with(offload(0)), 0, None, false),
        (none, None, new_state(state(1)).with(offload(packet)), 22, None, false),
        (ALL, notsup, new_state(state(1)).with(offload(0)), 0, None, false),
        (ALL, notsup, new_state(state(1)).with(offload(packet)), 95, Some(Reason::OffloadState), false),
        (ALL, Some(Errno::ENOMEM), new_state(state(1)).with(offload(0)), 12, Some(Reason::OffloadState), false),
        (no_esn, None, with_esn.clone().with(offload(0)), 22, Some(Reason::OffloadEsn), false),
        (no_esn, None, with_esn.with(offload(packet)), 0, None, true),
        (ALL, None, new_state(state(1)).with(offload(8)), 22, Some(Reason::OffloadFlags), false),
        (
            ALL,
            None,
            new_state(state(1)).with(Attribute::Tfcpad(9)).with(offload(0)),
            22,
            Some(Reason::OffloadTfc),
            false,
        ),
        (
            ALL,
            None,
            new_state(state(1)).with(Attribute::IfId(9)).with(offload(inbound)),
            22,
            Some(Reason::OffloadIfId),
            false,
        ),
        (
            ALL,
            None,
            new_state(state(1)).with(Attribute::SaDir(1)).with(offload(0)),
            22,
            Some(Reason::OffloadDir),
            false,
        ),
    ];
    for (i, (caps, refuse, request, errno, reason, taken)) in cases.into_iter().enumerate() {
        let (mut xfrm, seen) = with_card(caps, refuse);
        let replies = call(&mut xfrm, &request, at(0));
        assert_eq!(answer(&replies), (errno, reason.map_or("", |r| r.text()).to_owned()), "{i}");
        assert_eq!(seen.lock().unwrap().states.len(), usize::from(taken), "{i}");
        let told = replies.events.first().and_then(|n| told_offload(&n.bytes));
        assert_eq!(told.is_some(), taken, "{i}");
        // A second one with its name is refused, and the device has one still.
        if taken {
            assert_eq!(answer(&call(&mut xfrm, &request, at(0))).0, 17);
            assert_eq!(seen.lock().unwrap().states.len(), 1);
            let id = UsersaId { daddr: state(1).id.daddr, spi: 1.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
            ok(&mut xfrm, &Message::new(Body::DelSa(id)), at(0));
            assert!(seen.lock().unwrap().states.is_empty());
        }
    }
}

#[test]
fn a_device_counts_tells_and_goes_down() {
    let (mut xfrm, seen) = with_card(ALL, None);
    ok(&mut xfrm, &new_state(state(1)).with(offload(XFRM_OFFLOAD_PACKET)), at(0));
    ok(&mut xfrm, &new_state(state(2)), at(0));
    let out = Message::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl());
    let refused = answer(&call(&mut xfrm, &out.clone().with(offload(0)), at(0)));
    assert_eq!(refused, (22, Reason::OffloadFlags.text().to_owned()));
    ok(&mut xfrm, &out.clone().with(offload(XFRM_OFFLOAD_PACKET)), at(0));
    let fwd = Message::new(Body::NewPolicy(policy(XFRM_POLICY_FWD))).with(tmpl());
    ok(&mut xfrm, &fwd, at(0));
    seen.lock().unwrap().used = Usage { bytes: 1000, packets: 10, use_time_s: START_S + 3, ..Usage::default() };
    let id = UsersaId { daddr: state(1).id.daddr, spi: 1.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    let replies = ok(&mut xfrm, &Message::new(Body::GetSa(id)), at(5));
    let Body::NewSa(info) = body(&replies.unicast[0]) else { panic!("no state") };
    assert_eq!((info.curlft.bytes, info.curlft.packets, info.curlft.add_time), (1000, 10, START_S));
    let key = seen.lock().unwrap().states[0].0;
    seen.lock().unwrap().events = vec![DeviceEvent::Soft(key)];
    let told = xfrm.device_events();
    assert!(matches!(body(&told[0].bytes), Body::Expire(e) if e.hard == 0 && e.state.curlft.bytes == 1000));
    seen.lock().unwrap().events = vec![DeviceEvent::Hard(key), DeviceEvent::Soft(key)];
    let told = xfrm.device_events();
    assert!(matches!(body(&told[0].bytes), Body::Expire(e) if e.hard == 1));
    assert_eq!((told.len(), held(&seen), count(&mut xfrm)), (1, (0, 1), 1));
    ok(&mut xfrm, &new_state(state(3)).with(offload(0)), at(0));
    xfrm.device_down(5);
    assert_eq!((count(&mut xfrm), held(&seen)), (1, (0, 0)));
    let replies = call(&mut xfrm, &new_state(state(4)).with(offload(XFRM_OFFLOAD_PACKET)), at(0));
    assert_eq!(answer(&replies).0, 22);
}
