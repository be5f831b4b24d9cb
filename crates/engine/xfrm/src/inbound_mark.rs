//! Marks of packets that come in, where the kernel does not tell them.

use crate::namespace::Xfrm;
use crate::reply::plain;
use sealane_abi::Errno;
use sealane_abi::netlink::answer::ExtAck;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::Mark;

const UNKNOWN: &str = "Marks of packets that come in are not known before Linux 5.19";

impl Xfrm {
    /// Says that packets come in without their marks. Inbound policies and states that ask for one are refused from now
    /// on: they would match nothing.
    pub fn come_without_marks(&mut self) {
        self.settings.knows_marks = false;
    }

    /// Refuses the mark of a policy or state for packets that come in, where no packet would match it.
    pub(crate) fn check_inbound_mark(&self, mark: Mark) -> Result<(), Reject> {
        if mark.m == 0 || self.settings.knows_marks {
            return Ok(());
        }
        let Reject { errno, attr, ack } = plain(Errno::EOPNOTSUPP);
        Err(Reject { errno, attr, ack: ExtAck { text: Some(UNKNOWN), ..ack } })
    }
}
