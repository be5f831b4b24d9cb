//! Offload of states and policies to devices (`net/xfrm/xfrm_device.c`).

use super::policy::PolicyRecord;
use super::state::State;
use super::{Xfrm, plain};
use sealane_abi::Errno;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    Reason, UserOffload, XFRM_OFFLOAD_INBOUND, XFRM_OFFLOAD_IPV6, XFRM_OFFLOAD_PACKET, XFRM_SA_DIR_IN, XFRM_SA_DIR_OUT,
};

impl Xfrm {
    /// Gives a state to a device, or not (`xfrm_dev_state_add`).
    pub(super) fn offload_state(&mut self, state: &mut State, wanted: &UserOffload) -> Result<(), Reject> {
        let known = XFRM_OFFLOAD_IPV6 | XFRM_OFFLOAD_INBOUND | XFRM_OFFLOAD_PACKET;
        let inbound = wanted.flags & XFRM_OFFLOAD_INBOUND != 0;
        let packet = wanted.flags & XFRM_OFFLOAD_PACKET != 0;
        let reason = match state.dir {
            _ if wanted.flags & !known != 0 => Reason::OffloadFlags,
            XFRM_SA_DIR_OUT if inbound => Reason::OffloadDir,
            XFRM_SA_DIR_IN if !inbound => Reason::OffloadDir,
            _ if inbound && state.if_id != 0 => Reason::OffloadIfId,
            _ if state.tfcpad != 0 => Reason::OffloadTfc,
            // There is no device: what is only faster with one goes without.
            _ => return if packet { Err(plain(Errno::EINVAL)) } else { Ok(()) },
        };
        Err(reason.into())
    }

    /// Gives a policy to a device (`xfrm_dev_policy_add`).
    pub(super) fn offload_policy(&mut self, _policy: &mut PolicyRecord, wanted: &UserOffload) -> Result<(), Reject> {
        if wanted.flags != XFRM_OFFLOAD_PACKET {
            return Err(Reason::OffloadFlags.into());
        }
        Err(Reason::OffloadPolicies.into())
    }

    /// Takes a state back.
    pub(super) fn unload_state(&mut self, state: &mut State) {
        state.offload = None;
    }

    /// Takes a policy back.
    pub(super) fn unload_policy(&mut self, _policy: &PolicyRecord) {}
}
