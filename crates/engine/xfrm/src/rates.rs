//! The rules by which states of IP-TFS send at a constant rate, or at one that follows congestion. No request of a key manager
//! asks for that.

use crate::convert;
use crate::state::State;
use core::net::IpAddr;
use sealane_abi::xfrm::{XFRM_MODE_IPTFS, XFRM_SA_DIR_OUT};
use sealane_net_ipsec::iptfs::Rate;

/// Some states that send at a rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateRule {
    /// The peer's address; `None` for all.
    pub remote: Option<IpAddr>,
    /// The request id; `None` for all.
    pub reqid: Option<u32>,
    /// The interface id; `None` for all.
    pub if_id: Option<u32>,
    /// The rate of each of these states.
    pub rate: Rate,
}

impl RateRule {
    fn is_about(&self, state: &State) -> bool {
        let info = &state.info;
        self.remote.is_none_or(|address| address == convert::ip(&info.id.daddr, info.family))
            && self.reqid.is_none_or(|reqid| reqid == info.reqid)
            && self.if_id.is_none_or(|if_id| if_id == state.if_id)
    }
}

/// The rate of a state by the first of these rules that is about it.
pub(crate) fn of(rules: &[RateRule], state: &State) -> Option<Rate> {
    first(rules, state).map(|at| rules[at].rate)
}

/// The place of the first of these rules that is about a state.
pub(crate) fn first(rules: &[RateRule], state: &State) -> Option<usize> {
    if state.info.mode != XFRM_MODE_IPTFS || state.dir != XFRM_SA_DIR_OUT {
        return None;
    }
    rules.iter().position(|rule| rule.is_about(state))
}
