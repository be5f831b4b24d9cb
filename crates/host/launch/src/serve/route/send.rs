//! Datagrams of a program to the kernel, which may have several requests each (`netlink_rcv_skb` in
//! net/netlink/af_netlink.c).
//!
//! The kernel does one request after another, so that one about a device of ours can be taken out: what is before it and what
//! is behind it goes to the kernel in datagrams of their own, by the program's socket, but from this process. Only requests
//! that mean the same whoever sends them ([`is_anybodys`]) may stand beside one of ours. A request for all devices of kind
//! `xfrm` goes to the kernel as one for all devices ([`widened`]).

use super::call::RouteCall;
use super::links::{Asked, of_all_kinds};
use super::{errno, requests::is_anybodys};
use crate::serve::server::{Done, Verdict};
use crate::serve::xfrm::link::may_administer;
use crate::serve::xfrm::receive::{ReceivingMessage, room};
use sealane_abi::netlink::{Message, Messages, SockaddrNl, align};
use sealane_abi::socket::{MAX_MESSAGES, MMSGHDR_LEN};
use sealane_sys::netns::Netns;
use sealane_sys::thread::Span;
use sealane_sys::usersock;
use std::os::fd::AsFd;
use zerocopy::FromBytes;

/// The most bytes of one call that are looked at; the kernel's limit is the socket's send buffer.
const MAX_REQUESTS: usize = 16 << 20;
/// The offset of the result in a message of `sendmmsg` (`struct mmsghdr`).
const MSG_LEN: u64 = 56;

impl RouteCall<'_> {
    /// Calls without a request about a device of ours the program makes itself, with whatever is wrong with them.
    pub(super) fn send(&self) -> Done {
        let datagrams = self.datagrams();
        let may_be_ours = |m: Message<'_>| Asked::read(&m).is_some() || widened(&m).is_some();
        if !datagrams.iter().flat_map(|bytes| Messages::new(bytes)).any(may_be_ours) {
            return Err(Verdict::Pass);
        }
        let netns = Netns::of_socket(self.fd.as_fd()).map_err(errno)?;
        if !may_administer(self.call.peer, &netns) {
            // Anybody may ask, and nothing else may go out by this process. The rest the kernel refuses to the program itself.
            return if only_asks(&datagrams) { self.send_all(&netns, &datagrams) } else { Err(Verdict::Pass) };
        }
        let is_ours =
            |m: &Message<'_>| widened(m).is_some() || Asked::read(m).is_some_and(|asked| asked.concerns_ours(&netns));
        let (ours, others): (Vec<_>, Vec<_>) =
            datagrams.iter().flat_map(|bytes| Messages::new(bytes)).partition(is_ours);
        if ours.is_empty() {
            return Err(Verdict::Pass);
        }
        if !others.iter().all(is_anybodys) {
            self.call.tell_of_program("NETLINK_ROUTE", BESIDE);
            return Err(libc::EOPNOTSUPP.into());
        }
        self.send_all(&netns, &datagrams)
    }

    fn send_all(&self, netns: &Netns, datagrams: &[Vec<u8>]) -> Done {
        for (i, bytes) in datagrams.iter().enumerate() {
            match (self.send_one(netns, bytes), self.call.n.nr) {
                (Err(Verdict::Fail(_)), _) if i > 0 => return Ok(i as i64),
                (Err(e), _) => return Err(e),
                (Ok(()), libc::SYS_sendmmsg) => {
                    let at = self.call.n.arg(1) + i as u64 * MMSGHDR_LEN + MSG_LEN;
                    self.call.peer.write(&[Span { at, len: 4 }], &(bytes.len() as u32).to_ne_bytes())?;
                }
                (Ok(()), _) => return Ok(bytes.len() as i64),
            }
        }
        Ok(datagrams.len() as i64)
    }

    /// Has the requests of a datagram done, in order.
    fn send_one(&self, netns: &Netns, datagram: &[u8]) -> Result<(), Verdict> {
        let (mut for_kernel, mut has_begun) = (Vec::new(), false);
        for message in Messages::new(datagram) {
            if let Some(asked) = Asked::read(&message).filter(|asked| asked.concerns_ours(netns)) {
                has_begun |= self.pass_on(&mut for_kernel)?;
                let outcome = asked.carry_out(self.call, netns).inspect_err(|_| {
                    if has_begun {
                        // What was before it would be done twice.
                        self.call.not_restarted();
                    }
                })?;
                self.answer(&message, outcome)?;
                has_begun = true;
            } else {
                let all = widened(&message);
                if all.is_none() && !is_anybodys(&message) {
                    // The device that it is about was one of ours a moment ago.
                    return Err(libc::EOPNOTSUPP.into());
                }
                for_kernel.extend_from_slice(all.as_deref().unwrap_or(message.bytes));
                for_kernel.resize(align(for_kernel.len()), 0);
            }
        }
        self.pass_on(&mut for_kernel).map(drop)
    }

    /// Sends requests to the kernel by the program's socket. Returns whether there were any.
    fn pass_on(&self, requests: &mut Vec<u8>) -> Result<bool, Verdict> {
        if requests.is_empty() {
            return Ok(false);
        }
        // Otherwise the socket would get the port of this process.
        self.port()?;
        usersock::send(self.fd.as_fd(), 0, requests).map_err(errno)?;
        requests.clear();
        Ok(true)
    }

    /// The datagrams of the call, up to the first that cannot be read or does not go to the kernel.
    fn datagrams(&self) -> Vec<Vec<u8>> {
        let n = self.call.n;
        let plain = || vec![Span { at: n.arg(1), len: n.arg(2) as usize }];
        let mut left = MAX_REQUESTS;
        let mut read = |spans: Vec<Span>, to: (u64, u32), flags: i32| {
            let total = room(&spans);
            if flags & libc::MSG_OOB != 0 || !self.goes_to_kernel(to) {
                return None;
            }
            left = left.checked_sub(total)?;
            let mut bytes = vec![0; total];
            self.call.peer.read(&spans, &mut bytes).ok().map(|()| bytes)
        };
        let mut message = |at, flags| {
            let message = ReceivingMessage::read(self.call.peer, at).ok()?;
            read(message.spans.clone(), message.name(), flags)
        };
        match n.nr {
            libc::SYS_sendmsg => message(n.arg(1), n.int(2)).into_iter().collect(),
            libc::SYS_sendmmsg => {
                let count = (n.arg(2) as u32).min(MAX_MESSAGES);
                (0..u64::from(count)).map_while(|i| message(n.arg(1) + i * MMSGHDR_LEN, n.int(3))).collect()
            }
            libc::SYS_sendto => read(plain(), (n.arg(4), n.int(5) as u32), n.int(3)).into_iter().collect(),
            libc::SYS_write => read(plain(), (0, 0), 0).into_iter().collect(),
            _ => {
                let spans = self.call.peer.spans(n.arg(1), n.arg(2), libc::EINVAL);
                spans.ok().and_then(|spans| read(spans, (0, 0), 0)).into_iter().collect()
            }
        }
    }

    /// Whether what is sent to this address, or to none, goes to the kernel alone.
    fn goes_to_kernel(&self, (at, len): (u64, u32)) -> bool {
        if at == 0 || len == 0 {
            return usersock::connected(self.fd.as_fd()).is_ok_and(|port| port == 0);
        }
        let bytes = self.call.peer.bytes::<{ size_of::<SockaddrNl>() }>(at);
        let to = bytes.ok().filter(|_| len as usize >= size_of::<SockaddrNl>());
        to.and_then(|bytes| SockaddrNl::read_from_bytes(&bytes).ok())
            .is_some_and(|to| i32::from(to.nl_family) == libc::AF_NETLINK && to.nl_pid == 0 && to.nl_groups == 0)
    }
}

/// [`of_all_kinds`], if that means the same whoever sends it: it may name another namespace.
fn widened(m: &Message<'_>) -> Option<Vec<u8>> {
    of_all_kinds(m).filter(|all| Messages::new(all).all(|m| is_anybodys(&m)))
}

/// Whether all requests are such, which need no rights.
fn only_asks(datagrams: &[Vec<u8>]) -> bool {
    datagrams.iter().flat_map(|bytes| Messages::new(bytes)).all(|m| widened(&m).is_some())
}

/// The sentence for a program whose requests cannot be told apart.
const BESIDE: &str = "asks for an xfrm interface in one call with requests that only it can make itself: the call is refused; \
                      send the request about the interface in a call of its own";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::route::call::IFINFOMSG;
    use sealane_abi::if_link::IFLA_TARGET_NETNSID;
    use sealane_abi::netlink::answer::message;
    use sealane_abi::netlink::{NLM_F_DUMP, NLM_F_REQUEST, push_attr};

    fn asks(type_: u16) -> Vec<u8> {
        let (mut payload, mut info) = (vec![0; IFINFOMSG], Vec::new());
        push_attr(&mut info, libc::IFLA_INFO_KIND, b"xfrm\0");
        push_attr(&mut payload, libc::IFLA_LINKINFO, &info);
        push_attr(&mut payload, type_, &[1, 0, 0, 0]);
        message(libc::RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0, &payload)
    }

    #[test]
    fn without_rights_one_may_only_ask() {
        let (one, mut payload) = (asks(libc::IFLA_EXT_MASK), vec![0; IFINFOMSG]);
        push_attr(&mut payload, libc::IFLA_IFNAME, b"eth0\0");
        let change = message(libc::RTM_NEWLINK, NLM_F_REQUEST, 2, 0, &payload);
        assert!(only_asks(&[one.clone(), one.clone()]) && only_asks(&[[one.clone(), one.clone()].concat()]));
        assert!(!only_asks(&[one.clone(), change.clone()]) && !only_asks(&[[one, change].concat()]));
        assert!(!only_asks(&[asks(IFLA_TARGET_NETNSID)]));
    }

    #[test]
    fn no_other_namespace_is_looked_into_for_a_program() {
        let is_widened = |type_: u16| {
            let bytes = asks(type_);
            widened(&Messages::new(&bytes).next().expect("a message")).is_some()
        };
        assert!(is_widened(libc::IFLA_EXT_MASK) && is_widened(libc::IFLA_MASTER));
        assert!(!is_widened(IFLA_TARGET_NETNSID));
    }
}
