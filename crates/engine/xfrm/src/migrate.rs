//! MIGRATE and MIGRATE_STATE: states and templates move to other addresses and go on (`xfrm_migrate`,
//! `xfrm_do_migrate_state`).

use crate::add::set_mark;
use crate::namespace::Xfrm;
use crate::policy::dir;
use crate::policy_calls::verify_type;
use crate::replay::Sequence;
use crate::reply::{Notice, RequestContext, plain};
use crate::serial::Serial;
use crate::state::{Km, State, unless_zero};
use crate::{convert, partial, verify};
use sealane_abi::Errno;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    AF_INET, AF_INET6, Attribute, Attributes, Body, EncapTmpl, Mark, Reason, Selector, UDP_ENCAP_ESPINUDP, UserMigrate,
    UserMigrateState, UserOffload, UserTmpl, UserpolicyId, XFRM_MAX_DEPTH, XFRM_MIGRATE_STATE_CLEAR_OFFLOAD,
    XFRM_MIGRATE_STATE_KNOWN_FLAGS, XFRM_MIGRATE_STATE_UPDATE_H2H_SEL, XFRM_MODE_BEET, XFRM_MODE_IPTFS,
    XFRM_MODE_TRANSPORT, XFRM_MODE_TUNNEL, XFRM_POLICY_MAX, XFRMNLGRP_MIGRATE, XfrmMessage,
};
use sealane_net_ipsec::sa::SaError;
use sealane_net_ipsec::selector::Flow;

/// The new addresses and attributes of a migrated state.
struct MigratedState {
    state: State,
    from: Serial,
}

impl Xfrm {
    pub(crate) fn migrate(
        &mut self,
        id: &UserpolicyId,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let Some(moves) = attrs.migrate()? else { return Err(Reason::MigrateMissing.into()) };
        verify_type(attrs)?;
        if moves.is_empty() || moves.len() > XFRM_MAX_DEPTH {
            return Err(Reason::MigrateCount.into());
        }
        let (encap, if_id) = (attrs.encap()?.map(unpadded), attrs.if_id()?.unwrap_or(0));
        let offload = attrs.offload_dev()?;
        check(&moves)?;
        if id.dir >= XFRM_POLICY_MAX {
            return Err(Reason::PolicyDir.into());
        }
        let policy = self.policy_to_migrate(id, if_id)?;
        let mut moved: Vec<MigratedState> = Vec::new();
        for step in &moves {
            let Some(from) = self.state_to_migrate(step, if_id) else { continue };
            let Some(old) = self.states.get(from) else { continue };
            let mut state = old.clone();
            state.encap = encap;
            if encap.is_none() {
                (state.mapping_maxage_s, state.keepalive_s) = (0, 0);
            }
            state.info.family = step.new_family;
            (state.info.id.daddr, state.info.saddr) = (step.new_daddr, step.new_saddr);
            self.can_move(&state, from).map_err(|reject| Reject { errno: Errno::ENODATA, ..reject })?;
            if offload.is_some() {
                partial::check_offload(&state)?;
            }
            moved.push(MigratedState { state, from });
        }
        self.move_templates(policy, &moves)?;
        for MigratedState { state, from } in moved {
            self.move_state(from, state, offload, context.now.wall_s)?;
        }
        let mut told = Vec::new();
        told.extend(
            attrs.kmaddress()?.map(|k| Attribute::Kmaddress(sealane_abi::xfrm::UserKmaddress { pad: [0; 2], ..k })),
        );
        told.extend(encap.map(Attribute::Encap));
        told.extend(moves.iter().map(|step| Attribute::Migrate(vec![UserMigrate { reserved: 0, ..*step }])));
        let body = Body::Migrate(UserpolicyId { sel: id.sel, dir: id.dir, ..UserpolicyId::default() });
        context.replies.events.push(Notice::new(XFRMNLGRP_MIGRATE, &XfrmMessage { body, attrs: told }, 0, 0));
        Ok(())
    }

    /// The policy that traffic between a selector's addresses finds (`xfrm_migrate_policy_find`).
    fn policy_to_migrate(&self, id: &UserpolicyId, if_id: u32) -> Result<Serial, Reject> {
        let sel = &id.sel;
        let (Some(source), Some(destination)) = (sel.saddr.ip(sel.family), sel.daddr.ip(sel.family)) else {
            return Err(Reason::PolicyUnknown.with(Errno::EAFNOSUPPORT));
        };
        let mut flow = Flow { source, destination, proto: sel.proto, sport: 0, dport: 0, mark: 0, ifindex: 0 };
        if sel.proto != 0 {
            (flow.sport, flow.dport, flow.ifindex) = (sel.sport.get(), sel.dport.get(), sel.ifindex);
        }
        let found = self.data.spd.lookup(dir(id.dir), &flow, if_id).and_then(|found| self.data.spd.get(found));
        found.and_then(|policy| self.policies.of_index(policy.index)).ok_or(Reason::PolicyUnknown.into())
    }

    /// The newest state that a step is for (`xfrm_migrate_state_find`).
    fn state_to_migrate(&self, step: &UserMigrate, if_id: u32) -> Option<Serial> {
        let fits =
            |s: &State| s.info.mode == step.mode && s.info.id.proto == step.proto && (if_id == 0 || s.if_id == if_id);
        let family = step.old_family;
        let between = |reqid| {
            self.states.between(family, &step.old_daddr, &step.old_saddr, reqid).find(|(_, s)| fits(s)).map(|f| f.0)
        };
        if step.reqid != 0 {
            return between(step.reqid);
        }
        let same = |s: &State| {
            s.info.family == family
                && convert::equal(&s.info.id.daddr, &step.old_daddr, family)
                && convert::equal(&s.info.saddr, &step.old_saddr, family)
        };
        self.states.iter().find(|(_, s)| same(s) && fits(s)).map(|(serial, _)| serial)
    }

    /// Whether a state can become this one: what makes states would take it, and its name is free.
    ///
    /// The numbers of a state in packet offload are its device's, which does not give them back.
    fn can_move(&mut self, state: &State, from: Serial) -> Result<(), Reject> {
        self.init_state(state)?;
        if self.packet_owner(state.offload).is_some() {
            return Err(Reason::MigrateClone.into());
        }
        let info = &state.info;
        let found = self.states.find(
            state.mark.v & state.mark.m,
            &info.id.daddr,
            info.id.spi.get(),
            info.id.proto,
            info.family,
        );
        if found.is_some_and(|found| found != from) { Err(Reason::MigrateAdd.into()) } else { Ok(()) }
    }

    /// Gives a state that has moved to a device.
    fn offload_again(&mut self, serial: Serial, offload: &UserOffload, now_s: u64) -> Result<Serial, Reject> {
        let Some(mut state) = self.states.get(serial).cloned() else { return Ok(serial) };
        let transform = self.init_state(&state)?;
        let keys = transform.clone();
        self.offload_state(&mut state, offload, |xfrm, state| xfrm.packets_spec(state, keys))?;
        if state.device_key.is_none() {
            return Ok(serial);
        }
        self.remove_state(serial);
        // The new state leases numbers of its own.
        state.series = None;
        self.insert_state(state, transform, now_s)
    }

    /// Puts what a state becomes in its place, as the newest; numbers go on where they are.
    ///
    /// A state leaves its device; where it is to be with one again it starts there from what the old one counted.
    fn move_state(
        &mut self,
        from: Serial,
        mut state: State,
        offload: Option<UserOffload>,
        now_s: u64,
    ) -> Result<Serial, Reject> {
        state.mark.v &= state.mark.m;
        self.release(state.offload.take(), state.device_key.take());
        // The new state inherits the counters; its time of addition is new.
        let used = self.states.get(from).map(|old| self.usage(old)).unwrap_or_default();
        let replay = self.states.get(from).map(|old| self.replay(old));
        let info = state.info;
        if let Some(sa) = state.sa {
            let (src, dst) = (convert::ip(&info.saddr, info.family), convert::ip(&info.id.daddr, info.family));
            let encap = state.encap.map(convert::encap);
            let rebuilt = self.data.sad.rebuild(sa, |spec| {
                (spec.src, spec.dst) = (src, dst);
                (spec.reqid, spec.encap, spec.mapping_maxage_s) = (info.reqid, encap, state.mapping_maxage_s);
                (spec.mark, spec.selector) = (convert::mark(state.mark), convert::selector(&info.sel));
                (spec.set_mark, spec.now_s) = (convert::mark(state.set_mark), now_s);
            });
            state.sa = Some(rebuilt.map_err(|error| match error {
                SaError::Exists => Reject::from(Reason::MigrateAdd),
                _ => Reason::MigrateClone.into(),
            })?);
        }
        let mut cur = convert::lifetime_cur(&used);
        (cur.add_time, cur.bytes, cur.packets, cur.use_time) = (now_s, 0, 0, 0);
        state.info.curlft = cur;
        if let Some(sa) = state.sa {
            self.data.sad.set_usage(sa, &convert::usage(&cur), now_s);
        }
        if let Some(replay) = replay {
            state.sequence = Sequence::moved(replay, self.position(&state));
        }
        state.tunnel = self.attach_tunnel(&state, now_s);
        if let Some(old) = self.states.remove(from) {
            self.aevents.forget(from, &old.last_event);
            self.keepalives.forget(from, old.keepalive);
            self.detach_tunnel(&old);
        }
        let serial = self.states.add(state, now_s);
        self.restart_events(serial);
        self.start_keepalive(serial, now_s);
        if let Some(offload) = offload {
            return self.offload_again(serial, &offload, now_s);
        }
        Ok(serial)
    }

    /// Other end points for the templates of a policy (`xfrm_policy_migrate`).
    fn move_templates(&mut self, serial: Serial, moves: &[UserMigrate]) -> Result<(), Reject> {
        let Some(policy) = self.policies.get(serial) else { return Err(Reason::PolicyUnknown.into()) };
        let mut tmpls = policy.tmpls.clone();
        let mut fit = 0;
        for tmpl in &mut tmpls {
            for step in moves {
                if !template_fits(tmpl, step) {
                    continue;
                }
                fit += 1;
                if tmpl.mode != XFRM_MODE_TRANSPORT {
                    (tmpl.id.daddr, tmpl.saddr) = (step.new_daddr, step.new_saddr);
                    tmpl.family = step.new_family;
                }
            }
        }
        if fit == 0 {
            return Err(plain(Errno::ENODATA));
        }
        self.replace_templates(serial, tmpls);
        Ok(())
    }

    pub(crate) fn migrate_state(
        &mut self,
        order: &UserMigrateState,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        if order.id.spi.get() == 0 {
            return Err(Reason::MigrateSpi.into());
        }
        if order.reserved != 0 {
            return Err(Reason::MigrateReserved.into());
        }
        if order.flags & !XFRM_MIGRATE_STATE_KNOWN_FLAGS != 0 {
            // The kernel's text has the flags in it.
            return Err(Reject::message(Errno::EINVAL, "Unknown flags"));
        }
        verify::family(order.new_family)?;
        let follows = order.flags & XFRM_MIGRATE_STATE_UPDATE_H2H_SEL != 0;
        if !follows {
            verify::prefixes(order.new_sel.family, &order.new_sel)?;
        }
        let id = &order.id;
        let key = order.old_mark.v & order.old_mark.m;
        let from = self.states.find(key, &id.daddr, id.spi.get(), id.proto, id.family);
        let from = from.ok_or(Reject::from(Reason::MigrateUnknown))?;
        let Some(old) = self.states.get(from) else { return Err(Reason::MigrateUnknown.into()) };
        if follows && !is_host_to_host(old) {
            return Err(Reason::MigrateSelector.into());
        }
        let asked = attrs.encap()?;
        let encap = match asked {
            None => old.encap,
            Some(encap) if encap.encap_type == 0 => None,
            Some(encap) if encap.encap_type != UDP_ENCAP_ESPINUDP => return Err(Reason::MigrateEncap.into()),
            Some(encap) => Some(encap),
        };
        let maxage = attrs.mtimer_thresh()?;
        if maxage.is_some() {
            verify::mtimer(encap.is_some(), old.dir)?;
        }
        let keepalive = attrs.nat_keepalive_interval()?;
        if keepalive.unwrap_or(0) != 0 && encap.is_none() {
            return Err(Reason::MigrateKeepalive.into());
        }
        let offload = match attrs.offload_dev()? {
            None if order.flags & XFRM_MIGRATE_STATE_CLEAR_OFFLOAD == 0 => old.offload,
            asked => asked,
        };
        let new_mark = attrs.mark()?;
        let mut state = old.clone();
        if attrs.set_mark()?.is_some() {
            state.set_mark = set_mark(attrs)?;
        }
        state.encap = encap.map(unpadded);
        (state.mapping_maxage_s, state.keepalive_s) = if encap.is_some() {
            (maxage.unwrap_or(old.mapping_maxage_s), keepalive.unwrap_or(old.keepalive_s))
        } else {
            (0, 0)
        };
        state.mark = new_mark.unwrap_or(order.old_mark);
        state.info.sel = if follows { host_to_host(old, order) } else { order.new_sel };
        state.info.reqid = order.new_reqid;
        state.info.family = order.new_family;
        (state.info.id.daddr, state.info.saddr) = (order.new_daddr, order.new_saddr);
        let valid = old.km == Km::Valid;
        let elsewhere = order.new_family != id.family || !convert::equal(&order.new_daddr, &id.daddr, order.new_family);
        let new_key = new_mark.map_or(key, |mark: Mark| mark.v & mark.m);
        let taken = self.states.find(new_key, &order.new_daddr, id.spi.get(), id.proto, order.new_family);
        if elsewhere && taken.is_some() {
            return Err(Reason::MigrateOccupied.into());
        }
        self.init_state(&state)?;
        if offload.is_some() {
            partial::check_offload(&state)?;
        }
        if self.packet_owner(state.offload).is_some() {
            return Err(Reason::MigrateClone.into());
        }
        if !valid {
            return Err(Reason::MigrateDeleted.into());
        }
        let serial = self.move_state(from, state, offload, context.now.wall_s)?;
        let Some(state) = self.states.get(serial) else { return Ok(()) };
        let mut told = Vec::new();
        told.extend(asked.or(encap).map(Attribute::Encap));
        told.extend(offload.map(Attribute::OffloadDev));
        told.extend(new_mark.map(Attribute::Mark));
        if state.set_mark.v | state.set_mark.m != 0 {
            told.push(Attribute::SetMark(state.set_mark.v));
            told.push(Attribute::SetMarkMask(state.set_mark.m));
        }
        unless_zero(&mut told, state.mapping_maxage_s, Attribute::MtimerThresh);
        unless_zero(&mut told, state.keepalive_s, Attribute::NatKeepaliveInterval);
        if state.dir != 0 {
            told.push(Attribute::SaDir(state.dir));
        }
        let body = Body::MigrateState(UserMigrateState { new_sel: state.info.sel, ..*order });
        context.notify(XFRMNLGRP_MIGRATE, &XfrmMessage { body, attrs: told });
        Ok(())
    }
}

fn unpadded(encap: EncapTmpl) -> EncapTmpl {
    EncapTmpl { pad: [0; 2], ..encap }
}

/// Whether a state's selector is its own addresses.
fn is_host_to_host(state: &State) -> bool {
    let (info, sel) = (&state.info, &state.info.sel);
    let host = if info.family == AF_INET6 { 128 } else { 32 };
    (sel.prefixlen_s, sel.prefixlen_d) == (host, host)
        && convert::equal(&sel.daddr, &info.id.daddr, info.family)
        && convert::equal(&sel.saddr, &info.saddr, info.family)
}

/// The same selector for new addresses.
fn host_to_host(state: &State, order: &UserMigrateState) -> Selector {
    let host = if order.new_family == AF_INET6 { 128 } else { 32 };
    Selector {
        family: order.new_family,
        prefixlen_d: host,
        prefixlen_s: host,
        daddr: order.new_daddr,
        saddr: order.new_saddr,
        ..state.info.sel
    }
}

/// Checks a list of migrations (`xfrm_migrate_check`).
fn check(moves: &[UserMigrate]) -> Result<(), Reject> {
    for (i, step) in moves.iter().enumerate() {
        let is_none = |a: &sealane_abi::xfrm::Address| match step.new_family {
            AF_INET | AF_INET6 => a.ip(step.new_family).is_some_and(|ip| ip.is_unspecified()),
            _ => false,
        };
        if is_none(&step.new_daddr) || is_none(&step.new_saddr) {
            return Err(Reason::MigrateAddress.into());
        }
        let same = |other: &UserMigrate| {
            (step.old_daddr, step.old_saddr) == (other.old_daddr, other.old_saddr)
                && (step.proto, step.mode, step.reqid, step.old_family)
                    == (other.proto, other.mode, other.reqid, other.old_family)
        };
        if moves[i + 1..].iter().any(same) {
            return Err(Reason::MigrateTwice.into());
        }
    }
    Ok(())
}

/// Whether a step is for a template (`migrate_tmpl_match`).
fn template_fits(tmpl: &UserTmpl, step: &UserMigrate) -> bool {
    if tmpl.mode != step.mode || tmpl.id.proto != step.proto || (step.reqid != 0 && tmpl.reqid != step.reqid) {
        return false;
    }
    match tmpl.mode {
        XFRM_MODE_TUNNEL | XFRM_MODE_BEET | XFRM_MODE_IPTFS => {
            convert::equal(&tmpl.id.daddr, &step.old_daddr, step.old_family)
                && convert::equal(&tmpl.saddr, &step.old_saddr, step.old_family)
        }
        mode => mode == XFRM_MODE_TRANSPORT,
    }
}
