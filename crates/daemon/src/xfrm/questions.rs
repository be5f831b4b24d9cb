//! Questions that NETLINK_XFRM does not have, in its form: a message type of ours, answered by one message.

use sealane_abi::netlink::{Messages, NLMSG_HDRLEN, answer};
use sealane_engine::xfrm::{Replies, Sender, Xfrm, proc_xfrm_stat};
use zeroize::Zeroizing;

/// What is in /proc/net/xfrm_stat: for everybody, as the file is. The answer has the text.
pub(crate) const STAT: u16 = 0xff00;

/// The answer to a datagram that is such a question.
pub(super) fn answer(engine: &Xfrm, datagram: &[u8], from: &Sender) -> Option<Replies> {
    let message = Messages::new(datagram).next().filter(|m| m.header.nlmsg_type == STAT)?;
    let text = proc_xfrm_stat(engine.stat());
    let answer = answer::message(STAT, 0, message.header.nlmsg_seq, from.port, text.as_bytes());
    Some(Replies { unicast: vec![Zeroizing::new(answer)], events: Vec::new() })
}

/// The text in an answer.
pub(crate) fn text(datagram: &[u8]) -> Option<&str> {
    let message = Messages::new(datagram).next().filter(|m| m.header.nlmsg_type == STAT)?;
    str::from_utf8(&message.bytes[NLMSG_HDRLEN..]).ok()
}
