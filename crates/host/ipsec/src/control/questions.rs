//! Answers to the [`Question`]s that NETLINK_XFRM does not have.

use sealane_abi::netlink::{Messages, answer};
use sealane_abi::sealane::Question;
use sealane_engine_xfrm::{Replies, Sender};
use zeroize::Zeroizing;

/// The answer to a datagram that is such a question.
pub(crate) fn answer(datagram: &[u8], from: &Sender, text: impl FnOnce(Question) -> String) -> Option<Replies> {
    let message = Messages::new(datagram).next()?;
    let question = Question::ALL.into_iter().find(|q| q.kind() == message.header.nlmsg_type)?;
    let answer = answer::message(question.kind(), 0, message.header.nlmsg_seq, from.port, text(question).as_bytes());
    Some(Replies { unicast: vec![Zeroizing::new(answer)], events: Vec::new() })
}
