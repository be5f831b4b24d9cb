//! NETLINK_USERSOCK: netlink between programs in a network namespace, used in place of NETLINK_XFRM.
//!
//! It is the one protocol that has all features of netlink (ports, groups, receive buffers that overrun) but no kernel
//! side. Anybody may send to it, so messages are checked by their port and by the credentials that the kernel adds.
//!
//! Requests that need rights go to a port of NETLINK_GENERIC instead ([`open_guarded`]): the kernel itself refuses a
//! message to another program's port there, unless the sender has CAP_NET_ADMIN over the network namespace
//! (`netlink_allowed` in af_netlink.c). So a receiver knows the rights that the sender had while it sent, also of a
//! process that it cannot look at, that has ended, or that has executed another program meanwhile.

use super::socket::{int_option, set_option};
use rustix::fs::OFlags;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, socket_timeout};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use sealane_abi::netlink::{NETLINK_USERSOCK, SockaddrNl};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Netlink option: received messages come with a control message that contains the group.
pub const NETLINK_PKTINFO: i32 = 3;

/// The send buffer in bytes of a guarded socket.
const LONGEST_GUARDED: i32 = 2 << 20;

/// The sender of a message, as the kernel reports it (`struct ucred`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The process; 0 if it is outside our process namespace.
    pub pid: u32,
    /// The real user.
    pub uid: u32,
}

/// The metadata of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The full length in bytes, even if it did not fit.
    pub len: usize,
    /// The sender's port.
    pub port: u32,
    /// The groups that it was sent to, as a mask; 0 if it was sent to our port.
    pub groups: u32,
    /// The sender; `None` on a socket without SO_PASSCRED.
    pub sender: Option<Credentials>,
    /// The group's number, on a socket with NETLINK_PKTINFO.
    pub group: Option<u32>,
}

/// The address of a port or of groups.
pub fn address(port: u32, groups: u32) -> SockaddrNl {
    SockaddrNl { nl_family: libc::AF_NETLINK as u16, nl_pad: 0, nl_pid: port, nl_groups: groups }
}

/// Opens a socket in the calling thread's network namespace. `flags` is SOCK_NONBLOCK or 0.
///
/// # Errors
/// The kernel's.
pub fn open(type_: i32, flags: i32) -> io::Result<OwnedFd> {
    super::socket::open(libc::AF_NETLINK, type_ | flags, NETLINK_USERSOCK)
}

/// Opens a socket of NETLINK_ROUTE in the calling thread's network namespace. `flags` is SOCK_NONBLOCK or 0.
///
/// # Errors
/// The kernel's.
pub fn open_route(type_: i32, flags: i32) -> io::Result<OwnedFd> {
    super::socket::open(libc::AF_NETLINK, type_ | flags, libc::NETLINK_ROUTE)
}

/// Opens a socket of NETLINK_GENERIC in the calling thread's network namespace. Only who has CAP_NET_ADMIN over that
/// namespace can send to its port, or connect to it. Every kernel with a network has this protocol.
///
/// # Errors
/// The kernel's.
pub fn open_guarded() -> io::Result<OwnedFd> {
    let fd = super::socket::open(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_NONBLOCK, libc::NETLINK_GENERIC)?;
    set_send_buffer(fd.as_fd(), LONGEST_GUARDED)?;
    Ok(fd)
}

/// Binds a socket to a port and groups.
///
/// # Errors
/// `AddrInUse` when the port is taken.
pub fn bind(fd: BorrowedFd<'_>, port: u32, groups: u32) -> io::Result<()> {
    Ok(rustix::net::bind(fd, &SocketAddrNetlink::new(port, groups))?)
}

/// Limits a socket to messages from one port, except for those to its groups.
///
/// # Errors
/// The kernel's.
pub fn connect(fd: BorrowedFd<'_>, port: u32) -> io::Result<()> {
    Ok(rustix::net::connect(fd, &SocketAddrNetlink::new(port, 0))?)
}

/// The port that a socket is connected to; 0 if it is connected to none.
///
/// # Errors
/// The kernel's.
pub fn connected(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let name = rustix::net::getpeername(fd)?.ok_or(rustix::io::Errno::NOTCONN)?;
    Ok(SocketAddrNetlink::try_from(name)?.pid())
}

/// A socket's port; 0 if it has none yet.
///
/// # Errors
/// The kernel's.
pub fn port(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(SocketAddrNetlink::try_from(rustix::net::getsockname(fd)?)?.pid())
}

/// Whether a socket has the port that [`port`] tells: it also tells one that `bind` has refused because it is taken
/// (`netlink_insert` in net/netlink/af_netlink.c). If that port has become free, the socket gets it now.
///
/// # Errors
/// The kernel's.
pub fn has_port(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let name = SocketAddrNetlink::try_from(rustix::net::getsockname(fd)?)?;
    if name.pid() == 0 {
        return Ok(false);
    }
    // To bind once more to what it has changes nothing.
    match bind(fd, name.pid(), name.groups()) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Ok(false),
        // Groups are for those with rights, and its maker had them when it bound.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        done => done.map(|()| true),
    }
}

/// Makes received messages come with credentials.
///
/// # Errors
/// The kernel's.
pub fn pass_credentials(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, &1i32)
}

/// Whether received messages come with credentials.
pub fn passes_credentials(fd: BorrowedFd<'_>) -> bool {
    int_option(fd, libc::SOL_SOCKET, libc::SO_PASSCRED).is_some_and(|v| v != 0)
}

/// Sets the receive buffer to `bytes`, beyond the system's limit if allowed.
///
/// # Errors
/// The kernel's.
pub fn set_receive_buffer(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
        .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
}

/// Sets the send buffer to `bytes`, beyond the system's limit if allowed; it limits the length of messages.
///
/// # Errors
/// The kernel's.
pub fn set_send_buffer(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
        .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
}

/// The send buffer in bytes, which limits the length of messages.
pub fn send_buffer(fd: BorrowedFd<'_>) -> Option<usize> {
    int_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).and_then(|bytes| usize::try_from(bytes).ok())
}

/// Whether a boolean netlink option (`SOL_NETLINK`) is set.
pub fn flag(fd: BorrowedFd<'_>, option: i32) -> bool {
    int_option(fd, libc::SOL_NETLINK, option).is_some_and(|v| v != 0)
}

/// Whether a descriptor is a socket of NETLINK_USERSOCK.
pub fn is_one(fd: BorrowedFd<'_>) -> bool {
    is_netlink(fd, NETLINK_USERSOCK)
}

/// Whether a descriptor is a socket of NETLINK_ROUTE.
pub fn is_route(fd: BorrowedFd<'_>) -> bool {
    is_netlink(fd, libc::NETLINK_ROUTE)
}

fn is_netlink(fd: BorrowedFd<'_>, protocol: i32) -> bool {
    int_option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_NETLINK)
        && int_option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(protocol)
}

/// Whether the descriptor is nonblocking (`O_NONBLOCK`).
pub fn nonblocking(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// The timeout of receiving (`SO_RCVTIMEO`); `None` if it is unlimited.
pub fn receive_timeout(fd: BorrowedFd<'_>) -> Option<std::time::Duration> {
    socket_timeout(fd, Timeout::Recv).ok().flatten()
}

/// Receives one message into `buf`, without waiting. `flags` may be MSG_PEEK.
///
/// # Errors
/// `WouldBlock` when there is none; `ENOBUFS` once after messages were lost.
pub fn receive(fd: BorrowedFd<'_>, buf: &mut [u8], flags: i32) -> io::Result<Frame> {
    let mut from = address(0, 0);
    let mut iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut control = [0u64; 16];
    // SAFETY: every pointer is to a live local or to `buf`, with its length beside it; control messages are read where
    // the kernel put them, within the length that it set.
    unsafe {
        let mut msg: libc::msghdr = core::mem::zeroed();
        msg.msg_name = (&raw mut from).cast();
        msg.msg_namelen = size_of_val(&from) as libc::socklen_t;
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(&control);
        let n = libc::recvmsg(fd.as_raw_fd(), &mut msg, flags | libc::MSG_DONTWAIT | libc::MSG_TRUNC);
        let Ok(len) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
        let mut frame = Frame { len, port: from.nl_pid, groups: from.nl_groups, sender: None, group: None };
        let mut head = libc::CMSG_FIRSTHDR(&msg);
        while !head.is_null() {
            match ((*head).cmsg_level, (*head).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    let c = libc::CMSG_DATA(head).cast::<libc::ucred>().read_unaligned();
                    frame.sender = Some(Credentials { pid: c.pid as u32, uid: c.uid });
                }
                (libc::SOL_NETLINK, NETLINK_PKTINFO) => {
                    frame.group = Some(libc::CMSG_DATA(head).cast::<u32>().read_unaligned());
                }
                _ => {}
            }
            head = libc::CMSG_NXTHDR(&msg, head);
        }
        Ok(frame)
    }
}

/// Sends one message to a port, without waiting.
///
/// # Errors
/// `ConnectionRefused` when the port has no owner, `WouldBlock` when its buffer is full, `EMSGSIZE` for a message longer
/// than our send buffer.
pub fn send(fd: BorrowedFd<'_>, port: u32, bytes: &[u8]) -> io::Result<usize> {
    transmit(fd, SocketAddrNetlink::new(port, 0), &[IoSlice::new(bytes)])
}

/// Sends one message, whose parts follow each other, from a socket of [`open_guarded`] to a port of another one, without
/// waiting.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over the network namespace of the socket; otherwise as [`send`].
pub fn send_guarded(fd: BorrowedFd<'_>, port: u32, parts: [&[u8]; 2]) -> io::Result<usize> {
    transmit(fd, SocketAddrNetlink::new(port, 0), &parts.map(IoSlice::new))
}

/// Sends one message to all listeners of a group.
///
/// # Errors
/// The kernel's, except for the error that port 0 has no owner, which it reports after delivery, and for a group
/// without listeners.
pub fn publish(fd: BorrowedFd<'_>, group: u32, bytes: &[u8]) -> io::Result<()> {
    let to = SocketAddrNetlink::new(0, sealane_abi::xfrm::group_bit(group));
    match transmit(fd, to, &[IoSlice::new(bytes)]) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNREFUSED | libc::ESRCH | libc::ENOBUFS)) => Ok(()),
        done => done.map(drop),
    }
}

fn transmit(fd: BorrowedFd<'_>, to: SocketAddrNetlink, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut control = SendAncillaryBuffer::default();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut send = || rustix::net::sendmsg_addr(fd, &to, parts, &mut control, flags);
    Ok(rustix::io::retry_on_intr(&mut send)?)
}

/// Lets other sockets of the same user bind to a socket's port (`SO_REUSEPORT`), even if it is already bound.
///
/// # Errors
/// The kernel's.
pub fn share_port(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1i32)
}

/// The mark of a socket's packets.
///
/// # Errors
/// The kernel's.
pub fn mark(fd: BorrowedFd<'_>) -> io::Result<u32> {
    super::socket::option(fd, libc::SOL_SOCKET, libc::SO_MARK)
}

/// Sets the mark of a socket's packets.
///
/// # Errors
/// The kernel's.
pub fn set_mark(fd: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, &mark)
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn a_refused_port_is_not_had() {
        const PORT: u32 = 0x5846_7778;
        let Some(netns) = testing::namespace("sys::usersock::has_port") else { return };
        let opened = || open(libc::SOCK_RAW, 0);
        let [first, other] = netns.run(|| Ok([opened()?, opened()?])).expect("sockets");
        assert!(!has_port(first.as_fd()).expect("a name"));
        bind(first.as_fd(), PORT, 5).expect("a port");
        assert!(has_port(first.as_fd()).expect("a name"));
        let name = SocketAddrNetlink::try_from(rustix::net::getsockname(&first).expect("a name")).expect("netlink");
        assert_eq!((name.pid(), name.groups()), (PORT, 5), "it is as before");
        assert_eq!(bind(other.as_fd(), PORT, 0).expect_err("taken").kind(), io::ErrorKind::AddrInUse);
        assert_eq!(port(other.as_fd()).expect("a name"), PORT);
        assert!(!has_port(other.as_fd()).expect("a name"));
        drop(first);
        assert!(has_port(other.as_fd()).expect("a name"));
    }

    #[test]
    fn a_socket_is_connected_to_a_port_or_none() {
        let Some(netns) = testing::namespace("sys::usersock::connected") else { return };
        let fd = netns.run(|| open(libc::SOCK_RAW, 0)).expect("a socket");
        assert_eq!(connected(fd.as_fd()).expect("a name"), 0);
        connect(fd.as_fd(), 7000).expect("connected");
        assert_eq!(connected(fd.as_fd()).expect("a name"), 7000);
    }

    #[test]
    fn the_kernel_lets_only_who_has_rights_send_to_a_guarded_port() {
        const PORT: u32 = 0x5846_7777;
        let Some(netns) = testing::namespace("sys::usersock") else { return };
        let (to, from) = netns.run(|| Ok((open_guarded()?, open_guarded()?))).expect("sockets");
        bind(to.as_fd(), PORT, 0).expect("a port");
        let send = || send_guarded(from.as_fd(), PORT, [b"re", b"quest"]).map_err(|e| e.raw_os_error());
        // The sender's rights count, not those of the process that made the socket.
        assert_eq!(testing::without_capabilities(send), Err(Some(libc::EPERM)));
        let connected = testing::without_capabilities(|| connect(from.as_fd(), PORT));
        assert_eq!(connected.map_err(|e| e.raw_os_error()), Err(Some(libc::EPERM)));
        let mut buf = [0; 16];
        assert_eq!(receive(to.as_fd(), &mut buf, 0).expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
        assert_eq!(send(), Ok(7));
        let frame = receive(to.as_fd(), &mut buf, 0).expect("a frame");
        assert_eq!((frame.port, &buf[..frame.len]), (port(from.as_fd()).expect("a name"), &b"request"[..]));
    }
}
