//! Senders of requests, answers to them and events.

use crate::time::Now;
use sealane_abi::netlink::answer::{AckOptions, ExtAck};
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::XfrmMessage;
use sealane_abi::{Caller, Errno, netlink};
use zeroize::Zeroizing;

/// The sender of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sender {
    /// The port of its socket.
    pub port: u32,
    /// Its privileges, checked by the owner of the socket. Every request needs CAP_NET_ADMIN.
    pub caller: Caller,
    /// The options of its socket for acknowledgements.
    pub ack: AckOptions,
}

/// An event for a multicast group. It may hold keys and is wiped.
#[derive(Clone, PartialEq, Eq)]
pub struct Notice {
    /// `XFRMNLGRP_...`.
    pub group: u32,
    /// One message.
    pub bytes: Zeroizing<Vec<u8>>,
}

impl Notice {
    /// Encodes an event.
    pub(crate) fn new(group: u32, message: &XfrmMessage, seq: u32, port: u32) -> Self {
        Notice { group, bytes: message.encode(0, seq, port) }
    }
}

/// The answers and events that a datagram causes. They may hold keys and are wiped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Replies {
    /// Datagrams for the sender, in their order.
    pub unicast: Vec<Zeroizing<Vec<u8>>>,
    /// Events, in their order.
    pub events: Vec<Notice>,
}

/// The context of one request.
pub(crate) struct RequestContext<'a> {
    /// Header of the request.
    pub(crate) header: netlink::Nlmsghdr,
    /// Port of the sender.
    pub(crate) port: u32,
    /// The time.
    pub(crate) now: Now,
    /// Collects answers and events.
    pub(crate) replies: &'a mut Replies,
}

impl RequestContext<'_> {
    /// Answers with one message.
    pub(crate) fn reply(&mut self, message: &XfrmMessage) {
        self.replies.unicast.push(message.encode(0, self.header.nlmsg_seq, self.port));
    }

    /// Tells a group, with sequence number and port of the request's header.
    pub(crate) fn notify(&mut self, group: u32, message: &XfrmMessage) {
        let header = &self.header;
        self.replies.events.push(Notice::new(group, message, header.nlmsg_seq, header.nlmsg_pid));
    }
}

/// A refusal without a text.
pub(crate) const fn plain(errno: Errno) -> Reject {
    Reject { errno, attr: None, ack: ExtAck { text: None, offset: None, rule: None } }
}
