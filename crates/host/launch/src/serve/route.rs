//! NETLINK_ROUTE for a served program: the kernel's own socket, of which a few messages are looked at, so that the program
//! can have devices of kind `xfrm`.
//!
//! The daemon of the network namespace makes such a device: a TUN device that seals (`sealane_ipsec`'s `interface`), whose
//! alias says what it is. So there are three things to do, and all else is between program and kernel:
//!
//! ```text
//!  program ─ sendmsg ─▶ RTM_NEWLINK of kind xfrm in it?  no ─▶ the program itself sends it
//!                        ├ yes: the daemon makes the device, we answer to the program's port ([`send`])
//!                        └ all devices of that kind? we ask for all, in its name
//!  program ◀ recvmsg ── a device of ours, or our answer?  no ─▶ the program itself receives it
//!                        └ yes: we give it, with kind xfrm in place of tun
//! ```
//!
//! Our answer comes from a port of NETLINK_ROUTE to the program's, where it waits behind what the kernel sent before, and
//! wakes who polls. The kernel lets only who has CAP_NET_ADMIN send there; [`is_xfrm_port`] tells ours from others.
//!
//! Only who has CAP_NET_ADMIN over a network namespace that a daemon serves gets such a socket. The socket of any other
//! program is made by itself, and the launcher sees nothing of it.
//!
//! **Cost.** For every program, `socket(AF_NETLINK, _, NETLINK_ROUTE)` stops once, for the launcher to look at its rights: two
//! switches of processes. Where the socket is one of ours, `sendmsg` and `recvmsg` stop, too. A request that is not about a
//! device of ours costs the two system calls, and about ten of the launcher's for each of them: to take and to answer the
//! notification (three), to borrow the descriptor and close it (four), to ask which protocol it has (two), to read memory or peek.

mod call;
mod links;
mod requests;
mod send;
mod shown;

use super::server::{Done, Verdict};
use super::supervisor::CallContext;
use super::xfrm::{link, receive, send as sending};
use call::RouteCall;
use sealane_abi::netlink::answer::{AckOptions, ExtAck, ack};
use sealane_abi::netlink::{Message, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NLM_F_ACK};
use sealane_abi::sealane::{Interface, is_xfrm_port, xfrm_port};
use sealane_sys::link as device;
use sealane_sys::netns::{self, Netns};
use sealane_sys::random;
use sealane_sys::thread::Span;
use sealane_sys::usersock::{self, Frame};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// The most bytes that are looked at first: the kernel's longest part of a dump.
const USUAL: usize = 32 << 10;
/// The most ports that are tried until one is free.
const PORTS: usize = 64;

/// Performs a call if it is about NETLINK_ROUTE.
pub(super) fn perform(call: &CallContext<'_>) -> Option<Done> {
    let (server, n) = (call.server, call.n);
    if n.nr == libc::SYS_socket {
        let is_route = n.args[0] as i32 == libc::AF_NETLINK && n.args[2] as i32 == libc::NETLINK_ROUTE;
        return is_route.then(|| socket(call));
    }
    if !server.routes.load(Ordering::Acquire) {
        return None;
    }
    let route_socket = |fd: u64| {
        let fd = server.watches(fd as u32).then(|| call.peer.borrow(fd as u32).ok()).flatten();
        fd.filter(|fd| usersock::is_route(fd.as_fd()))
    };
    // A splice sends to its third argument.
    let third = || (n.nr == libc::SYS_splice).then(|| route_socket(n.args[2])).flatten();
    let fd = route_socket(n.args[0]).or_else(third)?;
    Some(RouteCall { call, fd }.make())
}

/// `socket(AF_NETLINK, ..., NETLINK_ROUTE)`.
fn socket(call: &CallContext<'_>) -> Done {
    const FLAGS: i32 = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let type_ = call.n.args[1] as i32;
    if call.peer.secure() || !matches!(type_ & !FLAGS, libc::SOCK_RAW | libc::SOCK_DGRAM) {
        return Err(Verdict::Pass);
    }
    let open = || usersock::open_route(type_ & !FLAGS, type_ & libc::SOCK_NONBLOCK);
    let Some(socket) = link::open_where_served(call, open) else { return Err(Verdict::Pass) };
    call.server.routes.store(true, Ordering::Release);
    match link::place(call, socket.as_fd(), type_ & libc::SOCK_CLOEXEC != 0) {
        // Without a number that is watched it is the kernel's alone.
        Err(Verdict::Fail(libc::EMFILE)) => Err(Verdict::Pass),
        placed => placed,
    }
}

/// The next frame of a socket.
enum Next {
    /// The program receives it itself.
    Untouched,
    /// It is given to the program, with these bytes.
    Given(Frame, Vec<u8>),
}

impl RouteCall<'_> {
    /// Makes a call on one of the sockets that are looked at.
    fn make(&self) -> Done {
        match self.call.n.nr {
            libc::SYS_pwritev2 | libc::SYS_preadv2 if self.call.n.arg(3) as i64 != -1 => Err(Verdict::Pass),
            libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwritev2 => self.send(),
            libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_preadv2 => self.receive(),
            // What they would send would not be looked at.
            libc::SYS_sendfile | libc::SYS_splice => Err(libc::EINVAL.into()),
            libc::SYS_dup => link::place(self.call, self.fd.as_fd(), false),
            libc::SYS_fcntl if matches!(self.call.n.int(1), libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                let numbers = self.call.numbers_from()?;
                let cloexec = self.call.n.int(1) == libc::F_DUPFD_CLOEXEC;
                self.call.place(self.fd.as_fd(), cloexec, numbers)
            }
            _ => Err(Verdict::Pass),
        }
    }

    /// The program's memory of a call that receives into one buffer, or into a vector of them.
    fn spans(&self) -> Result<Vec<Span>, i32> {
        match self.call.n.nr {
            libc::SYS_readv | libc::SYS_preadv2 => {
                self.call.peer.spans(self.call.n.arg(1), self.call.n.arg(2), libc::EINVAL)
            }
            _ => Ok(vec![Span { at: self.call.n.arg(1), len: self.call.n.arg(2) as usize }]),
        }
    }

    /// Answers a request, as the kernel does.
    fn answer(&self, request: &Message<'_>, outcome: Result<(), links::Refused>) -> Result<(), Verdict> {
        if outcome.is_ok() && request.header.nlmsg_flags & NLM_F_ACK == 0 {
            return Ok(());
        }
        let fd = self.fd.as_fd();
        let options = AckOptions { cap: usersock::flag(fd, NETLINK_CAP_ACK), ext: usersock::flag(fd, NETLINK_EXT_ACK) };
        let ext = outcome.as_ref().err().and_then(|refused| refused.text).map(ExtAck::text).unwrap_or_default();
        let to = self.port()?;
        let bytes = ack(request, to, outcome.map_err(|refused| refused.errno), options, &ext);
        let netns = Netns::of_socket(fd).map_err(errno)?;
        let sent = link::within(&netns, || {
            let from = answering_socket()?;
            usersock::send(from.as_fd(), to, &bytes)
        });
        match sent {
            // The kernel's answers, too, are lost where there is no room (`netlink_ack`).
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent.map(drop).map_err(|e| errno(e).into()),
        }
    }

    /// The port of the program's socket, which sending gives to it if it has none.
    fn port(&self) -> Result<u32, Verdict> {
        let fd = self.fd.as_fd();
        if !usersock::has_port(fd).map_err(errno)? {
            sending::bind_like_kernel(self.call.peer, fd, 0)?;
        }
        Ok(usersock::port(fd).map_err(errno)?)
    }

    fn receive(&self) -> Done {
        let (mut message, flags) = match self.call.n.nr {
            libc::SYS_recvmsg => (self.message(), self.call.n.int(2)),
            libc::SYS_recvmmsg => (self.message(), self.call.n.int(3)),
            libc::SYS_recvfrom => (None, self.call.n.int(3)),
            _ => (None, 0),
        };
        let spans = match (&message, self.call.n.nr) {
            (Some(message), _) => message.spans.clone(),
            (None, libc::SYS_recvmsg | libc::SYS_recvmmsg) => return Err(Verdict::Pass),
            _ => self.spans().map_err(|_| Verdict::Pass)?,
        };
        let room = receive::room(&spans);
        if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 || room == 0 && flags & libc::MSG_PEEK == 0 {
            return Err(Verdict::Pass);
        }
        let flags = flags & !libc::MSG_WAITFORONE;
        let next = receive::await_frame(self.call, self.fd.as_fd(), flags, || self.look(room))?;
        let Next::Given(frame, bytes) = next else { return Err(Verdict::Pass) };
        let done = match &mut message {
            Some(message) => message.give(self.call.peer, flags, &frame, &bytes, frame.sender.is_some()),
            None => self.give(&spans, flags, &frame, &bytes),
        }?;
        if self.call.n.nr == libc::SYS_recvmmsg {
            self.call.peer.write(&[Span { at: self.call.n.arg(1) + 56, len: 4 }], &(done as u32).to_ne_bytes())?;
        }
        let done = if self.call.n.nr == libc::SYS_recvmmsg { 1 } else { done };
        if flags & libc::MSG_PEEK == 0 {
            self.call.note_result(done);
            usersock::receive(self.fd.as_fd(), &mut [], 0).map_err(errno)?;
        }
        Ok(done)
    }

    fn message(&self) -> Option<receive::ReceivingMessage> {
        receive::ReceivingMessage::read(self.call.peer, self.call.n.arg(1)).ok()
    }

    fn give(&self, spans: &[Span], flags: i32, frame: &Frame, bytes: &[u8]) -> Done {
        let room = receive::room(spans);
        self.call.peer.write(spans, &bytes[..bytes.len().min(room)])?;
        if self.call.n.nr == libc::SYS_recvfrom && self.call.n.arg(4) != 0 {
            receive::name_out(self.call.peer, 0, frame.groups, self.call.n.arg(4), self.call.n.arg(5))?;
        }
        Ok(receive::told_len(bytes, room, flags))
    }

    /// A datagram of the kernel's with our devices as xfrm interfaces, if it tells of one.
    fn shown(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let netns = netns::cookie(self.fd.as_fd()).unwrap_or(0);
        shown::rewritten(bytes, netns, |index| {
            let there = Netns::of_socket(self.fd.as_fd());
            let alias = there.and_then(|there| link::within(&there, || device::alias(&device::name(index)?)));
            alias.ok().flatten().is_some_and(|alias| Interface::of_alias(&alias).is_some())
        })
    }

    /// Looks at the next frame, if there is one, which stays in the socket.
    fn look(&self, room: usize) -> Result<Option<Next>, Verdict> {
        let fd = self.fd.as_fd();
        // The kernel makes the parts of a dump as long as the longest buffer that it has seen.
        let mut bytes = vec![0; room.min(USUAL)];
        loop {
            let frame = match usersock::receive(fd, &mut bytes, libc::MSG_PEEK) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                frame => frame.map_err(errno)?,
            };
            let ours = is_xfrm_port(frame.port) && frame.groups == 0;
            if frame.len > bytes.len() {
                if !ours && frame.len > room {
                    return Ok(Some(Next::Untouched));
                }
                bytes = vec![0; frame.len];
                continue;
            }
            bytes.truncate(frame.len);
            let shown = if frame.port == 0 { self.shown(&bytes) } else { None };
            return Ok(Some(match shown {
                Some(shown) => Next::Given(frame, shown),
                None if ours => Next::Given(frame, bytes),
                None => Next::Untouched,
            }));
        }
    }
}

/// A socket of the calling thread's namespace, at a port by which answers are known to be ours.
fn answering_socket() -> io::Result<OwnedFd> {
    let socket = usersock::open_route(libc::SOCK_RAW, libc::SOCK_NONBLOCK)?;
    for _ in 0..PORTS {
        let mut bytes = [0; 4];
        random::fill(&mut bytes);
        match usersock::bind(socket.as_fd(), xfrm_port(u32::from_ne_bytes(bytes)), 0) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound.map(|()| socket),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

fn errno(e: io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}
