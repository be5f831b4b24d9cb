//! Requests of NETLINK_XFRM, served one after another while time passes: no panic; a requested acknowledgement is sent;
//! answers and events parse; no more states and policies are kept than were requested; a flush leaves nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_abi::Caller;
use sealane_abi::netlink::answer::AckOptions;
use sealane_abi::netlink::{Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use sealane_abi::xfrm::{
    Attribute, Body, XfrmMessage, UsersaFlush, XFRM_MSG_GETPOLICY, XFRM_MSG_GETSA, XFRMNLGRP_ACQUIRE, XFRMNLGRP_MAPPING,
};
use sealane_crypto::Registry;
use sealane_engine_xfrm::packet::PacketDevice;
use sealane_engine_xfrm::{Notice, Now, Sender, Setup, Xfrm};
use std::sync::{Arc, LazyLock};

static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| Arc::new(sealane_fuzz::registry()));

/// Limit of requests in an input.
const CALLS: usize = 64;
/// The interfaces of the offload devices.
const DEVICES: core::ops::RangeInclusive<i32> = 1..=2;
/// The number of seconds after a request that stands for the first device going down and coming up again.
const DOWN: u8 = 0xfe;

fn xfrm() -> Xfrm {
    let mut state = 1u8;
    let random = move |bytes: &mut [u8]| {
        for byte in bytes {
            state = state.wrapping_mul(141).wrapping_add(3);
            *byte = state;
        }
    };
    let mut xfrm = Xfrm::new(Setup { registry: REGISTRY.clone(), random: Box::new(random), cpus: 2, numbers: None });
    DEVICES.for_each(|index| add_device(&mut xfrm, index));
    xfrm
}

/// A device with packet offload, which takes states in crypto offload, too.
fn add_device(xfrm: &mut Xfrm, index: i32) {
    xfrm.add_device(index, Box::new(PacketDevice::new(|| 7)));
}

fn told(notices: &[Notice]) {
    for notice in notices {
        assert!((XFRMNLGRP_ACQUIRE..=XFRMNLGRP_MAPPING).contains(&notice.group));
        let message = Messages::new(&notice.bytes).next().expect("an event is a message");
        assert_eq!(message.bytes.len(), notice.bytes.len());
        assert!(XfrmMessage::decode(&message).is_ok());
    }
}

/// Returns the number of messages in a dump or a count.
fn counted(xfrm: &mut Xfrm, message: &XfrmMessage, flags: u16, now: Now) -> (usize, Option<u32>) {
    let from = Sender { port: 1, caller: Caller { privileged: true }, ack: AckOptions::default() };
    let replies = xfrm.call(&message.encode(NLM_F_REQUEST | flags, 1, 0), from, now);
    let mut count = None;
    let messages = replies.unicast.iter().flat_map(|d| Messages::new(d)).filter(|m| m.header.nlmsg_type >= 16);
    let messages = messages.inspect(|m| {
        let message = XfrmMessage::decode(m).expect("what is dumped reads");
        if let Some(Attribute::SadCnt(n)) = message.attrs.first() {
            count = Some(*n);
        }
    });
    (messages.count(), count)
}

fuzz_target!(|data: &[u8]| {
    let (mut xfrm, mut rest, mut now) = (xfrm(), data, Now { monotonic_ns: 0, wall_s: 1_800_000_000 });
    // Whether there are listeners to replay events.
    xfrm.set_aevent_listeners(data.len() % 2 == 1, now);
    let mut asked = 0;
    for _ in 0..CALLS {
        let Some((&[low, high, seconds], behind)) = rest.split_first_chunk() else { break };
        let len = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (datagram, behind) = behind.split_at(len);
        rest = behind;
        let ack = AckOptions { cap: seconds & 1 != 0, ext: seconds & 2 != 0 };
        let from = Sender { port: 7, caller: Caller { privileged: seconds != 0xff }, ack };
        let replies = xfrm.call(datagram, from, now);
        told(&replies.events);
        told(&xfrm.device_events());
        if seconds == DOWN {
            xfrm.device_down(*DEVICES.start());
            add_device(&mut xfrm, *DEVICES.start());
        }
        let answers: Vec<(u16, u32)> = replies
            .unicast
            .iter()
            .flat_map(|d| Messages::new(d).map(|m| (m.header.nlmsg_type, m.header.nlmsg_seq)))
            .collect();
        let mut ends = answers.iter().filter(|(t, _)| matches!(*t, NLMSG_ERROR | NLMSG_DONE));
        for message in Messages::new(datagram) {
            asked += 1;
            let header = message.header;
            let dump = matches!(header.nlmsg_type, XFRM_MSG_GETSA | XFRM_MSG_GETPOLICY)
                && header.nlmsg_flags & NLM_F_DUMP != 0
                && header.nlmsg_flags & NLM_F_REQUEST != 0;
            if header.nlmsg_flags & NLM_F_ACK != 0 || dump {
                assert!(ends.any(|(_, seq)| *seq == header.nlmsg_seq), "an acknowledgement is missing");
            }
        }
        now.wall_s += u64::from(seconds);
        now.monotonic_ns += u64::from(seconds) * 1_000_000_000;
        told(&xfrm.handle_timeout(now));
        xfrm.keepalives(now);
        if let Some(next) = xfrm.poll_timeout(now) {
            assert!(!next.is_zero(), "what is due has been dealt with");
        }
    }
    let (states, _) = counted(&mut xfrm, &XfrmMessage::new(Body::DumpSa), NLM_F_DUMP, now);
    let (policies, _) = counted(&mut xfrm, &XfrmMessage::new(Body::DumpPolicy), NLM_F_DUMP, now);
    assert!(states + policies <= asked, "more is kept than was asked for");
    assert_eq!(counted(&mut xfrm, &XfrmMessage::new(Body::GetSadInfo(0)), 0, now), (1, Some(states as u32)));
    counted(&mut xfrm, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: 0 })), 0, now);
    counted(&mut xfrm, &XfrmMessage::new(Body::FlushPolicy), 0, now);
    assert_eq!(counted(&mut xfrm, &XfrmMessage::new(Body::GetSadInfo(0)), 0, now), (1, Some(0)));
    assert_eq!(counted(&mut xfrm, &XfrmMessage::new(Body::DumpPolicy), NLM_F_DUMP, now).0, 0);
    assert!(xfrm.handle_timeout(Now { wall_s: u64::MAX, ..now }).is_empty(), "nothing expires when nothing is there");
});
