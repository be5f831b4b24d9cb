//! Dumps: many messages, packed into datagrams, and an end.

use crate::namespace::Xfrm;
use crate::reply::RequestContext;
use sealane_abi::netlink::NLM_F_MULTI;
use sealane_abi::netlink::answer::{AckOptions, ExtAck, done};
use sealane_abi::netlink::packer::Packer;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{Request, StateFilter};
use zeroize::Zeroizing;

/// Length of one datagram of a dump in bytes: the kernel's least (`NLMSG_GOODSIZE`), which every client has room for.
const DATAGRAM_LEN: usize = 3776;

/// Hands datagrams to the sender, with the end behind them in one of its own.
fn finish(packer: Packer, context: &mut RequestContext<'_>, options: AckOptions, warning: &ExtAck) {
    context.replies.unicast.extend(packer.finish());
    let end = done(context.header.nlmsg_seq, context.port, 0, Ok(()), options, warning);
    context.replies.unicast.push(Zeroizing::new(end));
}

impl Xfrm {
    /// All states that a filter lets through, the newest first (`xfrm_dump_sa`).
    pub(crate) fn dump_states(
        &self,
        request: &Request<'_>,
        context: &mut RequestContext<'_>,
        options: AckOptions,
    ) -> Result<(), Reject> {
        let filter = StateFilter::new(&request.attrs)?;
        let mut packer = Packer::new(DATAGRAM_LEN);
        for (_, state) in self.states.iter() {
            let info = &state.info;
            if filter.matches(info.id.proto, info.family, &info.saddr, &info.id.daddr) {
                packer.push(&self.new_sa_message(state).encode(NLM_F_MULTI, context.header.nlmsg_seq, context.port));
            }
        }
        finish(packer, context, options, &request.warning);
        Ok(())
    }

    /// All policies, the newest first (`xfrm_dump_policy`).
    pub(crate) fn dump_policies(&self, context: &mut RequestContext<'_>, options: AckOptions) {
        let mut packer = Packer::new(DATAGRAM_LEN);
        for (_, policy) in self.policies.iter() {
            packer.push(&policy.new_message(&self.data.spd).encode(
                NLM_F_MULTI,
                context.header.nlmsg_seq,
                context.port,
            ));
        }
        finish(packer, context, options, &ExtAck::default());
    }
}
