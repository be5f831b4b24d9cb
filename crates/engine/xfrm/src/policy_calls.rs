//! Requests about policies (`xfrm_add_policy`, `xfrm_get_policy`, `xfrm_flush_policy`) and their limits of time.

use crate::find::mark;
use crate::namespace::Xfrm;
use crate::policies::{age, key_of};
use crate::policy::PolicyRecord;
use crate::reply::{Notice, RequestContext, plain};
use crate::serial::Serial;
use crate::time::Now;
use sealane_abi::Errno;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    AF_INET, AF_INET6, Attributes, Body, IPPROTO_AH, IPPROTO_COMP, IPPROTO_ESP, IPSEC_PROTO_ANY, LifetimeCur, Reason,
    UserTmpl, UserpolicyId, UserpolicyInfo, XFRM_MAX_DEPTH, XFRM_MODE_BEET, XFRM_MODE_IPTFS, XFRM_MODE_MAX,
    XFRM_MODE_TUNNEL, XFRM_POLICY_ALLOW, XFRM_POLICY_BLOCK, XFRM_POLICY_MAX, XFRM_POLICY_OUT, XFRM_POLICY_TYPE_MAIN,
    XFRM_SHARE_UNIQUE, XFRMNLGRP_POLICY, XfrmMessage,
};
use sealane_net_ipsec::lifetime::Age;
use sealane_net_ipsec::spd::PolicyError;

fn verify_dir(dir: u8) -> Result<(), Reject> {
    if dir < XFRM_POLICY_MAX { Ok(()) } else { Err(Reason::PolicyDir.into()) }
}

/// The type that attributes say: there is one only.
pub(crate) fn verify_type(attrs: &Attributes<'_>) -> Result<(), Reject> {
    match attrs.policy_type()? {
        Some(t) if t.type_ != XFRM_POLICY_TYPE_MAIN => Err(Reason::PolicyType.into()),
        _ => Ok(()),
    }
}

/// Checks a new policy (`verify_newpolicy_info`).
pub(crate) fn verify_new(p: &UserpolicyInfo) -> Result<(), Reject> {
    if p.share > XFRM_SHARE_UNIQUE {
        return Err(Reason::PolicyShare.into());
    }
    if !matches!(p.action, XFRM_POLICY_ALLOW | XFRM_POLICY_BLOCK) {
        return Err(Reason::PolicyAction.into());
    }
    let longest = p.sel.prefixlen_d.max(p.sel.prefixlen_s);
    match p.sel.family {
        AF_INET if longest > 32 => return Err(Reason::SelectorPrefix4.into()),
        AF_INET6 if longest > 128 => return Err(Reason::SelectorPrefix6.into()),
        AF_INET | AF_INET6 => {}
        _ => return Err(Reason::PolicySelectorFamily.into()),
    }
    verify_dir(p.dir)?;
    // The three lowest bits of an index are its direction.
    if p.index != 0 && p.index & 7 != u32::from(p.dir) {
        return Err(Reason::PolicyIndex.into());
    }
    Ok(())
}

/// Checks templates (`validate_tmpl`); one without a family gets the policy's.
pub(crate) fn verify_tmpls(tmpls: &mut [UserTmpl], family: u16, dir: u8) -> Result<(), Reject> {
    if tmpls.len() > XFRM_MAX_DEPTH {
        return Err(Reason::TmplCount.into());
    }
    let mut before = family;
    for tmpl in tmpls {
        if tmpl.family == 0 {
            tmpl.family = family;
        }
        let tunnel = matches!(tmpl.mode, XFRM_MODE_TUNNEL | XFRM_MODE_BEET | XFRM_MODE_IPTFS);
        let proto = matches!(tmpl.id.proto, IPPROTO_AH | IPPROTO_ESP | IPPROTO_COMP | 60 | 43 | IPSEC_PROTO_ANY);
        let reason = match tmpl {
            _ if tunnel && tmpl.optional != 0 && dir == XFRM_POLICY_OUT => Reason::TmplOptional,
            _ if !tunnel && tmpl.family != before => Reason::TmplFamilyChange,
            _ if tmpl.mode >= XFRM_MODE_MAX => Reason::TmplMode,
            _ if !matches!(tmpl.family, AF_INET | AF_INET6) => Reason::TmplFamily,
            _ if !proto => Reason::TmplProto,
            _ => {
                before = tmpl.family;
                continue;
            }
        };
        return Err(reason.into());
    }
    Ok(())
}

impl Xfrm {
    /// The policies for which `wanted` says so: the index of each, and it as a key manager would be told of it.
    pub fn policy_messages(
        &self,
        wanted: impl Fn(&sealane_net_ipsec::spd::Policy) -> bool,
    ) -> impl Iterator<Item = (u32, XfrmMessage)> {
        let records = self.policies.iter().map(|(_, record)| record).filter(move |record| wanted(&record.to_packets()));
        records.map(|record| (record.info.index, record.new_message(&self.data.spd)))
    }

    /// Makes a policy of what a request says (`xfrm_policy_construct`).
    pub(crate) fn construct_policy(
        &mut self,
        info: &UserpolicyInfo,
        attrs: &Attributes<'_>,
    ) -> Result<PolicyRecord, Reject> {
        verify_type(attrs)?;
        let mut tmpls = attrs.tmpl()?.unwrap_or_default();
        verify_tmpls(&mut tmpls, info.sel.family, info.dir)?;
        for tmpl in &mut tmpls {
            (tmpl.pad, tmpl.pad2) = ([0; 2], 0);
        }
        let mut mark = attrs.mark()?.unwrap_or_default();
        mark.v &= mark.m;
        let info = UserpolicyInfo { curlft: LifetimeCur::default(), ..*info };
        let if_id = attrs.if_id()?.unwrap_or(0);
        let (offload, is_orphan, device_key, id, place, timer) = (None, false, None, None, 0, None);
        let mut policy = PolicyRecord { info, tmpls, mark, if_id, offload, is_orphan, device_key, id, place, timer };
        if let Some(offload) = attrs.offload_dev()? {
            self.offload_policy(&mut policy, &offload)?;
        }
        Ok(policy)
    }

    pub(crate) fn add_policy(
        &mut self,
        info: &UserpolicyInfo,
        attrs: &Attributes<'_>,
        update: bool,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        verify_new(info)?;
        attrs.sec_ctx()?;
        let mut policy = self.construct_policy(info, attrs)?;
        let placed = self.refuse_vti(&policy).and_then(|()| self.place_policy(&mut policy, update, context.now.wall_s));
        if placed.is_err() {
            self.unload_policy(&mut policy);
        }
        placed?;
        let event = if update { policy.upd_message(&self.data.spd) } else { policy.new_message(&self.data.spd) };
        self.policies.add(policy);
        context.notify(XFRMNLGRP_POLICY, &event);
        Ok(())
    }

    /// Gives a policy its place among those that packets find, and takes out the one that it replaces.
    fn place_policy(&mut self, policy: &mut PolicyRecord, update: bool, now_s: u64) -> Result<(), Reject> {
        policy.info.curlft.add_time = now_s;
        let info = policy.info;
        let key = key_of(info.dir, &info.sel, policy.mark, policy.if_id);
        let old = self.policies.by_key.get(&key).copied();
        // On Linux a policy goes with its device, so that a key manager may add it again.
        let replace = update || old.and_then(|old| self.policies.get(old)).is_some_and(|old| old.is_orphan);
        if old.is_some() && !replace {
            return Err(plain(Errno::EEXIST));
        }
        policy.info.index = match old.and_then(|old| self.policies.get(old)) {
            Some(old) => old.info.index,
            None => self.policies.free_index(info.dir, info.index),
        };
        let there = old.and_then(|old| self.policies.get(old)?.id);
        let id = self.data.spd.put(policy.to_packets(), there).map_err(|error| match error {
            PolicyError::Exists => plain(Errno::EEXIST),
            PolicyError::Family => Reason::PolicySelectorFamily.into(),
            PolicyError::Full => plain(Errno::ENOMEM),
        })?;
        policy.id = Some(id);
        if let Some(mut old) = old.and_then(|old| self.policies.remove(old)) {
            // As the database of packets has it.
            let device = |policy: &PolicyRecord| policy.offload.map(|of| of.ifindex);
            if (old.info.priority, device(&old)) == (info.priority, device(policy)) {
                policy.place = old.place;
            }
            self.unload_policy(&mut old);
        }
        Ok(())
    }

    /// The policy that a request names, by its index or its selector (`xfrm_get_policy`).
    pub(crate) fn named_policy(&self, id: &UserpolicyId, attrs: &Attributes<'_>) -> Result<Serial, Reject> {
        verify_type(attrs)?;
        verify_dir(id.dir)?;
        let if_id = attrs.if_id()?.unwrap_or(0);
        let (mark, _) = mark(attrs)?;
        let none = plain(Errno::ENOENT);
        if id.index == 0 {
            attrs.sec_ctx()?;
            let key = key_of(id.dir, &id.sel, mark, if_id);
            return self.policies.by_key.get(&key).copied().ok_or(none);
        }
        let serial = self.policies.of_index(id.index).filter(|_| id.index & 7 == u32::from(id.dir)).ok_or(none)?;
        let fits = |p: &PolicyRecord| p.if_id == if_id && p.mark == mark;
        self.policies.get(serial).filter(|p| fits(p)).map(|_| serial).ok_or(none)
    }

    pub(crate) fn reply_policy(
        &self,
        id: &UserpolicyId,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let serial = self.named_policy(id, attrs)?;
        if let Some(policy) = self.policies.get(serial) {
            context.reply(&policy.new_message(&self.data.spd));
        }
        Ok(())
    }

    pub(crate) fn delete_policy(
        &mut self,
        id: &UserpolicyId,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let serial = self.named_policy(id, attrs)?;
        if let Some(policy) = self.policies.get(serial) {
            let event = policy.del_message(&self.data.spd, id.index != 0);
            self.remove_policy(serial);
            context.notify(XFRMNLGRP_POLICY, &event);
        }
        Ok(())
    }

    /// Deletes all; an event says so unless there were none.
    pub(crate) fn flush_policies(
        &mut self,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        verify_type(attrs)?;
        // An empty table is confirmed even if it was empty before: rules may have outlived their policies.
        self.data.spd.confirm();
        let gone: Vec<Serial> = self.policies.iter().map(|(serial, _)| serial).collect();
        if !gone.is_empty() {
            gone.into_iter().for_each(|serial| self.remove_policy(serial));
            context.notify(XFRMNLGRP_POLICY, &XfrmMessage::new(Body::FlushPolicy));
        }
        Ok(())
    }

    /// Takes a policy out of both tables.
    pub(crate) fn remove_policy(&mut self, serial: Serial) {
        let Some(mut policy) = self.policies.remove(serial) else { return };
        if let Some(id) = policy.id {
            self.data.spd.remove(id);
        }
        self.unload_policy(&mut policy);
    }

    /// Other templates for a policy, which keeps its place.
    pub(crate) fn replace_templates(&mut self, serial: Serial, tmpls: Vec<UserTmpl>) {
        let Some(policy) = self.policies.policies.get_mut(&serial) else { return };
        policy.tmpls = tmpls;
        self.policies.changes.note(policy.place);
        let used_s = policy.info(&self.data.spd).curlft.use_time;
        // The selector is that of the one that it replaces: it is taken.
        policy.id = self.data.spd.put(policy.to_packets(), policy.id).ok();
        policy.id.into_iter().for_each(|id| self.data.spd.used(id, used_s));
    }

    /// Limits of time (`xfrm_policy_timer`).
    pub(crate) fn policies_timeout(&mut self, now: Now, notices: &mut Vec<Notice>) {
        if self.policies.poll_timeout().is_some_and(|at| at <= now.wall_s) {
            self.ask_when_used();
        }
        while let Some(serial) = self.policies.due(now.wall_s) {
            let Some(policy) = self.policies.get(serial) else { continue };
            let used = policy.info(&self.data.spd).curlft;
            let (age, next) = age(policy, &used, now.wall_s);
            match age {
                Age::Young => {}
                Age::Soft => notices.push(policy.expire_notice(&self.data.spd, false, 0)),
                Age::Hard => {
                    notices.push(policy.expire_notice(&self.data.spd, true, 0));
                    self.remove_policy(serial);
                }
            }
            if let Some(next) = next {
                self.policies.schedule_check(serial, next);
            }
        }
    }
}
