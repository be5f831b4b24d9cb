//! A policy as a key manager said it, and how it is told back (`copy_to_user_policy`).

use crate::convert;
use crate::device::PolicyKey;
use crate::reply::Notice;
use crate::serial::Serial;
use crate::state::{mark_attr, unless_zero};
use crate::timers::Timer;
use sealane_abi::xfrm::{
    Attribute, Body, LifetimeCur, Mark, UserOffload, UserPolexpire, UserTmpl, UserpolicyId, UserpolicyInfo,
    UserpolicyType, XFRM_POLICY_ALLOW, XFRM_POLICY_CPU_ACQUIRE, XFRM_POLICY_ICMP, XFRM_POLICY_IN, XFRM_POLICY_OUT,
    XFRM_SHARE_ANY, XFRMNLGRP_EXPIRE, XfrmMessage,
};
use sealane_net_ipsec::spd::{Action, Dir, MAX_TEMPLATES, Policy, PolicyId, Spd, Template};

/// A policy.
pub(crate) struct PolicyRecord {
    /// The fixed part: lifetimes used up are what they were when it was added.
    pub(crate) info: UserpolicyInfo,
    pub(crate) tmpls: Vec<UserTmpl>,
    pub(crate) mark: Mark,
    pub(crate) if_id: u32,
    /// The device that has it.
    pub(crate) offload: Option<UserOffload>,
    /// Whether it has lost its device: it keeps what it covers from leaving and arriving in clear, and any policy may take
    /// its place.
    pub(crate) is_orphan: bool,
    /// Its key in the device.
    pub(crate) device_key: Option<PolicyKey>,
    /// The policy that packets find.
    pub(crate) id: Option<PolicyId>,
    /// The key of its record, once it is in the table. Of two policies with the same priority the one with the lower key is
    /// first. A policy that replaces another one of its priority has its place, as on Linux, and so its key.
    pub(crate) place: Serial,
    /// The next check of its limits.
    pub(crate) timer: Option<Timer>,
}

/// The direction of a policy.
pub(crate) fn dir(number: u8) -> Dir {
    match number {
        XFRM_POLICY_IN => Dir::In,
        XFRM_POLICY_OUT => Dir::Out,
        _ => Dir::Fwd,
    }
}

/// A template as packets need it; `None` for one that no packet can go through here.
fn template(tmpl: &UserTmpl) -> Option<Template> {
    Some(Template {
        src: tmpl.saddr.ip(tmpl.family)?,
        dst: tmpl.id.daddr.ip(tmpl.family)?,
        proto: convert::proto(tmpl.id.proto)?,
        mode: convert::mode(tmpl.mode)?,
        reqid: tmpl.reqid,
        spi: tmpl.id.spi.get(),
        optional: tmpl.optional != 0,
    })
}

impl PolicyRecord {
    /// The policy as packets need it. Where it requires what cannot be done, it blocks.
    pub(crate) fn to_packets(&self) -> Policy {
        let info = &self.info;
        let mut policy = Policy {
            priority: info.priority,
            mark: convert::mark(self.mark),
            if_id: self.if_id,
            device: self.offload.map(|offload| offload.ifindex as u32),
            limits: convert::limits(&info.lft),
            add_time_s: info.curlft.add_time,
            index: info.index,
            icmp: info.flags & XFRM_POLICY_ICMP != 0,
            cpu_acquire: info.flags & XFRM_POLICY_CPU_ACQUIRE != 0,
            ..Policy::allow(dir(info.dir), convert::selector(&info.sel))
        };
        if info.action != XFRM_POLICY_ALLOW {
            policy.action = Action::Block;
        }
        for tmpl in self.tmpls.iter().take(MAX_TEMPLATES) {
            match template(tmpl) {
                Some(template) => policy.templates.push(template),
                None if tmpl.optional != 0 => {}
                None => policy.action = Action::Block,
            }
        }
        policy
    }

    /// The fixed part as it stands.
    pub(crate) fn info(&self, spd: &Spd) -> UserpolicyInfo {
        let use_time = self.id.map_or(0, |id| spd.use_time_s(id));
        let curlft = LifetimeCur { use_time, ..self.info.curlft };
        UserpolicyInfo { curlft, share: XFRM_SHARE_ANY, pad: [0; 4], ..self.info }
    }

    /// The attributes that go with it.
    fn attributes(&self) -> Vec<Attribute> {
        let mut attrs = Vec::new();
        if !self.tmpls.is_empty() {
            attrs.push(Attribute::Tmpl(self.tmpls.clone()));
        }
        if TYPES_ARE_TOLD {
            attrs.push(Attribute::PolicyType(UserpolicyType::default()));
        }
        mark_attr(&mut attrs, self.mark);
        unless_zero(&mut attrs, self.if_id, Attribute::IfId);
        attrs.extend(self.offload.map(Attribute::OffloadDev));
        attrs
    }

    /// The answer to a question for it.
    pub(crate) fn new_message(&self, spd: &Spd) -> XfrmMessage {
        XfrmMessage { body: Body::NewPolicy(self.info(spd)), attrs: self.attributes() }
    }

    /// The event of its being changed.
    pub(crate) fn upd_message(&self, spd: &Spd) -> XfrmMessage {
        XfrmMessage { body: Body::UpdPolicy(self.info(spd)), attrs: self.attributes() }
    }

    /// The event of its being deleted, by its index or its selector.
    pub(crate) fn del_message(&self, spd: &Spd, by_index: bool) -> XfrmMessage {
        let mut id = UserpolicyId { dir: self.info.dir, ..UserpolicyId::default() };
        if by_index {
            id.index = self.info.index;
        } else {
            id.sel = self.info.sel;
        }
        let mut attrs = vec![Attribute::Policy(self.info(spd))];
        attrs.extend(self.attributes());
        XfrmMessage { body: Body::DelPolicy(id), attrs }
    }

    /// The event of a limit (`build_polexpire`); its number is 0.
    pub(crate) fn expire_notice(&self, spd: &Spd, hard: bool, port: u32) -> Notice {
        let body = Body::PolExpire(UserPolexpire { pol: self.info(spd), hard: hard.into(), pad: [0; 7] });
        Notice::new(XFRMNLGRP_EXPIRE, &XfrmMessage { body, attrs: self.attributes() }, 0, port)
    }
}

/// Whether messages carry `XFRMA_POLICY_TYPE`: kernels with `CONFIG_XFRM_SUB_POLICY` do, and the one imitated has it
/// not.
pub(crate) const TYPES_ARE_TOLD: bool = false;
