//! The association database compared with a plain list: random additions, removals, and both kinds of look-up.

use crate::random::Random;
use core::net::{IpAddr, Ipv4Addr};
use sealane_net_ipsec::lifetime::Limits;
use sealane_net_ipsec::sa::{Mode, Proto, SaError, SaFlags, SaId, SaSpec, SaState};
use sealane_net_ipsec::sad::{Found, SaQuery, Sad};
use sealane_net_ipsec::selector::{Flow, Mark, Selector};
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use std::sync::Arc;

fn v4(last: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last as u8).into()
}

/// An association in the list.
#[derive(Clone)]
struct Plain {
    id: SaId,
    spi: u32,
    src: IpAddr,
    dst: IpAddr,
    proto: Proto,
    mode: Mode,
    reqid: u32,
    mark: Mark,
    if_id: u32,
    cpu: Option<u32>,
    selector: Selector,
    wildrecv: bool,
    larval: bool,
    dying: bool,
    expired: bool,
    added_s: u64,
}

/// The search of `xfrm_input_state_lookup`: the newest first.
fn find_in(list: &[Plain], spi: u32, dst: IpAddr, proto: Proto, mark: u32) -> Option<SaId> {
    let fits = |p: &&Plain| p.spi == spi && p.dst == dst && p.proto == proto && p.mark.matches(mark);
    list.iter().rev().find(fits).map(|p| p.id)
}

/// The search of `xfrm_state_find` in both chains.
fn find_out(list: &[Plain], wanted: &SaQuery, flow: &Flow) -> Found {
    let mut expired = false;
    for src in [wanted.src, IpAddr::V4(Ipv4Addr::UNSPECIFIED)] {
        let (mut best, mut acquiring): (Option<&Plain>, _) = (None, None);
        for p in list.iter().rev() {
            let fits = (p.src, p.dst, p.reqid) == (src, wanted.dst, wanted.reqid)
                && (p.proto, p.mode, p.if_id) == (wanted.proto, wanted.mode, wanted.if_id)
                && (wanted.spi == 0 || wanted.spi == p.spi)
                && p.mark.matches(wanted.mark)
                && !p.wildrecv;
            let selected = p.selector.family.is_none() || p.selector.matches(flow);
            if !fits {
                continue;
            }
            if p.expired {
                expired |= selected;
            } else if p.larval {
                acquiring = acquiring.or(Some(p.id));
            } else if selected && p.cpu.is_none_or(|cpu| cpu == wanted.cpu) {
                let better = |b: &Plain| {
                    (b.cpu.is_none() && p.cpu == Some(wanted.cpu))
                        || (b.dying && !p.dying)
                        || (b.dying == p.dying && b.added_s < p.added_s)
                };
                if best.is_none_or(better) {
                    best = Some(p);
                }
            }
        }
        match (best, acquiring) {
            (Some(best), _) => return Found::State(best.id),
            (None, Some(id)) => return Found::Acquiring(id),
            (None, None) => {}
        }
    }
    if expired { Found::Expired } else { Found::None }
}

fn transform() -> Transform {
    let mut transforms = Transforms::new(Arc::new(sealane_crypto_portable::registry()));
    let spec = TransformSpec::Auth { auth: Keyed { name: "hmac(sha1)", key: &[1; 20] }, icv_bits: 96 };
    transforms.prepare(&spec, false).unwrap()
}

#[test]
fn like_a_list() {
    let transform = transform();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut sad = Sad::new(42);
    let mut list: Vec<Plain> = Vec::new();
    let mut hits = [0; 6];
    for step in 0..60_000u64 {
        match random.below(10) {
            0..3 => {
                let larval = random.one_in(12);
                let mark = random.of(&[Mark::default(), Mark { value: 1, mask: 1 }, Mark { value: 2, mask: 3 }]);
                let cpu = random.of(&[None, None, Some(0), Some(1)]);
                let subnet = Selector::between((Ipv4Addr::new(10, 0, 0, 0).into(), 24), (v4(0), 0));
                let expires = random.one_in(6);
                let limits =
                    Limits { soft_add_s: 2 * u64::from(expires), hard_add_s: 5 * u64::from(expires), ..Limits::NONE };
                let spec = SaSpec {
                    proto: random.of(&[Proto::Esp, Proto::Esp, Proto::Ah]),
                    mode: random.of(&[Mode::Tunnel, Mode::Transport]),
                    reqid: random.below(3) as u32,
                    if_id: random.below(2) as u32,
                    selector: random.of(&[Selector::ANY, subnet]),
                    flags: SaFlags { wildrecv: random.one_in(9), ..SaFlags::default() },
                    now_s: step / 8,
                    mark,
                    cpu,
                    limits,
                    ..SaSpec::tunnel(
                        if larval { 0 } else { 1 + random.below(60) as u32 },
                        if random.one_in(5) { Ipv4Addr::UNSPECIFIED.into() } else { v4(random.below(3)) },
                        v4(9 + random.below(2)),
                        if larval { Transform::larval() } else { transform.clone() },
                    )
                };
                let SaSpec { spi, src, dst, proto, mode, reqid, if_id, selector, flags, now_s, .. } = spec;
                let plain = |id| Plain {
                    id,
                    spi,
                    src,
                    dst,
                    proto,
                    mode,
                    reqid,
                    mark,
                    if_id,
                    cpu,
                    selector,
                    wildrecv: flags.wildrecv,
                    larval,
                    dying: false,
                    expired: false,
                    added_s: now_s,
                };
                let exists = spi != 0 && find_in(&list, spi, dst, proto, mark.value & mark.mask).is_some();
                match sad.add(spec) {
                    Ok(id) => {
                        assert!(!exists);
                        list.push(plain(id));
                        hits[0] += 1;
                    }
                    Err(e) => assert_eq!((e, exists), (SaError::Exists, true)),
                }
            }
            3 if list.len() > 40 => {
                for _ in 0..random.below(30) {
                    let old = list.remove(random.below(list.len()));
                    let (sa, _) = sad.remove(old.id).unwrap();
                    assert_eq!((sa.spi, sa.dst, sa.reqid), (old.spi, old.dst, old.reqid));
                    assert!(sad.get(old.id).is_none() && sad.state(old.id) == SaState::Dead);
                }
            }
            4 => {
                // Time passes: `dying` in the list follows the timers of the database.
                let mut events = Vec::new();
                sad.handle_timeout(step / 8, &mut events);
                for p in &mut list {
                    p.dying = sad.get(p.id).unwrap().dying;
                    p.expired = sad.state(p.id) == SaState::Expired;
                }
            }
            5..8 => {
                let names: Vec<(u32, IpAddr, Proto, u32)> = (0..70)
                    .map(|_| {
                        (
                            1 + random.below(70) as u32,
                            v4(9 + random.below(2)),
                            random.of(&[Proto::Esp, Proto::Ah]),
                            random.below(4) as u32,
                        )
                    })
                    .collect();
                let mut found = Vec::new();
                sad.find_burst(&names, &mut found);
                for ((spi, dst, proto, mark), found) in names.into_iter().zip(found) {
                    let want = find_in(&list, spi, dst, proto, mark);
                    assert_eq!((sad.find_in(spi, dst, proto, mark), found), (want, want));
                    hits[1 + usize::from(want.is_some())] += 1;
                }
            }
            _ => {
                let wanted = SaQuery {
                    src: v4(random.below(3)),
                    dst: v4(9 + random.below(2)),
                    proto: random.of(&[Proto::Esp, Proto::Ah]),
                    mode: random.of(&[Mode::Tunnel, Mode::Transport]),
                    reqid: random.below(3) as u32,
                    spi: if random.one_in(4) { random.below(60) as u32 } else { 0 },
                    mark: random.below(4) as u32,
                    if_id: random.below(2) as u32,
                    cpu: random.below(3) as u32,
                    device: None,
                };
                let flow = Flow {
                    source: Ipv4Addr::new(10, 0, random.below(2) as u8, 1).into(),
                    destination: v4(77),
                    proto: 17,
                    sport: 1,
                    dport: 2,
                    mark: 0,
                    ifindex: 0,
                };
                let want = find_out(&list, &wanted, &flow);
                assert_eq!(sad.find_out(&wanted, &flow), want);
                match want {
                    Found::State(_) => hits[3] += 1,
                    Found::Acquiring(_) => hits[4] += 1,
                    Found::Expired => hits[5] += 1,
                    Found::None => {}
                }
            }
        }
        assert_eq!(sad.len(), list.len());
    }
    assert!(hits.iter().all(|n| *n > 100), "every answer occurred: {hits:?}");
    for p in list.drain(..) {
        sad.remove(p.id).unwrap();
    }
    assert!(sad.is_empty() && sad.iter().next().is_none());
}
