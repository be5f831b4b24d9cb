//! The policy database compared with a plain list in the kernel's order, at random; the decisions of
//! `__xfrm_policy_check` and `xfrm_lookup`; and the flow cache.

use crate::random::Random;
use arrayvec::ArrayVec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::event::Event;
use sealane_net_ipsec::lifetime::{Age, Limits};
use sealane_net_ipsec::sa::{Mode, Proto, SaDir, SaFlags, SaId, SaSpec, SaState};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::selector::{Flow, Mark, Selector};
use sealane_net_ipsec::spd::cache::FlowCache;
use sealane_net_ipsec::spd::check::{InboundQuery, check, judge};
use sealane_net_ipsec::spd::resolve::{Decision, OutboundQuery, resolve, resolve_error};
use sealane_net_ipsec::spd::{Action, Dir, Policy, PolicyError, PolicyId, Spd, Template};
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use std::sync::{Arc, LazyLock};

fn v4(a: usize, b: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, a as u8, b as u8).into()
}

fn v6(a: usize, b: usize) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0, 0, a as u16, 0, 0, 0, b as u16).into()
}

/// The kernel's chains as one list.
struct Plain(Vec<(PolicyId, Policy)>);

impl Plain {
    /// Policies of devices come first; others follow the last one whose priority is not greater.
    fn insert(&mut self, id: PolicyId, policy: Policy) {
        let at = match policy.device {
            Some(_) => 0,
            None => self
                .0
                .iter()
                .rposition(|(_, p)| p.device.is_some() || p.priority <= policy.priority)
                .map_or(0, |at| at + 1),
        };
        self.0.insert(at, (id, policy));
    }

    fn lookup(&self, dir: Dir, flow: &Flow, if_id: u32) -> Option<PolicyId> {
        self.0.iter().find(|(_, p)| p.dir == dir && p.matches(flow, if_id)).map(|(id, _)| *id)
    }
}

fn flow(random: &mut Random) -> Flow {
    let addr = if random.one_in(3) { v6 } else { v4 };
    Flow {
        source: addr(random.below(3), random.below(4)),
        destination: addr(random.below(3), random.below(4)),
        proto: random.of(&[6, 17, 50]),
        sport: random.of(&[80, 443, 1000]),
        dport: random.of(&[80, 443, 1000]),
        mark: random.below(4) as u32,
        ifindex: random.below(3) as i32,
    }
}

fn selector(random: &mut Random) -> Selector {
    let f = flow(random);
    let (some, host) = if f.source.is_ipv4() { ([0, 8, 24, 30, 32], 32) } else { ([0, 48, 64, 126, 128], 128) };
    let mut selector = Selector::between((f.source, random.of(&some)), (f.destination, random.of(&some)));
    if random.one_in(3) {
        (selector.source_len, selector.destination_len) = (host, host);
    }
    if random.one_in(3) {
        (selector.dport, selector.dport_mask) = (f.dport, random.of(&[0xffff, 0xfff0]));
    }
    if random.one_in(5) {
        (selector.sport, selector.sport_mask) = (f.sport, 0xffff);
    }
    selector.proto = random.of(&[0, 0, f.proto]);
    selector.ifindex = random.of(&[0, 0, f.ifindex]);
    selector
}

#[test]
fn like_a_list() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    let mut spd = Spd::new(11);
    let mut plain = Plain(Vec::new());
    let (mut found, mut missed, mut refused, mut replaced, mut most) = (0, 0, 0, 0, 0);
    for step in 0..40_000 {
        match random.below(12) {
            0..3 => {
                let mut policy = Policy {
                    priority: random.of(&[0, 1, 1, 5, 7, u32::MAX]),
                    mark: random.of(&[Mark::default(), Mark { value: 1, mask: 1 }]),
                    if_id: random.of(&[0, 0, 0, 9]),
                    device: random.of(&[None, None, None, None, None, Some(3)]),
                    ..Policy::allow(random.of(&[Dir::In, Dir::Out, Dir::Fwd]), selector(&mut random))
                };
                // Sometimes with the selector of an existing policy.
                if random.one_in(3) && !plain.0.is_empty() {
                    let like = &plain.0[random.below(plain.0.len())].1;
                    (policy.dir, policy.selector) = (like.dir, like.selector);
                }
                let same = |p: &Policy| {
                    (p.dir, p.selector, p.mark, p.if_id) == (policy.dir, policy.selector, policy.mark, policy.if_id)
                };
                let old = plain.0.iter().position(|(_, p)| same(p));
                assert_eq!(
                    spd.find(policy.dir, &policy.selector, policy.mark, policy.if_id),
                    old.map(|at| plain.0[at].0)
                );
                let replace = random.one_in(2);
                match spd.add(policy.clone(), replace) {
                    Ok(id) => {
                        let stays = old.map(|at| (at, plain.0.remove(at).1));
                        match stays {
                            Some((at, old)) if (old.priority, old.device) == (policy.priority, policy.device) => {
                                replaced += 1;
                                assert_eq!(spd.get(id).unwrap().index, old.index);
                                plain.0.insert(at, (id, spd.get(id).unwrap().clone()));
                            }
                            _ => plain.insert(id, spd.get(id).unwrap().clone()),
                        }
                    }
                    Err(e) => {
                        refused += 1;
                        assert_eq!((e, old.is_some(), replace), (PolicyError::Exists, true, false));
                    }
                }
            }
            3 if plain.0.len() > if step % 10_000 < 5_000 { 60 } else { 400 } => {
                for _ in 0..random.below(50) {
                    let (id, policy) = plain.0.remove(random.below(plain.0.len()));
                    assert_eq!(spd.remove(id).unwrap().selector, policy.selector);
                    assert!(spd.get(id).is_none() && spd.remove(id).is_none());
                }
            }
            _ => {
                let (dir, if_id) = (random.of(&[Dir::In, Dir::Out, Dir::Fwd]), random.of(&[0, 0, 9]));
                let flows: Vec<Flow> = (0..20).map(|_| flow(&mut random)).collect();
                let mut burst = vec![None; flows.len()];
                spd.lookup_burst(dir, &flows, if_id, &mut burst);
                for (flow, found_with_others) in flows.iter().zip(burst) {
                    let want = plain.lookup(dir, flow, if_id);
                    assert_eq!(spd.lookup(dir, flow, if_id), want, "step {step}, {flow:?}");
                    assert_eq!(found_with_others, want, "step {step}, {flow:?}");
                    *if want.is_some() { &mut found } else { &mut missed } += 1;
                    most = most.max(spd.len());
                }
            }
        }
        assert_eq!(spd.len(), plain.0.len());
    }
    assert!(
        found > 10_000 && missed > 10_000 && refused > 100 && replaced > 20 && most > 256,
        "{found} {missed} {refused} {replaced} {most}"
    );
    let indices: std::collections::BTreeSet<u32> = spd.iter().map(|(_, p)| p.index).collect();
    assert_eq!(indices.len(), spd.len());
    assert!(spd.iter().all(|(_, p)| p.index & 7 == p.dir as u32));
    let ids: Vec<PolicyId> = spd.iter().map(|(id, _)| id).collect();
    ids.into_iter().for_each(|id| drop(spd.remove(id).unwrap()));
    assert!(spd.is_empty());
}

#[test]
fn bursts_of_many_hosts() {
    let mut random = Random(77);
    let mut spd = Spd::new(12);
    let host = |n: usize| v4(n / 250, n % 250);
    let mut ids = Vec::new();
    for n in 0..2000 {
        let selector = Selector::between((host(n), 32), (host(n + 1), if n % 3 == 0 { 31 } else { 32 }));
        let policy = Policy { priority: (n % 5) as u32, ..Policy::allow(Dir::Out, selector) };
        ids.push(spd.add(policy, false).unwrap());
    }
    for len in [0, 1, 15, 16, 17, 64, 100] {
        let flows: Vec<Flow> = (0..len)
            .map(|_| {
                let n = random.below(2500);
                let other = Flow { source: v6(1, n), destination: v6(2, n), ..packet() };
                if random.one_in(9) { other } else { Flow { source: host(n), destination: host(n + 1), ..packet() } }
            })
            .collect();
        let mut burst = vec![None; len];
        spd.lookup_burst(Dir::Out, &flows, 0, &mut burst);
        let single: Vec<Option<PolicyId>> = flows.iter().map(|flow| spd.lookup(Dir::Out, flow, 0)).collect();
        assert_eq!(burst, single);
        for (flow, found) in flows.iter().zip(burst) {
            let n = (0..2000).find(|n| (flow.source, flow.destination) == (host(*n), host(*n + 1)));
            assert_eq!(found, n.map(|n| ids[n]));
        }
    }
}

static TRANSFORM: LazyLock<Transform> = LazyLock::new(|| {
    let spec = TransformSpec::Auth { auth: Keyed { name: "hmac(sha1)", key: &[1; 20] }, icv_bits: 96 };
    Transforms::new(Arc::new(sealane_crypto_portable::registry())).prepare(&spec, false).unwrap()
});

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const ANY4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

fn template(mode: Mode, proto: Proto) -> Template {
    Template { src: A, dst: B, proto, mode, reqid: 7, spi: 0, optional: false }
}

fn state(mode: Mode, proto: Proto, spi: u32) -> SaSpec {
    SaSpec { mode, proto, reqid: 7, ..SaSpec::tunnel(spi, A, B, TRANSFORM.clone()) }
}

fn packet() -> Flow {
    Flow { source: v4(1, 1), destination: v4(2, 2), proto: 17, sport: 1, dport: 2, mark: 0, ifindex: 0 }
}

fn all_v4() -> Selector {
    Selector::between((ANY4, 0), (ANY4, 0))
}

#[test]
fn inbound() {
    let mut sad = Sad::new(1);
    let tunnel = sad.add(state(Mode::Tunnel, Proto::Esp, 1)).unwrap();
    let ah = sad.add(SaSpec { reqid: 8, ..state(Mode::Transport, Proto::Ah, 2) }).unwrap();
    let other = sad.add(SaSpec { reqid: 9, src: B, dst: A, ..state(Mode::Tunnel, Proto::Esp, 3) }).unwrap();
    let narrow = sad
        .add(SaSpec {
            selector: Selector::between((v4(1, 1), 32), (v4(9, 9), 32)),
            ..state(Mode::Tunnel, Proto::Esp, 4)
        })
        .unwrap();
    let judge = |templates: &[Template], action, default, path: &[SaId], verified| {
        let mut spd = Spd::new(1);
        spd.set_default(Dir::In, default);
        let mut policy = Policy { action, ..Policy::allow(Dir::In, all_v4()) };
        policy.templates = templates.iter().copied().collect();
        let id = spd.add(policy, false).unwrap();
        let found = check(&spd, &sad, &InboundQuery { dir: Dir::In, flow: &packet(), if_id: 0, path, verified });
        found.inspect(|(by, _)| assert_eq!(*by, Some(id))).map(|(_, at)| at)
    };
    let esp = template(Mode::Tunnel, Proto::Esp);
    let auth = Template { reqid: 8, ..template(Mode::Transport, Proto::Ah) };
    let optional = Template { optional: true, ..esp };
    let allow = |templates: &[Template], path: &[SaId]| judge(templates, Action::Allow, Action::Allow, path, 0);
    use DropReason::{Depth, InBlock, Selector as Unselected, Template as Mismatch};
    assert_eq!(allow(&[], &[]), Ok(0));
    assert_eq!(allow(&[], &[tunnel]), Err(Mismatch), "an unexpected tunnel");
    assert_eq!(allow(&[], &[ah]), Ok(0), "transport mode may always be there");
    assert_eq!(allow(&[esp], &[tunnel]), Ok(1));
    assert_eq!(allow(&[esp], &[]), Err(Mismatch), "unprotected");
    assert_eq!(allow(&[esp], &[ah]), Err(Mismatch));
    assert_eq!(allow(&[esp], &[other]), Err(Mismatch));
    assert_eq!(allow(&[Template { reqid: 0, src: ANY4, ..esp }], &[other]), Ok(1), "a template without constraints");
    assert_eq!(allow(&[Template { reqid: 0, ..esp }], &[other]), Err(Mismatch), "from another gateway");
    assert_eq!(allow(&[Template { spi: 1, ..esp }], &[tunnel]), Ok(1));
    assert_eq!(allow(&[Template { spi: 2, ..esp }], &[tunnel]), Err(Mismatch));
    // ESP is innermost and AH around it, so inbound AH comes first.
    assert_eq!(allow(&[esp, auth], &[ah, tunnel]), Ok(2));
    assert_eq!(allow(&[auth, esp], &[ah, tunnel]), Err(Mismatch));
    assert_eq!(allow(&[esp], &[ah, tunnel]), Ok(2), "transport mode in between does no harm");
    assert_eq!(allow(&[optional], &[]), Ok(0));
    assert_eq!(allow(&[optional], &[tunnel]), Ok(1));
    assert_eq!(allow(&[optional], &[other]), Err(Mismatch), "optional, but not this one");
    assert_eq!(allow(&[esp], &[other, tunnel]), Err(Mismatch));
    assert_eq!(
        judge(&[esp], Action::Allow, Action::Allow, &[other, tunnel], 1),
        Ok(2),
        "the outer tunnel was accepted before"
    );
    assert_eq!(judge(&[], Action::Block, Action::Allow, &[], 0), Err(InBlock));
    assert_eq!(allow(&[esp], &[narrow]), Err(Unselected));
    assert_eq!(allow(&[esp; 6], &[tunnel]), Err(Depth));
    // Without a policy.
    let mut spd = Spd::new(1);
    let flow = packet();
    let (by_ah, by_tunnel) = ([ah], [tunnel]);
    let arrived = |path| InboundQuery { dir: Dir::Fwd, flow: &flow, if_id: 0, path, verified: 0 };
    assert_eq!(check(&spd, &sad, &arrived(&[])), Ok((None, 0)));
    assert_eq!(check(&spd, &sad, &arrived(&by_ah)), Ok((None, 0)));
    assert_eq!(check(&spd, &sad, &arrived(&by_tunnel)), Err(DropReason::InNoPolicy));
    spd.set_default(Dir::Fwd, Action::Block);
    assert_eq!(check(&spd, &sad, &arrived(&[])), Err(DropReason::InNoPolicy));
    sad.remove(tunnel);
    assert_eq!(check(&spd, &sad, &arrived(&by_tunnel)), Err(DropReason::InInvalid));
}

#[test]
fn errors_about_inner_packets() {
    let mut sad = Sad::new(1);
    // A state and policies for one flow, and a router's error about that flow's packets.
    let narrow = Selector { proto: 17, ..Selector::between((v4(1, 1), 32), (v4(2, 2), 32)) };
    let about = packet();
    let error = Flow { source: v4(3, 3), destination: v4(2, 2), proto: 1, sport: 3, dport: 1, ..about };
    let state = |icmp, spi| SaSpec {
        selector: narrow,
        flags: SaFlags { icmp, ..SaFlags::default() },
        ..state(Mode::Tunnel, Proto::Esp, spi)
    };
    let (with, without) = (sad.add(state(true, 1)).unwrap(), sad.add(state(false, 2)).unwrap());
    let mut spd = Spd::new(1);
    for (dir, icmp) in [(Dir::Fwd, false), (Dir::In, false)] {
        let mut policy = Policy { icmp, ..Policy::allow(dir, narrow) };
        policy.templates.push(template(Mode::Tunnel, Proto::Esp));
        spd.add(policy, false).unwrap();
    }
    let judged = |dir, path: &[SaId], quoted: Option<&Flow>| {
        let arrived = InboundQuery { dir, flow: &error, if_id: 0, path, verified: 0 };
        judge(&spd, &sad, &arrived, spd.lookup(dir, &error, 0), quoted).map(|(policy, _)| policy.is_some())
    };
    assert_eq!(judged(Dir::Fwd, &[with], Some(&about)), Ok(true));
    assert_eq!(judged(Dir::Fwd, &[with], None), Err(DropReason::Selector));
    assert_eq!(judged(Dir::Fwd, &[without], Some(&about)), Err(DropReason::Selector));
    assert_eq!(judged(Dir::Fwd, &[with], Some(&Flow { proto: 6, ..about })), Err(DropReason::Selector));
    assert_eq!(judged(Dir::In, &[with], Some(&about)), Err(DropReason::Selector), "only for forwarded packets");
    assert_eq!(judged(Dir::Fwd, &[], Some(&about)), Err(DropReason::Template), "unprotected, but the policy protects");
    // Outbound: the policy has the flag.
    let mut events = Vec::new();
    for (icmp, protects) in [(false, false), (true, true)] {
        let mut policy = Policy { icmp, ..Policy::allow(Dir::Out, narrow) };
        policy.templates.push(template(Mode::Tunnel, Proto::Esp));
        let id = spd.add(policy, true).unwrap();
        let way = resolve_error(&spd, &mut sad, &leaving(&error), &about, &mut events).unwrap();
        assert_eq!(matches!(way, Decision::Protect(by, _) if by == id), protects);
        assert_eq!(way == Decision::Bypass(None), !protects);
    }
    assert!(events.is_empty());
}

fn leaving(flow: &Flow) -> OutboundQuery<'_> {
    OutboundQuery { flow, if_id: 0, cpu: 0, local: A, now_s: 100 }
}

#[test]
fn outbound() {
    let (mut spd, mut sad, mut events) = (Spd::new(1), Sad::new(2), Vec::new());
    let flow = packet();
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), Ok(Decision::Bypass(None)));
    spd.set_default(Dir::Out, Action::Block);
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), Err(DropReason::OutRest));
    let bypass = spd.add(Policy::allow(Dir::Out, all_v4()), false).unwrap();
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), Ok(Decision::Bypass(Some(bypass))));

    // A tunnel, and AH between its ends; the tunnel's source comes from the route.
    let mut policy = Policy::allow(Dir::Out, all_v4());
    policy.templates.push(Template { src: ANY4, ..template(Mode::Tunnel, Proto::Esp) });
    policy.templates.push(template(Mode::Transport, Proto::Ah));
    let id = spd.add(policy.clone(), true).unwrap();
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), Err(DropReason::OutNoState));
    let (larval, index) = match events[..] {
        [Event::Acquire { state, policy, flow: asked, .. }] => {
            assert_eq!(asked, flow);
            (state, policy)
        }
        _ => panic!("{events:?}"),
    };
    assert_eq!(index, spd.get(id).unwrap().index);
    let sa = sad.get(larval).unwrap();
    assert_eq!((sa.src, sa.dst, sa.reqid, sa.mode, sad.state(larval)), (A, B, 7, Mode::Tunnel, SaState::Acquiring));
    assert!(sa.selector.matches(&flow) && !sa.selector.matches(&Flow { dport: 3, ..flow }));
    // Requested once, until the answer arrives or the request expires.
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), Err(DropReason::OutNoState));
    assert_eq!((events.len(), sad.len(), sad.acquiring()), (1, 1, 1));
    assert_eq!(sad.poll_timeout(), Some(130));
    sad.handle_timeout(130, &mut events);
    assert_eq!(events[1..], [Event::HardExpire(larval)]);
    sad.remove(larval);
    let esp = sad.add(state(Mode::Tunnel, Proto::Esp, 1)).unwrap();
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), Err(DropReason::OutNoState));
    assert!(matches!(events[2..], [Event::Acquire { .. }]), "now AH is missing");
    let ah = sad.add(state(Mode::Transport, Proto::Ah, 2)).unwrap();
    let through = |ids: &[SaId]| Ok(Decision::Protect(id, ids.iter().copied().collect()));
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), through(&[esp, ah]));
    // Levels: optional templates are skipped.
    policy.templates[1].optional = true;
    let id = spd.add(policy.clone(), true).unwrap();
    sad.remove(ah);
    let only: ArrayVec<SaId, 6> = [esp].into_iter().collect();
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), Ok(Decision::Protect(id, only)));
    policy.templates[0].optional = true;
    let id = spd.add(policy, true).unwrap();
    sad.remove(esp);
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), Ok(Decision::Bypass(Some(id))));
    let inbound = SaSpec { dir: Some(SaDir::In), ..state(Mode::Tunnel, Proto::Esp, 5) };
    sad.add(inbound).unwrap();
    assert_eq!(resolve(&spd, &mut sad, &leaving(&flow), &mut events), Err(DropReason::OutDirection));
}

#[test]
fn a_state_for_each_cpu() {
    let (mut spd, mut sad, mut events) = (Spd::new(1), Sad::new(2), Vec::new());
    let flow = packet();
    let mut policy = Policy { cpu_acquire: true, ..Policy::allow(Dir::Out, all_v4()) };
    policy.templates.push(template(Mode::Tunnel, Proto::Esp));
    let id = spd.add(policy, false).unwrap();
    let mut cache = FlowCache::new(64, 3);
    let mut way = |sad: &mut Sad, cpu, events: &mut Vec<Event>| {
        cache.resolve(&spd, sad, &OutboundQuery { cpu, ..leaving(&flow) }, events).cloned()
    };
    let through = |sa| Ok(Decision::Protect(id, [sa].into_iter().collect()));
    assert_eq!(way(&mut sad, 3, &mut events), Err(DropReason::OutNoState));
    let Event::Acquire { state: larval, .. } = events[0] else { panic!("{events:?}") };
    assert_eq!(sad.get(larval).unwrap().cpu, None, "the first request is for every CPU");
    sad.remove(larval);
    let all = sad.add(state(Mode::Tunnel, Proto::Esp, 1)).unwrap();
    events.clear();
    for _ in 0..3 {
        assert_eq!(way(&mut sad, 3, &mut events), through(all), "until the CPU has its own");
        assert_eq!(way(&mut sad, 4, &mut events), through(all));
    }
    let asked: Vec<Option<u32>> = events
        .iter()
        .map(|event| match event {
            Event::Acquire { state, .. } => sad.get(*state).unwrap().cpu,
            _ => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(asked, [Some(3), Some(4)], "one request each");
    let third = sad.add(SaSpec { cpu: Some(3), ..state(Mode::Tunnel, Proto::Esp, 2) }).unwrap();
    assert_eq!(way(&mut sad, 3, &mut events), through(third));
    assert_eq!(way(&mut sad, 4, &mut events), through(all));
    assert_eq!(events.len(), 2);
}

#[test]
fn cached() {
    let (mut spd, mut sad, mut events) = (Spd::new(1), Sad::new(2), Vec::new());
    let mut cache = FlowCache::new(64, 3);
    let mut policy = Policy::allow(Dir::Out, all_v4());
    policy.templates.push(template(Mode::Tunnel, Proto::Esp));
    let id = spd.add(policy.clone(), false).unwrap();
    let flow = packet();
    for _ in 0..2 {
        assert!(cache.resolve(&spd, &mut sad, &leaving(&flow), &mut events).is_err());
    }
    assert_eq!(events.len(), 1);
    let limits = Limits { soft_packets: 1, hard_packets: 2, ..Limits::NONE };
    let old = sad.add(SaSpec { limits, flags: SaFlags::default(), ..state(Mode::Tunnel, Proto::Esp, 1) }).unwrap();
    let one = |sa| Decision::Protect(id, [sa].into_iter().collect());
    for _ in 0..5 {
        assert_eq!(cache.resolve(&spd, &mut sad, &leaving(&flow), &mut events), Ok(&one(old)));
    }
    assert_eq!(cache.hits_and_misses(), (4, 3));
    // A newer state is used at once.
    let new = sad.add(SaSpec { now_s: 50, ..state(Mode::Tunnel, Proto::Esp, 2) }).unwrap();
    assert_eq!(cache.resolve(&spd, &mut sad, &leaving(&flow), &mut events), Ok(&one(new)));
    sad.remove(new);
    assert_eq!(cache.resolve(&spd, &mut sad, &leaving(&flow), &mut events), Ok(&one(old)));
    // So is another policy, and so is a deletion.
    policy.priority = 0;
    policy.action = Action::Block;
    policy.selector.dport_mask = u16::MAX;
    policy.selector.dport = 2;
    spd.remove(id);
    assert_eq!(cache.resolve(&spd, &mut sad, &leaving(&flow), &mut events), Ok(&Decision::Bypass(None)));
    spd.add(policy, false).unwrap();
    assert_eq!(cache.resolve(&spd, &mut sad, &leaving(&flow), &mut events), Err(DropReason::OutBlock));
    // Many flows in a few slots: each gets its own decision.
    let mut random = Random(5);
    for _ in 0..5000 {
        let flow = self::flow(&mut random);
        let want = resolve(&spd, &mut sad, &leaving(&flow), &mut events);
        for _ in 0..2 {
            assert_eq!(cache.resolve(&spd, &mut sad, &leaving(&flow), &mut events).cloned(), want);
        }
    }
    assert!(cache.hits_and_misses().0 > 100);
}

#[test]
fn ages_and_families() {
    let mut spd = Spd::new(1);
    let limits = Limits { hard_add_s: 10, soft_use_s: 4, ..Limits::NONE };
    let id = spd.add(Policy { limits, add_time_s: 100, ..Policy::allow(Dir::In, all_v4()) }, false).unwrap();
    assert_eq!(spd.age(id, 100), Some((Age::Young, Some(104))));
    spd.used(id, 103);
    assert_eq!(spd.use_time_s(id), 103);
    assert_eq!(spd.age(id, 104), Some((Age::Young, Some(107))));
    assert_eq!(spd.age(id, 107), Some((Age::Soft, Some(110))));
    assert_eq!(spd.age(id, 110), Some((Age::Hard, None)));
    // A flow that gets the slot later starts anew.
    let policy = spd.remove(id).unwrap();
    assert_eq!((spd.use_time_s(id), spd.age(id, 110)), (0, None));
    let id = spd.add(policy, false).unwrap();
    assert_eq!(spd.use_time_s(id), 0);
    let mixed = Selector { destination: v6(1, 1), ..all_v4() };
    assert_eq!(spd.add(Policy::allow(Dir::In, mixed), false), Err(PolicyError::Family));
    assert_eq!(spd.add(Policy::allow(Dir::In, Selector::ANY), false), Err(PolicyError::Family));
}
