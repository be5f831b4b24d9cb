//! A TCP socket of a served program, borrowed for one call: queries about its state.
//!
//! The descriptor is a duplicate of the program's. It is dropped before the call is answered, because a longer-lived
//! duplicate would keep the connection open after the program closes its own.

use super::socket::int_option as int;
use rustix::net::SocketAddrAny;
use sealane_abi::socket::{TCP_ULP, TCP_ULP_NAME_MAX};
use sealane_abi::tcp::TCP_AO_INFO;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

const SO_BINDTOIFINDEX: i32 = 62;
const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;

/// Address family and protocol; `None` for descriptors that are not sockets.
#[must_use]
pub fn kind(fd: BorrowedFd<'_>) -> Option<(i32, i32)> {
    Some((int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?, int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)?))
}

/// Whether this kernel has TCP-AO of its own (CONFIG_TCP_AO, Linux 6.7 and later), which other programs may use: a socket without
/// it says so, and a kernel without it does not know the question.
///
/// # Errors
/// The kernel's, when there is no socket to ask.
pub fn kernel_has_tcp_ao() -> io::Result<bool> {
    // `struct tcp_ao_info_opt`.
    const INFO_LEN: usize = 48;
    let fd = super::socket::open(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    let asked = super::socket::option::<[u8; INFO_LEN]>(fd.as_fd(), libc::IPPROTO_TCP, TCP_AO_INFO);
    Ok(asked.map_or_else(|e| e.raw_os_error() == Some(libc::ENOENT), |_| true))
}

/// The kernel's cookie of the socket: unique since boot and never reused.
///
/// # Errors
/// `ENOTSOCK`.
pub fn cookie(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::net::sockopt::socket_cookie(fd)?)
}

/// The kernel's number of its TCP state (`TCP_ESTABLISHED` is 1, ..., `TCP_LISTEN` 10): the first byte of `tcp_info`.
#[must_use]
pub fn state(fd: BorrowedFd<'_>) -> Option<u8> {
    let info: [u8; 8] = super::socket::option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).ok()?;
    Some(info[0])
}

/// Whether there is a protocol above it (`TCP_ULP`).
#[must_use]
pub fn has_ulp(fd: BorrowedFd<'_>) -> bool {
    super::socket::option::<[u8; TCP_ULP_NAME_MAX]>(fd, libc::IPPROTO_TCP, TCP_ULP).is_ok_and(|name| name[0] != 0)
}

/// The index of the device that it is bound to; 0 if none.
#[must_use]
pub fn bound_ifindex(fd: BorrowedFd<'_>) -> i32 {
    int(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX).unwrap_or(0)
}

/// Whether an IPv6 socket refuses IPv4.
#[must_use]
pub fn v6_only(fd: BorrowedFd<'_>) -> bool {
    int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1)
}

/// In repair mode, the sequence numbers of its send and receive queues; `None` otherwise.
#[must_use]
pub fn repair_seqs(fd: BorrowedFd<'_>) -> Option<(u32, u32)> {
    const RECV_QUEUE: i32 = 1;
    const SEND_QUEUE: i32 = 2;
    let tcp = libc::IPPROTO_TCP;
    int(fd, tcp, TCP_REPAIR).filter(|on| *on > 0)?;
    // Only one queue can be read at a time; the program's choice is restored.
    let chosen = int(fd, tcp, TCP_REPAIR_QUEUE)?;
    let seq = |queue: i32| {
        set(fd, tcp, TCP_REPAIR_QUEUE, &queue.to_ne_bytes()).ok()?;
        int(fd, tcp, TCP_QUEUE_SEQ)
    };
    let (send, receive) = (seq(SEND_QUEUE), seq(RECV_QUEUE));
    let _ = set(fd, tcp, TCP_REPAIR_QUEUE, &chosen.to_ne_bytes());
    Some((send? as u32, receive? as u32))
}

/// `setsockopt(2)`.
///
/// # Errors
/// The kernel's.
pub fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    super::socket::set_option(fd, level, name, value)
}

/// The local address; `None` before it has one.
#[must_use]
pub fn local(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    without_flow_label(rustix::net::getsockname(fd).ok()?)
}

/// The peer's address; `None` while it has none.
#[must_use]
pub fn peer(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    without_flow_label(rustix::net::getpeername(fd).ok()??)
}

fn without_flow_label(address: SocketAddrAny) -> Option<SocketAddr> {
    let mut address = SocketAddr::try_from(address).ok()?;
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_flowinfo(0);
    }
    Some(address)
}

/// Decodes a `sockaddr_in` or `sockaddr_in6`; `None` for other families and truncated addresses.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip: IpAddr = match family {
        libc::AF_INET => Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into(),
        libc::AF_INET6 => {
            let scope = u32::from_ne_bytes(bytes.get(24..).and_then(|b| b.first_chunk()).copied().unwrap_or_default());
            let ip = Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?);
            return Some(std::net::SocketAddrV6::new(ip, port, 0, scope).into());
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn what_the_kernel_says_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(kind(client.as_fd()), Some((libc::AF_INET, libc::IPPROTO_TCP)));
        assert_eq!((state(client.as_fd()), state(listener.as_fd())), (Some(1), Some(10)));
        assert_eq!(local(client.as_fd()), Some(client.local_addr().unwrap()));
        assert_eq!(peer(client.as_fd()), Some(listener.local_addr().unwrap()));
        assert_eq!(peer(listener.as_fd()), None);
        assert_ne!(cookie(client.as_fd()).unwrap(), cookie(listener.as_fd()).unwrap());
        assert_eq!(repair_seqs(client.as_fd()), None);
        assert_eq!(bound_ifindex(client.as_fd()), 0);
    }

    #[test]
    fn a_short_address_is_none() {
        assert_eq!(decode(&[2, 0, 0, 179, 10, 0, 0]), None);
        assert_eq!(decode(&[2, 0, 0, 179, 10, 0, 0, 1]), Some("10.0.0.1:179".parse().unwrap()));
    }
}
