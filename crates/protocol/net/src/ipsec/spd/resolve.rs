//! Outbound: the states that a packet goes through (`xfrm_lookup`, `xfrm_tmpl_resolve`), and what to ask for where there are
//! none.

use crate::ipsec::drop::DropReason;
use crate::ipsec::event::Event;
use crate::ipsec::lifetime::Limits;
use crate::ipsec::sa::{Mode, SaDir, SaId, SaSpec};
use crate::ipsec::sad::{Found, Sad, Wanted};
use crate::ipsec::selector::{Flow, Selector};
use crate::ipsec::spd::{Action, Dir, MAX_TEMPLATES, Policy, PolicyId, Spd, Template};
use crate::ipsec::transform::Transform;
use arrayvec::ArrayVec;
use core::net::IpAddr;

/// How many states may be waited for at a time: traffic to ever new peers must not fill the memory.
pub const MAX_ACQUIRING: usize = 65_536;

/// How long an answer of the key manager is waited for, in seconds (`xfrm_acq_expires`).
pub const ACQUIRE_S: u64 = 30;

/// The states that a packet goes through, the first of them first.
pub type Bundle = ArrayVec<SaId, MAX_TEMPLATES>;

/// What becomes of an outbound packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It leaves as it is; the policy that says so, if there is one.
    Bypass(Option<PolicyId>),
    /// It goes through these.
    Protect(PolicyId, Bundle),
}

/// A packet that is to leave.
#[derive(Debug, Clone, Copy)]
pub struct OutboundQuery<'a> {
    /// What it is.
    pub flow: &'a Flow,
    /// The interface id of the xfrm interface that it leaves by; 0 for none.
    pub if_id: u32,
    /// The CPU that sends it.
    pub cpu: u32,
    /// The outer source for templates that name none, from the route; unspecified where it is not known.
    pub local: IpAddr,
    /// Wall time in seconds.
    pub now_s: u64,
}

/// The way of an error of ICMP that is forwarded: its own, but where that is in clear it is the way of what it quotes
/// ([`quoted`](crate::ipsec::icmp::quoted)), if a policy with the `icmp` flag has states for that (`xfrm_out_fwd_icmp`).
///
/// # Errors
/// As [`resolve`]: those of its own way.
pub fn resolve_error(
    spd: &Spd,
    sad: &mut Sad,
    query: &OutboundQuery<'_>,
    quoted: &Flow,
    events: &mut Vec<Event>,
) -> Result<Decision, DropReason> {
    let own = resolve(spd, sad, query, events)?;
    let policy = spd.lookup(Dir::Out, quoted, query.if_id).and_then(|id| spd.get(id));
    if matches!(own, Decision::Protect(..)) || !policy.is_some_and(|policy| policy.icmp) {
        return Ok(own);
    }
    match resolve(spd, sad, &OutboundQuery { flow: quoted, ..*query }, events) {
        Ok(Decision::Protect(id, bundle)) => Ok(Decision::Protect(id, bundle)),
        _ => Ok(own),
    }
}

/// Finds the way of a packet.
///
/// # Errors
/// [`DropReason::OutBlock`]; [`DropReason::OutNoState`] when a state is missing, which the key manager hears of once;
/// [`DropReason::OutDirection`].
pub fn resolve(
    spd: &Spd,
    sad: &mut Sad,
    query: &OutboundQuery<'_>,
    events: &mut Vec<Event>,
) -> Result<Decision, DropReason> {
    resolve_by(spd, sad, spd.lookup(Dir::Out, query.flow, query.if_id), query, events)
}

/// The same, with the flow's policy as [`Spd::lookup`] or [`Spd::lookup_burst`] has found it.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_by(
    spd: &Spd,
    sad: &mut Sad,
    policy: Option<PolicyId>,
    query: &OutboundQuery<'_>,
    events: &mut Vec<Event>,
) -> Result<Decision, DropReason> {
    let Some(id) = policy else {
        return match spd.default_action(Dir::Out) {
            Action::Allow => Ok(Decision::Bypass(None)),
            Action::Block => Err(DropReason::OutBlock),
        };
    };
    let Some(policy) = spd.get(id) else { return Err(DropReason::OutBlock) };
    if policy.action == Action::Block {
        return Err(DropReason::OutBlock);
    }
    let (mut src, mut dst) = (query.flow.source, query.flow.destination);
    let mut bundle = Bundle::new();
    for template in &policy.templates {
        // What is between hosts keeps the addresses of what is inside.
        let (from, to) = match template.mode {
            Mode::Transport => (src, dst),
            _ if template.src.is_unspecified() && query.local.is_ipv4() == template.dst.is_ipv4() => {
                (query.local, template.dst)
            }
            _ => (template.src, template.dst),
        };
        let wanted = Wanted {
            src: from,
            dst: to,
            proto: template.proto,
            mode: template.mode,
            reqid: template.reqid,
            spi: template.spi,
            mark: policy.mark.value & policy.mark.mask,
            if_id: query.if_id,
            cpu: query.cpu,
            device: policy.device,
        };
        match sad.find_out(&wanted, query.flow) {
            Found::State(state) => {
                if sad.get(state).is_some_and(|sa| sa.dir == Some(SaDir::In)) {
                    return Err(DropReason::OutDirection);
                }
                if policy.cpu_acquire
                    && sad.get(state).is_some_and(|sa| sa.cpu != Some(query.cpu))
                    && !sad.acquiring_for_cpu(&wanted)
                {
                    acquire(sad, policy, template, &wanted, Some(query.cpu), query, events);
                }
                bundle.push(state);
                (src, dst) = (from, to);
            }
            Found::Acquiring(_) | Found::Expired | Found::None if template.optional => {}
            Found::Acquiring(_) | Found::Expired => return Err(DropReason::OutNoState),
            Found::None => {
                acquire(sad, policy, template, &wanted, None, query, events);
                return Err(DropReason::OutNoState);
            }
        }
    }
    if bundle.is_empty() { Ok(Decision::Bypass(Some(id))) } else { Ok(Decision::Protect(id, bundle)) }
}

/// Asks for the memory of the states that the first templates of policies of as many flows want, [`BURST`](crate::ipsec::burst::BURST) of them at most.
/// Those of tunnels whose source is the route's are not known here.
pub fn warm(spd: &Spd, sad: &Sad, flows: &[Flow], policies: &[Option<PolicyId>]) {
    let wanted = flows.iter().zip(policies).filter_map(|(flow, id)| {
        let template = spd.get((*id)?)?.templates.first()?;
        let (from, to) = match template.mode {
            Mode::Transport => (flow.source, flow.destination),
            _ => (template.src, template.dst),
        };
        Some((from, to, template.reqid))
    });
    sad.warm_pairs(wanted);
}

/// Puts a state without keys in the place of the missing one, and tells the key manager (`xfrm_init_tempstate`).
fn acquire(
    sad: &mut Sad,
    policy: &Policy,
    template: &Template,
    wanted: &Wanted,
    cpu: Option<u32>,
    query: &OutboundQuery<'_>,
    events: &mut Vec<Event>,
) {
    if !sad.asks() || sad.acquiring() >= MAX_ACQUIRING {
        return;
    }
    let flow = query.flow;
    let host = if flow.destination.is_ipv4() { 32 } else { 128 };
    let selector = Selector {
        sport: flow.sport,
        sport_mask: u16::MAX,
        dport: flow.dport,
        dport_mask: u16::MAX,
        proto: flow.proto,
        ifindex: flow.ifindex,
        ..Selector::between((flow.source, host), (flow.destination, host))
    };
    let spec = SaSpec {
        proto: template.proto,
        mode: template.mode,
        reqid: template.reqid,
        mark: policy.mark,
        if_id: query.if_id,
        device: policy.device,
        selector,
        cpu,
        limits: Limits { hard_add_s: ACQUIRE_S, ..Limits::NONE },
        now_s: query.now_s,
        ..SaSpec::tunnel(0, wanted.src, wanted.dst, Transform::larval())
    };
    if let Ok(state) = sad.add(spec) {
        events.push(Event::Acquire { state, policy: policy.index, flow: *flow, mark: policy.mark });
    }
}
