//! States of ESP with a partial MAC, `auth-trunc 'partial(cmac(aes),1/4)'`: off unless somebody has said that parts of packets may be
//! altered unnoticed, and refused wherever the argument of `docs/partial-mac.md` does not hold.

use crate::convert;
use crate::namespace::Xfrm;
use crate::reply::Notice;
use crate::serial::Serial;
use crate::state::State;
use sealane_abi::Errno;
use sealane_abi::cryptouser::name_field;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{AlgoAuth, Reason, XFRM_STATE_ESN};
use sealane_net_ipsec::sa::may_have_partial_mac;
use sealane_net_ipsec::transform::PartialInfo;

/// Texts of refusals.
pub(crate) const NOT_ALLOWED: &str =
    "Partial MACs let parts of packets be altered unnoticed: set allow-partial-macs in [ipsec]";
pub(crate) const TOO_SHORT: &str = "The tag of a partial MAC must not be truncated so far";
pub(crate) const NOT_HERE: &str =
    "A partial MAC is for ESP with ESN, in tunnel mode, or in transport mode without encapsulation";
pub(crate) const KEY_IN_USE: &str = "Another state has this key of a partial MAC: each direction needs its own";
pub(crate) const NO_DEVICE: &str = "A state with a partial MAC cannot be offloaded";
pub(crate) const NO_CHANGE: &str = "An update cannot turn a partial MAC into another MAC, or another one into it";

/// The partial MAC that an algorithm's name means.
pub(crate) fn info(auth: &AlgoAuth) -> Option<PartialInfo> {
    PartialInfo::of(core::str::from_utf8(auth.name()).ok()?)
}

impl State {
    /// The partial MAC that it has, with its key.
    pub(crate) fn partial_mac(&self) -> Option<(PartialInfo, &[u8])> {
        self.auth.as_ref().and_then(|auth| Some((info(auth)?, auth.alg_key.expose())))
    }
}

impl Xfrm {
    /// Whether states may have partial MACs from now on; none may before the first call. Those that have one end when they may not,
    /// as if a hard limit had been reached: the events.
    #[must_use]
    pub fn allow_partial_macs(&mut self, allowed: bool) -> Vec<Notice> {
        self.partial_macs = allowed;
        if allowed {
            return Vec::new();
        }
        let ended: Vec<Serial> =
            self.states.iter().filter(|(_, state)| state.partial_mac().is_some()).map(|(serial, _)| serial).collect();
        let told = ended.iter().filter_map(|serial| self.states.get(*serial));
        let notices = told.map(|state| self.expire_notice(state, true, 0)).collect();
        ended.into_iter().for_each(|serial| self.remove_state(serial));
        notices
    }

    /// Checks the algorithm of a request, and fills in the length of the ICV. The key is checked when it is prepared.
    pub(crate) fn attach_partial(&self, mac: PartialInfo, mut auth: AlgoAuth) -> Result<AlgoAuth, Reject> {
        if !self.partial_macs {
            return Err(Reject::message(Errno::ENOSYS, NOT_ALLOWED));
        }
        if auth.alg_trunc_len == 0 {
            auth.alg_trunc_len = 8 * mac.usual_tag_len() as u32;
        }
        if auth.alg_trunc_len as usize > 8 * mac.full_tag_len() {
            return Err(Reason::TruncLength.into());
        }
        if (auth.alg_trunc_len as usize) < 8 * mac.min_tag_len() {
            return Err(Reject::message(Errno::EINVAL, TOO_SHORT));
        }
        auth.alg_name = name_field(&mac.name());
        Ok(auth)
    }

    /// Checks that a state may have what it has.
    pub(crate) fn check_partial(&self, state: &State) -> Result<(), Reject> {
        if state.partial_mac().is_none() {
            return Ok(());
        }
        let info = &state.info;
        let is_esn = info.flags & XFRM_STATE_ESN != 0;
        let fits = |(proto, mode)| may_have_partial_mac(proto, mode, state.encap.is_some(), is_esn);
        match convert::proto(info.id.proto).zip(convert::mode(info.mode)) {
            Some(of) if fits(of) => self.check_numbers(state),
            _ => Err(Reject::message(Errno::EINVAL, NOT_HERE)),
        }
    }

    /// Checks that no other state has the key of a partial MAC, whatever stands beside it there: a number must not be used twice under
    /// it, and with one key for both directions the two ends would.
    pub(crate) fn check_partial_key(&self, state: &State) -> Result<(), Reject> {
        let Some((_, key)) = state.partial_mac() else { return Ok(()) };
        let has_it = |other: &State| other.partial_mac().is_some_and(|(_, other)| other == key);
        if self.states.iter().any(|(_, other)| has_it(other)) {
            return Err(Reject::message(Errno::EEXIST, KEY_IN_USE));
        }
        Ok(())
    }
}

/// Checks that a state that is to be offloaded has none.
pub(crate) fn check_offload(state: &State) -> Result<(), Reject> {
    if state.partial_mac().is_some() { Err(Reject::message(Errno::EINVAL, NO_DEVICE)) } else { Ok(()) }
}

/// Checks that an update that leaves a state its keys does not ask for another kind of MAC, or another fraction.
pub(crate) fn check_update(old: &State, new: &State) -> Result<(), Reject> {
    if old.partial_mac().is_none() && new.partial_mac().is_none() {
        return Ok(());
    }
    if old.auth != new.auth { Err(Reject::message(Errno::EINVAL, NO_CHANGE)) } else { Ok(()) }
}
