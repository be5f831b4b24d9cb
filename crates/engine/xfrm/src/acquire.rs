//! Acquires, which a policy or a program asks for, and peers that have moved (`build_acquire`, `build_mapping`).

use crate::convert;
use crate::find::mark;
use crate::namespace::Xfrm;
use crate::policy::PolicyRecord;
use crate::policy_calls::verify_new;
use crate::reply::{Notice, RequestContext};
use crate::state::{Km, State, mark_attr, unless_zero};
use crate::time::Now;
use core::net::IpAddr;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    AF_INET, AF_INET6, Attribute, Attributes, Body, Id, LifetimeCfg, LifetimeCur, Reason, Selector, UserAcquire,
    UserMapping, UserTmpl, UsersaInfo, XFRM_POLICY_OUT, XFRM_SA_DIR_OUT, XFRMNLGRP_ACQUIRE, XFRMNLGRP_MAPPING,
    XfrmMessage,
};
use sealane_net_ipsec::sa::{Mode, Sa, SaId};

/// The selector of the packet that asked, as the kernel writes it.
fn asked(sa: &Sa) -> Selector {
    let sel = &sa.selector;
    Selector {
        daddr: sel.destination.into(),
        saddr: sel.source.into(),
        dport: sel.dport.into(),
        dport_mask: sel.dport_mask.into(),
        sport: sel.sport.into(),
        sport_mask: sel.sport_mask.into(),
        family: if sel.destination.is_ipv4() { AF_INET } else { AF_INET6 },
        prefixlen_d: sel.destination_len,
        prefixlen_s: sel.source_len,
        proto: sel.proto,
        pad: [0; 3],
        ifindex: sel.ifindex,
        user: 0,
    }
}

/// The number of a mode.
fn mode_number(mode: Mode) -> u8 {
    match mode {
        Mode::Transport => sealane_abi::xfrm::XFRM_MODE_TRANSPORT,
        Mode::Tunnel => sealane_abi::xfrm::XFRM_MODE_TUNNEL,
        Mode::Beet => sealane_abi::xfrm::XFRM_MODE_BEET,
        Mode::Iptfs => sealane_abi::xfrm::XFRM_MODE_IPTFS,
    }
}

impl Xfrm {
    /// The number of the next acquire; never 0.
    fn next_acquire(&mut self) -> u32 {
        let next = &mut self.settings.last_acquire;
        *next = next.checked_add(1).unwrap_or(1);
        *next
    }

    /// A packet found a policy but no state: what stands for it becomes known, and the key manager is told.
    pub(crate) fn acquired(&mut self, sa: SaId, policy: u32, now: Now) -> Option<Notice> {
        let serial = self.policies.of_index(policy)?;
        let found = self.data.sad.get(sa)?;
        let mut info = UsersaInfo {
            sel: asked(found),
            id: Id { daddr: found.dst.into(), proto: found.proto.number(), ..Id::default() },
            saddr: found.src.into(),
            lft: LifetimeCfg { hard_add_expires_seconds: self.settings.acquire_s, ..LifetimeCfg::NONE },
            curlft: LifetimeCur { add_time: found.add_time_s, ..LifetimeCur::default() },
            reqid: found.reqid,
            family: if found.dst.is_ipv4() { AF_INET } else { AF_INET6 },
            mode: mode_number(found.mode),
            ..UsersaInfo::default()
        };
        let (if_id, cpu) = (found.if_id, found.cpu);
        self.data.sad.set_limits(sa, convert::limits(&info.lft), now.wall_s);
        info.seq = self.next_acquire();
        let policy = self.policies.get(serial)?;
        let mut state = State::new(info, Km::Acquiring);
        (state.sa, state.mark, state.if_id, state.cpu) = (Some(sa), policy.mark, if_id, cpu);
        state.dir = XFRM_SA_DIR_OUT;
        let wanted = |t: &&UserTmpl| t.id.proto == info.id.proto && t.mode == info.mode && t.reqid == info.reqid;
        let tmpl = policy.tmpls.iter().find(wanted).or(policy.tmpls.first()).copied().unwrap_or_default();
        let notice = self.acquire_notice(&state, &tmpl, policy);
        self.states.add(state, now.wall_s);
        Some(notice)
    }

    /// The event that asks for a state; its number is 0.
    fn acquire_notice(&self, state: &State, tmpl: &UserTmpl, policy: &PolicyRecord) -> Notice {
        let info = &state.info;
        let mut told = policy.info(&self.data.spd);
        told.dir = XFRM_POLICY_OUT;
        let body = Body::Acquire(UserAcquire {
            id: info.id,
            saddr: info.saddr,
            sel: info.sel,
            policy: told,
            aalgos: tmpl.aalgos,
            ealgos: tmpl.ealgos,
            calgos: tmpl.calgos,
            seq: info.seq,
        });
        let mut attrs = Vec::new();
        if !policy.tmpls.is_empty() {
            attrs.push(Attribute::Tmpl(policy.tmpls.clone()));
        }
        mark_attr(&mut attrs, policy.mark);
        unless_zero(&mut attrs, policy.if_id, Attribute::IfId);
        attrs.extend(policy.offload.map(Attribute::OffloadDev));
        attrs.extend(state.cpu.map(Attribute::SaPcpu));
        Notice::new(XFRMNLGRP_ACQUIRE, &XfrmMessage { body, attrs }, 0, 0)
    }

    /// A program asks in the name of a policy that need not be there (`xfrm_add_acquire`): an event for each template.
    pub(crate) fn send_acquire(
        &mut self,
        order: &UserAcquire,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let (mark, _) = mark(attrs)?;
        let cpu = attrs.sa_pcpu()?;
        if cpu.is_some_and(|cpu| cpu >= self.cpus) {
            return Err(Reason::PcpuRequest.into());
        }
        verify_new(&order.policy)?;
        attrs.sec_ctx()?;
        let mut policy = self.construct_policy(&order.policy, attrs)?;
        policy.mark = mark;
        let info = UsersaInfo { id: order.id, saddr: order.saddr, sel: order.sel, ..UsersaInfo::default() };
        let mut state = State::new(info, Km::Acquiring);
        (state.mark, state.cpu) = (mark, cpu);
        for at in 0..policy.tmpls.len() {
            let tmpl = &mut policy.tmpls[at];
            (tmpl.aalgos, tmpl.ealgos, tmpl.calgos) = (order.aalgos, order.ealgos, order.calgos);
            let tmpl = *tmpl;
            state.info.id = tmpl.id;
            (state.info.mode, state.info.reqid, state.info.family) = (tmpl.mode, tmpl.reqid, tmpl.family);
            state.info.seq = self.next_acquire();
            context.replies.events.push(self.acquire_notice(&state, &tmpl, &policy));
        }
        self.unload_policy(&mut policy);
        Ok(())
    }

    /// A peer sends from another address or port than before.
    pub(crate) fn mapped(&self, sa: SaId, address: IpAddr, port: u16) -> Option<Notice> {
        mapping_notice(self.states.get(self.states.of_sa(sa)?)?, address, port)
    }
}

/// The event of a peer that sends from another address or port than before.
pub(crate) fn mapping_notice(state: &State, address: IpAddr, port: u16) -> Option<Notice> {
    let encap = state.encap?;
    let body = Body::Mapping(UserMapping {
        id: state.id(),
        reqid: state.info.reqid,
        old_saddr: state.info.saddr,
        new_saddr: address.into(),
        old_sport: encap.encap_sport,
        new_sport: port.into(),
    });
    Some(Notice::new(XFRMNLGRP_MAPPING, &XfrmMessage::new(body), 0, 0))
}
