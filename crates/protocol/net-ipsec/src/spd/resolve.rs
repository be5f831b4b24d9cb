//! Outbound: finds the states that protect a packet (`xfrm_lookup`, `xfrm_tmpl_resolve`), and requests missing ones.

use crate::drop::DropReason;
use crate::event::Event;
use crate::lifetime::Limits;
use crate::sa::{Mode, SaDir, SaId, SaSpec};
use crate::sad::{Found, SaQuery, Sad};
use crate::selector::{Flow, Selector};
use crate::spd::{Action, Dir, MAX_TEMPLATES, Policy, PolicyId, Spd, Template};
use crate::transform::Transform;
use arrayvec::ArrayVec;
use core::net::IpAddr;

/// The maximum number of pending requests for states: traffic to ever new peers must not fill the memory.
pub const MAX_ACQUIRING: usize = 65_536;

/// The time for which a request to the key manager stays pending, in seconds (`xfrm_acq_expires`).
pub const ACQUIRE_S: u64 = 30;

/// The states that protect a packet, innermost first.
pub type Bundle = ArrayVec<SaId, MAX_TEMPLATES>;

/// The decision about an outbound packet (RFC 4301 section 4.4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is sent unprotected, by this policy or by default.
    Bypass(Option<PolicyId>),
    /// It is protected by these states.
    Protect(PolicyId, Bundle),
}

/// The query for an outbound packet.
#[derive(Debug, Clone, Copy)]
pub struct OutboundQuery<'a> {
    /// Its flow.
    pub flow: &'a Flow,
    /// The interface id of the xfrm interface that sends it, 0 for none.
    pub if_id: u32,
    /// The CPU that sends it.
    pub cpu: u32,
    /// The outer source for templates without one, from the route; unspecified if not known.
    pub local: IpAddr,
    /// Wall time in seconds.
    pub now_s: u64,
}

/// The decision about a forwarded ICMP error. If the error itself would bypass IPsec, it is protected like the flow
/// that it quotes ([`quoted`](crate::icmp::quoted)), provided that flow's policy has the `icmp` flag and states
/// (`xfrm_out_fwd_icmp`).
///
/// # Errors
/// As [`resolve`] for the error's own flow.
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

/// Decides about an outbound packet.
///
/// # Errors
/// [`DropReason::OutBlock`]; [`DropReason::OutRest`]; [`DropReason::OutNoState`] if a state is missing, which is
/// requested from the key manager once; [`DropReason::OutDirection`].
pub fn resolve(
    spd: &Spd,
    sad: &mut Sad,
    query: &OutboundQuery<'_>,
    events: &mut Vec<Event>,
) -> Result<Decision, DropReason> {
    resolve_by(spd, sad, spd.lookup(Dir::Out, query.flow, query.if_id), query, events)
}

/// The same with the flow's policy, from [`Spd::lookup`] or [`Spd::lookup_burst`].
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
            Action::Block => Err(DropReason::OutRest),
        };
    };
    let Some(policy) = spd.get(id) else { return Err(DropReason::OutBlock) };
    if policy.action == Action::Block {
        return Err(DropReason::OutBlock);
    }
    let (mut src, mut dst) = (query.flow.source, query.flow.destination);
    let mut bundle = Bundle::new();
    for template in &policy.templates {
        // Transport mode keeps the addresses of the inner packet.
        let (from, to) = match template.mode {
            Mode::Transport => (src, dst),
            _ if template.src.is_unspecified() && query.local.is_ipv4() == template.dst.is_ipv4() => {
                (query.local, template.dst)
            }
            _ => (template.src, template.dst),
        };
        let wanted = SaQuery {
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

/// Prefetches the states for the first templates of these flows' policies, [`BURST`](crate::burst::BURST) of
/// them at most. Tunnels whose source comes from the route are skipped, as it is not known here.
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

/// Adds a placeholder without keys for a missing state, and requests it from the key manager (`xfrm_init_tempstate`).
fn acquire(
    sad: &mut Sad,
    policy: &Policy,
    template: &Template,
    wanted: &SaQuery,
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
