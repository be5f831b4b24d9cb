//! A state as a key manager said it.

use crate::aevents::LastReplayEvent;
use crate::device::StateKey;
use crate::keepalive::NextChecks;
use crate::numbers::Series;
use crate::replay::{Replay, Sequence};
use crate::serial::Serial;
use crate::timers::Timer;
use sealane_abi::xfrm::{
    Address, Algo, AlgoAead, AlgoAuth, Attribute, EncapTmpl, Mark, ReplayState, UserOffload, UsersaId, UsersaInfo,
};
use sealane_net_ipsec::iptfs;
use sealane_net_ipsec::sa::SaId;

/// The phase of a state's life (`XFRM_STATE_...`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Km {
    /// Requested from a key manager, or with an SPI that it has reserved.
    Acquiring,
    /// In use.
    Valid,
}

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
    /// The state of IP in IP for what the peer of this one does not compress.
    pub(crate) tunnel: Option<Serial>,
    /// The number of states whose tunnel this is. One that is nobody's request has some (`xfrm_state_kern`).
    pub(crate) tunnel_users: u32,
    pub(crate) encap: Option<EncapTmpl>,
    pub(crate) coaddr: Option<Address>,
    pub(crate) extra_flags: u32,
    pub(crate) tfcpad: u32,
    pub(crate) mark: Mark,
    pub(crate) set_mark: Mark,
    pub(crate) if_id: u32,
    pub(crate) dir: u8,
    pub(crate) cpu: Option<u32>,
    /// The properties of IP-TFS, of states in that mode.
    pub(crate) iptfs: Option<iptfs::Config>,
    pub(crate) keepalive_s: u32,
    pub(crate) keepalive: NextChecks,
    pub(crate) mapping_maxage_s: u32,
    /// Packets between two events of replay (`replay_maxdiff`).
    pub(crate) replay_thresh: u32,
    /// Time between two, in ticks of the kernel's clock (`replay_maxage`).
    pub(crate) replay_ticks: u32,
    /// The device that has it, and how.
    pub(crate) offload: Option<UserOffload>,
    pub(crate) sequence: Sequence,
    /// The last replay event about it.
    pub(crate) last_event: LastReplayEvent,
    /// Its key in the device.
    pub(crate) device_key: Option<StateKey>,
    /// The series from which its numbers are leased.
    pub(crate) series: Option<Series>,
    /// The next check of its limits, if no packets go through it.
    pub(crate) timer: Option<Timer>,
    /// Whether a soft expiry was reported, if no packets go through it.
    pub(crate) dying: bool,
}

impl State {
    /// A state with nothing but its fixed part.
    pub(crate) fn new(info: UsersaInfo, km: Km) -> Self {
        State {
            info,
            km,
            sa: None,
            aead: None,
            auth: None,
            crypt: None,
            comp: None,
            tunnel: None,
            tunnel_users: 0,
            encap: None,
            coaddr: None,
            extra_flags: 0,
            tfcpad: 0,
            mark: Mark::default(),
            set_mark: Mark::default(),
            if_id: 0,
            dir: 0,
            cpu: None,
            iptfs: None,
            keepalive_s: 0,
            keepalive: NextChecks::default(),
            mapping_maxage_s: 0,
            replay_thresh: 0,
            replay_ticks: 0,
            offload: None,
            sequence: Sequence::of(Replay::Legacy(ReplayState::default())),
            last_event: LastReplayEvent::default(),
            device_key: None,
            series: None,
            timer: None,
            dying: false,
        }
    }

    /// Size of its replay window in packets.
    pub(crate) fn window_pkts(&self) -> u32 {
        match self.sequence.said() {
            Replay::Legacy(_) => self.info.replay_window.into(),
            Replay::Esn(esn) => esn.replay_window,
        }
    }

    /// Whether the mark of a request is for it.
    pub(crate) fn fits_mark(&self, mark: u32) -> bool {
        mark & self.mark.m == self.mark.v
    }

    /// Its id: destination, SPI, protocol.
    pub(crate) fn id(&self) -> UsersaId {
        let info = &self.info;
        UsersaId { daddr: info.id.daddr, spi: info.id.spi, family: info.family, proto: info.id.proto, pad: 0 }
    }
}

/// Appends the attribute of an optional number unless it is 0.
pub(crate) fn unless_zero(attrs: &mut Vec<Attribute>, value: u32, attribute: fn(u32) -> Attribute) {
    if value != 0 {
        attrs.push(attribute(value));
    }
}

/// Appends the attribute of a mark unless all of it is 0.
pub(crate) fn mark_attr(attrs: &mut Vec<Attribute>, mark: Mark) {
    if mark.v | mark.m != 0 {
        attrs.push(Attribute::Mark(mark));
    }
}
