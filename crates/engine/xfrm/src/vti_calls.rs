//! Policies for the packets of VTI devices, which are refused.

use crate::namespace::Xfrm;
use crate::policy::PolicyRecord;
use crate::vti::VtiKeys;
use crate::{convert, policy};
use sealane_abi::netlink::rules::Reject;
use sealane_abi::netlink::{Message, Messages, NLM_F_REQUEST};
use sealane_abi::xfrm::{Body, Reason, Request, XFRM_MSG_NEWPOLICY, XFRM_MSG_UPDPOLICY};
use sealane_net_ipsec::selector::Mark;
use sealane_net_ipsec::spd::Dir;

impl Xfrm {
    /// The directions and marks of the policies that a datagram adds or updates, of those that may be for VTI devices.
    #[must_use]
    pub fn marked_policies(datagram: &[u8]) -> Vec<(Dir, Mark)> {
        let marked = |message: Message<'_>| {
            let is_policy = matches!(message.header.nlmsg_type, XFRM_MSG_NEWPOLICY | XFRM_MSG_UPDPOLICY);
            let asked = is_policy && message.header.nlmsg_flags & NLM_F_REQUEST != 0;
            let request = if asked { Request::decode(&message).ok()? } else { return None };
            let (Body::NewPolicy(info) | Body::UpdPolicy(info)) = request.body else { return None };
            let mut mark = convert::mark(request.attrs.mark().ok()??);
            mark.value &= mark.mask;
            let if_id = request.attrs.if_id().ok()?.unwrap_or(0);
            (mark.mask != 0 && if_id == 0).then(|| (policy::dir(info.dir), mark))
        };
        Messages::new(datagram).filter_map(marked).collect()
    }

    /// The VTI devices that there are: policies for their packets are refused from now on.
    pub fn set_vtis(&mut self, vtis: Vec<VtiKeys>) {
        self.vtis = vtis;
    }

    /// Refuses a policy that could not do what it is for.
    pub(crate) fn refuse_vti(&self, policy: &PolicyRecord) -> Result<(), Reject> {
        let (dir, mark) = (policy::dir(policy.info.dir), convert::mark(policy.mark));
        let refused = policy.if_id == 0 && self.vtis.iter().any(|vti| vti.fit(dir, mark));
        if refused { Err(Reason::Vti.into()) } else { Ok(()) }
    }
}
