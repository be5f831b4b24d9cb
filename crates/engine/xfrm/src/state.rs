//! A state as a key manager said it, and how it is told back (`copy_to_user_state_extra`).

use super::aevent_notify::Told;
use super::device::StateKey;
use super::keepalive::Looked;
use super::numbers::Series;
use super::{Xfrm, convert};
use sealane_abi::xfrm::{
    Address, Algo, AlgoAead, AlgoAuth, Attribute, Body, EncapTmpl, LifetimeCur, Mark, Message, ReplayState,
    ReplayStateEsn, Stats, UserExpire, UserOffload, UsersaId, UsersaInfo, XFRMNLGRP_EXPIRE,
};
use sealane_net::ipsec::lifetime::Usage;
use sealane_net::ipsec::sa::SaId;

/// Where a state is in its life (`XFRM_STATE_...`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Km {
    /// It stands for one that a key manager was asked for, or that it reserved the SPI of.
    Acquiring,
    /// In use.
    Valid,
}

/// Sequence numbers and window as they were said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Replay {
    /// 32 bits.
    Legacy(ReplayState),
    /// A bitmap of any size.
    Esn(ReplayStateEsn),
}

/// Ticks of the kernel's clock in a second, as on the machine of the record; times of events are given in them, and told
/// in tenths of a second.
pub(crate) const TICKS_S: u32 = 100;

/// A state. Algorithms hold keys: there is no `Debug`.
#[derive(Clone)]
pub(crate) struct State {
    /// The fixed part: lifetimes used up and faults are what they were when it was made.
    pub(crate) info: UsersaInfo,
    pub(crate) km: Km,
    /// The state that packets go through, if they can.
    pub(crate) sa: Option<SaId>,
    pub(crate) aead: Option<AlgoAead>,
    pub(crate) auth: Option<AlgoAuth>,
    pub(crate) crypt: Option<Algo>,
    pub(crate) comp: Option<Algo>,
    pub(crate) encap: Option<EncapTmpl>,
    pub(crate) coaddr: Option<Address>,
    pub(crate) extra_flags: u32,
    pub(crate) tfcpad: u32,
    pub(crate) mark: Mark,
    pub(crate) set_mark: Mark,
    pub(crate) if_id: u32,
    pub(crate) dir: u8,
    pub(crate) cpu: Option<u32>,
    pub(crate) keepalive_s: u32,
    pub(crate) keepalive: Looked,
    pub(crate) mapping_maxage_s: u32,
    /// Packets between two events of replay (`replay_maxdiff`).
    pub(crate) replay_thresh: u32,
    /// Time between two, in ticks of the kernel's clock (`replay_maxage`).
    pub(crate) replay_ticks: u32,
    /// The device that has it, and how.
    pub(crate) offload: Option<UserOffload>,
    pub(crate) replay: Replay,
    /// Numbers and packets when `replay` was said: as long as they stand, it does.
    pub(crate) replay_at: Option<super::replay::Position>,
    /// What was told of it.
    pub(crate) told: Told,
    /// What its device calls it.
    pub(crate) device_key: Option<StateKey>,
    /// What its numbers are leased by.
    pub(crate) series: Option<Series>,
    /// When its limits are looked at, where no packets go through, in seconds of wall time.
    pub(crate) look_at_s: Option<u64>,
    /// Whether a soft limit was told, where no packets go through.
    pub(crate) dying: bool,
}

impl State {
    /// A state of which nothing is said but this.
    pub(crate) fn new(info: UsersaInfo, km: Km) -> Self {
        State {
            info,
            km,
            sa: None,
            aead: None,
            auth: None,
            crypt: None,
            comp: None,
            encap: None,
            coaddr: None,
            extra_flags: 0,
            tfcpad: 0,
            mark: Mark::default(),
            set_mark: Mark::default(),
            if_id: 0,
            dir: 0,
            cpu: None,
            keepalive_s: 0,
            keepalive: Looked::default(),
            mapping_maxage_s: 0,
            replay_thresh: 0,
            replay_ticks: 0,
            offload: None,
            replay: Replay::Legacy(ReplayState::default()),
            replay_at: None,
            told: Told::default(),
            device_key: None,
            series: None,
            look_at_s: None,
            dying: false,
        }
    }

    /// Whether the mark of a request is for it.
    pub(crate) fn fits_mark(&self, mark: u32) -> bool {
        mark & self.mark.m == self.mark.v
    }

    /// What names it.
    pub(crate) fn id(&self) -> UsersaId {
        let info = &self.info;
        UsersaId { daddr: info.id.daddr, spi: info.id.spi, family: info.family, proto: info.id.proto, pad: 0 }
    }
}

/// The attribute of an optional number that is told unless it is 0.
pub(crate) fn unless_zero(attrs: &mut Vec<Attribute>, value: u32, attribute: fn(u32) -> Attribute) {
    if value != 0 {
        attrs.push(attribute(value));
    }
}

/// The attribute of a mark, told unless all of it is 0.
pub(crate) fn mark_attr(attrs: &mut Vec<Attribute>, mark: Mark) {
    if mark.v | mark.m != 0 {
        attrs.push(Attribute::Mark(mark));
    }
}

impl Xfrm {
    /// What a state has been used for.
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
        unless_zero(&mut attrs, state.mapping_maxage_s, Attribute::MtimerThresh);
        attrs.extend(state.cpu.map(Attribute::SaPcpu));
        if state.dir != 0 {
            attrs.push(Attribute::SaDir(state.dir));
        }
        unless_zero(&mut attrs, state.keepalive_s, Attribute::NatKeepaliveInterval);
        attrs
    }

    /// The answer to a question for it.
    pub(crate) fn new_sa_message(&self, state: &State) -> Message {
        Message { body: Body::NewSa(self.info(state)), attrs: self.attributes(state) }
    }

    /// The event of its being changed.
    pub(crate) fn upd_sa_message(&self, state: &State) -> Message {
        Message { body: Body::UpdSa(self.info(state)), attrs: self.attributes(state) }
    }

    /// The event of its being deleted.
    pub(crate) fn del_sa_message(&self, state: &State) -> Message {
        let mut attrs = vec![Attribute::Sa(self.info(state))];
        attrs.extend(self.attributes(state));
        Message { body: Body::DelSa(state.id()), attrs }
    }

    /// The event of a limit (`build_expire`); its number is 0.
    pub(crate) fn expire_notice(&self, state: &State, hard: bool, port: u32) -> super::Notice {
        let mut attrs = Vec::new();
        mark_attr(&mut attrs, state.mark);
        unless_zero(&mut attrs, state.if_id, Attribute::IfId);
        attrs.extend(state.cpu.map(Attribute::SaPcpu));
        if state.dir != 0 {
            attrs.push(Attribute::SaDir(state.dir));
        }
        let body = Body::Expire(UserExpire { state: self.info(state), hard: hard.into(), pad: [0; 7] });
        super::Notice::new(XFRMNLGRP_EXPIRE, &Message { body, attrs }, 0, port)
    }
}
