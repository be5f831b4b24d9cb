//! Inbound policy check: whether a packet was protected as its policy requires (`__xfrm_policy_check`).

use crate::drop::DropReason;
use crate::sa::{Mode, Proto, Sa, SaId};
use crate::sad::Sad;
use crate::selector::Flow;
use crate::spd::{Action, Dir, PolicyId, Spd, Template};

/// A packet to be checked.
#[derive(Debug, Clone, Copy)]
pub struct InboundQuery<'a> {
    /// [`Dir::In`] or [`Dir::Fwd`].
    pub dir: Dir,
    /// The flow of the decrypted packet.
    pub flow: &'a Flow,
    /// The interface id of the xfrm interface that receives it, 0 for none.
    pub if_id: u32,
    /// The states that opened it, outermost first.
    pub path: &'a [SaId],
    /// The number of these that the check of an outer packet has accepted (nested tunnels).
    pub verified: usize,
}

/// Returns the policy that lets a packet pass, if one is needed, and how many states of its path it accepts.
///
/// # Errors
/// [`DropReason::Selector`], [`DropReason::InNoPolicy`], [`DropReason::InBlock`], [`DropReason::Template`],
/// [`DropReason::Depth`].
pub fn check(spd: &Spd, sad: &Sad, query: &InboundQuery<'_>) -> Result<(Option<PolicyId>, usize), DropReason> {
    judge(spd, sad, query, spd.lookup(query.dir, query.flow, query.if_id), None)
}

/// The same, with the flow's policy from [`Spd::lookup_burst`], and, for a forwarded ICMP error, the flow that it quotes
/// ([`quoted`](crate::icmp::quoted)). If the quoted flow matches, such a packet passes states with the `icmp`
/// flag, and is forwarded without a policy of its own.
///
/// # Errors
/// As [`check`].
pub fn judge(
    spd: &Spd,
    sad: &Sad,
    query: &InboundQuery<'_>,
    policy: Option<PolicyId>,
    quoted: Option<&Flow>,
) -> Result<(Option<PolicyId>, usize), DropReason> {
    let InboundQuery { dir, flow, if_id, path, verified } = *query;
    let quoted = quoted.filter(|_| dir == Dir::Fwd);
    let mut states: arrayvec::ArrayVec<&Sa, { super::MAX_TEMPLATES }> = arrayvec::ArrayVec::new();
    for id in path {
        // A state that was deleted between opening and this check no longer vouches for the packet.
        let sa = sad.get(*id).ok_or(DropReason::InInvalid)?;
        states.try_push(sa).map_err(|_| DropReason::Depth)?;
    }
    let selected = |sa: &&Sa| {
        sa.selector.matches(flow) || sa.flags.icmp && quoted.is_some_and(|quoted| sa.selector.matches(quoted))
    };
    if !states.iter().all(selected) {
        return Err(DropReason::Selector);
    }
    let wrapped = |from: usize| states[from..].iter().any(|sa| sa.mode != Mode::Transport);
    let about = || quoted.and_then(|quoted| spd.lookup(dir, quoted, if_id));
    let Some(id) = policy.or_else(about) else {
        return if spd.default_action(dir) == Action::Block || wrapped(0) {
            Err(DropReason::InNoPolicy)
        } else {
            Ok((None, 0))
        };
    };
    let Some(policy) = spd.get(id) else { return Err(DropReason::InNoPolicy) };
    if policy.action == Action::Block {
        return Err(DropReason::InBlock);
    }
    if policy.templates.is_full() {
        return Err(DropReason::Depth);
    }
    // The last template is the outermost one.
    let mut at = 0;
    for template in policy.templates.iter().rev() {
        at = accept(template, &states, at, verified, if_id).ok_or(DropReason::Template)?;
    }
    if wrapped(at) { Err(DropReason::Template) } else { Ok((Some(id), at)) }
}

/// Returns the position in the path behind a template, or `None` if the template does not match (`xfrm_policy_ok`).
fn accept(template: &Template, states: &[&Sa], from: usize, verified: usize, if_id: u32) -> Option<usize> {
    if template.optional && template.mode == Mode::Transport {
        return Some(from);
    }
    for (at, sa) in states.iter().enumerate().skip(from) {
        if matches_template(template, sa, if_id) {
            return Some(at + 1);
        }
        if sa.mode != Mode::Transport && at >= verified {
            break;
        }
    }
    template.optional.then_some(from)
}

fn matches_template(template: &Template, sa: &Sa, if_id: u32) -> bool {
    let is_from = template.src.is_unspecified() || template.src == sa.src;
    if sa.proto == Proto::Ipip {
        // The peer of an optional IPComp tunnel did not compress (`xfrm_state_kern`).
        return template.optional && is_from;
    }
    sa.proto == template.proto
        && sa.mode == template.mode
        && (template.spi == 0 || template.spi == sa.spi)
        && (template.reqid == 0 || template.reqid == sa.reqid)
        && (sa.mode == Mode::Transport || is_from)
        && (if_id == 0 || if_id == sa.if_id)
}
