//! The records of a real kernel, played to an [`Xfrm`]: the same acknowledgements, answers and events, byte for byte.

use super::*;
use sealane_abi::Caller;
use sealane_abi::netlink::answer::AckOptions;
use sealane_abi::netlink::{Attrs, Messages, NLM_F_REQUEST, NLMSG_HDRLEN};
use sealane_abi::xfrm::*;
use sealane_net_ipsec::event::Event;
use sealane_net_ipsec::progress::{Progress, Words};
use sealane_net_ipsec::sa::Proto;
use sealane_net_ipsec::selector::Flow;
use sealane_net_ipsec::spd::Dir;
use sealane_net_ipsec::spd::resolve::{OutboundQuery, resolve};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One exchange of a record.
struct Step {
    title: String,
    sent: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
    events: Vec<Vec<u8>>,
}

fn steps(record: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in record.lines() {
        let Some((kind, rest)) = line.split_once(' ') else { continue };
        if kind == "#" {
            let title = rest.to_owned();
            steps.push(Step { title, sent: Vec::new(), received: Vec::new(), events: Vec::new() });
            continue;
        }
        let Some(step) = steps.last_mut() else { continue };
        let hex = |h: &str| (0..h.len() / 2).map(|i| u8::from_str_radix(&h[2 * i..2 * i + 2], 16).unwrap()).collect();
        match kind {
            ">" => step.sent.push(hex(rest)),
            "<" => step.received.push(hex(rest)),
            "*" => step.events.push(hex(rest)),
            _ => {}
        }
    }
    steps
}

/// Takes the type of a policy out of a message about one: kernels with sub-policies tell it, others do not.
fn without_type(bytes: &mut Vec<u8>) {
    let message = Messages::new(bytes).next().unwrap();
    let header = message.header;
    if !matches!(header.nlmsg_type, XFRM_MSG_NEWPOLICY | XFRM_MSG_MIGRATE) {
        return;
    }
    let mut told = XfrmMessage::decode(&message).unwrap();
    told.attrs.retain(|attr| attr.type_() != XFRMA_POLICY_TYPE);
    *bytes = told.encode(header.nlmsg_flags, header.nlmsg_seq, header.nlmsg_pid).to_vec();
}

/// The messages of a datagram.
fn split(datagram: &[u8]) -> Vec<Vec<u8>> {
    Messages::new(datagram).map(|message| message.bytes.to_vec()).collect()
}

/// The messages of datagrams, with the times in them, where there are any, made equal.
fn messages(datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
    datagrams.iter().flat_map(|datagram| split(datagram)).map(masked).collect()
}

fn masked(mut message: Vec<u8>) -> Vec<u8> {
    without_type(&mut message);
    let type_ = u16::from_ne_bytes([message[4], message[5]]);
    // Offsets of structures with lifetimes.
    let times: &[usize] = match type_ {
        XFRM_MSG_NEWSA | XFRM_MSG_UPDSA | XFRM_MSG_EXPIRE => &[16 + 160],
        XFRM_MSG_DELSA => &[44 + 160],
        XFRM_MSG_NEWPOLICY | XFRM_MSG_UPDPOLICY | XFRM_MSG_POLEXPIRE => &[16 + 120],
        XFRM_MSG_DELPOLICY => &[84 + 120],
        XFRM_MSG_ACQUIRE => &[16 + 96 + 120],
        // Behind what names the state and the numbers.
        XFRM_MSG_NEWAE => {
            let body = NLMSG_HDRLEN + size_of::<AeventId>();
            let first = Attrs::new(&message[body..]).next().map_or(0, |a| a.payload.len());
            &[body + 4 + first + 4]
        }
        _ => &[],
    };
    for at in times {
        for at in [at + 16, at + 24] {
            if let Some(time) = message.get_mut(at..at + 8).filter(|t| t.iter().any(|b| *b != 0)) {
                time.copy_from_slice(&1u64.to_ne_bytes());
            }
        }
    }
    message
}

fn show(messages: &[Vec<u8>]) -> String {
    messages.iter().map(|m| m.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n").collect()
}

/// An [`Xfrm`] whose next SPI can be chosen.
fn with_next_spi() -> (Xfrm, Arc<Mutex<u64>>) {
    let next = Arc::new(Mutex::new(0u64));
    let source = next.clone();
    let random = move |bytes: &mut [u8]| {
        let chosen = source.lock().unwrap().to_ne_bytes();
        bytes.iter_mut().zip(chosen.iter().cycle()).for_each(|(b, c)| *b = *c);
    };
    let registry = Arc::new(sealane_crypto_portable::registry());
    (Xfrm::new(Setup { registry, random: Box::new(random), cpus: 2, numbers: None }), next)
}

/// The random number that makes the SPI of the answer.
fn chosen(step: &Step) -> u64 {
    let spi = |d: &Vec<u8>| u32::from_be_bytes(d[16 + 56 + 16..][..4].try_into().unwrap());
    let min = |d: &Vec<u8>| u32::from_ne_bytes(d[16 + 224..][..4].try_into().unwrap());
    match (step.sent.first(), step.received.first()) {
        (Some(sent), Some(received)) if sent[4] == XFRM_MSG_ALLOCSPI as u8 && received[4] == XFRM_MSG_NEWSA as u8 => {
            u64::from(spi(received).wrapping_sub(min(sent)))
        }
        _ => 0,
    }
}

/// Steps that a kernel with other options took otherwise, by a part of their title or of an answer, and why they are not
/// played.
const ELSEWHERE: &[(&str, &str)] = &[
    ("enc ecb(cipher_null)", "that kernel was built without null encryption"),
    ("raw ext: MIGRATE", "that kernel was built without migration: see the record of 6.18"),
];

/// The same of the record of 6.18.
const ELSEWHERE_6_18: &[(&str, &str)] = &[("raw ext: state to migrate", "that kernel was built without ESP")];

fn is_elsewhere(step: &Step, record: &str) -> bool {
    let elsewhere = if record.starts_with("; Linux 6.18") { ELSEWHERE_6_18 } else { ELSEWHERE };
    let answers: String = step.received.iter().map(|answer| String::from_utf8_lossy(answer)).collect();
    elsewhere.iter().any(|(part, _)| step.title.contains(part) || answers.contains(part))
}

/// Leaves states of IP-TFS out of the record of a kernel without it: that takes them in the mode of nothing, and loses their
/// packets. They are neither added nor removed, listed nor counted.
#[derive(Default)]
struct WithoutIptfs {
    /// The number of such states that the kernel has.
    there: u32,
}

impl WithoutIptfs {
    /// Whether a message is about such a state.
    fn concerns(message: &[u8]) -> bool {
        // Some of what the record's program sent is no message.
        let decoded = Messages::new(message).next().and_then(|message| XfrmMessage::decode(&message).ok());
        decoded.is_some_and(|told| match told.body {
            Body::NewSa(info) => info.mode == XFRM_MODE_IPTFS,
            _ => false,
        })
    }

    /// Takes such states out of a step; returns whether anything is left of it. What the kernel refuses stays: it has no
    /// event, and is refused here for the same reason.
    fn leave_out_of(&mut self, step: &mut Step) -> bool {
        let is_request = !step.sent.is_empty();
        let number = |message: &[u8]| message.get(8..12).map(<[u8]>::to_vec);
        let mut gone = Vec::new();
        for sent in step.sent.iter_mut().filter(|_| !step.events.is_empty()) {
            let (out, rest): (Vec<_>, Vec<_>) =
                split(sent).into_iter().partition(|message| WithoutIptfs::concerns(message));
            if !out.is_empty() {
                gone.extend(out.iter().map(|message| number(message)));
                *sent = rest.concat();
            }
        }
        step.sent.retain(|sent| !sent.is_empty());
        step.received.retain(|answer| !gone.contains(&number(answer)));
        let told =
            step.received.iter().flat_map(|answer| split(answer)).filter(|message| !WithoutIptfs::concerns(message));
        step.received = told.map(|message| self.not_counted(message)).collect();
        for event in &step.events {
            let decoded = Messages::new(event).next().and_then(|event| XfrmMessage::decode(&event).ok());
            match decoded.map(|told| told.body) {
                Some(Body::NewSa(_)) if WithoutIptfs::concerns(event) => self.there += 1,
                Some(Body::FlushSa(flush)) if flush.proto == 0 => self.there = 0,
                _ => {}
            }
        }
        step.events.retain(|event| !WithoutIptfs::concerns(event));
        !is_request || !step.sent.is_empty()
    }

    /// The same answer, without these states in the number of all.
    fn not_counted(&self, answer: Vec<u8>) -> Vec<u8> {
        let Some(message) = Messages::new(&answer).next() else { return answer };
        let header = message.header;
        let Ok(mut told) = XfrmMessage::decode(&message) else { return answer };
        if !matches!(told.body, Body::NewSadInfo(_)) {
            return answer;
        }
        for attribute in &mut told.attrs {
            if let Attribute::SadCnt(count) = attribute {
                *count -= self.there;
            }
        }
        told.encode(header.nlmsg_flags, header.nlmsg_seq, header.nlmsg_pid).to_vec()
    }
}

/// Repeats the effect of packets in a step without a request.
fn packets(xfrm: &mut Xfrm, step: &Step, now: Now) -> Vec<Notice> {
    let Some(told) = step.events.first().filter(|_| step.sent.is_empty()) else { return Vec::new() };
    let ip = |at: usize| core::net::IpAddr::from(<[u8; 4]>::try_from(&told[at..at + 4]).unwrap());
    let be16 = |at: usize| u16::from_be_bytes([told[at], told[at + 1]]);
    let mut events = Vec::new();
    if step.title.ends_with("ACQUIRE") {
        let sel = 16 + size_of::<Id>() + size_of::<Address>();
        let flow = Flow {
            destination: ip(sel),
            source: ip(sel + 16),
            dport: be16(sel + 32),
            sport: be16(sel + 36),
            proto: told[sel + 44],
            mark: 0,
            ifindex: i32::from_ne_bytes(told[sel + 48..sel + 52].try_into().unwrap()),
        };
        let leaving = OutboundQuery { flow: &flow, if_id: 0, cpu: 0, local: flow.source, now_s: now.wall_s };
        resolve(&xfrm.data.spd, &mut xfrm.data.sad, &leaving, &mut events).unwrap_err();
    } else {
        let spi = u32::from_be_bytes(told[32..36].try_into().unwrap());
        let state = xfrm.data.sad.find_in(spi, ip(16), Proto::Esp, 0).unwrap();
        let port = u16::from_be_bytes([told[told.len() - 2], told[told.len() - 1]]);
        events.push(Event::Mapping { state, address: ip(16 + 24 + 4 + 16), port });
    }
    let mut notices = Vec::new();
    xfrm.handle_events(events, now, &mut notices);
    notices
}

/// Records in memory.
#[derive(Default)]
struct Memory {
    states: BTreeMap<u64, (Vec<u8>, Option<u32>)>,
    policies: BTreeMap<u64, Vec<u8>>,
    words: Vec<Arc<MemoryWords>>,
    /// Whether there is no room for more words.
    full: bool,
}

struct MemoryWords(u32, [AtomicU64; 8]);

impl Words for MemoryWords {
    fn index(&self) -> u32 {
        self.0
    }

    fn words(&self) -> &[AtomicU64; 8] {
        &self.1
    }
}

impl Recorder for Memory {
    fn words(&mut self) -> Option<Arc<dyn Words>> {
        if self.full {
            return None;
        }
        let words = Arc::new(MemoryWords(self.words.len() as u32, Default::default()));
        self.words.push(words.clone());
        Some(words)
    }

    fn put_state(&mut self, key: u64, record: &Record<'_>) {
        self.states.insert(key, (record.request.to_vec(), record.progress));
    }

    fn remove_state(&mut self, key: u64) {
        self.states.remove(&key);
    }

    fn put_policy(&mut self, key: u64, record: &Record<'_>) {
        self.policies.insert(key, record.request.to_vec());
    }

    fn remove_policy(&mut self, key: u64) {
        self.policies.remove(&key);
    }
}

impl Memory {
    /// Another engine with what is recorded.
    fn restored(&self, now: Now) -> Xfrm {
        let (mut xfrm, _) = with_next_spi();
        for request in self.policies.values() {
            xfrm.restore_policy(request, None, now).unwrap();
        }
        for (request, progress) in self.states.values() {
            let words = progress.map(|index| &self.words[index as usize].1);
            let noted = words.map(|words| Progress::of(core::array::from_fn(|i| words[i].load(Ordering::Acquire))));
            xfrm.restore_state(request, None, noted, now).unwrap();
        }
        xfrm
    }
}

/// The policies of all directions in the order in which they apply.
fn in_force(xfrm: &Xfrm) -> Vec<(Dir, sealane_net_ipsec::selector::Selector, u32)> {
    let of = |dir| xfrm.data.spd.ordered(dir).into_iter().map(move |policy| (dir, policy.selector, policy.priority));
    [Dir::In, Dir::Out, Dir::Fwd].into_iter().flat_map(of).collect()
}

/// All states with an SPI, the oldest first, and all policies in the order of their places, as a key manager would be told of
/// them.
fn told(xfrm: &Xfrm) -> Vec<Vec<u8>> {
    let mut states: Vec<_> = xfrm.states.iter().filter(|(_, state)| state.info.id.spi.get() != 0).collect();
    let mut policies: Vec<_> = xfrm.policies.iter().collect();
    states.reverse();
    policies.sort_by_key(|(_, policy)| policy.place);
    let states = states.into_iter().map(|(_, state)| xfrm.new_sa_message(state));
    let policies = policies.into_iter().map(|(_, policy)| policy.new_message(&xfrm.data.spd));
    let defaults = XfrmMessage::new(Body::GetDefault(xfrm.settings.defaults));
    let all = states.chain(policies).chain([defaults]);
    all.map(|message| masked(message.encode(0, 0, 0).to_vec())).collect()
}

/// Plays a record; returns the titles of the steps that came out otherwise.
fn play(record: &str) -> (usize, Vec<String>) {
    let (mut xfrm, mut next) = with_next_spi();
    let mut now = Now { monotonic_ns: 0, wall_s: 1_800_000_000 };
    let (mut unlike, mut played) = (Vec::new(), 0);
    let (mut memory, mut without) = (Memory::default(), WithoutIptfs::default());
    let has_iptfs = record.contains("# raw ext: IP-TFS");
    for mut step in steps(record) {
        if is_elsewhere(&step, record) || !has_iptfs && !without.leave_out_of(&mut step) {
            continue;
        }
        if step.title.contains("state behind a NAT") {
            // This and what follows is from another network namespace.
            (xfrm, next) = with_next_spi();
        }
        played += 1;
        *next.lock().unwrap() = chosen(&step);
        let raw = step.title.strip_prefix("raw").map(|t| t.split(':').next().unwrap_or(""));
        let ack =
            AckOptions { ext: raw.is_none_or(|t| t.contains("ext")), cap: raw.is_some_and(|t| t.contains("cap")) };
        let (mut got, mut events) = (Vec::new(), Vec::new());
        // Some answers carry another port; acknowledgements and the ends of dumps do not.
        let port = step.received.last().map_or(0, |d| u32::from_ne_bytes(d[12..16].try_into().unwrap()));
        for datagram in &step.sent {
            let from = Sender { port, caller: Caller { privileged: true }, ack };
            let replies = xfrm.call(datagram, from, now);
            got.extend(replies.unicast.iter().map(|d| d.to_vec()));
            events.extend(replies.events.iter().map(|n| n.bytes.to_vec()));
        }
        if let Some(seconds) = step.title.strip_prefix("wait ") {
            // The kernel's events come second by second.
            for _ in 0..seconds.parse().unwrap() {
                now.wall_s += 1;
                events.extend(xfrm.handle_timeout(now).iter().map(|n| n.bytes.to_vec()));
            }
        } else {
            events.extend(packets(&mut xfrm, &step, now).iter().map(|n| n.bytes.to_vec()));
        }
        // After each step another engine could go on.
        if !xfrm.states.changes.are_noted() {
            xfrm.start_recording();
            memory = Memory::default();
        }
        xfrm.record(&mut memory);
        let restored = memory.restored(now);
        assert_eq!(show(&told(&restored)), show(&told(&xfrm)), "{}", step.title);
        assert_eq!(in_force(&restored), in_force(&xfrm), "{}", step.title);
        let (got, events) = (messages(&got), messages(&events));
        let (want, told) = (messages(&step.received), messages(&step.events));
        let mut got = got;
        if step.title.contains("Failed to send") {
            // The program stops reading at an error.
            got.truncate(want.len());
        }
        if got != want || events != told {
            let [want, got, told, events] = [&want, &got, &told, &events].map(|m| show(m));
            println!("# {}\nwant\n{want}got\n{got}told\n{told}events\n{events}", step.title);
            unlike.push(step.title);
        }
    }
    (played, unlike)
}

#[test]
fn a_kernels_record() {
    let (played, unlike) = play(include_str!("../../../../conformance/vectors/xfrm-linux-7.3.txt"));
    assert_eq!((played > 300, unlike), (true, Vec::new()));
}

#[test]
fn a_record_of_commands() {
    let (played, unlike) = play(include_str!("../../../../conformance/vectors/xfrm-commands-linux-7.3.txt"));
    assert_eq!((played > 240, unlike), (true, Vec::new()));
}

#[test]
fn a_record_of_iptfs() {
    let (played, unlike) = play(include_str!("../../../../conformance/vectors/xfrm-iptfs-linux-7.3.txt"));
    assert_eq!((played > 45, unlike), (true, Vec::new()));
}

#[test]
fn a_record_of_migrations() {
    let (played, unlike) = play(include_str!("../../../../conformance/vectors/xfrm-linux-6.18-migrate.txt"));
    assert_eq!((played, unlike), (4, Vec::new()));
}

/// The record has each kind of request once: SPIs that a change is for are reserved first, and requests about states
/// that packets went through, or about policies that were not made, are left out.
#[test]
fn a_key_managers_record() {
    let (mut xfrm, next) = with_next_spi();
    xfrm.set_acquire_s(165);
    let (mut unlike, mut played) = (Vec::new(), 0);
    for step in steps(include_str!("../../../../conformance/vectors/xfrm-strongswan-linux-7.3.txt")) {
        *next.lock().unwrap() = chosen(&step);
        let Some(sent) = step.sent.first() else { continue };
        let port = step.received.last().map_or(0, |d| u32::from_ne_bytes(d[12..16].try_into().unwrap()));
        let from = Sender { port, caller: Caller { privileged: true }, ack: AckOptions::default() };
        let now = Now { monotonic_ns: 0, wall_s: 1_800_000_000 };
        let request = Messages::new(sent).next().unwrap();
        match Request::decode(&request).unwrap().body {
            Body::GetSa(_) | Body::DelPolicy(_) => continue,
            Body::UpdSa(info) => {
                let spi = info.id.spi.get();
                if !xfrm.states.is_spi_used(spi, info.id.proto) {
                    let order = XfrmMessage::new(Body::AllocSpi(UserspiInfo { info, min: spi, max: spi }));
                    assert_eq!(xfrm.call(&order.encode(NLM_F_REQUEST, 1, port), from, now).unicast.len(), 1);
                }
            }
            _ => {}
        }
        played += 1;
        let replies = xfrm.call(sent, from, now);
        let got: Vec<Vec<u8>> = replies.unicast.iter().map(|d| d.to_vec()).collect();
        let (got, want) = (messages(&got), messages(&step.received));
        if got != want {
            println!("# {}\nwant\n{}got\n{}", step.title, show(&want), show(&got));
            unlike.push(step.title);
        }
    }
    assert_eq!((played > 10, unlike), (true, Vec::new()));
}

/// Of policies with the same priority the first one counts. One that is updated stays where it was, here and with the next
/// daemon.
#[test]
fn policies_keep_their_order() {
    let (mut xfrm, _) = with_next_spi();
    let now = Now { monotonic_ns: 0, wall_s: 1_800_000_000 };
    let from = Sender { port: 7, caller: Caller { privileged: true }, ack: AckOptions::default() };
    let mut memory = Memory::default();
    xfrm.start_recording();
    let mut add = |xfrm: &mut Xfrm, update: bool, len: u8, priority: u32| {
        let mut info = UserpolicyInfo { dir: XFRM_POLICY_OUT, priority, ..UserpolicyInfo::default() };
        info.lft = LifetimeCfg::NONE;
        (info.sel.family, info.sel.prefixlen_d) = (2, len);
        let body = if update { Body::UpdPolicy(info) } else { Body::NewPolicy(info) };
        xfrm.call(&XfrmMessage::new(body).encode(NLM_F_REQUEST, 1, 7), from, now);
        xfrm.record(&mut memory);
        let order: Vec<u8> = in_force(xfrm).iter().map(|(_, selector, _)| selector.destination_len).collect();
        let restored: Vec<u8> =
            in_force(&memory.restored(now)).iter().map(|(_, selector, _)| selector.destination_len).collect();
        assert_eq!(order, restored);
        order
    };
    add(&mut xfrm, false, 8, 0);
    add(&mut xfrm, false, 16, 0);
    assert_eq!(add(&mut xfrm, false, 24, 0), [8, 16, 24]);
    assert_eq!(add(&mut xfrm, true, 8, 0), [8, 16, 24], "its place");
    assert_eq!(add(&mut xfrm, true, 16, 1), [8, 24, 16], "another priority");
    assert_eq!(add(&mut xfrm, true, 16, 0), [8, 24, 16], "behind those of its priority");
    assert_eq!(add(&mut xfrm, true, 8, 0), [8, 24, 16]);
}

/// Policies whose selectors differ by the user alone, which packets do not have, are for the same packets. Each stays
/// until it is removed itself.
#[test]
fn policies_of_users_do_not_replace_each_other() {
    let (mut xfrm, _) = with_next_spi();
    let now = Now { monotonic_ns: 0, wall_s: 1_800_000_000 };
    let from = Sender { port: 7, caller: Caller { privileged: true }, ack: AckOptions::default() };
    let selector = |user| Selector { family: AF_INET, user, ..Selector::default() };
    let of = |user, priority| {
        let lft = LifetimeCfg::NONE;
        UserpolicyInfo { sel: selector(user), dir: XFRM_POLICY_OUT, priority, lft, ..UserpolicyInfo::default() }
    };
    let gone = |user| UserpolicyId { sel: selector(user), dir: XFRM_POLICY_OUT, ..UserpolicyId::default() };
    let mut memory = Memory::default();
    xfrm.start_recording();
    for (body, priorities) in [
        (Body::NewPolicy(of(1000, 3)), &[3][..]),
        (Body::UpdPolicy(of(1001, 2)), &[2, 3]),
        (Body::NewPolicy(of(1002, 5)), &[2, 3, 5]),
        (Body::UpdPolicy(of(1000, 4)), &[2, 4, 5]),
        (Body::DelPolicy(gone(1001)), &[4, 5]),
        (Body::DelPolicy(gone(1002)), &[4]),
    ] {
        let replies = xfrm.call(&XfrmMessage::new(body).encode(NLM_F_REQUEST, 1, 7), from, now);
        assert!(replies.unicast.is_empty(), "{body:?} is refused");
        xfrm.record(&mut memory);
        for xfrm in [&xfrm, &memory.restored(now)] {
            let in_force: Vec<u32> = in_force(xfrm).iter().map(|(_, _, priority)| *priority).collect();
            assert_eq!(in_force, priorities, "after {body:?}");
        }
    }
}

/// A state whose window nobody could follow is not there for the next daemon.
#[test]
fn a_state_without_words_is_not_recorded() {
    let (mut xfrm, _) = with_next_spi();
    let now = Now { monotonic_ns: 0, wall_s: 1_800_000_000 };
    let from = Sender { port: 7, caller: Caller { privileged: true }, ack: AckOptions::default() };
    let mut memory = Memory { full: true, ..Memory::default() };
    xfrm.start_recording();
    for step in steps(include_str!("../../../../conformance/vectors/xfrm-strongswan-linux-7.3.txt")) {
        let Some(sent) = step.sent.first() else { continue };
        if let Body::NewSa(_) = Request::decode(&Messages::new(sent).next().unwrap()).unwrap().body {
            xfrm.call(sent, from, now);
        }
    }
    let states = xfrm.states.iter().count();
    xfrm.record(&mut memory);
    assert!(states > 0 && memory.states.is_empty(), "{} of {states}", memory.states.len());
    memory.full = false;
    xfrm.record(&mut memory);
    assert_eq!(memory.states.len(), states, "once there is room");
    assert!(memory.states.values().all(|(_, progress)| progress.is_some()));
}

/// The records of states and policies are read by daemons of other versions. If this test fails, their layout or meaning has
/// changed: the versions in `ipsec::control::kept` have to be raised, and `tests/records.txt` follows.
#[test]
fn records_are_as_other_versions_read_them() {
    let (mut xfrm, _) = with_next_spi();
    let now = Now { monotonic_ns: 0, wall_s: 1_800_000_000 };
    let from = Sender { port: 7, caller: Caller { privileged: true }, ack: AckOptions::default() };
    // The requests of charon without its deletions, so that there is something to record.
    for step in steps(include_str!("../../../../conformance/vectors/xfrm-strongswan-linux-7.3.txt")) {
        let Some(sent) = step.sent.first() else { continue };
        let request = Messages::new(sent).next().unwrap();
        match Request::decode(&request).unwrap().body {
            Body::NewSa(_) | Body::NewPolicy(_) | Body::UpdPolicy(_) | Body::SetDefault(_) => {}
            _ => continue,
        }
        xfrm.call(sent, from, now);
    }
    let mut memory = Memory::default();
    xfrm.start_recording();
    xfrm.record(&mut memory);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut text = String::new();
    for (request, progress) in memory.states.values() {
        text += &format!("state, progress {progress:?}: {}\n", hex(request));
    }
    for request in memory.policies.values() {
        text += &format!("policy: {}\n", hex(request));
    }
    assert!(text.contains("state, progress Some(") && text.contains("policy"));
    assert_eq!(text, include_str!("tests/records.txt"));
}
