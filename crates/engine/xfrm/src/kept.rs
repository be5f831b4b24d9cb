//! Policies as requests, by which another engine gets them again.

use crate::namespace::Xfrm;
use crate::reply::Sender;
use crate::time::Now;
use sealane_abi::Caller;
use sealane_abi::netlink::answer::AckOptions;
use sealane_abi::netlink::{Messages, NLM_F_REQUEST};
use sealane_abi::xfrm::{Attribute, Body, XFRM_MSG_NEWPOLICY, XfrmMessage};

impl Xfrm {
    /// The requests that make the present policies and defaults in an engine without any. No key is in them, nor their
    /// devices: those may be gone by then, and without its device a policy protects the same packets.
    pub fn policy_requests(&self) -> Vec<u8> {
        let mut requests = Vec::new();
        let mut push = |message: XfrmMessage| requests.extend_from_slice(&message.encode(NLM_F_REQUEST, 0, 0));
        push(XfrmMessage::new(Body::SetDefault(self.settings.defaults)));
        // The oldest first, because of two with one priority the older one counts.
        for policy in self.policies.policies.values() {
            let mut message = policy.new_message(&self.data.spd);
            message.attrs.retain(|attribute| !matches!(attribute, Attribute::OffloadDev(_)));
            push(message);
        }
        requests
    }

    /// Adds the policies of [`Self::policy_requests`]; returns how many. `None` if one of them is refused: then none is
    /// added, because some would protect less than all.
    pub fn restore_policies(&mut self, requests: &[u8], now: Now) -> Option<usize> {
        let ours = Sender { port: 0, caller: Caller { privileged: true }, ack: AckOptions::default() };
        // Without NLM_F_ACK only refusals are answered.
        let refused = !self.call(requests, ours, now).unicast.is_empty();
        let wanted = Messages::new(requests).filter(|m| m.header.nlmsg_type == XFRM_MSG_NEWPOLICY).count();
        let added = self.policies.counts().iter().sum::<u32>() as usize;
        if refused || added != wanted {
            let flush = XfrmMessage::new(Body::FlushPolicy).encode(NLM_F_REQUEST, 0, 0);
            self.call(&flush, ours, now);
            return None;
        }
        Some(added)
    }
}
