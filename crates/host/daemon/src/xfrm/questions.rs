//! Questions that NETLINK_XFRM does not have, in its form: a message type of ours, answered by one message with a text.

use sealane_abi::netlink::{Messages, NLMSG_HDRLEN, answer};
use sealane_engine::xfrm::{Replies, Sender};
use zeroize::Zeroizing;

/// What can be asked, by everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// What is in /proc/net/xfrm_stat.
    Stat,
    /// The offload devices: a line each of their name, their kind, `up` or `down`, and their counters by name and number.
    Devices,
    /// What became of packets between us and the kernel: a line each of a name and a number.
    Path,
}

impl Question {
    /// The type of its message.
    pub(crate) fn kind(self) -> u16 {
        match self {
            Question::Stat => 0xff00,
            Question::Devices => 0xff01,
            Question::Path => 0xff02,
        }
    }
}

/// The answer to a datagram that is such a question.
pub(super) fn answer(datagram: &[u8], from: &Sender, text: impl FnOnce(Question) -> String) -> Option<Replies> {
    let message = Messages::new(datagram).next()?;
    let all = [Question::Stat, Question::Devices, Question::Path];
    let question = all.into_iter().find(|q| q.kind() == message.header.nlmsg_type)?;
    let answer = answer::message(question.kind(), 0, message.header.nlmsg_seq, from.port, text(question).as_bytes());
    Some(Replies { unicast: vec![Zeroizing::new(answer)], events: Vec::new() })
}

/// The text in an answer.
pub(crate) fn text(datagram: &[u8], question: Question) -> Option<&str> {
    let message = Messages::new(datagram).next().filter(|m| m.header.nlmsg_type == question.kind())?;
    str::from_utf8(&message.bytes[NLMSG_HDRLEN..]).ok()
}
