//! Dumps: many messages, packed into datagrams, and an end.

use super::{Serving, Xfrm};
use sealane_abi::netlink::NLM_F_MULTI;
use sealane_abi::netlink::answer::{AckOptions, ExtAck, done};
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{Message, Request, StateFilter};
use zeroize::Zeroizing;

/// Length of one datagram of a dump in bytes: the kernel's least (`NLMSG_GOODSIZE`), which every client has room for.
const DATAGRAM_LEN: usize = 3776;

/// Packs messages into datagrams.
struct Packer {
    datagrams: Vec<Zeroizing<Vec<u8>>>,
}

impl Packer {
    fn new() -> Self {
        Packer { datagrams: Vec::new() }
    }

    fn push(&mut self, message: &Message, seq: u32, port: u32) {
        let bytes = message.encode(NLM_F_MULTI, seq, port);
        match self.datagrams.last_mut() {
            Some(last) if last.len() + bytes.len() <= DATAGRAM_LEN => last.extend_from_slice(&bytes),
            _ => {
                // Room for all that will be in it: a vector that grows leaves copies of keys behind.
                let mut datagram = Zeroizing::new(Vec::with_capacity(DATAGRAM_LEN.max(bytes.len())));
                datagram.extend_from_slice(&bytes);
                self.datagrams.push(datagram);
            }
        }
    }

    /// Hands all to the sender, with the end behind it in a datagram of its own.
    fn finish(self, serving: &mut Serving<'_>, options: AckOptions, warning: &ExtAck) {
        serving.replies.unicast.extend(self.datagrams);
        let end = done(serving.header.nlmsg_seq, serving.port, 0, Ok(()), options, warning);
        serving.replies.unicast.push(Zeroizing::new(end));
    }
}

impl Xfrm {
    /// All states that a filter lets through, the newest first (`xfrm_dump_sa`).
    pub(super) fn dump_states(
        &self,
        request: &Request<'_>,
        serving: &mut Serving<'_>,
        options: AckOptions,
    ) -> Result<(), Reject> {
        let filter = StateFilter::new(&request.attrs)?;
        let mut packer = Packer::new();
        for (_, state) in self.states.iter() {
            let info = &state.info;
            if filter.matches(info.id.proto, info.family, &info.saddr, &info.id.daddr) {
                packer.push(&self.new_sa_message(state), serving.header.nlmsg_seq, serving.port);
            }
        }
        packer.finish(serving, options, &request.warning);
        Ok(())
    }

    /// All policies, the newest first (`xfrm_dump_policy`).
    pub(super) fn dump_policies(&self, serving: &mut Serving<'_>, options: AckOptions) {
        let mut packer = Packer::new();
        for (_, policy) in self.policies.iter() {
            packer.push(&policy.new_message(&self.spd), serving.header.nlmsg_seq, serving.port);
        }
        packer.finish(serving, options, &ExtAck::default());
    }
}
