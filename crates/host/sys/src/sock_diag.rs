//! The kernel's sockets: lookup by segment, closing, and notification of closed ones (`linux/inet_diag.h`,
//! `linux/sock_diag.h`).

use super::netlink::{Messages, Socket, errno, family};
use sealane_abi::netlink as nl;
use sealane_abi::tcp::State;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Closes a socket as if its peer had reset the connection.
const SOCK_DESTROY: u16 = 21;
/// Groups of `enum sknetlink_groups`.
const SKNLGRP_INET_TCP_DESTROY: u32 = 1;
const SKNLGRP_INET6_TCP_DESTROY: u32 = 3;
/// `struct inet_diag_msg` up to the end of its sockid, and all of it.
const MSG_LEN: usize = 72;
const NO_COOKIE: u64 = u64::MAX;
/// `idiag_timer` of what only waits for late segments (`inet_twsk_diag_fill` of `net/ipv4/inet_diag.c`).
const TIMER_TIME_WAIT: u8 = 3;

/// A socket of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// `SO_COOKIE`.
    pub cookie: u64,
    /// The TCP state.
    pub state: State,
    /// Whether the peer of one in TIME_WAIT has yet to close its end. Its program has closed it.
    pub half_closed: bool,
    /// The local address; unspecified if it has none.
    pub local: SocketAddr,
    /// The peer's address; unspecified if it has none.
    pub remote: SocketAddr,
    /// The device that it is bound to; 0 if none.
    pub ifindex: u32,
    /// The inode; 0 if no program has the socket open.
    pub inode: u32,
}

impl Entry {
    /// Whether it is a connection that a listener has not completed yet. Linux reports a request socket as SYN_RECV
    /// (`inet_req_diag_fill` of `net/ipv4/inet_diag.c`); unlike a socket that has connected itself nobody has it open.
    #[must_use]
    pub fn is_half_open(&self) -> bool {
        self.state == State::NewSynRecv || self.state == State::SynRecv && self.inode == 0
    }
}

/// The socket that a request is about.
struct Asked {
    local: SocketAddr,
    remote: SocketAddr,
    /// The device of its segments: sockets bound to another one are not found.
    device: u32,
    cookie: u64,
    /// In a dump, the bits of the wanted states.
    states: u32,
}

/// Queries sockets in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct SockDiag {
    socket: Socket,
    request: Messages,
}

impl SockDiag {
    /// Opens a netlink socket for queries.
    ///
    /// # Errors
    /// The kernel's: `EPROTONOSUPPORT` where it lacks sock_diag.
    pub fn open() -> io::Result<Self> {
        Ok(SockDiag { socket: Socket::open(libc::NETLINK_SOCK_DIAG)?, request: Messages::new() })
    }

    /// The TCP socket that the kernel would deliver a segment to that arrived at `device` from `remote` for `local`: a
    /// connection, else a listener. A half-open connection has a cookie of its own, different from its listener's.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` for an address family that it lacks.
    pub fn find(&mut self, local: SocketAddr, remote: SocketAddr, device: u32) -> io::Result<Option<Entry>> {
        let mut found = None;
        let asked = Asked { local, remote, device, cookie: NO_COOKIE, states: u32::MAX };
        let done = self.ask(SOCK_DIAG_BY_FAMILY, 0, &asked, |e| found = Some(e));
        match done {
            Ok(()) => Ok(found),
            Err(e) if errno(&e) == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The listener for segments to `local`, ignoring its half-open connections.
    ///
    /// # Errors
    /// As [`SockDiag::find`].
    pub fn listener(&mut self, local: SocketAddr, remote: SocketAddr, device: u32) -> io::Result<Option<Entry>> {
        // No connection has a peer with port 0.
        self.find(local, SocketAddr::new(remote.ip(), 0), device)
    }

    /// Hands every listening TCP socket to `each`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listeners(&mut self, each: impl FnMut(Entry)) -> io::Result<()> {
        self.dump(1 << State::Listen as u32, each)
    }

    /// Hands every TCP connection to `each`, in any state and even if no program has it open.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connections(&mut self, each: impl FnMut(Entry)) -> io::Result<()> {
        let none = [State::Listen, State::Close, State::BoundInactive];
        self.dump(!none.into_iter().fold(0, |bits, s| bits | 1 << s as u32), each)
    }

    fn dump(&mut self, states: u32, mut each: impl FnMut(Entry)) -> io::Result<()> {
        for any in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
            let any = SocketAddr::new(any, 0);
            let asked = Asked { local: any, remote: any, device: 0, cookie: NO_COOKIE, states };
            match self.ask(SOCK_DIAG_BY_FAMILY, nl::NLM_F_DUMP, &asked, &mut each) {
                // An address family that the kernel lacks has no sockets.
                Err(e) if errno(&e) != Some(libc::ENOENT) => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Closes a socket: its program gets `ECONNABORTED`, its peer an RST.
    ///
    /// # Errors
    /// The kernel's: `EOPNOTSUPP` without `CONFIG_INET_DIAG_DESTROY`, `ENOENT` when the socket is gone.
    pub fn destroy(&mut self, entry: &Entry) -> io::Result<()> {
        let Entry { local, remote, ifindex, cookie, .. } = *entry;
        self.ask(
            SOCK_DESTROY,
            nl::NLM_F_ACK,
            &Asked { local, remote, device: ifindex, cookie, states: u32::MAX },
            |_| {},
        )
    }

    fn ask(&mut self, type_: u16, flags: u16, asked: &Asked, mut each: impl FnMut(Entry)) -> io::Result<()> {
        let Asked { local, remote, device, cookie, states } = *asked;
        // struct inet_diag_req_v2: family, protocol, ext, pad, states, then struct inet_diag_sockid.
        let mut fixed = [0u8; 56];
        fixed[0] = family(local.ip());
        fixed[1] = libc::IPPROTO_TCP as u8;
        fixed[4..8].copy_from_slice(&states.to_ne_bytes());
        fixed[8..10].copy_from_slice(&local.port().to_be_bytes());
        fixed[10..12].copy_from_slice(&remote.port().to_be_bytes());
        for (at, ip) in [(12, local.ip()), (28, remote.ip())] {
            match ip {
                IpAddr::V4(a) => fixed[at..at + 4].copy_from_slice(&a.octets()),
                IpAddr::V6(a) => fixed[at..at + 16].copy_from_slice(&a.octets()),
            }
        }
        fixed[44..48].copy_from_slice(&device.to_ne_bytes());
        fixed[48..56].copy_from_slice(&cookie.to_ne_bytes());
        self.request.clear();
        self.request.push(type_, flags, &fixed, |_| {});
        self.socket.request(&self.request, |message| {
            if let Some(entry) = entry(message.payload) {
                each(entry);
            }
        })
    }
}

/// Reports closed TCP sockets.
#[derive(Debug)]
pub struct Departures {
    socket: Socket,
}

impl Departures {
    /// Subscribes in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_ADMIN`.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_SOCK_DIAG)?;
        socket.join(SKNLGRP_INET_TCP_DESTROY)?;
        socket.join(SKNLGRP_INET6_TCP_DESTROY)?;
        Ok(Departures { socket })
    }

    /// Hands the sockets closed since the last call to `each`. Does not wait.
    ///
    /// # Errors
    /// `ENOBUFS` when some notifications were lost.
    pub fn each(&mut self, mut each: impl FnMut(Entry)) -> io::Result<()> {
        self.socket.receive(|message| {
            if let Some(entry) = entry(message.payload) {
                each(entry);
            }
        })
    }
}

impl AsFd for Departures {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses a `struct inet_diag_msg`.
fn entry(bytes: &[u8]) -> Option<Entry> {
    let bytes = bytes.get(..MSG_LEN)?;
    let ip = |at: usize| -> Option<IpAddr> {
        Some(if i32::from(bytes[0]) == libc::AF_INET {
            Ipv4Addr::from(*bytes[at..].first_chunk::<4>()?).into()
        } else {
            Ipv6Addr::from(*bytes[at..].first_chunk::<16>()?).to_canonical()
        })
    };
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    // What is left of a connection that its program has closed has the state FIN_WAIT_2 as long as the peer has not closed its end.
    let (told, is_left) = (State::new(bytes[1])?, bytes[2] == TIMER_TIME_WAIT);
    Some(Entry {
        state: if is_left { State::TimeWait } else { told },
        half_closed: is_left && told == State::FinWait2,
        local: SocketAddr::new(ip(8)?, port(4)),
        remote: SocketAddr::new(ip(24)?, port(6)),
        ifindex: u32::from_ne_bytes(*bytes[40..].first_chunk()?),
        cookie: u64::from_ne_bytes(*bytes[44..].first_chunk()?),
        inode: u32::from_ne_bytes(*bytes[68..].first_chunk()?),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{tcp_socket, testing};
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn sockets_are_found_and_their_end_is_told() {
        let Some(ns) = testing::namespace("sys::sock_diag") else { return };
        ns.run(|| {
            super::super::link::set_up("lo", true)?;
            let mut gone = Departures::open()?;
            let mut diag = SockDiag::open()?;
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let at = listener.local_addr()?;
            let client = TcpStream::connect(at)?;
            let from = client.local_addr()?;
            let entry = diag.find(from, at, 0)?.expect("the client's socket");
            assert_eq!((entry.state, entry.cookie), (State::Established, tcp_socket::cookie(client.as_fd())?));
            assert_eq!((entry.local, entry.remote), (from, at));
            let stranger = SocketAddr::new(from.ip(), 1);
            let entry = diag.find(at, stranger, 0)?.expect("the listener");
            assert_eq!((entry.state, entry.cookie), (State::Listen, tcp_socket::cookie(listener.as_fd())?));
            assert_eq!(diag.listener(at, from, 0)?.map(|e| e.cookie), Some(entry.cookie));
            assert_eq!(diag.find(stranger, at, 0)?, None);
            let (accepted, _) = listener.accept()?;
            drop(client);
            let mut left = None;
            for _ in 0..200 {
                left = diag.find(from, at, 0)?.filter(|e| e.state == State::TimeWait);
                if left.is_some() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert!(left.expect("the client's end in TIME_WAIT").half_closed);
            drop(accepted);
            let left = diag.find(from, at, 0)?.expect("the client's end");
            assert_eq!((left.state, left.half_closed), (State::TimeWait, false));
            diag.destroy(&left)?;
            assert_eq!(diag.find(from, at, 0)?, None);
            let other = TcpListener::bind("127.0.0.1:0")?;
            let mut listeners = Vec::new();
            diag.listeners(|e| listeners.push((e.local, e.state)))?;
            listeners.sort();
            let mut expected = [(at, State::Listen), (other.local_addr()?, State::Listen)];
            expected.sort();
            assert_eq!(listeners, expected);
            drop(listener);
            // A kernel thread sends the notification later.
            let mut seen = false;
            for _ in 0..200 {
                gone.each(|e| seen |= e.cookie == entry.cookie)?;
                if seen {
                    return Ok(());
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            panic!("nobody told that the listener is gone");
        })
        .expect("sock_diag");
    }
}
