//! NETLINK_XFRM for a served program: a socket of NETLINK_USERSOCK whose frames go to the daemon of its network
//! namespace.
//!
//! The socket is a real one, and the program's. We keep nothing but its cookie, and borrow it for the length of a call.
//! The kernel serves poll, close, dup, fork, groups and overruns of buffers on it. Sending and receiving are
//! intercepted: the daemon's port number becomes the kernel's 0 on the way in, and datagrams of other senders are
//! dropped.

pub(super) mod link;
pub(super) mod receive;
pub(super) mod send;
mod socket;
pub(super) mod sockets;
mod stream;
mod unserved;

use super::server::{Done, Verdict};
use super::supervisor::CallContext;
use sealane_abi::netlink::NETLINK_XFRM;
use sealane_abi::sealane::XFRM_STAT_QUERY;
use sealane_sys::seccomp::XFRM_OPTIONS;
use sockets::XfrmSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

pub(super) use link::{only_served, refuse_pf_key};

/// One call.
struct XfrmCall<'a> {
    call: &'a CallContext<'a>,
    entry: Arc<XfrmSocket>,
    /// A duplicate of the program's descriptor, which goes with the call.
    fd: OwnedFd,
}

/// Performs a call if it is about IPsec.
pub(super) fn perform(call: &CallContext<'_>) -> Option<Done> {
    let (server, n) = (call.server, call.n);
    if n.nr == libc::SYS_socket {
        return match n.args[0] as i32 {
            libc::AF_NETLINK if n.args[2] as i32 == NETLINK_XFRM => Some(link::socket(call)),
            libc::AF_KEY => Some(refuse_pf_key(call)),
            _ => None,
        };
    }
    if n.nr == libc::SYS_setsockopt && XFRM_OPTIONS.contains(&(n.args[1] as i32, n.args[2] as i32)) {
        return Some(link::option(call));
    }
    if stream::is_ulp_call(n) {
        return Some(stream::perform(call));
    }
    if n.nr == libc::SYS_bind {
        link::bind(call);
    }
    if n.nr == libc::SYS_getsockopt && (n.args[1] as i32, n.args[2] as i32) == XFRM_STAT_QUERY {
        return Some(link::counters(call));
    }
    let fd = n.args[0] as u32;
    if server.xfrm.is_empty() || !server.watches(fd) {
        return None;
    }
    let fd = call.peer.borrow(fd).ok()?;
    let entry = server.xfrm.find(&fd).or_else(|| link::adopt(call, &fd))?;
    Some(XfrmCall { call, entry, fd }.make())
}

impl XfrmCall<'_> {
    /// Makes a call on one of our sockets.
    fn make(&self) -> Done {
        match self.call.n.nr {
            libc::SYS_sendto | libc::SYS_write | libc::SYS_writev | libc::SYS_pwritev2 => self.send_plain(),
            libc::SYS_sendmsg => self.sendmsg(self.call.n.arg(1), self.call.n.int(2)),
            libc::SYS_sendmmsg => self.sendmmsg(),
            libc::SYS_recvfrom | libc::SYS_read | libc::SYS_readv | libc::SYS_preadv2 => self.receive_plain(),
            libc::SYS_recvmsg => self.recvmsg(self.call.n.arg(1), self.call.n.int(2)),
            libc::SYS_recvmmsg => self.recvmmsg(),
            libc::SYS_connect => self.connect(),
            libc::SYS_getpeername => self.getpeername(),
            libc::SYS_setsockopt => self.setsockopt(),
            libc::SYS_getsockopt => self.getsockopt(),
            libc::SYS_accept | libc::SYS_accept4 | libc::SYS_listen | libc::SYS_shutdown => {
                Err(libc::EOPNOTSUPP.into())
            }
            libc::SYS_sendfile | libc::SYS_splice => Err(libc::EINVAL.into()),
            libc::SYS_dup => link::place(self.call, self.fd.as_fd(), false),
            libc::SYS_fcntl => match self.call.n.int(1) {
                command @ (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                    let numbers = self.call.numbers_from()?;
                    let cloexec = command == libc::F_DUPFD_CLOEXEC;
                    self.call.place(self.fd.as_fd(), cloexec, numbers)
                }
                _ => Err(Verdict::Pass),
            },
            libc::SYS_ioctl => self.ioctl(),
            // bind and getsockname are as they would be.
            libc::SYS_bind | libc::SYS_getsockname => Err(Verdict::Pass),
            // dup2 and dup3: outside of the watched range we would lose sight of it.
            _ if self.call.server.watches(self.call.n.arg(1) as u32) => Err(Verdict::Pass),
            _ => Err(libc::EMFILE.into()),
        }
    }
}
