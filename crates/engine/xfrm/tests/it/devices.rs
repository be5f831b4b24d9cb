//! Devices take states and policies by the kernel's rules, count and tell.

use super::*;
use sealane_engine_xfrm::device::{Caps, Device, DeviceEvent, Mode, OffloadRequest, PolicyKey, Refusal, StateKey};
use sealane_net_ipsec::lifetime::Usage;
use sealane_net_ipsec::sa::SaStat;
use sealane_net_ipsec::spd::Policy;
use std::sync::Mutex;

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

    fn state_add(&mut self, state: OffloadRequest<'_>) -> Result<(), Refusal> {
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

    fn policy_add(&mut self, key: PolicyKey, policy: &Policy, _: &XfrmMessage) -> Result<(), Refusal> {
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
type Case = (Caps, Option<Errno>, XfrmMessage, i32, Option<Reason>, bool);

/// The numbers of states and policies in a device.
fn held(seen: &Mutex<Seen>) -> (usize, usize) {
    let seen = seen.lock().unwrap();
    (seen.states.len(), seen.policies.len())
}

fn told_offload(bytes: &[u8]) -> Option<u8> {
    let message = XfrmMessage::decode(&Messages::new(bytes).next().unwrap()).unwrap();
    message.attrs.iter().find_map(|a| if let Attribute::OffloadDev(o) = a { Some(o.flags) } else { None })
}

#[test]
fn states_go_to_devices_by_the_kernels_rules() {
    let with_esn =
        XfrmMessage::new(Body::NewSa(UsersaInfo { flags: XFRM_STATE_ESN, ..state(1) })).with(aead()).with(esn());
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
            ok(&mut xfrm, &XfrmMessage::new(Body::DelSa(id)), at(0));
            assert!(seen.lock().unwrap().states.is_empty());
        }
    }
}

#[test]
fn a_device_counts_tells_and_goes_down() {
    let (mut xfrm, seen) = with_card(ALL, None);
    ok(&mut xfrm, &new_state(state(1)).with(offload(XFRM_OFFLOAD_PACKET)), at(0));
    ok(&mut xfrm, &new_state(state(2)), at(0));
    let out = XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl());
    let refused = answer(&call(&mut xfrm, &out.clone().with(offload(0)), at(0)));
    assert_eq!(refused, (22, Reason::OffloadFlags.text().to_owned()));
    ok(&mut xfrm, &out.clone().with(offload(XFRM_OFFLOAD_PACKET)), at(0));
    let fwd = XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_FWD))).with(tmpl());
    ok(&mut xfrm, &fwd, at(0));
    seen.lock().unwrap().used = Usage { bytes: 1000, packets: 10, use_time_s: START_S + 3, ..Usage::default() };
    let id = UsersaId { daddr: state(1).id.daddr, spi: 1.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    let replies = ok(&mut xfrm, &XfrmMessage::new(Body::GetSa(id)), at(5));
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
