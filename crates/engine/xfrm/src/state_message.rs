//! States told back (`copy_to_user_state_extra`).

use crate::namespace::Xfrm;
use crate::replay::{Position, Replay, position};
use crate::reply::Notice;
use crate::state::{State, mark_attr, unless_zero};
use crate::{convert, iptfs};
use sealane_abi::xfrm::{
    Algo, Attribute, Body, LifetimeCur, Stats, UserExpire, UsersaInfo, XFRMNLGRP_EXPIRE, XfrmMessage,
};
use sealane_net_ipsec::lifetime::Usage;

impl Xfrm {
    /// The usage of a state.
    pub(crate) fn usage(&self, state: &State) -> Usage {
        if let Some((used, _)) = self.device_counters(state) {
            // The device does not know when it was added, and the clock is the stack's.
            return Usage { add_time_s: state.info.curlft.add_time, ..used };
        }
        state.sa.and_then(|sa| self.data.sad.usage(sa)).unwrap_or_else(|| convert::usage(&state.info.curlft))
    }

    /// The fixed part as it stands (`copy_to_user_state`).
    pub(crate) fn info(&self, state: &State) -> UsersaInfo {
        let stats = match self.device_counters(state) {
            Some((_, stat)) => stat,
            None => state.sa.and_then(|sa| self.data.sad.get(sa)).map(|sa| sa.stat).unwrap_or_default(),
        };
        let curlft: LifetimeCur = convert::lifetime_cur(&self.usage(state));
        UsersaInfo {
            curlft,
            stats: Stats {
                replay_window: stats.replay_window,
                replay: stats.replay,
                integrity_failed: stats.integrity_failed,
            },
            pad: [0; 7],
            ..state.info
        }
    }

    /// The attributes that go with it, in the kernel's order.
    fn attributes(&self, state: &State) -> Vec<Attribute> {
        let mut attrs = Vec::new();
        unless_zero(&mut attrs, state.extra_flags, Attribute::SaExtraFlags);
        attrs.extend(state.coaddr.map(Attribute::Coaddr));
        let last_used_s = self.see_sad(state, |sad, sa| sad.get(sa).map_or(0, |sa| sa.last_used_s)).unwrap_or(0);
        if last_used_s != 0 {
            attrs.push(Attribute::Lastused(last_used_s));
        }
        attrs.extend(state.aead.clone().map(Attribute::AlgAead));
        if let Some(auth) = &state.auth {
            let plain = Algo { alg_name: auth.alg_name, alg_key_len: auth.alg_key_len, alg_key: auth.alg_key.clone() };
            attrs.push(Attribute::AlgAuth(plain));
            attrs.push(Attribute::AlgAuthTrunc(auth.clone()));
        }
        attrs.extend(state.crypt.clone().map(Attribute::AlgCrypt));
        attrs.extend(state.comp.clone().map(Attribute::AlgComp));
        attrs.extend(state.encap.map(Attribute::Encap));
        unless_zero(&mut attrs, state.tfcpad, Attribute::Tfcpad);
        mark_attr(&mut attrs, state.mark);
        if state.set_mark.v | state.set_mark.m != 0 {
            attrs.push(Attribute::SetMark(state.set_mark.v));
            attrs.push(Attribute::SetMarkMask(state.set_mark.m));
        }
        attrs.push(self.replay_attr(state));
        attrs.extend(state.offload.map(Attribute::OffloadDev));
        unless_zero(&mut attrs, state.if_id, Attribute::IfId);
        iptfs::tell(state, &mut attrs);
        unless_zero(&mut attrs, state.mapping_maxage_s, Attribute::MtimerThresh);
        attrs.extend(state.cpu.map(Attribute::SaPcpu));
        if state.dir != 0 {
            attrs.push(Attribute::SaDir(state.dir));
        }
        unless_zero(&mut attrs, state.keepalive_s, Attribute::NatKeepaliveInterval);
        attrs
    }

    /// The answer to a question for it.
    pub(crate) fn new_sa_message(&self, state: &State) -> XfrmMessage {
        XfrmMessage { body: Body::NewSa(self.info(state)), attrs: self.attributes(state) }
    }

    /// The event of its being changed.
    pub(crate) fn upd_sa_message(&self, state: &State) -> XfrmMessage {
        XfrmMessage { body: Body::UpdSa(self.info(state)), attrs: self.attributes(state) }
    }

    /// The event of its being deleted.
    pub(crate) fn del_sa_message(&self, state: &State) -> XfrmMessage {
        let mut attrs = vec![Attribute::Sa(self.info(state))];
        attrs.extend(self.attributes(state));
        XfrmMessage { body: Body::DelSa(state.id()), attrs }
    }

    /// The event of a limit (`build_expire`); its number is 0.
    pub(crate) fn expire_notice(&self, state: &State, hard: bool, port: u32) -> Notice {
        let mut attrs = Vec::new();
        mark_attr(&mut attrs, state.mark);
        unless_zero(&mut attrs, state.if_id, Attribute::IfId);
        attrs.extend(state.cpu.map(Attribute::SaPcpu));
        if state.dir != 0 {
            attrs.push(Attribute::SaDir(state.dir));
        }
        let body = Body::Expire(UserExpire { state: self.info(state), hard: hard.into(), pad: [0; 7] });
        Notice::new(XFRMNLGRP_EXPIRE, &XfrmMessage { body, attrs }, 0, port)
    }

    /// The current sequence numbers of a state; `None` if no packets go through it.
    pub(crate) fn position(&self, state: &State) -> Option<Position> {
        self.see_sad(state, position).flatten()
    }

    /// Numbers and window as they stand.
    pub(crate) fn replay(&self, state: &State) -> Replay {
        let now = self.see_sad(state, |sad, sa| state.sequence.snapshot(sad, sa)).flatten();
        now.unwrap_or_else(|| state.sequence.said().clone())
    }

    /// The attribute that says so.
    pub(crate) fn replay_attr(&self, state: &State) -> Attribute {
        match self.replay(state) {
            Replay::Legacy(replay) => Attribute::ReplayVal(replay),
            Replay::Esn(replay) => Attribute::ReplayEsnVal(replay),
        }
    }
}
